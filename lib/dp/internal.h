/* internal.h - what the files of the data-parallel engine share. */
#ifndef PL_DP_INTERNAL_H
#define PL_DP_INTERNAL_H

#include "dp/dp.h"
#include "dp/rec.h"

/* ---- tracer.c ------------------------------------------------------------------------------ */

struct pl_tracer {
	struct pl_recorder *rec;
	pl_id main, comm, *link; /* tracks */
	uint32_t n_links;
	size_t cap_links;
	pl_ns *sent; /* when the last send of a peer and channel was over; 0: none yet */
	size_t n_sent, cap_sent;
	pl_id group, coll[PL_OP_COUNT_], step, batch, optimizer, wait, loss, ready, pace, issue,
		sum, bf16;
	/* by bucket and by layer; set before the first step */
	pl_id *bucket, *forward, *again, *backward, *dims;
	uint32_t n_buckets, n_layers, n_tensors;
	struct tracer_device *device; /* of device.c; NULL: none is traced */
	pl_ns waiting;		      /* the main thread waits for communication since then */
};
int tracer_names(struct pl_tracer *t, struct pl_net *net, const struct pl_dp_buckets *b,
		 struct pl_err *err) PL_MUST;

/* ---- device.c ------------------------------------------------------------------------------ */

/* What is asked of the device for one layer begins, ends; `name`: its operation. */
void tracer_range(struct pl_tracer *t, pl_id name, bool begin);
/* The calling thread, the one that trains, has waited since `begin` for all that it asked of the
 * device. */
void tracer_synced(struct pl_tracer *t, pl_ns begin);
/* Are all calls and kernels traced, those of the communication library among them? */
bool tracer_has_calls(const struct pl_tracer *t);
/* The calling thread has launched a collective, or the copy of its result: what it did not do
 * before was to wait for it. */
void tracer_launched(struct pl_tracer *t, const struct pl_comm_event *e);

/*
 * Tags of collectives: the step and bucket that they are of, the last few of which are sums of a
 * few numbers. 0: neither (a broadcast).
 */
#define TAG_BUCKETS 65536
#define TAG_SUMS    1024
static inline uint64_t tag_of(int64_t step, uint32_t bucket)
{
	return (uint64_t)(step + 1) * TAG_BUCKETS + bucket;
}
static inline int32_t tag_step(uint64_t tag)
{
	return (int32_t)(tag / TAG_BUCKETS) - 1;
}

/* ---- feed.c: what a step trains on --------------------------------------------------------- */

struct feed {
	const struct pl_dataset *d;
	size_t train; /* samples (of tokens: places) that are trained on; the others are held out */
	size_t each;  /* floats of a sample, of tokens: the context */
	int batch, rank, ranks;
	uint64_t seed;
	bool tokens;
	int64_t fetched;  /* the step whose batch is here; -1: none */
	size_t *index;	  /* (batch) */
	float *x;	  /* (batch, each) */
	float *target;	  /* (batch, n_targets) */
	int32_t *ids, *y; /* (batch, context); (batch) or (batch, context) */
};
int feed_init(struct feed *f, const struct pl_engine_opts *o, struct pl_net *net, int batch,
	      struct pl_err *err) PL_MUST;
void feed_fini(struct feed *f);
/* The rank's batch of a step, unless it is here since an earlier call. */
void feed_step(struct feed *f, int64_t step);
/* Samples first .. first + n - 1 of the held-out part; how many there are. */
size_t feed_held_out(const struct feed *f);
void feed_eval(struct feed *f, size_t first, int n);
/* Rows from .. from + n - 1 of what was fetched last. */
struct pl_batch_io feed_rows(const struct feed *f, int from, int n);
/* What is classified in a sample: 1, of tokens the context; 0: a regression. */
int64_t feed_classified(const struct feed *f);

/* ---- engine.c ------------------------------------------------------------------------------ */

struct dp {
	struct pl_engine_opts o;
	int rank, ranks;
	struct pl_net *net;
	struct pl_optim *optim;
	struct pl_optim_opts oo;
	const struct pl_net_tensor *tensor;
	const struct pl_net_layer *layer;
	uint32_t n_tensors, n_layers;
	uint8_t *precision;    /* in which layers multiply, see precision_of() */
	float *params, *grads; /* memory of the backend */
	const struct pl_backend *be;
	void *ctx;
	size_t n_params;
	struct pl_dp_buckets b;
	struct pl_work **work; /* of each bucket, NULL: none in progress */
	float **copy;	       /* of buckets whose tensors are no neighbours */
	uint32_t *left;	       /* tensors of a bucket that are not ready yet */
	uint32_t next;	       /* bucket to be issued */
	struct feed feed;
	int micro;  /* samples of a microbatch */
	float *sum; /* for sum() */
	size_t n_sum;
	uint32_t sums; /* made so far: they need tags of their own */
	bool lost;     /* the world, and its memory */

	/* of the step in progress */
	int64_t step;
	int32_t mb;
	bool last_mb, training;
	uint32_t n_losses;			/* passes whose losses were not taken */
	pl_ns layer_begin, owed_ns;		/* owed: by pace, not slept yet */
	double pace_ms, pace_factor, pace_left; /* ns of this step not owed yet */
	double *layer_pace;			/* ns of each layer's forward pass */
	struct pl_err err;			/* of a hook */
};
int dp_sum(void *state, double *v, size_t n, struct pl_err *err) PL_MUST;
/* A world operation without a place in a step, waited for. No world: nothing. on_host: v is memory
 * of the host, not of the backend. */
int dp_broadcast(struct dp *d, float *v, size_t n, bool on_host, struct pl_err *err) PL_MUST;

/* ---- state.c ------------------------------------------------------------------------------- */
int dp_save(void *state, const char *path, int64_t step, struct pl_err *err) PL_MUST;
int dp_load(void *state, const char *path, int64_t *step, struct pl_err *err) PL_MUST;
int dp_export(void *state, const char *path, struct pl_err *err) PL_MUST;
int dp_import(void *state, const char *path, struct pl_err *err) PL_MUST;

/* ---- precision.c ---------------------------------------------------------------------------- */
/* Each layer's enum pl_precision in both passes, as job and plan have it: out[2 i + phase] of layer
 * i. PL_EDATA: a precision or an operation that is not there. */
int precision_of(const struct pl_engine_opts *o, const struct pl_net_layer *layer, uint32_t n,
		 const struct pl_log *log, uint8_t *out, struct pl_err *err) PL_MUST;

/* ---- same.c -------------------------------------------------------------------------------- */
/* PL_EDATA unless all ranks call it with one number; `what` it is of. No world: nothing. */
int dp_same(struct dp *d, uint64_t h, const char *what, struct pl_err *err) PL_MUST;
/* The same for what the ranks are to do: job, model, plan, data. */
int dp_same_job(struct dp *d, struct pl_err *err) PL_MUST;

/* ---- optim.c ------------------------------------------------------------------------------- */
/* The optimiser and schedule of a job that was checked, of so many steps. */
int optim_opts(const struct pl_job *j, int64_t steps, struct pl_optim_opts *o,
	       struct pl_err *err) PL_MUST;

#endif
