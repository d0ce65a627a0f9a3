/* The pull reader and the exact numbers of io/json.h; the digits of import/scan.h. */
#include <stdio.h>
#include <stdlib.h>

#include "import/scan.h"
#include "io/json.h"
#include "tap.h"

/* Tokens of a text as one letter each; '!' is an error. */
static const char *tokens(const char *text, bool *lenient)
{
	static const char letter[] = "$" /* end */ "{}[]ksntfzw!";
	static char out[256];
	enum pl_json_type t;
	struct pl_json j;
	size_t n = 0;

	pl_json_init(&j, text, strlen(text));
	do {
		t = pl_json_next(&j);
		out[n++] = letter[t];
	} while (t != PL_JSON_END && t != PL_JSON_ERROR && n < sizeof(out) - 1);
	out[n] = '\0';
	*lenient = j.lenient;
	return out;
}

static void test_tokens(void)
{
	static const struct {
		const char *text, *want;
		bool lenient;
	} t[] = {
		{ "", "$", false },
		{ " 1 ", "n$", false },
		{ "{}", "{}$", false },
		{ "[]", "[]$", false },
		{ "{\"a\":1,\"b\":[true,false,null,\"x\"]}", "{knk[tfzs]}$", false },
		{ "[1,[2,[3]],{\"k\":{}}]", "[n[n[n]]{k{}}]$", false },
		{ "[inf,-inf,nan,N/A]", "[wwww]$", true },
		{ "[1,2,]", "[nn]$", true },
		{ "\"a\tb\"", "s$", true },
		{ "\"\\q\"", "s$", true },
		{ "\"\\u12g4\"", "s$", true },
		{ "\"\xc3\xa9\"", "s$", false },
		{ "\"\xff\"", "s$", true },
		{ "\"\xc0\x80\"", "s$", true },
		{ "\"\xed\xa0\x80\"", "s$", true },
		{ "[1 2]", "[n!", false },
		{ "{\"a\" 1}", "{!", false },
		{ "{1:2}", "{!", false },
		{ "[1}", "[n!", false },
		{ "{\"a\":}", "{k!", false },
		{ "[1", "[n!", false },
		{ "\"abc", "!", false },
		{ "\"abc\\", "!", true },
		{ "[01, 1., .5, +1, -0, 1e5, 1E-2]", "[wwwwnnn]$", true },
	};

	for (size_t i = 0; i < PL_LEN(t); i++) {
		bool lenient;
		const char *got = tokens(t[i].text, &lenient);

		ok(!strcmp(got, t[i].want) && (lenient == t[i].lenient || strchr(got, '!')),
		   "tokens of %s: %s", t[i].text, got);
	}
}

/* Strings are read eight bytes at a time: what is odd is seen wherever it stands. */
static void test_strings(void)
{
	static const struct {
		const char *odd;
		bool lenient, escaped;
	} t[] = {
		{ "x", false, false },	  { "\\n", false, true },
		{ "\\\"", false, true },  { "\x1f", true, false },
		{ "\x7f", false, false }, { "\xc3\xa9", false, false },
		{ "\xff", true, false },  { "\\q", true, true },
		{ " ", false, false },	  { "\xf0\x9f\x98\x80", false, false },
	};
	int wrong = 0;

	for (size_t i = 0; i < PL_LEN(t); i++)
		for (size_t at = 0; at < 20; at++)
			for (size_t after = 0; after < 12; after++) {
				char text[64];
				size_t n = strlen(t[i].odd) + at + after;
				struct pl_json j;

				snprintf(text, sizeof(text), "\"%.*s%s%.*s\"", (int)at,
					 "!#abcdefghijklmnopqr", t[i].odd, (int)after,
					 "[]{},:789~_@");
				pl_json_init(&j, text, n + 2);
				wrong += pl_json_next(&j) != PL_JSON_STRING || j.len != n ||
					 j.lenient != t[i].lenient || j.escaped != t[i].escaped ||
					 pl_json_next(&j) != PL_JSON_END;
				pl_json_init(&j, text, n + 1);
				wrong += pl_json_next(&j) != PL_JSON_ERROR;
			}
	ok(!wrong, "odd bytes at every place of a string (%d wrong)", wrong);
}

static void test_depth(void)
{
	char deep[200];
	bool lenient;

	memset(deep, '[', 64);
	memset(deep + 64, ']', 64);
	deep[128] = '\0';
	ok(strchr(tokens(deep, &lenient), '$') != NULL, "64 levels are read");
	memset(deep, '[', 65);
	memset(deep + 65, ']', 65);
	deep[130] = '\0';
	ok(strchr(tokens(deep, &lenient), '!') != NULL, "65 levels are an error, not a crash");
}

static void test_skip(void)
{
	const char text[] = "{\"a\": [1, {\"b\": \"]\"}] , \"c\":2, \"d\": [ 5 , \"x\" ]}";
	struct pl_json j;
	const char *p;
	size_t n;

	pl_json_init(&j, text, strlen(text));
	ok(pl_json_next(&j) == PL_JSON_OBJECT && pl_json_next(&j) == PL_JSON_KEY, "first key");
	ok(pl_json_skip(&j, &p, &n) == 0 && n == 15 && !memcmp(p, "[1, {\"b\": \"]\"}]", n),
	   "skip gives the raw range of a nested value");
	ok(pl_json_next(&j) == PL_JSON_KEY && j.len == 1 && *j.text == 'c', "the key after it");
	ok(pl_json_skip(&j, &p, &n) == 0 && n == 1 && *p == '2', "skip a number");
	ok(pl_json_next(&j) == PL_JSON_KEY && pl_json_next(&j) == PL_JSON_ARRAY, "into an array");
	ok(pl_json_skip(&j, &p, &n) == 0 && n == 1 && *p == '5', "skip the first element");
	ok(pl_json_skip(&j, &p, &n) == 0 && n == 3 && *p == '"',
	   "skip the second, without its comma");
	ok(pl_json_skip(&j, &p, &n) == PL_EDATA, "nothing is left to skip");
}

static void test_unescape(void)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "plain", "plain" },
		{ "a\\n\\t\\\"\\\\\\/", "a\n\t\"\\/" },
		{ "\\u0041\\u00e9\\u20ac", "A\xc3\xa9\xe2\x82\xac" },
		{ "\\ud83d\\ude00", "\xf0\x9f\x98\x80" },
		{ "\\ud800x", "\xef\xbf\xbdx" },
		{ "\\udc00", "\xef\xbf\xbd" },
		{ "\\q\\u12", "\\q\\u12" },
		{ "end\\", "end\\" },
	};

	for (size_t i = 0; i < PL_LEN(t); i++) {
		char out[64];
		size_t n = pl_json_unescape(t[i].in, strlen(t[i].in), out);

		out[n] = '\0';
		is_str(out, t[i].out, t[i].in);
	}
}

static void test_time(void)
{
	static const struct {
		const char *text;
		int64_t unit;
		bool good;
		int64_t ns;
	} t[] = {
		{ "0", 1000, true, 0 },
		{ "1712195495519689.123", 1000, true, 1712195495519689123 },
		{ "1706850122853863", 1000, true, 1706850122853863000 },
		{ "0.0005", 1000, true, 1 },
		{ "0.0004999", 1000, true, 0 },
		{ "-1.5", 1000, true, -1500 },
		{ "-0.0005", 1000, true, -1 },
		{ "1.5e3", 1000, true, 1500000 },
		{ "25e-4", 1000, true, 3 },
		{ "0.8486716747283936", 1000000000, true, 848671675 },
		{ "9223372036854775.807", 1000, true, INT64_MAX },
		{ "9223372036854775.808", 1000, false, INT64_MAX },
		{ "-99999999999999999999", 1000, false, INT64_MIN },
		{ "1e400", 1000, false, INT64_MAX },
		{ "1e-400", 1000, true, 0 },
		{ "0e999999999", 1000, true, 0 },
		{ "0.00000000000000000000000000000000000000000000000000001", 1000, true, 0 },
		{ "1.00000000000000000000000000000000000000000000000000001", 1000, true, 1000 },
		{ "", 1000, false, 0 },
		{ "-", 1000, false, 0 },
		{ "1.2.3", 1000, false, 0 },
		{ "nan", 1000, false, 0 },
		{ "1e", 1000, false, 0 },
	};

	for (size_t i = 0; i < PL_LEN(t); i++) {
		pl_ns ns = 77;
		bool good = pl_json_time_ns(t[i].text, strlen(t[i].text), t[i].unit, &ns);

		ok(good == t[i].good && ns == t[i].ns, "time \"%s\" is %lld ns", t[i].text,
		   (long long)ns);
	}
}

static void test_numbers(void)
{
	int64_t v = 0;
	int scale = 0;

	ok(pl_json_i64("-9223372036854775808", 20, &v) && v == INT64_MIN, "the least integer");
	ok(pl_json_i64("9223372036854775807", 19, &v) && v == INT64_MAX, "the greatest integer");
	ok(!pl_json_i64("9223372036854775808", 19, &v), "one more is refused");
	ok(!pl_json_i64("-9223372036854775809", 20, &v), "one less is refused");
	ok(!pl_json_i64("12a", 3, &v) && !pl_json_i64("", 0, &v) && !pl_json_i64("-", 1, &v),
	   "what is no integer is refused");
	ok(pl_json_decimal("1.50", 4, &v, &scale) && v == 150 && scale == 2, "1.50 keeps its zero");
	ok(pl_json_decimal("-0.017857142857142856", 21, &v, &scale) && v == -17857142857142856 &&
		   scale == 18,
	   "leading zeros are no digits");
	ok(!pl_json_decimal("1234567890.1234567891", 21, &v, &scale), "20 digits are refused");
	ok(!pl_json_decimal("1e5", 3, &v, &scale), "an exponent is refused");
}

/* Digits are read eight at a time; what follows them does not count. */
static void test_digits(void)
{
	static const char digits[] = "9876543210";
	char text[80];
	int wrong = 0;

	for (size_t n = 0; n <= 10; n++)
		for (int c = 0; c < 256; c++) {
			uint64_t v = 12, want = 12;
			size_t take = n < 8 ? n : 8;

			if (c >= '0' && c <= '9')
				continue;
			memset(text, c, sizeof(text));
			memcpy(text, digits, n);
			for (size_t i = 0; i < take; i++)
				want = want * 10 + (uint64_t)(digits[i] - '0');
			wrong += pl_scan_digits(text, &v) != take || v != want;
		}
	ok(!wrong, "digits before every byte (%d wrong)", wrong);
}

int main(void)
{
	test_tokens();
	test_strings();
	test_depth();
	test_skip();
	test_unescape();
	test_time();
	test_numbers();
	test_digits();
	return done_testing();
}
