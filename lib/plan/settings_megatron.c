/*
 * Settings of Megatron-LM: options of its training programs.
 *
 * A bucket is closed when its elements reach the size given, all to one size; buckets are
 * reduced while the backward pass goes on only with --overlap-grad-reduce. Recomputation of whole
 * layers takes the first N of each pipeline stage.
 */
#include <string.h>

#include "plan/internal.h"

#define ELEMENT 4 /* bytes: gradients as the base has them */

static int put_recompute(struct pl_setter *s, struct pl_err *err)
{
	uint32_t n = 0;
	int rc = 0;

	for (size_t i = 0; i < s->p->n_rw; i++)
		if (s->p->rw[i].op == PL_RW_RECOMPUTE)
			n += s->p->rw[i].n_args;
	if (!n)
		return 0;
	s->done |= 1u << PL_RW_RECOMPUTE;
	PL_TRY(pl_out_printf(s->out, err,
			     "# layers are the first of each pipeline stage, whichever the plan "
			     "names\n--recompute-granularity full\n--recompute-method block\n"
			     "--recompute-num-layers %u\n",
			     n));
out:
	return rc;
}

static int put_precision(struct pl_setter *s, struct pl_err *err)
{
	const char *word = pl_settings_precision(s->p);

	if (!word || !strcmp(word, "tf32") || !strcmp(word, "fp32"))
		return 0;
	s->done |= 1u << PL_RW_PRECISION;
	if (!strcmp(word, "fp8"))
		return pl_out_printf(s->out, err, "--bf16\n--fp8-format hybrid\n");
	return pl_out_printf(s->out, err, "--%s\n", word);
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	int rc = 0;

	if (s->s.n) {
		s->done |= 1u << PL_RW_FUSE_TENSORS;
		PL_TRY(pl_out_printf(s->out, err,
				     "# elements: the plan's largest set at %d bytes each\n"
				     "# not exactly the plan's sets: all buckets have one size\n"
				     "--overlap-grad-reduce\n--ddp-bucket-size %lld\n",
				     ELEMENT, (long long)pl_max_i64(s->s.max_bytes / ELEMENT, 1)));
	}
	PL_TRY(put_recompute(s, err));
	PL_TRY(put_precision(s, err));
	if (acc) {
		s->done |= 1u << PL_RW_ACCUMULATE;
		PL_TRY(pl_out_printf(s->out, err,
				     "# microbatches follow from the batch: --global-batch-size is "
				     "%lld x --micro-batch-size x data-parallel ranks\n",
				     (long long)acc));
	}
out:
	return rc;
}

static int write_megatron(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "megatron", out, body, err);
}

const struct pl_settings pl_settings_megatron = { "megatron",
						  "Megatron-LM: options of its training programs",
						  write_megatron };
