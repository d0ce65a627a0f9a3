/* Changes of durations by a cost model of kernels: what batch and device have in common. */
#include "rewrite/rewrite_predicted.h"

struct asker {
	const struct rw_facts *x;
	const struct pl_work_model *work;
	struct pl_predictor_op *op; /* before, then after: two for each question */
	char (*text)[PL_WORK_TEXT]; /* sizes, likewise */
	uint32_t *group;	    /* [question] */
	size_t n, room;
};

/* The operation of a group in a setting; false: its sizes do not say what changes. */
static bool in_setting(struct asker *a, uint32_t i, struct rw_setting s, bool resized, size_t at)
{
	const struct pl_work_group *group = &a->work->group[i];
	struct pl_predictor_op *op = &a->op[at];

	*op = pl_predictor_op(a->x->predictor, a->x->g, group->name, group->work);
	op->device = s.device;
	if (s.batch == 1 && !resized)
		return true;
	op->dims = a->text[at];
	if (pl_work_scale(a->work, group->work, s.batch, &op->work, a->text[at],
			  sizeof(a->text[at])))
		return true;
	if (resized || a->work->work[group->work].of_samples)
		return false;
	*op = pl_predictor_op(a->x->predictor, a->x->g, group->name, group->work);
	op->device = s.device;
	return true;
}

static void ask(struct asker *a, struct rw_setting from, struct rw_setting to)
{
	bool resized = from.batch != to.batch;

	for (uint32_t i = 0; i < a->work->n_groups; i++) {
		const struct pl_work_group *g = &a->work->group[i];

		if (g->wraps || !(g->ns > 0) || g->work >= a->x->g->n_work ||
		    !in_setting(a, i, from, resized, a->n) ||
		    !in_setting(a, i, to, resized, a->room + a->n))
			continue;
		a->group[a->n++] = i;
	}
}

int pl_rewrite_ratios(const struct rw_facts *x, const struct pl_work_model *work,
		      struct rw_setting from, struct rw_setting to,
		      struct pl_predictor_ratio **ratio, struct pl_err *err)
{
	struct asker a = { .x = x, .work = work, .room = work->n_groups };
	double distance = from.device == to.device ? log(to.batch / from.batch) : INFINITY;
	struct pl_predictor_ratio *r = NULL;
	int rc;

	*ratio = NULL;
	if (!work->batch.any)
		return pl_fail(err, PL_EDATA,
			       "no operation of this graph has sizes, so that a cost model knows "
			       "none of them; record shapes (PyTorch: record_shapes=True)");
	PL_TRY(pl_alloc(ratio, a.room + 1, sizeof(**ratio), err));
	PL_TRY(pl_alloc(&a.op, 2 * a.room + 1, sizeof(*a.op), err));
	PL_TRY(pl_alloc(&a.text, 2 * a.room + 1, sizeof(*a.text), err));
	PL_TRY(pl_alloc(&a.group, a.room + 1, sizeof(*a.group), err));
	PL_TRY(pl_alloc(&r, a.room + 1, sizeof(*r), err));
	ask(&a, from, to);
	PL_TRY(pl_predictor_ratios(x->predictor, a.op, a.op + a.room, a.n, distance, r, err));
	for (size_t i = 0; i < a.room; i++)
		(*ratio)[i] = (struct pl_predictor_ratio){ .factor = NAN, .part = PL_NONE };
	for (size_t i = 0; i < a.n; i++)
		(*ratio)[a.group[i]] = r[i];
out:
	if (rc < 0) {
		pl_free(*ratio);
		*ratio = NULL;
	}
	pl_free(a.op);
	pl_free(a.text);
	pl_free(a.group);
	pl_free(r);
	return rc;
}

struct rw_setting pl_rewrite_setting(const struct rw_facts *x)
{
	const struct rw_network *n = x->network;

	return (struct rw_setting){ n->batch > 0 ? n->batch : 1,
				    n->device	   ? n->device - 1
				    : x->predictor ? pl_predictor_recorded(x->predictor)
						   : PL_NONE };
}

/* ---- errors ---------------------------------------------------------------------------------- */

int pl_rewrite_add_error(struct rw_errors *e, uint32_t part, double ns, double error,
			 struct pl_err *err)
{
	e->all += ns;
	if (part == PL_NONE) {
		e->rule += error;
		return 0;
	}
	PL_CHECK(pl_grow(&e->part, &e->cap_parts, (size_t)part + 1, sizeof(*e->part), err));
	while (e->n_parts <= part)
		e->part[e->n_parts++] = 0;
	e->part[part] += error;
	e->known += ns;
	return 0;
}

double pl_rewrite_error(const struct rw_errors *e)
{
	double squares = e->rule * e->rule;

	for (size_t i = 0; i < e->n_parts; i++)
		squares += e->part[i] * e->part[i];
	return sqrt(squares);
}

void pl_rewrite_errors_fini(struct rw_errors *e)
{
	pl_free(e->part);
}

/* ---- the graph ------------------------------------------------------------------------------- */

int pl_rewrite_devices(const struct pl_graph *g, bool **device, struct pl_err *err)
{
	bool *rank;

	PL_CHECK(pl_alloc(device, g->n_res + 1, sizeof(**device), err));
	PL_CHECK(pl_alloc(&rank, (size_t)g->n_ranks + 1, sizeof(*rank), err));
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t r = pl_graph_rank_index(g, g->res[i].rank);

		if (r != PL_NONE && g->res[i].track_type == PL_T_STREAM)
			rank[r] = true;
	}
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t r = pl_graph_rank_index(g, g->res[i].rank);

		(*device)[i] = r != PL_NONE && rank[r];
	}
	pl_free(rank);
	return 0;
}

size_t pl_rewrite_steps(const struct pl_graph *g)
{
	size_t n = pl_graph_count_steps(g);

	return n ? n : 1;
}
