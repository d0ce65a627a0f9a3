/*
 * straggler_typical.h - which operations of a graph are equal, their types and typical durations.
 *
 * Operations are compared within a *class*: same name, role, size and recorded shapes. A *type* is
 * the name in a report. It may have several classes (a send and its receive, one kernel for several
 * layouts).
 */
#ifndef PL_STRAGGLER_TYPICAL_H
#define PL_STRAGGLER_TYPICAL_H

#include "graph/graph.h"

/* What the operations of a class have in common: equal in every byte. */
struct pl_sim_class {
	int64_t bytes;
	pl_id name, after; /* after: of a gap, the operation before it; else PL_NONE */
	uint32_t role, kind;
	uint32_t work;	 /* row of the graph whose shapes are known, PL_NONE */
	uint32_t unused; /* 0 */
};
/* The class of a node; false: it is no operation. */
bool pl_sim_class_of(const struct pl_graph *g, const struct pl_shape *sh, uint32_t node,
		     struct pl_sim_class *out);
/* Operations inside an operation of a thread cut it into pieces, which take unlike times. Equal
 * pieces have equal neighbours on the thread, and as many nodes of their name shortly before them.
 */
struct pl_sim_piece {
	pl_id before, after; /* names; PL_NONE */
	uint32_t number;
	uint32_t unused; /* 0 */
};
struct pl_sim_piece pl_sim_piece_of(const struct pl_shape *sh, uint32_t node);

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
