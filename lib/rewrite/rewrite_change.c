/*
 * Changes of durations, applied to an edit.
 *
 * A kind says once for a graph which operations it concerns and what it makes of their durations
 * (struct rw_change). Nodes that a plan has added have no class, because they were not recorded.
 */
#include "rewrite/rewrite_internal.h"

static void change_fini(struct rw_change *c)
{
	pl_graph_select_fini(&c->select);
	for (size_t i = 0; i < c->n_shapes; i++)
		pl_free(c->class[i]);
	if (c->n_shapes)
		pl_free(c->class);
	pl_free(c->of_class);
}

/* The duration that the change makes of `ns`; the same if it does not concern the class. */
static inline double changed(const struct rw_change *c, uint32_t class, double ns)
{
	double v = c->class ? c->of_class[class] : c->value;

	return isnan(v) ? ns : c->sets ? v : ns * v;
}

static bool concerns(const struct rw_change *c, const struct pl_edit *e, const struct pl_enode *n,
		     uint32_t *class)
{
	*class = 0;
	if (n->dead)
		return false;
	if (c->class) {
		*class = n->origin == PL_NONE ? PL_NONE
					      : c->class[e->g->step[n->step].shape][n->origin];
		if (*class == PL_NONE || isnan(c->of_class[*class]))
			return false;
	}
	return !c->select.keys || (pl_graph_select_step(&c->select, e->step[n->step].number) &&
				   pl_graph_selects_edited(&c->select, n));
}

int pl_rewrite_apply_change(struct pl_rewriter *r, const struct pl_rewrite *rw,
			    const struct pl_rewrite_kind *kind, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	struct rw_change c = { 0 };
	uint64_t hits = 0;
	int rc;

	PL_TRY(kind->change(&r->facts, rw, &c, err));
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		uint32_t class;

		if (!concerns(&c, e, n, &class))
			continue;
		hits++;
		PL_TRY(pl_edit_set_dur(e, i, llround(changed(&c, class, (double)n->dur)), err));
	}
	rc = hits ? 0 : pl_fail(err, PL_EDATA, "it selects no operation of the graph");
out:
	change_fini(&c);
	return rc;
}
