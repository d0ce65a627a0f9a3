/*
 * Inputs into one output. The output is made of one segment (or more) for each input, in their
 * order. With several threads every input is read by a job of its own, which leaves a stream: its
 * first megabytes in memory, the rest in a temporary file without a name, so that memory does not
 * grow with the inputs. The main thread takes these streams in order: as they are when the output
 * is a stream, else it reads them into the exporter. Either way the bytes are those of one thread.
 */
#include <stdio.h>

#include "config.h"
#include "program.h"

struct load {
	struct config *c;
	const struct pl_exporter *to;
	struct pl_pool *pool;
	struct pl_et *et;
	struct progress progress;
	struct pl_buf line; /* provenance */
	bool direct;	    /* each input is a stream of its own in the output */
	uint64_t events, bad, tolerated;
	uint32_t segments;
};

struct job {
	struct load *l;
	struct input *input;
	int32_t order;
	struct pl_pool *pool;
	struct pl_buf bytes; /* its stream; with a file, the part that is not yet in the file */
	FILE *file;	     /* NULL: the stream is short */
	struct pl_buf said;  /* what it logged: level, text, NUL */
	struct pl_import_stats st;
	struct tap tap;
	struct pl_err err;
	int rc;
};

/* ---- one input ------------------------------------------------------------------------------- */

static int fail_named(const struct input *i, struct pl_err *err)
{
	const char *name = input_name(i);

	/* messages about reading and writing already name their file */
	if (err->code != PL_EIO && strncmp(err->msg, name, strlen(name)))
		pl_wrap(err, "%s", name);
	return err->code;
}

static int read_input(struct load *l, struct input *i, int32_t order, struct pl_pool *pool,
		      const struct pl_log *log, struct pl_sink *sink, struct pl_import_stats *st,
		      struct pl_err *err)
{
	const struct pl_importer *force = l->c->from ? pl_import_find(l->c->from) : NULL;
	struct pl_import_opts o = import_opts(l->c, log, order);
	struct pl_in *in = input_open(i, err);
	int rc;

	o.pool = pool;
	o.et = l->et;
	rc = in ? pl_import_run(in, force, &o, sink, st, err) : err->code;
	return rc < 0 && rc != PL_ESTOP ? fail_named(i, err) : rc;
}

/* Reports what was read from an input. */
static void report(struct load *l, const struct input *i, const struct pl_import_stats *st,
		   const struct tap *t)
{
	const struct pl_log *log = &l->c->c.log;

	if (st->bad > 1) /* a single one was already reported by a line of its own */
		pl_say(log, PL_LOG_WARN,
		       "%s: %llu events or values could not be read (first at %s)", input_name(i),
		       (unsigned long long)st->bad, st->first);
	if (st->tolerated)
		pl_say(log, PL_LOG_NOTE, "%s: %llu value%s not valid JSON and read all the same",
		       input_name(i), (unsigned long long)st->tolerated,
		       st->tolerated == 1 ? " is" : "s are");
	/* what salvage kept of each file is no detail */
	pl_say(log, l->c->salvage ? PL_LOG_WARN : PL_LOG_NOTE,
	       "%s: %llu events in %u segment%s, %zu rank%s", input_name(i),
	       (unsigned long long)t->events, t->segments, t->segments == 1 ? "" : "s", t->ranks,
	       t->ranks == 1 ? "" : "s");
	l->events += t->events;
	l->segments += t->segments;
}

static int load_et(struct load *l, struct inputs *in, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < in->n; i++) {
		struct pl_import_opts o = import_opts(l->c, &l->c->c.log, 0);
		struct pl_import_stats st = { 0 };
		struct pl_in *f;

		if (!in->v[i].et)
			continue;
		if (!l->et && !(l->et = pl_import_et_new(err)))
			return err->code;
		o.pool = l->pool;
		f = input_open(&in->v[i], err);
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

		pl_say(&j->l->c->c.log, (enum pl_level)j->said.p[i], "%s", text);
		i += strlen(text) + 2;
	}
}

/* Read the input into a stream that is written to `out`. */
static int to_stream(struct job *j, struct pl_out *out, const struct pl_log *log)
{
	const struct load *l = j->l;
	const struct pl_trace_writer_opts w = { .level = l->direct ? (int)l->c->c.level : 0,
						.pool = j->pool,
						.provenance = l->direct ? (const char *)l->line.p
									: NULL };
	struct pl_sink *sink = pl_trace_writer_open(out, &w, &j->err);
	int rc;

	if (!sink)
		return j->err.code;
	j->tap.next = sink;
	rc = read_input(j->l, j->input, j->order, j->pool, log, &j->tap.sink, &j->st, &j->err);
	if (rc < 0) {
		pl_trace_writer_abort(sink);
		return rc;
	}
	return pl_trace_writer_close(sink, &j->err);
}

#define JOB_BYTES ((size_t)2 << 20) /* of a job's stream in memory */

static int spill(void *arg, struct pl_err *err)
{
	struct job *j = arg;

	if (j->bytes.n < JOB_BYTES)
		return 0;
	if (!j->file && !(j->file = tmpfile()))
		return pl_fail_sys(err, "a temporary file");
	if (fwrite(j->bytes.p, 1, j->bytes.n, j->file) != j->bytes.n)
		return pl_fail_sys(err, "a temporary file");
	j->bytes.n = 0;
	return 0;
}

static void run_job(void *arg)
{
	struct job *j = arg;
	const struct pl_log log = { remember, j };
	struct pl_out *out = pl_out_open_buf(&j->bytes, &j->err);

	if (!out) {
		j->rc = j->err.code;
		return;
	}
	j->rc = to_stream(j, out, &log);
	if (j->rc < 0)
		pl_out_abort(out);
	else
		j->rc = pl_out_close(out, &j->err);
}

/* The part of the job's stream that is in its file. */
static int copy_file(struct job *j, struct pl_out *out, struct pl_err *err)
{
	struct pl_buf chunk = { 0 };
	size_t n;
	int rc;

	rewind(j->file);
	PL_TRY(pl_buf_need(&chunk, JOB_BYTES, err));
	while ((n = fread(chunk.p, 1, JOB_BYTES, j->file)) > 0)
		PL_TRY(pl_out_write(out, chunk.p, n, err));
	if (ferror(j->file))
		rc = pl_fail_sys(err, "a temporary file");
out:
	pl_buf_fini(&chunk);
	return rc;
}

/* The job's whole stream, to be read. */
static struct pl_in *open_job(struct job *j, struct pl_err *err)
{
	char path[32];

	if (!j->file)
		return pl_in_open_mem(j->input->path, j->bytes.p, j->bytes.n, err);
	if (fwrite(j->bytes.p, 1, j->bytes.n, j->file) != j->bytes.n || fflush(j->file)) {
		pl_fail_sys(err, "a temporary file");
		return NULL;
	}
	rewind(j->file);
	snprintf(path, sizeof(path), "/dev/fd/%d", fileno(j->file));
	return pl_in_open(path, err);
}

/* Passes the job's stream on: to the output or to the exporter. */
static int take_job(struct load *l, struct job *j, struct pl_out *out, struct pl_sink *sink,
		    struct pl_err *err)
{
	struct pl_in *in;
	int rc;

	repeat(j);
	if (j->rc < 0) {
		*err = j->err;
		return j->rc;
	}
	if (l->direct) {
		rc = j->file ? copy_file(j, out, err) : 0;
		rc = rc < 0 ? rc : pl_out_write(out, j->bytes.p, j->bytes.n, err);
	} else {
		const struct pl_trace_reader_opts o = { .log = &l->c->c.log };

		in = open_job(j, err);
		rc = in ? pl_trace_read(in, &o, sink, err) : err->code;
		pl_in_close(in);
	}
	l->progress.files++;
	progress_add(&l->progress, j->tap.events);
	if (rc >= 0)
		report(l, j->input, &j->st, &j->tap);
	return rc;
}

static void job_free(struct job *j)
{
	if (!j)
		return;
	if (j->file)
		fclose(j->file);
	pl_buf_fini(&j->bytes);
	pl_buf_fini(&j->said);
	tap_fini(&j->tap);
	pl_free(j);
}

static int load_parallel(struct load *l, struct inputs *in, struct pl_out *out,
			 struct pl_sink *sink, struct pl_err *err)
{
	struct pl_queue *q = pl_queue_new(l->pool, 2 * pl_pool_threads(l->pool), err);
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
			rc = take_job(l, j, out, sink, err);
			job_free(j);
			PL_TRY(rc);
		}
		PL_TRY(pl_alloc(&j, 1, sizeof(*j), err));
		*j = (struct job){ .l = l, .input = &in->v[i], .order = order };
		order++;
		tap_init(&j->tap, NULL, NULL);
		j->tap.after = spill;
		j->tap.arg = j;
		pl_queue_put(q, run_job, j);
	}
out:
	while ((j = pl_queue_get(q))) {
		if (rc >= 0)
			rc = take_job(l, j, out, sink, err);
		job_free(j);
	}
	pl_queue_free(q);
	return rc;
}

static int load_serial(struct load *l, struct inputs *in, struct pl_out *out, struct pl_sink *sink,
		       struct pl_err *err)
{
	int32_t order = 0;
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < in->n; i++) {
		struct job j = { .l = l, .input = &in->v[i], .pool = l->pool };

		if (in->v[i].et)
			continue;
		j.order = order++;
		tap_init(&j.tap, sink, &l->progress);
		if (l->direct) {
			rc = to_stream(&j, out, &l->c->c.log);
			if (rc < 0)
				*err = j.err;
		} else {
			rc = read_input(l, j.input, j.order, l->pool, &l->c->c.log, &j.tap.sink,
					&j.st, err);
		}
		l->progress.files++;
		if (rc >= 0)
			report(l, j.input, &j.st, &j.tap);
		tap_fini(&j.tap);
	}
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Into an exporter, past the filter. */
static int through_exporter(struct load *l, struct inputs *in, const struct selection *sel,
			    bool parallel, struct pl_out *out, struct pl_err *err)
{
	bool json = !strcmp(l->to->name, "stat-json");
	const struct pl_export_opts o = {
		.pool = l->pool,
		.level = (int)l->c->c.level,
		.provenance = (const char *)l->line.p,
		.log = &l->c->c.log,
		.top = l->c->top >= 0 ? (int)l->c->top
		       : json	      ? 0
				      : 15,
		.color = pl_use_color(&l->c->c, 1),
	};
	struct pl_sink *sink = pl_export_open(l->to, out, &o, err), *filter = NULL;
	int rc;

	if (!sink)
		return err->code;
	if (sel->any && !(filter = pl_trace_filter_open(&sel->f, sink, err))) {
		pl_export_abort(l->to, sink);
		return err->code;
	}
	rc = (parallel ? load_parallel : load_serial)(l, in, out, filter ? filter : sink, err);
	if (rc >= 0 && filter)
		rc = pl_trace_filter_finish(filter, err);
	if (rc >= 0 && filter && (rc = pl_trace_filter_check(filter, &l->c->c.log, err)) < 0 &&
	    in->n == 1)
		fail_named(&in->v[0], err);
	pl_trace_filter_close(filter);
	if (rc < 0)
		pl_export_abort(l->to, sink);
	else
		rc = pl_export_close(l->to, sink, err);
	return rc;
}

int load_all(struct config *c, struct inputs *in, const struct selection *sel, struct pl_err *err)
{
	struct load l = { .c = c, .to = pl_export_find(c->to) };
	struct pl_out *out = NULL;
	size_t n = 0;
	bool parallel;
	int rc = 0;

	for (size_t i = 0; i < in->n; i++)
		n += !in->v[i].et;
	if (!n)
		return pl_fail(err, PL_EDATA,
			       "%s: only execution traces; name the profiler's files too",
			       in->v[0].path);
	l.direct = !strcmp(l.to->name, "trace") && !sel->any;
	l.progress.n_files = in->n;
	progress_add(&l.progress, 0);
	PL_TRY(pl_provenance(&c->c, &l.line, err));
	l.pool = pl_pool_new((int)c->c.threads, err);
	out = l.pool ? pl_out_open(c->c.output, l.to->binary, err) : NULL;
	PL_TRY(out ? 0 : err->code);
	PL_TRY(load_et(&l, in, err));
	parallel = n > 1 && pl_pool_threads(l.pool) > 1;
	if (!l.direct)
		rc = through_exporter(&l, in, sel, parallel, out, err);
	else
		rc = (parallel ? load_parallel : load_serial)(&l, in, out, NULL, err);
	if (rc >= 0 && c->salvage && !l.events)
		rc = pl_fail(err, PL_EDATA, "%s: 0 events kept: no event of it is whole",
			     input_name(&in->v[0]));
	if (rc >= 0) {
		rc = pl_out_close(out, err);
		out = NULL;
	}
	if (rc >= 0)
		pl_say(&c->c.log, PL_LOG_NOTE, "%zu input%s, %llu events in %u segment%s", n,
		       n == 1 ? "" : "s", (unsigned long long)l.events, l.segments,
		       l.segments == 1 ? "" : "s");
out:
	pl_out_abort(out);
	pl_import_et_free(l.et);
	pl_pool_free(l.pool);
	pl_buf_fini(&l.line);
	return rc;
}
