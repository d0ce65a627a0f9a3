/* show.h - what the views of a graph share. Private to the module. */
#ifndef PL_GRAPH_SHOW_H
#define PL_GRAPH_SHOW_H

#include "graph/graph.h"
#include "io/table.h"

int show_stat(const struct pl_graph *g, bool json, struct pl_out *out, struct pl_err *err) PL_MUST;
int show_text(const struct pl_graph *g, struct pl_out *out, struct pl_err *err) PL_MUST;
int show_dot(const struct pl_graph *g, struct pl_out *out, struct pl_err *err) PL_MUST;
int show_json(const struct pl_graph *g, struct pl_out *out, struct pl_err *err) PL_MUST;

/* "kernel", or "kind-37" in buf; buf has 16 bytes. */
const char *show_kind(unsigned kind, char *buf);
/* Names of the flags set, joined with commas; buf has 64 bytes. */
const char *show_flags(unsigned flags, char *buf);
/* The first step of that shape, or NULL. */
const struct pl_gstep *show_first_step(const struct pl_graph *g, size_t shape);

#endif
