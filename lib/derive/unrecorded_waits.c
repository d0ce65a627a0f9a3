/*
 * Waits without a known cause: the pauses of threads, and the unexplained time before operations of
 * tables. unrecorded.c compares them.
 */
#include "derive/unrecorded.h"

/* ---- waits ----------------------------------------------------------------------------------- */

/* May the program have waited there? In a gap, or in a piece of an operation that goes on, unless
 * that computes. */
static bool is_pause(struct builder *b, const struct resource *resource, uint32_t i)
{
	const struct node *n = &b->node[i];

	if (n->role == PL_RO_GAP)
		return true;
	if (n->role != PL_RO_HOST || n->kind != PL_K_HOST_OP || i < resource->node0 + 2 ||
	    i + 2 >= resource->node1)
		return false;
	return (n[-2].name == n->name || n[2].name == n->name) && !pl_derive_is_kernel(b, n->name);
}

uint32_t pl_unrecorded_place(struct search *x, const struct place_key *key)
{
	size_t n = x->keys.n;
	pl_id id = pl_derive_intern(x->b->err, &x->keys, key, sizeof(*key));

	if (id == n)
		PL_DERIVE_ADD(x->b->err, x->place, x->n_places, x->cap_places,
			      (struct place){ .key = *key });
	return x->b->err->code ? PL_NONE : id;
}

struct place_key pl_unrecorded_key(const struct search *x, uint32_t res, uint32_t node)
{
	const struct builder *b = x->b;
	const struct node *n = &b->node[node];

	if (b->rank[b->resource[res].rank_index].table)
		return (struct place_key){ res, PL_NONE, n->name, PL_NONE };
	return (struct place_key){ res, n[-1].name, n->name, n[1].name };
}

static void add_wait(struct search *x, const struct place_key *key, const struct wait *w)
{
	struct wait own = *w;

	own.place = pl_unrecorded_place(x, key);
	if (own.place == PL_NONE)
		return;
	PL_DERIVE_ADD(x->b->err, x->wait, x->n_waits, x->cap_waits, own);
	x->place[own.place].n++;
}

static void waits_of_thread(struct search *x, const struct resource *resource)
{
	struct builder *b = x->b;

	for (uint32_t i = resource->node0 + 1; i + 1 < resource->node1; i++) {
		struct place_key key;

		if (b->node[i].dur < LONG_NS || !is_pause(b, resource, i))
			continue;
		key = pl_unrecorded_key(x, b->node[i].res, i);
		add_wait(x, &key,
			 &(struct wait){ .ready = b->node[i].start,
					 .end = pl_derive_end(b, i),
					 .node = i });
	}
}

static void waits_of_table(struct search *x, const struct resource *resource)
{
	const struct builder *b = x->b;

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op *op = &resource->op[i];
		struct place_key key;

		if (op->node == PL_NONE || x->ready[op->node].last == PL_NONE ||
		    b->node[op->node].start - x->ready[op->node].at < LONG_NS)
			continue;
		key = pl_unrecorded_key(x, b->node[op->node].res, op->node);
		add_wait(x, &key,
			 &(struct wait){ .ready = x->ready[op->node].at,
					 .end = b->node[op->node].start,
					 .node = op->node });
	}
}

/* When the predecessors of each node had ended. */
static void find_ready(struct search *x)
{
	struct builder *b = x->b;
	struct edge e;

	if (pl_derive_room(&x->ready, b->n_nodes, sizeof(*x->ready), b->err) < 0)
		return;
	for (size_t i = 0; i < b->n_nodes; i++)
		x->ready[i] = (struct ready){ INT64_MIN, PL_NONE };
	for (size_t at = 0; pl_derive_next_edge(b, &at, &e);) {
		bool from_start =
			PL_E_TYPE(e.type) == PL_E_START || PL_E_TYPE(e.type) == PL_E_EARLY;
		pl_ns end = from_start ? b->node[e.src].start : pl_derive_end(b, e.src);

		if (end > x->ready[e.dst].at)
			x->ready[e.dst] = (struct ready){ end, e.src };
	}
}

PL_COMPARATOR(by_place, struct wait, place, end, node);

static void list_by_end(struct search *x)
{
	struct by_end {
		pl_ns end;
		uint32_t wait;
	} *v = NULL;
	size_t n = x->n_waits;
	int rc;

	PL_TRY(pl_alloc(&v, n, sizeof(*v), x->b->err));
	PL_TRY(pl_alloc(&x->by_end, n, sizeof(*x->by_end), x->b->err));
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct by_end){ x->wait[i].end, i };
	pl_sort(v, n, sizeof(*v), pl_compare_i64);
	for (size_t i = 0; i < n; i++)
		x->by_end[i] = v[i].wait;
out:
	pl_free(v);
}

void pl_unrecorded_collect(struct search *x)
{
	struct builder *b = x->b;
	bool table = false;

	for (size_t r = 0; r < b->n_ranks; r++)
		table |= b->rank[r].table;
	if (table)
		find_ready(x);
	for (uint32_t k = 0; k < b->g->n_res && !b->err->code; k++) {
		const struct resource *resource = &b->resource[k];

		if (b->rank[resource->rank_index].table)
			waits_of_table(x, resource);
		else if (resource->thread && !resource->service)
			waits_of_thread(x, resource);
	}
	pl_sort(x->wait, x->n_waits, sizeof(*x->wait), by_place);
	for (uint32_t i = (uint32_t)x->n_waits; i-- > 0;)
		x->place[x->wait[i].place].first = i;
	list_by_end(x);
}

/* The clock of each rank: that of its first segment. */
void pl_unrecorded_find_clocks(struct search *x)
{
	const struct builder *b = x->b;

	if (pl_alloc(&x->clock, b->n_ranks, sizeof(*x->clock), b->err) < 0)
		return;
	for (uint32_t i = b->t->n_segs; i-- > 0;)
		for (uint32_t k = 0; k < b->t->seg[i]->seg.n_tracks; k++)
			if (b->seg[i].track_res[k] != PL_NONE)
				x->clock[b->resource[b->seg[i].track_res[k]].rank_index] =
					b->seg[i].clock[k];
}

/* How far the clocks of two ranks may differ. */
pl_ns pl_unrecorded_clock_error(const struct search *x, uint32_t rank, uint32_t other)
{
	const struct pl_clock *c[2] = { x->clock[rank], x->clock[other] };
	pl_ns sum = 0;

	for (int i = 0; i < 2 && c[0] != c[1]; i++)
		sum += c[i] ? pl_min_i64(pl_max_i64(c[i]->offset_ci_ns, 0), TOGETHER_MAX) : 0;
	return sum;
}

/* ---- the wait of a place that ends at some time ---------------------------------------------- */

/* Replaces *best by a longer wait. */
static void longer(struct wait *best, const struct wait *w)
{
	if (best->node == PL_NONE || w->end - w->ready > best->end - best->ready)
		*best = *w;
}

/* Of the waits of resource `res` that end within `tol` of `end`, the longest one; with a key only
 * those of this place. */
struct wait pl_unrecorded_wait_at(const struct search *x, uint32_t res, const struct place_key *key,
				  pl_ns end, pl_ns tol)
{
	struct builder *b = x->b;
	const struct resource *resource = &b->resource[res];
	struct wait best = { .node = PL_NONE };
	struct place_key own;
	uint32_t i;

	if (b->rank[resource->rank_index].table) {
		i = 0;
		PL_LOWER_BOUND(i, resource->n, resource->op[i].start < end - tol);
		for (; i < resource->n && resource->op[i].start <= end + tol; i++) {
			uint32_t node = resource->op[i].node;

			if (node == PL_NONE || x->ready[node].last == PL_NONE)
				continue;
			own = pl_unrecorded_key(x, res, node);
			if (!key || memcmp(key, &own, sizeof(own)) == 0)
				longer(&best, &(struct wait){ x->ready[node].at,
							      b->node[node].start, node, 0 });
		}
		return best;
	}
	if (!resource->thread || resource->service || resource->node1 < resource->node0 + 3)
		return best;
	i = resource->node0 + 1;
	PL_LOWER_BOUND(i, resource->node1 - 1, pl_derive_end(b, i) < end - tol);
	for (; i + 1 < resource->node1 && pl_derive_end(b, i) <= end + tol; i++) {
		if (!is_pause(b, resource, i))
			continue;
		own = pl_unrecorded_key(x, b->node[i].res, i);
		if (!key || memcmp(key, &own, sizeof(own)) == 0)
			longer(&best,
			       &(struct wait){ b->node[i].start, pl_derive_end(b, i), i, 0 });
	}
	return best;
}
