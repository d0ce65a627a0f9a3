/*
 * accumulate: a batch is divided into k microbatches, with one synchronisation.
 *
 * The size of the batch stays the same: the kernels, copies and messages of a microbatch take 1/k
 * of their time. The calls of the host and the time between them do not change, because each
 * microbatch launches everything again. Only the gradients of the last microbatch are synchronised.
 *
 * The edit holds the last microbatch, after a delay of k-1 periods. Host and device work at the
 * same time on different microbatches. Therefore a period is the busy time of the host or of the
 * device for one microbatch, whichever is longer. The delay stands for the work of the other
 * microbatches. Therefore every other rewrite that changes operations is applied first. A rank that
 * synchronises nothing has gradients too.
 */
#include "rewrite/rewrite_internal.h"

struct slot { /* a rank in a step */
	uint32_t step;
	int32_t rank;
	pl_ns end;    /* of the operation that makes its last gradient; INT64_MIN: none */
	pl_ns period; /* of the present microbatch */
	pl_ns lost;   /* of computation to the recorded communication */
};

static pl_ns last_gradient(const struct pl_rewriter *r, const struct slot *s)
{
	const struct pl_edit *e = r->e;
	pl_ns end = INT64_MIN;

	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];

		if (!x->dead && x->step == s->step && x->rank == s->rank &&
		    x->producer != PL_NONE && e->g->tensor[x->tensor].role == PL_TR_GRAD &&
		    (!r->n_tensors || x->arrive != PL_NONE))
			end = pl_max_i64(end, pl_edit_end(e, x->producer));
	}
	return end;
}

/* Does the operation belong to the forward and backward pass? */
static bool in_passes(const struct pl_edit *e, uint32_t node, const struct slot *s)
{
	const struct pl_enode *n = &e->node[node];

	return !n->dead && n->step == s->step && n->type == PL_N_OP && n->res != PL_NONE &&
	       e->res[n->res].rank == s->rank && n->start < s->end;
}

/* The longer of the times from the first to the last operation on threads, and on devices. */
static pl_ns period_of(const struct pl_edit *e, const bool *part, const struct slot *s)
{
	pl_ns from[2] = { INT64_MAX, INT64_MAX }, to[2] = { INT64_MIN, INT64_MIN };

	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		bool device;

		if (!part[i] || n->step != s->step || e->res[n->res].rank != s->rank ||
		    (n->role != PL_RO_COMPUTE && n->role != PL_RO_COPY && n->role != PL_RO_HOST &&
		     n->role != PL_RO_GAP))
			continue;
		device = e->res[n->res].track_type != PL_T_THREAD;
		from[device] = pl_min_i64(from[device], n->start);
		to[device] = pl_max_i64(to[device], pl_min_i64(pl_edit_end(e, i), s->end));
	}
	return pl_max_i64(0, pl_max_i64(pl_sub_sat(to[0], from[0]), pl_sub_sat(to[1], from[1])));
}

/* Is its work that of the batch, of which a microbatch has a part? */
static bool shrinks(const struct pl_rewriter *r, uint32_t node)
{
	const struct pl_enode *n = &r->e->node[node];

	if (n->role == PL_RO_TRANSFER)
		return node < r->n_recorded && !r->is_grad_comm[node];
	return n->role == PL_RO_COMPUTE || n->role == PL_RO_COPY;
}

/* Let what nothing of the step precedes begin so much later. */
static void delay_first(struct pl_rewriter *r, uint32_t node, pl_ns later)
{
	const struct pl_edit *e = r->e;
	const struct pl_enode *n = &e->node[node];
	bool mark = n->role == PL_RO_MARK;

	for (uint32_t x = n->out; mark && x != PL_NONE; x = e->edge[x].out_next)
		if (e->edge[x].dst != e->step[n->step].sink)
			rw_set_weight(r, x, e->edge[x].w + later);
	for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next)
		if (e->node[e->edge[x].src].step == n->step &&
		    e->node[e->edge[x].src].type != PL_N_ENTRY)
			return;
	for (uint32_t x = n->in; !mark && x != PL_NONE; x = e->edge[x].in_next)
		rw_set_weight(r, x, e->edge[x].w + later);
	if (!mark && n->in == PL_NONE)
		rw_set_fixed(r, node, n->start + later);
}

/* Slots as they are, and which operations are of their passes. */
static int look(struct pl_rewriter *r, struct slot *slot, size_t n_slots, bool *part,
		struct pl_err *err)
{
	int rc = pl_edit_settle(r->e, err);

	for (size_t k = 0; rc == 0 && k < n_slots; k++) {
		struct slot *s = &slot[k];

		s->end = last_gradient(r, s);
		if (s->end == INT64_MIN)
			continue;
		for (uint32_t i = 0; i < r->e->n_nodes; i++)
			part[i] |= in_passes(r->e, i, s);
		s->period = period_of(r->e, part, s);
		s->lost = pl_rewrite_slowdown_lost(r, s->step, s->rank, s->end);
	}
	return rc;
}

static void delay_slot(struct pl_rewriter *r, const struct slot *s, const bool *part, int64_t k)
{
	struct slot now = *s;
	int64_t had = rw_now(r)->accumulate;
	pl_ns period, later;

	now.end = last_gradient(r, s);
	/* beside the other microbatches there is no communication */
	period = pl_max_i64(0, period_of(r->e, part, &now) - s->lost / k);
	later = (had * k - 1) * period - (had - 1) * pl_max_i64(0, s->period - s->lost);
	for (uint32_t i = 0; i < r->e->n_nodes; i++)
		if (part[i] && r->e->node[i].step == s->step &&
		    r->e->res[r->e->node[i].res].rank == s->rank)
			delay_first(r, i, later);
}

/* Does a rank of the job have another stage of a pipeline than the first? */
static bool is_pipeline(const struct pl_edit *e)
{
	for (uint32_t i = 0; i < e->n_res; i++)
		if (e->res[i].coord[1] > 0)
			return true;
	return false;
}

static int apply_accumulate(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_graph *g = r->e->g;
	size_t n = r->n_tensors ? r->n_ranks : (size_t)g->n_ranks, n_slots = n * r->e->n_steps;
	const int32_t *rank = r->n_tensors ? r->rank : g->rank;
	struct slot *slot = NULL;
	bool *part = NULL, any = false;
	int rc;

	if (is_pipeline(r->e))
		return pl_fail(
			err, PL_EDATA,
			"the batch of a pipeline passes in microbatches already; their number "
			"is that of the graph (graph --program 'pipeline microbatches=N ...')");
	PL_TRY(pl_alloc(&slot, n_slots, sizeof(*slot), err));
	PL_TRY(pl_alloc(&part, r->e->n_nodes, sizeof(*part), err));
	for (size_t i = 0; i < n_slots; i++)
		slot[i] = (struct slot){ .step = (uint32_t)(i / n), .rank = rank[i % n] };
	PL_TRY(look(r, slot, n_slots, part, err));
	for (size_t i = 0; i < n_slots; i++)
		any |= slot[i].end != INT64_MIN;
	if (!any && !r->n_tensors) {
		rc = pl_fail(err, PL_EDATA, "the graph knows no gradients");
		goto out;
	}
	for (uint32_t i = 0; i < r->e->n_nodes; i++)
		if (part[i] && shrinks(r, i))
			rw_set_dur(r, i, rw_times(r->e->node[i].dur, 1.0 / (double)rw->k));
	PL_TRY(rw_result(r, 0, err));
	PL_TRY(pl_edit_settle(r->e, err));
	for (size_t i = 0; i < n_slots; i++)
		if (slot[i].end != INT64_MIN)
			delay_slot(r, &slot[i], part, rw->k);
	rw_now(r)->accumulate *= rw->k;
out:
	pl_free(slot);
	pl_free(part);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_accumulate = {
	.last = true,
	.apply = apply_accumulate,
	.explain = "a batch passes in {k} microbatches with one synchronisation, so activations "
		   "need a part of the memory"
};
