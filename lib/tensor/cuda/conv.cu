/*
 * conv.cu - convolution and its two ways back as products of matrices, of which neither operand is
 * ever written down: C (M, N) = A (M, L) B (L, N), elements of A and B are found where they lie.
 *
 *		M	N	L	A		B
 *	y	K	n P Q	C R S	w		x under the window, 0 outside
 *	dx	C	n H W	K R S	w, turned	dy where a window has the pixel, else 0
 *	dw	K	C R S	n P Q	dy		x under the window
 *
 * A block of 128 threads makes 8 TM x 128 of C, a thread TM x 8, from slices of 16 of L in shared
 * memory; the next slice is read into registers meanwhile. A thread reads one column of B, so where
 * that begins is computed once; what the 16 rows of a slice mean is computed by 16 threads, one
 *slice ahead. dw is cut along L into parts, that the device has work; each leaves its sum, and
 *pl_fold() adds them in order. Flops: 2 M N L each; all sums are float32, by fused multiply and
 *add, the operands rounded to bfloat16 where that is asked for. (dx visits every tap: at stride t
 *all but one of t^2 are zeros.)
 */
#include "tensor/cuda/device.cuh"

#define SLICE	16
#define COLUMNS 128 /* of C a block, and threads */
#define NOWHERE (-(1 << 28))

enum what { FORWARD, DATA, WEIGHTS };

template <typename A, typename B, typename C> struct product {
	struct pl_conv d;
	int m, n, l;
	int each;   /* of l a block */
	int a_step; /* from one row of A to the next */
	int c_step;
	const A *a;
	const B *b;
	C *c;
	const float *bias;
	bool half; /* operands are rounded to bfloat16 */
};

struct row {	  /* l of A's columns and B's rows */
	int a;	  /* where A's column begins; -1: beyond the end */
	int b;	  /* part of B's place that depends on l */
	int y, x; /* the same of the pixel */
};

struct column { /* n of B and C */
	int b, y, x;
	int c; /* where C's column begins */
};

template <enum what W> __device__ static inline struct row row_of(const struct pl_conv &d, int l)
{
	int taps = d.r * d.s, plane = d.p * d.q, first, rest;
	struct row r;

	first = l / (W == WEIGHTS ? plane : taps);
	rest = l - first * (W == WEIGHTS ? plane : taps);
	if (W == FORWARD)
		r = { l, first * d.h * d.w, rest / d.s, rest % d.s };
	else if (W == DATA)
		r = { first * d.c * taps + rest, first * plane, -(rest / d.s), -(rest % d.s) };
	else
		r = { first * d.k * plane + rest, first * d.c * d.h * d.w,
		      rest / d.q * d.stride - d.pad, rest % d.q * d.stride - d.pad };
	return r;
}

template <enum what W>
__device__ static inline struct column column_of(const struct pl_conv &d, int j)
{
	int taps = d.r * d.s, plane = d.p * d.q, image = d.h * d.w, first, rest;
	struct column c;

	first = j / (W == FORWARD ? plane : W == DATA ? image : taps);
	rest = j - first * (W == FORWARD ? plane : W == DATA ? image : taps);
	if (W == FORWARD)
		c = { first * d.c * image, rest / d.q * d.stride - d.pad,
		      rest % d.q * d.stride - d.pad, first * d.k * plane + rest };
	else if (W == DATA)
		c = { first * d.k * plane, rest / d.w + d.pad, rest % d.w + d.pad,
		      first * d.c * image + rest };
	else
		c = { first * image, rest / d.s, rest % d.s, j };
	return c;
}

template <enum what W, typename B>
__device__ static inline float element(const struct pl_conv &d, const B *b, const struct row &r,
				       const struct column &c)
{
	int y = r.y + c.y, x = r.x + c.x, h = W == DATA ? d.p : d.h, w = W == DATA ? d.q : d.w;

	if (W == DATA) {
		if (y < 0 || x < 0 || y % d.stride || x % d.stride)
			return 0;
		y /= d.stride;
		x /= d.stride;
	}
	if (y < 0 || y >= h || x < 0 || x >= w)
		return 0;
	return pl_float(b[(size_t)r.b + (size_t)c.b + (size_t)(y * w + x)]);
}

/* What a block has in shared memory. */
template <int TM> struct __align__(16) slices
{
	float a[SLICE][8 * TM + 4], b[SLICE][COLUMNS + 4];
	struct row row[SLICE]; /* of the slice that is read next */
};

/* A thread's share of a slice: A's column t % 16 in every 8th row, B's column t. */
template <enum what W, int TM, typename P>
__device__ static inline void read(const P &p, const struct slices<TM> &s, const struct column &col,
				   float *a, float *b)
{
	int t = (int)threadIdx.x, at = s.row[t % SLICE].a;

	for (int i = 0; i < TM; i++) {
		int m = (int)blockIdx.y * 8 * TM + i * 8 + t / SLICE;

		a[i] = m < p.m && at >= 0 ? pl_float(p.a[(size_t)at + (size_t)m * p.a_step]) : 0;
		a[i] = p.half ? pl_stored<bf16>(a[i]) : a[i];
	}
	for (int i = 0; i < SLICE; i++) {
		b[i] = element<W>(p.d, p.b, s.row[i], col);
		b[i] = p.half ? pl_stored<bf16>(b[i]) : b[i];
	}
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

/* sum (TM, 8) += A B of a slice; a thread's columns are 4 and 4, 64 apart */
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

template <enum what W>
__device__ static inline void next_rows(const struct pl_conv &d, int first, int end,
					struct row *row)
{
	int t = (int)threadIdx.x;

	if (t >= SLICE)
		return;
	if (first + t < end)
		row[t] = row_of<W>(d, first + t);
	else
		row[t] = { -1, 0, NOWHERE, NOWHERE };
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
	next_rows<W>(p.d, first, end, s.row);
	__syncthreads();
	read<W>(p, s, col, a, b);
	for (int l = first; l < end; l += SLICE) {
		__syncthreads(); /* all have read the rows, and multiplied */
		write(&s, a, b);
		next_rows<W>(p.d, l + SLICE, end, s.row);
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

	if (p.m > 32)
		PL_LAUNCH((convolve<W, 8, A, B, C>),
			  dim3(across, pl_blocks((size_t)p.m, 64), parts), COLUMNS, 0, k->stream,
			  p);
	else
		PL_LAUNCH((convolve<W, 4, A, B, C>), dim3(across, 1, parts), COLUMNS, 0, k->stream,
			  p);
}

/* ---- launchers ------------------------------------------------------------------------------- */

static bool halves(const struct plk *k)
{
	return k->bf16 || k->precision == PL_BF16;
}

void plk_conv(const struct plk *k, const struct pl_conv *d, const void *x, const float *w,
	      const float *bias, enum pl_act act, void *y)
{
	int plane = d->p * d->q, taps = d->c * d->r * d->s;

	PL_STORED(k, T, {
		struct product<float, T, T> p = {
			*d, d->k, d->n *plane, taps, taps, taps, plane, w, (const T *)x,
				(T *)y, bias, halves(k)
		};

		launch<FORWARD>(k, p, 1);
	});
	if (act != PL_ACT_NONE)
		plk_act(k, act, (size_t)d->n * (size_t)d->k * (size_t)plane, y, y);
}

/* Parts of L that dw is cut into: two blocks a multiprocessor, of some slices each. */
static int parts_of(const struct plk *k, const struct pl_conv *d, int *each)
{
	int tiles = (int)pl_blocks((size_t)(d->c * d->r * d->s), COLUMNS) *
		    (d->k > 32 ? (d->k + 63) / 64 : 1);
	int l = d->n * d->p * d->q, most = (l + 8 * SLICE - 1) / (8 * SLICE);
	int parts = (2 * k->sms + tiles - 1) / tiles;

	parts = parts < most ? parts : most;
	*each = ((l + parts - 1) / parts + SLICE - 1) / SLICE * SLICE;
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

static void bias_back(const struct plk *k, const struct pl_conv *d, const void *dy, float *db)
{
	int plane = d->p * d->q;
	unsigned all = pl_blocks((size_t)d->n * (size_t)plane, 4 * PL_BLOCK);
	unsigned count = all < BIAS_PARTS ? all : BIAS_PARTS;

	PL_STORED(k, T, {
		PL_LAUNCH((sum_filters<T>), dim3(count, (unsigned)d->k), PL_BLOCK, 0, k->stream,
			  d->n, d->k, plane, (const T *)dy, (float *)k->scratch);
	});
	pl_fold(k, (const float *)k->scratch, (int)count, d->k, db, NULL);
}

void plk_conv_back(const struct plk *k, const struct pl_conv *d, const void *x, const float *w,
		   enum pl_act act, const void *y, void *dy, void *dx, float *dw, float *db)
{
	int plane = d->p * d->q, taps = d->c * d->r * d->s, each, parts = parts_of(k, d, &each);
	float *sums = (float *)k->scratch;

	if (act != PL_ACT_NONE)
		plk_act_back(k, act, (size_t)d->n * (size_t)d->k * (size_t)plane, y, y, dy, dy);
	if (db)
		bias_back(k, d, dy, db);
	PL_STORED(k, T, {
		struct product<T, T, float> p = {
			*d, d->k, taps, d->n *plane, each, plane, taps, (const T *)dy,
				(const T *)x, sums, NULL, halves(k)
		};

		launch<WEIGHTS>(k, p, (unsigned)parts);
	});
	pl_fold(k, sums, parts, d->k * taps, dw, NULL);
	if (!dx)
		return;
	PL_STORED(k, T, {
		int l = d->k * d->r * d->s;
		struct product<float, T, T> p = {
			*d, d->c, d->n * d->h * d->w, l, l, d->r * d->s, d->h * d->w, w,
				(const T *)dy, (T *)dx, NULL, halves(k)
		};

		launch<DATA>(k, p, 1);
	});
}
