/*
 * Outputs: standard output, files, memory.
 *
 * A regular file is written as NAME.tmp.PID in the same folder and renamed at the end. The
 * temporary names are registered, so that they are also removed if the process exits early or dies
 * of a signal: pl_out_hook(), at the latest the first registration, installs handlers for atexit(3)
 * and for signals whose action is the default. The handler unlinks, restores the default and raises
 * the signal again. That of SIGXFSZ does nothing, so that write(2) fails, with EFBIG.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/spill.h"
#include "io/internal.h"

#define PIPE_BYTES (1 << 20) /* the most that Linux allows any user */

#define BUF_SIZE    ((size_t)64 << 10)
#define SPOOL_BYTES ((size_t)2 << 20) /* of a spool in memory */

struct pl_out {
	char *name, *path, *tmp; /* for messages, final, temporary (NULL: no temporary file) */
	int fd, slot;
	bool durable;
	struct pl_buf *mem;
	struct pl_spool *spool; /* that has `mem`, or NULL */
	uint8_t *buf;
	size_t n;
	int64_t offset;	    /* bytes that left the buffer */
	struct pl_err fail; /* the first failure: later calls return it */
};

/* ---- temporary names ----------------------------------------------------------------------- */

#define SLOTS 16

static struct {
	atomic_int used;
	char path[PATH_MAX];
} slots[SLOTS];
static _Atomic pid_t slots_owner; /* a forked child must not remove its parent's files */

static void remove_all(void)
{
	if (atomic_load(&slots_owner) != getpid())
		return;
	for (size_t i = 0; i < SLOTS; i++)
		if (atomic_load(&slots[i].used))
			unlink(slots[i].path);
}

static void on_signal(int sig)
{
	int saved = errno;

	remove_all();
	signal(sig, SIG_DFL);
	raise(sig);
	errno = saved;
}

/* Not SIG_IGN, which programs that this one starts would have, too. */
static void on_size_limit(int sig)
{
	(void)sig;
}

static void hook(void)
{
	static const int sigs[] = { SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGXCPU };
	struct sigaction act = { .sa_handler = on_signal }, old;

	sigemptyset(&act.sa_mask);
	atexit(remove_all);
	for (size_t i = 0; i < PL_LEN(sigs); i++) {
		act.sa_handler = sigs[i] == SIGXFSZ ? on_size_limit : on_signal;
		if (!sigaction(sigs[i], NULL, &old) && !(old.sa_flags & SA_SIGINFO) &&
		    old.sa_handler == SIG_DFL)
			sigaction(sigs[i], &act, NULL);
	}
}

void pl_out_hook(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, hook);
}

/* The slot; -1: all are in use; -2: another output has this name. */
static int slot_take(const char *path)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int slot = -1;

	pl_out_hook();
	pthread_mutex_lock(&lock);
	if (atomic_exchange(&slots_owner, getpid()) != getpid())
		for (int i = 0; i < SLOTS; i++)
			atomic_store(&slots[i].used, 0);
	for (int i = 0; i < SLOTS && slot != -2; i++) {
		if (!atomic_load(&slots[i].used))
			slot = slot < 0 ? i : slot;
		else if (!strcmp(slots[i].path, path))
			slot = -2;
	}
	if (slot >= 0) {
		snprintf(slots[slot].path, sizeof(slots[slot].path), "%s", path);
		atomic_store(&slots[slot].used, 1);
	}
	pthread_mutex_unlock(&lock);
	return slot;
}

/* ---- opening ------------------------------------------------------------------------------- */

static struct pl_out *out_alloc(const char *name, bool buffered, struct pl_err *err)
{
	struct pl_out *o;

	if (pl_alloc(&o, 1, sizeof(*o), err) < 0)
		return NULL;
	o->fd = o->slot = -1;
	o->name = pl_strdup(name);
	o->buf = buffered ? pl_malloc(BUF_SIZE) : NULL;
	if (o->name && (o->buf || !buffered))
		return o;
	pl_fail(err, PL_ENOMEM, "out of memory (an output)");
	pl_out_abort(o);
	return NULL;
}

/*
 * The path to which the bytes go: a symbolic link is followed, and of a new file the folder is made
 * canonical, so that two names of one file are recognised. NULL: no memory.
 */
static char *final_path(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	char *real = realpath(path, NULL), *copy, *dir;
	size_t size;

	if (real) {
		copy = pl_strdup(real);
		free(real);
		return copy;
	}
	dir = pl_strdup(slash ? path : ".");
	if (dir && slash)
		dir[base - path] = '\0';
	real = dir ? realpath(dir, NULL) : NULL;
	pl_free(dir);
	if (!real)
		return pl_strdup(path);
	size = strlen(real) + strlen(base) + 2;
	copy = pl_malloc(size);
	if (copy)
		snprintf(copy, size, "%s/%s", strcmp(real, "/") ? real : "", base);
	free(real);
	return copy;
}

static int open_fd(const char *path, int flags)
{
	int fd, up;

	if (pl_fail_now()) {
		errno = EIO;
		return -1;
	}
	do {
		fd = open(path, flags | O_WRONLY | O_CLOEXEC, 0666);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* files must not get 0 to 2 */
	close(fd);
	return up;
}

static int open_tmp(struct pl_out *o, const struct stat *old, struct pl_err *err)
{
	size_t size = strlen(o->path) + 32;

	if (size > PATH_MAX)
		return pl_fail(err, PL_EIO, "%s: the name is too long", o->name);
	o->tmp = pl_malloc(size);
	if (!o->tmp)
		return pl_fail(err, PL_ENOMEM, "out of memory (an output)");
	snprintf(o->tmp, size, "%s.tmp.%ld", o->path, (long)getpid());
	o->slot = slot_take(o->tmp);
	if (o->slot < 0) {
		pl_free(o->tmp);
		o->tmp = NULL;
		return o->slot == -2
			       ? pl_fail(err, PL_EUSAGE, "%s: is being written already", o->name)
			       : pl_fail(err, PL_ELIMIT, "%s: more than %d files are being written",
					 o->name, SLOTS);
	}
	o->fd = open_fd(o->tmp, O_CREAT | O_EXCL);
	if (o->fd < 0 && errno == EEXIST &&
	    !unlink(o->tmp)) /* a dead process with our process id left it */
		o->fd = open_fd(o->tmp, O_CREAT | O_EXCL);
	if (o->fd < 0)
		return pl_fail_sys(err, "%s: cannot create", o->name);
	if (old && fchmod(o->fd, old->st_mode & 0777) < 0)
		return pl_fail_sys(err, "%s: cannot set its mode", o->name);
	return 0;
}

static int open_path(struct pl_out *o, const char *path, struct pl_err *err)
{
	struct stat st;
	bool exists = !stat(path, &st);

	if (!exists || S_ISREG(st.st_mode)) {
		o->path = final_path(path);
		if (!o->path)
			return pl_fail(err, PL_ENOMEM, "out of memory (an output)");
		if (exists && access(path, W_OK) < 0)
			return pl_fail_sys(err, "%s: cannot write", path);
		return open_tmp(o, exists ? &st : NULL, err);
	}
	o->fd = open_fd(path, O_NOCTTY);
	return o->fd < 0 ? pl_fail_sys(err, "%s: cannot open", path) : 0;
}

/* A pipe that holds one or two blocks lets both ends work at the same time. It may fail. */
static void widen_pipe(int fd)
{
#ifdef F_SETPIPE_SZ
	struct stat st;

	if (!fstat(fd, &st) && S_ISFIFO(st.st_mode))
		(void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES);
#else
	(void)fd;
#endif
}

struct pl_out *pl_out_open(const char *path, bool binary, struct pl_err *err)
{
	bool is_std = !path || !strcmp(path, "-");
	struct pl_out *o = out_alloc(is_std ? "stdout" : path, true, err);

	if (!o)
		return NULL;
	if (!*o->name) {
		pl_fail(err, PL_EUSAGE, "the name of the output is empty");
		goto fail;
	}
	if (is_std)
		o->fd = STDOUT_FILENO;
	else if (open_path(o, path, err) < 0)
		goto fail;
	if (binary && isatty(o->fd)) {
		pl_fail(err, PL_EUSAGE,
			"%s: is a terminal, and the output is binary: redirect it or use -o FILE",
			o->name);
		goto fail;
	}
	if (binary)
		widen_pipe(o->fd);
	return o;
fail:
	pl_out_abort(o);
	return NULL;
}

struct pl_out *pl_out_open_new(const char *path, struct pl_err *err)
{
	struct pl_out *o = out_alloc(path, true, err);

	if (!o)
		return NULL;
	o->fd = open_fd(path, O_CREAT | O_EXCL);
	if (o->fd >= 0)
		return o;
	pl_fail_sys(err, "%s: cannot create", o->name);
	pl_out_abort(o);
	return NULL;
}

struct pl_out *pl_out_open_buf(struct pl_buf *b, struct pl_err *err)
{
	struct pl_out *o = out_alloc("memory", false, err);

	if (o)
		o->mem = b;
	return o;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int write_all(struct pl_out *o, const uint8_t *p, size_t n, struct pl_err *err)
{
	while (n) {
		ssize_t put;

		if (pl_fail_now()) {
			errno = EIO;
			put = -1;
		} else {
			put = write(o->fd, p, pl_min_size(n, (size_t)1 << 30));
		}
		if (put > 0) {
			p += put;
			n -= (size_t)put;
			o->offset += put;
		} else if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			struct pollfd f = { .fd = o->fd, .events = POLLOUT };

			poll(&f, 1, -1);
		} else if (put < 0 && errno != EINTR) {
			pl_fail_sys(&o->fail, "%s: cannot write at byte %lld", o->name,
				    (long long)o->offset);
			return pl_fail_as(err, &o->fail);
		}
	}
	return 0;
}

static int flush(struct pl_out *o, struct pl_err *err)
{
	size_t n = o->n;

	o->n = 0;
	return write_all(o, o->buf, n, err);
}

/* Move the bytes of the spool from memory into its file. */
static int spill(struct pl_out *o, struct pl_err *err)
{
	struct pl_spool *s = o->spool;

	if (s->fd < 0)
		s->fd = pl_spill_file(err);
	if (s->fd < 0)
		return s->fd;
	if (o->fd < 0)
		o->fd = fcntl(s->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (o->fd < 0)
		return pl_fail_sys(err, "a temporary file");
	PL_CHECK(write_all(o, s->mem.p, s->mem.n, err));
	s->mem.n = 0;
	return 0;
}

int pl_out_write(struct pl_out *o, const void *p, size_t n, struct pl_err *err)
{
	int rc;

	if (PL_UNLIKELY(o->fail.code))
		return pl_fail_as(err, &o->fail);
	if (o->mem) {
		if (pl_buf_put(o->mem, p, n, &o->fail) == 0 && o->spool && o->mem->n >= SPOOL_BYTES)
			(void)!spill(o, &o->fail);
		return pl_fail_as(err, &o->fail);
	}
	if (PL_UNLIKELY(n > BUF_SIZE - o->n)) {
		rc = flush(o, err);
		if (rc < 0 || n >= BUF_SIZE)
			return rc < 0 ? rc : write_all(o, p, n, err);
	}
	if (n)
		memcpy(o->buf + o->n, p, n);
	o->n += n;
	return 0;
}

int pl_out_flush(struct pl_out *o, struct pl_err *err)
{
	PL_CHECK(pl_fail_as(err, &o->fail));
	return o->buf ? flush(o, err) : 0;
}

int pl_out_copy(struct pl_out *o, struct pl_in *in, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n;

	while ((n = pl_in_peek(in, 1, &p, err)) > 0) {
		PL_CHECK(pl_out_write(o, p, (size_t)n, err));
		pl_in_skip(in, (size_t)n);
	}
	return (int)n;
}

/* ---- spools -------------------------------------------------------------------------------- */

struct pl_spool *pl_io_spool_new(struct pl_err *err)
{
	struct pl_spool *s;

	if (pl_alloc(&s, 1, sizeof(*s), err) == 0)
		s->fd = -1;
	return s;
}

void pl_io_spool_free(struct pl_spool *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	pl_buf_fini(&s->mem);
	pl_free(s);
}

struct pl_out *pl_io_spool_write(struct pl_spool *s, struct pl_err *err)
{
	struct pl_out *o = pl_out_open_buf(&s->mem, err);

	if (o)
		o->spool = s;
	return o;
}

struct pl_in *pl_io_spool_read(struct pl_spool *s, const char *name, struct pl_err *err)
{
	struct pl_out *rest;

	if (s->fd < 0)
		return pl_in_open_mem(name, s->mem.p, s->mem.n, err);
	rest = pl_io_spool_write(s, err);
	if (!rest || pl_out_finish(rest, spill(rest, err), err) < 0)
		return NULL;
	return pl_in_open_fd(name, s->fd, err);
}

/* ---- closing ------------------------------------------------------------------------------- */

/* Bytes that the system has yet to write could be lost with the power. */
static int sync_fd(struct pl_out *o, int fd, struct pl_err *err)
{
	int rc;

	do {
		rc = fsync(fd);
	} while (rc < 0 && errno == EINTR);
	/* some file systems cannot */
	if (rc < 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS)
		return pl_fail_sys(err, "%s: cannot write to the disk", o->name);
	return 0;
}

/* The name of a file is in its folder; one that may not be read cannot be synced. */
static int sync_folder(struct pl_out *o, struct pl_err *err)
{
	char *slash = strrchr(o->path, '/');
	int fd, rc = 0;

	if (slash)
		slash[slash == o->path] = '\0';
	fd = open(slash ? o->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		rc = sync_fd(o, fd, err);
		close(fd);
	}
	return rc;
}

static int close_fd(struct pl_out *o, struct pl_err *err)
{
	int fd = o->fd, rc = 0;

	o->fd = -1;
	if (fd <= STDERR_FILENO) /* standard output stays open; its owner closes it at exit */
		return 0;
	if (close(fd) < 0 && errno != EINTR)
		rc = pl_fail_sys(err, "%s: cannot write", o->name);
	else if (pl_fail_now())
		rc = pl_fail(err, PL_EIO, "%s: cannot write: close failed", o->name);
	return rc;
}

static int put_in_place(struct pl_out *o, struct pl_err *err)
{
	if (!o->tmp)
		return 0;
	if (pl_fail_now())
		errno = EIO;
	else if (!rename(o->tmp, o->path)) {
		atomic_store(&slots[o->slot].used, 0);
		o->slot = -1;
		return 0;
	}
	return pl_fail_sys(err, "%s: cannot rename %s to it", o->name, o->tmp);
}

void pl_out_durable(struct pl_out *o)
{
	o->durable = true;
}

int pl_out_close(struct pl_out *o, struct pl_err *err)
{
	int rc = pl_fail_as(err, &o->fail);

	if (!rc && o->buf)
		rc = flush(o, err);
	if (!rc && o->durable && o->tmp)
		rc = sync_fd(o, o->fd, err);
	if (!rc)
		rc = close_fd(o, err);
	if (!rc)
		rc = put_in_place(o, err);
	if (!rc && o->durable && o->tmp)
		rc = sync_folder(o, err);
	pl_out_abort(o);
	return rc;
}

void pl_out_abort(struct pl_out *o)
{
	if (!o)
		return;
	if (o->fd > STDERR_FILENO)
		close(o->fd);
	if (o->slot >= 0) {
		unlink(o->tmp);
		atomic_store(&slots[o->slot].used, 0);
	}
	pl_free(o->name);
	pl_free(o->path);
	pl_free(o->tmp);
	pl_free(o->buf);
	pl_free(o);
}

int pl_out_finish(struct pl_out *o, int rc, struct pl_err *err)
{
	if (rc >= 0)
		return pl_out_close(o, err);
	pl_out_abort(o);
	return rc;
}
