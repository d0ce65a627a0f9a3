/*
 * What the settings of all frameworks share: the sets of tensors with their sizes, comments, and
 * the code for torch.
 *
 * The file of a framework writes the settings that the framework has, and marks the rewrites that
 * they express. Every other rewrite becomes a comment here, so that none is lost silently.
 */
#include <stdlib.h>
#include <string.h>

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

/* ---- the sets -----------------------------------------------------------------------------------
 */

static void sets_fini(struct pl_sets *s)
{
	pl_plan_buckets_fini(&s->b);
	pl_free(s->first);
	pl_free(s->tensor);
	pl_free(s->bytes);
	memset(s, 0, sizeof(*s));
}

/* Tensors by set, by counting. */
static void sort_sets(struct pl_sets *s)
{
	size_t n = s->p->n_tensors;

	for (size_t i = 0; i < n; i++)
		s->first[s->b.set[i] + 1]++;
	for (uint32_t b = 0; b < s->n; b++) {
		if (s->first[b + 1] > s->max_count)
			s->max_count = s->first[b + 1];
		s->first[b + 1] += s->first[b];
	}
	for (size_t i = n; i-- > 0;)
		s->tensor[--s->first[s->b.set[i] + 1]] = (uint32_t)i;
	/* each first[b + 1] went back to its set's begin */
	for (uint32_t b = 0; b < s->n; b++)
		s->first[b] = s->first[b + 1];
	s->first[s->n] = (uint32_t)n;
}

static int sets_init(struct pl_sets *s, const struct pl_plan *p, struct pl_err *err)
{
	int rc;

	s->p = p;
	s->max_parts = 1;
	if (!p->n_tensors)
		return pl_plan_check(p, err); /* by hand: nothing is known of sizes */
	PL_TRY(pl_plan_buckets(p, NULL, &s->b, err));
	s->n = s->b.n_sets;
	PL_TRY(pl_alloc(&s->first, (size_t)s->n + 2, sizeof(*s->first), err));
	PL_TRY(pl_alloc(&s->tensor, p->n_tensors, sizeof(*s->tensor), err));
	PL_TRY(pl_alloc(&s->bytes, s->n, sizeof(*s->bytes), err));
	sort_sets(s);
	for (size_t i = 0; i < p->n_tensors; i++) {
		int64_t *b = &s->bytes[s->b.set[i]];

		*b = pl_add_sat(*b, p->tensor[i].bytes);
	}
	for (uint32_t b = 0; b < s->n; b++) {
		int64_t k = s->b.parts[b], chunk = s->bytes[b] / k + (s->bytes[b] % k > 0);

		s->max_bytes = pl_max_i64(s->max_bytes, s->bytes[b]);
		s->max_chunk = pl_max_i64(s->max_chunk, chunk);
		if (s->b.parts[b] > s->max_parts)
			s->max_parts = s->b.parts[b];
	}
out:
	return rc;
}

/* ---- comments -----------------------------------------------------------------------------------
 */

static int put_head(struct pl_setter *s, const char *name, struct pl_err *err)
{
	const struct pl_plan *p = s->p;
	char now[24], then[24];
	bool estimated = false;
	int rc;

	PL_TRY(pl_out_printf(s->out, err, "# %s: a plan by paceline", name));
	if (p->predicted_ns != INT64_MIN && p->baseline_ns != INT64_MIN)
		PL_TRY(pl_out_printf(s->out, err, "; %s a step predicted, %s so far",
				     pl_fmt_ns(then, sizeof(then), p->predicted_ns),
				     pl_fmt_ns(now, sizeof(now), p->baseline_ns)));
	PL_TRY(pl_out_printf(s->out, err, "\n"));
	for (size_t i = 0; i < p->n_tensors; i++)
		estimated |= p->tensor[i].estimated;
	if (estimated)
		PL_TRY(pl_out_printf(s->out, err,
				     "# sizes of some tensors are estimated: check what the "
				     "framework makes of these\n"));
	if (!p->n_tensors)
		PL_TRY(pl_out_printf(s->out, err,
				     "# the plan names no tensors of its base: nothing can be said "
				     "about buckets\n"));
out:
	return rc;
}

/* "# not expressed: order a b c ... (5 names): why" */
static int put_not(struct pl_setter *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_rewrite shown = *rw;
	struct pl_lang_statement st = { 0 };
	struct pl_buf b = { 0 };
	int rc;

	shown.n_args = rw->n_args < 3 ? rw->n_args : 3;
	shown.alone_ns = shown.in_plan_ns = INT64_MIN;
	PL_TRY(pl_plan_statement(&shown, &st, err));
	PL_TRY(pl_lang_put(&b, &st, err));
	b.n--; /* its newline */
	if (shown.n_args < rw->n_args)
		PL_TRY(pl_buf_printf(&b, err, " ... (%u names)", rw->n_args));
	rc = pl_out_printf(s->out, err, "# not expressed: %.*s: %s\n", (int)b.n, (char *)b.p,
			   reasons[rw->op]);
out:
	pl_lang_end(&st);
	pl_buf_fini(&b);
	return rc;
}

int pl_settings_write(const struct pl_plan *p, const char *name, struct pl_out *out,
		      int (*body)(struct pl_setter *s, struct pl_err *err), struct pl_err *err)
{
	struct pl_setter s = { .p = p, .out = out };
	int rc;

	PL_TRY(sets_init(&s.s, p, err));
	PL_TRY(put_head(&s, name, err));
	PL_TRY(body(&s, err));
	for (size_t i = 0; i < p->n_rw; i++)
		if (!(s.done & 1u << p->rw[i].op))
			PL_TRY(put_not(&s, &p->rw[i], err));
out:
	sets_fini(&s.s);
	return rc;
}

/* ---- questions ----------------------------------------------------------------------------------
 */

const struct pl_rewrite *pl_settings_last(const struct pl_plan *p, unsigned op)
{
	for (size_t i = p->n_rw; i-- > 0;)
		if (p->rw[i].op == op)
			return &p->rw[i];
	return NULL;
}

int64_t pl_settings_accumulate(const struct pl_plan *p)
{
	int64_t k = 0;

	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_ACCUMULATE)
			k = k > INT64_MAX / 65536 ? INT64_MAX : (k ? k : 1) * p->rw[i].k;
	return k;
}

const char *pl_settings_param(const char *tensor)
{
	return !strncmp(tensor, "grad ", 5) && tensor[5] ? tensor + 5 : tensor;
}

const char *pl_settings_precision(const struct pl_plan *p)
{
	const struct pl_rewrite *rw = pl_settings_last(p, PL_RW_PRECISION);

	return rw && !rw->n_args ? rw->word : NULL;
}

int pl_settings_algorithm(const struct pl_plan *p)
{
	const struct pl_rewrite *rw = pl_settings_last(p, PL_RW_ALGORITHM);

	return rw && !rw->n_args ? pl_algo_find(rw->word) : -1;
}

const char *pl_settings_nccl(struct pl_setter *s, bool rings_alone)
{
	int algo = pl_settings_algorithm(s->p);

	if (algo != PL_ALGO_RING && (algo != PL_ALGO_TREE || rings_alone))
		return NULL;
	s->done |= 1u << PL_RW_ALGORITHM;
	/* a tree for what has none, as the broadcasts at the start, would be an error: so it is
	 * given for all-reduces only, which NCCL can be told since 2.24 */
	return algo == PL_ALGO_RING ? "ring" : "allreduce:tree";
}

bool pl_settings_nameless(const struct pl_plan *p)
{
	for (size_t i = 0; i < p->n_tensors; i++) {
		const char *name = pl_settings_param(p->tensor[i].name);
		size_t n = strspn(name, "0123456789");

		/* a bare number may be a layer's name, but those count forward, these backward */
		if (!n || (name[n] ? name[n] != ' ' : strtoull(name, NULL, 10) != i))
			return false;
	}
	return p->n_tensors > 0;
}

int pl_settings_tuple(struct pl_setter *s, uint32_t set, bool numbers, struct pl_err *err)
{
	const uint32_t *t = s->s.tensor + s->s.first[set], *end = s->s.tensor + s->s.first[set + 1];
	const char *name;
	int rc;

	PL_TRY(pl_out_printf(s->out, err, "    ("));
	for (const uint32_t *i = t; i < end; i++) {
		if (i > t)
			PL_TRY(pl_out_printf(s->out, err, ", "));
		name = pl_settings_param(s->p->tensor[*i].name);
		if (numbers)
			PL_TRY(pl_out_printf(s->out, err, "%llu", strtoull(name, NULL, 10)));
		else
			PL_TRY(pl_settings_str(s->out, name, err));
	}
	/* one alone would be no tuple without its comma */
	rc = pl_out_printf(s->out, err, end - t == 1 ? ",),\n" : "),\n");
out:
	return rc;
}

int pl_settings_str(struct pl_out *out, const char *s, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_out_write(out, "\"", 1, err));
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			PL_TRY(pl_out_printf(out, err, "\\%c", c));
		else if (c < 0x20 || c == 0x7f)
			PL_TRY(pl_out_printf(out, err, "\\u%04x", c));
		else
			PL_TRY(pl_out_write(out, s, 1, err));
	}
	rc = pl_out_write(out, "\"", 1, err);
out:
	return rc;
}

/* ---- torch --------------------------------------------------------------------------------------
 */

int pl_settings_torch_precision(struct pl_setter *s, struct pl_err *err)
{
	const char *word = pl_settings_precision(s->p), *dtype = NULL;

	if (!word)
		return 0;
	if (!strcmp(word, "tf32") || !strcmp(word, "fp32")) {
		s->done |= 1u << PL_RW_PRECISION;
		return pl_out_printf(s->out, err, "torch.set_float32_matmul_precision(\"%s\")\n",
				     word[0] == 't' ? "high" : "highest");
	}
	if (!strcmp(word, "bf16"))
		dtype = "bfloat16";
	else if (!strcmp(word, "fp16"))
		dtype = "float16";
	if (!dtype)
		return 0;
	s->done |= 1u << PL_RW_PRECISION;
	return pl_out_printf(
		s->out, err,
		"autocast = torch.autocast(\"cuda\", dtype=torch.%s)  # with autocast: around "
		"forward pass and loss\n%s",
		dtype,
		dtype[0] == 'f' ? "scaler = torch.amp.GradScaler(\"cuda\")  # float16 needs its "
				  "loss scaled\n"
				: "");
}

int pl_settings_torch_nccl(struct pl_setter *s, bool rings_alone, struct pl_err *err)
{
	const char *algo = pl_settings_nccl(s, rings_alone);

	if (!algo)
		return 0;
	return pl_out_printf(s->out, err,
			     "import os\nos.environ[\"NCCL_ALGO\"] = \"%s\"  # before the process "
			     "group is made; obeyed by NCCL alone\n",
			     algo);
}

int pl_settings_torch_recompute(struct pl_setter *s, struct pl_err *err)
{
	bool any = pl_settings_last(s->p, PL_RW_RECOMPUTE) != NULL;
	int rc = 0;

	if (!any)
		return 0;
	PL_TRY(pl_out_printf(
		s->out, err,
		"# before the model is wrapped; the names are those of modules\n"
		"from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
		"apply_activation_checkpointing\nlayers = [model.get_submodule(name) for name in "
		"(\n"));
	for (size_t i = 0; i < s->p->n_rw; i++) {
		const struct pl_rewrite *rw = &s->p->rw[i];

		for (uint32_t a = 0; rw->op == PL_RW_RECOMPUTE && a < rw->n_args; a++) {
			PL_TRY(pl_out_printf(s->out, err, "    "));
			PL_TRY(pl_settings_str(s->out, rw->arg[a], err));
			PL_TRY(pl_out_printf(s->out, err, ",\n"));
		}
	}
	s->done |= 1u << PL_RW_RECOMPUTE;
	rc = pl_out_printf(s->out, err,
			   ")]\napply_activation_checkpointing(model, check_fn=lambda m: "
			   "any(m is l for l in layers))\n");
out:
	return rc;
}
