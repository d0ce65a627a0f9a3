/*
 * Makes a graph from a merged trace. The first comment of each part explains its inference:
 * gather.c (operations), steps.c (steps and their order), host.c (host threads), device.c (streams,
 * launches), loader.c (workers of a loader), waits.c (event waits, synchronisation), service.c
 * (threads that communicate), queue.c (full launch queues), table.c (operation tables), comm.c
 * (rendezvous), sends.c (sends and receives that threads post), unrecorded.c (rendezvous that were
 * not recorded), latency.c, cut.c (steps and shapes), tensors.c (gradients), memory.c (recorded
 * allocations).
 *
 * The dependency kinds follow Lumos (MLSys 2025, section 4: host program order, launch, stream
 * order, inter-stream and synchronisation edges). The collective as a rendezvous, with separate
 * wait and transfer, follows Maya and the straggler analysis of ByteDance (OSDI 2025: transfer =
 * end - max start).
 */
#include <limits.h>

#include "core/pool.h"
#include "derive/describe.h"
#include "derive/internal.h"

#define TRIM_BYTES (64u << 20) /* freed memory goes back to the system in pieces of this size */

int pl_derive_room(void *array, size_t n, size_t size, struct pl_err *err)
{
	void *p = n > SIZE_MAX / size ? NULL : pl_malloc(n * size);

	memcpy(array, &p, sizeof(p));
	return p ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
}

struct each {
	struct builder *b;
	void (*fn)(struct builder *b, uint32_t i, struct pl_err *err);
	uint32_t i;
	struct pl_err err;
};

static void run_each(void *arg)
{
	struct each *e = arg;

	e->fn(e->b, e->i, &e->err);
}

void pl_derive_each(struct builder *b, uint32_t n,
		    void (*fn)(struct builder *, uint32_t, struct pl_err *))
{
	struct pl_queue *q = NULL;
	struct each *job;
	int rc;

	PL_TRY(pl_alloc(&job, n, sizeof(*job), b->err));
	q = pl_queue_new(b->o->pool, (int)pl_min_size(n, INT_MAX), b->err);
	for (uint32_t i = 0; q && i < n; i++) {
		job[i] = (struct each){ .b = b, .fn = fn, .i = i };
		pl_queue_put(q, run_each, &job[i]);
	}
	while (q && pl_queue_get(q))
		;
	for (uint32_t i = 0; i < n && !b->err->code; i++)
		*b->err = job[i].err;
out:
	pl_queue_free(q);
	pl_free(job);
}

uint32_t pl_derive_node(struct builder *b, const struct node *n)
{
	uint32_t id = (uint32_t)b->n_nodes;

	if (b->n_nodes >= PL_NONE - 1)
		pl_fail(b->err, PL_ELIMIT, "more than %u nodes", PL_NONE - 1);
	if (b->n_nodes >= PL_NONE - 1 ||
	    !pl_derive_grow(b->err, &b->node, &b->cap_nodes, b->n_nodes + 1, sizeof(*b->node)))
		id = 0;
	else
		b->n_nodes++;
	b->node[id] = *n;
	b->node[id].follows = 0;
	b->node[id].waits = 0;
	if (n->role == PL_RO_ARRIVE && n->res != PL_NONE)
		b->resource[n->res].comm = true;
	return id;
}

void pl_derive_edge(struct builder *b, uint32_t src, uint32_t dst, unsigned type)
{
	if (src == PL_NONE || dst == PL_NONE || src == dst)
		return;
	if (type == PL_E_SEQ && src + 1 == dst) {
		b->node[dst].follows = 1;
		return;
	}
	PL_DERIVE_ADD(b->err, b->edge, b->n_edges, b->cap_edges,
		      (struct edge){ src, dst, (uint8_t)type });
	if (PL_E_TYPE(type) == PL_E_WAIT)
		b->node[dst].waits = 1;
}

uint32_t pl_derive_resource(struct builder *b, const struct pl_resource *r, uint32_t rank_index)
{
	struct pl_graph *g = b->g;

	if (!pl_derive_grow(b->err, &b->resource, &b->cap_resources, g->n_res + 1,
			    sizeof(*b->resource)) ||
	    !pl_derive_grow(b->err, &g->res, &g->cap_res, g->n_res + 1, sizeof(*g->res)))
		return PL_NONE;
	b->resource[g->n_res] = (struct resource){ .rank_index = rank_index };
	g->res[g->n_res] = *r;
	return (uint32_t)g->n_res++;
}

pl_id pl_derive_str(struct builder *b, uint32_t seg, pl_id id)
{
	const struct pl_intern *s = &b->t->seg[seg]->seg.str;

	if (id >= s->n)
		return PL_NONE;
	if (b->seg[seg].str[id] == PL_NONE)
		b->seg[seg].str[id] = pl_derive_intern(b->err, &b->g->str, s->str[id], s->len[id]);
	return b->seg[seg].str[id];
}

static bool same_attr(const struct attr *x, const struct attr *y)
{
#define SAME(member, ...) &&x->member == y->member
	return true PL_NODE_OPTIONAL_COLUMNS(SAME);
}

uint32_t pl_derive_attr(struct builder *b, const struct attr *a)
{
	if (same_attr(a, &b->attr[0]))
		return 0;
	if (!same_attr(a, &b->attr[b->n_attrs - 1]))
		PL_DERIVE_ADD(b->err, b->attr, b->n_attrs, b->cap_attrs, *a);
	return (uint32_t)b->n_attrs - 1;
}

void pl_derive_set_layer(struct builder *b, uint32_t first, uint32_t last, int32_t layer)
{
	for (uint32_t i = first; first != PL_NONE && i <= last; i++) {
		struct attr a = b->attr[b->node[i].attr];

		a.layer = layer;
		b->node[i].attr = pl_derive_attr(b, &a);
	}
}

void pl_derive_add_context(struct builder *b, struct node *n, uint8_t phase, pl_id module,
			   uint32_t work)
{
	struct attr a;

	b->has |= (phase ? PL_HAS_phase : 0u) | (work != PL_NONE ? PL_HAS_work : 0u);
	if (!n->phase)
		n->phase = phase & 15u;
	if (work != PL_NONE && pl_derive_may_work(n) && n->work == PL_NONE)
		n->work = work;
	if (module == PL_NONE || b->attr[n->attr].module != PL_NONE)
		return;
	a = b->attr[n->attr];
	a.module = module;
	n->attr = pl_derive_attr(b, &a);
}

void pl_derive_add_line(struct builder *b, struct node *n, pl_id line)
{
	struct attr a = b->attr[n->attr];

	if (line == PL_NONE || a.line != PL_NONE)
		return;
	a.line = line;
	n->attr = pl_derive_attr(b, &a);
}

void pl_derive_set_context(struct builder *b, uint32_t first, uint32_t last, uint8_t phase,
			   pl_id module, uint32_t work)
{
	for (uint32_t i = first; first != PL_NONE && i <= last; i++)
		pl_derive_add_context(b, &b->node[i], phase, module, work);
}

static int32_t small(const int64_t *col, uint32_t ev)
{
	return !col || col[ev] < -1 || col[ev] > INT32_MAX ? -1 : (int32_t)col[ev];
}

struct node pl_derive_node_of(struct builder *b, const struct op *op, uint32_t res, bool bytes)
{
	const struct pl_events *e = b->t->seg[op->seg];
	struct node n = {
		.start = op->start,
		.dur = op->end - op->start,
		.type = PL_N_OP,
		.kind = e->kind[op->ev],
		.res = res,
		.name = pl_derive_str(b, op->seg, e->name[op->ev]),
		.step = -1,
	};

	if ((bytes && e->bytes) || e->mb || e->chunk || e->layer || e->peer) {
		struct attr a = NO_ATTRIBUTES;

		a.mb = small(e->mb, op->ev);
		a.chunk = small(e->chunk, op->ev);
		a.layer = small(e->layer, op->ev);
		a.peer = small(e->peer, op->ev);
		if (bytes && e->bytes && e->bytes[op->ev] != INT64_MIN)
			a.bytes = e->bytes[op->ev];
		n.attr = pl_derive_attr(b, &a);
	}
	return n;
}

/* ---- memory that is not needed any more ------------------------------------------------------ */

void pl_derive_freed(struct builder *b, size_t bytes)
{
	b->freed += bytes;
	if (b->freed < TRIM_BYTES)
		return;
	pl_mem_trim();
	b->freed = 0;
}

#define FREE(p) (pl_free(p), (p) = NULL)

/* Free the columns of a segment, and the arrays that have an element for each of its strings. */
static void drop_segment(struct builder *b, uint32_t seg)
{
	struct segment *x = &b->seg[seg];

	b->freed += b->t->seg[seg]->n * 64; /* about that much */
	pl_trace_drop(b->t, seg);
	FREE(x->str);
	FREE(x->call_type);
	FREE(x->phase_of);
	FREE(x->range_of);
	FREE(x->track_at);
}

static void drop_segments(struct builder *b)
{
	for (uint32_t i = 0; b->seg && i < b->t->n_segs; i++) {
		drop_segment(b, i);
		pl_free(b->seg[i].track_res);
		pl_free(b->seg[i].clock);
		pl_free(b->seg[i].arrival);
	}
	FREE(b->seg);
}

void pl_derive_drop_ops(struct builder *b, struct resource *resource)
{
	b->freed += resource->n * sizeof(*resource->op);
	FREE(resource->op);
	FREE(resource->step);
	FREE(resource->range);
	resource->n = resource->n_ranges = 0;
}

void pl_derive_drop_calls(struct builder *b, struct rank *rank)
{
	b->freed += rank->n_calls * sizeof(*rank->call);
	FREE(rank->call);
	FREE(rank->context);
	FREE(rank->by_call);
	FREE(rank->by_corr);
	FREE(rank->sync);
	FREE(rank->waited);
	FREE(rank->inner);
	rank->n_calls = rank->n_inner = 0;
}

static void pl_derive_fini(struct builder *b)
{
	drop_segments(b);
	for (size_t i = 0; b->resource && i < b->g->n_res; i++)
		pl_derive_drop_ops(b, &b->resource[i]);
	for (size_t i = 0; i < b->n_ranks; i++) {
		pl_derive_drop_calls(b, &b->rank[i]);
		pl_free(b->rank[i].win);
		pl_free(b->rank[i].res);
	}
	pl_free(b->resource);
	pl_free(b->rank);
	pl_intern_fini(&b->rank_ids);
	pl_intern_fini(&b->link_key);
	pl_free(b->work.known);
	pl_derive_work_fini(&b->work.rows);
	pl_free(b->link);
	pl_free(b->message);
	pl_free(b->posted);
	pl_free(b->step);
	pl_derive_drop_tensors(b);
	pl_derive_drop_memory(b);
	pl_free(b->step_shape);
	pl_free(b->step_shows);
	pl_free(b->node);
	pl_free(b->edge);
	pl_free(b->attr);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Communication of which nobody recorded how long it took, as in dumps of calls. */
static bool has_open_communication(const struct pl_trace *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		for (uint64_t k = 0; k < t->seg[i]->n; k++)
			if (pl_trace_kind_is_comm(t->seg[i]->kind[k]) && t->seg[i]->dur[k] < 0)
				return true;
	return false;
}

static void check_ranks(const struct builder *b)
{
	if (b->n_ranks > 1 && !b->t->merged)
		pl_fail(b->err, PL_EDATA,
			"the trace has %zu ranks and was not merged; type: merge FILE... | graph",
			b->n_ranks);
	else if (!b->g->n_res && has_open_communication(b->t))
		pl_fail(b->err, PL_EDATA,
			"the trace has communication, but no durations, so it makes no graph; "
			"merge "
			"--report says which ranks lack which communication");
	else if (!b->g->n_res)
		pl_fail(b->err, PL_EDATA,
			"the trace has no operations (host operators, kernels, communication)");
}

static void clamp_outliers(struct builder *b)
{
	uint64_t changed;

	if (pl_trace_clamp_outliers(b->t, &changed, b->err) >= 0 && changed)
		pl_say(b->o->log, PL_LOG_WARN,
		       "%llu events lie years from the rest, or last for years: they get the "
		       "nearest time of the others, and no duration",
		       (unsigned long long)changed);
}

/* Lists the segment with its first and its last rank that have resources in it. A segment without
 * resources belongs to the first rank. */
static void find_ranks(struct builder *b, uint32_t seg)
{
	struct segment *x = &b->seg[seg];
	uint32_t first = PL_NONE, last = 0;

	for (uint32_t k = 0; k < b->t->seg[seg]->seg.n_tracks; k++) {
		uint32_t res = x->track_res[k],
			 r = res == PL_NONE ? PL_NONE : b->resource[res].rank_index;

		first = first < r ? first : r; /* PL_NONE is the largest number */
		last = last > r || r == PL_NONE ? last : r;
	}
	first = first == PL_NONE ? 0 : first;
	for (uint32_t k = 0; k < b->t->seg[seg]->seg.n_tracks; k++)
		if (x->track_res[k] != PL_NONE)
			b->rank[b->resource[x->track_res[k]].rank_index].host = first;
	for (uint32_t r = first; last > first && r <= last; r++)
		b->rank[r].for_others |= b->rank[r].host == first;
	x->next_begun = b->rank[first].begun;
	x->next_ended = b->rank[last].ended;
	b->rank[first].begun = b->rank[last].ended = seg;
}

/* Does a later part of the builder read the events of this segment? Recorded allocations and
 * messages are looked up there, and so are waits for threads that communicate. */
static bool needed_later(const struct builder *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];
	bool needed = b->has_memory || e->of;

	for (uint32_t i = 0; i < e->seg.n_tracks && !needed; i++) {
		uint32_t res = b->seg[seg].track_res[i];

		needed = res != PL_NONE && b->rank[b->resource[res].rank_index].comm_threads;
	}
	return needed;
}

/* Free what only the rank's own nodes needed: its events, the operations of its threads, and the
 * room for more calls. */
static void drop_rank(struct builder *b, struct rank *rank)
{
	struct call *fit = pl_realloc(rank->call, rank->n_calls * sizeof(*fit));

	if (fit) {
		rank->call = fit;
		rank->cap_calls = rank->n_calls;
	}
	if (!rank->n_sync && !rank->for_others) {
		FREE(rank->context);
		FREE(rank->by_corr);
		rank->n_by_corr = 0;
	}
	for (size_t k = 0; k < rank->n_res && !rank->comm_threads && !b->has_memory; k++)
		if (b->resource[rank->res[k]].thread)
			pl_derive_drop_ops(b, &b->resource[rank->res[k]]);
	for (uint32_t seg = rank->ended; seg != PL_NONE; seg = b->seg[seg].next_ended)
		if (!needed_later(b, seg))
			drop_segment(b, seg);
	pl_derive_freed(b, 0);
}

/* The nodes of each rank, and the edges between them. The events of a rank are freed before the
 * next rank, because a large job has more of them than of nodes. */
static void make_nodes(struct builder *b)
{
	static void (*const part[])(struct builder * b, struct rank * rank) = {
		pl_derive_list_ops,	   pl_derive_host,	 pl_derive_device, pl_derive_loader,
		pl_derive_collect_tensors, pl_derive_note_after, drop_rank,
	};

	for (size_t r = 0; r < b->n_ranks; r++)
		b->rank[r].begun = b->rank[r].ended = PL_NONE;
	for (uint32_t i = b->t->n_segs; i-- > 0;)
		find_ranks(b, i);
	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t i = 0; i < PL_LEN(part) && !b->err->code; i++)
			part[i](b, &b->rank[r]);
}

static void begin(struct builder *b)
{
	static const struct attr none = NO_ATTRIBUTES;
	struct pl_intern *str = &b->g->str;
	int rc;

	PL_TRY(pl_alloc(&b->seg, b->t->n_segs, sizeof(*b->seg), b->err));
	PL_DERIVE_ADD(b->err, b->attr, b->n_attrs, b->cap_attrs, none);
	pl_derive_gather(b);
	if (!b->err->code)
		check_ranks(b);
	if (!b->err->code)
		pl_derive_steps(b);
	b->s_gap = pl_derive_intern_text(b->err, str, "host gap");
	b->s_begin = pl_derive_intern_text(b->err, str, "step begin");
	b->s_end = pl_derive_intern_text(b->err, str, "step end");
out:;
}

int pl_derive_graph(struct pl_trace *t, const struct pl_derive_opts *o, struct pl_graph *g,
		    struct pl_err *err)
{
	static void (*const part[])(struct builder * b) = {
		clamp_outliers,
		begin,
		pl_derive_ranges,
		make_nodes,
		pl_derive_settle_recomputation,
		pl_derive_tables,
		pl_derive_comm,
		pl_derive_after,
		pl_derive_threads,
		pl_derive_waits,
		pl_derive_unrecorded,
		pl_derive_link_latency,
		pl_derive_find_tensors,
		pl_derive_find_memory,
		drop_segments,
		pl_derive_cut,
	};
	struct pl_err own = { 0 };
	struct builder b = { .t = t, .g = g, .o = o, .err = err ? err : &own };
	int rc;

	pl_graph_init(g);
	for (size_t i = 0; i < PL_LEN(part) && !b.err->code; i++)
		part[i](&b);
	rc = b.err->code;
	pl_derive_fini(&b);
	pl_derive_freed(&b, 2 * b.n_nodes * sizeof(uint32_t));
	if (rc == 0)
		rc = pl_derive_describe(g, &b.names, b.err);
	pl_derive_names_fini(&b.names);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
