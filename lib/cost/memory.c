/*
 * The most memory that each rank needs at a time: what lives always, and a sweep over the begins
 * and ends of what does not. Memory that ends at an instant is free for what begins then.
 *
 * Each copy of a tensor becomes one interval, or two if something makes it again (cost.h says
 * when). O(n log n) in tensors, plus one pass over the nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "cost/internal.h"

enum part { PARAMS, GRADS, OPTIM, ACTIVATIONS, TEMPS, BUFFERS, PARTS };

struct change {
	pl_ns at;
	int64_t bytes; /* < 0: an end */
	uint32_t rank, node;
	uint8_t part;
};
struct mem {
	const struct pl_edit *e;
	const struct pl_memory_opts *o;
	struct pl_memory_rank *rank;
	size_t n_ranks;
	uint32_t *first;   /* [step]: where its nodes begin in `node` */
	uint32_t *node;	   /* by origin: the node, PL_NONE */
	pl_ns *end;	   /* [step][rank]: of the step */
	uint32_t *carries; /* [node]: how many tensors the communication carries */
	int64_t *always;   /* [step][rank][2]: parameters and gradients */
	struct change *c;
	size_t n, cap;
};

static uint32_t rank_index(const struct pl_graph *g, int32_t rank)
{
	size_t lo = 0, hi = (size_t)g->n_ranks;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (g->rank[mid] < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < (size_t)g->n_ranks && g->rank[lo] == rank ? (uint32_t)lo : PL_NONE;
}

static uint32_t rank_of(const struct mem *m, const struct pl_enode *x)
{
	return x->res < m->e->g->n_res ? rank_index(m->e->g, m->e->g->res[x->res].rank) : PL_NONE;
}

static int index_nodes(struct mem *m, struct pl_err *err)
{
	const struct pl_edit *e = m->e;
	int rc;

	if ((rc = pl_alloc(&m->first, e->n_steps + 2, sizeof(*m->first), err)) < 0)
		return rc;
	for (size_t i = 0; i < e->n_nodes; i++) {
		uint32_t o = e->node[i].origin, *most = &m->first[e->node[i].step + 1];

		if (o != PL_NONE && o >= *most)
			*most = o + 1;
	}
	for (uint32_t k = 0; k <= e->n_steps; k++)
		m->first[k + 1] += m->first[k];
	if ((rc = pl_alloc(&m->node, m->first[e->n_steps] + 1, sizeof(*m->node), err)) < 0 ||
	    (rc = pl_alloc(&m->end, e->n_steps * m->n_ranks + 1, sizeof(*m->end), err)) < 0)
		return rc;
	memset(m->node, 0xff, (m->first[e->n_steps] + (size_t)1) * sizeof(*m->node));
	for (size_t i = 0; i < e->n_steps * m->n_ranks; i++)
		m->end[i] = INT64_MIN;
	for (size_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *x = &e->node[i];
		uint32_t r = x->dead ? PL_NONE : rank_of(m, x);

		if (x->dead)
			continue;
		if (x->origin != PL_NONE)
			m->node[m->first[x->step] + x->origin] = (uint32_t)i;
		if (r != PL_NONE && x->type != PL_N_ENTRY) {
			pl_ns *end = &m->end[x->step * m->n_ranks + r];

			*end = pl_max_i64(*end, pl_edit_end(e, (uint32_t)i));
		}
	}
	return 0;
}

/* ---- intervals ------------------------------------------------------------------------------- */

static int add(struct mem *m, uint32_t rank, enum part part, uint32_t node, pl_ns from, pl_ns to,
	       int64_t bytes, struct pl_err *err)
{
	struct change x = { from, bytes, rank, node, (uint8_t)part };
	int rc;

	if (bytes <= 0)
		return 0;
	if ((rc = pl_grow(&m->c, &m->cap, m->n + 2, sizeof(*m->c), err)) < 0)
		return rc;
	m->c[m->n++] = x;
	x.at = to > from ? to : pl_add_sat(from, 1);
	x.bytes = -bytes;
	m->c[m->n++] = x;
	return 0;
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

/* From the producer to the last consumer; what is made again is gone until that one begins. */
static int add_lifetime(struct mem *m, const struct pl_etensor *et, uint32_t rank, enum part part,
			int64_t bytes, struct pl_err *err)
{
	const struct pl_edit *e = m->e;
	const struct pl_tensor *t = &e->g->tensor[et->tensor];
	pl_ns from = e->node[et->producer].start, kept = pl_edit_end(e, et->producer);
	pl_ns to = INT64_MIN;
	uint32_t last = PL_NONE;
	int rc;

	for (uint32_t k = 0; k < t->n_consumers; k++) {
		uint32_t at = m->first[et->step] + e->g->consumer[t->consumer + k];
		uint32_t node = at < m->first[et->step + 1] ? m->node[at] : PL_NONE;
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
	if (!et->remade || last == PL_NONE || e->node[last].start <= kept)
		return add(m, rank, part, et->producer, from, to, bytes, err);
	rc = add(m, rank, part, et->producer, from, kept, bytes, err);
	return rc < 0 ? rc : add(m, rank, part, last, e->node[last].start, to, bytes, err);
}

static int add_tensor(struct mem *m, const struct pl_etensor *et, struct pl_err *err)
{
	const struct pl_tensor *t = &m->e->g->tensor[et->tensor];
	uint32_t rank = rank_index(m->e->g, et->rank);
	enum part part = part_of(t->role);
	int64_t bytes = t->bytes;

	if (rank == PL_NONE)
		return 0;
	if (et->arrive != PL_NONE)
		m->carries[et->arrive]++;
	m->rank[rank].estimated |= bytes < 0 || t->flags & PL_TF_ESTIMATED;
	if (bytes < 0)
		return 0;
	if (part == PARAMS || part == GRADS) {
		int64_t *sum = &m->always[2 * (et->step * m->n_ranks + rank) + (part == GRADS)];

		*sum = pl_add_sat(*sum, bytes);
	}
	if (part == OPTIM)
		m->rank[rank].optimizer_bytes += et->step == 0 ? bytes : 0;
	if (part == PARAMS || part == OPTIM || et->producer == PL_NONE ||
	    m->e->node[et->producer].dead)
		return 0;
	if (part == ACTIVATIONS && m->o && m->o->activation_share > 0)
		bytes = (int64_t)((double)bytes * m->o->activation_share + 0.5);
	return add_lifetime(m, et, rank, part, bytes, err);
}

/* End of the transfer that an arrival leads to. */
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

static int add_buffers(struct mem *m, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < m->e->n_nodes && rc >= 0; i++) {
		const struct pl_enode *x = &m->e->node[i];
		uint32_t rank = x->dead || x->role != PL_RO_ARRIVE ? PL_NONE : rank_of(m, x);

		if (rank != PL_NONE && m->carries[i] > 1)
			rc = add(m, rank, BUFFERS, (uint32_t)i, x->start,
				 transfer_end(m->e, (uint32_t)i), x->bytes, err);
	}
	return rc;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static int by_time(const void *pa, const void *pb)
{
	const struct change *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if ((a->bytes < 0) != (b->bytes < 0))
		return a->bytes < 0 ? -1 : 1;
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	return a->part < b->part ? -1 : a->part > b->part;
}

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
		now[x->part] += x->bytes;
		sum += x->bytes;
		if (sum <= r->peak_bytes)
			continue;
		r->peak_bytes = sum;
		r->node = x->node;
		r->grads_bytes = now[GRADS];
		r->activations_bytes = now[ACTIVATIONS];
		r->temporaries_bytes = now[TEMPS];
		r->buffers_bytes = now[BUFFERS];
	}
}

/* What lives always: the same in each step, so that of the step that has most of it. */
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
			r->optimizer_bytes = (int64_t)((double)params * per_byte + 0.5);
		r->peak_bytes += r->params_bytes + r->optimizer_bytes;
	}
}

int pl_memory_peak(const struct pl_edit *e, const struct pl_memory_opts *o,
		   struct pl_memory_rank **rank, size_t *n, struct pl_err *err)
{
	struct mem m = { .e = e, .o = o, .n_ranks = (size_t)e->g->n_ranks };
	int rc;

	*rank = NULL;
	*n = 0;
	PL_TRY(pl_alloc(&m.rank, m.n_ranks + 1, sizeof(*m.rank), err));
	for (size_t i = 0; i < m.n_ranks; i++)
		m.rank[i] = (struct pl_memory_rank){ .rank = e->g->rank[i], .node = PL_NONE };
	PL_TRY(pl_alloc(&m.carries, e->n_nodes + 1, sizeof(*m.carries), err));
	PL_TRY(pl_alloc(&m.always, 2 * e->n_steps * m.n_ranks + 1, sizeof(*m.always), err));
	PL_TRY(index_nodes(&m, err));
	for (size_t i = 0; i < e->n_tensors; i++)
		PL_TRY(add_tensor(&m, &e->tensor[i], err));
	PL_TRY(add_buffers(&m, err));
	sweep(&m);
	add_always(&m);
	*rank = m.rank;
	*n = m.n_ranks;
	m.rank = NULL;
out:
	pl_free(m.rank);
	pl_free(m.first);
	pl_free(m.node);
	pl_free(m.end);
	pl_free(m.carries);
	pl_free(m.always);
	pl_free(m.c);
	return rc;
}
