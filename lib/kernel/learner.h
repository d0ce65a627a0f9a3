/*
 * learner.h - what learns the factor between the bounds of an operation and its time: one table, so
 * that boosted trees, a network and what they must beat are compared under the same protocol.
 */
#ifndef PL_KERNEL_LEARNER_H
#define PL_KERNEL_LEARNER_H

#include "kernel/feature.h"
#include "learn/boost.h"

struct learner_data {
	const struct pl_boost_data *d; /* PL_FEATURES columns; y: log(time / bound) */
	const int8_t *direction;       /* [feature]: monotone */
	uint32_t n_features;	       /* that the family has */
	uint64_t seed;
	struct pl_pool *pool;
};
struct kernel_learner {
	const char *name;
	bool bounds; /* the bounds take part; else y is the log of the time alone */
	int (*fit)(const struct learner_data *x, void **model, struct pl_err *err);
	/* x: (n, PL_FEATURES), y: (n) */
	void (*apply)(const void *model, const float *x, size_t n, double *y);
	/* Adds to part[PL_FEATURES]; returns the rest of the prediction. NULL: it cannot say. */
	double (*explain)(const void *model, const float *x, double *part);
	/* [feature]: how much it matters, in all 1. NULL: it cannot say. */
	void (*importance)(const void *model, double *share);
	void (*free)(void *model);
	void (*put)(const void *model, struct pl_buf *b);
	/* Of a family with so many features: what is learned may use no others. */
	int (*get)(struct pl_cur *c, uint32_t n_features, void **model, struct pl_err *err);
};
/* By name; NULL: there is none. Name NULL: the usual one. */
const struct kernel_learner *pl_kernel_learner(const char *name);

#endif
