/*
 * layernorm.cu - layer normalisation (Ba et al., 2016) of (N, C), alone or of a sum, and back.
 *
 * A row belongs to a team of threads: a warp up to C = 1,024 (bfloat16; 512 of float32), else a
 * block of up to 1,024. The row is kept in registers, up to 4 x 16 bytes for each thread, so x is
 * read once, and the variance is that about the mean, summed when the mean is known. Bytes, with e
 * those of an element: forward 2 N C e (of a sum 4 N C e), backward 3 N C e (with an added gradient
 * 4 N C e); flops: 8 and 15 for each element, far below the limit of memory. A warp loads its whole
 * row at once: with 24 or more warps in a multiprocessor, 37 KB are in flight at C = 768, for a sum
 * twice that. The backward pass has 16 warps, which is too few if rows are loaded, computed and
 * written by turns, so it always loads the next row in advance (74 KB).
 *
 * Backward, with xh = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - xh mean(g xh)),
 * dgamma += sum over rows of dy xh, dbeta += that of dy. A block computes many rows and keeps the
 * sums of their columns in registers; it writes them once, and pl_fold() adds the sums of all
 * blocks in order.
 *
 * Rows that are too long for a team, or that cannot be read 16 bytes at a time, are read again in
 * each pass, and the sums of their columns are in memory.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: layernorm, layernorm-back).
 */
#include "tensor/cuda/mma.cuh"

#define WARPS 4	  /* rows of a block, if a warp computes a row */
#define BACK  256 /* threads of a block of the backward pass, for any team */

template <typename T> struct forward { /* arguments of the forward kernel */
	int n, c;
	const T *a, *b; /* b NULL: x is a */
	T *sum;
	const float *gamma, *beta;
	float eps;
	float *save;
	T *y;
};

template <typename T, int V, int K>
static __global__ void __launch_bounds__(1024) layernorm(struct forward<T> f)
{
	typedef struct pl_raw<T, V> raw;
	PL_SHARED(room, float[32]);
	size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y, base = row * f.c;
	int team = (int)blockDim.x, vecs = f.c / V;
	raw x[K ? K : 1], more[K ? K : 1]; /* in the type of memory: half the registers */
	float sum = 0, squares = 0, mean, rstd, v[V], u[V];

	if (row >= (size_t)f.n)
		return;
	auto ask = [&](int i, int j) { x[i] = *(const raw *)(f.a + base + (size_t)j * V); };
	auto ask_more = [&](int i, int j) { more[i] = *(const raw *)(f.b + base + (size_t)j * V); };
	auto again = [&](int i, int j) {
		if (!K)
			x[i] = *(const raw *)((f.b ? f.sum : f.a) + base + (size_t)j * V);
		pl_get<V>((const T *)&x[i], v);
	};

	if (K) /* load the whole row before computing */
		pl_row<K>(vecs, ask);
	if (K && f.b)
		pl_row<K>(vecs, ask_more);
	pl_row<K>(vecs, [&](int i, int j) {
		if (!K)
			ask(i, j);
		pl_get<V>((const T *)&x[i], v);
		if (f.b) {
			if (!K)
				ask_more(i, j);
			pl_get<V>((const T *)&more[i], u);
			for (int l = 0; l < V; l++)
				v[l] = pl_stored<T>(v[l] + u[l]);
			pl_put<V>((T *)&x[i], v);
			*(raw *)(f.sum + base + (size_t)j * V) = x[i];
		}
		for (int l = 0; l < V; l++)
			sum += v[l];
	});
	mean = pl_team_sum(sum, team, room) / (float)f.c;
	pl_row<K>(vecs, [&](int i, int j) {
		again(i, j);
		for (int l = 0; l < V; l++)
			squares += (v[l] - mean) * (v[l] - mean);
	});
	rstd = 1 / sqrtf(pl_team_sum(squares, team, room) / (float)f.c + f.eps);
	if (threadIdx.x == 0) {
		f.save[row] = mean;
		f.save[f.n + row] = rstd;
	}
	pl_row<K>(vecs, [&](int i, int j) {
		float g[V], b[V];

		again(i, j);
		pl_get<V>(f.gamma + j * V, g);
		pl_get<V>(f.beta + j * V, b);
		for (int l = 0; l < V; l++)
			v[l] = (v[l] - mean) * rstd * g[l] + b[l];
		pl_put<V>(f.y + base + (size_t)j * V, v);
	});
}

template <typename T, int V> static void launch(const struct plk *k, const struct forward<T> &f)
{
	bool held;
	unsigned team = pl_team(f.c / V, PL_HELD, &held), rows = team == 32 ? WARPS : 1;
	unsigned blocks = pl_blocks((size_t)f.n, rows);

	/* single elements do not need a fast kernel */
	if constexpr (V > 1)
		if (held) {
			PL_LAUNCH((layernorm<T, V, PL_HELD>), blocks, dim3(team, rows), 0,
				  k->stream, f);
			return;
		}
	PL_LAUNCH((layernorm<T, V, 0>), blocks, dim3(team, rows), 0, k->stream, f);
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
	const T *dy, *more; /* more NULL: no gradient is added */
	T *dx;
	float *parts; /* (blocks, 2, C): sums of dy xh, of dy */
};

/* Add the sums of a block's teams, in their order, to its row of parts. They go through shared
 * memory, one team at a time, (2, C). */
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

/* Add to sums in memory, each of which belongs to one thread. */
template <int V> __device__ static inline void add_to(float *to, const float *v)
{
	for (int l = 0; l < V; l++)
		to[l] += v[l];
}

/*
 * A row that is computed while the next one is copied to shared memory. A thread copies the vectors
 * that it will need, so that no thread waits for others.
 */
template <typename T, int V, int K> struct at_row {
	typedef struct pl_raw<T, V> raw;
	const struct backward<T> &b;
	raw *room; /* (2 rows, x dy more, vectors of a thread, threads) */
	int vecs, arrays, each, turn;
	size_t row;
	float mean, rstd, next_mean, next_rstd;

	__device__ raw *place(int to, int array, int i) const
	{
		int thread = (int)(threadIdx.x + blockDim.x * threadIdx.y);

		return room + ((to * arrays + array) * each + i) * BACK + thread;
	}
	__device__ void copy(raw *to, const T *from) const
	{
		plm_copy<16>(plm_shared(to), from, true);
	}
	__device__ void ask(int to, size_t next)
	{
		if (next >= (size_t)b.n)
			return;
		next_mean = b.save[next], next_rstd = b.save[b.n + next];
		if constexpr (K > 0)
			pl_row<K>(vecs, [&](int i, int j) {
				size_t from = next * b.c + (size_t)j * V;

				copy(place(to, 0, i), b.x + from);
				copy(place(to, 1, i), b.dy + from);
				if (b.more)
					copy(place(to, 2, i), b.more + from);
			});
	}
	/* Wait for the current row and start to copy the next one. */
	__device__ void next_row(size_t next)
	{
		mean = next_mean, rstd = next_rstd;
		ask(turn ^ 1, next);
		plm_commit();
		plm_wait<1>();
	}
	__device__ void get(int array, const T *from, int i, int j, float *v) const
	{
		if (K)
			pl_get<V>((const T *)place(turn, array, i), v);
		else
			pl_get<V>(from + row * b.c + (size_t)j * V, v);
	}
	/* xh, and dy */
	__device__ void open(int i, int j, float *xh, float *g) const
	{
		get(0, b.x, i, j, xh);
		get(1, b.dy, i, j, g);
		for (int l = 0; l < V; l++)
			xh[l] = (xh[l] - mean) * rstd;
	}
	__device__ void write(int mine, float sum, float dot) const
	{
		pl_row<K>(mine, [&](int i, int j) {
			float xh[V], g[V], gamma[V], more[V] = { 0 };

			open(i, j, xh, g);
			pl_get<V>(b.gamma + j * V, gamma);
			if (b.more)
				get(2, b.more, i, j, more);
			for (int l = 0; l < V; l++)
				g[l] = rstd * (g[l] * gamma[l] - sum - xh[l] * dot) + more[l];
			pl_put<V>(b.dx + row * b.c + (size_t)j * V, g);
		});
	}
};

template <typename T, int V, int K>
static __global__ void __launch_bounds__(K ? BACK : 1024, K ? 2 : 1)
	layernorm_back(struct backward<T> b)
{
	PL_SHARED(room, float[32]);
	int team = (int)blockDim.x, vecs = b.c / V, arrays = b.more ? 3 : 2;
	size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
	size_t step = (size_t)gridDim.x * blockDim.y;
	float *part = b.parts + (size_t)blockIdx.x * 2 * b.c;
	struct at_row<T, V, K> a = {
		b, NULL, vecs, arrays, (vecs + team - 1) / team, 0, row, 0, 0, 0, 0
	};
	float dg[K ? K : 1][V] = {}, db[K ? K : 1][V] = {};

	if constexpr (K > 0) {
		PL_DYNAMIC(next, struct pl_raw<T, V>);
		a.room = next;
	} else {
		pl_row<K>(vecs, [&](int i, int j) {
			pl_put<V>(part + j * V, dg[i]);
			pl_put<V>(part + b.c + j * V, db[i]);
		});
	}
	a.ask(0, row);
	plm_commit();
	/* the teams of a block continue together, because they wait for each other's sums */
	for (size_t first = row - threadIdx.y; first < (size_t)b.n; first += step) {
		int mine = a.row < (size_t)b.n ? vecs : 0;
		float sum = 0, dot = 0;

		a.next_row(a.row + step);
		pl_row<K>(mine, [&](int i, int j) {
			float xh[V], g[V], gamma[V];

			a.open(i, j, xh, g);
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
		a.write(mine, sum, dot);
		a.row += step;
		a.turn ^= 1;
	}
	plm_wait<0>();
	if constexpr (K > 0)
		gather<T, V, K>(b, dg, db);
}

template <typename T, int V>
static unsigned launch_back(const struct plk *k, const struct backward<T> &b)
{
	bool held;
	unsigned vecs = (unsigned)(b.c / V), team = pl_team((int)vecs, PL_HELD, &held);
	unsigned rows, blocks, most = 2 * (unsigned)k->sms, each = (vecs + team - 1) / team;
	size_t sums = 2 * (size_t)b.c * sizeof(float);
	size_t room = (b.more ? 6 : 4) * (size_t)each * BACK * sizeof(struct pl_raw<T, V>);

	static_assert(6 * PL_HELD * BACK * 16 + (1 << 10) <= PL_LEAST_SHARED,
		      "each is PL_HELD at most");
	held = V > 1 && held && team <= BACK; /* up to 8,192 bfloat16, 4,096 floats */
	rows = held ? BACK / team : 1;
	blocks = pl_blocks((size_t)b.n, rows);
	blocks = blocks < most ? blocks : most;
	if constexpr (V > 1)
		if (held) {
			PL_LAUNCH((layernorm_back<T, V, PL_HELD>), blocks, dim3(team, rows),
				  room > sums ? room : sums, k->stream, b);
			return blocks;
		}
	team = pl_team((int)vecs, 1, &held);
	PL_LAUNCH((layernorm_back<T, V, 0>), blocks, dim3(team), 0, k->stream, b);
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
