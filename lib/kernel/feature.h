/*
 * feature.h - what physics says of an operation on a device, and the features from which the rest
 * is learned.
 *
 * time = floor + max(compute, memory) x what is learned. compute and memory are lower bounds by the
 * data sheet: the multiprocessor with most tiles works through them at its peak rate; all bytes
 * travel once at the bandwidth of memory. So a device enters by its data sheet alone, and the
 * learned factor is about the same on all devices.
 */
#ifndef PL_KERNEL_FEATURE_H
#define PL_KERNEL_FEATURE_H

#include "kernel/samples.h"

#define PL_FEATURES 16

struct pl_physics {
	double compute_ns, memory_ns; /* 0: none of it */
	/* Operations that only move bytes: what a multiprocessor would take for its share of them
	 * with a byte in each clock. */
	double request_ns;
};

/* What was learned of devices before anything else. */
#define PL_GENERATIONS 16
struct pl_rates {
	/* FLOP per ns and W that boards sustain whose power limits them, at the process of
	 * capability 7.0; INFINITY: no such board was measured. */
	double flops_per_watt;
	double least[PL_GENERATIONS]; /* that some board of the generation sustains; 0: unknown */
};
void pl_feature_rates_init(struct pl_rates *r); /* nothing was measured */
/* FLOP per ns of a type that the device sustains, and by its data sheet; NAN: it does not say. */
double pl_device_rate(const struct pl_device *d, unsigned type, const struct pl_rates *r,
		      double *peak);
int pl_feature_rates(struct pl_rates *r, const struct pl_samples *s, const bool *use,
		     struct pl_err *err) PL_MUST;

/* The kind of kernels that libraries have for a device, by its compute capability: 6, 7, 8 ...; 0:
 * not known. */
int pl_device_generation(const struct pl_device *d);

/* x: (PL_FEATURES), NAN where a family has none. `tile`: of products. */
void pl_kernel_features(const struct pl_kernel *k, const struct pl_device *d,
			const struct pl_rates *r, struct pl_tile tile, struct pl_physics *p,
			float *x);
/* The same in two steps. Of some operations first all begin and then all end, which takes less time
 * than one by one: vectors of numbers that were just written would wait for them. */
struct pl_raw_features {
	double v[PL_FEATURES];
	unsigned logged; /* set of those of which the logarithm is taken */
};
void pl_feature_begin(const struct pl_kernel *k, const struct pl_device *d,
		      const struct pl_rates *r, struct pl_tile tile, struct pl_physics *p,
		      struct pl_raw_features *x);
void pl_feature_end(const struct pl_raw_features *raw, float *x);
/* Natural logarithms of v[0 .. n - 1] as exact as float is, n a multiple of 4; of less than 1e-30
 * that of 1e-30, of values that are unknown or infinite NAN. */
void pl_feature_logs(const double *v, size_t n, float *x);
/* Names of features, and in which direction the time may go with them: 1, 0. */
const char *pl_kernel_feature_name(unsigned family, unsigned i); /* NULL: unused */
int pl_kernel_feature_direction(unsigned family, unsigned i);
uint32_t pl_kernel_n_features(unsigned family); /* those before the first unused one */
/* The product that a convolution computes. */
struct pl_kernel pl_kernel_as_gemm(const struct pl_kernel *k);

#endif
