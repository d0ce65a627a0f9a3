/* stat.h - the counts of `graph -O stat`. Private to the module. */
#ifndef PL_GRAPH_STAT_H
#define PL_GRAPH_STAT_H

#include "graph/graph.h"

struct tally {
	int64_t n, ns;
};

struct stat_rank {
	pl_id host;
	int64_t threads, streams, others; /* resources */
	int64_t nodes, compute_ns, transfer_ns, wait_ns;
};

struct stat_step {
	int64_t recorded_ns; /* INT64_MIN: no node counts for the step */
	int64_t start_ns;
};

struct stat_comm {
	const char *name;
	int64_t n, unknown, bytes; /* transfers, those without a size, sum of the known sizes */
	int64_t transfer_ns, wait_ns, missing;
};

struct stat_shape {
	int64_t steps, inferred;
};

struct stat_tensor {
	int64_t n, unknown, bytes, estimated; /* unknown: without a size; bytes of the others */
};

struct graph_stat {
	const struct pl_graph *g;
	uint32_t *rank_of; /* by resource: index into rank, PL_NONE */
	struct stat_rank *rank;
	struct stat_step *step;
	struct stat_shape *shape;
	struct tally *group; /* transfers of a group, and their time */
	struct stat_comm *comm;
	size_t n_comm, cap_comm;
	int64_t n_hosts, groups_inferred, nodes, node_rows, edges, tensors_estimated;
	struct stat_tensor tensor[PL_TR_COUNT_];
	struct tally type[PL_N_COUNT_], role[PL_RO_COUNT_], phase[PL_PH_COUNT_], op[PL_OP_COUNT_];
	int64_t edge[PL_E_COUNT_][2]; /* recorded, inferred */
};

/* The caller calls pl_graph_stat_fini(), also after a failure. */
int pl_graph_stat_collect(const struct pl_graph *g, struct graph_stat *s,
			  struct pl_err *err) PL_MUST;
void pl_graph_stat_fini(struct graph_stat *s);

#endif
