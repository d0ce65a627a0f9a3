/*
 * The limits that decide how waits are inferred: each with a time on either side, so that a limit
 * of twice or half the value fails. Times of this file are nanoseconds.
 */
#define MAX_EV 2000
#include "graph_fixture.h"

/*
 * Kernel "far" ends at 100 us on one stream, "near" at 50 us on another, both with an event behind
 * them, "near" with the last one. "held" waits for one of the two events; its stream was free from
 * `free` on, its launch began at `launch`. Which event explains its start?
 */
static void held(const char *what, int64_t free, int64_t launch, int64_t start, const char *by)
{
	pl_id h, a, b, c;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	a = track(s, 0, 7, "7");
	b = track(s, 0, 8, "8");
	c = track(s, 0, 9, "9");
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 500, 1);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 1000, 1500, 2);
	at(s, PL_K_RUNTIME, h, "cudaEventRecord", 2000, 2200, 0);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 3000, 3500, 3);
	at(s, PL_K_RUNTIME, h, "cudaEventRecord", 4000, 4200, 0);
	at(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", launch - 400, launch - 200, 0);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", launch, launch + 500, 4);
	at(s, PL_K_KERNEL, c, "first", 2000, free, 1);
	at(s, PL_K_KERNEL, a, "far", 3000, 100000, 2);
	at(s, PL_K_KERNEL, b, "near", 5000, 50000, 3);
	at(s, PL_K_KERNEL, c, "held", start, 200000, 4);
	if (ok(build(), "%s", what)) {
		ok(leads("far", "held") == !strcmp(by, "far"), "... %s the far event",
		   strcmp(by, "far") ? "not" : "by");
		ok(leads("near", "held") == !strcmp(by, "near"), "... %s the near event",
		   strcmp(by, "near") ? "not" : "by");
	}
	end_trace();
}

static void events(void)
{
	held("HELD_NS: delayed by 6 us", 96000, 10000, 102000, "far");
	held("HELD_NS: delayed by 3 us, as any operation is", 99000, 10000, 102000, "near");
	held("TIGHT_NS: 8 us after the end", 20000, 10000, 108000, "far");
	held("TIGHT_NS: 15 us after the end", 20000, 10000, 115000, "near");
	held("TOL_NS: 1.5 us before the end", 20000, 10000, 98500, "far");
	held("TOL_NS: 3 us before the end", 20000, 10000, 97000, "near");
	held("LAUNCH_NS: 40 us after its launch", 20000, 60500, 100500, "far");
	held("LAUNCH_NS: 18 us after its launch", 20000, 82500, 100500, "near");
}

/* Does a synchronisation of `length` whose last kernel ends `late` before its end wait for it? */
static void synchronises(const char *what, int64_t length, int64_t late, bool waits)
{
	pl_id h, a;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	a = track(s, 0, 7, "7");
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 500, 1);
	at(s, PL_K_RUNTIME, h, "cudaStreamSynchronize", 10000, 10000 + length, 2);
	at(s, PL_K_KERNEL, a, "kernel", 5000, 10000 + length - late, 1);
	if (ok(build(), "%s", what))
		is_i64(leads("kernel", "cudaStreamSynchronize"), waits, "... waits or not");
	end_trace();
}

/* Does a pause of a thread that communication on another thread ends `late` after (below 0: before)
 * its end wait for that? */
static void pauses(const char *what, int64_t length, int64_t late, bool waits)
{
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	at(s, PL_K_HOST_OP, h, "before", 0, 10000, 0);
	at(s, PL_K_HOST_OP, h, "after", 10000 + length, 20000 + length, 0);
	at(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", 5000, 10000 + length + late, 0);
	if (ok(build(), "%s", what))
		is_i64(leads("gloo:all_reduce", "host gap"), waits, "... waits or not");
	end_trace();
}

/* Does a pause wait for a burst of another thread, which fills 60 % of it? */
static void hands_over(const char *what, int64_t length, bool waits)
{
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	at(s, PL_K_HOST_OP, h, "before", 0, 10000, 0);
	at(s, PL_K_HOST_OP, h, "after", 10000 + length, 20000 + length, 0);
	at(s, PL_K_HOST_OP, g, "idle", 0, 1000, 0);
	at(s, PL_K_HOST_OP, g, "burst", 10000 + length / 5, 10000 + length * 4 / 5, 0);
	at(s, PL_K_HOST_OP, g, "later", 30000 + length, 40000 + length, 0);
	if (ok(build(), "%s", what))
		is_i64(leads("burst", "host gap"), waits, "... waits or not");
	end_trace();
}

/* ---- the waits of a host thread ----------------------------------------------------------------
 */

/* The last of n streams that were launched on ends within a synchronisation. */
static void streams(const char *what, int n, bool waits)
{
	pl_id h;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	for (int i = 0; i < n; i++) {
		bool last = i == n - 1;
		char tid[16];

		snprintf(tid, sizeof(tid), "%d", 10 + i);
		at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 1000 * i, 1000 * i + 500, i + 1);
		at(s, PL_K_KERNEL, track(s, 0, 10 + i, tid), last ? "last" : "kernel",
		   1000 * i + 600, last ? 400000 : 1000 * i + 900, i + 1);
	}
	at(s, PL_K_RUNTIME, h, "cudaStreamSynchronize", 300000, 401000, 1000);
	if (ok(build(), "%s", what))
		ok(leads("last", "cudaStreamSynchronize") == waits, "... waits or not");
	end_trace();
}

static void name_number(char *name, size_t size, const char *word, int n)
{
	snprintf(name, size, "%s %d", word, n);
}

/*
 * Two synchronisations of a device of n streams. Before the second one only the last stream has new
 * work. The first waits for all streams, and the second for the last stream, again.
 */
static void device_wide(int n)
{
	pl_id h, last = 0;
	uint32_t s, first = 0, again = 0;
	char name[32];

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	for (int i = 0; i < n; i++) {
		name_number(name, sizeof(name), "s", i);
		last = track(s, 0, 10 + i, name);
		name_number(name, sizeof(name), "kernel", i);
		at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 1000 * i, 1000 * i + 500, i + 1);
		at(s, PL_K_KERNEL, last, name, 1000 * i + 600, 700000 - i, i + 1);
	}
	at(s, PL_K_RUNTIME, h, "cudaDeviceSynchronize", 300000, 701000, 1000);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 702000, 702500, 1001);
	at(s, PL_K_KERNEL, last, "again", 703000, 900000, 1001);
	at(s, PL_K_RUNTIME, h, "cuCtxSynchronize", 750000, 901000, 1002);
	if (ok(build(), "two synchronisations of a device of %d streams", n)) {
		for (int i = 0; i < n; i++) {
			name_number(name, sizeof(name), "kernel", i);
			first += leads(name, "cudaDeviceSynchronize");
			again += leads(name, "cuCtxSynchronize");
		}
		is_i64(first, n, "... the first waits for all streams");
		ok(leads("again", "cuCtxSynchronize"), "... the second for what is new");
		ok(again <= 64, "... and not for all of the others once more");
	}
	end_trace();
}

/* A pause ends just before a broadcast of another thread ends. That thread began n more
 * communications after the broadcast, which end later. */
static void started_later(const char *what, int n, bool waits)
{
	const int64_t length = 100000000;
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	at(s, PL_K_HOST_OP, h, "before", 0, 10000, 0);
	at(s, PL_K_HOST_OP, h, "after", 10000 + length, 20000 + length, 0);
	at(s, PL_K_COLLECTIVE, g, "gloo:broadcast", 5000, 1000000 + length, 0);
	for (int i = 0; i < n; i++)
		at(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", 20000 + i, 50000000 + length, 0);
	if (ok(build(), "%s", what))
		ok(leads("gloo:broadcast", "host gap") == waits, "... waits or not");
	end_trace();
}

/*
 * The same pause n times, 0.5 ms after the issue of a communication: `during` of them last `length`
 * and end 5 us after the communication, `after` end before it, the others are `idle` long and begin
 * after it. Is this place of the program a wait?
 */
static void places(const char *what, int n, int during, int after, int64_t length, int64_t idle,
		   bool waits)
{
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	for (int i = 0; i < n; i++) {
		int64_t from = 2000000 * (int64_t)i, pause = from + 500000;
		int64_t next = pause + (i < during ? length : idle);
		int64_t end = i < during	   ? next - 5000
			      : i < during + after ? next + 200000
						   : pause - 100000;

		at(s, PL_K_HOST_OP, h, "c10d::allreduce_", from, from + 10000, 0);
		at(s, PL_K_HOST_OP, h, "work", from + 10000, pause, 0);
		at(s, PL_K_HOST_OP, h, "next", next, next + 100000, 0);
		at(s, PL_K_HOST_OP, h, "more", next + 100000, from + 2000000, 0);
		at(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", from + 5000, end, 0);
	}
	if (ok(build(), "%s", what))
		is_i64(leads("gloo:all_reduce", "host gap"), waits, "... wait or not");
	end_trace();
}

/* ---- communication ------------------------------------------------------------------------------
 */

/* A member of an all-reduce that ends `early` before the last arrival. */
static void ends_early(const char *what, int64_t early, bool unmatched)
{
	uint32_t s0, s1, e0, e1;

	begin_trace();
	s0 = segment();
	s1 = segment();
	e0 = at(s0, PL_K_COLLECTIVE, track(s0, 0, 20, "20"), "ncclDevKernel_AllReduce", 100000,
		500000 - early, 1);
	e1 = at(s1, PL_K_COLLECTIVE, track(s1, 1, 20, "20"), "ncclDevKernel_AllReduce", 500000,
		600000, 1);
	match(0, (struct pl_member[]){ { s0, e0 }, { s1, e1 } }, 2);
	if (ok(build(), "%s", what))
		is_i64((long long)graph.unmatched_comm, unmatched, "... unmatched or not");
	end_trace();
}

/* A send and a receive of one batch: their starts differ by `between`. As twins, the send ends when
 * its receiver ended. */
static void batched(const char *what, int64_t between, bool twins)
{
	uint32_t s0, s1, e0, e1, n;

	begin_trace();
	s0 = segment();
	s1 = segment();
	e0 = at(s0, PL_K_SEND, track(s0, 0, 20, "20"), "send", 100000, 500000, 1);
	at(s0, PL_K_RECV, track(s0, 0, 21, "21"), "receive", 100000 + between, 500000, 2);
	e1 = at(s1, PL_K_RECV, track(s1, 1, 20, "20"), "receive", 100000, 200000, 1);
	match(PL_MATCH_P2P, (struct pl_member[]){ { s0, e0 }, { s1, e1 } }, 2);
	if (ok(build(), "%s", what) &&
	    ok((n = node("send", PL_RO_TRANSFER, 100)) != PL_NONE, "... the send"))
		is_i64(graph.step[0].dur[n], twins ? 100000 : 400000, "... and its duration");
	end_trace();
}

static int64_t *column(void)
{
	int64_t *v = need(MAX_EV, sizeof(*v));

	for (uint32_t i = 0; i < MAX_EV; i++)
		v[i] = INT64_MIN;
	return v;
}

/* Two messages of 1 ms on two channels to one peer, which overlap by `overlap`. */
static void channels(const char *what, int64_t overlap, bool serial)
{
	const int64_t start[2] = { 1000000, 2000000 }, end[2] = { 2000000 + overlap, 3000000 };
	struct pl_events *e[2];
	struct pl_member m[2];
	pl_id on[2];

	begin_trace();
	for (uint32_t r = 0; r < 2; r++) {
		uint32_t s = segment();

		on[r] = track(s, (int32_t)r, -1, "100");
		m[r] = (struct pl_member){ s, at(s, PL_K_COLLECTIVE, on[r], "all_reduce", 0,
						 5000000, 0) };
		e[r] = trace.seg[s];
		e[r]->of = column();
		e[r]->peer = column();
		e[r]->channel = column();
	}
	match(0, m, 2);
	for (int i = 0; i < 2; i++) {
		for (uint32_t r = 0; r < 2; r++) {
			uint32_t k = at(m[r].segment, r ? PL_K_RECV : PL_K_SEND, on[r],
					r ? "received" : "sent", start[i] + r * 100,
					end[i] + r * 100, 0);

			e[r]->of[k] = 1;
			e[r]->peer[k] = !r;
			e[r]->channel[k] = i;
			m[r].event = k;
		}
		match(PL_MATCH_MESSAGE, m, 2);
	}
	if (ok(build(), "%s", what))
		is_i64(edge(node("sent", PL_RO_TRANSFER, 1000), node("sent", PL_RO_TRANSFER, 2000)),
		       serial ? (int)(PL_E_START | PL_E_INFERRED) : -1, "... in order or not");
	end_trace();
}

/* Three messages, one every 10 s, arrive `latency` after their sends. The modelled latency. */
static void link_latency(const char *what, int64_t latency, int64_t want)
{
	const int64_t second = 1000000000;
	struct pl_member m[2];
	struct pl_events *e[2];
	pl_id on[2];
	int64_t got = -1;

	begin_trace();
	for (uint32_t r = 0; r < 2; r++) {
		uint32_t s = segment();

		on[r] = track(s, (int32_t)r, -1, "100");
		m[r] = (struct pl_member){ s, at(s, PL_K_COLLECTIVE, on[r], "all_reduce", 0,
						 40 * second, 0) };
		e[r] = trace.seg[s];
		e[r]->of = column();
		e[r]->peer = column();
	}
	match(0, m, 2);
	for (int i = 0; i < 3; i++) {
		for (uint32_t r = 0; r < 2; r++) {
			int64_t start = (10 * i + 1) * second + (r ? second + latency : 0);

			m[r].event = at(m[r].segment, r ? PL_K_RECV : PL_K_SEND, on[r],
					r ? "received" : "sent", start, start + second, 0);
			e[r]->of[m[r].event] = 1;
			e[r]->peer[m[r].event] = !r;
		}
		match(PL_MATCH_MESSAGE, m, 2);
	}
	if (ok(build(), "%s", what)) {
		for (size_t i = 0; i < graph.n_res; i++)
			if (graph.res[i].track_type == PL_T_LINK && graph.res[i].rank == 1)
				got = graph.res[i].launch_ns;
		is_i64(got, want, "... the latency");
	}
	end_trace();
}

/* Operations of a table, which has no calls: "next" begins `over` before the end of "first". */
static void table(const char *what, int64_t over, bool follows)
{
	uint32_t s;

	begin_trace();
	s = segment();
	at(s, PL_K_KERNEL, track(s, 0, 7, "7"), "first", 1000, 10000000, 0);
	at(s, PL_K_KERNEL, track(s, 0, 8, "8"), "next", 10000000 - over, 12000000, 0);
	if (ok(build(), "%s", what))
		ok(leads("first", "next") == follows, "... follows or not");
	end_trace();
}

/* Three operations of 0.5 us on three tracks, one after the other, each of them first in one of
 * three steps: every one follows another one in two of three, all round. */
static void all_round(void)
{
	static const char *const name[] = { "a", "b", "c" };
	pl_id on[3], marks;
	uint32_t s;

	begin_trace();
	s = segment();
	for (int i = 0; i < 3; i++)
		on[i] = track(s, 0, 7 + i, name[i]);
	marks = on[0];
	for (int64_t k = 0; k < 3; k++) {
		step(s, marks, k, 1000 * k, 1000 * k + 900);
		for (int64_t i = 0; i < 3; i++) {
			int64_t which = (k + i) % 3, start = 1000000 * k + 1000 + 500 * i;

			at(s, PL_K_KERNEL, on[which], name[which], start, start + 500, 0);
		}
	}
	if (ok(build(), "TABLE: most steps disagree on who is first"))
		ok(leads("a", "b") && leads("b", "c") && !leads("c", "a"),
		   "... a step has the dependencies that its own order allows");
	end_trace();
}

/* ---- latencies of a device ----------------------------------------------------------------------
 */

/*
 * n launches, one every `every`; a call lasts `length`. Each operation of `work` begins `after`
 * the start of its call or, if it is busy, `gap` after the operation before it.
 */
static const struct pl_resource *device(int n, int64_t every, int64_t length, int64_t after,
					int64_t gap, int64_t work)
{
	int64_t free = INT64_MIN / 2;
	pl_id h, a;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	a = track(s, 0, 7, "7");
	for (int i = 0; i < n; i++) {
		int64_t call = 1000 + i * every, start = pl_max_i64(call + after, free + gap);

		at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", call, call + length, i + 1);
		at(s, PL_K_KERNEL, a, "kernel", start, free = start + work, i + 1);
	}
	if (!ok(build(), "launches"))
		return NULL;
	for (size_t i = 0; i < graph.n_res; i++)
		if (graph.res[i].track_type == PL_T_STREAM)
			return &graph.res[i];
	return NULL;
}

static void latencies(void)
{
	const struct pl_resource *r;

	r = device(3, 1000000, 1000, 81000, 0, 1000);
	is_i64(r ? r->launch_ns : -1, 50000, "LAUNCH_MAX_NS: 80 us behind the call are too long");
	end_trace();
	r = device(3, 1000000, 1000, 41000, 0, 1000);
	is_i64(r ? r->launch_ns : -1, 40000, "LAUNCH_MAX_NS: 40 us");
	end_trace();
	r = device(2, 1000000, 1000, 6000, 0, 1000);
	is_i64(r ? r->launch_ns : -1, 0, "MIN_CASES: 2 say nothing");
	end_trace();
	r = device(3, 1000000, 1000, 6000, 0, 1000);
	is_i64(r ? r->launch_ns : -1, 5000, "MIN_CASES: 3 do");
	end_trace();
	r = device(6, 1000, 500, 6000, 30000, 200000);
	is_i64(r ? r->dispatch_ns : -1, 10000, "DISPATCH_MAX_NS: 30 us between are too long");
	end_trace();
	r = device(6, 1000, 500, 6000, 8000, 200000);
	is_i64(r ? r->dispatch_ns : -1, 8000, "DISPATCH_MAX_NS: 8 us");
	end_trace();
}

/* ---- gradients ----------------------------------------------------------------------------------
 */

/*
 * A kernel, `calls` launches of another thread and the accumulation of a gradient, of which no size
 * is known; then an all-reduce of that many bytes. Bytes of the tensor, and the kernel produced it.
 */
static void gradient(const char *what, int calls, int64_t bytes, bool carried, bool produced)
{
	const char *name = "torch::autograd::AccumulateGrad";
	pl_id h, other, comm;
	uint32_t s, kernel;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	other = track(s, 0, -1, "102");
	comm = track(s, 0, -1, "101");
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 500, 1);
	at(s, PL_K_KERNEL, track(s, 0, 7, "7"), "kernel", 1000, 2000, 1);
	for (int i = 0; i < calls; i++)
		at(s, PL_K_RUNTIME, other, "cudaLaunchKernel", 3000 + 100 * i, 3050 + 100 * i,
		   i + 2);
	at(s, PL_K_HOST_OP, h, name, 200000, 210000, 0);
	trace.seg[s]->bytes = column();
	trace.seg[s]->bytes[at(s, PL_K_COLLECTIVE, comm, "gloo:all_reduce", 220000, 300000, 0)] =
		bytes;
	kernel = PL_NONE;
	if (ok(build(), "%s", what) && ok(graph.n_tensors > 0, "... a gradient")) {
		kernel = node("kernel", PL_RO_COMPUTE, 1);
		is_i64(graph.tensor[0].bytes, carried ? bytes : -1, "... its bytes");
		ok((graph.tensor[0].producer == kernel) == produced, "... its producer");
	}
	end_trace();
}

int main(void)
{
	events();
	synchronises("SYNC_MIN_NS: 8 us", 8000, 500, true);
	synchronises("SYNC_MIN_NS: 4 us are too short", 4000, 500, false);
	synchronises("SYNC_RETURN_NS: back after 80 us", 300000, 80000, true);
	synchronises("SYNC_RETURN_NS: 150 us are too late", 300000, 150000, false);
	pauses("PAUSE_MIN_NS: 300 us", 300000, -1000, true);
	pauses("PAUSE_MIN_NS: 150 us are too short", 150000, -1000, false);
	pauses("PAUSE_NEAR_NS: 0.8 ms before the end", 3000000, -800000, true);
	pauses("PAUSE_NEAR_NS: 1.5 ms are too early", 3000000, -1500000, false);
	pauses("WAKER_LATE_NS: 8 ms after the end", 100000000, 8000000, true);
	pauses("WAKER_LATE_NS: 15 ms are too late", 100000000, 15000000, false);
	hands_over("HANDOVER_MIN_NS: 30 us", 30000, true);
	hands_over("HANDOVER_MIN_NS: 15 us are too short", 15000, false);
	streams("STREAMS_MAX: 50 streams", 50, true);
	streams("STREAMS_MAX: 100 streams are too many", 100, false);
	device_wide(50);
	device_wide(100);
	started_later("BACK_STEPS: 50 communications began later", 50, true);
	started_later("BACK_STEPS: 100 are too many", 100, false);
	places("two of ten pauses are longer", 10, 2, 0, 150000, 10000, true);
	places("one may be chance", 10, 1, 0, 150000, 10000, false);
	places("2.1 times as long as the others", 10, 2, 0, 150000, 70000, true);
	places("1.5 times is not enough", 10, 2, 0, 150000, 100000, false);
	places("one of twenty ends before the communication", 20, 3, 1, 150000, 10000, true);
	places("two of twenty: nobody waits there", 20, 3, 2, 150000, 10000, false);
	places("a tenth of the pauses is long", 30, 3, 0, 150000, 10000, true);
	places("fewer are too few", 40, 3, 0, 150000, 10000, false);
	ends_early("EARLY_NS: 40 us before the last arrival", 40000, false);
	ends_early("EARLY_NS: 70 us are too early", 70000, true);
	batched("TWIN_NS: 0.8 us between the starts", 800, true);
	batched("TWIN_NS: 1.5 us are too much", 1500, false);
	channels("SERIAL: 1.5 us of 2 ms overlap", 1500, true);
	channels("SERIAL: 3 us are too much", 3000, false);
	table("TABLE_SLACK_NS: 40 us before the end", 40000, true);
	table("TABLE_SLACK_NS: 70 us are too early", 70000, false);
	all_round();
	latencies();
	link_latency("LINK_MAX_NS: 0.8 s", 800000000, 800000000);
	link_latency("LINK_MAX_NS: 3 s are more than a link has", 3000000000, 1000000000);
	gradient("SMALL_BYTES: 300 bytes", 0, 300, true, true);
	gradient("SMALL_BYTES: 200 bytes are no gradient", 0, 200, false, true);
	gradient("BACK: 200 calls behind the kernel", 200, 300, true, true);
	gradient("BACK: 400 are too many", 400, 300, true, false);
	return done_testing();
}
