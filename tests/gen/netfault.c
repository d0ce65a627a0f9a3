/*
 * netfault - a TCP proxy with faults: everything that comes to one port goes to another, late,
 * slowly, not at all, or until the connection is broken.
 *
 * usage: netfault LISTEN-PORT TARGET-PORT [KEY=VALUE]...    LISTEN-PORT 0: a free one
 *
 *     latency=MS     each block of bytes is held back so long
 *     rate=BYTES     a second, each way and connection
 *     hole=MS        MS after the start of the proxy nothing passes any more, connections stay open
 *     reset=MS       then all connections are reset
 *     half=MS        then the way to the target is shut, the other goes on (half-open)
 *     only=N         faults only on the N-th connection (from 0)
 *     skip=N         connections before the N-th have no fault (-1: all have)
 *     slice=BYTES    at most so many pass at once
 *     wait=1         the times count from the first byte on standard input
 *
 * "ready PORT" on standard output says where it listens. Ends with its standard input, or when
 * killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAIRS  128
#define BLOCK  65536
#define BLOCKS 64

struct block {
	int64_t due;
	size_t n, at;
	uint8_t *p;
};
struct direction { /* from one socket to the other */
	int from, to;
	struct block block[BLOCKS];
	unsigned head, n;
	int64_t free_at;
	bool shut; /* nothing more comes */
};
struct pair {
	int fd[2];
	struct direction direction[2];
	bool open, faulty, cut;
};

static struct pair pair[PAIRS];
static int n_pairs;
static double latency, rate, hole = -1, reset = -1, half = -1, only = -1, skip = -1, slice = BLOCK,
			     held;
static int64_t start;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool after(const struct pair *p, double ms)
{
	return p->faulty && ms >= 0 && held <= 0 && (double)(now_ms() - start) >= ms;
}

static void option(const char *s)
{
	static const struct {
		const char *name;
		double *value;
	} key[] = { { "latency", &latency }, { "rate", &rate },	  { "hole", &hole },
		    { "reset", &reset },     { "half", &half },	  { "only", &only },
		    { "skip", &skip },	     { "slice", &slice }, { "wait", &held } };

	for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++) {
		size_t n = strlen(key[i].name);

		if (!strncmp(s, key[i].name, n) && s[n] == '=') {
			*key[i].value = atof(s + n + 1);
			return;
		}
	}
	fprintf(stderr, "netfault: unknown option %s\n", s);
	exit(2);
}

static int endpoint(int port, bool server)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int on = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (server ? bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 256) < 0
		   : connect(s, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(s);
		return -1;
	}
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!server)
		fcntl(s, F_SETFL, O_NONBLOCK);
	return s;
}

static void drop(struct pair *p, bool hard)
{
	struct linger l = { 1, 0 };

	for (int i = 0; i < 2; i++) {
		if (hard)
			setsockopt(p->fd[i], SOL_SOCKET, SO_LINGER, &l, sizeof(l));
		close(p->fd[i]);
	}
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < BLOCKS; k++)
			free(p->direction[i].block[k].p);
	p->open = false;
}

static void welcome(int door, int port)
{
	int in = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), out, on = 1;
	struct pair *p;

	if (in < 0)
		return;
	out = n_pairs < PAIRS ? endpoint(port, false) : -1;
	/* who is to be reached may not have started */
	for (int i = 0; i < 200 && out < 0 && n_pairs < PAIRS; i++) {
		nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
		out = endpoint(port, false);
	}
	if (out < 0) {
		close(in);
		return;
	}
	setsockopt(in, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	p = &pair[n_pairs];
	memset(p, 0, sizeof(*p));
	p->fd[0] = in;
	p->fd[1] = out;
	p->direction[0].from = p->direction[1].to = in;
	p->direction[0].to = p->direction[1].from = out;
	p->open = true;
	p->faulty = (only < 0 || n_pairs == (int)only) && n_pairs >= (int)skip;
	n_pairs++;
}

static void take(struct pair *p, struct direction *w)
{
	struct block *b = &w->block[(w->head + w->n) % BLOCKS];
	int64_t now = now_ms();
	ssize_t n;

	if (!b->p)
		b->p = malloc(BLOCK);
	n = b->p ? recv(w->from, b->p, (size_t)slice, 0) : -1;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		w->shut = true;
		if (!w->n)
			shutdown(w->to, SHUT_WR);
		return;
	}
	b->n = (size_t)n;
	b->at = 0;
	b->due = now;
	if (p->faulty && rate > 0) {
		w->free_at =
			(w->free_at > now ? w->free_at : now) + (int64_t)((double)n * 1000 / rate);
		b->due = w->free_at;
	}
	if (p->faulty)
		b->due += (int64_t)latency;
	w->n++;
}

static void give(struct direction *w)
{
	while (w->n && w->block[w->head].due <= now_ms()) {
		struct block *b = &w->block[w->head];
		ssize_t n = send(w->to, b->p + b->at, b->n - b->at, MSG_NOSIGNAL);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				w->n = 0, w->shut = true;
			return;
		}
		b->at += (size_t)n;
		if (b->at < b->n)
			return;
		w->head = (w->head + 1) % BLOCKS;
		if (--w->n == 0 && w->shut)
			shutdown(w->to, SHUT_WR);
	}
}

static void serve(struct pair *p, const short *ready)
{
	if (after(p, reset)) {
		drop(p, true);
		return;
	}
	if (after(p, half) && !p->cut) {
		shutdown(p->fd[1], SHUT_WR);
		p->cut = true;
	}
	if (after(p, hole))
		return;
	for (int i = 0; i < 2; i++) {
		struct direction *w = &p->direction[i];

		if (p->cut && i == 0)
			continue;
		if ((ready[i] & (POLLIN | POLLHUP | POLLERR)) && !w->shut && w->n < BLOCKS)
			take(p, w);
		give(w);
	}
	if (p->direction[0].shut && p->direction[1].shut && !p->direction[0].n &&
	    !p->direction[1].n)
		drop(p, false);
}

int main(int argc, char **argv)
{
	static struct pollfd f[2 + 2 * PAIRS];
	static short ready[2 + 2 * PAIRS];
	struct sockaddr_in a = { 0 };
	socklen_t size = sizeof(a);
	int door, port;

	if (argc < 3) {
		fprintf(stderr, "usage: netfault LISTEN-PORT TARGET-PORT [KEY=VALUE]...\n");
		return 2;
	}
	for (int i = 3; i < argc; i++)
		option(argv[i]);
	if (slice < 1 || slice > BLOCK)
		slice = BLOCK;
	start = now_ms();
	door = endpoint(atoi(argv[1]), true);
	port = atoi(argv[2]);
	if (door < 0 || getsockname(door, (struct sockaddr *)&a, &size) < 0) {
		perror("netfault: listen");
		return 4;
	}
	printf("ready %d\n", ntohs(a.sin_port));
	fflush(stdout);
	for (;;) {
		int n = n_pairs;

		f[0] = (struct pollfd){ .fd = door, .events = POLLIN };
		f[1] = (struct pollfd){ .fd = 0, .events = POLLIN };
		for (int i = 0; i < 2 * n; i++) {
			struct pair *p = &pair[i / 2];
			struct direction *w = &p->direction[i & 1];
			bool deaf = !p->open || w->shut || w->n == BLOCKS || after(p, hole) ||
				    (p->cut && !(i & 1));

			f[2 + i] = (struct pollfd){ .fd = deaf ? -1 : w->from, .events = POLLIN };
		}
		poll(f, 2 + 2 * (nfds_t)n, 1);
		for (int i = 0; i < 2 * n; i++)
			ready[i] = f[2 + i].fd < 0 ? 0 : f[2 + i].revents;
		if (f[0].revents)
			welcome(door, port);
		if (f[1].revents) {
			char some[64];

			if (read(0, some, sizeof(some)) <= 0)
				return 0;
			if (held > 0)
				start = now_ms();
			held = 0;
		}
		for (int i = 0; i < n; i++)
			if (pair[i].open)
				serve(&pair[i], &ready[2 * i]);
	}
}
