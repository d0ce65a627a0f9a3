/*
 * conv_half.cu - convolution of bfloat16 operands on tensor cores; see conv.cuh.
 *
 * Slices are 32 of L. In shared memory, L runs along the rows of both operands, so that a thread
 * writes its column of B, 64 bytes, in four pieces, and fragments are loaded without a change. Rows
 * are 80 bytes apart, so that neither operand has bank conflicts. A warp computes 32 x 64 of C (32
 * x 32 if M is at most 32): 32 products of 16 x 8 x 16 for each slice. The address of an element of
 * B costs about 12 instructions, so a multiprocessor that issues 4 in a cycle reaches about 1,000
 * flops in a cycle, a quarter of the limit of an H200's tensor cores. A layout with the channels
 * last would give 8 elements at once.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu conv).
 */
#include "tensor/cuda/conv.cuh"
#include "tensor/cuda/mma.cuh"

#define SLICE 32
#define PITCH (SLICE + 8)
#define M16   2 /* products of a warp along M */

/* The shared memory of a block; TILE: rows of C that it computes. */
template <int TILE> struct __align__(16) half_slices
{
	bf16 a[TILE][PITCH], b[COLUMNS][PITCH];
	struct row row[SLICE]; /* of the next slice */
};

/* The part of a slice that a thread reads: A's column t % 32 in every 4th row, two rows in a word;
 * B's column t, two of L in a word. */
template <enum what W, int TILE, typename P>
__device__ static inline void read(const P &p, const struct half_slices<TILE> &s,
				   const struct column &col, unsigned *a, unsigned *b)
{
	int t = (int)threadIdx.x, at = s.row[t % SLICE].a;
	float v[2];

#pragma unroll
	for (int i = 0; i < TILE / 8; i++) {
		for (int j = 0; j < 2; j++) {
			int m = (int)blockIdx.y * TILE + (2 * i + j) * 4 + t / SLICE;

			v[j] = m < p.m && at >= 0 ? pl_float(p.a[(size_t)at + (size_t)m * p.a_step])
						  : 0;
		}
		a[i] = pl_pack(v[0], v[1]);
	}
#pragma unroll
	for (int i = 0; i < SLICE / 2; i++) {
		for (int j = 0; j < 2; j++)
			v[j] = element<W>(p.d, p.b, s.row[2 * i + j], col);
		b[i] = pl_pack(v[0], v[1]);
	}
}

template <int TILE>
__device__ static inline void write(struct half_slices<TILE> *s, const unsigned *a,
				    const unsigned *b)
{
	int t = (int)threadIdx.x;
	float v[2];

#pragma unroll
	for (int i = 0; i < TILE / 8; i++) {
		pl_unpack(a[i], v);
		pl_store(&s->a[2 * i * 4 + t / SLICE][t % SLICE], v[0]);
		pl_store(&s->a[(2 * i + 1) * 4 + t / SLICE][t % SLICE], v[1]);
	}
#pragma unroll
	for (int i = 0; i < SLICE / 8; i++)
		*(uint4 *)&s->b[t][8 * i] =
			make_uint4(b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]);
}

/* sum[m][n] += the products of a slice, from row `top` and column `left` of the block's part of
 * C */
template <int TILE, int N8>
__device__ static inline void multiply(const struct half_slices<TILE> &s, int top, int left,
				       float (*sum)[N8][4])
{
	int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int l = 0; l < SLICE; l += 16) {
		uint32_t a[M16][4], b[4];

#pragma unroll
		for (int m = 0; m < M16; m++)
			plm_load(a[m],
				 plm_shared(&s.a[top + 16 * m + lane % 16][l + lane / 16 * 8]));
#pragma unroll
		for (int n = 0; n < N8; n += 2) {
			plm_load(b, plm_shared(&s.b[left + 8 * n + lane % 8 + lane / 16 * 8]
						   [l + lane / 8 % 2 * 8]));
#pragma unroll
			for (int m = 0; m < M16; m++) {
				plm_mma(sum[m][n], a[m], b);
				plm_mma(sum[m][n + 1], a[m], b + 2);
			}
		}
	}
}

/* Store the part of a warp, which begins at row `top` and column `left`. */
template <enum what W, int N8, typename A, typename B, typename C>
__device__ static inline void leave(const struct product<A, B, C> &p, int top, int left,
				    float (*sum)[N8][4])
{
	int lane = (int)threadIdx.x % 32;
	C *part = p.c + (size_t)blockIdx.z * (size_t)p.m * (size_t)p.n;

	for (int n = 0; n < 2 * N8; n++) {
		int at = left + n / 2 * 8 + lane % 4 * 2 + n % 2;
		size_t to;

		if (at >= p.n)
			continue;
		to = (size_t)column_of<W>(p.d, at).c;
		for (int i = 0; i < 2 * M16; i++) {
			int m = top + i * 8 + lane / 4;

			if (m < p.m)
				pl_store(part + to + (size_t)m * p.c_step,
					 sum[i / 2][n / 2][i % 2 * 2 + n % 2] +
						 (p.bias ? p.bias[m] : 0));
		}
	}
}

/* grid: (N / COLUMNS, M / TILE, parts of L); N8: products of a warp along N */
template <enum what W, int TILE, int N8, typename A, typename B, typename C>
static __global__ void __launch_bounds__(COLUMNS) convolve(struct product<A, B, C> p)
{
	PL_SHARED(s, struct half_slices<TILE>);
	int own = (int)(blockIdx.x * COLUMNS + threadIdx.x), warp = (int)threadIdx.x / 32;
	int first = (int)blockIdx.z * p.each, end = min(first + p.each, p.l);
	int top = TILE > 32 ? warp / 2 * 32 : 0, left = (TILE > 32 ? warp % 2 : warp) * N8 * 8;
	struct column col = column_of<W>(p.d, own < p.n ? own : 0);
	float sum[M16][N8][4] = {};
	unsigned a[TILE / 8], b[SLICE / 2];

	if (own >= p.n)
		col.y = NOWHERE;
	next_rows<W, SLICE>(p.d, first, end, s.row);
	__syncthreads();
	read<W>(p, s, col, a, b);
	for (int l = first; l < end; l += SLICE) {
		__syncthreads(); /* all threads have read the rows, and multiplied */
		write(&s, a, b);
		next_rows<W, SLICE>(p.d, l + SLICE, end, s.row);
		__syncthreads();
		if (l + SLICE < end)
			read<W>(p, s, col, a, b);
		multiply<TILE, N8>(s, top, left, sum);
	}
	leave<W, N8>(p, (int)blockIdx.y * TILE + top, (int)blockIdx.x * COLUMNS + left, sum);
}

template <enum what W, typename A, typename B, typename C>
void pl_convolve_half(const struct plk *k, const struct product<A, B, C> &p, unsigned parts)
{
	unsigned across = pl_blocks((size_t)p.n, COLUMNS);

	if (p.m > 32)
		PL_LAUNCH((convolve<W, 64, 8, A, B, C>),
			  dim3(across, pl_blocks((size_t)p.m, 64), parts), COLUMNS, 0, k->stream,
			  p);
	else
		PL_LAUNCH((convolve<W, 32, 4, A, B, C>), dim3(across, 1, parts), COLUMNS, 0,
			  k->stream, p);
}

#define MAKE(T)                                                                                    \
	template void pl_convolve_half<FORWARD>(                                                   \
		const struct plk *k, const struct product<float, T, T> &p, unsigned parts);        \
	template void pl_convolve_half<DATA>(                                                      \
		const struct plk *k, const struct product<float, T, T> &p, unsigned parts);        \
	template void pl_convolve_half<WEIGHTS>(                                                   \
		const struct plk *k, const struct product<T, T, float> &p, unsigned parts)
MAKE(float);
MAKE(bf16);
