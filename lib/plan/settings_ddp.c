/*
 * Settings of PyTorch's DistributedDataParallel.
 *
 * DDP fills a bucket with gradients in the order of readiness and closes it when its size reaches
 * the cap. So a list of caps, each the size of one set, gives exactly the sets of the plan if each
 * set is a run of that order: its last tensor makes the bucket reach its cap, the tensor before
 * does not (unless the last tensor has no bytes). Sets that are no runs are cut at their last
 * tensors. This keeps the number of sets, and the earliest time at which each is ready. The rule is
 * simulated here, and a comment tells what differs from the plan. Tensors of different types never
 * share a bucket; a plan has no types. Releases without the list get the closest cap.
 */
#include <stdio.h>

#include "plan/internal.h"

#define MIB 1048576.0

/* The list of caps; *exact: the caps give the sets of the plan. */
static void put_list(struct pl_setter *s, const bool *end, bool *exact)
{
	const char *sep = "";
	int64_t size = 0;
	char real[40];

	pl_write_format(&s->w,
			"model = torch.nn.parallel.DistributedDataParallel(\n    model,\n    "
			"bucket_cap_mb_list=[");
	for (size_t i = 0; i < s->s.p->n_tensors; i++) {
		size = pl_add_sat(size, s->s.p->tensor[i].bytes);
		if (!end[i])
			continue;
		*exact &= s->s.p->tensor[i].bytes > 0;
		pl_write_format(&s->w, "%s%s", sep,
				pl_fmt_real(real, sizeof(real), (double)size / MIB));
		sep = ", ";
		size = 0;
	}
	pl_write_format(&s->w, "],\n)\n");
}

static void put_buckets(struct pl_setter *s)
{
	struct pl_one_size one;
	bool *end = NULL, exact;
	char real[40], differ[48];

	if (!s->s.n)
		return;
	if (pl_settings_ends(&s->s, &end, &exact, &s->w.fail) < 0)
		return;
	put_list(s, end, &exact);
	if (!exact)
		pl_write_format(&s->w, "# not exactly the plan's sets: DDP fills buckets in the "
				       "order in which gradients become ready\n");
	pl_settings_one_size(s, PL_CLOSE_REACHED, 1, &one);
	snprintf(differ, sizeof(differ),
		 one.differ ? "%u ends of buckets differ" : "no end differs", one.differ);
	pl_write_format(&s->w,
			"# the list takes effect from the second step on, and only without "
			"find_unused_parameters (or with static_graph)\n"
			"# releases without bucket_cap_mb_list: bucket_cap_mb=%s (%s);\n"
			"# releases that always close the first bucket at 1 MiB use "
			"torch.distributed._DEFAULT_FIRST_BUCKET_BYTES\n",
			pl_fmt_real(real, sizeof(real), (double)one.size / MIB), differ);
	s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
	pl_free(end);
}

/* One size for all buckets, if the plan asks for that. */
static bool put_cap(struct pl_setter *s)
{
	const struct pl_rewrite *last = NULL;
	char real[40];

	for (size_t i = 0; i < s->p->n_rw; i++)
		if (s->p->rw[i].op == PL_RW_BUCKET_MB || s->p->rw[i].op == PL_RW_FUSE_TENSORS)
			last = &s->p->rw[i];
	if (!last || last->op != PL_RW_BUCKET_MB || last->k)
		return false;
	pl_write_format(&s->w,
			"model = torch.nn.parallel.DistributedDataParallel(model, "
			"bucket_cap_mb=%s)\n",
			pl_fmt_real(real, sizeof(real), last->x));
	s->done |= 1u << PL_RW_BUCKET_MB | 1u << PL_RW_FUSE_TENSORS;
	return true;
}

static void body(struct pl_setter *s)
{
	int64_t acc = pl_settings_accumulate(s);

	pl_write_format(&s->w, "import torch\n");
	pl_settings_torch_nccl(s, false);
	pl_settings_torch_precision(s);
	pl_settings_torch_loader(s);
	pl_settings_torch_recompute(s);
	if (!put_cap(s))
		put_buckets(s);
	if (acc)
		pl_write_format(&s->w,
				"accumulate = %lld  # microbatches a step: all but the last "
				"inside \"with model.no_sync():\"\n",
				(long long)acc);
}

const struct pl_settings pl_settings_ddp = {
	"ddp", "PyTorch DistributedDataParallel: sizes of buckets, as code", body
};
