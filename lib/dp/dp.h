/*
 * dp.h - data-parallel training: one of the engines of run(1).
 *
 * An engine is what cmd/run drives, whatever it trains with: prepare, step, checkpoint, finish. The
 * data-parallel one synchronises gradients by buckets that are all-reduced while backward still
 * runs (Li et al., PyTorch Distributed, VLDB 2020), in the order and cut as the plan has it.
 */
#ifndef PL_DP_H
#define PL_DP_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "data/weights.h"
#include "plan/job.h"
#include "plan/plan.h"
#include "tensor/device_trace.h"
#include "tensor/net.h"
#include "trace/trace.h"

struct pl_recorder; /* rec.h: events of this process, written as a trace */
struct pl_tracer;   /* below: what the engine and its world record there */

struct pl_engine_opts {
	const struct pl_job *job;
	const struct pl_model *model;
	const struct pl_plan *plan; /* NULL: none */
	const struct pl_dataset *data;
	/* NULL: the CPU, with the job's threads. ctx: of the backend, NULL: opened here; it
	 * outlives the engine. store: that of ctx. */
	const struct pl_backend *backend;
	void *ctx;
	enum pl_store store;
	struct pl_world *world;	  /* NULL: one rank */
	struct pl_tracer *tracer; /* NULL: no trace */
	const struct pl_log *log;
};
struct pl_step_result {
	double loss;			    /* of this rank's batch */
	int64_t samples, hits, classified;  /* hits of so many; 0: nothing is classified */
	pl_ns step_ns, compute_ns, wait_ns; /* wait: nothing but waiting for communication */
	uint64_t bytes_sent;		    /* in all */
};
struct pl_engine {
	const char *name;   /* "dp" */
	const char *policy; /* of reports: "bsp" */
	int (*prepare)(const struct pl_engine_opts *o, void **state, struct pl_err *err);
	int (*step)(void *state, int64_t step, struct pl_step_result *r, struct pl_err *err);
	/* Sums over all ranks, the same bits on each; all ranks call it alike. */
	int (*sum)(void *state, double *v, size_t n, struct pl_err *err);
	/* Mean loss and hits over the held-out samples; all ranks call it. */
	int (*eval)(void *state, double *loss, int64_t *hits, int64_t *samples, struct pl_err *err);
	/* Everything that the next step depends on, to or from a file; bit-identical afterwards.
	 * All ranks call it, rank 0 writes. `step`: the next one. */
	int (*save)(void *state, const char *path, int64_t step, struct pl_err *err);
	int (*load)(void *state, const char *path, int64_t *step, struct pl_err *err);
	/* Weights by name, to or from a safetensors file; all ranks call it, rank 0 writes. */
	int (*export_weights)(void *state, const char *path, struct pl_err *err);
	int (*import_weights)(void *state, const char *path, struct pl_err *err);
	/* lost: the world ended before, and its memory with it (pl_world_abort()). NULL is fine. */
	void (*finish)(void *state, bool lost);
};
extern const struct pl_engine pl_engine_dp;

/* ---- buckets ------------------------------------------------------------------------------- */

/*
 * The buckets that the engine uses for a job and a plan, in the order of their issue, tensors by
 * name. Without a plan as DDP does it: gradients in the order in which they become ready (from the
 * last parameter to the first) fill a bucket until it has `bucket_mb` MiB, the first until it
 * has 1.
 */
struct pl_dp_bucket {
	uint32_t first, n; /* tensors of the net: index[first ..], by place in the slab */
	size_t count;	   /* floats that travel */
	size_t offset;	   /* in the slab, where `whole` */
	bool whole;	   /* neighbours in the slab: sent as they lie there; else copied */
	uint32_t parts;	   /* 1: whole */
	uint8_t algo;	   /* enum pl_calgo */
};
struct pl_dp_buckets {
	struct pl_dp_bucket *v;
	uint32_t n;
	uint32_t *index; /* tensors of the net */
	uint32_t *of;	 /* bucket of each tensor of the net */
	uint32_t n_tensors;
	int64_t accumulate;	/* microbatches; 1 */
	const char **recompute; /* names of layers, as the plan has them (borrowed from it) */
	size_t n_recompute, cap_recompute;
};
/*
 * bucket_mb: 0 is 25. A plan addresses tensors as the net calls them ("fc1.weight"), by their
 * number in the order of readiness ("grad 3 512x784", as graphs of traces call them), or as whole
 * buckets of the default ("bucket 2"). PL_EDATA: it names others. What the plan asks for and this
 * engine does not do (priority, fuse-ops ...) is said to `log`.
 */
int pl_dp_buckets(const struct pl_net_tensor *t, uint32_t n, double bucket_mb, uint8_t algo,
		  const struct pl_plan *plan, const struct pl_log *log, struct pl_dp_buckets *b,
		  struct pl_err *err) PL_MUST;
/* What plans and jobs call an algorithm ("halving-doubling"), as enum pl_calgo; -1: not ours. */
int pl_dp_algo(const char *word);
void pl_dp_buckets_fini(struct pl_dp_buckets *b);

/* ---- tracing ------------------------------------------------------------------------------- */

/* Tracks and names of one rank in its recorder. Open before the world, whose events it takes. */
int pl_tracer_new(struct pl_recorder *rec, struct pl_tracer **t, struct pl_err *err) PL_MUST;
void pl_tracer_free(struct pl_tracer *t); /* after the world; NULL is fine */
/*
 * From now on with what the device of a backend's context does, which the calling thread trains
 * with. Once. Before a communication library that has a profiler is opened; what cannot be had is
 * said to `log`.
 */
int pl_tracer_device(struct pl_tracer *t, const struct pl_device_trace *d, void *ctx,
		     const struct pl_log *log, struct pl_err *err) PL_MUST;
/* Between steps, when the device is idle: joins what was told so far, if that is much. */
void pl_tracer_settle(struct pl_tracer *t);
/* The context is still there, and the device idle, unless that is not to be had (a failed job).
 * *lost: events that found no room. */
int pl_tracer_stop(struct pl_tracer *t, bool idle, uint64_t *lost, struct pl_err *err) PL_MUST;
/* The `event` of pl_world_opts, with the tracer as its argument. */
void pl_tracer_comm(void *tracer, const struct pl_comm_event *e);

#endif
