/* memory.h - recorded allocations on their way into a graph: memory.c, memory_put.c. */
#ifndef PL_GRAPH_MEMORY_H
#define PL_GRAPH_MEMORY_H

#include "derive/tensors.h"

struct mem_alloc {
	pl_ns from, to; /* INT64_MIN: before the recording; INT64_MAX: not freed in it */
	int64_t bytes;
	uint32_t first; /* node in which it is made, PL_NONE */
	uint32_t freed; /* node in which it is freed, PL_NONE */
	uint32_t
		last; /* node at whose end it is gone: before the one that frees, if that will do */
	uint32_t range; /* innermost range that makes it, PL_NONE */
	bool inner;	/* made and freed in one node: counted with the node */
	bool kept;	/* an activation: made ahead of the backward pass, and lives into it */
	bool grad;	/* a gradient */
};
struct mem_range { /* an annotation on a host thread */
	pl_ns start, end;
	uint32_t res;
	uint32_t output; /* the last that it makes and that is kept, PL_NONE: nothing */
	pl_id name;
	int32_t layer; /* number among those of its step that keep something, -1: it does not */
};
struct mem_inner { /* what a node needs for itself beyond what it leaves */
	uint32_t node;
	int64_t bytes;
};
struct mem_span { /* operations of the backward pass, none inside another */
	pl_ns start, end;
	uint32_t res;
};

struct mem_rank {
	struct mem_alloc *alloc; /* by time of making; those from before the recording first */
	struct mem_range *range; /* by thread and start, outer before inner */
	struct mem_inner *inner;
	struct mem_span *back; /* by start */
	size_t n_allocs, cap_allocs, n_ranges, cap_ranges, n_inner, cap_inner, n_back, cap_back;
	int64_t before; /* allocated when recording began */
	bool known;	/* there are allocations */
};

struct pl_derive_memory {
	struct mem_rank *rank; /* [rank] */
};

#endif
