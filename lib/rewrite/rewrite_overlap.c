/*
 * overlap: communication runs beside the computation of its pass.
 *
 * What waits for a selected collective within a pass (forward, backward, optimizer) no longer does;
 * the first operation of the next pass on that resource waits for it. So each pass takes the longer
 * one of its computation and its communication. Dependencies within the pass are ignored, because a
 * recording does not say which operation reads what was communicated: this is the most that other
 * settings (prefetching, asynchronous operations, buckets) can give. Gradients and parameters are
 * known to be read in the next pass, or by a layer whose parameters can be gathered before. Of
 * other data (activations, tokens of experts) the next operation may need the result at once.
 *
 * Gradients that are communicated behind the whole backward pass leave as soon as they are ready.
 * Those of a job that gathers parameters are copied together first, and leave as recorded.
 *
 * Sends and receives are no part of it: they order the stages of a pipeline. O(n log n) in nodes.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

/* An operation in the order of its resource. */
struct turn {
	uint32_t step, res;
	pl_ns start;
	uint32_t node;
};
PL_COMPARATOR(by_turn, struct turn, step, res, start, node);

struct overlap {
	struct pl_rewriter *r;
	struct pl_graph_select select;
	uint32_t *next; /* [node]: the first operation of the next pass on its resource, PL_NONE */
	uint8_t *last;	/* [node]: behind it no operation of its pass follows */
	bool *carries;	/* [node]: a transfer of gradients that are known */
	uint64_t selected, changed;
	bool gathers; /* some rank gathers something */
	bool at_once; /* what waited may need the result at once */
};

/* 0: it belongs to no pass. */
static unsigned pass_of(const struct pl_enode *n)
{
	if (n->type != PL_N_OP || n->role == PL_RO_GAP)
		return 0;
	return pl_graph_is_backward(n->phase)				  ? PL_PH_BACKWARD
	       : n->phase == PL_PH_FORWARD || n->phase == PL_PH_OPTIMIZER ? n->phase
									  : 0;
}

/* The n operations of a resource in a step: from the last one on, so that the next pass is known.
 * What stands between two passes belongs to the first one. Before all passes there is no
 * computation that could run beside communication. */
static void find_passes(const struct overlap *x, const struct turn *v, size_t n)
{
	const struct pl_edit *e = x->r->e;
	uint32_t next = PL_NONE, first = PL_NONE;
	unsigned pass = 0;
	size_t end =
		n; /* the operations before it, behind the last of their pass, have no next yet */

	for (size_t i = n; i-- > 0;) {
		unsigned is = pass_of(&e->node[v[i].node]);

		if (!is)
			continue;
		if (is != pass)
			next = pass ? first : PL_NONE;
		for (size_t k = i; k < end; k++) {
			x->next[v[k].node] = next;
			x->last[v[k].node] = is != pass;
		}
		end = i;
		pass = is;
		first = v[i].node;
	}
}

static int find_all_passes(const struct overlap *x, struct pl_err *err)
{
	const struct pl_edit *e = x->r->e;
	struct turn *v;
	size_t n = 0;

	memset(x->next, 0xff, e->n_nodes * sizeof(*x->next));
	PL_CHECK(pl_alloc(&v, e->n_nodes, sizeof(*v), err));
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *o = &e->node[i];

		if (!o->dead && o->res != PL_NONE && o->type != PL_N_ENTRY)
			v[n++] = (struct turn){ o->step, o->res, o->start, i };
	}
	pl_sort(v, n, sizeof(*v), by_turn);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].step == v[i].step && v[k].res == v[i].res; k++)
			;
		find_passes(x, v + i, k - i);
	}
	pl_free(v);
	return 0;
}

/* Is it the transfer of a selected collective? */
static bool selects(const struct overlap *x, uint32_t node)
{
	const struct pl_edit *e = x->r->e;
	const struct pl_enode *n = node == PL_NONE ? NULL : &e->node[node];
	unsigned coll = n ? pl_edit_coll(e, node) : PL_COLL_OTHER;

	return n && !n->dead && n->role == PL_RO_TRANSFER && coll != PL_COLL_SEND &&
	       coll != PL_COLL_RECV && pl_graph_selects_edited(&x->select, n) &&
	       pl_graph_select_step(&x->select, e->step[n->step].number);
}

/* Is it known which operations need the result? */
static bool known_readers(const struct overlap *x, uint32_t transfer)
{
	unsigned coll = pl_edit_coll(x->r->e, transfer);

	return x->carries[transfer] ||
	       (x->gathers && (coll == PL_COLL_ALLGATHER || coll == PL_COLL_REDUCE_SCATTER));
}

/* Nobody waits for the transfer before the next pass. */
static void wait_later(struct overlap *x, uint32_t transfer)
{
	const struct pl_edit *e = x->r->e;
	bool known = known_readers(x, transfer);
	uint32_t next;

	for (uint32_t i = e->node[transfer].out; i != PL_NONE; i = next) {
		const struct pl_eedge edge = e->edge[i];
		uint32_t res = e->node[edge.dst].res;

		next = edge.out_next;
		if (res == PL_NONE || res == e->node[transfer].res ||
		    PL_E_TYPE(edge.type) != PL_E_WAIT || x->next[edge.dst] == PL_NONE)
			continue;
		rw_drop_edge(x->r, i);
		rw_add_edge(x->r, transfer, x->next[edge.dst], edge.type, 0);
		x->at_once |= !known;
		x->changed++;
	}
}

static void find_carriers(struct overlap *x, uint32_t n)
{
	const struct pl_edit *e = x->r->e;

	for (uint32_t i = 0; i < n; i++)
		x->gathers |= pl_edit_coll(e, i) == PL_COLL_ALLGATHER;
	for (uint32_t t = 0; t < e->n_tensors; t++) {
		uint32_t node = e->tensor[t].arrive == PL_NONE
					? PL_NONE
					: pl_edit_transfer(e, e->tensor[t].arrive);

		if (node != PL_NONE)
			x->carries[node] = true;
	}
}

/* Gradients that were sent behind the backward pass leave when they are ready. */
static void leave_early(struct overlap *x)
{
	const struct pl_edit *e = x->r->e;

	for (uint32_t t = 0; t < e->n_tensors && !x->gathers; t++) {
		const struct pl_etensor *g = &e->tensor[t];
		bool late = false;

		if (g->dead || g->producer == PL_NONE || g->arrive == PL_NONE ||
		    !selects(x, pl_edit_transfer(e, g->arrive)))
			continue;
		for (uint32_t i = e->node[g->arrive].in, next; i != PL_NONE; i = next) {
			const struct pl_eedge edge = e->edge[i];

			next = edge.in_next;
			if (!rw_launches(&edge) || edge.src >= x->r->n_recorded)
				continue;
			late |= x->last[edge.src] != 0;
			if (x->last[edge.src])
				rw_drop_edge(x->r, i);
		}
		if (late)
			rw_add_edge(x->r, g->producer, g->arrive, PL_E_DATA, 0);
		x->changed += late;
	}
}

static int apply_overlap(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct overlap x = { .r = r };
	const struct pl_edit *e = r->e;
	uint32_t n = (uint32_t)e->n_nodes;
	int rc;

	PL_TRY(pl_graph_select_init(&x.select, &rw->select, e->g, e, err));
	PL_TRY(pl_alloc(&x.next, n, sizeof(*x.next), err));
	PL_TRY(pl_alloc(&x.last, n, sizeof(*x.last), err));
	PL_TRY(pl_alloc(&x.carries, n, sizeof(*x.carries), err));
	PL_TRY(find_all_passes(&x, err));
	find_carriers(&x, n);
	for (uint32_t i = 0; i < n; i++) {
		if (!selects(&x, i))
			continue;
		x.selected++;
		wait_later(&x, i);
	}
	leave_early(&x);
	rw_now(r)->overlapped = true;
	rw_now(r)->at_once |= x.at_once;
	if (!x.selected)
		rc = pl_fail(err, PL_EDATA, "it selects no collective of the graph");
	else if (!x.changed)
		rc = pl_fail(err, PL_EDATA,
			     "no operation of a pass waits for what is selected, as far as the "
			     "recording shows, so nothing can overlap more");
out:
	pl_graph_select_fini(&x.select);
	pl_free(x.next);
	pl_free(x.last);
	pl_free(x.carries);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_overlap = {
	.apply = apply_overlap,
	.explain = "the selected collectives run beside the computation of their pass, and only "
		   "the next pass waits for them: no setting can hide more of them"
};
