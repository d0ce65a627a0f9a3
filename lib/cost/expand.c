/*
 * Collectives message by message.
 *
 *   ring   2(n-1) steps (reduce-scatter, then all-gather; else one of them) of S/n to the right
 *          neighbour; step j passes on what came in step j-1
 *   halving-doubling  S/2 to the partner at distance 1, S/4 at distance 2 ... and back the same way
 *   tree   up to the root and down again; the root has one child, below it the tree is binary, so
 *          that it is ceil(log2 n) deep. A node's two children send at once: with two such trees,
 * in each of which half of the members are leaves (Sanders, Speck, Traeff, Parallel Computing 35,
 * 2009), each carries half and no link twice as much
 *
 * The share of a link is that of analytic.c. Durations are whole nanoseconds: message i of a link
 * ends at the rounded sum of the first i times, so that nothing is lost by rounding.
 */
#include <math.h>

#include "cost/expand.h"
#include "cost/internal.h"

#define MOST_NODES 50000000.0

struct member {
	uint32_t arrive, transfer;
	int32_t rank;
};
struct expansion {
	struct pl_edit *e;
	const struct pl_expand *x;
	struct member *m;
	uint32_t *prev, *now,
		*down; /* [member][chunk]: messages of the last step and of this one */
	uint32_t n, channels, chunks, meet;
	bool stream; /* a tree that passes on while it receives */
	double bytes;
	struct placing place;
};

/* ---- members --------------------------------------------------------------------------------- */

static int by_rank(const void *pa, const void *pb)
{
	const struct member *a = pa, *b = pb;

	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static uint32_t transfer_on(const struct pl_edit *e, uint32_t meet, uint32_t res)
{
	for (uint32_t i = e->node[meet].out; i != PL_NONE; i = e->edge[i].out_next)
		if (e->node[e->edge[i].dst].role == PL_RO_TRANSFER &&
		    e->node[e->edge[i].dst].res == res)
			return e->edge[i].dst;
	return PL_NONE;
}

static int find_members(struct expansion *s, struct pl_err *err)
{
	const struct pl_edit *e = s->e;
	uint32_t n = 0;
	int rc;

	for (uint32_t i = e->node[s->meet].in; i != PL_NONE; i = e->edge[i].in_next)
		n++;
	if ((rc = pl_alloc(&s->m, n + 1, sizeof(*s->m), err)) < 0)
		return rc;
	for (uint32_t i = e->node[s->meet].in; i != PL_NONE; i = e->edge[i].in_next) {
		uint32_t a = e->edge[i].src, res = e->node[a].res;
		uint32_t t = res == PL_NONE ? PL_NONE : transfer_on(e, s->meet, res);

		if (t == PL_NONE)
			return pl_fail(err, PL_EDATA,
				       "node %u of the collective has no transfer: it cannot be "
				       "taken apart",
				       a);
		s->m[s->n++] = (struct member){ a, t, e->g->res[res].rank };
	}
	pl_sort(s->m, s->n, sizeof(*s->m), by_rank);
	if (s->n < 2 || s->n > s->x->topo->n_ranks)
		return pl_fail(
			err, PL_EDATA,
			"a collective of %u members on a topology of %u ranks: give one that "
			"covers them",
			s->n, s->x->topo->n_ranks);
	return 0;
}

/* Members no longer wait for the last one, and end with their messages. */
static int open_up(struct expansion *s, struct pl_err *err)
{
	int rc = pl_edit_drop_node(s->e, s->meet, err);

	for (uint32_t i = 0; i < s->n && rc >= 0; i++)
		rc = pl_edit_set_dur(s->e, s->m[i].transfer, 0, err);
	return rc;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct hop hop_between(const struct expansion *s, uint32_t from, uint32_t to, bool all)
{
	const struct pl_topology *t = s->x->topo;
	bool far = pl_topology_host(t, from) != pl_topology_host(t, to);
	uint32_t m = s->place.per_host;

	if (all)
		return cost_hop(t, far ? PL_SCOPE_NETWORK : PL_SCOPE_HOST, m);
	if (far)
		return cost_hop(t, PL_SCOPE_NETWORK, 1);
	return cost_hop(t, PL_SCOPE_HOST, s->place.hosts > 1 ? m - 1 : m);
}

static pl_ns rounded(double ns)
{
	return (pl_ns)ceil(ns - ns * 1e-13);
}

static int message(struct expansion *s, uint32_t from, uint32_t to, pl_ns dur, uint32_t *id,
		   struct pl_err *err)
{
	const struct pl_enode *meet = &s->e->node[s->meet];
	struct pl_enode n = { .dur = dur,
			      .fixed = INT64_MIN,
			      .bytes = -1,
			      .in = PL_NONE,
			      .out = PL_NONE,
			      .res = PL_NONE,
			      .group = meet->group,
			      .step = meet->step,
			      .origin = PL_NONE,
			      .layer = -1,
			      .mb = -1,
			      .type = PL_N_DELAY,
			      .kind = meet->kind };
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "send %u>%u", from, to);
	if ((rc = pl_edit_add_name(s->e, name, &n.name, err)) < 0)
		return rc;
	n.start = s->e->node[s->m[from].arrive].start;
	return pl_edit_add_node(s->e, &n, s->m[from].arrive, id, err);
}

static int edge(struct expansion *s, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		struct pl_err *err)
{
	return pl_edit_add_edge(s->e, src, dst, type | PL_E_INFERRED, w, err);
}

static void swap_steps(struct expansion *s)
{
	uint32_t *v = s->prev;

	s->prev = s->now;
	s->now = v;
}

/* One step in which everybody sends: to `to` members away, or to the partner at that distance. */
struct round {
	uint32_t distance, before; /* of this step and of the one before, 0: none */
	bool partner;
	double at, bytes; /* what each has sent so far, and sends now */
};

static uint32_t target(const struct expansion *s, const struct round *r, uint32_t i, uint32_t d)
{
	return r->partner ? i ^ d : (i + d) % s->n;
}

static uint32_t source(const struct expansion *s, const struct round *r, uint32_t i, uint32_t d)
{
	return r->partner ? i ^ d : (i + s->n - d) % s->n;
}

static int send_round(struct expansion *s, const struct round *r, struct pl_err *err)
{
	uint32_t k_max = s->chunks;
	int rc = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t to = target(s, r, i, r->distance), last;
		struct hop h = hop_between(s, i, to, r->partner);

		for (uint32_t k = 0; k < k_max && rc >= 0; k++) {
			uint32_t *id = &s->now[i * k_max + k];
			double x0 = h.ns_per_byte * (r->at + r->bytes * k / k_max);
			double x1 = h.ns_per_byte * (r->at + r->bytes * (k + 1) / k_max);

			rc = message(s, i, to, rounded(x1) - rounded(x0), id, err);
			last = k ? s->now[i * k_max + k - 1]
				 : (r->before ? s->prev[i * k_max + k_max - 1] : s->m[i].arrive);
			if (rc >= 0)
				rc = edge(s, last, *id, PL_E_SEQ, 0, err);
			if (rc >= 0 && r->before) {
				uint32_t from = source(s, r, i, r->before);
				struct hop in = hop_between(s, from, i, r->partner);

				rc = edge(s, s->prev[from * k_max + k], *id, PL_E_DATA,
					  (pl_ns)in.latency_ns, err);
			}
		}
		if (rc < 0)
			return rc;
	}
	swap_steps(s);
	return 0;
}

/* Each ends with its last message, and with what it got last. */
static int end_rounds(struct expansion *s, const struct round *r, struct pl_err *err)
{
	uint32_t k = s->chunks;
	int rc = 0;

	for (uint32_t i = 0; i < s->n && rc >= 0; i++) {
		uint32_t from = source(s, r, i, r->before);
		struct hop in = hop_between(s, from, i, r->partner);

		rc = edge(s, s->prev[i * k + k - 1], s->m[i].transfer, PL_E_SEQ, 0, err);
		if (rc >= 0)
			rc = edge(s, s->prev[from * k + k - 1], s->m[i].transfer, PL_E_DATA,
				  (pl_ns)in.latency_ns, err);
	}
	return rc;
}

static int ring(struct expansion *s, struct pl_err *err)
{
	bool both =
		s->x->comm.coll != PL_COLL_REDUCE_SCATTER && s->x->comm.coll != PL_COLL_ALLGATHER;
	struct round r = { .distance = 1, .bytes = s->bytes / s->n };
	int rc = 0;

	for (uint32_t j = 0; j < (both ? 2 : 1) * (s->n - 1) && rc >= 0; j++) {
		r.at = r.bytes * j;
		rc = send_round(s, &r, err);
		r.before = 1;
	}
	return rc < 0 ? rc : end_rounds(s, &r, err);
}

static int halving(struct expansion *s, struct pl_err *err)
{
	struct round r = { .partner = true };
	uint32_t steps = cost_log2(s->n);
	int rc = 0;

	for (uint32_t j = 0; j < 2 * steps && rc >= 0; j++) {
		uint32_t k = j < steps ? j : 2 * steps - 1 - j;

		r.distance = 1u << k;
		r.bytes = ldexp(s->bytes, -(int)k - 1);
		rc = send_round(s, &r, err);
		r.at += r.bytes;
		r.before = r.distance;
	}
	return rc < 0 ? rc : end_rounds(s, &r, err);
}

/* ---- trees ----------------------------------------------------------------------------------- */

static uint32_t parent(uint32_t i)
{
	return i < 2 ? 0 : (i - 2) / 2 + 1;
}

/* The link between i and its parent. */
static struct hop tree_hop(const struct expansion *s, uint32_t i)
{
	return hop_between(s, i, parent(i), false);
}

/* Message k of a pass over the link between i and its parent. */
static int tree_message(struct expansion *s, uint32_t i, uint32_t k, bool down, uint32_t *id,
			struct pl_err *err)
{
	double ns = tree_hop(s, i).ns_per_byte * s->bytes, base = down ? ns : 0;
	pl_ns dur = rounded(base + ns * (k + 1) / s->chunks) - rounded(base + ns * k / s->chunks);
	uint32_t up = parent(i);

	return message(s, down ? up : i, down ? i : up, dur, id, err);
}

/* b passes on what a brings, which comes over the link of member i. */
static int pass_on(struct expansion *s, uint32_t a, uint32_t b, uint32_t i, struct pl_err *err)
{
	return edge(s, a, b, s->stream ? PL_E_START : PL_E_DATA, (pl_ns)tree_hop(s, i).latency_ns,
		    err);
}

/* `what` is complete only when each link from the root to i has brought it. */
static int complete(struct expansion *s, const uint32_t *v, uint32_t i, uint32_t what,
		    struct pl_err *err)
{
	pl_ns latency = 0;
	int rc = 0;

	for (; i && rc >= 0; i = parent(i)) {
		latency += (pl_ns)tree_hop(s, i).latency_ns;
		rc = edge(s, v[i * s->chunks + s->chunks - 1], what, PL_E_DATA, latency, err);
	}
	return rc;
}

static int tree_up(struct expansion *s, uint32_t turn, struct pl_err *err)
{
	uint32_t k_max = s->chunks, *v = s->now;
	int rc = edge(s, s->m[0].arrive, turn, PL_E_SEQ, 0, err);

	for (uint32_t i = s->n - 1; i > 0 && rc >= 0; i--) {
		pl_ns latency = 0;

		for (uint32_t k = 0; k < k_max && rc >= 0; k++) {
			uint32_t *id = &v[i * k_max + k];

			rc = tree_message(s, i, k, false, id, err);
			if (rc >= 0)
				rc = edge(s, k ? id[-1] : s->m[i].arrive, *id, PL_E_SEQ, 0, err);
			for (uint32_t c = 2 * i; c <= 2 * i + 1 && rc >= 0; c++)
				if (c < s->n && parent(c) == i)
					rc = pass_on(s, v[c * k_max + k], *id, c, err);
		}
		for (uint32_t up = i; up; up = parent(up))
			latency += (pl_ns)tree_hop(s, up).latency_ns;
		if (rc >= 0) /* the root has all of it when the slowest link has brought its own */
			rc = edge(s, v[i * k_max + k_max - 1], turn, PL_E_DATA, latency, err);
	}
	return rc;
}

static int tree_down(struct expansion *s, uint32_t turn, struct pl_err *err)
{
	uint32_t k_max = s->chunks, *v = s->down;
	int rc = edge(s, turn, s->m[0].transfer, PL_E_SEQ, 0, err);

	for (uint32_t i = 1; i < s->n && rc >= 0; i++) {
		uint32_t up = parent(i);

		for (uint32_t k = 0; k < k_max && rc >= 0; k++) {
			uint32_t *id = &v[i * k_max + k];

			rc = tree_message(s, i, k, true, id, err);
			if (rc >= 0)
				rc = edge(s, k ? id[-1] : turn, *id, PL_E_SEQ, 0, err);
			if (rc >= 0 && up)
				rc = pass_on(s, v[up * k_max + k], *id, up, err);
		}
		if (rc >= 0)
			rc = edge(s, s->m[i].arrive, s->m[i].transfer, PL_E_SEQ, 0, err);
		if (rc >= 0)
			rc = complete(s, v, i, s->m[i].transfer, err);
	}
	return rc;
}

static int tree(struct expansion *s, struct pl_err *err)
{
	uint32_t turn;
	int rc;

	if ((rc = message(s, 0, 0, 0, &turn, err)) < 0 || (rc = tree_up(s, turn, err)) < 0)
		return rc;
	return tree_down(s, turn, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int supported(const struct expansion *s, struct pl_err *err)
{
	unsigned coll = s->x->comm.coll, algo = s->x->comm.algo;
	bool all = coll == PL_COLL_ALLREDUCE;
	bool half = coll == PL_COLL_REDUCE_SCATTER || coll == PL_COLL_ALLGATHER;
	double steps = algo == PL_ALGO_RING ? 2.0 * s->n : 2.0 * cost_log2(s->n) + 1;

	if (!(algo == PL_ALGO_RING && (all || half)) &&
	    !((algo == PL_ALGO_TREE || algo == PL_ALGO_HALVING) && all))
		return pl_fail(err, PL_EABSENT, "%s by %s cannot be taken apart into messages",
			       pl_coll_name(coll), pl_algo_name(algo));
	if (algo == PL_ALGO_HALVING && s->n & (s->n - 1))
		return pl_fail(err, PL_EABSENT,
			       "halving-doubling of %u ranks: its messages are defined for powers "
			       "of two",
			       s->n);
	if (s->bytes < 0)
		return pl_fail(err, PL_EDATA, "the size of the collective is not known: give one");
	if (steps * s->n * s->chunks * s->channels > MOST_NODES)
		return pl_fail(err, PL_ELIMIT,
			       "more than %.0f messages: use fewer channels or chunks", MOST_NODES);
	return 0;
}

static int expand_channel(struct expansion *s, struct pl_err *err)
{
	switch (s->x->comm.algo) {
	case PL_ALGO_TREE:
		return tree(s, err);
	case PL_ALGO_HALVING:
		return halving(s, err);
	default:
		return ring(s, err);
	}
}

int pl_cost_expand(struct pl_edit *e, uint32_t rendezvous, const struct pl_expand *x,
		   struct pl_err *err)
{
	struct expansion s = { .e = e, .x = x, .meet = rendezvous };
	size_t size;
	int rc;

	if (rendezvous >= e->n_nodes || e->node[rendezvous].dead ||
	    e->node[rendezvous].type != PL_N_RENDEZVOUS)
		return pl_fail(err, PL_EDATA, "node %u is no rendezvous", rendezvous);
	s.channels = x->channels ? x->channels : 1;
	s.chunks = x->chunks ? x->chunks : 1;
	s.stream = x->comm.algo == PL_ALGO_TREE && !x->chunks;
	/* each of the channels has its share of the link and of the bytes: the same time */
	s.bytes = (double)(x->comm.bytes >= 0 ? x->comm.bytes : e->node[rendezvous].bytes);
	PL_TRY(find_members(&s, err));
	PL_TRY(supported(&s, err));
	s.place = cost_place(x->topo, s.n);
	size = (size_t)s.n * s.chunks;
	PL_TRY(pl_alloc(&s.prev, size, sizeof(*s.prev), err));
	PL_TRY(pl_alloc(&s.now, size, sizeof(*s.now), err));
	PL_TRY(pl_alloc(&s.down, size, sizeof(*s.down), err));
	PL_TRY(open_up(&s, err));
	for (uint32_t c = 0; c < s.channels; c++)
		PL_TRY(expand_channel(&s, err));
out:
	pl_free(s.m);
	pl_free(s.prev);
	pl_free(s.now);
	pl_free(s.down);
	return rc;
}
