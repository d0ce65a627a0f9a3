/* The kernels with AVX-512: tiles of 8 rows of two vectors of 16. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "tensor/internal.h"

#define VEC_NAME  avx512
#define VEC_W	  16
#define VEC_FN	  __attribute__((target("avx512f,fma")))
#define VEC_FUSED true
#define OP	  static inline VEC_FN __attribute__((always_inline))

typedef float VF __attribute__((vector_size(64)));
typedef uint32_t VI __attribute__((vector_size(64)));

OP VF vset(float f)
{
	return (VF)_mm512_set1_ps(f);
}

OP VF vload(const float *p)
{
	return (VF)_mm512_loadu_ps(p);
}

OP void vstore(float *p, VF v)
{
	_mm512_storeu_ps(p, (__m512)v);
}

OP VF vload_n(const float *p, size_t n)
{
	return (VF)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

OP void vstore_n(float *p, size_t n, VF v)
{
	_mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}

OP VF vfma(VF a, VF b, VF c)
{
	return (VF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

OP VF vsqrt(VF v)
{
	return (VF)_mm512_sqrt_ps((__m512)v);
}

#define GEMM_MR	     8
#define GEMM_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

#include "tensor/vec_kernel.h"
#else
typedef int pl_no_avx512;
#endif
