/*
 * Changes of which there are few: groups of sharded parameters, which are joined, gathered earlier
 * or not gathered again, and workers of a loader.
 *
 * Each alternative of a kind is simulated together with the extras that were chosen before. Fewer
 * or earlier groups take more memory, and more workers take processors. So the first alternative
 * within NEAR of the best is taken, and only if it shortens the step by more than WORTH. What the
 * rewriter refuses is no alternative, and if it refuses the first rewrite of an op, the graph has
 * nothing for the others of that op. With a limit of memory the groups stay: a recording of shards
 * does not say what whole parameters take.
 */
#include <math.h>

#include "search/internal.h"

#define NEAR  0.005 /* of a step: no difference */
#define WORTH 0.02  /* of a step: worth a change */
#define MOST  12    /* alternatives of a kind */

static int step_with(struct search *s, const struct pl_rewrite *rw, double *mean,
		     struct pl_err *err)
{
	int rc;

	PL_CHECK(pl_search_extra_add(s, rw, err));
	rc = pl_search_workers_root(s, s->n_extra - 1, err);
	*mean = rc < 0 ? INFINITY : pl_edit_mean_step(&s->worker[0].e);
	s->evaluations += rc == 0;
	s->n_extra--;
	return pl_search_allow_refusal(rc, err);
}

/* Take one of n alternatives, or none. */
static int choose(struct search *s, const struct pl_rewrite *rw, size_t n, struct pl_err *err)
{
	double before, mean[MOST], best = INFINITY;
	size_t i = 0;

	PL_CHECK(pl_search_workers_root(s, s->n_extra, err));
	before = pl_edit_mean_step(&s->worker[0].e);
	for (i = 0; i < n; i++) {
		mean[i] = INFINITY;
		if (pl_search_over(s) || (i && rw[i].op == rw[i - 1].op && isinf(mean[i - 1])))
			continue;
		PL_CHECK(step_with(s, &rw[i], &mean[i], err));
		best = fmin(best, mean[i]);
	}
	if (isinf(best))
		return pl_search_workers_root(s, s->n_extra, err);
	for (i = 0; i < n && mean[i] > best + NEAR * before;)
		i++;
	PL_CHECK(pl_search_workers_root(s, s->n_extra, err));
	if (i == n || !(mean[i] < (1 - WORTH) * before))
		return 0;
	PL_CHECK(pl_search_find_bias(s, err));
	PL_CHECK(pl_search_extra_add(s, &rw[i], err));
	return pl_search_workers_root(s, s->n_extra - 1, err);
}

static struct pl_rewrite blank(unsigned op, int64_t k, double x)
{
	return (struct pl_rewrite){ .op = (uint8_t)op,
				    .k = k,
				    .x = x,
				    .to = -1,
				    .alone_ns = INT64_MIN,
				    .in_plan_ns = INT64_MIN };
}

static int choose_groups(struct search *s, struct pl_err *err)
{
	struct pl_rewrite rw[MOST];
	const char *why;
	uint32_t groups;
	size_t n = 0;

	PL_CHECK(pl_rewrite_groups(s->worker[0].r, &groups, &why, err));
	for (int64_t k = 1; s->o->prefetch && k <= 4 && k < groups; k *= 2)
		rw[n++] = blank(PL_RW_PREFETCH, k, 0);
	for (int64_t k = 2; s->o->wrap && k < groups && n + 2 < MOST; k *= 2)
		rw[n++] = blank(PL_RW_WRAP, k, 0);
	if (s->o->keep && groups > 0)
		rw[n++] = blank(PL_RW_NO_RESHARD, 0, 0);
	if (s->o->wrap && groups > 1)
		rw[n++] = blank(PL_RW_WRAP, -1, 0);
	return choose(s, rw, n, err);
}

static int choose_workers(struct search *s, struct pl_err *err)
{
	struct pl_rewrite rw[MOST];
	size_t n = 0;

	for (int64_t k = 1; k <= 8; k *= 2)
		rw[n++] = blank(PL_RW_LOADER_WORKERS, k, 0);
	PL_CHECK(choose(s, rw, n, err));
	/* the graph does not say how many workers a job has, so its number is multiplied */
	n = 0;
	for (int64_t k = 2; k <= 8; k *= 2)
		rw[n++] = blank(PL_RW_LOADER_WORKERS, k, 1);
	return choose(s, rw, n, err);
}

int pl_search_alternatives(struct search *s, struct pl_err *err)
{
	if (s->o->preset != PL_PRESET_SEARCH)
		return 0;
	if (s->sharded && !s->o->memory_bytes)
		PL_CHECK(choose_groups(s, err));
	return s->o->loader ? choose_workers(s, err) : 0;
}
