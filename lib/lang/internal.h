/* internal.h - what the files of lib/lang share. */
#ifndef PL_LANG_INTERNAL_H
#define PL_LANG_INTERNAL_H

#include "lang/lang.h"

/* Is it a letter with letters, digits, "_-." behind? */
bool pl_lang_is_word(const char *s, size_t n);
/* The next ",key=" of the row in s, misspelt or not; NULL. */
char *pl_lang_comma(const struct pl_lang_row *row, char *s);
/* Words of the first statement: 1 if they are "paceline-plan 1". */
int pl_lang_header(struct pl_lang_reader *r, struct pl_err *err) PL_MUST;

/* From text to a value, by type. PL_EDATA without the statement's name. */
int pl_lang_value_parse(const struct pl_lang_field *f, struct pl_lang_value *v,
			struct pl_err *err) PL_MUST;
/* Is the value within the limits of its field? PL_EDATA as above. */
int pl_lang_value_check(const struct pl_lang_field *f, const struct pl_lang_value *v,
			struct pl_err *err) PL_MUST;
/* The value as text that reads back the same. `buf` of at least 48 bytes may hold it. */
const char *pl_lang_value_text(const struct pl_lang_field *f, const struct pl_lang_value *v,
			       char *buf, size_t size);

/* "at least 1 and below 2" */
const char *pl_lang_limits(const struct pl_lang_field *f, char *out, size_t size);
bool pl_lang_is_limited(const struct pl_lang_field *f);

/* The further keys of a row, NULL: none. */
const struct pl_lang_field *pl_lang_extra(const struct pl_lang_schema *s,
					  const struct pl_lang_row *row);
/* Field number i of a statement: those of the row, then the extra ones. */
const struct pl_lang_field *pl_lang_field_at(const struct pl_lang_statement *st, size_t i);
/* May the field be given together with `first`, the value of the first positional field? */
bool pl_lang_allowed(const struct pl_lang_field *f, const char *first);

/* pl_lang_row() by the first n bytes of a text. */
const struct pl_lang_row *pl_lang_row_n(const struct pl_lang_schema *s, const char *name, size_t n);

#endif
