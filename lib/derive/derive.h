/*
 * derive.h - makes the graph of a job from a merged trace, with recorded and inferred dependencies.
 */
#ifndef PL_DERIVE_H
#define PL_DERIVE_H

#include "graph/graph.h"

struct pl_derive_opts {
	const struct pl_log *log;
	struct pl_pool *pool;
	bool infer; /* event waits and thread waits that were not recorded (default on) */
	bool fold;  /* one transfer for each member of a collective; messages are ignored */
};
/* The columns that the builder needs from pl_trace_load(). */
#define PL_DERIVE_ROLES                                                                            \
	(PL_ROLE_BIT(PL_R_STEP) | PL_ROLE_BIT(PL_R_CORR) | PL_ROLE_BIT(PL_R_PEER) |                \
	 PL_ROLE_BIT(PL_R_SRC) | PL_ROLE_BIT(PL_R_DST) | PL_ROLE_BIT(PL_R_BYTES) |                 \
	 PL_ROLE_BIT(PL_R_MB) | PL_ROLE_BIT(PL_R_CHUNK) | PL_ROLE_BIT(PL_R_LAYER) |                \
	 PL_ROLE_BIT(PL_R_COLL) | PL_ROLE_BIT(PL_R_CHANNEL) | PL_ROLE_BIT(PL_R_OF) |               \
	 PL_ROLE_BIT(PL_R_RECORD) | PL_ROLE_BIT(PL_R_STREAM) | PL_ROLE_BIT(PL_R_WAIT_STREAM) |     \
	 PL_ROLE_BIT(PL_R_WAIT_CORR) | PL_ROLE_BIT(PL_R_DIMS) | PL_ROLE_BIT(PL_R_TYPES) |          \
	 PL_ROLE_BIT(PL_R_ALLOC) | PL_ROLE_BIT(PL_R_ADDRESS) | PL_ROLE_BIT(PL_R_ALLOCATED) |       \
	 PL_ROLE_BIT(PL_R_DEVICE_TYPE) | PL_ROLE_BIT(PL_R_DEVICE) | PL_ROLE_BIT(PL_R_VALUES) |     \
	 PL_ROLE_BIT(PL_R_OP) | PL_ROLE_BIT(PL_R_FLOPS) | PL_ROLE_BIT(PL_R_MOVED) |                \
	 PL_ROLE_BIT(PL_R_AFTER) | PL_ROLE_BIT(PL_R_SEQUENCE))
/* The events that the builder needs from pl_trace_load(). */
#define PL_DERIVE_KINDS                                                                            \
	(~(uint64_t)0 &                                                                            \
	 ~(1ull << PL_K_OTHER | 1ull << PL_K_COUNTER | 1ull << PL_K_FLOW_OUT |                     \
	   1ull << PL_K_FLOW_IN | 1ull << PL_K_INSTANT | 1ull << PL_K_GPU_ANNOTATION))
/* The metadata that the builder needs from pl_trace_load(). */
#define PL_DERIVE_METADATA ((const char *const[]){ PL_DERIVE_ALL_SYNC, PL_DERIVE_LINKS, NULL })
#define PL_DERIVE_LINKS	   "link_to_each_rank"	 /* or is one for all that the rank sends? */
#define PL_DERIVE_ALL_SYNC "all_synchronization" /* were all synchronising operations recorded? */
/* A trace `t` with several ranks must be merged, otherwise PL_EDATA. A cycle is PL_EDATA; the
 * message has its path. Impossible times are changed (pl_trace_clamp_outliers()). The columns of
 * the events are freed (pl_trace_drop()), because the graph needs the memory. */
int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err) PL_MUST;

#endif
