/*
 * Sums of gradients, bucket by bucket, during the backward pass.
 *
 * In the last microbatch of a step, the all-reduce of a bucket begins as soon as the gradients of
 * this bucket and of all earlier ones are ready. The slab of gradients is memory of the world, so
 * contiguous buckets are sent from there. Others are copied: gathered before, scattered after.
 */
#include "dp/dp.h"
#include "train/worker.h"

/* ---- communication during the backward pass ------------------------------------------------- */

static void gather_bucket(struct pl_dp_sync *s, const struct pl_dp_bucket *b, float *to, bool back)
{
	for (uint32_t i = b->first; i < b->first + b->n; i++) {
		const struct pl_net_tensor *t = &s->w->view.tensor[s->b.index[i]];
		float *at = s->w->view.grads + t->offset;

		s->w->view.be->copy(s->w->view.ctx, back ? at : to, back ? to : at,
				    t->n * sizeof(float));
		to += t->n;
	}
}

static int start_allreduce(struct pl_dp_sync *s, uint32_t k)
{
	const struct pl_dp_bucket *b = &s->b.v[k];
	uint64_t tag = pl_tag_of(s->w->step, k);
	float *at = b->contiguous ? s->w->view.grads + b->offset : s->copy[k];
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
	if (s->w->o.tracer && pl_train_worker_staged(s->w))
		pl_train_tracer_range(s->w->o.tracer, s->w->o.tracer->name[PL_NAME_ISSUE], true);
	if (!b->contiguous)
		gather_bucket(s, b, at, false);
	rc = pl_comm_world_begin(s->w->o.world, &a, &s->work[k], &s->w->err);
	if (s->w->o.tracer && pl_train_worker_staged(s->w))
		pl_train_tracer_range(s->w->o.tracer, s->w->o.tracer->name[PL_NAME_ISSUE], false);
	pl_train_worker_record(s->w, PL_K_HOST_OP, PL_NAME_ISSUE, begin, (int64_t)tag);
	return rc;
}

void pl_dp_sync_ready(struct pl_dp_sync *s, uint32_t first, uint32_t n)
{
	struct pl_tracer *t = s->w->o.tracer;

	if (!s->w->last_mb || s->w->err.code)
		return;
	for (uint32_t i = first + n; i-- > first;) {
		s->not_ready[s->b.of[i]]--;
		if (t) {
			pl_ns now = pl_now_ns();
			struct pl_rec_event e = pl_rec_event(t->main, PL_K_HOST_OP,
							     t->name[PL_NAME_READY], now, now);

			e.step = (int32_t)s->w->step;
			e.bytes = (int64_t)(s->w->view.tensor[i].n * sizeof(float));
			e.dims = t->dims[i];
			e.values = t->param[i];
			pl_rec(t->rec, &e);
		}
	}
	while (s->w->o.world && s->next < s->b.n && !s->not_ready[s->next])
		if (start_allreduce(s, s->next++) < 0)
			return;
}

/* ---- a step -------------------------------------------------------------------------------- */

int pl_dp_sync_wait(struct pl_dp_sync *s, pl_ns *waited, struct pl_err *err)
{
	for (uint32_t k = 0; s->w->o.world && k < s->b.n; k++) {
		struct pl_work *w = s->work[k];
		pl_ns begin = pl_train_worker_begin_wait(s->w);

		s->work[k] = NULL;
		PL_CHECK(pl_comm_work_wait(w, err));
		*waited += pl_now_ns() - begin;
		pl_train_worker_record_wait(s->w, pl_tag_of(s->w->step, k));
		if (!s->b.v[k].contiguous)
			gather_bucket(s, &s->b.v[k], s->copy[k], true);
	}
	return 0;
}

void pl_dp_sync_begin(struct pl_dp_sync *s)
{
	s->next = 0;
	for (uint32_t k = 0; k < s->b.n; k++)
		s->not_ready[k] = s->b.v[k].n;
}

/* ---- begin and end ------------------------------------------------------------------------- */

int pl_dp_sync_init(struct pl_dp_sync *s, struct pl_worker *w, struct pl_err *err)
{
	const struct pl_job *j = w->o.job;

	s->w = w;
	PL_CHECK(pl_dp_buckets(w->view.tensor, w->view.n_tensors, j->bucket_mb, w->algo, w->o.plan,
			       w->rank ? NULL : w->o.log, &s->b, err));
	PL_CHECK(pl_alloc(&s->work, (size_t)s->b.n + 1, sizeof(struct pl_work *), err));
	PL_CHECK(pl_alloc(&s->copy, (size_t)s->b.n + 1, sizeof(float *), err));
	PL_CHECK(pl_alloc(&s->not_ready, (size_t)s->b.n + 1, sizeof(*s->not_ready), err));
	for (uint32_t k = 0; w->o.world && k < s->b.n; k++) {
		if (s->b.v[k].contiguous)
			continue;
		s->copy[k] = pl_comm_world_alloc(w->o.world, s->b.v[k].count * sizeof(float), err);
		if (!s->copy[k])
			return pl_wrap(err, "a bucket of %zu floats", s->b.v[k].count);
	}
	return 0;
}

void pl_dp_sync_fini(struct pl_dp_sync *s, bool lost)
{
	for (uint32_t k = 0; s->copy && k < s->b.n && !lost; k++)
		if (s->copy[k])
			pl_comm_world_free(s->w->o.world, s->copy[k]);
	pl_free(s->work);
	pl_free(s->copy);
	pl_free(s->not_ready);
	pl_dp_buckets_fini(&s->b);
}
