/*
 * Logarithms of features, four at once: a call of log() for each is a tenth of the time of a query.
 *
 * A value is m 2^k, with m from sqrt(1/2) to sqrt(2), and log m = 2 (s + s^3/3 + s^5/5 ...) with
 * s = (m - 1)/(m + 1). Six terms leave an error of 6e-11. The operations are the same in vectors of
 * any width, so the bits are, too.
 */
#include <math.h>

#include "kernel/feature.h"

#define LEAST 1e-30

#define LANES 4
typedef double vec __attribute__((vector_size(LANES * 8), aligned(8), may_alias));
typedef uint64_t bits __attribute__((vector_size(LANES * 8), aligned(8), may_alias));
typedef float floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline __attribute__((always_inline)) void log_each(const double *v, size_t n, float *x)
{
	const uint64_t one = 0x3ff0000000000000, half = 0x3fe6a09e667f3bcd; /* 1, sqrt(1/2) */
	const uint64_t whole = 0x4330000000000000; /* 2^52, whose last bits are whole numbers */

	for (size_t i = 0; i < n; i += LANES) {
		vec all = *(const vec *)(v + i), m, k, s, q;
		bits small = (bits)(all < LEAST);
		bits b = ((bits)all & ~small) | ((bits)(vec){ LEAST, LEAST, LEAST, LEAST } & small);
		bits power = (b + (one - half)) >> 52;

		m = (vec)(b - (power << 52) + one);
		k = (vec)(power | whole) - (0x1p52 + 1023);
		s = (m - 1) / (m + 1);
		q = s * s;
		q = 1 + q * (1. / 3 + q * (1. / 5 + q * (1. / 7 + q * (1. / 9 + q * (1. / 11)))));
		/* all - all: unknown values stay so */
		*(floats *)(x + i) =
			__builtin_convertvector(k * M_LN2 + 2 * s * q + (all - all), floats);
	}
}

static void log_base(const double *v, size_t n, float *x)
{
	log_each(v, n, x);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void log_wide(const double *v, size_t n, float *x)
{
	log_each(v, n, x);
}
#else
#define log_wide log_base
#endif

void pl_feature_logs(const double *v, size_t n, float *x)
{
	if (pl_has_avx2())
		log_wide(v, n, x);
	else
		log_base(v, n, x);
}
