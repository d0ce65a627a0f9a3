/*
 * Settings of PyTorch's fully sharded data parallelism (fully_shard).
 *
 * Each call of fully_shard makes one group of those parameters of the given modules that no earlier
 * call has taken; a group is gathered and reduced as one. For a set of the plan, the modules of its
 * tensors are given, each as a whole. A name is that of a module, as in tables of layers, or that
 * of a parameter; the generated code finds out which. Inner modules must come before the outer
 * ones, so sets are written by the depth of their names. A group cannot be smaller than a module:
 * modules with parameters in several sets are counted by sorting, O(tensors log tensors).
 *
 * A plan says how early groups are gathered (prefetch), or that they keep their parameters after
 * the forward pass (no-reshard), and nothing else of gathering.
 */
#include "plan/internal.h"

/* The module of a parameter, as bytes of its name. */
static size_t module_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? (size_t)(dot - name) : 0;
}

struct owner {
	const char *name; /* the module: its first n bytes */
	size_t n;
	uint32_t set;
};

static int by_module(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;
	int c = memcmp(x->name, y->name, x->n < y->n ? x->n : y->n);

	return c ? c : PL_COMPARE_FIELDS(x, y, n, set);
}

/* Modules with parameters in several sets, if the names are those of parameters. */
static uint32_t count_torn(struct pl_setter *s)
{
	size_t n = s->s.p->n_tensors, begin = 0;
	uint32_t torn = 0;
	struct owner *o;

	if (pl_alloc(&o, n, sizeof(*o), &s->w.fail) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		o[i].name = pl_plan_param(s->s.p->tensor[i].name);
		o[i].n = module_of(o[i].name);
		o[i].set = s->s.b.set[i];
	}
	pl_sort(o, n, sizeof(*o), by_module);
	for (size_t i = 1; i <= n; i++) {
		if (i < n && o[i].n == o[begin].n && !memcmp(o[i].name, o[begin].name, o[i].n))
			continue;
		torn += o[i - 1].set != o[begin].set;
		begin = i;
	}
	pl_free(o);
	return torn;
}

struct place {
	uint32_t set, depth;
};

PL_COMPARATOR_FALLING(deepest_first, struct place, depth, set);

/* Sets as tuples, those with the deepest names first; as they are issued where names are numbers.
 */
static void put_sets(struct pl_setter *s, bool numbers)
{
	struct place *p;

	if (pl_alloc(&p, s->s.n, sizeof(*p), &s->w.fail) < 0)
		return;
	for (uint32_t i = 0; i < s->s.n; i++) {
		p[i].set = i;
		for (uint32_t t = s->s.first[i]; !numbers && t < s->s.first[i + 1]; t++) {
			const char *name = pl_plan_param(s->s.p->tensor[s->s.tensor[t]].name);
			uint32_t depth = 0;

			while ((name = strchr(name, '.'))) {
				name++;
				depth++;
			}
			if (depth > p[i].depth)
				p[i].depth = depth;
		}
	}
	pl_sort(p, s->s.n, sizeof(*p), deepest_first);
	for (uint32_t i = 0; i < s->s.n; i++)
		pl_settings_tuple(s, p[i].set, numbers);
	pl_free(p);
}

static const char by_number[] = PL_SETTINGS_READY
	"owner = {p: m for m in model.modules() for p in m.parameters(recurse=False)}\n"
	"def module(number):\n"
	"    return owner[ready[number]]\n";

static const char by_name[] =
	"def module(name):  # of the name of a module or of one of its parameters\n"
	"    try:\n"
	"        return model.get_submodule(name)\n"
	"    except AttributeError:\n"
	"        return model.get_submodule(name.rpartition(\".\")[0])\n";

static void put_modules(struct pl_setter *s)
{
	bool numbers = pl_settings_nameless(s->s.p);
	uint32_t torn;

	if (!s->s.n)
		return;
	pl_write_format(&s->w, "%staken = {model}\nfor names in (\n",
			numbers ? by_number : by_name);
	put_sets(s, numbers);
	pl_write_format(&s->w,
			"):\n"
			"    group = [m for m in dict.fromkeys(map(module, names)) if m not in "
			"taken]\n"
			"    taken.update(group)\n"
			"    if group:\n"
			"        fully_shard(group, **options)\n"
			"fully_shard(model, **options)  # what is left\n");
	torn = numbers ? 0 : count_torn(s);
	if (numbers)
		pl_write_format(&s->w, "# a module with parameters in several sets goes with the "
				       "first of them\n");
	else if (torn)
		pl_write_format(&s->w,
				"# not exactly the plan's sets where names are those of "
				"parameters: %u modules have some in\n"
				"# several, and go with the first of them here\n",
				torn);
	s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
}

/* Groups of so many layers, or one for all. A plan does not know the mesh of the job, nor which
 * groups keep their parameters. */
static void put_groups(struct pl_setter *s, int64_t layers)
{
	pl_write_format(&s->w, "# mesh and reshard_after_forward: as they are now\n");
	if (layers < 0)
		pl_write_format(&s->w,
				"# each rank gathers all parameters at once, and needs memory for "
				"them\n"
				"fully_shard(model, **options)  # and no module inside it\n");
	else
		pl_write_format(&s->w,
				"# layers: the modules that are groups now, in the order in which "
				"they run\n"
				"layers = list(layers)\n"
				"for i in range(0, len(layers), %lld):\n"
				"    fully_shard(layers[i:i + %lld], **options)\n"
				"fully_shard(model, **options)  # what is left\n",
				(long long)layers, (long long)layers);
	s->done |= 1u << PL_RW_WRAP;
}

/* The gather of a group is issued with that of the one so many places before it. By itself a gather
 * of gloo holds the thread that issues it. */
static void put_prefetch(struct pl_setter *s, int64_t groups)
{
	long long n = groups;

	pl_write_format(
		&s->w,
		"# behind fully_shard, which stays as it is but for **options; layers: the modules "
		"inside the\n# model that are groups, in the order in which they run\n"
		"layers = list(layers)\n"
		"for i, layer in enumerate(layers):\n"
		"    layer.set_modules_to_forward_prefetch(layers[i + 1:i + %lld])\n"
		"    layer.set_modules_to_backward_prefetch(layers[max(i - %lld, 0):i][::-1])\n"
		"model.set_modules_to_forward_prefetch(layers[:%lld])\n"
		"model.set_modules_to_backward_prefetch(layers[:-%lld:-1])\n"
		"model._set_unshard_async_op(True)  # needed by gloo, whose gathers block\n",
		n + 1, n, n, n + 1);
	s->done |= 1u << PL_RW_PREFETCH;
}

/* As **options say. */
static void put_kept(struct pl_setter *s)
{
	pl_write_format(&s->w,
			"# each call of fully_shard stays as it is but for **options; each rank "
			"needs memory for all\n# parameters\n"
			"options[\"reshard_after_forward\"] = False\n");
	s->done |= 1u << PL_RW_NO_RESHARD;
}

/* Gradients keep the precision that their sizes in the plan have, so reduce_dtype is written, too.
 */
static void put_options(struct pl_setter *s)
{
	const char *dtype = pl_settings_half(s->p);

	if (!dtype) {
		pl_settings_torch_precision(s);
		pl_write_format(&s->w, "options = {}\n");
		return;
	}
	s->done |= 1u << PL_RW_PRECISION;
	pl_write_format(&s->w,
			"options = {\"mp_policy\": MixedPrecisionPolicy(param_dtype=torch.%s, "
			"reduce_dtype=torch.float32)}\n%s",
			dtype, dtype[0] == 'f' ? pl_settings_scaler : "");
}

static void body(struct pl_setter *s)
{
	const struct pl_rewrite *wrap = pl_settings_last(s->p, PL_RW_WRAP);
	const struct pl_rewrite *prefetch = pl_settings_last(s->p, PL_RW_PREFETCH);
	int64_t acc = pl_settings_accumulate(s);

	pl_write_format(&s->w, "import torch\nfrom torch.distributed.fsdp import %sfully_shard\n",
			pl_settings_half(s->p) ? "MixedPrecisionPolicy, " : "");
	pl_settings_torch_nccl(s, true);
	put_options(s);
	pl_settings_torch_loader(s);
	pl_settings_torch_recompute(s);
	if (wrap)
		put_groups(s, wrap->k);
	else if (prefetch)
		put_prefetch(s, prefetch->k);
	else if (pl_settings_last(s->p, PL_RW_NO_RESHARD))
		put_kept(s);
	else
		put_modules(s);
	if (acc)
		pl_write_format(&s->w,
				"accumulate = %lld  # microbatches a step: "
				"model.set_requires_gradient_sync(False), True before the last\n",
				(long long)acc);
}

const struct pl_settings pl_settings_fsdp = { "fsdp",
					      "PyTorch fully_shard: groups of modules, as code",
					      body };
