/* What to do: the job with what the options change of it, its plan, its model and its data. */
#include "program.h"

/* ---- options that change the job ------------------------------------------------------------- */

/* An option that is short for a statement: "link rate=1Gbit,latency=200us". */
static int set_as(struct pl_job *j, const char *key, const char *value, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "%s %s", key, value));
	PL_TRY(pl_buf_put(&b, "", 1, err));
	rc = pl_job_set(j, (const char *)b.p, err);
	if (rc < 0)
		pl_wrap(err, "--%s %s", key, value);
out:
	pl_buf_fini(&b);
	return rc;
}

/* Sets `key` of the job for each value of an option. */
static int set_all_as(struct pl_job *j, const char *key, const struct pl_list *l,
		      struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->n; i++)
		rc = set_as(j, key, l->v[i], err);
	return rc;
}

int64_t count_ranks(const struct config *c, const struct pl_job *j)
{
	/* a launcher counts servers, too */
	bool servers = c->launch.launcher && !strcmp(j->engine, "ps") && c->ranks > j->servers;

	return c->ranks - (servers ? j->servers : 0);
}

int apply_options(const struct config *c, struct pl_job *j, struct pl_err *err)
{
	size_t n;
	int rc = 0;

	for (size_t i = 0; i < c->set.n; i++) {
		if (pl_lang_row(&pl_job_schema, c->set.v[i]))
			return pl_fail(err, PL_EUSAGE,
				       "--set %s: the value is missing; write: --set %s=VALUE "
				       "(--help=%s explains it)",
				       c->set.v[i], c->set.v[i], c->set.v[i]);
		rc = pl_job_set(j, c->set.v[i], err);
		if (rc < 0)
			return pl_wrap(err, "--set %s", c->set.v[i]);
	}
	PL_TRY(set_all_as(j, "link", &c->link, err));
	PL_TRY(set_all_as(j, "pace", &c->pace, err));
	if (c->transport)
		PL_TRY(set_as(j, "transport", c->transport, err));
	if (c->device)
		PL_TRY(set_as(j, "device", c->device, err));
	if (c->ranks)
		j->ranks = count_ranks(c, j);
	if (c->speeds)
		PL_TRY(apply_speeds(c, j, err));
	if (c->target_loss > 0)
		j->target_loss = c->target_loss;
	if (c->rates && !c->policies)
		PL_TRY(pl_parse_reals(c->rates, false, &j->lr, 1, &n, err) < 0
			       ? pl_wrap(err, "--lr")
			       : 0);
	if (c->c.seed != INT64_MIN)
		j->seed = c->c.seed;
	if (c->threads >= 0)
		j->threads = c->threads ? c->threads : pl_processors();
	if (c->checkpoint)
		j->checkpoint = c->checkpoint;
	if (c->checkpoint_best)
		j->checkpoint_best = c->checkpoint_best;
	if (c->resume)
		j->resume = c->resume;
out:
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_job(const struct config *c, const char *path, struct pl_job *j, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_job_read(in, pl_in_name(in), j, err);
	pl_in_close(in);
	return rc < 0 ? rc : apply_options(c, j, err);
}

/* The data of a statement at line, column (0: of an option) into *d. */
static int open_data(const struct pl_job *j, const char *job, const char *key, const char *spec,
		     uint32_t line, uint32_t column, struct pl_dataset *d, struct pl_err *err)
{
	int rc = pl_dataset_open(spec, (uint64_t)j->seed, d, err);

	if (rc >= 0)
		return 0;
	if (line && err->code == PL_EUSAGE)
		err->code = PL_EDATA; /* it is not the command line that is wrong */
	return line ? pl_wrap(err, "%s: line %u, column %u: %s %.200s", job, line, column, key,
			      spec)
		    : pl_wrap(err, "--set %s=%.200s", key, spec);
}

/* The samples, those that are held out behind those to train on, scaled. */
static int read_data(const char *name, struct work *w, struct pl_err *err)
{
	const struct pl_job *j = &w->job;
	struct pl_dataset held;
	int rc;

	PL_CHECK(open_data(j, name, "data", j->data, j->data_line, j->data_column, &w->data, err));
	if (j->eval_data) {
		PL_CHECK(open_data(j, name, "eval-data", j->eval_data, j->eval_line, j->eval_column,
				   &held, err));
		rc = pl_dataset_join(&w->data, &held, j->eval_data, err);
		pl_dataset_fini(&held);
		if (rc < 0)
			return j->eval_line ? pl_wrap(err, "%s: line %u, column %u: eval-data",
						      name, j->eval_line, j->eval_column)
					    : pl_wrap(err, "--set eval-data");
	}
	pl_dataset_normalise(&w->data, pl_dataset_train(&w->data, j->split));
	return 0;
}

int read_work(const struct config *c, const char *path, struct work *w, struct pl_err *err)
{
	const char *name = strcmp(path, "-") ? path : "stdin";
	struct pl_job *j = &w->job;
	int rc;

	w->c = c;
	pl_job_init(j);
	pl_plan_init(&w->plan);
	PL_TRY(read_job(c, path, j, err));
	PL_TRY(pl_job_check(j, err) < 0 ? pl_wrap(err, "%s", name) : 0);
	if (c->plan) {
		PL_TRY(pl_plan_read_file(c->plan, &w->plan, err));
		w->planned = true;
	}
	PL_TRY(pl_job_model(j, path, &w->model, err));
	if (!c->layers)
		rc = read_data(name, w, err);
out:
	return rc;
}

void work_fini(struct work *w)
{
	pl_dataset_fini(&w->data);
	pl_model_fini(&w->model);
	pl_plan_fini(&w->plan);
	pl_job_fini(&w->job);
}
