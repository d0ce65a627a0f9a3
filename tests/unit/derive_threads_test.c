/*
 * Host threads of ranks with a device: who waits for whom, where several things look like a wait.
 * Times are microseconds where nothing else is said.
 */
#include <time.h>

#define MAX_EV 500000
#include "graph_fixture.h"

static void set_bytes(uint32_t seg, uint32_t event, int64_t bytes)
{
	struct pl_events *e = trace.seg[seg];

	if (!e->bytes) {
		e->bytes = need(MAX_EV, sizeof(*e->bytes));
		for (uint32_t i = 0; i < MAX_EV; i++)
			e->bytes[i] = INT64_MIN;
	}
	e->bytes[event] = bytes;
}

/* ---- the reduction of sharded gradients --------------------------------------------------------
 */

static void call(uint32_t s, pl_id h, const char *name, int64_t start, int64_t corr)
{
	ev(s, PL_K_RUNTIME, h, name, start, start + 5, corr);
}

static void gradient(uint32_t s, pl_id h, int64_t start)
{
	uint32_t e = ev(s, PL_K_HOST_OP, h, "torch::autograd::AccumulateGrad", start, start + 5, 0);

	inputs(s, e, "[[100]]", "[\"float\"]");
}

/* The reduce-scatter of a gradient, behind an event of the compute stream. */
static void reduce(uint32_t s, pl_id h, pl_id on, const char *name, int64_t at, int64_t start,
		   int64_t end, int64_t corr)
{
	call(s, h, "cudaEventRecord", at, 0);
	call(s, h, "cudaStreamWaitEvent", at + 10, 0);
	call(s, h, "cudaLaunchKernelExC", at + 20, corr);
	call(s, h, "cudaEventRecord", at + 30, 0);
	set_bytes(s, ev(s, PL_K_COLLECTIVE, on, name, start, end, corr), 400);
}

/* Three layers: before a layer is reduced, the compute stream waits until the one before is. */
static void sharded(void)
{
	pl_id h, d, n;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	n = track(s, 0, 20, "20");
	call(s, h, "cudaLaunchKernel", 0, 1);
	ev(s, PL_K_KERNEL, d, "layer 3", 10, 100, 1);
	gradient(s, h, 20);
	reduce(s, h, n, "ncclDevKernel_ReduceScatter_3", 30, 103, 400, 2);
	call(s, h, "cudaLaunchKernel", 70, 3);
	ev(s, PL_K_KERNEL, d, "layer 2", 101, 200, 3);
	gradient(s, h, 80);
	call(s, h, "cudaStreamWaitEvent", 90, 0);
	call(s, h, "cudaLaunchKernel", 100, 4);
	ev(s, PL_K_KERNEL, d, "copy 2", 403, 420, 4);
	reduce(s, h, n, "ncclDevKernel_ReduceScatter_2", 110, 423, 700, 5);
	call(s, h, "cudaLaunchKernel", 900, 6);
	ev(s, PL_K_KERNEL, d, "layer 1", 910, 1000, 6);
	gradient(s, h, 920);
	reduce(s, h, n, "ncclDevKernel_ReduceScatter_1", 930, 1003, 1300, 7);
	if (ok(build(), "sharded gradients build"))
		ok(leads("ncclDevKernel_ReduceScatter_3", "copy 2"),
		   "a stream waits for the reduction of the layer before");
	end_trace();
}

/* ---- gloo with tensors of a device -------------------------------------------------------------
 */

static void staged(void)
{
	uint32_t s, arrive;
	pl_id h, g, d;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	d = track(s, 0, 7, "7");
	ev(s, PL_K_HOST_OP, h, "c10d::allreduce_", 0, 20, 0);
	call(s, h, "cudaMemcpyAsync", 10, 4);
	ev(s, PL_K_HOST_OP, h, "aten::mm", 2000, 2100, 0);
	call(s, h, "cudaLaunchKernel", 2010, 9);
	ev(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", 30, 1000, 0);
	ev(s, PL_K_RUNTIME, g, "cudaStreamSynchronize", 32, 140, 1);
	call(s, g, "cudaMemcpyAsync", 160, 2);
	call(s, g, "cudaMemcpyAsync", 970, 3);
	ev(s, PL_K_COPY, d, "data", 18, 135, 4);
	ev(s, PL_K_COPY, d, "more", 164, 200, 2);
	ev(s, PL_K_COPY, d, "result", 980, 1100, 3);
	ev(s, PL_K_KERNEL, d, "kernel", 2020, 2090, 9);
	if (!ok(build(), "copies of a thread that communicates build"))
		return;
	arrive = node("gloo:all_reduce", PL_RO_ARRIVE, 140);
	ok(arrive != PL_NONE, "its collective arrives when it has waited for the device");
	ok(edge(node("c10d::allreduce_", PL_RO_HOST, 15), arrive) >= 0, "the operator issues it");
	ok(edge(node("data", PL_RO_COPY, 18), arrive) == (PL_E_WAIT | (int)PL_E_INFERRED),
	   "it waits for what the operator copies");
	ok(edge(node("gloo:all_reduce", PL_RO_TRANSFER, 140), node("result", PL_RO_COPY, 980)) ==
		   PL_E_WAIT,
	   "the copy of the result waits for it");
	ok(edge(arrive, node("more", PL_RO_COPY, 164)) == PL_E_START, "another follows its start");
	is_i64(graph.step[0].dur[arrive + 1], 840 * US, "it ends when the result is copied");
	end_trace();
}

/* An operator that launched a collective on a device issued no other. */
static void two_backends(void)
{
	uint32_t s, arrive;
	pl_id h, g, n;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	n = track(s, 0, 20, "20");
	ev(s, PL_K_HOST_OP, h, "c10d::allreduce_", 0, 40, 0);
	call(s, h, "cudaLaunchKernelExC", 10, 1);
	ev(s, PL_K_HOST_OP, h, "c10d::allreduce_", 50, 70, 0);
	ev(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", 60, 300, 0);
	ev(s, PL_K_COLLECTIVE, n, "ncclDevKernel_AllReduce", 30, 200, 1);
	if (!ok(build(), "two backends build"))
		return;
	arrive = node("gloo:all_reduce", PL_RO_ARRIVE, 60);
	ok(edge(node("c10d::allreduce_", PL_RO_HOST, 50), arrive) >= 0, "gloo's operator is found");
	ok(edge(node("c10d::allreduce_", PL_RO_HOST, 0), arrive) < 0, "... not that of NCCL");
	end_trace();
}

/* ---- threads that wait for threads -------------------------------------------------------------
 */

/* n times: a thread is in `pause` (NULL: a gap) for 100 us, during 60 of which another thread is in
 * `burst`. Does the first wait for the second? */
static void hands_over(const char *what, int n, const char *pause, unsigned kind, const char *burst,
		       bool waits)
{
	pl_id h, g, d;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	d = track(s, 0, 7, "7");
	ev(s, PL_K_KERNEL, d, "kernel", 0, 10, 0);
	ev(s, PL_K_HOST_OP, g, "idle", 0, 1, 0);
	for (int64_t t = 0; t < n * 1000; t += 1000) {
		ev(s, PL_K_HOST_OP, h, "before", t, t + 500, 0);
		if (pause)
			ev(s, PL_K_HOST_OP, h, pause, t + 500, t + 600, 0);
		ev(s, PL_K_HOST_OP, h, "after", t + 600, t + 1000, 0);
		ev(s, kind, g, burst, t + 520, t + 580, 0);
		ev(s, PL_K_HOST_OP, g, "idle", t + 800, t + 801, 0);
	}
	if (ok(build(), "%s", what))
		ok((graph.inferred_threads > 0) == waits, "... %s", waits ? "waits" : "no wait");
	end_trace();
}

/* ---- calls without operations ------------------------------------------------------------------
 */

/* Events are recorded 200,000 times after 200,000 other calls. Only one call launched something, or
 * none. */
static void many_records(const char *what, bool launch)
{
	const int64_t n = 200000;
	pl_id h, d;
	uint32_t s;
	clock_t from;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	if (launch) {
		at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 50, 1);
		at(s, PL_K_KERNEL, d, "kernel", 60, 90, 1);
	}
	for (int64_t i = 1; i <= 2 * n; i++)
		at(s, PL_K_RUNTIME, h, i < n ? "cudaGetDevice" : "cudaEventRecord", 100 * i,
		   100 * i + 50, 0);
	at(s, PL_K_RUNTIME, h, "cudaEventSynchronize", 200 * n + 100, 200 * n + 200, 0);
	from = clock();
	ok(build(), "%s", what);
	ok(clock() - from < 15 * CLOCKS_PER_SEC, "... takes time in proportion");
	end_trace();
}

int main(void)
{
	sharded();
	staged();
	two_backends();
	hands_over("a gap, and work of another thread", 1, NULL, PL_K_HOST_OP, "MulBackward0",
		   true);
	hands_over("an operator that encloses what nobody recorded", 1, "MyBackward", PL_K_HOST_OP,
		   "MulBackward0", true);
	hands_over("an operator that computes", 1, "aten::mm", PL_K_HOST_OP, "MulBackward0", false);
	hands_over("a call of another thread, once", 1, NULL, PL_K_RUNTIME, "cudaEventQuery",
		   false);
	hands_over("... twice", 2, NULL, PL_K_RUNTIME, "cudaEventQuery", true);
	many_records("events that nothing was launched before", false);
	many_records("events behind a launch long ago", true);
	return done_testing();
}
