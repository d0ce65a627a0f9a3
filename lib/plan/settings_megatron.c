/*
 * Settings of Megatron-LM: options of its training programs.
 *
 * Megatron-LM closes a bucket when its elements reach the given size; all buckets have one size.
 * Buckets are reduced during the backward pass only with --overlap-grad-reduce. Recomputation takes
 * the first N transformer layers of each pipeline stage. The number of a transformer layer is the
 * first number among the parts of a name (encoder.layer.3.attention), or ends the name (h3). A
 * layer without a number, as an embedding, cannot be recomputed.
 *
 * Megatron-LM has no settings for sets of different sizes, chunks, an order, or recomputation of
 * chosen layers or of parts of a layer.
 */
#include "plan/internal.h"

#define ELEMENT 4 /* bytes: gradients as the base has them */

/* The number of the transformer layer, -1 if the name has none. */
static int64_t layer_number(const char *name)
{
	const char *end = "";

	for (const char *part = name; part; part = strchr(part, '.')) {
		int64_t n;

		part += *part == '.';
		n = pl_take_digits(&part);
		if (n >= 0 && (!*part || *part == '.'))
			return n;
	}
	for (size_t n = strlen(name); n-- > 0 && strchr("0123456789", name[n]);)
		end = name + n;
	return pl_take_digits(&end);
}

/* The pipeline stage of the layer: as the plan says, or that of its parameters; 0: of neither. */
static int64_t stage_of(const struct pl_plan *p, const struct pl_rewrite *rw, const char *layer)
{
	size_t n = strlen(layer);

	if (rw->k > 0)
		return rw->k;

	for (size_t i = 0; i < p->n_tensors; i++) {
		const char *name = pl_plan_param(p->tensor[i].name);

		if (!strncmp(name, layer, n) && (!name[n] || name[n] == '.'))
			return p->tensor[i].stage;
	}
	return 0;
}

/* Layers to recompute: different numbers, the most of any pipeline stage, and those of each as
 * text, empty if there is one stage; and names without a number. */
static int count_layers(const struct pl_plan *p, size_t *layers, uint32_t *others,
			struct pl_buf *stages, struct pl_err *err)
{
	const int64_t stage = (int64_t)1 << 31; /* numbers of layers are below it */
	int64_t *number = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	*layers = *others = 0;
	for (size_t i = 0; i < p->n_rw; i++)
		cap += p->rw[i].op == PL_RW_RECOMPUTE ? p->rw[i].n_args : 0;
	PL_TRY(pl_alloc(&number, cap + 1, sizeof(*number), err));
	for (size_t i = 0; i < p->n_rw; i++)
		for (uint32_t a = 0; p->rw[i].op == PL_RW_RECOMPUTE && a < p->rw[i].n_args; a++) {
			int64_t layer = layer_number(p->rw[i].arg[a]);

			*others += layer < 0;
			if (layer >= 0)
				number[n++] = layer % stage +
					      stage * stage_of(p, &p->rw[i], p->rw[i].arg[a]);
		}
	pl_sort(number, n, sizeof(*number), pl_compare_i64);
	for (size_t i = 0, end, each; i < n; i = end) {
		for (end = i, each = 0; end < n && number[end] / stage == number[i] / stage; end++)
			each += end == i || number[end] != number[end - 1];
		*layers = each > *layers ? each : *layers;
		if (number[n - 1] >= stage)
			PL_TRY(pl_buf_printf(stages, err, "%s %zu of stage %lld", i ? "," : "",
					     each, (long long)(number[i] / stage)));
	}
out:
	pl_free(number);
	return rc;
}

static void put_recompute(struct pl_setter *s)
{
	struct pl_buf stages = { 0 };
	uint32_t others;
	size_t layers;

	if (count_layers(s->p, &layers, &others, &stages, &s->w.fail) < 0 || !layers)
		goto out;
	s->done |= 1u << PL_RW_RECOMPUTE;
	pl_write_format(&s->w,
			"# whole transformer layers, the first of each pipeline stage, "
			"whichever the plan names (%zu %s)\n",
			layers, stages.n ? "of a stage, at most" : "in all");
	if (stages.n)
		pl_write_format(&s->w,
				"# the plan has%.*s: stages with fewer, or without any, recompute "
				"more than planned\n",
				(int)stages.n, (const char *)stages.p);
	if (others)
		pl_write_format(&s->w,
				"# not expressed: recompute of %u that are no transformer "
				"layers\n",
				others);
	pl_write_format(&s->w,
			"--recompute-granularity full\n--recompute-method block\n"
			"--recompute-num-layers %zu\n",
			layers);
out:
	pl_buf_fini(&stages);
}

static void put_precision(struct pl_setter *s)
{
	const char *word = pl_settings_precision(s->p);

	if (!word || !strcmp(word, "tf32") || !strcmp(word, "fp32"))
		return;
	s->done |= 1u << PL_RW_PRECISION;
	if (!strcmp(word, "fp8"))
		pl_write_text(&s->w, "--bf16\n--fp8-format hybrid\n");
	else
		pl_write_format(&s->w, "--%s\n%s", word,
				strcmp(word, "fp16") == 0 ? "--accumulate-allreduce-grads-in-fp32\n"
							  : "" /* bf16 has it by itself */);
}

static void put_tensor_parallel(struct pl_setter *s)
{
	const struct pl_rewrite *rw = pl_settings_last(s->p, PL_RW_TENSOR_PARALLEL);

	if (!rw)
		return;
	s->done |= 1u << PL_RW_TENSOR_PARALLEL;
	pl_write_format(&s->w, "--tensor-model-parallel-size %lld\n", (long long)rw->k);
}

static void put_buckets(struct pl_setter *s)
{
	struct pl_one_size one;

	if (pl_settings_last(s->p, PL_RW_TENSOR_PARALLEL)) {
		pl_write_text(&s->w, "# --ddp-bucket-size counts the elements of a rank, which has "
				     "parts of tensors; the plan has whole ones\n"
				     "--overlap-grad-reduce\n");
		return;
	}
	pl_settings_one_size(s, PL_CLOSE_REACHED, ELEMENT, &one);
	pl_write_format(&s->w,
			"# elements, of %d bytes each; of the first pipeline "
			"stage, the others have one bucket\n",
			ELEMENT);
	pl_settings_put_differ(s, &one);
	if (s->pipeline && pl_settings_last(s->p, PL_RW_FUSE_TENSORS))
		pl_write_text(&s->w, "# not expressed: sets of the stages behind the first\n");
	pl_write_format(&s->w, "--overlap-grad-reduce\n--ddp-bucket-size %lld\n",
			(long long)one.size);
	s->done |= 1u << PL_RW_FUSE_TENSORS | 1u << PL_RW_BUCKET_MB;
}

static void body(struct pl_setter *s)
{
	int64_t acc = pl_settings_accumulate(s);
	const char *nccl = pl_settings_nccl(s, false);

	if (nccl)
		pl_write_format(&s->w, "# in the environment: NCCL_ALGO=%s\n", nccl);
	if (s->s.n)
		put_buckets(s);
	put_recompute(s);
	put_precision(s);
	put_tensor_parallel(s);
	if (acc)
		pl_write_format(&s->w,
				"# microbatches follow from the batch: --global-batch-size is "
				"%lld x --micro-batch-size x data-parallel ranks\n",
				(long long)acc);
}

const struct pl_settings pl_settings_megatron = { "megatron",
						  "Megatron-LM: options of its training programs",
						  body };
