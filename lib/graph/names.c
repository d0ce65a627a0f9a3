/* Release and copies of a graph in memory; the words of the numbers of paceline-graph(5). */
#include "graph/graph.h"

#define WORD(name, word) word,
#define NAMES(what, list)                                                                          \
	const char *pl_graph_##what##_name(unsigned i)                                             \
	{                                                                                          \
		static const char *const words[] = { list(WORD) };                                 \
                                                                                                   \
		return i < PL_LEN(words) ? words[i] : "unknown";                                   \
	}
NAMES(node_type, PL_NODE_TYPES)
NAMES(node_role, PL_NODE_ROLES)
NAMES(phase, PL_PHASES)
NAMES(operator, PL_OPERATORS)
NAMES(edge_type, PL_EDGE_TYPES)
NAMES(tensor_role, PL_TENSOR_ROLES)

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

	if (rank >= 0 && rank < g->n_ranks && g->rank[rank] == rank) /* mostly none is left out */
		return (uint32_t)rank;
	PL_LOWER_BOUND(i, (uint32_t)g->n_ranks, g->rank[i] < rank);
	return i < (uint32_t)g->n_ranks && g->rank[i] == rank ? i : PL_NONE;
}

int pl_graph_copy_tables(const struct pl_graph *g, struct pl_graph *to, struct pl_err *err)
{
	size_t ranks = 0, cap = 0;
	pl_id id;

	for (size_t i = 0; i < g->str.n; i++)
		PL_CHECK(pl_intern_add(&to->str, g->str.str[i], g->str.len[i], &id, err));
	PL_CHECK(pl_copy_array(&to->res, &to->n_res, &to->cap_res, g->res, g->n_res,
			       sizeof(*g->res), err));
	PL_CHECK(pl_copy_array(&to->group, &to->n_groups, &to->cap_groups, g->group, g->n_groups,
			       sizeof(*g->group), err));
	PL_CHECK(pl_copy_array(&to->group_rank, &to->n_group_ranks, &to->cap_group_ranks,
			       g->group_rank, g->n_group_ranks, sizeof(*g->group_rank), err));
	PL_CHECK(pl_copy_array(&to->link, &to->n_links, &to->cap_links, g->link, g->n_links,
			       sizeof(*g->link), err));
	PL_CHECK(pl_copy_array(&to->work, &to->n_work, &to->cap_work, g->work, g->n_work,
			       sizeof(*g->work), err));
	PL_CHECK(pl_copy_array(&to->rank, &ranks, &cap, g->rank, (size_t)g->n_ranks,
			       sizeof(*g->rank), err));
	to->n_ranks = g->n_ranks;
	to->epoch_ns = g->epoch_ns;
	to->stepless = g->stepless;
	to->described = g->described;
#define COPY(name) to->name = g->name;
	PL_GRAPH_COUNTS(COPY)
	PL_CHECK(pl_buf_put(&to->provenance, g->provenance.p, g->provenance.n, err));
	return 0;
}

void pl_graph_keep_ranks(struct pl_graph *g, bool (*keep)(const void *arg, int32_t rank),
			 const void *arg, uint32_t *number)
{
	int32_t ranks = 0;
	size_t res = 0, links = 0;

	for (int32_t i = 0; i < g->n_ranks; i++)
		if (keep(arg, g->rank[i]))
			g->rank[ranks++] = g->rank[i];
	for (size_t i = 0; i < g->n_res; i++) {
		number[i] = keep(arg, g->res[i].rank) ? (uint32_t)res : PL_NONE;
		if (number[i] != PL_NONE)
			g->res[res++] = g->res[i];
	}
	for (size_t i = 0; i < g->n_links; i++) {
		struct pl_link l = g->link[i];

		l.from = number[l.from];
		l.to = number[l.to];
		if (l.from != PL_NONE && l.to != PL_NONE)
			g->link[links++] = l;
	}
	g->n_ranks = ranks;
	g->n_res = res;
	g->n_links = links;
}
