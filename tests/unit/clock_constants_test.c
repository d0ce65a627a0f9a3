/* The constants by which groups are inferred: each is moved by some test until it fails. */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"
#include "clock_fixture.h"

/* Ranks 0 1, 2 3 and 4 5 6, which no regular layout fits; rank 6 jitters by another amount. */
static bool are_found(pl_ns jitter, pl_ns other, pl_ns distance)
{
	static const int group[] = { 0, 0, 1, 1, 2, 2, 2 };
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	bool found;

	for (int32_t r = 0; r < (int32_t)PL_LEN(group); r++) {
		pl_ns most = r == 6 ? other : jitter;

		make_lane(e, group[r], r, r * 1000000);
		for (int i = 0; i < N; i++) {
			uint64_t step = (uint64_t)(group[r] * 1000 + i) * 7919;
			uint64_t own = (uint64_t)(r + 9) * 100003 + (uint64_t)i;
			pl_ns end = 10000000 * (pl_ns)(i + 1) +
				    (pl_ns)(pl_rng_next(&step) % (uint64_t)distance);

			end += most ? (pl_ns)(pl_rng_next(&own) % (uint64_t)most) : 0;
			e[i].dur = 300000;
			e[i].ts = end - e[i].dur + r * 1000000;
		}
		if (feed(a, r, NULL, "", e, N, NULL) < 0)
			return false;
	}
	solve(a, &x);
	found = has_group(&x, "0 1", N) && has_group(&x, "2 3", N) && has_group(&x, "4 5 6", N) &&
		!x.r.doubtful;
	done(a, &x);
	return found;
}

/*
 * The constants of the distance in divide.c: ten times smaller or greater they fail a test.
 */
static void check_score(void)
{
	struct pl_comm ev[40];
	struct pl_align a = { .ev = ev };
	uint32_t mine[20], theirs[20];
	struct pl_seq x = { mine, 20, 0, NULL }, y = { theirs, 20, 1, NULL };
	pl_id id;

	ok(are_found(10000, 24000, 4000000),
	   "WIDER: a rank that jitters 2.4 times as much is of the group");
	ok(are_found(2000, 2000, 60000), "... but groups 20 times as far apart are not one");
	ok(are_found(15000, 15000, 150000),
	   "JITTERY_NS: ends of devices are close enough to leave no doubt");
	ok(are_found(0, 900, 4000000),
	   "FLOOR: so is one whose times are rounded to microseconds, beside exact ones");
	ok(are_found(0, 0, 20000), "... but groups 5 us apart are not one");

	for (uint32_t i = 0; i < 40; i++) {
		ev[i] = (struct pl_comm){ .kind = PL_K_COLLECTIVE, .bytes = PL_NO_VALUE };
		ev[i].name = i < 20 ? 0 : i % 20 < 3 ? 1 : 0; /* 17 of 20 are the same */
		ev[i].coll = PL_NONE;
		*(i < 20 ? &mine[i] : &theirs[i - 20]) = i;
	}
	ok(pl_intern_add(&a.str, "x", 1, &id, NULL) == 0 && pl_clock_seq_alike(&a, &x, &y, 0),
	   "AGREE: one rank may record some other things at its ends");
	ev[23].name = ev[24].name = 1;
	ok(!pl_clock_seq_alike(&a, &x, &y, 0), "... but not a quarter");
	pl_intern_fini(&a.str);
}

/* Two ranks that end together, but for `bad` of N times, when one begins after the other's end. */
static void check_impossible(int bad, bool together)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 2; r++) {
		make_lane(e, 0, r, 0);
		for (int i = 0; i < N; i++) {
			uint64_t s = (uint64_t)i * 7919;
			pl_ns end = 10000000 * (pl_ns)(i + 1) + (pl_ns)(pl_rng_next(&s) % 4000000);
			bool late = r && i % 6 == 3 && i / 6 < bad;

			e[i].ts = end + (late ? 100000 : -300000) + 1000 * (i % 3) * r;
			e[i].dur = late ? 50000 : 300000;
		}
		rc |= feed(a, r, "alpha", "", e, N, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && has_group(&x, "0 1", N) == together,
	   "IMPOSSIBLE: %d of %d ends before the other begins", bad, N);
	done(a, &x);
}

/* Four ranks of one host, one collective each; ranks 1 and 3 begin 100 us later than others. Ranks
 * 2 and 3 end `later` us after ranks 0 and 1, and rank 3 begins another `late` us later. */
static void check_one_event(pl_ns later, pl_ns late, const char *first, uint32_t doubtful,
			    const char *what)
{
	const pl_ns t[4][2] = {
		{ 0, 500 }, { 100, 500 }, { 0, 500 + later }, { 100 + late, 500 + later }
	};
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
				1000 * t[r][0],
				1000 * (t[r][1] - t[r][0]),
				0 };

		rc |= feed(a, r, "alpha", "", &e, 1, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && has_group(&x, first, 1), "%s", what);
	is_i64(x.r.doubtful, doubtful, "... doubts");
	done(a, &x);
}

/* Each constant of the likelihood and of the choice has one that fails when it is ten times
 * smaller, and one that fails when it is ten times greater. */
static void check_constants(void)
{
	check_one_event(3, 0, "0 1", 0, "LEAST_US, MATTERS_US: ends 3 us apart are of two groups");
	check_one_event(3, 100, "0 1 2 3", 1, "EVIDENCE, MATTERS_US: a close call is said");
	check_one_event(20, 100, "0 1", 0, "EVIDENCE: no doubt where one of two is much likelier");
	check_impossible(1, true);
	check_impossible(6, false);
}

/* Two ranks of one recorded or inferred group; rank 1 lacks the elements from `from` to `to`. */
static void check_lacking(bool named, int n, int from, int to, const char *what)
{
	static char name[400][16];
	static struct ev e[400];
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 2; r++) {
		int k = 0;

		for (int i = 0; i < n; i++) {
			uint64_t s = (uint64_t)i * 7919, own = s + 17 + (uint64_t)r;
			pl_ns end = 10000000 * (pl_ns)(i + 1) + (pl_ns)(pl_rng_next(&s) % 4000000);

			if (r == 1 && i >= from && i < to)
				continue;
			snprintf(name[i], sizeof(name[i]), "op%d", named ? i : 0);
			e[k++] = (struct ev){ PL_K_COLLECTIVE,
					      name[i],
					      "allreduce",
					      named ? "tp" : NULL,
					      24,
					      -1,
					      -1,
					      end - 300000 + r * 1000000,
					      300000 + (pl_ns)(pl_rng_next(&own) % 8000),
					      0 };
			if (named)
				e[k - 1].coll = NULL;
		}
		rc |= feed(a, r, NULL, "", e, (size_t)k, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && has_group(&x, "0 1", (uint64_t)n), "%s", what);
	is_i64((long long)x.r.missing_matches, to - from, "... and only what is lacking");
	done(a, &x);
}

/* Most of the slopes are 5 %: jumps of one of the clocks. */
static void check_slope(void)
{
	pl_ns t[40];
	int64_t d[40], scratch[40];
	double slope;

	for (int i = 0; i < 40; i++) {
		t[i] = 1000000 * i;
		d[i] = 10 * i + (i >= 20 && i % 5 < 3 ? 1000000 : 0);
	}
	slope = pl_clock_slope(t, d, 40, scratch);
	ok(fabs(slope - 1e-5) < 1e-6, "MAX_SLOPE: clocks that jump do not drift: %g", slope);
}

/* Matches within a millisecond, whose jitter could be any drift. */
static void check_usual_drift(void)
{
	struct pl_clock_fit_obs obs[80];
	uint32_t class[40] = { 0 };
	pl_ns first[2] = { 0, 0 };
	struct pl_clock_fit_clock out[2];
	struct pl_clock_fit_in in = { obs, 80, class, NULL, 40, 1, 2, first, NULL, 0, NULL, NULL };
	uint64_t seed = 7;
	int rc;

	for (uint32_t i = 0; i < 80; i++)
		obs[i] = (struct pl_clock_fit_obs){
			i / 2, i % 2, 25000 * (i / 2) + (pl_ns)(pl_rng_next(&seed) % 40000)
		};
	rc = pl_clock_fit_clocks(&in, out, NULL);
	ok(rc == 0 && out[1].drift == 0 && out[1].drift_ci < 100e-6 && out[1].drift_ci > 1e-6,
	   "USUAL_DRIFT: what a short trace tells of the drift is held near 0: +- %.0f ppm",
	   out[1].drift_ci * 1e6);
}

/* Transfers that take 40 us in both directions: nothing but trust tells that they take as long. */
static void check_trust(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[2][2 * N];
	struct result x;
	int rc = 0;

	for (int i = 0; i < 2 * N; i++)
		for (int r = 0; r < 2; r++) {
			bool send = i % 2 == r;
			pl_ns t = 1000000 * (pl_ns)(i + 1) + (send ? 0 : 1000);

			e[r][i] = (struct ev){ send ? PL_K_SEND : PL_K_RECV,
					       send ? "send" : "recv",
					       NULL,
					       NULL,
					       20,
					       -1,
					       1 - r,
					       t,
					       send ? 5000 : 39000,
					       0 };
		}
	for (int r = 0; r < 2; r++)
		rc |= feed(a, r, NULL, "", e[r], 2 * N, NULL);
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == 2 && x.m.clock[1].offset_ci_ns > 5000 &&
		   x.m.clock[1].offset_ci_ns < 40000,
	   "TRUST: an offset from transfers of 40 us is good to %lld ns",
	   (long long)x.m.clock[1].offset_ci_ns);
	done(a, &x);
}

int main(void)
{
	check_score();
	check_constants();
	check_lacking(false, N, 0, 10, "MAX_SHIFT: a rank may begin ten elements late");
	check_lacking(true, 400, 150, 250, "REACH: a rank may lack a hundred elements");
	check_slope();
	check_usual_drift();
	check_trust();
	return done_testing();
}
