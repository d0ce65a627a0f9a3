/* Which policy suits a job: the answer to `plan JOB`, which needs no graph, only the speeds of its
 * workers. */
#include <math.h>

#include "io/table.h"
#include "program.h"
#include "sim/policies.h"

static const struct pl_column columns[] = {
	{ "policy", "policy", PL_CELL_STR, 0 },
	{ "samples_per_s", "samples/s", PL_CELL_REAL, 0 },
	{ "compute_share", "computing", PL_CELL_PERCENT, 0 },
	{ "wait_share", "waiting", PL_CELL_PERCENT, 0 },
	{ "comm_share", "committing", PL_CELL_PERCENT, 0 },
	{ "commits_per_s", "commits/s", PL_CELL_REAL, 0 },
	{ "staleness_mean", "staleness", PL_CELL_REAL, 0 },
	{ "samples_by_bsp", "samples x", PL_CELL_REAL, 0 },
	{ "time_by_bsp", "time x", PL_CELL_REAL, 0 },
};

static void fill(const struct pl_sim_policies *p, struct pl_table *t)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct pl_sim_policy *r = &p->row[i];

		pl_table_row(t, r->name, r->samples_per_s, r->computing, r->waiting, r->committing,
			     r->commits_per_s, r->staleness, r->samples, r->time);
	}
}

static const struct pl_column sum_columns[] = {
	{ "sum", "one sum of all workers", PL_CELL_STR, 0 },
	{ "servers", "hosts of servers", PL_CELL_I64, 0 },
	{ "share", "share of each", PL_CELL_PERCENT, 0 },
	{ "ns", "time", PL_CELL_NS, 0 },
};

static void fill_sums(const struct pl_sim_policies *p, struct pl_table *t)
{
	for (size_t i = 0; i < p->n_sums; i++) {
		const struct pl_sim_sum *s = &p->sum[i];

		pl_table_row(t,
			     !s->servers    ? "all-reduce"
			     : s->colocated ? "servers, also beside each worker"
					    : "servers",
			     (int64_t)s->servers, s->share, (int64_t)s->ns);
	}
}

/* Below this gain a policy is not worth the change: speeds vary as much. */
#define WORTH 0.9

static void put_reason(const struct pl_sim_policies *p, char *to, size_t size)
{
	const struct pl_sim_policy *best = &p->row[p->best], *bsp = &p->row[1];

	if (!p->best)
		snprintf(to, size,
			 "no other policy is clearly faster to the same loss: the workers wait "
			 "%.0f %% "
			 "of their time for one another, and each step is that of one batch of all",
			 100 * p->row[0].waiting);
	else
		snprintf(to, size,
			 "H = %.2f: under bsp the workers wait %.0f %% of their time, and %s makes "
			 "%.2f times as many samples a second; even if it needs %.1f times as many "
			 "samples, it takes %.2f of the time",
			 p->heterogeneity, 100 * bsp->waiting, best->name,
			 best->samples_per_s / bsp->samples_per_s, best->samples, best->time);
}

static void put_json(const struct pl_sim_policies *p, const char *name, const char *reason,
		     const struct pl_table *t, const struct pl_table *sums, struct pl_writer *w)
{
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.policies/1");
	pl_json_int(w, "workers", p->workers);
	pl_json_real(w, "heterogeneity", p->heterogeneity);
	pl_json_str(w, "recommended", name);
	pl_json_str(w, "reason", reason);
	pl_json_key(w, "policies");
	pl_table_json(t, w);
	pl_json_key(w, "sums");
	pl_table_json(sums, w);
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void put_text(const struct pl_sim_policies *p, const char *name, const char *reason,
		     const char *path, const char *speeds, const struct pl_table *t,
		     const struct pl_table *sums, struct pl_writer *w)
{
	pl_write_format(w, "%u workers, H = %.3g; policies of paceline-policy(5), simulated\n\n",
			p->workers, p->heterogeneity);
	pl_table_write(t, w, PL_TABLE_TEXT, NULL);
	pl_write_format(w, "\nsamples x, time x: to the same loss, by bsp's, as bench/policies "
			   "measured samples at worst\n\n");
	pl_table_write(sums, w, PL_TABLE_TEXT, NULL);
	pl_write_format(w, "\nrecommended: %s\n%s\n", name, reason);
	if (p->best)
		pl_write_format(w, "try it: run --policies=bsp,%s%s%s --target-loss=LOSS %s\n",
				name, speeds ? " --speeds=" : "", speeds ? speeds : "", path);
}

int plan_policies(const struct config *c, struct pl_input *input, struct pl_out *out,
		  struct pl_err *err)
{
	struct pl_sim_servers_opts o = { .service_ns = -1 };
	struct pl_table t = PL_TABLE(columns), sums = PL_TABLE(sum_columns);
	struct pl_sim_policies p = { 0 };
	struct pl_model m = { 0 };
	struct pl_writer w;
	struct pl_job j;
	char reason[400];
	const char *name;
	int rc;

	pl_job_init(&j);
	PL_TRY(pl_inputs_job(input, &j, &m, err));
	if (strcmp(j.engine, "ps"))
		PL_TRY(pl_job_set(&j, "engine ps", err));
	if (c->speeds)
		PL_TRY(pl_job_set_speeds(&j, c->speeds, err));
	o.job = &j;
	PL_TRY(pl_sim_servers_numbers(&j, &m, &o.n, err));
	PL_TRY(pl_sim_policies(&j, &o, &p, err));
	fill(&p, &t);
	fill_sums(&p, &sums);
	if (p.row[p.best].time > WORTH * p.row[0].time)
		p.best = 0;
	name = p.row[p.best].name;
	put_reason(&p, reason, sizeof(reason));
	pl_write_init(&w, out, 2);
	if (c->to == AS_JSON)
		put_json(&p, name, reason, &t, &sums, &w);
	else
		put_text(&p, name, reason, pl_inputs_name(input), c->speeds, &t, &sums, &w);
	rc = pl_write_end(&w, err);
out:
	if (rc < 0)
		pl_wrap(err, "%s", pl_inputs_name(input));
	pl_table_fini(&t);
	pl_table_fini(&sums);
	pl_sim_policies_fini(&p);
	pl_model_fini(&m);
	pl_job_fini(&j);
	return rc;
}
