/*
 * A token and a place to meet for ranks that a launcher started, where the user set neither.
 *
 * All ranks see one folder. Its name is made from the identity of the launcher's job: the job's
 * number in the environment, or else the process that started the ranks. Rank 0 writes a random
 * token there, and the others wait for it. The folder and its files must belong to this user, and
 * no other user may enter. Any other folder is refused, because other users can guess the name and
 * create the folder first.
 *
 * A job that was killed may leave its token behind. A token names the process that made it, and is
 * ignored if this process has ended. Of a process on another host nobody knows whether it has: rank
 * 0 says so, and another rank reads the token again while it waits for rank 0, which may replace
 * it. A token has no expiry, because that of a job with servers is valid until the job ends. Rank 0
 * removes everything as soon as all are connected.
 *
 * PMIx could carry addresses and token between hosts, but it is not used. Its calls have no
 * deadline. It brings threads and plugins into a process whose time is measured. Its structures are
 * no stable interface for programs that do not include its headers. And where ranks are on several
 * hosts, the user has to name the address to listen on in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/internal.h"

#define ENVIRONMENT_MAX ((size_t)2 << 20) /* ARG_MAX of Linux by default */
#define TOKEN_DIGITS	64
#define TOKEN_FILE	"token"

int pl_comm_token_make(char *token, size_t size, struct pl_err *err)
{
	static const char digit[] = "0123456789abcdef";
	unsigned char raw[TOKEN_DIGITS / 2];

	int rc = pl_comm_random(raw, sizeof(raw), err);

	if (rc < 0)
		return pl_wrap(err, "token of the job");
	for (size_t i = 0; i < sizeof(raw) && 2 * i + 2 < size; i++) {
		token[2 * i] = digit[raw[i] >> 4];
		token[2 * i + 1] = digit[raw[i] & 15];
		token[2 * i + 2] = '\0';
	}
	return 0;
}

/* ---- processes ---- */

/* Parent and start time (in ticks since boot) of a process; false: it does not exist. */
static bool read_process(pid_t pid, pid_t *parent, unsigned long long *start)
{
	char path[64], text[1024];
	const char *p;
	long up;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	pl_read_small(path, text, sizeof(text));
	p = strrchr(text, ')'); /* the name may contain anything */
	/* state, ppid, then 17 more before starttime */
	if (!p || sscanf(p + 1,
			 " %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			 "%*s %llu",
			 &up, start) != 2)
		return false;
	*parent = (pid_t)up;
	return true;
}

/* Did a process start with this variable? Also false if its environment cannot be read. */
static bool started_with(pid_t pid, const char *name)
{
	char path[64], *all = pl_malloc(ENVIRONMENT_MAX);
	size_t len = strlen(name);
	bool found = false;
	int n;

	snprintf(path, sizeof(path), "/proc/%ld/environ", (long)pid);
	n = all ? pl_read_small(path, all, ENVIRONMENT_MAX) : 0;
	for (const char *s = all; s && s < all + n && !found; s += strlen(s) + 1)
		found = !strncmp(s, name, len) && s[len] == '=';
	pl_free(all);
	return found;
}

/* The launcher: the nearest ancestor that is not part of a rank, also behind scripts. */
static uint64_t hash_launcher(const char *rank_name)
{
	uint64_t h[3] = { pl_comm_host_id(NULL) };
	pid_t pid = getppid(), up = 0;
	unsigned long long start = 0;

	while (read_process(pid, &up, &start) && up > 0 && started_with(pid, rank_name))
		pid = up;
	h[1] = (uint64_t)pid;
	h[2] = start;
	return pl_hash(h, sizeof(h));
}

/* ---- the folder ---- */

/* PL_ENO: it does not exist, or was removed just now. */
static int open_folder(const char *path, bool make, int *fd, struct pl_err *err)
{
	struct stat st;

	if (make && (pl_fail_now() || (mkdir(path, 0700) < 0 && errno != EEXIST)))
		return pl_fail_sys(err, "meeting: cannot make %s", path);
	*fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0 && errno == ENOENT)
		return PL_ENO;
	if (*fd < 0)
		return pl_fail_sys(err, "meeting: cannot open %s", path);
	if (fstat(*fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 077))
		return 0;
	close(*fd);
	return pl_fail(err, PL_EIO,
		       "meeting: %s is not this user's alone (owner %ld, mode %03o); remove it, or "
		       "set PACELINE_MEET and PACELINE_TOKEN for all ranks",
		       path, (long)st.st_uid, (unsigned)st.st_mode & 0777);
}

struct token_file { /* the contents of a file with a token */
	unsigned long long host, start;
	long pid;
	char token[TOKEN_DIGITS + 1];
};

/* Reads the token; false: there is none, or the process that made it is known to have ended. */
static bool read_token(int dir, struct token_file *m)
{
	char text[256];
	struct stat st;
	unsigned long long start = 0;
	pid_t up;
	int fd = openat(dir, TOKEN_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool fine = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		    st.st_uid == geteuid() && !(st.st_mode & 077);
	ssize_t n = fine ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "paceline-token 1 %llx %ld %llu %64[0-9a-f]", &m->host, &m->pid, &m->start,
		   m->token) != 4 ||
	    strlen(m->token) != TOKEN_DIGITS)
		return false;
	return m->host != pl_comm_host_id(NULL) ||
	       (read_process((pid_t)m->pid, &up, &start) && start == m->start);
}

int pl_comm_leave_file(int dir, const char *name, const char *text)
{
	size_t n = strlen(text);
	char temp[620];
	int fd, why;
	bool ok;

	snprintf(temp, sizeof(temp), "%s.new", name);
	unlinkat(dir, temp, 0);
	fd = pl_fail_now() ? -1
			   : openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				    0600);
	if (fd < 0)
		return -1;
	ok = write(fd, text, n) == (ssize_t)n;
	ok &= close(fd) == 0;
	if (ok && renameat(dir, temp, dir, name) == 0)
		return 0;
	why = errno;
	unlinkat(dir, temp, 0);
	errno = why;
	return -1;
}

static int write_token(struct pl_launch *l, int dir, struct pl_err *err)
{
	struct token_file m = { .host = pl_comm_host_id(NULL), .pid = getpid() }, old;
	char text[256];
	pid_t up;

	PL_CHECK(pl_comm_token_make(m.token, sizeof(m.token), err));
	if (read_token(dir, &old)) {
		bool here = old.host == m.host; /* so it lives */

		return pl_fail(err, PL_EIO,
			       "meeting: another run of the same job of %s meets in %s (process "
			       "%ld%s); %sone after the other, or set PACELINE_MEET and "
			       "PACELINE_TOKEN for each",
			       l->launcher, l->folder, old.pid,
			       here ? "" : ", of another host or from before this one started",
			       here ? "" : "if it has ended, remove the folder, else ");
	}
	read_process((pid_t)m.pid, &up, &m.start);
	snprintf(text, sizeof(text), "paceline-token 1 %llx %ld %llu %s\n", m.host, m.pid, m.start,
		 m.token);
	if (pl_comm_leave_file(dir, TOKEN_FILE, text) < 0)
		return errno == ENOENT ? PL_ENO
				       : pl_fail_sys(err, "meeting: cannot write %s/" TOKEN_FILE,
						     l->folder);
	snprintf(l->token, sizeof(l->token), "%s", m.token);
	return 0;
}

/* Rank 0 writes the token, the others read it; PL_ENO: not yet. */
static int share_token(struct pl_launch *l, struct pl_err *err)
{
	struct token_file m;
	int dir = -1, rc = open_folder(l->folder, l->rank == 0, &dir, err);

	if (rc < 0)
		return rc;
	if (l->rank == 0) {
		rc = write_token(l, dir, err);
	} else if (read_token(dir, &m)) {
		snprintf(l->token, sizeof(l->token), "%s", m.token);
	} else {
		rc = PL_ENO;
	}
	close(dir);
	return rc;
}

bool pl_comm_launch_token(const struct pl_launch *l, char *to, size_t size)
{
	struct pl_err e = { 0 };
	struct token_file m;
	int dir = -1;
	bool found;

	if (open_folder(l->folder, false, &dir, &e) < 0)
		return false;
	found = read_token(dir, &m);
	if (found)
		snprintf(to, size, "%s", m.token);
	close(dir);
	return found;
}

int pl_comm_launch_share(struct pl_launch *l, pl_ns wait_ns, struct pl_err *err)
{
	bool in_dir = !strncmp(l->meet, "dir:", 4) && l->meet[4];
	const char *tmp = getenv("TMPDIR"), *base = in_dir	  ? l->meet + 4
						    : tmp && *tmp ? tmp
								  : "/tmp";
	pl_ns until;
	int rc, n;

	wait_ns = wait_ns > 0 ? wait_ns : PL_TIMEOUT_NS;
	until = pl_now_ns() + wait_ns;
	if (l->several_hosts && !(in_dir && l->job))
		return pl_fail(
			err, PL_EUSAGE,
			"%s started %d ranks on several hosts, which need a common secret%s: "
			"set %sPACELINE_TOKEN (16 characters or more) for all of them",
			l->launcher, l->size, l->meet[0] ? "" : " and a place",
			l->meet[0] ? ""
				   : "PACELINE_MEET (tcp:HOST:PORT, where rank 0 is to "
				     "listen) and ");
	n = snprintf(l->folder, sizeof(l->folder), "%s/paceline-%ld-%016llx", base, (long)geteuid(),
		     (unsigned long long)(l->job ? l->job : hash_launcher(l->rank_name)));
	if (n < 0 || (size_t)n >= sizeof(l->folder)) {
		l->folder[0] = '\0';
		return pl_fail(err, PL_EUSAGE, "meeting: the name of %.100s... is too long", base);
	}
	if (in_dir || !l->meet[0])
		snprintf(l->meet, sizeof(l->meet), "dir:%s", l->folder);
	while ((rc = share_token(l, err)) == PL_ENO && pl_now_ns() < until)
		pl_sleep_ns(5000000);
	if (rc == PL_ENO)
		rc = pl_fail(err, PL_EIO,
			     "meeting in %s: after %.1f s rank 0 never came; if it is on another "
			     "host, set PACELINE_MEET (tcp:HOST:PORT, where rank 0 is to listen) "
			     "and PACELINE_TOKEN for all ranks",
			     l->folder, (double)wait_ns / 1e9);
	if (rc < 0)
		pl_comm_launch_unshare(l);
	return rc;
}

/* Rank 0 removes the files as well, because no rank needs them any more. */
void pl_comm_launch_unshare(const struct pl_launch *l)
{
	if (!l->folder[0])
		return;
	if (l->rank == 0 && l->token[0])
		pl_remove_folder(l->folder);
	else
		rmdir(l->folder); /* the last rank succeeds */
}
