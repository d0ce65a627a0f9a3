/*
 * Predictions for the rows of tables: columns that are added to the table, or, where a row holds
 * several operations, a row for each. Rows are answered in blocks, in their order.
 */
#include <math.h>

#include "core/words.h"
#include "program.h"

#define BLOCK 4096
#define FLUSH ((size_t)1 << 16) /* bytes of output that are written at once */

#define ADDED(s) "latency_ns" s "lo_ns" s "hi_ns" s "flag" /* columns */
#define N_ADDED	 4

struct answer {
	const struct work *w;
	struct pl_writer out;
	struct pl_samples s;	  /* of the block */
	struct pl_kernel_time *t; /* (BLOCK) */
	int64_t line[BLOCK];	  /* of each in its table */
	size_t at[BLOCK + 1];	  /* where the text of each begins, and its end */
	struct pl_writer text;	  /* what stands before the prediction */
	struct pl_buf header;	  /* of the first table */
	struct pl_buf old;	  /* [column] of the table: is it one that is added? */
	bool is_long, has_old;
	size_t explained; /* rows */
};

static void write_time(struct answer *a, const struct pl_kernel_time *t)
{
	const double v[3] = { t->ns, t->lo_ns, t->hi_ns };

	for (int i = 0; i < 3; i++) {
		pl_write_char(&a->out, ',');
		if (v[i] >= 0 && v[i] < 0x1p52 && !signbit(v[i]))
			pl_write_int(&a->out, (int64_t)nearbyint(v[i]));
		else if (!isnan(v[i]))
			pl_write_format(&a->out, "%.0f", v[i]);
	}
	pl_write_char(&a->out, ',');
	pl_write_text(&a->out, pl_kernel_flag_word(t->flag));
	pl_write_char(&a->out, '\n');
}

static int apply(struct answer *a, struct pl_err *err)
{
	int rc = pl_kernel_apply(a->w->model, &a->s, a->s.v, a->s.n, a->t, err);
	size_t i = 0;

	if (rc != PL_EDATA)
		return rc;
	while (i < a->s.n && !isnan(a->t[i].compute_ns)) /* the first whose rate is not known */
		i++;
	return i < a->s.n ? pl_wrap(err, "line %lld", (long long)a->line[i]) : rc;
}

static int end_block(struct answer *a, struct pl_err *err)
{
	if (!a->s.n)
		return 0;
	PL_CHECK(apply(a, err));
	a->at[a->s.n] = a->text.b.n;
	for (size_t i = 0; i < a->s.n; i++) {
		if (a->w->c->explain) {
			if (a->explained++)
				pl_write_text(&a->out, "\n");
			pl_kernel_explain(a->w->model, &a->s, &a->s.v[i], &a->t[i], &a->out);
			continue;
		}
		pl_write(&a->out, a->text.b.p + a->at[i], a->at[i + 1] - a->at[i]);
		write_time(a, &a->t[i]);
	}
	pl_write_flush(&a->out, FLUSH);
	a->s.n = 0;
	if (a->s.op.n > BLOCK) /* each block looks for all names */
		pl_intern_reset(&a->s.op);
	if (a->s.model.n > BLOCK)
		pl_intern_reset(&a->s.model);
	a->text.b.n = 0;
	return pl_write_check(&a->out, err);
}

/* Columns of another prediction, which this one replaces. Some of them alone are something else. */
static int find_old(struct answer *a, const struct pl_csv_row *raw, struct pl_err *err)
{
	const char *first = NULL;
	int n = 0;

	a->old.n = 0;
	for (size_t i = 0; i < raw->n; i++) {
		const uint8_t old = pl_words_find(ADDED("|"), raw->field[i]) >= 0;

		n += old;
		first = old && !first ? raw->field[i] : first;
		PL_CHECK(pl_buf_put(&a->old, &old, 1, err));
	}
	a->has_old = n > 0;
	if (n && n < N_ADDED && a->is_long && !a->w->c->explain)
		pl_say(&a->w->c->c.log, PL_LOG_WARN,
		       "the prediction replaces the table's own column \"%s\": give it another "
		       "name "
		       "to keep it",
		       first);
	return 0;
}

/* To the text, without columns that are added anew. */
static void write_row(struct answer *a, const struct pl_csv_row *raw)
{
	bool first = true;

	if (raw->text && !a->has_old) {
		pl_write(&a->text, raw->text, raw->n_text);
		return;
	}
	for (size_t i = 0; i < raw->n; i++) {
		if (a->old.p[i])
			continue;
		if (!first)
			pl_write_text(&a->text, ",");
		pl_write_csv(&a->text, raw->field[i], raw->len[i]);
		first = false;
	}
}

static int on_header(void *arg, const struct pl_csv_row *raw, struct pl_err *err)
{
	struct answer *a = arg;
	bool first = !a->header.n;
	int rc;

	PL_CHECK(find_old(a, raw, err));
	if (a->w->c->explain)
		return 0;
	write_row(a, raw);
	pl_write_text(&a->text, "\n");
	rc = pl_write_check(&a->text, err);
	if (rc >= 0 && first)
		rc = pl_buf_put(&a->header, a->text.b.p, a->text.b.n, err);
	else if (rc >= 0 && a->is_long &&
		 (a->text.b.n != a->header.n || memcmp(a->text.b.p, a->header.p, a->header.n) != 0))
		rc = pl_fail(err, PL_EDATA,
			     "line 1: its columns differ from those of the first table; ask for it "
			     "apart");
	a->text.b.n = 0;
	if (rc < 0 || !first)
		return rc;
	if (a->is_long)
		pl_write(&a->out, a->header.p, a->header.n - 1);
	else
		pl_write_text(&a->out, "row,op");
	pl_write_text(&a->out, "," ADDED(",") "\n");
	return 0;
}

static int on_measure(void *arg, const struct pl_measure *m, const struct pl_csv_row *raw,
		      struct pl_err *err)
{
	struct answer *a = arg;

	a->at[a->s.n] = a->text.b.n;
	a->line[a->s.n] = m->line;
	if (a->is_long) {
		write_row(a, raw);
	} else {
		pl_write_int(&a->text, m->row);
		pl_write_char(&a->text, ',');
		pl_write_csv(&a->text, m->op, strlen(m->op));
	}
	PL_CHECK(pl_write_check(&a->text, err));
	PL_CHECK(pl_samples_add(&a->s, m, &a->w->devices, err));
	return a->s.n == BLOCK ? end_block(a, err) : 0;
}

static int answer_table(struct answer *a, const char *path, const char *device, struct pl_err *err)
{
	const struct pl_measure_opts o = { .schema = a->w->schema,
					   .devices = &a->w->devices,
					   .device = device,
					   .no_latencies = true,
					   .log = &a->w->c->c.log,
					   .arg = a,
					   .header = on_header,
					   .measure = on_measure };
	struct pl_in *in = pl_in_open_any(path, err);
	bool is_read;
	int rc;

	if (!in)
		return err->code;
	rc = pl_table_read(in, &o, err);
	is_read = rc >= 0;
	if (is_read)
		rc = end_block(a, err);
	if (rc < 0 && (!is_read || rc == PL_EDATA) && strncmp(err->msg, path, strlen(path)) != 0 &&
	    strcmp(path, "-") != 0)
		pl_wrap(err, "%s", path);
	pl_in_close(in);
	return rc;
}

int answer_queries(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct answer *a;
	int rc;

	PL_CHECK(pl_alloc(&a, 1, sizeof(*a), err));
	a->w = w;
	a->is_long = pl_schema_is_long(w->schema);
	pl_write_init(&a->out, out, 0);
	PL_TRY(pl_alloc(&a->t, BLOCK, sizeof(*a->t), err));
	for (int i = 0; i < w->argc; i++)
		PL_TRY(answer_table(a, w->argv[i], w->device[i], err));
	rc = pl_write_end(&a->out, err);
out:
	pl_write_fini(&a->out);
	pl_write_fini(&a->text);
	pl_samples_fini(&a->s);
	pl_buf_fini(&a->header);
	pl_buf_fini(&a->old);
	pl_free(a->t);
	pl_free(a);
	return rc;
}
