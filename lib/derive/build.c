/*
 * Makes a graph from a merged trace. The first comment of each part explains its inference:
 * steps.c (steps and their order), host.c (host threads), device.c (streams, launches), waits.c
 * (event waits, synchronisation), queue.c (full launch queues), table.c (operation tables), comm.c
 * (rendezvous), latency.c, cut.c (steps and shapes), tensors.c (gradients),
 * memory.c (recorded allocations).
 *
 * The dependency kinds follow Lumos (MLSys 2025, section 4: host program order, launch, stream
 * order, inter-stream and synchronisation edges). The collective as a rendezvous, with separate
 * wait and transfer, follows Maya and the straggler analysis of ByteDance (OSDI 2025: transfer =
 * end - max start).
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "derive/describe.h"
#include "derive/internal.h"

#define TRIM_BYTES (64u << 20) /* freed memory goes back to the system in pieces of this size */

int pl_derive_room(void *array, size_t n, size_t size, struct pl_err *err)
{
	void *p = n > SIZE_MAX / size ? NULL : pl_malloc(n * size);

	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
	memcpy(array, &p, sizeof(p));
	return 0;
}

struct each {
	struct gb *b;
	int (*fn)(struct gb *b, uint32_t i, struct pl_err *err);
	uint32_t i;
	int rc;
	struct pl_err err;
};

static void run_each(void *arg)
{
	struct each *e = arg;

	e->rc = e->fn(e->b, e->i, &e->err);
}

int pl_derive_each(struct gb *b, uint32_t n, int (*fn)(struct gb *, uint32_t, struct pl_err *),
		   struct pl_err *err)
{
	struct pl_queue *q = NULL;
	struct each *job;
	int rc = pl_alloc(&job, n, sizeof(*job), err);

	if (rc < 0)
		return rc;
	q = pl_queue_new(b->o->pool, (int)pl_min_size(n, INT_MAX), err);
	rc = q ? 0 : err->code;
	for (uint32_t i = 0; q && i < n; i++) {
		job[i] = (struct each){ .b = b, .fn = fn, .i = i };
		pl_queue_put(q, run_each, &job[i]);
	}
	while (q && pl_queue_get(q))
		;
	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		rc = job[i].rc;
		if (rc < 0)
			*err = job[i].err;
	}
	pl_queue_free(q);
	pl_free(job);
	return rc;
}

int pl_derive_node(struct gb *b, const struct node *n, uint32_t *id, struct pl_err *err)
{
	int rc;

	if (b->n_nodes >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than %u nodes", PL_NONE - 1);
	rc = pl_grow(&b->node, &b->cap_nodes, b->n_nodes + 1, sizeof(*b->node), err);
	if (rc < 0)
		return rc;
	b->node[b->n_nodes] = *n;
	b->node[b->n_nodes].flags &= (uint8_t)~NODE_OWN;
	if (n->role == PL_RO_ARRIVE && n->res != PL_NONE)
		b->ri[n->res].comm = true;
	*id = (uint32_t)b->n_nodes++;
	return 0;
}

int pl_derive_edge(struct gb *b, uint32_t src, uint32_t dst, unsigned type, struct pl_err *err)
{
	int rc;

	if (src == PL_NONE || dst == PL_NONE || src == dst)
		return 0;
	if (type == PL_E_SEQ && src + 1 == dst) {
		b->node[dst].flags |= NODE_FOLLOWS;
		return 0;
	}
	rc = pl_grow(&b->edge, &b->cap_edges, b->n_edges + 1, sizeof(*b->edge), err);
	if (rc < 0)
		return rc;
	b->edge[b->n_edges++] = (struct edge){ src, dst, (uint8_t)type };
	if (PL_E_TYPE(type) == PL_E_WAIT)
		b->node[dst].flags |= NODE_WAITS;
	return 0;
}

int pl_derive_str(struct gb *b, uint32_t seg, pl_id id, pl_id *out, struct pl_err *err)
{
	const struct pl_intern *s = &b->t->seg[seg]->seg.str;
	int rc = 0;

	if (id >= s->n) {
		*out = PL_NONE;
		return 0;
	}
	if (b->seg[seg].str[id] == PL_NONE)
		rc = pl_intern_add(&b->g->str, s->str[id], s->len[id], &b->seg[seg].str[id], err);
	*out = b->seg[seg].str[id];
	return rc;
}

static bool same_attr(const struct attr *x, const struct attr *y)
{
#define SAME(member, ...) &&x->member == y->member
	return true PL_NODE_OPTIONAL_COLUMNS(SAME);
}

int pl_derive_attr(struct gb *b, const struct attr *a, uint32_t *id, struct pl_err *err)
{
	int rc;

	*id = 0;
	if (same_attr(a, &b->attr[0]))
		return 0;
	if (!same_attr(a, &b->attr[b->n_attrs - 1])) {
		rc = pl_grow(&b->attr, &b->cap_attrs, b->n_attrs + 1, sizeof(*b->attr), err);
		if (rc < 0)
			return rc;
		b->attr[b->n_attrs++] = *a;
	}
	*id = (uint32_t)b->n_attrs - 1;
	return 0;
}

int pl_derive_set_layer(struct gb *b, uint32_t first, uint32_t last, int32_t layer,
			struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = first; first != PL_NONE && i <= last && rc == 0; i++) {
		struct attr a = b->attr[b->node[i].attr];

		a.layer = layer;
		rc = pl_derive_attr(b, &a, &b->node[i].attr, err);
	}
	return rc;
}

int pl_derive_add_context(struct gb *b, struct node *n, uint8_t phase, pl_id module, uint32_t work,
			  struct pl_err *err)
{
	struct attr a;

	b->has |= (phase ? PL_HAS_phase : 0u) | (work != PL_NONE ? PL_HAS_work : 0u);
	if (!n->phase)
		n->phase = phase & 15u;
	if (work != PL_NONE && pl_derive_may_work(n) && n->work == PL_NONE)
		n->work = work;
	if (module == PL_NONE || b->attr[n->attr].module != PL_NONE)
		return 0;
	a = b->attr[n->attr];
	a.module = module;
	return pl_derive_attr(b, &a, &n->attr, err);
}

int pl_derive_set_context(struct gb *b, uint32_t first, uint32_t last, uint8_t phase, pl_id module,
			  uint32_t work, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = first; first != PL_NONE && i <= last && rc == 0; i++)
		rc = pl_derive_add_context(b, &b->node[i], phase, module, work, err);
	return rc;
}

static int32_t small(const int64_t *col, uint32_t ev)
{
	return !col || col[ev] < -1 || col[ev] > INT32_MAX ? -1 : (int32_t)col[ev];
}

int pl_derive_node_of(struct gb *b, const struct op *op, uint32_t res, bool bytes, struct node *n,
		      struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[op->seg];
	int rc;

	*n = (struct node){
		.start = op->start,
		.dur = op->end - op->start,
		.type = PL_N_OP,
		.kind = e->kind[op->ev],
		.res = res,
		.step = -1,
	};
	if ((bytes && e->bytes) || e->mb || e->chunk || e->layer || e->peer) {
		struct attr a = GB_NO_ATTR;

		a.mb = small(e->mb, op->ev);
		a.chunk = small(e->chunk, op->ev);
		a.layer = small(e->layer, op->ev);
		a.peer = small(e->peer, op->ev);
		if (bytes && e->bytes && e->bytes[op->ev] != INT64_MIN)
			a.bytes = e->bytes[op->ev];
		if ((rc = pl_derive_attr(b, &a, &n->attr, err)) < 0)
			return rc;
	}
	return pl_derive_str(b, op->seg, e->name[op->ev], &n->name, err);
}

/* ---- gathering
 * ------------------------------------------------------------------------------------- */

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
static int fill_segment(struct gb *b, uint32_t seg, struct pl_err *err)
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
static void order_ops(struct gb *b, const struct rankinfo *rk)
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

static int gather(struct gb *b, struct pl_err *err)
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

/* ---- the whole
 * -------------------------------------------------------------------------------------- */

#define FREE(p) (pl_free(p), (p) = NULL)

/* Free the columns of a segment, and what belongs to its strings. */
static void drop_segment(struct gb *b, uint32_t seg)
{
	struct seginfo *x = &b->seg[seg];

	b->freed += b->t->seg[seg]->n * 64; /* about that much */
	pl_trace_drop(b->t, seg);
	FREE(x->str);
	FREE(x->call_type);
	FREE(x->phase_of);
	FREE(x->track_at);
}

static void drop_segments(struct gb *b)
{
	for (uint32_t i = 0; b->seg && i < b->t->n_segs; i++) {
		drop_segment(b, i);
		pl_free(b->seg[i].track_res);
		pl_free(b->seg[i].clock);
		pl_free(b->seg[i].arrival);
	}
	FREE(b->seg);
}

void pl_derive_drop_ops(struct gb *b, struct resinfo *ri)
{
	b->freed += ri->n * sizeof(*ri->op);
	FREE(ri->op);
	FREE(ri->step);
	FREE(ri->range);
	ri->n = ri->n_ranges = 0;
}

void pl_derive_drop_calls(struct gb *b, struct rankinfo *rk)
{
	b->freed += rk->n_calls * sizeof(*rk->call);
	FREE(rk->call);
	FREE(rk->context);
	FREE(rk->by_call);
	FREE(rk->by_corr);
	FREE(rk->sync);
	FREE(rk->waited);
	rk->n_calls = 0;
}

static void pl_derive_fini(struct gb *b)
{
	drop_segments(b);
	for (size_t i = 0; b->ri && i < b->g->n_res; i++)
		pl_derive_drop_ops(b, &b->ri[i]);
	for (size_t i = 0; i < b->n_ranks; i++) {
		pl_derive_drop_calls(b, &b->rank[i]);
		pl_free(b->rank[i].win);
		pl_free(b->rank[i].res);
	}
	pl_free(b->ri);
	pl_free(b->rank);
	pl_intern_fini(&b->rank_ids);
	pl_intern_fini(&b->link_key);
	pl_derive_names_fini(&b->names);
	pl_intern_fini(&b->work_key);
	pl_intern_fini(&b->work_row);
	pl_free(b->work_of);
	pl_free(b->link);
	pl_free(b->message);
	pl_free(b->step);
	pl_derive_drop_tensors(b);
	pl_derive_drop_memory(b);
	pl_free(b->step_shape);
	pl_free(b->node);
	pl_free(b->edge);
	pl_free(b->attr);
}

static int check_ranks(const struct gb *b, struct pl_err *err)
{
	if (b->n_ranks > 1 && !b->t->merged)
		return pl_fail(
			err, PL_EDATA,
			"the trace has %zu ranks and was not merged; pipe it through merge first",
			b->n_ranks);
	if (!b->g->n_res)
		return pl_fail(
			err, PL_EDATA,
			"the trace has no operations (host operators, kernels, communication)");
	return 0;
}

static int clamp_outliers(struct pl_trace *t, const struct pl_log *log, struct pl_err *err)
{
	uint64_t wild;
	int rc = pl_trace_clamp_outliers(t, &wild, err);

	if (rc >= 0 && wild)
		pl_say(log, PL_LOG_WARN,
		       "%llu events lie years from the rest, or last for years: they get the "
		       "nearest time of the others, and no duration",
		       (unsigned long long)wild);
	return rc;
}

/* Lists of segments: those whose first (or last) rank is this one. */
struct seglist {
	uint32_t *head, *next; /* by rank; by segment; PL_NONE ends a list */
};

static int list_segments(const struct gb *b, bool last, struct seglist *l, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&l->head, b->n_ranks, sizeof(*l->head), err));
	PL_TRY(pl_alloc(&l->next, b->t->n_segs, sizeof(*l->next), err));
	memset(l->head, 0xff, b->n_ranks * sizeof(*l->head));
	for (uint32_t i = b->t->n_segs; i-- > 0;) {
		uint32_t rank = PL_NONE;

		for (uint32_t k = 0; k < b->t->seg[i]->seg.n_tracks; k++) {
			uint32_t res = b->seg[i].track_res[k];
			uint32_t r = res == PL_NONE ? PL_NONE : b->ri[res].rank_index;

			if (r != PL_NONE && (rank == PL_NONE || (last ? r > rank : r < rank)))
				rank = r;
		}
		rank = rank == PL_NONE ? 0 : rank;
		l->next[i] = l->head[rank];
		l->head[rank] = i;
	}
out:
	return rc;
}

/* Does a later part of the builder read the events of this segment? Recorded allocations and
 * messages are looked up there, and so are waits for threads that communicate. */
static bool needed_later(const struct gb *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];
	bool needed = b->has_memory || e->of;

	for (uint32_t i = 0; i < e->seg.n_tracks && !needed; i++) {
		uint32_t res = b->seg[seg].track_res[i];

		needed = res != PL_NONE && b->rank[b->ri[res].rank_index].comm_threads;
	}
	return needed;
}

/* Free what only the rank's own nodes needed: its events and the operations of its threads. */
static void drop_rank(struct gb *b, struct rankinfo *rk, const struct seglist *last)
{
	size_t rank = (size_t)(rk - b->rank);

	if (!rk->n_sync) {
		FREE(rk->context);
		FREE(rk->by_corr);
		rk->n_by_corr = 0;
	}
	for (size_t k = 0; k < rk->n_res && !rk->comm_threads && !b->has_memory; k++)
		if (b->ri[rk->res[k]].thread)
			pl_derive_drop_ops(b, &b->ri[rk->res[k]]);
	for (uint32_t seg = last->head[rank]; seg != PL_NONE; seg = last->next[seg])
		if (!needed_later(b, seg))
			drop_segment(b, seg);
	if (b->freed > TRIM_BYTES) {
		pl_mem_trim();
		b->freed = 0;
	}
}

/* The nodes of each rank, and the edges between them. The events of a rank are freed before the
 * next rank, because a large job has more of them than of nodes. */
static int make_nodes(struct gb *b, struct pl_err *err)
{
	struct seglist first = { NULL, NULL }, last = { NULL, NULL };
	int rc;

	PL_TRY(list_segments(b, false, &first, err));
	PL_TRY(list_segments(b, true, &last, err));
	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rankinfo *rk = &b->rank[r];

		for (uint32_t i = first.head[r]; i != PL_NONE; i = first.next[i])
			PL_TRY(fill_segment(b, i, err));
		order_ops(b, rk);
		PL_TRY(pl_derive_host(b, rk, err));
		PL_TRY(pl_derive_device(b, rk, err));
		PL_TRY(pl_derive_collect_tensors(b, rk, err));
		drop_rank(b, rk, &last);
	}
	pl_mem_trim();
out:
	pl_free(first.head);
	pl_free(first.next);
	pl_free(last.head);
	pl_free(last.next);
	return rc;
}

int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err)
{
	struct gb b = { .t = t, .g = g, .o = o };
	int rc;

	pl_graph_init(g);
	PL_TRY(clamp_outliers(t, o->log, err));
	PL_TRY(pl_alloc(&b.seg, t->n_segs, sizeof(*b.seg), err));
	PL_TRY(pl_grow(&b.attr, &b.cap_attrs, 1, sizeof(*b.attr), err));
	b.attr[b.n_attrs++] = GB_NO_ATTR;
	PL_TRY(gather(&b, err));
	PL_TRY(check_ranks(&b, err));
	PL_TRY(pl_derive_steps(&b, err));
	PL_TRY(pl_intern_add(&g->str, "host gap", 8, &b.s_gap, err));
	PL_TRY(pl_intern_add(&g->str, "step begin", 10, &b.s_begin, err));
	PL_TRY(pl_intern_add(&g->str, "step end", 8, &b.s_end, err));
	PL_TRY(pl_intern_add(&g->str, "rendezvous", 10, &b.s_rendezvous, err));
	PL_TRY(pl_derive_ranges(&b, err));
	PL_TRY(make_nodes(&b, err));
	PL_TRY(pl_derive_tables(&b, err));
	PL_TRY(pl_derive_comm(&b, err));
	PL_TRY(pl_derive_threads(&b, err));
	PL_TRY(pl_derive_waits(&b, err));
	PL_TRY(pl_derive_link_latency(&b, err));
	PL_TRY(pl_derive_find_tensors(&b, err));
	PL_TRY(pl_derive_find_memory(&b, err));
	drop_segments(&b);
	PL_TRY(pl_derive_cut(&b, err));
	rc = 0;
out:
	pl_derive_fini(&b);
	pl_mem_trim();
	if (rc == 0)
		rc = pl_derive_describe(g, err);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
