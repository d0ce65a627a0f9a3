/*
 * batchnorm.cu - normalisation of (N, C, S) over N and S (Ioffe and Szegedy, 2015), and back.
 *
 * Three launches for each pass. Blocks sum parts of a channel, about 5 blocks for each
 * multiprocessor. A warp for each channel adds the parts in order. Then each element is computed.
 * Moments are kept as (count, mean, sum of squares about it) and joined by the formula of Chan,
 * Golub and LeVeque (1979), so nothing cancels and x is read only once for them. Bytes for n
 * elements of e bytes: forward 3 n e (2 n e with the running statistics), backward 5 n e.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: batchnorm, batchnorm-back).
 */
#include "tensor/cuda/device.cuh"

#define THREADS 256

struct moments {
	float n, mean, m2;
};

__device__ static inline struct moments join(const struct moments &a, const struct moments &b)
{
	struct moments r = { a.n + b.n, a.mean, a.m2 };
	float d = b.mean - a.mean;

	if (b.n == 0)
		return a;
	if (a.n == 0)
		return b;
	r.mean += d * (b.n / r.n);
	r.m2 += b.m2 + d * d * (a.n * (b.n / r.n));
	return r;
}

/* Join the moments of a warp, for its first lane. */
__device__ static inline struct moments join_warp(struct moments m)
{
	for (unsigned by = 16; by; by /= 2) {
		struct moments o = { __shfl_down_sync(PL_FULL, m.n, by),
				     __shfl_down_sync(PL_FULL, m.mean, by),
				     __shfl_down_sync(PL_FULL, m.m2, by) };

		m = join(m, o);
	}
	return m;
}

/*
 * get(a, at), then use(a), for V elements of part blockIdx.x of channel blockIdx.y, in order; parts
 * have `each` vectors. `ahead` vectors are read before the first is used, 64 bytes for each thread:
 * with 5 blocks of 256 threads, 80 KB of each multiprocessor are in flight.
 */
#define BLOCKS 5

template <int V, int ahead, typename G, typename U>
__device__ static inline void channel_part(int n, int c, int s, size_t each, G get, U use)
{
	size_t vecs = (size_t)(s / V), first = blockIdx.x * each, end = first + each;

	end = end < vecs * n ? end : vecs * n;
	for (size_t i = first + threadIdx.x; i < end; i += ahead * THREADS) {
#pragma unroll
		for (int a = 0; a < ahead; a++) {
			size_t j = i + (size_t)a * THREADS, image = pl_div(j, vecs);

			if (j < end)
				get(a, (image * c + blockIdx.y) * s + (j - image * vecs) * V);
		}
#pragma unroll
		for (int a = 0; a < ahead; a++)
			if (i + (size_t)a * THREADS < end)
				use(a);
	}
}

/* parts (C, gridDim.x) */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
	measure(int n, int c, int s, size_t each, const T *x, struct moments *parts)
{
	PL_SHARED(room, struct moments[THREADS / 32]);
	typedef struct pl_raw<T, V> raw;
	struct moments m = { 0, 0, 0 };
	raw from[4];

	auto get = [&](int a, size_t at) { from[a] = *(const raw *)(x + at); };
	channel_part<V, 4>(n, c, s, each, get, [&](int a) {
		struct moments few = { V, 0, 0 };
		float v[V];

		pl_get<V>((const T *)&from[a], v);
		for (int l = 0; l < V; l++)
			few.mean += v[l] / V;
		for (int l = 0; l < V; l++)
			few.m2 += (v[l] - few.mean) * (v[l] - few.mean);
		m = join(m, few);
	});
	m = join_warp(m);
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = m;
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int i = 1; i < THREADS / 32; i++)
		m = join(m, room[i]);
	parts[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = m;
}

/* One warp for each channel. parts NULL: use the running statistics. */
static __global__ void join_parts(int c, int count, const struct moments *parts, float eps,
				  float momentum, float *running, float *save)
{
	int k = (int)(blockIdx.x * blockDim.y + threadIdx.y);
	struct moments m = { 0, 0, 0 };
	float var;

	if (k >= c)
		return;
	for (int i = (int)threadIdx.x; parts && i < count; i += 32)
		m = join(m, parts[(size_t)k * count + i]);
	m = join_warp(m);
	if (threadIdx.x)
		return;
	var = m.m2 / m.n;
	if (!parts) {
		m.mean = running[k];
		var = running[c + k];
	} else if (running) {
		float unbiased = m.n > 1 ? m.m2 / (m.n - 1) : var;

		running[k] += momentum * (m.mean - running[k]);
		running[c + k] += momentum * (unbiased - running[c + k]);
	}
	save[k] = m.mean;
	save[c + k] = 1 / sqrtf(var + eps);
}

template <typename T> struct do_norm {
	size_t c, s;
	const T *x;
	const float *gamma, *beta, *save;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		size_t k = pl_mod(pl_div(i, s), c);
		float mean = save[k], f = save[c + k] * gamma[k], b = beta[k], v[V];

		pl_get<V>(x + i, v);
		for (int l = 0; l < V; l++)
			v[l] = (v[l] - mean) * f + b;
		pl_put<V>(y + i, v);
	}
};

/* The number of parts of a channel, and the number of vectors of each. All blocks must fit at once,
 * because a few late blocks would take as long as all others together. */
static int split(const struct plk *k, int n, int c, int s, int v, size_t *each)
{
	size_t vecs = (size_t)n * (size_t)(s / v), most = (vecs + THREADS - 1) / THREADS;
	size_t wanted = (size_t)(BLOCKS * k->sms) / (size_t)c;
	size_t count = pl_min_size(wanted ? wanted : 1, most);

	*each = (vecs + count - 1) / count;
	return (int)count;
}

/* Parts of 3 floats, and 2 numbers for each channel. */
size_t plk_batchnorm_scratch(const struct plk *k, int n, int c, int s)
{
	(void)n;
	(void)s;
	return ((size_t)(BLOCKS * k->sms + 2 * c) * 3 + 2 * (size_t)c) * sizeof(float);
}

#define CHANNELS 4 /* of a block, if a warp computes a channel */

void plk_batchnorm(const struct plk *k, int n, int c, int s, const void *x, const float *gamma,
		   const float *beta, float eps, float momentum, bool eval, float *running,
		   float *save, void *y)
{
	struct moments *parts = eval ? NULL : (struct moments *)k->scratch;
	int count = 0;
	size_t each;

	PL_STORED(k, T, {
		const int V = pl_wide<T>::n;
		bool wide = pl_aligned((size_t)s * sizeof(T), x, y);
		struct do_norm<T> f = {
			(size_t) c, (size_t)s, (const T *)x, gamma, beta, save, (T *)y
		};

		if (!eval) {
			count = split(k, n, c, s, wide ? V : 1, &each);
			if (wide)
				PL_LAUNCH((measure<T, V>), dim3((unsigned)count, (unsigned)c),
					  THREADS, 0, k->stream, n, c, s, each, (const T *)x,
					  parts);
			else
				PL_LAUNCH((measure<T, 1>), dim3((unsigned)count, (unsigned)c),
					  THREADS, 0, k->stream, n, c, s, each, (const T *)x,
					  parts);
		}
		PL_LAUNCH(join_parts, pl_blocks((size_t)c, CHANNELS), dim3(32, CHANNELS), 0,
			  k->stream, c, count, parts, eps, momentum, running, save);
		pl_each<V>(k, (size_t)n * (size_t)c * (size_t)s, wide, f);
	});
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* parts (C, gridDim.x, 2): sums of dy and of dy times the normalised x */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
	measure_back(int n, int c, int s, size_t each, const T *x, const T *dy, const float *save,
		     float *parts)
{
	PL_SHARED(room, float[32]);
	typedef struct pl_raw<T, V> raw;
	float mean = save[blockIdx.y], rstd = save[c + blockIdx.y], sum = 0, dot = 0;
	raw from[2], more[2];

	auto get = [&](int a, size_t at) {
		from[a] = *(const raw *)(x + at);
		more[a] = *(const raw *)(dy + at);
	};
	channel_part<V, 2>(n, c, s, each, get, [&](int a) {
		float v[V], g[V];

		pl_get<V>((const T *)&from[a], v);
		pl_get<V>((const T *)&more[a], g);
		for (int l = 0; l < V; l++) {
			sum += g[l];
			dot += g[l] * ((v[l] - mean) * rstd);
		}
	});
	sum = pl_team_sum(sum, THREADS, room);
	dot = pl_team_sum(dot, THREADS, room);
	if (threadIdx.x)
		return;
	parts += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * 2;
	parts[0] = sum;
	parts[1] = dot;
}

/* means (C, 2): of dy and of dy times the normalised x */
static __global__ void join_parts_back(int c, int count, float over, const float *parts,
				       float *means, float *dgamma, float *dbeta)
{
	int k = (int)(blockIdx.x * blockDim.y + threadIdx.y);
	float sum = 0, dot = 0;

	if (k >= c)
		return;
	for (int i = (int)threadIdx.x; i < count; i += 32) {
		sum += parts[((size_t)k * count + i) * 2];
		dot += parts[((size_t)k * count + i) * 2 + 1];
	}
	sum = pl_warp_sum(sum);
	dot = pl_warp_sum(dot);
	if (threadIdx.x)
		return;
	dbeta[k] += sum;
	dgamma[k] += dot;
	means[2 * k] = sum / over;
	means[2 * k + 1] = dot / over;
}

template <typename T> struct do_norm_back {
	size_t c, s;
	const T *x, *dy;
	const float *gamma, *save, *means;
	T *dx;
	template <int V> __device__ void run(size_t i) const
	{
		size_t k = pl_mod(pl_div(i, s), c);
		float mean = save[k], rstd = save[c + k], f = gamma[k] * rstd, v[V], g[V];

		pl_get<V>(x + i, v);
		pl_get<V>(dy + i, g);
		for (int l = 0; l < V; l++)
			g[l] = f * (g[l] - means[2 * k] - (v[l] - mean) * rstd * means[2 * k + 1]);
		pl_put<V>(dx + i, g);
	}
};

void plk_batchnorm_back(const struct plk *k, int n, int c, int s, const void *x, const float *gamma,
			const float *save, const void *dy, void *dx, float *dgamma, float *dbeta)
{
	float *means = (float *)k->scratch, *parts = means + 2 * (size_t)c;
	size_t each;

	PL_STORED(k, T, {
		const int V = pl_wide<T>::n;
		bool wide = pl_aligned((size_t)s * sizeof(T), x, dy, dx);
		int count = split(k, n, c, s, wide ? V : 1, &each);
		struct do_norm_back<T> f = {
			(size_t) c, (size_t)s, (const T *)x, (const T *)dy, gamma, save, means,
				(T *)dx
		};

		if (wide)
			PL_LAUNCH((measure_back<T, V>), dim3((unsigned)count, (unsigned)c), THREADS,
				  0, k->stream, n, c, s, each, (const T *)x, (const T *)dy, save,
				  parts);
		else
			PL_LAUNCH((measure_back<T, 1>), dim3((unsigned)count, (unsigned)c), THREADS,
				  0, k->stream, n, c, s, each, (const T *)x, (const T *)dy, save,
				  parts);
		PL_LAUNCH(join_parts_back, pl_blocks((size_t)c, CHANNELS), dim3(32, CHANNELS), 0,
			  k->stream, c, count, (float)((double)n * s), parts, means, dgamma, dbeta);
		pl_each<V>(k, (size_t)n * (size_t)c * (size_t)s, wide, f);
	});
}
