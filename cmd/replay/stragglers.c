/* The report of --stragglers: the cost of operations that take longer than others of their type. */
#include "program.h"
#include "sim/straggler.h"

static const struct {
	const char *by, *json, *title;
} parts[PL_SLOW_COUNT_] = {
	[PL_SLOW_TYPE] = { "type", "by_type", "By type of operation" },
	[PL_SLOW_STAGE] = { "stage", "by_stage", "By pipeline stage" },
	[PL_SLOW_DP] = { "dp", "by_dp", "By data-parallel rank" },
	[PL_SLOW_RANK] = { "rank", "by_rank", "By rank" },
};

static void print_object(const struct pl_stragglers *x, struct pl_writer *w)
{
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.straggler/1");
	pl_json_real(w, "slowdown", x->slowdown);
	pl_json_real(w, "actual_mean_ns", x->actual_ns);
	pl_json_real(w, "ideal_mean_ns", x->ideal_ns);
	for (int i = 0; i < PL_SLOW_COUNT_; i++) {
		const struct pl_slow_list *l = &x->by[i];

		pl_json_key(w, parts[i].json);
		pl_json_open(w, '{');
		for (size_t k = 0; k < l->n; k++)
			pl_json_real(w, l->v[k].key, l->v[k].slowdown);
		pl_json_close(w);
	}
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void print_rows(const struct pl_stragglers *x, enum pl_table_format f, struct pl_writer *w)
{
	static const struct pl_column col[] = {
		{ "by", "by", PL_CELL_STR, 0 },
		{ "key", "key", PL_CELL_STR, 0 },
		{ "slowdown", "slowdown", PL_CELL_REAL, 0 },
	};
	struct pl_table t = PL_TABLE(col);
	const char *no_key = NULL;

	pl_table_row(&t, "job", no_key, x->slowdown);
	for (int i = 0; i < PL_SLOW_COUNT_; i++)
		for (size_t k = 0; k < x->by[i].n; k++)
			pl_table_row(&t, parts[i].by, x->by[i].v[k].key, x->by[i].v[k].slowdown);
	pl_table_write(&t, w, f, NULL);
	pl_table_fini(&t);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_part(const struct config *c, const struct pl_stragglers *x, int by,
		       struct pl_writer *w)
{
	static const struct pl_column col[] = {
		{ "slowdown", "slowdown", PL_CELL_STR, 0 },
		{ "adds", "adds to a step", PL_CELL_STR, 0 },
		{ "key", "", PL_CELL_STR, 64 },
	};
	const struct pl_slow_list *l = &x->by[by];
	size_t n = c->top > 0 && (uint64_t)c->top < l->n ? (size_t)c->top : l->n;
	struct pl_table t = PL_TABLE(col);

	if (!l->n)
		return;
	for (size_t i = 0; i < n; i++) {
		char slow[32], adds[32];

		snprintf(slow, sizeof(slow), "%.4f", l->v[i].slowdown);
		fmt_ns(adds, sizeof(adds), (l->v[i].slowdown - 1) * x->ideal_ns);
		pl_table_row(&t, slow, adds, l->v[i].key);
	}
	print_heading(c, parts[by].title, w);
	pl_table_write(&t, w, PL_TABLE_TEXT, NULL);
	if (n < l->n)
		pl_write_format(w, "... and %zu more (--top=0 shows all)\n", l->n - n);
	pl_table_fini(&t);
}

static void print_words(const struct config *c, const struct pl_stragglers *x, struct pl_writer *w)
{
	bool color = pl_use_color(&c->c, 1);
	char actual[32], ideal[32];

	pl_write_format(w,
			"%sslowdown %.4f: step %s without launch delays, %s if every "
			"operation took its typical time%s\n",
			color ? "\033[1m" : "", x->slowdown,
			fmt_ns(actual, sizeof(actual), x->actual_ns),
			fmt_ns(ideal, sizeof(ideal), x->ideal_ns), color ? "\033[0m" : "");
	for (int i = 0; i < PL_SLOW_COUNT_; i++)
		print_part(c, x, i, w);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int print(const struct config *c, const struct pl_stragglers *x, struct pl_out *out,
		 struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	if (c->to == AS_TEXT)
		print_words(c, x, &w);
	else if (c->to == AS_JSON)
		print_object(x, &w);
	else
		print_rows(x, table_format[c->to], &w);
	return pl_write_end(&w, err);
}

static int check(const struct config *c, struct pl_err *err)
{
	if (c->n_jobs > 1)
		return pl_fail(err, PL_EUSAGE, "--stragglers is for one graph, not for two");
	if (c->whatif.n || c->whatif_file.n || c->timeline || c->table != SEC_ALL)
		return pl_fail(err, PL_EUSAGE,
			       "--stragglers is a report of its own: not together with --%s",
			       c->timeline	     ? "timeline"
			       : c->table != SEC_ALL ? "table"
						     : "what-if");
	return 0;
}

int find_stragglers(struct config *c, struct pl_pool *pool, struct pl_out *out, struct pl_err *err)
{
	struct report r = { 0 };
	struct pl_stragglers x = { 0 };
	int rc;

	PL_TRY(check(c, err));
	PL_TRY(read_graph(c, &c->job[0], pool, &r, err));
	if ((rc = pl_sim_stragglers_find(&r.g, pool, &x, err)) < 0) {
		pl_wrap(err, "%s", pl_inputs_all(&c->job[0].inputs));
		goto out;
	}
	rc = print(c, &x, out, err);
out:
	pl_sim_stragglers_fini(&x);
	report_fini(&r);
	return rc;
}
