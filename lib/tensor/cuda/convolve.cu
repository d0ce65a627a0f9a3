/*
 * convolve.cu - convolution of the backend: by cuDNN if it is installed and computes the shape as
 * backend.h demands, else by the kernels of conv.cu.
 *
 * The operands and the result of cuDNN have one type. So it is not used if float32 is multiplied as
 * bfloat16, and not for dw of bfloat16 images, because it would round the sums. Its y has no bias
 * and activation, and is rounded to bfloat16 once more; one further pass adds these. Its dw is
 * added to the stored dw by a further pass.
 *
 * The library is loaded when the first network with a convolution is built, so that other networks
 * need not wait for it. Without it, or if it refuses a shape, our kernels compute it; only
 * pl_cuda_remarks() reports this. Scratch memory for both is allocated before anything is queued,
 * so that it does not grow while a pass is recorded.
 */
#include <stdlib.h>

#include "tensor/cuda/context.h"
#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/device.cuh"

#define ENV "PACELINE_CUDNN"
#ifdef PL_EMU /* the real library would use the emulated device as a real one */
#define LIBRARY NULL
#else
#define LIBRARY "libcudnn.so.9"
#endif

static struct pl_cudnn *library(struct pl_cuda *c)
{
	const char *named = getenv(ENV), *file = named && *named ? named : LIBRARY;

	if (c->asked_cudnn)
		return c->cudnn;
	c->asked_cudnn = true;
	if (!file || !strcmp(file, "none"))
		return NULL;
	cudaSetDevice(c->device);
	if (pl_cudnn_open(file, c->k.stream, &c->cudnn, &c->no_cudnn) < 0)
		cudaGetLastError(); /* library() reported it */
	return c->cudnn;
}

void pl_cuda_remarks(void *ctx, const struct pl_log *log)
{
	const struct pl_cuda *c = (struct pl_cuda *)ctx;
	char version[48];

	pl_cuda_attn_remarks(c, log);
	if (!c->asked_cudnn)
		return;
	if (c->no_cudnn.code) {
		pl_say(log, PL_LOG_WARN,
		       "convolutions are computed without cuDNN, which may take longer: %s (" ENV
		       "=FILE names another, " ENV "=none does without)",
		       c->no_cudnn.msg);
	} else if (c->cudnn) {
		pl_cudnn_version(c->cudnn, version, sizeof(version));
		pl_say(log, PL_LOG_NOTE, "convolutions are computed by cuDNN %s", version);
	} else {
		pl_say(log, PL_LOG_NOTE, "convolutions are computed without cuDNN");
	}
}

/* ---- plans ------------------------------------------------------------------------------------
 */

static size_t filters(const struct pl_conv *d)
{
	return (size_t)d->k * (size_t)(d->c * d->r * d->s);
}

/* p, q: the two tensors that are images */
static struct pl_cudnn_plan *plan(struct pl_cuda *c, enum pl_cudnn_pass pass,
				  const struct pl_conv *d, const void *p, const void *q)
{
	struct pl_cudnn *lib = library(c);
	struct pl_cudnn_shape s = {};

	if (!lib || !pl_aligned(0, p, q) ||
	    (c->k.bf16 ? pass == PL_CUDNN_DW : c->k.precision == PL_BF16))
		return NULL;
	s.d = *d;
	s.pass = pass;
	s.half = c->k.bf16;
	s.tf32 = c->k.precision == PL_TF32 && !s.half;
	return pl_cudnn_find(lib, &s);
}

/* The memory of cuDNN comes first, then that of filters, as operand or result. */
static char *behind(const struct pl_cuda *c, const struct pl_cudnn_plan *p)
{
	return (char *)c->k.scratch + pl_cuda_place(pl_cudnn_work(p));
}

static size_t need(const struct pl_cudnn_plan *p, const struct pl_conv *d)
{
	return p ? pl_cuda_place(pl_cudnn_work(p)) + filters(d) * sizeof(float) : 0;
}

/* Memory for our kernels and for these plans, or, if it is too much, without these. */
static bool room(struct pl_cuda *c, const struct pl_conv *d, struct pl_cudnn_plan **one,
		 struct pl_cudnn_plan **two)
{
	size_t own = plk_conv_scratch(&c->k, d), most = own;

	for (struct pl_cudnn_plan *p : { *one, *two })
		most = need(p, d) > most ? need(p, d) : most;
	if (most > own && !pl_cuda_room(c, &c->k.scratch, &c->k.scratch_bytes, most)) {
		for (struct pl_cudnn_plan **p : { one, two }) {
			if (*p)
				pl_cudnn_give_up(*p);
			*p = NULL;
		}
	}
	return pl_cuda_scratch(c, own);
}

/* The filters in the type in which they are multiplied, aligned. */
static const void *operand(struct pl_cuda *c, const struct pl_conv *d, const float *w, void *to)
{
	const void *as = c->k.bf16 ? pl_cuda_half(c, w, filters(d)) : w;

	if (as && pl_aligned(0, as))
		return as;
	plk_load(&c->k, filters(d), w, to);
	return to;
}

/*
 * Can the plan be recorded? If a library does something during a recording that makes it invalid
 * (such as waiting for the device), all calls of the pass are lost, and the network does not make
 * them again. So a plan is first recorded alone, and this recording is thrown away. That happens
 * after its first use, because the first call may load kernels and allocate memory, which makes a
 * recording invalid, but later calls would not.
 */
static bool recordable(struct pl_cuda *c, struct pl_cudnn_plan *p, const void *a, const void *b,
		       void *out)
{
	cudaGraph_t graph = NULL;
	bool good =
		c->mode == PL_CUDA_RUN &&
		cudaStreamBeginCapture(c->k.stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;

	if (good) {
		good = pl_cudnn_run(c->cudnn, p, a, b, out, c->k.scratch);
		good &= cudaStreamEndCapture(c->k.stream, &graph) == cudaSuccess;
		if (graph)
			cudaGraphDestroy(graph);
	}
	if (!good) {
		cudaGetLastError();
		pl_cudnn_give_up(p);
	}
	return good;
}

/* False: compute `out` by another function, which overwrites it. */
static bool run(struct pl_cuda *c, struct pl_cudnn_plan *p, const void *a, const void *b, void *out)
{
	bool untried = pl_cudnn_untried(p);

	return pl_cudnn_run(c->cudnn, p, a, b, out, c->k.scratch) &&
	       (!untried || recordable(c, p, a, b, out));
}

/* ---- the table's ------------------------------------------------------------------------------
 */

size_t pl_cuda_conv_work(void *ctx, const struct pl_conv *d)
{
	(void)d;
	library((struct pl_cuda *)ctx); /* while a network is built */
	return 0;			/* scratch memory is used */
}

void pl_cuda_conv(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		  const float *bias, enum pl_act act, float *y, float *work)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct pl_cudnn_plan *p, *none = NULL;

	(void)work;
	if (!pl_cuda_go(c, y))
		return;
	p = plan(c, PL_CUDNN_Y, d, x, y);
	if (!room(c, d, &p, &none))
		return;
	if (p && run(c, p, x, operand(c, d, w, behind(c, p)), y))
		plk_bias_planes(&c->k, d->n, d->k, d->p * d->q, bias, act, y);
	else
		plk_conv(&c->k, d, x, w, bias, act, y);
	pl_cuda_done(c, "conv");
}

void pl_cuda_conv_back(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		       enum pl_act act, const float *y, float *dy, float *dx, float *dw, float *db,
		       float *work)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct pl_cudnn_plan *pw, *px = NULL;

	(void)work;
	if (!pl_cuda_go(c, dw))
		return;
	pw = plan(c, PL_CUDNN_DW, d, x, dy);
	if (dx)
		px = plan(c, PL_CUDNN_DX, d, dy, dx);
	if (!room(c, d, &pw, &px))
		return;
	plk_conv_dy(&c->k, d, act, y, dy, db);
	if (pw && run(c, pw, x, dy, behind(c, pw)))
		pl_fold(&c->k, (const float *)behind(c, pw), 1, (int)filters(d), dw, NULL);
	else
		plk_conv_dw(&c->k, d, x, dy, dw);
	if (dx && !(px && run(c, px, operand(c, d, w, behind(c, px)), dy, dx)))
		plk_conv_dx(&c->k, d, w, dy, dx);
	pl_cuda_done(c, "conv_back");
}

void pl_cuda_conv_close(struct pl_cuda *c)
{
	pl_cudnn_close(c->cudnn);
}
