/*
 * cost.h - how long tensor programs take, learned from programs that were measured.
 *
 * What is learned is the time for one unit of work, so that programs may be larger than those that
 * were measured. Trees see a program as one vector: that of the leaf with most work, and sums over
 * all leaves. The network is that of CDMPP (EuroSys 2024): an encoder over the sequence of leaves,
 * each with its place in the tree, and layers that make one number of all.
 */
#ifndef PL_TPROG_COST_H
#define PL_TPROG_COST_H

#include "learn/boost.h"
#include "tprog/tprog.h"

#define PL_TPROG_SUMS	 12
#define PL_TPROG_COLUMNS (PL_TPROG_FEATURES + PL_TPROG_SUMS)

struct pl_tprog_row {		 /* a program on a device */
	pl_id model, op, device; /* into set.names */
	double ns;		 /* median */
	double work;		 /* operations and stores, in all iterations */
	float x[PL_TPROG_COLUMNS];
	uint32_t leaf, n_leaves; /* into set.leaf */
};
struct pl_tprog_set { /* zero-initialised is empty */
	struct pl_intern names;
	struct pl_tprog_row *v;
	struct pl_tprog_leaf *leaf;
	size_t n, cap, n_leaves, cap_leaves;
};
void pl_tprog_set_fini(struct pl_tprog_set *s);
/* A row for each measurement of the program. */
int pl_tprog_set_add(struct pl_tprog_set *s, const struct pl_tprog *p, struct pl_err *err) PL_MUST;
/* All programs of a file. */
int pl_tprog_set_read(struct pl_tprog_set *s, struct pl_in *in, struct pl_err *err) PL_MUST;

enum pl_tprog_learner { PL_TPROG_TREES, PL_TPROG_NET, PL_TPROG_NEAREST, PL_TPROG_WORK };
struct pl_tprog_fit_opts {
	enum pl_tprog_learner learner; /* WORK: all programs take as long for a unit of work */
	uint64_t seed;
	int threads; /* of the network; 0: 1 */
	struct pl_pool *pool;
};
/* ns[i]: row i, by a model that has seen no row of its group. PL_EDATA: there is one group only. */
int pl_tprog_cross(const struct pl_tprog_set *s, const pl_id *group,
		   const struct pl_tprog_fit_opts *o, double *ns, struct pl_err *err) PL_MUST;

#endif
