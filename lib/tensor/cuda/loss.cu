/*
 * loss.cu - losses, their gradients and how many rows were right.
 *
 * softmax_xent of (N, C) elements of e bytes: a team of threads takes a row and goes over it once,
 * keeping the greatest element so far and the sum of exponentials relative to it, rescaled when the
 * greatest changes (Milakov and Gimelshein, 2018); then the gradient (p - 1[y]) scale / N is
 * written. A row that fits into 8 vectors a thread of 1,024 (65,536 bfloat16, 32,768 float32) stays
 * in registers between the two, as it was read: 2 N C e bytes in all. Longer ones are read again,
 * most of it from the cache: two blocks a multiprocessor, a row each. 2 exponentials an element:
 * 0.27 of what the special function units do in the time that memory takes for a bfloat16 element.
 *
 * A row was right when no element before its class is as great, and none behind it greater. Blocks
 * add the losses of their rows in double and leave one number each; a last block adds those in
 * order.
 */
#include "tensor/cuda/device.cuh"

#define HELD  8	  /* vectors of a row that a thread keeps */
#define BLOCK 256 /* threads of a block, unless a row needs more */
#define MOST  8	  /* blocks a multiprocessor */
#define FOLD  256

struct part {
	double loss;
	int64_t hits;
};

/* What the teams of a block summed, added in order; each team's first thread gives its own. */
__device__ static inline void leave(double loss, int hits, struct part *parts)
{
	PL_SHARED(losses, double[32]);
	PL_SHARED(right, int[32]);

	if (threadIdx.x == 0) {
		losses[threadIdx.y] = loss;
		right[threadIdx.y] = hits;
	}
	__syncthreads();
	if (threadIdx.x || threadIdx.y)
		return;
	for (unsigned i = 1; i < blockDim.y; i++) {
		loss += losses[i];
		hits += right[i];
	}
	parts[blockIdx.x].loss = loss;
	parts[blockIdx.x].hits = hits;
}

static __global__ void finish(int count, const struct part *parts, double over,
			      struct pl_loss_sum *sum)
{
	PL_SHARED(room, double[32]);
	double loss = 0, hits = 0; /* whole numbers below 2^53 */

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

/* V elements as they lie in memory */
template <typename T, int V> struct raw;
template <typename T> struct raw<T, pl_wide<T>::n> {
	uint4 v;
};
template <typename T> struct raw<T, 1> {
	T v;
};

template <typename T, int V, int K>
static __global__ void __launch_bounds__(1024) softmax_xent(struct xent<T> a)
{
	PL_SHARED(room, float[32]);
	int team = (int)blockDim.x, vecs = a.c / V, hits = 0;
	double total = 0;

	/* the teams of a block go on together, since they wait for each other's sums */
	for (size_t rows = (size_t)blockIdx.x * blockDim.y; rows < (size_t)a.n;
	     rows += (size_t)gridDim.x * blockDim.y) {
		size_t row = rows + threadIdx.y;
		int mine = row < (size_t)a.n ? vecs : 0, y = mine ? a.y[row] : 0;
		const T *x = a.x + row * a.c;
		float own = mine ? pl_float(x[y]) : 0, most = -3.4e38f, sum = 0, beaten = 0;
		float top; /* of the row; `most` is that of what the thread saw */
		struct raw<T, V> held[K ? K : 1];

		pl_row<K>(mine, [&](int i, int j) {
			float v[V], high;

			held[i] = *(const struct raw<T, V> *)(x + (size_t)j * V);
			pl_get<V>((const T *)&held[i], v);
			high = v[0];
			for (int l = 1; l < V; l++)
				high = fmaxf(high, v[l]);
			if (high > most) {
				sum *= __expf(most - high);
				most = high;
			}
			for (int l = 0; l < V; l++) {
				sum += __expf(v[l] - most);
				beaten += (j * V + l < y ? !(v[l] < own) : v[l] > own);
			}
		});
		top = pl_team_max(most, team, room);
		sum = pl_team_sum(sum * __expf(most - top), team, room);
		beaten = pl_team_sum(beaten, team, room);
		if (mine && threadIdx.x == 0) {
			total += (double)(top + logf(sum) - own);
			hits += beaten == 0;
		}
		if (!a.dx)
			continue;
		pl_row<K>(mine, [&](int i, int j) {
			float v[V], f = a.scale / (float)a.n, g = f / sum;

			if (!K)
				held[i] = *(const struct raw<T, V> *)(x + (size_t)j * V);
			pl_get<V>((const T *)&held[i], v);
			for (int l = 0; l < V; l++)
				v[l] = __expf(v[l] - top) * g - (j * V + l == y ? f : 0);
			pl_put<V>(a.dx + row * a.c + (size_t)j * V, v);
		});
	}
	leave(total, hits, a.parts);
}

template <typename T, int V> static unsigned launch(const struct plk *k, const struct xent<T> &a)
{
	bool held;
	unsigned team = pl_team(a.c / V, HELD, &held), rows = team < BLOCK ? BLOCK / team : 1;
	unsigned blocks = grid(k, (size_t)a.n, rows);

	if (held)
		PL_LAUNCH((softmax_xent<T, V, HELD>), blocks, dim3(team, rows), 0, k->stream, a);
	else
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

		blocks = pl_aligned((size_t)c * sizeof(T), x, dx) ? launch<T, pl_wide<T>::n>(k, a)
								  : launch<T, 1>(k, a);
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
	leave(total, 0, parts);
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

/* A warp a row, which is read twice: the gradient of the class counts the others. */
template <typename T>
static __global__ void hinge(int n, int c, const T *x, const int32_t *y, float f, T *dx,
			     struct part *parts)
{
	double total = 0;
	int hits = 0;

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
		for (int j = (int)threadIdx.x; dx && j < c; j += 32) {
			bool on = 1 - own + pl_float(from[j]) > 0;

			pl_store(dx + row * c + j, j == at ? -f * (float)over : on ? f : 0);
		}
	}
	leave(total, hits, parts);
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
