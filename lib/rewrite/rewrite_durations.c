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

/* The last call of each name on each resource. */
struct calls {
	struct pl_intern key;
	bool *taken; /* [key]: a part of it is selected */
	size_t cap;
};

static int find_call(struct calls *x, const struct pl_shape *s, uint32_t node, bool **taken,
		     struct pl_err *err)
{
	const uint32_t key[2] = { s->name[node], s->res[node] };
	size_t known = x->key.n;
	pl_id id;

	PL_CHECK(pl_intern_add(&x->key, (const char *)key, sizeof(key), &id, err));
	PL_CHECK(pl_grow(&x->taken, &x->cap, id + (size_t)1, sizeof(*x->taken), err));
	*taken = &x->taken[id];
	if (id >= known || !(s->flags[node] & PL_NF_PART))
		**taken = false;
	return 0;
}

static int find_parts(const struct pl_graph *g, struct rw_change *c, struct pl_err *err)
{
	struct calls calls = { .cap = 0 };
	bool parts = false;
	int rc;

	PL_TRY(pl_alloc(&c->of_class, CLASSES, sizeof(*c->of_class), err));
	PL_TRY(pl_alloc(&c->class, g->n_shapes, sizeof(*c->class), err));
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *s = &g->shape[k];
		uint32_t *class;

		PL_TRY(pl_alloc(&class, s->n_nodes, sizeof(*class), err));
		c->class[c->n_shapes++] = class;
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			bool selected = i >= s->n_entries && pl_graph_selects(&c->select, s, i);
			bool *taken;

			PL_TRY(find_call(&calls, s, i, &taken, err));
			class[i] = !selected ? PL_NONE : *taken ? NOTHING : WHOLE;
			parts |= *taken && selected;
			*taken |= selected;
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
	pl_intern_fini(&calls.key);
	pl_free(calls.taken);
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
