/*
 * kgen_schedule.c - the order of the microbatches of a step.
 */
#include "kgen_model.h"

void kg_one_forward_one_backward(struct kg_build *b)
{
	int m = b->e.cfg->microbatches, warm = b->e.cfg->pp - b->e.r->pp - 1;

	if (warm > m)
		warm = m;
	for (int i = 0; i < warm; i++)
		kg_forward(b, i, 0);
	for (int i = 0; i < m; i++) {
		if (i + warm < m)
			kg_forward(b, i + warm, 0);
		kg_backward(b, i, 0, KG_BACKWARD);
	}
}

/* The i-th pass: as many microbatches as stages, chunk after chunk. */
static int chunk_of(const struct kg_cfg *c, int i, bool back)
{
	int chunk = i % (c->pp * c->chunks) / c->pp;

	return back ? c->chunks - 1 - chunk : chunk;
}

static int microbatch_of(const struct kg_cfg *c, int i)
{
	return i / (c->pp * c->chunks) * c->pp + i % c->pp;
}

/* Megatron's: a stage has several chunks of the model; Narayanan et al., SC 2021. */
void kg_interleaved(struct kg_build *b)
{
	const struct kg_cfg *c = b->e.cfg;
	int n = c->microbatches * c->chunks;
	int warm = 2 * (c->pp - b->e.r->pp - 1) + (c->chunks - 1) * c->pp;

	if (warm > n)
		warm = n;
	for (int i = 0; i < warm; i++)
		kg_forward(b, microbatch_of(c, i), chunk_of(c, i, false));
	for (int i = 0; i < n; i++) {
		if (i + warm < n)
			kg_forward(b, microbatch_of(c, i + warm), chunk_of(c, i + warm, false));
		kg_backward(b, microbatch_of(c, i), chunk_of(c, i, true), KG_BACKWARD);
	}
}

/*
 * The gradients of weights are computed when a stage would wait: later stages keep more of them for
 * the end, when earlier stages still compute gradients of inputs; Qi et al., ICLR 2024, ZB-H1.
 */
void kg_zero_bubble(struct kg_build *b)
{
	int m = b->e.cfg->microbatches, stage = b->e.r->pp, warm = b->e.cfg->pp - stage - 1, w = 0;

	if (warm > m)
		warm = m;
	for (int i = 0; i < warm; i++)
		kg_forward(b, i, 0);
	for (int i = 0; i < m; i++) {
		if (i + warm < m)
			kg_forward(b, i + warm, 0);
		kg_backward(b, i, 0, KG_INPUTS);
		if (i - w >= stage)
			kg_backward(b, w++, 0, KG_WEIGHTS);
	}
	while (w < m)
		kg_backward(b, w++, 0, KG_WEIGHTS);
}

/* Both passes of a microbatch are one launch. */
void kg_captured(struct kg_build *b)
{
	for (int i = 0; i < b->e.cfg->microbatches; i++) {
		kg_graph_begin(&b->e, true);
		kg_forward(b, i, 0);
		kg_backward(b, i, 0, KG_BACKWARD);
		kg_graph_end(&b->e, true);
	}
}
