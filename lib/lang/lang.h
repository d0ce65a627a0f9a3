/*
 * lang.h - statements `NAME positional... key=value...`: one lexer and one typed schema.
 *
 * A schema is a table of rows, one for each statement of a language (job, plan, model, topology,
 * what-if). A row lists the fields of the statement. The parser, the printer, the JSON form, the
 * help, the completion and the messages all follow from the rows, so that a new statement is one
 * row, and one function that does what the statement means.
 */
#ifndef PL_LANG_H
#define PL_LANG_H

#include "core/core.h"
#include "io/stream.h"
#include "io/write.h"

/* ---- schema --------------------------------------------------------------------------------- */

enum pl_lang_type {		     /* how a value is stored, by pl_lang_bind() too */
		    PL_LANG_INT,     /* int64_t; words of `choices` stand for -1 */
		    PL_LANG_REAL,    /* double */
		    PL_LANG_TIME,    /* pl_ns: "200us", "3s"; at most an hour */
		    PL_LANG_RATE,    /* double, bytes per ns: "100Gbit/s", "2GB" */
		    PL_LANG_FLAG,    /* bool: the word alone, or =1, =0, =yes, =no */
		    PL_LANG_CHOICE,  /* const char *: one of `choices`; the value's `i` is its index
				      */
		    PL_LANG_NAME,    /* const char *: any text that is not empty */
		    PL_LANG_GLOB,    /* const char *: a pattern, see pl_glob() */
		    PL_LANG_NUMBERS, /* const char *: see pl_lang_numbers() */
		    PL_LANG_SIZES,   /* the same, of numbers of bytes: "64K..1M" */
		    PL_LANG_COUNTS,  /* const char *: whole numbers, "3" or "3,1"; the limits hold
				      * for each; see pl_lang_count() */
};

enum pl_lang_flag {
	PL_LANG_KEY = 1,    /* key=value; without it the field is positional */
	PL_LANG_NEED = 2,   /* must be given */
	PL_LANG_LIST = 4,   /* positional: `min` to `max` names; one list in a row at most */
	PL_LANG_DIFFER = 8, /* no name of the list twice */
	PL_LANG_ABOVE = 16, /* the minimum itself is not allowed */
	PL_LANG_BELOW = 32, /* the maximum itself is not allowed */
	PL_LANG_BOUND = 64, /* `offset` is that of a member of the caller's struct */
	PL_LANG_LONG = 128, /* a time of any length */
	/* the value may hold commas and "=", as names of kernels do; see pl_lang_row.commas */
	PL_LANG_COMMAS = 256,
};

struct pl_lang_field {
	const char *name;
	enum pl_lang_type type;
	unsigned flags;		   /* enum pl_lang_flag */
	double min, max;	   /* of numbers, times in ns, lists; both 0: any */
	const char *choices;	   /* "a|b|c" */
	const char *refused, *why; /* words of other languages, and why they are no choice; NULL */
	const char *value;	   /* the default, as text; NULL: none */
	const char *only; /* "sgd|adam": only if the first field of the statement is one of these */
	const char *word; /* a key may also be two words, this one and then its value */
	const char *also; /* "a|b": older words that mean the same, as keys and as two words */
	size_t offset;
	const char *doc; /* one line */
};

enum pl_lang_class {
	PL_LANG_STRUCTURE, /* changes which operations there are, or their order */
	PL_LANG_TIMING,	   /* changes only how long something takes */
	PL_LANG_EXECUTION, /* says how to run; a simulation does not see it */
};

struct pl_lang_row {
	const char *name;
	enum pl_lang_class effect;
	const char *doc;		   /* one line */
	const struct pl_lang_field *field; /* ends with a field without a name; NULL: none */
	bool once;			   /* at most once in a file */
	bool commas;			   /* a comma before "key=" separates as a blank does */
	const char *also;      /* another name; if several rows have it, that of the last; NULL */
	const char *elsewhere; /* what other programs call it, separated by "|", for messages; NULL
				*/
};
/* A field: its key, type and flags, one line of documentation, then other members. */
#define PL_LANG_FIELD(key, kind, how, what, ...)                                                   \
	{                                                                                          \
		.name = key, .type = PL_LANG_##kind, .flags = how, .doc = what, __VA_ARGS__        \
	}
/* The members of a row: its name, class and line of documentation, then its fields. */
#define PL_LANG_ROW(key, class, what, ...)                                                         \
	.name = key, .effect = PL_LANG_##class, .doc = what,                                       \
	.field = (const struct pl_lang_field[])                                                    \
	{                                                                                          \
		__VA_ARGS__,                                                                       \
		{                                                                                  \
			.name = NULL                                                               \
		}                                                                                  \
	}

struct pl_lang_schema {
	const char *name; /* "job": a text may begin with "paceline-job 1"; paceline-job(5) */
	int version;
	bool header; /* a text must begin so */
	const struct pl_lang_row *row;
	size_t n_rows;
	/* Further keys of the first n_extra rows, whose words count only behind a ";". */
	const struct pl_lang_field *extra;
	size_t n_extra;
};
const struct pl_lang_row *pl_lang_row(const struct pl_lang_schema *s, const char *name); /* NULL */

/* ---- parsed statements ---------------------------------------------------------------------- */

struct pl_lang_value {
	bool present;
	uint32_t column; /* of the text, from 1 in bytes; 0: unknown */
	int64_t i;
	double r;      /* of all numbers */
	const char *s; /* the text, NULL of a flag without one */
};
/* Lives until the next statement is read. Zero-initialised with a row is a statement without values
 * once pl_lang_begin() has been called. */
struct pl_lang_statement {
	const struct pl_lang_schema *schema;
	const struct pl_lang_row *row;
	uint32_t line;		     /* of the text, 0: unknown */
	struct pl_lang_value *value; /* of each field of the row, then of the extra ones */
	size_t n, cap, n_own;	     /* n_own: those of the row */
	const char **list;	     /* the names of the field with PL_LANG_LIST */
	uint32_t *column;	     /* of each of them in the text; of no meaning without one */
	size_t n_list, cap_list, cap_columns;
};
int pl_lang_begin(struct pl_lang_statement *st, const struct pl_lang_schema *s,
		  const struct pl_lang_row *row, struct pl_err *err) PL_MUST;
void pl_lang_end(struct pl_lang_statement *st);
/* The value of a field, of several with this name the one that `only` allows; NULL: not given. */
const struct pl_lang_value *pl_lang_get(const struct pl_lang_statement *st, const char *name);
/* The field of that name in a row where the first field has the value `first` (NULL: any). */
const struct pl_lang_field *pl_lang_field(const struct pl_lang_row *row, const char *name,
					  const char *first);
/* Is everything given that must be, within its limits? Done by the reader. PL_EDATA. */
int pl_lang_check(const struct pl_lang_statement *st, struct pl_err *err) PL_MUST;

/* Copies the given values of bound fields into `base`, texts into the arena. */
int pl_lang_bind(const struct pl_lang_statement *st, void *base, struct pl_arena *arena,
		 struct pl_err *err) PL_MUST;
/* Sets the bound fields that have a default to it; of several fields with one name, that which the
 * first value allows (NULL: the default of the first field). */
void pl_lang_defaults(const struct pl_lang_row *row, const char *first, void *base);
/* The reverse of pl_lang_bind(): a value is given if the member differs from that of `usual`. */
void pl_lang_unbind(struct pl_lang_statement *st, const void *base, const void *usual);

/* ---- reading -------------------------------------------------------------------------------- */

struct pl_lang_word {
	char *s;	 /* unescaped, NUL-terminated */
	uint32_t value;	 /* where the value of "key=value" begins in it; 0: it is none */
	uint32_t column; /* from 1, in bytes */
	bool quoted;	 /* then it is a name, and no key */
	bool whole;	 /* the value was quoted: no comma ends it */
};
struct pl_lang_reader {
	const struct pl_lang_schema *schema;
	const char *name; /* borrowed, for messages; NULL: one line whose place says nothing */
	struct pl_buf text;
	size_t at;
	uint32_t line;
	struct pl_lang_word *word; /* of the statement; an unquoted ";" is a word of its own */
	size_t n, cap;
	bool *seen; /* by row */
	bool begun; /* a statement has been read */
	struct pl_lang_statement st;
};
/* Reads the whole input. The reader is to be closed even if this fails. */
int pl_lang_open(struct pl_lang_reader *r, const struct pl_lang_schema *s, struct pl_in *in,
		 const char *name, struct pl_err *err) PL_MUST;
/* One statement given as text, in place of a file. */
int pl_lang_open_text(struct pl_lang_reader *r, const struct pl_lang_schema *s, const char *text,
		      struct pl_err *err) PL_MUST;
void pl_lang_close(struct pl_lang_reader *r);
/* 1: r->st is next; 0: end. PL_EDATA: file, line, column, the word nearest to a misspelt one. */
int pl_lang_next(struct pl_lang_reader *r, struct pl_err *err) PL_MUST;
/* The two halves of it, for languages that rewrite words in between: the words of the next
 * statement behind the header, and the statement that they make. */
int pl_lang_words(struct pl_lang_reader *r, struct pl_err *err) PL_MUST;
int pl_lang_parse(struct pl_lang_reader *r, struct pl_err *err) PL_MUST;
int pl_lang_add_word(struct pl_lang_reader *r, char *s, bool is_quoted, uint32_t column,
		     struct pl_err *err) PL_MUST;
/*
 * One statement of a command line, where nothing is quoted because names may hold anything: a comma
 * separates only where a key follows, and a key with a word (" by X") ends the statement. A
 * statement with a list of names is as in a file.
 */
int pl_lang_option(struct pl_lang_reader *r, const struct pl_lang_schema *s, const char *text,
		   struct pl_err *err) PL_MUST;
/* PL_EDATA with file, line and column (0: unknown) before the message. */
int pl_lang_fail(const struct pl_lang_reader *r, uint32_t column, struct pl_err *err,
		 const char *fmt, ...) PL_PRINTF(4, 5);

/* ---- single values -------------------------------------------------------------------------- */

bool pl_lang_rate(const char *s, double *bytes_per_ns); /* false: it is none */
bool pl_lang_time(const char *s, pl_ns *ns);

/* One of "3|8..15|1?": a pattern, or a range with both ends. */
struct pl_lang_range {
	const char *glob; /* NULL: lo and hi say it */
	int64_t lo, hi;
};
/* Cuts the text at each "|". `sizes`: numbers are bytes with K, M, G. PL_EUSAGE without place. */
int pl_lang_numbers(char *text, bool sizes, int64_t least, struct pl_lang_range **range, size_t *n,
		    struct pl_err *err) PL_MUST;
bool pl_lang_in_range(const struct pl_lang_range *range, size_t n, int64_t v);
/* The first number of "3,1" into *v, and *s behind it and its comma. False: there is none. */
bool pl_lang_count(const char **s, int64_t *v);

/* ---- writing -------------------------------------------------------------------------------- */

/* The statement as text that reads back the same, without a newline. */
void pl_lang_write(struct pl_writer *w, const struct pl_lang_statement *st);
/* A line: the statement with the members of `base` that differ from those of `usual`, and with
 * those that must be given; nothing if none differs. `st` is used for it. */
void pl_lang_write_struct(struct pl_writer *w, struct pl_lang_statement *st,
			  const struct pl_lang_schema *s, const struct pl_lang_row *row,
			  const void *base, const void *usual);
/* The members of a JSON object that stand for the fields of the row; null: not given. */
void pl_lang_put_json(struct pl_writer *w, const struct pl_lang_statement *st);

/* ---- help ----------------------------------------------------------------------------------- */

/* "fuse-ops OPERATIONS... [share=SHARE]", without a newline. */
int pl_lang_usage(struct pl_buf *b, const struct pl_lang_row *row, struct pl_err *err) PL_MUST;
/*
 * Text of --help=TOPIC for a program with these languages (NULL at the end): a statement,
 * "LANGUAGE:STATEMENT", or "statements" for all. Topic NULL: all topics for completion,
 * "statements|batch|...". PL_EUSAGE names the nearest word. It is struct pl_cmd's `help`.
 */
int pl_lang_help(const struct pl_lang_schema *const *s, const char *topic, struct pl_buf *b,
		 struct pl_err *err) PL_MUST;

#endif
