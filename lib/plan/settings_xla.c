/*
 * XLA on GPUs: flags in the environment. A flag that XLA does not know ends the program at start.
 *
 * The combiner of XLA joins all-reduces as long as their sum does not exceed the threshold; 0 joins
 * none. XLA overlaps them with computation only with the latency-hiding scheduler.
 *
 * XLA has no settings for sets of different sizes, chunks or an order. Microbatches, recomputation
 * (jax.checkpoint) and precision are part of the program.
 */
#include "plan/internal.h"

static void put_combiner(struct pl_setter *s)
{
	bool fused = s->s.n < s->s.p->n_tensors;
	struct pl_one_size one;

	pl_settings_one_size(s, PL_CLOSE_BEFORE, 1, &one);
	/* all-reduces may be combined in an order other than that of readiness */
	if (fused)
		pl_write_format(&s->w,
				"# the combiner uses its own order of all-reduces; in the order "
				"of readiness:\n");
	pl_settings_put_differ(s, &one);
	pl_write_format(&s->w,
			"export XLA_FLAGS=\"$XLA_FLAGS "
			"--xla_gpu_all_reduce_combine_threshold_bytes=%lld"
			" --xla_gpu_enable_latency_hiding_scheduler=true\"\n",
			(long long)(fused ? one.size : 0));
	s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
}

static void body(struct pl_setter *s)
{
	const char *nccl = pl_settings_nccl(s, false);

	if (nccl)
		pl_write_format(&s->w, "export NCCL_ALGO=%s\n", nccl);
	if (s->s.n)
		put_combiner(s);
}

const struct pl_settings pl_settings_xla = { "xla", "XLA: flags in the environment", body };
