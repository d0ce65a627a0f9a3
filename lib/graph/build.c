/*
 * From a merged trace to a graph: the frame. What each part infers and how is said at its top:
 * host.c (host threads), device.c (streams, launches), waits.c (event waits, synchronisation),
 * table.c (operation tables), comm.c (rendezvous), latency.c, cut.c (steps and shapes), tensors.c
 * (gradients).
 *
 * The dependency kinds follow Lumos (MLSys 2025, section 4: host program order, launch, stream
 * order, inter-stream and synchronisation edges), the collective as a rendezvous with the transfer
 * apart from the wait follows Maya and the straggler analysis of ByteDance (OSDI 2025: transfer =
 * end - max start).
 */
#include <stdlib.h>
#include <string.h>

#include "graph/internal.h"

const char *const pl_graph_args[] = { "stream",
				      "wait_on_stream",
				      "wait_on_cuda_event_record_corr_id",
				      "Record function id",
				      "$Input Dims",
				      "$Input type",
				      NULL };

int gb_node(struct gb *b, const struct node *n, uint32_t *id, struct pl_err *err)
{
	int rc;

	if (b->n_nodes >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than %u nodes", PL_NONE - 1);
	rc = pl_grow(&b->node, &b->cap_nodes, b->n_nodes + 1, sizeof(*b->node), err);
	if (rc < 0)
		return rc;
	b->node[b->n_nodes] = *n;
	*id = (uint32_t)b->n_nodes++;
	return 0;
}

int gb_edge(struct gb *b, uint32_t src, uint32_t dst, unsigned type, struct pl_err *err)
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

int gb_str(struct gb *b, uint32_t seg, pl_id id, pl_id *out, struct pl_err *err)
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

static int32_t small(const int64_t *col, uint32_t ev)
{
	return !col || col[ev] < -1 || col[ev] > INT32_MAX ? -1 : (int32_t)col[ev];
}

int gb_node_of(struct gb *b, const struct op *op, uint32_t res, struct node *n, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[op->seg];

	*n = (struct node){
		.start = op->start,
		.dur = op->end - op->start,
		.bytes = e->bytes && e->bytes[op->ev] != INT64_MIN ? e->bytes[op->ev] : -1,
		.type = PL_N_OP,
		.kind = e->kind[op->ev],
		.res = res,
		.group = PL_NONE,
		.step = -1,
		.mb = small(e->mb, op->ev),
		.chunk = small(e->chunk, op->ev),
		.layer = small(e->layer, op->ev),
		.peer = small(e->peer, op->ev),
	};
	return gb_str(b, op->seg, e->name[op->ev], &n->name, err);
}

/* ---- time
 * ------------------------------------------------------------------------------------------ */

static pl_ns aligned(const struct pl_clock *c, pl_ns t, int64_t base)
{
	double drift;

	t = pl_add_sat(t, base);
	if (!c)
		return t;
	drift = c->drift_ppm * 1e-6 * (double)pl_sub_sat(t, c->ref_ns);
	return pl_sub_sat(
		t, pl_add_sat(c->offset_ns, (int64_t)(drift < 0 ? drift - 0.5 : drift + 0.5)));
}

static const struct pl_clock *find_clock(const struct pl_merge *m, uint32_t seg, int32_t rank)
{
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment == seg && m->use[i].rank == rank &&
		    m->use[i].clock < m->n_clocks)
			return &m->clock[m->use[i].clock];
	return NULL;
}

/* ---- gathering
 * ------------------------------------------------------------------------------------- */

static int rank_index(struct gb *b, int32_t rank, uint32_t *index, struct pl_err *err)
{
	int rc;

	for (size_t i = 0; i < b->n_ranks; i++) {
		if (b->rank[i].rank == rank) {
			*index = (uint32_t)i;
			return 0;
		}
	}
	rc = pl_grow(&b->rank, &b->cap_ranks, b->n_ranks + 1, sizeof(*b->rank), err);
	if (rc < 0)
		return rc;
	memset(&b->rank[b->n_ranks], 0, sizeof(*b->rank));
	b->rank[b->n_ranks].rank = rank;
	*index = (uint32_t)b->n_ranks++;
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
		snprintf(text, sizeof(text), "%s %s", pl_track_type_name(t->type),
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
	    (t->host != PL_NONE && (rc = gb_str(b, seg, t->host, &r->host, err)) < 0))
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
		.stream = e->arg[0] && e->arg[0][ev] != INT64_MIN ? e->arg[0][ev] : -1,
		.on_stream = e->arg[1] && e->arg[1][ev] != INT64_MIN ? e->arg[1][ev] : -1,
		.record_corr = e->arg[2] && e->arg[2][ev] != INT64_MIN ? e->arg[2][ev] : -1,
		.wait = strstr(name, "Wait") != NULL,
		.device_wide = strstr(name, "Context") || strstr(name, "Device"),
	};
	return 0;
}

static int add_event(struct gb *b, uint32_t seg, uint32_t ev, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	pl_id track = e->track[ev];
	const struct pl_track *t = &e->seg.track[track];
	struct resinfo *ri;
	int64_t base = e->seg.base_ns;
	int rc;

	if (e->kind[ev] == PL_K_SYNC)
		return add_sync(b, e, ev, t->rank, err);
	if (!wanted(e->kind[ev]) || e->dur[ev] < 0)
		return 0;
	if (b->track_res[seg][track] == PL_NONE && (rc = add_resource(b, seg, track, err)) < 0)
		return rc;
	ri = &b->ri[b->track_res[seg][track]];
	rc = pl_grow(&ri->op, &ri->cap, ri->n + 1, sizeof(*ri->op), err);
	if (rc < 0)
		return rc;
	ri->op[ri->n++] = (struct op){
		.seg = seg,
		.ev = ev,
		.start = aligned(b->clock[seg][track], e->ts[ev], base),
		.end = aligned(b->clock[seg][track], pl_add_sat(e->ts[ev], e->dur[ev]), base),
		.node = PL_NONE,
		.last = PL_NONE,
		.call = PL_NONE,
	};
	return 0;
}

/* Outer before inner, the input's order for the rest: a total order. */
static int by_start(const void *pa, const void *pb)
{
	const struct op *a = pa, *c = pb;

	if (a->start != c->start)
		return a->start < c->start ? -1 : 1;
	if (a->end != c->end)
		return a->end > c->end ? -1 : 1;
	if (a->seg != c->seg)
		return a->seg < c->seg ? -1 : 1;
	return a->ev < c->ev ? -1 : a->ev > c->ev;
}

/* Most input is in order. */
static void sort_ops(struct resinfo *ri)
{
	for (uint32_t i = 1; i < ri->n; i++) {
		if (by_start(&ri->op[i - 1], &ri->op[i]) > 0) {
			pl_sort(ri->op, ri->n, sizeof(*ri->op), by_start);
			return;
		}
	}
}

/* Calls that begin in the same tick do not nest: their correlation tells their order. */
static void order_calls(const struct gb *b, struct resinfo *ri)
{
	for (uint32_t i = 1; i < ri->n; i++) {
		struct op op = ri->op[i];
		const struct pl_events *e = b->t->seg[op.seg];
		uint32_t k = i;

		if (ri->op[i - 1].start != op.start || e->kind[op.ev] != PL_K_RUNTIME || !e->corr)
			continue;
		for (; k && ri->op[k - 1].start == op.start && ri->op[k - 1].seg == op.seg; k--)
			if (e->kind[ri->op[k - 1].ev] != PL_K_RUNTIME ||
			    e->corr[ri->op[k - 1].ev] <= e->corr[op.ev])
				break;
		memmove(&ri->op[k + 1], &ri->op[k], (i - k) * sizeof(op));
		ri->op[k] = op;
	}
}

static int prepare_segment(struct gb *b, uint32_t seg, struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[seg];
	uint32_t nt = e->seg.n_tracks;
	int rc;

	if ((rc = pl_alloc(&b->str[seg], e->seg.str.n + 1, sizeof(pl_id), err)) < 0 ||
	    (rc = pl_alloc(&b->call_type[seg], e->seg.str.n + 1, 1, err)) < 0 ||
	    (rc = pl_alloc(&b->track_res[seg], nt + 1, sizeof(uint32_t), err)) < 0 ||
	    (rc = pl_alloc(&b->clock[seg], nt + 1, sizeof(void *), err)) < 0 ||
	    (rc = pl_alloc(&b->ev_node[seg], e->n + 1, sizeof(uint32_t), err)) < 0)
		return rc;
	memset(b->str[seg], 0xff, e->seg.str.n * sizeof(pl_id));
	memset(b->track_res[seg], 0xff, nt * sizeof(uint32_t));
	memset(b->ev_node[seg], 0xff, e->n * sizeof(uint32_t));
	for (uint32_t i = 0; i < nt; i++)
		b->clock[seg][i] = find_clock(&b->t->merge, seg, e->seg.track[i].rank);
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
	/* about what it takes: no copying while they grow */
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
		for (uint32_t ev = 0; ev < e->n; ev++)
			if ((rc = add_event(b, seg, ev, err)) < 0)
				return rc;
	}
	for (size_t i = 0; i < b->g->n_res; i++) {
		sort_ops(&b->ri[i]);
		if (b->ri[i].thread)
			order_calls(b, &b->ri[i]);
	}
	return 0;
}

/* ---- steps
 * ------------------------------------------------------------------------------------------ */

static int by_window(const void *pa, const void *pb)
{
	const struct window *a = pa, *c = pb;

	return a->start < c->start ? -1 : a->start > c->start;
}

static int by_number(const void *pa, const void *pb)
{
	int64_t a = *(const int64_t *)pa, c = *(const int64_t *)pb;

	return a < c ? -1 : a > c;
}

static int add_window(struct gb *b, const struct resinfo *ri, const struct op *op,
		      struct pl_err *err)
{
	const struct pl_events *e = b->t->seg[op->seg];
	struct rankinfo *rk = &b->rank[ri->rank_index];
	int64_t number = e->step ? e->step[op->ev] : INT64_MIN;
	int rc;

	if (number == INT64_MIN)
		number = (int64_t)rk->n_win;
	for (size_t i = 0; i < rk->n_win; i++) { /* two threads may both carry the annotation */
		if (rk->win[i].number == number) {
			rk->win[i].start = pl_min_i64(rk->win[i].start, op->start);
			rk->win[i].end = pl_max_i64(rk->win[i].end, op->end);
			return 0;
		}
	}
	if ((rc = pl_grow(&rk->win, &rk->cap_win, rk->n_win + 1, sizeof(*rk->win), err)) < 0 ||
	    (rc = pl_grow(&b->step, &b->cap_steps, b->n_steps + 1, sizeof(*b->step), err)) < 0)
		return rc;
	rk->win[rk->n_win++] = (struct window){ number, op->start, op->end, 0 };
	b->step[b->n_steps++] = number;
	return 0;
}

static int find_steps(struct gb *b, struct pl_err *err)
{
	size_t n = 0;
	int rc;

	for (size_t r = 0; r < b->g->n_res; r++)
		for (uint32_t i = 0; i < b->ri[r].n; i++)
			if (b->t->seg[b->ri[r].op[i].seg]->kind[b->ri[r].op[i].ev] == PL_K_STEP &&
			    (rc = add_window(b, &b->ri[r], &b->ri[r].op[i], err)) < 0)
				return rc;
	if (!b->n_steps) {
		b->g->stepless = true;
		rc = pl_grow(&b->step, &b->cap_steps, 1, sizeof(*b->step), err);
		if (rc < 0)
			return rc;
		b->step[b->n_steps++] = 0;
		return 0;
	}
	pl_sort(b->step, b->n_steps, sizeof(*b->step), by_number);
	for (size_t i = 0; i < b->n_steps; i++)
		if (!n || b->step[n - 1] != b->step[i])
			b->step[n++] = b->step[i];
	b->n_steps = n;
	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rankinfo *rk = &b->rank[r];

		pl_sort(rk->win, rk->n_win, sizeof(*rk->win), by_window);
		for (size_t i = 0; i < rk->n_win; i++) {
			int64_t *at = bsearch(&rk->win[i].number, b->step, n, sizeof(*b->step),
					      by_number);

			rk->win[i].step = (int32_t)(at - b->step);
		}
	}
	return 0;
}

/* ---- the whole
 * -------------------------------------------------------------------------------------- */

static void gb_fini(struct gb *b)
{
	for (uint32_t i = 0; i < b->t->n_segs; i++) {
		pl_free(b->str ? b->str[i] : NULL);
		pl_free(b->call_type ? b->call_type[i] : NULL);
		pl_free(b->track_res ? b->track_res[i] : NULL);
		pl_free(b->clock ? b->clock[i] : NULL);
		pl_free(b->ev_node ? b->ev_node[i] : NULL);
	}
	for (size_t i = 0; b->ri && i < b->g->n_res; i++)
		pl_free(b->ri[i].op);
	for (size_t i = 0; i < b->n_ranks; i++) {
		pl_free(b->rank[i].win);
		pl_free(b->rank[i].res);
		pl_free(b->rank[i].call);
		pl_free(b->rank[i].by_call);
		pl_free(b->rank[i].by_corr);
		pl_free(b->rank[i].sync);
	}
	pl_free(b->str);
	pl_free(b->call_type);
	pl_free(b->track_res);
	pl_free(b->clock);
	pl_free(b->ev_node);
	pl_free(b->ri);
	pl_free(b->rank);
	pl_free(b->step);
	pl_free(b->local);
	pl_free(b->step_shape);
	pl_free(b->node);
	pl_free(b->edge);
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

int pl_graph_build(const struct pl_trace *t, const struct pl_graph_opts *o, struct pl_graph *g,
		   struct pl_err *err)
{
	struct gb b = { .t = t, .g = g, .o = o };
	size_t n = t->n_segs ? t->n_segs : 1;
	int rc;

	pl_graph_init(g);
	PL_TRY(pl_alloc(&b.str, n, sizeof(*b.str), err));
	PL_TRY(pl_alloc(&b.call_type, n, sizeof(*b.call_type), err));
	PL_TRY(pl_alloc(&b.track_res, n, sizeof(*b.track_res), err));
	PL_TRY(pl_alloc(&b.clock, n, sizeof(*b.clock), err));
	PL_TRY(pl_alloc(&b.ev_node, n, sizeof(*b.ev_node), err));
	PL_TRY(gather(&b, err));
	PL_TRY(check_ranks(&b, err));
	PL_TRY(find_steps(&b, err));
	PL_TRY(pl_intern_add(&g->str, "host gap", 8, &b.s_gap, err));
	PL_TRY(pl_intern_add(&g->str, "step begin", 10, &b.s_begin, err));
	PL_TRY(pl_intern_add(&g->str, "step end", 8, &b.s_end, err));
	PL_TRY(pl_intern_add(&g->str, "rendezvous", 10, &b.s_rendezvous, err));
	PL_TRY(gb_host(&b, err));
	PL_TRY(gb_device(&b, err));
	PL_TRY(gb_tables(&b, err));
	PL_TRY(gb_comm(&b, err));
	PL_TRY(gb_threads(&b, err));
	PL_TRY(gb_waits(&b, err));
	PL_TRY(gb_latency(&b, err));
	PL_TRY(gb_cut(&b, err));
	PL_TRY(gb_tensors(&b, err));
	rc = 0;
out:
	gb_fini(&b);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
