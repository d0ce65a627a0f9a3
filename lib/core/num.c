/* Numbers and small text: saturation, formatting, globs. */
#include <math.h>
#include <stdlib.h>

#include "core/core.h"

int64_t pl_add_sat(int64_t a, int64_t b)
{
	int64_t r;

	if (PL_LIKELY(!__builtin_add_overflow(a, b, &r)))
		return r;
	return b < 0 ? INT64_MIN : INT64_MAX;
}

int64_t pl_sub_sat(int64_t a, int64_t b)
{
	int64_t r;

	if (PL_LIKELY(!__builtin_sub_overflow(a, b, &r)))
		return r;
	return b > 0 ? INT64_MIN : INT64_MAX;
}

/* Up to 15 digits, with a point perhaps: both numbers of the quotient are exact, so it is rounded
 * once, as strtod() does it. Returns false for all else. */
static bool short_decimal(const char *s, double *v)
{
	static const double power[] = { 1e0, 1e1, 1e2,	1e3,  1e4,  1e5,  1e6,	1e7,
					1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
	bool minus = *s == '-';
	int64_t n = 0;
	int digits = 0, behind = -1; /* the point; -1: there is none */

	for (s += minus; *s; s++) {
		if (*s == '.' && behind < 0) {
			behind = 0;
			continue;
		}
		if (*s < '0' || *s > '9' || ++digits > 15)
			return false;
		n = 10 * n + (*s - '0');
		behind += behind >= 0;
	}
	if (!digits || (minus && !n)) /* -0 is not 0 */
		return false;
	*v = (double)(minus ? -n : n);
	if (behind > 0)
		*v /= power[behind];
	return true;
}

bool pl_decimal(const char *s, double *v)
{
	char *end;

	if (short_decimal(s, v))
		return true;

	if (!*s || s[strspn(s, "0123456789.eE+-")])
		return false;
	*v = strtod(s, &end);
	return end != s && !*end && isfinite(*v);
}

int64_t pl_take_digits(const char **s)
{
	size_t n = strspn(*s, "0123456789");
	int64_t v = n && n <= 18 ? strtoll(*s, NULL, 10) : -1;

	*s += n;
	return v;
}

char *pl_fmt_ns(char *out, size_t size, pl_ns ns)
{
	static const struct {
		double per;
		const char *unit;
	} u[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }, { 1, "ns" } };
	double v = (double)ns, a = fabs(v);
	size_t i = 0;
	int digits;

	while (i < 3 && a < u[i].per)
		i++;
	v /= u[i].per;
	a /= u[i].per;
	digits = i == 3 ? 0 : a >= 99.95 ? i == 0 : a >= 9.995 ? 1 : 2;
	snprintf(out, size, "%.*f %s", digits, v, u[i].unit);
	return out;
}

char *pl_fmt_bytes(char *out, size_t size, double bytes)
{
	static const char unit[][4] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t i = 0;

	for (; fabs(bytes) >= 1024 && i + 1 < PL_LEN(unit); i++)
		bytes /= 1024;
	snprintf(out, size, "%.*f %s", !i || fabs(bytes) >= 99.95 ? 0 : 1, bytes, unit[i]);
	return out;
}

/* The bracket that closes the set at g; NULL: none. A first one (or after '!', '^') is a member. */
static const char *set_end(const char *g, const char *end)
{
	const char *p = g + 1;

	if (*g != '[')
		return NULL;
	if (p < end && (*p == '!' || *p == '^'))
		p++;
	return p < end ? memchr(p + 1, ']', (size_t)(end - p - 1)) : NULL;
}

/* Is c a member of the set whose brackets are at g and `last`? */
static bool in_set(const char *g, const char *last, char c)
{
	bool invert = g[1] == '!' || g[1] == '^', hit = false;

	for (const char *p = g + 1 + invert; p < last; p++) {
		if (last - p > 2 && p[1] == '-') {
			hit |= c >= p[0] && c <= p[2];
			p += 2;
		} else {
			hit |= c == *p;
		}
	}
	return hit != invert;
}

/* Match one alternative (up to `end`) with the whole text; backtracks only to the last star. */
static bool glob_one(const char *g, const char *end, const char *t)
{
	const char *star = NULL, *back = NULL;

	for (;;) {
		if (g < end && *g == '*') {
			star = ++g;
			back = t;
			continue;
		}
		if (!*t)
			return g == end;
		if (g < end) {
			const char *next = g + 1, *set;
			bool hit;

			if ((set = set_end(g, end))) {
				hit = in_set(g, set, *t);
				next = set + 1;
			} else if (*g == '\\' && g + 1 < end) {
				hit = g[1] == *t;
				next = g + 2;
			} else {
				hit = *g == '?' || *g == *t;
			}
			if (hit) {
				g = next;
				t++;
				continue;
			}
		}
		if (!star)
			return false;
		g = star;
		t = ++back;
	}
}

bool pl_glob(const char *glob, const char *text)
{
	for (;;) {
		const char *end = glob;

		while (*end && *end != '|')
			end += *end == '\\' && end[1] ? 2 : 1;
		if (glob_one(glob, end, text))
			return true;
		if (!*end)
			return false;
		glob = end + 1;
	}
}

const char *pl_fmt_real(char *out, size_t size, double v)
{
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(out, size, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	return out;
}
