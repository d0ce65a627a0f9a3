/*
 * The text form of paceline-plan(5): read and written.
 *
 * A rewrite's words follow from the table in plan.c: the word, numbers behind `x` and `k` or at the
 * end, and names. What is read is checked at once, so that each message has its line. Linear.
 */
#include <string.h>

#include "plan/internal.h"

/* ---- reading ------------------------------------------------------------------------------------
 */

struct reader {
	struct pl_text t;
	struct pl_plan *p;
	unsigned seen;	  /* statements that stand once, a bit each */
	const char **arg; /* names of the rewrite being read */
	size_t cap_args;
};

enum {
	S_BASE,
	S_WORKERS,
	S_BASELINE,
	S_PREDICTED,
	S_BOUND,
	S_MODEL,
	S_EVALUATIONS,
	S_PEAK,
	S_INCOMPLETE
};

static int once(struct reader *r, unsigned bit, const char *what, struct pl_err *err)
{
	if (r->seen & 1u << bit)
		return pl_text_fail(&r->t, err, "%s is there twice; leave one", what);
	r->seen |= 1u << bit;
	return 0;
}

/* Statements of one number. 1: it was one of them. */
static int read_number(struct reader *r, struct pl_err *err)
{
	struct pl_plan *p = r->p;
	const struct {
		const char *key;
		int64_t *v, min;
		unsigned bit;
	} one[] = {
		{ "workers", &p->ranks, 1, S_WORKERS },
		{ "baseline", &p->baseline_ns, 0, S_BASELINE },
		{ "predicted", &p->predicted_ns, 0, S_PREDICTED },
		{ "bound", &p->bound_ns, 0, S_BOUND },
		{ "model", &p->model_ns, 0, S_MODEL },
		{ "evaluations", &p->evaluations, 0, S_EVALUATIONS },
		{ "peak", &p->peak_bytes, 0, S_PEAK },
	};
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(one); i++) {
		if (!pl_text_key(&r->t, one[i].key))
			continue;
		PL_TRY(once(r, one[i].bit, one[i].key, err));
		PL_TRY(pl_text_int(&r->t, one[i].v, one[i].min, one[i].key, err));
		PL_TRY(pl_text_end(&r->t, err));
		return 1;
	}
out:
	return rc;
}

static int read_tensor(struct reader *r, struct pl_err *err)
{
	const char *name;
	int64_t bytes, set = PL_NONE;
	bool estimated;
	int rc;

	PL_TRY(pl_text_name(&r->t, &name, "the tensor's name", err));
	if (!name[0])
		return pl_text_fail(&r->t, err, "the tensor's name is empty");
	PL_TRY(pl_text_int(&r->t, &bytes, 0, "the size in bytes", err));
	estimated = pl_text_key(&r->t, "estimated");
	if (pl_text_key(&r->t, "set")) {
		PL_TRY(pl_text_int(&r->t, &set, 0, "the set's number", err));
		if (set >= PL_PLAN_SETS)
			return pl_text_fail(&r->t, err,
					    "the set's number is %lld, should be less than %u",
					    (long long)set, PL_PLAN_SETS);
	}
	PL_TRY(pl_text_end(&r->t, err));
	rc = pl_plan_add_tensor(r->p, name, bytes, estimated, err);
	if (rc >= 0) {
		r->p->tensor[r->p->n_tensors - 1].set = (uint32_t)set;
		r->p->tensor[r->p->n_tensors - 1].line = r->t.line;
	}
out:
	return rc;
}

static int read_line(struct reader *r, struct pl_err *err)
{
	const char *line;
	int rc;

	PL_TRY(pl_text_name(&r->t, &line, "the line", err));
	PL_TRY(pl_text_end(&r->t, err));
	PL_TRY(pl_buf_put(&r->p->provenance, line, strlen(line), err));
	rc = pl_buf_put(&r->p->provenance, "\n", 1, err);
out:
	return rc;
}

/* Everything but rewrites. 1: it was one of them. */
static int read_statement(struct reader *r, struct pl_err *err)
{
	const char *base;
	int rc;

	rc = read_number(r, err);
	if (rc)
		return rc;
	if (pl_text_key(&r->t, "tensor"))
		PL_TRY(read_tensor(r, err));
	else if (pl_text_key(&r->t, "provenance"))
		PL_TRY(read_line(r, err));
	else if (pl_text_key(&r->t, "base")) {
		PL_TRY(once(r, S_BASE, "base", err));
		PL_TRY(pl_text_name(&r->t, &base, "the base's name", err));
		PL_TRY(pl_text_end(&r->t, err));
		PL_TRY(pl_plan_dup_str(&r->p->arena, base, strlen(base), &r->p->base, err));
	} else if (pl_text_key(&r->t, "incomplete")) {
		PL_TRY(once(r, S_INCOMPLETE, "incomplete", err));
		PL_TRY(pl_text_end(&r->t, err));
		r->p->complete = false;
	} else
		return 0;
	return 1;
out:
	return rc;
}

/* "alone NS in-plan NS", behind the semicolon. */
static int read_worth(struct reader *r, struct pl_rewrite *rw, struct pl_err *err)
{
	int rc = 0;

	if (pl_text_key(&r->t, "alone"))
		PL_TRY(pl_text_int(&r->t, &rw->alone_ns, -INT64_MAX, "alone", err));
	if (pl_text_key(&r->t, "in-plan"))
		PL_TRY(pl_text_int(&r->t, &rw->in_plan_ns, -INT64_MAX, "in-plan", err));
	if (r->t.i < r->t.n)
		return pl_text_fail(&r->t, err,
				    "\"%s\" behind the semicolon, where there may be: "
				    "alone NS in-plan NS",
				    r->t.word[r->t.i].s);
out:
	return rc;
}

/* Its last word is a number without `k` before it. */
static bool bare_k(unsigned op)
{
	return pl_rw_info[op].need_k;
}

static int read_k(struct reader *r, struct pl_rewrite *rw, struct pl_err *err)
{
	if (rw->k)
		return pl_text_fail(&r->t, err, "the number of %s is there twice",
				    pl_rw_info[rw->op].k);
	return pl_text_int(&r->t, &rw->k, 1, pl_rw_info[rw->op].k, err);
}

static int read_words(struct reader *r, struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_rw_info *f = &pl_rw_info[rw->op];
	int rc = 0;

	if (f->word)
		PL_TRY(pl_text_name(&r->t, &rw->word, f->word, err));
	while (r->t.i < r->t.n) {
		bool last = r->t.i + 1 == r->t.n || (!r->t.word[r->t.i + 1].quoted &&
						     !strcmp(r->t.word[r->t.i + 1].s, ";"));

		if (pl_text_key(&r->t, ";"))
			return read_worth(r, rw, err);
		if (f->x && pl_text_key(&r->t, "x")) {
			if (rw->x)
				return pl_text_fail(&r->t, err, "x is there twice; leave one");
			PL_TRY(pl_text_real(&r->t, &rw->x, "x", err));
			if (!(rw->x > 0))
				return pl_text_fail(&r->t, err, "x must be above 0");
		} else if (f->k && !bare_k(rw->op) && pl_text_key(&r->t, "k")) {
			PL_TRY(read_k(r, rw, err));
		} else if (bare_k(rw->op) && (last || !f->args)) {
			PL_TRY(read_k(r, rw, err));
		} else if (f->args) {
			PL_TRY(pl_grow(&r->arg, &r->cap_args, (size_t)rw->n_args + 1,
				       sizeof(*r->arg), err));
			r->arg[rw->n_args++] = r->t.word[r->t.i++].s;
		} else {
			return pl_text_end(&r->t, err);
		}
	}
out:
	return rc;
}

static int read_rewrite(struct reader *r, struct pl_err *err)
{
	struct pl_rewrite rw = { .alone_ns = INT64_MIN, .in_plan_ns = INT64_MIN };
	struct pl_err why = { 0 };
	const char *name = r->t.word[0].s;
	int op = r->t.word[0].quoted ? -1 : pl_rw_find(name), rc;

	if (op < 0)
		return pl_text_fail(&r->t, err,
				    "there is no statement or rewrite \"%s\"; paceline-plan(5) "
				    "lists them",
				    name);
	r->t.i = 1;
	rw.op = (uint8_t)op;
	rw.line = r->t.line;
	PL_TRY(read_words(r, &rw, err));
	rw.arg = r->arg;
	rc = pl_plan_check_rewrite(&rw, &why);
	if (rc == PL_EDATA)
		return pl_text_fail(&r->t, err, "%s: %s", name, why.msg);
	if (rc < 0)
		return pl_fail(err, rc, "%s", why.msg);
	rc = pl_plan_add(r->p, &rw, err);
out:
	return rc;
}

static int read_all(struct reader *r, struct pl_in *in, const char *name, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_text_read(&r->t, in, name, err));
	PL_TRY(pl_text_next(&r->t, err));
	if (!rc || !pl_text_key(&r->t, "paceline-plan"))
		return pl_fail(err, PL_EDATA,
			       "%s: this is no plan; as text it begins with a line: paceline-plan "
			       "%d",
			       name, PL_PLAN_MAJOR);
	PL_TRY(pl_text_version(&r->t, PL_PLAN_MAJOR, err));
	while ((rc = pl_text_next(&r->t, err)) > 0) {
		PL_TRY(read_statement(r, err));
		if (!rc)
			PL_TRY(read_rewrite(r, err));
	}
out:
	return rc;
}

int pl_plan_read_text(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct reader r = { .p = p };
	int rc = read_all(&r, in, name, err);

	pl_text_fini(&r.t);
	pl_free(r.arg);
	return rc;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static int put_names(struct pl_buf *b, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < rw->n_args && rc >= 0; i++)
		rc = pl_text_put_name(b, rw->arg[i], strlen(rw->arg[i]), err);
	return rc;
}

static int put_rewrite(struct pl_buf *b, const struct pl_rewrite *rw, struct pl_err *err)
{
	/* numbers first, where names may be none; else names first */
	bool names_last = pl_rw_info[rw->op].min_args == 0;
	char real[40];
	int rc;

	PL_TRY(pl_buf_printf(b, err, "%s", pl_rw_name(rw->op)));
	if (rw->word)
		PL_TRY(pl_text_put_name(b, rw->word, strlen(rw->word), err));
	if (!names_last)
		PL_TRY(put_names(b, rw, err));
	if (rw->k)
		PL_TRY(pl_buf_printf(b, err, bare_k(rw->op) ? " %lld" : " k %lld",
				     (long long)rw->k));
	if (rw->x != 0)
		PL_TRY(pl_buf_printf(b, err, " x %s", pl_text_real_str(real, sizeof(real), rw->x)));
	if (names_last)
		PL_TRY(put_names(b, rw, err));
	if (rw->alone_ns != INT64_MIN || rw->in_plan_ns != INT64_MIN)
		PL_TRY(pl_buf_printf(b, err, " ;"));
	if (rw->alone_ns != INT64_MIN)
		PL_TRY(pl_buf_printf(b, err, " alone %lld", (long long)rw->alone_ns));
	if (rw->in_plan_ns != INT64_MIN)
		PL_TRY(pl_buf_printf(b, err, " in-plan %lld", (long long)rw->in_plan_ns));
	rc = pl_buf_put(b, "\n", 1, err);
out:
	return rc;
}

static int put_head(struct pl_buf *b, const struct pl_plan *p, struct pl_err *err)
{
	const struct {
		const char *key;
		int64_t v, unknown;
	} one[] = {
		{ "workers", p->ranks, 0 },
		{ "baseline", p->baseline_ns, INT64_MIN },
		{ "predicted", p->predicted_ns, INT64_MIN },
		{ "bound", p->bound_ns, INT64_MIN },
		{ "model", p->model_ns, INT64_MIN },
		{ "evaluations", p->evaluations, -1 },
		{ "peak", p->peak_bytes, -1 },
	};
	int rc;

	PL_TRY(pl_buf_printf(b, err, "paceline-plan %d\n", PL_PLAN_MAJOR));
	if (p->base) {
		PL_TRY(pl_buf_printf(b, err, "base"));
		PL_TRY(pl_text_put_name(b, p->base, strlen(p->base), err));
		PL_TRY(pl_buf_printf(b, err, "\n"));
	}
	for (size_t i = 0; i < PL_LEN(one); i++)
		if (one[i].v != one[i].unknown)
			PL_TRY(pl_buf_printf(b, err, "%s %lld\n", one[i].key, (long long)one[i].v));
	if (!p->complete)
		PL_TRY(pl_buf_printf(b, err, "incomplete\n"));
	rc = 0;
out:
	return rc;
}

static int put_provenance(struct pl_buf *b, const struct pl_plan *p, struct pl_err *err)
{
	const char *s = (const char *)p->provenance.p, *end;
	int rc = 0;

	if (!p->provenance.n)
		return 0;
	end = s + p->provenance.n;
	while (s < end) {
		const char *nl = memchr(s, '\n', (size_t)(end - s));
		size_t n = (size_t)((nl ? nl : end) - s);

		PL_TRY(pl_buf_printf(b, err, "provenance"));
		PL_TRY(pl_text_put_name(b, s, n, err));
		PL_TRY(pl_buf_put(b, "\n", 1, err));
		s += n + (nl ? 1 : 0);
	}
out:
	return rc;
}

int pl_plan_write_text(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_plan_check(p, err));
	PL_TRY(put_head(&b, p, err));
	PL_TRY(put_provenance(&b, p, err));
	for (size_t i = 0; i < p->n_tensors; i++) {
		const struct pl_ptensor *t = &p->tensor[i];

		PL_TRY(pl_buf_printf(&b, err, "tensor"));
		PL_TRY(pl_text_put_name(&b, t->name, strlen(t->name), err));
		PL_TRY(pl_buf_printf(&b, err, " %lld%s", (long long)t->bytes,
				     t->estimated ? " estimated" : ""));
		if (t->set != PL_NONE)
			PL_TRY(pl_buf_printf(&b, err, " set %u", t->set));
		PL_TRY(pl_buf_printf(&b, err, "\n"));
	}
	for (size_t i = 0; i < p->n_rw; i++)
		PL_TRY(put_rewrite(&b, &p->rw[i], err));
	rc = pl_out_write(out, b.p, b.n, err);
out:
	pl_buf_fini(&b);
	return rc;
}
