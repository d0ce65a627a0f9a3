/*
 * --expand: replace every collective by its messages. All steps become one edit, every collective
 * is expanded, and the edit becomes a graph again.
 */
#include "cost/expand.h"
#include "graph/edit_messages.h"
#include "program.h"

int use_expansion(const struct config *c, const struct pl_plan *p, struct report *r,
		  struct pl_err *err)
{
	struct pl_expand_all x = { .algo = (uint8_t)(c->expand - 1),
				   .servers = (uint32_t)c->servers,
				   .channels = (uint32_t)c->channels,
				   .chunks = (uint32_t)c->chunks,
				   .recorded = !c->topology };
	struct pl_cost cost = { 0 };
	struct pl_edit e = { 0 };
	uint32_t *link = NULL;
	int rc;

	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_ALGORITHM && p->rw[i].k > 0)
			x.was_servers = (uint32_t)p->rw[i].k;
	PL_TRY(fit_cost(r->changes, &r->g, &cost, err));
	PL_TRY(pl_graph_add_links(&r->g, x.channels, &link, err));
	x.topo = &cost.topo;
	x.cost = &cost;
	x.link = link;
	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	PL_TRY(pl_cost_expand_all(&e, &x, &r->expanded, err));
	PL_TRY(pl_sim_settle(&e, err));
	PL_TRY(take_graph(r, &e, err));
	r->basis.longer = r->basis.shorter = true;
	if (r->expanded.left)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu of %llu collectives stay as they are: of unknown size, not wholly "
		       "matched, giving way to others, or not to be had by %s",
		       (unsigned long long)r->expanded.left,
		       (unsigned long long)(r->expanded.left + r->expanded.collectives),
		       pl_plan_algorithm_name(x.algo));
out:
	pl_edit_fini(&e);
	pl_cost_fini(&cost);
	pl_free(link);
	return rc;
}
