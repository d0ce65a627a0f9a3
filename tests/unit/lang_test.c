/*
 * Statements: a new statement from one row, random statements through text, messages with column
 * and nearest word, options of a command line, help, rates and times.
 */
#include <math.h>
#include <stdlib.h>

#include "core/words.h"
#include "plan/job.h"
#include "plan/model.h"
#include "plan/plan.h"
#include "plan/topology.h"
#include "tap.h"

/* ---- a statement that needs one row -------------------------------------------------------------
 */

struct pipeline {
	const char *schedule;
	int64_t stages, microbatches;
};
#define AT(member) .offset = offsetof(struct pipeline, member)
#define BOUND	   (PL_LANG_KEY | PL_LANG_BOUND)
#define KEY	   PL_LANG_KEY
#define FIELD	   PL_LANG_FIELD

static const struct pl_lang_row rows[] = {
	{ PL_LANG_ROW("everything", TIMING, "a field of each type",
		      FIELD("who", NAME, PL_LANG_NEED, "name"),
		      FIELD("names", NAME, PL_LANG_LIST | PL_LANG_DIFFER, "names", .min = 1),
		      FIELD("count", INT, PL_LANG_NEED, "number", .min = -5, .max = 0x1p40),
		      FIELD("x", REAL, KEY, "real", .word = "by"), FIELD("wait", TIME, KEY, "time"),
		      FIELD("rate", RATE, KEY, "rate"), FIELD("loud", FLAG, KEY, "flag"),
		      FIELD("like", GLOB, KEY, "pattern"), FIELD("rank", NUMBERS, KEY, "ranks"),
		      FIELD("size", SIZES, KEY, "sizes"),
		      FIELD("kind", CHOICE, KEY, "choice", .choices = "a|b|c")) },
	{ PL_LANG_ROW("pipeline", STRUCTURE,
		      "split the model into stages that work on microbatches in turns",
		      FIELD("schedule", CHOICE, BOUND, "order of the passes", AT(schedule),
			    .choices = "1f1b|gpipe|interleaved", .value = "1f1b"),
		      FIELD("stages", INT, BOUND, "parts of the model", AT(stages), .min = 2,
			    .max = 1024),
		      FIELD("microbatches", INT, BOUND, "parts of a batch", AT(microbatches),
			    .min = 1, .max = 65536, .value = "8")) },
};
static const struct pl_lang_field extra[] = {
	FIELD("alone", INT, KEY, "ns", .word = "alone"),
	{ .name = NULL },
};
static const struct pl_lang_schema schema = { .name = "test",
					      .version = 1,
					      .row = rows,
					      .n_rows = PL_LEN(rows),
					      .extra = extra,
					      .n_extra = 1 };
static const struct pl_lang_schema *const all[] = { &schema, &pl_job_schema, NULL };

static struct pl_err err;

static int open_str(struct pl_lang_reader *r, const struct pl_lang_schema *s, const char *text)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test", text, strlen(text), &err);
	rc = pl_lang_open(r, s, in, "test", &err);
	pl_in_close(in);
	return rc;
}

/* The first statement of a text. */
static int read_str(struct pl_lang_reader *r, const struct pl_lang_schema *s, const char *text)
{
	int rc = open_str(r, s, text);

	return rc < 0 ? rc : pl_lang_next(r, &err);
}

static const char *printed(struct pl_buf *b, const struct pl_lang_statement *st)
{
	struct pl_writer w = { .b = *b };

	w.b.n = 0;
	pl_lang_write(&w, st);
	pl_write(&w, "\n", 2);
	*b = w.b;
	if (w.fail.code)
		abort();
	return (const char *)b->p;
}

static void one_row(void)
{
	struct pipeline p = { 0 };
	struct pl_lang_reader r;
	struct pl_arena arena = { 0 };
	struct pl_buf b = { 0 };

	pl_lang_defaults(&rows[1], NULL, &p);
	ok(p.microbatches == 8 && !strcmp(p.schedule, "1f1b") && !p.stages, "defaults of a row");
	is_i64(read_str(&r, &schema, "pipeline schedule=gpipe stages=4 microbatches=16\n"), 1,
	       "a statement that is one row");
	is_i64(pl_lang_bind(&r.st, &p, &arena, &err), 0, "into a struct");
	ok(!strcmp(p.schedule, "gpipe") && p.stages == 4 && p.microbatches == 16, "its members");
	is_str(printed(&b, &r.st), "pipeline schedule=gpipe stages=4 microbatches=16\n",
	       "and back");
	if (pl_lang_begin(&r.st, &schema, &rows[1], &err) < 0)
		abort();
	pl_lang_unbind(&r.st, &p, &(struct pipeline){ .stages = 4 });
	is_str(printed(&b, &r.st), "pipeline schedule=gpipe microbatches=16\n",
	       "from a struct, without what is usual");
	pl_lang_close(&r);
	ok(pl_lang_option(&r, &schema, "pipeline stages=4 schedule=gpipe microbatches=16", &err) >=
			   0 &&
		   pl_lang_bind(&r.st, &p, &arena, &err) == 0 && p.stages == 4 &&
		   !strcmp(p.schedule, "gpipe") && p.microbatches == 16,
	   "from a command line (%s)", err.msg);
	pl_lang_close(&r);
	b.n = 0;
	ok(pl_lang_help(all, "pipeline", &b, &err) == 0 && pl_buf_put(&b, "", 1, &err) == 0,
	   "help");
	ok(strstr((char *)b.p, "pipeline [schedule=1f1b|gpipe|interleaved] [stages=N] "
			       "[microbatches=N]\n") == (char *)b.p &&
		   strstr((char *)b.p, "default 8") &&
		   strstr((char *)b.p, "at least 2 and at most 1024"),
	   "its usage, defaults and limits");
	b.n = 0;
	ok(pl_lang_help(all, NULL, &b, &err) == 0 &&
		   strstr((char *)b.p, "statements|everything|pipeline|name|model|"),
	   "words of completion");
	pl_buf_fini(&b);
	pl_arena_fini(&arena);
}

/* ---- random statements --------------------------------------------------------------------------
 */

static uint64_t state;

static uint64_t below(uint64_t n)
{
	return pl_rng_next(&state) % n;
}

/* Names that look like keys, flags, words and comments, too. */
static const char *any_name(char *out)
{
	static const char *const special[] = { ";", "x", "by", "x=3", "loud", "#", "a=b", "-", "" };
	static const char chars[] = "abcxk01 .\"\\#;\n\t\r\x01\x7f\xc3\xa9*=-|";
	size_t n = 1 + below(12);

	if (!below(4))
		return strcpy(out, special[below(PL_LEN(special) - 1)]);
	for (size_t i = 0; i < n; i++)
		out[i] = chars[below(sizeof(chars) - 1)];
	out[n] = '\0';
	return out;
}

static void any_value(const struct pl_lang_field *f, struct pl_lang_value *v, char *name)
{
	*v = (struct pl_lang_value){ .present = true };
	v->i = f->type == PL_LANG_FLAG ? (int64_t)below(2)
				       : (int64_t)below(1u << 20) - (f->min < 0 ? 5 : 0);
	v->r = (double)(1 + below(1u << 30)) / 3e6;
	if (f->type == PL_LANG_CHOICE) {
		snprintf(name, 32, "%c", (char)('a' + below(3)));
		v->i = *name - 'a';
	} else if (f->type == PL_LANG_NUMBERS || f->type == PL_LANG_SIZES) {
		snprintf(name, 32, "%d|%d..", (int)below(9), (int)below(9));
	} else if (f->type == PL_LANG_COUNTS) {
		snprintf(name, 32, below(2) ? "%d" : "%d,%d", (int)below(9), (int)below(9));
	} else {
		any_name(name);
	}
	v->s = f->type >= PL_LANG_CHOICE ? name : NULL;
}

static bool same(const struct pl_lang_statement *a, const struct pl_lang_statement *b)
{
	bool good = a->row == b->row && a->n_list == b->n_list;

	for (size_t i = 0; good && i < a->n_list; i++)
		good = !strcmp(a->list[i], b->list[i]);
	for (size_t i = 0; good && i < a->n; i++) {
		const struct pl_lang_value *x = &a->value[i], *y = &b->value[i];
		enum pl_lang_type t = i < a->n - 1 ? a->row->field[i].type : PL_LANG_INT;

		good = x->present == y->present &&
		       (!x->present ||
			(x->s ? !strcmp(x->s, y->s)
			      : (t == PL_LANG_REAL || t == PL_LANG_RATE ? x->r == y->r
									: x->i == y->i)));
	}
	return good;
}

static void random_statements(void)
{
	struct pl_lang_statement st = { 0 };
	struct pl_buf b = { 0 };
	char names[16][32];
	int back = 0, n = 5000;

	for (int k = 0; k < n; k++) {
		struct pl_lang_reader r;

		state = (uint64_t)k;
		if (pl_lang_begin(&st, &schema, &rows[0], &err) < 0)
			abort();
		for (size_t i = 0; i < st.n; i++)
			if (i != 1 && (i < 3 || below(2)))
				any_value(i < st.n - 1 ? &rows[0].field[i] : extra, &st.value[i],
					  names[i]);
		st.n_list = 1 + below(3);
		if (pl_grow(&st.list, &st.cap_list, 3, sizeof(*st.list), &err) < 0)
			abort();
		for (size_t i = 0; i < st.n_list; i++) {
			any_name(names[12 + i]);
			names[12 + i][0] = (char)('A' + i); /* they differ */
			st.list[i] = names[12 + i];
		}
		if (read_str(&r, &schema, printed(&b, &st)) == 1 && same(&st, &r.st))
			back++;
		else
			printf("# %d: %s# %s\n", k, (char *)b.p, err.msg);
		pl_lang_close(&r);
		if (back <= k)
			break;
	}
	is_i64(back, n, "random statements through text");
	pl_lang_end(&st);
	pl_buf_fini(&b);
}

/* ---- messages -----------------------------------------------------------------------------------
 */

static void errors(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "\n# x\n  pipelin stages=4\n", "test: line 3, column 3: there is no statement "
						 "\"pipelin\"; did you mean pipeline?" },
		{ "peace\n", "there is no statement \"peace\"; there are everything, pipeline" },
		{ "pipeline stagse=4\n",
		  "line 1, column 10: pipeline has no \"stagse\"; did you mean stages?; it has" },
		{ "pipeline stages=4 stages=5\n", "column 19: pipeline: stages is there twice" },
		{ "pipeline=4\n", "line 1, column 1: pipeline=4: write pipeline " },
		{ "pipelin=4\n", "there is no statement \"pipelin=4\"; did you mean pipeline?" },
		{ "pipeline stages=1\n",
		  "column 10: pipeline: stages must be at least 2 and at most 1024, not 1" },
		{ "pipeline schedule=1fb1\n", "not \"1fb1\"; did you mean 1f1b?" },
		{ "pipeline stages 4\n", "column 10: pipeline: the value of stages is missing" },
		{ "pipeline 4\n", "column 10: pipeline: \"4\" is too much here" },
		{ "pipeline 'two words'*2\n", "a value with blanks stands in double quotes: key=" },
		{ "pipeline ; 4\n", "column 10: pipeline: \";\" has no meaning here" },
		{ "everything a b 4 ; 4\n", "column 20: everything: \"4\" behind the semicolon" },
		{ "everything a b 4 ; alone\n", "everything: alone is missing behind \"alone\"" },
		{ "everything a b 4 x=1e999\n", "x must be a decimal number, not \"1e999\"" },
		{ "everything a 4\n", "it needs 1 or more names, there are 0" },
		{ "everything a b b 4\n", "\"b\" is there twice; name it once" },
		{ "everything a b 4 raet=1GB\n", "did you mean rate?" },
		{ "everything a b 4 like=\"a\n", "column 23: the quote is not closed" },
		{ "everything a b 4 rank=5..2\n", "rank=5..2: a range ends before it begins" },
		{ "paceline-test 2\n", "line 1, column 15: version 2 is newer than 1" },
	};
	struct pl_lang_reader r;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(&r, &schema, bad[i].text);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s", bad[i].says))
			printf("# %d %s\n", rc, err.msg);
		pl_lang_close(&r);
	}
	is_i64(read_str(&r, &schema, "everything a b=c 4 like=\"a b\" by 2 size=1K..\n"), 1,
	       "a name with an equals sign, a quoted value, a key of two words");
	ok(!strcmp(r.st.list[0], "b=c") && !strcmp(pl_lang_get(&r.st, "like")->s, "a b") &&
		   pl_lang_get(&r.st, "x")->r == 2,
	   "what it says");
	pl_lang_close(&r);
}

static void help(void)
{
	struct pl_buf b = { 0 };

	memset(&err, 0, sizeof(err));
	ok(pl_lang_help(all, "bacth", &b, &err) == PL_EUSAGE &&
		   strstr(err.msg, "did you mean batch?"),
	   "help of a misspelt statement");
	memset(&err, 0, sizeof(err));
	ok(pl_lang_help(all, "test:batch", &b, &err) == PL_EUSAGE, "help of another language");
	memset(&err, 0, sizeof(err));
	ok(pl_lang_help(all, "job:batch", &b, &err) == 0 && strstr((char *)b.p, "batch BATCH\n"),
	   "help of one language");
	b.n = 0;
	ok(pl_lang_help(all, "statements", &b, &err) == 0 && pl_buf_put(&b, "", 1, &err) == 0 &&
		   strstr((char *)b.p, "statements of a job:\n") &&
		   strstr((char *)b.p, "\n  batch "),
	   "the list");
	pl_buf_fini(&b);
}

/* ---- every form that the help shows ------------------------------------------------------------
 */

/* Example i of a value of the field, as --help=STATEMENT describes it; false: there are fewer. */
static bool example(const struct pl_lang_field *f, size_t i, char *out, size_t size)
{
	static const char *const usual[][2] = {
		[PL_LANG_TIME] = { "2ms", "3s" },    [PL_LANG_RATE] = { "10Gbit/s", "2GB/s" },
		[PL_LANG_FLAG] = { "yes", "no" },    [PL_LANG_NAME] = { "fc1" },
		[PL_LANG_GLOB] = { "conv*|dense*" }, [PL_LANG_NUMBERS] = { "0|4..7" },
		[PL_LANG_SIZES] = { "64K..1M" },     [PL_LANG_COUNTS] = { "1", "3,1" },
	};
	const char *word = f->choices;

	for (size_t k = 0; word && k < i; k++)
		word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL;
	if (word && (f->type == PL_LANG_CHOICE || f->type == PL_LANG_INT)) {
		snprintf(out, size, "%.*s", (int)strcspn(word, "|"), word);
		return true;
	}
	if (f->type == PL_LANG_INT || f->type == PL_LANG_REAL) {
		bool open = f->flags & PL_LANG_ABOVE;
		double v =
			f->max != 0 && f->min + 1 >= f->max ? (f->min + f->max) / 2 : f->min + open;

		snprintf(out, size, "%.17g", v);
		return i == (f->type == PL_LANG_INT && f->choices ? 1 : 0);
	}
	if (i > 1 || f->type == PL_LANG_CHOICE || !usual[f->type][i])
		return false;
	snprintf(out, size, "%s", usual[f->type][i]);
	return true;
}

struct form {
	const struct pl_lang_row *row;
	const struct pl_lang_field *f; /* this one in the form ... */
	const char *value;	       /* ... with this value */
	enum { AS_KEY, AS_WORDS, ALONE } as;
	const char *first; /* value of the first field, which allows the field; NULL: any */
};

static bool allows(const struct pl_lang_field *f, const char *first)
{
	char word[32];

	snprintf(word, sizeof(word), "%.*s", first ? (int)strcspn(first, "|") : 0, first);
	return !f->only || pl_words_find(f->only, word) >= 0;
}

/* The statement in its shortest text that has the form. Keys are behind positional fields. */
static void put_form(const struct form *x, bool option, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "%s", x->row->name);

	for (int keys = 0; keys < 2; keys++)
		for (const struct pl_lang_field *f = x->row->field; f->name; f++) {
			size_t many = f->flags & PL_LANG_LIST && f->min > 1 ? (size_t)f->min : 1;
			bool key = f->flags & PL_LANG_KEY;
			const char *blank =
				option && x->row->commas && f != x->f && n > strlen(x->row->name)
					? ","
					: " ";
			char v[64];

			if (key != keys || !allows(f, x->first) ||
			    (f != x->f && !(f->flags & PL_LANG_NEED) && (key || f > x->f) &&
			     !(f->flags & PL_LANG_LIST && f->min > 0)))
				continue;
			if (!example(f, 0, v, sizeof(v)))
				abort();
			if (f == x->f)
				snprintf(v, sizeof(v), "%s", x->value);
			else if (f == x->row->field && x->first)
				snprintf(v, sizeof(v), "%.*s", (int)strcspn(x->first, "|"),
					 x->first);
			for (size_t i = 0; i < many; i++) {
				const char *s = f == x->f && x->as == AS_WORDS ? f->word : f->name;

				n += (size_t)snprintf(out + n, size - n, "%s%s%s", blank,
						      key ? s : "",
						      !key || (f == x->f && x->as == ALONE) ? ""
						      : f == x->f && x->as == AS_WORDS	    ? " "
											    : "=");
				if (f != x->f || x->as != ALONE)
					n += (size_t)snprintf(out + n, size - n, "%s", v);
				if (many > 1)
					n += (size_t)snprintf(out + n, size - n, "%zu", i);
			}
		}
}

/* Is the field there, with its value? */
static bool takes(const struct pl_lang_schema *s, const struct form *x, bool option)
{
	struct pl_lang_reader r;
	const struct pl_lang_value *v;
	char text[512];
	bool good;
	int rc;

	put_form(x, option, text, sizeof(text));
	memset(&err, 0, sizeof(err));
	if (option) {
		rc = pl_lang_option(&r, s, text, &err) < 0 ? -1 : 1;
	} else {
		rc = pl_lang_open_text(&r, s, text, &err);
		rc = rc < 0 ? rc : pl_lang_next(&r, &err);
	}
	v = rc == 1 ? &r.st.value[x->f - x->row->field] : NULL;
	good = rc == 1 && r.st.row == x->row &&
	       (x->f->flags & PL_LANG_LIST ? r.st.n_list > 0
					   : v->present && (!v->s || !strcmp(v->s, x->value)));
	if (!good)
		printf("# %s%s: %d %s\n", option ? "option " : "", text, rc, err.msg);
	pl_lang_close(&r);
	return good;
}

static void all_forms(void)
{
	static const struct pl_lang_schema *const known[] = { &schema, &pl_job_schema,
							      &pl_plan_schema, &pl_topology_schema,
							      &pl_model_schema };
	size_t n = 0, good = 0;

	for (size_t k = 0; k < PL_LEN(known); k++) {
		struct pl_lang_schema s = *known[k];
		size_t n_options = k == 2 ? PL_RW_COUNT_ : 0; /* of replay --what-if */

		for (const struct pl_lang_row *row = s.row; row < s.row + s.n_rows; row++)
			for (const struct pl_lang_field *f = row->field; f && f->name; f++) {
				char value[64];

				for (size_t i = 0; example(f, i, value, sizeof(value)); i++) {
					struct form x = { row, f, value, AS_KEY, f->only };
					bool option = row < s.row + n_options;

					if (f == row->field && f->type == PL_LANG_CHOICE)
						x.first = value;
					for (int as = AS_KEY; as <= ALONE; as++) {
						x.as = (int)as;
						if ((as == AS_WORDS && !f->word) ||
						    (as == ALONE && (f->type != PL_LANG_FLAG || i)))
							continue;
						n += 1 + option;
						good += takes(&s, &x, false);
						good += option && takes(&s, &x, true);
					}
				}
			}
	}
	ok(n > 200, "there are many forms");
	is_i64((int64_t)good, (int64_t)n, "all of which are taken, in files and as options");
}

static void units(void)
{
	static const struct {
		const char *text;
		double want;
	} rate[] = { { "1Gbit", 0.125 },      { "200Mbit", 0.025 }, { "2GB", 2 },
		     { "1GiB", 1.073741824 }, { "1Gbit/s", 0.125 }, { "12.5MB/s", 0.0125 } };
	static const char *const wrong[] = { "", "1", "Gbit", "-1Gbit", "0GB", "1GB/m", "nan" };
	double v;
	pl_ns ns;

	for (size_t i = 0; i < PL_LEN(rate); i++) {
		v = 0;
		ok(pl_lang_rate(rate[i].text, &v) && fabs(v / rate[i].want - 1) < 1e-12, "%s",
		   rate[i].text);
	}
	for (size_t i = 0; i < PL_LEN(wrong); i++)
		ok(!pl_lang_rate(wrong[i], &v) && !pl_lang_time(wrong[i], &ns),
		   "no rate, no time: %s", wrong[i]);
	ok(pl_lang_time("200us", &ns) && ns == 200000, "200us");
	ok(pl_lang_time("1ms", &ns) && ns == 1000000, "1ms");
	ok(pl_lang_time("0s", &ns) && ns == 0, "0s");
}

int main(void)
{
	one_row();
	random_statements();
	errors();
	help();
	all_forms();
	units();
	return done_testing();
}
