/* The kernels in vectors of 4, which every compiler maps to the instructions of its processor. */
#include <math.h>

#include "tensor/internal.h"

#define VEC_NAME portable
#define VEC_W	 4
#define VEC_FN
#define VEC_FUSED	 false
#define VEC_FMA(a, b, c) ((a) * (b) + (c))
#define VEC_SQRT(v)	 ((VF){ sqrtf((v)[0]), sqrtf((v)[1]), sqrtf((v)[2]), sqrtf((v)[3]) })
#define GEMM_MR		 4
#define GEMM_ROWS(X)	 X(0) X(1) X(2) X(3)

#include "tensor/vec_kernel.h"
