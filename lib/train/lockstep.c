/*
 * The control of engines whose ranks all do the same steps, from the first to the last.
 *
 * A loss is of one rank's own samples. The means over the ranks come from sums over up to WINDOW
 * steps at once, between two steps, so that the log costs next to nothing. What all ranks must
 * agree on (the target is reached, a signal came) goes the same way: they decide from the same
 * bits. How many steps the next window has follows from the mean time of the last one's. Training
 * ends with a round (worker.h), when all ranks are equal, so that a checkpoint can be continued.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "train/worker.h"

#define WINDOW	  16
#define WINDOW_NS 100000000 /* about how long a window may last */
/* What is summed over ranks: values of the steps, then: */
enum {
	STOP_INT = 3 * WINDOW, /* how many ranks were asked to end by SIGINT, and by another one */
	STOP_TERM,
	STEP_NS, /* the mean time of a step */
	SUMS
};

struct window { /* what was measured since the last sums */
	int n, width;
	double v[SUMS]; /* of each step its loss, then of each its hits, then what was classified */
	double norm[WINDOW]; /* of the gradients of this rank */
	pl_ns at[WINDOW];
	int64_t samples; /* of one step, of all ranks */
};

static double ratio(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

static int put_rows(struct pl_train *t, const struct window *w, double *mean, struct pl_err *err)
{
	const double *v = w->v;

	for (int i = 0; i < w->n; i++) {
		struct pl_train_row row = pl_train_row(t, t->step - w->n + i + 1);

		row.at = w->at[i];
		row.loss = v[i] / t->ranks;
		row.accuracy = ratio(v[WINDOW + i], v[2 * WINDOW + i]);
		row.grad_norm = w->norm[i];
		*mean += row.loss / w->n;
		PL_CHECK(t->row(t->arg, &row, err));
		t->last_loss = row.loss;
	}
	return 0;
}

/* The means of the window, and whether to go on. */
static int close_window(struct pl_train *t, struct window *w, struct pl_err *err)
{
	double *v = w->v, mean = 0, ns;
	int sig = *t->stop;

	if (!w->n)
		return 0;
	v[STOP_INT] = sig == SIGINT;
	v[STOP_TERM] = sig && sig != SIGINT;
	v[STEP_NS] = (double)t->step_ns / (double)pl_train_measured(t);
	PL_CHECK(pl_train_worker_sum(t->worker, v, SUMS, err));
	PL_CHECK(put_rows(t, w, &mean, err));
	if (!isfinite(mean)) {
		t->diverged = true;
		return pl_fail(err, PL_EDATA,
			       "the loss is %g at step %lld: training diverged; a smaller lr, or "
			       "clip=1 of the optimizer, may help",
			       fabs(mean), (long long)t->step);
	}
	if (!t->done && t->job->target_loss > 0 && mean <= t->job->target_loss) {
		t->time_to_target_s = (double)(w->at[w->n - 1] - t->begin) / 1e9;
		t->done = true;
	}
	if (v[STOP_INT] + v[STOP_TERM] > 0) {
		t->done = t->interrupted = true;
		*t->stop = v[STOP_INT] > 0 ? SIGINT : SIGTERM; /* all ranks end by the same one */
	}
	ns = v[STEP_NS] / t->ranks;
	w->width = ns * WINDOW < WINDOW_NS ? WINDOW : (int)(WINDOW_NS / fmax(ns, 1)) + 1;
	w->width = w->width > WINDOW ? WINDOW : w->width;
	w->n = 0;
	/* a shorter window sums the places of longer ones too: they would grow with each sum */
	memset(v, 0, sizeof(w->v));
	return 0;
}

static int one_step(struct pl_train *t, struct window *w, struct pl_err *err)
{
	struct pl_step_result r;

	if (t->steps_done == 1) {
		t->first_ns = pl_now_ns() - t->begin;
		t->step_ns = t->compute_ns = t->wait_ns = 0;
	}
	PL_CHECK(t->engine->step(t->worker, t->step, &r, err));
	w->at[w->n] = pl_now_ns();
	w->v[w->n] = r.loss;
	w->norm[w->n] = r.grad_norm;
	w->v[WINDOW + w->n] = (double)r.hits;
	w->v[2 * WINDOW + w->n++] = (double)r.classified;
	w->samples = r.samples * t->ranks;
	t->step_ns += r.step_ns;
	t->compute_ns += r.compute_ns;
	t->wait_ns += r.wait_ns;
	t->bytes_sent = r.bytes_sent;
	t->samples += r.samples;
	t->samples_all += w->samples;
	t->steps_done++;
	t->step++;
	return 0;
}

int pl_train_lockstep(struct pl_train *t, struct pl_err *err)
{
	const struct pl_job *j = t->job;
	const int64_t round = t->worker->round;
	struct window w = { .width = 1 };
	int rc = 0;

	t->steps = pl_train_worker_steps(t->worker, t->ranks);
	t->begin = pl_now_ns();
	for (bool ends = t->step >= t->steps; !ends;) {
		PL_TRY(one_step(t, &w, err));
		ends = t->step == t->steps || (t->done && pl_train_every(t->step, round));
		if (w.n >= w.width || ends || pl_train_every(t->step, j->eval_every) ||
		    pl_train_every(t->step, j->checkpoint_every)) {
			PL_TRY(close_window(t, &w, err));
			t->progress(t->arg);
			ends = ends || (t->done && pl_train_every(t->step, round));
		}
		if (pl_train_every(t->step, j->eval_every) && !ends && !t->done) {
			PL_TRY(pl_train_evaluate(t, err));
			ends = t->done;
		}
		if (pl_train_every(t->step, j->checkpoint_every) && !ends && !t->done)
			PL_TRY(pl_train_checkpoint(t, err));
	}
out:
	t->end = pl_now_ns();
	return rc;
}
