/*
 * The builder: from events to nodes and edges. Each case is a small trace made by hand, of which it
 * is known who waited for whom.
 */
#include <stdlib.h>

#include "graph/graph.h"
#include "tap.h"

/* ---- a trace by hand ----------------------------------------------------------------------------
 */

#define MAX_EV 400
#define US     1000

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

	if (pl_segment_init(&e->seg, &err) < 0)
		abort();
	e->kind = need(MAX_EV, 1);
	e->track = need(MAX_EV, sizeof(*e->track));
	e->name = need(MAX_EV, sizeof(*e->name));
	e->ts = need(MAX_EV, sizeof(*e->ts));
	e->dur = need(MAX_EV, sizeof(*e->dur));
	e->step = need(MAX_EV, sizeof(*e->step));
	e->corr = need(MAX_EV, sizeof(*e->corr));
	e->arg = need(8, sizeof(*e->arg));
	trace.n_args = 4;
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

	pl_track_init(&t);
	t.type = stream >= 0 ? PL_T_STREAM : PL_T_THREAD;
	t.rank = rank;
	t.stream = stream;
	t.pid = string(seg, stream >= 0 ? "0" : "100");
	t.tid = string(seg, tid);
	if (pl_segment_track(&trace.seg[seg]->seg, &t, &id, &err) < 0)
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

static void step(uint32_t seg, pl_id on, int64_t number, int64_t start_us, int64_t end_us)
{
	trace.seg[seg]->step[ev(seg, PL_K_STEP, on, "ProfilerStep", start_us, end_us, 0)] = number;
}

static void match(unsigned flags, const struct pl_member *m, uint32_t n)
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

static bool build(void)
{
	struct pl_graph_opts o = { .infer = true };
	struct pl_err err = { 0 };
	int rc = pl_graph_build(&trace, &o, &graph, &err);

	if (rc < 0)
		printf("# %s\n", err.msg);
	return rc == 0;
}

static void end_trace(void)
{
	pl_graph_fini(&graph);
	pl_trace_fini(&trace);
}

/* ---- questions
 * ------------------------------------------------------------------------------------ */

/* Node of the first step with this name, role and recorded start. */
static uint32_t node(const char *name, unsigned role, int64_t start_us)
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
static int edge(uint32_t a, uint32_t b)
{
	const struct pl_shape *s = &graph.shape[0];

	if (a == PL_NONE || b == PL_NONE)
		return -2;
	for (uint32_t e = s->off[b]; e < s->off[b + 1]; e++)
		if (s->src[e] == a)
			return s->etype[e];
	return -1;
}

/* ---- cases
 * ---------------------------------------------------------------------------------------- */

/* Host order, launches (one returns before its kernel starts, one after), stream order, a sync. */
static void one_rank(void)
{
	uint32_t s, gemm, relu;
	pl_id h, d;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	step(s, h, 5, 0, 1000);
	ev(s, PL_K_HOST_OP, h, "aten::mm", 10, 60, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 20, 30, 1);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 40, 50, 2);
	ev(s, PL_K_RUNTIME, h, "cudaStreamSynchronize", 70, 420, 3);
	ev(s, PL_K_KERNEL, d, "gemm", 26, 300, 1);
	ev(s, PL_K_KERNEL, d, "relu", 302, 400, 2);
	if (!ok(build(), "one rank builds"))
		return;
	gemm = node("gemm", PL_RO_COMPUTE, 26);
	relu = node("relu", PL_RO_COMPUTE, 302);
	ok(edge(node("cudaLaunchKernel", PL_RO_HOST, 20), gemm) == PL_E_EARLY,
	   "a kernel that starts before its launch returns follows the launch's start");
	ok(edge(node("cudaLaunchKernel", PL_RO_HOST, 40), relu) == PL_E_LAUNCH,
	   "one that starts later follows its end");
	ok(edge(gemm, relu) == PL_E_SEQ, "kernels of a stream follow one another");
	ok(edge(relu, node("cudaStreamSynchronize", PL_RO_SYNC, 400)) ==
		   (PL_E_WAIT | (int)PL_E_INFERRED),
	   "a synchronisation waits for the last kernel, inferred");
	ok(node("aten::mm", PL_RO_HOST, 10) != PL_NONE &&
		   node("aten::mm", PL_RO_HOST, 30) != PL_NONE &&
		   node("aten::mm", PL_RO_HOST, 50) != PL_NONE,
	   "an operation owns the pieces that its calls leave");
	ok(node("host gap", PL_RO_GAP, 60) != PL_NONE, "host time outside operations is named");
	is_i64(graph.step[0].number, 5, "the step keeps its number");
	end_trace();
}

/* What a framework does around an asynchronous and a synchronous collective, without fences. */
static void event_waits(void)
{
	uint32_t s, ar, a, b, c;
	pl_id h, d, n;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	n = track(s, 0, 20, "20");
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 5, 1);
	ev(s, PL_K_RUNTIME, h, "cudaEventRecord", 10, 11, 0);
	ev(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", 12, 13, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernelExC", 14, 20, 2);
	ev(s, PL_K_RUNTIME, h, "cudaEventRecord", 21, 22, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 30, 35, 3); /* does not wait */
	ev(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", 40, 41, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 50, 55, 4); /* waits */
	ev(s, PL_K_KERNEL, d, "a", 8, 100, 1);
	ev(s, PL_K_COLLECTIVE, n, "ncclDevKernel_AllReduce", 103, 400, 2);
	ev(s, PL_K_KERNEL, d, "b", 101, 200, 3);
	ev(s, PL_K_KERNEL, d, "c", 403, 500, 4);
	if (!ok(build(), "event waits build"))
		return;
	a = node("a", PL_RO_COMPUTE, 8);
	b = node("b", PL_RO_COMPUTE, 101);
	c = node("c", PL_RO_COMPUTE, 403);
	ar = node("ncclDevKernel_AllReduce", PL_RO_ARRIVE, 103);
	ok(edge(a, ar) == (PL_E_WAIT | (int)PL_E_INFERRED),
	   "the collective waits for the kernel before it");
	ok(edge(ar + 1, b) == -1, "the next kernel does not wait for the collective");
	ok(edge(ar + 1, c) == (PL_E_WAIT | (int)PL_E_INFERRED), "the one behind the join does");
	end_trace();
}

/*
 * Gathers that run ahead of the computation into four buffers: gather l waits for computation l -
 * 4, whose event is not the last one that was recorded.
 */
static void events_back(void)
{
	const unsigned waits = PL_E_WAIT | PL_E_INFERRED;
	static const char *const gather[] = { "AllGather_0", "AllGather_1", "AllGather_2",
					      "AllGather_3", "AllGather_4", "AllGather_5",
					      "AllGather_6", "AllGather_7" };
	static const char *const use[] = { "use_0", "use_1", "use_2", "use_3", "use_4", "use_5" };
	static const int64_t g0[] = { 1000, 1051, 1102, 1153, 1204, 1355, 1506, 1657 };
	static const int64_t u0[] = { 1052, 1203, 1354, 1505, 1656, 1807 };
	int64_t t = 0;
	uint32_t s;
	pl_id h, d, n;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	n = track(s, 0, 22, "22");
	for (int l = 0; l < 8; l++) {
		if (l >= 4)
			ev(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", t, t + 1, 0);
		ev(s, PL_K_RUNTIME, h, "cudaLaunchKernelExC", t + 2, t + 5, 100 + l);
		ev(s, PL_K_COLLECTIVE, n, gather[l], g0[l], g0[l] + 50, 100 + l);
		ev(s, PL_K_RUNTIME, h, "cudaEventRecord", t + 6, t + 7, 0);
		if (l >= 2) {
			ev(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", t + 8, t + 9, 0);
			ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", t + 10, t + 13, 200 + l);
			ev(s, PL_K_KERNEL, d, use[l - 2], u0[l - 2], u0[l - 2] + 150, 200 + l);
			ev(s, PL_K_RUNTIME, h, "cudaEventRecord", t + 14, t + 15, 0);
		}
		t += 20;
	}
	if (!ok(build(), "a prefetch builds"))
		return;
	for (int l = 4; l < 8; l++) {
		uint32_t a = node(gather[l], PL_RO_ARRIVE, g0[l]);

		ok(edge(node(use[l - 4], PL_RO_COMPUTE, u0[l - 4]), a) == (int)waits,
		   "gather %d waits for the computation that had its buffer", l);
		ok(edge(node(use[l - 3], PL_RO_COMPUTE, u0[l - 3]), a) == -1,
		   "and for no later one");
	}
	end_trace();
}

/* A fork whose wait the profile does not show. */
static void no_waits(void)
{
	uint32_t s;
	pl_id h, d, n;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	n = track(s, 0, 9, "9");
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 5, 1);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 10, 15, 2);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 20, 25, 3);
	ev(s, PL_K_KERNEL, d, "a", 8, 100, 1);
	ev(s, PL_K_KERNEL, d, "b", 101, 300, 2);
	ev(s, PL_K_KERNEL, n, "side", 102, 200, 3);
	if (!ok(build(), "a trace without waits builds"))
		return;
	ok(edge(node("a", PL_RO_COMPUTE, 8), node("side", PL_RO_COMPUTE, 102)) ==
		   (PL_E_WAIT | (int)PL_E_INFERRED),
	   "what was held up waits for what ended just then");
	end_trace();
}

/* Within one tick of a coarse clock, correlation orders the calls, not their length. */
static void same_tick(void)
{
	uint32_t s;
	pl_id h, d, n;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	n = track(s, 0, 20, "20");
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 5, 1);
	ev(s, PL_K_RUNTIME, h, "cudaEventRecord", 10, 10, 2);
	ev(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", 10, 11, 3);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernelExC", 14, 20, 4);
	ev(s, PL_K_KERNEL, d, "a", 8, 100, 1);
	ev(s, PL_K_COLLECTIVE, n, "ncclDevKernel_AllReduce", 103, 400, 4);
	if (!ok(build(), "calls of one tick build"))
		return;
	ok(edge(node("a", PL_RO_COMPUTE, 8), node("ncclDevKernel_AllReduce", PL_RO_ARRIVE, 103)) ==
		   (PL_E_WAIT | (int)PL_E_INFERRED),
	   "a record and a wait in one tick keep their order");
	end_trace();
}

/* A member that ended long before the last arrival did not wait for it: its recorded time stays. */
static void early_member(void)
{
	uint32_t s0, s1, e0, e1;

	begin_trace();
	s0 = segment();
	s1 = segment();
	e0 = ev(s0, PL_K_COLLECTIVE, track(s0, 0, 20, "20"), "ncclDevKernel_AllReduce", 100, 200,
		1);
	e1 = ev(s1, PL_K_COLLECTIVE, track(s1, 1, 20, "20"), "ncclDevKernel_AllReduce", 350, 502,
		1);
	match(0, (struct pl_member[]){ { s0, e0 }, { s1, e1 } }, 2);
	if (!ok(build(), "a contradiction builds"))
		return;
	ok(node("ncclDevKernel_AllReduce", PL_RO_TRANSFER, 100) != PL_NONE,
	   "who left before the last came keeps its recorded time");
	ok(graph.unmatched_comm == 1, "and is counted");
	end_trace();
}

/* Two ranks: the transfer begins with the last arrival. */
static void rendezvous(void)
{
	uint32_t s0, s1, e0, e1, n = 0;

	begin_trace();
	s0 = segment();
	s1 = segment();
	e0 = ev(s0, PL_K_COLLECTIVE, track(s0, 0, 20, "20"), "ncclDevKernel_AllReduce", 100, 500,
		1);
	e1 = ev(s1, PL_K_COLLECTIVE, track(s1, 1, 20, "20"), "ncclDevKernel_AllReduce", 350, 502,
		1);
	match(0, (struct pl_member[]){ { s0, e0 }, { s1, e1 } }, 2);
	if (!ok(build(), "a rendezvous builds"))
		return;
	for (uint32_t i = 0; i < graph.shape[0].n_nodes; i++) {
		const struct pl_shape *s = &graph.shape[0];

		if (s->role[i] != PL_RO_TRANSFER)
			continue;
		n++;
		is_i64(graph.step[0].start[i] + graph.epoch_ns, 350 * US,
		       "a transfer begins with the last arrival");
		is_i64(graph.step[0].dur[i], (pl_node_rank(&graph, s, i) ? 152 : 150) * US,
		       "and lasts to its rank's own end");
	}
	is_i64(n, 2, "two transfers");
	is_i64(graph.n_ranks, 2, "two ranks");
	end_trace();
}

/* A receive that was posted early has its effective start at the send's. */
static void pair(void)
{
	uint32_t s0, s1, snd, rcv;

	begin_trace();
	s0 = segment();
	s1 = segment();
	snd = ev(s0, PL_K_SEND, track(s0, 0, 20, "20"), "send", 700, 760, 1);
	rcv = ev(s1, PL_K_RECV, track(s1, 1, 20, "20"), "recv", 100, 765, 1);
	match(PL_MATCH_P2P, (struct pl_member[]){ { s0, snd }, { s1, rcv } }, 2);
	if (!ok(build(), "a pair builds"))
		return;
	ok(node("recv", PL_RO_TRANSFER, 700) != PL_NONE,
	   "the receive transfers from the send's start");
	ok(graph.step[0].dur[node("recv", PL_RO_TRANSFER, 700)] == 65 * US, "and for 65 us");
	end_trace();
}

/* Steps of equal structure and different times share a shape; a clock correction is applied. */
static void steps_share(void)
{
	struct pl_clock_use use = { 0, 0, 0 };
	struct pl_clock clock = { .offset_ns = 1000 * US };
	uint32_t s;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	for (int k = 0; k < 6; k++) {
		int64_t t = 5000 + 1000 * k;

		step(s, h, k, t, t + 900);
		ev(s, PL_K_HOST_OP, h, "forward", t + 10 + k, t + 300, 0);
		ev(s, PL_K_HOST_OP, h, "inner", t + 50, t + 90 + 3 * k, 0);
		ev(s, PL_K_HOST_OP, h, "backward", t + 300 + 7 * k, t + 800, 0);
	}
	trace.merge.clock = need(1, sizeof(clock));
	trace.merge.use = need(1, sizeof(use));
	trace.merge.clock[0] = clock;
	trace.merge.use[0] = use;
	trace.merge.n_clocks = trace.merge.n_uses = 1;
	if (!ok(build(), "steps build"))
		return;
	is_i64((long long)graph.n_steps, 6, "six steps");
	ok(graph.n_shapes <= 3, "of few shapes (%zu): the first, the last and those between",
	   graph.n_shapes);
	ok(graph.step[2].shape == graph.step[3].shape, "inner steps share theirs");
	is_i64(graph.epoch_ns, 4000 * US, "times are on the reference clock");
	end_trace();
}

/* Two receives that each wait for what the other rank sends afterwards: no order satisfies that. */
static void cycle(void)
{
	struct pl_graph_opts o = { .infer = true };
	struct pl_err err = { 0 };
	uint32_t s0, s1, a0, a1, b0, b1;
	pl_id t0, t1;

	begin_trace();
	s0 = segment();
	s1 = segment();
	t0 = track(s0, 0, 20, "20");
	t1 = track(s1, 1, 20, "20");
	a0 = ev(s0, PL_K_COLLECTIVE, t0, "first", 0, 100, 1);
	b0 = ev(s0, PL_K_COLLECTIVE, t0, "second", 100, 200, 2);
	b1 = ev(s1, PL_K_COLLECTIVE, t1, "second", 0, 100, 1);
	a1 = ev(s1, PL_K_COLLECTIVE, t1, "first", 100, 200, 2);
	match(0, (struct pl_member[]){ { s0, a0 }, { s1, a1 } }, 2);
	match(0, (struct pl_member[]){ { s0, b0 }, { s1, b1 } }, 2);
	is_i64(pl_graph_build(&trace, &o, &graph, &err), PL_EDATA, "a cycle is refused");
	ok(strstr(err.msg, "cycle") && strstr(err.msg, "first") && strstr(err.msg, "second") &&
		   strstr(err.msg, "rank 1"),
	   "and its path is named: %.60s...", err.msg);
	pl_trace_fini(&trace);
}

/* More than one rank without merge is a mistake of the user's. */
static void unmerged(void)
{
	struct pl_graph_opts o = { .infer = true };
	struct pl_err err = { 0 };
	uint32_t s;

	begin_trace();
	trace.merged = false;
	s = segment();
	ev(s, PL_K_KERNEL, track(s, 0, 7, "7"), "k", 0, 1, 0);
	ev(s, PL_K_KERNEL, track(s, 1, 7, "7"), "k", 0, 1, 0);
	is_i64(pl_graph_build(&trace, &o, &graph, &err), PL_EDATA,
	       "two ranks that were not merged: refused");
	ok(strstr(err.msg, "merge") != NULL, "with the remedy");
	pl_trace_fini(&trace);
}

int main(void)
{
	one_rank();
	event_waits();
	events_back();
	no_waits();
	same_tick();
	early_member();
	rendezvous();
	pair();
	steps_share();
	cycle();
	unmerged();
	return done_testing();
}
