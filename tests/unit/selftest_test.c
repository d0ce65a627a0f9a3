/*
 * The self-test of a graph: small graphs whose answers can be computed by hand.
 *
 * Two ranks have four steps. Rank 0 receives for 100 ns and computes for 100 ns in each step, rank
 * 1 computes for 200 ns. If rank 1 waits for nothing and nothing waits for it, rank 0 alone runs
 * ahead when its receives are removed. Then step k is 200 + 100 k ns long, and the mean of four is
 * 350 ns.
 */
#include <math.h>
#include <stdlib.h>

#include "sim/selftest.h"
#include "sim_fixture.h"

#define STEPS 4

/* Nodes of a step; the entries come first. */
enum { ENTRY0, ENTRY1, MARK0, MARK1, ARRIVE0, ARRIVE1, MEET, TRANSFER0, TRANSFER1, WORK0, WORK1 };

static void node(struct job *j, struct pl_shape *s, uint8_t type, uint8_t role, uint8_t kind,
		 pl_id res, uint32_t after, uint32_t meet)
{
	uint32_t i = add_node(s, type, role, kind, res, j->name[role == PL_RO_GAP ? 5 : 0]);

	add_edge(s, after, PL_E_SEQ);
	add_edge(s, meet, PL_E_COMM);
	if (role == PL_RO_MARK)
		s->flags[i] |= PL_NF_STEP_BEGIN;
}

/* joined: both ranks meet in a communication; else each has its own, without a partner */
static int make(struct job *j, bool joined, uint8_t work, pl_ns scale, struct pl_err *err)
{
	const pl_ns dur[] = { 0, 0, 0, 0, 0, 0, 0, 100, joined ? 100 : 0, 100, joined ? 100 : 200 };
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	int rc;

	*j = (struct job){ .ranks = 2, .per_rank = 1 };
	PL_TRY(job_tables(j, err));
	PL_TRY(pl_alloc(&g->shape, 1, sizeof(*g->shape), err));
	g->n_shapes = g->cap_shapes = 1;
	s = g->shape;
	PL_TRY(shape_arrays(s, err));
	for (pl_id r = 0; r < 2; r++)
		node(j, s, PL_N_ENTRY, PL_RO_NONE, 0, r, PL_NONE, PL_NONE);
	s->n_entries = s->n_nodes;
	for (pl_id r = 0; r < 2; r++)
		node(j, s, PL_N_OP, PL_RO_MARK, PL_K_STEP, r, ENTRY0 + r, PL_NONE);
	for (pl_id r = 0; r < 2; r++)
		node(j, s, PL_N_OP, PL_RO_ARRIVE, PL_K_RECV, r, MARK0 + r, PL_NONE);
	node(j, s, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_RECV, PL_NONE, PL_NONE,
	     joined ? ARRIVE0 : MARK0);
	if (joined)
		add_edge(s, ARRIVE1, PL_E_COMM);
	for (pl_id r = 0; r < 2; r++) {
		node(j, s, PL_N_OP, PL_RO_TRANSFER, PL_K_RECV, r, ARRIVE0 + r,
		     joined ? MEET : PL_NONE);
		if (!joined && r) /* the other one is told by its edges */
			s->flags[TRANSFER0 + r] |= PL_NF_MISSING;
	}
	for (pl_id r = 0; r < 2; r++)
		node(j, s, PL_N_OP, work, PL_K_HOST_OP, r, TRANSFER0 + r, PL_NONE);
	PL_TRY(pl_alloc(&g->step, STEPS, sizeof(*g->step), err));
	g->n_steps = g->cap_steps = STEPS;
	for (int k = 0; k < STEPS; k++) {
		struct pl_gstep *st = &g->step[k];

		st->number = k;
		PL_TRY(pl_alloc(&st->start, s->n_nodes, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&st->dur, s->n_nodes, sizeof(pl_ns), err));
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			st->dur[i] = scale * dur[i];
			st->start[i] =
				scale *
				(200 * k + (i >= WORK0 && st->dur[i] == 100 * scale ? 100 : 0));
		}
	}
	rc = pl_graph_valid(g, err) ? 0 : err->code;
out:
	return rc;
}

static void free_job(struct job *j, struct pl_sim *s)
{
	pl_sim_free(s);
	pl_graph_fini(&j->g);
}

static void test_classes(bool joined)
{
	struct pl_selftest_try v[20];
	struct pl_err err = { 0 };
	struct pl_selftest_ranks x;
	double mean = 0, without = 0;
	size_t n = 0, bad = 0;
	struct pl_selftest *t = NULL;
	struct pl_sim *s = NULL;
	struct job j;

	if (make(&j, joined, PL_RO_COMPUTE, 1, &err) == 0 && (s = pl_sim_new(&j.g, &err)) &&
	    pl_sim_mean(s, &mean, &err) == 0) {
		n = pl_selftest_usual(&j.g, v, PL_LEN(v));
		if (pl_selftest_run(s, v, n, &err) < 0)
			n = 0;
	}
	ok(n == 8 && mean == 200, "%zu tests of a graph without phases: %s", n, err.msg);
	for (size_t i = 0; i < n; i++) {
		bad += pl_selftest_contradicts(v[i].factor, mean, v[i].mean);
		if (!strcmp(v[i].what, "remove kind=comm"))
			without = v[i].mean;
	}
	ok(without == (joined ? 100 : 350), "without communication a step takes %g ns", without);
	ok(joined ? !bad : bad > 0, "%zu contradictions if ranks are %sjoined", bad,
	   joined ? "" : "not ");
	if (pl_selftest_new(&j.g, &t, &err) == 0)
		pl_selftest_ranks(t, &x);
	ok(t && x.joined == joined && x.comms == 2 * STEPS && x.p2p == 2 * STEPS &&
		   x.p2p_alone == (joined ? 0 : 2 * STEPS) && x.comms_alone == x.p2p_alone,
	   "communication of %s ranks", joined ? "joined" : "separate");
	pl_selftest_free(t);
	free_job(&j, s);
}

static void test_margin(void)
{
	ok(!pl_selftest_contradicts(0, 1000, 1019) && pl_selftest_contradicts(0.5F, 1000, 1021),
	   "a little longer may be an overlap of steps");
	ok(!pl_selftest_contradicts(2, 1000, 981) && pl_selftest_contradicts(2, 1000, 979),
	   "... and a little shorter");
	ok(!pl_selftest_contradicts(2, 1000, 3000) && !pl_selftest_contradicts(0, 1000, 0) &&
		   !pl_selftest_contradicts(1, 1000, 2000),
	   "the right direction is none");
}

/* Communication takes `times` as long. */
static int lengthen(const struct pl_graph *g, double times, struct pl_sim *s, struct pl_err *err)
{
	double ns[64];

	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = 0; i < sh->n_nodes && i < PL_LEN(ns); i++)
			ns[i] = (double)g->step[k].dur[i] *
				(sh->role[i] == PL_RO_TRANSFER ? times : 1);
		PL_CHECK(pl_sim_set_durations(s, k, ns, err));
	}
	return 0;
}

static void find_changed_path(struct job *j, double times, struct pl_selftest_path *out,
			      struct pl_err *err)
{
	struct pl_sim *s = pl_sim_new(&j->g, err);
	struct pl_selftest *t = NULL;
	struct pl_path path = { 0 };
	struct pl_run run = { 0 };

	if (s && pl_selftest_new(&j->g, &t, err) == 0 && lengthen(&j->g, times, s, err) == 0 &&
	    pl_sim_run(s, &run, err) == 0 && pl_sim_path_find(s, &run, &path, err) == 0)
		pl_selftest_path(t, &path, out);
	else
		printf("# %s\n", err->msg);
	pl_selftest_free(t);
	pl_sim_path_fini(&path);
	pl_sim_run_fini(&run);
	pl_sim_free(s);
}

static void find_path(struct job *j, struct pl_selftest_path *out, struct pl_err *err)
{
	find_changed_path(j, 1, out, err);
}

/* All of the path of 4 x 200 units is one of the kinds of doubtful time, or none. */
static void test_path(void)
{
	struct pl_selftest_path p = { 0 };
	struct pl_err err = { 0 };
	pl_ns idle = 0;
	struct job j;

	ok(make(&j, false, PL_RO_COMPUTE, 1, &err) == 0, "made: %s", err.msg);
	find_path(&j, &p, &err);
	ok(p.length == 800 && !p.unexplained && !p.idle && !p.unrecorded && !p.inferred &&
		   (p.alone == 400 || !p.alone),
	   "computation is not doubtful");
	j.g.shape[0].flags[WORK0] |= PL_NF_INFERRED;
	j.g.shape[0].flags[WORK1] |= PL_NF_INFERRED;
	find_path(&j, &p, &err);
	is_i64(p.inferred + p.alone, 800, "what was inferred, and what has no partner, is");
	free_job(&j, NULL);

	ok(make(&j, true, PL_RO_GAP, 20000, &err) == 0, "made: %s", err.msg);
	find_path(&j, &p, &err);
	is_i64(p.unrecorded, STEPS * 2000000, "long gaps of the threads that begin steps");
	for (uint32_t r = 0; r < 2; r++) { /* the path goes along one of both threads */
		j.g.shape[0].flags[MARK0 + r] = PL_NF_IN_STEP;
		find_path(&j, &p, &err);
		idle += p.idle;
		ok(p.idle + p.unrecorded == STEPS * 2000000, "... or of another one");
		j.g.shape[0].flags[MARK0 + r] |= PL_NF_STEP_BEGIN;
	}
	is_i64(idle, STEPS * 2000000, "... which was idle");
	free_job(&j, NULL);

	ok(make(&j, true, PL_RO_GAP, 5000, &err) == 0, "made: %s", err.msg);
	find_path(&j, &p, &err);
	is_i64(p.unrecorded + p.idle, 0, "half a millisecond is what an interpreter may need");
	free_job(&j, NULL);
}

/* A thread of each rank communicates while its first thread "works", which is a wait: both end at
 * the same time, and no edge says so. */
static void test_wait(void)
{
	struct pl_selftest_path p = { 0 };
	struct pl_err err = { 0 };
	struct pl_shape *s;
	struct job j;

	ok(make(&j, true, PL_RO_COMPUTE, 10000, &err) == 0, "made: %s", err.msg);
	find_path(&j, &p, &err);
	is_i64(p.waiting, 0, "work after communication is no wait");
	s = j.g.shape;
	ok(pl_grow(&j.g.res, &j.g.cap_res, 4, sizeof(*j.g.res), &err) == 0, "two more threads");
	for (uint32_t r = 0; r < 2; r++) {
		j.g.res[2 + r] = j.g.res[r];
		s->res[ARRIVE0 + r] = s->res[TRANSFER0 + r] = 2 + r;
	}
	j.g.n_res = 4;
	for (size_t k = 0; k < STEPS; k++)
		for (uint32_t r = 0; r < 2; r++) { /* the transfer lasts until the work ends */
			j.g.step[k].dur[TRANSFER0 + r] = 1990000;
			j.g.step[k].start[WORK0 + r] -= 990000;
			j.g.step[k].dur[WORK0 + r] = 2000000;
			s->src[s->off[WORK0 + r]] = MARK0 + r;
		}
	find_path(&j, &p, &err);
	is_i64(p.waiting, STEPS * 2000000, "an operation that ends with communication may be one");
	free_job(&j, NULL);
}

/* Three of four receives take 100 ns, the last one 1000 ns. Beyond 300 ns it may have waited. */
static void test_slow(void)
{
	struct pl_selftest_path p = { 0 };
	struct pl_err err = { 0 };
	struct job j;

	ok(make(&j, true, PL_RO_COMPUTE, 1, &err) == 0, "made: %s", err.msg);
	find_path(&j, &p, &err);
	is_i64(p.slow, 0, "receives that are alike are not slow");
	for (uint32_t r = 0; r < 2; r++) {
		j.g.step[STEPS - 1].dur[TRANSFER0 + r] = 1000;
		j.g.step[STEPS - 1].start[WORK0 + r] += 900;
	}
	find_path(&j, &p, &err);
	is_i64(p.slow, 700, "one that takes ten times as long is");
	find_changed_path(&j, 3, &p, &err);
	is_i64(p.slow, 2100, "on a network with a third of the bandwidth only this one is slow");
	free_job(&j, NULL);
}

static void test_differences(void)
{
	static const struct {
		double a, b;
		size_t n_a, n_b;
		double half; /* by tables of Student's distribution */
	} rows[] = {
		{ 10, 10, 3, 3, 2.13 * 8.165 }, /* 4 degrees of freedom */
		{ 10, 10, 2, 2, 2.92 * 10 },
		{ 10, 0, 3, 3, 2.92 * 5.774 },	     /* those of the first alone */
		{ 10, 5, 4, 4, 2.081 * 5.590 },	     /* 4.4 degrees */
		{ 10, 10, 100, 100, 1.653 * 1.414 }, /* 198 degrees */
		{ 0, 0, 3, 3, 0 },
	};

	for (size_t i = 0; i < PL_LEN(rows); i++) {
		double half =
			pl_selftest_half_difference(rows[i].a, rows[i].n_a, rows[i].b, rows[i].n_b);

		ok(fabs(half - rows[i].half) <= 0.01 * rows[i].half,
		   "%g of %zu and %g of %zu: +- %g", rows[i].a, rows[i].n_a, rows[i].b, rows[i].n_b,
		   half);
	}
	ok(isnan(pl_selftest_half_difference(1, 1, 1, 5)) &&
		   isnan(pl_selftest_half_difference(1, 5, 1, 1)),
	   "one value does not say it");
	ok(fabs(pl_selftest_half(10, 3) - 2.92 * 10 / sqrt(3)) < 1e-9, "half of one mean");
}

int main(void)
{
	test_differences();
	test_classes(true);
	test_classes(false);
	test_margin();
	test_path();
	test_wait();
	test_slow();
	return done_testing();
}
