/*
 * kernels_table.cpp - the launchers of kernels.h as a backend, for the battery of backends: each
 * call gets scratch of just the size that it asks for, poisoned, and another order of blocks and
 * threads.
 */
#include "kernels_table.h"

#include <stdlib.h>

#include "tensor/cuda/kernels.h"

struct table {
	struct plk k;
	struct pl_vary vary;
	uint64_t seed;
	void *scratch;
};

extern "C" void *emu_table_open(bool half, uint64_t seed)
{
	struct table *t = (struct table *)calloc(1, sizeof(*t));

	t->k.sms = 2;
	t->k.shared = EMU_MOST_SHARED;
	t->k.bf16 = half;
	t->seed = seed;
	return t;
}

extern "C" bool emu_table_watched(void)
{
	return emu_told;
}

extern "C" void emu_table_close(void *ctx)
{
	free(((struct table *)ctx)->scratch);
	free(ctx);
}

/* The kernels' context for a call that needs so much scratch. */
static const struct plk *with(void *ctx, size_t bytes)
{
	struct table *t = (struct table *)ctx;

	free(t->scratch);
	t->scratch = aligned_alloc(256, (bytes + 256) / 256 * 256);
	memset(t->scratch, 0xff, bytes);
	t->k.scratch = t->scratch;
	t->k.scratch_bytes = bytes;
	emu_seed(t->seed += 2);
	return &t->k;
}

#define KIND(ctx) (&((struct table *)(ctx))->k)

static int do_sync(void *, struct pl_err *)
{
	return 0;
}

static void do_precision(void *ctx, enum pl_precision p)
{
	((struct table *)ctx)->k.precision = p;
}

static void do_adds(void *ctx, bool adds)
{
	((struct table *)ctx)->k.fresh = !adds;
}

static void do_vary(void *ctx, const struct pl_vary *v)
{
	((struct table *)ctx)->vary = *v;
}

static void do_act(void *ctx, enum pl_act act, size_t n, const float *x, float *y)
{
	plk_act(with(ctx, 0), act, n, x, y);
}

static void do_act_back(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			const float *dy, float *dx)
{
	plk_act_back(with(ctx, 0), act, n, x, y, dy, dx);
}

static size_t do_conv_work(void *, const struct pl_conv *)
{
	return 0;
}

static void do_conv(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		    const float *bias, enum pl_act act, float *y, float *)
{
	plk_conv(with(ctx, plk_conv_scratch(KIND(ctx), d)), d, x, w, bias, act, y);
}

static void do_conv_back(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			 enum pl_act act, const float *y, float *dy, float *dx, float *dw,
			 float *db, float *)
{
	const struct plk *k = with(ctx, plk_conv_scratch(KIND(ctx), d));

	plk_conv_dy(k, d, act, y, dy, db);
	plk_conv_dw(k, d, x, dy, dw);
	if (dx)
		plk_conv_dx(k, d, w, dy, dx);
}

static void do_pool(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	plk_pool(with(ctx, 0), d, x, y, at);
}

static void do_pool_back(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
			 float *dx)
{
	plk_pool_back(with(ctx, 0), d, at, dy, dx);
}

static void do_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			 const float *beta, float eps, float momentum, bool eval, float *running,
			 float *save, float *y)
{
	plk_batchnorm(with(ctx, plk_batchnorm_scratch(KIND(ctx), n, c, s)), n, c, s, x, gamma, beta,
		      eps, momentum, eval, running, save, y);
}

static void do_batchnorm_back(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			      const float *save, const float *dy, float *dx, float *dgamma,
			      float *dbeta)
{
	plk_batchnorm_back(with(ctx, plk_batchnorm_scratch(KIND(ctx), n, c, s)), n, c, s, x, gamma,
			   save, dy, dx, dgamma, dbeta);
}

static void do_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
			 const float *beta, float eps, float *save, float *y)
{
	plk_layernorm(with(ctx, 0), n, c, x, gamma, beta, eps, save, y);
}

static void do_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
			      const float *save, const float *dy, float *dx, float *dgamma,
			      float *dbeta)
{
	plk_layernorm_back(with(ctx, plk_rows_scratch(KIND(ctx), n, c)), n, c, x, gamma, save, dy,
			   dx, dgamma, dbeta);
}

static void do_embed(void *ctx, int n, int c, const int32_t *id, const float *table,
		     const float *position, int t, float *y)
{
	plk_embed(with(ctx, 0), n, c, id, table, position, t, y);
}

static void do_embed_back(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			  float *dtable, float *dposition)
{
	plk_embed_back(with(ctx, plk_embed_scratch(KIND(ctx), n, c)), n, c, id, t, dy, dtable,
		       dposition);
}

static void do_dropout(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	plk_dropout(with(ctx, 0), n, p, &((struct table *)ctx)->vary, salt, x, y);
}

static void do_add(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	plk_add(with(ctx, 0), n, a, b, y);
}

static void do_softmax_xent(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
			    float *dx, struct pl_loss_sum *sum)
{
	plk_softmax_xent(with(ctx, plk_rows_scratch(KIND(ctx), n, c)), n, c, x, y, scale, dx, sum);
}

static void do_squared(void *ctx, int n, int c, const float *x, const float *y, float scale,
		       float *dx, struct pl_loss_sum *sum)
{
	plk_squared(with(ctx, plk_rows_scratch(KIND(ctx), n, c)), n, c, x, y, scale, dx, sum);
}

static void do_hinge(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		     float *dx, struct pl_loss_sum *sum)
{
	plk_hinge(with(ctx, plk_rows_scratch(KIND(ctx), n, c)), n, c, x, y, scale, dx, sum);
}

static void do_sgd(void *ctx, size_t first, size_t n, float momentum, const struct pl_decay *decay,
		   bool nesterov, const float *g, float *v, float *w)
{
	plk_sgd(with(ctx, 0), first, n, &((struct table *)ctx)->vary, momentum, decay, nesterov, g,
		v, w, NULL);
}

static void do_adam(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		    const struct pl_decay *decay, bool decoupled, const float *g, float *m,
		    float *v, float *w)
{
	plk_adam(with(ctx, 0), first, n, &((struct table *)ctx)->vary, b1, b2, eps, decay,
		 decoupled, g, m, v, w, NULL);
}

static void do_clip(void *ctx, size_t n, double limit, float *x)
{
	plk_clip(with(ctx, plk_sum_scratch(KIND(ctx))), n, limit, x);
}

static double do_sum_squares(void *ctx, size_t n, const float *x)
{
	double sum = 0;

	plk_sum_squares(with(ctx, plk_sum_scratch(KIND(ctx))), n, x, &sum);
	return sum;
}

static void do_scale(void *ctx, size_t n, float f, float *x)
{
	plk_scale(with(ctx, 0), n, f, x);
}

extern "C" struct pl_backend emu_table(void)
{
	struct pl_backend b;

	memset(&b, 0, sizeof(b));
	b.name = "kernels";
	b.sync = do_sync;
	b.precision = do_precision;
	b.adds = do_adds;
	b.vary = do_vary;
	b.act = do_act;
	b.act_back = do_act_back;
	b.conv_work = do_conv_work;
	b.conv = do_conv;
	b.conv_back = do_conv_back;
	b.pool = do_pool;
	b.pool_back = do_pool_back;
	b.batchnorm = do_batchnorm;
	b.batchnorm_back = do_batchnorm_back;
	b.layernorm = do_layernorm;
	b.layernorm_back = do_layernorm_back;
	b.embed = do_embed;
	b.embed_back = do_embed_back;
	b.dropout = do_dropout;
	b.add = do_add;
	b.softmax_xent = do_softmax_xent;
	b.squared = do_squared;
	b.hinge = do_hinge;
	b.sgd = do_sgd;
	b.adam = do_adam;
	b.clip = do_clip;
	b.sum_squares = do_sum_squares;
	b.scale = do_scale;
	return b;
}
