/*
 * samples.h - measured operations of several devices and models in memory.
 */
#ifndef PL_KERNEL_SAMPLES_H
#define PL_KERNEL_SAMPLES_H

#include "kernel/schema.h"

struct pl_sample {
	struct pl_kernel k; /* k.op: into samples.op */
	bool known;	    /* k.family and the dimensions are valid */
	struct pl_tile tile;
	uint32_t device; /* into samples.devices */
	uint32_t model;	 /* into samples.model */
	float ns;	 /* NAN: not measured */
};
struct pl_samples {
	struct pl_intern op, model;
	struct pl_devices devices;
	struct pl_sample *v;
	size_t n, cap;
};
void pl_samples_fini(struct pl_samples *s);
/* Append what a table says; its devices are copied. */
int pl_samples_add(struct pl_samples *s, const struct pl_measure *m,
		   const struct pl_devices *devices, struct pl_err *err) PL_MUST;

#endif
