/* model_internal.h - a cost model in memory. */
#ifndef PL_KERNEL_MODEL_INTERNAL_H
#define PL_KERNEL_MODEL_INTERNAL_H

#include <math.h>

#include "kernel/learner.h"
#include "kernel/model.h"

/* ---- which tile a library takes (tiles.c) -----------------------------------------------------
 */

#define TILE_CLASSES 16
struct tile_chooser { /* of a generation */
	int generation;
	uint32_t n;
	struct pl_tile tile[TILE_CLASSES];
	struct pl_boost is[TILE_CLASSES]; /* that it is this tile */
	struct pl_boost_flat *flat;	  /* all of them */
};
struct tiles {
	struct tile_chooser *v;
	size_t n, cap;
};
void pl_tiles_fini(struct tiles *t);
/* From the samples v[0] .. v[n - 1] of one operation, as far as their kernels are known. */
int pl_tiles_fit(struct tiles *t, const struct pl_samples *s, const uint32_t *v, size_t n,
		 struct pl_err *err) PL_MUST;
struct tile_query { /* a product on a device */
	const struct pl_kernel *k;
	const struct pl_device *d;
};
/* The tile of each; many at once take a tenth of the time. */
void pl_tiles_choose(const struct tiles *t, const struct tile_query *q, size_t n,
		     struct pl_tile *tile);
struct pl_tile pl_tiles_choose_one(const struct tiles *t, const struct pl_kernel *k,
				   const struct pl_device *d);
void pl_tiles_put(const struct tiles *t, struct pl_buf *b);
int pl_tiles_get(struct pl_cur *c, struct tiles *t, struct pl_err *err) PL_MUST;

/* ---- intervals (interval.c) -------------------------------------------------------------------
 */

#define BINS 3 /* of the time by the floor: below 2, below 6, more */
struct quantiles {
	double low, high; /* of log(measured / predicted) */
	uint32_t n;	  /* errors that say so; 0: unknown */
};
struct spread { /* of a part */
	struct quantiles bin[BINS], all;
};
/* By how much the logarithms of the ends of an interval go down and up for each unit of the
 * distance from the sizes that were measured, which counts as `least` at least (outside.c). */
struct growth {
	double low, high, least;
	uint32_t n; /* errors that say so; 0: unknown */
};
static inline unsigned bin_of_time(double ns, double floor_ns)
{
	return ns < 2 * floor_ns ? 0 : ns < 6 * floor_ns ? 1 : 2;
}

/* ---- parts ------------------------------------------------------------------------------------
 */

struct range {
	double low, high;
};
struct part {
	uint32_t op; /* into model.op; PL_NONE: of a family */
	uint8_t family, type;
	uint32_t n;	    /* samples */
	double floor_ns;    /* of a device that was not measured */
	double ns_per_byte; /* of communication; 0: nothing measured shows it */
	double clocks;	    /* that a multiprocessor needs for a byte; operations that move bytes */
	struct tiles tiles;
	void *learned;	      /* of the model's learner */
	double *device_floor; /* [device of the model]; NAN: not measured there */
	double *offset;	      /* [device]: log(measured / learned); 0: unknown */
	/* The least and the greatest measured value; `bound` is divided by the floor, `work`
	 * is that of pl_part_work(), `rate` that of pl_part_rate(). */
	struct range dim[PL_KERNEL_DIMS], bound, work, bandwidth, rate;
	/* On a measured device; on another. Of the part of a family: of operations that were not
	 * measured. */
	struct spread known, other;
	struct growth growth[2]; /* below the sizes that were measured, above */
};
struct level {		      /* of a part on a device */
	double floor, offset; /* as in struct part */
};
struct pl_kernel_model {
	struct pl_devices devices;
	struct pl_intern op;
	struct pl_rates rates;
	const struct kernel_learner *learner;
	struct part *part;
	size_t n_parts, cap_parts;
	struct pl_intern part_key; /* [part]: struct pl_kernel_key, to find it */
	/* Operations that were measured, but have no part: [name, family and type]: log(measured /
	 * what the part of the family predicts). */
	struct pl_intern few_key;
	double *few;
	size_t n_few, cap_few;
	struct spread known, other; /* of all parts together */
	struct growth growth[2];
	/* [device]: of one to which the model was adapted; n 0: none */
	struct quantiles *adapted;
	/* [part * devices.n + device]: what the training found, where another adaptation begins.
	 * NULL: the model was not adapted. */
	struct level *trained;
	bool *trained_on; /* [device]: was it measured for the training? NULL like `trained` */
	bool intervals;
};

/* On a device of the model; PL_NONE: on another one. */
static inline double pl_part_floor(const struct part *p, uint32_t device)
{
	return device == PL_NONE || isnan(p->device_floor[device]) ? p->floor_ns
								   : p->device_floor[device];
}

static inline double pl_part_memory(const struct part *p, const struct pl_physics *x)
{
	return pl_kernel_is_comm(p->family) ? x->memory_ns * p->ns_per_byte
					    : hypot(x->memory_ns, p->clocks * x->request_ns);
}
/* How much an operation is to do, on whatever device; of those whose work is not known the product
 * of their sizes. */
static inline double pl_part_work(const struct pl_kernel *k)
{
	struct pl_kernel_work w = pl_kernel_work(k);

	return k->family == PL_KERNEL_OTHER ? k->dim[0] * k->dim[1] * k->dim[2] * k->dim[3]
					    : fmax(w.flops, w.bytes);
}

/* FLOP per ns of a device by which it is compared with those that were measured: of products what
 * it sustains in their type; of others, which it does not bound, that in float32. */
static inline double pl_part_rate(const struct part *p, const struct pl_device *d,
				  const struct pl_rates *r)
{
	double peak;

	return p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV
		       ? pl_device_rate(d, p->type, r, &peak)
		       : d->flops;
}

/* What the data sheet allows at least. */
static inline double pl_part_bound(const struct part *p, const struct pl_physics *x)
{
	return isnan(x->compute_ns) ? NAN : fmax(x->compute_ns, pl_part_memory(p, x));
}

int pl_kernel_lacks_rate(const struct pl_device *d, const struct pl_kernel *k, struct pl_err *err);

/* What has a part, or an offset, of its own. Without padding: its bytes are what is looked for. */
struct pl_kernel_key {
	uint32_t op; /* into model.op; PL_NONE: of a family */
	uint32_t family, type;
};
/* To the end of `keys`; false: it is there already. */
int pl_kernel_add_key(struct pl_intern *keys, uint32_t op, unsigned family, unsigned type,
		      bool *is_new, struct pl_err *err) PL_MUST;
/* The part for an operation: of its name and type, else of its family and type; NULL. */
const struct part *pl_kernel_part(const struct pl_kernel_model *m, uint32_t op, unsigned family,
				  unsigned type);
/* The offset of an operation from the part of its family; NULL: it was not measured, or has a part.
 */
const double *pl_kernel_few(const struct pl_kernel_model *m, uint32_t op, unsigned family,
			    unsigned type);
/* Errors on what the model did not see, for its intervals. */
int pl_kernel_find_intervals(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			     const struct pl_kernel_fit_opts *o, struct pl_err *err) PL_MUST;
/* The same for operations that were not measured, after the others: of the parts of families. */
int pl_kernel_find_unknown(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			   const struct pl_kernel_fit_opts *o, struct pl_err *err) PL_MUST;
/* A model of one part: that of a family and type alone, from `most` samples at most. It has no
 * intervals. */
int pl_kernel_fit_family(const struct pl_samples *s, const bool *use,
			 const struct pl_kernel_fit_opts *o, const struct part *family, size_t most,
			 struct pl_kernel_model **out, struct pl_err *err) PL_MUST;
/* m->trained_on, from m->trained. */
int pl_kernel_find_trained(struct pl_kernel_model *m, struct pl_err *err) PL_MUST;
/* m->growth and those of its parts, from the intervals of shapes. */
int pl_interval_find_growth(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			    const struct pl_kernel_fit_opts *o, struct pl_err *err) PL_MUST;
/* Widens an interval, of factors of a time, for a distance above 0. Where nothing shows by how
 * much, it is a guess. */
void pl_interval_grow(const struct pl_kernel_model *m, const struct part *p, bool above,
		      double distance, double *low, double *high);

/* What a model of the samples without those of left[] predicts for them. */
struct pl_interval_trial {
	struct pl_sample *v;
	struct pl_kernel_time *time;
	size_t n;
};
int pl_interval_try(const struct pl_samples *s, const bool *use, const struct pl_kernel_fit_opts *o,
		    const bool *left, struct pl_interval_trial *t, struct pl_err *err) PL_MUST;
void pl_interval_trial_fini(struct pl_interval_trial *t);
/* The part of the model to whose operations this sample belongs; n_parts: none. */
size_t pl_interval_part(const struct pl_kernel_model *m, const struct pl_sample *x);
/* Of errors on shapes that were left out. */
struct quantiles pl_interval_of_shapes(const struct pl_kernel_model *m, const struct part *p,
				       unsigned bin);
/* From n errors; reorders them. */
struct quantiles pl_interval_quantiles(double *error, size_t n);
/* For another device, if no device was left out: the quantiles of shapes, widened by a guess. */
struct quantiles pl_interval_of_others(const struct quantiles *shapes);
/* *to holds what both hold; a `q` of no errors changes nothing. */
void pl_interval_widen(struct quantiles *to, const struct quantiles *q);
/* *to reaches as far as errors of both kinds together, if they are independent. */
void pl_interval_combine(struct quantiles *to, const struct quantiles *q);
/* The interval of a time that the part predicts, by that time; NAN: there is none.
 * bin: of the time. device: of the model, PL_NONE: it was not measured. */
void pl_kernel_interval(const struct pl_kernel_model *m, const struct part *p, uint32_t device,
			unsigned bin, double *low, double *high);

#endif
