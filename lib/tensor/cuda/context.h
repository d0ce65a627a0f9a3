/*
 * context.h - a context of the CUDA backend: its queues, what it recorded, its memory beside that
 * of the network, its products.
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
 * A sequence of calls between two graph(): it runs as it comes the first time (libraries choose,
 * scratch memory grows), is recorded the second, and from the third on only launched. It is cut
 * where the other queue waits for this one or the other way round, so that communication begins in
 * the middle of it: a part is what lies between two cuts, NULL where nothing does.
 */
enum pl_cuda_mode { PL_CUDA_RUN, PL_CUDA_RECORD, PL_CUDA_LAUNCH };
struct pl_cuda_graph {
	uint64_t id; /* 0: free */
	uint64_t calls, used;
	cudaGraphExec_t *part;
	size_t n_parts, cap_parts;
	bool ran, ready;
};
#define PL_CUDA_GRAPHS 16

/* ---- products: matmul.cu --------------------------------------------------------------------- */

/* What a product is, as cuBLASLt sees it: columns lie together. */
struct pl_cuda_shape { /* no byte of it is padding: it is compared and hashed as it lies */
	int32_t m, n, k, lda, ldb, ldd, aux_ld;
	uint32_t epilogue;		   /* cublasLtEpilogue_t, 0: none */
	uint8_t ta, tb, in, out;	   /* in, out: bfloat16, else float32 */
	uint8_t compute;		   /* see matmul.cu */
	uint8_t align_a, align_b, align_d; /* log2 of bytes, 8 at most */
	uint8_t align_bias, align_aux, unused[2];
};
struct pl_cuda_product {
	struct pl_cuda_shape shape;
	bool none;   /* cuBLASLt has no way to do it */
	float waves; /* of the device's multiprocessors that it keeps busy; 0: not known */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
};

/* ---- the context ------------------------------------------------------------------------------
 */

#define PL_CUDA_MARKS  64 /* in a queue that can be told apart */
#define PL_CUDA_STAGES 4  /* copies from the host that may be under way */
#define PL_CUDA_STAGE  ((size_t)4 << 20)

/* A queue for communication, which several threads put things into. */
struct pl_cuda_queue {
	cudaStream_t stream;
	cudaEvent_t mark[PL_CUDA_MARKS]; /* number n in place n % PL_CUDA_MARKS */
	uint64_t marks, passed;		 /* the last one; that and all before it are passed */
	cudaError_t failed;		 /* what failed first */
};
struct pl_cuda_stage {
	void *p; /* pinned */
	cudaEvent_t over;
	bool busy;
};

/* Who attends, and why. */
enum pl_cuda_attn {
	PL_CUDA_ATTN_UNTRIED,
	PL_CUDA_ATTN_WGMMA,
	PL_CUDA_ATTN_MMA, /* as was asked for */
	PL_CUDA_ATTN_DIFFERS,
	PL_CUDA_ATTN_NO_ROOM
};

/* Words in the environment, to find out what is to blame: "eager": passes are not recorded;
 * "plain": nothing goes along with products. */
#define PL_CUDA_ENV "PACELINE_CUDA"

struct pl_cuda {
	struct plk k; /* what launchers take: the first queue, scratch memory */
	int device;
	bool eager, plain;
	struct pl_cuda_queue side, sums; /* the second and the third */
	cudaStream_t clear;		 /* new memory is zeroed there */
	cudaEvent_t forked, joined;
	pthread_mutex_t mark_lock; /* of both */
	struct pl_vary *vary;	   /* on the device */
	struct pl_cuda_stage stage[PL_CUDA_STAGES];
	uint32_t n_staged;

	cudaError_t failed; /* the first failure, and where */
	char what[160];

	enum pl_cuda_mode mode;
	struct pl_cuda_graph graph[PL_CUDA_GRAPHS], *now; /* now: between two graph() */
	size_t part;					  /* the one at hand */
	uint64_t calls, n_used, cut_calls; /* a number over the calls so far; that at the cut */

	const float *slab; /* of parameters; half is its copy in bfloat16 */
	size_t n_slab;
	void *half;

	cublasLtHandle_t lt;
	void *work;    /* of cuBLASLt */
	void *rounded; /* operands in bfloat16, of float32 activations */
	size_t rounded_bytes;
	struct pl_cuda_product *product; /* open addressing by shape */
	size_t n_products, cap_products;

	uint32_t tried_attn;	/* heads with which wgmma was tried, bit size / 8: see attend.cu; */
	enum pl_cuda_attn attn; /* what came of the last, */
	int attn_size;		/* of such heads */

	bool asked_cudnn;	/* it was looked for, see convolve.cu */
	struct pl_cudnn *cudnn; /* NULL: it is not to be had, */
	struct pl_err no_cudnn; /* for this; no code: nobody wanted it */
};

/* Keeps the first failure; `what` is what was being done. */
void pl_cuda_note(struct pl_cuda *c, cudaError_t e, const char *what);
/* Is this call to be made (then note its end by pl_cuda_done()), or is it part of what is launched
 * as recorded? `p`: where its result goes, to tell calls apart. */
bool pl_cuda_go(struct pl_cuda *c, const void *p);
void pl_cuda_done(struct pl_cuda *c, const char *what);
/* *p, of *have bytes, becomes memory of at least `bytes`, whatever was in it; false: there is none.
 * pl_cuda_scratch: that of kernels, and it is noted. */
bool pl_cuda_room(struct pl_cuda *c, void **p, size_t *have, size_t bytes);
bool pl_cuda_scratch(struct pl_cuda *c, size_t bytes);
/* Where the copy of parameters in bfloat16 has these n; NULL: it does not (tests have such). */
void *pl_cuda_half(const struct pl_cuda *c, const float *w, size_t n);
/* Scratch memory is divided at such places. */
static inline size_t pl_cuda_place(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

void pl_cuda_record(void *ctx, uint64_t id);
void pl_cuda_cut(struct pl_cuda *c);	       /* launches what was recorded so far */
void pl_cuda_cut_over(struct pl_cuda *c);      /* and records what follows */
void pl_cuda_forget_graphs(struct pl_cuda *c); /* they hold addresses that are no longer ours */

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
