/*
 * attn_any.cu - causal attention for types that the tensor cores cannot take: float32 activations,
 * whose products are exact float32 multiply-adds, and bfloat16 with heads of odd sizes. Any T, any
 * size. The loops are those of attn_mma*.cu: a block owns 64 rows and reads the rows of the other
 * operand, 64 at a time, without a T x T matrix; the backward pass computes the probabilities
 * again.
 *
 * A block is 16 x 16 threads; thread (i, j) has 4 x 4 elements of each 64 x 64 product: rows i + 16
 * a, columns j + 16 b of scores, columns 4 j + b of sums. Both operands are in shared memory, 64
 * columns of a head at a time, so that nothing depends on the size; 2 loads of 16 bytes feed 16
 * multiply-adds. A block sums up to 128 columns of a head; a wider head has more blocks
 * (blockIdx.y), and each computes the scores again. 35 KB of shared memory, so several blocks of an
 * SM hide each other's loads.
 *
 * The operands of a row are loaded one after the other, so that 128 registers are enough for the
 * inner loops. Only back_columns() keeps 72 bytes of addresses in memory, which it reads once for
 * every 5,000 multiply-adds.
 *
 * Flops as in attn_mma*.cu: 2 T^2 size for each head forward, 7 T^2 size backward. With PL_BF16,
 * operands are rounded when they are written to shared memory.
 */
#include "tensor/cuda/attn.cuh"

#define SIDE	64
#define SIDES	2	   /* number of SIDE columns that a block sums */
#define PITCH	(SIDE + 4) /* floats: rows that are read together use different banks */
#define THREADS 256

typedef float tile[SIDE][PITCH];

static __device__ __forceinline__ float operand(float x, bool half)
{
	return half ? pl_float(__float2bfloat16_rn(x)) : x;
}

/* Copy at most SIDE rows and columns from global memory; the rest becomes zeros. */
template <typename T>
static __device__ __forceinline__ void load_tile(tile &to, const T *from, size_t ld, int rows,
						 int columns, bool half)
{
	int r = (int)threadIdx.x / SIDE, c = (int)threadIdx.x % SIDE;

	from += r * ld + c;
	rows = c < columns ? rows - r : 0;
#pragma unroll 4
	for (int i = 0; i < SIDE; i += THREADS / SIDE)
		to[r + i][c] = i < rows ? operand(pl_float(from[i * ld]), half) : 0;
}

/* s += a b^T, over `n` columns */
static __device__ __forceinline__ void dots(float s[4][4], const tile &a, const tile &b, int n)
{
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16;

#pragma unroll 1
	for (int k = 0; k < n; k += 4) {
		float x[4][4], y[4];

#pragma unroll
		for (int r = 0; r < 4; r++)
			pl_get<4>(&a[i + 16 * r][k], x[r]);
#pragma unroll
		for (int q = 0; q < 4; q++) {
			pl_get<4>(&b[j + 16 * q][k], y);
#pragma unroll
			for (int e = 0; e < 4; e++)
#pragma unroll
				for (int r = 0; r < 4; r++)
					s[r][q] = fmaf(x[r][e], y[e], s[r][q]);
		}
	}
}

/* acc += p b */
static __device__ __forceinline__ void combine(float acc[4][4], const tile &p, const tile &b)
{
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16;

#pragma unroll 1
	for (int k = 0; k < SIDE; k += 4) {
		float x[4][4], y[4];

#pragma unroll
		for (int r = 0; r < 4; r++)
			pl_get<4>(&p[i + 16 * r][k], x[r]);
#pragma unroll
		for (int e = 0; e < 4; e++) {
			pl_get<4>(&b[k + e][4 * j], y);
#pragma unroll
			for (int r = 0; r < 4; r++)
#pragma unroll
				for (int q = 0; q < 4; q++)
					acc[r][q] = fmaf(x[r][e], y[q], acc[r][q]);
		}
	}
}

/* s = rows of a times rows of b, each `size` wide; copies a and b to ta and tb. */
template <typename T>
static __device__ __forceinline__ void scores(float s[4][4], tile &ta, tile &tb, const T *a,
					      size_t lda, int rows_a, const T *b, size_t ldb,
					      int rows_b, int size, bool half)
{
#pragma unroll
	for (int e = 0; e < 16; e++)
		s[e / 4][e % 4] = 0;
	for (int c = 0; c < size; c += SIDE) {
		__syncthreads();
		load_tile(ta, a + c, lda, rows_a, size - c, half);
		load_tile(tb, b + c, ldb, rows_b, size - c, half);
		__syncthreads();
		dots(s, ta, tb, min(size - c, SIDE));
	}
}

/* acc += s times rows of b, for `columns` columns; s goes through ts. */
template <typename T>
static __device__ __forceinline__ void gather(float acc[SIDES][4][4], tile &ts, tile &tb,
					      const float s[4][4], const T *b, size_t ldb, int rows,
					      int columns, bool half)
{
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16;

	__syncthreads();
#pragma unroll
	for (int e = 0; e < 16; e++)
		ts[i + 16 * (e / 4)][j + 16 * (e % 4)] = operand(s[e / 4][e % 4], half);
#pragma unroll
	for (int c = 0; c < SIDES; c++)
		if (c * SIDE < columns) {
			if (c)
				__syncthreads();
			load_tile(tb, b + c * SIDE, ldb, rows, columns - c * SIDE, half);
			__syncthreads();
			combine(acc[c], ts, tb);
		}
}

template <typename T>
static __device__ __forceinline__ void put(T *to, size_t ld, const float acc[SIDES][4][4], int rows,
					   int columns)
{
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16;

#pragma unroll
	for (int c = 0; c < SIDES; c++)
#pragma unroll
		for (int e = 0; e < 16; e++) {
			int row = i + 16 * (e / 4), column = c * SIDE + 4 * j + e % 4;

			if (row < rows && column < columns)
				pl_store(to + row * ld + column, acc[c][e / 4][e % 4]);
		}
}

/* The sum over the 16 threads of a row; all of them get it. */
static __device__ __forceinline__ float row_sum(float v)
{
	for (int bit = 8; bit; bit >>= 1)
		v += __shfl_xor_sync(PL_FULL, v, bit);
	return v;
}
static __device__ __forceinline__ float row_max(float v)
{
	for (int bit = 8; bit; bit >>= 1)
		v = fmaxf(v, __shfl_xor_sync(PL_FULL, v, bit));
	return v;
}

/* Online softmax of a row of 64 scores: the 4 scores of this thread, s, become probabilities. */
static __device__ __forceinline__ float online_softmax(float s[4], float *most, float *sum)
{
	float top = fmaxf(*most, row_max(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]))));
	float factor = expf(*most - top), own = 0;

	*most = top;
#pragma unroll
	for (int b = 0; b < 4; b++)
		own += s[b] = expf(s[b] - top);
	*sum = *sum * factor + row_sum(own);
	return factor;
}

template <typename T>
static __global__ __launch_bounds__(THREADS, 2) void forward(struct plk_heads d, bool half,
							     const T *qkv, T *y, float *save)
{
	PL_SHARED(ta, tile);
	PL_SHARED(tb, tile);
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16,
	    part = (int)blockIdx.y * SIDES * SIDE;
	int t0 = (d.blocks - 1 - (int)blockIdx.x % d.blocks) * SIDE, columns = d.size - part;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	size_t step = 3 * (size_t)d.c;
	const T *q = qkv + plk_row(at, t0, 3 * d.c), *k = qkv + plk_row(at, 0, 3 * d.c) + d.c;
	float acc[SIDES][4][4] = {}, most[4], sum[4] = {}, s[4][4];

	for (int a = 0; a < 4; a++)
		most[a] = -INFINITY;
	for (int u0 = 0; u0 <= t0; u0 += SIDE, k += SIDE * step) {
		scores(s, ta, tb, q, step, d.t - t0, k, step, d.t - u0, d.size, half);
#pragma unroll
		for (int a = 0; a < 4; a++) {
			float factor;

#pragma unroll
			for (int b = 0; b < 4; b++)
				s[a][b] = u0 + j + 16 * b > t0 + i + 16 * a ? -INFINITY
									    : s[a][b] * d.scale;
			factor = online_softmax(s[a], &most[a], &sum[a]);
#pragma unroll
			for (int e = 0; e < 4 * SIDES; e++)
				acc[e / 4][a][e % 4] *= factor;
		}
		gather(acc, ta, tb, s, k + d.c + part, step, d.t - u0, columns, half);
	}
#pragma unroll
	for (int a = 0; a < 4; a++) {
		int row = t0 + i + 16 * a;

		if (row < d.t && j == 0 && part == 0)
			save[plk_line(d, at, row)] = most[a] + logf(sum[a]);
#pragma unroll
		for (int e = 0; e < 4 * SIDES; e++)
			acc[e / 4][a][e % 4] /= sum[a];
	}
	put(y + plk_row(at, t0, d.c) + part, d.c, acc, d.t - t0, columns);
}

template <typename T>
static __global__ __launch_bounds__(THREADS, 2) void back_rows(struct plk_heads d, bool half,
							       const T *qkv, const T *y,
							       const float *save, const T *dy,
							       T *dqkv, float *own)
{
	PL_SHARED(ta, tile);
	PL_SHARED(tb, tile);
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16,
	    part = (int)blockIdx.y * SIDES * SIDE;
	int t0 = (d.blocks - 1 - (int)blockIdx.x % d.blocks) * SIDE, columns = d.size - part;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	size_t step = 3 * (size_t)d.c, rows = plk_row(at, t0, d.c);
	const T *q = qkv + plk_row(at, t0, 3 * d.c), *k = qkv + plk_row(at, 0, 3 * d.c) + d.c;
	float acc[SIDES][4][4] = {}, lse[4], delta[4], s[4][4], ds[4][4];

#pragma unroll
	for (int a = 0; a < 4; a++) {
		int row = i + 16 * a, in = min(row, d.t - 1 - t0);
		size_t from = rows + (size_t)in * d.c, line = plk_line(d, at, t0 + in);

		delta[a] = 0;
		for (int c = j; c < d.size; c += 16)
			delta[a] = fmaf(pl_float(y[from + c]), pl_float(dy[from + c]), delta[a]);
		delta[a] = row_sum(delta[a]);
		lse[a] = save[line];
		if (in == row && j == 0 && part == 0) {
			own[line] = lse[a];
			own[d.rows + line] = delta[a];
		}
	}
	for (int u0 = 0; u0 <= t0; u0 += SIDE, k += SIDE * step) {
		scores(s, ta, tb, q, step, d.t - t0, k, step, d.t - u0, d.size, half);
		scores(ds, ta, tb, dy + rows, d.c, d.t - t0, k + d.c, step, d.t - u0, d.size, half);
#pragma unroll
		for (int e = 0; e < 16; e++) {
			int a = e / 4, b = e % 4;
			float p = expf(s[a][b] * d.scale - lse[a]);

			/* beyond the diagonal, or rows that do not exist */
			if (u0 + j + 16 * b > t0 + i + 16 * a || t0 + i + 16 * a >= d.t)
				p = 0;
			ds[a][b] = p * (ds[a][b] - delta[a]) * d.scale;
		}
		gather(acc, ta, tb, ds, k + part, step, d.t - u0, columns, half);
	}
	put(dqkv + plk_row(at, t0, 3 * d.c) + part, step, acc, d.t - t0, columns);
}

template <typename T>
static __global__ __launch_bounds__(THREADS, 2) void back_columns(struct plk_heads d, bool half,
								  const T *qkv, const T *dy,
								  T *dqkv, const float *own)
{
	PL_SHARED(ta, tile);
	PL_SHARED(tb, tile);
	int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16,
	    part = (int)blockIdx.y * SIDES * SIDE;
	int u0 = (int)blockIdx.x % d.blocks * SIDE, columns = d.size - part, rows = d.t - u0;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	size_t step = 3 * (size_t)d.c, keys = plk_row(at, u0, 3 * d.c) + d.c;
	const T *k = qkv + keys, *v = k + d.c;
	float dk[SIDES][4][4] = {}, dv[SIDES][4][4] = {}, p[4][4], ds[4][4];

	for (int q0 = u0; q0 < d.t; q0 += SIDE) {
		const T *q = qkv + plk_row(at, q0, 3 * d.c), *g = dy + plk_row(at, q0, d.c);
		int n = d.t - q0;

		scores(p, ta, tb, k, step, rows, q, step, n, d.size, half);
		scores(ds, ta, tb, v, step, rows, g, d.c, n, d.size, half);
#pragma unroll
		for (int b = 0; b < 4; b++) {
			int column = j + 16 * b;
			const float *its = own + plk_line(d, at, q0 + min(column, n - 1));
			float lse = its[0], delta = its[d.rows];

#pragma unroll
			for (int a = 0; a < 4; a++) {
				bool in = column < n && u0 + i + 16 * a <= q0 + column;

				p[a][b] = in ? expf(p[a][b] * d.scale - lse) : 0;
				ds[a][b] = p[a][b] * (ds[a][b] - delta) * d.scale;
			}
		}
		gather(dv, ta, tb, p, g + part, d.c, n, columns, half);
		gather(dk, ta, tb, ds, q + part, step, n, columns, half);
	}
	put(dqkv + keys + part, step, dk, rows, columns);
	put(dqkv + keys + d.c + part, step, dv, rows, columns);
}

static dim3 grid_of(const struct pl_attn *d, const struct plk_heads *h)
{
	return dim3((unsigned)(d->b * d->heads * h->blocks),
		    pl_blocks((size_t)h->size, SIDES * SIDE));
}

void plk_attn_any(const struct plk *k, const struct pl_attn *d, const void *qkv, void *y,
		  float *save)
{
	struct plk_heads h = plk_heads_of(d, SIDE);
	bool half = k->precision == PL_BF16;

	PL_STORED(k, T,
		  PL_LAUNCH((forward<T>), grid_of(d, &h), THREADS, 0, k->stream, h, half,
			    (const T *)qkv, (T *)y, save));
}

void plk_attn_any_back(const struct plk *k, const struct pl_attn *d, const void *qkv, const void *y,
		       const float *save, const void *dy, void *dqkv, float *own)
{
	struct plk_heads h = plk_heads_of(d, SIDE);
	bool half = k->precision == PL_BF16;

	PL_STORED(k, T,
		  PL_LAUNCH((back_rows<T>), grid_of(d, &h), THREADS, 0, k->stream, h, half,
			    (const T *)qkv, (const T *)y, save, (const T *)dy, (T *)dqkv, own);
		  PL_LAUNCH((back_columns<T>), grid_of(d, &h), THREADS, 0, k->stream, h, half,
			    (const T *)qkv, (const T *)dy, (T *)dqkv, (const float *)own));
}
