/*
 * network.h - inside of cost models of tensor programs (cost.h): the model, and its network.
 */
#ifndef PL_TPROG_NETWORK_H
#define PL_TPROG_NETWORK_H

#include "tprog/cost.h"

struct pl_tprog_network; /* opaque */

/* From the rows use[0 .. n) with the labels y. */
int pl_tprog_network_fit(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
			 const struct pl_tprog_fit_opts *o, struct pl_tprog_network **net,
			 struct pl_err *err) PL_MUST;
void pl_tprog_network_free(struct pl_tprog_network *net); /* NULL is fine */
/* y: (n), the labels of the rows. */
int pl_tprog_network_apply(struct pl_tprog_network *net, const struct pl_tprog_set *s,
			   const size_t *row, size_t n, double *y, struct pl_err *err) PL_MUST;
/* As a part of a payload. */
void pl_tprog_network_put(const struct pl_tprog_network *net, struct pl_buf *b);
int pl_tprog_network_get(struct pl_cur *c, struct pl_tprog_network **net,
			 struct pl_err *err) PL_MUST;

/* Of an operation, as logarithms; n 0: not known. */
struct pl_tprog_errors {
	uint32_t n;
	double shift, low, high; /* to the prediction, and to the ends of its interval */
	double offset;		 /* of the device or network that the model was adapted to */
};
#define PL_TPROG_OPS_MAX 4096
struct pl_tprog_model {
	enum pl_tprog_learner learner;
	char device[160];
	uint64_t n_rows;
	struct pl_intern ops;		/* those that were seen */
	struct pl_tprog_errors *errors; /* [ops.n + 1], the last one of all together */
	float least[PL_TPROG_COLUMNS], most[PL_TPROG_COLUMNS];
	struct pl_boost trees;	      /* n_trees 0: none */
	struct pl_tprog_network *net; /* NULL: none */
	struct pl_boost adapted;      /* what pl_tprog_adapt() adds; n_trees 0: nothing */
};

#endif
