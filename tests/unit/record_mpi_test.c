/*
 * libpaceline-mpi.so, where handles come again and calls fail: numbers of messages stay those that
 * the rank at the other end counts. The library of MPI is a stand-in with a name that nobody knows,
 * in a scope of its own.
 *
 * runner: threads
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../emu/fake_mpi.h"
#include "record/mpi_abi.h"
#include "record/rec.h"
#include "record_fixture.h"
#include "tap.h"

#define BYTE ((int)PL_MPICH_BYTE)

static char folder[64], lib[700], fake[700];

/* Handles are ints: this is MPICH's interface. */
#define CALLS(X)                                                                                   \
	X(Init, (int *, char ***))                                                                 \
	X(Finalize, (void))                                                                        \
	X(Comm_dup, (int, int *))                                                                  \
	X(Comm_free, (int *))                                                                      \
	X(Send, (const void *, int, int, int, int, int))                                           \
	X(Recv, (void *, int, int, int, int, int, void *))                                         \
	X(Irecv, (void *, int, int, int, int, int, int *))                                         \
	X(Cancel, (int *))                                                                         \
	X(Request_free, (int *))                                                                   \
	X(Wait, (int *, void *))                                                                   \
	X(Waitall, (int, int *, void *))
#define MEMBER(name, params) int(*name) params;
static struct {
	CALLS(MEMBER)
} mpi;
static struct fake_mpi *now; /* what the stand-in does */
static const int world = (int)PL_MPICH_COMM_WORLD;
static void *const ignore = (void *)1; /* a status */

static bool open_mpi(bool behind)
{
	void *dl = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	void *stand_in = behind ? dlopen(fake, RTLD_NOW | RTLD_LOCAL) : NULL, *p;

	if (!dl || (behind && !stand_in)) {
		printf("# %s\n", dlerror());
		return false;
	}
	now = stand_in ? dlsym(stand_in, "fake_mpi") : NULL;
#define FIND(name, params)                                                                         \
	p = dlsym(dl, "MPI_" #name);                                                               \
	if (!p)                                                                                    \
		return false;                                                                      \
	memcpy(&mpi.name, &p, sizeof(p));
	CALLS(FIND)
	return now || !behind;
}

static void send(int tag, int comm)
{
	mpi.Send("abcd", 4, BYTE, 1, tag, comm);
}

static void receive(int source, int tag, int comm)
{
	char p[4];

	now->source = source;
	now->tag = tag;
	mpi.Recv(p, 4, BYTE, source, tag, comm, ignore);
}

static int post(int handle, int source, int tag)
{
	static char p[4];
	int request;

	now->request = handle;
	mpi.Irecv(p, 4, BYTE, source, tag, world, &request);
	return request;
}

static void wait_for(int request, int source, int tag)
{
	now->source = source;
	now->tag = tag;
	mpi.Wait(&request, ignore);
}

/* ---- what a program does --------------------------------------------------------------------- */

static void comms_again(void)
{
	int copy, again;

	mpi.Comm_dup(world, &copy);
	for (int i = 0; i < 3; i++)
		send(0, copy);
	mpi.Comm_free(&copy);
	mpi.Comm_dup(world, &again); /* the same handle */
	for (int i = 0; i < 2; i++)
		send(0, again);
	send(0, world);
}

static void sends_fail(void)
{
	send(3, world);
	now->fails = true;
	send(3, world);
	send(3, world);
}

static void waits_fail(void)
{
	int r[2] = { post(71, 1, 5), post(72, 1, 5) };

	now->fails = true;
	mpi.Waitall(2, r, ignore);
	wait_for(post(71, 1, 6), 1, 6);
	r[0] = post(72, 1, 7);
	now->fails = true;
	mpi.Wait(r, ignore);
	wait_for(post(72, 1, 8), 1, 8);
}

static void cancels(void)
{
	int first = post(71, 1, 5), second = post(72, 1, 5), freed;

	mpi.Cancel(&first);
	now->cancelled = true;
	wait_for(first, -1, -1);
	now->cancelled = false;
	wait_for(second, 1, 5);
	receive(1, 5, world);
	freed = post(71, 1, 5);
	mpi.Cancel(&freed);
	mpi.Request_free(&freed);
	receive(1, 5, world);
	first = post(71, 1, 5);
	mpi.Cancel(&first); /* too late */
	wait_for(first, 1, 5);
}

static void huge_type(void)
{
	mpi.Send("", 3, FAKE_MPI_HUGE, 1, 0, world);
}

/* ---- what the recorder makes of it ----------------------------------------------------------- */

struct message {
	uint8_t kind;
	int tag, order;
};

/* In a child, which the recorder takes for a rank. */
static int run(void (*program)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		if (!open_mpi(true) || mpi.Init(NULL, NULL))
			exit(1);
		program();
		exit(mpi.Finalize());
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static bool same(const struct pl_events *e, const struct message *m, size_t n)
{
	size_t k = 0;

	for (uint64_t i = 0; i < e->n; i++) {
		if (e->kind[i] != PL_K_SEND && e->kind[i] != PL_K_RECV)
			continue;
		printf("# %s, tag %d, number %d\n", e->kind[i] == PL_K_SEND ? "send" : "recv",
		       (int)(e->seq[i] >> 32), (int)e->seq[i]);
		if (k == n || e->kind[i] != m[k].kind || e->seq[i] >> 32 != m[k].tag ||
		    (int)e->seq[i] != m[k].order)
			return false;
		k++;
	}
	return k == n;
}

/* m[0 .. n): the messages that should be recorded; lost: events that should be counted. */
static void check(const char *what, void (*program)(void), const struct message *m, size_t n,
		  int lost)
{
	char path[128];
	struct pl_err err = { 0 };
	struct pl_trace t = { 0 };
	const char *said;

	snprintf(path, sizeof(path), "%s/rank0.mpi.trace", folder);
	if (ok(run(program) == 0 && load(path, &t, &err) == 0 && t.n_segs == 1, "%s: %s", what,
	       err.msg)) {
		ok(same(t.seg[0], m, n), "... with the numbers of the other end");
		said = pl_trace_segment_meta_get(&t.seg[0]->seg, PL_REC_LOST);
		is_i64(said ? atoi(said) : 0, lost, "... and what is not known is counted");
		if (program == huge_type)
			ok(!t.seg[0]->bytes || t.seg[0]->bytes[0] == INT64_MIN, "... no size");
	}
	pl_trace_fini(&t);
	unlink(path);
}
#define CHECK(what, program, lost, ...)                                                            \
	do {                                                                                       \
		static const struct message m_[] = { __VA_ARGS__ };                                \
		check(what, program, m_, PL_LEN(m_), lost);                                        \
	} while (0)

static void test_nothing_behind(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		exit(open_mpi(false) ? mpi.Init(NULL, NULL) : 0);
	waitpid(pid, &status, 0);
	is_i64(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 16,
	       "without a library of MPI it fails");
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *bin = getenv("BIN");
	char file[600];

	(void)argc;
	snprintf(folder, sizeof(folder), "/tmp/record_mpi_test.XXXXXX");
	snprintf(lib, sizeof(lib), "%s/libpaceline-mpi.so", bin ? bin : "bin");
	if (!ok(mkdtemp(folder) && access(lib, R_OK) == 0, "the library: %s", lib))
		return done_testing();
	snprintf(fake, sizeof(fake), "%.*s/../emu/fake_mpi.so", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	if (!realpath(fake, file))
		file[0] = '\0';
	snprintf(fake, sizeof(fake), "%s/libmpi_gnu_123.so.12", folder);
	if (!ok(symlink(file, fake) == 0, "the stand-in: %s", file))
		return done_testing();
	setenv("PACELINE_RECORD_DIR", folder, 1);
	CHECK("a communicator with the handle of one that was freed", comms_again, 0,
	      { PL_K_SEND, 0, 0 }, { PL_K_SEND, 0, 1 }, { PL_K_SEND, 0, 2 }, { PL_K_SEND, 0, 0 },
	      { PL_K_SEND, 0, 1 }, { PL_K_SEND, 0, 0 });
	CHECK("a send that fails", sends_fail, 0, { PL_K_SEND, 3, 0 }, { PL_K_SEND, 3, 1 });
	CHECK("waits that fail", waits_fail, 3, { PL_K_RECV, 6, 0 }, { PL_K_RECV, 8, 0 });
	CHECK("receives that are cancelled", cancels, 0, { PL_K_RECV, 5, 0 }, { PL_K_RECV, 5, 1 },
	      { PL_K_RECV, 5, 2 }, { PL_K_RECV, 5, 3 });
	CHECK("a type of more than 2 GiB", huge_type, 0, { PL_K_SEND, 0, 0 });
	test_nothing_behind();
	pl_remove_folder(folder);
	return done_testing();
}
