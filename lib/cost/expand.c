/*
 * Expansion of a collective into messages: its members, its links and its algorithm.
 *
 * Members are in order of rank and fill the hosts of the topology in that order. analytic.c defines
 * the share of a link. Durations are whole nanoseconds: message i of a link ends at the rounded sum
 * of the first i times, so that rounding errors do not add up.
 */
#include <math.h>

#include "cost/expand_internal.h"

#define MOST_NODES 50000000.0

/* ---- members --------------------------------------------------------------------------------- */

PL_COMPARATOR(by_rank, struct member, rank);

/* PL_NONE: there is none, or several, because more urgent communication interrupted it. */
static uint32_t transfer_on(const struct pl_edit *e, uint32_t meet, uint32_t res)
{
	uint32_t found = PL_NONE;

	for (uint32_t i = e->node[meet].out; i != PL_NONE; i = e->edge[i].out_next) {
		const struct pl_enode *n = &e->node[e->edge[i].dst];

		if (n->role != PL_RO_TRANSFER || n->res != res)
			continue;
		if (found != PL_NONE)
			return PL_NONE;
		found = e->edge[i].dst;
	}
	return found;
}

static int find_members(struct expansion *s, struct pl_err *err)
{
	const struct pl_edit *e = s->e;
	uint32_t n = 0;

	for (uint32_t i = e->node[s->meet].in; i != PL_NONE; i = e->edge[i].in_next)
		n++;
	PL_CHECK(pl_arena_array(&s->arena, &s->m, n + 1, sizeof(*s->m), err));
	for (uint32_t i = e->node[s->meet].in; i != PL_NONE; i = e->edge[i].in_next) {
		uint32_t a = e->edge[i].src, res = e->node[a].res;
		uint32_t t = res == PL_NONE ? PL_NONE : transfer_on(e, s->meet, res);

		if (t == PL_NONE)
			return pl_fail(
				err, PL_EDATA,
				"node %u of the collective has no transfer, or one in parts: "
				"it cannot be taken apart",
				a);
		s->m[s->n++] = (struct member){ a, t, e->res[res].rank, 0 };
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

static void find_hosts(struct expansion *s)
{
	const struct pl_topology *t = s->x->topo;
	uint32_t left = s->n;

	s->place = pl_cost_place(t, s->n);
	s->even = true;
	for (size_t i = 0; i < t->n_hosts && left; i++) {
		uint32_t here = t->host[i].n < left ? t->host[i].n : left;

		s->even &= !here || here == s->place.per_host;
		left -= here;
	}
}

/* The result of a call, which is left out after a failure. */
#define DO(s, call)                                                                                \
	do {                                                                                       \
		if ((s)->rc >= 0)                                                                  \
			(s)->rc = (call);                                                          \
	} while (0)

/* Members no longer wait for the last arrival; they end with their messages. */
static void open_up(struct expansion *s)
{
	for (uint32_t i = s->e->node[s->meet].out, next; i != PL_NONE; i = next) {
		next = s->e->edge[i].out_next;
		if (s->e->node[s->e->edge[i].dst].role == PL_RO_TRANSFER)
			DO(s, pl_edit_drop_edge(s->e, i, s->err));
	}
	for (uint32_t i = 0; i < s->n; i++) {
		DO(s, pl_edit_set_dur(s->e, s->m[i].transfer, 0, s->err));
		if (!pl_edit_has_edge(s->e, s->m[i].arrive, s->m[i].transfer))
			pl_cost_expand_edge(s, s->m[i].arrive, s->m[i].transfer, PL_E_SEQ, 0);
	}
}

/* ---- messages -------------------------------------------------------------------------------- */

struct hop pl_cost_expand_hop(const struct expansion *s, enum pl_scope scope, uint32_t users)
{
	struct hop h = pl_cost_hop(s->x->topo, scope, users);

	if (s->x->stretch > 0) {
		h.latency_ns *= s->x->stretch;
		h.ns_per_byte *= s->x->stretch;
	}
	return h;
}

struct hop pl_cost_expand_between(const struct expansion *s, uint32_t from, uint32_t to, bool all)
{
	const struct pl_topology *t = s->x->topo;
	bool other_host = pl_topology_host(t, from) != pl_topology_host(t, to);
	uint32_t m = s->place.per_host;

	if (all)
		return pl_cost_expand_hop(s, other_host ? PL_SCOPE_NETWORK : PL_SCOPE_HOST, m);
	if (other_host)
		return pl_cost_expand_hop(s, PL_SCOPE_NETWORK, 1);
	return pl_cost_expand_hop(s, PL_SCOPE_HOST, s->place.hosts > 1 ? m - 1 : m);
}

static pl_ns rounded(long double ns)
{
	return (pl_ns)ceill(ns - ns * 1e-13L);
}

pl_ns pl_cost_expand_busy(struct member *m, long double ns)
{
	pl_ns before = rounded(m->sent);

	m->sent += ns;
	return rounded(m->sent) - before;
}

static uint32_t add_node(struct expansion *s, uint32_t member, struct pl_enode *n, const char *name)
{
	const struct pl_enode *meet = &s->e->node[s->meet];
	uint32_t after = s->m[member].arrive, id = PL_NONE;

	DO(s, pl_edit_add_name(s->e, name, &n->name, s->err));
	n->flags = PL_NF_MESSAGE;
	n->group = meet->group;
	n->comm = meet->comm;
	n->phase = PL_PH_COMM;
	n->step = meet->step;
	n->start = s->e->node[after].start;
	DO(s, pl_edit_add_node(s->e, n, after, &id, s->err));
	return id;
}

uint32_t pl_cost_expand_delay(struct expansion *s, const char *name, pl_ns dur)
{
	struct pl_enode n = pl_edit_blank_node();

	n.dur = dur;
	n.type = PL_N_DELAY;
	return add_node(s, 0, &n, name);
}

uint32_t pl_cost_expand_message(struct expansion *s, uint32_t from, uint32_t to, const char *what,
				double bytes, pl_ns dur)
{
	double part = bytes / s->channels;
	struct pl_enode n = pl_edit_blank_node();
	char name[60];

	n.dur = dur;
	n.bytes = part < 9e18 ? (int64_t)(part + 0.5) : -1;
	n.type = PL_N_DELAY;
	n.peer = to < s->n && from != to ? s->m[to].rank : -1;
	n.kind = PL_K_SEND;
	if (s->x->res && from < s->n) { /* servers have none */
		n.type = PL_N_OP;
		n.role = PL_RO_TRANSFER;
		n.res = s->x->res[(size_t)from * s->channels + s->channel];
	}
	if (what)
		snprintf(name, sizeof(name), "%s", what);
	else
		snprintf(name, sizeof(name), "send %u>%u", from, to);
	return add_node(s, from < s->n ? from : to, &n, name);
}

void pl_cost_expand_edge(struct expansion *s, uint32_t src, uint32_t dst, unsigned type, pl_ns w)
{
	if (w > 0 && s->x->res) {
		/* On resources, for reports: the latency of a link is a node too, or it would be a
		 * time that nothing explains. */
		uint32_t latency = pl_cost_expand_delay(s, "latency", w);

		DO(s, pl_edit_add_edge(s->e, src, latency, type | PL_E_INFERRED, 0, s->err));
		src = latency;
		type = PL_E_DATA;
		w = 0;
	}
	DO(s, pl_edit_add_edge(s->e, src, dst, type | PL_E_INFERRED, w, s->err));
}

/* ---- which algorithm ------------------------------------------------------------------------- */

/* An all-reduce, or one of its halves: algorithms differ in these alone. */
static bool is_reduction(const struct expansion *s)
{
	unsigned coll = s->x->comm.coll;

	return coll == PL_COLL_ALLREDUCE || coll == PL_COLL_REDUCE_SCATTER ||
	       coll == PL_COLL_ALLGATHER || coll == PL_COLL_OTHER;
}

/* How many steps, for the count of messages; 0: it has none. */
static double steps_of(const struct expansion *s)
{
	const double by_algorithm[PL_ALGO_COUNT_] = {
		[PL_ALGO_RING] = 2.0 * s->n,
		[PL_ALGO_TREE] = 2,
		[PL_ALGO_HALVING] = 2.0 * pl_cost_log2(s->n),
		[PL_ALGO_HIERARCHICAL] = 2.0 * (s->place.per_host + s->place.hosts),
		[PL_ALGO_PS] = 4,
	};
	unsigned coll = s->x->comm.coll;

	if (s->x->comm.algo >= PL_ALGO_COUNT_ || coll == PL_COLL_SEND || coll == PL_COLL_RECV ||
	    coll == PL_COLL_SENDRECV || coll >= PL_COLL_COUNT_)
		return 0;
	if (coll == PL_COLL_ALLTOALL)
		return s->n;
	return is_reduction(s) ? by_algorithm[s->x->comm.algo] : 2;
}

static int supported(const struct expansion *s, struct pl_err *err)
{
	unsigned coll = s->x->comm.coll, algo = s->x->comm.algo;
	double steps = steps_of(s);

	if (steps <= 0)
		return pl_fail(err, PL_EABSENT, "%s by %s cannot be taken apart into messages",
			       pl_trace_coll_name(coll), pl_plan_algorithm_name(algo));
	if (algo == PL_ALGO_HIERARCHICAL && is_reduction(s) && !s->even)
		return pl_fail(err, PL_EABSENT,
			       "hierarchical over hosts that have different numbers of ranks: its "
			       "messages are defined for equal ones");
	if (s->bytes < 0 && coll != PL_COLL_BARRIER)
		return pl_fail(err, PL_EDATA, "the size of the collective is not known: give one");
	if (steps * s->n * s->chunks * s->channels > MOST_NODES)
		return pl_fail(err, PL_ELIMIT,
			       "more than %.0f messages: use fewer channels or chunks", MOST_NODES);
	return 0;
}

/* An all-reduce, or one of its halves. */
static void by_algorithm(struct expansion *s, bool scatter, bool gather)
{
	switch (s->x->comm.algo) {
	case PL_ALGO_TREE:
		pl_cost_expand_tree(s, false, scatter, gather);
		break;
	case PL_ALGO_HALVING:
		pl_cost_expand_halving(s, scatter, gather);
		break;
	case PL_ALGO_HIERARCHICAL:
		pl_cost_expand_hierarchical(s, scatter, gather);
		break;
	case PL_ALGO_PS:
		pl_cost_expand_ps(s, scatter, gather);
		break;
	default:
		pl_cost_expand_ring(s, scatter && gather);
	}
}

static void expand_channel(struct expansion *s)
{
	unsigned coll = s->x->comm.coll;
	bool up = coll == PL_COLL_REDUCE || coll == PL_COLL_GATHER || coll == PL_COLL_BARRIER;
	bool down = coll == PL_COLL_BROADCAST || coll == PL_COLL_SCATTER || coll == PL_COLL_BARRIER;
	bool whole = coll == PL_COLL_BROADCAST || coll == PL_COLL_REDUCE;

	if (up || down)
		pl_cost_expand_tree(s, whole && s->x->comm.algo == PL_ALGO_RING, up, down);
	else if (coll == PL_COLL_ALLTOALL)
		pl_cost_expand_alltoall(s);
	else
		by_algorithm(s, coll != PL_COLL_ALLGATHER, coll != PL_COLL_REDUCE_SCATTER);
}

/* Do members pass data on while they receive it? */
static bool streams(const struct expansion *s)
{
	bool tree = is_reduction(s) ? s->x->comm.algo == PL_ALGO_TREE
				    : s->x->comm.coll != PL_COLL_ALLTOALL;

	return !s->x->chunks && tree;
}

static void find_bytes(struct expansion *s)
{
	unsigned coll = s->x->comm.coll;

	s->bytes = (double)(s->x->comm.bytes >= 0 ? s->x->comm.bytes : s->e->node[s->meet].bytes);
	if (coll == PL_COLL_BARRIER)
		s->bytes = 0;
	else if (coll == PL_COLL_GATHER || coll == PL_COLL_SCATTER) /* all parts but the root's */
		s->bytes = s->bytes < 0 ? s->bytes : s->bytes * (s->n - 1) / s->n;
}

static int room(struct expansion *s, struct pl_err *err)
{
	size_t size = (size_t)s->n * s->chunks;

	PL_CHECK(pl_arena_array(&s->arena, &s->prev, size, sizeof(*s->prev), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->now, size, sizeof(*s->now), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->down, size, sizeof(*s->down), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->from, s->n, sizeof(*s->from), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->was, s->n, sizeof(*s->was), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->hop, s->n, sizeof(*s->hop), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->was_hop, s->n, sizeof(*s->was_hop), err));
	return 0;
}

int pl_cost_expand(struct pl_edit *e, uint32_t rendezvous, const struct pl_expand *x,
		   struct pl_err *err)
{
	struct expansion s = { .e = e, .err = err, .x = x, .meet = rendezvous };
	int rc;

	if (rendezvous >= e->n_nodes || e->node[rendezvous].dead ||
	    e->node[rendezvous].type != PL_N_RENDEZVOUS)
		return pl_fail(err, PL_EDATA, "node %u is no rendezvous", rendezvous);
	s.channels = x->channels ? x->channels : 1;
	s.chunks = x->chunks ? x->chunks : 1;
	s.stream = streams(&s);
	PL_TRY(find_members(&s, err));
	find_hosts(&s);
	find_bytes(&s);
	PL_TRY(supported(&s, err));
	PL_TRY(room(&s, err));
	open_up(&s);
	/* each of the channels has its share of the link and of the bytes: the same time */
	for (s.channel = 0; s.channel < s.channels && s.rc >= 0; s.channel++) {
		for (uint32_t i = 0; i < s.n; i++)
			s.m[i].sent = 0;
		s.begun = false;
		expand_channel(&s);
	}
	rc = s.rc;
out:
	pl_arena_fini(&s.arena);
	return rc;
}
