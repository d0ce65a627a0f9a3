/*
 * The functions of endpoints for processes that are all in one thread: connections with queues of
 * events, which the test delivers in any order, or cuts.
 */
#ifndef PS_NETWORK_H
#define PS_NETWORK_H

#include <stdlib.h>

#include "comm/endpoint.h"

#define MOST  8 /* processes */
#define CONNS 64

static uint64_t rng;
static const char *failure; /* the first one of a walk */
static char text[200];

static int forced = -1; /* what any() returns, so that a walk can be repeated; -1: what it likes */
static uint32_t only = MOST; /* whose events are delivered; MOST: those of all */
/* Called when a process asks for an event, before it gets one; NULL. */
static void (*asked)(const struct pl_endpoint *e);

static uint32_t any(uint32_t n)
{
	if (forced >= 0)
		return (uint32_t)forced % n;
	return (uint32_t)(pl_rng_next(&rng) >> 33) % n;
}

static void fails(const char *what, uint32_t process)
{
	if (!failure)
		snprintf(text, sizeof(text), "%s (process %u)", what, process);
	failure = text;
}

struct event {
	struct event *next;
	void *sent; /* not NULL: its sender has a SENT event when it is taken */
	struct pl_endpoint_event ev;
	uint8_t copy[];
};
struct conn {
	uint32_t number, from, to;
	bool open, shared;	/* shared: bodies are read where they lie */
	struct event *queue[2]; /* for `from`, for `to` */
};
struct pl_endpoint {
	uint32_t id;
	bool alive;
	int sends_left; /* before it is killed in the middle of an event; -1: it is not */
	bool dead;	/* that has happened */
	bool shares;	/* memory, with those that do, too */
	int allocs;	/* memory that it asked for */
};
static struct pl_endpoint endpoint[MOST];
static struct conn conn[CONNS];
static uint32_t n_numbers;
static void *memory[4096];
static size_t n_memory;

static struct event *put_event(struct conn *c, int side, const struct pl_endpoint_event *ev,
			       const void *body)
{
	size_t bytes = body ? ev->message.bytes : 0;
	struct event *e = malloc(sizeof(*e) + bytes), **at = &c->queue[side];

	e->next = NULL;
	e->sent = NULL;
	e->ev = *ev;
	e->ev.connection = c->number;
	e->ev.peer = side ? c->from : c->to;
	if (bytes) {
		memcpy(e->copy, body, bytes);
		e->ev.message.body = e->copy;
	}
	while (*at)
		at = &(*at)->next;
	*at = e;
	return e;
}

static void drop_events(struct conn *c, int side, uint32_t keep)
{
	struct event **at = &c->queue[side], *e;

	while (*at && keep--)
		at = &(*at)->next;
	while ((e = *at)) {
		*at = e->next;
		free(e);
	}
}

/* Some messages that are on their way still arrive. */
static void cut(struct conn *c)
{
	struct pl_endpoint_event lost = { .kind = PL_ENDPOINT_LOST, .why = "it is cut" };

	c->open = false;
	for (int side = 0; side < 2; side++) {
		struct pl_endpoint *e = &endpoint[side ? c->to : c->from];

		drop_events(c, side, e->alive ? any(4) : 0);
		if (e->alive)
			put_event(c, side, &lost, NULL);
	}
}

static struct conn *find(uint32_t number)
{
	for (int i = 0; i < CONNS; i++)
		if (conn[i].number == number)
			return &conn[i];
	return NULL;
}

int pl_comm_endpoint_connect(struct pl_endpoint *e, const char *at, uint32_t peer, pl_ns until,
			     uint32_t *connection, struct pl_err *err)
{
	struct conn *c = NULL;

	(void)at;
	(void)until;
	if (!endpoint[peer].alive)
		return pl_fail(err, PL_EIO, "nobody is there");
	for (int i = 0; i < CONNS; i++) {
		if (conn[i].open && conn[i].from == e->id && conn[i].to == peer)
			cut(&conn[i]);
		if (!conn[i].open && !conn[i].queue[0] && !conn[i].queue[1])
			c = &conn[i];
	}
	if (!c)
		return pl_fail(err, PL_EIO, "too many connections");
	*c = (struct conn){ .number = ++n_numbers,
			    .from = e->id,
			    .to = peer,
			    .open = true,
			    .shared = e->shares && endpoint[peer].shares };
	*connection = c->number;
	return 0;
}

void pl_comm_endpoint_drop(struct pl_endpoint *e, uint32_t connection, const char *why)
{
	struct conn *c = find(connection);

	fails(why, e->id);
	if (c && c->open)
		cut(c);
	if (c)
		drop_events(c, c->to == e->id, 0);
}

void *pl_comm_endpoint_alloc(struct pl_endpoint *e, size_t bytes, struct pl_err *err)
{
	(void)err;
	e->allocs++;
	return memory[n_memory++] = calloc(1, bytes);
}

int pl_comm_endpoint_lend(struct pl_endpoint *e, int fd, void *p, size_t bytes, struct pl_err *err)
{
	(void)e;
	(void)fd;
	(void)p;
	(void)bytes;
	(void)err;
	return 0;
}

const char *pl_comm_endpoint_transport(const struct pl_endpoint *e, uint32_t connection)
{
	struct conn *c = find(connection);

	(void)e;
	return c && c->shared ? "shm" : "tcp";
}

static void kill_inside(uint32_t process);

/* A body with `done` is read where it lies, if both share memory. Else it is sent when the other
 * side takes it: what the sender does until then happens before its SENT event. */
int pl_comm_endpoint_send(struct pl_endpoint *e, uint32_t connection, const struct pl_message *m,
			  void *done, struct pl_err *err)
{
	struct pl_endpoint_event ev = { .kind = PL_ENDPOINT_MESSAGE, .message = *m, .done = done };
	struct conn *c = find(connection);

	(void)err;
	if (e->sends_left == 0 && !e->dead)
		kill_inside(e->id);
	e->sends_left -= e->sends_left > 0;
	if (e->dead || !c || !c->open)
		return 0;
	if (done && strcmp(pl_comm_endpoint_transport(e, connection), "shm") != 0) {
		ev.done = NULL;
		put_event(c, c->from == e->id, &ev, m->body)->sent = done;
		return 0;
	}
	put_event(c, c->from == e->id, &ev, done ? NULL : m->body);
	return 0;
}

/* A new connection of a peer replaces the one before it, whose events come first. */
static struct conn *oldest(struct conn *c, int side)
{
	for (int i = 0; i < CONNS; i++)
		if (conn[i].queue[side] && conn[i].from == c->from && conn[i].to == c->to &&
		    conn[i].number < c->number)
			c = &conn[i];
	return c;
}

int pl_comm_endpoint_next(struct pl_endpoint *e, pl_ns until, struct pl_endpoint_event *ev,
			  struct pl_err *err)
{
	uint32_t first = any(CONNS);

	(void)until;
	(void)err;
	if (asked)
		asked(e);
	*ev = (struct pl_endpoint_event){ .kind = PL_ENDPOINT_NOTHING };
	for (uint32_t i = 0; i < CONNS; i++) {
		struct conn *c = &conn[(first + i) % CONNS];
		int side = c->to == e->id;
		struct event *x = c->queue[side];

		if ((!side && c->from != e->id) || !x ||
		    (only != MOST && only != (side ? c->from : c->to)))
			continue;
		c = oldest(c, side);
		x = c->queue[side];
		c->queue[side] = x->next;
		*ev = x->ev;
		if (x->sent && c->open)
			put_event(c, !side,
				  &(struct pl_endpoint_event){ .kind = PL_ENDPOINT_SENT,
							       .done = x->sent },
				  NULL);
		if (ev->message.body != x->copy) /* else until its release */
			free(x);
		return 0;
	}
	return 0;
}

void pl_comm_endpoint_release(struct pl_endpoint *e, const struct pl_endpoint_event *ev)
{
	struct pl_endpoint_event sent = { .kind = PL_ENDPOINT_SENT, .done = ev->done };
	struct conn *c = find(ev->connection);

	if (ev->kind != PL_ENDPOINT_MESSAGE || !ev->message.bytes)
		return;
	if (ev->done && c && c->open)
		put_event(c, c->from == e->id, &sent, NULL);
	if (!ev->done)
		free((char *)(uintptr_t)ev->message.body - offsetof(struct event, copy));
}

uint64_t pl_comm_endpoint_sent(const struct pl_endpoint *e)
{
	(void)e;
	return 0;
}

const char *pl_comm_endpoint_address(const struct pl_endpoint *e)
{
	(void)e;
	return "";
}

int pl_comm_endpoint_open(const struct pl_endpoint_opts *o, struct pl_endpoint **e,
			  struct pl_err *err)
{
	(void)o;
	(void)e;
	return pl_fail(err, PL_EINTERNAL, "not here");
}

void pl_comm_endpoint_close(struct pl_endpoint *e)
{
	(void)e;
}

#endif
