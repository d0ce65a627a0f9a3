/*
 * eval.h - how far predictions are from measurements, and held-out protocols.
 */
#ifndef PL_KERNEL_EVAL_H
#define PL_KERNEL_EVAL_H

#include "kernel/model.h"

/* What a group has in common. PL_EVAL_SHAPE: operations of a name that take less, or at least,
 * twice the floor of their device, which is what its shortest measured ones take. */
#define PL_EVAL_BY(s) "all" s "op" s "device" s "model" s "shape"
enum pl_eval_by { PL_EVAL_ALL, PL_EVAL_OP, PL_EVAL_DEVICE, PL_EVAL_MODEL, PL_EVAL_SHAPE };

/* Errors are |predicted / measured - 1|, as fractions. NAN: the group has no such figure. */
struct pl_eval_group {
	enum pl_eval_by by;
	const char *key;
	size_t n;
	double mean_ape, median_ape, p90_ape;
	double within10;   /* share whose error is at most 0.1 */
	double bias;	   /* mean of predicted / measured - 1 */
	double coverage90; /* share within the interval */
};
struct pl_eval {
	struct pl_eval_group *v;
	size_t n, cap;
	size_t unpredicted; /* operations without a prediction: part of no group */
	struct pl_arena arena;
};
void pl_eval_fini(struct pl_eval *e);
/* t: (s->n), the predictions of the samples; those that were not measured do not count. */
int pl_eval_groups(const struct pl_samples *s, const struct pl_kernel_time *t, struct pl_eval *e,
		   struct pl_err *err) PL_MUST;

/*
 * Predict each sample by a model that has seen nothing of its device, model, operation (by) or,
 * PL_EVAL_SHAPE, of its shape on any device (one of five parts of all shapes is left out at a
 * time). t: (s->n). PL_EDATA: there is only one of them.
 */
int pl_kernel_cross(const struct pl_samples *s, enum pl_eval_by by,
		    const struct pl_kernel_fit_opts *o, struct pl_kernel_time *t,
		    struct pl_err *err) PL_MUST;

/* A number of the operation's name and dimensions: equal on all devices. */
uint64_t pl_samples_shape(const struct pl_sample *x);

#endif
