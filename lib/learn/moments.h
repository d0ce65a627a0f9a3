/*
 * moments.h - how unlike the distributions of two sets of vectors are: central moment discrepancy.
 *
 * Zellinger et al., Central moment discrepancy for unsupervised domain adaptation (ICLR 2017): the
 * distance of the means, plus the distances of the central moments of each entry, up to the fifth.
 * It is zero for equal moments, differentiable, and needs no pairs of vectors, so of one of the two
 * sets the moments are enough. Entries must be in an interval of known length, here `span`; the
 * k-th distance is divided by span^k. Linear in the numbers of all vectors.
 */
#ifndef PL_LEARN_MOMENTS_H
#define PL_LEARN_MOMENTS_H

#include "core/core.h"

#define PL_MOMENTS 5 /* the mean, and the central moments 2 to 5 */

/* m: (PL_MOMENTS, d), of the vectors z (n, d); n > 0. */
void pl_moments_find(const float *z, size_t n, size_t d, double *m);
/* The discrepancy of the vectors z (n, d) from the moments m. dz (NULL: not wanted) += scale times
 * the gradient by z. work: PL_MOMENTS d numbers. */
double pl_moments_discrepancy(const double *m, const float *z, size_t n, size_t d, double span,
			      double scale, float *dz, double *work);

#endif
