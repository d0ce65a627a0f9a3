/*
 * conv.cu - convolution in float32, and all launchers of convolution; see conv.cuh.
 *
 * A thread computes TM x 8 of C by fused multiply and add from slices of 16 of L. The parts of dw
 * write their sums, and pl_fold() adds them in order. Flops: 2 M N L each.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu conv).
 */
#include "tensor/cuda/conv.cuh"

#define SLICE 16 /* of L */

/* The shared memory of a block. */
template <int TM> struct __align__(16) slices
{
	float a[SLICE][8 * TM + 4], b[SLICE][COLUMNS + 4];
	struct row row[SLICE]; /* of the next slice */
};

/* The part of a slice that a thread reads: A's column t % 16 in every 8th row, B's column t. */
template <enum what W, int TM, typename P>
__device__ static inline void read(const P &p, const struct slices<TM> &s, const struct column &col,
				   float *a, float *b)
{
	int t = (int)threadIdx.x, at = s.row[t % SLICE].a;

	for (int i = 0; i < TM; i++) {
		int m = (int)blockIdx.y * 8 * TM + i * 8 + t / SLICE;

		a[i] = m < p.m && at >= 0 ? pl_float(p.a[(size_t)at + (size_t)m * p.a_step]) : 0;
	}
	for (int i = 0; i < SLICE; i++)
		b[i] = element<W>(p.d, p.b, s.row[i], col);
}

template <int TM>
__device__ static inline void write(struct slices<TM> *s, const float *a, const float *b)
{
	int t = (int)threadIdx.x;

	for (int i = 0; i < TM; i++)
		s->a[t % SLICE][i * 8 + t / SLICE] = a[i];
	for (int i = 0; i < SLICE; i++)
		s->b[i][t] = b[i];
}

/* sum (TM, 8) += A B of a slice; the columns of a thread are 4 and 4, 64 apart */
template <int TM>
__device__ static inline void multiply(const struct slices<TM> &s, float (*sum)[8])
{
	int tx = (int)threadIdx.x % 16 * 4, ty = (int)threadIdx.x / 16 * TM;

#pragma unroll
	for (int l = 0; l < SLICE; l++) {
		float a[TM], b[8];

		pl_get<TM>(&s.a[l][ty], a);
		pl_get<4>(&s.b[l][tx], b);
		pl_get<4>(&s.b[l][64 + tx], b + 4);
#pragma unroll
		for (int i = 0; i < TM; i++)
#pragma unroll
			for (int j = 0; j < 8; j++)
				sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
	}
}

/* grid: (N / COLUMNS, M / (8 TM), parts of L) */
template <enum what W, int TM, typename A, typename B, typename C>
static __global__ void __launch_bounds__(COLUMNS) convolve(struct product<A, B, C> p)
{
	PL_SHARED(s, struct slices<TM>);
	int own = (int)(blockIdx.x * COLUMNS + threadIdx.x);
	int first = (int)blockIdx.z * p.each, end = min(first + p.each, p.l);
	struct column col = column_of<W>(p.d, own < p.n ? own : 0);
	float sum[TM][8] = {}, a[TM], b[SLICE];

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
		multiply(s, sum);
	}
	for (int j = 0; j < 8; j++) {
		int n = (int)(blockIdx.x * COLUMNS) + j / 4 * 64 + (int)threadIdx.x % 16 * 4 +
			j % 4;
		size_t to = (size_t)blockIdx.z * (size_t)p.m * (size_t)p.n;

		if (n >= p.n)
			continue;
		to += (size_t)column_of<W>(p.d, n).c;
		for (int i = 0; i < TM; i++) {
			int m = (int)blockIdx.y * 8 * TM + (int)threadIdx.x / 16 * TM + i;

			if (m < p.m)
				pl_store(p.c + to + (size_t)m * p.c_step,
					 sum[i][j] + (p.bias ? p.bias[m] : 0));
		}
	}
}

template <enum what W, typename A, typename B, typename C>
static void launch(const struct plk *k, const struct product<A, B, C> &p, unsigned parts)
{
	unsigned across = pl_blocks((size_t)p.n, COLUMNS);

	if (k->bf16 || k->precision == PL_BF16)
		pl_convolve_half<W>(k, p, parts);
	else if constexpr (sizeof(B) == sizeof(float)) {
		if (p.m > 32)
			PL_LAUNCH((convolve<W, 8, A, B, C>),
				  dim3(across, pl_blocks((size_t)p.m, 64), parts), COLUMNS, 0,
				  k->stream, p);
		else
			PL_LAUNCH((convolve<W, 4, A, B, C>), dim3(across, 1, parts), COLUMNS, 0,
				  k->stream, p);
	}
}

/* ---- launchers ------------------------------------------------------------------------------- */

void plk_conv(const struct plk *k, const struct pl_conv *d, const void *x, const float *w,
	      const float *bias, enum pl_act act, void *y)
{
	int plane = d->p * d->q, taps = d->c * d->r * d->s;

	PL_STORED(k, T, {
		struct product<float, T, T> p = {
			*d, d->k, d->n *plane, taps, taps, taps, plane, w, (const T *)x,
				(T *)y, bias
		};

		launch<FORWARD>(k, p, 1);
	});
	if (act != PL_ACT_NONE)
		plk_act(k, act, (size_t)d->n * (size_t)d->k * (size_t)plane, y, y);
}

/* The number of parts of L for dw: two blocks for each multiprocessor, each with some slices. */
static int parts_of(const struct plk *k, const struct pl_conv *d, int *each)
{
	int tiles = (int)pl_blocks((size_t)(d->c * d->r * d->s), COLUMNS) *
		    (d->k > 32 ? (d->k + 63) / 64 : 1);
	int l = d->n * d->p * d->q, most = (l + 8 * SLICE - 1) / (8 * SLICE);
	int parts = (2 * k->sms + tiles - 1) / tiles;

	parts = parts < most ? parts : most;
	*each = ((l + parts - 1) / parts + 31) / 32 * 32; /* whole slices in every part */
	return (l + *each - 1) / *each;
}

#define BIAS_PARTS 64

size_t plk_conv_scratch(const struct plk *k, const struct pl_conv *d)
{
	int each;
	size_t parts = (size_t)parts_of(k, d, &each);
	size_t filters = parts * (size_t)d->k * (size_t)(d->c * d->r * d->s);
	size_t bias = (size_t)BIAS_PARTS * (size_t)d->k;

	return (filters > bias ? filters : bias) * sizeof(float);
}

/* parts (gridDim.x, K): sums of dy (N, K, S) over some of N S */
template <typename T>
static __global__ void sum_filters(int n, int c, int s, const T *dy, float *parts)
{
	PL_SHARED(room, float[32]);
	size_t all = (size_t)n * s, step = (size_t)gridDim.x * PL_BLOCK;
	float sum = 0;

	for (size_t i = (size_t)blockIdx.x * PL_BLOCK + threadIdx.x; i < all; i += step) {
		size_t image = pl_div(i, s);

		sum += pl_float(dy[(image * c + blockIdx.y) * s + (i - image * s)]);
	}
	sum = pl_team_sum(sum, PL_BLOCK, room);
	if (threadIdx.x == 0)
		parts[(size_t)blockIdx.x * c + blockIdx.y] = sum;
}

void plk_conv_dy(const struct plk *k, const struct pl_conv *d, enum pl_act act, const void *y,
		 void *dy, float *db)
{
	int plane = d->p * d->q;
	unsigned all = pl_blocks((size_t)d->n * (size_t)plane, 4 * PL_BLOCK);
	unsigned count = all < BIAS_PARTS ? all : BIAS_PARTS;

	if (act != PL_ACT_NONE)
		plk_act_back(k, act, (size_t)d->n * (size_t)d->k * (size_t)plane, y, y, dy, dy);
	if (!db)
		return;
	PL_STORED(k, T, {
		PL_LAUNCH((sum_filters<T>), dim3(count, (unsigned)d->k), PL_BLOCK, 0, k->stream,
			  d->n, d->k, plane, (const T *)dy, (float *)k->scratch);
	});
	pl_fold(k, (const float *)k->scratch, (int)count, d->k, db, NULL);
}

void plk_conv_dw(const struct plk *k, const struct pl_conv *d, const void *x, const void *dy,
		 float *dw)
{
	int plane = d->p * d->q, taps = d->c * d->r * d->s, each, parts = parts_of(k, d, &each);
	float *sums = (float *)k->scratch;

	PL_STORED(k, T, {
		struct product<T, T, float> p = {
			*d, d->k, taps, d->n *plane, each, plane, taps, (const T *)dy,
				(const T *)x, sums, NULL
		};

		launch<WEIGHTS>(k, p, (unsigned)parts);
	});
	pl_fold(k, sums, parts, d->k * taps, dw, NULL);
}

void plk_conv_dx(const struct plk *k, const struct pl_conv *d, const float *w, const void *dy,
		 void *dx)
{
	PL_STORED(k, T, {
		int l = d->k * d->r * d->s;
		struct product<float, T, T> p = {
			*d, d->c, d->n * d->h * d->w, l, l, d->r * d->s, d->h * d->w, w,
				(const T *)dy, (T *)dx, NULL
		};

		launch<DATA>(k, p, 1);
	});
}
