/* show.h - declarations that the views of a graph share. Private to the module. */
#ifndef PL_GRAPH_SHOW_H
#define PL_GRAPH_SHOW_H

#include "graph/graph.h"
#include "io/table.h"

int pl_graph_show_stat(const struct pl_graph *g, bool json, struct pl_out *out,
		       struct pl_err *err) PL_MUST;
int pl_graph_show_dot(const struct pl_graph *g, struct pl_out *out, struct pl_err *err) PL_MUST;
/* Write everything that the file holds, as lines or as JSON. */
int pl_graph_show_rows(const struct pl_graph *g, bool json, struct pl_out *out,
		       struct pl_err *err) PL_MUST;

#define SHOW_WORD 64
/* The word for a column's value, in buf of SHOW_WORD bytes. NULL: unknown, a number or a string. */
const char *pl_graph_show_word(const struct pl_node_column *c, int64_t v, char *buf);

#endif
