/*
 * boost.h - gradient boosting of regression trees over histograms of the features.
 *
 * Friedman, Greedy function approximation: a gradient boosting machine (Ann. Statist. 29, 2001);
 * histograms and growth by the best leaf as in LightGBM (Ke et al., NeurIPS 2017); second-order
 * leaves and regularisation as in XGBoost (Chen, Guestrin, KDD 2016). A model is a constant plus a
 * sum of trees. The same samples, options and seed give the same model for any number of threads.
 */
#ifndef PL_LEARN_BOOST_H
#define PL_LEARN_BOOST_H

#include "core/pool.h"
#include "io/container.h"

#define PL_BOOST_BINS	  255 /* of a feature, at most */
#define PL_BOOST_FEATURES 256 /* of a model, at most */

/* Samples in columns, borrowed. A value that is not known is NAN. */
struct pl_boost_data {
	size_t n;
	uint32_t n_features;
	const float *const *x; /* [feature][sample] */
	const float *y;	       /* (n) what is to be predicted */
	const float *weight;   /* (n), each 0 or more; NULL: 1 */
};

enum pl_boost_loss {
	PL_BOOST_SQUARE,   /* the mean */
	PL_BOOST_ABSOLUTE, /* near the median: the gradient is limited to `delta` (Huber) */
};

/* Zero-initialised: defaults. */
struct pl_boost_opts {
	uint32_t rounds; /* trees; 0: 200 */
	uint32_t leaves; /* of a tree, at most 1024; 0: 16 */
	uint32_t depth;	 /* splits on the way to a leaf, at most; 0: no limit */
	double rate;	 /* share of each tree that counts; 0: 0.1 */
	double lambda;	 /* weight of a leaf's prior value 0, in samples; 0: 1 */
	double least;	 /* weight of the samples of a leaf, at least; 0: 20 */
	double samples;	 /* share of the samples, and */
	double features; /* of the features, that each tree is grown from; 0: all */
	enum pl_boost_loss loss;
	double delta; /* of PL_BOOST_ABSOLUTE; 0: 0.1 */
	/* [feature]: with greater values the prediction may not fall (1) or rise (-1); NULL: free
	 */
	const int8_t *monotone;
	/* [sample]: the prediction to begin with, in place of a constant; NULL. It is no part of
	 * the model: who applies the model adds it again. */
	const float *start;
	uint64_t seed;
	struct pl_pool *pool; /* NULL: one thread */
};

struct pl_boost_node {
	/* Below or at the value: `left`, above: left + 1. Of a leaf (left 0): the prediction. */
	float value;
	uint16_t feature;
	bool missing_right; /* values that are not known go to left + 1 */
	uint32_t left;	    /* place in `node` */
};
struct pl_boost_flat; /* trees once more, in the form that many samples are applied to */
/* A fitted model: constant while it is used, so that threads may share it. */
struct pl_boost {
	uint32_t n_features, n_trees;
	size_t n_nodes;
	double base;	/* where it began; 0 with `start` */
	double step;	/* predictions of leaves are whole numbers of it, so sums have no error */
	uint32_t *root; /* [tree] */
	struct pl_boost_node *node; /* children of a node are neighbours */
	float *mean;		    /* [node]: the prediction if the tree ended there */
	double *gain;		    /* [feature]: reduction of the loss by its splits */
	struct pl_boost_flat *flat; /* of it alone; NULL: it cannot be flat */
};

/* *m needs no initialisation. PL_EUSAGE: options out of range; PL_EDATA: no samples, or values that
 * are not finite (features may be NAN). */
int pl_boost_fit(const struct pl_boost_data *d, const struct pl_boost_opts *o, struct pl_boost *m,
		 struct pl_err *err) PL_MUST;
void pl_boost_fini(struct pl_boost *m); /* zero-initialised is fine */
/* x: (n_features) of one sample. */
double pl_boost_apply(const struct pl_boost *m, const float *x);
/* x: (n, stride), y: (n). Faster than one sample at a time. */
void pl_boost_apply_many(const struct pl_boost *m, const float *x, size_t stride, size_t n,
			 double *y);
/* Several models of the same features, y: [model][n]. f: of these models; NULL: slowly. */
void pl_boost_apply_each(const struct pl_boost *m, size_t models, const struct pl_boost_flat *f,
			 const float *x, size_t stride, size_t n, double *y);
/* *f is owned by the caller; NULL: a tree has more than 32 leaves, or a feature more than 254
 * thresholds in all models together. */
int pl_boost_flatten(const struct pl_boost *m, size_t models, struct pl_boost_flat **f,
		     struct pl_err *err) PL_MUST;
void pl_boost_flat_free(struct pl_boost_flat *f); /* NULL is fine */
/* Add to part[feature] what each feature contributes to the prediction of x: the changes of the
 * mean along the path of each tree (Saabas, 2014). Their sum and the return value, the prediction
 * of no features, are the prediction. */
double pl_boost_explain(const struct pl_boost *m, const float *x, double *part);

/* As a part of a payload of the container. Reading checks everything that applying relies on. */
void pl_boost_put(const struct pl_boost *m, struct pl_buf *b);
int pl_boost_get(struct pl_cur *c, struct pl_boost *m, struct pl_err *err) PL_MUST;

#endif
