/*
 * Priorities: of what is ready when the channel becomes free, the most urgent goes next.
 *
 * That is the scheduling of P3 (Jayarajan et al., MLSys 2019) and ByteScheduler (Peng et al., SOSP
 * 2019): no channel waits for a tensor that is not ready while another is, and what is in parts
 * gives way between them. The edit holds one order, so that is found first, a step at a time: a
 * list schedule over all ranks, whose pieces of a communication are as long as nothing more urgent
 * becomes ready. The channel is then chained as it says, an interrupted transfer as several. When
 * gradients are ready follows from the edit; where that depends on the order in turn, it is found
 * again, a few times. O(pieces x sets x ranks).
 */
#include <string.h>

#include "rewrite/rewrite_internal.h"

#define ROUNDS 4
#define LAST   UINT32_MAX /* priority of what has none */

struct turn { /* parts from .. to - 1 of a set */
	uint32_t set, from, to;
};
struct order {
	struct turn *turn;
	size_t n, cap;
};
struct bucket { /* in a step */
	pl_ns ready, dur;
	uint32_t priority, parts, done;
	bool here;
};
struct plan {
	struct pl_rewriter *r;
	struct bucket *set; /* [set] */
	pl_ns *free;	    /* [channel] */
	uint32_t step;
};

/* ---- who needs what -------------------------------------------------------------------------- */

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

bool pl_rewriter_needs_differ(const struct pl_rewriter *r)
{
	for (uint32_t s = 0; s < r->n_slots; s++) {
		const struct rw_slot *x = &r->slot[s];

		for (uint32_t i = x->comm + 1; i < x->comm + x->n_comms; i++)
			if (!same_uses(r, &r->comm[x->comm], &r->comm[i]))
				return true;
	}
	return false;
}

pl_ns pl_rewriter_need(const struct pl_rewriter *r, uint32_t tensor)
{
	pl_ns first = INT64_MAX;

	for (uint32_t s = 0; s < r->n_slots; s++) {
		uint32_t c = r->comm_of[(size_t)s * r->n_tensors + tensor];

		for (uint32_t i = 0; c != PL_NONE && i < r->comm[c].n_uses; i++)
			first = pl_min_i64(first,
					   r->e->node[r->edge[r->comm[c].use + i].node].start -
						   r->begin[s / r->n_ranks]);
	}
	return first;
}

int rw_priority(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);

	if (!pl_rewriter_needs_differ(r))
		return pl_fail(err, PL_EDATA,
			       "whatever waits for one of the graph's gradients waits for all of "
			       "them, so none is more urgent than another; it takes a job whose "
			       "operations wait for some of them");
	memset(s->priority, 0, r->n_tensors * sizeof(*s->priority));
	for (uint32_t i = 0; i < rw->n_args; i++) {
		uint32_t t = rw_tensor_find(r, rw->arg[i]);

		if (t == PL_NONE)
			return pl_fail(err, PL_EDATA,
				       "there is no tensor \"%s\"; plan --preset none -O text "
				       "lists those of the graph",
				       rw->arg[i]);
		for (uint32_t u = 0; u < r->n_tensors; u++)
			if (s->priority[u] && s->set_of[u] == s->set_of[t])
				return pl_fail(err, PL_EDATA,
					       "two of its tensors are one set already; name one "
					       "tensor of a set");
		s->priority[t] = i + 1;
	}
	s->prioritized = true;
	return 0;
}

/* ---- a list schedule ------------------------------------------------------------------------- */

static uint32_t slot_of(const struct plan *p, uint32_t rank)
{
	return p->step * p->r->n_ranks + rank;
}

/* When the arrival could be, were the channel free. */
static pl_ns ready_at(const struct pl_edit *e, uint32_t arrive)
{
	pl_ns t = INT64_MIN;

	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];
		const struct pl_enode *s = &e->node[ed->src];

		if (PL_E_TYPE(ed->type) != PL_E_COMM)
			t = pl_max_i64(t, s->start + ed->w +
						  (pl_edit_from_start(ed->type) ? 0 : s->dur));
	}
	return t;
}

static void look(struct plan *p)
{
	const struct pl_rewriter *r = p->r;
	const struct rw_state *st = rw_now(r);

	for (uint32_t b = 0; b < st->n_sets; b++) {
		struct bucket *x = &p->set[b];

		*x = (struct bucket){ .ready = INT64_MIN, .priority = LAST, .parts = st->parts[b] };
		x->parts = x->parts ? x->parts : 1;
		for (uint32_t i = 0; i < r->n_ranks; i++) {
			uint32_t a = st->built[b]->arrive[slot_of(p, i)];

			if (a == PL_NONE)
				continue;
			x->here = true;
			x->ready = pl_max_i64(x->ready, ready_at(r->e, a));
			x->dur = pl_max_i64(x->dur,
					    r->e->node[st->built[b]->transfer[slot_of(p, i)]].dur);
		}
	}
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		struct bucket *x = &p->set[st->set_of[t]];

		if (st->priority[t] && st->priority[t] < x->priority)
			x->priority = st->priority[t];
	}
	for (size_t i = 0; i < r->n_channels; i++)
		p->free[i] = r->e->node[r->channel[i].head].start;
}

/* The channel that carries the set on the rank; PL_NONE: the rank has no part. */
static uint32_t channel_of(const struct plan *p, uint32_t set, uint32_t rank)
{
	const struct rw_built *b = rw_now(p->r)->built[set];
	uint32_t slot = slot_of(p, rank);

	return b->arrive[slot] == PL_NONE ? PL_NONE : b->channel[slot];
}

static pl_ns could_begin(const struct plan *p, uint32_t set)
{
	pl_ns t = p->set[set].ready;

	for (uint32_t i = 0; i < p->r->n_ranks; i++) {
		uint32_t channel = channel_of(p, set, i);

		if (channel != PL_NONE)
			t = pl_max_i64(t, p->free[channel]);
	}
	return t;
}

static bool share_channels(const struct plan *p, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < p->r->n_ranks; i++) {
		uint32_t channel = channel_of(p, a, i);

		if (channel != PL_NONE && channel == channel_of(p, b, i))
			return true;
	}
	return false;
}

/* Of equal ones, what came first. */
static bool more_urgent(const struct bucket *a, const struct bucket *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->ready < b->ready;
}

/* The end of the first n parts, from the beginning. */
static pl_ns part_end(pl_ns dur, uint32_t parts, uint32_t n)
{
	return dur / parts * n + dur % parts * n / parts;
}

/* How far it gets before something more urgent is ready. */
static uint32_t until_urgent(const struct plan *p, uint32_t set, pl_ns begin)
{
	const struct bucket *x = &p->set[set];
	pl_ns urgent = INT64_MAX;
	uint32_t to = x->done + 1;

	for (uint32_t b = 0; b < rw_now(p->r)->n_sets && x->parts > 1; b++) {
		const struct bucket *o = &p->set[b];

		if (b != set && o->here && o->done < o->parts && o->priority < x->priority &&
		    o->ready < urgent && share_channels(p, set, b))
			urgent = o->ready;
	}
	while (to < x->parts &&
	       begin + part_end(x->dur, x->parts, to) - part_end(x->dur, x->parts, x->done) <
		       urgent)
		to++;
	return to;
}

static int put_turn(struct order *o, struct turn x, struct pl_err *err)
{
	int rc;

	if (o->n && o->turn[o->n - 1].set == x.set) {
		o->turn[o->n - 1].to = x.to;
		return 0;
	}
	rc = pl_grow(&o->turn, &o->cap, o->n + 1, sizeof(*o->turn), err);
	if (rc == 0)
		o->turn[o->n++] = x;
	return rc;
}

static int schedule(struct plan *p, struct order *o, struct pl_err *err)
{
	uint32_t n_sets = rw_now(p->r)->n_sets;
	int rc = 0;

	look(p);
	o->n = 0;
	while (rc == 0) {
		uint32_t best = PL_NONE, to;
		pl_ns begin = 0;

		for (uint32_t b = 0; b < n_sets; b++) {
			pl_ns t;

			if (!p->set[b].here || p->set[b].done == p->set[b].parts)
				continue;
			t = could_begin(p, b);
			if (best == PL_NONE || t < begin ||
			    (t == begin && more_urgent(&p->set[b], &p->set[best]))) {
				best = b;
				begin = t;
			}
		}
		if (best == PL_NONE)
			break;
		to = until_urgent(p, best, begin);
		rc = put_turn(o, (struct turn){ best, p->set[best].done, to }, err);
		begin += part_end(p->set[best].dur, p->set[best].parts, to) -
			 part_end(p->set[best].dur, p->set[best].parts, p->set[best].done);
		p->set[best].done = to;
		for (uint32_t i = 0; i < p->r->n_ranks; i++) {
			uint32_t channel = channel_of(p, best, i);

			if (channel != PL_NONE)
				p->free[channel] = begin;
		}
	}
	return rc;
}

/* ---- as the schedule says -------------------------------------------------------------------- */

int rw_join_pieces(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *st = rw_now(r);
	int rc = 0;

	for (size_t i = st->n_pieces; rc == 0 && i-- > 0;) {
		const struct rw_piece *x = &st->piece[i];

		if (x->edge != PL_NONE && !r->e->edge[x->edge].dead)
			rc = pl_edit_drop_edge(r->e, x->edge, err);
		if (rc == 0 && x->node != PL_NONE)
			rc = pl_edit_drop_node(r->e, x->node, err);
		if (rc == 0)
			rc = pl_edit_set_dur(r->e, x->transfer, x->dur, err);
	}
	if (rc == 0)
		st->n_pieces = 0;
	return rc;
}

/* One part of an interrupted transfer behind `from`; *end is its node. */
static int add_piece(struct pl_rewriter *r, const struct rw_built *b, uint32_t slot, uint32_t from,
		     const struct turn *x, uint32_t parts, uint32_t *end, struct pl_err *err)
{
	struct rw_state *st = rw_now(r);
	struct pl_edit *e = r->e;
	uint32_t arrive = b->arrive[slot];
	struct rw_piece p = { PL_NONE, b->transfer[slot], PL_NONE, 0 };
	pl_ns dur;
	int rc;

	PL_TRY(pl_grow(&st->piece, &st->cap_pieces, st->n_pieces + 1, sizeof(p), err));
	p.dur = e->node[p.transfer].dur;
	for (size_t i = 0; i < st->n_pieces; i++) /* what all of it took */
		if (st->piece[i].transfer == p.transfer)
			p.dur = st->piece[i].dur;
	dur = part_end(p.dur, parts, x->to) - part_end(p.dur, parts, x->from);
	*end = p.transfer;
	if (x->to < parts) {
		struct pl_enode n = e->node[p.transfer];

		n.dur = dur;
		n.origin = PL_NONE;
		PL_TRY(pl_edit_add_node(e, &n, arrive, &p.node, err));
		*end = p.node;
		PL_TRY(pl_edit_add_edge(e, arrive, p.node, PL_E_SEQ, 0, err));
		for (uint32_t k = e->node[p.transfer].in; k != PL_NONE; k = e->edge[k].in_next)
			if (e->node[e->edge[k].src].type == PL_N_RENDEZVOUS)
				PL_TRY(pl_edit_add_edge(e, e->edge[k].src, p.node, PL_E_COMM, 0,
							err));
	} else {
		PL_TRY(pl_edit_set_dur(e, p.transfer, dur, err));
	}
	if (x->from) {
		p.edge = (uint32_t)e->n_edges;
		PL_TRY(pl_edit_add_edge(e, from, *end, PL_E_WAIT, 0, err));
	}
	st->piece[st->n_pieces++] = p;
	rc = 0;
out:
	return rc;
}

static int chain_channel(struct plan *p, uint32_t slot, uint32_t channel, const struct order *o,
			 struct pl_err *err)
{
	struct pl_rewriter *r = p->r;
	uint32_t from = r->channel[channel].head;
	int rc = 0;

	for (size_t i = 0; i < o->n; i++) {
		const struct turn *x = &o->turn[i];
		const struct rw_built *b = rw_now(r)->built[x->set];
		uint32_t parts = p->set[x->set].parts, end = b->transfer[slot];

		if (b->arrive[slot] == PL_NONE || b->channel[slot] != channel)
			continue;
		if (!x->from)
			PL_TRY(rw_chain(r->e, from, b->arrive[slot], err));
		if (x->from || x->to < parts)
			PL_TRY(add_piece(r, b, slot, from, x, parts, &end, err));
		from = end;
	}
	rc = rw_chain(r->e, from, r->channel[channel].tail, err);
out:
	return rc;
}

static bool same_order(const struct order *a, const struct order *b)
{
	return a->n == b->n && (!a->n || !memcmp(a->turn, b->turn, a->n * sizeof(*a->turn)));
}

static int by_schedule(struct plan *p, struct order *o, struct pl_err *err)
{
	struct pl_rewriter *r = p->r;
	int rc = 0;

	for (p->step = 0; rc == 0 && p->step < r->e->n_steps; p->step++) {
		look(p);
		for (uint32_t i = 0; i < r->n_ranks; i++) {
			uint32_t slot = slot_of(p, i), k = r->slot[slot].channel;
			uint32_t end = k + r->slot[slot].n_channels;

			for (; rc == 0 && k < end; k++)
				rc = chain_channel(p, slot, k, &o[p->step], err);
		}
	}
	return rc < 0 ? rc : pl_edit_settle(r->e, err);
}

/* A schedule from the edit as it is, for every step; *same: as those that there are. */
static int schedules(struct plan *p, struct order *o, bool *same, struct pl_err *err)
{
	struct order fresh = { .turn = NULL };
	int rc = 0;

	*same = true;
	for (p->step = 0; rc == 0 && p->step < p->r->e->n_steps; p->step++) {
		struct order *had = &o[p->step], x;

		rc = schedule(p, &fresh, err);
		*same &= same_order(had, &fresh);
		x = *had;
		*had = fresh;
		fresh = x;
	}
	pl_free(fresh.turn);
	return rc;
}

int rw_prioritize(struct pl_rewriter *r, struct pl_err *err)
{
	struct plan p = { .r = r };
	struct order *o = NULL;
	bool same = false;
	int rc;

	PL_TRY(pl_alloc(&p.set, r->n_tensors, sizeof(*p.set), err));
	PL_TRY(pl_alloc(&p.free, r->n_channels, sizeof(*p.free), err));
	PL_TRY(pl_alloc(&o, r->e->n_steps, sizeof(*o), err));
	PL_TRY(pl_edit_settle(r->e, err));
	for (int round = 0; round < ROUNDS; round++) {
		/* as long as all of it takes, and ready as the last round has it */
		PL_TRY(rw_join_pieces(r, err));
		PL_TRY(schedules(&p, o, &same, err));
		PL_TRY(by_schedule(&p, o, err));
		if (same)
			break;
	}
out:
	for (uint32_t k = 0; o && k < r->e->n_steps; k++)
		pl_free(o[k].turn);
	pl_free(o);
	pl_free(p.set);
	pl_free(p.free);
	return rc;
}
