/*
 * Steps with shared resources: links, servers, queues that several operations want at a time.
 *
 * A heap holds the operations that are ready, by the time at which they became so (ties: by
 * number); a RESOURCE node taken from it gets the place of its resource that is free first. First
 * come, first served, whatever the order of the nodes in the file. O((V + E) log V).
 */
#include <string.h>

#include "sim/internal.h"

int sim_slots_init(const struct pl_graph *g, struct slots *x, struct pl_err *err)
{
	uint32_t n = 0;
	int rc = pl_alloc(&x->off, g->n_res + 1, sizeof(*x->off), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t places = g->res[i].capacity ? g->res[i].capacity : 1;

		x->off[i] = n;
		if (places > 1u << 24 || n > UINT32_MAX - places)
			return pl_fail(err, PL_ELIMIT, "resource %zu takes %u operations at a time",
				       i, places);
		n += places;
	}
	x->off[g->n_res] = n;
	if ((rc = pl_alloc(&x->free, n, sizeof(*x->free), err)) < 0)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		x->free[i] = INT64_MIN;
	return 0;
}

void sim_slots_fini(struct slots *x)
{
	pl_free(x->free);
	pl_free(x->off);
	memset(x, 0, sizeof(*x));
}

uint32_t sim_slot_first(const struct slots *x, uint32_t res)
{
	uint32_t best = x->off[res];

	for (uint32_t i = best + 1; i < x->off[res + 1]; i++)
		if (x->free[i] < x->free[best])
			best = i;
	return best;
}

/* ---- the heap ------------------------------------------------------------------------------- */

struct ready {
	pl_ns t;
	uint32_t node;
};
struct heap {
	struct ready *v;
	size_t n;
};

static bool earlier(const struct ready *a, const struct ready *b)
{
	return a->t != b->t ? a->t < b->t : a->node < b->node;
}

static void push(struct heap *h, struct ready x)
{
	size_t i = h->n++;

	for (; i && earlier(&x, &h->v[(i - 1) / 2]); i = (i - 1) / 2)
		h->v[i] = h->v[(i - 1) / 2];
	h->v[i] = x;
}

static struct ready pop(struct heap *h)
{
	struct ready top = h->v[0], x = h->v[--h->n];
	size_t i = 0;

	for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
		if (k + 1 < h->n && earlier(&h->v[k + 1], &h->v[k]))
			k++;
		if (!earlier(&h->v[k], &x))
			break;
		h->v[i] = h->v[k];
	}
	h->v[i] = x;
	return top;
}

/* ---- the pass ------------------------------------------------------------------------------- */

struct shared {
	uint32_t *off, *to, *edge, *left; /* successors; predecessors not finished */
	struct heap h;
};

static void shared_fini(struct shared *x)
{
	pl_free(x->off);
	pl_free(x->to);
	pl_free(x->edge);
	pl_free(x->left);
	pl_free(x->h.v);
}

static int successors(const struct pl_shape *sh, struct shared *x, struct pl_err *err)
{
	int rc;

	if ((rc = pl_alloc(&x->off, sh->n_nodes + 2u, sizeof(*x->off), err)) < 0 ||
	    (rc = pl_alloc(&x->to, sh->n_edges, sizeof(*x->to), err)) < 0 ||
	    (rc = pl_alloc(&x->edge, sh->n_edges, sizeof(*x->edge), err)) < 0 ||
	    (rc = pl_alloc(&x->left, sh->n_nodes, sizeof(*x->left), err)) < 0 ||
	    (rc = pl_alloc(&x->h.v, sh->n_nodes, sizeof(*x->h.v), err)) < 0)
		return rc;
	for (uint32_t e = 0; e < sh->n_edges; e++)
		x->off[sh->src[e] + 2]++;
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		x->off[i + 2] += x->off[i + 1];
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
			uint32_t at = x->off[sh->src[e] + 1]++;

			x->to[at] = i;
			x->edge[at] = e;
		}
		x->left[i] = sh->off[i + 1] - sh->off[i];
	}
	return 0;
}

static pl_ns far_gap(const struct prep *prep, uint32_t node, uint32_t edge)
{
	for (size_t i = 0; i < prep->n_far; i++)
		if (prep->far[i].node == node && prep->far[i].edge == edge)
			return prep->far[i].gap;
	return 0;
}

/* A node is taken: it starts now, or when it gets its resource. */
static void take(struct pass *p, const struct pl_shape *sh, uint32_t i)
{
	const struct prep *prep = &p->s->step[p->k];
	pl_ns dur = scaled(p->dur[i], p->f, i);

	if (sh->k && sh->k[i] && sh->type[i] == PL_N_RENDEZVOUS)
		p->start[i] = sim_kth_arrival(sh, p->w, p->start, p->end, i);
	if (sh->type[i] == PL_N_RESOURCE && sh->res[i] != PL_NONE) {
		uint32_t slot = sim_slot_first(p->slots, sh->res[i]);

		p->start[i] = pl_max_i64(p->start[i], p->slots->free[slot]) + prep->held[i];
		p->slots->free[slot] = p->start[i] + dur;
	}
	p->end[i] = p->start[i] + dur;
}

static void release(struct pass *p, const struct pl_shape *sh, struct shared *x, uint32_t i)
{
	const struct prep *prep = &p->s->step[p->k];

	for (uint32_t a = x->off[i]; a < x->off[i + 1]; a++) {
		uint32_t d = x->to[a], e = x->edge[a];
		pl_ns at = (edge_from_start(sh->etype[e]) ? p->start : p->end)[i] + p->w[e];

		if (PL_UNLIKELY(prep->n_far))
			at += far_gap(prep, d, e);
		p->start[d] = pl_max_i64(p->start[d], at);
		if (!--x->left[d])
			push(&x->h, (struct ready){ p->start[d], d });
	}
}

static void settle(struct pass *p, const struct pl_shape *sh)
{
	p->step_start = INT64_MAX;
	p->step_end = INT64_MIN;
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		uint32_t res = sh->res[i];

		if (res != PL_NONE && p->end[i] >= p->tail[res].end)
			p->tail[res] = (struct tail){ p->end[i], (uint64_t)p->k << 32 | i };
		if (sh->flags[i] & PL_NF_STEP_BEGIN)
			p->step_start = pl_min_i64(p->step_start, p->start[i]);
		if (sh->flags[i] & PL_NF_IN_STEP)
			p->step_end = pl_max_i64(p->step_end, p->end[i]);
	}
}

int sim_pass_shared(struct pass *p, struct pl_err *err)
{
	const struct pl_gstep *st = &p->s->g->step[p->k];
	const struct pl_shape *sh = &p->s->g->shape[st->shape];
	struct shared x = { 0 };
	int rc;

	PL_TRY(successors(sh, &x, err));
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		/* until a node is taken its start is the time at which it is ready */
		if (i >= sh->n_entries)
			p->start[i] = x.left[i] ? INT64_MIN : st->start[i];
		if (!x.left[i])
			push(&x.h, (struct ready){ p->start[i], i });
	}
	while (x.h.n) {
		uint32_t i = pop(&x.h).node;

		if (i >= sh->n_entries)
			take(p, sh, i);
		release(p, sh, &x, i);
	}
	settle(p, sh);
out:
	shared_fini(&x);
	return rc;
}
