/*
 * Synchronous data-parallel training.
 *
 * In the last microbatch of a step, the all-reduce of a bucket begins during the backward pass, as
 * soon as the gradients of this bucket and of all earlier ones are ready. Then the rank waits for
 * all buckets and updates the weights. So M ranks with a batch of B compute the same as one rank
 * with a batch of M B. Weights are never sent: they begin equal (the same seed) and stay equal,
 * because all ranks get the same bits from each sum.
 *
 * The slab of gradients is memory of the world, so contiguous buckets are sent from there. Others
 * are copied: gathered before, scattered after. train/worker.c does the parts of one rank.
 */
#include "dp/dp.h"
#include "train/worker.h"

struct dp {
	struct pl_worker w; /* first */
	struct pl_dp_buckets b;
	struct pl_work **work; /* of each bucket, NULL: none in progress */
	float **copy;	       /* of buckets whose tensors are not contiguous */
	uint32_t *not_ready;   /* [bucket]: tensors whose gradients are not ready */
	uint32_t next;	       /* the bucket to start next */
};

/* ---- communication during the backward pass ------------------------------------------------- */

static void gather_bucket(struct dp *d, const struct pl_dp_bucket *b, float *to, bool back)
{
	for (uint32_t i = b->first; i < b->first + b->n; i++) {
		const struct pl_net_tensor *t = &d->w.view.tensor[d->b.index[i]];
		float *at = d->w.view.grads + t->offset;

		d->w.view.be->copy(d->w.view.ctx, back ? at : to, back ? to : at,
				   t->n * sizeof(float));
		to += t->n;
	}
}

static int start_allreduce(struct dp *d, uint32_t k)
{
	const struct pl_dp_bucket *b = &d->b.v[k];
	uint64_t tag = pl_tag_of(d->w.step, k);
	float *at = b->contiguous ? d->w.view.grads + b->offset : d->copy[k];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE,
				  .algo = b->algo,
				  .src = at,
				  .dst = at,
				  .count = b->count,
				  .parts = b->parts > 1 ? b->parts : 0,
				  .tag = tag };
	pl_ns begin = pl_now_ns();
	int rc;

	/* the trace shows when the gradients can leave the device */
	if (d->w.o.tracer && pl_train_worker_staged(&d->w))
		pl_train_tracer_range(d->w.o.tracer, d->w.o.tracer->name[PL_NAME_ISSUE], true);
	if (!b->contiguous)
		gather_bucket(d, b, at, false);
	rc = pl_comm_world_begin(d->w.o.world, &a, &d->work[k], &d->w.err);
	if (d->w.o.tracer && pl_train_worker_staged(&d->w))
		pl_train_tracer_range(d->w.o.tracer, d->w.o.tracer->name[PL_NAME_ISSUE], false);
	pl_train_worker_record(&d->w, PL_K_HOST_OP, PL_NAME_ISSUE, begin, (int64_t)tag);
	return rc;
}

/* Gradients of tensors first .. first + n - 1 are final: start the buckets that are complete. */
static void ready(void *arg, uint32_t first, uint32_t n)
{
	struct dp *d = arg;
	struct pl_tracer *t = d->w.o.tracer;

	if (!d->w.last_mb || d->w.err.code)
		return;
	for (uint32_t i = first + n; i-- > first;) {
		d->not_ready[d->b.of[i]]--;
		if (t) {
			pl_ns now = pl_now_ns();
			struct pl_rec_event e = pl_rec_event(t->main, PL_K_HOST_OP,
							     t->name[PL_NAME_READY], now, now);

			e.step = (int32_t)d->w.step;
			e.bytes = (int64_t)(d->w.view.tensor[i].n * sizeof(float));
			e.dims = t->dims[i];
			e.values = t->param[i];
			pl_rec(t->rec, &e);
		}
	}
	while (d->w.o.world && d->next < d->b.n && !d->not_ready[d->next])
		if (start_allreduce(d, d->next++) < 0)
			return;
}

/* ---- a step -------------------------------------------------------------------------------- */

static int wait_all(struct dp *d, pl_ns *waited, struct pl_err *err)
{
	for (uint32_t k = 0; d->w.o.world && k < d->b.n; k++) {
		struct pl_work *w = d->work[k];
		pl_ns begin = pl_train_worker_begin_wait(&d->w);

		d->work[k] = NULL;
		PL_CHECK(pl_comm_work_wait(w, err));
		*waited += pl_now_ns() - begin;
		pl_train_worker_record_wait(&d->w, pl_tag_of(d->w.step, k));
		if (!d->b.v[k].contiguous)
			gather_bucket(d, &d->b.v[k], d->copy[k], true);
	}
	return 0;
}

static void reset_ready(struct dp *d)
{
	d->next = 0;
	for (uint32_t k = 0; k < d->b.n; k++)
		d->not_ready[k] = d->b.v[k].n;
}

static int dp_step(struct pl_worker *w, int64_t step, struct pl_step_result *r, struct pl_err *err)
{
	struct dp *d = (struct dp *)w;
	int rc;

	pl_train_worker_begin_step(w, step, r);
	reset_ready(d);
	PL_TRY(pl_train_worker_compute(w, w->ranks, r, err));
	PL_TRY(wait_all(d, &r->wait_ns, err));
	PL_TRY(pl_train_worker_update(w, r, err));
out:
	pl_train_worker_end_step(w, rc == 0, r);
	return rc;
}

/* ---- begin and end ------------------------------------------------------------------------- */

static int make_buckets(struct dp *d, struct pl_err *err)
{
	const struct pl_job *j = d->w.o.job;

	PL_CHECK(pl_dp_buckets(d->w.view.tensor, d->w.view.n_tensors, j->bucket_mb, d->w.algo,
			       d->w.o.plan, d->w.rank ? NULL : d->w.o.log, &d->b, err));
	PL_CHECK(pl_alloc(&d->work, (size_t)d->b.n + 1, sizeof(struct pl_work *), err));
	PL_CHECK(pl_alloc(&d->copy, (size_t)d->b.n + 1, sizeof(float *), err));
	PL_CHECK(pl_alloc(&d->not_ready, (size_t)d->b.n + 1, sizeof(*d->not_ready), err));
	for (uint32_t k = 0; d->w.o.world && k < d->b.n; k++) {
		if (d->b.v[k].contiguous)
			continue;
		d->copy[k] =
			pl_comm_world_alloc(d->w.o.world, d->b.v[k].count * sizeof(float), err);
		if (!d->copy[k])
			return pl_wrap(err, "a bucket of %zu floats", d->b.v[k].count);
	}
	return 0;
}

static void dp_finish(struct pl_worker *w, bool lost)
{
	struct dp *d = (struct dp *)w;

	for (uint32_t k = 0; d->copy && k < d->b.n && !lost; k++)
		if (d->copy[k])
			pl_comm_world_free(w->o.world, d->copy[k]);
	pl_free(d->work);
	pl_free(d->copy);
	pl_free(d->not_ready);
	pl_dp_buckets_fini(&d->b);
	pl_train_worker_fini(w, lost);
}

static int dp_prepare(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	struct dp *d = (struct dp *)w;

	PL_CHECK(pl_train_worker_init(w, o, ready, err));
	PL_CHECK(make_buckets(d, err));
	return o->tracer ? pl_train_tracer_names(o->tracer, w->net, o->job, d->b.n, err) : 0;
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
