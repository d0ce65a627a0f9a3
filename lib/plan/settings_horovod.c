/*
 * Settings of Horovod: environment, and groups of tensors for its optimizer.
 *
 * In each cycle Horovod fuses the tensors that are ready, up to a threshold. A threshold alone
 * therefore cannot choose which tensors are fused; groups (since 0.21) can, if groups are not fused
 * with one another. Horovod cuts a group that exceeds the threshold, and builds for GPUs pad each
 * tensor to a multiple of 16 bytes, so the threshold leaves room for the padding. A larger
 * threshold does no harm, as groups are not fused. Horovod reads the environment of the process
 * when it is initialised, so the generated code sets it.
 *
 * Horovod has no settings for chunks of a tensor, for an order other than that of readiness, or for
 * algorithms other than its own hierarchical one and those of NCCL.
 */
#include "plan/internal.h"

#define PAD	16 /* bytes, of each tensor in the fusion buffer */
#define MEMBERS 4  /* parameters that a layer may have under its one name */

static void put_env(struct pl_setter *s, const char *name, int64_t value)
{
	pl_write_format(&s->w, "os.environ[\"%s\"] = \"%lld\"\n", name, (long long)value);
}

/* A threshold that the largest set does not exceed. */
static int64_t threshold(const struct pl_setter *s)
{
	int64_t max = 0;

	for (uint32_t b = 0; b < s->s.n; b++) {
		int64_t sum = 0;

		for (uint32_t t = s->s.first[b]; t < s->s.first[b + 1]; t++)
			sum = pl_add_sat(sum, pl_add_sat(s->s.p->tensor[s->s.tensor[t]].bytes,
							 PAD * MEMBERS));
		max = pl_max_i64(max, sum);
	}
	return max;
}

static void put_environment(struct pl_setter *s)
{
	bool hierarchical = pl_settings_algorithm(s->p) == PL_ALGO_HIERARCHICAL;
	const char *nccl = pl_settings_nccl(s, false);

	if (!s->s.n && !hierarchical && !nccl)
		return;
	pl_write_format(&s->w, "# before hvd.init()\nimport os\n");
	if (s->s.n) {
		put_env(s, "HOROVOD_FUSION_THRESHOLD", threshold(s));
		put_env(s, "HOROVOD_CYCLE_TIME", 1);
		put_env(s, "HOROVOD_DISABLE_GROUP_FUSION", 1);
		s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
	}
	if (hierarchical) {
		put_env(s, "HOROVOD_HIERARCHICAL_ALLREDUCE", 1);
		s->done |= 1u << PL_RW_ALGORITHM;
	}
	if (nccl)
		pl_write_format(&s->w, "os.environ[\"NCCL_ALGO\"] = \"%s\"\n", nccl);
}

static const char by_number[] =
	PL_SETTINGS_READY "groups = [[ready[number] for number in numbers] for numbers in (\n";

static const char by_name[] =
	"named = list(model.named_parameters())\n"
	"def members(name):  # a parameter, or those of a module\n"
	"    return [p for n, p in named if n == name or n.startswith(name + \".\")]\n"
	"groups = [[p for name in names for p in members(name)] for names in (\n";

static void put_groups(struct pl_setter *s)
{
	bool numbers = pl_settings_nameless(s->s.p);

	pl_write_format(&s->w, "%s", numbers ? by_number : by_name);
	for (uint32_t b = 0; b < s->s.n; b++)
		pl_settings_tuple(s, b, numbers);
	pl_write_format(&s->w, ")]\n");
}

static void body(struct pl_setter *s)
{
	int64_t acc = pl_settings_accumulate(s);

	put_environment(s);
	pl_write_format(&s->w, "import torch\nimport horovod.torch as hvd\n");
	pl_settings_torch_precision(s);
	/* before layers are wrapped for recomputing, which changes the names of their parameters */
	if (s->s.n)
		put_groups(s);
	pl_settings_torch_recompute(s);
	if (!s->s.n && !acc)
		return;
	pl_write_format(&s->w, "optimizer = hvd.DistributedOptimizer(\n    optimizer,\n"
			       "    named_parameters=model.named_parameters(),\n");
	if (s->s.n)
		pl_write_format(&s->w, "    groups=groups,\n");
	if (acc)
		pl_write_format(&s->w,
				"    # passes of 1/%lld of the batch each, and of its loss\n"
				"    backward_passes_per_step=%lld,\n",
				(long long)acc, (long long)acc);
	pl_write_format(&s->w, ")\n");
}

const struct pl_settings pl_settings_horovod = {
	"horovod", "Horovod: environment, and groups for DistributedOptimizer", body
};
