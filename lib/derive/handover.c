/*
 * Waits of threads for one another, which no profiler records (the main thread during backward()).
 *
 * They are inferred if thread A does nothing from a0 to a1, thread B is idle at a0 and at a1, and a
 * burst of B fills at least half of the pause of A. The pause of A then has three parts: the time
 * until B starts, the wait for the burst's end, and the time until A continues.
 *
 * A thread that only asks or tells the device something, as those that watch over communication do,
 * may do so in a pause by chance. So a burst of a few runtime calls alone counts if a pause between
 * the same operations has such a burst again.
 *
 * A burst begins with a node before which its thread was idle at a0. These nodes are in a segment
 * tree, by start, with the least ends of their thread's work before them and of themselves. So a
 * pause looks at the threads that begin to work inside it, the earliest first, until none that
 * begins later could be longer; each takes a bisection. O(n log n), if few threads begin to work in
 * one pause and do not end in it.
 */
#include "derive/internal.h"

#define HANDOVER_MIN_NS 20000 /* shorter pauses are not searched for a hidden wait */
#define FEW_NODES	8     /* of runtime calls, which have one or two each */

struct awake { /* an active node */
	pl_ns start;
	uint32_t node, thread; /* of the rank's resources */
};
struct least {
	pl_ns before, end;
};
/* A pause with a burst of a few runtime calls alone. */
struct coincidence {
	uint32_t thread, pause;
	pl_id key; /* of handover.times: how often the same was seen */
};
struct handover {
	struct builder *b;
	const struct rank *rank;
	struct awake *v; /* of all threads of the rank, by start */
	size_t n, cap;
	struct least *tree; /* the leaf of v[i] is tree[leaves + i] */
	size_t leaves, cap_tree;
	uint32_t *place; /* [node]: its number in v */
	uint32_t *last;	 /* [node of a thread]: the last active one up to it, PL_NONE: none */
	size_t cap_place, cap_last;
	struct coincidence *seen; /* of the rank at hand */
	struct pl_intern keys;
	uint32_t *times;
	size_t n_seen, cap_seen, n_times, cap_times;
};

PL_COMPARATOR(by_start, struct awake, start, thread, node);

/* May the thread have waited in this node? In a gap, and in an operation that does not compute: the
 * light mode of trace records no operations inside of one. */
static bool is_pause(struct builder *b, const struct node *n)
{
	return n->role == PL_RO_GAP || (n->role == PL_RO_HOST && n->kind != PL_K_RUNTIME &&
					!pl_derive_is_kernel(b, n->name));
}

static bool is_searched(const struct resource *r)
{
	return r->thread && !r->service;
}

/* ---- the nodes of a rank's threads --------------------------------------------------------- */

/* Times of v[i] may have changed. */
static void update(struct handover *h, size_t i)
{
	const struct awake *a = &h->v[i];
	const struct resource *r = &h->b->resource[h->rank->res[a->thread]];
	uint32_t before = a->node > r->node0 ? h->last[a->node - 1] : PL_NONE;
	size_t at = h->leaves + i;

	h->tree[at] = (struct least){ before == PL_NONE ? INT64_MIN : pl_derive_end(h->b, before),
				      pl_derive_end(h->b, a->node) };
	while (at /= 2) {
		const struct least *x = &h->tree[2 * at], *y = x + 1;

		h->tree[at] = (struct least){ pl_min_i64(x->before, y->before),
					      pl_min_i64(x->end, y->end) };
	}
}

static int list(struct handover *h, struct pl_err *err)
{
	struct builder *b = h->b;

	h->n = 0;
	PL_CHECK(pl_grow(&h->place, &h->cap_place, b->n_nodes + 1, sizeof(*h->place), err));
	PL_CHECK(pl_grow(&h->last, &h->cap_last, b->n_nodes + 1, sizeof(*h->last), err));
	for (uint32_t k = 0; k < h->rank->n_res; k++) {
		const struct resource *r = &b->resource[h->rank->res[k]];
		uint32_t last = PL_NONE;

		for (uint32_t i = r->node0; is_searched(r) && i < r->node1; i++) {
			const struct awake a = { b->node[i].start, i, k };

			if (b->node[i].role != PL_RO_GAP) {
				PL_CHECK(pl_append(&h->v, &h->n, &h->cap, &a, sizeof(a), err));
				last = i;
			}
			h->last[i] = last;
		}
	}
	pl_sort(h->v, h->n, sizeof(*h->v), by_start);
	for (h->leaves = 1; h->leaves < h->n;)
		h->leaves *= 2;
	PL_CHECK(pl_grow(&h->tree, &h->cap_tree, 2 * h->leaves, sizeof(*h->tree), err));
	for (size_t i = 0; i < 2 * h->leaves; i++)
		h->tree[i] = (struct least){ INT64_MAX, INT64_MAX };
	for (size_t i = 0; i < h->n; i++) {
		h->place[h->v[i].node] = (uint32_t)i;
		update(h, i);
	}
	return 0;
}

/* The first i >= from, so that v[i] ends by `end` and its thread was idle since `idle` before it;
 * h->n: none. */
static size_t next_awake(const struct handover *h, size_t from, pl_ns idle, pl_ns end)
{
	size_t at = h->leaves + from;

	if (from >= h->n)
		return h->n;
	for (;;) {
		bool may = h->tree[at].before <= idle && h->tree[at].end <= end;

		if (may && at >= h->leaves)
			return at - h->leaves;
		if (may) {
			at *= 2;
			continue;
		}
		while (at & 1) { /* a right part, behind which its parent's neighbour comes */
			at /= 2;
			if (at <= 1)
				return h->n;
		}
		at++;
	}
}

/* ---- pauses -------------------------------------------------------------------------------- */

struct burst {		      /* of a thread that is idle before and after it */
	uint32_t idle;	      /* its own pause before, PL_NONE: none */
	uint32_t first, last; /* its first and last active node */
};

/* The length of the burst of thread `resource` inside the pause [a0, a1] of another, 0: there is
 * none. The thread is idle at a0 and again at a1. */
static pl_ns find_burst(const struct handover *h, const struct resource *resource, pl_ns a0,
			pl_ns a1, struct burst *x)
{
	const struct builder *b = h->b;
	uint32_t i = resource->node0, end;

	PL_LOWER_BOUND(i, resource->node1, pl_derive_end(b, i) <= a0);
	x->idle = PL_NONE;
	if (i == resource->node1)
		return 0;
	if (b->node[i].start <= a0) { /* the node around a0 must be a gap that ends in the pause */
		if (b->node[i].role != PL_RO_GAP || pl_derive_end(b, i) >= a1)
			return 0;
		x->idle = i++;
	}
	while (i < resource->node1 && b->node[i].role == PL_RO_GAP)
		i++;
	if (i == resource->node1 || b->node[i].start >= a1)
		return 0;
	x->first = x->last = end = i;
	PL_LOWER_BOUND(end, resource->node1, pl_derive_end(b, end) <= a1);
	if (end > i)
		x->last = h->last[end - 1];
	if (end < resource->node1 && b->node[end].start < a1 && b->node[end].role != PL_RO_GAP)
		return 0; /* still active when the other resumes */
	return pl_derive_end(b, x->last) - b->node[x->first].start;
}

void pl_derive_split(struct builder *b, const struct resource *resource, uint32_t pause, pl_ns dur,
		     pl_ns at, uint32_t waker)
{
	struct node rest = b->node[pause];
	pl_ns end = rest.start + rest.dur;
	uint32_t id;

	b->node[pause].dur = dur;
	b->node[pause].flags |= PL_NF_INFERRED;
	rest.start = at;
	rest.dur = end - at;
	rest.flags |= PL_NF_INFERRED;
	id = pl_derive_node(b, &rest);
	pl_derive_edge(b, pause, id, PL_E_SEQ);
	pl_derive_edge(b, waker, id, PL_E_WAIT | PL_E_INFERRED);
	if (pause + 1 < resource->node1)
		pl_derive_edge(b, id, pause + 1, PL_E_SEQ);
}

/* The longest burst in a pause; of several the one of the first thread. *best has none before. */
static bool longest_burst(const struct handover *h, uint32_t thread, pl_ns a0, pl_ns a1,
			  struct burst *best)
{
	pl_ns longest = (a1 - a0) / 2;
	uint32_t of = 0;
	size_t i = 0;

	PL_LOWER_BOUND(i, h->n, h->v[i].start <= a0);
	while ((i = next_awake(h, i, a0, a1)) < h->n && h->v[i].start <= a1 - longest) {
		const struct awake *a = &h->v[i++];
		struct burst x = *best;
		pl_ns len;

		if (a->thread == thread)
			continue;
		len = find_burst(h, &h->b->resource[h->rank->res[a->thread]], a0, a1, &x);
		if (len > longest || (len == longest && best->first != PL_NONE && a->thread < of)) {
			longest = len;
			*best = x;
			of = a->thread;
		}
	}
	return best->first != PL_NONE;
}

/* The times of a node changed. The tree has times of the next operation of its thread that depend
 * on them, so both are updated. */
static void changed(struct handover *h, const struct resource *resource, uint32_t node)
{
	uint32_t i = node + 1;

	if (h->b->node[node].role == PL_RO_GAP)
		return;
	update(h, h->place[node]);
	while (i < resource->node1 && h->b->node[i].role == PL_RO_GAP)
		i++;
	if (i < resource->node1)
		update(h, h->place[i]);
}

/* Does the thread do more than a few calls of the runtime? */
static bool works(const struct builder *b, const struct burst *x)
{
	uint32_t calls = 0;

	for (uint32_t i = x->first; i <= x->last; i++) {
		if (b->node[i].kind == PL_K_RUNTIME)
			calls++;
		else if (b->node[i].role != PL_RO_GAP && b->node[i].role != PL_RO_MARK)
			return true;
		if (calls > FEW_NODES)
			return true;
	}
	return false;
}

static void note_coincidence(struct handover *h, uint32_t thread, uint32_t pause,
			     const struct burst *x)
{
	const struct builder *b = h->b;
	const struct resource *resource = &b->resource[h->rank->res[thread]];
	const struct {
		uint32_t res, of;
		pl_id before, pause, after, first;
	} key = { h->rank->res[thread],
		  b->node[x->first].res,
		  pause > resource->node0 ? b->node[pause - 1].name : PL_NONE,
		  b->node[pause].name,
		  pause + 1 < resource->node1 ? b->node[pause + 1].name : PL_NONE,
		  b->node[x->first].name };
	pl_id id = pl_derive_intern(b->err, &h->keys, &key, sizeof(key));

	if (id == h->n_times)
		PL_DERIVE_ADD(b->err, h->times, h->n_times, h->cap_times, 0);
	if (b->err->code)
		return;
	h->times[id]++;
	PL_DERIVE_ADD(b->err, h->seen, h->n_seen, h->cap_seen,
		      (struct coincidence){ thread, pause, id });
}

/* again: the pause has a burst of a few runtime calls, as others like it have. */
static void one_pause(struct handover *h, uint32_t thread, uint32_t pause, bool again)
{
	struct builder *b = h->b;
	const struct resource *resource = &b->resource[h->rank->res[thread]];
	pl_ns a0 = b->node[pause].start;
	struct burst best = { .first = PL_NONE };

	if (b->node[pause].dur < HANDOVER_MIN_NS || !is_pause(b, &b->node[pause]) ||
	    !longest_burst(h, thread, a0, pl_derive_end(b, pause), &best))
		return;
	if (!again && !works(b, &best)) {
		note_coincidence(h, thread, pause, &best);
		return;
	}
	if (best.idle != PL_NONE)
		b->node[best.idle].dur = 0; /* the thread was idle and did no work */
	pl_derive_edge(b, pause, best.first, PL_E_WAIT | PL_E_INFERRED);
	pl_derive_split(b, resource, pause, b->node[best.first].start - a0,
			pl_derive_end(b, best.last), best.last);
	changed(h, resource, pause);
	b->g->inferred_threads++;
}

static void one_rank(struct handover *h)
{
	const struct rank *rank = h->rank;
	const struct builder *b = h->b;

	h->n_seen = 0;
	for (uint32_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = resource->node0; is_searched(resource) && i < resource->node1;
		     i++)
			one_pause(h, k, i, false);
	}
	for (size_t i = 0; i < h->n_seen; i++)
		if (h->times[h->seen[i].key] > 1)
			one_pause(h, h->seen[i].thread, h->seen[i].pause, true);
}

void pl_derive_threads(struct builder *b)
{
	struct handover h = { .b = b };

	for (size_t r = 0; b->o->infer && r < b->n_ranks && !b->err->code; r++) {
		h.rank = &b->rank[r];
		if (list(&h, b->err) < 0)
			break;
		one_rank(&h);
	}
	pl_free(h.v);
	pl_free(h.tree);
	pl_free(h.place);
	pl_free(h.last);
	pl_free(h.seen);
	pl_free(h.times);
	pl_intern_fini(&h.keys);
}
