/* The text form of paceline-plan(5): read and written by the schema in plan.c. Linear. */
#include <string.h>

#include "plan/internal.h"

/* ---- reading ------------------------------------------------------------------------------------
 */

static int read_tensor(struct pl_plan *p, const struct pl_lang_statement *st, struct pl_err *err)
{
	const struct pl_lang_value *set = pl_lang_get(st, "set");
	struct pl_ptensor t = { .set = set ? (uint32_t)set->i : PL_NONE, .line = st->line };
	int rc;

	PL_TRY(pl_lang_bind(st, &t, &p->arena, err));
	PL_TRY(pl_grow(&p->tensor, &p->cap_tensors, p->n_tensors + 1, sizeof(*p->tensor), err));
	p->tensor[p->n_tensors++] = t;
out:
	return rc;
}

static int read_rewrite(struct pl_plan *p, const struct pl_lang_statement *st, unsigned op,
			struct pl_err *err)
{
	struct pl_rewrite rw = { .op = (uint8_t)op,
				 .arg = st->list,
				 .n_args = (uint32_t)st->n_list,
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
	int rc, op = pl_rw_find(name);

	if (op >= 0)
		return read_rewrite(p, st, (unsigned)op, err);
	if (!strcmp(name, "tensor"))
		return read_tensor(p, st, err);
	if (!strcmp(name, "incomplete"))
		p->complete = false;
	if (strcmp(name, "provenance") != 0)
		return pl_lang_bind(st, p, &p->arena, err);
	rc = pl_buf_put(&p->provenance, st->value[0].s, strlen(st->value[0].s), err);
	return rc < 0 ? rc : pl_buf_put(&p->provenance, "\n", 1, err);
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
	if (row && pl_lang_usage(&usage, row, err) < 0)
		return PL_ENOMEM;
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
		rc = pl_plan_dup_str(&p->arena, text, strlen(text), &p->rw[n].text, &why);
	if (rc < 0) {
		rc = refuse(r.st.row, text, &why, err);
		p->n_rw = n;
	}
	pl_lang_close(&r);
	return rc < 0 ? rc : 0;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

struct writer {
	struct pl_buf b, line;
	struct pl_lang_statement st;
};

static int begin(struct writer *w, const char *row, struct pl_err *err)
{
	return pl_lang_begin(&w->st, &pl_plan_schema, pl_lang_row(&pl_plan_schema, row), err);
}

/* Statements of the plan itself: those whose value is not that of an empty plan. */
static int put_head(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	static const char *const row[] = { "base",  "workers", "baseline",    "predicted",
					   "bound", "model",   "evaluations", "peak" };
	struct pl_plan usual;
	int rc;

	pl_plan_init(&usual);
	PL_TRY(pl_buf_printf(&w->b, err, "paceline-plan %d\n", PL_PLAN_MAJOR));
	for (size_t i = 0; i < PL_LEN(row); i++) {
		PL_TRY(begin(w, row[i], err));
		pl_lang_unbind(&w->st, p, &usual);
		if (w->st.value[0].given)
			PL_TRY(pl_lang_put(&w->b, &w->st, err));
	}
	rc = p->complete ? 0 : pl_buf_printf(&w->b, err, "incomplete\n");
out:
	return rc;
}

static int put_provenance(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	size_t at = 0;
	int rc = 0;

	while (at < p->provenance.n) {
		const char *s = (const char *)p->provenance.p + at;
		const char *nl = memchr(s, '\n', p->provenance.n - at);
		size_t n = nl ? (size_t)(nl - s) : p->provenance.n - at;

		at += n + 1;
		if (!n)
			continue;
		w->line.n = 0;
		PL_TRY(begin(w, "provenance", err));
		PL_TRY(pl_buf_put(&w->line, s, n, err));
		PL_TRY(pl_buf_put(&w->line, "", 1, err));
		w->st.value[0].given = true;
		w->st.value[0].s = (const char *)w->line.p;
		PL_TRY(pl_lang_put(&w->b, &w->st, err));
	}
out:
	return rc;
}

static int put_tensor(struct writer *w, const struct pl_ptensor *t, struct pl_err *err)
{
	const struct pl_ptensor usual = { .bytes = -1 };
	ptrdiff_t set;
	int rc;

	PL_TRY(begin(w, "tensor", err));
	pl_lang_unbind(&w->st, t, &usual);
	set = pl_lang_field(w->st.row, "set", NULL) - w->st.row->field;
	w->st.value[set] = (struct pl_lang_value){ .given = t->set != PL_NONE, .i = t->set };
	rc = pl_lang_put(&w->b, &w->st, err);
out:
	return rc;
}

static int put_all(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_plan_check(p, err));
	PL_TRY(put_head(w, p, err));
	PL_TRY(put_provenance(w, p, err));
	for (size_t i = 0; i < p->n_tensors; i++)
		PL_TRY(put_tensor(w, &p->tensor[i], err));
	for (size_t i = 0; i < p->n_rw; i++) {
		PL_TRY(pl_plan_statement(&p->rw[i], &w->st, err));
		PL_TRY(pl_lang_put(&w->b, &w->st, err));
	}
	rc = 0;
out:
	return rc;
}

int pl_plan_write_text(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	struct writer w = { 0 };
	int rc = put_all(&w, p, err);

	if (rc >= 0)
		rc = pl_out_write(out, w.b.p, w.b.n, err);
	pl_lang_end(&w.st);
	pl_buf_fini(&w.line);
	pl_buf_fini(&w.b);
	return rc;
}
