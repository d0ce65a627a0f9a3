/*
 * Many samples through all trees.
 *
 * Walking down a tree, each step waits for the one before. So trees are applied as QuickScorer does
 * (Lucchese et al., SIGIR 2015): the leaves of a tree are numbered from left to right, and each
 * split has the set of the leaves on its left. A sample that goes right at a split cannot end in
 * these. The first leaf that no split excludes is the one. The splits need no order, and the same
 * one is tried for a block of samples at once, without a jump. O(splits) for each sample, not the
 * depth, but a split costs a quarter of a cycle.
 *
 * A tree with more leaves than a set has bits needs the walk; then nothing is flat.
 */
#include <math.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "learn/internal.h"

#define LEAVES	 32 /* of a tree: bits of a set */
#define TOGETHER 64 /* samples of a block */
#define FEW	 5  /* for less of them it takes longer than the walk */

struct flat_split {
	float value;
	uint32_t column; /* of its feature in a block */
	uint32_t left;	 /* the leaves on its left */
};
struct flat_tree {
	uint32_t split, n; /* its first one, and how many */
	uint32_t leaf;	   /* its first one */
};
struct pl_boost_flat {
	struct flat_tree *tree;
	struct flat_split *split;
	float *leaf; /* predictions, from left to right; LEAVES more that are read, but never taken
		      */
	size_t n_splits, n_leaves;
};

void pl_boost_flat_free(struct pl_boost_flat *f)
{
	if (!f)
		return;
	pl_free(f->tree);
	pl_free(f->split);
	pl_free(f->leaf);
	pl_free(f);
}

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

/* Of a feature: where unknown values go left, and where they go right. */
static uint32_t column_of(uint32_t feature, bool missing_right)
{
	return 2 * feature + missing_right;
}

/* Adds the leaves and splits below a node. Returns the set of the leaves. The depth is below
 * LEAVES. */
static uint32_t put_node(const struct pl_boost *m, uint32_t node, uint32_t *leaves,
			 const struct flat_tree *t, struct pl_boost_flat *f)
{
	const struct pl_boost_node *x = &m->node[node];
	uint32_t left, right;

	if (!x->left) {
		f->leaf[t->leaf + *leaves] = x->value;
		return 1u << (*leaves)++;
	}
	left = put_node(m, x->left, leaves, t, f);
	right = put_node(m, x->left + 1, leaves, t, f);
	f->split[f->n_splits++] =
		(struct flat_split){ x->value, column_of(x->feature, x->missing_right), left };
	return left | right;
}

static void put_tree(const struct pl_boost *m, uint32_t tree, struct pl_boost_flat *f)
{
	struct flat_tree *t = &f->tree[tree];
	uint32_t leaves = 0;

	t->split = (uint32_t)f->n_splits;
	t->leaf = (uint32_t)f->n_leaves;
	put_node(m, m->root[tree], &leaves, t, f);
	t->n = (uint32_t)f->n_splits - t->split;
	f->n_leaves += leaves;
}

int pl_boost_flatten(struct pl_boost *m, struct pl_err *err)
{
	struct pl_boost_flat *f = NULL;
	size_t leaves = 0;
	int rc;

	for (uint32_t t = 0; t < m->n_trees; t++) {
		uint32_t n = count_leaves(m, m->root[t]);

		leaves += n;
		/* in a damaged file trees may share nodes; each leaf stands there once */
		if (n > LEAVES || leaves > m->n_nodes)
			return 0;
	}
	PL_CHECK(pl_alloc(&f, 1, sizeof(*f), err));
	PL_TRY(pl_alloc(&f->tree, (size_t)m->n_trees + 1, sizeof(*f->tree), err));
	PL_TRY(pl_alloc(&f->split, leaves + 1, sizeof(*f->split), err));
	PL_TRY(pl_alloc(&f->leaf, leaves + LEAVES, sizeof(*f->leaf), err));
	for (uint32_t t = 0; t < m->n_trees; t++)
		put_tree(m, t, f);
	m->flat = f;
	return 0;
out:
	pl_boost_flat_free(f);
	return rc;
}

/* ---- application ----------------------------------------------------------------------------- */

/* A column of a block: a feature of all its samples. A sample goes right at a split unless its
 * value is known and not above that of the split; where unknown values go left, they are -inf. */
typedef float floats[TOGETHER] __attribute__((aligned(32)));

/* The columns of a block. Places without a sample have the first one. */
static void turn(uint32_t n_features, const float *x, size_t stride, size_t n, floats *to)
{
	for (size_t k = 0; k < TOGETHER; k++) {
		const float *from = x + (k < n ? k : 0) * stride;

		for (uint32_t f = 0; f < n_features; f++)
			to[column_of(f, true)][k] = from[f];
	}
	for (uint32_t f = 0; f < n_features; f++) {
		const float *known = to[column_of(f, true)];
		float *left = to[column_of(f, false)];

		for (int k = 0; k < TOGETHER; k++)
			left[k] = isnan(known[k]) ? -INFINITY : known[k];
	}
}

/* The numbers of leaves that a tree of n splits does not have. */
static uint32_t beyond_tree(uint32_t n)
{
	return n + 1 < LEAVES ? ~0u << (n + 1) : 0;
}

/* The leaves that samples of the block do not reach, by the splits of a tree. */
static void exclude(const struct pl_boost_flat *f, const struct flat_tree *t, const floats *x,
		    uint32_t *out)
{
	for (int k = 0; k < TOGETHER; k++)
		out[k] = beyond_tree(t->n);
	for (const struct flat_split *s = f->split + t->split, *end = s + t->n; s < end; s++) {
		const float *v = x[s->column];

		for (int k = 0; k < TOGETHER; k++)
			out[k] |= -(uint32_t) !(v[k] <= s->value) & s->left;
	}
}

/* The sums of all trees for a block. */
typedef void applier(const struct pl_boost *m, const floats *x, double *y);

static void apply_block(const struct pl_boost *m, const floats *x, double *y)
{
	const struct pl_boost_flat *f = m->flat;

	for (int k = 0; k < TOGETHER; k++)
		y[k] = m->base;
	for (uint32_t t = 0; t < m->n_trees; t++) {
		const float *leaf = f->leaf + f->tree[t].leaf;
		uint32_t out[TOGETHER];

		exclude(f, &f->tree[t], x, out);
		for (int k = 0; k < TOGETHER; k++)
			y[k] += (double)leaf[__builtin_ctz(~out[k])];
	}
}

#ifdef __x86_64__
#define LANES	8
#define WIDE	__attribute__((target("avx2")))
#define VECTORS (TOGETHER / LANES)

/* The first leaf that is not excluded, for eight samples: a power of two as a float has its
 * logarithm as exponent. */
WIDE static inline __m256i first_leaf(__m256i out)
{
	__m256i open = _mm256_xor_si256(out, _mm256_set1_epi32(-1));
	__m256i least = _mm256_and_si256(open, _mm256_sub_epi32(_mm256_setzero_si256(), open));
	__m256i e = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(least)), 23);

	return _mm256_sub_epi32(e, _mm256_set1_epi32(127)); /* 2^31 is negative: see bits 0 to 4 */
}

/* The predictions of 16 leaves, for eight samples: bits 0 to 2 choose in each half, bit 3 the
 * half. */
WIDE static inline __m256 of_16(const float *leaf, __m256i at)
{
	__m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(leaf), at);
	__m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(leaf + 8), at);

	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}

WIDE static inline __m256 of_32(const float *leaf, __m256i at)
{
	__m256 low = of_16(leaf, at), high = of_16(leaf + 16, at);

	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 27)));
}

/* As exclude(). */
WIDE static inline void exclude_wide(const struct flat_split *s, uint32_t n, const floats *x,
				     __m256i *out)
{
	__m256i beyond = _mm256_set1_epi32((int)beyond_tree(n));

#pragma GCC unroll 8
	for (int k = 0; k < VECTORS; k++)
		out[k] = beyond;
	for (const struct flat_split *end = s + n; s < end; s++) {
		const float *v = x[s->column];
		__m256 at = _mm256_set1_ps(s->value);
		__m256i left = _mm256_set1_epi32((int)s->left);

#pragma GCC unroll 8
		for (int k = 0; k < VECTORS; k++) {
			__m256 right =
				_mm256_cmp_ps(at, _mm256_load_ps(v + k * LANES), _CMP_NGE_UQ);

			out[k] = _mm256_or_si256(
				out[k], _mm256_and_si256(_mm256_castps_si256(right), left));
		}
	}
}

/* The same sums as those of apply_block(), in the same order. */
WIDE static void apply_wide(const struct pl_boost *m, const floats *x, double *y)
{
	const struct pl_boost_flat *f = m->flat;

	for (int k = 0; k < TOGETHER; k++)
		y[k] = m->base;
	for (uint32_t t = 0; t < m->n_trees; t++) {
		const struct flat_tree *tree = &f->tree[t];
		const float *leaf = f->leaf + tree->leaf;
		__m256i out[VECTORS];

		exclude_wide(f->split + tree->split, tree->n, x, out);
#pragma GCC unroll 8
		for (int k = 0; k < VECTORS; k++) {
			__m256i at = first_leaf(out[k]);
			__m256 v = tree->n < 16 ? of_16(leaf, at) : of_32(leaf, at);
			__m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
			__m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
			double *to = y + k * LANES;

			_mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), a));
			_mm256_storeu_pd(to + 4, _mm256_add_pd(_mm256_loadu_pd(to + 4), b));
		}
	}
}

static applier *choose(void)
{
	return __builtin_cpu_supports("avx2") ? apply_wide : apply_block;
}
#else
static applier *choose(void)
{
	return apply_block;
}
#endif

void pl_boost_apply_each(const struct pl_boost *m, size_t models, const float *x, size_t stride,
			 size_t n, double *y)
{
	applier *apply = choose();
	floats block[2 * PL_BOOST_FEATURES];
	double sum[TOGETHER];

	for (size_t i = 0; i < n; i += TOGETHER) {
		size_t some = pl_min_size(TOGETHER, n - i);

		if (some >= FEW)
			turn(m->n_features, x + i * stride, stride, some, block);
		for (size_t k = 0; k < models; k++) {
			double *to = y + k * n + i;

			if (m[k].flat && some >= FEW) {
				apply(&m[k], block, sum);
				memcpy(to, sum, some * sizeof(*to));
				continue;
			}
			for (size_t j = 0; j < some; j++)
				to[j] = pl_boost_apply(&m[k], x + (i + j) * stride);
		}
	}
}

void pl_boost_apply_many(const struct pl_boost *m, const float *x, size_t stride, size_t n,
			 double *y)
{
	pl_boost_apply_each(m, 1, x, stride, n, y);
}
