/*
 * Settings of Horovod: environment, and groups of tensors for its optimizer.
 *
 * Horovod fuses what is ready when its cycle comes round, up to a threshold, so a threshold alone
 * cannot say which tensors go together; groups (since 0.21) can, if groups are not fused in turn.
 */
#include <string.h>

#include "plan/internal.h"

static int put_environment(struct pl_setter *s, struct pl_err *err)
{
	int rc = 0;

	if (s->s.n) {
		PL_TRY(pl_out_printf(s->out, err,
				     "# in the environment:\n# HOROVOD_FUSION_THRESHOLD=%lld\n"
				     "# HOROVOD_CYCLE_TIME=1\n",
				     (long long)(s->s.max_count > 1 ? s->s.max_bytes : 0)));
		if (s->s.max_count > 1)
			PL_TRY(pl_out_printf(s->out, err, "# HOROVOD_DISABLE_GROUP_FUSION=1\n"));
		s->done |= 1u << PL_RW_FUSE_TENSORS;
	}
	if (pl_settings_algorithm(s->p) == PL_ALGO_HIERARCHICAL) {
		PL_TRY(pl_out_printf(s->out, err, "# HOROVOD_HIERARCHICAL_ALLREDUCE=1\n"));
		s->done |= 1u << PL_RW_ALGORITHM;
	}
out:
	return rc;
}

static int put_groups(struct pl_setter *s, struct pl_err *err)
{
	const char *name;
	bool blank = false;
	int rc = 0;

	PL_TRY(pl_out_printf(s->out, err,
			     "parameters = dict(model.named_parameters())\n"
			     "groups = [[parameters[name] for name in names] for names in (\n"));
	for (uint32_t b = 0; b < s->s.n; b++) {
		uint32_t n = s->s.first[b + 1] - s->s.first[b];
		const uint32_t *t = s->s.tensor + s->s.first[b];

		if (n < 2)
			continue;
		PL_TRY(pl_out_printf(s->out, err, "    ("));
		for (uint32_t i = 0; i < n; i++) {
			PL_TRY(pl_out_printf(s->out, err, i ? ", " : ""));
			name = pl_settings_param(s->p->tensor[t[i]].name);
			blank |= strchr(name, ' ') != NULL;
			PL_TRY(pl_settings_str(s->out, name, err));
		}
		PL_TRY(pl_out_printf(s->out, err, "),\n"));
	}
	PL_TRY(pl_out_printf(s->out, err, ")]\n"));
	if (blank)
		PL_TRY(pl_out_printf(s->out, err,
				     "# the graph did not know the names of parameters: put them "
				     "in, gradients number by readiness\n"));
out:
	return rc;
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	bool groups = s->s.max_count > 1;
	int rc;

	PL_TRY(put_environment(s, err));
	if (!groups && !acc)
		return 0;
	PL_TRY(pl_out_printf(s->out, err, "import horovod.torch as hvd\n"));
	if (groups)
		PL_TRY(put_groups(s, err));
	PL_TRY(pl_out_printf(s->out, err,
			     "optimizer = hvd.DistributedOptimizer(\n    optimizer,\n"
			     "    named_parameters=model.named_parameters(),\n"));
	if (groups)
		PL_TRY(pl_out_printf(s->out, err, "    groups=groups,\n"));
	if (acc) {
		s->done |= 1u << PL_RW_ACCUMULATE;
		PL_TRY(pl_out_printf(s->out, err, "    backward_passes_per_step=%lld,\n",
				     (long long)acc));
	}
	PL_TRY(pl_out_printf(s->out, err, ")\n"));
out:
	return rc;
}

static int write_horovod(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "horovod", out, body, err);
}

const struct pl_settings pl_settings_horovod = {
	"horovod", "Horovod: environment, and groups for DistributedOptimizer", write_horovod
};
