/*
 * Launches that wait for room. Each trace is made by a small model of a thread, a stream and a
 * queue whose depth is known.
 */
#include <stdlib.h>

#include "derive/derive.h"
#include "tap.h"

#define MAX_EV	400
#define US	1000
#define CALL_US 5

static struct pl_trace trace;
static struct pl_graph graph;
static pl_id thread, stream, second;
static struct {
	int64_t call, start, end;
	int64_t left; /* its place */
} launch[MAX_EV];

static void *need(size_t n, size_t size)
{
	void *p = pl_calloc(n, size);

	if (!p)
		abort();
	return p;
}

static pl_id string(const char *s)
{
	struct pl_err err = { 0 };
	pl_id id;

	if (pl_intern_add(&trace.seg[0]->seg.str, s, strlen(s), &id, &err) < 0)
		abort();
	return id;
}

static pl_id track(unsigned type, int64_t number, const char *tid)
{
	struct pl_err err = { 0 };
	struct pl_track t;
	pl_id id;

	pl_trace_track_init(&t);
	t.type = (uint8_t)type;
	t.rank = 0;
	t.stream = number;
	t.pid = string("0");
	t.tid = string(tid);
	if (pl_trace_segment_track(&trace.seg[0]->seg, &t, &id, &err) < 0)
		abort();
	return id;
}

static void begin_trace(void)
{
	struct pl_events *e = need(1, sizeof(*e));
	struct pl_err err = { 0 };

	memset(&trace, 0, sizeof(trace));
	trace.seg = need(1, sizeof(*trace.seg));
	if (pl_trace_segment_init(&e->seg, &err) < 0)
		abort();
	e->kind = need(MAX_EV, 1);
	e->track = need(MAX_EV, sizeof(*e->track));
	e->name = need(MAX_EV, sizeof(*e->name));
	e->ts = need(MAX_EV, sizeof(*e->ts));
	e->dur = need(MAX_EV, sizeof(*e->dur));
	e->step = need(MAX_EV, sizeof(*e->step));
	e->corr = need(MAX_EV, sizeof(*e->corr));
	trace.seg[0] = e;
	trace.n_segs = 1;
	thread = track(PL_T_THREAD, -1, "1");
	stream = track(PL_T_STREAM, 7, "7");
	second = track(PL_T_STREAM, 9, "9");
}

static uint32_t ev(unsigned kind, pl_id on, const char *name, int64_t start, int64_t end,
		   int64_t corr)
{
	struct pl_events *e = trace.seg[0];
	uint32_t i = (uint32_t)e->n++;

	if (i >= MAX_EV)
		abort();
	e->kind[i] = (uint8_t)kind;
	e->track[i] = on;
	e->name[i] = string(name);
	e->ts[i] = start * US;
	e->dur[i] = (end - start) * US;
	e->step[i] = INT64_MIN;
	e->corr[i] = corr;
	return i;
}

static void end_step(int i, int per_step, int64_t *begun, int64_t *now)
{
	if ((i + 1) % per_step != 0)
		return;
	++*now;
	trace.seg[0]->step[ev(PL_K_STEP, thread, "step", *begun, *now, INT64_MIN)] = i / per_step;
	*begun = *now;
}

/*
 * n launches of operations of `op_us`, in steps of `per_step` (0: none); the host does something
 * else for `host_us` before each. depth 0: no queue; launches whose number `slow` divides take
 * `slow_us` for a reason of their own.
 */
static void job(int n, int depth, int per_step, int op_us, int host_us, int slow, int slow_us)
{
	int64_t now = 0, free = 0, begun = 0;

	begin_trace();
	for (int i = 0; i < n; i++) {
		int64_t begin = now += host_us;

		if (depth && i >= depth && launch[i - depth].start > now)
			now = launch[i - depth].start;
		now += slow && i % slow == 0 ? slow_us : CALL_US;
		launch[i].call = begin;
		launch[i].start = now + 4 > free + 1 ? now + 4 : free + 1;
		launch[i].end = free = launch[i].start + op_us + i % 7;
		ev(PL_K_RUNTIME, thread, "cudaLaunchKernel", begin, now, i + 1);
		ev(PL_K_KERNEL, stream, "k", launch[i].start, launch[i].end, i + 1);
		launch[i].left = launch[i].start;
		if (per_step)
			end_step(i, per_step, &begun, &now);
	}
}

/* A ring of places for two streams, about every third launch on the second, which is never behind.
 */
static void ring_job(int n, int depth, int per_step)
{
	int64_t now = 0, free[2] = { 0 }, begun = 0;

	begin_trace();
	for (int i = 0; i < n; i++) {
		int on = ((uint32_t)i * 2654435761u >> 24) % 3 == 0;
		int64_t begin = now += 3;

		if (i >= depth && launch[i - depth].left > now)
			now = launch[i - depth].left;
		now += CALL_US;
		launch[i].start = now + 4 + (on ? i * 5 % 31 : 0);
		if (launch[i].start <= free[on])
			launch[i].start = free[on] + 1;
		launch[i].end = free[on] = launch[i].start + (on ? 10 : 100) + i % 7;
		launch[i].left = launch[i].start;
		if (i && launch[i - 1].left > launch[i].left)
			launch[i].left = launch[i - 1].left;
		ev(PL_K_RUNTIME, thread, "cudaLaunchKernel", begin, now, i + 1);
		ev(PL_K_KERNEL, on ? second : stream, "k", launch[i].start, launch[i].end, i + 1);
		end_step(i, per_step, &begun, &now);
	}
}

static bool build(bool infer)
{
	struct pl_derive_opts o = { .infer = infer };
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
}

/* When the predecessor lets go, by an inferred edge; INT64_MIN: another kind of edge. */
static pl_ns room(const struct pl_gstep *st, const struct pl_shape *s, uint32_t e)
{
	uint32_t src = s->src[e];

	if (s->etype[e] == (PL_E_START | PL_E_INFERRED))
		return st->start[src];
	if (s->etype[e] == (PL_E_WAIT | PL_E_INFERRED))
		return st->start[src] + st->dur[src];
	return INT64_MIN;
}

/* Launches whose call begins when the operation `depth` before it began, and waits for that. */
static int waiting(int depth, bool *right)
{
	int count = 0, at = 0;

	*right = true;
	for (size_t k = 0; k < graph.n_steps; k++) {
		const struct pl_gstep *st = &graph.step[k];
		const struct pl_shape *s = &graph.shape[st->shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
			pl_ns t = INT64_MIN;

			if (s->role[i] != PL_RO_HOST ||
			    strcmp(pl_intern_get(&graph.str, s->name[i]), "cudaLaunchKernel") != 0)
				continue;
			for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
				if (room(st, s, e) != INT64_MIN)
					t = room(st, s, e);
			if (t != INT64_MIN) {
				pl_ns from = launch[at - depth].left * US - graph.epoch_ns;

				count++;
				*right &= t == from && st->start[i] >= from &&
					  st->dur[i] <= CALL_US * US;
			}
			at++;
		}
	}
	return count;
}

static void check_queue(int depth, int n, const char *what)
{
	bool right;

	ok(build(true), "%s: built", what);
	ok(waiting(depth, &right) == n - depth, "%s: all launches behind the first wait", what);
	ok(right, "%s: each for the operation one depth before, and takes its usual time", what);
}

static void queue_of(int depth, int n, int per_step, const char *what)
{
	job(n, depth, per_step, 100, 3, 0, 0);
	check_queue(depth, n, what);
	ok(graph.inferred_waits == n - depth, "%s: and they are counted", what);
	ok(graph.dropped_edges == 0, "%s: none is lost between steps", what);
	end_trace();
}

static void no_queue(const char *what)
{
	ok(build(true), "%s: built", what);
	ok(graph.inferred_waits == 0, "%s: no waits", what);
	end_trace();
}

/* ---- the limits: a case on either side, so that twice or half the value fails ---------------- */

/* What the launches of a queue of DEPTH look like; times are nanoseconds. */
struct steady {
	int n;		/* launches */
	int64_t usual;	/* length of an unblocked call */
	int64_t length; /* of a blocked call */
	int64_t late;	/* from the start that frees a slot to the end of the call */
	int burst;	/* launches, one after another, that find room where none should be */
};

#define DEPTH 4

static void steady_job(const struct steady *x)
{
	const int64_t host = 3000, period = x->length + host;
	int64_t end = 0;

	begin_trace();
	for (int i = 0; i < x->n; i++) {
		struct pl_events *e = trace.seg[0];
		int64_t start = 1000000 + i * period, begin = end + host;
		bool early = i >= 30 && i < 30 + x->burst;
		uint32_t k;

		end = early ? begin + x->usual : start - DEPTH * period + x->late;
		if (i < DEPTH)
			begin = end - x->usual;
		k = ev(PL_K_RUNTIME, thread, "cudaLaunchKernel", 0, 0, i + 1);
		e->ts[k] = begin;
		e->dur[k] = end - begin;
		k = ev(PL_K_KERNEL, stream, "k", 0, 0, i + 1);
		e->ts[k] = start;
		e->dur[k] = period - 1000;
	}
}

static void is_found(const char *what, bool found)
{
	ok(build(true), "%s: built", what);
	ok((graph.inferred_waits > 0) == found, "%s: %s queue", what, found ? "a" : "no");
	end_trace();
}

static void steady(const char *what, struct steady x, bool found)
{
	steady_job(&x);
	is_found(what, found);
}

/* A queue of 4; of each `cycle` calls, two are long for a reason of their own on an idle device. */
static void disturbed(const char *what, int cycle, bool found)
{
	int64_t now = 0, free = 0;

	begin_trace();
	for (int i = 0; i < 100; i++) {
		bool own = i >= 20 && i % cycle < 2;
		int64_t begin, start;

		now = own && free > now ? free : now;
		begin = now += 3;
		if (i >= DEPTH && launch[i - DEPTH].start > now)
			now = launch[i - DEPTH].start;
		now += own ? 30 : CALL_US;
		start = launch[i].start = now + 4 > free + 1 ? now + 4 : free + 1;
		free = start + (own ? 2 : 100);
		ev(PL_K_RUNTIME, thread, "cudaLaunchKernel", begin, now, i + 1);
		ev(PL_K_KERNEL, stream, "k", start, free, i + 1);
	}
	is_found(what, found);
}

static void limits(void)
{
	/* a call is long from 4 x 5 + 5 us */
	steady("LONG_TIMES, LONG_MORE_NS: 27 us are long",
	       (struct steady){ 60, 5000, 27000, 4000, 0 }, true);
	steady("LONG_TIMES, LONG_MORE_NS: 24 us are not",
	       (struct steady){ 60, 5000, 24000, 4000, 0 }, false);
	/* a slot is free at most 4 x 0.1 + 2 us before the end */
	steady("TOL_NS: 2 us behind the free slot", (struct steady){ 60, 100, 20000, 2000, 0 },
	       true);
	steady("TOL_NS: 3 us are too late", (struct steady){ 60, 100, 20000, 3000, 0 }, false);
	steady("MIN_LONG: 10 long calls", (struct steady){ 10 + DEPTH, 5000, 60000, 4000, 0 },
	       true);
	steady("MIN_LONG: 6 are too few", (struct steady){ 6 + DEPTH, 5000, 60000, 4000, 0 },
	       false);
	/* the depth may be exceeded by one, and by more in 1 of 100 launches */
	steady("HARDLY_EVER: 1 of 196 launches sees more",
	       (struct steady){ 200, 5000, 60000, 4000, 2 }, true);
	steady("HARDLY_EVER: 3 of 196 do", (struct steady){ 200, 5000, 60000, 4000, 4 }, false);
	job(130, 12, 1, 100, 3, 0, 0);
	is_found("MAX_AGE: a queue over 12 steps", true);
	job(130, 24, 1, 100, 3, 0, 0);
	is_found("MAX_AGE: over 24 steps", false);
	disturbed("NEARLY_ALL: 7 of 8 long calls wait for a slot", 20, true);
	disturbed("NEARLY_ALL: 2 of 3 long calls", 10, false);
}

/*
 * A queue of 16 for three streams on which the device works in turn: every fourth launch is on the
 * first of them, the others are on one of two by chance. Some launches are long for a reason of
 * their own. On the first stream alone, a queue of 4 explains all of the few launches.
 */
static void for_some_streams(void)
{
	int64_t now = 0, free = 0;
	const int depth = 16;
	uint32_t chance = 1;
	pl_id third;
	bool right;
	int waits;

	begin_trace();
	third = track(PL_T_STREAM, 11, "11");
	for (int i = 0; i < 190; i++) {
		bool own = i % 60 == 23;
		int64_t begin, start;
		pl_id on;

		chance = chance * 1664525u + 1013904223u;
		on = i % 4 == 0 ? stream : chance >> 30 & 1 ? second : third;
		now = own && free > now ? free : now;
		begin = now += 3;
		if (i >= depth && launch[i - depth].start > now)
			now = launch[i - depth].start;
		now += own ? 30 : CALL_US;
		start = launch[i].start = now + 4 > free + 1 ? now + 4 : free + 1;
		launch[i].left = start;
		free = start + 100;
		ev(PL_K_RUNTIME, thread, "cudaLaunchKernel", begin, now, i + 1);
		ev(PL_K_KERNEL, on, "k", start, free, i + 1);
	}
	ok(build(true), "a queue for three streams: built");
	waits = waiting(depth, &right);
	ok(waits > 150, "... for all of them, not for one alone (%d waits)", waits);
	end_trace();
}

int main(void)
{
	limits();
	for_some_streams();
	queue_of(4, 60, 0, "queue of 4");
	queue_of(4, 60, 6, "queue of 4, steps of 6");
	queue_of(16, 120, 6, "queue of 16 over three steps");
	ring_job(150, 12, 6);
	check_queue(12, 150, "ring of 12 for two streams");
	end_trace();
	job(60, 4, 6, 100, 3, 0, 0);
	ok(build(false), "without inference: built");
	ok(graph.inferred_waits == 0, "without inference: no waits");
	end_trace();
	job(120, 0, 6, 10, 3, 3, 100);
	no_queue("long calls, nothing in flight");
	job(120, 0, 6, 100, 3, 5, 90);
	no_queue("long calls, ever more in flight");
	job(120, 1, 6, 100, 3, 0, 0);
	no_queue("calls that wait for the one before");
	job(60, 50, 6, 100, 3, 0, 0);
	no_queue("too few launches to tell");
	return done_testing();
}
