/*
 * From tracks to resources, and from events to operations.
 *
 * Resources and the operations of steps are known for all ranks at once, because the order of the
 * steps depends on them. The other operations are listed rank by rank.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

static int rank_index(struct gb *b, int32_t rank, uint32_t *index, struct pl_err *err)
{
	int rc;

	if ((rc = pl_grow(&b->rank, &b->cap_ranks, b->n_ranks + 1, sizeof(*b->rank), err)) < 0 ||
	    (rc = pl_intern_add(&b->rank_ids, (const char *)&rank, sizeof(rank), index, err)) < 0)
		return rc;
	if (*index == b->n_ranks)
		b->rank[b->n_ranks++] = (struct rankinfo){ .rank = rank };
	return 0;
}

static int resource_name(struct gb *b, const struct pl_segment *s, const struct pl_track *t,
			 pl_id *id, struct pl_err *err)
{
	char text[256];

	if (t->type == PL_T_STREAM && t->stream >= 0)
		snprintf(text, sizeof(text), "stream %lld", (long long)t->stream);
	else if (t->name != PL_NONE)
		snprintf(text, sizeof(text), "%s", pl_intern_get(&s->str, t->name));
	else
		snprintf(text, sizeof(text), "%s %s", pl_trace_track_type_name(t->type),
			 pl_intern_get(&s->str, t->tid));
	return pl_intern_add(&b->g->str, text, strlen(text), id, err);
}

static int add_resource(struct gb *b, uint32_t seg, uint32_t track, struct pl_err *err)
{
	const struct pl_segment *s = &b->t->seg[seg]->seg;
	const struct pl_track *t = &s->track[track];
	struct pl_graph *g = b->g;
	struct pl_resource *r;
	struct resinfo *ri;
	struct rankinfo *rk;
	uint32_t index;
	int rc;

	if ((rc = rank_index(b, t->rank < 0 ? 0 : t->rank, &index, err)) < 0 ||
	    (rc = pl_grow(&g->res, &g->cap_res, g->n_res + 1, sizeof(*g->res), err)) < 0 ||
	    (rc = pl_grow(&b->ri, &b->cap_ri, g->n_res + 1, sizeof(*b->ri), err)) < 0)
		return rc;
	r = &g->res[g->n_res];
	memset(r, 0, sizeof(*r));
	r->track_type = t->type;
	r->rank = b->rank[index].rank;
	r->device = t->device;
	r->capacity = 1;
	r->host = PL_NONE;
	memcpy(r->coord, t->coord, sizeof(r->coord));
	if ((rc = resource_name(b, s, t, &r->name, err)) < 0 ||
	    (t->host != PL_NONE && (rc = pl_derive_str(b, seg, t->host, &r->host, err)) < 0))
		return rc;
	ri = &b->ri[g->n_res];
	memset(ri, 0, sizeof(*ri));
	ri->device = t->type == PL_T_STREAM || t->type == PL_T_COPY_ENGINE || t->type == PL_T_LINK;
	ri->thread = !ri->device;
	ri->rank_index = index;
	ri->stream = t->stream;
	rk = &b->rank[index];
	rc = pl_grow(&rk->res, &rk->cap_res, rk->n_res + 1, sizeof(*rk->res), err);
	if (rc < 0)
		return rc;
	rk->res[rk->n_res++] = (uint32_t)g->n_res;
	rk->has_device |= ri->device;
	if (ri->device) {
		const char *all = pl_trace_segment_meta_get(s, "all_synchronization");

		rk->all_sync |= all && !strcmp(all, "true");
	}
	b->seg[seg].track_res[track] = (uint32_t)g->n_res++;
	return 0;
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

static int64_t value_of(const int64_t *column, uint32_t ev)
{
	return column && column[ev] != INT64_MIN ? column[ev] : -1;
}

static int add_sync(struct gb *b, const struct pl_events *e, uint32_t ev, int32_t rank,
		    struct pl_err *err)
{
	const char *name = pl_intern_get(&e->seg.str, e->name[ev]);
	struct rankinfo *rk;
	uint32_t index;
	int rc;

	if (!e->corr || e->corr[ev] == INT64_MIN)
		return 0;
	if ((rc = rank_index(b, rank < 0 ? 0 : rank, &index, err)) < 0)
		return rc;
	rk = &b->rank[index];
	rc = pl_grow(&rk->sync, &rk->cap_sync, rk->n_sync + 1, sizeof(*rk->sync), err);
	if (rc < 0)
		return rc;
	rk->sync[rk->n_sync++] = (struct syncrec){
		.corr = e->corr[ev],
		.stream = value_of(e->stream, ev),
		.on_stream = value_of(e->wait_stream, ev),
		.record_corr = value_of(e->wait_corr, ev),
		.wait = strstr(name, "Wait") != NULL,
		.device_wide = strstr(name, "Context") || strstr(name, "Device"),
	};
	return 0;
}

static void add_op(const struct gb *b, uint32_t seg, uint32_t ev, struct op *op)
{
	const struct pl_events *e = b->t->seg[seg];
	const struct pl_clock *clock = b->seg[seg].clock[e->track[ev]];
	pl_ns start = pl_add_sat(e->ts[ev], e->seg.base_ns);

	*op = (struct op){
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
	int order = PL_COMPARE(a->start, c->start);

	if (!order)
		order = PL_COMPARE(c->end, a->end);
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
static void order_calls(const struct gb *b, struct resinfo *ri)
{
	for (uint32_t i = 1; i < ri->n; i++) {
		struct op op = ri->op[i];
		const struct pl_events *e = b->t->seg[op.seg];
		uint32_t k = i;

		if (ri->op[i - 1].start != op.start || op.kind != PL_K_RUNTIME || !e->corr)
			continue;
		for (; k && ri->op[k - 1].start == op.start && ri->op[k - 1].seg == op.seg; k--)
			if (ri->op[k - 1].kind != PL_K_RUNTIME ||
			    e->corr[ri->op[k - 1].ev] <= e->corr[op.ev])
				break;
		memmove(&ri->op[k + 1], &ri->op[k], (i - k) * sizeof(op));
		ri->op[k] = op;
	}
}

static int prepare_segment(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	struct seginfo *x = &b->seg[seg];
	uint32_t nt = e->seg.n_tracks;
	int rc;

	PL_TRY(pl_alloc(&x->str, e->seg.str.n + 1, sizeof(*x->str), err));
	PL_TRY(pl_alloc(&x->call_type, e->seg.str.n + 1, 1, err));
	PL_TRY(pl_alloc(&x->phase_of, e->seg.str.n + 1, 1, err));
	PL_TRY(pl_alloc(&x->track_res, nt + 1, sizeof(*x->track_res), err));
	PL_TRY(pl_alloc(&x->track_at, nt + 1, sizeof(*x->track_at), err));
	PL_TRY(pl_alloc(&x->clock, nt + 1, sizeof(*x->clock), err));
	memset(x->str, 0xff, e->seg.str.n * sizeof(*x->str));
	memset(x->track_res, 0xff, nt * sizeof(*x->track_res));
	for (uint32_t i = 0; i < nt; i++)
		x->clock[i] = pl_trace_merge_clock(&b->t->merge, seg, e->seg.track[i].rank);
out:
	return rc;
}

/* Makes resources for the tracks in the order of first use, and lists their steps. track_at becomes
 * the index of the segment's first operation on the resource. */
static int count_ops(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	uint32_t *count = b->seg[seg].track_at;
	int rc = 0;

	for (uint32_t ev = 0; ev < e->n; ev++) {
		uint32_t track = e->track[ev];
		struct resinfo *ri;

		if (e->kind[ev] == PL_K_SYNC)
			PL_TRY(add_sync(b, e, ev, e->seg.track[track].rank, err));
		if (!is_op(e, ev))
			continue;
		if (b->seg[seg].track_res[track] == PL_NONE)
			PL_TRY(add_resource(b, seg, track, err));
		count[track]++;
		if (e->kind[ev] != PL_K_STEP)
			continue;
		ri = &b->ri[b->seg[seg].track_res[track]];
		PL_TRY(pl_grow(&ri->op, &ri->cap, ri->n + (size_t)1, sizeof(*ri->op), err));
		add_op(b, seg, ev, &ri->op[ri->n++]);
	}
	for (uint32_t i = 0; i < e->seg.n_tracks; i++) {
		struct resinfo *ri = count[i] ? &b->ri[b->seg[seg].track_res[i]] : NULL;
		uint32_t more = count[i];

		if (!ri)
			continue;
		if ((size_t)ri->n_all + more > PL_NONE - 1)
			return pl_fail(err, PL_ELIMIT, "a track has more than %u operations",
				       PL_NONE - 1);
		count[i] = ri->n_all;
		ri->n_all += more;
	}
out:
	return rc;
}

/* All operations of the segment's events. Those of steps keep the ends that steps.c gave them. */
int pl_derive_fill_segment(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	struct seginfo *x = &b->seg[seg];
	int rc = 0;

	for (uint32_t i = 0; i < e->seg.n_tracks; i++) {
		struct resinfo *ri = x->track_res[i] == PL_NONE ? NULL : &b->ri[x->track_res[i]];

		if (!ri || ri->step)
			continue;
		ri->step = ri->op;
		PL_TRY(pl_derive_room(&ri->op, ri->n_all, sizeof(*ri->op), err));
		ri->n = ri->n_all;
	}
	for (uint32_t ev = 0; ev < e->n; ev++) {
		pl_id track = e->track[ev];

		if (is_op(e, ev))
			add_op(b, seg, ev, &b->ri[x->track_res[track]].op[x->track_at[track]++]);
	}
out:
	return rc;
}

static void sort_ops(struct resinfo *ri)
{
	pl_sort(ri->op, ri->n, sizeof(*ri->op), ri->device ? by_turn : by_start);
}

/* The operations of a rank, in order of start. */
void pl_derive_order_ops(struct gb *b, const struct rankinfo *rk)
{
	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];
		const struct op *step = ri->step;

		sort_ops(ri);
		for (uint32_t i = 0; i < ri->n; i++)
			if (ri->op[i].kind == PL_K_STEP)
				ri->op[i].end = step++->end;
		if (ri->thread)
			order_calls(b, ri);
	}
}

/* Files of one rank's several segments (long traces are cut into segments by their strings) share
 * tracks: the same pid and tid of the same rank are one resource. */
static void share_tracks(struct gb *b, uint32_t seg)
{
	const struct pl_segment *s = &b->t->seg[seg]->seg;
	const struct pl_segment *p = seg ? &b->t->seg[seg - 1]->seg : NULL;

	if (!p || !s->source || !p->source || !*s->source || strcmp(s->source, p->source))
		return;
	for (uint32_t i = 0; i < s->n_tracks; i++) {
		for (uint32_t k = 0; k < p->n_tracks; k++) {
			const struct pl_track *x = &s->track[i], *y = &p->track[k];

			if (x->rank == y->rank && x->type == y->type &&
			    !strcmp(pl_intern_get(&s->str, x->pid),
				    pl_intern_get(&p->str, y->pid)) &&
			    !strcmp(pl_intern_get(&s->str, x->tid), pl_intern_get(&p->str, y->tid)))
				b->seg[seg].track_res[i] = b->seg[seg - 1].track_res[k];
		}
	}
}

int pl_derive_gather(struct gb *b, struct pl_err *err)
{
	size_t events = 0;
	int rc;

	for (uint32_t seg = 0; seg < b->t->n_segs; seg++)
		events += b->t->seg[seg]->n;
	/* the estimated size, to avoid copies while the arrays grow */
	if ((rc = pl_grow(&b->node, &b->cap_nodes, 2 * events, sizeof(*b->node), err)) < 0 ||
	    (rc = pl_grow(&b->edge, &b->cap_edges, 2 * events, sizeof(*b->edge), err)) < 0)
		return rc;
	for (uint32_t seg = 0; seg < b->t->n_segs; seg++) {
		const struct pl_events *e = b->t->seg[seg];

		if ((rc = prepare_segment(b, seg, err)) < 0)
			return rc;
		b->has_memory |= e->alloc != NULL;
		share_tracks(b, seg);
		if ((rc = count_ops(b, seg, err)) < 0)
			return rc;
	}
	for (size_t i = 0; i < b->g->n_res; i++)
		sort_ops(&b->ri[i]);
	return 0;
}
