/*
 * Connections from other processes, until each has proved its identity.
 *
 * The greeting (protocol.h) comes first on each connection. It is read into a buffer of fixed size
 * without waiting, and nothing in it is used before the proof, so a stranger costs one place. There
 * are places for all expected ranks, each with one greeting at a time, and for STRANGERS strangers.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/internal.h"

#define STRANGERS 64
#define NAP_NS	  10000000  /* before accept4() is tried again */
#define REFUSE_NS 100000000 /* for sending a refusal, which fits into the buffer of a socket */
/* A rank greets as soon as it is connected. On a machine with more work than processors, it may
 * wait for some time slices of 3 to 10 ms each. */
#define SILENT_NS 100000000

struct pl_pending_link {
	struct pl_link link;
	pl_ns since;
	struct pl_frame hello;	       /* kind 0: not received yet */
	uint8_t proof[PL_PROOF_BYTES]; /* the right answer to the challenge */
};

int pl_comm_acceptor_init(struct pl_acceptor *a, size_t expected, struct pl_err *err)
{
	a->most = STRANGERS + expected;
	PL_CHECK(pl_alloc(&a->pending, a->most, sizeof(*a->pending), err));
	return pl_alloc(&a->polls, a->most + 1, sizeof(*a->polls), err);
}

static void drop(struct pl_acceptor *a, size_t i, bool shut)
{
	if (shut)
		pl_comm_link_close(&a->pending[i].link);
	a->pending[i] = a->pending[--a->n_pending];
}

void pl_comm_acceptor_fini(struct pl_acceptor *a)
{
	while (a->n_pending)
		drop(a, 0, true);
	pl_comm_close(&a->listener);
	pl_free(a->pending);
	pl_free(a->polls);
}

void pl_comm_refuse(struct pl_link *l, const char *why)
{
	struct pl_frame f = { .kind = PL_FRAME_REFUSED };

	snprintf(f.text, sizeof(f.text), "%s", why);
	/* if this fails, the other side still finds the connection closed */
	(void)!pl_comm_link_write(l, &f, pl_now_ns() + REFUSE_NS, NULL);
	pl_comm_link_close(l);
}

void pl_comm_reject(struct pl_acceptor *a, const char *why)
{
	if (!a->n_rejected++)
		pl_say(a->log, PL_LOG_WARN, "%s: a connection was rejected: %s",
		       a->name ? a->name : "meeting", why);
	snprintf(a->rejected, sizeof(a->rejected), "%.199s", why);
}

/* Asks the other side, which sent its rank, to prove that it knows the token; proves the same. */
static int challenge(const struct pl_acceptor *a, struct pl_pending_link *g,
		     const struct pl_frame *hello, struct pl_err *err)
{
	struct pl_frame f = { .kind = PL_FRAME_CHALLENGE };

	PL_CHECK(pl_comm_random(f.greeting.nonce, PL_NONCE_BYTES, err));
	g->hello = *hello;
	pl_comm_prove(a->token, 'a', hello, f.greeting.nonce, f.greeting.proof);
	pl_comm_prove(a->token, 'c', hello, f.greeting.nonce, g->proof);
	pl_comm_link_send(&g->link, &f);
	return pl_comm_link_flush(&g->link, err); /* an empty buffer takes the whole frame */
}

/* 1: connection i has proved its identity; 0: not yet; -1: it was closed. */
static int read_greeting(struct pl_acceptor *a, size_t i)
{
	struct pl_pending_link *g = &a->pending[i];
	struct pl_err e = { 0 };
	struct pl_frame f;
	int rc = pl_comm_link_receive(&g->link, &f, &e);

	if (rc > 0 && !g->hello.kind && f.kind == PL_FRAME_HELLO)
		rc = challenge(a, g, &f, &e);
	else if (rc > 0 && (!g->hello.kind || f.kind != PL_FRAME_PROOF))
		rc = pl_fail(&e, PL_EDATA, "its greeting is out of order");
	else if (rc > 0 && !pl_comm_same_proof(f.greeting.proof, g->proof))
		rc = pl_fail(&e, PL_EUSAGE, PL_WRONG_TOKEN);
	if (rc >= 0)
		return rc;
	/* a connection that closes before its first frame is not reported */
	if (rc != PL_EIO || g->hello.kind)
		pl_comm_reject(a, e.msg);
	drop(a, i, true);
	return -1;
}

/* Make room for one more connection: close the one that is silent for longest, if for too long. */
static bool make_room(struct pl_acceptor *a)
{
	size_t oldest = 0;
	char c;

	if (a->n_pending < a->most)
		return true;
	for (size_t i = 1; i < a->n_pending; i++)
		if (a->pending[i].since < a->pending[oldest].since)
			oldest = i;
	if (pl_now_ns() - a->pending[oldest].since < SILENT_NS ||
	    recv(a->pending[oldest].link.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		return false;
	drop(a, oldest, true);
	return true;
}

static void accept_pending(struct pl_acceptor *a)
{
	while (make_room(a)) {
		int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			a->pending[a->n_pending] = (struct pl_pending_link){ .since = pl_now_ns() };
			a->pending[a->n_pending++].link.fd = fd;
			continue;
		}
		/* without free descriptors, poll() would return at once */
		if (errno != EAGAIN && errno != EINTR)
			a->rests_until = pl_now_ns() + NAP_NS;
		return;
	}
}

size_t pl_comm_acceptor_watch(struct pl_acceptor *a, pl_ns now, pl_ns *until)
{
	bool room = make_room(a) && now >= a->rests_until;
	size_t n = a->n_pending;

	for (size_t i = 0; i < n; i++)
		a->polls[i] = (struct pollfd){ .fd = a->pending[i].link.fd, .events = POLLIN };
	a->polls[n] = (struct pollfd){ .fd = room ? a->listener : -1, .events = POLLIN };
	if (!room)
		*until = pl_min_i64(*until, now + NAP_NS);
	return n + 1;
}

bool pl_comm_acceptor_take(struct pl_acceptor *a, size_t n, struct pl_frame *hello,
			   struct pl_link *l)
{
	/* a greeting that ends changes the places of later ones only, which are looked at before */
	for (size_t i = n - 1; i-- > 0;) {
		if (!a->polls[i].revents)
			continue;
		a->polls[i].revents = 0;
		if (read_greeting(a, i) <= 0)
			continue;
		*hello = a->pending[i].hello;
		*l = a->pending[i].link;
		drop(a, i, false);
		return true;
	}
	if (a->polls[n - 1].revents)
		accept_pending(a);
	a->polls[n - 1].revents = 0;
	return false;
}

int pl_comm_accept(struct pl_acceptor *a, pl_ns until, struct pl_frame *hello, struct pl_link *l,
		   struct pl_err *err)
{
	for (;;) {
		pl_ns now = pl_now_ns(), next = until;
		size_t n = pl_comm_acceptor_watch(a, now, &next);

		if (now >= until)
			return 0;
		if (poll(a->polls, (nfds_t)n, (int)((next - now) / 1000000) + 1) < 0 &&
		    errno != EINTR)
			return pl_fail_sys(err, "meeting: cannot wait");
		if (pl_comm_acceptor_take(a, n, hello, l))
			return 1;
	}
}
