/* Sorting and selection. PL_LOWER_BOUND and the comparators by fields are in sort.h. */
#include <math.h>
#include <stdlib.h>

#include "core/core.h"

#define SCALAR_COMPARATOR(name, type)                                                              \
	int name(const void *pa, const void *pb)                                                   \
	{                                                                                          \
		const type *a = pa, *b = pb;                                                       \
		return PL_COMPARE(*a, *b);                                                         \
	}

SCALAR_COMPARATOR(pl_compare_i32, int32_t)
SCALAR_COMPARATOR(pl_compare_u32, uint32_t)
SCALAR_COMPARATOR(pl_compare_i64, int64_t)
SCALAR_COMPARATOR(pl_compare_double, double)

int pl_compare_str(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

struct sorting {
	size_t size;
	int (*cmp)(const void *, const void *);
};

/* The end of the sorted run that begins at p[i]. */
static size_t run_end(const struct sorting *s, const char *p, size_t i, size_t n)
{
	for (i++; i < n && s->cmp(p + (i - 1) * s->size, p + i * s->size) <= 0; i++)
		;
	return i;
}

/* Merge the runs a .. b and b .. end of `from` into one run of `to`; moves whole pieces. */
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
 * Natural merge sort (Knuth, TAOCP 3, 5.2.4): most arrays here are sorted or consist of a few
 * sorted runs, so it needs a pass or two. Arrays without order go to qsort().
 */
void pl_sort(void *v, size_t n, size_t size, int (*cmp)(const void *, const void *))
{
	const struct sorting s = { size, cmp };
	char *from = v, *to;
	size_t runs = count_runs(&s, v, n), last = 0, *start; /* of the runs, and n after them */

	if (runs < 2)
		return;
	start = runs > n / 4 ? NULL : pl_malloc((runs + 1) * sizeof(*start) + n * size);
	if (!start) {
		qsort(v, n, size, cmp);
		return;
	}
	for (size_t i = 0; i < n; i = run_end(&s, v, i, n))
		start[last++] = i;
	for (to = (char *)(start + runs + 1); runs > 1; runs = (runs + 1) / 2) {
		char *swap = from;

		start[runs] = n;
		for (size_t i = 0; i < runs; i += 2) {
			merge_runs(&s, from, start[i], start[i + 1], start[i + 1 + (i + 1 < runs)],
				   to);
			start[i / 2] = start[i];
		}
		from = to;
		to = swap;
	}
	if (from != v)
		memcpy(v, from, n * size);
	pl_free(start);
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

int64_t pl_median_mean_i64(int64_t *v, size_t n)
{
	int64_t low = pl_median_i64(v, n), high;

	if (n % 2)
		return low;
	high = select_i64(v, n, n / 2);
	return low + pl_sub_sat(high, low) / 2;
}

double pl_median_double(double *v, size_t n)
{
	pl_sort(v, n, sizeof(*v), pl_compare_double);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int64_t pl_percentile_i64(int64_t *v, size_t n, double p)
{
	double rank = ceil(p / 100.0 * (double)n);
	size_t k = rank < 1 ? 0 : (size_t)rank - 1;

	return select_i64(v, n, k < n ? k : n - 1);
}

const char *pl_sort_twice(const char **v, size_t n)
{
	pl_sort(v, n, sizeof(*v), pl_compare_str);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(v[i - 1], v[i]))
			return v[i];
	return NULL;
}

#define NORMAL 1.645

/* Between two whole numbers it is nearly a line in their inverse. */
double pl_student_90(double freedom)
{
	static const double t[] = { 0, 6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83 };
	const double most = (double)PL_LEN(t) - 1;
	size_t k;
	double by;

	if (freedom >= most + 1)
		return NORMAL * (1 + 1 / (freedom + 1));
	if (freedom >= most)
		return t[PL_LEN(t) - 1];
	freedom = fmax(freedom, 1); /* as rounded */
	k = (size_t)freedom;
	by = (1 / (double)k - 1 / freedom) / (1 / (double)k - 1 / (double)(k + 1));
	return t[k] + by * (t[k + 1] - t[k]);
}
