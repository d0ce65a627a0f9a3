/*
 * The thread of an endpoint.
 *
 * Each round has a part under the lock, in which it tells callers what has happened and takes what
 * they have given, and a part without, in which it sends, sleeps in ppoll() until something comes
 * or is due, and receives.
 *
 * A peer that was silent for the timeout is lost. Time in which this thread could not run does not
 * count, because its process, or the whole machine, was stopped: it is the time between two rounds
 * in which the thread did not want to sleep.
 *
 * A connection that this side ends stays for a while as a bare socket: if it were closed while
 * bytes of the peer arrive, the kernel would reset it and throw away the last words, if they wait
 * here.
 */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/endpoint_internal.h"

/* ---- what has ended ---- */

static void linger(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now)
{
	pl_ns until = now + e->timeout;

	if (e->n_linger == PL_END_LINGERS || shutdown(c->link.fd, SHUT_WR) < 0)
		return;
	if (e->closing)
		until = pl_min_i64(until, e->close_until);
	e->linger[e->n_linger++] = (struct pl_end_linger){ c->link.fd, until };
	c->link.fd = -1;
}

/* The peer's last words, if the stream is between two messages. */
static bool say_why(struct pl_end_conn *c)
{
	struct pl_head h = { .type = PL_HEAD_ABORT };
	char why[PL_HEAD_TEXT + 1];

	if (c->n_control || c->broken_out || (c->out.head && c->out.head->sent))
		return false;
	h.bytes = (uint64_t)snprintf(why, sizeof(why), "%.200s", c->why);
	pl_comm_end_control(c, &h, why);
	return send(c->link.fd, c->control, c->n_control, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)c->n_control;
}

static void put_event(struct pl_endpoint *e, struct pl_end_node *n)
{
	n->next = NULL;
	if (e->events)
		e->events_last->next = n;
	else
		e->events = n;
	e->events_last = n;
}

static void end(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now)
{
	if (c->last_head ? !c->n_control : c->tell && say_why(c))
		linger(e, c, now);
	pl_comm_link_close(&c->link);
	pl_comm_end_maps_end(e, c);
	pl_comm_end_conn_empty(e, c);
	atomic_store(&c->state, PL_END_OVER);
	if (c->dropped || !c->was_open) {
		if (c->was_open) /* an endpoint that closes drops what its user has not seen */
			pl_comm_end_purge(e, c->number);
		pl_comm_end_conn_free(c);
		return;
	}
	c->lost_event.ev = (struct pl_endpoint_event){ .kind = PL_ENDPOINT_LOST,
						       .connection = c->number,
						       .peer = c->peer,
						       .goodbye = c->goodbye,
						       .why = c->why };
	put_event(e, &c->lost_event);
}

/* Tell callers what has happened. Locked. */
static void finish(struct pl_endpoint *e, pl_ns now)
{
	bool news = e->fresh;
	struct pl_end_conn **at;

	while (e->fresh) {
		struct pl_end_node *n = e->fresh;
		struct pl_end_conn *c = pl_comm_end_find(e, n->ev.connection);

		e->fresh = n->next;
		if (c && !c->dropped)
			put_event(e, n);
		else
			pl_comm_end_node_free(e, n);
	}
	for (at = &e->conns; *at;) {
		struct pl_end_conn *c = *at;

		c->n_waiting -= c->finished;
		c->unread += c->n_fresh;
		c->unread_bytes += c->fresh_bytes;
		c->finished = c->n_fresh = c->fresh_bytes = 0;
		if (!c->over) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		end(e, c, now);
		news = true;
	}
	if (news)
		pthread_cond_broadcast(&e->changed);
}

/* ---- what is to be done ---- */

/* Heads that are no messages go between two messages. */
static void fill_control(struct pl_endpoint *e, struct pl_end_conn *c)
{
	const size_t most = (PL_END_CONTROLS - 1) * PL_HEAD_BYTES;
	struct pl_head h = { .type = PL_HEAD_BEAT };
	size_t n = 0;

	if (c->n_control || c->last_head || (c->out.head && c->out.head->sent))
		return;
	if (c->beat)
		pl_comm_end_control(c, &h, NULL);
	c->beat = false;
	h.type = PL_HEAD_RELEASED;
	while (c->released && c->n_control < most) {
		struct pl_end_body *b = c->released;

		h.at = b->number;
		c->released = (struct pl_end_body *)(void *)b->node.next;
		pl_comm_end_control(c, &h, NULL);
		pl_comm_end_body_put(e, b);
	}
	h = (struct pl_head){ .type = PL_HEAD_FORGET };
	for (size_t i = 0; i < c->n_known; i++)
		if (c->known[i].freed && c->n_control < most) {
			h.region = c->known[i].region;
			pl_comm_end_control(c, &h, NULL);
		} else {
			c->known[n++] = c->known[i];
		}
	c->n_known = n;
	c->more = c->n_control >= most;
}

/* This side ends the connection. */
static void prepare_end(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now)
{
	struct pl_head h = { .type = PL_HEAD_GOODBYE };

	if (!c->end_until)
		c->end_until = e->closing ? e->close_until : now + e->timeout;
	if (c->ending == PL_END_ABORT)
		pl_comm_end_lose(c, true, "%s", c->end_why);
	else if (c->last_head && !c->n_control)
		pl_comm_end_lose(c, false, "this side said good-bye");
	else if (now >= c->end_until)
		pl_comm_end_lose(c, true, "this side ended it before all was sent");
	else if (!c->out.head && !c->n_control && !c->last_head) {
		pl_comm_end_control(c, &h, NULL);
		c->last_head = true;
	}
}

static void take_queue(struct pl_end_conn *c)
{
	if (!c->queue.head)
		return;
	if (c->out.head)
		c->out.last->next = c->queue.head;
	else
		c->out.head = c->queue.head;
	c->out.last = c->queue.last;
	c->queue.head = NULL;
}

void pl_comm_end_pace(struct pl_endpoint *e, const struct pl_end_conn *c)
{
	pl_ns wanted = pl_max_i64(c->theirs.endpoint.timeout / 3, 1000000);

	e->beat_ns = pl_min_i64(e->beat_ns, wanted);
}

/* Its place in polls, and the time of its next duty. */
static pl_ns watch(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now, size_t place)
{
	bool open = atomic_load(&c->state) == PL_END_OPEN;
	short what = c->paused ? 0 : POLLIN; /* send_all() adds the rest */
	pl_ns until = c->heard + e->timeout;

	c->poll = (int)place;
	e->polls[place] = (struct pollfd){ .fd = what ? c->link.fd : -1, .events = what };
	if (open && c->out.head && c->out.head->due > now)
		until = pl_min_i64(until, c->out.head->due);
	if (c->end_until)
		until = pl_min_i64(until, c->end_until);
	return until;
}

/* Take what callers have given. Locked. Returns the number of descriptors; *until: sleep so long.
 */
static size_t prepare(struct pl_endpoint *e, pl_ns now, pl_ns *until)
{
	size_t n = 0;

	while (e->arrivals) {
		struct pl_end_conn *c = e->arrivals;

		e->arrivals = c->next;
		c->next = e->conns;
		e->conns = c;
		pl_comm_end_pace(e, c);
	}
	if (e->closing && !e->close_until) {
		e->close_until = now + e->timeout;
		pl_comm_close(&e->acceptor.listener);
	}
	*until = e->next_beat = pl_min_i64(e->next_beat, now + e->beat_ns);
	e->polls[n++] = (struct pollfd){ .fd = e->wake, .events = POLLIN };
	e->n_accept = e->closing ? 0 : pl_comm_acceptor_watch(&e->acceptor, now, until);
	memcpy(e->polls + n, e->acceptor.polls, e->n_accept * sizeof(*e->polls));
	n += e->n_accept;
	for (size_t i = 0; i < e->n_linger; i++) {
		e->polls[n++] = (struct pollfd){ .fd = e->linger[i].fd, .events = POLLIN };
		*until = pl_min_i64(*until, e->linger[i].until);
	}
	for (struct pl_end_conn *c = e->conns; c; c = c->next) {
		struct pl_err err = { 0 };

		c->unread_seen = c->unread;
		c->unread_bytes_seen = c->unread_bytes;
		c->paused = pl_comm_end_is_full(e, c->unread, c->unread_bytes);
		if (c->paused)
			c->heard = now;
		if (e->closing) {
			c->dropped = true;
			c->ending = c->ending ? c->ending : PL_END_GOODBYE;
		}
		if (e->closing && atomic_load(&c->state) != PL_END_OPEN)
			pl_comm_end_lose(c, false, "this side ends");
		take_queue(c);
		if (atomic_load(&c->state) == PL_END_OPEN)
			fill_control(e, c);
		c->ends = c->ending;
		if (c->ending && !c->over)
			prepare_end(e, c, now);
		if (pl_grow(&e->polls, &e->cap_polls, n + 1, sizeof(*e->polls), &err) < 0) {
			pl_comm_end_lose(c, true, "%s", err.msg);
			c->poll = -1;
		} else {
			*until = pl_min_i64(*until, watch(e, c, now, n++));
		}
	}
	return n;
}

/* ---- the round ---- */

/* Returns whether there is something to do at once. */
static bool send_all(struct pl_endpoint *e, pl_ns now)
{
	bool again = false;

	for (struct pl_end_conn *c = e->conns; c; c = c->next) {
		if (atomic_load(&c->state) == PL_END_OPEN) {
			again |= pl_comm_end_flush(e, c, now);
			again |= !c->blocked && (c->more || (c->ends && !c->out.head));
		}
		if (c->blocked && !c->broken_out && c->poll >= 0) {
			e->polls[c->poll].fd = c->link.fd;
			e->polls[c->poll].events |= POLLOUT;
		}
		again |= c->over || c->finished;
	}
	return again || e->fresh;
}

static void drain_lingers(struct pl_endpoint *e, const struct pollfd *p, size_t n, pl_ns now)
{
	char some[4096];

	for (size_t i = n; i-- > 0;) {
		struct pl_end_linger *l = &e->linger[i];
		ssize_t got = 1;

		while (p[i].revents && got > 0)
			got = recv(l->fd, some, sizeof(some), MSG_DONTWAIT);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) || now >= l->until) {
			pl_comm_close(&l->fd);
			*l = e->linger[--e->n_linger];
		}
	}
}

static void come(struct pl_endpoint *e, const struct pollfd *p)
{
	struct pl_frame hello;
	struct pl_link l;

	memcpy(e->acceptor.polls, p, e->n_accept * sizeof(*p));
	while (e->n_accept && pl_comm_acceptor_take(&e->acceptor, e->n_accept, &hello, &l))
		pl_comm_end_come(e, &hello, &l);
}

static void serve_conns(struct pl_endpoint *e, pl_ns now)
{
	bool beat = now >= e->next_beat;

	if (beat)
		e->next_beat = now + e->beat_ns;
	for (struct pl_end_conn *c = e->conns; c; c = c->next) {
		short what = c->poll >= 0 ? e->polls[c->poll].revents : 0;

		if (what & POLLOUT)
			c->blocked = c->broken_out;
		if ((what & ~POLLOUT) && !c->paused && !c->over) {
			if (atomic_load(&c->state) == PL_END_OPEN)
				pl_comm_end_receive(e, c);
			else
				pl_comm_end_greet(e, c);
		}
		c->beat |= beat;
		c->poll = -1;
		if (now - c->heard > e->timeout && !c->over)
			pl_comm_end_lose(c, true, "it gave no sign of life for %.2f s",
					 (double)(now - c->heard) / 1e9);
	}
}

/* The silence of peers does not count for time in which this thread could not listen. */
static void excuse(struct pl_endpoint *e, pl_ns now, pl_ns held)
{
	if (held < PL_STOPPED_NS(e))
		return;
	for (struct pl_end_conn *c = e->conns; c; c = c->next)
		c->heard = pl_min_i64(now, c->heard + held);
}

void *pl_comm_end_serve(void *endpoint)
{
	struct pl_endpoint *e = endpoint;
	pl_ns last = pl_now_ns();

	e->next_beat = last + e->beat_ns;
	for (;;) {
		pl_ns begin = pl_now_ns(), until, now;
		struct timespec t = { 0 };
		size_t n, n_linger;
		bool ended;

		pthread_mutex_lock(&e->lock);
		finish(e, begin);
		n = prepare(e, begin, &until);
		ended = e->closing && !e->conns && (!e->n_linger || begin >= e->close_until);
		atomic_store(&e->asleep, true);
		pthread_mutex_unlock(&e->lock);
		if (ended)
			break;
		if (send_all(e, begin))
			until = begin;
		now = pl_now_ns();
		if (until > now) {
			t.tv_sec = (until - now) / 1000000000;
			t.tv_nsec = (until - now) % 1000000000;
		}
		if (ppoll(e->polls, (nfds_t)n, &t, NULL) < 0)
			for (size_t i = 0; i < n; i++)
				e->polls[i].revents = 0;
		atomic_store(&e->asleep, false);
		now = pl_now_ns();
		excuse(e, now, now - last - pl_max_i64(0, until - begin));
		last = now;
		if (e->polls[0].revents && read(e->wake, &(uint64_t){ 0 }, 8) < 0)
			now = last; /* nothing to read: another reason has woken it */
		n_linger = e->n_linger;
		serve_conns(e, now);
		drain_lingers(e, e->polls + 1 + e->n_accept, n_linger, now);
		come(e, e->polls + 1);
	}
	while (e->n_linger)
		pl_comm_close(&e->linger[--e->n_linger].fd);
	return NULL;
}
