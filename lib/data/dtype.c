/*
 * Elements of arrays as float32 and as classes; reading arrays from an input.
 *
 * Half precision is widened by its exponent and mantissa (IEEE 754 binary16), bfloat16 is the upper
 * half of a float32. Hosts are little-endian, as the files are. Linear.
 */
#include <math.h>

#include "data/dtype.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are little-endian");

/* The names of each type in safetensors, numpy and IDX; NULL and 0: it has none. */
static const struct {
	const char *name, *numpy;
	uint8_t size, idx;
} types[] = {
	[PL_DT_F32] = { "F32", "f4", 4, 13 },  [PL_DT_F64] = { "F64", "f8", 8, 14 },
	[PL_DT_F16] = { "F16", "f2", 2, 0 },   [PL_DT_BF16] = { "BF16", NULL, 2, 0 },
	[PL_DT_I32] = { "I32", "i4", 4, 12 },  [PL_DT_I64] = { "I64", "i8", 8, 0 },
	[PL_DT_U8] = { "U8", "u1", 1, 8 },     [PL_DT_I8] = { "I8", "i1", 1, 9 },
	[PL_DT_I16] = { "I16", "i2", 2, 11 },  [PL_DT_U16] = { "U16", "u2", 2, 0 },
	[PL_DT_U32] = { "U32", "u4", 4, 0 },   [PL_DT_U64] = { "U64", "u8", 8, 0 },
	[PL_DT_BOOL] = { "BOOL", "b1", 1, 0 },
};
_Static_assert(PL_LEN(types) == PL_DT_COUNT_, "a type without a name");

size_t pl_dtype_size(unsigned dtype)
{
	return dtype < PL_DT_COUNT_ ? types[dtype].size : 0;
}

const char *pl_dtype_name(unsigned dtype)
{
	return dtype < PL_DT_COUNT_ ? types[dtype].name : "unknown";
}

int pl_dtype_find(enum pl_dtype_names of, const char *name, size_t n)
{
	for (int t = 0; t < PL_DT_COUNT_; t++) {
		const char idx[] = { (char)types[t].idx, '\0' };
		const char *s = of == PL_DT_SAFETENSORS ? types[t].name
				: of == PL_DT_NUMPY	? types[t].numpy
							: idx;

		if (s && *s && strlen(s) == n && !memcmp(s, name, n))
			return t;
	}
	return -1;
}

static float f32_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static float half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;

	if (e == 31)
		return f32_bits(sign | 0x7f800000 | m << 13);
	if (e)
		return f32_bits(sign | (e + 112) << 23 | m << 13);
	/* below the smallest normal: m times 2^-24, which is exact */
	return (sign ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
}

/* The value of an element v of each type, an object of this C type. */
#define VALUES(X)                                                                                  \
	X(F32, float, v)                                                                           \
	X(F64, double, v)                                                                          \
	X(F16, uint16_t, half(v))                                                                  \
	X(BF16, uint16_t, f32_bits((uint32_t)v << 16))                                             \
	X(I32, int32_t, v)                                                                         \
	X(I64, int64_t, v)                                                                         \
	X(U8, uint8_t, v)                                                                          \
	X(I8, int8_t, v)                                                                           \
	X(I16, int16_t, v)                                                                         \
	X(U16, uint16_t, v)                                                                        \
	X(U32, uint32_t, v)                                                                        \
	X(U64, uint64_t, v)                                                                        \
	X(BOOL, uint8_t, v != 0)
/* All elements of one type: they are converted to the type of *out. */
#define CONVERT(name, type, value)                                                                 \
	case PL_DT_##name:                                                                         \
		for (size_t i = 0; i < n; i++) {                                                   \
			type v;                                                                    \
                                                                                                   \
			memcpy(&v, p + i * sizeof(v), sizeof(v));                                  \
			out[i] = (__typeof__(*out))(value);                                        \
		}                                                                                  \
		break;

void pl_dtype_f32(unsigned dtype, const void *src, size_t n, float *out)
{
	const uint8_t *p = src;

	switch ((enum pl_dtype)dtype) {
		VALUES(CONVERT)
	case PL_DT_COUNT_:
		break;
	}
}

/* One element as a double, which holds each integer that pl_dtype_i32() accepts. */
static double value_of(unsigned dtype, const uint8_t *p)
{
	double value = -1, *out = &value;
	const size_t n = 1;

	switch ((enum pl_dtype)dtype) {
		VALUES(CONVERT)
	case PL_DT_COUNT_:
		break;
	}
	return value;
}

bool pl_dtype_i32(unsigned dtype, const void *src, size_t n, int32_t max, int32_t *out, size_t *at)
{
	size_t size = pl_dtype_size(dtype);

	for (size_t i = 0; i < n; i++) {
		double v = value_of(dtype, (const uint8_t *)src + i * size);

		if (!(v >= 0 && v <= max && v == floor(v))) {
			*at = i;
			return false;
		}
		out[i] = (int32_t)v;
	}
	return true;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

void pl_data_array_fini(struct pl_array *a)
{
	pl_buf_fini(&a->data);
	memset(a, 0, sizeof(*a));
}

/* Set a->n to the product of the dimensions. */
static int count(struct pl_array *a, struct pl_err *err)
{
	size_t n = 1, bytes;

	for (int i = 0; i < a->n_dims; i++)
		if (a->dim[i] < 0 || __builtin_mul_overflow(n, (size_t)a->dim[i], &n))
			return pl_fail(err, PL_EDATA, "its dimensions multiply beyond 2^64");
	if (__builtin_mul_overflow(n, pl_dtype_size(a->dtype), &bytes) || bytes > INT64_MAX)
		return pl_fail(err, PL_EDATA, "its dimensions make more than 2^63 bytes");
	a->n = n;
	return 0;
}

int pl_data_array_take(struct pl_in *in, size_t n, struct pl_buf *b, struct pl_err *err)
{
	for (size_t left = n; left;) {
		const uint8_t *p;
		int64_t got = pl_in_peek(in, 1, &p, err);
		size_t step = pl_min_size(left, (size_t)pl_max_i64(got, 0));

		if (got < 0)
			return (int)got;
		if (!got)
			return pl_fail(err, PL_EDATA,
				       "%s: byte %lld: the end, with %zu of %zu bytes still to "
				       "come; the file was cut",
				       pl_in_name(in), (long long)pl_in_offset(in), left, n);
		PL_CHECK(pl_buf_put(b, p, step, err));
		pl_in_skip(in, step);
		left -= step;
	}
	return 0;
}

int pl_data_array_end(struct pl_in *in, const char *what, struct pl_err *err)
{
	const uint8_t *p;
	int64_t more = pl_in_peek(in, 1, &p, err);

	if (more <= 0)
		return (int)more;
	return pl_fail(err, PL_EDATA, "%s: byte %lld: something behind %s", pl_in_name(in),
		       (long long)pl_in_offset(in), what);
}

/* Reverses the bytes of each element. */
static void swap(struct pl_array *a)
{
	size_t size = pl_dtype_size(a->dtype);
	uint8_t *p = a->data.p;

	for (size_t n = size > 1 ? a->n : 0; n; n--, p += size)
		for (size_t i = 0; i < size / 2; i++) {
			uint8_t t = p[i];

			p[i] = p[size - 1 - i];
			p[size - 1 - i] = t;
		}
}

int pl_data_array_read(struct pl_in *in, struct pl_array *a, bool big, struct pl_err *err)
{
	int rc = count(a, err);

	if (rc < 0)
		return pl_wrap(err, "%s", pl_in_name(in));
	rc = pl_data_array_take(in, a->n * pl_dtype_size(a->dtype), &a->data, err);
	if (rc < 0)
		pl_data_array_fini(a);
	else if (big)
		swap(a);
	return rc;
}
