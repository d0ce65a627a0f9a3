/* rewrite_predicted.h - changes of durations by a cost model of kernels. */
#ifndef PL_REWRITE_PREDICTED_H
#define PL_REWRITE_PREDICTED_H

#include "cost/predictor.h"
#include "cost/work.h"
#include "rewrite/rewrite_internal.h"

/* What a rank computes: so many times the recorded samples, on this device of the model. */
struct rw_setting {
	double batch;
	uint32_t device;
};
/* [group of `work`]: the ratio of the times in `to` and in `from`; factor NAN: the model does not
 * know the operation, or its sizes do not say what changes. *ratio: pl_free(). PL_EDATA: no
 * operation has sizes. */
int pl_rewrite_ratios(const struct rw_facts *x, const struct pl_work_model *work,
		      struct rw_setting from, struct rw_setting to,
		      struct pl_predictor_ratio **ratio, struct pl_err *err) PL_MUST;
/* The setting with the lines so far. */
struct rw_setting pl_rewrite_setting(const struct rw_facts *x);

/* Standard errors of changed durations, added up: by a rule all are wrong in one direction; by the
 * model those of one part are, and different parts are independent. Zeroed at first. */
struct rw_errors {
	double rule;
	double *part;
	size_t n_parts, cap_parts;
	double known, all; /* times by the model, and all that change */
};
/* part: of the model; PL_NONE: by a rule. ns: of the duration, so many of which the error is. */
int pl_rewrite_add_error(struct rw_errors *e, uint32_t part, double ns, double error,
			 struct pl_err *err) PL_MUST;
double pl_rewrite_error(const struct rw_errors *e);
void pl_rewrite_errors_fini(struct rw_errors *e);

/* [resource]: does its rank compute on a device? *device: pl_free(). */
int pl_rewrite_devices(const struct pl_graph *g, bool **device, struct pl_err *err) PL_MUST;
/* Steps that are reported; 1 at least. */
size_t pl_rewrite_steps(const struct pl_graph *g);

#endif
