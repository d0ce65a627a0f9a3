/*
 * optim.cu - optimisers on slabs, sums of squares and clipping.
 *
 * Bytes for each parameter: sgd 12 (20 with momentum), adam 28, 2 more for the rounded copy;
 * sum_squares 4, clip 4 and, only if it scales, 8 more. All blocks run at once and each processes
 * many elements, so that no second round of blocks is needed: 8 blocks of 256 threads for each
 * multiprocessor, 5 for adam, which needs 47 registers. Each thread has 16 bytes in flight of each
 * of up to four inputs (82 KB for each multiprocessor in adam). Values that depend only on the step
 * (Adam's corrections, in double, because 1 - b^t cancels) are computed once for each block.
 *
 * One launch updates tensors with and without weight decay. The borders between them are arguments,
 * and are searched while memory is loading.
 *
 * Adam after Kingma and Ba (2015), AdamW after Loshchilov and Hutter (2019), all as in torch.optim.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: adamw, sgd-momentum,
 * norm-of-gradients).
 */
#include "tensor/cuda/device.cuh"

#define BLOCKS 8 /* for each multiprocessor */
#define ADAM   5 /* the same for adam */

static unsigned grid(const struct plk *k, size_t n, unsigned blocks)
{
	unsigned all = pl_blocks(n, PL_BLOCK * 4), most = blocks * (unsigned)k->sms;

	return all < most ? all : most;
}

/* f.run<V>(i) for all of n, by blocks that process many elements */
template <int V, typename F> __device__ static inline void stay(size_t n, const F &f)
{
	size_t step = (size_t)gridDim.x * PL_BLOCK * V;
	size_t i = ((size_t)blockIdx.x * PL_BLOCK + threadIdx.x) * V;

	for (; i + V <= n; i += step)
		f.template run<V>(i);
	for (; i < n; i++) /* the last few, by one thread */
		f.template run<1>(i);
}

/* A launch over n elements of `kernel`, a template with only V. */
#define LAUNCH(kernel, k, n, blocks, wide, ...)                                                    \
	do {                                                                                       \
		if ((n) && (wide))                                                                 \
			PL_LAUNCH((kernel<4>), grid(k, n, blocks), PL_BLOCK, 0, (k)->stream,       \
				  __VA_ARGS__);                                                    \
		else if (n)                                                                        \
			PL_LAUNCH((kernel<1>), grid(k, n, blocks), PL_BLOCK, 0, (k)->stream,       \
				  __VA_ARGS__);                                                    \
	} while (0)

/* ---- weight decay ---------------------------------------------------------------------------- */

#define CUTS 240 /* of a launch, because its arguments have at most 4 KB */

struct cuts {		    /* the cuts of pl_decay from the first element of a launch on */
	uint32_t n, inside; /* inside: decay applies before the first of them */
	size_t at[CUTS];
};

/* The cuts in [first, end). Returns where the launch must end so that it has no more than CUTS. */
static size_t find_cuts(const struct pl_decay *d, size_t first, size_t end, struct cuts *c,
			bool *wide)
{
	uint32_t i = 0;

	c->n = 0;
	c->inside = 1;
	*wide = true;
	if (!d->cut)
		return end;
	while (i < d->n && d->cut[i] <= first)
		i++;
	for (c->inside = i % 2; i < d->n && d->cut[i] < end; i++) {
		if (c->n == CUTS)
			return d->cut[i];
		c->at[c->n++] = d->cut[i] - first;
		*wide = *wide && (d->cut[i] - first) % 4 == 0;
	}
	return end;
}

struct decay { /* the cuts, in shared memory of a block */
	const size_t *cut;
	uint32_t n, inside;
	float rate;
	__device__ float at(size_t i) const
	{
		uint32_t lo = 0, hi = n;

		while (lo < hi) {
			uint32_t mid = (lo + hi) / 2;

			if (cut[mid] <= i)
				lo = mid + 1;
			else
				hi = mid;
		}
		return (lo + inside) % 2 ? rate : 0;
	}
};

__device__ static inline void fetch_cuts(const struct cuts &c, size_t *room, struct decay *d)
{
	for (uint32_t i = threadIdx.x; i < c.n; i += PL_BLOCK)
		room[i] = c.at[i];
	d->cut = room;
	d->n = c.n;
	d->inside = c.inside;
	__syncthreads();
}

/* ---- optimisers ------------------------------------------------------------------------------ */

struct do_sgd {
	float lr, momentum;
	struct decay decay;
	bool nesterov;
	const float *g;
	float *v, *w;
	bf16 *half;
	template <int V> __device__ void run(size_t i) const
	{
		float grad[V], speed[V] = { 0 }, weight[V], rate;

		pl_get<V>(g + i, grad);
		pl_get<V>(w + i, weight);
		if (momentum != 0)
			pl_get<V>(v + i, speed);
		rate = decay.at(i);
		for (int l = 0; l < V; l++) {
			float d = grad[l] + rate * weight[l];

			if (momentum != 0) {
				speed[l] = momentum * speed[l] + d;
				d = nesterov ? d + momentum * speed[l] : speed[l];
			}
			weight[l] -= lr * d;
		}
		if (momentum != 0)
			pl_put<V>(v + i, speed);
		pl_put<V>(w + i, weight);
		if (half)
			pl_put<V>(half + i, weight);
	}
};

template <int V>
static __global__ void sgd(size_t n, const struct pl_vary *vary,
			   const __grid_constant__ struct cuts c, struct do_sgd f)
{
	PL_SHARED(room, size_t[CUTS]);

	fetch_cuts(c, room, &f.decay);
	f.lr = vary->lr;
	stay<V>(n, f);
}

void plk_sgd(const struct plk *k, size_t first, size_t n, const struct pl_vary *vary,
	     float momentum, const struct pl_decay *decay, bool nesterov, const float *g, float *v,
	     float *w, void *half)
{
	struct decay d = { NULL, 0, 0, decay->rate };
	struct cuts c;
	bool wide;

	for (size_t at = first, to; at < first + n; at = to) {
		bf16 *h = half ? (bf16 *)half + (at - first) : NULL;
		struct do_sgd f = {
			0, momentum, d, nesterov, g + at, v ? v + at : NULL, w + at, h
		};

		to = find_cuts(decay, at, first + n, &c, &wide);
		wide = wide && pl_aligned(0, f.g, f.v, f.w, h);
		LAUNCH(sgd, k, to - at, BLOCKS, wide, to - at, vary, c, f);
	}
}

struct do_adam {
	float rate, fix, b1, b2, eps, lr;
	bool decoupled;
	struct decay decay;
	const float *g;
	float *m, *v, *w;
	bf16 *half;
	template <int V> __device__ void run(size_t i) const
	{
		float grad[V], first[V], second[V], weight[V], own, keep;

		pl_get<V>(g + i, grad);
		pl_get<V>(m + i, first);
		pl_get<V>(v + i, second);
		pl_get<V>(w + i, weight);
		own = decay.at(i);
		keep = decoupled ? 1 - lr * own : 1;
		own = decoupled ? 0 : own;
		for (int l = 0; l < V; l++) {
			float d = grad[l] + own * weight[l];

			first[l] = b1 * first[l] + (1 - b1) * d;
			second[l] = b2 * second[l] + (1 - b2) * d * d;
			weight[l] =
				keep * weight[l] - rate * first[l] / (sqrtf(second[l]) * fix + eps);
		}
		pl_put<V>(m + i, first);
		pl_put<V>(v + i, second);
		pl_put<V>(w + i, weight);
		if (half)
			pl_put<V>(half + i, weight);
	}
};

/* rate = lr / (1 - b1^t), fix = 1 / sqrt(1 - b2^t) */
template <int V>
static __global__ void __launch_bounds__(PL_BLOCK, ADAM)
	adam(size_t n, const struct pl_vary *vary, const __grid_constant__ struct cuts c,
	     struct do_adam f)
{
	PL_SHARED(of_step, float[2]);
	PL_SHARED(room, size_t[CUTS]);

	if (threadIdx.x == 0) {
		double t = (double)vary->t;

		of_step[0] = (float)((double)vary->lr / (1 - pow((double)f.b1, t)));
		of_step[1] = (float)(1 / sqrt(1 - pow((double)f.b2, t)));
	}
	fetch_cuts(c, room, &f.decay);
	f.rate = of_step[0];
	f.fix = of_step[1];
	f.lr = vary->lr;
	stay<V>(n, f);
}

void plk_adam(const struct plk *k, size_t first, size_t n, const struct pl_vary *vary, float b1,
	      float b2, float eps, const struct pl_decay *decay, bool decoupled, const float *g,
	      float *m, float *v, float *w, void *half)
{
	struct decay d = { NULL, 0, 0, decay->rate };
	struct cuts c;
	bool wide;

	for (size_t at = first, to; at < first + n; at = to) {
		bf16 *h = half ? (bf16 *)half + (at - first) : NULL;
		struct do_adam f = { 0, 0,	b1,	b2,	eps,	0, decoupled,
				     d, g + at, m + at, v + at, w + at, h };

		to = find_cuts(decay, at, first + n, &c, &wide);
		wide = wide && pl_aligned(0, f.g, f.m, f.v, f.w, h);
		LAUNCH(adam, k, to - at, ADAM, wide, to - at, vary, c, f);
	}
}

/* ---- sums of squares, clipping --------------------------------------------------------------- */

/* A thread sums its elements in float32 (some hundred of a slab of 10^8), as V separate sums; the
 * sums of threads and blocks are added in double. */
template <int V> static __global__ void squares(size_t n, const float *x, double *parts)
{
	PL_SHARED(room, double[32]);
	size_t step = (size_t)gridDim.x * PL_BLOCK * V;
	size_t i = ((size_t)blockIdx.x * PL_BLOCK + threadIdx.x) * V;
	float sum[V] = { 0 }, v[V];
	double all = 0;

#pragma unroll 4
	for (; i + V <= n; i += step) {
		pl_get<V>(x + i, v);
		for (int l = 0; l < V; l++)
			sum[l] += v[l] * v[l];
	}
	for (; i < n; i++)
		sum[0] += x[i] * x[i];
	for (int l = 0; l < V; l++)
		all += (double)sum[l];
	all = pl_team_sum(all, PL_BLOCK, room);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = all;
}

static __global__ void add_parts(int count, const double *parts, double *sum)
{
	PL_SHARED(room, double[32]);
	double all = 0;

	for (int i = (int)threadIdx.x; i < count; i += PL_BLOCK)
		all += parts[i];
	all = pl_team_sum(all, PL_BLOCK, room);
	if (threadIdx.x == 0)
		*sum = all;
}

/* The sum for clip, and a part for each block. */
size_t plk_sum_scratch(const struct plk *k)
{
	return (1 + BLOCKS * (size_t)k->sms) * sizeof(double);
}

void plk_sum_squares(const struct plk *k, size_t n, const float *x, double *sum)
{
	double *parts = (double *)k->scratch + 1;

	LAUNCH(squares, k, n, BLOCKS, pl_aligned(0, x), n, x, parts);
	PL_LAUNCH(add_parts, 1, PL_BLOCK, 0, k->stream, n ? (int)grid(k, n, BLOCKS) : 0, parts,
		  sum);
}

struct do_scale {
	float f, *x;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V];

		pl_get<V>(x + i, v);
		for (int l = 0; l < V; l++)
			v[l] *= f;
		pl_put<V>(x + i, v);
	}
};

void plk_scale(const struct plk *k, size_t n, float f, float *x)
{
	struct do_scale s = { f, x };

	pl_each<4>(k, n, pl_aligned(0, x), s);
}

template <int V>
static __global__ void clip(size_t n, double limit, const double *sum, struct do_scale s)
{
	double norm = sqrt(*sum) + 1e-6;

	if (!(limit < norm))
		return;
	s.f = (float)(limit / norm);
	stay<V>(n, s);
}

void plk_clip(const struct plk *k, size_t n, double limit, float *x)
{
	double *sum = (double *)k->scratch;
	struct do_scale s = { 1, x };

	plk_sum_squares(k, n, x, sum);
	LAUNCH(clip, k, n, BLOCKS, pl_aligned(0, x), n, limit, sum, s);
}
