/*
 * Local SGD against a slow serial reference, which trains the ranks one after another in one
 * process, and averages in the order of the ranks. Two ranks have one order of sums, so they give
 * the same bits; the sums of three may be rounded differently.
 *
 * runner: threads
 */
#include <string.h>

#include "comm_fixture.h"

#include "data/weights.h"
#include "dp/dp.h"
#include "train/worker.h"

#define STEPS 11 /* the last round is a part of one */
#define BATCH 16 /* of 200 samples to train on: an epoch ends within a step */
#define SEED  1

extern const struct pl_engine pl_dp_local_sgd_engine;

struct run {
	const char *optimizer;
	int ranks, local_steps;
};

static const char *weights_path(void)
{
	static char path[1024];
	const char *tmp = getenv("TMP");

	snprintf(path, sizeof(path), "%s/local.st", tmp ? tmp : "/tmp");
	return path;
}

static int read_job(const struct run *r, struct pl_job *j, struct pl_dataset *d, struct pl_err *err)
{
	const char *say[] = { "data synthetic:samples=250,dims=16,classes=4",
			      "split 0.8",
			      "batch 16",
			      "steps 11",
			      r->optimizer,
			      NULL };
	char policy[64];
	int rc;

	snprintf(policy, sizeof(policy), "policy local-sgd local-steps=%d", r->local_steps);
	pl_job_init(j);
	PL_TRY(pl_job_set(j, policy, err));
	for (size_t i = 0; say[i]; i++)
		PL_TRY(pl_job_set(j, say[i], err));
	rc = pl_dataset_open(j->data, SEED, d, err);
out:
	return rc;
}

static int train(struct pl_world_opts *o, void *arg)
{
	const struct run *r = arg;
	struct pl_engine_opts opts = { 0 };
	struct pl_step_result step;
	struct pl_worker *worker;
	struct pl_dataset data;
	struct pl_model model;
	struct pl_err e = { 0 };
	struct pl_job job;

	o->transport = "shm";
	NEED(read_job(r, &job, &data, &e) == 0);
	NEED(pl_model_parse("mlp:16-24-4", &model, &e) == 0);
	NEED(pl_comm_world_open(o, &opts.world, &e) == 0);
	opts.job = &job;
	opts.model = &model;
	opts.data = &data;
	NEED(pl_alloc(&worker, 1, pl_dp_local_sgd_engine.size, &e) == 0);
	NEED(pl_dp_local_sgd_engine.prepare(worker, &opts, &e) == 0);
	for (int i = 0; i < STEPS; i++)
		NEED(pl_dp_local_sgd_engine.step(worker, i, &step, &e) == 0 &&
		     step.samples == BATCH);
	NEED(pl_dp_local_sgd_engine.export_weights(worker, weights_path(), &e) == 0);
	pl_dp_local_sgd_engine.finish(worker, false);
	pl_free(worker);
	NEED(pl_comm_world_close(opts.world, &e) == 0);
	pl_dataset_fini(&data);
	pl_model_fini(&model);
	pl_job_fini(&job);
	return 0;
}

/* ---- the reference -------------------------------------------------------------------------- */

struct rank {
	struct pl_net *net;
	struct pl_optim *optim;
	float *slab[3]; /* weights, state of the optimiser */
	size_t n;
	uint32_t slabs;
};

static bool new_rank(const struct pl_job *job, struct rank *k)
{
	static const double n[] = { 16, 24, 4 };
	static const struct pl_layer_key loss = { "softmax-cross-entropy", "", 0 };
	const struct pl_layer layer[] = {
		{ .op = "input", .num = &n[0], .n_num = 1 },
		{ .op = "dense", .num = &n[1], .n_num = 1 },
		{ .op = "relu" },
		{ .op = "dense", .num = &n[2], .n_num = 1 },
		{ .op = "loss", .key = &loss, .n_keys = 1 },
	};
	const struct pl_net_opts o = { .batch = BATCH, .seed = SEED, .in_place = true };
	struct pl_optim_opts oo;
	struct pl_err err = { 0 };

	if (pl_net_new(layer, PL_LEN(layer), &o, &k->net, &err) < 0 ||
	    pl_train_worker_optim_opts(job, STEPS, &oo, &err) < 0 ||
	    pl_optim_new(k->net, &oo, &k->optim, &err) < 0)
		return ok(false, "a rank of the reference: %s", err.msg);
	k->slab[0] = pl_net_view(k->net).params;
	k->slabs = 1 + pl_optim_slabs(k->optim, k->slab + 1, &k->n);
	return true;
}

static bool step_of_rank(struct rank *k, const struct pl_dataset *d, int step, int rank, int ranks)
{
	struct pl_batch_io io = { .n = BATCH };
	float x[BATCH * 16];
	int32_t y[BATCH];
	size_t index[BATCH];
	struct pl_err err = { 0 };
	double loss;

	pl_dataset_draw(d, 0, 200, SEED, step, rank, ranks, BATCH, 0, index);
	pl_dataset_batch(d, index, BATCH, 0, x, NULL, y, NULL);
	io.x = x;
	io.y = y;
	if (pl_net_forward(k->net, &io, 0, false, &loss, NULL, &err) < 0 ||
	    pl_net_backward(k->net, false, &err) < 0)
		return ok(false, "a step of the reference: %s", err.msg);
	pl_optim_step(k->optim, step, 0, SIZE_MAX, NAN);
	return true;
}

static void average(struct rank *k, int ranks)
{
	for (uint32_t s = 0; s < k->slabs; s++)
		for (size_t i = 0; i < k->n; i++) {
			float sum = k[0].slab[s][i];

			for (int r = 1; r < ranks; r++)
				sum += k[r].slab[s][i];
			for (int r = 0; r < ranks; r++)
				k[r].slab[s][i] = sum * (1.0f / (float)ranks);
		}
}

/* The greatest difference between the file that the ranks wrote and the reference; -1: failed. */
static double difference(struct pl_net *net)
{
	struct pl_weights w;
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open(weights_path(), &err);
	double most = 0;
	const struct pl_net_view view = pl_net_view(net);
	const struct pl_net_tensor *t = view.tensor;

	if (!in || pl_weights_read(in, "local.st", &w, &err) < 0)
		return -1;
	pl_in_close(in);
	for (uint32_t i = 0; i < view.n_tensors; i++) {
		const struct pl_weight *x = pl_weights_find(&w, t[i].name);
		float v[16 * 24];

		if (!x || t[i].n > PL_LEN(v) || pl_weights_f32(x, v, t[i].n, &err) < 0)
			return -1;
		for (size_t k = 0; k < t[i].n; k++)
			most = fmax(most,
				    fabs((double)v[k] - (double)view.params[t[i].offset + k]));
	}
	pl_weights_fini(&w);
	return most;
}

static void compare(const struct run *r)
{
	struct pl_world_opts o = { .meet = meeting(false), .timeout_ns = 5000000000 };
	struct ranks ranks = start_ranks(r->ranks, &o, train, (void *)r);
	struct rank k[3] = { { 0 } };
	struct pl_dataset data;
	struct pl_err err = { 0 };
	struct pl_job job;
	bool good = end_ranks(&ranks, 40) && read_job(r, &job, &data, &err) == 0;
	double d;

	for (int i = 0; i < r->ranks; i++)
		good = good && ranks.status[i] == 0 && new_rank(&job, &k[i]);
	for (int step = 0; good && step < STEPS; step++) {
		for (int i = 0; i < r->ranks; i++)
			good = good && step_of_rank(&k[i], &data, step, i, r->ranks);
		if ((step + 1) % r->local_steps == 0 || step + 1 == STEPS)
			average(k, r->ranks);
	}
	d = good ? difference(k[0].net) : -1;
	ok(good && d >= 0 && d <= (r->ranks == 2 ? 0 : 1e-6),
	   "%s, %d ranks, %d local steps: the reference's weights to %g", r->optimizer, r->ranks,
	   r->local_steps, d);
	for (int i = 0; i < r->ranks; i++) {
		pl_optim_free(k[i].optim);
		pl_net_free(k[i].net);
	}
	pl_dataset_fini(&data);
	pl_job_fini(&job);
}

int main(void)
{
	static const struct run run[] = {
		{ "optimizer sgd lr=0.1", 2, 1 },
		{ "optimizer sgd lr=0.1", 2, 4 },
		{ "optimizer sgd lr=0.1 momentum=0.9", 2, 4 },
		{ "optimizer adamw lr=0.01 clip=1", 2, 5 },
		{ "optimizer sgd lr=0.1 momentum=0.9", 3, 3 },
		{ "optimizer adam lr=0.01", 3, 100 },
	};

	for (size_t i = 0; i < PL_LEN(run); i++)
		compare(&run[i]);
	return done_testing();
}
