/*
 * Host threads of ranks with a device: who waits for whom, where several things look like a wait.
 * Times are microseconds where nothing else is said.
 */
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

int main(void)
{
	sharded();
	two_backends();
	return done_testing();
}
