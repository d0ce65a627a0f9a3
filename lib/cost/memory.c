/*
 * The peak memory of each rank: memory that is always in use, and a sweep over the begins and ends
 * of all other memory. Memory that is freed at an instant can be used by memory that begins then.
 *
 * Each copy of a tensor is one interval, or two if it is recomputed (cost.h says when). The
 * recomputed tensors of a layer and microbatch come back together when the first of them is used,
 * because the forward operations of a layer run as a whole. A gradient to which several
 * microbatches add is a buffer that is there from the first of them on, as in PyTorch and
 * Megatron-LM. A recording that has a gradient for each parameter and backward pass shows these
 * buffers several times, so only the pass with most of them counts. A backward pass ends where
 * forward work follows a gradient. O(n log n) in tensors, plus passes over the nodes.
 */
#include <stdlib.h>

#include "cost/internal.h"

/* Forward work between two gradients that is less than this part of the work before the first of
 * them is none: some operations of the backward pass have no phase of their own. */
#define PASS_PART 16

enum part { PARAMS, GRADS, OPTIM, ACTIVATIONS, TEMPS, BUFFERS, PARTS };

struct change {
	pl_ns at;
	int64_t bytes; /* < 0: an end */
	uint32_t rank;
	uint32_t place; /* node + 1; 0: there before the nodes */
	uint8_t part;
	bool begins;
};
/* The first of the operations of a layer that do something, as recompute it. */
struct of_layer {
	uint32_t step, node;
	int32_t rank, layer, mb; /* mb: -1 of all microbatches together */
	pl_ns at;
};
struct of_layers {
	struct of_layer *v;
	size_t n, cap;
};
/* A recorded gradient of a rank in a step. */
struct made {
	size_t slot; /* step and rank */
	pl_ns at;    /* its producer's start */
	int64_t bytes;
	uint32_t tensor; /* of the edit */
	pl_ns forward;	 /* of the rank, between the gradient before and this one */
};
struct mem {
	const struct pl_edit *e;
	const struct pl_memory_opts *o;
	struct pl_memory_rank *rank;
	size_t n_ranks;
	uint32_t *first;    /* [step]: where its nodes begin in `node` */
	uint32_t *node;	    /* by origin: the node, PL_NONE */
	pl_ns *begin, *end; /* [step][rank]: of the step */
	pl_ns *grads;	    /* [step][rank]: start of the last operation that makes a gradient */
	struct of_layers recompute; /* of a layer, for each microbatch */
	struct of_layers backward;  /* of a layer, of all microbatches together */
	uint32_t *carries;	    /* [node]: how many tensors the communication carries */
	int64_t *always;	    /* [step][rank][2]: parameters and gradients */
	struct made *made;
	size_t n_made;
	bool *again; /* [tensor of the edit]: a gradient that another pass makes, too */
	struct change *c;
	size_t n, cap;
	struct pl_err *err;
	int rc; /* of the first failure: from then on no interval is added */
};

static uint32_t rank_of(const struct mem *m, const struct pl_enode *x)
{
	return x->res < m->e->n_res ? pl_graph_rank_index(m->e->g, m->e->res[x->res].rank)
				    : PL_NONE;
}

static int index_nodes(struct mem *m, struct pl_err *err)
{
	const struct pl_edit *e = m->e;

	PL_CHECK(pl_alloc(&m->first, e->n_steps + 2, sizeof(*m->first), err));
	for (size_t i = 0; i < e->n_nodes; i++) {
		uint32_t o = e->node[i].origin, *most = &m->first[e->node[i].step + 1];

		if (o != PL_NONE && o >= *most)
			*most = o + 1;
	}
	for (uint32_t k = 0; k <= e->n_steps; k++)
		m->first[k + 1] += m->first[k];
	PL_CHECK(pl_alloc(&m->node, m->first[e->n_steps] + 1, sizeof(*m->node), err));
	PL_CHECK(pl_alloc(&m->end, e->n_steps * m->n_ranks + 1, sizeof(*m->end), err));
	PL_CHECK(pl_alloc(&m->begin, e->n_steps * m->n_ranks + 1, sizeof(*m->begin), err));
	PL_CHECK(pl_alloc(&m->grads, e->n_steps * m->n_ranks + 1, sizeof(*m->grads), err));
	memset(m->node, 0xff, (m->first[e->n_steps] + (size_t)1) * sizeof(*m->node));
	for (size_t i = 0; i < e->n_steps * m->n_ranks; i++) {
		m->end[i] = m->grads[i] = INT64_MIN;
		m->begin[i] = INT64_MAX;
	}
	for (size_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *x = &e->node[i];
		uint32_t r = x->dead ? PL_NONE : rank_of(m, x);

		if (x->dead)
			continue;
		if (x->origin != PL_NONE)
			m->node[m->first[x->step] + x->origin] = (uint32_t)i;
		if (r != PL_NONE && x->type != PL_N_ENTRY) {
			size_t at = x->step * m->n_ranks + r;

			m->end[at] = pl_max_i64(m->end[at], pl_edit_end(e, (uint32_t)i));
			m->begin[at] = pl_min_i64(m->begin[at], x->start);
		}
	}
	return 0;
}

static uint32_t consumer(const struct mem *m, const struct pl_etensor *et, uint32_t k)
{
	const struct pl_tensor *t = &m->e->g->tensor[et->tensor];
	uint32_t at = m->first[et->step] + m->e->g->consumer[t->consumer + k];

	return at < m->first[et->step + 1] ? m->node[at] : PL_NONE;
}

/* ---- operations of layers -------------------------------------------------------------------- */

PL_COMPARATOR(by_layer, struct of_layer, step, rank, layer, mb);

PL_COMPARATOR(by_layer_and_time, struct of_layer, step, rank, layer, mb, at, node);

/* Keep the first of each layer and microbatch, sorted. */
static void keep_first(struct of_layers *x)
{
	size_t n = x->n;

	pl_sort(x->v, n, sizeof(*x->v), by_layer_and_time);
	x->n = 0;
	for (size_t i = 0; i < n; i++)
		if (!x->n || by_layer(&x->v[x->n - 1], &x->v[i]))
			x->v[x->n++] = x->v[i];
}

/* The operation for the layer and microbatch of the key; NULL. */
static const struct of_layer *first_of(const struct of_layers *x, struct of_layer key)
{
	return x->n ? bsearch(&key, x->v, x->n, sizeof(key), by_layer) : NULL;
}

/* Does an operation that uses an activation add to the gradients of its layer? `last`: no other
 * operation uses the activation later. Where the graph does not know the phase, that one does. */
static bool adds_gradient(const struct pl_enode *n, int32_t layer, bool last)
{
	if (n->layer != layer)
		return false;
	return n->phase == PL_PH_UNKNOWN
		       ? last
		       : n->phase == PL_PH_BACKWARD || n->phase == PL_PH_WEIGHT_GRAD;
}

/* Where activations are used last: there recomputed ones come back. The first operation of their
 * layer that uses them and makes gradients begins to add to the layer's gradients. */
static int find_layers(struct mem *m, struct pl_err *err)
{
	const struct pl_edit *e = m->e;

	PL_CHECK(pl_alloc(&m->recompute.v, e->n_tensors + 1, sizeof(*m->recompute.v), err));
	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *et = &e->tensor[i];
		const struct pl_tensor *t = &e->g->tensor[et->tensor];
		struct of_layer x = { .step = et->step, .node = PL_NONE, .rank = et->rank };
		uint32_t last;

		if (et->dead || t->role != PL_TR_ACTIVATION || et->producer == PL_NONE ||
		    e->node[et->producer].layer < 0)
			continue;
		for (uint32_t k = 0; k < t->n_consumers; k++) {
			uint32_t node = consumer(m, et, k);

			if (node != PL_NONE &&
			    (x.node == PL_NONE || pl_edit_end(e, node) > pl_edit_end(e, x.node)))
				x.node = node;
		}
		if (x.node == PL_NONE)
			continue;
		x.at = e->node[x.node].start;
		x.layer = e->node[et->producer].layer;
		x.mb = e->node[et->producer].mb;
		if (et->remade)
			m->recompute.v[m->recompute.n++] = x;
		x.mb = -1;
		last = x.node;
		for (uint32_t k = 0; k < t->n_consumers; k++) {
			x.node = consumer(m, et, k);
			if (x.node == PL_NONE ||
			    !adds_gradient(&e->node[x.node], x.layer, x.node == last))
				continue;
			x.at = e->node[x.node].start;
			PL_CHECK(pl_append(&m->backward.v, &m->backward.n, &m->backward.cap, &x,
					   sizeof(x), err));
		}
	}
	keep_first(&m->recompute);
	keep_first(&m->backward);
	return 0;
}

/* The node at whose start the tensor is in memory again: `last`, its last consumer, or an earlier
 * node for which the activations of its layer are recomputed. */
static uint32_t recomputed_at(const struct mem *m, const struct pl_etensor *et, uint32_t last)
{
	const struct pl_enode *p = &m->e->node[et->producer];
	const struct of_layer *x = first_of(&m->recompute, (struct of_layer){ .step = et->step,
									      .rank = et->rank,
									      .layer = p->layer,
									      .mb = p->mb });

	return x && x->at < m->e->node[last].start ? x->node : last;
}

/* The node from whose start on the gradient is in memory. Microbatches add to one buffer, so it
 * is there from the first backward operation of its layer on. */
static uint32_t gradient_from(const struct mem *m, const struct pl_etensor *et)
{
	const struct pl_enode *p = &m->e->node[et->producer];
	const struct of_layer *x =
		first_of(&m->backward,
			 (struct of_layer){
				 .step = et->step, .rank = et->rank, .layer = p->layer, .mb = -1 });

	return x && x->at < p->start ? x->node : et->producer;
}

/* ---- intervals ------------------------------------------------------------------------------- */

static void add(struct mem *m, uint32_t rank, enum part part, uint32_t node, pl_ns from, pl_ns to,
		int64_t bytes)
{
	struct change x = { from, bytes, rank, node + 1, (uint8_t)part, true };

	if (bytes <= 0 || m->rc < 0)
		return;
	m->rc = pl_grow(&m->c, &m->cap, m->n + 2, sizeof(*m->c), m->err);
	if (m->rc < 0)
		return;
	m->c[m->n++] = x;
	x.at = to > from ? to : pl_add_sat(from, 1);
	x.bytes = -bytes;
	x.begins = false;
	m->c[m->n++] = x;
}

static int64_t part_of_bytes(int64_t bytes, double share)
{
	double x = (double)bytes * share + 0.5;

	return x < (double)INT64_MAX ? (int64_t)x : INT64_MAX;
}

static enum part part_of(unsigned role)
{
	switch (role) {
	case PL_TR_PARAM:
		return PARAMS;
	case PL_TR_GRAD:
		return GRADS;
	case PL_TR_OPTIM:
		return OPTIM;
	case PL_TR_ACTIVATION:
		return ACTIVATIONS;
	case PL_TR_BUFFER:
		return BUFFERS;
	default:
		return TEMPS;
	}
}

/* A tensor lives from its producer to its last consumer. A recomputed tensor is not in memory
 * between its other uses and the last consumer. */
static void add_lifetime(struct mem *m, const struct pl_etensor *et, uint32_t rank, enum part part,
			 int64_t bytes)
{
	const struct pl_edit *e = m->e;
	const struct pl_tensor *t = &e->g->tensor[et->tensor];
	uint32_t last = PL_NONE;
	uint32_t p = part == GRADS && et->producer != PL_NONE ? gradient_from(m, et) : et->producer;
	pl_ns from = p == PL_NONE ? m->begin[et->step * m->n_ranks + rank] : e->node[p].start;
	pl_ns kept = p == PL_NONE ? from : pl_edit_end(e, p), to = INT64_MIN;

	for (uint32_t k = 0; k < t->n_consumers; k++) {
		uint32_t node = consumer(m, et, k);
		pl_ns end = node == PL_NONE ? m->end[et->step * m->n_ranks + rank]
					    : pl_edit_end(e, node);

		if (end > to) {
			kept = last != PL_NONE ? pl_max_i64(kept, to) : kept;
			to = end;
			last = node;
		} else {
			kept = pl_max_i64(kept, end);
		}
	}
	if (part == GRADS || (to == INT64_MIN && part == ACTIVATIONS))
		to = m->end[et->step * m->n_ranks + rank];
	else if (to == INT64_MIN)
		to = kept;
	if (et->remade && last != PL_NONE && p != PL_NONE)
		last = recomputed_at(m, et, last);
	if (!et->remade || last == PL_NONE || p == PL_NONE || e->node[last].start <= kept) {
		add(m, rank, part, p, from, to, bytes);
		return;
	}
	add(m, rank, part, p, from, kept, bytes);
	add(m, rank, part, last, e->node[last].start, to, bytes);
}

/* If a batch passes in parts, gradients exist from the first on; each later part adds its own. */
static void add_grad(struct mem *m, const struct pl_etensor *et, uint32_t rank, int64_t bytes)
{
	size_t at = et->step * m->n_ranks + rank;

	add(m, rank, GRADS, et->producer, m->begin[at], m->end[at], bytes);
	add(m, rank, TEMPS, et->producer, m->e->node[et->producer].start,
	    pl_edit_end(m->e, et->producer), bytes);
}

static bool in_parts(const struct mem *m)
{
	return m->o && m->o->activation_share > 0 && m->o->activation_share < 1;
}

/* The size in a batch that passes in parts: activations shrink, and so do temporaries until the
 * last gradient is made. */
static int64_t of_batch(const struct mem *m, const struct pl_etensor *et, uint32_t rank,
			enum part part, int64_t bytes)
{
	bool scaled = part == ACTIVATIONS;

	if (part == TEMPS && et->producer != PL_NONE)
		scaled = m->e->node[et->producer].start <= m->grads[et->step * m->n_ranks + rank];
	return scaled && in_parts(m) ? part_of_bytes(bytes, m->o->activation_share) : bytes;
}

PL_COMPARATOR(by_making, struct made, slot, at, tensor);

/* Gradients v[0] .. v[n - 1] of a step and rank: only those of the largest pass count. */
static void keep_largest_pass(struct mem *m, const struct made *v, size_t n)
{
	size_t first = 0, best = 0, best_end = n;
	int64_t sum = 0, most = -1;

	for (size_t i = 0; i <= n; i++) {
		if (i == n || (i && v[i].forward > v[0].forward / PASS_PART)) {
			if (sum > most) {
				most = sum;
				best = first;
				best_end = i;
			}
			first = i;
			sum = 0;
		}
		if (i < n)
			sum = pl_add_sat(sum, v[i].bytes);
	}
	for (size_t i = 0; i < n; i++)
		m->again[v[i].tensor] = i < best || i >= best_end;
}

/* Which gradients are there a second time, because a step has several backward passes. */
static int find_passes(struct mem *m, struct pl_err *err)
{
	const struct pl_edit *e = m->e;

	PL_CHECK(pl_alloc(&m->made, e->n_tensors + 1, sizeof(*m->made), err));
	PL_CHECK(pl_alloc(&m->again, e->n_tensors + 1, sizeof(*m->again), err));
	for (uint32_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *et = &e->tensor[i];
		const struct pl_tensor *t = &e->g->tensor[et->tensor];
		uint32_t rank = pl_graph_rank_index(e->g, et->rank);

		if (!et->dead && t->role == PL_TR_GRAD && !(t->flags & PL_TF_ELSEWHERE) &&
		    rank != PL_NONE && et->producer != PL_NONE && !e->node[et->producer].dead)
			m->made[m->n_made++] =
				(struct made){ et->step * m->n_ranks + rank,
					       e->node[et->producer].start, et->bytes, i, 0 };
	}
	pl_sort(m->made, m->n_made, sizeof(*m->made), by_making);
	for (size_t i = 0; m->n_made && i < e->n_nodes; i++) {
		const struct pl_enode *x = &e->node[i];
		uint32_t rank = x->dead || x->phase != PL_PH_FORWARD ? PL_NONE : rank_of(m, x);
		size_t slot = x->step * m->n_ranks + rank, at = 0;

		if (rank == PL_NONE)
			continue;
		PL_LOWER_BOUND(at, m->n_made,
			       m->made[at].slot < slot ||
				       (m->made[at].slot == slot && m->made[at].at <= x->start));
		if (at < m->n_made && m->made[at].slot == slot)
			m->made[at].forward = pl_add_sat(m->made[at].forward, x->dur);
	}
	for (size_t i = 0, n; i < m->n_made; i += n) {
		for (n = 1; i + n < m->n_made && m->made[i + n].slot == m->made[i].slot; n++)
			;
		keep_largest_pass(m, &m->made[i], n);
	}
	return 0;
}

static void find_grads(struct mem *m)
{
	const struct pl_edit *e = m->e;

	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *et = &e->tensor[i];
		uint32_t rank = pl_graph_rank_index(e->g, et->rank);

		if (!et->dead && e->g->tensor[et->tensor].role == PL_TR_GRAD && rank != PL_NONE &&
		    et->producer != PL_NONE && !e->node[et->producer].dead) {
			pl_ns *last = &m->grads[et->step * m->n_ranks + rank];

			*last = pl_max_i64(*last, e->node[et->producer].start);
		}
	}
}

static void add_tensor(struct mem *m, const struct pl_etensor *et)
{
	const struct pl_tensor *t = &m->e->g->tensor[et->tensor];
	uint32_t rank = pl_graph_rank_index(m->e->g, et->rank);
	enum part part = part_of(t->role);
	int64_t bytes = et->bytes;
	size_t at = et->step * m->n_ranks + rank;
	bool gone;

	if (rank == PL_NONE)
		return;
	if (et->arrive != PL_NONE)
		m->carries[et->arrive]++;
	if (t->flags & PL_TF_ELSEWHERE || m->again[et - m->e->tensor])
		return;
	m->rank[rank].estimated |= bytes < 0 || t->flags & PL_TF_ESTIMATED;
	if (bytes < 0)
		return;
	if (part == PARAMS || part == GRADS) {
		int64_t *sum = &m->always[2 * at + (part == GRADS)];

		*sum = pl_add_sat(*sum, bytes);
	}
	if (part == OPTIM)
		m->rank[rank].optimizer_bytes =
			pl_add_sat(m->rank[rank].optimizer_bytes, et->step == 0 ? bytes : 0);
	gone = et->producer == PL_NONE ? part == GRADS || m->begin[at] == INT64_MAX
				       : m->e->node[et->producer].dead;
	if (part == PARAMS || part == OPTIM || gone)
		return;
	if (part == GRADS && in_parts(m))
		add_grad(m, et, rank, bytes);
	else
		add_lifetime(m, et, rank, part, of_batch(m, et, rank, part, bytes));
}

/* End of the transfer that follows an arrival. */
static pl_ns transfer_end(const struct pl_edit *e, uint32_t arrive)
{
	pl_ns end = pl_edit_end(e, arrive);

	for (uint32_t i = e->node[arrive].out; i != PL_NONE; i = e->edge[i].out_next) {
		uint32_t next = e->edge[i].dst;

		if (e->node[next].role == PL_RO_TRANSFER &&
		    e->node[next].res == e->node[arrive].res)
			end = pl_max_i64(end, pl_edit_end(e, next)); /* one of its parts */
		if (e->node[next].type != PL_N_RENDEZVOUS)
			continue;
		for (uint32_t k = e->node[next].out; k != PL_NONE; k = e->edge[k].out_next)
			if (e->node[e->edge[k].dst].role == PL_RO_TRANSFER &&
			    e->node[e->edge[k].dst].res == e->node[arrive].res)
				end = pl_max_i64(end, pl_edit_end(e, e->edge[k].dst));
	}
	return end;
}

static void add_buffers(struct mem *m)
{
	for (size_t i = 0; i < m->e->n_nodes; i++) {
		const struct pl_enode *x = &m->e->node[i];
		uint32_t rank = x->dead || x->role != PL_RO_ARRIVE ? PL_NONE : rank_of(m, x);

		if (rank != PL_NONE && m->carries[i] > 1)
			add(m, rank, BUFFERS, (uint32_t)i, x->start,
			    transfer_end(m->e, (uint32_t)i), x->bytes);
	}
}

/* ---- the sweep ------------------------------------------------------------------------------- */

PL_COMPARATOR(by_time, struct change, rank, at, begins, place, part);

static void sweep(struct mem *m)
{
	int64_t now[PARTS], sum = 0;
	uint32_t rank = PL_NONE;

	pl_sort(m->c, m->n, sizeof(*m->c), by_time);
	for (size_t i = 0; i < m->n; i++) {
		const struct change *x = &m->c[i];
		struct pl_memory_rank *r = &m->rank[x->rank];

		if (x->rank != rank) {
			memset(now, 0, sizeof(now));
			sum = 0;
			rank = x->rank;
		}
		now[x->part] = pl_add_sat(now[x->part], x->bytes);
		sum = pl_add_sat(sum, x->bytes);
		if (sum <= r->peak_bytes)
			continue;
		r->peak_bytes = sum;
		r->node = x->place - 1;
		r->grads_bytes = now[GRADS];
		r->activations_bytes = now[ACTIVATIONS];
		r->temporaries_bytes = now[TEMPS];
		r->buffers_bytes = now[BUFFERS];
	}
}

/* Parameters and gradients live always, the same in each step: the step that shows most counts. */
static void add_always(struct mem *m)
{
	for (uint32_t k = 0; k < m->n_ranks; k++) {
		struct pl_memory_rank *r = &m->rank[k];
		int64_t params = 0, grads = 0;
		double per_byte = m->o ? m->o->optimizer_bytes : 0;

		for (uint32_t s = 0; s < m->e->n_steps; s++) {
			params = pl_max_i64(params, m->always[2 * (s * m->n_ranks + k)]);
			grads = pl_max_i64(grads, m->always[2 * (s * m->n_ranks + k) + 1]);
		}
		if (!params) {
			params = grads;
			r->estimated = true;
		}
		r->params_bytes = params;
		if (!r->optimizer_bytes)
			r->optimizer_bytes = part_of_bytes(params, per_byte);
		r->peak_bytes =
			pl_add_sat(r->peak_bytes, pl_add_sat(r->params_bytes, r->optimizer_bytes));
	}
}

/* After the last change at each time. */
static int tell_changes(const struct mem *m, struct pl_err *err)
{
	int64_t sum = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct change *x = &m->c[i];
		const struct pl_memory_rank *r = &m->rank[x->rank];

		if (!i || x[-1].rank != x->rank)
			sum = pl_add_sat(r->params_bytes, r->optimizer_bytes);
		sum = pl_add_sat(sum, x->bytes);
		if (i + 1 == m->n || x[1].rank != x->rank || x[1].at != x->at)
			PL_CHECK(m->o->changed(m->o->arg, r->rank, x->at, sum, err));
	}
	return 0;
}

int pl_memory_peak(const struct pl_edit *e, const struct pl_memory_opts *o,
		   struct pl_memory_rank **rank, size_t *n, struct pl_err *err)
{
	struct mem m = { .e = e, .o = o, .n_ranks = (size_t)e->g->n_ranks, .err = err };
	int rc;

	*rank = NULL;
	*n = 0;
	PL_TRY(pl_alloc(&m.rank, m.n_ranks + 1, sizeof(*m.rank), err));
	for (size_t i = 0; i < m.n_ranks; i++)
		m.rank[i] = (struct pl_memory_rank){ .rank = e->g->rank[i], .node = PL_NONE };
	PL_TRY(pl_alloc(&m.carries, e->n_nodes + 1, sizeof(*m.carries), err));
	PL_TRY(pl_alloc(&m.always, 2 * e->n_steps * m.n_ranks + 1, sizeof(*m.always), err));
	PL_TRY(index_nodes(&m, err));
	PL_TRY(find_layers(&m, err));
	find_grads(&m);
	PL_TRY(find_passes(&m, err));
	for (size_t i = 0; i < e->n_tensors; i++)
		if (!e->tensor[i].dead)
			add_tensor(&m, &e->tensor[i]);
	add_buffers(&m);
	PL_TRY(m.rc);
	sweep(&m);
	add_always(&m);
	if (o && o->changed)
		PL_TRY(tell_changes(&m, err));
	*rank = m.rank;
	*n = m.n_ranks;
	m.rank = NULL;
out:
	pl_free(m.rank);
	pl_free(m.first);
	pl_free(m.node);
	pl_free(m.end);
	pl_free(m.begin);
	pl_free(m.grads);
	pl_free(m.recompute.v);
	pl_free(m.backward.v);
	pl_free(m.carries);
	pl_free(m.always);
	pl_free(m.made);
	pl_free(m.again);
	pl_free(m.c);
	return rc;
}
