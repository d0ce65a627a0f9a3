/*
 * Connections that come in at a listening socket, until one has said who it is.
 *
 * The greeting is the first thing on each connection. It is read into a buffer of fixed size
 * without waiting, and its token is compared before anything else, so a stranger costs one place.
 * There are places for all ranks that are expected and for GUESTS strangers.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/internal.h"

#define GUESTS	  64
#define NAP_NS	  10000000  /* until what failed may work */
#define REFUSE_NS 100000000 /* for sending a refusal, which fits into the buffer of a socket */
/* A rank greets as soon as it is connected. A machine with more to do than processors holds it up
 * for some turns of the scheduler, of 3 to 10 ms each. */
#define SILENT_NS 100000000

struct pl_guest {
	int fd;
	pl_ns since;
	size_t got;
	uint8_t bytes[PL_HELLO_BYTES];
};

int pl_comm_acceptor_init(struct pl_acceptor *a, size_t expected, struct pl_err *err)
{
	int rc;

	a->most = GUESTS + expected;
	rc = pl_alloc(&a->guest, a->most, sizeof(*a->guest), err);
	return rc < 0 ? rc : pl_alloc(&a->polls, a->most + 1, sizeof(*a->polls), err);
}

static void drop(struct pl_acceptor *a, size_t i, bool shut)
{
	if (shut)
		close(a->guest[i].fd);
	a->guest[i] = a->guest[--a->n_guests];
}

void pl_comm_acceptor_fini(struct pl_acceptor *a)
{
	while (a->n_guests)
		drop(a, 0, true);
	if (a->listener >= 0)
		close(a->listener);
	a->listener = -1;
	pl_free(a->guest);
	pl_free(a->polls);
}

void pl_comm_refuse(int fd, const char *why)
{
	struct pl_frame f = { .kind = PL_FRAME_REFUSED };
	struct pl_err e = { 0 };

	snprintf(f.text, sizeof(f.text), "%s", why);
	/* if it cannot be told, it will still find the connection closed */
	if (pl_comm_net_frame_write(fd, &f, pl_now_ns() + REFUSE_NS, &e) < 0)
		return;
}

void pl_comm_turn_away(struct pl_acceptor *a, const char *why)
{
	if (!a->n_turned_away++)
		pl_say(a->log, PL_LOG_WARN, "meeting: a connection was turned away: %s", why);
	snprintf(a->turned_away, sizeof(a->turned_away), "%.199s", why);
}

/* 1: guest i greeted well; 0: not yet; -1: it is gone. */
static int hear_guest(struct pl_acceptor *a, size_t i, struct pl_hello *h)
{
	struct pl_guest *g = &a->guest[i];
	struct pl_err e = { 0 };
	ssize_t n = recv(g->fd, g->bytes + g->got, sizeof(g->bytes) - g->got, MSG_DONTWAIT);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		drop(a, i, true);
		return -1;
	}
	g->got += (size_t)n;
	if (g->got < sizeof(g->bytes))
		return 0;
	rc = pl_comm_hello_get(g->bytes, g->got, a->token, h, &e);
	if (rc >= 0)
		return 1;
	pl_comm_turn_away(a, e.msg);
	if (rc == PL_EUSAGE) /* a rank, which would try again until it gives up */
		pl_comm_refuse(g->fd, e.msg);
	drop(a, i, true);
	return -1;
}

/* Room for one more connection: that which has been silent for longest goes, but not before a rank
 * could have greeted. */
static bool has_room(struct pl_acceptor *a)
{
	size_t oldest = 0;
	char c;

	if (a->n_guests < a->most)
		return true;
	for (size_t i = 1; i < a->n_guests; i++)
		if (a->guest[i].since < a->guest[oldest].since)
			oldest = i;
	if (pl_now_ns() - a->guest[oldest].since < SILENT_NS ||
	    recv(a->guest[oldest].fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		return false;
	drop(a, oldest, true);
	return true;
}

static void let_in(struct pl_acceptor *a)
{
	struct timespec nap = { 0, NAP_NS };

	while (has_room(a)) {
		int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			a->guest[a->n_guests++] =
				(struct pl_guest){ .fd = fd, .since = pl_now_ns() };
			continue;
		}
		/* without descriptors left, poll() would say at once that somebody waits */
		if (errno != EAGAIN && errno != EINTR)
			nanosleep(&nap, NULL);
		return;
	}
}

int pl_comm_accept(struct pl_acceptor *a, pl_ns until, struct pl_hello *h, int *fd,
		   struct pl_err *err)
{
	for (;;) {
		pl_ns left = until - pl_now_ns();
		bool room = has_room(a);
		size_t n = a->n_guests;

		for (size_t i = 0; i < n; i++)
			a->polls[i] = (struct pollfd){ .fd = a->guest[i].fd, .events = POLLIN };
		a->polls[n] = (struct pollfd){ .fd = room ? a->listener : -1, .events = POLLIN };
		if (left <= 0)
			return 0;
		left = room ? left : pl_min_i64(left, NAP_NS);
		if (poll(a->polls, (nfds_t)n + 1, (int)(left / 1000000) + 1) < 0 && errno != EINTR)
			return pl_fail_sys(err, "meeting: cannot wait");
		if (a->polls[n].revents)
			let_in(a);
		for (size_t i = n; i-- > 0;) {
			if (!a->polls[i].revents || hear_guest(a, i, h) <= 0)
				continue;
			*fd = a->guest[i].fd;
			drop(a, i, false);
			return 1;
		}
	}
}
