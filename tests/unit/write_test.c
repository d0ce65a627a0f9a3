/* The writer: failures that stick, pieces of text and CSV; JSON, checked by the reader too. */
#include <math.h>
#include <stdlib.h>

#include "io/json.h"
#include "io/write.h"
#include "tap.h"

static struct pl_writer w;
static struct pl_buf buf; /* the last text, ended by NUL */

static void begin(int indent)
{
	pl_write_init(&w, NULL, indent);
}

static const char *end(void)
{
	pl_write_char(&w, '\0');
	pl_buf_fini(&buf);
	buf = w.b;
	w.b = (struct pl_buf){ 0 };
	return w.fail.code ? w.fail.msg : (const char *)buf.p;
}

static void test_structure(void)
{
	for (int indent = 0; indent <= 2; indent += 2) {
		begin(indent);
		pl_json_open(&w, '{');
		pl_json_str(&w, "a", "x");
		pl_json_str(&w, "none", NULL);
		pl_json_key(&w, "list");
		pl_json_open(&w, '[');
		pl_json_put_int(&w, 1);
		pl_json_put_bool(&w, true);
		pl_json_put_bool(&w, false);
		pl_json_open(&w, '{');
		pl_json_close(&w);
		pl_json_close(&w);
		pl_json_int(&w, "n", INT64_MIN);
		pl_json_real(&w, "r", 0.1);
		pl_json_close(&w);
		is_str(end(),
		       indent ? "{\n  \"a\": \"x\",\n  \"none\": null,\n  \"list\": [\n    1,\n    "
				"true,\n    false,\n    {}\n  ],\n  \"n\": "
				"-9223372036854775808,\n  \"r\": 0.1\n}"
			      : "{\"a\":\"x\",\"none\":null,\"list\":[1,true,false,{}],"
				"\"n\":-9223372036854775808,\"r\":0.1}",
		       indent ? "indented" : "compact");
	}
	begin(0);
	pl_json_put_int(&w, 1);
	pl_json_put_int(&w, INT64_MAX);
	is_str(end(), "1\n9223372036854775807", "values of their own: one a line");
	begin(0);
	for (int i = 0; i < 1000; i++)
		pl_json_open(&w, '[');
	is_i64(pl_write_end(&w, NULL), PL_EINTERNAL, "nested too deep");
	begin(0);
	pl_json_close(&w);
	is_i64(pl_write_end(&w, NULL), PL_EINTERNAL, "closed too often");
	begin(0);
	pl_json_open(&w, '{');
	is_i64(pl_write_end(&w, NULL), PL_EINTERNAL, "not closed");
}

static const char *str(const char *s, size_t n)
{
	begin(0);
	pl_json_put_str(&w, s, n);
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
	pl_json_put_real(&w, NAN);
	pl_json_put_real(&w, INFINITY);
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
		pl_json_put_real(&w, x);
		y = strtod(end(), NULL);
		bad += memcmp(&x, &y, 8) != 0;
		longer += i < PL_LEN(v) && buf.n > 25;
	}
	ok(!bad && !longer, "doubles read back the same");
	begin(0);
	pl_json_put_real(&w, 0.1);
	pl_json_put_real(&w, 250);
	is_str(end(), "0.1\n250", "and are short");
}

static void test_pieces(void)
{
	static const char *const cells[] = { "plain", "",	"a,b", "say \"hi\"", "x\ny",
					     " lead", "trail ", "\"",  "a\rb",	     "t\t" };
	static const char *const raw[] = {
		"{\"a\":[1,2.5e3,null]}", "[inf,N/A]", "[1,", "", "{\"a\": 01}", "\"x\ny\"", "true"
	};
	char big[1000];

	begin(0);
	for (size_t i = 0; i < PL_LEN(cells); i++) {
		pl_write_csv(&w, cells[i], strlen(cells[i]));
		pl_write_char(&w, ';');
	}
	is_str(end(),
	       "plain;;\"a,b\";\"say \"\"hi\"\"\";\"x\ny\";\" lead\";\"trail "
	       "\";\"\"\"\";\"a\rb\";\"t\t\";",
	       "cells of CSV");
	begin(0);
	for (size_t i = 0; i < PL_LEN(raw); i++) {
		pl_write_json(&w, raw[i], strlen(raw[i]));
		pl_write_char(&w, ';');
	}
	is_str(end(),
	       "{\"a\":[1,2.5e3,null]};[\"inf\",\"N/"
	       "A\"];\"[1,\";\"\";{\"a\":\"01\"};\"x\\ny\";true;",
	       "values as a file had them");
	begin(0);
	pl_write_int(&w, INT64_MIN);
	pl_write_char(&w, ' ');
	pl_write_decimal(&w, -5, 3);
	pl_write_char(&w, ' ');
	pl_write_decimal(&w, 150, 2);
	pl_write_char(&w, ' ');
	pl_write_us(&w, 1500);
	pl_write_char(&w, ' ');
	pl_write_us(&w, -1000);
	pl_write_char(&w, ' ');
	pl_write_real(&w, 0.1);
	is_str(end(), "-9223372036854775808 -0.005 1.50 1.5 -1 0.1", "numbers");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	begin(0);
	pl_write_format(&w, "<%s|%d>", big, 7);
	ok(strlen(end()) == sizeof(big) - 1 + 4 && !strcmp((char *)buf.p + sizeof(big), "|7>"),
	   "a long text");
}

/* A full disk: nothing has to be checked before the end. */
static void test_failure(void)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open("/dev/full", false, &err);
	int rc;

	if (!out) {
		ok(true, "# SKIP no /dev/full");
		return;
	}
	pl_write_init(&w, out, 2);
	pl_json_open(&w, '[');
	for (int i = 0; i < 100000; i++)
		pl_json_put_int(&w, i);
	ok(w.b.cap < 1 << 18, "what is written does not pile up");
	ok(pl_write_check(&w, NULL) == PL_EIO, "the first failure sticks");
	rc = pl_json_end(&w, &err);
	ok(rc == PL_EIO && strstr(err.msg, "/dev/full"), "and is the result at the end");
	pl_out_abort(out);
}

int main(void)
{
	test_pieces();
	test_failure();
	test_structure();
	test_strings();
	test_reals();
	pl_buf_fini(&buf);
	return done_testing();
}
