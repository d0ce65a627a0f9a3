/*
 * context.h - a context of the CUDA backend: its streams, recorded calls, its own memory (not that
 * of the network) and its products.
 */
#ifndef PL_CUDA_CONTEXT_H
#define PL_CUDA_CONTEXT_H

#ifdef PL_EMU
#include <emu_blaslt.h>
#include <emu_runtime.h>
#else
#include <cublasLt.h>
#include <cuda_runtime.h>
#endif

#include <pthread.h>

#include "tensor/cuda/kernels.h"

/* ---- recorded calls: graph.cu ---------------------------------------------------------------- */

/*
 * A sequence of calls between two graph(). It runs directly the first time (libraries choose
 * algorithms, scratch memory grows), is recorded the second time, and from the third time on it is
 * launched as recorded. It is cut where one stream waits for the other, so that communication can
 * begin in the middle of it. A part is the sequence between two cuts; NULL: there is no call
 * between them.
 */
enum pl_cuda_mode { PL_CUDA_RUN, PL_CUDA_RECORD, PL_CUDA_LAUNCH };
struct pl_cuda_graph {
	uint64_t id; /* 0: unused */
	uint64_t calls, used;
	cudaGraphExec_t *part;
	size_t n_parts, cap_parts;
	bool ran, ready;
};
#define PL_CUDA_GRAPHS 16

/* ---- products: matmul.cu --------------------------------------------------------------------- */

/* The shape of a product for cuBLASLt, whose columns are contiguous. */
struct pl_cuda_shape { /* without padding, because it is compared and hashed as bytes */
	int32_t m, n, k, lda, ldb, ldd, aux_ld;
	uint32_t epilogue;		   /* cublasLtEpilogue_t, 0: none */
	uint8_t ta, tb, in, out;	   /* in, out: bfloat16, else float32 */
	uint8_t compute;		   /* see matmul.cu */
	uint8_t align_a, align_b, align_d; /* log2 of bytes, 8 at most */
	uint8_t align_bias, align_aux, unused[2];
};
struct pl_cuda_product {
	struct pl_cuda_shape shape;
	bool none;   /* cuBLASLt has no algorithm for it */
	float waves; /* multiprocessors that it uses, as a part of all; 0: unknown */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
};

/* ---- the context ------------------------------------------------------------------------------
 */

#define PL_CUDA_MARKS  64 /* events that a stream can distinguish */
#define PL_CUDA_STAGES 4  /* copies from the host that may be in progress */
#define PL_CUDA_STAGE  ((size_t)4 << 20)

/* A stream for communication, used by several threads. */
struct pl_cuda_queue {
	cudaStream_t stream;
	cudaEvent_t mark[PL_CUDA_MARKS]; /* number n is at place n % PL_CUDA_MARKS */
	uint64_t marks, passed; /* the last one; the last that has passed, with all before it */
	cudaError_t failed;	/* the first failure */
};
struct pl_cuda_stage {
	void *p; /* pinned */
	cudaEvent_t over;
	bool busy;
};

/* The kernels that compute attention, and the reason. */
enum pl_cuda_attn {
	PL_CUDA_ATTN_UNTRIED,
	PL_CUDA_ATTN_WGMMA,
	PL_CUDA_ATTN_MMA, /* chosen by the user */
	PL_CUDA_ATTN_DIFFERS,
	PL_CUDA_ATTN_NO_ROOM
};

/* Words of the environment variable, for finding the cause of a fault. "eager": passes are not
 * recorded; "plain": products are not fused with other operations. */
#define PL_CUDA_ENV "PACELINE_CUDA"

struct pl_cuda {
	struct plk k; /* arguments of launchers: the first stream, scratch memory */
	int device;
	bool eager, plain;
	struct pl_cuda_queue side, sums; /* the second and the third */
	cudaStream_t clear;		 /* new memory is zeroed in it */
	cudaEvent_t forked, joined;
	pthread_mutex_t mark_lock; /* for both */
	struct pl_vary *vary;	   /* on the device */
	struct pl_cuda_stage stage[PL_CUDA_STAGES];
	uint32_t n_staged;

	cudaError_t failed; /* the first failure, and its place */
	char what[160];

	enum pl_cuda_mode mode;
	struct pl_cuda_graph graph[PL_CUDA_GRAPHS], *now; /* now: between two graph() */
	size_t part;					  /* the current part */
	uint64_t calls, n_used, cut_calls; /* a hash of the calls so far; its value at the cut */

	const float *slab; /* of parameters; half is its copy in bfloat16 */
	size_t n_slab;
	void *half;

	cublasLtHandle_t lt;
	void *work;    /* of cuBLASLt */
	void *rounded; /* operands in bfloat16 of float32 activations */
	size_t rounded_bytes;
	struct pl_cuda_product *product; /* open addressing by shape */
	size_t n_products, cap_products;

	uint32_t tried_attn; /* head sizes for which wgmma was compared, bit size / 8: see attend.cu
			      */
	enum pl_cuda_attn attn; /* the result of the last comparison */
	int attn_size;		/* and its size of heads */

	bool asked_cudnn;	/* the library was searched, see convolve.cu */
	struct pl_cudnn *cudnn; /* NULL: not available */
	struct pl_err no_cudnn; /* the reason; no code: no network needed it */
};

/* Note the first failure; `what` names the operation. */
void pl_cuda_note(struct pl_cuda *c, cudaError_t e, const char *what);
/* Must this call be carried out (then pl_cuda_done() notes its end), or is it part of a recorded
 * sequence that is launched? `p`: the place of its result, which distinguishes calls. */
bool pl_cuda_go(struct pl_cuda *c, const void *p);
void pl_cuda_done(struct pl_cuda *c, const char *what);
/* Let *p, of *have bytes, be memory of at least `bytes`; its old contents are lost. False: no
 * memory. pl_cuda_scratch: the same for the scratch memory of kernels, with a note of the
 * failure. */
bool pl_cuda_room(struct pl_cuda *c, void **p, size_t *have, size_t bytes);
bool pl_cuda_scratch(struct pl_cuda *c, size_t bytes);
/* The place of these n parameters in the bfloat16 copy; NULL: they are not in it (as in tests). */
void *pl_cuda_half(const struct pl_cuda *c, const float *w, size_t n);
/* Round up to the places at which scratch memory is divided. */
static inline size_t pl_cuda_place(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

void pl_cuda_record(void *ctx, uint64_t id);
void pl_cuda_cut(struct pl_cuda *c);	       /* launches the calls recorded so far */
void pl_cuda_cut_over(struct pl_cuda *c);      /* and records the next ones */
void pl_cuda_forget_graphs(struct pl_cuda *c); /* their addresses are no longer valid */

int pl_cuda_products_open(struct pl_cuda *c, struct pl_err *err) PL_MUST;
void pl_cuda_products_close(struct pl_cuda *c);
void pl_cuda_gemm(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		  const float *b, int ldb, float beta, float *d, int ldd);
void pl_cuda_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
		   const float *bias, enum pl_act act, float *pre, float *y);
void pl_cuda_dense_back(void *ctx, int n, int c, int k, const float *x, const float *w,
			enum pl_act act, const float *pre, const float *y, float *dy,
			const float *from, float *dx, float *dw, float *db);

/* ---- attention: attend.cu -------------------------------------------------------------------- */

size_t pl_cuda_attn_save(void *ctx, const struct pl_attn *d);
void pl_cuda_attn_remarks(const struct pl_cuda *c, const struct pl_log *log);

/* ---- convolution: convolve.cu ---------------------------------------------------------------- */

size_t pl_cuda_conv_work(void *ctx, const struct pl_conv *d);
void pl_cuda_conv(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		  const float *bias, enum pl_act act, float *y, float *work);
void pl_cuda_conv_back(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		       enum pl_act act, const float *y, float *dy, float *dx, float *dw, float *db,
		       float *work);
void pl_cuda_remarks(void *ctx, const struct pl_log *log);
void pl_cuda_conv_close(struct pl_cuda *c);

extern "C" {
#include "tensor/plugin.h"
}

#endif
