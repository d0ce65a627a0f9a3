/* endpoint_fixture.h - endpoints of a test, and their events. */
#ifndef PL_ENDPOINT_FIXTURE_H
#define PL_ENDPOINT_FIXTURE_H

#include "comm_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "comm/endpoint.h"
#include "comm/internal.h"

#define BODY_MAX ((size_t)64 << 20)
#define LONG_NS	 ((pl_ns)20000000000)

static struct pl_err err;
__attribute__((unused)) static double
	held; /* seconds for which the machine stopped this process in its waiting */
/* Where nothing is to be lost, so long that a busy machine does not look like a dead peer, and that
 * no heartbeat wakes a thread that forgot to look. */
static pl_ns timeout_ns = 120000000000;

/* ---- what all cases use ---- */

__attribute__((unused)) static const char *folder(void)
{
	const char *at = meeting(false);

	return strncmp(at, "dir:", 4) ? NULL : at;
}

__attribute__((unused)) static struct pl_endpoint_opts opts(uint32_t id, const char *listen_at,
							    const char *transport)
{
	return (struct pl_endpoint_opts){
		.id = id,
		.token = TOKEN,
		.listen = listen_at,
		.transport = transport,
		.timeout_ns = timeout_ns,
		.body_max = BODY_MAX,
	};
}

__attribute__((unused)) static struct pl_endpoint *open_one(uint32_t id, const char *listen_at,
							    const char *transport)
{
	struct pl_endpoint_opts o = opts(id, listen_at, transport);
	struct pl_endpoint *e = NULL;

	if (pl_comm_endpoint_open(&o, &e, &err) < 0)
		printf("# cannot open endpoint %u: %s\n", id, err.msg);
	return e;
}

/* The next event of that kind, of any if 0; others are released. */
__attribute__((unused)) static struct pl_endpoint_event get(struct pl_endpoint *e, int kind,
							    double seconds)
{
	pl_ns until = pl_now_ns() + (pl_ns)(seconds * 1e9);
	struct pl_endpoint_event ev;
	struct pl_err x = { 0 };

	do {
		pl_ns from = pl_now_ns();

		if (pl_comm_endpoint_next(e, pl_min_i64(until, from + 10000000), &ev, &x) < 0)
			return ev;
		from = pl_now_ns() - from - 15000000;
		if (from > 0) {
			held += (double)from / 1e9;
			until += from;
		}
		if (ev.kind && kind && ev.kind != kind)
			pl_comm_endpoint_release(e, &ev);
	} while ((kind ? ev.kind != kind : !ev.kind) && pl_now_ns() < until);
	if (kind && ev.kind != kind)
		ev.kind = PL_ENDPOINT_NOTHING;
	return ev;
}

struct pair { /* 0 listens, 1 has connected */
	struct pl_endpoint *e[2];
	uint32_t c[2];
};

__attribute__((unused)) static struct pair open_pair(const char *transport)
{
	const char *at = meeting(false);
	struct pair p = { { open_one(7, at, transport), open_one(8, NULL, transport) }, { 0 } };

	if (p.e[0] && p.e[1] &&
	    pl_comm_endpoint_connect(p.e[1], at, 7, pl_now_ns() + LONG_NS, &p.c[1], &err) == 0)
		p.c[0] = get(p.e[0], PL_ENDPOINT_ACCEPTED, 10).connection;
	if (!p.c[0])
		printf("# no pair: %s\n", err.msg);
	return p;
}

__attribute__((unused)) static void close_pair(struct pair *p)
{
	pl_comm_endpoint_close(p->e[1]);
	pl_comm_endpoint_close(p->e[0]);
}

__attribute__((unused)) static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += 64)
		p[i] = (uint8_t)(pl_rng_next(&seed) >> 8);
	if (n)
		p[n - 1] = (uint8_t)(seed >> 3);
}

__attribute__((unused)) static bool is_filled(const uint8_t *p, size_t n, uint64_t seed)
{
	bool fine = true;

	for (size_t i = 0; i < n; i += 64) {
		uint8_t want = (uint8_t)(pl_rng_next(&seed) >> 8);

		fine &= i == n - 1 || p[i] == want;
	}
	return fine && (!n || p[n - 1] == (uint8_t)(seed >> 3));
}

__attribute__((unused)) static int send_to(struct pl_endpoint *e, uint32_t c, uint64_t v,
					   const void *body, size_t bytes, void *done)
{
	struct pl_message m = { .kind = 1, .value = { v, ~v, 3, 4 }, .body = body, .bytes = bytes };

	err.code = 0;
	return pl_comm_endpoint_send(e, c, &m, done, &err);
}

__attribute__((unused)) static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
