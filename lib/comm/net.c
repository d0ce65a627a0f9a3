/*
 * Sockets, as the meeting needs them: every call has a time until which it may take. Non-blocking
 * from the start; what is slow waits in poll().
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/internal.h"

int pl_net_ready(int fd, short what, pl_ns until)
{
	for (;;) {
		pl_ns left = until - pl_now_ns();
		struct pollfd p = { .fd = fd, .events = what };
		int n;

		if (left < 0)
			left = 0;
		n = poll(&p, 1, (int)pl_min_i64((left + 999999) / 1000000, 3600000));
		if (n > 0)
			return 1;
		if (n < 0 && errno != EINTR)
			return -1;
		if (left == 0)
			return 0;
	}
}

static int resolve(const char *host, int port, bool passive, struct addrinfo **a,
		   struct pl_err *err)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC };
	char service[16];
	int e;

	hint.ai_flags = passive ? AI_PASSIVE : 0;
	snprintf(service, sizeof(service), "%d", port);
	e = getaddrinfo(host, service, &hint, a);
	if (e)
		return pl_fail(err, PL_EIO, "address %s: %s", host, gai_strerror(e));
	return 0;
}

int pl_net_listen(const char *host, int port, int *fd, int *bound, struct pl_err *err)
{
	struct sockaddr_storage at = { 0 };
	socklen_t len = sizeof(at);
	struct addrinfo *a = NULL;
	int on = 1, s, rc = resolve(host, port, true, &a, err);

	if (rc < 0)
		return rc;
	s = pl_fail_now() ? -1
			  : socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0) {
		rc = pl_fail_sys(err, "cannot make a socket");
	} else {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(s, a->ai_addr, a->ai_addrlen) < 0 || listen(s, 4096) < 0 ||
		    getsockname(s, (struct sockaddr *)&at, &len) < 0)
			rc = pl_fail_sys(err, "cannot listen on %s port %d", host, port);
	}
	freeaddrinfo(a);
	if (rc < 0) {
		if (s >= 0)
			close(s);
		return rc;
	}
	*bound = at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
					  : ntohs(((struct sockaddr_in *)&at)->sin_port);
	*fd = s;
	return 0;
}

/* 0: connected, PL_ENO: nobody there yet, else an error that will not go away. */
static int try_connect(const struct addrinfo *a, pl_ns until, int *fd, struct pl_err *err)
{
	int s = pl_fail_now() ? -1
			      : socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int e = 0;
	socklen_t len = sizeof(e);

	if (s < 0)
		return pl_fail_sys(err, "cannot make a socket");
	if (connect(s, a->ai_addr, a->ai_addrlen) < 0) {
		e = errno;
		if (e == EINPROGRESS) {
			e = ETIMEDOUT;
			if (pl_net_ready(s, POLLOUT, until) > 0)
				getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &len);
		}
	}
	if (!e) {
		*fd = s;
		return 0;
	}
	close(s);
	errno = e;
	return PL_ENO;
}

int pl_net_connect(const char *host, int port, pl_ns until, int *fd, struct pl_err *err)
{
	struct timespec nap = { 0, 5000000 };
	struct addrinfo *a = NULL;
	int rc = resolve(host, port, false, &a, err);

	if (rc < 0)
		return rc;
	do {
		for (const struct addrinfo *i = a; i; i = i->ai_next) {
			rc = try_connect(i, until, fd, err);
			if (rc != PL_ENO)
				goto out;
		}
		if (errno != ECONNREFUSED && errno != ECONNRESET && errno != EINTR &&
		    errno != EAGAIN && errno != ENETUNREACH && errno != EHOSTUNREACH)
			break;
		nanosleep(&nap, NULL);
	} while (pl_now_ns() < until);
	rc = pl_fail_sys(err, "cannot connect to %s port %d", host, port);
out:
	freeaddrinfo(a);
	return rc;
}

int pl_net_write(int fd, const void *p, size_t n, pl_ns until, struct pl_err *err)
{
	const uint8_t *at = p;

	while (n) {
		ssize_t m = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (m > 0) {
			at += m;
			n -= (size_t)m;
		} else if (errno == EAGAIN) {
			if (pl_net_ready(fd, POLLOUT, until) <= 0)
				return pl_fail(err, PL_EIO, "it takes nothing");
		} else if (errno != EINTR) {
			return pl_fail_sys(err, "cannot send to it");
		}
	}
	return 0;
}

int pl_net_read(int fd, void *p, size_t n, pl_ns until, struct pl_err *err)
{
	uint8_t *at = p;

	while (n) {
		ssize_t m = recv(fd, at, n, MSG_DONTWAIT);

		if (m > 0) {
			at += m;
			n -= (size_t)m;
		} else if (m == 0) {
			return pl_fail(err, PL_EIO, "it closed the connection");
		} else if (errno == EAGAIN) {
			if (pl_net_ready(fd, POLLIN, until) <= 0)
				return pl_fail(err, PL_EIO, "it says nothing");
		} else if (errno != EINTR) {
			return pl_fail_sys(err, "cannot receive from it");
		}
	}
	return 0;
}

int pl_net_tune(int fd, pl_ns timeout, struct pl_err *err)
{
	int on = 1, ms = (int)pl_min_i64(timeout / 1000000, 1 << 30);

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)) < 0)
		return pl_fail_sys(err, "cannot set up a socket");
	return 0;
}

int pl_net_frame_write(int fd, const struct pl_frame *f, pl_ns until, struct pl_err *err)
{
	uint8_t p[PL_FRAME_MAX + 8];

	return pl_net_write(fd, p, pl_frame_put(p, f), until, err);
}

int pl_net_frame_read(int fd, struct pl_frame *f, pl_ns until, struct pl_err *err)
{
	uint8_t p[PL_FRAME_MAX + 8];
	uint32_t n;
	int rc = pl_net_read(fd, p, 8, until, err);
	int64_t got;

	if (rc < 0)
		return rc;
	n = (uint32_t)p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24;
	if (n > PL_FRAME_MAX)
		return pl_fail(err, PL_EDATA, "message of %u bytes", n);
	rc = pl_net_read(fd, p + 8, n, until, err);
	if (rc < 0)
		return rc;
	got = pl_frame_get(p, n + 8u, f, err);
	return got < 0 ? (int)got : 0;
}
