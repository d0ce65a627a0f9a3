/* Phase, module and work of operations, from recorded ranges, names, sizes and types. */
#include <string.h>

#include "graph_fixture.h"

static void sizes(uint32_t seg, uint32_t e, const char *dims, const char *types)
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

static const struct pl_gwork *work_of(uint32_t node)
{
	static const struct pl_gwork none = { .flops = -2 };
	const struct pl_shape *s = &graph.shape[0];

	return node == PL_NONE || !s->work || s->work[node] == PL_NONE ? &none
								       : &graph.work[s->work[node]];
}

static bool is_in(uint32_t node, unsigned phase, const char *module)
{
	const struct pl_shape *s = &graph.shape[0];
	const char *m = node == PL_NONE || !s->module || s->module[node] == PL_NONE
				? NULL
				: pl_intern_get(&graph.str, s->module[node]);

	if (node == PL_NONE)
		return false;
	if (s->phase[node] != phase || !m != !module || (m && strcmp(m, module) != 0)) {
		printf("# %s in %s\n", pl_graph_phase_name(s->phase[node]), m ? m : "no module");
		return false;
	}
	return true;
}

/* A step as PyTorch records it: modules, the backward pass on its thread, the optimiser. */
static void one_step(void)
{
	uint32_t s, e;
	pl_id h, t, d;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	t = track(s, 0, -1, "101");
	d = track(s, 0, 7, "7");
	step(s, h, 1, 0, 1000);
	ev(s, PL_K_HOST_OP, h, "aten::convert_element_type", 5, 9, 0);
	ev(s, PL_K_PYTHON, h, "nn.Module: Net_0", 10, 200, 0);
	ev(s, PL_K_PYTHON, h, "nn.Module: Linear_1", 20, 150, 0);
	ev(s, PL_K_PYTHON, h, "forward(self, x)", 22, 148, 0);
	e = ev(s, PL_K_HOST_OP, h, "aten::addmm", 30, 100, 0);
	sizes(s, e, "[[16], [8, 32], [32, 16], [], []]",
	      "[\"float\", \"float\", \"float\", \"Scalar\", \"Scalar\"]");
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 40, 45, 1);
	ev(s, PL_K_HOST_OP, h, "aten::relu", 160, 190, 0);
	ev(s, PL_K_HOST_OP, t, "autograd::engine::evaluate_function: AddmmBackward0", 300, 400, 0);
	ev(s, PL_K_HOST_OP, t, "aten::view", 310, 320, 0);
	ev(s, PL_K_HOST_OP, t, "flash_attn::_flash_attn_forward", 330, 340, 0);
	ev(s, PL_K_HOST_OP, t, "torch::autograd::AccumulateGrad", 420, 430, 0);
	ev(s, PL_K_ANNOTATION, h, "Optimizer.step#SGD.step", 500, 700, 0);
	ev(s, PL_K_HOST_OP, h, "aten::_foreach_add_", 510, 600, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 520, 525, 2);
	ev(s, PL_K_HOST_OP, h, "aten::item", 800, 900, 0);
	ev(s, PL_K_KERNEL, d, "plain", 50, 90, 1);
	ev(s, PL_K_KERNEL, d, "another", 530, 560, 2);
	if (!ok(build(), "a step builds"))
		return;
	ok(is_in(node("aten::addmm", PL_RO_HOST, 30), PL_PH_FORWARD, "Net_0.Linear_1"),
	   "an operation is of the module around it, with its path");
	ok(is_in(node("plain", PL_RO_COMPUTE, 50), PL_PH_FORWARD, "Net_0.Linear_1"),
	   "a kernel is of the module of its launch");
	ok(is_in(node("aten::relu", PL_RO_HOST, 160), PL_PH_FORWARD, "Net_0"),
	   "behind the inner module the outer one");
	ok(is_in(node("aten::convert_element_type", PL_RO_HOST, 5), PL_PH_FORWARD, NULL),
	   "before the modules none");
	ok(is_in(node("aten::view", PL_RO_HOST, 310), PL_PH_BACKWARD, NULL),
	   "what runs in a backward operation is backward");
	ok(is_in(node("flash_attn::_flash_attn_forward", PL_RO_HOST, 330), PL_PH_BACKWARD, NULL),
	   "so is what it computes again");
	ok(is_in(node("torch::autograd::AccumulateGrad", PL_RO_HOST, 420), PL_PH_WEIGHT_GRAD, NULL),
	   "the gradient of a weight");
	ok(is_in(node("aten::_foreach_add_", PL_RO_HOST, 510), PL_PH_OPTIMIZER, NULL),
	   "what runs in the optimiser's range is its");
	ok(is_in(node("another", PL_RO_COMPUTE, 530), PL_PH_OPTIMIZER, NULL),
	   "and so are its kernels");
	ok(is_in(node("aten::item", PL_RO_HOST, 800), PL_PH_OTHER, NULL), "behind all: other");
	e = node("plain", PL_RO_COMPUTE, 50);
	is_i64(work_of(e)->op, PL_OP_MATMUL, "a kernel computes what its operator says");
	is_i64(work_of(e)->flops, 2 * 8 * 32 * 16, "floating-point operations of a product");
	is_i64(work_of(e)->bytes, 4 * (16 + 8 * 32 + 32 * 16 + 8 * 16), "bytes in and out");
	ok(!strcmp(pl_intern_get(&graph.str, work_of(e)->type), "float32"), "its type");
	is_i64(work_of(node("aten::convert_element_type", PL_RO_HOST, 5))->flops, -2,
	       "convert is no convolution, and says no sizes");
	end_trace();
}

/* Steps that differ in sizes alone stay one shape. */
static void other_sizes(void)
{
	uint32_t s;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	for (int k = 0; k < 5; k++) {
		char dims[64];

		snprintf(dims, sizeof(dims), "[[%d, 4], [4, 6]]", k + 2);
		step(s, h, k, 1000 * k, 1000 * k + 900);
		sizes(s, ev(s, PL_K_HOST_OP, h, "aten::mm", 1000 * k + 10, 1000 * k + 500, 0), dims,
		      "[\"c10::Half\", \"c10::Half\"]");
	}
	if (!ok(build(), "five steps build"))
		return;
	ok(graph.step[1].shape == graph.step[2].shape && graph.step[1].shape == graph.step[3].shape,
	   "sizes do not make another shape");
	is_i64(work_of(node("aten::mm", PL_RO_COMPUTE, 10))->flops, 2 * 2 * 4 * 6,
	       "the work is that of the first step of the shape");
	end_trace();
}

int main(void)
{
	one_step();
	other_sizes();
	return done_testing();
}
