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

#endif
