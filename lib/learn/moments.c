/* Central moments of the entries of vectors, and their discrepancy with its gradient. */
#include <math.h>

#include "learn/moments.h"

void pl_moments_find(const float *z, size_t n, size_t d, double *m)
{
	memset(m, 0, PL_MOMENTS * d * sizeof(*m));
	for (size_t i = 0; i < n * d; i++)
		m[i % d] += (double)z[i] / (double)n;
	for (size_t i = 0; i < n * d; i++) {
		double x = (double)z[i] - m[i % d], power = x;

		for (size_t k = 1; k < PL_MOMENTS; k++)
			m[k * d + i % d] += (power *= x) / (double)n;
	}
}

/*
 * The k-th central moment c_k is the mean of (z - mean)^k, and its derivative by one of the n
 * numbers is k / n ((z - mean)^(k - 1) - c_(k - 1)), with c_1 = 0, because the mean moves, too. At
 * equal moments, where a distance has no derivative, the gradient is zero.
 */
double pl_moments_discrepancy(const double *m, const float *z, size_t n, size_t d, double span,
			      double scale, float *dz, double *own)
{
	double all = 0, factor[PL_MOMENTS], divisor = 1;

	pl_moments_find(z, n, d, own);
	for (size_t k = 0; k < PL_MOMENTS; k++) {
		double squares = 0;

		for (size_t e = 0; e < d; e++)
			squares +=
				(own[k * d + e] - m[k * d + e]) * (own[k * d + e] - m[k * d + e]);
		divisor *= span;
		all += sqrt(squares) / divisor;
		factor[k] = squares > 0 ? scale * (double)(k + 1) /
						  ((double)n * divisor * sqrt(squares))
					: 0;
	}
	for (size_t i = 0; dz && i < n * d; i++) {
		size_t e = i % d;
		double x = (double)z[i] - own[e], power = 1, g = factor[0] * (own[e] - m[e]);

		for (size_t k = 1; k < PL_MOMENTS; k++) {
			double before = k > 1 ? own[(k - 1) * d + e] : 0;

			power *= x;
			g += factor[k] * (own[k * d + e] - m[k * d + e]) * (power - before);
		}
		dz[i] += (float)g;
	}
	return all;
}
