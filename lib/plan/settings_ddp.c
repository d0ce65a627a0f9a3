/*
 * Settings of PyTorch's DistributedDataParallel.
 *
 * DDP fills a bucket with gradients in the order of readiness and closes it when its size reaches
 * the cap, so a list of caps, each the size of one set, gives exactly the plan's sets where these
 * are runs of that order: the last tensor of a set makes it reach its cap, the one before does not
 * (but for a last tensor of no bytes). Sets that are no runs are cut at their last tensors, which
 * keeps their number and when each is ready at the earliest. The rule is played through here, and
 * what differs from the plan is said. Releases without the list get the one cap, of the sizes of
 * sets (of at most TRIED of them), whose buckets have most ends in common with it: O(tensors).
 */
#include <string.h>

#include "plan/internal.h"

#define MIB   1048576.0
#define TRIED 512

struct ends {
	bool *want; /* does a bucket end behind the tensor? */
	size_t n;
	uint32_t buckets;
};

/* Are these ends those of the plan's sets, in its order? */
static bool exact(const struct pl_setter *s, const struct ends *e)
{
	uint32_t b = 0;

	for (size_t i = 0; i < e->n; i++) {
		if (s->s.bucket[i] != b)
			return false;
		b += e->want[i];
	}
	return true;
}

/* Ends of buckets in common with the wanted ones, less those that are not, under one cap. */
static int64_t likeness(const struct pl_setter *s, const struct ends *e, int64_t cap)
{
	int64_t have = 0, sum = 0;

	for (size_t i = 0; i < e->n; i++) {
		bool end;

		have = pl_add_sat(have, s->p->tensor[i].bytes);
		end = have >= cap || i + 1 == e->n;
		if (end)
			have = 0;
		sum += end == e->want[i] ? 0 : -1;
	}
	return sum;
}

/* The best single cap, and how many ends of buckets differ under it. */
static int64_t single_cap(const struct pl_setter *s, const struct ends *e, const int64_t *size,
			  size_t n, int64_t *differ)
{
	int64_t best = INT64_MIN, cap = 0;

	for (size_t i = 0; i < n; i += 1 + n / TRIED) {
		int64_t like = likeness(s, e, size[i]);

		if (like > best) {
			best = like;
			cap = size[i];
		}
	}
	*differ = -best;
	return cap;
}

/* The caps of the list, and the best single one. */
static int put_caps(struct pl_setter *s, const struct ends *e, struct pl_err *err)
{
	int64_t size = 0, *sizes = NULL, cap, differ;
	const char *sep = "";
	size_t n = 0;
	bool played = true;
	char real[40];
	int rc;

	PL_TRY(pl_alloc(&sizes, e->buckets + 1, sizeof(*sizes), err));
	PL_TRY(pl_out_printf(s->out, err,
			     "model = torch.nn.parallel.DistributedDataParallel(\n    model,\n    "
			     "bucket_cap_mb_list=["));
	for (size_t i = 0; i < e->n; i++) {
		size = pl_add_sat(size, s->p->tensor[i].bytes);
		if (!e->want[i])
			continue;
		played &= s->p->tensor[i].bytes > 0;
		PL_TRY(pl_out_printf(s->out, err, "%s%s", sep,
				     pl_text_real_str(real, sizeof(real), (double)size / MIB)));
		sep = ", ";
		sizes[n++] = size;
		size = 0;
	}
	PL_TRY(pl_out_printf(s->out, err, "],\n)\n"));
	if (!exact(s, e) || !played)
		PL_TRY(pl_out_printf(s->out, err,
				     "# not exactly the plan's sets: DDP fills buckets in the "
				     "order in which gradients become ready\n"));
	cap = single_cap(s, e, sizes, n, &differ);
	PL_TRY(pl_out_printf(
		s->out, err,
		"# the list rules from the second step on, and without find_unused_parameters "
		"only\n"
		"# releases without bucket_cap_mb_list: bucket_cap_mb=%s (%lld of %u buckets "
		"differ%s);\n"
		"# older ones still close the first bucket at 1 MiB\n",
		pl_text_real_str(real, sizeof(real), (double)cap / MIB), (long long)differ,
		e->buckets, differ ? ", at their ends" : ""));
out:
	pl_free(sizes);
	return rc;
}

static int put_buckets(struct pl_setter *s, struct pl_err *err)
{
	struct ends e = { .n = s->p->n_tensors };
	int rc;

	if (!s->s.n)
		return 0;
	PL_TRY(pl_alloc(&e.want, e.n, sizeof(*e.want), err));
	for (uint32_t b = 0; b < s->s.n; b++) {
		e.want[s->s.tensor[s->s.first[b + 1] - 1]] = true;
		e.buckets++;
	}
	/* a set that is no run may end before the last tensor; that one ends a bucket anyway */
	if (!e.want[e.n - 1])
		e.want[e.n - 1] = true;
	PL_TRY(put_caps(s, &e, err));
	s->done |= 1u << PL_RW_FUSE_TENSORS;
out:
	pl_free(e.want);
	return rc;
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	int rc;

	PL_TRY(pl_out_printf(s->out, err, "import torch\n"));
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
