/*
 * Pictures: events in rows, in order. From a run a pass over its nodes, where the style of a node
 * is found once for its shape; from a trace a pass over the events of each segment. Events are
 * counted into their rows and then sorted row by row, which is a pass where they come in order. 40
 * bytes an event, twice while they are put in order.
 */
#include "report/picture.h"
#include "trace/hold.h"

#define ROUNDING_NS 1000 /* shorter unexplained times come from recorded microseconds */

#define LOOK(name, ...) { __VA_ARGS__ },
const struct pl_picture_class_look pl_picture_classes[PL_PICTURE_CLASSES_] = { PL_PICTURE_CLASSES(
	LOOK) };

void pl_picture_fini(struct pl_picture *p)
{
	pl_intern_fini(&p->str);
	pl_intern_fini(&p->styles);
	pl_free(p->style);
	pl_free(p->event);
	pl_free(p->row);
	pl_free(p->step);
	pl_free(p->path);
	pl_free(p->memory);
	pl_free(p->mark);
	pl_free(p->runs);
	*p = (struct pl_picture){ 0 };
}

static int add_style(struct pl_picture *p, uint8_t class, const char *name, const char *module,
		     uint32_t *style, struct pl_err *err)
{
	struct pl_picture_style x = { .class = class, .module = PL_NONE };
	uint32_t key[3];
	pl_id id;

	PL_CHECK(pl_intern_add(&p->str, name, strlen(name), &x.name, err));
	if (module)
		PL_CHECK(pl_intern_add(&p->str, module, strlen(module), &x.module, err));
	memcpy(key, (const uint32_t[]){ x.name, x.module, class }, sizeof(key));
	PL_CHECK(pl_intern_add(&p->styles, (const char *)key, sizeof(key), &id, err));
	*style = id;
	return id < p->n_styles
		       ? 0
		       : pl_append(&p->style, &p->n_styles, &p->cap_styles, &x, sizeof(x), err);
}

static int add_event(struct pl_picture *p, uint32_t row, uint32_t style, pl_ns start, pl_ns dur,
		     struct pl_err *err)
{
	struct pl_picture_event e = { start, dur, row, style, PL_NONE, -1, -1 };

	if (dur <= 0)
		return 0;
	p->row[row].n++;
	return pl_append(&p->event, &p->n_events, &p->cap_events, &e, sizeof(e), err);
}

static int add_row(struct pl_picture *p, int32_t rank, uint8_t type, const char *name,
		   struct pl_err *err)
{
	struct pl_picture_row x = { .rank = rank, .type = type };

	PL_CHECK(pl_intern_add(&p->str, name, strlen(name), &x.name, err));
	return pl_append(&p->row, &p->n_rows, &p->cap_rows, &x, sizeof(x), err);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int by_start(const void *pa, const void *pb)
{
	const struct pl_picture_event *a = pa, *b = pb;

	return a->start != b->start ? PL_COMPARE(a->start, b->start)
				    : PL_COMPARE_FIELDS(b, a, dur, style);
}

struct place { /* of a row: by rank, threads first, the one with most events before the others */
	int32_t rank;
	uint32_t after, row;
};
PL_COMPARATOR(by_rank, struct place, rank, after, row);

/* The rows with events, by rank; number[row]: its new one, PL_NONE: it has no events. */
static int order_rows(struct pl_picture *p, uint32_t *number, struct pl_err *err)
{
	struct pl_picture_row *old = p->row;
	struct place *place;
	size_t n = p->n_rows, first = 0;
	int rc = 0;

	PL_CHECK(pl_alloc(&place, n + 1, sizeof(*place), err));
	for (size_t i = 0; i < n; i++)
		place[i] = (struct place){ old[i].rank,
					   old[i].type == PL_T_THREAD
						   ? UINT32_MAX - 1 - (uint32_t)old[i].n
						   : UINT32_MAX,
					   (uint32_t)i };
	pl_sort(place, n, sizeof(*place), by_rank);
	p->row = NULL;
	p->n_rows = p->cap_rows = 0;
	for (size_t i = 0; i < n && rc >= 0; i++) {
		struct pl_picture_row x = old[place[i].row];

		number[place[i].row] = x.n ? (uint32_t)p->n_rows : PL_NONE;
		x.first = first;
		first += x.n;
		if (x.n)
			rc = pl_append(&p->row, &p->n_rows, &p->cap_rows, &x, sizeof(x), err);
	}
	pl_free(place);
	pl_free(old);
	return rc;
}

static bool is_busy(uint8_t class)
{
	return class != PL_PICTURE_RANGE && class != PL_PICTURE_WAIT && class != PL_PICTURE_GAP &&
	       class != PL_PICTURE_UNEXPLAINED;
}

static void sort_rows(struct pl_picture *p)
{
	for (size_t i = 0; i < p->n_rows; i++) {
		struct pl_picture_row *row = &p->row[i];
		struct pl_picture_event *e = p->event + row->first;

		pl_sort(e, row->n, sizeof(*e), by_start);
		for (size_t k = 0; k < row->n; k++) {
			p->span = pl_max_i64(p->span, pl_add_sat(e[k].start, e[k].dur));
			if (is_busy(p->style[e[k].style].class))
				row->busy = pl_add_sat(row->busy, e[k].dur);
		}
	}
}

/* Rows in order, events by row and time, all times from the first one. */
static int order(struct pl_picture *p, struct pl_err *err)
{
	struct pl_picture_event *e = NULL;
	uint32_t *number = NULL;
	size_t *at = NULL;
	int rc;

	PL_TRY(pl_alloc(&number, p->n_rows + 1, sizeof(*number), err));
	PL_TRY(order_rows(p, number, err));
	PL_TRY(pl_alloc(&at, p->n_rows + 1, sizeof(*at), err));
	PL_TRY(pl_alloc(&e, p->n_events + 1, sizeof(*e), err));
	p->origin = INT64_MAX;
	for (size_t i = 0; i < p->n_rows; i++)
		at[i] = p->row[i].first;
	for (size_t i = 0; i < p->n_events; i++)
		p->origin = pl_min_i64(p->origin, p->event[i].start);
	for (size_t i = 0; i < p->n_steps; i++)
		p->origin = pl_min_i64(p->origin, p->step[i].start);
	if (p->origin == INT64_MAX)
		p->origin = 0;
	for (size_t i = 0; i < p->n_events; i++) {
		struct pl_picture_event x = p->event[i];

		x.row = number[x.row];
		x.start = pl_sub_sat(x.start, p->origin);
		e[at[x.row]++] = x;
	}
	pl_free(p->event);
	p->event = e;
	p->cap_events = p->n_events + 1;
	e = NULL;
	for (size_t i = 0; i < p->n_path; i++) {
		p->path[i].row = p->path[i].row == PL_NONE ? PL_NONE : number[p->path[i].row];
		p->path[i].start -= p->origin;
	}
	for (size_t i = 0; i < p->n_steps; i++) {
		p->step[i].start -= p->origin;
		p->step[i].end -= p->origin;
		p->span = pl_max_i64(p->span, p->step[i].end);
	}
	for (size_t i = 0; i < p->n_memory; i++)
		p->memory[i].at -= p->origin;
	sort_rows(p);
out:
	pl_free(e);
	pl_free(at);
	pl_free(number);
	return rc;
}

/* ---- of a run -------------------------------------------------------------------------------- */

struct from_run {
	struct pl_picture *p;
	const struct pl_graph *g;
	const struct pl_sim *s;
	const struct pl_run *r;
	uint32_t **style; /* [shape][node]; NULL: not met yet */
	uint32_t **wait;  /* the same, of the wait before a communication; PL_NONE */
	uint32_t unexplained;
	size_t before; /* nodes of the steps before */
};

static uint8_t class_of_node(const struct pl_shape *sh, uint32_t i)
{
	static const uint8_t of_role[PL_RO_COUNT_] = {
		[PL_RO_NONE] = PL_PICTURE_HOST,	    [PL_RO_COMPUTE] = PL_PICTURE_COMPUTE,
		[PL_RO_HOST] = PL_PICTURE_HOST,	    [PL_RO_GAP] = PL_PICTURE_GAP,
		[PL_RO_COPY] = PL_PICTURE_COPY,	    [PL_RO_ARRIVE] = PL_PICTURE_WAIT,
		[PL_RO_TRANSFER] = PL_PICTURE_COMM, [PL_RO_SYNC] = PL_PICTURE_HOST,
		[PL_RO_MARK] = PL_PICTURE_RANGE,
	};
	unsigned phase = sh->phase ? sh->phase[i] : PL_PH_UNKNOWN;

	if (sh->role[i] == PL_RO_GAP && phase == PL_PH_INPUT)
		return PL_PICTURE_INPUT;
	if (sh->role[i] != PL_RO_COMPUTE && sh->role[i] != PL_RO_HOST)
		return sh->role[i] < PL_RO_COUNT_ ? of_role[sh->role[i]] : PL_PICTURE_HOST;
	if (phase == PL_PH_INPUT)
		return PL_PICTURE_INPUT;
	if (sh->role[i] == PL_RO_HOST)
		return PL_PICTURE_HOST;
	switch (phase) {
	case PL_PH_FORWARD:
		return PL_PICTURE_FORWARD;
	case PL_PH_BACKWARD:
	case PL_PH_INPUT_GRAD:
	case PL_PH_WEIGHT_GRAD:
	case PL_PH_RECOMPUTATION:
		return PL_PICTURE_BACKWARD;
	case PL_PH_OPTIMIZER:
		return PL_PICTURE_OPTIMIZER;
	default:
		return PL_PICTURE_COMPUTE;
	}
}

static bool is_drawn(const struct from_run *x, const struct pl_shape *sh, uint32_t i)
{
	return sh->res[i] != PL_NONE && sh->role[i] != PL_RO_MARK &&
	       !pl_graph_hands_on(x->g, sh->res[i]);
}

static int find_styles(struct from_run *x, uint32_t shape, struct pl_err *err)
{
	const struct pl_shape *sh = &x->g->shape[shape];
	const struct pl_intern *str = &x->g->str;
	uint32_t *style, *wait;

	PL_CHECK(pl_alloc(&x->style[shape], sh->n_nodes + (size_t)1, sizeof(*style), err));
	PL_CHECK(pl_alloc(&x->wait[shape], sh->n_nodes + (size_t)1, sizeof(*wait), err));
	style = x->style[shape];
	wait = x->wait[shape];
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		pl_id module = sh->module ? sh->module[i] : PL_NONE;
		const char *name = pl_intern_get(str, sh->name[i]);

		if (!is_drawn(x, sh, i))
			continue;
		PL_CHECK(add_style(x->p, class_of_node(sh, i), name,
				   module == PL_NONE ? NULL : pl_intern_get(str, module), &style[i],
				   err));
		if (sh->role[i] == PL_RO_TRANSFER)
			PL_CHECK(add_style(x->p, PL_PICTURE_WAIT, name, NULL, &wait[i], err));
	}
	return 0;
}

static int add_node(struct from_run *x, size_t k, const struct pl_shape *sh, uint32_t i,
		    struct pl_err *err)
{
	uint32_t shape = x->g->step[k].shape, arrival = PL_NONE;
	pl_ns start = x->r->start[k][i], late = pl_sim_unexplained(x->s, k, i);
	size_t n = x->p->n_events;

	if (late >= ROUNDING_NS && sh->role[i] != PL_RO_TRANSFER)
		PL_CHECK(add_event(x->p, sh->res[i], x->unexplained, start - late, late, err));
	if (sh->role[i] == PL_RO_TRANSFER)
		arrival = pl_node_arrival(sh, i);
	if (arrival != PL_NONE)
		PL_CHECK(add_event(x->p, sh->res[i], x->wait[shape][i], x->r->start[k][arrival],
				   start - x->r->start[k][arrival], err));
	n = x->p->n_events;
	PL_CHECK(add_event(x->p, sh->res[i], x->style[shape][i], start,
			   pl_sim_run_dur(x->s, x->r, k, i), err));
	if (x->p->n_events == n)
		return 0;
	if (x->before + i < PL_NONE)
		x->p->event[n].node = (uint32_t)(x->before + i);
	x->p->event[n].mb = sh->mb ? sh->mb[i] : -1;
	if (sh->role[i] == PL_RO_TRANSFER || sh->role[i] == PL_RO_COPY)
		x->p->event[n].bytes = sh->bytes ? sh->bytes[i] : -1;
	return 0;
}

static int add_steps(struct from_run *x, struct pl_err *err)
{
	struct pl_picture *p = x->p;

	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_shape *sh = &x->g->shape[x->g->step[k].shape];
		struct pl_picture_step st = { x->g->step[k].number, x->r->step_start[k],
					      x->r->step_end[k] };

		if (pl_sim_reported(x->s, k))
			PL_CHECK(pl_append(&p->step, &p->n_steps, &p->cap_steps, &st, sizeof(st),
					   err));
		if (!x->style[x->g->step[k].shape])
			PL_CHECK(find_styles(x, x->g->step[k].shape, err));
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (is_drawn(x, sh, i))
				PL_CHECK(add_node(x, k, sh, i, err));
		x->before += sh->n_nodes;
	}
	return 0;
}

static int add_path(struct from_run *x, const struct pl_path *path, struct pl_err *err)
{
	struct pl_picture *p = x->p;

	for (size_t i = 0; path && i < path->n; i++) {
		const struct pl_path_item *it = &path->item[i];
		const struct pl_shape *sh = &x->g->shape[x->g->step[it->step].shape];
		struct pl_picture_path q = { sh->res[it->node], it->part, it->start, it->ns };

		PL_CHECK(pl_append(&p->path, &p->n_path, &p->cap_path, &q, sizeof(q), err));
	}
	return 0;
}

int pl_picture_of_run(struct pl_picture *p, const struct pl_graph *g, const struct pl_sim *s,
		      const struct pl_run *r, const struct pl_path *path, struct pl_err *err)
{
	struct from_run x = { p, g, s, r, NULL, NULL, 0, 0 };
	int rc;

	PL_TRY(pl_alloc(&x.style, g->n_shapes + 1, sizeof(*x.style), err));
	PL_TRY(pl_alloc(&x.wait, g->n_shapes + 1, sizeof(*x.wait), err));
	for (size_t i = 0; i < g->n_res; i++)
		PL_TRY(add_row(p, g->res[i].rank, g->res[i].track_type,
			       pl_intern_get(&g->str, g->res[i].name), err));
	PL_TRY(add_style(p, PL_PICTURE_UNEXPLAINED, "unexplained", NULL, &x.unexplained, err));
	PL_TRY(add_steps(&x, err));
	PL_TRY(add_path(&x, path, err));
	rc = order(p, err);
out:
	for (size_t i = 0; i < g->n_shapes && x.style && x.wait; i++) {
		pl_free(x.style[i]);
		pl_free(x.wait[i]);
	}
	pl_free(x.style);
	pl_free(x.wait);
	return rc;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* selected[number of a node, through all steps] */
static int select_nodes(const struct pl_graph *g, const struct pl_selector *keys,
			uint8_t **selected, size_t *n, struct pl_err *err)
{
	struct pl_graph_select select;
	size_t at = 0;
	int rc;

	for (size_t k = *n = 0; k < g->n_steps; k++)
		*n += g->shape[g->step[k].shape].n_nodes;
	PL_CHECK(pl_graph_select_init(&select, keys, g, NULL, err));
	rc = pl_alloc(selected, *n + 1, 1, err);
	for (size_t k = 0; k < g->n_steps && rc >= 0; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];
		bool in = pl_graph_select_step(&select, g->step[k].number);

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && in; i++)
			(*selected)[at + i] = (uint8_t)pl_graph_selects(&select, sh, i);
		at += sh->n_nodes;
	}
	pl_graph_select_fini(&select);
	return rc;
}

int pl_picture_mark(struct pl_picture *p, const struct pl_graph *g, const char *change,
		    const struct pl_selector *keys, struct pl_err *err)
{
	struct pl_picture_mark m = { .first = p->n_runs };
	uint8_t *selected = NULL;
	uint32_t run = 0;
	bool is = false;
	size_t n;
	int rc;

	PL_TRY(pl_intern_add(&p->str, change, strlen(change), &m.change, err));
	for (size_t i = 0; i < p->n_marks; i++)
		if (p->mark[i].change == m.change)
			goto out;
	PL_TRY(select_nodes(g, keys, &selected, &n, err));
	for (size_t i = 0; i < p->n_events; i++, run++) {
		uint32_t node = p->event[i].node;
		bool now = node < n && selected[node];

		if (now == is)
			continue;
		PL_TRY(pl_append(&p->runs, &p->n_runs, &p->cap_runs, &run, sizeof(run), err));
		run = 0;
		is = now;
	}
	PL_TRY(pl_append(&p->runs, &p->n_runs, &p->cap_runs, &run, sizeof(run), err));
	m.n = p->n_runs - m.first;
	if (m.n > 1)
		rc = pl_append(&p->mark, &p->n_marks, &p->cap_marks, &m, sizeof(m), err);
	else
		p->n_runs = m.first;
out:
	pl_free(selected);
	return rc;
}

/* ---- of a trace ------------------------------------------------------------------------------ */

struct from_trace {
	struct pl_sink sink; /* first */
	struct pl_picture *p;
	struct pl_hold hold;
	struct pl_merge_context merge;
};

/* PL_PICTURE_CLASSES_: not drawn. On a rank without a device host operations are the computation.
 */
static uint8_t class_of_kind(unsigned kind, bool device)
{
	switch (kind) {
	case PL_K_HOST_OP:
	case PL_K_PYTHON:
		return device ? PL_PICTURE_HOST : PL_PICTURE_COMPUTE;
	case PL_K_RUNTIME:
	case PL_K_SYNC:
		return PL_PICTURE_HOST;
	case PL_K_KERNEL:
		return PL_PICTURE_COMPUTE;
	case PL_K_COPY:
	case PL_K_SET:
		return PL_PICTURE_COPY;
	case PL_K_DATA:
		return PL_PICTURE_INPUT;
	case PL_K_COLLECTIVE:
	case PL_K_SEND:
	case PL_K_RECV:
		return PL_PICTURE_COMM;
	case PL_K_STEP:
	case PL_K_ANNOTATION:
		return PL_PICTURE_RANGE;
	case PL_K_WAIT:
		return PL_PICTURE_WAIT;
	default:
		return PL_PICTURE_CLASSES_;
	}
}

static int trace_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct from_trace *x = (struct from_trace *)s;

	(void)seg;
	(void)err;
	pl_trace_merge_context_begin(&x->merge);
	pl_trace_hold_reset(&x->hold);
	return 0;
}

static int trace_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		       struct pl_err *err)
{
	(void)seg;
	return pl_trace_hold_add(&((struct from_trace *)s)->hold, b, NULL, err);
}

static int trace_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	return pl_trace_merge_context_take(&((struct from_trace *)s)->merge, m, err);
}

/* The row of a track; its name is that of the thread, or what the source calls it. */
static int add_track(struct from_trace *x, const struct pl_segment *seg, const struct pl_track *k,
		     struct pl_err *err)
{
	const char *name = pl_intern_get(&seg->str, k->name != PL_NONE ? k->name : k->tid);

	return add_row(x->p, k->rank, k->type, name, err);
}

/* Where tracks have ranks, those of none ("Spans", "Traces") only repeat what others show. */
static int add_batch(struct from_trace *x, const struct pl_segment *seg, const struct pl_batch *b,
		     uint32_t first, bool ranks, bool device, struct pl_err *err)
{
	uint32_t style = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		uint8_t class = class_of_kind(b->kind[i], device);
		const struct pl_clock *c;

		if (class == PL_PICTURE_CLASSES_ || b->dur[i] <= 0 ||
		    b->track[i] >= seg->n_tracks || (ranks && seg->track[b->track[i]].rank < 0))
			continue;
		c = pl_trace_merge_context_clock(&x->merge, seg->track[b->track[i]].rank);
		PL_CHECK(add_style(x->p, class, pl_intern_get(&seg->str, b->name[i]), NULL, &style,
				   err));
		PL_CHECK(add_event(x->p, first + b->track[i], style,
				   pl_trace_clock_apply(c, pl_add_sat(b->ts[i], seg->base_ns)),
				   b->dur[i], err));
	}
	return 0;
}

static int trace_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct from_trace *x = (struct from_trace *)s;
	uint32_t first = (uint32_t)x->p->n_rows;
	bool ranks = false, device = false;
	int rc = 0;

	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		ranks |= seg->track[i].rank >= 0;
		PL_TRY(add_track(x, seg, &seg->track[i], err));
	}
	for (size_t k = 0; k < x->hold.n; k++)
		for (uint32_t i = 0; i < x->hold.b[k].n && !device; i++)
			device = x->hold.b[k].kind[i] == PL_K_KERNEL;
	for (size_t k = 0; k < x->hold.n; k++)
		PL_TRY(add_batch(x, seg, &x->hold.b[k], first, ranks, device, err));
out:
	pl_trace_hold_reset(&x->hold);
	return rc;
}

struct pl_sink *pl_picture_open(struct pl_picture *p, struct pl_err *err)
{
	struct from_trace *x;

	if (pl_alloc(&x, 1, sizeof(*x), err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ trace_begin, trace_batch, trace_end, trace_merge };
	x->p = p;
	x->hold.roles = UINT64_C(1) << 63; /* no role has this number: no column is kept */
	return &x->sink;
}

int pl_picture_close(struct pl_sink *s, struct pl_err *err)
{
	int rc = order(((struct from_trace *)s)->p, err);

	pl_picture_abort(s);
	return rc;
}

void pl_picture_abort(struct pl_sink *s)
{
	struct from_trace *x = (struct from_trace *)s;

	if (!x)
		return;
	pl_trace_hold_fini(&x->hold);
	pl_trace_merge_context_fini(&x->merge);
	pl_free(x);
}
