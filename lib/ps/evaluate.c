/* One thread evaluates; PL_PS_EVALUATIONS copies wait for it, and what comes then is not evaluated.
 */
#include <math.h>

#include "ps/internal.h"

#define QUEUE PL_PS_EVALUATIONS
/* Between two evaluations, where the job says only that there is a target. */
#define PAUSE_NS 100000000

struct evaluation {
	struct pl_ps_evaluator *e;
	struct pl_train_row row;
	float *weights;
	bool used;
	struct pl_err err;
};
struct pl_ps_evaluator {
	struct pl_train *t;
	struct pl_ps *p;
	struct pl_pool *pool;
	struct pl_queue *queue;
	struct evaluation v[QUEUE];
	int used, running; /* begun; of these, put */
	int below;	   /* evaluations in a row that reached the target */
	pl_ns first_below; /* the time of the first of these */
	int64_t samples_below;
	uint64_t next_steps;
	pl_ns next;
	/* Where the job keeps the best weights: those that no checkpoint has yet, of this step; -1:
	 * none. */
	float *best;
	int64_t best_step, best_samples;
};

static void evaluate(void *arg)
{
	struct evaluation *v = arg;
	struct pl_ps *p = v->e->p;
	const struct pl_net_view *net = &p->w.view;
	int64_t hits, samples;

	if (net->be->device) /* else this thread of the pool would use the first one */
		net->be->free(net->ctx, NULL);
	pl_ps_vector_write(net, v->weights);
	pl_net_changed(p->w.net);
	if (pl_train_worker_eval(&p->w, &v->row.loss, &hits, &samples, &v->err) == 0)
		v->row.accuracy = samples && (p->w.o.data->y || p->w.o.data->token)
					  ? (double)hits / (double)samples
					  : NAN;
}

/* The first one after this step. */
static void set_next(struct pl_ps_evaluator *e, int64_t step)
{
	uint64_t every = (uint64_t)e->t->job->eval_every * e->p->workers;

	if (every)
		e->next_steps = ((uint64_t)step * e->p->workers / every + 1) * every;
}

struct pl_ps_evaluator *pl_ps_evaluator_new(struct pl_train *t, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)t->worker;
	struct pl_ps_evaluator *e;

	if (pl_alloc(&e, 1, sizeof(*e), err) < 0)
		return NULL;
	e->t = t;
	e->p = p;
	e->best_step = -1;
	set_next(e, t->step);
	if (t->job->checkpoint_best &&
	    pl_alloc(&e->best, pl_ps_vector_size(&p->vector), sizeof(float), err) < 0)
		goto fail;
	for (int i = 0; i < QUEUE; i++) {
		e->v[i].e = e;
		if (pl_alloc(&e->v[i].weights, pl_ps_vector_size(&p->vector), sizeof(float), err) <
		    0)
			goto fail;
	}
	e->pool = pl_pool_new(2, err);
	e->queue = e->pool ? pl_queue_new(e->pool, QUEUE, err) : NULL;
	if (e->queue)
		return e;
fail:
	pl_ps_evaluator_free(e);
	return NULL;
}

void pl_ps_evaluator_free(struct pl_ps_evaluator *e)
{
	if (!e)
		return;
	/* pl_queue_free() would evaluate here, too, with the network that the thread uses */
	for (; e->running; e->running--)
		while (!pl_queue_poll(e->queue))
			pl_sleep_ns(1000000);
	pl_queue_free(e->queue);
	pl_pool_free(e->pool);
	for (int i = 0; i < QUEUE; i++)
		pl_free(e->v[i].weights);
	pl_free(e->best);
	pl_free(e);
}

bool pl_ps_evaluator_due(const struct pl_ps_evaluator *e, uint64_t steps)
{
	const struct pl_job *j = e->t->job;

	/* the network is free for the checkpoint when no evaluation runs */
	if (e->best_step >= 0 || e->used == QUEUE || !pl_train_feed_held_out(&e->p->w.feed))
		return false;
	if (j->eval_every)
		return steps >= e->next_steps;
	return j->target_loss > 0 && !e->used && pl_now_ns() >= e->next;
}

int pl_ps_evaluator_begin(struct pl_ps_evaluator *e, const struct pl_train_row *row,
			  float **weights)
{
	int i = 0;

	while (e->v[i].used)
		i++;
	e->v[i].used = true;
	e->v[i].row = *row;
	e->v[i].row.eval = true;
	e->v[i].row.lr = NAN;
	e->used++;
	e->next = row->at + PAUSE_NS;
	set_next(e, row->step);
	*weights = e->v[i].weights;
	return i;
}

void pl_ps_evaluator_put(struct pl_ps_evaluator *e, int number)
{
	e->running++;
	pl_queue_put(e->queue, evaluate, &e->v[number]);
}

void pl_ps_evaluator_drop(struct pl_ps_evaluator *e, int number)
{
	e->v[number].used = false;
	e->used--;
}

static int take(struct pl_ps_evaluator *e, struct evaluation *v, struct pl_err *err)
{
	struct pl_train *t = e->t;

	e->running--;
	pl_ps_evaluator_drop(e, (int)(v - e->v));
	PL_CHECK(pl_fail_as(err, &v->err));
	t->eval_loss = v->row.loss;
	t->accuracy = v->row.accuracy;
	t->evaluated = v->row.step;
	e->p->evaluated = v->row.samples;
	if (t->job->target_loss > 0 && !t->done) {
		bool below = v->row.loss <= t->job->target_loss;

		if (below && !e->below) {
			e->first_below = v->row.at;
			e->samples_below = v->row.samples;
		}
		e->below = below ? e->below + 1 : 0;
		if (e->below == PL_PS_TARGET) {
			t->time_to_target_s = (double)(e->first_below - t->begin) / 1e9;
			t->samples_to_target = e->samples_below;
			t->done = true;
		}
	}
	if ((t->job->patience || e->best) &&
	    pl_train_judge(t, v->row.step, true, v->row.loss, v->row.accuracy) && e->best) {
		float *weights = v->weights;

		v->weights = e->best;
		e->best = weights;
		e->best_step = v->row.step;
		e->best_samples = v->row.samples;
	}
	return isnan(v->row.loss) ? 0 : t->row(t->arg, &v->row, err);
}

/* While it is written, workers wait. */
static int write_best(struct pl_ps_evaluator *e, struct pl_err *err)
{
	struct pl_ps *p = e->p;
	int64_t step = e->best_step;

	if (step < 0 || e->running)
		return 0;
	e->best_step = -1;
	p->w.taken = e->best_samples;
	pl_ps_vector_write(&p->w.view, e->best);
	pl_net_changed(p->w.net);
	return e->t->engine->save(&p->w, e->t->job->checkpoint_best, step, err);
}

int pl_ps_evaluator_take(struct pl_ps_evaluator *e, bool wait, struct pl_err *err)
{
	for (;;) {
		struct evaluation *v = pl_queue_poll(e->queue);

		if (v)
			PL_CHECK(take(e, v, err));
		else if (!wait || !e->running)
			return write_best(e, err);
		else
			/* pl_queue_get() would evaluate here, too, with the same network */
			pl_sleep_ns(1000000);
	}
}
