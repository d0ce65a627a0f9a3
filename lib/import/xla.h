/*
 * xla.h - profiles of XLA (JAX, TensorFlow), which two readers read: trace.json and XPlane. Both
 * give plain events to the sink below, which finds what they mean.
 *
 * A plain event is a host operation on a track whose process is the plane ("/host:CPU",
 * "/device:GPU:0") and whose name is the line ("python", "Stream #7", "XLA Ops"), and it has its
 * statistics as arguments under their own names.
 */
#ifndef PL_IMPORT_XLA_H
#define PL_IMPORT_XLA_H

#include "import/internal.h"

#define PL_XLA_DEVICES 1024	 /* of a process; more are damage */
#define PL_XLA_NUMBERS (1 << 24) /* of devices */
#define PL_XLA_CPUS    2048	 /* on CPUs, process p has the devices PL_XLA_CPUS * p and up */

/* ---- words: xla_words.c -------------------------------------------------------------------- */

enum pl_xla_plane { PL_XP_OTHER, PL_XP_HOST, PL_XP_DEVICE };
enum pl_xla_line { PL_XL_RANGES, PL_XL_STREAM, PL_XL_OPS, PL_XL_ASYNC, PL_XL_STEPS };
/* What the name of an event of a host says. */
enum pl_xla_class {
	PL_XC_NEW, /* not determined */
	PL_XC_HOST,
	PL_XC_PYTHON,	   /* a function of the interpreter */
	PL_XC_PYTHON_IDLE, /* one that is known to be busy or asleep by itself: time.sleep() */
	PL_XC_DATA,	   /* loading of data, infeed */
	PL_XC_SYNC,	   /* the thread waits for results of a device */
	PL_XC_WAIT,	   /* it waits for something else */
	PL_XC_JOIN,	   /* a call for all devices waits for the launches on them */
	PL_XC_LAUNCH,	   /* starts a program on a device */
	PL_XC_DISPATCH,	   /* starts it on all devices, by threads that launch it on one each */
	PL_XC_CALL,	   /* of a function of TensorFlow, whose operations other threads compute */
	PL_XC_EXECUTOR,	   /* inside the runtime: contains operations that are recorded too */
	PL_XC_RENDEZVOUS,  /* devices of one process meet for a collective */
	PL_XC_NOTE,	   /* bookkeeping of the profiler, no work */
};
enum pl_xla_stat {
	PL_XS_OTHER,
	PL_XS_STEP,
	PL_XS_OP,      /* operation of the program */
	PL_XS_MODULE,  /* the program */
	PL_XS_PROGRAM, /* its number */
	PL_XS_RUN,     /* one execution of it on all devices */
	PL_XS_DEVICE,  /* of this process, from 0 */
	PL_XS_GLOBAL,  /* number of the device in the job */
	PL_XS_CORR,
	PL_XS_NAME, /* of a rendezvous: the collective and its devices */
	PL_XS_FLOPS,
	PL_XS_MOVED,
	PL_XS_BYTES,   /* of a message or copy */
	PL_XS_DETAILS, /* of a copy: text with its size */
	PL_XS_COUNT_
};
/* *device: its number, -1 none. */
uint8_t pl_import_xla_plane(const char *name, int32_t *device);
/* *stream: its number, -1 none. */
uint8_t pl_import_xla_line(const char *name, int64_t *stream);
uint8_t pl_import_xla_class(const char *name);
uint8_t pl_import_xla_stat(const char *key, size_t n);
/* The collective that an operation of XLA or its name in JAX says ("all-reduce.3",
 * "psum_invariant.7", "ppermute"): canonical; NULL: none. */
const char *pl_import_xla_coll(const char *op, size_t n);
/* Does the operation only contain others ("while.3", "call")? Those of CPUs are also found by their
 * times. */
bool pl_import_xla_contains(const char *op);

/* ---- meaning: xla.c ------------------------------------------------------------------------ */

struct pl_xla;
/* `to` gets the events with their meaning when a segment ends; st->events counts those that are
 * added. `st` and `o` are borrowed. */
struct pl_xla *pl_import_xla_new(const struct pl_import_opts *o, struct pl_sink *to,
				 struct pl_import_stats *st, struct pl_err *err);
struct pl_sink *pl_import_xla_sink(struct pl_xla *x);
/* The reader gives the batches of its only segment twice, so that they are not held. The first time
 * its tracks are complete before the batches with their events are, and events of devices need only
 * the statistics of steps, runs, devices and correlations. What the sink gives on comes the second
 * time. Called before the segment begins, and between. */
void pl_import_xla_twice(struct pl_xla *x);
int pl_import_xla_between(struct pl_xla *x, struct pl_err *err) PL_MUST;
/* What the description of a program ("jit_step(12)": module and number) says about a collective of
 * it; before the segment ends. `coll` is canonical; `bytes` is -1 where unknown. */
int pl_import_xla_know(struct pl_xla *x, const char *program, const char *op, size_t n_op,
		       const char *coll, int64_t bytes, struct pl_err *err) PL_MUST;
void pl_import_xla_free(struct pl_xla *x);
/* The same from the description of a program, a HloProto; damage ends it. hlo.c */
int pl_import_hlo(struct pl_xla *x, const char *program, size_t n_program, const uint8_t *p,
		  size_t n, struct pl_err *err) PL_MUST;

#endif
