/*
 * A robust first estimate. Clocks are joined to the first one along a tree. The offset of a clock
 * is the median difference of ends to a clock in the tree. Its drift is the median slope over half
 * the length of the trace (Theil's incomplete method). The classes with most matches come first.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/fit.h"

struct tree {
	struct pl_fit *f;
	bool *failed; /* by class: it joined nothing since the tree grew */
	pl_ns *pivot; /* of each match: end on the pivot, INT64_MIN */
	int64_t *d, *v;
	pl_ns *t;
};

/* The observation at a place of f->by_class. */
static const struct pl_clock_fit_obs *at(const struct tree *k, uint32_t place)
{
	return &k->f->in->obs[k->f->by_class[place]];
}

static uint32_t run_end(const struct tree *k, uint32_t i, uint32_t end)
{
	uint32_t e = i;

	while (e < end && at(k, e)->clock == at(k, i)->clock)
		e++;
	return e;
}

/* The class with most observations that has clocks inside and outside the tree. */
static uint32_t pick_class(const struct tree *k)
{
	const struct pl_fit *f = k->f;
	uint32_t best = PL_NONE, most = 0;

	for (uint32_t c = 0; c < f->in->n_classes; c++) {
		uint32_t n = f->class0[c + 1] - f->class0[c], end = f->class0[c + 1];
		bool in = false, out = false;

		if (k->failed[c] || n <= most)
			continue;
		for (uint32_t i = f->class0[c]; i < end; i = run_end(k, i, end)) {
			in |= f->clock[at(k, i)->clock].in_tree;
			out |= !f->clock[at(k, i)->clock].in_tree;
		}
		if (in && out) {
			best = c;
			most = n;
		}
	}
	return best;
}

/* Join the clock of places [i, e) to the pivot clock, if they met. */
static bool join(struct tree *k, uint32_t pivot, uint32_t i, uint32_t e)
{
	struct pl_fit *f = k->f;
	uint32_t clock = at(k, i)->clock;
	size_t n = 0;
	double s;

	for (; i < e; i++) {
		pl_ns p = k->pivot[at(k, i)->match];

		if (p == INT64_MIN)
			continue;
		k->t[n] = pl_sub_sat(p, f->clock[pivot].base);
		k->d[n++] = pl_sub_sat(at(k, i)->end, p);
	}
	if (!n)
		return false;
	s = pl_clock_slope(k->t, k->d, n, k->v);
	for (size_t j = 0; j < n; j++)
		k->v[j] = pl_sub_sat(k->d[j],
				     (int64_t)llround(s * (double)pl_sub_sat(k->t[j], f->t0)));
	f->clock[clock].base = pl_add_sat(f->clock[pivot].base, pl_median_i64(k->v, n));
	f->clock[clock].slope = f->clock[pivot].slope + s;
	return f->clock[clock].in_tree = true;
}

/* Join the clocks of a class to the one of it in the tree that has most observations. */
static bool grow_tree(struct tree *k, uint32_t class)
{
	struct pl_fit *f = k->f;
	uint32_t i0 = f->class0[class], i1 = f->class0[class + 1], best = i0, most = 0, pivot;
	bool joined = false;

	for (uint32_t i = i0, e; i < i1; i = e) {
		e = run_end(k, i, i1);
		if (f->clock[at(k, i)->clock].in_tree && e - i > most) {
			most = e - i;
			best = i;
		}
	}
	pivot = at(k, best)->clock;
	for (uint32_t i = i0; i < i1; i++)
		k->pivot[at(k, i)->match] = INT64_MIN;
	for (uint32_t i = best; i < best + most; i++)
		k->pivot[at(k, i)->match] = at(k, i)->end;
	for (uint32_t i = i0, e; i < i1; i = e) {
		e = run_end(k, i, i1);
		if (!f->clock[at(k, i)->clock].in_tree)
			joined |= join(k, pivot, i, e);
	}
	return joined;
}

static int spanning_tree(struct pl_fit *f, struct pl_err *err)
{
	const struct pl_clock_fit_in *in = f->in;
	struct tree k = { .f = f };
	uint32_t class;
	int rc;

	PL_TRY(pl_alloc(&k.failed, in->n_classes + 1u, 1, err));
	PL_TRY(pl_arena_array(&f->mem, &k.pivot, in->n_matches + 1u, sizeof(*k.pivot), err));
	PL_TRY(pl_arena_array(&f->mem, &k.d, in->n_obs + 1, sizeof(*k.d), err));
	PL_TRY(pl_arena_array(&f->mem, &k.v, in->n_obs + 1, sizeof(*k.v), err));
	PL_TRY(pl_arena_array(&f->mem, &k.t, in->n_obs + 1, sizeof(*k.t), err));
	f->clock[f->root].in_tree = true;
	while ((class = pick_class(&k)) != PL_NONE)
		if (grow_tree(&k, class))
			memset(k.failed, 0, in->n_classes);
		else
			k.failed[class] = true;
out:
	pl_free(k.failed);
	return rc;
}

/* When a match ended on the first clock, approximately: the median over its members. */
static int guess_times(struct pl_fit *f, struct pl_err *err)
{
	int64_t *v;
	pl_ns lo = INT64_MAX, hi = INT64_MIN;

	PL_CHECK(pl_alloc(&v, f->in->n_obs + 1, sizeof(*v), err));
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		size_t n = 0;

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			const struct pl_clock_fit_obs *o = &f->in->obs[i];
			pl_ns t = pl_sub_sat(o->end, f->clock[o->clock].base);

			if (f->clock[o->clock].in_tree)
				v[n++] = pl_sub_sat(t,
						    (int64_t)llround(f->clock[o->clock].slope *
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
	for (size_t i = 0; i < f->in->n_obs; i++)
		if (f->in->obs[i].clock == f->root) {
			f->t0 = f->in->obs[i].end;
			break;
		}
	PL_CHECK(spanning_tree(f, err));
	PL_CHECK(guess_times(f, err));
	for (uint32_t c = 0; c < f->n; c++) {
		f->clock[c].a = f->clock[c].slope * (double)pl_sub_sat(f->mid, f->t0);
		f->clock[c].b = f->clock[c].slope * f->span;
	}
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		f->u[m] = (double)pl_sub_sat(f->tau[m], f->mid) / f->span;
		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			const struct pl_clock_fit_obs *o = &f->in->obs[i];

			f->y[i] = (double)pl_sub_sat(pl_sub_sat(o->end, f->clock[o->clock].base),
						     f->tau[m]);
		}
	}
	return 0;
}
