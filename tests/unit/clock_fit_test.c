/*
 * The constants of the estimate of clocks (fit.c, fit_interval.c). Each of them has a test that
 * fails when the constant is four times as large, and one that fails when it is four times as small
 * where that would change a result.
 *
 * runner: long
 */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"
#include "tap.h"

/* A normal deviate, as the sum of twelve uniform ones. */
static double normal(uint64_t *rng)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += (double)(pl_rng_next(rng) >> 11) * 0x1p-53;
	return sum - 6;
}

/* Matches of two clocks, one each ms; the second clock shows shift[i] more than the first. `class`:
 * of each match, NULL: all have one. How far the second clock is ahead; *ci: its interval. */
static double offset_of(const double *shift, const uint32_t *class, uint32_t n, double *ci)
{
	static const pl_ns first_ns[2] = { 0, 0 };
	struct pl_clock_fit_obs *obs = calloc(2 * (size_t)n, sizeof(*obs));
	uint32_t *one = calloc(n, sizeof(*one)), n_classes = 1;
	struct pl_clock_fit_clock out[2] = { { 0 } };
	struct pl_clock_fit_in in;
	struct pl_err err = { 0 };
	int rc = PL_ENOMEM;

	for (uint32_t i = 0; obs && i < n; i++) {
		obs[2 * i] = (struct pl_clock_fit_obs){ i, 0, 1000000 * (pl_ns)(i + 1) };
		obs[2 * i + 1] = (struct pl_clock_fit_obs){ i, 1, obs[2 * i].end };
		obs[2 * i + 1].end += (pl_ns)llround(shift[i]);
		if (class && class[i] >= n_classes)
			n_classes = class[i] + 1;
	}
	in = (struct pl_clock_fit_in){ .obs = obs,
				       .n_obs = 2 * (size_t)n,
				       .match_class = class ? class : one,
				       .n_matches = n,
				       .n_classes = n_classes,
				       .n_clocks = 2,
				       .first_ns = first_ns };
	if (obs && one)
		rc = pl_clock_fit_clocks(&in, out, &err);
	free(obs);
	free(one);
	*ci = out[1].offset_ci;
	return rc == 0 ? (double)out[1].offset_ns : NAN;
}

/* ---- the robust rounds ----------------------------------------------------------------------- */

/* The fixed point of Tukey's weights near `a`, by many plain rounds. */
static double fixed_point(const double *shift, uint32_t n, double a)
{
	int64_t r[16];

	for (int round = 0; round < 500; round++) {
		double sum = 0, weight = 0, scale;

		for (uint32_t i = 0; i < n; i++)
			r[i] = (int64_t)(fabs(shift[i] - a) / sqrt(2));
		scale = 250 + 1.4826 * (double)pl_median_i64(r, n);
		for (uint32_t i = 0; i < n; i++) {
			double z = fabs(shift[i] - a) / 2 / scale / 4.685;
			double w = z < 1 ? pow(1 - z * z, 2) : 0;

			sum += fmax(w, 1e-6) * shift[i];
			weight += fmax(w, 1e-6);
		}
		a = sum / weight;
	}
	return a;
}

static void test_settled(void)
{
	double shift[5], ci;
	uint64_t rng = 7;
	int settled = 0;

	for (int k = 0; k < 400; k++) {
		double offset;

		for (uint32_t i = 0; i < 5; i++)
			shift[i] = round(1000 * normal(&rng) * (1 + 3 * fabs(normal(&rng))));
		offset = offset_of(shift, NULL, 5, &ci);
		settled += fabs(fixed_point(shift, 5, offset) - offset) < 1;
	}
	ok(settled >= 370, "SETTLED_NS, ROUNDS, HUBER: %d of 400 estimates are settled to the ns",
	   settled);
}

static void test_outliers(void)
{
	double shift[60], ci, worst = 0;
	uint64_t rng = 11;

	for (int k = 0; k < 400; k++) {
		for (int i = 0; i < 60; i++)
			shift[i] = pl_rng_next(&rng) % 100 < 12 ? 20000 + 20000 * fabs(normal(&rng))
								: 1000 * normal(&rng);
		worst = fmax(worst, fabs(offset_of(shift, NULL, 60, &ci)));
	}
	ok(worst < 1000, "HUBER: late ends, 12 of 100, move no clock (%.0f ns)", worst);

	for (int i = 0; i < 10; i++)
		shift[i] = 0;
	shift[5] = 1e9;
	worst = fabs(offset_of(shift, NULL, 10, &ci));
	ok(worst < 250, "LEAST_WEIGHT: nor does one that is a second late (%.0f ns)", worst);
}

static void test_rounding(void)
{
	double shift[20], ci;

	for (int i = 0; i < 20; i++)
		shift[i] = 500;
	is_i64((int64_t)offset_of(shift, NULL, 20, &ci), 500, "exact ends give the offset");
	ok(ci > 250 && ci < 1000, "ROUNDED_NS: ... as exactly as ends are rounded (%.0f ns)", ci);
}

/* ---- limits of time -------------------------------------------------------------------------- */

/* With more than MAX_OBS ends every second match counts; with fewer, each. */
static void test_max_obs(void)
{
	enum { N = 220000 };
	double *shift = calloc(N, sizeof(*shift)), *half = calloc(N, sizeof(*half)), all, some, ci;
	uint64_t rng = 5;

	if (!shift || !half)
		abort();
	for (int i = 0; i < N; i++)
		shift[i] = i % 2 ? 40000 + 1000 * normal(&rng) : 1000 * normal(&rng);
	all = offset_of(shift, NULL, N, &ci);
	ok(fabs(all) < 100, "MAX_OBS: every second of 220,000 matches is looked at (%.0f ns)", all);
	for (int i = 0; i < N; i++)
		half[i] = i % 4 == 1 || i % 4 == 2 ? 40000 + 1000 * normal(&rng)
						   : 1000 * normal(&rng);
	some = offset_of(half, NULL, 150000, &ci);
	ok(fabs(some - 20000) < 1000, "... and each of 150,000 (%.0f ns)", some);
	free(shift);
	free(half);
}

/* A group of clocks and, behind its last one, a chain of four, each joined by pairs. The interval
 * of the last of the chain, divided by that of the first. */
static double chain_growth(uint32_t n_matches)
{
	enum { CLOCKS = 100, CHAIN = 4, GROUP = CLOCKS - CHAIN, PAIRS = 12 };
	size_t n = 0, room = (size_t)n_matches * GROUP + 2 * CHAIN * PAIRS;
	struct pl_clock_fit_obs *obs = calloc(room, sizeof(*obs));
	uint32_t *class = calloc(n_matches + CHAIN * PAIRS, sizeof(*class)), m = 0;
	static const pl_ns first_ns[CLOCKS];
	struct pl_clock_fit_clock out[CLOCKS];
	struct pl_clock_fit_in in = { .n_classes = 1 + CHAIN, .n_clocks = CLOCKS };
	struct pl_err err = { 0 };
	uint64_t rng = 9;
	int rc;

	if (!obs || !class)
		abort();
	for (; m < n_matches; m++)
		for (uint32_t c = 0; c < GROUP; c++)
			obs[n++] = (struct pl_clock_fit_obs){
				m, c, 100000 * (pl_ns)(m + 1) + (pl_ns)(100 * normal(&rng))
			};
	for (uint32_t i = 0; i < CHAIN * PAIRS; i++, m++) {
		uint32_t c = GROUP - 1 + i % CHAIN;
		pl_ns end = 1000000 * (pl_ns)(i + 1);

		class[m] = 1 + i % CHAIN;
		obs[n++] = (struct pl_clock_fit_obs){ m, c, end };
		obs[n++] =
			(struct pl_clock_fit_obs){ m, c + 1, end + (pl_ns)(50000 * normal(&rng)) };
	}
	in.obs = obs;
	in.n_obs = n;
	in.match_class = class;
	in.n_matches = m;
	in.first_ns = first_ns;
	rc = pl_clock_fit_clocks(&in, out, &err);
	free(obs);
	free(class);
	return rc == 0 ? out[CLOCKS - 1].offset_ci / out[GROUP].offset_ci : NAN;
}

static void test_max_work(void)
{
	double exact = chain_growth(SIZE(1000, 200)), quick = chain_growth(SIZE(3000, 1700));

	ok(exact > 1.3, "MAX_WORK: errors add up along a chain of clocks (%.2f)", exact);
	ok(quick < 1.15, "... but very many ends are not looked at so closely (%.2f)", quick);
}

/* ---- intervals ------------------------------------------------------------------------------- */

/* The mean interval of sets of n matches, whose delays follow one another: each keeps so much of
 * the one before. */
static double interval_of_walk(uint32_t n, double keep, int sets)
{
	double shift[1000], sum = 0, ci;
	uint64_t rng = 3;

	for (int k = 0; k < sets; k++) {
		double walk = 0;

		for (uint32_t i = 0; i < n; i++) {
			walk = keep * walk + 1000 * normal(&rng);
			shift[i] = walk;
		}
		offset_of(shift, NULL, n, &ci);
		sum += ci / sets;
	}
	return sum;
}

/* The interval where one match of 25 jitters by 2 us and the others by `ratio` times as much. */
static double interval_of_mixture(double ratio)
{
	enum { N = 5000 };
	static double shift[N];
	static uint32_t class[N];
	uint64_t rng = 3;
	double ci;

	for (uint32_t i = 0; i < N; i++) {
		class[i] = i % 25 != 0;
		shift[i] = 2000 * normal(&rng) * (class[i] ? ratio : 1);
	}
	offset_of(shift, class, N, &ci);
	return ci;
}

static void test_intervals(void)
{
	double ci = interval_of_walk(12, 0.95, 100);

	ok(ci > 6000, "MIN_PARTS: twelve delays show that they follow one another (%.0f ns)", ci);
	ci = interval_of_walk(4, 0, 100);
	ok(ci < 4500, "... four that do not show nothing (%.0f ns)", ci);
	ci = interval_of_walk(1000, 0.998, 5);
	ok(ci > 20000, "MAX_PARTS: a delay of hundreds of matches is seen (%.0f ns)", ci);
	ok(ci < 30000, "... and its length (%.0f ns)", ci);
	ci = interval_of_mixture(33.5);
	ok(ci < 2600, "SLIGHT: matches 34 times as uncertain count as parts (%.0f ns)", ci);
	ci = interval_of_mixture(53.7);
	ok(ci > 2570, "... those 54 times as uncertain do not (%.0f ns)", ci);
}

int main(void)
{
	test_settled();
	test_outliers();
	test_rounding();
	test_max_obs();
	test_max_work();
	test_intervals();
	return done_testing();
}
