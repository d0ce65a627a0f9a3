/* Numbers and small text: saturation, selection, formatting, globs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

bool pl_decimal(const char *s, double *v)
{
	char *end;

	if (!*s || s[strspn(s, "0123456789.eE+-")])
		return false;
	*v = strtod(s, &end);
	return end != s && !*end && isfinite(*v);
}

struct sorting {
	size_t size;
	int (*cmp)(const void *, const void *);
};

/* Where the run that begins at p[i] ends: as far as the order holds. */
static size_t run_end(const struct sorting *s, const char *p, size_t i, size_t n)
{
	for (i++; i < n && s->cmp(p + (i - 1) * s->size, p + i * s->size) <= 0; i++)
		;
	return i;
}

/* Runs a .. b and b .. end of `from` become one of `to`; pieces move together. */
static void merge_runs(const struct sorting *s, const char *from, size_t a, size_t b, size_t end,
		       char *to)
{
	size_t i = a, k = b, size = s->size;

	to += a * size;
	while (i < b && k < end) {
		size_t i0 = i, k0 = k;

		while (i < b && s->cmp(from + i * size, from + k * size) <= 0)
			i++;
		memcpy(to, from + i0 * size, (i - i0) * size);
		to += (i - i0) * size;
		while (i < b && k < end && s->cmp(from + i * size, from + k * size) > 0)
			k++;
		memcpy(to, from + k0 * size, (k - k0) * size);
		to += (k - k0) * size;
	}
	memcpy(to, from + i * size, (b - i) * size);
	memcpy(to + (b - i) * size, from + k * size, (end - k) * size);
}

static size_t count_runs(const struct sorting *s, const char *p, size_t n)
{
	size_t runs = 0;

	for (size_t i = 0; i < n; runs++)
		i = run_end(s, p, i, n);
	return runs;
}

/*
 * Natural merge sort (Knuth, TAOCP 3, 5.2.4): what is sorted here is in order, or a few such lists
 * one after the other, so it takes a pass or two. What has no order is the library's.
 */
void pl_sort(void *v, size_t n, size_t size, int (*cmp)(const void *, const void *))
{
	const struct sorting s = { size, cmp };
	char *from = v, *to, *spare;
	size_t runs = count_runs(&s, v, n);

	if (runs < 2)
		return;
	spare = runs > n / 4 ? NULL : pl_malloc(n * size);
	if (!spare) {
		qsort(v, n, size, cmp);
		return;
	}
	for (to = spare; runs > 1; runs = (runs + 1) / 2) {
		char *swap = from;

		for (size_t i = 0, k, end; i < n; i = end) {
			k = run_end(&s, from, i, n);
			end = k < n ? run_end(&s, from, k, n) : k;
			merge_runs(&s, from, i, k, end, to);
		}
		from = to;
		to = swap;
	}
	if (from != v)
		memcpy(v, from, n * size);
	pl_free(spare);
}

/* Quickselect with a median-of-three pivot and a three-way partition; expected linear time. */
static int64_t select_i64(int64_t *v, size_t n, size_t k)
{
	size_t lo = 0, hi = n - 1;

	while (lo < hi) {
		int64_t a = v[lo], b = v[lo + (hi - lo) / 2], c = v[hi];
		int64_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
		size_t lt = lo, gt = hi;

		for (size_t i = lo; i <= gt;) {
			int64_t x = v[i];

			if (x < pivot) {
				v[i++] = v[lt];
				v[lt++] = x;
			} else if (x > pivot) {
				v[i] = v[gt];
				v[gt--] = x;
			} else {
				i++;
			}
		}
		if (k < lt)
			hi = lt - 1;
		else if (k > gt)
			lo = gt + 1;
		else
			break;
	}
	return v[k];
}

int64_t pl_median_i64(int64_t *v, size_t n)
{
	return select_i64(v, n, (n - 1) / 2);
}

int64_t pl_percentile_i64(int64_t *v, size_t n, double p)
{
	double rank = ceil(p / 100.0 * (double)n);
	size_t k = rank < 1 ? 0 : (size_t)rank - 1;

	return select_i64(v, n, k < n ? k : n - 1);
}

char *pl_fmt_ns(char *out, size_t size, pl_ns ns)
{
	static const struct {
		double per;
		const char *unit;
	} u[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }, { 1, "ns" } };
	double v = (double)ns, a = fabs(v);
	size_t i = 0;

	while (i < 3 && a < u[i].per)
		i++;
	v /= u[i].per;
	a /= u[i].per;
	snprintf(out, size, "%.*f %s", i == 3 || a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, v, u[i].unit);
	if (i == 0 && a >= 99.95)
		snprintf(out, size, "%.1f s", v);
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

/* One alternative (up to `end`) against the whole text; backtracks to the last star only. */
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
			bool hit;
			const char *next = g + 1;

			if (*g == '[' &&
			    memchr(g + 2, ']', (size_t)(end - g) > 2 ? (size_t)(end - g - 2) : 0)) {
				bool invert = g[1] == '!' || g[1] == '^';

				hit = false;
				for (next = g + 1 + invert; next == g + 1 + invert || *next != ']';
				     next++) {
					if (next[1] == '-' && next[2] != ']') {
						hit |= *t >= next[0] && *t <= next[2];
						next += 2;
					} else {
						hit |= *t == *next;
					}
				}
				next++;
				hit ^= invert;
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
