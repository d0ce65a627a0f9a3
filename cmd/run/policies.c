/*
 * run --policies: the same training under several synchronisation policies, one after another, and
 * a table with the measurements of each.
 *
 * Every training has its own processes, as if it were started alone: workers with their own clocks,
 * and the servers of the job. Only the policy, the seed and the learning rate differ. The process
 * that leads a training writes its row into memory that it shares with this one.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "io/table.h"
#include "policy/policy.h"
#include "program.h"

#define LIST_MAX RANKS_MAX

/* ---- options --------------------------------------------------------------------------------- */

int apply_speeds(const struct config *c, struct pl_job *j, struct pl_err *err)
{
	int64_t ranks = count_ranks(c, j);

	PL_CHECK(pl_job_set_speeds(j, c->speeds, err));
	if (c->ranks && ranks != j->ranks)
		return pl_fail(err, PL_EUSAGE, "-n %lld, but --speeds has %lld speeds",
			       (long long)ranks, (long long)j->ranks);
	return 0;
}

/* INFINITY: it has none. */
static double speed_of(const struct pl_job *j, int64_t rank)
{
	double speed = INFINITY;

	for (size_t i = 0; i < j->n_paces; i++)
		if (j->pace[i].speed > 0 && (j->pace[i].rank == rank || j->pace[i].rank == -1))
			speed = fmin(speed, j->pace[i].speed);
	return speed;
}

/* Of the speeds of a job's workers: mean / least; NAN: a worker has none. */
static int nominal_heterogeneity(const struct pl_job *j, double *h, struct pl_err *err)
{
	double sum = 0, least = INFINITY, n = (double)pl_job_workers(j);
	uint32_t *first;

	PL_CHECK(pl_job_workers_find(j, &first, err));
	for (int64_t i = 0; i < pl_job_workers(j); i++) {
		double slowest = INFINITY; /* a group is as fast as its slowest rank */

		for (uint32_t r = first[i]; r < first[i + 1]; r++)
			slowest = fmin(slowest, speed_of(j, r));
		sum += slowest;
		least = fmin(least, slowest);
	}
	*h = isfinite(sum) ? sum / n / least : NAN;
	pl_free(first);
	return 0;
}

/* "ssp:40" as a statement of the job. */
static int set_policy(struct pl_job *j, const char *text, struct pl_err *err)
{
	struct pl_policy_opts o = { .workers = 1, .batch = 1 };
	const char *name, *key = "local-steps";
	char statement[120];

	PL_CHECK(pl_policy_parse(text, &o, err));
	name = pl_policy_name(o.kind);
	if (!strcmp(name, "ssp"))
		key = "staleness";
	else if (!strcmp(name, "adsp"))
		key = "commits";
	if (strchr(text, ':'))
		snprintf(statement, sizeof(statement), "policy %s %s=%.17g", name, key, o.argument);
	else
		snprintf(statement, sizeof(statement), "policy %s", name);
	return pl_job_set(j, statement, err);
}

/* ---- one training ---------------------------------------------------------------------------- */

void comparison_fill(struct comparison *row, const struct result *r)
{
	const struct pl_train *t = r->t;
	double n = r->workers;

	*row = (struct comparison){ .h_measured = r->heterogeneity,
				    .seconds_to_target = t->time_to_target_s,
				    .samples_to_target = (double)t->samples_to_target,
				    .samples_per_s = (double)r->samples / r->seconds,
				    .bytes_sent = (double)t->bytes_sent,
				    .final_loss = isnan(t->eval_loss) ? t->last_loss : t->eval_loss,
				    .reached = !isnan(t->time_to_target_s) };
	for (int i = 0; i < r->workers; i++) {
		const struct pl_train_result *w = &r->worker[i];

		row->steps += w->steps;
		row->commits += w->commits;
		row->bytes_sent += w->bytes_sent;
		row->compute_share += w->compute_share / n;
		row->wait_share += w->wait_share / n;
		row->staleness_mean += w->staleness_mean * w->commits;
		row->staleness_max = fmax(row->staleness_max, w->staleness_max);
	}
	row->staleness_mean /= fmax(1, row->commits);
	row->done = true;
}

static const struct pl_column columns[] = {
	{ "policy", "policy", PL_CELL_STR, 0 },
	{ "seed", "seed", PL_CELL_I64, 0 },
	{ "h_nominal", "H", PL_CELL_REAL, 0 },
	{ "h_measured", "measured", PL_CELL_REAL, 0 },
	{ "workers", "workers", PL_CELL_I64, 0 },
	{ "lr", "lr", PL_CELL_REAL, 0 },
	{ "reached", "reached", PL_CELL_I64, 0 },
	{ "seconds_to_target", "seconds", PL_CELL_REAL, 0 },
	{ "samples_to_target", "samples", PL_CELL_I64, 0 },
	{ "samples_per_s", "samples/s", PL_CELL_REAL, 0 },
	{ "steps", "steps", PL_CELL_I64, 0 },
	{ "commits", "commits", PL_CELL_I64, 0 },
	{ "bytes_sent", "sent", PL_CELL_BYTES, 0 },
	{ "compute_share", "computing", PL_CELL_PERCENT, 0 },
	{ "wait_share", "waiting", PL_CELL_PERCENT, 0 },
	{ "comm_share", "committing", PL_CELL_PERCENT, 0 },
	{ "staleness_mean", "staleness", PL_CELL_REAL, 0 },
	{ "staleness_max", "most", PL_CELL_I64, 0 },
	{ "final_loss", "loss", PL_CELL_REAL, 0 },
};

static int64_t count_or_none(bool known, double v)
{
	return known ? (int64_t)v : INT64_MIN;
}

static void put_row(struct pl_table *t, const char *policy, const struct pl_job *j, double h,
		    const struct comparison *r)
{
	double none = r->done ? 0 : NAN;

	pl_table_row(t, policy, j->seed, h, r->h_measured + none, pl_job_workers(j), j->lr,
		     (int64_t)r->reached, r->reached ? r->seconds_to_target : NAN,
		     count_or_none(r->reached, r->samples_to_target), r->samples_per_s + none,
		     count_or_none(r->done, r->steps), count_or_none(r->done, r->commits),
		     count_or_none(r->done, r->bytes_sent), r->compute_share + none,
		     r->wait_share + none, fmax(0, 1 - r->compute_share - r->wait_share) + none,
		     r->staleness_mean + none, count_or_none(r->done, r->staleness_max),
		     r->final_loss + none);
}

/* A training that diverged is an answer, and its row has no measurements. */
static int train_once(struct config *c, struct work *w, const char *policy, bool *mine,
		      struct pl_err *err)
{
	const struct pl_job *j = &w->job;
	struct pl_err why = { 0 };
	int rc;

	memset(c->row, 0, sizeof(*c->row));
	rc = start_ranks(c, j->ranks, train, w, &why);
	*mine = !c->is_parent;
	if (rc >= 0)
		return rc;
	if (*mine) {
		*err = why;
		return rc;
	}
	if (!c->row->diverged)
		return pl_fail(err, rc, "%s, seed %lld, lr %g: %s", policy, (long long)j->seed,
			       j->lr, why.msg);
	pl_say(&c->c.log, PL_LOG_WARN, "%s, seed %lld, lr %g: training diverged", policy,
	       (long long)j->seed, j->lr);
	return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct all {
	struct config *c;
	struct work *w;
	struct pl_table table;
	double *rate;
	size_t n_rates;
	int64_t seed, done, total, rows;
	double h;  /* of the speeds that the job gives */
	bool mine; /* this is a process of a training */
};

static int under_policy(struct all *a, const char *policy, struct pl_err *err)
{
	struct pl_job *j = &a->w->job;
	int rc;

	if (set_policy(j, policy, err) < 0)
		return pl_wrap(err, "--policies");
	PL_CHECK(pl_job_check(j, err));
	for (int64_t s = 0; s < a->c->seeds; s++)
		for (size_t i = 0; i < a->n_rates; i++) {
			j->seed = a->seed + s;
			j->lr = a->rate[i];
			pl_say(&a->c->c.log, PL_LOG_NOTE, "%lld of %lld: %s, seed %lld, lr %g",
			       (long long)++a->done, (long long)a->total, policy,
			       (long long)j->seed, j->lr);
			rc = train_once(a->c, a->w, policy, &a->mine, err);
			if (a->mine)
				return rc;
			if (stop_signal) { /* in the middle of this one, which may fail of it */
				*err = (struct pl_err){ 0 };
				return 0;
			}
			PL_CHECK(rc);
			put_row(&a->table, policy, j, a->h, a->c->row);
			a->rows++;
		}
	return 0;
}

static int prepare(struct all *a, struct pl_err *err)
{
	struct config *c = a->c;
	struct pl_job *j = &a->w->job;

	if (c->launch.launcher)
		return pl_fail(err, PL_EUSAGE,
			       "--policies forks the processes of each training; unset %s",
			       c->launch.rank_name);
	if (c->seeds < 1 || c->seeds > 1000)
		return pl_fail(err, PL_EUSAGE, "--seeds: from 1 to 1000");
	if (c->trace || c->log.n || c->report || j->checkpoint || c->export_to)
		return pl_fail(
			err, PL_EUSAGE,
			"--policies trains many times: it takes no --trace, --log, --report, "
			"--checkpoint and --export");
	if (strcmp(j->engine, "ps"))
		PL_CHECK(pl_job_set(j, "engine ps", err));
	if (j->target_loss > 0 && j->split >= 1 && !j->eval_data)
		return pl_fail(
			err, PL_EDATA,
			"a target loss is one of held-out samples, but nothing is held out; write: "
			"split 0.9, or --set split=0.9");
	/* times that are compared need more than the job's few evaluations */
	if (j->target_loss > 0 && !j->patience && !j->checkpoint_best)
		j->eval_every = 0;
	PL_CHECK(pl_alloc(&a->rate, LIST_MAX, sizeof(*a->rate), err));
	a->n_rates = 1;
	a->rate[0] = j->lr;
	if (c->rates)
		if (pl_parse_reals(c->rates, false, a->rate, LIST_MAX, &a->n_rates, err) < 0)
			return pl_wrap(err, "--lr");
	a->seed = j->seed;
	PL_CHECK(nominal_heterogeneity(j, &a->h, err));
	c->servers = (int)j->servers;
	c->row = mmap(NULL, sizeof(*c->row), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (c->row == MAP_FAILED) {
		c->row = NULL;
		return pl_fail_sys(err, "memory for the results");
	}
	return 0;
}

/* Calls one() for each policy of the list; which may have "," only between policies. */
static int each_policy(struct all *a,
		       int (*one)(struct all *a, const char *policy, struct pl_err *err),
		       struct pl_err *err)
{
	const char *at = a->c->policies;

	while (!a->mine && !stop_signal) {
		size_t len = strcspn(at, ",");
		char policy[64];

		snprintf(policy, sizeof(policy), "%.*s", (int)pl_min_size(len, 63), at);
		PL_CHECK(one(a, policy, err));
		if (!at[len])
			return 0;
		at += len + 1;
	}
	return 0;
}

/* A wrong name is found before hours of training. */
static int check_policy(struct all *a, const char *policy, struct pl_err *err)
{
	a->total += a->c->seeds * (int64_t)a->n_rates;
	return set_policy(&a->w->job, policy, err) < 0 ? pl_wrap(err, "--policies") : 0;
}

/* What was measured before a failure (rc) or a signal is not lost. */
static int put_table(struct all *a, int rc, struct pl_err *err)
{
	struct pl_err later = { 0 };
	struct pl_out *out;

	if (rc < 0 && !a->rows)
		return rc;
	if (a->rows < a->total)
		pl_say(&a->c->c.log, PL_LOG_WARN, "the table has %lld of %lld trainings",
		       (long long)a->rows, (long long)a->total);
	out = pl_out_open(a->c->c.output, false, &later);
	if (out)
		(void)!pl_out_finish(out, write_table(a->c, &a->table, out, &later), &later);
	return rc < 0 ? rc : pl_fail_as(err, &later);
}

int compare_policies(struct config *c, struct work *w, struct pl_err *err)
{
	struct all a = { .c = c, .w = w, .table = PL_TABLE(columns) };
	int rc, sig = 0;

	PL_TRY(prepare(&a, err));
	PL_TRY(each_policy(&a, check_policy, err));
	rc = each_policy(&a, under_policy, err);
	if (!a.mine)
		rc = put_table(&a, rc, err);
	sig = !a.mine && rc >= 0 ? stop_signal : 0;
out:
	pl_table_fini(&a.table);
	pl_free(a.rate);
	if (c->row)
		munmap(c->row, sizeof(*c->row));
	c->row = NULL;
	if (sig)
		end_by(sig);
	return rc;
}
