/*
 * Where worlds meet: IPv6, both kinds of address at once, interfaces, names that mean loopback on
 * one host alone, a door that strangers crowd, a port that is taken; and what a meeting that failed
 * leaves open.
 *
 * runner: threads
 */
#include "comm_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "comm/internal.h"

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

struct place {
	const char *meet[3]; /* of each rank */
	const char *bind;
};

static int meets(struct pl_world_opts *o, void *arg)
{
	const struct place *place = arg;
	struct pl_err e = { 0 };
	struct pl_world *w;
	float v = 1;
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 1, .src = &v, .dst = &v };

	o->meet = place->meet[o->rank];
	o->bind = place->bind;
	o->transport = "tcp";
	o->timeout_ns = 2000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	NEED(pl_comm_world_do(w, &a, &e) == 0 && v > 2 && v < 4);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static bool all_meet(const char *a, const char *b, const char *c, const char *bind, int port)
{
	char text[3][300];
	struct place place = { .bind = bind };
	const char *at[3] = { a, b, c };
	struct pl_world_opts o = { 0 };

	for (int i = 0; i < 3; i++) {
		snprintf(text[i], sizeof(text[i]), "tcp:%s:%d", at[i], port);
		place.meet[i] = text[i];
	}
	return run_ranks(3, &o, meets, &place, 10);
}

/* Can this host do IPv6 at all? */
static bool has_six(void)
{
	char address[PL_ADDRESS_MAX];
	struct pl_err e = { 0 };
	int fd, port;

	if (pl_comm_net_listen("::1", 0, &fd, &port, address, &e) < 0)
		return false;
	close(fd);
	return true;
}

/* An address of this host that is not its loopback, as its others would use. */
static bool outer_address(char *to, size_t size)
{
	DIR *d = opendir("/sys/class/net");
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = e->d_name[0] != '.' && strcmp(e->d_name, "lo") != 0 &&
			pl_comm_net_interface(e->d_name, to, size);
	if (d)
		closedir(d);
	return found;
}

static void test_places(void)
{
	char outer[PL_ADDRESS_MAX], name[200] = "";

	gethostname(name, sizeof(name) - 1);
	ok(all_meet("127.0.0.1", "localhost", "127.0.0.1", NULL, free_port()), "at loopback");
	if (!has_six()) {
		ok(true, "IPv6 # SKIP none here");
	} else {
		ok(all_meet("[::1]", "[::1]", "[::1]", NULL, free_port()), "by IPv6");
		ok(all_meet("[::1]", "127.0.0.1", "[::1]", "*", free_port()),
		   "by either at a door that is open for both");
	}
	ok(all_meet("127.0.0.1", "127.0.0.1", "127.0.0.1", "lo", free_port()), "by an interface");
	if (!pl_comm_net_is_alias(name) || !outer_address(outer, sizeof(outer))) {
		ok(true, "a name that means loopback here # SKIP it does not");
		return;
	}
	/* rank 2 is as on another host, where the name means this address */
	ok(all_meet(name, name, outer, NULL, free_port()),
	   "a host whose name means loopback to itself is met from without");
}

static void test_names(void)
{
	char to[PL_ADDRESS_MAX] = "";
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	static const uint8_t mapped[16] = { [10] = 255, [11] = 255, [12] = 10, [15] = 7 };

	ok(pl_comm_net_interface("lo", to, sizeof(to)) && !strcmp(to, "127.0.0.1"),
	   "an interface has an address");
	ok(!pl_comm_net_interface("no-such-interface", to, sizeof(to)), "... if there is one");
	memcpy(&six.sin6_addr, mapped, sizeof(mapped));
	pl_comm_net_name(&six, sizeof(six), to, sizeof(to));
	ok(!strcmp(to, "10.0.0.7"), "IPv4 by a socket of IPv6 is told as IPv4 (%s)", to);
	ok(!pl_comm_net_is_alias("localhost") && !pl_comm_net_is_alias("127.0.0.1") &&
		   !pl_comm_net_is_alias("::1"),
	   "who says loopback means it");
}

/* ---- what goes wrong ---- */

static int fails(struct pl_world_opts *o, void *arg)
{
	struct pl_err e = { 0 };
	struct pl_world *w;
	int before = open_files();

	(void)arg;
	o->timeout_ns = 200000000;
	NEED(pl_comm_world_open(o, &w, &e) == PL_EIO);
	NEED(open_files() == before);
	return 0;
}

static void test_leaks(void)
{
	static const char *const what[] = { "one of two", "... by a folder", "no such address" };

	for (int i = 0; i < 3; i++) {
		struct pl_world_opts o = { .size = 2, .token = TOKEN };
		struct pl_err e = { 0 };

		o.meet = meeting(i != 1);
		o.bind = i == 2 ? "203.0.113.1" : NULL; /* nobody's, by RFC 5737 */
		ok(fails(&o, &e) == 0, "a meeting that failed leaves nothing open: %s", what[i]);
		o.rank = 1;
		if (i < 2)
			ok(fails(&o, &e) == 0, "... to the other");
	}
}

static void test_taken(void)
{
	int fd, port, second;
	char address[PL_ADDRESS_MAX];
	struct pl_err e = { 0 };

	ok(pl_comm_net_listen("127.0.0.1", 0, &fd, &port, address, &e) == 0 &&
		   !strcmp(address, "127.0.0.1"),
	   "a port");
	ok(pl_comm_net_listen("127.0.0.1", port, &second, &port, address, &e) == PL_EIO &&
		   strstr(e.msg, "another program has it"),
	   "... is taken (%s)", e.msg);
	close(fd);
}

/* Ranks of a world that is a part of a job: messages have their numbers in the job. The last comes
 * as one that is there. */
static int comes_twice(struct pl_world_opts *o, void *arg)
{
	static const uint32_t names[] = { 4, 6, 7 };
	struct pl_err e = { 0 };
	struct pl_world *w;
	bool again = o->rank == 3;

	(void)arg;
	o->size = 3;
	o->names = names;
	o->timeout_ns = 2000000000;
	o->meet_ns = 10000000000;
	nap_ms(again ? 600 : o->rank == 2 ? 1500 : 0);
	if (again) {
		o->rank = 1;
		NEED(pl_comm_world_open(o, &w, &e) == PL_EIO);
		NEED(strstr(e.msg, "rank 6 came twice"));
		return 0;
	}
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void test_twice(void)
{
	struct pl_world_opts o = { .meet = meeting(true) };

	ok(run_ranks(4, &o, comes_twice, NULL, 20), "who comes twice is named as in the job");
}

/* ---- what an earlier run left ---- */

struct left { /* in the folder of the meeting, until rank 0 comes */
	const char *token, *address;
};
static const char other_token[] =
	"0000000000000000000000000000000000000000000000000000000000000001";
static const char own_token[] = "0000000000000000000000000000000000000000000000000000000000000002";

static bool leave(const char *folder, const char *file, const char *text)
{
	char path[700];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return pl_comm_leave_file(AT_FDCWD, path, text) == 0;
}

static bool leave_token(const char *folder, const char *token)
{
	char text[200];

	snprintf(text, sizeof(text), "paceline-token 1 abc 7 8 %s", token);
	return leave(folder, "token", text);
}

/* Rank 1 comes first. Rank 0 replaces what it finds. */
static int finds(struct pl_world_opts *o, void *arg)
{
	const char *folder = o->meet + 4;
	const struct left *left = arg;
	struct pl_launch l = { .rank = o->rank };
	struct pl_err e = { 0 };
	struct pl_world *w;
	char file[64];

	snprintf(l.folder, sizeof(l.folder), "%s", folder);
	o->launch = &l;
	o->token = own_token;
	o->timeout_ns = 2000000000;
	o->meet_ns = 15000000000;
	if (o->rank) {
		o->token = left->token;
		NEED(leave_token(folder, o->token));
		snprintf(file, sizeof(file), "paceline-%016llx",
			 (unsigned long long)pl_hash(o->token, strlen(o->token)));
		NEED(!left->address || leave(folder, file, left->address));
	} else {
		nap_ms(1000);
		NEED(leave_token(folder, o->token));
	}
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void test_left(void)
{
	char address[PL_ADDRESS_MAX], text[200];
	struct pl_world_opts o = { .meet = meeting(false) };
	struct left left = { .token = other_token };
	struct pl_err e = { 0 };
	int silent = -1, port = 0;

	if (strncmp(o.meet, "dir:", 4) != 0) {
		skip("what an earlier run left", "no folder");
		return;
	}
	ok(run_ranks(2, &o, finds, &left, 20), "a token that an earlier run left is replaced");
	if (pl_comm_net_listen("127.0.0.1", 0, &silent, &port, address, &e) < 0)
		printf("# %s\n", e.msg);
	snprintf(text, sizeof(text), "tcp:127.0.0.1:%d %llx", port,
		 (unsigned long long)pl_comm_host_id(NULL));
	left.address = text;
	left.token = own_token;
	o.meet = meeting(false);
	ok(run_ranks(2, &o, finds, &left, 20),
	   "where an earlier run met, somebody else listens and says nothing");
	close(silent);
}

/* More strangers than the door has places for, who stay and say nothing. */
static void test_crowd(void)
{
	struct pl_world_opts o = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET };
	char text[64];
	int port = free_port();
	struct place place = { { text, text, text }, NULL };
	struct ranks r;

	snprintf(text, sizeof(text), "tcp:127.0.0.1:%d", port);
	a.sin_port = htons((uint16_t)port);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fflush(stdout);
	if (fork() == 0) {
		double until = now_s() + 0.5;

		for (int i = 0; i < 300; i++) {
			int s = socket(AF_INET, SOCK_STREAM, 0);

			while (connect(s, (struct sockaddr *)&a, sizeof(a)) < 0 && now_s() < until)
				nap_ms(1);
		}
		nap_ms(3000);
		_exit(0);
	}
	r = start_ranks(3, &o, meets, &place);
	ok(end_ranks(&r, 10) && !r.status[0] && !r.status[1] && !r.status[2],
	   "strangers who fill the place keep nobody out");
	while (wait(NULL) > 0)
		;
}

/* Rank 0 has no descriptor left for those who come: it waits for its deadline, and does not spin.
 */
static int no_descriptors(struct pl_world_opts *o, void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct rlimit limit;
	struct rusage used;
	struct pl_err e = { 0 };
	struct pl_world *w;
	int next = dup(0);

	close(next);
	if (o->rank) {
		nap_ms(200);
		a.sin_port = htons((uint16_t) * (int *)arg);
		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		NEED(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a)) ==
		     0);
		nap_ms(1500);
		return 0;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)next + 1; /* it listens */
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	o->timeout_ns = 1000000000;
	NEED(pl_comm_world_open(o, &w, &e) == PL_EIO && strstr(e.msg, "rank 1 never came"));
	getrusage(RUSAGE_SELF, &used);
	NEED(used.ru_utime.tv_sec + used.ru_stime.tv_sec == 0 &&
	     used.ru_utime.tv_usec + used.ru_stime.tv_usec < 200000);
	return 0;
}

static void test_no_descriptors(void)
{
	int port = free_port();
	char text[64];
	struct pl_world_opts o = { .meet = text };

	snprintf(text, sizeof(text), "tcp:127.0.0.1:%d", port);
	ok(run_ranks(2, &o, no_descriptors, &port, 10), "without descriptors it waits, idle");
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	test_no_descriptors();
	test_names();
	test_places();
	test_leaks();
	test_taken();
	test_twice();
	test_left();
	test_crowd();
	return done_testing();
}
