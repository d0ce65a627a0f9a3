/*
 * Intervals of operations that were not measured, which the part of their family predicts.
 *
 * Each measured operation is left out in turn: a part of its family learns from the others and
 * predicts it. Errors of one operation are alike, so it is operations that are exchangeable, not
 * measurements. Therefore each operation left out has the middle 90 % of its errors, and the ends
 * of these middles count. Of 20 operations and more, 5 % of the ends are beyond those taken. Fewer
 * operations do not reach so far: their ends are taken for normal, and 5 % of further ones are
 * beyond the prediction interval of Student's t, which is wide for few. Fewer than three operations
 * say nothing of others; then a factor of three counts, a guess, and what operations of all
 * families reach. For a device that was not measured, the interval of other devices is combined
 * with it: each end is the root of the sum of both squares, as of independent errors.
 *
 * One fit of a family for each of its operations, of at most SAMPLES measurements.
 */
#include "kernel/model_internal.h"

#define OPERATIONS 3	 /* left out, from which on they speak for their family alone */
#define MOST	   24	 /* operations of a family that are left out */
#define SAMPLES	   10000 /* from which a part learns that predicts an operation left out */
#define SHOWS	   19	 /* so many show the ends of 90 % */
#define FACTOR	   1.1	 /* a guess: log 3 on each side */

struct ends { /* the middles of operations */
	struct quantiles *v;
	size_t n, cap;
};
struct held {			   /* of a family, or of all together */
	struct ends bin[BINS + 1]; /* the last: of all errors of an operation */
};
struct finder {
	struct pl_kernel_model *m;
	const struct pl_samples *s;
	const bool *use; /* NULL: all */
	const struct pl_kernel_fit_opts *o;
	struct held *held; /* [part]; behind them that of all */
	/* room for the samples of one operation */
	bool *rest;
	struct pl_sample *v;
	struct pl_kernel_time *t;
	double *error;
};

static bool is_of(const struct pl_sample *x, const struct part *p)
{
	return x->known && x->ns > 0 && x->k.family == p->family && x->k.type == p->type;
}

static int add_middle(struct finder *f, size_t part, unsigned bin, size_t n, struct pl_err *err)
{
	const size_t to[2] = { part, f->m->n_parts };
	struct quantiles q;

	if (n < SHOWS)
		return 0;
	q = pl_interval_quantiles(f->error, n);
	for (int i = 0; i < 2; i++) {
		struct ends *e = &f->held[to[i]].bin[bin];

		PL_CHECK(pl_append(&e->v, &e->n, &e->cap, &q, sizeof(q), err));
	}
	return 0;
}

/* The errors of n predicted samples f->v. */
static int add_errors(struct finder *f, size_t part, size_t n, struct pl_err *err)
{
	for (unsigned b = 0; b <= BINS; b++) {
		size_t of_bin = 0;

		for (size_t i = 0; i < n; i++) {
			const struct pl_kernel_time *t = &f->t[i];
			double error = log((double)f->v[i].ns / t->ns);

			if (isfinite(error) && (b == BINS || bin_of_time(t->ns, t->floor_ns) == b))
				f->error[of_bin++] = error;
		}
		PL_CHECK(add_middle(f, part, b, of_bin, err));
	}
	return 0;
}

/* Learn the family of the part without the operation, and predict the operation. */
static int leave_out(struct finder *f, size_t part, pl_id op, struct pl_err *err)
{
	const struct part *p = &f->m->part[part];
	struct pl_kernel_model *sub;
	size_t n = 0, kept = 0;
	int rc;

	for (size_t i = 0; i < f->s->n; i++) {
		const struct pl_sample *x = &f->s->v[i];

		f->rest[i] = (!f->use || f->use[i]) && x->k.op != op;
		kept += f->rest[i] && is_of(x, p);
		if ((!f->use || f->use[i]) && x->k.op == op && is_of(x, p))
			f->v[n++] = *x;
	}
	if (n < SHOWS || !kept)
		return 0;
	PL_CHECK(pl_kernel_fit_family(f->s, f->rest, f->o, p, SAMPLES, &sub, err));
	rc = pl_kernel_apply(sub, f->s, f->v, n, f->t, err);
	pl_kernel_model_free(sub);
	return rc < 0 ? rc : add_errors(f, part, n, err);
}

/* Those that have enough measurements to show something. */
static int leave_out_each(struct finder *f, size_t part, struct pl_err *err)
{
	size_t n = 0, every, *rows;
	int rc;

	PL_CHECK(pl_alloc(&rows, f->s->op.n + 1, sizeof(*rows), err));
	for (size_t i = 0; i < f->s->n; i++) {
		const struct pl_sample *x = &f->s->v[i];

		if ((!f->use || f->use[i]) && is_of(x, &f->m->part[part]))
			n += ++rows[x->k.op] == SHOWS;
	}
	every = (n + MOST - 1) / MOST;
	n = 0;
	for (pl_id op = 0; op < f->s->op.n; op++)
		if (rows[op] >= SHOWS && n++ % every == 0)
			PL_TRY(leave_out(f, part, op, err));
	rc = 0;
out:
	pl_free(rows);
	return rc;
}

/* ---- what follows for the parts of families ---------------------------------------------------
 */

/* 5 % are above this in Student's t with so many degrees of freedom (Cornish and Fisher; exact to 1
 * % from 2 on). */
static double student(double degrees)
{
	const double z = 1.644854, z2 = z * z, d = 1 / degrees;

	return z * (1 + d * (z2 + 1) / 4 + d * d * ((5 * z2 + 16) * z2 + 3) / 96 +
		    d * d * d * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384);
}

/* The end of an operation like those whose ends are end[0 .. n - 1]; sorts them. side: -1 or 1. */
static double end_of(double *end, size_t n, int side)
{
	struct quantiles q = pl_interval_quantiles(end, n);
	double mean = 0, square = 0, reach, outer = side < 0 ? q.low : q.high;

	if (n >= SHOWS)
		return outer;
	for (size_t i = 0; i < n; i++)
		mean += end[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		square += (end[i] - mean) * (end[i] - mean) / (double)(n - 1);
	reach = student((double)(n - 1)) * sqrt(square * (1 + 1 / (double)n));
	return side < 0 ? fmin(outer, mean - reach) : fmax(outer, mean + reach);
}

/* The ends of an operation that is like those left out; n 0: there are too few. */
static int ends_of(const struct ends *e, struct quantiles *to, struct pl_err *err)
{
	double *end;
	uint64_t n = 0;

	*to = (struct quantiles){ 0, 0, 0 };
	if (e->n < OPERATIONS)
		return 0;
	PL_CHECK(pl_alloc(&end, e->n, sizeof(*end), err));
	for (size_t i = 0; i < e->n; i++)
		end[i] = e->v[i].low;
	to->low = end_of(end, e->n, -1);
	for (size_t i = 0; i < e->n; i++) {
		end[i] = e->v[i].high;
		n += e->v[i].n;
	}
	to->high = end_of(end, e->n, 1);
	to->n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
	pl_free(end);
	return 0;
}

static void reach(struct quantiles *to, const struct quantiles *q)
{
	to->low = fmin(to->low, q->low);
	to->high = fmax(to->high, q->high);
}

/* A family with too few operations: what a factor of three, the operations of all families, and its
 * own ones reach. */
static int guess(struct finder *f, size_t i, struct quantiles *to, struct pl_err *err)
{
	const struct ends *own = &f->held[i].bin[BINS];
	struct quantiles all;

	*to = f->m->known.all;
	to->low -= FACTOR;
	to->high += FACTOR;
	PL_CHECK(ends_of(&f->held[f->m->n_parts].bin[BINS], &all, err));
	if (all.n)
		reach(to, &all);
	for (size_t k = 0; k < own->n; k++)
		reach(to, &own->v[k]);
	return 0;
}

static int set_part(struct finder *f, size_t i, struct pl_err *err)
{
	struct held *own = &f->held[i];
	struct quantiles device = f->m->other.all;
	struct part *p = &f->m->part[i];

	p->known = (struct spread){ .all = { 0, 0, 0 } };
	for (int b = 0; b < BINS && own->bin[BINS].n >= OPERATIONS; b++)
		PL_CHECK(ends_of(&own->bin[b], &p->known.bin[b], err));
	PL_CHECK(ends_of(&own->bin[BINS], &p->known.all, err));
	if (!p->known.all.n)
		PL_CHECK(guess(f, i, &p->known.all, err));
	if (device.n < SHOWS)
		device = pl_interval_of_others(&f->m->known.all);
	p->other = p->known;
	for (int b = 0; b < BINS; b++)
		if (p->other.bin[b].n)
			pl_interval_combine(&p->other.bin[b], &device);
	pl_interval_combine(&p->other.all, &device);
	return 0;
}

int pl_kernel_find_unknown(struct pl_kernel_model *m, const struct pl_samples *s, const bool *use,
			   const struct pl_kernel_fit_opts *o, struct pl_err *err)
{
	struct finder f = { .m = m, .s = s, .use = use, .o = o };
	int rc;

	PL_TRY(pl_alloc(&f.held, m->n_parts + 1, sizeof(*f.held), err));
	PL_TRY(pl_alloc(&f.rest, s->n + 1, sizeof(*f.rest), err));
	PL_TRY(pl_alloc(&f.v, s->n + 1, sizeof(*f.v), err));
	PL_TRY(pl_alloc(&f.t, s->n + 1, sizeof(*f.t), err));
	PL_TRY(pl_alloc(&f.error, s->n + 1, sizeof(*f.error), err));
	for (size_t i = 0; i < m->n_parts; i++)
		if (m->part[i].op == PL_NONE)
			PL_TRY(leave_out_each(&f, i, err));
	for (size_t i = 0; i < m->n_parts; i++)
		if (m->part[i].op == PL_NONE)
			PL_TRY(set_part(&f, i, err));
out:
	for (size_t i = 0; f.held && i <= m->n_parts; i++)
		for (int b = 0; b <= BINS; b++)
			pl_free(f.held[i].bin[b].v);
	pl_free(f.held);
	pl_free(f.rest);
	pl_free(f.v);
	pl_free(f.t);
	pl_free(f.error);
	return rc;
}
