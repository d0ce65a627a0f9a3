/*
 * Gradients of whole networks, all in double, against central differences of their losses: of every
 * tensor by itself, in random directions. The sources are included with `float` defined as double.
 *
 * The second part does it again with kernels of which one output has its sign flipped, each in
 * turn: the comparison must find every one of them.
 */
#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/pool.h"
#include "tap.h"

#define float double
#include "../oracle/plain.c"
#include "tensor/layers.c"
#include "tensor/net.c"
#include "tensor/net_build.c"
#include "tensor/net_init.c"
#include "tensor/net_plan.c"

#include "net_fixture.h"

#define BOUND 1e-6

static const char *const models[] = {
	"input 6 / dense 7 / relu / dense 5 / gelu / dense 4 / tanh / dense 3 / sigmoid / "
	"loss squared",
	"input 5 / relu / dense 6 bias=0 / flatten / relu / dense 4 / loss softmax-cross-entropy",
	"input 5 / dense 6 / sigmoid / dense 4 / loss hinge",
	"input 2 7 6 / conv 3 3 pad=1 / relu / maxpool 2 / conv 4 2 stride=1 bias=0 / gelu / "
	"flatten / dense 3 / loss softmax-cross-entropy",
	"input 2 6 6 / batchnorm / conv 3 3 2 stride=2 / tanh / conv 3 1 / sigmoid / "
	"avgpool 2 stride=1 pad=1 / batchnorm / flatten / dense 3 / loss softmax-cross-entropy",
	"input 6 / layernorm / dense 8 / dropout 0.3 / batchnorm / relu / dropout 0 / dense 3 / "
	"loss softmax-cross-entropy",
	"input 5 / residual / dense 5 / relu / end / residual / residual / layernorm / dense 5 / "
	"gelu / end / end / tanh / residual / end / dense 3 / loss squared",
	"input 4 3 / dense 6 / gelu / attention 2 bias=0 / dense 3 / dense 6 tie=0 bias=0 / "
	"relu / dense 3 / loss softmax-cross-entropy",
	"input 5 / embedding 7 8 name=e / position / dropout 0.2 / residual / layernorm / "
	"attention 2 name=a / end / residual / layernorm / dense 12 / gelu / dense 8 / end / "
	"layernorm / dense 7 tie=e bias=0 / loss softmax-cross-entropy",
	"input 4 / embedding 5 6 / flatten / dense 3 name=d / tanh / loss hinge",
};

/* A term of the caller: a third of the sum of the cubes of a layer's outputs. */
static void add_cubes(void *arg, const float *y, size_t samples, size_t n, float scale, float *dy)
{
	(void)arg;
	for (size_t i = 0; i < samples * n; i++)
		dy[i] += scale * y[i] * y[i];
}

static double term_of(const struct pl_net *net)
{
	double sum = 0;

	for (size_t i = 0; net->term && i < (size_t)net->samples * net->node[net->term_layer].ny;
	     i++)
		sum += pow(pl_net_value(net, net->term_layer)[i], 3) / 3;
	return sum;
}

/* The loss with tensor t moved by h along the direction that the seed gives. */
static double moved(struct pl_net *net, const struct fix_batch *b, const struct pl_net_tensor *t,
		    uint64_t seed, double h)
{
	struct pl_err err = { 0 };
	size_t n;
	float *p = fix_params(net, &n) + t->offset;
	double loss;

	for (uint64_t i = 0, s = seed; i < t->n; i++)
		p[i] += h * fix_random(&s);
	if (pl_net_forward(net, &b->io, 5, false, &loss, NULL, &err) < 0)
		loss = (double)NAN;
	loss += term_of(net);
	for (uint64_t i = 0, s = seed; i < t->n; i++)
		p[i] -= h * fix_random(&s);
	return loss;
}

/* Of the loss along that direction: five points, so that strong curvature (normalisation over three
 * samples) leaves an error of the fourth order. */
static double slope(struct pl_net *net, const struct fix_batch *b, const struct pl_net_tensor *t,
		    uint64_t seed)
{
	const double h = 1e-5;
	double near = moved(net, b, t, seed, h) - moved(net, b, t, seed, -h);
	double far = moved(net, b, t, seed, 2 * h) - moved(net, b, t, seed, -2 * h);

	return (8 * near - far) / (12 * h);
}

/* The largest relative error over the tensors, and which it is in. */
static double worst_of(struct pl_net *net, const struct fix_batch *b, const char **which)
{
	struct pl_err err = { 0 };
	double worst = 0, loss;
	uint32_t n;
	const struct pl_net_tensor *t = fix_tensors(net, &n);

	if (pl_net_forward(net, &b->io, 5, false, &loss, NULL, &err) < 0 ||
	    pl_net_backward(net, false, &err) < 0)
		return INFINITY;
	*which = "";
	for (uint32_t i = 0; i < n; i++) {
		for (uint64_t seed = 1; seed <= 2; seed++) {
			const float *g = fix_grads(net) + t[i].offset;
			double want = slope(net, b, &t[i], seed);
			double got = 0, size = 0, error;

			for (uint64_t j = 0, s = seed; j < t[i].n; j++) {
				got += g[j] * fix_random(&s);
				size += g[j] * g[j];
			}
			/* Nearly at a right angle: against its length. Nearly zero, as of what a
			 * normalisation takes away: rounding of losses makes 1e-10 of it. */
			error = fabs(got - want) / fmax(fmax(fabs(want), 0.01 * sqrt(size)), 1e-4);
			if (worse(worst, error) != worst) {
				worst = worse(worst, error);
				*which = t[i].name;
			}
		}
	}
	return worst;
}

static double check(const char *text, const struct pl_backend *backend, const char **which)
{
	static char name[128];
	struct pl_net *net = fix_net(text, backend, 4, 11);
	struct fix_batch b;
	double worst;

	if (!net)
		return INFINITY;
	fix_batch(&b, net, 3, 17);
	worst = worst_of(net, &b, which);
	snprintf(name, sizeof(name), "%s", *which);
	*which = name;
	fix_batch_free(&b);
	pl_net_free(net);
	return worst;
}

/* ---- kernels that are wrong ---------------------------------------------------------------- */

static const struct pl_backend *const good = &pl_backend_plain;

static void flip(size_t n, float *x)
{
	for (size_t i = 0; x && i < n; i++)
		x[i] = -x[i];
}

#define DENSE                                                                                      \
	void *ctx, int n, int c, int k, const float *x, const float *w, enum pl_act act,           \
		const float *pre, const float *y, float *dy, const float *from, float *dx,         \
		float *dw, float *db
#define DENSE_ARGS ctx, n, c, k, x, w, act, pre, y, dy, from, dx, dw, db
static void dense_dx(DENSE)
{
	good->dense_back(DENSE_ARGS);
	flip((size_t)n * (size_t)c, dx);
}
static void dense_dw(DENSE)
{
	good->dense_back(DENSE_ARGS);
	flip((size_t)k * (size_t)c, dw);
}
static void dense_db(DENSE)
{
	good->dense_back(DENSE_ARGS);
	flip((size_t)k, db);
}

#define CONV                                                                                       \
	void *ctx, const struct pl_conv *d, const float *x, const float *w, enum pl_act act,       \
		const float *y, float *dy, float *dx, float *dw, float *db, float *work
#define CONV_ARGS ctx, d, x, w, act, y, dy, dx, dw, db, work
static void conv_dx(CONV)
{
	good->conv_back(CONV_ARGS);
	flip((size_t)d->n * (size_t)d->c * (size_t)d->h * (size_t)d->w, dx);
}
static void conv_dw(CONV)
{
	good->conv_back(CONV_ARGS);
	flip((size_t)d->k * (size_t)d->c * (size_t)d->r * (size_t)d->s, dw);
}
static void conv_db(CONV)
{
	good->conv_back(CONV_ARGS);
	flip((size_t)d->k, db);
}

static void pool_dx(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
		    float *dx)
{
	good->pool_back(ctx, d, at, dy, dx);
	flip((size_t)d->n * (size_t)d->c * (size_t)d->h * (size_t)d->w, dx);
}
static void act_dx(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
		   const float *dy, float *dx)
{
	good->act_back(ctx, act, n, x, y, dy, dx);
	flip(n, dx);
}

#define BATCH                                                                                      \
	void *ctx, int n, int c, int s, const float *x, const float *gamma, const float *save,     \
		const float *dy, float *dx, float *dgamma, float *dbeta
#define BATCH_ARGS ctx, n, c, s, x, gamma, save, dy, dx, dgamma, dbeta
static void batch_dx(BATCH)
{
	good->batchnorm_back(BATCH_ARGS);
	flip((size_t)n * (size_t)c * (size_t)s, dx);
}
static void batch_dgamma(BATCH)
{
	good->batchnorm_back(BATCH_ARGS);
	flip((size_t)c, dgamma);
}
static void batch_dbeta(BATCH)
{
	good->batchnorm_back(BATCH_ARGS);
	flip((size_t)c, dbeta);
}

#define NORM                                                                                       \
	void *ctx, int n, int c, const float *x, const float *gamma, const float *save,            \
		const float *dy, float *dx, float *dgamma, float *dbeta
#define NORM_ARGS ctx, n, c, x, gamma, save, dy, dx, dgamma, dbeta
static void norm_dx(NORM)
{
	good->layernorm_back(NORM_ARGS);
	flip((size_t)n * (size_t)c, dx);
}
static void norm_dgamma(NORM)
{
	good->layernorm_back(NORM_ARGS);
	flip((size_t)c, dgamma);
}
static void norm_dbeta(NORM)
{
	good->layernorm_back(NORM_ARGS);
	flip((size_t)c, dbeta);
}

#define EMBED                                                                                      \
	void *ctx, int n, int c, const int32_t *id, int t, const float *dy, float *dtable,         \
		float *dposition
#define EMBED_ARGS ctx, n, c, id, t, dy, dtable, dposition
static void embed_dtable(EMBED)
{
	good->embed_back(EMBED_ARGS);
	for (int i = 0; i < n; i++) /* what was added is subtracted, twice */
		for (int j = 0; j < c; j++)
			dtable[(size_t)id[i] * (size_t)c + (size_t)j] -=
				2 * dy[(size_t)i * (size_t)c + (size_t)j];
}
static void embed_dposition(EMBED)
{
	good->embed_back(EMBED_ARGS);
	flip((size_t)t * (size_t)c, dposition);
}

static void attn_dqkv(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
		      const float *save, const float *dy, float *dqkv)
{
	good->attn_back(ctx, d, qkv, y, save, dy, dqkv);
	for (int row = 0; row < d->b * d->t; row++) /* of the keys alone */
		flip((size_t)d->c, dqkv + (size_t)row * 3 * (size_t)d->c + d->c);
}
static bool in_backward;
static void dropout_back(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	good->dropout(ctx, n, p, in_backward ? salt + 1 : salt, x, y);
}
static void add_back(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	good->add(ctx, n, a, b, y);
	for (size_t i = 0; in_backward && i < n; i++)
		y[i] = a[i] - b[i];
}
static void xent_dx(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		    float *dx, struct pl_loss_sum *sum)
{
	good->softmax_xent(ctx, n, c, x, y, scale, dx, sum);
	flip((size_t)n * (size_t)c, dx);
}
static void squared_dx(void *ctx, int n, int c, const float *x, const float *y, float scale,
		       float *dx, struct pl_loss_sum *sum)
{
	good->squared(ctx, n, c, x, y, scale, dx, sum);
	flip((size_t)n * (size_t)c, dx);
}
static void hinge_dx(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		     float *dx, struct pl_loss_sum *sum)
{
	good->hinge(ctx, n, c, x, y, scale, dx, sum);
	flip((size_t)n * (size_t)c, dx);
}

#define MUTANTS(X)                                                                                 \
	X(dense_back, dense_dx)                                                                    \
	X(dense_back, dense_dw)                                                                    \
	X(dense_back, dense_db)                                                                    \
	X(conv_back, conv_dx)                                                                      \
	X(conv_back, conv_dw)                                                                      \
	X(conv_back, conv_db)                                                                      \
	X(pool_back, pool_dx)                                                                      \
	X(act_back, act_dx)                                                                        \
	X(batchnorm_back, batch_dx)                                                                \
	X(batchnorm_back, batch_dgamma)                                                            \
	X(batchnorm_back, batch_dbeta)                                                             \
	X(layernorm_back, norm_dx)                                                                 \
	X(layernorm_back, norm_dgamma)                                                             \
	X(layernorm_back, norm_dbeta)                                                              \
	X(embed_back, embed_dtable)                                                                \
	X(embed_back, embed_dposition)                                                             \
	X(attn_back, attn_dqkv)                                                                    \
	X(dropout, dropout_back)                                                                   \
	X(add, add_back)                                                                           \
	X(softmax_xent, xent_dx)                                                                   \
	X(squared, squared_dx)                                                                     \
	X(hinge, hinge_dx)

/* Every model has a dense layer near both of its ends. */
static int open_watched(const struct pl_backend_opts *o, void **ctx, struct pl_err *err)
{
	in_backward = false;
	return good->open(o, ctx, err);
}
static void watch_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
			const float *bias, enum pl_act act, float *pre, float *y)
{
	in_backward = false;
	good->dense(ctx, n, c, k, x, w, bias, act, pre, y);
}
static void watch_dense_back(DENSE)
{
	in_backward = true;
	good->dense_back(DENSE_ARGS);
}

static void test_mutant(struct pl_backend *b, const char *what)
{
	double worst = 0;

	b->open = open_watched;
	b->dense = watch_dense;
	if (b->dense_back == good->dense_back)
		b->dense_back = watch_dense_back;
	for (size_t m = 0; m < PL_LEN(models) && worst <= BOUND; m++) {
		const char *which = "";
		double error = check(models[m], b, &which);

		if (!(error <= worst))
			worst = error;
	}
	ok(worst > BOUND, "a flipped sign in %s is found (error %.2g)", what, worst);
}

/* Whatever fits together, so that fusion, blocks and buffers meet in every order. */
static void test_random(void)
{
	int built = 0, bad = 0;

	for (uint64_t seed = 1; seed <= 5000; seed++) {
		char text[1024];
		const char *which = "";
		struct fix_batch b;
		struct pl_net *net;
		double error;

		fix_random_model(seed, text, sizeof(text));
		net = fix_try(text, good, 4);
		if (!net)
			continue;
		built++;
		fix_batch(&b, net, 3, 17);
		error = worst_of(net, &b, &which);
		if (!(error <= BOUND)) {
			printf("# %s: %.1e in %s\n", text, error, which);
			bad++;
		}
		fix_batch_free(&b);
		pl_net_free(net);
	}
	ok(built > 500 && bad == 0, "%d random models, gradients of %d wrong", built, bad);
}

/* On every layer of random models that may have one. */
static void test_terms(void)
{
	int tried = 0, bad = 0;

	for (uint64_t seed = 1; seed <= 1500; seed++) {
		char text[1024];
		struct fix_batch b;
		struct pl_net *net;

		fix_random_model(seed, text, sizeof(text));
		net = fix_try(text, good, 4);
		if (!net)
			continue;
		fix_batch(&b, net, 3, 17);
		for (uint32_t i = 0; i < net->n; i++) {
			struct pl_err err = { 0 };
			const char *which = "";
			double error;

			if (pl_net_own_term(net, i, add_cubes, NULL, &err) < 0)
				continue;
			tried++;
			error = worst_of(net, &b, &which);
			if (!(error <= BOUND)) {
				printf("# %s: term on layer %u, %.1e in %s\n", text, i, error,
				       which);
				bad++;
			}
		}
		fix_batch_free(&b);
		pl_net_free(net);
	}
	ok(tried > 100 && bad == 0, "terms on %d layers, gradients of %d wrong", tried, bad);
}

int main(void)
{
	for (size_t m = 0; m < PL_LEN(models); m++) {
		const char *which = "";
		double error = check(models[m], good, &which);

		ok(error <= BOUND, "gradients of model %zu: within %.1e, the worst %s", m, error,
		   which);
	}
#define RUN(field, mutant)                                                                         \
	{                                                                                          \
		struct pl_backend b = *good;                                                       \
                                                                                                   \
		b.field = mutant;                                                                  \
		test_mutant(&b, #mutant);                                                          \
	}
	MUTANTS(RUN)
	test_random();
	test_terms();
	return done_testing();
}
