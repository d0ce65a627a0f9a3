/*
 * The lexer: lines of words, names quoted where they must be.
 *
 * The whole text is read first (texts are small) and words are unescaped in place, which never
 * makes them longer. A NUL replaces the blank, the quote or the end of line behind each. Linear.
 */
#include <ctype.h>

#include "core/bytes.h"
#include "core/words.h"
#include "io/container.h"
#include "lang/internal.h"

#define TEXT_MAX (256u << 20) /* a longer text is refused */

int pl_lang_fail(const struct pl_lang_reader *r, uint32_t column, struct pl_err *err,
		 const char *fmt, ...)
{
	char msg[768];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (!r->name)
		return pl_fail(err, PL_EDATA, "%s", msg);
	if (!column)
		return pl_fail(err, PL_EDATA, "%s: line %u: %s", r->name, r->line, msg);
	return pl_fail(err, PL_EDATA, "%s: line %u, column %u: %s", r->name, r->line, column, msg);
}

/* A newline ends the text, so that the last word can be ended, too. */
static int begin(struct pl_lang_reader *r, struct pl_err *err)
{
	if (r->text.n >= 3 && !memcmp(r->text.p, "\xef\xbb\xbf", 3))
		r->at = 3; /* a byte-order mark */
	PL_CHECK(pl_buf_put(&r->text, "\n", 1, err));
	return pl_alloc(&r->seen, r->schema->n_rows + 1, sizeof(*r->seen), err);
}

/* A file that was taken for a text: a stream such as a trace, or a file of a profiler. */
static int refuse_streams(const struct pl_lang_reader *r, struct pl_err *err)
{
	const uint8_t *p = r->text.p;
	const char *what = NULL, *use = NULL;
	char kind[8], text[16];

	if (r->text.n >= 28 && pl_container_probe(p, r->text.n)) {
		snprintf(text, sizeof(text), "a %s",
			 pl_container_kind_name(pl_le32_get(p + 24), kind));
		what = text;
		use = pl_container_kind_use(pl_le32_get(p + 24));
	} else if (r->text.n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
		what = "compressed data";
	} else if (r->text.n && (*p == '{' || *p == '[')) {
		what = "JSON";
	}
	if (what && !use)
		use = "type, for a profiler's file: replay FILE";
	return what ? pl_fail(err, PL_EDATA,
			      "%s: this is %s, not the text of a %s; %s; see paceline-%s(5)",
			      r->name, what, r->schema->name, use, r->schema->name)
		    : 0;
}

int pl_lang_open(struct pl_lang_reader *r, const struct pl_lang_schema *s, struct pl_in *in,
		 const char *name, struct pl_err *err)
{
	*r = (struct pl_lang_reader){ .schema = s, .name = name };
	PL_CHECK(pl_in_read_all(in, TEXT_MAX, &r->text, err));
	PL_CHECK(refuse_streams(r, err));
	return begin(r, err);
}

int pl_lang_open_text(struct pl_lang_reader *r, const struct pl_lang_schema *s, const char *text,
		      struct pl_err *err)
{
	*r = (struct pl_lang_reader){ .schema = s, .begun = true };
	PL_CHECK(pl_buf_put(&r->text, text, strlen(text), err));
	return begin(r, err);
}

void pl_lang_close(struct pl_lang_reader *r)
{
	pl_buf_fini(&r->text);
	pl_free(r->word);
	pl_free(r->seen);
	pl_lang_end(&r->st);
	memset(r, 0, sizeof(*r));
}

/* ---- words ----------------------------------------------------------------------------------- */

static int hex(int c)
{
	return isdigit(c) ? c - '0' : isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

/* The escape at p (behind the backslash): its byte, and its length in *n; -1. */
static int escape(const char *p, size_t *n)
{
	static const char from[] = "\"\\ntr", to[] = "\"\\\n\t\r";
	const char *f = *p ? strchr(from, *p) : NULL;

	*n = f ? 1 : 3;
	if (f)
		return to[f - from];
	if (*p != 'x' || hex((unsigned char)p[1]) < 0 || hex((unsigned char)p[2]) < 0)
		return -1;
	return hex((unsigned char)p[1]) << 4 | hex((unsigned char)p[2]);
}

/* A line that is being cut into words. */
struct line {
	char *start; /* byte 0 is column 1 */
	char *p;     /* what is looked at */
	char c;	     /* the byte there, before a NUL replaced it */
};

static uint32_t column(const struct line *l)
{
	return (uint32_t)(l->p - l->start) + 1;
}

/* From the byte behind the first quote to the one behind the last; the text goes to `out`. */
static int quoted(struct pl_lang_reader *r, struct line *l, char *out, struct pl_err *err)
{
	uint32_t from = column(l) - 1;

	while (*l->p != '"') {
		uint32_t at = column(l);
		size_t n;
		int c = (unsigned char)*l->p++;

		if (c == '\n')
			return pl_lang_fail(r, from, err,
					    "the quote is not closed on its line; write \\n for a "
					    "newline in a name");
		if (!c)
			return pl_lang_fail(r, at, err, "a name cannot hold the byte 0");
		if (c == '\\') {
			c = escape(l->p, &n);
			if (c <= 0)
				return pl_lang_fail(r, at, err,
						    "there is no escape \\%.1s here; write \\\\ "
						    "for a backslash",
						    *l->p == '\n' ? "" : l->p);
			l->p += n;
		}
		*out++ = (char)c;
	}
	l->c = *++l->p;
	*out = '\0';
	return 0;
}

static bool ends_word(int c)
{
	return c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '#' || c == ';' || c == '"';
}

bool pl_lang_is_word(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalpha((unsigned char)s[i]) ||
		      (i && (isdigit((unsigned char)s[i]) || strchr("_-.", s[i])))))
			return false;
	return n > 0;
}

/* Where the value of "key=value" begins, 0 if it is none. */
static uint32_t value_of(const char *s, size_t n)
{
	const char *equal = memchr(s, '=', n);

	return equal && pl_lang_is_word(s, (size_t)(equal - s)) ? (uint32_t)(equal - s) + 1 : 0;
}

int pl_lang_add_word(struct pl_lang_reader *r, char *s, bool is_quoted, uint32_t at,
		     struct pl_err *err)
{
	int rc = pl_grow(&r->word, &r->cap, r->n + 1, sizeof(*r->word), err);

	if (rc >= 0)
		r->word[r->n++] = (struct pl_lang_word){
			.s = s,
			.quoted = is_quoted,
			.value = is_quoted ? 0 : value_of(s, strlen(s)),
			.column = at,
		};
	return rc;
}

/* An unquoted word; the value of a key may be quoted: name="a b". */
static int plain(struct pl_lang_reader *r, struct line *l, struct pl_err *err)
{
	uint32_t at = column(l);
	char *s = l->p;
	bool whole;

	for (; !ends_word((unsigned char)*l->p); l->p++)
		if ((unsigned char)*l->p < 0x20 || *l->p == 0x7f || *l->p == '\\')
			return pl_lang_fail(r, column(l), err,
					    "byte 0x%02x in a word; put the name between double "
					    "quotes and escape it with a backslash",
					    (unsigned char)*l->p);
	l->c = *l->p;
	whole = l->c == '"';
	if (whole) {
		char *out = l->p++;

		if (value_of(s, (size_t)(out - s)) != (uint32_t)(out - s))
			return pl_lang_fail(r, at, err, "no blank before a quoted name");
		PL_CHECK(quoted(r, l, out, err));
		if (!ends_word((unsigned char)l->c) || l->c == '"')
			return pl_lang_fail(r, at, err, "no blank behind a quoted name");
	} else {
		*l->p = '\0';
	}
	PL_CHECK(pl_lang_add_word(r, s, false, at, err));
	r->word[r->n - 1].whole = whole;
	return 0;
}

/* The words of one line; l->p is behind its end afterwards. */
static int one_line(struct pl_lang_reader *r, struct line *l, struct pl_err *err)
{
	static char semicolon[] = ";";

	while (l->c != '\n') {
		uint32_t at = column(l);

		if (l->c == ' ' || l->c == '\t' || l->c == '\r') {
			l->c = *++l->p;
		} else if (l->c == ';') {
			PL_CHECK(pl_lang_add_word(r, semicolon, false, at, err));
			l->c = *++l->p;
		} else if (l->c == '#') {
			l->p = memchr(l->p + 1, '\n',
				      (size_t)((char *)r->text.p + r->text.n - l->p - 1));
			l->c = '\n';
		} else if (l->c == '"') {
			char *s = ++l->p;

			PL_CHECK(quoted(r, l, s, err));
			PL_CHECK(pl_lang_add_word(r, s, true, at, err));
			if (!ends_word((unsigned char)l->c) || l->c == '"')
				return pl_lang_fail(r, at, err, "no blank behind a quoted name");
		} else {
			PL_CHECK(plain(r, l, err));
		}
	}
	l->p++;
	return 0;
}

static int next_words(struct pl_lang_reader *r, struct pl_err *err)
{
	r->n = 0;
	while (!r->n) {
		struct line l = { .start = (char *)r->text.p + r->at };

		if (r->at >= r->text.n)
			return 0;
		l.p = l.start;
		l.c = *l.p;
		r->line++;
		PL_CHECK(one_line(r, &l, err));
		r->at = (size_t)(l.p - (char *)r->text.p);
	}
	return 1;
}

int pl_lang_words(struct pl_lang_reader *r, struct pl_err *err)
{
	int rc = next_words(r, err);

	if (rc < 0 || r->begun)
		return rc;
	r->begun = true;
	PL_TRY(pl_lang_header(r, err));
	rc = rc ? next_words(r, err) : r->n > 0;
out:
	return rc;
}

/* ---- words of a command line ----------------------------------------------------------------- */

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " ");
	for (n = strlen(s); n && s[n - 1] == ' ';)
		s[--n] = '\0';
	return s;
}

/* Does " WORD VALUE" or " WORD=VALUE" end the text? Where its blank is, of several the last; NULL.
 */
static char *last_key(char *s, const struct pl_lang_field *f)
{
	size_t n = strlen(f->word);
	char *at = NULL;

	for (char *p = s; (p = strchr(p, ' ')); p++)
		if (!strncmp(p + 1, f->word, n) && (p[n + 1] == ' ' || p[n + 1] == '='))
			at = p;
	/* a name may hold " to ": of a choice only its words are no part of the name */
	if (at && f->choices && pl_words_find(f->choices, trim(at + n + 2)) < 0)
		return NULL;
	return at;
}

static bool is_key(const struct pl_lang_field *f, const char *s, size_t n)
{
	return f->flags & PL_LANG_KEY && strlen(f->name) == n && !memcmp(f->name, s, n);
}

/* A comma separates only where "key=" of the row follows. Behind a value that may hold commas and
 * "=" the key must be spelled exactly; behind others it may be misspelt. */
char *pl_lang_comma(const struct pl_lang_row *row, char *s)
{
	size_t first = strcspn(s, "=,");
	bool may_be_misspelt = false;

	for (const struct pl_lang_field *f = row->field; f->name; f++)
		may_be_misspelt |= is_key(f, s, first) && !(f->flags & PL_LANG_COMMAS);
	for (char *p = s; (p = strchr(p, ',')); p++) {
		size_t n = strcspn(p + 1, "=,");

		if (p[1 + n] != '=' || !pl_lang_is_word(p + 1, n))
			continue;
		for (const struct pl_lang_field *f = row->field; f->name; f++) {
			struct pl_words_near near = { .s = f->name };

			if (may_be_misspelt && n > 2 && f->flags & PL_LANG_KEY)
				pl_words_near(&near, p + 1, n);
			if (near.distance || is_key(f, p + 1, n))
				return p;
		}
	}
	return NULL;
}

/* The words of a statement behind its name, s. */
static int option_words(struct pl_lang_reader *r, const struct pl_lang_row *row, char *s,
			struct pl_err *err)
{
	char *text = (char *)r->text.p + 1, *last = NULL; /* one byte was put in before s */
	const struct pl_lang_field *key = NULL;

	for (const struct pl_lang_field *f = row->field; f && f->name; f++) {
		char *at = f->word ? last_key(s, f) : NULL;

		if (at && (!last || at > last)) {
			last = at;
			key = f;
		}
	}
	if (last)
		*last++ = '\0';
	for (char *part = trim(s), *next; part && *part; part = next) {
		next = row->field ? pl_lang_comma(row, part) : NULL;
		if (next)
			*next++ = '\0';
		PL_CHECK(pl_lang_add_word(r, part, false, (uint32_t)(part - text) + 1, err));
	}
	if (last) {
		char *v = trim(last + strlen(key->word));
		bool two = *v != '=';

		last[strlen(key->word)] = two ? '\0' : '=';
		PL_CHECK(pl_lang_add_word(r, last, false, (uint32_t)(last - text) + 1, err));
		if (two)
			PL_CHECK(pl_lang_add_word(r, v, false, (uint32_t)(v - text) + 1, err));
	}
	return 0;
}

/* Is the statement written as in a file? It has a list of names, or keys that blanks separate. */
static bool is_as_in_file(const struct pl_lang_row *row)
{
	for (const struct pl_lang_field *f = row->field; f && f->name && !row->commas; f++)
		if (f->flags & PL_LANG_LIST || (f->flags & PL_LANG_KEY && !f->word))
			return true;
	return false;
}

int pl_lang_option(struct pl_lang_reader *r, const struct pl_lang_schema *schema, const char *text,
		   struct pl_err *err)
{
	const struct pl_lang_row *row;
	char *s, *end;
	size_t n;

	PL_CHECK(pl_lang_open_text(r, schema, text, err));
	PL_CHECK(pl_buf_put(&r->text, "", 1, err));
	s = (char *)r->text.p;
	s[r->text.n - 2] = '\0'; /* the newline behind the text */
	s += strspn(s, " ");
	if (!*s)
		return pl_lang_fail(r, 0, err, "there is nothing in it");
	n = strcspn(s, " =");
	row = pl_lang_row_n(schema, s, n);
	if (row && (s[n] == '=' || is_as_in_file(row))) {
		if (strchr(s, '\n'))
			return pl_lang_fail(r, 0, err, "it is more than one line");
		s[strlen(s)] = '\n';
		PL_CHECK(pl_lang_next(r, err));
		return 0;
	}
	/* a NUL behind the name; the blank stays, as it may begin " by " */
	end = s + strcspn(s, " ");
	memmove(end + 1, end, strlen(end) + 1);
	*end = '\0';
	PL_CHECK(pl_lang_add_word(r, s, false, (uint32_t)(s - (char *)r->text.p) + 1, err));
	if (row)
		PL_CHECK(option_words(r, row, end + 1, err));
	return pl_lang_parse(r, err);
}
