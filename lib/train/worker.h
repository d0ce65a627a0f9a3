/*
 * worker.h - what one rank trains with: its network, data, optimiser, and its events in the trace.
 *
 * An engine has a struct pl_worker as the first member of its state. A step of an engine is made of
 * pl_train_worker_begin_step(), pl_train_worker_compute(), its own communication,
 * pl_train_worker_update() and pl_train_worker_end_step(). Functions with the signature of a member
 * of struct pl_engine serve as that member where each rank has the whole network.
 */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include "train/train.h"

/* ---- feed.c: what a step trains on --------------------------------------------------------- */

struct pl_feed {
	const struct pl_dataset *d;
	size_t n_train;	    /* samples to train on (of a text: places); the others are held out */
	size_t sample_size; /* floats of a sample; of a text: tokens of the context */
	int batch, rank, ranks;
	uint64_t seed;
	/* Before this step ranks took so many samples together; 0 and 0, or those of a checkpoint.
	 * Each later step takes ranks * batch. */
	int64_t first_step, first_sample;
	bool tokens;
	int64_t fetched;  /* the step whose batch was gathered last; -1: none */
	size_t *index;	  /* (batch) */
	float *x;	  /* (batch, each) */
	float *target;	  /* (batch, n_targets) */
	int32_t *ids, *y; /* (batch, context); (batch) or (batch, context) */
};
int pl_train_feed_init(struct pl_feed *f, const struct pl_engine_opts *o, struct pl_net *net,
		       int batch, struct pl_err *err) PL_MUST;
void pl_train_feed_fini(struct pl_feed *f);
/* Gathers the rank's batch of a step, unless an earlier call did. */
void pl_train_feed_step(struct pl_feed *f, int64_t step);
/* How many samples so many ranks have taken before this step. */
int64_t pl_train_feed_samples(const struct pl_feed *f, int ranks, int64_t step);
/* How many samples are held out. */
size_t pl_train_feed_held_out(const struct pl_feed *f);
/* Gathers held-out samples first .. first + n - 1. */
void pl_train_feed_eval(struct pl_feed *f, size_t first, int n);
/* Rows from .. from + n - 1 of the rows fetched last. */
struct pl_batch_io pl_train_feed_rows(const struct pl_feed *f, int from, int n);
/* Classes that are predicted for a sample: 1, for a text one a token; 0: a regression. */
int64_t pl_train_feed_classified(const struct pl_feed *f);

/* ---- keep.c: checkpoints that stay --------------------------------------------------------- */

/* The checkpoints that have a second name, FILE.STEP. Zero-initialised is none. */
struct pl_kept {
	int64_t *step; /* in order */
	size_t n, cap;
	bool looked; /* for those of the job that this one continues */
};
/* The checkpoint `path` was written after this step: give it its second name, and remove those of
 * the oldest beyond `keep`. resumed: files of earlier steps that are there belong to this job. */
int pl_train_keep(struct pl_kept *k, const char *path, int64_t step, int64_t keep, bool resumed,
		  struct pl_err *err) PL_MUST;
void pl_train_keep_fini(struct pl_kept *k);

/* ---- worker.c ------------------------------------------------------------------------------ */

/* Numbers that one operation can sum, enough for a window of steps. */
#define PL_TRAIN_SUMS	64
#define PL_TRAIN_FLOATS 9 /* for each number */

/* The best evaluation so far; checkpoints have it. */
struct pl_train_best {
	double value;	/* what the job monitors */
	int64_t step;	/* after which it was; -1: there was none */
	double to_beat; /* by the delta of the job */
	int64_t waited; /* evaluations since to_beat was set */
};
struct pl_worker {
	struct pl_engine_opts o;
	int rank, ranks;
	struct pl_net *net;
	struct pl_optim *optim;
	struct pl_optim_opts optim_opts;
	bool has_state;		 /* of the optimizer, from a checkpoint */
	int64_t optim_first;	 /* the step at which that state began; Adam counts from there */
	struct pl_net_view view; /* of net */
	struct pl_feed feed;
	struct pl_train_best best;
	struct pl_kept kept;
	int64_t microbatches;
	int microbatch; /* samples of one */
	/* Of a step, where it is not the job's batch: it is drawn in whole batches, and `drawn` of
	 * them so far. 0: the job's. */
	int64_t samples, drawn;
	int64_t of;    /* that ranks whose gradients are summed take together; 0: samples */
	uint8_t algo;  /* enum pl_calgo, of all-reduces, by the job */
	int64_t round; /* steps from one synchronisation of all ranks to the next; 1 */
	float sum[PL_TRAIN_SUMS * PL_TRAIN_FLOATS]; /* of pl_train_worker_sum() */
	uint32_t sums;		/* number so far, because each needs its own tag */
	bool lost;		/* the world has ended and freed its memory */
	struct pl_err slab_err; /* why the world gave no memory */

	/* of the step in progress */
	int64_t step;
	/* Samples of all ranks, in checkpoints and evaluations, where ranks do not do the same
	 * steps; 0: those of the steps. */
	int64_t taken;
	pl_ns step_begin;
	int32_t mb;
	bool last_mb, training;
	uint32_t n_losses;			/* passes whose losses are still on the device */
	pl_ns layer_begin, pace_debt_ns;	/* pace_debt: not slept yet */
	double pace_ms, pace_factor, pace_left; /* ns of this step that are not in the debt yet */
	pl_ns pace_period_ns;			/* a step lasts no less */
	double *layer_pace;			/* ns of each layer's forward pass */
	struct pl_err err;			/* of a hook */
};
/*
 * *w is zeroed memory. All ranks call it; it fails if they do not have the same job. `ready` is
 * called with the worker during each backward pass, see pl_net_hooks.
 */
int pl_train_worker_init(struct pl_worker *w, const struct pl_engine_opts *o,
			 void (*ready)(void *worker, uint32_t first, uint32_t n),
			 struct pl_err *err) PL_MUST;
void pl_train_worker_fini(struct pl_worker *w, bool lost);
/* Samples that so many ranks have taken before this step. */
static inline int64_t pl_train_worker_taken(const struct pl_worker *w, int ranks, int64_t step)
{
	return w->taken ? w->taken : pl_train_feed_samples(&w->feed, ranks, step);
}
/* Microbatches of a step, as job and plan have it. */
int64_t pl_train_worker_microbatches(const struct pl_job *j, const struct pl_plan *plan);

/* Can each rank carry out this rewrite (enum pl_rw_op) alone, in its passes? */
static inline bool pl_train_worker_obeys(int op)
{
	return op == PL_RW_ACCUMULATE || op == PL_RW_RECOMPUTE || op == PL_RW_PRECISION;
}

void pl_train_worker_begin_step(struct pl_worker *w, int64_t step, struct pl_step_result *r);
/* Gathers the batch, and runs the forward and backward passes of all microbatches. summed: number
 * of ranks whose gradients the engine sums; gradients are scaled so that the sum is the mean. */
int pl_train_worker_compute(struct pl_worker *w, int summed, struct pl_step_result *r,
			    struct pl_err *err) PL_MUST;
/* One step of the optimiser with the gradients as they are, whose norm it measures if it is asked
 * for; waits for the device. */
int pl_train_worker_update(struct pl_worker *w, struct pl_step_result *r,
			   struct pl_err *err) PL_MUST;
/* good: the step succeeded; then *r is complete. */
void pl_train_worker_end_step(struct pl_worker *w, bool good, struct pl_step_result *r);

/* The step at which training of so many ranks ends: a job that continues takes what is left of its
 * epochs. */
int64_t pl_train_worker_steps(const struct pl_worker *w, int ranks);

/* Are gradients of the device copied to memory of the host before they are sent? */
bool pl_train_worker_staged(const struct pl_worker *w);
/* Sums over all ranks, the same bits on each, exact for integers below 2^53; all ranks call it
 * alike. */
int pl_train_worker_sum(struct pl_worker *w, double *v, size_t n, struct pl_err *err) PL_MUST;
/* Sends v of rank 0 to all ranks. Without a world it does nothing. on_host: v is memory of the
 * host, not of the backend. */
int pl_train_worker_broadcast(struct pl_worker *w, float *v, size_t n, bool on_host,
			      struct pl_err *err) PL_MUST;
int pl_train_worker_eval(struct pl_worker *w, double *loss, int64_t *hits, int64_t *samples,
			 struct pl_err *err) PL_MUST;

/* An event of this thread, from `begin` until now; corr: of an issue or a wait, the tag of the
 * communication, else -1. Without a tracer it does nothing. */
void pl_train_worker_record(struct pl_worker *w, uint8_t kind, enum pl_tracer_name name,
			    pl_ns begin, int64_t corr);
/* Before and after this thread waits for communication. */
pl_ns pl_train_worker_begin_wait(struct pl_worker *w);
void pl_train_worker_record_wait(struct pl_worker *w, uint64_t tag);
/* A collective that this thread waits for; `name`: of its issue. */
int pl_train_worker_collective(struct pl_worker *w, enum pl_tracer_name name,
			       const struct pl_coll_args *a, struct pl_err *err) PL_MUST;

/* ---- state.c ------------------------------------------------------------------------------- */

int pl_train_worker_save(struct pl_worker *w, const char *path, int64_t step,
			 struct pl_err *err) PL_MUST;
int pl_train_worker_load(struct pl_worker *w, const char *path, bool to_train, int64_t *step,
			 struct pl_err *err) PL_MUST;
int pl_train_worker_export(struct pl_worker *w, const char *path, struct pl_err *err) PL_MUST;
int pl_train_worker_import(struct pl_worker *w, const char *path, struct pl_err *err) PL_MUST;

/* ---- precision.c, optim.c ------------------------------------------------------------------ */

/* Sets the precision of each layer in both passes, as job and plan have it. PL_EDATA: a precision
 * or an operation that does not exist. */
int pl_train_worker_precision(struct pl_worker *w, struct pl_err *err) PL_MUST;
/* The optimiser and the schedule of a checked job that has so many steps. */
int pl_train_worker_optim_opts(const struct pl_job *j, int64_t steps, struct pl_optim_opts *o,
			       struct pl_err *err) PL_MUST;

/* ---- same.c -------------------------------------------------------------------------------- */

/* PL_EDATA if ranks have different hashes h of `what`. Without a world it does nothing. */
int pl_train_worker_check_same(struct pl_worker *w, uint64_t h, const char *what,
			       struct pl_err *err) PL_MUST;
/* One hash of job, model and plan, and of the data unless one process read them for all. */
int pl_train_worker_job_hash(const struct pl_worker *w, uint64_t *h, struct pl_err *err) PL_MUST;
/* The same for job, model, plan and data. */
int pl_train_worker_check_same_job(struct pl_worker *w, struct pl_err *err) PL_MUST;

#endif
