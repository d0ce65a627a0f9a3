/*
 * The synchronisation of gradients, built again according to the plan.
 *
 * First the recorded communication is removed, once (rewrite_take_over.c). On each channel of a
 * rank, two delays of length 0 (begin_mark and end_mark) mark the place of the communication. Then
 * the buckets of the state are built between the marks, in order of issue. If
 * two states differ in a few buckets, only these buckets are built: two buckets are the same if
 * they have the same content.
 *
 * The edges that order a channel are of type COMM. No other edge into an arrival has this type.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

/* ---- one bucket ------------------------------------------------------------------------------ */

void pl_rewrite_unref(struct rw_built *b)
{
	if (!b || --b->refs)
		return;
	pl_free(b->at);
	pl_free(b);
}

static struct rw_built *new_built(const struct pl_rewriter *r, uint64_t key, struct pl_err *err)
{
	struct rw_built *b;

	if (pl_alloc(&b, 1, sizeof(*b), err) < 0)
		return NULL;
	b->refs = 1;
	b->key = key;
	if (pl_alloc(&b->at, r->n_slots, sizeof(*b->at), err) < 0) {
		pl_rewrite_unref(b);
		return NULL;
	}
	for (uint32_t i = 0; i < r->n_slots; i++)
		b->at[i].arrive = b->at[i].transfer = b->at[i].issue = b->at[i].lost = PL_NONE;
	return b;
}

/* The next tensor of the set on the slot; *k counts from 0. NULL: there are no more. */
static const struct rw_place *next_member(const struct pl_rewriter *r, uint32_t set, uint32_t slot,
					  uint32_t *k)
{
	while (r->set_first[set] + *k < r->set_first[set + 1]) {
		uint32_t t = r->set_member[r->set_first[set] + (*k)++];
		const struct rw_place *x = rw_place(r, slot, t);

		if (x->inst != PL_NONE)
			return x;
	}
	return NULL;
}

struct part { /* of a set, on a slot */
	const struct rw_place
		*last;		    /* became ready last; NULL: the slot has no tensor of the set */
	const struct rw_comm *comm; /* that carried `last` */
	bool as_recorded;	    /* it is all that one recorded communication carried */
};

static struct part part_of(const struct pl_rewriter *r, uint32_t set, uint32_t slot)
{
	const struct rw_place *x, *first = NULL;
	struct part p = { .as_recorded = true };
	uint32_t n = 0, k = 0;

	for (; (x = next_member(r, set, slot, &k)); n++) {
		first = first ? first : x;
		p.as_recorded &= x->comm == first->comm;
		if (!p.last || x->ready > p.last->ready)
			p.last = x;
	}
	if (p.last) {
		p.comm = &r->comm[p.last->comm];
		p.as_recorded &= p.comm->n_tensors == n;
	}
	return p;
}

static void copy_gates(struct pl_rewriter *r, const struct rw_comm *c, uint32_t arrive)
{
	for (uint32_t i = c->gate; i < c->gate + c->n_gates; i++) {
		const struct rw_edge *g = &r->edge[i];

		if (!r->e->node[g->node].dead)
			rw_add_edge_like(r, g->node, arrive, &g->edge, g->edge.type, 0);
	}
}

/* Is it an edge to the next operation on the resource, in this step? */
static bool is_next(const struct pl_edit *e, const struct pl_eedge *x, uint32_t res)
{
	return PL_E_TYPE(x->type) == PL_E_SEQ && e->node[x->dst].res == res &&
	       e->node[x->dst].type != PL_N_ENTRY;
}

/* Put `n` on the resource of `p` directly after it and after other nodes that were put there. */
static uint32_t put_behind(struct pl_rewriter *r, uint32_t p, struct pl_enode n)
{
	struct pl_edit *e = r->e;
	uint32_t res = e->node[p].res, id;

	for (uint32_t x = e->node[p].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->node[e->edge[x].dst].origin == PL_NONE &&
		    PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && e->node[e->edge[x].dst].res == res) {
			p = e->edge[x].dst;
			x = e->node[p].out;
			if (x == PL_NONE)
				break;
		}
	n.start = pl_edit_end(e, p);
	id = rw_add_node(r, &n, p);
	for (uint32_t x = e->node[p].out, next; r->rc == 0 && x != PL_NONE; x = next) {
		const struct pl_eedge ed = e->edge[x];

		next = ed.out_next;
		if (!is_next(e, &ed, res))
			continue;
		rw_add_edge_like(r, id, ed.dst, &ed, ed.type, 0);
		rw_drop_edge(r, x);
	}
	rw_add_edge(r, p, id, PL_E_SEQ, 0);
	return id;
}

/* A copy of node p, which was not recorded. */
static struct pl_enode copy_of(const struct pl_edit *e, uint32_t p)
{
	struct pl_enode n = e->node[p];

	n.fixed = INT64_MIN;
	n.origin = PL_NONE;
	return n;
}

/* A node like p with another duration. */
static struct pl_enode like(const struct pl_edit *e, uint32_t p, uint8_t role, pl_ns dur)
{
	struct pl_enode n = copy_of(e, p);

	n.dur = dur;
	n.role = role;
	n.bytes = -1;
	n.flags &= PL_NF_IN_STEP;
	return n;
}

/* On a thread issuing takes time of its own, right behind the operation that made the tensor. */
static void add_issue(struct pl_rewriter *r, struct rw_built *b, struct rw_at *at,
		      const struct rw_place *last, pl_ns dur)
{
	struct pl_edit *e = r->e;
	uint32_t p = rw_producer(r, last), res = p == PL_NONE ? PL_NONE : e->node[p].res;
	struct pl_enode n;

	if (dur <= 0 || res == PL_NONE || e->res[res].track_type != PL_T_THREAD)
		return;
	n = like(e, p, PL_RO_HOST, dur);
	n.kind = PL_K_RUNTIME;
	b->issue_ns = dur;
	at->issue = put_behind(r, p, n);
	rw_add_edge(r, at->issue, at->arrive, PL_E_DATA, 0);
}

/* Add the delay for the time that computation loses between the issues of this bucket and the next.
 * It comes after the nodes that let the bucket arrive. pl_rewrite_contend() sets its duration. */
static void add_lost(struct pl_rewriter *r, struct rw_at *at, const struct rw_place *last)
{
	struct pl_edit *e = r->e;
	const struct rw_comm *c = &r->comm[last->comm];
	uint32_t p = rw_producer(r, last), behind = p;
	struct pl_enode n;

	if (!r->slowdown || p == PL_NONE || e->node[p].res == PL_NONE)
		return;
	for (uint32_t i = c->gate; last->inst == c->last && i < c->gate + c->n_gates; i++) {
		uint32_t g = r->edge[i].node;

		if (!e->node[g].dead && e->node[g].res == e->node[p].res &&
		    e->node[g].step == e->node[p].step && e->node[g].type == PL_N_OP &&
		    e->node[g].label > e->node[behind].label)
			behind = g;
	}
	n = like(e, p, PL_RO_COMPUTE, 0);
	if (r->rc == 0)
		r->rc = pl_edit_add_name(e, "slowed down by communication", &n.name, &r->failure);
	at->lost = put_behind(r, at->issue != PL_NONE && behind == p ? at->issue : behind, n);
}

static void add_gates(struct pl_rewriter *r, uint32_t set, uint32_t slot, uint32_t arrive)
{
	const struct rw_place *x;

	for (uint32_t k = 0; (x = next_member(r, set, slot, &k));) {
		const struct rw_comm *c = &r->comm[x->comm];
		uint32_t made = rw_producer(r, x);

		if (x->inst == c->last || made == PL_NONE)
			copy_gates(r, c, arrive);
		else
			rw_add_edge(r, made, arrive, PL_E_DATA, c->lag);
		rw_set_arrive(r, x->inst, arrive);
	}
}

/* Does the thread reach `node` before or at its work for some tensor of the set? Then the inferred
 * wait is wrong: the thread would wait for a communication that it has not issued yet. */
static bool comes_before(const struct pl_rewriter *r, uint32_t set, uint32_t slot, uint32_t node)
{
	const struct pl_edit *e = r->e;
	const struct pl_enode *n = &e->node[node];
	const struct rw_place *x;

	for (uint32_t k = 0; (x = next_member(r, set, slot, &k));) {
		const struct rw_comm *c = &r->comm[x->comm];
		uint32_t made = rw_producer(r, x);

		if (made != PL_NONE && e->node[made].step == n->step &&
		    e->node[made].res == n->res && n->label <= e->node[made].label)
			return true;
		for (uint32_t i = c->gate; i < c->gate + c->n_gates; i++) {
			const struct pl_enode *g = &e->node[r->edge[i].node];

			if (g->step == n->step && g->res == n->res && n->label <= g->label)
				return true;
		}
	}
	return false;
}

static void add_uses(struct pl_rewriter *r, const struct rw_built *b, uint32_t set, uint32_t slot)
{
	struct pl_edit *e = r->e;
	uint32_t done = PL_NONE, transfer = b->at[slot].transfer;
	const struct rw_place *x;

	for (uint32_t k = 0; (x = next_member(r, set, slot, &k));) {
		const struct rw_comm *c = &r->comm[x->comm];

		if (x->comm == done)
			continue;
		done = x->comm;
		for (uint32_t i = c->use; i < c->use + c->n_uses; i++) {
			const struct rw_edge *u = &r->edge[i];

			if (!e->node[u->node].dead && !pl_edit_has_edge(e, transfer, u->node) &&
			    !(u->edge.type & PL_E_INFERRED && comes_before(r, set, slot, u->node)))
				rw_add_edge_like(r, transfer, u->node, &u->edge, u->edge.type,
						 b->at[slot].kept ? 0 : b->flight);
		}
	}
}

struct pl_cost_comm pl_rewrite_comm_of_set(const struct pl_rewriter *r, uint32_t set,
					   uint32_t meeting)
{
	const struct rw_state *st = rw_now(r);
	const struct rw_network *net = &st->network;
	struct pl_cost_comm c = { .group = PL_NONE };
	bool any = false;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		if (st->b.set[t] != set)
			continue;
		if (!any) {
			const struct rw_comm *first = &r->comm[rw_first(r, t)->comm];

			c = rw_comm_of(r->e, first->arrive, meeting);
			c.n = net->ranks && !net->replicas /* nothing is known to be data-parallel
							    */
				      ? net->ranks
				      : pl_rewrite_members(r, first->transfer, c.n);
			c.bytes = 0;
			c.algo = st->choice[t].algo;
			c.servers = st->choice[t].servers;
		}
		any = true;
		c.bytes = pl_add_sat(c.bytes, r->tensor[t].bytes);
	}
	c.parts = st->b.parts[set];
	c.change = net->change;
	c.n_changes = net->n_changes;
	return c;
}

static void build_slot(struct pl_rewriter *r, struct rw_built *b, uint32_t set, uint32_t slot,
		       uint32_t meet, const struct pl_cost_comm *c)
{
	struct pl_edit *e = r->e;
	const struct part p = part_of(r, set, slot);
	struct rw_at *at = &b->at[slot];
	struct pl_enode n;
	uint32_t after;

	if (!p.last)
		return;
	after = rw_producer(r, p.last);
	if (p.comm->last == p.last->inst || after == PL_NONE)
		after = p.comm->arrive;
	at->channel = p.comm->channel;
	n = copy_of(e, p.comm->arrive);
	n.res = r->channel[at->channel].res;
	n.bytes = c->bytes;
	at->arrive = rw_add_node(r, &n, after);
	add_gates(r, set, slot, at->arrive);
	add_issue(r, b, at, p.last, p.as_recorded ? 0 : r->c->issue_ns);
	add_lost(r, at, p.last);
	/* with partners that were not recorded the recorded duration stands for the transfer */
	at->kept = meet == PL_NONE && p.as_recorded && c->parts <= 1 && !c->n_changes &&
		   !rw_now(r)->network.ranks;
	b->alone = at->kept ? e->node[p.comm->transfer].dur : pl_cost_transfer(r->c, c);
	b->flight = pl_cost_flight(r->c, c);
	b->slows = b->slowed = 1;
	if (r->slowdown)
		pl_cost_contention(r->c, c, &b->slows, &b->slowed);
	n = copy_of(e, p.comm->transfer);
	n.res = r->channel[at->channel].res;
	n.bytes = c->bytes;
	n.dur = b->alone;
	at->transfer = rw_add_node(r, &n, at->arrive);
	rw_add_edge(r, at->arrive, at->transfer, PL_E_SEQ, 0);
	if (meet != PL_NONE) {
		rw_add_edge(r, at->arrive, meet, PL_E_COMM, 0);
		rw_add_edge(r, meet, at->transfer, PL_E_COMM, 0);
	}
	add_uses(r, b, set, slot);
}

/* The rendezvous in the pass, if one was recorded; else PL_NONE. And how many ranks meet. */
static uint32_t build_meet(struct pl_rewriter *r, uint32_t set, uint32_t pass, uint32_t *ranks)
{
	struct pl_edit *e = r->e;
	uint32_t old = PL_NONE, after = PL_NONE;
	struct pl_enode n;

	*ranks = 0;
	for (uint32_t i = 0; i < r->n_ranks; i++) {
		const struct rw_comm *c = part_of(r, set, pass * r->n_ranks + i).comm;

		if (!c)
			continue;
		++*ranks;
		if (c->meet != PL_NONE)
			old = c->meet;
		if (after == PL_NONE || e->node[c->arrive].label > e->node[after].label)
			after = c->arrive;
	}
	if (old == PL_NONE)
		return PL_NONE;
	n = copy_of(e, old);
	return rw_add_node(r, &n, after);
}

/* The nodes of a bucket in a pass are a communication of their own. */
static void put_comm(struct pl_rewriter *r, const struct rw_built *b, uint32_t pass, uint32_t meet,
		     const struct pl_cost_comm *c)
{
	struct pl_edit *e = r->e;
	const struct pl_gcomm *old = meet == PL_NONE ? NULL : pl_edit_comm(e, meet);
	struct pl_gcomm row;
	uint32_t id;

	if (!old || r->rc < 0)
		return;
	row = *old;
	row.bytes = c->bytes;
	row.members = c->n;
	row.rounds = 0;
	if (c->algo != c->was && c->algo < PL_ALGO_COUNT_)
		r->rc = pl_edit_add_name(e, pl_plan_algorithm_name(c->algo), &row.algorithm,
					 &r->failure);
	if (r->rc < 0)
		return;
	r->rc = pl_edit_add_comm(e, &row, &id, &r->failure);
	if (r->rc < 0)
		return;
	e->node[meet].comm = id;
	for (uint32_t s = pass * r->n_ranks; s < (pass + 1) * r->n_ranks; s++)
		if (b->at[s].arrive != PL_NONE)
			e->node[b->at[s].arrive].comm = e->node[b->at[s].transfer].comm = id;
}

static int build_set(struct pl_rewriter *r, uint32_t set, uint64_t key, struct rw_built **out,
		     struct pl_err *err)
{
	struct rw_built *b = new_built(r, key, err);

	*out = b;
	if (!b)
		return err->code;
	for (uint32_t k = r->step_pass[r->from]; k < r->step_pass[r->to]; k++) {
		uint32_t ranks, meet = build_meet(r, set, k, &ranks);
		struct pl_cost_comm c = pl_rewrite_comm_of_set(r, set, ranks);

		for (uint32_t i = 0; i < r->n_ranks; i++)
			build_slot(r, b, set, k * r->n_ranks + i, meet, &c);
		put_comm(r, b, k, meet, &c);
	}
	return 0;
}

/* Host operations behind which an inserted one is taken out are joined again. */
static void drop_inserted(struct pl_rewriter *r, uint32_t node)
{
	const struct pl_edit *e = r->e;
	uint32_t before = PL_NONE;

	if (node == PL_NONE)
		return;
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ)
			before = e->edge[x].src;
	for (uint32_t x = e->node[node].out; before != PL_NONE && x != PL_NONE;
	     x = e->edge[x].out_next) {
		const struct pl_eedge ed = e->edge[x];

		if (is_next(e, &ed, e->node[node].res))
			rw_add_edge_like(r, before, ed.dst, &ed, ed.type, 0);
	}
	rw_drop_node(r, node);
}

static void drop_built(struct pl_rewriter *r, const struct rw_built *b)
{
	for (uint32_t s = rw_first_slot(r); s < rw_end_slot(r); s++) {
		const struct rw_at *at = &b->at[s];
		uint32_t meet;

		if (at->arrive == PL_NONE || r->e->node[at->arrive].dead)
			continue;
		meet = pl_rewrite_meet_of(r->e, at->arrive);
		rw_drop_node(r, at->arrive);
		rw_drop_node(r, at->transfer);
		drop_inserted(r, at->lost);
		drop_inserted(r, at->issue);
		if (meet != PL_NONE)
			rw_drop_node(r, meet);
	}
}

/* ---- the channel ----------------------------------------------------------------------------- */

void pl_rewrite_chain(struct pl_rewriter *r, uint32_t from, uint32_t to)
{
	const struct pl_edit *e = r->e;
	bool there = false;

	for (uint32_t x = e->node[to].in, next; r->rc == 0 && x != PL_NONE; x = next) {
		next = e->edge[x].in_next;
		if (PL_E_TYPE(e->edge[x].type) != PL_E_COMM)
			continue;
		if (e->edge[x].src == from)
			there = true;
		else
			rw_drop_edge(r, x);
	}
	if (!there)
		rw_add_edge(r, from, to, PL_E_COMM, 0);
}

static void chain_all(struct pl_rewriter *r)
{
	const struct rw_state *st = rw_now(r);

	for (uint32_t s = rw_first_slot(r); s < rw_end_slot(r); s++) {
		const struct rw_slot *x = &r->slot[s];

		for (uint32_t k = x->channel; k < x->channel + x->n_channels; k++) {
			uint32_t from = r->channel[k].begin_mark;

			for (uint32_t i = 0; i < st->b.n_sets; i++) {
				const struct rw_at *at = &st->built[i]->at[s];

				if (at->arrive == PL_NONE || at->channel != k)
					continue;
				pl_rewrite_chain(r, from, at->arrive);
				from = at->transfer;
			}
			pl_rewrite_chain(r, from, r->channel[k].end_mark);
		}
	}
}

/* Calls that issued removed communication take no time. */
static void retire_calls(struct pl_rewriter *r)
{
	for (uint32_t s = rw_first_slot(r); r->issues && s < rw_end_slot(r); s++) {
		const struct rw_slot *sl = &r->slot[s];

		for (uint32_t i = sl->comm; i < sl->comm + sl->n_comms; i++) {
			const struct rw_comm *c = &r->comm[i];
			uint32_t t = 0;

			while (t < r->n_tensors && rw_place(r, s, t)->comm != i)
				t++;
			if (c->issue != PL_NONE && t < r->n_tensors)
				rw_set_dur(r, c->issue,
					   part_of(r, rw_now(r)->b.set[t], s).as_recorded
						   ? c->issue_dur
						   : 0);
		}
	}
}

/* The keys of buckets: their tensors and how these are sent. One pass over the tensors. */
static void set_keys(const struct pl_rewriter *r, uint64_t *key)
{
	const struct rw_state *st = rw_now(r);
	uint64_t changes = 0;

	for (uint32_t i = 0; i < st->network.n_changes; i++) {
		const struct pl_link_change *c = &st->network.change[i];

		changes = changes * 31 + pl_hash(c->link, strlen(c->link));
		changes = changes * 31 + pl_hash(&c->bandwidth, sizeof(c->bandwidth));
		changes = changes * 31 + pl_hash(&c->latency, sizeof(c->latency));
		changes = changes * 31 + c->absolute;
	}
	for (uint32_t i = 0; i < st->b.n_sets; i++)
		key[i] = 0x9e3779b97f4a7c15u + st->b.parts[i] +
			 ((uint64_t)st->network.ranks << 32) + changes;
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		const uint64_t what[] = { key[st->b.set[t]],
					  t + 1 + ((uint64_t)st->choice[t].algo << 32) +
						  ((uint64_t)st->choice[t].servers << 40) };

		key[st->b.set[t]] = pl_hash(what, sizeof(what));
	}
}

/* Take equal buckets over from the state that was built before; mostly they have the same order. */
static int reuse(struct pl_rewriter *r, struct rw_built **old, uint32_t n_old, struct pl_err *err)
{
	struct rw_state *st = rw_now(r);
	uint64_t *key;
	uint32_t at = 0;
	int rc = pl_alloc(&key, st->b.n_sets, sizeof(*key), err);

	if (rc < 0)
		return rc;
	pl_plan_buckets_members(&st->b, r->set_first, r->set_member);
	set_keys(r, key);
	for (uint32_t i = 0; i < st->b.n_sets; i++) {
		for (uint32_t n = 0; n < n_old && !st->built[i]; n++, at++) {
			at = at < n_old ? at : 0;
			if (old[at] && old[at]->key == key[i]) {
				st->built[i] = old[at];
				old[at] = NULL;
			}
		}
	}
	for (uint32_t k = 0; k < n_old; k++)
		if (old[k])
			drop_built(r, old[k]);
	for (uint32_t i = 0; rc == 0 && i < st->b.n_sets; i++)
		if (!st->built[i])
			rc = build_set(r, i, key[i], &st->built[i], err);
	pl_free(key);
	return rc;
}

int pl_rewrite_sync(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *st = rw_now(r);
	struct rw_built **old;
	uint32_t n_old = st->n_built;
	int rc;

	PL_CHECK(pl_alloc(&old, r->n_tensors, sizeof(*old), err));
	PL_TRY(pl_rewrite_slowdown_ready(r, err));
	if (!st->over) {
		PL_TRY(pl_rewrite_take_over(r, err));
		st->over = true;
	}
	for (uint32_t i = 0; i < n_old; i++) {
		old[i] = st->built[i];
		st->built[i] = NULL;
	}
	st->n_built = st->b.n_sets;
	pl_rewrite_join_pieces(r);
	PL_TRY(reuse(r, old, n_old, err));
	chain_all(r);
	retire_calls(r);
	PL_TRY(rw_result(r, 0, err));
	rc = pl_rewrite_contend(r, err);
out:
	for (uint32_t i = 0; i < n_old; i++)
		pl_rewrite_unref(old[i]);
	pl_free(old);
	return rc;
}
