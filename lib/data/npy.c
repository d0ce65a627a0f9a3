/*
 * NPY: a magic string, a version, a Python dictionary as text, and the elements (NEP 1 of numpy).
 *
 * The dictionary has the keys descr, fortran_order and shape, in any order. A scanner reads only
 * what it needs: strings, True, False, numbers, tuples; nothing is evaluated. A header above 64 KiB
 * is refused; numpy itself refuses 10,000 bytes. Linear.
 */
#include "core/bytes.h"
#include "data/dtype.h"

#define HEADER_MAX 65536u

struct scan {
	const char *p, *end, *start;
	const char *name; /* of the input */
	size_t at;	  /* of `start` in it */
};

static int bad(const struct scan *s, struct pl_err *err, const char *what)
{
	return pl_fail(err, PL_EDATA, "%s: byte %zu: %s", s->name,
		       s->at + (size_t)(s->p - s->start), what);
}

static void blanks(struct scan *s)
{
	while (s->p < s->end && strchr(" \t\r\n", *s->p) && *s->p)
		s->p++;
}

static bool take(struct scan *s, char c)
{
	blanks(s);
	if (s->p >= s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static bool word(struct scan *s, const char *w)
{
	size_t n = strlen(w);

	blanks(s);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
		return false;
	s->p += n;
	return true;
}

/* 'text' or "text", without escapes: no key or type has one. */
static int string(struct scan *s, const char **text, size_t *n, struct pl_err *err)
{
	char quote;
	const char *e;

	blanks(s);
	if (s->p >= s->end || (*s->p != '\'' && *s->p != '"'))
		return bad(s, err,
			   "a quoted string was expected in the header; types with fields "
			   "are not read");
	quote = *s->p;
	e = memchr(s->p + 1, quote, (size_t)(s->end - s->p - 1));
	if (!e || memchr(s->p, '\\', (size_t)(e - s->p)))
		return bad(s, err, "a string that is not closed, or has a backslash");
	*text = s->p + 1;
	*n = (size_t)(e - *text);
	s->p = e + 1;
	return 0;
}

/* "<f4": order, kind, bytes. */
static int descr(struct scan *s, struct pl_array *a, bool *big, struct pl_err *err)
{
	const char *t, *from;
	int type = -1;
	size_t n;

	blanks(s);
	from = s->p;
	PL_CHECK(string(s, &t, &n, err));
	if (n == 3 && strchr("<>|=", *t))
		type = pl_dtype_find(PL_DT_NUMPY, t + 1, 2);
	a->dtype = (uint8_t)type;
	*big = *t == '>';
	if (type >= 0)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "%s: byte %zu: type \"%.*s\" is not read; there are f2, f4, f8, i1, i2, i4, "
		       "i8, u1, u2, u4, u8 and b1 (convert with .astype('<f4'))",
		       s->name, s->at + (size_t)(from - s->start), (int)pl_min_size(n, 32), t);
}

/* "(2, 3)", "(2,)", "()" */
static int shape(struct scan *s, struct pl_array *a, struct pl_err *err)
{
	if (!take(s, '('))
		return bad(s, err, "the shape is a tuple, like (60000, 28, 28)");
	for (a->n_dims = 0; !take(s, ')');) {
		int64_t v = 0;
		const char *from;

		blanks(s);
		from = s->p;
		for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
			if (__builtin_mul_overflow(v, 10, &v) ||
			    __builtin_add_overflow(v, *s->p - '0', &v))
				return bad(s, err, "a dimension beyond 2^63");
		if (s->p == from)
			return bad(s, err, "a dimension is a whole number, not below 0");
		if (a->n_dims == (int)PL_LEN(a->dim))
			return bad(s, err, "more than 8 dimensions");
		a->dim[a->n_dims++] = v;
		if (!take(s, ',') && (blanks(s), s->p >= s->end || *s->p != ')'))
			return bad(s, err, "a comma or a closing parenthesis was expected");
	}
	return 0;
}

static int dictionary(struct scan *s, struct pl_array *a, bool *big, struct pl_err *err)
{
	enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
	unsigned seen = 0;

	if (!take(s, '{'))
		return bad(s, err, "the header is a Python dictionary");
	while (!take(s, '}')) {
		const char *key;
		unsigned bit;
		size_t n;

		PL_CHECK(string(s, &key, &n, err));
		bit = n == 5 && !memcmp(key, "descr", n)	    ? DESCR
		      : n == 13 && !memcmp(key, "fortran_order", n) ? ORDER
		      : n == 5 && !memcmp(key, "shape", n)	    ? SHAPE
								    : 0;
		if (!bit || seen & bit)
			return bad(s, err,
				   "the header has descr, fortran_order and shape, each once");
		seen |= bit;
		if (!take(s, ':'))
			return bad(s, err, "a colon was expected behind the key");
		if (bit == DESCR)
			PL_CHECK(descr(s, a, big, err));
		else if (bit == SHAPE)
			PL_CHECK(shape(s, a, err));
		else if (word(s, "True"))
			return bad(s, err,
				   "the array is in Fortran order; save np.ascontiguousarray() of "
				   "it");
		else if (!word(s, "False"))
			return bad(s, err, "fortran_order is True or False");
		if (!take(s, ',') && (blanks(s), s->p >= s->end || *s->p != '}'))
			return bad(s, err, "a comma or a closing brace was expected");
	}
	blanks(s);
	if (s->p < s->end)
		return bad(s, err, "something stands behind the header's dictionary");
	if (seen != (DESCR | ORDER | SHAPE))
		return bad(s, err, "the header lacks descr, fortran_order or shape");
	return 0;
}

bool pl_npy_probe(const uint8_t *p, size_t n)
{
	return n >= 6 && !memcmp(p, "\x93NUMPY", 6);
}

/* Read the length of the dictionary; the input is then at its first byte. */
static int64_t head(struct pl_in *in, struct pl_err *err)
{
	const uint8_t *p;
	int64_t got = pl_in_peek(in, 12, &p, err);
	size_t n;
	bool old;

	if (got < 0)
		return got;
	if (!pl_npy_probe(p, (size_t)got) || got < 10)
		return pl_fail(err, PL_EDATA, "%s: byte 0: this is no NPY file", pl_in_name(in));
	if (p[6] < 1 || p[6] > 3 || p[7])
		return pl_fail(err, PL_EDATA,
			       "%s: byte 6: version %u.%u; 1.0, 2.0 and 3.0 are read",
			       pl_in_name(in), p[6], p[7]);
	old = p[6] == 1;
	if (!old && got < 12)
		return pl_fail(err, PL_EDATA, "%s: byte 8: the input ends inside the header",
			       pl_in_name(in));
	n = old ? pl_le16_get(p + 8) : pl_le32_get(p + 8);
	if (n > HEADER_MAX)
		return pl_fail(err, PL_EDATA,
			       "%s: byte 8: a header of %zu bytes; at most %u are read",
			       pl_in_name(in), n, HEADER_MAX);
	pl_in_skip(in, old ? 10 : 12);
	return (int64_t)n;
}

int pl_npy_read(struct pl_in *in, struct pl_array *a, struct pl_err *err)
{
	struct scan s = { .name = pl_in_name(in) };
	struct pl_buf text = { 0 };
	bool big = false;
	int64_t n;
	int rc = 0;

	memset(a, 0, sizeof(*a));
	n = head(in, err);
	if (n < 0)
		return (int)n;
	s.at = (size_t)pl_in_offset(in);
	PL_TRY(pl_data_array_take(in, (size_t)n, &text, err));
	s.p = s.start = text.n ? (const char *)text.p : "";
	s.end = s.p + text.n;
	PL_TRY(dictionary(&s, a, &big, err));
	rc = pl_data_array_read(in, a, big, err);
out:
	pl_buf_fini(&text);
	if (rc < 0)
		pl_data_array_fini(a);
	return rc;
}
