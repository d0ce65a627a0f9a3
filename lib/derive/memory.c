/*
 * Recorded allocations: the operations that allocate and release memory.
 *
 * PyTorch's profiler (profile_memory) writes an instant for each allocation and each release, on
 * the thread that asked for it, with the address and the total of allocated bytes. A release
 * belongs to the last allocation at its address. If a rank has a device, only the memory of the
 * device counts, because it is the scarce one. The totals of host memory begin at 0 with the
 * recording. The totals of a device include earlier allocations.
 *
 * Memory changes inside nodes, but a graph has only the start and the end of a node. Therefore a
 * release counts at the start of its node, and so does an allocation that outlives its node. One
 * number for each node (temporary memory) holds the rest, so that the peak during each node is
 * exactly the recorded peak.
 *
 * The names of operations identify the backward operations of autograd. Memory that was allocated
 * outside them, and is in use when the next of them begins, is an activation. Its layer is the
 * innermost annotation around the allocation. Annotations with activations are numbered within a
 * step, and the operations in them get this number as layer.
 *
 * O(n log n) in memory events and annotations. A trace without them costs one test per segment.
 */
#include "derive/memory.h"

#define BYTES_MAX ((int64_t)1 << 44) /* a larger allocation is an error of the recording */
#define NEST	  64		     /* annotations searched for the enclosing one */

static const char backward[] = "autograd::engine::evaluate_function";

struct event {
	pl_ns at;
	int64_t addr, bytes, total; /* total: after the event, INT64_MIN: not known */
	int64_t type, id;
	uint32_t res, seg, ev;
};
struct device {
	int64_t type, id;
};
/* The allocations and releases of a node. */
struct now {
	uint32_t node;
	int64_t sum, most;  /* most: largest sum right after an allocation */
	int64_t left, gone; /* bytes that outlive the node; released bytes from before the node */
	bool makes;
};
struct pairing {
	struct builder *b;
	const struct rank *rank;
	struct mem_rank *m;
	struct event *ev;
	size_t n, cap;
	struct pl_intern addr;
	uint32_t *top, *below; /* [address]: its last allocation; [allocation]: the one before */
	size_t cap_top, cap_below;
	struct now *now; /* [resource] */
	uint32_t main;	 /* the thread with most nodes, PL_NONE */
};

/* ---- gathering ------------------------------------------------------------------------------- */

static bool of_rank(const struct builder *b, uint32_t seg, uint32_t ev, const struct rank *rank)
{
	const struct pl_events *e = b->t->seg[seg];

	return pl_max_i64(e->seg.track[e->track[ev]].rank, 0) == rank->rank;
}

/* Does the segment have a track that may hold events of the rank? This test avoids a search of
 * every segment for every rank. */
static bool has_rank(const struct builder *b, uint32_t seg, const struct rank *rank)
{
	const struct pl_segment *s = &b->t->seg[seg]->seg;
	bool any = false;

	for (uint32_t i = 0; i < s->n_tracks && !any; i++)
		any = pl_max_i64(s->track[i].rank, 0) == rank->rank;
	return any;
}

static void gather_events(struct pairing *p, uint32_t seg)
{
	const struct pl_events *e = p->b->t->seg[seg];

	for (uint32_t i = 0; i < e->n; i++) {
		struct event x = { .seg = seg, .ev = i };

		if (e->kind[i] != PL_K_MEMORY || !of_rank(p->b, seg, i, p->rank))
			continue;
		x.bytes = pl_derive_value(e->alloc, i, INT64_MIN);
		if (x.bytes < -BYTES_MAX || x.bytes > BYTES_MAX || !x.bytes) /* or INT64_MIN */
			continue;
		x.at = pl_derive_time(p->b, seg, i);
		x.addr = pl_derive_value(e->address, i, INT64_MIN);
		x.total = pl_derive_value(e->allocated, i, INT64_MIN);
		if (x.total < 0 || x.total > BYTES_MAX)
			x.total = INT64_MIN;
		x.type = pl_derive_value(e->device_type, i, INT64_MIN);
		x.id = pl_derive_value(e->device, i, INT64_MIN);
		x.res = p->b->seg[seg].track_res[e->track[i]];
		PL_DERIVE_ADD(p->b->err, p->ev, p->n, p->cap, x);
	}
}

PL_COMPARATOR(by_time, struct event, at, seg, ev);

/* Keep the events of the device with most memory in use, or of the host if there is no device. */
static void choose_device(struct pairing *p)
{
	struct device d = { 0, INT64_MIN };
	int64_t most = INT64_MIN;
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct event *x = &p->ev[i];
		bool host = x->type <= 0, now_host = d.type <= 0;

		if (most != INT64_MIN && host && !now_host)
			continue;
		if (most == INT64_MIN || (now_host && !host) || x->total > most) {
			most = x->total == INT64_MIN ? 0 : x->total;
			d = (struct device){ x->type, x->id };
		}
	}
	for (size_t i = 0; i < p->n; i++)
		if (p->ev[i].type == d.type && p->ev[i].id == d.id)
			p->ev[n++] = p->ev[i];
	p->n = n;
}

static void add_range(struct pairing *p, uint32_t seg, uint32_t ev)
{
	const struct pl_events *e = p->b->t->seg[seg];
	struct mem_range x = { .res = p->b->seg[seg].track_res[e->track[ev]],
			       .output = PL_NONE,
			       .layer = -1 };

	if (x.res == PL_NONE || !p->b->resource[x.res].thread)
		return;
	x.start = pl_derive_time(p->b, seg, ev);
	x.end = pl_add_sat(x.start, e->dur[ev]);
	x.name = pl_derive_str(p->b, seg, e->name[ev]);
	PL_DERIVE_ADD(p->b->err, p->m->range, p->m->n_ranges, p->m->cap_ranges, x);
}

static void add_back(struct pairing *p, uint32_t seg, uint32_t ev)
{
	const struct pl_events *e = p->b->t->seg[seg];
	pl_ns start = pl_derive_time(p->b, seg, ev);

	PL_DERIVE_ADD(p->b->err, p->m->back, p->m->n_back, p->m->cap_back,
		      (struct mem_span){ start, pl_add_sat(start, e->dur[ev]),
					 p->b->seg[seg].track_res[e->track[ev]] });
}

static void gather_spans(struct pairing *p, uint32_t seg)
{
	const struct pl_events *e = p->b->t->seg[seg];

	for (uint32_t i = 0; i < e->n; i++) {
		if (e->dur[i] < 0 || !of_rank(p->b, seg, i, p->rank))
			continue;
		if (e->kind[i] == PL_K_ANNOTATION)
			add_range(p, seg, i);
		else if (e->kind[i] == PL_K_HOST_OP &&
			 !strncmp(pl_intern_get(&e->seg.str, e->name[i]), backward,
				  sizeof(backward) - 1))
			add_back(p, seg, i);
	}
}

static int by_range(const void *pa, const void *pb)
{
	const struct mem_range *a = pa, *c = pb;
	int order = PL_COMPARE(a->res, c->res);

	if (!order)
		order = PL_DERIVE_OUTER_FIRST(a, c);
	return order ? order : PL_COMPARE(a->name, c->name);
}

static int by_span(const void *pa, const void *pb)
{
	const struct mem_span *a = pa, *c = pb;

	return PL_DERIVE_OUTER_FIRST(a, c);
}

/* ---- nodes by time --------------------------------------------------------------------------- */

/* The node of the thread at that time: the last that has begun, or the first if none has. */
static uint32_t node_at(const struct builder *b, const struct resource *resource, pl_ns t)
{
	uint32_t i = resource->node0;

	if (!resource->thread || i == resource->node1)
		return PL_NONE;
	PL_LOWER_BOUND(i, resource->node1, b->node[i].start <= t);
	return i > resource->node0 ? i - 1 : i;
}

static void find_main(struct pairing *p)
{
	uint32_t most = 0;

	p->main = PL_NONE;
	for (size_t i = 0; i < p->rank->n_res; i++) {
		const struct resource *resource = &p->b->resource[p->rank->res[i]];

		if (!resource->thread || resource->node1 - resource->node0 <= most)
			continue;
		most = resource->node1 - resource->node0;
		p->main = p->rank->res[i];
	}
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static void flush(struct pairing *p, uint32_t res)
{
	struct now *x = &p->now[res];
	int64_t more = x->makes ? pl_add_sat(pl_add_sat(x->most, -x->left), x->gone) : 0;

	if (x->node != PL_NONE && more > 0)
		PL_DERIVE_ADD(p->b->err, p->m->inner, p->m->n_inner, p->m->cap_inner,
			      (struct mem_inner){ x->node, more });
	*x = (struct now){ .node = PL_NONE };
}

static void add_alloc(struct pairing *p, const struct mem_alloc *x, pl_id addr)
{
	struct mem_rank *m = p->m;
	size_t n = m->n_allocs;

	PL_DERIVE_ADD(p->b->err, p->below, n, p->cap_below, p->top[addr]);
	PL_DERIVE_ADD(p->b->err, m->alloc, m->n_allocs, m->cap_allocs, *x);
	p->top[addr] = (uint32_t)m->n_allocs - 1;
}

/* A release counts at the end of the node before, if it is not before the allocation, and never at
 * the end of an arrival, because communication carries tensors that end there. */
static void release(struct pairing *p, struct mem_alloc *a, const struct event *x, uint32_t node,
		    struct now *now)
{
	const struct builder *b = p->b;
	const struct resource *resource = node == PL_NONE ? NULL : &b->resource[b->node[node].res];
	uint32_t last;

	a->to = x->at;
	a->freed = a->last = node;
	if (node == PL_NONE)
		return;
	if (b->node[node].role == PL_RO_ARRIVE)
		a->freed = a->last = node + 1;
	if (a->first == node) {
		a->inner = true;
		now->left = pl_add_sat(now->left, -a->bytes);
		return;
	}
	last = node;
	while (last > resource->node0 && (last == node || b->node[last].role == PL_RO_ARRIVE))
		last--;
	if (last < node && b->node[last].role != PL_RO_ARRIVE &&
	    (a->first == PL_NONE || b->node[last].start >= b->node[a->first].start)) {
		a->last = last;
		now->gone = pl_add_sat(now->gone, a->bytes);
	}
}

static void one_event(struct pairing *p, const struct event *x)
{
	uint32_t res =
		x->res != PL_NONE && p->b->resource[x->res].node1 > p->b->resource[x->res].node0
			? x->res
			: p->main;
	uint32_t node = res == PL_NONE ? PL_NONE : node_at(p->b, &p->b->resource[res], x->at);
	struct now none = { 0 }, *now = res == PL_NONE ? &none : &p->now[res];
	int64_t key = x->addr != INT64_MIN ? x->addr : x->bytes < 0 ? -x->bytes : x->bytes;
	struct mem_alloc a = { .from = x->at,
			       .to = INT64_MAX,
			       .bytes = x->bytes,
			       .first = node,
			       .freed = PL_NONE,
			       .last = PL_NONE,
			       .range = PL_NONE };
	size_t had = p->addr.n;
	pl_id id;

	if (res != PL_NONE && now->node != node) {
		flush(p, res);
		now->node = node;
	}
	now->sum = pl_add_sat(now->sum, x->bytes);
	if (x->bytes > 0 && (!now->makes || now->sum > now->most))
		now->most = now->sum;
	now->makes |= x->bytes > 0;
	id = pl_derive_intern(p->b->err, &p->addr, &key, sizeof(key));
	if (id == had)
		PL_DERIVE_ADD(p->b->err, p->top, had, p->cap_top, PL_NONE);
	if (p->b->err->code)
		return;
	if (x->bytes > 0) {
		now->left = pl_add_sat(now->left, x->bytes);
		add_alloc(p, &a, id);
		return;
	}
	if (p->top[id] == PL_NONE) { /* allocated before the recording */
		a.from = INT64_MIN;
		a.first = PL_NONE;
		a.bytes = -x->bytes;
		add_alloc(p, &a, id);
	}
	if (p->b->err->code)
		return;
	release(p, &p->m->alloc[p->top[id]], x, node, now);
	p->top[id] = p->below[p->top[id]];
}

PL_COMPARATOR(by_making, struct mem_alloc, from, to, bytes);

static void pair(struct pairing *p)
{
	size_t n_res = p->b->g->n_res;
	int rc;

	pl_sort(p->ev, p->n, sizeof(*p->ev), by_time);
	choose_device(p);
	find_main(p);
	PL_TRY(pl_alloc(&p->now, n_res + 1, sizeof(*p->now), p->b->err));
	for (size_t i = 0; i < n_res; i++)
		p->now[i].node = PL_NONE;
	for (size_t i = 0; i < p->n && !p->b->err->code; i++)
		one_event(p, &p->ev[i]);
	for (size_t i = 0; i < n_res; i++)
		flush(p, (uint32_t)i);
	if (p->ev[0].total != INT64_MIN)
		p->m->before = pl_max_i64(0, p->ev[0].total - p->ev[0].bytes);
	p->m->known = true;
	pl_sort(p->m->alloc, p->m->n_allocs, sizeof(*p->m->alloc), by_making);
out:;
}

/* ---- activations and their layers ------------------------------------------------------------ */

/* The number of spans of the backward pass that begin at or before t. */
static size_t back_after(const struct mem_rank *m, pl_ns t)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, m->n_back, m->back[i].start <= t);
	return i;
}

static bool in_backward(const struct mem_rank *m, uint32_t res, pl_ns t)
{
	size_t at = back_after(m, t);

	for (size_t i = at; i-- > 0 && at - i <= NEST;)
		if (m->back[i].res == res && m->back[i].end > t)
			return true;
	return false;
}

/* The innermost range of the thread around t, PL_NONE. */
static uint32_t range_at(const struct mem_rank *m, uint32_t res, pl_ns t)
{
	size_t lo = 0;

	PL_LOWER_BOUND(lo, m->n_ranges,
		       m->range[lo].res < res ||
			       (m->range[lo].res == res && m->range[lo].start <= t));
	for (size_t i = lo; i-- > 0 && lo - i <= NEST && m->range[i].res == res;)
		if (m->range[i].end > t)
			return (uint32_t)i;
	return PL_NONE;
}

static void find_kept(const struct builder *b, const struct rank *rank, struct mem_rank *m)
{
	for (uint32_t i = 0; i < m->n_allocs; i++) {
		struct mem_alloc *a = &m->alloc[i];
		uint32_t res = a->first == PL_NONE ? PL_NONE : b->node[a->first].res;
		size_t next;

		if (res == PL_NONE || a->inner || in_backward(m, res, a->from))
			continue;
		next = back_after(m, a->from);
		a->kept = next < m->n_back && m->back[next].start < a->to &&
			  pl_derive_step_at(b, rank, m->back[next].start, NULL) ==
				  pl_derive_step_at(b, rank, a->from, NULL);
		if (!a->kept)
			continue;
		a->range = range_at(m, res, a->from);
		if (a->range != PL_NONE)
			m->range[a->range].output = i;
	}
}

/* The operations in the range, and the operations that they launch. */
static void mark_range(struct builder *b, const struct rank *rank, const struct mem_range *x)
{
	const struct resource *resource = &b->resource[x->res];
	size_t lo = 0;

	for (uint32_t i = node_at(b, resource, x->start);
	     i < resource->node1 && b->node[i].start < x->end; i++)
		if (b->node[i].start >= x->start && pl_derive_end(b, i) <= x->end)
			pl_derive_set_layer(b, i, i, x->layer);
	PL_LOWER_BOUND(lo, rank->n_calls, rank->call[lo].start < x->start);
	for (; lo < rank->n_calls && rank->call[lo].start < x->end; lo++) {
		const struct call *c = &rank->call[lo];

		for (uint32_t k = 0; c->res == x->res && k < c->n_ops; k++) {
			const struct op *op = rank->by_call[c->first_op + k];

			pl_derive_set_layer(b, op->node, op->last, x->layer);
		}
	}
}

static bool has_layers(const struct builder *b)
{
	for (uint32_t i = 0; i < b->t->n_segs; i++)
		if (b->t->seg[i]->layer)
			return true;
	return false;
}

static void number_ranges(struct builder *b, const struct rank *rank, struct mem_rank *m)
{
	int32_t step = INT32_MIN, layer = 0;

	if (has_layers(b)) /* the input has its own layer numbers */
		return;
	for (size_t i = 0; i < m->n_ranges; i++) {
		struct mem_range *x = &m->range[i];
		int32_t at = pl_derive_step_at(b, rank, x->start, NULL);

		if (x->output == PL_NONE)
			continue;
		if (at != step)
			layer = 0;
		step = at;
		x->layer = layer++;
		mark_range(b, rank, x);
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void one_rank(struct builder *b, size_t index)
{
	struct pairing p = { .b = b, .rank = &b->rank[index], .m = &b->memory[index] };

	for (uint32_t seg = 0; seg < b->t->n_segs; seg++)
		if (b->t->seg[seg]->alloc && has_rank(b, seg, p.rank))
			gather_events(&p, seg);
	if (!p.n)
		goto out;
	for (uint32_t seg = 0; seg < b->t->n_segs; seg++)
		if (has_rank(b, seg, p.rank))
			gather_spans(&p, seg);
	pl_sort(p.m->range, p.m->n_ranges, sizeof(*p.m->range), by_range);
	pl_sort(p.m->back, p.m->n_back, sizeof(*p.m->back), by_span);
	pair(&p);
	find_kept(b, p.rank, p.m);
	number_ranges(b, p.rank, p.m);
out:
	pl_free(p.ev);
	pl_free(p.top);
	pl_free(p.below);
	pl_free(p.now);
	pl_intern_fini(&p.addr);
}

void pl_derive_find_memory(struct builder *b)
{
	int rc;

	if (!b->has_memory)
		return;
	PL_TRY(pl_alloc(&b->memory, b->n_ranks, sizeof(*b->memory), b->err));
	for (size_t r = 0; r < b->n_ranks && !b->err->code; r++)
		one_rank(b, r);
out:;
}

void pl_derive_drop_memory(struct builder *b)
{
	for (size_t r = 0; b->memory && r < b->n_ranks; r++) {
		struct mem_rank *m = &b->memory[r];

		pl_free(m->alloc);
		pl_free(m->range);
		pl_free(m->inner);
		pl_free(m->back);
	}
	pl_free(b->memory);
	b->memory = NULL;
}
