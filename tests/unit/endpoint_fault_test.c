/*
 * Peers of an endpoint that die, stop, fall silent or send nonsense: each is lost within two
 * timeouts, and nothing else is. Shaped links take the time that they say.
 *
 * runner: alone, threads
 */
#include "endpoint_fixture.h"

#define TIMEOUT_NS 300000000
#define LIMIT_S	   (2 * TIMEOUT_NS / 1e9)

/* ---- peers in other processes ---- */

static pid_t fork_server(const char *at)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct pl_endpoint *e;

		alarm(50);
		e = open_one(7, at, "tcp");
		while (e) { /* an echo */
			struct pl_endpoint_event ev = get(e, PL_ENDPOINT_MESSAGE, 1);

			if (ev.kind)
				(void)!send_to(e, ev.connection, ev.message.value[0], NULL, 0,
					       NULL);
			if (ev.kind)
				pl_comm_endpoint_release(e, &ev);
		}
		_exit(1);
	}
	return pid;
}

/* Starts and kills servers; of one thread, since threads and forks do not go together. */
static pid_t fork_starter(const char *at, int *command)
{
	int to[2];
	char c;
	pid_t pid, server = 0;

	if (pipe(to) < 0)
		return -1;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(to[1]);
		while (read(to[0], &c, 1) == 1)
			if (c == 's')
				server = fork_server(at);
			else
				end_child(server);
		_exit(0);
	}
	close(to[0]);
	*command = to[1];
	return pid;
}

static void test_restart(void)
{
	char at[600];
	struct pl_endpoint *b;
	struct pl_endpoint_event ev;
	int command = -1;
	pid_t pid;
	uint32_t c;
	double from = now_s();

	if (!folder()) {
		skip("a server that is started again", "no TMP");
		return;
	}
	snprintf(at, sizeof(at), "%s", folder());
	pid = fork_starter(at, &command);
	b = open_one(8, NULL, "tcp");
	err.code = 0;
	ok(pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + 150000000, &c, &err) == PL_EIO &&
		   now_s() - from < 3,
	   "nobody listens: %s", err.msg);
	err.code = 0;
	err.msg[0] = '\0';
	for (int i = 0; i < 3 && write(command, "s", 1) == 1; i++) {
		ok(pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) == 0,
		   "start %d: it is found %s", i, err.msg);
		ok(send_to(b, c, 5, NULL, 0, NULL) == 0 &&
			   get(b, PL_ENDPOINT_MESSAGE, 5).message.value[0] == 5,
		   "and answers");
		from = now_s();
		if (write(command, "k", 1) != 1) /* its file stays */
			break;
		ev = get(b, PL_ENDPOINT_LOST, 5);
		ok(ev.kind && ev.connection == c && !ev.goodbye && now_s() - from < LIMIT_S + held,
		   "killed: lost after %.3f s (%s)", now_s() - from, ev.why ? ev.why : "");
	}
	close(command);
	waitpid(pid, NULL, 0);
	pl_comm_endpoint_close(b);
}

enum fault { KILL, STOP, N_FAULTS };

/* The peer of a child dies or stops; the child listens, or has connected. */
static void test_process(enum fault f, bool listens)
{
	static const char *const name[] = { "SIGKILL", "SIGSTOP" };
	char at[600];
	struct pl_endpoint *e;
	struct pl_endpoint_event ev;
	uint32_t c = 0;
	double from;
	pid_t pid;

	snprintf(at, sizeof(at), "%s", meeting(false));
	fflush(stdout);
	pid = listens ? fork_server(at) : fork();
	if (pid == 0) {
		e = open_one(8, NULL, "tcp");
		if (pl_comm_endpoint_connect(e, at, 7, pl_now_ns() + LONG_NS, &c, &err) == 0)
			nap_ms(30000);
		printf("# the peer: %s\n", err.msg);
		fflush(stdout);
		_exit(1);
	}
	e = listens ? open_one(8, NULL, "tcp") : open_one(7, at, "tcp");
	if (listens && pl_comm_endpoint_connect(e, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	if (!listens)
		c = get(e, PL_ENDPOINT_ACCEPTED, 10).connection;
	ok(!get(e, PL_ENDPOINT_LOST, LIMIT_S).kind, "%s: before it nothing is lost", name[f]);
	held = 0;
	from = now_s();
	kill(pid, f == KILL ? SIGKILL : SIGSTOP);
	ev = get(e, PL_ENDPOINT_LOST, 10);
	from = now_s() - from;
	ok(ev.kind && ev.connection == c && from < (f == KILL ? 0.15 : LIMIT_S) + held,
	   "%s of a peer that %s: lost after %.3f s (%s)", name[f],
	   listens ? "listens" : "has connected", from, ev.why ? ev.why : "");
	end_child(pid);
	pl_comm_endpoint_close(e);
}

/* The process that was stopped itself: its peers have dropped it, and it says so. */
static void test_stopped(int ms, bool lost)
{
	char at[600];
	struct pl_endpoint *e;
	struct pl_endpoint_event ev;
	int status = -1;
	pid_t pid;
	uint32_t c;

	snprintf(at, sizeof(at), "%s", meeting(false));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(50);
		e = open_one(8, NULL, "tcp");
		if (pl_comm_endpoint_connect(e, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
			_exit(9);
		ev = get(e, PL_ENDPOINT_LOST, 5);
		if (ev.kind)
			printf("# the stopped one: %s\n", ev.why);
		fflush(stdout);
		_exit(!ev.kind ? 1 : strncmp(ev.why, "it gave no sign", 15) ? 2 : 3);
	}
	e = open_one(7, at, "tcp");
	get(e, PL_ENDPOINT_ACCEPTED, 10);
	kill(pid, SIGSTOP);
	ev = get(e, PL_ENDPOINT_LOST, ms / 1e3);
	kill(pid, SIGCONT);
	if (!lost)
		ok(!get(e, PL_ENDPOINT_LOST, 1).kind, "stopped for %d ms: not lost", ms);
	else
		ok(ev.kind && strstr(ev.why, "no sign of life"), "stopped for %d ms: lost", ms);
	if (lost)
		waitpid(pid, &status, 0);
	ok(!lost || (WIFEXITED(status) && WEXITSTATUS(status) == 2),
	   "and it does not accuse its peer of its own pause");
	end_child(pid);
	pl_comm_endpoint_close(e);
}

/* The machine stands still: two processes are stopped together, and neither loses the other. */
static void test_both_stopped(void)
{
	char at[600];
	pid_t pid[2];
	int status[2];
	uint32_t c;

	snprintf(at, sizeof(at), "%s", meeting(false));
	fflush(stdout);
	for (uint32_t i = 0; i < 2; i++) {
		struct pl_endpoint *e;
		struct pl_endpoint_event ev;

		pid[i] = fork();
		if (pid[i])
			continue;
		alarm(50);
		e = open_one(7 + i, i ? NULL : at, "tcp");
		if (i && pl_comm_endpoint_connect(e, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
			_exit(9);
		ev = get(e, PL_ENDPOINT_LOST, 3); /* the other one may end before this one */
		if (ev.kind && strstr(ev.why, "no sign of life"))
			_exit(1);
		_exit(0);
	}
	nap_ms(500);
	for (int i = 0; i < 4; i++) {
		kill(pid[i % 2], i < 2 ? SIGSTOP : SIGCONT);
		nap_ms(i == 1 ? 1000 : 0);
	}
	for (int i = 0; i < 2; i++)
		waitpid(pid[i], &status[i], 0);
	ok(status[0] == 0 && status[1] == 0, "stopped together for 1000 ms: nobody is lost");
}

/* ---- peers that misbehave on the wire ---- */

#define NONCE 0x1234567

static bool describe(struct pl_frame *mine, const struct pl_frame *theirs, int memory)
{
	mine->endpoint.host = theirs->endpoint.host;
	mine->endpoint.pid = getpid();
	mine->endpoint.fd = memory;
	mine->endpoint.nonce = NONCE;
	return true;
}

/* A connection to an endpoint, greeted by hand, with that memory to share; -1. */
static int greeted(const char *at, int memory)
{
	struct pl_rank_info who = { .size = 1 };
	struct pl_link l = { .fd = -1 };
	pl_ns until = pl_now_ns() + LONG_NS;
	struct pl_frame f, mine = { .kind = PL_FRAME_ENDPOINT, .rank = 9 };
	char host[100];
	int port;

	mine.endpoint.timeout = TIMEOUT_NS;
	err.code = 0;
	if (pl_comm_net_parse(at, host, sizeof(host), &port, &err) < 0 ||
	    pl_comm_net_connect(host, port, until, &l.fd, &err) < 0 ||
	    pl_comm_link_greet(&l, TOKEN, &who, 0xffff, until, &err) < 0 ||
	    pl_comm_link_read(&l, &f, until, &err) < 0 || !describe(&mine, &f, memory) ||
	    pl_comm_link_write(&l, &mine, until, &err) < 0 ||
	    pl_comm_link_read(&l, &f, until, &err) < 0)
		printf("# %s\n", err.msg);
	return l.fd;
}

enum wire {
	SILENT,
	HALF_OPEN,
	RESET,
	GARBAGE,
	CUT_BODY,
	CUT_HEAD,
	HUGE,
	OTHER_MEMORY,
	RELEASES,
	OUTSIDE,
	N_WIRES
};

static void misbehave(int s, enum wire w, int memory)
{
	struct pl_head h = { .type = PL_HEAD_MESSAGE, .kind = 1, .bytes = 100000 };
	struct linger now = { 1, 0 };
	uint8_t text[4 * PL_HEAD_BYTES] = "GET / HTTP/1.1\r\nHost: there";
	size_t n = sizeof(text);

	pl_comm_head_put(text + PL_HEAD_BYTES, &h);
	if (w == HUGE)
		h.bytes = UINT64_MAX;
	if (w == OTHER_MEMORY)
		h.type = PL_HEAD_REFERENCE;
	if (w == RELEASES)
		h = (struct pl_head){ .type = PL_HEAD_RELEASED, .at = 3 };
	if (w == OUTSIDE) /* announced memory of a page, and a body that begins in it */
		h = (struct pl_head){ .type = PL_HEAD_REGION,
				      .at = (uint64_t)memory,
				      .bytes = 4096 };
	if (w >= CUT_BODY)
		pl_comm_head_put(text, &h);
	h = (struct pl_head){ .type = PL_HEAD_REFERENCE, .kind = 1, .at = 4000, .bytes = 97 };
	if (w == OUTSIDE)
		pl_comm_head_put(text + PL_HEAD_BYTES, &h);
	if (w == CUT_HEAD)
		n = PL_HEAD_BYTES / 2;
	if (w == HALF_OPEN)
		shutdown(s, SHUT_RD);
	if (w == RESET)
		setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (w == RESET)
		close(s);
	else if (w >= GARBAGE && send(s, text, n, MSG_NOSIGNAL) < 0)
		printf("# it takes nothing\n");
}

static void test_wire(void)
{
	static const char *const name[] = {
		"no bytes",
		"one that reads nothing",
		"a reset",
		"other bytes",
		"a body without an end",
		"a head without an end",
		"an endless body",
		"a body in other memory",
		"a release of nothing",
		"a body that ends outside of its memory",
	};
	char at[600];
	struct pl_endpoint *e, *other = open_one(8, NULL, "tcp");
	struct pl_endpoint_event ev;
	double all_held = 0;
	bool in_memory;
	uint64_t nonce = NONCE;
	int memory = -1;
	uint32_t c;

	snprintf(at, sizeof(at), "%s", meeting(true));
	e = open_one(7, at, "auto");
	if (pl_comm_memory_make(4096, &memory, &err) < 0 ||
	    pwrite(memory, &nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		printf("# no memory: %s\n", err.msg);
	if (pl_comm_endpoint_connect(other, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	get(e, PL_ENDPOINT_ACCEPTED, 5);
	for (int w = 0; w < N_WIRES; w++) {
		bool at_once = w == RESET || w == GARBAGE || w > CUT_HEAD;
		int s = greeted(at, w == OUTSIDE ? memory : -1);
		double from;

		get(e, PL_ENDPOINT_ACCEPTED, 5);
		held = 0;
		from = now_s();
		misbehave(s, (enum wire)w, memory);
		ev = get(e, PL_ENDPOINT_LOST, 10);
		from = now_s() - from;
		all_held += held;
		in_memory = w == OTHER_MEMORY || w == OUTSIDE;
		ok(ev.kind && ev.peer == 9 && !ev.goodbye &&
			   (!in_memory || strstr(ev.why, "outside of the memory")) &&
			   from < (at_once ? 0.15 : LIMIT_S) + held,
		   "%s: lost after %.3f s (%s)", name[w], from, ev.why ? ev.why : "");
		if (w != RESET)
			close(s);
	}
	ev = get(other, PL_ENDPOINT_LOST, 0.01);
	if (ev.kind && all_held > 0.1)
		skip("another connection goes on", "the machine stood still for too long");
	else
		ok(!ev.kind && send_to(other, c, 3, NULL, 0, NULL) == 0 &&
			   get(e, PL_ENDPOINT_MESSAGE, 5).message.value[0] == 3,
		   "another connection goes on (%s)", ev.why ? ev.why : "");
	close(memory);
	pl_comm_endpoint_close(other);
	pl_comm_endpoint_close(e);
}

/* ---- shaped links ---- */

static void test_shape(void)
{
	char at[600];
	struct pl_link_shape shape[] = {
		/* of several the last counts */
		{ .from = 8, .to = 7, .bytes_per_ns = 0.001, .latency_ns = 9000000000 },
		{ .from = 8, .to = 7, .bytes_per_ns = 0.01, .latency_ns = 500000000 },
		{ .from = 8, .to = 6, .latency_ns = 20000000000 },
		{ .from = 7, .to = -1, .latency_ns = 20000000000 },
	};
	struct pl_endpoint_opts o = opts(8, NULL, "tcp");
	static uint8_t body[2000000];
	struct pl_endpoint *a, *b = NULL;
	struct pl_endpoint_event ev;
	double from, first, second, sent;
	uint32_t c = 0;

	snprintf(at, sizeof(at), "%s", meeting(false));
	a = open_one(7, at, "tcp");
	o.shape = shape;
	o.n_shapes = PL_LEN(shape);
	if (pl_comm_endpoint_open(&o, &b, &err) < 0 ||
	    pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	held = 0;
	from = now_s();
	/* 200 ms for the first, 10 for the second, both half a second later */
	ok(send_to(b, c, 1, body, 2000000, body) == 0 && send_to(b, c, 2, body, 100000, NULL) == 0,
	   "a shaped link takes messages at once");
	ev = get(a, PL_ENDPOINT_MESSAGE, 5);
	first = now_s() - from;
	pl_comm_endpoint_release(a, &ev);
	ok(ev.message.value[0] == 1 && get(a, PL_ENDPOINT_MESSAGE, 5).message.value[0] == 2,
	   "in their order");
	second = now_s() - from;
	sent = get(b, PL_ENDPOINT_SENT, 5).kind ? now_s() - from : 0;
	ok(first > 0.699 && first < 0.9 + held && second > 0.709 && second < 0.91 + held &&
		   sent > 0.699,
	   "as late as the link says: %.3f s and %.3f s, sent %.3f s", first, second, sent);
	ok(!get(b, PL_ENDPOINT_LOST, 0.01).kind && !get(a, PL_ENDPOINT_LOST, 0.01).kind,
	   "nobody is lost meanwhile");
	from = now_s();
	ok(send_to(a, c, 3, NULL, 0, NULL) == 0 && get(b, PL_ENDPOINT_MESSAGE, 5).kind &&
		   now_s() - from < 0.2 + held,
	   "the other direction is as fast as it can be");
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	timeout_ns = TIMEOUT_NS;
	for (int f = 0; f < N_FAULTS; f++)
		for (int i = 0; i < 2; i++)
			test_process((enum fault)f, i);
	test_stopped(1500, true);
	test_stopped(150, false);
	test_both_stopped();
	test_restart();
	test_wire();
	test_shape();
	return done_testing();
}
