/*
 * The summary of a graph: a few lines of totals, then tables, as text or as the JSON object
 * "paceline.graph-stat/1". Text shows the first rows of long tables only; JSON has all.
 */
#include <string.h>

#include "graph/show.h"
#include "graph/stat.h"

#define TEXT_ROWS 16

/* One table: its columns, and how many rows are there to give. */
struct section {
	const char *key, *title;
	const struct pl_column *col;
	size_t n_col;
	size_t (*rows)(const struct graph_stat *s);
	int (*row)(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err);
};

static const char *str(const struct graph_stat *s, pl_id id)
{
	return id == PL_NONE ? NULL : pl_intern_get(&s->g->str, id);
}

/* ---- steps and shapes --------------------------------------------------------------------------
 */

static const struct pl_column step_cols[] = {
	{ "step", "step", PL_CELL_I64, 0 },	      { "shape", "shape", PL_CELL_I64, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 },	      { "start_ns", "start", PL_CELL_NS, 0 },
	{ "recorded_ns", "recorded", PL_CELL_NS, 0 },
};

static size_t step_rows(const struct graph_stat *s)
{
	return s->g->n_steps;
}

static int step_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct pl_gstep *p = &s->g->step[i];

	return pl_table_row(t, err, p->number, (int64_t)p->shape,
			    (int64_t)s->g->shape[p->shape].n_nodes, s->step[i].start_ns,
			    s->step[i].recorded_ns);
}

static const struct pl_column shape_cols[] = {
	{ "shape", "shape", PL_CELL_I64, 0 }, { "steps", "steps", PL_CELL_I64, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 }, { "entries", "entries", PL_CELL_I64, 0 },
	{ "edges", "edges", PL_CELL_I64, 0 }, { "inferred", "inferred", PL_CELL_I64, 0 },
};

static size_t shape_rows(const struct graph_stat *s)
{
	return s->g->n_shapes;
}

static int shape_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct pl_shape *p = &s->g->shape[i];

	return pl_table_row(t, err, (int64_t)i, s->shape[i].steps, (int64_t)p->n_nodes,
			    (int64_t)p->n_entries, (int64_t)p->n_edges, s->shape[i].inferred);
}

/* ---- nodes and edges ---------------------------------------------------------------------------
 */

static const struct pl_column type_cols[] = {
	{ "type", "node type", PL_CELL_STR, 0 },
	{ "nodes", "nodes", PL_CELL_I64, 0 },
};

static size_t type_rows(const struct graph_stat *s)
{
	(void)s;
	return PL_N_COUNT_;
}

static int type_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	return s->type[i] ? pl_table_row(t, err, pl_graph_node_type_name((unsigned)i), s->type[i])
			  : 0;
}

/* A row of a count that is not 0. */
static int tally_row(const struct tally *x, const char *word, struct pl_table *t,
		     struct pl_err *err)
{
	return x->n ? pl_table_row(t, err, word, x->n, x->ns) : 0;
}

static const struct pl_column role_cols[] = {
	{ "role", "role", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
};

static size_t role_rows(const struct graph_stat *s)
{
	(void)s;
	return PL_RO_COUNT_;
}

static int role_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	return tally_row(&s->role[i], pl_graph_node_role_name((unsigned)i), t, err);
}

static const struct pl_column phase_cols[] = {
	{ "phase", "phase", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
};

static size_t phase_rows(const struct graph_stat *s)
{

	return s->phase[PL_PH_UNKNOWN].n == s->node_rows ? 0 : PL_PH_COUNT_;
}

static int phase_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	return tally_row(&s->phase[i], pl_graph_phase_name((unsigned)i), t, err);
}

static const struct pl_column op_cols[] = {
	{ "operator", "operator", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
};

static size_t op_rows(const struct graph_stat *s)
{

	return s->op[PL_OP_UNKNOWN].n == s->node_rows ? 0 : PL_OP_COUNT_;
}

static int op_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	return tally_row(&s->op[i], pl_graph_operator_name((unsigned)i), t, err);
}

static const struct pl_column tensor_cols[] = {
	{ "role", "role", PL_CELL_STR, 0 },
	{ "tensors", "tensors", PL_CELL_I64, 0 },
	{ "bytes", "bytes", PL_CELL_BYTES, 0 },
	{ "size_unknown", "size unknown", PL_CELL_I64, 0 },
	{ "estimated", "estimated", PL_CELL_I64, 0 },
};

static size_t tensor_rows(const struct graph_stat *s)
{
	return s->g->n_tensors ? PL_TR_COUNT_ : 0;
}

static int tensor_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct stat_tensor *x = &s->tensor[i];

	return x->n ? pl_table_row(t, err, pl_graph_tensor_role_name((unsigned)i), x->n, x->bytes,
				   x->unknown, x->estimated)
		    : 0;
}

static const struct pl_column edge_cols[] = {
	{ "type", "edge type", PL_CELL_STR, 0 },
	{ "recorded", "recorded", PL_CELL_I64, 0 },
	{ "inferred", "inferred", PL_CELL_I64, 0 },
};

static size_t edge_rows(const struct graph_stat *s)
{
	(void)s;
	return PL_E_COUNT_;
}

static int edge_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	if (!s->edge[i][0] && !s->edge[i][1])
		return 0;
	return pl_table_row(t, err, pl_graph_edge_type_name((unsigned)i), s->edge[i][0],
			    s->edge[i][1]);
}

/* ---- ranks -------------------------------------------------------------------------------------
 */

static const struct pl_column rank_cols[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },	    { "host", "host", PL_CELL_STR, 24 },
	{ "threads", "threads", PL_CELL_I64, 0 },   { "streams", "streams", PL_CELL_I64, 0 },
	{ "others", "others", PL_CELL_I64, 0 },	    { "nodes", "nodes", PL_CELL_I64, 0 },
	{ "compute_ns", "compute", PL_CELL_NS, 0 }, { "transfer_ns", "transfer", PL_CELL_NS, 0 },
	{ "wait_ns", "comm wait", PL_CELL_NS, 0 },
};

static size_t rank_rows(const struct graph_stat *s)
{
	return (size_t)s->g->n_ranks;
}

static int rank_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct stat_rank *r = &s->rank[i];

	return pl_table_row(t, err, (int64_t)s->g->rank[i], str(s, r->host), r->threads, r->streams,
			    r->others, r->nodes, r->compute_ns, r->transfer_ns, r->wait_ns);
}

/* ---- communication -----------------------------------------------------------------------------
 */

static const struct pl_column comm_cols[] = {
	{ "collective", "communication", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "bytes", "volume", PL_CELL_BYTES, 0 },
	{ "size_unknown", "no size", PL_CELL_I64, 0 },
	{ "missing", "incomplete", PL_CELL_I64, 0 },
	{ "transfer_ns", "transfer", PL_CELL_NS, 0 },
	{ "wait_ns", "wait", PL_CELL_NS, 0 },
};

static size_t comm_rows(const struct graph_stat *s)
{
	return s->n_comm;
}

static int comm_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct stat_comm *c = &s->comm[i];

	return pl_table_row(t, err, c->name, c->n, c->unknown == c->n ? INT64_MIN : c->bytes,
			    c->unknown, c->missing, c->transfer_ns, c->wait_ns);
}

static const struct pl_column group_cols[] = {
	{ "group", "group", PL_CELL_STR, 32 },	      { "inferred", "inferred", PL_CELL_STR, 0 },
	{ "size", "size", PL_CELL_I64, 0 },	      { "ranks", "ranks", PL_CELL_STR, 32 },
	{ "transfers", "transfers", PL_CELL_I64, 0 }, { "transfer_ns", "transfer", PL_CELL_NS, 0 },
};

static size_t group_rows(const struct graph_stat *s)
{
	return s->g->n_groups;
}

/* "0-3,8,10-11" */
static int rank_list(const uint32_t *v, uint32_t n, struct pl_buf *b, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0, k; i < n && rc >= 0; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1;)
			k++;
		rc = pl_buf_printf(b, err, "%s%u", i ? "," : "", v[i]);
		if (rc >= 0 && k - i > 1)
			rc = pl_buf_printf(b, err, "-%u", v[k - 1]);
	}
	return rc < 0 ? rc : pl_buf_put(b, "", 1, err);
}

static int group_row(const struct graph_stat *s, size_t i, struct pl_table *t, struct pl_err *err)
{
	const struct pl_ggroup *p = &s->g->group[i];
	struct pl_buf ranks = { 0 };
	int rc;

	PL_TRY(rank_list(s->g->group_rank + p->rank, p->n, &ranks, err));
	PL_TRY(pl_table_row(t, err, str(s, p->name), p->flags & PL_GROUP_INFERRED ? "yes" : "no",
			    (int64_t)p->n, (const char *)ranks.p, s->group[i].n, s->group[i].ns));
out:
	pl_buf_fini(&ranks);
	return rc;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

#define COLS(c) (c), PL_LEN(c)
static const struct section sections[] = {
	{ "steps", "steps", COLS(step_cols), step_rows, step_row },
	{ "shapes", "shapes of steps", COLS(shape_cols), shape_rows, shape_row },
	{ "node_types", "nodes by type", COLS(type_cols), type_rows, type_row },
	{ "node_roles", "nodes by role, over all steps", COLS(role_cols), role_rows, role_row },
	{ "phases", "nodes by phase, over all steps", COLS(phase_cols), phase_rows, phase_row },
	{ "operators", "nodes by operator, over all steps", COLS(op_cols), op_rows, op_row },
	{ "edges", "edges by type", COLS(edge_cols), edge_rows, edge_row },
	{ "tensor_roles", "tensors by role, in shapes", COLS(tensor_cols), tensor_rows,
	  tensor_row },
	{ "communication", "communication, over all ranks and steps", COLS(comm_cols), comm_rows,
	  comm_row },
	{ "groups", "communication groups", COLS(group_cols), group_rows, group_row },
	{ "rank_table", "ranks, over all steps", COLS(rank_cols), rank_rows, rank_row },
};

static int fill(const struct graph_stat *s, const struct section *x, size_t n, struct pl_table *t,
		struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0; i++)
		rc = x->row(s, i, t, err);
	return rc;
}

static int text_section(const struct graph_stat *s, const struct section *x, struct pl_out *out,
			struct pl_err *err)
{
	size_t all = x->rows(s), n = all > TEXT_ROWS + 4 ? TEXT_ROWS : all;
	struct pl_table *t;
	int rc;

	if (!all)
		return 0;
	t = pl_table_new(x->col, x->n_col, err);
	if (!t)
		return err ? err->code : PL_ENOMEM;
	PL_TRY(fill(s, x, n, t, err));
	PL_TRY(pl_out_write(out, "\n", 1, err));
	PL_TRY(pl_table_print(t, out, PL_TABLE_TEXT, x->title, err));
	if (n < all)
		PL_TRY(pl_out_printf(out, err, "(%zu more: -O stat-json has all)\n", all - n));
out:
	pl_table_free(t);
	return rc;
}

static int text_head(const struct graph_stat *s, struct pl_out *out, struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	int rc;

	PL_TRY(pl_out_printf(out, err, "ranks             %d", g->n_ranks));
	if (s->n_hosts)
		PL_TRY(pl_out_printf(out, err, " on %lld host%s", (long long)s->n_hosts,
				     s->n_hosts == 1 ? "" : "s"));
	PL_TRY(pl_out_printf(out, err, "\nresources         %zu\n", g->n_res));
	PL_TRY(pl_out_printf(out, err, "steps             %zu of %zu shape%s%s\n", g->n_steps,
			     g->n_shapes, g->n_shapes == 1 ? "" : "s",
			     g->stepless ? " (the input has no steps: all of it is one)" : ""));
	PL_TRY(pl_out_printf(out, err,
			     "nodes             %lld in shapes, %lld in steps\n"
			     "edges             %lld in shapes\n",
			     (long long)s->nodes, (long long)s->node_rows, (long long)s->edges));
	if (g->n_tensors)
		PL_TRY(pl_out_printf(out, err, "tensors           %zu in shapes, %lld estimated\n",
				     g->n_tensors, (long long)s->tensors_estimated));
	PL_TRY(pl_out_printf(out, err, "groups            %zu, %lld inferred\n", g->n_groups,
			     (long long)s->groups_inferred));
	PL_TRY(pl_out_printf(out, err,
			     "waits             %lld recorded, %lld inferred, "
			     "%lld of a thread for a thread\n",
			     (long long)g->recorded_waits, (long long)g->inferred_waits,
			     (long long)g->inferred_threads));
	PL_TRY(pl_out_printf(out, err,
			     "given up          %lld edges, %lld communications without partner\n",
			     (long long)g->dropped_edges, (long long)g->unmatched_comm));
out:
	return rc;
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

static void json_section(const struct graph_stat *s, const struct section *x, struct pl_writer *w)
{
	struct pl_table *t = pl_table_new(x->col, x->n_col, &w->fail);

	if (t && fill(s, x, x->rows(s), t, &w->fail) == 0) {
		pl_json_key(w, x->key);
		pl_table_json(t, w);
	}
	pl_table_free(t);
}

static int print_json(const struct graph_stat *s, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;

	pl_writer_init(&w, out, 2);
	pl_json_open(&w, '{');
	json_head(s, &w);
	for (size_t i = 0; i < PL_LEN(sections); i++)
		json_section(s, &sections[i], &w);
	pl_json_close(&w);
	return pl_json_end(&w, err);
}

int pl_graph_show_stat(const struct pl_graph *g, bool json, struct pl_out *out, struct pl_err *err)
{
	struct graph_stat s;
	int rc;

	PL_TRY(pl_graph_stat_collect(g, &s, err));
	if (json) {
		PL_TRY(print_json(&s, out, err));
	} else {
		PL_TRY(text_head(&s, out, err));
		for (size_t i = 0; i < PL_LEN(sections); i++)
			PL_TRY(text_section(&s, &sections[i], out, err));
	}
out:
	pl_graph_stat_fini(&s);
	return rc;
}
