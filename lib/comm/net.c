/*
 * Sockets for the meeting: every call has a deadline; sockets are non-blocking, and poll() waits.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/internal.h"

int pl_comm_net_ready(int fd, short what, pl_ns until)
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
		pl_fail(err, PL_EIO, "address %s: %s", host, gai_strerror(e));
	/* the name of a machine that is starting may not be known yet */
	return !e ? 0 : e == EAI_AGAIN || e == EAI_NONAME ? PL_ENO : PL_EIO;
}

int pl_comm_net_parse(const char *s, char *host, size_t size, int *port, struct pl_err *err)
{
	const char *colon = strrchr(s, ':');
	char *end;
	long n;

	if (strncmp(s, "tcp:", 4) != 0 || colon < s + 4)
		return pl_fail(err, PL_EUSAGE, "meeting \"%s\": tcp:HOST:PORT or dir:PATH", s);
	n = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || n < 1 || n > 65535)
		return pl_fail(err, PL_EUSAGE, "meeting \"%s\": ports are 1 to 65535", s);
	*port = (int)n;
	s += 4;
	if (*s == '[' && colon[-1] == ']') /* [::1]:29500 */
		snprintf(host, size, "%.*s", (int)(colon - s - 2), s + 1);
	else
		snprintf(host, size, "%.*s", (int)(colon - s), s);
	return 0;
}

void pl_comm_net_name(const void *at, size_t len, char *to, size_t size)
{
	static const char mapped[] = "::ffff:"; /* IPv4 on a socket for both versions */

	if (getnameinfo(at, (socklen_t)len, to, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
		to[0] = '\0';
	if (!strncmp(to, mapped, sizeof(mapped) - 1) && strchr(to, '.'))
		memmove(to, to + sizeof(mapped) - 1, strlen(to) - sizeof(mapped) + 2);
}

bool pl_comm_net_interface(const char *name, char *to, size_t size)
{
	struct ifaddrs *all = NULL;
	bool found = false;

	if (getifaddrs(&all) < 0)
		return false;
	for (int six = 0; six < 2 && !found; six++)
		for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
			const struct sockaddr_in6 *a = (const void *)i->ifa_addr;
			bool is = a && a->sin6_family == (six ? AF_INET6 : AF_INET) &&
				  !strcmp(i->ifa_name, name);

			if (!is || (six && IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr)))
				continue;
			pl_comm_net_name(a, six ? sizeof(*a) : sizeof(struct sockaddr_in), to,
					 size);
			found = to[0];
		}
	freeifaddrs(all);
	return found;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(
			&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
	return a->sa_family == AF_INET &&
	       ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
}

bool pl_comm_net_is_alias(const char *host)
{
	struct addrinfo *a = NULL;
	struct pl_err e = { 0 };
	bool alias = false;

	if (!strstr(host, "localhost") && host[strspn(host, "0123456789.:")] &&
	    !strchr(host, ':') && resolve(host, 0, true, &a, &e) == 0) {
		alias = is_loopback(a->ai_addr);
		freeaddrinfo(a);
	}
	return alias;
}

static int listen_on(const struct addrinfo *a, int *fd, int *bound, char *address)
{
	struct sockaddr_storage at = { 0 };
	socklen_t len = sizeof(at);
	int on = 1, off = 0, why;
	int s = pl_fail_now() ? -1
			      : socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (s < 0)
		return -1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->ai_family == AF_INET6) /* with :: both */
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(s, a->ai_addr, a->ai_addrlen) < 0 || listen(s, 4096) < 0 ||
	    getsockname(s, (struct sockaddr *)&at, &len) < 0) {
		why = errno;
		close(s);
		errno = why;
		return -1;
	}
	pl_comm_net_name(&at, len, address, PL_ADDRESS_MAX);
	*bound = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
						: ((struct sockaddr_in *)&at)->sin_port);
	*fd = s;
	return 0;
}

static int listen_at(const char *host, int port, int *fd, int *bound, char *address,
		     struct pl_err *err)
{
	struct addrinfo *a = NULL;
	int rc = resolve(host, port, true, &a, err), why;

	if (rc < 0)
		return PL_EIO;
	rc = -1;
	for (const struct addrinfo *i = a; i && rc < 0; i = i->ai_next)
		rc = listen_on(i, fd, bound, address);
	why = errno;
	freeaddrinfo(a);
	if (rc == 0)
		return 0;
	return pl_fail(err, PL_EIO, "cannot listen on %s port %d: %s%s", host, port, strerror(why),
		       why == EADDRINUSE      ? " (another program has it; take another one)"
		       : why == EADDRNOTAVAIL ? " (it is no address of this host)"
					      : "");
}

int pl_comm_net_listen(const char *host, int port, int *fd, int *bound, char *address,
		       struct pl_err *err)
{
	struct pl_err no_six = { 0 };

	if (strcmp(host, "*"))
		return listen_at(host, port, fd, bound, address, err);
	if (listen_at("::", port, fd, bound, address, &no_six) == 0)
		return 0;
	return listen_at("0.0.0.0", port, fd, bound, address, err);
}

static bool any_address(const char *s)
{
	return !strcmp(s, "0.0.0.0") || !strcmp(s, "::") || !strcmp(s, "*");
}

int pl_comm_net_listen_as(const char *bind_to, const char *at, bool named, int *fd, int *port,
			  char *address, struct pl_err *err)
{
	char own[PL_ADDRESS_MAX], found[PL_ADDRESS_MAX];
	const char *where = bind_to ? bind_to : at;
	bool alias = !bind_to && pl_comm_net_is_alias(at);

	if (bind_to && pl_comm_net_interface(bind_to, own, sizeof(own)))
		where = own;
	PL_CHECK(pl_comm_net_listen(alias || any_address(where) ? "*" : where, *port, fd, port,
				    found, err));
	if (alias && strlen(at) < PL_ADDRESS_MAX)
		strcpy(address, at);
	else if (!any_address(found))
		snprintf(address, PL_ADDRESS_MAX, "%s", found);
	else if (named)
		gethostname(address, PL_ADDRESS_MAX - 1);
	return 0;
}

/* The system chooses the route when a datagram socket is connected; nothing is sent. */
int pl_comm_net_route(char *host, size_t size, int port, struct pl_err *err)
{
	struct sockaddr_storage at = { 0 };
	socklen_t len = sizeof(at);
	struct addrinfo *a = NULL;
	int s, rc;

	if (pl_comm_net_is_alias(host)) /* it is this host, whose name others know */
		return 0;
	rc = resolve(host, port, false, &a, err);
	if (rc < 0)
		return PL_EIO;
	s = pl_fail_now() ? -1 : socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, a->ai_addr, a->ai_addrlen) < 0 ||
	    getsockname(s, (struct sockaddr *)&at, &len) < 0)
		rc = pl_fail_sys(err, "cannot find the way to %s", host);
	else
		pl_comm_net_name(&at, len, host, size);
	if (s >= 0)
		close(s);
	freeaddrinfo(a);
	return rc;
}

/* 0: connected, PL_ENO: nobody listens yet, else a permanent error. */
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
			if (pl_comm_net_ready(s, POLLOUT, until) > 0)
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

/* Tries all addresses once. */
static int try_all(const char *host, int port, pl_ns until, int *fd, struct pl_err *err)
{
	struct addrinfo *a = NULL;
	int rc = resolve(host, port, false, &a, err);
	bool may_come;

	if (rc < 0)
		return rc;
	for (const struct addrinfo *i = a; i && (i == a || rc == PL_ENO); i = i->ai_next)
		rc = try_connect(i, until, fd, err);
	freeaddrinfo(a);
	if (rc != PL_ENO)
		return rc;
	may_come = errno == ECONNREFUSED || errno == ECONNRESET || errno == EINTR ||
		   errno == EAGAIN || errno == ENETUNREACH || errno == EHOSTUNREACH;
	rc = pl_fail_sys(err, "cannot connect to %s port %d", host, port);
	return may_come ? PL_ENO : rc;
}

int pl_comm_net_connect(const char *host, int port, pl_ns until, int *fd, struct pl_err *err)
{
	struct pl_err e = { 0 };
	int rc;

	while ((rc = try_all(host, port, until, fd, &e)) == PL_ENO && pl_now_ns() < until) {
		pl_sleep_ns(5000000);
		e.code = 0;
	}
	return rc < 0 ? pl_fail(err, rc == PL_ENO ? PL_EIO : rc, "%s", e.msg) : 0;
}

int pl_comm_net_tune(int fd, pl_ns timeout, struct pl_err *err)
{
	int on = 1, ms = (int)pl_min_i64(timeout / 1000000, 1 << 30);

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)) < 0)
		return pl_fail_sys(err, "cannot set up a socket");
	return 0;
}
