/*
 * Fusion of operations and of tensors searched together, against all there is: every way to cut the
 * backward pass into operations, with every partition of the tensors; and what becomes of it.
 *
 * runner: long, threads
 */
#include "derive/names.h"
#include "search_fixture.h"

#define MOST 6

/* The plan's lines for cuts of the backward pass: bit i joins operation i with the next. */
static int add_fusions(struct pl_plan *p, uint32_t n, uint32_t joined, double share,
		       struct pl_err *err)
{
	char name[MOST][32];
	const char *arg[MOST];

	for (uint32_t i = 0, k; i < n; i += k) {
		struct pl_rewrite rw = { .op = PL_RW_FUSE_OPS, .arg = arg, .x = share };
		int rc;

		for (k = 1; i + k < n && joined >> (i + k - 1) & 1; k++)
			;
		for (uint32_t j = 0; j < k; j++) {
			snprintf(name[j], sizeof(name[j]), "backward L%u", n - 1 - i - j);
			arg[j] = name[j];
		}
		rw.n_args = k;
		if (k > 1 && (rc = pl_plan_add(p, &rw, err)) < 0)
			return rc;
	}
	return 0;
}

/* The best of both kinds together; *apart: of tensors alone. */
static double everything(struct net *j, uint32_t n, double share, double *unfused,
			 struct pl_err *err)
{
	double best = INFINITY;

	for (uint32_t joined = 0; joined < 1u << (n - 1); joined++) {
		size_t mark = pl_rewrite_mark(j->r);
		struct pl_plan p;
		double mean = INFINITY;

		pl_plan_init(&p);
		if (add_fusions(&p, n, joined, share, err) == 0 &&
		    pl_rewrite_plan(j->r, &p, err) == 0)
			mean = brute_force(j, n, err);
		best = fmin(best, mean);
		if (!joined)
			*unfused = mean;
		pl_rewrite_undo(j->r, mark);
		pl_plan_fini(&p);
	}
	return best;
}

static const char *const backward[] = { "backward *" };

static void test_joint(void)
{
	int within = 0, total = 0, gains = 0, mixed = 0;
	double worst = 0;

	for (uint64_t seed = 1; seed <= CASES(150); seed++) {
		struct pl_search_opts o = { .seed = 1,
					    .fuse = true,
					    .fuse_ops = true,
					    .fuse_glob = backward,
					    .n_fuse_globs = 1 };
		uint32_t n = 3 + (uint32_t)(seed % 10 ? seed % 3 : 3);
		struct pl_err err = { 0 };
		double best, mine, unfused = 0;
		struct pl_plan p;
		struct net j;

		o.fuse_share = 0.6 + (double)(seed % 5) / 10;
		pl_plan_init(&p);
		if (net_init(&j, seed, n, 1 + (pl_ns)(seed % 7 + 1) * 9000, 40000, seed % 2,
			     &err) == 0 &&
		    pl_search(&j.g, &j.cost, &o, &p, &err) == 0) {
			int kinds = 0;

			best = everything(&j, n, o.fuse_share, &unfused, &err);
			mine = planned(&j, &p, &err);
			worst = fmax(worst, mine / best - 1);
			within += isfinite(best) && mine <= 1.01 * best;
			gains += best < 0.99 * unfused;
			for (size_t i = 0; i < p.n_rw; i++)
				kinds |= 1 << p.rw[i].op;
			mixed += kinds & 1 << PL_RW_FUSE_OPS && kinds & 1 << PL_RW_FUSE_TENSORS;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		pl_plan_fini(&p);
		net_fini(&j);
	}
	is_i64(within, total, "within 1 % of the best of all cuts with all partitions");
	ok(gains > total / 3, "fusing operations matters in %d of them", gains);
	ok(mixed > total / 4, "and goes with fusing tensors in %d plans", mixed);
	printf("# worst: %+.4f %%\n", 100 * worst);
}

/* What costs nothing to have is not proposed; what is, can be carried out and is worth what it
 * says. */
static void test_lines(void)
{
	struct pl_search_opts o = {
		.seed = 1, .fuse = true, .fuse_ops = true, .fuse_glob = backward, .n_fuse_globs = 1
	};
	struct pl_err err = { 0 };
	bool worth = true;
	struct pl_plan p;
	struct net j;
	int lines = 0;

	if (!ok(net_init(&j, 9, 20, 50000, 40000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	pl_plan_init(&p);
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0, "operations of a table of layers (%s)",
	   err.msg);
	for (size_t i = 0; i < p.n_rw; i++)
		lines += p.rw[i].op == PL_RW_FUSE_OPS;
	is_i64(lines, 0, "are not fused when that is not known to save anything");
	pl_plan_fini(&p);
	pl_plan_init(&p);
	o.fuse_share = 0.8;
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0 && p.bound_ns <= p.predicted_ns,
	   "are when the user says so (%s)", err.msg);
	for (size_t i = 0; i < p.n_rw; i++) {
		lines += p.rw[i].op == PL_RW_FUSE_OPS;
		worth &= p.rw[i].op != PL_RW_FUSE_OPS || p.rw[i].in_plan_ns > 0;
	}
	ok(lines > 0 && worth, "and each line saves something");
	ok(fabs(planned(&j, &p, &err) - (double)p.model_ns) < 1,
	   "carried out, it is what was predicted (%s)", err.msg);
	pl_plan_fini(&p);
	net_fini(&j);
}

static void test_threads(void)
{
	struct pl_search_opts o = { .seed = 3,
				    .fuse = true,
				    .order = true,
				    .evaluations = 1500,
				    .fuse_ops = true,
				    .fuse_glob = backward,
				    .n_fuse_globs = 1,
				    .fuse_share = 0.7 };
	struct pl_err err = { 0 };
	struct pl_plan p[3];
	struct net j;
	bool same = true;

	if (!ok(net_init(&j, 21, 14, 60000, 300000, true, &err) == 0, "a job (%s)", err.msg))
		return;
	for (int i = 0; i < 3; i++) {
		pl_plan_init(&p[i]);
		o.pool = pl_pool_new(1 + i, &err);
		same &= pl_search(&j.g, &j.cost, &o, &p[i], &err) == 0;
		pl_pool_free(o.pool);
		same &= p[i].n_rw == p[0].n_rw && p[i].model_ns == p[0].model_ns &&
			p[i].evaluations == p[0].evaluations;
		for (size_t k = 0; same && k < p[0].n_rw; k++)
			same = p[i].rw[k].op == p[0].rw[k].op &&
			       p[i].rw[k].n_args == p[0].rw[k].n_args &&
			       p[i].rw[k].in_plan_ns == p[0].rw[k].in_plan_ns;
	}
	ok(same, "the same plan for any number of threads (%s)", err.msg);
	for (int i = 0; i < 3; i++)
		pl_plan_fini(&p[i]);
	net_fini(&j);
}

/* Precision makes the model's step shorter, which is not the model's error. */
static void test_precision(void)
{
	struct pl_search_opts o = { .seed = 1, .fuse = true, .precision = true };
	struct pl_err err = { 0 };
	struct pl_plan p;
	struct net j;

	if (!ok(net_init(&j, 4, 8, 400000, 4000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	for (uint32_t i = 0; i < j.g.shape[0].n_nodes; i++) /* what bf16 makes faster */
		if (j.g.shape[0].role[i] == PL_RO_COMPUTE)
			j.g.shape[0].kind[i] = PL_K_KERNEL;
	pl_plan_init(&p);
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0, "a search with precision (%s)", err.msg);
	ok(p.n_rw && p.rw[0].op == PL_RW_PRECISION && p.predicted_ns < p.baseline_ns, "it is used");
	ok(llabs((long long)(p.predicted_ns - p.model_ns)) <= p.baseline_ns / 1000,
	   "what it saves stays in the prediction (%lld, model %lld)", (long long)p.predicted_ns,
	   (long long)p.model_ns);
	pl_plan_fini(&p);
	net_fini(&j);
}

/* The time for the samples of a recorded step, with another batch and the recorded buckets. */
static double sample_ns(const struct net *j, double by)
{
	const struct pl_rewrite rw = { .op = PL_RW_BATCH, .x = by, .to = -1 };
	struct pl_rewriter *r = NULL;
	struct pl_edit e = { 0 };
	struct pl_err err = { 0 };
	struct pl_sim *s = pl_sim_new(&j->g, &err);
	double ns = NAN;

	if (s && pl_sim_edit(s, 0, j->g.n_steps, &e, &err) >= 0 &&
	    (r = pl_rewrite_new(&e, &j->cost, &err)) && pl_rewrite(r, &rw, &err) >= 0 &&
	    pl_sim_settle(&e, &err) >= 0)
		ns = pl_edit_mean_step(&e) / by;
	ok(!isnan(ns), "batch by=%g: %g ns %s", by, ns, err.msg);
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	pl_sim_free(s);
	return ns;
}

/* A larger batch needs as much communication as a small one, so a sample takes less time. The
 * search takes the best of the batches that it tries. */
static void test_batch(void)
{
	static const double by[] = { 0.5, 1, 2, 4, 8 };
	struct pl_search_opts o = { .seed = 1, .batch = true };
	struct pl_err err = { 0 };
	double least = INFINITY, best = 0, recorded = 0;
	struct pl_plan p;
	struct net j;

	if (!ok(net_init(&j, 4, 8, 400000, 4000000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	for (uint32_t i = 0; i < j.g.shape[0].n_nodes; i++)
		if (j.g.shape[0].role[i] == PL_RO_COMPUTE)
			j.g.shape[0].kind[i] = PL_K_KERNEL;
	for (size_t i = 0; i < PL_LEN(by); i++) {
		double ns = sample_ns(&j, by[i]);

		recorded = by[i] == 1 ? ns : recorded;
		best = ns < least ? by[i] : best;
		least = fmin(least, ns);
	}
	pl_plan_init(&p);
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0, "a search with the batch (%s)", err.msg);
	ok(best > 1 && p.n_rw == 1 && p.rw[0].op == PL_RW_BATCH && p.rw[0].x == best,
	   "it finds by=%g", best);
	ok(fabs((double)p.baseline_ns - best * recorded) < 0.001 * best * recorded &&
		   fabs((double)p.predicted_ns - best * least) < 0.01 * best * least,
	   "the baseline has as many samples: %lld and %lld ns", (long long)p.baseline_ns,
	   (long long)p.predicted_ns);
	pl_plan_fini(&p);
	net_fini(&j);
}

static bool fusable(const char *name)
{
	struct pl_name_says says;

	pl_derive_name_read(name, strlen(name), &says);
	return pl_search_fusable(says.op);
}

static void test_names(void)
{
	static const char *const yes[] = {
		"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>",
		"triton_poi_fused_add_relu_0", "void (anonymous namespace)::softmax_warp_forward",
		"vectorized_layer_norm_kernel"
	};
	static const char *const no[] = { "ampere_sgemm_128x64_relu_tn", "ncclKernel_AllReduce",
					  "cudnn::conv_relu_fwd", "forward L3" };
	int right = 0;

	for (size_t i = 0; i < PL_LEN(yes); i++)
		right += fusable(yes[i]);
	for (size_t i = 0; i < PL_LEN(no); i++)
		right += !fusable(no[i]);
	is_i64(right, PL_LEN(yes) + PL_LEN(no), "which operations compilers fuse, by their names");
}

int main(void)
{
	ALONE(test_joint());
	test_lines();
	test_threads();
	test_precision();
	test_batch();
	test_names();
	return done_testing();
}
