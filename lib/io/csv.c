/*
 * Reading CSV through libcsv (RFC 4180 and the forms of spreadsheets).
 *
 * libcsv does not report where a row begins, so it gets one line at a time. A line continues a row
 * if that row already has fields or an odd number of quotes. The fields of a row are copied into
 * one buffer, because libcsv reuses its own.
 *
 * A row on a line of its own without quotes, which nearly all are, needs no parser: it is cut at
 * the commas, to the same fields. That takes a third of the time.
 */
#include <csv.h>

#include "io/csv.h"

#define WINDOW	   ((size_t)256 << 10)
#define FIELD_MAX  ((size_t)1 << 20) /* libcsv grows its buffer by GROW at a time */
#define GROW	   4096
#define FIELDS_MAX 65536u
#define PLAIN_MAX  ((size_t)64 << 10) /* bytes of a line that is cut at the commas */

struct reader {
	const char *name;
	int (*row)(void *arg, const struct pl_csv_row *r, struct pl_err *err);
	void *arg;
	struct pl_err *err;
	int rc;
	struct pl_buf text; /* the fields of the row, each with its NUL */
	size_t *len, cap_len, n;
	const char **field;
	size_t cap_field;
	int64_t line, start; /* the current line, and the first one of the row */
	bool odd;	     /* an odd number of quotes in the row so far */
	bool inside;	     /* the parser is inside a row */
};

static void on_field(void *s, size_t n, void *arg)
{
	struct reader *r = arg;

	if (r->rc < 0)
		return;
	if (r->n >= FIELDS_MAX) {
		r->rc = pl_fail(r->err, PL_EDATA, "%s: line %lld: more than %u fields", r->name,
				(long long)r->start, FIELDS_MAX);
		return;
	}
	r->rc = pl_grow(&r->len, &r->cap_len, r->n + 1, sizeof(*r->len), r->err);
	if (r->rc >= 0)
		r->rc = pl_buf_put(&r->text, s, n, r->err);
	if (r->rc >= 0)
		r->rc = pl_buf_put(&r->text, "", 1, r->err);
	if (r->rc >= 0)
		r->len[r->n++] = n;
}

static void on_row(int end, void *arg)
{
	struct reader *r = arg;
	const char *p;

	(void)end;
	if (r->rc >= 0)
		r->rc = pl_grow(&r->field, &r->cap_field, r->n + 1, sizeof(*r->field), r->err);
	if (r->rc >= 0) {
		struct pl_csv_row row = { .len = r->len, .n = r->n, .line = r->start };

		p = (const char *)r->text.p;
		for (size_t i = 0; i < r->n; i++) {
			r->field[i] = p;
			p += r->len[i] + 1;
		}
		row.field = r->field;
		r->rc = r->row(r->arg, &row, r->err);
	}
	r->n = r->text.n = 0;
	r->odd = false;
	r->start = r->line;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Without the blanks at both ends, as libcsv leaves them out. False: it has none. */
static bool strip(char **from, char **end)
{
	char *s = *from, *e = *end;

	while (s < e && is_blank(*s))
		s++;
	while (s < e && is_blank(e[-1]))
		e--;
	if (s == *from && e == *end)
		return false;
	*from = s;
	*end = e;
	return true;
}

/* Cuts the text at its commas; *stripped: a field had blanks at its ends. */
static int cut_fields(struct reader *r, char *s, char *end, bool *stripped)
{
	for (;;) {
		char *comma = memchr(s, ',', (size_t)(end - s));
		char *from = s, *to = comma ? comma : end;

		if (r->n >= FIELDS_MAX)
			return pl_fail(r->err, PL_EDATA, "%s: line %lld: more than %u fields",
				       r->name, (long long)r->line, FIELDS_MAX);
		if (r->n >= r->cap_len || r->n >= r->cap_field) {
			PL_CHECK(pl_grow(&r->len, &r->cap_len, r->n + 1, sizeof(*r->len), r->err));
			PL_CHECK(pl_grow(&r->field, &r->cap_field, r->n + 1, sizeof(*r->field),
					 r->err));
		}
		if (from < to && (is_blank(*from) || is_blank(to[-1])))
			*stripped |= strip(&from, &to);
		*to = '\0';
		r->len[r->n] = (size_t)(to - from);
		r->field[r->n++] = from;
		if (!comma)
			return 0;
		s = comma + 1;
	}
}

/* A row without quotes on a line of n bytes, with its end. */
static int feed_plain(struct reader *r, const uint8_t *p, size_t n)
{
	struct pl_csv_row row = { .line = r->line };
	bool stripped = false;
	char *s, *end;

	r->n = r->text.n = 0;
	PL_CHECK(pl_buf_put(&r->text, p, n, r->err));
	s = (char *)r->text.p;
	end = s + n - 1;
	end -= end > s && end[-1] == '\r';
	row.n_text = (size_t)(end - s);
	r->line++;
	while (s < end && is_blank(*s))
		s++;
	if (s == end) { /* nothing on it */
		r->text.n = 0;
		return 0;
	}
	s = (char *)r->text.p;
	PL_CHECK(cut_fields(r, s, end, &stripped));
	row.field = r->field;
	row.len = r->len;
	row.n = r->n;
	row.text = stripped ? NULL : (const char *)p;
	r->n = r->text.n = 0;
	return r->row(r->arg, &row, r->err);
}

/* Is it a whole line, with nothing that only a parser understands? */
static bool is_plain(const struct reader *r, const uint8_t *p, size_t n)
{
	const uint8_t *cr;

	if (r->inside || n > PLAIN_MAX || p[n - 1] != '\n' || memchr(p, '"', n))
		return false;
	cr = memchr(p, '\r', n);
	return !cr || cr == p + n - 2;
}

static int feed(struct reader *r, struct csv_parser *csv, const uint8_t *p, size_t n)
{
	bool odd = false;

	if (is_plain(r, p, n)) {
		r->rc = feed_plain(r, p, n);
		return r->rc;
	}
	if (!r->n && !r->odd)
		r->start = r->line;
	for (const uint8_t *q = p; (q = memchr(q, '"', (size_t)(p + n - q))); q++)
		odd = !odd;
	r->odd ^= odd;
	if (csv_parse(csv, p, n, on_field, on_row, r) != n && r->rc >= 0)
		r->rc = pl_fail(r->err, csv_error(csv) == CSV_EPARSE ? PL_EDATA : PL_ENOMEM,
				"%s: line %lld: %s", r->name, (long long)r->start,
				csv_strerror(csv_error(csv)));
	if (r->rc >= 0 && csv_get_buffer_size(csv) > FIELD_MAX)
		r->rc = pl_fail(r->err, PL_EDATA,
				"%s: line %lld: a field of more than %zu MiB (a quote that is not "
				"closed?)",
				r->name, (long long)r->start, FIELD_MAX >> 20);
	r->line += p[n - 1] == '\n';
	r->inside = csv->pstate != 0; /* that of a parser before its first row */
	return r->rc;
}

/* Feed all lines; a line that is longer than the window comes in pieces. */
static int feed_all(struct reader *r, struct csv_parser *csv, struct pl_in *in)
{
	bool first = true;

	for (;;) {
		const uint8_t *p, *end;
		int64_t n = pl_in_peek(in, WINDOW, &p, r->err);
		size_t at = 0, whole = (size_t)n;

		if (n <= 0)
			return (int)n;
		if (first && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3))
			at = 3;
		first = false;
		for (; at < whole; at = (size_t)(end - p)) {
			end = memchr(p + at, '\n', whole - at);
			end = end ? end + 1 : p + whole;
			if (feed(r, csv, p + at, (size_t)(end - p) - at) < 0)
				return r->rc;
		}
		pl_in_skip(in, whole);
	}
}

int pl_csv_read(struct pl_in *in,
		int (*row)(void *arg, const struct pl_csv_row *r, struct pl_err *err), void *arg,
		struct pl_err *err)
{
	struct reader r = {
		.name = pl_in_name(in), .row = row, .arg = arg, .err = err, .line = 1, .start = 1
	};
	struct csv_parser csv;
	int rc;

	if (csv_init(&csv, 0) != 0)
		return pl_fail(err, PL_ENOMEM, "%s: out of memory", r.name);
	csv_set_blk_size(&csv, GROW);
	csv_set_realloc_func(&csv, pl_realloc);
	csv_set_free_func(&csv, pl_free);
	rc = feed_all(&r, &csv, in);
	if (rc >= 0 && ((csv.quoted && r.odd) || csv_fini(&csv, on_field, on_row, &r) != 0))
		rc = pl_fail(err, PL_EDATA, "%s: line %lld: a quote is not closed", r.name,
			     (long long)r.start);
	if (rc >= 0)
		rc = r.rc;
	csv_free(&csv);
	pl_buf_fini(&r.text);
	pl_free(r.len);
	pl_free(r.field);
	return rc < 0 ? rc : 0;
}
