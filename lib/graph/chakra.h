/* chakra.h - graphs as Chakra execution traces. */
#ifndef PL_GRAPH_CHAKRA_H
#define PL_GRAPH_CHAKRA_H

#include "graph/graph.h"
#include "trace/chakra.h"

/* What cannot be said in one file for each rank. */
struct pl_chakra_lost {
	uint64_t edges;	 /* from one rank to another, beside communication */
	uint64_t comms;	 /* exchanges, for which there is no word: written as computation */
	uint64_t groups; /* that have other ranks, too: the same for each rank that is written */
};
/*
 * Write the nodes of one rank (an index into g->rank) in all steps as an execution trace for
 * ASTRA-sim. Messages of collectives must have been folded. Adds to *lost, and sets its groups.
 */
int pl_graph_write_chakra(const struct pl_graph *g, uint32_t rank, struct pl_out *out,
			  struct pl_chakra_lost *lost, struct pl_err *err) PL_MUST;
/* The number of a collective (enum pl_coll) in Chakra, -1: it has none; and back. */
int pl_graph_chakra_coll(unsigned coll);
unsigned pl_graph_coll_of_chakra(int64_t number);

#endif
