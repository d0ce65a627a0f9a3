/*
 * Takes the recorded communication of gradients out of an edit, so that rewrite_sync.c can build
 * the buckets of a plan in its place.
 *
 * What the communication stood between on its resource is joined again. Two delays of no length,
 * head and tail, mark on every channel of a rank where its communication belongs.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

#define FAR_PAST (INT64_MIN / 4)

static bool is_grad_comm(const struct pl_rewriter *r, uint32_t node)
{
	return node < r->n_recorded && r->is_grad_comm[node];
}

static uint32_t add_mark(struct pl_rewriter *r, uint32_t slot, uint32_t near)
{
	const struct pl_enode *at = &r->e->node[near];
	struct pl_enode n = pl_edit_blank_node();

	n.start = n.fixed = FAR_PAST;
	n.name = at->name;
	n.step = rw_step_of(r, slot);
	n.type = PL_N_DELAY;
	return rw_add_node(r, &n, near);
}

/* Does some communication of the channel lie on the resource? */
static bool uses_resource(const struct pl_rewriter *r, const struct rw_slot *s, uint32_t channel,
			  uint32_t res)
{
	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++)
		if (r->comm[i].channel == channel && r->e->node[r->comm[i].arrive].res == res)
			return true;
	return false;
}

/* The channels of a resource begin after the previous operation of the resource, and the next
 * operation comes after the ends of the channels. */
static void join_end(struct pl_rewriter *r, const struct rw_slot *s, const struct pl_eedge *ed,
		     bool head)
{
	uint32_t res = r->e->node[head ? ed->src : ed->dst].res;

	for (uint32_t k = s->channel; k < s->channel + s->n_channels; k++) {
		const struct rw_channel *c = &r->channel[k];

		if (uses_resource(r, s, k, res))
			rw_add_edge_like(r, head ? ed->src : c->end_mark,
					 head ? c->begin_mark : ed->dst, ed, PL_E_WAIT, 0);
	}
}

/* [resource] its first and last communication of a slot; those of others are not set. The last
 * element: of communication without a resource. */
struct extremes {
	uint32_t first, last;
};

static struct extremes *extremes_of(const struct pl_rewriter *r, struct extremes *x, uint32_t comm)
{
	return &x[pl_min_size(r->e->node[r->comm[comm].arrive].res, r->e->n_res)];
}

static void find_extremes(const struct pl_rewriter *r, const struct rw_slot *s, struct extremes *x)
{
	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++)
		extremes_of(r, x, i)->first = PL_NONE;
	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++) {
		struct extremes *of = extremes_of(r, x, i);

		of->first = of->first == PL_NONE ? i : of->first;
		of->last = i;
	}
}

/* The operations on the resource of a channel before, between and after its communication. */
static void join_channels(struct pl_rewriter *r, uint32_t slot, struct extremes *extremes)
{
	const struct pl_edit *e = r->e;
	const struct rw_slot *s = &r->slot[slot];

	find_extremes(r, s, extremes);
	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++) {
		const struct rw_comm *c = &r->comm[i];
		uint32_t res = e->node[c->arrive].res, before = PL_NONE;
		bool first = extremes_of(r, extremes, i)->first == i;
		bool last = extremes_of(r, extremes, i)->last == i;

		for (uint32_t x = e->node[c->arrive].in; x != PL_NONE; x = e->edge[x].in_next) {
			const struct pl_eedge ed = e->edge[x];

			if (PL_E_TYPE(ed.type) != PL_E_SEQ || e->node[ed.src].res != res ||
			    is_grad_comm(r, ed.src))
				continue;
			before = ed.src;
			if (first)
				join_end(r, s, &ed, true);
		}
		for (uint32_t x = e->node[c->transfer].out; x != PL_NONE; x = e->edge[x].out_next) {
			const struct pl_eedge ed = e->edge[x];

			if (PL_E_TYPE(ed.type) != PL_E_SEQ || e->node[ed.dst].res != res ||
			    is_grad_comm(r, ed.dst))
				continue;
			if (last || e->node[ed.dst].type == PL_N_ENTRY)
				join_end(r, s, &ed, false);
			else if (before != PL_NONE)
				rw_add_edge_like(r, before, ed.dst, &ed, PL_E_SEQ, 0);
		}
	}
}

/* In the pass before of the same step, what used the resources of the channel ends before it. */
static void join_passes(struct pl_rewriter *r, uint32_t slot)
{
	const struct rw_slot *s = &r->slot[slot], *old;

	if (slot < r->n_ranks || rw_step_of(r, slot) != rw_step_of(r, slot - r->n_ranks))
		return;
	old = &r->slot[slot - r->n_ranks];
	for (uint32_t k = s->channel; k < s->channel + s->n_channels; k++)
		for (uint32_t i = old->channel; i < old->channel + old->n_channels; i++)
			if (r->channel[i].res == r->channel[k].res)
				rw_add_edge(r, r->channel[i].end_mark, r->channel[k].begin_mark,
					    PL_E_WAIT, 0);
}

/* Add begin_mark and end_mark of each channel of the slot. */
static void mark_channels(struct pl_rewriter *r, uint32_t slot)
{
	const struct rw_slot *s = &r->slot[slot];

	for (uint32_t k = s->channel; k < s->channel + s->n_channels; k++) {
		struct rw_channel *x = &r->channel[k];
		uint32_t first = PL_NONE, last = PL_NONE;

		for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++) {
			if (r->comm[i].channel != k)
				continue;
			first = first == PL_NONE ? i : first;
			last = i;
		}
		x->begin_mark = add_mark(r, slot, r->comm[first].arrive);
		x->end_mark = add_mark(r, slot, r->comm[last].transfer);
	}
}

static int check_meets(const struct pl_rewriter *r, struct pl_err *err)
{
	const struct pl_edit *e = r->e;

	for (size_t i = 0; i < r->n_comms; i++) {
		uint32_t m = r->comm[i].meet;

		for (uint32_t x = m == PL_NONE ? PL_NONE : e->node[m].in; x != PL_NONE;
		     x = e->edge[x].in_next)
			if (!is_grad_comm(r, e->edge[x].src))
				return pl_fail(err, PL_EDATA,
					       "the communication \"%s\" carries gradients on some "
					       "of its ranks alone; it cannot be changed",
					       pl_edit_name(e, e->node[r->comm[i].arrive].name));
	}
	return 0;
}

int pl_rewrite_take_over(struct pl_rewriter *r, struct pl_err *err)
{
	struct extremes *extremes;

	PL_CHECK(check_meets(r, err));
	PL_CHECK(pl_alloc(&extremes, r->e->n_res + 1, sizeof(*extremes), err));
	for (uint32_t i = 0; i < r->n_slots; i++) {
		mark_channels(r, i);
		join_channels(r, i, extremes);
		join_passes(r, i);
	}
	pl_free(extremes);
	pl_rewrite_slowdown_release(r);
	for (size_t i = 0; i < r->n_comms; i++) {
		const struct rw_comm *c = &r->comm[i];

		rw_drop_node(r, c->arrive);
		rw_drop_node(r, c->transfer);
		if (c->meet != PL_NONE && !r->e->node[c->meet].dead)
			rw_drop_node(r, c->meet);
	}
	return 0;
}
