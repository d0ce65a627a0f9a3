/* The sections of a report as tables: each is described once, for text, JSON, CSV and --table. */
#include <math.h>

#include "program.h"

const enum pl_table_format table_format[] = { [AS_TEXT] = PL_TABLE_TEXT,
					      [AS_JSON] = PL_TABLE_JSON,
					      [AS_CSV] = PL_TABLE_CSV,
					      [AS_TSV] = PL_TABLE_TSV,
					      [AS_JSONL] = PL_TABLE_JSONL };

static const struct pl_column steps[] = {
	{ "step", "step", PL_CELL_I64, 0 },
	{ "recorded_ns", "recorded", PL_CELL_NS, 0 },
	{ "period_ns", "period", PL_CELL_NS, 0 },
	{ "replayed_ns", "replayed", PL_CELL_NS, 0 },
	{ "error", "error", PL_CELL_REAL, 0 },
	{ "predicted_ns", "predicted", PL_CELL_NS, 0 },
	{ "predicted_lo_ns", "at least", PL_CELL_NS, 0 },
	{ "predicted_hi_ns", "at most", PL_CELL_NS, 0 },
};
static const struct pl_column estimated[] = {
	{ "step", "step", PL_CELL_I64, 0 },
	{ "recorded_ns", "recorded", PL_CELL_NS, 0 },
	{ "period_ns", "period", PL_CELL_NS, 0 },
	{ "replayed_ns", "replayed", PL_CELL_NS, 0 },
	{ "error", "error", PL_CELL_REAL, 0 },
	{ "replayed_lo_ns", "at least", PL_CELL_NS, 0 },
	{ "replayed_hi_ns", "at most", PL_CELL_NS, 0 },
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
	{ "count", "count", PL_CELL_I64, 0 },	  { "longest_ns", "longest", PL_CELL_NS, 0 },
	{ "kind", "kind", PL_CELL_STR, 0 },	  { "rank", "rank", PL_CELL_I64, 0 },
	{ "name", "operation", PL_CELL_STR, 53 },
};
static const struct pl_column devices_path[] = {
	{ "share", "share", PL_CELL_PERCENT, 0 }, { "ns", "time", PL_CELL_NS, 0 },
	{ "count", "count", PL_CELL_I64, 0 },	  { "longest_ns", "longest", PL_CELL_NS, 0 },
	{ "kind", "kind", PL_CELL_STR, 0 },	  { "rank", "rank", PL_CELL_I64, 0 },
	{ "device", "device", PL_CELL_I64, 0 },	  { "name", "operation", PL_CELL_STR, 45 },
};
static const struct pl_column events[] = {
	{ "start_ns", "start", PL_CELL_NS, 0 },	  { "ns", "time", PL_CELL_NS, 0 },
	{ "kind", "kind", PL_CELL_STR, 0 },	  { "rank", "rank", PL_CELL_I64, 0 },
	{ "resource", "on", PL_CELL_STR, 18 },	  { "step", "step", PL_CELL_I64, 0 },
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
	/* wait_ns: an older name of idle_ns */
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "wait_ns", "idle", PL_CELL_NS, 0 },
	{ "median_wait_ns", "median", PL_CELL_NS, 0 },
	{ "why", "why", PL_CELL_STR, 0 },
	{ "idle_ns", "idle", PL_CELL_NS, 0 },
	{ "median_idle_ns", "median", PL_CELL_NS, 0 },
};
static const struct pl_column worth[] = {
	{ "saves_ns", "saves", PL_CELL_NS, 0 },	      { "share", "of step", PL_CELL_PERCENT, 0 },
	{ "saves_lo_ns", "at least", PL_CELL_NS, 0 }, { "saves_hi_ns", "at most", PL_CELL_NS, 0 },
	{ "change", "change", PL_CELL_STR, 76 },
};

static int64_t some_rank(int32_t rank)
{
	return rank < 0 ? INT64_MIN : rank;
}

/* An end of the interval of the step's prediction, as far from it as the mean's. */
static pl_ns bound(const struct step_row *s, double away_ns)
{
	return s->predicted == INT64_MIN ? INT64_MIN
					 : pl_max_i64(s->predicted + (pl_ns)llround(away_ns), 0);
}

static size_t fill_steps(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_steps && i < top; i++) {
		const struct step_row *s = &r->step[i];

		pl_table_row(t, s->number, s->recorded, s->period, s->replayed, s->error,
			     s->predicted, bound(s, low_ns(r, r->trust.low, (double)s->replayed)),
			     bound(s, high_ns(r, r->trust.high, (double)s->replayed)));
	}
	return r->n_steps;
}

static size_t fill_estimated(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_steps && i < top; i++) {
		const struct step_row *s = &r->step[i];

		pl_table_row(t, s->number, s->recorded, s->period, s->replayed, s->error,
			     s->replayed_lo, s->replayed_hi);
	}
	return r->n_steps;
}

static size_t fill_ranks(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->account.n_ranks && i < top; i++) {
		const struct pl_rank_time *x = &r->account.rank[i];

		pl_table_row(t, (int64_t)x->rank, x->span_ns, x->compute_ns, x->comm_overlapped_ns,
			     x->comm_exposed_ns, x->copy_ns, x->host_ns, x->unexplained_ns,
			     x->idle_ns[PL_I_WAIT], x->idle_ns[PL_I_LAUNCH], x->idle_ns[PL_I_TAIL],
			     some_rank(x->waits_for), x->waits_for_ns, x->awaited_ns);
	}
	return r->account.n_ranks;
}

/* Without those, at the end, that only hand on times. */
static size_t fill_resources(const struct report *r, size_t top, struct pl_table *t)
{
	size_t n = r->account.n_res;

	while (n && pl_graph_hands_on(&r->g, r->account.res[n - 1].res))
		n--;
	for (size_t i = 0; i < n && i < top; i++) {
		const struct pl_res_time *x = &r->account.res[i];
		const struct pl_resource *res = &r->g.res[x->res];

		pl_table_row(t, some_rank(res->rank), pl_intern_get(&r->g.str, res->name),
			     pl_trace_track_type_name(res->track_type), (int64_t)x->ops,
			     x->compute_ns, x->comm_ns, x->copy_ns, x->host_ns, x->gap_ns,
			     x->wait_ns, x->unexplained_ns, x->latency_ns, x->idle_ns);
	}
	return n;
}

static size_t fill_path(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_rows && i < top; i++) {
		const struct path_row *p = &r->row[i];

		pl_table_row(t, p->share, p->ns, (int64_t)p->count, p->longest_ns, p->kind,
			     some_rank(p->rank), p->name);
	}
	return r->n_rows;
}

static size_t fill_devices_path(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_rows && i < top; i++) {
		const struct path_row *p = &r->row[i];

		pl_table_row(t, p->share, p->ns, (int64_t)p->count, p->longest_ns, p->kind,
			     some_rank(p->rank), some_rank(p->device), p->name);
	}
	return r->n_rows;
}

static size_t fill_events(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->path.n && i < top; i++) {
		const struct pl_path_item *p = &r->path.item[i];
		const struct pl_shape *sh = &r->g.shape[r->g.step[p->step].shape];
		const char *on = NULL;
		struct path_row x;

		path_item(r, p, &x);
		if (sh->res[p->node] != PL_NONE)
			on = pl_intern_get(&r->g.str, r->g.res[sh->res[p->node]].name);
		pl_table_row(t, p->start - r->path.item[0].start, p->ns, x.kind, some_rank(x.rank),
			     on, r->g.step[p->step].number, x.name);
	}
	return r->path.n;
}

static size_t fill_memory(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_memory && i < top; i++) {
		const struct memory_row *x = &r->memory[i];
		const struct pl_memory_rank *p = &x->peak;

		pl_table_row(t, (int64_t)p->rank, p->peak_bytes, p->params_bytes, p->grads_bytes,
			     p->optimizer_bytes, p->activations_bytes, p->temporaries_bytes,
			     p->buffers_bytes, p->estimated ? "yes" : "no",
			     x->at[0] ? x->at : NULL);
	}
	return r->n_memory;
}

static size_t fill_slowest(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_slow && i < top; i++) {
		const struct slow_row *x = &r->slow[i];

		pl_table_row(t, (int64_t)x->rank, x->idle_ns, x->median_idle_ns, x->why, x->idle_ns,
			     x->median_idle_ns);
	}
	return r->n_slow;
}

static size_t fill_worth(const struct report *r, size_t top, struct pl_table *t)
{
	for (size_t i = 0; i < r->n_changes && i < top; i++) {
		const struct change_row *x = &r->change[i];

		pl_table_row(t, (int64_t)llround(x->saves_ns), x->saves.share,
			     (int64_t)llround(x->saves.least * r->mean),
			     (int64_t)llround(x->saves.most * r->mean), x->change);
	}
	return r->n_changes;
}

static const struct {
	const struct pl_column *col;
	size_t n_cols;
	/* Add the rows, the first `top` at most. Returns how many there are. */
	size_t (*fill)(const struct report *r, size_t top, struct pl_table *t);
} sections[] = {
	[SEC_STEPS] = { steps, PL_LEN(steps), fill_steps },
	[SEC_RANKS] = { ranks, PL_LEN(ranks), fill_ranks },
	[SEC_RESOURCES] = { resources, PL_LEN(resources), fill_resources },
	[SEC_PATH] = { path, PL_LEN(path), fill_path },
	[SEC_DEVICES_PATH] = { devices_path, PL_LEN(devices_path), fill_devices_path },
	[SEC_EVENTS] = { events, PL_LEN(events), fill_events },
	[SEC_MEMORY] = { memory, PL_LEN(memory), fill_memory },
	[SEC_SLOWEST] = { slowest, PL_LEN(slowest), fill_slowest },
	[SEC_WORTH] = { worth, PL_LEN(worth), fill_worth },
	[SEC_RECORDED_STEPS] = { steps, PL_LEN(steps) - 3, fill_steps },
	[SEC_ESTIMATED_STEPS] = { estimated, PL_LEN(estimated), fill_estimated },
};

size_t make_table(const struct report *r, enum section which, int64_t top, struct pl_table *t)
{
	if (which == SEC_STEPS && r->estimated)
		which = SEC_ESTIMATED_STEPS;
	if (which == SEC_PATH && r->devices)
		which = SEC_DEVICES_PATH;
	*t = (struct pl_table){ .col = sections[which].col, .n_cols = sections[which].n_cols };
	return sections[which].fill(r, top > 0 ? (size_t)top : SIZE_MAX, t);
}

#define PART(member, ...)                                                                          \
	{                                                                                          \
		offsetof(struct pl_rank_time, member), __VA_ARGS__                                 \
	}
const struct rank_part rank_parts[PARTS] = {
	PART(compute_ns, "compute", "computation", "32", '#', "computes", PL_RO_COMPUTE),
	PART(comm_overlapped_ns, "+comm", "overlapped communication", "36", '+', NULL, PL_RO_NONE),
	PART(comm_exposed_ns, "comm", "exposed communication", "34", '=',
	     "spends in exposed communication", PL_RO_TRANSFER),
	PART(copy_ns, "copy", "copies", "35", 'c', "copies", PL_RO_COPY),
	PART(host_ns, "host", "host", "33", 'h', "waits for its host thread", PL_RO_HOST),
	PART(unexplained_ns, "unexpl", "unexplained", "31", '?', "has unexplained time of",
	     PL_RO_NONE),
	PART(idle_ns[PL_I_WAIT], "wait", "waiting for other ranks", "37", 'w', NULL, PL_RO_NONE),
	PART(idle_ns[PL_I_LAUNCH], "launch", "launch latency", "33", 'l', "waits for launches",
	     PL_RO_NONE),
	PART(idle_ns[PL_I_TAIL], "nothing", "nothing to do", "90", '.', NULL, PL_RO_NONE),
};

pl_ns rank_part(const struct pl_rank_time *t, int i)
{
	return *(const pl_ns *)((const char *)t + rank_parts[i].offset);
}

pl_ns rank_idle(const struct pl_rank_time *t)
{
	return t->idle_ns[PL_I_WAIT] + t->idle_ns[PL_I_TAIL];
}
