/* algorithm: the algorithm that carries out collectives. lib/cost gives the duration. */
#include "rewrite/rewrite_internal.h"

static int apply_algorithm(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	int algo = pl_plan_algorithm_find(rw->word), rc;
	bool *wanted; /* [set] */

	s->asks_algorithm = true;
	if (algo < 0)
		return pl_fail(err, PL_EDATA, "there is no algorithm \"%s\"", rw->word);
	PL_CHECK(pl_alloc(&wanted, r->n_tensors, sizeof(*wanted), err));
	for (uint32_t i = 0; i < rw->n_args; i++) {
		uint32_t t;

		PL_TRY(pl_rewrite_find_arg(r, rw, i, &t, err));
		wanted[s->b.set[t]] = true;
	}
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		if (rw->n_args && !wanted[s->b.set[t]])
			continue;
		s->choice[t].algo = (uint8_t)algo;
		s->choice[t].servers = rw->k > 0 ? (uint32_t)rw->k : 1;
	}
	rc = 0;
out:
	pl_free(wanted);
	return rc;
}

/* The share of transfers that a plan added in the time of all. */
static double share_of_added(const struct pl_edit *e)
{
	double added = 0, all = 0;

	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (n->dead || n->role != PL_RO_TRANSFER)
			continue;
		all += (double)n->dur;
		added += n->origin == PL_NONE ? (double)n->dur : 0;
	}
	return all > 0 ? added / all : 0;
}

/* As for other ranks: where a ring is assumed, the whole effect is in doubt. Where it is not known
 * whether a rank has one link or one to each other rank, either may be true. Where nothing is known
 * of the links of ranks that share layers, what these communicate may be wrong altogether. */
void pl_rewrite_bases(const struct pl_rewriter *r, struct pl_rewrite_basis *b)
{
	const struct rw_state *s = rw_now(r);
	bool unknown = s->divided && !r->c->user_topology && !r->c->n_fits;
	double wrong = 0, all = 0;

	pl_rewrite_note_ranks(&s->network, b);
	pl_rewrite_add_basis(b, &s->basis);
	for (uint32_t set = 0; set < s->b.n_sets; set++) {
		struct pl_cost_comm c = pl_rewrite_comm_of_set(r, set, r->n_ranks);
		double after = (double)pl_cost_transfer(r->c, &c), other;

		all += after;
		if (!s->asks_algorithm)
			continue;
		c.pairs = !r->c->links_known && c.algo != c.was;
		other = c.pairs ? (double)pl_cost_transfer(r->c, &c) : after;
		wrong += fabs(after - other);
		b->links_assumed |= other != after;
		if (!c.assumed)
			continue;
		c.algo = c.was;
		wrong += fabs(after - (double)pl_cost_transfer(r->c, &c));
		b->assumed = true;
	}
	b->links_unknown |= unknown;
	if (unknown)
		b->error = fmax(b->error, share_of_added(r->e));
	b->as_recorded = !s->over;
	/* what an earlier plan has made stays so */
	b->rearranged |= s->overlapped || s->wrap != 0;
	b->at_once |= s->at_once;
	if (b->assumed || b->links_assumed)
		pl_rewrite_count_basis(r->e->g, r->c, b);
	b->error = fmax(b->error, all > 0 ? fmin(wrong / all, 1) : 0);
}

const struct pl_rewrite_kind pl_rewrite_algorithm = {
	.comm = true,
	.apply = apply_algorithm,
	.explain = "{names} buckets are communicated by {word}: {reason}",
	.explain_less = "all buckets are communicated by {word}: {reason}"
};
