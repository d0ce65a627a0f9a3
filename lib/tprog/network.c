/*
 * A network over the leaves of tensor programs: the predictor of CDMPP (EuroSys 2024).
 *
 * The vector of each leaf is scaled to 0 to 1, its place in the tree in pre-order is added to it as
 * sines and cosines, and blocks of a transformer relate the leaves to one another. Shorter programs
 * are filled up with zeros, and a further entry says which leaves are real; so one network serves
 * all numbers of leaves, where CDMPP has a head for each. Attention looks at earlier leaves only;
 * the layers behind it see all. The last layer before the result is the latent vector of a program.
 * Its entries are 0 or more; moments are those of their hyperbolic tangents, in 0 to 1, as
 * moments.h needs an interval.
 *
 * Labels v, times for a unit of work, become (v^power - 1) / power (Box and Cox, J. R. Stat. Soc. B
 * 1964), with the power that makes them most like a normal distribution, and are scaled to zero
 * mean and unit variance. The loss is the square of the error there plus the relative error of v.
 *
 * Adaptation learns on from a few programs of the target. A term of the loss meanwhile holds the
 * latent vectors of the target's programs, measured or not, to the moments that those of the source
 * had when training ended. These are kept, and the source's programs are not needed: the layer
 * behind the latent vector was made for that distribution, so it is where the target has to go, and
 * not to where a changed encoder would put the source. How much of what is learned so counts is
 * found by leaving out a part of the few programs each time: the parameters become a mean of those
 * before and after (Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022), and stay
 * what they were where nothing is gained.
 */
#include <math.h>

#include "learn/moments.h"
#include "tprog/network_internal.h"

#define LEAVES	   8 /* of a program: those with most iterations */
#define ENTRIES	   (PL_TPROG_FEATURES + 1)
#define ITERATIONS (PL_TPROG_CDMPP - 3) /* place in the vector of a leaf */
#define PLACES	   64			/* in the tree, whose sines are kept */
#define EPOCHS	   60			/* at most, */
#define LEAST	   12			/* and at least, */
#define SEEN	   400000		/* until so many programs were seen, one again and again */
#define SPAN	   1			/* of what moments are of: 0 to 1 */
#define MOMENTS	   4096			/* of so many programs, if there are more */

const struct pl_tprog_settings pl_tprog_usual = { .layers = 2,
						  .heads = 4,
						  .width = 64,
						  .latent = 96,
						  .batch = 128,
						  .rate = 2e-3,
						  .relative = 1,
						  .power = NAN };

void pl_tprog_network_free(struct pl_tprog_network *net)
{
	if (!net)
		return;
	pl_net_free(net->net);
	pl_model_fini(&net->model);
	pl_buf_fini(&net->text);
	pl_free(net->place);
	pl_free(net->moments);
	pl_free(net->work);
	pl_free(net->bounded);
	pl_free(net->base);
	pl_free(net->x);
	pl_free(net->target);
	pl_free(net);
}

/* ---- layers ---------------------------------------------------------------------------------- */

bool pl_tprog_settings_good(const struct pl_tprog_settings *s)
{
	return s->layers >= 1 && s->layers <= 16 && s->heads >= 1 && s->heads <= 64 &&
	       s->width >= s->heads && s->width <= 1024 && s->width % s->heads == 0 &&
	       s->latent >= 1 && s->latent <= 4096 && s->batch >= 1 && s->batch <= 4096 &&
	       s->rate > 0 && s->rate < 1 && s->relative >= 0 && s->relative < 1e6 &&
	       (isnan(s->power) || fabs(s->power) <= 1);
}

int pl_tprog_network_layers(const struct pl_tprog_settings *s, struct pl_buf *b, struct pl_err *err)
{
	PL_CHECK(pl_buf_printf(b, err, "input %d %d\ndense %d\n", LEAVES, ENTRIES, s->width));
	for (int i = 0; i < s->layers; i++)
		PL_CHECK(pl_buf_printf(b, err,
				       "residual\nlayernorm\nattention %d\nend\n"
				       "residual\nlayernorm\ndense %d\ngelu\ndense %d\nend\n",
				       s->heads, 3 * s->width, s->width));
	return pl_buf_printf(b, err,
			     "layernorm\nflatten\ndense %d\nrelu\ndense %d\nrelu\ndense 1\n"
			     "loss squared\n",
			     2 * s->latent, s->latent);
}

/* Of a place in the tree, for entry k. */
static float sine(uint32_t place, int k)
{
	double angle = place / pow(10000, 2.0 * (k / 2) / PL_TPROG_FEATURES);

	return (float)(k % 2 ? cos(angle) : sin(angle));
}

/* They would take as long as the network, so those of most places are kept. */
static int make_places(struct pl_tprog_network *t, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&t->place, PLACES, sizeof(*t->place), err));
	for (uint32_t p = 0; p < PLACES; p++)
		for (int k = 0; k < PL_TPROG_FEATURES; k++)
			t->place[p][k] = sine(p, k);
	return 0;
}

int pl_tprog_network_make(struct pl_tprog_network *t, int threads, uint64_t seed,
			  struct pl_err *err)
{
	const struct pl_tprog_settings *s = &t->settings;
	const struct pl_net_opts no = {
		.batch = s->batch, .threads = threads, .seed = seed, .in_place = true
	};
	size_t batch = (size_t)s->batch, n = PL_MOMENTS * (size_t)s->latent;
	struct pl_net_view v;

	PL_CHECK(pl_tprog_network_layers(s, &t->text, err));
	PL_CHECK(make_places(t, err));
	PL_CHECK(pl_model_text((const char *)t->text.p, t->text.n, "network", &t->model, err));
	PL_CHECK(pl_alloc(&t->x, batch * LEAVES * ENTRIES, sizeof(*t->x), err));
	PL_CHECK(pl_alloc(&t->target, batch, sizeof(*t->target), err));
	PL_CHECK(pl_alloc(&t->moments, n, sizeof(*t->moments), err));
	PL_CHECK(pl_alloc(&t->work, n, sizeof(*t->work), err));
	PL_CHECK(pl_alloc(&t->bounded, 2 * batch * (size_t)s->latent, sizeof(*t->bounded), err));
	PL_CHECK(pl_net_new(t->model.layer, t->model.n_layers, &no, &t->net, err));
	v = pl_net_view(t->net);
	for (uint32_t i = 0; i < v.n_layers; i++) /* of dense layers, the last but one */
		if (!strcmp(v.layer[i].op, "relu"))
			t->latent = i - 1;
	return 0;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void find_scales(struct pl_tprog_network *t, const struct pl_tprog_set *s, const size_t *use,
			size_t n)
{
	float most[PL_TPROG_FEATURES];

	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		t->least[k] = INFINITY;
		most[k] = -INFINITY;
	}
	for (size_t i = 0; i < n; i++) {
		const struct pl_tprog_row *r = &s->v[use[i]];

		for (uint32_t l = r->leaf; l < r->leaf + r->n_leaves; l++)
			for (int k = 0; k < PL_TPROG_FEATURES; k++) {
				t->least[k] = fminf(t->least[k], s->leaf[l].x[k]);
				most[k] = fmaxf(most[k], s->leaf[l].x[k]);
			}
	}
	for (int k = 0; k < PL_TPROG_FEATURES; k++)
		t->range[k] = most[k] - t->least[k] + 1e-6F;
}

static void put_leaf(const struct pl_tprog_network *t, const struct pl_tprog_leaf *l, float *x)
{
	const float *place = l->place < PLACES ? t->place[l->place] : NULL;

	for (int k = 0; k < PL_TPROG_FEATURES; k++)
		x[k] = (l->x[k] - t->least[k]) / t->range[k] +
		       (place ? place[k] : sine(l->place, k));
	x[PL_TPROG_FEATURES] = 1;
}

/* A program with more leaves keeps the largest. */
static void put_program(const struct pl_tprog_network *t, const struct pl_tprog_set *s,
			const struct pl_tprog_row *r, float *x)
{
	uint32_t skip = r->n_leaves > LEAVES ? r->n_leaves - LEAVES : 0, at = 0;

	memset(x, 0, sizeof(*x) * LEAVES * ENTRIES);
	for (uint32_t l = r->leaf; l < r->leaf + r->n_leaves && at < LEAVES; l++) {
		uint32_t smaller = 0;

		for (uint32_t k = r->leaf; k < r->leaf + r->n_leaves && skip; k++)
			smaller += s->leaf[k].x[ITERATIONS] < s->leaf[l].x[ITERATIONS] ||
				   (k < l && s->leaf[k].x[ITERATIONS] == s->leaf[l].x[ITERATIONS]);
		if (skip && smaller < skip)
			continue;
		put_leaf(t, &s->leaf[l], x + (size_t)at++ * ENTRIES);
	}
}

/* ---- labels ---------------------------------------------------------------------------------- */

#define FLAT 1e-4 /* powers below count as 0: the logarithm */
#define FAR  2.0  /* relative errors beyond count no more */

/* Of a label exp(y). */
static double box_cox(double power, double y)
{
	return fabs(power) < FLAT ? y : expm1(power * y) / power;
}

/* y, and its derivative by u. */
static double box_cox_inverse(double power, double u, double *by_u)
{
	double inside = fmax(1 + power * u, 1e-3);

	/* where no label has this value, the loss keeps the slope of the border: training returns
	 */
	*by_u = fabs(power) < FLAT ? 1 : 1 / inside;
	return fabs(power) < FLAT ? u : log(inside) / power;
}

/* The logarithm of the likelihood of a power, for normally distributed transformed labels. */
static double likelihood(double power, const float *y, size_t n)
{
	double sum = 0, squares = 0, all = 0, mean;

	for (size_t i = 0; i < n; i++) {
		sum += box_cox(power, (double)y[i]);
		all += (double)y[i];
	}
	mean = sum / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = box_cox(power, (double)y[i]) - mean;

		squares += d * d;
	}
	return (power - 1) * all - (double)n / 2 * log(squares / (double)n + 1e-12);
}

/* The most likely one from -1 to 1. */
static double find_power(const float *y, size_t n)
{
	double best = 0, most = -INFINITY;

	for (int k = -40; k <= 40; k++) {
		double l = likelihood(k / 40.0, y, n);

		if (l > most) {
			most = l;
			best = k / 40.0;
		}
	}
	return best;
}

static double label_of(const struct pl_tprog_network *t, double y)
{
	return (box_cox(t->power, y) - t->mean) / t->deviation;
}

static double label_inverse(const struct pl_tprog_network *t, double label, double *by_label)
{
	double y = box_cox_inverse(t->power, label * t->deviation + t->mean, by_label);

	*by_label *= t->deviation;
	return y;
}

/* Programs without a label (NAN) do not count. */
static double hybrid_loss(void *arg, const float *x, const float *target, size_t n, float scale,
			  float *dx)
{
	const struct pl_tprog_network *t = arg;
	double sum = 0, labels = 0;

	for (size_t i = 0; i < n; i++)
		labels += !isnan(target[i]);
	for (size_t i = 0; i < n; i++) {
		double d = (double)x[i] - (double)target[i], by, unused, ratio, g = 2 * d;

		if (dx)
			dx[i] = 0;
		if (isnan(target[i]))
			continue;
		ratio = exp(fmin(label_inverse(t, (double)x[i], &by) -
					 label_inverse(t, (double)target[i], &unused),
				 10));
		sum += d * d + t->settings.relative * fmin(fabs(ratio - 1), FAR);
		if (fabs(ratio - 1) < FAR)
			g += t->settings.relative * (ratio > 1 ? ratio : -ratio) * by;
		if (dx)
			dx[i] = (float)(g * (double)scale / labels);
	}
	return labels > 0 ? sum / labels : 0;
}

/* ---- training -------------------------------------------------------------------------------- */

static void shuffle(size_t *order, size_t n, uint64_t *rng)
{
	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)(pl_rng_next(rng) % i), x = order[i - 1];

		order[i - 1] = order[k];
		order[k] = x;
	}
}

static struct pl_optim_opts optim_opts(double rate, size_t warmup, size_t steps)
{
	return (struct pl_optim_opts){ .kind = PL_OPTIM_ADAMW,
				       .lr = rate,
				       .b1 = 0.9,
				       .b2 = 0.999,
				       .eps = 1e-8,
				       .decay = 0.01,
				       .clip = 1,
				       .schedule = PL_SCHED_COSINE,
				       .warmup = (int64_t)warmup,
				       .steps = (int64_t)steps };
}

/* Learn from the first n programs of the batch. */
static int step(struct pl_tprog_network *t, struct pl_optim *optim, int64_t number, size_t n,
		struct pl_err *err)
{
	const struct pl_batch_io b = { .x = t->x, .target = t->target, .n = (int)n };

	PL_CHECK(pl_net_forward(t->net, &b, (uint64_t)number, false, NULL, NULL, err));
	PL_CHECK(pl_net_backward(t->net, false, err));
	pl_optim_step(optim, number, 0, SIZE_MAX, NAN);
	return 0;
}

static int train(struct pl_tprog_network *t, const struct pl_tprog_set *s, const size_t *use,
		 size_t n, const float *y, const struct pl_tprog_fit_opts *o, struct pl_err *err)
{
	size_t batch = (size_t)t->settings.batch, batches = (n + batch - 1) / batch, *order;
	double most = (double)pl_max_i64(LEAST, (int64_t)pl_min_size(EPOCHS, SEEN / n));
	size_t epochs = (size_t)fmax(1, round(most * (o->share > 0 ? o->share : 1)));
	size_t steps = epochs * batches;
	struct pl_optim_opts oo =
		optim_opts(t->settings.rate, pl_min_size(batches, steps / 10), steps);
	struct pl_optim *optim = NULL;
	uint64_t rng = o->seed + 1;
	int64_t number = 0;
	int rc;

	PL_CHECK(pl_alloc(&order, n, sizeof(*order), err));
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	PL_TRY(pl_optim_new(t->net, &oo, &optim, err));
	for (size_t epoch = 0; epoch < epochs; epoch++) {
		shuffle(order, n, &rng);
		for (size_t at = 0; at < n; at += batch) {
			size_t m = pl_min_size(batch, n - at);

			for (size_t i = 0; i < m; i++) {
				size_t k = order[at + i];

				put_program(t, s, &s->v[use[k]], t->x + i * LEAVES * ENTRIES);
				t->target[i] = (float)label_of(t, (double)y[k]);
			}
			PL_TRY(step(t, optim, number++, m, err));
		}
	}
	rc = 0;
out:
	pl_optim_free(optim);
	pl_free(order);
	return rc;
}

/* Evaluate the rows: labels to y (n), latent vectors to z (n, latent); each may be NULL. */
static int evaluate(struct pl_tprog_network *t, const struct pl_tprog_set *s, const size_t *row,
		    size_t n, double *y, float *z, struct pl_err *err)
{
	size_t batch = (size_t)t->settings.batch;
	float *out;
	double by, loss;
	int rc = 0;

	PL_CHECK(pl_alloc(&out, batch, sizeof(*out), err));
	for (size_t at = 0; at < n; at += batch) {
		struct pl_batch_io b = { .x = t->x,
					 .target = t->target,
					 .n = (int)pl_min_size(batch, n - at) };

		for (int i = 0; i < b.n; i++)
			put_program(t, s, &s->v[row[at + (size_t)i]],
				    t->x + (size_t)i * LEAVES * ENTRIES);
		PL_TRY(pl_net_forward(t->net, &b, 0, true, &loss, NULL, err));
		PL_TRY(pl_net_outputs(t->net, out, err));
		for (int i = 0; i < b.n && y; i++)
			y[at + (size_t)i] = label_inverse(t, (double)out[i], &by);
		if (z)
			PL_TRY(pl_net_layer_outputs(t->net, t->latent,
						    z + at * (size_t)t->settings.latent, err));
	}
	rc = 0;
out:
	pl_free(out);
	return rc;
}

/* The tangents of the latent vectors of n rows, or of MOMENTS of them: *z (*some, latent). */
static int find_latent(struct pl_tprog_network *t, const struct pl_tprog_set *s, const size_t *use,
		       size_t n, float **z, size_t *some, struct pl_err *err)
{
	size_t *row;
	int rc;

	*some = pl_min_size(n, MOMENTS);
	PL_CHECK(pl_alloc(&row, *some, sizeof(*row), err));
	PL_TRY(pl_alloc(z, *some * (size_t)t->settings.latent, sizeof(**z), err));
	for (size_t i = 0; i < *some; i++)
		row[i] = use ? use[i * n / *some] : i * n / *some;
	rc = evaluate(t, s, row, *some, NULL, *z, err);
	for (size_t i = 0; i < *some * (size_t)t->settings.latent; i++)
		(*z)[i] = tanhf((*z)[i]);
out:
	pl_free(row);
	return rc;
}

int pl_tprog_network_discrepancy(struct pl_tprog_network *t, const struct pl_tprog_set *s,
				 double *d, struct pl_err *err)
{
	float *z = NULL;
	size_t n;
	int rc = find_latent(t, s, NULL, s->n, &z, &n, err);

	if (rc >= 0)
		*d = pl_moments_discrepancy(t->moments, z, n, (size_t)t->settings.latent, SPAN, 0,
					    NULL, t->work);
	pl_free(z);
	return rc;
}

int pl_tprog_network_fit(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
			 const struct pl_tprog_fit_opts *o, struct pl_tprog_network **net,
			 struct pl_err *err)
{
	struct pl_tprog_network *t;
	double sum = 0, squares = 0;
	float *z = NULL;
	size_t some;
	int rc;

	*net = NULL;
	PL_CHECK(pl_alloc(&t, 1, sizeof(*t), err));
	t->settings = o->settings ? *o->settings : pl_tprog_usual;
	find_scales(t, s, use, n);
	t->power = isnan(t->settings.power) ? find_power(y, n) : t->settings.power;
	for (size_t i = 0; i < n; i++)
		sum += box_cox(t->power, (double)y[i]);
	t->mean = sum / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = box_cox(t->power, (double)y[i]) - t->mean;

		squares += d * d;
	}
	t->deviation = sqrt(squares / (double)n) + 1e-6;
	PL_TRY(pl_tprog_network_make(t, o->threads, o->seed, err));
	PL_TRY(pl_net_own_loss(t->net, hybrid_loss, t, err));
	PL_TRY(train(t, s, use, n, y, o, err));
	PL_TRY(find_latent(t, s, use, n, &z, &some, err));
	pl_moments_find(z, some, (size_t)t->settings.latent, t->moments);
	*net = t;
	t = NULL;
out:
	pl_free(z);
	pl_tprog_network_free(t);
	return rc;
}

int pl_tprog_network_apply(struct pl_tprog_network *t, const struct pl_tprog_set *s,
			   const size_t *row, size_t n, double *y, struct pl_err *err)
{
	return evaluate(t, s, row, n, y, NULL, err);
}

/* ---- adaptation ------------------------------------------------------------------------------ */

#define ROUNDS 100 /* steps */
#define SLOWER 0.1 /* of the rate of learning */
#define FOLDS  4
#define FEWEST 12   /* programs */
#define PARTS  5    /* of what is learned: 0, 1/4, ... 1 */
#define GAIN   0.97 /* so much less must the error be for a greater part */

/* The gradient by z follows from that by its tangents. */
static void pull(void *arg, const float *z, size_t samples, size_t n, float scale, float *dz)
{
	const struct pl_tprog_network *t = arg;
	float *bounded = t->bounded, *g = bounded + samples * n;

	for (size_t i = 0; i < samples * n; i++) {
		bounded[i] = tanhf(z[i]);
		g[i] = 0;
	}
	pl_moments_discrepancy(t->moments, bounded, samples, n, SPAN, t->pull * (double)scale, g,
			       t->work);
	for (size_t i = 0; i < samples * n; i++)
		dz[i] += g[i] * (1 - bounded[i] * bounded[i]);
}

/* The next programs of an endless sequence, each round of all in another order. */
struct sequence {
	size_t *order, n, at;
	uint64_t rng;
};

static void sequence_order(size_t *order, size_t n, uint64_t rng)
{
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	shuffle(order, n, &rng);
}

static int sequence_init(struct sequence *q, size_t n, uint64_t seed, struct pl_err *err)
{
	*q = (struct sequence){ .n = n, .at = n, .rng = seed };
	PL_CHECK(pl_alloc(&q->order, n, sizeof(*q->order), err));
	sequence_order(q->order, n, seed);
	return 0;
}

static size_t sequence_next(struct sequence *q)
{
	if (q->at == q->n) {
		shuffle(q->order, q->n, &q->rng);
		q->at = 0;
	}
	return q->order[q->at++];
}

void pl_tprog_network_reset(struct pl_tprog_network *t)
{
	struct pl_net_view v = pl_net_view(t->net);

	if (t->base)
		memcpy(v.params, t->base, v.n_params * sizeof(*v.params));
	pl_free(t->base);
	t->base = NULL;
	pl_net_changed(t->net);
}

int pl_tprog_network_keep(struct pl_tprog_network *t, struct pl_err *err)
{
	struct pl_net_view v = pl_net_view(t->net);

	PL_CHECK(pl_alloc(&t->base, v.n_params, sizeof(*t->base), err));
	memcpy(t->base, v.params, v.n_params * sizeof(*v.params));
	return 0;
}

/* What one adaptation learns from. */
struct lesson {
	const struct pl_tprog_set *few, *all;
	const double *y;   /* of few */
	const size_t *use; /* rows of few */
	size_t n;	   /* number of them */
	uint64_t seed;
};

/* Half of each batch was measured; of the other half only the latent vectors count. A batch of one
 * has no other half. */
static int learn_on(struct pl_tprog_network *t, const struct lesson *l, struct pl_err *err)
{
	size_t batch = (size_t)t->settings.batch, half = (batch + 1) / 2;
	size_t more = t->pull > 0 ? batch / 2 : 0;
	struct pl_optim_opts oo = optim_opts(t->settings.rate * SLOWER, ROUNDS / 10, ROUNDS);
	struct sequence measured = { .n = 0 }, any = { .n = 0 };
	struct pl_optim *optim = NULL;
	int rc;

	PL_TRY(sequence_init(&measured, l->n, l->seed + 1, err));
	PL_TRY(sequence_init(&any, l->all->n, l->seed + 2, err));
	PL_TRY(pl_optim_new(t->net, &oo, &optim, err));
	for (int64_t number = 0; number < ROUNDS; number++) {
		size_t n = 0;

		for (; n < half; n++) {
			size_t i = l->use[sequence_next(&measured)];

			put_program(t, l->few, &l->few->v[i], t->x + n * LEAVES * ENTRIES);
			t->target[n] = (float)label_of(t, l->y[i]);
		}
		for (; n < half + more; n++) {
			put_program(t, l->all, &l->all->v[sequence_next(&any)],
				    t->x + n * LEAVES * ENTRIES);
			t->target[n] = NAN;
		}
		PL_TRY(step(t, optim, number, n, err));
	}
	rc = 0;
out:
	pl_optim_free(optim);
	pl_free(measured.order);
	pl_free(any.order);
	return rc;
}

/* The parameters become base + part (learned - base). */
static void mix(struct pl_tprog_network *t, const float *learned, double part)
{
	struct pl_net_view v = pl_net_view(t->net);

	for (size_t i = 0; i < v.n_params; i++)
		v.params[i] = t->base[i] + (float)part * (learned[i] - t->base[i]);
	pl_net_changed(t->net);
}

/* The sum of the errors of rows of `few` with each part; y: room for the labels of n rows. */
static int add_errors(struct pl_tprog_network *t, const struct lesson *l, const size_t *row,
		      size_t n, double *y, double *sum, struct pl_err *err)
{
	struct pl_net_view v = pl_net_view(t->net);
	float *learned;
	int rc = 0;

	PL_CHECK(pl_alloc(&learned, v.n_params, sizeof(*learned), err));
	memcpy(learned, v.params, v.n_params * sizeof(*learned));
	for (int k = 0; k < PARTS && rc >= 0; k++) {
		mix(t, learned, (double)k / (PARTS - 1));
		rc = evaluate(t, l->few, row, n, y, NULL, err);
		for (size_t i = 0; i < n && rc >= 0; i++)
			sum[k] += fmin(fabs(exp(y[i] - l->y[row[i]]) - 1), FAR);
	}
	mix(t, learned, 0);
	pl_free(learned);
	return rc;
}

/* The part of what is learned that makes the programs of each fold most exact when it is learned
 * from the other folds. */
static int find_part(struct pl_tprog_network *t, const struct lesson *all, double *part,
		     struct pl_err *err)
{
	double sum[PARTS] = { 0 }, *y = NULL;
	struct lesson l = *all;
	size_t *row = NULL;
	int best = 0, rc;

	PL_TRY(pl_alloc(&row, all->n, sizeof(*row), err));
	PL_TRY(pl_alloc(&y, all->n, sizeof(*y), err));
	l.use = row;
	for (size_t fold = 0; fold < FOLDS; fold++) {
		size_t n = 0;

		for (size_t i = 0; i < all->n; i++)
			if (i % FOLDS != fold)
				row[n++] = all->use[i];
		l.n = n;
		for (size_t i = fold; i < all->n; i += FOLDS)
			row[n++] = all->use[i];
		PL_TRY(learn_on(t, &l, err));
		PL_TRY(add_errors(t, all, row + l.n, n - l.n, y, sum, err));
	}
	for (int k = 1; k < PARTS; k++)
		if (sum[k] < GAIN * sum[best])
			best = k;
	*part = (double)best / (PARTS - 1);
	rc = 0;
out:
	pl_free(row);
	pl_free(y);
	return rc;
}

int pl_tprog_network_adapt(struct pl_tprog_network *t, const struct pl_tprog_set *few,
			   const double *y, const struct pl_tprog_set *all, double weight,
			   uint64_t seed, struct pl_err *err)
{
	struct lesson l = { .few = few, .all = all, .y = y, .n = few->n, .seed = seed };
	struct pl_net_view v = pl_net_view(t->net);
	float *learned = NULL;
	size_t *use = NULL;
	double part;
	int rc;

	if (few->n < FEWEST)
		return 0;
	PL_TRY(pl_alloc(&use, few->n, sizeof(*use), err));
	PL_TRY(pl_alloc(&learned, v.n_params, sizeof(*learned), err));
	l.use = use;
	sequence_order(use, few->n, seed);
	t->pull = weight;
	PL_TRY(pl_tprog_network_keep(t, err));
	PL_TRY(pl_net_own_loss(t->net, hybrid_loss, t, err));
	PL_TRY(pl_net_own_term(t->net, t->latent, weight > 0 ? pull : NULL, t, err));
	PL_TRY(find_part(t, &l, &part, err));
	if (part > 0)
		PL_TRY(learn_on(t, &l, err));
	memcpy(learned, v.params, v.n_params * sizeof(*learned));
	mix(t, learned, part);
	if (part <= 0)
		pl_tprog_network_reset(t);
	rc = pl_net_own_term(t->net, t->latent, NULL, NULL, err);
out:
	pl_free(use);
	pl_free(learned);
	return rc;
}
