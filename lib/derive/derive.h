/*
 * derive.h - from a merged trace to the graph of the job: what waited for what, recorded or
 * inferred.
 */
#ifndef PL_DERIVE_H
#define PL_DERIVE_H

#include "graph/graph.h"

struct pl_derive_opts {
	const struct pl_log *log;
	struct pl_pool *pool;
	bool infer; /* event waits and thread waits that were not recorded (default on) */
	bool fold;  /* collectives are whole, whatever messages were recorded */
};
/* Arguments that the builder wants from pl_trace_load(), and roles. */
extern const char *const pl_derive_args[];
#define PL_DERIVE_ROLES                                                                            \
	(1u << PL_R_STEP | 1u << PL_R_CORR | 1u << PL_R_PEER | 1u << PL_R_BYTES | 1u << PL_R_MB |  \
	 1u << PL_R_CHUNK | 1u << PL_R_LAYER | 1u << PL_R_COLL | 1u << PL_R_CHANNEL |              \
	 1u << PL_R_OF)
/* `t` needs to have been merged when it has more than one rank (PL_EDATA otherwise). A cycle is
 * PL_EDATA with its path. Times that no clock shows are changed (pl_trace_tame()), and the columns
 * of the events may be gone afterwards (pl_trace_drop()), for the graph needs the room. */
int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err) PL_MUST;

#endif
