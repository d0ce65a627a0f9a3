/*
 * Runs a command with the variables that make programs record themselves, and reads what their
 * processes said.
 *
 * Signals are blocked here and taken one by one, so none is lost and none ends this program before
 * the command. One that a process sent is passed on; one of the terminal has reached the command
 * too.
 *
 * The hook of Python lies in a folder inside that of the recordings, as sitecustomize.py, and its
 * light mode beside it. Each process that loads it writes lines into a file there: "python"; "torch
 * VERSION"; "began STEP" when recording begins, and "file NAME FIRST N" when it has ended, or
 * "dropped"; "cost PLAIN_NS RECORDED_NS SPREAD_NS"; "none STEPS" if it ended before a step was
 * recorded; "why TEXT". The folder is removed at the end.
 */
#include "record/command.h"
#include "config.h"
#include "core/words.h"
#include "record/needs.h"
#include "record/stolen.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/hook.h" /* made by the Makefile from hook.py */

#define HOOK_FOLDER ".hook"
#define STEPS_MAX   1000000
#define PATIENCE    32 /* as in hook.py */
#define REASONS	    8  /* that are said */
#define STAT	    "/proc/stat"
#define LONG_NS	    10000000000 /* ticks of 10 ms tell a share of a command that takes so long */
#define STOLEN	    0.1		/* a share of the time that is worth a warning */

/* What all processes said. */
struct said {
	const struct pl_log *log;
	unsigned python, torch;
	unsigned of_torch; /* files of the profiler of PyTorch */
	int began;	   /* recordings that have begun and not ended */
	int64_t seen;	   /* most steps of a process that recorded none; -1: none ended so */
	struct reason {
		char text[300];
		unsigned processes;
		bool of_this; /* process, whose lines are read */
	} why[REASONS];
	size_t n_why;
	struct cost {
		double share;
		long long plain, recorded, spread;
	} * cost;
	size_t n_costs, cap_costs;
	int *rank;
	size_t n_ranks, cap_ranks;
};

PL_COMPARATOR(by_share, struct cost, share, plain);

int pl_record_check(const struct pl_record *r, const struct pl_common *c, int argc, char **argv,
		    struct pl_err *err)
{
	if (c->behind >= 0 && argc > c->behind)
		return pl_fail(err, PL_EUSAGE,
			       "%s: no file can be read while a command is recorded; behind -- "
			       "stands a command, never a file",
			       argv[0]);
	if (c->behind < 0 && (r->steps >= 0 || r->skip >= 0 || r->by || r->light || !r->mpi))
		return pl_fail(err, PL_EUSAGE,
			       "--record-steps, --skip-steps, --steps-by, --light and --no-mpi are "
			       "for a command, which stands behind --");
	if (r->steps != -1 && (r->steps < 1 || r->steps > STEPS_MAX))
		return pl_fail(err, PL_EUSAGE, "--record-steps: %lld is not 1 to %d",
			       (long long)r->steps, STEPS_MAX);
	if (r->skip < -1)
		return pl_fail(err, PL_EUSAGE, "--skip-steps: %lld is negative",
			       (long long)r->skip);
	return 0;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* *made: it was not there. */
static int make_folder(const char *folder, bool *made, struct pl_err *err)
{
	struct dirent *e;
	DIR *d;
	bool empty = true;

	*made = mkdir(folder, 0777) == 0;
	if (*made)
		return 0;
	if (errno != EEXIST)
		return pl_fail_sys(err, "%s: this folder for recordings cannot be made", folder);
	d = opendir(folder);
	if (!d)
		return pl_fail_sys(err, "%s: this folder for recordings cannot be read", folder);
	while (empty && (e = readdir(d)))
		empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	if (empty)
		return 0;
	return pl_fail(
		err, PL_EUSAGE,
		"%s holds files, perhaps of an older recording; name an empty folder, or one "
		"that is not there yet",
		folder);
}

static int write_text(const char *folder, const char *name, const char *text, struct pl_err *err)
{
	char path[PATH_MAX];
	bool failed;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "we");
	if (!f)
		return pl_fail_sys(err, "%s", path);
	failed = fputs(text, f) < 0;
	if (fclose(f) || failed)
		return pl_fail_sys(err, "%s", path);
	return 0;
}

static int write_hook(const char *folder, struct pl_err *err)
{
	if (mkdir(folder, 0777) < 0)
		return pl_fail_sys(err, "%s", folder);
	PL_CHECK(write_text(folder, "sitecustomize.py", hook_py, err));
	return write_text(folder, "light.py", light_py, err);
}

/* A rank that was killed leaves links there (entry/nccl.c). */
static void remove_links(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.nccl", folder);
	pl_remove_folder(path);
}

static void remove_hook(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/__pycache__", folder);
	pl_remove_folder(path);
	pl_remove_folder(folder);
}

/* ---- the environment of the command ---------------------------------------------------------- */

static int set_variable(const char *name, const char *value, struct pl_err *err)
{
	return setenv(name, value, 1) < 0 ? pl_fail_sys(err, "setting %s", name) : 0;
}

static int set_number(const char *name, int64_t value, struct pl_err *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	return set_variable(name, text, err);
}

/* name = first:value, or first */
static int put_before(const char *name, const char *first, const char *value, struct pl_err *err)
{
	struct pl_buf text = { 0 };
	int rc = pl_buf_printf(&text, err, "%s%s%s", first, value && *value ? ":" : "",
			       value ? value : "");

	if (rc >= 0)
		rc = pl_buf_put(&text, "", 1, err);
	if (rc >= 0)
		rc = set_variable(name, (const char *)text.p, err);
	pl_buf_fini(&text);
	return rc;
}

/* Set `name` to a recording library, if that lies beside this program. */
static int set_library(const char *name, const char *library, const struct pl_log *log,
		       struct pl_err *err)
{
	char path[PATH_MAX];
	const char *old = getenv(name);
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + strlen(library) + 2 > sizeof(path))
		return 0;
	strcpy(slash + 1, library);
	if (access(path, R_OK) < 0)
		return 0;
	if (!strcmp(name, "LD_PRELOAD") && strpbrk(path, ": ")) {
		pl_say(log, PL_LOG_WARN,
		       "calls of MPI are not recorded: blanks and colons divide the names in "
		       "LD_PRELOAD, and %s has one; install it in another folder",
		       path);
		return 0;
	}
	if (!old || !*old)
		return set_variable(name, path, err);
	if (!strcmp(name, "LD_PRELOAD"))
		return put_before(name, old, path, err);
	if (!strcmp(name, "NCCL_PROFILER_PLUGIN")) {
		pl_say(log, PL_LOG_NOTE, "the NCCL profiler plugin %s is called by ours", old);
		PL_CHECK(set_variable(PL_RECORD_NCCL_NEXT, old, err));
		return set_variable(name, path, err);
	}
	pl_say(log, PL_LOG_WARN,
	       "%s is %s already and stays so: another tool records, and ours is not loaded; unset "
	       "it "
	       "to record with %s",
	       name, old, library);
	return 0;
}

/*
 * A profiler keeps small objects until the recording ends. With glibc before 2.39 they get the
 * pieces that posix_memalign() leaves beside each tensor, by way of the thread's cache. Then the
 * memory of a freed tensor is too small for the next tensor of this size. Each one gets memory that
 * is new to the process, which takes half as long as the step, or several times as long in a
 * virtual machine. Without the cache, pieces are joined again (bug 30723 of glibc).
 */
static int leave_out_cache(const struct pl_log *log, struct pl_err *err)
{
	static const char name[] = "GLIBC_TUNABLES", cache[] = "glibc.malloc.tcache_count";
	const char *old = getenv(name);
	unsigned major, minor;

	if (sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor) != 2 || major != 2 ||
	    minor >= 39)
		return 0;
	if (old && strstr(old, cache)) {
		pl_say(log, PL_LOG_NOTE, "%s is %s and stays so", name, old);
		return 0;
	}
	return put_before(name, "glibc.malloc.tcache_count=0", old, err);
}

static int set_environment(const struct pl_record *o, const char *program, const char *folder,
			   const char *hook, const struct pl_log *log, struct pl_err *err)
{
	const char *by = pl_words_name(PL_RECORD_BY("\0"), (unsigned)o->by);
	char library[64];

	PL_CHECK(set_variable(PL_RECORD_DIR, folder, err));
	PL_CHECK(set_number("PACELINE_RECORD_STEPS", o->steps < 0 ? PL_RECORD_STEPS : o->steps,
			    err));
	PL_CHECK(set_number("PACELINE_RECORD_SKIP", o->skip < 0 ? PL_RECORD_SKIP : o->skip, err));
	PL_CHECK(set_variable("PACELINE_RECORD_BY", by, err));
	PL_CHECK(set_variable("PACELINE_RECORD_MODE", o->light ? "light" : "full", err));
	PL_CHECK(put_before("PYTHONPATH", hook, getenv("PYTHONPATH"), err));
	PL_CHECK(set_library("NCCL_PROFILER_PLUGIN", "libpaceline-nccl.so", log, err));
	if (!o->light)
		PL_CHECK(leave_out_cache(log, err));
	else /* CUPTI serves one tool of a process; else that of PyTorch's profiler */
		PL_CHECK(set_library("CUDA_INJECTION64_PATH", "libpaceline-cuda.so", log, err));
	if (!o->mpi) {
		pl_say(log, PL_LOG_NOTE, "calls of MPI are not recorded, as --no-mpi says");
		return 0;
	}
	if (pl_record_needs(program, "libasan.", library, sizeof(library)) ||
	    pl_record_needs(program, "libclang_rt.asan", library, sizeof(library))) {
		pl_say(log, PL_LOG_WARN,
		       "%s is linked with %s, which refuses libraries that are loaded before it: "
		       "libpaceline-mpi.so is left out, and calls of MPI are not recorded",
		       program, library);
		return 0;
	}
	/* a library with a sanitizer can be loaded only by programs that have it, too */
	return PL_SANITIZERS[0] ? 0 : set_library("LD_PRELOAD", "libpaceline-mpi.so", log, err);
}

/* Does the command start Python with an option that leaves out the hook? It says only what one
 * sees. */
static const char *leaves_out(char *const *argv)
{
	const char *slash = strrchr(argv[0], '/'), *program = slash ? slash + 1 : argv[0];

	if (strncmp(program, "python", 6) != 0)
		return NULL;
	for (char *const *a = argv + 1; *a && a[0][0] == '-' && a[0][1] && a[0][1] != '-'; a++) {
		size_t n = strcspn(*a, "cmWX"); /* letters that take a value, or end the options */

		for (size_t i = 1; i < n && (*a)[i]; i++)
			if (strchr("EIS", (*a)[i]))
				return *a;
		if (strchr("cm", (*a)[n]) && (*a)[n])
			return NULL;
		if ((*a)[n] && !(*a)[n + 1] && a[1])
			a++;
	}
	return NULL;
}

/* ---- running it ------------------------------------------------------------------------------ */

static int start(char **argv, const sigset_t *mask, pid_t *pid, struct pl_recorded *r,
		 struct pl_err *err)
{
	posix_spawnattr_t attr;
	int why;

	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	why = posix_spawnp(pid, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	r->started = !why;
	if (!why)
		return 0;
	r->status = why == ENOENT ? 127 : 126;
	return pl_fail(
		err, PL_EUSAGE,
		"%s: this command cannot be executed: %s; behind -- stands a command with its "
		"arguments, as a shell would start it",
		argv[0], strerror(why));
}

/* Waits for the end of the process, and passes on the signals that others send. */
static int wait_for(pid_t pid, const sigset_t *set)
{
	siginfo_t info;
	int status;

	for (;;) {
		int number = sigwaitinfo(set, &info);

		if (number == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid)
			return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		if (number > 0 && number != SIGCHLD && info.si_code <= 0)
			kill(pid, number);
	}
}

/* Of a command that took long enough to tell. */
static void judge_host(const struct pl_stolen *before, pl_ns ns, const struct pl_log *log)
{
	struct pl_stolen after;
	double share;

	if (ns < LONG_NS || !pl_stolen_read(STAT, &after))
		return;
	share = pl_stolen_share(before, &after);
	if (share < 0.01)
		return;
	pl_say(log, share < STOLEN ? PL_LOG_NOTE : PL_LOG_WARN,
	       "the host of this virtual machine took %.0f %% of the processor time that the "
	       "command wanted%s",
	       100 * share,
	       share < STOLEN ? ""
			      : ": what was recorded contains it, and operations look slower "
				"than they are; see \"Virtual machines\" in paceline-trace(1)");
}

static int run_command(char **argv, const struct pl_log *log, struct pl_recorded *r,
		       struct pl_err *err)
{
	static const int number[] = { SIGCHLD, SIGHUP,	SIGINT,	 SIGQUIT,
				      SIGTERM, SIGUSR1, SIGUSR2, SIGALRM };
	struct pl_stolen stolen;
	bool known = pl_stolen_read(STAT, &stolen);
	pl_ns begin = pl_now_ns();
	sigset_t set, before;
	pid_t pid;
	int rc;

	signal(SIGCHLD, SIG_DFL); /* whoever started this program may have ignored it */
	sigemptyset(&set);
	for (size_t i = 0; i < PL_LEN(number); i++)
		sigaddset(&set, number[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	rc = start(argv, &before, &pid, r, err);
	if (rc >= 0)
		r->status = wait_for(pid, &set);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (rc >= 0 && known)
		judge_host(&stolen, pl_now_ns() - begin, log);
	return rc;
}

/* ---- what the processes said ----------------------------------------------------------------- */

static int add_rank(struct said *s, int rank, struct pl_err *err)
{
	for (size_t i = 0; i < s->n_ranks; i++)
		if (s->rank[i] == rank)
			return 0;
	return pl_append(&s->rank, &s->n_ranks, &s->cap_ranks, &rank, sizeof(rank), err);
}

static void add_reason(struct said *s, const char *text)
{
	struct reason *x = s->why;

	while (x < s->why + s->n_why && strncmp(x->text, text, sizeof(x->text) - 1) != 0)
		x++;
	if (x == s->why + REASONS)
		return;
	if (x == s->why + s->n_why) {
		s->n_why++;
		snprintf(x->text, sizeof(x->text), "%.299s", text);
	}
	x->processes += !x->of_this;
	x->of_this = true;
}

static int read_line(struct said *s, struct pl_recorded *r, const char *line, struct pl_err *err)
{
	long long a, b;
	struct cost cost;
	char name[128];

	s->python += !strcmp(line, "python");
	s->torch += !strncmp(line, "torch ", 6);
	if (sscanf(line, "none %lld", &a) == 1)
		s->seen = pl_max_i64(s->seen, a);
	s->began += !strncmp(line, "began ", 6);
	if (!strncmp(line, "why ", 4))
		add_reason(s, line + 4);
	if (sscanf(line, "file %127s %lld %lld", name, &a, &b) == 3) {
		int64_t end = pl_min_i64(r->n ? r->first + r->n : INT64_MAX, pl_add_sat(a, b));

		r->first = pl_max_i64(r->n ? r->first : a, a);
		r->n = pl_max_i64(end - r->first, 0);
		s->began--;
	}
	s->began -= !strcmp(line, "dropped");
	if (sscanf(line, "cost %lld %lld %lld", &cost.plain, &cost.recorded, &cost.spread) == 3 &&
	    cost.plain > 0) {
		cost.share = (double)cost.recorded / (double)cost.plain - 1;
		return pl_append(&s->cost, &s->n_costs, &s->cap_costs, &cost, sizeof(cost), err);
	}
	return 0;
}

static int read_said(const char *folder, struct said *s, struct pl_recorded *r, struct pl_err *err)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int rc = 0;

	while (d && rc >= 0 && (e = readdir(d))) {
		char path[PATH_MAX], line[1024];
		FILE *f;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		f = fopen(path, "re");
		for (size_t i = 0; i < s->n_why; i++)
			s->why[i].of_this = false;
		while (f && rc >= 0 && fgets(line, sizeof(line), f)) {
			line[strcspn(line, "\n")] = '\0';
			rc = read_line(s, r, line, err);
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return rc;
}

/* The recordings in the folder, whoever wrote them. */
static int count_files(const char *folder, struct said *s, struct pl_recorded *r,
		       struct pl_err *err)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int rc = 0;

	while (d && rc >= 0 && (e = readdir(d))) {
		int rank = -1;
		char what[8];
		struct stat st;

		if (fstatat(dirfd(d), e->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode))
			continue;
		r->files++;
		s->of_torch += strstr(e->d_name, ".pt.trace.json") != NULL;
		r->bytes += st.st_size;
		if (sscanf(e->d_name, "rank%d.%7s", &rank, what) == 2 && rank >= 0)
			rc = add_rank(s, rank, err);
	}
	if (d)
		closedir(d);
	r->ranks = (unsigned)s->n_ranks;
	return rc;
}

/* Why nothing was recorded (what: says that), and what to do. Libraries may have recorded a program
 * that is none of PyTorch, in which nothing is missing. */
static void explain(const struct pl_record *o, const struct said *s, char *const *argv,
		    unsigned files, const char *what)
{
	const char *option = leaves_out(argv);
	int64_t skip = pl_max_i64(1, o->skip < 0 ? PL_RECORD_SKIP : o->skip);

	if (s->n_why || (files && !s->torch && (s->python || !option)))
		return;
	if (!s->python && option)
		pl_say(s->log, PL_LOG_WARN,
		       "%s: python %s does not load the hook that records; leave the option out",
		       what, option);
	else if (!s->python)
		pl_say(s->log, PL_LOG_WARN,
		       "%s: no process of the command is a Python that loads the hook "
		       "(python -E, -I and -S do not), and none used a library that is recorded",
		       what);
	else if (!s->torch)
		pl_say(s->log, PL_LOG_WARN,
		       "%s: Python ran, but did not import torch, and other frameworks have no "
		       "hook here; give the files of their own profiler to trace",
		       what);
	else if (s->seen > skip)
		pl_say(s->log, PL_LOG_WARN,
		       "%s: the job read %lld batches, but no optimizer made a step, for which the "
		       "hook waits for %lld batches more where gradients are on; make "
		       "--skip-steps smaller, or let the job run longer",
		       what, (long long)s->seen, (long long)PATIENCE);
	else if (s->seen > 0)
		pl_say(s->log, PL_LOG_WARN,
		       "%s: the job made %lld steps, and the first %lld are left out "
		       "(--skip-steps)",
		       what, (long long)s->seen, (long long)skip);
	else
		pl_say(s->log, PL_LOG_WARN,
		       "%s: no step was found; a step is that of an optimizer of torch.optim (not "
		       "one that torch.compile took in), else a batch of a DataLoader, else a call "
		       "of torch.profiler.profile.step(); of inference, count calls of the model: "
		       "--steps-by=calls",
		       what);
}

static int look(const struct pl_record *o, const char *folder, const char *hook, char *const *argv,
		struct said *s, struct pl_recorded *r, struct pl_err *err)
{
	PL_CHECK(read_said(hook, s, r, err));
	PL_CHECK(count_files(folder, s, r, err));
	for (size_t i = 0; i < s->n_why; i++)
		pl_say(s->log, PL_LOG_WARN, "%s%s", s->why[i].text,
		       s->why[i].processes > 1 ? " (and so in other processes)" : "");
	if (s->began > 0)
		pl_say(s->log, PL_LOG_WARN,
		       "%d process%s ended while recording, and left nothing: the profiler of "
		       "PyTorch "
		       "keeps events in memory, and SIGKILL and crashes leave no time to write "
		       "them",
		       s->began, s->began == 1 ? "" : "es");
	else if (!s->of_torch)
		explain(o, s, argv, r->files,
			r->files ? "no step of PyTorch was recorded" : "nothing was recorded");
	r->cost = NAN;
	if (s->n_costs) {
		const struct cost *middle = &s->cost[s->n_costs / 2];

		pl_sort(s->cost, s->n_costs, sizeof(*s->cost), by_share);
		r->cost = middle->share;
		r->plain_ns = middle->plain;
		r->recorded_ns = middle->recorded;
		r->spread_ns = middle->spread;
	}
	return 0;
}

int pl_record_run(const struct pl_record *o, const char *folder, char **argv,
		  const struct pl_log *log, struct pl_recorded *r, struct pl_err *err)
{
	struct said s = { .log = log, .seen = -1 };
	char whole[PATH_MAX - 64], hook[PATH_MAX];
	bool made = false, used = false;
	int rc;

	*r = (struct pl_recorded){ .cost = NAN };
	if (!argv[0])
		return pl_fail(err, PL_EUSAGE, "there is no command behind --");
	PL_CHECK(make_folder(folder, &made, err));
	if (!realpath(folder, hook) || strlen(hook) >= sizeof(whole))
		return pl_fail_sys(err, "%s", folder);
	strcpy(whole, hook);
	if (strchr(whole, ':')) {
		rc = pl_fail(err, PL_EUSAGE,
			     "%s: Python loads the hook from this folder through PYTHONPATH, in "
			     "which colons divide names; choose a folder without one",
			     whole);
		goto out;
	}
	strcat(hook, "/" HOOK_FOLDER);
	used = true;
	PL_TRY(write_hook(hook, err));
	PL_TRY(set_environment(o, argv[0], whole, hook, log, err));
	PL_TRY(run_command(argv, log, r, err));
	rc = look(o, whole, hook, argv, &s, r, err);
out:
	if (used) {
		remove_hook(hook);
		remove_links(whole);
	}
	if (made)
		rmdir(whole); /* if it is empty */
	pl_free(s.cost);
	pl_free(s.rank);
	return rc;
}

void pl_record_text(const struct pl_recorded *r, const char *folder, char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "recorded ");

	if (r->ranks)
		n += (size_t)snprintf(text + n, size - n, "%u rank%s, ", r->ranks,
				      r->ranks == 1 ? "" : "s");
	if (r->n == 1)
		n += (size_t)snprintf(text + n, size - n, "step %lld, ", (long long)r->first);
	else if (r->n)
		n += (size_t)snprintf(text + n, size - n, "steps %lld to %lld, ",
				      (long long)r->first, (long long)(r->first + r->n - 1));
	snprintf(text + n, size - n, "%u file%s (%.1f MB) in %s", r->files,
		 r->files == 1 ? "" : "s", (double)r->bytes / 1e6, folder);
}
