/*
 * --expand: replace every collective by its messages. All steps become one edit, every collective
 * is expanded, and the edit becomes a graph again.
 */
#include "cost/expand.h"
#include "graph/edit_messages.h"
#include "program.h"

/* By which algorithm the transfers of the graph are: the plan's, if it has one for all. */
static void find_algorithm(const struct config *c, const struct pl_plan *p, struct pl_expand_all *x)
{
	bool some = false;

	for (size_t i = 0; i < p->n_rw; i++) {
		const struct pl_rewrite *rw = &p->rw[i];

		if (rw->op != PL_RW_ALGORITHM)
			continue;
		some = rw->n_args > 0;
		if (some)
			continue;
		x->was = (uint8_t)pl_algo_find(rw->word);
		x->was_servers = rw->k > 0 ? (uint32_t)rw->k : 1;
	}
	if (some && x->recorded)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the plan has an algorithm for some collectives; --expand takes all to be "
		       "by %s before, as it cannot tell them apart: give --topology",
		       pl_algo_name(x->was));
}

int use_expansion(const struct config *c, const struct pl_plan *p, struct report *r,
		  struct pl_err *err)
{
	struct pl_expand_all x = { .algo = (uint8_t)(c->expand - 1),
				   .servers = (uint32_t)c->servers,
				   .channels = (uint32_t)c->channels,
				   .chunks = (uint32_t)c->chunks,
				   .recorded = !c->topology,
				   .was = PL_ALGO_RING,
				   .was_servers = 1 };
	struct pl_cost cost = { 0 };
	struct pl_edit e = { 0 };
	uint32_t *link = NULL;
	int rc;

	find_algorithm(c, p, &x);
	PL_TRY(fit_cost(r->changes, &r->g, &cost, err));
	PL_TRY(pl_graph_add_links(&r->g, x.channels, &link, err));
	x.topo = &cost.topo;
	x.link = link;
	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	PL_TRY(pl_cost_expand_all(&e, &x, &r->expanded, err));
	PL_TRY(take_graph(r, &e, err));
	if (r->expanded.left)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu of %llu collectives stay as they are: of unknown size, not wholly "
		       "matched, giving way to others, or not to be had by %s",
		       (unsigned long long)r->expanded.left,
		       (unsigned long long)(r->expanded.left + r->expanded.collectives),
		       pl_algo_name(x.algo));
out:
	pl_edit_fini(&e);
	pl_cost_fini(&cost);
	pl_free(link);
	return rc;
}
