/* Safetensors: there and back, the order and places of what is written, hostile files. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "data/weights.h"
#include "tap.h"

static struct pl_err err;

static int read_mem(const void *p, size_t n, struct pl_weights *w)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test", p, n, &err);
	rc = pl_weights_read(in, "test", w, &err);
	pl_in_close(in);
	return rc;
}

static int write_mem(const struct pl_weights *w, struct pl_buf *b)
{
	struct pl_out *out;
	int rc;

	memset(&err, 0, sizeof(err));
	memset(b, 0, sizeof(*b));
	out = pl_out_open_buf(b, &err);
	rc = pl_weights_write(w, out, &err);
	if (rc < 0)
		pl_out_abort(out);
	else
		rc = pl_out_close(out, &err);
	return rc;
}

static void add(struct pl_weights *w, const char *name, int n_dims, int a, int b, const float *data)
{
	int64_t dim[] = { a, b };

	if (pl_weights_add(w, name, n_dims, dim, data, &err) < 0)
		abort();
}

static size_t header(const struct pl_buf *b)
{
	uint64_t n;

	memcpy(&n, b->p, 8);
	return (size_t)n;
}

/* The slab of an optimiser, of 3 billion floats: nobody writes their pages, so they take none. */
static void large(void)
{
	const int64_t n = 3000000000;
	void *v = mmap(NULL, (size_t)n * 4, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);
	struct pl_weights w = { 0 };
	struct pl_out *out;

	if (v == MAP_FAILED) {
		skip("more than 2^31 numbers", "no addresses");
		return;
	}
	ok(pl_weights_add(&w, "optimizer.0", 1, &n, v, &err) == 0 && w.w[0].dim[0] == n &&
		   w.w[0].bytes == (size_t)n * 4,
	   "more than 2^31 numbers in a row");
	out = pl_out_open("/dev/null", true, &err);
	ok(out && pl_weights_write(&w, out, &err) == 0, "... are written: %s", err.msg);
	if (out && pl_out_close(out, &err) < 0)
		abort();
	pl_weights_fini(&w);
	munmap(v, (size_t)n * 4);
}

static void round_trip(void)
{
	static const float f[] = { 1, 2, 3, 4, 5, 6 };
	static const uint16_t bf[] = { 0x3f80, 0xc000 };
	static const char want[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
		"\"none\":{\"dtype\":\"F32\",\"shape\":[0,2],\"data_offsets\":[4,4]},"
		"\"w \\\"1\\\"\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
		"\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[28,32]}}";
	struct pl_weights w = { 0 }, v = { 0 }, r;
	const struct pl_weight *x;
	struct pl_buf b, c;
	float out[6];

	add(&w, "w \"1\"", 2, 2, 3, f);
	add(&w, "b", 0, 0, 0, f + 5);
	add(&w, "none", 2, 0, 2, NULL);
	add(&w, "a", 1, 1, 0, f);
	w.w[3].dtype = PL_DT_BF16;
	w.w[3].dim[0] = 2;
	w.w[3].bytes = 4;
	w.w[3].data = bf;
	if (pl_weights_add_meta(&w, "format", "pt", &err) < 0)
		abort();
	is_i64(write_mem(&w, &b), 0, "written");
	ok((8 + header(&b)) % 64 == 0 && b.n == 8 + header(&b) + 32, "the data is aligned");
	ok(!memcmp(b.p + 8, want, sizeof(want) - 1) && b.p[7 + sizeof(want)] == ' ',
	   "larger elements first, then by name");
	is_i64(read_mem(b.p, b.n, &r), 0, "read");
	x = pl_weights_find(&r, "w \"1\"");
	ok(x && x->n_dims == 2 && x->dim[0] == 2 && x->dim[1] == 3 && x->dtype == PL_DT_F32,
	   "its shape");
	ok(x && pl_weights_f32(x, out, 6, &err) == 0 && !memcmp(out, f, sizeof(f)), "its values");
	ok(x && pl_weights_f32(x, out, 5, &err) == PL_EDATA && strstr(err.msg, "another model"),
	   "of another size");
	x = pl_weights_find(&r, "a");
	memset(&err, 0, sizeof(err));
	ok(x && pl_weights_f32(x, out, 2, &err) == 0 && out[0] == 1 && out[1] == -2, "bfloat16");
	ok(pl_weights_find(&r, "none")->bytes == 0 && pl_weights_find(&r, "b")->n_dims == 0,
	   "nothing, and one number");
	ok(!pl_weights_find(&r, "c"), "what is not there");
	is_str(pl_weights_meta(&r, "format"), "pt", "what is said of them");
	ok(!pl_weights_meta(&r, "pt"), "a value is no key");
	is_i64(write_mem(&r, &c), 0, "written again");
	ok(b.n == c.n && !memcmp(b.p, c.p, b.n), "to the same bytes");
	pl_buf_fini(&c);
	/* another order here */
	add(&v, "none", 2, 0, 2, NULL);
	add(&v, "b", 0, 0, 0, f + 5);
	add(&v, "w \"1\"", 2, 2, 3, f);
	add(&v, "b", 0, 0, 0, f + 5);
	ok(write_mem(&v, &c) == PL_EDATA && strstr(err.msg, "two tensors are named \"b\""),
	   "refused: a name twice");
	pl_buf_fini(&c);
	pl_free(v.w[--v.n].name);
	add(&v, "__metadata__", 0, 0, 0, f);
	ok(write_mem(&v, &c) == PL_EDATA, "refused: a tensor named __metadata__");
	pl_buf_fini(&c);
	pl_buf_fini(&b);
	pl_weights_fini(&w);
	pl_weights_fini(&v);
	pl_weights_fini(&r);
}

/* A file of a header and n zero bytes. */
static size_t file(uint8_t *out, const char *head, size_t n)
{
	uint64_t len = strlen(head);

	memcpy(out, &len, 8);
	memcpy(out + 8, head, len);
	memset(out + 8 + len, 0, n);
	return 8 + len + n;
}

#define T(name, shape, from, to)                                                                   \
	"\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void good(void)
{
	static const struct {
		const char *head;
		size_t bytes, n;
	} files[] = {
		{ "{}", 0, 0 },
		{ "{}      ", 0, 0 },
		{ "{" T("a", "[1]", "4", "8") "," T("b", "[1]", "0", "4") "}", 8, 2 },
		{ "{" T("a", "[0]", "0", "0") "," T("b", "[1]", "0", "4") "," T(
			  "c", "[0]", "4", "4") "," T("d", "[0]", "0", "0") "}",
		  4, 4 },
		{ "{\"a\":{\"data_offsets\":[0,1],\"shape\":[1],\"more\":[{}],\"dtype\":\"BOOL\"}}",
		  1, 1 },
		{ "{\"__metadata__\":{},\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[],"
		  "\"data_offsets\":[0,1]}}",
		  1, 1 },
	};
	uint8_t b[1024];
	struct pl_weights w;

	for (size_t i = 0; i < PL_LEN(files); i++) {
		int rc = read_mem(b, file(b, files[i].head, files[i].bytes), &w);

		if (!ok(rc == 0 && w.n == files[i].n, "read: %s", files[i].head))
			printf("# %d %s\n", rc, err.msg);
		if (i == 2)
			ok(!strcmp(w.w[0].name, "b"), "in the order of the data");
		if (i == 5)
			is_str(w.w[0].name, "a", "an escaped name");
		pl_weights_fini(&w);
	}
}

static void hostile(void)
{
	static const struct {
		const char *head;
		size_t bytes;
		const char *says;
	} bad[] = {
		{ "[]", 0, "the header begins with an opening brace" },
		{ " {}", 0, "the header begins with an opening brace" },
		{ "{} x", 0, "something behind the header" },
		{ "{" T("a", "[2]", "0", "8") "}", 7, "with 1 of 8 bytes still to come" },
		{ "{" T("a", "[2]", "0", "8") "}", 9, "something behind the last tensor" },
		{ "{" T("a", "[1]", "4", "8") "}", 8, "tensor \"a\": there is a gap" },
		{ "{" T("a", "[1]", "0", "4") "," T("b", "[1]", "2", "6") "}", 6,
		  "tensor \"b\": its data overlaps" },
		{ "{" T("a", "[1]", "0", "4") "," T("b", "[1]", "0", "4") "}", 4, "overlaps" },
		{ "{" T("a", "[2]", "0", "8") "," T("b", "[0]", "4", "4") "}", 8, "overlaps" },
		{ "{" T("a", "[1]", "0", "4") "," T("a", "[1]", "4", "8") "}", 8,
		  "\"a\" is there twice" },
		{ "{" T("a", "[1]", "0", "4") "," T("\\u0061", "[1]", "4", "8") "}", 8,
		  "\"a\" is there twice" },
		{ "{" T("a", "[2]", "0", "4") "}", 4, "do not fit its shape" },
		{ "{" T("a", "[1]", "4", "0") "}", 4, "do not fit its shape" },
		{ "{" T("a", "[1]", "-4", "0") "}", 4, "two whole numbers" },
		{ "{" T("a", "[-1]", "0", "4") "}", 4, "at most 8 whole numbers" },
		{ "{" T("a", "[1.0]", "0", "4") "}", 4, "at most 8 whole numbers" },
		{ "{" T("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8" },
		{ "{" T("a", "[4294967296,4294967296,4294967296]", "0", "4") "}", 4,
		  "beyond 2^64" },
		{ "{" T("a", "[2305843009213693951]", "0", "9223372036854775804") "}", 4,
		  "still to come" },
		{ "{" T("a", "[1]", "0", "99999999999999999999") "}", 4, "two whole numbers" },
		{ "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
		  "dtype \"F8_E4M3\" is not read" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "needs dtype, shape and" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
		  "two numbers" },
		{ "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
		  "}}",
		  4, "is there twice" },
		{ "{\"a\":3}", 0, "a tensor is an object" },
		{ "{\"a\":{", 0, "ends early" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, "values of __metadata__ are strings" },
		{ "{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "\"a\" is there twice" },
		{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "a second __metadata__" },
		{ "{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "the character 0" },
		{ "{\"__metadata__\":{\"a\":\"\xff\"}}", 0, "not strict JSON" },
		{ "{" T("a", "[1,]", "0", "4") "}", 4, "not strict JSON" },
	};
	uint8_t b[1024];
	uint64_t huge = (uint64_t)1 << 60;
	struct pl_weights w;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_mem(b, file(b, bad[i].head, bad[i].bytes), &w);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s (%zu)",
			bad[i].says, i))
			printf("# %d %s\n", rc, err.msg);
		ok(!w.w && !w.meta && !w.memory, "and nothing is left");
	}
	memcpy(b, &huge, 8);
	ok(read_mem(b, 16, &w) == PL_EDATA && strstr(err.msg, "no safetensors file"),
	   "refused: a header of 2^60 bytes");
	huge = 90000000;
	memcpy(b, &huge, 8);
	ok(read_mem(b, 16, &w) == PL_EDATA && strstr(err.msg, "still to come"),
	   "refused: a header that does not come");
	ok(read_mem(b, 5, &w) == PL_EDATA, "refused: five bytes");
}

int main(void)
{
	round_trip();
	ALONE(large());
	good();
	hostile();
	return done_testing();
}
