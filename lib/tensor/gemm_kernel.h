/*
 * gemm_kernel.h - the innermost loops of products of matrices; a source for each instruction set
 * includes this through vec_kernel.h, with
 *
 *	GEMM_MR		rows of a tile
 *	GEMM_ROWS(X)	X(0) ... X(GEMM_MR - 1)
 *
 * A tile of C, GEMM_MR rows of two vectors, stays in registers. Each step multiplies one element of
 * each row of A, broadcast, with two vectors of B. (The scheme is that of Goto and van de Geijn
 * 2008, but A is not packed: broadcast elements need not be neighbours.)
 */
#define GEMM_NR (2 * VEC_W)

#define GEMM_DECL(i) VF c##i##0 = vzero(), c##i##1 = vzero();
#define GEMM_LOAD(i)                                                                               \
	c##i##0 = vload(c + (i)*ldc);                                                              \
	c##i##1 = vload(c + (i)*ldc + VEC_W);
#define GEMM_STORE(i)                                                                              \
	vstore(c + (i)*ldc, c##i##0);                                                              \
	vstore(c + (i)*ldc + VEC_W, c##i##1);
#define GEMM_POINTER(i) const float *a##i = a[i];
#define GEMM_STEP(i)	a##i += step;
#define GEMM_USE(i, element)                                                                       \
	{                                                                                          \
		VF v = vset(element);                                                              \
		c##i##0 = vfma(v, b0, c##i##0);                                                    \
		c##i##1 = vfma(v, b1, c##i##1);                                                    \
	}
#define GEMM_ROW(i) GEMM_USE(i, a##i[l])
#define GEMM_COL(i) GEMM_USE(i, a[i])

VEC_FN static void gemm_rows(const float *const *a, int inner, int outer, ptrdiff_t step,
			     const float *b, float *c, ptrdiff_t ldc, bool add)
{
	GEMM_ROWS(GEMM_POINTER)
	GEMM_ROWS(GEMM_DECL)

	if (add) {
		GEMM_ROWS(GEMM_LOAD)
	}
	for (int o = 0; o < outer; o++) {
		for (ptrdiff_t l = 0; l < inner; l++, b += GEMM_NR) {
			VF b0 = vload(b), b1 = vload(b + VEC_W);

			GEMM_ROWS(GEMM_ROW)
		}
		GEMM_ROWS(GEMM_STEP)
	}
	GEMM_ROWS(GEMM_STORE)
}

VEC_FN static void gemm_cols(const float *a, ptrdiff_t lda, int k, const float *b, float *c,
			     ptrdiff_t ldc, bool add)
{
	GEMM_ROWS(GEMM_DECL)

	if (add) {
		GEMM_ROWS(GEMM_LOAD)
	}
	for (int l = 0; l < k; l++, a += lda, b += GEMM_NR) {
		VF b0 = vload(b), b1 = vload(b + VEC_W);

		GEMM_ROWS(GEMM_COL)
	}
	GEMM_ROWS(GEMM_STORE)
}

VEC_FN static void gemm_taps(const float *const *a, int k, const ptrdiff_t *at, const float *p0,
			     const float *p1, float *c, ptrdiff_t ldc)
{
	GEMM_ROWS(GEMM_POINTER)
	GEMM_ROWS(GEMM_DECL)

	for (ptrdiff_t l = 0; l < k; l++) {
		VF b0 = vload(p0 + at[l]), b1 = vload(p1 + at[l]);

		GEMM_ROWS(GEMM_ROW)
	}
	GEMM_ROWS(GEMM_STORE)
}
