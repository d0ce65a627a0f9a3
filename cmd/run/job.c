/* What to do: the job with what the options change of it, its plan, its model and its data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

/* ---- options that change the job ------------------------------------------------------------- */

/* "key=value,key=value": calls set() for each. */
static int each_pair(const char *spec, const char *option,
		     int (*set)(void *arg, const char *key, const char *value, struct pl_err *err),
		     void *arg, struct pl_err *err)
{
	for (const char *s = spec; *s;) {
		size_t n = strcspn(s, ",");
		char pair[128], *eq;
		int rc;

		snprintf(pair, sizeof(pair), "%.*s", (int)pl_min_size(n, sizeof(pair) - 1), s);
		eq = strchr(pair, '=');
		if (!eq)
			return pl_fail(err, PL_EUSAGE, "--%s: \"%s\" is no KEY=VALUE", option,
				       pair);
		*eq = '\0';
		rc = set(arg, pair, eq + 1, err);
		if (rc < 0)
			return rc;
		s += n + (s[n] == ',');
	}
	return 0;
}

static int set_link(void *arg, const char *key, const char *value, struct pl_err *err)
{
	struct pl_job_link *l = arg;
	int64_t rank;
	int rc;

	if (!strcmp(key, "rate"))
		return pl_job_rate(value, &l->bytes_per_ns, err);
	if (!strcmp(key, "latency"))
		return pl_job_time(value, &l->latency_ns, err);
	if (strcmp(key, "from") && strcmp(key, "to"))
		return pl_fail(err, PL_EUSAGE,
			       "--link: no \"%s\"; these are: rate, latency, from, to", key);
	rc = pl_parse_int(value, &rank, err);
	if (rc < 0)
		return rc;
	if (rank < 0 || rank > 1 << 20)
		return pl_fail(err, PL_EUSAGE, "--link: %s=%s is no rank", key, value);
	*(key[0] == 'f' ? &l->from : &l->to) = (int)rank;
	return 0;
}

static int add_link(struct pl_job *j, const char *spec, struct pl_err *err)
{
	struct pl_job_link l = { .from = -1, .to = -1 };
	int rc = each_pair(spec, "link", set_link, &l, err);

	if (rc == 0)
		rc = pl_grow(&j->link, &j->cap_links, j->n_links + 1, sizeof(*j->link), err);
	if (rc == 0)
		j->link[j->n_links++] = l;
	return rc;
}

/* "3:20" or "*:x1.5" */
static int add_pace(struct pl_job *j, const char *spec, struct pl_err *err)
{
	struct pl_job_pace p = { .rank = -1, .factor = 1 };
	const char *colon = strchr(spec, ':');
	char rank[24];
	int64_t r = -1;
	double v;
	int rc;

	if (!colon)
		return pl_fail(err, PL_EUSAGE, "--pace: \"%s\" is neither RANK:MS nor RANK:xFACTOR",
			       spec);
	snprintf(rank, sizeof(rank), "%.*s", (int)pl_min_size((size_t)(colon - spec), 20), spec);
	if (strcmp(rank, "*"))
		PL_TRY(pl_parse_int(rank, &r, err));
	PL_TRY(pl_parse_real(colon[1] == 'x' ? colon + 2 : colon + 1, &v, err));
	if (r < -1 || r > 1 << 20 || !(v >= 0) || v > 1e6 || (colon[1] == 'x' && v < 1))
		return pl_fail(err, PL_EUSAGE, "--pace: \"%s\" is out of range", spec);
	p.rank = (int)r;
	*(colon[1] == 'x' ? &p.factor : &p.ms) = v;
	PL_TRY(pl_grow(&j->pace, &j->cap_paces, j->n_paces + 1, sizeof(*j->pace), err));
	j->pace[j->n_paces++] = p;
out:
	return rc;
}

int options_of_links(const struct config *c, struct pl_job *j, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < c->link.n; i++)
		rc = add_link(j, c->link.v[i], err);
	return rc;
}

static int apply_options(const struct config *c, struct pl_job *j, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < c->set.n; i++) {
		rc = pl_job_set(j, c->set.v[i], err);
		if (rc < 0) {
			pl_wrap(err, "--set %s", c->set.v[i]);
			return rc;
		}
	}
	PL_TRY(options_of_links(c, j, err));
	for (size_t i = 0; i < c->pace.n; i++)
		PL_TRY(add_pace(j, c->pace.v[i], err));
	if (c->ranks)
		j->ranks = c->ranks;
	if (c->c.seed != INT64_MIN)
		j->seed = c->c.seed;
	if (c->c.threads != 1)
		j->threads =
			c->c.threads ? c->c.threads : pl_max_i64(1, sysconf(_SC_NPROCESSORS_ONLN));
	if (c->checkpoint)
		j->checkpoint = c->checkpoint;
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

static int read_plan(const char *path, struct pl_plan *p, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_plan_read(in, pl_in_name(in), p, err);
	pl_in_close(in);
	return rc;
}

/* A preset, or a file: by its name as it stands, or beside the job. */
static int read_model(struct work *w, const char *job, struct pl_err *err)
{
	const char *slash = strrchr(job, '/'), *model = w->job.model;
	char beside[1024];

	snprintf(beside, sizeof(beside), "%.*s%s", slash ? (int)(slash - job + 1) : 0, job, model);
	if (slash && !pl_model_is_preset(model) && access(model, R_OK) && !access(beside, R_OK))
		model = beside;
	return pl_model_parse(model, &w->model, err);
}

int read_work(const struct config *c, const char *path, struct work *w, struct pl_err *err)
{
	struct pl_job *j = &w->job;
	int rc;

	w->c = c;
	pl_job_init(j);
	pl_plan_init(&w->plan);
	PL_TRY(read_job(c, path, j, err));
	PL_TRY(pl_job_check(j, err));
	if (c->plan) {
		PL_TRY(read_plan(c->plan, &w->plan, err));
		w->planned = true;
	}
	PL_TRY(read_model(w, path, err));
	PL_TRY(pl_dataset_open(j->data, (uint64_t)j->seed, &w->data, err));
	if (w->data.x && j->split > 0)
		pl_dataset_normalise(&w->data,
				     (size_t)((double)w->data.n * fmin(j->split, 1) + 0.5));
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
