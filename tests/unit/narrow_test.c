/*
 * What is done with vectors of AVX2 where the processor has them, done without: boosted trees, and
 * logarithms of features. The machines on which these tests run have them, so the sources are
 * compiled here once more as for a processor without.
 */
#include <math.h>
#include <stdlib.h>

#include "kernel/feature.h"
#include "learn/boost.h"
#include "tap.h"

#undef __x86_64__
#define pl_boost_flatten    narrow_flatten
#define pl_boost_flat_free  narrow_flat_free
#define pl_boost_apply_each narrow_apply_each
#define pl_boost_apply_many narrow_apply_many
#define pl_feature_logs	    narrow_logs
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "kernel/logs.c"
#undef LANES
#include "learn/flat.c"
#undef pl_feature_logs

static uint64_t seed = 1;

static float uniform(void)
{
	return (float)(pl_rng_next(&seed) >> 40) * 0x1p-24f;
}

static void test_trees(void)
{
	enum { N = 130, F = 5 };
	static float x[F][N], row[N * F], y[N];
	const float *column[F];
	const struct pl_boost_data d = { .n = N, .n_features = F, .x = column, .y = y };
	struct pl_boost_opts o = { .rounds = 260, .least = 2 }; /* more than one sum of digits */
	double now[N];
	int wrong = 0;

	for (int i = 0; i < N; i++)
		for (int f = 0; f < F; f++) {
			x[f][i] = uniform() < 0.1f ? NAN : uniform();
			row[i * F + f] = uniform() < 0.1f ? NAN : uniform();
			y[i] += isnan(x[f][i]) ? 0.2f : (float)f * x[f][i] * x[f][i];
		}
	for (int f = 0; f < F; f++)
		column[f] = x[f];
	for (o.leaves = 2; o.leaves <= 32; o.leaves += 10) {
		struct pl_boost_flat *flat = NULL;
		struct pl_err err = { 0 };
		struct pl_boost m;

		if (pl_boost_fit(&d, &o, &m, &err) < 0 || narrow_flatten(&m, 1, &flat, &err) < 0 ||
		    !flat)
			exit(1);
		narrow_apply_each(&m, 1, flat, row, F, N, now);
		for (int i = 0; i < N; i++)
			wrong += now[i] != pl_boost_apply(&m, row + i * F);
		narrow_flat_free(flat);
		pl_boost_fini(&m);
	}
	is_i64(wrong, 0, "trees of 2 to 32 leaves say what their walk says");
}

static void test_logs(void)
{
	enum { N = 4000 };
	static double v[N];
	static float x[N], wide[N];
	int wrong = 0;

	for (int i = 0; i < N; i++)
		v[i] = exp((i - N / 2) / 30.);
	narrow_logs(v, N, x);
	pl_feature_logs(v, N, wide);
	for (int i = 0; i < N; i++)
		wrong += x[i] != wide[i];
	is_i64(wrong, 0, "logarithms are the same to the bit");
}

int main(void)
{
	test_trees();
	test_logs();
	return done_testing();
}
