/* Cost models of tensor programs: trained, adapted, applied, compared (--schema=tprog). */
#include <math.h>

#include "core/progress.h"
#include "core/sort.h"
#include "kernel/model.h"
#include "program.h"
#include "tprog/cost.h"

#define TRIALS	    10000 /* at most */
#define DISCREPANCY 1	  /* unless --discrepancy says otherwise */

struct models {
	const struct work *w;
	struct pl_tprog_set set;
	struct pl_tprog_model *model; /* NULL: none */
	struct pl_tprog_time *t;      /* [set.n] */
};

bool is_of_programs(const struct config *c)
{
	return c->schema && !strcmp(c->schema, "tprog");
}

static const char *path_of_model(const struct work *w)
{
	return w->c->model ? w->c->model : shows(w->c) && w->argc == 1 ? w->argv[0] : NULL;
}

void find_schema(struct work *w, struct config *c)
{
	const char *path = path_of_model(w);
	struct pl_err ignore = { 0 };

	w->in = path ? pl_in_open(path, &ignore) : NULL;
	if (w->in && !c->schema && pl_tprog_model_is(w->in))
		c->schema = "tprog";
}

int open_model(struct work *w, struct pl_in **in, struct pl_err *err)
{
	*in = w->in ? w->in : pl_in_open(path_of_model(w), err);
	w->in = NULL;
	if (!*in)
		return err->code;
	if (is_of_programs(w->c) ? !pl_kernel_model_is(*in) : !pl_tprog_model_is(*in))
		return 0;
	pl_fail(err, PL_EDATA, "%s: a model of %s: leave out --schema=%s", pl_in_name(*in),
		is_of_programs(w->c) ? "operations, not of tensor programs" : "tensor programs",
		w->c->schema ? w->c->schema : "");
	pl_in_close(*in);
	*in = NULL;
	return err->code;
}

/* In the order of --learner; trees need the vectors anyway, so there is no "raw". */
static enum pl_tprog_learner learner_of(const struct config *c)
{
	static const uint8_t v[] = { PL_TPROG_TREES, PL_TPROG_NEAREST, PL_TPROG_TREES,
				     PL_TPROG_WORK,  PL_TPROG_NET,     PL_TPROG_BOTH };

	return v[c->learner];
}

/* Options of the network. */
static int check_network(const struct config *c, struct pl_err *err)
{
	bool other = c->cross || c->model || c->measure || c->adapt.n || c->eval || c->explain ||
		     c->choose >= 0;

	if (c->tune < 0 || c->tune > TRIALS)
		return pl_fail(err, PL_EUSAGE, "--tune: %lld is not 1 to %d", (long long)c->tune,
			       TRIALS);
	if (c->tune && (c->learner < LEARNER_NET || other))
		return pl_fail(err, PL_EUSAGE,
			       "--tune finds settings of a network: with --train or alone, and "
			       "--learner=net or both");
	if (c->target && !c->adapt.n)
		return pl_fail(err, PL_EUSAGE, "--target goes with --adapt");
	if (!isnan(c->discrepancy) && !(c->discrepancy >= 0 && c->discrepancy <= 1e6))
		return pl_fail(err, PL_EUSAGE, "--discrepancy: %g is not 0 to 1000000",
			       c->discrepancy);
	return 0;
}

int check_programs(const struct config *c, int argc, char **argv, struct pl_err *err)
{
	bool verb = c->train || c->cross || c->model || c->measure || c->adapt.n || c->eval ||
		    c->explain;

	if (c->measure && c->device.n && !pl_tprog_is_name(c->device.v[0]))
		return pl_fail(
			err, PL_EUSAGE,
			"--device=%s: the name of a machine has letters, digits, _ and ., and "
			"begins with no digit",
			c->device.v[0]);
	if (c->learner >= LEARNER_NET && !is_of_programs(c))
		return pl_fail(err, PL_EUSAGE,
			       "--learner=net and both are for tensor programs (--schema=tprog)");
	if (c->choose >= 0 && !is_of_programs(c))
		return pl_fail(err, PL_EUSAGE, "--choose is for tensor programs (--schema=tprog)");
	if ((c->tune || c->target) && !is_of_programs(c))
		return pl_fail(err, PL_EUSAGE,
			       "--tune and --target are for tensor programs (--schema=tprog)");
	if (c->device.n > 1 && (is_of_programs(c) || c->measure))
		return pl_fail(err, PL_EUSAGE,
			       "--device=%s and --device=%s: tensor programs are of one device",
			       c->device.v[0], c->device.v[1]);
	if (!is_of_programs(c))
		return 0;
	if (c->device.n && !c->train && !c->cross && !c->eval && !c->adapt.n && !c->measure &&
	    !c->tune)
		return pl_fail(err, PL_EUSAGE,
			       "--device=%s picks measurements, and here none is read; predictions "
			       "are for the device of the model",
			       c->device.v[0]);
	if (c->folder.n)
		return pl_fail(err, PL_EUSAGE,
			       "--devices: models of tensor programs have no data sheets");
	PL_CHECK(check_network(c, err));
	if (c->choose == 0 || (c->choose > 0 && verb))
		return pl_fail(err, PL_EUSAGE,
			       "--choose takes a number above 0, and nothing else is done");
	if (c->choose > 0 && (!argc || !strcmp(argv[0], "-")))
		return pl_fail(err, PL_EUSAGE, "--choose reads its files twice: name them");
	if (c->cross == PL_EVAL_SHAPE)
		return pl_fail(err, PL_EUSAGE,
			       "programs are left out by --cross device, model or op");
	if (c->train && learner_of(c) >= PL_TPROG_NEAREST)
		return pl_fail(err, PL_EUSAGE,
			       "--train keeps trees or a network: --learner=boost, net or both");
	if (c->to == OUT_GRAPH)
		return pl_fail(err, PL_EUSAGE, "-O graph is not for tensor programs");
	if (c->unit && strcmp(c->unit, "ns") != 0)
		return pl_fail(err, PL_EUSAGE, "--unit=%s: times of tensor programs are in ns",
			       c->unit);
	return 0;
}

/* The programs of one file; `once`: each once, whatever was measured. */
static int read_file(struct models *m, const char *path, bool once, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_any(path, err);
	int rc = in ? pl_tprog_set_read(&m->set, in, once, err) : err->code;

	pl_in_close(in);
	return rc;
}

/* Rows of --device only, if it is there. */
static int keep_device(struct models *m, struct pl_err *err)
{
	const struct pl_list *d = &m->w->c->device;
	const char *name = d->n ? d->v[d->n - 1] : NULL;
	pl_id id = name ? pl_intern_find(&m->set.names, name, strlen(name)) : PL_NONE;
	size_t n = 0;

	for (size_t i = 0; i < m->set.n && name; i++)
		if (m->set.v[i].device == id)
			m->set.v[n++] = m->set.v[i];
	if (name)
		m->set.n = n;
	return m->set.n ? 0
			: pl_fail(err, PL_EDATA, "no program in these files was measured%s%s",
				  name ? " on " : "", name ? name : "");
}

static int read_files(struct models *m, bool once, struct pl_err *err)
{
	for (int i = 0; i < m->w->argc; i++)
		PL_CHECK(read_file(m, m->w->argv[i], once, err));
	if (!once)
		PL_CHECK(keep_device(m, err));
	else if (!m->set.n)
		return pl_fail(err, PL_EDATA, "no program in these files");
	return pl_alloc(&m->t, m->set.n, sizeof(*m->t), err);
}

static struct pl_tprog_fit_opts fit_opts(const struct work *w)
{
	return (struct pl_tprog_fit_opts){ .learner = learner_of(w->c),
					   .intervals = w->c->intervals,
					   .threads = pl_pool_threads(w->pool),
					   .seed = (uint64_t)w->c->c.seed,
					   .pool = w->pool };
}

/* tuned: settings that were found, kept with the provenance; NULL: none. */
static int write_model(const struct models *m, const char *tuned, struct pl_out *out,
		       struct pl_err *err)
{
	const struct pl_common *c = &m->w->c->c;
	struct pl_buf line = { 0 };
	int rc = pl_provenance(c, &line, err);

	if (rc >= 0 && line.n && tuned) {
		line.n--; /* the end of the string */
		rc = pl_buf_printf(&line, err, " # tuned: %s", tuned);
		rc = rc >= 0 ? pl_buf_put(&line, "", 1, err) : rc;
	}
	if (rc >= 0)
		rc = pl_tprog_model_write(m->model, (const char *)line.p, out, (int)c->level, err);
	pl_buf_fini(&line);
	return rc;
}

/* ---- learning -------------------------------------------------------------------------------- */

static void write_trials(const struct pl_tprog_trial *trial, size_t n, struct pl_writer *w)
{
	pl_write_text(w, "trial,layers,heads,width,latent,batch,rate,relative,power,error_ninth,"
			 "error_third,error_all\n");
	for (size_t i = 0; i < n; i++) {
		const struct pl_tprog_settings *s = &trial[i].settings;

		pl_write_format(w, "%zu,%d,%d,%d,%d,%d,%.6g,%.6g,", i, s->layers, s->heads,
				s->width, s->latent, s->batch, s->rate, s->relative);
		if (isnan(s->power))
			pl_write_text(w, "likely");
		else
			pl_write_format(w, "%g", s->power);
		for (int k = 0; k < PL_TPROG_RUNGS; k++)
			pl_write_format(w, k < trial[i].rungs ? ",%.6f" : ",", trial[i].error[k]);
		pl_write_text(w, "\n");
	}
}

static void say_trials(const struct models *m, const struct pl_tprog_trial *trial, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct pl_tprog_trial *t = &trial[i];
		char text[PL_TPROG_SETTINGS_TEXT];

		pl_tprog_settings_text(&t->settings, text, sizeof(text));
		pl_say(&m->w->c->c.log, PL_LOG_NOTE, "trial %zu: %s, error %.2f %% after rung %d",
		       i, text, 100 * t->error[t->rungs - 1], t->rungs);
	}
}

/* The settings to learn with; without a model to learn (no --train), the table of trials. */
static int tune(struct models *m, struct pl_tprog_settings *best, struct pl_out *out,
		struct pl_err *err)
{
	const struct pl_tprog_fit_opts o = fit_opts(m->w);
	size_t n = (size_t)m->w->c->tune, at;
	struct pl_tprog_trial *trial;
	struct pl_writer w = { 0 };
	int rc;

	PL_CHECK(pl_alloc(&trial, n, sizeof(*trial), err));
	PL_TRY(pl_tprog_tune(&m->set, &o, trial, n, &at, err));
	*best = trial[at].settings;
	say_trials(m, trial, n);
	if (!m->w->c->train) {
		pl_write_init(&w, out, 0);
		write_trials(trial, n, &w);
		rc = pl_write_end(&w, err);
	}
out:
	pl_write_fini(&w);
	pl_free(trial);
	return rc;
}

static int train(struct models *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_tprog_fit_opts o = fit_opts(m->w);
	char text[PL_TPROG_SETTINGS_TEXT];
	struct pl_tprog_settings best;

	PL_CHECK(read_files(m, false, err));
	if (m->w->c->tune) {
		PL_CHECK(tune(m, &best, out, err));
		o.settings = &best;
		pl_tprog_settings_text(&best, text, sizeof(text));
	}
	if (!m->w->c->train)
		return 0;
	pl_progress("learning from %zu programs", m->set.n);
	PL_CHECK(pl_tprog_fit(&m->set, &o, &m->model, err));
	return write_model(m, o.settings ? text : NULL, out, err);
}

#define FAR_OFF 31.6 /* the square root of 1000 */

/* Times of the model's own device that are about 1000 times those predicted, or a thousandth, are
 * in another unit. m->t: predicted. */
static int check_unit(const struct models *m, const char *path, struct pl_err *err)
{
	const char *device = pl_tprog_model_device(m->model);
	double *ratio, median = 1;
	size_t n = 0;

	PL_CHECK(pl_alloc(&ratio, m->set.n + 1, sizeof(*ratio), err));
	for (size_t i = 0; i < m->set.n; i++)
		if (!strcmp(m->set.names.str[m->set.v[i].device], device))
			ratio[n++] = m->set.v[i].ns / m->t[i].ns;
	if (n && !m->w->c->unit)
		median = pl_median_double(ratio, n);
	pl_free(ratio);
	if (median < FAR_OFF && median > 1 / FAR_OFF)
		return 0;
	return pl_fail(
		err, PL_EDATA,
		"%s: half of the times on %s are %s %.3g times those that the model of this "
		"device predicts, so they seem to be in another unit than ns; --unit=ns says "
		"that they are in ns",
		path, device, median < 1 ? "below" : "above", median);
}

static int adapt(struct models *m, struct pl_out *out, struct pl_err *err)
{
	const struct config *c = m->w->c;
	struct models target = { .w = m->w };
	struct pl_tprog_adapt_opts o = { .discrepancy = isnan(c->discrepancy) ? DISCREPANCY
									      : c->discrepancy,
					 .seed = (uint64_t)c->c.seed,
					 .pool = m->w->pool };
	double before, after;
	int rc;

	for (size_t i = 0; i < c->adapt.n; i++)
		PL_TRY(read_file(m, c->adapt.v[i], false, err));
	PL_TRY(keep_device(m, err));
	PL_TRY(pl_alloc(&m->t, m->set.n, sizeof(*m->t), err));
	PL_TRY(pl_tprog_apply(m->model, &m->set, m->t, err));
	PL_TRY(check_unit(m, c->adapt.v[0], err));
	if (c->target)
		PL_TRY(read_file(&target, c->target, true, err));
	if (target.set.n)
		o.target = &target.set;
	PL_TRY(pl_tprog_discrepancy(m->model, o.target ? o.target : &m->set, &before, err));
	if (isnan(before) && (c->target || !isnan(c->discrepancy)))
		PL_TRY(pl_fail(err, PL_EUSAGE,
			       "%s is for the network of a model, and %s has none: leave it out",
			       c->target ? "--target" : "--discrepancy", c->model));
	PL_TRY(pl_tprog_adapt(m->model, &m->set, &o, err));
	PL_TRY(pl_tprog_discrepancy(m->model, o.target ? o.target : &m->set, &after, err));
	if (m->set.n < PL_TPROG_INTERVALS && !isnan(m->t[0].lo_ns))
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%s%s %zu program%s of %s; fewer than %d do not show how wrong the adapted "
		       "model is, so its intervals may hold less than nine of ten",
		       c->adapt.v[0], c->adapt.n > 1 ? " and the others have" : " has", m->set.n,
		       m->set.n == 1 ? "" : "s", pl_tprog_model_device(m->model),
		       PL_TPROG_INTERVALS);
	if (!isnan(before))
		pl_say(&c->c.log, PL_LOG_NOTE,
		       "discrepancy of the latent vectors from those of the source: %.3g before, "
		       "%.3g after",
		       before, after);
	rc = write_model(m, NULL, out, err);
out:
	pl_tprog_set_fini(&target.set);
	return rc;
}

/* ---- predictions ----------------------------------------------------------------------------- */

static int answer(struct models *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;
	int rc;

	PL_CHECK(read_files(m, true, err));
	PL_CHECK(pl_tprog_apply(m->model, &m->set, m->t, err));
	pl_write_init(&w, out, 0);
	pl_write_text(&w, "row,program,model,op,latency_ns,lo_ns,hi_ns,flag\n");
	for (size_t i = 0; i < m->set.n; i++) {
		const struct pl_tprog_row *r = &m->set.v[i];
		const struct pl_tprog_time *t = &m->t[i];
		const char *const *name = m->set.names.str;

		pl_write_format(&w, "%zu,%s,%s,%s,%.0f", i + 1, name[r->program], name[r->model],
				name[r->op], t->ns);
		if (isnan(t->lo_ns))
			pl_write_text(&w, ",,");
		else
			pl_write_format(&w, ",%.0f,%.0f", t->lo_ns, t->hi_ns);
		pl_write_format(&w, ",%s\n",
				pl_kernel_flag_word(t->inside ? PL_KERNEL_IN_RANGE
							      : PL_KERNEL_EXTRAPOLATED));
	}
	rc = pl_write_end(&w, err);
	pl_write_fini(&w);
	return rc;
}

/* The model, or, where files are named, each of their programs. */
static int explain(struct models *m, bool programs, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;
	int rc;

	if (programs) {
		PL_CHECK(read_files(m, true, err));
		PL_CHECK(pl_tprog_apply(m->model, &m->set, m->t, err));
	}
	pl_write_init(&w, out, 0);
	if (!programs)
		pl_tprog_explain(m->model, &w);
	for (size_t i = 0; i < m->set.n; i++) {
		if (i)
			pl_write_text(&w, "\n");
		pl_tprog_explain_row(m->model, &m->set, i, &m->t[i], &w);
	}
	rc = pl_write_end(&w, err);
	pl_write_fini(&w);
	return rc;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The measurements as samples, for the tables of errors. */
static int as_samples(const struct pl_tprog_set *set, struct pl_samples *s, struct pl_err *err)
{
	struct pl_devices devices = { .n = 0 };
	int rc = 0;

	for (size_t i = 0; i < set->n && rc >= 0; i++) {
		const struct pl_tprog_row *r = &set->v[i];
		char name[160];
		struct pl_device d = { .name = name, .title = name };
		struct pl_measure m = { .k = { .family = PL_KERNEL_OTHER, .dim = { 1, 1, 1, 1 } },
					.known = true,
					.op = set->names.str[r->op],
					.model = set->names.str[r->model],
					.ns = r->ns };

		snprintf(name, sizeof(name), "%s", set->names.str[r->device]);
		m.device = pl_device_named(&devices, name);
		if (m.device == PL_NONE)
			rc = pl_device_copy(&devices, &d, &m.device, err);
		if (rc >= 0)
			rc = pl_samples_add(s, &m, &devices, err);
	}
	pl_device_fini(&devices);
	return rc;
}

static int cross(struct models *m, struct pl_err *err)
{
	const struct pl_tprog_fit_opts o = fit_opts(m->w);
	pl_id *group;
	int rc;

	PL_CHECK(pl_alloc(&group, m->set.n, sizeof(*group), err));
	for (size_t i = 0; i < m->set.n; i++) {
		const struct pl_tprog_row *r = &m->set.v[i];

		group[i] = m->w->c->cross == PL_EVAL_MODEL    ? r->model
			   : m->w->c->cross == PL_EVAL_DEVICE ? r->device
							      : r->op;
	}
	rc = pl_tprog_cross(&m->set, group, &o, m->t, err);
	pl_free(group);
	return rc;
}

static int errors(struct models *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_samples s = { 0 };
	struct pl_kernel_time *t = NULL;
	int rc;

	PL_TRY(read_files(m, false, err));
	PL_TRY(as_samples(&m->set, &s, err));
	PL_TRY(m->model ? pl_tprog_apply(m->model, &m->set, m->t, err) : cross(m, err));
	PL_TRY(m->model ? check_unit(m, m->w->argv[0], err) : 0);
	PL_TRY(pl_alloc(&t, m->set.n, sizeof(*t), err));
	for (size_t i = 0; i < m->set.n; i++)
		t[i] = (struct pl_kernel_time){ .ns = m->t[i].ns,
						.lo_ns = m->t[i].lo_ns,
						.hi_ns = m->t[i].hi_ns };
	rc = write_errors(m->w, &s, t, out, err);
out:
	pl_samples_fini(&s);
	pl_free(t);
	return rc;
}

/* ---- programs to be measured ----------------------------------------------------------------- */

/* The programs whose numbers, over all files, are chosen[0 .. n), without their times. */
static int write_chosen(const struct models *m, const size_t *chosen, size_t n,
			struct pl_writer *to, struct pl_err *err)
{
	size_t at = 0, next = 0;
	int rc = 0;

	pl_tprog_write_header(to);
	for (int i = 0; i < m->w->argc && rc >= 0; i++) {
		struct pl_in *in = pl_in_open_any(m->w->argv[i], err);
		struct pl_tprog_reader *r = NULL;

		rc = in ? pl_tprog_reader_new(in, &r, err) : err->code;
		while (rc >= 0) {
			struct pl_tprog p = { .name = NULL };

			rc = pl_tprog_next(r, &p, err);
			if (rc > 0 && next < n && chosen[next] == at++) {
				p.n_measured = 0;
				pl_tprog_write(&p, to);
				next++;
			}
			pl_tprog_fini(&p);
			if (rc == 0)
				break;
		}
		pl_tprog_reader_free(r);
		pl_in_close(in);
	}
	return rc;
}

static int choose(struct models *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w = { 0 };
	size_t *chosen = NULL, n = (size_t)m->w->c->choose;
	int rc;

	PL_TRY(read_files(m, true, err));
	PL_TRY(pl_alloc(&chosen, pl_min_size(n, m->set.n), sizeof(*chosen), err));
	PL_TRY(pl_tprog_choose(&m->set, n, (uint64_t)m->w->c->c.seed, chosen, err));
	pl_write_init(&w, out, 0);
	PL_TRY(write_chosen(m, chosen, n, &w, err));
	rc = pl_write_end(&w, err);
out:
	pl_write_fini(&w);
	pl_free(chosen);
	return rc;
}

/* ---------------------------------------------------------------------------------------------- */

static int read_model(struct models *m, struct work *w, struct pl_err *err)
{
	struct pl_in *in;
	int rc = open_model(w, &in, err);

	if (rc >= 0)
		rc = pl_tprog_model_read(in, &m->model, err);
	pl_in_close(in);
	return rc;
}

int use_programs(struct work *w, int argc, struct pl_out *out, struct pl_err *err)
{
	const struct config *c = w->c;
	struct models m = { .w = w };
	int rc = 0;

	if (c->model || shows(c))
		rc = read_model(&m, w, err);
	if (rc < 0)
		goto out;
	if (c->train || c->tune)
		rc = train(&m, out, err);
	else if (c->adapt.n)
		rc = adapt(&m, out, err);
	else if (c->choose > 0)
		rc = choose(&m, out, err);
	else if (c->eval || c->cross)
		rc = errors(&m, out, err);
	else if (c->explain || shows(c))
		rc = explain(&m, c->explain && argc, out, err);
	else
		rc = answer(&m, out, err);
out:
	pl_tprog_model_free(m.model);
	pl_tprog_set_fini(&m.set);
	pl_free(m.t);
	return rc;
}
