/* memory.h - the allocations that memory.c finds and memory_put.c writes into the graph. */
#ifndef PL_GRAPH_MEMORY_H
#define PL_GRAPH_MEMORY_H

#include "derive/tensors.h"

struct mem_alloc {
	pl_ns from, to; /* INT64_MIN: before the recording; INT64_MAX: not freed in the recording */
	int64_t bytes;
	uint32_t first; /* node that allocates it, PL_NONE */
	uint32_t freed; /* node that frees it, PL_NONE */
	uint32_t last;	/* at its end the memory is free: the node before `freed`, if possible */
	uint32_t range; /* innermost range around the allocation, PL_NONE */
	bool inner;	/* allocated and freed in one node: part of its temporary memory */
	bool kept;	/* an activation: the backward pass needs it */
	bool grad;	/* a gradient */
};
struct mem_range { /* an annotation on a host thread */
	pl_ns start, end;
	uint32_t res;
	uint32_t output; /* the last activation of the range, PL_NONE: none */
	pl_id name;
	int32_t layer; /* index among the ranges with activations in the step, -1: no activation */
};
struct mem_inner { /* temporary memory of a node */
	uint32_t node;
	int64_t bytes;
};
struct mem_span { /* operations of the backward pass, not nested */
	pl_ns start, end;
	uint32_t res;
};

struct mem_rank {
	struct mem_alloc *alloc; /* by time; allocations from before the recording first */
	struct mem_range *range; /* by thread and start, outer before inner */
	struct mem_inner *inner;
	struct mem_span *back; /* by start */
	size_t n_allocs, cap_allocs, n_ranges, cap_ranges, n_inner, cap_inner, n_back, cap_back;
	int64_t before; /* bytes in use when the recording began */
	bool known;	/* the rank has recorded allocations */
};

#endif
