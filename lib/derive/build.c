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
	rc = pl_grow(&b->edge, &b->cap_edges, b->n_edges + 1, sizeof(*b->edge), err);
	if (rc < 0)
		return rc;
	b->edge[b->n_edges++] = (struct edge){ src, dst, (uint8_t)type };
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
	if (b->str[seg][id] == PL_NONE)
		rc = pl_intern_add(&b->g->str, s->str[id], s->len[id], &b->str[seg][id], err);
	*out = b->str[seg][id];
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
		.group = PL_NONE,
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
	b->track_res[seg][track] = (uint32_t)g->n_res++;
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
	const struct pl_clock *clock = b->clock[seg][e->track[ev]];
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

static int sort_one(struct gb *b, uint32_t res, struct pl_err *err)
{
	struct resinfo *ri = &b->ri[res];

	(void)err;
	pl_sort(ri->op, ri->n, sizeof(*ri->op), ri->device ? by_turn : by_start);
	if (ri->thread)
		order_calls(b, ri);
	return 0;
}

static int prepare_segment(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	uint32_t nt = e->seg.n_tracks;
	int rc;

	if ((rc = pl_alloc(&b->str[seg], e->seg.str.n + 1, sizeof(pl_id), err)) < 0 ||
	    (rc = pl_alloc(&b->call_type[seg], e->seg.str.n + 1, 1, err)) < 0 ||
	    (rc = pl_alloc(&b->phase_of[seg], e->seg.str.n + 1, 1, err)) < 0 ||
	    (rc = pl_alloc(&b->track_res[seg], nt + 1, sizeof(uint32_t), err)) < 0 ||
	    (rc = pl_alloc(&b->track_at[seg], nt + 1, sizeof(uint32_t), err)) < 0 ||
	    (rc = pl_alloc(&b->clock[seg], nt + 1, sizeof(void *), err)) < 0 ||
	    (rc = pl_alloc(&b->ev_node[seg], e->n + 1, sizeof(uint32_t), err)) < 0)
		return rc;
	memset(b->str[seg], 0xff, e->seg.str.n * sizeof(pl_id));
	memset(b->track_res[seg], 0xff, nt * sizeof(uint32_t));
	memset(b->ev_node[seg], 0xff, e->n * sizeof(uint32_t));
	for (uint32_t i = 0; i < nt; i++)
		b->clock[seg][i] = pl_trace_merge_clock(&b->t->merge, seg, e->seg.track[i].rank);
	return 0;
}

/* Makes resources for the tracks in the order of first use, with arrays for their operations.
 * track_at becomes the index of the segment's first operation on the resource. */
static int make_room(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	uint32_t *count = b->track_at[seg];
	int rc = 0;

	for (uint32_t ev = 0; rc == 0 && ev < e->n; ev++) {
		if (e->kind[ev] == PL_K_SYNC)
			rc = add_sync(b, e, ev, e->seg.track[e->track[ev]].rank, err);
		if (rc < 0 || !is_op(e, ev))
			continue;
		if (b->track_res[seg][e->track[ev]] == PL_NONE)
			rc = add_resource(b, seg, e->track[ev], err);
		count[e->track[ev]]++;
	}
	for (uint32_t i = 0; rc == 0 && i < e->seg.n_tracks; i++) {
		struct resinfo *ri = count[i] ? &b->ri[b->track_res[seg][i]] : NULL;

		uint32_t more = count[i];

		if (!ri)
			continue;
		if ((size_t)ri->n + more > PL_NONE - 1)
			return pl_fail(err, PL_ELIMIT, "a track has more than %u operations",
				       PL_NONE - 1);
		rc = pl_grow(&ri->op, &ri->cap, (size_t)ri->n + more, sizeof(*ri->op), err);
		count[i] = ri->n;
		ri->n += more;
	}
	return rc;
}

static int fill_segment(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];

	(void)err;
	for (uint32_t ev = 0; ev < e->n; ev++) {
		pl_id track = e->track[ev];

		if (is_op(e, ev))
			add_op(b, seg, ev,
			       &b->ri[b->track_res[seg][track]].op[b->track_at[seg][track]++]);
	}
	return 0;
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
				b->track_res[seg][i] = b->track_res[seg - 1][k];
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
		if (e->n > PL_NONE - 1)
			return pl_fail(err, PL_ELIMIT, "a segment has more than %u events",
				       PL_NONE - 1);
		share_tracks(b, seg);
		if ((rc = make_room(b, seg, err)) < 0)
			return rc;
	}
	if ((rc = pl_derive_each(b, b->t->n_segs, fill_segment, err)) < 0)
		return rc;
	return pl_derive_each(b, (uint32_t)b->g->n_res, sort_one, err);
}

/* ---- the whole
 * -------------------------------------------------------------------------------------- */

void pl_derive_drop_events(struct gb *b)
{
	for (uint32_t i = 0; i < b->t->n_segs; i++) {
		pl_free(b->str ? b->str[i] : NULL);
		pl_free(b->call_type ? b->call_type[i] : NULL);
		pl_free(b->phase_of ? b->phase_of[i] : NULL);
		pl_free(b->track_res ? b->track_res[i] : NULL);
		pl_free(b->track_at ? b->track_at[i] : NULL);
		pl_free(b->clock ? b->clock[i] : NULL);
		pl_free(b->ev_node ? b->ev_node[i] : NULL);
	}
	pl_free(b->str);
	pl_free(b->call_type);
	pl_free(b->phase_of);
	pl_free(b->track_res);
	pl_free(b->track_at);
	pl_free(b->clock);
	pl_free(b->ev_node);
	b->str = NULL;
	b->call_type = NULL;
	b->phase_of = NULL;
	b->track_res = NULL;
	b->track_at = NULL;
	b->clock = NULL;
	b->ev_node = NULL;
}

void pl_derive_drop_ops(struct gb *b)
{
	for (size_t i = 0; b->ri && i < b->g->n_res; i++) {
		pl_free(b->ri[i].op);
		pl_free(b->ri[i].range);
		b->ri[i].op = NULL;
		b->ri[i].range = NULL;
		b->ri[i].n = 0;
	}
	for (size_t i = 0; i < b->n_ranks; i++) {
		struct rankinfo *rk = &b->rank[i];

		pl_free(rk->call);
		pl_free(rk->by_call);
		pl_free(rk->by_corr);
		pl_free(rk->sync);
		pl_free(rk->waited);
		rk->call = NULL;
		rk->by_call = NULL;
		rk->by_corr = NULL;
		rk->sync = NULL;
		rk->waited = NULL;
	}
	pl_free(b->edge);
	b->edge = NULL;
}

static void pl_derive_fini(struct gb *b)
{
	pl_derive_drop_events(b);
	pl_derive_drop_ops(b);
	for (size_t i = 0; i < b->n_ranks; i++) {
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
	pl_free(b->local);
	pl_free(b->node_step);
	pl_free(b->step_shape);
	pl_free(b->node);
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

static int tame(struct pl_trace *t, const struct pl_log *log, struct pl_err *err)
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

int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err)
{
	struct gb b = { .t = t, .g = g, .o = o };
	size_t n = t->n_segs ? t->n_segs : 1;
	int rc;

	pl_graph_init(g);
	PL_TRY(tame(t, o->log, err));
	PL_TRY(pl_alloc(&b.str, n, sizeof(*b.str), err));
	PL_TRY(pl_alloc(&b.call_type, n, sizeof(*b.call_type), err));
	PL_TRY(pl_alloc(&b.phase_of, n, sizeof(*b.phase_of), err));
	PL_TRY(pl_alloc(&b.track_res, n, sizeof(*b.track_res), err));
	PL_TRY(pl_alloc(&b.track_at, n, sizeof(*b.track_at), err));
	PL_TRY(pl_alloc(&b.clock, n, sizeof(*b.clock), err));
	PL_TRY(pl_alloc(&b.ev_node, n, sizeof(*b.ev_node), err));
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
	PL_TRY(pl_derive_host(&b, err));
	PL_TRY(pl_derive_device(&b, err));
	PL_TRY(pl_derive_tables(&b, err));
	PL_TRY(pl_derive_comm(&b, err));
	PL_TRY(pl_derive_threads(&b, err));
	PL_TRY(pl_derive_waits(&b, err));
	PL_TRY(pl_derive_latency(&b, err));
	PL_TRY(pl_derive_find_tensors(&b, err));
	PL_TRY(pl_derive_find_memory(&b, err));
	pl_derive_drop_events(&b);
	pl_trace_drop(t);
	PL_TRY(pl_derive_cut(&b, err));
	PL_TRY(pl_derive_put_tensors(&b, err));
	PL_TRY(pl_derive_put_memory(&b, err));
	PL_TRY(pl_derive_describe(g, err));
	rc = 0;
out:
	pl_derive_fini(&b);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
