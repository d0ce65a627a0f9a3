/*
 * Comparison of two jobs: the step, where it changed and why (places.c), the classes of time, the
 * operations, the ranks.
 *
 * Operations are compared by name. The contribution of an operation to the difference of the steps
 * is the change of its time on the critical path. The contributions sum to the difference of the
 * paths. The report also shows the count of each operation, its total over all ranks and its mean.
 * They show whether there is more work, slower work, or work that is new on the path. All times are
 * per step. The difference of the steps has an interval, by how much the steps of each job differ.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "program.h"
#include "report/html.h"

#define SMALL 0.002 /* of a step: a smaller difference gets no sentence */

struct job_totals {
	double count, total, path; /* a step */
};
struct op_row {
	const char *name, *kind;
	struct job_totals v[2];
};
struct diff {
	const struct report *r[2];
	double half;	     /* of the 90 % interval of the difference; NAN: a job has one step */
	const char *path[2]; /* of the graphs */
	struct op_row *op;
	size_t n, cap;
	struct pl_intern names; /* "kind\0name": row */
	struct place *place;
	size_t n_places;
	struct pl_intern place_texts;
};

/* ---- the steps ------------------------------------------------------------------------------- */

/* How much the steps of a job differ, by the measure that r->mean is of. Returns how many there
 * are. */
static size_t scatter(const struct report *r, double *deviation)
{
	double mean = 0, squares = 0;
	int64_t number = INT64_MIN;
	pl_ns from = 0;
	size_t n = 0;

	for (size_t k = 0; k < r->g.n_steps; k++) {
		bool follows = number != INT64_MIN && r->g.step[k].number == number + 1;
		double x, away;

		if (!pl_sim_reported(r->s, k))
			continue;
		from = r->by_period ? from : r->run.step_start[k];
		x = (double)(r->run.step_end[k] - from);
		from = r->run.step_end[k];
		number = r->g.step[k].number;
		if (r->by_period && !follows)
			continue;
		away = x - mean;
		mean += away / (double)++n;
		squares += away * (x - mean);
	}
	*deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
	return n;
}

static void find_half(struct diff *d)
{
	double deviation[2];
	size_t n[2];

	for (int job = 0; job < 2; job++)
		n[job] = scatter(d->r[job], &deviation[job]);
	d->half = pl_selftest_half_difference(deviation[0], n[0], deviation[1], n[1]);
}

static double difference(const struct diff *d)
{
	return d->r[1]->mean - d->r[0]->mean;
}

/* Does the interval hold 0? */
static bool may_be_chance(const struct diff *d)
{
	return isfinite(d->half) && fabs(difference(d)) <= d->half;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int row_of(struct diff *d, const char *kind, const char *name, struct op_row **row,
		  struct pl_err *err)
{
	struct pl_buf key = { 0 };
	size_t before = d->names.n;
	pl_id id;
	int rc;

	PL_TRY(pl_buf_put(&key, kind, strlen(kind) + 1, err));
	PL_TRY(pl_buf_put(&key, name, strlen(name), err));
	PL_TRY(pl_intern_add(&d->names, (const char *)key.p, key.n, &id, err));
	if (id == before) {
		struct op_row x = { .kind = pl_intern_get(&d->names, id) };

		x.name = x.kind + strlen(kind) + 1;
		PL_TRY(pl_append(&d->op, &d->n, &d->cap, &x, sizeof(x), err));
	}
	*row = &d->op[id];
out:
	pl_buf_fini(&key);
	return rc;
}

/* Totals of one job: first by (name, kind, role) number, then into the rows. */
static int add_totals(struct diff *d, int job, struct pl_err *err)
{
	const struct report *r = d->r[job];
	const struct pl_graph *g = &r->g;
	double n = (double)r->n_steps;
	size_t kinds = PL_K_COUNT_ + 1;
	struct job_totals *sum;
	int rc = 0;

	PL_CHECK(pl_alloc(&sum, g->str.n * kinds, sizeof(*sum), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && pl_sim_reported(r->s, k); i++) {
			size_t at;

			if (sh->res[i] == PL_NONE || sh->name[i] >= g->str.n ||
			    sh->role[i] == PL_RO_MARK || sh->role[i] == PL_RO_ARRIVE ||
			    sh->kind[i] >= PL_K_COUNT_)
				continue;
			at = sh->name[i] * kinds +
			     (sh->role[i] == PL_RO_GAP ? PL_K_COUNT_ : sh->kind[i]);
			sum[at].total += (double)pl_sim_run_dur(r->s, &r->run, k, i);
			if (sh->role[i] != PL_RO_SYNC) /* the rest of a call counted before */
				sum[at].count++;
		}
	}
	for (size_t at = 0; at < g->str.n * kinds; at++) {
		struct op_row *row;

		if (sum[at].count < 1)
			continue;
		PL_TRY(row_of(d, at % kinds == PL_K_COUNT_ ? "gap" : pl_trace_kind_name(at % kinds),
			      pl_intern_get(&g->str, (pl_id)(at / kinds)), &row, err));
		row->v[job].count += sum[at].count / n;
		row->v[job].total += sum[at].total / n;
	}
out:
	pl_free(sum);
	return rc;
}

static int add_path(struct diff *d, int job, struct pl_err *err)
{
	const struct report *r = d->r[job];
	struct op_row *row;

	for (size_t i = 0; i < r->n_rows; i++) {
		const struct path_row *p = &r->row[i];

		PL_CHECK(row_of(d, p->kind, p->name, &row, err));
		row->v[job].path += (double)p->ns / (double)r->n_steps;
	}
	return 0;
}

static double gain(const struct op_row *x)
{
	return x->v[1].path - x->v[0].path;
}

static int by_contribution(const void *pa, const void *pb)
{
	const struct op_row *a = pa, *b = pb;
	int c = PL_COMPARE(fabs(gain(b)), fabs(gain(a)));

	c = c ? c
	      : PL_COMPARE(fabs(b->v[1].total - b->v[0].total),
			   fabs(a->v[1].total - a->v[0].total));
	c = c ? c : strcmp(a->name, b->name);
	return c ? c : strcmp(a->kind, b->kind);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int64_t whole(double ns)
{
	return isfinite(ns) ? (int64_t)llround(ns) : INT64_MIN;
}

/* In text without the two columns whose difference the first one is: a line has 100 characters. */
static void op_table(const struct diff *d, bool text, size_t top, struct pl_table *t)
{
	static const struct pl_column col[] = {
		{ "a_path_ns", "path A", PL_CELL_NS, 0 },
		{ "b_path_ns", "path B", PL_CELL_NS, 0 },
		{ "contribution_ns", "contrib.", PL_CELL_NS, 0 },
		{ "a_count", "count A", PL_CELL_REAL, 0 },
		{ "b_count", "B", PL_CELL_REAL, 0 },
		{ "a_total_ns", "total A", PL_CELL_NS, 0 },
		{ "b_total_ns", "B", PL_CELL_NS, 0 },
		{ "a_mean_ns", "mean A", PL_CELL_NS, 0 },
		{ "b_mean_ns", "B", PL_CELL_NS, 0 },
		{ "kind", "kind", PL_CELL_STR, 10 },
		{ "name", "operation", PL_CELL_STR, 24 },
	};
	size_t skip = text ? 2 : 0;

	*t = (struct pl_table){ .col = col + skip, .n_cols = PL_LEN(col) - skip };
	for (size_t i = 0; i < d->n && (!top || i < top); i++) {
		const struct op_row *x = &d->op[i];
		const struct job_totals *a = &x->v[0], *b = &x->v[1];
		int64_t mean[2] = { whole(a->count > 0 ? a->total / a->count : NAN),
				    whole(b->count > 0 ? b->total / b->count : NAN) };

		if (text)
			pl_table_row(t, whole(gain(x)), a->count, b->count, whole(a->total),
				     whole(b->total), mean[0], mean[1], x->kind, x->name);
		else
			pl_table_row(t, whole(a->path), whole(b->path), whole(gain(x)), a->count,
				     b->count, whole(a->total), whole(b->total), mean[0], mean[1],
				     x->kind, x->name);
	}
}

static void place_table(const struct diff *d, bool text, size_t top, struct pl_table *t)
{
	static const struct pl_column col[] = {
		{ "a_path_ns", "path A", PL_CELL_NS, 0 },
		{ "b_path_ns", "path B", PL_CELL_NS, 0 },
		{ "contribution_ns", "contrib.", PL_CELL_NS, 0 },
		{ "a_count", "count A", PL_CELL_REAL, 0 },
		{ "b_count", "B", PL_CELL_REAL, 0 },
		{ "a_rank_ns", "a rank A", PL_CELL_NS, 0 },
		{ "b_rank_ns", "B", PL_CELL_NS, 0 },
		{ "phase", "phase", PL_CELL_STR, 15 },
		{ "module", "module", PL_CELL_STR, 20 },
		{ "operator", "operator", PL_CELL_STR, 16 },
		{ "why", "why", PL_CELL_STR, 0 },
	};

	*t = (struct pl_table){ .col = col, .n_cols = PL_LEN(col) - text };
	for (size_t i = 0; i < d->n_places && (!top || i < top); i++) {
		const struct place *p = &d->place[i];
		char why[400];

		place_reason(p, why, sizeof(why));
		pl_table_row(t, whole(p->path[0]), whole(p->path[1]),
			     whole(p->path[1] - p->path[0]), p->count[0], p->count[1],
			     whole(p->total[0]), whole(p->total[1]), pl_graph_phase_name(p->phase),
			     p->module, p->op, why);
	}
}

static double class_of(const struct report *r, const struct pl_rank_time *t, int i)
{
	return (double)rank_part(t, i) / (double)r->n_steps;
}

static void class_table(const struct diff *d, struct pl_table *t)
{
	static const struct pl_column col[] = {
		{ "class", "mean of the ranks", PL_CELL_STR, 0 },
		{ "a_ns", "A", PL_CELL_NS, 0 },
		{ "b_ns", "B", PL_CELL_NS, 0 },
		{ "difference_ns", "B - A", PL_CELL_NS, 0 },
	};

	*t = (struct pl_table)PL_TABLE(col);
	for (int i = 0; i < PARTS; i++) {
		double v[2] = { 0, 0 };

		for (int s = 0; s < 2; s++)
			for (size_t k = 0; k < d->r[s]->account.n_ranks; k++)
				v[s] += class_of(d->r[s], &d->r[s]->account.rank[k], i) /
					(double)d->r[s]->account.n_ranks;
		pl_table_row(t, rank_parts[i].name, whole(v[0]), whole(v[1]), whole(v[1] - v[0]));
	}
}

static const struct pl_rank_time *rank_of(const struct report *r, int32_t rank)
{
	for (size_t i = 0; i < r->account.n_ranks; i++)
		if (r->account.rank[i].rank == rank)
			return &r->account.rank[i];
	return NULL;
}

static void rank_table(const struct diff *d, size_t top, struct pl_table *t)
{
	static const struct pl_column col[] = {
		{ "rank", "rank", PL_CELL_I64, 0 },
		{ "a_compute_ns", "compute A", PL_CELL_NS, 0 },
		{ "b_compute_ns", "B", PL_CELL_NS, 0 },
		{ "a_comm_exposed_ns", "comm A", PL_CELL_NS, 0 },
		{ "b_comm_exposed_ns", "B", PL_CELL_NS, 0 },
		{ "a_host_ns", "host A", PL_CELL_NS, 0 },
		{ "b_host_ns", "B", PL_CELL_NS, 0 },
		{ "a_wait_ns", "wait A", PL_CELL_NS, 0 },
		{ "b_wait_ns", "B", PL_CELL_NS, 0 },
	};
	const struct pl_account *a[2] = { &d->r[0]->account, &d->r[1]->account };

	*t = (struct pl_table)PL_TABLE(col);
	for (size_t i = 0, k = 0; i < a[0]->n_ranks || k < a[1]->n_ranks;) {
		int32_t ra = i < a[0]->n_ranks ? a[0]->rank[i].rank : INT32_MAX;
		int32_t rb = k < a[1]->n_ranks ? a[1]->rank[k].rank : INT32_MAX;
		int32_t rank = ra < rb ? ra : rb;
		int64_t v[8];

		if (top && t->n_rows == top)
			break;
		i += ra == rank;
		k += rb == rank;
		for (int s = 0; s < 2; s++) {
			const struct pl_rank_time *x = rank_of(d->r[s], rank);

			v[s] = whole(x ? class_of(d->r[s], x, PART_COMPUTE) +
						     class_of(d->r[s], x, PART_OVERLAPPED)
				       : NAN);
			v[2 + s] = whole(x ? class_of(d->r[s], x, PART_EXPOSED) : NAN);
			v[4 + s] = whole(x ? class_of(d->r[s], x, PART_HOST) : NAN);
			v[6 + s] = whole(x ? class_of(d->r[s], x, PART_WAIT) : NAN);
		}
		pl_table_row(t, (int64_t)rank, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
	}
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_side(struct pl_writer *w, const char *key, const char *path,
		       const struct report *r)
{
	pl_json_key(w, key);
	pl_json_open(w, '{');
	pl_json_str(w, "file", path);
	pl_json_int(w, "steps", (int64_t)r->n_steps);
	pl_json_int(w, "ranks", r->g.n_ranks);
	pl_json_real(w, "recorded_mean_ns", r->recorded_mean);
	pl_json_real(w, "step_mean_ns", r->mean);
	pl_json_bool(w, "by_period", r->by_period);
	pl_json_real(w, "unexplained_share", r->unexplained_share);
	put_trust(w, r);
	pl_json_close(w);
}

enum { CLASSES, PLACES, OPERATIONS, RANKS, TABLES };

static void as_json(const struct diff *d, const struct pl_table *t, struct pl_writer *w)
{
	static const char *const key[TABLES] = { "classes", "places", "operations", "ranks" };

	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.replay-difference/1");
	print_side(w, "a", d->path[0], d->r[0]);
	print_side(w, "b", d->path[1], d->r[1]);
	put_changes(w, d->r[0]->changes);
	pl_json_real(w, "difference_ns", difference(d));
	pl_json_real(w, "difference_lo_ns", difference(d) - d->half);
	pl_json_real(w, "difference_hi_ns", difference(d) + d->half);
	if (isfinite(d->half))
		pl_json_bool(w, "may_be_chance", may_be_chance(d));
	for (int i = 0; i < TABLES; i++) {
		pl_json_key(w, key[i]);
		pl_table_json(&t[i], w);
	}
	pl_json_close(w);
	pl_write_char(w, '\n');
}

/* What got slower, or faster: where and why. */
static void print_places(const struct diff *d, bool slower, const char *title, struct pl_writer *w)
{
	double least = SMALL * d->r[0]->mean;
	char ns[32], name[400], why[400];
	int n = 0;

	for (size_t i = 0; i < d->n_places && n < 5; i++) {
		const struct place *p = &d->place[i];
		double x = p->path[1] - p->path[0];

		if ((slower ? x : -x) <= least)
			continue;
		if (!n++)
			pl_write_format(w, "\n%s\n", title);
		place_name(p, name, sizeof(name));
		place_reason(p, why, sizeof(why));
		pl_write_format(w, "%s%s  %s\n     %s\n", slower ? "+" : "",
				fmt_ns(ns, sizeof(ns), x), name, why);
	}
}

static void print_interval(const struct diff *d, struct pl_writer *w)
{
	double a = d->r[0]->mean, least = difference(d) - d->half, most = difference(d) + d->half;
	char t0[32], t1[32], text[240];

	if (!isfinite(d->half) || !(a > 0))
		return;
	snprintf(text, sizeof(text), "%s%s to %s%s (%+.1f to %+.1f %%)%s", least > 0 ? "+" : "",
		 fmt_ns(t0, sizeof(t0), least), most > 0 ? "+" : "", fmt_ns(t1, sizeof(t1), most),
		 100 * least / a, 100 * most / a,
		 may_be_chance(d) ? ": it holds 0, so the difference may be chance, and what "
				    "follows too: record more steps"
				  : "");
	print_wrapped("90 % interval of the difference:", text, w);
}

static void as_text(const struct diff *d, const struct pl_table *t, struct pl_writer *w)
{
	double a = d->r[0]->mean, b = d->r[1]->mean;
	const struct pl_plan *changes = &d->r[0]->changes->plan;
	char ta[32], tb[32], td[32];

	pl_write_format(w, "A: %s a step%s, B: %s, difference %s (%+.2f %%)\n",
			fmt_ns(ta, sizeof(ta), a),
			d->r[0]->by_period ? " (from its start to that of the next)" : "",
			fmt_ns(tb, sizeof(tb), b), fmt_ns(td, sizeof(td), b - a),
			a > 0 ? 100 * (b - a) / a : 0);
	print_interval(d, w);
	for (int job = 0; job < 2; job++)
		pl_write_format(w, "%c is %s: %zu step%s, %d rank%s, %.1f %% unexplained\n",
				'A' + job, d->path[job], d->r[job]->n_steps,
				d->r[job]->n_steps == 1 ? "" : "s", d->r[job]->g.n_ranks,
				d->r[job]->g.n_ranks == 1 ? "" : "s",
				100 * d->r[job]->unexplained_share);
	print_trust("A: trust:", d->r[0], w);
	print_trust("B: trust:", d->r[1], w);
	for (size_t i = 0; i < changes->n_rw; i++)
		pl_write_format(w, "changed in both: %s\n", changes->rw[i].text);
	print_places(d, true, "Slower in B, a step, on the critical path", w);
	print_places(d, false, "Faster in B, a step, on the critical path", w);
	pl_write_char(w, '\n');
	pl_table_write(&t[CLASSES], w, PL_TABLE_TEXT, "Classes of time, a step");
	pl_write_char(w, '\n');
	pl_table_write(
		&t[PLACES], w, PL_TABLE_TEXT,
		"Phases, modules and operators, a step, by what they add on the critical path");
	print_rest(d->n_places, t[PLACES].n_rows, "places", w);
	pl_write_char(w, '\n');
	pl_table_write(&t[OPERATIONS], w, PL_TABLE_TEXT,
		       "Operations, a step, by what they add on the critical path");
	print_rest(d->n, t[OPERATIONS].n_rows, "operations", w);
	pl_write_char(w, '\n');
	pl_table_write(&t[RANKS], w, PL_TABLE_TEXT, "Ranks, a step");
	print_rest((size_t)pl_max_i64((int64_t)d->r[0]->account.n_ranks,
				      (int64_t)d->r[1]->account.n_ranks),
		   t[RANKS].n_rows, "ranks", w);
}

static int as_html(const struct diff *d, const struct pl_table *t, struct pl_out *out,
		   struct pl_err *err)
{
	struct pl_writer w = { 0 };
	struct pl_html page = { "Two jobs compared", &w.b, NULL };
	int rc;

	as_json(d, t, &w);
	PL_TRY(pl_write_check(&w, err));
	rc = pl_html_write(&page, out, err);
out:
	pl_write_fini(&w);
	return rc;
}

int print_difference(const struct config *c, const struct report *a, const struct report *b,
		     struct pl_out *out, struct pl_err *err)
{
	struct diff d = { .r = { a, b },
			  .path = { pl_inputs_all(&c->job[0].inputs),
				    pl_inputs_all(&c->job[1].inputs) } };
	struct pl_table t[TABLES] = { { .col = NULL } };
	size_t top = c->to == AS_TEXT ? (size_t)c->top : 0;
	struct pl_writer w;
	int rc;

	find_half(&d);
	for (int job = 0; job < 2; job++) {
		PL_TRY(add_totals(&d, job, err));
		PL_TRY(add_path(&d, job, err));
	}
	pl_sort(d.op, d.n, sizeof(*d.op), by_contribution);
	PL_TRY(find_differences(a, b, &d.place, &d.n_places, &d.place_texts, err));
	class_table(&d, &t[CLASSES]);
	place_table(&d, c->to == AS_TEXT, top, &t[PLACES]);
	op_table(&d, c->to == AS_TEXT, top, &t[OPERATIONS]);
	rank_table(&d, top ? 16 : 0, &t[RANKS]);
	pl_write_init(&w, out, 0);
	if (c->to == AS_HTML) {
		rc = as_html(&d, t, out, err);
		goto out;
	}
	if (c->to == AS_JSON)
		as_json(&d, t, &w);
	else if (c->to == AS_TEXT)
		as_text(&d, t, &w);
	else
		pl_table_write(&t[OPERATIONS], &w, table_format[c->to], NULL);
	rc = pl_write_end(&w, err);
out:
	for (int i = 0; i < TABLES; i++)
		pl_table_fini(&t[i]);
	pl_intern_fini(&d.names);
	pl_intern_fini(&d.place_texts);
	pl_free(d.place);
	pl_free(d.op);
	return rc;
}
