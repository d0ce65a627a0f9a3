/*
 * cmd.h - one option table for each program. The parser, --help, shell completion and the check of
 * the man page use it. Every program is a `struct pl_cmd pl_command` and shares cmd/main.c.
 */
#ifndef PL_CMD_H
#define PL_CMD_H

#include "core/core.h"

enum pl_opt_type {
	PL_OPT_FLAG,   /* bool: set to true; --no-NAME sets false */
	PL_OPT_COUNT,  /* int: incremented */
	PL_OPT_INT,    /* int64_t */
	PL_OPT_REAL,   /* double */
	PL_OPT_SIZE,   /* int64_t bytes; suffixes K M G T are binary, KB MB GB TB decimal */
	PL_OPT_TIME,   /* int64_t ns; ns us ms s min suffixes; only 0 needs none */
	PL_OPT_STR,    /* const char * */
	PL_OPT_LIST,   /* struct pl_list: repeatable */
	PL_OPT_CHOICE, /* int: index into `choices`, "a|b|c" */
	PL_OPT_HELP,
	PL_OPT_VERSION,
	PL_OPT_HEADING, /* no option: `help` is the title of those that follow in --help */
	PL_OPT_END
};

struct pl_list {
	const char **v;
	size_t n, cap;
};

struct pl_opt {
	int key;	  /* short letter or 0 */
	const char *name; /* long name without dashes */
	const char *arg;  /* metavariable, NULL for flags */
	const char *help; /* one line; NULL hides it */
	enum pl_opt_type type;
	size_t offset; /* into the program's configuration */
	const char *choices;
};

/* First member of every program's configuration. */
struct pl_common {
	const char *output; /* NULL or "-": standard output */
	int64_t threads;
	int64_t level;
	bool uncompressed, quiet, provenance, strict;
	int verbose;
	int color;    /* 0 auto, 1 always, 2 never */
	int progress; /* 0 auto, 1 always, 2 never: as PL_OPT_CHOICE */
	int64_t seed;
	bool fake_tty;
	unsigned warnings;   /* so far; only the first of them are shown without -v */
	struct pl_log log;   /* warnings go to standard error as "program: text" */
	const char *program; /* its name */
	int argc;	     /* the whole command line, for provenance */
	char **argv;
	char **typed; /* (argc) the same in the order in which it was typed */
	int behind;   /* the last so many operands were typed behind "--"; -1: there was none */
	int status;   /* of a command that the program ran: the exit status instead of 0 to 70 */
};

/* A part of the program's work that reports under a name of its own, as another program would. */
struct pl_stage_log {
	struct pl_common *common;
	const char *name;
	struct pl_log log;
};
void pl_stage_log_init(struct pl_stage_log *s, const struct pl_common *c, const char *name);

#define PL_COMMON(m) offsetof(struct pl_common, m)
/* Options that several programs have. */
#define PL_OPTION(key, name, arg, help, type, member)                                              \
	{                                                                                          \
		key, name, arg, help, PL_OPT_##type, PL_COMMON(member), NULL                       \
	}
#define PL_OPTION_WHEN(member, help)                                                               \
	{                                                                                          \
		0, #member, "WHEN", help ": auto, always, never", PL_OPT_CHOICE,                   \
			PL_COMMON(member), "auto|always|never"                                     \
	}
#define PL_OPTS_HEADING(title)                                                                     \
	{                                                                                          \
		0, NULL, NULL, title, PL_OPT_HEADING, 0, NULL                                      \
	}
#define PL_OPTS_OUTPUT                                                                             \
	PL_OPTION('o', "output", "FILE", "write to FILE instead of standard output", STR, output)
#define PL_OPTS_STREAM                                                                             \
	PL_OPTION('l', "level", "N", "compress at level N, 0-12 (default 1)", INT, level),         \
		PL_OPTION('u', "uncompressed", NULL,                                               \
			  "do not compress the output (for pipes); same as -l 0", FLAG,            \
			  uncompressed),                                                           \
		PL_OPTION(0, "provenance", NULL,                                                   \
			  "record program, version and command line in the output (default; "      \
			  "--no-provenance)",                                                      \
			  FLAG, provenance)
#define PL_OPTS_THREADS                                                                            \
	PL_OPTION('@', "threads", "N", "use N threads in total (default 1, 0 = cores)", INT,       \
		  threads)
#define PL_OPTS_COMMON                                                                             \
	PL_OPTION('q', "quiet", NULL, "print no warnings", FLAG, quiet),                           \
		PL_OPTION('v', "verbose", NULL, "print more on standard error", COUNT, verbose),   \
		PL_OPTION_WHEN(progress, "show progress on standard error"),                       \
		PL_OPTION_WHEN(color, "use colours"),                                              \
		PL_OPTION(0, "seed", "N", "set the seed of random numbers (default 1)", INT,       \
			  seed),                                                                   \
		PL_OPTION(0, "fake-tty", NULL, NULL, FLAG, fake_tty),                              \
		PL_OPTION(0, "help", NULL, "print this text", HELP, output),                       \
		PL_OPTION(0, "version", NULL, "print version, formats and features", VERSION,      \
			  output),                                                                 \
		PL_OPTION(0, NULL, NULL, NULL, END, output)

struct pl_lang_schema;

struct pl_cmd {
	const char *name;
	const char *synopsis; /* after the name: "[OPTION]... [FILE]..." */
	const char *summary;  /* one line */
	const char *details;  /* more lines for --help, or NULL */
	const char *examples; /* for the end of --help: commands, each on a line; or NULL */
	const struct pl_opt *opts;
	size_t config_size;
	void (*defaults)(void *config); /* may be NULL; after the common defaults */
	/* Languages of the statements that the program takes, for --help=STATEMENT; NULL: none. */
	const struct pl_lang_schema *const *languages;
	int (*help)(const struct pl_lang_schema *const *languages, const char *topic,
		    struct pl_buf *text, struct pl_err *err); /* pl_lang_help() */
	/* argc/argv: the operands. Returns 0 or a negative PL_E code with *err filled. */
	int (*run)(void *config, int argc, char **argv, struct pl_err *err);
};

extern const struct pl_cmd pl_command; /* defined by each program */

/* Parses, runs, reports; returns the exit status. */
int pl_main(const struct pl_cmd *cmd, int argc, char **argv);

/* "PROGRAM VERSION: ARGUMENT..." on one line, arguments quoted for a shell, NUL-terminated, into
 * the empty buffer. With --no-provenance the buffer stays empty (b->p is NULL). */
int pl_provenance(const struct pl_common *c, struct pl_buf *b, struct pl_err *err) PL_MUST;

/* Is standard error (or output) a terminal, or does --fake-tty demand to assume so? */
bool pl_is_tty(const struct pl_common *c, int fd);
bool pl_use_color(const struct pl_common *c, int fd);

/* Parsers of single values, for options inside other texts. 0 or PL_EUSAGE. */
int pl_parse_int(const char *s, int64_t *v, struct pl_err *err) PL_MUST;
int pl_parse_real(const char *s, double *v, struct pl_err *err) PL_MUST;
/* "1,2.5": *n numbers above 0, or not below it, at most `max`. */
int pl_parse_reals(const char *s, bool positive, double *v, size_t max, size_t *n,
		   struct pl_err *err) PL_MUST;
int pl_parse_size(const char *s, int64_t *v, struct pl_err *err) PL_MUST;
int pl_parse_time(const char *s, pl_ns *v, struct pl_err *err) PL_MUST;
/*
 * Read lists of numbers and ranges ("0,4-7,-1"), as for --rank and --step: *pair gets the first and
 * last number of each, *n their count; pl_free(*pair). `what` names the option in errors.
 */
int pl_parse_ranges(const struct pl_list *l, const char *what, int64_t **pair, size_t *n,
		    struct pl_err *err) PL_MUST;

#endif
