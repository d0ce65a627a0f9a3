/* The text form of paceline-plan(5): read and written by the schema in plan.c. Linear. */
#include "plan/internal.h"

/* ---- reading --------------------------------------------------------------------------------- */

static int read_tensor(struct pl_plan *p, const struct pl_lang_statement *st, struct pl_err *err)
{
	const struct pl_lang_value *set = pl_lang_get(st, "set");
	struct pl_ptensor t = { .set = set ? (uint32_t)set->i : PL_NONE,
				.line = st->line,
				.column = st->value[0].column };

	PL_CHECK(pl_lang_bind(st, &t, &p->arena, err));
	return pl_append(&p->tensor, &p->n_tensors, &p->cap_tensors, &t, sizeof(t), err);
}

static int read_rewrite(struct pl_plan *p, const struct pl_lang_statement *st, unsigned op,
			struct pl_err *err)
{
	struct pl_rewrite rw = { .op = (uint8_t)op,
				 .arg = st->list,
				 .n_args = (uint32_t)st->n_list,
				 .column = st->column,
				 .to = -1,
				 .alone_ns = INT64_MIN,
				 .in_plan_ns = INT64_MIN,
				 .line = st->line };
	int rc = pl_lang_bind(st, &rw, &p->arena, err);

	/* a factor of 0 stands for one that is not given */
	if (op == PL_RW_SCALE && rw.x == 0)
		rw.op = PL_RW_REMOVE;
	if (op == PL_RW_LATENCY && pl_lang_get(st, "by") && rw.x == 0 && rw.to < 0)
		rw.to = 0;
	return rc < 0 ? rc : pl_plan_add(p, &rw, err);
}

static int read_statement(struct pl_plan *p, const struct pl_lang_statement *st, struct pl_err *err)
{
	const char *name = st->row->name;
	int op = pl_plan_rewrite_find(name);

	if (op >= 0)
		return read_rewrite(p, st, (unsigned)op, err);
	if (!strcmp(name, "tensor"))
		return read_tensor(p, st, err);
	if (!strcmp(name, "incomplete"))
		p->complete = false;
	if (strcmp(name, "provenance") != 0)
		return pl_lang_bind(st, p, &p->arena, err);
	PL_CHECK(pl_buf_put(&p->provenance, st->value[0].s, strlen(st->value[0].s), err));
	return pl_buf_put(&p->provenance, "\n", 1, err);
}

int pl_plan_read_text(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct pl_lang_reader r;
	int rc = pl_lang_open(&r, &pl_plan_schema, in, name, err);

	while (rc >= 0 && (rc = pl_lang_next(&r, err)) > 0)
		rc = read_statement(p, &r.st, err);
	pl_lang_close(&r);
	return rc;
}

/* The message, behind the text that it is about and before what may be written. */
static int refuse(const struct pl_lang_row *row, const char *text, const struct pl_err *why,
		  struct pl_err *err)
{
	struct pl_buf usage = { 0 };
	int rc = why->code;

	if (rc == PL_ENOMEM)
		return pl_fail(err, rc, "%s", why->msg);
	if (row && !strstr(why->msg, "; write: ") && pl_lang_usage(&usage, row, err) < 0) {
		pl_buf_fini(&usage);
		return PL_ENOMEM;
	}
	rc = pl_fail(err, PL_EUSAGE, "what-if \"%s\": %s%s%.*s", text, why->msg,
		     usage.n ? "; expected: " : "", (int)usage.n, usage.n ? (char *)usage.p : "");
	pl_buf_fini(&usage);
	return rc;
}

int pl_plan_refuse_line(struct pl_plan *p, const struct pl_err *why, struct pl_err *err)
{
	const struct pl_rewrite *rw = &p->rw[--p->n_rw];

	return refuse(&pl_plan_schema.row[rw->op], rw->text, why, err);
}

int pl_plan_add_line(struct pl_plan *p, const char *text, struct pl_err *err)
{
	const struct pl_lang_schema lines = { .name = "plan",
					      .version = PL_PLAN_MAJOR,
					      .row = pl_plan_schema.row,
					      .n_rows = PL_RW_COUNT_ };
	struct pl_lang_reader r;
	struct pl_err why = { 0 };
	size_t n = p->n_rw;
	int rc = pl_lang_option(&r, &lines, text, &why);

	if (rc >= 0)
		rc = read_rewrite(p, &r.st, (unsigned)(r.st.row - lines.row), &why);
	if (rc >= 0)
		rc = pl_plan_check_rewrite(&p->rw[n], &why);
	if (rc >= 0)
		rc = pl_dup(&p->arena, &p->rw[n].text, text, &why);
	if (rc < 0) {
		rc = refuse(r.st.row, text, &why, err);
		p->n_rw = n;
	}
	pl_lang_close(&r);
	return rc < 0 ? rc : 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static const struct pl_lang_row *row_of(const char *name)
{
	return pl_lang_row(&pl_plan_schema, name);
}

/* Statements of the plan itself: those whose value is not that of an empty plan. */
static void put_head(struct pl_writer *w, struct pl_lang_statement *st, const struct pl_plan *p)
{
	const struct pl_lang_row *row = pl_plan_schema.row + PL_RW_COUNT_;
	struct pl_plan usual;

	pl_plan_init(&usual);
	pl_write_format(w, "paceline-plan %d\n", PL_PLAN_MAJOR);
	for (; row->once && row->field; row++)
		pl_lang_write_struct(w, st, &pl_plan_schema, row, p, &usual);
	pl_write_text(w, p->complete ? "" : "incomplete\n");
}

/* A line of provenance; `line` is room for it. */
static void put_provenance(struct pl_writer *w, struct pl_lang_statement *st, const char *s,
			   size_t n, struct pl_buf *line)
{
	line->n = 0;
	if (pl_lang_begin(st, &pl_plan_schema, row_of("provenance"), &w->fail) < 0 ||
	    pl_buf_put(line, s, n, &w->fail) < 0 || pl_buf_put(line, "", 1, &w->fail) < 0)
		return;
	st->value[0] = (struct pl_lang_value){ .present = true, .s = (const char *)line->p };
	pl_lang_write(w, st);
	pl_write_char(w, '\n');
}

static void put_tensor(struct pl_writer *w, struct pl_lang_statement *st,
		       const struct pl_ptensor *t)
{
	const struct pl_lang_row *row = row_of("tensor");
	const struct pl_ptensor usual = { .bytes = -1 };

	if (pl_lang_begin(st, &pl_plan_schema, row, &w->fail) < 0)
		return;
	pl_lang_unbind(st, t, &usual);
	st->value[pl_lang_field(row, "set", NULL) - row->field] =
		(struct pl_lang_value){ .present = t->set != PL_NONE, .i = t->set };
	pl_lang_write(w, st);
	pl_write_char(w, '\n');
}

int pl_plan_write_text(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_buf line = { 0 };
	struct pl_writer w;

	PL_CHECK(pl_plan_check(p, err));
	pl_write_init(&w, out, 0);
	put_head(&w, &st, p);
	for (size_t at = 0, n; at < p->provenance.n; at += n + 1) {
		const char *s = (const char *)p->provenance.p + at;
		const char *nl = memchr(s, '\n', p->provenance.n - at);

		n = nl ? (size_t)(nl - s) : p->provenance.n - at;
		if (n)
			put_provenance(&w, &st, s, n, &line);
	}
	for (size_t i = 0; i < p->n_tensors; i++)
		put_tensor(&w, &st, &p->tensor[i]);
	for (size_t i = 0; i < p->n_rw && pl_plan_statement(&p->rw[i], &st, &w.fail) >= 0; i++) {
		pl_lang_write(&w, &st);
		pl_write_char(&w, '\n');
	}
	if (!p->n_rw) /* a reader who looks for changes sees that none was lost */
		pl_write_text(&w, "# no change is proposed\n");
	pl_lang_end(&st);
	pl_buf_fini(&line);
	return pl_write_end(&w, err);
}

int pl_plan_add_texts(struct pl_plan *p, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_writer w = { 0 };
	int rc = 0;

	for (size_t i = 0; i < p->n_rw; i++) {
		if (p->rw[i].text)
			continue;
		w.b.n = 0;
		PL_TRY(pl_plan_statement(&p->rw[i], &st, err));
		pl_lang_write(&w, &st);
		pl_write_char(&w, '\0');
		PL_TRY(pl_write_check(&w, err));
		PL_TRY(pl_dup(&p->arena, &p->rw[i].text, (const char *)w.b.p, err));
	}
out:
	pl_lang_end(&st);
	pl_buf_fini(&w.b);
	return rc;
}
