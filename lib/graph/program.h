/*
 * program.h - a graph that nobody recorded, from what each rank does.
 *
 * A program is what one rank does in a step: operations on named resources, each after others of
 * the same program. An operation may be a rank's part in a communication, which all its members
 * join: the arrival of each, a rendezvous, a transfer of each. Ranks that do the same share a
 * program.
 */
#ifndef PL_GRAPH_PROGRAM_H
#define PL_GRAPH_PROGRAM_H

#include "graph/graph.h"

struct pl_graph_program_op {
	uint8_t role, kind, flags; /* of a communication those of its transfer */
	uint32_t resource;	   /* of the rank: number of its name */
	uint32_t comm;		   /* number of the communication, PL_NONE: it is none */
	pl_id name;
	uint32_t group;			/* of the graph, PL_NONE */
	int64_t bytes;			/* -1 unknown */
	int32_t layer, mb, chunk, peer; /* -1 none */
	pl_ns dur;			/* of a communication from the last arrival on */
	uint32_t dep, n_deps;
};
/* An operation that is no communication, and of which nothing more is known. */
extern const struct pl_graph_program_op pl_graph_program_op_unknown;
/* After the end of operation `op`, which comes before; enum pl_edge_type. */
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
/* Appends; its dependencies follow by pl_graph_program_after(). *id (may be NULL): its number. */
int pl_graph_program_add(struct pl_program *p, const struct pl_graph_program_op *op, uint32_t *id,
			 struct pl_err *err) PL_MUST;
/* The operation that was added last comes after `op`. */
int pl_graph_program_after(struct pl_program *p, uint32_t op, unsigned type,
			   struct pl_err *err) PL_MUST;

/* A job: what every rank runs, and where. */
struct pl_graph_program_job {
	const struct pl_program *program; /* [n_programs] */
	const uint32_t *of_rank;	  /* [n_ranks]: its program; NULL: the first for all */
	uint32_t n_ranks, per_host;	  /* per_host: consecutive ranks of one host, 0: all */
	const char *const *resource;	  /* names, of which every rank has one each */
	uint32_t n_resources, n_comms;
	const uint32_t *members; /* [n_comms]: how many ranks take part; NULL: all in each */
};
/* Where the operations of a job became nodes: operation `op` of the program of rank r begins with
 * first[at[r] + op] and ends with last[at[r] + op]. */
struct pl_graph_program_nodes {
	uint32_t *first, *last;
	size_t *at; /* [n_ranks + 1] */
};
void pl_graph_program_nodes_fini(struct pl_graph_program_nodes *n);
/*
 * Ranks, resources, one shape and one step of it into the graph, which has none yet, but strings
 * and groups. Nodes are in the order in which the ranks reach them in turn; each begins when all
 * that it comes after has ended. PL_EDATA when ranks wait for one another for ever, PL_ELIMIT when
 * a graph cannot hold it.
 */
int pl_graph_from_programs(const struct pl_graph_program_job *job, struct pl_graph *g,
			   struct pl_graph_program_nodes *nodes, struct pl_err *err) PL_MUST;

#endif
