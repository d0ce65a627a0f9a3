/*
 * endspeed - how fast messages pass between endpoints of this machine, beside what the same way
 * carries without them.
 *
 * usage: endspeed tcp|shm BYTES MESSAGES TURNS [RECEIVERS]
 *                                           (a line a turn: plain and own bandwidth in GB/s)
 *        endspeed tcp|shm 0 MESSAGES TURNS  (plain and own round trip, median, in us)
 *
 * Both are measured by turns, between the same processes. Plain: a stream over a socket of
 * loopback, in large pieces; in shared memory a copy out of it. Own: messages of that size, two on
 * their way at a time; in shared memory the receiver copies each body before it releases it, as the
 * plain copy does. Each of several receivers gets an equal part of each message, as servers get
 * slices of a commit; a turn lasts from the first one's beginning to the last one's end.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/endpoint.h"

#define FOREVER	  INT64_MAX
#define RECEIVERS 8

struct span {
	pl_ns begin, end;
};
struct peer {
	uint32_t c;
	int s; /* the plain socket */
	uint8_t *body[2];
	int left; /* messages that were not given to the endpoint yet */
};
struct side {
	struct pl_endpoint *e;
	struct peer peer[RECEIVERS]; /* of the sender: receivers; of a receiver: the sender */
	int peers;
	size_t bytes; /* of the part of one receiver */
	int n, turns;
	uint8_t *copy;
	double *us;
	struct span *span; /* of a receiver, in shared memory: [2 turns], plain and own */
	bool shared;
};

static void need(bool fine, const char *what, const struct pl_err *e)
{
	if (fine)
		return;
	fprintf(stderr, "endspeed: %s: %s\n", what, e && e->msg[0] ? e->msg : "failed");
	exit(4);
}

static void plain_all(struct peer *to, bool out, uint8_t *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t m = out ? send(to->s, p + at, n - at, MSG_NOSIGNAL)
				: recv(to->s, p + at, n - at, 0);

		need(m > 0, "plain socket", NULL);
		at += (size_t)m;
	}
}

static void send_one(struct side *k, struct peer *to, const void *body, size_t bytes)
{
	struct pl_message m = { .kind = 1, .body = body, .bytes = bytes };
	struct pl_err e = { 0 };

	to->left--;
	need(pl_comm_endpoint_send(k->e, to->c, &m, (void *)(uintptr_t)body, &e) == 0, "send", &e);
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

/* All begin a part together: the receivers say that they are ready, and the sender that all are. */
static void together(struct side *k, bool sender)
{
	for (int says = 0; says < 2; says++)
		for (int i = 0; i < k->peers; i++)
			plain_all(&k->peer[i], sender == says, (uint8_t[1]){ 0 }, 1);
}

static void stream_out(struct side *k)
{
	together(k, true);
	for (int i = 0; i < k->n && !k->shared; i++)
		for (int r = 0; r < k->peers; r++)
			plain_all(&k->peer[r], true, k->peer[r].body[i % 2], k->bytes);
	together(k, true);
	for (int r = 0; r < k->peers; r++) {
		k->peer[r].left = k->n;
		for (int i = 0; i < 2 && i < k->n; i++)
			send_one(k, &k->peer[r], k->peer[r].body[i], k->bytes);
	}
	for (int left = k->n * k->peers; left; left--) {
		struct pl_endpoint_event ev = get(k, PL_ENDPOINT_SENT);
		struct peer *to = k->peer;

		while (to->c != ev.connection)
			to++;
		if (to->left)
			send_one(k, to, ev.done, k->bytes);
	}
}

static void stream_in(struct side *k, struct span *span)
{
	struct peer *from = k->peer;

	together(k, false);
	span[0].begin = pl_now_ns();
	for (int i = 0; i < k->n; i++)
		if (k->shared)
			memcpy(k->copy, from->body[i % 2], k->bytes);
		else
			plain_all(from, false, k->copy, k->bytes);
	span[0].end = pl_now_ns();
	together(k, false);
	span[1].begin = pl_now_ns();
	for (int i = 0; i < k->n; i++) {
		struct pl_endpoint_event ev = get(k, PL_ENDPOINT_MESSAGE);

		if (k->shared)
			memcpy(k->copy, ev.message.body, ev.message.bytes);
		pl_comm_endpoint_release(k->e, &ev);
	}
	span[1].end = pl_now_ns();
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
				send_one(k, k->peer, NULL, 0);
			else if (first)
				plain_all(k->peer, true, head, sizeof(head));
			if (own)
				get(k, PL_ENDPOINT_MESSAGE);
			else
				plain_all(k->peer, false, head, sizeof(head));
			if (!first && own)
				send_one(k, k->peer, NULL, 0);
			else if (!first)
				plain_all(k->peer, true, head, sizeof(head));
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

	for (int i = 0; i < 2 * k->peers && k->bytes; i++) {
		uint8_t **body = &k->peer[i / 2].body[i % 2];

		*body = pl_comm_endpoint_alloc(k->e, k->bytes, &e);
		need(*body, "memory", &e);
		memset(*body, i + 1, k->bytes);
	}
	k->copy = malloc(k->bytes + 1);
	k->us = calloc((size_t)k->n, sizeof(*k->us));
	need(k->copy && k->us, "memory", NULL);
	memset(k->copy, 1, k->bytes);
}

/* The plain socket of a receiver. */
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

/* One of the processes; a receiver listens. s and a: of each receiver. */
static void run(struct side *k, const struct pl_endpoint_opts *o, const char *at, const int *s,
		const struct sockaddr_in *a)
{
	bool receiver = o->listen;
	struct pl_err e = { 0 };
	int on = 1;

	need(pl_comm_endpoint_open(o, &k->e, &e) == 0, "open", &e);
	for (int i = 0; i < k->peers; i++) {
		struct peer *p = &k->peer[i];

		if (receiver) {
			p->s = accept(s[o->id - 1], NULL, NULL);
			p->c = get(k, PL_ENDPOINT_ACCEPTED).connection;
		} else {
			p->s = socket(AF_INET, SOCK_STREAM, 0);
			need(connect(p->s, (const struct sockaddr *)&a[i], sizeof(*a)) == 0,
			     "connect", NULL);
			need(pl_comm_endpoint_connect(k->e, at, (uint32_t)i + 1,
						      pl_now_ns() + 10000000000, &p->c, &e) == 0,
			     "connect", &e);
		}
		setsockopt(p->s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	prepare(k);
	for (int i = 0; i < k->turns; i++)
		if (!k->bytes)
			round_trips(k, receiver);
		else if (receiver)
			stream_in(k, k->span + 2 * (size_t)i);
		else
			stream_out(k);
	together(k, !receiver);
	pl_comm_endpoint_close(k->e);
}

/* GB/s of all receivers together: from the first one's beginning to the last one's end. */
static double bandwidth(const struct side *k, const struct span *span, int receivers)
{
	pl_ns begin = INT64_MAX, end = 0;

	for (int r = 0; r < receivers; r++) {
		begin = pl_min_i64(begin, span[2 * r * k->turns].begin);
		end = pl_max_i64(end, span[2 * r * k->turns].end);
	}
	return (double)k->bytes * k->n * receivers / (double)(end - begin);
}

static bool number(const char *text, int most, int *v)
{
	*v = atoi(text);
	return *v >= 1 && *v <= most;
}

int main(int argc, char **argv)
{
	struct pl_endpoint_opts o = { .token = "measuring 0123456789", .timeout_ns = 20000000000 };
	struct sockaddr_in a[RECEIVERS];
	struct side k = { 0 };
	struct span *span;
	char dir[] = "/tmp/endspeed.XXXXXX", at[64];
	int s[RECEIVERS], st, bad = 0, receivers = 1;

	if (argc < 5 || argc > 6 || (strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "shm") != 0) ||
	    !number(argv[3], 1000000, &k.n) || !number(argv[4], 1000, &k.turns) ||
	    (argc == 6 && !number(argv[5], RECEIVERS, &receivers)) || !mkdtemp(dir)) {
		fprintf(stderr, "usage: endspeed tcp|shm BYTES MESSAGES TURNS [RECEIVERS]\n");
		return 2;
	}
	snprintf(at, sizeof(at), "dir:%s", dir);
	o.transport = argv[1];
	o.body_max = k.bytes = (size_t)atol(argv[2]) / (size_t)receivers;
	k.shared = !strcmp(argv[1], "shm");
	span = mmap(NULL, 2 * (size_t)receivers * (size_t)k.turns * sizeof(*span),
		    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(span != MAP_FAILED, "memory", NULL);
	for (int r = 0; r < receivers; r++)
		s[r] = listening(&a[r]);
	for (int r = 0; r <= receivers; r++)
		if (fork() == 0) {
			o.id = (uint32_t)r + 1;
			o.listen = r < receivers ? at : NULL;
			k.span = span + 2 * (size_t)r * (size_t)k.turns;
			k.peers = r < receivers ? 1 : receivers;
			run(&k, &o, at, s, a);
			exit(0);
		}
	while (wait(&st) > 0)
		bad |= st;
	for (int i = 0; i < 2 * k.turns && k.bytes && !bad; i++)
		printf("%.3f%c", bandwidth(&k, span + i, receivers), i % 2 ? '\n' : ' ');
	rmdir(dir);
	return bad ? 1 : 0;
}
