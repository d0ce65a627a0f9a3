/*
 * optim.cu - optimisers on slabs, sums of squares and clipping.
 *
 * Bytes a parameter: sgd 12 (20 with momentum), adam 28, 2 more for the rounded copy; sum_squares
 * 4, clip 4 and, only where it has to, 8 more. Blocks stay for the whole slab: 8 of 256 threads a
 * multiprocessor, each thread with 16 bytes under way of each of up to four inputs; what depends on
 * the step alone (Adam's corrections, in double, as 1 - b^t cancels) is computed once a block.
 *
 * Adam after Kingma and Ba (2015), AdamW after Loshchilov and Hutter (2019), all as in torch.optim.
 */
#include "tensor/cuda/device.cuh"

#define BLOCKS 8 /* a multiprocessor */

static unsigned grid(const struct plk *k, size_t n)
{
	unsigned all = pl_blocks(n, PL_BLOCK * 4), most = BLOCKS * (unsigned)k->sms;

	return all < most ? all : most;
}

/* f.run<V>(i) for all of n, by blocks that stay */
template <int V, typename F> __device__ static inline void stay(size_t n, const F &f)
{
	size_t step = (size_t)gridDim.x * PL_BLOCK * V;
	size_t i = ((size_t)blockIdx.x * PL_BLOCK + threadIdx.x) * V;

	for (; i + V <= n; i += step)
		f.template run<V>(i);
	for (; i < n; i++) /* the last few, by one thread */
		f.template run<1>(i);
}

/* A launch over n elements of `kernel`, a template of V alone. */
#define LAUNCH(kernel, k, n, wide, ...)                                                            \
	do {                                                                                       \
		if ((n) && (wide))                                                                 \
			PL_LAUNCH((kernel<4>), grid(k, n), PL_BLOCK, 0, (k)->stream, __VA_ARGS__); \
		else if (n)                                                                        \
			PL_LAUNCH((kernel<1>), grid(k, n), PL_BLOCK, 0, (k)->stream, __VA_ARGS__); \
	} while (0)

struct do_sgd {
	float lr, momentum, decay;
	bool nesterov;
	const float *g;
	float *v, *w;
	bf16 *half;
	template <int V> __device__ void run(size_t i) const
	{
		float grad[V], speed[V] = { 0 }, weight[V];

		pl_get<V>(g + i, grad);
		pl_get<V>(w + i, weight);
		if (momentum != 0)
			pl_get<V>(v + i, speed);
		for (int l = 0; l < V; l++) {
			float d = grad[l] + decay * weight[l];

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

template <int V> static __global__ void sgd(size_t n, const struct pl_vary *vary, struct do_sgd f)
{
	f.lr = vary->lr;
	stay<V>(n, f);
}

void plk_sgd(const struct plk *k, size_t n, const struct pl_vary *vary, float momentum, float decay,
	     bool nesterov, const float *g, float *v, float *w, void *half)
{
	struct do_sgd f = { 0, momentum, decay, nesterov, g, v, w, (bf16 *)half };

	LAUNCH(sgd, k, n, pl_aligned(0, g, v, w, half), n, vary, f);
}

struct do_adam {
	float rate, fix, b1, b2, eps, decay, keep;
	const float *g;
	float *m, *v, *w;
	bf16 *half;
	template <int V> __device__ void run(size_t i) const
	{
		float grad[V], first[V], second[V], weight[V];

		pl_get<V>(g + i, grad);
		pl_get<V>(m + i, first);
		pl_get<V>(v + i, second);
		pl_get<V>(w + i, weight);
		for (int l = 0; l < V; l++) {
			float d = grad[l] + decay * weight[l];

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

/* rate = lr / (1 - b1^t), fix = 1 / sqrt(1 - b2^t), keep = 1 - lr decay where it is decoupled */
template <int V>
static __global__ void adam(size_t n, const struct pl_vary *vary, bool decoupled, struct do_adam f)
{
	PL_SHARED(of_step, float[2]);

	if (threadIdx.x == 0) {
		double t = (double)vary->t;

		of_step[0] = (float)((double)vary->lr / (1 - pow((double)f.b1, t)));
		of_step[1] = (float)(1 / sqrt(1 - pow((double)f.b2, t)));
	}
	__syncthreads();
	f.rate = of_step[0];
	f.fix = of_step[1];
	f.keep = decoupled ? 1 - vary->lr * f.decay : 1;
	f.decay = decoupled ? 0 : f.decay;
	stay<V>(n, f);
}

void plk_adam(const struct plk *k, size_t n, const struct pl_vary *vary, float b1, float b2,
	      float eps, float decay, bool decoupled, const float *g, float *m, float *v, float *w,
	      void *half)
{
	struct do_adam f = { 0, 0, b1, b2, eps, decay, 1, g, m, v, w, (bf16 *)half };

	LAUNCH(adam, k, n, pl_aligned(0, g, m, v, w, half), n, vary, decoupled, f);
}

/* ---- sums of squares, clipping --------------------------------------------------------------- */

/* A thread sums in float32 what it reads (some hundred numbers of a slab of 10^8), V sums beside
 * each other; threads and blocks are added in double. */
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

/* The sum of clip, and a part for each block. */
size_t plk_sum_scratch(const struct plk *k)
{
	return (1 + BLOCKS * (size_t)k->sms) * sizeof(double);
}

void plk_sum_squares(const struct plk *k, size_t n, const float *x, double *sum)
{
	double *parts = (double *)k->scratch + 1;

	LAUNCH(squares, k, n, pl_aligned(0, x), n, x, parts);
	PL_LAUNCH(add_parts, 1, PL_BLOCK, 0, k->stream, n ? (int)grid(k, n) : 0, parts, sum);
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
	LAUNCH(clip, k, n, pl_aligned(0, x), n, limit, sum, s);
}
