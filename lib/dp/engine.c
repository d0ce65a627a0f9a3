/*
 * Synchronous data-parallel training.
 *
 * A step: the rank's batch, in microbatches if the plan accumulates; forward and backward of each;
 * during the last backward the all-reduce of a bucket begins as soon as its gradients and those of
 * all buckets before it are there; wait for all; one step of the optimiser. Gradients are scaled by
 * 1 / (ranks x microbatches) where they arise, so the sum over ranks is the mean, and M ranks with
 * a batch of B do what one does with M B. Weights are never sent: they begin equal (the same seed)
 * and stay so, since all ranks get the same bits from each sum.
 *
 * The slab of gradients lies in memory of the world, so that buckets of neighbours travel from
 * where they are; others are gathered into a copy before and scattered behind.
 *
 * On a device all of that is only queued: the backward pass and, beside it, the all-reduces, the
 * optimiser behind both. The host then gathers the next step's samples and waits once, for the
 * world and then for the device, and is told there what failed in between. So what a device waits
 * for between two steps is their copy to it alone: some 0.1 ms a MiB, tokens of a text far less.
 *
 * A paced rank (a slower machine, to try what that does) sleeps at the ends of its layers for what
 * its computation would have taken longer; small amounts add up until a sleep is worth it.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "dp/internal.h"

#define SLEEP_MIN_NS 300000 /* sleeping for less would take longer than that */

/* ---- hooks of the network ------------------------------------------------------------------ */

static void sleep_ns(pl_ns ns)
{
	struct timespec t;
	pl_ns until = pl_now_ns() + ns;

	t.tv_sec = (time_t)(until / 1000000000);
	t.tv_nsec = (long)(until % 1000000000);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

/* The rank owes `more`; sleeps it off when it is enough, or at the end of the pass. */
static void pace(struct dp *d, double more, bool all)
{
	pl_ns at;

	d->owed_ns += (pl_ns)more;
	if (d->owed_ns < (all ? 50000 : SLEEP_MIN_NS))
		return;
	at = pl_now_ns();
	sleep_ns(d->owed_ns);
	d->owed_ns -= pl_now_ns() - at; /* a sleep that was too long counts for the next */
}

static pl_id layer_name(const struct pl_tracer *t, uint32_t layer, enum pl_phase p, bool again)
{
	return p == PL_PHASE_BACKWARD ? t->backward[layer]
	       : again		      ? t->again[layer]
				      : t->forward[layer];
}

static void layer_begin(void *arg, uint32_t layer, enum pl_phase p, bool again)
{
	struct dp *d = arg;
	struct pl_tracer *t = d->o.tracer;

	d->layer_begin = pl_now_ns();
	if (t && d->training)
		tracer_range(t, layer_name(t, layer, p, again), true);
}

static void layer_end(void *arg, uint32_t layer, enum pl_phase p, bool again)
{
	struct dp *d = arg;
	struct pl_tracer *t = d->o.tracer;
	struct pl_rec_event e;
	pl_ns end;

	if (!d->training)
		return;
	if (t)
		tracer_range(t, layer_name(t, layer, p, again), false);
	end = pl_now_ns();
	if (d->pace_factor > 1 || d->pace_ms > 0) {
		double more =
			fmin(d->pace_left, d->layer_pace[layer] * (p == PL_PHASE_BACKWARD ? 2 : 1));

		d->pace_left -= more;
		pace(d, (d->pace_factor - 1) * (double)(end - d->layer_begin) + more, false);
		end = pl_now_ns();
	}
	if (!t)
		return;
	e = pl_rec_event(t->main, PL_K_HOST_OP, layer_name(t, layer, p, again), d->layer_begin,
			 end);
	e.step = (int32_t)d->step;
	e.layer = (int32_t)layer;
	e.mb = d->b.accumulate > 1 ? d->mb : -1;
	if (d->precision[2 * layer + p] == PL_BF16)
		e.precision = t->bf16;
	pl_rec(t->rec, &e);
}

static void gather_bucket(struct dp *d, const struct pl_dp_bucket *b, float *to, bool back)
{
	for (uint32_t i = b->first; i < b->first + b->n; i++) {
		const struct pl_net_tensor *t = &d->tensor[d->b.index[i]];
		float *at = d->grads + t->offset;

		d->be->copy(d->ctx, back ? at : to, back ? to : at, t->n * sizeof(float));
		to += t->n;
	}
}

static void record_issue(struct dp *d, pl_id what, pl_ns begin, uint64_t tag)
{
	struct pl_tracer *t = d->o.tracer;
	struct pl_rec_event e;

	if (!t)
		return;
	e = pl_rec_event(t->main, PL_K_HOST_OP, what, begin, pl_now_ns());
	e.step = (int32_t)d->step;
	e.corr = (int64_t)tag;
	e.coll = t->coll[PL_OP_ALLREDUCE];
	pl_rec(t->rec, &e);
}

/* What a device computes passes through memory of the host, which is taken and pinned on the way:
 * not while something is recorded. */
static bool staged(const struct dp *d)
{
	return d->o.world && strcmp(pl_world_transport(d->o.world), "nccl") != 0;
}

static int issue(struct dp *d, uint32_t k)
{
	const struct pl_dp_bucket *b = &d->b.v[k];
	uint64_t tag = tag_of(d->step, k);
	float *at = b->whole ? d->grads + b->offset : d->copy[k];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE,
				  .algo = b->algo,
				  .src = at,
				  .dst = at,
				  .count = b->count,
				  .parts = b->parts > 1 ? b->parts : 0,
				  .tag = tag };
	pl_ns begin = pl_now_ns();
	int rc;

	/* what the device has to come to before it is staged */
	if (d->o.tracer && staged(d))
		tracer_range(d->o.tracer, d->o.tracer->issue, true);
	if (!b->whole)
		gather_bucket(d, b, at, false);
	rc = pl_world_begin(d->o.world, &a, &d->work[k], &d->err);
	if (d->o.tracer && staged(d))
		tracer_range(d->o.tracer, d->o.tracer->issue, false);
	record_issue(d, d->o.tracer ? d->o.tracer->issue : PL_NONE, begin, tag);
	return rc;
}

/* Gradients of tensors first .. first + n - 1 are final: begin what can be. */
static void ready(void *arg, uint32_t first, uint32_t n)
{
	struct dp *d = arg;
	struct pl_tracer *t = d->o.tracer;

	if (!d->last_mb || d->err.code)
		return;
	for (uint32_t i = first + n; i-- > first;) {
		d->left[d->b.of[i]]--;
		if (t) {
			pl_ns now = pl_now_ns();
			struct pl_rec_event e =
				pl_rec_event(t->main, PL_K_HOST_OP, t->ready, now, now);

			e.step = (int32_t)d->step;
			e.bytes = (int64_t)(d->tensor[i].n * sizeof(float));
			e.dims = t->dims[i];
			pl_rec(t->rec, &e);
		}
	}
	while (d->o.world && d->next < d->b.n && !d->left[d->next])
		if (issue(d, d->next++) < 0)
			return;
}

/* ---- a step -------------------------------------------------------------------------------- */

static void record(struct dp *d, uint8_t kind, pl_id name, pl_ns begin, int64_t corr)
{
	struct pl_tracer *t = d->o.tracer;
	struct pl_rec_event e;

	if (!t)
		return;
	e = pl_rec_event(t->main, kind, name, begin, pl_now_ns());
	e.step = (int32_t)d->step;
	e.corr = corr;
	pl_rec(t->rec, &e);
}

/* Waits for the passes whose losses nobody has taken yet. */
static int take_losses(struct dp *d, struct pl_step_result *r, struct pl_err *err)
{
	struct pl_loss_sum sum[PL_NET_LOSSES];
	pl_ns begin = pl_now_ns();
	int rc = pl_net_losses(d->net, d->n_losses, sum, err);

	if (d->o.tracer)
		tracer_synced(d->o.tracer, begin);
	for (uint32_t i = 0; rc == 0 && i < d->n_losses; i++) {
		r->loss += sum[i].loss / (double)d->b.accumulate;
		r->hits += sum[i].hits;
	}
	d->n_losses = 0;
	return rc;
}

static int passes(struct dp *d, struct pl_step_result *r, struct pl_err *err)
{
	int rc = 0;

	pl_net_scale(d->net, 1.0f / (float)((int64_t)d->ranks * d->b.accumulate));
	for (d->mb = 0; d->mb < d->b.accumulate; d->mb++) {
		struct pl_batch_io io = feed_rows(&d->feed, d->mb * d->micro, d->micro);
		uint64_t place[] = { (uint64_t)d->o.job->seed, (uint64_t)d->step, (uint64_t)d->rank,
				     (uint64_t)d->mb };

		d->last_mb = d->mb == d->b.accumulate - 1;
		PL_TRY(pl_net_forward(d->net, &io, pl_hash(place, sizeof(place)), false, NULL, NULL,
				      err));
		PL_TRY(pl_net_backward(d->net, d->mb > 0, err));
		if (++d->n_losses == PL_NET_LOSSES)
			PL_TRY(take_losses(d, r, err));
		if (d->err.code) {
			if (err && !err->code)
				*err = d->err;
			rc = d->err.code;
			goto out;
		}
	}
out:
	return rc;
}

static pl_ns begin_wait(struct dp *d)
{
	pl_ns now = pl_now_ns();

	if (d->o.tracer)
		d->o.tracer->waiting = now;
	return now;
}

/* What is left of it, if this thread launched something meanwhile. */
static void record_wait(struct dp *d, uint64_t tag)
{
	struct pl_tracer *t = d->o.tracer;

	if (!t)
		return;
	record(d, PL_K_WAIT, t->wait, t->waiting, (int64_t)tag);
	t->waiting = 0;
}

static int wait_all(struct dp *d, pl_ns *waited, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t k = 0; d->o.world && k < d->b.n; k++) {
		struct pl_work *w = d->work[k];
		pl_ns begin = begin_wait(d);

		d->work[k] = NULL;
		PL_TRY(pl_work_wait(w, err));
		*waited += pl_now_ns() - begin;
		record_wait(d, tag_of(d->step, k));
		if (!d->b.v[k].whole)
			gather_bucket(d, &d->b.v[k], d->copy[k], true);
	}
out:
	return rc;
}

/* A device waits for communication without a deadline, so who waits for the device asks first. */
static int settle(struct dp *d, struct pl_err *err)
{
	return d->o.world ? pl_world_settle(d->o.world, err) : 0;
}

static void count_left(struct dp *d)
{
	d->next = 0;
	for (uint32_t k = 0; k < d->b.n; k++)
		d->left[k] = d->b.v[k].n;
}

/* The device has a step's work before it: the host looks for the samples of the next one. */
static void fetch_next(struct dp *d)
{
	pl_ns begin = pl_now_ns();

	feed_step(&d->feed, d->step + 1);
	record(d, PL_K_DATA, d->o.tracer ? d->o.tracer->batch : PL_NONE, begin, -1);
}

static int dp_step(void *state, int64_t step, struct pl_step_result *r, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_tracer *t = d->o.tracer;
	pl_ns begin = pl_now_ns(), at;
	int rc;

	memset(r, 0, sizeof(*r));
	d->step = step;
	d->training = true;
	d->pace_left = d->pace_ms * 1e6;
	d->n_losses = 0;
	count_left(d);
	feed_step(&d->feed, step);
	record(d, PL_K_DATA, t ? t->batch : PL_NONE, begin, -1);
	PL_TRY(passes(d, r, err));
	if (d->owed_ns + d->pace_left > 0) {
		at = pl_now_ns();
		pace(d, d->pace_left, true);
		record(d, PL_K_HOST_OP, t ? t->pace : PL_NONE, at, -1);
	}
	PL_TRY(wait_all(d, &r->wait_ns, err));
	at = pl_now_ns();
	if (t)
		tracer_range(t, t->optimizer, true);
	pl_optim_step(d->optim, step, 0, SIZE_MAX, NAN);
	if (t)
		tracer_range(t, t->optimizer, false);
	if (d->be->device)
		fetch_next(d);
	PL_TRY(settle(d, err));
	PL_TRY(take_losses(d, r, err));
	record(d, PL_K_HOST_OP, t ? t->optimizer : PL_NONE, at, -1);
	record(d, PL_K_STEP, t ? t->step : PL_NONE, begin, -1);
	r->samples = (int64_t)d->feed.batch;
	r->classified = r->samples * feed_classified(&d->feed);
	r->step_ns = pl_now_ns() - begin;
	r->compute_ns = r->step_ns - r->wait_ns;
	r->bytes_sent = d->o.world ? pl_world_sent(d->o.world) : 0;
	if (t) {
		struct pl_rec_event e =
			pl_rec_event(t->main, PL_K_COUNTER, t->loss, pl_now_ns(), 0);

		e.step = (int32_t)step;
		e.value = r->loss;
		pl_rec(t->rec, &e);
		pl_tracer_settle(t);
	}
out:
	d->training = false;
	return rc;
}

/* ---- sums and evaluation ------------------------------------------------------------------- */

/* Two floats hold 48 bits of a double, and their sums do not lose more than those of floats. */
int dp_sum(void *state, double *v, size_t n, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 2 * d->n_sum, .on_host = true };
	int rc = 0;

	for (size_t at = 0; d->o.world && at < n; at += d->n_sum) {
		size_t m = pl_min_size(n - at, d->n_sum);

		memset(d->sum, 0, 2 * d->n_sum * sizeof(float));
		for (size_t i = 0; i < m; i++) {
			d->sum[2 * i] = (float)v[at + i];
			d->sum[2 * i + 1] = (float)(v[at + i] - (double)d->sum[2 * i]);
		}
		a.src = a.dst = d->sum;
		a.tag = tag_of(d->step, TAG_BUCKETS - 1 - d->sums++ % TAG_SUMS);
		record_issue(d, d->o.tracer ? d->o.tracer->sum : PL_NONE, pl_now_ns(), a.tag);
		begin_wait(d);
		PL_TRY(pl_world_do(d->o.world, &a, err));
		record_wait(d, a.tag);
		for (size_t i = 0; i < m; i++)
			v[at + i] = (double)d->sum[2 * i] + (double)d->sum[2 * i + 1];
	}
out:
	return rc;
}

int dp_broadcast(struct dp *d, float *v, size_t n, bool on_host, struct pl_err *err)
{
	struct pl_coll_args a = {
		.op = PL_OP_BROADCAST, .src = v, .dst = v, .count = n, .root = 0, .on_host = on_host
	};
	int rc = d->o.world && n ? pl_world_do(d->o.world, &a, err) : 0;

	return rc < 0 ? rc : settle(d, err);
}

/* Running means are those of rank 0, as in DDP; so the result does not depend on who evaluates what
 * but for rounding. */
static int dp_eval(void *state, double *loss, int64_t *hits, int64_t *samples, struct pl_err *err)
{
	struct dp *d = state;
	size_t held = feed_held_out(&d->feed), n_state, each = (size_t)d->micro;
	float *running = pl_net_state(d->net, &n_state);
	double v[3] = { 0 };
	int rc;

	PL_TRY(dp_broadcast(d, running, n_state, false, err));
	for (size_t at = (size_t)d->rank * each; at < held; at += each * (size_t)d->ranks) {
		int n = (int)pl_min_size(each, held - at);
		struct pl_batch_io io;
		double l = 0;
		int64_t h = 0;

		feed_eval(&d->feed, at, n);
		io = feed_rows(&d->feed, 0, n);
		PL_TRY(pl_net_forward(d->net, &io, 0, true, &l, &h, err));
		v[0] += l * n;
		v[1] += (double)h;
		v[2] += n;
	}
	PL_TRY(dp_sum(d, v, 3, err));
	*loss = v[2] > 0 ? v[0] / v[2] : NAN;
	*hits = (int64_t)(v[1] + 0.5);
	*samples = (int64_t)(v[2] + 0.5) * pl_max_i64(1, feed_classified(&d->feed));
out:
	return rc;
}

/* ---- preparing ----------------------------------------------------------------------------- */

static void *world_slab(void *arg, size_t bytes)
{
	struct dp *d = arg;

	return pl_world_alloc(d->o.world, bytes);
}

static void world_slab_free(void *arg, void *p, size_t bytes)
{
	struct dp *d = arg;

	(void)bytes;
	if (!d->lost)
		pl_world_free(d->o.world, p);
}

/* The model's statements as the network takes them; borrowed strings. */
static int layers_of(const struct pl_model *m, struct pl_layer **out, struct pl_layer_key **keys,
		     struct pl_err *err)
{
	size_t n = 0, at = 0;
	int rc;

	*out = NULL;
	*keys = NULL;
	for (size_t i = 0; i < m->n_layers; i++)
		n += m->layer[i].n_keys;
	PL_TRY(pl_alloc(out, m->n_layers + 1, sizeof(**out), err));
	PL_TRY(pl_alloc(keys, n + 1, sizeof(**keys), err));
	for (size_t i = 0; i < m->n_layers; i++) {
		const struct pl_model_layer *l = &m->layer[i];

		(*out)[i] = (struct pl_layer){ .op = l->op,
					       .num = l->num,
					       .n_num = l->n_num,
					       .key = *keys + at,
					       .n_keys = l->n_keys,
					       .line = l->line };
		for (uint32_t k = 0; k < l->n_keys; k++)
			(*keys)[at++] =
				(struct pl_layer_key){ l->key[k].key, l->key[k].text, l->key[k].v };
	}
out:
	return rc;
}

static int make_net(struct dp *d, int batch, struct pl_err *err)
{
	const struct pl_job *j = d->o.job;
	struct pl_net_opts n = { .backend = d->o.backend,
				 .ctx = d->o.ctx,
				 .store = d->o.store,
				 .threads = (int)j->threads,
				 .batch = batch,
				 .seed = (uint64_t)j->seed,
				 .graphs = !d->o.tracer && !staged(d),
				 .in_place = true };
	struct pl_layer *layer = NULL;
	struct pl_layer_key *keys = NULL;
	int rc;

	if (d->o.world) {
		n.slab = world_slab;
		n.slab_free = world_slab_free;
		n.slab_arg = d;
	}
	PL_TRY(layers_of(d->o.model, &layer, &keys, err));
	PL_TRY(pl_net_new(layer, d->o.model->n_layers, &n, &d->net, err));
	d->tensor = pl_net_tensors(d->net, &d->n_tensors);
	d->layer = pl_net_layers(d->net, &d->n_layers);
	d->params = pl_net_params(d->net, &d->n_params);
	d->grads = pl_net_grads(d->net);
	d->be = pl_net_backend(d->net, &d->ctx);
out:
	pl_free(layer);
	pl_free(keys);
	if (rc < 0)
		pl_wrap(err, "model %s", d->o.model->name ? d->o.model->name : "");
	return rc;
}

/* How many microbatches the plan and the job want. */
static int64_t microbatches(const struct dp *d)
{
	int64_t k = d->o.job->accumulate > 1 ? d->o.job->accumulate : 1;

	for (size_t i = 0; d->o.plan && i < d->o.plan->n_rw; i++)
		if (d->o.plan->rw[i].op == PL_RW_ACCUMULATE)
			k *= d->o.plan->rw[i].k;
	return k;
}

static int set_precision(struct dp *d, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&d->precision, 2 * (size_t)d->n_layers + 1, sizeof(*d->precision), err));
	PL_TRY(precision_of(&d->o, d->layer, d->n_layers, d->rank ? NULL : d->o.log, d->precision,
			    err));
	for (uint32_t i = 0; i < 2 * d->n_layers; i++)
		pl_net_precision(d->net, i / 2, (enum pl_phase)(i % 2),
				 (enum pl_precision)d->precision[i]);
out:
	return rc;
}

static int make_buckets(struct dp *d, struct pl_err *err)
{
	int algo = d->o.job->algorithm ? pl_dp_algo(d->o.job->algorithm) : PL_CA_AUTO;
	int rc;

	if (algo < 0)
		return pl_fail(err, PL_EDATA, "algorithm: no \"%.100s\"", d->o.job->algorithm);
	PL_TRY(pl_dp_buckets(d->tensor, d->n_tensors, d->o.job->bucket_mb, (uint8_t)algo, d->o.plan,
			     d->rank ? NULL : d->o.log, &d->b, err));
	if (d->o.job->accumulate > 1)
		d->b.accumulate *= d->o.job->accumulate;
	if (d->b.n_recompute)
		PL_TRY(pl_net_recompute(d->net, d->b.recompute, d->b.n_recompute, err));
	PL_TRY(pl_alloc(&d->work, (size_t)d->b.n + 1, sizeof(struct pl_work *), err));
	PL_TRY(pl_alloc(&d->copy, (size_t)d->b.n + 1, sizeof(float *), err));
	PL_TRY(pl_alloc(&d->left, (size_t)d->b.n + 1, sizeof(*d->left), err));
	if (!d->o.world)
		goto out;
	for (uint32_t k = 0; k < d->b.n; k++) {
		if (d->b.v[k].whole)
			continue;
		d->copy[k] = pl_world_alloc(d->o.world, d->b.v[k].count * sizeof(float));
		if (!d->copy[k]) {
			rc = pl_fail(err, PL_ENOMEM, "out of memory (a bucket of %zu floats)",
				     d->b.v[k].count);
			goto out;
		}
	}
	d->n_sum = 64;
	rc = pl_alloc(&d->sum, 2 * d->n_sum, sizeof(float), err);
out:
	return rc;
}

/* What a job adds to a step in ms is spread over its layers as their work is: a third of it in the
 * forward pass. */
static int read_pace(struct dp *d, struct pl_err *err)
{
	double flops = 0;
	int rc = pl_alloc(&d->layer_pace, (size_t)d->n_layers + 1, sizeof(*d->layer_pace), err);

	if (rc < 0)
		return rc;
	d->pace_factor = 1;
	for (size_t i = 0; i < d->o.job->n_paces; i++) {
		const struct pl_job_pace *p = &d->o.job->pace[i];

		if (p->rank != -1 && p->rank != d->rank)
			continue;
		d->pace_ms += p->ms;
		if (p->factor > 0)
			d->pace_factor *= p->factor;
	}
	for (uint32_t i = 0; i < d->n_layers; i++)
		flops += d->layer[i].flops;
	for (uint32_t i = 0; i < d->n_layers && flops > 0; i++)
		d->layer_pace[i] = d->pace_ms * 1e6 * (d->layer[i].flops / flops) / 3 /
				   (double)d->b.accumulate;
	return 0;
}

static void dp_finish(void *state, bool lost)
{
	struct dp *d = state;

	if (!d)
		return;
	d->lost = lost;
	for (uint32_t k = 0; d->copy && k < d->b.n && !lost; k++)
		if (d->copy[k])
			pl_world_free(d->o.world, d->copy[k]);
	pl_free(d->sum);
	pl_free(d->work);
	pl_free(d->copy);
	pl_free(d->left);
	pl_free(d->layer_pace);
	pl_free(d->precision);
	pl_dp_buckets_fini(&d->b);
	feed_fini(&d->feed);
	pl_optim_free(d->optim);
	pl_net_free(d->net);
	pl_free(d);
}

/* Memory of the world is not to be had, either, once another rank is lost: say that. */
static int lost_rank(struct dp *d, struct pl_err *err)
{
	const struct pl_coll_args a = { .op = PL_OP_BARRIER };
	struct pl_err why = { 0 };

	if (d->o.world && pl_world_do(d->o.world, &a, &why) == PL_EIO && err)
		*err = why;
	return err ? err->code : PL_ENOMEM;
}

static int dp_prepare(const struct pl_engine_opts *o, void **state, struct pl_err *err)
{
	struct pl_net_hooks h = { .begin = layer_begin, .end = layer_end, .ready = ready };
	struct dp *d;
	int64_t k;
	int rc = pl_alloc(&d, 1, sizeof(*d), err);

	*state = NULL;
	if (rc < 0)
		return rc;
	d->o = *o;
	d->rank = o->world ? pl_world_rank(o->world) : 0;
	d->ranks = o->world ? pl_world_size(o->world) : 1;
	PL_TRY(dp_same_job(d, err));
	k = microbatches(d);
	if (o->job->batch % k) {
		rc = pl_fail(err, PL_EDATA,
			     "a batch of %lld cannot be cut into %lld microbatches alike",
			     (long long)o->job->batch, (long long)k);
		goto out;
	}
	d->micro = (int)(o->job->batch / k);
	PL_TRY(make_net(d, d->micro, err));
	PL_TRY(set_precision(d, err));
	PL_TRY(make_buckets(d, err));
	PL_TRY(optim_opts(o->job, o->job->steps, &d->oo, err));
	PL_TRY(pl_optim_new(d->net, &d->oo, &d->optim, err));
	PL_TRY(feed_init(&d->feed, o, d->net, (int)o->job->batch, err));
	PL_TRY(read_pace(d, err));
	if (o->tracer)
		PL_TRY(tracer_names(o->tracer, d->net, &d->b, err));
	h.arg = d;
	pl_net_hooks(d->net, &h);
out:
	if (rc == PL_ENOMEM)
		rc = lost_rank(d, err);
	if (rc < 0)
		dp_finish(d, false);
	else
		*state = d;
	return rc;
}

const struct pl_engine pl_engine_dp = {
	.name = "dp",
	.policy = "bsp",
	.prepare = dp_prepare,
	.step = dp_step,
	.sum = dp_sum,
	.eval = dp_eval,
	.save = dp_save,
	.load = dp_load,
	.export_weights = dp_export,
	.import_weights = dp_import,
	.finish = dp_finish,
};
