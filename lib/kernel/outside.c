/*
 * Intervals of sizes outside what was measured.
 *
 * Shapes that are left out at random lie between others. What is larger than all of them, or
 * smaller, is predicted worse, the more so the farther it is. So the largest third of the shapes of
 * each part is left out, then the largest two thirds, and the same of the smallest ones. The
 * distance of a sample is the logarithm of how many times its sizes are above or below those of the
 * others. By how much its error leaves the interval, for each unit of distance, has a quantile as
 * errors have (interval.c), and the interval grows with the distance by this rate, the greater of
 * both. Just outside the range a rate says nothing, so no distance is shorter than the median of
 * those that were tried.
 */
#include "kernel/eval.h"
#include "kernel/model_internal.h"

#define WIDEST	    20	/* of a logarithm: an end that says nothing */
#define ENOUGH	    40	/* errors of one trial, of which two are beyond each end */
#define GUESSED	    0.2 /* a rate where nothing was tried */
#define GUESSED_FOR 1	/* and the distance below which it does not fall */

struct sized {
	size_t part, row;
	double size;
};

PL_COMPARATOR(by_size, struct sized, part, size, row);

/* left[i]: is it of that share of the measurements of its part, those of the largest shapes, or of
 * the smallest ones? Equal sizes stay together. */
static int leave_out(const struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
		     bool largest, double share, bool *left, struct pl_err *err)
{
	struct sized *v;
	size_t n = 0;

	PL_CHECK(pl_alloc(&v, s->n + 1, sizeof(*v), err));
	for (size_t i = 0; i < s->n; i++) {
		struct sized x = { pl_interval_part(m, &s->v[i]), i, pl_part_work(&s->v[i].k) };

		if (x.part < m->n_parts && (!use || use[i]) && s->v[i].known)
			v[n++] = x;
	}
	pl_sort(v, n, sizeof(*v), by_size);
	for (size_t i = 0, k; i < n; i = k) {
		double from;

		for (k = i; k < n && v[k].part == v[i].part;)
			k++;
		from = v[i + (size_t)((largest ? 1 - share : share) * (double)(k - i - 1))].size;
		for (size_t j = i; j < k; j++)
			left[v[j].row] = largest ? v[j].size > from : v[j].size < from;
	}
	pl_free(v);
	return 0;
}

struct far {
	size_t part;
	double distance, error;
	struct quantiles inside; /* of errors */
};

PL_COMPARATOR(by_distance, struct far, part, distance);

/* The errors of samples that are above the measured sizes, or of those below. Returns how many. */
static size_t find_far(const struct pl_kernel_model *m, const struct pl_interval_trial *t,
		       bool above, struct far *v)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct pl_kernel_time *x = &t->time[i];
		struct far f = { .part = pl_interval_part(m, &t->v[i]),
				 .distance = above ? x->above : x->below,
				 .error = log((double)t->v[i].ns / x->ns) };

		/* too few are left for a part: the family's errors are others */
		if (x->flag == PL_KERNEL_UNKNOWN)
			continue;
		if (!(f.distance > 0) || !isfinite(f.error) || f.part == m->n_parts)
			continue;
		f.inside =
			pl_interval_of_shapes(m, &m->part[f.part], bin_of_time(x->ns, x->floor_ns));
		if (f.inside.n)
			v[n++] = f;
	}
	return n;
}

/* Adds what v[0 .. n - 1] show, by distance; room: for as many. */
static void add_rates(struct growth *to, const struct far *v, size_t n, double *room)
{
	double least;

	if (n < ENOUGH)
		return;
	least = v[n / 2].distance;
	for (size_t i = 0; i < n; i++)
		room[i] = (v[i].inside.low - v[i].error) / fmax(v[i].distance, least);
	to->low = fmax(to->low, pl_interval_quantiles(room, n).high);
	for (size_t i = 0; i < n; i++)
		room[i] = (v[i].error - v[i].inside.high) / fmax(v[i].distance, least);
	to->high = fmax(to->high, pl_interval_quantiles(room, n).high);
	to->least = fmax(to->least, least);
	to->n += (uint32_t)n;
}

static int try_far(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
		   const struct pl_kernel_fit_opts *o, bool above, double share, struct pl_err *err)
{
	struct pl_interval_trial t = { .n = 0 };
	struct far *v = NULL;
	double *room = NULL;
	bool *left = NULL;
	size_t n;
	int rc;

	PL_TRY(pl_alloc(&left, s->n + 1, sizeof(*left), err));
	PL_TRY(leave_out(m, s, use, above, share, left, err));
	PL_TRY(pl_interval_try(s, use, o, left, &t, err));
	PL_TRY(pl_alloc(&v, t.n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&room, t.n + 1, sizeof(*room), err));
	n = find_far(m, &t, above, v);
	pl_sort(v, n, sizeof(*v), by_distance);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].part == v[i].part;)
			k++;
		add_rates(&m->part[v[i].part].growth[above], v + i, k - i, room);
	}
	for (size_t i = 0; i < n; i++)
		v[i].part = 0;
	pl_sort(v, n, sizeof(*v), by_distance);
	add_rates(&m->growth[above], v, n, room);
	rc = 0;
out:
	pl_interval_trial_fini(&t);
	pl_free(left);
	pl_free(v);
	pl_free(room);
	return rc;
}

int pl_interval_find_growth(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			    const struct pl_kernel_fit_opts *o, struct pl_err *err)
{
	for (int above = 0; above < 2; above++) {
		PL_CHECK(try_far(m, s, use, o, above, 1. / 3, err));
		PL_CHECK(try_far(m, s, use, o, above, 2. / 3, err));
	}
	return 0;
}

void pl_interval_grow(const struct pl_kernel_model *m, const struct part *p, bool above,
		      double distance, double *low, double *high)
{
	static const struct growth guess = { GUESSED, GUESSED, GUESSED_FOR, 0 };
	const struct growth *g = p->growth[above].n   ? &p->growth[above]
				 : m->growth[above].n ? &m->growth[above]
						      : &guess;
	double d = fmax(distance, g->least);

	*low *= exp(-fmin(g->low * d, WIDEST));
	*high *= exp(fmin(g->high * d, WIDEST));
}
