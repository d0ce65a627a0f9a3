/*
 * Intervals of offsets and drifts.
 *
 * For a parameter p = e'x the error is the sum over matches of U_m = z' g_m, where H z = e and g_m
 * is what the match adds to the gradient. If jitter were independent, the variance of each U_m
 * would follow from the scale of its class. But a busy network delays several matches in a row. So
 * the variance of the sum includes the correlations of the U_m over time. These are estimated over
 * all clocks at once, since one clock has too few matches for that. In the degrees of freedom, as
 * many matches count as one as are worth one independent match.
 *
 * One or two matches show no jitter, since the offset is fitted to them. Such an offset is as exact
 * as the ends of each match are near to each other at least.
 *
 * Ends of transfers in one direction differ by a constant that no scatter shows; it may be as long
 * as a transfer, and is added.
 *
 * Cost: two solutions of the normal equations for each clock. With very many clocks and events, the
 * two by two block of each clock replaces them, and only the matches of the clock are looked at.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/fit.h"

/* A limit of time: observations in all solutions of the equations, some tenths of a second. */
#define MAX_WORK 3e7
/* A limit of time: a correlation costs (parts x MAX_LAG) for each clock. More parts would be so
 * short that MAX_LAG of them are shorter than delays last. */
#define MAX_PARTS 256
/* Fewer parts show correlations by chance: the offset and the drift were fitted to them. */
#define MIN_PARTS 6
#define MAX_LAG	  63 /* a quarter of the parts, since those that are later share few pairs */
/* A share of the greatest part. A match below it says nothing about this clock: it is one of other
 * clocks, or has 32 times the jitter. As own parts, these would count as independent evidence. */
#define SLIGHT	 1e-3
#define ROUNDS	 3   /* the correction of the correlations depends on their sum; it settles */
#define FITTED	 2   /* parameters of a clock */
#define MAX_LOST 0.3 /* a correction beyond would be a guess, because few parts are left */

/* Quantile 0.975 of Student's t; good to 1.5 %. */
static double student(double dof)
{
	double d = dof < 1 ? 1 : dof;

	return 1.96 + 2.37 / d + 2.8 / (d * d) + 2.5 / pow(d, 3) + 3.07 / pow(d, 5);
}

struct order {
	double u;
	uint32_t match;
};

PL_COMPARATOR(by_time, struct order, u, match);

/* The U_m of one parameter. Neighbours are added up until few parts are left. */
struct spread {
	double model; /* variance of the sum of all, if they were independent */
	double parts; /* ... and of those that were added up */
	double seen;  /* sum of the squares of these */
	double count; /* of the parts that matter, for the degrees of freedom (Satterthwaite) */
	double each;  /* ... of the matches that matter: a part may be of many */
};

struct work {
	const struct pl_fit *f;
	struct pl_arena mem;
	/* The matches by time: of each clock those that it is in, or all in one list if `exact`,
	 * because the z of a clock then has an effect on all. */
	uint32_t *match, *first;
	double *expected; /* of the matches of the list at hand */
	double *own;	  /* of each clock: its block of H: aa, ab, bb */
	double *e, *z;
	struct spread *var; /* of each clock */
	double *part;	    /* of the parameter at hand */
	double corr[MAX_LAG + 1], corr_n;
	uint32_t corr_clocks;
	bool exact;
};

/* The variance of the U_m of match m if its members jittered by the scale of its class. */
static double expected(const struct pl_fit *f, uint32_t m, const double *z)
{
	double s = f->scale[f->in->match_class[m]], mean = pl_clock_fit_mean(f, m, z), sum = 0;

	for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
		uint32_t c = f->clock_of[i];
		double q = f->w[i] * (z[c] + z[f->n + c] * f->u[m] - mean);

		sum += q * q;
	}
	return sum * s * s;
}

/* Fills k->part, by time, and how many in *n, for the z of clock c. */
static struct spread add_up(const struct work *k, uint32_t c, const double *z, uint32_t *n)
{
	const struct pl_fit *f = k->f;
	uint32_t list = k->exact ? 0 : c, per = f->in->n_matches / MAX_PARTS + 1, in_part = 0;
	const uint32_t *match = k->match + k->first[list];
	uint32_t matches = k->first[list + 1] - k->first[list];
	double sum = 0, part = 0, squares = 0, most = 0, each = 0, each_squares = 0;
	struct spread v = { 0 };

	*n = 0;
	for (uint32_t j = 0; j < matches; j++) {
		k->expected[j] = expected(f, match[j], z);
		most = fmax(most, k->expected[j]);
	}
	for (uint32_t j = 0; j < matches; j++) {
		uint32_t m = match[j];
		double e = k->expected[j];

		v.model += e;
		if (e <= SLIGHT * most) /* of other clocks */
			continue;
		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			uint32_t o = f->clock_of[i];

			sum += f->w[i] * f->r[i] * (z[o] + z[f->n + o] * f->u[m]);
		}
		part += e;
		each += e;
		each_squares += e * e;
		if (++in_part < per)
			continue;
		k->part[(*n)++] = sum;
		v.parts += part;
		v.seen += sum * sum;
		squares += part * part;
		sum = part = 0;
		in_part = 0;
	}
	v.count = squares > 0 ? v.parts * v.parts / squares : 0;
	v.each = each_squares > 0 ? each * each / each_squares : 0;
	return v;
}

/* Correlations of the sums with those `lag` later, added to those of the other clocks. */
static void correlate(struct work *k, uint32_t n, double seen)
{
	if (n < MIN_PARTS || !(seen > 0))
		return;
	for (uint32_t lag = 0; lag <= MAX_LAG && lag < n / 2; lag++) {
		double g = 0;

		for (uint32_t i = 0; i + lag < n; i++)
			g += k->part[i] * k->part[i + lag];
		k->corr[lag] += g / seen;
	}
	k->corr_n += n;
	k->corr_clocks++;
}

/*
 * The variance of a sum divided by that of a sum of independent values. Correlations are summed in
 * pairs while the pairs are positive and decrease, as for most processes (Geyer, "Practical Markov
 * chain Monte Carlo", 1992). The fit removes offset and drift from the residuals, and so a part of
 * the long correlations: each correlation is too small by about 2 / n of the result.
 */
static double dependence(const struct work *k)
{
	double f = 1, n = k->corr_clocks ? k->corr_n / k->corr_clocks : 0;

	for (int round = 0; round < ROUNDS && n > 0; round++) {
		double lost = fmin(FITTED * f / n, MAX_LOST), last = INFINITY, sum = -1;

		for (uint32_t lag = 0; lag + 1 <= MAX_LAG && lag + 1 < n / 2; lag += 2) {
			double pair = (k->corr[lag] + k->corr[lag + 1]) / k->corr_clocks;

			pair = fmin(pair * (1 - lost) + 2 * lost, last);
			if (pair <= 0)
				break;
			sum += 2 * pair;
			last = pair;
		}
		f = fmax(1, sum);
	}
	return f;
}

static int solve(const struct work *k, uint32_t c, double ea, double eb, struct pl_err *err)
{
	const struct pl_fit *f = k->f;
	const double *h = k->own + 3u * (size_t)c;
	double det, *z = k->z;

	memset(k->e, 0, 2u * (size_t)f->n * sizeof(*k->e));
	if (k->exact) {
		k->e[c] = ea;
		k->e[f->n + c] = eb;
		return pl_clock_fit_cg(f, k->e, z, err);
	}
	memset(z, 0, 2u * (size_t)f->n * sizeof(*z));
	det = h[0] * h[2] - h[1] * h[1];
	if (!f->clock[c].b_free || det <= 0) {
		z[c] = h[0] > 0 ? ea / h[0] : 0;
		return 0;
	}
	z[c] = (h[2] * ea - h[1] * eb) / det;
	z[f->n + c] = (h[0] * eb - h[1] * ea) / det;
	return 0;
}

/* So few matches show no jitter. */
static bool are_few(const struct work *k, uint32_t c, const struct spread *v)
{
	return v->count < 2 || k->f->clock[c].count < 3;
}

/* By how much the parameter of z changes for each ns by which the ends of match m are apart. */
static double influence(const struct pl_fit *f, uint32_t m, const double *z)
{
	double mean = pl_clock_fit_mean(f, m, z), sum = 0;

	for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
		uint32_t c = f->clock_of[i];

		sum += fabs(f->w[i] * (z[c] + z[f->n + c] * f->u[m] - mean));
	}
	return sum / 2;
}

/* What bounds the error of the offset of clock c beside the jitter. Where `few` matches determine
 * the offset, it is as great as their ends may be apart. */
static double bound_of(const struct work *k, uint32_t c, bool few)
{
	const struct pl_clock_fit_in *in = k->f->in;
	uint32_t list = k->exact ? 0 : c;
	double sum = 0;

	if (few && !in->match_bound)
		return -1;
	for (uint32_t j = k->first[list]; j < k->first[list + 1]; j++) {
		uint32_t m = k->match[j];
		double most = in->class_bias ? in->class_bias[in->match_class[m]] : 0;

		if (few)
			most = fmax(most, in->match_bound[m]);
		if (most > 0)
			sum += most * influence(k->f, m, k->z);
	}
	return sum;
}

/* The variance of b of each clock, or of its offset at u_first, as if matches were independent; by
 * how much their sums vary more, and how many matches are worth one independent one. */
static int all_variances(struct work *k, const double *u_first, double *unseen, double *inflation,
			 double *alike, struct pl_err *err)
{
	const struct pl_fit *f = k->f;
	double sum = 0, n = 0;

	for (uint32_t c = 0; c < f->n; c++) {
		const struct pl_fit_clock *p = &f->clock[c];
		struct spread *v = &k->var[c];
		uint32_t parts;

		*v = (struct spread){ 0 };
		if (unseen)
			unseen[c] = 0;
		if (!(u_first ? p->a_free : p->b_free))
			continue;
		PL_CHECK(solve(k, c, u_first ? 1 : 0,
			       !u_first	   ? 1
			       : p->b_free ? u_first[c]
					   : 0,
			       err));
		*v = add_up(k, c, k->z, &parts);
		if (u_first && v->count < 2) /* few matches beside very many of others */
			v->count = v->each;
		if (unseen)
			unseen[c] = bound_of(k, c, are_few(k, c, v));
		if (v->parts > 0) {
			correlate(k, parts, v->seen);
			sum += v->seen / v->parts;
			n++;
		}
		if (!k->exact)
			v->model *= 2; /* the other end of each difference jitters too */
	}
	*alike = dependence(k);
	*inflation = n > 0 ? fmax(1, *alike * sum / n) : 1;
	return 0;
}

static double half_width(const struct work *k, uint32_t c, struct spread v, double inflation,
			 double alike)
{
	double n = k->f->clock[c].count / alike;

	if (are_few(k, c, &v))
		return -1;
	n = fmax(n, 3);
	return student(fmin(v.count / alike, n) - FITTED) * k->f->psi_ratio *
	       sqrt(v.model * inflation * n / (n - FITTED));
}

static int list_matches(struct work *k, struct pl_err *err)
{
	const struct pl_fit *f = k->f;
	uint32_t *list, *match, *by_list, *seen, n = 0;
	size_t obs = f->in->n_obs + 1;
	struct order *order;

	PL_CHECK(pl_arena_array(&k->mem, &order, f->in->n_matches + 1u, sizeof(*order), err));
	PL_CHECK(pl_arena_array(&k->mem, &list, obs, sizeof(*list), err));
	PL_CHECK(pl_arena_array(&k->mem, &match, obs, sizeof(*match), err));
	PL_CHECK(pl_arena_array(&k->mem, &by_list, obs, sizeof(*by_list), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->match, obs, sizeof(*k->match), err));
	PL_CHECK(pl_arena_array(&k->mem, &seen, f->n, sizeof(*seen), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->first, f->n + 1u, sizeof(*k->first), err));
	for (uint32_t m = 0; m < f->in->n_matches; m++)
		order[m] = (struct order){ f->u[m], m };
	qsort(order, f->in->n_matches, sizeof(*order), by_time);
	memset(seen, 0, f->n * sizeof(*seen));
	for (uint32_t j = 0; j < f->in->n_matches; j++) {
		uint32_t m = order[j].match;

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			uint32_t c = k->exact ? 0 : f->clock_of[i];

			if (seen[c] == j + 1)
				continue;
			seen[c] = j + 1;
			list[n] = c;
			match[n++] = m;
		}
	}
	pl_clock_sort_by_key(list, n, k->exact ? 1 : f->n, by_list, k->first);
	for (uint32_t i = 0; i < n; i++)
		k->match[i] = match[by_list[i]];
	return 0;
}

static int init(struct work *k, struct pl_err *err)
{
	const struct pl_fit *f = k->f;
	size_t n = f->n;

	k->exact = 2.0 * f->n * (double)f->in->n_obs < MAX_WORK;
	PL_CHECK(list_matches(k, err));
	PL_CHECK(pl_arena_array(&k->mem, &k->expected, f->in->n_matches + 1u, sizeof(*k->expected),
				err));
	PL_CHECK(pl_arena_array(&k->mem, &k->own, 3 * n, sizeof(*k->own), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->part, MAX_PARTS + 1, sizeof(*k->part), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->e, 2 * n, sizeof(*k->e), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->z, 2 * n, sizeof(*k->z), err));
	PL_CHECK(pl_arena_array(&k->mem, &k->var, n, sizeof(*k->var), err));
	pl_clock_fit_blocks(f, k->own);
	return 0;
}

int pl_clock_fit_intervals(const struct pl_fit *f, const double *u_first, double *ci,
			   double *unseen, struct pl_err *err)
{
	struct work k = { .f = f };
	double inflation, alike;
	int rc;

	PL_TRY(init(&k, err));
	PL_TRY(all_variances(&k, u_first, unseen, &inflation, &alike, err));
	for (uint32_t c = 0; c < f->n; c++)
		ci[c] = half_width(&k, c, k.var[c], inflation, alike);
out:
	pl_arena_fini(&k.mem);
	return rc;
}
