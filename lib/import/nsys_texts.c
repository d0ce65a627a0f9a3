/*
 * The texts that the tables of an export of Nsight Systems refer to by number. A training job has
 * few of them and millions of references, so the latest ones are kept with what they mean.
 */
#include "import/nsys.h"

static int recent(struct pl_nsys *x, int64_t id, struct pl_nsys_text **out, struct pl_err *err)
{
	struct pl_nsys_text *e = &x->text[(uint64_t)id * 0x9e3779b97f4a7c15u >> 52];
	const char *text;
	size_t n;
	int rc;

	*out = e;
	if (PL_LIKELY(e->id == id + 1 && id != -1)) /* an empty place is no text without a number */
		return 0;
	pl_sqlite_bind(x->string, id);
	rc = pl_sqlite_next(x->string, err);
	PL_CHECK(rc);
	text = rc ? pl_sqlite_text(x->string, 0, &n) : NULL;
	e->id = 0;
	e->known = false;
	PL_CHECK(text ? pl_import_rows_str(&x->rows, text, n, &e->s, err)
		      : pl_import_rows_str(&x->rows, "", 0, &e->s, err));
	e->id = id + 1;
	return 0;
}

int pl_nsys_string(struct pl_nsys *x, int64_t id, pl_id *s, struct pl_err *err)
{
	struct pl_nsys_text *e;

	PL_CHECK(recent(x, id, &e, err));
	*s = e->s;
	return 0;
}

uint32_t pl_nsys_op_length(const char *s, size_t n)
{
	const char *cut = memmem(s, n, ", op_id = ", 10);

	cut = cut ? cut : memmem(s, n, ", seq = ", 8);
	return cut ? (uint32_t)(cut - s) : 0;
}

int pl_nsys_text(struct pl_nsys *x, int64_t id, const struct pl_nsys_text **out, struct pl_err *err)
{
	struct pl_nsys_text *e;
	const char *s;
	size_t n;

	PL_CHECK(recent(x, id, &e, err));
	*out = e;
	if (PL_LIKELY(e->known))
		return 0;
	s = x->rows.seg.str.str[e->s];
	n = x->rows.seg.str.len[e->s];
	e->comm = pl_import_name_class(s, n) == PL_N_DEVCOMM;
	e->op_len = pl_nsys_op_length(s, n);
	e->known = true;
	return 0;
}
