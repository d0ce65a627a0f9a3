/*
 * Sums of float32 vectors. Elements are added one by one in the order of the arguments, so any
 * width of the machine's vectors gives the same bits. In the caches AVX2 is some 3 times as fast as
 * the baseline instruction set; beyond them memory limits both.
 */
#include "comm/internal.h"

#define BLOCK 1024 /* floats that are summed over all sources before they are written: 4 KiB */

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
#define LANES (sizeof(vec) / sizeof(float))

#define SUM_BODY(d, a, b, n)                                                                       \
	do {                                                                                       \
		size_t i_ = 0;                                                                     \
		for (; i_ + 2 * LANES <= (n); i_ += 2 * LANES) {                                   \
			vec x_ = *(const vec *)((a) + i_) + *(const vec *)((b) + i_);              \
			vec y_ = *(const vec *)((a) + i_ + LANES) +                                \
				 *(const vec *)((b) + i_ + LANES);                                 \
			*(vec *)((d) + i_) = x_;                                                   \
			*(vec *)((d) + i_ + LANES) = y_;                                           \
		}                                                                                  \
		for (; i_ < (n); i_++)                                                             \
			(d)[i_] = (a)[i_] + (b)[i_];                                               \
	} while (0)

static void sum_base(float *d, const float *a, const float *b, size_t n)
{
	SUM_BODY(d, a, b, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void sum_wide(float *d, const float *a, const float *b,
						     size_t n)
{
	SUM_BODY(d, a, b, n);
}
#else
#define sum_wide sum_base
#endif

void pl_comm_sum(float *d, const float *a, const float *b, size_t n)
{
	if (pl_has_avx2())
		sum_wide(d, a, b, n);
	else
		sum_base(d, a, b, n);
}

void pl_comm_sum_many(float *const *d, int n_dst, const float *const *src, int n_src, size_t n)
{
	float acc[BLOCK] = { 0 };

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = pl_min_size(BLOCK, n - i);
		const float *last = src[0] + i;

		for (int k = 1; k < n_src; k++) {
			/* two ranks with one destination need no temporary block */
			float *to = n_dst == 1 && k == n_src - 1 ? d[0] + i : acc;

			pl_comm_sum(to, last, src[k] + i, m);
			last = to;
		}
		for (int k = 0; k < n_dst; k++)
			if (d[k] + i != last)
				memcpy(d[k] + i, last, m * sizeof(float));
	}
}
