/*
 * Settings of PyTorch's fully sharded data parallelism (fully_shard).
 *
 * Each call of fully_shard makes one group of the parameters below a module that no call before
 * took; a group is gathered and reduced as one. A set of the plan asks for the deepest module that
 * holds all its tensors, going by their dotted names. Calls go from the deepest module to the root;
 * which sets that gives exactly is found by playing it through: O(sets x tensors).
 */
#include <string.h>

#include "plan/internal.h"

struct unit {
	const char *name; /* of a tensor; its first n bytes name the module */
	size_t n;
	int depth;
	uint32_t set, tensors; /* that it takes */
	bool same, own;	       /* all of them are the set's; another set has the same module */
};

/* The module of a tensor, as bytes of its name. */
static size_t module_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? (size_t)(dot - name) : 0;
}

/* Does module a (n bytes) hold module b (m bytes), or is it? */
static bool holds(const char *a, size_t n, const char *b, size_t m)
{
	return n <= m && !memcmp(a, b, n) && (n == m || !n || b[n] == '.');
}

static struct unit unit_of(const struct pl_setter *s, uint32_t set)
{
	const uint32_t *t = s->s.tensor + s->s.first[set], *end = s->s.tensor + s->s.first[set + 1];
	struct unit u = { .name = pl_settings_param(s->p->tensor[*t].name),
			  .set = set,
			  .same = true,
			  .own = true };

	u.n = module_of(u.name);
	for (; t < end; t++) {
		const char *name = pl_settings_param(s->p->tensor[*t].name);
		size_t m = module_of(name);

		while (!holds(u.name, u.n, name, m)) {
			while (u.n > 0 && u.name[--u.n] != '.') {
			}
		}
	}
	for (size_t i = 0; i < u.n; i++)
		u.depth += u.name[i] == '.';
	u.depth += u.n > 0;
	return u;
}

static int deepest_first(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	if (x->depth != y->depth)
		return x->depth > y->depth ? -1 : 1;
	return x->set < y->set ? -1 : x->set > y->set;
}

/* Who takes each tensor? */
static void play(const struct pl_setter *s, struct unit *u)
{
	for (uint32_t i = 0; i < s->s.n; i++)
		for (uint32_t k = 0; k < i && u[i].own; k++)
			u[i].own = u[k].n != u[i].n || memcmp(u[k].name, u[i].name, u[i].n) != 0;
	for (size_t i = 0; i < s->p->n_tensors; i++) {
		const char *name = pl_settings_param(s->p->tensor[i].name);
		size_t m = module_of(name);
		uint32_t k = 0;

		while (k + 1 < s->s.n && !(u[k].own && holds(u[k].name, u[k].n, name, m)))
			k++;
		u[k].tensors++;
		u[k].same &= u[k].set == s->s.bucket[i];
	}
}

static bool exact(const struct pl_setter *s, const struct unit *u)
{
	return u->own && u->same && u->tensors == s->s.first[u->set + 1] - s->s.first[u->set];
}

static int put_units(struct pl_setter *s, const struct unit *u, struct pl_err *err)
{
	uint32_t differ = 0;
	int rc;

	PL_TRY(pl_out_printf(s->out, err, "for name in (\n"));
	for (uint32_t i = 0; i < s->s.n; i++) {
		char module[512];

		differ += !exact(s, &u[i]) || u[i].n >= sizeof(module);
		if (!u[i].own || !u[i].n || u[i].n >= sizeof(module))
			continue;
		memcpy(module, u[i].name, u[i].n);
		module[u[i].n] = '\0';
		PL_TRY(pl_out_printf(s->out, err, "    "));
		PL_TRY(pl_settings_str(s->out, module, err));
		PL_TRY(pl_out_printf(s->out, err, ",\n"));
	}
	PL_TRY(pl_out_printf(s->out, err,
			     "):\n    fully_shard(model.get_submodule(name), **options)\n"
			     "fully_shard(model, **options)\n"));
	if (differ)
		PL_TRY(pl_out_printf(s->out, err,
				     "# not exactly the plan's sets: %u of %u are not the "
				     "parameters of one module\n",
				     differ, s->s.n));
	s->done |= 1u << PL_RW_FUSE_TENSORS;
out:
	return rc;
}

static int put_modules(struct pl_setter *s, struct pl_err *err)
{
	int64_t least = INT64_MAX;
	struct unit *u = NULL;
	int rc;

	if (!s->s.n)
		return 0;
	PL_TRY(pl_alloc(&u, s->s.n, sizeof(*u), err));
	for (uint32_t i = 0; i < s->s.n; i++) {
		u[i] = unit_of(s, i);
		least = pl_min_i64(least, s->s.bytes[i]);
	}
	pl_sort(u, s->s.n, sizeof(*u), deepest_first);
	play(s, u);
	PL_TRY(put_units(s, u, err));
	rc = pl_out_printf(s->out, err,
			   "# FullyShardedDataParallel: "
			   "auto_wrap_policy=functools.partial(size_based_auto_wrap_policy,\n"
			   "#     min_num_params=%lld), the smallest set at 4 bytes an element\n",
			   (long long)pl_max_i64(least / 4, 1));
out:
	pl_free(u);
	return rc;
}

static int put_options(struct pl_setter *s, struct pl_err *err)
{
	const char *word = pl_settings_precision(s->p), *dtype = NULL;
	int rc;

	if (word && !strcmp(word, "bf16"))
		dtype = "bfloat16";
	else if (word && !strcmp(word, "fp16"))
		dtype = "float16";
	if (!dtype) {
		PL_TRY(pl_settings_torch_precision(s, err));
		return pl_out_printf(s->out, err, "options = {}\n");
	}
	s->done |= 1u << PL_RW_PRECISION;
	rc = pl_out_printf(
		s->out, err,
		"options = {\"mp_policy\": MixedPrecisionPolicy(param_dtype=torch.%s)}\n", dtype);
out:
	return rc;
}

static int body(struct pl_setter *s, struct pl_err *err)
{
	int64_t acc = pl_settings_accumulate(s->p);
	int rc;

	PL_TRY(pl_out_printf(s->out, err,
			     "import torch\nfrom torch.distributed.fsdp import "
			     "MixedPrecisionPolicy, fully_shard\n"));
	PL_TRY(put_options(s, err));
	PL_TRY(pl_settings_torch_recompute(s, err));
	PL_TRY(put_modules(s, err));
	if (acc) {
		s->done |= 1u << PL_RW_ACCUMULATE;
		PL_TRY(pl_out_printf(
			s->out, err,
			"accumulate = %lld  # microbatches a step: "
			"model.set_requires_gradient_sync(False), True before the last\n",
			(long long)acc));
	}
out:
	return rc;
}

static int write_fsdp(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(p, "fsdp", out, body, err);
}

const struct pl_settings pl_settings_fsdp = {
	"fsdp", "PyTorch fully_shard: modules that are one group each, as code", write_fsdp
};
