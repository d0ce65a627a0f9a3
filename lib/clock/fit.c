/*
 * Offsets and drifts of clocks from ends of communication.
 *
 * All members of a collective end together, up to jitter. So an end on clock c is
 *     end = t + offset_c + drift_c (t - t0) + jitter,
 * t being the unknown true time of the match. Offsets and drifts of all clocks are fitted at once,
 * the times of the matches eliminated, by iteratively reweighted least squares: Huber weights
 * first, Tukey's biweight then (Holland and Welsch, "Robust regression using iteratively reweighted
 * least-squares", 1977), with the scale of the jitter estimated for each class of matches, because
 * the jitter of the groups of one job can differ a hundredfold. Each round is solved by conjugate
 * gradients on the normal equations, never formed: O(observations) a step, and few steps, because
 * the parameters are centred and scaled.
 *
 * Drifts have a weak prior, a normal distribution of 200 ppm. A few matches between two sets of
 * clocks determine an offset, but if they are close in time they could give any drift.
 *
 * A drift that its interval does not tell from 0, or that moves nothing by more than
 * PL_CLOCK_RESOLUTION_NS over the trace, is set to 0 and the rest fitted again.
 *
 * No such method can see that a member always ends later than others (because of its place in a
 * ring). Intervals of offsets therefore add one jitter of each side to the statistical error.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/fit.h"

/* A limit of time: Tukey's weights settle in a few rounds or not at all; with four times as many
 * rounds one estimate in a hundred more settles. */
#define ROUNDS 14
/* Huber's weights reach the right neighbourhood from anywhere, Tukey's do not. */
#define HUBER_ROUNDS 5
/* As good as least squares to 95 % where jitter is normal. A greater HUBER lets outliers pull the
 * start of Tukey's rounds away; with a smaller one estimates from few matches settle later. */
#define HUBER 1.345
#define TUKEY 4.685
/* The equations stay regular when all ends of a clock look like outliers. One end that is a second
 * late moves the mean of ten matches by 0.1 us only. */
#define LEAST_WEIGHT 1e-6
/* The least scale of jitter: the mean error of a rounded time. Without it the ends that differ by a
 * rounding would be outliers. */
#define ROUNDED_NS (PL_CLOCK_RESOLUTION_NS / 4.0)
/* Offsets are whole nanoseconds. */
#define SETTLED_NS 0.5
/* Quartz clocks are within 100 ppm, those of virtual machines are often near that. */
#define USUAL_DRIFT 200e-6
/* A limit of time: the error falls with the square root of the number only. */
#define MAX_OBS 400000

/* ---- normal equations ------------------------------------------------------------------------ */

static void mask(const struct pl_fit *f, double *v)
{
	for (uint32_t c = 0; c < f->n; c++) {
		v[c] = f->clock[c].a_free ? v[c] : 0;
		v[f->n + c] = f->clock[c].b_free ? v[f->n + c] : 0;
	}
}

/* out = H v, without the parameters that are not free. */
static void apply(const struct pl_fit *f, const double *v, double *out)
{
	double *a = out, *b = out + f->n;

	memset(out, 0, 2u * (size_t)f->n * sizeof(*out));
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		double mean = pl_clock_fit_mean(f, m, v), u = f->u[m];

		for (uint32_t i = f->first[m], to = f->first[m + 1]; i < to;) {
			uint32_t c = f->clock_of[i];
			double effect = v[c] + v[f->n + c] * u - mean, ac = a[c], bc = b[c];

			do {
				double q = f->w[i] * effect;

				ac += q;
				bc += q * u;
			} while (++i < to && f->clock_of[i] == c);
			a[c] = ac;
			b[c] = bc;
		}
	}
	for (uint32_t c = 0; c < f->n; c++)
		b[c] += f->prior * v[f->n + c];
	mask(f, out);
}

void pl_clock_fit_blocks(const struct pl_fit *f, double *own)
{
	memset(own, 0, 3u * (size_t)f->n * sizeof(*own));
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		double weight = 0, u = f->u[m];

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++)
			weight += f->w[i];
		for (uint32_t i = f->first[m]; i < f->first[m + 1] && weight > 0; i++) {
			double *h = own + 3u * (size_t)f->in->obs[i].clock;
			double q = f->w[i] * (1 - f->w[i] / weight);

			h[0] += q;
			h[1] += q * u;
			h[2] += q * u * u;
		}
	}
}

/* What is left of the gradient r, divided by the diagonal of H: `own`, as above. */
static void precondition(const struct pl_fit *f, const double *own, const double *r, double *out)
{
	for (uint32_t c = 0; c < f->n; c++) {
		const double *h = own + 3u * (size_t)c;
		double b = h[2] + f->prior;

		out[c] = h[0] > 1e-12 ? r[c] / h[0] : r[c];
		out[f->n + c] = b > 1e-12 ? r[f->n + c] / b : r[f->n + c];
	}
}

static double dot(const double *x, const double *y, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += x[i] * y[i];
	return s;
}

int pl_clock_fit_cg(const struct pl_fit *f, const double *g, double *z, struct pl_err *err)
{
	size_t n = 2u * (size_t)f->n;
	double *mem, *r, *p, *hp, *own, rz, start;

	PL_CHECK(pl_alloc(&mem, 5 * n, sizeof(*mem), err));
	r = mem;
	p = r + n;
	hp = p + n;
	own = hp + n;
	pl_clock_fit_blocks(f, own);
	memset(z, 0, n * sizeof(*z));
	memcpy(r, g, n * sizeof(*r));
	mask(f, r);
	precondition(f, own, r, p);
	rz = start = dot(r, p, n);
	for (size_t k = 0; k < 2 * n + 20 && rz > 1e-20 * start; k++) {
		double alpha, old = rz;

		apply(f, p, hp);
		alpha = dot(p, hp, n);
		if (!(alpha > 0))
			break;
		alpha = rz / alpha;
		for (size_t i = 0; i < n; i++) {
			z[i] += alpha * p[i];
			r[i] -= alpha * hp[i];
		}
		precondition(f, own, r, hp);
		rz = dot(r, hp, n);
		for (size_t i = 0; i < n; i++)
			p[i] = hp[i] + rz / old * p[i];
	}
	pl_free(mem);
	return 0;
}

/* ---- robust rounds --------------------------------------------------------------------------- */

static void residuals(struct pl_fit *f, bool weighted)
{
	const struct pl_clock_fit_obs *obs = f->in->obs;

	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		double sum = 0, weight = 0;

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			uint32_t c = obs[i].clock;
			double w = weighted ? f->w[i] : f->clock[c].in_tree;

			f->r[i] = f->y[i] - f->clock[c].a - f->clock[c].b * f->u[m];
			sum += w * f->r[i];
			weight += w;
		}
		sum = weight > 0 ? sum / weight : 0;
		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++)
			f->r[i] -= sum;
	}
}

/* Scale of the jitter of each class: median of |r|, made up for the time that each match fits. */
static int scales(struct pl_fit *f, struct pl_err *err)
{
	const struct pl_clock_fit_in *in = f->in;
	int64_t *v;
	int rc = pl_alloc(&v, in->n_obs + 1, sizeof(*v), err);

	for (uint32_t k = 0; rc >= 0 && k < in->n_classes; k++) {
		size_t n = 0;

		for (uint32_t o = f->class0[k]; o < f->class0[k + 1]; o++) {
			uint32_t i = f->by_class[o], m = in->obs[i].match;
			uint32_t members = f->first[m + 1] - f->first[m];
			double up = sqrt((double)members / (members > 1 ? members - 1 : 1));
			double r = fabs(f->r[i]) * up;

			if (f->clock[in->obs[i].clock].in_tree && r < 9e18)
				v[n++] = (int64_t)r;
		}
		f->scale[k] = ROUNDED_NS;
		if (n)
			f->scale[k] += 1.4826 * (double)pl_median_i64(v, n);
		if (in->class_floor)
			f->scale[k] = fmax(f->scale[k], in->class_floor[k]);
	}
	pl_free(v);
	return rc;
}

static void weights(struct pl_fit *f, bool tukey)
{
	double least = INFINITY, sum_w = 0, sum_d = 0;

	for (uint32_t k = 0; k < f->in->n_classes; k++)
		least = fmin(least, f->scale[k]);
	for (uint32_t m = 0; m < f->in->n_matches; m++) {
		double s = f->scale[f->in->match_class[m]], norm = least / s * (least / s);

		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			double z = fabs(f->r[i]) / s, q = z / TUKEY * (z / TUKEY), w, d;

			if (tukey) {
				w = q < 1 ? (1 - q) * (1 - q) : 0;
				d = q < 1 ? (1 - q) * (1 - 5 * q) : 0;
			} else {
				w = z > HUBER ? HUBER / z : 1;
				d = z > HUBER ? 0 : 1;
			}
			if (!f->clock[f->in->obs[i].clock].in_tree) {
				f->w[i] = 0;
				continue;
			}
			sum_w += w;
			sum_d += d;
			f->w[i] = (w > LEAST_WEIGHT ? w : LEAST_WEIGHT) * norm;
		}
	}
	f->prior = least / (USUAL_DRIFT * f->span) * (least / (USUAL_DRIFT * f->span));
	f->psi_ratio = sum_d > 0.5 * sum_w ? fmax(1, sum_w / sum_d) : 2;
}

static void gradient(const struct pl_fit *f, double *g)
{
	memset(g, 0, 2u * (size_t)f->n * sizeof(*g));
	for (uint32_t m = 0; m < f->in->n_matches; m++)
		for (uint32_t i = f->first[m]; i < f->first[m + 1]; i++) {
			double q = f->w[i] * f->r[i];

			g[f->in->obs[i].clock] += q;
			g[f->n + f->in->obs[i].clock] += q * f->u[m];
		}
	for (uint32_t c = 0; c < f->n; c++)
		g[f->n + c] -= f->prior * f->clock[c].b;
}

static int robust(struct pl_fit *f, int from, struct pl_err *err)
{
	size_t n = 2u * (size_t)f->n;
	double *g = NULL, *z;
	int rc;

	PL_TRY(pl_alloc(&g, 2 * n, sizeof(*g), err));
	z = g + n;
	for (int k = from; k < ROUNDS; k++) {
		double change = 0;

		residuals(f, k > from);
		PL_TRY(scales(f, err));
		weights(f, k >= HUBER_ROUNDS);
		residuals(f, true);
		gradient(f, g);
		PL_TRY(pl_clock_fit_cg(f, g, z, err));
		for (uint32_t c = 0; c < f->n; c++) {
			if (!isfinite(z[c]) || !isfinite(z[f->n + c]))
				continue;
			f->clock[c].a += z[c];
			f->clock[c].b += z[f->n + c];
			change = fmax(change, fabs(z[c]) + fabs(z[f->n + c]));
		}
		if (change < SETTLED_NS && k > HUBER_ROUNDS)
			break;
	}
	residuals(f, true);
out:
	pl_free(g);
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* n numbers that are 0, freed with the fit. */
static int take(struct pl_fit *f, void *out, size_t n, size_t size, struct pl_err *err)
{
	void *p;

	PL_CHECK(pl_arena_array(&f->mem, out, n + 1, size, err));
	memcpy(&p, out, sizeof(p));
	memset(p, 0, (n + 1) * size);
	return 0;
}

/* Observations by clock, and these by class. */
static int sort_classes(struct pl_fit *f, struct pl_err *err)
{
	const struct pl_clock_fit_in *in = f->in;
	uint32_t *key, *order, *by_clock, *first0;

	PL_CHECK(take(f, &key, in->n_obs, sizeof(*key), err));
	PL_CHECK(take(f, &order, in->n_obs, sizeof(*order), err));
	PL_CHECK(take(f, &by_clock, in->n_obs, sizeof(*by_clock), err));
	PL_CHECK(take(f, &first0, f->n + 1u, sizeof(*first0), err));
	for (size_t i = 0; i < in->n_obs; i++)
		key[i] = in->obs[i].clock;
	pl_clock_sort_by_key(key, in->n_obs, f->n, by_clock, first0);
	for (size_t i = 0; i < in->n_obs; i++)
		key[i] = in->match_class[in->obs[by_clock[i]].match];
	pl_clock_sort_by_key(key, in->n_obs, in->n_classes, order, f->class0);
	for (size_t i = 0; i < in->n_obs; i++)
		f->by_class[i] = by_clock[order[i]];
	return 0;
}

static int init(struct pl_fit *f, struct pl_err *err)
{
	const struct pl_clock_fit_in *in = f->in;
	uint32_t m = 0;

	f->n = in->n_clocks;
	PL_CHECK(take(f, &f->clock, f->n, sizeof(*f->clock), err));
	PL_CHECK(take(f, &f->tau, in->n_matches, sizeof(*f->tau), err));
	PL_CHECK(take(f, &f->u, in->n_matches, sizeof(*f->u), err));
	PL_CHECK(take(f, &f->clock_of, in->n_obs, sizeof(*f->clock_of), err));
	PL_CHECK(take(f, &f->y, in->n_obs, sizeof(*f->y), err));
	PL_CHECK(take(f, &f->r, in->n_obs, sizeof(*f->r), err));
	PL_CHECK(take(f, &f->w, in->n_obs, sizeof(*f->w), err));
	PL_CHECK(take(f, &f->first, in->n_matches + 1u, sizeof(*f->first), err));
	PL_CHECK(take(f, &f->by_class, in->n_obs, sizeof(*f->by_class), err));
	PL_CHECK(take(f, &f->class0, in->n_classes + 1u, sizeof(*f->class0), err));
	PL_CHECK(take(f, &f->scale, in->n_classes, sizeof(*f->scale), err));
	for (size_t i = 0; i < in->n_obs; i++)
		while (m <= in->obs[i].match)
			f->first[m++] = (uint32_t)i;
	while (m <= in->n_matches)
		f->first[m++] = (uint32_t)in->n_obs;
	for (size_t i = 0; i < in->n_obs; i++) {
		f->clock_of[i] = in->obs[i].clock;
		f->clock[in->obs[i].clock].count += !i ||
						    in->obs[i].match != in->obs[i - 1].match ||
						    in->obs[i].clock != in->obs[i - 1].clock;
	}
	return sort_classes(f, err);
}

/* A drift needs a handful of matches that span some time. */
static bool shows_drift(const struct pl_fit *f, uint32_t c)
{
	return f->clock[c].count >= PL_SEQ_PAIRS && f->span > 1;
}

static void free_parameters(struct pl_fit *f)
{
	for (uint32_t c = 0; c < f->n; c++) {
		f->clock[c].a_free = f->clock[c].in_tree && c != f->root;
		f->clock[c].b_free = f->clock[c].a_free && shows_drift(f, c);
		if (!f->clock[c].b_free)
			f->clock[c].b = 0;
	}
}

/* Time of the clock's first event on the scale of the matches, given where it stands now. */
static double first_u(const struct pl_fit *f, uint32_t c)
{
	double t = (double)pl_sub_sat(pl_sub_sat(f->in->first_ns[c], f->clock[c].base), f->mid);

	return (t - f->clock[c].a) / (1 + f->clock[c].b / f->span) / f->span;
}

static void put_clock(const struct pl_fit *f, uint32_t c, struct pl_clock_fit_clock *out)
{
	double move = f->clock[c].a + f->clock[c].b * first_u(f, c), b = f->clock[c].b / f->span;

	out->connected = f->clock[c].in_tree && fabs(move) < 9e18 && fabs(b) < 0.5;
	if (!out->connected)
		return;
	out->offset_ns = pl_add_sat(f->clock[c].base, (int64_t)llround(move));
	out->drift = b / (1 + b); /* a ns of its own time */
}

/* Drifts that cannot be told from 0 become 0: are there any? `ci`: of each b. */
static bool drop_drifts(struct pl_fit *f, const double *ci, struct pl_clock_fit_clock *out)
{
	bool dropped = false;

	for (uint32_t c = 0; c < f->n; c++) {
		struct pl_fit_clock *p = &f->clock[c];

		if (!p->b_free)
			continue;
		out[c].drift_ci = ci[c] >= 0 ? ci[c] / f->span : -1;
		if (ci[c] >= 0 && fabs(p->b) > ci[c] && fabs(p->b) > PL_CLOCK_RESOLUTION_NS)
			continue;
		if (ci[c] >= 0) /* centred on 0; still contains the previous interval */
			out[c].drift_ci += fabs(p->b) / f->span;
		p->b = 0;
		p->b_free = false;
		dropped = true;
	}
	return dropped;
}

/* What is known of the error of each clock's offset beside the scatter of its ends. */
struct error {
	double jitter; /* the least of its classes: a constant error of this size is not seen */
	double unseen; /* see pl_clock_fit_intervals() */
	double sum, weight; /* of u of its matches: when they were */
};

static void find_errors(const struct pl_fit *f, struct error *e)
{
	for (uint32_t c = 0; c < f->n; c++)
		e[c].jitter = INFINITY;
	for (size_t i = 0; i < f->in->n_obs; i++) {
		const struct pl_clock_fit_obs *o = &f->in->obs[i];
		struct error *x = &e[o->clock];

		x->jitter = fmin(x->jitter, f->scale[f->in->match_class[o->match]]);
		x->sum += f->w[i] * f->u[o->match];
		x->weight += f->w[i];
	}
}

/* The offset at u. A drift that the matches are too few to show moves it between them and there. */
static void put_intervals(const struct pl_fit *f, const struct error *e, uint32_t c, double u,
			  double ci, struct pl_clock_fit_clock *out)
{
	const struct error *x = &e[c], *root = &e[f->root];
	double jitter = x->jitter * x->jitter + root->jitter * root->jitter, drift = 0;

	if (!isfinite(jitter))
		return;
	out->scatter = sqrt(ci * ci * (ci > 0) + jitter);
	if (!shows_drift(f, c) && x->weight > 0)
		drift = USUAL_DRIFT * f->span * (u - x->sum / x->weight);
	if (x->unseen >= 0)
		out->offset_ci =
			sqrt(out->scatter * out->scatter + x->unseen * x->unseen + drift * drift);
}

static int estimate(struct pl_fit *f, struct pl_clock_fit_clock *out, struct pl_err *err)
{
	struct error *error;
	double *u, *ci, *unseen;

	PL_CHECK(take(f, &u, f->n, sizeof(*u), err));
	PL_CHECK(take(f, &ci, f->n, sizeof(*ci), err));
	PL_CHECK(take(f, &unseen, f->n, sizeof(*unseen), err));
	PL_CHECK(take(f, &error, f->n, sizeof(*error), err));
	free_parameters(f);
	PL_CHECK(robust(f, 0, err));
	PL_CHECK(pl_clock_fit_intervals(f, NULL, ci, NULL, err));
	if (drop_drifts(f, ci, out))
		PL_CHECK(robust(f, 1, err));
	for (uint32_t c = 0; c < f->n; c++)
		u[c] = first_u(f, c);
	PL_CHECK(pl_clock_fit_intervals(f, u, ci, unseen, err));
	find_errors(f, error);
	for (uint32_t c = 0; c < f->n; c++) {
		error[c].unseen = unseen[c];
		put_clock(f, c, &out[c]);
		if (c != f->root && out[c].connected)
			put_intervals(f, error, c, u[c], ci[c], &out[c]);
	}
	return 0;
}

static bool is_wanted(const struct pl_clock_fit_in *in, uint32_t clock)
{
	return !in->component || in->component[clock] == in->first_clock;
}

/* The matches of the clocks to estimate; if there are very many, every k-th of each class. */
static int pick_matches(struct pl_clock_fit_in *in, struct pl_arena *mem, struct pl_err *err)
{
	const struct pl_clock_fit_obs *all = in->obs;
	const uint32_t *all_class = in->match_class;
	const double *all_bound = in->match_bound;
	struct pl_clock_fit_obs *obs;
	uint32_t *class, *seen, stride, match = PL_NONE;
	double *bound;
	size_t n_all = in->n_obs, kept = 0;
	bool keep = false;

	PL_CHECK(pl_arena_array(mem, &obs, n_all + 1, sizeof(*obs), err));
	PL_CHECK(pl_arena_array(mem, &class, in->n_matches + 1u, sizeof(*class), err));
	PL_CHECK(pl_arena_array(mem, &bound, in->n_matches + 1u, sizeof(*bound), err));
	PL_CHECK(pl_arena_array(mem, &seen, in->n_classes + 1u, sizeof(*seen), err));
	memset(seen, 0, (in->n_classes + 1u) * sizeof(*seen));
	for (size_t i = 0; i < n_all; i++)
		kept += is_wanted(in, all[i].clock);
	stride = (uint32_t)(kept / MAX_OBS) + 1;
	in->n_obs = in->n_matches = 0;
	in->obs = obs;
	in->match_class = class;
	in->match_bound = all_bound ? bound : NULL;
	for (size_t i = 0; i < n_all; i++) {
		if (!is_wanted(in, all[i].clock))
			continue;
		if (all[i].match != match) {
			match = all[i].match;
			keep = seen[all_class[match]]++ % stride == 0;
			class[in->n_matches] = all_class[match];
			bound[in->n_matches] = all_bound ? all_bound[match] : 0;
			in->n_matches += keep;
		}
		if (keep)
			obs[in->n_obs++] = (struct pl_clock_fit_obs){ in->n_matches - 1,
								      all[i].clock, all[i].end };
	}
	return 0;
}

int pl_clock_fit_clocks(const struct pl_clock_fit_in *in, struct pl_clock_fit_clock *out,
			struct pl_err *err)
{
	struct pl_clock_fit_in picked = *in;
	struct pl_fit f = { .in = &picked, .root = in->first_clock };
	int rc = 0;

	for (uint32_t c = 0; c < in->n_clocks; c++)
		out[c] = (struct pl_clock_fit_clock){ .offset_ci = -1, .drift_ci = -1 };
	if (!in->n_clocks)
		return 0;
	out[f.root] = (struct pl_clock_fit_clock){ .connected = true }; /* by definition */
	PL_TRY(pick_matches(&picked, &f.mem, err));
	if (in->n_clocks == 1 || !picked.n_obs)
		goto out;
	PL_TRY(init(&f, err));
	PL_TRY(pl_clock_fit_start(&f, err));
	PL_TRY(estimate(&f, out, err));
out:
	pl_arena_fini(&f.mem);
	return rc;
}
