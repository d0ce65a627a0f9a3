/*
 * From tracks to resources, and from events to operations.
 *
 * Resources and the operations of steps are known for all ranks at once, because the order of the
 * steps depends on them. The other operations are listed rank by rank.
 */
#include <limits.h>

#include "clock/clock.h"
#include "derive/internal.h"

/* The index of a rank, which is added if it is new. */
static uint32_t rank_index(struct builder *b, int32_t rank)
{
	uint32_t i;

	rank = rank < 0 ? 0 : rank;
	i = pl_derive_intern(b->err, &b->rank_ids, &rank, sizeof(rank));
	if (i == b->n_ranks)
		PL_DERIVE_ADD(b->err, b->rank, b->n_ranks, b->cap_ranks,
			      (struct rank){ .rank = rank });
	return i < b->n_ranks ? i : PL_NONE;
}

static pl_id resource_name(struct builder *b, const struct pl_segment *s, const struct pl_track *t,
			   bool devices)
{
	char text[256];

	if (t->type == PL_T_STREAM && t->stream >= 0 && devices && t->device >= 0)
		snprintf(text, sizeof(text), "device %d stream %lld", t->device,
			 (long long)t->stream);
	else if (t->type == PL_T_STREAM && t->stream >= 0)
		snprintf(text, sizeof(text), "stream %lld", (long long)t->stream);
	else if (t->name != PL_NONE)
		snprintf(text, sizeof(text), "%s", pl_intern_get(&s->str, t->name));
	else
		snprintf(text, sizeof(text), "%s %s", pl_trace_track_type_name(t->type),
			 pl_intern_get(&s->str, t->tid));
	return pl_derive_intern_text(b->err, &b->g->str, text);
}

/* The link of a rank, as the metadata says: to the first rank, or from the rank to itself. That of
 * the first rank, which has resource 0, ends at the second rank, which comes later. */
static void note_link(struct builder *b, const struct pl_segment *s, uint32_t res)
{
	const char *each = pl_trace_segment_meta_get(s, PL_DERIVE_LINKS);
	const uint32_t other = res ? 0 : PL_NONE;
	const struct pl_link l = { res, each && !strcmp(each, "true") ? other : res, 0, 0 };

	if (b->g->n_links && b->g->link[0].to == PL_NONE)
		b->g->link[0].to = res;
	if (each)
		PL_DERIVE_ADD(b->err, b->g->link, b->g->n_links, b->g->cap_links, l);
}

static void add_resource(struct builder *b, uint32_t seg, uint32_t track)
{
	const struct pl_segment *s = &b->t->seg[seg]->seg;
	const struct pl_track *t = &s->track[track];
	uint32_t index = rank_index(b, t->rank), id = PL_NONE;
	struct pl_resource r = { .track_type = t->type, .device = t->device, .capacity = 1 };
	struct rank *rank;
	struct resource *resource;

	if (index != PL_NONE) {
		rank = &b->rank[index];
		r.rank = rank->rank;
		memcpy(r.coord, t->coord, sizeof(r.coord));
		if (b->devices_of.seg != seg || b->devices_of.rank != t->rank ||
		    !b->devices_of.known)
			b->devices_of = (struct devices_of){ seg, t->rank, true,
							     pl_trace_segment_devices(s, t->rank) };
		r.name = resource_name(b, s, t, b->devices_of.several);
		r.host = pl_derive_str(b, seg, t->host);
		id = pl_derive_resource(b, &r, index);
	}
	if (id == PL_NONE)
		return;
	resource = &b->resource[id];
	resource->device =
		t->type == PL_T_STREAM || t->type == PL_T_COPY_ENGINE || t->type == PL_T_LINK;
	resource->thread = !resource->device;
	resource->stream = t->stream;
	if (!rank->n_res)
		note_link(b, s, id);
	PL_DERIVE_ADD(b->err, rank->res, rank->n_res, rank->cap_res, id);
	rank->has_device |= resource->device;
	if (resource->device) {
		const char *all = pl_trace_segment_meta_get(s, PL_DERIVE_ALL_SYNC);

		rank->all_sync |= all && !strcmp(all, "true");
	}
	b->seg[seg].track_res[track] = id;
}

static bool wanted(uint8_t kind)
{
	switch (kind) {
	case PL_K_HOST_OP:
	case PL_K_RUNTIME:
	case PL_K_KERNEL:
	case PL_K_COPY:
	case PL_K_SET:
	case PL_K_COLLECTIVE:
	case PL_K_SEND:
	case PL_K_RECV:
	case PL_K_DATA:
	case PL_K_STEP:
		return true;
	default:
		return false;
	}
}

/* A wait of a thread for the communication with the same correlation. */
static bool is_wait(const struct pl_events *e, uint32_t ev)
{
	return e->kind[ev] == PL_K_WAIT && e->corr && e->corr[ev] != INT64_MIN &&
	       e->seg.track[e->track[ev]].type == PL_T_THREAD;
}

/* Messages of collectives do not become operations of their track: see messages.c. */
static bool is_op(const struct pl_events *e, uint32_t ev)
{
	return (wanted(e->kind[ev]) || is_wait(e, ev)) && e->dur[ev] >= 0 &&
	       (!e->of || e->of[ev] == INT64_MIN ||
		(e->kind[ev] != PL_K_SEND && e->kind[ev] != PL_K_RECV));
}

static void add_sync(struct builder *b, const struct pl_events *e, uint32_t ev, int32_t rank)
{
	const char *name = pl_intern_get(&e->seg.str, e->name[ev]);
	const struct sync_record s = {
		.corr = pl_derive_value(e->corr, ev, INT64_MIN),
		.stream = pl_derive_value(e->stream, ev, -1),
		.on_stream = pl_derive_value(e->wait_stream, ev, -1),
		.record_corr = pl_derive_value(e->wait_corr, ev, -1),
		.device = e->seg.track[e->track[ev]].device,
		.wait = strstr(name, "Wait") != NULL,
		.device_wide = strstr(name, "Context") || strstr(name, "Device"),
	};
	uint32_t index = s.corr == INT64_MIN ? PL_NONE : rank_index(b, rank);

	if (index != PL_NONE)
		PL_DERIVE_ADD(b->err, b->rank[index].sync, b->rank[index].n_sync,
			      b->rank[index].cap_sync, s);
}

static struct op op_of(const struct builder *b, uint32_t seg, uint32_t ev)
{
	const struct pl_events *e = b->t->seg[seg];
	const struct pl_clock *clock = b->seg[seg].clock[e->track[ev]];
	pl_ns start = pl_add_sat(e->ts[ev], e->seg.base_ns);

	return (struct op){
		.seg = seg,
		.ev = ev,
		.start = pl_trace_clock_apply(clock, start),
		.end = pl_trace_clock_apply(clock, pl_add_sat(start, e->dur[ev])),
		.node = PL_NONE,
		.last = PL_NONE,
		.call = PL_NONE,
		.kind = e->kind[ev],
	};
}

/* Outer operations before inner ones, then the order of the input: a total order. */
static int by_start(const void *pa, const void *pb)
{
	const struct op *a = pa, *c = pb;
	int order = PL_DERIVE_OUTER_FIRST(a, c);

	return order ? order : PL_COMPARE_FIELDS(a, c, seg, ev);
}

/* Operations of a stream do not nest: an operation of no duration comes before another operation
 * with the same start. */
static int by_turn(const void *pa, const void *pb)
{
	const struct op *a = pa, *c = pb;
	bool first = a->end == a->start, second = c->end == c->start;

	if (a->start == c->start && first != second)
		return first ? -1 : 1;
	return by_start(pa, pb);
}

/* Calls that begin in the same tick do not nest: their correlation tells their order. */
static void order_calls(const struct builder *b, struct resource *resource)
{
	for (uint32_t i = 1; i < resource->n; i++) {
		struct op op = resource->op[i];
		const struct pl_events *e = b->t->seg[op.seg];
		uint32_t k = i;

		if (resource->op[i - 1].start != op.start || op.kind != PL_K_RUNTIME || !e->corr)
			continue;
		for (; k && resource->op[k - 1].start == op.start &&
		       resource->op[k - 1].seg == op.seg;
		     k--)
			if (resource->op[k - 1].kind != PL_K_RUNTIME ||
			    e->corr[resource->op[k - 1].ev] <= e->corr[op.ev])
				break;
		memmove(&resource->op[k + 1], &resource->op[k], (i - k) * sizeof(op));
		resource->op[k] = op;
	}
}

static void prepare_segment(struct builder *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];
	struct segment *x = &b->seg[seg];
	uint32_t nt = e->seg.n_tracks;
	int rc;

	PL_TRY(pl_alloc(&x->str, e->seg.str.n + 1, sizeof(*x->str), b->err));
	PL_TRY(pl_alloc(&x->call_type, e->seg.str.n + 1, 1, b->err));
	PL_TRY(pl_alloc(&x->phase_of, e->seg.str.n + 1, 1, b->err));
	PL_TRY(pl_alloc(&x->range_of, e->seg.str.n + 1, 1, b->err));
	PL_TRY(pl_alloc(&x->track_res, nt + 1, sizeof(*x->track_res), b->err));
	PL_TRY(pl_alloc(&x->track_at, nt + 1, sizeof(*x->track_at), b->err));
	PL_TRY(pl_alloc(&x->clock, nt + 1, sizeof(*x->clock), b->err));
	memset(x->str, 0xff, e->seg.str.n * sizeof(*x->str));
	memset(x->track_res, 0xff, nt * sizeof(*x->track_res));
	for (uint32_t i = 0; i < nt; i++)
		x->clock[i] = pl_trace_merge_clock(&b->t->merge, seg, e->seg.track[i].rank);
out:;
}

/* Makes resources for the tracks in the order of first use, and lists their steps. track_at becomes
 * the index of the segment's first operation on the resource. */
static void count_ops(struct builder *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];
	uint32_t *count = b->seg[seg].track_at;

	for (uint32_t ev = 0; ev < e->n && !b->err->code; ev++) {
		uint32_t track = e->track[ev];
		struct resource *resource;

		if (e->kind[ev] == PL_K_SYNC)
			add_sync(b, e, ev, e->seg.track[track].rank);
		if (!is_op(e, ev))
			continue;
		if (b->seg[seg].track_res[track] == PL_NONE)
			add_resource(b, seg, track);
		count[track]++;
		if (e->kind[ev] != PL_K_STEP || b->err->code)
			continue;
		resource = &b->resource[b->seg[seg].track_res[track]];
		PL_DERIVE_ADD(b->err, resource->op, resource->n, resource->cap, op_of(b, seg, ev));
	}
	for (uint32_t i = 0; i < e->seg.n_tracks && !b->err->code; i++) {
		struct resource *resource =
			count[i] ? &b->resource[b->seg[seg].track_res[i]] : NULL;
		uint32_t more = count[i];

		if (!resource)
			continue;
		if ((size_t)resource->n_all + more > PL_NONE - 1)
			pl_fail(b->err, PL_ELIMIT, "a track has more than %u operations",
				PL_NONE - 1);
		count[i] = resource->n_all;
		resource->n_all += more;
	}
}

/* All operations of the segment's events. Those of steps keep the ends that steps.c gave them. */
static void fill_segment(struct builder *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];
	struct segment *x = &b->seg[seg];
	int rc = 0;

	for (uint32_t i = 0; i < e->seg.n_tracks; i++) {
		struct resource *resource =
			x->track_res[i] == PL_NONE ? NULL : &b->resource[x->track_res[i]];

		if (!resource || resource->listed) /* by the segment before */
			continue;
		resource->listed = true;
		resource->step = resource->op;
		PL_TRY(pl_derive_room(&resource->op, resource->n_all, sizeof(*resource->op),
				      b->err));
		resource->n = resource->n_all;
	}
	for (uint32_t ev = 0; ev < e->n; ev++) {
		pl_id track = e->track[ev];

		if (is_op(e, ev))
			b->resource[x->track_res[track]].op[x->track_at[track]++] =
				op_of(b, seg, ev);
	}
out:;
}

static void sort_ops(struct resource *resource)
{
	pl_sort(resource->op, resource->n, sizeof(*resource->op),
		resource->device ? by_turn : by_start);
}

void pl_derive_list_ops(struct builder *b, struct rank *rank)
{
	for (uint32_t i = rank->begun; i != PL_NONE && !b->err->code; i = b->seg[i].next_begun)
		fill_segment(b, i);
	for (size_t k = 0; k < rank->n_res && !b->err->code; k++) {
		struct resource *resource = &b->resource[rank->res[k]];
		const struct op *step = resource->step;

		sort_ops(resource);
		for (uint32_t i = 0; i < resource->n; i++)
			if (resource->op[i].kind == PL_K_STEP)
				resource->op[i].end = step++->end;
		if (resource->thread)
			order_calls(b, resource);
	}
}

/* Same text, which is not empty. */
static bool same_text(const char *a, const char *b)
{
	return a && b && *a && !strcmp(a, b);
}

/*
 * May tracks of both segments be the same? The several segments of a file (long traces are cut into
 * segments by their strings), or what several recorders wrote of one process. The others number
 * threads as they like.
 */
static bool may_share(const struct pl_segment *s, const struct pl_segment *p, bool next)
{
	if (next && s->part > p->part && same_text(s->source, p->source))
		return true;
	return s->n_tracks && p->n_tracks && s->track[0].rank == p->track[0].rank &&
	       (same_text(s->format, PL_TRACE_RECORDER) || same_text(p->format, PL_TRACE_RECORDER));
}

/* The same pid and tid of the same rank are one resource. */
static void share_tracks(struct builder *b, uint32_t seg, uint32_t other)
{
	const struct pl_segment *s = &b->t->seg[seg]->seg, *p = &b->t->seg[other]->seg;

	for (uint32_t i = 0; i < s->n_tracks; i++) {
		for (uint32_t k = 0; k < p->n_tracks; k++) {
			const struct pl_track *x = &s->track[i], *y = &p->track[k];

			if (b->seg[other].track_res[k] != PL_NONE && x->rank == y->rank &&
			    x->type == y->type &&
			    !strcmp(pl_intern_get(&s->str, x->pid),
				    pl_intern_get(&p->str, y->pid)) &&
			    !strcmp(pl_intern_get(&s->str, x->tid), pl_intern_get(&p->str, y->tid)))
				b->seg[seg].track_res[i] = b->seg[other].track_res[k];
		}
	}
}

void pl_derive_gather(struct builder *b)
{
	size_t events = 0;
	int rc;

	for (uint32_t seg = 0; seg < b->t->n_segs; seg++)
		events += b->t->seg[seg]->n;
	/* the estimated size, to avoid copies while the arrays grow */
	PL_TRY(pl_grow(&b->node, &b->cap_nodes, 2 * events + 2, sizeof(*b->node), b->err));
	PL_TRY(pl_grow(&b->edge, &b->cap_edges, 2 * events, sizeof(*b->edge), b->err));
	memset(b->node, 0, 2 * sizeof(*b->node)); /* see pl_derive_node() */
	for (uint32_t seg = 0; seg < b->t->n_segs && !b->err->code; seg++) {
		b->has_memory |= b->t->seg[seg]->alloc != NULL;
		prepare_segment(b, seg);
		if (b->err->code)
			break;
		for (uint32_t i = 0; i < seg; i++)
			if (may_share(&b->t->seg[seg]->seg, &b->t->seg[i]->seg, i + 1 == seg))
				share_tracks(b, seg, i);
		count_ops(b, seg);
	}
	if (b->g->n_links && b->g->link[0].to == PL_NONE) /* there is no second rank */
		b->g->n_links = 0;
	for (size_t i = 0; i < b->g->n_res; i++)
		sort_ops(&b->resource[i]);
out:;
}
