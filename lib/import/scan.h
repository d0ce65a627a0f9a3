/*
 * scan.h - the inner loops of the event reader: white space, strings, nested values, digits.
 *
 * All of them may look PL_SLACK bytes past `end`, which the window (struct pl_src) guarantees to be
 * readable, so that 16 bytes are taken at a time without a check. A result at or past `end` means
 * "the window ends first". SSE2 where the compiler has it, plain C with the same results elsewhere.
 */
#ifndef PL_IMPORT_SCAN_H
#define PL_IMPORT_SCAN_H

#include "core/bytes.h"
#include "core/core.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#define PL_SSE2 1
#else
#define PL_SSE2 0
#endif

#define PL_SLACK 64

enum { PL_S_ESCAPE = 1, PL_S_CONTROL = 2, PL_S_HIGH = 4, PL_S_NEWLINE = 8 };

/* White space is every byte up to ' ', so also NUL and control characters between tokens. */
static inline const char *pl_scan_space(const char *p, const char *end)
{
	if (PL_LIKELY((unsigned char)p[0] > ' '))
		return p;
	if ((unsigned char)p[1] > ' ')
		return p + 1;
#if PL_SSE2
	for (; p < end; p += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i s = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(' ')), v);
		unsigned m = (unsigned)_mm_movemask_epi8(s) ^ 0xffff;

		if (m)
			return p + __builtin_ctz(m);
	}
#else
	while (p < end && (unsigned char)*p <= ' ')
		p++;
#endif
	return p;
}

/* The end of a number or word: white space, ',' or a closing bracket. */
static inline const char *pl_scan_word(const char *p, const char *end)
{
#if PL_SSE2
	for (; p < end; p += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i w = _mm_or_si128(v, _mm_set1_epi8(0x20)); /* folds ] to } */
		__m128i stop = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(' ')), v);
		unsigned m;

		stop = _mm_or_si128(stop, _mm_cmpeq_epi8(w, _mm_set1_epi8('}')));
		stop = _mm_or_si128(stop, _mm_cmpeq_epi8(v, _mm_set1_epi8(',')));
		m = (unsigned)_mm_movemask_epi8(stop);
		if (m)
			return p + __builtin_ctz(m);
	}
#else
	while (p < end && (unsigned char)*p > ' ' && *p != ',' && *p != '}' && *p != ']')
		p++;
#endif
	return p;
}

/* Flags of a byte that makes a string unusual. */
static inline unsigned pl_scan_odd(unsigned char c)
{
	return c >= 0x80   ? PL_S_HIGH
	       : c >= 0x20 ? 0
	       : c == '\n' ? PL_S_CONTROL | PL_S_NEWLINE
			   : PL_S_CONTROL;
}

/* p is after the opening quote. Returns the closing quote, or a position at or past `end`. */
static inline const char *pl_scan_string(const char *p, const char *end, unsigned *flags)
{
	unsigned f = 0;

	while (p < end) {
#if PL_SSE2
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		unsigned q = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
		unsigned b = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
		/* signed: control characters and bytes from 0x80 are below ' ' */
		unsigned x = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(v, _mm_set1_epi8(' ')));
		unsigned stop = q | b;

		if (PL_LIKELY(stop))
			x &= (stop & -stop) - 1;
		if (PL_UNLIKELY(x)) {
			for (; x; x &= x - 1)
				f |= pl_scan_odd((unsigned char)p[__builtin_ctz(x)]);
		}
		if (!stop) {
			p += 16;
			continue;
		}
		p += __builtin_ctz(stop);
		if (PL_LIKELY(*p == '"'))
			break;
#else
		if (*p == '"')
			break;
		if (*p != '\\') {
			f |= pl_scan_odd((unsigned char)*p++);
			continue;
		}
#endif
		f |= PL_S_ESCAPE;
		p += 2;
	}
	*flags = f;
	return p;
}

/*
 * p is at '[' or '{'. Returns the position after the closing bracket, or one past `end`. Brackets
 * are counted outside strings, not matched by type: values.c finds errors inside when the text is
 * first seen. The bits of positions inside strings are the prefix sums (xor) of the quote bits.
 */
static inline const char *pl_scan_nested(const char *p, const char *end)
{
	int depth = 0;
	bool inside = false;
#if PL_SSE2
	unsigned carry = 0;

	while (p < end) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i w = _mm_or_si128(v, _mm_set1_epi8(0x20)); /* folds [ to { and ] to } */
		unsigned b = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
		unsigned x = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
		unsigned o = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(w, _mm_set1_epi8('{')));
		unsigned c = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(w, _mm_set1_epi8('}')));
		unsigned m;

		if (PL_UNLIKELY(b))
			break;
		if (x) {
			x ^= x << 1;
			x ^= x << 2;
			x ^= x << 4;
			x ^= x << 8;
		}
		x = (x ^ carry) & 0xffff;
		carry = (x & 0x8000) ? 0xffff : 0;
		c &= ~x;
		for (m = (o & ~x) | c; m; m &= m - 1) {
			unsigned i = (unsigned)__builtin_ctz(m);

			depth += 1 - 2 * (int)(c >> i & 1);
			if (!depth)
				return p + i + 1;
		}
		p += 16;
	}
	inside = carry != 0;
#endif
	for (; p < end; p++) {
		if (*p == '"') {
			inside = !inside;
		} else if (inside) {
			p += *p == '\\';
		} else if (*p == '[' || *p == '{') {
			depth++;
		} else if ((*p == ']' || *p == '}') && !--depth) {
			return p + 1;
		}
	}
	return end + 1;
}

/* Append the digits at p to the number *v. Returns their number, at most eight. */
static inline unsigned pl_scan_digits(const char *p, uint64_t *v)
{
	static const uint32_t ten_to[] = { 1,	   10,	    100,      1000,	10000,
					   100000, 1000000, 10000000, 100000000 };
	uint64_t x = pl_le64_get((const uint8_t *)p) ^ 0x3030303030303030u;
	uint64_t other = (x | (x + 0x7676767676767676u)) & 0x8080808080808080u; /* above 9 */
	unsigned n = other ? (unsigned)__builtin_ctzll(other) / 8 : 8;

	if (!n)
		return 0;
	x <<= 64 - 8 * n; /* zeros before the first digit */
	x = x * 10 + (x >> 8);
	x = ((x & 0x000000ff000000ffu) * (100 + (1000000ull << 32)) +
	     (x >> 16 & 0x000000ff000000ffu) * (1 + (10000ull << 32))) >>
	    32;
	*v = *v * ten_to[n] + x;
	return n;
}

#endif
