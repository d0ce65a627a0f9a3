/*
 * A pass costs what moves through memory. A store to memory that is in no cache reads it first, so
 * a vector that does not fit there is cheaper to write past the caches: on one machine a vector of
 * 67 MB was subtracted in 17 ms and not 23, and a second place for the same results is then almost
 * free.
 */
#include "ps/passes.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

int pl_ps_pass_alloc(void **memory, size_t n, float **first, struct pl_err *err)
{
	const uintptr_t line = PL_PS_LINE * sizeof(float);

	PL_CHECK(pl_alloc((char **)memory, n * sizeof(float) + line, 1, err));
	*first = (float *)(((uintptr_t)*memory + line - 1) & ~(line - 1));
	return 0;
}

/* ADVANCE: a + f (b - c); SPLIT: the same, and b - c */
enum kind { COPY, ADD, SUBTRACT, ADVANCE, SPLIT };
struct places {
	float *to, *also;
	const float *a, *b;
	float f;
	const float *c;
};
#define INLINE static inline __attribute__((always_inline))

INLINE void one(enum kind kind, const struct places *p, size_t i)
{
	float a = p->a[i], v = a, second;

	if (kind == ADD)
		v = a + p->f * p->b[i];
	if (kind == SUBTRACT)
		v = a - p->b[i];
	second = kind == SUBTRACT ? a : v;
	if (kind == ADVANCE || kind == SPLIT) {
		second = p->b[i] - p->c[i];
		v = a + p->f * second;
		second = kind == SPLIT ? second : v;
	}
	p->to[i] = v;
	if (p->also)
		p->also[i] = second;
}

#if defined(__SSE2__)
INLINE void put(float *to, __m128 v, bool stream)
{
	if (stream)
		_mm_stream_ps(to, v);
	else
		_mm_storeu_ps(to, v);
}

#define AHEAD 512 /* numbers: the prefetcher of the processor alone is too late for a line */

/* From i on, as far as whole lines go, each of which is written at once. */
INLINE size_t lines(enum kind kind, const struct places *p, size_t i, size_t n, bool stream)
{
	const __m128 f = _mm_set1_ps(p->f);
	float *also = p->also;

	for (; i + PL_PS_LINE <= n; i += PL_PS_LINE) {
		__m128 a[PL_PS_LINE / 4], v[PL_PS_LINE / 4], d[PL_PS_LINE / 4];

		if (stream)
			_mm_prefetch((const char *)(p->a + i) + AHEAD * sizeof(float),
				     _MM_HINT_NTA);
		if (stream && kind != COPY)
			_mm_prefetch((const char *)(p->b + i) + AHEAD * sizeof(float),
				     _MM_HINT_NTA);
		if (stream && (kind == ADVANCE || kind == SPLIT) && p->c != p->a)
			_mm_prefetch((const char *)(p->c + i) + AHEAD * sizeof(float),
				     _MM_HINT_NTA);
#pragma GCC unroll 4
		for (size_t k = 0; k < PL_PS_LINE / 4; k++) {
			v[k] = a[k] = _mm_loadu_ps(p->a + i + 4 * k);
			if (kind == ADD)
				v[k] = _mm_add_ps(a[k],
						  _mm_mul_ps(f, _mm_loadu_ps(p->b + i + 4 * k)));
			if (kind == SUBTRACT)
				v[k] = _mm_sub_ps(a[k], _mm_loadu_ps(p->b + i + 4 * k));
			if (kind == ADVANCE || kind == SPLIT) {
				d[k] = _mm_sub_ps(_mm_loadu_ps(p->b + i + 4 * k),
						  _mm_loadu_ps(p->c + i + 4 * k));
				v[k] = _mm_add_ps(a[k], _mm_mul_ps(f, d[k]));
			}
		}
#pragma GCC unroll 4
		for (size_t k = 0; k < PL_PS_LINE / 4; k++)
			put(p->to + i + 4 * k, v[k], stream);
		if (!also)
			continue;
#pragma GCC unroll 4
		for (size_t k = 0; k < PL_PS_LINE / 4; k++)
			put(also + i + 4 * k,
			    kind == SUBTRACT ? a[k]
			    : kind == SPLIT  ? d[k]
					     : v[k],
			    stream);
	}
	return i;
}

INLINE size_t misaligned(const float *p)
{
	return (uintptr_t)p / sizeof(float) % PL_PS_LINE;
}

INLINE void pass(enum kind kind, const struct places *p, size_t n, bool stream)
{
	size_t i = 0;

	if (p->also && misaligned(p->also) != misaligned(p->to))
		stream = false;
	for (; stream && i < n && misaligned(p->to + i); i++)
		one(kind, p, i);
	i = stream ? lines(kind, p, i, n, true) : lines(kind, p, i, n, false);
	for (; i < n; i++)
		one(kind, p, i);
}

void pl_ps_pass_end(void)
{
	_mm_sfence();
}
#else
INLINE void pass(enum kind kind, const struct places *p, size_t n, bool stream)
{
	(void)stream;
	for (size_t i = 0; i < n; i++)
		one(kind, p, i);
}

void pl_ps_pass_end(void)
{
}
#endif

void pl_ps_pass_copy(float *to, float *also, const float *a, size_t n, bool stream)
{
	pass(COPY, &(struct places){ .to = to, .also = also, .a = a }, n, stream);
}

void pl_ps_pass_add(float *to, float *also, const float *a, float f, const float *b,
		    const float *minus, size_t n, bool stream)
{
	const struct places p = { to, also, a, b, f, minus };

	if (minus)
		pass(ADVANCE, &p, n, stream);
	else
		pass(ADD, &p, n, stream);
}

void pl_ps_pass_split(float *to, float *u, const float *a, float f, const float *b,
		      const float *minus, size_t n, bool stream)
{
	pass(SPLIT, &(struct places){ to, u, a, b, f, minus }, n, stream);
}

void pl_ps_pass_subtract(float *to, float *also, const float *a, const float *b, size_t n,
			 bool stream)
{
	pass(SUBTRACT, &(struct places){ .to = to, .also = also, .a = a, .b = b }, n, stream);
}

void pl_ps_pass_move(float *to, const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = b[i] + (to[i] - a[i]);
}
