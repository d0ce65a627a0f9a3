/*
 * From statements to text and JSON, from schema to help, between statements and structs. Linear.
 */
#include <math.h>

#include "core/words.h"
#include "lang/internal.h"

/* ---- structs --------------------------------------------------------------------------------- */

static bool is_text(const struct pl_lang_field *f)
{
	return f->type >= PL_LANG_CHOICE;
}

static void store(const struct pl_lang_field *f, const struct pl_lang_value *v, const char *text,
		  void *base)
{
	void *p = (char *)base + f->offset;

	if (is_text(f))
		*(const char **)p = text;
	else if (f->type == PL_LANG_FLAG)
		*(bool *)p = v->i;
	else if (f->type == PL_LANG_REAL || f->type == PL_LANG_RATE)
		*(double *)p = v->r;
	else
		*(int64_t *)p = v->i;
}

int pl_lang_bind(const struct pl_lang_statement *st, void *base, struct pl_arena *arena,
		 struct pl_err *err)
{
	for (size_t i = 0; i < st->n; i++) {
		const struct pl_lang_field *f = pl_lang_field_at(st, i);
		const struct pl_lang_value *v = &st->value[i];
		const char *text = NULL;

		if (!v->present || !(f->flags & PL_LANG_BOUND))
			continue;
		if (is_text(f))
			PL_CHECK(pl_dup(arena, &text, v->s, err));
		store(f, v, text, base);
	}
	return 0;
}

/* Of several fields with one name: is it another one that goes with the first value? */
static bool is_replaced(const struct pl_lang_row *row, const struct pl_lang_field *f,
			const char *first)
{
	return first && !pl_lang_allowed(f, first) && pl_lang_field(row, f->name, first);
}

void pl_lang_defaults(const struct pl_lang_row *row, const char *first, void *base)
{
	first = first ? first : row->field->value;
	for (const struct pl_lang_field *f = row->field; f->name; f++) {
		struct pl_lang_value v = { .s = f->value };
		struct pl_err ignore = { 0 };

		if (f->flags & PL_LANG_BOUND && f->value && !is_replaced(row, f, first) &&
		    pl_lang_value_parse(f, &v, &ignore) >= 0)
			store(f, &v, f->value, base);
	}
}

/* The reverse of store(). */
static struct pl_lang_value load(const struct pl_lang_field *f, const void *base)
{
	const void *p = (const char *)base + f->offset;
	struct pl_lang_value v = { .present = true };

	if (is_text(f)) {
		v.s = *(const char *const *)p;
		v.i = v.s && f->choices ? pl_words_find(f->choices, v.s) : 0;
	} else if (f->type == PL_LANG_FLAG) {
		v.i = *(const bool *)p;
	} else if (f->type == PL_LANG_REAL || f->type == PL_LANG_RATE) {
		v.r = *(const double *)p;
	} else {
		v.i = *(const int64_t *)p;
	}
	return v;
}

static bool differs(const struct pl_lang_field *f, const void *base, const void *usual)
{
	struct pl_lang_value v = load(f, base), u = load(f, usual);

	if (is_text(f))
		return v.s && !(u.s && !strcmp(v.s, u.s));
	return v.i != u.i || v.r != u.r;
}

void pl_lang_unbind(struct pl_lang_statement *st, const void *base, const void *usual)
{
	const struct pl_lang_field *kind = st->n_own ? st->row->field : NULL;
	const char *first = kind && kind->type == PL_LANG_CHOICE && kind->flags & PL_LANG_BOUND
				    ? load(kind, base).s
				    : NULL;

	for (size_t i = 0; i < st->n; i++) {
		const struct pl_lang_field *f = pl_lang_field_at(st, i);

		if (f->flags & PL_LANG_BOUND && differs(f, base, usual) &&
		    !is_replaced(st->row, f, first))
			st->value[i] = load(f, base);
	}
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool needs_quotes(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c <= ' ' || c == 0x7f || strchr("\"#;\\", c))
			return true;
	}
	return !n;
}

static void put_quoted(struct pl_writer *w, const char *s, size_t n)
{
	static const char from[] = "\"\\\n\t\r", to[] = "\"\\ntr";

	pl_write_char(w, '"');
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		const char *f = c ? strchr(from, c) : NULL;

		if (f)
			pl_write_format(w, "\\%c", to[f - from]);
		else if (c < ' ' || c == 0x7f)
			pl_write_format(w, "\\x%02x", c);
		else
			pl_write_char(w, (char)c);
	}
	pl_write_char(w, '"');
}

/* Would the parser take the name for a key, or for the word of one? */
static bool like_key(const struct pl_lang_row *row, const char *s)
{
	const char *equal = strchr(s, '=');

	if (equal && pl_lang_is_word(s, (size_t)(equal - s)))
		return true;
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (f->flags & PL_LANG_KEY &&
		    (!strcmp(f->name, s) || (f->word && !strcmp(f->word, s)) ||
		     (f->also && pl_words_find(f->also, s) >= 0)))
			return true;
	return false;
}

/* "a,step=3": would it be taken for two words? */
static bool like_words(const struct pl_lang_row *row, const char *s)
{
	const char *comma = row->commas ? strchr(s, ',') : NULL;

	return comma && strchr(comma, '=');
}

/* `row` NULL: it stands behind a key. */
static void put_name(struct pl_writer *w, const struct pl_lang_row *row, const char *s)
{
	size_t n = strlen(s);

	if (needs_quotes(s, n) || (row && like_key(row, s)))
		put_quoted(w, s, n);
	else
		pl_write(w, s, n);
}

static void put_value(struct pl_writer *w, const struct pl_lang_statement *st, size_t i)
{
	const struct pl_lang_field *f = pl_lang_field_at(st, i);
	const struct pl_lang_value *v = &st->value[i];
	bool key = f->flags & PL_LANG_KEY;
	const char *s;
	char text[64];

	pl_write_char(w, ' ');
	if (key || f->type == PL_LANG_FLAG)
		pl_write_text(w, f->name);
	if (f->type == PL_LANG_FLAG && v->i && !v->s)
		return;
	if (key)
		pl_write_char(w, '=');
	s = pl_lang_value_text(f, v, text, sizeof(text));
	if (key && like_words(st->row, s))
		put_quoted(w, s, strlen(s));
	else
		put_name(w, key ? NULL : st->row, s);
}

void pl_lang_write(struct pl_writer *w, const struct pl_lang_statement *st)
{
	pl_write_text(w, st->row->name);
	/* positional fields first, however the row has them */
	for (int keys = 0; keys < 2; keys++)
		for (size_t i = 0; i < st->n; i++) {
			const struct pl_lang_field *f = pl_lang_field_at(st, i);

			if (!(f->flags & PL_LANG_KEY) != !keys)
				continue;
			for (size_t k = 0; f->flags & PL_LANG_LIST && k < st->n_list; k++) {
				pl_write_char(w, ' ');
				put_name(w, st->row, st->list[k]);
			}
			if (st->value[i].present)
				put_value(w, st, i);
		}
}

void pl_lang_write_struct(struct pl_writer *w, struct pl_lang_statement *st,
			  const struct pl_lang_schema *s, const struct pl_lang_row *row,
			  const void *base, const void *usual)
{
	const unsigned need = PL_LANG_NEED | PL_LANG_BOUND;
	bool any = false;

	if (pl_lang_begin(st, s, row, &w->fail) < 0)
		return;
	pl_lang_unbind(st, base, usual);
	for (size_t i = 0; i < st->n; i++)
		any |= st->value[i].present;
	if (!any)
		return;
	for (size_t i = 0; i < st->n; i++)
		if ((pl_lang_field_at(st, i)->flags & need) == need)
			st->value[i] = load(pl_lang_field_at(st, i), base);
	pl_lang_write(w, st);
	pl_write_char(w, '\n');
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_json_value(struct pl_writer *w, const struct pl_lang_field *f,
			   const struct pl_lang_value *v)
{
	if (!v->present) {
		pl_json_put_null(w);
		return;
	}
	switch (f->type) {
	case PL_LANG_INT:
	case PL_LANG_TIME:
		pl_json_put_int(w, v->i);
		return;
	case PL_LANG_REAL:
	case PL_LANG_RATE:
		pl_json_put_real(w, v->r);
		return;
	case PL_LANG_FLAG:
		pl_json_put_bool(w, v->i);
		return;
	default:
		pl_json_put_str(w, v->s, strlen(v->s));
		return;
	}
}

void pl_lang_put_json(struct pl_writer *w, const struct pl_lang_statement *st)
{
	const struct pl_lang_field *f = st->row->field;

	for (size_t i = 0; f && f[i].name; i++) {
		pl_json_key(w, f[i].name);
		if (!(f[i].flags & PL_LANG_LIST)) {
			put_json_value(w, &f[i], &st->value[i]);
			continue;
		}
		pl_json_open(w, '[');
		for (size_t k = 0; k < st->n_list; k++)
			pl_json_put_str(w, st->list[k], strlen(st->list[k]));
		pl_json_close(w);
	}
}
