/*
 * Comparison of two sequences that should be the same communication: the difference of their ends,
 * the first difference in content, and which elements belong together.
 *
 * Whether two sequences are one communication shows in their ends, which jitter by microseconds
 * while everything else about two ranks differs by milliseconds. Offset and drift of the clocks are
 * unknown here; the scatter of successive changes of the difference of ends is free of both.
 *
 * A trace may start or end earlier than another, which is no difference. After a real difference,
 * the shift is used whose names agree and whose ends scatter least. If names do not agree within
 * REACH elements, the rest has no partners. Cost: O(N), and O(REACH squared) for each difference.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"

/* A limit of time: sequences with more differences are not of one group. */
#define MAX_DIFFERENCES 400
/* How many elements earlier a rank may begin: profilers start within a step of each other. */
#define MAX_SHIFT 64
#define SAMPLE	  (PL_SEQ_SCRATCH / 3) /* pairs that are looked at */
#define MAX_SLOPE 0.01		       /* a clock that gains more than 1 % is broken */
/* Elements that one rank may have more behind a difference: a few, since far away chance finds a
 * shift that fits few pairs; then as many as a step may have. Four times as many are compared. */
#define NEAR_REACH 16
#define REACH	   256
#define SCALE	   1.04836 /* of the median of |changes| to a standard deviation: 1.4826 / sqrt 2 */

bool pl_clock_seq_same(const struct pl_align *a, uint32_t i, uint32_t k)
{
	const struct pl_comm *x = &a->ev[i], *y = &a->ev[k];
	bool sizes = x->bytes != PL_NO_VALUE && y->bytes != PL_NO_VALUE;

	if (x->kind != PL_K_COLLECTIVE || y->kind != PL_K_COLLECTIVE)
		return x->kind != y->kind && (!sizes || x->bytes == y->bytes); /* send, receive */
	if (x->coll != y->coll)
		return false;
	if (x->name != y->name && (x->coll == PL_NONE || !sizes))
		return false;
	return !sizes || !(x->coll_is & PL_COLL_SAME_SIZE) || x->bytes == y->bytes;
}

static pl_ns diff_of_ends(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			  int64_t shift, int64_t i)
{
	return pl_sub_sat(a->ev[x->ev[i + shift]].end, a->ev[y->ev[i]].end);
}

static int64_t overlap(const struct pl_seq *x, const struct pl_seq *y, int64_t shift, int64_t *from)
{
	int64_t to = pl_min_i64(y->n, x->n - shift);

	*from = pl_max_i64(0, -shift);
	return to - *from;
}

double pl_clock_slope(const pl_ns *t, const int64_t *d, size_t n, int64_t *v)
{
	size_t half = n / 2, m = 0;

	for (size_t i = 0; i + half < n && n > 3; i++) {
		double dt = (double)pl_sub_sat(t[i + half], t[i]);
		double s = dt > 0 ? (double)pl_sub_sat(d[i + half], d[i]) / dt : 0;

		if (dt > 0 && fabs(s) < MAX_SLOPE)
			v[m++] = (int64_t)llround(s * 1e15);
	}
	return m ? (double)pl_median_i64(v, m) * 1e-15 : 0;
}

/* Share of the pairs in which one ends before the other begins, offset and drift removed. */
static double share_early(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			  int64_t shift, int64_t from, int64_t m, int64_t spread)
{
	int64_t *v = a->scratch, *t = v + SAMPLE, *d = t + SAMPLE, step = m / SAMPLE + 1, mid,
		early = 0;
	pl_ns tolerance = pl_add_sat(2 * spread, PL_CLOCK_RESOLUTION_NS);
	size_t n = 0;
	double slope;

	for (int64_t i = from; i < from + m; i += step, n++) {
		t[n] = pl_sub_sat(a->ev[y->ev[i]].end, a->ev[y->ev[from]].end);
		d[n] = diff_of_ends(a, x, y, shift, i);
	}
	slope = pl_clock_slope(t, d, n, v);
	for (size_t k = 0; k < n; k++)
		v[k] = pl_sub_sat(d[k], (int64_t)(slope * (double)t[k]));
	mid = pl_median_i64(v, n);
	for (size_t k = 0; k < n; k++) {
		const struct pl_comm *q = &a->ev[y->ev[from + (int64_t)k * step]];
		const struct pl_comm *p = &a->ev[x->ev[from + (int64_t)k * step + shift]];
		pl_ns off = pl_add_sat(mid, (int64_t)(slope * (double)t[k]));

		early += pl_sub_sat(p->end, off) < pl_sub_sat(q->ts, tolerance) ||
			 q->end < pl_sub_sat(pl_sub_sat(p->ts, off), tolerance);
	}
	return n ? (double)early / (double)n : 0;
}

int64_t pl_clock_seq_spread(const struct pl_align *a, const struct pl_seq *x,
			    const struct pl_seq *y, int64_t shift, double *early)
{
	int64_t *v = a->scratch, from, m = overlap(x, y, shift, &from), step = m / SAMPLE + 1,
		spread;
	size_t n = 0;

	if (early)
		*early = 0;
	if (m < 3)
		return INT64_MAX;
	for (int64_t i = from; i + 1 < from + m; i += step) {
		int64_t d = pl_sub_sat(diff_of_ends(a, x, y, shift, i + 1),
				       diff_of_ends(a, x, y, shift, i));

		v[n++] = d < 0 ? pl_sub_sat(0, d) : d;
	}
	/* of few, the greatest: one small change may be chance */
	spread = m < PL_SEQ_PAIRS ? pl_percentile_i64(v, n, 100) : pl_median_i64(v, n);
	spread = (int64_t)(SCALE * (double)pl_min_i64(spread, INT64_MAX / 4));
	if (early)
		*early = share_early(a, x, y, shift, from, m, spread);
	return spread;
}

/* ---- where one starts in the other ----------------------------------------------------------- */

bool pl_clock_seq_agree(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			int64_t shift, double least)
{
	int64_t from, m = overlap(x, y, shift, &from), step = m / (4 * SAMPLE) + 1, n, same;

	same = n = m > 0 ? (m + step - 1) / step : 0;
	for (int64_t i = from; i < from + m; i += step)
		if (!pl_clock_seq_same(a, x->ev[i + shift], y->ev[i]) &&
		    (double)--same / (double)n < least)
			return false;
	return n > 0;
}

static int64_t median_duration(const struct pl_align *a, const struct pl_seq *y)
{
	int64_t *v = a->scratch;
	size_t n = 0;

	for (uint32_t i = 0; i < y->n; i += y->n / SAMPLE + 1)
		v[n++] = pl_sub_sat(a->ev[y->ev[i]].end, a->ev[y->ev[i]].ts);
	return n ? pl_median_i64(v, n) : 0;
}

bool pl_clock_seq_alike(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			int64_t shift)
{
	return pl_clock_seq_agree(a, x, y, shift, PL_SEQ_AGREE);
}

/* The same for what was posted: with the right shift, receives end soon after their sends begin.
 * Only times of one clock tell that. */
static int64_t posted_shift(const struct pl_align *a, const struct pl_seq *x,
			    const struct pl_seq *y, int64_t reach)
{
	int64_t best = 0;
	double least = INFINITY;

	if (a->ev[x->ev[0]].clock != a->ev[y->ev[0]].clock)
		return 0;
	for (int64_t k = 0; k <= 2 * reach; k++) {
		int64_t shift = k % 2 ? (k + 1) / 2 : -k / 2, from, m = overlap(x, y, shift, &from);
		double sum = 0;

		if (m < pl_min_i64(x->n, y->n) / 2 + 1 || !pl_clock_seq_alike(a, x, y, shift))
			continue;
		for (int64_t i = from; i < from + m; i++) {
			const struct pl_comm *p = &a->ev[x->ev[i + shift]], *q = &a->ev[y->ev[i]];
			bool send = p->kind == PL_K_SEND;

			sum += fabs((double)pl_sub_sat((send ? q : p)->end, (send ? p : q)->ts));
		}
		if (sum / (double)m < least) {
			least = sum / (double)m;
			best = shift;
		}
	}
	return best;
}

/* The share of the pairs that overlap in time. Only times of one clock tell that; else 1. */
static double share_together(const struct pl_align *a, const struct pl_seq *x,
			     const struct pl_seq *y, int64_t shift)
{
	int64_t from, m = overlap(x, y, shift, &from), step = m / SAMPLE + 1, n = 0, together = 0;

	for (int64_t i = from; i < from + m; i += step, n++) {
		const struct pl_comm *p = &a->ev[x->ev[i + shift]], *q = &a->ev[y->ev[i]];

		together += p->clock != q->clock || (p->ts <= q->end && q->ts <= p->end);
	}
	return n ? (double)together / (double)n : 1;
}

/*
 * How many elements x has before the first of y. Names alone do not tell when all elements are
 * alike: then the shift with clearly the tightest ends does. On one clock the pairs must overlap as
 * often as without a shift, because steps that are equally long have tight ends too.
 */
int64_t pl_clock_seq_shift(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y)
{
	int64_t n = pl_min_i64(x->n, y->n), reach = llabs((int64_t)x->n - (int64_t)y->n);
	bool agree = pl_clock_seq_alike(a, x, y, 0);
	int64_t best = 0, spread, tightest;
	double together;

	if (pl_clock_is_posted(a, &a->ev[x->ev[0]]))
		return agree && !reach ? 0 : posted_shift(a, x, y, pl_min_i64(reach, MAX_SHIFT));
	if (n < PL_SEQ_PAIRS)
		return 0;
	spread = pl_clock_seq_spread(a, x, y, 0, NULL);
	if (agree && x->n == y->n && spread < median_duration(a, y) / 4)
		return 0;
	tightest = agree ? spread / 2 : INT64_MAX;
	together = agree ? share_together(a, x, y, 0) : 0;
	reach = pl_min_i64(pl_max_i64(reach, 3), MAX_SHIFT);
	for (int64_t k = 1; k <= 2 * reach; k++) {
		int64_t shift = k % 2 ? (k + 1) / 2 : -k / 2, from, s;

		if (overlap(x, y, shift, &from) < pl_max_i64(PL_SEQ_PAIRS, n / 2) ||
		    !pl_clock_seq_alike(a, x, y, shift) ||
		    share_together(a, x, y, shift) < together)
			continue;
		s = pl_clock_seq_spread(a, x, y, shift, NULL);
		if (s < tightest) {
			tightest = s;
			best = shift;
		}
	}
	return best;
}

/* ---- over a difference ----------------------------------------------------------------------- */

/* How well do x and y, from a place where they differ, go together with a shift? INT64_MAX: not, or
 * in less than `least` pairs. */
static int64_t fit_behind(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			  int64_t shift, int64_t least)
{
	int64_t from, m = overlap(x, y, shift, &from), bad = 0;

	if (m < least)
		return INT64_MAX;
	for (int64_t i = from; i < from + m; i++)
		bad += !pl_clock_seq_same(a, x->ev[i + shift], y->ev[i]);
	if (bad > (m > 1) + m / 20)
		return INT64_MAX;
	if (m < PL_SEQ_PAIRS)
		return bad + llabs(shift); /* no scatter to be seen: the plainest */
	return pl_clock_seq_spread(a, x, y, shift, NULL);
}

/*
 * x and y differ at (i, j). Something was put in, left out or replaced: which, the ends tell where
 * all elements are alike. Fills the number of elements to skip on both sides. A shift is looked for
 * near by first; far away chance would find one that fits few pairs.
 */
static bool resync(const struct pl_align *a, const struct pl_seq *x, uint32_t i,
		   const struct pl_seq *y, uint32_t j, uint32_t skip[2])
{
	int64_t best = INT64_MAX, found = 0;

	for (uint32_t reach = NEAR_REACH; reach <= REACH && best == INT64_MAX; reach *= 4) {
		size_t nx = pl_min_size(x->n - i, 4 * reach), ny = pl_min_size(y->n - j, 4 * reach);
		struct pl_seq p = { x->ev + i, (uint32_t)nx, x->rank, NULL };
		struct pl_seq q = { y->ev + j, (uint32_t)ny, y->rank, NULL };
		int64_t least = reach == NEAR_REACH ? 2 : PL_SEQ_PAIRS;

		for (int64_t k = 0; k <= 2 * reach; k++) {
			int64_t shift = k % 2 ? (k + 1) / 2 : -k / 2;
			int64_t d =
				fit_behind(a, &p, &q, shift, pl_min_i64(least, pl_min_i64(nx, ny)));

			if (d < best) {
				best = d;
				found = shift;
			}
		}
	}
	skip[0] = found > 0 ? (uint32_t)found : found == 0;
	skip[1] = found < 0 ? (uint32_t)-found : found == 0;
	return best < INT64_MAX;
}

uint32_t pl_clock_seq_align(const struct pl_align *a, const struct pl_seq *x, struct pl_seq *y)
{
	int64_t shift, from;
	uint32_t i, j, at = PL_NONE;
	int differences = 0;

	memset(y->to, 0xff, y->n * sizeof(*y->to));
	if (!x->n || !y->n)
		return PL_NONE;
	shift = pl_clock_seq_shift(a, x, y);
	overlap(x, y, shift, &from);
	for (j = (uint32_t)from, i = (uint32_t)(from + shift); i < x->n && j < y->n;) {
		uint32_t skip[2];

		if (pl_clock_seq_same(a, x->ev[i], y->ev[j])) {
			y->to[j++] = i++;
			continue;
		}
		at = at == PL_NONE ? j : at;
		if (++differences > MAX_DIFFERENCES || !resync(a, x, i, y, j, skip))
			break;
		i += skip[0];
		j += skip[1];
	}
	return at;
}
