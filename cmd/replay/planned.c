/*
 * The job by a plan: all steps become one edit, rewrites are applied, the edit becomes a graph.
 *
 * The cost of communication is fitted to the graph as it was read. This model has errors, which are
 * mostly the same before and after a change. Therefore the recorded buckets of each step are
 * modelled too, and the error of that model is subtracted from the prediction. The rest of the
 * report is made from the planned graph in the same way as from any other.
 */
#include <math.h>

#include "program.h"

/* Where steps overlap, an operation that takes longer can delay the steps after it, so the bias of
 * the mean period is that of all steps in sequence. */
static int find_period_bias(const struct pl_edit *e, struct report *r, struct pl_err *err)
{
	struct pl_graph g;
	struct pl_run run = { 0 }, now = { 0 };
	struct pl_sim *s;
	int rc;

	PL_CHECK(pl_edit_graph(e, &g, err));
	s = pl_sim_new(&g, err);
	PL_TRY(s ? 0 : err->code);
	PL_TRY(pl_sim_run(s, &run, err));
	PL_TRY(pl_sim_run(r->s, &now, err));
	r->bias_period = pl_sim_run_mean_period(s, &run) - pl_sim_run_mean_period(r->s, &now);
out:
	pl_sim_run_fini(&now);
	pl_sim_run_fini(&run);
	pl_sim_free(s);
	pl_graph_fini(&g);
	return rc;
}

static int find_bias(struct pl_rewriter *rw, struct pl_edit *e, struct report *r,
		     struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(rw), n = 0;
	double sum = 0, length = 0;
	int rc;

	pl_free(r->bias);
	PL_CHECK(pl_alloc(&r->bias, e->n_steps, sizeof(*r->bias), err));
	for (uint32_t k = 0; k < e->n_steps; k++) {
		pl_ns recorded = pl_edit_step(e, k);

		r->bias[k] = recorded == INT64_MIN ? 0 : -recorded; /* not a step: none */
	}
	if ((rc = pl_rewrite_model(rw, err)) < 0 || (rc = pl_sim_settle(e, err)) < 0)
		return rc;
	for (uint32_t k = 0; k < e->n_steps; k++) {
		if (pl_edit_step(e, k) == INT64_MIN)
			continue;
		length -= (double)r->bias[k];
		r->bias[k] += pl_edit_step(e, k);
		sum += (double)r->bias[k];
		n++;
	}
	r->bias_mean = n ? sum / (double)n : NAN;
	r->bias_out = fabs(sum) <= PL_COST_BIAS_MAX * length;
	r->bias_period = r->bias_mean;
	if (r->overlap)
		PL_CHECK(find_period_bias(e, r, err));
	pl_rewrite_undo(rw, mark);
	return pl_sim_settle(e, err);
}

/* "fuse-tensors: 3 tensors (12 MB) are communicated as one, ..." */
int explain_plan(const struct pl_rewriter *rw, const struct pl_plan *p, struct report *r,
		 struct pl_err *err)
{
	for (size_t i = 0; i < p->n_rw; i++)
		pl_rewrite_explain(rw, &p->rw[i], &r->explained);
	return pl_write_check(&r->explained, err);
}

static int rewrite(struct pl_edit *e, const struct pl_cost *cost, const struct pl_plan *p,
		   struct report *report, struct pl_err *err)
{
	struct pl_rewriter *r = pl_rewrite_new(e, cost, err);
	const struct pl_rewrite_tensor *t;
	size_t estimated = 0;
	bool models = false, modelled = isfinite(report->bias_mean);
	bool same = !report->planned || report->basis.carries_same;
	uint32_t n;
	int rc = 0;

	if (!r)
		return err->code;
	t = pl_rewrite_tensors(r, &n);
	for (uint32_t i = 0; i < n; i++)
		estimated += t[i].estimated;
	for (size_t i = 0; i < p->n_rw && n; i++)
		models |= pl_rewrite_is_comm(p->rw[i].op) || p->rw[i].op == PL_RW_ACCUMULATE;
	if (models)
		note_sizes(&report->trust, estimated, n);
	/* what an earlier plan has modelled keeps the error of that model */
	if (models && !modelled)
		rc = find_bias(r, e, report, err);
	if (rc == 0)
		rc = pl_rewrite_plan(r, p, err);
	if (rc == 0)
		rc = pl_rewrite_check_base(r, p, err);
	if (rc == 0)
		rc = explain_plan(r, p, report, err);
	if (rc == 0)
		pl_rewrite_bases(r, &report->basis);
	report->planned = true;
	report->basis.carries_same = same && pl_rewrite_carries_same(p);
	report->basis.in_other_parts = (models || modelled) && report->basis.carries_same;
	/* a plan may move operations either way */
	report->basis.longer = report->basis.shorter = true;
	if (rc == 0 && report->basis.as_recorded && !modelled) {
		report->bias_mean = NAN;
		report->bias_out = false;
	}
	if (rc == 0 && knows_memory(e->g)) {
		pl_free(report->memory); /* of an earlier plan */
		report->memory = NULL;
		report->n_memory = 0;
		rc = add_memory(e, 1.0 / (double)pl_rewrite_accumulated(r), report, err);
	}
	pl_rewrite_free(r);
	return rc;
}

int use_plan(const struct pl_plan *p, const struct changes *x, struct report *r, struct pl_err *err)
{
	struct pl_edit e = { 0 };
	struct pl_cost cost = { 0 };
	int rc;

	PL_TRY(fit_cost(x, &r->g, &cost, err));
	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	PL_TRY(rewrite(&e, &cost, p, r, err));
	PL_TRY(take_graph(r, &e, err));
out:
	pl_edit_fini(&e);
	pl_cost_fini(&cost);
	return rc;
}
