/*
 * buckets.h - buckets: the sets of tensors that are synchronised as one, in order of issue.
 *
 * Plans, rewrites of graphs, searches and training all work on these. Tensors are numbered in the
 * order in which they become ready.
 */
#ifndef PL_PLAN_BUCKETS_H
#define PL_PLAN_BUCKETS_H

#include "core/core.h"

struct pl_buckets {
	uint32_t n_tensors, n_sets;
	uint32_t *set;	 /* [tensor]; in order of issue after pl_plan_buckets_number() */
	uint32_t *place; /* [tensor]: in the order of issue; that of a set is its largest one */
	uint32_t *parts; /* [set]: chunks that follow one another, 1: whole */
	/* [set]: its tensors; numbers of sets that there are not. NULL: not counted yet */
	uint32_t *size, *unused;
	uint32_t n_unused;
};
/* Each tensor in a set of its own, whole, issued when it is ready. */
int pl_plan_buckets_init(struct pl_buckets *b, size_t n_tensors, struct pl_err *err) PL_MUST;
void pl_plan_buckets_fini(struct pl_buckets *b);
/* Both have as many tensors. */
void pl_plan_buckets_copy(struct pl_buckets *to, const struct pl_buckets *from);
/* The tensors, all of whole sets, become a set: O(n), and O(tensors) after numbers changed. */
int pl_plan_buckets_fuse(struct pl_buckets *b, const uint32_t *tensor, uint32_t n,
			 struct pl_err *err) PL_MUST;
/* The sets of these tensors are issued in this order, at the places that they have now. PL_EDATA
 * when two tensors are of one set. Numbers the sets first. O(tensors + n log n). */
int pl_plan_buckets_order(struct pl_buckets *b, const uint32_t *tensor, uint32_t n,
			  struct pl_err *err) PL_MUST;
/* Numbers the sets from 0 in order of issue: by place, then by their last tensors. from[set], if
 * not NULL: the number that the set had; it has room for every tensor. O(tensors). */
int pl_plan_buckets_number(struct pl_buckets *b, uint32_t *from, struct pl_err *err) PL_MUST;

/* The tensors of each set, ascending: member[first[set]] .. member[first[set + 1] - 1]. Room for
 * n_tensors in `member`, for 3 more in `first`. The sets are numbered. O(tensors). */
void pl_plan_buckets_members(const struct pl_buckets *b, uint32_t *first, uint32_t *member);

/* How frameworks fill buckets by themselves, in order of readiness. */
struct pl_bucket_rule {
	int64_t first, limit; /* bytes of the first bucket, of others */
	bool before;	      /* closed before it outgrows the limit; else when it has reached it */
};
/* PyTorch's DistributedDataParallel: limit_bytes (25 MiB by default), the first at most 1 MiB (Li
 * et al., VLDB 2020, section 3.2.3). */
struct pl_bucket_rule pl_plan_bucket_rule_ddp(int64_t limit_bytes);
#define PL_DDP_BUCKET_BYTES ((int64_t)25 << 20)
/* The same where bucket_cap_mb is given: the first bucket, too, has that size, unless first_mib is
 * above 0. */
struct pl_bucket_rule pl_plan_bucket_rule_mb(double mib, int64_t first_mib);
/* Gives tensor after tensor its bucket; zero but for `rule` and the first number in `set`. */
struct pl_bucket_filler {
	struct pl_bucket_rule rule;
	uint32_t set;
	int64_t bytes; /* in the present bucket */
	bool any, later;
};
uint32_t pl_plan_bucket_next(struct pl_bucket_filler *f, int64_t bytes);
/* The number behind those that were given. */
uint32_t pl_plan_bucket_end(const struct pl_bucket_filler *f);

#endif
