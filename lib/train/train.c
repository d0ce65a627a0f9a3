/*
 * What every control does alike: rows of the log, evaluations and what follows from them,
 * checkpoints, the end.
 *
 * The best evaluation is judged as callbacks of other trainers do (Keras, Lightning): `value` is
 * the best of all, whose weights checkpoint-best keeps; the patience counts evaluations since one
 * was better by the job's delta than the one that was so before.
 */
#include <math.h>
#include <string.h>

#include "train/worker.h"

void pl_train_init(struct pl_train *t)
{
	t->begin = t->end = pl_now_ns();
	t->last_loss = t->eval_loss = t->accuracy = t->time_to_target_s = NAN;
	t->evaluated = t->saved = -1;
}

double pl_train_samples(const struct pl_job *j, const struct pl_model *m,
			const struct pl_dataset *data)
{
	double context = data->token && m->layer[0].n_num ? fmax(1, m->layer[0].num[0]) : 1;

	return (double)pl_dataset_train(data, j->split) * (double)j->epochs / context;
}

int64_t pl_train_steps(const struct pl_job *j, const struct pl_model *m,
		       const struct pl_dataset *data, int ranks)
{
	if (j->steps >= 0)
		return j->steps;
	if (j->epochs <= 0)
		return INT64_MAX / 2; /* until the target is reached, or patience ends */
	return (int64_t)fmin(fmax(1, pl_train_samples(j, m, data) / (double)(j->batch * ranks)),
			     0x1p62);
}

struct pl_train_row pl_train_row(const struct pl_train *t, int64_t step)
{
	return (struct pl_train_row){
		.step = step,
		.samples = pl_train_worker_taken(t->worker, t->ranks, step),
		.loss = NAN,
		.accuracy = NAN,
		.lr = step > 0 ? pl_optim_lr(&t->worker->optim_opts, step - 1) : NAN,
		.grad_norm = NAN,
	};
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static bool judges(const struct pl_train *t)
{
	return !t->eval_only && (t->job->patience || t->job->checkpoint_best);
}

bool pl_train_judge(struct pl_train *t, int64_t step, bool counts, double loss, double accuracy)
{
	const struct pl_job *j = t->job;
	bool by_accuracy = !strcmp(j->monitor, "accuracy");
	double v = by_accuracy ? accuracy : loss, sign = by_accuracy ? -1 : 1;
	struct pl_train_best *b = &t->worker->best;
	bool first = b->step < 0, better = isfinite(v) && (first || sign * v < sign * b->value);

	if (isfinite(v) && (first || sign * v < sign * b->to_beat - j->delta)) {
		b->to_beat = v;
		b->waited = 0;
	} else if (counts && !t->stopped_early) { /* the last one is made twice */
		b->waited++;
	}
	if (better) {
		b->value = v;
		b->step = step;
	}
	if (j->patience && b->waited >= j->patience && !t->done && step < t->steps)
		t->done = t->stopped_early = true;
	return better;
}

int pl_train_evaluate(struct pl_train *t, struct pl_err *err)
{
	struct pl_train_row row = pl_train_row(t, t->step);
	const struct pl_dataset *data = t->worker->o.data;
	int64_t hits, samples;

	if (t->evaluated == t->step)
		return 0;
	PL_CHECK(t->engine->eval(t->worker, &row.loss, &hits, &samples, err));
	row.at = pl_now_ns();
	row.eval = true;
	row.lr = NAN;
	if ((data->y || data->token) && samples > 0)
		row.accuracy = (double)hits / (double)samples;
	t->eval_loss = row.loss;
	t->accuracy = row.accuracy;
	t->evaluated = t->step;
	if (!samples)
		return 0; /* nothing is held out */
	if (!isnan(row.loss))
		PL_CHECK(t->row(t->arg, &row, err));
	if (!judges(t) || !pl_train_judge(t, t->step, pl_train_every(t->step, t->job->eval_every),
					  row.loss, row.accuracy))
		return 0;
	return t->job->checkpoint_best
		       ? t->engine->save(t->worker, t->job->checkpoint_best, t->step, err)
		       : 0;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

int pl_train_checkpoint(struct pl_train *t, struct pl_err *err)
{
	const struct pl_job *j = t->job;
	struct pl_worker *w = t->worker;

	if (!j->checkpoint || t->saved == t->step)
		return 0;
	PL_CHECK(t->engine->save(w, j->checkpoint, t->step, err));
	t->saved = t->step;
	return j->checkpoint_keep && !w->rank
		       ? pl_train_keep(&w->kept, j->checkpoint, t->step, j->checkpoint_keep,
				       j->resume != NULL, err)
		       : 0;
}

int pl_train_end(struct pl_train *t, struct pl_err *err)
{
	bool first = judges(t); /* the checkpoint has what the evaluation says */

	if (first && !t->interrupted)
		PL_CHECK(pl_train_evaluate(t, err));
	PL_CHECK(pl_train_checkpoint(t, err));
	return first || t->interrupted ? 0 : pl_train_evaluate(t, err);
}
