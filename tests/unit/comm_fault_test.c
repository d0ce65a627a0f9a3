/*
 * What goes wrong: ranks that die, stop, never start or give up; connections that swallow, reset or
 * half close; strangers. Every survivor ends with PL_EIO that names a rank and the operation,
 * within twice the timeout, and no sum is wrong.
 *
 * runner: waits, threads
 */
#include "comm_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "comm/internal.h"

#define TIMEOUT_NS 1000000000
#define LIMIT_S	   (2 * TIMEOUT_NS / 1e9)

enum fault { KILL, STOP, ABORT, LEAVE, LATE };

struct report { /* of a rank, in memory of all */
	int rc, wrong;
	double failed_at;
	char msg[500];
};
struct trial {
	const char *transport;
	enum fault fault;
	int victim;
	size_t count;
	bool async, shared;
	double *fault_at;
	struct report *report;
	int port; /* of rank 0; the others': behind a proxy */
	int proxied;
};

static void misbehave(const struct trial *t, struct pl_world *w)
{
	*t->fault_at = now_s();
	if (t->fault == KILL)
		raise(SIGKILL);
	if (t->fault == STOP)
		raise(SIGSTOP);
	if (t->fault == ABORT) {
		pl_comm_world_abort(w, "no more data");
		_exit(0);
	}
	if (t->fault == LEAVE) {
		struct pl_err e = { 0 };

		/* says good-bye, where the others still want something */
		_exit(pl_comm_world_close(w, &e) == 0 ? 1 : 0);
	}
}

static int work(struct pl_world *w, const struct trial *t, float *p, int i, struct pl_err *err)
{
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = t->count, .src = p, .dst = p };
	struct pl_work *k[3];
	int n = t->async ? 3 : 1, rc = 0;

	a.algo = (uint8_t)(i % 2 ? PL_CA_AUTO : i / 2 % PL_CA_COUNT_);
	a.count /= (size_t)n;
	if (i % 7 == 5)
		a.op = PL_OP_BROADCAST;
	for (int j = 0; j < n && rc >= 0; j++) {
		a.src = a.dst = p + (size_t)j * a.count;
		rc = pl_comm_world_begin(w, &a, &k[j], err);
		if (rc < 0)
			n = j;
	}
	for (int j = 0; j < n; j++) {
		int one = pl_comm_work_wait(k[j], err);

		rc = rc < 0 ? rc : one;
	}
	return rc;
}

static int rank_main(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct report *r = &t->report[o->rank];
	struct pl_err e = { 0 };
	char meet[64];
	struct pl_world *w;
	float *p;

	if (t->port) {
		snprintf(meet, sizeof(meet), "tcp:127.0.0.1:%d",
			 o->rank == t->victim ? t->proxied : t->port);
		o->meet = meet;
	}
	o->transport = t->transport;
	o->timeout_ns = TIMEOUT_NS;
	o->meet_ns = 5000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	p = t->shared ? pl_comm_world_alloc(w, t->count * sizeof(float), &e)
		      : malloc(t->count * sizeof(float));
	NEED(p);
	for (int i = 0; r->rc >= 0 && i < 100000; i++) {
		for (size_t j = 0; j < t->count; j++)
			p[j] = (float)(o->rank + 1);
		if (i == 20 && o->rank == t->victim && !t->port)
			misbehave(t, w);
		r->rc = work(w, t, p, i, &e);
		for (size_t j = 0; r->rc >= 0 && j < t->count; j++)
			r->wrong += p[j] != (i % 7 == 5 ? 1 : o->size * (o->size + 1) / 2);
	}
	r->failed_at = now_s();
	snprintf(r->msg, sizeof(r->msg), "%.490s", e.msg);
	pl_comm_world_abort(w, "failed");
	return 0;
}

/* Does it begin with the same words twice? */
static bool twice(const char *msg)
{
	size_t n = strcspn(msg, ":") + 2;

	return strlen(msg) > 2 * n && !strncmp(msg, msg + n, n);
}

/* All but the victim ended as they should; how many name it is as many as must. */
static void judge(const struct trial *t, int n, struct ranks *ranks, const char *what, bool names)
{
	char name[32];
	bool fine = true, named = true, quick = true;
	double worst = 0;

	snprintf(name, sizeof(name), "rank %d ", t->victim);
	for (int r = 0; r < n; r++) {
		const struct report *p = &t->report[r];
		double after = p->failed_at - *t->fault_at;

		if (r == t->victim)
			continue;
		fine &= p->rc == PL_EIO && !p->wrong && ranks->status[r] == 0 && !twice(p->msg) &&
			(strstr(p->msg, "all-reduce") || strstr(p->msg, "broadcast"));
		named &= strstr(p->msg, name) != NULL;
		quick &= after > -0.3 && after < LIMIT_S + ranks->held;
		worst = after > worst ? after : worst;
		if (p->rc != PL_EIO || p->wrong || !strstr(p->msg, name) || after > LIMIT_S)
			printf("# rank %d: %d after %.2f s, %d wrong, status %d: %s\n", r, p->rc,
			       after, p->wrong, ranks->status[r], p->msg);
	}
	ok(fine, "%s: the others fail, and nothing was wrong before", what);
	ok(named || !names, "%s: they name rank %d", what, t->victim);
	ok(quick, "%s: after %.2f s, within %.1f", what, worst, LIMIT_S + ranks->held);
}

static void one_trial(struct trial *t, int n, const char *what)
{
	struct pl_world_opts o = { .meet = meeting(true) };
	struct ranks r;
	bool ended;

	memset(t->report, 0, 16 * sizeof(*t->report));
	*t->fault_at = now_s();
	r = start_ranks(n, &o, rank_main, t);
	if (t->fault == STOP || t->fault == KILL) {
		/* the victim is not waited for */
		struct ranks others = r;

		others.pid[t->victim] = r.pid[n - 1];
		others.n = n - 1;
		if (t->victim == n - 1)
			others.pid[t->victim] = r.pid[n - 1];
		ended = end_ranks(&others, 15);
		for (int i = 0; i < n - 1; i++)
			r.status[i == t->victim ? n - 1 : i] = others.status[i];
		r.held = others.held;
		kill(r.pid[t->victim], SIGKILL);
		waitpid(r.pid[t->victim], NULL, 0);
	} else {
		ended = end_ranks(&r, 15);
	}
	ok(ended, "%s: nobody hangs", what);
	judge(t, n, &r, what, true);
}

static void test_ranks(struct trial *t)
{
	static const char *const name[] = { "SIGKILL", "SIGSTOP", "a rank that gives up",
					    "a rank that leaves" };
	char what[100];

	for (int f = KILL; f <= LEAVE; f++)
		for (int i = 0; i < 3; i++) {
			t->transport = i == 0 ? "tcp" : "shm";
			t->shared = i == 2;
			t->fault = (enum fault)f;
			t->victim = (f + i) % 3;
			t->count = i == 1 ? 1000 : 300000;
			t->async = i != 1;
			snprintf(what, sizeof(what), "%s, %s%s", name[f], t->transport,
				 t->shared ? ", memory of the world" : "");
			one_trial(t, 3, what);
		}
}

/* ---- a machine that stands still ---- */

#define PAUSE_NS 1000000000
#define LARGE	 ((size_t)1 << 20)

static int steady(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct pl_err e = { 0 };
	static float v[LARGE];
	double until = now_s() + 2.2 * PAUSE_NS / 1e9 + 0.8;
	struct pl_world *w;
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = t->count, .src = v, .dst = v };

	o->transport = t->transport;
	o->timeout_ns = PAUSE_NS / 3 * 2;
	o->meet_ns = 5000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	for (v[0] = 0; v[0] < 0.5f;) { /* until one of them has worked for long enough */
		v[0] = now_s() > until;
		for (size_t j = 1; j < t->count; j++)
			v[j] = (float)o->rank;
		NEED(pl_comm_world_do(w, &a, &e) == 0);
		for (size_t j = 1; j < t->count; j++)
			NEED(v[j] == (float)(o->size * (o->size - 1) / 2));
		nap_ms(t->count == 1 ? 5 : 0);
	}
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void tell(const struct ranks *r, int sig)
{
	for (int i = 0; i < r->n; i++)
		kill(r->pid[i], sig);
}

/* All stop for longer than the timeout: nobody is dead. */
static void test_pauses(struct trial *t)
{
	for (int i = 0; i < 3; i++) {
		struct pl_world_opts o = { .meet = meeting(true) };
		struct ranks r;

		t->transport = i == 1 ? "shm" : "tcp";
		t->count = i == 2 ? LARGE : 1;
		r = start_ranks(3, &o, steady, t);
		nap_ms(300);
		for (int k = 0; k < 2; k++) {
			tell(&r, SIGSTOP);
			nap_ms(PAUSE_NS / 1000000);
			tell(&r, SIGCONT);
			nap_ms(300);
		}
		ok(end_ranks(&r, 15) && !r.status[0] && !r.status[1] && !r.status[2],
		   "%s, %zu elements: all ranks stop for a while, and go on", t->transport,
		   t->count);
	}
}

/* One stops for ever; the others, again and again, for more than half a timeout. */
static void test_stutter(struct trial *t)
{
	struct pl_world_opts o = { .meet = meeting(true) };
	struct ranks r, others;
	double until;
	bool ended = false;

	memset(t->report, 0, 16 * sizeof(*t->report));
	t->transport = "tcp";
	t->shared = t->async = false;
	t->count = 1000;
	t->fault = STOP;
	t->victim = 2;
	*t->fault_at = 0;
	others = r = start_ranks(3, &o, rank_main, t);
	others.n = 2;
	until = now_s() + 20;
	while (*(volatile double *)t->fault_at <= 0 && now_s() < until)
		nap_ms(5);
	while (!ended && now_s() < until) {
		tell(&others, SIGSTOP);
		nap_ms(TIMEOUT_NS / 1000000 * 6 / 10);
		tell(&others, SIGCONT);
		nap_ms(300);
		ended = t->report[0].rc && t->report[1].rc;
	}
	ok(end_ranks(&others, 15) && ended, "ranks that stutter find who is stopped");
	kill(r.pid[2], SIGKILL);
	waitpid(r.pid[2], NULL, 0);
	ok(strstr(t->report[0].msg, "rank 2 ") && strstr(t->report[1].msg, "rank 2 "),
	   "... and name it");
}

/* ---- the wire ---- */

static pid_t start_proxy(int from, int to, const char *const *how, int *in)
{
	const char *build = getenv("BUILD");
	char path[600], a[16], b[16];
	int p[2], q[2];
	char ready[8];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/gen/netfault", build ? build : "build");
	snprintf(a, sizeof(a), "%d", from);
	snprintf(b, sizeof(b), "%d", to);
	if (pipe(p) < 0 || pipe(q) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		dup2(p[0], 0);
		dup2(q[1], 1);
		close(p[1]);
		close(q[0]);
		execl(path, path, a, b, how[0], how[1], how[1] ? how[2] : NULL, (char *)NULL);
		perror(path);
		_exit(126);
	}
	close(p[0]);
	close(q[1]);
	*in = p[1];
	if (read(q[0], ready, 6) != 6)
		printf("# the proxy did not start\n");
	close(q[0]);
	return pid;
}

static void test_wire(struct trial *t)
{
	/* connection 0 is the meeting and control, 1 messages, 2 and 3 data */
	static const struct {
		const char *what, *how[3];
	} c[] = {
		{ "a black hole", { "hole=500" } },
		{ "a black hole for data alone", { "hole=500", "skip=1" } },
		{ "a black hole for one connection", { "hole=500", "only=3" } },
		{ "a reset connection", { "reset=500" } },
		{ "a reset connection for data", { "reset=500", "only=2" } },
		{ "a half-open connection", { "half=500" } },
		{ "a half-open connection for data", { "half=500", "only=2" } },
	};
	struct pl_world_opts o = { 0 };

	for (size_t i = 0; i < PL_LEN(c); i++) {
		int in;
		pid_t proxy;
		struct ranks r;

		t->port = free_port();
		t->proxied = free_port();
		t->transport = "tcp";
		t->victim = 1;
		t->count = 99999;
		t->async = i % 2;
		t->shared = false;
		t->fault = LATE;
		memset(t->report, 0, 16 * sizeof(*t->report));
		proxy = start_proxy(t->proxied, t->port, c[i].how, &in);
		*t->fault_at = now_s() + 0.5;
		r = start_ranks(3, &o, rank_main, t);
		ok(end_ranks(&r, 15), "%s: nobody hangs", c[i].what);
		/* either side of the connection may be blamed */
		judge(t, 3, &r, c[i].what, false);
		if (!ok(strstr(t->report[2].msg, "rank 1 ") || strstr(t->report[2].msg, "rank 0 "),
			"%s: the third names one of the two", c[i].what))
			printf("# %s\n", t->report[2].msg);
		close(in);
		kill(proxy, SIGKILL);
		waitpid(proxy, NULL, 0);
	}
}

/* A slow way in small slices changes nothing but the time. */
static int through(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct pl_err e = { 0 };
	char meet[64];
	struct pl_world *w;
	static float p[50000];

	snprintf(meet, sizeof(meet), "tcp:127.0.0.1:%d", o->rank ? t->proxied : t->port);
	o->meet = meet;
	o->transport = "tcp";
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	for (int i = 0; i < 5; i++) {
		struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .src = p, .dst = p };

		a.count = 50000;
		for (int j = 0; j < 50000; j++)
			p[j] = (float)(j + o->rank);
		NEED(pl_comm_world_do(w, &a, &e) == 0);
		for (int j = 0; j < 50000; j++)
			NEED(p[j] == (float)(2 * j + 1));
	}
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void test_slow(struct trial *t)
{
	static const char *const how[3] = { "slice=777", "latency=3", "rate=4000000" };
	struct pl_world_opts o = { 0 };
	int in;
	pid_t proxy;

	t->port = free_port();
	t->proxied = free_port();
	proxy = start_proxy(t->proxied, t->port, how, &in);
	ok(run_ranks(2, &o, through, t, 20), "small slices, latency and a low rate");
	close(in);
	kill(proxy, SIGKILL);
	waitpid(proxy, NULL, 0);
}

/* ---- the meeting ---- */

static int alone(struct pl_world_opts *o, void *arg)
{
	struct pl_err e = { 0 };
	struct pl_world *w;
	double from = now_s();

	(void)arg;
	if (o->rank == 2)
		return 0; /* never starts */
	o->timeout_ns = TIMEOUT_NS;
	NEED(pl_comm_world_open(o, &w, &e) == PL_EIO);
	NEED(strstr(e.msg, "rank 2 never came") && now_s() - from < LIMIT_S);
	return 0;
}

static void count_warnings(void *arg, enum pl_level level, const char *text)
{
	(void)text;
	*(int *)arg += level == PL_LOG_WARN;
}

static int stranger(struct pl_world_opts *o, void *arg)
{
	int warnings = 0;
	struct pl_log log = { count_warnings, &warnings };
	struct pl_err e = { 0 };
	struct pl_world *w;
	static float p[10];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 10, .src = p, .dst = p };

	(void)arg;
	o->timeout_ns = 2 * TIMEOUT_NS;
	if (o->rank == 2) { /* the third is not one of them */
		o->token = "some other token 0123456";
		o->rank = 1;
		o->size = 2;
		NEED(pl_comm_world_open(o, &w, &e) == PL_EIO);
		NEED(strstr(e.msg, "wrong token") && strstr(e.msg, "the same PACELINE_TOKEN"));
		return 0;
	}
	o->size = 2;
	o->log = &log;
	nap_ms(o->rank ? 800 : 0); /* time enough for many tries of the third */
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	NEED(warnings <= 1);
	NEED(pl_comm_world_do(w, &a, &e) == 0);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

/* Noise at the door of rank 0. */
static void make_noise(int port, int ms)
{
	double until = now_s() + ms / 1e3;
	uint64_t seed = 5;

	while (now_s() < until) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_port = htons((uint16_t)port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		int s = socket(AF_INET, SOCK_STREAM, 0);
		uint8_t some[400];

		for (size_t i = 0; i < sizeof(some); i++)
			some[i] = (uint8_t)pl_rng_next(&seed);
		memcpy(some, "\1\0\0\0\170\0\0\0\0\0\0\0PLCOMM4\n", 20); /* a hello */
		if (connect(s, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		    send(s, some, pl_rng_next(&seed) % sizeof(some), MSG_NOSIGNAL) < 0)
			nap_ms(1);
		if (pl_rng_next(&seed) % 2) /* others stay and say nothing more */
			close(s);
		nap_ms(5);
	}
}

static void test_meeting(void)
{
	struct pl_world_opts o = { 0 };
	struct ranks r;
	int port = free_port();
	char text[64];

	for (int i = 0; i < 2; i++) {
		o.meet = meeting(i);
		ok(run_ranks(3, &o, alone, NULL, 10), "a rank that never starts, %.3s", o.meet);
	}
	snprintf(text, sizeof(text), "tcp:127.0.0.1:%d", port);
	o.meet = text;
	ok(run_ranks(3, &o, stranger, NULL, 10), "who has another token stays outside");
	r = start_ranks(2, &o, stranger, NULL);
	make_noise(port, 150);
	ok(end_ranks(&r, 10) && r.status[0] == 0 && r.status[1] == 0, "noise at the door");
}

/* ---- memory and descriptors run out ---- */

static int poor(struct pl_world_opts *o, void *arg)
{
	char n[16];
	struct pl_err e = { 0 };
	struct pl_world *w;
	float *p, keep[3000] = { 0 };
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 3000, .src = keep, .dst = keep };
	int rc;

	if (o->rank) {
		snprintf(n, sizeof(n), "%d", *(int *)arg);
		setenv("PL_FAIL", n, 1);
	}
	o->timeout_ns = TIMEOUT_NS;
	o->meet_ns = 200000000;
	rc = pl_comm_world_open(o, &w, &e);
	if (rc < 0) {
		NEED(rc == e.code && e.msg[0]);
		return 0;
	}
	p = pl_comm_world_alloc(w, 40000, &e);
	rc = p ? 0 : e.code;
	/* what the others read is the first cause: whose failure it is */
	NEED(p || o->rank || strstr(e.msg, "rank 1 "));
	for (int i = 0; i < 4 && rc >= 0; i++) {
		a.algo = (uint8_t)i;
		rc = pl_comm_world_do(w, &a, &e);
	}
	NEED(rc == 0 || (rc == e.code && e.msg[0]));
	pl_comm_world_free(w, p);
	pl_comm_world_abort(w, "out of memory");
	return 0;
}

/* It ends without memory, and closes only what it has opened. */
static int closes(struct pl_world_opts *o, void *arg)
{
	char n[16];
	struct pl_err e = { 0 };
	struct pl_world *w;

	snprintf(n, sizeof(n), "%d", *(int *)arg);
	NEED(dup2(1, 0) == 0);
	setenv("PL_FAIL", n, 1);
	o->size = 2;
	o->timeout_ns = 50000000;
	NEED(pl_comm_world_open(o, &w, &e) < 0 && e.msg[0]);
	NEED(fcntl(0, F_GETFD) >= 0);
	return 0;
}

static void test_memory(void)
{
	static const char *const transport[] = { "tcp", "shm" };
	struct pl_world_opts o = { 0 };
	bool fine = true;

	for (int i = 0; i < 2; i++) {
		for (int n = 1; n < 60; n += 4 + n / 8) {
			o.transport = transport[i];
			o.meet = meeting(false);
			fine &= run_ranks(2, &o, poor, &n, 10);
		}
		ok(fine, "%s: a rank that runs out of memory or descriptors", transport[i]);
	}
	fine = true;
	for (int n = 1; n <= 12; n++) {
		o.meet = meeting(false);
		fine &= run_ranks(1, &o, closes, &n, 10);
	}
	ok(fine, "a rank without memory closes no descriptor of others");
}

/* ---- a rank that moves its data slowly ---- */

#define TURN_MS 250 /* of a piece of 256 KiB */
#define PIECES	8   /* of a rank */

/* Rank 1 takes several timeouts for its part of a sum in shared memory, then it begins one and does
 * nothing for it. */
static int crawl(struct pl_world_opts *o, void *arg)
{
	size_t n = ((size_t)2 * PIECES << 18) / sizeof(float);
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = n };
	struct pl_err e = { 0 };
	struct pl_world *w;
	struct pl_work *k;
	float *v;

	(void)arg;
	o->transport = "shm";
	o->timeout_ns = 3 * TURN_MS * 1000000;
	o->meet_ns = 10000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	v = pl_comm_world_alloc(w, n * sizeof(float), &e);
	NEED(v);
	a.src = a.dst = v;
	for (size_t i = 0; i < n; i++)
		v[i] = 1;
	if (!o->rank) {
		NEED(pl_comm_world_do(w, &a, &e) == 0 && v[0] > 1.5f && v[n - 1] > 1.5f);
		NEED(pl_comm_world_do(w, &a, &e) == PL_EIO);
		NEED(strstr(e.msg, "rank 1 (its part), which lives but moves no data"));
		pl_comm_world_abort(w, "it was late");
		return 0;
	}
	pthread_mutex_lock(&w->lock); /* the threads of the world leave the engine alone */
	while (w->driving)
		pl_comm_wait_for(&w->resume, &w->lock, 1000000);
	w->driving = true;
	pthread_mutex_unlock(&w->lock);
	NEED(pl_comm_world_begin(w, &a, &k, &e) == 0);
	while (!pl_comm_work_done(k)) {
		pl_comm_engine_step(w, true);
		nap_ms(TURN_MS);
	}
	NEED(v[0] > 1.5f && v[n - 1] > 1.5f);
	NEED(pl_comm_world_begin(w, &a, &k, &e) == 0);
	while (!atomic_load(&w->failed))
		nap_ms(10);
	pthread_mutex_lock(&w->lock);
	w->driving = false;
	pthread_mutex_unlock(&w->lock);
	pl_comm_world_abort(w, "done");
	return 0;
}

static void test_crawl(void)
{
	struct pl_world_opts o = { .meet = meeting(false) };

	ok(run_ranks(2, &o, crawl, NULL, 30),
	   "a rank that takes several timeouts for its part in shared memory is not late");
}

/* ---- counters in shared memory ---- */

/* Rank 1 writes nonsense where it says how much it has read: rank 0 writes no more than fits. */
static int nonsense(struct pl_world_opts *o, void *arg)
{
	static float p[200000];
	struct pl_coll_args a = { .op = PL_OP_SEND, .count = 200000, .src = p, .root = 1 };
	struct pl_err e = { 0 };
	struct pl_world *w;
	int rc;

	(void)arg;
	o->transport = "shm";
	o->timeout_ns = TIMEOUT_NS;
	o->patience_ns = TIMEOUT_NS;
	o->segment = (size_t)4 << 20;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	if (o->rank) {
		atomic_store(&w->peer[0].conn[0].in->tail, UINT64_MAX / 2);
		nap_ms(2500);
		pl_comm_world_abort(w, "done");
		return 0;
	}
	nap_ms(300);
	rc = pl_comm_world_do(w, &a, &e);
	NEED(rc == PL_EIO && atomic_load(&w->peer[1].conn[0].out->head) <= PL_RING_BYTES);
	pl_comm_world_abort(w, "failed");
	return 0;
}

static void test_nonsense(void)
{
	struct pl_world_opts o = { .meet = meeting(false) };

	ok(run_ranks(2, &o, nonsense, NULL, 10),
	   "a wrong counter in shared memory overruns nothing");
}

int main(void)
{
	uint8_t *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trial t = { .fault_at = (double *)(void *)m,
			   .report = (struct report *)(void *)(m + 64) };

	signal(SIGPIPE, SIG_IGN);
	test_meeting();
	test_memory();
	test_nonsense();
	test_crawl();
	test_ranks(&t);
	test_pauses(&t);
	test_stutter(&t);
	test_wire(&t);
	test_slow(&t);
	return done_testing();
}
