/* Costs that are fitted to graphs whose lines are known, and moved from there by analysis. */
#include "cost_job_fixture.h"

/* Of an operation with that name. */
static double precision_of(const char *name, const char *precision)
{
	struct pl_name_says says;

	pl_derive_name_read(name, strlen(name), &says);
	return pl_cost_precision(says.op, says.type, precision);
}

static void exact(void)
{
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 7, 2000);
	lone(&j, 0, 40, 20000, 0.25, 0, 0, 1000, 100000000);
	lone(&j, 1, 40, 7000, 0.02, 0, 0, 1000, 100000000);
	lone(&j, 4, 10, 7000, 0.02, 0, 0, 1 << 20, 1 << 20);
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	is_i64((long long)c.n_fits, 3, "a line for each collective");
	if (fit_of(&c, PL_COLL_ALLREDUCE) && fit_of(&c, PL_COLL_ALLGATHER) &&
	    fit_of(&c, PL_COLL_REDUCE_SCATTER)) {
		const struct pl_fit *f = fit_of(&c, PL_COLL_ALLREDUCE);

		ok(near(f->a_ns, 20000, 1e-3) && near(f->b_ns_per_byte, 0.25, 1e-3) &&
			   f->residual < 1e-3 && f->samples == 40 && f->n == RANKS && !f->one_size,
		   "without noise the line itself");
		f = fit_of(&c, PL_COLL_ALLGATHER);
		ok(near(f->a_ns, 7000, 1e-3) && near(f->b_ns_per_byte, 0.02, 1e-3),
		   "another line for another collective");
		f = fit_of(&c, PL_COLL_REDUCE_SCATTER);
		ok(f->one_size && near(f->a_ns, 15000, 1e-9) &&
			   near(f->a_ns + f->b_ns_per_byte * (1 << 20), 7000 + 0.02 * (1 << 20),
				1e-3) &&
			   f->min_bytes == f->max_bytes && f->min_bytes == 1 << 20,
		   "one size: the latency is the topology's, and the line meets what was seen");
		is_i64((int64_t)f->a_off_ns, (RANKS - 1) * PL_COST_MESSAGE_NS,
		       "... so it may be a millisecond for each message");
	} else {
		ok(false, "collectives are told by their names");
	}
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* 10 % outliers, 5 % noise, many seeds: within stated bounds. */
static void robust(void)
{
	double worst_a = 0, worst_b = 0, worst_residual = 0, widest = 0;
	struct pl_err err = { 0 };
	struct topo x;
	int held = 0;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	for (uint64_t seed = 1; seed <= 40; seed++) {
		const struct pl_fit *f;
		struct pl_cost c;
		struct jobg j;
		double a, b;

		job_init(&j, seed, 4000);
		a = 5000 + 100000 * uniform(&j);
		b = pow(10, -3 + 3 * uniform(&j));
		lone(&j, 0, 200, a, b, 0.05, 0.1, 100, 100000000);
		if (fit_job(&j, &x.t, &c, &err) || !(f = fit_of(&c, PL_COLL_ALLREDUCE))) {
			ok(false, "seed %d fits", (int)seed);
			continue;
		}
		worst_a = fmax(worst_a, fabs(f->a_ns / a - 1));
		worst_b = fmax(worst_b, fabs(f->b_ns_per_byte / b - 1));
		worst_residual = fmax(worst_residual, f->residual);
		held += fabs(f->a_ns - a) <= f->a_off_ns;
		widest = fmax(widest, f->a_off_ns / a);
		pl_cost_fini(&c);
		pl_graph_fini(&j.g);
	}
	printf("# worst of 40: a %.2f %%, b %.2f %%, residual %.2f %%\n", 100 * worst_a,
	       100 * worst_b, 100 * worst_residual);
	ok(worst_a <= 0.04 && worst_b <= 0.04,
	   "10 %% outliers and 5 %% noise: a and b within 4 %%");
	ok(worst_residual <= 0.04, "and what is left is the noise");
	printf("# %d of 40 intervals hold the latency; the widest is %.1f %% of it to either "
	       "side\n",
	       held, 100 * widest);
	ok(held >= 32 && widest < 0.05,
	   "intervals of the latency hold it, also where errors are not normal, and are narrow");
}

/* Few samples always lie near a line: their intervals of the latency have to be wide. */
static void few(int n, int least)
{
	struct pl_err err = { 0 };
	struct topo x;
	int held = 0;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	for (uint64_t seed = 1; seed <= 40; seed++) {
		const struct pl_fit *f;
		struct pl_cost c;
		struct jobg j;

		job_init(&j, seed, 400);
		lone(&j, 0, n, 20000, 0.25, 0.05, 0, 1000, 400000);
		if (fit_job(&j, &x.t, &c, &err) || !(f = fit_of(&c, PL_COLL_ALLREDUCE))) {
			ok(false, "seed %d fits", (int)seed);
			continue;
		}
		held += fabs(f->a_ns - 20000) <= f->a_off_ns;
		pl_cost_fini(&c);
		pl_graph_fini(&j.g);
	}
	ok(held >= least, "%d samples: %d of 40 intervals hold the latency", n, held);
}

static void degenerate(void)
{
	pl_ns dur[RANKS] = { 1000, 1000, 1000, 1000 };
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 1, 2000);
	ok(!fit_job(&j, &x.t, &c, &err) && c.n_fits == 0 && c.overlap == 1 && c.issue_ns == 0,
	   "nothing to fit");
	pl_cost_fini(&c);
	for (int i = 0; i < 20; i++) { /* faster the larger it is */
		for (int r = 0; r < RANKS; r++)
			dur[r] = 100000 - 4000 * i;
		collective(&j, 0, 0, j.at += 1000000, dur, 1000 * (i + 1), 0);
		for (int r = 0; r < RANKS; r++) /* no line has such a latency: below 0 */
			dur[r] = (pl_ns)(10 * (i + 1) * (i + 1));
		collective(&j, 1, 0, j.at += 1000000, dur, 1000 * (i + 1), 0);
	}
	for (int r = 0; r < RANKS; r++)
		dur[r] = 77000;
	collective(&j, 4, 0, j.at += 1000000, dur, -1, 0);
	collective(&j, 0, 0, j.at += 1000000, dur, 1 << 30, PL_NF_MISSING);
	ok(!fit_job(&j, &x.t, &c, &err), "odd times fit");
	f = fit_of(&c, PL_COLL_ALLREDUCE);
	ok(f && f->b_ns_per_byte == 0 && f->a_ns > 0, "no negative cost of a byte");
	ok(f && f->max_bytes == 20000 && f->samples == 20, "what misses partners is no sample");
	f = fit_of(&c, PL_COLL_ALLGATHER);
	ok(f && f->a_ns == 0 && f->b_ns_per_byte > 0, "no negative latency");
	f = fit_of(&c, PL_COLL_REDUCE_SCATTER);
	ok(f && f->estimated && near(f->a_ns, 15000, 1e-9) && near(f->b_ns_per_byte, 0.075, 1e-3) &&
		   near((double)f->max_bytes, 62000 / 0.075, 1e-3),
	   "without sizes: the topology's line, and such a size as explains the time");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* A rank has a link to each other rank only if no link carries all that the rank sends. */
static void link_of_all(void)
{
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 3, 200);
	lone(&j, 0, 3, 30000, 0.5, 0, 0, 1000, 4000000);
	ok(!fit_job(&j, NULL, &c, &err) && !c.topo.pairs, "no links: no pairs (%s)", err.msg);
	pl_cost_fini(&c);
	if (pl_alloc(&j.g.link, 2, sizeof(*j.g.link), &err) < 0)
		exit(1);
	j.g.n_links = 2;
	j.g.link[0] = (struct pl_link){ .from = 0, .to = 2, .bytes_per_ns = 1 };
	j.g.link[1] = (struct pl_link){ .from = 2, .to = 0, .bytes_per_ns = 1 };
	ok(!fit_job(&j, NULL, &c, &err) && c.topo.pairs, "a link for each pair (%s)", err.msg);
	pl_cost_fini(&c);
	j.g.link[0].to = 0;
	ok(!fit_job(&j, NULL, &c, &err) && !c.topo.pairs, "one link for all (%s)", err.msg);
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Two at once share the link: each lasts twice as long as it would alone. */
static void shared_link(void)
{
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 11, 8000);
	for (int i = 0; i < 60; i++) {
		int64_t s1 = 1000 + (int64_t)(uniform(&j) * 4e6), s2 = 1000 + s1 / 2;
		pl_ns d1[RANKS], d2[RANKS];
		double busy = 2 * 30000 + 0.5 * (double)(s1 + s2);

		for (int r = 0; r < RANKS; r++) {
			d1[r] = (pl_ns)busy;
			d2[r] = (pl_ns)(busy * 0.7);
		}
		collective(&j, 0, 0, j.at, d1, s1, 0);
		collective(&j, 0, 1, j.at + (pl_ns)(busy * 0.1), d2, s2, 0);
		j.at += (pl_ns)(3 * busy);
	}
	lone(&j, 0, 30, 30000, 0.5, 0, 0, 1000, 4000000);
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	f = fit_of(&c, PL_COLL_ALLREDUCE);
	ok(f && f->samples == 90 && near(f->a_ns, 30000, 0.01) && near(f->b_ns_per_byte, 0.5, 0.01),
	   "communication that shares the link: busy periods give the line of one alone");
	ok(f && !(f->flight_ns > 0), "... which each has to itself");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* One to eight begun at once over a link with a latency: that is waited for once. */
static void in_flight(void)
{
	const double latency = 2e6, b = 8;
	struct pl_cost_comm m = { .kind = PL_K_COLLECTIVE,
				  .coll = PL_COLL_ALLREDUCE,
				  .algo = PL_ALGO_RING,
				  .group = PL_NONE,
				  .n = RANKS,
				  .bytes = 65536 };
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 12, 8000);
	for (int i = 0; i < 40; i++) {
		int k = 1 + (int)(uniform(&j) * 8);
		double left = 0;

		for (int n = 0; n < k; n++) {
			int64_t bytes = 20000 + (int64_t)(uniform(&j) * 1e5);
			pl_ns dur[RANKS];

			left += b * (double)bytes;
			for (int r = 0; r < RANKS; r++)
				dur[r] = (pl_ns)(latency + left) - 1000 * n;
			collective(&j, 0, n & 1, j.at + 1000 * n, dur, bytes, 0);
		}
		j.at += (pl_ns)(2 * (latency + left));
	}
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	f = fit_of(&c, PL_COLL_ALLREDUCE);
	ok(f && near(f->flight_ns, latency, 0.02) && near(f->b_ns_per_byte, b, 0.02) &&
		   !(f->a_ns > 0),
	   "communication in flight together: the latency is each one's, the link is not");
	ok(near((double)pl_cost_transfer(&c, &m), b * 65536, 0.02) &&
		   near((double)pl_cost_flight(&c, &m), latency, 0.02),
	   "... and so it costs");
	m.n = 2 * RANKS;
	ok(near((double)pl_cost_flight(&c, &m), latency * 14 / 6, 0.02),
	   "... of more ranks, so many more latencies");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

static void test_overlapped(double slow, bool noisy, double want, const char *what)
{
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;
	uint32_t call, wrap;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 5, 8000);
	for (int i = 0; i < 24; i++) {
		pl_ns dur[RANKS] = { 400000, 400000, 400000, 400000 };
		pl_ns at = j.at += 2000000;

		collective(&j, 0, 1, at, dur, 1 << 20, 0);
		for (uint32_t r = 0; r < RANKS; r++)
			for (int k = 0; k < 4; k++) {
				bool with = k < 2;
				double d = (k % 2 ? 90000 : 50000) * (with ? slow : 1);

				d *= 1 + (noisy ? 0.6 : 0.02) * (uniform(&j) - 0.5);
				put(&j, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * r, 2 + k % 2,
				    at + k * 120000 + (with ? 1000 : 500000), (pl_ns)d, -1);
			}
	}
	wrap = put(&j, PL_N_OP, PL_RO_HOST, PL_K_HOST_OP, 0, 7, 0, 9000, -1);
	call = put(&j, PL_N_OP, PL_RO_HOST, PL_K_RUNTIME, 0, 5, 9000, 4000, -1);
	tie(&j, wrap, PL_E_SEQ);
	put(&j, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, 1, 0, 13000, 0, -1);
	tie(&j, call, PL_E_LAUNCH);
	ok(!fit_job(&j, &x.t, &c, &err) && fabs(c.overlap - want) <= 0.02 * want, "%s", what);
	printf("# %g\n", c.overlap);
	is_i64(c.issue_ns, 13000, "issuing: the call, and the operation that makes it");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Small messages take the host's link longest, large ones the network's. */
static void bent(void)
{
	struct pl_cost_comm m = { .kind = PL_K_COLLECTIVE, .coll = PL_COLL_ALLREDUCE, .n = RANKS };
	struct pl_err err = { 0 };
	bool like = true;
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 2, 2, 100, 50000, 1, 1000, false);
	job_init(&j, 8, 8000);
	for (int i = 0; i < 60; i++) {
		int64_t bytes = (int64_t)(4000 * pow(1000, uniform(&j)));
		double t = 1.3 * (double)cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_RING, RANKS, bytes, 0);
		pl_ns dur[RANKS];

		for (int r = 0; r < RANKS; r++)
			dur[r] = (pl_ns)(t * (1 + 0.01 * uniform(&j)));
		collective(&j, 0, 0, j.at, dur, bytes, 0);
		j.at += (pl_ns)(2 * t);
	}
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	for (m.bytes = 4000; m.bytes < 4000000; m.bytes *= 3)
		like &= near((double)pl_cost_transfer(&c, &m),
			     1.3 * (double)pl_cost_analytic(&x.t, &m), 0.01);
	ok(like, "times that bend where one link becomes slower than another");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Threads carry the communication: `beside`, the first of 8 operations pays for the rest, a
 * transfer beside them takes `slowed` times its bytes' time and waits. */
static void contend(struct jobg *j, int name, double slowed, pl_ns wait, int64_t bytes,
		    bool overlapped)
{
	pl_ns alone = 8 * 1000000, dur[RANKS], window = alone;
	double move = (double)bytes * (overlapped ? slowed : 1);

	for (int r = 0; r < RANKS; r++)
		dur[r] = (pl_ns)move + (overlapped ? wait : 0);
	if (overlapped)
		window += (pl_ns)((double)dur[0] * 0.4); /* what computation loses beside it */
	j->at += 100000000;
	collective(j, name, 1, j->at, dur, bytes, 0);
	for (uint32_t r = 0; r < RANKS; r++) {
		pl_ns at = j->at + (overlapped ? 0 : dur[0] + 1000);

		for (int k = 0; k < 8; k++) {
			pl_ns d = 1000000 + (overlapped && !k ? window - alone : 0);

			put(j, PL_N_OP, PL_RO_COMPUTE, PL_K_HOST_OP, 2 * r, 2, at, d, -1);
			at += d;
		}
	}
}

static void contention(bool small)
{
	struct pl_cost_comm m = { .kind = PL_K_COLLECTIVE, .coll = PL_COLL_ALLREDUCE, .n = RANKS };
	double computation, move, a;
	const struct pl_fit *f;
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	job_on_threads(&j, &x);
	for (int i = 0; i < 24; i++) {
		contend(&j, 0, 1.5, 300000, 32000000, false);
		contend(&j, 0, 1.5, 100000, 8000000, true);
		if (small)
			contend(&j, 0, 1.5, 500000, 2000, true);
	}
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	f = fit_of(&c, PL_COLL_ALLREDUCE);
	/* 8 ms of work; all of a transfer that is shorter than that is beside it */
	ok(near(c.overlap, 1 / (1 - 0.4), 0.02),
	   "processors taken in slices: what they cost in sum");
	ok(f && near(f->b_ns_per_byte, 1, 0.01), "the line is that of communication alone");
	if (!f)
		exit(1);
	a = f->a_ns;
	ok(f->assumed == !small, "a wait that no message shows is assumed");
	if (small) {
		ok(near(f->a_contended_ns, 501000, 0.02), "what small messages wait for");
		m.bytes = 2000;
		pl_cost_contention(&c, &m, &computation, &move);
		ok(near(move * (a + 2000), f->a_contended_ns + 2000 * f->b_contended, 0.01),
		   "which makes them longer by far");
	} else {
		ok(near(f->a_contended_ns, a + 2 * (RANKS - 1) * 500000.0, 0.01),
		   "for each message");
		m.bytes = 32000000;
		pl_cost_contention(&c, &m, &computation, &move);
		ok(move >= 1 && near(computation, c.overlap, 1e-9),
		   "and large ones are no shorter");
	}
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* Reduce-scatters show how long a message waits beside computation, all-reduces do not. */
static void contention_of_others(void)
{
	const double wait = 1000000; /* of each message */
	struct pl_err err = { 0 };
	const struct pl_fit *f;
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	job_on_threads(&j, &x);
	for (int i = 0; i < 24; i++) {
		contend(&j, 0, 1.5, 0, 32000000, false);
		contend(&j, 4, 1.5, 0, 32000000, false);
		contend(&j, 0, 1.5, (pl_ns)(2 * wait * (RANKS - 1)), 8000000, true);
		contend(&j, 4, 1.5, (pl_ns)(wait * (RANKS - 1)), 2000, true);
	}
	ok(!fit_job(&j, &x.t, &c, &err), "fits");
	f = fit_of(&c, PL_COLL_REDUCE_SCATTER);
	ok(f && !f->assumed && near(f->a_contended_ns - f->a_ns, wait * (RANKS - 1), 0.02),
	   "a collective shows how long its messages wait");
	f = fit_of(&c, PL_COLL_ALLREDUCE);
	ok(f && near(f->a_contended_ns - f->a_ns, 2 * wait * (RANKS - 1), 0.02),
	   "... and so long wait those of another one that does not show it");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* ---- moved by analysis
 * ------------------------------------------------------------------------------
 */

static void moved(void)
{
	struct pl_link_change twice = { .link = "nvlink", .bandwidth = 2, .latency = 1 };
	struct pl_cost_comm m = { .kind = PL_K_COLLECTIVE,
				  .coll = PL_COLL_ALLREDUCE,
				  .group = PL_NONE,
				  .n = RANKS,
				  .bytes = 1 << 24 };
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct pl_topology topo;
	struct topo x;
	double line = 20000 + 0.3 * (1 << 24), base;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 7, 2000);
	lone(&j, 0, 40, 20000, 0.3, 0, 0, 1000, 100000000);
	if (!ok(!fit_job(&j, &x.t, &c, &err), "fits"))
		return;
	topo = c.topo;
	ok(near((double)pl_cost_transfer(&c, &m), line, 1e-3), "as recorded: the line");
	base = (double)pl_cost_analytic(&x.t, &m);
	m.n = 16;
	ok(near((double)pl_cost_transfer(&c, &m),
		20000 * 15.0 / 3 + 0.3 * (15.0 / 16) / (3.0 / 4) * (1 << 24), 1e-3),
	   "more ranks: latency and bytes are moved apart");
	c.topo.n_ranks = 16;
	c.topo.host = (struct pl_thost[]){ { "a", 0, 4 }, { "b", 4, 12 } };
	c.topo.n_hosts = 2;
	c.topo.link = (struct pl_tlink[]){ x.t.link[0], x.t.link[1] };
	c.topo.link[1].latency_ns = 50000;
	ok(near((double)pl_cost_transfer(&c, &m),
		20000 * 30 * 50000.0 / (6 * 5000) + 0.3 * (15.0 / 16) / (3.0 / 4) * (1 << 24),
		1e-3),
	   "... over the links of a topology that has so many");
	c.topo = topo;
	m.n = RANKS;
	m.algo = PL_ALGO_TREE;
	ok(near((double)pl_cost_transfer(&c, &m), line * (double)pl_cost_analytic(&x.t, &m) / base,
		1e-3),
	   "another algorithm: moved by analysis");
	m.was = PL_ALGO_TREE;
	ok(near((double)pl_cost_transfer(&c, &m), line, 1e-3), "the recorded one: the line");
	m.was = PL_ALGO_RING;
	m.algo = PL_ALGO_RING;
	m.parts = 4;
	ok(near((double)pl_cost_transfer(&c, &m), line + 3 * 20000, 1e-3),
	   "in four parts: three more latencies");
	m.parts = 0;
	m.change = &twice;
	m.n_changes = 1;
	ok(near((double)pl_cost_transfer(&c, &m), line / 2, 0.02),
	   "a link twice as fast halves a large transfer");
	m.bytes = 100000;
	ok(near((double)pl_cost_transfer(&c, &m), 20000 + 0.15 * 100000, 0.01),
	   "... and of a small one the bytes alone, as what-if has it");
	twice = (struct pl_link_change){ .link = "*", .bandwidth = 1, .latency = 3 };
	ok(near((double)pl_cost_transfer(&c, &m), 3 * 20000 + 0.3 * 100000, 0.01),
	   "latency changes the other part alone");
	m.bytes = 1 << 24;
	m.n_changes = 0;
	m.coll = PL_COLL_ALLTOALL;
	is_i64(pl_cost_transfer(&c, &m), pl_cost_analytic(&x.t, &m), "never seen: analysis");
	m.coll = PL_COLL_ALLREDUCE;
	m.bytes = -1;
	ok(pl_cost_transfer(&c, &m) > 1000000, "unknown size: as one in the middle");
	m.n = 1;
	is_i64(pl_cost_transfer(&c, &m), 0, "alone: nothing");
	ok(precision_of("volta_sgemm_128x64_nn", "fp16") == 1.0 / 3 &&
		   precision_of("vectorized_elementwise_kernel", "bf16") == 0.5 &&
		   precision_of("ampere_fp16_s16816gemm", "fp16") == 1 &&
		   precision_of("relu", "tf32") == 1 && precision_of("gemm", "fp32") == 1 &&
		   precision_of("aten::convert", "tf32") == 1 &&
		   precision_of("upsample_bilinear2d_out_frame", "tf32") == 1,
	   "precision: products by three, the rest by two, what has it already by nothing");
	ok(pl_cost_precision(PL_OP_MATMUL, "bfloat16", "fp32") == 3 &&
		   pl_cost_precision(PL_OP_ELEMENTWISE, "float16", "fp32") == 2 &&
		   pl_cost_precision(PL_OP_ELEMENTWISE, "float8", "bf16") == 2 &&
		   pl_cost_precision(PL_OP_ELEMENTWISE, "int64", "bf16") == 1 &&
		   pl_cost_precision(PL_OP_MATMUL, "int8", "fp32") == 1,
	   "... raised by as much as lowered; whole numbers stay");
	pl_cost_fini(&c);
	ok(!fit_job(&j, NULL, &c, &err) && c.topo.n_ranks == RANKS && c.topo.n_hosts == 1 &&
		   c.topo.host[0].n == RANKS && c.topo.assumed,
	   "a topology read off the graph");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

/* ---- lines and their parts ------------------------------------------------------------------- */

/* What a ring or a tree sends is what the analysis of one on equal links takes. */
static void rings(uint8_t algorithm)
{
	static const uint8_t coll[] = {
		PL_COLL_ALLREDUCE, PL_COLL_REDUCE_SCATTER, PL_COLL_ALLGATHER, PL_COLL_BROADCAST,
		PL_COLL_REDUCE,	   PL_COLL_GATHER,	   PL_COLL_SCATTER,   PL_COLL_ALLTOALL,
		PL_COLL_SEND,	   PL_COLL_SENDRECV,	   PL_COLL_BARRIER,   PL_COLL_OTHER
	};
	const int64_t bytes = 720720; /* by every n a whole number */
	double messages, share;
	struct topo x;
	int bad = 0;

	for (size_t i = 0; i < PL_LEN(coll); i++) {
		for (uint32_t n = 2; n <= 16; n++) {
			struct pl_cost_comm c = {
				.kind = PL_K_COLLECTIVE, .coll = coll[i], .was = algorithm, .n = n
			};
			double want;

			make_topo(&x, 1, n, 0.125, 1000, 0.125, 1000, false);
			pl_cost_ring(&c, &messages, &share);
			want = messages * 1000 + 8 * share * (double)bytes;
			if (fabs(want - (double)cost(&x, coll[i], algorithm, n, bytes, 0)) > 1)
				bad++;
		}
	}
	ok(!bad, "messages and shares of %zu collectives on up to 16 ranks", PL_LEN(coll));
}

/* All-reduces of one job by two algorithms. Those of one size say nothing of latency, so it is that
 * of their algorithm on the topology. */
static void algorithms(void)
{
	static const char name[] = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL";
	struct pl_link_change twice = { .link = "*", .bandwidth = 1, .latency = 2 };
	struct pl_cost_comm m = { .kind = PL_K_COLLECTIVE,
				  .coll = PL_COLL_ALLREDUCE,
				  .algo = PL_ALGO_TREE,
				  .was = PL_ALGO_TREE,
				  .group = PL_NONE,
				  .n = RANKS,
				  .bytes = 1 << 20 };
	const double tree = 7000 + 0.02 * (1 << 20);
	const struct pl_fit *f, *ring;
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 10, 5000, 10, 5000, false);
	job_init(&j, 7, 400);
	if (pl_intern_add(&j.g.str, name, strlen(name), &j.name[2], &err) < 0)
		exit(1);
	lone(&j, 2, 10, 7000, 0.02, 0, 0, 1 << 20, 1 << 20);
	lone(&j, 0, 10, 20000, 0.25, 0, 0, 1000, 100000000);
	ok(!fit_job(&j, &x.t, &c, &err) && c.n_fits == 2, "a tree is not fitted with rings");
	f = pl_cost_find_fit(&c, &m);
	ok(f && f->algo == PL_ALGO_TREE && f->one_size && near(f->a_ns, 20000, 1e-9),
	   "the latency of a tree of one size is that of its levels");
	m.change = &twice;
	m.n_changes = 1;
	ok(near((double)pl_cost_transfer(&c, &m), tree + 20000, 1e-3), "... which changes");
	m.algo = m.was = PL_ALGO_RING;
	ring = pl_cost_find_fit(&c, &m);
	ok(ring && ring->algo == PL_ALGO_RING && near(ring->b_ns_per_byte, 0.25, 1e-3),
	   "a ring has the line of rings");
	m.was = PL_ALGO_HALVING;
	ok(pl_cost_find_fit(&c, &m) != NULL, "an algorithm without a line has one of the others");
	pl_cost_fini(&c);
	pl_graph_fini(&j.g);
}

static void lines(void)
{
	struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			      .coll = PL_COLL_ALLREDUCE,
			      .n = 4,
			      .a_ns = 600,
			      .b_ns_per_byte = 3,
			      .min_bytes = 100,
			      .max_bytes = 300 };
	struct pl_link_change change[] = { { .link = "nic", .bandwidth = 4, .latency = 0.5 },
					   { .link = "nvlink", .bandwidth = 0.001, .latency = 1 } };
	struct pl_cost_comm comm = { .kind = PL_K_COLLECTIVE,
				     .coll = PL_COLL_ALLREDUCE,
				     .n = 4,
				     .bytes = 1000,
				     .change = change };
	struct pl_cost c = { .fit = &fit, .n_fits = 1 };
	struct pl_cost_line l = { 0 };
	struct topo x;
	double a, b;

	make_topo(&x, 4, 2, 100, 100, 1, 5000, false);
	c.topo = x.t;
	ok(pl_cost_line(&c, &comm, &l) && l.a_ns == 600 && l.b_ns_per_byte == 3 && l.bytes == 1000,
	   "the line of a fit");
	comm.n = 16;
	ok(pl_cost_line(&c, &comm, &l) && fabs(l.a_ns - 3000) < 1e-9 &&
		   fabs(l.b_ns_per_byte - 3.75) < 1e-9,
	   "... moved to 16 ranks: 5 times the messages, 5/4 of the bytes");
	comm.bytes = -1;
	ok(pl_cost_line(&c, &comm, &l) && l.bytes == 200,
	   "... of unknown size: that in the middle");
	comm.n = 1;
	ok(!pl_cost_line(&c, &comm, &l), "one rank has no line");
	comm.n = 8;
	comm.bytes = 1 << 20;
	c.n_fits = 0;
	ok(pl_cost_line(&c, &comm, &l) &&
		   fabs(l.a_ns + l.b_ns_per_byte * (1 << 20) -
			(double)cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_RING, 8, 1 << 20, 0)) < 2,
	   "without a fit: the analysis");
	comm.n_changes = 1;
	pl_cost_links(&c, &comm, &a, &b);
	ok(fabs(a - 0.5) < 1e-3 && fabs(b - 0.25) < 1e-3, "the slower link changes: all of it");
	comm.n_changes = 2;
	pl_cost_links(&c, &comm, &a, &b);
	ok(fabs(a - 0.5) < 1e-3 && fabs(b - 10) < 1e-2, "another one becomes the slower one");
	change[0].link = change[1].link = "*";
	pl_cost_links(&c, &comm, &a, &b);
	ok(a == 0.5 && fabs(b - 250) < 1e-9, "all links: as they change");
	c.n_fits = 1;
	comm.n = 16;
	comm.bytes = 1000;
	ok(pl_cost_line(&c, &comm, &l) && fabs(l.a_ns - 1500) < 1e-9 &&
		   fabs(l.b_ns_per_byte - 3.75 * 250) < 1e-6,
	   "... in the line, too");
	change[1] = (struct pl_link_change){
		.link = "*", .bandwidth = 1, .latency = 70, .absolute = true
	};
	ok(pl_cost_line(&c, &comm, &l) && fabs(l.a_ns - 30 * 70) < 1e-9,
	   "... where each of 30 messages has a latency of its own");
}

/* A given topology has the hosts and the speeds. It cannot say which links ranks have; the graph
 * does. */
static void recorded_links(void)
{
	struct pl_cost_comm comm = { .kind = PL_K_COLLECTIVE,
				     .coll = PL_COLL_ALLREDUCE,
				     .algo = PL_ALGO_TREE,
				     .was = PL_COST_DIRECT,
				     .group = PL_NONE,
				     .n = RANKS,
				     .bytes = 8 << 20 };
	struct pl_err err = { 0 };
	struct pl_cost c;
	struct jobg j;
	struct topo x;

	make_topo(&x, 1, RANKS, 1, 2000, 1, 2000, false);
	job_init(&j, 1, 8);
	ok(pl_alloc(&j.g.link, 1, sizeof(*j.g.link), &err) == 0, "room for a link");
	j.g.n_links = 1;
	for (uint32_t to = 0; to < 2; to++) {
		pl_ns want;

		j.g.link[0] = (struct pl_link){ .from = 2, .to = to ? 2 : 0 };
		if (fit_job(&j, &x.t, &c, &err) < 0)
			exit(1);
		ok(!x.t.pairs && !x.t.message_bytes, "the given topology stays");
		x.t.pairs = !to;
		x.t.message_bytes = 256 << 10;
		want = pl_cost_analytic(&x.t, &comm);
		x.t.pairs = false;
		x.t.message_bytes = 0;
		ok(want != pl_cost_analytic(&x.t, &comm), "... does not say how a tree is");
		is_i64(pl_cost_transfer(&c, &comm), want,
		       to ? "a recorded link for all: a tree over it"
			  : "recorded links to each rank: a tree over them");
		pl_cost_fini(&c);
	}
	pl_graph_fini(&j.g);
}

int main(void)
{
	recorded_links();
	exact();
	robust();
	few(2, 36);
	few(3, 36);
	few(4, 32);
	few(6, 32);
	degenerate();
	link_of_all();
	shared_link();
	in_flight();
	test_overlapped(1.3, false, 1.3, "computation is slower beside communication, by how much");
	test_overlapped(1.0, false, 1, "no slow-down: 1");
	test_overlapped(1.02, true, 1, "a slow-down that chance explains: 1");
	bent();
	contention(true);
	contention(false);
	contention_of_others();
	moved();
	rings(PL_ALGO_RING);
	rings(PL_ALGO_TREE);
	algorithms();
	lines();
	return done_testing();
}
