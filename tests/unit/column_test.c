/* Payload encoding: scalars, strings, columns of every coding, and what is wrong with bad ones. */
#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "tap.h"

enum shape { EQUAL, SMALL, MIXED, HUGE_VALUES, STEPS, RUNS, NEGATIVE, RAMP, SHAPES };

static int64_t value(enum shape s, size_t i, uint64_t *seed)
{
	uint64_t r = pl_rng_next(seed);

	switch (s) {
	case EQUAL:
		return -5;
	case SMALL:
		return (int64_t)(r % 60);
	case MIXED:
		return (int64_t)(r >> (r % 64));
	case HUGE_VALUES:
		return i % 3 ? (int64_t)r : i % 2 ? INT64_MIN : INT64_MAX;
	case STEPS:
		return 1700000000000000000 + (int64_t)i * 4000 + (int64_t)(r % 3000);
	case RUNS:
		return (int64_t)(i / 50 % 7) - 3;
	case NEGATIVE:
		return -(int64_t)(r % 30000);
	default:
		return (int64_t)i;
	}
}

static void test_i64(void)
{
	static const size_t counts[] = { 1, 2, 7, 8, 9, 1023, 1024, 1025, 20000 };
	static unsigned codings;
	unsigned bad = 0, cut_accepted = 0;
	uint64_t seed = 4;

	for (int s = 0; s < SHAPES; s++)
		for (size_t k = 0; k < PL_LEN(counts) * 2; k++) {
			size_t n = counts[k / 2];
			int64_t *v = malloc(n * 8), *w = malloc(n * 8);
			struct pl_buf b = { 0 };
			struct pl_err err = { 0 };
			struct pl_cur c;

			for (size_t i = 0; i < n; i++)
				v[i] = value((enum shape)s, i, &seed);
			pl_io_put_u8(&b, 77); /* not aligned */
			pl_column_put_i64(&b, v, n, k % 2);
			codings |= 1u << b.p[1];
			/* exactly the bytes, so that a sanitizer sees reading past them */
			uint8_t *copy = malloc(b.n);

			memcpy(copy, b.p, b.n);
			c = (struct pl_cur){ copy + 1, copy + b.n, false };
			bad += pl_column_get_i64(&c, w, n, &err) < 0 || c.bad || c.p != c.end ||
			       memcmp(v, w, n * 8) != 0;
			for (size_t cut = 1; cut < b.n && cut < 40; cut++) {
				c = (struct pl_cur){ copy + 1, copy + b.n - cut, false };
				err.code = 0;
				cut_accepted +=
					pl_column_get_i64(&c, w, n, &err) != PL_EDATA || !c.bad;
			}
			free(copy);
			free(v);
			free(w);
			pl_buf_fini(&b);
		}
	ok(!bad, "int64 columns come back");
	ok(!cut_accepted, "and are missed when cut short");
	is_i64(codings, 63, "all six codings were in use");
}

static void test_narrow(void)
{
	unsigned bad = 0;
	uint64_t seed = 9;

	for (unsigned round = 0; round < 400; round++) {
		size_t n = pl_rng_next(&seed) % 3000;
		unsigned range = 1u + (unsigned)pl_rng_next(&seed) % 32, stay = round % 4 * 20;
		uint32_t *v = malloc(n * 4 + 1), *w = malloc(n * 4 + 1);
		uint8_t *p = malloc(n + 1), *q = malloc(n + 1);
		struct pl_buf b = { 0 };
		struct pl_err err = { 0 };
		struct pl_cur c;

		for (size_t i = 0; i < n; i++) {
			uint64_t r = pl_rng_next(&seed);

			v[i] = i && r % 100 < stay ? v[i - 1] : (uint32_t)(r >> 32 >> (range - 1));
			p[i] = (uint8_t)v[i];
		}
		pl_column_put_u32(&b, v, n, round & 1);
		pl_column_put_u8(&b, p, n);
		c = (struct pl_cur){ b.p, b.n ? b.p + b.n : b.p, false };
		bad += pl_column_get_u32(&c, w, n, &err) < 0 || memcmp(v, w, n * 4) != 0;
		bad += pl_column_get_u8(&c, q, n, &err) < 0 || memcmp(p, q, n) != 0;
		bad += c.bad || c.p != c.end;
		free(v);
		free(w);
		free(p);
		free(q);
		pl_buf_fini(&b);
	}
	ok(!bad, "u32 and u8 columns come back");
}

/* The coder of narrow columns against that of wide ones: the same values are the same bytes. */
static void test_narrow_as_wide(void)
{
	unsigned bad = 0;
	uint64_t seed = 21;

	for (unsigned round = 0; round < 4000; round++) {
		size_t n = 1 + pl_rng_next(&seed) % (round % 8 ? 40 : 5000);
		unsigned range = 1u + (unsigned)pl_rng_next(&seed) % 32, kind = round % 5;
		uint32_t v[5001];
		int64_t wide[5001];
		struct pl_buf a = { 0 }, b = { 0 };

		for (size_t i = 0; i < n; i++) {
			uint64_t r = pl_rng_next(&seed);

			v[i] = (uint32_t)(r >> 32 >> (range - 1));
			if (i && (kind == 1 || (kind == 2 && r % 100 < 95)))
				v[i] = v[i - 1];
			if (i && kind == 3)
				v[i] = v[i - 1] + (r % 100 < 95 ? 3 : (uint32_t)(r >> 60));
			wide[i] = v[i];
		}
		pl_column_put_u32(&a, v, n, round & 1);
		pl_column_put_i64(&b, wide, n, round & 1);
		bad += a.n != b.n || memcmp(a.p, b.p, a.n) != 0;
		pl_buf_fini(&a);
		pl_buf_fini(&b);
	}
	ok(!bad, "narrow columns are coded as wide ones of the same values");
}

static void test_reals(void)
{
	static const float v[] = { 0, -0.0F, 1.5F, 1e-45F, 3e38F, -7.25F };
	struct pl_buf b = { 0 };
	struct pl_cur c;
	unsigned bad = 0;

	for (size_t i = 0; i < PL_LEN(v); i++) {
		pl_io_put_f32(&b, v[i]);
		pl_io_put_f64(&b, (double)v[i]);
	}
	ok(b.n == 12 * PL_LEN(v) && !memcmp(b.p + 24, "\0\0\xc0\x3f", 4),
	   "floats of 32 bits, the low byte first");
	c = (struct pl_cur){ b.p, b.p + b.n, false };
	for (size_t i = 0; i < PL_LEN(v); i++) {
		float f = pl_io_get_f32(&c);
		double d = pl_io_get_f64(&c);

		bad += memcmp(&f, &v[i], sizeof(f)) != 0 || d != (double)v[i];
	}
	ok(!bad && !c.bad && c.p == c.end, "... come back");
	pl_io_get_f32(&c);
	ok(c.bad, "... but not behind the end");
	pl_buf_fini(&b);
}

static void refused(const char *bytes, size_t n_bytes, size_t n, const char *why)
{
	struct pl_cur c = { (const uint8_t *)bytes, (const uint8_t *)bytes + n_bytes, false };
	struct pl_err err = { 0 };
	uint32_t v[64];

	ok(pl_column_get_u32(&c, v, n, &err) == PL_EDATA && c.bad, "%s: %s", why, err.msg);
}

static void test_bad(void)
{
	struct pl_cur c = { (const uint8_t *)"\x02\xfe\x03", NULL, false };
	struct pl_err err = { 0 };
	uint8_t byte[4];

	c.end = c.p + 3;
	ok(pl_column_get_u8(&c, byte, 4, &err) == 0 && byte[3] == 255, "255 fits a byte");
	c = (struct pl_cur){ (const uint8_t *)"\x02\x80\x04", NULL, false };
	c.end = c.p + 3;
	ok(pl_column_get_u8(&c, byte, 4, &err) == PL_EDATA, "256 does not: %s", err.msg);
	refused("", 0, 3, "nothing");
	refused("\x09", 1, 3, "unknown coding");
	refused("\x02\x01", 2, 3, "negative id");
	refused("\x03\x03"
		"abcabcabc",
		11, 3, "width 3");
	refused("\x03\x88"
		"abcdefgh",
		10, 1, "width 8 with a sign");
	refused("\x03\x04"
		"abcdefghijk",
		13, 3, "fixed, cut");
	refused("\x04\x02\x00\x02\x03", 5, 3, "run of nothing");
	refused("\x04\x02\x04", 3, 3, "run too long");
	refused("\x04\x02\x02", 3, 3, "run too short");
	refused("\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, 1, "varint over 64 bits");
	refused("\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 12, 1, "varint of 11 bytes");
}

static void test_scalars(void)
{
	static const uint64_t u[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX };
	static const int64_t s[] = { 0, -1, 1, -64, 64, INT64_MIN, INT64_MAX };
	struct pl_buf b = { 0 };
	struct pl_cur c;
	const char *str;
	size_t n, bad = 0;

	for (size_t i = 0; i < PL_LEN(u); i++)
		pl_io_put_varint(&b, u[i]);
	for (size_t i = 0; i < PL_LEN(s); i++)
		pl_io_put_svarint(&b, s[i]);
	pl_io_put_u8(&b, 200);
	pl_io_put_u32(&b, 0x01020304);
	pl_io_put_u64(&b, 0x0102030405060708);
	pl_io_put_str(&b, "a\0b", 3);
	bad += b.failed;
	ok(b.p[b.n - 4 - 8] == 8 && b.p[b.n - 4 - 8 - 4] == 4, "little-endian");
	c = (struct pl_cur){ b.p, b.p + b.n, false };
	for (size_t i = 0; i < PL_LEN(u); i++)
		bad += pl_io_get_varint(&c) != u[i];
	for (size_t i = 0; i < PL_LEN(s); i++)
		bad += pl_io_get_svarint(&c) != s[i];
	bad += pl_io_get_u8(&c) != 200 || pl_io_get_u32(&c) != 0x01020304 ||
	       pl_io_get_u64(&c) != 0x0102030405060708;
	str = pl_io_get_str(&c, &n);
	ok(!bad && !c.bad && c.p == c.end && n == 3 && !memcmp(str, "a\0b", 3),
	   "scalars come back");
	ok(!pl_io_get_u32(&c) && c.bad && !pl_io_get_u8(&c) && !pl_io_get_varint(&c),
	   "past the end: 0, bad");
	c = (struct pl_cur){ (const uint8_t *)"\x7f"
					      "abc",
			     NULL, false };
	c.end = c.p + 4;
	str = pl_io_get_str(&c, &n);
	ok(c.bad && !n && str, "a string longer than the rest");
	pl_buf_fini(&b);
}

/* Random bytes as columns: any answer but a crash; the cursor never leaves its range. */
static void test_random_bytes(void)
{
	uint64_t seed = 77;
	unsigned out = 0;
	int64_t v[300];

	for (unsigned round = 0; round < 30000; round++) {
		size_t n = pl_rng_next(&seed) % 60;
		uint8_t *p = malloc(n + 1);
		struct pl_cur c = { p, p + n, false };

		for (size_t i = 0; i < n; i++)
			p[i] = (uint8_t)(pl_rng_next(&seed) >> (pl_rng_next(&seed) % 8));
		if (n)
			p[0] %= 6;
		if (pl_column_get_i64(&c, v, pl_rng_next(&seed) % 300, NULL) == 0)
			out += c.p < p || c.p > c.end;
		free(p);
	}
	ok(!out, "random bytes");
}

int main(void)
{
	test_scalars();
	test_i64();
	test_reals();
	test_narrow();
	test_narrow_as_wide();
	test_bad();
	test_random_bytes();
	return done_testing();
}
