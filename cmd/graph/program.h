/* program.h - what the files of the program `graph` share. */
#ifndef GRAPH_PROGRAM_H
#define GRAPH_PROGRAM_H

#include "core/cmd.h"
#include "graph/graph.h"

struct config {
	struct pl_common c; /* first */
	struct pl_list rank, step;
	int to;
	bool infer, salvage;
};

/* ---- input.c -----------------------------------------------------------------------------------
 */

/* One graph stream, or one or more trace streams built into one graph. */
int load_graph(const struct config *c, int argc, char **argv, struct pl_pool *pool,
	       struct pl_graph *g, struct pl_err *err) PL_MUST;

/* ---- select.c ----------------------------------------------------------------------------------
 */

/* "0,4-7" of every element of the list, as pairs lo, hi, into *pair (owned by the caller). */
int parse_ranges(const struct pl_list *l, const char *what, int64_t **pair, size_t *n,
		 struct pl_err *err) PL_MUST;

#endif
