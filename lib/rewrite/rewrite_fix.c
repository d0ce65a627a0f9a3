/* fix: operations take the typical duration of their peers (sim/straggler_typical.h). */
#include <string.h>

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

static int explain_fix(const struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_buf *out,
		       struct pl_err *err)
{
	(void)r;
	return pl_buf_printf(out, err,
			     "the selected operations take the %s duration of their peers",
			     rw->word ? rw->word : "typical");
}

const struct pl_rewrite_kind pl_rewrite_fix = { .change = change_fix, .explain = explain_fix };
