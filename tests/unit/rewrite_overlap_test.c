/* Computation and communication that slow one another down, on jobs from tables of layers: against
 * a simulation in small steps of time, written apart. */
#include <math.h>
#include <stdlib.h>

#include "derive/layers.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"
#include "tap.h"

#define MOST 24
#define TICK 0.125 /* ns */

/* 500 ns and 4 bytes a ns; what runs at the same time takes longer: see contend(). */
static struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			     .coll = PL_COLL_ALLREDUCE,
			     .n = 3,
			     .a_ns = 500,
			     .b_ns_per_byte = 0.25 };
static struct pl_cost cost = { .fit = &fit, .n_fits = 1, .overlap = 1 };

/* As cost, without figures of contention. */
static struct pl_fit alone_fit = { .kind = PL_K_COLLECTIVE,
				   .coll = PL_COLL_ALLREDUCE,
				   .n = 3,
				   .a_ns = 500,
				   .b_ns_per_byte = 0.25 };
static const struct pl_cost without = { .fit = &alone_fit, .n_fits = 1, .overlap = 1 };

static void contend(double computation, double transfer)
{
	cost.overlap = computation;
	fit.a_contended_ns = transfer * fit.a_ns;
	fit.b_contended = transfer;
}

static pl_ns transfer(int64_t bytes)
{
	const struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
					.coll = PL_COLL_ALLREDUCE,
					.algo = PL_ALGO_RING,
					.bytes = bytes,
					.n = 3 };

	return pl_cost_transfer(&cost, &c);
}

static pl_ns layer_transfer(void *arg, int64_t bytes, uint32_t n)
{
	(void)arg;
	(void)n;
	return transfer(bytes);
}

struct job {
	struct pl_graph g;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	uint32_t n;
	pl_ns fwd, bwd[MOST]; /* forward: of all layers */
	int64_t bytes[MOST];
};

static void job_fini(struct job *j)
{
	pl_rewrite_free(j->r);
	pl_edit_fini(&j->e);
	pl_sim_free(j->s);
	pl_graph_fini(&j->g);
}

static void job_init(struct job *j, uint64_t seed, const struct pl_cost *c)
{
	struct pl_layers_opts o = { .n_ranks = 3, .transfer = layer_transfer };
	struct pl_buf text = { 0 };
	struct pl_err err = { 0 };
	uint64_t rng = seed;
	struct pl_in *in;
	bool fine;

	memset(j, 0, sizeof(*j));
	pl_graph_init(&j->g);
	j->n = 2 + (uint32_t)(pl_rng_next(&rng) % (MOST - 2));
	fine = !pl_buf_printf(&text, &err,
			      "layer,forward_ns,backward_ns,param_bytes,activation_bytes\n");
	for (uint32_t i = 0; i < j->n; i++) {
		pl_ns fwd = (pl_ns)(pl_rng_next(&rng) % 900) + 50;

		j->fwd += fwd;
		j->bwd[i] = (pl_ns)(pl_rng_next(&rng) % 1900) + 50;
		j->bytes[i] = (int64_t)(pl_rng_next(&rng) % 8000) + 4;
		fine &= !pl_buf_printf(&text, &err, "L%u,%lld,%lld,%lld,100\n", i, (long long)fwd,
				       (long long)j->bwd[i], (long long)j->bytes[i]);
	}
	in = pl_in_open_mem("layers", text.p, text.n, &err);
	fine = fine && in && pl_derive_layers(in, &o, &j->g, &err) >= 0;
	j->s = fine ? pl_sim_new(&j->g, &err) : NULL;
	fine = j->s && pl_sim_edit(j->s, 0, 1, &j->e, &err) >= 0;
	j->r = fine ? pl_rewrite_new(&j->e, c, &err) : NULL;
	pl_in_close(in);
	pl_buf_fini(&text);
	if (!j->r) {
		printf("# %s\n", err.msg);
		exit(1);
	}
}

/* How much of each operation of the backward pass lies beside communication in the table's job: one
 * tensor at a time, in the order in which they are ready. */
static void covered(const struct job *j, const double *dur, double *with)
{
	double ready = (double)j->fwd, channel = 0, from[MOST], to[MOST];

	for (uint32_t i = 0; i < j->n; i++) {
		ready += dur[i];
		from[i] = fmax(ready, channel);
		channel = to[i] = from[i] + (double)transfer(j->bytes[j->n - 1 - i]);
		with[i] = 0;
	}
	for (uint32_t i = 0; i < j->n; i++) {
		double end = (double)j->fwd;

		for (uint32_t k = 0; k <= i; k++)
			end += dur[k];
		for (uint32_t k = 0; k < j->n; k++)
			with[i] += fmax(0, fmin(to[k], end) - fmax(from[k], end - dur[i]));
	}
}

/* The step tick by tick: computation of the backward pass, bare durations in its order, and one
 * channel. */
static double by_ticks(const struct job *j, const double *alone, const uint32_t *set_of,
		       uint32_t n_sets, double f, double g)
{
	double now = (double)j->fwd, done = 0, left = -1;
	uint32_t i = 0, set = 0;

	while (i < j->n || set < n_sets) {
		bool computes = i < j->n;

		if (left < 0 && set < n_sets) { /* are all its tensors there? */
			int64_t bytes = 0;
			bool ready = true;

			for (uint32_t t = 0; t < j->n; t++) {
				if (set_of[t] != set)
					continue;
				ready &= t < i;
				bytes += j->bytes[j->n - 1 - t];
			}
			if (ready)
				left = (double)transfer(bytes);
		}
		if (computes) {
			done += TICK / (left >= 0 ? f : 1);
			if (done >= alone[i] - 1e-9)
				done -= alone[i++];
		}
		if (left >= 0) {
			left -= TICK / (computes ? g : 1);
			if (left <= 1e-9) {
				left = -1;
				set++;
			}
		}
		now += TICK;
	}
	return now;
}

static uint32_t random_sets(uint64_t *rng, uint32_t n, uint32_t *set_of)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < n; i++) {
		set_of[i] = set;
		set += i + 1 < n && pl_rng_next(rng) % 3 == 0;
	}
	return set + 1;
}

static double step_of(struct job *j, const uint32_t *set_of, uint32_t n_sets)
{
	struct pl_err err = { 0 };

	if (pl_rewrite_bucketing(j->r, &(struct pl_bucketing){ .n_sets = n_sets, .set_of = set_of },
				 &err) < 0 ||
	    pl_edit_settle(&j->e, &err) < 0) {
		printf("# %s\n", err.msg);
		return NAN;
	}
	return pl_edit_mean_step(&j->e);
}

static void against_ticks(void)
{
	double worst = 0, change = 0;
	uint64_t rng = 3;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint32_t set_of[MOST], n_sets;
		double alone[MOST], lost[MOST], now, want;
		struct job j;

		const double slows = 1 + (double)(seed % 5) / 4;
		const double slowed = 1 + (double)(seed % 7) / 6;

		contend(slows, slowed);
		job_init(&j, seed, &cost);
		for (uint32_t i = 0; i < j.n; i++)
			alone[i] = (double)j.bwd[j.n - 1 - i];
		/* recorded: one at a time, with what was lost in the table's durations */
		covered(&j, alone, lost);
		for (uint32_t i = 0; i < j.n; i++)
			alone[i] -= round(lost[i] * (1 - 1 / slows));
		n_sets = random_sets(&rng, j.n, set_of);
		now = step_of(&j, set_of, n_sets);
		want = by_ticks(&j, alone, set_of, n_sets, slows, slowed);
		worst = fmax(worst, fabs(now - want));
		if (!(fabs(now - want) <= 3 * TICK * MOST))
			printf("# seed %d: %g, want %g\n", (int)seed, now, want);
		contend(1, 1);
		change = fmax(change, fabs(want / by_ticks(&j, alone, set_of, n_sets, 1, 1) - 1));
		job_fini(&j);
	}
	ok(worst <= 3 * TICK * MOST, "60 jobs, as simulated tick by tick");
	ok(change > 0.1, "which it changes by more than a tenth");
	printf("# %g ns off at worst, up to %.0f %% changed\n", worst, 100 * change);
}

/* ---- operations changed, too ----------------------------------------------------------------- */

enum change { FASTER, FUSED, PARTS, CHANGES };

static const char *const changed[CHANGES] = {
	"computation twice as fast",
	"neighbours fused",
	"a batch in four parts",
};

/* The change as a line of a plan; bare durations as it makes them, and what comes before the last
 * part of the batch. */
static double change_alone(const struct job *j, enum change what, double *alone,
			   struct pl_rewrite *rw)
{
	static const char *arg[2];
	static char name[2][32];
	double before = 0, sum = (double)j->fwd;

	*rw = (struct pl_rewrite){ .op = PL_RW_SPEED, .x = 2 };
	for (uint32_t i = 0; i < j->n; i++)
		sum += alone[i];
	if (what == FUSED) { /* the first two of the backward pass */
		*rw = (struct pl_rewrite){ .op = PL_RW_FUSE_OPS, .arg = arg, .n_args = 2 };
		for (uint32_t i = 0; i < 2; i++) {
			snprintf(name[i], sizeof(name[i]), "backward L%u", j->n - 1 - i);
			arg[i] = name[i];
		}
		alone[0] += alone[1];
		alone[1] = 0;
		return 0;
	}
	if (what == PARTS) {
		*rw = (struct pl_rewrite){ .op = PL_RW_ACCUMULATE, .k = 4 };
		before = sum * 3 / 4;
	}
	for (uint32_t i = 0; i < j->n; i++)
		alone[i] /= what == PARTS ? 4 : 2;
	return before;
}

static double changed_step(struct job *j, const struct pl_rewrite *rw, const uint32_t *set_of,
			   uint32_t n_sets)
{
	struct pl_err err = { 0 };

	if (pl_rewrite(j->r, rw, &err) < 0) {
		printf("# %s\n", err.msg);
		return NAN;
	}
	return step_of(j, set_of, n_sets);
}

static void with_changes(enum change what)
{
	double worst = 0;
	uint64_t rng = 5;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		uint32_t set_of[MOST], n_sets;
		double alone[MOST], lost[MOST], now, want;
		struct pl_rewrite rw;
		struct job j;
		pl_ns fwd;

		const double slows = 1.25 + (double)(seed % 4) / 4;
		const double slowed = 1 + (double)(seed % 3) / 4;

		contend(slows, slowed);
		job_init(&j, seed, &cost);
		for (uint32_t i = 0; i < j.n; i++)
			alone[i] = (double)j.bwd[j.n - 1 - i];
		covered(&j, alone, lost);
		for (uint32_t i = 0; i < j.n; i++)
			alone[i] -= round(lost[i] * (1 - 1 / slows));
		want = change_alone(&j, what, alone, &rw);
		fwd = j.fwd;
		j.fwd = what == FASTER ? fwd / 2 : what == PARTS ? fwd / 4 : fwd;
		n_sets = random_sets(&rng, j.n, set_of);
		want += by_ticks(&j, alone, set_of, n_sets, slows, slowed);
		j.fwd = fwd;
		now = changed_step(&j, &rw, set_of, n_sets);
		worst = fmax(worst, fabs(now / want - 1));
		if (!(fabs(now / want - 1) < 0.004))
			printf("# seed %d: %g, want %g\n", (int)seed, now, want);
		job_fini(&j);
	}
	ok(worst < 0.004, "40 jobs, %s: as simulated tick by tick", changed[what]);
	printf("# %.2f %% off at worst\n", 100 * worst);
}

static void path_and_undo(void)
{
	bool same = true, back = true, like = true;
	uint64_t rng = 9;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		uint32_t a[MOST], b[MOST], n_a, n_b;
		double before, first, second;
		struct job j, plain;
		size_t mark;

		contend(1.6, 1.3);
		job_init(&j, seed, &cost);
		n_a = random_sets(&rng, j.n, a);
		n_b = random_sets(&rng, j.n, b);
		before = pl_edit_mean_step(&j.e);
		mark = pl_rewrite_mark(j.r);
		first = step_of(&j, a, n_a);
		pl_rewrite_undo(j.r, mark);
		back &= pl_edit_mean_step(&j.e) == before;
		step_of(&j, b, n_b);
		second = step_of(&j, a, n_a);
		same &= first == second;
		job_fini(&j);

		contend(1, 1);
		job_init(&j, seed, &cost);
		job_init(&plain, seed, &without);
		like &= step_of(&j, a, n_a) == step_of(&plain, a, n_a) &&
			j.e.n_nodes == plain.e.n_nodes && j.e.n_edges == plain.e.n_edges;
		job_fini(&plain);
		job_fini(&j);
	}
	ok(same, "the step depends on the plan, not on what was simulated before");
	ok(back, "undone, everything is as recorded");
	ok(like, "factors of 1: node for node as without");
}

int main(void)
{
	against_ticks();
	path_and_undo();
	for (int i = 0; i < CHANGES; i++)
		with_changes((enum change)i);
	return done_testing();
}
