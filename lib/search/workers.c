/*
 * Simulation of candidates. Each thread has a copy of the edit with the present candidate applied,
 * so that a candidate costs only its difference from the present one.
 *
 * The number of threads decides which thread simulates a candidate. The results do not depend on
 * it, because the starts of an edit are the least solution of its equations in any case.
 */
#include <math.h>
#include <time.h>

#include "core/progress.h"
#include "search/internal.h"

/* The number of stacked states before a worker starts from the root again: each has a log. */
#define DEPTH_MAX 64

/* The simulations that the limit leaves. */
static size_t left_to(const struct search *s)
{
	int64_t most = s->o->evaluations - (int64_t)s->reserve;

	return s->o->evaluations ? (size_t)pl_max_i64(most - s->evaluations, 0) : SIZE_MAX;
}

bool pl_search_over(struct search *s)
{
	const struct pl_search_opts *o = s->o;

	if (o->stop && *o->stop)
		s->over = true;
	if (o->evaluations && s->evaluations >= o->evaluations)
		s->over = true;
	if (o->limit_ns && pl_now_ns() - s->begun >= o->limit_ns)
		s->over = true;
	return s->over || (o->evaluations && !left_to(s));
}

static void report_progress(const struct search *s)
{
	const struct pl_search_opts *o = s->o;
	double share = -1;
	char best[32] = "";

	if (o->evaluations)
		share = (double)s->evaluations / (double)o->evaluations;
	if (o->limit_ns)
		share = fmax(share, (double)(pl_now_ns() - s->begun) / (double)o->limit_ns);
	if (isfinite(s->best->mean))
		pl_fmt_ns(best, sizeof(best), (pl_ns)llround(s->best->mean));
	if (share >= 0)
		pl_progress("%s%s%lld simulations, %.0f %%", best, *best ? " after " : "",
			    (long long)s->evaluations, 100 * fmin(share, 1));
	else
		pl_progress("%s%s%lld simulations", best, *best ? " after " : "",
			    (long long)s->evaluations);
}

int pl_search_allow_refusal(int rc, struct pl_err *err)
{
	if (rc != PL_EDATA)
		return rc;
	memset(err, 0, sizeof(*err));
	return 0;
}

/* ---- workers --------------------------------------------------------------------------------- */

int pl_search_workers_open(struct search *s, struct pl_err *err)
{
	uint32_t n = (uint32_t)pl_pool_threads(s->o->pool);

	s->begun = pl_now_ns();
	PL_CHECK(pl_alloc(&s->worker, n, sizeof(*s->worker), err));
	s->n_workers = 1;
	s->worker[0].s = s;
	PL_CHECK(pl_sim_edit(s->sim, 0, s->g->n_steps, &s->worker[0].e, err));
	s->parted &= s->g->n_steps > 1 && !s->worker[0].e.share;
	if (s->parted)
		PL_CHECK(pl_edit_part_steps(&s->worker[0].e, err));
	for (uint32_t i = 1; i < n; i++) {
		s->worker[i].s = s;
		s->worker[i].number = i;
		s->n_workers++;
		PL_CHECK(pl_edit_dup(&s->worker[0].e, &s->worker[i].e, err));
	}
	for (uint32_t i = 0; i < n; i++) {
		s->worker[i].r = pl_rewrite_new(&s->worker[i].e, s->cost, err);
		if (!s->worker[i].r)
			return err->code;
		s->worker[i].root = pl_rewrite_mark(s->worker[i].r);
	}
	if (n > 1 && !(s->queue = pl_queue_new(s->o->pool, (int)n, err)))
		return err->code;
	return 0;
}

void pl_search_workers_close(struct search *s)
{
	pl_queue_free(s->queue);
	for (uint32_t i = 0; s->worker && i < s->n_workers; i++) {
		pl_rewrite_free(s->worker[i].r);
		pl_edit_fini(&s->worker[i].e);
	}
	pl_free(s->worker);
}

/* An extra is one state of the rewriter. */
int pl_search_workers_root(struct search *s, size_t keep, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < s->n_workers; i++) {
		struct worker *l = &s->worker[i];

		pl_rewrite_undo(l->r, 1 + keep);
		for (size_t k = keep; rc == 0 && k < s->n_extra; k++)
			rc = pl_rewrite(l->r, &s->extra[k], err);
		if (rc == 0)
			rc = pl_sim_settle(&l->e, err);
		l->root = pl_rewrite_mark(l->r);
		l->depth = 0;
		l->at = 0;
	}
	if (rc == 0)
		pl_search_choices_rooted(s->choices);
	return rc;
}

static void go_to_root(struct worker *l)
{
	pl_rewrite_undo(l->r, l->root);
	l->depth = 0;
	l->at = 0;
}

static int go_to_present(struct worker *l)
{
	struct search *s = l->s;

	if (l->at == s->version)
		return 0;
	if (l->depth >= DEPTH_MAX)
		go_to_root(l);
	PL_CHECK(pl_search_choice_apply(l, s->now, &l->err));
	l->depth++;
	l->at = s->version;
	return 0;
}

int pl_search_worker_show(struct search *s, const struct candidate *c, struct pl_err *err)
{
	struct worker *l = &s->worker[0];

	go_to_root(l);
	l->depth = 1;
	return pl_search_choice_apply(l, c, err);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Is the candidate too large, although it would be taken? Only checked if that is possible. */
static int too_big(struct worker *l, double mean, bool *big)
{
	const struct search *s = l->s;
	struct peak peak = { 0 };
	int rc = 0;

	if (s->limit_bytes && (mean <= s->best->mean || mean <= s->now->mean))
		rc = pl_search_worker_peak(l, &peak, &l->err);
	*big = peak.bytes > s->limit_bytes;
	return rc;
}

/* A change that the rewriter refuses, or that makes a cycle, is no candidate. */
static int try_one(struct worker *l, struct candidate *c)
{
	size_t mark = pl_rewrite_mark(l->r), edit = pl_edit_mark(&l->e);
	const struct search *s = l->s;
	bool probe = pl_rewrite_only_step(l->r, s->probe), big = false;
	pl_ns before = probe ? pl_edit_step(&l->e, s->probe) : 0;
	int rc = s->apply(l, c, &l->err);

	l->probed |= probe;
	pl_rewrite_only_step(l->r, PL_NONE);
	c->mean = pl_edit_mean_step(&l->e);
	if (probe)
		c->mean = s->now->mean + (double)(pl_edit_step(&l->e, s->probe) - before);
	else if (rc == 0)
		rc = too_big(l, c->mean, &big);
	c->mean = rc == 0 && !big ? c->mean : INFINITY;
	pl_rewrite_undo(l->r, mark);
	pl_edit_undo(&l->e, edit); /* changes outside of rewrites */
	return pl_search_allow_refusal(rc, &l->err);
}

static void run_share(void *arg)
{
	struct worker *l = arg;
	struct search *s = l->s;

	l->rc = 0;
	if (s->from_present)
		l->rc = go_to_present(l);
	else
		go_to_root(l);
	for (size_t i = l->number; l->rc == 0 && i < s->n_batch; i += s->n_workers)
		l->rc = try_one(l, s->batch[i]);
}

int pl_search_simulate(struct search *s, bool from_present, struct candidate *const *batch,
		       size_t n, apply_candidate *apply, struct pl_err *err)
{
	size_t counted = pl_min_size(n, left_to(s)), some = pl_min_size(n, s->needed);

	some = counted > some ? counted : some;
	for (size_t i = some; i < n; i++) /* as one that cannot be done */
		batch[i]->mean = INFINITY;
	s->needed = 0;
	if (!some)
		return 0;
	report_progress(s);
	s->from_present = from_present;
	s->batch = batch;
	s->n_batch = some;
	s->apply = apply;
	if (s->queue) {
		for (uint32_t i = 0; i < s->n_workers; i++)
			pl_queue_put(s->queue, run_share, &s->worker[i]);
		while (pl_queue_get(s->queue))
			;
	} else {
		run_share(&s->worker[0]);
	}
	for (uint32_t i = 0; i < s->n_workers; i++)
		if (s->worker[i].rc < 0) {
			*err = s->worker[i].err;
			return s->worker[i].rc;
		}
	s->evaluations += (int64_t)counted;
	return 0;
}
