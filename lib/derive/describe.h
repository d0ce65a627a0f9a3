/* describe.h - phases, operators and communications of a graph that does not say them. */
#ifndef PL_DERIVE_DESCRIBE_H
#define PL_DERIVE_DESCRIBE_H

#include "graph/graph.h"

struct pl_names_read;

/* Fills the columns phase, module, comm and work and their tables, from names and structure; what
 * is there stays. Once: a graph that was described is left alone. Names of `names` are not read
 * again; NULL: there are none. */
int pl_derive_describe(struct pl_graph *g, struct pl_names_read *names, struct pl_err *err) PL_MUST;
/* Part of it: finds evaluations before the training of a step, when all nodes have phases. rank[],
 * by resource: place of its rank, PL_NONE. */
int pl_derive_evaluation(struct pl_graph *g, const uint32_t *rank, struct pl_err *err) PL_MUST;
/* The rows of a graph's work by their content; all zero before the first use. */
struct pl_derive_work {
	struct pl_intern content;
	uint32_t *row; /* by number of the content */
	size_t cap;
	size_t most; /* so many rows at most, 0: no limit */
};
/* The number of a row of work, which is added if there is none like it; PL_NONE: there is no room.
 */
uint32_t pl_derive_add_work(struct pl_graph *g, struct pl_derive_work *rows,
			    const struct pl_gwork *w, struct pl_err *err);
void pl_derive_work_fini(struct pl_derive_work *rows);
/* pl_graph_read(), and what older programs left out of the file. */
int pl_derive_read(struct pl_in *in, struct pl_pool *pool, struct pl_graph *g,
		   struct pl_err *err) PL_MUST;

#endif
