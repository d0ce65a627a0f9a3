/*
 * Makes a graph from a merged trace. The first comment of each part explains its inference:
 * gather.c (operations), steps.c (steps and their order), host.c (host threads), device.c (streams,
 * launches), waits.c (event waits, synchronisation), queue.c (full launch queues), table.c
 * (operation tables), comm.c (rendezvous), latency.c, cut.c (steps and shapes), tensors.c
 * (gradients), memory.c (recorded allocations).
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

/* ---- the whole
 * -------------------------------------------------------------------------------------- */

void pl_derive_freed(struct gb *b, size_t bytes)
{
	b->freed += bytes;
	if (b->freed < TRIM_BYTES)
		return;
	pl_mem_trim();
	b->freed = 0;
}

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
	pl_intern_fini(&b->work.event);
	pl_intern_fini(&b->work.text);
	pl_free(b->work.of_event);
	pl_free(b->work.of_text);
	pl_buf_fini(&b->work.key);
	pl_derive_work_fini(&b->work.rows);
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
	pl_derive_freed(b, 0);
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
			PL_TRY(pl_derive_fill_segment(b, i, err));
		pl_derive_order_ops(b, rk);
		PL_TRY(pl_derive_host(b, rk, err));
		PL_TRY(pl_derive_device(b, rk, err));
		PL_TRY(pl_derive_collect_tensors(b, rk, err));
		drop_rank(b, rk, &last);
	}
	pl_derive_freed(b, 0);
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
	PL_TRY(pl_derive_gather(&b, err));
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
	pl_derive_freed(&b, 2 * b.n_nodes * sizeof(uint32_t));
	if (rc == 0)
		rc = pl_derive_describe(g, err);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
