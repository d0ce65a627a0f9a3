/* CSV in and out. */
#include <stdlib.h>

#include "io/csv.h"
#include "io/write.h"
#include "tap.h"

struct want {
	struct pl_buf text; /* "line:field|field|\n" */
	int stop_at;
	int as_text,
		differ; /* rows with their text; those whose text is not that of their fields */
};

/* Is the text of the row what pl_write_csv() makes of its fields? */
static bool is_text_right(const struct pl_csv_row *r)
{
	struct pl_writer w = { 0 };
	bool right;

	for (size_t i = 0; i < r->n; i++) {
		if (i)
			pl_write_char(&w, ',');
		pl_write_csv(&w, r->field[i], r->len[i]);
	}
	right = w.b.n == r->n_text && !memcmp(w.b.p ? (char *)w.b.p : "", r->text, r->n_text);
	pl_write_fini(&w);
	return right;
}

static int on_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct want *w = arg;
	int rc = pl_buf_printf(&w->text, err, "%lld:", (long long)r->line);

	w->as_text += r->text != NULL;
	w->differ += r->text && !is_text_right(r);
	if (w->stop_at && --w->stop_at == 0)
		return pl_fail(err, PL_ESTOP, "enough");
	for (size_t i = 0; i < r->n && rc >= 0; i++) {
		if (strlen(r->field[i]) != r->len[i])
			return pl_fail(err, PL_EINTERNAL, "length");
		rc = pl_buf_printf(&w->text, err, "%s|", r->field[i]);
	}
	return rc < 0 ? rc : pl_buf_printf(&w->text, err, "\n");
}

static int read_csv(const char *p, size_t n, struct want *w, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("x.csv", p, n, err);
	int rc;

	w->text.n = 0;
	rc = pl_csv_read(in, on_row, w, err);
	pl_in_close(in);
	return rc < 0 ? rc : pl_buf_put(&w->text, "", 1, err);
}

static void check(const char *csv, const char *want, const char *what)
{
	struct want w = { 0 };
	struct pl_err err = { 0 };
	int rc = read_csv(csv, strlen(csv), &w, &err);

	is_str(rc ? err.msg : (const char *)w.text.p, want, what);
	pl_buf_fini(&w.text);
}

/* A row without quotes is cut at its commas; the same row with a quoted field behind it is parsed.
 * Both have the same fields, whatever stands in them. */
static void test_plain(void)
{
	static const char some[] = "a1.- \t,,,";
	uint64_t seed = 7;
	int differ = 0, texts = 0, other = 0;

	for (int i = 0; i < 2000; i++) {
		struct want plain = { 0 }, parsed = { 0 };
		struct pl_err err = { 0 };
		char row[16], text[64];
		size_t n = 1 + pl_rng_next(&seed) % 12;

		for (size_t c = 0; c < n; c++)
			row[c] = some[pl_rng_next(&seed) % (sizeof(some) - 1)];
		row[n] = '\0';
		snprintf(text, sizeof(text), "x\n%s,z\n", row);
		differ += read_csv(text, strlen(text), &plain, &err) != 0;
		snprintf(text, sizeof(text), "\"x\"\n%s,\"z\"\n", row);
		differ += read_csv(text, strlen(text), &parsed, &err) != 0;
		differ += strcmp((char *)plain.text.p, (char *)parsed.text.p) != 0;
		texts += plain.as_text;
		other += plain.differ + parsed.differ + parsed.as_text;
		pl_buf_fini(&plain.text);
		pl_buf_fini(&parsed.text);
	}
	ok(!differ, "2,000 rows: cut at the commas as parsed");
	ok(!other && texts > 2500 && texts < 4000,
	   "the text of %d rows is that of their fields; the others have blanks or quotes", texts);
	check("a\rb\n\"c\",d\n e , f\t\n", "1:a|\n1:b|\n2:c|d|\n3:e|f|\n",
	      "parsed rows and cut ones by turns");
	check("\"a\"b\nc,d\n\"\ne,f\n", "3:a\"b\nc,d\n|\n4:e|f|\n",
	      "a line inside of a field is not cut, though its quotes are even");
}

static void test_long(void)
{
	struct want w = { 0 };
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	size_t n = 0, rows = 0, bad = 0;
	int rc = 0;

	for (int i = 0; i < 40000; i++)
		rc |= pl_buf_printf(&b, &err, "%d,name %d,\"quoted\nline %d\",%d.5\n", i, i % 10, i,
				    i);
	rc |= read_csv((const char *)b.p, b.n, &w, &err);
	ok(!rc, "40,000 rows of two lines each");
	for (const char *s = (const char *)w.text.p; rc == 0 && *s; rows++) {
		char line[100];

		n = (size_t)snprintf(line, sizeof(line),
				     "%zu:%zu|name %zu|quoted\nline %zu|%zu.5|\n", 2 * rows + 1,
				     rows, rows % 10, rows, rows);
		bad += strncmp(s, line, n) != 0;
		s += n;
		if (bad)
			break;
	}
	ok(!bad && rows == 40000, "all right, with their lines");
	pl_buf_fini(&b);
	pl_buf_fini(&w.text);
}

static void test_bad(void)
{
	struct want w = { 0 };
	struct pl_err err = { 0 };
	char *many = malloc(200001);

	ok(read_csv("a,b\n\"open,c\nd,e\n", 16, &w, &err) == PL_EDATA && strstr(err.msg, "line 2"),
	   "a quote that is not closed: %s", err.msg);
	memset(many, ',', 200000);
	err.code = 0;
	ok(read_csv(many, 200000, &w, &err) == PL_EDATA, "200,001 fields: %s", err.msg);
	free(many);
	err.code = 0;
	w.stop_at = 2;
	ok(read_csv("1\n2\n3\n", 6, &w, &err) == PL_ESTOP && w.text.n == 7,
	   "stopped by the callback");
	pl_buf_fini(&w.text);
}

static void test_out(void)
{
	static const char *const s[] = { "plain", "",	    "a,b", "say \"hi\"", "two\nlines",
					 " lead", "trail ", "\"",  "a\rb" };
	struct pl_writer text = { 0 };
	struct pl_err err = { 0 };
	struct want w = { 0 };
	int rc;

	for (size_t i = 0; i < PL_LEN(s); i++) {
		if (i)
			pl_write_char(&text, ',');
		pl_write_csv(&text, s[i], strlen(s[i]));
	}
	pl_write_char(&text, '\n');
	rc = read_csv((const char *)text.b.p, text.b.n, &w, &err);
	is_str(rc ? err.msg : (const char *)w.text.p,
	       "1:plain||a,b|say \"hi\"|two\nlines| lead|trail |\"|a\rb|\n",
	       "written and read back");
	pl_write_fini(&text);
	pl_buf_fini(&w.text);
}

int main(void)
{
	check("a,b\n1,2\n", "1:a|b|\n2:1|2|\n", "two rows");
	check("a,b\r\n1,2\r\n", "1:a|b|\n2:1|2|\n", "CRLF");
	check("a,b\n\n\n1,", "1:a|b|\n4:1||\n", "empty lines, no newline at the end");
	check("\xef\xbb\xbfid,x\n", "1:id|x|\n", "byte order mark");
	check("\"a \"\"q\"\"\", b ,\"x\ny\"\nz\n", "1:a \"q\"|b|x\ny|\n3:z|\n", "quotes");
	check("5\" disk,x", "1:5\" disk|x|\n", "a stray quote");
	check("", "", "nothing");
	test_plain();
	test_long();
	test_bad();
	test_out();
	return done_testing();
}
