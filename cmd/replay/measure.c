/*
 * The numbers of a report: replayed against recorded, the path, where the time went.
 *
 * Most operations start in the replay when they started in the recording, so for percentiles of the
 * errors of starts only those that are not 0 are kept.
 */
#include <math.h>
#include <stdlib.h>

#include "program.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static pl_ns length(const struct pl_run *run, size_t k)
{
	return run->step_end[k] - run->step_start[k];
}

static int measure_steps(struct report *r, const struct pl_run *base, struct pl_err *err)
{
	int rc = pl_alloc(&r->step, r->g.n_steps, sizeof(*r->step), err);
	pl_ns start, end, next, ignore;

	if (rc < 0)
		return rc;
	for (size_t k = 0; k < r->g.n_steps; k++) {
		struct step_row *x = &r->step[r->n_steps];

		if (!pl_sim_reported(r->s, k))
			continue;
		pl_sim_recorded(r->s, k, &start, &end);
		x->number = r->g.step[k].number;
		x->recorded = end - start;
		x->replayed = x->simulated = length(base, k);
		x->error =
			x->recorded ? (double)(x->replayed - x->recorded) / (double)x->recorded : 0;
		x->period = x->predicted = INT64_MIN;
		for (size_t n = k + 1; n < r->g.n_steps; n++) {
			if (!pl_sim_reported(r->s, n))
				continue;
			pl_sim_recorded(r->s, n, &next, &ignore);
			if (r->g.step[n].number == x->number + 1)
				x->period = next - start;
			break;
		}
		r->recorded_mean += (double)x->recorded;
		r->replayed_mean += (double)x->replayed;
		r->mean_abs_error += fabs(x->error);
		if (fabs(x->error) > fabs(r->worst_error))
			r->worst_error = x->error;
		r->n_steps++;
	}
	r->recorded_mean /= (double)r->n_steps;
	r->replayed_mean /= (double)r->n_steps;
	r->mean_abs_error /= (double)r->n_steps;
	return 0;
}

/* Do ranks that become faster alone begin their next step while others still do this one? */
static bool changes_some_ranks(const struct report *r)
{
	const struct pl_rewrite *rw;
	bool some = false;

	for (size_t i = 0; (rw = change_line(r->changes, i)); i++)
		some |= !can_contradict(&rw->select);
	return some && !r->trust.not_joined;
}

static void use_periods(struct report *r)
{
	r->overlap = true;
	r->recorded_step = r->recorded_period;
	r->replayed_step = r->replayed_period;
}

/* Which share of the communication that a plan made is left by lines of durations behind it. */
static double comm_left(const struct report *r, size_t k)
{
	const struct pl_gstep *st = &r->g.step[k];
	const struct pl_shape *sh = &r->g.shape[st->shape];
	const pl_ns *now = pl_sim_durations(r->s, k);
	double before = 0, after = 0;

	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		if (sh->role[i] != PL_RO_TRANSFER || sh->type[i] != PL_N_OP)
			continue;
		before += (double)st->dur[i];
		after += (double)now[i];
	}
	return before > 0 ? fmin(after / before, 1) : 1;
}

/* What the model makes of the plan, less what it errs for the same step as it was recorded. It errs
 * in communication, so less where less of that is left. */
static void predict_steps(struct report *r)
{
	bool corrects = r->bias && r->bias_out;
	double sum = 0, left = 0;
	size_t n = 0;

	for (size_t k = 0; k < r->g.n_steps; k++) {
		pl_ns ns;

		if (!pl_sim_reported(r->s, k) || n == r->n_steps)
			continue;
		ns = r->step[n].simulated = length(&r->run, k);
		if (corrects) {
			double share = comm_left(r, k);

			ns = pl_max_i64(ns - llround(share * (double)r->bias[k]), 0);
			left += share;
		}
		r->step[n++].predicted = ns;
		sum += (double)ns;
	}
	r->predicted_mean = corrects && n ? sum / (double)n : pl_sim_run_mean_step(r->s, &r->run);
	r->predicted_step = r->predicted_mean;
	r->of_some_ranks = changes_some_ranks(r);
	if (isfinite(r->replayed_period) && r->of_some_ranks && pl_sim_run_overlaps(r->s, &r->run))
		use_periods(r);
	if (r->overlap)
		r->predicted_step = pl_sim_run_mean_period(r->s, &r->run) -
				    (corrects && n ? r->bias_period * left / (double)n : 0);
}

/* ---- starts ---------------------------------------------------------------------------------- */

struct errors {	    /* of starts */
	int64_t *v; /* that are not 0 */
	size_t n, cap;
};

/* Of n errors, by nearest rank. */
static int64_t percentile(const struct errors *e, uint64_t n, double p)
{
	double rank = ceil(p / 100 * (double)n) - (double)(n - e->n);

	return rank < 1 ? 0 : pl_percentile_i64(e->v, e->n, 100 * (rank - 0.5) / (double)e->n);
}

static bool on_device(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	uint8_t t = sh->res[i] == PL_NONE ? PL_T_OTHER : g->res[sh->res[i]].track_type;

	return t == PL_T_STREAM || t == PL_T_COPY_ENGINE;
}

/* An operation starts with its first node; a transfer is the second of a communication. */
static bool is_start(const struct pl_shape *sh, uint32_t i)
{
	return sh->type[i] == PL_N_OP && sh->role[i] != PL_RO_TRANSFER &&
	       sh->role[i] != PL_RO_MARK && sh->role[i] != PL_RO_GAP && sh->role[i] != PL_RO_SYNC;
}

static int find_errors(struct report *r, const struct pl_run *base, struct errors *x,
		       struct pl_err *err)
{
	r->n_starts = 0;
	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_gstep *st = &r->g.step[k];
		const struct pl_shape *sh = &r->g.shape[st->shape];

		if (!pl_sim_reported(r->s, k))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			int64_t d;

			if (!is_start(sh, i) || (r->start_device && !on_device(&r->g, sh, i)))
				continue;
			r->n_starts++;
			d = llabs(base->start[k][i] - st->start[i]);
			if (!d)
				continue;
			PL_CHECK(pl_append(&x->v, &x->n, &x->cap, &d, sizeof(d), err));
			r->start_max = pl_max_i64(r->start_max, d);
		}
	}
	return 0;
}

/* Of device operations, if there are any, else of all. */
static int measure_starts(struct report *r, const struct pl_run *base, struct pl_err *err)
{
	struct errors x = { 0 };
	int rc;

	r->start_device = true;
	PL_TRY(find_errors(r, base, &x, err));
	if (!r->n_starts) {
		r->start_device = false;
		PL_TRY(find_errors(r, base, &x, err));
	}
	r->start_p50 = percentile(&x, r->n_starts, 50);
	r->start_p95 = percentile(&x, r->n_starts, 95);
out:
	pl_free(x.v);
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What of a run needs nothing else: where the time went. */
struct accounting {
	struct report *r;
	int rc;
	struct pl_err err;
};

static void account(void *arg)
{
	struct accounting *x = arg;

	x->rc = pl_sim_account_make(x->r->s, &x->r->run, &x->r->account, &x->err);
}

static int find_path(struct report *r, struct pl_err *err)
{
	PL_CHECK(pl_sim_path_find(r->s, &r->run, &r->path, err));
	r->unexplained_share =
		r->path.length ? (double)r->path.unexplained / (double)r->path.length : 0;
	return sum_path(r, err);
}

/* The path and the account of r->run, side by side. */
static int explain_run(struct report *r, struct pl_pool *pool, struct pl_err *err)
{
	struct accounting x = { .r = r };
	struct pl_queue *q = pl_queue_new(pool, 1, err);
	int rc;

	if (!q)
		return err->code;
	pl_queue_put(q, account, &x);
	rc = find_path(r, err);
	pl_queue_free(q); /* waits */
	if (rc >= 0 && x.rc < 0) {
		*err = x.err;
		rc = x.rc;
	}
	return rc;
}

int measure(struct report *r, struct pl_err *err)
{
	r->predicted_mean = r->bias_mean = NAN;
	r->s = pl_sim_new(&r->g, err);
	if (!r->s)
		return err->code;
	r->open_share = open_share(r);
	PL_CHECK(pl_sim_run(r->s, &r->run, err));
	r->ops = r->run.ops;
	PL_CHECK(measure_steps(r, &r->run, err));
	r->recorded_step = r->recorded_mean;
	r->replayed_step = r->replayed_mean;
	r->recorded_period = pl_sim_run_mean_period(r->s, NULL);
	r->replayed_period = pl_sim_run_mean_period(r->s, &r->run);
	if (pl_sim_steps_overlap(r->s))
		use_periods(r);
	PL_CHECK(measure_starts(r, &r->run, err));
	return 0;
}

int explain(struct report *r, bool changed, struct pl_pool *pool, struct pl_err *err)
{
	if (changed) {
		pl_sim_run_fini(&r->run);
		PL_CHECK(pl_sim_run(r->s, &r->run, err));
		predict_steps(r);
	}
	r->mean = pl_sim_steps_overlap(r->s) ? pl_sim_run_mean_period(r->s, &r->run)
					     : pl_sim_run_mean_step(r->s, &r->run);
	return explain_run(r, pool, err);
}

double doubt(const struct report *r)
{
	double comm = 0;

	for (size_t i = 0; i < r->n_rows; i++)
		if (r->row[i].role == PL_RO_TRANSFER)
			comm += (double)r->row[i].ns / (double)r->n_steps;
	return r->basis.error * comm;
}

void report_fini(struct report *r)
{
	for (size_t i = 0; i < r->n_changes; i++)
		pl_free(r->change[i].change);
	pl_free(r->change);
	pl_free(r->slow);
	pl_free(r->memory);
	pl_free(r->row);
	pl_free(r->step);
	pl_free(r->bias);
	pl_new_memory_fini(&r->new_memory);
	pl_free(r->slow_op);
	pl_write_fini(&r->explained);
	pl_picture_fini(&r->picture);
	pl_sim_account_fini(&r->account);
	pl_sim_path_fini(&r->path);
	pl_sim_run_fini(&r->run);
	pl_sim_free(r->s);
	pl_graph_fini(&r->g);
}
