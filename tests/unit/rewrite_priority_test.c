/*
 * Priorities, on a step that begins with the backward pass and ends with the next forward pass,
 * whose layers wait for their own gradients alone: against a channel simulated part by part here;
 * and searched.
 */
#include <math.h>

#include "cost/expand.h"
#include "priority_fixture.h"
#include "search/search.h"

/* Several plans, some on what the one before left, some undone: the step, and the same by a full
 * pass. Parts said again count; that there are none cannot be said again. */
static bool follows(struct turned *x, uint64_t seed, struct pl_err *err)
{
	uint32_t urgent[MOST], parts[MOST];
	pl_ns before = pl_edit_step(&x->e, 0);
	bool right = true;

	for (int round = 0; round < 6 && right; round++) {
		size_t mark = pl_rewrite_mark(x->r);
		struct pl_edit copy;
		struct pl_plan p;

		shuffle(&seed, x->n, urgent);
		for (uint32_t i = 0; i < x->n; i++)
			parts[i] = (mark > 1) + 1 + (uint32_t)(pl_rng_next(&seed) % 4);
		pl_plan_init(&p);
		right = plan_of(x, urgent, parts, &p, err) == 0 &&
			pl_rewrite_plan(x->r, &p, err) == 0 &&
			pl_edit_step(&x->e, 0) == expected(x, urgent, parts);
		if (right && pl_edit_dup(&x->e, &copy, err) == 0) {
			right = pl_edit_settle_full(&copy, err) == 0 &&
				pl_edit_step(&copy, 0) == pl_edit_step(&x->e, 0);
			pl_edit_fini(&copy);
		}
		pl_plan_fini(&p);
		if (round % 3 == 1)
			pl_rewrite_undo(x->r, mark);
	}
	pl_rewrite_undo(x->r, 1);
	return right && pl_edit_settle(&x->e, err) == 0 && pl_edit_step(&x->e, 0) == before;
}

static void test_exact(void)
{
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct pl_err err = { 0 };
		struct turned x;

		if (turned_init(&x, seed, SEPARATE, &err))
			right += follows(&x, seed, &err);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		turned_fini(&x);
	}
	is_i64(right, total, "the step as a channel simulated part by part has it, and undone");
}

/* ---- contention and priorities --------------------------------------------------------------- */

#define TICK 0.125 /* ns */

/* How much of a backward operation lies beside the recorded communication of its rank. */
static double covered(const struct turned *x, uint32_t node)
{
	const struct pl_shape *s = &x->j.g.shape[0];
	const struct pl_gstep *st = &x->j.g.step[0];
	pl_ns sum = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (s->role[i] == PL_RO_TRANSFER && s->res[i] == s->res[node] + 1)
			sum += pl_max_i64(0, pl_min_i64(st->start[i] + st->dur[i],
							st->start[node] + st->dur[node]) -
						     pl_max_i64(st->start[i], st->start[node]));
	return (double)sum;
}

/* Durations of the backward pass of each rank in its order, had it lost nothing. */
static void without_losses(const struct turned *x, double slows, double alone[RANKS][MOST])
{
	const struct pl_shape *s = &x->j.g.shape[0];
	uint32_t n[RANKS] = { 0 };

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		uint32_t k = s->res[i] / 2;

		if (s->role[i] != PL_RO_COMPUTE || n[k] == x->n)
			continue;
		alone[k][n[k]++] =
			(double)x->j.g.step[0].dur[i] - round(covered(x, i) * (1 - 1 / slows));
	}
}

/* One of the parts of a layer's transfer. */
static double part_of(const struct turned *x, uint32_t layer, uint32_t parts)
{
	const struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
					.coll = PL_COLL_ALLREDUCE,
					.algo = PL_ALGO_RING,
					.n = RANKS,
					.bytes = x->bytes[layer],
					.parts = parts };

	return (double)pl_cost_transfer(&cost, &c) / parts;
}

struct ticking { /* a step, tick by tick */
	const struct turned *x;
	double now, done[RANKS], end[MOST], wall[RANKS];
	uint32_t at[RANKS], sent[MOST];
};

/* The layer whose part goes next, MOST: none is ready. */
static uint32_t next_part(const struct ticking *t, const uint32_t *urgent, const uint32_t *parts)
{
	uint32_t best = MOST;

	for (uint32_t i = 0; i < t->x->n; i++) {
		bool ready = t->sent[i] < parts[i];

		for (uint32_t k = 0; k < RANKS; k++)
			ready &= t->at[k] > t->x->n - 1 - i;
		if (ready && (best == MOST || urgent[i] < urgent[best]))
			best = i;
	}
	return best;
}

static double by_ticks(const struct turned *x, double alone[RANKS][MOST], const uint32_t *urgent,
		       const uint32_t *parts, double f, double g)
{
	struct ticking t = { .x = x };
	uint32_t sending = MOST, unsent = x->n;
	double left = 0, forward = 0;

	while (unsent) {
		bool computes = false;

		if (sending == MOST && (sending = next_part(&t, urgent, parts)) != MOST)
			left = part_of(x, sending, parts[sending]);
		for (uint32_t k = 0; k < RANKS; k++) {
			if (t.at[k] == x->n)
				continue;
			computes = true;
			t.done[k] += TICK / (sending != MOST ? f : 1);
			if (t.done[k] >= alone[k][t.at[k]] - 1e-9)
				t.done[k] -= alone[k][t.at[k]++];
			t.wall[k] = t.now + TICK;
		}
		left -= TICK / (computes ? g : 1);
		t.now += TICK;
		if (sending == MOST || left > 1e-9)
			continue;
		if (++t.sent[sending] == parts[sending]) {
			t.end[sending] = t.now;
			unsent--;
		}
		sending = MOST;
	}
	for (uint32_t k = 0; k < RANKS; k++) {
		double at = t.wall[k];

		for (uint32_t i = 0; i < x->n; i++)
			at = fmax(at, t.end[i]) + (double)x->fwd[i];
		forward = fmax(forward, at);
	}
	return forward;
}

static void test_contended(void)
{
	double worst = 0, change = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		const double slows = 1.25 + (double)(seed % 5) / 4;
		const double slowed = 1 + (double)(seed % 7) / 6;
		uint32_t urgent[MOST], parts[MOST];
		double alone[RANKS][MOST], want, now = NAN;
		struct pl_err err = { 0 };
		uint64_t rng = seed;
		struct turned x;
		struct pl_plan p;

		pl_plan_init(&p);
		contend(slows, slowed);
		if (turned_init(&x, seed, SEPARATE, &err)) {
			without_losses(&x, slows, alone);
			shuffle(&rng, x.n, urgent);
			for (uint32_t i = 0; i < x.n; i++)
				parts[i] = 1 + (uint32_t)(pl_rng_next(&rng) % 4);
			if (plan_of(&x, urgent, parts, &p, &err) == 0 &&
			    pl_rewrite_plan(x.r, &p, &err) == 0)
				now = (double)pl_edit_step(&x.e, 0);
			want = by_ticks(&x, alone, urgent, parts, slows, slowed);
			if (!(fabs(now - want) <= 4 * MOST * TICK + LAYERS))
				printf("# seed %d: %g, want %g %s\n", (int)seed, now, want,
				       err.msg);
			worst = fmax(worst, isnan(now) ? INFINITY : fabs(now - want));
			change = fmax(change,
				      fabs(want / by_ticks(&x, alone, urgent, parts, 1, 1) - 1));
		}
		pl_plan_fini(&p);
		turned_fini(&x);
	}
	contend(1, 1);
	ok(worst <= 4 * MOST * TICK + LAYERS,
	   "contention and priorities at a time, as simulated tick by tick (%g ns off at worst)",
	   worst);
	ok(change > 0.1, "which contention changes by more than a tenth");
}

/* ---- refused, and searched ------------------------------------------------------------------- */

static void test_refused(void)
{
	const uint32_t urgent[] = { 1, 2, 3, 4, 5, 6, 7 }, parts[] = { 1, 1, 1, 1, 1, 1, 1 };
	struct pl_err err = { 0 };
	struct turned x;
	struct pl_plan p;

	pl_plan_init(&p);
	ok(turned_init(&x, 4, TOGETHER, &err) && !pl_rewrite_needs_differ(x.r),
	   "a job whose every layer waits for all (%s)", err.msg);
	ok(plan_of(&x, urgent, parts, &p, &err) == 0 &&
		   pl_rewrite_plan(x.r, &p, &err) == PL_EDATA &&
		   strstr(err.msg, "waits for all of them"),
	   "has no use for priorities: %s", err.msg);
	pl_plan_fini(&p);
	turned_fini(&x);
}

/* ---- message by message ---------------------------------------------------------------------- */

/* Transfers of a rendezvous on one resource, of its first rank. */
static uint32_t transfers_of(const struct pl_edit *e, uint32_t meet)
{
	uint32_t n = 0, res = PL_NONE;

	for (uint32_t x = e->node[meet].out; x != PL_NONE; x = e->edge[x].out_next) {
		const struct pl_enode *t = &e->node[e->edge[x].dst];

		if (t->role != PL_RO_TRANSFER)
			continue;
		res = res == PL_NONE ? t->res : res;
		n += t->res == res;
	}
	return n;
}

/* What gives way stays as it is, as long as it was; *n: how many do. */
static bool stays(struct turned *x, uint64_t seed, uint32_t *n, struct pl_err *err)
{
	struct pl_expand_all all = { .algo = PL_ALGO_RING, .recorded = true };
	struct pl_expanded done = { 0 };
	struct pl_topology topo = { 0 };
	uint32_t urgent[MOST], parts[MOST], name;
	pl_ns dur[MAX_NODES] = { 0 };
	struct pl_plan p;
	bool right;

	shuffle(&seed, x->n, urgent);
	for (uint32_t i = 0; i < x->n; i++)
		parts[i] = 4;
	pl_plan_init(&p);
	*n = 0;
	right = plan_of(x, urgent, parts, &p, err) == 0 && pl_rewrite_plan(x->r, &p, err) == 0 &&
		x->e.n_nodes <= MAX_NODES && pl_topology_parse("1x2", &topo, err) == 0;
	right = right && pl_edit_add_name(&x->e, "allreduce", &name, err) == 0;
	for (uint32_t i = 0; right && i < x->e.n_nodes; i++) {
		if (x->e.node[i].type == PL_N_RENDEZVOUS) {
			x->e.node[i].name = name;
			x->e.node[i].bytes = 1000;
		}
		dur[i] = x->e.node[i].dur;
		*n += !x->e.node[i].dead && x->e.node[i].type == PL_N_RENDEZVOUS &&
		      transfers_of(&x->e, i) > 1;
	}
	all.topo = &topo;
	right = right && pl_cost_expand_all(&x->e, &all, &done, err) == 0 && done.left == *n &&
		done.left + done.collectives == x->n;
	for (uint32_t i = 0; right && i < x->e.n_nodes && i < MAX_NODES; i++)
		for (uint32_t k = x->e.node[i].out;
		     x->e.node[i].type == PL_N_RENDEZVOUS && k != PL_NONE;
		     k = x->e.edge[k].out_next)
			right &= x->e.node[x->e.edge[k].dst].dur == dur[x->e.edge[k].dst];
	pl_plan_fini(&p);
	pl_topology_fini(&topo);
	return right;
}

static void test_expanded(void)
{
	uint32_t some = 0, n;
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= 40; seed++, total++) {
		struct pl_err err = { 0 };
		struct turned x;

		if (turned_init(&x, seed, SEPARATE, &err)) {
			right += stays(&x, seed, &n, &err);
			some += n;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		turned_fini(&x);
	}
	is_i64(right, total, "message by message, what gives way stays as it is");
	ok(some > 20, "... which %u do", some);
}

static double searched(struct turned *x, const struct pl_search_opts *o, bool *urgent,
		       struct pl_err *err)
{
	struct pl_cost fitted;
	struct pl_rewriter *r = NULL;
	struct pl_plan p;
	double mean = INFINITY;

	pl_plan_init(&p);
	*urgent = false;
	if (pl_cost_fit(&x->j.g, NULL, &fitted, err) < 0)
		return mean;
	if (pl_search(&x->j.g, &fitted, o, &p, err) == 0) {
		mean = (double)p.model_ns;
		r = pl_rewrite_new(&x->e, &fitted, err);
	}
	if (r && p.n_rw &&
	    (pl_rewrite_plan(r, &p, err) < 0 || fabs(pl_edit_mean_step(&x->e) - mean) > 1))
		mean = NAN; /* not what it says it is */
	for (size_t i = 0; i < p.n_rw; i++)
		*urgent |= p.rw[i].op == PL_RW_PRIORITY;
	if (r)
		pl_rewrite_undo(r, 1);
	pl_rewrite_free(r);
	pl_plan_fini(&p);
	pl_cost_fini(&fitted);
	return pl_edit_settle(&x->e, err) == 0 ? mean : NAN;
}

static void test_search(void)
{
	int worse = 0, shorter = 0, lines = 0, total = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct pl_search_opts o = { .seed = 1, .partition = true };
		struct pl_err err = { 0 };
		struct turned x;
		double with, without;
		bool urgent, none;

		if (!turned_init(&x, seed, SEPARATE, &err)) {
			ok(false, "seed %d: %s", (int)seed, err.msg);
			turned_fini(&x);
			continue;
		}
		without = searched(&x, &o, &none, &err);
		o.priority = true;
		with = searched(&x, &o, &urgent, &err);
		worse += !(with <= without) || none;
		shorter += with < without;
		lines += urgent == (with < without);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		turned_fini(&x);
	}
	is_i64(worse, 0, "a search with priorities is never worse than without");
	ok(shorter > total / 3, "shorter in %d of %d", shorter, total);
	is_i64(lines, total, "they are proposed where they help, and only there");
}

int main(void)
{
	test_exact();
	test_contended();
	test_refused();
	test_expanded();
	test_search();
	return done_testing();
}
