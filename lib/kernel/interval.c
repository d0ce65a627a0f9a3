/*
 * Intervals by split-conformal prediction.
 *
 * Errors are log(measured / predicted) of operations that a model did not see: for devices that
 * were measured, of shapes that were left out; for others, of whole devices that were left out one
 * by one. The middle 90 % of n exchangeable errors hold the next one with a probability of at least
 * 90 % if the ranks are those of n + 1 errors. Errors of a device are alike, so those of another
 * device are not exchangeable with them; it is devices that are. Therefore the widest of the
 * middles of the devices counts, not the middle of all. Errors differ with the time by the floor,
 * so there are quantiles for three ranges of it; where too few errors are known, those of the part
 * or of all parts count. Operations that were not measured are those of unknown.c.
 */
#include <stdlib.h>

#include "kernel/eval.h"
#include "kernel/model_internal.h"

#define TAIL	0.05 /* on each side */
#define ENOUGH	100  /* errors of a bin, and of a part */
#define FOLDS	3    /* in which shapes are left out */
#define DEVICES 3    /* devices from which on they are left out one by one */

struct errors { /* of a part, or of all */
	double *v[BINS];
	size_t n[BINS], cap[BINS];
};

struct quantiles pl_interval_quantiles(double *error, size_t n)
{
	double rank = TAIL * (double)(n + 1);
	size_t low = rank < 1 ? 0 : (size_t)rank - 1;

	if (!n)
		return (struct quantiles){ 0, 0, 0 };
	pl_sort(error, n, sizeof(*error), pl_compare_double);
	return (struct quantiles){ error[low], error[n - 1 - low], (uint32_t)n };
}

static void errors_fini(struct errors *e, size_t n)
{
	for (size_t i = 0; e && i < n; i++)
		for (int b = 0; b < BINS; b++)
			pl_free(e[i].v[b]);
	pl_free(e);
}

static int spread_of(struct errors *e, struct spread *to, struct pl_err *err)
{
	double *all = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&all, e->n[0] + e->n[1] + e->n[2] + 1, sizeof(*all), err));
	for (int b = 0; b < BINS; b++) {
		if (e->n[b])
			memcpy(all + n, e->v[b], e->n[b] * sizeof(*all));
		n += e->n[b];
		to->bin[b] = pl_interval_quantiles(e->v[b], e->n[b]);
	}
	to->all = pl_interval_quantiles(all, n);
out:
	pl_free(all);
	return rc;
}

size_t pl_interval_part(const struct pl_kernel_model *m, const struct pl_sample *x)
{
	const struct part *p = pl_kernel_part(m, x->k.op, x->k.family, x->k.type);

	return p ? (size_t)(p - m->part) : m->n_parts;
}

static int add_error(struct errors *e, unsigned bin, double v, struct pl_err *err)
{
	return pl_append(&e->v[bin], &e->n[bin], &e->cap[bin], &v, sizeof(v), err);
}

void pl_interval_trial_fini(struct pl_interval_trial *t)
{
	pl_free(t->v);
	pl_free(t->time);
	*t = (struct pl_interval_trial){ .n = 0 };
}

int pl_interval_try(const struct pl_samples *s, const bool *use, const struct pl_kernel_fit_opts *o,
		    const bool *left, struct pl_interval_trial *t, struct pl_err *err)
{
	struct pl_kernel_fit_opts without = *o;
	struct pl_kernel_model *sub = NULL;
	bool *rest = NULL;
	size_t kept = 0;
	int rc;

	*t = (struct pl_interval_trial){ .n = 0 };
	without.intervals = false;
	PL_TRY(pl_alloc(&rest, s->n + 1, sizeof(*rest), err));
	PL_TRY(pl_alloc(&t->v, s->n + 1, sizeof(*t->v), err));
	PL_TRY(pl_alloc(&t->time, s->n + 1, sizeof(*t->time), err));
	for (size_t i = 0; i < s->n; i++) {
		bool used = (!use || use[i]) && s->v[i].known && s->v[i].ns > 0;

		rest[i] = used && !left[i];
		kept += rest[i];
		if (used && left[i])
			t->v[t->n++] = s->v[i];
	}
	if (!kept)
		t->n = 0;
	if (!t->n)
		goto out;
	PL_TRY(pl_kernel_fit(s, rest, &without, &sub, err));
	rc = pl_kernel_apply(sub, s, t->v, t->n, t->time, err);
out:
	pl_kernel_model_free(sub);
	pl_free(rest);
	if (rc < 0)
		pl_interval_trial_fini(t);
	return rc;
}

/* Adds the errors of a model without the samples left[]. */
static int try_without(const struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
		       const struct pl_kernel_fit_opts *o, const bool *left, struct errors *e,
		       struct pl_err *err)
{
	struct pl_interval_trial t;
	int rc;

	PL_CHECK(pl_interval_try(s, use, o, left, &t, err));
	for (size_t i = 0; i < t.n; i++) {
		unsigned bin = bin_of_time(t.time[i].ns, t.time[i].floor_ns);
		double error = log((double)t.v[i].ns / t.time[i].ns);
		size_t p = pl_interval_part(m, &t.v[i]);

		if (!isfinite(error))
			continue;
		if (p < m->n_parts)
			PL_TRY(add_error(&e[p], bin, error, err));
		PL_TRY(add_error(&e[m->n_parts], bin, error, err));
	}
	rc = 0;
out:
	pl_interval_trial_fini(&t);
	return rc;
}

/* Leave out device `fold`, or (shapes) a part of the shapes. */
static void leave_out(const struct pl_samples *s, uint32_t fold, bool shapes, bool *left)
{
	for (size_t i = 0; i < s->n; i++)
		left[i] = shapes ? (pl_samples_shape(&s->v[i]) >> 32) % FOLDS == fold
				 : s->v[i].device == fold;
}

static size_t devices_used(const struct pl_samples *s, const bool *use, bool *there)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		uint32_t d = s->v[i].device;

		if ((use && !use[i]) || !s->v[i].known || there[d])
			continue;
		there[d] = true;
		n++;
	}
	return n;
}

void pl_interval_widen(struct quantiles *to, const struct quantiles *q)
{
	if (!q->n)
		return;
	to->low = to->n ? fmin(to->low, q->low) : q->low;
	to->high = to->n ? fmax(to->high, q->high) : q->high;
	to->n += q->n;
}

void pl_interval_combine(struct quantiles *to, const struct quantiles *q)
{
	to->low = -hypot(fmin(to->low, 0), fmin(q->low, 0));
	to->high = hypot(fmax(to->high, 0), fmax(q->high, 0));
}

/* Add to the spreads of all parts what one fold shows, and forget its errors. */
static int end_fold(struct pl_kernel_model *m, struct errors *e, bool shapes, struct pl_err *err)
{
	for (size_t i = 0; i <= m->n_parts; i++) {
		struct spread one, *to = i == m->n_parts ? (shapes ? &m->known : &m->other)
					 : shapes	 ? &m->part[i].known
							 : &m->part[i].other;

		PL_CHECK(spread_of(&e[i], &one, err));
		for (int b = 0; b < BINS; b++) {
			pl_interval_widen(&to->bin[b], &one.bin[b]);
			e[i].n[b] = 0;
		}
		pl_interval_widen(&to->all, &one.all);
	}
	return 0;
}

static int find_spreads(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			const struct pl_kernel_fit_opts *o, bool shapes, const bool *there,
			struct pl_err *err)
{
	uint32_t folds = shapes ? FOLDS : (uint32_t)s->devices.n;
	struct errors *e = NULL;
	bool *left = NULL;
	int rc;

	PL_TRY(pl_alloc(&left, s->n + 1, sizeof(*left), err));
	PL_TRY(pl_alloc(&e, m->n_parts + 1, sizeof(*e), err));
	for (uint32_t k = 0; k < folds; k++) {
		if (!shapes && !there[k])
			continue;
		leave_out(s, k, shapes, left);
		PL_TRY(try_without(m, s, use, o, left, e, err));
		if (!shapes)
			PL_TRY(end_fold(m, e, false, err));
	}
	if (shapes)
		PL_TRY(end_fold(m, e, true, err));
out:
	errors_fini(e, m->n_parts + 1);
	pl_free(left);
	return rc;
}

int pl_kernel_find_intervals(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			     const struct pl_kernel_fit_opts *o, struct pl_err *err)
{
	bool *there;
	int rc;

	m->intervals = true;
	PL_CHECK(pl_alloc(&there, s->devices.n + 1, sizeof(*there), err));
	PL_TRY(find_spreads(m, s, use, o, true, there, err));
	PL_TRY(pl_interval_find_growth(m, s, use, o, err));
	if (devices_used(s, use, there) >= DEVICES)
		PL_TRY(find_spreads(m, s, use, o, false, there, err));
	rc = pl_kernel_find_unknown(m, s, use, o, err);
out:
	pl_free(there);
	return rc;
}

/* ---- of a prediction --------------------------------------------------------------------------
 */

static const struct quantiles *best_of(const struct spread *s, unsigned bin)
{
	if (s->bin[bin].n >= ENOUGH)
		return &s->bin[bin];
	return s->all.n >= ENOUGH ? &s->all : NULL;
}

#define DEVICE 0.2 /* a guess: log of the ratio between devices */
#define LEAST  19  /* errors of which the least and greatest are the ends of 90 % */

struct quantiles pl_interval_of_others(const struct quantiles *shapes)
{
	return (struct quantiles){ shapes->low - DEVICE, shapes->high + DEVICE, shapes->n };
}

/* From errors on what the training has not seen; n below LEAST: there is no interval. */
static struct quantiles of_training(const struct pl_kernel_model *m, const struct part *p,
				    bool known, unsigned bin)
{
	const struct quantiles *q = best_of(known ? &p->known : &p->other, bin);

	if (!q && p->op == PL_NONE) /* of an operation that was not measured */
		q = known ? &p->known.all : &p->other.all;
	if (!q)
		q = best_of(known ? &m->known : &m->other, bin);
	if (q || known)
		return q ? *q : m->known.all;
	q = best_of(&p->known, bin);
	return pl_interval_of_others(q ? q : &m->known.all);
}

struct quantiles pl_interval_of_shapes(const struct pl_kernel_model *m, const struct part *p,
				       unsigned bin)
{
	return of_training(m, p, true, bin);
}

/*
 * Of a device that was only adapted to, the errors that the adaptation left count. The training may
 * have seen the rows that it was adapted with: then these errors are those of rows that the trees
 * know, which are too small. So of a device that the training knows the wider ends count.
 *
 * The adaptation has hardly measured what the part of a family predicts, though it changes its
 * level. There the errors of an operation that was not measured count, together with those that the
 * adaptation left.
 */
static struct quantiles of_device(const struct pl_kernel_model *m, const struct part *p,
				  uint32_t device, unsigned bin)
{
	const struct quantiles *adapted = &m->adapted[device];
	struct quantiles q;

	if (m->trained_on && m->trained_on[device]) {
		size_t at = (size_t)(p - m->part) * m->devices.n + device;

		q = of_training(m, p, !isnan(m->trained[at].floor), bin);
		if (q.n >= LEAST && p->op != PL_NONE)
			pl_interval_widen(&q, adapted);
		return q;
	}
	if (p->op != PL_NONE)
		return *adapted;
	q = of_training(m, p, true, bin);
	pl_interval_combine(&q, adapted);
	return q;
}

void pl_kernel_interval(const struct pl_kernel_model *m, const struct part *p, uint32_t device,
			unsigned bin, double *low, double *high)
{
	bool known = device != PL_NONE, adapted = known && m->adapted && m->adapted[device].n;
	struct quantiles q = adapted ? of_device(m, p, device, bin) : of_training(m, p, known, bin);

	*low = *high = NAN;
	if (!m->intervals || q.n < LEAST)
		return;
	*low = exp(q.low);
	*high = exp(q.high);
}
