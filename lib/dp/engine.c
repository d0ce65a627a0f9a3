/*
 * Synchronous data-parallel training.
 *
 * A rank sums its gradients with those of all ranks while it computes them (sync.c), waits for all
 * buckets and updates the weights. So M ranks with a batch of B compute the same as one rank with a
 * batch of M B. Weights are never sent: they begin equal (the same seed) and stay equal, because
 * all ranks get the same bits from each sum. train/worker.c does the parts of one rank.
 */
#include "dp/dp.h"
#include "train/worker.h"

struct dp {
	struct pl_worker w; /* first */
	struct pl_dp_sync sync;
};

static void ready(void *arg, uint32_t first, uint32_t n)
{
	pl_dp_sync_ready(&((struct dp *)arg)->sync, first, n);
}

static int dp_step(struct pl_worker *w, int64_t step, struct pl_step_result *r, struct pl_err *err)
{
	struct dp *d = (struct dp *)w;
	int rc;

	pl_train_worker_begin_step(w, step, r);
	pl_dp_sync_begin(&d->sync);
	PL_TRY(pl_train_worker_compute(w, w->ranks, r, err));
	PL_TRY(pl_dp_sync_wait(&d->sync, &r->wait_ns, err));
	PL_TRY(pl_train_worker_update(w, r, err));
out:
	pl_train_worker_end_step(w, rc == 0, r);
	return rc;
}

static void dp_finish(struct pl_worker *w, bool lost)
{
	pl_dp_sync_fini(&((struct dp *)w)->sync, lost);
	pl_train_worker_fini(w, lost);
}

static int dp_prepare(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	struct dp *d = (struct dp *)w;

	PL_CHECK(pl_train_worker_init(w, o, ready, err));
	PL_CHECK(pl_dp_sync_init(&d->sync, w, err));
	return o->tracer ? pl_train_tracer_names(o->tracer, w->net, o->job, d->sync.b.n, err) : 0;
}

const struct pl_engine pl_dp_engine = {
	.name = "dp",
	.policy = "bsp",
	.size = sizeof(struct dp),
	.prepare = dp_prepare,
	.control = pl_train_lockstep,
	.step = dp_step,
	.eval = pl_train_worker_eval,
	.save = pl_train_worker_save,
	.load = pl_train_worker_load,
	.export_weights = pl_train_worker_export,
	.import_weights = pl_train_worker_import,
	.finish = dp_finish,
};
