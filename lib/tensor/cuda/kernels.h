/*
 * kernels.h - the kernels of the CUDA backend: one launcher for each operation of the table in
 * backend.h.
 *
 * A launcher queues work on k->stream and returns; it cannot fail (waiting for the stream reports
 * errors of a launch). Meaning, shapes and order of arguments are those of the table. `void *` are
 * activations and their gradients: bfloat16 if k->bf16, else float32; all others are float32. Every
 * pointer is memory of the device, aligned to its elements. Tensors that are aligned to 16 bytes
 * and have rows of a multiple of 16 bytes are read and written in vectors of 16 bytes. Each element
 * is summed in one order that depends only on the shape and k->sms: results have the same bits on
 * one device, and there are no atomic additions of floats.
 */
#ifndef PL_CUDA_KERNELS_H
#define PL_CUDA_KERNELS_H

#ifndef PL_EMU
#include <cuda_runtime.h>
#endif
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

extern "C" {
#include "tensor/backend.h"
}

struct plk {
	cudaStream_t stream;
	int sms;		     /* multiprocessors of the device */
	bool bf16;		     /* activations are bfloat16 */
	enum pl_precision precision; /* of products on float32 activations: conv, attn */
	bool hopper;		     /* compute capability 9.0, which has wgmma */
	/* 256-byte aligned, at least the size of the operation's plk_*_scratch(). Its contents are
	 * undefined between two calls on the stream. */
	void *scratch;
	size_t scratch_bytes;
	size_t shared; /* bytes of shared memory that a block may have */
	bool fresh;    /* columns, layernorm_back: sums overwrite the old values */
};

/* ---- elements: elements.cu ------------------------------------------------------------------- */

void plk_act(const struct plk *k, enum pl_act act, size_t n, const void *x, void *y);
void plk_act_back(const struct plk *k, enum pl_act act, size_t n, const void *x, const void *y,
		  const void *dy, void *dx);
/* y (N, C) = act(x + bias (C)), pre = x + bias; bias, pre NULL: none. y or pre may be x. */
void plk_bias_act(const struct plk *k, int n, int c, const float *bias, enum pl_act act,
		  const void *x, void *pre, void *y);
/* x (N, C, S) = act(x + bias (C)); bias NULL: none */
void plk_bias_planes(const struct plk *k, int n, int c, int s, const float *bias, enum pl_act act,
		     void *x);
void plk_add(const struct plk *k, size_t n, const void *a, const void *b, void *y);
void plk_dropout(const struct plk *k, size_t n, float p, const struct pl_vary *v, uint64_t salt,
		 const void *x, void *y);
void plk_scale(const struct plk *k, size_t n, float f, float *x);
void plk_zero(const struct plk *k, void *p, size_t bytes);
/* float32 to bfloat16; float32 to the type of activations */
void plk_round(const struct plk *k, size_t n, const float *x, void *y);
/* the same for n rows of c numbers, ldx apart, to rows ldy apart, padded with zeros */
void plk_round_rows(const struct plk *k, int n, int c, const float *x, int ldx, void *y, int ldy);
void plk_load(const struct plk *k, size_t n, const float *x, void *y);

/* ---- sums over rows: columns.cu -------------------------------------------------------------- */

/* For all operations on N rows of C here and in layernorm.cu and loss.cu. */
size_t plk_rows_scratch(const struct plk *k, int n, int c);
/* db (C) += the sums over the rows of dy (N, C) */
void plk_columns(const struct plk *k, int n, int c, const void *dy, float *db);

/* ---- normalisation: layernorm.cu, batchnorm.cu ----------------------------------------------- */

void plk_layernorm(const struct plk *k, int n, int c, const void *x, const float *gamma,
		   const float *beta, float eps, float *save, void *y);
/* The same for x = a + b, which is stored in `sum` (may be a or b). */
void plk_add_layernorm(const struct plk *k, int n, int c, const void *a, const void *b, void *sum,
		       const float *gamma, const float *beta, float eps, float *save, void *y);
void plk_layernorm_back(const struct plk *k, int n, int c, const void *x, const float *gamma,
			const float *save, const void *dy, void *dx, float *dgamma, float *dbeta);
/* The same, with `more` added to dx; dx may be dy. */
void plk_layernorm_back_add(const struct plk *k, int n, int c, const void *x, const float *gamma,
			    const float *save, const void *dy, const void *more, void *dx,
			    float *dgamma, float *dbeta);
size_t plk_batchnorm_scratch(const struct plk *k, int n, int c, int s);
void plk_batchnorm(const struct plk *k, int n, int c, int s, const void *x, const float *gamma,
		   const float *beta, float eps, float momentum, bool eval, float *running,
		   float *save, void *y);
void plk_batchnorm_back(const struct plk *k, int n, int c, int s, const void *x, const float *gamma,
			const float *save, const void *dy, void *dx, float *dgamma, float *dbeta);

/* ---- images: pool.cu, conv*.cu --------------------------------------------------------------- */

void plk_pool(const struct plk *k, const struct pl_pool2d *d, const void *x, void *y, int32_t *at);
void plk_pool_back(const struct plk *k, const struct pl_pool2d *d, const int32_t *at,
		   const void *dy, void *dx);
size_t plk_conv_scratch(const struct plk *k, const struct pl_conv *d);
void plk_conv(const struct plk *k, const struct pl_conv *d, const void *x, const float *w,
	      const float *bias, enum pl_act act, void *y);
/* The parts of the backward pass: dy before the activation, and db += its sums (NULL: no bias); dw
 * +=; dx. */
void plk_conv_dy(const struct plk *k, const struct pl_conv *d, enum pl_act act, const void *y,
		 void *dy, float *db);
void plk_conv_dw(const struct plk *k, const struct pl_conv *d, const void *x, const void *dy,
		 float *dw);
void plk_conv_dx(const struct plk *k, const struct pl_conv *d, const float *w, const void *dy,
		 void *dx);

/* ---- sequences: embed.cu, attn*.cu ----------------------------------------------------------- */

void plk_embed(const struct plk *k, int n, int c, const int32_t *id, const float *table,
	       const float *position, int t, void *y);
size_t plk_embed_scratch(const struct plk *k, int n, int c); /* of the backward pass */
void plk_embed_back(const struct plk *k, int n, int c, const int32_t *id, int t, const void *dy,
		    float *dtable, float *dposition);
/* floats of `save`; bytes of scratch of the two functions below */
size_t plk_attn_save(const struct plk *k, const struct pl_attn *d);
size_t plk_attn_scratch(const struct plk *k, const struct pl_attn *d);
void plk_attn(const struct plk *k, const struct pl_attn *d, const void *qkv, void *y, float *save);
void plk_attn_back(const struct plk *k, const struct pl_attn *d, const void *qkv, const void *y,
		   const float *save, const void *dy, void *dqkv);

/* ---- losses: loss.cu; scratch: plk_rows_scratch() -------------------------------------------- */

void plk_softmax_xent(const struct plk *k, int n, int c, const void *x, const int32_t *y,
		      float scale, void *dx, struct pl_loss_sum *sum);
void plk_squared(const struct plk *k, int n, int c, const void *x, const float *y, float scale,
		 void *dx, struct pl_loss_sum *sum);
void plk_hinge(const struct plk *k, int n, int c, const void *x, const int32_t *y, float scale,
	       void *dx, struct pl_loss_sum *sum);

/* ---- optimisers: optim.cu -------------------------------------------------------------------- */

/* vary: lr and t. half (bfloat16, n from the first on) gets a rounded copy of w; NULL: no copy. */
void plk_sgd(const struct plk *k, size_t first, size_t n, const struct pl_vary *vary,
	     float momentum, const struct pl_decay *decay, bool nesterov, const float *g, float *v,
	     float *w, void *half);
void plk_adam(const struct plk *k, size_t first, size_t n, const struct pl_vary *vary, float b1,
	      float b2, float eps, const struct pl_decay *decay, bool decoupled, const float *g,
	      float *m, float *v, float *w, void *half);
/* of the two functions below; *sum = the sum of squares of x */
size_t plk_sum_scratch(const struct plk *k);
void plk_sum_squares(const struct plk *k, size_t n, const float *x, double *sum);
/* x times limit / (norm + 1e-6) if that is below 1 */
void plk_clip(const struct plk *k, size_t n, double limit, float *x);

#endif
