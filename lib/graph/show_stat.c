/*
 * The summary of a graph: a few lines of totals, then tables; as text or as the JSON object
 * "paceline.graph-stat/1". Text shows only the first rows of long tables; JSON shows all.
 */
#include "graph/show.h"
#include "graph/stat.h"

#define TEXT_ROWS 16

static const char *str(const struct graph_stat *s, pl_id id)
{
	return id == PL_NONE ? NULL : pl_intern_get(&s->g->str, id);
}

/* ---- steps and shapes ------------------------------------------------------------------------ */

static const struct pl_column step_cols[] = {
	{ "step", "step", PL_CELL_I64, 0 },	      { "shape", "shape", PL_CELL_I64, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 },	      { "start_ns", "start", PL_CELL_NS, 0 },
	{ "recorded_ns", "recorded", PL_CELL_NS, 0 },
};

static void put_steps(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (size_t i = 0; i < s->g->n_steps; i++) {
		const struct pl_gstep *p = &s->g->step[i];

		pl_table_row(t, p->number, (int64_t)p->shape,
			     (int64_t)s->g->shape[p->shape].n_nodes, s->step[i].start_ns,
			     s->step[i].recorded_ns);
	}
}

static const struct pl_column shape_cols[] = {
	{ "shape", "shape", PL_CELL_I64, 0 }, { "steps", "steps", PL_CELL_I64, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 }, { "entries", "entries", PL_CELL_I64, 0 },
	{ "edges", "edges", PL_CELL_I64, 0 }, { "inferred", "inferred", PL_CELL_I64, 0 },
};

static void put_shapes(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (size_t i = 0; i < s->g->n_shapes; i++) {
		const struct pl_shape *p = &s->g->shape[i];

		pl_table_row(t, (int64_t)i, s->shape[i].steps, (int64_t)p->n_nodes,
			     (int64_t)p->n_entries, (int64_t)p->n_edges, s->shape[i].inferred);
	}
}

/* ---- nodes and edges ------------------------------------------------------------------------- */

static const struct pl_column type_cols[] = {
	{ "type", "node type", PL_CELL_STR, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 },
};

/* A table of counts: a word and a count in each row; counts of 0 have no row. */
#define TALLY_COLS(word)                                                                           \
	{                                                                                          \
		{ word, word, PL_CELL_STR, 0 }, { "count", "count", PL_CELL_I64, 0 },              \
		{                                                                                  \
			"total_ns", "total", PL_CELL_NS, 0                                         \
		}                                                                                  \
	}
static const struct pl_column role_cols[] = TALLY_COLS("role");
static const struct pl_column phase_cols[] = TALLY_COLS("phase");
static const struct pl_column op_cols[] = TALLY_COLS("operator");

static void put_tally(const struct tally *x, unsigned n, const char *(*name)(unsigned),
		      struct pl_table *t)
{
	for (unsigned i = 0; i < n; i++)
		if (x[i].n)
			pl_table_row(t, name(i), x[i].n, x[i].ns);
}

static void put_types(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	put_tally(s->type, PL_N_COUNT_, pl_graph_node_type_name, t);
}

static void put_roles(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	put_tally(s->role, PL_RO_COUNT_, pl_graph_node_role_name, t);
}

static void put_phases(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	if (s->phase[PL_PH_UNKNOWN].n != s->node_rows)
		put_tally(s->phase, PL_PH_COUNT_, pl_graph_phase_name, t);
}

static void put_operators(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	if (s->op[PL_OP_UNKNOWN].n != s->node_rows)
		put_tally(s->op, PL_OP_COUNT_, pl_graph_operator_name, t);
}

static const struct pl_column tensor_cols[] = {
	{ "role", "role", PL_CELL_STR, 0 },
	{ "tensors", "tensors", PL_CELL_I64, 0 },
	{ "bytes", "bytes", PL_CELL_BYTES, 0 },
	{ "size_unknown", "size unknown", PL_CELL_I64, 0 },
	{ "estimated", "estimated", PL_CELL_I64, 0 },
};

static void put_tensors(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (unsigned i = 0; i < PL_TR_COUNT_; i++) {
		const struct stat_tensor *x = &s->tensor[i];

		if (x->n)
			pl_table_row(t, pl_graph_tensor_role_name(i), x->n, x->bytes, x->unknown,
				     x->estimated);
	}
}

static const struct pl_column edge_cols[] = {
	{ "type", "edge type", PL_CELL_STR, 0 },
	{ "recorded", "recorded", PL_CELL_I64, 0 },
	{ "inferred", "inferred", PL_CELL_I64, 0 },
};

static void put_edges(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (unsigned i = 0; i < PL_E_COUNT_; i++)
		if (s->edge[i][0] || s->edge[i][1])
			pl_table_row(t, pl_graph_edge_type_name(i), s->edge[i][0], s->edge[i][1]);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static const struct pl_column rank_cols[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },	    { "host", "host", PL_CELL_STR, 24 },
	{ "threads", "threads", PL_CELL_I64, 0 },   { "streams", "streams", PL_CELL_I64, 0 },
	{ "others", "others", PL_CELL_I64, 0 },	    { "nodes", "nodes", PL_CELL_I64, 0 },
	{ "compute_ns", "compute", PL_CELL_NS, 0 }, { "transfer_ns", "transfer", PL_CELL_NS, 0 },
	{ "wait_ns", "comm wait", PL_CELL_NS, 0 },
};

static void put_ranks(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (int32_t i = 0; i < s->g->n_ranks; i++) {
		const struct stat_rank *r = &s->rank[i];

		pl_table_row(t, (int64_t)s->g->rank[i], str(s, r->host), r->threads, r->streams,
			     r->others, r->nodes, r->compute_ns, r->transfer_ns, r->wait_ns);
	}
}

/* ---- communication --------------------------------------------------------------------------- */

static const struct pl_column comm_cols[] = {
	{ "collective", "communication", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "bytes", "volume", PL_CELL_BYTES, 0 },
	{ "size_unknown", "no size", PL_CELL_I64, 0 },
	{ "missing", "incomplete", PL_CELL_I64, 0 },
	{ "transfer_ns", "transfer", PL_CELL_NS, 0 },
	{ "wait_ns", "wait", PL_CELL_NS, 0 },
};

static void put_comm(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;

	for (size_t i = 0; i < s->n_comm; i++) {
		const struct stat_comm *c = &s->comm[i];

		pl_table_row(t, c->name, c->n, c->unknown == c->n ? INT64_MIN : c->bytes,
			     c->unknown, c->missing, c->transfer_ns, c->wait_ns);
	}
}

static const struct pl_column group_cols[] = {
	{ "group", "group", PL_CELL_STR, 32 },	      { "inferred", "inferred", PL_CELL_STR, 0 },
	{ "size", "size", PL_CELL_I64, 0 },	      { "ranks", "ranks", PL_CELL_STR, 32 },
	{ "transfers", "transfers", PL_CELL_I64, 0 }, { "transfer_ns", "transfer", PL_CELL_NS, 0 },
};

/* "0-3,8,10-11" */
static void put_ranges(const uint32_t *v, uint32_t n, struct pl_writer *w)
{
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1;)
			k++;
		pl_write_format(w, "%s%u", i ? "," : "", v[i]);
		if (k - i > 1)
			pl_write_format(w, "-%u", v[k - 1]);
	}
	pl_write_char(w, '\0');
}

static void put_groups(void *report, struct pl_table *t)
{
	const struct graph_stat *s = report;
	struct pl_writer ranks = { 0 };

	for (size_t i = 0; i < s->g->n_groups; i++) {
		const struct pl_ggroup *p = &s->g->group[i];

		ranks.b.n = 0;
		put_ranges(s->g->group_rank + p->rank, p->n, &ranks);
		if (ranks.fail.code)
			t->fail = ranks.fail;
		pl_table_row(t, str(s, p->name), p->flags & PL_GROUP_INFERRED ? "yes" : "no",
			     (int64_t)p->n, (const char *)ranks.b.p, s->group[i].n, s->group[i].ns);
	}
	pl_write_fini(&ranks);
}

/* ---- the whole ------------------------------------------------------------------------------- */

#define COLS(c) (c), PL_LEN(c)
static const struct pl_table_section sections[] = {
	{ "steps", "steps", COLS(step_cols), put_steps },
	{ "shapes", "shapes of steps", COLS(shape_cols), put_shapes },
	{ "node_types", "nodes by type", COLS(type_cols), put_types },
	{ "node_roles", "nodes by role, over all steps", COLS(role_cols), put_roles },
	{ "phases", "nodes by phase, over all steps", COLS(phase_cols), put_phases },
	{ "operators", "nodes by operator, over all steps", COLS(op_cols), put_operators },
	{ "edges", "edges by type", COLS(edge_cols), put_edges },
	{ "tensor_roles", "tensors by role, in shapes", COLS(tensor_cols), put_tensors },
	{ "communication", "communication, over all ranks and steps", COLS(comm_cols), put_comm },
	{ "groups", "communication groups", COLS(group_cols), put_groups },
	{ "rank_table", "ranks, over all steps", COLS(rank_cols), put_ranks },
};

static void text_head(const struct graph_stat *s, struct pl_writer *w)
{
	const struct pl_graph *g = s->g;

	pl_write_format(w, "ranks             %d", g->n_ranks);
	if (s->n_hosts)
		pl_write_format(w, " on %lld host%s", (long long)s->n_hosts,
				s->n_hosts == 1 ? "" : "s");
	pl_write_format(w, "\nresources         %zu\n", g->n_res);
	pl_write_format(w, "steps             %zu of %zu shape%s%s\n", g->n_steps, g->n_shapes,
			g->n_shapes == 1 ? "" : "s",
			g->stepless ? " (the input has no steps: all of it is one)" : "");
	pl_write_format(w,
			"nodes             %lld in shapes, %lld in steps\n"
			"edges             %lld in shapes\n",
			(long long)s->nodes, (long long)s->node_rows, (long long)s->edges);
	if (g->n_tensors)
		pl_write_format(w, "tensors           %zu in shapes, %lld estimated\n",
				g->n_tensors, (long long)s->tensors_estimated);
	pl_write_format(w, "groups            %zu, %lld inferred\n", g->n_groups,
			(long long)s->groups_inferred);
	pl_write_format(w,
			"waits             %lld recorded, %lld inferred, "
			"%lld of a thread for a thread\n",
			(long long)g->recorded_waits, (long long)g->inferred_waits,
			(long long)g->inferred_threads);
	pl_write_format(w, "given up          %lld edges, %lld communications without partner\n",
			(long long)g->dropped_edges, (long long)g->unmatched_comm);
}

static void json_head(const struct graph_stat *s, struct pl_writer *w)
{
	const struct pl_graph *g = s->g;
	const struct {
		const char *key;
		int64_t v;
	} num[] = {
		{ "epoch_ns", g->epoch_ns },
		{ "ranks", g->n_ranks },
		{ "hosts", s->n_hosts },
		{ "resources", (int64_t)g->n_res },
		{ "links", (int64_t)g->n_links },
		{ "tensors", (int64_t)g->n_tensors },
		{ "nodes", s->nodes },
		{ "nodes_in_steps", s->node_rows },
		{ "edge_count", s->edges },
		{ "groups_inferred", s->groups_inferred },
		{ "recorded_waits", g->recorded_waits },
		{ "inferred_waits", g->inferred_waits },
		{ "inferred_threads", g->inferred_threads },
		{ "dropped_edges", g->dropped_edges },
		{ "unmatched_comm", g->unmatched_comm },
	};

	pl_json_str(w, "schema", "paceline.graph-stat/1");
	pl_json_bool(w, "stepless", g->stepless);
	for (size_t i = 0; i < PL_LEN(num); i++)
		pl_json_int(w, num[i].key, num[i].v);
}

int pl_graph_show_stat(const struct pl_graph *g, bool json, struct pl_out *out, struct pl_err *err)
{
	struct graph_stat s;
	struct pl_writer w;
	int rc;

	PL_TRY(pl_graph_stat_collect(g, &s, err));
	pl_write_init(&w, out, 2);
	if (json) {
		pl_json_open(&w, '{');
		json_head(&s, &w);
		pl_table_sections_json(sections, PL_LEN(sections), &s, &w);
		pl_json_close(&w);
		rc = pl_json_end(&w, err);
	} else {
		text_head(&s, &w);
		pl_table_sections_text(sections, PL_LEN(sections), &s, TEXT_ROWS,
				       ": -O stat-json has all", &w);
		rc = pl_write_end(&w, err);
	}
out:
	pl_graph_stat_fini(&s);
	return rc;
}
