/*
 * cuda_fixture.h - the CUDA backend behind its table, emulated or (PL_GPU) real: the battery of all
 * backends opened on it, and networks trained with it.
 */
#ifndef PL_CUDA_FIXTURE_H
#define PL_CUDA_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "tensor/plugin.h"

#include "net_fixture.h"
#include "tensor_battery.h"

#ifdef PL_GPU
#include <cuda_runtime_api.h>
#define ROUNDS 40
#else
#include "emu_device.h"
#ifdef __SANITIZE_ADDRESS__ /* 20 times as slow: the kernels have a battery of their own */
#define ROUNDS 1
#else
#define ROUNDS (getenv("LONG") && *getenv("LONG") == '1' ? 16 : 3)
#endif
#endif

static const struct pl_backend *const be = &pl_backend_cuda_table;

/* Memory of both: on a GPU the host's, which it reaches by itself. */
static void *both_alloc(size_t size)
{
#ifdef PL_GPU
	void *p = NULL;

	return cudaMallocHost(&p, size) == cudaSuccess ? p : NULL;
#else
	return malloc(size);
#endif
}

static void both_free(void *p)
{
#ifdef PL_GPU
	cudaFreeHost(p);
#else
	free(p);
#endif
}

static void shuffle(void)
{
#ifndef PL_GPU
	emu_order(pl_rng_next(&seed));
#endif
}

/* Two contexts of it, and the plain one; false: no. */
static bool open_battery(enum pl_store store, const char *word)
{
	struct pl_backend_opts o = { .store = store }, full = { 0 };
	struct pl_err err = { 0 };

	seed = 20;
	if (!ok(be->open(&o, &battery.one, &err) == 0 && be->open(&o, &battery.many, &err) == 0 &&
			plain->open(&full, &slow, &err) == 0,
		"opened for %s: %s", word, err.msg))
		return false;
	battery.table = be;
	battery.again = "twice the same bits";
	battery.half = store == PL_STORE_BF16;
	battery.rounds = ROUNDS;
	battery.half_rounds = ROUNDS > 1 ? ROUNDS / 2 : 1;
	battery.alloc = both_alloc;
	battery.free = both_free;
	return true;
}

static void remark(void *arg, enum pl_level level, const char *text)
{
	(void)arg, (void)level;
	printf("# %s\n", text);
}

static void close_battery(void)
{
	const struct pl_log log = { remark, NULL };
	struct pl_err err = { 0 };

	be->remarks(battery.one, &log);
	ok(be->sync(battery.one, &err) == 0 && be->sync(battery.many, &err) == 0,
	   "nothing failed: %s", err.msg);
	be->close(battery.one);
	be->close(battery.many);
	plain->close(slow);
}

#define STEPS 4
struct trained {
	double loss[STEPS];
	float *params;
	size_t n;
};

/* A few steps; graphs: recorded. accumulate: two microbatches a step. */
static bool train(const char *text, const struct pl_backend *b, enum pl_store store, bool graphs,
		  int accumulate, int steps, struct trained *t)
{
	static struct fix_model m;
	struct pl_optim_opts oo = { 0 };
	struct pl_net_opts o = { 0 };
	struct pl_net *net = NULL;
	struct pl_optim *opt = NULL;
	struct fix_batch batch[2] = { 0 };
	struct pl_err err = { 0 };
	struct pl_loss_sum sum[2];
	bool good;

	oo.kind = PL_OPTIM_ADAMW, oo.lr = 0.01, oo.b1 = 0.9, oo.b2 = 0.99, oo.eps = 1e-8;
	oo.decay = 0.01, oo.clip = 1, oo.warmup = 3;
	o.backend = b, o.store = store, o.batch = 4, o.seed = 3, o.graphs = graphs,
	o.in_place = true;
	fix_parse(&m, text);
	good = pl_net_new(m.layer, m.n, &o, &net, &err) == 0 &&
	       pl_optim_new(net, &oo, &opt, &err) == 0;
	for (int i = 0; i < accumulate && good; i++)
		fix_batch(&batch[i], net, 4, 5 + (uint64_t)i);
	if (good)
		pl_net_scale(net, 1.0f / (float)accumulate);
	for (int step = 0; step < steps && good; step++) {
		shuffle();
		for (int i = 0; i < accumulate && good; i++)
			good = pl_net_forward(net, &batch[i].io, (uint64_t)(2 * step + i), false,
					      NULL, NULL, &err) == 0 &&
			       pl_net_backward(net, i > 0, &err) == 0;
		pl_optim_step(opt, step, 0, SIZE_MAX, (double)NAN);
		good = good && pl_net_losses(net, (uint32_t)accumulate, sum, &err) == 0;
		t->loss[step] = 0;
		for (int i = 0; i < accumulate; i++)
			t->loss[step] += sum[i].loss / accumulate;
	}
	if (good) {
		const float *p = fix_params(net, &t->n);

		t->params = malloc(t->n * sizeof(float));
		net->be->get(net->ctx, t->params, p, t->n * sizeof(float));
	}
	for (int i = 0; i < accumulate && net; i++)
		fix_batch_free(&batch[i]);
	pl_optim_free(opt);
	pl_net_free(net);
	return ok(good, "trained: %s", err.msg);
}

static double loss_difference(const struct trained *a, const struct trained *b, int steps)
{
	double far = 0;

	for (int i = 0; i < steps; i++)
		far = worse(far, fabs(a->loss[i] - b->loss[i]) / fabs(a->loss[i]));
	return far;
}

static bool equal(const struct trained *a, const struct trained *b)
{
	return a->n && a->n == b->n && !memcmp(a->params, b->params, a->n * sizeof(float));
}

#endif
