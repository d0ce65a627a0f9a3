/* One rank of a job: opens what it needs, lets the engine train, and writes the outputs. */
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "core/progress.h"
#include "program.h"
#include "train/log.h"

struct training {
	struct pl_train t;
	struct work *w;
	const struct config *c;
	const struct pl_launch *p;
	struct device device;
	struct pl_world *world;
	struct pl_engine_meeting meeting; /* in place of a world */
	struct pl_link_shape *shape;
	char host[HOST_MAX];
	struct pl_recorder *rec;
	struct pl_tracer *tracer;
	struct pl_train_log **log; /* of rank 0 */
	size_t n_logs;
};

/* ---- showing --------------------------------------------------------------------------------- */

static void show_progress(void *arg)
{
	struct training *t = arg;
	double s = (double)(pl_now_ns() - t->t.begin) / 1e9;

	if (!t->p->rank)
		pl_progress("step %lld of %lld, loss %.4g, %.0f samples/s, waiting %.0f %%",
			    (long long)t->t.step, (long long)t->t.steps, t->t.last_loss,
			    (double)t->t.samples_all / s,
			    t->t.step_ns ? 100.0 * (double)t->t.wait_ns / (double)t->t.step_ns : 0);
}

static int log_row(void *arg, const struct pl_train_row *r, struct pl_err *err)
{
	struct training *t = arg;

	for (size_t i = 0; i < t->n_logs; i++)
		PL_CHECK(pl_train_log_row(t->log[i], r, t->t.begin, err));
	return 0;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int open_trace(struct training *t, const struct pl_job *j, struct pl_err *err)
{
	const char *each = NULL;
	char host[HOST_MAX];
	struct pl_rec_opts o = { .rank = t->p->rank,
				 .size = t->p->size,
				 .host = host_of_rank(t->c, t->p, host),
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
	PL_TRY(pl_train_tracer_new(t->rec, &t->tracer, err));
	for (size_t i = 0; i < j->n_links; i++)
		if (j->link[i].from < 0 || j->link[i].from == t->p->rank)
			each = j->link[i].shared ? "false" : "true";
	if (each) /* --link made the links */
		pl_rec_meta(t->rec, "link_to_each_rank", each);
out:
	pl_buf_fini(&line);
	return rc;
}

/* Before the world is opened: its library may have a profiler. If it fails, the job goes on. */
static void trace_device(struct training *t)
{
	const struct pl_backend *b = t->device.backend;
	const struct pl_log *log = &t->c->c.log;
	struct pl_err why = { 0 };

	if (!t->tracer || !b || !b->device)
		return;
	if (!b->trace)
		pl_fail(&why, PL_EABSENT, "the backend tells nothing of it");
	else if (pl_train_tracer_device(t->tracer, b->trace, t->device.ctx, log, &why) == 0)
		return;
	pl_say(log, PL_LOG_WARN, "the trace lacks the device: %s", why.msg);
}

/* While the context is open. After a failure the device may never come to an end. */
static int stop_device_trace(struct training *t, bool good, struct pl_err *err)
{
	struct pl_err ignore = { 0 }; /* a failure there was an error of the step already */
	uint64_t lost = 0;
	int rc;

	if (!t->tracer)
		return 0;
	if (good && t->device.ctx)
		good = t->device.backend->sync(t->device.ctx, &ignore) == 0;
	rc = pl_train_tracer_stop(t->tracer, good, &lost, err);
	if (lost)
		pl_say(&t->c->c.log, PL_LOG_WARN,
		       "the trace lacks %llu events of the device: they came faster than they "
		       "could be taken",
		       (unsigned long long)lost);
	return rc;
}

static int open_log(struct training *t, struct pl_err *err)
{
	const struct pl_list *l = &t->c->log;

	if (!l->n || t->p->rank)
		return 0;
	PL_CHECK(pl_alloc(&t->log, l->n, sizeof(*t->log), err));
	for (; t->n_logs < l->n; t->n_logs++)
		PL_CHECK(pl_train_log_open(l->v[t->n_logs], t->c->again, &t->log[t->n_logs], err));
	return 0;
}

static int close_log(struct training *t, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < t->n_logs; i++)
		if (pl_train_log_close(t->log[i], rc < 0 ? NULL : err) < 0)
			rc = -1;
	pl_free(t->log);
	return rc;
}

/* So that writing does not fail at the end, after hours. */
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
	const char *path[] = { t->w->job.checkpoint, t->w->job.checkpoint_best, t->c->export_to,
			       t->c->report, t->c->c.output };
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(path) && rc == 0 && !t->p->rank; i++)
		rc = check_folder(path[i], err);
	for (size_t i = 0; i < t->c->log.n && rc == 0 && !t->p->rank; i++)
		rc = pl_train_log_check(t->c->log.v[i], err);
	return rc;
}

static int prepare(struct training *t, struct pl_err *err)
{
	struct pl_engine_opts o = { .job = &t->w->job,
				    .model = &t->w->model,
				    .plan = t->w->planned ? &t->w->plan : NULL,
				    .data = &t->w->data,
				    .read_once = !t->c->launch.launcher,
				    .alone = t->c->eval && t->c->servers,
				    .log = &t->c->c.log };

	PL_CHECK(find_engine(o.job, o.plan, &t->t.engine, err));
	PL_CHECK(open_trace(t, o.job, err));
	PL_CHECK(device_open(o.job, t->p, t->c->servers, &t->device, err));
	trace_device(t);
	if (t->t.engine->servers) {
		PL_CHECK(find_meeting(t->c, t->p, o.job, &t->device, &t->meeting, &t->shape,
				      t->host, err));
		o.meeting = &t->meeting;
	} else {
		PL_CHECK(open_world(t->c, t->p, o.job, &t->device, t->tracer, &t->world, err));
	}
	PL_CHECK(check_outputs(t, err));
	o.backend = t->device.backend;
	o.ctx = t->device.ctx;
	o.store = t->device.store;
	o.world = t->world;
	o.tracer = t->tracer;
	o.grad_norm = t->c->log.n && !t->p->rank;
	PL_CHECK(pl_alloc(&t->t.worker, 1, t->t.engine->size, err));
	PL_CHECK(t->t.engine->prepare(t->t.worker, &o, err));
	if (o.backend && o.backend->remarks && !t->p->rank)
		o.backend->remarks(o.ctx, o.log);
	if (t->c->import_from)
		PL_CHECK(t->t.engine->import_weights(t->t.worker, t->c->import_from, err));
	if (o.job->resume)
		PL_CHECK(t->t.engine->load(t->t.worker, o.job->resume, !t->c->eval, &t->t.step,
					   err));
	return open_log(t, err); /* a job that is refused leaves the log of an earlier one */
}

static int report(struct training *t, struct pl_err *err)
{
	const struct pl_train *d = &t->t;
	double s = fmax(1e-9, (double)(d->end - d->begin) / 1e9), first = (double)d->first_ns / 1e9;
	double steps = (double)pl_train_measured(d), share = steps / fmax(1, (double)d->steps_done);
	struct pl_train_result own = {
		.rank = t->p->rank,
		.steps = (double)d->steps_done,
		.samples = (double)d->samples,
		.samples_per_s = (double)d->samples * share / fmax(1e-9, s - first),
		.commits = (double)d->steps_done,
		.compute_share = d->step_ns ? (double)d->compute_ns / (double)d->step_ns : 0,
		.wait_share = d->step_ns ? (double)d->wait_ns / (double)d->step_ns : 0,
		.bytes_sent = (double)d->bytes_sent,
		.step_s = steps > 0 ? (double)d->compute_ns / 1e9 / steps : 0
	};
	struct result r = { .t = d,
			    .model = t->w->model.name,
			    .signal = d->interrupted ? stop_signal : 0,
			    .seconds = s };
	int rc;

	PL_TRY(gather_workers(d, &own, t->p, &r, err));
	if (t->p->rank)
		goto out;
	if (t->c->row) {
		comparison_fill(t->c->row, &r);
		goto out;
	}
	if (t->c->report)
		PL_TRY(report_write(&r, t->c->report, true, err));
	rc = report_write(&r, t->c->c.output, t->c->to == AS_JSON, err);
out:
	pl_free(r.worker);
	return rc;
}

/* The world sends from memory of the engine and records into the trace. So it ends before both. */
static int finish(struct training *t, int rc, struct pl_err *err)
{
	struct pl_err later = { 0 };
	uint64_t lost = 0;
	int more;

	if (t->world && rc < 0)
		pl_comm_world_abort(t->world, err ? err->msg : "failed");
	if (t->t.worker)
		t->t.engine->finish(t->t.worker, t->world && rc < 0);
	pl_free(t->t.worker);
	pl_free(t->shape);
	if (t->meeting.size) /* until now lost processes could connect again */
		pl_comm_launch_unshare(t->p);
	if (t->world && rc >= 0)
		rc = pl_comm_world_close(t->world, err);
	more = stop_device_trace(t, rc >= 0, &later);
	device_close(&t->device);
	if (close_log(t, &later) < 0)
		more = later.code;
	pl_train_tracer_free(t->tracer);
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

int train(void *work, const struct pl_launch *p, struct pl_err *err)
{
	struct work *w = work;
	struct training *t;
	int rc;

	if (w->c->eval && w->c->servers && p->rank) /* the process that leads evaluates alone */
		return 0;
	PL_CHECK(pl_alloc(&t, 1, sizeof(*t), err));
	*t = (struct training){ .w = w,
				.c = w->c,
				.p = p,
				.t = { .job = &w->job,
				       .ranks = p->size - w->c->servers,
				       .stop = &stop_signal,
				       .row = log_row,
				       .progress = show_progress,
				       .arg = t,
				       .eval_only = w->c->eval } };
	PL_TRY(prepare(t, err));
	pl_train_init(&t->t);
	if (!t->c->eval) {
		pl_out_hook(); /* a second request ends a rank by what catch_signals() finds */
		catch_signals();
		rc = t->t.engine->control(&t->t, err);
		pl_progress_end();
		if (t->c->row && t->t.diverged)
			t->c->row->diverged = true;
		if (rc < 0)
			goto out;
		if (t->meeting.size && t->p->rank) /* the process that leads does the rest alone */
			goto out;
		PL_TRY(pl_train_end(&t->t, err));
	} else {
		PL_TRY(pl_train_evaluate(&t->t, err));
	}
	if (t->c->export_to)
		PL_TRY(t->t.engine->export_weights(t->t.worker, t->c->export_to, err));
	PL_TRY(report(t, err));
out:
	rc = finish(t, rc, err);
	/* it came to this rank after the last step: the others know nothing of it, all is done */
	if (rc == 0 && t->world && !t->c->eval && !t->t.interrupted)
		stop_signal = 0;
	pl_free(t);
	return rc;
}
