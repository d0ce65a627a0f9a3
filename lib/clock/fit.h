/* fit.h - the state of the estimator: fit.c, fit_start.c, fit_interval.c. */
#ifndef PL_CLOCK_FIT_H
#define PL_CLOCK_FIT_H

#include "clock/internal.h"

/* The model: end = t + base + a + b u, u = (t - mid) / span, t on the root. */
struct pl_fit_clock {
	pl_ns base;
	double slope; /* first guess, ns a ns */
	double a, b;  /* ns; b over the whole span */
	bool in_tree, a_free, b_free;
	uint32_t count; /* matches */
};
struct pl_fit {
	const struct pl_clock_fit_in *in;
	struct pl_arena mem; /* of all arrays below */
	uint32_t n, root;    /* clocks; the one that the others are compared with */
	struct pl_fit_clock *clock;
	pl_ns t0;
	pl_ns *tau; /* of each match: about its t */
	double *u;
	double span;
	pl_ns mid;
	/* of each observation */
	uint32_t *clock_of;
	double *y, *r, *w;	     /* end - base - tau; residual; weight */
	uint32_t *first;	     /* of each match: its observations, n_matches + 1 */
	uint32_t *by_class, *class0; /* observations by class and clock; n_classes + 1 */
	double *scale;		     /* of each class */
	double prior;		     /* weight of the assumption that drifts are small */
	double psi_ratio;	     /* mean weight over mean derivative of the influence */
};

/* fit_start.c: base, slope, in_tree of all clocks that communication joins to the root; then tau,
 * u, y and a, b. */
int pl_clock_fit_start(struct pl_fit *f, struct pl_err *err) PL_MUST;

/* The mean of v's effect on the members of a match, by weight; 0 if none has one. Ranks of one
 * host share a clock, so the effect is computed once for neighbours. */
static inline double pl_clock_fit_mean(const struct pl_fit *f, uint32_t match, const double *v)
{
	double sum = 0, weight = 0, u = f->u[match];

	for (uint32_t i = f->first[match], to = f->first[match + 1]; i < to;) {
		uint32_t c = f->clock_of[i];
		double effect = v[c] + v[f->n + c] * u;

		do {
			sum += f->w[i] * effect;
			weight += f->w[i];
		} while (++i < to && f->clock_of[i] == c);
	}
	return weight > 0 ? sum / weight : 0;
}

/* fit.c */
/* The block of H of each clock alone: aa, ab, bb. */
void pl_clock_fit_blocks(const struct pl_fit *f, double *own);
/* Solve H z = g for the free parameters, where H is the weighted normal matrix with the matches'
 * own times eliminated. g, z: a of each clock, then b. */
int pl_clock_fit_cg(const struct pl_fit *f, const double *g, double *z, struct pl_err *err) PL_MUST;

/* fit_interval.c: half widths of 95 % intervals of the statistical error, of b or, with u_first, of
 * the offsets there. Below 0: unknown. unseen: what bounds the error of offsets beside the jitter;
 * below 0: unknown. NULL: of b. */
int pl_clock_fit_intervals(const struct pl_fit *f, const double *u_first, double *ci,
			   double *unseen, struct pl_err *err) PL_MUST;

#endif
