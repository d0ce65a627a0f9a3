/*
 * The builder: from events to nodes and edges. Each case is a small trace made by hand, of which it
 * is known who waited for whom.
 */
#include "graph_fixture.h"

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

/* Nodes of that name and role that begin then. */
static int count(const char *name, unsigned role, int64_t start_us)
{
	const struct pl_shape *s = &graph.shape[0];
	int n = 0;

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
		n += s->role[i] == role && !strcmp(pl_intern_get(&graph.str, s->name[i]), name) &&
		     graph.step[0].start[i] + graph.epoch_ns == start_us * US;
	return n;
}

/* How many nodes of a role wait for `from`. */
static int count_edges(uint32_t from, unsigned role)
{
	const struct pl_shape *s = &graph.shape[0];
	int n = 0;

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
		n += s->role[i] == role && edge(from, i) >= 0;
	return n;
}

/* A collective of three ranks; at: start and end of each. */
static void three(const char *name, const int64_t (*at)[2], const uint32_t *seg)
{
	struct pl_member m[3];

	for (uint32_t r = 0; r < 3; r++)
		m[r] = (struct pl_member){ seg[r], ev(seg[r], PL_K_COLLECTIVE,
						      track(seg[r], (int32_t)r, 20, "20"), name,
						      at[r][0], at[r][1], 0) };
	match(0, m, 3);
}

/* Of a broadcast, who left before the last one came waited for the root; the root for whoever came
 * before it left. Which one is the root, two of them tell. */
static void early_receiver(void)
{
	static const int64_t first[3][2] = { { 100, 180 }, { 50, 200 }, { 400, 500 } };
	static const int64_t then[3][2] = { { 600, 650 }, { 800, 900 }, { 620, 660 } };
	const char *name = "gloo:broadcast";
	uint32_t s[3], root, leaf;

	begin_trace();
	for (uint32_t r = 0; r < 3; r++)
		s[r] = segment();
	three(name, first, s);
	three(name, then, s);
	if (!ok(build(), "broadcasts that members leave early build"))
		return;
	ok(graph.unmatched_comm == 0, "all their members are matched");
	root = node(name, PL_RO_ARRIVE, 100);
	leaf = node(name, PL_RO_ARRIVE, 50);
	ok(edge(root, node(name, PL_RO_TRANSFER, 100)) >= 0, "the root goes on by itself");
	is_i64(count(name, PL_RO_TRANSFER, 100), 2, "who left early transfers from the root on");
	is_i64(count_edges(root, PL_RO_TRANSFER), 2, "... and waits for it");
	is_i64(count_edges(leaf, PL_RO_TRANSFER), 2, "the root waits for who came before it left");
	ok(node(name, PL_RO_TRANSFER, 400) != PL_NONE, "who was there at the end waited for all");
	ok(edge(node(name, PL_RO_ARRIVE, 600), node(name, PL_RO_TRANSFER, 620)) == PL_E_COMM,
	   "the same root the next time");
	end_trace();
}

/* Of a reduce, who gives and goes waits for nobody. */
static void early_giver(void)
{
	static const int64_t at[3][2] = { { 100, 500 }, { 50, 90 }, { 400, 480 } };
	const char *name = "gloo:reduce";
	uint32_t s[3];

	begin_trace();
	for (uint32_t r = 0; r < 3; r++)
		s[r] = segment();
	three(name, at, s);
	if (!ok(build(), "a reduce that a member leaves early builds"))
		return;
	ok(graph.unmatched_comm == 0, "all its members are matched");
	is_i64(count(name, PL_RO_TRANSFER, 50), 1, "who gives goes on at once");
	is_i64(count(name, PL_RO_TRANSFER, 400), 2, "the others wait for all");
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
	struct pl_derive_opts o = { .infer = true };
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
	is_i64(pl_derive_graph(&trace, &o, &graph, &err), PL_EDATA, "a cycle is refused");
	ok(strstr(err.msg, "cycle") && strstr(err.msg, "first") && strstr(err.msg, "second") &&
		   strstr(err.msg, "rank 1"),
	   "and its path is named: %.60s...", err.msg);
	pl_trace_fini(&trace);
}

/* More than one rank without merge is a mistake of the user's. */
static void unmerged(void)
{
	struct pl_derive_opts o = { .infer = true };
	struct pl_err err = { 0 };
	uint32_t s;

	begin_trace();
	trace.merged = false;
	s = segment();
	ev(s, PL_K_KERNEL, track(s, 0, 7, "7"), "k", 0, 1, 0);
	ev(s, PL_K_KERNEL, track(s, 1, 7, "7"), "k", 0, 1, 0);
	is_i64(pl_derive_graph(&trace, &o, &graph, &err), PL_EDATA,
	       "two ranks that were not merged: refused");
	ok(strstr(err.msg, "merge") != NULL, "with the remedy");
	pl_trace_fini(&trace);
}

/* ---- steps
 * ---------------------------------------------------------------------------------------- */

/* Number, recorded begin and end (us) of the steps in order; what is outside any is left out. */
static const char *steps(void)
{
	static char text[512];
	size_t n = 0;

	text[0] = 0;
	for (size_t k = 0; k < graph.n_steps; k++) {
		const struct pl_gstep *st = &graph.step[k];
		const struct pl_shape *s = &graph.shape[st->shape];
		pl_ns start = INT64_MAX, end = INT64_MIN;

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			if (s->flags[i] & PL_NF_STEP_BEGIN)
				start = pl_min_i64(start, st->start[i]);
			if (s->flags[i] & PL_NF_IN_STEP)
				end = pl_max_i64(end, st->start[i] + st->dur[i]);
		}
		if (st->number != INT64_MIN && n < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld %lld-%lld",
					      n ? ", " : "", (long long)st->number,
					      (long long)(start + graph.epoch_ns) / US,
					      (long long)(end + graph.epoch_ns) / US);
	}
	return text;
}

static const char *said_text(void)
{
	struct pl_err err = { 0 };

	if (pl_buf_put(&said, "", 1, &err) < 0)
		abort();
	said.n--;
	return (const char *)said.p;
}

/* A thread with these steps, one operation in each. */
struct span {
	int64_t number, start, end;
};
static void thread_of(int32_t rank, const char *tid, const struct span *v, size_t n)
{
	uint32_t s = segment();
	pl_id h = track(s, rank, -1, tid);

	for (size_t i = 0; i < n; i++) {
		step(s, h, v[i].number, v[i].start, v[i].end);
		ev(s, PL_K_HOST_OP, h, "forward", v[i].start + 1, v[i].end - 1, 0);
	}
}

#define THREAD(rank, tid, ...)                                                                     \
	thread_of(rank, tid, (struct span[]){ __VA_ARGS__ },                                       \
		  sizeof((struct span[]){ __VA_ARGS__ }) / sizeof(struct span))

/* Numbers need not rise: the order of steps is that of time. */
static void steps_fall(void)
{
	begin_trace();
	THREAD(0, "100", { 5, 0, 100 }, { 3, 110, 200 }, { 4, 210, 300 });
	THREAD(1, "100", { 5, 5, 105 }, { 3, 115, 205 }, { 4, 215, 305 });
	if (!ok(build(), "steps 5, 3, 4 build"))
		return;
	is_str(steps(), "5 0-105, 3 110-205, 4 210-305", "and are all there, in order of time");
	is_str(said_text(), "", "without a word");
	end_trace();
}

/* A number that comes back is another step; one in two parts is not. */
static void steps_again(void)
{
	begin_trace();
	THREAD(0, "100", { 0, 0, 100 }, { 1, 100, 150 }, { 1, 150, 200 }, { 0, 200, 300 },
	       { 1, 300, 400 });
	THREAD(0, "200", { 0, 10, 90 }, { 1, 110, 190 }, { 0, 210, 290 }, { 1, 310, 390 });
	if (!ok(build(), "steps that count anew build"))
		return;
	is_str(steps(), "0 0-100, 1 100-200, 0 200-300, 1 300-400", "four steps, two numbers");
	is_str(said_text(), "", "without a word");
	end_trace();
}

/* A rank without one of the steps does not disturb their order, whenever it begins. */
static void steps_missing(void)
{
	begin_trace();
	THREAD(0, "100", { 1, 0, 100 }, { 2, 100, 200 }, { 3, 200, 300 });
	THREAD(1, "100", { 1, 0, 50 }, { 3, 90, 290 });
	if (!ok(build(), "a step that a rank lacks builds"))
		return;
	is_str(steps(), "1 0-100, 2 100-200, 3 90-300", "order by number");
	end_trace();
}

static void steps_overlap(void)
{
	begin_trace();
	THREAD(3, "100", { 1, 0, 100 }, { 2, 60, 200 }, { 3, 200, 300 });
	if (!ok(build(), "steps that overlap build"))
		return;
	is_str(steps(), "1 0-60, 2 60-200, 3 200-300", "time counts for the one that began last");
	ok(strstr(said_text(), "rank 3: step 2 begins 40.0 us before step 1 ends") != NULL,
	   "and it is said: %s", said_text());
	end_trace();
	begin_trace();
	THREAD(0, "100", { 1, 0, 100 }, { 2, 20, 40 });
	if (!ok(build(), "a step within another builds"))
		return;
	is_str(steps(), "1 0-20, 2 20-100", "the rest counts for the inner one");
	ok(strstr(said_text(), "rank 0: step 2 begins 80.0 us before step 1 ends") != NULL,
	   "and it is said");
	end_trace();
	begin_trace();
	THREAD(0, "100", { 1, 0, 1000 }, { 2, 999, 2000 });
	if (!ok(build(), "ends that are not sharp build"))
		return;
	is_str(said_text(), "", "and are not worth a word");
	end_trace();
}

/* Ranks that went through the steps in different orders. */
static void steps_crossed(void)
{
	begin_trace();
	THREAD(0, "100", { 5, 0, 100 }, { 3, 100, 200 });
	THREAD(7, "100", { 3, 10, 100 }, { 5, 100, 200 });
	if (!ok(build(), "crossed steps build"))
		return;
	ok(strstr(said_text(), "rank 7: step 5 comes after step 3 here") != NULL,
	   "and it is said where and what: %s", said_text());
	is_str(steps(), "5 0-100, 3 10-200", "to which step it counts");
	end_trace();
}

/* One event at the end of time costs one event; a drift of a clock is applied. */
static void wild(void)
{
	struct pl_clock_use use = { 0, 0, 0 };
	struct pl_clock clock = { .ref_ns = 0, .drift_ppm = 100000 };
	uint32_t s;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	ev(s, PL_K_HOST_OP, h, "a", 100, 200, 0);
	ev(s, PL_K_HOST_OP, h, "b", 1000, 2000, 0);
	trace.seg[s]->dur[ev(s, PL_K_HOST_OP, h, "wild", 3000, 3001, 0)] = INT64_MAX;
	trace.merge.clock = need(1, sizeof(clock));
	trace.merge.use = need(1, sizeof(use));
	trace.merge.clock[0] = clock;
	trace.merge.use[0] = use;
	trace.merge.n_clocks = trace.merge.n_uses = 1;
	if (!ok(build(), "a time that no clock shows builds"))
		return;
	ok(strstr(said_text(), "1 events lie years from the rest") != NULL, "and is said");
	ok(node("b", PL_RO_COMPUTE, 900) != PL_NONE, "the others are on the common clock");
	end_trace();
}

/* What the trace says of the links of each of three ranks (NULL: nothing), and the links as
 * FROM-TO by rank. */
static void links(const char *const each[3], const char *want)
{
	struct pl_err err = { 0 };
	char text[64] = "";
	size_t n = 0;
	int rc = 0;

	begin_trace();
	for (int r = 0; r < 3; r++) {
		uint32_t s = segment();
		pl_id h = track(s, r, -1, "100");

		ev(s, PL_K_HOST_OP, h, "op", 10, 20, 0);
		ev(s, PL_K_HOST_OP, track(s, r, -1, "101"), "op", 12, 22, 0);
		if (each[r])
			rc |= pl_trace_segment_meta(&trace.seg[s]->seg, PL_DERIVE_LINKS,
						    strlen(PL_DERIVE_LINKS), each[r],
						    strlen(each[r]), &err);
	}
	ok(rc == 0 && build(), "three ranks with links build");
	for (size_t i = 0; i < graph.n_links; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%d-%d", i ? " " : "",
				      graph.res[graph.link[i].from].rank,
				      graph.res[graph.link[i].to].rank);
	is_str(text, want, "... which are there");
	end_trace();
}

static void links_of_ranks(void)
{
	links((const char *const[]){ "true", "true", "true" }, "0-1 1-0 2-0");
	links((const char *const[]){ "true", NULL, NULL }, "0-1");
	links((const char *const[]){ NULL, "true", NULL }, "1-0");
	links((const char *const[]){ "false", "false", NULL }, "0-0 1-1");
	links((const char *const[]){ NULL, NULL, NULL }, "");
}

/* In how many steps from number `from` on, of n, is there an operation of this name? */
static int steps_with(const char *name, size_t from, size_t n)
{
	int count = 0;

	for (size_t k = from; k < from + n && k < graph.n_steps; k++) {
		const struct pl_shape *s = &graph.shape[graph.step[k].shape];
		bool found = false;

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			found |= !strcmp(pl_intern_get(&graph.str, s->name[i]), name);
		count += found;
	}
	return count;
}

/* Bits of `epochs` say which epochs a rank recorded, each with three steps of 20 ms in 300 ms. */
static void epochs(int32_t rank, unsigned recorded, const char *name, int64_t late_us)
{
	uint32_t s = segment();
	pl_id h = track(s, rank, -1, "100");

	for (int64_t e = 0; e < 3; e++)
		for (int64_t k = 0; k < 3 && recorded >> e & 1; k++) {
			int64_t from = 300000 * e + 20000 * k + late_us;

			step(s, h, k, from, from + 19000);
			ev(s, PL_K_HOST_OP, h, name, from + 100, from + 10000, 0);
		}
}

static void test_epochs(void)
{
	begin_trace();
	epochs(0, 3, "all", 0);
	epochs(1, 2, "second", 1000);
	if (ok(build(), "a rank that recorded the second of two epochs")) {
		is_i64((long long)graph.n_steps, 6, "... six steps");
		is_i64(steps_with("all", 0, 6), 6, "... of the rank with both");
		is_i64(steps_with("second", 0, 3), 0, "... none of the first three of the other");
		is_i64(steps_with("second", 3, 3), 3, "... and all of the rest");
		ok(!said.n, "... no warning");
	}
	end_trace();

	begin_trace();
	epochs(0, 6, "late", 0);
	epochs(1, 3, "early", 0);
	if (ok(build(), "one rank without the first epoch, one without the last")) {
		is_i64((long long)graph.n_steps, 9, "... nine steps");
		is_i64(steps_with("early", 0, 6), 6, "... the first six of the one");
		is_i64(steps_with("late", 3, 6), 6, "... the last six of the other");
	}
	end_trace();

	begin_trace();
	epochs(0, 3, "all", 0);
	epochs(1, 3, "later", 100000);
	if (ok(build(), "ranks whose steps do not overlap")) {
		is_i64((long long)graph.n_steps, 6, "... their steps belong together in order");
		ok(said.n && strstr((char *)said.p, "comes several times"), "... a warning");
	}
	end_trace();
}

int main(void)
{
	test_epochs();
	one_rank();
	event_waits();
	events_back();
	no_waits();
	same_tick();
	early_member();
	early_receiver();
	early_giver();
	rendezvous();
	pair();
	steps_share();
	cycle();
	unmerged();
	steps_fall();
	steps_again();
	steps_missing();
	steps_overlap();
	steps_crossed();
	wild();
	links_of_ranks();
	return done_testing();
}
