/*
 * Where the time of each rank went: each instant of the span of a rank has exactly one cause.
 *
 * The span is from the start of the first reported step to the end of the last. If several things
 * happen at an instant, the first of this list is the cause: computation (overlapped communication
 * if a transfer runs at the same time); a transfer (exposed communication); a copy; unexplained
 * time before an operation; waiting in a communication for other ranks; modelled latency; work of a
 * host thread (on a rank with a device, the device is idle because of the host); nothing (tail). On
 * a rank without a device the host operations are the computation.
 *
 * A collective with messages counts like one without: a member waits until the last member has
 * arrived, and then it transfers until its end. While a slow rank has not arrived, links carry
 * messages to it, but nobody waits for these.
 *
 * The intervals of a rank are sorted by start (radix sort) and swept. For each class the sweep
 * keeps only the latest end. Neighbouring intervals of a resource that touch become one interval.
 * Memory is bounded: ranks are processed in batches, and a rank with very many operations in slices
 * of time. Each batch or slice costs one pass over the nodes; for most nodes the pass reads only
 * the resource. O(n) per pass.
 */
#include "core/spans.h"
#include "graph/edit_messages.h"
#include "sim/internal.h"

#define BATCH_NODES (UINT64_C(3) << 19) /* nodes that one pass may turn into intervals */
#define SPAN_MAX    (INT64_C(1) << 59)

enum cls { C_COMPUTE, C_COMM, C_COPY, C_UNEXPLAINED, C_WAIT, C_LATENCY, C_HOST, CLASSES };

struct ival {
	uint64_t key; /* start << 3 | class */
	int64_t end;
};
struct ivals {
	struct ival *v;
	size_t n, cap;
};

const char *pl_sim_idle_name(unsigned cause)
{
	static const char *const name[] = { "waiting for other ranks", "launch latency",
					    "nothing to do" };

	return cause < PL_LEN(name) ? name[cause] : "?";
}

/* By role; -1: the operation takes no time of the rank. */
static const int8_t class_of[PL_RO_COUNT_] = {
	[PL_RO_NONE] = -1,	   [PL_RO_COMPUTE] = C_COMPUTE, [PL_RO_HOST] = C_HOST,
	[PL_RO_GAP] = C_HOST,	   [PL_RO_COPY] = C_COPY,	[PL_RO_ARRIVE] = -1,
	[PL_RO_TRANSFER] = C_COMM, [PL_RO_SYNC] = C_HOST,	[PL_RO_MARK] = -1,
};

struct open { /* of a resource: the interval that may still grow */
	pl_ns start, end;
	int cls;    /* -1: none */
	pl_ns done; /* end of the operations so far */
};
struct sweep {
	int64_t at, until[CLASSES];
	pl_ns sum[CLASSES], overlap, nothing;
	struct pl_spans waited; /* the instants whose cause is waiting, from t0 */
	struct pl_err *err;	/* of adding to them */
	int rc;
};
struct work {
	const struct pl_sim *s;
	const struct pl_run *r;
	struct pl_account *a;
	struct ivals *m; /* by rank */
	struct pl_spans
		*waits;	    /* by rank: when it waited, grouped by the rank that it waited for */
	struct ival *other; /* the radix sort's second array */
	size_t cap_other;
	uint32_t *rank_of;  /* by resource */
	uint32_t *batch_of; /* by resource */
	uint32_t *batch;    /* by rank */
	uint64_t *nodes;    /* by rank */
	uint32_t *meet;	    /* by node of a shape: the rendezvous of an arrival, PL_NONE */
	size_t cap_meet;
	const struct pl_shape *meet_of; /* the shape of `meet` */
	const pl_ns *dur;		/* of the step */
	bool messages;			/* some collective has messages */
	struct open *open;		/* by resource */
	struct sweep *sweep;		/* by rank */
	pl_ns t0, t1;			/* the whole span */
	pl_ns a0, a1;			/* the slice of this pass, from t0 */
	bool first;			/* slice */
};

/* ---- intervals ------------------------------------------------------------------------------ */

static int flush(struct work *w, uint32_t res, struct pl_err *err)
{
	struct open *o = &w->open[res];
	struct ivals *m = &w->m[w->rank_of[res]];
	struct ival x = { (uint64_t)o->start << 3 | (unsigned)o->cls, o->end };

	if (o->cls < 0 || o->end <= o->start)
		return 0;
	o->cls = -1;
	return pl_append(&m->v, &m->n, &m->cap, &x, sizeof(x), err);
}

static inline int put(struct work *w, uint32_t res, enum cls c, pl_ns a, pl_ns b,
		      struct pl_err *err)
{
	struct open *o = &w->open[res];

	a = pl_max_i64(a - w->t0, w->a0);
	b = pl_min_i64(b - w->t0, w->a1);
	if (b <= a)
		return 0;
	if (o->cls == (int)c && a <= o->end && a >= o->start) {
		o->end = pl_max_i64(o->end, b);
		return 0;
	}
	PL_CHECK(flush(w, res, err));
	*o = (struct open){ a, b, (int)c, o->done };
	return 0;
}

/* The part of [a, b) in the whole span. */
static pl_ns within(const struct work *w, pl_ns a, pl_ns b)
{
	return pl_max_i64(0, pl_min_i64(b, w->t1) - pl_max_i64(a, w->t0));
}

static void res_time(struct pl_res_time *t, uint8_t role, pl_ns ns)
{
	pl_ns *const part[CLASSES] = { [C_COMPUTE] = &t->compute_ns,
				       [C_COMM] = &t->comm_ns,
				       [C_COPY] = &t->copy_ns,
				       [C_HOST] = role == PL_RO_GAP ? &t->gap_ns : &t->host_ns };

	if (class_of[role] < 0)
		return;
	*part[class_of[role]] += ns;
	t->ops++;
}

/* The rendezvous of a collective with messages has no successors: find those of all arrivals. */
static int find_meetings(struct work *w, const struct pl_shape *sh, struct pl_err *err)
{
	if (!w->messages || w->meet_of == sh)
		return 0;
	PL_CHECK(pl_grow(&w->meet, &w->cap_meet, sh->n_nodes, sizeof(*w->meet), err));
	memset(w->meet, 0xff, sh->n_nodes * sizeof(*w->meet));
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		for (uint32_t e = sh->off[i]; sh->type[i] == PL_N_RENDEZVOUS && e < sh->off[i + 1];
		     e++)
			w->meet[sh->src[e]] = i;
	w->meet_of = sh;
	return 0;
}

static uint32_t meeting_of(const struct work *w, const struct pl_shape *sh, uint32_t transfer)
{
	uint32_t meet = pl_node_meeting(sh, transfer), arrival = pl_node_arrival(sh, transfer);

	return meet == PL_NONE && w->messages && arrival != PL_NONE ? w->meet[arrival] : meet;
}

/* When the transfer of a member begins. The transfer of a collective with messages is a node that
 * lasts from the last message to the end, but it began with the last arrival; that of a member that
 * left earlier began when the member arrived. */
static pl_ns transfer_begin(const struct work *w, size_t k, const struct pl_shape *sh,
			    uint32_t node)
{
	const pl_ns *start = w->r->start[k];
	uint32_t meet = w->messages ? meeting_of(w, sh, node) : PL_NONE;

	if (meet == PL_NONE || pl_node_meeting(sh, node) != PL_NONE)
		return start[node];
	if (start[meet] > start[node] + pl_sim_run_dur(w->s, w->r, k, node))
		meet = pl_node_arrival(sh, node);
	return pl_min_i64(start[meet], start[node]);
}

/* The last to arrive at the rendezvous that lets this transfer begin. */
static uint32_t last_arrival(const struct work *w, size_t k, uint32_t rendezvous)
{
	const struct pl_shape *sh = &w->s->g->shape[w->s->g->step[k].shape];
	pl_ns t;
	uint32_t e = pl_sim_binding(w->s, w->r, k, rendezvous, &t);

	return e == PL_NONE || sh->res[sh->src[e]] == PL_NONE ? PL_NONE
							      : w->rank_of[sh->res[sh->src[e]]];
}

/* A transfer began after its arrival: the time between is a wait for the last one or the root. */
static int waiting(struct work *w, size_t k, uint32_t node, pl_ns start, struct pl_err *err)
{
	const struct pl_shape *sh = &w->s->g->shape[w->s->g->step[k].shape];
	uint32_t arrival = pl_node_arrival(sh, node), other = PL_NONE;
	uint32_t rendezvous = meeting_of(w, sh, node), rank = w->rank_of[sh->res[node]];
	pl_ns arrived = arrival == PL_NONE ? start : w->r->start[k][arrival], latest = INT64_MIN;
	int rc;

	for (uint32_t e = sh->off[node]; e < sh->off[node + 1]; e++) {
		uint32_t src = sh->src[e];

		if (sh->role[src] != PL_RO_ARRIVE || sh->res[src] == PL_NONE || src == arrival ||
		    w->r->start[k][src] <= latest)
			continue;
		latest = w->r->start[k][src];
		other = w->rank_of[sh->res[src]];
	}
	if (arrived >= start)
		return 0;
	if (w->first) {
		w->a->res[sh->res[node]].wait_ns += within(w, arrived, start);
		if (rendezvous != PL_NONE)
			other = last_arrival(w, k, rendezvous);
		if (other != PL_NONE && other != rank &&
		    (rc = pl_spans_add(&w->waits[rank], (int32_t)other, pl_max_i64(arrived, w->t0),
				       pl_min_i64(start, w->t1), err)) < 0)
			return rc;
	}
	return put(w, sh->res[node], C_WAIT, arrived, start, err);
}

/* Has the node no latency and no unexplained time, whatever came last? Most on host threads. */
static bool at_once(const struct work *w, size_t k, const struct pl_shape *sh, uint32_t i)
{
	const struct prep *p = &w->s->step[k];
	int32_t any = 0;

	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		any |= p->w[e];
	return !any && !p->n_long_gaps && !p->resource_gap;
}

/* The edge that lets the node start, PL_NONE. Most nodes have one edge. */
static uint32_t binding(const struct work *w, size_t k, const struct pl_shape *sh, uint32_t i)
{
	pl_ns t;

	return sh->off[i + 1] - sh->off[i] == 1 && !sh->k ? sh->off[i]
							  : pl_sim_binding(w->s, w->r, k, i, &t);
}

/* The time before the operation on its resource, back to the end of the previous operation. */
static int delays(struct work *w, size_t k, uint32_t i, pl_ns start, struct pl_err *err)
{
	const struct pl_shape *sh = &w->s->g->shape[w->s->g->step[k].shape];
	uint32_t res = sh->res[i], e;
	pl_ns lat, gap, done = w->open[res].done;

	if (at_once(w, k, sh, i) || (e = binding(w, k, sh, i)) == PL_NONE)
		return 0;
	pl_sim_delay(w->s, k, i, e, &lat, &gap);
	if (w->s->step[k].resource_gap)
		gap += w->s->step[k].resource_gap[i];
	if (lat + gap <= 0)
		return 0;
	lat = pl_max_i64(start - gap - lat, done);
	gap = pl_max_i64(start - gap, done);
	if (w->first && sh->role[i] != PL_RO_TRANSFER) { /* there it is part of the wait */
		w->a->res[res].unexplained_ns += within(w, gap, start);
		w->a->res[res].latency_ns += within(w, lat, gap);
	}
	PL_CHECK(put(w, res, C_LATENCY, lat, gap, err));
	return put(w, res, C_UNEXPLAINED, gap, start, err);
}

static int one_node(struct work *w, size_t k, uint32_t i, struct pl_err *err)
{
	const struct pl_shape *sh = &w->s->g->shape[w->s->g->step[k].shape];
	uint32_t res = sh->res[i];
	pl_ns start = w->r->start[k][i], end = start + w->dur[i];
	bool message = sh->flags[i] & PL_NF_MESSAGE;
	int cls = message ? -1 : class_of[sh->role[i]], rc;

	PL_CHECK(delays(w, k, i, start, err));
	if (sh->role[i] == PL_RO_TRANSFER && !message)
		start = transfer_begin(w, k, sh, i);
	if (w->first)
		res_time(&w->a->res[res], sh->role[i], within(w, start, end));
	if (sh->role[i] == PL_RO_TRANSFER && !message && (rc = waiting(w, k, i, start, err)) < 0)
		return rc;
	w->open[res].done = pl_max_i64(w->open[res].done, end);
	return cls < 0 ? 0 : put(w, res, (enum cls)cls, start, end, err);
}

/* ---- sorting and sweeping ------------------------------------------------------------------- */

PL_COMPARATOR(by_key, struct ival, key);

/* By key, stable. Least significant digit first; digits that all share are skipped. */
static int sort(struct work *w, struct ivals *m, struct pl_err *err)
{
	enum { BITS = 11, SIZE = 1 << BITS };
	uint64_t any = 0, all = UINT64_MAX;
	bool sorted = true;
	struct ival *from = m->v, *to;
	size_t count[SIZE];

	for (size_t i = 0; i < m->n; i++) {
		any |= from[i].key;
		all &= from[i].key;
		sorted &= !i || from[i - 1].key <= from[i].key;
	}
	if (sorted)
		return 0;
	if (m->n < 64) {
		pl_sort(m->v, m->n, sizeof(*m->v), by_key);
		return 0;
	}
	PL_CHECK(pl_grow(&w->other, &w->cap_other, m->n, sizeof(*w->other), err));
	to = w->other;
	for (int shift = 0; shift < 64; shift += BITS) {
		struct ival *swap = from;
		size_t sum = 0;

		if (!((any ^ all) >> shift & (SIZE - 1)))
			continue;
		memset(count, 0, sizeof(count));
		for (size_t i = 0; i < m->n; i++)
			count[from[i].key >> shift & (SIZE - 1)]++;
		for (size_t d = 0; d < SIZE; d++) {
			size_t n = count[d];

			count[d] = sum;
			sum += n;
		}
		for (size_t i = 0; i < m->n; i++)
			to[count[from[i].key >> shift & (SIZE - 1)]++] = from[i];
		from = to;
		to = swap;
	}
	if (from != m->v)
		memcpy(m->v, from, m->n * sizeof(*from));
	return 0;
}

/* All intervals that begin before t are known: account up to t. */
static void advance(struct sweep *s, int64_t t)
{
	while (s->at < t) {
		int64_t next = t;
		int top = CLASSES;

		for (int c = CLASSES; c-- > 0;) {
			if (s->until[c] <= s->at)
				continue;
			top = c;
			next = pl_min_i64(next, s->until[c]);
		}
		if (top == CLASSES)
			s->nothing += next - s->at;
		else if (top == C_COMPUTE && s->until[C_COMM] > s->at)
			s->overlap += next - s->at;
		else
			s->sum[top] += next - s->at;
		if (top == C_WAIT && s->rc >= 0)
			s->rc = pl_spans_add(&s->waited, 0, s->at, next, s->err);
		s->at = next;
	}
}

static int sweep_rank(struct work *w, size_t rank, struct pl_err *err)
{
	struct ivals *m = &w->m[rank];
	struct sweep *s = &w->sweep[rank];

	PL_CHECK(sort(w, m, err));
	s->err = err;
	for (size_t i = 0; i < m->n; i++) {
		unsigned c = m->v[i].key & 7;

		advance(s, (int64_t)(m->v[i].key >> 3));
		s->until[c] = pl_max_i64(s->until[c], m->v[i].end);
	}
	advance(s, w->a1);
	m->n = 0;
	return s->rc;
}

/* ---- passes --------------------------------------------------------------------------------- */

static int pass(struct work *w, uint32_t batch, struct pl_err *err)
{
	const struct pl_graph *g = w->s->g;

	for (uint32_t i = 0; i < g->n_res; i++)
		w->open[i] = (struct open){ .cls = -1, .done = INT64_MIN };
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		PL_CHECK(find_meetings(w, sh, err));
		w->dur = w->r->dur[k] ? w->r->dur[k] : pl_sim_durations(w->s, k);
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			if (sh->res[i] == PL_NONE || w->batch_of[sh->res[i]] != batch)
				continue;
			PL_CHECK(one_node(w, k, i, err));
		}
	}
	for (uint32_t i = 0; i < g->n_res; i++)
		PL_CHECK(flush(w, i, err));
	for (size_t i = 0; i < w->a->n_ranks; i++)
		if (w->batch[i] == batch)
			PL_CHECK(sweep_rank(w, i, err));
	return 0;
}

/* For whom the rank waited. It may wait for one rank in several communications at a time, which
 * counts once. A receive that was posted early waits for nothing while the rank does something
 * else: only those instants count whose cause is waiting. */
static void sum_waits(struct work *w, size_t rank)
{
	struct pl_spans *s = &w->waits[rank], *waited = &w->sweep[rank].waited;
	struct pl_rank_time *t = &w->a->rank[rank];

	t->waits_for = -1;
	pl_spans_unite(s);
	pl_spans_unite(waited);
	for (size_t i = 0, k; i < s->n; i = k) {
		int32_t other = s->v[i].group;
		pl_ns ns = 0;

		for (k = i; k < s->n && s->v[k].group == other; k++)
			ns += pl_spans_cover(waited, 0, s->v[k].start - w->t0, s->v[k].end - w->t0);
		w->a->rank[other].awaited_ns += ns;
		if (ns > t->waits_for_ns) {
			t->waits_for_ns = ns;
			t->waits_for = w->a->rank[other].rank;
		}
	}
	pl_spans_fini(s);
	pl_spans_fini(waited);
}

static void free_intervals(struct work *w)
{
	for (size_t i = 0; w->m && i < w->a->n_ranks; i++) {
		pl_free(w->m[i].v);
		w->m[i] = (struct ivals){ NULL, 0, 0 };
	}
}

/* Ranks by batch, and how many slices of time each batch needs. */
static int all_passes(struct work *w, struct pl_err *err)
{
	size_t i = 0;

	for (uint32_t batch = 0; i < w->a->n_ranks; batch++) {
		uint64_t n = 0, slices;

		do {
			n += w->nodes[i];
			w->batch[i++] = batch;
		} while (i < w->a->n_ranks && n + w->nodes[i] <= BATCH_NODES);
		for (uint32_t k = 0; k < w->s->g->n_res; k++)
			w->batch_of[k] =
				w->rank_of[k] == PL_NONE ? PL_NONE : w->batch[w->rank_of[k]];
		slices = n / BATCH_NODES + 1;
		for (uint64_t s = 0; s < slices; s++) {
			w->first = s == 0;
			w->a0 = (w->t1 - w->t0) / (pl_ns)slices * (pl_ns)s;
			w->a1 = s + 1 == slices ? w->t1 - w->t0
						: (w->t1 - w->t0) / (pl_ns)slices * (pl_ns)(s + 1);
			PL_CHECK(pass(w, batch, err));
		}
		free_intervals(w); /* the ranks of the next batch take the memory */
		for (size_t k = 0; k < i; k++)
			if (w->batch[k] == batch)
				sum_waits(w, k);
	}
	return 0;
}

static int setup(struct work *w, struct pl_err *err)
{
	const struct pl_graph *g = w->s->g;
	size_t n = (size_t)g->n_ranks;

	w->a->n_ranks = n;
	w->a->n_res = g->n_res;
	w->messages = pl_graph_has_messages(g);
	PL_CHECK(pl_alloc(&w->a->rank, n, sizeof(*w->a->rank), err));
	PL_CHECK(pl_alloc(&w->a->res, g->n_res, sizeof(*w->a->res), err));
	PL_CHECK(pl_alloc(&w->m, n, sizeof(*w->m), err));
	PL_CHECK(pl_alloc(&w->waits, n, sizeof(*w->waits), err));
	PL_CHECK(pl_alloc(&w->sweep, n, sizeof(*w->sweep), err));
	PL_CHECK(pl_alloc(&w->batch, n, sizeof(*w->batch), err));
	PL_CHECK(pl_alloc(&w->nodes, n, sizeof(*w->nodes), err));
	PL_CHECK(pl_alloc(&w->rank_of, g->n_res, sizeof(*w->rank_of), err));
	PL_CHECK(pl_alloc(&w->batch_of, g->n_res, sizeof(*w->batch_of), err));
	PL_CHECK(pl_alloc(&w->open, g->n_res, sizeof(*w->open), err));
	for (size_t i = 0; i < n; i++)
		w->a->rank[i].rank = g->rank[i];
	for (uint32_t i = 0; i < g->n_res; i++) {
		w->a->res[i].res = i;
		w->rank_of[i] = pl_graph_rank_index(g, g->res[i].rank);
	}
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (sh->res[i] != PL_NONE && w->rank_of[sh->res[i]] != PL_NONE)
				w->nodes[w->rank_of[sh->res[i]]]++;
	}
	pl_sim_span(w->s, w->r, &w->t0, &w->t1);
	w->t1 = pl_min_i64(w->t1, pl_add_sat(w->t0, SPAN_MAX));
	return 0;
}

static void finish(struct work *w)
{
	for (size_t i = 0; i < w->a->n_ranks; i++) {
		struct pl_rank_time *t = &w->a->rank[i];
		const struct sweep *s = &w->sweep[i];

		t->span_ns = w->t1 - w->t0;
		t->compute_ns = s->sum[C_COMPUTE];
		t->comm_overlapped_ns = s->overlap;
		t->comm_exposed_ns = s->sum[C_COMM];
		t->copy_ns = s->sum[C_COPY];
		t->host_ns = s->sum[C_HOST];
		t->unexplained_ns = s->sum[C_UNEXPLAINED];
		t->idle_ns[PL_I_WAIT] = s->sum[C_WAIT];
		t->idle_ns[PL_I_LAUNCH] = s->sum[C_LATENCY];
		t->idle_ns[PL_I_TAIL] = s->nothing;
	}
	for (size_t i = 0; i < w->a->n_res; i++) {
		struct pl_res_time *t = &w->a->res[i];

		t->idle_ns = pl_max_i64(0, w->t1 - w->t0 - t->compute_ns - t->comm_ns - t->copy_ns -
						   t->host_ns - t->gap_ns - t->wait_ns -
						   t->unexplained_ns - t->latency_ns);
	}
}

int pl_sim_account_make(const struct pl_sim *s, const struct pl_run *r, struct pl_account *a,
			struct pl_err *err)
{
	struct work w = { .s = s, .r = r, .a = a };
	int rc;

	memset(a, 0, sizeof(*a));
	PL_TRY(setup(&w, err));
	PL_TRY(all_passes(&w, err));
	finish(&w);
out:
	for (size_t i = 0; w.sweep && i < a->n_ranks; i++)
		pl_spans_fini(&w.sweep[i].waited);
	free_intervals(&w);
	pl_free(w.m);
	pl_free(w.other);
	pl_free(w.rank_of);
	pl_free(w.batch_of);
	pl_free(w.batch);
	pl_free(w.nodes);
	pl_free(w.open);
	pl_free(w.meet);
	pl_free(w.sweep);
	for (size_t i = 0; w.waits && i < a->n_ranks; i++)
		pl_spans_fini(&w.waits[i]);
	pl_free(w.waits);
	if (rc < 0)
		pl_sim_account_fini(a);
	return rc;
}

void pl_sim_account_fini(struct pl_account *a)
{
	pl_free(a->rank);
	pl_free(a->res);
	memset(a, 0, sizeof(*a));
}
