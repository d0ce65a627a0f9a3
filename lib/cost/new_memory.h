/*
 * new_memory.h - operations of hosts that write into memory that is new to the process.
 *
 * The kernel clears each page of such memory when it is written first, and a virtual machine may
 * have to get the page from its host. So a copy of some MiB takes several times as long as into
 * memory that was used before (0.4 instead of 6 GB/s), and so does a product that makes a gradient
 * of parameters (10 instead of 1.4 ms for 2 MiB). An allocator gives memory back and takes it
 * again, by what else was allocated, and a profiler allocates, too. So the same program pays for
 * new memory in one run and not in the next, and nobody knows whether it will after a change.
 */
#ifndef PL_COST_NEW_MEMORY_H
#define PL_COST_NEW_MEMORY_H

#include "graph/graph.h"

struct pl_new_memory {
	/* those that take longer in some step, by shape and node, each once, and what they take in
	 * memory that was used before */
	struct pl_node_time *op;
	size_t n, cap;
};

/*
 * Needs the columns of work. Judged are, from a MiB on and with recorded sizes: copies, by the rate
 * of the fastest quarter of all copies of the graph; products that make gradients of parameters, by
 * floating-point operation of products that make none, if most of the same sizes are slow. *m needs
 * no initialisation; after a failure it holds no memory. O(n log n) in nodes.
 */
int pl_new_memory_find(const struct pl_graph *g, struct pl_new_memory *m,
		       struct pl_err *err) PL_MUST;
void pl_new_memory_fini(struct pl_new_memory *m);
/* What the node of the recorded step takes longer because its memory is new. 0: nothing. It counts
 * from three times the usual time on, because caches and a busy machine make less of a difference.
 */
pl_ns pl_new_memory_time(const struct pl_new_memory *m, const struct pl_graph *g, size_t step,
			 uint32_t node);
#endif
