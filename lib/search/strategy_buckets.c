/*
 * Buckets: the sets of gradients that are synchronised together, their order, their algorithm.
 *
 * Defaults of frameworks are simulated first, then cuts (buckets_candidates.c, buckets_dp.c). The
 * best is changed step by step (buckets_local.c). All defaults are candidates, so no simulated plan
 * is longer than any default, unless a limit leaves defaults out. If none is shorter than the
 * recorded step, the plan has no lines.
 */
#include <math.h>

#include "search/buckets_internal.h"

/* ---- the tensors ----------------------------------------------------------------------------- */

struct need {
	pl_ns ns;
	uint32_t tensor;
};

/* The most urgent first, then the one that is ready first. */
PL_COMPARATOR(by_need, struct need, ns, tensor);

static int find_needs(struct choices *s, struct pl_err *err)
{
	const struct pl_rewriter *r = s->search->worker[0].r;
	struct need *v = NULL;
	int rc;

	if (!s->o->priority || !pl_rewrite_needs_differ(r))
		return 0;
	PL_TRY(pl_arena_array(&s->arena, &s->priority, s->n, sizeof(*s->priority), err));
	PL_TRY(pl_alloc(&v, s->n, sizeof(*v), err));
	for (uint32_t t = 0; t < s->n; t++)
		v[t] = (struct need){ pl_rewrite_need(r, t), t };
	pl_sort(v, s->n, sizeof(*v), by_need);
	for (uint32_t i = 0; i < s->n; i++)
		s->priority[v[i].tensor] = i + 1;
out:
	pl_free(v);
	return rc;
}

/* Find tensors of one name in several groups: those of ranks with the same work on other parts. */
static int find_alike(struct choices *s, struct pl_err *err)
{
	bool any = false;

	PL_CHECK(pl_arena_array(&s->arena, &s->alike, s->n, sizeof(*s->alike), err));
	for (uint32_t t = 0; t < s->n; t++)
		s->n_groups =
			s->n_groups > s->tensor[t].fuses ? s->n_groups : s->tensor[t].fuses + 1;
	for (uint32_t t = 0; t < s->n; t++) {
		s->alike[t] = t;
		for (uint32_t u = 0; u < t && s->n_groups > 1 && s->alike[t] == t; u++)
			if (s->tensor[u].name == s->tensor[t].name)
				s->alike[t] = u;
		any |= s->alike[t] != t;
	}
	if (!any)
		s->alike = NULL;
	return 0;
}

int pl_search_choices_open(struct search *all, struct pl_err *err)
{
	const struct pl_rewriter *r = all->worker[0].r;
	struct choices *s;
	size_t n;

	PL_CHECK(pl_alloc(&s, 1, sizeof(*s), err));
	*s = (struct choices){ .search = all, .o = all->o, .cost = all->cost };
	s->rng = s->o->seed;
	all->choices = s;
	s->tensor = pl_rewrite_tensors(r, &s->n);
	if (all->sharded) /* their gradients are those of groups */
		s->n = 0;
	PL_CHECK(pl_search_choice_new(s, &all->now, err));
	PL_CHECK(pl_search_choice_new(s, &all->best, err));
	PL_CHECK(pl_search_choice_new(s, &all->recorded, err));
	PL_CHECK(pl_search_choice_new(s, &s->spare, err));
	s->now = (struct bucket_choice *)all->now;
	s->best = (struct bucket_choice *)all->best;
	s->recorded = (struct bucket_choice *)all->recorded;
	n = s->n ? s->n : 1;
	PL_CHECK(pl_arena_array(&s->arena, &s->ready, n, sizeof(*s->ready), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->algos, n, sizeof(*s->algos), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->count, n + 3, sizeof(*s->count), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->member, n, sizeof(*s->member), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->scratch, 2 * n, sizeof(*s->scratch), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->hot, n, 1, err));
	s->plain = PL_ALGO_RING;
	for (uint32_t t = 0; t < s->n; t++) {
		if (pl_rewrite_comm(r, t).algo != PL_ALGO_RING)
			s->plain = PL_REWRITE_SAME_ALGORITHM;
		s->ready[t] = pl_rewrite_ready(r, t);
		s->algos[t] = s->o->algorithm ? PL_ALGO_PS : 1;
		s->recorded->b.parts[t] = 1;
	}
	memset(s->recorded->algo, s->plain, s->n);
	PL_CHECK(find_needs(s, err));
	PL_CHECK(find_alike(s, err));
	s->recorded->b.n_sets = s->n ? pl_rewrite_buckets(r, s->recorded->b.set) : 0;
	pl_search_cand_number(s, s->recorded);
	all->has_choices = s->n > 0;
	all->reserve = all->has_choices ? 2 : 0; /* also before extras: pl_search_find_bias() */
	return all->sharded ? 0 : pl_rewrite_base(r, all->p, err);
}

void pl_search_choices_close(struct choices *s)
{
	if (!s)
		return;
	for (struct bucket_choice *c = s->all; c; c = c->next)
		pl_plan_buckets_fini(&c->b);
	pl_free(s->batch);
	pl_arena_fini(&s->arena);
	pl_free(s);
}

void pl_search_choices_rooted(struct choices *s)
{
	for (uint32_t t = 0; t < s->n; t++)
		s->ready[t] = pl_rewrite_ready(s->search->worker[0].r, t);
}

/*
 * The lower bound of the step: the first gradient of a group, then one transfer of all its
 * gradients on its channel, because cutting it only adds latencies. If plans may choose the
 * algorithm, the fastest one counts. Groups with several channels have no bound.
 */
double pl_search_choices_bound(const struct choices *s)
{
	const struct pl_rewriter *r = s->search->worker[0].r;
	double bound = 0;

	for (uint32_t t = 0; t < s->n; t++) {
		struct pl_cost_comm c = pl_rewrite_comm(r, t);
		pl_ns first = INT64_MAX, best;
		uint32_t k = 0;

		while (s->tensor[k].fuses != s->tensor[t].fuses)
			k++;
		if (k < t ||
		    !pl_rewrite_one_channel(r, s->tensor[t].fuses)) /* counted, or not known */
			continue;
		c.bytes = 0;
		c.parts = 1;
		for (; k < s->n; k++) {
			if (s->tensor[k].fuses != s->tensor[t].fuses)
				continue;
			c.bytes = pl_add_sat(c.bytes, s->tensor[k].bytes);
			first = pl_min_i64(first,
					   pl_min_i64(s->ready[k], pl_rewrite_ready_alone(r, k)));
		}
		best = pl_cost_transfer(s->cost, &c);
		c.servers = s->servers;
		for (uint8_t a = 0; s->o->algorithm && a < s->algos[t]; a++) {
			c.algo = a;
			best = pl_min_i64(best, pl_cost_transfer(s->cost, &c));
		}
		bound = fmax(bound, (double)(first + best));
	}
	return bound;
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Simulate the recorded choice and the defaults: the requested one, or all. */
static int run_presets(struct choices *s, struct pl_err *err)
{
	bool one = s->o->preset > PL_PRESET_BEST;
	int64_t left;
	int rc;

	pl_search_choice_clear(s);
	pl_search_choice_add_preset(s, PL_PRESET_NONE);
	for (int i = PL_PRESET_NONE; i < PL_PRESET_COUNT_; i++)
		if (one ? i == (int)s->o->preset : i > PL_PRESET_NONE && s->o->fuse)
			pl_search_choice_add_preset(s, (enum pl_preset)i);
	/* what does not fit the memory is searched again */
	left = pl_max_i64(s->o->evaluations - s->search->evaluations, 0);
	s->search->reserve = s->o->memory_bytes ? (size_t)left / 2 : 0;
	s->search->needed = one ? 2 : 1;
	PL_CHECK(pl_search_choice_simulate(s, err));
	s->recorded->head.mean = s->batch[0]->mean;
	if (one)
		pl_search_choice_copy(s, &s->best->head, s->batch[1]);
	if (one || isfinite(s->recorded->head.mean))
		return 0;
	rc = pl_search_worker_show(s->search, s->batch[0], err); /* its error has the reason */
	if (rc < 0)
		return pl_wrap(err, "the communication of the graph's gradients cannot be rebuilt");
	return pl_fail(err, PL_EINTERNAL, "what was recorded can be rebuilt, but has no time");
}

/* If groups wait for one another: start from the recorded choice, and from single tensors. */
static int search_groups(struct choices *s, struct pl_err *err)
{
	struct candidate *each;

	if (s->n_groups < 2 || !s->o->fuse)
		return 0;
	PL_CHECK(pl_search_choice_new(s, &each, err));
	pl_search_choice_clear(s);
	pl_search_choice_add_preset(s, PL_PRESET_EACH);
	PL_CHECK(pl_search_choice_simulate(s, err));
	pl_search_choice_copy(s, each, s->batch[0]);
	for (int i = 0; i < 2 && !pl_search_over(s->search); i++) {
		const struct candidate *from = i ? each : &s->recorded->head;

		if (!isfinite(from->mean) || from->mean > 1.1 * s->best->head.mean ||
		    (i && pl_search_cand_same(s, each, &s->recorded->head)))
			continue;
		pl_search_choice_move(s, from);
		PL_CHECK(pl_search_steepest(s, err));
		PL_CHECK(pl_search_choice_improve(s, err));
	}
	return 0;
}

int pl_search_buckets_improve(struct choices *s, struct pl_err *err)
{
	struct candidate *from[2];

	for (int i = 0; i < 2; i++)
		PL_CHECK(pl_search_choice_new(s, &from[i], err));
	pl_search_choice_clear(s);
	pl_search_choice_add_seeds(s);
	PL_CHECK(pl_search_choice_simulate(s, err));
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < s->n_batch; k++)
			if (pl_search_cand_better(s->batch[k], from[i]) &&
			    !pl_search_cand_same(s, s->batch[k], &s->best->head) &&
			    (!i || !pl_search_cand_same(s, s->batch[k], from[0])))
				pl_search_choice_copy(s, from[i], s->batch[k]);
	pl_search_choice_move(s, &s->best->head);
	PL_CHECK(pl_search_choice_improve(s, err));
	for (int i = 0; i < 2 && !pl_search_over(s->search); i++) {
		if (!isfinite(from[i]->mean) || from[i]->mean > 1.1 * s->best->head.mean)
			continue;
		pl_search_choice_move(s, from[i]);
		PL_CHECK(pl_search_choice_improve(s, err));
	}
	return search_groups(s, err);
}

int pl_search_buckets(struct search *all, struct pl_err *err)
{
	struct choices *s = all->choices;
	enum pl_preset preset = s->o->preset;
	int rc = s->n ? run_presets(s, err) : 0;

	if (rc < 0 || !s->n)
		return rc;
	if (preset == PL_PRESET_SEARCH)
		rc = pl_search_buckets_improve(s, err);
	/* if the model finds nothing better, keep the recorded choice */
	if (rc == 0 && preset <= PL_PRESET_BEST && s->best->head.mean >= s->recorded->head.mean)
		pl_search_choice_copy(s, &s->best->head, &s->recorded->head);
	if (isnan(s->search->bias))
		s->search->bias = s->recorded->head.mean - s->search->baseline;
	return rc;
}
