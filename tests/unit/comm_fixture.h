/* comm_fixture.h - worlds of forked processes. */
#ifndef PL_COMM_FIXTURE_H
#define PL_COMM_FIXTURE_H

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tap.h"

#define TOKEN "a token of the tests 0123456789"

__attribute__((unused)) static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((unused)) static void nap_ms(int ms)
{
	struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };

	nanosleep(&t, NULL);
}

/* A port that was free a moment ago. */
__attribute__((unused)) static int free_port(void)
{
	static unsigned n;

	for (int i = 0; i < 1000; i++) {
		/* below the ports that the system gives to connections, as one of them might come
		 * between this call and the use of the port; processes begin at different places */
		unsigned port = 10000 + ((unsigned)getpid() * 97 + n++) % 20000;
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_port = htons((uint16_t)port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		int s = socket(AF_INET, SOCK_STREAM, 0);
		bool is_free = s >= 0 && !bind(s, (struct sockaddr *)&a, sizeof(a));

		close(s);
		if (is_free)
			return (int)port;
	}
	abort();
}

/* A place to meet that nobody had before: tcp, or a folder where TMP is given. */
__attribute__((unused)) static const char *meeting(bool tcp)
{
	static char text[600];
	const char *tmp = getenv("TMP");
	static int n;

	if (tcp || !tmp) {
		snprintf(text, sizeof(text), "tcp:127.0.0.1:%d", free_port());
	} else {
		snprintf(text, sizeof(text), "dir:%s/%d", tmp, n++);
		mkdir(text + 4, 0700);
	}
	return text;
}

/* One rank: returns what its process ends with; 0 is fine. */
typedef int rank_fn(struct pl_world_opts *o, void *arg);

#define RANKS_MAX 16
struct ranks {
	int n;
	pid_t pid[RANKS_MAX];
	int status[RANKS_MAX]; /* -1: still runs */
	double held;	       /* seconds for which the machine let end_ranks() wait */
};

__attribute__((unused)) static struct ranks start_ranks(int n, const struct pl_world_opts *o,
							rank_fn *fn, void *arg)
{
	struct ranks r = { .n = n };

	fflush(stdout);
	for (int i = 0; i < n; i++) {
		r.status[i] = -1;
		r.pid[i] = fork();
		if (r.pid[i] == 0) {
			struct pl_world_opts mine = *o;

			mine.rank = i;
			mine.size = n;
			mine.token = mine.token ? mine.token : TOKEN;
			alarm(50);
			i = fn(&mine, arg);
			fflush(stdout);
			_exit(i);
		}
	}
	return r;
}

/* Until all have ended or `seconds` are over (then they are killed: a hang). */
__attribute__((unused)) static bool end_ranks(struct ranks *r, double seconds)
{
	double last = now_s(), until = last + seconds;
	int left = 0;

	do {
		double gap = now_s() - last;

		last += gap;
		r->held += gap > 0.05 ? gap : 0;
		left = 0;
		for (int i = 0; i < r->n; i++) {
			int st;

			if (r->status[i] == -1 && waitpid(r->pid[i], &st, WNOHANG) == r->pid[i])
				r->status[i] = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
			left += r->status[i] == -1;
		}
		if (left)
			nap_ms(2);
	} while (left && now_s() < until + r->held);
	for (int i = 0; i < r->n; i++)
		if (r->status[i] == -1) {
			kill(r->pid[i], SIGKILL);
			waitpid(r->pid[i], NULL, 0);
		}
	return left == 0;
}

/* All ranks end with 0 in time. */
__attribute__((unused)) static bool run_ranks(int n, const struct pl_world_opts *o, rank_fn *fn,
					      void *arg, double seconds)
{
	struct ranks r = start_ranks(n, o, fn, arg);
	bool fine = end_ranks(&r, seconds);

	for (int i = 0; i < n; i++) {
		if (r.status[i] != 0)
			printf("# rank %d of %d ended with %d\n", i, n, r.status[i]);
		fine &= r.status[i] == 0;
	}
	return fine;
}

/* For ranks: says what is wrong. */
#define NEED(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("# rank %d: line %d: %s (%s)\n", o->rank, __LINE__, #x, e.msg);     \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

#endif
