/*
 * loss.cu - losses, their gradients and the number of hits.
 *
 * softmax_xent of (N, C) elements of e bytes: a team of threads reads a row once and keeps the
 * greatest element so far and the sum of exponentials relative to it, rescaled when the greatest
 * changes (Milakov and Gimelshein, 2018); then it writes the gradient (p - 1[y]) scale / N. Vectors
 * of 16 bytes are aligned in memory for any C (GPT-2's vocabulary is odd). Between the two the row
 * stays on the chip, so that 2 N C e bytes are moved in all. It stays in registers, 7 vectors for
 * each of up to 512 threads (28,672 bfloat16, 14,336 float32), or in shared memory, with room for
 * two rows of 111 KB (GPT-2's vocabulary needs 98) or one longer row. One of the two rows is copied
 * while the other is computed, and the next row overwrites a row as soon as it has been used.
 * Longer rows are read again, mostly from the cache. In the time in which memory (4.8 TB/s) reads
 * and writes a bfloat16 element, a multiprocessor can issue 24 instructions for it; this needs
 * about 11, 2 of them exponentials, of which 3 would be possible.
 *
 * A row is a hit if no element before its class is as great, and no element after it is greater.
 * Blocks add the losses of their rows in double and write one number each; the last block adds
 * those in order.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: cross-entropy, squared-error,
 * hinge).
 */
#include "tensor/cuda/mma.cuh"

#define HELD  7	   /* vectors of a row that a thread keeps */
#define ASIDE 1	   /* instead of a number: the row is in shared memory */
#define FIXED 2048 /* bytes of shared memory that a block needs besides */
#define WIDE  512  /* threads of a block with rows in shared memory */
#define BLOCK 256  /* threads of a block, unless a row needs more */
#define MOST  8	   /* blocks for each multiprocessor */
#define FOLD  256

struct part {
	double loss;
	int64_t hits;
};

/* Write the sums of the teams of a block, added in order. */
__device__ static inline void write_part(const struct part *teams, struct part *parts)
{
	struct part all;

	__syncthreads();
	if (threadIdx.x || threadIdx.y)
		return;
	all = teams[0];
	for (unsigned i = 1; i < blockDim.y; i++) {
		all.loss += teams[i].loss;
		all.hits += teams[i].hits;
	}
	parts[blockIdx.x] = all;
}

static __global__ void finish(int count, const struct part *parts, double over,
			      struct pl_loss_sum *sum)
{
	PL_SHARED(room, double[32]);
	double loss = 0, hits = 0; /* integers below 2^53 are exact */

	for (int i = (int)threadIdx.x; i < count; i += FOLD) {
		loss += parts[i].loss;
		hits += (double)parts[i].hits;
	}
	loss = pl_team_sum(loss, FOLD, room);
	hits = pl_team_sum(hits, FOLD, room);
	if (threadIdx.x == 0) {
		sum->loss = loss / over;
		sum->hits = (int64_t)hits;
	}
}

static unsigned grid(const struct plk *k, size_t n, unsigned rows)
{
	unsigned all = pl_blocks(n, rows), most = MOST * (unsigned)k->sms;

	return all < most ? all : most;
}

/* ---- softmax and cross-entropy --------------------------------------------------------------- */

template <typename T> struct xent {
	int n, c;
	const T *x;
	const int32_t *y;
	float scale;
	T *dx;
	struct part *parts;
};

/*
 * Rows of any length: a row is read in vectors that are aligned in memory. The first begins `early`
 * elements before the row, and the last may end after it. Elements outside the row become
 * -infinity, which adds nothing. at: the element of the row at which the vector begins.
 */
template <typename T, int V>
__device__ static inline struct pl_raw<T, V> take(const T *row, int c, int at) {
	struct pl_raw<T, V> r;
	float v[V];

	if (at >= 0 && at + V <= c)
		return *(const struct pl_raw<T, V> *)(row + at);
	for (int l = 0; l < V; l++)
		v[l] = at + l >= 0 && at + l < c ? pl_float(row[at + l]) : -INFINITY;
	pl_put<V>((T *)&r, v);
	return r;
}

template <typename T, int V>
__device__ static inline void give(T *row, int c, int at, const float *v)
{
	if (at >= 0 && at + V <= c) {
		pl_put<V>(row + at, v);
		return;
	}
	for (int l = 0; l < V; l++)
		if (at + l >= 0 && at + l < c)
			pl_store(row + at + l, v[l]);
}

struct seen {		 /* the part of a row that one thread has read */
	float most, sum; /* the greatest; the sum of exponentials relative to it */
	int where;	 /* the vector with the first of the greatest elements */
	int beaten;	 /* the vector of the class has an element as great before the class */
};

template <int V>
__device__ static inline void look(struct seen *s, const float *v, int at, int y, float own)
{
	float high = v[0];

	for (int l = 1; l < V; l++)
		high = fmaxf(high, v[l]);
	if (high > s->most) {
		s->sum *= pl_exp2((s->most - high) * PL_LOG2E);
		s->most = high;
		s->where = at;
	}
	for (int l = 0; l < V; l++)
		s->sum += pl_exp2(v[l] * PL_LOG2E - s->most * PL_LOG2E);
	if (at <= y && y < at + V)
		for (int l = 0; l < V; l++)
			s->beaten |= at + l < y && v[l] == own;
}

/* Start to copy vector j of a row to the place of the same vector of the previous row. The thread
 * that used that one also needs this one. */
template <typename T, int V>
__device__ static inline void ask(const struct xent<T> &a, size_t row, int j,
				  struct pl_raw<T, V> *aside)
{
	size_t begin = row * a.c;
	int at = j * V - (int)(begin % V);

	if (row >= (size_t)a.n || at >= a.c)
		return;
	if (at < 0 || at + V > a.c)
		aside[j] = take<T, V>(a.x + begin, a.c, at);
	else if constexpr (sizeof(*aside) == 16)
		plm_copy<16>(plm_shared(&aside[j]), a.x + begin + at, true);
}

/* e^(v - top) f, less `own` at the class; top: multiplied by log2 e */
template <int V>
__device__ static inline void slope(float *v, float top, float f, int at_class, float own)
{
	for (int l = 0; l < V; l++)
		v[l] = pl_exp2(v[l] * PL_LOG2E - top) * f;
	if (at_class >= 0 && at_class < V)
		for (int l = 0; l < V; l++)
			v[l] -= l == at_class ? own : 0;
}

template <typename T, int V, int K>
static __global__ void __launch_bounds__(K == ASIDE ? WIDE : 1024, K == ASIDE ? 2 : 1)
	softmax_xent(struct xent<T> a)
{
	typedef struct pl_raw<T, V> raw;
	const int R = K == ASIDE ? 0 : K; /* registers of the row */
	PL_SHARED(room, float[32]);
	PL_SHARED(counts, int[32]);
	PL_SHARED(teams, struct part[32]);
	int team = (int)blockDim.x;
	raw held[R ? R : 1], *aside = NULL;

	int most = (a.c + 2 * V - 2) / V; /* vectors of a row with any alignment */

	if constexpr (K == ASIDE) {
		PL_DYNAMIC(room_of_row, raw);
		aside = room_of_row;
	}
	if (threadIdx.x == 0)
		teams[threadIdx.y] = { 0, 0 };
	if (K == ASIDE)
		pl_row<0>(most, [&](int, int j) { ask<T, V>(a, blockIdx.x, j, aside); });
	/* the teams of a block continue together, because they wait for each other's sums */
	for (size_t rows = (size_t)blockIdx.x * blockDim.y; rows < (size_t)a.n;
	     rows += (size_t)gridDim.x * blockDim.y) {
		size_t row = rows + threadIdx.y, begin = row * a.c;
		bool mine = row < (size_t)a.n;
		int early = (int)(begin % V), vecs = mine ? (a.c + early + V - 1) / V : 0;
		int y = mine ? a.y[row] : 0;
		float own = mine ? pl_float(a.x[begin + y]) : 0, v[V], f = a.scale / (float)a.n;
		struct seen s = { -3.4e38f, 0, 0, 0 };
		float top, sum;

		auto get = [&](int i, int j) {
			if (!K)
				held[0] = take<T, V>(a.x + begin, a.c, j * V - early);
			pl_get<V>((const T *)(K == ASIDE ? &aside[j] : &held[i]), v);
		};

		plm_commit();
		plm_wait<0>();
		if (R) /* load the whole row before computing */
			pl_row<R>(vecs, [&](int i, int j) {
				held[i] = take<T, V>(a.x + begin, a.c, j * V - early);
			});
		pl_row<R>(vecs, [&](int i, int j) {
			get(i, j);
			look<V>(&s, v, j * V - early, y, own);
		});
		top = pl_team_max(s.most, team, room);
		sum = pl_team_sum(s.sum * pl_exp2((s.most - top) * PL_LOG2E), team, room);
		s.beaten |= own != top || (s.most == top && s.where + V <= y);
		s.beaten = pl_team_sum(s.beaten, team, counts);
		if (mine && threadIdx.x == 0) {
			teams[threadIdx.y].loss += (double)(top + logf(sum) - own);
			teams[threadIdx.y].hits += s.beaten == 0;
		}
		pl_row<R>(K == ASIDE ? most : vecs, [&](int i, int j) {
			int at = j * V - early;

			if (a.dx && j < vecs) {
				get(i, j);
				slope<V>(v, top * PL_LOG2E, f / sum, y - at, f);
				give<T, V>(a.dx + begin, a.c, at, v);
			}
			if (K == ASIDE)
				ask<T, V>(a, row + gridDim.x, j, aside);
		});
	}
	write_part(teams, a.parts);
}

template <typename T, int V> static unsigned launch(const struct plk *k, const struct xent<T> &a)
{
	bool held;
	unsigned vecs = (unsigned)((a.c + 2 * V - 2) / V), team = pl_team((int)vecs, HELD, &held);
	unsigned rows = team < BLOCK ? BLOCK / team : 1, blocks = grid(k, (size_t)a.n, rows);
	size_t room = vecs * sizeof(struct pl_raw<T, V>);

	if constexpr (V > 1)
		if (team > WIDE && room + FIXED <= k->shared) {
			size_t per_sm = 2 * (room + FIXED) <= k->shared ? 2 : 1;

			blocks = (unsigned)pl_min_size((size_t)a.n, per_sm * (size_t)k->sms);
			PL_LAUNCH((softmax_xent<T, V, ASIDE>), blocks, WIDE, room, k->stream, a);
			return blocks;
		}
	if constexpr (V > 1)
		if (held) {
			PL_LAUNCH((softmax_xent<T, V, HELD>), blocks, dim3(team, rows), 0,
				  k->stream, a);
			return blocks;
		}
	PL_LAUNCH((softmax_xent<T, V, 0>), blocks, dim3(team, rows), 0, k->stream, a);
	return blocks;
}

void plk_softmax_xent(const struct plk *k, int n, int c, const void *x, const int32_t *y,
		      float scale, void *dx, struct pl_loss_sum *sum)
{
	struct part *parts = (struct part *)k->scratch;
	unsigned blocks;

	PL_STORED(k, T, {
		struct xent<T> a = {
			n, c, (const T *)x, y, scale, (T *)dx, parts
		};

		blocks = pl_aligned(0, x, dx) ? launch<T, pl_wide<T>::n>(k, a) : launch<T, 1>(k, a);
	});
	PL_LAUNCH(finish, 1, FOLD, 0, k->stream, (int)blocks, parts, (double)n, sum);
}

/* ---- squares and margins --------------------------------------------------------------------- */

template <typename T>
static __global__ void squared(size_t n, const T *x, const float *y, float f, T *dx,
			       struct part *parts)
{
	PL_SHARED(room, double[32]);
	double total = 0;

	for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * BLOCK) {
		float d = pl_float(x[i]) - y[i];

		total += (double)d * (double)d;
		if (dx)
			pl_store(dx + i, f * d);
	}
	total = pl_team_sum(total, BLOCK, room);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = { total, 0 };
}

void plk_squared(const struct plk *k, int n, int c, const void *x, const float *y, float scale,
		 void *dx, struct pl_loss_sum *sum)
{
	struct part *parts = (struct part *)k->scratch;
	size_t count = (size_t)n * (size_t)c;
	unsigned blocks = grid(k, count, BLOCK);
	float f = (float)(2 * (double)scale / (double)count);

	PL_STORED(k, T, {
		PL_LAUNCH((squared<T>), blocks, BLOCK, 0, k->stream, count, (const T *)x, y, f,
			  (T *)dx, parts);
	});
	PL_LAUNCH(finish, 1, FOLD, 0, k->stream, (int)blocks, parts, (double)count, sum);
}

/* One warp for each row, which is read twice: the gradient of the class depends on the number of
 * other terms. */
template <typename T>
static __global__ void hinge(int n, int c, const T *x, const int32_t *y, float f, T *dx,
			     struct part *parts)
{
	PL_SHARED(teams, struct part[BLOCK / 32]);
	double total = 0;
	int64_t hits = 0;

	for (size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y; row < (size_t)n;
	     row += (size_t)gridDim.x * blockDim.y) {
		const T *from = x + row * c;
		int at = y[row], over = 0, beaten = 0;
		float own = pl_float(from[at]), sum = 0;

		for (int j = (int)threadIdx.x; j < c; j += 32) {
			float v = pl_float(from[j]), margin = 1 - own + v;

			beaten += j < at ? !(v < own) : v > own;
			if (j == at || !(margin > 0))
				continue;
			sum += margin;
			over++;
		}
		total += (double)pl_warp_sum(sum);
		over = pl_warp_sum(over);
		hits += pl_warp_sum(beaten) == 0;
		__syncwarp(); /* all lanes have read the element of the class, because dx may be x
			       */
		for (int j = (int)threadIdx.x; dx && j < c; j += 32) {
			bool on = 1 - own + pl_float(from[j]) > 0;

			pl_store(dx + row * c + j, j == at ? -f * (float)over : on ? f : 0);
		}
	}
	if (threadIdx.x == 0)
		teams[threadIdx.y] = { total, hits };
	write_part(teams, parts);
}

void plk_hinge(const struct plk *k, int n, int c, const void *x, const int32_t *y, float scale,
	       void *dx, struct pl_loss_sum *sum)
{
	struct part *parts = (struct part *)k->scratch;
	double count = (double)n * (double)c;
	unsigned blocks = grid(k, (size_t)n, BLOCK / 32);

	PL_STORED(k, T, {
		PL_LAUNCH((hinge<T>), blocks, dim3(32, BLOCK / 32), 0, k->stream, n, c,
			  (const T *)x, y, (float)((double)scale / count), (T *)dx, parts);
	});
	PL_LAUNCH(finish, 1, FOLD, 0, k->stream, (int)blocks, parts, count, sum);
}
