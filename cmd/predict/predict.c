/*
 * predict - cost models of operations: learn them from tables of measurements, apply them to
 * operations and devices that nobody measured, and say how wrong they are.
 */
#include <math.h>

#include "core/progress.h"
#include "core/words.h"
#include "program.h"

#define HOST_US_MAX 1e6
#define AT(m)	    offsetof(struct config, m)

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	{ 0, "train", NULL, "learn a model from the tables, write it to the output", PL_OPT_FLAG,
	  AT(train), NULL },
	{ 'm', "model", "FILE", "predict with the model FILE", PL_OPT_STR, AT(model), NULL },
	{ 0, "adapt", "TABLE",
	  "adapt the model to the device of TABLE, write it to the output (with -m); repeatable",
	  PL_OPT_LIST, AT(adapt), NULL },
	{ 0, "target", "FILE",
	  "with --adapt, also the tensor programs of FILE, measured or not, are like those to come",
	  PL_OPT_STR, AT(target), NULL },
	{ 0, "eval", NULL, "compare the model with the measurements of the tables (with -m)",
	  PL_OPT_FLAG, AT(eval), NULL },
	{ 0, "cross", "WHAT",
	  "compare predictions by models that have not seen the device, model, operation or shape",
	  PL_OPT_CHOICE, AT(cross), "no|op|device|model|shape" },
	{ 0, "explain", NULL,
	  "say what makes each time, or without a table what matters to the model", PL_OPT_FLAG,
	  AT(explain), NULL },
	{ 0, "measure", "FILE",
	  "measure here tensor programs: of the operations in FILE by random schedules, or those "
	  "that FILE has",
	  PL_OPT_STR, AT(measure), NULL },
	{ 0, "programs", "N", "measure N programs of each operation (default 100)", PL_OPT_INT,
	  AT(programs), NULL },
	{ 0, "choose", "N",
	  "write the N tensor programs that stand for all, to be measured on another device",
	  PL_OPT_INT, AT(choose), NULL },
	{ 0, "import", "FORMAT",
	  "make tensor programs of tuning logs: autotvm (of TVM; dense and batch_matmul)",
	  PL_OPT_CHOICE, AT(import), "no|autotvm" },
	{ 0, "strict", NULL, "with --import: refuse what is not known instead of leaving it out",
	  PL_OPT_FLAG, PL_COMMON(strict), NULL },
	PL_OPTS_HEADING("tables"),
	{ 0, "schema", "NAME",
	  "read tables by the schema neusight, vidur, mist or run, or by that of a file; or tensor "
	  "programs: tprog (default: what the model was made with)",
	  PL_OPT_STR, AT(schema), NULL },
	{ 0, "devices", "FOLDER", "take data sheets from FOLDER (NAME.json); repeatable",
	  PL_OPT_LIST, AT(folder), NULL },
	{ 0, "device", "NAME",
	  "the tables after it are of the device NAME, whatever they say; repeatable", PL_OPT_LIST,
	  AT(device), NULL },
	{ 0, "unit", "UNIT", "latencies are in ns, us, ms or s, whatever the schema says",
	  PL_OPT_STR, AT(unit), NULL },
	PL_OPTS_HEADING("models"),
	{ 0, "learner", "NAME",
	  "learn by boosted trees, or by what they must beat: the nearest shapes, trees on raw "
	  "shapes, nothing (roofline); tensor programs also by a network (net), or both",
	  PL_OPT_CHOICE, AT(learner), LEARNERS },
	{ 0, "intervals", NULL, "find intervals (default; --no-intervals is several times faster)",
	  PL_OPT_FLAG, AT(intervals), NULL },
	{ 0, "tune", "N",
	  "try N settings of the network on models left out and take the best (with --train); "
	  "alone: "
	  "write the trials",
	  PL_OPT_INT, AT(tune), NULL },
	{ 0, "discrepancy", "WEIGHT",
	  "with --adapt, weight of the term that keeps the network's latent vectors of the target "
	  "where those of the source were (default 1; 0: none)",
	  PL_OPT_REAL, AT(discrepancy), NULL },
	PL_OPTS_HEADING("output"),
	{ 'O', "output-format", "FORMAT",
	  "write errors as text, csv or json; predictions are csv, or a graph; tensor programs as "
	  "sources: c or cuda",
	  PL_OPT_CHOICE, AT(to), "auto|csv|json|text|graph|c|cuda" },
	{ 0, "host-us", "US",
	  "with -O graph: the host takes US to launch an operation (default: what the data sheet "
	  "says; else 40 is assumed, of a GPU; 0: nothing)",
	  PL_OPT_REAL, AT(host_us), NULL },
	PL_OPTS_OUTPUT,
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	PL_OPTS_THREADS,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->intervals = true;
	c->programs = PROGRAMS_UNSET;
	c->choose = -1;
	c->discrepancy = NAN;
	c->host_us = NAN;
}

bool shows(const struct config *c)
{
	return !c->train && !c->cross && !c->model && !c->eval && !c->adapt.n && !c->explain &&
	       !c->measure && !c->tune && c->choose < 0 && !is_of_text(c);
}

/* Options that mean nothing without another one. */
static int check_pairs(const struct config *c, struct pl_err *err)
{
	bool errors = c->eval || c->cross;

	if (!isnan(c->host_us) && (c->to != OUT_GRAPH || c->explain))
		return pl_fail(err, PL_EUSAGE, "--host-us goes with -O graph");
	if (!isnan(c->host_us) && !(c->host_us >= 0 && c->host_us <= HOST_US_MAX))
		return pl_fail(err, PL_EUSAGE, "--host-us: %g is not 0 to %g", c->host_us,
			       HOST_US_MAX);
	if (c->programs != PROGRAMS_UNSET && !c->measure)
		return pl_fail(err, PL_EUSAGE, "--programs goes with --measure");
	if (!isnan(c->discrepancy) && (!c->adapt.n || !is_of_programs(c)))
		return pl_fail(
			err, PL_EUSAGE,
			"--discrepancy goes with --adapt of tensor programs (--schema=tprog)");
	if (!c->intervals && !c->train && !c->cross && !c->tune)
		return pl_fail(err, PL_EUSAGE,
			       "--no-intervals goes with --train, --tune and --cross, which find "
			       "intervals; "
			       "a model that was trained with it gives none");
	if (c->unit && !c->train && !c->adapt.n && !errors && !is_of_programs(c))
		return pl_fail(err, PL_EUSAGE,
			       "--unit is that of measured latencies; what is asked for reads no "
			       "latency");
	if (c->learner && !c->train && !c->cross && !c->tune)
		return pl_fail(err, PL_EUSAGE,
			       "--learner goes with --train and --cross; here nothing is learned");
	if (c->to == OUT_CSV && (c->train || c->adapt.n || c->explain || c->measure || shows(c)))
		return pl_fail(err, PL_EUSAGE, "-O csv is for predictions and errors");
	return 0;
}

/* A model that is shown reads no table. */
static int check_shown(const struct config *c, int argc, struct pl_err *err)
{
	const char *option = c->device.n   ? "--device"
			     : c->folder.n ? "--devices"
			     : c->schema   ? "--schema"
					   : NULL;

	if (!option || is_of_programs(c))
		return 0;
	if (shows(c) && argc <= 1)
		return pl_fail(err, PL_EUSAGE,
			       "without -m, --train and --cross the model that is named is shown, "
			       "and no table is read: leave out %s",
			       option);
	if (c->explain && !argc && c->to != OUT_GRAPH)
		return pl_fail(err, PL_EUSAGE,
			       "--explain without a table shows the model: leave out %s, or name "
			       "the table (-: standard input)",
			       option);
	return 0;
}

static int check(const struct config *c, int argc, char **argv, struct pl_err *err)
{
	int verbs = c->train + (c->cross > 0) + c->eval + (c->adapt.n > 0) + c->explain;
	bool errors = c->eval || c->cross;

	if (is_of_text(c)) {
		PL_CHECK(check_pairs(c, err));
		return check_text(c, err);
	}
	if (c->c.strict)
		return pl_fail(err, PL_EUSAGE, "--strict goes with --import");
	if (c->measure && (verbs || c->model || argc))
		return pl_fail(err, PL_EUSAGE,
			       "--measure makes programs of the file that it names, and reads no "
			       "other one");
	if (c->measure && (c->folder.n || (c->schema && !is_of_programs(c))))
		return pl_fail(err, PL_EUSAGE, "--measure needs no %s: leave it out",
			       c->folder.n ? "data sheets (--devices)" : "--schema");
	if (c->programs != PROGRAMS_UNSET && (c->programs < 1 || c->programs > 1000000))
		return pl_fail(err, PL_EUSAGE, "--programs: %lld is not 1 to 1000000",
			       (long long)c->programs);
	PL_CHECK(check_pairs(c, err));
	PL_CHECK(check_programs(c, argc, argv, err));
	PL_CHECK(check_shown(c, argc, err));
	if (verbs > 1)
		return pl_fail(
			err, PL_EUSAGE,
			"--train, --adapt, --eval, --cross and --explain exclude each other");
	if ((c->train || c->cross) && c->model)
		return pl_fail(err, PL_EUSAGE, "%s makes a model of its own: leave out -m",
			       c->train ? "--train" : "--cross");
	if (!c->train && !c->cross && !c->model && !c->measure && !c->tune && c->choose < 0 &&
	    (!shows(c) || argc > 1))
		return pl_fail(err, PL_EUSAGE,
			       "-m FILE names the model; --train makes one from tables");
	if ((c->train || c->cross) && !c->schema)
		return pl_fail(
			err, PL_EUSAGE,
			"--schema=neusight, vidur, mist, run or FILE says how to read the tables");
	if ((c->train || c->cross) && !c->folder.n && !is_of_programs(c))
		return pl_fail(
			err, PL_EUSAGE,
			"--devices=FOLDER says where the data sheets of the devices are; "
			"that of this machine is made by: run --bench machine -o FOLDER/NAME.json");
	if (c->adapt.n && argc)
		return pl_fail(err, PL_EUSAGE, "each --adapt takes one table: write --adapt %s",
			       argv[0]);
	if (c->to == OUT_GRAPH && (verbs > c->explain || shows(c) || argc > 1))
		return pl_fail(err, PL_EUSAGE, "-O graph goes with -m and one graph");
	if (c->to == OUT_GRAPH && c->schema && !is_of_programs(c))
		return pl_fail(err, PL_EUSAGE,
			       "--schema says how to read tables, and -O graph reads a graph: "
			       "leave it out");
	if (c->to && !errors && c->to != OUT_CSV && c->to != OUT_GRAPH)
		return pl_fail(err, PL_EUSAGE, "predictions are written as csv, or as a graph");
	if (c->unit && !(pl_schema_unit(c->unit) > 0))
		return pl_fail(err, PL_EUSAGE, "--unit: \"%s\" is not ns, us, ms or s", c->unit);
	return 0;
}

/* ---- what the command line names ------------------------------------------------------------- */

static int read_model(struct work *w, struct pl_err *err)
{
	struct pl_in *in;
	int rc = open_model(w, &in, err);

	if (rc >= 0)
		rc = pl_kernel_model_read(in, &w->model, &w->schema, err);
	pl_in_close(in);
	return rc;
}

static int read_devices(struct work *w, struct pl_err *err)
{
	for (size_t i = 0; i < w->c->folder.n; i++)
		PL_CHECK(pl_device_read(&w->devices, w->c->folder.v[i], err));
	return w->model ? pl_device_add_measured(&w->devices, pl_kernel_model_devices(w->model),
						 &w->c->c.log, err)
			: 0;
}

static int open_work(struct work *w, struct pl_err *err)
{
	const struct config *c = w->c;

	w->pool = pl_pool_new((int)c->c.threads, err);
	if (!w->pool)
		return err->code;
	if (is_of_programs(c))
		return 0;
	if (c->model)
		PL_CHECK(read_model(w, err));
	if (c->schema) {
		pl_schema_free(w->schema);
		PL_CHECK(pl_schema_open(c->schema, &w->schema, err));
	}
	if (c->unit)
		w->unit_ns = pl_schema_unit(c->unit);
	PL_CHECK(read_devices(w, err));
	return find_table_devices(w, err);
}

static void close_work(struct work *w)
{
	pl_kernel_model_free(w->model);
	pl_schema_free(w->schema);
	pl_device_fini(&w->devices);
	pl_pool_free(w->pool);
	pl_free(w->device);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static struct pl_kernel_fit_opts fit_opts(const struct work *w)
{
	return (struct pl_kernel_fit_opts){ .learner = pl_words_name(PL_KERNEL_LEARNERS("\0"),
								     (unsigned)w->c->learner),
					    .intervals = w->c->intervals,
					    .seed = (uint64_t)w->c->c.seed,
					    .pool = w->pool };
}

static int write_model(const struct work *w, const struct pl_kernel_model *m, struct pl_out *out,
		       struct pl_err *err)
{
	struct pl_buf line = { 0 };
	int rc = pl_provenance(&w->c->c, &line, err);

	if (rc >= 0)
		rc = pl_kernel_model_write(m, w->schema, (const char *)line.p, out,
					   (int)w->c->c.level, err);
	pl_buf_fini(&line);
	return rc;
}

static int train(const struct work *w, struct pl_samples *s, struct pl_out *out, struct pl_err *err)
{
	const struct pl_kernel_fit_opts o = fit_opts(w);
	struct pl_kernel_model *m;
	int rc;

	PL_CHECK(read_tables(w, s, err));
	pl_progress("learning from %zu measurements", s->n);
	PL_CHECK(pl_kernel_fit(s, NULL, &o, &m, err));
	rc = write_model(w, m, out, err);
	pl_kernel_model_free(m);
	return rc;
}

static int adapt(const struct work *w, struct pl_samples *s, struct pl_out *out, struct pl_err *err)
{
	const struct pl_list *d = &w->c->device;

	for (size_t i = 0; i < w->c->adapt.n; i++)
		PL_CHECK(read_table(w, w->c->adapt.v[i], d->n ? d->v[d->n - 1] : NULL, s, err));
	if (!s->n)
		return pl_fail(err, PL_EDATA, "%s%s no measurement", w->c->adapt.v[0],
			       w->c->adapt.n > 1 ? " and the other tables hold" : " holds");
	PL_CHECK(pl_kernel_adapt(w->model, s, err));
	return write_model(w, w->model, out, err);
}

static int errors(const struct work *w, struct pl_samples *s, struct pl_out *out,
		  struct pl_err *err)
{
	const struct pl_kernel_fit_opts o = fit_opts(w);
	struct pl_kernel_time *t = NULL;
	int rc;

	PL_CHECK(read_tables(w, s, err));
	PL_CHECK(pl_alloc(&t, s->n + 1, sizeof(*t), err));
	if (w->c->cross)
		rc = pl_kernel_cross(s, (enum pl_eval_by)w->c->cross, &o, t, err);
	else
		rc = pl_kernel_apply(w->model, s, s->v, s->n, t, err);
	if (rc >= 0)
		rc = write_errors(w, s, t, out, err);
	pl_free(t);
	return rc;
}

static int explain_model(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer to;
	int rc;

	pl_write_init(&to, out, 0);
	pl_kernel_explain_model(w->model, &to);
	rc = pl_write_end(&to, err);
	pl_write_fini(&to);
	return rc;
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;
	char dash[] = "-", *standard_input[] = { dash };
	struct work w = { .c = c, .argc = argc ? argc : 1, .argv = argc ? argv : standard_input };
	struct pl_samples s = { 0 };
	struct pl_out *out = NULL;
	int rc;

	find_schema(&w, c);
	PL_TRY(check(c, argc, argv, err));
	/* before the work: what cannot be written should be known at once */
	out = pl_out_open(c->c.output,
			  c->train || c->adapt.n || (c->to == OUT_GRAPH && !c->explain), err);
	PL_TRY(out ? 0 : err->code);
	if (c->measure) {
		w.device_name = c->device.n ? c->device.v[0] : "this";
		rc = measure_programs(&w, out, err);
		goto out;
	}
	if (is_of_text(c)) {
		rc = write_text(&w, out, err);
		goto out;
	}
	if (shows(c) && !is_of_programs(c)) {
		PL_TRY(read_model(&w, err));
		PL_TRY(explain_model(&w, out, err));
		goto out;
	}
	PL_TRY(open_work(&w, err));
	if (is_of_programs(c))
		rc = use_programs(&w, argc, out, err);
	else if (c->train)
		rc = train(&w, &s, out, err);
	else if (c->adapt.n)
		rc = adapt(&w, &s, out, err);
	else if (c->eval || c->cross)
		rc = errors(&w, &s, out, err);
	else if (c->explain && !argc && c->to != OUT_GRAPH)
		rc = explain_model(&w, out, err);
	else if (c->to == OUT_GRAPH)
		rc = fill_graph(&w, out, err);
	else
		rc = answer_queries(&w, out, err);
out:
	pl_samples_fini(&s);
	close_work(&w);
	pl_in_close(w.in);
	return pl_out_finish(out, rc, err);
}

static const struct pl_lang_schema *const languages[] = { &pl_schema_schema, NULL };

const struct pl_cmd pl_command = {
	.name = "predict",
	.synopsis = "[OPTION]... [TABLE... | MODEL]",
	.summary = "Predict how long operations take on devices that nobody measured.",
	.details = "A table is CSV, compressed or not. With -m alone: add latency_ns, lo_ns, hi_ns "
		   "(an interval of 90 %) and flag to its rows.\n"
		   "Without -m: show the model that is named. Without a file: read standard input.",
	.examples = "predict --train --schema=neusight --devices=sheets kernels.csv -o k.model\n"
		    "predict -m k.model --devices=sheets --device=H100 queries.csv\n"
		    "predict --cross device --schema=neusight --devices=sheets kernels.csv",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.languages = languages,
	.help = pl_lang_help,
	.run = run,
};
