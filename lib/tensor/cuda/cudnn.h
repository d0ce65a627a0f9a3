/*
 * cudnn.h - convolution by NVIDIA's cuDNN 9, which is loaded at run time: its library, a handle for
 * a stream, and the algorithm for each shape. Only one thread at a time.
 */
#ifndef PL_CUDA_CUDNN_H
#define PL_CUDA_CUDNN_H

#include "tensor/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pl_cudnn_pass {		  /* operands, result: shapes as in the table of backend.h */
		     PL_CUDNN_Y,  /* x, w: y */
		     PL_CUDNN_DX, /* w, dy: dx */
		     PL_CUDNN_DW, /* x, dy: dw */
		     PL_CUDNN_PASSES
};

struct pl_cudnn_shape { /* without padding, because it is compared as bytes */
	struct pl_conv d;
	int pass;
	int half; /* all three are bfloat16, else float32 */
	int tf32; /* float32 may be rounded to tf32 */
};

struct pl_cudnn;
struct pl_cudnn_plan;

/* `file`: as for dlopen(). PL_EABSENT: the library is missing, of another version, or refuses the
 * device, which must be current. The library stays loaded. */
int pl_cudnn_open(const char *file, void *stream, struct pl_cudnn **out,
		  struct pl_err *err) PL_MUST;
void pl_cudnn_close(struct pl_cudnn *c); /* NULL is allowed */
/* "9.19.0" */
void pl_cudnn_version(const struct pl_cudnn *c, char *text, size_t size);

/* The algorithm for a shape: determined once for each shape and kept, so that the same shape gives
 * the same bits. Valid until *c is closed. NULL: cuDNN cannot be used. */
struct pl_cudnn_plan *pl_cudnn_find(struct pl_cudnn *c, const struct pl_cudnn_shape *s);
size_t pl_cudnn_work(const struct pl_cudnn_plan *p); /* bytes of scratch memory that it needs */
void pl_cudnn_give_up(struct pl_cudnn_plan *p);	     /* from now on the shape has no plan */
bool pl_cudnn_untried(struct pl_cudnn_plan *p);	     /* true only in the first call */

/* Queue the convolution; out is overwritten. a, b, out are aligned to 16 bytes, work to 256. False:
 * cuDNN refused it (and the plan is given up); the caller must compute out by other means. */
bool pl_cudnn_run(struct pl_cudnn *c, struct pl_cudnn_plan *p, const void *a, const void *b,
		  void *out, void *work) PL_MUST;

#ifdef __cplusplus
}
#endif

#endif
