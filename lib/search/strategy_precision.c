/* Lower precision for all operations, if the step is shorter with it. */
#include <math.h>

#include "search/internal.h"

int pl_search_find_bias(struct search *s, struct pl_err *err)
{
	struct candidate *recorded;

	if (!isnan(s->bias))
		return 0;
	s->bias = 0;
	if (!s->has_choices)
		return 0;
	pl_search_choice_clear(s->choices);
	recorded = pl_search_choice_add(s->choices, s->recorded);
	s->reserve = s->needed = 1;
	PL_CHECK(pl_search_choice_simulate(s->choices, err));
	s->bias = recorded->mean - s->baseline;
	s->best->mean = INFINITY;
	return 0;
}

static int try_precision(struct search *s, struct pl_err *err)
{
	const struct pl_rewrite rw = { .op = PL_RW_PRECISION,
				       .word = "bf16",
				       .alone_ns = INT64_MIN,
				       .in_plan_ns = INT64_MIN };
	double before = pl_edit_mean_step(&s->worker[0].e);
	int rc;

	PL_CHECK(pl_search_extra_add(s, &rw, err));
	rc = pl_search_workers_root(s, 0, err);
	s->evaluations += rc == 0;
	if (rc == 0 && pl_edit_mean_step(&s->worker[0].e) < before)
		return 0;
	PL_CHECK(pl_search_allow_refusal(rc, err));
	s->n_extra--;
	return pl_search_workers_root(s, 0, err);
}

int pl_search_precision(struct search *s, struct pl_err *err)
{
	if (!s->o->precision || s->o->preset != PL_PRESET_SEARCH || pl_search_over(s))
		return 0;
	PL_CHECK(pl_search_find_bias(s, err));
	return try_precision(s, err);
}
