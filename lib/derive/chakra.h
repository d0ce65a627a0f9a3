/*
 * chakra.h - a graph from Chakra execution traces: one file for each rank, a list of messages of
 * protobuf, of which each but the first is a node with its dependencies.
 */
#ifndef PL_DERIVE_CHAKRA_H
#define PL_DERIVE_CHAKRA_H

#include "graph/graph.h"

/*
 * `open` opens file i, which is closed here. The rank of a file is in its metadata, else the last
 * number of its name, else i; two files of one rank are PL_EDATA. The graph has one step. What
 * depends on itself comes in the order of time; what was left out for that is logged.
 */
int pl_derive_chakra(size_t n, struct pl_in *(*open)(void *arg, size_t i, struct pl_err *err),
		     void *arg, const struct pl_log *log, struct pl_graph *g,
		     struct pl_err *err) PL_MUST;

#endif
