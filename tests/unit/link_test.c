/*
 * Links between processes: both sides prove that they know the token, none sends it, and what was
 * overheard is of no use later.
 */
#include "comm_fixture.h"

#include "comm/internal.h"

static const struct pl_rank_info who = { .rank = 1, .size = 2, .port = 7, .address = "127.0.0.1" };

static void test_proof(void)
{
	/* hashlib.blake2s(token.ljust(128, b"\0") + b"c" + 16 * b"\7" + frame).hexdigest() */
	static const uint8_t want[PL_PROOF_BYTES] = { 0xbc, 0x89, 0xd6, 0x6c, 0x9d, 0x35, 0x05,
						      0xb4, 0xb5, 0x59, 0x98, 0xfc, 0x4a, 0xa1,
						      0xcf, 0xb6, 0x86, 0x99, 0x67, 0x23, 0x4f,
						      0xe3, 0x2f, 0x44, 0x09, 0x5a, 0xbf, 0x09,
						      0x99, 0x3d, 0xb6, 0x97 };
	struct pl_frame hello = { .kind = PL_FRAME_HELLO, .rank = 1 };
	uint8_t nonce[PL_NONCE_BYTES], proof[PL_PROOF_BYTES];

	hello.greeting.member = who;
	hello.greeting.connection = 3;
	memset(nonce, 7, sizeof(nonce));
	pl_comm_prove(TOKEN, 'c', &hello, nonce, proof);
	ok(pl_comm_same_proof(proof, want), "a proof is BLAKE2s of token, side, nonce and hello");
	proof[31] ^= 1;
	ok(!pl_comm_same_proof(proof, want), "... and differs in one bit");
}

/* Waits for one connection with this token, until one is rejected: 1, 0. */
static int serve(int listener, const char *token)
{
	struct pl_acceptor a = { .listener = listener, .token = token };
	pl_ns until = pl_now_ns() + 100000000000;
	struct pl_frame hello;
	struct pl_link l;
	struct pl_err e = { 0 };
	int got = 0;

	if (pl_comm_acceptor_init(&a, 1, &e) < 0)
		return 9;
	while (!got && !a.n_rejected && pl_now_ns() < until)
		got = pl_comm_accept(&a, pl_now_ns() + 20000000, &hello, &l, &e);
	if (got > 0) {
		got = hello.greeting.connection == 3 && hello.greeting.member.rank == 1 ? 1 : 8;
		pl_comm_link_close(&l);
	}
	pl_comm_acceptor_fini(&a);
	return got;
}

/* What the accepting side said, in the end; *rc and *msg: the other side. */
static int meet(const char *theirs, const char *ours, int *rc, char *msg)
{
	char address[PL_ADDRESS_MAX];
	struct pl_link l = { .fd = -1 };
	struct pl_err e = { 0 };
	int listener, port, status = 0;
	pid_t pid;

	if (pl_comm_net_listen("127.0.0.1", 0, &listener, &port, address, &e) < 0)
		abort();
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(serve(listener, theirs));
	*rc = pl_comm_net_connect("127.0.0.1", port, pl_now_ns() + 10000000000, &l.fd, &e);
	if (*rc == 0)
		*rc = pl_comm_link_greet(&l, ours, &who, 3, pl_now_ns() + 10000000000, &e);
	snprintf(msg, 200, "%.199s", e.msg);
	pl_comm_link_close(&l);
	close(listener);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void test_tokens(void)
{
	char msg[200];
	int rc;

	ok(meet(TOKEN, TOKEN, &rc, msg) == 1 && rc == 0, "the same token");
	ok(meet(TOKEN, "another token 0123456789", &rc, msg) == 0 && rc == PL_EIO &&
		   strstr(msg, "wrong token"),
	   "another token: neither side goes on (%s)", msg);
}

static void put_bytes(int fd, const void *p, size_t n)
{
	if (send(fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
		abort();
}

/* Reads until `n` bytes are there or nothing comes for ten seconds. */
static size_t get_bytes(int fd, uint8_t *p, size_t n)
{
	size_t at = 0;
	ssize_t got = 1;

	while (at < n && got > 0 && pl_comm_net_ready(fd, POLLIN, pl_now_ns() + 10000000000) > 0)
		if ((got = recv(fd, p + at, n - at, 0)) > 0)
			at += (size_t)got;
	return at;
}

static bool holds(const uint8_t *p, size_t n, const char *what)
{
	for (size_t i = 0; i + 8 <= n; i++)
		if (!memcmp(p + i, what, 8)) /* part of it is enough */
			return true;
	return false;
}

/* Somebody in the middle passes everything on and keeps it. */
static void test_overheard(void)
{
	uint8_t hello[128], challenge[60], proof[44], other[60];
	char address[PL_ADDRESS_MAX];
	struct pl_err e = { 0 };
	int listener, port, pair[2], fd, again, status = 0, served = 0;
	pid_t server, client;

	if (pl_comm_net_listen("127.0.0.1", 0, &listener, &port, address, &e) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		abort();
	fflush(stdout);
	server = fork();
	if (server == 0)
		_exit(serve(listener, TOKEN));
	client = fork();
	if (client == 0) {
		struct pl_link l = { .fd = pair[0] };

		_exit(pl_comm_link_greet(&l, TOKEN, &who, 3, pl_now_ns() + 10000000000, &e) != 0);
	}
	if (pl_comm_net_connect("127.0.0.1", port, pl_now_ns() + 10000000000, &fd, &e) < 0)
		abort();
	ok(get_bytes(pair[1], hello, sizeof(hello)) == sizeof(hello), "who connects says hello");
	put_bytes(fd, hello, sizeof(hello));
	ok(get_bytes(fd, challenge, sizeof(challenge)) == sizeof(challenge), "... is challenged");
	put_bytes(pair[1], challenge, sizeof(challenge));
	ok(get_bytes(pair[1], proof, sizeof(proof)) == sizeof(proof), "... and proves");
	put_bytes(fd, proof, sizeof(proof));
	waitpid(client, &status, 0);
	ok(status == 0, "... with success");
	ok(!holds(hello, sizeof(hello), TOKEN) && !holds(challenge, sizeof(challenge), TOKEN) &&
		   !holds(proof, sizeof(proof), TOKEN),
	   "the token is not sent");
	waitpid(server, &served, 0);
	ok(WEXITSTATUS(served) == 1, "... and the other side lets it in");
	fflush(stdout);
	server = fork();
	if (server == 0)
		_exit(serve(listener, TOKEN));
	if (pl_comm_net_connect("127.0.0.1", port, pl_now_ns() + 10000000000, &again, &e) < 0)
		abort();
	put_bytes(again, hello, sizeof(hello));
	ok(get_bytes(again, other, sizeof(other)) == sizeof(other) &&
		   memcmp(other, challenge, sizeof(other)) != 0,
	   "the next challenge is another one");
	put_bytes(again, proof, sizeof(proof));
	waitpid(server, &served, 0);
	ok(WEXITSTATUS(served) == 0, "... so what was overheard opens nothing");
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	test_proof();
	test_tokens();
	test_overheard();
	return done_testing();
}
