/*
 * In which precision layers compute. A job sets it for all layers, a plan for those that it names.
 *
 * A plan addresses the operations of a trace of the job: "forward fc1", "backward fc1"; the last
 * line that names an operation counts. A precision is that of the factors of products, as units for
 * mixed precision take them (backend.h). So it does not matter to a layer without products,
 * gradients are sent in float32, and weights need no master copy (Micikevicius et al., Mixed
 * Precision Training, ICLR 2018). bfloat16 has the range of float32
 * (Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019), so the loss need not be
 * scaled; in fp16 it would.
 */
#include <string.h>

#include "train/worker.h"

static bool multiplies(const struct pl_net_layer *l)
{
	return !strcmp(l->op, "dense") || !strcmp(l->op, "conv") || !strcmp(l->op, "attention");
}

/* Finds the layer and the pass of an operation; false: no such operation. "recompute" repeats the
 * forward pass to the bit. Operations that belong to no layer have no products: *at is n. */
static bool operation(const struct pl_net_layer *layer, uint32_t n, const char *name, uint32_t *at,
		      enum pl_phase *phase)
{
	static const struct {
		const char *word;
		enum pl_phase phase;
	} passes[] = { { "forward ", PL_PHASE_FORWARD },
		       { "recompute ", PL_PHASE_FORWARD },
		       { "backward ", PL_PHASE_BACKWARD } };
	static const char *const others[] = { "batch", "optimizer", "pace" };

	*at = n;
	for (size_t i = 0; i < PL_LEN(others); i++)
		if (!strcmp(name, others[i]))
			return true;
	for (size_t i = 0; i < PL_LEN(passes); i++) {
		size_t len = strlen(passes[i].word);

		*phase = passes[i].phase;
		for (uint32_t k = 0; !strncmp(name, passes[i].word, len) && k < n; k++)
			if (!strcmp(layer[k].name, name + len)) {
				*at = k;
				return true;
			}
	}
	return false;
}

static uint8_t precision_of(const char *word)
{
	return !strcmp(word, "bf16") ? PL_BF16 : !strcmp(word, "tf32") ? PL_TF32 : PL_FP32;
}

static int precision_of_plan(const struct pl_rewrite *rw, bool device, const struct pl_log *log,
			     uint8_t *precision, struct pl_err *err)
{
	*precision = precision_of(rw->word);
	if (!device && *precision == PL_TF32) { /* a processor without such units uses float32 */
		*precision = PL_FP32;
		pl_say(log, PL_LOG_WARN,
		       "the plan's precision tf32 needs a GPU; its operations are done in fp32");
	}
	if (!strcmp(rw->word, "fp16") || !strcmp(rw->word, "fp8"))
		return pl_fail(err, PL_EDATA,
			       "the plan's precision %s needs a scaled loss, which is not "
			       "supported; bf16 has the range of fp32 and does not need it",
			       rw->word);
	return 0;
}

static int by_rewrite(const struct pl_rewrite *rw, bool device, const struct pl_net_layer *layer,
		      uint32_t n, const struct pl_log *log, uint8_t *out, struct pl_err *err)
{
	enum pl_phase phase = PL_PHASE_FORWARD;
	uint8_t precision;
	uint32_t at;

	PL_CHECK(precision_of_plan(rw, device, log, &precision, err));
	for (uint32_t i = 0; !rw->n_args && i < 2 * n; i++)
		out[i] = multiplies(&layer[i / 2]) ? precision : PL_FP32;
	for (uint32_t a = 0; a < rw->n_args; a++) {
		if (!operation(layer, n, rw->arg[a], &at, &phase))
			return pl_fail(err, PL_EDATA,
				       "precision: the plan's operation \"%.200s\" is none of this "
				       "model's; they are called \"forward LAYER\" and "
				       "\"backward LAYER\"",
				       rw->arg[a]);
		if (at < n)
			out[2 * at + phase] = multiplies(&layer[at]) ? precision : PL_FP32;
	}
	return 0;
}

int pl_train_worker_precision(const struct pl_engine_opts *o, const struct pl_net_layer *layer,
			      uint32_t n, const struct pl_log *log, uint8_t *out,
			      struct pl_err *err)
{
	bool device = o->backend && o->backend->device;
	uint8_t precision = precision_of(o->job->precision);
	int rc = 0;

	for (uint32_t i = 0; i < 2 * n; i++)
		out[i] = multiplies(&layer[i / 2]) ? precision : PL_FP32;
	for (size_t i = 0; rc == 0 && o->plan && i < o->plan->n_rw; i++)
		if (o->plan->rw[i].op == PL_RW_PRECISION)
			rc = by_rewrite(&o->plan->rw[i], device, layer, n, log, out, err);
	return rc;
}
