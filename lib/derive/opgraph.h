/*
 * opgraph.h - the graph of a step that nobody has run: from a table of a model's operations and
 * their sizes, as NeuSight (ASPLOS 2025) makes it from a traced model.
 *
 * The table is CSV. Its header names the columns, in any order:
 *
 *	Name          name of the row, a module or an operation of the model; all names differ
 *	OpName        what it is: dropout computes nothing in inference, getitem copies nothing
 *	FwOps         its operations in the forward pass, a list in the notation of Python
 *	BwOps, AccOps those of the backward pass, and those that add up gradients; for training
 *	Prev          the rows whose results it uses (optional)
 *	InputShapes   the sizes of its inputs (optional)
 *
 * An operation is a kind and sizes: ['Linear', (m, k, n)], ['BMM', (batch, m, k, n)],
 * ['VECadd', (rows, columns)] and others that begin with VEC, ['MEM', ((…), (…))], which copies
 * tensors of these sizes. Rows are in the order of the forward pass.
 */
#ifndef PL_OPGRAPH_H
#define PL_OPGRAPH_H

#include "graph/graph.h"

struct pl_opgraph_opts {
	const char *type; /* of the elements, "float32", "float16", "bfloat16" */
	bool train;	  /* the backward pass too */
	/* How many layers the model has, where the table holds one of them: from the first row
	 * whose name holds one of the texts of `match`, which "|" divides, to the last; and the
	 * sums of such rows right behind it. No digit may follow the text. 1: as it is. */
	uint32_t repeat;
	const char *match;
};
/*
 * One step of one rank, in which one operation follows the other. No operation has a duration:
 * paceline-predict(1) gives them theirs. Operations have phase, module (the row), layer (the
 * number of the repetition) and work. Errors name file and line.
 */
int pl_derive_opgraph(struct pl_in *in, const struct pl_opgraph_opts *o, struct pl_graph *g,
		      struct pl_err *err) PL_MUST;
/* Is the first line of this beginning of a file the header of such a table? */
bool pl_derive_is_opgraph(const uint8_t *p, size_t n);

#endif
