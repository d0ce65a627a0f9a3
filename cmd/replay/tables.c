/* The sections of a report as tables, for -O csv and the like, and for --table. */
#include <math.h>

#include "program.h"

const enum pl_table_format table_format[] = { [AS_TEXT] = PL_TABLE_TEXT,
					      [AS_JSON] = PL_TABLE_JSON,
					      [AS_CSV] = PL_TABLE_CSV,
					      [AS_TSV] = PL_TABLE_TSV,
					      [AS_JSONL] = PL_TABLE_JSONL };

static const struct pl_column steps[] = {
	{ "step", "step", PL_CELL_I64, 0 },	  { "recorded_ns", "recorded", PL_CELL_NS, 0 },
	{ "period_ns", "period", PL_CELL_NS, 0 }, { "replayed_ns", "replayed", PL_CELL_NS, 0 },
	{ "error", "error", PL_CELL_REAL, 0 },	  { "predicted_ns", "predicted", PL_CELL_NS, 0 },
};
static const struct pl_column ranks[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "span_ns", "span", PL_CELL_NS, 0 },
	{ "compute_ns", "compute", PL_CELL_NS, 0 },
	{ "comm_overlapped_ns", "overlapped", PL_CELL_NS, 0 },
	{ "comm_exposed_ns", "exposed", PL_CELL_NS, 0 },
	{ "copy_ns", "copy", PL_CELL_NS, 0 },
	{ "host_ns", "host", PL_CELL_NS, 0 },
	{ "unexplained_ns", "unexplained", PL_CELL_NS, 0 },
	{ "wait_ns", "wait", PL_CELL_NS, 0 },
	{ "launch_ns", "launch", PL_CELL_NS, 0 },
	{ "nothing_ns", "nothing", PL_CELL_NS, 0 },
	{ "waits_for", "for rank", PL_CELL_I64, 0 },
	{ "waits_for_ns", "of it", PL_CELL_NS, 0 },
	{ "awaited_ns", "awaited", PL_CELL_NS, 0 },
};
static const struct pl_column resources[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "resource", "resource", PL_CELL_STR, 24 },
	{ "type", "type", PL_CELL_STR, 0 },
	{ "operations", "ops", PL_CELL_I64, 0 },
	{ "compute_ns", "compute", PL_CELL_NS, 0 },
	{ "comm_ns", "comm", PL_CELL_NS, 0 },
	{ "copy_ns", "copy", PL_CELL_NS, 0 },
	{ "host_ns", "host", PL_CELL_NS, 0 },
	{ "gap_ns", "gap", PL_CELL_NS, 0 },
	{ "wait_ns", "wait", PL_CELL_NS, 0 },
	{ "unexplained_ns", "unexpl.", PL_CELL_NS, 0 },
	{ "latency_ns", "latency", PL_CELL_NS, 0 },
	{ "idle_ns", "idle", PL_CELL_NS, 0 },
};
static const struct pl_column path[] = {
	{ "share", "share", PL_CELL_PERCENT, 0 }, { "ns", "time", PL_CELL_NS, 0 },
	{ "count", "count", PL_CELL_I64, 0 },	  { "kind", "kind", PL_CELL_STR, 0 },
	{ "rank", "rank", PL_CELL_I64, 0 },	  { "name", "operation", PL_CELL_STR, 53 },
};
static const struct pl_column events[] = {
	{ "start_ns", "start", PL_CELL_NS, 0 },	  { "ns", "time", PL_CELL_NS, 0 },
	{ "kind", "kind", PL_CELL_STR, 0 },	  { "rank", "rank", PL_CELL_I64, 0 },
	{ "resource", "on", PL_CELL_STR, 16 },	  { "step", "step", PL_CELL_I64, 0 },
	{ "name", "operation", PL_CELL_STR, 38 },
};
static const struct pl_column memory[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "peak_bytes", "peak", PL_CELL_BYTES, 0 },
	{ "parameters_bytes", "params", PL_CELL_BYTES, 0 },
	{ "gradients_bytes", "grads", PL_CELL_BYTES, 0 },
	{ "optimizer_bytes", "optimizer", PL_CELL_BYTES, 0 },
	{ "activations_bytes", "activ.", PL_CELL_BYTES, 0 },
	{ "temporaries_bytes", "temp.", PL_CELL_BYTES, 0 },
	{ "buffers_bytes", "buffers", PL_CELL_BYTES, 0 },
	{ "estimated", "est.", PL_CELL_STR, 0 },
	{ "at", "at", PL_CELL_STR, 24 },
};
static const struct pl_column slowest[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "wait_ns", "waits", PL_CELL_NS, 0 },
	{ "median_wait_ns", "median", PL_CELL_NS, 0 },
	{ "why", "why", PL_CELL_STR, 0 },
};
static const struct pl_column worth[] = {
	{ "saves_ns", "saves", PL_CELL_NS, 0 },
	{ "share", "of step", PL_CELL_PERCENT, 0 },
	{ "change", "change", PL_CELL_STR, 76 },
};

static const struct {
	const struct pl_column *col;
	size_t n;
} layout[] = {
	[SEC_STEPS] = { steps, PL_LEN(steps) },
	[SEC_RANKS] = { ranks, PL_LEN(ranks) },
	[SEC_RESOURCES] = { resources, PL_LEN(resources) },
	[SEC_PATH] = { path, PL_LEN(path) },
	[SEC_EVENTS] = { events, PL_LEN(events) },
	[SEC_MEMORY] = { memory, PL_LEN(memory) },
	[SEC_SLOWEST] = { slowest, PL_LEN(slowest) },
	[SEC_WORTH] = { worth, PL_LEN(worth) },
};

static int64_t some_rank(int32_t rank)
{
	return rank < 0 ? INT64_MIN : rank;
}

static void rank_row(struct pl_table *t, const struct pl_rank_time *x)
{
	pl_table_row(t, (int64_t)x->rank, x->span_ns, x->compute_ns, x->comm_overlapped_ns,
		     x->comm_exposed_ns, x->copy_ns, x->host_ns, x->unexplained_ns,
		     x->idle_ns[PL_I_WAIT], x->idle_ns[PL_I_LAUNCH], x->idle_ns[PL_I_TAIL],
		     some_rank(x->waits_for), x->waits_for_ns, x->awaited_ns);
}

static void resource_row(struct pl_table *t, const struct pl_graph *g, const struct pl_res_time *x)
{
	const struct pl_resource *res = &g->res[x->res];

	pl_table_row(t, some_rank(res->rank), pl_intern_get(&g->str, res->name),
		     pl_trace_track_type_name(res->track_type), (int64_t)x->ops, x->compute_ns,
		     x->comm_ns, x->copy_ns, x->host_ns, x->gap_ns, x->wait_ns, x->unexplained_ns,
		     x->latency_ns, x->idle_ns);
}

static void event_row(struct pl_table *t, const struct report *r, const struct pl_path_item *p)
{
	const struct pl_shape *sh = &r->g.shape[r->g.step[p->step].shape];
	const char *on = NULL;
	struct path_row x;

	path_item(r, p, &x);
	if (sh->res[p->node] != PL_NONE)
		on = pl_intern_get(&r->g.str, r->g.res[sh->res[p->node]].name);
	pl_table_row(t, p->start - r->path.item[0].start, p->ns, x.kind, some_rank(x.rank), on,
		     r->g.step[p->step].number, x.name);
}

static void memory_row(struct pl_table *t, const struct memory_row *x)
{
	const struct pl_memory_rank *p = &x->peak;

	pl_table_row(t, (int64_t)p->rank, p->peak_bytes, p->params_bytes, p->grads_bytes,
		     p->optimizer_bytes, p->activations_bytes, p->temporaries_bytes,
		     p->buffers_bytes, p->estimated ? "yes" : "no", x->at[0] ? x->at : NULL);
}

/* Resources less those, at the end, that only hand on times. */
static size_t resources_shown(const struct report *r)
{
	size_t n = r->account.n_res;

	while (n && pl_graph_hands_on(&r->g, r->account.res[n - 1].res))
		n--;
	return n;
}

size_t rows_of(const struct report *r, enum section which)
{
	const size_t n[] = {
		[SEC_STEPS] = r->n_steps,  [SEC_RANKS] = r->account.n_ranks,
		[SEC_PATH] = r->n_rows,	   [SEC_RESOURCES] = resources_shown(r),
		[SEC_EVENTS] = r->path.n,  [SEC_MEMORY] = r->n_memory,
		[SEC_SLOWEST] = r->n_slow, [SEC_WORTH] = r->n_changes,
	};

	return n[which];
}

static void row(struct pl_table *t, const struct report *r, enum section which, size_t i)
{
	const struct step_row *s = &r->step[i];
	const struct path_row *p = &r->row[i];

	switch (which) {
	case SEC_STEPS:
		pl_table_row(t, s->number, s->recorded, s->period, s->replayed, s->error,
			     s->predicted);
		break;
	case SEC_RANKS:
		rank_row(t, &r->account.rank[i]);
		break;
	case SEC_RESOURCES:
		resource_row(t, &r->g, &r->account.res[i]);
		break;
	case SEC_PATH:
		pl_table_row(t, p->share, p->ns, (int64_t)p->count, p->kind, some_rank(p->rank),
			     p->name);
		break;
	case SEC_EVENTS:
		event_row(t, r, &r->path.item[i]);
		break;
	case SEC_MEMORY:
		memory_row(t, &r->memory[i]);
		break;
	case SEC_SLOWEST:
		pl_table_row(t, (int64_t)r->slow[i].rank, r->slow[i].wait_ns,
			     r->slow[i].median_wait_ns, r->slow[i].why);
		break;
	default:
		pl_table_row(t, (int64_t)llround(r->change[i].saves_ns), r->change[i].share,
			     r->change[i].change);
	}
}

struct pl_table empty_table(enum section which)
{
	return (struct pl_table){ .col = layout[which].col, .n_cols = layout[which].n };
}

void fill_table(const struct report *r, enum section which, int64_t top, struct pl_table *t)
{
	size_t n = rows_of(r, which);

	if (top > 0 && (uint64_t)top < n)
		n = (size_t)top;
	for (size_t i = 0; i < n; i++)
		row(t, r, which, i);
}

pl_ns rank_part(const struct pl_rank_time *t, int i)
{
	const pl_ns v[PARTS] = { t->compute_ns,
				 t->comm_overlapped_ns,
				 t->comm_exposed_ns,
				 t->copy_ns,
				 t->host_ns,
				 t->unexplained_ns,
				 t->idle_ns[PL_I_WAIT],
				 t->idle_ns[PL_I_LAUNCH],
				 t->idle_ns[PL_I_TAIL] };

	return v[i];
}
