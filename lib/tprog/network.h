/*
 * network.h - the network that learns how long tensor programs take (cost.h).
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
			   const size_t *row, size_t n, float *y, struct pl_err *err) PL_MUST;

#endif
