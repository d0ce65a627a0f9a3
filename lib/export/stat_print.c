/*
 * The tables of the summary. Bandwidth is that of nccl-tests (doc/PERFORMANCE.md): algorithm
 * bandwidth is size / time. Bus bandwidth is that times 2(n-1)/n for an all-reduce, (n-1)/n for
 * all-gather, reduce-scatter and all-to-all, 1 for others, so it compares with hardware for any n.
 */
#include <math.h>
#include <stdlib.h>

#include "export/stat.h"

#define MAX_NAME 60

static const char *name_of(const struct stat *s, pl_id id)
{
	return pl_intern_get(&s->names, id);
}

static size_t limit(const struct stat *s, size_t n)
{
	return s->x.o.top > 0 ? pl_min_size(n, (size_t)s->x.o.top) : n;
}

/* ---- overview -------------------------------------------------------------------------------- */

static const struct pl_column kinds_cols[] = {
	{ "kind", "kind", PL_CELL_STR, 0 },
	{ "events", "events", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
};

static void kinds(void *report, struct pl_table *t)
{
	struct stat *s = report;

	for (unsigned k = 0; k < 256; k++)
		if (s->kind_n[k])
			pl_table_row(t, pl_trace_kind_name(k), s->kind_n[k], s->kind_ns[k]);
}

static int by_rank(const void *pa, const void *pb)
{
	const struct stat_rank *a = pa, *b = pb;
	int64_t ka = a->key < 0 ? INT64_MAX + a->key : a->key;
	int64_t kb = b->key < 0 ? INT64_MAX + b->key : b->key;

	return ka == kb ? PL_COMPARE(a->number, b->number) : ka < kb ? -1 : 1;
}

static const struct pl_column ranks_cols[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "on", "on", PL_CELL_STR, 0 },
	{ "span_ns", "span", PL_CELL_NS, 0 },
	{ "busy_ns", "busy", PL_CELL_NS, 0 },
	{ "busy_share", "busy %", PL_CELL_PERCENT, 0 },
	{ "idle_ns", "idle", PL_CELL_NS, 0 },
	{ "compute_ns", "compute", PL_CELL_NS, 0 },
	{ "comm_ns", "comm", PL_CELL_NS, 0 },
	{ "comm_exposed_ns", "exposed", PL_CELL_NS, 0 },
	{ "comm_overlapped_ns", "overlapped", PL_CELL_NS, 0 },
	{ "copy_ns", "copy", PL_CELL_NS, 0 },
};

static void ranks(void *report, struct pl_table *t)
{
	struct stat *s = report;

	pl_sort(s->rank, s->n_ranks, sizeof(*s->rank), by_rank);
	for (size_t i = 0; i < s->n_ranks; i++) {
		const struct stat_rank *r = &s->rank[i];
		int64_t span = pl_sub_sat(r->t1, r->t0);
		char number[24];

		if (r->t1 < r->t0) /* no events */
			continue;
		snprintf(number, sizeof(number), "device %d", r->number);
		pl_table_row(t, r->rank < 0 ? INT64_MIN : (int64_t)r->rank,
			     r->number >= 0 ? number
			     : r->device    ? "device"
					    : "host",
			     span, r->busy, span > 0 ? (double)r->busy / (double)span : 0.0,
			     pl_sub_sat(span, r->busy), r->compute_ns, r->comm_ns, r->exposed_ns,
			     r->overlapped_ns, r->copy_ns);
	}
}

PL_COMPARATOR(by_step, struct stat_step, step, rank, dur);

static const struct pl_column steps_cols[] = {
	{ "step", "step", PL_CELL_I64, 0 },   { "count", "ranks", PL_CELL_I64, 0 },
	{ "mean_ns", "mean", PL_CELL_NS, 0 }, { "min_ns", "min", PL_CELL_NS, 0 },
	{ "max_ns", "max", PL_CELL_NS, 0 },   { "slowest", "slowest", PL_CELL_I64, 0 },
};

static void steps(void *report, struct pl_table *t)
{
	struct stat *s = report;

	pl_sort(s->step, s->n_steps, sizeof(*s->step), by_step);
	for (size_t i = 0, j; i < s->n_steps; i = j) {
		int64_t sum = 0, min = s->step[i].dur, max = min, slowest = s->step[i].rank;

		for (j = i; j < s->n_steps && s->step[j].step == s->step[i].step; j++) {
			sum = pl_add_sat(sum, s->step[j].dur);
			min = pl_min_i64(min, s->step[j].dur);
			if (s->step[j].dur > max) {
				max = s->step[j].dur;
				slowest = s->step[j].rank;
			}
		}
		pl_table_row(t, s->step[i].step < 0 ? INT64_MIN : s->step[i].step, (int64_t)(j - i),
			     sum / (int64_t)(j - i), min, max, slowest < 0 ? INT64_MIN : slowest);
	}
}

/* ---- sums by name ---------------------------------------------------------------------------- */

/* Sort rows with equal times by name. */
static int by_name(const struct stat_agg *a, const struct stat_agg *b, const struct stat *s)
{
	int c = strcmp(name_of(s, a->name), name_of(s, b->name));

	return c ? c : a->kind - b->kind;
}

static int by_self(const void *pa, const void *pb, void *s)
{
	const struct stat_agg *a = pa, *b = pb;

	return a->self != b->self ? (a->self > b->self ? -1 : 1) : by_name(a, b, s);
}

static int by_total(const void *pa, const void *pb, void *s)
{
	const struct stat_agg *a = pa, *b = pb;

	return a->total != b->total ? (a->total > b->total ? -1 : 1) : by_name(a, b, s);
}

static const struct pl_column host_ops_cols[] = {
	{ "name", "name", PL_CELL_STR, MAX_NAME },	{ "kind", "kind", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },		{ "self_ns", "self", PL_CELL_NS, 0 },
	{ "self_share", "self %", PL_CELL_PERCENT, 0 }, { "total_ns", "total", PL_CELL_NS, 0 },
	{ "mean_ns", "mean", PL_CELL_NS, 0 },		{ "max_ns", "max", PL_CELL_NS, 0 },
};

static void host_ops(void *report, struct pl_table *t)
{
	struct stat *s = report;
	struct stat_table *h = &s->table[S_HOST];
	int64_t all = 0;

	for (size_t i = 0; i < h->key.n; i++)
		all = pl_add_sat(all, h->v[i].self);
	if (h->key.n)
		qsort_r(h->v, h->key.n, sizeof(*h->v), by_self, s);
	for (size_t i = 0; i < limit(s, h->key.n); i++) {
		const struct stat_agg *a = &h->v[i];

		pl_table_row(t, name_of(s, a->name), pl_trace_kind_name(a->kind), a->n, a->self,
			     all > 0 ? (double)a->self / (double)all : 0.0, a->total,
			     a->total / a->n, a->max);
	}
}

static const struct pl_column runtime_cols[] = {
	{ "name", "name", PL_CELL_STR, MAX_NAME }, { "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },	   { "mean_ns", "mean", PL_CELL_NS, 0 },
	{ "max_ns", "max", PL_CELL_NS, 0 },
};

static void runtime(void *report, struct pl_table *t)
{
	struct stat *s = report;
	struct stat_table *h = &s->table[S_RUNTIME];

	if (h->key.n)
		qsort_r(h->v, h->key.n, sizeof(*h->v), by_total, s);
	for (size_t i = 0; i < limit(s, h->key.n); i++)
		pl_table_row(t, name_of(s, h->v[i].name), h->v[i].n, h->v[i].total,
			     h->v[i].total / h->v[i].n, h->v[i].max);
}

static int64_t device_busy(const struct stat *s)
{
	int64_t busy = 0;

	for (size_t i = 0; i < s->n_ranks; i++)
		if (s->rank[i].device && s->rank[i].number < 0)
			busy = pl_add_sat(busy, s->rank[i].busy);
	return busy;
}

static const struct pl_column kernels_cols[] = {
	{ "name", "name", PL_CELL_STR, MAX_NAME },
	{ "kind", "kind", PL_CELL_STR, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
	{ "busy_share", "of busy %", PL_CELL_PERCENT, 0 },
	{ "mean_ns", "mean", PL_CELL_NS, 0 },
	{ "max_ns", "max", PL_CELL_NS, 0 },
};

static void kernels(void *report, struct pl_table *t)
{
	struct stat *s = report;
	struct stat_table *h = &s->table[S_KERNEL];
	int64_t busy = device_busy(s);

	if (h->key.n)
		qsort_r(h->v, h->key.n, sizeof(*h->v), by_total, s);
	for (size_t i = 0; i < limit(s, h->key.n); i++) {
		const struct stat_agg *a = &h->v[i];

		pl_table_row(t, name_of(s, a->name), pl_trace_kind_name(a->kind), a->n, a->total,
			     busy > 0 ? (double)a->total / (double)busy : 0.0, a->total / a->n,
			     a->max);
	}
}

static const struct pl_column copies_cols[] = {
	{ "name", "name", PL_CELL_STR, MAX_NAME }, { "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },	   { "bytes", "bytes", PL_CELL_BYTES, 0 },
	{ "gb_per_s", "GB/s", PL_CELL_REAL, 0 },   { "mean_ns", "mean", PL_CELL_NS, 0 },
	{ "max_ns", "max", PL_CELL_NS, 0 },
};

static void copies(void *report, struct pl_table *t)
{
	struct stat *s = report;
	struct stat_table *h = &s->table[S_COPY];

	if (h->key.n)
		qsort_r(h->v, h->key.n, sizeof(*h->v), by_total, s);
	for (size_t i = 0; i < limit(s, h->key.n); i++) {
		const struct stat_agg *a = &h->v[i];

		pl_table_row(t, name_of(s, a->name), a->n, a->total,
			     a->sized_ns > 0 ? a->bytes : INT64_MIN,
			     a->sized_ns > 0 ? (double)a->bytes / (double)a->sized_ns : (double)NAN,
			     a->total / a->n, a->max);
	}
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Bus bandwidth over algorithm bandwidth; 0: the operation moves no data. */
static double bus_factor(const char *coll, int64_t n)
{
	double share = n > 1 ? (double)(n - 1) / (double)n : 0;

	if (!strcmp(coll, "barrier") || !strcmp(coll, "rendezvous"))
		return 0;
	if (!strcmp(coll, "allreduce"))
		return 2 * share;
	if (!strcmp(coll, "allgather") || !strcmp(coll, "reduce_scatter") ||
	    !strcmp(coll, "alltoall") || !strcmp(coll, "gather") || !strcmp(coll, "scatter"))
		return share;
	return 1;
}

static int by_class(const void *pa, const void *pb, void *arg)
{
	const struct stat_sample *a = pa, *b = pb;
	const struct stat *s = arg;
	int c = a->coll == b->coll ? 0 : strcmp(name_of(s, a->coll), name_of(s, b->coll));

	if (c)
		return c;
	if (a->n != b->n)
		return a->n < b->n ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	if (a->recorded != b->recorded)
		return a->recorded - b->recorded;
	return a->ns < b->ns ? -1 : a->ns > b->ns;
}

struct class
{
	const struct stat_sample *v; /* sorted by time */
	size_t n;
	int64_t total;
};

PL_COMPARATOR_FALLING(by_class_total, struct class, total, v);

static int classes(struct stat *s, struct class **out, size_t *n, struct pl_err *err)
{
	struct class *v;
	int rc = pl_alloc(&v, s->n_samples + 1, sizeof(*v), err);

	*n = 0;
	*out = NULL;
	if (rc < 0)
		return rc;
	if (s->n_samples)
		qsort_r(s->sample, s->n_samples, sizeof(*s->sample), by_class, s);
	for (size_t i = 0; i < s->n_samples; i++) {
		const struct stat_sample *a = &s->sample[i];
		const struct stat_sample *p = i ? a - 1 : NULL;

		if (!p || p->coll != a->coll || p->n != a->n || p->bytes != a->bytes ||
		    p->recorded != a->recorded)
			v[(*n)++] = (struct class){ a, 0, 0 };
		v[*n - 1].n++;
		v[*n - 1].total = pl_add_sat(v[*n - 1].total, a->ns);
	}
	pl_sort(v, *n, sizeof(*v), by_class_total);
	*out = v;
	return 0;
}

static const struct pl_column collectives_cols[] = {
	{ "collective", "collective", PL_CELL_STR, MAX_NAME },
	{ "size_bytes", "size", PL_CELL_BYTES, 0 },
	{ "group_size", "ranks", PL_CELL_I64, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "total_ns", "total", PL_CELL_NS, 0 },
	{ "min_ns", "min", PL_CELL_NS, 0 },
	{ "median_ns", "median", PL_CELL_NS, 0 },
	{ "max_ns", "max", PL_CELL_NS, 0 },
	{ "algbw_gb_per_s", "algbw GB/s", PL_CELL_REAL, 0 },
	{ "busbw_gb_per_s", "busbw GB/s", PL_CELL_REAL, 0 },
	{ "time", "time", PL_CELL_STR, 0 },
};

static void collectives(void *report, struct pl_table *t)
{
	struct stat *s = report;
	struct class *v = NULL;
	size_t n = 0;

	if (classes(s, &v, &n, &t->fail) < 0)
		return;
	for (size_t i = 0; i < limit(s, n); i++) {
		const struct stat_sample *a = v[i].v;
		int64_t median = a[(v[i].n - 1) / 2].ns;
		double f = bus_factor(name_of(s, a->coll), a->n);
		double bw = a->bytes > 0 && median > 0 && f > 0 ? (double)a->bytes / (double)median
								: /* bytes by ns: GB/s */
				    (double)NAN;

		pl_table_row(t, name_of(s, a->coll), a->bytes < 0 ? INT64_MIN : a->bytes, a->n,
			     (int64_t)v[i].n, v[i].total, a->ns, median, a[v[i].n - 1].ns, bw,
			     bw * f, a->recorded ? "recorded" : "transfer");
	}
	pl_free(v);
}

/* ---- memory ---------------------------------------------------------------------------------- */

PL_COMPARATOR(by_device, struct stat_memory, rank, type, device);

static const struct pl_column memory_cols[] = {
	{ "rank", "rank", PL_CELL_I64, 0 },
	{ "device_type", "device type", PL_CELL_I64, 0 },
	{ "device", "device", PL_CELL_I64, 0 },
	{ "allocations", "allocations", PL_CELL_I64, 0 },
	{ "frees", "frees", PL_CELL_I64, 0 },
	{ "allocated_bytes", "allocated", PL_CELL_BYTES, 0 },
	{ "freed_bytes", "freed", PL_CELL_BYTES, 0 },
	{ "peak_bytes", "peak in use", PL_CELL_BYTES, 0 },
	{ "reserved_bytes", "peak reserved", PL_CELL_BYTES, 0 },
};

static void memory(void *report, struct pl_table *t)
{
	struct stat *s = report;

	pl_sort(s->memory, s->n_memory, sizeof(*s->memory), by_device);
	for (size_t i = 0; i < s->n_memory; i++) {
		const struct stat_memory *m = &s->memory[i];

		pl_table_row(t, m->rank < 0 ? INT64_MIN : m->rank, m->type, m->device, m->allocs,
			     m->frees, m->allocated, m->freed, m->peak, m->reserved);
	}
}

/* ---- together -------------------------------------------------------------------------------- */

#define SECTION(name, title)                                                                       \
	{                                                                                          \
#name, title, name##_cols, PL_LEN(name##_cols), name                               \
	}
static const struct pl_table_section sections[] = {
	SECTION(kinds, "events by kind"),
	SECTION(steps, "steps"),
	SECTION(ranks, "ranks: time of the device (or of the host, where there is none)"),
	SECTION(host_ops, "host operations by self time"),
	SECTION(runtime, "runtime calls"),
	SECTION(kernels, "kernels"),
	SECTION(copies, "copies and sets"),
	SECTION(collectives, "communication"),
	SECTION(memory, "memory"),
};

/* The first and last time of all ranks; false: no rank has times. */
static bool overall(const struct stat *s, int64_t *span, int64_t *n)
{
	pl_ns t0 = INT64_MAX, t1 = INT64_MIN;

	*n = 0;
	for (size_t i = 0; i < s->n_ranks; i++) {
		if (s->rank[i].t1 < s->rank[i].t0 || s->rank[i].number >= 0)
			continue;
		*n += s->rank[i].rank >= 0;
		t0 = pl_min_i64(t0, s->rank[i].t0);
		t1 = pl_max_i64(t1, s->rank[i].t1);
	}
	*span = t1 < t0 ? 0 : pl_sub_sat(t1, t0);
	return t1 >= t0;
}

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

void pl_export_stat_text(struct stat *s)
{
	struct pl_writer *w = &s->x.t;
	char span_text[32];
	int64_t span, n, segs = s->x.merge.n_segs;
	bool any = overall(s, &span, &n);

	pl_write_format(w, "%lld events in %lld segment%s; ", (long long)s->n_events,
			(long long)segs, plural(segs));
	if (n)
		pl_write_format(w, "%lld rank%s", (long long)n, plural(n));
	else
		pl_write_text(w, "rank unknown");
	if (s->world > 0)
		pl_write_format(w, " of %lld", (long long)s->world);
	if (s->hosts.n)
		pl_write_format(w, " on %zu host%s", s->hosts.n, plural((int64_t)s->hosts.n));
	if (any)
		pl_write_format(w, "; span %s", pl_fmt_ns(span_text, sizeof(span_text), span));
	pl_write_format(w, "%s%s\n",
			s->merged  ? "; on one clock"
			: segs > 1 ? "; clocks as recorded"
				   : "",
			s->inferred ? ", groups inferred" : "");
	pl_table_sections_text(sections, PL_LEN(sections), s, 0, "", w);
}

void pl_export_stat_json_text(struct stat *s)
{
	struct pl_writer *w = &s->x.t;
	int64_t span, n;

	overall(s, &span, &n);
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.stat/1");
	pl_json_int(w, "events", s->n_events);
	pl_json_int(w, "segments", s->x.merge.n_segs);
	pl_json_int(w, "n_ranks", n);
	if (s->world > 0)
		pl_json_int(w, "world_size", s->world);
	pl_json_int(w, "span_ns", span);
	pl_json_bool(w, "merged", s->merged);
	pl_json_key(w, "hosts");
	pl_json_open(w, '[');
	for (size_t i = 0; i < s->hosts.n; i++)
		pl_json_put_str(w, s->hosts.str[i], s->hosts.len[i]);
	pl_json_close(w);
	pl_table_sections_json(sections, PL_LEN(sections), s, w);
	pl_json_close(w);
	pl_write_char(w, '\n');
}
