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

static void print_object(const struct pl_stragglers *x, const struct part *part,
			 struct pl_writer *w)
{
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.straggler/1");
	pl_json_real(w, "slowdown", x->slowdown);
	pl_json_real(w, "actual_mean_ns", x->actual_ns);
	pl_json_real(w, "ideal_mean_ns", x->ideal_ns);
	for (int i = 0; i < SLOW_PARTS; i++) {
		const struct pl_slow_list *l = part[i].list;

		pl_json_key(w, part[i].json);
		pl_json_open(w, '{');
		for (size_t k = 0; k < l->n; k++)
			pl_json_real(w, l->v[k].key, l->v[k].slowdown);
		pl_json_close(w);
	}
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void print_rows(const struct pl_stragglers *x, const struct part *part,
		       enum pl_table_format f, struct pl_writer *w)
{
	static const struct pl_column col[] = {
		{ "by", "by", PL_CELL_STR, 0 },
		{ "key", "key", PL_CELL_STR, 0 },
		{ "slowdown", "slowdown", PL_CELL_REAL, 0 },
	};
	struct pl_table t = PL_TABLE(col);
	const char *no_key = NULL;

	pl_table_row(&t, "job", no_key, x->slowdown);
	for (int i = 0; i < SLOW_PARTS; i++)
		for (size_t k = 0; k < part[i].list->n; k++)
			pl_table_row(&t, part[i].by, part[i].list->v[k].key,
				     part[i].list->v[k].slowdown);
	pl_table_write(&t, w, f, NULL);
	pl_table_fini(&t);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_part(const struct config *c, const struct pl_stragglers *x, const struct part *p,
		       struct pl_writer *w)
{
	static const struct pl_column col[] = {
		{ "slowdown", "slowdown", PL_CELL_STR, 0 },
		{ "adds", "adds to a step", PL_CELL_STR, 0 },
		{ "key", "", PL_CELL_STR, 64 },
	};
	const struct pl_slow_list *l = p->list;
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
	print_heading(c, p->title, w);
	pl_table_write(&t, w, PL_TABLE_TEXT, NULL);
	if (n < l->n)
		pl_write_format(w, "... and %zu more (--top=0 shows all)\n", l->n - n);
	pl_table_fini(&t);
}

static void print_words(const struct config *c, const struct pl_stragglers *x,
			const struct part *part, struct pl_writer *w)
{
	bool color = pl_use_color(&c->c, 1);
	char actual[32], ideal[32];

	pl_write_format(w,
			"%sslowdown %.4f: step %s without launch delays, %s if every "
			"operation took its typical time%s\n",
			color ? "\033[1m" : "", x->slowdown,
			fmt_ns(actual, sizeof(actual), x->actual_ns),
			fmt_ns(ideal, sizeof(ideal), x->ideal_ns), color ? "\033[0m" : "");
	for (int i = 0; i < SLOW_PARTS; i++)
		print_part(c, x, &part[i], w);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int print(const struct config *c, const struct pl_stragglers *x, struct pl_out *out,
		 struct pl_err *err)
{
	struct part part[SLOW_PARTS];
	struct pl_writer w;

	parts(x, part);
	pl_writer_init(&w, out, 0);
	if (c->to == AS_TEXT)
		print_words(c, x, part, &w);
	else if (c->to == AS_JSON)
		print_object(x, part, &w);
	else
		print_rows(x, part, table_format[c->to], &w);
	return pl_writer_end(&w, err);
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
