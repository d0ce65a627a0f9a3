/* Matching across ranks and clocks from communication: against traces whose truth is known. */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"
#include "clock_fixture.h"

static uint64_t seed = 1;

static double uniform(void) /* -1 .. 1 */
{
	return (double)(pl_rng_next(&seed) >> 11) * 0x1p-52 - 1;
}

/* ---- the estimator alone -----------------------------------------------------------------------
 */

#define CLOCKS	4
#define MATCHES 400

static const double true_offset[CLOCKS] = { 0, 8.64e13, -3e6, 5e8 };
static const double true_drift[CLOCKS] = { 0, 40e-6, -25e-6, 0 };

static pl_ns shown(int clock, double t)
{
	return 1700000000000000000 + llround(t + true_offset[clock] + true_drift[clock] * t);
}

/* Ten minutes of matches; one end in twenty is wild. */
static size_t make_obs(struct pl_clock_fit_obs *obs, bool chain)
{
	size_t n = 0;

	for (uint32_t m = 0; m < MATCHES; m++) {
		double t = 1e9 + 600e9 * m / MATCHES;

		for (uint32_t c = 0; c < CLOCKS; c++) {
			double jitter = 20e3 * (uniform() + uniform() + uniform());

			if (chain && c != m % (CLOCKS - 1) && c != m % (CLOCKS - 1) + 1)
				continue;
			if (uniform() > 0.9)
				jitter += 5e6 * (1 + uniform());
			obs[n++] = (struct pl_clock_fit_obs){ m, c, shown((int)c, t + jitter) };
		}
	}
	return n;
}

static void check_fit(bool chain, double limit)
{
	static struct pl_clock_fit_obs obs[CLOCKS * MATCHES];
	static uint32_t class[MATCHES];
	struct pl_clock_fit_clock out[CLOCKS];
	pl_ns first[CLOCKS];
	struct pl_err err = { 0 };
	struct pl_clock_fit_in in = { .obs = obs,
				      .match_class = class,
				      .n_matches = MATCHES,
				      .n_classes = chain ? CLOCKS - 1 : 1,
				      .n_clocks = CLOCKS,
				      .first_ns = first };

	in.n_obs = make_obs(obs, chain);
	for (uint32_t m = 0; m < MATCHES; m++)
		class[m] = chain ? m % (CLOCKS - 1) : 0;
	for (int c = 0; c < CLOCKS; c++)
		first[c] = shown(c, 0);
	ok(pl_clock_fit_clocks(&in, out, &err) == 0, "a fit");
	for (int c = 1; c < CLOCKS; c++) {
		double e = (double)(out[c].offset_ns - llround(true_offset[c]));
		double d = out[c].drift - true_drift[c] / (1 + true_drift[c]);

		ok(out[c].connected && fabs(e) < limit, "clock %d: offset off by %.0f ns", c, e);
		ok(fabs(d) < 0.3e-6, "clock %d: drift off by %.4f ppm", c, d * 1e6);
		ok(out[c].offset_ci > 0 && out[c].offset_ci < 200e3 && out[c].drift_ci > 0 &&
			   out[c].drift_ci < 1e-6,
		   "clock %d: intervals %.0f ns and %.4f ppm", c, out[c].offset_ci,
		   out[c].drift_ci * 1e6);
	}
	ok(out[3].drift == 0, "a drift that is not there is exactly 0");
}

/*
 * Over many draws: do the intervals hold what they promise? The jitter of a clock follows the one
 * before it with the weight `rho`, as when a network is busy for a while; `drifts` are up to 60 ppm
 * times it, so that some, or most, cannot be told from 0.
 */
static void check_coverage(double rho, double drifts)
{
	struct pl_clock_fit_obs obs[3 * 90];
	uint32_t class[90] = { 0 };
	pl_ns first[3] = { 0, 0, 0 };
	struct pl_clock_fit_clock out[3];
	int inside = 0, drift = 0, zero = 0, all = 0;
	struct pl_err err = { 0 };

	for (int k = 0; k < 400; k++) {
		struct pl_clock_fit_in in = { obs, 270,	  class, NULL, 90,   1,
					      3,   first, NULL,	 0,    NULL, NULL };
		double d = drifts * 60e-6 * uniform(), o = 1e6 * uniform(), e[3] = { 0 };

		for (uint32_t i = 0; i < 270; i++) {
			double t = 6e6 * (i / 3), *j = &e[i % 3];

			*j = rho * *j + sqrt(1 - rho * rho) * 12e3 * (uniform() + uniform());
			obs[i] = (struct pl_clock_fit_obs){
				i / 3, i % 3, llround(t + *j + (i % 3 == 1 ? o + d * t : 0))
			};
		}
		if (pl_clock_fit_clocks(&in, out, &err) < 0)
			break;
		inside += fabs((double)out[1].offset_ns - o) <= out[1].offset_ci;
		drift += fabs(out[1].drift - d / (1 + d)) <= out[1].drift_ci;
		zero += out[1].drift == 0;
		all++;
	}
	ok(all == 400 && inside >= 372, "jitter after jitter %.1f: offsets inside: %d of %d", rho,
	   inside, all);
	ok(drift >= 372, "jitter after jitter %.1f: drifts inside: %d of %d (%d set to 0)", rho,
	   drift, all, zero);
}

/* One or two matches show no jitter, and no drift: the interval is what bounds the error. */
static void check_few(void)
{
	const double bound[2] = { 200e3, 200e3 };
	struct pl_clock_fit_obs obs[4];
	uint32_t class[2] = { 0 };
	pl_ns first[2] = { 0, 0 };
	struct pl_clock_fit_clock out[2];
	struct pl_clock_fit_in in = {
		.obs = obs, .match_class = class, .n_classes = 1, .n_clocks = 2, .first_ns = first
	};
	struct pl_err err = { 0 };
	struct pl_align *a;
	struct result x;
	int rc = 0;

	in.match_bound = bound;
	for (in.n_matches = 1; in.n_matches <= 2; in.n_matches++) {
		int inside = 0;

		in.n_obs = 2 * (size_t)in.n_matches;
		for (int k = 0; k < 400; k++) {
			for (uint32_t i = 0; i < in.n_obs; i++)
				obs[i] = (struct pl_clock_fit_obs){
					i / 2, i % 2, 1000000 * (pl_ns)(i / 2 + 3 * (i % 2))
				};
			for (uint32_t i = 0; i < in.n_obs; i++)
				obs[i].end += llround(25e3 * (uniform() + uniform() + uniform()));
			if (pl_clock_fit_clocks(&in, out, &err) < 0)
				break;
			inside += fabs((double)out[1].offset_ns - 3e6) <= out[1].offset_ci;
		}
		ok(inside >= 380, "%u match%s: offsets inside: %d of 400", in.n_matches,
		   in.n_matches > 1 ? "es" : "", inside);
	}
	in.n_matches = 1;
	in.n_obs = 2;
	first[1] = -60000000000;
	ok(pl_clock_fit_clocks(&in, out, &err) == 0 && out[1].offset_ci > 11.9e6 &&
		   out[1].offset_ci < 12.2e6,
	   "a minute before its only match a clock may have drifted: +- %.0f ns", out[1].offset_ci);
	in.match_bound = NULL;
	ok(pl_clock_fit_clocks(&in, out, &err) == 0 && out[1].connected && out[1].offset_ci == -1,
	   "what nothing bounds is not known");

	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	for (int32_t r = 0; r < 2; r++) { /* rank 1 begins last, and its transfer takes 300 us */
		const struct ev e = { PL_K_COLLECTIVE,
				      "AllReduce",
				      "allreduce",
				      "dp",
				      24,
				      0,
				      -1,
				      r ? 6600000 : 1000000,
				      r ? 300000 : 900000,
				      0 };

		rc |= feed(a, r, r ? "beta" : "alpha", "", &e, 1, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == 2 && x.m.clock[1].offset_ns == 5000000 &&
		   x.m.clock[1].offset_ci_ns >= 300000 && x.m.clock[1].offset_ci_ns < 301000,
	   "an offset from one collective is good to its transfer: +- %lld ns",
	   (long long)x.m.clock[1].offset_ci_ns);
	done(a, &x);
}

static void check_broken_times(void)
{
	static const pl_ns wild[] = { INT64_MIN, INT64_MAX, 0, -1, INT64_MAX / 2, INT64_MIN / 2 };
	struct pl_clock_fit_obs obs[60];
	uint32_t class[30] = { 0 };
	pl_ns first[2] = { INT64_MIN, INT64_MAX };
	struct pl_clock_fit_clock out[2];
	struct pl_clock_fit_in in = { obs, 60, class, NULL, 30, 1, 2, first, NULL, 0, NULL, NULL };
	struct pl_err err = { 0 };

	for (uint32_t i = 0; i < 60; i++)
		obs[i] = (struct pl_clock_fit_obs){ i / 2, i % 2, wild[pl_rng_next(&seed) % 6] };
	ok(pl_clock_fit_clocks(&in, out, &err) == 0, "times at the ends of the range are borne");
	in.n_obs = 0;
	in.n_matches = 0;
	ok(pl_clock_fit_clocks(&in, out, &err) == 0 && !out[1].connected && out[0].connected,
	   "nothing in common: not connected");
}

/* ---- through the sink --------------------------------------------------------------------------
 */

static void check_inference(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 6; r++) {
		make_lane(e, r % 2, r, r * 123456789);
		/* rank 2 starts one late, rank 4 ends three early */
		rc |= feed(a, r, NULL, "", r == 2 ? e + 1 : e,
			   r == 2 || r == 4 ? N - (r == 2 ? 1 : 3) : N, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0, "groups that nobody recorded: %s", x.err.msg);
	ok(has_group(&x, "0 2 4", N) && has_group(&x, "1 3 5", N), "every second rank is a group");
	is_i64(x.r.inferred_groups, 2, "both are marked inferred");
	ok(x.m.n_groups == 2 && x.m.group[0].flags == PL_GROUP_INFERRED, "... in the stream too");
	is_i64(x.m.n_clocks, 6, "no host is known: a clock for each rank");
	is_i64((long long)x.r.unconnected, 3, "nothing joins the odd ranks to the first");
	ok(strstr(said, "no communication joins 3 of 6 clocks") != NULL, "... which is said");
	is_i64((long long)x.r.missing_matches, 4,
	       "a missing head and a missing tail are incomplete");
	is_i64((long long)x.r.divergences, 0, "... but no divergence");
	ok(llabs(x.m.clock[2].offset_ns - 2 * 123456789) < 10000 &&
		   llabs(x.m.clock[4].offset_ns - 4 * 123456789) < 10000,
	   "offsets %lld and %lld", (long long)x.m.clock[2].offset_ns,
	   (long long)x.m.clock[4].offset_ns);
	ok(x.m.clock[2].residual_max_ns < 10000, "residuals are the jitter: %lld ns",
	   (long long)x.m.clock[2].residual_max_ns);
	done(a, &x);
}

static void check_hosts(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int rc = 0;

	for (int32_t r = 3; r >= 0; r--) {
		make_lane(e, 0, r, r < 2 ? 0 : -5000000);
		rc |= feed(a, r, r < 2 ? "alpha" : "beta", "", e, N, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == 2, "two hosts are two clocks");
	is_str(x.m.clock[0].host, "alpha", "the first is that of the lowest rank");
	ok(llabs(x.m.clock[1].offset_ns + 5000000) < 10000 && x.m.clock[1].drift_ppm == 0,
	   "offset of the second: %lld", (long long)x.m.clock[1].offset_ns);
	ok(x.m.n_uses == 4 && x.m.use[0].rank == 3 && x.m.use[0].segment == 0 &&
		   x.m.use[0].clock == 1,
	   "segments know their clocks");
	done(a, &x);

	a = new_align(PL_CLOCK_ONE, PL_DUP_REFUSE, false);
	for (int32_t r = 0; r < 2; r++) {
		make_lane(e, 0, r, 0);
		rc |= feed(a, r, r ? "beta" : "alpha", "", e, N, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == 1 && !x.m.clock[0].host, "one clock when asked");
	done(a, &x);
}

static void check_divergence(bool strict)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, strict);
	struct ev e[N], other[N];
	struct result x;
	int rc = 0;

	make_lane(e, 0, 0, 0);
	for (int i = 0; i < N; i++)
		e[i].group = "tp";
	rc |= feed(a, 0, NULL, "", e, N, NULL);
	make_lane(e, 0, 1, 0);
	memcpy(other, e, sizeof(other));
	for (int i = 0; i < N; i++)
		other[i].group = "tp";
	other[17].name = "Broadcast";
	other[17].coll = "broadcast";
	rc |= feed(a, 1, NULL, "", other, N, NULL);
	solve(a, &x);
	if (strict) {
		ok(rc == 0 && x.rc == PL_EDATA && strstr(x.err.msg, "Broadcast") != NULL,
		   "strict: a divergence is refused: %s", x.err.msg);
	} else {
		ok(rc == 0 && x.rc == 0, "a divergence is a warning");
		is_i64((long long)x.r.divergences, 1, "... one");
		ok(strstr(said, "group tp: rank 1 has \"Broadcast\" (event 17") != NULL,
		   "... with its place");
		ok(has_group(&x, "0 1", N + 1), "matching goes on behind it");
		is_i64((long long)x.r.unmatched_collectives, 2, "the two are alone");
	}
	done(a, &x);
}

static void check_numbers(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int rc = 0;
	uint32_t full = 0;

	for (int32_t r = 0; r < 3; r++) {
		make_lane(e, 0, r, 0);
		for (int i = 0; i < N; i++) {
			e[i].group = "world";
			e[i].seq = i;
		}
		/* rank 1 lacks number 5, in the middle: numbers do not mind */
		if (r == 1)
			memmove(&e[5], &e[6], (N - 6) * sizeof(*e));
		rc |= feed(a, r, NULL, "", e, r == 1 ? N - 1 : N, NULL);
	}
	solve(a, &x);
	for (uint32_t i = 0; i < x.m.n_matches; i++)
		full += x.m.match[i].n == 3 && x.m.match[i].flags == 0;
	ok(rc == 0 && x.rc == 0, "recorded groups and numbers");
	is_i64(full, N - 1, "complete matches");
	ok(x.m.n_matches == N && x.m.match[5].n == 2 && x.m.match[5].flags == PL_MATCH_MISSING,
	   "the one that lacks a member is flagged");
	ok(x.r.inferred_groups == 0 && x.m.n_groups == 1 && !strcmp(x.m.group[0].name, "world"),
	   "the group keeps its name");
	done(a, &x);
}

static void check_p2p(pl_ns early)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev s[2 * N], r[2 * N];
	struct result x;
	int rc;

	for (int i = 0; i < N; i++) { /* there and back, received 20 us after it was sent */
		pl_ns t = 5000000 * (int64_t)(i + 1);

		s[2 * i] = (struct ev){ PL_K_SEND, "send", NULL, NULL, 1, -1, 1, t, 100000, 0 };
		r[2 * i] = (struct ev){ PL_K_RECV, "recv", NULL,       NULL,	1,
					-1,	   0,	   t - 900000, 1020000, 0 };
		r[2 * i + 1] = (struct ev){ PL_K_SEND, "send", NULL,	    NULL,   1,
					    -1,	       0,      t + 2000000, 100000, 0 };
		s[2 * i + 1] = (struct ev){ PL_K_RECV, "recv", NULL,	    NULL,    1,
					    -1,	       1,      t + 1000000, 1120000, 0 };
	}
	for (int i = 0; i < 2 * N; i++)
		r[i].ts += 3000000;
	if (early) /* one that cannot be */
		s[2 * 9 + 1].dur = 1000000 - early;
	rc = feed(a, 0, NULL, "", s, 2 * N, NULL) | feed(a, 1, NULL, "", r, 2 * N, NULL);
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.r.p2p_matches == 2 * N, "sends and receives by order");
	ok(llabs(x.m.clock[1].offset_ns - 3000000) < 5000, "offset from both directions: %lld",
	   (long long)x.m.clock[1].offset_ns);
	if (early) {
		ok(x.r.n_conflicts == 2 && x.r.conflicts == 1 && x.r.conflict[0].p2p &&
			   llabs(x.r.conflict[0].excess_ns - early) < 10000 &&
			   x.r.conflict[0].rank_after == 0,
		   "a receive that ends before its send begins is a conflict");
		ok(x.r.conflict[0].cycle && x.r.conflict[1].cycle &&
			   x.r.conflict[1].rank_after == 1,
		   "... on a cycle with the tightest edge of the other direction");
		ok(strstr(said, "1 contradiction to constant offsets") != NULL, "... and said");
	} else {
		ok(x.r.conflicts == 0, "no conflict");
	}
	done(a, &x);
}

static void check_unknown_peers(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 4; r++) { /* 0 sends to 2, 1 to 3 */
		make_lane(e, r % 2, r, r * 1000003);
		for (int i = 0; i < N; i++) {
			e[i].kind = r < 2 ? PL_K_SEND : PL_K_RECV;
			e[i].coll = NULL;
		}
		rc |= feed(a, r, NULL, "", e, N, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.r.p2p_matches == 2 * N, "partners of sends without a peer");
	ok(x.m.n_matches && x.m.match[0].flags == (PL_MATCH_P2P | PL_MATCH_INFERRED) &&
		   x.m.member[x.m.match[0].first].segment + 2 ==
			   x.m.member[x.m.match[0].first + 1].segment,
	   "... are the ones whose ends keep time");
	done(a, &x);
}

/* ---- short traces ------------------------------------------------------------------------------
 */

/* Eight ranks of two stages, each rank with a clock of its own. Ranks 2 k and 2 k + 1 of a stage
 * share a tensor-parallel group; rank r sends to r + 4, which sends back; the norm is summed over
 * r and r + 4, the loss over r and r + 2 of a stage. Per step: 3 + 3 collectives of the first kind,
 * one transfer each way, one norm, one loss. */
#define STEP_EVENTS 10
static void short_step(struct ev *e, int step, int32_t rank, pl_ns shift)
{
	int32_t replica = rank % 4 / 2, stage = rank / 4, at = 0;
	uint64_t own = (uint64_t)(step * 100 + rank) * 7919 + 3;
	pl_ns t0 = 60000000 * (int64_t)step + 1000000 + replica * 700000;

	for (int i = 0; i < 8; i++) { /* three, a transfer there, one back, three */
		bool p2p = i == 3 || i == 4;
		uint64_t both = (uint64_t)(step * 100 + i * 10 + replica) * 104729 +
				(p2p ? 0 : (uint64_t)stage);
		pl_ns end = t0 + 5000000 * (int64_t)(i + 1) + (p2p ? 0 : stage * 400000) +
			    (int64_t)(pl_rng_next(&both) % 1500000);
		pl_ns dur = 90000 + (int64_t)(pl_rng_next(&own) % 900000);
		bool sends = (i == 3) == (stage == 0);

		end += (int64_t)(pl_rng_next(&own) % 5000);
		e[at++] = (struct ev){ !p2p    ? PL_K_COLLECTIVE
				       : sends ? PL_K_SEND
					       : PL_K_RECV,
				       p2p ? "SendRecv" : "AllReduce",
				       p2p ? NULL : "allreduce",
				       NULL,
				       !p2p ? 20 : 28 + (i == 4) + 4 * !sends,
				       -1,
				       -1,
				       end - dur + shift,
				       dur,
				       0 };
	}
	/* the second stage waits for the first, which is there 20 us before the end */
	e[at] = (struct ev){ PL_K_COLLECTIVE, "AllReduce", "allreduce", NULL, 44, -1, -1, 0, 0, 0 };
	e[at].dur = (stage ? 900000 : 20000) + (int64_t)(pl_rng_next(&own) % 3000);
	e[at].ts = t0 + 50000000 + (int64_t)(pl_rng_next(&own) % 3000) - e[at].dur + shift;
	/* the first replica waits for the second */
	e[at + 1] = e[at];
	e[at + 1].stream = 24;
	e[at + 1].dur = (replica ? 20000 : 500000) + (int64_t)(pl_rng_next(&own) % 3000);
	e[at + 1].ts = t0 - replica * 700000 + 54000000 + stage * 1300000 +
		       (int64_t)(pl_rng_next(&own) % 3000) - e[at + 1].dur + shift;
}

static uint32_t wrong_transfers(const struct result *x)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < x->m.n_matches; i++) {
		const struct pl_member *k = &x->m.member[x->m.match[i].first];

		wrong += x->m.match[i].group == PL_NONE &&
			 (k[0].segment % 4 != k[1].segment % 4 || k[0].event != k[1].event);
	}
	return wrong;
}

static void check_short(int steps)
{
	static const char *const pair[] = { "0 4", "1 5", "2 6", "3 7" };
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[8 * STEP_EVENTS];
	struct result x;
	int rc = 0, norms = 0;

	for (int32_t r = 0; r < 8; r++) {
		for (int s = 0; s < steps; s++)
			short_step(e + s * STEP_EVENTS, s, r, r * 98765432);
		rc |= feed(a, r, NULL, "", e, (size_t)steps * STEP_EVENTS, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0, "%d steps of two stages", steps);
	is_i64((long long)x.r.p2p_matches, 8 * steps, "all sends find receives");
	is_i64(wrong_transfers(&x), 0, "... their own");
	ok(has_group(&x, "0 1", 6u * (unsigned)steps) && has_group(&x, "6 7", 6u * (unsigned)steps),
	   "ranks next to each other are groups");
	for (size_t i = 0; i < PL_LEN(pair); i++)
		norms += has_group(&x, pair[i], (unsigned)steps);
	is_i64(norms, 4, "the norm is summed over the stages");
	ok(!strstr(said, "partner"), "nothing is said to be alone: %s", said);
	is_i64(x.r.doubtful, 0, "nothing is doubtful");
	done(a, &x);
}

/* Exchanges whose direction nobody recorded, which leave on one stream and arrive on another: ranks
 * 0 to 3 and 4 to 7 are pipelines that do the same at nearly the same time. */
#define EXCHANGES 12
static void check_exchanges(void)
{
	static const char *const pair[] = { "0 1", "1 2", "2 3", "4 5", "5 6", "6 7" };
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[2 * EXCHANGES];
	struct result x;
	int rc = 0, pairs = 0;

	for (int32_t r = 0; r < 8; r++) {
		size_t n = 0;

		for (int i = 0; i < EXCHANGES; i++)
			for (int sends = 0; sends < 2; sends++) {
				int32_t link = r % 4 - !sends; /* from this stage to the next */
				uint64_t both = (uint64_t)(i * 100 + link * 10 + r / 4) * 104729;
				uint64_t own = (uint64_t)(i * 100 + r * 10 + sends) * 7919 + 3;
				pl_ns end = 5000000 * (int64_t)i + 800000 * (int64_t)(link + 2) +
					    (int64_t)(pl_rng_next(&both) % 40000);

				if (link < 0 || link > 2)
					continue;
				e[n] = (struct ev){ PL_K_COLLECTIVE,
						    "SendRecv",
						    "sendrecv",
						    NULL,
						    40 + sends,
						    -1,
						    -1,
						    0,
						    0,
						    0 };
				e[n].dur = sends ? 150000 : 4000000; /* who receives, waits */
				e[n].ts = end - e[n].dur + r * 98765432 +
					  (int64_t)(pl_rng_next(&own) % 300);
				n++;
			}
		rc |= feed(a, r, NULL, "", e, n, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0, "exchanges on two streams");
	for (size_t i = 0; i < PL_LEN(pair); i++)
		pairs += has_group(&x, pair[i], EXCHANGES);
	is_i64(pairs, (int)PL_LEN(pair), "... of neighbours are theirs");
	is_i64(x.m.n_groups, (int)PL_LEN(pair), "... and of nobody else");
	done(a, &x);
}

/* Nobody receives what is sent: nothing is made up, and it is said. */
static void check_alone(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[2];
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 2; r++) {
		for (int i = 0; i < 2; i++)
			e[i] = (struct ev){ PL_K_SEND,	 "send",	   NULL, NULL, 3, -1, -1,
					    i * 1000000, 50000 + 1000 * r, 0 };
		rc |= feed(a, r, NULL, "", e, 2, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.r.p2p_matches == 0, "sends without receives stay alone");
	ok(strstr(said, "4 of 4 sends and receives have no partner") != NULL, "... which is said");
	ok(strstr(said, "record groups and peers") != NULL, "... with a remedy");
	done(a, &x);
}

/* One event on each of four ranks whose clocks nothing joins: any division suits some offsets. */
static void check_doubt(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 4; r++) {
		struct ev e = { PL_K_COLLECTIVE,
				"AllReduce",
				"allreduce",
				NULL,
				44,
				-1,
				-1,
				r * 77777777,
				100000 + 150000 * (int64_t)(r % 3),
				0 };

		rc |= feed(a, r, NULL, "", &e, 1, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0, "one event a rank");
	ok(strstr(said, "hardly likelier than others") != NULL, "a guess is said to be one");
	ok(x.r.doubtful > 0, "... and counted");
	done(a, &x);
}

static void check_duplicates(void)
{
	struct pl_err err = { 0 };
	struct ev e[N];
	struct result x;
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);

	make_lane(e, 0, 0, 0);
	ok(feed(a, 0, NULL, "a.json", e, N, &err) == 0 &&
		   feed(a, 0, NULL, "b.json", e, N, &err) == PL_EDATA,
	   "a rank twice: %s", err.msg);
	ok(strstr(err.msg, "b.json") && strstr(err.msg, "--duplicates"),
	   "... with file and remedy");
	pl_clock_free(a);

	a = new_align(PL_CLOCK_AUTO, PL_DUP_FIRST, false);
	memset(&err, 0, sizeof(err));
	feed(a, 0, NULL, "a.json", e, N, &err);
	feed(a, 0, NULL, "b.json", e, N, &err);
	make_lane(e, 0, 1, 0);
	feed(a, 1, NULL, "c.json", e, N, &err);
	solve(a, &x);
	ok(x.rc == 0 && x.r.dropped == 1 && pl_clock_dropped(a, 1) && !pl_clock_dropped(a, 2),
	   "the second is left out on demand");
	ok(x.m.n_uses == 2 && x.m.use[1].segment == 1 && x.m.n_matches == N,
	   "... and segments are counted without it");
	done(a, &x);

	/* a file so long that its importer made two segments of it */
	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	make_lane(e, 0, 0, 0);
	ok(feed(a, 0, NULL, "a.json", e, N / 2, &err) == 0, "the first part of a file");
	part = 1;
	ok(feed(a, 0, NULL, "a.json", e + N / 2, N / 2 - 1, &err) == 0,
	   "a segment that continues another is no second recording");
	part = 0;
	solve(a, &x);
	ok(x.rc == 0 && x.m.n_clocks == 1 && x.m.n_uses == 2, "... it has the same clock");
	done(a, &x);

	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	ok(feed(a, 0, NULL, "a.json", e, N / 2, &err) == 0 &&
		   feed(a, 0, NULL, "a.json", e + N / 2, N / 2 - 1, &err) == PL_EDATA,
	   "another file of the same name and process is one");
	pl_clock_free(a);
}

/* Ranks 0 and 1 of a run, and of one ten seconds later, on these hosts; the clocks of rank 1 are
 * `ahead`. Those that are `present` and stay, as bits. */
static unsigned stays(enum pl_clock_by by, enum pl_clock_dup dup, const char *const host[4],
		      unsigned present, pl_ns ahead)
{
	struct pl_align *a = new_align(by, dup, false);
	uint32_t seg[4], n = 0;
	unsigned kept = 0;
	struct ev e[N];
	struct result x;
	int rc = 0;

	for (int k = 0; k < 4; k++) {
		seg[k] = n;
		if (!(present >> k & 1))
			continue;
		make_lane(e, 0, k % 2, k / 2 * 10000000000 + k % 2 * ahead);
		rc |= feed(a, k % 2, host[k], "", e, N, NULL);
		n++;
	}
	solve(a, &x);
	for (int k = 0; k < 4; k++)
		if (present >> k & 1 && !pl_clock_dropped(a, seg[k]))
			kept |= 1u << k;
	rc |= x.rc;
	done(a, &x);
	return rc == 0 ? kept : 0;
}

static void check_runs(void)
{
	static const char *const same[] = { "alpha", "beta", "alpha", "beta" };
	static const char *const other[] = { "alpha", "beta", "gamma", "delta" };
	const pl_ns day = 86400000000000;

	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_NEWEST, same, 15, 0), 12, "the newest run of two hosts");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_FIRST, same, 15, 0), 3, "the first one");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_NEWEST, same, 7, 0), 4,
	       "the newest run lacks a host, which is not taken from the first run");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_FIRST, same, 14, 0), 2, "the first one lacks another");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_NEWEST, other, 15, 0), 12,
	       "the newest run, on other hosts");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_FIRST, other, 15, 0), 3, "the first one");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_NEWEST, other, 7, 0), 4,
	       "the newest run lacks a rank, which is not taken from the first run");
	is_i64(stays(PL_CLOCK_RANK, PL_DUP_NEWEST, same, 7, 0), 4, "... nor with a clock a rank");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_NEWEST, same, 15, day), 12,
	       "the newest run of a host whose clock is a day ahead");
	is_i64(stays(PL_CLOCK_AUTO, PL_DUP_FIRST, same, 15, day), 3, "the first one");
}

static void check_odd_inputs(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[2] = { { PL_K_COLLECTIVE, "x", NULL, NULL, 1, -1, -1, INT64_MAX - 5, INT64_MAX,
			     0 },
			   { PL_K_RECV, "y", NULL, "g", 1, 3, 7, INT64_MIN, -4, 0 } };
	struct result x;

	solve(a, &x);
	ok(x.rc == 0 && x.m.n_clocks == 0, "nothing at all");
	done(a, &x);
	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	feed(a, -1, NULL, "no-rank.json", e, 2, NULL);
	solve(a, &x);
	ok(x.rc == 0 && x.m.n_clocks == 1 && x.m.n_matches == 0 && !strstr(said, "no-rank.json"),
	   "no rank: passed on; one process needs none");
	done(a, &x);
	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	feed(a, -1, NULL, "no-rank.json", e, 2, NULL);
	feed(a, 0, NULL, "rank.json", e, 2, NULL);
	solve(a, &x);
	ok(x.rc == 0 && strstr(said, "no-rank.json"), "... beside one with a rank: said");
	done(a, &x);
	a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	feed(a, 0, NULL, "", e, 2, NULL);
	feed(a, 1, NULL, "", e, 2, NULL);
	solve(a, &x);
	ok(x.rc == 0, "times at the ends of the range, negative durations");
	done(a, &x);
}

static void check_apply(void)
{
	struct pl_clock c = { .offset_ns = 500, .drift_ppm = 100, .ref_ns = 1000000 };

	is_i64(pl_trace_clock_apply(&c, 1000000), 999500, "at its first event the offset holds");
	is_i64(pl_trace_clock_apply(&c, 11000000), 10998500, "later the drift adds to it");
	c.drift_ppm = 1e300;
	is_i64(pl_trace_clock_apply(&c, 11000000), 10999500, "an impossible drift is left out");
}

int main(void)
{
	check_fit(false, 5000);
	check_fit(true, 20000);
	check_coverage(0, 1);
	check_coverage(0, 0.2);
	check_coverage(0.5, 1);
	check_coverage(0.8, 1);
	check_coverage(0.8, 0.2);
	check_few();
	check_broken_times();
	check_inference();
	check_hosts();
	check_divergence(false);
	check_divergence(true);
	check_numbers();
	check_p2p(0);
	check_p2p(400000);
	check_unknown_peers();
	check_exchanges();
	check_short(1);
	check_short(2);
	check_short(8);
	check_alone();
	check_doubt();
	check_duplicates();
	check_runs();
	check_odd_inputs();
	check_apply();
	return done_testing();
}
