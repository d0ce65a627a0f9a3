/* What a schema says about itself: usage lines, --help=STATEMENT, the words of completion. */
#include <ctype.h>
#include <string.h>

#include "lang/internal.h"

static const char *const meta[] = {
	[PL_LANG_INT] = "N",	   [PL_LANG_REAL] = "X",       [PL_LANG_TIME] = "TIME",
	[PL_LANG_RATE] = "RATE",   [PL_LANG_FLAG] = "",	       [PL_LANG_CHOICE] = "WORD",
	[PL_LANG_NAME] = "NAME",   [PL_LANG_GLOB] = "PATTERN", [PL_LANG_NUMBERS] = "NUMBERS",
	[PL_LANG_SIZES] = "SIZES",
};
static const char *const kind[] = {
	[PL_LANG_INT] = "a whole number",
	[PL_LANG_REAL] = "a decimal number",
	[PL_LANG_TIME] = "a time, like 200us or 3s",
	[PL_LANG_RATE] = "a rate, like 10Gbit/s or 2GB/s",
	[PL_LANG_FLAG] = "yes or no; the word alone means yes",
	[PL_LANG_CHOICE] = "one of",
	[PL_LANG_NAME] = "a name",
	[PL_LANG_GLOB] = "a pattern, like conv*|dense*",
	[PL_LANG_NUMBERS] = "numbers, ranges or patterns, like 0|4..7",
	[PL_LANG_SIZES] = "sizes or ranges, like 64K..1M",
};
static const char *const effect[] = {
	[PL_LANG_STRUCTURE] = "structure: it changes which operations there are, or their order",
	[PL_LANG_TIMING] = "timing: it changes only how long something takes",
	[PL_LANG_EXECUTION] = "execution only: it says how to run",
};

/* ---- usage --------------------------------------------------------------------------------------
 */

static int put_upper(struct pl_buf *b, const char *s, struct pl_err *err)
{
	int rc = 0;

	for (; *s && rc >= 0; s++)
		rc = pl_buf_printf(b, err, "%c", toupper((unsigned char)*s));
	return rc;
}

static int put_field(struct pl_buf *b, const struct pl_lang_field *f, struct pl_err *err)
{
	int rc;

	if (f->flags & PL_LANG_KEY) {
		const char *value = f->type == PL_LANG_CHOICE ? f->choices : meta[f->type];

		return pl_buf_printf(b, err, "%s%s%s", f->name, *value ? "=" : "", value);
	}
	if (f->type == PL_LANG_CHOICE)
		return pl_buf_printf(b, err, "%s", f->choices);
	PL_TRY(put_upper(b, f->name, err));
	rc = f->flags & PL_LANG_LIST ? pl_buf_printf(b, err, "...") : 0;
out:
	return rc;
}

/* A field of the same name that another first value has stands for both. */
static bool is_repeated(const struct pl_lang_row *row, const struct pl_lang_field *f)
{
	return pl_lang_field(row, f->name, NULL) != f;
}

int pl_lang_usage(struct pl_buf *b, const struct pl_lang_row *row, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_buf_printf(b, err, "%s", row->name));
	for (const struct pl_lang_field *f = row->field; f && f->name; f++) {
		bool needed = f->flags & PL_LANG_NEED || (f->flags & PL_LANG_LIST && f->min > 0);

		if (is_repeated(row, f))
			continue;
		PL_TRY(pl_buf_printf(b, err, needed ? " " : " ["));
		PL_TRY(put_field(b, f, err));
		PL_TRY(pl_buf_printf(b, err, needed ? "" : "]"));
	}
	rc = 0;
out:
	return rc;
}

/* ---- help ---------------------------------------------------------------------------------------
 */

static int describe(struct pl_buf *b, const struct pl_lang_field *f, struct pl_err *err)
{
	char limits[128];
	int rc;

	PL_TRY(pl_buf_printf(b, err, "  %-18s  %s\n  %-18s  (", f->name, f->doc, ""));
	if (f->flags & PL_LANG_LIST)
		PL_TRY(pl_buf_printf(b, err, f->max == 1 ? "one name" : "%g or more names",
				     f->min));
	else
		PL_TRY(pl_buf_printf(b, err, "%s", kind[f->type]));
	if (f->choices)
		PL_TRY(pl_buf_printf(b, err, "%s%s", f->type == PL_LANG_CHOICE ? " " : ", or ",
				     f->choices));
	if (pl_lang_is_limited(f) && !(f->flags & PL_LANG_LIST))
		PL_TRY(pl_buf_printf(b, err, ", %s", pl_lang_limits(f, limits, sizeof(limits))));
	if (f->only)
		PL_TRY(pl_buf_printf(b, err, "; only with %s", f->only));
	if (f->flags & PL_LANG_NEED)
		PL_TRY(pl_buf_printf(b, err, "; needed"));
	if (f->value)
		PL_TRY(pl_buf_printf(b, err, "; default %s", f->value));
	rc = pl_buf_printf(b, err, ")\n");
out:
	return rc;
}

static int help_row(const struct pl_lang_schema *s, const struct pl_lang_row *row, struct pl_buf *b,
		    struct pl_err *err)
{
	int rc;

	PL_TRY(pl_lang_usage(b, row, err));
	PL_TRY(pl_buf_printf(b, err, "\n\n%s\n", row->doc));
	if (row->field && row->field->name)
		PL_TRY(pl_buf_printf(b, err, "\n"));
	for (const struct pl_lang_field *f = row->field; f && f->name; f++)
		PL_TRY(describe(b, f, err));
	for (const struct pl_lang_field *f = pl_lang_extra(s, row); f && f->name; f++)
		PL_TRY(describe(b, f, err));
	rc = pl_buf_printf(b, err, "\nlanguage: %s%s\neffect: %s\n", s->name,
			   row->once ? "; at most once in a file" : "", effect[row->effect]);
out:
	return rc;
}

static int help_list(const struct pl_lang_schema *const *s, struct pl_buf *b, struct pl_err *err)
{
	int rc = 0;

	for (; *s; s++) {
		PL_TRY(pl_buf_printf(b, err, "statements of a %s:\n", (*s)->name));
		for (size_t i = 0; i < (*s)->n_rows; i++)
			PL_TRY(pl_buf_printf(b, err, "  %-18s  %s\n", (*s)->row[i].name,
					     (*s)->row[i].doc));
		PL_TRY(pl_buf_printf(b, err, s[1] ? "\n" : ""));
	}
out:
	return rc;
}

static int topics(const struct pl_lang_schema *const *s, struct pl_buf *b, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_buf_printf(b, err, "statements"));
	for (; *s; s++)
		for (size_t i = 0; i < (*s)->n_rows; i++)
			PL_TRY(pl_buf_printf(b, err, "|%s", (*s)->row[i].name));
	rc = pl_buf_put(b, "", 1, err);
out:
	return rc;
}

int pl_lang_help(const struct pl_lang_schema *const *s, const char *topic, struct pl_buf *b,
		 struct pl_err *err)
{
	const char *colon = topic ? strchr(topic, ':') : NULL, *name = colon ? colon + 1 : topic;
	struct pl_lang_near near = { .s = name };
	char hint[96];
	bool any = false;
	int rc = 0;

	if (!topic)
		return topics(s, b, err);
	if (!strcmp(topic, "statements"))
		return help_list(s, b, err);
	for (; *s; s++) {
		const struct pl_lang_row *row = pl_lang_row(*s, name);

		if (colon && (strlen((*s)->name) != (size_t)(colon - topic) ||
			      memcmp((*s)->name, topic, (size_t)(colon - topic)) != 0))
			continue;
		for (size_t i = 0; i < (*s)->n_rows; i++)
			pl_lang_near(&near, (*s)->row[i].name, strlen((*s)->row[i].name));
		if (row && any)
			PL_TRY(pl_buf_printf(b, err, "\n"));
		if (row)
			PL_TRY(help_row(*s, row, b, err));
		any = any || row;
	}
	if (!any)
		rc = pl_fail(err, PL_EUSAGE,
			     "--help: there is no statement \"%.100s\"%s; --help=statements lists "
			     "them",
			     name, pl_lang_near_text(&near, hint, sizeof(hint)));
out:
	return rc;
}
