/*
 * Questions of a search to a rewriter: the buckets by number, and the time on the critical path.
 *
 * The walk along the critical path begins at the node that ends the step last. It goes to the
 * predecessor whose end plus the delay of the edge equals the start of the node, and repeats this.
 * Each node has one such predecessor that counts. Therefore the cost of the walk is the length of
 * the path; finding the last node is linear in the nodes.
 */
#include "rewrite/rewrite_internal.h"

uint32_t pl_rewrite_buckets(const struct pl_rewriter *r, uint32_t *set_of)
{
	const struct rw_state *s = rw_now(r);

	if (r->n_tensors)
		memcpy(set_of, s->b.set, r->n_tensors * sizeof(*set_of));
	return s->b.n_sets;
}

bool pl_rewrite_one_channel(const struct pl_rewriter *r, uint32_t fuses)
{
	for (uint32_t s = 0; s < r->n_slots; s++) {
		uint32_t channel = PL_NONE;

		for (uint32_t t = 0; t < r->n_tensors; t++) {
			const struct rw_place *x = rw_place(r, s, t);

			if (x->inst == PL_NONE || r->tensor[t].fuses != fuses)
				continue;
			if (channel != PL_NONE && channel != r->comm[x->comm].channel)
				return false;
			channel = r->comm[x->comm].channel;
		}
	}
	return true;
}

pl_ns pl_rewrite_ready(const struct pl_rewriter *r, uint32_t tensor)
{
	return r->n_states == 1 ? r->tensor[tensor].ready
				: pl_rewrite_mean_ready(r, tensor, rw_ready_now);
}

uint32_t pl_rewrite_producer(const struct pl_rewriter *r, uint32_t tensor)
{
	for (uint32_t s = 0; s < r->n_slots; s++) {
		uint32_t made = rw_producer(r, rw_place(r, s, tensor));

		if (made != PL_NONE)
			return r->e->node[made].name;
	}
	return PL_NONE;
}

struct pl_cost_comm pl_rewrite_comm(const struct pl_rewriter *r, uint32_t tensor)
{
	uint32_t meeting = 0;

	for (uint32_t i = 0; i < r->n_ranks; i++)
		meeting += rw_place(r, i, tensor)->inst != PL_NONE;
	return pl_rewrite_comm_of_set(r, rw_now(r)->b.set[tensor], meeting);
}

bool pl_rewrite_only_step(struct pl_rewriter *r, uint32_t step)
{
	bool one = step != PL_NONE && !r->slowdown && rw_now(r)->over;

	r->from = one ? step : 0;
	r->to = one ? step + 1 : r->e->n_steps;
	return one;
}

bool pl_rewrite_synchronises(const struct pl_rewriter *r, uint32_t step)
{
	uint32_t end = r->step_pass[step + 1] * r->n_ranks;

	for (uint32_t s = r->step_pass[step] * r->n_ranks; s < end; s++)
		if (r->slot[s].n_comms)
			return true;
	return false;
}

int pl_rewrite_bucketing(struct pl_rewriter *r, const struct pl_bucketing *b, struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(r);
	struct rw_state *s;
	int rc;

	PL_CHECK(pl_rewrite_push_state(r, err));
	s = rw_now(r);
	s->b.n_sets = b->n_sets;
	for (uint32_t i = 0; i < b->n_sets; i++)
		s->b.parts[i] = b->parts && b->parts[i] ? b->parts[i] : 1;
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		s->b.set[t] = b->set_of[t];
		if (b->algo && b->algo[b->set_of[t]] != PL_REWRITE_SAME_ALGORITHM) {
			s->choice[t].algo = b->algo[b->set_of[t]];
			s->choice[t].servers = b->servers ? b->servers : 1;
		}
		if (b->priority)
			s->choice[t].priority = b->priority[t];
	}
	s->prioritized = b->priority != NULL;
	rc = pl_rewrite_sync(r, err);
	if (rc < 0)
		pl_rewrite_undo(r, mark);
	return rc;
}

/* The edge that decided when the node started, PL_NONE: its own time did. */
static uint32_t decisive(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next) {
		if (pl_edit_edge_time(e, &e->edge[x]) == e->node[node].start)
			return x;
	}
	return PL_NONE;
}

/* seen[node]: it lies on the critical path of its step; pl_free(). */
static int critical(const struct pl_edit *e, uint8_t **seen, struct pl_err *err)
{
	int rc = pl_alloc(seen, e->n_nodes, 1, err);

	for (uint32_t k = 0; rc == 0 && k < e->n_steps; k++) {
		uint32_t at = e->step[k].sink, x;

		for (; !(*seen)[at]; at = e->edge[x].src) {
			(*seen)[at] = 1;
			if ((x = decisive(e, at)) == PL_NONE)
				break;
		}
	}
	return rc;
}

/* A call lies on it for what it launches. */
static void heat(const struct pl_edit *e, uint32_t node, uint8_t *hot)
{
	const struct pl_enode *n = &e->node[node];

	if (rw_computes(n) && n->name < e->g->str.n)
		hot[n->name] = 1;
	for (uint32_t x = n->out; n->role == PL_RO_HOST && x != PL_NONE; x = e->edge[x].out_next) {
		const struct pl_enode *d = &e->node[e->edge[x].dst];

		if (rw_launches(&e->edge[x]) && d->name < e->g->str.n)
			hot[d->name] = 1;
	}
}

int pl_rewrite_hot(const struct pl_rewriter *r, uint8_t *tensors, uint8_t *names,
		   struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint8_t *seen;

	PL_CHECK(critical(e, &seen, err));
	if (tensors)
		memset(tensors, 0, r->n_tensors);
	for (size_t i = 0; tensors && i < (size_t)r->n_slots * r->n_tensors; i++)
		if (r->place[i].inst != PL_NONE && seen[e->tensor[r->place[i].inst].arrive])
			tensors[i % r->n_tensors] = 1;
	if (names)
		memset(names, 0, e->g->str.n);
	for (uint32_t i = 0; names && i < e->n_nodes; i++)
		if (seen[i] && !e->node[i].dead)
			heat(e, i, names);
	pl_free(seen);
	return 0;
}
