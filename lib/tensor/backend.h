/*
 * backend.h - the computation of networks: one table of kernels, implemented for CPU and CUDA.
 *
 * All tensors are dense, row-major, in memory of the backend. Kernels cannot fail, because
 * sizes are checked when the network is built. Shapes are in the comments; N is the product of all
 * leading dimensions. The same input gives the same bits with any number of threads, because each
 * output element is summed in one fixed order (another type of processor may use another order).
 *
 * Gradients of parameters (dw, db, dgamma, dbeta, dtable, dposition) are added to the values in
 * memory (but see adds()); all other outputs are overwritten. Inputs and outputs do not overlap,
 * with these exceptions: y may be x in act, dropout and add, and dx may be dy in act_back, x in the
 * losses. The caller has checked that class numbers and ids are in range.
 *
 * Activations and their gradients (x, y, pre, dy, dx, qkv, dqkv) have the type that was chosen when
 * the context was opened. Their `float *` may then point to another type, and only the backend
 * reads it. Parameters, their gradients, the optimiser's state, statistics (save, running),
 * targets and all sums are float32 in any case, and so are the matrices of gemm().
 *
 * Where the backend is a device (`device`), calls return before they are done. Later calls of the
 * same context run after them; get() and sync() wait for all. A failure of a device is seen late:
 * the first one is kept and sync() returns it. All results after it are invalid.
 */
#ifndef PL_BACKEND_H
#define PL_BACKEND_H

#include "core/core.h"

/* gelu in its tanh form, as in GPT-2. */
enum pl_act { PL_ACT_NONE, PL_ACT_RELU, PL_ACT_GELU, PL_ACT_TANH, PL_ACT_SIGMOID, PL_ACT_COUNT_ };

/* The type of the operands of products. Others keep their stored type; sums are float32. */
enum pl_precision { PL_FP32, PL_BF16, PL_TF32, PL_PRECISION_COUNT_ };

/* The type in which activations and their gradients are stored; bfloat16 needs `half`. */
enum pl_store { PL_STORE_FP32, PL_STORE_BF16 };

struct pl_backend_opts {
	int threads;	/* of the host's processors; 0: 1 */
	int device;	/* number of the device; below 0: local_rank modulo the number of devices */
	int local_rank; /* number of this process among those of the job on this host */
	enum pl_store store;
};

/* Arguments that change from step to step while the calls stay the same, see vary(). */
struct pl_vary {
	uint64_t key; /* of dropout */
	float lr;     /* of sgd and adam */
	int64_t t;    /* of adam: the number of the step, from 1 */
};

/* The result of a loss, in memory of the backend. */
struct pl_loss_sum {
	double loss;  /* mean over the rows */
	int64_t hits; /* rows whose class has the (first) largest value; 0 for squared */
};

struct pl_device_trace; /* device_trace.h: the operations of a device and their times */

struct pl_conv { /* of N images (C, H, W), K filters (C, R, S), to (K, P, Q); pad: zeros around */
	int n, c, h, w, k, r, s, stride, pad, p, q;
};
struct pl_pool2d { /* N x C planes (H, W) to (P, Q); windows r x r */
	int n, c, h, w, r, stride, pad, p, q;
	bool max; /* else the mean over the window's valid elements */
};
/* Weight decay of a slab: it applies to the ranges [cut[0], cut[1]), [cut[2], cut[3]) and so on.
 * The n cuts ascend and are in memory of the host. cut NULL: it applies to the whole slab. */
struct pl_decay {
	float rate;
	const size_t *cut;
	uint32_t n;
};
struct pl_attn { /* causal self-attention: B sequences of T, C = heads * size */
	int b, t, c, heads;
};

struct pl_backend {
	const char *name; /* "cpu" */
	bool device;	  /* memory of its own; calls are queued */
	bool half;	  /* PL_STORE_BF16 is supported */
	/* The backend owns its threads. PL_EABSENT: no such device, or the store is missing. */
	int (*open)(const struct pl_backend_opts *o, void **ctx, struct pl_err *err);
	void (*close)(void *ctx);
	/* A thread that calls either of them (free: also of NULL) uses the context's device from
	 * then on. One that has not opened the context does so before it computes. */
	void *(*alloc)(void *ctx, size_t bytes); /* 64-byte aligned, zeroed; NULL: no memory */
	void (*free)(void *ctx, void *p);
	/* Free and total bytes of the device; NULL: use the memory of the host. */
	void (*room)(void *ctx, size_t *free, size_t *total);
	/* Copies. The caller may reuse `host` when put or get returns; get waits for the data. */
	void (*put)(void *ctx, void *dst, const void *host, size_t bytes);
	void (*get)(void *ctx, void *host, const void *src, size_t bytes);
	void (*copy)(void *ctx, void *dst, const void *src, size_t bytes);
	void (*zero)(void *ctx, void *p, size_t bytes);
	int (*sync)(void *ctx, struct pl_err *err); /* waits; PL_EIO: the first failure */

	/*
	 * Calls with the same `id` (not 0) promise that all calls up to graph(ctx, 0) have the same
	 * order and arguments as before, so a device may launch them as one. Between the two calls,
	 * free, room, put, get, sync, vary, weights and sum_squares are not allowed. NULL on CPUs.
	 */
	void (*graph)(void *ctx, uint64_t id);
	/* Sets the arguments that vary, for the next calls. */
	void (*vary)(void *ctx, const struct pl_vary *v);
	/* Declares a slab of n floats as parameters, or reports a change by others than sgd and
	 * adam, which update the rounded copy of a device. n 0: forget the slab. NULL on CPUs. */
	void (*weights)(void *ctx, const float *slab, size_t n);

	/*
	 * A second stream, for communication while the first stream computes. All of them, and pin,
	 * are NULL on CPUs. comm_stream: the handle of the device (cudaStream_t). fork: later work
	 * in the second stream waits for all earlier work in the first; join: the reverse.
	 * copy_async: a copy in the second stream, within the device or to or from memory of the
	 * host (without pin() it may wait). idle: 1 the second stream is empty, 0 not yet,
	 * negative: a failure (PL_EIO). event_record: an event after all current work in the second
	 * stream; numbers of events ascend. event_passed: 1 all work before the event is done, 0
	 * not yet, negative: a failure. sum_async: d = a + b, or a if b is NULL, for n float32 (d
	 * may be a or b), in a third stream, which waits for no other; returns the event after it.
	 * One extra thread may call comm_stream, copy_async, idle, event_record, event_passed and
	 * sum_async and may use the handle; both threads may call alloc and free. All other calls
	 * are made by one thread at a time.
	 */
	void *(*comm_stream)(void *ctx);
	void (*fork)(void *ctx);
	void (*join)(void *ctx);
	void (*copy_async)(void *ctx, void *dst, const void *src, size_t bytes);
	int (*idle)(void *ctx, struct pl_err *err);
	uint64_t (*event_record)(void *ctx);
	int (*event_passed)(void *ctx, uint64_t mark, struct pl_err *err);
	uint64_t (*sum_async)(void *ctx, size_t n, const float *a, const float *b, float *d);
	/* Memory of the host that the device copies itself (false: no longer). It may fail. */
	void (*pin)(void *ctx, void *host, size_t bytes, bool on);
	const struct pl_device_trace *trace; /* NULL: none */
	/* Logs which libraries it found or missed, after a network is built. NULL: nothing. */
	void (*remarks)(void *ctx, const struct pl_log *log);

	/*
	 * The precision of products (gemm, dense, conv, attn and their backward passes) in later
	 * calls; float32 at first. PL_BF16: each operand is rounded to bfloat16 (8 significant
	 * bits, ties to even) right before it is multiplied, and products are summed in float32;
	 * subnormal numbers may count as 0. PL_TF32: operands have at least 11 significant bits
	 * (CPUs: all 24). Other operations (bias, activation, softmax, sums of dy) use the numbers
	 * as they are. Numbers stored as bfloat16 are multiplied as bfloat16.
	 */
	void (*precision)(void *ctx, enum pl_precision p);
	/*
	 * For gradients of parameters in later calls of dense_back, layernorm_back and
	 * layernorm_back_add: true (at first) adds them to the values in memory, false overwrites
	 * these; meanwhile no other gradients are computed. NULL: they are always added.
	 */
	void (*adds)(void *ctx, bool adds);
	/* C (m, n) = op(A) (m, k) op(B) (k, n) + beta C */
	void (*gemm)(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		     const float *b, int ldb, float beta, float *c, int ldc);
	/* Convert n floats of a batch (x) to the type of activations (y), if it is another. */
	void (*load)(void *ctx, size_t n, const float *x, float *y);
	/* y (N, K) = act(x (N, C) w^T (K, C) + bias (K)); bias NULL: none. pre (N, K): the input of
	 * the activation, if backward needs it (gelu), else NULL. */
	void (*dense)(void *ctx, int n, int c, int k, const float *x, const float *w,
		      const float *bias, enum pl_act act, float *pre, float *y);
	/* dw += , db += (NULL: no bias), dx = (NULL: not wanted). With an activation, dy is
	 * overwritten; gelu uses pre, the others use y. from (N, C), if dx is wanted: x is
	 * gelu(from), and dx becomes the gradient of `from`; NULL: dx is the gradient of x. */
	void (*dense_back)(void *ctx, int n, int c, int k, const float *x, const float *w,
			   enum pl_act act, const float *pre, const float *y, float *dy,
			   const float *from, float *dx, float *dw, float *db);
	void (*act)(void *ctx, enum pl_act act, size_t n, const float *x, float *y);
	void (*act_back)(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			 const float *dy, float *dx);
	/* y = act(conv(x, w) + bias), bias NULL: none; work: conv_work() floats. act is none, relu,
	 * tanh or sigmoid, whose backward passes use y. dx NULL: not wanted; db NULL: no bias. */
	size_t (*conv_work)(void *ctx, const struct pl_conv *d);
	void (*conv)(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		     const float *bias, enum pl_act act, float *y, float *work);
	void (*conv_back)(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			  enum pl_act act, const float *y, float *dy, float *dx, float *dw,
			  float *db, float *work);
	/* at (N, C, P, Q): the place of the maximum in the plane (the first of equals), for the
	 * backward pass; NULL: not wanted, or the mean */
	void (*pool)(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at);
	void (*pool_back)(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
			  float *dx);
	/* (N, C, S): over N and S. save: mean (C), 1/std (C), and 2C floats for the parts of these
	 * that float32 cannot hold. running NULL: not kept; else mean (C) and variance (C,
	 * unbiased), with r += momentum (new - r), which eval uses. The backward pass is that of
	 * training. */
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
	/* add() and layernorm() in one kernel, sum = a + b (may be a or b); layernorm_back() and
	 * add() in one kernel, dx = gradient + more (dx may be dy). NULL: call both. */
	void (*add_layernorm)(void *ctx, int n, int c, const float *a, const float *b, float *sum,
			      const float *gamma, const float *beta, float eps, float *save,
			      float *y);
	void (*layernorm_back_add)(void *ctx, int n, int c, const float *x, const float *gamma,
				   const float *save, const float *dy, const float *more, float *dx,
				   float *dgamma, float *dbeta);
	/* y (N, C) = table[id]; with `position` (T, C) added, n = B T */
	void (*embed)(void *ctx, int n, int c, const int32_t *id, const float *table,
		      const float *position, int t, float *y);
	void (*embed_back)(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			   float *dtable, float *dposition);
	/* qkv (B, T, 3C), the heads of q, then of k, then of v, to y (B, T, C); scores times
	 * 1/sqrt(size); save: attn_save() floats for the backward pass */
	size_t (*attn_save)(void *ctx, const struct pl_attn *d);
	void (*attn)(void *ctx, const struct pl_attn *d, const float *qkv, float *y, float *save);
	void (*attn_back)(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
			  const float *save, const float *dy, float *dqkv);
	/* mask from the counter-based generator: with key = pl_drop_key(vary's key, salt),
	 * hash(key, i) decides whether element i is kept and divided by 1 - p; backward: also */
	void (*dropout)(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y);
	void (*add)(void *ctx, size_t n, const float *a, const float *b, float *y);
	/* Losses are means over N (squared, hinge: and C, as nn.MSELoss, nn.MultiMarginLoss); *sum
	 * is overwritten; dx (NULL: not wanted) is their gradient times scale, and may be x. */
	void (*softmax_xent)(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
			     float *dx, struct pl_loss_sum *sum);
	void (*squared)(void *ctx, int n, int c, const float *x, const float *y, float scale,
			float *dx, struct pl_loss_sum *sum);
	void (*hinge)(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		      float *dx, struct pl_loss_sum *sum); /* multiclass, margin 1 */
	/* Optimisers on n floats of slabs from `first` on, with vary's lr and t, as in torch.optim.
	 * sgd: v (momentum) may be NULL if momentum is 0. adam: decoupled is AdamW. */
	void (*sgd)(void *ctx, size_t first, size_t n, float momentum, const struct pl_decay *decay,
		    bool nesterov, const float *g, float *v, float *w);
	void (*adam)(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		     const struct pl_decay *decay, bool decoupled, const float *g, float *m,
		     float *v, float *w);
	/* x times limit / (norm of x + 1e-6) if that is below 1, as torch's clip_grad_norm_ */
	void (*clip)(void *ctx, size_t n, double limit, float *x);
	double (*sum_squares)(void *ctx, size_t n, const float *x); /* waits */
	void (*scale)(void *ctx, size_t n, float f, float *x);	    /* of float32 */
};

/* The end of the range that begins at `at`, within [at, end), and has one rate of decay: *rate. */
static inline size_t pl_decay_piece(const struct pl_decay *d, size_t at, size_t end, float *rate)
{
	uint32_t i = 0;

	*rate = d->rate;
	if (!d->cut)
		return end;
	while (i < d->n && d->cut[i] <= at)
		i++;
	*rate = i % 2 ? d->rate : 0;
	return i < d->n && d->cut[i] < end ? d->cut[i] : end;
}

extern const struct pl_backend pl_backend_cpu;

#endif
