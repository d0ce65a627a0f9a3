/*
 * Endpoints: messages arrive whole and in order, over sockets and in shared memory; how connections
 * come and end; what happens where memory runs out.
 *
 * runner: waits, threads
 */
#include "endpoint_fixture.h"

/* ---- messages ---- */

static const size_t sizes[] = { 0,     1,     63,    64,    65,	     4095,    4096,
				16384, 16447, 65471, 65536, 1000003, 1 << 20, BODY_MAX };

/* A message or SENT event; *got and *sent are counts so far. True: as it should be. */
static bool take(struct pl_endpoint *e, size_t *got, size_t *sent)
{
	struct pl_endpoint_event ev = get(e, 0, 20);
	const struct pl_message *m = &ev.message;
	bool fine = false;

	if (ev.kind == PL_ENDPOINT_MESSAGE) {
		size_t i = (*got)++;

		fine = i < PL_LEN(sizes) && m->kind == 1 && m->value[0] == i &&
		       m->value[1] == ~(uint64_t)i && m->value[3] == 4 && m->bytes == sizes[i] &&
		       !m->body == !m->bytes && is_filled(m->body, m->bytes, i) &&
		       (uintptr_t)m->body % 64 == 0;
		pl_comm_endpoint_release(e, &ev);
	} else if (ev.kind == PL_ENDPOINT_SENT) {
		(*sent)++;
		fine = (const size_t *)ev.done >= sizes &&
		       (const size_t *)ev.done < sizes + PL_LEN(sizes);
	}
	if (!fine)
		printf("# event %d of %zu bytes after %zu messages, %zu sent: %s\n", ev.kind,
		       m->bytes, *got, *sent, ev.why ? ev.why : "");
	return fine;
}

static void test_sizes(const char *transport, bool memory, bool with_done)
{
	struct pair p = open_pair(transport);
	size_t n = PL_LEN(sizes), bytes = 0, got[2] = { 0 }, sent[2] = { 0 };
	uint8_t *body[2][PL_LEN(sizes)];
	bool fine = p.c[0] != 0;

	for (size_t k = 0; k < 2 && fine; k++)
		for (size_t i = 0; i < n; i++) {
			body[k][i] = memory ? pl_comm_endpoint_alloc(p.e[k], sizes[i], &err)
					    : aligned_alloc(64, (sizes[i] / 64 + 1) * 64);
			fine &= body[k][i] != NULL;
			fill(body[k][i], sizes[i], i);
		}
	for (size_t i = 0; i < n && fine; i++)
		for (size_t k = 0; k < 2; k++)
			fine &= send_to(p.e[k], p.c[k], i, sizes[i] ? body[k][i] : NULL, sizes[i],
					with_done ? (void *)(uintptr_t)&sizes[i] : NULL) == 0;
	for (size_t i = 0; i < n; i++)
		bytes += sizes[i] + PL_HEAD_BYTES;
	for (size_t left = 2 * n * (with_done ? 2 : 1); left && fine; left--) {
		/* the side that lacks most: a body is SENT when the other has taken it */
		size_t k = got[0] + sent[0] > got[1] + sent[1];

		fine &= take(p.e[k], &got[k], &sent[k]);
	}
	for (size_t k = 0; k < 2 && fine; k++)
		fine &= got[k] == n && sent[k] == (with_done ? n : 0);
	for (size_t k = 0; k < 2 && fine; k++) {
		fine &= pl_comm_endpoint_received(p.e[k]) == bytes;
		fine &= pl_comm_endpoint_sent(p.e[k]) >= bytes;
		fine &= pl_comm_endpoint_sent(p.e[k]) <= bytes + n * PL_HEAD_BYTES;
		is_str(pl_comm_endpoint_transport(p.e[k], p.c[k]), transport, "the transport");
	}
	ok(fine, "%s%s%s: both ways at once, bodies of 0 to 64 MiB", transport,
	   memory ? ", memory of the endpoint" : "", with_done ? "" : ", copied");
	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < n; i++)
			if (memory)
				pl_comm_endpoint_free(p.e[k], body[k][i]);
			else
				free(body[k][i]);
	close_pair(&p);
}

static void test_many(void)
{
	struct pair p = open_pair("tcp");
	uint64_t sent = 0, got = 0, n = 20000;
	char text[100];
	static uint8_t body[4000];
	struct pl_endpoint_event ev = { 0 };
	bool fine = p.c[0] != 0;

	while (fine && got < n) {
		int rc = 0;

		while (sent < n && rc == 0) {
			int m = snprintf(text, sizeof(text), "this is message %d", (int)sent);

			rc = send_to(p.e[1], p.c[1], sent, text, (size_t)m, NULL);
			sent += rc == 0;
		}
		if (rc == PL_ELIMIT && sent == got)
			continue; /* all have arrived, which this side does not know yet */
		fine &= rc == 0 || rc == PL_ELIMIT;
		ev = get(p.e[0], PL_ENDPOINT_MESSAGE, 10);
		snprintf(text, sizeof(text), "this is message %d", (int)got);
		fine &= ev.kind == PL_ENDPOINT_MESSAGE && ev.message.value[0] == got &&
			ev.message.bytes == strlen(text) &&
			!memcmp(ev.message.body, text, ev.message.bytes);
		if (!fine)
			printf("# %d sent, %d, %s; number %d: event %d, value %d, %zu bytes %s\n",
			       (int)sent, rc, err.msg, (int)got, ev.kind, (int)ev.message.value[0],
			       ev.message.bytes, ev.why ? ev.why : "");
		pl_comm_endpoint_release(p.e[0], &ev);
		got++;
	}
	ok(fine, "%d small messages in their order", (int)n);
	sent = 0;
	for (int refused = 0; fine && refused < 100 && sent < 100000;) { /* nobody takes them */
		int rc = send_to(p.e[1], p.c[1], sent, body, sizeof(body), NULL);

		sent += rc == 0;
		refused = rc == PL_ELIMIT ? refused + 1 : 0;
		nap_ms(refused ? 10 : 0);
	}
	ok(sent > 2 * PL_ENDPOINT_QUEUE && sent < 100000,
	   "a peer that takes no messages: no more than %d wait here", PL_ENDPOINT_QUEUE);
	ok(!get(p.e[1], 0, 0.01).kind, "it is not dead, and nor are its peers");
	for (got = 0; got < sent && (ev = get(p.e[0], 0, 5)).kind == PL_ENDPOINT_MESSAGE; got++)
		pl_comm_endpoint_release(p.e[0], &ev);
	if (got < sent)
		printf("# %d of %d, then event %d: %s\n", (int)got, (int)sent, ev.kind,
		       ev.why ? ev.why : "");
	if (got == sent) {
		ev = get(p.e[0], 0, 0.5);
		if (ev.kind)
			printf("# event %d of %d: %s\n", ev.kind, (int)ev.connection,
			       ev.why ? ev.why : "");
	}
	ok(got == sent && !ev.kind, "it gets all of them later");
	close_pair(&p);
}

#define PEERS 36
static void test_peers(void)
{
	const char *at = meeting(false);
	struct pl_endpoint *server = open_one(1, at, "auto"), *e[PEERS];
	uint32_t c[PEERS];
	uint64_t count[PEERS] = { 0 };
	bool fine = server != NULL;
	static uint8_t body[5000];

	for (uint32_t i = 0; i < PEERS && fine; i++) {
		e[i] = open_one(100 + i, NULL, "auto");
		fine = e[i] && pl_comm_endpoint_connect(e[i], at, 1, pl_now_ns() + LONG_NS, &c[i],
							&err) == 0;
	}
	for (uint64_t k = 0; k < 40 && fine; k++)
		for (uint32_t i = 0; i < PEERS; i++)
			fine &= send_to(e[i], c[i], k, body, k * i % 5000, NULL) == 0;
	for (int left = PEERS * 40; left && fine; left--) { /* and back */
		struct pl_endpoint_event ev = get(server, PL_ENDPOINT_MESSAGE, 10);
		uint32_t i = ev.peer - 100;

		fine &= ev.kind && i < PEERS && ev.message.value[0] == count[i]++ &&
			ev.message.bytes == ev.message.value[0] * i % 5000;
		fine &= fine && send_to(server, ev.connection, ev.message.value[0], ev.message.body,
					ev.message.bytes, NULL) == 0;
		pl_comm_endpoint_release(server, &ev);
	}
	for (uint32_t i = 0; i < PEERS && fine; i++)
		for (uint64_t k = 0; k < 40 && fine; k++) {
			struct pl_endpoint_event ev = get(e[i], PL_ENDPOINT_MESSAGE, 10);

			fine &= ev.kind && ev.peer == 1 && ev.message.value[0] == k;
			pl_comm_endpoint_release(e[i], &ev);
		}
	ok(fine, "%d peers of one endpoint", PEERS);
	for (uint32_t i = 0; i < PEERS; i++)
		pl_comm_endpoint_close(e[i]);
	pl_comm_endpoint_close(server);
}

/* ---- ends ---- */

static void test_ends(void)
{
	struct pair p = open_pair("tcp");
	struct pl_endpoint_event ev;
	static uint8_t body[100000];
	int n = 0;

	for (uint64_t i = 0; i < 200; i++)
		if (send_to(p.e[1], p.c[1], i, body, sizeof(body), NULL) < 0)
			break;
	pl_comm_endpoint_close(p.e[1]);
	p.e[1] = NULL;
	for (; (ev = get(p.e[0], 0, 5)).kind == PL_ENDPOINT_MESSAGE; n++)
		pl_comm_endpoint_release(p.e[0], &ev);
	ok(n == 200 && ev.kind == PL_ENDPOINT_LOST && ev.goodbye && ev.peer == 8,
	   "close sends everything, then a good-bye (%d messages)", n);
	ok(send_to(p.e[0], p.c[0], 1, NULL, 0, NULL) == 0 &&
		   !pl_comm_endpoint_transport(p.e[0], p.c[0]),
	   "to send over a lost connection is no error");
	close_pair(&p);

	p = open_pair("tcp");
	for (uint64_t i = 0; i < 100; i++)
		if (send_to(p.e[1], p.c[1], i, body, sizeof(body), body) < 0)
			break;
	pl_comm_endpoint_drop(p.e[1], p.c[1], NULL);
	ok(!get(p.e[1], 0, 0.05).kind, "drop: no event follows");
	for (n = 0; (ev = get(p.e[0], 0, 5)).kind == PL_ENDPOINT_MESSAGE; n++)
		pl_comm_endpoint_release(p.e[0], &ev);
	ok(n == 100 && ev.kind == PL_ENDPOINT_LOST && ev.goodbye,
	   "drop sends what was given, then a good-bye (%d)", n);
	close_pair(&p);

	p = open_pair("tcp");
	pl_comm_endpoint_drop(p.e[0], p.c[0], "it knows\tnothing");
	ev = get(p.e[1], PL_ENDPOINT_LOST, 5);
	ok(ev.kind && !ev.goodbye && strstr(ev.why, "it knows?nothing"),
	   "drop for a reason: the peer is told (%s)", ev.why ? ev.why : "");
	close_pair(&p);
}

/* Nobody takes the event of a connection that comes, and its endpoint is closed. */
static void test_unseen(void)
{
	const char *at = meeting(false);
	struct pl_endpoint *a = open_one(7, at, "tcp"), *b = open_one(8, NULL, "tcp");
	struct pl_endpoint_event ev;
	uint32_t c = 0;

	if (pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	for (int i = 0; i < 3 && c; i++)
		if (send_to(b, c, 1, &c, sizeof(c), NULL) < 0)
			break;
	nap_ms(50);
	pl_comm_endpoint_close(a);
	ev = get(b, PL_ENDPOINT_LOST, 10);
	ok(c && ev.connection == c && ev.goodbye,
	   "an endpoint is closed before its user knows of a connection (%s)",
	   ev.why ? ev.why : "");
	pl_comm_endpoint_close(b);
}

/* Words that still wait in this side's kernel when data of the peer come, which nobody reads. */
static void test_last_words(void)
{
	const char *at = meeting(false);
	struct pl_endpoint_opts o = opts(8, NULL, "tcp");
	struct pl_endpoint *a = open_one(7, at, "tcp"), *b = NULL;
	static uint8_t body[100000];
	struct pl_endpoint_event ev;
	uint32_t c = 0, theirs;
	int n = 0;

	o.body_max = 500000; /* it takes some of them, until its user does */
	if (pl_comm_endpoint_open(&o, &b, &err) < 0 ||
	    pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	theirs = get(a, PL_ENDPOINT_ACCEPTED, 10).connection;
	for (uint64_t i = 0; i < 2000; i++)
		if (send_to(b, c, i, body, sizeof(body), body) < 0)
			break;
	for (uint64_t i = 0; i < 25; i++)
		if (send_to(a, theirs, i, body, sizeof(body), NULL) < 0)
			break;
	pl_comm_endpoint_drop(a, theirs, NULL);
	nap_ms(200);
	for (; (ev = get(b, 0, 5)).kind && ev.kind != PL_ENDPOINT_LOST;) {
		n += ev.kind == PL_ENDPOINT_MESSAGE;
		pl_comm_endpoint_release(b, &ev);
	}
	ok(n == 25 && ev.kind && ev.goodbye,
	   "all arrive, and the good-bye, although data come the other way (%d; %s)", n,
	   ev.why ? ev.why : "");
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
}

static void test_limit(void)
{
	const char *at = meeting(false);
	struct pl_endpoint_opts o = opts(7, at, "tcp");
	struct pl_endpoint_event ev, theirs;
	struct pl_endpoint *a, *b = open_one(8, NULL, "tcp");
	static uint8_t body[2 << 20];
	uint32_t c = 0;

	o.body_max = 1 << 20;
	if (pl_comm_endpoint_open(&o, &a, &err) < 0 ||
	    pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	ok(send_to(b, c, 1, body, 1 << 20, NULL) == 0 &&
		   get(a, PL_ENDPOINT_MESSAGE, 5).message.bytes == 1 << 20,
	   "a body of body_max arrives");
	if (send_to(b, c, 1, body, (1 << 20) + 1, NULL) < 0)
		printf("# %s\n", err.msg);
	ev = get(a, PL_ENDPOINT_LOST, 5);
	ok(ev.kind && strstr(ev.why, "limit"), "a larger one ends the connection (%s)",
	   ev.why ? ev.why : "");
	theirs = get(b, PL_ENDPOINT_LOST, 5);
	ok(theirs.kind && !theirs.goodbye, "the other side knows (%s)",
	   theirs.why ? theirs.why : "");
	ok(send_to(a, 1, 0, body, 0, NULL) == 0, "a message without a connection is no error");
	{
		struct pl_message m = { .body = body, .bytes = 1 };
		struct pl_err x = { 0 };

		ok(pl_comm_endpoint_send(a, 1, &m, NULL, &x) == PL_EUSAGE, "a kind of 0 is");
	}
	pl_comm_endpoint_close(a);
	pl_comm_endpoint_close(b);
}

/* ---- who comes, and who does not ---- */

static void test_tokens(void)
{
	const char *at = meeting(true);
	struct pl_endpoint_opts o = opts(8, NULL, "tcp");
	struct pl_endpoint *a = open_one(7, at, "tcp"), *b = NULL;
	double from = now_s();
	uint32_t c;
	int port = atoi(strrchr(at, ':') + 1);

	o.token = "another token of the tests";
	err.code = 0;
	if (pl_comm_endpoint_open(&o, &b, &err) < 0)
		printf("# %s\n", err.msg);
	ok(pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) == PL_EIO &&
		   strstr(err.msg, "wrong token") && now_s() - from < 5,
	   "a wrong token: %s", err.msg);
	ok(!get(a, 0, 0.1).kind, "the other side takes no notice");
	pl_comm_endpoint_close(b);

	b = open_one(8, NULL, "tcp");
	err.code = 0;
	from = now_s();
	ok(pl_comm_endpoint_connect(b, at, 9, pl_now_ns() + 200000000, &c, &err) == PL_EIO &&
		   now_s() - from < 3 && strstr(err.msg, "not endpoint 9"),
	   "another id than expected: %s", err.msg);
	for (int i = 0; i < 100; i++) { /* noise at the door */
		struct sockaddr_in in = { .sin_family = AF_INET,
					  .sin_port = htons((uint16_t)port),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (connect(s, (struct sockaddr *)&in, sizeof(in)) == 0 && i % 3 &&
		    send(s, &sizes, 8 + (size_t)i % 90, MSG_NOSIGNAL) < 0)
			printf("# it took no noise\n");
		if (i % 2)
			close(s);
	}
	err.code = 0;
	ok(pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) == 0,
	   "noise at the door keeps nobody out %s", err.msg);
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
}

static void test_twice(void)
{
	const char *at = meeting(false);
	struct pl_endpoint *a = open_one(7, at, "tcp"), *b = open_one(8, NULL, "tcp"),
			   *again = open_one(8, NULL, "tcp");
	struct pl_endpoint_event first, second, lost, theirs;
	uint32_t c;
	bool fine;

	fine = pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) == 0;
	first = get(a, PL_ENDPOINT_ACCEPTED, 5);
	fine &= pl_comm_endpoint_connect(again, at, 7, pl_now_ns() + LONG_NS, &c, &err) == 0;
	second = get(a, 0, 5);
	lost = get(a, 0, 5);
	if (second.kind == PL_ENDPOINT_LOST) {
		struct pl_endpoint_event x = second;

		second = lost;
		lost = x;
	}
	ok(fine && second.kind == PL_ENDPOINT_ACCEPTED && lost.kind == PL_ENDPOINT_LOST &&
		   lost.connection == first.connection && second.peer == 8 &&
		   second.connection != first.connection,
	   "an id that comes again replaces its earlier connection");
	theirs = get(b, PL_ENDPOINT_LOST, 5);
	ok(theirs.kind && strstr(theirs.why, "connected again"), "which is told so (%s)",
	   theirs.why ? theirs.why : "");
	ok(send_to(a, second.connection, 5, NULL, 0, NULL) == 0 &&
		   pl_comm_endpoint_next(again, INT64_MAX, &first, &err) == 0 &&
		   first.message.value[0] == 5 &&
		   send_to(a, second.connection, 5, NULL, 0, NULL) == 0 &&
		   get(again, PL_ENDPOINT_MESSAGE, 5).message.value[0] == 5,
	   "the newer one is in use");
	pl_comm_endpoint_close(again);
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
}

/* ---- shared memory ---- */

/* Descriptors and mappings of shared memory of this process. */
static int in_use(void)
{
	char line[600], path[64];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:paceline") != NULL;
	if (f)
		fclose(f);
	for (int i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		n += access(path, F_OK) == 0;
	}
	return n;
}

static void test_in_place(void)
{
	int before = in_use();
	struct pair p = open_pair("shm");
	uint8_t *m = pl_comm_endpoint_alloc(p.e[0], 100000, &err);
	struct pl_endpoint_event ev, second;
	const uint8_t *there;
	bool fine = m != NULL;

	for (size_t i = 0; i < 100000 && fine; i++)
		fine &= m[i] == 0;
	ok(fine && (uintptr_t)m % 64 == 0, "memory of the endpoint is aligned and zeroed");
	m[5000] = 7;
	fine = send_to(p.e[0], p.c[0], 1, m + 5000, 1000, m) == 0 &&
	       send_to(p.e[0], p.c[0], 2, m, 100000, m + 1) == 0;
	ev = get(p.e[1], PL_ENDPOINT_MESSAGE, 5);
	second = get(p.e[1], PL_ENDPOINT_MESSAGE, 5);
	there = ev.message.body;
	fine &= ev.message.bytes == 1000 && there && there[0] == 7 && there != m + 5000 &&
		second.message.bytes == 100000;
	m[5001] = 9; /* it is the same memory */
	ok(fine && there[1] == 9, "the receiver reads the body in place");
	ok(!get(p.e[0], 0, 0.1).kind, "it is not SENT before the release");
	pl_comm_endpoint_release(p.e[1], &second);
	ev.kind = PL_ENDPOINT_MESSAGE;
	second = get(p.e[0], PL_ENDPOINT_SENT, 5);
	ok(second.done == m + 1, "then it is, in the order of the releases");
	pl_comm_endpoint_release(p.e[1], &ev);
	ok(get(p.e[0], PL_ENDPOINT_SENT, 5).done == m, "so is the other");
	pl_comm_endpoint_free(p.e[0], m);
	for (int i = 0; i < 300 && fine; i++) { /* regions that come and go */
		m = pl_comm_endpoint_alloc(p.e[1], 5000, &err);
		fine &= m && send_to(p.e[1], p.c[1], 4, m, 5000, m) == 0;
		ev = get(p.e[0], PL_ENDPOINT_MESSAGE, 5);
		fine &= ev.message.bytes == 5000;
		pl_comm_endpoint_release(p.e[0], &ev);
		fine &= get(p.e[1], PL_ENDPOINT_SENT, 5).done == m;
		pl_comm_endpoint_free(p.e[1], m);
	}
	for (int i = 0; i < 100 && in_use() > before + 20; i++)
		nap_ms(5);
	ok(fine && in_use() <= before + 20, "300 pieces of memory, one after the other");
	close_pair(&p);
	is_i64(in_use(), before, "nothing stays open or mapped");
}

/* A peer dies with bodies that it reads, or that this process reads. */
static void test_dead_reader(void)
{
	char at[600];
	int before;
	struct pl_endpoint *e;
	struct pl_endpoint_event ev, kept;
	uint8_t *m;
	uint32_t c;
	pid_t pid;

	snprintf(at, sizeof(at), "%s", meeting(false));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(50);
		e = open_one(8, NULL, "shm");
		m = pl_comm_endpoint_alloc(e, 1 << 20, &err);
		if (!m || pl_comm_endpoint_connect(e, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
			_exit(1);
		memset(m, 42, 1 << 20);
		(void)!send_to(e, c, 1, m, 1 << 20, m);
		get(e, PL_ENDPOINT_MESSAGE, 10); /* and keeps it */
		(void)!send_to(e, c, 2, NULL, 0, NULL);
		nap_ms(30000);
		_exit(1);
	}
	before = in_use();
	e = open_one(7, at, "shm");
	c = get(e, PL_ENDPOINT_ACCEPTED, 10).connection;
	m = pl_comm_endpoint_alloc(e, 1 << 20, &err);
	(void)!send_to(e, c, 1, m, 1 << 20, m);
	kept = get(e, PL_ENDPOINT_MESSAGE, 10);
	ev = get(e, PL_ENDPOINT_MESSAGE, 10);
	ok(m && kept.message.bytes == 1 << 20 && ev.message.value[0] == 2,
	   "each of two processes reads in the other's memory");
	end_child(pid);
	ev = get(e, 0, 5);
	ok(ev.kind == PL_ENDPOINT_LOST && !get(e, 0, 0.05).kind,
	   "killed: lost, and its message has no SENT");
	ok(kept.message.body && ((const uint8_t *)kept.message.body)[(1 << 20) - 1] == 42,
	   "the dead one's body can be read until its release");
	pl_comm_endpoint_release(e, &kept);
	pl_comm_endpoint_free(e, m);
	is_i64(in_use(), before + 3, "then nothing of it is left but the endpoint's descriptors");
	pl_comm_endpoint_close(e);
	is_i64(in_use(), before, "and after the end nothing");
}

static void test_transports(void)
{
	const char *at = meeting(false);
	struct pl_endpoint_opts o = opts(8, NULL, "auto");
	struct pl_endpoint *a = open_one(7, at, "auto"), *b = NULL;
	uint32_t c = 0;

	o.host = "elsewhere";
	if (pl_comm_endpoint_open(&o, &b, &err) < 0 ||
	    pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + LONG_NS, &c, &err) < 0)
		printf("# %s\n", err.msg);
	is_str(pl_comm_endpoint_transport(b, c), "tcp", "another host: no shared memory");
	pl_comm_endpoint_close(b);
	o.transport = "shm";
	b = NULL;
	err.code = 0;
	ok(pl_comm_endpoint_open(&o, &b, &err) == 0 &&
		   pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + 3000000000, &c, &err) ==
			   PL_EIO &&
		   strstr(err.msg, "shares no memory"),
	   "demanded, it is an error (%s)", err.msg);
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
	o.transport = "pigeons";
	err.code = 0;
	ok(pl_comm_endpoint_open(&o, &b, &err) == PL_EUSAGE, "no such transport: %s", err.msg);
	o.transport = NULL;
	o.token = "short";
	err.code = 0;
	ok(pl_comm_endpoint_open(&o, &b, &err) == PL_EUSAGE, "too short a token: %s", err.msg);
}

/* ---- memory and descriptors run out ---- */

/* Something may fail; nothing hangs, and each failure has a text. */
static int poor(int n, const char *at, const char *transport)
{
	struct pl_endpoint_opts o = opts(7, at, transport), p = opts(8, NULL, transport);
	struct pl_endpoint *a = NULL, *b = NULL;
	struct pl_endpoint_event ev;
	uint8_t *m = NULL, *own = calloc(1, 300000);
	char text[20];
	uint32_t c = 0;
	int rc, got = 0;

	snprintf(text, sizeof(text), "%d", n);
	setenv("PL_FAIL", text, 1);
	o.timeout_ns = p.timeout_ns = 1000000000;
	err.code = 0;
	rc = pl_comm_endpoint_open(&o, &a, &err);
	if (rc == 0)
		rc = pl_comm_endpoint_open(&p, &b, &err);
	if (rc == 0)
		rc = pl_comm_endpoint_connect(b, at, 7, pl_now_ns() + 3000000000, &c, &err);
	if (rc == 0 && !(m = pl_comm_endpoint_alloc(b, 100000, &err)))
		rc = err.code;
	for (int i = 0; i < 5 && rc == 0; i++) {
		struct pl_message x = { .kind = 1,
					.body = i % 2 ? m : own,
					.bytes = i % 2 ? 100000 : 300000 };

		rc = pl_comm_endpoint_send(b, c, &x, i < 4 ? m : NULL, &err);
	}
	for (pl_ns until = pl_now_ns() + 5000000000; rc == 0 && got < 5 && pl_now_ns() < until;) {
		ev = get(a, 0, 0.02);
		got += ev.kind == PL_ENDPOINT_MESSAGE;
		if (ev.kind == PL_ENDPOINT_MESSAGE)
			pl_comm_endpoint_release(a, &ev);
		if (ev.kind == PL_ENDPOINT_LOST || get(b, PL_ENDPOINT_LOST, 0).kind)
			rc = 1;
	}
	/* after a failure messages may still use m, so the endpoint frees it; own outlives it */
	pl_comm_endpoint_close(b);
	pl_comm_endpoint_close(a);
	free(own);
	if (rc < 0 && (rc != err.code || !err.msg[0]))
		return 1;
	return rc == 0 && got < 5 ? 2 : 0;
}

static void test_memory(const char *transport)
{
	bool fine = true;
	int n;

	for (n = 1; n < 120; n += 1 + n / 40) {
		const char *at = meeting(false);
		int status = 0;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			alarm(20);
			_exit(poor(n, at, transport));
		}
		waitpid(pid, &status, 0);
		if (status)
			printf("# PL_FAIL=%d: status %x\n", n, (unsigned)status);
		fine &= status == 0;
	}
	ok(fine, "%s: whatever memory or descriptor is not there", transport);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	test_memory("tcp");
	test_memory("shm");
	test_dead_reader();
	test_sizes("tcp", false, true);
	test_sizes("tcp", false, false);
	test_sizes("tcp", true, true);
	test_sizes("shm", true, true);
	test_sizes("shm", false, true);
	test_many();
	test_peers();
	test_ends();
	test_unseen();
	test_last_words();
	test_limit();
	test_tokens();
	test_twice();
	test_in_place();
	test_transports();
	return done_testing();
}
