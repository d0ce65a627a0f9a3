/* scale, remove and set: other durations of the operations that a selector selects. */
#include "rewrite/rewrite_internal.h"

static int change_scale(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			struct pl_err *err)
{
	c->value = (float)rw->x; /* a run multiplies by a float as well */
	return pl_graph_select_init(&c->select, &rw->select, x->g, x->e, err);
}

/* remove has no time, which is 0. */
static int change_set(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
		      struct pl_err *err)
{
	c->sets = true;
	c->removes = rw->op == PL_RW_REMOVE;
	c->value = rw->op == PL_RW_SET ? (double)rw->to : 0;
	return pl_graph_select_init(&c->select, &rw->select, x->g, x->e, err);
}

const struct pl_rewrite_kind pl_rewrite_scale = {
	.change = change_scale, .explain = "the selected operations take {x} times as long"
};
const struct pl_rewrite_kind pl_rewrite_remove = {
	.change = change_set,
	.explain = "the selected operations take no time, but what waits for them still waits"
};
const struct pl_rewrite_kind pl_rewrite_set = {
	.change = change_set, .explain = "each of the selected operations takes {to}"
};
