/*
 * predictor.h - how long the operations of a graph take by a cost model of kernels (predict(1)): on
 * the device of the recording or another one, with the recorded sizes or others.
 */
#ifndef PL_COST_PREDICTOR_H
#define PL_COST_PREDICTOR_H

#include "graph/edit.h"
#include "kernel/model.h"

struct pl_predictor; /* opaque, constant while it is used */

struct pl_predictor_opts {
	const char *model; /* a file, paceline-costmodel(5) */
	const char *const *folder;
	size_t n_folders; /* of data sheets, besides those of the model */
	/* The device of the recording; NULL: the one that the model was measured on. */
	const char *device;
	const struct pl_log *log; /* for warnings; NULL: none */
};
/* PL_EDATA: it is a model of tensor programs, or no model. PL_EUSAGE: there is no data sheet of the
 * device, or the model has several devices and none is named. */
int pl_predictor_open(const struct pl_predictor_opts *o, struct pl_predictor **p,
		      struct pl_err *err) PL_MUST;
/* Of a model and data sheets that belong to the caller and outlive it; `device` is one of these. */
int pl_predictor_of(const struct pl_kernel_model *m, const struct pl_devices *devices,
		    uint32_t device, struct pl_predictor **p, struct pl_err *err) PL_MUST;
void pl_predictor_free(struct pl_predictor *p);		      /* NULL is fine */
uint32_t pl_predictor_recorded(const struct pl_predictor *p); /* the device of the recording */
/* The device of that name. PL_EDATA: there is no data sheet of it. */
int pl_predictor_find(const struct pl_predictor *p, const char *name, uint32_t *device,
		      struct pl_err *err) PL_MUST;
uint32_t pl_predictor_n_devices(const struct pl_predictor *p); /* that have a data sheet */
const char *pl_predictor_device_name(const struct pl_predictor *p, uint32_t device);

#define PL_PREDICTOR_UNKNOWN 0.25 /* least standard error of a ratio, for an unknown operation */
#define PL_PREDICTOR_ERROR   0.1  /* standard error of a time without an interval, as a share */

struct pl_predictor_op {
	const char *name;     /* of the operation */
	struct pl_gwork work; /* its row of work */
	const char *dims;     /* sizes of its inputs, as pl_gwork.dims; NULL: unknown */
	uint8_t type;	      /* enum pl_kernel_type of its elements */
	uint32_t device;
};
/* An operation of the graph with its recorded work, on the recorded device. Borrows. */
struct pl_predictor_op pl_predictor_op(const struct pl_predictor *p, const struct pl_graph *g,
				       pl_id name, uint32_t work);
/* The same of a node of an edit that has a row of work, as earlier changes left it. Borrows. */
struct pl_predictor_op pl_predictor_edit_op(const struct pl_predictor *p, const struct pl_edit *e,
					    uint32_t node);
/*
 * The times of n operations. A table of measurements has the time from before the launch to the
 * end, but in a step the launch overlaps with the operations before: of a device that launches,
 * most of the floor is not counted. An operation that the model does not know by its own name is
 * taken for its kernel ("linear") or, where it only moves data, for one that moves as many bytes.
 * t[i].ns is NAN where the model has nothing alike.
 */
int pl_predictor_times(const struct pl_predictor *p, const struct pl_predictor_op *op, size_t n,
		       struct pl_kernel_time *t, struct pl_err *err) PL_MUST;

/*
 * The same in steps, for a caller that wants the samples themselves: ask for each operation, apply
 * the model to all samples, then answer for each operation.
 */
struct pl_predictor_asked { /* samples that stand for an operation, PL_NONE: there is none */
	uint32_t own, kernel, bytes;
	double count; /* it takes so many of `kernel` */
};
int pl_predictor_ask(const struct pl_predictor *p, const struct pl_predictor_op *op,
		     struct pl_samples *s, struct pl_predictor_asked *a,
		     struct pl_err *err) PL_MUST;
/* The sample that counts, by the times of all samples, and how many times. PL_NONE: none is known.
 */
uint32_t pl_predictor_sample(const struct pl_predictor_asked *a, const struct pl_kernel_time *of,
			     double *times);
/* Its time in a step of the device. False: the model has nothing alike, and t->ns is NAN. */
bool pl_predictor_answer(const struct pl_predictor *p, uint32_t device,
			 const struct pl_predictor_asked *a, const struct pl_kernel_time *of,
			 struct pl_kernel_time *t);

/*
 * Operations of the recorded device that only move data, whatever they are called: the times of
 * those that read and write 2^10, 2^11 .. bytes. NAN: the model knows nothing alike.
 */
#define PL_PREDICTOR_MOVES 28
struct pl_predictor_moves {
	double ns[PL_PREDICTOR_MOVES];
};
int pl_predictor_moves(const struct pl_predictor *p, struct pl_predictor_moves *m,
		       struct pl_err *err) PL_MUST;
/* The time for so many bytes: the line through the two sizes around them. */
double pl_predictor_move(const struct pl_predictor_moves *m, double bytes);

/* By how much times change. */
struct pl_predictor_ratio {
	double factor; /* NAN: the model has nothing alike */
	bool known;    /* the model knows the operation, and its sizes are in range */
	double error;  /* standard error of the factor */
	uint32_t part; /* of the model: errors of one part are alike, and do not average out */
};
/*
 * The time of each operation then[i] by that of now[i]. Errors of a model on two sizes of one
 * operation are alike, so they cancel in the quotient as far as the sizes are near. `distance`: the
 * logarithm of the ratio of sizes; INFINITY: nothing cancels, as between two devices.
 */
int pl_predictor_ratios(const struct pl_predictor *p, const struct pl_predictor_op *now,
			const struct pl_predictor_op *then, size_t n, double distance,
			struct pl_predictor_ratio *r, struct pl_err *err) PL_MUST;

#endif
