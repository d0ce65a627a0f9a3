/*
 * backend.h - where numbers are computed: one table of kernels, CPU now, CUDA behind the same.
 *
 * All tensors are float32, dense, row-major, in memory of the backend. Kernels cannot fail: sizes
 * were checked when the network was built. Shapes stand in the comments; N is the product of all
 * leading dimensions. Results are bit for bit the same for the same input, whatever the number of
 * threads: each output element is summed in one fixed order (another kind of processor may take
 * another).
 *
 * Gradients of parameters (dw, db, dgamma, dbeta, dtable, dposition) are added to what is there;
 * all else that is written is overwritten. Inputs and outputs do not overlap, but y may be x in
 * act, dropout and add, and dx may be dy in act_back. Class numbers and ids are in range: the
 * caller looked.
 */
#ifndef PL_BACKEND_H
#define PL_BACKEND_H

#include "core/core.h"

/* gelu in its tanh form, as in GPT-2. */
enum pl_act { PL_ACT_NONE, PL_ACT_RELU, PL_ACT_GELU, PL_ACT_TANH, PL_ACT_SIGMOID, PL_ACT_COUNT_ };

/* Of what products multiply. All else is float32: sums, what they are stored as, element by
 * element. */
enum pl_precision { PL_FP32, PL_BF16, PL_PRECISION_COUNT_ };

struct pl_conv { /* of N images (C, H, W), K filters (C, R, S), to (K, P, Q); pad: zeros around */
	int n, c, h, w, k, r, s, stride, pad, p, q;
};
struct pl_pool2d { /* N x C planes (H, W) to (P, Q); windows r x r */
	int n, c, h, w, r, stride, pad, p, q;
	bool max; /* else the mean over the window's valid elements */
};
struct pl_attn { /* causal self-attention: B sequences of T, C = heads * size */
	int b, t, c, heads;
};

struct pl_backend {
	const char *name; /* "cpu" */
	/* threads: 1 unless told; the backend owns them. */
	int (*open)(int threads, void **ctx, struct pl_err *err);
	void (*close)(void *ctx);
	void *(*alloc)(void *ctx, size_t bytes); /* 64-byte aligned, zeroed; NULL */
	void (*free)(void *ctx, void *p);
	void (*put)(void *ctx, void *dst, const void *host, size_t bytes);
	void (*get)(void *ctx, void *host, const void *src, size_t bytes);
	void (*sync)(void *ctx);

	/*
	 * Of the products in the calls that follow: gemm, dense, conv, attn and their ways back;
	 * float32 at first. PL_BF16: each operand is rounded to bfloat16 (8 significant bits, ties
	 * to even) right before it is multiplied, and products are summed in float32; subnormal
	 * numbers may count as 0. What is no product (bias, activation, softmax, sums of dy) takes
	 * the numbers as they are.
	 */
	void (*precision)(void *ctx, enum pl_precision p);
	/* C (m, n) = op(A) (m, k) op(B) (k, n) + beta C */
	void (*gemm)(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		     const float *b, int ldb, float beta, float *c, int ldc);
	/* y (N, K) = act(x (N, C) w^T (K, C) + bias (K)); bias NULL: none. pre (N, K): what went
	 * into the activation, where backward needs it (gelu), else NULL. */
	void (*dense)(void *ctx, int n, int c, int k, const float *x, const float *w,
		      const float *bias, enum pl_act act, float *pre, float *y);
	/* dw += , db += (NULL: no bias), dx = (NULL: not wanted); dy is overwritten where an
	 * activation is undone: gelu from pre, the others from y. */
	void (*dense_back)(void *ctx, int n, int c, int k, const float *x, const float *w,
			   enum pl_act act, const float *pre, const float *y, float *dy, float *dx,
			   float *dw, float *db);
	void (*act)(void *ctx, enum pl_act act, size_t n, const float *x, float *y);
	void (*act_back)(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			 const float *dy, float *dx);
	/* y = act(conv(x, w) + bias), bias NULL: none; work: conv_work() floats. act is none or
	 * relu, tanh, sigmoid, which backward undoes from y. dx NULL: not wanted; db NULL: no bias.
	 */
	size_t (*conv_work)(void *ctx, const struct pl_conv *d);
	void (*conv)(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		     const float *bias, enum pl_act act, float *y, float *work);
	void (*conv_back)(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			  enum pl_act act, const float *y, float *dy, float *dx, float *dw,
			  float *db, float *work);
	/* at (N, C, P, Q): the place of the maximum in the plane, the first of equals, for the way
	 * back (NULL: not wanted, or the mean) */
	void (*pool)(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at);
	void (*pool_back)(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
			  float *dx);
	/* (N, C, S): over N and S. save: mean (C), 1/std (C). running NULL: not kept; else mean (C)
	 * and variance (C, unbiased), moved by momentum: r += momentum (new - r). eval: uses
	 * running. The way back is that of training. */
	void (*batchnorm)(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			  const float *beta, float eps, float momentum, bool eval, float *running,
			  float *save, float *y);
	void (*batchnorm_back)(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			       const float *save, const float *dy, float *dx, float *dgamma,
			       float *dbeta);
	/* over the last dimension C of (N, C); save: mean (N), 1/std (N) */
	void (*layernorm)(void *ctx, int n, int c, const float *x, const float *gamma,
			  const float *beta, float eps, float *save, float *y);
	void (*layernorm_back)(void *ctx, int n, int c, const float *x, const float *gamma,
			       const float *save, const float *dy, float *dx, float *dgamma,
			       float *dbeta);
	/* y (N, C) = table[id]; with `position` (T, C) added, n = B T */
	void (*embed)(void *ctx, int n, int c, const int32_t *id, const float *table,
		      const float *position, int t, float *y);
	void (*embed_back)(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			   float *dtable, float *dposition);
	/* qkv (B, T, 3C), the heads of q, then of k, then of v, to y (B, T, C); scores times
	 * 1/sqrt(size); save: attn_save() floats for the way back */
	size_t (*attn_save)(void *ctx, const struct pl_attn *d);
	void (*attn)(void *ctx, const struct pl_attn *d, const float *qkv, float *y, float *save);
	void (*attn_back)(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
			  const float *save, const float *dy, float *dqkv);
	/* mask from the counter-based generator: element i of call `key` is kept by hash(key, i),
	 * and then divided by 1 - p; the way back is the same call on dy */
	void (*dropout)(void *ctx, size_t n, float p, uint64_t key, const float *x, float *y);
	void (*add)(void *ctx, size_t n, const float *a, const float *b, float *y);
	/* Losses are means over N; *loss on the host; dx (NULL: not wanted) is their gradient times
	 * scale. hits: how many rows had their class on top (the first of equals), or NULL. squared
	 * and hinge are means over C, too (nn.MSELoss, nn.MultiMarginLoss). */
	void (*softmax_xent)(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
			     float *dx, double *loss, int64_t *hits);
	void (*squared)(void *ctx, int n, int c, const float *x, const float *y, float scale,
			float *dx, double *loss);
	void (*hinge)(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		      float *dx, double *loss, int64_t *hits); /* multiclass, margin 1 */
	/* Optimisers on slabs; which ranges decay is up to the caller. sgd: v (the momentum) may be
	 * NULL where momentum is 0. adam: t from 1; decoupled: AdamW. All as in torch.optim. */
	void (*sgd)(void *ctx, size_t n, float lr, float momentum, float decay, bool nesterov,
		    const float *g, float *v, float *w);
	void (*adam)(void *ctx, size_t n, float lr, float b1, float b2, float eps, float decay,
		     bool decoupled, int64_t t, const float *g, float *m, float *v, float *w);
	double (*sum_squares)(void *ctx, size_t n, const float *x);
	void (*scale)(void *ctx, size_t n, float f, float *x);
};
extern const struct pl_backend pl_backend_cpu;
/* Slow, plain, one loop a formula: what the tests hold the others against. */
extern const struct pl_backend pl_backend_plain;

#endif
