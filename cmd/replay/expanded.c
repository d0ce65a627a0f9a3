/*
 * The job with its collectives message by message: all steps taken apart at once, every collective
 * expanded, put together again.
 */
#include "cost/expand.h"
#include "program.h"
#include "rewrite/messages.h"

/* The graph that the edit makes takes the place of the report's. */
static int replace(struct report *r, const struct pl_edit *e, struct pl_err *err)
{
	struct pl_graph out;
	int rc = pl_edit_graph(e, &out, err);

	if (rc < 0)
		return rc;
	pl_run_fini(&r->run);
	pl_sim_free(r->s);
	pl_graph_fini(&r->g);
	r->g = out;
	r->s = pl_sim_new(&r->g, err);
	return r->s ? 0 : err->code;
}

static int find_topology(const struct config *c, const struct pl_graph *g, struct pl_cost *cost,
			 struct pl_err *err)
{
	struct pl_topology topo;
	int rc;

	if (!c->topology)
		return pl_cost_fit(g, NULL, cost, err);
	if ((rc = pl_topology_parse(c->topology, &topo, err)) < 0)
		return rc;
	if (topo.n_ranks < (uint32_t)g->n_ranks)
		rc = pl_fail(err, PL_EDATA,
			     "--topology: %u ranks, the graph has %d; name hosts for all of them",
			     topo.n_ranks, g->n_ranks);
	else
		rc = pl_cost_fit(g, &topo, cost, err);
	pl_topology_fini(&topo);
	return rc;
}

int use_expansion(const struct config *c, struct report *r, struct pl_err *err)
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

	PL_TRY(find_topology(c, &r->g, &cost, err));
	PL_TRY(pl_graph_add_links(&r->g, x.channels, &link, err));
	x.topo = &cost.topo;
	x.link = link;
	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	PL_TRY(pl_cost_expand_all(&e, &x, &r->expanded, err));
	PL_TRY(replace(r, &e, err));
	if (r->expanded.left)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu of %llu collectives stay as recorded: of unknown size, not wholly "
		       "matched, or not to be had by %s",
		       (unsigned long long)r->expanded.left,
		       (unsigned long long)(r->expanded.left + r->expanded.collectives),
		       pl_algo_name(x.algo));
out:
	pl_edit_fini(&e);
	pl_cost_fini(&cost);
	pl_free(link);
	return rc;
}
