/* chakra.h - the numbers of Chakra's execution traces, et_def.proto (package ChakraProtoMsg). */
#ifndef PL_GRAPH_CHAKRA_H
#define PL_GRAPH_CHAKRA_H

#include "graph/graph.h"

/* A file is a list of messages, each after its length as a varint: first a GlobalMetadata. */
enum { PL_CK_META_VERSION = 1, PL_CK_META_ATTR = 2 };
enum {
	PL_CK_ID = 1,
	PL_CK_NAME,
	PL_CK_TYPE,
	PL_CK_CTRL_DEPS,
	PL_CK_DATA_DEPS,
	PL_CK_START_US,
	PL_CK_DUR_US,
	PL_CK_INPUTS,
	PL_CK_OUTPUTS,
	PL_CK_ATTR,
};
enum { PL_CK_IO_VALUES = 1, PL_CK_IO_SHAPES, PL_CK_IO_TYPES };
/* An attribute: its name, and one value in the field of its type. */
enum {
	PL_CK_A_NAME = 1,
	PL_CK_A_INT32 = 7,
	PL_CK_A_INT64 = 9,
	PL_CK_A_UINT32 = 11,
	PL_CK_A_UINT64 = 13,
	PL_CK_A_SINT32 = 15,
	PL_CK_A_SINT64 = 17,
	PL_CK_A_BOOL = 27,
	PL_CK_A_STRING = 29,
};
enum {
	PL_CK_INVALID,
	PL_CK_METADATA,
	PL_CK_MEM_LOAD,
	PL_CK_MEM_STORE,
	PL_CK_COMP,
	PL_CK_SEND,
	PL_CK_RECV,
	PL_CK_COLL,
};

/* What cannot be said in one file for each rank. */
struct pl_chakra_lost {
	uint64_t edges; /* from one rank to another, beside communication */
	uint64_t comms; /* exchanges, for which there is no word: written as computation */
};
/*
 * Write the nodes of one rank (an index into g->rank) in all steps as an execution trace for
 * ASTRA-sim. Messages of collectives must have been folded. Adds to *lost.
 */
int pl_graph_write_chakra(const struct pl_graph *g, uint32_t rank, struct pl_out *out,
			  struct pl_chakra_lost *lost, struct pl_err *err) PL_MUST;
/* The number of a collective (enum pl_coll) in Chakra, -1: it has none; and back. */
int pl_graph_chakra_coll(unsigned coll);
unsigned pl_graph_coll_of_chakra(int64_t number);

#endif
