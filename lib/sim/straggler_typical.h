/*
 * straggler_typical.h - the types of the operations of a graph and their typical durations; private
 * to lib/sim, for stragglers and what-if.
 *
 * Operations are compared within a *class*: same name, role and size. A *type* is the name in a
 * report. It may have several classes (a send and its receive, one kernel for several layouts).
 */
#ifndef PL_STRAGGLER_TYPICAL_H
#define PL_STRAGGLER_TYPICAL_H

#include "graph/graph.h"

enum typical_how {
	TYPICAL_BY_KIND, /* the median of transfers, the mean of the rest */
	TYPICAL_MEAN,
	TYPICAL_MEDIAN,
	TYPICAL_HOWS,
};
struct typical {
	uint32_t **class;	/* [shape][node]; PL_NONE: not an operation, keeps its duration */
	pl_ns *ns;		/* [class] */
	pl_id *type;		/* [class]: into types */
	struct pl_intern types; /* in order of their first operation */
	size_t n;		/* classes */
	size_t n_shapes;
};
/* pl_sim_typical_fini() is due whatever happens. */
int pl_sim_typical_find(const struct pl_graph *g, enum typical_how method, struct typical *typical,
			struct pl_err *err) PL_MUST;
void pl_sim_typical_fini(struct typical *typical);

#endif
