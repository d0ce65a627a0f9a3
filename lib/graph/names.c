/* The life of a graph in memory, and the registries of paceline-graph(5). */
#include <string.h>

#include "graph/graph.h"

static const char *const types[PL_N_COUNT_] = {
	[PL_N_ENTRY] = "entry",	      [PL_N_OP] = "op",
	[PL_N_DELAY] = "delay",	      [PL_N_RENDEZVOUS] = "rendezvous",
	[PL_N_RESOURCE] = "resource", [PL_N_POLICY] = "policy",
};

static const char *const node_roles[PL_RO_COUNT_] = {
	[PL_RO_NONE] = "none",	       [PL_RO_COMPUTE] = "compute", [PL_RO_HOST] = "host",
	[PL_RO_GAP] = "gap",	       [PL_RO_COPY] = "copy",	    [PL_RO_ARRIVE] = "arrive",
	[PL_RO_TRANSFER] = "transfer", [PL_RO_SYNC] = "sync",	    [PL_RO_MARK] = "mark",
};

static const char *const phases[PL_PH_COUNT_] = {
	[PL_PH_UNKNOWN] = "-",
	[PL_PH_FORWARD] = "forward",
	[PL_PH_BACKWARD] = "backward",
	[PL_PH_INPUT_GRAD] = "input-gradient",
	[PL_PH_WEIGHT_GRAD] = "weight-gradient",
	[PL_PH_OPTIMIZER] = "optimizer",
	[PL_PH_COMM] = "communication",
	[PL_PH_INPUT] = "input",
	[PL_PH_OTHER] = "other",
};

static const char *const operators[PL_OP_COUNT_] = {
	[PL_OP_UNKNOWN] = "-",
	[PL_OP_MATMUL] = "matmul",
	[PL_OP_CONVOLUTION] = "convolution",
	[PL_OP_ATTENTION] = "attention",
	[PL_OP_NORMALIZATION] = "normalization",
	[PL_OP_SOFTMAX] = "softmax",
	[PL_OP_DROPOUT] = "dropout",
	[PL_OP_ELEMENTWISE] = "elementwise",
	[PL_OP_POOLING] = "pooling",
	[PL_OP_EMBEDDING] = "embedding",
	[PL_OP_LOSS] = "loss",
	[PL_OP_REDUCTION] = "reduction",
	[PL_OP_COPY] = "copy",
	[PL_OP_UPDATE] = "update",
};

static const char *const edges[PL_E_COUNT_] = {
	[PL_E_SEQ] = "seq",	[PL_E_LAUNCH] = "launch", [PL_E_WAIT] = "wait",
	[PL_E_COMM] = "comm",	[PL_E_START] = "start",	  [PL_E_DATA] = "data",
	[PL_E_EARLY] = "early",
};

static const char *const tensor_roles[PL_TR_COUNT_] = {
	[PL_TR_OTHER] = "other",     [PL_TR_PARAM] = "parameter",	[PL_TR_GRAD] = "gradient",
	[PL_TR_OPTIM] = "optimizer", [PL_TR_ACTIVATION] = "activation", [PL_TR_TEMP] = "temporary",
	[PL_TR_BUFFER] = "buffer",
};

_Static_assert(PL_N_COUNT_ == 6 && PL_RO_COUNT_ == 9 && PL_E_COUNT_ == 7 && PL_TR_COUNT_ == 7 &&
		       PL_PH_COUNT_ == 9 && PL_OP_COUNT_ == 14,
	       "a type, role or edge without a name (and, in pl_graph_show_dot.c, a colour)");

const char *pl_graph_node_type_name(unsigned type)
{
	return type < PL_N_COUNT_ ? types[type] : "unknown";
}

const char *pl_graph_node_role_name(unsigned role)
{
	return role < PL_RO_COUNT_ ? node_roles[role] : "unknown";
}

const char *pl_graph_phase_name(unsigned phase)
{
	return phase < PL_PH_COUNT_ ? phases[phase] : "unknown";
}

const char *pl_graph_operator_name(unsigned op)
{
	return op < PL_OP_COUNT_ ? operators[op] : "unknown";
}

const char *pl_graph_edge_type_name(unsigned type)
{
	return type < PL_E_COUNT_ ? edges[type] : "unknown";
}

const char *pl_graph_tensor_role_name(unsigned role)
{
	return role < PL_TR_COUNT_ ? tensor_roles[role] : "unknown";
}

void pl_graph_init(struct pl_graph *g)
{
	memset(g, 0, sizeof(*g));
}

void pl_graph_fini(struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_shapes; i++)
		pl_graph_shape_fini(&g->shape[i]);
	for (size_t i = 0; i < g->n_steps; i++) {
		pl_free(g->step[i].start);
		pl_free(g->step[i].dur);
		pl_free(g->step[i].lag);
	}
	pl_intern_fini(&g->str);
	pl_free(g->res);
	pl_free(g->group);
	pl_free(g->group_rank);
	pl_free(g->link);
	pl_free(g->tensor);
	pl_free(g->consumer);
	pl_free(g->work);
	pl_free(g->shape);
	pl_free(g->step);
	pl_free(g->rank);
	pl_buf_fini(&g->provenance);
	pl_graph_init(g);
}

uint32_t pl_graph_rank_index(const struct pl_graph *g, int32_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, (uint32_t)g->n_ranks, g->rank[i] < rank);
	return i < (uint32_t)g->n_ranks && g->rank[i] == rank ? i : PL_NONE;
}

static int copy_array(void *out, size_t *cap, const void *p, size_t n, size_t size,
		      struct pl_err *err)
{
	int rc = pl_grow(out, cap, n, size, err);
	void *to;

	memcpy(&to, out, sizeof(to));
	if (rc == 0 && n)
		memcpy(to, p, n * size);
	return rc;
}

int pl_graph_copy_tables(const struct pl_graph *g, struct pl_graph *to, struct pl_err *err)
{
	size_t ranks = 0;
	pl_id id;
	int rc;

	for (size_t i = 0; i < g->str.n; i++)
		PL_TRY(pl_intern_add(&to->str, g->str.str[i], g->str.len[i], &id, err));
	PL_TRY(copy_array(&to->res, &to->cap_res, g->res, g->n_res, sizeof(*g->res), err));
	to->n_res = g->n_res;
	PL_TRY(copy_array(&to->group, &to->cap_groups, g->group, g->n_groups, sizeof(*g->group),
			  err));
	to->n_groups = g->n_groups;
	PL_TRY(copy_array(&to->group_rank, &to->cap_group_ranks, g->group_rank, g->n_group_ranks,
			  sizeof(*g->group_rank), err));
	to->n_group_ranks = g->n_group_ranks;
	PL_TRY(copy_array(&to->link, &to->cap_links, g->link, g->n_links, sizeof(*g->link), err));
	to->n_links = g->n_links;
	PL_TRY(copy_array(&to->work, &to->cap_work, g->work, g->n_work, sizeof(*g->work), err));
	to->n_work = g->n_work;
	PL_TRY(copy_array(&to->rank, &ranks, g->rank, (size_t)g->n_ranks, sizeof(*to->rank), err));
	to->n_ranks = g->n_ranks;
	to->epoch_ns = g->epoch_ns;
	to->stepless = g->stepless;
	to->described = g->described;
	to->inferred_waits = g->inferred_waits;
	to->recorded_waits = g->recorded_waits;
	to->inferred_threads = g->inferred_threads;
	to->dropped_edges = g->dropped_edges;
	to->unmatched_comm = g->unmatched_comm;
	PL_TRY(pl_buf_put(&to->provenance, g->provenance.p, g->provenance.n, err));
out:
	return rc;
}
