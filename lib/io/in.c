/*
 * Inputs: a window of unread bytes over a file, a pipe, memory or an inflater (gunzip.c).
 *
 * The window of a file is one buffer. It doubles only if the caller wants more than half of it at
 * once and the bytes really arrive, so an impossible size in damaged input costs no memory. Unread
 * bytes move to the front when the space behind them is full: each byte moves at most once for each
 * half buffer read, so reading stays linear.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/internal.h"

#define BUF_FIRST ((size_t)256 << 10)
#define READ_MIN  ((size_t)64 << 10)

struct pl_in *pl_in_alloc(const char *name, struct pl_err *err)
{
	struct pl_in *in;

	if (pl_alloc(&in, 1, sizeof(*in), err) < 0)
		return NULL;
	in->fd = -1;
	in->size = -1;
	if (pl_dup(NULL, &in->name, name, err) == 0)
		return in;
	pl_free(in);
	return NULL;
}

void pl_in_close(struct pl_in *in)
{
	if (!in)
		return;
	if (in->fini)
		in->fini(in);
	if (in->fd > STDIN_FILENO)
		close(in->fd);
	pl_free(in->buf);
	pl_free(in->name);
	pl_free(in);
}

int pl_in_room(struct pl_in *in, size_t more)
{
	size_t at = in->buf && in->p >= in->buf && in->p <= in->buf + in->cap
			    ? (size_t)(in->p - in->buf)
			    : SIZE_MAX;

	if (at != SIZE_MAX && more <= in->cap - at - in->n)
		return 0;
	if (more > in->cap || in->n > in->cap - more || in->n > in->cap / 2) {
		size_t cap = in->cap ? in->cap : BUF_FIRST;
		uint8_t *buf;

		while (cap / 2 < in->n || cap - in->n < more) {
			if (cap > SIZE_MAX / 2)
				return pl_fail(&in->fail, PL_ENOMEM, "%s: out of memory", in->name);
			cap *= 2;
		}
		buf = pl_malloc(cap);
		if (!buf)
			return pl_fail(&in->fail, PL_ENOMEM, "%s: out of memory (%zu bytes)",
				       in->name, cap);
		if (in->n)
			memcpy(buf, in->p, in->n);
		pl_free(in->buf);
		in->buf = buf;
		in->cap = cap;
	} else if (in->n) {
		memmove(in->buf, in->p, in->n);
	}
	in->p = in->buf;
	return 0;
}

/* Read once; repeat after a signal, and wait if the descriptor is non-blocking. */
static ssize_t read_some(int fd, void *p, size_t n)
{
	for (;;) {
		ssize_t got;

		if (pl_fail_now()) {
			errno = EIO;
			return -1;
		}
		got = read(fd, p, n);
		if (got >= 0)
			return got;
		if (errno == EAGAIN || errno == EWOULDBLOCK) {
			struct pollfd f = { .fd = fd, .events = POLLIN };

			poll(&f, 1, -1);
		} else if (errno != EINTR) {
			return -1;
		}
	}
}

static void file_refill(struct pl_in *in)
{
	uint8_t *end;
	ssize_t got;

	if (pl_in_room(in, READ_MIN) < 0)
		return;
	end = in->buf + (in->p - in->buf) + in->n;
	got = read_some(in->fd, end, (size_t)(in->buf + in->cap - end));
	if (got > 0)
		in->n += (size_t)got;
	else if (!got)
		in->eof = true;
	else
		pl_fail_sys(&in->fail, "%s: cannot read at byte %lld", in->name,
			    (long long)(in->offset + (int64_t)in->n));
}

struct pl_in *pl_in_open(const char *path, struct pl_err *err)
{
	bool is_std = !strcmp(path, "-");
	struct pl_in *in = pl_in_alloc(is_std ? "stdin" : path, err);
	struct stat st;

	if (!in)
		return NULL;
	in->refill = file_refill;
	if (is_std) {
		in->fd = STDIN_FILENO;
	} else {
		if (pl_fail_now())
			errno = EIO;
		else
			in->fd = open(path, O_RDONLY | O_CLOEXEC);
		if (in->fd >= 0 && in->fd <= STDIN_FILENO) { /* never take the number of stdin */
			int fd = fcntl(in->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

			close(in->fd);
			in->fd = fd;
		}
		if (in->fd < 0) {
			if (errno == ENOENT)
				pl_in_missing(path, err);
			else
				pl_fail_sys(err, "%s: cannot open", path);
			pl_in_close(in);
			return NULL;
		}
	}
	if (!fstat(in->fd, &st) && S_ISREG(st.st_mode))
		in->size = st.st_size;
	return in;
}

static void spool_refill(struct pl_in *in)
{
	uint8_t *end;
	ssize_t got;

	if (pl_in_room(in, READ_MIN) < 0)
		return;
	end = in->buf + (in->p - in->buf) + in->n;
	do {
		errno = EIO;
		got = pl_fail_now() ? -1
				    : pread(in->fd, end, (size_t)(in->buf + in->cap - end),
					    in->offset + (int64_t)in->n);
	} while (got < 0 && errno == EINTR);
	if (got > 0)
		in->n += (size_t)got;
	else if (!got)
		in->eof = true;
	else
		pl_fail_sys(&in->fail, "%s: cannot read a temporary file", in->name);
}

struct pl_in *pl_in_open_fd(const char *name, int fd, struct pl_err *err)
{
	struct pl_in *in = pl_in_alloc(name, err);

	if (!in)
		return NULL;
	in->refill = spool_refill;
	in->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (in->fd >= 0)
		return in;
	pl_fail_sys(err, "a temporary file");
	pl_in_close(in);
	return NULL;
}

static void no_refill(struct pl_in *in)
{
	in->eof = true;
}

struct pl_in *pl_in_open_mem(const char *name, const void *p, size_t n, struct pl_err *err)
{
	struct pl_in *in = pl_in_alloc(name, err);

	if (!in)
		return NULL;
	in->p = p;
	in->n = n;
	in->size = (int64_t)n;
	in->eof = true;
	in->refill = no_refill;
	return in;
}

static int tell(struct pl_in *in, struct pl_err *err)
{
	int code = pl_fail_as(err, &in->fail);

	if (code == PL_EDATA)
		in->fail.code = 0;
	return code;
}

int64_t pl_in_peek(struct pl_in *in, size_t want, const uint8_t **p, struct pl_err *err)
{
	while (in->n < want && !in->eof && !in->fail.code)
		in->refill(in);
	if (PL_UNLIKELY(in->n < want && in->fail.code))
		return tell(in, err);
	*p = in->p;
	return (int64_t)in->n;
}

void pl_in_skip(struct pl_in *in, size_t n)
{
	n = pl_min_size(n, in->n);
	if (n)
		in->p += n;
	in->n -= n;
	in->offset += (int64_t)n;
}

const char *pl_in_name(const struct pl_in *in)
{
	return in->name;
}

void pl_in_say_empty(const struct pl_log *log, const char *name)
{
	pl_say(log, PL_LOG_WARN,
	       "%s: the file is empty, as where a process was killed before it wrote; it is left "
	       "out",
	       name);
}

int64_t pl_in_offset(const struct pl_in *in)
{
	return in->offset;
}

int pl_in_read_all(struct pl_in *in, size_t most, struct pl_buf *b, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n;

	while ((n = pl_in_peek(in, 1, &p, err)) > 0) {
		if (b->n + (uint64_t)n > most)
			return pl_fail(err, PL_ELIMIT, "%s: more than %zu bytes", pl_in_name(in),
				       most);
		PL_CHECK(pl_buf_put(b, p, (size_t)n, err));
		pl_in_skip(in, (size_t)n);
	}
	return (int)n;
}
