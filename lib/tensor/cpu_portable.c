/* The kernels in vectors of 4, which every compiler can make of what the processor has. */
#include <math.h>

#include "tensor/internal.h"

#define VEC_NAME portable
#define VEC_W	 4
#define VEC_FN
#define VEC_FUSED false
#define OP	  static inline __attribute__((always_inline))

typedef float VF __attribute__((vector_size(16)));
typedef uint32_t VI __attribute__((vector_size(16)));

OP VF vset(float f)
{
	return (VF){ f, f, f, f };
}

OP VF vload(const float *p)
{
	VF v;

	memcpy(&v, p, sizeof(v));
	return v;
}

OP void vstore(float *p, VF v)
{
	memcpy(p, &v, sizeof(v));
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
	return a * b + c;
}

OP VF vsqrt(VF v)
{
	return (VF){ sqrtf(v[0]), sqrtf(v[1]), sqrtf(v[2]), sqrtf(v[3]) };
}

#define GEMM_MR	     4
#define GEMM_ROWS(X) X(0) X(1) X(2) X(3)

#include "tensor/vec_kernel.h"
