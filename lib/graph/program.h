/*
 * program.h - a graph that nobody recorded, from the operations of each rank.
 *
 * A program holds the operations of one rank in a step. An operation runs on a named resource,
 * after other operations of the same program. Some operations are the part of the rank in a
 * communication. A communication becomes one arrival for each member, a rendezvous, and one
 * transfer for each member. Ranks with the same operations share a program.
 */
#ifndef PL_GRAPH_PROGRAM_H
#define PL_GRAPH_PROGRAM_H

#include "graph/graph.h"

struct pl_graph_program_op {
	uint8_t role, kind, flags; /* of a communication: those of its transfer */
	uint32_t resource;	   /* number of the name of a resource of the rank */
	uint32_t comm;		   /* number of the communication, PL_NONE: no communication */
	pl_id name;
	uint32_t group;			/* of the graph, PL_NONE */
	int64_t bytes;			/* -1 unknown */
	int32_t layer, mb, chunk, peer; /* -1 none */
	uint8_t phase;			/* enum pl_phase */
	pl_id module;			/* PL_NONE: unknown */
	uint32_t work;			/* row of the graph's work, PL_NONE: unknown */
	pl_ns dur;			/* of a communication: from the last arrival on */
	uint32_t dep, n_deps;
};
/* An operation that is no communication; all other values are unknown. */
extern const struct pl_graph_program_op pl_graph_program_op_unknown;
/* An operation starts after the end of the earlier operation `op`. `type`: enum pl_edge_type. */
struct pl_graph_program_dep {
	uint32_t op;
	uint8_t type;
};
struct pl_program {
	struct pl_graph_program_op *op;
	struct pl_graph_program_dep *dep;
	size_t n_ops, cap_ops, n_deps, cap_deps;
};
void pl_graph_program_fini(struct pl_program *p);
/* Append an operation; pl_graph_program_after() adds dependencies. *id (or NULL): its number. */
int pl_graph_program_add(struct pl_program *p, const struct pl_graph_program_op *op, uint32_t *id,
			 struct pl_err *err) PL_MUST;
/* Make the last operation depend on `op`. */
int pl_graph_program_after(struct pl_program *p, uint32_t op, unsigned type,
			   struct pl_err *err) PL_MUST;

/* A job: the program and the host of each rank. */
struct pl_graph_program_job {
	const struct pl_program *program; /* [n_programs] */
	const uint32_t *of_rank;	  /* [n_ranks]: its program; NULL: all have the first */
	uint32_t n_ranks, per_host;	  /* per_host: consecutive ranks of one host, 0: all */
	const char *const *resource;	  /* names; each rank has one resource of each name */
	uint32_t n_resources, n_comms;
	const uint32_t *members; /* [n_comms]: number of its ranks; NULL: all ranks */
};
/* Operation `op` of rank r has the nodes first[at[r] + op] to last[at[r] + op]. */
struct pl_graph_program_nodes {
	uint32_t *first, *last;
	size_t *at; /* [n_ranks + 1] */
};
void pl_graph_program_nodes_fini(struct pl_graph_program_nodes *n);
/*
 * Fill a graph, which holds only strings and groups so far, with ranks, resources, one shape and
 * one step. The nodes are in the order in which the ranks reach them, by turns. Each starts when
 * all its predecessors have ended. PL_EDATA if ranks wait for one another for ever, PL_ELIMIT if
 * the nodes exceed the limits of a graph.
 */
int pl_graph_from_programs(const struct pl_graph_program_job *job, struct pl_graph *g,
			   struct pl_graph_program_nodes *nodes, struct pl_err *err) PL_MUST;

#endif
