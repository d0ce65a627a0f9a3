/*
 * Elements of a sequence that are missing on one rank, among others like them.
 *
 * Where all elements are alike, an element that is missing on one rank does not show in the names.
 * It shifts all later ends by one element, and that shows in the ends, unless the pairs overlap.
 * Busy processors notice ends late: a pair that overlaps in time stays a pair.
 *
 * Cost: linear in the elements, times the few shifts that are tried.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"

/* A shift moves ends by so many jitters at least, because few pairs in a row jitter more. */
#define SHIFT_WIDE 8
/* Times are rounded at both ends. */
#define SHIFT_LEAST_NS (2 * PL_CLOCK_RESOLUTION_NS)
/* Elements that are missing in a row. More of them would be found by chance, since shifts by many
 * elements fit sooner or later where elements come at regular times. */
#define SHIFT_MAX 4
/* Pairs that have to agree behind a shift: the ends of two may agree by chance. */
#define SHIFT_PROOF 3
/* Pairs before a shift whose median difference of ends counts; bursts of late ends are shorter. */
#define SHIFT_PAST 63
/* ... as far as drift, which is less than this, matters less than jitter. */
#define TYPICAL_DRIFT 1e-4

struct shift_search {
	const struct pl_align *a;
	const struct pl_seq *x;
	struct pl_seq *y;
	int64_t tolerance, slack;
	int64_t from, to; /* pairs that keep their distance: where the search starts */
};

static bool has_pair(const struct shift_search *f, int64_t i, int64_t shift)
{
	return i >= 0 && i < f->y->n && i + shift >= 0 && i + shift < f->x->n;
}

static pl_ns end_difference(const struct shift_search *f, int64_t i, int64_t shift)
{
	return pl_sub_sat(f->a->ev[f->x->ev[i + shift]].end, f->a->ev[f->y->ev[i]].end);
}

/* Do the ends of pair (i + shift, i) differ as those of pairs before, which ended at `since`? */
static bool keeps_difference(const struct shift_search *f, int64_t i, int64_t shift, pl_ns before,
			     pl_ns since)
{
	double dt = (double)pl_sub_sat(f->a->ev[f->y->ev[i]].end, since);

	return fabs((double)pl_sub_sat(end_difference(f, i, shift), before)) <=
	       (double)f->tolerance + TYPICAL_DRIFT * fabs(dt);
}

/* Do the two overlap in time, with clocks that differ by `off`? Members of one collective do. */
static bool overlaps(const struct shift_search *f, int64_t i, int64_t shift, pl_ns off)
{
	const struct pl_comm *p = &f->a->ev[f->x->ev[i + shift]], *q = &f->a->ev[f->y->ev[i]];
	pl_ns end = pl_min_i64(pl_sub_sat(p->end, off), q->end);

	return (q->coll_is & PL_COLL_ROOTED) ||
	       pl_sub_sat(end, pl_max_i64(pl_sub_sat(p->ts, off), q->ts)) > f->slack;
}

/* The median difference of ends before i: some ranks notice ends late. */
static pl_ns typical_difference(const struct shift_search *f, int64_t i, int dir)
{
	pl_ns since = f->a->ev[f->y->ev[i - dir]].end;
	int64_t v[SHIFT_PAST];
	size_t n = 0;

	for (i -= dir; n < SHIFT_PAST && i >= 0 && i < f->y->n; i -= dir) {
		double dt = (double)pl_sub_sat(f->a->ev[f->y->ev[i]].end, since);

		if ((dir > 0 ? i < f->from : i >= f->to) ||
		    (n >= SHIFT_PROOF && fabs(dt) * TYPICAL_DRIFT > (double)f->slack))
			break;
		if (f->y->to[i] != PL_NONE)
			v[n++] = end_difference(f, i, (int64_t)f->y->to[i] - i);
	}
	return n ? pl_median_i64(v, n) : 0;
}

/* From i on in direction `dir`, ends do not go together with `shift`, and the pairs hardly overlap,
 * but do with shift + k. If k * dir > 0, as many elements of x have no partner here, else of y. */
static int64_t missing_shift(const struct shift_search *f, int64_t i, int64_t shift, int dir)
{
	pl_ns before = end_difference(f, i - dir, shift), since = f->a->ev[f->y->ev[i - dir]].end;

	if (keeps_difference(f, i, shift, before, since))
		return 0;
	before = typical_difference(f, i, dir);
	if (keeps_difference(f, i, shift, before, since) || overlaps(f, i, shift, before))
		return 0;
	for (int64_t t = 2; t <= 2 * SHIFT_MAX + 1; t++) {
		int64_t k = t % 2 ? -(t / 2) : t / 2, from = k * dir < 0 ? i - k : i, n = 0;

		for (; n < SHIFT_PROOF; n++) {
			int64_t at = from + n * dir;

			if (!has_pair(f, at, shift + k) ||
			    !pl_clock_seq_same(f->a, f->x->ev[at + shift + k], f->y->ev[at]) ||
			    !keeps_difference(f, at, shift + k, before, since) ||
			    (has_pair(f, at, shift) &&
			     (keeps_difference(f, at, shift, before, since) ||
			      overlaps(f, at, shift, before))))
				break;
		}
		if (n == SHIFT_PROOF)
			return k;
	}
	return 0;
}

/* Put partners right from i on in direction `dir`; the pair before i is sound. */
static void follow(const struct shift_search *f, int64_t i, int64_t shift, int dir,
		   struct difference *first)
{
	struct pl_seq *y = f->y;

	for (; has_pair(f, i, shift); i += dir) {
		int64_t k = missing_shift(f, i, shift, dir);
		bool of_x = k * dir > 0;

		/* the earliest is the first that is found forwards, the last backwards */
		if (k && (dir < 0 || first->y == PL_NONE))
			*first =
				(struct difference){ PL_NONE, of_x ? f->x->ev[i + shift] : y->ev[i],
						     of_x ? y->rank : f->x->rank };
		for (int64_t left = k * dir; left < 0; left++, i += dir)
			y->to[i] = PL_NONE;
		shift += k;
		y->to[i] = (uint32_t)(i + shift);
	}
	for (; i >= 0 && i < y->n; i += dir)
		y->to[i] = PL_NONE;
}

/* The longest run of pairs that keep their distance with `shift`: is it one? */
static bool sound_pairs(struct shift_search *f, int64_t shift)
{
	int64_t longest = 0, run = 0;

	for (int64_t i = 1; i < f->y->n; i++) {
		bool sound = has_pair(f, i - 1, shift) && has_pair(f, i, shift) &&
			     keeps_difference(f, i, shift, end_difference(f, i - 1, shift),
					      f->a->ev[f->y->ev[i - 1]].end);

		run = sound ? run + 1 : 0;
		if (run > longest) {
			longest = run;
			f->from = i - run;
			f->to = i + 1;
		}
	}
	return longest >= SHIFT_PROOF;
}

struct difference pl_clock_find_missing(const struct pl_align *a, const struct pl_seq *x,
					struct pl_seq *y)
{
	struct shift_search f = { .a = a, .x = x, .y = y };
	struct difference first = { PL_NONE, PL_NONE, -1 };
	int64_t at = 0, shift, spread;

	while (at < y->n && y->to[at] == PL_NONE)
		at++;
	if (x->n < PL_SEQ_PAIRS || at + PL_SEQ_PAIRS > y->n)
		return first;
	shift = (int64_t)y->to[at] - at;
	spread = pl_clock_seq_spread(a, x, y, shift, NULL);
	spread = pl_min_i64(spread, INT64_MAX / 16);
	f.tolerance = SHIFT_LEAST_NS + SHIFT_WIDE * spread;
	f.slack = SHIFT_LEAST_NS / 2 + spread;
	if (sound_pairs(&f, shift)) {
		follow(&f, f.to, shift, 1, &first);
		follow(&f, f.from - 1, shift, -1, &first);
	}
	return first;
}
