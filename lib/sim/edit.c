/* A graph taken apart for changing, with the delays that the simulator would use. */
#include <string.h>

#include "graph/edit_messages.h"
#include "sim/internal.h"

static int weights(const struct pl_sim *s, size_t step, pl_ns **w, struct pl_err *err)
{
	const struct pl_shape *sh = &s->g->shape[s->g->step[step].shape];
	const struct prep *p = &s->step[step];
	int rc = pl_alloc(w, sh->n_edges, sizeof(**w), err);

	if (rc < 0)
		return rc;
	for (uint32_t e = 0; e < sh->n_edges; e++)
		(*w)[e] = p->w[e];
	for (size_t i = 0; i < p->n_far; i++)
		(*w)[p->far[i].edge] += p->far[i].gap;
	return 0;
}

int pl_sim_edit(const struct pl_sim *s, size_t first, size_t n, struct pl_edit *e,
		struct pl_err *err)
{
	pl_ns **w;
	int rc;

	memset(e, 0, sizeof(*e));
	rc = pl_alloc(&w, n, sizeof(*w), err);
	if (rc < 0)
		return rc;
	for (size_t k = 0; k < n; k++)
		PL_TRY(weights(s, first + k, &w[k], err));
	PL_TRY(pl_edit_init(e, s->g, first, n, (const pl_ns *const *)w, err));
out:
	for (size_t k = 0; k < n; k++)
		pl_free(w[k]);
	pl_free(w);
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
	PL_TRY(pl_edit_graph(&e, &out, err));
	pl_graph_fini(g);
	*g = out;
out:
	pl_edit_fini(&e);
	pl_sim_free(s);
	return rc;
}
