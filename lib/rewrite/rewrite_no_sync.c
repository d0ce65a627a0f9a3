/*
 * no-sync: gradients are synchronised in every K-th step only, as with no_sync() of PyTorch.
 *
 * Of sharded parameters the reductions of their groups carry gradients; parameters are gathered in
 * every step. In the other steps the transfers that carry gradients take no time. What waits for
 * them still waits, and so do ranks for one another. A step synchronises if its number + 1 is a
 * multiple of K: the first step of a round never does.
 */
#include "rewrite/rewrite_internal.h"

#define CARRIES 0 /* the class of transfers that carry gradients */

/* Those that reduce the gradients of groups of sharded parameters. */
static void find_reducing(const struct pl_graph *g, const struct rw_groups *v, uint32_t shape,
			  bool *carries, bool *any)
{
	const uint32_t *comm = g->shape[shape].comm;

	for (size_t k = 0; k < v->n_passes; k++) {
		const struct rw_pass *p = &v->pass[k];

		for (uint32_t i = 0; g->step[p->step].shape == shape && i < p->n; i++)
			for (unsigned what = RW_REDUCE; what <= RW_AVERAGE; what++) {
				uint32_t arrive = v->group[p->first + i].arrive[what];

				if (arrive != PL_NONE)
					carries[comm[arrive]] = *any = true;
			}
	}
}

/* The communications of a shape that carry gradients. `groups` NULL: the job has none. */
static int find_carrying(const struct pl_graph *g, const struct rw_groups *groups, uint32_t shape,
			 bool **carries, bool *any, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[shape];

	PL_CHECK(pl_alloc(carries, (size_t)s->n_comms + 1, sizeof(**carries), err));
	if (groups) {
		find_reducing(g, groups, shape, *carries, any);
		return 0;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		for (uint32_t k = 0;
		     t->role == PL_TR_GRAD && t->shape == shape && s->comm && k < t->n_consumers;
		     k++) {
			uint32_t comm = s->comm[g->consumer[t->consumer + k]];

			if (comm != PL_NONE)
				(*carries)[comm] = *any = true;
		}
	}
	return 0;
}

static int classify(const struct pl_graph *g, const struct rw_groups *groups, uint32_t shape,
		    uint32_t **class, bool *any, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[shape];
	bool *carries = NULL;
	int rc;

	PL_TRY(find_carrying(g, groups, shape, &carries, any, err));
	PL_TRY(pl_alloc(class, s->n_nodes, sizeof(**class), err));
	for (uint32_t i = 0; i < s->n_nodes; i++)
		(*class)[i] = s->role[i] == PL_RO_TRANSFER && s->comm && s->comm[i] != PL_NONE &&
					      carries[s->comm[i]]
				      ? CARRIES
				      : PL_NONE;
out:
	pl_free(carries);
	return rc;
}

static int change_no_sync(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			  struct pl_err *err)
{
	bool any = false, sharded = pl_rewrite_gathers(x->g) > 0;
	int rc;

	if (x->g->stepless)
		return pl_fail(err, PL_EDATA, "the recording has no steps");
	PL_CHECK(pl_rewrite_groups_find(x, err));
	if (sharded)
		PL_CHECK(pl_rewrite_groups_need(x, false, err));
	sharded |= x->groups->whole;
	PL_TRY(pl_alloc(&c->class, x->g->n_shapes, sizeof(*c->class), err));
	c->n_shapes = x->g->n_shapes;
	for (uint32_t k = 0; k < c->n_shapes; k++)
		PL_TRY(classify(x->g, sharded ? x->groups : NULL, k, &c->class[k], &any, err));
	PL_TRY(pl_alloc(&c->of_class, 1, sizeof(*c->of_class), err));
	c->sets = c->removes = true;
	c->every = rw->k;
	if (!any)
		rc = pl_fail(
			err, PL_EDATA,
			"the graph knows no gradients that ranks synchronise; 'remove kind=comm' "
			"removes all communication");
out:
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_no_sync = {
	.change = change_no_sync,
	.explain = "gradients are synchronised in one of {k} steps, which then work with gradients "
		   "of {k} batches"
};
