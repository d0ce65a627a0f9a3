/*
 * The writer: text is appended to a buffer that goes out in large pieces. JSON strings are copied
 * span by span; only quotes, backslashes, controls and bytes above 0x7f leave the fast loop.
 */
#include <math.h>

#include "io/json.h"
#include "io/write.h"

#define INT_MAX_ 24		    /* characters of an integer, at most */
#define FLUSH	 ((size_t)64 << 10) /* an output passes pieces of this size on without a copy */

void pl_write_init(struct pl_writer *w, struct pl_out *out, int indent)
{
	*w = (struct pl_writer){ .out = out, .indent = indent };
}

void pl_write_fini(struct pl_writer *w)
{
	pl_buf_fini(&w->b);
}

int pl_write_check(const struct pl_writer *w, struct pl_err *err)
{
	return pl_fail_as(err, &w->fail);
}

int pl_write_end(struct pl_writer *w, struct pl_err *err)
{
	if (w->depth && !w->fail.code)
		pl_fail(&w->fail, PL_EINTERNAL, "JSON was not closed");
	pl_write_flush(w, 0);
	pl_write_fini(w);
	return pl_write_check(w, err);
}

void pl_write_flush(struct pl_writer *w, size_t above)
{
	if (w->fail.code || !w->out || w->b.n <= above)
		return;
	if (pl_out_write(w->out, w->b.p, w->b.n, &w->fail) == 0)
		w->b.n = 0;
}

/* ---- single pieces --------------------------------------------------------------------------- */

static bool room(struct pl_writer *w, size_t n)
{
	if (PL_UNLIKELY(w->fail.code))
		return false;
	return PL_LIKELY(w->b.cap - w->b.n >= n) || pl_buf_need(&w->b, n, &w->fail) == 0;
}

void pl_write(struct pl_writer *w, const void *p, size_t n)
{
	if (!n || !room(w, n))
		return;
	memcpy(w->b.p + w->b.n, p, n);
	w->b.n += n;
}

void pl_write_text(struct pl_writer *w, const char *s)
{
	pl_write(w, s, strlen(s));
}

void pl_write_char(struct pl_writer *w, char c)
{
	if (room(w, 1))
		w->b.p[w->b.n++] = (uint8_t)c;
}

void pl_write_format(struct pl_writer *w, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	if (!room(w, 256))
		return;
	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf((char *)w->b.p + w->b.n, 256, fmt, ap);
	va_end(ap);
	if (n >= 256 && room(w, (size_t)n + 1))
		vsnprintf((char *)w->b.p + w->b.n, (size_t)n + 1, fmt, again);
	va_end(again);
	if (n < 0)
		pl_fail(&w->fail, PL_EINTERNAL, "cannot format \"%s\"", fmt);
	if (w->fail.code)
		return;
	w->b.n += (size_t)n;
	pl_write_flush(w, FLUSH);
}

/* Two digits at a time: half the divisions, each of which waits for the one before. */
static char *digits(char *end, uint64_t u)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324"
				    "25262728293031323334353637383940414243444546474849"
				    "50515253545556575859606162636465666768697071727374"
				    "75767778798081828384858687888990919293949596979899";

	for (; u >= 100; u /= 100)
		memcpy(end -= 2, pairs + 2 * (u % 100), 2);
	if (u >= 10)
		return memcpy(end - 2, pairs + 2 * u, 2);
	*--end = (char)('0' + u);
	return end;
}

void pl_write_int(struct pl_writer *w, int64_t v)
{
	char tmp[2 * INT_MAX_], *end = tmp + INT_MAX_;
	char *p = digits(end, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);

	if (v < 0)
		*--p = '-';
	if (!room(w, INT_MAX_))
		return;
	memcpy(w->b.p + w->b.n, p, INT_MAX_); /* a constant size takes less than the exact one */
	w->b.n += (size_t)(end - p);
}

void pl_write_decimal(struct pl_writer *w, int64_t mantissa, unsigned scale)
{
	char tmp[300], *end = tmp + sizeof(tmp), *p;
	uint64_t u = mantissa < 0 ? 0 - (uint64_t)mantissa : (uint64_t)mantissa;

	p = digits(end, u);
	if (scale) {
		size_t n = (size_t)(end - p);

		while (n <= scale) { /* at least one digit before the point */
			*--p = '0';
			n++;
		}
		memmove(p - 1, p, n - scale);
		p--;
		p[n - scale] = '.';
	}
	if (mantissa < 0)
		*--p = '-';
	pl_write(w, p, (size_t)(end - p));
}

void pl_write_us(struct pl_writer *w, pl_ns ns)
{
	unsigned scale = 3;

	while (scale && ns % 10 == 0) {
		ns /= 10;
		scale--;
	}
	pl_write_decimal(w, ns, scale);
}

void pl_write_real(struct pl_writer *w, double v)
{
	char text[40];

	pl_write_text(w, pl_fmt_real(text, sizeof(text), v));
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Write a byte (or sequence) that needs an escape; returns the number of bytes used. */
static size_t put_special(struct pl_writer *w, const unsigned char *p, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	const char *e;
	size_t len;

	if (*p >= 0x80) {
		len = pl_json_utf8(p, p + n);
		if (len)
			pl_write(w, p, len);
		else
			pl_write_text(w, "\xef\xbf\xbd");
		return len ? len : 1;
	}
	e = *p ? strchr(from, *p) : NULL;
	if (e) {
		pl_write_char(w, '\\');
		pl_write_char(w, to[e - from]);
	} else {
		pl_write_text(w, "\\u00");
		pl_write_char(w, hex[*p >> 4]);
		pl_write_char(w, hex[*p & 15]);
	}
	return 1;
}

void pl_write_json_str(struct pl_writer *w, const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s, *end = n ? p + n : p;

	pl_write_char(w, '"');
	while (p < end) {
		const unsigned char *q = p;

		while (q < end && *q >= 0x20 && *q < 0x80 && *q != '"' && *q != '\\')
			q++;
		pl_write(w, p, (size_t)(q - p));
		p = q;
		if (p < end)
			p += put_special(w, p, (size_t)(end - p));
	}
	pl_write_char(w, '"');
}

void pl_write_json_text(struct pl_writer *w, const char *s)
{
	pl_write_json_str(w, s ? s : "", s ? strlen(s) : 0);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

void pl_write_csv(struct pl_writer *w, const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && s[i] != '"' && s[i] != ',' && s[i] != '\n' && s[i] != '\r')
		i++;
	if (i == n && (!n || (!blank(s[0]) && !blank(s[n - 1])))) {
		pl_write(w, s, n);
		return;
	}
	pl_write_char(w, '"');
	while (n) { /* quotes are doubled */
		const char *quote = memchr(s, '"', n);

		i = quote ? (size_t)(quote - s) + 1 : n;
		pl_write(w, s, i);
		if (quote)
			pl_write_char(w, '"');
		s += i;
		n -= i;
	}
	pl_write_char(w, '"');
}

void pl_write_base64(struct pl_writer *w, const void *p, size_t n)
{
	static const char letter[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *from = p;

	if (!room(w, (n + 2) / 3 * 4))
		return;
	for (; n; from += 3, n = n > 3 ? n - 3 : 0) {
		uint32_t u = (uint32_t)from[0] << 16 | (n > 1 ? (uint32_t)from[1] << 8 : 0) |
			     (n > 2 ? from[2] : 0);
		uint8_t *to = w->b.p + w->b.n;

		to[0] = (uint8_t)letter[u >> 18];
		to[1] = (uint8_t)letter[u >> 12 & 63];
		to[2] = n > 1 ? (uint8_t)letter[u >> 6 & 63] : '=';
		to[3] = n > 2 ? (uint8_t)letter[u & 63] : '=';
		w->b.n += 4;
	}
}

/* ---- raw JSON -------------------------------------------------------------------------------- */

bool pl_json_valid(const char *s, size_t n)
{
	struct pl_json j;
	enum pl_json_type k;
	size_t values = 0;

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20)
			return false;
	pl_json_init(&j, s, n);
	while ((k = pl_json_next(&j)) != PL_JSON_END) {
		if (k == PL_JSON_ERROR || k == PL_JSON_WORD || j.lenient)
			return false;
		values++;
	}
	return values && !j.lenient;
}

static void put_text_token(struct pl_writer *w, const struct pl_json *j)
{
	char *tmp = j->escaped ? pl_malloc(j->len + 1) : NULL;

	if (j->escaped && !tmp)
		pl_fail(&w->fail, PL_ENOMEM, "out of memory");
	else if (tmp)
		pl_write_json_str(w, tmp, pl_json_unescape(j->text, j->len, tmp));
	else
		pl_write_json_str(w, j->text, j->len);
	pl_free(tmp);
}

/* Copy token by token. False: the text is not JSON. */
static bool rewrite(struct pl_writer *w, const char *s, size_t n)
{
	struct pl_json j;
	bool comma = false;

	pl_json_init(&j, s, n);
	for (;;) {
		enum pl_json_type k = pl_json_next(&j);

		if (k == PL_JSON_END || k == PL_JSON_ERROR)
			return k == PL_JSON_END;
		if (comma && k != PL_JSON_OBJECT_END && k != PL_JSON_ARRAY_END)
			pl_write_char(w, ',');
		comma = k != PL_JSON_OBJECT && k != PL_JSON_ARRAY && k != PL_JSON_KEY;
		if (k == PL_JSON_OBJECT || k == PL_JSON_ARRAY)
			pl_write_char(w, k == PL_JSON_OBJECT ? '{' : '[');
		else if (k == PL_JSON_OBJECT_END || k == PL_JSON_ARRAY_END)
			pl_write_char(w, k == PL_JSON_OBJECT_END ? '}' : ']');
		else if (k == PL_JSON_TRUE || k == PL_JSON_FALSE)
			pl_write_text(w, k == PL_JSON_TRUE ? "true" : "false");
		else if (k == PL_JSON_NULL)
			pl_write_text(w, "null");
		else if (k == PL_JSON_NUMBER)
			pl_write(w, j.text, j.len);
		else if (k == PL_JSON_KEY || k == PL_JSON_STRING)
			put_text_token(w, &j);
		else
			pl_write_json_str(w, j.text, j.len);
		if (k == PL_JSON_KEY)
			pl_write_char(w, ':');
	}
}

void pl_write_json(struct pl_writer *w, const char *s, size_t n)
{
	size_t at = w->b.n;

	if (pl_json_valid(s, n)) {
		pl_write(w, s, n);
	} else if (!rewrite(w, s, n) || w->b.n == at) {
		w->b.n = at; /* nothing is flushed inside a value */
		pl_write_json_str(w, s, n);
	}
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void newline(struct pl_writer *w)
{
	pl_write_char(w, '\n');
	for (int n = w->indent * w->depth; n > 0; n--)
		pl_write_char(w, ' ');
}

/* Write the text before a value or a key: a comma, a line break, or nothing after a key. */
static void lead(struct pl_writer *w)
{
	uint8_t *has = &w->has[w->depth];

	pl_write_flush(w, FLUSH);
	if (w->key) {
		w->key = false;
		return;
	}
	if (*has & 1)
		pl_write_char(w, w->depth ? ',' : '\n');
	*has |= 1;
	if (w->indent && w->depth)
		newline(w);
}

void pl_json_open(struct pl_writer *w, char bracket)
{
	lead(w);
	if ((size_t)w->depth + 1 >= sizeof(w->has)) {
		pl_fail(&w->fail, PL_EINTERNAL, "JSON nested too deep");
		return;
	}
	w->has[++w->depth] = bracket == '{' ? 2 : 0;
	pl_write_char(w, bracket);
}

void pl_json_close(struct pl_writer *w)
{
	uint8_t has = w->has[w->depth];

	if (!w->depth) {
		pl_fail(&w->fail, PL_EINTERNAL, "JSON closed more often than opened");
		return;
	}
	w->depth--;
	if (w->indent && has & 1)
		newline(w);
	pl_write_char(w, has & 2 ? '}' : ']');
}

void pl_json_key(struct pl_writer *w, const char *key)
{
	lead(w);
	pl_write_json_str(w, key, strlen(key));
	pl_write_text(w, w->indent ? ": " : ":");
	w->key = true;
}

void pl_json_put_str(struct pl_writer *w, const char *s, size_t n)
{
	lead(w);
	pl_write_json_str(w, s, n);
}

void pl_json_put_int(struct pl_writer *w, int64_t v)
{
	lead(w);
	pl_write_int(w, v);
}

void pl_json_put_real(struct pl_writer *w, double v)
{
	lead(w);
	if (isfinite(v))
		pl_write_real(w, v);
	else
		pl_write_text(w, "null");
}

void pl_json_put_bool(struct pl_writer *w, bool v)
{
	lead(w);
	pl_write_text(w, v ? "true" : "false");
}

void pl_json_put_null(struct pl_writer *w)
{
	lead(w);
	pl_write_text(w, "null");
}

int pl_json_end(struct pl_writer *w, struct pl_err *err)
{
	pl_write_char(w, '\n');
	return pl_write_end(w, err);
}

void pl_json_str(struct pl_writer *w, const char *key, const char *s)
{
	pl_json_key(w, key);
	if (s)
		pl_json_put_str(w, s, strlen(s));
	else
		pl_json_put_null(w);
}

void pl_json_int(struct pl_writer *w, const char *key, int64_t v)
{
	pl_json_key(w, key);
	pl_json_put_int(w, v);
}

void pl_json_real(struct pl_writer *w, const char *key, double v)
{
	pl_json_key(w, key);
	pl_json_put_real(w, v);
}

void pl_json_bool(struct pl_writer *w, const char *key, bool v)
{
	pl_json_key(w, key);
	pl_json_put_bool(w, v);
}
