/* The report of --stragglers: the cost of operations that take longer than others of their type. */
#include <string.h>

#include "program.h"
#include "sim/straggler.h"

struct part {
	const char *by, *json, *title;
	const struct pl_slow_list *list;
};
enum { SLOW_PARTS = 4 };

static void parts(const struct pl_stragglers *x, struct part *p)
{
	p[0] = (struct part){ "type", "by_type", "By type of operation", &x->by_type };
	p[1] = (struct part){ "stage", "by_stage", "By pipeline stage", &x->by_stage };
	p[2] = (struct part){ "dp", "by_dp", "By data-parallel rank", &x->by_dp };
	p[3] = (struct part){ "rank", "by_rank", "By rank", &x->by_rank };
}

static int print_object(const struct pl_stragglers *x, struct pl_out *out, struct pl_err *err)
{
	struct part part[SLOW_PARTS];
	struct pl_writer w;

	parts(x, part);
	pl_writer_init(&w, out, 0);
	pl_json_open(&w, '{');
	pl_json_str(&w, "schema", "paceline.straggler/1");
	pl_json_real(&w, "slowdown", x->slowdown);
	pl_json_real(&w, "actual_mean_ns", x->actual_ns);
	pl_json_real(&w, "ideal_mean_ns", x->ideal_ns);
	for (int i = 0; i < SLOW_PARTS; i++) {
		const struct pl_slow_list *l = part[i].list;

		pl_json_key(&w, part[i].json);
		pl_json_open(&w, '{');
		for (size_t k = 0; k < l->n; k++)
			pl_json_real(&w, l->v[k].key, l->v[k].slowdown);
		pl_json_close(&w);
	}
	pl_json_close(&w);
	return pl_json_end(&w, err);
}

static int print_rows(const struct pl_stragglers *x, enum pl_table_format f, struct pl_out *out,
		      struct pl_err *err)
{
	static const struct pl_column col[] = {
		{ "by", "by", PL_CELL_STR, 0 },
		{ "key", "key", PL_CELL_STR, 0 },
		{ "slowdown", "slowdown", PL_CELL_REAL, 0 },
	};
	struct pl_table *t = pl_table_new(col, PL_LEN(col), err);
	struct part part[SLOW_PARTS];
	const char *no_key = NULL;
	int rc;

	if (!t)
		return err->code;
	parts(x, part);
	PL_TRY(pl_table_row(t, err, "job", no_key, x->slowdown));
	for (int i = 0; i < SLOW_PARTS; i++)
		for (size_t k = 0; k < part[i].list->n; k++)
			PL_TRY(pl_table_row(t, err, part[i].by, part[i].list->v[k].key,
					    part[i].list->v[k].slowdown));
	rc = pl_table_print(t, out, f, NULL, err);
out:
	pl_table_free(t);
	return rc;
}

/* ---- for people ------------------------------------------------------------------------------ */

static int print_part(const struct config *c, const struct pl_stragglers *x, const struct part *p,
		      struct pl_out *out, struct pl_err *err)
{
	static const struct pl_column col[] = {
		{ "slowdown", "slowdown", PL_CELL_STR, 0 },
		{ "adds", "adds to a step", PL_CELL_STR, 0 },
		{ "key", "", PL_CELL_STR, 64 },
	};
	const struct pl_slow_list *l = p->list;
	size_t n = c->top > 0 && (uint64_t)c->top < l->n ? (size_t)c->top : l->n;
	bool color = pl_use_color(&c->c, 1);
	struct pl_table *t;
	int rc;

	if (!l->n)
		return 0;
	t = pl_table_new(col, PL_LEN(col), err);
	if (!t)
		return err->code;
	for (size_t i = 0; i < n; i++) {
		char slow[32], adds[32];

		snprintf(slow, sizeof(slow), "%.4f", l->v[i].slowdown);
		fmt_ns(adds, sizeof(adds), (l->v[i].slowdown - 1) * x->ideal_ns);
		PL_TRY(pl_table_row(t, err, slow, adds, l->v[i].key));
	}
	PL_TRY(pl_out_printf(out, err, "\n%s%s%s\n", color ? "\033[1m" : "", p->title,
			     color ? "\033[0m" : ""));
	PL_TRY(pl_table_print(t, out, PL_TABLE_TEXT, NULL, err));
	rc = n == l->n
		     ? 0
		     : pl_out_printf(out, err, "... and %zu more (--top=0 shows all)\n", l->n - n);
out:
	pl_table_free(t);
	return rc;
}

static int print_words(const struct config *c, const struct pl_stragglers *x, struct pl_out *out,
		       struct pl_err *err)
{
	bool color = pl_use_color(&c->c, 1);
	struct part part[SLOW_PARTS];
	char actual[32], ideal[32];
	int rc;

	parts(x, part);
	PL_TRY(pl_out_printf(out, err,
			     "%sslowdown %.4f: step %s without launch delays, %s if every "
			     "operation took its typical time%s\n",
			     color ? "\033[1m" : "", x->slowdown,
			     fmt_ns(actual, sizeof(actual), x->actual_ns),
			     fmt_ns(ideal, sizeof(ideal), x->ideal_ns), color ? "\033[0m" : ""));
	for (int i = 0; i < SLOW_PARTS; i++)
		PL_TRY(print_part(c, x, &part[i], out, err));
out:
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int print(const struct config *c, const struct pl_stragglers *x, struct pl_out *out,
		 struct pl_err *err)
{
	static const enum pl_table_format format[] = {
		[AS_CSV] = PL_TABLE_CSV, [AS_TSV] = PL_TABLE_TSV, [AS_JSONL] = PL_TABLE_JSONL
	};

	if (c->to == AS_TEXT)
		return print_words(c, x, out, err);
	if (c->to == AS_JSON)
		return print_object(x, out, err);
	return print_rows(x, format[c->to], out, err);
}

static int check(const struct config *c, int argc, struct pl_err *err)
{
	if (argc > 1)
		return pl_fail(err, PL_EUSAGE, "--stragglers is for one graph, not for two");
	if (c->whatif.n || c->whatif_file.n || c->timeline || c->table != SEC_ALL)
		return pl_fail(err, PL_EUSAGE,
			       "--stragglers is a report of its own: not together with --%s",
			       c->timeline	     ? "timeline"
			       : c->table != SEC_ALL ? "table"
						     : "what-if");
	return 0;
}

int find_stragglers(const struct config *c, int argc, char **argv, struct pl_pool *pool,
		    struct pl_out *out, struct pl_err *err)
{
	const char *path = argc ? argv[0] : "-";
	struct report r = { 0 };
	struct pl_stragglers x = { 0 };
	int rc;

	PL_TRY(check(c, argc, err));
	PL_TRY(read_graph(c, path, pool, &r, err));
	if ((rc = pl_sim_stragglers_find(&r.g, pool, &x, err)) < 0) {
		pl_wrap(err, "%s", strcmp(path, "-") ? path : "stdin");
		goto out;
	}
	rc = print(c, &x, out, err);
out:
	pl_sim_stragglers_fini(&x);
	report_fini(&r);
	return rc;
}
