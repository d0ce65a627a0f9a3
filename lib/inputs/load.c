/*
 * The stage `trace`: inputs into one trace, which has one segment (or more) for each input, in
 * their order. With several threads every input is read by a job of its own, which leaves a stream
 * in a spool, so that memory does not grow with the inputs. The main thread takes these streams in
 * order: as they are when the output is a stream, else it reads them into the sink. Either way the
 * bytes are those of one thread.
 */
#include "inputs/inputs.h"

struct load {
	struct pl_inputs_load *o;
	struct pl_et *et;
	struct pl_inputs_progress progress;
	struct pl_out *out; /* NULL: the sink */
	struct pl_sink *sink;
	size_t empty; /* inputs that were left out */
};

struct job {
	struct load *l;
	struct pl_input *input;
	int32_t order;
	struct pl_pool *pool;
	struct pl_spool *spool; /* its stream */
	struct pl_buf said;	/* what it logged: level, text, NUL */
	struct pl_import_stats st;
	bool left_out; /* it is empty, and others are not */
	struct pl_inputs_tap tap;
	struct pl_err err;
	int rc;
};

/* ---- one input ------------------------------------------------------------------------------- */

static int fail_named(const struct pl_input *i, struct pl_err *err)
{
	const char *name = pl_inputs_name(i);

	/* messages about reading and writing already name their file */
	if (err->code != PL_EIO && strncmp(err->msg, name, strlen(name)))
		pl_wrap(err, "%s", name);
	return err->code;
}

static int read_input(struct job *j, const struct pl_log *log, struct pl_sink *sink,
		      struct pl_err *err)
{
	struct pl_import_opts o = j->l->o->import;
	struct pl_in *in = pl_inputs_open(j->input, err);
	int rc;

	j->tap.next = sink;
	o.log = log;
	o.order = j->order;
	o.process = j->input->process;
	o.pool = j->pool;
	o.et = j->l->et;
	rc = in ? pl_import_run(in, j->l->o->from, &o, &j->tap.sink, &j->st, err) : err->code;
	j->left_out = rc == PL_EDATA && j->st.empty && j->l->o->inputs > 1 && !o.strict;
	if (j->left_out) {
		memset(err, 0, sizeof(*err));
		return 0;
	}
	return rc < 0 && rc != PL_ESTOP ? fail_named(j->input, err) : rc;
}

/* Reports what was read from an input. */
static void report(struct load *l, const struct job *j)
{
	const struct pl_log *log = l->o->import.log;
	const struct pl_inputs_tap *t = &j->tap;
	const char *name = pl_inputs_name(j->input);

	if (j->left_out) {
		pl_in_say_empty(log, name);
		l->empty++;
		return;
	}
	if (j->st.bad > 1) /* a single one was already reported by a line of its own */
		pl_say(log, PL_LOG_WARN,
		       "%s: %llu events or values could not be read (first at %s)", name,
		       (unsigned long long)j->st.bad, j->st.first);
	if (j->st.tolerated)
		pl_say(log, PL_LOG_NOTE, "%s: %llu value%s not valid JSON and read all the same",
		       name, (unsigned long long)j->st.tolerated,
		       j->st.tolerated == 1 ? " is" : "s are");
	if (t->lost)
		pl_say(log, PL_LOG_WARN,
		       "%s: %llu events are missing: the recorder had no room for them, or never "
		       "saw "
		       "their end",
		       name, (unsigned long long)t->lost);
	/* what salvage kept of each file is no detail */
	pl_say(log, l->o->import.salvage ? PL_LOG_WARN : PL_LOG_NOTE,
	       "%s: %llu events in %u segment%s, %zu rank%s", name, (unsigned long long)t->events,
	       t->segments, t->segments == 1 ? "" : "s", t->ranks, t->ranks == 1 ? "" : "s");
	l->o->events += t->events;
	l->o->segments += t->segments;
}

static int load_et(struct load *l, struct pl_inputs *in, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < in->n; i++) {
		struct pl_import_opts o = l->o->import;
		struct pl_import_stats st = { 0 };
		struct pl_in *f;

		if (!in->v[i].et)
			continue;
		if (!l->et && !(l->et = pl_import_et_new(err)))
			return err->code;
		o.pool = l->o->pool;
		f = pl_inputs_open(&in->v[i], err);
		rc = f ? pl_import_et_load(l->et, f, &o, &st, err) : err->code;
		if (rc < 0)
			return fail_named(&in->v[i], err);
		l->progress.files++;
	}
	return rc;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void remember(void *arg, enum pl_level level, const char *text)
{
	struct job *j = arg;
	uint8_t k = (uint8_t)level;

	if (pl_buf_put(&j->said, &k, 1, NULL) == 0 &&
	    pl_buf_put(&j->said, text, strlen(text) + 1, NULL) < 0)
		j->said.n--;
}

static void repeat(const struct job *j)
{
	for (size_t i = 0; i < j->said.n;) {
		const char *text = (const char *)j->said.p + i + 1;

		pl_say(j->l->o->import.log, (enum pl_level)j->said.p[i], "%s", text);
		i += strlen(text) + 2;
	}
}

/* Read the input into a stream. */
static int to_stream(struct job *j, struct pl_out *out, const struct pl_log *log,
		     struct pl_err *err)
{
	const struct load *l = j->l;
	const struct pl_trace_writer_opts w = { .level = l->out ? l->o->level : 0,
						.pool = j->pool,
						.provenance = l->out ? l->o->provenance : NULL };
	struct pl_sink *sink = pl_trace_writer_open(out, &w, err);
	int rc;

	if (!sink)
		return err->code;
	rc = read_input(j, log, sink, err);
	if (rc < 0) {
		pl_trace_writer_abort(sink);
		return rc;
	}
	return pl_trace_writer_close(sink, err);
}

static void run_job(void *arg)
{
	struct job *j = arg;
	const struct pl_log log = { remember, j };
	struct pl_out *out = NULL;

	j->spool = pl_io_spool_new(&j->err);
	if (j->spool)
		out = pl_io_spool_write(j->spool, &j->err);
	j->rc = out ? pl_out_finish(out, to_stream(j, out, &log, &j->err), &j->err) : j->err.code;
}

/* Passes the job's stream on: to the output or to the sink. */
static int take_job(struct load *l, struct job *j, struct pl_err *err)
{
	const struct pl_trace_reader_opts o = { .log = l->o->import.log };
	struct pl_in *in;
	int rc;

	repeat(j);
	if (j->rc < 0) {
		*err = j->err;
		return j->rc;
	}
	in = pl_io_spool_read(j->spool, j->input->path, err);
	if (!in)
		return err->code;
	rc = l->out ? pl_out_copy(l->out, in, err) : pl_trace_read(in, &o, l->sink, err);
	pl_in_close(in);
	l->progress.files++;
	pl_inputs_progress_add(&l->progress, j->tap.events);
	if (rc >= 0)
		report(l, j);
	return rc;
}

static void job_free(struct job *j)
{
	if (!j)
		return;
	pl_io_spool_free(j->spool);
	pl_buf_fini(&j->said);
	pl_inputs_tap_fini(&j->tap);
	pl_free(j);
}

static int load_parallel(struct load *l, struct pl_inputs *in, struct pl_err *err)
{
	struct pl_queue *q = pl_queue_new(l->o->pool, 2 * pl_pool_threads(l->o->pool), err);
	struct job *j;
	int32_t order = 0;
	int rc = 0;

	if (!q)
		return err->code;
	for (size_t i = 0; i < in->n; i++) {
		if (in->v[i].et)
			continue;
		if (pl_queue_full(q)) {
			j = pl_queue_get(q);
			rc = take_job(l, j, err);
			job_free(j);
			PL_TRY(rc);
		}
		PL_TRY(pl_alloc(&j, 1, sizeof(*j), err));
		*j = (struct job){ .l = l, .input = &in->v[i], .order = order };
		order++;
		pl_inputs_tap_init(&j->tap, NULL, NULL);
		pl_queue_put(q, run_job, j);
	}
out:
	while ((j = pl_queue_get(q))) {
		if (rc >= 0)
			rc = take_job(l, j, err);
		job_free(j);
	}
	pl_queue_free(q);
	return rc;
}

static int load_serial(struct load *l, struct pl_inputs *in, struct pl_err *err)
{
	int32_t order = 0;
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < in->n; i++) {
		struct job j = { .l = l, .input = &in->v[i], .pool = l->o->pool };

		if (in->v[i].et)
			continue;
		j.order = order++;
		pl_inputs_tap_init(&j.tap, NULL, &l->progress);
		rc = l->out ? to_stream(&j, l->out, l->o->import.log, err)
			    : read_input(&j, l->o->import.log, l->sink, err);
		l->progress.files++;
		if (rc >= 0)
			report(l, &j);
		pl_inputs_tap_fini(&j.tap);
	}
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

int pl_inputs_check(const struct pl_inputs *in, struct pl_err *err)
{
	for (size_t i = 0; i < in->n; i++)
		if (!in->v[i].et)
			return 0;
	return pl_fail(err, PL_EDATA, "%s: only execution traces; name the profiler's files too",
		       pl_inputs_name(&in->v[0]));
}

int pl_inputs_load(struct pl_inputs *in, struct pl_inputs_load *o, struct pl_out *out,
		   struct pl_sink *sink, struct pl_err *err)
{
	struct load l = { .o = o, .out = out, .sink = sink, .progress.n_files = in->n };
	int rc;

	o->events = o->segments = 0;
	o->inputs = 0;
	for (size_t i = 0; i < in->n; i++)
		o->inputs += !in->v[i].et;
	pl_inputs_progress_add(&l.progress, 0);
	rc = load_et(&l, in, err);
	if (rc >= 0 && o->inputs > 1 && pl_pool_threads(o->pool) > 1)
		rc = load_parallel(&l, in, err);
	else if (rc >= 0)
		rc = load_serial(&l, in, err);
	pl_import_et_free(l.et);
	if (rc >= 0 && l.empty && l.empty == o->inputs)
		return pl_fail(err, PL_EDATA, "%s: all %zu files are empty; nothing to import",
			       pl_inputs_name(&in->v[0]), l.empty);
	return rc;
}
