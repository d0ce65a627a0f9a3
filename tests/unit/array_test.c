/* Arrays from files: types of numbers, NPY, IDX. */
#include <math.h>
#include <stdlib.h>

#include "data/dtype.h"
#include "tap.h"

static struct pl_err err;

static void types(void)
{
	static const uint16_t half[] = { 0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
					 0x83ff, 0x0400, 0x3555, 0x7c00, 0xfc00 };
	static const float wanted[] = { 0.0f,	     -0.0f,	    1.0f,	    -2.0f,
					65504.0f,    5.9604645e-8f, -6.0975552e-5f, 6.1035156e-5f,
					0.33325195f, INFINITY,	    -INFINITY };
	static const uint16_t bf[] = { 0x3f80, 0xc040, 0x7f80 };
	static const uint8_t odd[] = { 0xff, 0x01, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff };
	static const double d[] = { 1e300, 0.1, -3 };
	static const int64_t i64[] = { 5, -1, (int64_t)1 << 40 };
	uint64_t u64 = UINT64_MAX;
	uint16_t nan16 = 0x7e01;
	float f[16];
	int32_t v[4];
	size_t at = 9;

	pl_dtype_f32(PL_DT_F16, half, PL_LEN(half), f);
	for (size_t i = 0; i < PL_LEN(half); i++)
		ok(f[i] == wanted[i] && signbit(f[i]) == signbit(wanted[i]), "half 0x%04x",
		   half[i]);
	pl_dtype_f32(PL_DT_F16, &nan16, 1, f);
	ok(isnan(f[0]), "half: not a number");
	pl_dtype_f32(PL_DT_BF16, bf, 3, f);
	ok(f[0] == 1 && f[1] == -3 && isinf(f[2]), "bfloat16");
	pl_dtype_f32(PL_DT_F64, d, 3, f);
	ok(isinf(f[0]) && f[1] == 0.1f && f[2] == -3, "double");
	pl_dtype_f32(PL_DT_I32, odd + 1, 2, f);
	ok(f[1] == -1.0f, "int32");
	pl_dtype_f32(PL_DT_I8, odd, 2, f);
	ok(f[0] == -1 && f[1] == 1, "int8");
	pl_dtype_f32(PL_DT_U8, odd, 1, f);
	ok(f[0] == 255, "uint8");
	pl_dtype_f32(PL_DT_BOOL, odd, 3, f);
	ok(f[0] == 1 && f[2] == 0, "bool");
	pl_dtype_f32(PL_DT_U64, &u64, 1, f);
	ok(f[0] == 0x1p64f, "uint64");
	ok(pl_dtype_i32(PL_DT_I64, i64, 1, 5, v, &at) && v[0] == 5, "a class");
	ok(!pl_dtype_i32(PL_DT_I64, i64, 2, 5, v, &at) && at == 1, "one below 0");
	ok(!pl_dtype_i32(PL_DT_I64, i64 + 2, 1, INT32_MAX, v, &at) && at == 0, "one too large");
	ok(!pl_dtype_i32(PL_DT_U64, &u64, 1, INT32_MAX, v, &at), "2^64 - 1");
	ok(!pl_dtype_i32(PL_DT_F64, d + 1, 1, 5, v, &at), "a fraction");
	ok(!pl_dtype_i32(PL_DT_I64, i64, 1, 4, v, &at), "above the maximum");
}

/* A file of a header as text, in version 1, 2 or 3, padded or not. */
static size_t npy(uint8_t *out, int major, const char *text, const void *data, size_t n)
{
	size_t len = strlen(text), at = 0;

	memcpy(out, "\x93NUMPY", 6);
	out[6] = (uint8_t)major;
	out[7] = 0;
	out[8] = (uint8_t)len;
	out[9] = (uint8_t)(len >> 8);
	at = 10;
	if (major > 1) {
		out[10] = out[11] = 0;
		at = 12;
	}
	memcpy(out + at, text, len);
	if (n)
		memcpy(out + at + len, data, n);
	return at + len + n;
}

static int read_npy(const void *p, size_t n, struct pl_array *a)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test.npy", p, n, &err);
	rc = pl_npy_read(in, a, &err);
	pl_in_close(in);
	return rc;
}

static int read_idx(const void *p, size_t n, struct pl_array *a)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test.idx", p, n, &err);
	rc = pl_idx_read(in, a, &err);
	pl_in_close(in);
	return rc;
}

#define HEAD(descr, shape)                                                                         \
	"{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }   \n"

static void npy_good(void)
{
	static const float f[] = { 1, 2, 3, 4, 5, 6 };
	static const uint8_t big[] = { 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0 };
	static const int64_t i[] = { 7, 8 };
	static const struct {
		int major;
		const char *head;
		const void *data;
		size_t bytes, n;
		int n_dims, dtype;
	} good[] = {
		{ 1, HEAD("<f4", "(2, 3)"), f, 24, 6, 2, PL_DT_F32 },
		{ 2, HEAD("<f4", "(6,)"), f, 24, 6, 1, PL_DT_F32 },
		{ 3, HEAD("=f4", "(2, 3, 1)"), f, 24, 6, 3, PL_DT_F32 },
		{ 1, HEAD("<i8", "(2,)"), i, 16, 2, 1, PL_DT_I64 },
		{ 1, HEAD("|u1", "(4, 2)"), big, 8, 8, 2, PL_DT_U8 },
		{ 1, HEAD("<u2", "(4,)"), big, 8, 4, 1, PL_DT_U16 },
		{ 1, HEAD("<f8", "()"), i, 8, 1, 0, PL_DT_F64 },
		{ 1, HEAD("<i4", "(0, 3)"), NULL, 0, 0, 2, PL_DT_I32 },
		{ 1, "{\"shape\":(2,),\"descr\":\">f4\",\"fortran_order\":False}", big, 8, 2, 1,
		  PL_DT_F32 },
	};
	uint8_t b[512];
	struct pl_array a;
	float v[2];

	for (size_t k = 0; k < PL_LEN(good); k++) {
		size_t n = npy(b, good[k].major, good[k].head, good[k].data, good[k].bytes);
		int rc = read_npy(b, n, &a);

		if (!ok(rc == 0 && a.n == good[k].n && a.n_dims == good[k].n_dims &&
				a.dtype == good[k].dtype && a.data.n == good[k].bytes,
			"read: %.*s", (int)strcspn(good[k].head, "\n"), good[k].head))
			printf("# %d %s\n", rc, err.msg);
		if (k < PL_LEN(good) - 1 && good[k].bytes)
			ok(!memcmp(a.data.p, good[k].data, good[k].bytes), "its data");
		if (k == 0)
			ok(a.dim[0] == 2 && a.dim[1] == 3, "its shape");
		if (k == PL_LEN(good) - 1) {
			pl_dtype_f32(a.dtype, a.data.p, 2, v);
			ok(v[0] == 1 && v[1] == -2, "big-endian");
		}
		pl_data_array_fini(&a);
	}
}

static void npy_bad(void)
{
	static const struct {
		int major;
		const char *head, *says;
	} bad[] = {
		{ 4, HEAD("<f4", "(1,)"), "byte 6: version 4.0" },
		{ 1, HEAD("<f4", "(2,)"), "the end, with 4 of 8 bytes still to come" },
		{ 1, HEAD("<c8", "(1,)"), "byte 20: type \"<c8\" is not read" },
		{ 1, HEAD("|S4", "(1,)"), "is not read" },
		{ 1, HEAD("<U99999999999999999999999999999999", "(1,)"), "is not read" },
		{ 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
		  "types with fields are not read" },
		{ 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }",
		  "the array is in Fortran order" },
		{ 1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "True or False" },
		{ 1, HEAD("<f4", "[1]"), "the shape is a tuple" },
		{ 1, HEAD("<f4", "(-1,)"), "a dimension is a whole number" },
		{ 1, HEAD("<f4", "(1 2)"), "a comma or a closing parenthesis" },
		{ 1, HEAD("<f4", "(99999999999999999999,)"), "a dimension beyond 2^63" },
		{ 1, HEAD("<f4", "(4294967296, 4294967296)"), "multiply beyond 2^64" },
		{ 1, HEAD("<f4", "(4611686018427387904,)"), "more than 2^63 bytes" },
		{ 1, HEAD("<f4", "(9000000000,)"), "still to come" },
		{ 1, HEAD("<f4", "(1,1,1,1,1,1,1,1,1)"), "more than 8 dimensions" },
		{ 1, "{'descr': '<f4', 'shape': (1,), }", "the header lacks" },
		{ 1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
		  "each once" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
		  "each once" },
		{ 1, HEAD("<f4", "(1,)") "x", "something stands behind" },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "a closing brace" },
		{ 1, "{'descr", "not closed" },
		{ 1, "", "the header is a Python dictionary" },
	};
	static const float f = 1;
	uint8_t b[512];
	struct pl_array a;

	for (size_t k = 0; k < PL_LEN(bad); k++) {
		size_t n = npy(b, bad[k].major, bad[k].head, &f, 4);
		int rc = read_npy(b, n, &a);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[k].says), "refused: %s", bad[k].says))
			printf("# %d %s\n", rc, err.msg);
		ok(!a.data.p, "and nothing is left");
	}
	memcpy(b, "\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
	ok(read_npy(b, 12, &a) == PL_EDATA && strstr(err.msg, "a header of 2147483647 bytes"),
	   "refused: a header of 2 GiB");
	ok(read_npy("\x93NUMPX", 6, &a) == PL_EDATA && strstr(err.msg, "no NPY file"),
	   "refused: another magic");
}

static void idx(void)
{
	static const uint8_t labels[] = { 0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9 };
	static const uint8_t shorts[] = { 0, 0, 11, 2, 0,    0,	   0,	 1,
					  0, 0, 0,  2, 0x01, 0x02, 0xff, 0xfe };
	static const struct {
		uint8_t b[16];
		size_t n;
		const char *says;
	} bad[] = {
		{ { 0 }, 0, "this is no IDX file" },
		{ { 0, 1, 8, 1 }, 4, "this is no IDX file" },
		{ { 0, 0, 7, 1 }, 4, "there is no IDX type 0x07" },
		{ { 0, 0, 8, 0 }, 4, "0 dimensions" },
		{ { 0, 0, 8, 9 }, 4, "9 dimensions" },
		{ { 0, 0, 8, 1, 0, 0 }, 6, "byte 6: the input ends inside the header" },
		{ { 0, 0, 8, 1, 0, 0, 0, 2, 1 }, 9, "with 1 of 2 bytes still to come" },
		{ { 0, 0, 14, 1, 255, 255, 255, 255, 1 }, 9, "still to come" },
	};
	struct pl_array a;
	float f[2];

	is_i64(read_idx(labels, sizeof(labels), &a), 0, "labels");
	ok(a.n == 3 && a.n_dims == 1 && a.dtype == PL_DT_U8 && a.data.p[2] == 9, "are read");
	pl_data_array_fini(&a);
	is_i64(read_idx(shorts, sizeof(shorts), &a), 0, "numbers of two bytes");
	pl_dtype_f32(a.dtype, a.data.p, 2, f);
	ok(a.dim[0] == 1 && a.dim[1] == 2 && f[0] == 258 && f[1] == -2, "in big-endian order");
	pl_data_array_fini(&a);
	for (size_t k = 0; k < PL_LEN(bad); k++) {
		int rc = read_idx(bad[k].b, bad[k].n, &a);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[k].says), "refused: %s", bad[k].says))
			printf("# %d %s\n", rc, err.msg);
	}
}

int main(void)
{
	types();
	npy_good();
	npy_bad();
	idx();
	return done_testing();
}
