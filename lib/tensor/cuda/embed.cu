/*
 * embed.cu - rows of a table by number, and their gradient.
 *
 * Forward: reads 4 N C bytes of table (and position), writes N C of activations.
 *
 * Backward: a row of the table gets the sum of dy over the tokens with its number, in the order of
 * the tokens, independent of the order of blocks. So the tokens are sorted by id with a stable
 * sort: least significant digit first, four passes of 8 bits. Each pass is a count of digits for
 * each tile, a scan, and a pass that moves them, in which a warp ranks 32 tokens at a time by
 * matching digits. Then blocks sum over chunks of 32 sorted tokens. A run of one id within a chunk
 * is added to the table at once. A run across a border leaves partial sums, and the block in whose
 * chunk it began adds these in order. So many blocks share the work of a frequent token. Bytes: N C
 * of dy once (and once more for the positions), 4 (N + rows met) C of the table, about 100 N for
 * sorting.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: embedding, embedding-back).
 */
#include "tensor/cuda/device.cuh"

template <typename T> struct do_embed {
	size_t c, t;
	const int32_t *id;
	const float *table, *position;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		size_t row = pl_div(i, c), col = i - row * c;
		float v[V], p[V];

		pl_get<V>(table + (size_t)id[row] * c + col, v);
		if (position) {
			pl_get<V>(position + pl_mod(row, t) * c + col, p);
			for (int l = 0; l < V; l++)
				v[l] += p[l];
		}
		pl_put<V>(y + i, v);
	}
};

void plk_embed(const struct plk *k, int n, int c, const int32_t *id, const float *table,
	       const float *position, int t, void *y)
{
	PL_STORED(k, T, {
		struct do_embed<T> f = {
			(size_t) c, (size_t)t, id, table, position, (T *)y
		};

		pl_each<pl_wide<T>::n>(k, (size_t)n * (size_t)c,
				       pl_aligned((size_t)c * sizeof(T), table, position, y), f);
	});
}

/* ---- sorting --------------------------------------------------------------------------------- */

#define DIGITS 256
#define WARPS  8
#define ROUNDS 8		     /* of 32 tokens for each warp */
#define TILE   (WARPS * ROUNDS * 32) /* tokens of a block */

struct sorting {
	int n, tiles, shift;
	const uint32_t *key, *at; /* at NULL: token i is at i */
	uint32_t *key_to, *at_to;
	uint32_t *count; /* (DIGITS, tiles): tokens; after the scan, the place of the first one */
};

__device__ static inline int token_of(int round)
{
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

	return (int)blockIdx.x * TILE + (warp * ROUNDS + round) * 32 + lane;
}

static __global__ void count_digits(struct sorting s)
{
	PL_SHARED(count, unsigned[DIGITS]);

	count[threadIdx.x] = 0;
	__syncthreads();
	for (int r = 0; r < ROUNDS; r++)
		if (token_of(r) < s.n)
			atomicAdd(&count[s.key[token_of(r)] >> s.shift & (DIGITS - 1)], 1u);
	__syncthreads();
	s.count[threadIdx.x * (unsigned)s.tiles + blockIdx.x] = count[threadIdx.x];
}

/* count[i] becomes the sum of the entries before it; one block, each thread has a piece of the
 * array. */
static __global__ void __launch_bounds__(1024) scan(int n, uint32_t *count)
{
	PL_SHARED(sums, uint32_t[1024]);
	int each = (n + 1023) / 1024, first = min((int)threadIdx.x * each, n);
	int end = min(first + each, n);
	uint32_t sum = 0;

	for (int i = first; i < end; i++)
		sum += count[i];
	sums[threadIdx.x] = sum;
	for (unsigned by = 1; by < 1024; by *= 2) {
		uint32_t more;

		__syncthreads();
		more = threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
		__syncthreads();
		sums[threadIdx.x] += more;
	}
	sum = sums[threadIdx.x] - sum;
	for (int i = first; i < end; i++) {
		uint32_t own = count[i];

		count[i] = sum;
		sum += own;
	}
}

static __global__ void move_tokens(struct sorting s)
{
	PL_SHARED(to, uint32_t[WARPS][DIGITS]);
	unsigned warp = threadIdx.x / 32, before = (1u << threadIdx.x % 32) - 1;
	uint32_t sum;

	for (int w = 0; w < WARPS; w++)
		to[w][threadIdx.x] = 0;
	__syncthreads();
	for (int r = 0; r < ROUNDS; r++)
		if (token_of(r) < s.n)
			atomicAdd(&to[warp][s.key[token_of(r)] >> s.shift & (DIGITS - 1)], 1u);
	__syncthreads();
	sum = s.count[threadIdx.x * (unsigned)s.tiles + blockIdx.x];
	for (int w = 0; w < WARPS; w++) {
		uint32_t own = to[w][threadIdx.x];

		to[w][threadIdx.x] = sum;
		sum += own;
	}
	__syncthreads();
	for (int r = 0; r < ROUNDS; r++) {
		int i = token_of(r);
		uint32_t key = i < s.n ? s.key[i] : 0, place = 0;
		unsigned digit = i < s.n ? key >> s.shift & (DIGITS - 1) : DIGITS;
		unsigned like = __match_any_sync(PL_FULL, digit);

		if (i < s.n)
			place = to[warp][digit] + (unsigned)__popc(like & before);
		__syncwarp();
		if (i < s.n) {
			if (!(like & before))
				to[warp][digit] += (unsigned)__popc(like);
			s.key_to[place] = key;
			s.at_to[place] = s.at ? s.at[i] : (uint32_t)i;
		}
		__syncwarp();
	}
}

/* ---- sums ------------------------------------------------------------------------------------ */

#define CHUNK 32  /* sorted tokens of a block */
#define WIDE  128 /* threads of a block: vectors of columns */
#define AHEAD 4	  /* rows of dy that a thread reads at once */

template <typename T> struct summing {
	int n, c;
	const uint32_t *key, *at;
	const T *dy;
	float *parts; /* (chunks, 2, C): of a run that began before the chunk; of one that continues
			 after it */
	float *dtable;
};

/* Sum a run [first, end) of one id that ends within the chunk or at its end. */
template <typename T, int V>
__device__ static inline void end_run(const struct summing<T> &s, int first, int end, int col,
				      const float *sum)
{
	int begin = (int)blockIdx.x * CHUNK;
	uint32_t key = s.key[first];
	bool from_before = first == begin && begin > 0 && s.key[begin - 1] == key;
	bool goes_on = end == begin + CHUNK && end < s.n && s.key[end] == key;
	float *to = s.dtable + (size_t)key * s.c + col, v[V];

	if (from_before || goes_on) {
		to = s.parts + ((size_t)blockIdx.x * 2 + !from_before) * s.c + col;
		pl_put<V>(to, sum);
		return;
	}
	pl_get<V>(to, v);
	for (int l = 0; l < V; l++)
		v[l] += sum[l];
	pl_put<V>(to, v);
}

template <typename T, int V> static __global__ void sum_chunks(struct summing<T> s)
{
	int begin = (int)blockIdx.x * CHUNK, end = min(begin + CHUNK, s.n), first = begin;
	int col = (int)(blockIdx.y * WIDE + threadIdx.x) * V;
	float sum[V] = { 0 }, v[AHEAD][V];

	if (col >= s.c)
		return;
	for (int i = begin; i < end; i += AHEAD) {
#pragma unroll
		for (int a = 0; a < AHEAD; a++)
			if (i + a < end)
				pl_get<V>(s.dy + (size_t)s.at[i + a] * s.c + col, v[a]);
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			if (i + a >= end)
				continue;
			if (s.key[i + a] != s.key[first]) {
				end_run<T, V>(s, first, i + a, col, sum);
				first = i + a;
				for (int l = 0; l < V; l++)
					sum[l] = 0;
			}
			for (int l = 0; l < V; l++)
				sum[l] += v[a][l];
		}
	}
	end_run<T, V>(s, first, end, col, sum);
}

/* Add the runs that cross borders; the block in whose chunk a run begins does it. */
template <typename T> static __global__ void sum_runs(struct summing<T> s)
{
	int chunk = (int)blockIdx.x, begin = chunk * CHUNK, end = begin + CHUNK;
	int col = (int)(blockIdx.y * WIDE + threadIdx.x);
	uint32_t key;
	float sum;

	if (col >= s.c || end >= s.n)
		return;
	key = s.key[end];
	if (s.key[end - 1] != key || (begin > 0 && s.key[begin - 1] == key))
		return;
	sum = s.parts[((size_t)chunk * 2 + 1) * s.c + col];
	do {
		chunk++;
		end += CHUNK;
		sum += s.parts[(size_t)chunk * 2 * s.c + col];
	} while (end < s.n && s.key[end] == key);
	s.dtable[(size_t)key * s.c + col] += sum;
}

template <typename T, int V>
static __global__ void sum_positions(int n, int c, int t, const T *dy, float *dposition)
{
	size_t i = ((size_t)blockIdx.x * PL_BLOCK + threadIdx.x) * V, all = (size_t)t * c;
	float sum[V], v[V];

	if (i >= all)
		return;
	pl_get<V>(dposition + i, sum);
#pragma unroll 4
	for (size_t at = i; at < (size_t)n * c; at += all) {
		pl_get<V>(dy + at, v);
		for (int l = 0; l < V; l++)
			sum[l] += v[l];
	}
	pl_put<V>(dposition + i, sum);
}

/* Two sets of keys and places, counts of digits, partial sums. */
struct room {
	uint32_t *key[2], *at[2], *count;
	float *parts;
	size_t bytes;
};

static struct room divide(const void *scratch, int n, int c)
{
	uintptr_t p = (uintptr_t)scratch;
	size_t tokens = ((size_t)n * sizeof(uint32_t) + 255) / 256 * 256;
	size_t counts = (size_t)pl_blocks((size_t)n, TILE) * DIGITS * sizeof(uint32_t);
	size_t parts = (size_t)pl_blocks((size_t)n, CHUNK) * 2 * (size_t)c * sizeof(float);
	struct room r;

	for (int i = 0; i < 2; i++) {
		r.key[i] = (uint32_t *)(p + (size_t)i * tokens);
		r.at[i] = (uint32_t *)(p + (size_t)(2 + i) * tokens);
	}
	r.count = (uint32_t *)(p + 4 * tokens);
	r.parts = (float *)(p + 4 * tokens + counts);
	r.bytes = 4 * tokens + counts + parts;
	return r;
}

size_t plk_embed_scratch(const struct plk *k, int n, int c)
{
	(void)k;
	return divide(NULL, n, c).bytes;
}

/* The sorted tokens end in set 1. */
static void sort(const struct plk *k, int n, const int32_t *id, const struct room *r)
{
	struct sorting s = { n,	   (int)pl_blocks((size_t)n, TILE),
			     0,	   (const uint32_t *)id,
			     NULL, NULL,
			     NULL, r->count };

	for (int pass = 0; pass < 4; pass++) {
		s.shift = 8 * pass;
		s.key_to = r->key[pass % 2];
		s.at_to = r->at[pass % 2];
		PL_LAUNCH(count_digits, (unsigned)s.tiles, DIGITS, 0, k->stream, s);
		PL_LAUNCH(scan, 1, 1024, 0, k->stream, s.tiles * DIGITS, s.count);
		PL_LAUNCH(move_tokens, (unsigned)s.tiles, WARPS * 32, 0, k->stream, s);
		s.key = s.key_to;
		s.at = s.at_to;
	}
}

template <typename T, int V>
static void sums(const struct plk *k, const struct summing<T> &s, int t, float *dposition)
{
	unsigned chunks = pl_blocks((size_t)s.n, CHUNK);

	PL_LAUNCH((sum_chunks<T, V>), dim3(chunks, pl_blocks((size_t)s.c, WIDE * V)), WIDE, 0,
		  k->stream, s);
	PL_LAUNCH((sum_runs<T>), dim3(chunks, pl_blocks((size_t)s.c, WIDE)), WIDE, 0, k->stream, s);
	if (dposition)
		PL_LAUNCH((sum_positions<T, V>),
			  pl_blocks((size_t)t * (size_t)s.c, (size_t)PL_BLOCK * V), PL_BLOCK, 0,
			  k->stream, s.n, s.c, t, s.dy, dposition);
}

void plk_embed_back(const struct plk *k, int n, int c, const int32_t *id, int t, const void *dy,
		    float *dtable, float *dposition)
{
	struct room r = divide(k->scratch, n, c);

	if (n < 1)
		return;
	sort(k, n, id, &r);
	PL_STORED(k, T, {
		struct summing<T> s = {
			n, c, r.key[1], r.at[1], (const T *)dy, r.parts, dtable
		};

		if (pl_aligned((size_t)c * sizeof(T), dy, dtable, dposition))
			sums<T, pl_wide<T>::n>(k, s, t, dposition);
		else
			sums<T, 1>(k, s, t, dposition);
	});
}
