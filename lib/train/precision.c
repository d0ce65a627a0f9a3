/*
 * In which precision layers compute. A job sets it for all layers, a plan for those that it names.
 *
 * A plan addresses the operations of a trace of the job: "forward fc1", "backward fc1"; the last
 * line that names an operation counts. A precision is that of the factors of products, as units for
 * mixed precision take them (backend.h). So it does not matter to a layer without products,
 * gradients are sent in float32, and weights need no master copy (Micikevicius et al., Mixed
 * Precision Training, ICLR 2018). bfloat16 has the range of float32 (Kalamkar et al., A Study of
 * BFLOAT16 for Deep Learning Training, 2019), so the loss need not be scaled; in fp16 it would.
 */
#include "train/worker.h"

static bool multiplies(const struct pl_net_layer *l)
{
	return !strcmp(l->op, "dense") || !strcmp(l->op, "conv") || !strcmp(l->op, "attention");
}

/* Finds the layer and the pass of an operation; false: no such operation. "recompute" repeats the
 * forward pass to the bit. Operations that belong to no layer have no products: *at is n. */
static bool operation(const struct pl_net_layer *layer, uint32_t n, const char *name, uint32_t *at,
		      enum pl_net_phase *phase)
{
	static const struct {
		const char *word;
		enum pl_net_phase phase;
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

static enum pl_precision precision_of(const char *word)
{
	return !strcmp(word, "bf16") ? PL_BF16 : !strcmp(word, "tf32") ? PL_TF32 : PL_FP32;
}

static void set(struct pl_worker *w, uint32_t layer, enum pl_net_phase phase, enum pl_precision p)
{
	if (multiplies(&w->view.layer[layer]))
		pl_net_precision(w->net, layer, phase, p);
}

static void set_all(struct pl_worker *w, enum pl_precision p)
{
	for (uint32_t i = 0; i < 2 * w->view.n_layers; i++)
		set(w, i / 2, i % 2 ? PL_PHASE_BACKWARD : PL_PHASE_FORWARD, p);
}

static int apply_rewrite(struct pl_worker *w, const struct pl_rewrite *rw, struct pl_err *err)
{
	enum pl_precision precision = precision_of(rw->word);
	enum pl_net_phase phase = PL_PHASE_FORWARD;
	uint32_t at, n = w->view.n_layers;

	if (!strcmp(rw->word, "fp16") || !strcmp(rw->word, "fp8"))
		return pl_fail(err, PL_EDATA,
			       "the plan's precision %s needs a scaled loss, which is not "
			       "supported; bf16 has the range of fp32 and does not need it",
			       rw->word);
	if (!w->view.be->device && precision == PL_TF32) {
		/* a processor without such units uses float32 */
		precision = PL_FP32;
		pl_say(w->rank ? NULL : w->o.log, PL_LOG_WARN,
		       "the plan's precision tf32 needs a GPU; its operations are done in fp32");
	}
	if (!rw->n_args)
		set_all(w, precision);
	for (uint32_t a = 0; a < rw->n_args; a++) {
		if (!operation(w->view.layer, n, rw->arg[a], &at, &phase))
			return pl_fail(err, PL_EDATA,
				       "precision: the plan's operation \"%.200s\" is none of this "
				       "model's; they are called \"forward LAYER\" and "
				       "\"backward LAYER\"",
				       rw->arg[a]);
		if (at < n)
			set(w, at, phase, precision);
	}
	return 0;
}

int pl_train_worker_precision(struct pl_worker *w, struct pl_err *err)
{
	const struct pl_plan *p = w->o.plan;

	set_all(w, precision_of(w->o.job->precision));
	for (size_t i = 0; p && i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_PRECISION)
			PL_CHECK(apply_rewrite(w, &p->rw[i], err));
	return 0;
}
