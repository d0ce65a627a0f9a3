/* The kernels with AVX2 and FMA: tiles of 6 rows of two vectors of 8. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "tensor/internal.h"

#define VEC_NAME  avx2
#define VEC_W	  8
#define VEC_FN	  __attribute__((target("avx2,fma")))
#define VEC_FUSED true
#define OP	  static inline VEC_FN __attribute__((always_inline))

typedef float VF __attribute__((vector_size(32)));
typedef uint32_t VI __attribute__((vector_size(32)));

OP VF vset(float f)
{
	return (VF)_mm256_set1_ps(f);
}

OP VF vload(const float *p)
{
	return (VF)_mm256_loadu_ps(p);
}

OP void vstore(float *p, VF v)
{
	_mm256_storeu_ps(p, (__m256)v);
}

OP VF vload_n(const float *p, size_t n)
{
	VF v = { 0 };

	memcpy(&v, p, n * sizeof(*p));
	return v;
}

OP void vstore_n(float *p, size_t n, VF v)
{
	memcpy(p, &v, n * sizeof(*p));
}

OP VF vfma(VF a, VF b, VF c)
{
	return (VF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

OP VF vsqrt(VF v)
{
	return (VF)_mm256_sqrt_ps((__m256)v);
}

#define GEMM_MR	     6
#define GEMM_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)

#include "tensor/vec_kernel.h"
#else
typedef int pl_no_avx2;
#endif
