/*
 * The text forms of plans and topologies: statements of words, names quoted where they must be.
 *
 * The whole text is read first (plans are small) and words are unescaped in place, which never
 * makes them longer; a NUL replaces the blank, the quote or the end of line behind each. Linear.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

static const char *const keywords[] = { "x", "k", "estimated", "alone", "in-plan" };

int pl_text_fail(const struct pl_text *t, struct pl_err *err, const char *fmt, ...)
{
	char msg[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	return pl_fail(err, PL_EDATA, "%s: line %u: %s", t->name, t->line, msg);
}

int pl_text_read(struct pl_text *t, struct pl_in *in, const char *name, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n;
	int rc = 0;

	memset(t, 0, sizeof(*t));
	t->name = name;
	while ((n = pl_in_peek(in, 1, &p, err)) > 0) {
		if (t->b.n + (uint64_t)n > PL_TEXT_MAX)
			return pl_fail(err, PL_ELIMIT, "%s: a text of more than %u MiB", name,
				       PL_TEXT_MAX >> 20);
		PL_TRY(pl_buf_put(&t->b, p, (size_t)n, err));
		pl_in_skip(in, (size_t)n);
	}
	if (n < 0)
		return (int)n;
	if (t->b.n >= 3 && !memcmp(t->b.p, "\xef\xbb\xbf", 3))
		t->at = 3; /* a byte-order mark */
	/* so that the last word can be ended, too */
	PL_TRY(pl_buf_put(&t->b, "\n", 1, err));
out:
	return rc;
}

void pl_text_fini(struct pl_text *t)
{
	pl_buf_fini(&t->b);
	pl_free(t->word);
	memset(t, 0, sizeof(*t));
}

/* ---- words --------------------------------------------------------------------------------------
 */

static int hex(int c)
{
	return isdigit(c) ? c - '0' : isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

/* The escape at p (behind the backslash): its byte, and its length in *n; -1. */
static int escape(const char *p, size_t *n)
{
	static const char from[] = "\"\\ntr", to[] = "\"\\\n\t\r";
	const char *f = *p ? strchr(from, *p) : NULL;

	*n = f ? 1 : 3;
	if (f)
		return to[f - from];
	if (*p != 'x' || hex((unsigned char)p[1]) < 0 || hex((unsigned char)p[2]) < 0)
		return -1;
	return hex((unsigned char)p[1]) << 4 | hex((unsigned char)p[2]);
}

/* Between quotes: from the byte behind the first to the byte behind the last. */
static int quoted(struct pl_text *t, char **at, struct pl_err *err)
{
	char *p = *at, *out = p;

	while (*p != '"') {
		size_t n;
		int c = (unsigned char)*p++;

		if (c == '\n')
			return pl_text_fail(t, err,
					    "the quote is not closed on its line; write \\n for a "
					    "newline in a name");
		if (!c)
			return pl_text_fail(t, err, "a name cannot hold the byte 0");
		if (c == '\\') {
			c = escape(p, &n);
			if (c <= 0)
				return pl_text_fail(
					t, err,
					"there is no escape \\%.1s here; write \\\\ for "
					"a backslash",
					*p == '\n' ? "" : p);
			p += n;
		}
		*out++ = (char)c;
	}
	*out = '\0';
	*at = p + 1;
	return 0;
}

static bool ends_word(int c)
{
	return c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '#' || c == ';' || c == '"';
}

/*
 * An unquoted word. The byte behind it, which the NUL overwrites, comes back in *next: it may have
 * been a quote, a comment, a semicolon or the end of the line.
 */
static int bare(struct pl_text *t, char **at, char *next, struct pl_err *err)
{
	char *p = *at;

	while (!ends_word((unsigned char)*p)) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
			return pl_text_fail(t, err,
					    "byte 0x%02x in a word; put the name between double "
					    "quotes and escape it with a backslash",
					    (unsigned char)*p);
		p++;
	}
	*next = *p;
	*p = '\0';
	*at = p;
	return 0;
}

static int add_word(struct pl_text *t, char *s, bool is_quoted, struct pl_err *err)
{
	int rc = pl_grow(&t->word, &t->cap, t->n + 1, sizeof(*t->word), err);

	if (rc >= 0)
		t->word[t->n++] = (struct pl_word){ s, is_quoted };
	return rc;
}

/* The words of one line; *at behind its end. */
static int one_line(struct pl_text *t, char **at, struct pl_err *err)
{
	static char semicolon[] = ";";
	char *p = *at, c = *p;
	int rc = 0;

	while (c != '\n') {
		char *s = p;

		if (c == ' ' || c == '\t' || c == '\r') {
			c = *++p;
		} else if (c == ';') {
			PL_TRY(add_word(t, semicolon, false, err));
			c = *++p;
		} else if (c == '#') {
			p = memchr(p + 1, '\n', (size_t)((char *)t->b.p + t->b.n - p - 1));
			c = '\n';
		} else if (c == '"') {
			p++;
			s = p;
			PL_TRY(quoted(t, &p, err));
			PL_TRY(add_word(t, s, true, err));
			c = *p;
			if (!ends_word((unsigned char)c) || c == '"')
				return pl_text_fail(t, err, "no blank behind a quoted name");
		} else {
			PL_TRY(bare(t, &p, &c, err));
			PL_TRY(add_word(t, s, false, err));
			if (c == '"')
				return pl_text_fail(t, err, "no blank before a quoted name");
		}
	}
	*at = p + 1;
out:
	return rc;
}

int pl_text_next(struct pl_text *t, struct pl_err *err)
{
	t->n = t->i = 0;
	while (!t->n) {
		char *p = (char *)t->b.p + t->at;
		int rc;

		if (t->at >= t->b.n)
			return 0;
		t->line++;
		rc = one_line(t, &p, err);
		if (rc < 0)
			return rc;
		t->at = (size_t)(p - (char *)t->b.p);
	}
	return 1;
}

/* ---- what words mean ----------------------------------------------------------------------------
 */

bool pl_text_key(struct pl_text *t, const char *key)
{
	if (t->i >= t->n || t->word[t->i].quoted || strcmp(t->word[t->i].s, key))
		return false;
	t->i++;
	return true;
}

int pl_text_name(struct pl_text *t, const char **s, const char *what, struct pl_err *err)
{
	if (t->i >= t->n || (!t->word[t->i].quoted && !strcmp(t->word[t->i].s, ";")))
		return pl_text_fail(t, err, "%s is missing", what);
	*s = t->word[t->i++].s;
	return 0;
}

int pl_text_int(struct pl_text *t, int64_t *v, int64_t min, const char *what, struct pl_err *err)
{
	const char *s;
	char *end;
	long long n;
	int rc = pl_text_name(t, &s, what, err);

	if (rc < 0)
		return rc;
	errno = 0;
	n = strtoll(s, &end, 10);
	if (!*s || isspace((unsigned char)*s) || *end || t->word[t->i - 1].quoted)
		return pl_text_fail(t, err, "%s is a whole number, not \"%s\"", what, s);
	if (errno || n < min || n == INT64_MIN)
		return pl_text_fail(t, err, "%s is at least %lld and below 2^63, not %s", what,
				    (long long)min, s);
	*v = n;
	return 0;
}

int pl_text_real(struct pl_text *t, double *v, const char *what, struct pl_err *err)
{
	const char *s = "";
	int rc = pl_text_name(t, &s, what, err);

	if (rc < 0)
		return rc;
	if (!pl_decimal(s, v) || t->word[t->i - 1].quoted)
		return pl_text_fail(t, err, "%s is a decimal number, not \"%s\"", what, s);
	return 0;
}

bool pl_text_is_key(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalpha((unsigned char)s[i]) ||
		      (i && (isdigit((unsigned char)s[i]) || strchr("_-.", s[i])))))
			return false;
	return n > 0;
}

int pl_text_end(struct pl_text *t, struct pl_err *err)
{
	if (t->i < t->n)
		return pl_text_fail(t, err, "\"%s\" is too much here", t->word[t->i].s);
	return 0;
}

int pl_text_version(struct pl_text *t, int64_t major, struct pl_err *err)
{
	int64_t v;
	int rc;

	PL_TRY(pl_text_int(t, &v, 1, "the version", err));
	if (v > major)
		return pl_text_fail(t, err,
				    "version %lld is newer than %lld, the newest known here",
				    (long long)v, (long long)major);
	rc = pl_text_end(t, err);
out:
	return rc;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static bool needs_quotes(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c <= ' ' || c == 0x7f || strchr("\"#;\\", c))
			return true;
	}
	for (size_t i = 0; i < PL_LEN(keywords); i++)
		if (n == strlen(keywords[i]) && !memcmp(s, keywords[i], n))
			return true;
	return !n;
}

int pl_text_put_name(struct pl_buf *b, const char *s, size_t n, struct pl_err *err)
{
	static const char from[] = "\"\\\n\t\r", to[] = "\"\\ntr";
	int rc;

	PL_TRY(pl_put_u8(b, ' ', err));
	if (!needs_quotes(s, n))
		return pl_buf_put(b, s, n, err);
	PL_TRY(pl_put_u8(b, '"', err));
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		const char *f = c ? strchr(from, c) : NULL;

		if (f)
			PL_TRY(pl_buf_printf(b, err, "\\%c", to[f - from]));
		else if (c < ' ' || c == 0x7f)
			PL_TRY(pl_buf_printf(b, err, "\\x%02x", c));
		else
			PL_TRY(pl_put_u8(b, c, err));
	}
	rc = pl_put_u8(b, '"', err);
out:
	return rc;
}

const char *pl_text_real_str(char *out, size_t size, double v)
{
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(out, size, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	return out;
}
