/*
 * Settings that change the graph, each predicted as --what-if predicts it: in another report of the
 * same job. So both say the same.
 */
#include "program.h"

static int copy_graph(const struct report *r, struct pl_graph *g, struct pl_err *err)
{
	struct pl_edit e = { 0 };
	int rc;

	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	rc = pl_edit_graph(&e, g, err);
out:
	pl_edit_fini(&e);
	return rc;
}

static int predict(struct report *p, struct pl_pool *pool, struct pl_err *err)
{
	PL_CHECK(measure(p, err));
	PL_CHECK(judge_recording(p, err));
	PL_CHECK(test_graph(p, true, err));
	PL_CHECK(use_plan(&p->changes->plan, p->changes, p, err));
	PL_CHECK(explain(p, true, pool, err));
	correct_for_extra(p);
	return find_interval(p, err);
}

int try_setting(const struct report *r, const char *line, struct pl_pool *pool,
		struct saving *saves, struct pl_err *err)
{
	struct changes x = { .predictor = r->changes->predictor };
	struct report p = { .changes = &x, .optimizer = r->optimizer };
	double ratio;
	int rc;

	*saves = (struct saving){ 0 };
	pl_plan_init(&x.plan);
	PL_TRY(pl_rewrite_add_line(&x.plan, line, err));
	PL_TRY(copy_graph(r, &p.g, err));
	rc = predict(&p, pool, err);
	if (rc == PL_EDATA || rc == PL_EUSAGE || rc == PL_ENO || rc == PL_EABSENT) {
		*err = (struct pl_err){ 0 }; /* what cannot be applied or predicted is no advice */
		rc = 0;
		goto out;
	}
	PL_TRY(rc);
	ratio = p.predicted_step / p.replayed_step;
	*saves = (struct saving){ 1 - ratio, 1 - ratio - p.trust.first_high,
				  1 - ratio - p.trust.first_low };
out:
	report_fini(&p);
	pl_plan_fini(&x.plan);
	return rc;
}
