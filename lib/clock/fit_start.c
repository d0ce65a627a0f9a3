/*
 * A robust first estimate. Clocks are joined to the first one along a tree. The offset of a clock
 * is the median of the differences of ends to a clock that is already in the tree. Its drift is the
 * median of slopes over half the length of the trace (Theil's incomplete method). The classes with
 * most matches come first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/fit.h"

#define MAX_SLOPE    0.01 /* a clock that gains more than 1 % is broken */
#define MAX_ATTEMPTS 4

struct place { /* an observation, sorted by class, clock, match */
	uint32_t class, clock, match, obs;
};

PL_COMPARATOR(by_place, struct place, class, clock, obs);

struct tree {
	struct pl_fit *f;
	struct place *p;
	size_t *class0; /* first place of each class, n_classes + 1 */
	uint8_t *attempts;
	pl_ns *pivot; /* of each match: end on the pivot, INT64_MIN */
	int64_t *d, *v;
	pl_ns *t;
};

static size_t run_end(const struct tree *k, size_t i, size_t end)
{
	size_t e = i;

	while (e < end && k->p[e].clock == k->p[i].clock)
		e++;
	return e;
}

/* The class with most observations that has clocks inside and outside the tree. */
static uint32_t pick_class(const struct tree *k)
{
	uint32_t best = PL_NONE;
	size_t most = 0;

	for (uint32_t c = 0; c < k->f->in->n_classes; c++) {
		bool in = false, out = false;

		if (k->attempts[c] >= MAX_ATTEMPTS || k->class0[c + 1] - k->class0[c] <= most)
			continue;
		for (size_t i = k->class0[c]; i < k->class0[c + 1];
		     i = run_end(k, i, k->class0[c + 1])) {
			in |= k->f->in_tree[k->p[i].clock];
			out |= !k->f->in_tree[k->p[i].clock];
		}
		if (in && out) {
			best = c;
			most = k->class0[c + 1] - k->class0[c];
		}
	}
	return best;
}

/* Median slope of d over t between points half the length apart. */
static double slope_of(const struct tree *k, size_t n)
{
	size_t half = n / 2, m = 0;

	if (n < 4)
		return 0;
	for (size_t i = 0; i + half < n; i++) {
		double dt = (double)pl_sub_sat(k->t[i + half], k->t[i]);
		double s = dt > 0 ? (double)pl_sub_sat(k->d[i + half], k->d[i]) / dt : 0;

		if (dt > 0 && fabs(s) < MAX_SLOPE)
			k->v[m++] = (int64_t)llround(s * 1e15);
	}
	return m ? (double)pl_median_i64(k->v, m) * 1e-15 : 0;
}

/* Join the clock of places [i, e) to the pivot clock, if they met. */
static void join(struct tree *k, uint32_t pivot, size_t i, size_t e)
{
	struct pl_fit *f = k->f;
	uint32_t clock = k->p[i].clock;
	size_t n = 0;
	double s;

	for (; i < e; i++) {
		pl_ns p = k->pivot[k->p[i].match];

		if (p == INT64_MIN)
			continue;
		k->t[n] = pl_sub_sat(p, f->base[pivot]);
		k->d[n++] = pl_sub_sat(f->in->obs[k->p[i].obs].end, p);
	}
	if (!n)
		return;
	s = slope_of(k, n);
	for (i = 0; i < n; i++)
		k->v[i] = pl_sub_sat(k->d[i],
				     (int64_t)llround(s * (double)pl_sub_sat(k->t[i], f->t0)));
	f->base[clock] = pl_add_sat(f->base[pivot], pl_median_i64(k->v, n));
	f->slope[clock] = f->slope[pivot] + s;
	f->in_tree[clock] = true;
}

static void grow_tree(struct tree *k, uint32_t class)
{
	size_t i0 = k->class0[class], i1 = k->class0[class + 1], best = i0, most = 0;
	uint32_t pivot;

	k->attempts[class]++;
	for (size_t i = i0, e; i < i1; i = e) {
		e = run_end(k, i, i1);
		if (k->f->in_tree[k->p[i].clock] && e - i > most) {
			most = e - i;
			best = i;
		}
	}
	pivot = k->p[best].clock;
	for (size_t i = i0; i < i1; i++)
		k->pivot[k->p[i].match] = INT64_MIN;
	for (size_t i = best; i < best + most; i++)
		k->pivot[k->p[i].match] = k->f->in->obs[k->p[i].obs].end;
	for (size_t i = i0, e; i < i1; i = e) {
		e = run_end(k, i, i1);
		if (!k->f->in_tree[k->p[i].clock])
			join(k, pivot, i, e);
	}
}

static void sort_places(struct tree *k)
{
	const struct pl_clock_fit_in *in = k->f->in;
	size_t i = 0;

	for (size_t o = 0; o < in->n_obs; o++) {
		const struct pl_clock_fit_obs *p = &in->obs[o];

		k->p[o] = (struct place){ in->match_class[p->match], p->clock, p->match,
					  (uint32_t)o };
	}
	qsort(k->p, in->n_obs, sizeof(*k->p), by_place);
	for (uint32_t c = 0; c <= in->n_classes; c++) {
		while (i < in->n_obs && k->p[i].class < c)
			i++;
		k->class0[c] = i;
	}
}

static int spanning_tree(struct pl_fit *f, struct pl_err *err)
{
	const struct pl_clock_fit_in *in = f->in;
	struct tree k = { .f = f };
	uint32_t class;
	int rc;

	PL_TRY(pl_alloc(&k.p, in->n_obs + 1, sizeof(*k.p), err));
	PL_TRY(pl_alloc(&k.class0, in->n_classes + 2u, sizeof(*k.class0), err));
	PL_TRY(pl_alloc(&k.attempts, in->n_classes + 1u, 1, err));
	PL_TRY(pl_alloc(&k.pivot, in->n_matches + 1u, sizeof(*k.pivot), err));
	PL_TRY(pl_alloc(&k.d, in->n_obs + 1, sizeof(*k.d), err));
	PL_TRY(pl_alloc(&k.v, in->n_obs + 1, sizeof(*k.v), err));
	PL_TRY(pl_alloc(&k.t, in->n_obs + 1, sizeof(*k.t), err));
	sort_places(&k);
	f->in_tree[f->root] = true;
	while ((class = pick_class(&k)) != PL_NONE)
		grow_tree(&k, class);
out:
	pl_free(k.p);
	pl_free(k.class0);
	pl_free(k.attempts);
	pl_free(k.pivot);
	pl_free(k.d);
	pl_free(k.v);
	pl_free(k.t);
	return rc;
}

/* When a match ended on the first clock, approximately: the median over its members. */
static int guess_times(struct pl_fit *f, struct pl_err *err)
{
	int64_t *v;
	int rc = pl_alloc(&v, f->in->n_obs + 1, sizeof(*v), err);
	pl_ns lo = INT64_MAX, hi = INT64_MIN;

	if (rc < 0)
		return rc;
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		size_t n = 0;

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			const struct pl_clock_fit_obs *o = &f->in->obs[i];
			pl_ns t = pl_sub_sat(o->end, f->base[o->clock]);

			if (f->in_tree[o->clock])
				v[n++] = pl_sub_sat(t,
						    (int64_t)llround(f->slope[o->clock] *
								     (double)pl_sub_sat(t, f->t0)));
		}
		if (!n)
			continue;
		f->tau[m] = pl_median_i64(v, n);
		lo = pl_min_i64(lo, f->tau[m]);
		hi = pl_max_i64(hi, f->tau[m]);
	}
	pl_free(v);
	f->mid = lo > hi ? 0 : pl_add_sat(lo, pl_sub_sat(hi, lo) / 2);
	f->span = lo >= hi ? 1 : (double)pl_sub_sat(hi, lo);
	return 0;
}

int pl_clock_fit_start(struct pl_fit *f, struct pl_err *err)
{
	int rc;

	for (size_t i = 0; i < f->in->n_obs; i++)
		if (f->in->obs[i].clock == f->root) {
			f->t0 = f->in->obs[i].end;
			break;
		}
	PL_TRY(spanning_tree(f, err));
	PL_TRY(guess_times(f, err));
	for (uint32_t c = 0; c < f->n; c++) {
		f->a[c] = f->slope[c] * (double)pl_sub_sat(f->mid, f->t0);
		f->b[c] = f->slope[c] * f->span;
	}
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		f->u[m] = (double)pl_sub_sat(f->tau[m], f->mid) / f->span;
		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			const struct pl_clock_fit_obs *o = &f->in->obs[i];

			f->y[i] = (double)pl_sub_sat(pl_sub_sat(o->end, f->base[o->clock]),
						     f->tau[m]);
		}
	}
out:
	return rc;
}
