/*
 * graph_fixture.h - for the tests of the builder: small traces made by hand, event by event, the
 * graph that comes of one, and questions to it.
 *
 * Times are microseconds. What is said while the graph is built is kept in `said`, one line each.
 */
#ifndef GRAPH_FIXTURE_H
#define GRAPH_FIXTURE_H

#include <stdlib.h>

#include "derive/derive.h"
#include "tap.h"

/* ---- a trace by hand ----------------------------------------------------------------------------
 */

#ifndef MAX_EV
#define MAX_EV 2000 /* events of a segment */
#endif
#define US 1000

static struct pl_trace trace;

static void *need(size_t n, size_t size)
{
	void *p = pl_calloc(n, size);

	if (!p)
		abort();
	return p;
}

static void begin_trace(void)
{
	memset(&trace, 0, sizeof(trace));
	trace.seg = need(8, sizeof(*trace.seg));
	trace.merged = true;
}

static uint32_t segment(void)
{
	struct pl_events *e = need(1, sizeof(*e));
	struct pl_err err = { 0 };

	if (pl_trace_segment_init(&e->seg, &err) < 0)
		abort();
	e->kind = need(MAX_EV, 1);
	e->track = need(MAX_EV, sizeof(*e->track));
	e->name = need(MAX_EV, sizeof(*e->name));
	e->ts = need(MAX_EV, sizeof(*e->ts));
	e->dur = need(MAX_EV, sizeof(*e->dur));
	e->step = need(MAX_EV, sizeof(*e->step));
	e->corr = need(MAX_EV, sizeof(*e->corr));
	trace.seg[trace.n_segs] = e;
	return trace.n_segs++;
}

static pl_id string(uint32_t seg, const char *s)
{
	struct pl_err err = { 0 };
	pl_id id;

	if (pl_intern_add(&trace.seg[seg]->seg.str, s, strlen(s), &id, &err) < 0)
		abort();
	return id;
}

static pl_id track(uint32_t seg, int32_t rank, int64_t stream, const char *tid)
{
	struct pl_err err = { 0 };
	struct pl_track t;
	pl_id id;

	pl_trace_track_init(&t);
	t.type = stream >= 0 ? PL_T_STREAM : PL_T_THREAD;
	t.rank = rank;
	t.stream = stream;
	t.pid = string(seg, stream >= 0 ? "0" : "100");
	t.tid = string(seg, tid);
	if (pl_trace_segment_track(&trace.seg[seg]->seg, &t, &id, &err) < 0)
		abort();
	return id;
}

static uint32_t ev(uint32_t seg, unsigned kind, pl_id on, const char *name, int64_t start_us,
		   int64_t end_us, int64_t corr)
{
	struct pl_events *e = trace.seg[seg];
	uint32_t i = (uint32_t)e->n++;

	if (i >= MAX_EV)
		abort();
	e->kind[i] = (uint8_t)kind;
	e->track[i] = on;
	e->name[i] = string(seg, name);
	e->ts[i] = start_us * US;
	e->dur[i] = (end_us - start_us) * US;
	e->step[i] = INT64_MIN;
	e->corr[i] = corr ? corr : INT64_MIN;
	return i;
}

/* The same with times in nanoseconds. */
static inline uint32_t at(uint32_t seg, unsigned kind, pl_id on, const char *name, int64_t start,
			  int64_t end, int64_t corr)
{
	uint32_t i = ev(seg, kind, on, name, 0, 0, corr);

	trace.seg[seg]->ts[i] = start;
	trace.seg[seg]->dur[i] = end - start;
	return i;
}

/* Sizes and types of the inputs of event e, as JSON. */
static inline void inputs(uint32_t seg, uint32_t e, const char *dims, const char *types)
{
	struct pl_events *x = trace.seg[seg];

	if (!x->dims) {
		x->dims = need(MAX_EV, sizeof(*x->dims));
		x->types = need(MAX_EV, sizeof(*x->types));
		memset(x->dims, 0xff, MAX_EV * sizeof(*x->dims));
		memset(x->types, 0xff, MAX_EV * sizeof(*x->types));
	}
	x->dims[e] = string(seg, dims);
	x->types[e] = string(seg, types);
}

/* Event e, an operation, has the number that PyTorch gives one whose gradient is to be computed. */
static inline void number(uint32_t seg, uint32_t e, int64_t n)
{
	struct pl_events *x = trace.seg[seg];

	if (!x->sequence) {
		x->sequence = need(MAX_EV, sizeof(*x->sequence));
		for (size_t i = 0; i < MAX_EV; i++)
			x->sequence[i] = INT64_MIN;
	}
	x->sequence[e] = n;
}

static inline void step(uint32_t seg, pl_id on, int64_t number, int64_t start_us, int64_t end_us)
{
	trace.seg[seg]->step[ev(seg, PL_K_STEP, on, "ProfilerStep", start_us, end_us, 0)] = number;
}

static inline void match(unsigned flags, const struct pl_member *m, uint32_t n)
{
	struct pl_merge *g = &trace.merge;

	g->match = pl_realloc(g->match, (g->n_matches + 1) * sizeof(*g->match));
	g->member = pl_realloc(g->member, (g->n_members + n) * sizeof(*g->member));
	if (!g->match || !g->member)
		abort();
	g->match[g->n_matches++] = (struct pl_match){ PL_NONE, g->n_members, n, flags };
	memcpy(g->member + g->n_members, m, n * sizeof(*m));
	g->n_members += n;
}

static struct pl_graph graph;
static struct pl_buf said;

static void say(void *arg, enum pl_level level, const char *text)
{
	struct pl_err err = { 0 };

	(void)arg;
	(void)level;
	if (pl_buf_printf(&said, &err, "%s\n", text) < 0)
		abort();
}

static bool build(void)
{
	const struct pl_log log = { .say = say };
	struct pl_derive_opts o = { .infer = true, .log = &log };
	struct pl_err err = { 0 };
	int rc = pl_derive_graph(&trace, &o, &graph, &err);

	if (rc < 0)
		printf("# %s\n", err.msg);
	return rc == 0;
}

static void end_trace(void)
{
	pl_graph_fini(&graph);
	pl_trace_fini(&trace);
	pl_buf_fini(&said);
}

/* ---- questions
 * ------------------------------------------------------------------------------------ */

/* Node of the first step with this name, role and recorded start. */
static inline uint32_t node(const char *name, unsigned role, int64_t start_us)
{
	for (size_t k = 0; k < graph.n_steps; k++) {
		const struct pl_shape *s = &graph.shape[graph.step[k].shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			if (s->role[i] == role &&
			    !strcmp(pl_intern_get(&graph.str, s->name[i]), name) &&
			    graph.step[k].start[i] + graph.epoch_ns == start_us * US)
				return i;
	}
	return PL_NONE;
}

/* Type of the edge from a to b in the first shape, or -1. */
static inline int edge(uint32_t a, uint32_t b)
{
	const struct pl_shape *s = &graph.shape[0];

	if (a == PL_NONE || b == PL_NONE)
		return -2;
	for (uint32_t e = s->off[b]; e < s->off[b + 1]; e++)
		if (s->src[e] == a)
			return s->etype[e];
	return -1;
}

/* Does an edge for a wait lead from a node of the first name to one of the second? */
static inline bool leads(const char *from, const char *to)
{
	const struct pl_shape *s = &graph.shape[0];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			if (PL_E_TYPE(s->etype[e]) == PL_E_WAIT &&
			    !strcmp(pl_intern_get(&graph.str, s->name[i]), to) &&
			    !strcmp(pl_intern_get(&graph.str, s->name[s->src[e]]), from))
				return true;
	return false;
}

#endif
