/*
 * Events that an XLA profile does not have: waits of threads for devices and for calls, and the
 * steps of further devices. All are marked as inferred, but a wait that the source recorded.
 */
#include <stdlib.h>

#include "import/xla_internal.h"

#define PAUSE_NS   20000  /* shorter ones are no waits */
#define ROUNDED_NS 1000	  /* times are rounded */
#define RETURN_NS  200000 /* within this time a thread goes on after the end of a wait */

/* ---- events that are added ----------------------------------------------------------------- */

static int put_value(struct pl_xla *x, uint8_t role, uint8_t type, const char *key, int64_t v,
		     struct pl_err *err)
{
	pl_id id = PL_NONE;
	uint32_t c;

	if (key)
		PL_CHECK(pl_intern_add(&x->seg->str, key, strlen(key), &id, err));
	PL_CHECK(pl_trace_batch_col(&x->more, role, type, id, &c, err));
	return pl_trace_col_put(&x->more.col[c], x->more.n, v, 0, err);
}

static int flush_more(struct pl_xla *x, struct pl_err *err)
{
	if (!x->more.n)
		return 0;
	x->more.first = x->seg->n_events;
	if (x->to->batch)
		PL_CHECK(x->to->batch(x->to, x->seg, &x->more, err));
	x->seg->n_events += x->more.n;
	x->st->events += x->more.n;
	pl_trace_batch_clear(&x->more);
	return 0;
}

/* The row whose values were put. */
static int add_row(struct pl_xla *x, uint8_t kind, pl_id track, const char *name, pl_ns ts,
		   pl_ns end, struct pl_err *err)
{
	struct pl_batch *b = &x->more;
	pl_id id;

	PL_CHECK(pl_intern_add(&x->seg->str, name, strlen(name), &id, err));
	b->kind[b->n] = kind;
	b->track[b->n] = track;
	b->name[b->n] = id;
	b->ts[b->n] = ts;
	b->dur[b->n] = end - ts;
	return ++b->n < PL_BATCH_ROWS ? 0 : flush_more(x, err);
}

/* A wait of a thread for the device of its rank. */
static int add_wait(struct pl_xla *x, pl_id track, pl_ns ts, pl_ns end, bool inferred,
		    struct pl_err *err)
{
	int64_t corr = ++x->corr;

	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, corr, err));
	if (inferred)
		PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
	PL_CHECK(add_row(x, PL_K_RUNTIME, track, "XLA Synchronize", ts, end, err));
	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, corr, err));
	return add_row(x, PL_K_SYNC, track, "Context Sync", ts, end, err);
}

static int add_step(struct pl_xla *x, pl_id track, const struct event *e, pl_ns start,
		    struct pl_err *err)
{
	PL_CHECK(put_value(x, PL_R_STEP, PL_V_INT, NULL, e->step, err));
	PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
	return add_row(x, PL_K_STEP, track, text(x, e->name), start, e->end, err);
}

/* A step of the host is one of the further devices too; those with launches have it there. */
static int add_steps(struct pl_xla *x, const struct event *e, struct pl_err *err)
{
	for (size_t i = 1; i < x->n_devices; i++) {
		const struct device *d = &x->device[i];
		pl_id track = d->track;

		for (uint32_t k = 0; k < x->first_tracks && track == PL_NONE; k++)
			if (x->place[k].device == d->number && x->seg->track[k].type == PL_T_STREAM)
				track = k;
		if (track != PL_NONE && (d->host == PL_NONE || !x->dispatches))
			PL_CHECK(add_step(x, track, e, e->ts, err));
	}
	return 0;
}

/* ---- waits --------------------------------------------------------------------------------- */

/* Does the event say what its thread did all the time? */
static bool is_busy(const struct event *e)
{
	return e->kind == PL_K_HOST_OP || e->kind == PL_K_DATA || e->kind == PL_K_RUNTIME ||
	       e->class == PL_XC_PYTHON_IDLE || e->kind == PL_K_WAIT;
}

/* Executions: the ends of all, ascending; and those of the first device in the order of their
 * calls, with the latest end of each and those before it. */
struct ends {
	pl_ns *v;
	struct pause *called; /* call, latest end */
	size_t n, n_called;
};

PL_COMPARATOR(by_call, struct pause, start, end);

static int list_ends(const struct pl_xla *x, struct ends *ends, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&ends->v, x->n_runs + 1, sizeof(*ends->v), err));
	PL_CHECK(pl_alloc(&ends->called, x->n_runs + 1, sizeof(*ends->called), err));
	for (size_t i = 0; i < x->n_runs; i++) {
		const struct run *r = &x->run[i];

		if (!r->corr)
			continue;
		ends->v[ends->n++] = r->end;
		if (r->device == x->device[0].number)
			ends->called[ends->n_called++] = (struct pause){ r->call, r->end };
	}
	pl_sort(ends->v, ends->n, sizeof(*ends->v), pl_compare_i64);
	pl_sort(ends->called, ends->n_called, sizeof(*ends->called), by_call);
	for (size_t i = 1; i < ends->n_called; i++)
		ends->called[i].end = pl_max_i64(ends->called[i].end, ends->called[i - 1].end);
	return 0;
}

/* Did an execution end in the time from a to b, shortly before b? */
static bool ends_in(const struct ends *ends, pl_ns a, pl_ns b)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, ends->n, ends->v[i] <= b);
	return i && ends->v[i - 1] > a && b - ends->v[i - 1] <= pl_max_i64(RETURN_NS, (b - a) / 5);
}

/* Had all that was called for on the first device before `a` ended by `b`? A recorded wait for it
 * is one, also if there was nothing to wait for. */
static bool all_ended(const struct ends *ends, pl_ns a, pl_ns b)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, ends->n_called, ends->called[i].start <= a);
	return i && ends->called[i - 1].end <= pl_add_sat(b, ROUNDED_NS);
}

static int maybe_wait(struct pl_xla *x, const struct ends *ends, pl_id track, pl_ns a, pl_ns b,
		      struct pl_err *err)
{
	if (b - a < PAUSE_NS || !ends_in(ends, a, b))
		return 0;
	PL_CHECK(add_wait(x, track, a, b, true, err));
	return pl_append(&x->pause, &x->n_pauses, &x->cap_pauses, &(struct pause){ a, b },
			 sizeof(*x->pause), err);
}

/* The pauses of a thread, x->by[from..to), which has called for executions. */
static int pauses(struct pl_xla *x, const struct ends *ends, size_t from, size_t to,
		  struct pl_err *err)
{
	pl_ns busy = INT64_MIN, step = INT64_MIN; /* until then */

	for (size_t i = from; i < to; i++) {
		const struct event *e = picked(x, i);

		if (e->kind == PL_K_STEP) {
			if (busy != INT64_MIN && e->ts > busy)
				PL_CHECK(maybe_wait(x, ends, e->track, busy,
						    step > busy && step < e->ts ? step : e->ts,
						    err));
			busy = pl_max_i64(busy, e->ts);
			step = e->end;
			continue;
		}
		if (e->class == PL_XC_SYNC && e->ts >= busy && all_ended(ends, e->ts, e->end)) {
			if (busy != INT64_MIN && e->ts > busy)
				PL_CHECK(maybe_wait(x, ends, e->track, busy, e->ts, err));
			PL_CHECK(add_wait(x, e->track, e->ts, e->end, false, err));
			PL_CHECK(pl_append(&x->pause, &x->n_pauses, &x->cap_pauses,
					   &(struct pause){ e->ts, e->end }, sizeof(*x->pause),
					   err));
			busy = pl_max_i64(busy, e->end);
			continue;
		}
		if (!is_busy(e))
			continue;
		if (busy != INT64_MIN && e->ts > busy)
			PL_CHECK(maybe_wait(x, ends, e->track, busy,
					    step > busy && step < e->ts ? step : e->ts, err));
		busy = pl_max_i64(busy, e->end);
	}
	return busy != INT64_MIN && step > busy
		       ? maybe_wait(x, ends, x->by[to - 1]->track, busy, step, err)
		       : 0;
}

static bool is_on_thread(const struct pl_xla *x, const struct event *e)
{
	return e->track < x->first_tracks && x->place[e->track].plane == PL_XP_HOST;
}

static int waits(struct pl_xla *x, struct pl_err *err)
{
	struct ends ends = { 0 };
	size_t n = pl_import_xla_pick(x, is_on_thread, pl_import_xla_by_track);
	int rc;

	PL_TRY(list_ends(x, &ends, err));
	for (size_t i = 0, k; i < n; i = k) {
		const uint32_t track = x->by[i]->track;
		bool calls = false;

		for (k = i; k < n && x->by[k]->track == track; k++) {
			const struct event *e = picked(x, k);

			calls |= e->kind == PL_K_STEP || e->class == PL_XC_SYNC ||
				 e->class == PL_XC_LAUNCH;
		}
		if (calls)
			PL_TRY(pauses(x, &ends, i, k, err));
	}
	rc = 0;
out:
	pl_free(ends.v);
	pl_free(ends.called);
	return rc;
}

/* ---- threads that launch for one device ---------------------------------------------------- */

PL_COMPARATOR(by_end, struct pause, end, start);

/* The thread that launches for device d: before e it waited for the call for all devices, from
 * the time on at which it had nothing else to do. */
static int wait_for_call(struct pl_xla *x, const struct device *d, const struct event *e,
			 pl_ns from, struct pl_err *err)
{
	struct event key = { .device = x->device[0].number, .run = e->run };
	const struct run *all = pl_import_xla_run(x, &key);

	if (!all || !all->corr || from == INT64_MIN || e->ts <= from)
		return 0;
	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, all->corr, err));
	PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
	return add_row(x, PL_K_WAIT, d->host, "XLA wait for the call", from, e->ts, err);
}

static bool is_step_or_launch(const struct pl_xla *x, const struct event *e)
{
	return e->kind == PL_K_STEP || pl_import_xla_is_launch(x, e);
}

/* The waits of the thread that launches for device d which end by `until`: *free is the time from
 * which on it has nothing else to do, *k the next pause. */
static int waits_until(struct pl_xla *x, const struct device *d, pl_ns until, size_t *k,
		       pl_ns *free, struct pl_err *err)
{
	for (; *k < x->n_pauses && x->pause[*k].end <= until; ++*k) {
		pl_ns from = pl_max_i64(*free, x->pause[*k].start);

		if (*free == INT64_MIN || from >= x->pause[*k].end)
			continue;
		PL_CHECK(add_wait(x, d->host, from, x->pause[*k].end, true, err));
		*free = x->pause[*k].end;
	}
	return 0;
}

/*
 * The steps, waits and launches for device d; x->by[0..n) are steps and launches. The step of the
 * device begins with its first launch: what comes before is the host's, and so the launch follows
 * the call of the host, not the end of the device's own step before.
 */
static int launcher(struct pl_xla *x, const struct device *d, size_t n, struct pl_err *err)
{
	const struct event *step = NULL; /* without a launch so far */
	pl_ns free = INT64_MIN, start = INT64_MIN;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		const struct event *e = picked(x, i);

		if (e->kind == PL_K_STEP) {
			if (step)
				PL_CHECK(add_step(x, d->host, step, step->ts, err));
			step = e;
			start = e->ts;
			continue;
		}
		if (e->device != d->number || e->corr == INT64_MIN)
			continue;
		PL_CHECK(waits_until(x, d, e->ts, &k, &free, err));
		PL_CHECK(wait_for_call(x, d, e, free == INT64_MIN ? start : free, err));
		if (step && e->ts < step->end) {
			PL_CHECK(add_step(x, d->host, step, e->ts, err));
			step = NULL;
		}
		free = pl_max_i64(free, e->end);
	}
	if (step)
		PL_CHECK(add_step(x, d->host, step, step->ts, err));
	return waits_until(x, d, INT64_MAX, &k, &free, err);
}

/* The launch of this execution that ended last, on another device than the first; NULL: none. */
static const struct event *last_launch(const struct pl_xla *x, size_t i, size_t n,
				       const struct event *call)
{
	const struct event *last = NULL;

	for (; i < n; i++) { /* launches come after the call */
		const struct event *e = picked(x, i);

		if (e->ts > call->join->end)
			break;
		if (e->class == PL_XC_LAUNCH && e->run == call->run && e->corr != INT64_MIN &&
		    e->device != call->device && (!last || e->end > last->end))
			last = e;
	}
	return last;
}

/* A call for all devices: the part until it waits for the launches, and this wait. */
static int joins(struct pl_xla *x, size_t n, struct pl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct event *call = picked(x, i), *last;

		if (!call->join || call->corr == INT64_MIN)
			continue;
		PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, call->corr, err));
		PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
		PL_CHECK(add_row(x, PL_K_RUNTIME, call->track, "XLA call", call->ts, call->join->ts,
				 err));
		last = last_launch(x, i, n, call);
		if (!last)
			continue;
		PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, last->corr, err));
		PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
		PL_CHECK(add_row(x, PL_K_WAIT, call->track, "XLA wait for the launches",
				 call->join->ts, call->join->end, err));
	}
	return 0;
}

static int launchers(struct pl_xla *x, struct pl_err *err)
{
	size_t n = pl_import_xla_pick(x, is_step_or_launch, pl_import_xla_by_time);

	for (size_t i = 0; i < n; i++) /* the step of each device ends with that of the host */
		if (x->by[i]->kind == PL_K_STEP)
			PL_CHECK(pl_append(&x->pause, &x->n_pauses, &x->cap_pauses,
					   &(struct pause){ x->by[i]->ts, x->by[i]->end },
					   sizeof(*x->pause), err));
	pl_sort(x->pause, x->n_pauses, sizeof(*x->pause), by_end);
	PL_CHECK(joins(x, n, err));
	for (size_t i = 1; i < x->n_devices && x->dispatches; i++)
		if (x->device[i].host != PL_NONE)
			PL_CHECK(launcher(x, &x->device[i], n, err));
	return 0;
}

/* Events of their own, after those of the source. */
int pl_import_xla_add(struct pl_xla *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = event_at(x, i);

		if (e->kind == PL_K_STEP && is_on_thread(x, e))
			PL_CHECK(add_steps(x, e, err));
	}
	PL_CHECK(waits(x, err));
	PL_CHECK(launchers(x, err));
	return flush_more(x, err);
}
