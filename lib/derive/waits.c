/*
 * Waits of the host: for the device, or for a thread that communicates.
 *
 * Recorded waits:
 *
 * - The profiler may write cuda_sync events, which name the waits for the device.
 * - A wait for a communicating thread is recorded if it has the correlation of the communication
 *   (paceline-trace(5)). The waiting thread continues when the communication ends, or at once if
 *   it has already ended.
 * - A thread that launches communication on a device waits for the operator that issues the
 *   communication. It may continue before this operator ends.
 * - An operator that issues communication of a thread may copy from a device. The communication
 *   then waits for the last of these copies.
 *
 * Other waits are inferred, and marked as inferred:
 *
 * - cudaStreamSynchronize and cudaEventSynchronize name no stream. The wait is for the stream whose
 *   last operation ended within the call, nearest to the end of the call.
 * - A launch or copy call that ends after its own operation (pageable memory) waited for this
 *   operation. A call that frees memory and ends right after an operation waited for the device.
 * - If a communication of a communicating thread ended shortly before the end of a pause of a host
 *   thread, the pause was a wait for the communication. The pause may also end a little before the
 *   recorded end of the communication, because the woken thread may continue first. In this case
 *   the communication ends with the pause.
 *
 * events.c finds the waits of streams for events, queue.c the waits of launches for a free slot.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define TOL_NS	       2000	/* of rounding in start and end times */
#define SYNC_RETURN_NS 100000	/* a wait returns at most this long after the operation ends */
#define SYNC_MIN_NS    5000	/* shorter calls did not wait */
#define PAUSE_MIN_NS   200000	/* pauses searched for a wait on a communicating thread */
#define PAUSE_NEAR_NS  1000000	/* a pause lasts at most this long after the communication */
#define WAKER_LATE_NS  10000000 /* a thread that woke another may have to wait for a processor */
#define BACK_STEPS     64

static void lanes_fini(struct lanes *l)
{
	for (size_t i = 0; i < l->n; i++) {
		pl_free(l->v[i].op);
		pl_free(l->v[i].call);
	}
	pl_free(l->v);
}

static int lane_add(struct lanes *l, uint32_t res, struct op *op, uint32_t call, struct pl_err *err)
{
	struct lane *x = NULL;
	int rc;

	for (size_t i = 0; i < l->n && !x; i++)
		if (l->v[i].res == res)
			x = &l->v[i];
	if (!x) {
		if (l->n == 64)
			return 0; /* further streams take no part in inference */
		if ((rc = pl_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v), err)) < 0)
			return rc;
		x = &l->v[l->n++];
		memset(x, 0, sizeof(*x));
		x->res = res;
	}
	if ((rc = pl_grow(&x->op, &x->cap, x->n + 1, sizeof(*x->op), err)) < 0 ||
	    (rc = pl_grow(&x->call, &x->cap_call, x->n + 1, sizeof(*x->call), err)) < 0)
		return rc;
	x->op[x->n] = op;
	x->call[x->n++] = call;
	return 0;
}

static int build_lanes(const struct gb *b, const struct rankinfo *rk, struct lanes *l,
		       struct pl_err *err)
{
	int rc;

	for (uint32_t c = 0; c < rk->n_calls; c++) {
		for (uint32_t k = 0; k < rk->call[c].n_ops; k++) {
			struct op *op = rk->by_call[rk->call[c].first_op + k];

			if ((rc = lane_add(l, b->node[op->node].res, op, c, err)) < 0)
				return rc;
		}
	}
	return 0;
}

/* How many operations of the lane were launched before call c. */
uint32_t pl_derive_launched(const struct lane *x, uint32_t c)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, x->n, x->call[i] < c);
	return i;
}

/* ---- the host waits for the device
 * ------------------------------------------------------------------------ */

/* The call waited until `op` ended: set the durations of its two nodes, and add an edge from the
 * operation to the second node. */
static int host_wait(struct gb *b, const struct call *c, const struct op *op, bool binding,
		     bool inferred, struct pl_err *err)
{
	struct node *first = &b->node[c->node], *rest = &b->node[pl_derive_last(c)];

	if (!c->two_nodes)
		return 0;
	if (binding && op->end > first->start && op->end <= c->end + TOL_NS &&
	    pl_derive_end(b, pl_derive_last(c)) >= op->end) {
		pl_ns end = pl_derive_end(b, pl_derive_last(c)),
		      own = pl_min_i64(op->end - first->start, SYNC_MIN_NS);

		own = pl_min_i64(own, first->dur);
		first->dur = own;
		rest->start = pl_max_i64(op->end, first->start + own);
		rest->dur = pl_max_i64(0, end - rest->start);
	}
	if (op->end > rest->start + TOL_NS)
		return 0; /* the operation ended later than the call, so the call did not wait for
			     it */
	if (inferred)
		b->g->inferred_waits++;
	else
		b->g->recorded_waits++;
	return pl_derive_edge(b, op->last, pl_derive_last(c),
			      PL_E_WAIT | (inferred ? PL_E_INFERRED : 0), err);
}

/* Of the last operations of all lanes before the call: the operation that ended last within it. */
static struct op *last_within(const struct lanes *l, const struct call *c, uint32_t index,
			      pl_ns near)
{
	struct op *best = NULL;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t n = pl_derive_launched(&l->v[i], index);
		struct op *op = n ? l->v[i].op[n - 1] : NULL;

		if (op && op->end > c->start && op->end <= c->end + TOL_NS &&
		    c->end - op->end <= near && (!best || op->end > best->end))
			best = op;
	}
	return best;
}

static int by_sync_corr(const void *pa, const void *pb)
{
	const struct syncrec *a = pa, *c = pb;

	return PL_COMPARE_FIELDS(a, c, corr, wait);
}

static const struct syncrec *find_sync(const struct rankinfo *rk, int64_t corr)
{
	struct syncrec key = { .corr = corr };

	if (corr == INT64_MIN)
		return NULL;
	return bsearch(&key, rk->sync, rk->n_sync, sizeof(*rk->sync), by_sync_corr);
}

/* A synchronisation with one known stream or with all streams: add an edge from each of them. */
static int known_sync(struct gb *b, const struct lanes *l, const struct call *c, uint32_t index,
		      int64_t stream, bool inferred, struct pl_err *err)
{
	struct op *best = NULL;
	int rc;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < l->n; i++) {
			uint32_t n = pl_derive_launched(&l->v[i], index);
			struct op *op = n ? l->v[i].op[n - 1] : NULL;

			if (!op || (stream >= 0 && b->ri[l->v[i].res].stream != stream))
				continue;
			if (!pass && op->end <= c->end + TOL_NS && (!best || op->end > best->end))
				best = op;
			if (pass && op != best &&
			    (rc = host_wait(b, c, op, false, inferred, err)) < 0)
				return rc;
		}
		if (!pass && best && (rc = host_wait(b, c, best, true, inferred, err)) < 0)
			return rc;
	}
	return 0;
}

/* Did the copy call last as long as its copy? */
static int copy_wait(struct gb *b, const struct rankinfo *rk, const struct call *c,
		     struct pl_err *err)
{
	const struct op *op = rk->by_call[c->first_op + c->n_ops - 1];

	if ((!c->blocks && !b->o->infer) || op->end > c->end ||
	    b->node[op->node].role != PL_RO_COPY)
		return 0;
	return host_wait(b, c, op, true, !c->blocks, err);
}

static int one_sync(struct gb *b, const struct rankinfo *rk, const struct lanes *l, uint32_t index,
		    struct pl_err *err)
{
	const struct call *c = &rk->call[index];
	const struct syncrec *s = rk->n_sync ? find_sync(rk, rk->context[c->context].corr) : NULL;
	pl_ns near = pl_max_i64(SYNC_RETURN_NS, (c->end - c->start) / 5);
	struct op *op;

	uint32_t record =
		s && s->on_stream >= 0 ? pl_derive_call_by_corr(rk, s->record_corr) : PL_NONE;

	if (record != PL_NONE) /* a wait for an event: for the operations before its record */
		return known_sync(b, l, c, record, s->on_stream, false, err);
	if (s && (s->stream >= 0 || s->device_wide))
		return known_sync(b, l, c, index, s->device_wide ? -1 : s->stream, false, err);
	if (c->type == CALL_SYNC && c->device_wide)
		return known_sync(b, l, c, index, -1, false, err);
	if (c->n_ops && c->type == CALL_LAUNCH)
		return copy_wait(b, rk, c, err);
	if (!b->o->infer)
		return 0;
	if (c->type == CALL_SYNC) {
		op = c->end - c->start >= SYNC_MIN_NS ? last_within(l, c, index, near) : NULL;
		return op ? host_wait(b, c, op, true, true, err) : 0;
	}
	if (c->type == CALL_FREE) {
		op = c->end - c->start >= 10 * SYNC_MIN_NS
			     ? last_within(l, c, index, SYNC_RETURN_NS / 4)
			     : NULL;
		return op ? host_wait(b, c, op, true, true, err) : 0;
	}
	return 0;
}

/* ---- the host waits for a communicating thread
 * ---------------------------------------------------------- */

/* Of the operations of a communicating thread that began before `before` and ended in (from, to]:
 * the one that ended last, or with `first` the one that ended first. PL_NONE: none. */
static uint32_t finished_in(const struct gb *b, const struct rankinfo *rk, pl_ns from, pl_ns to,
			    pl_ns before, bool first)
{
	uint32_t best = PL_NONE;

	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];
		uint32_t lo = 0;

		PL_LOWER_BOUND(lo, ri->service ? ri->n : 0, ri->op[lo].start < before);
		for (uint32_t i = lo; i-- > 0 && lo - i <= BACK_STEPS;) {
			uint32_t op = ri->op[i].last;
			pl_ns end = pl_derive_end(b, op);

			if (end > from && end <= to && b->node[op].start < before &&
			    (best == PL_NONE ||
			     (first ? end < pl_derive_end(b, best) : end > pl_derive_end(b, best))))
				best = op;
		}
	}
	return best;
}

/* The communication for which a pause from a0 to a1 waited, PL_NONE: none. The communication ends
 * with the pause at the latest. */
static uint32_t waited_for(struct gb *b, const struct rankinfo *rk, pl_ns a0, pl_ns a1)
{
	pl_ns part = (a1 - a0) / 4;
	uint32_t done = finished_in(b, rk, pl_max_i64(a0, a1 - pl_max_i64(PAUSE_NEAR_NS, part)), a1,
				    a1, false);

	if (done != PL_NONE)
		return done;
	done = finished_in(b, rk, a1, a1 + pl_min_i64(WAKER_LATE_NS, part), a1, true);
	if (done != PL_NONE)
		b->node[done].dur = a1 - b->node[done].start;
	return done;
}

static int service_waits(struct gb *b, const struct rankinfo *rk, struct pl_err *err)
{
	int rc;

	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		if (!ri->thread || ri->service)
			continue;
		for (uint32_t i = ri->node0; i < ri->node1; i++) {
			struct node back = b->node[i];
			pl_ns a1 = back.start + back.dur;
			uint32_t done, id;

			if (back.role != PL_RO_GAP || back.dur < PAUSE_MIN_NS)
				continue;
			done = waited_for(b, rk, back.start, a1);
			if (done == PL_NONE)
				continue;
			b->node[i].dur = 0;
			b->node[i].flags |= PL_NF_INFERRED;
			back.start = pl_derive_end(b, done);
			back.dur = a1 - back.start;
			back.flags |= PL_NF_INFERRED;
			if ((rc = pl_derive_node(b, &back, &id, err)) < 0 ||
			    (rc = pl_derive_edge(b, i, id, PL_E_SEQ, err)) < 0 ||
			    (rc = pl_derive_edge(b, done, id, PL_E_WAIT | PL_E_INFERRED, err)) <
				    0 ||
			    (i + 1 < ri->node1 &&
			     (rc = pl_derive_edge(b, id, i + 1, PL_E_SEQ, err)) < 0))
				return rc;
			b->g->inferred_waits++;
		}
	}
	return 0;
}

/* ---- recorded waits for a communicating thread ---------------------------------------------- */

PL_COMPARATOR(by_corr, struct corrkey, corr);

struct where {
	uint32_t res, place; /* in resinfo.op */
};

/* The communications of service threads, by correlation once sorted: v[].call is an index of at[].
 */
static int service_ops(const struct gb *b, const struct rankinfo *rk, struct corrkey **v,
		       struct where **where, size_t *n, struct pl_err *err)
{
	size_t most = 0, at = 0;
	int rc;

	for (size_t k = 0; k < rk->n_res; k++)
		most += b->ri[rk->res[k]].service ? b->ri[rk->res[k]].n : 0;
	if ((rc = pl_alloc(v, most, sizeof(**v), err)) < 0 ||
	    (rc = pl_alloc(where, most, sizeof(**where), err)) < 0)
		return rc;
	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; ri->service && i < ri->n; i++, at++) {
			const struct pl_events *e = b->t->seg[ri->op[i].seg];

			(*v)[at] = (struct corrkey){ e->corr ? e->corr[ri->op[i].ev] : INT64_MIN,
						     (uint32_t)at };
			(*where)[at] = (struct where){ rk->res[k], i };
		}
	}
	*n = at;
	return 0;
}

/* If the thread continued a little before the recorded end of the communication, the communication
 * ended when the thread continued. */
static void end_with(struct gb *b, struct op *op, const struct call *c)
{
	struct node *last = &b->node[op->last];

	if (op->end <= c->end || op->end - c->end > PAUSE_NEAR_NS || last->start >= c->end)
		return;
	last->dur = c->end - last->start;
	op->end = c->end;
}

/* Operators that issue communication, later sorted by correlation. They run on threads that do not
 * only communicate. */
static int issuing_ops(const struct gb *b, const struct rankinfo *rk, struct corrkey **v,
		       struct where **where, size_t *n, struct pl_err *err)
{
	size_t cap_v = 0, cap_w = 0;
	int rc = 0;

	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; ri->thread && !ri->service && i < ri->n; i++) {
			const struct pl_events *e = b->t->seg[ri->op[i].seg];

			if (ri->op[i].kind != PL_K_HOST_OP || !e->corr ||
			    ri->op[i].node == PL_NONE || e->corr[ri->op[i].ev] == INT64_MIN)
				continue;
			PL_TRY(pl_grow(v, &cap_v, *n + 1, sizeof(**v), err));
			PL_TRY(pl_grow(where, &cap_w, *n + 1, sizeof(**where), err));
			(*v)[*n] = (struct corrkey){ e->corr[ri->op[i].ev], (uint32_t)*n };
			(*where)[(*n)++] = (struct where){ rk->res[k], i };
		}
	}
out:
	return rc;
}

/*
 * Node `src` ends a wait at time `when`. The rest of the wait is the return to the thread: add an
 * edge of that type from `src` to the rest.
 */
static int wait_until(struct gb *b, const struct call *c, uint32_t src, pl_ns when, unsigned type,
		      struct pl_err *err)
{
	struct node *first = &b->node[c->node], *rest = &b->node[pl_derive_last(c)];
	pl_ns end = pl_derive_end(b, pl_derive_last(c));

	if (!c->two_nodes || when > end)
		return 0;
	first->dur = 0;
	rest->start = pl_max_i64(first->start, when);
	rest->dur = end - rest->start;
	b->g->recorded_waits++;
	return pl_derive_edge(b, src, pl_derive_last(c), type, err);
}

/* The wait with the same correlation on another thread, which launched the communication. */
static const struct call *launching_wait(const struct rankinfo *rk, const struct corrkey *by,
					 const struct comm_wait *wait)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, rk->n_waited, by[i].corr < wait->corr);
	for (; i < rk->n_waited && by[i].corr == wait->corr; i++)
		if (rk->waited[by[i].call].call.res != wait->call.res)
			return &rk->waited[by[i].call].call;
	return NULL;
}

/*
 * Communication that one thread issues and another thread launches. The launching thread waits for
 * the issuing operator, and may continue as soon as this operator has begun. A wait on the issuing
 * thread is a wait for the launch; the device waits for the rest of the communication.
 */
static int one_issue_wait(struct gb *b, const struct rankinfo *rk, const struct corrkey *by,
			  const struct comm_wait *wait, const struct op *issue, struct pl_err *err)
{
	const struct call *c = &wait->call, *w;

	if (b->node[issue->node].res != c->res)
		return wait_until(b, c, issue->node, issue->start, PL_E_START, err);
	w = launching_wait(rk, by, wait);
	return w ? wait_until(b, c, pl_derive_last(w), pl_derive_end(b, pl_derive_last(w)),
			      PL_E_WAIT, err)
		 : 0;
}

static int recorded_issue_waits(struct gb *b, const struct rankinfo *rk, const struct corrkey *v,
				const struct where *where, size_t n, struct pl_err *err)
{
	struct corrkey *by = NULL;
	int rc = 0;

	PL_TRY(pl_alloc(&by, rk->n_waited, sizeof(*by), err));
	for (size_t i = 0; i < rk->n_waited; i++)
		by[i] = (struct corrkey){ rk->waited[i].corr, (uint32_t)i };
	pl_sort(by, rk->n_waited, sizeof(*by), by_corr);
	for (size_t i = 0; i < rk->n_waited && n; i++) {
		struct corrkey key = { .corr = rk->waited[i].corr };
		const struct corrkey *hit = bsearch(&key, v, n, sizeof(*v), by_corr);
		const struct where *at = hit ? &where[hit->call] : NULL;

		if (at && rk->waited[i].call.type != CALL_WAIT)
			PL_TRY(one_issue_wait(b, rk, by, &rk->waited[i],
					      &b->ri[at->res].op[at->place], err));
	}
out:
	pl_free(by);
	return rc;
}

/* Of the device operations that a host operation launched: the one that ended last. */
static const struct op *last_asked(const struct rankinfo *rk, uint32_t res, const struct op *issue)
{
	const struct op *best = NULL;
	size_t i = 0;

	PL_LOWER_BOUND(i, rk->n_calls, rk->call[i].start < issue->start);
	for (; i < rk->n_calls && rk->call[i].start < issue->end; i++) {
		const struct call *c = &rk->call[i];

		for (uint32_t k = 0; c->res == res && k < c->n_ops; k++) {
			const struct op *op = rk->by_call[c->first_op + k];

			if (!best || op->end > best->end)
				best = op;
		}
	}
	return best;
}

/*
 * Communication of a thread with data that the issuing operator copies from a device. It arrives
 * when the copy has ended and the thread has seen the end. A node holds the time until then.
 */
static int one_staged(struct gb *b, const struct op *comm, const struct op *copy, uint32_t res,
		      struct pl_err *err)
{
	struct node seen = { .type = PL_N_OP,
			     .role = PL_RO_SYNC,
			     .kind = PL_K_WAIT,
			     .res = res,
			     .name = b->s_gap,
			     .step = -1,
			     .start = copy->end };
	uint32_t id;
	int rc;

	if (copy->end > b->node[comm->node].start + TOL_NS) {
		b->g->dropped_edges++;
		return 0;
	}
	seen.dur = pl_max_i64(0, b->node[comm->node].start - copy->end);
	PL_TRY(pl_derive_node(b, &seen, &id, err));
	PL_TRY(pl_derive_edge(b, copy->last, id, PL_E_WAIT, err));
	PL_TRY(pl_derive_edge(b, id, comm->node, PL_E_SEQ, err));
	b->g->recorded_waits++;
out:
	return rc;
}

static int staged(struct gb *b, struct rankinfo *rk, const struct corrkey *v,
		  const struct where *where, size_t n, struct pl_err *err)
{
	int rc = 0;

	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; ri->service && n && i < ri->n; i++) {
			const struct op *comm = &ri->op[i], *copy = NULL;
			const struct pl_events *e = b->t->seg[comm->seg];
			struct corrkey key = { .corr = e->corr ? e->corr[comm->ev] : INT64_MIN };
			const struct corrkey *hit = bsearch(&key, v, n, sizeof(*v), by_corr);
			const struct where *at = hit ? &where[hit->call] : NULL;

			if (at)
				copy = last_asked(rk, at->res, &b->ri[at->res].op[at->place]);
			if (copy)
				PL_TRY(one_staged(b, comm, copy, rk->res[k], err));
		}
	}
out:
	return rc;
}

/* On ranks with a device: waits for the operators that issue communication, and their copies. */
static int issue_waits(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	struct corrkey *v = NULL;
	struct where *where = NULL;
	size_t n = 0;
	int rc = 0;

	if (!rk->has_device || !rk->comm_threads)
		return 0;
	PL_TRY(issuing_ops(b, rk, &v, &where, &n, err));
	pl_sort(v, n, sizeof(*v), by_corr);
	PL_TRY(staged(b, rk, v, where, n, err));
	PL_TRY(recorded_issue_waits(b, rk, v, where, n, err));
out:
	pl_free(v);
	pl_free(where);
	return rc;
}

static int recorded_service_waits(struct gb *b, const struct rankinfo *rk, struct pl_err *err)
{
	struct corrkey *v = NULL;
	struct where *where = NULL;
	size_t n = 0;
	int rc = 0;

	if (!rk->n_waited)
		return 0;
	PL_TRY(service_ops(b, rk, &v, &where, &n, err));
	pl_sort(v, n, sizeof(*v), by_corr);
	for (size_t i = 0; i < rk->n_waited; i++) {
		struct call *c = &rk->waited[i].call;
		struct corrkey key = { .corr = rk->waited[i].corr };
		const struct corrkey *hit = n ? bsearch(&key, v, n, sizeof(*v), by_corr) : NULL;
		struct op *op;

		if (!hit)
			continue;
		op = &b->ri[where[hit->call].res].op[where[hit->call].place];
		c->type = CALL_WAIT; /* it is known for what */
		end_with(b, op, c);
		PL_TRY(host_wait(b, c, op, true, false, err));
	}
out:
	pl_free(v);
	pl_free(where);
	return rc;
}

static int rank_waits(struct gb *b, struct rankinfo *rk, uint64_t *hash, uint32_t *lane_of,
		      struct pl_err *err)
{
	struct lanes l = { 0 };
	int rc;

	if (rk->n_sync)
		pl_sort(rk->sync, rk->n_sync, sizeof(*rk->sync), by_sync_corr);
	PL_TRY(build_lanes(b, rk, &l, err));
	PL_TRY(pl_derive_events(b, rk, &l, hash, lane_of, err));
	for (uint32_t c = 0; c < rk->n_calls; c++)
		if (rk->call[c].type == CALL_SYNC || rk->call[c].type == CALL_FREE ||
		    rk->call[c].type == CALL_LAUNCH)
			PL_TRY(one_sync(b, rk, &l, c, err));
	PL_TRY(recorded_service_waits(b, rk, err));
	PL_TRY(issue_waits(b, rk, err));
	if (b->o->infer && !(rk->all_sync && rk->n_waited))
		PL_TRY(service_waits(b, rk, err));
	if (b->o->infer)
		PL_TRY(pl_derive_queue(b, rk, &l, err));
out:
	lanes_fini(&l);
	return rc;
}

/* From now on only the starts of the calls count (cut.c), unless gradients or allocations are
 * looked for. */
static void note_launches(struct gb *b, struct rankinfo *rk)
{
	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		for (uint32_t i = 0; i < ri->n; i++)
			if (ri->op[i].call != PL_NONE)
				ri->op[i].launched = rk->call[ri->op[i].call].start;
	}
	if (!b->has_memory && !pl_derive_accumulates(b))
		pl_derive_drop_calls(b, rk);
}

int pl_derive_waits(struct gb *b, struct pl_err *err)
{
	uint64_t *hash = NULL;
	uint32_t *lane_of = NULL;
	int rc;

	PL_TRY(pl_alloc(&hash, b->g->str.n + 1, sizeof(*hash), err));
	PL_TRY(pl_alloc(&lane_of, b->g->n_res, sizeof(*lane_of), err));
	memset(lane_of, 0xff, b->g->n_res * sizeof(*lane_of));
	for (size_t r = 0; r < b->n_ranks; r++) {
		PL_TRY(rank_waits(b, &b->rank[r], hash, lane_of, err));
		PL_TRY(pl_derive_latency(b, &b->rank[r], err));
		note_launches(b, &b->rank[r]);
	}
out:
	pl_free(hash);
	pl_free(lane_of);
	return rc;
}
