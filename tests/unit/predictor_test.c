/*
 * What-ifs with a cost model of kernels: a law that the test knows, a model that learned it from
 * measurements, a job whose operations follow it, and the same job with another batch, on another
 * device and in another precision.
 *
 * The law has what no recording of one batch shows: products that do not fit into a cache take
 * longer.
 */
#include <math.h>

#include "cost/predictor.h"
#include "graph_fixture.h"
#include "kernel/device.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

#define STEPS	3
#define FIXED	1500
#define CACHE	(1 << 20) /* bytes of matrices that fit */
#define SLOWER	0.8	  /* by that much, of products that do not */
#define SAMPLES 500

static const int64_t widths[] = { 96, 256, 640, 384, 768, 512, 160, 320, 64 };
#define LAYERS ((int)PL_LEN(widths) - 1)

static const char one[] = "{\"Device\": \"One\", \"Dev_Mem\": 16, \"Mem_Bw\": 50, \"CPU\": 1,"
			  " \"Num_Sm\": 1, \"SingleFLOPs\": 100, \"HalfTensorFLOPs\": 200,"
			  " \"L2Cache\": 1}";
static const char two[] = "{\"Device\": \"Two\", \"Dev_Mem\": 16, \"Mem_Bw\": 100, \"CPU\": 1,"
			  " \"Num_Sm\": 1, \"SingleFLOPs\": 200, \"HalfTensorFLOPs\": 400,"
			  " \"L2Cache\": 1}";
/* No member says that it is three times as slow. */
static const char three[] = "{\"Device\": \"Three\", \"Dev_Mem\": 16, \"Mem_Bw\": 50, \"CPU\": 1,"
			    " \"Num_Sm\": 1, \"SingleFLOPs\": 100, \"L2Cache\": 1}";
/* These launch. */
static const char gpu[] =
	"{\"Mem_Bw\": 300, \"Num_Sm\": 58, \"SingleFLOPs\": 30300, \"L2Cache\": 4}";
/* the last one is not measured */
static const char *const gpus[] = { "gpu a", "gpu b", "gpu c", "gpu d" };

#define GPUS ((int)PL_LEN(gpus))

static uint64_t seed;

static int add(struct pl_devices *d, const char *name, const char *json, struct pl_err *err)
{
	return pl_device_add(d, name, json, strlen(json), err);
}

static double uniform(void)
{
	return (double)(pl_rng_next(&seed) >> 11) * 0x1p-53;
}

static double noisy(double ns)
{
	return ns * (1 + 0.01 * (uniform() + uniform() - 1));
}

/* In bfloat16 a product takes 0.4 of the time of its operations. */
static double product_ns(double m, double n, double k, bool half)
{
	double x = (half ? 2 : 4) * (m * k + k * n + m * n) / CACHE;

	return FIXED + 0.01 * 2 * m * n * k * (half ? 0.4 : 1) * (1 + SLOWER * x * x / (1 + x * x));
}

static double move_ns(double elements, int tensors)
{
	return FIXED + 0.02 * 4 * (tensors + 1) * elements;
}

/* ---- the model ------------------------------------------------------------------------------- */

static struct pl_samples samples;
static struct pl_devices sheets;

static void add_sample(const char *op, struct pl_kernel k, uint32_t device, double ns)
{
	struct pl_err err = { 0 };
	const struct pl_measure m = { .k = k,
				      .known = true,
				      .op = op,
				      .model = "",
				      .device = device,
				      .ns = noisy(ns) / (device == 1 ? 2 : 1) };

	if (pl_samples_add(&samples, &m, &sheets, &err) < 0)
		abort();
}

static double pick(double lo, double hi)
{
	return floor(lo * pow(hi / lo, uniform()) + 0.5);
}

/* products: does the model know them? */
static struct pl_kernel_model *learn(bool products, bool intervals)
{
	static const char *const moves[] = { "relu", "mul_", "threshold_backward", "add_" };
	const struct pl_kernel_fit_opts o = { .intervals = intervals };
	struct pl_kernel_model *m = NULL;
	struct pl_err err = { 0 };

	seed = 7;
	samples = (struct pl_samples){ 0 };
	for (int i = 0; i < 2 * SAMPLES; i++) {
		double a = pick(4, 1024), b = pick(16, 1024), c = pick(16, 1024);
		double elements = pick(16, 1 << 20);
		int tensors = 1 + i % 4 / 2;

		for (uint8_t half = 0; half < 2 && products; half++)
			add_sample("linear",
				   (struct pl_kernel){ .family = PL_KERNEL_GEMM,
						       .type = half ? PL_KERNEL_BFLOAT16
								    : PL_KERNEL_FLOAT32,
						       .dim = { 1, a, b, c } },
				   (uint32_t)i % 2, product_ns(a, b, c, half));
		add_sample(moves[i % 4],
			   (struct pl_kernel){ .family = PL_KERNEL_ELEMENTWISE,
					       .dim = { elements, tensors, 1 } },
			   (uint32_t)i / 4 % 2, move_ns(elements, tensors));
	}
	if (pl_kernel_fit(&samples, NULL, &o, &m, &err) < 0)
		printf("# %s\n", err.msg);
	pl_samples_fini(&samples);
	return m;
}

/* ---- the job --------------------------------------------------------------------------------- */

struct job {
	int64_t rows;
	double slower; /* this run, for a reason of its own */
	bool no_sizes;
	bool second; /* it runs on the second device */
	uint32_t s;
	pl_id h;
	int64_t now;
};

static void put(struct job *j, const char *name, double ns, const char *dims)
{
	int64_t dur = llround(noisy(ns) * j->slower / (j->second ? 2 : 1));
	uint32_t e = at(j->s, PL_K_HOST_OP, j->h, name, j->now, j->now + dur, 0);

	if (!j->no_sizes)
		inputs(j->s, e, dims, "[\"float\", \"float\", \"float\"]");
	j->now += dur + 200;
}

static void move(struct job *j, const char *name, int64_t rows, int64_t columns, int tensors)
{
	char text[128];

	snprintf(text, sizeof(text),
		 tensors > 1 ? "[[%lld, %lld], [%lld, %lld]]" : "[[%lld, %lld]]", (long long)rows,
		 (long long)columns, (long long)rows, (long long)columns);
	put(j, name, move_ns((double)(rows * columns), tensors), text);
}

static void multiply(struct job *j, const char *name, int64_t m, int64_t k, int64_t n)
{
	char text[128];

	snprintf(text, sizeof(text), "[[%lld, %lld], [%lld, %lld]]", (long long)m, (long long)k,
		 (long long)k, (long long)n);
	put(j, name, product_ns((double)m, (double)n, (double)k, false), text);
}

static void around(struct job *j, const char *name, int64_t from)
{
	j->now += 300;
	at(j->s, PL_K_HOST_OP, j->h, name, from, j->now, 0);
	j->now += 100;
}

static void train(struct job *j)
{
	int64_t from;

	for (int i = 0; i < LAYERS; i++) {
		multiply(j, "aten::addmm", j->rows, widths[i], widths[i + 1]);
		move(j, "aten::relu", j->rows, widths[i + 1], 1);
	}
	for (int i = LAYERS; i-- > 0;) {
		from = j->now;
		j->now += 300;
		move(j, "aten::threshold_backward", j->rows, widths[i + 1], 2);
		multiply(j, "aten::mm", j->rows, widths[i + 1], widths[i]);
		multiply(j, "aten::mm", widths[i + 1], j->rows, widths[i]);
		around(j, "autograd::engine::evaluate_function: AddmmBackward0", from);
		from = j->now;
		move(j, "aten::add_", widths[i + 1], widths[i], 2);
		around(j, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
		       from);
	}
	from = j->now;
	for (int i = 0; i < LAYERS; i++) {
		move(j, "aten::mul_", widths[i + 1], widths[i], 1);
	}
	around(j, "Optimizer.step#SGD.step", from);
}

static bool record(struct job *j)
{
	seed = 1;
	begin_trace();
	j->s = segment();
	j->h = track(j->s, 0, -1, "100");
	j->now = 1000000;
	for (int k = 0; k < STEPS; k++) {
		int64_t begin = j->now;

		train(j);
		trace.seg[j->s]->step[at(j->s, PL_K_STEP, j->h, "ProfilerStep", begin, j->now, 0)] =
			k;
	}
	return ok(build(), "a job of %lld rows builds", (long long)j->rows);
}

/* The mean step after the changes, separated by ";", ns; NAN: refused. p NULL: no model. */
static double predicted(const char *lines, const struct pl_predictor *p,
			struct pl_rewrite_basis *basis, struct pl_err *err)
{
	const struct pl_rewrite_known known = { .predictor = p };
	struct pl_sim *sim = pl_sim_new(&graph, err);
	double mean = NAN;
	uint64_t hits[4] = { 0 };
	struct pl_plan plan;
	char copy[256], *rest = copy, *line;
	bool good = sim != NULL;

	*basis = (struct pl_rewrite_basis){ 0 };
	pl_plan_init(&plan);
	snprintf(copy, sizeof(copy), "%s", lines);
	while (good && (line = strsep(&rest, ";")))
		good = !*line || pl_rewrite_add_line(&plan, line, err) >= 0;
	good = good && pl_rewrite_durations(sim, &graph, &plan, &known, hits, basis, err) >= 0 &&
	       pl_sim_mean(sim, &mean, err) >= 0;
	pl_plan_fini(&plan);
	pl_sim_free(sim);
	return good ? mean : NAN;
}

static double step_of(const char *lines, const struct pl_predictor *p)
{
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };
	double ns = predicted(lines, p, &basis, &err);

	if (isnan(ns))
		printf("# %s: %s\n", lines, err.msg);
	return ns;
}

/* The step of the job with these rows. */
static double truth(int64_t rows, double slower, bool second)
{
	struct job j = { .rows = rows, .slower = slower, .second = second };
	double ns = record(&j) ? step_of("", NULL) : NAN;

	end_trace();
	return ns;
}

static double off(double value, double is)
{
	printf("# %.0f, and the truth is %.0f (%+.1f %%)\n", value, is, 100 * (value / is - 1));
	return fabs(value / is - 1);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static struct pl_predictor *ask(const struct pl_kernel_model *m, uint32_t device)
{
	struct pl_predictor *p = NULL;
	struct pl_err err = { 0 };

	if (pl_predictor_of(m, &sheets, device, &p, &err) < 0)
		abort();
	return p;
}

static void batch(const struct pl_predictor *p)
{
	const double is[2] = { truth(32, 1, false), truth(256, 1, false) },
		     slow = truth(256, 1.5, false);
	struct job j = { .rows = 64, .slower = 1 };
	struct pl_rewrite_basis basis, rule;
	struct pl_err err = { 0 };
	double ns;

	if (record(&j)) {
		ns = predicted("batch by 4", p, &basis, &err);
		ok(off(step_of("batch by 4", NULL), is[1]) > fmax(0.05, 2 * off(ns, is[1])),
		   "by the rule: further off, because a cache overflows");
		ok(off(ns, is[1]) < 0.05, "with the model: four times the samples");
		ok(basis.work_ns > 0 && fabs(ns - is[1]) < 1.645 * basis.work_ns,
		   "... in the interval");
		ok(basis.known_ns > 0.9 * basis.changed_ns, "... of nearly all that changes");
		predicted("batch by 4", NULL, &rule, &err);
		ok(basis.work_ns < 0.9 * rule.work_ns, "... narrower than that of the rule");
		ok(off(step_of("batch by 0.5", p), is[0]) < 0.05, "half the samples");
		ok(step_of("batch by 1", p) == step_of("", NULL), "by 1 changes nothing");
		ok(off(step_of("batch by 2;batch by 2", p), ns) < 0.01, "twice by 2 is by 4");
	}
	end_trace();
	j.slower = 1.5;
	if (record(&j))
		ok(off(step_of("batch by 4", p), slow) < 0.05,
		   "a slower run: the time is relative to the recorded one");
	end_trace();
}

static void others(const struct pl_kernel_model *no_products, const struct pl_predictor *p)
{
	struct pl_predictor *q = ask(no_products, 0);
	struct job j = { .rows = 64, .slower = 1 };
	struct pl_rewrite_basis basis, rule;
	struct pl_err err = { 0 };
	double ns, by_rule;

	if (record(&j)) {
		ns = predicted("batch by 4", q, &basis, &err);
		by_rule = predicted("batch by 4", NULL, &rule, &err);
		ok(off(ns, by_rule) < 0.02,
		   "products that the model does not know follow the rule");
		ok(basis.known_ns < 0.5 * basis.changed_ns, "... and the basis says so");
		ok(basis.work_ns > 0.8 * rule.work_ns,
		   "... with an interval like that of the rule");
		ns = predicted("batch by 64", p, &basis, &err);
		ok(basis.known_ns < 0.5 * basis.changed_ns, "likewise sizes that are out of range");
	}
	end_trace();
	pl_predictor_free(q);
}

/* Without intervals the model does not say how wrong it is. */
static void intervals(const struct pl_kernel_model *open, const struct pl_predictor *p)
{
	struct pl_predictor *q = ask(open, 0);
	struct job j = { .rows = 64, .slower = 1 };
	struct pl_rewrite_basis basis, more, twice;
	struct pl_err err = { 0 };

	if (record(&j)) {
		predicted("batch by 4", p, &basis, &err);
		predicted("batch by 4", q, &more, &err);
		ok(more.work_ns > 1.2 * basis.work_ns, "a model without intervals: a wider one");
		predicted("batch by 2", p, &twice, &err);
		ok(twice.work_ns < basis.work_ns, "a smaller change: a narrower one");
	}
	end_trace();
	pl_predictor_free(q);
}

static void device(const struct pl_predictor *p)
{
	const double is = truth(64, 1, true), large = truth(256, 1, true);
	struct job j = { .rows = 64, .slower = 1 };
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };
	double gaps = 0, ns;

	if (record(&j)) {
		/* time between operations stays: what is not computed */
		gaps = step_of("remove name=aten::*", NULL);
		ns = predicted("device two", p, &basis, &err);
		ok(off(ns - gaps, is - gaps) < 0.12, "another device");
		ok(fabs(ns - is) < 1.645 * basis.work_ns, "... in the interval");
		ok(off(step_of("device two;batch by 4", p) - gaps, large - gaps) < 0.12,
		   "... with another batch");
		ok(off(step_of("batch by 4;device two", p) - gaps, large - gaps) < 0.12,
		   "... in the other order");
		ok(step_of("device one", p) == step_of("", NULL),
		   "the recorded device changes nothing");
		predicted("device three", p, &basis, &err);
		ok(basis.work_ns > 0, "a device that was not measured");
		ok(isnan(predicted("device four", p, &basis, &err)) &&
			   strstr(err.msg, "no data sheet"),
		   "a device without a data sheet is refused");
		err = (struct pl_err){ 0 };
		ok(isnan(predicted("device two", NULL, &basis, &err)) &&
			   strstr(err.msg, "needs a cost model"),
		   "a device without a model is refused");
	}
	end_trace();
	err = (struct pl_err){ 0 };
	j.no_sizes = true;
	if (record(&j))
		ok(isnan(predicted("batch by 2", p, &basis, &err)) && strstr(err.msg, "has sizes"),
		   "a graph without sizes is refused");
	end_trace();
}

/* An edit of the job, and a rewriter. */
struct planned {
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_cost cost;
	struct pl_rewriter *r;
};

static bool plan(struct planned *x, const struct pl_predictor *p, const struct pl_rewrite *rw)
{
	struct pl_err err = { 0 };
	bool good;

	*x = (struct planned){ .s = NULL };
	good = pl_cost_fit(&graph, NULL, &x->cost, &err) >= 0 &&
	       (x->s = pl_sim_new(&graph, &err)) &&
	       pl_sim_edit(x->s, 0, graph.n_steps, &x->e, &err) >= 0;
	x->cost.predictor = p;
	good = good && (x->r = pl_rewrite_new(&x->e, &x->cost, &err)) &&
	       pl_rewrite(x->r, rw, &err) >= 0;
	return ok(good, "%s %s", pl_plan_rewrite_name(rw->op), err.msg);
}

static void end_plan(struct planned *x)
{
	pl_rewrite_free(x->r);
	pl_edit_fini(&x->e);
	pl_sim_free(x->s);
	pl_cost_fini(&x->cost);
}

/* The changed time of the operations of that name and phase (0: any) by the recorded one. */
static double ratio_of(const struct planned *x, const char *name, unsigned phase, double *recorded)
{
	double sum = 0;

	*recorded = 0;
	for (uint32_t i = 0; i < x->e.n_nodes; i++) {
		const struct pl_enode *n = &x->e.node[i];

		if (n->dead || n->origin == PL_NONE || (phase && n->phase != phase) ||
		    !pl_glob(name, pl_edit_name(&x->e, n->name)) || n->work == PL_NONE)
			continue;
		sum += (double)n->dur;
		*recorded += (double)graph.step[n->step].dur[n->origin];
	}
	return sum / *recorded;
}

static void precision(const struct pl_predictor *p)
{
	const struct pl_rewrite rw = { .op = PL_RW_PRECISION, .word = "bf16" };
	struct job j = { .rows = 64, .slower = 1 };
	struct pl_rewrite_basis basis = { 0 };
	double is[2] = { 0, 0 }, recorded;
	struct planned x;

	for (int i = 0; i < LAYERS; i++)
		for (int half = 0; half < 2; half++) {
			double a = (double)widths[i], b = (double)widths[i + 1];

			is[half] += product_ns(64, b, a, half) + product_ns(64, a, b, half) +
				    product_ns(b, a, 64, half);
		}
	if (record(&j)) {
		if (plan(&x, p, &rw)) {
			pl_rewrite_bases(x.r, &basis);
			ok(off(ratio_of(&x, "aten::*mm", 0, &recorded), is[1] / is[0]) < 0.05,
			   "products take what the model says");
			ok(basis.work_ns > 0, "... with an interval");
		}
		end_plan(&x);
	}
	end_trace();
}

/* Devices whose times are spread by so much to both sides: the error of the ratio between one of
 * them and another one, which was not measured, as a share of it. *low: where the interval on that
 * one begins, ns. */
static double error_of_small(double spread, double *low)
{
	const struct pl_kernel_fit_opts o = { .intervals = true };
	struct pl_predictor_ratio r = { .error = NAN };
	struct pl_predictor_op now = { .name = "add",
				       .work = { .op = PL_OP_ELEMENTWISE,
						 .type = PL_NONE,
						 .dims = PL_NONE,
						 .flops = -1,
						 .bytes = -1,
						 .name = PL_NONE },
				       .dims = "[[2000], [2000]]",
				       .type = PL_KERNEL_FLOAT32,
				       .device = 3 },
			       then = now;
	struct pl_kernel_time t;
	struct pl_kernel_model *m = NULL;
	struct pl_predictor *p = NULL;
	struct pl_err err = { 0 };

	seed = 7;
	samples = (struct pl_samples){ 0 };
	for (int i = 0; i < SAMPLES; i++) {
		struct pl_kernel k = { .family = PL_KERNEL_ELEMENTWISE,
				       .dim = { pick(1000, 10000), 2, 1 } };
		int d = i % (GPUS - 1);

		add_sample("add", k, (uint32_t)(3 + d), 25000 * exp(spread * (d - 1)));
	}
	if (pl_kernel_fit(&samples, NULL, &o, &m, &err) < 0)
		abort();
	p = ask(m, 3);
	then.device = 3 + GPUS - 1;
	if (pl_predictor_times(p, &then, 1, &t, &err) < 0 ||
	    pl_predictor_ratios(p, &now, &then, 1, INFINITY, &r, &err) < 0)
		abort();
	*low = t.lo_ns;
	printf("# %.2f: %.0f to %.0f ns, an error of %.2f\n", spread, t.lo_ns, t.hi_ns,
	       r.error / r.factor);
	pl_predictor_free(p);
	pl_kernel_model_free(m);
	pl_samples_fini(&samples);
	return r.error / r.factor;
}

/* Without its launch an interval may reach down to 0, which is no interval that is missing. */
static void spreads(void)
{
	static const double by[] = { 0.05, 0.1, 0.2, 0.4, 0.8 };
	double before = 0, error, low[PL_LEN(by)];

	for (size_t i = 0; i < PL_LEN(by); i++) {
		error = error_of_small(by[i], &low[i]);
		ok(error > 1.2 * before, "spread by %.2f: a larger error than with less", by[i]);
		before = error;
	}
	ok(low[0] > 0 && low[PL_LEN(by) - 1] == 0, "... also where the interval reaches 0");
}

int main(void)
{
	struct pl_kernel_model *m, *no_products, *open;
	struct pl_predictor *p;
	struct pl_err err = { 0 };

	if (add(&sheets, "one", one, &err) < 0 || add(&sheets, "two", two, &err) < 0 ||
	    add(&sheets, "three", three, &err) < 0)
		return 1;
	for (int i = 0; i < GPUS; i++)
		if (add(&sheets, gpus[i], gpu, &err) < 0)
			return 1;
	m = learn(true, true);
	no_products = learn(false, true);
	open = learn(true, false);
	if (!ok(m && no_products && open, "models are learned"))
		return done_testing();
	p = ask(m, 0);
	batch(p);
	others(no_products, p);
	intervals(open, p);
	device(p);
	precision(p);
	spreads();
	pl_predictor_free(p);
	pl_kernel_model_free(m);
	pl_kernel_model_free(no_products);
	pl_kernel_model_free(open);
	pl_device_fini(&sheets);
	return done_testing();
}
