/*
 * What the device waits for on the device, and the host for the device.
 *
 * Recorded (cuda_sync events) where the profiler wrote them: the stream that waits, the stream
 * waited for and the record call. Otherwise inferred, and marked:
 *
 * - cudaStreamWaitEvent names neither stream nor event. In what frameworks do, the event was
 * recorded on the stream of the last launch before the record call, and the stream that waits is
 * the one of the next launch after the wait (fork before a collective, join after it). When both
 * are the same stream, or the record was long ago, the waited-for stream is another one with work
 * not joined yet. An edge that the times contradict steps back in that stream, or is not made.
 * - Communication libraries fence their launch with a record and a wait of their own before and
 * behind it. Where nearly every collective has both (beside the fork), they are left out.
 * - cudaStreamSynchronize and cudaEventSynchronize name no stream either: the one whose last
 * operation ended within the call, nearest to its end.
 * - A launch or copy call that ends after its own operation (pageable memory) waited for that; a
 * call that frees memory and ends right after an operation waited for the device.
 * - A pause of a host thread in which a communicating thread finished, shortly before the pause
 * ended, was a wait for it.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/internal.h"

#define TOL_NS	       2000    /* of rounding in start and end times */
#define SYNC_RETURN_NS 100000  /* a wait returns within this after what it waited for */
#define SYNC_MIN_NS    5000    /* shorter calls did not wait */
#define PAUSE_MIN_NS   200000  /* pauses searched for a wait on a communicating thread */
#define PAUSE_NEAR_NS  1000000 /* and how long after the end of it they may go on */
#define PENDING	       16
#define BACK_STEPS     64
#define HANDOVER_NS    200000 /* a thread that calls nothing for longer may have handed over */

/* Launched operations of one stream, in launch order. */
struct lane {
	uint32_t res;
	struct op **op;
	uint32_t *call; /* index of the launching call */
	uint32_t n, n_comm;
	size_t cap, cap_call;
	uint32_t joined[64]; /* by waiting lane: how many of mine it has waited for */
	struct pending {     /* latest waits of this lane, for events recorded on it before it */
		uint32_t at,
			src; /* launched anything more: operation that waits, node waited for */
	} pending[PENDING];
	uint32_t n_pending;
};

struct lanes {
	struct lane *v;
	size_t n, cap;
};

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

static uint32_t lane_of_res(const struct lanes *l, uint32_t res)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->v[i].res == res)
			return i;
	return PL_NONE;
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
			if (b->node[op->node].role == PL_RO_ARRIVE)
				l->v[lane_of_res(l, b->node[op->node].res)].n_comm++;
		}
	}
	return 0;
}

/* How many operations of the lane were launched before call c. */
static uint32_t launched(const struct lane *x, uint32_t c)
{
	uint32_t lo = 0, hi = x->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (x->call[mid] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static uint32_t lane_of_stream(const struct gb *b, const struct lanes *l, int64_t stream)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (b->ri[l->v[i].res].stream == stream)
			return i;
	return PL_NONE;
}

/* ---- event waits
 * ---------------------------------------------------------------------------------------- */

struct wait {
	uint32_t call, record; /* record: PL_NONE when not known */
	uint32_t src, dst;     /* lanes, PL_NONE */
	bool recorded;
};

/*
 * The launch nearest to call c, before (dir -1) or after (1) it, or PL_NONE: on its own thread,
 * unless that paused there and another thread launched meanwhile (the main thread hands over to the
 * one that runs the backward pass, and takes over from it).
 */
static uint32_t near_launch(const struct rankinfo *rk, uint32_t c, int dir)
{
	const struct call *self = &rk->call[c];
	uint32_t other = PL_NONE;
	bool own = false;

	for (int64_t i = (int64_t)c + dir; i >= 0 && i < (int64_t)rk->n_calls; i += dir) {
		const struct call *x = &rk->call[i];

		if (x->res != self->res) {
			if (x->n_ops && !own && other == PL_NONE)
				other = (uint32_t)i;
			continue;
		}
		if (!own && other != PL_NONE && llabs(x->start - self->start) > HANDOVER_NS)
			break;
		own = true;
		if (x->n_ops)
			return (uint32_t)i;
	}
	return other;
}

static uint32_t lane_of_call(const struct gb *b, const struct rankinfo *rk, const struct lanes *l,
			     uint32_t c)
{
	return c == PL_NONE ? PL_NONE
			    : lane_of_res(l, b->node[rk->by_call[rk->call[c].first_op]->node].res);
}

/* The record call that the wait follows with no launch in between, or PL_NONE. */
static uint32_t near_record(const struct rankinfo *rk, uint32_t c)
{
	for (uint32_t i = c; i-- > 0 && c - i < 64;) {
		const struct call *x = &rk->call[i];

		if (x->res != rk->call[c].res || x->internal)
			continue;
		if (x->n_ops)
			return PL_NONE;
		if (x->type == CALL_RECORD)
			return i;
	}
	return PL_NONE;
}

/*
 * Is the next launch after wait c really that wait's? A record and another wait before it, on the
 * launching thread, belong to that launch (the fork of the next collective), and c to another
 * stream.
 */
static bool shadowed(const struct rankinfo *rk, uint32_t c, uint32_t next)
{
	bool record = false;

	for (uint32_t i = c + 1; i < next; i++) {
		const struct call *x = &rk->call[i];

		if (x->res != rk->call[next].res || x->internal)
			continue;
		if (x->type == CALL_WAIT && record)
			return true;
		record |= x->type == CALL_RECORD;
	}
	return false;
}

/* Another lane than `not` with work that `dst` has not joined: the one that ended last before `t`.
 */
static uint32_t unjoined_lane(const struct lanes *l, uint32_t not, uint32_t dst, uint32_t c,
			      pl_ns t)
{
	uint32_t best = PL_NONE;
	pl_ns end = INT64_MIN;

	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t n = launched(&l->v[i], c);

		if (i == not || i == dst || n <= l->v[i].joined[dst])
			continue;
		if (l->v[i].op[n - 1]->end <= t + TOL_NS && l->v[i].op[n - 1]->end > end) {
			end = l->v[i].op[n - 1]->end;
			best = i;
		}
	}
	return best;
}

static bool is_comm(const struct lane *x)
{
	return 2 * x->n_comm > x->n;
}

/* The lane of computation with the most recent launch before call c. */
static uint32_t home_lane(const struct lanes *l, uint32_t c)
{
	uint32_t best = PL_NONE, at = 0;

	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t n = launched(&l->v[i], c);

		if (is_comm(&l->v[i]) || !n || (best != PL_NONE && l->v[i].call[n - 1] < at))
			continue;
		best = i;
		at = l->v[i].call[n - 1];
	}
	return best;
}

static void infer_wait(const struct gb *b, const struct rankinfo *rk, const struct lanes *l,
		       struct wait *w)
{
	uint32_t next = near_launch(rk, w->call, 1);

	w->record = near_record(rk, w->call);
	w->dst = lane_of_call(b, rk, l, next);
	if (w->record != PL_NONE)
		w->src = lane_of_call(b, rk, l, near_launch(rk, w->record, -1));
	if (w->dst == PL_NONE || !shadowed(rk, w->call, next))
		return;
	/* a join before the next collective is forked; other waits of this kind say nothing new */
	w->dst = is_comm(&l->v[w->dst]) ? home_lane(l, w->call) : PL_NONE;
	if (w->dst != PL_NONE && w->src == w->dst)
		w->src = PL_NONE;
}

/* The operation of lane `src`, among the first n, that `dst` could have waited for; looking back by
 * at most `back`. */
static uint32_t feasible(const struct lane *src, uint32_t n, const struct op *dst, uint32_t back)
{
	for (uint32_t i = n; i-- > 0 && n - i <= back;)
		if (src->op[i]->end <= dst->start + TOL_NS)
			return i;
	return PL_NONE;
}

/* Which lane was waited for: a guess by habit first, then by what the times allow. */
static void choose_source(const struct lanes *l, struct wait *w, const struct op *op)
{
	/* a communication library makes its stream wait for the computation's, never for another of
	 * its own */
	if (is_comm(&l->v[w->dst]) && (w->src == PL_NONE || is_comm(&l->v[w->src])))
		w->src = home_lane(l, w->record != PL_NONE ? w->record : w->call);
	if (w->src != PL_NONE && w->src != w->dst) {
		uint32_t n = launched(&l->v[w->src], w->record != PL_NONE ? w->record : w->call);

		if (feasible(&l->v[w->src], n, op, w->record != PL_NONE ? 1 : BACK_STEPS) !=
		    PL_NONE)
			return;
	}
	w->src = unjoined_lane(l, w->src, w->dst, w->call, op->start);
}

/* An event on `src` also covers what that stream was made to wait for since its last launch. */
static int inherit(struct gb *b, const struct lane *src, uint32_t n, const struct op *op,
		   struct pl_err *err)
{
	uint32_t have = src->n_pending < PENDING ? src->n_pending : PENDING;
	int rc;

	for (uint32_t k = 0; k < have; k++) {
		const struct pending *p = &src->pending[k];

		if (p->at >= n && gb_end(b, p->src) <= op->start + TOL_NS &&
		    (rc = gb_edge(b, p->src, op->node, PL_E_WAIT | PL_E_INFERRED, err)) < 0)
			return rc;
	}
	return 0;
}

static int make_wait(struct gb *b, struct lanes *l, struct wait *w, struct pl_err *err)
{
	struct lane *dst = w->dst == PL_NONE ? NULL : &l->v[w->dst], *src;
	uint32_t at, n, i;
	struct op *op;
	struct node *last;
	int rc;

	if (!dst || (at = launched(dst, w->call)) == dst->n)
		return 0; /* nothing was launched behind the wait */
	op = dst->op[at];
	if (!w->recorded)
		choose_source(l, w, op);
	if (w->src == PL_NONE || w->src == w->dst)
		return 0;
	src = &l->v[w->src];
	n = launched(src, w->record != PL_NONE ? w->record : w->call);
	if ((rc = inherit(b, src, n, op, err)) < 0)
		return rc;
	i = feasible(src, n, op, BACK_STEPS);
	if (i == PL_NONE || (!w->recorded && i + 1 <= src->joined[w->dst]))
		return 0;
	if (i + 1 > src->joined[w->dst])
		src->joined[w->dst] = i + 1;
	dst->pending[dst->n_pending++ % PENDING] = (struct pending){ at, src->op[i]->last };
	last = &b->node[src->op[i]->last];
	if (last->start + last->dur > b->node[op->node].start) /* rounding */
		last->dur = pl_max_i64(0, b->node[op->node].start - last->start);
	rc = gb_edge(b, src->op[i]->last, op->node, PL_E_WAIT | (w->recorded ? 0 : PL_E_INFERRED),
		     err);
	if (w->recorded)
		b->g->recorded_waits++;
	else
		b->g->inferred_waits++;
	return rc;
}

/* The next call of the same thread that launches, records or waits, or PL_NONE. */
static uint32_t next_of_thread(const struct rankinfo *rk, uint32_t c, int dir)
{
	for (int64_t i = (int64_t)c + dir; i >= 0 && i < (int64_t)rk->n_calls; i += dir) {
		const struct call *x = &rk->call[i];

		if (llabs(x->start - rk->call[c].start) > HANDOVER_NS)
			return PL_NONE;
		if (x->res == rk->call[c].res &&
		    (x->n_ops || x->type == CALL_RECORD || x->type == CALL_WAIT))
			return (uint32_t)i;
	}
	return PL_NONE;
}

/* A record and a wait right behind (or a wait and a record right before) call c: the far one, or
 * PL_NONE. */
static uint32_t fence(const struct rankinfo *rk, uint32_t c, int dir)
{
	uint32_t near = next_of_thread(rk, c, dir), far;

	if (near == PL_NONE || rk->call[near].n_ops ||
	    rk->call[near].type != (dir > 0 ? CALL_RECORD : CALL_WAIT))
		return PL_NONE;
	far = next_of_thread(rk, near, dir);
	if (far == PL_NONE || rk->call[far].n_ops ||
	    rk->call[far].type != (dir > 0 ? CALL_WAIT : CALL_RECORD))
		return PL_NONE;
	return far;
}

static bool launches_comm(const struct gb *b, const struct rankinfo *rk, uint32_t c)
{
	return rk->call[c].n_ops &&
	       b->node[rk->by_call[rk->call[c].first_op]->node].role == PL_RO_ARRIVE;
}

/* Mark the library's own records and waits around its launches, if it has the habit. */
static void mark_fences(const struct gb *b, struct rankinfo *rk)
{
	uint32_t comm = 0, both = 0;

	for (uint32_t c = 0; c < rk->n_calls; c++) {
		uint32_t before;

		if (!launches_comm(b, rk, c))
			continue;
		comm++;
		before = fence(rk, c, -1);
		both += before != PL_NONE && fence(rk, before, -1) != PL_NONE &&
			fence(rk, c, 1) != PL_NONE;
	}
	for (uint32_t c = 0; both * 10 >= comm * 9 && c < rk->n_calls; c++) {
		for (int dir = -1; dir <= 1 && launches_comm(b, rk, c); dir += 2) {
			uint32_t far = fence(rk, c, dir);

			if (far != PL_NONE)
				rk->call[far].internal =
					rk->call[next_of_thread(rk, c, dir)].internal = true;
		}
	}
}

static int event_waits(struct gb *b, struct rankinfo *rk, struct lanes *l, struct pl_err *err)
{
	bool any_recorded = false;
	int rc;

	for (size_t i = 0; i < rk->n_sync; i++)
		any_recorded |= rk->sync[i].wait;
	for (size_t i = 0; i < rk->n_sync; i++) {
		const struct syncrec *s = &rk->sync[i];
		struct wait w = { .call = gb_call_by_corr(rk, s->corr),
				  .record = PL_NONE,
				  .recorded = true };

		if (!s->wait || w.call == PL_NONE)
			continue;
		w.dst = lane_of_stream(b, l, s->stream);
		w.src = lane_of_stream(b, l, s->on_stream);
		if (s->record_corr > 0)
			w.record = gb_call_by_corr(rk, s->record_corr);
		if ((rc = make_wait(b, l, &w, err)) < 0)
			return rc;
	}
	if (any_recorded || !b->o->infer || l->n < 2)
		return 0;
	mark_fences(b, rk);
	for (uint32_t c = 0; c < rk->n_calls; c++) {
		struct wait w = { .call = c, .record = PL_NONE, .src = PL_NONE, .dst = PL_NONE };

		if (rk->call[c].type != CALL_WAIT || rk->call[c].internal)
			continue;
		infer_wait(b, rk, l, &w);
		if ((rc = make_wait(b, l, &w, err)) < 0)
			return rc;
	}
	return 0;
}

/* ---- the host waits for the device
 * ------------------------------------------------------------------------ */

/* The call waited until `op` ended: size its two nodes, and tie the second to the operation. */
static int host_wait(struct gb *b, const struct call *c, const struct op *op, bool binding,
		     bool inferred, struct pl_err *err)
{
	struct node *first = &b->node[c->node], *rest = &b->node[c->last];

	if (c->node == c->last)
		return 0;
	if (binding && op->end > first->start && op->end <= c->end + TOL_NS &&
	    gb_end(b, c->last) > op->end) {
		pl_ns end = gb_end(b, c->last),
		      own = pl_min_i64(op->end - first->start, SYNC_MIN_NS);

		own = pl_min_i64(own, first->dur);
		first->dur = own;
		rest->start = pl_max_i64(op->end, first->start + own);
		rest->dur = pl_max_i64(0, end - rest->start);
	}
	if (op->end > rest->start + TOL_NS)
		return 0; /* it ended later than the call: the call did not wait for it */
	if (inferred)
		b->g->inferred_waits++;
	else
		b->g->recorded_waits++;
	return gb_edge(b, op->last, c->last, PL_E_WAIT | (inferred ? PL_E_INFERRED : 0), err);
}

/* Last operation of each lane launched before the call; the one that ended last within it. */
static struct op *last_within(const struct lanes *l, const struct call *c, uint32_t index,
			      pl_ns near)
{
	struct op *best = NULL;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t n = launched(&l->v[i], index);
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

	if (a->corr != c->corr)
		return a->corr < c->corr ? -1 : 1;
	return (int)a->wait - (int)c->wait;
}

static const struct syncrec *find_sync(const struct rankinfo *rk, int64_t corr)
{
	struct syncrec key = { .corr = corr };

	if (corr == INT64_MIN || !rk->n_sync)
		return NULL;
	return bsearch(&key, rk->sync, rk->n_sync, sizeof(*rk->sync), by_sync_corr);
}

/* A synchronisation whose stream is known, or that covers all: tie it to every lane meant. */
static int known_sync(struct gb *b, const struct lanes *l, const struct call *c, uint32_t index,
		      int64_t stream, bool inferred, struct pl_err *err)
{
	struct op *best = NULL;
	int rc;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < l->n; i++) {
			uint32_t n = launched(&l->v[i], index);
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

static int one_sync(struct gb *b, const struct rankinfo *rk, const struct lanes *l, uint32_t index,
		    struct pl_err *err)
{
	const struct call *c = &rk->call[index];
	const struct syncrec *s = find_sync(rk, c->corr);
	pl_ns near = pl_max_i64(SYNC_RETURN_NS, (c->end - c->start) / 5);
	struct op *op;

	if (s && (s->stream >= 0 || s->device_wide))
		return known_sync(b, l, c, index, s->device_wide ? -1 : s->stream, false, err);
	if (c->type == CALL_SYNC && c->device_wide)
		return known_sync(b, l, c, index, -1, false, err);
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
	if (c->n_ops) { /* a copy call that lasts as long as its copy */
		op = rk->by_call[c->first_op + c->n_ops - 1];
		if (op->end <= c->end && b->node[op->node].role == PL_RO_COPY)
			return host_wait(b, c, op, true, true, err);
	}
	return 0;
}

/* ---- the host waits for a communicating thread
 * ---------------------------------------------------------- */

static uint32_t finished_in(const struct gb *b, const struct rankinfo *rk, pl_ns a0, pl_ns a1)
{
	pl_ns best_end = pl_max_i64(a0, a1 - pl_max_i64(PAUSE_NEAR_NS, (a1 - a0) / 4));
	uint32_t best = PL_NONE;

	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];
		uint32_t lo = 0, hi = ri->service ? ri->n : 0;

		while (lo < hi) { /* first that starts at or after the pause's end */
			uint32_t mid = lo + (hi - lo) / 2;

			if (ri->op[mid].start < a1)
				lo = mid + 1;
			else
				hi = mid;
		}
		for (uint32_t i = lo; i-- > 0 && lo - i <= BACK_STEPS;) {
			pl_ns end = gb_end(b, ri->op[i].last);

			if (end <= a1 && end > best_end) {
				best_end = end;
				best = ri->op[i].last;
			}
		}
	}
	return best;
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
			done = finished_in(b, rk, back.start, a1);
			if (done == PL_NONE)
				continue;
			b->node[i].dur = 0;
			b->node[i].flags |= PL_NF_INFERRED;
			back.start = gb_end(b, done);
			back.dur = a1 - back.start;
			back.flags |= PL_NF_INFERRED;
			if ((rc = gb_node(b, &back, &id, err)) < 0 ||
			    (rc = gb_edge(b, i, id, PL_E_SEQ, err)) < 0 ||
			    (rc = gb_edge(b, done, id, PL_E_WAIT | PL_E_INFERRED, err)) < 0 ||
			    (i + 1 < ri->node1 && (rc = gb_edge(b, id, i + 1, PL_E_SEQ, err)) < 0))
				return rc;
			b->g->inferred_waits++;
		}
	}
	return 0;
}

int gb_waits(struct gb *b, struct pl_err *err)
{
	int rc = 0;

	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rankinfo *rk = &b->rank[r];
		struct lanes l = { 0 };

		if (rk->n_sync)
			pl_sort(rk->sync, rk->n_sync, sizeof(*rk->sync), by_sync_corr);
		rc = build_lanes(b, rk, &l, err);
		if (rc == 0)
			rc = event_waits(b, rk, &l, err);
		for (uint32_t c = 0; rc == 0 && c < rk->n_calls; c++)
			if (rk->call[c].type == CALL_SYNC || rk->call[c].type == CALL_FREE ||
			    rk->call[c].type == CALL_LAUNCH)
				rc = one_sync(b, rk, &l, c, err);
		lanes_fini(&l);
		if (rc == 0 && b->o->infer)
			rc = service_waits(b, rk, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}
