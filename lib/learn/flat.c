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

#include "learn/internal.h"

#define LEAVES	 32 /* of a tree: bits of a set */
#define TOGETHER 32 /* samples of a block */

struct flat_split {
	float value;
	uint32_t feature;
	uint32_t left; /* the leaves on its left */
};
struct flat_tree {
	uint32_t split;	       /* its first one */
	uint32_t n, n_missing; /* splits; at the last ones, values that are not known go right */
	uint32_t leaf;	       /* its first one */
};
struct pl_boost_flat {
	struct flat_tree *tree;
	struct flat_split *split;
	float *leaf; /* predictions, from left to right */
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

/* Adds the leaves and splits below a node; `missing`: the splits where unknown values go right, or
 * the others. Returns the set of the leaves. The depth is below LEAVES. */
static uint32_t put_node(const struct pl_boost *m, uint32_t node, bool missing, uint32_t *leaves,
			 const struct flat_tree *t, struct pl_boost_flat *f)
{
	const struct pl_boost_node *x = &m->node[node];
	uint32_t left, right;

	if (!x->left) {
		f->leaf[t->leaf + *leaves] = x->value;
		return 1u << (*leaves)++;
	}
	left = put_node(m, x->left, missing, leaves, t, f);
	right = put_node(m, x->left + 1, missing, leaves, t, f);
	if (x->missing_right == missing)
		f->split[f->n_splits++] = (struct flat_split){ x->value, x->feature, left };
	return left | right;
}

static void put_tree(const struct pl_boost *m, uint32_t tree, struct pl_boost_flat *f)
{
	struct flat_tree *t = &f->tree[tree];
	uint32_t leaves;

	t->split = (uint32_t)f->n_splits;
	t->leaf = (uint32_t)f->n_leaves;
	for (int missing = 0; missing < 2; missing++) {
		size_t before = f->n_splits;

		leaves = 0;
		put_node(m, m->root[tree], missing, &leaves, t, f);
		*(missing ? &t->n_missing : &t->n) = (uint32_t)(f->n_splits - before);
	}
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
	PL_TRY(pl_alloc(&f->leaf, leaves + 1, sizeof(*f->leaf), err));
	for (uint32_t t = 0; t < m->n_trees; t++)
		put_tree(m, t, f);
	m->flat = f;
	return 0;
out:
	pl_boost_flat_free(f);
	return rc;
}

/* ---- application ----------------------------------------------------------------------------- */

/* A feature of all samples of a block. */
typedef float floats[TOGETHER] __attribute__((aligned(32)));

/* The features of a block. Places without a sample have the first one. */
static void turn(const struct pl_boost *m, const float *x, size_t stride, size_t n, floats *to)
{
	for (size_t k = 0; k < TOGETHER; k++) {
		const float *from = x + (k < n ? k : 0) * stride;

		for (uint32_t f = 0; f < m->n_features; f++)
			to[f][k] = from[f];
	}
}

/*
 * The leaves that samples of the block do not reach, by the splits of a tree: four vectors of
 * `lanes` samples. The four sets stay in registers, so they have names.
 */
#define EXCLUDE(name, lanes)                                                                       \
	static void name(const struct pl_boost_flat *f, const struct flat_tree *t,                 \
			 const floats *x, uint32_t *out)                                           \
	{                                                                                          \
		typedef float values __attribute__((vector_size(4 * (lanes)), may_alias));         \
		typedef uint32_t bits __attribute__((vector_size(4 * (lanes)), may_alias));        \
		const struct flat_split *s = f->split + t->split, *end = s + t->n;                 \
		bits a = { 0 }, b = a, c = a, d = a;                                               \
                                                                                                   \
		for (; s < end; s++) {                                                             \
			const values *v = (const values *)x[s->feature];                           \
			const values at = s->value - (values){ 0 };                                \
			const bits left = s->left | (bits){ 0 };                                   \
                                                                                                   \
			a |= (bits)(v[0] > at) & left;                                             \
			b |= (bits)(v[1] > at) & left;                                             \
			c |= (bits)(v[2] > at) & left;                                             \
			d |= (bits)(v[3] > at) & left;                                             \
		}                                                                                  \
		for (end += t->n_missing; s < end; s++) {                                          \
			const values *v = (const values *)x[s->feature];                           \
			const values at = s->value - (values){ 0 };                                \
			const bits left = s->left | (bits){ 0 };                                   \
                                                                                                   \
			a |= ~(bits)(v[0] <= at) & left;                                           \
			b |= ~(bits)(v[1] <= at) & left;                                           \
			c |= ~(bits)(v[2] <= at) & left;                                           \
			d |= ~(bits)(v[3] <= at) & left;                                           \
		}                                                                                  \
		memcpy(out, &a, sizeof(a));                                                        \
		memcpy(out + (lanes), &b, sizeof(b));                                              \
		memcpy(out + 2 * (lanes), &c, sizeof(c));                                          \
		memcpy(out + 3 * (lanes), &d, sizeof(d));                                          \
	}
EXCLUDE(exclude_half, 4)
static void exclude(const struct pl_boost_flat *f, const struct flat_tree *t, const floats *x,
		    uint32_t *out)
{
	exclude_half(f, t, x, out);
	exclude_half(f, t, (const floats *)&x[0][TOGETHER / 2], out + TOGETHER / 2);
}
typedef void excluder(const struct pl_boost_flat *f, const struct flat_tree *t, const floats *x,
		      uint32_t *out);

#ifdef __x86_64__
__attribute__((target("avx2"))) EXCLUDE(exclude_wide, 8)

	static excluder *choose(void)
{
	return __builtin_cpu_supports("avx2") ? exclude_wide : exclude;
}
#else
static excluder *choose(void)
{
	return exclude;
}
#endif

static void apply_block(const struct pl_boost *m, excluder *excludes, const floats *x, double *y)
{
	const struct pl_boost_flat *f = m->flat;

	for (int k = 0; k < TOGETHER; k++)
		y[k] = m->base;
	for (uint32_t t = 0; t < m->n_trees; t++) {
		const float *leaf = f->leaf + f->tree[t].leaf;
		uint32_t out[TOGETHER];

		excludes(f, &f->tree[t], x, out);
		for (int k = 0; k < TOGETHER; k++)
			y[k] += (double)leaf[__builtin_ctz(~out[k])];
	}
}

void pl_boost_apply_many(const struct pl_boost *m, const float *x, size_t stride, size_t n,
			 double *y)
{
	excluder *excludes = choose();
	floats block[PL_BOOST_FEATURES];
	double sum[TOGETHER];

	if (!m->flat) {
		for (size_t i = 0; i < n; i++)
			y[i] = pl_boost_apply(m, x + i * stride);
		return;
	}
	for (size_t i = 0; i < n; i += TOGETHER) {
		size_t some = pl_min_size(TOGETHER, n - i);

		turn(m, x + i * stride, stride, some, block);
		apply_block(m, excludes, block, sum);
		memcpy(y + i, sum, some * sizeof(*y));
	}
}
