/*
 * Settings of DeepSpeed: members of its configuration.
 *
 * It reads the configuration as Hjson, where lines that begin with # are comments; without those
 * lines this is JSON. Buckets are counted in elements and filled in the order of readiness until
 * the next tensor would not fit, all to one size. Which ZeRO stage is used is no business of a
 * plan.
 */
#include <string.h>

#include "plan/internal.h"

#define ELEMENT 4 /* bytes: gradients as the base has them */

/* What stands before the next member. */
static const char *next(bool *any)
{
	const char *sep = *any ? ",\n  " : "\n  ";

	*any = true;
	return sep;
}

static int put_buckets(struct pl_setter *s, bool *any, struct pl_err *err)
{
	long long n = (long long)pl_max_i64(s->s.max_bytes / ELEMENT, 1);

	s->done |= 1u << PL_RW_FUSE_TENSORS;
	return pl_out_printf(s->out, err,
			     "%s\"zero_optimization\": {\n    \"overlap_comm\": true,\n"
			     "    \"reduce_bucket_size\": %lld,\n    \"allgather_bucket_size\": "
			     "%lld\n  }",
			     next(any), n, n);
}

static uint32_t layers(const struct pl_plan *p)
{
	uint32_t n = 0;

	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_RECOMPUTE)
			n += p->rw[i].n_args;
	return n;
}

static int put_notes(struct pl_setter *s, struct pl_err *err)
{
	int rc = 0;

	if (s->s.n)
		PL_TRY(pl_out_printf(
			s->out, err,
			"# bucket sizes are elements, the plan's largest set at %d bytes each, and "
			"rule from ZeRO stage 1 on\n"
			"# not exactly the plan's sets: all buckets have one size\n",
			ELEMENT));
	if (layers(s->p))
		PL_TRY(pl_out_printf(s->out, err,
				     "# the model itself calls deepspeed.checkpointing.checkpoint "
				     "for the layers of the plan\n"));
out:
	return rc;
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	const char *word = pl_settings_precision(s->p);
	bool any = false;
	int rc;

	PL_TRY(put_notes(s, err));
	PL_TRY(pl_out_printf(s->out, err, "{"));
	if (acc) {
		s->done |= 1u << PL_RW_ACCUMULATE;
		PL_TRY(pl_out_printf(s->out, err, "%s\"gradient_accumulation_steps\": %lld",
				     next(&any), (long long)acc));
	}
	if (word && (!strcmp(word, "bf16") || !strcmp(word, "fp16"))) {
		s->done |= 1u << PL_RW_PRECISION;
		PL_TRY(pl_out_printf(s->out, err, "%s\"%s\": { \"enabled\": true }", next(&any),
				     word));
	}
	if (layers(s->p)) {
		s->done |= 1u << PL_RW_RECOMPUTE;
		PL_TRY(pl_out_printf(s->out, err,
				     "%s\"activation_checkpointing\": { \"number_checkpoints\": %u "
				     "}",
				     next(&any), layers(s->p)));
	}
	if (s->s.n)
		PL_TRY(put_buckets(s, &any, err));
	rc = pl_out_printf(s->out, err, any ? "\n}\n" : "}\n");
out:
	return rc;
}

static int write_deepspeed(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "deepspeed", out, body, err);
}

const struct pl_settings pl_settings_deepspeed = { "deepspeed",
						   "DeepSpeed: members of its configuration",
						   write_deepspeed };
