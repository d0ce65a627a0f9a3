/*
 * tracer.h - what a rank records of itself: tracks and names in its recorder, the events of its
 * communication, and what its device does.
 */
#ifndef PL_TRACER_H
#define PL_TRACER_H

#include "comm/comm.h"
#include "plan/job.h"
#include "record/device_trace.h"
#include "record/rec.h"
#include "tensor/net.h"

/* Names of the events of the main thread. */
enum pl_tracer_name {
	PL_NAME_STEP,
	PL_NAME_BATCH,
	PL_NAME_OPTIMIZER,
	PL_NAME_WAIT,
	PL_NAME_LOSS,
	PL_NAME_READY,
	PL_NAME_PACE,
	PL_NAME_ISSUE,
	PL_NAME_SUM,
	PL_NAME_GROUP,
	PL_NAME_BF16,
	PL_NAME_COUNT_
};
struct pl_tracer_work { /* of a pass of a layer, as events have it */
	pl_id op, dims;
	int64_t flops, moved;
};
/* The members are read by engines, which record their own steps; they change nothing of it. */
struct pl_tracer {
	struct pl_recorder *rec;
	pl_id main, comm, *link; /* tracks: the thread that trains, the one that communicates */
	uint32_t n_links;
	const uint32_t *rank; /* of the job, for each of the world; NULL: they are the same */
	int first;	      /* process that is rank 0 of the job */
	size_t cap_links;
	pl_ns *sent; /* end of the latest send to a peer on a channel; 0: none yet */
	size_t n_sent, cap_sent;
	pl_id name[PL_NAME_COUNT_], coll[PL_OP_COUNT_];
	pl_id with_algorithm[PL_OP_COUNT_][PL_CA_COUNT_]; /* names of the collectives */
	/* pl_train_tracer_names() sets these before the first step */
	pl_id *bucket;		     /* [bucket * PL_CA_COUNT_ + algorithm] */
	pl_id *layer;		     /* pl_train_tracer_layer() */
	struct pl_tracer_work *work; /* [layer * 2 + pass] */
	struct pl_tracer_work update;
	pl_id *dims, *param; /* of each tensor, as events have them */
	uint32_t n_buckets;
	struct tracer_device *device; /* NULL: no device is traced */
	pl_ns waiting;		      /* the main thread waits for communication since then */
};

/* Tracks and names of one rank in its recorder. Open before the world, whose events it takes. */
int pl_train_tracer_new(struct pl_recorder *rec, struct pl_tracer **t, struct pl_err *err) PL_MUST;
void pl_train_tracer_free(struct pl_tracer *t); /* after the world; NULL is fine */
/* Names of layers and tensors, of the job's optimiser, and of the all-reduces of a step, which are
 * n_buckets. */
int pl_train_tracer_names(struct pl_tracer *t, struct pl_net *net, const struct pl_job *job,
			  uint32_t n_buckets, struct pl_err *err) PL_MUST;
/* The name of a layer's operation; again: its forward pass, made again by recomputation. */
static inline pl_id pl_train_tracer_layer(const struct pl_tracer *t, uint32_t layer,
					  enum pl_net_phase p, bool again)
{
	return t->layer[3 * layer + (p == PL_PHASE_BACKWARD ? 2 : again)];
}
static inline void pl_train_tracer_put(const struct pl_tracer_work *w, struct pl_rec_event *e)
{
	e->op = w->op;
	e->dims = w->dims;
	e->flops = w->flops;
	e->moved = w->moved;
}
/* What a pass of a layer computes, into its event. */
static inline void pl_train_tracer_work(const struct pl_tracer *t, uint32_t layer,
					enum pl_net_phase p, struct pl_rec_event *e)
{
	pl_train_tracer_put(&t->work[2 * layer + (p == PL_PHASE_BACKWARD)], e);
}
/* Before the world is opened: it is one of several, whose name is `name`, of these ranks of the
 * job, whose rank 0 is process `first`. They outlive the world. */
int pl_train_tracer_group(struct pl_tracer *t, const char *name, const uint32_t *rank, int first,
			  struct pl_err *err) PL_MUST;
/* The `event` of pl_world_opts, with the tracer as its argument. */
void pl_train_tracer_comm(void *tracer, const struct pl_comm_event *e);

/* ---- the device ---------------------------------------------------------------------------- */

/*
 * Traces what the device of a backend's context does from now on, too. The calling thread is the
 * one that trains. Call it once, and before a communication library that has a profiler is opened.
 * `log` is told what cannot be traced.
 */
int pl_train_tracer_device(struct pl_tracer *t, const struct pl_device_trace *d, void *ctx,
			   const struct pl_log *log, struct pl_err *err) PL_MUST;
/* Does the trace of the device show this event of the world? If the calling thread launched a
 * collective, or the copy of its result, its wait until then is recorded here. */
bool pl_train_tracer_takes(struct pl_tracer *t, const struct pl_comm_event *e);
/* Between steps, when the device is idle: joins what was told so far, if that is much. */
void pl_train_tracer_join(struct pl_tracer *t);
/* The context is still open. idle: the device has ended all its work (false after a failure).
 * *lost: how many events found no room. */
int pl_train_tracer_stop(struct pl_tracer *t, bool idle, uint64_t *lost,
			 struct pl_err *err) PL_MUST;
/* The work that the device is asked to do for one layer begins, ends; `name`: its operation. */
void pl_train_tracer_range(struct pl_tracer *t, pl_id name, bool begin);
/* The training thread calls it: it has waited since `begin` for all its work on the device. */
void pl_train_tracer_synced(struct pl_tracer *t, pl_ns begin);

/* ---- tags ---------------------------------------------------------------------------------- */

/*
 * The tag of a collective tells the step and the bucket. The last numbers of buckets stand for sums
 * of a few numbers. 0: neither (a broadcast).
 */
#define PL_TAG_BUCKETS 65536
#define PL_TAG_SUMS    1024
static inline uint64_t pl_tag_of(int64_t step, uint32_t bucket)
{
	return (uint64_t)(step + 1) * PL_TAG_BUCKETS + bucket;
}
static inline int32_t pl_tag_step(uint64_t tag)
{
	return (int32_t)(tag / PL_TAG_BUCKETS) - 1;
}

#endif
