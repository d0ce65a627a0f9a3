/*
 * internal.h - the common parts of the backends, and the parts of the fast one.
 *
 * The fast backend has three layers: vector and matrix kernels, built once for each instruction set
 * from one source (vec_kernel.h, gemm_kernel.h) and chosen when the backend is opened; products of
 * whole matrices (gemm.c); layers (cpu*.c). Work is cut into chunks whose borders do not depend on
 * the number of threads, so sums do not depend on it either.
 */
#ifndef PL_TENSOR_INTERNAL_H
#define PL_TENSOR_INTERNAL_H

#include "core/core.h"
#include "core/pool.h"
#include "tensor/backend.h"
#include "tensor/drop.h"

/* ---- memory of the host ---------------------------------------------------------------------- */

#define PL_ALIGN ((size_t)64)

/* 64-byte aligned, zeroed; NULL. The word before it has the pointer for pl_free(). */
static inline void *pl_host_alloc(void *ctx, size_t bytes)
{
	char *base, *p;

	(void)ctx;
	if (bytes > SIZE_MAX - 2 * PL_ALIGN)
		return NULL;
	base = pl_calloc(1, bytes + 2 * PL_ALIGN);
	if (!base)
		return NULL;
	p = base + PL_ALIGN + (PL_ALIGN - (uintptr_t)base % PL_ALIGN) % PL_ALIGN;
	memcpy(p - sizeof(base), &base, sizeof(base));
	return p;
}

static inline void pl_host_free(void *ctx, void *p)
{
	char *base;

	(void)ctx;
	if (!p)
		return;
	memcpy(&base, (char *)p - sizeof(base), sizeof(base));
	pl_free(base);
}

static inline void pl_host_put(void *ctx, void *dst, const void *host, size_t bytes)
{
	(void)ctx;
	memcpy(dst, host, bytes);
}

static inline void pl_host_get(void *ctx, void *host, const void *src, size_t bytes)
{
	(void)ctx;
	memcpy(host, src, bytes);
}

static inline void pl_host_copy(void *ctx, void *dst, const void *src, size_t bytes)
{
	(void)ctx;
	memmove(dst, src, bytes);
}

static inline void pl_host_zero(void *ctx, void *p, size_t bytes)
{
	(void)ctx;
	memset(p, 0, bytes);
}

static inline int pl_host_open(const char *name, const struct pl_backend_opts *o,
			       struct pl_err *err)
{
	if (o->store != PL_STORE_FP32)
		return pl_fail(err, PL_EABSENT,
			       "the backend \"%s\" stores activations as float32 alone", name);
	return 0;
}

static inline int pl_host_sync(void *ctx, struct pl_err *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

/* The members that all backends of the host share. */
#define PL_HOST_MEMBERS                                                                            \
	.alloc = pl_host_alloc, .free = pl_host_free, .put = pl_host_put, .get = pl_host_get,      \
	.copy = pl_host_copy, .zero = pl_host_zero, .sync = pl_host_sync

/* ---- kernels of one instruction set ---------------------------------------------------------- */

#define PL_MR_MAX 8
#define PL_NR_MAX 32

/* A row of outputs of a maximum over windows. The plane is split: each of its rows becomes `stride`
 * rows of every stride-th pixel, `pitch` apart, with -infinity around them. */
struct pl_pool_row {
	int n, r, stride, pad;
	int w, pitch; /* of a row of the plane; of its split rows */
	int rows, at; /* rows of the plane in the window; place of the first one in the plane */
};

struct pl_kernels {
	const char *name; /* "avx512" */
	int mr, nr;	  /* tile of the matrix kernels; nr is 2 vectors */
	/* Tiles C (mr, nr) = or += (add) A B with B packed: k rows of nr. rows: row i of A is at
	 * a[i], `outer` runs, `step` apart, of `inner` elements; k = outer inner. cols: A is
	 * transposed, element (i, l) at a[l lda + i]. */
	void (*rows)(const float *const *a, int inner, int outer, ptrdiff_t step, const float *b,
		     float *c, ptrdiff_t ldc, bool add);
	void (*cols)(const float *a, ptrdiff_t lda, int k, const float *b, float *c, ptrdiff_t ldc,
		     bool add);
	/* The same with B not packed: row l is at b0 + at[l] and b1 + at[l], a vector each. */
	void (*taps)(const float *const *a, int k, const ptrdiff_t *at, const float *b0,
		     const float *b1, float *c, ptrdiff_t ldc);

	void (*round)(size_t n, const float *x, float *y); /* to bfloat16, as floats; y may be x */
	void (*act)(enum pl_act act, size_t n, const float *x, float *y);
	void (*act_back)(enum pl_act act, size_t n, const float *x, const float *y, const float *dy,
			 float *dx);
	/* y = act(y + bias), pre = y + bias (or NULL); bias (n), or one value for all */
	void (*bias)(size_t n, const float *bias, enum pl_act act, float *pre, float *y);
	void (*bias_one)(size_t n, float bias, enum pl_act act, const float *x, float *y);
	void (*add)(size_t n, const float *a, const float *b, float *y);
	void (*scale)(size_t n, float f, float *x);
	/* y = a (x - mean) + b; y = a x + b (z - mean) + c. A rounded constant shifts all elements
	 * equally, and sums over them show that. So a large mean is subtracted first, and b and c
	 * hold the rest that float32 cannot. */
	void (*affine)(size_t n, float a, float mean, float b, const float *x, float *y);
	void (*affine2)(size_t n, float a, double b, float mean, double c, const float *x,
			const float *z, float *y);
	double (*sum)(size_t n, const float *x);
	float (*max)(size_t n, const float *x); /* n > 0 */
	float (*dot)(size_t n, const float *a, const float *b);
	/* sum += sum of x - mean, squares += sum of (x - mean)^2 */
	void (*spread)(size_t n, float mean, const float *x, double *sum, double *squares);
	/* sum += sum of dy; dot += sum of dy (x - mean) */
	void (*centred)(size_t n, float mean, const float *x, const float *dy, double *sum,
			double *dot);
	/* y = exp(f x - shift), the sum of it */
	float (*exp_sum)(size_t n, float f, float shift, const float *x, float *y);
	/* s = p (s - own) f, the gradient of a softmax */
	void (*soft_back)(size_t n, float own, float f, const float *p, float *s);
	void (*norm)(size_t n, float mean, float rstd, const float *x, const float *gamma,
		     const float *beta, float *y);
	/* the backward pass of a row of layernorm; adds to the gradients of its parameters */
	void (*norm_back)(size_t n, float mean, float rstd, const float *x, const float *gamma,
			  const float *dy, float *dx);
	void (*norm_params)(size_t n, float mean, float rstd, const float *x, const float *dy,
			    float *dgamma, float *dbeta);
	/* in: the first row in the window; at (n): place of the maximum in the plane, or NULL */
	void (*pool_row)(const struct pl_pool_row *p, const float *in, float *y, int32_t *at);
	void (*dropout)(size_t n, uint64_t first, uint32_t limit, float f, uint64_t key,
			const float *x, float *y);
	void (*sgd)(size_t n, float lr, float momentum, float decay, bool nesterov, const float *g,
		    float *v, float *w);
	/* rate and fix: lr / (1 - b1^t), 1 / sqrt(1 - b2^t); keep: the factor of decoupled decay */
	void (*adam)(size_t n, float rate, float fix, float b1, float b2, float eps, float decay,
		     float keep, const float *g, float *m, float *v, float *w);
};
extern const struct pl_kernels pl_tensor_kernels_portable;
#if defined(__x86_64__)
extern const struct pl_kernels pl_tensor_kernels_avx2, pl_tensor_kernels_avx512;
#endif
/* The best kernels for this processor, without the `skip` best ones (for tests); NULL: no more. */
const struct pl_kernels *pl_tensor_kernels_pick(int skip);

/* ---- the fast backend ------------------------------------------------------------------------ */

struct pl_slot {      /* the working memory of one thread */
	float *pack;  /* PL_PACK floats for one operand of a product, PL_TILES for the other */
	float *block; /* PL_BLOCK floats */
};
#define PL_PACK	 ((size_t)512 * 512)
#define PL_TILES ((size_t)48 * 512)
#define PL_BLOCK ((size_t)3 * 64 * 256)

/* Sums over all elements are sums of parts, whose number depends on n, not on the threads. */
#define PL_THREADS_MAX 256
#define PL_PARTS       1024
struct pl_part {
	double sum;
	int64_t hits;
};

struct pl_cpu {
	const struct pl_kernels *k;
	bool half; /* operands of products are rounded to bfloat16 */
	struct pl_vary vary;
	int threads;
	struct pl_pool *pool;
	struct pl_queue *queue;
	struct pl_slot *slot; /* of `threads` */
	struct pl_part *part; /* PL_PARTS */
	struct pl_blas *blas; /* NULL: use gemm.c */
};

/* Opens a context with the kernels of one instruction set; blas: OpenBLAS for large products. */
int pl_tensor_cpu_open(const struct pl_kernels *k, bool blas, int threads, void **ctx,
		       struct pl_err *err) PL_MUST;

/*
 * Calls fn(arg, i, slot) for i of 0 .. n - 1 by all threads; each thread has its own `slot`.
 * `work`: number of elements or multiplications, which decides whether threads pay off.
 */
void pl_tensor_cpu_each(struct pl_cpu *cpu, int n, double work,
			void (*fn)(void *arg, int i, struct pl_slot *slot), void *arg);
/* The size of chunk i of pl_cpu_chunks(n); *first is a multiple of PL_CHUNK. */
#define PL_CHUNK ((size_t)16384)
static inline int pl_cpu_chunks(size_t n)
{
	return (int)((n + PL_CHUNK - 1) / PL_CHUNK);
}
static inline size_t pl_cpu_chunk(size_t n, int i, size_t *first)
{
	*first = (size_t)i * PL_CHUNK;
	return pl_min_size(PL_CHUNK, n - *first);
}

/* Sums down the columns: this number of rows is summed in float32, these sums in float64. */
#define PL_ROWS_RUN 128
/* total += run, which is zero afterwards */
static inline void pl_cpu_end_run(int n, float *run, double *total)
{
	for (int i = 0; i < n; i++)
		total[i] += (double)run[i];
	memset(run, 0, (size_t)n * sizeof(*run));
}

/* C (m, n) = op(A) op(B) + beta C, by one thread. */
struct pl_gemm {
	bool ta, tb, half; /* half: of A and B rounded to bfloat16 */
	int m, n, k;
	const float *a;
	int lda;
	const float *b;
	int ldb;
	float beta;
	float *c;
	int ldc;
};
void pl_tensor_gemm_one(const struct pl_kernels *k, struct pl_slot *slot, const struct pl_gemm *g);
void pl_tensor_gemm_all(struct pl_cpu *cpu, const struct pl_gemm *g); /* by all threads */
/* to (k, nr) from (n, k), whose rows are ld apart; zeros where n < nr */
void pl_tensor_pack_transposed(const float *from, ptrdiff_t ld, int k, int n, int nr, float *to);

/* OpenBLAS; NULL: not found. False: the product is too small to pay off. */
struct pl_blas *pl_tensor_blas_open(void);
void pl_tensor_blas_close(struct pl_blas *b);
bool pl_tensor_blas_gemm(struct pl_cpu *cpu, const struct pl_gemm *g);

/* Functions of the table in other files than cpu.c; the types are those of the table. */
#define PL_CPU_MEMBER(name) __typeof__(*((struct pl_backend *)0)->name) pl_tensor_cpu_##name
PL_CPU_MEMBER(conv_work);
PL_CPU_MEMBER(conv);
PL_CPU_MEMBER(conv_back);
PL_CPU_MEMBER(pool);
PL_CPU_MEMBER(pool_back);
PL_CPU_MEMBER(batchnorm);
PL_CPU_MEMBER(batchnorm_back);
PL_CPU_MEMBER(layernorm);
PL_CPU_MEMBER(layernorm_back);
PL_CPU_MEMBER(attn_save);
PL_CPU_MEMBER(attn);
PL_CPU_MEMBER(attn_back);
PL_CPU_MEMBER(softmax_xent);
PL_CPU_MEMBER(squared);
PL_CPU_MEMBER(hinge);

#endif
