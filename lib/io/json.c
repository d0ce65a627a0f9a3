/*
 * JSON pull reader over a range in memory, and exact decimal numbers.
 *
 * A hand-written tokenizer after RFC 8259, one token for each call, no allocation: nesting is a
 * stack of 64 bytes. It accepts faults that profilers are known to make, and sets `lenient`: words
 * without quotes (inf, nan, N/A), raw control characters in strings, unknown escapes, numbers with
 * odd leading characters, a comma before a closing bracket. Structure is strict: a range that ends
 * early or a missing colon is an error. Linear; about 600 MB/s. That is enough, because importers
 * scan events with their own code, and use this for metadata, execution traces, and once for each
 * distinct nested argument.
 */
#include "io/json.h"
#include "core/bytes.h"

void pl_json_init(struct pl_json *j, const char *p, size_t n)
{
	memset(j, 0, sizeof(*j));
	j->p = j->start = p;
	j->end = p + n;
}

static enum pl_json_type bad(struct pl_json *j, const char *what)
{
	j->what = what;
	return PL_JSON_ERROR;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline void skip_space(struct pl_json *j)
{
	const char *p = j->p;

	while (p < j->end && is_space(*p))
		p++;
	j->p = p;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* Length of the escape at s (which is a backslash), 0 if JSON does not have it. */
static size_t escape_length(const char *s, const char *end)
{
	if (end - s >= 2 && s[1] && strchr("\"\\/bfnrt", s[1]))
		return 2;
	if (end - s >= 6 && s[1] == 'u' && is_hex(s[2]) && is_hex(s[3]) && is_hex(s[4]) &&
	    is_hex(s[5]))
		return 6;
	return 0;
}

size_t pl_json_utf8(const unsigned char *s, const unsigned char *end)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (!n || s[0] > 0xf4 || (size_t)(end - s) < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* The length of the escape or of the bytes beyond ASCII at s. */
static size_t odd_length(struct pl_json *j, const char *s)
{
	size_t n;

	if (*s == '\\') {
		n = escape_length(s, j->end);
		j->escaped = true;
		j->lenient |= !n;
		return n ? n : s + 1 < j->end ? 2 : 1;
	}
	n = pl_json_utf8((const unsigned char *)s, (const unsigned char *)j->end);
	j->lenient |= !n;
	return n ? n : 1;
}

/* The high bit of each of eight bytes that is no plain character of a string. Bits after the first
 * such byte are not valid, because a difference borrows from the next byte. */
static inline uint64_t odd_bytes(const char *s)
{
	const uint64_t ones = 0x0101010101010101u;
	uint64_t x = pl_le64_get((const uint8_t *)s);

	return (x | (x - ones * ' ') | ((x ^ ones * '"') - ones) | ((x ^ ones * '\\') - ones)) &
	       ones * 0x80;
}

/* After the opening quote. */
static bool string(struct pl_json *j)
{
	const char *s = j->p, *end = j->end;

	j->text = s;
	j->escaped = false;
	for (;;) {
		uint64_t odd = 0;

		while (end - s >= 8 && !(odd = odd_bytes(s)))
			s += 8;
		s += odd ? __builtin_ctzll(odd) / 8 : 0;
		if (s >= end)
			return false;
		if (*s == '"')
			break;
		if (*s == '\\' || (unsigned char)*s >= 0x80) {
			s += odd_length(j, s);
		} else {
			j->lenient |= (unsigned char)*s < ' ';
			s++;
		}
	}
	j->len = (size_t)(s - j->text);
	j->p = s + 1;
	return true;
}

static const char *skip_digits(const char *s, const char *end)
{
	while (s < end && *s >= '0' && *s <= '9')
		s++;
	return s;
}

/* The end of the number at s, NULL if there is none. */
static const char *number_end(const char *s, const char *end)
{
	const char *first = s += s < end && *s == '-', *from;

	s = skip_digits(s, end);
	if (s == first || (s - first > 1 && *first == '0'))
		return NULL;
	if (s < end && *s == '.') {
		from = ++s;
		s = skip_digits(s, end);
		if (s == from)
			return NULL;
	}
	if (s < end && (*s | 0x20) == 'e') {
		s++;
		from = s += s < end && (*s == '+' || *s == '-');
		s = skip_digits(s, end);
		if (s == from)
			return NULL;
	}
	return s;
}

static bool ends_word(char c)
{
	switch (c) {
	case ',':
	case ':':
	case ']':
	case '}':
	case '[':
	case '{':
	case '"':
		return true;
	default:
		return (unsigned char)c <= ' ';
	}
}

/* A number, a keyword, or a word without quotes. */
static enum pl_json_type word(struct pl_json *j)
{
	const char *s = number_end(j->p, j->end);
	bool number = s && (s == j->end || ends_word(*s));
	size_t n;

	for (s = number ? s : j->p; s < j->end && !ends_word(*s);)
		s++;
	n = (size_t)(s - j->p);
	if (!n)
		return bad(j, "value expected");
	j->text = j->p;
	j->len = n;
	j->p = s;
	if (number)
		return PL_JSON_NUMBER;
	if (n == 4 && !memcmp(j->text, "true", 4))
		return PL_JSON_TRUE;
	if (n == 5 && !memcmp(j->text, "false", 5))
		return PL_JSON_FALSE;
	if (n == 4 && !memcmp(j->text, "null", 4))
		return PL_JSON_NULL;
	if (n > 64)
		return bad(j, "value expected");
	j->lenient = true;
	return PL_JSON_WORD;
}

/* stack[depth - 1]: '{' expects a key, ':' its value, '[' an element; | 0x80: not the first one */
enum { FIRST = 0x80 };

static enum pl_json_type open_nested(struct pl_json *j, char bracket)
{
	if (j->depth == (int)sizeof(j->stack))
		return bad(j, "nested too deeply");
	j->stack[j->depth++] = (uint8_t)bracket;
	j->p++;
	return bracket == '{' ? PL_JSON_OBJECT : PL_JSON_ARRAY;
}

static enum pl_json_type close_nested(struct pl_json *j)
{
	uint8_t top = j->stack[j->depth - 1] & 0x7f;
	char c = *j->p++;

	if (top == ':' || (c == '}') != (top == '{'))
		return bad(j, "bracket that does not match");
	j->depth--;
	return c == '}' ? PL_JSON_OBJECT_END : PL_JSON_ARRAY_END;
}

static enum pl_json_type key(struct pl_json *j)
{
	if (*j->p != '"')
		return bad(j, "key expected");
	j->p++;
	if (!string(j))
		return bad(j, "key not closed");
	skip_space(j);
	if (j->p >= j->end || *j->p != ':')
		return bad(j, "colon expected after the key");
	j->p++;
	j->stack[j->depth - 1] = ':' | FIRST;
	return PL_JSON_KEY;
}

enum pl_json_type pl_json_next(struct pl_json *j)
{
	uint8_t *top = j->depth ? &j->stack[j->depth - 1] : NULL;

	if (j->what)
		return PL_JSON_ERROR;
	skip_space(j);
	if (j->p >= j->end)
		return j->depth ? bad(j, "ends early") : PL_JSON_END;
	if (top && (*top & 0x7f) != ':') {
		if (*top & FIRST) {
			if (*j->p == ',') {
				j->p++;
				skip_space(j);
				if (j->p < j->end && (*j->p == ']' || *j->p == '}'))
					j->lenient = true;
			} else if (*j->p != ']' && *j->p != '}') {
				return bad(j, "comma expected");
			}
			if (j->p >= j->end)
				return bad(j, "ends early");
		}
		if (*j->p == ']' || *j->p == '}')
			return close_nested(j);
		*top |= FIRST;
		if ((*top & 0x7f) == '{')
			return key(j);
	} else if (top) {
		*top = '{' | FIRST;
	}
	if (*j->p == '{' || *j->p == '[')
		return open_nested(j, *j->p);
	if (*j->p == '"') {
		j->p++;
		return string(j) ? PL_JSON_STRING : bad(j, "string not closed");
	}
	return word(j);
}

int pl_json_skip(struct pl_json *j, const char **p, size_t *n)
{
	int depth = j->depth;
	enum pl_json_type t;

	skip_space(j);
	/* a comma belongs to the token; the value begins after it */
	if (depth && j->p < j->end && *j->p == ',' && j->stack[depth - 1] == ('[' | FIRST)) {
		const char *s = j->p + 1;

		while (s < j->end && is_space(*s))
			s++;
		*p = s;
	} else {
		*p = j->p;
	}
	do {
		t = pl_json_next(j);
		if (t == PL_JSON_ERROR || t == PL_JSON_END)
			return PL_EDATA;
	} while (j->depth > depth);
	if (j->depth < depth)
		return PL_EDATA;
	*n = (size_t)(j->p - *p);
	return 0;
}

static unsigned hex4(const char *s)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++) {
		unsigned c = (unsigned char)s[i];

		v = v << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return v;
}

static size_t put_utf8(char *out, unsigned c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n; --i; c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	/* n ones and a zero before the first bits of a longer one */
	out[0] = (char)(n == 1 ? c : (0xff00u >> n & 0xff) | c);
	return n;
}

/* `out` may be `s`, because no escape is shorter than its character. */
size_t pl_json_unescape(const char *s, size_t n, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *end = s + n;
	char *o = out;

	while (s < end) {
		size_t len = *s == '\\' ? escape_length(s, end) : 0;

		if (len == 2) {
			*o++ = to[strchr(from, s[1]) - from];
		} else if (len == 6) {
			unsigned c = hex4(s + 2);

			if (c >= 0xd800 && c < 0xdc00 && end - s >= 12 && s[6] == '\\' &&
			    escape_length(s + 6, end) == 6 && (hex4(s + 8) & 0xfc00) == 0xdc00) {
				c = 0x10000 + ((c & 0x3ff) << 10) + (hex4(s + 8) & 0x3ff);
				len = 12;
			} else if (c >= 0xd800 && c < 0xe000) {
				c = 0xfffd;
			}
			o += put_utf8(o, c);
		} else {
			*o++ = *s;
			len = 1;
		}
		s += len;
	}
	return (size_t)(o - out);
}

/* ---- numbers ------------------------------------------------------------------------------- */

bool pl_json_i64(const char *s, size_t n, int64_t *v)
{
	const char *end = s + n;
	bool neg = n && *s == '-';
	int64_t x = 0;

	s += neg;
	if (s >= end)
		return false;
	for (; s < end; s++) {
		int d = *s - '0';

		if (d < 0 || d > 9 || __builtin_mul_overflow(x, 10, &x) ||
		    __builtin_sub_overflow(x, d, &x))
			return false;
	}
	if (!neg && x == INT64_MIN)
		return false;
	*v = neg ? x : -x;
	return true;
}

bool pl_json_decimal(const char *s, size_t n, int64_t *mantissa, int *scale)
{
	const char *end = s + n;
	bool neg = n && *s == '-', dot = false, any = false;
	int64_t x = 0;
	int digits = 0, after = 0;

	for (s += neg; s < end; s++) {
		if (*s == '.' && !dot) {
			dot = true;
			continue;
		}
		if (*s < '0' || *s > '9')
			return false;
		any = true;
		if (digits == 18 || after == 255)
			return false;
		x = x * 10 + (*s - '0');
		digits += digits || x;
		after += dot;
	}
	*mantissa = neg ? -x : x;
	*scale = after;
	return any;
}

/* The usual numbers: at most 17 digits, a point, no exponent. False: read it in the other way. */
static bool short_time(const char *s, size_t n, int64_t unit_ns, pl_ns *ns)
{
	static const int64_t ten_to[] = { 1,	  10,	   100,	     1000,	10000,
					  100000, 1000000, 10000000, 100000000, 1000000000 };
	int64_t x = 0;
	unsigned after = 0;
	bool dot = false;

	if (!n || n > 18 || *s == '.')
		return false;
	for (const char *end = s + n; s < end; s++) {
		unsigned d = (unsigned)*s - '0';

		if (d > 9) {
			if (*s != '.' || dot)
				return false;
			dot = true;
			continue;
		}
		x = x * 10 + d;
		after += dot;
	}
	for (; after && unit_ns % 10 == 0; after--)
		unit_ns /= 10;
	if (after >= PL_LEN(ten_to) || __builtin_mul_overflow(x, unit_ns, &x) ||
	    x > INT64_MAX - ten_to[PL_LEN(ten_to) - 1])
		return false;
	*ns = after ? (x + 5 * ten_to[after - 1]) / ten_to[after] : x;
	return true;
}

/*
 * Up to 38 digits are collected in 128 bits (others are dropped: they only matter beyond the range
 * or below a nanosecond), multiplied by the unit; then the decimal point and exponent are applied.
 */
bool pl_json_time_ns(const char *s, size_t n, int64_t unit_ns, pl_ns *ns)
{
	const char *end = s + n;
	bool neg = n && *s == '-', dot = false, any = false;
	__int128 x = 0;
	int64_t shift = 0;

	if (PL_LIKELY(short_time(s, n, unit_ns, ns)))
		return true;
	*ns = 0;
	for (s += neg; s < end && (*s | 0x20) != 'e'; s++) {
		if (*s == '.' && !dot) {
			dot = true;
			continue;
		}
		if (*s < '0' || *s > '9')
			return false;
		any = true;
		if (x < (__int128)1000000000000000000 * 1000000) {
			x = x * 10 + (*s - '0');
			shift -= dot;
		} else {
			shift += !dot;
		}
	}
	if (s < end) { /* exponent */
		int64_t e;

		s++;
		s += s < end && *s == '+';
		if (!pl_json_i64(s, (size_t)(end - s), &e))
			return false;
		shift += e < -100000 ? -100000 : e > 100000 ? 100000 : e;
	}
	if (!any)
		return false;
	x *= unit_ns;
	for (; shift > 0 && x && x <= INT64_MAX; shift--)
		x *= 10;
	for (; shift < -1 && x; shift++)
		x /= 10;
	if (shift < 0)
		x = (x + 5) / 10;
	if (x > INT64_MAX) {
		*ns = neg ? INT64_MIN : INT64_MAX;
		return false;
	}
	*ns = neg ? -(pl_ns)x : (pl_ns)x;
	return true;
}
