/* sort.h - comparison, sorting, binary search and order statistics. */
#ifndef PL_SORT_H
#define PL_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Below 0, 0 or above 0, as a comparator of pl_sort() returns it. */
#define PL_COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* Compare *a and *b by up to six fields; the first field that differs decides. */
#define PL_COMPARE_FIELDS(a, b, ...)                                                               \
	PL_SEVENTH_(__VA_ARGS__, PL_BY_6_, PL_BY_5_, PL_BY_4_, PL_BY_3_, PL_BY_2_, PL_BY_1_, )     \
	(a, b, __VA_ARGS__)
#define PL_SEVENTH_(f1, f2, f3, f4, f5, f6, name, ...) name

#define PL_BY_1_(a, b, f)      PL_COMPARE((a)->f, (b)->f)
#define PL_BY_2_(a, b, f, ...) PL_BY_FIRST_(a, b, f, PL_BY_1_(a, b, __VA_ARGS__))
#define PL_BY_3_(a, b, f, ...) PL_BY_FIRST_(a, b, f, PL_BY_2_(a, b, __VA_ARGS__))
#define PL_BY_4_(a, b, f, ...) PL_BY_FIRST_(a, b, f, PL_BY_3_(a, b, __VA_ARGS__))
#define PL_BY_5_(a, b, f, ...) PL_BY_FIRST_(a, b, f, PL_BY_4_(a, b, __VA_ARGS__))
#define PL_BY_6_(a, b, f, ...) PL_BY_FIRST_(a, b, f, PL_BY_5_(a, b, __VA_ARGS__))

#define PL_BY_FIRST_(a, b, f, rest) ((a)->f != (b)->f ? ((a)->f < (b)->f ? -1 : 1) : (rest))

/* Define the static comparator `name` of elements of `type`, which orders by the fields. */
#define PL_COMPARATOR(name, type, ...)                                                             \
	static int name(const void *pa_, const void *pb_)                                          \
	{                                                                                          \
		const type *a_ = pa_, *b_ = pb_;                                                   \
                                                                                                   \
		return PL_COMPARE_FIELDS(a_, b_, __VA_ARGS__);                                     \
	}                                                                                          \
	static int name(const void *, const void *)

/* The same, but the greatest of the first field comes first. */
#define PL_COMPARATOR_FALLING(name, type, first, ...)                                              \
	static int name(const void *pa_, const void *pb_)                                          \
	{                                                                                          \
		const type *a_ = pa_, *b_ = pb_;                                                   \
                                                                                                   \
		return a_->first != b_->first ? PL_COMPARE(b_->first, a_->first)                   \
					      : PL_COMPARE_FIELDS(a_, b_, __VA_ARGS__);            \
	}                                                                                          \
	static int name(const void *, const void *)

/* Comparators of arrays of numbers, and of an array of strings. */
int pl_compare_i32(const void *a, const void *b);
int pl_compare_u32(const void *a, const void *b);
int pl_compare_i64(const void *a, const void *b);
int pl_compare_double(const void *a, const void *b);
int pl_compare_str(const void *a, const void *b);

/* Like qsort(); v may be NULL if n is 0. A sorted array takes one pass. */
void pl_sort(void *v, size_t n, size_t size, int (*cmp)(const void *, const void *));

/* Sort the strings. Returns one that occurs twice, NULL if all differ. */
const char *pl_sort_twice(const char **v, size_t n);

/*
 * Set `i` to the first index of i .. end - 1 for which `before` is false, or to `end`, in log n
 * steps. `before` is an expression of `i` that is first true, then false: "v[i].t < t" finds the
 * lower bound of t, "v[i].t <= t" its upper bound.
 */
#define PL_LOWER_BOUND(i, end, before)                                                             \
	do {                                                                                       \
		size_t lo_ = (i), hi_ = (end);                                                     \
                                                                                                   \
		while (lo_ < hi_) {                                                                \
			(i) = lo_ + (hi_ - lo_) / 2;                                               \
			if (before)                                                                \
				lo_ = (i) + 1;                                                     \
			else                                                                       \
				hi_ = (i);                                                         \
		}                                                                                  \
		(i) = lo_;                                                                         \
	} while (0)

/* Medians and percentiles; all reorder v; n > 0. Of an even number, the lower of the middle two
 * ... */
int64_t pl_median_i64(int64_t *v, size_t n);
int64_t pl_percentile_i64(int64_t *v, size_t n, double p); /* p in 0..100, nearest rank */
/* ... or their mean. */
int64_t pl_median_mean_i64(int64_t *v, size_t n);
double pl_median_double(double *v, size_t n);

/* Student's distribution with 1 degree of freedom or more: 90 of 100 are nearer to 0 than this. */
double pl_student_90(double freedom);

#endif
