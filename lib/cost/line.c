/*
 * A line through points, some of which are wrong.
 *
 * The start is the median of the slopes of all pairs (Theil; Sen, JASA 63, 1968); up to 29 % of
 * wrong points do not spoil it. The line is then improved for the relative error: the least sum of
 * |y - a - bx| / y, by iteratively reweighted least squares (Schlossmacher, JASA 68, 1973). From
 * this start it converges in a few passes.
 *
 * Durations are never negative. If the best line has a < 0, the result is the best line through the
 * origin. If it has b < 0, the result is the best constant. Both are weighted medians.
 *
 * The number of pairs is O(n^2). Therefore, of more than MOST points, the first part uses MOST
 * points at even distances in the order of x, including both ends. The second part uses all points.
 */
#include <math.h>

#include "cost/internal.h"

#define MOST	       600
#define PASSES	       40
#define SEEN	       0.5    /* an intercept of this share of the smallest sample is visible */
#define WIDE	       4      /* ratio of largest to smallest sample that shows a slope */
#define CLEARLY	       2      /* the factor by which a wrong line has a larger error, */
#define AGREES	       0.05   /* unless the error is at most this */
#define BENT	       0.75   /* share of a line's error that the analysis may have to be better */
#define MEDIAN_ERRORS  1.4826 /* a normal error's deviation by its median size */
#define LEAST_ABSOLUTE 1.5708 /* pi / 2: the variance of such a line by that of least squares */
#define FEWEST	       4      /* points: of three a line misses one only, perhaps by little */
#define TINY	       1e-9 /* the weight of a point with a smaller relative error does not grow */

PL_COMPARATOR(by_x, struct point, x, y);

/* The m with the least sum of w |v - m|; x of a point is v, y is w. */
static double weighted_median(struct point *v, size_t n)
{
	double sum = 0, half = 0;

	pl_sort(v, n, sizeof(*v), by_x);
	for (size_t i = 0; i < n; i++)
		sum += v[i].y;
	for (size_t i = 0; i < n; i++) {
		half += v[i].y;
		if (half >= sum / 2)
			return v[i].x;
	}
	return v[n - 1].x;
}

static double loss(const struct point *p, size_t n, double a, double b)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += fabs(1 - (a + b * p[i].x) / p[i].y);
	return sum;
}

static int theil_sen(const struct point *p, size_t n, struct line *l, struct pl_err *err)
{
	size_t m = n < MOST ? n : MOST, k = 0;
	double *v;

	PL_CHECK(pl_alloc(&v, m * (m - 1) / 2 + m, sizeof(*v), err));
#define AT(i) (p[m > 1 ? (size_t)((double)(i) * (double)(n - 1) / (double)(m - 1)) : 0])
	for (size_t i = 0; i < m; i++)
		for (size_t j = i + 1; j < m; j++)
			if (AT(j).x > AT(i).x)
				v[k++] = (AT(j).y - AT(i).y) / (AT(j).x - AT(i).x);
	l->b = k ? pl_median_double(v, k) : 0;
	for (size_t i = 0; i < m; i++)
		v[i] = AT(i).y - l->b * AT(i).x;
	l->a = pl_median_double(v, m);
#undef AT
	pl_free(v);
	return 0;
}

static void refine(const struct point *p, size_t n, struct line *l)
{
	double best = loss(p, n, l->a, l->b), a = l->a, b = l->b;

	for (int pass = 0; pass < PASSES; pass++) {
		double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0, det, now;

		for (size_t i = 0; i < n; i++) {
			double r = fabs(1 - (a + b * p[i].x) / p[i].y);
			double u = 1 / (p[i].y * p[i].y * fmax(r, TINY));

			w += u;
			wx += u * p[i].x;
			wy += u * p[i].y;
			wxx += u * p[i].x * p[i].x;
			wxy += u * p[i].x * p[i].y;
		}
		det = w * wxx - wx * wx;
		if (!(det > 1e-12 * w * wxx))
			return;
		b = (w * wxy - wx * wy) / det;
		a = (wy - b * wx) / w;
		now = loss(p, n, a, b);
		if (now < best) {
			best = now;
			l->a = a;
			l->b = b;
		}
	}
}

/* The better of the best constant and the best line through the origin, on the allowed side. */
static int keep_positive(const struct point *p, size_t n, struct line *l, struct pl_err *err)
{
	struct point *v;
	double flat, ray = 0;
	size_t k = 0;

	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (size_t i = 0; i < n; i++)
		v[i] = (struct point){ p[i].y, 1 / p[i].y };
	flat = weighted_median(v, n);
	for (size_t i = 0; i < n; i++)
		if (p[i].x > 0)
			v[k++] = (struct point){ p[i].y / p[i].x, p[i].x / p[i].y };
	if (k)
		ray = weighted_median(v, k);
	pl_free(v);
	if (loss(p, n, flat, 0) <= loss(p, n, 0, ray))
		ray = 0;
	else
		flat = 0;
	l->a = flat;
	l->b = ray;
	return 0;
}

int pl_cost_line_residual(const struct point *p, size_t n, struct line *l, struct pl_err *err)
{
	double *v;

	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (size_t i = 0; i < n; i++)
		v[i] = fabs(1 - (l->a + l->b * p[i].x) / p[i].y);
	l->residual = pl_median_double(v, n);
	pl_free(v);
	return 0;
}

/*
 * As of a regression whose errors are shares of y: the variance of the intercept is
 * s^2 sum(w x^2) / (sum(w) sum(w x^2) - sum(w x)^2) with w = 1 / y^2. The median of absolute errors
 * is s / 1.4826, and lines of least absolute error have pi / 2 times the variance of those of least
 * squares, both for normal errors. Such a line goes through two of the points, which show no error:
 * the median is that of the others.
 */
int pl_cost_line_interval(const struct point *p, size_t n, const struct line *l, double *half,
			  struct pl_err *err)
{
	double w = 0, wx = 0, wxx = 0, det, s, *v;

	*half = INFINITY;
	if (n < FEWEST)
		return 0;
	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (size_t i = 0; i < n; i++) {
		double u = 1 / (p[i].y * p[i].y);

		w += u;
		wx += u * p[i].x;
		wxx += u * p[i].x * p[i].x;
		v[i] = fabs(1 - (l->a + l->b * p[i].x) / p[i].y);
	}
	pl_sort(v, n, sizeof(*v), pl_compare_double);
	s = MEDIAN_ERRORS * pl_median_double(v + 2, n - 2);
	pl_free(v);
	det = w * wxx - wx * wx;
	if (det > 1e-12 * w * wxx)
		*half = pl_student_90((double)(n - 2)) * s * sqrt(LEAST_ABSOLUTE * wxx / det);
	return 0;
}

int pl_cost_line_fit(struct point *p, size_t n, struct line *l, struct pl_err *err)
{
	int rc;

	pl_sort(p, n, sizeof(*p), by_x);
	if ((rc = theil_sen(p, n, l, err)) < 0)
		return rc;
	refine(p, n, l);
	if ((l->a < 0 || l->b < 0) && (rc = keep_positive(p, n, l, err)) < 0)
		return rc;
	return pl_cost_line_residual(p, n, l, err);
}

int pl_cost_line_through(const struct point *p, size_t n, double a, struct line *l,
			 struct pl_err *err)
{
	struct point *v;

	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (size_t i = 0; i < n; i++)
		v[i] = (struct point){ p[i].x > 0 ? (p[i].y - a) / p[i].x : 0, p[i].x / p[i].y };
	l->a = a;
	l->b = weighted_median(v, n);
	pl_free(v);
	return pl_cost_line_residual(p, n, l, err);
}

/*
 * If all samples are large, or of nearly the same size, they hardly show the intercept: anything
 * that slows small samples down a little more than large ones looks like an intercept. The
 * intercept is then `a`, from another source, unless the samples clearly contradict it.
 */
int pl_cost_line_settle(const struct point *p, size_t n, double a, struct line *l,
			struct pl_err *err)
{
	double least = INFINITY, lo = INFINITY, hi = 0;
	struct line x;

	for (size_t i = 0; i < n; i++) {
		least = fmin(least, p[i].y);
		lo = fmin(lo, p[i].x);
		hi = fmax(hi, p[i].x);
	}
	if (a > SEEN * least || (l->a > SEEN * least && hi >= WIDE * lo))
		return 0;
	PL_CHECK(pl_cost_line_through(p, n, a, &x, err));
	if (x.b >= 0 &&
	    loss(p, n, a, x.b) <= fmax(AGREES * (double)n, CLEARLY * loss(p, n, l->a, l->b)))
		*l = x;
	return 0;
}

/*
 * If below some size a link of the host is the slower one, and above that size a link of the
 * network, times bend at this size, and no line fits both sides. The analysis bends there too. It
 * has one parameter less than a line (a factor), so it counts only if its error is clearly smaller.
 */
int pl_cost_line_shape(const struct point *p, const double *z, size_t n, const struct line *l,
		       double *factor, struct pl_err *err)
{
	struct point *v;
	double sum = 0;
	int rc = pl_alloc(&v, n, sizeof(*v), err);

	*factor = 0;
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		v[i] = (struct point){ p[i].y / z[i], z[i] / p[i].y };
		if (!(z[i] > 0))
			goto out;
	}
	*factor = weighted_median(v, n);
	for (size_t i = 0; i < n; i++)
		sum += fabs(1 - *factor * z[i] / p[i].y);
	if (!(sum < BENT * loss(p, n, l->a, l->b)))
		*factor = 0;
out:
	pl_free(v);
	return 0;
}
