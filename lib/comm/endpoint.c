/*
 * Endpoints: opening and closing, and what callers do under the lock: queue messages, take events.
 *
 * Received bodies lie in buffers whose sizes are powers of 2. A buffer that is released is used
 * again, because the pages of a new one cost as much as the copy into it.
 */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/endpoint_internal.h"

#define LONGEST_NS                                                                                 \
	((pl_ns)3600000000000) /* of a wait: the end of time plus a moment is no time              \
				*/
#define EXPECTED    256	       /* greetings at one time, besides those of strangers */
#define SMALL_CLASS 8	       /* the smallest buffer has 256 bytes */

/* ---- buffers of received bodies ---- */

struct pl_end_body *pl_comm_end_body_get(struct pl_endpoint *e, size_t bytes)
{
	unsigned class = SMALL_CLASS;
	struct pl_end_body *b;
	size_t room;

	while (class < PL_END_CLASSES && ((size_t)1 << class) < bytes)
		class ++;
	if (class == PL_END_CLASSES)
		return NULL;
	room = (size_t)1 << class;
	b = e->spare[class];
	if (b) {
		e->spare[class] = (struct pl_end_body *)(void *)b->node.next;
		e->spare_bytes -= room;
	} else {
		b = pl_malloc(sizeof(*b) + 64 + room);
	}
	if (!b)
		return NULL;
	*b = (struct pl_end_body){ .node.what = PL_END_BODY, .class = class };
	b->data = (uint8_t *)(((uintptr_t)(b + 1) + 63) & ~(uintptr_t)63);
	return b;
}

void pl_comm_end_body_put(struct pl_endpoint *e, struct pl_end_body *b)
{
	size_t room = (size_t)1 << b->class;

	if (e->spare_bytes + room > e->spare_max) {
		pl_free(b);
		return;
	}
	e->spare_bytes += room;
	b->node.next = (struct pl_end_node *)e->spare[b->class];
	e->spare[b->class] = b;
}

/* ---- connections ---- */

struct pl_end_conn *pl_comm_end_find(const struct pl_endpoint *e, uint32_t number)
{
	for (int i = 0; i < 2; i++)
		for (struct pl_end_conn *c = i ? e->arrivals : e->conns; c; c = c->next)
			if (c->number == number && atomic_load(&c->state) == PL_END_OPEN)
				return c;
	return NULL;
}

void pl_comm_end_append(struct pl_end_items *l, struct pl_end_item *i)
{
	i->next = NULL;
	if (l->head)
		l->last->next = i;
	else
		l->head = i;
	l->last = i;
}

void pl_comm_end_wake(struct pl_endpoint *e)
{
	if (atomic_exchange(&e->asleep, false))
		pl_comm_kick(e->wake);
}

void pl_comm_end_shape(struct pl_endpoint *e, struct pl_end_conn *c)
{
	c->link_free_at = &c->free_at;
	for (size_t i = 0; i < e->o.n_shapes; i++) {
		const struct pl_link_shape *s = &e->shape[i];

		if ((s->from >= 0 && (uint32_t)s->from != e->o.id) ||
		    (s->to >= 0 && (uint32_t)s->to != c->peer))
			continue;
		c->bytes_per_ns = s->bytes_per_ns; /* of several the last counts */
		c->latency = s->latency_ns;
		c->link_free_at = s->shared ? &e->free_at : &c->free_at;
	}
}

struct pl_end_conn *pl_comm_end_conn_new(struct pl_err *err)
{
	struct pl_end_conn *c;

	if (pl_alloc(&c, 1, sizeof(*c), err) < 0)
		return NULL;
	c->link.fd = c->poll = -1;
	c->in = pl_malloc(PL_END_IN);
	if (!c->in) {
		pl_free(c);
		pl_fail(err, PL_ENOMEM, "out of memory");
		return NULL;
	}
	c->accepted_event.what = PL_END_ACCEPTED;
	c->lost_event.what = PL_END_LOST;
	return c;
}

static void items_free(struct pl_end_items *l)
{
	while (l->head) {
		struct pl_end_item *i = l->head;

		l->head = i->next;
		pl_free(i);
	}
}

void pl_comm_end_conn_empty(struct pl_endpoint *e, struct pl_end_conn *c)
{
	items_free(&c->queue);
	items_free(&c->out);
	items_free(&c->awaiting);
	while (c->released) {
		struct pl_end_body *b = c->released;

		c->released = (struct pl_end_body *)(void *)b->node.next;
		pl_comm_end_body_put(e, b);
	}
	if (c->body)
		pl_comm_end_body_put(e, c->body);
	c->body = NULL;
}

void pl_comm_end_conn_free(struct pl_end_conn *c)
{
	pl_comm_link_close(&c->link);
	pl_free(c->known);
	pl_free(c->in);
	pl_free(c);
}

/* ---- events ---- */

void pl_comm_end_node_free(struct pl_endpoint *e, struct pl_end_node *n)
{
	struct pl_end_body *b = (struct pl_end_body *)(void *)n;

	if (n->what == PL_END_BODY && b->map)
		pl_comm_end_unref(e, pl_comm_end_find(e, n->ev.connection), b->map);
	if (n->what == PL_END_BODY)
		pl_comm_end_body_put(e, b);
	else if (n->what == PL_END_ITEM)
		pl_free(n);
	else if (n->what == PL_END_LOST)
		pl_comm_end_conn_free(
			(void *)((char *)n - offsetof(struct pl_end_conn, lost_event)));
}

void pl_comm_end_purge(struct pl_endpoint *e, uint32_t number)
{
	struct pl_end_node **at = &e->events, *last = NULL;

	while (*at) {
		struct pl_end_node *n = *at;

		if (n->ev.connection == number) {
			*at = n->next;
			pl_comm_end_node_free(e, n);
		} else {
			last = n;
			at = &n->next;
		}
	}
	e->events_last = last;
}

static void take_event(struct pl_endpoint *e, struct pl_endpoint_event *ev)
{
	struct pl_end_node *n = e->events;
	struct pl_end_conn *c = pl_comm_end_find(e, n->ev.connection);

	e->events = n->next;
	*ev = n->ev;
	n->next = NULL;
	if (n->what == PL_END_LOST) {
		snprintf(e->why, sizeof(e->why), "%s", ev->why);
		ev->why = e->why;
	}
	if (n->what == PL_END_BODY && c) {
		c->unread--;
		c->unread_bytes -= ev->message.bytes;
		if (c->paused && !pl_comm_end_is_full(e, c->unread, c->unread_bytes))
			pl_comm_end_wake(e);
	}
	if (n->what != PL_END_BODY || !ev->message.body) {
		pl_comm_end_node_free(e, n);
		return;
	}
	ev->done = n;
	n->prev = NULL;
	n->next = e->held;
	if (e->held)
		e->held->prev = n;
	e->held = n;
}

int pl_comm_endpoint_next(struct pl_endpoint *e, pl_ns until, struct pl_endpoint_event *ev,
			  struct pl_err *err)
{
	pl_ns left;

	(void)err;
	*ev = (struct pl_endpoint_event){ .kind = PL_ENDPOINT_NOTHING };
	pthread_mutex_lock(&e->lock);
	while (!e->events && (left = until - pl_now_ns()) > 0)
		pl_comm_wait_for(&e->changed, &e->lock, pl_min_i64(left, LONGEST_NS));
	if (e->events)
		take_event(e, ev);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

void pl_comm_endpoint_release(struct pl_endpoint *e, const struct pl_endpoint_event *ev)
{
	struct pl_end_node *n = ev->done;
	struct pl_end_body *b = (struct pl_end_body *)(void *)n;
	struct pl_end_conn *c;

	if (ev->kind != PL_ENDPOINT_MESSAGE || !ev->message.body || !n)
		return;
	pthread_mutex_lock(&e->lock);
	if (n->next)
		n->next->prev = n->prev;
	if (n->prev)
		n->prev->next = n->next;
	else
		e->held = n->next;
	c = b->map ? pl_comm_end_find(e, ev->connection) : NULL;
	if (c) {
		pl_comm_end_unref(e, c, b->map);
		n->next = (struct pl_end_node *)c->released;
		c->released = b;
		pl_comm_end_wake(e);
	} else {
		pl_comm_end_node_free(e, n);
	}
	pthread_mutex_unlock(&e->lock);
}

/* ---- sending ---- */

/* The head of the message, after that of its region where the peer does not know it. */
static int reference(struct pl_end_conn *c, struct pl_end_item *i, struct pl_head *h,
		     const struct pl_end_region *r, const void *body, struct pl_err *err)
{
	struct pl_end_known known = { .region = r->number };
	struct pl_head announce = { .type = PL_HEAD_REGION, .region = r->number };
	size_t k = 0;

	while (k < c->n_known && c->known[k].region != r->number)
		k++;
	if (k == c->n_known) {
		PL_CHECK(pl_append(&c->known, &c->n_known, &c->cap_known, &known, sizeof(known),
				   err));
		announce.at = (uint64_t)r->fd;
		announce.bytes = r->bytes;
		pl_comm_head_put(i->head, &announce);
		i->n_head = PL_HEAD_BYTES;
	}
	i->number = ++c->n_references;
	i->bytes = 0;
	h->type = PL_HEAD_REFERENCE;
	h->region = r->number;
	h->at = (uint64_t)((const uint8_t *)body - r->base);
	return 0;
}

/* When a link that is shaped so would have delivered it. */
static pl_ns due(struct pl_end_conn *c, size_t bytes)
{
	pl_ns from;

	if (!c->latency && c->bytes_per_ns <= 0)
		return 0;
	from = pl_max_i64(pl_now_ns(), *c->link_free_at);
	if (c->bytes_per_ns > 0)
		from += (pl_ns)((double)bytes / c->bytes_per_ns);
	*c->link_free_at = from;
	return from + c->latency;
}

static int queue(struct pl_endpoint *e, uint32_t connection, struct pl_end_item *i,
		 const struct pl_message *m, struct pl_err *err)
{
	struct pl_end_conn *c = pl_comm_end_find(e, connection);
	struct pl_head h = { .type = PL_HEAD_MESSAGE, .kind = m->kind, .bytes = m->bytes };
	struct pl_end_region *r;

	if (!c || c->ending)
		return PL_ENO;
	if (c->n_waiting >= PL_ENDPOINT_QUEUE)
		return pl_fail(err, PL_ELIMIT, "more than %d messages to endpoint %u wait",
			       PL_ENDPOINT_QUEUE, c->peer);
	memcpy(h.value, m->value, sizeof(h.value));
	r = c->shared && i->node.ev.done && m->bytes ? pl_comm_end_region(e, m->body, m->bytes)
						     : NULL;
	if (r)
		PL_CHECK(reference(c, i, &h, r, m->body, err));
	pl_comm_head_put(i->head + i->n_head, &h);
	i->n_head += PL_HEAD_BYTES;
	i->total = i->n_head + i->bytes;
	i->due = due(c, PL_HEAD_BYTES + m->bytes);
	i->node.ev.peer = c->peer;
	pl_comm_end_append(&c->queue, i);
	c->n_waiting++;
	pl_comm_end_wake(e);
	return 0;
}

int pl_comm_endpoint_send(struct pl_endpoint *e, uint32_t connection, const struct pl_message *m,
			  void *done, struct pl_err *err)
{
	size_t copied = done ? 0 : m->bytes;
	struct pl_end_item *i;
	int rc;

	if (!m->kind || (m->bytes && !m->body))
		return pl_fail(err, PL_EUSAGE, "a message needs a kind, and bytes need a body");
	if (copied > SIZE_MAX / 2 || !(i = pl_malloc(sizeof(*i) + copied)))
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", copied);
	*i = (struct pl_end_item){ .node.what = PL_END_ITEM, .bytes = m->bytes };
	i->node.ev.kind = PL_ENDPOINT_SENT;
	i->node.ev.connection = connection;
	i->node.ev.done = done;
	i->body = done ? m->body : i->copy;
	if (copied)
		memcpy(i->copy, m->body, copied);
	pthread_mutex_lock(&e->lock);
	rc = queue(e, connection, i, m, err);
	pthread_mutex_unlock(&e->lock);
	if (rc < 0)
		pl_free(i);
	return rc == PL_ENO ? 0 : rc;
}

void pl_comm_endpoint_drop(struct pl_endpoint *e, uint32_t connection, const char *why)
{
	struct pl_end_conn *c;

	pthread_mutex_lock(&e->lock);
	c = pl_comm_end_find(e, connection);
	if (c) {
		c->dropped = true;
		c->ending = why ? PL_END_ABORT : PL_END_GOODBYE;
		snprintf(c->end_why, sizeof(c->end_why), "%s", why ? why : "");
		pl_comm_end_wake(e);
	}
	pl_comm_end_purge(e, connection);
	/* the thread may be sending a body */
	while (pl_comm_end_find(e, connection))
		pl_comm_wait_for(&e->changed, &e->lock, 1000000000);
	pthread_mutex_unlock(&e->lock);
}

uint64_t pl_comm_endpoint_sent(const struct pl_endpoint *e)
{
	return atomic_load(&e->sent);
}

uint64_t pl_comm_endpoint_received(const struct pl_endpoint *e)
{
	return atomic_load(&e->received);
}

const char *pl_comm_endpoint_transport(const struct pl_endpoint *e, uint32_t connection)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&e->lock;
	struct pl_end_conn *c;
	const char *name;

	pthread_mutex_lock(lock);
	c = pl_comm_end_find(e, connection);
	name = !c ? NULL : c->shared ? "shm" : "tcp";
	pthread_mutex_unlock(lock);
	return name;
}

/* ---- opening and closing ---- */

static int take_opts(struct pl_endpoint *e, const struct pl_endpoint_opts *o, struct pl_err *err)
{
	size_t n = o->token ? strlen(o->token) : 0, shapes = 0, cap = 0;
	const char *by = o->transport ? o->transport : "auto";

	if (n < PL_TOKEN_MIN || n > PL_TOKEN_MAX)
		return pl_fail(err, PL_EUSAGE, "token of %zu characters: %d to %d are needed", n,
			       PL_TOKEN_MIN, PL_TOKEN_MAX);
	if (strcmp(by, "auto") != 0 && strcmp(by, "shm") != 0 && strcmp(by, "tcp") != 0)
		return pl_fail(err, PL_EUSAGE, "transport \"%s\": there are auto, shm, tcp", by);
	e->o = *o;
	e->may_share = strcmp(by, "tcp") != 0;
	e->must_share = strcmp(by, "shm") == 0;
	e->timeout = o->timeout_ns > 0 ? o->timeout_ns : PL_TIMEOUT_NS;
	e->beat_ns = o->heartbeat_ns > 0 ? o->heartbeat_ns : e->timeout / 3;
	e->host = e->may_share ? pl_comm_host_id(o->host) : 0;
	e->spare_max = pl_min_size(o->body_max, SIZE_MAX / 16) * 2 + ((size_t)64 << 20);
	memcpy(e->token, o->token, n);
	PL_CHECK(pl_copy_array(&e->shape, &shapes, &cap, o->shape, o->n_shapes, sizeof(*e->shape),
			       err));
	e->o.token = e->token;
	return 0;
}

const char *pl_comm_endpoint_address(const struct pl_endpoint *e)
{
	return e->address;
}

static int leave_address(struct pl_endpoint *e, struct pl_err *err)
{
	int n = snprintf(e->file, sizeof(e->file), "%s/endpoint.%u", e->o.listen + 4, e->o.id);

	if (n < 0 || (size_t)n >= sizeof(e->file))
		return pl_fail(err, PL_EUSAGE, "the name of the folder %.40s... is too long",
			       e->o.listen + 4);
	/* the end of the line shows that it is whole; the time that it is another listener */
	snprintf(e->left, sizeof(e->left), "%s %ld %lld\n", e->address, (long)getpid(),
		 (long long)pl_now_ns());
	if (pl_comm_leave_file(AT_FDCWD, e->file, e->left) < 0) {
		pl_fail_sys(err, "cannot write %s", e->file);
		e->left[0] = '\0';
		return err ? err->code : PL_EIO;
	}
	return 0;
}

static int start_listening(struct pl_endpoint *e, struct pl_err *err)
{
	char address[PL_ADDRESS_MAX] = "", host[256] = "127.0.0.1";
	bool in_folder = !strncmp(e->o.listen, "dir:", 4) && e->o.listen[4];
	int port = 0;

	if (!in_folder)
		PL_CHECK(pl_comm_net_parse(e->o.listen, host, sizeof(host), &port, err));
	if (!in_folder && e->o.free_port) {
		PL_CHECK(pl_comm_net_route(host, sizeof(host), port, err));
		port = 0;
	}
	PL_CHECK(pl_comm_net_listen_as(in_folder || e->o.free_port ? e->o.bind : NULL, host, true,
				       &e->acceptor.listener, &port, address, err));
	snprintf(e->address, sizeof(e->address), strchr(address, ':') ? "tcp:[%s]:%d" : "tcp:%s:%d",
		 address, port);
	return in_folder ? leave_address(e, err) : 0;
}

static int start(struct pl_endpoint *e, struct pl_err *err)
{
	PL_CHECK(pl_comm_acceptor_init(&e->acceptor, EXPECTED, err));
	e->acceptor.token = e->token;
	e->acceptor.log = e->o.log;
	e->acceptor.name = "endpoint";
	e->wake = pl_fail_now() ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->wake < 0)
		return pl_fail_sys(err, "cannot make an event descriptor");
	PL_CHECK(pl_comm_end_probe_open(e, err));
	if (e->o.listen)
		PL_CHECK(start_listening(e, err));
	e->cap_polls = 0;
	PL_CHECK(pl_grow(&e->polls, &e->cap_polls, e->acceptor.most + PL_END_LINGERS + 64,
			 sizeof(*e->polls), err));
	PL_CHECK(pl_comm_thread_start(&e->thread, pl_comm_end_serve, e, err));
	e->runs = true;
	return 0;
}

int pl_comm_endpoint_open(const struct pl_endpoint_opts *o, struct pl_endpoint **to,
			  struct pl_err *err)
{
	struct pl_endpoint *e;
	pthread_condattr_t a;
	int rc;

	PL_CHECK(pl_alloc(&e, 1, sizeof(*e), err));
	e->wake = e->probe = e->acceptor.listener = -1;
	pthread_mutex_init(&e->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&e->changed, &a);
	pthread_condattr_destroy(&a);
	rc = take_opts(e, o, err);
	if (rc == 0)
		rc = start(e, err);
	if (rc == 0)
		*to = e;
	else
		pl_comm_endpoint_close(e);
	return rc < 0 ? pl_wrap(err, "endpoint %u", o->id) : 0;
}

/* The file with the address, if no other listener has replaced it. */
static void remove_address(const struct pl_endpoint *e)
{
	char text[sizeof(e->left)];

	if (e->left[0] && pl_read_small(e->file, text, sizeof(text)) > 0 && !strcmp(text, e->left))
		unlink(e->file);
}

static void free_bodies(struct pl_endpoint *e)
{
	while (e->events) {
		struct pl_end_node *n = e->events;

		e->events = n->next;
		pl_comm_end_node_free(e, n);
	}
	while (e->held) {
		struct pl_end_node *n = e->held;

		e->held = n->next;
		pl_comm_end_node_free(e, n);
	}
	for (size_t i = 0; i < PL_END_CLASSES; i++)
		while (e->spare[i]) {
			struct pl_end_body *b = e->spare[i];

			e->spare[i] = (struct pl_end_body *)(void *)b->node.next;
			pl_free(b);
		}
}

void pl_comm_endpoint_close(struct pl_endpoint *e)
{
	if (!e)
		return;
	remove_address(e);
	if (e->runs) {
		pthread_mutex_lock(&e->lock);
		e->closing = true;
		pl_comm_end_wake(e);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
	}
	free_bodies(e);
	pl_comm_end_memory_fini(e);
	if (e->acceptor.pending)
		pl_comm_acceptor_fini(&e->acceptor);
	else
		pl_comm_close(&e->acceptor.listener);
	pl_comm_close(&e->wake);
	pl_free(e->polls);
	pl_free(e->shape);
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
	pl_free(e);
}
