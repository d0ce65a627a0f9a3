/* What a schema says about itself: usage lines, --help=STATEMENT, the words of completion. */
#include <ctype.h>

#include "core/words.h"
#include "lang/internal.h"

static const char *const meta[] = {
	[PL_LANG_INT] = "N",	   [PL_LANG_REAL] = "X",       [PL_LANG_TIME] = "TIME",
	[PL_LANG_RATE] = "RATE",   [PL_LANG_FLAG] = "",	       [PL_LANG_CHOICE] = "WORD",
	[PL_LANG_NAME] = "NAME",   [PL_LANG_GLOB] = "PATTERN", [PL_LANG_NUMBERS] = "NUMBERS",
	[PL_LANG_SIZES] = "SIZES", [PL_LANG_COUNTS] = "N,...",
};
static const char *const kind[] = {
	[PL_LANG_INT] = "a whole number",
	[PL_LANG_REAL] = "a decimal number",
	[PL_LANG_TIME] = "a time, like 2ms or 3s",
	[PL_LANG_RATE] = "a rate, like 10Gbit/s or 2GB/s",
	[PL_LANG_FLAG] = "yes or no; the word alone means yes",
	[PL_LANG_CHOICE] = "one of",
	[PL_LANG_NAME] = "a name",
	[PL_LANG_GLOB] = "a pattern, like conv*|dense*",
	[PL_LANG_NUMBERS] = "numbers, ranges or patterns, like 0|4..7",
	[PL_LANG_SIZES] = "sizes or ranges, like 64K..1M",
	[PL_LANG_COUNTS] = "a whole number, or several, like 3,1",
};
static const char *const effect[] = {
	[PL_LANG_STRUCTURE] = "structure: it changes which operations there are, or their order",
	[PL_LANG_TIMING] = "timing: it changes only how long something takes",
	[PL_LANG_EXECUTION] = "execution only: it says how to run",
};

/* ---- usage ----------------------------------------------------------------------------------- */

static void put_field(struct pl_writer *w, const struct pl_lang_field *f)
{
	const char *value = f->type == PL_LANG_CHOICE ? f->choices : meta[f->type];

	if (f->flags & PL_LANG_KEY)
		pl_write_format(w, "%s%s%s", f->name, *value ? "=" : "", value);
	else if (f->type == PL_LANG_CHOICE)
		pl_write_text(w, f->choices);
	else
		for (const char *s = f->name; *s; s++)
			pl_write_char(w, (char)toupper((unsigned char)*s));
	if (f->flags & PL_LANG_LIST)
		pl_write_text(w, "...");
}

/* A field of the same name that another first value has stands for both. */
static bool is_repeated(const struct pl_lang_row *row, const struct pl_lang_field *f)
{
	return pl_lang_field(row, f->name, NULL) != f;
}

static void put_usage(struct pl_writer *w, const struct pl_lang_row *row)
{
	pl_write_text(w, row->name);
	for (const struct pl_lang_field *f = row->field; f && f->name; f++) {
		bool needed = f->flags & PL_LANG_NEED || (f->flags & PL_LANG_LIST && f->min > 0);

		if (is_repeated(row, f))
			continue;
		pl_write_text(w, needed ? " " : " [");
		put_field(w, f);
		pl_write_text(w, needed ? "" : "]");
	}
}

int pl_lang_usage(struct pl_buf *b, const struct pl_lang_row *row, struct pl_err *err)
{
	struct pl_writer w = { .b = *b };

	put_usage(&w, row);
	*b = w.b;
	return pl_write_check(&w, err);
}

/* ---- help ------------------------------------------------------------------------------------ */

/* The conditions and defaults of a field, and of the fields of its name for other first values. */
static void put_cases(struct pl_writer *w, const struct pl_lang_field *f)
{
	bool several = false;

	for (const struct pl_lang_field *g = f + 1; g->name; g++)
		several |= !strcmp(g->name, f->name);
	if (f->only && !several)
		pl_write_format(w, "; only with %s", f->only);
	if (f->flags & PL_LANG_NEED)
		pl_write_text(w, "; needed");
	if (f->value)
		pl_write_format(w, "; default %s", f->value);
	for (const struct pl_lang_field *g = f; several && g->name; g++)
		if (!strcmp(g->name, f->name))
			pl_write_format(w, "%s%s with %s", g == f ? "" : ", ",
					g == f ? "" : g->value, g->only);
}

static void describe(struct pl_writer *w, const struct pl_lang_field *f)
{
	char limits[128];

	pl_write_format(w, "  %-18s  %s\n  %-18s  (", f->name, f->doc, "");
	if (!(f->flags & PL_LANG_LIST))
		pl_write_text(w, kind[f->type]);
	else if (f->max == 1)
		pl_write_text(w, "one name");
	else
		pl_write_format(w, "%g or more names", f->min);
	if (f->choices)
		pl_write_format(w, "%s%s", f->type == PL_LANG_CHOICE ? " " : ", or ", f->choices);
	if (pl_lang_is_limited(f) && !(f->flags & PL_LANG_LIST))
		pl_write_format(w, ", %s", pl_lang_limits(f, limits, sizeof(limits)));
	put_cases(w, f);
	pl_write_text(w, ")\n");
}

static void help_row(const struct pl_lang_schema *s, const struct pl_lang_row *row,
		     struct pl_writer *w)
{
	put_usage(w, row);
	pl_write_format(w, "\n\n%s\n", row->doc);
	if (row->field && row->field->name)
		pl_write_char(w, '\n');
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		if (!is_repeated(row, f))
			describe(w, f);
	for (const struct pl_lang_field *f = pl_lang_extra(s, row); f && f->name; f++)
		describe(w, f);
	pl_write_format(w, "\nlanguage: %s%s\neffect: %s\n", s->name,
			row->once ? "; at most once in a file" : "", effect[row->effect]);
}

static void help_list(const struct pl_lang_schema *const *s, struct pl_writer *w)
{
	for (; *s; s++) {
		pl_write_format(w, "statements of a %s:\n", (*s)->name);
		for (size_t i = 0; i < (*s)->n_rows; i++)
			pl_write_format(w, "  %-18s  %s\n", (*s)->row[i].name, (*s)->row[i].doc);
		pl_write_text(w, s[1] ? "\n" : "");
	}
}

static void topics(const struct pl_lang_schema *const *s, struct pl_writer *w)
{
	pl_write_text(w, "statements");
	for (; *s; s++)
		for (size_t i = 0; i < (*s)->n_rows; i++)
			pl_write_format(w, "|%s", (*s)->row[i].name);
	pl_write_char(w, '\0');
}

/* Help for the rows of that name, in one language or in all; or for the first one that it is
 * another name of. */
static void help_name(const struct pl_lang_schema *const *s, const char *topic, struct pl_writer *w)
{
	const char *colon = strchr(topic, ':'), *name = colon ? colon + 1 : topic;
	const struct pl_lang_schema *other_language = NULL;
	const struct pl_lang_row *other = NULL;
	struct pl_words_near near = { .s = name };
	char hint[96];
	bool any = false;

	for (; *s; s++) {
		if (colon && (strlen((*s)->name) != (size_t)(colon - topic) ||
			      memcmp((*s)->name, topic, (size_t)(colon - topic)) != 0))
			continue;
		for (size_t i = 0; i < (*s)->n_rows; i++) {
			const struct pl_lang_row *row = &(*s)->row[i];

			pl_words_near(&near, row->name, strlen(row->name));
			if (!other && row->also && !strcmp(row->also, name)) {
				other = row;
				other_language = *s;
			}
			if (strcmp(row->name, name) != 0)
				continue;
			pl_write_text(w, any ? "\n" : "");
			help_row(*s, row, w);
			any = true;
		}
	}
	if (!any && other)
		help_row(other_language, other, w);
	else if (!any)
		pl_fail(&w->fail, PL_EUSAGE,
			"--help: there is no statement \"%.100s\"%s; --help=statements lists them",
			name, pl_words_near_text(&near, hint, sizeof(hint)));
}

int pl_lang_help(const struct pl_lang_schema *const *s, const char *topic, struct pl_buf *b,
		 struct pl_err *err)
{
	struct pl_writer w = { .b = *b };

	if (!topic)
		topics(s, &w);
	else if (!strcmp(topic, "statements"))
		help_list(s, &w);
	else
		help_name(s, topic, &w);
	*b = w.b;
	return pl_write_check(&w, err);
}
