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
/* The columns that the builder wants from pl_trace_load(). */
#define PL_DERIVE_ROLES                                                                            \
	(PL_ROLE_BIT(PL_R_STEP) | PL_ROLE_BIT(PL_R_CORR) | PL_ROLE_BIT(PL_R_PEER) |                \
	 PL_ROLE_BIT(PL_R_SRC) | PL_ROLE_BIT(PL_R_DST) | PL_ROLE_BIT(PL_R_BYTES) |                 \
	 PL_ROLE_BIT(PL_R_MB) | PL_ROLE_BIT(PL_R_CHUNK) | PL_ROLE_BIT(PL_R_LAYER) |                \
	 PL_ROLE_BIT(PL_R_COLL) | PL_ROLE_BIT(PL_R_CHANNEL) | PL_ROLE_BIT(PL_R_OF) |               \
	 PL_ROLE_BIT(PL_R_RECORD) | PL_ROLE_BIT(PL_R_STREAM) | PL_ROLE_BIT(PL_R_WAIT_STREAM) |     \
	 PL_ROLE_BIT(PL_R_WAIT_CORR) | PL_ROLE_BIT(PL_R_DIMS) | PL_ROLE_BIT(PL_R_TYPES) |          \
	 PL_ROLE_BIT(PL_R_ALLOC) | PL_ROLE_BIT(PL_R_ADDRESS) | PL_ROLE_BIT(PL_R_ALLOCATED) |       \
	 PL_ROLE_BIT(PL_R_DEVICE_TYPE) | PL_ROLE_BIT(PL_R_DEVICE))
/* `t` needs to have been merged when it has more than one rank (PL_EDATA otherwise). A cycle is
 * PL_EDATA with its path. Times that no clock shows are changed (pl_trace_clamp_outliers()), and
 * the columns of the events may be gone afterwards (pl_trace_drop()), for the graph needs the room.
 */
int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err) PL_MUST;

#endif
