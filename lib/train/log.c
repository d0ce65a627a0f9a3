/*
 * Logs of a training. Each row is passed on at once, so that somebody can follow it while the job
 * runs. TensorBoard reads records (io/tfrecord.h) of protobuf messages: Event (1 wall_time, 2 step,
 * 3 file_version, 5 summary), Summary (1 value), Value (1 tag, 2 simple_value), as event.proto and
 * summary.proto of TensorBoard define them.
 */
#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/pb.h"
#include "io/tfrecord.h"
#include "train/log.h"

enum form { CSV, JSON_LINES, EVENTS };
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5 }; /* of Event */
enum { VALUE = 1 };						 /* of Summary */
enum { TAG = 1, SIMPLE_VALUE = 2 };				 /* of Value */

struct pl_train_log {
	enum form form;
	char path[1024];
	FILE *f;
	struct pl_writer row, event; /* of the row in progress */
};

/* The clock of the calendar: TensorBoard puts runs beside one another by it. */
static double wall_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Passes on what the row's writer has. */
static int flush(struct pl_train_log *l, struct pl_err *err)
{
	struct pl_buf *b = &l->row.b;
	bool good;

	PL_CHECK(pl_write_check(&l->row, err));
	good = fwrite(b->p, 1, b->n, l->f) == b->n && !fflush(l->f);
	b->n = 0;
	return good ? 0 : pl_fail_sys(err, "%s: writing", l->path);
}

/* ---- a row in each form ---------------------------------------------------------------------- */

static void cell(struct pl_writer *w, int digits, double v)
{
	pl_write_char(w, ',');
	if (!isnan(v))
		pl_write_format(w, "%.*g", digits, v);
}

static void csv_row(struct pl_writer *w, const struct pl_train_row *r, double seconds)
{
	pl_write_format(w, "%.6f,%lld,%lld", seconds, (long long)r->step, (long long)r->samples);
	cell(w, 9, r->eval ? NAN : r->loss);
	cell(w, 9, r->eval ? r->loss : NAN);
	cell(w, 6, r->accuracy);
	cell(w, 9, r->lr);
	cell(w, 9, r->grad_norm);
	cell(w, 4, r->heterogeneity > 0 ? r->heterogeneity : NAN);
	pl_write_char(w, ',');
	if (r->note)
		pl_write_csv(w, r->note, strlen(r->note));
	pl_write_char(w, '\n');
}

static void known(struct pl_writer *w, const char *key, double v)
{
	if (!isnan(v))
		pl_json_real(w, key, v);
}

static void json_row(struct pl_writer *w, const struct pl_train_row *r, double seconds)
{
	w->has[0] = 0; /* each row is a document of its own */
	pl_json_open(w, '{');
	pl_json_real(w, "time_s", seconds);
	pl_json_int(w, "step", r->step);
	pl_json_int(w, "samples", r->samples);
	known(w, r->eval ? "eval_loss" : "loss", r->loss);
	known(w, "accuracy", r->accuracy);
	known(w, "lr", r->lr);
	known(w, "grad_norm", r->grad_norm);
	known(w, "heterogeneity", r->heterogeneity > 0 ? r->heterogeneity : NAN);
	if (r->note)
		pl_json_str(w, "note", r->note);
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void scalar(struct pl_writer *w, const char *tag, double v)
{
	size_t at;

	if (isnan(v))
		return;
	at = pl_pb_open(w, VALUE);
	pl_pb_bytes(w, TAG, tag, strlen(tag));
	pl_pb_float(w, SIMPLE_VALUE, (float)v);
	pl_pb_close(w, at);
}

/* An event as a record into the row's writer; it has a version, or the scalars of a row. */
static void put_event(struct pl_train_log *l, const char *version, const struct pl_train_row *r)
{
	struct pl_writer *w = &l->event;
	size_t at;

	pl_pb_double(w, WALL_TIME, wall_time());
	if (version)
		pl_pb_bytes(w, FILE_VERSION, version, strlen(version));
	if (r) {
		pl_pb_varint(w, STEP, (uint64_t)r->step);
		at = pl_pb_open(w, SUMMARY);
		scalar(w, r->eval ? "eval/loss" : "train/loss", r->loss);
		scalar(w, r->eval ? "eval/accuracy" : "train/accuracy", r->accuracy);
		scalar(w, "train/lr", r->lr);
		scalar(w, "train/grad_norm", r->grad_norm);
		scalar(w, "train/heterogeneity", r->heterogeneity > 0 ? r->heterogeneity : NAN);
		pl_pb_close(w, at);
	}
	pl_tfrecord_put(&l->row, w->b.p, w->b.n);
	w->b.n = 0;
}

int pl_train_log_row(struct pl_train_log *l, const struct pl_train_row *row, pl_ns begin,
		     struct pl_err *err)
{
	double seconds = (double)(row->at - begin) / 1e9;

	if (l->form == CSV)
		csv_row(&l->row, row, seconds);
	else if (l->form == JSON_LINES)
		json_row(&l->row, row, seconds);
	else
		put_event(l, NULL, row);
	PL_CHECK(pl_write_check(&l->event, err));
	return flush(l, err);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

static enum form form_of(const char *path)
{
	struct stat st;

	if (ends_in(path, "/") || (stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
		return EVENTS;
	return ends_in(path, ".jsonl") ? JSON_LINES : CSV;
}

/* Makes the folder p with those above it. */
static int make_folder(char *p, struct pl_err *err)
{
	for (char *at = p + 1;; at++) {
		char c = *at;

		if (c && c != '/')
			continue;
		*at = '\0';
		if (mkdir(p, 0777) && errno != EEXIST)
			return pl_fail_sys(err, "%s: making the folder", p);
		*at = c;
		if (!c)
			return 0;
	}
}

/* The name of a file of events, as TensorBoard's own writers build it: time, host, process. */
static int name_events(struct pl_train_log *l, struct pl_err *err)
{
	char host[256] = "";
	size_t n = strlen(l->path);

	if (gethostname(host, sizeof(host) - 1) || !host[0])
		snprintf(host, sizeof(host), "localhost");
	if (snprintf(l->path + n, sizeof(l->path) - n, "%sevents.out.tfevents.%.0f.%s.%ld.0",
		     ends_in(l->path, "/") ? "" : "/", floor(wall_time()), host,
		     (long)getpid()) >= (int)(sizeof(l->path) - n))
		return pl_fail(err, PL_ELIMIT, "%.200s: the name is too long", l->path);
	return 0;
}

static int open_file(struct pl_train_log *l, bool append, struct pl_err *err)
{
	bool standard = l->form == CSV && !strcmp(l->path, "-");

	if (l->form == EVENTS) {
		PL_CHECK(make_folder(l->path, err));
		PL_CHECK(name_events(l, err));
	}
	l->f = standard ? fdopen(dup(STDOUT_FILENO), "w") : fopen(l->path, append ? "a" : "w");
	if (!l->f)
		return pl_fail_sys(err, "%s: opening", l->path);
	/* a process that was killed may have left an empty file */
	if (l->form == CSV && (!append || (!fseek(l->f, 0, SEEK_END) && !ftell(l->f))))
		pl_write_text(&l->row, "time_s,step,samples,loss,eval_loss,accuracy,lr,grad_norm,"
				       "heterogeneity,note\n");
	if (l->form == EVENTS)
		put_event(l, "brain.Event:2", NULL);
	PL_CHECK(pl_write_check(&l->event, err));
	return flush(l, err);
}

int pl_train_log_check(const char *path, struct pl_err *err)
{
	enum form form = form_of(path);
	char at[1024];
	const char *slash = strrchr(path, '/');
	int n = snprintf(at, sizeof(at), "%s", path);

	if (n >= (int)sizeof(at))
		return pl_fail(err, PL_ELIMIT, "%.200s: the name is too long", path);
	if (form == CSV && !strcmp(path, "-"))
		return 0;
	if (form == EVENTS)
		PL_CHECK(make_folder(at, err));
	else if (access(path, F_OK)) /* its folder, then */
		snprintf(at, sizeof(at), "%.*s", slash ? (int)(slash - path + 1) : 1,
			 slash ? path : ".");
	return access(at, W_OK) ? pl_fail_sys(err, "%s: cannot write there", path) : 0;
}

int pl_train_log_open(const char *path, bool append, struct pl_train_log **out, struct pl_err *err)
{
	struct pl_train_log *l;
	int rc;

	*out = NULL;
	if (strlen(path) >= sizeof(l->path))
		return pl_fail(err, PL_ELIMIT, "%.200s: the name is too long", path);
	PL_CHECK(pl_alloc(&l, 1, sizeof(*l), err));
	snprintf(l->path, sizeof(l->path), "%s", path);
	l->form = form_of(path);
	rc = open_file(l, append, err);
	if (rc >= 0) {
		*out = l;
		return 0;
	}
	if (l->f)
		fclose(l->f);
	pl_write_fini(&l->row);
	pl_write_fini(&l->event);
	pl_free(l);
	return rc;
}

int pl_train_log_close(struct pl_train_log *l, struct pl_err *err)
{
	bool bad;
	int rc = 0;

	if (!l)
		return 0;
	bad = ferror(l->f) != 0;
	if (fclose(l->f) || bad)
		rc = pl_fail_sys(err, "%s: writing", l->path);
	pl_write_fini(&l->row);
	pl_write_fini(&l->event);
	pl_free(l);
	return rc;
}
