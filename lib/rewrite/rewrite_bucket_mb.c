/*
 * bucket-mb: gradients are regrouped as DistributedDataParallel does for a size of buckets.
 *
 * Gradients fill a bucket in the order in which they become ready. The gradient with which the
 * bucket reaches its size is the last one in it. Gradients of different groups of ranks or kinds of
 * communication never share a bucket, so those of each number `fuses` are cut alone. lib/plan
 * (buckets.h) has the rule, which the search and the settings of frameworks use, too. Each bucket
 * is built as those of fuse-tensors are. O(tensors x numbers).
 *
 * Sizes that were not recorded are estimated from the time of a transfer and a usual link. On
 * another link they are wrong by a factor, so they do not tell where a bucket of so many MiB ends.
 */
#include "rewrite/rewrite_internal.h"

uint32_t pl_rewrite_fill_buckets(const struct pl_rewriter *r, struct pl_bucket_rule rule,
				 uint32_t *set)
{
	uint32_t n = 0;

	for (uint32_t t = 0; t < r->n_tensors; t++)
		set[t] = PL_NONE;
	for (uint32_t i = 0; i < r->n_tensors; i++) {
		struct pl_bucket_filler f = { .rule = rule, .set = n };

		if (set[i] != PL_NONE)
			continue;
		for (uint32_t t = i; t < r->n_tensors; t++)
			if (r->tensor[t].fuses == r->tensor[i].fuses)
				set[t] = pl_plan_bucket_next(&f, r->tensor[t].bytes);
		n = pl_plan_bucket_end(&f);
	}
	return n;
}

static int apply_bucket_mb(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_buckets *b = &rw_now(r)->b;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		if (r->tensor[t].coll == PL_COLL_REDUCE_SCATTER)
			return pl_fail(err, PL_EDATA,
				       "gradients are scattered over the ranks, so the job has no "
				       "buckets; wrap changes its groups of parameters");
		if (r->tensor[t].guessed)
			return pl_fail(err, PL_EDATA,
				       "the recording has the sizes of neither gradients nor their "
				       "communication, so it does not say where a bucket of %g MiB "
				       "ends: record with record_shapes=True",
				       rw->x);
	}
	pl_rewrite_fill_buckets(r, pl_plan_bucket_rule_mb(rw->x, rw->k), b->set);
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		b->parts[t] = 1;
		b->place[t] = t;
	}
	return pl_plan_buckets_number(b, NULL, err);
}

const struct pl_rewrite_kind pl_rewrite_bucket_mb = {
	.comm = true,
	.apply = apply_bucket_mb,
	.explain = "a bucket is sent when its gradients have {x} MiB: larger buckets pay for fewer "
		   "calls, smaller ones travel earlier"
};
