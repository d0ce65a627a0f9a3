/*
 * From words to statements, by a schema.
 *
 * Words are first told apart: keys with their values, and all others, which are positional. The
 * fields before a list take the first of these, the fields behind it the last, and the list takes
 * what is between. Linear in the words, but for names that must differ, which are sorted.
 */
#include "core/words.h"
#include "lang/internal.h"

/* ---- rows and fields ------------------------------------------------------------------------- */

const struct pl_lang_row *pl_lang_row_n(const struct pl_lang_schema *s, const char *name, size_t n)
{
	for (size_t i = 0; i < s->n_rows; i++)
		if (strlen(s->row[i].name) == n && !memcmp(s->row[i].name, name, n))
			return &s->row[i];
	for (size_t i = s->n_rows; i-- > 0;)
		if (s->row[i].also && strlen(s->row[i].also) == n &&
		    !memcmp(s->row[i].also, name, n))
			return &s->row[i];
	return NULL;
}

const struct pl_lang_row *pl_lang_row(const struct pl_lang_schema *s, const char *name)
{
	return pl_lang_row_n(s, name, strlen(name));
}

static size_t count(const struct pl_lang_field *f)
{
	size_t n = 0;

	while (f && f[n].name)
		n++;
	return n;
}

const struct pl_lang_field *pl_lang_extra(const struct pl_lang_schema *s,
					  const struct pl_lang_row *row)
{
	return row < s->row + s->n_extra ? s->extra : NULL;
}

const struct pl_lang_field *pl_lang_field_at(const struct pl_lang_statement *st, size_t i)
{
	return i < st->n_own ? &st->row->field[i] : &st->schema->extra[i - st->n_own];
}

bool pl_lang_allowed(const struct pl_lang_field *f, const char *first)
{
	return !f->only || (first && pl_words_find(f->only, first) >= 0);
}

const struct pl_lang_field *pl_lang_field(const struct pl_lang_row *row, const char *name,
					  const char *first)
{
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (!strcmp(f->name, name) && (!first || pl_lang_allowed(f, first)))
			return f;
	return NULL;
}

int pl_lang_begin(struct pl_lang_statement *st, const struct pl_lang_schema *s,
		  const struct pl_lang_row *row, struct pl_err *err)
{
	st->schema = s;
	st->row = row;
	st->n_own = count(row->field);
	st->n = st->n_own + count(pl_lang_extra(s, row));
	st->n_list = 0;
	PL_CHECK(pl_grow(&st->value, &st->cap, st->n + 1, sizeof(*st->value), err));
	memset(st->value, 0, st->n * sizeof(*st->value));
	return 0;
}

void pl_lang_end(struct pl_lang_statement *st)
{
	pl_free(st->value);
	pl_free(st->list);
	pl_free(st->column);
	memset(st, 0, sizeof(*st));
}

static const char *first_value(const struct pl_lang_statement *st)
{
	const struct pl_lang_field *f = st->row->field;

	if (!f || !f->name || f->flags & (PL_LANG_KEY | PL_LANG_LIST))
		return NULL;
	return st->value[0].present ? st->value[0].s : f->value;
}

const struct pl_lang_value *pl_lang_get(const struct pl_lang_statement *st, const char *name)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->value[i].present && !strcmp(pl_lang_field_at(st, i)->name, name))
			return &st->value[i];
	return NULL;
}

/* ---- checking -------------------------------------------------------------------------------- */

static int check_list(const struct pl_lang_statement *st, const struct pl_lang_field *f,
		      struct pl_err *err)
{
	const char **sorted, *twice;
	size_t n = st->n_list;
	int rc = 0;

	if ((double)n < f->min)
		return pl_fail(err, PL_EDATA, "it needs %g or more %s, there %s %zu", f->min,
			       f->name, n == 1 ? "is" : "are", n);
	if (f->max != 0 && (double)n > f->max)
		return pl_fail(err, PL_EDATA, "it takes %g of %s, not %zu", f->max, f->name, n);
	for (size_t i = 0; i < n; i++)
		if (!st->list[i][0])
			return pl_fail(err, PL_EDATA, "a name is empty");
	if (!(f->flags & PL_LANG_DIFFER) || n < 2)
		return 0;
	PL_TRY(pl_alloc(&sorted, n, sizeof(*sorted), err));
	memcpy(sorted, st->list, n * sizeof(*sorted));
	twice = pl_sort_twice(sorted, n);
	if (twice)
		rc = pl_fail(err, PL_EDATA, "\"%.200s\" is there twice; name it once", twice);
	pl_free(sorted);
out:
	return rc;
}

/* All keys that a statement may have, for messages. */
static const char *keys_of(const struct pl_lang_row *row, const char *first, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (f->flags & PL_LANG_KEY && pl_lang_allowed(f, first) && n < size)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", f->name);
	return n ? out : "none";
}

/* What has the keys: the first value where they depend on it, else the statement. */
static const char *owner(const struct pl_lang_row *row, const char *first)
{
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (f->only && first)
			return first;
	return row->name;
}

/* The key of the row that s is a misspelt form of; `first` as in pl_lang_field(). */
static struct pl_words_near near_key(const struct pl_lang_row *row, const char *first,
				     const char *s)
{
	struct pl_words_near near = { .s = s };

	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (f->flags & PL_LANG_KEY && (!first || pl_lang_allowed(f, first)))
			pl_words_near(&near, f->name, strlen(f->name));
	return near;
}

static int no_key(const struct pl_lang_row *row, const char *first, const char *key,
		  struct pl_err *err)
{
	struct pl_words_near near = near_key(row, first ? first : "", key);
	char all[200], hint[96];

	return pl_fail(err, PL_EDATA, "%s has no \"%.100s\"%s; it has %s", owner(row, first), key,
		       pl_words_near_text(&near, hint, sizeof(hint)),
		       keys_of(row, first, all, sizeof(all)));
}

static int usage_fail(const struct pl_lang_statement *st, struct pl_err *err, const char *what)
{
	struct pl_buf usage = { 0 };
	int rc = pl_lang_usage(&usage, st->row, err);

	if (rc >= 0)
		rc = pl_fail(err, PL_EDATA, "%s is missing; write: %.*s", what, (int)usage.n,
			     (const char *)usage.p);
	pl_buf_fini(&usage);
	return rc;
}

static int check_field(const struct pl_lang_statement *st, size_t i, struct pl_err *err)
{
	const struct pl_lang_field *f = pl_lang_field_at(st, i);
	const struct pl_lang_value *v = &st->value[i];

	if (f->flags & PL_LANG_LIST)
		return check_list(st, f, err);
	if (!v->present)
		return f->flags & PL_LANG_NEED && pl_lang_allowed(f, first_value(st))
			       ? usage_fail(st, err, f->name)
			       : 0;
	if (!pl_lang_allowed(f, first_value(st)))
		return no_key(st->row, first_value(st), f->name, err);
	return pl_lang_value_check(f, v, err);
}

static int check_all(const struct pl_lang_statement *st, uint32_t *column, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < st->n && rc >= 0; i++) {
		rc = check_field(st, i, err);
		if (rc < 0)
			*column = st->value[i].column;
	}
	return rc;
}

int pl_lang_check(const struct pl_lang_statement *st, struct pl_err *err)
{
	uint32_t column;

	return check_all(st, &column, err);
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* With the place of the word and the statement's name before the message. */
static int fail_at(const struct pl_lang_reader *r, uint32_t column, const struct pl_err *why,
		   struct pl_err *err)
{
	const char *row = r->st.row->name;
	size_t n = strlen(row);

	if (why->code != PL_EDATA)
		return pl_fail(err, why->code, "%s", why->msg);
	if (!strncmp(why->msg, row, n) && why->msg[n] == ' ')
		return pl_lang_fail(r, column, err, "%s", why->msg);
	return pl_lang_fail(r, column, err, "%s: %s", row, why->msg);
}

/* The state while one statement's words are told apart. */
struct parser {
	struct pl_lang_reader *r;
	struct pl_lang_statement *st;
	size_t n_free; /* positional words, moved to the front of the words */
	bool behind;   /* a semicolon: only the common keys follow */
};

PL_PRINTF(4, 5)
static int fail_here(struct parser *p, uint32_t column, struct pl_err *err, const char *fmt, ...)
{
	struct pl_err why = { .code = PL_EDATA };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why.msg, sizeof(why.msg), fmt, ap);
	va_end(ap);
	return fail_at(p->r, column, &why, err);
}

static int set_value(struct parser *p, size_t i, const char *s, uint32_t column, struct pl_err *err)
{
	const struct pl_lang_field *f = pl_lang_field_at(p->st, i);
	struct pl_lang_value *v = &p->st->value[i];
	struct pl_err why = { 0 };

	if (v->present)
		return fail_here(p, column, err, "%s is there twice; leave one", f->name);
	*v = (struct pl_lang_value){ .present = true, .column = column, .s = s };
	return pl_lang_value_parse(f, v, &why) < 0 ? fail_at(p->r, v->column, &why, err) : 0;
}

/* Is the text one of the older words of the field? */
static bool means(const struct pl_lang_field *f, const char *s, size_t n)
{
	char word[32];

	if (!f->also || n >= sizeof(word))
		return false;
	memcpy(word, s, n);
	word[n] = '\0';
	return pl_words_find(f->also, word) >= 0;
}

/* The field that a key names, of several the one that the first value allows; -1. */
static ptrdiff_t find_key(const struct pl_lang_statement *st, const char *s, size_t n,
			  const char *first)
{
	ptrdiff_t other = -1;

	for (size_t i = 0; i < st->n; i++) {
		const struct pl_lang_field *f = pl_lang_field_at(st, i);

		if (!(f->flags & PL_LANG_KEY) ||
		    ((strlen(f->name) != n || memcmp(f->name, s, n) != 0) && !means(f, s, n)))
			continue;
		if (pl_lang_allowed(f, first))
			return (ptrdiff_t)i;
		other = (ptrdiff_t)i;
	}
	return other;
}

/* The field whose word this is: of a flag its name, of others the older spelling; -1. */
static ptrdiff_t find_word(const struct parser *p, const char *s)
{
	const struct pl_lang_statement *st = p->st;

	for (size_t i = p->behind ? st->n_own : 0; i < (p->behind ? st->n : st->n_own); i++) {
		const struct pl_lang_field *f = pl_lang_field_at(p->st, i);

		if (f->flags & PL_LANG_KEY &&
		    ((f->word && !strcmp(f->word, s)) || means(f, s, strlen(s)) ||
		     (f->type == PL_LANG_FLAG && !strcmp(f->name, s))))
			return (ptrdiff_t)i;
	}
	return -1;
}

static bool takes_names(const struct pl_lang_row *row)
{
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (!(f->flags & PL_LANG_KEY) &&
		    (f->flags & PL_LANG_LIST || f->type == PL_LANG_NAME || f->type == PL_LANG_GLOB))
			return true;
	return false;
}

/* A word "key=value": sets the key. False in *is_key: it is a name that holds a "=". */
static int read_key(struct parser *p, const struct pl_lang_word *w, const char *first, bool *is_key,
		    struct pl_err *err)
{
	ptrdiff_t f = find_key(p->st, w->s, w->value - 1, first);
	char key[64];
	struct pl_err why = { 0 };

	snprintf(key, sizeof(key), "%.*s", (int)w->value - 1, w->s);
	*is_key = true;
	if (f >= 0 && pl_lang_allowed(pl_lang_field_at(p->st, (size_t)f), first))
		return set_value(p, (size_t)f, w->s + w->value, w->column, err);
	if (f < 0 && takes_names(p->st->row) && !near_key(p->st->row, NULL, key).distance) {
		*is_key = false;
		return 0;
	}
	no_key(p->st->row, first, key, &why);
	return fail_at(p->r, w->column, &why, err);
}

/* A word that is a key: a flag, or an older spelling; *i moves to the next word, its value. */
static int read_word(struct parser *p, size_t field, size_t *i, struct pl_err *err)
{
	const struct pl_lang_reader *r = p->r;
	const struct pl_lang_word *w = &r->word[*i];

	if (pl_lang_field_at(p->st, field)->type == PL_LANG_FLAG)
		return set_value(p, field, NULL, w->column, err);
	if (*i + 1 == r->n || (!w[1].quoted && !strcmp(w[1].s, ";")))
		return fail_here(p, w->column, err, "%s is missing behind \"%s\"",
				 pl_lang_field_at(p->st, field)->name, w->s);
	++*i;
	return set_value(p, field, w[1].s, w[1].column, err);
}

/* Which words are positional? They are moved to the front; keys get their values. */
static int sort_positional(struct parser *p, struct pl_err *err)
{
	struct pl_lang_reader *r = p->r;
	const char *first = NULL;

	for (size_t i = 1; i < r->n && !first; i++)
		first = r->word[i].value ? NULL : r->word[i].s;
	for (size_t i = 1; i < r->n; i++) {
		struct pl_lang_word w = r->word[i];
		ptrdiff_t field = w.quoted ? -1 : find_word(p, w.s);
		bool is_key = field >= 0;

		if (!w.quoted && !strcmp(w.s, ";")) {
			if (!pl_lang_extra(r->schema, p->st->row) || p->behind)
				return fail_here(p, w.column, err, "\";\" has no meaning here");
			p->behind = true;
			continue;
		}
		if (is_key)
			PL_CHECK(read_word(p, (size_t)field, &i, err));
		else if (w.value)
			PL_CHECK(read_key(p, &w, first, &is_key, err));
		if (is_key)
			continue;
		if (p->behind)
			return fail_here(p, w.column, err,
					 "\"%.100s\" behind the semicolon, where only keys stand",
					 w.s);
		r->word[1 + p->n_free++] = w;
	}
	return 0;
}

/* The key of a rate or a time that was written without it; NULL. */
static const char *key_of_value(const struct pl_lang_statement *st, const char *s)
{
	for (size_t i = 0; i < st->n_own; i++) {
		const struct pl_lang_field *f = pl_lang_field_at(st, i);
		double rate;
		pl_ns time;

		if (f->flags & PL_LANG_KEY && !st->value[i].present &&
		    ((f->type == PL_LANG_RATE && pl_lang_rate(s, &rate)) ||
		     (f->type == PL_LANG_TIME && pl_lang_time(s, &time))))
			return f->name;
	}
	return NULL;
}

static int too_much(struct parser *p, const struct pl_lang_word *w, struct pl_err *err)
{
	const struct pl_lang_field *key = pl_lang_field(p->st->row, w->s, NULL);
	struct pl_words_near near = near_key(p->st->row, NULL, w->s);
	char hint[96];

	if (key && key->flags & PL_LANG_KEY)
		return fail_here(p, w->column, err, "the value of %s is missing; write: %s=...",
				 w->s, w->s);
	pl_words_near_text(&near, hint, sizeof(hint));
	if (!near.distance && key_of_value(p->st, w->s))
		snprintf(hint, sizeof(hint), "; did you mean %s=%.40s?", key_of_value(p->st, w->s),
			 w->s);
	if (!hint[0] && strchr(w->s, '\''))
		snprintf(hint, sizeof(hint),
			 "; a value with blanks stands in double quotes: "
			 "key=\"'two words'*2\"");
	return fail_here(p, w->column, err, "\"%.100s\" is too much here%s", w->s, hint);
}

/* Positional words to their fields. */
static int distribute(struct parser *p, struct pl_err *err)
{
	const struct pl_lang_word *w = p->r->word + 1;
	const struct pl_lang_field *field = p->st->row->field;
	size_t n = p->st->n_own, at = 0, behind = 0;
	bool list = false;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		bool is_list = field[i].flags & PL_LANG_LIST;

		behind += list && !(field[i].flags & PL_LANG_KEY);
		list |= is_list;
	}
	for (size_t i = 0; i < n; i++) {
		if (field[i].flags & PL_LANG_KEY)
			continue;
		if (field[i].flags & PL_LANG_LIST) {
			size_t end = p->n_free > behind ? p->n_free - behind : 0;

			p->st->value[i].column = at < end ? w[at].column : 0;
			for (; at < end; at++) {
				PL_TRY(pl_grow(&p->st->list, &p->st->cap_list, p->st->n_list + 1,
					       sizeof(*p->st->list), err));
				PL_TRY(pl_grow(&p->st->column, &p->st->cap_columns,
					       p->st->n_list + 1, sizeof(*p->st->column), err));
				p->st->column[p->st->n_list] = w[at].column;
				p->st->list[p->st->n_list++] = w[at].s;
			}
		} else if (at < p->n_free) {
			PL_TRY(set_value(p, i, w[at].s, w[at].column, err));
			at++;
		}
	}
	if (at < p->n_free)
		rc = too_much(p, &w[at], err);
out:
	return rc;
}

/* What is the text, if its first word shows that it is none of this language? NULL. */
static const char *other_language(const struct pl_lang_schema *s, const char *word)
{
	if (!strncmp(word, "layer,", 6) || strstr(word, ",forward_"))
		return "table of layers, for graph FILE | plan";
	if (strncmp(word, "paceline-", 9) || !strcmp(word + 9, s->name))
		return NULL;
	return strcmp(word + 9, "model") ? word + 9 : "model, which a job names: model FILE";
}

int pl_lang_header(struct pl_lang_reader *r, struct pl_err *err)
{
	const struct pl_lang_schema *s = r->schema;
	struct pl_lang_value v = { 0 };
	struct pl_err why = { 0 };
	char name[64];

	snprintf(name, sizeof(name), "paceline-%s", s->name);
	if (r->n && other_language(s, r->word[0].s))
		return pl_lang_fail(r, r->word[0].column, err, "no %s: this is a %.100s", s->name,
				    other_language(s, r->word[0].s));
	if (!r->n || r->word[0].quoted || strcmp(r->word[0].s, name) != 0)
		return s->header
			       ? pl_fail(err, PL_EDATA,
					 "%s: this is no %s; as text it begins with a line: %s %d",
					 r->name, s->name, name, s->version)
			       : 0;
	if (r->n < 2)
		return pl_lang_fail(r, r->word[0].column, err, "the version is missing");
	v.s = r->word[1].s;
	if (pl_lang_value_parse(&(struct pl_lang_field){ .type = PL_LANG_INT }, &v, &why) < 0 ||
	    v.i < 1)
		return pl_lang_fail(r, r->word[1].column, err,
				    "the version must be a whole number above 0, not \"%.100s\"",
				    v.s);
	if (v.i > s->version)
		return pl_lang_fail(r, r->word[1].column, err,
				    "version %lld is newer than %d, the newest known here",
				    (long long)v.i, s->version);
	if (r->n > 2)
		return pl_lang_fail(r, r->word[2].column, err, "\"%.100s\" is too much here",
				    r->word[2].s);
	return 1;
}

/* What to write in place of a word that is no statement: "; did you mean ...", or "". */
static void near_statement(const struct pl_lang_schema *s, const char *word, char *hint,
			   size_t size)
{
	struct pl_words_near near = { .s = word };
	char name[64];
	size_t n = 0;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	for (size_t i = 0; i < s->n_rows; i++) {
		if (s->row[i].elsewhere && pl_words_find(s->row[i].elsewhere, name) >= 0) {
			snprintf(hint, size, "; it is called %s here", s->row[i].name);
			return;
		}
		pl_words_near(&near, s->row[i].name, strlen(s->row[i].name));
	}
	pl_words_near_text(&near, hint, size);
	for (size_t i = 0; !near.distance && s->n_rows < 10 && i < s->n_rows; i++)
		n += (size_t)snprintf(hint + n, size - n, "%s%s", i ? ", " : "; there are ",
				      s->row[i].name);
	if (!near.distance && !n)
		snprintf(hint, size, "; paceline-%s(5) lists them", s->name);
}

static int no_statement(const struct pl_lang_reader *r, struct pl_err *err)
{
	char hint[160];

	near_statement(r->schema, r->word[0].s, hint, sizeof(hint));
	return pl_lang_fail(r, r->word[0].column, err, "there is no statement \"%.100s\"%s",
			    r->word[0].s, hint);
}

/* Can the value of "NAME=VALUE" be meant for the field? */
static bool fits(const struct pl_lang_field *f, const char *s)
{
	struct pl_lang_value v = { .present = true, .s = s };
	struct pl_err why = { 0 };

	return !(f->flags & PL_LANG_LIST) && f->type != PL_LANG_NAME &&
	       pl_lang_value_parse(f, &v, &why) >= 0 && pl_lang_value_check(f, &v, &why) >= 0;
}

/* What to write in place of "NAME=VALUE": with the fields that must be given, or with each that can
 * be. */
static int refuse_equals(const struct pl_lang_reader *r, const struct pl_lang_row *row, bool need,
			 struct pl_err *err)
{
	const struct pl_lang_word *w = &r->word[0];
	struct pl_buf usage = { 0 };
	char text[400] = "";
	size_t n = 0;
	int rc;

	for (const struct pl_lang_field *f = row->field;
	     f && f->name && !row->commas && n < sizeof(text); f++) {
		bool key = f->flags & PL_LANG_KEY, two = key && f->word;

		if (!fits(f, w->s + w->value) ||
		    (need ? !(f->flags & PL_LANG_NEED) : key && !f->word))
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\"%s %s%s%.40s\" (%s)",
				      n ? " or " : "", row->name,
				      two   ? f->word
				      : key ? f->name
					    : "",
				      two   ? " "
				      : key ? "="
					    : "",
				      w->s + w->value, f->doc);
	}
	rc = pl_lang_usage(&usage, row, err);
	if (rc >= 0)
		rc = pl_lang_fail(r, w->column, err, "%.100s%swrite %.*s", r->name ? w->s : "",
				  r->name ? ": " : "", n ? (int)strlen(text) : (int)usage.n,
				  n ? text : (const char *)usage.p);
	pl_buf_fini(&usage);
	return rc;
}

/* "ranks=8" becomes two words, because the statement has one field that must be given, and it
 * stands without its name. */
static int split_equals(struct pl_lang_reader *r, const struct pl_lang_row *row, struct pl_err *err)
{
	const struct pl_lang_field *needed = NULL;
	struct pl_lang_word w = r->word[0], value;
	size_t n = 0;

	for (const struct pl_lang_field *f = row->field; f && f->name; f++) {
		n += (f->flags & PL_LANG_NEED) != 0;
		needed = f->flags & PL_LANG_NEED ? f : needed;
	}
	if (n != 1 || needed->flags & PL_LANG_KEY)
		return refuse_equals(r, row, n > 0, err);
	w.s[w.value - 1] = '\0';
	PL_CHECK(pl_lang_add_word(r, w.s + w.value, false, w.column + w.value, err));
	value = r->word[r->n - 1];
	memmove(&r->word[2], &r->word[1], (r->n - 2) * sizeof(value));
	r->word[1] = value;
	return 0;
}

/* "rate=1Gbit,latency=1ms" to two words. */
static int split_commas(struct pl_lang_reader *r, const struct pl_lang_row *row, struct pl_err *err)
{
	for (size_t i = 1; i < r->n; i++) {
		struct pl_lang_word w = r->word[i];
		char *comma = w.quoted || w.whole ? NULL : pl_lang_comma(row, w.s);

		if (!comma)
			continue;
		*comma++ = '\0';
		PL_CHECK(
			pl_lang_add_word(r, comma, false, w.column + (uint32_t)(comma - w.s), err));
	}
	return 0;
}

int pl_lang_parse(struct pl_lang_reader *r, struct pl_err *err)
{
	const struct pl_lang_row *row =
		r->word[0].quoted ? NULL : pl_lang_row(r->schema, r->word[0].s);
	struct parser p = { .r = r, .st = &r->st };
	struct pl_err why = { 0 };
	uint32_t column = 0;

	if (!row && r->word[0].value) {
		row = pl_lang_row_n(r->schema, r->word[0].s, r->word[0].value - 1);
		PL_CHECK(row ? split_equals(r, row, err) : 0);
	}
	if (!row)
		return no_statement(r, err);
	PL_CHECK(pl_lang_begin(&r->st, r->schema, row, err));
	r->st.line = r->line;
	if (row->once && r->seen[row - r->schema->row])
		return pl_lang_fail(r, r->word[0].column, err, "%s is there twice; leave one",
				    row->name);
	r->seen[row - r->schema->row] = true;
	if (row->commas)
		PL_CHECK(split_commas(r, row, err));
	PL_CHECK(sort_positional(&p, err));
	PL_CHECK(distribute(&p, err));
	if (check_all(&r->st, &column, &why) < 0)
		return fail_at(r, column ? column : r->word[0].column, &why, err);
	return 0;
}

int pl_lang_next(struct pl_lang_reader *r, struct pl_err *err)
{
	int rc = pl_lang_words(r, err);

	if (rc > 0 && (rc = pl_lang_parse(r, err)) >= 0)
		rc = 1;
	return rc;
}
