/*
 * The command line: getopt_long over a table, --help and --dump-options printed from it, and the
 * frame of every program (descriptors 0-2 open, SIGPIPE restored, stdout checked).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"
#include "core/progress.h"
#include "core/words.h"

#define KEY_BASE  1000 /* getopt value of option i without a letter; + KEY_NO: its --no- form */
#define KEY_NO	  10000
#define MAX_OPTS  96
#define HELP_LEFT 26 /* columns of the names of options in --help */

/* ---- values ---------------------------------------------------------------------------------- */

static int bad_value(struct pl_err *err, const char *s, const char *want)
{
	return pl_fail(err, PL_EUSAGE, "\"%s\" is not %s", s, want);
}

int pl_parse_int(const char *s, int64_t *v, struct pl_err *err)
{
	char *end;
	long long x;

	errno = 0;
	x = strtoll(s, &end, 10);
	if (end == s || *end || errno)
		return bad_value(err, s, "a whole number");
	*v = x;
	return 0;
}

int pl_parse_real(const char *s, double *v, struct pl_err *err)
{
	char *end;
	double x = strtod(s, &end);

	if (end == s || *end || !isfinite(x))
		return bad_value(err, s, "a number");
	*v = x;
	return 0;
}

int pl_parse_reals(const char *s, bool positive, double *v, size_t max, size_t *n,
		   struct pl_err *err)
{
	char one[64];

	for (*n = 0;;) {
		size_t len = strcspn(s, ",");

		if (*n == max || len >= sizeof(one))
			return pl_fail(err, PL_EUSAGE, "more than %zu numbers, or no number", max);
		snprintf(one, sizeof(one), "%.*s", (int)len, s);
		PL_CHECK(pl_parse_real(one, &v[*n], err));
		if (!(positive ? v[*n] > 0 : v[*n] >= 0))
			return pl_fail(err, PL_EUSAGE, "%s is %s 0", one,
				       positive ? "not above" : "below");
		(*n)++;
		if (!s[len])
			return 0;
		s += len + 1;
	}
}

/* A unit with the factor 0 is only for the number 0. */
static int parse_scaled(const char *s, int64_t *v, const char *const *unit, const double *factor,
			const char *want, struct pl_err *err)
{
	char *end;
	double x = strtod(s, &end);

	if (end == s || !isfinite(x))
		return bad_value(err, s, want);
	for (size_t i = 0; unit[i]; i++) {
		if (!strcmp(end, unit[i]) && (factor[i] > 0 || x == 0)) {
			x *= factor[i];
			if (fabs(x) > 9.2e18)
				return bad_value(err, s, "in range");
			*v = (int64_t)llround(x);
			return 0;
		}
	}
	return bad_value(err, s, want);
}

int pl_parse_size(const char *s, int64_t *v, struct pl_err *err)
{
	static const char *const unit[] = { "",	   "K",	  "M",	"G",  "T",  "KiB", "MiB",
					    "GiB", "TiB", "KB", "MB", "GB", "TB",  NULL };
	static const double f[] = { 1,	    0x1p10, 0x1p20, 0x1p30, 0x1p40, 0x1p10, 0x1p20,
				    0x1p30, 0x1p40, 1e3,    1e6,    1e9,    1e12 };

	return parse_scaled(s, v, unit, f, "a size (like 64M)", err);
}

int pl_parse_time(const char *s, pl_ns *v, struct pl_err *err)
{
	static const char *const unit[] = { "", "s", "ms", "us", "ns", "min", NULL };
	static const double f[] = { 0, 1e9, 1e6, 1e3, 1, 60e9 };

	return parse_scaled(s, v, unit, f, "a time with its unit (write 5us or 5ms)", err);
}

/* Read "3", "3-5" or "-1" at *p, up to a comma or the end; move *p behind it. */
static int one_range(const char **p, int64_t *pair, struct pl_err *err)
{
	size_t n = strcspn(*p, ",");
	char text[64], *dash;

	if (!n || n >= sizeof(text))
		return pl_fail(err, PL_EUSAGE, "\"%s\" is no list of numbers (like 0,4-7)", *p);
	memcpy(text, *p, n);
	text[n] = '\0';
	*p += n;
	dash = strchr(text + 1, '-');
	if (dash)
		*dash++ = '\0';
	PL_CHECK(pl_parse_int(text, &pair[0], err));
	PL_CHECK(pl_parse_int(dash ? dash : text, &pair[1], err));
	if (pair[1] < pair[0])
		return pl_fail(err, PL_EUSAGE, "%lld-%lld is empty", (long long)pair[0],
			       (long long)pair[1]);
	return 0;
}

int pl_parse_ranges(const struct pl_list *l, const char *what, int64_t **pair, size_t *n,
		    struct pl_err *err)
{
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *p = l->v[i];

		for (;; p++) {
			rc = pl_grow(pair, &cap, 2 * *n + 2, sizeof(**pair), err);
			if (rc == 0)
				rc = one_range(&p, *pair + 2 * *n, err);
			if (rc < 0)
				return pl_wrap(err, "--%s", what);
			++*n;
			if (!*p)
				break;
		}
	}
	return rc;
}

/* Write an argument so that a shell reads it back, on one line: control characters need $'...'. */
static int put_quoted(struct pl_buf *b, const char *arg, struct pl_err *err)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "@%_+=:,./-";
	bool escapes = false;

	if (*arg && !arg[strspn(arg, plain)])
		return pl_buf_printf(b, err, " %s", arg);
	for (const char *p = arg; *p; p++)
		escapes |= (unsigned char)*p < ' ' || *p == 0x7f;
	PL_CHECK(pl_buf_printf(b, err, escapes ? " $'" : " '"));
	for (const char *p = arg; *p; p++) {
		if (escapes && ((unsigned char)*p < ' ' || *p == 0x7f))
			PL_CHECK(pl_buf_printf(b, err, "\\%03o", (unsigned)*p));
		else if (escapes && (*p == '\'' || *p == '\\'))
			PL_CHECK(pl_buf_printf(b, err, "\\%c", *p));
		else if (*p == '\'')
			PL_CHECK(pl_buf_printf(b, err, "'\\''"));
		else
			PL_CHECK(pl_buf_put(b, p, 1, err));
	}
	return pl_buf_put(b, "'", 1, err);
}

int pl_provenance(const struct pl_common *c, struct pl_buf *b, struct pl_err *err)
{
	if (!c->provenance)
		return 0;
	PL_CHECK(pl_buf_printf(b, err, "%s %s:", c->program, PL_VERSION));
	for (int i = 1; i < c->argc; i++)
		PL_CHECK(put_quoted(b, c->argv[i], err));
	return pl_buf_put(b, "", 1, err);
}

static int set_option(const struct pl_opt *o, void *config, const char *s, bool off,
		      struct pl_err *err)
{
	void *p = (char *)config + o->offset;
	struct pl_list *l = p;
	int rc = 0;

	switch (o->type) {
	case PL_OPT_FLAG:
		*(bool *)p = !off;
		return 0;
	case PL_OPT_COUNT:
		++*(int *)p;
		return 0;
	case PL_OPT_INT:
		rc = pl_parse_int(s, p, err);
		break;
	case PL_OPT_REAL:
		rc = pl_parse_real(s, p, err);
		break;
	case PL_OPT_SIZE:
		rc = pl_parse_size(s, p, err);
		break;
	case PL_OPT_TIME:
		rc = pl_parse_time(s, p, err);
		break;
	case PL_OPT_STR:
		*(const char **)p = s;
		break;
	case PL_OPT_LIST:
		rc = pl_append(&l->v, &l->n, &l->cap, &s, sizeof(s), err);
		break;
	case PL_OPT_CHOICE:
		s = off ? "never" : s ? s : "always";
		*(int *)p = pl_words_find(o->choices, s);
		if (*(int *)p < 0)
			rc = pl_fail(err, PL_EUSAGE, "\"%s\" is not one of %s", s, o->choices);
		break;
	default:
		break;
	}
	return rc < 0 ? pl_wrap(err, "--%s", o->name) : rc;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Words in lines of 80 columns; those after the first are indented. */
static void print_filled(int indent, const char *text)
{
	for (int at = indent; *(text += strspn(text, " \n"));) {
		int n = (int)strcspn(text, " \n");

		if (at > indent && at + 1 + n > 80)
			at = printf("\n%*s", indent, "") - 1;
		at += printf("%s%.*s", at > indent ? " " : "", n, text);
		text += n;
	}
	putchar('\n');
}

static void print_help(const struct pl_cmd *cmd)
{
	printf("usage: %s %s\n", cmd->name, cmd->synopsis);
	print_filled(0, cmd->summary);
	putchar('\n');
	if (cmd->details) {
		print_filled(0, cmd->details);
		putchar('\n');
	}
	if (cmd->opts->type != PL_OPT_HEADING)
		printf("options:\n");
	for (const struct pl_opt *o = cmd->opts; o->type != PL_OPT_END; o++) {
		char left[64];

		if (o->type == PL_OPT_HEADING)
			printf("%s%s:\n", o == cmd->opts ? "" : "\n", o->help);
		if (!o->name || !o->help)
			continue;
		snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o->key ? '-' : ' ',
			 o->key ? o->key : ' ', o->key ? "," : " ", o->name, o->arg ? "=" : "",
			 o->arg					    ? o->arg
			 : o->type == PL_OPT_HELP && cmd->languages ? "[=STATEMENT]"
								    : "");
		if (strlen(left) > HELP_LEFT) {
			printf("  %s\n", left);
			left[0] = '\0';
		}
		printf("  %-*s  ", HELP_LEFT, left);
		print_filled(HELP_LEFT + 4, o->help);
	}
	putchar('\n');
	print_filled(0,
		     "exit status: 0 done, 1 the answer is \"no\", 2 usage, 3 bad input, 4 I/O, 5 "
		     "memory or a stated limit, 6 a facility is absent, 70 a bug here");
	printf("manual: man paceline-%s\n", cmd->name);
	if (cmd->examples)
		printf("\nexamples:\n");
	for (const char *p = cmd->examples; p && *p; p += *p == '\n') {
		size_t n = strcspn(p, "\n");

		printf("  %.*s\n", (int)n, p);
		p += n;
	}
}

/* --help=TOPIC; the topic NULL: all topics, as choices. */
static int print_topic(const struct pl_cmd *cmd, const char *topic, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	if (!cmd->languages)
		return pl_fail(err, PL_EUSAGE, "--help takes no value here");
	rc = cmd->help(cmd->languages, topic, &b, err);
	if (rc >= 0)
		printf("%.*s", (int)b.n, (const char *)b.p);
	pl_buf_fini(&b);
	return rc;
}

/* TSV: letter, name, metavariable, type, choices, help; "-" for a missing one. */
static int dump_options(const struct pl_cmd *cmd, struct pl_err *err)
{
	static const char *const type[] = { "flag", "count", "int",    "real", "size",	 "time",
					    "str",  "list",  "choice", "help", "version" };
	int rc = 0;

	for (const struct pl_opt *o = cmd->opts; o->type != PL_OPT_END; o++) {
		char key[2] = { (char)o->key, '\0' };

		if (!o->name || !o->help)
			continue;
		printf("%s\t%s\t%s\t%s\t", o->key ? key : "-", o->name, o->arg ? o->arg : "-",
		       type[o->type]);
		if (o->type == PL_OPT_HELP && cmd->languages && rc >= 0)
			rc = print_topic(cmd, NULL, err);
		else
			printf("%s", o->choices ? o->choices : "-");
		printf("\t%s\n", o->help);
	}
	return rc;
}

static void print_version(const struct pl_cmd *cmd)
{
	printf("%s (paceline) %s\n", cmd->name, PL_VERSION);
	printf("formats: container 1, trace 1, graph 1, plan 1\n");
	printf("features: zlib%s, libcsv%s%s\n", HAVE_LIBDEFLATE ? ", libdeflate" : "",
	       HAVE_OPENBLAS ? ", openblas" : "", HAVE_SQLITE ? ", sqlite3" : "");
#if defined(__clang__)
	printf("compiler: clang %s\n", __clang_version__);
#elif defined(__GNUC__)
	printf("compiler: gcc %s\n", __VERSION__);
#endif
}

/* ---- frame ----------------------------------------------------------------------------------- */

bool pl_is_tty(const struct pl_common *c, int fd)
{
	return (c && c->fake_tty) || isatty(fd);
}

bool pl_use_color(const struct pl_common *c, int fd)
{
	const char *no = getenv("NO_COLOR");

	if (c->color)
		return c->color == 1;
	return pl_is_tty(c, fd) && !(no && *no);
}

#define MAX_WARNINGS 40 /* without -v, because a thousand equal warnings do not help */

static void say_as(struct pl_common *c, const char *name, enum pl_level level, const char *text)
{
	if ((level == PL_LOG_WARN && c->quiet) || (level == PL_LOG_NOTE && c->verbose < 1) ||
	    (level == PL_LOG_DEBUG && c->verbose < 2))
		return;
	if (level == PL_LOG_WARN && !c->verbose &&
	    __atomic_add_fetch(&c->warnings, 1, __ATOMIC_RELAXED) > MAX_WARNINGS)
		return;
	pl_progress_hide();
	fprintf(stderr, "%s: %s%s\n", name, level == PL_LOG_WARN ? "warning: " : "", text);
}

static void say(void *arg, enum pl_level level, const char *text)
{
	struct pl_common *c = arg;

	say_as(c, c->program, level, text);
}

static void stage_say(void *arg, enum pl_level level, const char *text)
{
	const struct pl_stage_log *s = arg;

	say_as(s->common, s->name, level, text);
}

void pl_stage_log_init(struct pl_stage_log *s, const struct pl_common *c, const char *name)
{
	*s = (struct pl_stage_log){ c->log.arg, name, { stage_say, s } };
}

/*
 * No file of ours may get the number of a closed standard one. The replacement is open the wrong
 * way round, so that reading a closed input and writing a closed output fail.
 */
static void open_std_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
			return;
}

/*
 * Memory is kept until exit, because glibc otherwise maps each big array anew: a third of a short
 * run is page faults. Most of the heap's first 60 MiB use huge pages if the system has any. Not in
 * sanitized programs: their allocators write into what is freed, half of a short run's time.
 */
static void tune_malloc(void)
{
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	const uintptr_t huge = 2u << 20;
	const size_t size = 60u << 20;
	void *p;

	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	mallopt(M_TOP_PAD, 4 << 20);
	mallopt(M_ARENA_MAX, 1); /* allocations are few and large: threads share the huge pages */
	p = malloc(size); /* addresses, not pages: untouched, and the heap's when it is free */
	if (p) {
		uintptr_t from = ((uintptr_t)p + huge - 1) & ~(huge - 1);

		madvise((void *)from, (uintptr_t)p + size - from, MADV_HUGEPAGE);
		free(p);
	}
#endif
}

static void restore_sigpipe(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

struct longs {
	struct option opt[2 * MAX_OPTS + 2];
	char name[MAX_OPTS][32]; /* of the --no- forms */
	char letters[2 * MAX_OPTS + 2];
};

static void build_longs(const struct pl_cmd *cmd, struct longs *l)
{
	size_t n = 0, k = 1;

	memset(l, 0, sizeof(*l));
	l->letters[0] = ':';
	for (int i = 0; i < MAX_OPTS && cmd->opts[i].type != PL_OPT_END; i++) {
		const struct pl_opt *o = &cmd->opts[i];

		if (!o->name)
			continue;
		l->opt[n++] = (struct option){ o->name,
					       o->type == PL_OPT_HELP ? optional_argument
					       : o->arg		      ? required_argument
								      : no_argument,
					       NULL, KEY_BASE + i };
		if (o->type == PL_OPT_FLAG || !strcmp(o->name, "progress")) {
			snprintf(l->name[i], sizeof(l->name[i]), "no-%s", o->name);
			l->opt[n++] = (struct option){ l->name[i], no_argument, NULL,
						       KEY_BASE + KEY_NO + i };
		}
		if (o->key) {
			l->letters[k++] = (char)o->key;
			if (o->arg)
				l->letters[k++] = ':';
		}
	}
	l->opt[n] = (struct option){ "dump-options", no_argument, NULL, KEY_BASE - 1 };
}

/* Name an option that getopt_long refused, as the user wrote it. */
static int unknown_option(const struct pl_cmd *cmd, const struct longs *l, const char *arg,
			  struct pl_err *err)
{
	struct pl_words_near near = { 0 };
	char name[64], hint[96];
	size_t n = strcspn(arg, "=");

	if (optopt >= KEY_BASE)
		return pl_fail(err, PL_EUSAGE, "option %.*s takes no value", (int)n, arg);
	snprintf(name, sizeof(name), "%.*s", (int)n, arg);
	near.s = name;
	for (const struct option *o = l->opt; o->name; o++) {
		char known[sizeof(near.word)];

		snprintf(known, sizeof(known), "--%s", o->name);
		if (o->val != KEY_BASE - 1) /* --dump-options is for programs */
			pl_words_near(&near, known, strlen(known));
	}
	pl_words_near_text(&near, hint, sizeof(hint));
	if (!near.distance)
		snprintf(hint, sizeof(hint), "; see %s --help", cmd->name);
	return pl_fail(err, PL_EUSAGE, "unknown option %s%s", arg, hint);
}

/* How many words stand behind the "--" that ended the options, -1: none did. Word `from` is the
 * first one behind the options that were read; getopt_long() has put all operands behind them. */
static int count_behind(const struct pl_common *c, int from)
{
	while (from < c->argc && strcmp(c->typed[from], "--") != 0)
		from++;
	return c->argc - from - 1;
}

/* 0: continue, 1: done (help and the like), negative: failed. */
static int parse(const struct pl_cmd *cmd, void *config, int argc, char **argv, struct pl_err *err)
{
	struct longs l;
	int c, index = -1, read = 1;

	build_longs(cmd, &l);
	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, l.letters, l.opt, NULL)) != -1) {
		bool off = c >= KEY_BASE + KEY_NO;

		read = optind;

		if (c == KEY_BASE - 1)
			return dump_options(cmd, err) < 0 ? err->code : 1;
		if (c == ':')
			return pl_fail(err, PL_EUSAGE, "option %s needs a value", argv[optind - 1]);
		if (c == '?')
			return unknown_option(cmd, &l, argv[optind - 1], err);
		index = -1;
		if (c >= KEY_BASE)
			index = c - KEY_BASE - (off ? KEY_NO : 0);
		for (int i = 0; index < 0; i++)
			if (cmd->opts[i].key == c)
				index = i;
		if (cmd->opts[index].type == PL_OPT_HELP && optarg)
			return print_topic(cmd, optarg, err) < 0 ? err->code : 1;
		if (cmd->opts[index].type == PL_OPT_HELP)
			print_help(cmd);
		else if (cmd->opts[index].type == PL_OPT_VERSION)
			print_version(cmd);
		else if (set_option(&cmd->opts[index], config, optarg, off, err) < 0)
			return err->code;
		else
			continue;
		return 1;
	}
	((struct pl_common *)config)->behind = count_behind(config, read);
	return 0;
}

static int check_common(struct pl_common *c, struct pl_err *err)
{
	if (c->threads < 0 || c->threads > 1024)
		return pl_fail(err, PL_EUSAGE, "--threads: %lld is not between 0 and 1024",
			       (long long)c->threads);
	if (c->level < 0 || c->level > 12)
		return pl_fail(err, PL_EUSAGE, "--level: %lld is not between 0 and 12",
			       (long long)c->level);
	if (c->uncompressed)
		c->level = 0;
	return 0;
}

static void free_lists(const struct pl_cmd *cmd, void *config)
{
	for (const struct pl_opt *o = cmd->opts; o->type != PL_OPT_END; o++)
		if (o->type == PL_OPT_LIST)
			pl_free(((struct pl_list *)(void *)((char *)config + o->offset))->v);
}

int pl_main(const struct pl_cmd *cmd, int argc, char **argv)
{
	struct pl_err err = { 0 };
	struct pl_common *c;
	int rc;

	open_std_fds();
	restore_sigpipe();
	tune_malloc();
	setlocale(LC_ALL, "C");
	c = calloc(1, cmd->config_size);
	if (!c) {
		fprintf(stderr, "%s: out of memory\n", cmd->name);
		return pl_exit_status(PL_ENOMEM);
	}
	c->threads = 1;
	c->level = 1;
	c->seed = 1;
	c->provenance = true;
	c->program = cmd->name;
	c->argc = argc;
	c->argv = argv;
	c->typed = malloc(((size_t)argc + 1) * sizeof(*argv));
	if (!c->typed) {
		fprintf(stderr, "%s: out of memory\n", cmd->name);
		free(c);
		return pl_exit_status(PL_ENOMEM);
	}
	memcpy(c->typed, argv, ((size_t)argc + 1) * sizeof(*argv));
	c->log = (struct pl_log){ say, c };
	if (cmd->defaults)
		cmd->defaults(c);
	rc = parse(cmd, c, argc, argv, &err);
	if (rc == 0)
		rc = check_common(c, &err);
	pl_progress_begin(c);
	if (rc == 0)
		rc = cmd->run(c, argc - optind, argv + optind, &err);
	pl_progress_end();
	/* the program fails if its output was not written */
	if ((fflush(stdout) || ferror(stdout)) && rc >= 0)
		rc = pl_fail_sys(&err, "standard output");
	if (c->warnings > MAX_WARNINGS)
		fprintf(stderr, "%s: warning: %u more warnings are not shown; -v shows all\n",
			c->program, c->warnings - MAX_WARNINGS);
	if (rc < 0 && rc != PL_ESTOP) {
		size_t n = strlen(cmd->name);

		/* a stage of the same name has named itself */
		if (!strncmp(err.msg, cmd->name, n) && !strncmp(err.msg + n, ": ", 2))
			fprintf(stderr, "%s\n", err.msg);
		else if (err.msg[0])
			fprintf(stderr, "%s: %s\n", cmd->name, err.msg);
		else if (rc != PL_ENO)
			fprintf(stderr, "%s: failed without a message (code %d)\n", cmd->name, rc);
	}
	rc = c->status ? c->status : rc < 0 && rc != PL_ESTOP ? pl_exit_status(rc) : 0;
	free_lists(cmd, c);
	free(c->typed);
	free(c);
	return rc;
}
