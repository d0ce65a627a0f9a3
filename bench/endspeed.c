/*
 * endspeed - how fast messages pass between two endpoints of this machine, beside what the same way
 * carries without them.
 *
 * usage: endspeed tcp|shm BYTES MESSAGES TURNS     (a line a turn: plain and own bandwidth in GB/s)
 *        endspeed tcp|shm 0 MESSAGES TURNS         (plain and own round trip, median, in us)
 *
 * Both are measured by turns, between the same two processes. Plain: a stream over a socket of
 * loopback, in large pieces; in shared memory a copy out of it. Own: messages of that size, two on
 * their way at a time; in shared memory the receiver copies each body before it releases it, as the
 * plain copy does.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/endpoint.h"

#define FOREVER INT64_MAX

struct side {
	struct pl_endpoint *e;
	uint32_t c;
	int s; /* the plain socket */
	size_t bytes;
	int n, turns;
	uint8_t *body[2], *copy;
	double *us;
	bool shared;
};

static void need(bool fine, const char *what, const struct pl_err *e)
{
	if (fine)
		return;
	fprintf(stderr, "endspeed: %s: %s\n", what, e && e->msg[0] ? e->msg : "failed");
	exit(4);
}

static void plain_all(struct side *k, bool out, uint8_t *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t m = out ? send(k->s, p + at, n - at, MSG_NOSIGNAL)
				: recv(k->s, p + at, n - at, 0);

		need(m > 0, "plain socket", NULL);
		at += (size_t)m;
	}
}

static void send_one(struct side *k, const void *body, size_t bytes)
{
	struct pl_message m = { .kind = 1, .body = body, .bytes = bytes };
	struct pl_err e = { 0 };

	need(pl_comm_endpoint_send(k->e, k->c, &m, (void *)(uintptr_t)body, &e) == 0, "send", &e);
}

static struct pl_endpoint_event get(struct side *k, int kind)
{
	struct pl_endpoint_event ev;
	struct pl_err e = { 0 };

	need(pl_comm_endpoint_next(k->e, FOREVER, &ev, &e) == 0, "next", &e);
	snprintf(e.msg, sizeof(e.msg), "%s", ev.why ? ev.why : "another event than expected");
	need(ev.kind == kind, "an event", &e);
	return ev;
}

/* Both begin a part together: the receiver says that it is ready. */
static void together(struct side *k, bool sender)
{
	plain_all(k, !sender, (uint8_t[1]){ 0 }, 1);
}

static void stream_out(struct side *k)
{
	int left = k->n;

	if (!k->shared) {
		together(k, true);
		for (int i = 0; i < k->n; i++)
			plain_all(k, true, k->body[i % 2], k->bytes);
	}
	together(k, true);
	for (int i = 0; i < 2 && i < k->n; i++)
		send_one(k, k->body[i], k->bytes);
	for (int i = 2; left; left--) {
		void *p = get(k, PL_ENDPOINT_SENT).done;

		if (i++ < k->n)
			send_one(k, p, k->bytes);
	}
}

static void stream_in(struct side *k)
{
	double gb = (double)k->bytes * k->n;
	pl_ns from, plain, own;

	if (!k->shared)
		together(k, false);
	from = pl_now_ns();
	for (int i = 0; i < k->n; i++)
		if (k->shared)
			memcpy(k->copy, k->body[i % 2], k->bytes);
		else
			plain_all(k, false, k->copy, k->bytes);
	plain = pl_now_ns() - from;
	together(k, false);
	from = pl_now_ns();
	for (int i = 0; i < k->n; i++) {
		struct pl_endpoint_event ev = get(k, PL_ENDPOINT_MESSAGE);

		if (k->shared)
			memcpy(k->copy, ev.message.body, ev.message.bytes);
		pl_comm_endpoint_release(k->e, &ev);
	}
	own = pl_now_ns() - from;
	printf("%.3f %.3f\n", gb / (double)plain, gb / (double)own);
	fflush(stdout);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct side *k)
{
	qsort(k->us, (size_t)k->n, sizeof(*k->us), compare);
	return k->us[k->n / 2];
}

static void round_trips(struct side *k, bool first)
{
	uint8_t head[64] = { 0 };
	double plain = 0;

	for (int own = 0; own < 2; own++) {
		together(k, first);
		for (int i = 0; i < k->n; i++) {
			pl_ns from = pl_now_ns();

			if (first && own)
				send_one(k, NULL, 0);
			else if (first)
				plain_all(k, true, head, sizeof(head));
			if (own)
				get(k, PL_ENDPOINT_MESSAGE);
			else
				plain_all(k, false, head, sizeof(head));
			if (!first && own)
				send_one(k, NULL, 0);
			else if (!first)
				plain_all(k, true, head, sizeof(head));
			k->us[i] = (double)(pl_now_ns() - from) / 1e3;
		}
		if (first && own)
			printf("%.1f %.1f\n", plain, median(k));
		plain = median(k);
	}
	fflush(stdout);
}

static void prepare(struct side *k)
{
	struct pl_err e = { 0 };

	for (int i = 0; i < 2 && k->bytes; i++) {
		k->body[i] = pl_comm_endpoint_alloc(k->e, k->bytes, &e);
		need(k->body[i], "memory", &e);
		memset(k->body[i], i + 1, k->bytes);
	}
	k->copy = malloc(k->bytes + 1);
	k->us = calloc((size_t)k->n, sizeof(*k->us));
	need(k->copy && k->us, "memory", NULL);
	memset(k->copy, 1, k->bytes);
}

/* The plain socket between the two. */
static int listening(struct sockaddr_in *a)
{
	socklen_t n = sizeof(*a);
	int s = socket(AF_INET, SOCK_STREAM, 0);

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	need(s >= 0 && bind(s, (struct sockaddr *)a, sizeof(*a)) == 0 && listen(s, 1) == 0 &&
		     getsockname(s, (struct sockaddr *)a, &n) == 0,
	     "socket", NULL);
	return s;
}

/* One of the two processes; the receiver listens, and so is the one that prints bandwidth. */
static void run(struct side *k, const struct pl_endpoint_opts *o, const char *at, int s,
		const struct sockaddr_in *a)
{
	bool receiver = o->listen;
	struct pl_err e = { 0 };
	int on = 1;

	need(pl_comm_endpoint_open(o, &k->e, &e) == 0, "open", &e);
	if (receiver) {
		k->s = accept(s, NULL, NULL);
		k->c = get(k, PL_ENDPOINT_ACCEPTED).connection;
	} else {
		k->s = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(k->s, (const struct sockaddr *)a, sizeof(*a)) == 0, "connect", NULL);
		need(pl_comm_endpoint_connect(k->e, at, 1, pl_now_ns() + 10000000000, &k->c, &e) ==
			     0,
		     "connect", &e);
	}
	setsockopt(k->s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	prepare(k);
	for (int i = 0; i < k->turns; i++)
		if (!k->bytes)
			round_trips(k, receiver);
		else if (receiver)
			stream_in(k);
		else
			stream_out(k);
	together(k, !receiver);
	pl_comm_endpoint_close(k->e);
}

int main(int argc, char **argv)
{
	struct pl_endpoint_opts o = { .id = 1, .token = "measuring 0123456789" };
	struct sockaddr_in a;
	struct side k = { 0 };
	char dir[] = "/tmp/endspeed.XXXXXX", at[64];
	int s, st = 0;

	if (argc != 5 || (strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "shm") != 0) ||
	    atoi(argv[3]) < 1 || !mkdtemp(dir)) {
		fprintf(stderr, "usage: endspeed tcp|shm BYTES MESSAGES TURNS\n");
		return 2;
	}
	snprintf(at, sizeof(at), "dir:%s", dir);
	o.transport = argv[1];
	o.body_max = k.bytes = (size_t)atol(argv[2]);
	o.timeout_ns = 20000000000;
	k.shared = !strcmp(argv[1], "shm");
	k.n = atoi(argv[3]);
	k.turns = atoi(argv[4]);
	s = listening(&a);
	if (fork() == 0) {
		o.id = 2;
		run(&k, &o, at, s, &a);
		_exit(0);
	}
	o.listen = at;
	run(&k, &o, at, s, &a);
	wait(&st);
	rmdir(dir);
	return st ? 1 : 0;
}
