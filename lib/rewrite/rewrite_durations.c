/* scale, remove and set: other durations of the operations that a selector selects. */
#include "rewrite/rewrite_internal.h"

static int change_scale(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			struct pl_err *err)
{
	c->value = (float)rw->x; /* a run multiplies by a float as well */
	return pl_graph_select_init(&c->select, &rw->select, x->g, x->e, err);
}

/* The classes of set: the first selected part of a host call takes the time of the call, the parts
 * behind calls inside take none. Without such parts there are no classes. */
enum { WHOLE, NOTHING, CLASSES };

struct call { /* the last of its name */
	uint32_t res;
	bool taken; /* a part of it is selected */
};

static int find_parts(const struct pl_graph *g, struct rw_change *c, struct pl_err *err)
{
	struct call *call; /* by name; the last: of those without one */
	bool parts = false;
	int rc;

	PL_TRY(pl_alloc(&call, g->str.n + 1, sizeof(*call), err));
	PL_TRY(pl_alloc(&c->of_class, CLASSES, sizeof(*c->of_class), err));
	PL_TRY(pl_alloc(&c->class, g->n_shapes, sizeof(*c->class), err));
	for (c->n_shapes = 0; c->n_shapes < g->n_shapes; c->n_shapes++) {
		const struct pl_shape *s = &g->shape[c->n_shapes];
		uint32_t *class;

		PL_TRY(pl_alloc(&class, s->n_nodes, sizeof(*class), err));
		c->class[c->n_shapes] = class;
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			bool selected = i >= s->n_entries && pl_graph_selects(&c->select, s, i);
			struct call *x = &call[pl_min_size(s->name[i], g->str.n)];

			if (!(s->flags[i] & PL_NF_PART) || x->res != s->res[i])
				*x = (struct call){ s->res[i], false };
			class[i] = !selected ? PL_NONE : x->taken ? NOTHING : WHOLE;
			parts |= x->taken && selected;
			x->taken |= selected;
		}
	}
	c->of_class[WHOLE] = c->value;
	c->of_class[NOTHING] = 0;
out:
	for (size_t i = 0; !parts && i < c->n_shapes; i++)
		pl_free(c->class[i]);
	if (!parts) {
		pl_free(c->class);
		c->class = NULL;
		c->n_shapes = 0;
	}
	pl_free(call);
	return rc;
}

/* remove has no time, which is 0. */
static int change_set(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
		      struct pl_err *err)
{
	c->sets = true;
	c->removes = rw->op == PL_RW_REMOVE;
	c->value = rw->op == PL_RW_SET ? (double)rw->to : 0;
	PL_CHECK(pl_graph_select_init(&c->select, &rw->select, x->g, x->e, err));
	return rw->op == PL_RW_SET ? find_parts(x->g, c, err) : 0;
}

const struct pl_rewrite_kind pl_rewrite_scale = {
	.change = change_scale, .explain = "the selected operations take {x} times as long"
};
const struct pl_rewrite_kind pl_rewrite_remove = {
	.change = change_set,
	.explain = "the selected operations take no time, but what waits for them still waits"
};
const struct pl_rewrite_kind pl_rewrite_set = {
	.change = change_set,
	.explain = "each of the selected operations takes {to}, without the calls inside"
};
