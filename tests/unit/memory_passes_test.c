/* Memory of steps with several backward passes: parameters and gradients are there once. */
#include "cost/cost.h"
#include "graph_fixture.h"
#include "sim/sim.h"

#define LARGE 400000 /* bytes of the gradient of one parameter, and of the other */
#define SMALL 4000

static uint32_t seg;
static pl_id thread;

static void sized(const char *name, int64_t start, int64_t end, const char *dims)
{
	uint32_t e = ev(seg, PL_K_HOST_OP, thread, name, start, end, 0);

	inputs(seg, e, dims, "[\"float\"]");
}

/* Bytes are allocated, or released where they are below 0. */
static void memory(int64_t at_us, int64_t address, int64_t bytes)
{
	uint32_t e = ev(seg, PL_K_MEMORY, thread, "[memory]", at_us, at_us, 0);
	struct pl_events *x = trace.seg[seg];

	if (!x->alloc) {
		x->alloc = need(MAX_EV, sizeof(*x->alloc));
		x->address = need(MAX_EV, sizeof(*x->address));
	}
	x->alloc[e] = bytes;
	x->address[e] = address;
}

/* A forward and a backward pass, 100 us each. `own`: each pass has an activation, and its gradients
 * get memory of their own. */
static void pass(int64_t at, bool own)
{
	ev(seg, PL_K_HOST_OP, thread, "aten::linear", at + 2, at + 98, 0);
	if (own)
		memory(at + 10, 1, 1000);
	ev(seg, PL_K_HOST_OP, thread, "autograd::engine::evaluate_function: MmBackward0", at + 100,
	   at + 150, 0);
	if (own) {
		memory(at + 110, 2, LARGE);
		memory(at + 120, 3, SMALL);
		memory(at + 130, 1, -1000);
	}
	ev(seg, PL_K_HOST_OP, thread,
	   "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 152,
	   at + 190, 0);
	sized("torch::autograd::AccumulateGrad", at + 155, at + 160, "[[100, 1000]]");
	sized("torch::autograd::AccumulateGrad", at + 165, at + 170, "[[1000]]");
}

static void begin(bool steps)
{
	begin_trace();
	seg = segment();
	thread = track(seg, 0, -1, "100");
	if (steps)
		step(seg, thread, 1, 0, 1000);
}

/* What a rank holds. */
static void holds(const char *what)
{
	struct pl_memory_rank *rank = NULL;
	struct pl_err err = { 0 };
	struct pl_edit e = { 0 };
	struct pl_sim *s;
	size_t n = 0;

	if (!ok(build(), "%s", what))
		return;
	s = pl_sim_new(&graph, &err);
	if (!s || pl_sim_edit(s, 0, 1, &e, &err) < 0 ||
	    pl_memory_peak(&e, NULL, &rank, &n, &err) < 0)
		printf("# %s\n", err.msg);
	is_i64(n ? rank[0].params_bytes : -1, LARGE + SMALL, "the parameters, once");
	is_i64(n ? rank[0].grads_bytes : -1, LARGE + SMALL, "the gradients, once");
	pl_free(rank);
	pl_edit_fini(&e);
	pl_sim_free(s);
	end_trace();
}

int main(void)
{
	begin(true);
	pass(0, false);
	holds("one pass");

	begin(true);
	pass(0, false);
	pass(200, false);
	ev(seg, PL_K_HOST_OP, thread, "Optimizer.step#SGD.step", 400, 500, 0);
	holds("the second pass adds to the gradients of the first");

	begin(false);
	for (int64_t k = 0; k < 3; k++) {
		pass(1000 * k, true);
		ev(seg, PL_K_HOST_OP, thread, "Optimizer.step#SGD.step", 1000 * k + 400,
		   1000 * k + 500, 0);
		memory(1000 * k + 600, 2, -LARGE);
		memory(1000 * k + 610, 3, -SMALL);
	}
	holds("three steps in a recording without steps, each with new gradients");
	return done_testing();
}
