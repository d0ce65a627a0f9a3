/*
 * Settings of XLA on GPUs: flags in the environment.
 *
 * Its combiner joins all-reduces that stand next to one another while their sum stays within the
 * threshold; 0 leaves each alone.
 */
#include "plan/internal.h"

static int body(struct pl_setter *s, struct pl_err *err)
{
	int rc = 0;

	if (!s->s.n)
		return 0;
	s->done |= 1u << PL_RW_FUSE_TENSORS;
	if (s->s.max_count > 1)
		PL_TRY(pl_out_printf(s->out, err,
				     "# the plan's largest set; not exactly its sets: the combiner "
				     "fills up to one size\n"));
	PL_TRY(pl_out_printf(s->out, err,
			     "export XLA_FLAGS=\"$XLA_FLAGS "
			     "--xla_gpu_all_reduce_combine_threshold_bytes=%lld"
			     " --xla_gpu_enable_latency_hiding_scheduler=true\"\n",
			     (long long)(s->s.max_count > 1 ? s->s.max_bytes : 0)));
out:
	return rc;
}

static int write_xla(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "xla", out, body, err);
}

const struct pl_settings pl_settings_xla = { "xla", "XLA: flags in the environment", write_xla };
