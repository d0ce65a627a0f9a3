/* A plan as JSON for other programs: "paceline.plan/1", whose members paceline-plan(5) lists. */
#include "plan/internal.h"

static void put_known(struct pl_writer *w, const char *key, int64_t v, int64_t unknown)
{
	pl_json_key(w, key);
	if (v == unknown)
		pl_json_put_null(w);
	else
		pl_json_put_int(w, v);
}

static void put_tensor(struct pl_writer *w, const struct pl_ptensor *t)
{
	pl_json_open(w, '{');
	pl_json_str(w, "name", t->name);
	pl_json_int(w, "bytes", t->bytes);
	pl_json_bool(w, "estimated", t->estimated);
	if (t->set != PL_NONE)
		pl_json_int(w, "set", t->set);
	if (t->stage)
		pl_json_int(w, "stage", t->stage);
	pl_json_close(w);
}

static void put_rewrite(struct pl_writer *w, const struct pl_rewrite *rw,
			struct pl_lang_statement *st)
{
	if (pl_plan_statement(rw, st, &w->fail) < 0)
		return;
	pl_json_open(w, '{');
	pl_json_str(w, "op", pl_plan_rewrite_name(rw->op));
	pl_lang_put_json(w, st);
	put_known(w, "saves_alone_ns", rw->alone_ns, INT64_MIN);
	put_known(w, "saves_in_plan_ns", rw->in_plan_ns, INT64_MIN);
	pl_json_close(w);
}

static void put_head(struct pl_writer *w, const struct pl_plan *p)
{
	pl_json_str(w, "schema", "paceline.plan/1");
	pl_json_str(w, "base", p->base);
	put_known(w, "ranks", p->ranks, 0);
	put_known(w, "baseline_ns", p->baseline_ns, INT64_MIN);
	put_known(w, "predicted_ns", p->predicted_ns, INT64_MIN);
	put_known(w, "error_ns", p->error_ns, INT64_MIN);
	put_known(w, "bound_ns", p->bound_ns, INT64_MIN);
	put_known(w, "model_ns", p->model_ns, INT64_MIN);
	put_known(w, "evaluations", p->evaluations, -1);
	put_known(w, "peak_bytes", p->peak_bytes, -1);
	pl_json_bool(w, "complete", p->complete);
}

int pl_plan_write_json(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_writer w;
	int rc;

	PL_TRY(pl_plan_check(p, err));
	pl_write_init(&w, out, 2);
	pl_json_open(&w, '{');
	put_head(&w, p);
	pl_json_key(&w, "tensors");
	pl_json_open(&w, '[');
	for (size_t i = 0; i < p->n_tensors; i++)
		put_tensor(&w, &p->tensor[i]);
	pl_json_close(&w);
	pl_json_key(&w, "rewrites");
	pl_json_open(&w, '[');
	for (size_t i = 0; i < p->n_rw; i++)
		put_rewrite(&w, &p->rw[i], &st);
	pl_json_close(&w);
	pl_json_close(&w);
	rc = pl_json_end(&w, err);
out:
	pl_lang_end(&st);
	return rc;
}
