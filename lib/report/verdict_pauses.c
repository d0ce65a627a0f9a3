/*
 * Pauses that are longer than the same pause in other steps.
 *
 * A machine that is busy with something else takes processors away for milliseconds, from
 * operations as from pauses. So a pause says something about the program only if it is longer than
 * what operations lost. Three operations may lose more, because some take long only once.
 */
#include "report/verdict_internal.h"

#define MOST 64 /* steps that are compared */
#define ONCE 3	/* operations that may take long */

/* How long the node of this part takes in the median of the steps that are alike, -1: few are. */
static pl_ns usual(const struct verdict_study *x, const struct verdict_part *p)
{
	const struct pl_gstep *own = &x->g->step[p->step];
	int64_t v[MOST];
	size_t n = 0;

	for (size_t k = 0; k < x->g->n_steps && n < MOST; k++)
		if (x->g->step[k].shape == own->shape)
			v[n++] = x->g->step[k].dur[p->node];
	return n >= 3 ? pl_median_i64(v, n) : -1;
}

void pl_verdict_lost(struct verdict_study *x)
{
	pl_ns most[ONCE + 1] = { 0 };

	for (size_t i = 0; i < x->n_parts; i++) {
		const struct verdict_part *p = &x->part[i];
		pl_ns ns = p->ns, before;

		if (p->part != PL_PP_NODE || p->ns < VERDICT_PAUSE_NS ||
		    (p->role != PL_RO_COMPUTE && p->role != PL_RO_HOST) ||
		    (before = usual(x, p)) < 0)
			continue;
		ns -= before;
		for (size_t k = 0; k < PL_LEN(most); k++)
			if (ns > most[k]) {
				pl_ns shorter = most[k];

				most[k] = ns;
				ns = shorter;
			}
	}
	x->lost = most[ONCE];
}

bool pl_verdict_unusual(const struct verdict_study *x, const struct verdict_part *p)
{
	pl_ns before;

	if (p->role != PL_RO_GAP || p->part != PL_PP_NODE || p->ns < VERDICT_PAUSE_NS)
		return false;
	before = usual(x, p);
	return before >= 0 && pl_verdict_longer(x, p->ns, before);
}
