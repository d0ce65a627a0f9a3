/*
 * Does a graph keep the rules of paceline-graph(5)?
 *
 * Readers call it after reading and writers before writing, so that no program needs to check an
 * index, an order or a time again. Times stay below 2^60 ns (36 years), so the sum or difference of
 * two times cannot overflow. One pass over nodes, edges and times; about 2 ns for each.
 */
#include "graph/graph.h"

#define TIME_MAX (((pl_ns)1 << 60) - 1)

static bool bad(struct pl_err *err, const char *what, unsigned long long i, const char *why)
{
	pl_fail(err, PL_EDATA, "%s %llu: %s", what, i, why);
	return false;
}

static bool string_ok(const struct pl_graph *g, pl_id id)
{
	return id == PL_NONE || id < g->str.n;
}

static bool time_ok(pl_ns t)
{
	return t >= -TIME_MAX && t <= TIME_MAX;
}

static bool latency_ok(pl_ns t)
{
	return t >= 0 && t <= TIME_MAX;
}

static bool rank_ok(const struct pl_graph *g, int32_t rank)
{
	return rank == -1 || pl_graph_rank_index(g, rank) != PL_NONE;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool ranks_ok(const struct pl_graph *g, struct pl_err *err)
{
	for (int32_t i = 0; i < g->n_ranks; i++)
		if (g->rank[i] < (i ? g->rank[i - 1] + (int64_t)1 : 0))
			return bad(err, "rank", (unsigned)i, "negative or not ascending");
	return true;
}

static bool resources_ok(const struct pl_graph *g, struct pl_err *err)
{
	if (g->n_res >= PL_NONE)
		return bad(err, "resource", g->n_res, "more than 32 bits can number");
	for (size_t i = 0; i < g->n_res; i++) {
		const struct pl_resource *r = &g->res[i];

		if (!string_ok(g, r->name) || !string_ok(g, r->host))
			return bad(err, "resource", i, "a string that there is not");
		if (!rank_ok(g, r->rank))
			return bad(err, "resource", i, "of a rank that there is not");
		if (!r->capacity)
			return bad(err, "resource", i, "a capacity of 0");
		if (!latency_ok(r->launch_ns) || !latency_ok(r->dispatch_ns) ||
		    !latency_ok(r->early_ns))
			return bad(err, "resource", i, "a latency out of range");
	}
	return true;
}

static bool groups_ok(const struct pl_graph *g, struct pl_err *err)
{
	for (size_t i = 0; i < g->n_groups; i++) {
		const struct pl_ggroup *p = &g->group[i];

		if (!string_ok(g, p->name))
			return bad(err, "group", i, "a string that there is not");
		if (p->rank > g->n_group_ranks || p->n > g->n_group_ranks - p->rank)
			return bad(err, "group", i, "members that there are not");
	}
	for (size_t i = 0; i < g->n_links; i++) {
		const struct pl_link *l = &g->link[i];

		if (l->from >= g->n_res || l->to >= g->n_res)
			return bad(err, "link", i, "a resource that there is not");
		if (!(l->bytes_per_ns >= 0 && l->bytes_per_ns < 1e18) || !latency_ok(l->latency_ns))
			return bad(err, "link", i, "a bandwidth or latency out of range");
	}
	return true;
}

static bool work_ok(const struct pl_graph *g, struct pl_err *err)
{
	for (size_t i = 0; i < g->n_work; i++) {
		const struct pl_gwork *w = &g->work[i];

		if (w->op >= PL_OP_COUNT_ || !string_ok(g, w->type) || !string_ok(g, w->dims) ||
		    !string_ok(g, w->name) || w->flops < -1 || w->bytes < -1)
			return bad(err, "work", i, "a value that is not possible");
	}
	return true;
}

static bool tensor_ok(const struct pl_graph *g, size_t i, struct pl_err *err)
{
	const struct pl_tensor *t = &g->tensor[i];
	uint32_t nodes;

	if (!string_ok(g, t->name) || !string_ok(g, t->type))
		return bad(err, "tensor", i, "a string that there is not");
	if (t->role >= PL_TR_COUNT_)
		return bad(err, "tensor", i, "an unknown role");
	if (t->bytes < -1)
		return bad(err, "tensor", i, "a negative size");
	if (t->shape != PL_NONE && t->shape >= g->n_shapes)
		return bad(err, "tensor", i, "a shape that there is not");
	nodes = t->shape == PL_NONE ? 0 : g->shape[t->shape].n_nodes;
	if (t->producer != PL_NONE && t->producer >= nodes)
		return bad(err, "tensor", i, "a producer that there is not");
	if (t->consumer > g->n_consumers || t->n_consumers > g->n_consumers - t->consumer)
		return bad(err, "tensor", i, "consumers that there are not");
	for (uint32_t k = 0; k < t->n_consumers; k++)
		if (g->consumer[t->consumer + k] >= nodes)
			return bad(err, "tensor", i, "a consumer that there is not");
	return true;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool needs_resource(unsigned type)
{
	return type == PL_N_ENTRY || type == PL_N_OP || type == PL_N_RESOURCE;
}

/*
 * The greatest value of the column, counted from the value that stands for unknown (as in the
 * file): unknown is 0, and a value below it wraps around to a number above every limit.
 */
static uint64_t column_limit(const struct pl_graph *g, const struct pl_shape *s,
			     const struct pl_node_column *c)
{
	switch (c->values) {
	case PL_CV_NODE_TYPE:
		return PL_N_COUNT_ - 1;
	case PL_CV_NODE_ROLE:
		return PL_RO_COUNT_ - 1;
	case PL_CV_PHASE:
		return PL_PH_COUNT_ - 1;
	case PL_CV_RESOURCE:
		return g->n_res;
	case PL_CV_STRING:
		return g->str.n;
	case PL_CV_GROUP:
		return g->n_groups;
	case PL_CV_COMM:
		return s->n_comms;
	case PL_CV_WORK:
		return g->n_work;
	case PL_CV_NUMBER:
		if (c->size == 8)
			return (uint64_t)INT64_MAX + 1;
		return c->unknown < 0 ? (uint64_t)INT32_MAX + 1 : UINT32_MAX;
	default:
		return UINT8_MAX;
	}
}

#define ANY_ABOVE(type)                                                                            \
	typedef type several __attribute__((vector_size(16)));                                     \
	const type *p = v, unknown = (type)c->unknown, most = (type)limit;                         \
	several found = { 0 }, x;                                                                  \
                                                                                                   \
	for (; n - i >= sizeof(x) / sizeof(type); i += (uint32_t)(sizeof(x) / sizeof(type))) {     \
		memcpy(&x, p + i, sizeof(x));                                                      \
		found |= (several)(x - unknown > most);                                            \
	}                                                                                          \
	for (; i < n; i++)                                                                         \
		above |= (type)(p[i] - unknown) > most;                                            \
	for (size_t k = 0; k < sizeof(x) / sizeof(type); k++)                                      \
		above |= found[k] != 0;

/* Does a value break the rule of its column? Without branches, 16 bytes at a time. */
static bool column_broken(const struct pl_node_column *c, const void *v, uint32_t n, uint64_t limit)
{
	bool above = false;
	uint32_t i = 0;

	if (c->size == 1) {
		ANY_ABOVE(uint8_t)
	} else if (c->size == 8) {
		ANY_ABOVE(uint64_t)
	} else {
		ANY_ABOVE(uint32_t)
	}
	return above;
}

/* The first node whose value breaks the rule of its column, PL_NONE if there is none. */
static uint32_t column_fault(const struct pl_graph *g, const struct pl_shape *s,
			     const struct pl_node_column *c)
{
	uint64_t limit = column_limit(g, s, c), mask = c->size == 8   ? UINT64_MAX
						       : c->size == 1 ? UINT8_MAX
								      : UINT32_MAX;
	const void *v = pl_graph_shape_column(s, c);

	if (!v || limit >= mask || !column_broken(c, v, s->n_nodes, limit))
		return PL_NONE;
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if ((((uint64_t)pl_graph_shape_value(s, c, i) - (uint64_t)c->unknown) & mask) >
		    limit)
			return i;
	return PL_NONE;
}

/* The fault of node i, or NULL. The values of the node are in range. */
static const char *node_fault(const struct pl_shape *s, uint32_t i)
{
	if ((s->type[i] == PL_N_ENTRY) != (i < s->n_entries))
		return "entries must come first, and nothing else";
	if (s->res[i] == PL_NONE && needs_resource(s->type[i]))
		return "a node of this type needs a resource";
	if (s->off[i + 1] < s->off[i] || s->off[i + 1] > s->n_edges)
		return "edges that there are not";
	if (s->type[i] == PL_N_ENTRY && s->off[i + 1] != s->off[i])
		return "an entry with predecessors";
	if (s->k && s->k[i] > (s->type[i] == PL_N_RENDEZVOUS ? s->off[i + 1] - s->off[i] : 0))
		return "waits for more predecessors than it has";
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (s->src[e] >= i || PL_E_TYPE(s->etype[e]) >= PL_E_COUNT_)
			return "a predecessor that does not come before it, or an unknown edge";
	return NULL;
}

static bool comm_ok(const struct pl_graph *g, const struct pl_gcomm *c)
{
	return c->kind < PL_COLL_COUNT_ && string_ok(g, c->algorithm) && string_ok(g, c->type) &&
	       (c->group == PL_NONE || c->group < g->n_groups) && c->root >= -1 && c->bytes >= -1;
}

static bool shape_ok(const struct pl_graph *g, size_t i, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[i];

	if (s->n_entries > s->n_nodes || s->n_nodes == PL_NONE || s->off[0] != 0 ||
	    s->off[s->n_nodes] != s->n_edges)
		return bad(err, "shape", i, "its counts contradict each other");
	for (uint32_t k = 0; k < s->n_comms; k++)
		if (!comm_ok(g, &s->comms[k]))
			return bad(err, "communication", k, "a value that is not possible");
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		uint32_t n = column_fault(g, s, c);

		if (n == PL_NONE)
			continue;
		pl_fail(err, PL_EDATA, "shape %zu: node %u: %s %lld is not possible", i, n, c->word,
			(long long)pl_graph_shape_value(s, c, n));
		return false;
	}
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		const char *why = node_fault(s, n);

		if (why) {
			bad(err, "node", n, why);
			pl_wrap(err, "shape %zu", i);
			return false;
		}
	}
	return true;
}

static bool step_ok(const struct pl_graph *g, size_t i, struct pl_err *err)
{
	const struct pl_gstep *p = &g->step[i];
	const struct pl_shape *s;

	if (p->shape >= g->n_shapes)
		return bad(err, "step", i, "a shape that there is not");
	s = &g->shape[p->shape];
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		if (time_ok(p->start[n]) && p->dur[n] >= 0 && p->dur[n] <= TIME_MAX &&
		    (n >= s->n_entries || !p->dur[n]))
			continue;
		bad(err, "node", n,
		    "a time out of range (negative, of an entry, or over 36 years)");
		pl_wrap(err, "step %zu", i);
		return false;
	}
	return true;
}

bool pl_graph_valid(const struct pl_graph *g, struct pl_err *err)
{
	if (!ranks_ok(g, err) || !resources_ok(g, err) || !groups_ok(g, err) || !work_ok(g, err))
		return false;
	for (size_t i = 0; i < g->n_shapes; i++)
		if (!shape_ok(g, i, err))
			return false;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (!tensor_ok(g, i, err))
			return false;
	for (size_t i = 0; i < g->n_steps; i++)
		if (!step_ok(g, i, err))
			return false;
	return true;
}
