/*
 * Many samples through all trees.
 *
 * Walking down a tree, each step waits for the one before. So trees are applied as QuickScorer does
 * (Lucchese et al., SIGIR 2015): the leaves of a tree are numbered from left to right, and each
 * split has the set of the leaves on its left. A sample that goes right at a split cannot end in
 * these. The first leaf that no split excludes is the one. The splits need no order, and the same
 * one is tried for a block of samples at once, without a jump. O(splits) for each sample, not the
 * depth.
 *
 * All numbers are bytes, so that an instruction works on 32 samples, as in RapidScorer (Ye et al.,
 * KDD 2018). The rank of a value is how many thresholds of its feature are below it; it is found
 * once for each sample, and compared in place of the value. A set is one byte for each eight
 * leaves, and a split excludes leaves only in the bytes where it has any. Predictions of leaves are
 * whole numbers of a step (pl_boost_round()), in three bytes, so that sums are exact in any order.
 *
 * Trees with more leaves, or features with more thresholds, need the walk; then nothing is flat.
 */
#include <math.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "core/sort.h"
#include "learn/internal.h"

#define LEAVES	   32  /* of a tree */
#define GROUPS	   4   /* of eight leaves */
#define DIGITS	   3   /* bytes of a prediction */
#define THRESHOLDS 254 /* of a feature; the rank of unknown values is above all of them */
#define RUN	   16  /* thresholds that are compared at once */
#define TOGETHER   128 /* samples of a block */
#define FEW	   2   /* for less of them it takes longer than the walk */
#define TREES	   257 /* whose digits fit in 16 bits when they are summed */
/* Added to predictions, so that no digit is negative. */
#define ZERO (1 << (PL_BOOST_DIGITS - 1))

struct flat_edges {	 /* of a feature */
	float *at;	 /* its thresholds, ascending, then infinities: whole runs, one at least */
	float end[RUN];	 /* the last one of each run, then infinities */
	uint32_t n;	 /* thresholds; 0: no split has it */
	uint32_t column; /* of its ranks; in the next column unknown values go right */
	bool missing_right; /* a split has that column */
};
struct flat_split {
	uint16_t column;
	int8_t rank;	/* greater ones go right */
	uint8_t leaves; /* on the left, of the group */
};
struct flat_tree {
	uint32_t split; /* its first one, of the first group */
	uint8_t n[GROUPS], groups;
	uint8_t digit[DIGITS][LEAVES]; /* of the leaves' predictions, the lowest first */
};
struct pl_boost_flat {
	struct flat_tree *tree; /* those of the first model, then those of the next one */
	struct flat_split *split;
	struct flat_edges *edges; /* [feature] */
	float *edge;
	uint32_t n_features, n_columns, n_trees;
	size_t n_splits;
};

void pl_boost_flat_free(struct pl_boost_flat *f)
{
	if (!f)
		return;
	pl_free(f->tree);
	pl_free(f->split);
	pl_free(f->edges);
	pl_free(f->edge);
	pl_free(f);
}

/* ---- thresholds ------------------------------------------------------------------------------ */

struct threshold {
	uint32_t feature;
	float value;
};

static int compare_thresholds(const void *pa, const void *pb)
{
	const struct threshold *a = pa, *b = pb;
	int by_feature = PL_COMPARE(a->feature, b->feature);

	return by_feature ? by_feature : PL_COMPARE(a->value, b->value);
}

/* Those of all splits of the models, sorted. */
static int find_thresholds(const struct pl_boost *m, size_t models, struct threshold **v, size_t *n,
			   struct pl_err *err)
{
	size_t most = 0;

	*n = 0;
	for (size_t k = 0; k < models; k++)
		most += m[k].n_nodes;
	PL_CHECK(pl_alloc(v, most + 1, sizeof(**v), err));
	for (size_t k = 0; k < models; k++)
		for (size_t i = 0; i < m[k].n_nodes; i++) {
			const struct pl_boost_node *x = &m[k].node[i];

			if (x->left)
				(*v)[(*n)++] = (struct threshold){ x->feature, x->value };
		}
	pl_sort(*v, *n, sizeof(**v), compare_thresholds);
	return 0;
}

static size_t runs_of(uint32_t thresholds)
{
	return thresholds / RUN + 1;
}

/* The thresholds and columns of a feature, from its splits v[0 .. n - 1]. Has it too many? */
static bool put_edges(struct pl_boost_flat *f, const struct threshold *v, size_t n, float *at)
{
	struct flat_edges *e = &f->edges[v->feature];

	for (size_t i = 0; i < n; i++) {
		if (i && v[i].value == v[i - 1].value)
			continue;
		if (e->n == THRESHOLDS)
			return true;
		at[e->n++] = v[i].value;
	}
	for (size_t i = e->n; i < runs_of(e->n) * RUN; i++)
		at[i] = INFINITY;
	for (size_t i = 0; i < RUN; i++)
		e->end[i] = i < runs_of(e->n) ? at[i * RUN + RUN - 1] : INFINITY;
	e->at = at;
	e->column = f->n_columns;
	f->n_columns += 2;
	return false;
}

/* 1: a feature has too many thresholds. */
static int make_edges(struct pl_boost_flat *f, const struct pl_boost *m, size_t models,
		      struct pl_err *err)
{
	struct threshold *v = NULL;
	size_t n, used = 0;
	int rc;

	PL_TRY(find_thresholds(m, models, &v, &n, err));
	PL_TRY(pl_alloc(&f->edge, n + (size_t)f->n_features * RUN, sizeof(*f->edge), err));
	PL_TRY(pl_alloc(&f->edges, f->n_features, sizeof(*f->edges), err));
	for (size_t i = 0, k; i < n && rc == 0; i = k) {
		for (k = i + 1; k < n && v[k].feature == v[i].feature;)
			k++;
		rc = put_edges(f, v + i, k - i, f->edge + used);
		used += runs_of(f->edges[v[i].feature].n) * RUN;
	}
out:
	pl_free(v);
	return rc;
}

/* How many thresholds are below v. */
static uint32_t rank_of(const struct flat_edges *e, float v)
{
	size_t at = 0;

	PL_LOWER_BOUND(at, e->n, e->at[at] < v);
	return (uint32_t)at;
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* How many leaves the tree has; LEAVES + 1: more than a set has bits. */
static uint32_t count_leaves(const struct pl_boost *m, uint32_t root)
{
	uint32_t open[LEAVES + 1], n = 1, leaves = 0;

	open[0] = root;
	while (n) {
		const struct pl_boost_node *x = &m->node[open[--n]];

		if (!x->left) {
			leaves++;
			continue;
		}
		if (leaves + n + 2 > LEAVES) /* each open node has a leaf at least */
			return LEAVES + 1;
		open[n++] = x->left;
		open[n++] = x->left + 1;
	}
	return leaves;
}

struct putting { /* a tree */
	const struct pl_boost *m;
	struct flat_tree *to;
	struct flat_edges *edges;
	uint32_t leaves, splits;
	struct { /* a split, with all leaves on its left */
		uint32_t column, rank, left;
	} split[LEAVES];
};

static void put_leaf(struct putting *p, float value)
{
	uint32_t v = (uint32_t)((double)value / p->m->step + ZERO);

	for (int i = 0; i < DIGITS; i++)
		p->to->digit[i][p->leaves] = (uint8_t)(v >> 8 * i);
}

/* Adds the leaves and splits below a node. Returns the set of the leaves. The depth is below
 * LEAVES. */
static uint32_t put_node(struct putting *p, uint32_t node)
{
	const struct pl_boost_node *x = &p->m->node[node];
	struct flat_edges *e = &p->edges[x->feature];
	uint32_t left, right;

	if (!x->left) {
		put_leaf(p, x->value);
		return 1u << p->leaves++;
	}
	left = put_node(p, x->left);
	right = put_node(p, x->left + 1);
	e->missing_right |= x->missing_right;
	p->split[p->splits].column = e->column + x->missing_right;
	p->split[p->splits].rank = rank_of(e, x->value);
	p->split[p->splits++].left = left;
	return left | right;
}

/* Ranks of 0 to 255 as signed bytes, which instructions can compare. */
static int8_t as_signed(uint32_t rank)
{
	return (int8_t)((int)rank - 128);
}

static void put_tree(struct pl_boost_flat *f, const struct pl_boost *m, uint32_t tree)
{
	struct flat_tree *t = &f->tree[f->n_trees++];
	struct putting p = { .m = m, .to = t, .edges = f->edges };

	t->split = (uint32_t)f->n_splits;
	put_node(&p, m->root[tree]);
	t->groups = (uint8_t)((p.leaves + 7) / 8);
	for (uint32_t g = 0; g < t->groups; g++)
		for (uint32_t i = 0; i < p.splits; i++) {
			uint8_t leaves = (uint8_t)(p.split[i].left >> 8 * g);

			if (!leaves)
				continue;
			f->split[f->n_splits++] =
				(struct flat_split){ (uint16_t)p.split[i].column,
						     as_signed(p.split[i].rank), leaves };
			t->n[g]++;
		}
}

/* Trees of the models, and the splits that they may need; 0: they cannot be flat. */
static size_t count_trees(const struct pl_boost *m, size_t models, size_t *splits)
{
	size_t trees = 0;

	*splits = 0;
	for (size_t k = 0; k < models; k++) {
		size_t leaves = 0;

		for (uint32_t t = 0; t < m[k].n_trees; t++) {
			uint32_t n = count_leaves(&m[k], m[k].root[t]);

			leaves += n;
			/* in a damaged file trees may share nodes; each leaf stands there once */
			if (n > LEAVES || leaves > m[k].n_nodes)
				return 0;
		}
		trees += m[k].n_trees;
		*splits += leaves * GROUPS;
	}
	return trees;
}

int pl_boost_flatten(const struct pl_boost *m, size_t models, struct pl_boost_flat **to,
		     struct pl_err *err)
{
	size_t splits, trees = count_trees(m, models, &splits);
	struct pl_boost_flat *f = NULL;
	int rc;

	*to = NULL;
	if (!trees || trees > UINT32_MAX || splits > UINT32_MAX)
		return 0;
	PL_CHECK(pl_alloc(&f, 1, sizeof(*f), err));
	f->n_features = m->n_features;
	PL_TRY(make_edges(f, m, models, err));
	if (rc > 0)
		goto out;
	PL_TRY(pl_alloc(&f->tree, trees, sizeof(*f->tree), err));
	PL_TRY(pl_alloc(&f->split, splits, sizeof(*f->split), err));
	for (size_t k = 0; k < models; k++)
		for (uint32_t t = 0; t < m[k].n_trees; t++)
			put_tree(f, &m[k], t);
	*to = f;
	return 0;
out:
	pl_boost_flat_free(f);
	return rc < 0 ? rc : 0;
}

/* ---- application ----------------------------------------------------------------------------- */

typedef int8_t ranks[TOGETHER] __attribute__((aligned(32)));
#define COLUMNS (2 * PL_BOOST_FEATURES)

/* Is a value of a block unknown? */
typedef bool ranker(const struct flat_edges *e, const float *x, size_t stride, size_t n,
		    int8_t *to);

static bool rank_each(const struct flat_edges *e, const float *x, size_t stride, size_t n,
		      int8_t *to)
{
	bool unknown = false;

	for (size_t k = 0; k < n; k++) {
		unknown |= isnan(x[k * stride]);
		to[k] = as_signed(rank_of(e, x[k * stride]));
	}
	return unknown;
}

/* The columns of a block. Places without a sample have what was there. */
static void find_ranks(const struct pl_boost_flat *f, const float *x, size_t stride, size_t n,
		       ranker *rank, ranks *to)
{
	for (uint32_t i = 0; i < f->n_features; i++) {
		const struct flat_edges *e = &f->edges[i];
		bool unknown;

		if (!e->n)
			continue;
		unknown = rank(e, x + i, stride, n, to[e->column]);
		if (!e->missing_right)
			continue;
		memcpy(to[e->column + 1], to[e->column], n);
		for (size_t k = 0; k < n && unknown; k++)
			if (isnan(x[k * stride + i]))
				to[e->column + 1][k] = INT8_MAX;
	}
}

/* Digits of the sums of at most TREES trees for a block. */
struct digits {
	uint16_t even[DIGITS][TOGETHER / 2], odd[DIGITS][TOGETHER / 2]; /* of samples */
} __attribute__((aligned(32)));
typedef void applier(const struct pl_boost_flat *f, const struct flat_tree *t, size_t n,
		     const ranks *x, struct digits *sum);

static void apply_block(const struct pl_boost_flat *f, const struct flat_tree *t, size_t n,
			const ranks *x, struct digits *sum)
{
	for (const struct flat_tree *end = t + n; t < end; t++) {
		const struct flat_split *s = f->split + t->split;
		uint8_t out[GROUPS][TOGETHER] = { 0 }; /* leaves that a sample does not reach */

		for (int g = 0; g < t->groups; g++)
			for (const struct flat_split *last = s + t->n[g]; s < last; s++)
				for (int k = 0; k < TOGETHER; k++)
					out[g][k] |=
						(uint8_t)(-(x[s->column][k] > s->rank) & s->leaves);
		for (int k = 0; k < TOGETHER; k++) {
			uint32_t all = (uint32_t)out[0][k] | (uint32_t)out[1][k] << 8 |
				       (uint32_t)out[2][k] << 16 | (uint32_t)out[3][k] << 24;
			int leaf = __builtin_ctz(~all);

			for (int i = 0; i < DIGITS; i++)
				*(k % 2 ? &sum->odd[i][k / 2] : &sum->even[i][k / 2]) +=
					t->digit[i][leaf];
		}
	}
}

#ifdef __x86_64__
#define LANES	32
#define WIDE	__attribute__((target("avx2,popcnt")))
#define VECTORS (TOGETHER / LANES)

/* Sixteen bytes, in both halves: what _mm256_shuffle_epi8() looks up. */
WIDE static inline __m256i table(const void *p)
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}

/* By four bits that tell which leaves are excluded: the first one that is not, or NOWHERE. */
#define NOWHERE -1
#define FIRST(at)                                                                                  \
	{                                                                                          \
		at, at + 1, at, at + 2, at, at + 1, at, at + 3, at, at + 1, at, at + 2, at,        \
			at + 1, at, NOWHERE                                                        \
	}
static const int8_t first_leaf[2 * GROUPS][16] = { FIRST(0),  FIRST(4),	 FIRST(8),  FIRST(12),
						   FIRST(16), FIRST(20), FIRST(24), FIRST(28) };

/* The first leaf that samples reach of group g or of those before it, at[]. */
WIDE static inline void exclude_wide(const struct flat_split *s, uint32_t n, int g, const ranks *x,
				     __m256i *at)
{
	const __m256i four = _mm256_set1_epi8(15);
	__m256i low = table(first_leaf[2 * g]), high = table(first_leaf[2 * g + 1]), out[VECTORS];

#pragma GCC unroll 4
	for (int k = 0; k < VECTORS; k++)
		out[k] = _mm256_setzero_si256();
	for (const struct flat_split *end = s + n; s < end; s++) {
		const int8_t *v = x[s->column];
		__m256i rank = _mm256_set1_epi8(s->rank);
		__m256i leaves = _mm256_set1_epi8((char)s->leaves);

#pragma GCC unroll 4
		for (int k = 0; k < VECTORS; k++) {
			__m256i right = _mm256_cmpgt_epi8(
				_mm256_load_si256((const void *)(v + k * LANES)), rank);

			out[k] = _mm256_or_si256(out[k], _mm256_and_si256(right, leaves));
		}
	}
#pragma GCC unroll 4
	for (int k = 0; k < VECTORS; k++) {
		__m256i a = _mm256_shuffle_epi8(low, _mm256_and_si256(out[k], four));
		__m256i b = _mm256_shuffle_epi8(
			high, _mm256_and_si256(_mm256_srli_epi16(out[k], 4), four));

		at[k] = _mm256_min_epu8(at[k], _mm256_min_epu8(a, b));
	}
}

/* How many of the thresholds of a run are below all[], which is one value. */
WIDE static inline uint32_t below(const float *run, __m256 all)
{
	__m256 a = _mm256_cmp_ps(_mm256_loadu_ps(run), all, _CMP_LT_OQ);
	__m256 b = _mm256_cmp_ps(_mm256_loadu_ps(run + RUN / 2), all, _CMP_LT_OQ);
	unsigned set = (unsigned)_mm256_movemask_ps(a) | (unsigned)_mm256_movemask_ps(b) << RUN / 2;

	return (uint32_t)__builtin_popcount(set);
}

/* As rank_each(): first the run is found by the ends of all. */
WIDE static bool rank_wide(const struct flat_edges *e, const float *x, size_t stride, size_t n,
			   int8_t *to)
{
	bool unknown = false;

	for (size_t k = 0; k < n; k++) {
		__m256 all = _mm256_set1_ps(x[k * stride]);
		uint32_t run = e->n < RUN ? 0 : below(e->end, all);

		unknown |= isnan(x[k * stride]);
		to[k] = as_signed(run * RUN + below(e->at + run * RUN, all));
	}
	return unknown;
}

/* One digit of the leaves at[]. The instruction gives 0 where bit 7 is set. */
WIDE static inline __m256i look_up(const uint8_t *digit, bool many, __m256i at)
{
	const __m256i to_low = _mm256_set1_epi8(0x70), to_high = _mm256_set1_epi8(16);

	if (!many)
		return _mm256_shuffle_epi8(table(digit), at);
	return _mm256_or_si256(
		_mm256_shuffle_epi8(table(digit), _mm256_add_epi8(at, to_low)),
		_mm256_shuffle_epi8(table(digit + 16), _mm256_sub_epi8(at, to_high)));
}

WIDE static inline void add_wide(uint16_t *to, __m256i v)
{
	_mm256_store_si256((void *)to, _mm256_add_epi16(_mm256_load_si256((const void *)to), v));
}

WIDE static void apply_wide(const struct pl_boost_flat *f, const struct flat_tree *t, size_t n,
			    const ranks *x, struct digits *sum)
{
	for (const struct flat_tree *end = t + n; t < end; t++) {
		const struct flat_split *s = f->split + t->split;
		__m256i at[VECTORS];

#pragma GCC unroll 4
		for (int k = 0; k < VECTORS; k++)
			at[k] = _mm256_set1_epi8(NOWHERE);
		for (int g = 0; g < t->groups; s += t->n[g++])
			exclude_wide(s, t->n[g], g, x, at);
		for (int i = 0; i < DIGITS; i++)
#pragma GCC unroll 4
			for (int k = 0; k < VECTORS; k++) {
				__m256i v = look_up(t->digit[i], t->groups > 2, at[k]);

				add_wide(sum->even[i] + k * LANES / 2,
					 _mm256_and_si256(v, _mm256_set1_epi16(255)));
				add_wide(sum->odd[i] + k * LANES / 2, _mm256_srli_epi16(v, 8));
			}
	}
}
#else
#define apply_wide apply_block
#define rank_wide  rank_each
#endif

/* The predictions of a model for a block, y[0 .. n - 1]. */
static void apply_model(const struct pl_boost_flat *f, const struct flat_tree *t,
			const struct pl_boost *m, const ranks *x, applier *apply, size_t n,
			double *y)
{
	int64_t even[TOGETHER / 2] = { 0 }, odd[TOGETHER / 2] = { 0 }; /* sums */

	for (uint32_t i = 0; i < m->n_trees; i += TREES) {
		uint32_t some = m->n_trees - i < TREES ? m->n_trees - i : TREES;
		struct digits d = { 0 };

		apply(f, t + i, some, x, &d);
		for (int b = 0; b < DIGITS; b++)
			for (int k = 0; k < TOGETHER / 2; k++) {
				even[k] += (int64_t)d.even[b][k] << 8 * b;
				odd[k] += (int64_t)d.odd[b][k] << 8 * b;
			}
	}
	for (size_t k = 0; k < n; k++) {
		int64_t sum = (k % 2 ? odd : even)[k / 2];

		y[k] = m->base + (double)(sum - (int64_t)ZERO * m->n_trees) * m->step;
	}
}

void pl_boost_apply_each(const struct pl_boost *m, size_t models, const struct pl_boost_flat *f,
			 const float *x, size_t stride, size_t n, double *y)
{
	bool wide = pl_has_avx2();
	ranks block[COLUMNS];

	if (f)
		memset(block, 0, f->n_columns * sizeof(*block));
	for (size_t i = 0; i < n; i += TOGETHER) {
		size_t some = pl_min_size(TOGETHER, n - i);
		const struct flat_tree *t = f ? f->tree : NULL;
		bool flat = f && some >= FEW;

		if (flat)
			find_ranks(f, x + i * stride, stride, some, wide ? rank_wide : rank_each,
				   block);
		for (size_t k = 0; k < models; k++) {
			double *to = y + k * n + i;

			if (flat)
				apply_model(f, t, &m[k], block, wide ? apply_wide : apply_block,
					    some, to);
			else
				for (size_t j = 0; j < some; j++)
					to[j] = pl_boost_apply(&m[k], x + (i + j) * stride);
			t = flat ? t + m[k].n_trees : NULL;
		}
	}
}

void pl_boost_apply_many(const struct pl_boost *m, const float *x, size_t stride, size_t n,
			 double *y)
{
	pl_boost_apply_each(m, 1, m->flat, x, stride, n, y);
}
