/* The kernels with AVX2 and FMA: tiles of 6 rows of two vectors of 8. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "tensor/internal.h"

#define VEC_NAME	 avx2
#define VEC_W		 8
#define VEC_FN		 __attribute__((target("avx2,fma")))
#define VEC_FUSED	 true
#define VEC_FMA(a, b, c) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define VEC_SQRT(v)	 _mm256_sqrt_ps((__m256)(v))
#define GEMM_MR		 6
#define GEMM_ROWS(X)	 X(0) X(1) X(2) X(3) X(4) X(5)

#include "tensor/vec_kernel.h"
#else
typedef int pl_no_avx2;
#endif
