/*
 * Settings of DeepSpeed: members of its configuration.
 *
 * DeepSpeed reads its configuration as Hjson: JSON with comments, lines that begin with #. It
 * counts the size of a bucket in elements and fills each bucket in the order of readiness until the
 * next tensor does not fit; all buckets have one size. ZeRO stage 1 is the first stage that uses
 * the size, so it is written. Stage 1 reduces gradients at the end of the microbatches of a step;
 * stage 2 reduces them after each microbatch. The size for gathering must be even.
 *
 * DeepSpeed has no settings for sets of different sizes, chunks, an order or layers to recompute:
 * activation_checkpointing applies to models that call deepspeed.checkpointing.
 */
#include "plan/internal.h"

#define ELEMENT 4 /* bytes: gradients as the base has them */

/* What stands before the next member. */
static const char *next(bool *any)
{
	const char *sep = *any ? ",\n  " : "\n  ";

	*any = true;
	return sep;
}

static void put_buckets(struct pl_setter *s, const struct pl_one_size *one, bool *any)
{
	s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
	pl_write_format(&s->w,
			"%s\"zero_optimization\": {\n    \"stage\": 1,\n"
			"    \"overlap_comm\": true,\n    \"reduce_bucket_size\": %lld,\n"
			"    \"allgather_bucket_size\": %lld\n  }",
			next(any), (long long)one->size, (long long)(one->size + one->size % 2));
}

static void put_notes(struct pl_setter *s, const struct pl_one_size *one, int64_t acc)
{
	const char *nccl = pl_settings_nccl(s, true);

	if (nccl)
		pl_write_format(&s->w, "# in the environment: NCCL_ALGO=%s\n", nccl);
	if (s->s.n) {
		pl_write_format(&s->w,
				"# bucket sizes are elements, of %d bytes each; ZeRO stage 1 "
				"is the least that has them\n",
				ELEMENT);
		pl_settings_put_differ(s, one);
	}
	if (acc)
		pl_write_format(
			&s->w,
			"# the batch of a rank stays as it is: train_micro_batch_size_per_gpu is "
			"1/%lld of it\n",
			(long long)acc);
	if (pl_settings_last(s->p, PL_RW_RECOMPUTE))
		pl_write_format(&s->w, "# recomputation is for the model to do: it calls "
				       "deepspeed.checkpointing.checkpoint for its layers\n");
}

static void body(struct pl_setter *s)
{
	int64_t acc = pl_settings_accumulate(s);
	const char *word = pl_settings_precision(s->p);
	struct pl_one_size one = { 0 };
	bool any = false;

	if (s->s.n)
		pl_settings_one_size(s, PL_CLOSE_BEFORE, ELEMENT, &one);
	put_notes(s, &one, acc);
	pl_write_format(&s->w, "{");
	if (acc)
		pl_write_format(&s->w, "%s\"gradient_accumulation_steps\": %lld", next(&any),
				(long long)acc);
	if (pl_settings_half(s->p)) {
		s->done |= 1u << PL_RW_PRECISION;
		pl_write_format(&s->w,
				"%s\"%s\": { \"enabled\": true },\n"
				"  \"communication_data_type\": \"fp32\"",
				next(&any), word);
	}
	if (s->s.n)
		put_buckets(s, &one, &any);
	pl_write_format(&s->w, any ? "\n}\n" : "}\n");
}

const struct pl_settings pl_settings_deepspeed = { "deepspeed",
						   "DeepSpeed: members of its configuration",
						   body };
