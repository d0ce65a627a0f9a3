/*
 * Single values: from text and to text, by type; their limits; rates, times, ranges of numbers.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/cmd.h"
#include "core/words.h"
#include "lang/internal.h"

/* Bytes per ns: 1 B/s, so that the time of a message is below 2^63 ns, and 1 PB/s. */
#define RATE_MIN 1e-9
#define RATE_MAX 1e6
#define TIME_MAX (3600 * (pl_ns)1000000000)

/* ---- rates and times ------------------------------------------------------------------------- */

bool pl_lang_rate(const char *s, double *v)
{
	static const char prefix[] = "kMGT";
	double f = 1, unit = 0;
	const char *p;
	bool binary;
	char *end;

	if (!*s || s[0] == '-' || strspn(s, "0123456789.eE+-") == 0)
		return false;
	*v = strtod(s, &end);
	binary = *end && end[1] == 'i';
	p = *end ? strchr(prefix, binary && *end == 'K' ? 'k' : *end) : NULL;
	if (p) {
		for (ptrdiff_t i = p - prefix; i >= 0; i--)
			f *= binary ? 1024 : 1000;
		end += binary ? 2 : 1;
	}
	if (!strncmp(end, "bit", 3)) {
		unit = 8;
		end += 3;
	} else if (*end == 'B') {
		unit = 1;
		end++;
	}
	if (unit == 0 || (*end && strcmp(end, "/s") != 0))
		return false;
	/* a GB/s is itself, so that what is written so reads back exactly */
	*v = f == 1e9 && unit == 1 ? *v : *v * (f / 1e9) / unit;
	return *v >= RATE_MIN && *v <= RATE_MAX;
}

/* As options have it, but with a unit of at most a second, and up to an hour. */
bool pl_lang_time(const char *s, pl_ns *ns)
{
	const char *unit = s + strspn(s, "0123456789.eE+");
	struct pl_err ignore = { 0 };

	return unit > s && strcmp(unit, "min") != 0 && !pl_parse_time(s, ns, &ignore) &&
	       *ns <= TIME_MAX;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool whole_number(const char *s, bool sizes, int64_t *v)
{
	struct pl_err ignore = { 0 };
	char *end;

	if (sizes)
		return *s && pl_parse_size(s, v, &ignore) == 0 && *v >= 0;
	errno = 0;
	*v = strtoll(s, &end, 10);
	return *s && !strchr(" \t+", *s) && !*end && !errno;
}

/* One alternative, which is cut at its dots. */
static int one_range(char *s, bool sizes, int64_t least, struct pl_lang_range *r,
		     struct pl_err *err)
{
	char *dots = strstr(s, "..");

	*r = (struct pl_lang_range){ .lo = least, .hi = INT64_MAX };
	if (dots) {
		*dots = '\0';
		if ((!*s && !dots[2]) || (*s && !whole_number(s, sizes, &r->lo)) ||
		    (dots[2] && !whole_number(dots + 2, sizes, &r->hi)))
			return pl_fail(err, PL_EUSAGE, "a range is not of numbers a..b");
		if (r->lo > r->hi)
			return pl_fail(err, PL_EUSAGE, "a range ends before it begins");
	} else if (whole_number(s, sizes, &r->lo)) {
		r->hi = r->lo;
	} else if (sizes) {
		return pl_fail(err, PL_EUSAGE, "a size is not a number of bytes or a range");
	} else if (s[strspn(s, "0123456789-*?[]!^\\")]) {
		return pl_fail(err, PL_EUSAGE,
			       "\"%.40s\" is no number, range a..b or pattern of digits", s);
	} else {
		r->glob = s;
	}
	return 0;
}

int pl_lang_numbers(char *text, bool sizes, int64_t least, struct pl_lang_range **range, size_t *n,
		    struct pl_err *err)
{
	size_t cap = 0;
	int rc = 0;

	*range = NULL;
	*n = 0;
	for (char *p = text, *next; rc == 0 && p; p = next) {
		next = strchr(p, '|');
		if (next)
			*next++ = '\0';
		rc = pl_grow(range, &cap, *n + 1, sizeof(**range), err);
		if (rc == 0)
			rc = one_range(p, sizes, least, &(*range)[(*n)++], err);
	}
	if (rc < 0) {
		pl_free(*range);
		*range = NULL;
	}
	return rc;
}

bool pl_lang_in_range(const struct pl_lang_range *range, size_t n, int64_t v)
{
	char text[24] = "";

	for (size_t i = 0; i < n; i++) {
		const struct pl_lang_range *a = &range[i];

		if (!a->glob) {
			if (v >= a->lo && v <= a->hi)
				return true;
			continue;
		}
		if (!*text)
			snprintf(text, sizeof(text), "%lld", (long long)v);
		if (pl_glob(a->glob, text))
			return true;
	}
	return false;
}

/* ---- counts ---------------------------------------------------------------------------------- */

bool pl_lang_count(const char **s, int64_t *v)
{
	const char *from = *s;

	*v = pl_take_digits(s);
	if (*s == from)
		return false;
	*s += **s == ',';
	return true;
}

/* ---- from text ------------------------------------------------------------------------------- */

static int wants(const struct pl_lang_field *f, const char *what, const struct pl_lang_value *v,
		 struct pl_err *err)
{
	return pl_fail(err, PL_EDATA, "%s must be %s, not \"%.100s\"", f->name, what, v->s);
}

static int parse_int(const struct pl_lang_field *f, struct pl_lang_value *v, struct pl_err *err)
{
	char what[160];
	char *end;

	if (f->choices && pl_words_find(f->choices, v->s) >= 0) {
		v->i = -1;
		return 0;
	}
	errno = 0;
	v->i = strtoll(v->s, &end, 10);
	v->r = (double)v->i;
	snprintf(what, sizeof(what), "a whole number%s%s", f->choices ? " or " : "",
		 f->choices ? f->choices : "");
	if (!*v->s || isspace((unsigned char)*v->s) || *end)
		return wants(f, what, v, err);
	return errno || v->i == INT64_MIN ? wants(f, "below 2^63", v, err) : 0;
}

static int parse_numbers(const struct pl_lang_field *f, const struct pl_lang_value *v,
			 struct pl_err *err)
{
	struct pl_lang_range *range;
	struct pl_err why = { 0 };
	char *copy;
	size_t n;
	int rc;

	PL_CHECK(pl_dup(NULL, &copy, v->s, err));
	rc = pl_lang_numbers(copy, f->type == PL_LANG_SIZES, (int64_t)f->min, &range, &n, &why);
	pl_free(range);
	pl_free(copy);
	return rc < 0 ? pl_fail(err, rc == PL_EUSAGE ? PL_EDATA : rc, "%s=%.100s: %s", f->name,
				v->s, why.msg)
		      : 0;
}

/* The limits, too: so the column is that of the number which is wrong. */
static int parse_counts(const struct pl_lang_field *f, struct pl_lang_value *v, struct pl_err *err)
{
	uint32_t column = v->column;
	char limits[128];

	for (const char *s = v->s, *from = s; s == v->s || *s; from = s) {
		v->column = column ? column + (uint32_t)(from - v->s) : 0;
		if (!pl_lang_count(&s, &v->i) || (*s && s[-1] != ',') || (!*s && s[-1] == ','))
			return wants(f, "a whole number, or several, like 3,1", v, err);
		if ((double)v->i < f->min || (double)v->i > f->max)
			return pl_fail(err, PL_EDATA, "%s must each be %s, not %.*s", f->name,
				       pl_lang_limits(f, limits, sizeof(limits)),
				       (int)strcspn(from, ","), from);
	}
	v->column = column;
	return 0;
}

int pl_lang_value_parse(const struct pl_lang_field *f, struct pl_lang_value *v, struct pl_err *err)
{
	struct pl_err ignore = { 0 };

	switch (f->type) {
	case PL_LANG_INT:
		return parse_int(f, v, err);
	case PL_LANG_REAL:
		return pl_decimal(v->s, &v->r) ? 0 : wants(f, "a decimal number", v, err);
	case PL_LANG_TIME:
		if (f->flags & PL_LANG_LONG)
			return pl_parse_time(v->s, &v->i, &ignore) == 0 && v->i >= 0
				       ? 0
				       : wants(f, "a time, like 25us", v, err);
		return pl_lang_time(v->s, &v->i)
			       ? 0
			       : wants(f, "a time of at most an hour, like 200us or 3s", v, err);
	case PL_LANG_RATE:
		return pl_lang_rate(v->s, &v->r)
			       ? 0
			       : wants(f, "a rate of 1 B/s to 1 PB/s, like 10Gbit/s or 2GB/s", v,
				       err);
	case PL_LANG_FLAG:
		v->i = v->s ? pl_words_find("no|yes|0|1", v->s) : 1;
		if (v->i < 0)
			return wants(f, "yes, no, 1 or 0", v, err);
		v->i &= 1;
		return 0;
	case PL_LANG_CHOICE:
		v->i = pl_words_find(f->choices, v->s);
		return 0;
	case PL_LANG_NUMBERS:
	case PL_LANG_SIZES:
		return parse_numbers(f, v, err);
	case PL_LANG_COUNTS:
		return parse_counts(f, v, err);
	default:
		return 0;
	}
}

/* ---- limits ---------------------------------------------------------------------------------- */

static const char *limit_text(const struct pl_lang_field *f, double v, char *buf, size_t size)
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	size_t i = 0;

	if (f->type == PL_LANG_INT && v >= 0x1p63) {
		snprintf(buf, size, "2^63 - 1");
	} else if (f->type == PL_LANG_TIME) {
		for (; i + 1 < PL_LEN(unit) && fmod(v, 1000) == 0; i++)
			v /= 1000;
		snprintf(buf, size, "%.0f%s", v, unit[i]);
	} else if (f->type == PL_LANG_INT || f->type == PL_LANG_COUNTS) {
		snprintf(buf, size, "%.0f", v);
	} else {
		snprintf(buf, size, "%g", v);
	}
	return buf;
}

const char *pl_lang_limits(const struct pl_lang_field *f, char *out, size_t size)
{
	char lo[48], hi[48];

	limit_text(f, f->min, lo, sizeof(lo));
	limit_text(f, f->max, hi, sizeof(hi));
	snprintf(out, size, "%s %s and %s %s", f->flags & PL_LANG_ABOVE ? "above" : "at least", lo,
		 f->flags & PL_LANG_BELOW ? "below" : "at most", hi);
	return out;
}

bool pl_lang_is_limited(const struct pl_lang_field *f)
{
	return (f->type <= PL_LANG_TIME || f->type == PL_LANG_COUNTS) &&
	       (f->min != 0 || f->max != 0);
}

static int check_choice(const struct pl_lang_field *f, const struct pl_lang_value *v,
			struct pl_err *err)
{
	struct pl_words_near near = { .s = v->s };
	char hint[96];

	if (v->i >= 0)
		return 0;
	for (const char *c = f->choices; *c; c += *c == '|') {
		size_t n = strcspn(c, "|");

		pl_words_near(&near, c, n);
		c += n;
	}
	if (f->refused && pl_words_find(f->refused, v->s) >= 0)
		return pl_fail(err, PL_EDATA, "%s %s %s; write one of %s", f->name, v->s, f->why,
			       f->choices);
	return pl_fail(err, PL_EDATA, "%s must be one of %s, not \"%.100s\"%s", f->name, f->choices,
		       v->s, pl_words_near_text(&near, hint, sizeof(hint)));
}

/* Is the whole number one of the words of `choices`? -1 as a number is none of them. */
static bool is_word(const struct pl_lang_field *f, const struct pl_lang_value *v)
{
	return f->choices && v->i == -1 && (!v->s || pl_words_find(f->choices, v->s) >= 0);
}

int pl_lang_value_check(const struct pl_lang_field *f, const struct pl_lang_value *v,
			struct pl_err *err)
{
	char all[128], is[64];
	double x = f->type == PL_LANG_REAL ? v->r : (double)v->i;

	if (f->type > PL_LANG_FLAG && !*v->s)
		return pl_fail(err, PL_EDATA, "%s is empty", f->name);
	if (f->type == PL_LANG_CHOICE)
		return check_choice(f, v, err);
	if (f->type > PL_LANG_TIME || !pl_lang_is_limited(f) || is_word(f, v))
		return 0;
	/* a whole number is a double here: no int64_t is 2^63, the greatest limit */
	if ((f->flags & PL_LANG_ABOVE ? x > f->min : x >= f->min) &&
	    (f->flags & PL_LANG_BELOW ? x < f->max : x <= f->max))
		return 0;
	return pl_fail(err, PL_EDATA, "%s must be %s, not %.100s", f->name,
		       pl_lang_limits(f, all, sizeof(all)),
		       pl_lang_value_text(f, v, is, sizeof(is)));
}

/* ---- to text --------------------------------------------------------------------------------- */

const char *pl_lang_value_text(const struct pl_lang_field *f, const struct pl_lang_value *v,
			       char *buf, size_t size)
{
	char real[40];

	if (v->s) /* as somebody wrote it */
		return v->s;
	switch (f->type) {
	case PL_LANG_INT:
		if (f->choices && v->i == -1)
			snprintf(buf, size, "%.*s", (int)strcspn(f->choices, "|"), f->choices);
		else
			snprintf(buf, size, "%lld", (long long)v->i);
		return buf;
	case PL_LANG_REAL:
		return pl_fmt_real(buf, size, v->r);
	case PL_LANG_TIME:
		snprintf(buf, size, "%lldns", (long long)v->i);
		return buf;
	case PL_LANG_RATE:
		snprintf(buf, size, "%sGB/s", pl_fmt_real(real, sizeof(real), v->r));
		return buf;
	case PL_LANG_FLAG:
		return v->i ? "yes" : "no";
	default:
		return v->s;
	}
}
