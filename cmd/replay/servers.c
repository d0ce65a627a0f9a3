/* The report of a job with a parameter server, which needs no graph: only the speeds of its
 * workers. */
#include <math.h>

#include "io/table.h"
#include "program.h"
#include "sim/servers.h"

static const struct pl_column columns[] = {
	{ "worker", "worker", PL_CELL_I64, 0 },
	{ "steps_per_s", "steps/s", PL_CELL_REAL, 0 },
	{ "steps", "steps", PL_CELL_I64, 0 },
	{ "commits", "commits", PL_CELL_I64, 0 },
	{ "samples_per_s", "samples/s", PL_CELL_REAL, 0 },
	{ "compute_share", "computing", PL_CELL_PERCENT, 0 },
	{ "wait_share", "waiting", PL_CELL_PERCENT, 0 },
	{ "comm_share", "committing", PL_CELL_PERCENT, 0 },
	{ "staleness_mean", "staleness", PL_CELL_REAL, 0 },
	{ "staleness_max", "most", PL_CELL_I64, 0 },
};

static void fill(const struct pl_sim_servers *s, struct pl_table *t)
{
	double ns = fmax(1, (double)s->end_ns);

	for (uint32_t i = 0; i < s->workers; i++) {
		const struct pl_policy_sim_result *r = &s->worker[i];

		/* as run(1) counts: what was committed */
		pl_table_row(t, (int64_t)i, (double)r->seen.steps / ns * 1e9,
			     (int64_t)r->seen.steps, (int64_t)r->seen.commits,
			     (double)r->seen.samples / ns * 1e9, (double)r->computing_ns / ns,
			     (double)r->waiting_ns / ns, (double)r->sending_ns / ns,
			     r->seen.staleness_mean, (int64_t)r->seen.staleness_max);
	}
}

static double samples_per_s(const struct pl_sim_servers *s)
{
	double n = 0;

	for (uint32_t i = 0; i < s->workers; i++)
		n += (double)s->worker[i].seen.samples;
	return n / fmax(1e-9, (double)s->end_ns / 1e9);
}

static void put_json(const struct pl_job *j, const struct pl_sim_servers *s,
		     const struct pl_table *t, struct pl_writer *w)
{
	double seconds = (double)s->end_ns / 1e9;

	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.servers/1");
	pl_json_str(w, "policy", j->policy);
	pl_json_real(w, "seconds", seconds);
	pl_json_int(w, "steps", (int64_t)s->steps);
	pl_json_int(w, "samples", (int64_t)s->samples);
	pl_json_int(w, "commits", (int64_t)s->commits);
	pl_json_real(w, "samples_per_s", samples_per_s(s));
	pl_json_real(w, "heterogeneity", s->heterogeneity);
	pl_json_key(w, "workers");
	pl_table_json(t, w);
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void put_text(const struct pl_job *j, const struct pl_sim_servers *s,
		     const struct pl_table *t, struct pl_writer *w)
{
	pl_write_format(
		w,
		"policy %s, %u workers, H = %.3g: %llu steps of all in %.4g s, %.4g samples/s, "
		"%llu commits\n\n",
		j->policy, s->workers, s->heterogeneity, (unsigned long long)s->steps,
		(double)s->end_ns / 1e9, samples_per_s(s), (unsigned long long)s->commits);
	pl_table_write(t, w, PL_TABLE_TEXT, NULL);
}

static int simulate(const struct config *c, const struct pl_job *j, const struct pl_model *m,
		    struct pl_sim_servers *s, struct pl_err *err)
{
	struct pl_sim_servers_opts o = { .job = j,
					 .steps = j->steps * pl_job_workers(j),
					 .step_ns = c->step_ns,
					 .service_ns = -1 };

	if (j->steps <= 0)
		return pl_fail(err, PL_EDATA,
			       "the job does not say how long it trains; write: steps N");
	PL_CHECK(pl_sim_servers_numbers(j, m, &o.n, err));
	return pl_sim_servers(&o, s, err);
}

/* Options that a graph answers: here they would have no effect. */
static int check_options(const struct config *c, struct pl_err *err)
{
	const struct {
		bool set;
		const char *name;
	} option[] = {
		{ c->to == AS_HTML, "-O html" },
		{ c->to == AS_SVG, "-O svg" },
		{ c->to == AS_JSONL, "-O jsonl" },
		{ c->whatif.n > 0, "--what-if" },
		{ c->whatif_file.n > 0, "--what-if-file" },
		{ c->plan != NULL, "--plan" },
		{ c->timeline != NULL, "--timeline" },
		{ c->topology != NULL, "--topology" },
		{ c->model != NULL, "--model" },
		{ c->expand != 0, "--expand" },
		{ c->table != SEC_ALL, "--table" },
		{ c->per != 0, "--per" },
		{ c->fold != 0, "--fold" },
		{ c->path, "--path" },
		{ c->resources, "--resources" },
		{ c->stragglers, "--stragglers" },
	};

	for (size_t i = 0; i < PL_LEN(option); i++)
		if (option[i].set)
			return pl_fail(err, PL_EUSAGE,
				       "%s is for a graph; of a job with servers there is a table, "
				       "as text, json, csv or tsv (a change of it: change the job)",
				       option[i].name);
	return 0;
}

int replay_servers(struct config *c, struct pl_input *input, struct pl_out *out, bool *is,
		   struct pl_err *err)
{
	struct pl_table t = PL_TABLE(columns);
	struct pl_sim_servers s = { 0 };
	struct pl_model m = { 0 };
	struct pl_writer w;
	struct pl_job j;
	int rc;

	pl_job_init(&j);
	PL_TRY(pl_inputs_job(input, &j, &m, err));
	*is = !strcmp(j.engine, "ps");
	if (!*is)
		goto out;
	PL_TRY(check_options(c, err));
	PL_TRY(simulate(c, &j, &m, &s, err));
	fill(&s, &t);
	pl_write_init(&w, out, 2);
	if (c->to == AS_JSON)
		put_json(&j, &s, &t, &w);
	else if (c->to == AS_TEXT)
		put_text(&j, &s, &t, &w);
	else
		pl_table_write(&t, &w, c->to == AS_CSV ? PL_TABLE_CSV : PL_TABLE_TSV, NULL);
	rc = pl_write_end(&w, err);
out:
	if (rc < 0)
		pl_wrap(err, "%s", pl_inputs_name(input));
	pl_sim_servers_fini(&s);
	pl_table_fini(&t);
	pl_model_fini(&m);
	pl_job_fini(&j);
	return rc;
}
