/*
 * model.h - cost models of operations: fitted to measurements, applied to other operations and
 * other devices, with intervals.
 *
 * A model has a part for each operation and type that was measured, and a part for each family, for
 * operations that were not. A part is a floor (what a launch takes), the bounds of feature.h, and a
 * learned factor. Intervals are those of split-conformal prediction (Vovk et al., 2005; Lei et al.,
 * JASA 2018): the middle 90 % of the errors on what the model did not see, for a device that was
 * measured on other shapes, for one that was not on whole devices that were left out.
 */
#ifndef PL_KERNEL_MODEL_H
#define PL_KERNEL_MODEL_H

#include "core/pool.h"
#include "io/write.h"
#include "kernel/feature.h"

enum pl_kernel_flag { PL_KERNEL_IN_RANGE, PL_KERNEL_EXTRAPOLATED, PL_KERNEL_UNKNOWN };
const char *pl_kernel_flag_word(unsigned flag); /* "in-range", "extrapolated", "unknown" */

struct pl_kernel_model; /* opaque, constant while it is used */

struct pl_kernel_fit_opts {
	const char *learner; /* one of PL_KERNEL_LEARNERS; NULL: the first */
	bool intervals;	     /* find them: as many fits again as there are devices, and 3 */
	uint64_t seed;
	struct pl_pool *pool;
};
/* What learns the factor. The last three are what a model must beat: the nearest measured shapes,
 * trees without the bounds, and the bounds alone. */
#define PL_KERNEL_LEARNERS(s) "boost" s "nearest" s "raw" s "roofline"

/* From the measured samples i with use[i] (NULL: all). PL_EDATA: there are none; a data sheet lacks
 * what the types need. */
int pl_kernel_fit(const struct pl_samples *s, const bool *use, const struct pl_kernel_fit_opts *o,
		  struct pl_kernel_model **m, struct pl_err *err) PL_MUST;
void pl_kernel_model_free(struct pl_kernel_model *m); /* NULL is fine */

struct pl_kernel_time {
	double ns, lo_ns, hi_ns; /* NAN: the operation is not known at all */
	uint8_t flag;
	bool few; /* flag UNKNOWN: it was measured, but too seldom for a part of its own */
	/* the logarithm of how many times its sizes are above or below those that were measured, of
	 * flag UNKNOWN in its family; 0 and 0: they are not */
	double above, below;
	uint32_t part; /* of the model: operations of one part err alike; PL_NONE: not known */
	/* the parts of ns: the launch, the greater bound, and the learned factor of the bound */
	double floor_ns, compute_ns, memory_ns, factor;
};
/* Times of n operations; their names and devices are those of `s`. PL_EDATA: the data sheet of a
 * device does not say how fast it computes; of such operations compute_ns is NAN. */
int pl_kernel_apply(const struct pl_kernel_model *m, const struct pl_samples *s,
		    const struct pl_sample *v, size_t n, struct pl_kernel_time *out,
		    struct pl_err *err) PL_MUST;

/*
 * Adapt the model to a device of which a few operations were measured: the floors and offsets of
 * its parts follow from them; its intervals from what is left (from 20 operations on; before, those
 * of devices that were not measured). It begins with what the training knows of the device, not
 * with an earlier adaptation to it. All samples are of one device. PL_EDATA: the model predicts
 * none of them. After a failure the model can only be freed.
 */
int pl_kernel_adapt(struct pl_kernel_model *m, const struct pl_samples *s,
		    struct pl_err *err) PL_MUST;

/* What makes the time of an operation, as text. t: the time, of pl_kernel_apply(). */
void pl_kernel_explain(const struct pl_kernel_model *m, const struct pl_samples *s,
		       const struct pl_sample *x, const struct pl_kernel_time *t,
		       struct pl_writer *w);
/* The same of n operations together, of which v[i] occurs times[i] times: for each name its share
 * of the time, what of that are floor and bounds, and how much each feature of the learned factor
 * matters: the mean of |its logarithm|, weighted by the time. */
int pl_kernel_explain_all(const struct pl_kernel_model *m, const struct pl_samples *s,
			  const struct pl_sample *v, const double *times, size_t n,
			  struct pl_writer *w, struct pl_err *err) PL_MUST;
/* The parts of the model, and which features matter to each, as text. */
void pl_kernel_explain_model(const struct pl_kernel_model *m, struct pl_writer *w);

#define PL_KERNEL_MODEL_MAJOR 1
/* paceline-costmodel(5). The schema is that of the tables that it was made from. */
int pl_kernel_model_write(const struct pl_kernel_model *m, const struct pl_schema *schema,
			  const char *provenance, struct pl_out *out, int level,
			  struct pl_err *err) PL_MUST;
/* Is the file such a model? Consumes nothing. False for what is none, or cannot be read. */
bool pl_kernel_model_is(struct pl_in *in);
int pl_kernel_model_read(struct pl_in *in, struct pl_kernel_model **m, struct pl_schema **schema,
			 struct pl_err *err) PL_MUST; /* both are NULL after a failure */
/* The data sheets of the devices that it was measured on. */
const struct pl_devices *pl_kernel_model_devices(const struct pl_kernel_model *m);

#endif
