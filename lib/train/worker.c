/*
 * One rank's part of a step, whichever engine it belongs to: its batch, in microbatches if the plan
 * accumulates; forward and backward of each; a step of the optimiser; sums over ranks; evaluation.
 *
 * Gradients are scaled by 1 / (summed ranks x microbatches) when computed: their sum is the mean.
 *
 * On a device all of this is only queued. The host then gathers the samples of the next step and
 * waits once, for the world and then for the device; errors are found there. So between two steps a
 * device waits only for the copy of the samples: some 0.1 ms a MiB, far less for text.
 *
 * A paced rank imitates a slower machine. It sleeps at the ends of its layers for the additional
 * time that its computation would have taken. Small amounts add up until a sleep is worth it.
 */
#include <math.h>
#include <time.h>

#include "train/worker.h"

#define SLEEP_MIN_NS 300000 /* a shorter sleep takes longer than it should */

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

/* Adds `more` to the debt, and sleeps for it when it is long enough, or at the end of the step. */
static void pace(struct pl_worker *w, double more, bool all)
{
	pl_ns at;

	w->pace_debt_ns += (pl_ns)more;
	if (w->pace_debt_ns < (all ? 50000 : SLEEP_MIN_NS))
		return;
	at = pl_now_ns();
	sleep_ns(w->pace_debt_ns);
	w->pace_debt_ns -= pl_now_ns() - at; /* a sleep that was too long counts for the next */
}

/* An event of the main thread in this step, which ends now. */
static struct pl_rec_event event_of(const struct pl_worker *w, uint8_t kind, pl_id name,
				    pl_ns begin)
{
	struct pl_rec_event e = pl_rec_event(w->o.tracer->main, kind, name, begin, pl_now_ns());

	e.step = (int32_t)w->step;
	return e;
}

static void layer_begin(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	struct pl_worker *w = arg;
	struct pl_tracer *t = w->o.tracer;

	w->layer_begin = pl_now_ns();
	if (t && w->training)
		pl_train_tracer_range(t, pl_train_tracer_layer(t, layer, p, again), true);
}

static void layer_end(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	struct pl_worker *w = arg;
	struct pl_tracer *t = w->o.tracer;
	struct pl_rec_event e;
	pl_ns end;

	if (!w->training)
		return;
	if (t)
		pl_train_tracer_range(t, pl_train_tracer_layer(t, layer, p, again), false);
	end = pl_now_ns();
	if (w->pace_factor > 1 || w->pace_ms > 0) {
		double more =
			fmin(w->pace_left, w->layer_pace[layer] * (p == PL_PHASE_BACKWARD ? 2 : 1));

		w->pace_left -= more;
		pace(w, (w->pace_factor - 1) * (double)(end - w->layer_begin) + more, false);
		end = pl_now_ns();
	}
	if (!t)
		return;
	e = event_of(w, PL_K_HOST_OP, pl_train_tracer_layer(t, layer, p, again), w->layer_begin);
	e.end = end;
	e.layer = (int32_t)layer;
	e.mb = w->microbatches > 1 ? w->mb : -1;
	pl_train_tracer_work(t, layer, p, &e);
	if (w->view.layer[layer].precision[p] == PL_BF16)
		e.precision = t->name[PL_NAME_BF16];
	pl_rec(t->rec, &e);
}

/* ---- the trace ------------------------------------------------------------------------------ */

void pl_train_worker_record(struct pl_worker *w, uint8_t kind, enum pl_tracer_name name,
			    pl_ns begin, int64_t corr)
{
	struct pl_tracer *t = w->o.tracer;
	struct pl_rec_event e;

	if (!t)
		return;
	e = event_of(w, kind, t->name[name], begin);
	e.corr = corr;
	if (name == PL_NAME_OPTIMIZER)
		pl_train_tracer_put(&t->update, &e);
	if (name == PL_NAME_ISSUE || name == PL_NAME_SUM)
		e.coll = t->coll[PL_OP_ALLREDUCE];
	pl_rec(t->rec, &e);
}

pl_ns pl_train_worker_begin_wait(struct pl_worker *w)
{
	pl_ns now = pl_now_ns();

	if (w->o.tracer)
		w->o.tracer->waiting = now;
	return now;
}

/* If this thread launched something during its wait, the wait begins again after the launch. */
void pl_train_worker_record_wait(struct pl_worker *w, uint64_t tag)
{
	struct pl_tracer *t = w->o.tracer;

	if (!t)
		return;
	pl_train_worker_record(w, PL_K_WAIT, PL_NAME_WAIT, t->waiting, (int64_t)tag);
	t->waiting = 0;
}

int pl_train_worker_collective(struct pl_worker *w, enum pl_tracer_name name,
			       const struct pl_coll_args *a, struct pl_err *err)
{
	pl_train_worker_record(w, PL_K_HOST_OP, name, pl_now_ns(), (int64_t)a->tag);
	pl_train_worker_begin_wait(w);
	PL_CHECK(pl_comm_world_do(w->o.world, a, err));
	pl_train_worker_record_wait(w, a->tag);
	return 0;
}

/* ---- a step -------------------------------------------------------------------------------- */

/* Such passes allocate and pin memory of the host, so CUDA graphs cannot record them. */
bool pl_train_worker_staged(const struct pl_worker *w)
{
	return w->o.world && strcmp(pl_comm_world_transport(w->o.world), "nccl") != 0;
}

/* Waits for the passes since the last call, and adds up their losses. Each is of one part of
 * `parts` of the step. */
static int take_losses(struct pl_worker *w, double parts, struct pl_step_result *r,
		       struct pl_err *err)
{
	struct pl_loss_sum sum[PL_NET_LOSSES];
	pl_ns begin = pl_now_ns();
	int rc = pl_net_losses(w->net, w->n_losses, sum, err);

	if (w->o.tracer)
		pl_train_tracer_synced(w->o.tracer, begin);
	for (uint32_t i = 0; rc == 0 && i < w->n_losses; i++) {
		r->loss += sum[i].loss / parts;
		r->hits += sum[i].hits;
	}
	w->n_losses = 0;
	return rc;
}

static int passes(struct pl_worker *w, int summed, struct pl_step_result *r, struct pl_err *err)
{
	pl_net_scale(w->net, 1.0f / (float)(summed * w->microbatches));
	for (w->mb = 0; w->mb < w->microbatches; w->mb++) {
		struct pl_batch_io io =
			pl_train_feed_rows(&w->feed, w->mb * w->microbatch, w->microbatch);
		uint64_t place[] = { (uint64_t)w->o.job->seed, (uint64_t)w->step, (uint64_t)w->rank,
				     (uint64_t)w->mb };

		w->last_mb = w->mb == w->microbatches - 1;
		PL_CHECK(pl_net_forward(w->net, &io, pl_hash(place, sizeof(place)), false, NULL,
					NULL, err));
		PL_CHECK(pl_net_backward(w->net, w->mb > 0, err));
		if (++w->n_losses == PL_NET_LOSSES)
			PL_CHECK(take_losses(w, (double)w->microbatches, r, err));
		PL_CHECK(pl_fail_as(err, &w->err));
	}
	return 0;
}

/* A step of w->samples samples, in microbatches: their part in the gradient of the mean loss. */
static int passes_of_samples(struct pl_worker *w, struct pl_step_result *r, struct pl_err *err)
{
	int64_t left = w->samples, all = w->of ? w->of : w->samples;

	for (w->mb = 0; left > 0; w->mb++) {
		int n = (int)pl_min_i64(left, w->microbatch), part = w->mb % (int)w->microbatches;
		uint64_t place[] = { (uint64_t)w->o.job->seed, 0, (uint64_t)w->rank,
				     (uint64_t)part };
		struct pl_batch_io io;

		if (!part)
			pl_train_feed_step(&w->feed, w->drawn++);
		place[1] = (uint64_t)w->drawn - 1;
		io = pl_train_feed_rows(&w->feed, part * w->microbatch, n);
		w->last_mb = n == left;
		pl_net_scale(w->net, (float)n / (float)all);
		PL_CHECK(pl_net_forward(w->net, &io, pl_hash(place, sizeof(place)), false, NULL,
					NULL, err));
		PL_CHECK(pl_net_backward(w->net, w->mb > 0, err));
		PL_CHECK(pl_fail_as(err, &w->err));
		w->n_losses = 1;
		PL_CHECK(take_losses(w, (double)w->samples / n, r, err));
		left -= n;
	}
	return 0;
}

/* A device waits for communication without a deadline. So the host waits for the communication
 * first, with a deadline, and then for the device. */
static int wait_for_world(struct pl_worker *w, struct pl_err *err)
{
	return w->o.world ? pl_comm_world_settle(w->o.world, err) : 0;
}

/* While the device works on this step, the host gathers the samples of the next one. */
static void fetch_next(struct pl_worker *w)
{
	pl_ns begin = pl_now_ns();

	pl_train_feed_step(&w->feed, w->step + 1);
	pl_train_worker_record(w, PL_K_DATA, PL_NAME_BATCH, begin, -1);
}

void pl_train_worker_begin_step(struct pl_worker *w, int64_t step, struct pl_step_result *r)
{
	*r = (struct pl_step_result){ .grad_norm = NAN };
	w->step_begin = pl_now_ns();
	w->step = step;
	w->training = true;
	w->pace_left = w->pace_ms * 1e6;
	w->n_losses = 0;
}

int pl_train_worker_compute(struct pl_worker *w, int summed, struct pl_step_result *r,
			    struct pl_err *err)
{
	pl_ns at;

	if (w->samples) {
		PL_CHECK(passes_of_samples(w, r, err));
	} else {
		pl_train_feed_step(&w->feed, w->step);
		pl_train_worker_record(w, PL_K_DATA, PL_NAME_BATCH, w->step_begin, -1);
		PL_CHECK(passes(w, summed, r, err));
	}
	if (w->pace_debt_ns + w->pace_left > 0) {
		at = pl_now_ns();
		pace(w, w->pace_left, true);
		pl_train_worker_record(w, PL_K_HOST_OP, PL_NAME_PACE, at, -1);
	}
	return 0;
}

/* A worker of a given speed: a step of the job's batch lasts no less than its period. */
static void wait_for_period(struct pl_worker *w)
{
	double batches = w->samples ? (double)w->samples / (double)w->feed.batch : 1;
	pl_ns at = pl_now_ns(),
	      until = w->step_begin + (pl_ns)((double)w->pace_period_ns * batches);

	if (at >= until)
		return;
	sleep_ns(until - at);
	pl_train_worker_record(w, PL_K_HOST_OP, PL_NAME_PACE, at, -1);
}

static void measure_norm(const struct pl_worker *w, struct pl_step_result *r)
{
	const struct pl_net_view *v = &w->view;

	r->grad_norm = sqrt(v->be->sum_squares(v->ctx, v->n_params, v->grads));
}

int pl_train_worker_update(struct pl_worker *w, struct pl_step_result *r, struct pl_err *err)
{
	struct pl_tracer *t = w->o.tracer;
	pl_ns at = pl_now_ns();

	/* Clipping changes the gradients. Without it a device need not wait before the update. */
	if (w->o.grad_norm && w->optim_opts.clip > 0) {
		PL_CHECK(wait_for_world(w, err));
		measure_norm(w, r);
	}
	if (t)
		pl_train_tracer_range(t, t->name[PL_NAME_OPTIMIZER], true);
	pl_optim_step(w->optim, w->step, 0, SIZE_MAX, NAN);
	if (t)
		pl_train_tracer_range(t, t->name[PL_NAME_OPTIMIZER], false);
	if (w->view.be->device)
		fetch_next(w);
	PL_CHECK(wait_for_world(w, err));
	PL_CHECK(take_losses(w, (double)w->microbatches, r, err));
	if (w->o.grad_norm && !(w->optim_opts.clip > 0))
		measure_norm(w, r);
	pl_train_worker_record(w, PL_K_HOST_OP, PL_NAME_OPTIMIZER, at, -1);
	wait_for_period(w);
	return 0;
}

void pl_train_worker_end_step(struct pl_worker *w, bool good, struct pl_step_result *r)
{
	struct pl_tracer *t = w->o.tracer;
	struct pl_rec_event e;

	w->training = false;
	if (!good)
		return;
	pl_train_worker_record(w, PL_K_STEP, PL_NAME_STEP, w->step_begin, -1);
	r->samples = w->samples ? w->samples : (int64_t)w->feed.batch;
	r->classified = r->samples * pl_train_feed_classified(&w->feed);
	r->step_ns = pl_now_ns() - w->step_begin;
	r->compute_ns = r->step_ns - r->wait_ns;
	r->bytes_sent = w->o.world ? pl_comm_world_sent(w->o.world) : 0;
	if (!t)
		return;
	e = event_of(w, PL_K_COUNTER, t->name[PL_NAME_LOSS], pl_now_ns());
	e.value = r->loss;
	pl_rec(t->rec, &e);
	pl_train_tracer_join(t);
}

/* ---- sums and evaluation ------------------------------------------------------------------- */

#define FIRST_DIGIT 0x1p48 /* the unit of the first digit, and of the last */
#define LAST_DIGIT  0x1p-36
#define RADIX	    0x1p12

/*
 * Collectives add floats, and round sums to 24 bits. A number travels as digits of 12 bits, whose
 * sums over 4,096 ranks are exact, and as what the digits leave. So sums of integers are exact
 * below 2^53, and others are nearly as exact as sums of doubles.
 */
static void split(double v, float to[PL_TRAIN_FLOATS])
{
	double one = FIRST_DIGIT;

	memset(to, 0, PL_TRAIN_FLOATS * sizeof(*to));
	for (int i = 0; i < PL_TRAIN_FLOATS - 1 && fabs(v) < FIRST_DIGIT * RADIX; i++) {
		to[i] = (float)trunc(v / one);
		v -= (double)to[i] * one;
		one /= RADIX;
	}
	to[PL_TRAIN_FLOATS - 1] = (float)v; /* all of it, if it is huge or not finite */
}

static double join(const float of[PL_TRAIN_FLOATS])
{
	double v = (double)of[PL_TRAIN_FLOATS - 1], one = LAST_DIGIT;

	for (int i = PL_TRAIN_FLOATS - 2; i >= 0; i--) {
		v += (double)of[i] * one;
		one *= RADIX;
	}
	return v;
}

int pl_train_worker_sum(struct pl_worker *w, double *v, size_t n, struct pl_err *err)
{
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .on_host = true };

	for (size_t at = 0; w->o.world && at < n; at += PL_TRAIN_SUMS) {
		size_t m = pl_min_size(n - at, PL_TRAIN_SUMS);

		for (size_t i = 0; i < m; i++)
			split(v[at + i], &w->sum[i * PL_TRAIN_FLOATS]);
		a.count = m * PL_TRAIN_FLOATS;
		a.src = a.dst = w->sum;
		a.tag = pl_tag_of(w->step, PL_TAG_BUCKETS - 1 - w->sums++ % PL_TAG_SUMS);
		PL_CHECK(pl_train_worker_collective(w, PL_NAME_SUM, &a, err));
		for (size_t i = 0; i < m; i++)
			v[at + i] = join(&w->sum[i * PL_TRAIN_FLOATS]);
	}
	return 0;
}

int pl_train_worker_broadcast(struct pl_worker *w, float *v, size_t n, bool on_host,
			      struct pl_err *err)
{
	struct pl_coll_args a = {
		.op = PL_OP_BROADCAST, .src = v, .dst = v, .count = n, .root = 0, .on_host = on_host
	};
	int rc = w->o.world && n ? pl_comm_world_do(w->o.world, &a, err) : 0;

	return rc < 0 ? rc : wait_for_world(w, err);
}

/* All ranks take the running means of rank 0, as in DDP. So which rank evaluates which samples
 * changes the result by rounding alone. */
int pl_train_worker_eval(struct pl_worker *w, double *loss, int64_t *hits, int64_t *samples,
			 struct pl_err *err)
{
	size_t held = pl_train_feed_held_out(&w->feed), each = (size_t)w->microbatch;
	double v[3] = { 0 };

	PL_CHECK(pl_train_worker_broadcast(w, w->view.state, w->view.n_state, false, err));
	for (size_t at = (size_t)w->rank * each; at < held; at += each * (size_t)w->ranks) {
		int n = (int)pl_min_size(each, held - at);
		struct pl_batch_io io;
		double l = 0;
		int64_t h = 0;

		pl_train_feed_eval(&w->feed, at, n);
		io = pl_train_feed_rows(&w->feed, 0, n);
		PL_CHECK(pl_net_forward(w->net, &io, 0, true, &l, &h, err));
		v[0] += l * n;
		v[1] += (double)h;
		v[2] += n;
	}
	PL_CHECK(pl_train_worker_sum(w, v, 3, err));
	*loss = v[2] > 0 ? v[0] / v[2] : NAN;
	*hits = (int64_t)(v[1] + 0.5);
	*samples = (int64_t)(v[2] + 0.5) * pl_max_i64(1, pl_train_feed_classified(&w->feed));
	return 0;
}

/* ---- preparing ----------------------------------------------------------------------------- */

static void *world_slab(void *arg, size_t bytes)
{
	struct pl_worker *w = arg;

	return pl_comm_world_alloc(w->o.world, bytes, &w->slab_err);
}

static void world_slab_free(void *arg, void *p, size_t bytes)
{
	struct pl_worker *w = arg;

	(void)bytes;
	if (!w->lost)
		pl_comm_world_free(w->o.world, p);
}

static int make_net(struct pl_worker *w, int batch, struct pl_err *err)
{
	const struct pl_job *j = w->o.job;
	struct pl_net_opts n = { .backend = w->o.backend,
				 .ctx = w->o.ctx,
				 .store = w->o.store,
				 .threads = (int)j->threads,
				 .batch = batch,
				 .seed = (uint64_t)j->seed,
				 .graphs = !w->o.tracer && !pl_train_worker_staged(w),
				 .in_place = true,
				 .slab = w->o.slab,
				 .slab_free = w->o.slab_free,
				 .slab_arg = w->o.slab_arg };
	int rc;

	if (w->o.world && !n.slab) {
		n.slab = world_slab;
		n.slab_free = world_slab_free;
		n.slab_arg = w;
	}
	rc = pl_net_new(w->o.model->layer, w->o.model->n_layers, &n, &w->net, err);
	if (rc < 0 && w->slab_err.code) { /* another rank's failure, perhaps */
		*err = w->slab_err;
		rc = err->code;
	}
	if (rc < 0)
		return pl_wrap(err, "model %s", w->o.model->name ? w->o.model->name : "");
	w->view = pl_net_view(w->net);
	return 0;
}

int64_t pl_train_worker_microbatches(const struct pl_job *j, const struct pl_plan *plan)
{
	int64_t k = j->accumulate > 1 ? j->accumulate : 1;

	for (size_t i = 0; plan && i < plan->n_rw; i++)
		if (plan->rw[i].op == PL_RW_ACCUMULATE)
			k *= plan->rw[i].k;
	return k;
}

int64_t pl_train_worker_steps(const struct pl_worker *w, int ranks)
{
	const struct pl_feed *f = &w->feed;
	const struct pl_job *j = w->o.job;
	double left;

	if (j->steps >= 0 || j->epochs <= 0 || !f->first_step)
		return pl_train_steps(j, w->o.model, w->o.data, ranks);
	left = pl_train_samples(j, w->o.model, w->o.data) - (double)f->first_sample;
	return f->first_step + (int64_t)fmin(fmax(0, left / ((double)f->batch * ranks)), 0x1p62);
}

/* Cuts the batch into microbatches of one size. */
static int cut_batch(struct pl_worker *w, struct pl_err *err)
{
	w->microbatches = pl_train_worker_microbatches(w->o.job, w->o.plan);
	return pl_job_microbatch(w->o.job, w->microbatches, &w->microbatch, err);
}

/* Tells the network which layers the plan recomputes. */
static int set_recompute(struct pl_worker *w, struct pl_err *err)
{
	const struct pl_plan *p = w->o.plan;
	const char **name = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	for (size_t i = 0; p && i < p->n_rw; i++)
		for (uint32_t a = 0; p->rw[i].op == PL_RW_RECOMPUTE && a < p->rw[i].n_args; a++)
			PL_TRY(pl_append(&name, &n, &cap, &p->rw[i].arg[a], sizeof(*name), err));
	if (n)
		PL_TRY(pl_net_recompute(w->net, name, n, err));
out:
	pl_free(name);
	return rc;
}

/* Divides the milliseconds that the job adds to a step among the layers by their FLOPs; a third of
 * them counts for the forward pass. */
static int read_pace(struct pl_worker *w, struct pl_err *err)
{
	double flops = 0;

	PL_CHECK(pl_alloc(&w->layer_pace, (size_t)w->view.n_layers + 1, sizeof(*w->layer_pace),
			  err));
	w->pace_factor = 1;
	for (size_t i = 0; i < w->o.job->n_paces; i++) {
		const struct pl_job_pace *p = &w->o.job->pace[i];

		if (p->rank != -1 && p->rank != w->rank)
			continue;
		w->pace_ms += p->ms;
		if (p->factor > 0)
			w->pace_factor *= p->factor;
		if (p->speed > 0)
			w->pace_period_ns = pl_max_i64(w->pace_period_ns, (pl_ns)(1e9 / p->speed));
	}
	for (uint32_t i = 0; i < w->view.n_layers; i++)
		flops += w->view.layer[i].flops;
	for (uint32_t i = 0; i < w->view.n_layers && flops > 0; i++)
		w->layer_pace[i] = w->pace_ms * 1e6 * (w->view.layer[i].flops / flops) / 3 /
				   (double)w->microbatches;
	return 0;
}

int pl_train_worker_init(struct pl_worker *w, const struct pl_engine_opts *o,
			 void (*ready)(void *worker, uint32_t first, uint32_t n),
			 struct pl_err *err)
{
	const struct pl_net_hooks h = {
		.begin = layer_begin, .end = layer_end, .ready = ready, .arg = w
	};
	int64_t steps;
	int algo;

	w->o = *o;
	w->rank = pl_engine_rank(o);
	w->ranks = pl_engine_ranks(o);
	w->round = 1;
	w->best.step = -1;
	algo = o->job->algorithm ? pl_comm_algorithm_find(o->job->algorithm) : PL_CA_AUTO;
	if (algo < 0)
		return pl_fail(err, PL_EDATA, "algorithm: no \"%.100s\"", o->job->algorithm);
	w->algo = (uint8_t)algo;
	steps = pl_train_steps(o->job, o->model, o->data, w->ranks);
	PL_CHECK(pl_train_worker_check_same_job(w, err));
	PL_CHECK(cut_batch(w, err));
	PL_CHECK(make_net(w, w->microbatch, err));
	PL_CHECK(pl_train_worker_precision(w, err));
	PL_CHECK(set_recompute(w, err));
	PL_CHECK(pl_train_worker_optim_opts(o->job, steps, &w->optim_opts, err));
	PL_CHECK(pl_optim_new(w->net, &w->optim_opts, &w->optim, err));
	PL_CHECK(pl_train_feed_init(&w->feed, o, w->net, (int)o->job->batch, err));
	PL_CHECK(read_pace(w, err));
	pl_net_hooks(w->net, &h);
	return 0;
}

void pl_train_worker_fini(struct pl_worker *w, bool lost)
{
	w->lost = lost;
	pl_free(w->layer_pace);
	pl_train_keep_fini(&w->kept);
	pl_train_feed_fini(&w->feed);
	pl_optim_free(w->optim);
	pl_net_free(w->net);
}
