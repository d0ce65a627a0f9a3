/*
 * Another batch: jobs whose operations follow a law that the test knows (a fixed time, bytes, bytes
 * of gradients, floating-point operations), recorded with one batch and made again with another.
 */
#include <math.h>

#include "cost/new_memory.h"
#include "cost/work.h"
#include "graph_fixture.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

#define STEPS 3

/* What operations take, in ns. */
struct law {
	double fixed, move_byte, byte, gradient_byte, flop;
	double noise; /* relative */
	double cache; /* smaller products take nothing for their bytes */
};

/* Layers of these widths, each with a bias, an activation and an update. */
static const int64_t widths[] = { 96, 256, 1024, 384, 2048, 512, 160, 640, 64 };
static const int64_t few_widths[] = { 512, 1024, 1024, 10 };

struct net {
	const struct law *law;
	int64_t rows;	/* of a pass */
	int64_t passes; /* of a step */
	int more;	/* pieces of the loss, into which operations inside it cut it */
	bool sizes;	/* are recorded */
	bool few;	/* layers: few_widths */
	bool recurrent, sparse;
	bool turns;    /* each pass is of another model, and ends with an update */
	int64_t words; /* a row is one of so many words of a sample, and all widths are WIDTH; 0: a
			* row is a sample */
	int device;    /* kernels compute: 1 */
	uint32_t s;
	pl_id h, stream;
	int64_t now, corr;
};

#define WIDTH 256

static int layers_of(const struct net *n)
{
	return (int)(n->few ? PL_LEN(few_widths) : PL_LEN(widths)) - 1;
}

static int64_t width(const struct net *n, int i)
{
	return n->words ? WIDTH : n->few ? few_widths[i] : widths[i];
}

static uint64_t seed;

/* A duration with noise of near-normal distribution. */
static int64_t noisy(const struct net *n, double ns)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += (double)(pl_rng_next(&seed) >> 11) * 0x1p-53;
	return llround(ns * (1 + n->law->noise * (sum - 6)));
}

static uint32_t put(struct net *n, const char *name, double ns, const char *dims)
{
	int64_t dur = noisy(n, ns);
	uint32_t e = at(n->s, PL_K_HOST_OP, n->h, name, n->now, n->now + dur, 0);

	if (n->sizes)
		inputs(n->s, e, dims, "[\"float\", \"float\", \"float\"]");
	n->now += dur + 200;
	return e;
}

static void move(struct net *n, const char *name, int64_t rows, int64_t columns, int tensors)
{
	char dims[128];
	double elements = (double)(rows ? rows * columns : columns);

	if (n->words && rows == n->rows)
		snprintf(dims, sizeof(dims), "[[%lld, %lld, %lld]]", (long long)(rows / n->words),
			 (long long)n->words, (long long)columns);
	else if (rows)
		snprintf(dims, sizeof(dims),
			 tensors > 1 ? "[[%lld, %lld], [%lld, %lld]]" : "[[%lld, %lld]]",
			 (long long)rows, (long long)columns, (long long)rows, (long long)columns);
	else
		snprintf(dims, sizeof(dims), "[[%lld]]", (long long)columns);
	put(n, name, n->law->fixed + n->law->move_byte * 4 * (tensors + 1) * elements, dims);
}

/* The product of p x q and q x r. What it makes is a gradient of parameters, or reads some. */
static void multiply(struct net *n, const char *name, int64_t p, int64_t q, int64_t r,
		     bool gradient)
{
	double made = 4 * (double)(p * r), all = 4 * (double)(p * q + q * r) + made;
	double byte = all < n->law->cache ? 0 : n->law->byte;
	char dims[128];

	snprintf(dims, sizeof(dims), "[[%lld, %lld], [%lld, %lld]]", (long long)p, (long long)q,
		 (long long)q, (long long)r);
	put(n, name,
	    n->law->fixed + byte * (gradient ? all - made : all) +
		    (gradient ? n->law->gradient_byte * made : 0) +
		    n->law->flop * 2 * (double)(p * q * r),
	    dims);
}

/* A range around what was put since `from`. */
static void around(struct net *n, const char *name, int64_t from)
{
	n->now += 300;
	at(n->s, PL_K_HOST_OP, n->h, name, from, n->now, 0);
	n->now += 100;
}

static void pass(struct net *n)
{
	const int layers = layers_of(n);
	int64_t from;

	for (int i = 0; i < layers; i++) {
		multiply(n, "aten::addmm", n->rows, width(n, i), width(n, i + 1), false);
		move(n, "aten::relu", n->rows, width(n, i + 1), 1);
	}
	for (int i = 0; i <= n->more; i++)
		move(n, "aten::nll_loss_forward", n->words ? n->rows / n->words : n->rows,
		     width(n, layers), 1);
	for (int i = layers; i-- > 0;) {
		from = n->now;
		n->now += 300;
		move(n, "aten::threshold_backward", n->rows, width(n, i + 1), 2);
		multiply(n, "aten::mm", n->rows, width(n, i + 1), width(n, i), false);
		multiply(n, "aten::mm", width(n, i + 1), n->rows, width(n, i), true);
		around(n, "autograd::engine::evaluate_function: AddmmBackward0", from);
		from = n->now;
		move(n, "aten::add_", width(n, i + 1), width(n, i), 2);
		around(n, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
		       from);
	}
}

/* Layers of a recurrent network: 20 steps, which each read the parameters that no cache of 8 MiB
 * keeps. */
static void recurrent(struct net *n)
{
	const int64_t steps = 20;
	int64_t from;
	char dims[256];

	for (size_t i = 0; i + 1 < PL_LEN(widths); i++) {
		int64_t in = widths[i], out = widths[i + 1];
		double matrices = (double)(4 * out * (in + out)), bytes = 4 * matrices;

		bytes += (double)(steps - 1) * fmax(bytes - 0x1p23, 0);

		snprintf(dims, sizeof(dims), "[[%lld, %lld, %lld], [%lld, %lld], [%lld, %lld]]",
			 (long long)steps, (long long)n->rows, (long long)in, (long long)(4 * out),
			 (long long)in, (long long)(4 * out), (long long)out);
		put(n, "aten::mkldnn_rnn_layer",
		    n->law->fixed + bytes * n->law->byte +
			    (double)steps * matrices * 2 * (double)n->rows * n->law->flop +
			    8 * (double)(steps * n->rows * in) * n->law->byte,
		    dims);
		move(n, "aten::relu", n->rows, out, 1);
	}
	for (size_t i = 0; i + 1 < PL_LEN(widths); i++)
		multiply(n, "aten::addmm", n->rows, widths[i], widths[i + 1], false);
	from = n->now;
	move(n, "aten::threshold_backward", n->rows, widths[0], 2);
	around(n, "autograd::engine::evaluate_function: ReluBackward0", from);
}

static void turn(struct net *n, int64_t i)
{
	int64_t from = n->now;

	if (n->turns && i) {
		move(n, "aten::mul_", widths[1], widths[0], 1);
		around(n, "Optimizer.step#SGD.step", from);
	}
	(n->recurrent ? recurrent : pass)(n);
}

static bool make(struct net *n)
{
	const int layers = layers_of(n);
	int64_t from, begin;

	seed = 1;
	begin_trace();
	n->s = segment();
	n->h = track(n->s, 0, -1, "100");
	n->now = 1000000;
	for (int k = 0; k < STEPS; k++) {
		begin = n->now;
		for (int64_t i = 0; i < n->passes; i++)
			turn(n, i);
		from = n->now;
		for (int i = 0; i < layers; i++) {
			move(n, "aten::mul_", width(n, i + 1), width(n, i), 1);
			move(n, "aten::mul_", 0, width(n, i + 1), 1);
			move(n, "aten::add_", 0, width(n, i + 1), 1);
		}
		around(n, n->sparse ? "Optimizer.step#SparseAdam.step" : "Optimizer.step#SGD.step",
		       from);
		trace.seg[n->s]->step[at(n->s, PL_K_STEP, n->h, "ProfilerStep", begin, n->now, 0)] =
			k;
	}
	return ok(build(), "a job of %lld rows in %lld passes builds", (long long)n->rows,
		  (long long)n->passes);
}

/* The mean step after the changes, separated by ";", ns; NAN: refused. */
static double predicted(const char *lines, struct pl_rewrite_basis *basis, struct pl_err *err)
{
	struct pl_sim *sim = pl_sim_new(&graph, err);
	double mean = NAN;
	uint64_t hits[4] = { 0 };
	struct pl_plan p;
	char copy[256], *rest = copy, *line;
	bool good = sim != NULL;

	*basis = (struct pl_rewrite_basis){ 0 };
	pl_plan_init(&p);
	snprintf(copy, sizeof(copy), "%s", lines);
	while (good && (line = strsep(&rest, ";")))
		good = !*line || pl_rewrite_add_line(&p, line, err) >= 0;
	good = good && pl_rewrite_durations(sim, &graph, &p, NULL, hits, basis, err) >= 0 &&
	       pl_sim_mean(sim, &mean, err) >= 0;
	pl_plan_fini(&p);
	pl_sim_free(sim);
	return good ? mean : NAN;
}

static double step_of(const char *lines)
{
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };
	double ns = predicted(lines, &basis, &err);

	if (isnan(ns))
		printf("# %s: %s\n", lines, err.msg);
	return ns;
}

static void close_to(double value, double truth, double share, const char *what)
{
	if (!ok(fabs(value / truth - 1) <= share, "%s", what))
		printf("# %g, and the truth is %g (%+.1f %%)\n", value, truth,
		       100 * (value / truth - 1));
}

/* The steps that the recording of `rows` predicts for other batches, against jobs made with them.
 */
static void compare(const struct law *law, int64_t rows, bool recurrent, int64_t words,
		    double share, const char *what)
{
	static const double by[] = { 0.25, 0.5, 2 };
	double at_first[PL_LEN(by)];
	struct net n = { .law = law,
			 .rows = rows,
			 .passes = 1,
			 .sizes = true,
			 .recurrent = recurrent,
			 .words = words };
	char line[64], name[128];

	if (!make(&n))
		return;
	for (size_t i = 0; i < PL_LEN(by); i++) {
		snprintf(line, sizeof(line), "batch by %g", by[i]);
		at_first[i] = step_of(line);
	}
	end_trace();
	for (size_t i = 0; i < PL_LEN(by); i++) {
		n.rows = llround((double)rows * by[i]);
		if (make(&n)) {
			snprintf(name, sizeof(name), "%s: batch by %g", what, by[i]);
			close_to(at_first[i], step_of(""), by[i] < 0.5 ? 2 * share : share, name);
		}
		end_trace();
	}
}

static void laws(void)
{
	/* 100 GF/s, memory 50 GB/s */
	const struct law usual = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	const struct law slow_memory = { 2000, 0.02, 0.2, 0.2, 0.01, 0.03, 0 };
	const struct law fast_memory = { 4000, 0.02, 0.005, 0.005, 0.02, 0.03, 0 };

	compare(&usual, 128, false, 0, 0.02, "as usual");
	compare(&slow_memory, 128, false, 0, 0.02, "parameters are slow to read");
	compare(&fast_memory, 128, false, 0, 0.02, "parameters cost next to nothing");
	compare(&usual, 8, false, 0, 0.06, "few rows");
	compare(&usual, 24, true, 0, 0.05, "a recurrent network");
	compare(&usual, WIDTH, false, 16, 0.02, "as many rows as the width");
}

/* Two large layers, whose parameters are read from memory, and a small one, whose parameters are
 * not: what its bytes take says nothing of the others. */
static void small_products(void)
{
	const struct law law = { 4000, 0.05, 0.15, 0.15, 0.03, 0.03, 1 << 18 };
	struct net n = { .law = &law, .rows = 16, .passes = 1, .sizes = true, .few = true };
	double twice, four_times;

	if (!make(&n))
		return;
	twice = step_of("batch by 2");
	four_times = step_of("batch by 4");
	end_trace();
	n.rows = 32;
	if (make(&n))
		close_to(twice, step_of(""), 0.1, "small products stay in caches: batch by 2");
	end_trace();
	n.rows = 64;
	if (make(&n))
		close_to(four_times, step_of(""), 0.2, "... by 4");
	end_trace();
}

/* Caches of other sizes, which the model does not know: the mean error of 48 predictions. */
static void other_caches(void)
{
	static const double cache[] = { 1 << 16, 1 << 18, 1 << 20 }, by[] = { 0.25, 4 };
	struct law law = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	double sum = 0, least = INFINITY, p[PL_LEN(by)];
	char line[64];
	int n = 0;

	for (size_t k = 0; k < 8 * PL_LEN(cache); k++) {
		int64_t rows = 16 << k % 4;
		struct net x = {
			.law = &law, .rows = rows, .passes = 1, .sizes = true, .few = k / 4 % 2
		};

		law.cache = cache[k / 8];
		if (!make(&x))
			return;
		for (size_t i = 0; i < PL_LEN(by); i++) {
			snprintf(line, sizeof(line), "batch by %g", by[i]);
			p[i] = step_of(line);
			least = fmin(least, p[i]);
		}
		end_trace();
		for (size_t i = 0; i < PL_LEN(by); i++, n++) {
			x.rows = llround((double)rows * by[i]);
			if (!make(&x))
				return;
			sum += fabs(log(p[i] / step_of("")));
			end_trace();
		}
	}
	ok(least > 0, "no step takes a negative time");
	ok(sum / n < 0.12, "caches of other sizes: mean error %.1f %%", 100 * sum / n);
}

/* The share of the step that half the rows take by the law, and the rows as they are. */
static double half_by(const struct law *law, int64_t rows)
{
	struct net n = { .law = law, .rows = rows, .passes = 1, .sizes = true };
	double all, half = NAN;

	if (!make(&n))
		return NAN;
	all = step_of("");
	end_trace();
	n.rows = rows / 2;
	if (make(&n))
		half = step_of("");
	end_trace();
	return half / all;
}

/* The job may need new memory for gradients only while it is recorded. */
static void new_memory(void)
{
	const struct law recorded = { 1500, 0.02, 0.06, 0.35, 0.01, 0.03, 0 };
	const struct law without = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	struct net n = { .law = &recorded, .rows = 96, .passes = 1, .sizes = true };
	double more = half_by(&recorded, 96), less = half_by(&without, 96), share, half;
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };

	if (!make(&n))
		return;
	share = predicted("batch by 0.5", &basis, &err) / step_of("");
	half = 1.645 * basis.work_ns / step_of("");
	if (!ok(share > less && share < more, "new memory: between all of its time and none"))
		printf("# %g, not from %g to %g\n", share, less, more);
	ok(share - half < less && share + half > more, "and the interval holds both");
	end_trace();
}

/* What writing into new memory takes, of a step, as the recording of this law shows it. */
static double found(const struct law *law)
{
	struct net n = { .law = law, .rows = 192, .passes = 1, .sizes = true };
	struct pl_err err = { 0 };
	struct pl_new_memory m;
	double ns = NAN;

	if (make(&n) && ok(pl_new_memory_find(&graph, &m, &err) >= 0, "new memory is looked for")) {
		ns = 0;
		for (size_t k = 0; k < graph.n_steps; k++)
			for (uint32_t i = 0; i < graph.shape[graph.step[k].shape].n_nodes; i++)
				ns += (double)pl_new_memory_time(&m, &graph, k, i) / STEPS;
		pl_new_memory_fini(&m);
	}
	end_trace();
	return ns;
}

/* Pages of gradients that the system provides one by one: 4 ns a byte, as on a virtual machine that
 * gets them from its host. */
static void slow_pages(void)
{
	const struct law slow = { 1500, 0.02, 0.06, 4, 0.01, 0.03, 0 };
	const struct law usual = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	const struct law twice = { 1500, 0.02, 0.06, 0.5, 0.01, 0.03, 0 };
	double truth = 0;

	for (size_t i = 0; i + 1 < PL_LEN(widths); i++) {
		double bytes = 4 * (double)(widths[i] * widths[i + 1]);

		truth += bytes >= 1 << 20 ? (slow.gradient_byte - slow.byte) * bytes : 0;
	}
	close_to(found(&slow), truth, 0.1, "what gradients of a MiB or more take in new memory");
	ok(found(&usual) == 0, "none, where gradients are as fast as other bytes");
	ok(found(&twice) == 0, "... or make a product less than three times as long");
}

/* What follows from the meaning, whatever the law is. */
static void properties(void)
{
	const struct law law = { 1500, 0.02, 0.06, 0.2, 0.01, 0.05, 0 };
	struct net n = { .law = &law, .rows = 64, .passes = 2, .sizes = true };
	double before, last = 0;
	char line[64];

	if (!make(&n))
		return;
	before = step_of("");
	ok(step_of("batch by 1") == before, "by 1 changes nothing");
	for (double x = 1 / 32.0; x <= 32; x *= 2) {
		snprintf(line, sizeof(line), "batch by %g", x);
		if (!(step_of(line) > last))
			break;
		last = step_of(line);
	}
	ok(last == step_of("batch by 32"), "more samples take longer");
	close_to(step_of("batch by 0.5;batch by 2"), before, 0.03, "half, then double");
	ok(step_of("batch 128") == before, "as many samples as recorded");
	ok(step_of("batch 64") == step_of("batch by 0.5"), "a number of samples, in two passes");
	ok(step_of("batch by=2 rank=0;batch by=2 rank=0") == step_of("batch by 2;batch by 2"),
	   "two lines of a rank are as those of all ranks, where it is the only one");
	close_to(step_of("batch by=2 rank=0;batch 64"), step_of("batch 64"), 1e-6,
		 "a number of samples counts from what the rank takes in");
	end_trace();
	n = (struct net){ .law = &law, .rows = 64, .passes = 2, .more = 2, .sizes = true };
	if (!make(&n))
		return;
	ok(step_of("batch 64") == step_of("batch by 0.5"), "... whose losses are in three pieces");
	end_trace();
}

static void model(void)
{
	const struct law law = { 1500, 0.02, 0.06, 0.3, 0.01, 0.02, 0 };
	struct net n = { .law = &law, .rows = 128, .passes = 4, .sizes = true };
	struct pl_err err = { 0 };
	struct pl_work_model m;
	const double *ns;

	if (!make(&n) || !ok(pl_work_fit(&graph, &m, &err) == 0, "the model is fitted"))
		return;
	is_i64(m.batch.pass, 128, "the samples of a pass");
	is_i64(pl_work_samples(&m), 512, "the samples of a step");
	close_to(m.fixed_ns[0], law.fixed, 0.15, "the fixed time");
	close_to(m.ns_per_byte[0], law.move_byte, 0.05, "the rate of memory");
	ns = m.fit[0][PL_OP_MATMUL].ns;
	close_to(ns[PL_WORK_FLOP], law.flop, 0.03, "the rate of products");
	close_to(ns[PL_WORK_BYTE], law.byte, 0.2, "what their bytes take");
	close_to(ns[PL_WORK_GRADIENT_BYTE], law.gradient_byte, 0.1, "and those of gradients");
	pl_work_fini(&m);
	end_trace();
}

static void unknown_sizes(void)
{
	const struct law law = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	struct net n = { .law = &law, .rows = 128, .passes = 1 };
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };
	double known, step;

	n.sizes = true;
	if (!make(&n))
		return;
	step = predicted("batch by 0.5", &basis, &err);
	known = basis.work_ns;
	ok(!isnan(step) && !basis.no_batch, "with sizes, the batch is found");
	end_trace();
	n.sizes = false;
	if (!make(&n))
		return;
	step = predicted("batch by 0.5", &basis, &err);
	ok(step < step_of("") && basis.no_batch,
	   "without sizes, all computation of samples gets shorter");
	ok(step_of("batch by 0.001") > 20 * law.fixed && step_of("batch by 0.001") < step / 4,
	   "but for the fixed time of operations");
	ok(basis.work_ns > 3 * known && basis.work_ns > 0.05 * step, "and the error is greater");
	ok(isnan(predicted("batch 64", &basis, &err)) && strstr(err.msg, "write: batch by=X"),
	   "a number of samples is refused, with the remedy");
	end_trace();
}

/* The update of sparse gradients may follow the samples or not. */
static void sparse_updates(void)
{
	const struct law law = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	struct net n = { .law = &law, .rows = 128, .passes = 1, .sizes = true };
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };
	double fixed, all, follows, error;

	if (!make(&n))
		return;
	fixed = predicted("batch by 2", &basis, &err);
	error = basis.work_ns;
	all = predicted("batch by 2;scale phase=optimizer by 2", &basis, &err);
	end_trace();
	n.sparse = true;
	if (make(&n)) {
		follows = predicted("batch by 2", &basis, &err);
		close_to(follows, (fixed + all) / 2, 0.001, "half of the update follows");
		ok(follows + 2 * basis.work_ns > all && follows - 2 * basis.work_ns < fixed &&
			   basis.work_ns > error,
		   "... and the error covers all of it and nothing");
	}
	end_trace();
}

/* Two models that take their turns have the same samples. */
static void turns(void)
{
	const struct law law = { 1500, 0.02, 0.06, 0.06, 0.01, 0.03, 0 };
	struct net n = { .law = &law, .rows = 128, .passes = 2, .sizes = true, .turns = true };
	struct pl_rewrite_basis basis;
	struct pl_err err = { 0 };

	if (make(&n)) {
		close_to(predicted("batch 256", &basis, &err),
			 predicted("batch by 2", &basis, &err), 1e-9, "two models in turn");
		ok(basis.batch == 128, "... have the samples of one (%lld)",
		   (long long)basis.batch);
	}
	end_trace();
}

int main(void)
{
	laws();
	small_products();
	other_caches();
	turns();
	sparse_updates();
	new_memory();
	slow_pages();
	properties();
	model();
	unknown_sizes();
	return done_testing();
}
