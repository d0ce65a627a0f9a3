/*
 * Optimisers: by ranges as in one, schedules, wrong options; and that a network learns.
 */
#include "net_fixture.h"

static void test_ranges(enum pl_optim_kind kind, double decay)
{
	struct pl_optim_opts o = { .kind = kind,
				   .lr = 0.05,
				   .momentum = 0.9,
				   .b1 = 0.9,
				   .b2 = 0.99,
				   .eps = 1e-8,
				   .decay = decay,
				   .clip = 0.5 };
	struct pl_net *a = fix_net(fix_mlp, &pl_backend_plain, 4, 7);
	struct pl_net *b = fix_net(fix_mlp, &pl_backend_plain, 4, 7);
	struct pl_optim *oa, *ob;
	struct fix_batch batch;
	double loss, norm = 0;
	size_t n, at;
	float *slab[2];
	bool good = pl_optim_new(a, &o, &oa, NULL) == 0 && pl_optim_new(b, &o, &ob, NULL) == 0;

	fix_batch(&batch, a, 4, 5);
	fix_params(a, &n);
	for (int step = 0; good && step < 3; step++) {
		good = fix_pass(a, &batch.io, 0, 1, false, &loss) &&
		       fix_pass(b, &batch.io, 0, 1, false, &loss);
		norm = 0;
		for (size_t i = 0; i < n; i++)
			norm += (double)fix_grads(a)[i] * (double)fix_grads(a)[i];
		pl_optim_step(oa, step, 0, SIZE_MAX, (double)NAN);
		for (at = n; at > 0;) { /* from the end, in pieces of any size */
			size_t m = pl_min_size(at, 37);

			at -= m;
			pl_optim_step(ob, step, at, m, sqrt(norm));
		}
	}
	ok(good && !memcmp(fix_params(a, &n), fix_params(b, &n), n * sizeof(float)),
	   "optimiser %d, decay %g: by pieces as in one", kind, decay);
	is_i64(pl_optim_slabs(oa, slab, &at), kind == PL_OPTIM_SGD ? 1 : 2, "slabs of state");
	ok(at == n && slab[0], "as large as the parameters");
	pl_optim_free(oa);
	pl_optim_free(ob);
	fix_batch_free(&batch);
	pl_net_free(a);
	pl_net_free(b);
}

static void test_schedules(void)
{
	struct pl_optim_opts o = { .lr = 2, .warmup = 4, .steps = 104, .every = 10, .gamma = 0.1 };
	struct pl_net *net = fix_net(fix_mlp, &pl_backend_plain, 1, 7);
	struct pl_optim *opt;
	struct pl_err err = { 0 };

	ok(pl_optim_lr(&o, 0) == 0.5 && pl_optim_lr(&o, 3) == 2 && pl_optim_lr(&o, 4000) == 2,
	   "constant after warming up");
	o.schedule = PL_SCHED_STEP;
	ok(pl_optim_lr(&o, 13) == 2 && fabs(pl_optim_lr(&o, 24) - 0.02) < 1e-12, "in steps");
	o.schedule = PL_SCHED_LINEAR;
	ok(pl_optim_lr(&o, 4) == 2 && pl_optim_lr(&o, 54) == 1 && pl_optim_lr(&o, 200) == 0,
	   "linear");
	o.schedule = PL_SCHED_COSINE;
	ok(fabs(pl_optim_lr(&o, 54) - 1) < 1e-12 &&
		   fabs(pl_optim_lr(&o, 29) - 1 - sqrt(0.5)) < 1e-12,
	   "along a cosine");
	o.steps = 3;
	ok(pl_optim_new(net, &o, &opt, &err) == PL_EUSAGE && !opt, "%s", err.msg);
	pl_net_free(net);
}

/* Without gradients plain SGD only decays: which tensors does it change? A bit for each. */
static unsigned decayed(bool all, const char *without, struct pl_err *err)
{
	struct pl_optim_opts o = { .lr = 0.5, .decay = 0.5, .decay_all = all, .no_decay = without };
	struct pl_net *net = fix_net(fix_mlp, &pl_backend_plain, 1, 7);
	struct pl_net_view v = pl_net_view(net);
	struct pl_optim *opt;
	unsigned bits = 0;

	for (size_t i = 0; i < v.n_params; i++)
		v.params[i] = 1;
	if (pl_optim_new(net, &o, &opt, err) < 0) {
		pl_net_free(net);
		return ~0u;
	}
	memset(v.grads, 0, v.n_params * sizeof(*v.grads));
	pl_optim_step(opt, 0, 0, SIZE_MAX, (double)NAN);
	for (uint32_t i = 0; i < v.n_tensors; i++)
		for (size_t k = 0; k < v.tensor[i].n; k++)
			if (v.params[v.tensor[i].offset + k] == 0.75F)
				bits |= 1U << i;
	pl_optim_free(opt);
	pl_net_free(net);
	return bits;
}

static void test_decay(void)
{
	struct pl_net *net = fix_net(fix_mlp, &pl_backend_plain, 1, 7);
	struct pl_net_view v = pl_net_view(net);
	unsigned all = (1U << v.n_tensors) - 1, matrices = 0;
	struct pl_err err = { 0 };
	char either[300];

	for (uint32_t i = 0; i < v.n_tensors; i++)
		matrices |= v.tensor[i].n_dims >= 2 ? 1U << i : 0;
	snprintf(either, sizeof(either), "%s|%s", v.tensor[0].name, v.tensor[3].name);
	ok(matrices && matrices != all, "there are matrices and biases");
	is_i64(decayed(false, NULL, &err), matrices, "matrices decay");
	is_i64(decayed(true, NULL, &err), all, "all decay, if asked for");
	is_i64(decayed(true, either, &err), all & ~1U & ~8U, "... but for those that are named");
	is_i64(decayed(false, "*.weight", &err), 0, "... or match a pattern");
	ok(decayed(false, "nothing*", &err) == ~0u && err.code == PL_EDATA, "%s", err.msg);
	pl_net_free(net);
}

/* A schedule that learns later when it ends. */
static void test_set_steps(void)
{
	struct pl_optim_opts o = {
		.lr = 1, .schedule = PL_SCHED_LINEAR, .steps = 10, .decay = 1, .decay_all = true
	};
	struct pl_net *net = fix_net(fix_mlp, &pl_backend_plain, 1, 7);
	struct pl_net_view v = pl_net_view(net);
	struct pl_optim *opt;

	if (pl_optim_new(net, &o, &opt, NULL) < 0)
		abort();
	memset(v.grads, 0, v.n_params * sizeof(*v.grads));
	v.params[0] = 1;
	pl_optim_set_steps(opt, 100);
	pl_optim_step(opt, 50, 0, SIZE_MAX, (double)NAN);
	ok(v.params[0] == 0.5F, "a schedule ends later from now on");
	pl_optim_free(opt);
	pl_net_free(net);
}

/* It learns: a function of the input is fitted, on the fast backend, and twice with the same bits.
 */
static void test_training(void)
{
	struct pl_optim_opts o = { .kind = PL_OPTIM_ADAMW,
				   .lr = 0.01,
				   .b1 = 0.9,
				   .b2 = 0.99,
				   .eps = 1e-8,
				   .decay = 0.01 };
	double first = 0, loss[2] = { 0, 1 };

	for (int run = 0; run < 2; run++) {
		struct pl_net *net = fix_net(fix_gpt, &pl_backend_cpu, 16, 7);
		struct pl_optim *opt = NULL;
		struct fix_batch b;
		bool good = pl_optim_new(net, &o, &opt, NULL) == 0;

		fix_batch(&b, net, 16, 5);
		for (int i = 0; i < 16 * 6; i++)
			b.y[i] = (b.ids[i] * 2 + (i % 6 ? b.ids[i - 1] : 0)) % 9;
		for (int step = 0; good && step < 250; step++) {
			good = fix_pass(net, &b.io, (uint64_t)step, 1, false, &loss[run]);
			pl_optim_step(opt, step, 0, SIZE_MAX, (double)NAN);
			first = step ? first : loss[run];
		}
		pl_optim_free(opt);
		fix_batch_free(&b);
		pl_net_free(net);
	}
	ok(first > 2 && loss[0] < 0.25 * first, "the loss falls from %.3f to %.3f", first, loss[0]);
	ok(loss[0] == loss[1], "and does so again to the bit");
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		test_ranges(PL_OPTIM_SGD, 0.1 * i);
		test_ranges(PL_OPTIM_ADAM, 0.1 * i);
		test_ranges(PL_OPTIM_ADAMW, 0.1 * i);
	}
	test_schedules();
	test_decay();
	test_set_steps();
	test_training();
	return done_testing();
}
