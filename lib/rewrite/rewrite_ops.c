/*
 * Rewrites of operations: recomputation, accumulation, precision, speed of devices; fusion is in
 * rewrite_fuse.c.
 *
 * Accumulation over k microbatches keeps the batch: forward and backward of a microbatch take a
 * k-th of their time, and only the last one's gradients are synchronised. On the edit that is a
 * delay of (k-1)/k of what came before the gradients, at the beginning, and the same operations k
 * times as short. That delay holds what the other microbatches do, so whatever else changes
 * operations is carried out before. Ranks that synchronise nothing have gradients too.
 *
 * Recomputation in traces is that of rewrite_layers.c.
 */
#include <math.h>
#include <string.h>

#include "rewrite/rewrite_internal.h"

static int scale(struct pl_edit *e, uint32_t node, double x, struct pl_err *err)
{
	return pl_edit_set_dur(e, node, rw_times(e->node[node].dur, x), err);
}

/* ---- precision, speed ------------------------------------------------------------------------ */

/* What costs say of kernels is said of units for it, which processors of hosts do not have. */
static int precision(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint64_t hits = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		bool wanted = !rw->n_args;
		const char *name;
		double x;

		if (!rw_computes(n) || n->role != PL_RO_COMPUTE)
			continue;
		name = pl_edit_name(e, n->name);
		for (uint32_t k = 0; k < rw->n_args && !wanted; k++)
			wanted = !strcmp(rw->arg[k], name);
		if (!wanted)
			continue;
		x = rw->x > 0		      ? rw->x
		    : n->kind != PL_K_HOST_OP ? pl_cost_precision(name, rw->word)
					      : 1;
		hits++;
		rc = scale(e, i, x, err);
	}
	return rc == 0 && !hits ? pl_fail(err, PL_EDATA, "no such operation in the graph") : rc;
}

static int speed(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint64_t hits = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_resource *res;
		bool wanted = !rw->n_args;
		char rank[32];

		if (!rw_computes(n) || n->res == PL_NONE)
			continue;
		res = &e->res[n->res];
		snprintf(rank, sizeof(rank), "rank %d", res->rank);
		for (uint32_t k = 0; k < rw->n_args && !wanted; k++)
			wanted = pl_glob(rw->arg[k], rank) ||
				 (res->host != PL_NONE &&
				  pl_glob(rw->arg[k], pl_intern_get(&e->g->str, res->host)));
		if (!wanted)
			continue;
		hits++;
		rc = scale(e, i, 1 / rw->x, err);
	}
	return rc == 0 && !hits ? pl_fail(err, PL_EDATA, "no such rank or host in the graph") : rc;
}

/* ---- recomputation --------------------------------------------------------------------------- */

static int remake(struct pl_rewriter *r, int32_t layer, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];

		if (!x->dead && e->g->tensor[x->tensor].role == PL_TR_ACTIVATION &&
		    x->producer != PL_NONE && e->node[x->producer].layer == layer)
			rc = pl_edit_set_remade(e, i, true, err);
	}
	return rc;
}

static bool is_remade(const struct pl_edit *e, int32_t layer)
{
	for (uint32_t i = 0; i < e->n_tensors; i++)
		if (e->tensor[i].remade && e->tensor[i].producer != PL_NONE &&
		    e->node[e->tensor[i].producer].layer == layer)
			return true;
	return false;
}

int rw_is_fused(const char *layer, struct pl_err *err)
{
	return pl_fail(err, PL_EDATA,
		       "operations of \"%s\" are fused with others; put recompute before fuse-ops",
		       layer);
}

/* The backward operation of a layer takes the forward one's time more. */
static int recompute_layer(struct pl_rewriter *r, const char *layer, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint64_t hits = 0;
	int rc = 0;

	for (uint32_t b = 0; rc == 0 && b < e->n_nodes; b++) {
		const struct pl_enode *n = &e->node[b];
		const char *name = pl_edit_name(e, n->name);
		uint32_t f = PL_NONE;

		if (!rw_computes(n) || n->layer < 0 || strncmp(name, "backward ", 9) ||
		    strcmp(name + 9, layer))
			continue;
		for (uint32_t i = b; i-- > 0 && f == PL_NONE;)
			if (rw_computes(&e->node[i]) && e->node[i].res == n->res &&
			    e->node[i].step == n->step && e->node[i].layer == n->layer &&
			    !strncmp(pl_edit_name(e, e->node[i].name), "forward ", 8))
				f = i;
		if (f == PL_NONE)
			continue;
		if (rw_fused(r, f) || rw_fused(r, b))
			return rw_is_fused(layer, err);
		if (!hits++ && is_remade(e, n->layer))
			return pl_fail(err, PL_EDATA, "\"%s\" is made again already; name it once",
				       layer);
		rc = pl_edit_set_dur(e, b, n->dur + e->node[f].dur, err);
		if (rc == 0)
			rc = remake(r, n->layer, err);
	}
	return rc == 0 && !hits ? rw_remake_range(r, layer, err) : rc;
}

/* ---- accumulation ---------------------------------------------------------------------------- */

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

static int accumulate(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_graph *g = r->e->g;
	uint32_t n = r->n_tensors ? r->n_ranks : (uint32_t)g->n_ranks;
	const int32_t *rank = r->n_tensors ? r->rank : g->rank;
	int rc = 0;

	if (!r->n_tensors && !has_gradients(r->e))
		return pl_fail(err, PL_EDATA, "the graph knows no gradients");
	rc = pl_edit_settle(r->e, err); /* when gradients are made, as it is now */
	for (uint32_t s = 0; s < r->e->n_steps; s++)
		for (uint32_t i = 0; rc == 0 && i < n; i++)
			rc = accumulate_rank(r, s, rank[i], rw->k, err);
	rw_now(r)->accumulate *= rw->k;
	return rc;
}

int rw_ops(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc = 0;

	if (rw_now(r)->accumulate > 1 && rw->op != PL_RW_ACCUMULATE)
		return pl_fail(err, PL_EDATA, "after accumulate; put it before");
	switch ((enum pl_rw)rw->op) {
	case PL_RW_FUSE_OPS:
		return rw_fuse_ops(r, rw, err);
	case PL_RW_RECOMPUTE:
		for (uint32_t i = 0; rc == 0 && i < rw->n_args; i++)
			rc = recompute_layer(r, rw->arg[i], err);
		return rc;
	case PL_RW_ACCUMULATE:
		return accumulate(r, rw, err);
	case PL_RW_PRECISION:
		return precision(r, rw, err);
	case PL_RW_SPEED:
		return speed(r, rw, err);
	default:
		return pl_fail(err, PL_EINTERNAL, "rewrite %u is not one of operations", rw->op);
	}
}
