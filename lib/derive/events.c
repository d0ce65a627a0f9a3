/*
 * Waits of streams for events of other streams.
 *
 * If the profiler wrote cuda_sync events, they name the waiting stream, the stream of the event,
 * and the record call. Otherwise the waits are inferred, and marked as inferred.
 *
 * cudaStreamWaitEvent names neither stream nor event. A *hypothesis* says which: the waiting stream
 * is the stream of the next launch after the wait (or of the next launch on another stream, and so
 * on); the event is the k-th last event that was recorded before the wait; the event was recorded
 * on the stream of the last launch before the record (or of an earlier launch on another stream).
 * A hypothesis is relative to the wait, so all waits at one place of a program, in every layer and
 * step, share one hypothesis. The calls around a wait identify its place. The code tests the
 * hypotheses of a place on all its waits:
 *
 * - a wait refutes a hypothesis if its operation began before the supposed event occurred;
 * - a wait supports a hypothesis if its operation was delayed, had no other reason to wait, and
 *   began as soon as the supposed event had occurred.
 *
 * First, the code takes the nearest hypothesis of a place if no wait refutes it and it explains
 * every delayed operation of the place. The other places then take the hypothesis with the most
 * support from operations that are still unexplained, or the nearest unrefuted hypothesis if none
 * has support. Last, each operation that is still unexplained is tested alone. A wait that delayed
 * no operation gets the hypothesis of the other waits of its place, or else the nearest event;
 * neither changes the replay of the recorded times.
 *
 * In a trace without record calls, a record is assumed after every launch. In a trace without
 * waits, a wait is assumed before every launch. Of these waits only the places count where the
 * stream changes or an operation was delayed.
 *
 * A communication library puts its own record and wait before its launch, and again after it. If
 * nearly every collective has both (besides those of the framework), they are left out.
 *
 * Cost: O(calls + waits * hypotheses). Most places need only one hypothesis.
 */
#include <stdlib.h>

#include "derive/events.h"

/* Each further stream or event multiplies the hypotheses of a place, and then a wrong one fits by
 * chance more often. Therefore the search ends where programs seldom have the right one. */
#define TOL_NS	      2000   /* of rounding in start and end times */
#define HELD_NS	      4000   /* an idle stream dispatches faster than this */
#define LAUNCH_NS     25000  /* a launched operation starts faster than this */
#define TIGHT_NS      10000  /* an operation begins at most this long after the event */
#define HANDOVER_NS   200000 /* after a longer pause, another thread may have launched */
#define N_DST	      3	     /* waiting streams that are considered */
#define N_BACK	      24     /* events back */
#define N_BACK_LAUNCH 64     /* where every launch has an event */
#define BACK_STEPS    64     /* operations back */
#define SCAN_CALLS    512    /* calls looked at for the next launch */
#define CONTEXT	      3	     /* calls before and behind a wait that make its place */

struct hyp {
	uint8_t back, dst, src; /* events back, 1 the last; alternatives */
};

struct wait {
	uint32_t call, index;
	uint32_t n_records; /* before it */
	uint32_t dst[N_DST];
	struct op *op[N_DST]; /* first operation launched there behind the wait, NULL none */
	uint32_t at[N_DST];
	pl_ns hold[N_DST]; /* how long it was held up */
	uint64_t place;
	struct hyp h;
	bool explains; /* its hypothesis explains why an operation was delayed */
};

struct group { /* waits of one place */
	uint32_t first, n;
	uint32_t order; /* of its first wait */
	uint8_t dst;	/* the likely alternative */
	bool done, supported;
};

/* ---- calls and the streams they launch on ---------------------------------------------------- */

/*
 * The launch nearest to call c, before (dir -1) or after (1) it, or PL_NONE: on its own thread,
 * unless that paused there and another thread launched meanwhile (the main thread hands over to the
 * one that runs the backward pass, and takes over from it).
 */
static uint32_t near_launch(const struct rank *rank, uint32_t c, int dir)
{
	const struct call *self = &rank->call[c];
	uint32_t other = PL_NONE, own = 0;

	for (int64_t i = (int64_t)c + dir; i >= 0 && i < (int64_t)rank->n_calls; i += dir) {
		const struct call *x = &rank->call[i];

		if (x->res != self->res) {
			if (x->n_ops && !own && other == PL_NONE)
				other = (uint32_t)i;
			if (other != PL_NONE && llabs(i - (int64_t)c) > SCAN_CALLS)
				break;
			continue;
		}
		if (!own && other != PL_NONE && pl_derive_pause(x, self) > HANDOVER_NS)
			break;
		if (x->n_ops)
			return (uint32_t)i;
		if (++own > SCAN_CALLS)
			break;
	}
	return other;
}

static uint32_t stream_of_call(const struct events *x, uint32_t c)
{
	const struct op *op = x->rank->by_call[x->rank->call[c].first_op];

	return x->b->resource[x->b->node[op->node].res].nth_stream - 1; /* without one: PL_NONE */
}

/* The streams of the launches nearest to call c, each once. Returns how many. */
static uint32_t near_streams(const struct events *x, uint32_t c, int dir, uint32_t *stream,
			     uint32_t most)
{
	const struct rank *rank = x->rank;
	uint32_t at = near_launch(rank, c, dir), n = 0, seen;
	int64_t i = at;

	if (at == PL_NONE)
		return 0;
	for (uint32_t k = 0; k < SCAN_CALLS && n < most && i >= 0 && i < (int64_t)rank->n_calls;
	     k++, i += dir) {
		uint32_t y;

		if (!rank->call[i].n_ops || rank->call[i].res != rank->call[at].res)
			continue;
		y = stream_of_call(x, (uint32_t)i);
		for (seen = 0; seen < n && stream[seen] != y;)
			seen++;
		if (y != PL_NONE && seen == n)
			stream[n++] = y;
		if (n == x->l->n)
			break;
	}
	return n;
}

/* The next call of the same thread that launches, records or waits, or PL_NONE. */
static uint32_t next_of_thread(const struct rank *rank, uint32_t c, int dir)
{
	for (int64_t i = (int64_t)c + dir; i >= 0 && i < (int64_t)rank->n_calls; i += dir) {
		const struct call *x = &rank->call[i];

		if (pl_derive_pause(x, &rank->call[c]) > HANDOVER_NS)
			return PL_NONE;
		if (x->res == rank->call[c].res &&
		    (x->n_ops || x->type == CALL_RECORD || x->type == CALL_WAIT))
			return (uint32_t)i;
	}
	return PL_NONE;
}

/* A record and wait right behind (or wait and record before) call c: the far one, or PL_NONE. */
static uint32_t fence(const struct rank *rank, uint32_t c, int dir)
{
	uint32_t near = next_of_thread(rank, c, dir), far;

	if (near == PL_NONE || rank->call[near].n_ops ||
	    rank->call[near].type != (dir > 0 ? CALL_RECORD : CALL_WAIT))
		return PL_NONE;
	far = next_of_thread(rank, near, dir);
	if (far == PL_NONE || rank->call[far].n_ops ||
	    rank->call[far].type != (dir > 0 ? CALL_WAIT : CALL_RECORD))
		return PL_NONE;
	return far;
}

static bool launches_comm(const struct builder *b, const struct rank *rank, uint32_t c)
{
	return rank->call[c].n_ops &&
	       b->node[rank->by_call[rank->call[c].first_op]->node].role == PL_RO_ARRIVE;
}

/* Mark the library's own records and waits around its launches, if it has the habit: nearly all
 * have both, and many have another record and wait before, those of the framework. A framework that
 * communicates on a stream of its own has none. */
static void mark_fences(const struct builder *b, struct rank *rank)
{
	uint32_t comm = 0, both = 0, twice = 0;

	for (uint32_t c = 0; c < rank->n_calls; c++) {
		uint32_t before;

		if (!launches_comm(b, rank, c))
			continue;
		comm++;
		before = fence(rank, c, -1);
		if (before == PL_NONE || fence(rank, c, 1) == PL_NONE)
			continue;
		both++;
		twice += fence(rank, before, -1) != PL_NONE;
	}
	if (twice * 10 < comm * 3)
		return;
	for (uint32_t c = 0; both * 10 >= comm * 9 && c < rank->n_calls; c++) {
		for (int dir = -1; dir <= 1 && launches_comm(b, rank, c); dir += 2) {
			uint32_t far = fence(rank, c, dir);

			if (far != PL_NONE)
				rank->call[far].internal =
					rank->call[next_of_thread(rank, c, dir)].internal = true;
		}
	}
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* An event on `src` after its first n operations also covers the events for which this stream has
 * waited since its last launch. */
static void inherit(struct builder *b, const struct stream *src, uint32_t n, const struct op *op,
		    unsigned type)
{
	uint32_t have = (uint32_t)pl_min_size(src->n_pending, PL_LEN(src->pending));

	for (uint32_t k = 0; k < have; k++) {
		const struct pending *p = &src->pending[k];

		if (p->at >= n && pl_derive_end(b, p->src) <= op->start + TOL_NS)
			pl_derive_edge(b, p->src, op->node, type);
	}
}

/* Operation `op`, the one after `at` others of stream dst, waits for the first n of stream src. */
static void tie(struct events *x, uint32_t dst, uint32_t at, uint32_t src, uint32_t n,
		bool recorded)
{
	struct builder *b = x->b;
	struct stream *d = &x->l->v[dst], *s = &x->l->v[src];
	unsigned type = PL_E_WAIT | (recorded ? 0 : PL_E_INFERRED);
	struct op *op = d->op[at];
	struct node *last;
	uint32_t id;

	if (dst == src)
		return;
	inherit(b, s, n, op, type);
	if (!n || s->op[n - 1]->end > op->start + TOL_NS)
		return;
	id = s->op[n - 1]->last;
	d->pending[d->n_pending++ % PL_LEN(d->pending)] = (struct pending){ at, id };
	last = &b->node[id];
	if (last->start + last->dur > b->node[op->node].start) /* rounding */
		last->dur = pl_max_i64(0, b->node[op->node].start - last->start);
	if (recorded)
		b->g->recorded_waits++;
	else
		b->g->inferred_waits++;
	pl_derive_edge(b, id, op->node, type);
}

/* ---- recorded -------------------------------------------------------------------------------- */

static uint32_t stream_numbered(const struct events *x, int64_t stream, int32_t device)
{
	size_t n;
	const struct stream_number *at = pl_derive_numbered(x->l, stream, &n);

	for (size_t i = 0; stream >= 0 && i < n; i++)
		if (pl_derive_on_device(x->b, &x->l->v[at[i].at], device))
			return at[i].at;
	return PL_NONE;
}

/* The stream whose event stream dst awaits; the record says its number, not its device. Streams of
 * several devices have the same numbers: it is on the device of dst, else the one on which
 * something was launched last before the record of the event (call `until`). */
static uint32_t awaited_stream(const struct events *x, const struct sync_record *s, uint32_t dst,
			       uint32_t until)
{
	uint32_t best = stream_numbered(x, s->on_stream, s->device), last = 0;

	size_t n_at;
	const struct stream_number *at = pl_derive_numbered(x->l, s->on_stream, &n_at);

	if (best != PL_NONE && best != dst)
		return best;
	for (size_t k = 0; s->on_stream >= 0 && k < n_at; k++) {
		uint32_t i = at[k].at;
		const struct stream *y = &x->l->v[i];
		uint32_t n = pl_derive_launched(y, until);

		if (i == dst || !n)
			continue;
		if (best == PL_NONE || best == dst || y->op[n - 1]->call > last) {
			best = i;
			last = y->op[n - 1]->call;
		}
	}
	return best;
}

static void recorded_waits(struct events *x, bool *any)
{
	for (size_t i = 0; i < x->rank->n_sync; i++) {
		const struct sync_record *s = &x->rank->sync[i];
		uint32_t call = pl_derive_call_by_corr(x->rank, s->corr), record = PL_NONE, at;
		uint32_t dst = stream_numbered(x, s->stream, s->device), src, n;
		const struct stream *from;

		*any |= s->wait;
		if (!s->wait || call == PL_NONE || dst == PL_NONE)
			continue;
		if (s->record_corr > 0)
			record = pl_derive_call_by_corr(x->rank, s->record_corr);
		src = awaited_stream(x, s, dst, record == PL_NONE ? call : record);
		if (src == PL_NONE)
			continue;
		at = pl_derive_launched(&x->l->v[dst], call);
		if (at == x->l->v[dst].n) /* nothing was launched behind the wait */
			continue;
		from = &x->l->v[src];
		n = pl_derive_launched(from, record == PL_NONE ? call : record);
		/* without the record the event may be an older one */
		for (uint32_t k = 0; k < BACK_STEPS && record == PL_NONE && n; k++, n--)
			if (from->op[n - 1]->end <= x->l->v[dst].op[at]->start + TOL_NS)
				break;
		tie(x, dst, at, src, n, true);
	}
}

/* ---- the waits and the records to choose from ------------------------------------------------ */

/* The stream of the last computation that any thread launched before the call, or PL_NONE. */
static uint32_t last_computing(const struct events *x, uint32_t c)
{
	for (uint32_t k = 0; k < SCAN_CALLS && c-- > 0; k++)
		if (x->rank->call[c].n_ops && !launches_comm(x->b, x->rank, c))
			return stream_of_call(x, c);
	return PL_NONE;
}

void pl_derive_add_record(struct events *x, uint32_t call, bool launched)
{
	struct record r = { .call = call };
	uint32_t n = 1;

	if (launched)
		r.stream[0] = stream_of_call(x, call);
	else
		n = near_streams(x, call, -1, r.stream, N_SRC - 1);
	for (uint32_t i = n; i < N_SRC; i++)
		r.stream[i] = PL_NONE;
	/* between sends and receives of a pipeline another thread computes */
	if (!launched)
		r.stream[N_SRC - 1] = last_computing(x, call);
	for (uint32_t i = 0; i + 1 < N_SRC; i++)
		if (r.stream[i] == r.stream[N_SRC - 1])
			r.stream[N_SRC - 1] = PL_NONE;
	for (uint32_t i = 0; i < N_SRC && r.stream[i] != PL_NONE; i++)
		r.n[i] = pl_derive_launched(&x->l->v[r.stream[i]], call + launched);
	PL_DERIVE_ADD(x->b->err, x->rec, x->n_rec, x->cap_rec, r);
}

/* How long the operation was delayed by something else than its stream's order or its launch. */
static pl_ns held_up(const struct events *x, const struct stream *d, uint32_t at)
{
	const struct op *op = d->op[at];
	const struct call *c = &x->rank->call[op->call];
	pl_ns ready = op->start < c->end ? c->start : c->end;

	if (op->start - ready <= LAUNCH_NS && c->start + LAUNCH_NS > op->start)
		return 0;
	if (at)
		ready = pl_max_i64(ready, d->op[at - 1]->end);
	return op->start - ready > HELD_NS ? op->start - ready : 0;
}

static void add_wait(struct events *x, uint32_t call)
{
	struct wait w = { .call = call,
			  .index = (uint32_t)x->n_wait,
			  .n_records = (uint32_t)x->n_rec };
	uint32_t n = 1;

	if (x->made_up) /* right before the launch */
		w.dst[0] = stream_of_call(x, call);
	else
		n = near_streams(x, call, 1, w.dst, N_DST);
	if (!n || w.dst[0] == PL_NONE)
		return;
	for (uint32_t i = 0; i < n; i++) {
		const struct stream *d = &x->l->v[w.dst[i]];

		w.at[i] = pl_derive_launched(d, call);
		if (w.at[i] == d->n)
			continue;
		w.op[i] = d->op[w.at[i]];
		w.hold[i] = held_up(x, d, w.at[i]);
	}
	PL_DERIVE_ADD(x->b->err, x->wait, x->n_wait, x->cap_wait, w);
}

/* Hash of a name without its digits: layers are often numbered. */
static uint64_t name_hash(struct events *x, pl_id id)
{
	const char *s = pl_intern_get(&x->b->g->str, id);
	uint64_t h = 0xcbf29ce484222325u;

	if (!x->hash[id]) {
		for (; *s; s++)
			if (*s < '0' || *s > '9')
				h = (h ^ (uint8_t)*s) * 0x100000001b3u;
		x->hash[id] = h | 1;
	}
	return x->hash[id];
}

static uint64_t call_hash(struct events *x, uint32_t c)
{
	const struct call *y = &x->rank->call[c];
	const struct node *n;

	if (!y->n_ops)
		return y->type;
	n = &x->b->node[x->rank->by_call[y->first_op]->node];
	return name_hash(x, n->name) * 31 + n->res;
}

uint64_t pl_derive_place(struct events *x, uint32_t call)
{
	uint64_t h = 0;

	for (int dir = -1; dir <= 1; dir += 2) {
		uint32_t c = call, left = CONTEXT;

		for (int64_t i = (int64_t)call + dir;
		     left && i >= 0 && i < (int64_t)x->rank->n_calls && llabs(i - c) < SCAN_CALLS;
		     i += dir) {
			const struct call *y = &x->rank->call[i];

			if (y->res != x->rank->call[call].res || y->internal ||
			    !(y->n_ops || y->type == CALL_RECORD || y->type == CALL_WAIT))
				continue;
			h = (h ^ call_hash(x, (uint32_t)i)) * 0x9e3779b97f4a7c15u;
			h ^= h >> 29;
			left--;
		}
	}
	return h;
}

static void collect(struct events *x)
{
	bool any_record = false, any_wait = false;

	for (uint32_t c = 0; c < x->rank->n_calls; c++) {
		any_record |= x->rank->call[c].type == CALL_RECORD;
		any_wait |= x->rank->call[c].type == CALL_WAIT;
	}
	any_record &= any_wait;
	x->made_up = !any_wait;
	x->most_back = any_record ? N_BACK : N_BACK_LAUNCH;
	for (uint32_t c = 0; c < x->rank->n_calls; c++) {
		const struct call *y = &x->rank->call[c];

		if (y->internal)
			continue;
		if (any_wait ? y->type == CALL_WAIT : y->n_ops > 0)
			add_wait(x, c);
		if (any_record ? y->type == CALL_RECORD : y->n_ops > 0)
			pl_derive_add_record(x, c, !any_record);
	}
}

/* ---- places ---------------------------------------------------------------------------------- */

PL_COMPARATOR(by_place, struct wait, place, index);

PL_COMPARATOR(by_order, struct group, order);

PL_COMPARATOR(by_index, struct wait, index);

/*
 * Is the next launch after wait c not that wait's? A record and another wait before it belong to
 * that launch (the fork of the next collective), and c to another stream.
 */
static bool shadowed(const struct events *x, uint32_t c)
{
	const struct rank *rank = x->rank;
	uint32_t next = x->made_up ? PL_NONE : near_launch(rank, c, 1);
	bool record = false;

	for (uint32_t i = c + 1; next != PL_NONE && i < next; i++) {
		const struct call *y = &rank->call[i];

		if (y->res != rank->call[next].res || y->internal)
			continue;
		if (y->type == CALL_WAIT && record)
			return true;
		record |= y->type == CALL_RECORD;
	}
	return false;
}

static void find_places(struct events *x)
{
	for (size_t i = 0; i < x->n_wait; i++)
		x->wait[i].place = pl_derive_place(x, x->wait[i].call);
	pl_sort(x->wait, x->n_wait, sizeof(*x->wait), by_place);
	for (size_t i = 0, n; i < x->n_wait; i += n) {
		for (n = 1; i + n < x->n_wait && x->wait[i + n].place == x->wait[i].place; n++)
			;
		PL_DERIVE_ADD(x->b->err, x->group, x->n_group, x->cap_group,
			      (struct group){ .first = (uint32_t)i,
					      .n = (uint32_t)n,
					      .order = x->wait[i].index,
					      .dst = shadowed(x, x->wait[i].call) });
	}
	pl_sort(x->group, x->n_group, sizeof(*x->group), by_order);
}

/* ---- hypotheses ------------------------------------------------------------------------------ */

enum verdict { NOTHING, SAME_STREAM, POSSIBLE, REFUTED, SUPPORTED };

/* Source stream and number of operations there; false when there is none. */
static bool source(const struct events *x, const struct wait *w, struct hyp h, uint32_t *stream,
		   uint32_t *n)
{
	const struct record *r;

	if (h.back > w->n_records)
		return false;
	r = &x->rec[w->n_records - h.back];
	*stream = r->stream[h.src];
	*n = r->n[h.src];
	return *stream != PL_NONE && *n;
}

static enum verdict judge(const struct events *x, const struct wait *w, struct hyp h)
{
	const struct op *op = w->op[h.dst], *src;
	uint32_t stream, n;
	pl_ns late;

	if (!op || !source(x, w, h, &stream, &n))
		return NOTHING;
	if (stream == w->dst[h.dst])
		return SAME_STREAM;
	src = x->l->v[stream].op[n - 1];
	late = op->start - src->end;
	if (late < -TOL_NS)
		return REFUTED;
	if (!w->hold[h.dst] || op->explained)
		return POSSIBLE;
	return late <= TIGHT_NS && late <= w->hold[h.dst] / 4 + TOL_NS ? SUPPORTED : POSSIBLE;
}

struct tally {
	uint32_t refuted, supported, possible, same, held;
};

static struct tally test(const struct events *x, const struct group *g, struct hyp h)
{
	struct tally t = { 0 };

	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		const struct wait *w = &x->wait[i];
		enum verdict v = judge(x, w, h);

		t.refuted += v == REFUTED;
		t.supported += v == SUPPORTED;
		t.possible += v == POSSIBLE || v == SUPPORTED;
		t.same += v == SAME_STREAM;
		t.held += w->op[h.dst] && w->hold[h.dst] && !w->op[h.dst]->explained;
	}
	return t;
}

/* Add `by` (1 or -1) to the counts of the events that the waits of the place name. */
static void use(struct events *x, const struct group *g, int by)
{
	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (x->wait[i].h.back <= x->wait[i].n_records)
			x->rec[x->wait[i].n_records - x->wait[i].h.back].used += by;
}

static void accept(struct events *x, struct group *g, struct hyp h, bool supported)
{
	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		struct wait *w = &x->wait[i];

		w->h = h;
		w->explains = judge(x, w, h) == SUPPORTED;
		if (w->explains)
			w->op[h.dst]->explained = true;
	}
	use(x, g, 1);
	g->done = true;
	g->supported = supported;
}

/*
 * To the next hypothesis, the likely ones first: the stream of the next launch, the stream of the
 * launch before the record, the last record. False at the end.
 */
static bool next_hyp(const struct events *x, const struct group *g, struct hyp *h)
{
	if (++h->back <= x->most_back)
		return true;
	h->back = 1;
	if (++h->src < N_SRC)
		return true;
	h->src = 0;
	if (h->dst == g->dst)
		h->dst = UINT8_MAX;
	do
		h->dst++;
	while (h->dst == g->dst);
	return h->dst < N_DST;
}

/* Takes the nearest event if it explains all delayed operations of the place. */
static void take_nearest(struct events *x, struct group *g)
{
	struct hyp h = { 1, g->dst, 0 };

	for (; h.src < N_SRC; h.src++) {
		struct tally t = test(x, g, h);

		if (t.possible && !t.refuted && !t.same && t.supported == t.held) {
			accept(x, g, h, t.supported);
			return;
		}
	}
}

/* The hypothesis with the most support; the nearest possible one if none has any. */
static void take_best(struct events *x, struct group *g)
{
	struct hyp h = { 1, g->dst, 0 }, best = { 0 }, nearest = { 0 };
	int64_t most = 0;

	do {
		struct tally t = test(x, g, h);
		int64_t score = (int64_t)t.supported - 4 * (int64_t)t.refuted;

		if (score > most) {
			most = score;
			best = h;
		}
		if (!nearest.back && !t.refuted && t.possible > t.same)
			nearest = h;
	} while (next_hyp(x, g, &h));
	if (best.back)
		accept(x, g, best, true);
	else if (nearest.back)
		accept(x, g, nearest, false);
}

/* The number of waits of the place that share their event with another wait. */
static uint32_t shared(const struct events *x, const struct group *g, struct hyp h)
{
	uint32_t n = 0;

	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (h.back <= x->wait[i].n_records)
			n += x->rec[x->wait[i].n_records - h.back].used > 0;
	return n;
}

/*
 * A place without support. An event on a communication stream usually has one wait, so the nearest
 * event of such a stream that no other wait names is more likely.
 */
static void reconsider(struct events *x, struct group *g)
{
	struct hyp h = x->wait[g->first].h, best = h;
	uint32_t least, stream, from, n;

	if (!g->done || g->supported || !source(x, &x->wait[g->first], h, &from, &n) ||
	    !x->l->v[from].comm)
		return;
	use(x, g, -1);
	least = shared(x, g, h);
	while (least && ++h.back <= x->most_back) {
		struct tally t;

		if (!source(x, &x->wait[g->first + g->n - 1], h, &stream, &n) ||
		    !x->l->v[stream].comm)
			continue;
		t = test(x, g, h);
		if (t.refuted || t.same || !t.possible || shared(x, g, h) >= least)
			continue;
		least = shared(x, g, h);
		best = h;
	}
	accept(x, g, best, false);
}

/* For an operation that is still unexplained: find any event that explains this wait. */
static void take_any(struct events *x, struct wait *w)
{
	const struct group *g = &(const struct group){ .dst = 0 };
	struct hyp h = { 1, 0, 0 };

	for (uint32_t i = 0; i < N_DST && !w->explains; i++)
		if (w->op[i] && w->hold[i] && !w->op[i]->explained)
			goto search;
	return;
search:
	do {
		if (judge(x, w, h) != SUPPORTED)
			continue;
		w->h = h;
		w->op[h.dst]->explained = true;
		return;
	} while (next_hyp(x, g, &h));
}

static void tie_all(struct events *x)
{
	pl_sort(x->wait, x->n_wait, sizeof(*x->wait), by_index);
	for (size_t i = 0; i < x->n_wait; i++) {
		const struct wait *w = &x->wait[i];
		uint32_t stream, n;

		if (!w->h.back || !w->op[w->h.dst] || !source(x, w, w->h, &stream, &n))
			continue;
		tie(x, w->dst[w->h.dst], w->at[w->h.dst], stream, n, false);
	}
}

/* An assumed wait counts if the program changes to another stream or an operation was delayed. */
static bool counts(const struct events *x, const struct group *g)
{
	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		const struct wait *w = &x->wait[i];

		if (!x->made_up || w->hold[0] ||
		    (w->n_records && x->rec[w->n_records - 1].stream[0] != w->dst[0]))
			return true;
	}
	return false;
}

static void find_comm(struct events *x)
{
	for (uint32_t i = 0; i < x->l->n; i++) {
		struct stream *y = &x->l->v[i];
		uint32_t n = 0;

		for (uint32_t k = 0; k < y->n; k++)
			n += x->b->node[y->op[k]->node].role == PL_RO_ARRIVE;
		y->comm = 2 * n > y->n;
	}
}

static void infer(struct events *x)
{
	find_comm(x);
	mark_fences(x->b, x->rank);
	collect(x);
	find_places(x);
	for (size_t i = 0; i < x->n_group; i++)
		if (counts(x, &x->group[i]))
			take_nearest(x, &x->group[i]);
	for (size_t i = 0; i < x->n_group; i++)
		if (!x->group[i].done && counts(x, &x->group[i]))
			take_best(x, &x->group[i]);
	for (size_t i = 0; i < x->n_group; i++)
		reconsider(x, &x->group[i]);
	for (size_t i = 0; i < x->n_wait; i++)
		take_any(x, &x->wait[i]);
	tie_all(x);
}

void pl_derive_events(struct builder *b, struct rank *rank, struct streams *l, uint64_t *hash)
{
	struct events x = { .b = b, .rank = rank, .l = l, .hash = hash };
	bool any = false;

	recorded_waits(&x, &any);
	if (!any && !rank->all_sync && b->o->infer && l->n >= 2)
		infer(&x);
	pl_free(x.rec);
	pl_free(x.wait);
	pl_free(x.group);
}
