/*
 * Text for the exporters: appended to a buffer that is written out in large pieces. JSON strings
 * are copied span by span; only quotes, backslashes, controls and bytes above 0x7f leave the fast
 * loop.
 */
#include <string.h>

#include "export/internal.h"

static bool room(struct x_text *t, size_t n)
{
	if (t->rc < 0)
		return false;
	if (PL_UNLIKELY(t->b.cap - t->b.n < n))
		t->rc = pl_buf_need(&t->b, n, t->err);
	return t->rc >= 0;
}

void x_put(struct x_text *t, const void *p, size_t n)
{
	if (!n || !room(t, n))
		return;
	memcpy(t->b.p + t->b.n, p, n);
	t->b.n += n;
}

void x_puts(struct x_text *t, const char *s)
{
	x_put(t, s, strlen(s));
}

void x_putc(struct x_text *t, char c)
{
	if (room(t, 1))
		t->b.p[t->b.n++] = (uint8_t)c;
}

static char *digits(char *end, uint64_t u)
{
	do
		*--end = (char)('0' + u % 10);
	while (u /= 10);
	return end;
}

void x_i64(struct x_text *t, int64_t v)
{
	char tmp[24], *end = tmp + sizeof(tmp);
	char *p = digits(end, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);

	if (v < 0)
		*--p = '-';
	x_put(t, p, (size_t)(end - p));
}

void x_dec(struct x_text *t, int64_t mantissa, unsigned scale)
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
	x_put(t, p, (size_t)(end - p));
}

void x_us(struct x_text *t, pl_ns ns)
{
	unsigned scale = 3;

	while (scale && ns % 10 == 0) {
		ns /= 10;
		scale--;
	}
	x_dec(t, ns, scale);
}

/* Length of the valid UTF-8 sequence at p, or 0. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t c;

	if (p[0] < 0xc2 || p[0] > 0xf4 || n < len)
		return 0;
	c = p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

/* One byte (or sequence) that cannot be copied as it is; returns how many were used. */
static size_t put_special(struct x_text *t, const unsigned char *p, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	const char *e;
	size_t len;

	if (*p >= 0x80) {
		len = utf8_len(p, n);
		if (len)
			x_put(t, p, len);
		else
			x_puts(t, "\xef\xbf\xbd");
		return len ? len : 1;
	}
	e = *p ? strchr(from, *p) : NULL;
	if (e) {
		x_putc(t, '\\');
		x_putc(t, to[e - from]);
	} else {
		x_puts(t, "\\u00");
		x_putc(t, hex[*p >> 4]);
		x_putc(t, hex[*p & 15]);
	}
	return 1;
}

void x_json_str(struct x_text *t, const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s, *end = n ? p + n : p;

	x_putc(t, '"');
	while (p < end) {
		const unsigned char *q = p;

		while (q < end && *q >= 0x20 && *q < 0x80 && *q != '"' && *q != '\\')
			q++;
		x_put(t, p, (size_t)(q - p));
		p = q;
		if (p < end)
			p += put_special(t, p, (size_t)(end - p));
	}
	x_putc(t, '"');
}

void x_csv_str(struct x_text *t, const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && s[i] != '"' && s[i] != ',' && s[i] != '\n' && s[i] != '\r')
		i++;
	if (i == n && (!n || (s[0] != ' ' && s[n - 1] != ' '))) {
		x_put(t, s, n);
		return;
	}
	x_putc(t, '"');
	for (i = 0; i < n; i++) {
		if (s[i] == '"')
			x_putc(t, '"');
		x_putc(t, s[i]);
	}
	x_putc(t, '"');
}

void x_flush(struct x_text *t, size_t above)
{
	if (t->rc < 0 || !t->out || t->b.n <= above)
		return;
	t->rc = pl_out_write(t->out, t->b.p, t->b.n, t->err);
	t->b.n = 0;
}

void x_text_fini(struct x_text *t)
{
	pl_buf_fini(&t->b);
}

/* ---- raw JSON ----------------------------------------------------------------------------------
 */

static bool number_ok(const char *p, size_t n)
{
	size_t i = 0, d;

	i += n && p[0] == '-';
	d = i;
	while (i < n && p[i] >= '0' && p[i] <= '9')
		i++;
	if (i == d || (p[d] == '0' && i > d + 1))
		return false;
	if (i < n && p[i] == '.') {
		for (d = ++i; i < n && p[i] >= '0' && p[i] <= '9'; i++)
			;
		if (i == d)
			return false;
	}
	if (i < n && (p[i] == 'e' || p[i] == 'E')) {
		i++;
		i += i < n && (p[i] == '+' || p[i] == '-');
		for (d = i; i < n && p[i] >= '0' && p[i] <= '9'; i++)
			;
		if (i == d)
			return false;
	}
	return i == n;
}

static bool text_ok(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s, *end = p + n;

	while (p < end) {
		size_t len = 1;

		if (*p < 0x20)
			return false;
		if (*p >= 0x80 && !(len = utf8_len(p, (size_t)(end - p))))
			return false;
		p += len;
	}
	return true;
}

bool x_json_valid(const char *s, size_t n)
{
	struct pl_json j;
	enum pl_json_type k;
	size_t values = 0;

	if (!n || !text_ok(s, n))
		return false;
	pl_json_init(&j, s, n);
	while ((k = pl_json_next(&j)) != PL_JSON_END) {
		if (k == PL_JSON_ERROR || k == PL_JSON_WORD || j.lenient ||
		    (k == PL_JSON_NUMBER && !number_ok(j.text, j.len)))
			return false;
		values++;
	}
	return values && !j.lenient;
}

static int put_text_token(struct x_text *t, const struct pl_json *j)
{
	char *tmp = j->escaped ? pl_malloc(j->len + 1) : NULL;

	if (j->escaped && !tmp)
		return t->rc = pl_fail(t->err, PL_ENOMEM, "out of memory");
	if (tmp)
		x_json_str(t, tmp, pl_json_unescape(j->text, j->len, tmp));
	else
		x_json_str(t, j->text, j->len);
	pl_free(tmp);
	return 0;
}

/* Token by token; false at what cannot be read at all. */
static bool rewrite(struct x_text *t, const char *s, size_t n)
{
	struct pl_json j;
	bool comma = false;

	pl_json_init(&j, s, n);
	for (;;) {
		enum pl_json_type k = pl_json_next(&j);

		if (k == PL_JSON_END || k == PL_JSON_ERROR)
			return k == PL_JSON_END;
		if (comma && k != PL_JSON_OBJECT_END && k != PL_JSON_ARRAY_END)
			x_putc(t, ',');
		comma = k != PL_JSON_OBJECT && k != PL_JSON_ARRAY && k != PL_JSON_KEY;
		if (k == PL_JSON_OBJECT || k == PL_JSON_ARRAY)
			x_putc(t, k == PL_JSON_OBJECT ? '{' : '[');
		else if (k == PL_JSON_OBJECT_END || k == PL_JSON_ARRAY_END)
			x_putc(t, k == PL_JSON_OBJECT_END ? '}' : ']');
		else if (k == PL_JSON_TRUE || k == PL_JSON_FALSE)
			x_puts(t, k == PL_JSON_TRUE ? "true" : "false");
		else if (k == PL_JSON_NULL)
			x_puts(t, "null");
		else if (k == PL_JSON_NUMBER && number_ok(j.text, j.len))
			x_put(t, j.text, j.len);
		else if (k == PL_JSON_KEY || k == PL_JSON_STRING)
			put_text_token(t, &j);
		else
			x_json_str(t, j.text, j.len);
		if (k == PL_JSON_KEY)
			x_putc(t, ':');
	}
}

void x_json_raw(struct x_text *t, const char *s, size_t n)
{
	size_t at = t->b.n;

	if (x_json_valid(s, n)) {
		x_put(t, s, n);
	} else if (!rewrite(t, s, n) || t->b.n == at) {
		t->b.n = at; /* nothing is flushed inside a value */
		x_json_str(t, s, n);
	}
}
