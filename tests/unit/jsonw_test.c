/* The JSON writer: commas, indentation, escapes, numbers; checked by the reader too. */
#include <math.h>
#include <stdlib.h>

#include "io/json.h"
#include "tap.h"

static struct pl_buf buf;
static struct pl_out *out;
static struct pl_jsonw w;

static void begin(int indent)
{
	buf.n = 0;
	out = pl_out_open_buf(&buf, NULL);
	pl_jsonw_init(&w, out, indent);
}

static const char *end(void)
{
	struct pl_err err = { 0 };

	if (pl_out_close(out, &err) < 0 || pl_buf_put(&buf, "", 1, &err) < 0)
		return NULL;
	return (const char *)buf.p;
}

static void test_structure(void)
{
	int rc = 0;

	for (int indent = 0; indent <= 2; indent += 2) {
		begin(indent);
		rc |= pl_jsonw_open(&w, '{', NULL);
		rc |= pl_jsonw_kstr(&w, "a", "x", NULL);
		rc |= pl_jsonw_kstr(&w, "none", NULL, NULL);
		rc |= pl_jsonw_key(&w, "list", NULL);
		rc |= pl_jsonw_open(&w, '[', NULL);
		rc |= pl_jsonw_i64(&w, 1, NULL);
		rc |= pl_jsonw_bool(&w, true, NULL) | pl_jsonw_bool(&w, false, NULL);
		rc |= pl_jsonw_raw(&w, "{\"r\":2}", 7, NULL);
		rc |= pl_jsonw_open(&w, '{', NULL) | pl_jsonw_close(&w, NULL);
		rc |= pl_jsonw_close(&w, NULL);
		rc |= pl_jsonw_ki64(&w, "n", INT64_MIN, NULL);
		rc |= pl_jsonw_kreal(&w, "r", 0.1, NULL);
		rc |= pl_jsonw_close(&w, NULL);
		is_str(end(),
		       indent ? "{\n  \"a\": \"x\",\n  \"none\": null,\n  \"list\": [\n    1,\n    "
				"true,\n    false,\n    {\"r\":2},\n    {}\n  ],\n  \"n\": "
				"-9223372036854775808,\n  \"r\": 0.1\n}"
			      : "{\"a\":\"x\",\"none\":null,\"list\":[1,true,false,{\"r\":2},{}],"
				"\"n\":-9223372036854775808,\"r\":0.1}",
		       indent ? "indented" : "compact");
	}
	begin(0);
	rc |= pl_jsonw_i64(&w, 1, NULL) | pl_jsonw_i64(&w, INT64_MAX, NULL);
	is_str(end(), "1\n9223372036854775807", "values of their own: one a line");
	ok(!rc, "no failure");
	begin(0);
	for (rc = 0; !rc && w.depth < 1000;)
		rc = pl_jsonw_open(&w, '[', NULL);
	ok(rc == PL_EINTERNAL, "nested too deep");
	end();
	begin(0);
	ok(pl_jsonw_close(&w, NULL) == PL_EINTERNAL, "closed too often");
	end();
}

static const char *str(const char *s, size_t n)
{
	begin(0);
	if (pl_jsonw_str(&w, s, n, NULL) < 0)
		return NULL;
	return end();
}

static void test_strings(void)
{
	char raw[256], back[2048];
	unsigned bad = 0;

	is_str(str("a\"b\\c/\n\t\r\b\f\x01", 12), "\"a\\\"b\\\\c/\\n\\t\\r\\b\\f\\u0001\"",
	       "escapes");
	is_str(str("\0", 1), "\"\\u0000\"", "NUL");
	is_str(str("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 15),
	       "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"", "UTF-8 stays");
#define BAD "\xef\xbf\xbd"
	is_str(str("\xff|\xc3|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82", 18),
	       "\"" BAD "|" BAD "|" BAD BAD "|" BAD BAD BAD "|" BAD BAD BAD BAD "|" BAD BAD "\"",
	       "what is not UTF-8 becomes U+FFFD");
	for (unsigned i = 0; i < 256; i++) /* ASCII through our own reader */
		raw[i] = (char)(i % 128);
	for (unsigned n = 0; n <= 256; n += 16) {
		const char *text = str(raw, n);
		struct pl_json j;
		size_t k;

		pl_json_init(&j, text, buf.n - 1);
		bad += pl_json_next(&j) != PL_JSON_STRING || j.lenient;
		k = pl_json_unescape(j.text, j.len, back);
		bad += k != n || memcmp(back, raw, n) != 0;
	}
	ok(!bad, "the reader gives the same strings");
}

static void test_reals(void)
{
	static const double v[] = { 0,
				    -0.0,
				    1,
				    0.1,
				    1e300,
				    -1.5e-300,
				    1.0 / 3,
				    5e-324,
				    1e15,
				    123456789.125,
				    2.2250738585072014e-308,
				    0.30000000000000004 };
	unsigned bad = 0, longer = 0;
	uint64_t seed = 3;

	begin(0);
	if (pl_jsonw_real(&w, NAN, NULL) | pl_jsonw_real(&w, INFINITY, NULL))
		ok(false, "written");
	is_str(end(), "null\nnull", "not finite: null");
	for (unsigned i = 0; i < 5000; i++) {
		uint64_t bits = pl_rng_next(&seed);
		double x, y;

		memcpy(&x, &bits, 8);
		if (i < PL_LEN(v))
			x = v[i];
		if (!isfinite(x))
			continue;
		begin(0);
		bad += pl_jsonw_real(&w, x, NULL) < 0;
		y = strtod(end(), NULL);
		bad += memcmp(&x, &y, 8) != 0;
		longer += i < PL_LEN(v) && buf.n > 25;
	}
	ok(!bad && !longer, "doubles read back the same");
	begin(0);
	if (pl_jsonw_real(&w, 0.1, NULL) | pl_jsonw_real(&w, 250, NULL))
		ok(false, "written");
	is_str(end(), "0.1\n250", "and are short");
}

int main(void)
{
	test_structure();
	test_strings();
	test_reals();
	pl_buf_fini(&buf);
	return done_testing();
}
