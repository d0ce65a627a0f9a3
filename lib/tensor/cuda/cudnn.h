/*
 * cudnn.h - convolution by NVIDIA's cuDNN 9, which is found at run time: its library, a handle for
 * a stream, and which of its algorithms a shape is computed with. By one thread at a time.
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

struct pl_cudnn_shape { /* no byte of it is padding: it is compared as it lies */
	struct pl_conv d;
	int pass;
	int half; /* all three are bfloat16, else float32 */
	int tf32; /* float32 may be rounded to that */
};

struct pl_cudnn;
struct pl_cudnn_plan;

/* `file`: as dlopen() takes it. PL_EABSENT: it is not there, of another version, or refuses the
 * device, which is current. The library stays loaded. */
int pl_cudnn_open(const char *file, void *stream, struct pl_cudnn **out,
		  struct pl_err *err) PL_MUST;
void pl_cudnn_close(struct pl_cudnn *c); /* NULL: nothing */
/* "9.19.0" */
void pl_cudnn_version(const struct pl_cudnn *c, char *text, size_t size);

/* How it is computed: asked once a shape and kept, so that the same shape gives the same bits.
 * Lives as long as *c. NULL: not by cuDNN. */
struct pl_cudnn_plan *pl_cudnn_find(struct pl_cudnn *c, const struct pl_cudnn_shape *s);
size_t pl_cudnn_work(const struct pl_cudnn_plan *p); /* bytes of scratch memory that it needs */
void pl_cudnn_give_up(struct pl_cudnn_plan *p);	     /* this shape is NULL from now on */
bool pl_cudnn_untried(struct pl_cudnn_plan *p);	     /* true when it is asked first */

/* Queues it; out is overwritten. All of a, b, out are aligned to 16 bytes, work to 256. False: it
 * was refused (and given up), out is to be computed otherwise. */
bool pl_cudnn_run(struct pl_cudnn *c, struct pl_cudnn_plan *p, const void *a, const void *b,
		  void *out, void *work) PL_MUST;

#ifdef __cplusplus
}
#endif

#endif
