/* Which ends tell clocks, and what contradicts them. */
#include <stdlib.h>

#include "clock/internal.h"
#include "clock_fixture.h"

#define AHEAD 7000000 /* the clock of rank 1 */
#define LATE  3000000 /* rank 1 in each broadcast */

static pl_ns jitter(uint64_t *rng, pl_ns most)
{
	return (pl_ns)(pl_rng_next(rng) % (uint64_t)most);
}

/* Rank 0 sends to rank 1, which comes late and still waits for nobody. Of `summed` steps in two an
 * all-reduce follows. */
static void check_rooted(int summed, pl_ns offset, const char *what)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[2 * N];
	struct result x;
	int rc = 0;

	for (int32_t r = 0; r < 2; r++) {
		uint64_t rng = 5 + (uint64_t)r;
		size_t n = 0;

		for (int i = 0; i < N; i++) {
			pl_ns t = 20000000 * (pl_ns)(i + 1) + r * AHEAD;

			e[n++] = (struct ev){ PL_K_COLLECTIVE,
					      "Broadcast",
					      "broadcast",
					      "dp",
					      24,
					      2 * i,
					      -1,
					      t + r * LATE,
					      (r ? 20000 : 200000) + jitter(&rng, 5000),
					      0 };
			if (i % 2 >= summed)
				continue;
			e[n++] = (struct ev){ PL_K_COLLECTIVE,
					      "AllReduce",
					      "allreduce",
					      "dp",
					      24,
					      2 * i + 1,
					      -1,
					      t + 2 * LATE,
					      300000 + jitter(&rng, 5000),
					      0 };
		}
		rc |= feed(a, r, r ? "beta" : "alpha", "", e, n, NULL);
	}
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == 2 && x.r.clock[1].offset_known &&
		   llabs(x.m.clock[1].offset_ns - offset) < 20000,
	   "%s: %lld ns", what, (long long)x.m.clock[1].offset_ns);
	ok(x.m.clock[1].residual_max_ns < 20000, "... residuals are those of these ends: %lld ns",
	   (long long)x.m.clock[1].residual_max_ns);
	done(a, &x);
}

/* Sends that end at once, 400 us before they arrive. */
static void check_one_direction(void)
{
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N];
	struct result x;
	int64_t off;
	int rc = 0;

	for (int32_t r = 0; r < 2; r++) {
		uint64_t rng = 5 + (uint64_t)r;

		for (int i = 0; i < N; i++) {
			pl_ns t = 5000000 * (pl_ns)(i + 1);

			e[i] = (struct ev){ r ? PL_K_RECV : PL_K_SEND,
					    r ? "recv" : "send",
					    NULL,
					    NULL,
					    24,
					    -1,
					    1 - r,
					    r ? t + AHEAD - 600000 : t,
					    (r ? 1000000 : 20000) + jitter(&rng, 10000),
					    0 };
		}
		rc |= feed(a, r, r ? "beta" : "alpha", "", e, N, NULL);
	}
	solve(a, &x);
	off = llabs(x.m.clock[1].offset_ns - AHEAD);
	ok(rc == 0 && x.rc == 0 && x.r.p2p_matches == N && off <= x.m.clock[1].offset_ci_ns &&
		   x.m.clock[1].offset_ci_ns < 1100000,
	   "an offset from one direction is good to a transfer: off by %lld, +- %lld ns",
	   (long long)off, (long long)x.m.clock[1].offset_ci_ns);
	done(a, &x);
}

/* Forty clocks that all-reduces hold together, and a receive that ends before its send begins. */
static void check_many_clocks(void)
{
	enum { RANKS = 40 };
	struct pl_align *a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	struct ev e[N + 1];
	struct result x;
	bool message = false;
	int rc = 0;

	for (int32_t r = 0; r < RANKS; r++) {
		uint64_t rng = 5 + (uint64_t)r;

		for (int i = 0; i < N; i++) {
			pl_ns dur = 100000 + jitter(&rng, 3000);

			e[i] = (struct ev){ PL_K_COLLECTIVE,
					    "AllReduce",
					    "allreduce",
					    "world",
					    24,
					    i,
					    -1,
					    10000000 * (pl_ns)(i + 1) - dur + jitter(&rng, 5000),
					    dur,
					    0 };
		}
		e[N] = (struct ev){
			r ? PL_K_RECV : PL_K_SEND, r ? "recv" : "send", NULL, NULL, 25, -1, 1 - r,
			r ? 404000000 : 405000000, r ? 600000 : 50000,	0
		};
		rc |= feed(a, r, NULL, "", e, r < 2 ? N + 1 : N, NULL);
	}
	solve(a, &x);
	for (uint32_t i = 0; i < x.r.n_conflicts; i++)
		message |= x.r.conflict[i].cycle && x.r.conflict[i].p2p;
	ok(rc == 0 && x.rc == 0 && x.m.n_clocks == RANKS && x.r.conflicts == 1 && message,
	   "a contradiction is on a cycle, also of one of many clocks");
	done(a, &x);
}

/* Twenty matches of a clock beside six thousand of another show its jitter. */
static void check_few_of_many(void)
{
	enum { FEW = 20, MANY = 6000 };
	struct pl_clock_fit_obs *obs = calloc(2 * (FEW + MANY), sizeof(*obs));
	uint32_t *class = calloc(FEW + MANY, sizeof(*class));
	double *bound = calloc(FEW + MANY, sizeof(*bound));
	static const pl_ns first_ns[3];
	struct pl_clock_fit_clock out[3] = { { 0 } };
	struct pl_clock_fit_in in = { .obs = obs,
				      .n_obs = 2 * (FEW + MANY),
				      .match_class = class,
				      .n_matches = FEW + MANY,
				      .n_classes = 2,
				      .n_clocks = 3,
				      .first_ns = first_ns,
				      .match_bound = bound };
	struct pl_err err = { 0 };
	uint64_t rng = 5;

	if (!obs || !class || !bound)
		abort();
	for (uint32_t m = 0; m < FEW + MANY; m++) {
		bool few = m < FEW;
		pl_ns t = few ? 300000000 * (pl_ns)(m + 1) : 1000000 * (pl_ns)(m - FEW + 1);

		class[m] = few;
		bound[m] = 1e6;
		obs[2 * m] = (struct pl_clock_fit_obs){ m, 0, t };
		obs[2 * m + 1] =
			(struct pl_clock_fit_obs){ m, few ? 2 : 1,
						   t + AHEAD + jitter(&rng, few ? 40000 : 4000) };
	}
	ok(pl_clock_fit_clocks(&in, out, &err) == 0 &&
		   llabs(out[2].offset_ns - AHEAD - 20000) <= (int64_t)out[2].offset_ci &&
		   out[2].offset_ci < 50e3,
	   "an offset from few matches beside many: off by %lld, +- %.0f ns",
	   (long long)(out[2].offset_ns - AHEAD - 20000), out[2].offset_ci);
	free(obs);
	free(class);
	free(bound);
}

int main(void)
{
	check_rooted(2, AHEAD, "a late member of broadcasts is no late clock");
	check_rooted(1, AHEAD, "... also where broadcasts are most");
	check_rooted(0, AHEAD + LATE - 180000, "broadcasts alone are better than nothing");
	check_one_direction();
	check_many_clocks();
	check_few_of_many();
	return done_testing();
}
