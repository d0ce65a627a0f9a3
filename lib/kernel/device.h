/*
 * device.h - data sheets: what is known of a device without measuring on it.
 *
 * A data sheet is a JSON object in a file NAME.json. NAME is what --device takes. Members, all
 * numbers but the first: Device (how programs report it), Dev_Mem (GB), Mem_Bw (GB/s), Num_Sm,
 * Core_Per_SM (lanes of float32), Freq (MHz), SingleFLOPs (GFLOP/s; SingleFLOPsMM of matrices and
 * SingleFLOPsVEC instead), HalfTensorFLOPs (GFLOP/s of tensor cores, dense), L2Cache (MB),
 * Power (W), Capability (compute capability: 8.0). Without these two, those of boards that are
 * known by name count (boards.c). Host_Launch (us) is what a host needs to launch an operation,
 * Host_Launch_Low and Host_Launch_High are its interval of 90 %.
 */
#ifndef PL_KERNEL_DEVICE_H
#define PL_KERNEL_DEVICE_H

#include "core/core.h"

struct pl_device {
	char *name;			/* of the file, without ".json" */
	char *title;			/* the member Device */
	char *file;			/* that the sheet was read from; NULL: none */
	double memory_bytes, bandwidth; /* bandwidth: bytes per ns */
	double sms, lanes;		/* multiprocessors (cores of a CPU), lanes of each */
	double clock_ghz;
	double flops;	   /* of float32, per ns */
	double half_flops; /* of tensor cores, per ns; NAN: not known */
	double l2_bytes;   /* NAN: not known */
	double watts;	   /* limit of the power; NAN: not known */
	double capability; /* compute capability; NAN: not known */
	double cpu;	   /* 1: a CPU, whose products have no tiles to speak of; else NAN */
	/* of a launch, below HOST_MOST; NAN: not known */
	double host_ns, host_low_ns, host_high_ns;
	bool measured; /* a model was measured on it: pl_device_add_measured() */
};
#define PL_DEVICE_HOST_MOST 1e15

struct pl_devices {
	struct pl_device *v;
	size_t n, cap;
	struct pl_arena arena;
};
void pl_device_fini(struct pl_devices *d);
/* Add every NAME.json of the folder whose NAME is not there yet. PL_EDATA names file, member and
 * remedy. */
int pl_device_read(struct pl_devices *d, const char *folder, struct pl_err *err) PL_MUST;
/* Add one data sheet of n bytes. */
int pl_device_add(struct pl_devices *d, const char *name, const char *json, size_t n,
		  struct pl_err *err) PL_MUST;
/* Add a copy. */
int pl_device_copy(struct pl_devices *d, const struct pl_device *x, uint32_t *at,
		   struct pl_err *err) PL_MUST;
/* Add the data sheets of a model, by which it was measured. Where d has another one of that name,
 * or of one that is equal to it, the model's counts, with its name, but for the launch of the host,
 * of which nothing is learned; a warning names the file of the other. */
int pl_device_add_measured(struct pl_devices *d, const struct pl_devices *measured,
			   const struct pl_log *log, struct pl_err *err) PL_MUST;
/* The device with that name or title, in which blanks, "-" and "_" are equal and case does not
 * matter: of several one that was measured; else the only one whose name or title ends with the
 * word. PL_NONE: none, or several. */
uint32_t pl_device_find(const struct pl_devices *d, const char *name);
/* The device with exactly that name; PL_NONE: there is none. */
uint32_t pl_device_named(const struct pl_devices *d, const char *name);
/* PL_EDATA: "there is no data sheet of NAME", with those that there are; or NAME fits several. */
int pl_device_missing(const struct pl_devices *d, const char *name, struct pl_err *err);

/* Power limit and compute capability of a board by its name (public data sheets). false: unknown */
bool pl_device_board(const char *title, double *watts, double *capability);

#endif
