/*
 * Large products by OpenBLAS, for processors whose vector instructions our kernels do not use. (On
 * others ours are as fast, and an OpenBLAS older than the processor uses its slowest code.)
 *
 * The library is loaded when a backend that uses it is opened, not when a program starts, because
 * loading starts threads. Each call computes with one thread. Our threads call it for blocks of C
 * of a fixed size, so results do not depend on the number of threads.
 */
#include "tensor/internal.h"

#include "config.h"

#include <dlfcn.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 }; /* of CBLAS */

#define SIDE	256	/* of a block of C */
#define WORTH	32768.0 /* multiplications */
#define LIBRARY "libopenblas.so.0"

struct pl_blas {
	void *lib;
	void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
		      int lda, const float *b, int ldb, float beta, float *c, int ldc);
};

struct pl_blas *pl_tensor_blas_open(void)
{
	struct pl_blas *b = pl_calloc(1, sizeof(*b));
	void (*threads)(int n) = NULL;

	if (!b)
		return NULL;
	b->lib = !HAVE_OPENBLAS ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!b->lib || !pl_symbol(b->lib, "cblas_sgemm", &b->sgemm) ||
	    !pl_symbol(b->lib, "openblas_set_num_threads", &threads)) {
		pl_tensor_blas_close(b);
		return NULL;
	}
	threads(1);
	return b;
}

void pl_tensor_blas_close(struct pl_blas *b)
{
	if (!b)
		return;
	if (b->lib)
		dlclose(b->lib);
	pl_free(b);
}

struct blocks {
	const struct pl_blas *b;
	const struct pl_gemm *g;
	int columns; /* number of blocks in a row of blocks */
};

static void block(void *arg, int i, struct pl_slot *slot)
{
	const struct blocks *v = arg;
	const struct pl_gemm *g = v->g;
	int i0 = i / v->columns * SIDE, j0 = i % v->columns * SIDE;
	int m = g->m - i0 < SIDE ? g->m - i0 : SIDE, n = g->n - j0 < SIDE ? g->n - j0 : SIDE;

	(void)slot;
	v->b->sgemm(ROW_MAJOR, g->ta ? TRANSPOSED : AS_IT_IS, g->tb ? TRANSPOSED : AS_IT_IS, m, n,
		    g->k, 1, g->a + (g->ta ? (ptrdiff_t)i0 : (ptrdiff_t)i0 * g->lda), g->lda,
		    g->b + (g->tb ? (ptrdiff_t)j0 * g->ldb : (ptrdiff_t)j0), g->ldb, g->beta,
		    g->c + (ptrdiff_t)i0 * g->ldc + j0, g->ldc);
}

bool pl_tensor_blas_gemm(struct pl_cpu *cpu, const struct pl_gemm *g)
{
	struct blocks v = { .b = cpu->blas, .g = g, .columns = (g->n + SIDE - 1) / SIDE };
	double work = (double)g->m * g->n * g->k;

	if (work < WORTH)
		return false;
	pl_tensor_cpu_each(cpu, (g->m + SIDE - 1) / SIDE * v.columns, work, block, &v);
	return true;
}
