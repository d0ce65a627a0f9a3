/*
 * How two endpoints come together.
 *
 * After the greeting of all connections, which proves the token, each side says who it is in a
 * frame: first the side that accepts, then the other, then the first once more. The second one has
 * no memory to share where the first one's could not be opened, and the third one decides: if it
 * has memory, the connection is shared.
 *
 * A file that a listener left may outlive it, and another process may get its port. So what answers
 * there must have the expected id, and the file is read again before each try.
 */
#include <errno.h>
#include <unistd.h>

#include "comm/endpoint_internal.h"

#define TRY_NS	   50000000 /* the first time to try the address in a file; doubles */
#define TRY_MOST   ((pl_ns)2000000000)
#define BETWEEN_NS 5000000

void pl_comm_end_describe(const struct pl_endpoint *e, struct pl_frame *f)
{
	*f = (struct pl_frame){ .kind = PL_FRAME_ENDPOINT, .rank = e->o.id };
	f->endpoint.host = e->host;
	f->endpoint.pid = getpid();
	f->endpoint.fd = e->probe;
	f->endpoint.nonce = e->nonce;
	f->endpoint.timeout = e->timeout;
}

static bool can_share(const struct pl_endpoint *e, const struct pl_frame *theirs)
{
	return e->may_share && e->host == theirs->endpoint.host && pl_comm_end_probe(theirs);
}

/* ---- the side that accepts: without waiting ---- */

void pl_comm_end_come(struct pl_endpoint *e, const struct pl_frame *hello, struct pl_link *l)
{
	struct pl_end_conn *c;
	struct pl_frame mine;

	if (hello->greeting.connection != PL_HELLO_ENDPOINT) {
		pl_comm_reject(&e->acceptor, "it is no endpoint");
		pl_comm_refuse(l, "here is an endpoint, and no rank");
		return;
	}
	c = pl_comm_end_conn_new(NULL);
	if (!c) {
		pl_comm_refuse(l, "out of memory");
		return;
	}
	c->link = *l;
	c->accepted = true;
	c->heard = pl_now_ns();
	atomic_store(&c->state, PL_END_GREETING);
	pthread_mutex_lock(&e->lock);
	c->number = ++e->n_numbers;
	c->next = e->conns;
	e->conns = c;
	pthread_mutex_unlock(&e->lock);
	pl_comm_end_describe(e, &mine);
	pl_comm_link_send(&c->link, &mine);
	if (pl_comm_link_flush(&c->link, NULL) < 0 ||
	    pl_comm_net_tune(l->fd, PL_NO_TIMEOUT, NULL) < 0)
		pl_comm_end_lose(c, false, "it is gone");
}

/* The connection replaces an earlier one of the same peer: a worker that comes again may be here
 * before its death is known. */
static void replace(struct pl_endpoint *e, const struct pl_end_conn *by)
{
	for (struct pl_end_conn *c = e->conns; c; c = c->next)
		if (c != by && c->peer == by->peer && c->accepted &&
		    atomic_load(&c->state) == PL_END_OPEN)
			pl_comm_end_lose(c, true, "endpoint %u has connected again", c->peer);
}

void pl_comm_end_greet(struct pl_endpoint *e, struct pl_end_conn *c)
{
	struct pl_err err = { 0 };
	struct pl_frame f;
	int rc = pl_comm_link_receive(&c->link, &f, &err);

	if (rc == 0)
		return;
	if (rc < 0 || f.kind != PL_FRAME_ENDPOINT) {
		pl_comm_end_lose(c, false, "its greeting is out of order");
		return;
	}
	c->theirs = f;
	c->peer = f.rank;
	c->shared = can_share(e, &f);
	if (e->must_share && !c->shared) {
		pl_comm_refuse(&c->link, "it shares no memory with this endpoint, as is demanded");
		pl_comm_end_lose(c, false, "no shared memory");
		return;
	}
	pl_comm_end_describe(e, &f);
	if (!c->shared)
		f.endpoint.fd = -1;
	pl_comm_link_send(&c->link, &f);
	if (pl_comm_link_flush(&c->link, NULL) < 0 || c->link.n_out) {
		pl_comm_end_lose(c, false, "it is gone");
		return;
	}
	pl_comm_end_shape(e, c);
	pl_comm_end_pace(e, c);
	replace(e, c);
	c->heard = pl_now_ns();
	pthread_mutex_lock(&e->lock);
	atomic_store(&c->state, PL_END_OPEN);
	pthread_mutex_unlock(&e->lock);
	c->accepted_event.ev = (struct pl_endpoint_event){ .kind = PL_ENDPOINT_ACCEPTED,
							   .connection = c->number,
							   .peer = c->peer };
	pl_comm_end_push(e, &c->accepted_event);
}

/* ---- the side that connects ---- */

/* 0; PL_ENO: it is somebody else, or ended, and may come yet; PL_EIO: it refuses. */
static int greet(const struct pl_endpoint *e, struct pl_end_conn *c, struct pl_err *err)
{
	struct pl_rank_info who = { .rank = 0, .size = 1 };
	struct pl_link *l = &c->link;
	pl_ns until = pl_now_ns() + e->timeout;
	struct pl_frame f = { 0 }, mine;
	int rc;

	PL_TRY(pl_comm_link_greet(l, e->token, &who, PL_HELLO_ENDPOINT, until, err));
	PL_TRY(pl_comm_link_read(l, &f, until, err));
	if (f.kind != PL_FRAME_ENDPOINT || f.rank != c->peer) {
		pl_fail(err, PL_EIO, "what listens there is not endpoint %u", c->peer);
		return PL_ENO;
	}
	pl_comm_end_describe(e, &mine);
	if (!can_share(e, &f))
		mine.endpoint.fd = -1;
	PL_TRY(pl_comm_link_write(l, &mine, until, err));
	PL_TRY(pl_comm_link_read(l, &f, until, err));
	if (f.kind != PL_FRAME_ENDPOINT || f.rank != c->peer)
		return pl_fail(err, PL_EIO, "its greeting is out of order");
	c->theirs = f;
	c->shared = f.endpoint.fd >= 0 && mine.endpoint.fd >= 0;
	if (e->must_share && !c->shared)
		return pl_fail(err, PL_EIO, "it shares no memory, as is demanded");
	return pl_comm_net_tune(l->fd, PL_NO_TIMEOUT, err);
out:
	if (rc == PL_EIO && f.kind != PL_FRAME_REFUSED && strcmp(err->msg, PL_WRONG_TOKEN) != 0)
		return PL_ENO;
	return rc;
}

static int read_address(const char *at, uint32_t peer, char *host, size_t size, int *port,
			struct pl_err *err)
{
	char file[600], text[200], *end;
	int n = snprintf(file, sizeof(file), "%s/endpoint.%u", at + 4, peer);

	if (n < 0 || (size_t)n >= sizeof(file))
		return pl_fail(err, PL_EUSAGE, "the name of the folder is too long");
	if (pl_read_small(file, text, sizeof(text)) <= 0 || !(end = strchr(text, ' ')) ||
	    !strchr(end, '\n')) {
		pl_fail(err, PL_EIO, "it has left no address in %.400s", file);
		return PL_ENO;
	}
	*end = '\0';
	return pl_comm_net_parse(text, host, size, port, err) < 0 ? PL_ENO : 0;
}

/* One try; PL_ENO as of greet(). */
static int try_once(const struct pl_endpoint *e, struct pl_end_conn *c, const char *at, pl_ns until,
		    struct pl_err *err)
{
	bool in_folder = !strncmp(at, "dir:", 4);
	char host[256];
	int port, rc;

	PL_CHECK(in_folder ? read_address(at, c->peer, host, sizeof(host), &port, err)
			   : pl_comm_net_parse(at, host, sizeof(host), &port, err));
	rc = pl_comm_net_connect(host, port, until, &c->link.fd, err);
	if (rc < 0)
		return rc == PL_EIO ? PL_ENO : rc;
	rc = greet(e, c, err);
	if (rc < 0)
		pl_comm_link_close(&c->link);
	return rc;
}

static bool has_ended(const struct pl_endpoint *e, uint32_t peer)
{
	return e->o.ended && peer < e->o.n_ended && atomic_load(&e->o.ended[peer]);
}

static int connect_until(const struct pl_endpoint *e, struct pl_end_conn *c, const char *at,
			 pl_ns until, struct pl_err *err)
{
	bool in_folder = !strncmp(at, "dir:", 4);
	pl_ns wait = TRY_NS, refused_until = in_folder ? 0 : 1;

	for (;;) {
		pl_ns now = pl_now_ns(), next = pl_min_i64(until, now + wait);
		struct pl_err why = { 0 };
		int rc = try_once(e, c, at, next, &why);

		if (rc == 0)
			return 0;
		now = pl_now_ns();
		/* in the file may be the address of another job, until the listener comes */
		if (rc == PL_EIO && !refused_until)
			refused_until = now + e->timeout;
		if (has_ended(e, c->peer))
			return pl_fail(err, PL_EIO, "it has ended");
		if ((rc == PL_EIO && now >= refused_until) || (rc != PL_EIO && rc != PL_ENO) ||
		    now >= until)
			return pl_fail(err, rc == PL_ENO ? PL_EIO : rc, "%s", why.msg);
		wait = pl_min_i64(2 * wait, TRY_MOST);
		pl_sleep_ns(pl_min_i64(BETWEEN_NS, until - now));
	}
}

int pl_comm_endpoint_connect(struct pl_endpoint *e, const char *at, uint32_t peer, pl_ns until,
			     uint32_t *connection, struct pl_err *err)
{
	struct pl_end_conn *c = pl_comm_end_conn_new(err);
	int rc;

	if (!c)
		return PL_ENOMEM;
	c->peer = peer;
	rc = connect_until(e, c, at, until, err);
	if (rc < 0) {
		pl_comm_end_conn_free(c);
		return pl_wrap(err, "endpoint %u at %s", peer, at);
	}
	pl_comm_end_shape(e, c);
	c->heard = pl_now_ns();
	pthread_mutex_lock(&e->lock);
	c->number = *connection = ++e->n_numbers;
	atomic_store(&c->state, PL_END_OPEN);
	c->next = e->arrivals;
	e->arrivals = c;
	pl_comm_end_wake(e);
	pthread_mutex_unlock(&e->lock);
	return 0;
}
