/*
 * fuse-tensors, partition-tensor and order: the tensors of each bucket, the number of its parts,
 * and the order of issue. lib/plan (buckets.h) defines the effect on the sets.
 */
#include "rewrite/rewrite_internal.h"

/* Numbers of the line's tensors; pl_free(). */
static int find_args(struct pl_rewriter *r, const struct pl_rewrite *rw, uint32_t **tensor,
		     struct pl_err *err)
{
	int rc;

	*tensor = NULL;
	rc = pl_alloc(tensor, rw->n_args, sizeof(**tensor), err);
	for (uint32_t i = 0; rc == 0 && i < rw->n_args; i++)
		rc = pl_rewrite_find_arg(r, rw, i, &(*tensor)[i], err);
	return rc;
}

/* ---- fuse-tensors ---------------------------------------------------------------------------- */

/* May the tensors of the line travel together? */
static int check_fuse(const struct pl_rewriter *r, const struct pl_rewrite *rw,
		      const uint32_t *tensor, struct pl_err *err)
{
	const struct pl_buckets *b = &rw_now(r)->b;
	const struct pl_rewrite_tensor *first = &r->tensor[tensor[0]];

	for (uint32_t i = 0; i < rw->n_args; i++) {
		const struct pl_rewrite_tensor *x = &r->tensor[tensor[i]];

		if (b->parts[b->set[tensor[i]]] > 1)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" is partitioned already; fuse first, then partition",
				       rw->arg[i]);
		if (first->group != x->group)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" and \"%s\" are synchronised by different groups of "
				       "ranks; fuse those of one group",
				       rw->arg[0], rw->arg[i]);
		if (first->coll != x->coll)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" and \"%s\" are synchronised by different kinds of "
				       "communication; fuse those of one kind",
				       rw->arg[0], rw->arg[i]);
		if (first->part != x->part)
			return pl_fail(
				err, PL_EDATA,
				"parameters are updated between \"%s\" and \"%s\", as in a "
				"step that trains two models in turn; fuse those of one model",
				rw->arg[0], rw->arg[i]);
	}
	return 0;
}

/* The set of the line has the algorithm that a line before gave to some of its tensors. */
static void share_algorithm(const struct pl_rewriter *r, const uint32_t *tensor, uint32_t n)
{
	const struct rw_choice *was = r->state[0].choice;
	struct rw_choice *now = rw_now(r)->choice, of_set;
	uint32_t chosen = 0;

	while (chosen < n && now[tensor[chosen]].algo == was[tensor[chosen]].algo)
		chosen++;
	if (chosen == n)
		return;
	of_set = now[tensor[chosen]];
	for (uint32_t i = 0; i < n; i++) {
		now[tensor[i]].algo = of_set.algo;
		now[tensor[i]].servers = of_set.servers;
	}
}

static int apply_fuse(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_buckets *b = &rw_now(r)->b;
	uint32_t *tensor;
	int rc = find_args(r, rw, &tensor, err);

	if (rc == 0)
		rc = check_fuse(r, rw, tensor, err);
	if (rc == 0 && (rc = pl_plan_buckets_fuse(b, tensor, rw->n_args, err)) == 0) {
		share_algorithm(r, tensor, rw->n_args);
		rc = pl_plan_buckets_number(b, NULL, err);
	}
	pl_free(tensor);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_fuse_tensors = {
	.comm = true,
	.apply = apply_fuse,
	.explain = "{names} tensors ({bytes}) are communicated as one, so the latency and the call "
		   "are paid once",
	.less = 1,
	.explain_less = "\"{first}\" ({bytes}) is communicated by itself, so it does not wait for "
			"other tensors",
};

/* ---- partition-tensor ------------------------------------------------------------------------ */

static int apply_partition(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_buckets *b = &rw_now(r)->b;
	uint32_t t;
	int rc = pl_rewrite_find_arg(r, rw, 0, &t, err);

	if (rc == 0)
		b->parts[b->set[t]] = (uint32_t)rw->k;
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_partition_tensor = {
	.comm = true,
	.apply = apply_partition,
	.explain = "the bucket of \"{first}\" ({bucket}) is sent in {k} parts, so that more urgent "
		   "communication can go between them"
};

/* ---- order ----------------------------------------------------------------------------------- */

static int apply_order(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t *tensor;
	int rc = find_args(r, rw, &tensor, err);

	if (rc == 0)
		rc = pl_plan_buckets_order(&rw_now(r)->b, tensor, rw->n_args, err);
	pl_free(tensor);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_order = {
	.comm = true,
	.apply = apply_order,
	.explain = "the bucket of \"{first}\" ({bucket}) is issued first of {names}, and the "
		   "others in the order of the line, so that what is needed first arrives first"
};
