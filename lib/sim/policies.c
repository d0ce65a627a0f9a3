/* Every policy in turn, by the simulation of a job with servers. */
#include <math.h>

#include "cost/cost.h"
#include "sim/policies.h"

#define MOVES 3 /* times that a number of an all-reduce is read or written */

/* The greatest of CNN and GPT, H = 3.2, of bench/policies on 2026-11-28. */
static const struct {
	const char *name;
	double samples; /* to the same loss, by those of bsp */
} measured[] = {
	{ "all-reduce", 1 }, { "bsp", 1 },    { "ssp", 2.0 },	 { "asp", 2.3 },
	{ "local", 1.7 },    { "adsp", 1.5 }, { "adsp++", 2.0 }, { "fixed-adacomm", 1.4 },
	{ "adacomm", 1.9 },
};

static double samples_of(const char *name)
{
	for (size_t i = 0; i < PL_LEN(measured); i++)
		if (!strcmp(measured[i].name, name))
			return measured[i].samples;
	return NAN;
}

static void fill(struct pl_sim_policy *r, const struct pl_sim_servers *s)
{
	double ns = fmax(1, (double)s->end_ns), n = s->workers, commits = 0, samples = 0;

	for (uint32_t i = 0; i < s->workers; i++) {
		const struct pl_policy_sim_result *w = &s->worker[i];

		samples += (double)w->samples;
		r->computing += (double)w->computing_ns / ns / n;
		r->waiting += (double)w->waiting_ns / ns / n;
		r->committing += (double)w->sending_ns / ns / n;
		r->staleness += w->seen.staleness_mean * (double)w->seen.commits;
		commits += (double)w->seen.commits;
	}
	r->samples_per_s = samples / ns * 1e9;
	r->commits_per_s = commits / ns * 1e9;
	r->staleness /= fmax(1, commits);
}

/* An all-reduce, 1, 2 and 4 servers, and 1, 2 and 4 with servers beside the workers: bytes on the
 * slowest link, and the latencies of a ring's messages or of a push and a pull. */
static int sums(const struct pl_job *j, const struct pl_sim_servers_opts *o,
		struct pl_sim_policies *p, struct pl_err *err)
{
	double latency = PL_SIM_MESSAGE_NS, rate = (double)PL_SIM_BYTES_PER_NS / MOVES,
	       n = p->workers;
	uint32_t *first;

	PL_CHECK(pl_job_workers_find(j, &first, err));
	for (uint32_t i = 0; i < p->workers; i++) { /* between the first ranks of workers */
		int64_t from = first[i], to = first[(i + 1) % p->workers];
		double hop = pl_sim_servers_link(j, from, to, 0, 1);
		double all = pl_sim_servers_link(j, from, to, (double)o->n, 1);

		latency = fmax(latency, PL_SIM_MESSAGE_NS + hop);
		rate = all > hop ? fmin(rate, 4 * (double)o->n / (all - hop)) : rate;
	}
	pl_free(first);
	for (size_t i = 0; i < PL_SIM_SUMS; i++) {
		struct pl_sim_sum *s = &p->sum[p->n_sums];
		bool colocated = i == 0 || i > PL_SIM_SUMS / 2;
		uint32_t k = i ? 1u << (i - 1) % (PL_SIM_SUMS / 2) : 0;

		if (k > p->workers || p->workers < 2)
			continue;
		*s = (struct pl_sim_sum){ .servers = k,
					  .colocated = colocated,
					  .share = k ? 1.0 / k : 0 };
		s->ns = 4 * (double)o->n * fmax(1, n / fmax(1, k)) / rate;
		if (colocated) {
			s->share = pl_cost_server_share(p->workers, k, 1);
			s->ns = pl_cost_server_sum(p->workers, k, rate, rate, 4 * (double)o->n);
		}
		s->ns += latency * (i ? 2 : 2 * (n - 1));
		p->n_sums++;
	}
	return 0;
}

/* Each worker waits for the slowest in every step. */
static void all_reduce(const struct pl_job *j, const struct pl_sim_times *t, double sum,
		       struct pl_sim_policy *r)
{
	double n = (double)pl_job_workers(j), step = (double)t->slowest + sum;

	r->name = "all-reduce";
	r->samples_per_s = (double)(j->ranks * j->batch) / step * 1e9;
	r->computing = t->mean / step;
	r->committing = sum / step;
	r->waiting = 1 - r->computing - r->committing;
	r->commits_per_s = n / step * 1e9;
}

static int one(struct pl_job *j, const struct pl_sim_servers_opts *o, struct pl_sim_policy *r,
	       struct pl_err *err)
{
	struct pl_sim_servers s = { 0 };
	struct pl_err why = { 0 };
	char statement[64];
	int rc;

	snprintf(statement, sizeof(statement), "policy %s", r->name);
	PL_CHECK(pl_job_set(j, statement, err));
	rc = pl_sim_servers(o, &s, &why);
	if (rc == PL_ENOMEM)
		return pl_fail(err, rc, "%s", why.msg);
	if (rc < 0)
		r->no = "the policy ends the training";
	else
		fill(r, &s);
	pl_sim_servers_fini(&s);
	return 0;
}

/* What follows from the others: by bsp's, and the least time. */
static void compare(struct pl_sim_policies *p)
{
	const struct pl_sim_policy *bsp = &p->row[1];

	for (size_t i = 0; i < p->n; i++) {
		struct pl_sim_policy *r = &p->row[i];

		r->samples = samples_of(r->name);
		r->time = r->no ? NAN : r->samples * bsp->samples_per_s / r->samples_per_s;
		if (isfinite(r->time) && r->time < p->row[p->best].time)
			p->best = i;
	}
}

int pl_sim_policies(struct pl_job *j, const struct pl_sim_servers_opts *opts,
		    struct pl_sim_policies *p, struct pl_err *err)
{
	struct pl_sim_servers_opts o = *opts;
	struct pl_sim_times t;
	size_t n = 0;
	int rc;

	*p = (struct pl_sim_policies){ .workers = (uint32_t)pl_job_workers(j) };
	while (pl_policy_kind_at(n))
		n++;
	PL_TRY(pl_alloc(&p->row, n + 1, sizeof(*p->row), err));
	PL_TRY(pl_sim_servers_times(&o, &t, err));
	p->heterogeneity = t.heterogeneity;
	o.steps = 0;
	o.until = PL_SIM_POLICY_STEPS * pl_min_i64(t.slowest, INT64_MAX / 2 / PL_SIM_POLICY_STEPS);
	PL_TRY(sums(j, &o, p, err));
	all_reduce(j, &t, p->n_sums ? p->sum[0].ns : 0, &p->row[p->n++]);
	for (size_t i = 0; i < n; i++) {
		p->row[p->n].name = pl_policy_name(pl_policy_kind_at(i));
		PL_TRY(one(j, &o, &p->row[p->n++], err));
	}
	compare(p);
out:
	if (rc < 0)
		pl_sim_policies_fini(p);
	return rc;
}

void pl_sim_policies_fini(struct pl_sim_policies *p)
{
	pl_free(p->row);
	p->row = NULL;
}
