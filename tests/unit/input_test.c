/* Waiting for samples, and steps of other numbers of samples: recordings whose times are computed
 * by hand, as recorded and after a change. */
#include <math.h>

#include "graph_fixture.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

#define STEPS 4

static int64_t steps = STEPS;
static int paused = STEPS;   /* so many steps have the pause */
static bool outside;	     /* there is work before and behind the steps */
static int64_t second;	     /* a second loader reads for so long behind the first */
static const char *receives; /* an operation of the end of the pause; NULL: none */

static const char multiple[] = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
static const char single[] = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";

/* An operation whose inputs have these sizes. */
static void sized(uint32_t seg, pl_id on, const char *name, int64_t start, int64_t end,
		  const char *dims)
{
	uint32_t e = ev(seg, PL_K_HOST_OP, on, name, start, end, 0);

	inputs(seg, e, dims, "[\"float\", \"float\", \"float\"]");
}

/* Steps that read for a while, unless `reader` is NULL, and pause; then a forward and a backward
 * pass and the optimiser, 100 us each, with gaps of 2 us. */
static bool job(const char *reader, int64_t reading, int64_t pause)
{
	uint32_t s;
	pl_id h;
	int64_t at = 1000, length = reading + second + pause + 308;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	if (outside)
		ev(s, PL_K_HOST_OP, h, "aten::randn", 100, 900, 0);
	for (int64_t n = 0; n < steps; n++, at += length) {
		int64_t go = at + reading + second + pause;

		if (n >= paused)
			length = reading + 308, go -= pause;
		step(s, h, n, at, at + length);
		if (reader)
			ev(s, PL_K_DATA, h, reader, at, at + reading, 0);
		if (second)
			ev(s, PL_K_DATA, h, reader, at + reading, at + reading + second, 0);
		if (receives)
			ev(s, PL_K_HOST_OP, h, receives, go - 1, go + 1, 0);
		ev(s, PL_K_HOST_OP, h, "aten::linear", go + 2, go + 102, 0);
		ev(s, PL_K_HOST_OP, h, "autograd::engine::evaluate_function: MmBackward0", go + 104,
		   go + 204, 0);
		ev(s, PL_K_HOST_OP, h, "Optimizer.step#SGD.step", go + 206, go + 306, 0);
	}
	if (outside)
		ev(s, PL_K_HOST_OP, h, "aten::randn", at + 100, at + 900, 0);
	return ok(build(), "a job builds");
}

/* The mean step after a change, us; NAN: it failed. */
static double predicted(const char *line)
{
	struct pl_rewrite_basis basis = { 0 };
	struct pl_err err = { 0 };
	struct pl_sim *sim = pl_sim_new(&graph, &err);
	double mean = NAN;
	uint64_t hits = 0;
	struct pl_plan p;

	pl_plan_init(&p);
	if (!sim ||
	    (line && (pl_rewrite_add_line(&p, line, &err) < 0 ||
		      pl_rewrite_durations(sim, &graph, &p, NULL, &hits, &basis, &err) < 0)) ||
	    pl_sim_mean(sim, &mean, &err) < 0)
		printf("# %s\n", err.msg);
	pl_plan_fini(&p);
	pl_sim_free(sim);
	return mean / US;
}

static void is_step(const char *line, double us, const char *what)
{
	double mean = predicted(line);

	if (!ok(fabs(mean - us) < 0.01, "%s", what))
		printf("# %g us, and not %g\n", mean, us);
}

/* How many nodes of the first shape have this name. */
static int64_t count(const char *name)
{
	const struct pl_shape *s = &graph.shape[graph.step[graph.n_steps - 1].shape];
	int64_t n = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		n += !strcmp(pl_intern_get(&graph.str, s->name[i]), name);
	return n;
}

/* What stops only some steps may be anything. Work outside of steps is no step. */
static void some_steps(void)
{
	outside = true;
	for (paused = STEPS - 2; paused <= STEPS; paused++) {
		uint32_t found = 0;

		if (!job(NULL, 0, 400))
			return;
		for (size_t k = 0; k < graph.n_shapes; k++)
			for (uint32_t i = 0; i < graph.shape[k].n_nodes; i++)
				found += !strcmp(pl_intern_get(&graph.str, graph.shape[k].name[i]),
						 "waiting for input");
		ok(!found == (paused < STEPS - 1), "%d of %d steps pause: %s", paused, STEPS,
		   found ? "they wait for input" : "it may be anything");
		end_trace();
	}
	paused = STEPS;
	outside = false;
}

/* A stage of a pipeline gets its input from the stage before. */
static void stage(void)
{
	static const struct {
		const char *name;
		int64_t waits;
	} c[] = { { "c10d::recv_", 0 }, { "c10d::barrier", 0 }, { "c10d::broadcast_", 1 } };

	for (size_t i = 0; i < PL_LEN(c); i++) {
		receives = c[i].name;
		if (job(NULL, 0, 400))
			ok(count("waiting for input") == c[i].waits, "a pause before %s",
			   c[i].name);
		end_trace();
	}
	receives = NULL;
}

static void generator(void)
{
	const struct pl_shape *s;
	uint32_t i;

	if (!job(NULL, 0, 400))
		return;
	s = &graph.shape[0];
	i = node("waiting for input", PL_RO_GAP, 1000);
	ok(i != PL_NONE && s->phase[i] == PL_PH_INPUT && s->flags[i] & PL_NF_INFERRED,
	   "a long gap before the forward pass is input, and inferred");
	is_i64(count("waiting for input"), 1, "no other gap is");
	is_step(NULL, 708, "as recorded");
	is_step("scale phase=input by 0.5", 708 - 201, "a loader twice as fast");
	is_step("batch by 0.5", 708 - 201 - 100, "half the samples");
	end_trace();
	if (job(NULL, 0, 3))
		is_i64(count("waiting for input"), 0, "a short gap is none");
	end_trace();
	if (job(single, 300, 100))
		is_i64(count("waiting for input"), 0, "nor is one where reading was recorded");
	is_step("batch by 2", 708 + 300 + 200, "recorded reading grows with the samples");
	end_trace();
}

/* Workers that take 400 us for a batch; the rest of a step takes 308. */
static void loader_workers(void)
{
	if (!job(multiple, 92, 0))
		return;
	is_step(NULL, 400, "workers that are too slow, as recorded");
	is_step("scale phase=input by 0.9", 360,
		"a little faster: the wait is shorter by all of it");
	is_step("scale phase=input by 0.5", 308, "twice as fast: nothing waits");
	is_step("scale phase=input by 2", 800, "half as fast");
	is_step("batch by 0.5", 208, "half the samples");
	is_step("scale phase=optimizer by 0", (300 + 3 * 400) / 4.0,
		"a shorter step waits for longer, from the second on");
	end_trace();
	if (job(multiple, 4, 0))
		is_step("scale phase=input by 0.5", 310, "fast workers are not looked into");
	end_trace();
}

/* The workers of one loader take 404 us for a batch, those of another one are never late. */
static void two_loaders(void)
{
	second = 4;
	if (job(multiple, 92, 0)) {
		is_step(NULL, 404, "two loaders, as recorded");
		is_step("scale phase=input by 0.5", 310, "twice as fast: nothing waits for it");
	}
	end_trace();
	second = 0;
}

/* The mean step after a rewrite that changes more than durations, us; NAN: it failed, for the
 * reason in *err. */
static double rewritten(const char *line, struct pl_err *err)
{
	struct pl_sim *sim = pl_sim_new(&graph, err);
	struct pl_rewriter *r = NULL;
	struct pl_cost cost = { 0 };
	struct pl_edit e = { 0 };
	double mean = NAN, before;
	struct pl_plan p;

	pl_plan_init(&p);
	if (!sim || pl_cost_fit(&graph, NULL, &cost, err) < 0 ||
	    pl_sim_edit(sim, 0, graph.n_steps, &e, err) < 0 ||
	    !(r = pl_rewrite_new(&e, &cost, err)))
		goto out;
	before = pl_edit_mean_step(&e);
	if (pl_rewrite_add_line(&p, line, err) < 0 || pl_rewrite_plan(r, &p, err) < 0)
		goto out;
	mean = pl_edit_mean_step(&e) / US;
	pl_rewrite_undo(r, 0);
	ok(pl_edit_settle(&e, err) == 0 && pl_edit_mean_step(&e) == before, "%s is undone", line);
out:
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	pl_cost_fini(&cost);
	pl_plan_fini(&p);
	pl_sim_free(sim);
	return mean;
}

static void becomes(const char *line, double us, const char *what)
{
	struct pl_err err = { 0 };
	double mean = rewritten(line, &err);

	if (!ok(fabs(mean - us) < 0.01, "%s: %s", line, what))
		printf("# %g us, and not %g (%s)\n", mean, us, err.msg);
}

static void is_refused(const char *line, const char *why)
{
	struct pl_err err = { 0 };

	ok(isnan(rewritten(line, &err)) && strstr(err.msg, why), "%s is refused: %s", line,
	   err.msg);
}

static void number_of_workers(void)
{
	if (!job(single, 500, 0))
		return;
	is_step(NULL, 808, "a thread that reads, as recorded");
	becomes("workers 1", 500, "a worker that is too slow");
	becomes("loader-workers 2", 308, "two that are not");
	becomes("workers 5", 308, "more change nothing");
	is_refused("workers 0", "without workers");
	end_trace();
	if (!job(single, 300, 100))
		return;
	becomes("workers 1", 408, "what comes behind the batch stays");
	end_trace();
	if (!job(multiple, 92, 0))
		return;
	becomes("workers 1 was=1", 400, "as many workers as recorded");
	becomes("workers 2 was=1", 308, "one more");
	becomes("workers 1 was=2", 800, "one less");
	becomes("workers 3 was=4", 400 * 4 / 3.0, "three in place of four");
	becomes("workers 0 was=1", 708, "none: the thread reads");
	becomes("workers 0 was=2", 1108, "none in place of two");
	is_refused("workers 2", "was=M");
	end_trace();
	if (job(multiple, 4, 0))
		is_refused("workers 0 was=1", "waits for no batch");
	end_trace();
	if (job(NULL, 0, 3))
		is_refused("workers 2", "no loader");
	end_trace();
}

/* Batches that workers have read during a long first step, two for each, are all that they have
 * read by its end: the next ones come as they are read. */
static void read_ahead(void)
{
	paused = 1;
	if (job(single, 700, 3000))
		becomes("workers 1", (3308 + 308 + 308 + 392) / 4.0,
			"the fourth batch is begun when the second was taken");
	end_trace();
	steps = 8;
	if (job(single, 1400, 3000)) {
		becomes("workers 2", (3308 + 4 * 308 + 476 + 2 * 700) / 8.0,
			"the sixth batch is begun when the second was taken");
		becomes("workers 8", (3308 + 7 * 308) / 8.0, "eight have places for all");
	}
	end_trace();
	steps = STEPS;
	paused = STEPS;
}

/* Operations on samples, on parameters and without sizes. */
static void sizes(void)
{
	uint32_t s;
	pl_id h;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	step(s, h, 1, 0, 1000);
	sized(s, h, "aten::addmm", 0, 100, "[[16], [8, 32], [32, 16]]");
	sized(s, h, "aten::gelu", 100, 200, "[[8, 16]]");
	ev(s, PL_K_HOST_OP, h, "aten::view", 200, 300, 0);
	ev(s, PL_K_HOST_OP, h, "autograd::engine::evaluate_function: AddmmBackward0", 300, 450, 0);
	sized(s, h, "aten::mm", 300, 400, "[[16, 8], [8, 32]]");
	ev(s, PL_K_HOST_OP, h,
	   "autograd::engine::evaluate_function: torch::autograd::Accumulate"
	   "Grad",
	   450, 700, 0);
	sized(s, h, "torch::autograd::AccumulateGrad", 450, 550, "[[16, 32]]");
	sized(s, h, "aten::copy_", 550, 700, "[[32, 16], [512]]");
	ev(s, PL_K_HOST_OP, h, "Optimizer.step#SGD.step", 700, 1000, 0);
	if (!ok(build(), "a step with sizes builds"))
		return;
	is_step("batch by 0.5", 1000 - 50 - 50 - 50, "what has samples changes, and nothing else");
	end_trace();
}

int main(void)
{
	generator();
	some_steps();
	stage();
	loader_workers();
	two_loaders();
	number_of_workers();
	read_ahead();
	sizes();
	return done_testing();
}
