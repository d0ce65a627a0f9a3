/*
 * commspeed - how fast the ranks of this machine pass data: forks them, prints one line a size.
 *
 * usage: commspeed TRANSPORT RANKS OPERATION ALGORITHM FROM TO [ITERATIONS [CONNECTIONS [SEGMENT]]]
 *
 * Columns: bytes, algorithm, mean, median and 99th percentile in microseconds, bus bandwidth in
 * GB/s by the mean and by the median, wrong elements. ALGORITHM all: each that the operation has,
 * by turns in one world; a line more names what auto takes.
 *
 * Environment: IN_PLACE, PRIVATE (memory of the rank's own); GBIT and LATENCY_US slow all links
 * down.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/internal.h"

static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int s = socket(AF_INET, SOCK_STREAM, 0);

	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockname(s, (struct sockaddr *)&a, &n) < 0)
		return -1;
	close(s);
	return ntohs(a.sin_port);
}

/* One algorithm, one size. */
static int measure(struct pl_world *w, struct pl_comm_bench_opts *b, int iterations,
		   struct pl_err *e)
{
	struct pl_comm_bench_result r;
	size_t n = b->bytes;
	int rc;

	b->iterations = iterations     ? iterations
			: n > 16 << 20 ? 5
			: n > 1 << 20  ? 10
			: n > 64 << 10 ? 50
				       : 500;
	b->warmup = b->iterations / 5 + 1;
	rc = pl_comm_bench(w, b, &r, e);
	if (rc < 0 || pl_comm_world_rank(w))
		return rc;
	printf("%10zu %-12s %10.1f %10.1f %10.1f %8.2f %8.2f %6lld\n", r.bytes,
	       pl_comm_algorithm_name(r.algo), (double)r.mean / 1e3, (double)r.median / 1e3,
	       (double)r.p99 / 1e3, r.busbw,
	       r.busbw * (double)r.mean / (double)(r.median ? r.median : 1), (long long)r.wrong);
	fflush(stdout);
	return 0;
}

#define TURNS 15

/* All algorithms. */
static int compare(struct pl_world *w, struct pl_comm_bench_opts *b, int iterations,
		   struct pl_err *e)
{
	int rc = 0;

	for (int i = 0; rc >= 0 && i < TURNS; i++)
		for (b->algo = PL_CA_RING; rc >= 0 && b->algo < PL_CA_COUNT_; b->algo++)
			if (b->algo != PL_CA_HIERARCHICAL) /* one host: a tree of two levels */
				rc = measure(w, b, iterations, e);
	if (rc >= 0 && !pl_comm_world_rank(w))
		printf("%10zu auto %s\n", b->bytes,
		       pl_comm_algorithm_name(pl_comm_algo(w, b->op, PL_CA_AUTO, b->bytes)));
	fflush(stdout);
	return rc;
}

static int sweep(const struct pl_world_opts *o, struct pl_comm_bench_opts *b, size_t from,
		 size_t to, bool all, int iterations)
{
	struct pl_err e = { 0 };
	struct pl_world *w;
	int rc = pl_comm_world_open(o, &w, &e);

	for (size_t n = from; rc >= 0 && n <= to; n *= 4) {
		b->bytes = n;
		rc = all ? compare(w, b, iterations, &e) : measure(w, b, iterations, &e);
	}
	if (rc < 0)
		fprintf(stderr, "commspeed: rank %d: %s\n", o->rank, e.msg);
	else if (pl_comm_world_close(w, &e) < 0)
		rc = e.code;
	return rc < 0;
}

/* All links as the environment says. */
static void slow_down(struct pl_world_opts *o, struct pl_link_shape *s)
{
	const char *gbit = getenv("GBIT"), *us = getenv("LATENCY_US");

	*s = (struct pl_link_shape){ .from = -1, .to = -1 };
	s->bytes_per_ns = gbit ? atof(gbit) / 8 : 0;
	s->latency_ns = us ? atoi(us) * 1000 : 0;
	o->shape = s;
	o->n_shapes = gbit || us;
}

int main(int argc, char **argv)
{
	struct pl_comm_bench_opts b = { 0 };
	struct pl_world_opts o = { .token = "measuring 0123456789", .patience_ns = 60000000000 };
	struct pl_link_shape shape;
	bool all = argc > 4 && !strcmp(argv[4], "all");
	int op, algo, bad = 0, iterations;
	char meet[64];

	if (argc < 7 || (op = pl_comm_operation_find(argv[3])) < 0 ||
	    (algo = pl_comm_algorithm_find(all ? "auto" : argv[4])) < 0) {
		fprintf(stderr, "usage: commspeed TRANSPORT RANKS OPERATION ALGORITHM FROM TO "
				"[ITERATIONS [CONNECTIONS [SEGMENT]]]\n");
		return 2;
	}
	o.transport = argv[1];
	o.size = atoi(argv[2]);
	b.op = (uint8_t)op;
	b.algo = (uint8_t)algo;
	iterations = argc > 7 ? atoi(argv[7]) : 0;
	o.connections = argc > 8 ? atoi(argv[8]) : 0;
	o.segment = argc > 9 ? (size_t)atol(argv[9]) : 0;
	b.private_memory = getenv("PRIVATE") != NULL;
	b.in_place = getenv("IN_PLACE") != NULL;
	slow_down(&o, &shape);
	snprintf(meet, sizeof(meet), "tcp:127.0.0.1:%d", free_port());
	o.meet = meet;
	for (o.rank = 0; o.rank < o.size; o.rank++)
		if (fork() == 0)
			_exit(sweep(&o, &b, (size_t)atol(argv[5]), (size_t)atol(argv[6]), all,
				    iterations));
	for (int i = 0; i < o.size; i++) {
		int st;

		wait(&st);
		bad |= st;
	}
	return bad ? 1 : 0;
}
