/* Phase, module and work of operations, from recorded ranges, names, sizes and types. */
#include <string.h>

#include "graph_fixture.h"

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
	inputs(s, e, "[[16], [8, 32], [32, 16], [], []]",
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

static void numbered(uint32_t s, pl_id t, const char *name, pl_ns from, pl_ns to)
{
	number(s, ev(s, PL_K_HOST_OP, t, name, from, to, 0), from);
}

/* A backward pass that makes activations again, or one whose gradients are differentiated. */
static void recomputation(bool layers, bool gradients)
{
	uint32_t s;
	pl_id h, t, d;
	unsigned want = layers && !gradients ? PL_PH_RECOMPUTATION : PL_PH_BACKWARD;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	t = track(s, 0, -1, "101");
	d = track(s, 0, 7, "7");
	step(s, h, 1, 0, 1000);
	numbered(s, h, "aten::linear", 30, 100);
	ev(s, PL_K_HOST_OP, t, "autograd::engine::evaluate_function: ReluBackward0", 300, 500, 0);
	numbered(s, t, "ReluBackward0", 305, 495);
	numbered(s, t, layers ? "aten::linear" : "aten::mm", 310, 350);
	ev(s, PL_K_HOST_OP, t, "aten::addmm", 315, 340, 0);
	ev(s, PL_K_RUNTIME, t, "cudaLaunchKernel", 320, 325, 1);
	ev(s, PL_K_KERNEL, d, "again", 330, 380, 1);
	numbered(s, t, "own::attention_forward", 360, 380);
	if (gradients)
		numbered(s, t, "aten::threshold_backward", 390, 400);
	ev(s, PL_K_HOST_OP, t, "aten::threshold_backward", 410, 450, 0);
	if (layers)
		ev(s, PL_K_HOST_OP, t, "Linear.forward", 451, 459, 0);
	ev(s, PL_K_HOST_OP, t, "aten::mm", 460, 470, 0);
	if (!ok(build(), "a step with numbered operations builds"))
		return;
	ok(is_in(node("aten::linear", PL_RO_HOST, 30), PL_PH_FORWARD, NULL),
	   "in the forward pass they say nothing");
	ok(is_in(node("aten::addmm", PL_RO_HOST, 315), want, NULL), "in the backward pass: %s",
	   pl_graph_phase_name(want));
	ok(is_in(node("again", PL_RO_COMPUTE, 330), want, NULL), "and what they launch");
	ok(is_in(node("own::attention_forward", PL_RO_HOST, 360), want, NULL),
	   "operations of other libraries, too");
	ok(!layers || is_in(node("Linear.forward", PL_RO_HOST, 451), want, NULL),
	   "calls of modules, too");
	ok(is_in(node("aten::threshold_backward", PL_RO_HOST, 410), PL_PH_BACKWARD, NULL) &&
		   is_in(node("aten::mm", PL_RO_HOST, 460), PL_PH_BACKWARD, NULL),
	   "what has no number is the gradient");
	end_trace();
}

/* A hook of the backward pass that updates a parameter as soon as it has its gradient. */
static void update_in_backward(void)
{
	uint32_t s;
	pl_id t, d;

	begin_trace();
	s = segment();
	t = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	step(s, t, 1, 0, 1000);
	ev(s, PL_K_HOST_OP, t, "aten::linear", 30, 100, 0);
	ev(s, PL_K_HOST_OP, t, "torch::autograd::AccumulateGrad", 200, 500, 0);
	ev(s, PL_K_ANNOTATION, t, "Optimizer.step#SGD.step", 215, 400, 0);
	ev(s, PL_K_HOST_OP, t, "aten::add_", 220, 300, 0);
	ev(s, PL_K_HOST_OP, t, "aten::copy_", 240, 250, 0);
	ev(s, PL_K_RUNTIME, t, "cudaLaunchKernel", 242, 245, 1);
	ev(s, PL_K_KERNEL, d, "update", 260, 280, 1);
	ev(s, PL_K_HOST_OP, t, "aten::mul_", 350, 380, 0);
	ev(s, PL_K_HOST_OP, t, "aten::detach", 450, 460, 0);
	ev(s, PL_K_HOST_OP, t, "MmBackward0", 600, 700, 0);
	if (!ok(build(), "a step whose backward pass updates builds"))
		return;
	ok(is_in(node("aten::add_", PL_RO_HOST, 220), PL_PH_OPTIMIZER, NULL) &&
		   is_in(node("aten::copy_", PL_RO_HOST, 240), PL_PH_OPTIMIZER, NULL),
	   "operations of the update");
	ok(is_in(node("update", PL_RO_COMPUTE, 260), PL_PH_OPTIMIZER, NULL), "its kernel");
	ok(is_in(node("torch::autograd::AccumulateGrad", PL_RO_HOST, 200), PL_PH_WEIGHT_GRAD, NULL),
	   "what comes before it");
	ok(is_in(node("torch::autograd::AccumulateGrad", PL_RO_HOST, 300), PL_PH_OPTIMIZER, NULL),
	   "the time between its operations");
	ok(is_in(node("aten::detach", PL_RO_HOST, 450), PL_PH_WEIGHT_GRAD, NULL),
	   "what comes after it");
	ok(is_in(node("MmBackward0", PL_RO_HOST, 600), PL_PH_BACKWARD, NULL),
	   "the rest of the pass");
	end_trace();
}

/* A forward pass behind the optimiser, which nothing but its range calls forward. */
static void evaluation(void)
{
	uint32_t s;
	pl_id h, d;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	step(s, h, 1, 0, 1000);
	ev(s, PL_K_ANNOTATION, h, "DistributedDataParallel.forward", 10, 50, 0);
	ev(s, PL_K_HOST_OP, h, "aten::first", 20, 40, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 30, 35, 1);
	ev(s, PL_K_HOST_OP, h, "MmBackward0", 100, 110, 0);
	ev(s, PL_K_ANNOTATION, h, "Optimizer.step#SGD.step", 200, 250, 0);
	ev(s, PL_K_HOST_OP, h, "aten::add_", 210, 220, 0);
	ev(s, PL_K_ANNOTATION, h, "DistributedDataParallel.forward", 300, 400, 0);
	ev(s, PL_K_HOST_OP, h, "aten::again", 310, 390, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 320, 330, 2);
	ev(s, PL_K_KERNEL, d, "late", 350, 380, 1);
	ev(s, PL_K_KERNEL, d, "evaluates", 390, 410, 2);
	if (!ok(build(), "a step with an evaluation builds"))
		return;
	ok(is_in(node("aten::first", PL_RO_HOST, 20), PL_PH_FORWARD, NULL), "trains");
	ok(is_in(node("late", PL_RO_COMPUTE, 350), PL_PH_FORWARD, NULL),
	   "so does a kernel that runs late");
	ok(is_in(node("aten::again", PL_RO_HOST, 310), PL_PH_OTHER, NULL), "evaluates");
	ok(is_in(node("evaluates", PL_RO_COMPUTE, 390), PL_PH_OTHER, NULL), "so does its kernel");
	end_trace();
}

/* torch.compile, recorded with stacks: one file has the functions that compile, and those that run
 * what was compiled. */
static void compiled(void)
{
	static const struct {
		unsigned kind;
		const char *name;
		bool compiles;
	} rows[] = {
		{ PL_K_PYTHON, "torch/_inductor/compile_fx.py(944): run", false },
		{ PL_K_PYTHON, "/opt/lib/torch/_inductor/compile_fx.py(1010): wrapper", false },
		{ PL_K_PYTHON, "torch/_inductor/compile_fx.py(1201): compile_fx", true },
		{ PL_K_PYTHON, "torch/_inductor/compile_fx.py(556): _compile_fx_inner", true },
		{ PL_K_PYTHON, "torch/_inductor/compile_fx.py(661): fx_codegen_and_compile", true },
		{ PL_K_PYTHON, "torch/_inductor/compile_fx.py(1318): fw_compiler_base", true },
		{ PL_K_PYTHON, "torch/_dynamo/convert_frame.py(1100): __call__", true },
		{ PL_K_ANNOTATION, "compile_fx.<locals>.fw_compiler_base (dynamo_timed)", true },
		{ PL_K_ANNOTATION, "compile_fx_inner (dynamo_timed)", true },
	};
	uint32_t s;
	pl_id h, d;

	for (size_t i = 0; i < PL_LEN(rows); i++) {
		unsigned want = rows[i].compiles ? PL_PH_COMPILATION : PL_PH_FORWARD;

		begin_trace();
		s = segment();
		h = track(s, 0, -1, "100");
		d = track(s, 0, 7, "7");
		step(s, h, 1, 0, 1000);
		ev(s, rows[i].kind, h, rows[i].name, 10, 300, 0);
		ev(s, PL_K_HOST_OP, h, "aten::mm", 20, 200, 0);
		ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 30, 40, 1);
		ev(s, PL_K_HOST_OP, h, "MmBackward0", 400, 500, 0);
		ev(s, PL_K_ANNOTATION, h, "Optimizer.step#SGD.step", 600, 700, 0);
		ev(s, PL_K_KERNEL, d, "product", 50, 190, 1);
		ok(build() && is_in(node("aten::mm", PL_RO_HOST, 20), want, NULL) &&
			   is_in(node("product", PL_RO_COMPUTE, 50), want, NULL),
		   "%s: %s", rows[i].name, pl_graph_phase_name(want));
		end_trace();
	}
}

/* Two steps, or none, in which a function evaluates until `until`; its products are an evaluation
 * only if the rank does something else too. */
static void job_that_evaluates(bool steps, bool trains, pl_ns until, bool want)
{
	const char *name = trains ? "MmBackward0" : "aten::add";
	const struct pl_shape *sh;
	uint32_t s, i;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	ev(s, PL_K_PYTHON, h, "lm_eval/evaluator.py(52): evaluate", 0, until, 0);
	for (int k = 0; k < 2; k++) {
		if (steps)
			step(s, h, k, 1000 * k, 1000 * k + 990);
		ev(s, PL_K_HOST_OP, h, "aten::mm", 1000 * k + 10, 1000 * k + 400, 0);
		ev(s, PL_K_ANNOTATION, h, "validate", 1000 * k + 500, 1000 * k + 600, 0);
		ev(s, PL_K_HOST_OP, h, name, 1000 * k + 510, 1000 * k + 590, 0);
		ev(s, PL_K_HOST_OP, h, "aten::relu", 1000 * k + 700, 1000 * k + 980, 0);
	}
	if (!ok(build(), "a job that evaluates builds"))
		return;
	sh = &graph.shape[0];
	i = node("aten::mm", PL_RO_COMPUTE, 10);
	ok(i != PL_NONE && (sh->phase && sh->phase[i] == PL_PH_EVALUATION) == want,
	   "%s %s until %d us: %s", steps ? "steps" : "no steps",
	   trains ? "with a backward pass" : "without one", (int)until,
	   want ? "an evaluation" : "the job");
	end_trace();
}

/* A batch in two parts, then the optimiser. */
static void several_passes(void)
{
	uint32_t s;
	pl_id h, d;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	d = track(s, 0, 7, "7");
	step(s, h, 1, 0, 1000);
	ev(s, PL_K_HOST_OP, h, "aten::first", 10, 20, 0);
	ev(s, PL_K_HOST_OP, h, "MmBackward0", 100, 110, 0);
	ev(s, PL_K_HOST_OP, h, "aten::second", 200, 220, 0);
	ev(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 205, 210, 1);
	ev(s, PL_K_HOST_OP, h, "MmBackward0", 300, 310, 0);
	ev(s, PL_K_KERNEL, d, "late", 380, 390, 1);
	ev(s, PL_K_HOST_OP, h, "aten::clip", 400, 410, 0);
	ev(s, PL_K_ANNOTATION, h, "Optimizer.step#SGD.step", 500, 550, 0);
	ev(s, PL_K_HOST_OP, h, "aten::add_", 510, 520, 0);
	ev(s, PL_K_HOST_OP, h, "aten::item", 800, 900, 0);
	if (!ok(build(), "a step of several passes builds"))
		return;
	ok(is_in(node("aten::first", PL_RO_HOST, 10), PL_PH_FORWARD, NULL), "the first part");
	ok(is_in(node("aten::second", PL_RO_HOST, 200), PL_PH_FORWARD, NULL),
	   "the second part is forward, though it follows backward work");
	ok(is_in(node("late", PL_RO_COMPUTE, 380), PL_PH_FORWARD, NULL),
	   "so is a kernel that begins after the last backward operation was issued");
	ok(is_in(node("aten::clip", PL_RO_HOST, 400), PL_PH_OTHER, NULL),
	   "between backward pass and optimiser: other");
	ok(is_in(node("aten::item", PL_RO_HOST, 800), PL_PH_OTHER, NULL), "at the end: other");
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
		inputs(s, ev(s, PL_K_HOST_OP, h, "aten::mm", 1000 * k + 10, 1000 * k + 500, 0),
		       dims, "[\"c10::Half\", \"c10::Half\"]");
	}
	if (!ok(build(), "five steps build"))
		return;
	ok(graph.step[1].shape == graph.step[2].shape && graph.step[1].shape == graph.step[3].shape,
	   "sizes do not make another shape");
	is_i64(work_of(node("aten::mm", PL_RO_COMPUTE, 10))->flops, 2 * 2 * 4 * 6,
	       "the work is that of the first step of the shape");
	end_trace();
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* A convolution as PyTorch records it. */
struct conv {
	int n, in, out, groups, dims; /* samples, channels; one to three dimensions */
	int size[3], width[3], stride[3], padding[3], dilation[3];
	bool transposed;
};

static int out_size(const struct conv *c, int d)
{
	int span = c->dilation[d] * (c->width[d] - 1) + 1;

	return c->transposed ? (c->size[d] - 1) * c->stride[d] - 2 * c->padding[d] + span
			     : (c->size[d] + 2 * c->padding[d] - span) / c->stride[d] + 1;
}

/* Multiplications and additions, counted one by one: of each sample and each place of the filter,
 * each pair of channels of a group that meets in each element of the filter. */
static int64_t count(const struct conv *c)
{
	int64_t n = 0;
	int at[3] = { 1, 1, 1 }, width[3] = { 1, 1, 1 };

	for (int d = 0; d < c->dims; d++) {
		at[d] = c->transposed ? c->size[d] : out_size(c, d);
		width[d] = c->width[d];
	}
	for (int s = 0; s < c->n; s++)
		for (int p = 0; p < at[0] * at[1] * at[2]; p++)
			for (int i = 0; i < c->in; i++)
				for (int o = 0; o < c->out; o++)
					if (i / (c->in / c->groups) == o / (c->out / c->groups))
						n += 2 * width[0] * width[1] * width[2];
	return n;
}

/* "[first, second, v...]"; the first two are left out if below 0. */
static char *list(char *text, int first, int second, const int *v, int n)
{
	char *p = text + sprintf(text, "[");

	if (first >= 0)
		p += sprintf(p, "%d, %d, ", first, second);
	for (int i = 0; i < n; i++)
		p += sprintf(p, "%s%d", i ? ", " : "", v[i]);
	strcpy(p, "]");
	return text;
}

static int64_t measured(const char *name, const char *dims, const char *types, const char *values,
			int64_t *bytes)
{
	uint32_t s, e;
	int64_t flops;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	step(s, h, 1, 0, 1000);
	e = ev(s, PL_K_HOST_OP, h, name, 30, 100, 0);
	inputs(s, e, dims, types);
	trace.seg[s]->values = need(MAX_EV, sizeof(pl_id));
	memset(trace.seg[s]->values, 0xff, MAX_EV * sizeof(pl_id));
	trace.seg[s]->values[e] = string(s, values);
	flops = build() ? work_of(node(name, PL_RO_COMPUTE, 30))->flops : -3;
	*bytes = work_of(node(name, PL_RO_COMPUTE, 30))->bytes;
	end_trace();
	return flops;
}

static int64_t flops_of(const char *name, const char *dims, const char *values, int64_t *bytes)
{
	return measured(name, dims,
			strstr(name, "backward")
				? "[\"float\", \"float\", \"float\", \"\", \"\", \"\"]"
				: "[\"float\", \"float\", \"\", \"\", \"\", \"\"]",
			values, bytes);
}

static bool is_counted(const struct conv *c)
{
	char in[64], filter[64], out[64], s[64], p[64], d[64], dims[256], values[512];
	const int zero[3] = { 0 };
	int to[3];
	int64_t bytes, n = count(c),
		       elements[3] = { c->n * c->in, c->in * c->out / c->groups, c->n * c->out };
	bool good;

	for (int i = 0; i < c->dims; i++) {
		to[i] = out_size(c, i);
		elements[0] *= c->size[i];
		elements[1] *= c->width[i];
		elements[2] *= to[i];
	}
	list(in, c->n, c->in, c->size, c->dims);
	list(filter, c->transposed ? c->in : c->out, (c->transposed ? c->out : c->in) / c->groups,
	     c->width, c->dims);
	list(out, c->n, c->out, to, c->dims);
	list(s, -1, 0, c->stride, c->dims);
	list(p, -1, 0, c->padding, c->dims);
	list(d, -1, 0, c->dilation, c->dims);
	snprintf(dims, sizeof(dims), "[%s, %s, [], [], [], [], []]", in, filter);
	snprintf(values, sizeof(values),
		 "[\"\", \"\", \"\", \"%s\", \"%s\", \"%s\", \"%s\", \"%s\", \"%d\"]", s, p, d,
		 c->transposed ? "True" : "False", list(out, -1, 0, zero, c->dims), c->groups);
	good = flops_of("aten::convolution", dims, values, &bytes) == n;
	good &= bytes == 4 * (elements[0] + elements[1] + elements[2]);
	if (!c->transposed) {
		char word[8];

		snprintf(word, sizeof(word), "conv%dd", c->dims);
		snprintf(values, sizeof(values),
			 "[\"\", \"\", \"\", \"%s\", \"%s\", \"%s\", \"%d\"]", s, p, d, c->groups);
		snprintf(out, sizeof(out), "aten::%s", word);
		good &= flops_of(out, dims, values, &bytes) == n;
		snprintf(values, sizeof(values), "[\"\", \"\", \"%s\", \"%s\", \"%s\", \"%d\"]", p,
			 s, d, c->groups);
		good &= flops_of("aten::cudnn_convolution", dims, values, &bytes) == n;
	}
	snprintf(dims, sizeof(dims), "[%s, %s, %s, [], [], [], []]",
		 list(out, c->n, c->out, to, c->dims), in, filter);
	for (int mask = 1; mask < 4; mask++) {
		snprintf(values, sizeof(values),
			 "[\"\", \"\", \"\", \"[%d]\", \"%s\", \"%s\", \"%s\", \"%s\", \"[0]\", "
			 "\"%d\", \"[%s, %s, True]\"]",
			 c->out, s, p, d, c->transposed ? "True" : "False", c->groups,
			 mask & 1 ? "True" : "False", mask & 2 ? "True" : "False");
		good &= flops_of("aten::convolution_backward", dims, values, &bytes) ==
			n * (1 + (mask == 3));
		good &= bytes == 4 * (elements[0] * (1 + (mask & 1)) + elements[2] +
				      elements[1] * (1 + (mask >> 1)));
	}
	if (!good)
		printf("# %s %s stride %s padding %s dilation %s groups %d%s\n", in, filter, s, p,
		       d, c->groups, c->transposed ? ", transposed" : "");
	return good;
}

static void convolutions(void)
{
	uint64_t rng = 5;
	int64_t bytes;
	int good = 0, all = 0;

	for (; all < 40; all++) {
		struct conv c = { .n = 1 + (int)(pl_rng_next(&rng) % 3),
				  .groups = 1 + (int)(pl_rng_next(&rng) % 3),
				  .dims = 1 + (int)(pl_rng_next(&rng) % 3),
				  .transposed = pl_rng_next(&rng) % 4 == 0 };

		c.in = c.groups * (1 + (int)(pl_rng_next(&rng) % 3));
		c.out = c.groups * (1 + (int)(pl_rng_next(&rng) % 3));
		for (int d = 0; d < c.dims; d++) {
			c.width[d] = 1 + (int)(pl_rng_next(&rng) % 3);
			c.stride[d] = 1 + (int)(pl_rng_next(&rng) % 3);
			c.padding[d] = (int)(pl_rng_next(&rng) % (uint64_t)c.width[d]);
			c.dilation[d] = 1 + (int)(pl_rng_next(&rng) % 2);
			c.size[d] = 5 + (int)(pl_rng_next(&rng) % 6);
		}
		good += is_counted(&c);
	}
	is_i64(good, all, "operations of convolutions and their gradients, as counted one by one");
	is_i64(flops_of("aten::conv2d", "[[1, 2, 8, 8], [4, 2, 3, 3], [], [], [], [], []]",
			"[\"\", \"\", \"\", \"[1]\", \"[1]\", \"[1]\", \"1\"]", &bytes),
	       2 * 64 * 4 * 2 * 9, "one number for all dimensions");
	is_i64(flops_of("aten::conv2d", "[[1, 2, 8, 8], [4, 2, 3, 3], [], [], [], [], []]", "",
			&bytes),
	       -1, "without settings nothing is known");
	is_i64(flops_of("aten::conv2d",
			"[[1, 2, 4000000000000000000, 8], [4, 2, 3, 3], [], [], [], [], []]",
			"[\"\", \"\", \"\", \"[1, 1]\", \"[9999999999, 1]\", \"[1, 1]\", \"1\"]",
			&bytes),
	       -1, "nor with settings beyond all measure");
}

#define F  "\"float\""
#define F2 "[" F ", " F ", \"\", \"\", \"\", \"\", \"\", \"\"]"
#define F3 "[" F ", " F ", " F ", \"\", \"\", \"\", \"\", \"\"]"
#define F4 "[" F ", " F ", " F ", " F "]"
#define F5 "[" F ", " F ", " F ", " F ", " F ", \"\", \"\", \"\"]"

#define BEYOND "4611686018427387905"

/* Operations as PyTorch 2.15 records them, and what its own counter of FLOPs says of them, where it
 * counts them. Its counter takes no masks into account. */
static void recorded(void)
{
	static const struct {
		const char *name, *dims, *types, *values;
		int64_t flops, elements; /* elements: read and written */
	} rows[] = {
		{ "aten::linear", "[[37], [53, 37], [53]]", F3, "", 3922, 37 + 54 * 37 + 16 + 53 },
		{ "aten::linear", "[[5, 11, 37], [53, 37], []]", F2, "", 215710,
		  55 * 37 + 53 * 37 + 55 * 53 },
		{ "aten::baddbmm", "[[3, 7, 9], [3, 7, 13], [3, 13, 9]]", F3, "", 4914,
		  3 * (63 + 91 + 117 + 63) },
		{ "aten::matmul", "[[7, 13], [3, 13, 9]]", F2, "", 4914, 91 + 351 + 189 },
		{ "aten::matmul", "[[2, 1, 7, 13], [1, 3, 13, 9]]", F2, "", 9828, 182 + 351 + 378 },
		{ "aten::matmul", "[[2, 7, 13], [3, 13, 9]]", F2, "", -1, -1 },
		{ "aten::mv", "[[7, 13], [13]]", F2, "", 182, 91 + 13 + 7 },
		{ "aten::addmv", "[[7], [7, 13], [13]]", F3, "", 182, 7 + 91 + 13 + 7 },
		{ "aten::_scaled_mm", "[[64, 32], [32, 16], [64, 1], [1, 16]]",
		  "[\"c10::Float8_e4m3fn\", \"c10::Float8_e4m3fn\", \"float\", \"float\"]", "",
		  2 * 64 * 32 * 16, 0 },
		{ "aten::thnn_conv2d", "[[2, 6, 17, 19], [12, 6, 3, 3], [], [12], [], []]",
		  "[" F ", " F ", \"ScalarList\", " F "]",
		  "[\"\", \"\", \"[3, 3]\", \"\", \"[1, 1]\", \"[0, 0]\"]", 660960, 10656 },
		{ "aten::_slow_conv2d_backward", "[[2, 12, 15, 17], [2, 6, 17, 19], [12, 6, 3, 3]]",
		  F3,
		  "[\"\", \"\", \"\", \"[3, 3]\", \"[1, 1]\", \"[0, 0]\", \"[True, True, True]\"]",
		  1321920, 15168 },
		{ "aten::conv_transpose2d", "[[2, 6, 17, 19], [6, 4, 3, 3], []]", F2,
		  "[\"\", \"\", \"\", \"[2, 2]\", \"[1, 1]\", \"[1, 1]\", \"3\", \"[1, 1]\"]",
		  279072, 2 * 6 * 17 * 19 + 6 * 4 * 9 + 2 * 12 * 34 * 38 },
		{ "aten::scaled_dot_product_attention",
		  "[[2, 6, 16, 8], [2, 2, 24, 8], [2, 2, 24, 10]]", F3, "",
		  2 * 12 * 16 * 24 * (8 + 10), 12 * 16 * 8 + 4 * 24 * 18 + 12 * 16 * 10 },
		{ "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
		  "[[2, 3, 16, 8], [2, 3, 16, 8], [2, 3, 24, 8], [2, 3, 24, 8], [2, 3, 16, 8]]", F5,
		  "", 184320, 6 * 8 * (16 * 3 + 24 * 2 + 16 + 24 * 2) },
		{ "aten::_flash_attention_forward", "[[2, 16, 3, 8], [2, 24, 3, 8], [2, 24, 3, 8]]",
		  F3, "", 73728, 6 * 8 * (16 + 24 + 24 + 16) },
		{ "aten::_efficient_attention_forward",
		  "[[2, 16, 3, 8], [2, 24, 3, 8], [2, 24, 3, 8]]", F3, "", 73728,
		  6 * 8 * (16 + 24 + 24 + 16) },
		{ "aten::_efficient_attention_forward",
		  "[[1, 32, 3, 8], [1, 48, 3, 8], [1, 48, 3, 8], [], [3], [3]]",
		  "[" F ", " F ", " F ", \"\", \"int\", \"int\"]", "", -1, -1 },
		/* sizes whose sums and products overflow, the last to a positive number */
		{ "aten::_flash_attention_forward",
		  "[[1, " BEYOND ", 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]", F3, "", -1, -1 },
		{ "aten::_flash_attention_backward",
		  "[[1, 1, 1, 1], [1, 1, 1, 3], [" BEYOND ", 1, 1, 1], [" BEYOND ", 1, 1, 1]]", F4,
		  "", 22, -1 },
		{ "aten::convolution_backward",
		  "[[1, 1, 1], [1, 1, " BEYOND "], [1, 1, " BEYOND "]]", F3,
		  "[\"\", \"\", \"\", \"\", \"\", \"\", \"\", \"False\", \"\", \"\", \"[True, "
		  "True]\"]",
		  -1, -1 },
		{ "aten::_flash_attention_backward",
		  "[[1, 1, 1, 1], [1, 1, 1, 6917529027641081856], [1, 1, 1, 1], [1, 1, 1, 1]]", F4,
		  "", -1, -1 },
	};

	for (size_t i = 0; i < PL_LEN(rows); i++) {
		int64_t bytes, flops = measured(rows[i].name, rows[i].dims, rows[i].types,
						rows[i].values, &bytes);

		is_i64(flops, rows[i].flops, rows[i].name);
		if (rows[i].elements)
			is_i64(bytes, rows[i].elements < 0 ? -1 : 4 * rows[i].elements,
			       "its bytes");
	}
}

int main(void)
{
	convolutions();
	recorded();
	one_step();
	several_passes();
	update_in_backward();
	evaluation();
	compiled();
	job_that_evaluates(true, false, 2000, false);
	job_that_evaluates(true, false, 1950, false);
	job_that_evaluates(true, false, 1500, true);
	job_that_evaluates(true, true, 2000, true);
	job_that_evaluates(false, false, 2000, false);
	job_that_evaluates(false, false, 1000, true);
	recomputation(true, false);
	recomputation(true, true);
	recomputation(false, false);
	other_sizes();
	return done_testing();
}
