/*
 * The gradients of the plain backend, built in double, against central differences: along random
 * directions of all inputs at once, the change of a random projection of the outputs is what the
 * gradients say, to 1e-6 of it. `float` is a double in what follows; so the source that is checked
 * is the one that the other backends are held against.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/core.h"
#include "core/pool.h"

#define float double
#define pl_backend_plain plain_double
#include "../oracle/plain.c"

#include "tap.h"

#define LIMIT  1e-6
#define STEP   1e-5
#define ROUNDS 30
#define KEPT   8

static uint64_t seed = 7;

static int pick(int lo, int hi)
{
	return lo + (int)(pl_rng_next(&seed) % (uint64_t)(hi - lo + 1));
}

static double number(void)
{
	double u = 0;

	for (int i = 0; i < 4; i++)
		u += (double)(pl_rng_next(&seed) >> 11) / 9007199254740992.0 - 0.5;
	return u * 1.7;
}

/* Inputs with their gradients and the direction, outputs with their weights in the projection. */
struct value {
	double *v, *d, *along;
	int n;
};
static struct value in[KEPT], out[KEPT];
static int n_in, n_out;

static struct value *make(struct value *x, int n)
{
	x->n = n;
	x->v = malloc((size_t)n * sizeof(*x->v));
	x->d = malloc((size_t)n * sizeof(*x->d));
	x->along = malloc((size_t)n * sizeof(*x->along));
	for (int i = 0; i < n; i++) {
		x->v[i] = number();
		x->d[i] = number();
		x->along[i] = number();
	}
	return x;
}

static struct value *input(int n)
{
	return make(&in[n_in++], n);
}

static struct value *output(int n)
{
	return make(&out[n_out++], n);
}

/* What one kernel is: its inputs and outputs are made by `setup`; `forward` fills the outputs (or
 * gives the projection itself, a loss), `back` the gradients of the inputs from out[0].d. */
struct kernel {
	const char *name;
	void (*setup)(void);
	double (*forward)(void);
	void (*back)(void);
};

static double project(void)
{
	double sum = 0;

	for (int i = 0; i < out[0].n; i++)
		sum += out[0].v[i] * out[0].d[i];
	return sum;
}

static double moved(const struct kernel *k, double h)
{
	double y;

	for (int i = 0; i < n_in; i++)
		for (int j = 0; j < in[i].n; j++)
			in[i].v[j] += h * in[i].along[j];
	y = k->forward();
	for (int i = 0; i < n_in; i++)
		for (int j = 0; j < in[i].n; j++)
			in[i].v[j] -= h * in[i].along[j];
	return y;
}

/* The relative error of one random case. Gradients are added to: what was there is taken off. */
static double check(const struct kernel *k)
{
	double slope, said = 0, size = 0, *before[KEPT];

	n_in = n_out = 0;
	k->setup();
	slope = (moved(k, STEP) - moved(k, -STEP)) / (2 * STEP);
	k->forward();
	for (int i = 0; i < n_in; i++) {
		before[i] = malloc((size_t)in[i].n * sizeof(double));
		memcpy(before[i], in[i].d, (size_t)in[i].n * sizeof(double));
	}
	k->back();
	for (int i = 0; i < n_in; i++)
		for (int j = 0; j < in[i].n; j++) {
			double part = (in[i].d[j] - before[i][j]) * in[i].along[j];

			said += part;
			size += part * part;
		}
	for (int i = 0; i < n_in; i++)
		free(before[i]);
	for (int i = 0; i < n_in + n_out; i++) {
		struct value *x = i < n_in ? &in[i] : &out[i - n_in];

		free(x->v);
		free(x->d);
		free(x->along);
	}
	/* a sum that cancels has no more digits than its parts; where nothing flows both are 0 */
	return slope == said ? 0 : fabs(slope - said) / (fabs(said) + sqrt(size));
}

/* An input whose gradient is overwritten, not added to. */
static void overwritten(struct value *x)
{
	memset(x->d, 0, (size_t)x->n * sizeof(*x->d));
}

static int n, c, kk, t;
static enum pl_act act;

static void act_setup(void)
{
	n = pick(1, 9);
	act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
	overwritten(input(n));
	output(n);
}

static double act_forward(void)
{
	plain_act(NULL, act, (size_t)n, in[0].v, out[0].v);
	return project();
}

static void act_back(void)
{
	plain_act_back(NULL, act, (size_t)n, in[0].v, out[0].v, out[0].d, in[0].d);
}

static void dense_setup(void)
{
	n = pick(1, 5);
	c = pick(1, 6);
	kk = pick(1, 6);
	act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
	overwritten(input(n * c));
	input(kk * c);
	input(kk);
	output(n * kk);
	output(n * kk);
}

static double dense_forward(void)
{
	plain_dense(NULL, n, c, kk, in[0].v, in[1].v, in[2].v, act, out[1].v, out[0].v);
	return project();
}

static void dense_back(void)
{
	plain_dense_back(NULL, n, c, kk, in[0].v, in[1].v, act, out[1].v, out[0].v, out[0].d, NULL,
			 in[0].d, in[1].d, in[2].d);
}

static struct pl_conv conv;

static void conv_setup(void)
{
	conv = (struct pl_conv){ .n = pick(1, 2),
				 .c = pick(1, 3),
				 .k = pick(1, 3),
				 .r = pick(1, 3),
				 .s = pick(1, 3),
				 .stride = pick(1, 2) };
	conv.pad = pick(0, 2);
	conv.h = pick(conv.r, 6);
	conv.w = pick(conv.s, 6);
	conv.p = (conv.h + 2 * conv.pad - conv.r) / conv.stride + 1;
	conv.q = (conv.w + 2 * conv.pad - conv.s) / conv.stride + 1;
	act = (enum pl_act[]){ PL_ACT_NONE, PL_ACT_RELU, PL_ACT_TANH, PL_ACT_SIGMOID }[pick(0, 3)];
	overwritten(input(conv.n * conv.c * conv.h * conv.w));
	input(conv.k * conv.c * conv.r * conv.s);
	input(conv.k);
	output(conv.n * conv.k * conv.p * conv.q);
}

static double conv_forward(void)
{
	plain_conv(NULL, &conv, in[0].v, in[1].v, in[2].v, act, out[0].v, NULL);
	return project();
}

static void conv_back(void)
{
	plain_conv_back(NULL, &conv, in[0].v, in[1].v, act, out[0].v, out[0].d, in[0].d, in[1].d,
			in[2].d, NULL);
}

static struct pl_pool2d pool;
static int32_t at[4096];

static void pool_setup(void)
{
	pool = (struct pl_pool2d){ .n = pick(1, 2),
				   .c = pick(1, 2),
				   .r = pick(1, 3),
				   .stride = pick(1, 3),
				   .max = pick(0, 1) };
	pool.pad = pick(0, pool.r / 2);
	pool.h = pick(pool.r, 7);
	pool.w = pick(pool.r, 7);
	pool.p = (pool.h + 2 * pool.pad - pool.r) / pool.stride + 1;
	pool.q = (pool.w + 2 * pool.pad - pool.r) / pool.stride + 1;
	overwritten(input(pool.n * pool.c * pool.h * pool.w));
	output(pool.n * pool.c * pool.p * pool.q);
}

static double pool_forward(void)
{
	plain_pool(NULL, &pool, in[0].v, out[0].v, at);
	return project();
}

static void pool_back(void)
{
	plain_pool_back(NULL, &pool, at, out[0].d, in[0].d);
}

static void norm_setup(void)
{
	n = pick(2, 4);
	c = pick(3, 6);
	t = pick(2, 4);
	overwritten(input(n * c * t));
	input(c);
	input(c);
	output(n * c * t);
	output(2 * (n * t + c));
}

static double batchnorm_forward(void)
{
	plain_batchnorm(NULL, n, c, t, in[0].v, in[1].v, in[2].v, 1e-2, 0.1, false, NULL, out[1].v,
			out[0].v);
	return project();
}

static void batchnorm_back(void)
{
	plain_batchnorm_back(NULL, n, c, t, in[0].v, in[1].v, out[1].v, out[0].d, in[0].d, in[1].d,
			     in[2].d);
}

static double layernorm_forward(void)
{
	plain_layernorm(NULL, n * t, c, in[0].v, in[1].v, in[2].v, 1e-2, out[1].v, out[0].v);
	return project();
}

static void layernorm_back(void)
{
	plain_layernorm_back(NULL, n * t, c, in[0].v, in[1].v, out[1].v, out[0].d, in[0].d, in[1].d,
			     in[2].d);
}

static int32_t ids[64];

static void embed_setup(void)
{
	t = pick(1, 5);
	n = t * pick(1, 3);
	c = pick(1, 5);
	input(4 * c);
	input(t * c);
	output(n * c);
	for (int i = 0; i < n; i++)
		ids[i] = pick(0, 3);
}

static double embed_forward(void)
{
	plain_embed(NULL, n, c, ids, in[0].v, in[1].v, t, out[0].v);
	return project();
}

static void embed_back(void)
{
	plain_embed_back(NULL, n, c, ids, t, out[0].d, in[0].d, in[1].d);
}

static struct pl_attn attn;

static void attn_setup(void)
{
	attn = (struct pl_attn){ .b = pick(1, 2), .t = pick(1, 6), .heads = pick(1, 3) };
	attn.c = attn.heads * pick(1, 4);
	overwritten(input(attn.b * attn.t * 3 * attn.c));
	output(attn.b * attn.t * attn.c);
	output((int)plain_attn_save(NULL, &attn));
}

static double attn_forward(void)
{
	plain_attn(NULL, &attn, in[0].v, out[0].v, out[1].v);
	return project();
}

static void attn_back(void)
{
	plain_attn_back(NULL, &attn, in[0].v, out[0].v, out[1].v, out[0].d, in[0].d);
}

static void dropout_setup(void)
{
	n = pick(1, 40);
	overwritten(input(n));
	output(n);
}

static double dropout_forward(void)
{
	plain_dropout(NULL, (size_t)n, 0.4, 99, in[0].v, out[0].v);
	return project();
}

static void dropout_back(void)
{
	plain_dropout(NULL, (size_t)n, 0.4, 99, out[0].d, in[0].d);
}

#define SCALE 1.7 /* of the gradient of a loss; the loss itself is not scaled */

static void loss_setup(void)
{
	n = pick(1, 5);
	c = pick(2, 6);
	overwritten(input(n * c));
	output(n * c);
	for (int i = 0; i < n; i++)
		ids[i] = pick(0, c - 1);
}

static struct pl_loss_sum sum;

static double xent_forward(void)
{
	plain_softmax_xent(NULL, n, c, in[0].v, ids, SCALE, NULL, &sum);
	return SCALE * sum.loss;
}

static void xent_back(void)
{
	plain_softmax_xent(NULL, n, c, in[0].v, ids, SCALE, in[0].d, &sum);
}

static double squared_forward(void)
{
	plain_squared(NULL, n, c, in[0].v, out[0].v, SCALE, NULL, &sum);
	return SCALE * sum.loss;
}

static void squared_back(void)
{
	plain_squared(NULL, n, c, in[0].v, out[0].v, SCALE, in[0].d, &sum);
}

static double hinge_forward(void)
{
	plain_hinge(NULL, n, c, in[0].v, ids, SCALE, NULL, &sum);
	return SCALE * sum.loss;
}

static void hinge_back(void)
{
	plain_hinge(NULL, n, c, in[0].v, ids, SCALE, in[0].d, &sum);
}

static const struct kernel kernels[] = {
	{ "activations", act_setup, act_forward, act_back },
	{ "dense", dense_setup, dense_forward, dense_back },
	{ "conv", conv_setup, conv_forward, conv_back },
	{ "pool", pool_setup, pool_forward, pool_back },
	{ "batchnorm", norm_setup, batchnorm_forward, batchnorm_back },
	{ "layernorm", norm_setup, layernorm_forward, layernorm_back },
	{ "embedding", embed_setup, embed_forward, embed_back },
	{ "attention", attn_setup, attn_forward, attn_back },
	{ "dropout", dropout_setup, dropout_forward, dropout_back },
	{ "softmax and cross entropy", loss_setup, xent_forward, xent_back },
	{ "squared error", loss_setup, squared_forward, squared_back },
	{ "hinge", loss_setup, hinge_forward, hinge_back },
};

/* Losses and optimisers by hand, where a formula could be wrong in both passes alike. */
static void values(void)
{
	double x[4] = { 1, 3, 2, 0 }, w = 2, v = 0, m = 0, g = 0.5, first;
	int32_t y[2] = { 1, 1 };
	struct plain ctx = { .vary = { .lr = 0.1, .t = 1 } };
	struct pl_decay none = { 0 };

	plain_softmax_xent(NULL, 2, 2, x, y, 1, NULL, &sum);
	first = (log(1 + exp(-2)) + log(1 + exp(2))) / 2;
	ok(fabs(sum.loss - first) < 1e-12 && sum.hits == 1, "cross entropy of two rows, one right");
	plain_hinge(NULL, 2, 2, x, y, 1, NULL, &sum);
	ok(fabs(sum.loss - 3.0 / 4) < 1e-12 && sum.hits == 1, "hinge of two rows");
	plain_sgd(&ctx, 0, 1, 0.5, &(struct pl_decay){ .rate = 0.25 }, false, &g, &v,
		  &w); /* v = g + 0.25 w = 1 */
	ok(fabs(v - 1) < 1e-12 && fabs(w - 1.9) < 1e-12, "a step of SGD with momentum and decay");
	plain_sgd(&ctx, 0, 1, 0.5, &none, true, &g, &v, &w); /* v = 0.5 + 0.5; d = 0.5 + 0.5 v */
	ok(fabs(v - 1) < 1e-12 && fabs(w - 1.8) < 1e-12, "a step with Nesterov's momentum");
	w = 2;
	v = 0;
	plain_adam(&ctx, 0, 1, 0.9, 0.99, 0, &(struct pl_decay){ .rate = 0.5 }, true, &g, &m, &v,
		   &w);
	ok(fabs(w - (2 * (1 - 0.05) - 0.1)) < 1e-12, "the first step of AdamW is lr, plus decay");
	ctx.vary.t = 2;
	plain_adam(&ctx, 0, 1, 0.9, 0.99, 0, &none, false, &g, &m, &v, &w);
	ok(fabs(w - (2 * (1 - 0.05) - 0.2)) < 1e-12, "and so is the second, of the same gradient");
	ok(plain_sum_squares(NULL, 4, x) == 14, "sum of squares");
}

int main(void)
{
	for (size_t i = 0; i < PL_LEN(kernels); i++) {
		double worst = 0;

		for (int r = 0; r < ROUNDS; r++) {
			double e = check(&kernels[i]);

			worst = worse(worst, e);
		}
		ok(worst <= LIMIT, "%s: gradients as central differences, to %.0e", kernels[i].name,
		   LIMIT);
		if (!(worst <= LIMIT))
			printf("# off by %.3g\n", worst);
	}
	values();
	return done_testing();
}
