/*
 * Local search: one change at a time, each simulated; and restarts by simulated annealing.
 *
 * Sets are visited in order of issue. Sets whose communication lies on the critical path come
 * first, because no other change can help at once (dPRO's rule). The changes of one set are a
 * batch. If the best of them helps, it is taken and the set is visited again. A sweep over all sets
 * that takes no change ends in a local optimum. Where steps are apart, the changes of a set are
 * simulated in one step, each time in another, so the first such sweep of a search is repeated in
 * all steps. Annealing (Kirkpatrick, Gelatt, Vecchi, Science
 * 220, 1983) starts at the best candidate and makes random changes, eight at a time; a local search
 * follows it. The random numbers depend only on the seed, and a batch depends only on earlier
 * results.
 *
 * If groups of ranks have tensors with the same names, changes are also tried for all groups.
 */
#include <math.h>

#include "search/buckets_internal.h"

#define POSITIONS 16 /* cuts of a set that are tried */
#define FEW	  48 /* tensors: up to this number every single move is tried */
#define WINDOW	  6  /* else: sets that a tensor may move over */
#define PARTS	  16 /* of every set, if chunks are tried for all sets */
#define WALK	  8  /* candidates of a step of annealing */
#define STEPS	  60 /* of a walk */

void pl_search_choice_move(struct choices *s, const struct candidate *to)
{
	if (to != &s->now->head)
		pl_search_choice_copy(s, &s->now->head, to);
	s->search->version++;
	pl_plan_buckets_members(&s->now->b, s->count, s->member);
}

static bool may_join(const struct choices *s, uint32_t a, uint32_t b)
{
	return a < s->now->b.n_sets && b < s->now->b.n_sets && a != b &&
	       s->tensor[pl_search_set_members(s, a)[0]].fuses ==
		       s->tensor[pl_search_set_members(s, b)[0]].fuses;
}

static unsigned algos_of(const struct choices *s, uint32_t set)
{
	return s->algos[pl_search_set_members(s, set)[0]];
}

/* ---- single changes: each adds a candidate to the batch -------------------------------------- */

/* Move the first (last) n tensors of set a to set b. If they are all tensors, the sets merge. */
static void shift(struct choices *s, uint32_t a, bool last, uint32_t n, uint32_t b)
{
	const uint32_t *v = pl_search_set_members(s, a);
	uint32_t size = pl_search_set_size(s, a);
	struct bucket_choice *c;

	if (!s->o->fuse || !n || n > size || !may_join(s, a, b))
		return;
	c = pl_search_batch_add(s, s->now);
	for (uint32_t i = 0; i < n; i++)
		c->b.set[v[last ? size - 1 - i : i]] = b;
	pl_search_cand_number(s, c);
}

/* Move tensors from .. to - 1 of the set to a new set, before or after the rest. */
static void part_off(struct choices *s, uint32_t a, uint32_t from, uint32_t to)
{
	const uint32_t *v = pl_search_set_members(s, a);
	uint32_t size = pl_search_set_size(s, a), fresh = s->now->b.n_sets,
		 place = from ? a + 1 : a;
	struct bucket_choice *c;

	if (!s->o->fuse || from >= to || to - from >= size || to > size)
		return;
	c = pl_search_batch_add(s, s->now);
	c->b.parts[fresh] = c->b.parts[a];
	c->algo[fresh] = c->algo[a];
	for (uint32_t i = from; i < to; i++)
		c->b.set[v[i]] = fresh;
	if (c->ordered) { /* next to the rest */
		for (uint32_t t = 0; t < s->n; t++)
			if (c->b.set[t] == fresh)
				c->b.set[t] = place;
			else if (c->b.set[t] >= place)
				c->b.set[t]++;
		for (uint32_t i = fresh; i > place; i--) {
			c->b.parts[i] = c->b.parts[i - 1];
			c->algo[i] = c->algo[i - 1];
		}
		c->b.parts[place] = s->now->b.parts[a];
		c->algo[place] = s->now->algo[a];
	}
	pl_search_cand_number(s, c);
}

static void set_parts(struct choices *s, uint32_t a, uint32_t k)
{
	if (s->o->partition && k && k <= 65536 && k != s->now->b.parts[a])
		pl_search_batch_add(s, s->now)->b.parts[a] = k;
}

/* Of one set, or (PL_NONE) of all sets that may have it. */
static void set_algo(struct choices *s, uint32_t a, unsigned algo)
{
	struct bucket_choice *c;

	if (!s->o->algorithm ||
	    (a != PL_NONE && (s->now->algo[a] == algo || algo >= algos_of(s, a))))
		return;
	c = pl_search_batch_add(s, s->now);
	for (uint32_t i = 0; i < c->b.n_sets; i++)
		if ((a == PL_NONE || a == i) && algo < algos_of(s, i))
			c->algo[i] = (uint8_t)algo;
}

static void swap(struct choices *s, uint32_t a, uint32_t b)
{
	struct bucket_choice *c;

	if (!s->o->order || s->now->urgent || a >= s->now->b.n_sets || b >= s->now->b.n_sets ||
	    a == b)
		return;
	c = pl_search_batch_add(s, s->now);
	for (uint32_t t = 0; t < s->n; t++)
		c->b.set[t] = c->b.set[t] == a ? b : c->b.set[t] == b ? a : c->b.set[t];
	c->b.parts[a] = s->now->b.parts[b];
	c->b.parts[b] = s->now->b.parts[a];
	c->algo[a] = s->now->algo[b];
	c->algo[b] = s->now->algo[a];
	c->ordered = true;
}

/* ---- the neighbourhood of a set -------------------------------------------------------------- */

static void add_shifts(struct choices *s, uint32_t a)
{
	for (int side = 0; side < 2; side++) {
		uint32_t b = side ? a + 1 : a - 1;

		if (b >= s->now->b.n_sets)
			continue;
		for (uint32_t k = 1; k < pl_search_set_size(s, a); k *= 2)
			shift(s, a, side, k, b);
		shift(s, a, side, pl_search_set_size(s, a), b);
		for (uint32_t k = 1; k < pl_search_set_size(s, b); k *= 2)
			shift(s, b, !side, k, a);
	}
}

static void add_splits(struct choices *s, uint32_t a)
{
	uint32_t n = pl_search_set_size(s, a), step = n > POSITIONS ? n / POSITIONS : 1;

	for (uint32_t i = 1; i < n; i += step)
		part_off(s, a, i, n);
	if (step > 1)
		part_off(s, a, n - 1, n);
}

/* Changes of the order: a tensor moves to a more distant set, or out of the middle. */
static void add_jumps(struct choices *s, uint32_t a)
{
	uint32_t n = pl_search_set_size(s, a), reach = s->n <= FEW ? s->now->b.n_sets : WINDOW;
	uint32_t lo = a > reach ? a - reach : 0, hi = a + reach + 1;

	for (uint32_t b = lo; b < hi && b < s->now->b.n_sets; b++) {
		if (b == a || !may_join(s, a, b) || !s->o->fuse)
			continue;
		if (b + 1 != a && b != a + 1)
			shift(s, a, true, n, b);
		for (uint32_t i = 0; i < n && s->n <= FEW; i++) {
			struct bucket_choice *c = pl_search_batch_add(s, s->now);

			c->b.set[pl_search_set_members(s, a)[i]] = b;
			pl_search_cand_number(s, c);
		}
	}
	for (uint32_t i = 0; i < n && s->n <= FEW; i++)
		part_off(s, a, i, i + 1);
}

static void add_parts_and_algorithms(struct choices *s, uint32_t a)
{
	uint32_t k = s->now->b.parts[a];

	set_parts(s, a, 2 * k);
	if (k > 1)
		set_parts(s, a, k / 2);
	for (unsigned algo = PL_ALGO_RING; algo < algos_of(s, a); algo++)
		set_algo(s, a, algo);
	swap(s, a, a + 1);
	swap(s, a, a - 1);
}

/* ---- groups that are alike ------------------------------------------------------------------- */

/* Copy the sets of the group in c to all groups with tensors of the same names. */
static void project(struct choices *s, struct bucket_choice *c, uint32_t group)
{
	uint32_t *map = s->scratch, *of = s->scratch + s->n, n = 0;
	struct bucket_choice *to = (struct bucket_choice *)s->spare;

	memset(of, 0xff, s->n * sizeof(*of)); /* the group's tensor of a name */
	for (uint32_t t = 0; t < s->n; t++)
		if (s->tensor[t].fuses == group)
			of[s->alike[t]] = t;
	for (uint32_t g = 0; g < s->n_groups; g++)
		for (int led = 0; led < 2; led++) {
			memset(map, 0xff, s->n * sizeof(*map));
			for (uint32_t t = 0; t < s->n; t++) {
				uint32_t from = of[s->alike[t]], set;

				if (s->tensor[t].fuses != g || (from != PL_NONE) != led)
					continue;
				set = c->b.set[led ? from : t];
				if (map[set] == PL_NONE) {
					to->b.parts[n] = c->b.parts[set];
					to->algo[n] = c->algo[set];
					map[set] = n++;
				}
				to->b.set[t] = map[set];
			}
		}
	to->b.n_sets = n;
	to->urgent = c->urgent;
	to->ordered = false;
	to->head.mean = INFINITY;
	pl_search_choice_copy(s, &c->head, &to->head);
	pl_search_cand_number(s, c);
}

/* Try each change of one group for all alike groups too, because they may wait for one another. */
static void add_alike(struct choices *s, uint32_t a, size_t first)
{
	uint32_t group = s->tensor[pl_search_set_members(s, a)[0]].fuses;
	size_t n = s->n_batch;

	if (!s->alike || s->now->ordered)
		return;
	for (size_t i = first; s->rc == 0 && i <= n; i++) {
		struct bucket_choice *c;

		if (i < n && pl_search_batch_at(s, i)->ordered)
			continue;
		c = pl_search_batch_add(s, s->now);
		if (i < n)
			pl_search_choice_copy(s, &c->head, s->batch[i]);
		project(s, c, group);
	}
}

static void neighbours(struct choices *s, uint32_t a)
{
	size_t first = s->n_batch;

	add_shifts(s, a);
	add_splits(s, a);
	add_jumps(s, a);
	add_parts_and_algorithms(s, a);
	add_alike(s, a, first);
}

/* The best candidate of the batch, NULL if it is empty. */
static struct candidate *best_of(const struct choices *s)
{
	struct candidate *best = NULL;

	for (size_t i = 0; i < s->n_batch; i++)
		if (!best || pl_search_cand_better(s->batch[i], best))
			best = s->batch[i];
	return best;
}

/* The next step in turn that counts and in which ranks synchronise gradients; PL_NONE: none is. */
static uint32_t next_step(struct choices *s)
{
	const struct worker *l = &s->search->worker[0];

	for (uint32_t i = 0; i < l->e.n_steps; i++) {
		uint32_t step = s->n_probes++ % l->e.n_steps;

		if (l->e.step[step].reported && pl_rewrite_synchronises(l->r, step))
			return step;
	}
	return PL_NONE;
}

/* Simulate one step of the candidates, in turn each step. Of those that are better there, simulate
 * all steps, the best first, until one is better: *c. */
static int probe(struct choices *s, struct candidate **c, struct pl_err *err)
{
	struct search *all = s->search;
	int rc;

	PL_CHECK(pl_search_choice_failed(s, err));
	all->probe = next_step(s);
	rc = pl_search_simulate(all, true, s->batch, s->n_batch, pl_search_choice_apply, err);
	all->probe = PL_NONE;
	while (rc == 0 && (*c = best_of(s)) && pl_search_cand_better(*c, all->now)) {
		rc = pl_search_simulate(all, true, c, 1, pl_search_choice_apply, err);
		if (rc == 0 && pl_search_cand_better(*c, all->best))
			pl_search_choice_copy(s, all->best, *c);
		if (rc == 0 && pl_search_cand_better(*c, all->now))
			break;
	}
	return rc;
}

/* If the best of the batch is better, make it the present choice. */
static int take_best(struct choices *s, bool some, bool *better, struct pl_err *err)
{
	struct candidate *c = NULL;

	if (some && s->search->parted) {
		PL_CHECK(probe(s, &c, err));
	} else {
		PL_CHECK(pl_search_choice_simulate(s, err));
		c = best_of(s);
	}
	*better = c && pl_search_cand_better(c, &s->now->head);
	if (*better)
		pl_search_choice_move(s, c);
	return 0;
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* Change the set of this tensor as long as that helps. some: in some steps first. */
static int visit(struct choices *s, uint32_t tensor, bool some, bool *better, struct pl_err *err)
{
	bool moved = true;
	int rc = 0;

	while (rc == 0 && moved && !pl_search_over(s->search)) {
		pl_search_choice_clear(s);
		neighbours(s, s->now->b.set[tensor]);
		rc = take_best(s, some, &moved, err);
		*better |= rc == 0 && moved;
	}
	return rc;
}

/* One tensor of each set, hot sets first: sets change while they are visited, tensors do not. */
static int visit_order(struct choices *s, uint32_t *order, uint32_t *n, struct pl_err *err)
{
	int rc = pl_search_worker_show(s->search, &s->now->head, err);

	*n = 0;
	if (rc < 0 || (rc = pl_rewrite_hot(s->search->worker[0].r, s->hot, NULL, err)) < 0)
		return rc;
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t a = 0; a < s->now->b.n_sets; a++) {
			const uint32_t *v = pl_search_set_members(s, a);
			bool hot = false;

			for (uint32_t i = 0; i < pl_search_set_size(s, a); i++)
				hot |= s->hot[v[i]];
			if (hot == !pass)
				order[(*n)++] = v[0];
		}
	}
	return 0;
}

/* Try priorities, also with all buckets in parts that can be interrupted; or no priorities. */
static void add_urgent(struct choices *s)
{
	for (uint32_t k = 1; s->priority && k <= PARTS; k *= 2) {
		struct bucket_choice *c;

		if (k > 1 && (!s->o->partition || s->now->urgent))
			break;
		c = pl_search_batch_add(s, s->now);
		c->urgent = !s->now->urgent;
		for (uint32_t i = 0; i < c->b.n_sets && k > 1; i++)
			c->b.parts[i] = k;
		c->ordered = false;
		pl_search_cand_number(s, c);
	}
}

static int all_at_once(struct choices *s, bool *better, struct pl_err *err)
{
	pl_search_choice_clear(s);
	add_urgent(s);
	for (unsigned algo = PL_ALGO_RING; algo < pl_search_algos(s); algo++)
		set_algo(s, PL_NONE, algo);
	return take_best(s, false, better, err);
}

int pl_search_steepest(struct choices *s, struct pl_err *err)
{
	bool moved = true;
	int rc = 0;

	while (rc == 0 && moved && s->n <= FEW && !pl_search_over(s->search)) {
		pl_search_choice_clear(s);
		for (uint32_t a = 0; a < s->now->b.n_sets; a++)
			neighbours(s, a);
		rc = take_best(s, true, &moved, err);
	}
	return rc;
}

/* Was a candidate simulated in one step only since the last call? */
static bool was_probed(struct search *all)
{
	bool any = false;

	for (uint32_t i = 0; i < all->n_workers; i++) {
		any |= all->worker[i].probed;
		all->worker[i].probed = false;
	}
	return any;
}

int pl_search_choice_improve(struct choices *s, struct pl_err *err)
{
	struct search *all = s->search;
	uint32_t *order, n;
	bool better = true, some = true;
	int rc = pl_alloc(&order, s->n ? s->n : 1, sizeof(*order), err);

	while (rc == 0 && better && !pl_search_over(all)) {
		better = false;
		was_probed(all);
		PL_TRY(all_at_once(s, &better, err));
		PL_TRY(visit_order(s, order, &n, err));
		for (uint32_t i = 0; i < n && !pl_search_over(all); i++)
			PL_TRY(visit(s, order[i], some, &better, err));
		some = better || all->swept || !was_probed(all);
		better |= !some;
		all->swept |= !better && !pl_search_over(all);
	}
out:
	pl_free(order);
	return rc;
}

/* ---- annealing ------------------------------------------------------------------------------- */

static uint32_t below(struct choices *s, uint32_t n)
{
	return (uint32_t)(pl_rng_next(&s->rng) % n);
}

/* Make a random change; it may add no candidate. */
static void random_change(struct choices *s)
{
	uint32_t a = below(s, s->now->b.n_sets), n = pl_search_set_size(s, a);
	uint32_t k = 1 + below(s, n), b = below(s, 2) ? a + 1 : a - 1;

	switch (below(s, 8)) {
	case 0:
	case 1:
		shift(s, a, b == a + 1, k, b);
		break;
	case 2:
		shift(s, a, true, n, b);
		break;
	case 3:
	case 4:
		part_off(s, a, k == n ? 0 : k, k == n ? 1 : n);
		break;
	case 5:
		shift(s, a, below(s, 2), k, below(s, s->now->b.n_sets));
		break;
	case 6:
		if (below(s, 2))
			swap(s, a, b);
		else
			set_parts(s, a, 1 + below(s, 4));
		break;
	default:
		set_algo(s, a, below(s, algos_of(s, a)));
	}
}

static int walk(struct choices *s, struct pl_err *err)
{
	double heat = s->best->head.mean * 0.02;

	pl_search_choice_move(s, &s->best->head);
	for (int i = 0; i < STEPS && !pl_search_over(s->search); i++, heat *= 0.93) {
		double chance = (double)(pl_rng_next(&s->rng) >> 11) * 0x1p-53;
		const struct candidate *c;
		int rc;

		pl_search_choice_clear(s);
		for (int k = 0; k < WALK; k++)
			random_change(s);
		if ((rc = pl_search_choice_simulate(s, err)) < 0)
			return rc;
		c = best_of(s);
		if (c && isfinite(c->mean) &&
		    (pl_search_cand_better(c, &s->now->head) ||
		     chance < exp((s->now->head.mean - c->mean) / heat)))
			pl_search_choice_move(s, c);
	}
	return 0;
}

/* Restart by annealing until the budget is used up. Without one, end at a local optimum. */
int pl_search_anneal(struct search *all, struct pl_err *err)
{
	struct choices *s = all->choices;
	bool wanted = s->n > 1 && s->o->preset == PL_PRESET_SEARCH &&
		      (s->o->limit_ns || s->o->evaluations);
	int rc = 0;

	while (rc == 0 && wanted && s->best->head.mean > s->search->bound &&
	       !pl_search_over(s->search)) {
		int64_t before = s->search->evaluations;

		rc = walk(s, err);
		if (rc == 0)
			rc = pl_search_choice_improve(s, err);
		wanted = s->search->evaluations > before; /* else nothing can be changed */
	}
	return rc;
}
