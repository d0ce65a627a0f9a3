/*
 * What settings of all frameworks share: sets of tensors and sizes, comments, code for torch.
 *
 * The file of a framework writes the settings that the framework has, and marks the rewrites that
 * they express. Every other rewrite becomes a comment here, so that none is lost silently.
 */
#include <stdlib.h>

#include "plan/internal.h"

const struct pl_settings *const pl_settings[] = {
	&pl_settings_ddp,	&pl_settings_fsdp,     &pl_settings_horovod, &pl_settings_byteps,
	&pl_settings_deepspeed, &pl_settings_megatron, &pl_settings_xla,     NULL,
};

/* Why no setting expresses the rewrite, unless the file of the framework does. */
static const char *const reasons[] = {
#define REASON(name, kind, why) [PL_RW_##name] = (why),
	PL_PLAN_REWRITES(REASON)
#undef REASON
};

/* ---- the sets -------------------------------------------------------------------------------- */

static void sets_fini(struct pl_sets *s)
{
	pl_plan_buckets_fini(&s->b);
	pl_plan_fini(&s->first_stage);
	pl_free(s->first);
	pl_free(s->tensor);
	memset(s, 0, sizeof(*s));
}

/* Where a plan names the tensor of one of several groups of ranks, as NAME@GROUP: the "@GROUP". */
static const char *group_of(const char *name)
{
	const char *at = strrchr(name, '@');

	return at && at[1] && at[1 + strspn(at + 1, "0123456789")] == '\0' ? at : NULL;
}

/* Only the tensors of the first pipeline stage, and there of one group of ranks, in the sets of the
 * plan. The ranks of the other groups have the same tensors. */
static int take_first_stage(struct pl_sets *s, struct pl_err *err)
{
	struct pl_plan *to = &s->first_stage;
	const char *group = NULL;
	uint32_t *parts;
	int rc = pl_alloc(&parts, s->p->n_tensors, sizeof(*parts), err);

	for (size_t i = 0; rc == 0 && i < s->p->n_tensors; i++) {
		const struct pl_ptensor *t = &s->p->tensor[i];
		const char *own = group_of(t->name), *name = t->name;

		if (t->stage)
			continue;
		group = group ? group : own;
		if (own && strcmp(own, group) != 0)
			continue;
		if (own && !(name = pl_arena_dup(&to->arena, name, (size_t)(own - name)))) {
			rc = pl_fail(err, PL_ENOMEM, "out of memory (settings)");
			break;
		}
		parts[to->n_tensors] = s->b.parts[s->b.set[i]];
		rc = pl_plan_add_tensor(to, name, t->bytes, t->estimated, err);
		if (rc == 0)
			to->tensor[to->n_tensors - 1].set = s->b.set[i];
	}
	pl_plan_buckets_fini(&s->b);
	s->p = to;
	rc = rc ? rc : pl_plan_buckets(to, NULL, &s->b, err);
	for (size_t i = 0; rc == 0 && i < to->n_tensors; i++)
		s->b.parts[s->b.set[i]] = parts[i];
	pl_free(parts);
	return rc;
}

static int sets_init(struct pl_setter *setter, const struct pl_settings *f, struct pl_err *err)
{
	const struct pl_plan *p = setter->p;
	struct pl_sets *s = &setter->s;

	s->p = p;
	pl_plan_init(&s->first_stage);
	for (size_t i = 0; i < p->n_tensors; i++) {
		setter->pipeline |= p->tensor[i].stage > 0;
		setter->groups |= group_of(p->tensor[i].name) != NULL;
	}
	if (!p->n_tensors &&
	    (pl_settings_last(p, PL_RW_WRAP) || pl_settings_last(p, PL_RW_PREFETCH) ||
	     pl_settings_last(p, PL_RW_NO_RESHARD)))
		return pl_plan_check(p, err); /* a sharded job: the plan has groups, not sets */
	if (!p->n_tensors && p->baseline_ns != INT64_MIN)
		setter->no_sets = "the job that was planned reduces no gradients in buckets, or "
				  "its graph knows none";
	else if (!p->n_tensors) /* somebody wrote the plan by hand */
		setter->no_sets =
			"the sizes are not known, because the plan has no statement "
			"tensor NAME BYTES; plan --preset none -O text GRAPH writes these";
	else if (setter->pipeline && f != &pl_settings_megatron)
		setter->no_sets =
			"the stages of a pipeline have different layers, and these settings "
			"are those of one model";
	if (setter->no_sets)
		return pl_plan_check(p, err);
	PL_CHECK(pl_plan_buckets(p, NULL, &s->b, err));
	if (setter->pipeline || setter->groups)
		PL_CHECK(take_first_stage(s, err));
	p = s->p;
	s->n = s->b.n_sets;
	PL_CHECK(pl_alloc(&s->first, p->n_tensors + 3, sizeof(*s->first), err));
	PL_CHECK(pl_alloc(&s->tensor, p->n_tensors + 1, sizeof(*s->tensor), err));
	pl_plan_buckets_members(&s->b, s->first, s->tensor);
	return 0;
}

/* ---- comments -------------------------------------------------------------------------------- */

static void put_head(struct pl_setter *s, const char *name)
{
	const struct pl_plan *p = s->p;
	char now[24], then[24], error[24];
	size_t estimated = pl_plan_estimated(p);

	pl_write_format(&s->w, "# %s: %s", name,
			p->n_rw ? "a plan by paceline"
				: "nothing is proposed: these are the settings as recorded");
	if (!p->n_rw && p->baseline_ns != INT64_MIN)
		pl_write_format(&s->w, ", %s a step", pl_fmt_ns(now, sizeof(now), p->baseline_ns));
	else if (p->predicted_ns != INT64_MIN && p->baseline_ns != INT64_MIN) {
		pl_write_format(&s->w, "; %s a step predicted",
				pl_fmt_ns(then, sizeof(then), p->predicted_ns));
		if (p->error_ns != INT64_MIN)
			pl_write_format(&s->w, " (+- %s)",
					pl_fmt_ns(error, sizeof(error), p->error_ns));
		pl_write_format(&s->w, ", %s so far", pl_fmt_ns(now, sizeof(now), p->baseline_ns));
	}
	pl_write_format(&s->w, "\n");
	if (estimated && estimated == p->n_tensors)
		pl_write_format(&s->w,
				"# the sizes of all %zu tensors are estimated: every number "
				"of bytes below is a guess; record with "
				"record_shapes=True, and plan again\n",
				estimated);
	else if (estimated)
		pl_write_format(&s->w, "# sizes of some tensors are estimated: check what the "
				       "framework makes of these\n");
	if (s->groups)
		pl_write_text(&s->w,
			      "# several groups of ranks reduce gradients of the same names: "
			      "these are the settings of one group, and all get the same\n");
	if (s->no_sets)
		pl_write_format(&s->w, "# nothing can be said about buckets: %s\n", s->no_sets);
}

/* "# not expressed: order a b c ... (5 names): why" */
static void put_not(struct pl_setter *s, const struct pl_rewrite *rw)
{
	struct pl_rewrite shown = *rw;
	struct pl_lang_statement st = { 0 };

	shown.n_args = rw->n_args < 3 ? rw->n_args : 3;
	shown.alone_ns = shown.in_plan_ns = INT64_MIN;
	if (pl_plan_statement(&shown, &st, &s->w.fail) >= 0) {
		pl_write_text(&s->w, "# not expressed: ");
		pl_lang_write(&s->w, &st);
		if (shown.n_args < rw->n_args)
			pl_write_format(&s->w, " ... (%u names)", rw->n_args);
		pl_write_format(&s->w, ": %s\n",
				s->no_sets && rw->op == PL_RW_FUSE_TENSORS ? "see above"
									   : reasons[rw->op]);
	}
	pl_lang_end(&st);
}

int pl_settings_write(const struct pl_settings *f, const struct pl_plan *p, struct pl_out *out,
		      struct pl_err *err)
{
	struct pl_setter s = { .p = p, .w = { .out = out } };

	if (sets_init(&s, f, &s.w.fail) >= 0) {
		put_head(&s, f->name);
		f->body(&s);
		for (size_t i = 0; i < p->n_rw; i++)
			if (!(s.done & 1u << p->rw[i].op))
				put_not(&s, &p->rw[i]);
	}
	sets_fini(&s.s);
	return pl_write_end(&s.w, err);
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct pl_rewrite *pl_settings_last(const struct pl_plan *p, unsigned op)
{
	for (size_t i = p->n_rw; i-- > 0;)
		if (p->rw[i].op == op)
			return &p->rw[i];
	return NULL;
}

int64_t pl_settings_accumulate(struct pl_setter *s)
{
	const struct pl_plan *p = s->p;
	int64_t k = 0;

	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_ACCUMULATE)
			k = k > INT64_MAX / 65536 ? INT64_MAX : (k ? k : 1) * p->rw[i].k;
	s->done |= k ? 1u << PL_RW_ACCUMULATE : 0;
	return k;
}

const char *pl_plan_param(const char *tensor)
{
	return !strncmp(tensor, "grad ", 5) && tensor[5] ? tensor + 5 : tensor;
}

const char *pl_settings_precision(const struct pl_plan *p)
{
	const struct pl_rewrite *rw = pl_settings_last(p, PL_RW_PRECISION);

	return rw && !rw->n_args ? rw->word : NULL;
}

const char *pl_settings_half(const struct pl_plan *p)
{
	const char *word = pl_settings_precision(p);

	return !word		       ? NULL
	       : !strcmp(word, "bf16") ? "bfloat16"
	       : !strcmp(word, "fp16") ? "float16"
				       : NULL;
}

const char pl_settings_scaler[] =
	"scaler = torch.amp.GradScaler(\"cuda\")  # float16 needs its loss scaled\n";

int pl_settings_algorithm(const struct pl_plan *p)
{
	const struct pl_rewrite *rw = pl_settings_last(p, PL_RW_ALGORITHM);

	return rw && !rw->n_args ? pl_plan_algorithm_find(rw->word) : -1;
}

const char *pl_settings_nccl(struct pl_setter *s, bool rings_alone)
{
	int algo = pl_settings_algorithm(s->p);

	if (algo != PL_ALGO_RING && (algo != PL_ALGO_TREE || rings_alone))
		return NULL;
	s->done |= 1u << PL_RW_ALGORITHM;
	/* NCCL fails where it has no tree for a collective, such as the broadcasts at the start. So
	 * the setting names all-reduces only, which NCCL allows since 2.24. */
	return algo == PL_ALGO_RING ? "ring" : "allreduce:tree";
}

bool pl_settings_nameless(const struct pl_plan *p)
{
	for (size_t i = 0; i < p->n_tensors; i++) {
		const char *name = pl_plan_param(p->tensor[i].name);
		size_t n = strspn(name, "0123456789");

		/* a layer may have a number as its name, but layers are numbered in the order of
		 * the forward pass, and gradients in that of the backward pass */
		if (!n || (name[n] ? name[n] != ' ' : strtoull(name, NULL, 10) != i))
			return false;
	}
	return p->n_tensors > 0;
}

void pl_settings_tuple(struct pl_setter *s, uint32_t set, bool numbers)
{
	const uint32_t *t = s->s.tensor + s->s.first[set], *end = s->s.tensor + s->s.first[set + 1];
	const char *name;

	pl_write_format(&s->w, "    (");
	for (const uint32_t *i = t; i < end; i++) {
		if (i > t)
			pl_write_format(&s->w, ", ");
		name = pl_plan_param(s->s.p->tensor[*i].name);
		if (numbers)
			pl_write_format(&s->w, "%llu", strtoull(name, NULL, 10));
		else
			pl_write_json_str(&s->w, name, strlen(name));
	}
	/* in Python a tuple of one element needs a comma */
	pl_write_format(&s->w, end - t == 1 ? ",),\n" : "),\n");
}

/* ---- torch ----------------------------------------------------------------------------------- */

void pl_settings_torch_precision(struct pl_setter *s)
{
	const char *word = pl_settings_precision(s->p), *dtype;

	if (!word)
		return;
	if (!strcmp(word, "tf32") || !strcmp(word, "fp32")) {
		s->done |= 1u << PL_RW_PRECISION;
		pl_write_format(&s->w, "torch.set_float32_matmul_precision(\"%s\")\n",
				word[0] == 't' ? "high" : "highest");
		return;
	}
	dtype = pl_settings_half(s->p);
	if (!dtype)
		return;
	s->done |= 1u << PL_RW_PRECISION;
	pl_write_format(
		&s->w,
		"autocast = torch.autocast(\"cuda\", dtype=torch.%s)  # with autocast: around "
		"forward pass and loss\n%s",
		dtype, dtype[0] == 'f' ? pl_settings_scaler : "");
}

void pl_settings_torch_nccl(struct pl_setter *s, bool rings_alone)
{
	const char *algo = pl_settings_nccl(s, rings_alone);

	if (!algo)
		return;
	pl_write_format(&s->w,
			"import os\nos.environ[\"NCCL_ALGO\"] = \"%s\"  # before the process "
			"group is made; obeyed by NCCL alone\n",
			algo);
}

void pl_settings_torch_loader(struct pl_setter *s)
{
	const struct pl_rewrite *rw = pl_settings_last(s->p, PL_RW_LOADER_WORKERS);
	char had[64];

	if (!rw)
		return;
	if (rw->x == 1) /* as plan writes it, which does not know the number */
		snprintf(had, sizeof(had), "if it had 1; else multiply its number by this");
	else if (rw->x > 0)
		snprintf(had, sizeof(had), "if it had %g", rw->x);
	else
		snprintf(had, sizeof(had), "and its other options as they are");
	pl_write_format(&s->w,
			"loader = torch.utils.data.DataLoader(dataset, num_workers=%lld)  # %s\n",
			(long long)rw->k, had);
	s->done |= 1u << PL_RW_LOADER_WORKERS;
}

void pl_settings_torch_recompute(struct pl_setter *s)
{
	bool any = pl_settings_last(s->p, PL_RW_RECOMPUTE) != NULL;

	if (!any)
		return;
	pl_write_format(&s->w,
			"# before the model is wrapped; the names are those of modules\n"
			"from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
			"apply_activation_checkpointing\nrecomputed = [model.get_submodule(name) "
			"for name in (\n");
	for (size_t i = 0; i < s->p->n_rw; i++) {
		const struct pl_rewrite *rw = &s->p->rw[i];

		for (uint32_t a = 0; rw->op == PL_RW_RECOMPUTE && a < rw->n_args; a++) {
			pl_write_format(&s->w, "    ");
			pl_write_json_str(&s->w, rw->arg[a], strlen(rw->arg[a]));
			pl_write_format(&s->w, ",\n");
		}
	}
	s->done |= 1u << PL_RW_RECOMPUTE;
	pl_write_format(&s->w, ")]\napply_activation_checkpointing(model, check_fn=lambda m: "
			       "any(m is l for l in recomputed))\n");
}
