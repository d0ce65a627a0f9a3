/* The kernels with AVX-512: tiles of 8 rows of two vectors of 16. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "tensor/internal.h"

#define VEC_NAME	     avx512
#define VEC_W		     16
#define VEC_FN		     __attribute__((target("avx512f,fma")))
#define VEC_FUSED	     true
#define VEC_FMA(a, b, c)     _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define VEC_SQRT(v)	     _mm512_sqrt_ps((__m512)(v))
#define FIRST(n)	     ((__mmask16)((1u << (n)) - 1))
#define VEC_LOAD_N(p, n)     _mm512_maskz_loadu_ps(FIRST(n), p)
#define VEC_STORE_N(p, n, v) _mm512_mask_storeu_ps(p, FIRST(n), (__m512)(v))
#define GEMM_MR		     8
#define GEMM_ROWS(X)	     X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

#include "tensor/vec_kernel.h"
#else
typedef int pl_no_avx512;
#endif
