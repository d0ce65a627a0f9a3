/*
 * predict --import: tensor programs of tuning logs. predict -O c, -O cuda: tensor programs as
 * sources.
 */
#include "program.h"
#include "tprog/autotvm.h"

static bool is_source(const struct config *c)
{
	return c->to == OUT_C || c->to == OUT_CUDA;
}

bool is_of_text(const struct config *c)
{
	return c->import || is_source(c);
}

int check_text(const struct config *c, struct pl_err *err)
{
	const char *what = c->import ? "--import" : c->to == OUT_C ? "-O c" : "-O cuda";

	if (c->train || c->cross || c->model || c->measure || c->adapt.n || c->eval || c->explain ||
	    c->choose >= 0)
		return pl_fail(err, PL_EUSAGE, "%s writes programs, and nothing else is done",
			       what);
	if (c->import && c->to)
		return pl_fail(err, PL_EUSAGE,
			       "--import writes tensor programs; -O c and -O cuda take those");
	if (c->schema && strcmp(c->schema, "tprog") != 0)
		return pl_fail(err, PL_EUSAGE, "%s is of tensor programs, not of tables", what);
	if (c->c.strict && !c->import)
		return pl_fail(err, PL_EUSAGE, "--strict goes with --import");
	if (c->folder.n)
		return pl_fail(err, PL_EUSAGE, "--devices: tensor programs have no data sheets");
	if (c->device.n > (size_t)c->import)
		return pl_fail(err, PL_EUSAGE, "--device=%s: %s", c->device.v[c->device.n - 1],
			       c->import ? "the logs are of one device"
					 : "a source is the same for all devices");
	if (c->import && c->device.n && !pl_tprog_is_name(c->device.v[0]))
		return pl_fail(
			err, PL_EUSAGE,
			"--device=%s: the name of a machine has letters, digits, _ and ., and "
			"begins with no digit",
			c->device.v[0]);
	return 0;
}

/* ---- tuning logs ----------------------------------------------------------------------------- */

static void say(const struct work *w, const char *path, uint64_t n, const char *what,
		const char *first)
{
	if (n)
		pl_say(&w->c->c.log, PL_LOG_WARN, "%s: left out: %s (%llu)%s%s", path, what,
		       (unsigned long long)n, *first ? "; the first: " : "", first);
}

/* The network that a log is named after: "logs/bert.json" is of bert. */
static const char *model_of(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	snprintf(out, size, "%.*s", (int)strcspn(name, "."), strcmp(name, "-") ? name : "");
	return out;
}

/* Writes the programs of a log; their number to *n. */
static int import_log(const struct work *w, const char *path, struct pl_writer *to, uint64_t *n,
		      struct pl_err *err)
{
	char model[100];
	const struct pl_autotvm_opts o = { .device = w->c->device.n ? w->c->device.v[0] : NULL,
					   .model = model_of(path, model, sizeof(model)),
					   .strict = w->c->c.strict };
	struct pl_in *in = pl_in_open_any(path, err);
	struct pl_autotvm *log = NULL;
	int more = 1;

	if (!in || pl_autotvm_new(in, &o, &log, err) < 0) {
		pl_in_close(in);
		return err->code;
	}
	while (more > 0) {
		struct pl_tprog p = { .name = NULL };

		more = pl_autotvm_next(log, &p, err);
		if (more > 0)
			pl_tprog_write(&p, to);
		pl_tprog_fini(&p);
	}
	if (more == 0) {
		const struct pl_autotvm_stats *s = pl_autotvm_stats(log);

		say(w, path, s->failed, "measurements that failed", "");
		say(w, path, s->other, "measurements of which the programs are not known",
		    s->first_other);
		say(w, path, s->bad, "lines that are no measurements", s->first_bad);
		*n += s->programs;
	}
	pl_autotvm_free(log);
	pl_in_close(in);
	return more;
}

static int import_logs(const struct work *w, struct pl_writer *to, struct pl_err *err)
{
	uint64_t n = 0;

	pl_tprog_write_header(to);
	for (int i = 0; i < w->argc; i++)
		PL_CHECK(import_log(w, w->argv[i], to, &n, err));
	return n ? 0 : pl_fail(err, PL_EDATA, "no program in these logs");
}

/* ---- sources --------------------------------------------------------------------------------- */

/* Functions p0, p1 ..., each below a line that names its program. */
static int write_file(const struct work *w, const char *path, struct pl_writer *to, size_t *number,
		      struct pl_err *err)
{
	struct pl_in *in = pl_in_open_any(path, err);
	struct pl_tprog_reader *r = NULL;
	int more = in ? pl_tprog_reader_new(in, &r, err) : err->code;

	while (more >= 0) {
		struct pl_tprog p = { .name = NULL };
		char name[32];

		more = pl_tprog_next(r, &p, err);
		if (more > 0) {
			snprintf(name, sizeof(name), "p%zu", (*number)++);
			pl_write_format(to, "\n/* %s: program %s%s%s */\n", name, p.name,
					*p.model ? " of " : "", p.model);
			if (w->c->to == OUT_C)
				pl_tprog_write_c(&p, name, to);
			else
				more = pl_tprog_write_cuda(&p, name, to, err) < 0 ? err->code : 1;
		}
		pl_tprog_fini(&p);
		if (more == 0)
			break;
	}
	pl_tprog_reader_free(r);
	pl_in_close(in);
	return more < 0 ? more : 0;
}

static int write_sources(const struct work *w, struct pl_writer *to, struct pl_err *err)
{
	size_t number = 0;

	if (w->c->to == OUT_C)
		pl_tprog_write_c_header(to);
	else
		pl_write_text(to, "#include <cuda_runtime.h>\n");
	for (int i = 0; i < w->argc; i++)
		PL_CHECK(write_file(w, w->argv[i], to, &number, err));
	return 0;
}

int write_text(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer to;
	int rc;

	pl_write_init(&to, out, 0);
	rc = w->c->import ? import_logs(w, &to, err) : write_sources(w, &to, err);
	if (rc >= 0)
		rc = pl_write_end(&to, err);
	pl_write_fini(&to);
	return rc;
}
