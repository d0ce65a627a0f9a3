/*
 * dp.h - data-parallel training: an engine of run(1).
 *
 * It synchronises gradients by buckets that are all-reduced while backward still runs (Li et al.,
 * PyTorch Distributed, VLDB 2020), in the order and in the parts that the plan gives.
 */
#ifndef PL_DP_H
#define PL_DP_H

#include "train/train.h"

extern const struct pl_engine pl_dp_engine;

/*
 * The buckets of a job and a plan, in the order of their issue; tensors are sorted by name. Without
 * a plan the rule is DDP's: gradients in the order in which they become ready (from the last
 * parameter to the first) fill a bucket until it has `bucket_mb` MiB, the first until it has 1 MiB.
 */
struct pl_dp_bucket {
	uint32_t first, n; /* tensors of the net: index[first ..], by place in the slab */
	size_t count;	   /* floats that are sent */
	size_t offset;	   /* in the slab, if contiguous */
	bool contiguous;   /* in the slab: sent from there; else copied */
	uint32_t parts;	   /* 1: whole */
	uint8_t algo;	   /* enum pl_calgo */
};
struct pl_dp_buckets {
	struct pl_dp_bucket *v;
	uint32_t n;
	uint32_t *index; /* tensors of the net */
	uint32_t *of;	 /* bucket of each tensor of the net */
};
/*
 * bucket_mb: 0 means 25. A plan names tensors as the network does ("fc1.weight"), by their number
 * in the order of readiness ("grad 3 512x784", as in graphs of older traces), or as whole default
 * buckets ("bucket 2"). PL_EDATA for other names. Rewrites that this engine cannot apply (priority,
 * fuse-ops ...) are reported to `log`.
 */
int pl_dp_buckets(const struct pl_net_tensor *t, uint32_t n, double bucket_mb, uint8_t algo,
		  const struct pl_plan *plan, const struct pl_log *log, struct pl_dp_buckets *b,
		  struct pl_err *err) PL_MUST;
void pl_dp_buckets_fini(struct pl_dp_buckets *b);

/*
 * The gradients of a worker, summed over the ranks of its world during the backward pass, in the
 * buckets of its job and its plan. Members are the sum's own.
 */
struct pl_dp_sync {
	struct pl_worker *w;
	struct pl_dp_buckets b;
	struct pl_work **work; /* of each bucket, NULL: none in progress */
	float **copy;	       /* of buckets whose tensors are not contiguous */
	uint32_t *not_ready;   /* [bucket]: tensors whose gradients are not ready */
	uint32_t next;	       /* the bucket to start next */
};
/* *s is zeroed; w: initialised, and it outlives the sum. Without a world nothing is ever sent. */
int pl_dp_sync_init(struct pl_dp_sync *s, struct pl_worker *w, struct pl_err *err) PL_MUST;
/* Also if init() failed, or was never called. lost: the world has ended and freed its memory. */
void pl_dp_sync_fini(struct pl_dp_sync *s, bool lost);
/* Of a step: before its passes; the `ready` of pl_train_worker_init(); and after the passes, when
 * it waits until the gradients are sums. *waited grows by the time of that. */
void pl_dp_sync_begin(struct pl_dp_sync *s);
void pl_dp_sync_ready(struct pl_dp_sync *s, uint32_t first, uint32_t n);
int pl_dp_sync_wait(struct pl_dp_sync *s, pl_ns *waited, struct pl_err *err) PL_MUST;

#endif
