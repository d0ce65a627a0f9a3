/*
 * One rank of a job, from its first step to its last.
 *
 * Losses are of each rank's own samples; their means over the ranks come from sums over up to
 * WINDOW steps at once, between two steps, so that what is logged costs next to nothing. What all
 * ranks must agree on (the target is reached, a signal came) goes the same way: they decide from
 * the same bits. How many steps the next window has follows from the mean time of the last one's.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

#define WINDOW	  16
#define WINDOW_NS 100000000 /* about how long a window may last */

struct training {
	struct work *w;
	const struct config *c;
	const struct place *p;
	const struct pl_job *j;
	const struct pl_engine *e;
	void *state;
	struct device device;
	struct pl_world *world;
	struct pl_recorder *rec;
	struct pl_tracer *tracer;
	FILE *log;
	struct pl_plan *plan;
	int64_t step, steps; /* the next one, and the one that is no more done */
	pl_ns begin, end;

	/* window: what was measured since the last sums */
	int n, width;
	double loss[WINDOW], hits[WINDOW], classified[WINDOW];
	pl_ns at[WINDOW];
	pl_ns shown;		     /* progress */
	bool on_screen, done, asked; /* asked: to end, by a signal */

	double last_loss, eval_loss, accuracy, to_target_s;
	int64_t measured; /* steps */
	pl_ns step_ns, compute_ns, wait_ns;
	uint64_t sent;
};

/* ---- showing --------------------------------------------------------------------------------- */

static void show_progress(struct training *t)
{
	pl_ns now = pl_now_ns();
	double s = (double)(now - t->begin) / 1e9;
	char line[200];
	int n;

	if (t->p->rank || t->c->c.progress == 2 ||
	    (!t->c->c.progress && !pl_is_tty(&t->c->c, STDERR_FILENO)))
		return;
	if (now - t->begin < 1000000000 || now - t->shown < 200000000)
		return;
	t->shown = now;
	t->on_screen = true;
	n = snprintf(line, sizeof(line),
		     "\rstep %lld of %lld  loss %.4g  %.0f samples/s  waiting %.0f %%   ",
		     (long long)t->step, (long long)t->steps, t->last_loss,
		     (double)(t->measured * t->j->batch * t->p->size) / s,
		     t->step_ns ? 100.0 * (double)t->wait_ns / (double)t->step_ns : 0);
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		t->shown = INT64_MAX / 2; /* nobody is there to be told */
}

static void erase_progress(struct training *t)
{
	if (t->on_screen && write(STDERR_FILENO, "\r\033[K", 4) < 0)
		t->on_screen = false;
}

static int log_row(struct training *t, pl_ns at, int64_t step, double loss, double accuracy,
		   bool eval, struct pl_err *err)
{
	if (!t->log)
		return 0;
	fprintf(t->log, "%.6f,%lld,%lld,", (double)(at - t->begin) / 1e9, (long long)step,
		(long long)(step * t->j->batch * t->p->size));
	if (eval)
		fprintf(t->log, ",%.9g,", loss);
	else
		fprintf(t->log, "%.9g,,", loss);
	if (!isnan(accuracy))
		fprintf(t->log, "%.6g", accuracy);
	fputc('\n', t->log);
	return ferror(t->log) ? pl_fail_sys(err, "%s: writing", t->c->log) : 0;
}

/* ---- what all ranks decide together ---------------------------------------------------------- */

static double ratio(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

/* The means of the window; whether to go on. */
static int close_window(struct training *t, struct pl_err *err)
{
	double v[3 * WINDOW + 2] = { 0 }, mean = 0, ns;
	int n = t->n, rc;

	if (!n)
		return 0;
	memcpy(v, t->loss, sizeof(t->loss[0]) * (size_t)n);
	memcpy(v + WINDOW, t->hits, sizeof(t->hits[0]) * (size_t)n);
	memcpy(v + 2 * WINDOW, t->classified, sizeof(t->classified[0]) * (size_t)n);
	v[3 * WINDOW] = stopped ? stopped : 0;
	v[3 * WINDOW + 1] = (double)t->step_ns / (double)t->measured;
	PL_TRY(t->e->sum(t->state, v, PL_LEN(v), err));
	for (int i = 0; i < n; i++) {
		double loss = v[i] / t->p->size;

		mean += loss / n;
		PL_TRY(log_row(t, t->at[i], t->step - n + i + 1, loss,
			       ratio(v[WINDOW + i], v[2 * WINDOW + i]), false, err));
		t->last_loss = loss;
	}
	if (!isfinite(mean))
		return pl_fail(err, PL_EDATA,
			       "the loss is %g at step %lld: training diverged; a smaller lr, or "
			       "clip=1 of the optimizer, may help",
			       mean, (long long)t->step);
	if (t->j->target_loss > 0 && mean <= t->j->target_loss) {
		t->to_target_s = (double)(t->at[n - 1] - t->begin) / 1e9;
		t->done = true;
	}
	if (v[3 * WINDOW] > 0) {
		t->done = t->asked = true;
		stopped = stopped ? stopped : SIGTERM; /* another rank's */
	}
	ns = v[3 * WINDOW + 1] / t->p->size;
	t->width = ns * WINDOW < WINDOW_NS ? WINDOW : (int)(WINDOW_NS / fmax(ns, 1)) + 1;
	t->width = t->width > WINDOW ? WINDOW : t->width;
	t->n = 0;
out:
	return rc;
}

static int evaluate(struct training *t, struct pl_err *err)
{
	double loss;
	int64_t hits, samples;
	int rc = t->e->eval(t->state, &loss, &hits, &samples, err);

	if (rc < 0)
		return rc;
	t->eval_loss = loss;
	t->accuracy = ratio((double)hits, (double)samples);
	if (!t->w->data.y && !t->w->data.token)
		t->accuracy = NAN;
	return isnan(loss) ? 0 : log_row(t, pl_now_ns(), t->step, loss, t->accuracy, true, err);
}

static int checkpoint(struct training *t, struct pl_err *err)
{
	return t->j->checkpoint ? t->e->save(t->state, t->j->checkpoint, t->step, err) : 0;
}

static int one_step(struct training *t, struct pl_err *err)
{
	struct pl_step_result r;
	int rc = t->e->step(t->state, t->step, &r, err);

	if (rc < 0)
		return rc;
	t->at[t->n] = pl_now_ns();
	t->loss[t->n] = r.loss;
	t->hits[t->n] = (double)r.hits;
	t->classified[t->n++] = (double)r.classified;
	t->step_ns += r.step_ns;
	t->compute_ns += r.compute_ns;
	t->wait_ns += r.wait_ns;
	t->sent = r.bytes_sent;
	t->measured++;
	t->step++;
	return 0;
}

static bool every(int64_t step, int64_t n)
{
	return n > 0 && step % n == 0;
}

static int loop(struct training *t, struct pl_err *err)
{
	const struct pl_job *j = t->j;
	int rc = 0;

	t->begin = pl_now_ns();
	t->width = 1;
	while (t->step < t->steps && !t->done) {
		PL_TRY(one_step(t, err));
		if (t->n >= t->width || t->step == t->steps || every(t->step, j->eval_every) ||
		    every(t->step, j->checkpoint_every)) {
			PL_TRY(close_window(t, err));
			show_progress(t);
		}
		if (every(t->step, j->eval_every) && t->step < t->steps && !t->done)
			PL_TRY(evaluate(t, err));
		if (every(t->step, j->checkpoint_every) && t->step < t->steps && !t->done)
			PL_TRY(checkpoint(t, err));
	}
out:
	t->end = pl_now_ns();
	erase_progress(t);
	return rc;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int open_trace(struct training *t, struct pl_err *err)
{
	struct pl_rec_opts o = { .rank = t->p->rank,
				 .size = t->p->size,
				 .host = t->p->host[0] ? t->p->host : NULL,
				 .level = t->c->c.uncompressed ? 0 : (int)t->c->c.level };
	struct pl_buf line = { 0 };
	char path[1024];
	int rc;

	if (!t->c->trace)
		return 0;
	snprintf(path, sizeof(path), "%.1000s", t->c->trace);
	if (t->p->size > 1)
		snprintf(path + strlen(path), 16, ".%d", t->p->rank);
	PL_TRY(pl_provenance(&t->c->c, &line, err));
	o.path = path;
	o.provenance = (const char *)line.p;
	PL_TRY(pl_rec_open(&o, &t->rec, err));
	PL_TRY(pl_tracer_new(t->rec, &t->tracer, err));
out:
	pl_buf_fini(&line);
	return rc;
}

/* Before the world, whose library may have a profiler. The job goes on without. */
static void trace_device(struct training *t)
{
	const struct pl_backend *b = t->device.backend;
	const struct pl_log *log = &t->c->c.log;
	struct pl_err why = { 0 };

	if (!t->tracer || !b || !b->device)
		return;
	if (!b->trace)
		pl_fail(&why, PL_EABSENT, "the backend tells nothing of it");
	else if (pl_tracer_device(t->tracer, b->trace, t->device.ctx, log, &why) == 0)
		return;
	pl_say(log, PL_LOG_WARN, "the trace lacks the device: %s", why.msg);
}

/* While the device is there. What a failed job left on it may never be over. */
static int stop_device_trace(struct training *t, bool good, struct pl_err *err)
{
	struct pl_err ignore = { 0 }; /* what failed there was told where it mattered */
	uint64_t lost = 0;
	int rc;

	if (!t->tracer)
		return 0;
	if (good && t->device.ctx)
		good = t->device.backend->sync(t->device.ctx, &ignore) == 0;
	rc = pl_tracer_stop(t->tracer, good, &lost, err);
	if (lost)
		pl_say(&t->c->c.log, PL_LOG_WARN,
		       "the trace lacks %llu events of the device: they came faster than they "
		       "could be taken",
		       (unsigned long long)lost);
	return rc;
}

static int open_log(struct training *t, struct pl_err *err)
{
	if (!t->c->log || t->p->rank)
		return 0;
	t->log = strcmp(t->c->log, "-") ? fopen(t->c->log, "w") : fdopen(dup(STDOUT_FILENO), "w");
	if (!t->log)
		return pl_fail_sys(err, "%s: opening", t->c->log);
	setvbuf(t->log, NULL, _IOLBF, 0); /* for tail -f */
	fputs("time_s,step,samples,loss,eval_loss,accuracy\n", t->log);
	return 0;
}

static int close_log(struct training *t, struct pl_err *err)
{
	bool bad;

	if (!t->log)
		return 0;
	bad = ferror(t->log) != 0;
	bad |= fclose(t->log) != 0;
	t->log = NULL;
	return bad ? pl_fail_sys(err, "%s: writing", t->c->log) : 0;
}

/* Of a text an epoch takes as many tokens as it has. */
static int64_t count_steps(const struct training *t)
{
	const struct pl_job *j = t->j;
	const struct pl_model *m = &t->w->model;
	double each = t->w->data.token && m->layer[0].n_num ? fmax(1, m->layer[0].num[0]) : 1;

	if (j->steps > 0)
		return j->steps;
	if (j->epochs <= 0)
		return INT64_MAX / 2; /* until the target is reached */
	return (int64_t)fmin(
		fmax(1, (double)pl_dataset_train(&t->w->data, j->split) * (double)j->epochs /
				(each * (double)(j->batch * t->p->size))),
		0x1p62);
}

/* What is written at the end should not fail there, after hours. */
static int check_folder(const char *path, struct pl_err *err)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	char folder[1024];

	if (!path || !strcmp(path, "-"))
		return 0;
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
		 slash ? path : ".");
	return access(folder, W_OK) ? pl_fail_sys(err, "%s: cannot write there", path) : 0;
}

static int check_outputs(const struct training *t, struct pl_err *err)
{
	const char *path[] = { t->j->checkpoint, t->c->export_to, t->c->report, t->c->c.output };
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(path) && rc == 0 && !t->p->rank; i++)
		rc = check_folder(path[i], err);
	return rc;
}

static int prepare(struct training *t, struct pl_err *err)
{
	struct pl_engine_opts o = { .job = t->j,
				    .model = &t->w->model,
				    .plan = t->w->planned ? &t->w->plan : NULL,
				    .data = &t->w->data,
				    .log = &t->c->c.log };
	int rc;

	PL_TRY(open_trace(t, err));
	PL_TRY(device_open(t->j, t->p, &t->device, err));
	trace_device(t);
	PL_TRY(meet_others(t->c, t->p, t->j, &t->device, t->tracer, &t->world, err));
	PL_TRY(check_outputs(t, err));
	PL_TRY(open_log(t, err));
	o.backend = t->device.backend;
	o.ctx = t->device.ctx;
	o.store = t->device.store;
	o.world = t->world;
	o.tracer = t->tracer;
	PL_TRY(t->e->prepare(&o, &t->state, err));
	if (o.backend && o.backend->remarks && !t->p->rank)
		o.backend->remarks(o.ctx, o.log);
	if (t->c->import_from)
		PL_TRY(t->e->import_weights(t->state, t->c->import_from, err));
	if (t->j->resume)
		PL_TRY(t->e->load(t->state, t->j->resume, &t->step, err));
out:
	return rc;
}

static int report(struct training *t, struct pl_err *err)
{
	double s = fmax(1e-9, (double)(t->end - t->begin) / 1e9);
	struct worker own = {
		.steps = (double)t->measured,
		.samples_per_s = (double)(t->measured * t->j->batch) / s,
		.commits = (double)t->measured,
		.compute_share = t->step_ns ? (double)t->compute_ns / (double)t->step_ns : 0,
		.wait_share = t->step_ns ? (double)t->wait_ns / (double)t->step_ns : 0,
		.bytes_sent = (double)t->sent,
		.step_s = t->measured ? (double)t->compute_ns / 1e9 / (double)t->measured : 0
	};
	struct result r = { .policy = t->e->policy,
			    .model = t->w->model.name,
			    .ranks = t->p->size,
			    .steps = t->measured,
			    .samples = t->measured * t->j->batch * t->p->size,
			    .seconds = s,
			    .samples_per_s = (double)(t->measured * t->j->batch * t->p->size) / s,
			    .time_to_target_s = t->to_target_s,
			    .final_loss = t->last_loss,
			    .eval_loss = t->eval_loss,
			    .accuracy = t->accuracy };
	struct pl_out *out;
	int rc;

	PL_TRY(gather_workers(t->e, t->state, &own, t->p, &r, err));
	if (t->p->rank)
		goto out;
	if (t->c->report)
		PL_TRY(report_file(&r, t->c->report, err));
	out = pl_out_open(t->c->c.output, false, err);
	if (!out) {
		rc = err->code;
		goto out;
	}
	rc = t->c->to == AS_JSON ? report_json(&r, out, err) : report_text(&r, out, err);
	if (rc < 0)
		pl_out_abort(out);
	else
		rc = pl_out_close(out, err);
out:
	pl_free(r.worker);
	return rc;
}

/* The world ends before what it sends from is freed, and before the trace that it writes to. */
static int finish(struct training *t, int rc, struct pl_err *err)
{
	struct pl_err later = { 0 };
	uint64_t lost = 0;
	int more;

	if (t->world && rc < 0)
		pl_world_abort(t->world, err ? err->msg : "failed");
	t->e->finish(t->state, t->world && rc < 0);
	if (t->world && rc >= 0)
		rc = pl_world_close(t->world, err);
	more = stop_device_trace(t, rc >= 0, &later);
	device_close(&t->device);
	if (close_log(t, &later) < 0)
		more = later.code;
	pl_tracer_free(t->tracer);
	if (t->rec && (more = pl_rec_close(t->rec, &lost, &later)) == 0 && lost)
		pl_say(&t->c->c.log, PL_LOG_WARN,
		       "the trace lacks %llu events: the disk was slower than the run",
		       (unsigned long long)lost);
	if (rc >= 0 && later.code) {
		*err = later;
		rc = later.code;
	}
	return rc < 0 ? rc : more < 0 ? more : rc;
}

int train(void *work, const struct place *p, struct pl_err *err)
{
	struct work *w = work;
	struct training *t;
	int rc = pl_alloc(&t, 1, sizeof(*t), err);

	if (rc < 0)
		return rc;
	*t = (struct training){ .w = w,
				.c = w->c,
				.p = p,
				.j = &w->job,
				.e = &pl_engine_dp,
				.last_loss = NAN,
				.eval_loss = NAN,
				.accuracy = NAN,
				.to_target_s = NAN };
	t->steps = w->job.steps = count_steps(t);
	PL_TRY(prepare(t, err));
	if (!t->c->eval) {
		catch_signals();
		PL_TRY(loop(t, err));
		PL_TRY(checkpoint(t, err));
	} else {
		t->begin = t->end = pl_now_ns();
	}
	if (!t->asked) /* who asks may not wait for long */
		PL_TRY(evaluate(t, err));
	if (t->c->export_to)
		PL_TRY(t->e->export_weights(t->state, t->c->export_to, err));
	PL_TRY(report(t, err));
out:
	rc = finish(t, rc, err);
	pl_free(t);
	return rc;
}
