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
#include <string.h>

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

/* Members of a set in a slot: how many, which became ready last, are they one recorded
 * communication's? */
static uint32_t members(const struct pl_rewriter *r, uint32_t set, uint32_t slot, uint32_t *last,
			bool *as_recorded)
{
	uint32_t n = 0, comm = PL_NONE;
	pl_ns latest = INT64_MIN;

	*last = PL_NONE;
	*as_recorded = true;
	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++) {
		uint32_t t = r->set_member[k];
		size_t at = (size_t)slot * r->n_tensors + t;
		pl_ns ready;

		if (r->inst[at] == PL_NONE)
			continue;
		n++;
		ready = rw_ready(r, slot, t);
		if (*last == PL_NONE || ready > latest) {
			latest = ready;
			*last = t;
		}
		if (comm == PL_NONE)
			comm = r->comm_of[at];
		*as_recorded &= comm == r->comm_of[at];
	}
	if (n)
		*as_recorded &= r->comm[comm].n_tensors == n;
	return n;
}

static bool has_edge_to(const struct pl_edit *e, uint32_t src, uint32_t dst)
{
	for (uint32_t x = e->node[src].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->edge[x].dst == dst)
			return true;
	return false;
}

static int copy_gates(struct pl_rewriter *r, const struct rw_comm *c, uint32_t arrive,
		      struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = c->gate; rc == 0 && i < c->gate + c->n_gates; i++)
		if (!r->e->node[r->edge[i].node].dead)
			rc = pl_edit_add_edge_like(r->e, r->edge[i].node, arrive,
						   r->edge[i].edge.type, &r->edge[i].edge, 0, err);
	return rc;
}

/* Put `n` on the resource of `p` directly after it and after other nodes that were put there. */
static int put_behind(struct pl_edit *e, uint32_t p, struct pl_enode n, uint32_t *id,
		      struct pl_err *err)
{
	uint32_t res = e->node[p].res;
	int rc;

	for (uint32_t x = e->node[p].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->node[e->edge[x].dst].origin == PL_NONE &&
		    PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && e->node[e->edge[x].dst].res == res) {
			p = e->edge[x].dst;
			x = e->node[p].out;
			if (x == PL_NONE)
				break;
		}
	n.start = pl_edit_end(e, p);
	rc = pl_edit_add_node(e, &n, p, id, err);
	for (uint32_t x = e->node[p].out, next; rc == 0 && x != PL_NONE; x = next) {
		const struct pl_eedge ed = e->edge[x];

		next = ed.out_next;
		if (PL_E_TYPE(ed.type) != PL_E_SEQ || e->node[ed.dst].res != res ||
		    e->node[ed.dst].type == PL_N_ENTRY)
			continue;
		if ((rc = pl_edit_add_edge_like(e, *id, ed.dst, ed.type, &ed, 0, err)) == 0)
			rc = pl_edit_drop_edge(e, x, err);
	}
	return rc == 0 ? pl_edit_add_edge(e, p, *id, PL_E_SEQ, 0, err) : rc;
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
static int add_issue(struct pl_rewriter *r, struct rw_built *b, uint32_t slot, uint32_t tensor,
		     pl_ns dur, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint32_t p = e->tensor[r->inst[(size_t)slot * r->n_tensors + tensor]].producer, res;
	struct pl_enode n;

	if (p == PL_NONE || dur <= 0)
		return 0;
	res = e->node[p].res;
	if (res == PL_NONE || e->res[res].track_type != PL_T_THREAD)
		return 0;
	n = like(e, p, PL_RO_HOST, dur);
	n.kind = PL_K_RUNTIME;
	b->issue_ns = dur;
	return put_behind(e, p, n, &b->at[slot].issue, err);
}

/* Add the delay for the time that computation loses between the issues of this bucket and the next.
 * It comes after the nodes that let the bucket arrive. pl_rewrite_contend() sets its duration. */
static int add_lost(struct pl_rewriter *r, struct rw_built *b, uint32_t slot, uint32_t tensor,
		    struct pl_err *err)
{
	struct pl_edit *e = r->e;
	size_t at = (size_t)slot * r->n_tensors + tensor;
	const struct rw_comm *c = &r->comm[r->comm_of[at]];
	uint32_t p = e->tensor[r->inst[at]].producer, behind = p, id;
	struct pl_enode n;
	int rc;

	if (!r->slowdown || p == PL_NONE || e->node[p].res == PL_NONE)
		return 0;
	for (uint32_t i = c->gate; r->inst[at] == c->last && i < c->gate + c->n_gates; i++) {
		uint32_t g = r->edge[i].node;

		if (!e->node[g].dead && e->node[g].res == e->node[p].res &&
		    e->node[g].step == e->node[p].step && e->node[g].type == PL_N_OP &&
		    e->node[g].label > e->node[behind].label)
			behind = g;
	}
	n = like(e, p, PL_RO_COMPUTE, 0);
	if ((rc = pl_edit_add_name(e, "slowed down by communication", &n.name, err)) < 0)
		return rc;
	rc = put_behind(e, b->at[slot].issue != PL_NONE && behind == p ? b->at[slot].issue : behind,
			n, &id, err);
	b->at[slot].lost = id;
	return rc;
}

static int add_gates(struct pl_rewriter *r, struct rw_built *b, uint32_t set, uint32_t slot,
		     uint32_t last, pl_ns issue_ns, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint32_t arrive = b->at[slot].arrive;
	int rc;

	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++) {
		size_t at = (size_t)slot * r->n_tensors + r->set_member[k];
		uint32_t inst = r->inst[at];
		const struct rw_comm *c;

		if (inst == PL_NONE)
			continue;
		c = &r->comm[r->comm_of[at]];
		if (inst == c->last || e->tensor[inst].producer == PL_NONE)
			rc = copy_gates(r, c, arrive, err);
		else
			rc = pl_edit_add_edge(e, e->tensor[inst].producer, arrive, PL_E_DATA,
					      c->lag, err);
		if (rc < 0 || (rc = pl_edit_set_arrive(e, inst, arrive, err)) < 0)
			return rc;
	}
	if ((rc = add_issue(r, b, slot, last, issue_ns, err)) < 0 ||
	    (rc = add_lost(r, b, slot, last, err)) < 0)
		return rc;
	return b->at[slot].issue == PL_NONE
		       ? 0
		       : pl_edit_add_edge(e, b->at[slot].issue, arrive, PL_E_DATA, 0, err);
}

/* Does the thread reach `node` before or at its work for some tensor of the set? Then the inferred
 * wait is wrong: the thread would wait for a communication that it has not issued yet. */
static bool comes_before(const struct pl_rewriter *r, uint32_t set, uint32_t slot, uint32_t node)
{
	const struct pl_edit *e = r->e;
	const struct pl_enode *n = &e->node[node];

	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++) {
		size_t at = (size_t)slot * r->n_tensors + r->set_member[k];
		const struct rw_comm *c;
		uint32_t made;

		if (r->inst[at] == PL_NONE)
			continue;
		made = e->tensor[r->inst[at]].producer;
		c = &r->comm[r->comm_of[at]];
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

static int add_uses(struct pl_rewriter *r, struct rw_built *b, uint32_t set, uint32_t slot,
		    struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint32_t done = PL_NONE;
	int rc;

	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++) {
		size_t at = (size_t)slot * r->n_tensors + r->set_member[k];
		const struct rw_comm *c;

		if (r->inst[at] == PL_NONE || r->comm_of[at] == done)
			continue;
		done = r->comm_of[at];
		c = &r->comm[done];
		for (uint32_t i = c->use; i < c->use + c->n_uses; i++) {
			const struct rw_edge *u = &r->edge[i];

			if (e->node[u->node].dead ||
			    has_edge_to(e, b->at[slot].transfer, u->node) ||
			    (u->edge.type & PL_E_INFERRED && comes_before(r, set, slot, u->node)))
				continue;
			rc = pl_edit_add_edge_like(e, b->at[slot].transfer, u->node, u->edge.type,
						   &u->edge, b->at[slot].kept ? 0 : b->flight, err);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

struct pl_cost_comm pl_rewrite_comm_of_set(const struct pl_rewriter *r, uint32_t set,
					   uint32_t meeting)
{
	const struct rw_state *st = rw_now(r);
	struct pl_cost_comm c = { .algo = PL_ALGO_RING,
				  .group = PL_NONE,
				  .parts = st->b.parts[set],
				  .change = st->network.change,
				  .n_changes = st->network.n_changes };
	const struct rw_comm *old = NULL;
	const struct pl_enode *a;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		if (st->b.set[t] != set)
			continue;
		c.bytes += r->tensor[t].bytes;
		c.algo = st->algo[t];
		c.servers = st->servers[t];
		for (uint32_t s = 0; !old && s < r->n_slots; s++)
			if (r->inst[(size_t)s * r->n_tensors + t] != PL_NONE)
				old = &r->comm[r->comm_of[(size_t)s * r->n_tensors + t]];
	}
	if (!old)
		return c;
	a = &r->e->node[old->arrive];
	c.kind = a->kind;
	c.coll = pl_edit_coll(r->e, old->arrive);
	c.group = a->group;
	c.recorded = a->group < r->e->n_groups ? r->e->group[a->group].n : meeting;
	c.n = st->network.ranks ? st->network.ranks : c.recorded;
	return c;
}

static int build_slot(struct pl_rewriter *r, struct rw_built *b, uint32_t set, uint32_t slot,
		      uint32_t meet, const struct pl_cost_comm *c, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	const struct rw_comm *old;
	uint32_t last, after;
	bool as_recorded;
	struct pl_enode n;
	pl_ns dur;
	int rc;

	if (!members(r, set, slot, &last, &as_recorded))
		return 0;
	old = &r->comm[r->comm_of[(size_t)slot * r->n_tensors + last]];
	after = e->tensor[r->inst[(size_t)slot * r->n_tensors + last]].producer;
	if (old->last == r->inst[(size_t)slot * r->n_tensors + last] || after == PL_NONE)
		after = old->arrive;
	b->at[slot].channel = old->channel;
	n = copy_of(e, old->arrive);
	n.res = r->channel[old->channel].res;
	n.bytes = c->bytes;
	if ((rc = pl_edit_add_node(e, &n, after, &b->at[slot].arrive, err)) < 0 ||
	    (rc = add_gates(r, b, set, slot, last, as_recorded ? 0 : r->c->issue_ns, err)) < 0)
		return rc;
	/* with partners that were not recorded the recorded duration stands for the transfer */
	b->at[slot].kept = meet == PL_NONE && as_recorded && c->parts <= 1 && !c->n_changes &&
			   !rw_now(r)->network.ranks;
	dur = b->at[slot].kept ? e->node[old->transfer].dur : pl_cost_transfer(r->c, c);
	b->alone = dur;
	b->flight = pl_cost_flight(r->c, c);
	b->slows = b->slowed = 1;
	if (r->slowdown)
		pl_cost_contention(r->c, c, &b->slows, &b->slowed);
	n = copy_of(e, old->transfer);
	n.res = r->channel[old->channel].res;
	n.bytes = c->bytes;
	n.dur = dur;
	if ((rc = pl_edit_add_node(e, &n, b->at[slot].arrive, &b->at[slot].transfer, err)) < 0 ||
	    (rc = pl_edit_add_edge(e, b->at[slot].arrive, b->at[slot].transfer, PL_E_SEQ, 0, err)) <
		    0 ||
	    (meet != PL_NONE &&
	     ((rc = pl_edit_add_edge(e, b->at[slot].arrive, meet, PL_E_COMM, 0, err)) < 0 ||
	      (rc = pl_edit_add_edge(e, meet, b->at[slot].transfer, PL_E_COMM, 0, err)) < 0)))
		return rc;
	return add_uses(r, b, set, slot, err);
}

/* A rendezvous in the step, if the recorded communication had one; and how many ranks meet. */
static int build_meet(struct pl_rewriter *r, uint32_t set, uint32_t step, uint32_t *meet,
		      uint32_t *ranks, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint32_t last, old = PL_NONE, after = PL_NONE;
	bool as_recorded;
	struct pl_enode n;

	*meet = PL_NONE;
	*ranks = 0;
	for (uint32_t i = 0; i < r->n_ranks; i++) {
		uint32_t slot = step * r->n_ranks + i;
		const struct rw_comm *c;

		if (!members(r, set, slot, &last, &as_recorded))
			continue;
		c = &r->comm[r->comm_of[(size_t)slot * r->n_tensors + last]];
		++*ranks;
		if (c->meet != PL_NONE)
			old = c->meet;
		if (after == PL_NONE || e->node[c->arrive].label > e->node[after].label)
			after = c->arrive;
	}
	if (old == PL_NONE)
		return 0;
	n = copy_of(e, old);
	return pl_edit_add_node(e, &n, after, meet, err);
}

/* The nodes of a bucket in a step are a communication of their own. */
static int put_comm(struct pl_rewriter *r, const struct rw_built *b, uint32_t step, uint32_t meet,
		    const struct pl_cost_comm *c, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	const struct pl_gcomm *old = meet == PL_NONE ? NULL : pl_edit_comm(e, meet);
	struct pl_gcomm row;
	uint32_t id;
	int rc;

	if (!old)
		return 0;
	row = *old;
	row.bytes = c->bytes;
	row.members = c->n;
	row.rounds = 0;
	rc = pl_edit_add_comm(e, &row, &id, err);
	if (rc < 0)
		return rc;
	e->node[meet].comm = id;
	for (uint32_t s = step * r->n_ranks; s < (step + 1) * r->n_ranks; s++)
		if (b->at[s].arrive != PL_NONE)
			e->node[b->at[s].arrive].comm = e->node[b->at[s].transfer].comm = id;
	return 0;
}

static int build_set(struct pl_rewriter *r, uint32_t set, uint64_t key, struct rw_built **out,
		     struct pl_err *err)
{
	struct rw_built *b = new_built(r, key, err);
	int rc = 0;

	*out = b;
	if (!b)
		return err->code;
	for (uint32_t k = 0; rc == 0 && k < r->e->n_steps; k++) {
		uint32_t meet, ranks;
		struct pl_cost_comm c;

		rc = build_meet(r, set, k, &meet, &ranks, err);
		c = pl_rewrite_comm_of_set(r, set, ranks);
		for (uint32_t i = 0; rc == 0 && i < r->n_ranks; i++)
			rc = build_slot(r, b, set, k * r->n_ranks + i, meet, &c, err);
		if (rc == 0)
			rc = put_comm(r, b, k, meet, &c, err);
	}
	return rc;
}

/* Host operations behind which an inserted one is taken out are joined again. */
static int drop_issue(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	uint32_t before = PL_NONE;
	int rc = 0;

	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ)
			before = e->edge[x].src;
	for (uint32_t x = e->node[node].out; rc == 0 && before != PL_NONE && x != PL_NONE;
	     x = e->edge[x].out_next) {
		const struct pl_eedge ed = e->edge[x];

		if (PL_E_TYPE(ed.type) == PL_E_SEQ && e->node[ed.dst].res == e->node[node].res &&
		    e->node[ed.dst].type != PL_N_ENTRY)
			rc = pl_edit_add_edge_like(e, before, ed.dst, ed.type, &ed, 0, err);
	}
	return rc < 0 ? rc : pl_edit_drop_node(e, node, err);
}

static int drop_built(struct pl_rewriter *r, const struct rw_built *b, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	int rc = 0;

	for (uint32_t s = 0; rc == 0 && s < r->n_slots; s++) {
		uint32_t a = b->at[s].arrive, meet;

		if (a == PL_NONE || e->node[a].dead)
			continue;
		meet = pl_rewrite_meet_of(e, a);
		rc = pl_edit_drop_node(e, a, err);
		if (rc == 0)
			rc = pl_edit_drop_node(e, b->at[s].transfer, err);
		if (rc == 0 && b->at[s].lost != PL_NONE)
			rc = drop_issue(e, b->at[s].lost, err);
		if (rc == 0 && b->at[s].issue != PL_NONE)
			rc = drop_issue(e, b->at[s].issue, err);
		if (rc == 0 && meet != PL_NONE)
			rc = pl_edit_drop_node(e, meet, err);
	}
	return rc;
}

/* ---- the channel ----------------------------------------------------------------------------- */

int pl_rewrite_chain(struct pl_edit *e, uint32_t from, uint32_t to, struct pl_err *err)
{
	uint32_t next;
	bool there = false;
	int rc;

	for (uint32_t x = e->node[to].in; x != PL_NONE; x = next) {
		next = e->edge[x].in_next;
		if (PL_E_TYPE(e->edge[x].type) != PL_E_COMM)
			continue;
		if (e->edge[x].src == from) {
			there = true;
			continue;
		}
		if ((rc = pl_edit_drop_edge(e, x, err)) < 0)
			return rc;
	}
	return there ? 0 : pl_edit_add_edge(e, from, to, PL_E_COMM, 0, err);
}

static int chain_all(struct pl_rewriter *r, struct pl_err *err)
{
	const struct rw_state *st = rw_now(r);
	int rc;

	for (uint32_t s = 0; s < r->n_slots; s++) {
		const struct rw_slot *x = &r->slot[s];

		for (uint32_t k = x->channel; k < x->channel + x->n_channels; k++) {
			uint32_t from = r->channel[k].begin_mark;

			for (uint32_t i = 0; i < st->b.n_sets; i++) {
				const struct rw_built *b = st->built[i];

				if (b->at[s].arrive == PL_NONE || b->at[s].channel != k)
					continue;
				if ((rc = pl_rewrite_chain(r->e, from, b->at[s].arrive, err)) < 0)
					return rc;
				from = b->at[s].transfer;
			}
			if ((rc = pl_rewrite_chain(r->e, from, r->channel[k].end_mark, err)) < 0)
				return rc;
		}
	}
	return 0;
}

/* Calls that issued removed communication take no time. */
static int retire_calls(struct pl_rewriter *r, struct pl_err *err)
{
	int rc = 0;

	if (!r->issues)
		return 0;
	for (uint32_t s = 0; rc == 0 && s < r->n_slots; s++) {
		const struct rw_slot *sl = &r->slot[s];

		for (uint32_t i = sl->comm; rc == 0 && i < sl->comm + sl->n_comms; i++) {
			const struct rw_comm *c = &r->comm[i];
			uint32_t first = PL_NONE, last;
			bool as_recorded;

			for (uint32_t t = 0; first == PL_NONE && t < r->n_tensors; t++)
				if (r->comm_of[(size_t)s * r->n_tensors + t] == i)
					first = t;
			if (c->issue == PL_NONE || first == PL_NONE)
				continue;
			members(r, rw_now(r)->b.set[first], s, &last, &as_recorded);
			rc = pl_edit_set_dur(r->e, c->issue, as_recorded ? c->issue_dur : 0, err);
		}
	}
	return rc;
}

/* The members of each set of the state, in order, for as long as this one is built. */
static void list_members(struct pl_rewriter *r)
{
	const struct rw_state *st = rw_now(r);
	uint32_t *at = r->set_first;

	memset(at, 0, ((size_t)r->n_tensors + 3) * sizeof(*at));
	for (uint32_t t = 0; t < r->n_tensors; t++)
		at[st->b.set[t] + 2]++;
	for (uint32_t i = 2; i < r->n_tensors + 3; i++)
		at[i] += at[i - 1];
	for (uint32_t t = 0; t < r->n_tensors; t++)
		r->set_member[at[st->b.set[t] + 1]++] = t;
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
					  t + 1 + ((uint64_t)st->algo[t] << 32) +
						  ((uint64_t)st->servers[t] << 40) };

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
	list_members(r);
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
	for (uint32_t k = 0; rc == 0 && k < n_old; k++)
		if (old[k])
			rc = drop_built(r, old[k], err);
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
	int rc = pl_alloc(&old, r->n_tensors, sizeof(*old), err);

	if (rc < 0)
		return rc;
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
	PL_TRY(pl_rewrite_join_pieces(r, err));
	PL_TRY(reuse(r, old, n_old, err));
	PL_TRY(chain_all(r, err));
	PL_TRY(retire_calls(r, err));
	rc = pl_rewrite_contend(r, err);
out:
	for (uint32_t i = 0; i < n_old; i++)
		pl_rewrite_unref(old[i]);
	pl_free(old);
	return rc;
}
