/* Central moments, and their discrepancy with its gradient. */
#include <math.h>

#include "learn/moments.h"
#include "tap.h"

enum { N = 23, D = 4 };

static void fill(float *z, size_t n, double centre, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		z[i] = (float)(centre + (double)(pl_rng_next(&seed) >> 11) * 0x1p-53 - 0.5);
}

static void test_find(void)
{
	/* means 2 and 10; central moments of -1 -1 2, and of three equal numbers */
	static const float z[] = { 1, 10, 1, 10, 4, 10 };
	static const double want[] = { 2, 10, 2, 0, 2, 0, 6, 0, 10, 0 };
	double m[2 * PL_MOMENTS], worst = 0;

	pl_moments_find(z, 3, 2, m);
	for (int i = 0; i < 2 * PL_MOMENTS; i++)
		worst = fmax(worst, fabs(m[i] - want[i]));
	ok(worst < 1e-12, "moments of two entries");
}

static void test_discrepancy(void)
{
	/* all entries 1, from moments of entries that are 3 or 5: means 1 and 4; central moments
	 * 0 0 0 0 and 1 0 1 0 */
	static const float one[] = { 1, 1, 1, 1 }, two[] = { 3, 3, 5, 5 };
	double m[2 * PL_MOMENTS], work[2 * PL_MOMENTS], got;
	float dz[4] = { 0 };

	pl_moments_find(two, 2, 2, m);
	got = pl_moments_discrepancy(m, one, 2, 2, 2, 1, dz, work);
	ok(fabs(got - sqrt(2) * (3.0 / 2 + 1.0 / 4 + 1.0 / 16)) < 1e-12, "discrepancy %g", got);
	for (int i = 0; i < 4; i++)
		ok(fabs((double)dz[i] + 1 / (2 * 2 * sqrt(2))) < 1e-6,
		   "the mean is drawn to the other one: %g", (double)dz[i]);
	memset(dz, 0, sizeof(dz));
	got = pl_moments_discrepancy(m, two, 2, 2, 2, 1, dz, work);
	ok(got == 0 && dz[0] == 0 && dz[3] == 0, "of equal moments it is zero, without a slope");
}

/* Against central differences. */
static void test_gradient(void)
{
	double m[PL_MOMENTS * D], work[PL_MOMENTS * D], worst = 0, least = INFINITY;
	float other[N * D], z[N * D], dz[N * D];

	fill(other, N * D, 0.1, 1);
	fill(z, N * D, -0.2, 2);
	pl_moments_find(other, N, D, m);
	for (int i = 0; i < N * D; i++)
		dz[i] = 1;
	pl_moments_discrepancy(m, z, N, D, 1.5, 3, dz, work);
	for (int i = 0; i < N * D; i++) {
		float before = z[i], h = 0x1p-10F;
		double up, down, want, got = (double)dz[i] - 1;

		z[i] = before + h;
		up = pl_moments_discrepancy(m, z, N, D, 1.5, 0, NULL, work);
		z[i] = before - h;
		down = pl_moments_discrepancy(m, z, N, D, 1.5, 0, NULL, work);
		z[i] = before;
		want = 3 * (up - down) / (2 * (double)h);
		worst = fmax(worst, fabs(got - want));
		least = fmin(least, fabs(want));
	}
	ok(worst < 1e-5, "its gradient, times 3, is added: within %.1e, the least slope is %.1e",
	   worst, least);
}

int main(void)
{
	test_find();
	test_discrepancy();
	test_gradient();
	return done_testing();
}
