/*
 * train.h - one rank of a training job, whichever engine trains it.
 *
 * run(1) reads a job and a plan, picks the engine that matches them, and drives it: prepare, load
 * or import, control, evaluate, save, finish. The engine decides how ranks work together: which of
 * them compute what, what they send one another, when they wait. It builds on worker.h, which has
 * the network, the data and the optimiser of one rank, and on the controls at the end of this page.
 */
#ifndef PL_TRAIN_H
#define PL_TRAIN_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "data/dataset.h"
#include "plan/job.h"
#include "plan/plan.h"
#include "train/tracer.h"

struct pl_worker; /* worker.h: what a rank trains with; the first member of an engine's state */
struct pl_train;  /* below */

/* Where the processes of a job find one another, for an engine that connects them itself. */
struct pl_engine_meeting {
	int rank, size;		/* of the processes, servers included */
	const char *at, *token; /* as `meet` and `token` of pl_world_opts */
	const char *bind, *host;
	bool forked; /* one process forked all of them, so it knows their hosts: those of the job */
	/* [size], if it did: it has ended, and does not come again. Else NULL. */
	atomic_bool *ended;
	pl_ns timeout_ns;
	const struct pl_link_shape *shape; /* between processes; a server has none of its own */
	size_t n_shapes;
	/* As in pl_world_opts, for worlds that the engine opens. */
	void (*lost)(void *arg, const char *why);
	void *lost_arg;
	/* A file without a name, which outlives a process that is started again; -1: there is none,
	 * and no process is. */
	int memory;
};
struct pl_engine_opts {
	const struct pl_job *job;
	const struct pl_model *model;
	const struct pl_plan *plan; /* NULL: none */
	const struct pl_dataset *data;
	bool read_once; /* the process that forked all ranks read the data, so all have the same */
	/* NULL: the CPU, with the job's threads. ctx: a context of the backend that outlives the
	 * engine; NULL: the engine opens its own. store: how ctx stores activations. */
	const struct pl_backend *backend;
	void *ctx;
	enum pl_store store;
	struct pl_world *world;			 /* NULL: one rank, or the engine connects them */
	const struct pl_engine_meeting *meeting; /* NULL: the world has all that there is */
	int rank, ranks;	  /* where an engine sets them; ranks 0: those of the world */
	struct pl_tracer *tracer; /* NULL: no trace */
	const struct pl_log *log;
	bool grad_norm; /* steps say the norm of their gradients, which takes time */
	bool alone;	/* nothing is trained: other processes of the job do not take part */
	/* Memory for parameters and gradients, as in pl_net_opts; NULL: the world's, or the
	 * backend's
	 */
	void *(*slab)(void *arg, size_t bytes);
	void (*slab_free)(void *arg, void *p, size_t bytes);
	void *slab_arg;
};
struct pl_step_result {
	double loss;			    /* of this rank's batch */
	int64_t samples, hits, classified;  /* hits out of classified; 0: nothing is classified */
	pl_ns step_ns, compute_ns, wait_ns; /* wait: this thread only waits for communication */
	uint64_t bytes_sent;		    /* since the job began */
	double grad_norm;		    /* of all gradients, before clipping; NaN: not known */
};
struct pl_train_result { /* of a rank, for reports */
	double rank,	 /* number of the first one, of a group */
		steps, samples, samples_per_s, commits, compute_share, wait_share, bytes_sent,
		step_s, staleness_mean, staleness_max;
};
struct pl_engine {
	const char *name;
	/* The policy whose jobs it carries out; NULL: `matches` decides. */
	const char *policy;
	/* Does it carry out job and plan (NULL: none)? NULL: it carries out jobs of its policy. */
	bool (*matches)(const struct pl_job *job, const struct pl_plan *plan);
	/* How many processes a job has besides its ranks. They are the first ones, and number 0 of
	 * all leads: it evaluates, saves and reports. The engine connects all processes itself, and
	 * goes on without some of them if it can. NULL: ranks are all there is, share a world, and
	 * rank 0 leads. */
	int (*servers)(const struct pl_job *job);
	size_t size; /* of its worker, whose memory the caller gives (zeroed) and frees */
	int (*prepare)(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err);
	/* Trains from t->step to the end; one of the controls below, or the engine's own. */
	int (*control)(struct pl_train *t, struct pl_err *err);
	/* One step of this rank, for the control. */
	int (*step)(struct pl_worker *w, int64_t step, struct pl_step_result *r,
		    struct pl_err *err);
	/* The results of all ranks, for the process that leads, or of each group of ranks; returns
	 * how many. NULL: each rank knows its own. */
	int (*gather)(struct pl_worker *w, struct pl_train_result *all, struct pl_err *err);
	/* Mean loss and hits over the held-out samples; all ranks call it. */
	int (*eval)(struct pl_worker *w, double *loss, int64_t *hits, int64_t *samples,
		    struct pl_err *err);
	/* Write or read all that the next step depends on; training continues to the same bits. All
	 * ranks call it, rank 0 writes. `step`: the next one. to_train: refuse a checkpoint whose
	 * samples the job would not continue. */
	int (*save)(struct pl_worker *w, const char *path, int64_t step, struct pl_err *err);
	int (*load)(struct pl_worker *w, const char *path, bool to_train, int64_t *step,
		    struct pl_err *err);
	/* Write or read a safetensors file of weights by name; all ranks call it, rank 0 writes. */
	int (*export_weights)(struct pl_worker *w, const char *path, struct pl_err *err);
	int (*import_weights)(struct pl_worker *w, const char *path, struct pl_err *err);
	/* Also if prepare() failed. lost: pl_comm_world_abort() has ended and freed the world. */
	void (*finish)(struct pl_worker *w, bool lost);
};

/* A row of the log: a step, or an evaluation. */
struct pl_train_row {
	pl_ns at;
	int64_t step, samples; /* number done by then; samples of all ranks */
	double loss, accuracy; /* NaN: not known */
	double lr, grad_norm;  /* of a step; NaN: not known, or an evaluation */
	/* Of unequal workers: mean speed by that of the slowest; NaN or 0: not known. */
	double heterogeneity;
	const char *note; /* a decision of the engine; NULL: none */
	bool eval;
};
/* The training of one rank. The caller sets the first part; the control fills in the second. */
struct pl_train {
	const struct pl_engine *engine;
	struct pl_worker *worker;
	const struct pl_job *job;
	int ranks;
	/* Signal that asked for the end, 0: none. If another rank was asked, control sets it. */
	atomic_int *stop;
	int (*row)(void *arg, const struct pl_train_row *row, struct pl_err *err);
	void (*progress)(void *arg); /* now and then */
	void *arg;		     /* of both */
	int64_t step;		     /* the next one; 0, or that of a checkpoint */
	bool eval_only; /* evaluations are of a trained network: none is judged or kept */

	pl_ns begin, end;
	int64_t steps;		  /* at which training ends */
	bool done, interrupted;	  /* interrupted: by a signal */
	bool stopped_early;	  /* `done` for the job's patience */
	bool diverged;		  /* training failed because a loss was no number */
	int64_t evaluated, saved; /* after which step last; -1: not yet */
	double last_loss, eval_loss, accuracy, time_to_target_s; /* NaN: not known */
	int64_t samples_to_target; /* of all ranks; 0: the target was not reached */
	/* since the job began or was resumed, of this rank but for samples_all */
	int64_t steps_done, samples, samples_all;
	uint64_t bytes_sent;
	/* without the first step, which allocates memory and connects, if there are more */
	pl_ns step_ns, compute_ns, wait_ns;
	pl_ns first_ns; /* from `begin` to the end of that step; 0: it is the only one */
};
/* The number of ranks, and the own one: as the engine says, or of the world. */
static inline int pl_engine_ranks(const struct pl_engine_opts *o)
{
	return o->ranks ? o->ranks : o->world ? pl_comm_world_size(o->world) : 1;
}
static inline int pl_engine_rank(const struct pl_engine_opts *o)
{
	return o->ranks || !o->world ? o->rank : pl_comm_world_rank(o->world);
}
/* How many steps step_ns and its like are of. */
static inline int64_t pl_train_measured(const struct pl_train *t)
{
	return t->steps_done - (t->first_ns > 0);
}
/* Call it after the caller's part is set. It sets begin and end to now, and losses to NaN. */
void pl_train_init(struct pl_train *t);
/*
 * Evaluates into eval_loss and accuracy, and adds a row to the log. If the job has patience or
 * checkpoint-best, the best evaluation so far is kept in the worker, its checkpoint is written, and
 * `done` is set when the patience is over: all ranks decide it from the same bits. All ranks call
 * it, after the same step; a second call after one step does nothing.
 */
int pl_train_evaluate(struct pl_train *t, struct pl_err *err) PL_MUST;
/* The judging alone, for a control that evaluates in its own way: the evaluation after this step.
 * counts: the job asked for it, so the patience counts it. Is it the best one so far? */
bool pl_train_judge(struct pl_train *t, int64_t step, bool counts, double loss, double accuracy);
/* Writes a checkpoint to the file that the job names, if any, and keeps as many of the earlier ones
 * as it says. All ranks call it; a second call after one step does nothing. */
int pl_train_checkpoint(struct pl_train *t, struct pl_err *err) PL_MUST;
/* After the control: the last evaluation (not after a signal, since the sender may kill after a
 * short time) and the last checkpoint, in the order that loses least. All ranks call it. */
int pl_train_end(struct pl_train *t, struct pl_err *err) PL_MUST;
/* Is it time, after this step, for what the job wants each n steps (0: never)? */
static inline bool pl_train_every(int64_t step, int64_t n)
{
	return n > 0 && step % n == 0;
}
/* A row after this step, with its samples and learning rate; the rest is not known. */
struct pl_train_row pl_train_row(const struct pl_train *t, int64_t step);
/* The samples of a job's epochs; an epoch of a text takes as many tokens as the text has. */
double pl_train_samples(const struct pl_job *j, const struct pl_model *m,
			const struct pl_dataset *data);
/* The number of steps of a job whose ranks all do the same steps, each with its own batch. */
int64_t pl_train_steps(const struct pl_job *j, const struct pl_model *m,
		       const struct pl_dataset *data, int ranks);

/* ---- controls ------------------------------------------------------------------------------ */

/* For engines whose ranks all do the same steps. They decide together, from sums over all ranks,
 * when to end; they evaluate and save as often as the job says. */
int pl_train_lockstep(struct pl_train *t, struct pl_err *err) PL_MUST;

#endif
