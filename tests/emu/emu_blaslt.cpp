/*
 * emu_blaslt.cpp - products as cuBLASLt defines them: D = op(A) op(B) + beta C in columns, then the
 * epilogue; sums in double, so that a result is the nearest float32 there is.
 */
#include "emu_blaslt.h"

#include <stdlib.h>

struct emu_lt {
	int open;
};
struct emu_matmul {
	cublasComputeType_t compute;
	cublasOperation_t ta, tb;
	cublasLtEpilogue_t epilogue;
	void *bias, *aux;
	cudaDataType_t bias_type;
	int64_t aux_ld;
};
struct emu_layout {
	cudaDataType_t type;
	uint64_t rows, cols;
	int64_t ld;
};
struct emu_preference {
	size_t work;
	uint32_t schemes, align[4];
};

bool emu_no_epilogues, emu_no_products, emu_idle_sums, emu_refuses;
uint64_t emu_epilogues;

const char *cublasLtGetStatusName(cublasStatus_t rc)
{
	return rc == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
						    : "CUBLAS_STATUS_OTHER";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	*h = new emu_lt();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	delete h;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
					cudaDataType_t scale)
{
	if (scale != CUDA_R_32F)
		return CUBLAS_STATUS_INVALID_VALUE;
	*d = new emu_matmul();
	(*d)->compute = compute;
	(*d)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	delete d;
	return CUBLAS_STATUS_SUCCESS;
}

/* An attribute's size must be its type's. */
template <typename T> static cublasStatus_t take(T *to, const void *v, size_t bytes)
{
	if (bytes != sizeof(*to))
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(to, v, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
					      cublasLtMatmulDescAttributes_t what, const void *v,
					      size_t bytes)
{
	switch (what) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		return take(&d->ta, v, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB:
		return take(&d->tb, v, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		return take(&d->epilogue, v, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		return take(&d->bias, v, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
		return take(&d->bias_type, v, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
		return take(&d->aux, v, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
		return take(&d->aux_ld, v, bytes);
	}
	return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type,
					  uint64_t rows, uint64_t cols, int64_t ld)
{
	if (ld < (int64_t)rows)
		return CUBLAS_STATUS_INVALID_VALUE;
	*l = new emu_layout{ type, rows, cols, ld };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	delete l;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = new emu_preference{ 0, 7, { 256, 256, 256, 256 } };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	delete p;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
						    cublasLtMatmulPreferenceAttributes_t what,
						    const void *v, size_t bytes)
{
	if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		return take(&p->work, v, bytes);
	if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
		return take(&p->schemes, v, bytes);
	return take(&p->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], v, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t o,
					      cublasLtMatmulPreference_t p, int want,
					      cublasLtMatmulHeuristicResult_t *r, int *found)
{
	bool epilogue = d->epilogue != CUBLASLT_EPILOGUE_DEFAULT;

	(void)h;
	*found = 0;
	if (want < 1 || a->type != b->type || c->type != o->type || (p->schemes & 1) ||
	    emu_no_products || (epilogue && emu_no_epilogues) || (epilogue && !d->bias && !d->aux))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (d->aux && (d->aux_ld % 8 || d->aux_ld < (int64_t)o->rows))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	/* what one epilogue needs is nothing to another */
	if ((d->epilogue & 128) ? !d->aux : d->aux != NULL)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (d->epilogue == CUBLASLT_EPILOGUE_DGELU && d->bias)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	memset(r, 0, sizeof(*r));
	memcpy(r->algo.align, p->align, sizeof(p->align));
	/* as they are at the choice, whatever they will be */
	r->algo.align[4] = (uint32_t)(((uintptr_t)d->bias | 256) & -((uintptr_t)d->bias | 256));
	r->algo.align[5] = (uint32_t)(((uintptr_t)d->aux | 256) & -((uintptr_t)d->aux | 256));
	r->wavesCount = emu_idle_sums && d->epilogue == CUBLASLT_EPILOGUE_BGRADB ? 0.2f : 0.9f;
	*found = 1;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ----------------------------------------------------------------------------------
 */

static double number(const void *p, cudaDataType_t type, size_t i)
{
	return type == CUDA_R_32F ? (double)((const float *)p)[i]
				  : (double)__bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

static void put(void *p, cudaDataType_t type, size_t i, double v)
{
	if (type == CUDA_R_32F)
		((float *)p)[i] = (float)v;
	else
		((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)v);
}

static double stored(cudaDataType_t type, double v)
{
	return type == CUDA_R_32F ? (double)(float)v
				  : (double)__bfloat162float(__float2bfloat16_rn((float)v));
}

/* of gelu's tanh form */
static double slope(double x)
{
	double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));

	return 0.5 * (1 + t) +
	       0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

struct work {
	struct emu_matmul d;
	struct emu_layout la, lb, lo;
	const void *a, *b;
	void *o;
	double beta;
	uint64_t m, n, k;
};

static double operand(const void *p, const struct emu_layout *l, bool t, uint64_t row, uint64_t col)
{
	return number(p, l->type, t ? row * (uint64_t)l->ld + col : col * (uint64_t)l->ld + row);
}

static void run(const struct work *w)
{
	const struct emu_matmul *d = &w->d;

	for (uint64_t j = 0; j < w->n; j++) {
		double column = 0;

		for (uint64_t i = 0; i < w->m; i++) {
			size_t at = j * (uint64_t)w->lo.ld + i;
			double sum = w->beta != 0 ? w->beta * number(w->o, w->lo.type, at) : 0;

			for (uint64_t l = 0; l < w->k; l++)
				sum += operand(w->a, &w->la, d->ta, i, l) *
				       operand(w->b, &w->lb, d->tb, l, j);
			if (d->bias && (d->epilogue & CUBLASLT_EPILOGUE_BIAS))
				sum += number(d->bias, d->bias_type, i);
			if (d->epilogue & 32) {
				double x = stored(w->lo.type, sum);

				put(d->aux, w->lo.type, j * (uint64_t)d->aux_ld + i, sum);
				sum = 0.5 * x *
				      (1 +
				       tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
			}
			if (d->epilogue == CUBLASLT_EPILOGUE_DGELU)
				sum *= slope(
					number(d->aux, w->lo.type, j * (uint64_t)d->aux_ld + i));
			put(w->o, w->lo.type, at, sum);
		}
		for (uint64_t l = 0; l < w->k && d->epilogue == CUBLASLT_EPILOGUE_BGRADB; l++)
			column += operand(w->b, &w->lb, d->tb, l, j);
		if (d->epilogue == CUBLASLT_EPILOGUE_BGRADB)
			put(d->bias, d->bias_type, j, column);
	}
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
			      const void *a, cublasLtMatrixLayout_t la, const void *b,
			      cublasLtMatrixLayout_t lb, const void *beta, const void *c,
			      cublasLtMatrixLayout_t lc, void *o, cublasLtMatrixLayout_t lo,
			      const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
			      cudaStream_t stream)
{
	const void *at[] = { a, b, c, o, d->bias, d->aux };
	struct work w = { *d, *la, *lb, *lo, a, b, o, (double)*(const float *)beta, 0, 0, 0 };
	bool ok = h && *(const float *)alpha == 1 && c == o && lc == lo && work && work_bytes;

	w.m = lo->rows;
	w.n = lo->cols;
	w.k = d->ta ? la->rows : la->cols;
	ok = ok && (d->ta ? la->cols : la->rows) == w.m && (d->tb ? lb->rows : lb->cols) == w.n &&
	     (d->tb ? lb->cols : lb->rows) == w.k;
	for (int i = 0; i < 6; i++) /* what the choice relied on */
		ok = ok && (uintptr_t)at[i] % algo->align[i] == 0;
	/* and what it takes for granted */
	ok = ok && (uintptr_t)d->bias % 16 == 0 && (uintptr_t)d->aux % 16 == 0 &&
	     (uintptr_t)work % 256 == 0 && (!stream || emu_may_launch(stream));
	if (!ok)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (emu_refuses && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	emu_epilogues += d->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
	if (!emu_listed("product %zu %zu %zu %d %d %d %d %g", (size_t)w.m, (size_t)w.n, (size_t)w.k,
			la->type == CUDA_R_32F ? 4 : 2, lo->type == CUDA_R_32F ? 4 : 2,
			d->ta * 2 + d->tb, d->epilogue, w.beta))
		emu_do(stream, [=]() { run(&w); });
	return CUBLAS_STATUS_SUCCESS;
}
