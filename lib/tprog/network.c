/*
 * A network over the leaves of tensor programs: the predictor of CDMPP (EuroSys 2024).
 *
 * The vector of each leaf is scaled to 0 to 1, its place in the tree in pre-order is added to it as
 * sines and cosines, and blocks of a transformer relate the leaves to one another. Shorter programs
 * are filled up with zeros, and a further entry says which leaves are real; so one network serves
 * all numbers of leaves, where CDMPP has a head for each. Attention looks at earlier leaves only;
 * the layers behind it see all.
 *
 * Labels v, times for a unit of work, become (v^power - 1) / power (Box and Cox, J. R. Stat. Soc. B
 * 1964), with the power that makes them most like a normal distribution, and are scaled to zero
 * mean and unit variance. The loss is the square of the error there plus the relative error of v.
 */
#include <math.h>

#include "core/progress.h"
#include "io/record.h"
#include "plan/model.h"
#include "tensor/net.h"
#include "tprog/network.h"

#define LEAVES	   8 /* of a program: those with most iterations */
#define ENTRIES	   (PL_TPROG_FEATURES + 1)
#define ITERATIONS (PL_TPROG_CDMPP - 3) /* place in the vector of a leaf */
#define BATCH	   128
#define EPOCHS	   60	  /* at most, */
#define LEAST	   12	  /* and at least, */
#define SEEN	   400000 /* until so many programs were seen, one again and again */
#define RATE	   2e-3

static const char text[] = "input 8 211\n"
			   "dense 64\n"
			   "residual\nlayernorm\nattention 4\nend\n"
			   "residual\nlayernorm\ndense 192\ngelu\ndense 64\nend\n"
			   "residual\nlayernorm\nattention 4\nend\n"
			   "residual\nlayernorm\ndense 192\ngelu\ndense 64\nend\n"
			   "layernorm\nflatten\n"
			   "dense 192\nrelu\ndense 96\nrelu\ndense 1\n"
			   "loss squared\n";

struct pl_tprog_network {
	struct pl_model model;
	struct pl_net *net;
	float least[PL_TPROG_FEATURES], range[PL_TPROG_FEATURES]; /* of each entry */
	double power, mean, deviation;				  /* of the labels */
	float *x, *target;					  /* of a batch */
};

void pl_tprog_network_free(struct pl_tprog_network *net)
{
	if (!net)
		return;
	pl_net_free(net->net);
	pl_model_fini(&net->model);
	pl_free(net->x);
	pl_free(net->target);
	pl_free(net);
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
	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		double angle = l->place / pow(10000, 2.0 * (k / 2) / PL_TPROG_FEATURES);

		x[k] = (l->x[k] - t->least[k]) / t->range[k] +
		       (float)(k % 2 ? cos(angle) : sin(angle));
	}
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

#define FLAT	 1e-4 /* powers below count as 0: the logarithm */
#define RELATIVE 1.0  /* weight of the relative error */
#define FAR	 2.0  /* relative errors beyond count no more */

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

static double hybrid_loss(void *arg, const float *x, const float *target, size_t n, float scale,
			  float *dx)
{
	const struct pl_tprog_network *t = arg;
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double d = (double)x[i] - (double)target[i], by, unused, ratio, g = 2 * d;

		ratio = exp(fmin(label_inverse(t, (double)x[i], &by) -
					 label_inverse(t, (double)target[i], &unused),
				 10));
		sum += d * d + RELATIVE * fmin(fabs(ratio - 1), FAR);
		if (fabs(ratio - 1) < FAR)
			g += RELATIVE * (ratio > 1 ? ratio : -ratio) * by;
		if (dx)
			dx[i] = (float)(g * (double)scale / (double)n);
	}
	return sum / (double)n;
}

/* ---- training -------------------------------------------------------------------------------- */

static int make_net(struct pl_tprog_network *t, const struct pl_tprog_fit_opts *o,
		    struct pl_err *err)
{
	const struct pl_net_opts no = {
		.batch = BATCH, .threads = o->threads, .seed = o->seed, .in_place = true
	};

	PL_CHECK(pl_model_text(text, sizeof(text) - 1, "network", &t->model, err));
	PL_CHECK(pl_alloc(&t->x, (size_t)BATCH * LEAVES * ENTRIES, sizeof(*t->x), err));
	PL_CHECK(pl_alloc(&t->target, BATCH, sizeof(*t->target), err));
	return pl_net_new(t->model.layer, t->model.n_layers, &no, &t->net, err);
}

static void shuffle(size_t *order, size_t n, uint64_t *rng)
{
	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)(pl_rng_next(rng) % i), x = order[i - 1];

		order[i - 1] = order[k];
		order[k] = x;
	}
}

static int train(struct pl_tprog_network *t, const struct pl_tprog_set *s, const size_t *use,
		 size_t n, const float *y, uint64_t seed, struct pl_err *err)
{
	size_t batches = (n + BATCH - 1) / BATCH, *order;
	int epochs = (int)pl_max_i64(LEAST, (int64_t)pl_min_size(EPOCHS, SEEN / n));
	const struct pl_optim_opts oo = { .kind = PL_OPTIM_ADAMW,
					  .lr = RATE,
					  .b1 = 0.9,
					  .b2 = 0.999,
					  .eps = 1e-8,
					  .decay = 0.01,
					  .clip = 1,
					  .schedule = PL_SCHED_COSINE,
					  .warmup = (int64_t)batches,
					  .steps = (int64_t)((size_t)epochs * batches) };
	struct pl_optim *optim = NULL;
	uint64_t rng = seed + 1;
	int64_t step = 0;
	int rc;

	PL_CHECK(pl_alloc(&order, n, sizeof(*order), err));
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	PL_TRY(pl_optim_new(t->net, &oo, &optim, err));
	for (int epoch = 0; epoch < epochs; epoch++) {
		shuffle(order, n, &rng);
		for (size_t at = 0; at < n; at += BATCH) {
			struct pl_batch_io b = { .x = t->x,
						 .target = t->target,
						 .n = (int)pl_min_size(BATCH, n - at) };

			for (int i = 0; i < b.n; i++) {
				size_t k = order[at + (size_t)i];

				put_program(t, s, &s->v[use[k]],
					    t->x + (size_t)i * LEAVES * ENTRIES);
				t->target[i] = (float)label_of(t, (double)y[k]);
			}
			PL_TRY(pl_net_forward(t->net, &b, (uint64_t)step, false, NULL, NULL, err));
			PL_TRY(pl_net_backward(t->net, false, err));
			pl_optim_step(optim, step++, 0, SIZE_MAX, NAN);
		}
	}
	rc = 0;
out:
	pl_optim_free(optim);
	pl_free(order);
	return rc;
}

int pl_tprog_network_fit(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
			 const struct pl_tprog_fit_opts *o, struct pl_tprog_network **net,
			 struct pl_err *err)
{
	struct pl_tprog_network *t;
	double sum = 0, squares = 0;
	int rc;

	*net = NULL;
	PL_CHECK(pl_alloc(&t, 1, sizeof(*t), err));
	find_scales(t, s, use, n);
	t->power = find_power(y, n);
	for (size_t i = 0; i < n; i++)
		sum += box_cox(t->power, (double)y[i]);
	t->mean = sum / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = box_cox(t->power, (double)y[i]) - t->mean;

		squares += d * d;
	}
	t->deviation = sqrt(squares / (double)n) + 1e-6;
	PL_TRY(make_net(t, o, err));
	PL_TRY(pl_net_own_loss(t->net, hybrid_loss, t, err));
	PL_TRY(train(t, s, use, n, y, o->seed, err));
	*net = t;
	t = NULL;
out:
	pl_tprog_network_free(t);
	return rc;
}

int pl_tprog_network_apply(struct pl_tprog_network *t, const struct pl_tprog_set *s,
			   const size_t *row, size_t n, double *y, struct pl_err *err)
{
	float out[BATCH];
	double by;

	for (size_t at = 0; at < n; at += BATCH) {
		struct pl_batch_io b = { .x = t->x,
					 .target = t->target,
					 .n = (int)pl_min_size(BATCH, n - at) };
		double loss;

		for (int i = 0; i < b.n; i++)
			put_program(t, s, &s->v[row[at + (size_t)i]],
				    t->x + (size_t)i * LEAVES * ENTRIES);
		PL_CHECK(pl_net_forward(t->net, &b, 0, true, &loss, NULL, err));
		PL_CHECK(pl_net_outputs(t->net, out, err));
		for (int i = 0; i < b.n; i++)
			y[at + (size_t)i] = label_inverse(t, (double)out[i], &by);
	}
	return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void put_float(struct pl_buf *b, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pl_io_put_u32(b, bits);
}

static float get_float(struct pl_cur *c)
{
	uint32_t bits = pl_io_get_u32(c);
	float v;

	memcpy(&v, &bits, sizeof(v));
	c->bad |= !isfinite(v);
	return v;
}

void pl_tprog_network_put(const struct pl_tprog_network *t, struct pl_buf *b)
{
	struct pl_net_view v = pl_net_view(t->net);

	pl_io_put_str(b, text, sizeof(text) - 1);
	pl_io_put_f64(b, t->power);
	pl_io_put_f64(b, t->mean);
	pl_io_put_f64(b, t->deviation);
	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		put_float(b, t->least[k]);
		put_float(b, t->range[k]);
	}
	pl_io_put_varint(b, v.n_params);
	for (size_t i = 0; i < v.n_params; i++)
		put_float(b, v.params[i]);
}

int pl_tprog_network_get(struct pl_cur *c, struct pl_tprog_network **net, struct pl_err *err)
{
	const struct pl_tprog_fit_opts o = { .threads = 1 };
	struct pl_tprog_network *t;
	struct pl_net_view v;
	const char *s;
	size_t n;
	int rc;

	*net = NULL;
	PL_CHECK(pl_alloc(&t, 1, sizeof(*t), err));
	s = pl_io_get_str(c, &n);
	t->power = pl_io_get_f64(c);
	t->mean = pl_io_get_f64(c);
	t->deviation = pl_io_get_f64(c);
	for (int k = 0; k < PL_TPROG_FEATURES; k++) {
		t->least[k] = get_float(c);
		t->range[k] = get_float(c);
		c->bad |= !(t->range[k] > 0);
	}
	c->bad |= !isfinite(t->mean) || !(fabs(t->power) <= 1) || !(t->deviation > 0) ||
		  !isfinite(t->deviation);
	if (c->bad || !s)
		PL_TRY(pl_record_get_short(err));
	if (n != sizeof(text) - 1 || memcmp(s, text, n) != 0)
		PL_TRY(pl_fail(err, PL_EDATA,
			       "its network is of another version of this program: train it "
			       "again"));
	PL_TRY(make_net(t, &o, err));
	v = pl_net_view(t->net);
	if (pl_io_get_varint(c) != v.n_params)
		PL_TRY(pl_fail(err, PL_EDATA, "the number of parameters is not %zu", v.n_params));
	for (size_t i = 0; i < v.n_params; i++)
		v.params[i] = get_float(c);
	pl_net_changed(t->net);
	PL_TRY(c->bad ? pl_record_get_short(err) : 0);
	*net = t;
	t = NULL;
out:
	pl_tprog_network_free(t);
	return rc;
}
