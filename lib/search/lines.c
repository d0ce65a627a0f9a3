/*
 * A candidate as lines of a plan, with two savings for each line: the line alone on the recorded
 * job, and the line in the plan (the cost of leaving it out). Both are simulated. Without the line
 * of a bucket, its tensors are sent one at a time, because a reader of the plan alone would do so.
 * They do not return to recorded buckets, which other lines may have changed.
 */
#include <math.h>

#include "search/internal.h"
#include "sim/selftest.h"

int pl_search_carry_out_plan(const struct search *s, struct pl_edit *e, struct pl_rewriter *r,
			     const struct pl_plan *p, double *mean, struct pl_err *err)
{
	bool comm = false;
	int rc = pl_rewrite_plan(r, p, err);

	for (size_t i = 0; i < p->n_rw; i++)
		comm |= pl_rewrite_is_comm(p->rw[i].op);
	/* after it: operations change as they were recorded, with nothing between them */
	if (rc == 0 && s->has_choices && !comm)
		rc = pl_rewrite_model(r, err);
	if (rc == 0)
		rc = pl_sim_settle(e, err);
	*mean = rc == 0 ? pl_edit_mean_step(e) : INFINITY;
	return rc;
}

/* The mean step with some lines of the plan; INFINITY if they need the others. step: the length of
 * each step; or NULL. */
static int measure_lines(struct search *s, const struct pl_plan *p, struct pl_rewrite *rw, size_t n,
			 double *mean, pl_ns *step, struct pl_err *err)
{
	struct pl_rewriter *r = s->worker[0].r;
	struct pl_plan some = *p;
	size_t mark;
	int rc;

	pl_rewrite_undo(r, 1);
	s->worker[0].at = s->worker[0].depth = 0;
	mark = pl_rewrite_mark(r);
	some.rw = rw;
	some.n_rw = n;
	rc = pl_search_carry_out_plan(s, &s->worker[0].e, r, &some, mean, err);
	if (rc == 0 && n == p->n_rw) {
		struct pl_rewrite_basis basis = { 0 };

		pl_rewrite_bases(r, &basis);
		s->work_ns = basis.work_ns;
	}
	for (uint32_t k = 0; rc == 0 && step && k < s->worker[0].e.n_steps; k++)
		step[k] = pl_edit_step(&s->worker[0].e, k);
	pl_rewrite_undo(r, mark);
	return pl_search_allow_refusal(rc, err);
}

static int with_lines(struct search *s, const struct pl_plan *p, struct pl_rewrite *rw, size_t n,
		      double *mean, struct pl_err *err)
{
	return measure_lines(s, p, rw, n, mean, NULL, err);
}

static pl_ns saved(double before, double after)
{
	return isfinite(before) && isfinite(after) ? (pl_ns)llround(before - after) : INT64_MIN;
}

/* Without a line of the batch, so many steps have as many samples. */
static double samples_of(const struct search *s, const struct pl_rewrite *rw)
{
	return rw->op == PL_RW_BATCH ? s->samples : 1;
}

/* The lines without line i, in rw. */
static size_t without(const struct pl_plan *p, size_t i, struct pl_rewrite *rw)
{
	size_t n = 0;

	for (size_t k = 0; k < p->n_rw; k++) {
		const struct pl_rewrite *x = &p->rw[k];

		if (k != i) {
			rw[n++] = *x;
			continue;
		}
		for (uint32_t t = 0; x->op == PL_RW_FUSE_TENSORS && t < x->n_args; t++) {
			rw[n] = *x;
			rw[n].arg = x->arg + t;
			rw[n++].n_args = 1;
		}
	}
	return n;
}

static int judge(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	double none, all, mean;
	struct pl_rewrite *rw;
	size_t most = 0; /* lines that replace one, see without() */
	int rc;

	for (size_t i = 0; i < p->n_rw; i++)
		most = p->rw[i].n_args > most ? p->rw[i].n_args : most;
	PL_CHECK(pl_alloc(&rw, p->n_rw + most + 1, sizeof(*rw), err));
	PL_TRY(with_lines(s, p, rw, 0, &none, err));
	PL_TRY(with_lines(s, p, p->rw, p->n_rw, &all, err));
	for (size_t i = 0; i < p->n_rw; i++) {
		if (s->o->stop && *s->o->stop)
			break; /* their savings stay unknown */
		rw[0] = p->rw[i];
		PL_TRY(with_lines(s, p, rw, 1, &mean, err));
		p->rw[i].alone_ns = saved(none * samples_of(s, &p->rw[i]), mean);
		PL_TRY(with_lines(s, p, rw, without(p, i, rw), &mean, err));
		p->rw[i].in_plan_ns = saved(mean * samples_of(s, &p->rw[i]), all);
	}
out:
	pl_free(rw);
	return rc;
}

/* ---- what is too small to be proposed ---------------------------------------------------------
 */

/* Does it change which sharded parameters are gathered together, and when? */
static bool is_of_groups(unsigned op)
{
	return op == PL_RW_WRAP || op == PL_RW_PREFETCH || op == PL_RW_NO_RESHARD;
}

/* The share of a saving that may be wrong. The cost of communication in other parts is that of a
 * model, which errs more than other changes do. */
static double change_error(const struct search *s)
{
	bool carried = false, groups = false;

	for (size_t i = 0; i < s->p->n_rw; i++) {
		carried |= pl_rewrite_is_comm(s->p->rw[i].op);
		groups |= is_of_groups(s->p->rw[i].op);
	}
	if (!carried && !groups)
		return PL_SELFTEST_CHANGE;
	if (!pl_cost_by_threads(s->whole))
		return PL_SELFTEST_CARRIED_BY_DEVICES;
	return carried ? PL_SELFTEST_CARRIED_BY_HOSTS : PL_SELFTEST_LESS_BY_HOSTS;
}

/* Half of the 90 % interval of a saving, without the scatter of the steps, ns: the parts of
 * replay's interval. */
static double model_error(const struct search *s, double saving)
{
	double bias = isfinite(s->bias) ? fabs(s->bias) : 0;
	double change = change_error(s);

	if (bias <= PL_COST_BIAS_MAX * s->baseline)
		bias /= 2; /* predictions are corrected for it */
	return sqrt(pow(PL_SELFTEST_MODEL * s->baseline, 2) + pow(change * saving, 2) +
		    pow(bias, 2) + pow(PL_SELFTEST_NORMAL * s->work_ns, 2));
}

/* Sets s->scatter: each step saves another time by the plan; this is the standard deviation. If one
 * step stands for all, only the scatter of the lengths of all steps is known. */
static int find_scatter(struct search *s, const struct pl_plan *p, struct pl_err *err)
{
	size_t steps = s->worker[0].e.n_steps, n = 0;
	double mean, sum = 0, squares = 0;
	pl_ns *none, *with = NULL;
	int rc;

	s->scatter = s->o->noise.step * sqrt((double)s->o->noise.steps) * s->baseline;
	s->scatter_steps = s->o->noise.steps;
	PL_CHECK(pl_alloc(&none, steps, sizeof(*none), err));
	PL_TRY(pl_alloc(&with, steps, sizeof(*with), err));
	PL_TRY(measure_lines(s, p, NULL, 0, &mean, none, err));
	PL_TRY(measure_lines(s, p, p->rw, p->n_rw, &mean, with, err));
	for (size_t k = 0; isfinite(mean) && k < steps; k++) {
		double x = s->samples * (double)none[k] - (double)with[k];

		if (none[k] == INT64_MIN || with[k] == INT64_MIN)
			continue;
		sum += x;
		squares += x * x;
		n++;
	}
	if (n > 1) {
		s->scatter = sqrt(fmax(squares - sum * sum / (double)n, 0) / (double)(n - 1));
		s->scatter_steps = n;
	}
out:
	pl_free(with);
	pl_free(none);
	return rc;
}

double pl_search_scatter(double deviation, size_t steps, double saving)
{
	return steps > 1 ? pl_selftest_half(deviation, steps)
			 : PL_SELFTEST_NORMAL * PL_SELFTEST_SCATTER * fabs(saving);
}

double pl_search_error(const struct search *s, double saving)
{
	return hypot(model_error(s, saving),
		     pl_search_scatter(s->scatter, s->scatter_steps, saving));
}

/* What changes results or needs another machine must save more than its prediction may err. */
static bool is_doubted(unsigned op)
{
	return op == PL_RW_ALGORITHM || op == PL_RW_PRECISION || op == PL_RW_BATCH;
}

/* May the saving of the line be an error of the prediction? Then log that it is dropped. */
static bool is_small(const struct search *s, const struct pl_rewrite *rw)
{
	double saving = (double)pl_max_i64(rw->in_plan_ns, 0);
	char text[24], error[24], factor[24];

	if (s->o->any || !is_doubted(rw->op) || rw->in_plan_ns == INT64_MIN ||
	    saving > pl_search_error(s, saving))
		return false;
	snprintf(factor, sizeof(factor), "by=%g", rw->x);
	pl_say(s->o->log, PL_LOG_WARN,
	       "%s %s is not proposed: it would save %s of a step, and the prediction may err by "
	       "%s",
	       pl_plan_rewrite_name(rw->op), rw->word ? rw->word : factor,
	       pl_fmt_ns(text, sizeof(text), (pl_ns)saving),
	       pl_fmt_ns(error, sizeof(error), (pl_ns)pl_search_error(s, saving)));
	return true;
}

/* How many steps show a saving: their scatter and the model's error together are below it then. */
static void say_how_many_steps(const struct search *s, double saving, char *text, size_t size)
{
	double room = pow(saving, 2) - pow(model_error(s, saving), 2);
	double n = room > 0 ? pow(PL_SELFTEST_NORMAL * s->scatter, 2) / room : INFINITY;

	if (s->scatter_steps < 2)
		snprintf(text, size, "there is one step, and several show how much they differ");
	else if (n < 1e6)
		snprintf(text, size, "record at least %.0f steps to see a saving of this size",
			 fmax(ceil(n), (double)s->scatter_steps + 1));
	else
		snprintf(text, size, "no number of steps would show a saving of this size");
}

/* Beside another change, drop the choice of buckets if its part of the saving may be an error. */
static int drop_small_choice(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	bool other = false;
	double mean, saving;

	for (size_t i = 0; i < s->n_extra_lines; i++)
		other |= p->rw[i].op == PL_RW_LOADER_WORKERS;
	if (!other || p->n_rw <= s->n_extra_lines || !s->recorded_fits)
		return 0;
	PL_CHECK(with_lines(s, p, p->rw, s->n_extra_lines, &mean, err));
	saving = mean - s->best->mean;
	if (saving > pl_search_error(s, saving))
		return 0;
	p->n_rw = s->n_extra_lines;
	s->best->mean = mean;
	return 0;
}

/* Lines that memory needs stay, and so does a default that was asked for. */
static bool may_drop(const struct search *s, const struct pl_plan *p)
{
	if (s->o->any || !s->recorded_fits ||
	    (s->o->preset != PL_PRESET_SEARCH && s->o->preset != PL_PRESET_BEST))
		return false;
	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_ACCUMULATE || p->rw[i].op == PL_RW_RECOMPUTE)
			return false;
	return p->n_rw > 0;
}

/* Drop all lines if their saving may be an error of the prediction. none: the time without them for
 * as many samples. */
static void drop_if_small(struct search *s, struct pl_plan *p, double none)
{
	char text[24], error_text[24], steps[80];
	double saving = none - s->best->mean, error = pl_search_error(s, saving);
	double by = s->o->noise.mean_ns > 0 ? s->o->noise.mean_ns / s->baseline : 1;

	if (saving > error)
		return;
	say_how_many_steps(s, saving, steps, sizeof(steps));
	if (saving > 0)
		pl_say(s->o->log, PL_LOG_WARN,
		       "no change is proposed: the best plan would save %s of a step (%.1f %%), "
		       "and "
		       "the prediction may err by %s; %s",
		       pl_fmt_ns(text, sizeof(text), (pl_ns)(by * saving)), 100 * saving / none,
		       pl_fmt_ns(error_text, sizeof(error_text), (pl_ns)(by * error)), steps);
	else
		pl_say(s->o->log, PL_LOG_WARN,
		       "no change is proposed: no plan that was tried makes a step shorter");
	p->n_rw = 0;
	s->best->mean = none / s->samples;
	s->samples = 1;
}

void pl_search_judge_again(struct search *s, double none)
{
	if (may_drop(s, s->p))
		drop_if_small(s, s->p, none * s->samples);
}

/* The mean period with the lines, all steps in sequence. */
static int find_period(const struct search *s, struct pl_sim *sim, const struct pl_plan *p,
		       double *period, struct pl_err *err)
{
	struct pl_edit e = { 0 };
	struct pl_rewriter *r = NULL;
	struct pl_graph g;
	struct pl_sim *changed = NULL;
	struct pl_run run = { 0 };
	double mean;
	int rc;

	pl_graph_init(&g);
	PL_TRY(pl_sim_edit(sim, 0, s->whole->n_steps, &e, err));
	r = pl_rewrite_new(&e, s->cost, err);
	PL_TRY(r ? 0 : err->code);
	PL_TRY(pl_search_carry_out_plan(s, &e, r, p, &mean, err));
	PL_TRY(pl_edit_graph(&e, &g, err));
	changed = pl_sim_new(&g, err);
	PL_TRY(changed ? 0 : err->code);
	PL_TRY(pl_sim_run(changed, &run, err));
	*period = pl_sim_run_mean_period(changed, &run);
out:
	pl_sim_run_fini(&run);
	pl_sim_free(changed);
	pl_graph_fini(&g);
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	return rc;
}

int pl_search_use_period(struct search *s, struct pl_err *err)
{
	struct pl_sim *sim = pl_sim_new(s->whole, err);
	double none, with, model = s->baseline + (isfinite(s->bias) ? s->bias : 0);
	int rc = sim ? 0 : err->code;

	if (rc == 0 && s->p->n_rw && pl_sim_steps_overlap(sim)) {
		PL_TRY(find_period(s, sim, &(struct pl_plan){ .n_rw = 0 }, &none, err));
		PL_TRY(find_period(s, sim, s->p, &with, err));
		if (isfinite(none) && isfinite(with)) {
			s->best->mean = model * with / none;
			pl_search_judge_again(s, model);
		}
	}
out:
	pl_sim_free(sim);
	return rc;
}

int pl_search_use_recorded(struct search *s, struct pl_err *err)
{
	struct pl_edit e = { 0 };
	struct pl_rewriter *r = NULL;
	struct pl_sim *sim;
	double recorded;
	int rc;

	for (size_t i = 0; i < s->p->n_rw; i++)
		if (pl_rewrite_is_comm(s->p->rw[i].op) || s->p->rw[i].op == PL_RW_ACCUMULATE)
			return 0;
	if (!s->p->n_rw || !s->has_choices || pl_sim_steps_overlap(s->sim))
		return 0;
	sim = pl_sim_new(s->whole, err);
	PL_TRY(sim ? 0 : err->code);
	PL_TRY(pl_sim_edit(sim, 0, s->whole->n_steps, &e, err));
	recorded = pl_edit_mean_step(&e);
	r = pl_rewrite_new(&e, s->cost, err);
	PL_TRY(r ? 0 : err->code);
	PL_TRY(pl_rewrite_plan(r, s->p, err));
	s->best->mean = pl_edit_mean_step(&e);
	s->baseline = recorded;
	s->bias = 0;
	pl_search_judge_again(s, recorded);
out:
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	pl_sim_free(sim);
	return rc;
}

/* Judge the lines; judge again after some were dropped. */
static int judge_and_drop(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	size_t n = 0, all = p->n_rw, extras = s->n_extra_lines;
	double none;

	PL_CHECK(judge(s, p, err));
	PL_CHECK(find_scatter(s, p, err));
	for (size_t i = 0; i < all; i++) {
		if (!is_small(s, &p->rw[i])) {
			p->rw[n++] = p->rw[i];
			continue;
		}
		s->n_extra_lines -= i < extras;
		if (p->rw[i].op == PL_RW_BATCH)
			s->samples = 1;
	}
	p->n_rw = n;
	if (n == all)
		return 0;
	PL_CHECK(with_lines(s, p, NULL, 0, &none, err));
	PL_CHECK(with_lines(s, p, p->rw, n, &s->best->mean, err));
	if (s->best->mean < s->samples * none || s->limit_bytes)
		return judge_and_drop(s, p, err);
	p->n_rw = 0; /* the other lines do not help alone */
	s->samples = 1;
	s->best->mean = none;
	return 0;
}

int pl_search_write_lines(struct search *s, struct pl_err *err)
{
	struct pl_plan *p = s->p;
	double none;

	for (size_t i = 0; i < s->n_extra; i++)
		PL_CHECK(pl_plan_add(p, &s->extra[i], err));
	s->n_extra_lines = s->n_extra;
	pl_search_choice_move(s->choices, s->best);
	PL_CHECK(pl_search_choice_lines(s->choices, err));
	PL_CHECK(judge_and_drop(s, p, err));
	if (!may_drop(s, p) || pl_sim_steps_overlap(s->sim)) /* see pl_search_use_period() */
		return 0;
	PL_CHECK(drop_small_choice(s, p, err));
	PL_CHECK(with_lines(s, p, NULL, 0, &none, err));
	drop_if_small(s, p, none * s->samples);
	return 0;
}
