/*
 * Priorities: when a channel becomes free, it carries the most urgent communication that is ready.
 *
 * This is the scheduling of P3 (Jayarajan et al., MLSys 2019) and ByteScheduler (Peng et al., SOSP
 * 2019). No channel waits for a tensor that is not ready while another tensor is ready. A
 * communication in several parts lets a more urgent one pass between two parts.
 * rewrite_contention.c finds the order. This file chains the channels of the edit in that order. An
 * interrupted transfer becomes several nodes.
 */
#include "rewrite/rewrite_internal.h"
#include "sim/events.h"

/* ---- which nodes need which tensors ---------------------------------------------------------- */

static bool same_uses(const struct pl_rewriter *r, const struct rw_comm *a, const struct rw_comm *b)
{
	if (a->n_uses != b->n_uses)
		return false;
	for (uint32_t i = 0; i < a->n_uses; i++) {
		bool there = false;

		for (uint32_t k = 0; k < b->n_uses && !there; k++)
			there = r->edge[a->use + i].node == r->edge[b->use + k].node;
		if (!there)
			return false;
	}
	return true;
}

bool pl_rewrite_needs_differ(const struct pl_rewriter *r)
{
	for (uint32_t s = 0; s < r->n_slots; s++) {
		const struct rw_slot *x = &r->slot[s];

		for (uint32_t i = x->comm + 1; i < x->comm + x->n_comms; i++)
			if (!same_uses(r, &r->comm[x->comm], &r->comm[i]))
				return true;
	}
	return false;
}

pl_ns pl_rewrite_need(const struct pl_rewriter *r, uint32_t tensor)
{
	pl_ns first = INT64_MAX;

	for (uint32_t s = 0; s < r->n_slots; s++) {
		const struct rw_place *x = rw_place(r, s, tensor);
		const struct rw_comm *c = x->inst == PL_NONE ? NULL : &r->comm[x->comm];

		for (uint32_t i = 0; c && i < c->n_uses; i++)
			first = pl_min_i64(first, r->e->node[r->edge[c->use + i].node].start -
							  r->begin[s / r->n_ranks]);
	}
	return first;
}

static int apply_priority(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);

	if (!pl_rewrite_needs_differ(r))
		return pl_fail(err, PL_EDATA,
			       "every operation that waits for a gradient waits for all of them, "
			       "so none is more urgent than another; priorities need a job "
			       "whose operations wait for single gradients");
	for (uint32_t t = 0; t < r->n_tensors; t++)
		s->choice[t].priority = 0;
	for (uint32_t i = 0; i < rw->n_args; i++) {
		uint32_t t;
		int rc = pl_rewrite_find_arg(r, rw, i, &t, err);

		if (rc < 0)
			return rc;
		for (uint32_t u = 0; u < r->n_tensors; u++)
			if (s->choice[u].priority && s->b.set[u] == s->b.set[t])
				return pl_fail(err, PL_EDATA,
					       "two of its tensors are one set already; name one "
					       "tensor of a set");
		s->choice[t].priority = i + 1;
	}
	s->prioritized = true;
	return 0;
}

const struct pl_rewrite_kind pl_rewrite_priority = {
	.comm = true,
	.apply = apply_priority,
	.explain = "of the buckets that are ready, the first in the line is sent first "
		   "(\"{first}\" before all), so that what waits for it starts earlier"
};

/* ---- channels in an order -------------------------------------------------------------------- */

void pl_rewrite_join_pieces(struct pl_rewriter *r)
{
	struct rw_state *st = rw_now(r);

	for (size_t i = st->n_pieces; i-- > 0;) {
		const struct rw_piece *x = &st->piece[i];

		if (x->edge != PL_NONE && !r->e->edge[x->edge].dead)
			rw_drop_edge(r, x->edge);
		if (x->node != PL_NONE)
			rw_drop_node(r, x->node);
		rw_set_dur(r, x->transfer, x->dur);
	}
	st->n_pieces = 0;
}

/* The whole duration of a transfer that has pieces. The last of them is not far back: it lies
 * before the pieces that interrupted the transfer. */
static pl_ns whole_of(const struct pl_rewriter *r, uint32_t transfer)
{
	const struct rw_state *st = rw_now(r);

	for (size_t i = st->n_pieces; i-- > 0;)
		if (st->piece[i].transfer == transfer)
			return st->piece[i].dur;
	return r->e->node[transfer].dur;
}

/* One part of an interrupted transfer behind `from`. Returns its node. */
static uint32_t add_piece(struct pl_rewriter *r, const struct rw_built *b, uint32_t slot,
			  uint32_t from, const struct pl_sim_events_piece *x)
{
	struct rw_state *st = rw_now(r);
	struct pl_edit *e = r->e;
	uint32_t arrive = b->at[slot].arrive, parts = st->b.parts[x->task];
	struct rw_piece p = { PL_NONE, b->at[slot].transfer, PL_NONE, 0 };
	uint32_t end = p.transfer;
	pl_ns dur;

	if (r->rc == 0)
		r->rc = pl_grow(&st->piece, &st->cap_pieces, st->n_pieces + 1, sizeof(p),
				&r->failure);
	if (r->rc < 0)
		return end;
	p.dur = x->from ? whole_of(r, p.transfer) : e->node[p.transfer].dur;
	dur = x->end - x->start;
	if (!r->slowdown || b->at[slot].kept) /* as long on this rank as all of it is */
		dur = pl_sim_events_part(p.dur, parts, x->to) -
		      pl_sim_events_part(p.dur, parts, x->from);
	if (x->to < parts) {
		struct pl_enode n = e->node[p.transfer];

		n.dur = dur;
		n.origin = PL_NONE;
		end = p.node = rw_add_node(r, &n, arrive);
		rw_add_edge(r, arrive, p.node, PL_E_SEQ, 0);
		for (uint32_t k = e->node[p.transfer].in; k != PL_NONE; k = e->edge[k].in_next)
			if (e->node[e->edge[k].src].type == PL_N_RENDEZVOUS)
				rw_add_edge(r, e->edge[k].src, p.node, PL_E_COMM, 0);
	} else {
		rw_set_dur(r, p.transfer, dur);
	}
	if (x->from) {
		p.edge = (uint32_t)e->n_edges;
		rw_add_edge(r, from, end, PL_E_WAIT, 0);
	}
	st->piece[st->n_pieces++] = p;
	return end;
}

static void chain_channel(struct pl_rewriter *r, uint32_t slot, uint32_t channel,
			  const struct rw_order *o)
{
	uint32_t from = r->channel[channel].begin_mark;

	for (size_t i = 0; i < o->n; i++) {
		const struct pl_sim_events_piece *x = &o->turn[i];
		const struct rw_built *b = rw_now(r)->built[x->task];

		if (b->at[slot].arrive == PL_NONE || b->at[slot].channel != channel)
			continue;
		if (!x->from)
			pl_rewrite_chain(r, from, b->at[slot].arrive);
		if (x->from || x->to < rw_now(r)->b.parts[x->task])
			from = add_piece(r, b, slot, from, x);
		else
			from = b->at[slot].transfer;
	}
	pl_rewrite_chain(r, from, r->channel[channel].end_mark);
}

int pl_rewrite_chain_in_order(struct pl_rewriter *r, const struct rw_order *o, struct pl_err *err)
{
	for (uint32_t slot = rw_first_slot(r); slot < rw_end_slot(r); slot++) {
		uint32_t k = r->slot[slot].channel, end = k + r->slot[slot].n_channels;

		for (; k < end; k++)
			chain_channel(r, slot, k, &o[slot / r->n_ranks]);
	}
	PL_CHECK(rw_result(r, 0, err));
	return pl_sim_settle(r->e, err);
}
