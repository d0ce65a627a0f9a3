/* A plan as JSON for other programs: "paceline.plan/1", whose members paceline-plan(5) lists. */
#include <string.h>

#include "plan/internal.h"

static int put_known(struct pl_jsonw *w, const char *key, int64_t v, int64_t unknown,
		     struct pl_err *err)
{
	int rc = pl_jsonw_key(w, key, err);

	if (rc < 0)
		return rc;
	return v == unknown ? pl_jsonw_null(w, err) : pl_jsonw_i64(w, v, err);
}

static int put_tensor(struct pl_jsonw *w, const struct pl_ptensor *t, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "name", t->name, err));
	PL_TRY(pl_jsonw_ki64(w, "bytes", t->bytes, err));
	PL_TRY(pl_jsonw_key(w, "estimated", err));
	PL_TRY(pl_jsonw_bool(w, t->estimated, err));
	if (t->set != PL_NONE)
		PL_TRY(pl_jsonw_ki64(w, "set", t->set, err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_rewrite(struct pl_jsonw *w, const struct pl_rewrite *rw,
		       struct pl_lang_statement *st, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "op", pl_rw_name(rw->op), err));
	PL_TRY(pl_plan_statement(rw, st, err));
	PL_TRY(pl_lang_put_json(w, st, err));
	PL_TRY(put_known(w, "saves_alone_ns", rw->alone_ns, INT64_MIN, err));
	PL_TRY(put_known(w, "saves_in_plan_ns", rw->in_plan_ns, INT64_MIN, err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_head(struct pl_jsonw *w, const struct pl_plan *p, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_kstr(w, "schema", "paceline.plan/1", err));
	PL_TRY(pl_jsonw_kstr(w, "base", p->base, err));
	PL_TRY(put_known(w, "ranks", p->ranks, 0, err));
	PL_TRY(put_known(w, "baseline_ns", p->baseline_ns, INT64_MIN, err));
	PL_TRY(put_known(w, "predicted_ns", p->predicted_ns, INT64_MIN, err));
	PL_TRY(put_known(w, "bound_ns", p->bound_ns, INT64_MIN, err));
	PL_TRY(put_known(w, "model_ns", p->model_ns, INT64_MIN, err));
	PL_TRY(put_known(w, "evaluations", p->evaluations, -1, err));
	PL_TRY(put_known(w, "peak_bytes", p->peak_bytes, -1, err));
	PL_TRY(pl_jsonw_key(w, "complete", err));
	rc = pl_jsonw_bool(w, p->complete, err);
out:
	return rc;
}

int pl_plan_write_json(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_jsonw w;
	int rc;

	PL_TRY(pl_plan_check(p, err));
	pl_jsonw_init(&w, out, 2);
	PL_TRY(pl_jsonw_open(&w, '{', err));
	PL_TRY(put_head(&w, p, err));
	PL_TRY(pl_jsonw_key(&w, "tensors", err));
	PL_TRY(pl_jsonw_open(&w, '[', err));
	for (size_t i = 0; i < p->n_tensors; i++)
		PL_TRY(put_tensor(&w, &p->tensor[i], err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(pl_jsonw_key(&w, "rewrites", err));
	PL_TRY(pl_jsonw_open(&w, '[', err));
	for (size_t i = 0; i < p->n_rw; i++)
		PL_TRY(put_rewrite(&w, &p->rw[i], &st, err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(pl_jsonw_close(&w, err));
	rc = pl_out_write(out, "\n", 1, err);
out:
	pl_lang_end(&st);
	return rc;
}
