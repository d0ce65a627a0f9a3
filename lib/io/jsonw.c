/*
 * The JSON writer: commas, indentation, escapes and numbers; nesting is kept in an array of 64.
 *
 * A double is written with the fewest digits (15, 16 or 17) that read back as the same double.
 * Strings that are not UTF-8 get U+FFFD for each byte that fits nowhere, so the output always
 * parses.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"

void pl_jsonw_init(struct pl_jsonw *w, struct pl_out *out, int indent)
{
	memset(w, 0, sizeof(*w));
	w->out = out;
	w->indent = indent;
}

static int newline(struct pl_jsonw *w, struct pl_err *err)
{
	static const char spaces[] = "                                                            ";
	size_t n = (size_t)w->indent * (size_t)w->depth;
	int rc = pl_out_write(w->out, "\n", 1, err);

	while (rc >= 0 && n) {
		size_t k = pl_min_size(n, sizeof(spaces) - 1);

		rc = pl_out_write(w->out, spaces, k, err);
		n -= k;
	}
	return rc;
}

/* What stands before a value or a key: a comma, a line break, or nothing after a key. */
static int lead(struct pl_jsonw *w, struct pl_err *err)
{
	uint8_t *has = &w->has[w->depth];
	int rc = 0;

	if (w->key) {
		w->key = false;
		return 0;
	}
	if (*has & 1)
		rc = w->depth ? pl_out_write(w->out, ",", 1, err) : newline(w, err);
	*has |= 1;
	if (rc >= 0 && w->indent && w->depth)
		rc = newline(w, err);
	return rc;
}

int pl_jsonw_open(struct pl_jsonw *w, char bracket, struct pl_err *err)
{
	int rc = lead(w, err);

	if (rc < 0)
		return rc;
	if ((size_t)w->depth + 1 >= sizeof(w->has))
		return pl_fail(err, PL_EINTERNAL, "JSON nested too deep");
	w->has[++w->depth] = bracket == '{' ? 2 : 0;
	return pl_out_write(w->out, &bracket, 1, err);
}

int pl_jsonw_close(struct pl_jsonw *w, struct pl_err *err)
{
	uint8_t has = w->has[w->depth];
	int rc = 0;

	if (!w->depth)
		return pl_fail(err, PL_EINTERNAL, "JSON closed more often than opened");
	w->depth--;
	if (w->indent && has & 1)
		rc = newline(w, err);
	return rc < 0 ? rc : pl_out_write(w->out, has & 2 ? "}" : "]", 1, err);
}

/* Length of the UTF-8 sequence at s (n > 0 bytes), 0 if it is not valid. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
	unsigned c = s[0];
	size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) ||
	    (c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* The escape of one byte that cannot stand as it is; its length in *used. */
static const char *escape(const unsigned char *s, size_t n, char out[8], size_t *used)
{
	static const char letters[] = "\bb\ff\nn\rr\tt\"\"\\\\";

	*used = 1;
	if (s[0] >= 0x80) {
		*used = utf8_length(s, n);
		if (*used)
			return NULL;
		*used = 1;
		return "\xef\xbf\xbd";
	}
	for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
		if (s[0] != (unsigned char)letters[i])
			continue;
		out[0] = '\\';
		out[1] = letters[i + 1];
		out[2] = '\0';
		return out;
	}
	snprintf(out, 8, "\\u%04x", s[0]);
	return out;
}

static int quoted(struct pl_jsonw *w, const char *s, size_t n, struct pl_err *err)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t from = 0, i = 0, used;
	int rc;

	PL_TRY(pl_out_write(w->out, "\"", 1, err));
	while (i < n) {
		const char *e;
		char small[8];

		if (p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7f) {
			i++;
			continue;
		}
		e = escape(p + i, n - i, small, &used);
		if (e) {
			if (i > from)
				PL_TRY(pl_out_write(w->out, s + from, i - from, err));
			PL_TRY(pl_out_write(w->out, e, strlen(e), err));
			from = i + used;
		}
		i += used;
	}
	if (n > from)
		PL_TRY(pl_out_write(w->out, s + from, n - from, err));
	rc = pl_out_write(w->out, "\"", 1, err);
out:
	return rc;
}

int pl_jsonw_key(struct pl_jsonw *w, const char *key, struct pl_err *err)
{
	int rc;

	PL_TRY(lead(w, err));
	PL_TRY(quoted(w, key, strlen(key), err));
	rc = w->indent ? pl_out_write(w->out, ": ", 2, err) : pl_out_write(w->out, ":", 1, err);
	w->key = true;
out:
	return rc;
}

int pl_jsonw_str(struct pl_jsonw *w, const char *s, size_t n, struct pl_err *err)
{
	int rc = lead(w, err);

	return rc < 0 ? rc : quoted(w, s, n, err);
}

int pl_jsonw_raw(struct pl_jsonw *w, const char *s, size_t n, struct pl_err *err)
{
	int rc = lead(w, err);

	return rc < 0 ? rc : pl_out_write(w->out, s, n, err);
}

int pl_jsonw_i64(struct pl_jsonw *w, int64_t v, struct pl_err *err)
{
	char text[24], *p = text + sizeof(text);
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

	do {
		*--p = (char)('0' + u % 10);
		u /= 10;
	} while (u);
	if (v < 0)
		*--p = '-';
	return pl_jsonw_raw(w, p, (size_t)(text + sizeof(text) - p), err);
}

int pl_jsonw_real(struct pl_jsonw *w, double v, struct pl_err *err)
{
	char text[40];
	int n = 0;

	if (!isfinite(v))
		return pl_jsonw_null(w, err);
	for (int digits = 15; digits <= 17; digits++) {
		n = snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	return pl_jsonw_raw(w, text, (size_t)n, err);
}

int pl_jsonw_bool(struct pl_jsonw *w, bool v, struct pl_err *err)
{
	return v ? pl_jsonw_raw(w, "true", 4, err) : pl_jsonw_raw(w, "false", 5, err);
}

int pl_jsonw_null(struct pl_jsonw *w, struct pl_err *err)
{
	return pl_jsonw_raw(w, "null", 4, err);
}

int pl_jsonw_kstr(struct pl_jsonw *w, const char *key, const char *s, struct pl_err *err)
{
	int rc = pl_jsonw_key(w, key, err);

	if (rc < 0)
		return rc;
	return s ? pl_jsonw_str(w, s, strlen(s), err) : pl_jsonw_null(w, err);
}

int pl_jsonw_ki64(struct pl_jsonw *w, const char *key, int64_t v, struct pl_err *err)
{
	int rc = pl_jsonw_key(w, key, err);

	return rc < 0 ? rc : pl_jsonw_i64(w, v, err);
}

int pl_jsonw_kreal(struct pl_jsonw *w, const char *key, double v, struct pl_err *err)
{
	int rc = pl_jsonw_key(w, key, err);

	return rc < 0 ? rc : pl_jsonw_real(w, v, err);
}
