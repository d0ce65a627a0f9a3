/*
 * A candidate as lines of a plan, with two savings for each line: the line alone on the recorded
 * job, and the line in the plan (the cost of leaving it out). Both are simulated. Without the line
 * of a bucket, its tensors are sent one at a time, because a reader of the plan alone would do so.
 * They do not return to recorded buckets, which other lines may have changed.
 */
#include <math.h>

#include "search/internal.h"

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

/* The mean step with some lines of the plan; INFINITY if they need the others. */
static int with_lines(struct search *s, const struct pl_plan *p, struct pl_rewrite *rw, size_t n,
		      double *mean, struct pl_err *err)
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
	pl_rewrite_undo(r, mark);
	return pl_search_allow_refusal(rc, err);
}

static pl_ns saved(double before, double after)
{
	return isfinite(before) && isfinite(after) ? (pl_ns)llround(before - after) : INT64_MIN;
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
		p->rw[i].alone_ns = saved(none, mean);
		PL_TRY(with_lines(s, p, rw, without(p, i, rw), &mean, err));
		p->rw[i].in_plan_ns = saved(mean, all);
	}
out:
	pl_free(rw);
	return rc;
}

/*
 * The least saving that justifies a change of the infrastructure: the possible error of the
 * prediction. This is the error of the model for the recorded step, or the scatter of the steps; at
 * least 1 %, because a graph from a table of layers has no measured error.
 */
static double least_saving(const struct search *s)
{
	double error = isfinite(s->bias) ? fabs(s->bias) : 0;

	return fmax(fmax(error, s->o->noise.step * s->baseline), 0.01 * s->baseline);
}

/* May the saving of the line be an error of the prediction? Then log that it is dropped. */
static bool is_small(const struct search *s, const struct pl_rewrite *rw)
{
	char saving[24], error[24];

	if ((rw->op != PL_RW_ALGORITHM && rw->op != PL_RW_PRECISION) ||
	    rw->in_plan_ns == INT64_MIN || (double)rw->in_plan_ns >= least_saving(s))
		return false;
	pl_say(s->o->log, PL_LOG_WARN,
	       "%s %s is not proposed: it would save %s of a step, and the prediction may err by "
	       "%s",
	       pl_plan_rewrite_name(rw->op), rw->word,
	       pl_fmt_ns(saving, sizeof(saving), pl_max_i64(rw->in_plan_ns, 0)),
	       pl_fmt_ns(error, sizeof(error), (pl_ns)least_saving(s)));
	return true;
}

/* Judge the lines; judge again after some were dropped. */
static int judge_and_drop(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	size_t n = 0, all = p->n_rw;
	double none;

	PL_CHECK(judge(s, p, err));
	for (size_t i = 0; i < all; i++)
		if (!is_small(s, &p->rw[i]))
			p->rw[n++] = p->rw[i];
	p->n_rw = n;
	if (n == all)
		return 0;
	PL_CHECK(with_lines(s, p, NULL, 0, &none, err));
	PL_CHECK(with_lines(s, p, p->rw, n, &s->best->mean, err));
	if (s->best->mean < none || s->limit_bytes)
		return judge_and_drop(s, p, err);
	p->n_rw = 0; /* the other lines do not help alone */
	s->best->mean = none;
	return 0;
}

int pl_search_write_lines(struct search *s, struct pl_err *err)
{
	struct pl_plan *p = s->p;

	for (size_t i = 0; i < s->n_extra; i++)
		PL_CHECK(pl_plan_add(p, &s->extra[i], err));
	pl_search_choice_move(s->choices, s->best);
	PL_CHECK(pl_search_choice_lines(s->choices, err));
	return judge_and_drop(s, p, err);
}
