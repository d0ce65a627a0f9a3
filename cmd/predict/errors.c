/* Tables of errors: as text, CSV and JSON (schema paceline.eval/1). */
#include <math.h>

#include "core/words.h"
#include "program.h"

static const char *word_of(enum pl_eval_by by)
{
	return pl_words_name(PL_EVAL_BY("\0"), by);
}

static void write_percent(struct pl_writer *w, double v)
{
	if (isnan(v))
		pl_write_text(w, "       -");
	else
		pl_write_format(w, " %7.1f", 100 * v);
}

static void as_text(struct pl_writer *w, const struct pl_eval *e)
{
	pl_write_format(w, "%-7s %-36s %9s %7s %7s %7s %7s %7s %7s\n", "by", "", "n", "mean",
			"median", "p90", "<=10 %", "bias", "covered");
	for (size_t i = 0; i < e->n; i++) {
		const struct pl_eval_group *g = &e->v[i];

		pl_write_format(w, "%-7s %-36s %9zu", word_of(g->by), g->key, g->n);
		write_percent(w, g->mean_ape);
		write_percent(w, g->median_ape);
		write_percent(w, g->p90_ape);
		write_percent(w, g->within10);
		write_percent(w, g->bias);
		write_percent(w, g->coverage90);
		pl_write_text(w, "\n");
	}
	if (e->unpredicted)
		pl_write_format(w, "%zu measurements of unknown operations have no prediction\n",
				e->unpredicted);
	pl_write_text(w, "Percent. Errors: predicted / measured - 1. covered: measured within the "
			 "interval, of 90 wanted.\nshape: below and from twice the floor, what the "
			 "shortest operations of the device take.\n");
}

static void as_csv(struct pl_writer *w, const struct pl_eval *e)
{
	pl_write_text(w, "by,key,n,mean_ape,median_ape,p90_ape,within10,bias,coverage90\n");
	for (size_t i = 0; i < e->n; i++) {
		const struct pl_eval_group *g = &e->v[i];
		const double v[] = { g->mean_ape, g->median_ape, g->p90_ape,
				     g->within10, g->bias,	 g->coverage90 };

		pl_write_format(w, "%s,", word_of(g->by));
		pl_write_csv(w, g->key, strlen(g->key));
		pl_write_format(w, ",%zu", g->n);
		for (size_t k = 0; k < PL_LEN(v); k++)
			if (isnan(v[k]))
				pl_write_text(w, ",");
			else
				pl_write_format(w, ",%.6f", v[k]);
		pl_write_text(w, "\n");
	}
}

static void as_json(struct pl_writer *w, const struct pl_eval *e)
{
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.eval/1");
	pl_json_key(w, "groups");
	pl_json_open(w, '[');
	for (size_t i = 0; i < e->n; i++) {
		const struct pl_eval_group *g = &e->v[i];

		pl_json_open(w, '{');
		pl_json_str(w, "by", word_of(g->by));
		pl_json_str(w, "key", g->key);
		pl_json_int(w, "n", (int64_t)g->n);
		pl_json_real(w, "mean_ape", g->mean_ape);
		pl_json_real(w, "median_ape", g->median_ape);
		pl_json_real(w, "p90_ape", g->p90_ape);
		pl_json_real(w, "within10", g->within10);
		pl_json_real(w, "bias", g->bias);
		pl_json_real(w, "coverage90", g->coverage90);
		pl_json_close(w);
	}
	pl_json_close(w);
	pl_json_int(w, "unpredicted", (int64_t)e->unpredicted);
	pl_json_close(w);
	pl_write_text(w, "\n");
}

int write_errors(const struct work *w, const struct pl_samples *s, const struct pl_kernel_time *t,
		 struct pl_out *out, struct pl_err *err)
{
	struct pl_writer to = { 0 };
	struct pl_eval e;
	int rc;

	pl_write_init(&to, out, w->c->to == OUT_JSON ? 1 : 0);
	PL_TRY(pl_eval_groups(s, t, &e, err));
	if (!e.n)
		PL_TRY(pl_fail(err, PL_EDATA, "the model predicts none of the measurements"));
	if (w->c->to == OUT_JSON)
		as_json(&to, &e);
	else if (w->c->to == OUT_CSV)
		as_csv(&to, &e);
	else
		as_text(&to, &e);
	rc = pl_write_end(&to, err);
out:
	pl_write_fini(&to);
	pl_eval_fini(&e);
	return rc;
}
