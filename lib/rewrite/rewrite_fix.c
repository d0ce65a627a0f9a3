/* fix: operations take the typical duration of their peers (sim/straggler_typical.h). */
#include "rewrite/rewrite_internal.h"
#include "sim/straggler_typical.h"

static int change_fix(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
		      struct pl_err *err)
{
	enum typical_how how = !rw->word		   ? TYPICAL_BY_KIND
			       : !strcmp(rw->word, "mean") ? TYPICAL_MEAN
							   : TYPICAL_MEDIAN;
	struct typical t;
	int rc;

	PL_TRY(pl_sim_typical_find(x->g, how, &t, err));
	PL_TRY(pl_alloc(&c->of_class, t.n, sizeof(*c->of_class), err));
	for (size_t i = 0; i < t.n; i++)
		c->of_class[i] = (double)t.ns[i];
	c->sets = true;
	c->class = t.class;
	c->n_shapes = t.n_shapes;
	t.class = NULL;
	rc = pl_graph_select_init(&c->select, &rw->select, x->g, x->e, err);
out:
	pl_sim_typical_fini(&t);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_fix = {
	.change = change_fix,
	.explain = "the selected operations take the {word} duration of their peers"
};
