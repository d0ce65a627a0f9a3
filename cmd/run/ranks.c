/*
 * One process starts the ranks of a job.
 *
 * If a launcher started this process (its environment says so), it is one rank already. Otherwise
 * it forks the ranks before any thread exists. They meet in a folder of their own and know a random
 * token, which nobody else learns. The process that forked them passes signals on and waits. Each
 * rank finds out by itself when another one dies.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/progress.h"
#include "program.h"

#define TIMEOUT_NS 3000000000 /* the default */
/* A launcher starts ranks on one host after the other, and a device takes long to set up. So ranks
 * may come so many timeouts after one another. */
#define LATE 10

/* Any thread may handle a signal, two at the same time. */
atomic_int stop_signal;
static atomic_int n_requests;		/* signals that asked for the end */
static volatile sig_atomic_t is_parent; /* this process forked the ranks */
static pid_t starter; /* the process that started this one: it may pass signals on */

static const int end_signals[] = { SIGINT, SIGTERM };
/* The actions before catch_signals(): those of open outputs remove temporary files. */
static struct sigaction before[PL_LEN(end_signals)];

#define AGAIN_NS 300000000 /* one request may come by one way twice; a user asks again later */

/* A terminal sends its signal to all processes, and the starter passes it on: one request reaches a
 * rank twice. So the two ways are counted apart; the larger count is that of the requests. A
 * starter may signal both the process and its group. So repeats at once by one way count as one. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	static struct {
		atomic_int n;
		_Atomic pl_ns last;
	} counted[2];
	bool passed = starter && info->si_code == SI_USER && info->si_pid == starter;
	pl_ns now = pl_now_ns();
	int n;

	(void)context;
	if (counted[passed].n && now - counted[passed].last < AGAIN_NS)
		return;
	counted[passed].last = now;
	n = ++counted[passed].n;
	if (n <= n_requests)
		return;
	n_requests = n;
	stop_signal = sig;
	/* a user who asks twice does not want to wait for the end of the step */
	if (n > 1 && sig == SIGINT && !is_parent) {
		sigaction(sig, &before[0], NULL);
		raise(sig);
	}
}

/* A signal that is ignored stays ignored. */
void catch_signals(void)
{
	struct sigaction act = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO }, old;

	for (size_t i = 0; i < PL_LEN(end_signals); i++)
		sigaddset(&act.sa_mask, end_signals[i]);
	for (size_t i = 0; i < PL_LEN(end_signals); i++) {
		if (sigaction(end_signals[i], NULL, &old) || old.sa_handler == SIG_IGN ||
		    old.sa_sigaction == on_signal)
			continue;
		before[i] = old;
		sigaction(end_signals[i], &act, NULL);
	}
}

/* The rank evaluates, measures, or has not begun. Nothing is lost if a signal ends it at once. */
static void release_signals(void)
{
	struct sigaction old;

	for (size_t i = 0; i < PL_LEN(end_signals); i++)
		if (!sigaction(end_signals[i], NULL, &old) && old.sa_sigaction == on_signal)
			sigaction(end_signals[i], &before[i], NULL);
}

/* ---- forking --------------------------------------------------------------------------------- */

typedef char message[sizeof(((struct pl_err *)0)->msg)];

struct child {
	pid_t pid;
	int status;
	bool done, killed, printed;
	int restarts; /* of a server */
	char *said;   /* its message, in memory that it shares; "": none yet */
};

/* ---- messages of ranks ----------------------------------------------------------------------- */

#define TOGETHER_NS 500000000 /* ranks that fail for one reason fail at about the same time */

/* "A: rank 2 gave up: B" where rank 2 itself says B: the reason is printed once. */
static void shorten(const struct child *v, int n, char *said)
{
	static const char gave_up[] = " gave up";
	char *at = strstr(said, " gave up: "), *number = at;
	int rank;

	while (at && number > said && number[-1] >= '0' && number[-1] <= '9')
		number--;
	rank = number < at ? atoi(number) : n;
	at = at ? at + strlen(gave_up) : NULL;
	if (rank < n && !strncmp(v[rank].said, at + 2, strlen(at + 2)))
		*at = '\0';
}

/* Prints the message of rank i with all ranks that say the same: "ranks 0-2,5: ...". v: of ranks.
 */
static void print_message(struct child *v, int n, int i)
{
	bool several = false, inside = true, same;

	for (int k = i + 1; k < n; k++)
		several |= !v[k].printed && !strcmp(v[k].said, v[i].said);
	fprintf(stderr, "run: rank%s %d", several ? "s" : "", i);
	for (int k = i + 1, first = i; k <= n; k++, inside = same) {
		same = k < n && !v[k].printed && !strcmp(v[k].said, v[i].said);
		if (same && !inside)
			fprintf(stderr, ",%d", first = k);
		else if (!same && inside && k - 1 > first)
			fprintf(stderr, "-%d", k - 1);
		if (same)
			v[k].printed = true;
	}
	fprintf(stderr, ": %s\n", v[i].said);
	v[i].printed = true;
}

/* Servers come first. The message of the first one is the reason of all others: what repeats it is
 * not printed, and at the end, when all have ended, it is the error of this process. */
static void print_messages(const struct config *c, struct child *v, int n, bool end)
{
	struct child *rank = v + c->servers;
	bool reason = c->servers && v[0].done && v[0].said[0];
	int n_ranks = n - c->servers;

	for (int i = 1; i < n && reason; i++)
		v[i].printed |= v[i].done && strstr(v[i].said, v[0].said);
	for (int i = 0; i < c->servers; i++) {
		if (!i && end)
			continue;
		if (v[i].done && v[i].said[0] && !v[i].printed)
			fprintf(stderr, "run: server %d: %s\n", i, v[i].said);
		v[i].printed |= v[i].done;
	}
	for (int i = 0; i < n_ranks; i++)
		if (rank[i].done)
			shorten(rank, n_ranks, rank[i].said);
	for (int i = 0; i < n_ranks; i++)
		if (rank[i].done && rank[i].said[0] && !rank[i].printed)
			print_message(rank, n_ranks, i);
}

static void signal_ranks(struct child *v, int n, int sig)
{
	for (int i = 0; i < n; i++)
		if (!v[i].done) {
			v[i].killed |= sig == SIGKILL;
			kill(v[i].pid, sig);
		}
}

static bool has_failed(int status)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) != stop_signal : status != 0;
}

/* ---- all processes of a job ------------------------------------------------------------------ */

typedef int work_of_rank(void *arg, const struct pl_launch *p, struct pl_err *err);

#define RESTARTS 5 /* of a server */

struct team {
	struct config *c;
	struct pl_launch p; /* of the next process */
	struct child *v;
	message *said;
	int n; /* processes */
	work_of_rank *work;
	void *arg;
	sigset_t unblocked, while_waiting;
};

/* Process i of the team in place of a server that was killed; 0: this is the new process. */
static pid_t start_again(struct team *t, int i);

/* All of them: a server that still runs (it is stopped, for example) has nobody to serve. */
static bool workers_have_failed(const struct team *t)
{
	for (int i = t->c->servers; i < t->n; i++)
		if (!t->v[i].done || !has_failed(t->v[i].status))
			return false;
	return true;
}

/* Not by a signal that asks for the end: then it has written everything. */
static bool was_killed(int status)
{
	if (!WIFSIGNALED(status))
		return false;
	for (size_t i = 0; i < PL_LEN(end_signals); i++)
		if (WTERMSIG(status) == end_signals[i])
			return false;
	return true;
}

/* What the end of process i means for the others. A job without servers ends with its first rank;
 * one with servers goes on as long as they do, and one of its workers. */
static bool ends_all(struct team *t, int i)
{
	const struct child *v = &t->v[i];

	if (!t->c->servers)
		return has_failed(v->status);
	return i < t->c->servers || workers_have_failed(t);
}

/* Waits until all have ended, and prints their messages. Signals are blocked unless it sleeps, so
 * none is missed. False: this is a new process. */
static bool wait_for(struct team *t, int started)
{
	static const struct timespec second = { .tv_sec = 1 };
	pl_ns grace = 5000000000 + 10 * t->c->timeout_ns, until = INT64_MAX;
	int n = started, left = n, passed = 0;
	struct child *v = t->v;

	while (left) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (n_requests != passed) {
			passed = n_requests;
			signal_ranks(v, n, stop_signal);
		}
		if (pid < 0 && errno != EINTR)
			return true;
		/* After one rank has failed, the others are told, or notice it. A rank that still
		 * runs after the grace period (stopped, for example) will not end by itself. */
		if (pid == 0 && pl_now_ns() > until)
			signal_ranks(v, n, SIGKILL);
		if (pid == 0 && until != INT64_MAX && pl_now_ns() > until - grace + TOGETHER_NS)
			print_messages(t->c, v, n, false);
		if (pid == 0)
			ppoll(NULL, 0, &second, &t->while_waiting);
		for (int i = 0; i < n; i++) {
			if (v[i].pid != pid || v[i].done)
				continue;
			v[i].status = status;
			if (i < t->c->servers && was_killed(status) && !v[i].killed &&
			    v[i].restarts < RESTARTS) {
				v[i].restarts++;
				v[i].pid = start_again(t, i);
				if (!v[i].pid)
					return false;
				if (v[i].pid > 0)
					continue;
			}
			v[i].done = true;
			t->c->ended[i] = true;
			left--;
			if (until == INT64_MAX && ends_all(t, i))
				until = pl_now_ns() + grace;
		}
	}
	return true;
}

static void on_child(int sig)
{
	(void)sig; /* only to wake up */
}

/* Blocks the signals that wake wait_for(). */
static void block_signals(sigset_t *unblocked, sigset_t *while_waiting)
{
	static const struct sigaction act = { .sa_handler = on_child };
	sigset_t held;

	sigemptyset(&held);
	for (size_t i = 0; i < PL_LEN(end_signals); i++)
		sigaddset(&held, end_signals[i]);
	sigaddset(&held, SIGCHLD);
	sigprocmask(SIG_BLOCK, &held, unblocked);
	*while_waiting = *unblocked;
	sigdelset(while_waiting, SIGCHLD);
	sigaction(SIGCHLD, &act, NULL);
}

/* Called in process i, which is new: it ends when the process that forked it is killed. */
static void prepare_child(const struct config *c, int i, const sigset_t *unblocked)
{
	char name[32]; /* as ps(1) and top(1) show it; the kernel keeps 15 characters */

	snprintf(name, sizeof(name), "run: %s %d", i < c->servers ? "server" : "rank",
		 i < c->servers ? i : i - c->servers);
	prctl(PR_SET_NAME, name);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, unblocked, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != starter)
		raise(SIGTERM);
}

/* A signal was sent to a rank, perhaps before another one to this process. Then all ranks write
 * everything and end by that signal, and so does this process. */
static void note_signal_of_ranks(const struct child *v, int n)
{
	int sig = WIFSIGNALED(v[0].status) ? WTERMSIG(v[0].status) : 0;

	for (int i = 0; i < n; i++)
		if (!WIFSIGNALED(v[i].status) || WTERMSIG(v[i].status) != sig || v[i].killed)
			return;
	for (size_t i = 0; i < PL_LEN(end_signals); i++)
		if (sig == end_signals[i])
			stop_signal = sig;
}

/* This process returns the result of the ranks, whose messages it has printed. */
static int result_of_ranks(const struct config *c, const struct child *v, int n, struct pl_err *err)
{
	static const int codes[] = {
		0, PL_ENO, PL_EUSAGE, PL_EDATA, PL_EIO, PL_ELIMIT, PL_EABSENT
	};
	int failed = 0, status = 0, code;
	bool by_signal = false; /* a rank ended at once because a user asked: it had not begun */
	int all = n;

	if (c->servers) /* they know which workers they needed */
		n = c->servers;
	note_signal_of_ranks(v, n);
	for (int i = 0; i < n; i++)
		if (v[i].killed)
			return pl_fail(err, PL_EIO,
				       "%s %d did not end after another had, and was killed",
				       c->servers ? "server" : "rank", i);
	for (int i = 0; i < n; i++) {
		int sig = WIFSIGNALED(v[i].status) ? WTERMSIG(v[i].status) : 0;

		if (sig && has_failed(v[i].status))
			return pl_fail(err, PL_EIO, "%s %d was ended by signal %d (%s)",
				       c->servers ? "server" : "rank", i, sig, strsignal(sig));
		by_signal |= sig != 0;
		if (sig || !v[i].status)
			continue;
		failed++;
		/* a rank with status 4 lost another one, which failed first */
		if (!status || status == 4)
			status = WEXITSTATUS(v[i].status);
	}
	/* nor does a server know why a worker ended before training began */
	for (int i = n; i < all && status == 4; i++)
		if (WIFEXITED(v[i].status) && WEXITSTATUS(v[i].status))
			status = WEXITSTATUS(v[i].status);
	if (by_signal && status == 4)
		return 0;
	if (!failed)
		return 0;
	code = status < (int)PL_LEN(codes) ? codes[status] : PL_EINTERNAL;
	if (c->servers && v[0].said[0] && !v[0].printed)
		return pl_fail(err, code, "server 0: %s", v[0].said);
	if (c->servers)
		return pl_fail(err, code, "training has ended before its time");
	return pl_fail(err, code, "%d of %d ranks failed", failed, n);
}

const char *host_of_rank(const struct config *c, const struct pl_launch *p, char text[HOST_MAX])
{
	int rank = p->rank - c->servers, ranks = p->size - c->servers;
	const char *name = getenv("PACELINE_HOST");

	if (rank < 0)
		return NULL;
	if (pl_job_hosts(c->hosts) >= 2)
		snprintf(text, HOST_MAX, "host%lld", (long long)pl_job_host(c->hosts, ranks, rank));
	else if (name && *name)
		snprintf(text, HOST_MAX, "%.*s", HOST_MAX - 1, name);
	else
		return NULL;
	return text;
}

/* A rank that failed leaves its message to the process that forked it. */
static int end_rank(int rc, const struct pl_err *err, char *said)
{
	if (rc >= 0)
		return rc;
	snprintf(said, sizeof(message), "%s", err->msg);
	pl_progress_end();
	exit(pl_exit_status(rc));
}

/* The ranks meet in a folder of their own, unless the user has said where. */
static int make_meeting(const struct config *c, struct pl_launch *p, struct pl_err *err)
{
	const char *tmp = getenv("TMPDIR");

	PL_CHECK(pl_comm_token_make(p->token, sizeof(p->token), err));
	tmp = tmp && *tmp ? tmp : "/tmp";
	if (c->meet) {
		snprintf(p->meet, sizeof(p->meet), "%s", c->meet);
		return 0;
	}
	snprintf(p->folder, sizeof(p->folder), "%.150s/paceline-XXXXXX", tmp);
	if (!mkdtemp(p->folder)) {
		p->folder[0] = '\0';
		return pl_fail_sys(err, "%.150s: a folder to meet in", tmp);
	}
	snprintf(p->meet, sizeof(p->meet), "dir:%s", p->folder);
	return 0;
}

/* Forks process i; 0: this is the process. */
static pid_t fork_one(struct team *t, int i)
{
	pid_t self = getpid(), pid = fork();

	if (pid)
		return pid;
	is_parent = false;
	starter = self;
	release_signals();
	prepare_child(t->c, i, &t->unblocked);
	t->p.rank = t->p.local_rank = i;
	return 0;
}

static pid_t start_again(struct team *t, int i)
{
	pid_t pid;

	fflush(NULL);
	t->said[i][0] = '\0';
	pid = fork_one(t, i);
	if (!pid)
		t->c->again = true;
	return pid;
}

static int end_of(struct team *t, struct pl_err *err)
{
	return end_rank(t->work(t->arg, &t->p, err), err, t->said[t->p.rank]);
}

/* *mine: this is one of the processes, and *rc its result. */
static int run_team(struct team *t, bool *mine, struct pl_err *err)
{
	int rc = 0, started = 0;

	block_signals(&t->unblocked, &t->while_waiting);
	for (; started < t->n; started++) {
		pid_t pid = fork_one(t, started);

		if (pid < 0) {
			rc = pl_fail_sys(err, "starting rank %d", started);
			signal_ranks(t->v, started, SIGTERM);
			break;
		}
		if (!pid) {
			*mine = true;
			return end_of(t, err);
		}
		t->v[started].pid = pid;
		t->v[started].said = t->said[started];
	}
	*mine = !wait_for(t, started);
	if (*mine)
		return end_of(t, err);
	print_messages(t->c, t->v, started, true);
	sigprocmask(SIG_SETMASK, &t->unblocked, NULL);
	return rc < 0 ? rc : result_of_ranks(t->c, t->v, t->n, err);
}

/* What servers that are started again go on with. */
static int make_memory(struct config *c, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&c->memory, (size_t)c->servers + 1, sizeof(*c->memory), err));
	for (int i = 0; i < c->servers; i++)
		c->memory[i] = -1;
	for (int i = 0; i < c->servers; i++)
		if ((c->memory[i] = memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
			return pl_fail_sys(err, "memory for server %d", i);
	return 0;
}

static int fork_ranks(struct config *c, int n, work_of_rank *work, void *arg, struct pl_err *err)
{
	struct team t = { .c = c, .n = n, .work = work, .arg = arg };
	struct pl_launch *p = &t.p;
	bool mine = false;
	int rc = pl_alloc(&t.v, (size_t)n, sizeof(*t.v), err);

	if (rc < 0)
		return rc;
	p->size = p->local_size = n;
	c->ended = mmap(NULL, (size_t)n * sizeof(*c->ended), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	t.said = mmap(NULL, (size_t)n * sizeof(*t.said), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (t.said == MAP_FAILED || c->ended == MAP_FAILED) {
		rc = pl_fail_sys(err, "memory for messages of ranks");
		goto out;
	}
	PL_TRY(make_memory(c, err));
	is_parent = true;
	catch_signals();
	PL_TRY(make_meeting(c, p, err));
	fflush(NULL);
	rc = run_team(&t, &mine, err);
	c->is_parent = !mine;
out:
	if (mine) {
		pl_free(t.v);
		pl_free(c->memory);
		c->memory = NULL;
		return rc;
	}
	if (p->folder[0])
		pl_remove_folder(p->folder);
	if (t.said != MAP_FAILED)
		munmap(t.said, (size_t)n * sizeof(*t.said));
	if (c->ended != MAP_FAILED)
		munmap(c->ended, (size_t)n * sizeof(*c->ended));
	c->ended = NULL;
	for (int i = 0; c->memory && i < c->servers; i++)
		if (c->memory[i] >= 0)
			close(c->memory[i]);
	pl_free(c->memory);
	c->memory = NULL;
	pl_free(t.v);
	return rc;
}

/* ---- launchers ------------------------------------------------------------------------------- */

/* Slurm's daemon reads the output of a task through pipes, and stops when the task ends. The last
 * lines that it has not read by then would be lost. So this waits until all is read, a second at
 * most. FIONREAD knows this only for pipes. */
static void wait_until_read(void)
{
	int turn = 0;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
		struct stat s;
		int unread = 0;

		if (fstat(fd, &s) < 0 || !S_ISFIFO(s.st_mode))
			continue;
		while (!ioctl(fd, FIONREAD, &unread) && unread > 0 && turn++ < 1000)
			pl_sleep_ns(1000000);
	}
}

void flush_before_exit(void)
{
	if (getenv("SLURM_PROCID"))
		atexit(wait_until_read);
}

int read_launcher(struct config *c, struct pl_err *err)
{
	struct pl_launch *l = &c->launch;
	int rc = pl_comm_launch_find(l, err);

	if (rc < 0 || !l->launcher)
		return rc;
	if (c->ranks && c->ranks != l->size)
		return pl_fail(err, PL_EUSAGE, "-n %lld, but %s started %d ranks",
			       (long long)c->ranks, l->launcher, l->size);
	if (l->size > RANKS_MAX)
		return pl_fail(err, PL_ELIMIT, "%s started %d ranks; this program takes %d",
			       l->launcher, l->size, RANKS_MAX);
	c->ranks = l->size;
	return 0;
}

/* Finds where the ranks of a launcher meet, and their common secret. */
static int join_launcher(const struct config *c, struct pl_launch *l, struct pl_err *err)
{
	if (c->meet)
		snprintf(l->meet, sizeof(l->meet), "%s", c->meet);
	if (!strcmp(l->launcher, "torchrun") && l->size > 1 && !l->meet[0] && !l->token[0])
		return pl_fail(
			err, PL_EUSAGE,
			"RANK and WORLD_SIZE are set in the environment, but MASTER_ADDR and "
			"MASTER_PORT, where the ranks meet, are not; set these, or --meet, or "
			"unset RANK");
	if (l->size > 1 && !l->token[0]) {
		/* the port that torchrun offers may be taken, and on one host none is needed */
		if (!c->meet && !getenv("PACELINE_MEET") && !l->several_hosts)
			l->meet[0] = '\0';
		return pl_comm_launch_share(l, LATE * c->timeout_ns, err);
	}
	if (l->size > 1 && strlen(l->token) < 16)
		return pl_fail(err, PL_EUSAGE,
			       "PACELINE_TOKEN, the common secret of all ranks, needs 16 "
			       "characters or more");
	if (l->size > 1 && !l->meet[0])
		return pl_fail(
			err, PL_EUSAGE,
			"%s and PACELINE_TOKEN say who this is, but not where to meet: --meet "
			"dir:PATH (a folder that all see) or tcp:HOST:PORT",
			l->launcher);
	return 0;
}

void end_by(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
}

/* A launcher numbers all processes; servers come first, and messages number servers and ranks. */
static void wrap_process(const struct config *c, struct pl_err *err)
{
	int process = c->launch.rank;

	if (!c->servers)
		pl_wrap(err, "rank %d", process);
	else if (process < c->servers)
		pl_wrap(err, "server %d (%s=%d)", process, c->launch.rank_name, process);
	else
		pl_wrap(err, "rank %d (%s=%d)", process - c->servers, c->launch.rank_name, process);
}

int start_ranks(struct config *c, int64_t default_ranks, work_of_rank *work, void *arg,
		struct pl_err *err)
{
	const struct pl_launch alone = { .size = 1, .local_size = 1 };
	int64_t n = c->servers + (c->ranks ? c->ranks : default_ranks > 0 ? default_ranks : 1);
	int rc, sig;

	c->timeout_ns = c->timeout_ns ? c->timeout_ns : TIMEOUT_NS;
	starter = getppid();
	if (c->launch.launcher) {
		/* a server that evaluates alone may have ended before the others look for it */
		rc = c->eval && c->servers && c->launch.rank ? 0
							     : join_launcher(c, &c->launch, err);
		if (rc == 0)
			rc = work(arg, &c->launch, err);
		if (rc < 0 && c->launch.size > 1)
			wrap_process(c, err);
		if (rc < 0)
			pl_comm_launch_unshare(&c->launch);
	} else if (n > 1) {
		rc = fork_ranks(c, (int)n, work, arg, err);
	} else {
		rc = work(arg, &alone, err);
	}
	sig = stop_signal;
	if (rc == 0 && sig && (!c->policies || !c->is_parent))
		end_by(sig);
	return rc;
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* Links are those of ranks, and servers are the first processes. -1: any. */
static int process_of(int servers, int64_t rank)
{
	return rank < 0 ? -1 : servers + (int)rank;
}

static int shape_of(const struct pl_job *j, int servers, struct pl_link_shape **shape, size_t *n,
		    struct pl_err *err)
{
	*n = 0;
	PL_CHECK(pl_alloc(shape, j->n_links + 1, sizeof(**shape), err));
	for (size_t i = 0; i < j->n_links; i++)
		(*shape)[(*n)++] =
			(struct pl_link_shape){ .from = process_of(servers, j->link[i].from),
						.to = process_of(servers, j->link[i].to),
						.bytes_per_ns = j->link[i].bytes_per_ns,
						.latency_ns = j->link[i].latency_ns,
						.shared = j->link[i].shared };
	return 0;
}

/* A device that waits for a lost rank ends its process, which has this number. */
static void guard_device(const struct config *c, struct device *d, int rank)
{
	d->rank = rank;
	d->grace_s = 3 + (unsigned)(5 * c->timeout_ns / 1000000000);
}

int find_meeting(const struct config *c, const struct pl_launch *p, const struct pl_job *j,
		 struct device *d, struct pl_engine_meeting *m, struct pl_link_shape **shape,
		 char host[HOST_MAX], struct pl_err *err)
{
	*m = (struct pl_engine_meeting){ .rank = p->rank,
					 .size = p->size,
					 .at = p->meet,
					 .token = p->token,
					 .bind = c->bind,
					 .host = host_of_rank(c, p, host),
					 .forked = !c->launch.launcher,
					 .ended = c->ended,
					 .timeout_ns = c->timeout_ns,
					 .lost = device_lost,
					 .lost_arg = d,
					 .memory = c->memory && p->rank < c->servers
							   ? c->memory[p->rank]
							   : -1 };
	guard_device(c, d, p->rank - c->servers);
	PL_CHECK(shape_of(j, c->servers, shape, &m->n_shapes, err));
	m->shape = *shape;
	return 0;
}

int open_world(const struct config *c, const struct pl_launch *p, const struct pl_job *j,
	       struct device *d, struct pl_tracer *t, struct pl_world **w, struct pl_err *err)
{
	struct pl_world_opts o = { .rank = p->rank,
				   .size = p->size,
				   .local_rank = p->local_rank,
				   .transport = j->transport,
				   .meet = p->meet,
				   .token = p->token,
				   .launch = p->folder[0] ? p : NULL,
				   .bind = c->bind,
				   .backend = d->backend,
				   .backend_ctx = d->ctx,
				   .lost = device_lost,
				   .lost_arg = d,
				   .timeout_ns = c->timeout_ns,
				   .log = &c->c.log };
	struct pl_link_shape *shape = NULL;
	char host[HOST_MAX];
	int rc;

	*w = NULL;
	if (p->size < 2)
		return 0;
	guard_device(c, d, p->rank);
	if (c->launch.launcher || d->ctx)
		o.meet_ns = LATE * c->timeout_ns;
	o.host = host_of_rank(c, p, host);
	o.local_size = o.host ? 0 : p->local_size;
	PL_TRY(shape_of(j, 0, &shape, &o.n_shapes, err));
	o.shape = shape;
	if (t) {
		o.event = pl_train_tracer_comm;
		o.event_arg = t;
	}
	rc = pl_comm_world_open(&o, w, err);
	/* No rank connects any more. The last one removes the folder: its maker may be killed. */
	pl_comm_launch_unshare(p);
out:
	pl_free(shape);
	return rc;
}
