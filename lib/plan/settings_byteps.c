/*
 * Settings of BytePS: environment.
 *
 * BytePS splits every tensor into partitions of one size and fuses nothing. Its credit is how many
 * partitions may be under way before the next is chosen by priority; 0 turns priorities off.
 */
#include "plan/internal.h"

#define BYTES_MAX INT32_MAX /* it reads the size as an int */

static int body(struct pl_setter *s, struct pl_err *err)
{
	bool priority = pl_settings_last(s->p, PL_RW_PRIORITY) != NULL;
	bool order = priority || pl_settings_last(s->p, PL_RW_ORDER) != NULL;
	uint32_t differ = 0;
	int64_t bytes, max = 0;
	int rc = 0;

	for (size_t i = 0; i < s->p->n_tensors; i++) {
		int64_t k = s->s.parts[s->s.bucket[i]], b = s->p->tensor[i].bytes;

		/* a set of several tensors counts as its tensors: they are not fused */
		max = pl_max_i64(max, b / k + (b % k > 0));
	}
	bytes = pl_min_i64(pl_max_i64(max, 1), BYTES_MAX);
	for (size_t i = 0; i < s->p->n_tensors; i++) {
		int64_t k = s->s.parts[s->s.bucket[i]], b = s->p->tensor[i].bytes;

		differ += b > 0 && (b - 1) / bytes + 1 != k;
	}
	if (s->s.n) {
		PL_TRY(pl_out_printf(
			s->out, err,
			"# the largest chunk of the plan; BytePS rounds it up to whole "
			"pages and local ranks\n"
			"export BYTEPS_PARTITION_BYTES=%lld\n",
			(long long)bytes));
		if (differ)
			PL_TRY(pl_out_printf(s->out, err,
					     "# not exactly the plan's chunks: %u of %zu tensors "
					     "get another number of them\n",
					     differ, s->p->n_tensors));
		s->done |= 1u << PL_RW_PARTITION_TENSOR;
	}
	if (order) {
		PL_TRY(pl_out_printf(s->out, err,
				     "# one partition on its way and one behind it, so that "
				     "priorities decide what is next;\n# priorities are those of "
				     "BytePS: layers near the input first\n"
				     "export BYTEPS_SCHEDULING_CREDIT=2\n"));
		s->done |= priority ? 1u << PL_RW_PRIORITY : 0;
	} else if (s->s.n) {
		PL_TRY(pl_out_printf(s->out, err,
				     "# no order in the plan: first come, first served\n"
				     "export BYTEPS_SCHEDULING_CREDIT=0\n"));
	}
	if (pl_settings_algorithm(s->p) == PL_ALGO_PS) {
		const struct pl_rewrite *rw = pl_settings_last(s->p, PL_RW_ALGORITHM);

		PL_TRY(pl_out_printf(s->out, err, "export DMLC_NUM_SERVER=%lld\n",
				     (long long)(rw->k ? rw->k : 1)));
		s->done |= 1u << PL_RW_ALGORITHM;
	}
out:
	return rc;
}

static int write_byteps(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "byteps", out, body, err);
}

const struct pl_settings pl_settings_byteps = { "byteps",
						"BytePS: environment with the size of partitions",
						write_byteps };
