/*
 * The limits by which lines of costs are fitted: each with a case on either side, so that twice or
 * half the value fails.
 */
#include "cost/internal.h"
#include "cost_job_fixture.h"

#define N 10

/* ---- lines -------------------------------------------------------------------------------------
 */

/* Points y = shift + x from x = 1000 on, at distance `step`: is the line `l` given up for one with
 * the intercept a? */
static void settles(const char *what, double shift, double step, double a, struct line l, bool yes)
{
	struct pl_err err = { 0 };
	struct point p[N];

	for (int i = 0; i < N; i++)
		p[i] = (struct point){ 1000 + step * i, shift + 1000 + step * i };
	ok(!pl_cost_line_settle(p, N, a, &l, &err) && (l.a == a) == yes, "%s", what);
}

/* The analysis is wrong by 30 % at 2 of 10 points, the line by `error` at all. */
static void bends(const char *what, double error, bool yes)
{
	const struct line l = { .a = 1000 * (1 + error) };
	double z[N], factor = 0;
	struct pl_err err = { 0 };
	struct point p[N];

	for (int i = 0; i < N; i++) {
		p[i] = (struct point){ 1000 + i, 1000 };
		z[i] = i < 2 ? 1300 : 1000;
	}
	ok(!pl_cost_line_shape(p, z, N, &l, &factor, &err) && (factor > 0) == yes, "%s", what);
}

static void lines(void)
{
	const struct line fits = { .a = 100, .b = 1 }, steep = { .a = 600, .b = 1 };

	settles("SEEN: 0.4 of the smallest sample is not seen", 100, 10, 440, fits, true);
	settles("SEEN: 0.7 would be", 100, 10, 770, fits, false);
	settles("WIDE: sizes that differ by a factor of 3 show no intercept", 0, 2000.0 / 9, 0,
		steep, true);
	settles("WIDE: a factor of 5 shows it", 0, 4000.0 / 9, 0, steep, false);
	settles("AGREES: wrong by 4 %", 0, 100, 320, (struct line){ .b = 1 }, true);
	settles("AGREES: 6 % are too much", 0, 100, 490, (struct line){ .b = 1 }, false);
	settles("CLEARLY: 1.5 times as wrong", 0, 300, 400, (struct line){ .b = 1.0462 }, true);
	settles("CLEARLY: 3 times is too much", 0, 300, 400, (struct line){ .b = 1.0231 }, false);
	bends("BENT: 0.6 of the line's error", 0.1, true);
	bends("BENT: 0.9 is not clearly better", 0.0667, false);
}

/* ---- samples of a job --------------------------------------------------------------------------
 */

/* A collective that lasts `dur`; computation of the same thread beside it covers `share` of it. */
static void period(struct jobg *j, pl_ns length, int64_t bytes, double share)
{
	pl_ns dur[RANKS];

	for (int r = 0; r < RANKS; r++)
		dur[r] = length;
	collective(j, 0, 1, j->at += 100000000, dur, bytes, 0);
	for (uint32_t r = 0; r < RANKS && share > 0; r++)
		put(j, PL_N_OP, PL_RO_COMPUTE, PL_K_HOST_OP, 2 * r, 2, j->at,
		    (pl_ns)(share * (double)length), -1);
}

struct job_of {
	int alone;	    /* collectives of 32 MB or fewer, 1 ns for each byte */
	double alone_share; /* of them that computation covers */
	int large, small;   /* of 8 MB and of 2 kB beside computation */
	double slowed;	    /* factor of their bytes' time */
	double share;	    /* of them that computation covers */
};

static struct pl_fit fitted_of(struct job_of x, int most)
{
	struct pl_fit fit = { .n = 0 };
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct pl_cost c;
	struct topo topo;
	struct jobg j;

	job_on_threads(&j, &topo);
	for (int i = 0; i < x.alone; i++) {
		int bytes = most - 1000000 * i;

		period(&j, bytes, bytes, x.alone_share);
	}
	for (int i = 0; i < x.large; i++)
		period(&j, (pl_ns)(8000000 * x.slowed), 8000000, x.share);
	for (int i = 0; i < x.small; i++)
		period(&j, 500000, 2000, x.share);
	if (ok(!fit_job(&j, &topo.t, &c, &err), "fits") && (f = fit_of(&c, PL_COLL_ALLREDUCE)))
		fit = *f;
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
	return fit;
}

static struct pl_fit fitted(struct job_of x)
{
	return fitted_of(x, 32000000);
}

static void one_size(const char *what, int64_t other, bool one)
{
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct topo topo;
	struct pl_cost c;
	struct jobg j;

	make_topo(&topo, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 1, 2000);
	for (int i = 0; i < 12; i++) {
		int64_t bytes = i & 1 ? other : 1000000;

		period(&j, 20000 + bytes, bytes, 0);
	}
	ok(!fit_job(&j, &topo.t, &c, &err) && (f = fit_of(&c, PL_COLL_ALLREDUCE)) &&
		   f->one_size == one,
	   "%s", what);
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Pairs of collectives begin together. They wait `latency` once, and each of them `own`. Is the
 * latency told from the rest? */
static void flights(const char *what, double latency, double own, bool told)
{
	const double b = 8;
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct topo topo;
	struct pl_cost c;
	struct jobg j;

	make_topo(&topo, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 1, 4000);
	for (int i = 0; i < 40; i++) {
		double left = latency;

		for (int n = 0; n < 2; n++) {
			int64_t bytes = 20000 * (1 + (i + 3 * n) % 8);
			pl_ns dur[RANKS];

			left += own + b * (double)bytes;
			for (int r = 0; r < RANKS; r++)
				dur[r] = (pl_ns)left - 1000 * n;
			collective(&j, 0, n, j.at + 1000 * n, dur, bytes, 0);
		}
		j.at += (pl_ns)(2 * left);
	}
	ok(!fit_job(&j, &topo.t, &c, &err) && (f = fit_of(&c, PL_COLL_ALLREDUCE)) &&
		   (f->flight_ns > 0) == told,
	   "%s", what);
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

static void samples(void)
{
	struct pl_fit f;

	/* a collective without the latency takes 720 us in the mean */
	flights("WRONG: the line is wrong by 0.35 of that", 504000, 0, true);
	flights("WRONG: 0.18 do not matter", 259000, 0, false);
	flights("CLEARLY: the share 0.4 of the error remains", 4000000, 800000, true);
	flights("CLEARLY: 0.8 are not clearly better", 4000000, 1600000, false);
	one_size("SAME_SIZE: sizes that differ by 0.8 %", 1008000, true);
	one_size("SAME_SIZE: 1.5 % show a slope", 1015000, false);
	f = fitted((struct job_of){ 4, 0, 2, 0, 2, 1 });
	ok(f.assumed, "ENOUGH: 4 periods alone");
	f = fitted_of((struct job_of){ 2, 0, 2, 0, 2, 1 }, 2000000);
	ok(!f.assumed, "ENOUGH: 2 are too few");
	f = fitted((struct job_of){ 2, 0, 2, 0, 2, 1 });
	/* 16 ms for 8 MB, of which six messages wait for 500 us each */
	ok(f.assumed && near(f.b_contended, 13.0 / 8, 0.01),
	   "... but not in few steps, if they are the largest");
	f = fitted((struct job_of){ 2, 0, 4, 0, 2, 1 });
	ok(f.assumed, "FEW: 6 periods");
	f = fitted((struct job_of){ 2, 0, 16, 0, 2, 1 });
	ok(!f.assumed, "FEW: 18 are more");
	f = fitted((struct job_of){ 8, 0.2, 2, 0, 2, 1 });
	ok(f.assumed, "ALONE: computation beside a fifth of the period");
	f = fitted((struct job_of){ 8, 0.4, 2, 0, 2, 1 });
	ok(!f.assumed, "ALONE: two fifths are too much");
	f = fitted((struct job_of){ 8, 0, 0, 6, 2, 1 });
	ok(!f.assumed, "SMALL: 6 small messages show the wait of each");
	f = fitted((struct job_of){ 8, 0, 0, 3, 2, 1 });
	ok(f.assumed, "SMALL: 3 do not");
	f = fitted((struct job_of){ 8, 0, 8, 8, 2.5, 0.85 });
	ok(near(f.b_contended, 2.4375, 0.01), "OVERLAPPED: computation beside 0.85 of the period");
	f = fitted((struct job_of){ 8, 0, 8, 8, 2.5, 0.6 });
	ok(near(f.b_contended, 1 / (1 - 0.25), 0.01), "OVERLAPPED: 0.6 are too little: as usual");
	f = fitted((struct job_of){ 8, 0, 8, 8, 9, 1 });
	ok(near(f.b_contended, 4, 1e-9), "MUCH: a byte takes at most 4 times as long");
}

/* ---- computation beside communication ----------------------------------------------------------
 */

/* Fits, and ends the job: the factor by which computation is slower beside communication. */
static double slow_down(struct jobg *j, pl_ns *issue)
{
	struct pl_err err = { 0 };
	struct topo topo;
	struct pl_cost c;
	double overlap;

	make_topo(&topo, 1, RANKS, 10, 5000, 10, 5000, false);
	ok(!fit_job(j, &topo.t, &c, &err), "fits");
	overlap = c.overlap;
	if (issue)
		*issue = c.issue_ns;
	pl_cost_fini(&c);
	pl_graph_fini(&j->g);
	return overlap;
}

static void compute(struct jobg *j, uint32_t rank, pl_ns at, double length)
{
	put(j, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * rank, 2, at, (pl_ns)length, -1);
}

static pl_ns next_collective(struct jobg *j)
{
	const pl_ns dur[RANKS] = { 400000, 400000, 400000, 400000 };

	collective(j, 0, 1, j->at += 2000000, dur, 1 << 20, 0);
	return j->at;
}

/* Of 4 operations `overlapped` run beside communication, on another rank each time. */
static double places(uint32_t overlapped)
{
	struct jobg j;

	job_init(&j, 1, 2000);
	for (uint32_t k = 0; k < RANKS; k++) {
		pl_ns at = next_collective(&j);

		for (uint32_t r = 0; r < RANKS; r++) {
			if ((r + k) % RANKS < overlapped)
				compute(&j, r, at + 1000, 150000);
			else
				compute(&j, r, at + 500000, 100000);
		}
	}
	return slow_down(&j, NULL);
}

/* 8 operations alone, whose quartiles are `spread` of the median apart, and 4 beside. */
static double one_name(double spread)
{
	struct jobg j;
	pl_ns at;

	job_init(&j, 1, 2000);
	for (int k = 0; k < 8; k++)
		for (uint32_t r = 0; r < RANKS; r++)
			compute(&j, r, 1000000 * k, 50000 * (1 + spread * (k - 4) / 3.0));
	j.at = 10000000;
	for (int k = 0; k < 4; k++) {
		at = next_collective(&j);
		for (uint32_t r = 0; r < RANKS; r++)
			compute(&j, r, at + 1000, 100000);
	}
	return slow_down(&j, NULL);
}

/* Operations beside communication take 10 % longer, on two ranks more and on two ranks less by
 * `noise` of that; or `slow` times as long. */
static double ranks_differ(double slow, double noise)
{
	struct jobg j;

	job_init(&j, 1, 4000);
	for (int k = 0; k < 8; k++) {
		pl_ns at = next_collective(&j);

		for (uint32_t r = 0; r < RANKS; r++) {
			bool overlapped = k & 1;
			double more = (slow - 1) * (1 + (r & 1 ? noise : -noise));

			compute(&j, r, at + (overlapped ? 1000 : 500000),
				60000 * (1 + (overlapped ? more : 0)));
		}
	}
	return slow_down(&j, NULL);
}

/* A launch of communication within n operations that belong to it. */
static pl_ns issued(int n)
{
	pl_ns at = 0, issue;
	struct jobg j;

	job_init(&j, 1, 2000);
	for (int i = 0; i < n; i++, at += 1000) {
		put(&j, PL_N_OP, PL_RO_HOST, PL_K_HOST_OP, 0, 7, at, 1000, -1);
		if (i)
			tie(&j, j.g.shape[0].n_nodes - 2, PL_E_SEQ);
	}
	put(&j, PL_N_OP, PL_RO_HOST, PL_K_RUNTIME, 0, 5, at, 4000, -1);
	tie(&j, j.g.shape[0].n_nodes - 2, PL_E_SEQ);
	put(&j, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, 1, 0, at + 4000, 0, -1);
	tie(&j, j.g.shape[0].n_nodes - 2, PL_E_LAUNCH);
	slow_down(&j, &issue);
	return issue;
}

static void contention(void)
{
	ok(places(1) > 1.2, "ENOUGH: 3 ranks show what an operation takes alone");
	ok(near(places(2), 1, 1e-9), "ENOUGH: 2 do not");
	ok(one_name(0.2) > 1.5, "ONE: durations of a name that differ by 20 %% are of one thing");
	ok(near(one_name(0.35), 1, 1e-9), "ONE: 35 %% are too much");
	ok(ranks_differ(1.1, 0.577) > 1.05, "CLEAR: slower by three standard errors");
	ok(near(ranks_differ(1.1, 1.155), 1, 1e-9), "CLEAR: 1.5 may be chance");
	ok(near(ranks_differ(5, 0), 2, 1e-9), "MOST: computation loses half of its time at most");
	is_i64(issued(6), 10000, "WRAPPED: the launch and 6 operations around it");
	is_i64(issued(12), 12000, "WRAPPED: 8 of 12");
}

/* Threads that a message wakes: the latency of a link on which nothing is known. Recorded links are
 * those of run(1), which sends 256 KiB at most in a message. */
static void wakes(void)
{
	struct pl_err err = { 0 };
	struct topo topo;
	struct pl_cost c;
	struct jobg j;

	job_on_threads(&j, &topo);
	period(&j, 500000, 2000, 0);
	ok(!fit_job(&j, NULL, &c, &err) && c.topo.n_links > 0, "a job without a topology");
	is_i64(c.topo.n_links ? c.topo.link[0].latency_ns : 0, 70000, "WAKE_NS");
	is_i64(c.topo.message_bytes, 0, "messages of any size without recorded links");
	pl_cost_fini(&c);
	if (pl_alloc(&j.g.link, 1, sizeof(*j.g.link), &err) < 0)
		exit(1);
	j.g.link[0] = (struct pl_link){ .from = 0, .to = 2, .bytes_per_ns = 1, .latency_ns = 1 };
	j.g.n_links = 1;
	ok(!fit_job(&j, NULL, &c, &err), "with a recorded link (%s)", err.msg);
	is_i64(c.topo.message_bytes, 262144, "MESSAGE");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Of four ranks whose communication threads carry, one loses 0.6 of its time beside it, and the
 * others lose nothing: the share is 0.15 with a standard error of 0.15. */
static void uncertain(void)
{
	const double weight = 0.125 * 0.125 / (0.125 * 0.125 + 0.15 * 0.15);
	pl_ns dur[RANKS] = { 8000000, 8000000, 8000000, 8000000 };
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct topo topo;
	struct jobg j;

	job_on_threads(&j, &topo);
	for (int i = 0; i < 24; i++) {
		bool overlaps = i % 2;

		collective(&j, 0, 1, j.at += 100000000, dur, 8000000, 0);
		for (uint32_t r = 0; r < RANKS; r++) {
			pl_ns at = j.at + (overlaps ? 0 : 9000000);

			for (int k = 0; k < 8; k++) {
				pl_ns d = 1000000 + (overlaps && !k && !r ? 4800000 : 0);

				put(&j, PL_N_OP, PL_RO_COMPUTE, PL_K_HOST_OP, 2 * r, 2, at, d, -1);
				at += d;
			}
		}
	}
	ok(!fit_job(&j, &topo.t, &c, &err), "fits");
	ok(near(c.overlap, 1 / (1 - weight * 0.15 - (1 - weight) * 0.25), 0.005),
	   "THREADS: an uncertain loss is near the usual one");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Nothing ran beside communication, so nothing says what it would lose there: as much as usual. */
static void all_exposed(void)
{
	pl_ns dur[RANKS] = { 8000000, 8000000, 8000000, 8000000 };
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct topo topo;
	struct jobg j;

	job_on_threads(&j, &topo);
	for (int i = 0; i < 24; i++) {
		collective(&j, 0, 1, j.at += 100000000, dur, 8000000, 0);
		for (uint32_t r = 0; r < RANKS; r++)
			for (int k = 0; k < 8; k++)
				put(&j, PL_N_OP, PL_RO_COMPUTE, PL_K_HOST_OP, 2 * r, 2,
				    j.at + 9000000 + k * 1000000, 1000000, -1);
	}
	ok(!fit_job(&j, &topo.t, &c, &err), "fits");
	ok(near(c.overlap, 1 / (1 - 0.25), 0.005),
	   "THREADS: what was not recorded is as usual (%g)", c.overlap);
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* An operator that issues communication takes longer where it waits for its thread. Computation
 * beside communication loses nothing. */
static void issuing_is_no_computation(void)
{
	pl_ns dur[RANKS] = { 8000000, 8000000, 8000000, 8000000 };
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct topo topo;
	struct jobg j;

	job_on_threads(&j, &topo);
	for (int i = 0; i < 24; i++) {
		bool overlaps = i % 2;

		collective(&j, 0, 1, j.at += 100000000, dur, 8000000, 0);
		for (uint32_t r = 0; r < RANKS; r++) {
			pl_ns at = j.at + (overlaps ? 0 : 9000000), d = overlaps ? 4000000 : 100000;

			put(&j, PL_N_OP, PL_RO_COMPUTE, PL_K_COLLECTIVE, 2 * r, 7, at, d, -1);
			for (at += d; at < j.at + 20000000; at += 1000000)
				put(&j, PL_N_OP, PL_RO_COMPUTE, PL_K_HOST_OP, 2 * r, 2, at, 1000000,
				    -1);
		}
	}
	ok(!fit_job(&j, &topo.t, &c, &err), "fits");
	ok(near(c.overlap, 1, 0.005), "issuing communication is no computation beside it (%g)",
	   c.overlap);
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

int main(void)
{
	lines();
	samples();
	contention();
	wakes();
	uncertain();
	all_exposed();
	issuing_is_no_computation();
	return done_testing();
}
