/*
 * A libcudnn for tests: the functions that lib/tensor/cuda/cudnn_abi.h lists, by plain loops, on
 * the streams of the emulated device. It is as strict as the real one is where a program could be
 * careless: shapes and types that do not fit together, a descriptor that was not set, a pointer
 * that is not aligned and scratch memory that is too small are refused, and counted as misuse. Its
 * scratch memory is written all over. What should not be chosen is offered first: an algorithm by
 * transforms, one that is not deterministic, one that converts to half precision; their results
 * are no numbers. The first run of an algorithm with a convolution's descriptor loads it: that
 * spoils what is recorded. Operands are rounded where the kind of arithmetic allows it.
 *
 * FAKE_CUDNN in the environment, words: "version=N" (90100); "create=S": no handle, status S;
 * "shape=S": no heuristic, status S; "offer=S": so says each offer; "loose=1": none is
 * deterministic; "run=S": what is to run is refused with status S; "from=N":
 * only from the Nth such call on; "recorded=S": so is what is recorded; "spoil=1":
 * it spoils what is recorded; "work=N": bytes of scratch memory that every algorithm wants.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_device.h"
#include "fake_cudnn.h"
#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/cudnn_abi.h"

#define API __attribute__((visibility("default")))

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum kind { HANDLE = 1, TENSOR, FILTER, CONV };

struct thing { /* all that is created */
	enum kind kind;
	bool set;
	struct emu_stream_head *stream; /* of a handle */
	int type, size[4];
	int pad, stride, math;
	int runs; /* of a handle; of a convolution */
};

static struct fake_cudnn_count count;

API const struct fake_cudnn_count *fake_cudnn_counts(void)
{
	return &count;
}

static long word(const char *key, long otherwise)
{
	const char *all = getenv("FAKE_CUDNN"), *at = all ? strstr(all, key) : NULL;

	return at ? strtol(at + strlen(key), NULL, 10) : otherwise;
}

/* ---- what is created ---- */

static int make(void **out, enum kind kind)
{
	struct thing *t = calloc(1, sizeof(*t));

	if (!t)
		return BAD_PARAM;
	t->kind = kind;
	count.live++;
	*out = t;
	return PL_CUDNN_SUCCESS;
}

static int misuse(void)
{
	count.misuse++;
	return BAD_PARAM;
}

static int drop(void *p, enum kind kind)
{
	struct thing *t = p;

	if (!t || t->kind != kind)
		return misuse();
	count.live--;
	free(t);
	return PL_CUDNN_SUCCESS;
}

API size_t cudnnGetVersion(void);
API size_t cudnnGetVersion(void)
{
	return (size_t)word("version=", 90100);
}

API const char *cudnnGetErrorString(int status);
API const char *cudnnGetErrorString(int status)
{
	return status == BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_SOME_ERROR";
}

API int cudnnCreate(void **handle);
API int cudnnCreate(void **handle)
{
	long status = word("create=", PL_CUDNN_SUCCESS);

	return status ? (int)status : make(handle, HANDLE);
}

#define PAIR(name, kind)                                                                           \
	API int cudnnDestroy##name(void *d);                                                       \
	API int cudnnDestroy##name(void *d)                                                        \
	{                                                                                          \
		return drop(d, kind);                                                              \
	}
#define DESCRIPTOR(name, kind)                                                                     \
	API int cudnnCreate##name(void **d);                                                       \
	API int cudnnCreate##name(void **d)                                                        \
	{                                                                                          \
		return make(d, kind);                                                              \
	}                                                                                          \
	PAIR(name, kind)
PAIR(, HANDLE)
DESCRIPTOR(TensorDescriptor, TENSOR)
DESCRIPTOR(FilterDescriptor, FILTER)
DESCRIPTOR(ConvolutionDescriptor, CONV)

API int cudnnSetStream(void *handle, void *stream);
API int cudnnSetStream(void *handle, void *stream)
{
	struct thing *t = handle;

	if (t->kind != HANDLE || !stream)
		return misuse();
	t->stream = stream;
	t->set = true;
	return PL_CUDNN_SUCCESS;
}

static int set_sizes(void *d, enum kind kind, int format, int type, const int *size)
{
	struct thing *t = d;

	if (t->kind != kind || format != PL_CUDNN_NCHW ||
	    (type != PL_CUDNN_FLOAT && type != PL_CUDNN_BFLOAT16))
		return misuse();
	for (int i = 0; i < 4; i++)
		if ((t->size[i] = size[i]) < 1)
			return misuse();
	t->type = type;
	t->set = true;
	return PL_CUDNN_SUCCESS;
}

API int cudnnSetTensor4dDescriptor(void *d, int format, int type, int n, int c, int h, int w);
API int cudnnSetTensor4dDescriptor(void *d, int format, int type, int n, int c, int h, int w)
{
	return set_sizes(d, TENSOR, format, type, (int[]){ n, c, h, w });
}

API int cudnnSetFilter4dDescriptor(void *d, int type, int format, int k, int c, int h, int w);
API int cudnnSetFilter4dDescriptor(void *d, int type, int format, int k, int c, int h, int w)
{
	return set_sizes(d, FILTER, format, type, (int[]){ k, c, h, w });
}

API int cudnnSetConvolution2dDescriptor(void *d, int pad_h, int pad_w, int stride_h, int stride_w,
					int dilation_h, int dilation_w, int mode, int type);
API int cudnnSetConvolution2dDescriptor(void *d, int pad_h, int pad_w, int stride_h, int stride_w,
					int dilation_h, int dilation_w, int mode, int type)
{
	struct thing *t = d;

	if (t->kind != CONV || pad_h < 0 || pad_h != pad_w || stride_h < 1 ||
	    stride_h != stride_w || dilation_h != 1 || dilation_w != 1 ||
	    mode != PL_CUDNN_CROSS_CORRELATION || type != PL_CUDNN_FLOAT)
		return misuse();
	t->pad = pad_h;
	t->stride = stride_h;
	t->set = true;
	return PL_CUDNN_SUCCESS;
}

API int cudnnSetConvolutionMathType(void *d, int math);
API int cudnnSetConvolutionMathType(void *d, int math)
{
	struct thing *t = d;

	if (t->kind != CONV || math < 0 || math > PL_CUDNN_FMA_MATH)
		return misuse();
	t->math = math;
	return PL_CUDNN_SUCCESS;
}

/* ---- convolutions ---- */

struct work { /* of a call, as the stream does it */
	struct pl_conv d;
	enum pl_cudnn_pass pass;
	int type, math;
	bool wrong; /* an algorithm that should not have been chosen */
	const void *a, *b;
	void *out;
	unsigned char *scratch;
	size_t bytes;
};

/* What the descriptors say, if they fit together. */
static int describe(enum pl_cudnn_pass pass, struct thing *const *side, const struct thing *conv,
		    struct work *v)
{
	const struct thing *x = side[pass == PL_CUDNN_DX ? 2 : 0], *w = side[0], *y = side[1];
	struct pl_conv *d = &v->d;

	w = pass == PL_CUDNN_Y ? side[1] : pass == PL_CUDNN_DX ? side[0] : side[2];
	y = pass == PL_CUDNN_Y ? side[2] : side[1];
	if (!x->set || !w->set || !y->set || !conv->set || x->kind != TENSOR || w->kind != FILTER ||
	    y->kind != TENSOR || conv->kind != CONV)
		return misuse();
	*d = (struct pl_conv){ .n = x->size[0], .c = x->size[1], .h = x->size[2], .w = x->size[3] };
	d->k = w->size[0], d->r = w->size[2], d->s = w->size[3];
	d->p = y->size[2], d->q = y->size[3];
	d->pad = conv->pad, d->stride = conv->stride;
	if (w->size[1] != d->c || y->size[0] != d->n || y->size[1] != d->k ||
	    d->p != (d->h + 2 * d->pad - d->r) / d->stride + 1 ||
	    d->q != (d->w + 2 * d->pad - d->s) / d->stride + 1 || w->type != x->type ||
	    y->type != x->type)
		return misuse();
	v->pass = pass;
	v->type = x->type;
	v->math = conv->math;
	return PL_CUDNN_SUCCESS;
}

static size_t space(const struct pl_conv *d)
{
	return (size_t)word("work=", (long)d->n * d->c * d->h * 4 + 100);
}

static int offer_all(enum pl_cudnn_pass pass, struct thing *const *side, const struct thing *conv,
		     int want, int *found, struct pl_cudnn_offer *offer)
{
	const struct pl_cudnn_offer all[] = {
		{ .algo = 5, .determinism = 1, .math = conv->math }, /* by transforms */
		{ .algo = pass == PL_CUDNN_Y ? 4 : 0, .determinism = 0, .math = conv->math },
		{ .algo = 1, .determinism = 0, .math = PL_CUDNN_DEFAULT_MATH },
		{ .algo = 1, .status = NOT_SUPPORTED, .determinism = 1, .math = conv->math },
		{ .algo = 1, .determinism = 1, .math = PL_CUDNN_CONVERT_MATH },
		{ .algo = 1, .determinism = 1, .math = conv->math },
		{ .algo = 1, .determinism = 1, .math = PL_CUDNN_DEFAULT_MATH },
	};
	struct work v;
	long status = word("shape=", PL_CUDNN_SUCCESS);
	int rc = describe(pass, side, conv, &v);

	count.asked++;
	if (rc || status)
		return rc ? rc : (int)status;
	for (*found = 0; *found < want && *found < (int)(sizeof(all) / sizeof(*all)); ++*found) {
		offer[*found] = all[*found];
		if (word("offer=", 0))
			offer[*found].status = (int)word("offer=", 0);
		if (word("loose=", 0))
			offer[*found].determinism = 0;
		offer[*found].memory = space(&v.d);
	}
	return PL_CUDNN_SUCCESS;
}

static float number(const struct work *v, const void *p, size_t i)
{
	uint32_t bits;
	float f;

	if (v->type == PL_CUDNN_BFLOAT16) {
		bits = (uint32_t)((const uint16_t *)p)[i] << 16;
		memcpy(&f, &bits, sizeof(f));
		return f;
	}
	f = ((const float *)p)[i];
	if (v->math == PL_CUDNN_FMA_MATH)
		return f;
	memcpy(&bits, &f, sizeof(bits)); /* tf32: 11 significant bits */
	bits = (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000u;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void store(const struct work *v, size_t i, double sum)
{
	float f = v->wrong ? NAN : (float)sum;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	if (v->type == PL_CUDNN_FLOAT)
		((float *)v->out)[i] = f;
	else if (isnan(f))
		((uint16_t *)v->out)[i] = 0x7fc0;
	else
		((uint16_t *)v->out)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* y[k][p][q] = sum x[c][p stride + r - pad][q stride + s - pad] w[k][c][r][s]; each way goes over
 * all triples and adds to one of the three. */
static void convolve(void *arg)
{
	const struct work *v = arg;
	const struct pl_conv *d = &v->d;
	size_t nx = (size_t)d->n * (size_t)(d->c * d->h * d->w);
	size_t nw = (size_t)d->k * (size_t)(d->c * d->r * d->s);
	size_t ny = (size_t)d->n * (size_t)(d->k * d->p * d->q), n;
	double *sum;

	memset(v->scratch, 0xff, v->bytes);
	n = v->pass == PL_CUDNN_Y ? ny : v->pass == PL_CUDNN_DX ? nx : nw;
	sum = calloc(n, sizeof(*sum));
	for (size_t i = 0; i < ny * (size_t)(d->c * d->r * d->s) && sum; i++) {
		int s = (int)(i % (size_t)d->s), r = (int)(i / (size_t)d->s % (size_t)d->r);
		int c = (int)(i / (size_t)(d->s * d->r) % (size_t)d->c);
		size_t y = i / (size_t)(d->s * d->r * d->c);
		int q = (int)(y % (size_t)d->q), p = (int)(y / (size_t)d->q % (size_t)d->p);
		int k = (int)(y / (size_t)(d->q * d->p) % (size_t)d->k);
		size_t image = y / (size_t)(d->q * d->p * d->k);
		int row = p * d->stride + r - d->pad, column = q * d->stride + s - d->pad;
		size_t x = ((image * (size_t)d->c + (size_t)c) * (size_t)d->h + (size_t)row) *
				   (size_t)d->w +
			   (size_t)column;
		size_t w = (size_t)((k * d->c + c) * d->r + r) * (size_t)d->s + (size_t)s;
		size_t at[2] = { v->pass == PL_CUDNN_DX ? w : x, v->pass == PL_CUDNN_Y ? w : y };

		if (row < 0 || row >= d->h || column < 0 || column >= d->w)
			continue;
		sum[v->pass == PL_CUDNN_Y    ? y
		    : v->pass == PL_CUDNN_DX ? x
					     : w] +=
			(double)number(v, v->a, at[0]) * (double)number(v, v->b, at[1]);
	}
	for (size_t i = 0; i < n && sum; i++)
		store(v, i, sum[i]);
	free(sum);
}

static int run(struct thing *handle, struct thing *const *side, struct thing *conv, int algo,
	       float alpha, float beta, struct work *v)
{
	long status = word("run=", PL_CUDNN_SUCCESS);
	int rc = describe(v->pass, side, conv, v);
	uintptr_t all = (uintptr_t)v->a | (uintptr_t)v->b | (uintptr_t)v->out;

	count.run[v->pass]++;
	if (rc)
		return rc;
	if (!handle->set || all % 16 || v->bytes < space(&v->d) || !v->scratch ||
	    (uintptr_t)v->scratch % 256 || alpha < 1 || alpha > 1 || beta < 0 || beta > 0)
		return misuse();
	if (++handle->runs >= word("from=", 0) && status)
		return (int)status;
	if (handle->stream->is_recorded(handle->stream, word("spoil=", 0) || !conv->runs++) &&
	    word("recorded=", 0))
		return (int)word("recorded=", 0);
	v->wrong = algo != 1 || v->math == PL_CUDNN_CONVERT_MATH;
	count.exact += v->type == PL_CUDNN_FLOAT && v->math == PL_CUDNN_FMA_MATH;
	handle->stream->put(handle->stream, convolve, v, sizeof(*v));
	return PL_CUDNN_SUCCESS;
}

#define PASS(which, first, second, third)                                                          \
	API pl_cudnn_heuristic_fn first;                                                           \
	API int first(void *handle, void *a, void *b, void *conv, void *out, int want, int *found, \
		      struct pl_cudnn_offer *offer)                                                \
	{                                                                                          \
		struct thing *side[3] = { a, b, out };                                             \
                                                                                                   \
		(void)handle;                                                                      \
		return offer_all(which, side, conv, want, found, offer);                           \
	}                                                                                          \
	API pl_cudnn_space_fn second;                                                              \
	API int second(void *handle, void *a, void *b, void *conv, void *out, int algo,            \
		       size_t *bytes)                                                              \
	{                                                                                          \
		struct thing *side[3] = { a, b, out };                                             \
		struct work v;                                                                     \
		int rc = describe(which, side, conv, &v);                                          \
                                                                                                   \
		(void)handle, (void)algo;                                                          \
		*bytes = rc ? 0 : space(&v.d);                                                     \
		return rc;                                                                         \
	}                                                                                          \
	API pl_cudnn_run_fn third;                                                                 \
	API int third(void *handle, const void *alpha, void *da, const void *a, void *db,          \
		      const void *b, void *conv, int algo, void *scratch, size_t bytes,            \
		      const void *beta, void *dout, void *out)                                     \
	{                                                                                          \
		struct thing *side[3] = { da, db, dout };                                          \
		struct work v = { .pass = which, .a = a, .b = b, .out = out };                     \
                                                                                                   \
		v.scratch = scratch;                                                               \
		v.bytes = bytes;                                                                   \
		return run(handle, side, conv, algo, *(const float *)alpha, *(const float *)beta,  \
			   &v);                                                                    \
	}
PASS(PL_CUDNN_Y, cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionForwardWorkspaceSize,
     cudnnConvolutionForward)
PASS(PL_CUDNN_DX, cudnnGetConvolutionBackwardDataAlgorithm_v7,
     cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnConvolutionBackwardData)
PASS(PL_CUDNN_DW, cudnnGetConvolutionBackwardFilterAlgorithm_v7,
     cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnnConvolutionBackwardFilter)
