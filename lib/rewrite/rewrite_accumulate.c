/*
 * accumulate: a batch in k microbatches, with one synchronisation.
 *
 * Accumulation over k microbatches keeps the batch: forward and backward of a microbatch take a
 * k-th of their time, and only the last one's gradients are synchronised. On the edit that is a
 * delay of (k-1)/k of what came before the gradients, at the beginning, and the same operations k
 * times as short. That delay holds what the other microbatches do, so whatever else changes
 * operations is carried out before. Ranks that synchronise nothing have gradients too.
 */
#include "rewrite/rewrite_internal.h"

/* When the rank's last gradient was made, less when the step began; 0: no gradients. */
static pl_ns until_gradients(const struct pl_rewriter *r, uint32_t step, int32_t rank)
{
	const struct pl_edit *e = r->e;
	pl_ns end = INT64_MIN;

	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];

		if (!x->dead && x->step == step && x->rank == rank && x->producer != PL_NONE &&
		    e->g->tensor[x->tensor].role == PL_TR_GRAD &&
		    (!r->n_tensors || x->arrive != PL_NONE))
			end = pl_max_i64(end, pl_edit_end(e, x->producer));
	}
	return end == INT64_MIN ? 0 : pl_max_i64(0, end - r->begin[step]);
}

static bool of_rank(const struct pl_edit *e, const struct pl_enode *n, int32_t rank)
{
	return n->res != PL_NONE && e->res[n->res].rank == rank;
}

static int accumulate_rank(struct pl_rewriter *r, uint32_t step, int32_t rank, int64_t k,
			   struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint32_t n_nodes = (uint32_t)e->n_nodes;
	pl_ns span = until_gradients(r, step, rank), end = r->begin[step] + span;
	/* beside the other microbatches there is no communication */
	pl_ns bare = pl_max_i64(0, span - rw_beside_lost(r, step, rank, end));
	pl_ns later = (bare - bare / k) / rw_now(r)->accumulate;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		bool first = true;

		if (n->dead || n->step != step || n->type != PL_N_OP || !of_rank(e, n, rank) ||
		    n->role == PL_RO_TRANSFER || n->start >= end)
			continue;
		for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next)
			first &= e->node[e->edge[x].src].step != step ||
				 e->node[e->edge[x].src].type == PL_N_ENTRY;
		/* what nothing of the step precedes begins after the other microbatches */
		if (first && n->role != PL_RO_MARK)
			rc = pl_edit_set_fixed(e, i, n->start + later, err);
		if (rc == 0)
			rc = pl_edit_set_dur(e, i, n->dur / k, err);
		for (uint32_t x = e->node[i].out; rc == 0 && x != PL_NONE; x = e->edge[x].out_next)
			if (n->role == PL_RO_MARK && e->edge[x].dst != e->step[step].sink)
				rc = pl_edit_set_weight(e, x, e->edge[x].w + later, err);
	}
	return rc;
}

static bool has_gradients(const struct pl_edit *e)
{
	for (size_t i = 0; i < e->n_tensors; i++)
		if (!e->tensor[i].dead && e->g->tensor[e->tensor[i].tensor].role == PL_TR_GRAD &&
		    e->tensor[i].producer != PL_NONE)
			return true;
	return false;
}

static int check_accumulate(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			    struct pl_err *err)
{
	(void)rw;
	return !r->n_tensors && !has_gradients(r->e)
		       ? pl_fail(err, PL_EDATA, "the graph knows no gradients")
		       : 0;
}

static int apply_accumulate(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_graph *g = r->e->g;
	uint32_t n = r->n_tensors ? r->n_ranks : (uint32_t)g->n_ranks;
	const int32_t *rank = r->n_tensors ? r->rank : g->rank;
	int rc = 0;

	rc = pl_edit_settle(r->e, err); /* when gradients are made, as it is now */
	for (uint32_t s = 0; s < r->e->n_steps; s++)
		for (uint32_t i = 0; rc == 0 && i < n; i++)
			rc = accumulate_rank(r, s, rank[i], rw->k, err);
	rw_now(r)->accumulate *= rw->k;
	return rc;
}

static int explain_accumulate(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			      struct pl_buf *out, struct pl_err *err)
{
	(void)r;
	return pl_buf_printf(out, err,
			     "a batch passes in %lld microbatches with one synchronisation, so "
			     "activations need a part of the memory",
			     (long long)rw->k);
}

const struct pl_rewrite_kind pl_rewrite_accumulate = { .last = true,
						       .check = check_accumulate,
						       .apply = apply_accumulate,
						       .explain = explain_accumulate };
