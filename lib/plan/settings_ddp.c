/*
 * Settings of PyTorch's DistributedDataParallel.
 *
 * DDP fills a bucket with gradients in the order of readiness and closes it when its size reaches
 * the cap. A list of caps, each the size of one set, therefore gives exactly the sets of the plan
 * if each set is a run of that order: its last tensor makes the bucket reach its cap, the tensor
 * before does not (unless the last tensor has no bytes). Sets that are no runs are cut at their
 * last tensors. This keeps the number of sets, and the earliest time at which each is ready. The
 * rule is simulated here, and a comment tells what differs from the plan. Tensors of different
 * types never share a bucket; a plan has no types. Releases without the list get the one cap that
 * is closest.
 */
#include <stdio.h>

#include "plan/internal.h"

#define MIB 1048576.0

/* The list of caps; *exact: the caps give the sets of the plan. */
static int put_list(struct pl_setter *s, const bool *end, bool *exact, struct pl_err *err)
{
	const char *sep = "";
	int64_t size = 0;
	char real[40];
	int rc;

	PL_TRY(pl_out_printf(s->out, err,
			     "model = torch.nn.parallel.DistributedDataParallel(\n    model,\n    "
			     "bucket_cap_mb_list=["));
	for (size_t i = 0; i < s->p->n_tensors; i++) {
		size = pl_add_sat(size, s->p->tensor[i].bytes);
		if (!end[i])
			continue;
		*exact &= s->p->tensor[i].bytes > 0;
		PL_TRY(pl_out_printf(s->out, err, "%s%s", sep,
				     pl_lang_real(real, sizeof(real), (double)size / MIB)));
		sep = ", ";
		size = 0;
	}
	rc = pl_out_printf(s->out, err, "],\n)\n");
out:
	return rc;
}

static int put_buckets(struct pl_setter *s, struct pl_err *err)
{
	struct pl_one_size one;
	bool *end = NULL, exact;
	char real[40], differ[48];
	int rc;

	if (!s->s.n)
		return 0;
	PL_TRY(pl_settings_ends(&s->s, &end, &exact, err));
	PL_TRY(put_list(s, end, &exact, err));
	if (!exact)
		PL_TRY(pl_out_printf(s->out, err,
				     "# not exactly the plan's sets: DDP fills buckets in the "
				     "order in which gradients become ready\n"));
	PL_TRY(pl_settings_one_size(&s->s, PL_CLOSE_REACHED, 1, &one, err));
	snprintf(differ, sizeof(differ),
		 one.differ ? "%u ends of buckets differ" : "no end differs", one.differ);
	PL_TRY(pl_out_printf(
		s->out, err,
		"# the list rules from the second step on, and without find_unused_parameters "
		"(or with static_graph) only\n"
		"# releases without bucket_cap_mb_list: bucket_cap_mb=%s (%s);\n"
		"# those that close the first bucket at 1 MiB all the same take "
		"torch.distributed._DEFAULT_FIRST_BUCKET_BYTES for it\n",
		pl_lang_real(real, sizeof(real), (double)one.size / MIB), differ));
	s->done |= 1u << PL_RW_FUSE_TENSORS;
out:
	pl_free(end);
	return rc;
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	int rc;

	PL_TRY(pl_out_printf(s->out, err, "import torch\n"));
	PL_TRY(pl_settings_torch_nccl(s, false, err));
	PL_TRY(pl_settings_torch_precision(s, err));
	PL_TRY(pl_settings_torch_recompute(s, err));
	PL_TRY(put_buckets(s, err));
	if (acc) {
		s->done |= 1u << PL_RW_ACCUMULATE;
		PL_TRY(pl_out_printf(s->out, err,
				     "accumulate = %lld  # microbatches a step: all but the last "
				     "inside \"with model.no_sync():\"\n",
				     (long long)acc));
	}
out:
	return rc;
}

static int write_ddp(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "ddp", out, body, err);
}

const struct pl_settings pl_settings_ddp = {
	"ddp", "PyTorch DistributedDataParallel: sizes of buckets, as code", write_ddp
};
