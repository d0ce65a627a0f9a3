/*
 * The bytes of one connection between endpoints: messages as heads with bodies.
 *
 * Sending: heads that are no messages (heartbeats, releases) stand in a small buffer and go between
 * two messages. One call writes as many messages as it can, each body from where it lies.
 * Receiving: bytes come into a small buffer, from which many small messages are taken at once; the
 * rest of a large body is received into its place.
 *
 * All lengths are checked before memory is asked for.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "comm/endpoint_internal.h"

#define VECTORS	    64
#define DIRECT	    ((size_t)16 << 10) /* a body's rest that is received into its place */
#define TURN_BYTES  ((size_t)8 << 20)  /* from one connection before the others have their turn */
#define UNREAD_MORE ((size_t)64 << 10)

void pl_comm_end_lose(struct pl_end_conn *c, bool tell, const char *fmt, ...)
{
	va_list ap;

	if (c->over)
		return;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	c->tell = tell && atomic_load(&c->state) == PL_END_OPEN;
	c->was_open = atomic_load(&c->state) == PL_END_OPEN;
	c->over = true;
}

void pl_comm_end_push(struct pl_endpoint *e, struct pl_end_node *n)
{
	n->next = NULL;
	if (e->fresh)
		e->fresh_last->next = n;
	else
		e->fresh = n;
	e->fresh_last = n;
}

/* ---- sending ---- */

void pl_comm_end_control(struct pl_end_conn *c, const struct pl_head *h, const char *text)
{
	size_t n = (size_t)(text ? h->bytes : 0);

	pl_comm_head_put(c->control + c->n_control, h);
	memcpy(c->control + c->n_control + PL_HEAD_BYTES, text ? text : "", n);
	c->n_control += PL_HEAD_BYTES + n;
}

/* What can be sent now, as vectors. */
static int gather(const struct pl_end_conn *c, pl_ns now, struct iovec *v)
{
	int n = 0;

	if (c->control_sent < c->n_control)
		v[n++] = (struct iovec){ (void *)(uintptr_t)(c->control + c->control_sent),
					 c->n_control - c->control_sent };
	for (struct pl_end_item *i = c->out.head; i && n < VECTORS - 1 && i->due <= now;
	     i = i->next) {
		size_t at = i->sent < i->n_head ? 0 : i->sent - i->n_head;

		if (i->sent < i->n_head)
			v[n++] = (struct iovec){ i->head + i->sent, i->n_head - i->sent };
		if (at < i->bytes)
			v[n++] = (struct iovec){ (void *)(uintptr_t)(i->body + at), i->bytes - at };
	}
	return n;
}

static void item_sent(struct pl_endpoint *e, struct pl_end_conn *c)
{
	struct pl_end_item *i = c->out.head;
	struct pl_head h;

	c->out.head = i->next;
	atomic_fetch_add(&e->sent, i->total);
	if (i->number) {
		if (pl_comm_head_get(i->head + i->n_head - PL_HEAD_BYTES, &h, NULL) == 0)
			atomic_fetch_add(&e->sent, h.bytes);
		pl_comm_end_append(&c->awaiting, i);
		return;
	}
	c->finished++;
	if (i->node.ev.done)
		pl_comm_end_push(e, &i->node);
	else
		pl_free(i);
}

/* n bytes have left. */
static void account(struct pl_endpoint *e, struct pl_end_conn *c, size_t n)
{
	size_t some = pl_min_size(n, c->n_control - c->control_sent);

	c->control_sent += some;
	n -= some;
	if (c->control_sent == c->n_control)
		c->control_sent = c->n_control = 0;
	while (c->out.head && n) {
		struct pl_end_item *i = c->out.head;

		some = pl_min_size(n, i->total - i->sent);
		i->sent += some;
		n -= some;
		if (i->sent == i->total)
			item_sent(e, c);
	}
}

bool pl_comm_end_flush(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now)
{
	for (size_t turn = 0; !c->blocked && !c->over;) {
		struct iovec v[VECTORS];
		struct msghdr m = { .msg_iov = v };
		ssize_t n;

		m.msg_iovlen = (size_t)gather(c, now, v);
		if (!m.msg_iovlen || turn >= TURN_BYTES)
			return m.msg_iovlen > 0;
		n = sendmsg(c->link.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0) {
			account(e, c, (size_t)n);
			turn += (size_t)n;
		} else if (errno != EINTR) {
			c->broken_out = errno == EAGAIN ? 0 : errno;
			c->blocked = true;
		}
	}
	return false;
}

/* ---- receiving ---- */

static void deliver(struct pl_endpoint *e, struct pl_end_conn *c, struct pl_end_body *b)
{
	b->node.ev.connection = c->number;
	b->node.ev.peer = c->peer;
	atomic_fetch_add(&e->received, PL_HEAD_BYTES + b->node.ev.message.bytes);
	c->n_fresh++;
	c->fresh_bytes += b->node.ev.message.bytes;
	pl_comm_end_push(e, &b->node);
}

static struct pl_end_body *new_body(struct pl_endpoint *e, struct pl_end_conn *c,
				    const struct pl_head *h, size_t room)
{
	struct pl_end_body *b;

	if (h->bytes > e->o.body_max) {
		pl_comm_end_lose(c, true, "a body of %llu bytes is more than the %zu of the limit",
				 (unsigned long long)h->bytes, e->o.body_max);
		return NULL;
	}
	pthread_mutex_lock(&e->lock);
	b = pl_comm_end_body_get(e, room);
	pthread_mutex_unlock(&e->lock);
	if (!b) {
		pl_comm_end_lose(c, true, "out of memory (%zu bytes)", room);
		return NULL;
	}
	b->node.ev.kind = PL_ENDPOINT_MESSAGE;
	b->node.ev.message = (struct pl_message){ .kind = h->kind, .bytes = (size_t)h->bytes };
	memcpy(b->node.ev.message.value, h->value, sizeof(h->value));
	return b;
}

static void handle_reference(struct pl_endpoint *e, struct pl_end_conn *c, const struct pl_head *h)
{
	struct pl_end_body *b = new_body(e, c, h, 0);
	struct pl_end_map *m;

	if (!b)
		return;
	pthread_mutex_lock(&e->lock);
	m = pl_comm_end_map_find(c, h->region);
	if (m && (m->forgotten || h->at > m->bytes || h->bytes > m->bytes - h->at))
		m = NULL;
	if (m)
		m->refs++;
	else
		pl_comm_end_body_put(e, b);
	pthread_mutex_unlock(&e->lock);
	if (!m) {
		pl_comm_end_lose(c, true, "a body lies outside of the memory that was announced");
		return;
	}
	b->map = m;
	b->number = ++c->references_in;
	b->node.ev.message.body = m->base + h->at;
	deliver(e, c, b);
}

/* The peer has read a message in place. */
static void handle_released(struct pl_endpoint *e, struct pl_end_conn *c, uint64_t number)
{
	struct pl_end_item **at = &c->awaiting.head, *i, *last = NULL;

	while (*at && (*at)->number != number) {
		last = *at;
		at = &(*at)->next;
	}
	i = *at;
	if (!i) {
		pl_comm_end_lose(c, true, "it released a message that it was not given");
		return;
	}
	*at = i->next;
	if (!i->next)
		c->awaiting.last = last;
	c->finished++;
	pl_comm_end_push(e, &i->node);
}

static void handle_region(struct pl_endpoint *e, struct pl_end_conn *c, const struct pl_head *h)
{
	struct pl_err err = { 0 };
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	if (h->type == PL_HEAD_REGION)
		rc = pl_comm_end_map(c, h, &err);
	else
		pl_comm_end_forget(c, h->region);
	pthread_mutex_unlock(&e->lock);
	if (rc < 0)
		pl_comm_end_lose(c, true, "%s", err.msg);
}

static void handle_head(struct pl_endpoint *e, struct pl_end_conn *c, const struct pl_head *h)
{
	switch (h->type) {
	case PL_HEAD_MESSAGE:
		c->body = new_body(e, c, h, (size_t)h->bytes);
		c->body_got = 0;
		if (!c->body || h->bytes)
			break;
		deliver(e, c, c->body);
		c->body = NULL;
		break;
	case PL_HEAD_REFERENCE:
		handle_reference(e, c, h);
		break;
	case PL_HEAD_RELEASED:
		handle_released(e, c, h->at);
		break;
	case PL_HEAD_REGION:
	case PL_HEAD_FORGET:
		handle_region(e, c, h);
		break;
	case PL_HEAD_GOODBYE:
		c->goodbye = true;
		pl_comm_end_lose(c, false, "it said good-bye");
		break;
	case PL_HEAD_ABORT:
		c->aborted = true;
		c->text = (size_t)h->bytes;
		if (!c->text)
			pl_comm_end_lose(c, false, "it ended the connection");
		break;
	default: /* a heartbeat */
		break;
	}
}

/* Why the peer ends the connection: a text, without what a terminal would obey. */
static size_t take_text(struct pl_end_conn *c, const uint8_t *p, size_t n)
{
	char text[PL_HEAD_TEXT + 1];

	if (n < c->text)
		return 0;
	for (size_t i = 0; i < c->text; i++)
		text[i] = p[i] >= ' ' && p[i] < 127 ? (char)p[i] : '?';
	text[c->text] = '\0';
	pl_comm_end_lose(c, false, "it ended the connection: %s", text);
	return c->text;
}

static size_t take_body(struct pl_endpoint *e, struct pl_end_conn *c, const uint8_t *p, size_t n)
{
	struct pl_end_body *b = c->body;
	size_t bytes = b->node.ev.message.bytes, some = pl_min_size(n, bytes - c->body_got);

	if (p) /* else it was received into its place */
		memcpy(b->data + c->body_got, p, some);
	c->body_got += some;
	if (c->body_got == bytes) {
		b->node.ev.message.body = b->data;
		deliver(e, c, b);
		c->body = NULL;
	}
	return some;
}

static void take_bytes(struct pl_endpoint *e, struct pl_end_conn *c)
{
	size_t at = 0, took = 1;

	while (took && !c->over && at < c->n_in) {
		struct pl_err err = { 0 };
		struct pl_head h;

		if (c->body) {
			took = take_body(e, c, c->in + at, c->n_in - at);
		} else if (c->aborted) {
			took = take_text(c, c->in + at, c->n_in - at);
		} else if (c->n_in - at < PL_HEAD_BYTES) {
			took = 0;
		} else if (pl_comm_head_get(c->in + at, &h, &err) < 0) {
			pl_comm_end_lose(c, true, "%s", err.msg);
		} else {
			took = PL_HEAD_BYTES;
			handle_head(e, c, &h);
		}
		at += took;
	}
	c->n_in -= at;
	memmove(c->in, c->in + at, c->n_in);
}

bool pl_comm_end_is_full(const struct pl_endpoint *e, size_t messages, size_t bytes)
{
	return messages >= PL_ENDPOINT_QUEUE ||
	       (bytes > UNREAD_MORE && (bytes - UNREAD_MORE) / 2 >= e->o.body_max);
}

void pl_comm_end_receive(struct pl_endpoint *e, struct pl_end_conn *c)
{
	for (size_t turn = 0; turn < TURN_BYTES && !c->over;) {
		size_t left = c->body ? c->body->node.ev.message.bytes - c->body_got : 0, want;
		bool direct = left >= DIRECT && !c->n_in;
		ssize_t n;

		if (pl_comm_end_is_full(e, c->unread_seen + c->n_fresh,
					c->unread_bytes_seen + c->fresh_bytes))
			return;
		want = direct ? left : PL_END_IN - c->n_in;
		n = recv(c->link.fd, direct ? c->body->data + c->body_got : c->in + c->n_in, want,
			 MSG_DONTWAIT);
		if (n == 0 && c->broken_out)
			pl_comm_end_lose(c, false, "cannot send to it: %s",
					 strerror(c->broken_out));
		else if (n == 0)
			pl_comm_end_lose(c, false, "it closed the connection");
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			pl_comm_end_lose(c, false, "cannot receive from it: %s", strerror(errno));
		if (n <= 0)
			return;
		c->heard = pl_now_ns();
		turn += (size_t)n;
		if (direct)
			take_body(e, c, NULL, (size_t)n);
		else
			c->n_in += (size_t)n;
		if (!direct)
			take_bytes(e, c);
		if ((size_t)n < want)
			return; /* poll() says when there is more */
	}
}
