/* Structure that changes: an edit of the graph, with the delays that the simulator would use;
 * rendezvous at which nobody waits. */
#include "graph/edit_messages.h"
#include "sim/discipline.h"
#include "sim/internal.h"

static int delays(const struct pl_sim *s, size_t step, struct pl_edit_delays *d, struct pl_err *err)
{
	const struct pl_shape *sh = &s->g->shape[s->g->step[step].shape];
	const struct prep *p = &s->step[step];

	PL_CHECK(pl_alloc(&d->w, sh->n_edges, sizeof(*d->w), err));
	PL_CHECK(pl_alloc(&d->lag, sh->n_edges, sizeof(*d->lag), err));
	if (s->has_shared)
		PL_CHECK(pl_alloc(&d->hold, sh->n_nodes, sizeof(*d->hold), err));
	d->work = p->work;
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		const struct sim_discipline *x =
			pl_sim_discipline_of(s->g->res, sh->type[i], sh->res[i]);
		pl_ns before = x ? p->resource_gap[i] : 0;

		if (x && x->waits) {
			d->hold[i] = before;
			before = 0;
		}
		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
			pl_ns lag, gap;

			pl_sim_delay(s, step, i, e, &lag, &gap);
			d->w[e] = lag + gap + before;
			d->lag[e] = (int32_t)lag;
		}
	}
	return 0;
}

int pl_sim_edit(const struct pl_sim *s, size_t first, size_t n, struct pl_edit *e,
		struct pl_err *err)
{
	struct pl_edit_delays *d;
	int rc = 0;

	memset(e, 0, sizeof(*e));
	PL_CHECK(pl_alloc(&d, n, sizeof(*d), err));
	for (size_t k = 0; k < n; k++)
		PL_TRY(delays(s, first + k, &d[k], err));
	PL_TRY(pl_edit_init(e, s->g, first, n, d, err));
	if (e->share) {
		PL_TRY(pl_sim_settle(e, err));
		pl_edit_commit(e);
	}
out:
	if (rc < 0)
		pl_edit_fini(e);
	for (size_t k = 0; k < n; k++) {
		pl_free(d[k].w);
		pl_free(d[k].lag);
		pl_free(d[k].hold);
	}
	pl_free(d);
	return rc;
}

int pl_sim_fold_messages(struct pl_graph *g, struct pl_err *err)
{
	struct pl_sim *s = NULL;
	struct pl_edit e = { 0 };
	struct pl_graph out;
	int rc = 0;

	if (!pl_graph_has_messages(g))
		return 0;
	s = pl_sim_new(g, err);
	if (!s)
		return err->code;
	PL_TRY(pl_sim_edit(s, 0, g->n_steps, &e, err));
	PL_TRY(pl_edit_fold_messages(&e, NULL, err));
	PL_TRY(pl_sim_settle(&e, err));
	PL_TRY(pl_edit_graph(&e, &out, err));
	pl_graph_fini(g);
	*g = out;
out:
	pl_edit_fini(&e);
	pl_sim_free(s);
	return rc;
}

int pl_sim_set_alone(struct pl_sim *s, size_t step, uint32_t node, struct pl_err *err)
{
	const struct pl_shape *sh = &s->g->shape[s->g->step[step].shape];
	struct prep *p = &s->step[step];

	if (s->has_shared)
		return 0;
	if (!p->k) {
		PL_CHECK(pl_alloc(&p->k, sh->n_nodes, sizeof(*p->k), err));
		if (sh->k)
			memcpy(p->k, sh->k, sh->n_nodes * sizeof(*p->k));
	}
	p->k[node] = 1;
	return 0;
}
