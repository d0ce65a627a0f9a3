/*
 * layernorm.cu - layer normalisation (Ba et al., 2016) of (N, C), alone or of a sum, and back.
 *
 * A row belongs to a team of threads: a warp up to C = 1,024 (bfloat16; 512 of float32), else a
 * block of up to 1,024. It is held in registers, up to 4 x 16 bytes a thread, so x is read once,
 * and the variance is that about the mean, summed after the mean is known. Bytes, with e those of
 * an element: forward 2 N C e (of a sum 4 N C e), back 3 N C e; flops: 8 and 15 an element, far
 * below what memory allows. A warp asks for its whole row at once: with 16 to 48 warps a
 * multiprocessor that is 25 to 70 KB under way, which hides the latency of memory.
 *
 * Back, with xh = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - xh mean(g xh)), dgamma
 * += sum over rows of dy xh, dbeta += that of dy. Blocks stay for many rows and keep the sums of
 * their columns in registers; each leaves them once, and pl_fold() adds them in order.
 *
 * Rows that fit into no team are read again in each pass, and their columns' sums lie in memory.
 */
#include "tensor/cuda/device.cuh"

#define WARPS 4	  /* rows of a block, where a warp does a row */
#define BACK  256 /* threads of a block of the way back, whatever a team is */

template <typename T> struct forward { /* what the forward kernel works on */
	int n, c;
	const T *a, *b; /* b NULL: x is a */
	T *sum;
	const float *gamma, *beta;
	float eps;
	float *save;
	T *y;
};

/* Vector j of x in row `at`; first: a sum is made and stored, else it was. */
template <typename T, int V>
__device__ static inline void fetch(const struct forward<T> &f, size_t at, bool first, float *x)
{
	float more[V];

	if (!f.b || !first) {
		pl_get<V>((f.b ? f.sum : f.a) + at, x);
		return;
	}
	pl_get<V>(f.a + at, x);
	pl_get<V>(f.b + at, more);
	for (int l = 0; l < V; l++)
		x[l] = pl_stored<T>(x[l] + more[l]);
	pl_put<V>(f.sum + at, x);
}

template <typename T, int V, int K> static __global__ void layernorm(struct forward<T> f)
{
	PL_SHARED(room, float[32]);
	size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y, base = row * f.c;
	int team = (int)blockDim.x, vecs = f.c / V;
	float x[K ? K : 1][V], sum = 0, squares = 0, mean, rstd;

	if (row >= (size_t)f.n)
		return;
	pl_row<K>(vecs, [&](int i, int j) {
		fetch<T, V>(f, base + (size_t)j * V, true, x[i]);
		for (int l = 0; l < V; l++)
			sum += x[i][l];
	});
	mean = pl_team_sum(sum, team, room) / (float)f.c;
	pl_row<K>(vecs, [&](int i, int j) {
		if (!K)
			fetch<T, V>(f, base + (size_t)j * V, false, x[i]);
		for (int l = 0; l < V; l++)
			squares += (x[i][l] - mean) * (x[i][l] - mean);
	});
	rstd = 1 / sqrtf(pl_team_sum(squares, team, room) / (float)f.c + f.eps);
	if (threadIdx.x == 0) {
		f.save[row] = mean;
		f.save[f.n + row] = rstd;
	}
	pl_row<K>(vecs, [&](int i, int j) {
		float g[V], b[V];

		if (!K)
			fetch<T, V>(f, base + (size_t)j * V, false, x[i]);
		pl_get<V>(f.gamma + j * V, g);
		pl_get<V>(f.beta + j * V, b);
		for (int l = 0; l < V; l++)
			x[i][l] = (x[i][l] - mean) * rstd * g[l] + b[l];
		pl_put<V>(f.y + base + (size_t)j * V, x[i]);
	});
}

template <typename T, int V> static void launch(const struct plk *k, const struct forward<T> &f)
{
	bool held;
	unsigned team = pl_team(f.c / V, PL_HELD, &held), rows = team == 32 ? WARPS : 1;

	if (held)
		PL_LAUNCH((layernorm<T, V, PL_HELD>), pl_blocks((size_t)f.n, rows),
			  dim3(team, rows), 0, k->stream, f);
	else
		PL_LAUNCH((layernorm<T, V, 0>), (unsigned)f.n, dim3(team), 0, k->stream, f);
}

void plk_add_layernorm(const struct plk *k, int n, int c, const void *a, const void *b, void *sum,
		       const float *gamma, const float *beta, float eps, float *save, void *y)
{
	if (n < 1)
		return;
	PL_STORED(k, T, {
		struct forward<T> f = {
			n, c, (const T *)a, (const T *)b, (T *)sum, gamma, beta, eps, save, (T *)y
		};

		if (pl_aligned((size_t)c * sizeof(T), a, b, sum, y, gamma, beta))
			launch<T, pl_wide<T>::n>(k, f);
		else
			launch<T, 1>(k, f);
	});
}

void plk_layernorm(const struct plk *k, int n, int c, const void *x, const float *gamma,
		   const float *beta, float eps, float *save, void *y)
{
	plk_add_layernorm(k, n, c, x, NULL, NULL, gamma, beta, eps, save, y);
}

/* ---- the way back ---------------------------------------------------------------------------- */

template <typename T> struct backward {
	int n, c;
	const T *x;
	const float *gamma, *save;
	const T *dy, *more; /* more NULL: dx is what comes back alone */
	T *dx;
	float *parts; /* (blocks, 2, C): sums of dy xh, of dy */
};

/* The sums of a block's teams, in their order, to its row of parts. One team's go through shared
 * memory at a time, (2, C). */
template <typename T, int V, int K>
__device__ static inline void gather(const struct backward<T> &b, float (*dg)[V], float (*db)[V])
{
	PL_DYNAMIC(room, float);
	float *part = b.parts + (size_t)blockIdx.x * 2 * b.c;

	for (unsigned t = 1; t < blockDim.y; t++) {
		__syncthreads();
		if (threadIdx.y == t)
			pl_row<K>(b.c / V, [&](int i, int j) {
				pl_put<V>(room + j * V, dg[i]);
				pl_put<V>(room + b.c + j * V, db[i]);
			});
		__syncthreads();
		if (threadIdx.y == 0)
			pl_row<K>(b.c / V, [&](int i, int j) {
				for (int l = 0; l < V; l++) {
					dg[i][l] += room[j * V + l];
					db[i][l] += room[b.c + j * V + l];
				}
			});
	}
	if (threadIdx.y == 0)
		pl_row<K>(b.c / V, [&](int i, int j) {
			pl_put<V>(part + j * V, dg[i]);
			pl_put<V>(part + b.c + j * V, db[i]);
		});
}

/* Adds to sums that lie in memory, each of which one thread alone touches. */
template <int V> __device__ static inline void add_to(float *to, const float *v)
{
	for (int l = 0; l < V; l++)
		to[l] += v[l];
}

template <int V, typename T> __device__ static inline void add_from(const T *p, float *to)
{
	float v[V];

	pl_get<V>(p, v);
	for (int l = 0; l < V; l++)
		to[l] += v[l];
}

/* Two blocks a multiprocessor: what a row was is kept as it lies in memory, and taken apart twice.
 */
template <typename T, int V, int K>
static __global__ void __launch_bounds__(K ? BACK : 1024, K ? 2 : 1)
	layernorm_back(struct backward<T> b)
{
	PL_SHARED(room, float[32]);
	int team = (int)blockDim.x, vecs = b.c / V;
	float *part = b.parts + (size_t)blockIdx.x * 2 * b.c;
	struct pl_raw<T, V> x[K ? K : 1], dy[K ? K : 1];
	float dg[K ? K : 1][V], db[K ? K : 1][V];

	for (int i = 0; i < (K ? K : 1); i++)
		for (int l = 0; l < V; l++)
			dg[i][l] = db[i][l] = 0;
	if (!K)
		pl_row<K>(vecs, [&](int i, int j) {
			pl_put<V>(part + j * V, dg[i]);
			pl_put<V>(part + b.c + j * V, db[i]);
		});
	/* the teams of a block go on together, since they wait for each other's sums */
	for (size_t rows = (size_t)blockIdx.x * blockDim.y; rows < (size_t)b.n;
	     rows += (size_t)gridDim.x * blockDim.y) {
		size_t row = rows + threadIdx.y;
		int mine = row < (size_t)b.n ? vecs : 0;
		float mean = mine ? b.save[row] : 0, rstd = mine ? b.save[b.n + row] : 0;
		float sum = 0, dot = 0;

		auto fetch = [&](int i, int j) {
			size_t at = row * b.c + (size_t)j * V;

			x[i] = *(const struct pl_raw<T, V> *)(b.x + at);
			dy[i] = *(const struct pl_raw<T, V> *)(b.dy + at);
		};
		/* xh, and dy */
		auto open = [&](int i, int j, float *xh, float *g) {
			if (!K)
				fetch(i, j);
			pl_get<V>((const T *)&x[i], xh);
			pl_get<V>((const T *)&dy[i], g);
			for (int l = 0; l < V; l++)
				xh[l] = (xh[l] - mean) * rstd;
		};

		if (K) /* asks for all of the row before anything is done with it */
			pl_row<K>(mine, fetch);
		pl_row<K>(mine, [&](int i, int j) {
			float xh[V], g[V], gamma[V];

			open(i, j, xh, g);
			pl_get<V>(b.gamma + j * V, gamma);
			for (int l = 0; l < V; l++) {
				dg[i][l] = (K ? dg[i][l] : 0) + g[l] * xh[l];
				db[i][l] = (K ? db[i][l] : 0) + g[l];
				sum += g[l] * gamma[l];
				dot += g[l] * gamma[l] * xh[l];
			}
			if (!K) {
				add_to<V>(part + j * V, dg[i]);
				add_to<V>(part + b.c + j * V, db[i]);
			}
		});
		sum = pl_team_sum(sum, team, room) / (float)b.c;
		dot = pl_team_sum(dot, team, room) / (float)b.c;
		pl_row<K>(mine, [&](int i, int j) {
			float xh[V], g[V], gamma[V];

			open(i, j, xh, g);
			pl_get<V>(b.gamma + j * V, gamma);
			for (int l = 0; l < V; l++)
				g[l] = rstd * (g[l] * gamma[l] - sum - xh[l] * dot);
			if (b.more)
				add_from<V>(b.more + row * b.c + (size_t)j * V, g);
			pl_put<V>(b.dx + row * b.c + (size_t)j * V, g);
		});
	}
	if constexpr (K > 0)
		gather<T, V, K>(b, dg, db);
}

template <typename T, int V>
static unsigned launch_back(const struct plk *k, const struct backward<T> &b)
{
	bool held;
	unsigned team = pl_team(b.c / V, PL_HELD, &held), rows, blocks, most = 2 * (unsigned)k->sms;
	size_t room = 2 * (size_t)b.c * sizeof(float);

	held = held && team <= BACK; /* up to 8,192 bfloat16, 4,096 floats */
	rows = held ? BACK / team : 1;
	blocks = pl_blocks((size_t)b.n, rows);
	blocks = blocks < most ? blocks : most;
	if (held)
		PL_LAUNCH((layernorm_back<T, V, PL_HELD>), blocks, dim3(team, rows), room,
			  k->stream, b);
	else
		PL_LAUNCH((layernorm_back<T, V, 0>), blocks, dim3(1024), 0, k->stream, b);
	return blocks;
}

void plk_layernorm_back_add(const struct plk *k, int n, int c, const void *x, const float *gamma,
			    const float *save, const void *dy, const void *more, void *dx,
			    float *dgamma, float *dbeta)
{
	if (n < 1)
		return;
	PL_STORED(k, T, {
		struct backward<T> b = {
			n, c, (const T *)x, gamma, save, (const T *)dy, (const T *)more, (T *)dx,
				(float *)k->scratch
		};
		unsigned blocks = pl_aligned((size_t)c * sizeof(T), x, dy, more, dx, gamma)
					  ? launch_back<T, pl_wide<T>::n>(k, b)
					  : launch_back<T, 1>(k, b);

		pl_fold(k, b.parts, (int)blocks, c, dgamma, dbeta);
	});
}

void plk_layernorm_back(const struct plk *k, int n, int c, const void *x, const float *gamma,
			const float *save, const void *dy, void *dx, float *dgamma, float *dbeta)
{
	plk_layernorm_back_add(k, n, c, x, gamma, save, dy, NULL, dx, dgamma, dbeta);
}
