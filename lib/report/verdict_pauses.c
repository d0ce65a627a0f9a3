/*
 * Pauses that are longer than the same pause in other steps.
 *
 * A machine that is busy with something else takes processors away for milliseconds, from
 * operations as from pauses. So a pause says something about the program only if it is longer than
 * what operations lost, on the path or beside it, and if it comes again: in another step at the
 * same place. Three operations of a rank may lose more, because some take long only once.
 *
 * Usual pauses: those between the operations of a step's passes and update are of the framework and
 * the interpreter. Those behind the update and before the first pass are what the program does
 * there.
 */
#include "report/verdict_internal.h"

#define MOST 64 /* steps that are compared */
#define ONCE 3	/* operations that may take long */

static int list_alike(struct verdict_study *x, struct pl_err *err)
{
	const struct pl_graph *g = x->g;

	PL_CHECK(pl_alloc(&x->alike, g->n_shapes + g->n_steps, sizeof(*x->alike), err));
	x->first_alike = x->alike;
	x->next_alike = x->alike + g->n_shapes;
	memset(x->first_alike, 0xff, g->n_shapes * sizeof(*x->first_alike));
	for (size_t k = g->n_steps; k-- > 0;) {
		x->next_alike[k] = x->first_alike[g->step[k].shape];
		x->first_alike[g->step[k].shape] = (uint32_t)k;
	}
	return 0;
}

/* How long the node of this step takes in the steps that are alike: v, ascending. Returns how many
 * of MOST there are. */
static size_t in_steps(const struct verdict_study *x, size_t step, uint32_t node, int64_t *v)
{
	uint32_t k = x->first_alike[x->g->step[step].shape];
	size_t n = 0;

	for (; k != PL_NONE && n < MOST; k = x->next_alike[k])
		v[n++] = x->g->step[k].dur[node];
	pl_sort(v, n, sizeof(*v), pl_compare_i64);
	return n;
}

/* Enter a loss into the greatest of a rank, the greatest first. */
static void enter(pl_ns *most, pl_ns lost)
{
	for (size_t k = 0; k < ONCE + 1; k++)
		if (lost > most[k]) {
			pl_ns shorter = most[k];

			most[k] = lost;
			lost = shorter;
		}
}

int pl_verdict_lost(struct verdict_study *x, struct pl_err *err)
{
	pl_ns(*most)[ONCE + 1]; /* by rank */
	uint64_t every = verdict_every(x);
	int64_t v[MOST];
	int rc;

	PL_TRY(pl_alloc(&most, (size_t)x->g->n_ranks, sizeof(*most), err));
	PL_TRY(list_alike(x, err));
	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_shape *sh = verdict_shape(x, k);

		for (uint64_t i = sh->n_entries; i < sh->n_nodes; i += every) {
			pl_ns ns = x->g->step[k].dur[i];
			uint32_t res = sh->res[i], rank = res == PL_NONE ? res : x->rank_of[res];
			size_t n;

			if (ns < VERDICT_PAUSE_NS || rank == PL_NONE ||
			    x->g->res[res].track_type != PL_T_THREAD ||
			    (sh->role[i] != PL_RO_HOST &&
			     !verdict_computes(x, sh, (uint32_t)i, rank)))
				continue;
			n = in_steps(x, k, (uint32_t)i, v);
			if (n >= 3)
				enter(most[rank], ns - v[(n - 1) / 2]);
		}
	}
	for (int32_t i = 0; i < x->g->n_ranks; i++)
		x->lost = pl_max_i64(x->lost, most[i][ONCE]);
out:
	pl_free(most);
	return rc;
}

bool pl_verdict_unusual(const struct verdict_study *x, const struct verdict_part *p)
{
	int64_t v[MOST];
	size_t n;

	if (p->role != PL_RO_GAP || p->part != PL_PP_NODE || p->ns < VERDICT_PAUSE_NS)
		return false;
	n = in_steps(x, p->step, p->node, v);
	return n >= 3 && pl_verdict_longer(x, p->ns, v[(n - 1) / 2]) &&
	       pl_verdict_longer(x, v[n - 2], v[(n - 1) / 2]);
}

void pl_verdict_between(const struct verdict_study *x, struct pl_verdict_row *row)
{
	double all = 0, pauses = 0, between = 0, inside = 0;

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		const struct verdict_cell *cell;
		double ns = (double)p->ns;
		bool is_inside;
		pl_ns middle;

		if (p->rank == PL_NONE || p->part != PL_PP_NODE || p->phase != PL_PH_OTHER)
			continue;
		cell = verdict_cell(x, p->step, p->rank);
		middle = p->start + p->ns / 2;
		is_inside = middle >= cell->model_begin && middle < cell->model_end;
		all += ns;
		between += is_inside ? 0 : ns;
		if (p->role != PL_RO_GAP)
			continue;
		pauses += ns;
		inside += is_inside && !verdict_is_silent(x, p) ? ns : 0;
	}
	row->updates = x->updates;
	row->between = all > 0 ? between / all : 0;
	row->inside = pauses > 0 ? inside / pauses : 0;
}
