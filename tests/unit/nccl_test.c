/*
 * Memory of a device in worlds: through NCCL and, staged, through everything else; with a device
 * and a libnccl that stand in for real ones (tests/emu). Then what can go wrong: in each case all
 * ranks say the same, in time.
 *
 * runner: waits, threads
 */
#include "device_fixture.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <sys/mman.h>

#include "../emu/fake_device.h"
#include "comm/nccl_abi.h"

#define RANKS 4

static int all_of_it(struct pl_world_opts *o, void *transport)
{
	o->transport = transport;
	return everything(o, &pl_backend_fake);
}

static void test_everything(void)
{
	static const char *const transport[] = { "nccl", "tcp", "auto" };

	for (size_t i = 0; i < PL_LEN(transport); i++)
		for (int n = 1; n <= RANKS; n++) {
			struct pl_world_opts o = { .timeout_ns = 20000000000 };
			double from = now_s();
			bool fine;

			if (n == 3)
				continue;
			o.meet = meeting(false);
			fine = run_ranks(n, &o, all_of_it, (void *)(uintptr_t)transport[i], 40);
			ok(fine, "memory of a device: %s, %d rank%s (%.1f s)", transport[i], n,
			   n > 1 ? "s" : "", now_s() - from);
		}
}

/* ---- what can go wrong ---- */

struct verdict {
	int rc;
	char msg[1024];
	double seconds; /* from the last good operation to the word of the failure */
};
struct trial {
	const char *fault, *version, *library, *transport;
	int rank, code; /* who is to blame, and what is expected of all others (and of it) */
	const char *says;
	bool on_cpu, dies, uneven;
	bool waits;		 /* for a deadline: the other trials run meanwhile */
	struct verdict *verdict; /* of each rank */
};

/* The odd one is of another size. */
static int one_of_each(struct rank *r, unsigned odd, struct pl_err *err)
{
	static const uint8_t op[] = { PL_OP_ALLREDUCE, PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER,
				      PL_OP_BROADCAST, PL_OP_ALLTOALL };
	int rc = 0;

	for (unsigned i = 0; i < 12 && rc == 0; i++) {
		struct trip t;

		if (!prepare(r, &t, op[i % PL_LEN(op)], 20000 + (i == odd), i % 2, i))
			return PL_ENOMEM;
		load(r, &t);
		rc = pl_comm_world_begin(r->w, &t.a, &t.work, err);
		if (rc == 0)
			rc = pl_comm_work_wait(t.work, err);
		if (rc == 0 && i % 2)
			rc = pl_comm_world_settle(r->w, err);
	}
	return rc;
}

static int go_wrong(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct verdict *v = &t->verdict[o->rank];
	struct pl_err e = { 0 };
	double from = now_s();
	struct rank r;

	if (t->fault)
		setenv("FAKE_NCCL_FAULT", t->fault, 1);
	if (t->version)
		setenv("FAKE_NCCL_VERSION", t->version, 1);
	if (t->library && o->rank == t->rank)
		setenv("PACELINE_NCCL", t->library, 1);
	o->transport = "nccl";
	if (t->on_cpu) {
		v->rc = pl_comm_world_open(o, &r.w, &e);
	} else {
		v->rc = open_rank(o, &pl_backend_fake, &r, &e);
		if (v->rc == 0) {
			v->rc = one_of_each(&r, t->uneven && o->rank == t->rank ? 5 : UINT_MAX, &e);
			if (v->rc == 0)
				v->rc = close_rank(&r, &e);
			else
				pl_comm_world_abort(r.w, e.msg);
		}
	}
	v->seconds = now_s() - from;
	snprintf(v->msg, sizeof(v->msg), "%s", e.msg);
	return v->rc ? 0 : 1;
}

static const struct trial trials[] = {
	{ .fault = "1:5:error", .rank = 1, .code = PL_EIO, .says = "cuda failure 700" },
	{ .fault = "1:0:error", .rank = 1, .code = PL_EIO, .says = "cuda failure 700" },
	{ .fault = "2:4:remote", .rank = 2, .code = PL_EIO, .says = "remote process" },
	{ .fault = "1:5:exit", .rank = 1, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "1:0:exit", .rank = 1, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "2:1:exit", .rank = 2, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "0:2:exit", .rank = 0, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "1:3:exit", .rank = 1, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "2:4:exit", .rank = 2, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "1:-1:exit", .rank = 1, .code = PL_EIO, .says = "gone", .dies = true },
	{ .fault = "1:-1:error", .rank = 1, .code = PL_EIO, .says = "unhandled cuda" },
	{ .fault = "1:5:hang",
	  .rank = -1,
	  .code = PL_EIO,
	  .says = "for nccl to end it",
	  .waits = true },
	{ .fault = "1:-1:hang",
	  .rank = -1,
	  .code = PL_EIO,
	  .says = "for nccl to end it",
	  .waits = true },
	{ .fault = "1:5:deaf",
	  .rank = -1,
	  .code = PL_EIO,
	  .says = "for nccl to end it",
	  .waits = true },
	{ .fault = "1:5:stuck",
	  .rank = 1,
	  .code = PL_EIO,
	  .says = "has not returned",
	  .waits = true },
	{ .fault = "1:-1:twice", .rank = 1, .code = PL_EIO, .says = "one rank a GPU" },
	{ .uneven = true, .rank = 1, .code = PL_EIO, .says = "not begin the same" },
	{ .version = "2:22703", .rank = 2, .code = PL_EABSENT, .says = "2.27.3" },
	{ .version = "1:21308", .rank = 1, .code = PL_EABSENT, .says = "2.14 or newer" },
	{ .library = "/nowhere/libnccl.so.2",
	  .rank = 1,
	  .code = PL_EABSENT,
	  .says = "cannot load /nowhere" },
	{ .on_cpu = true, .rank = -1, .code = PL_EUSAGE, .says = "device cuda" },
};

static struct ranks start_trial(struct trial *t)
{
	struct pl_world_opts o = { .timeout_ns = 1000000000,
				   .patience_ns = 2000000000,
				   .meet_ns = 10000000000 };

	if (t->uneven) /* not by that deadline */
		o.patience_ns = 60000000000;
	o.meet = meeting(false);
	return start_ranks(3, &o, go_wrong, t);
}

static void end_trial(const struct trial *t, struct ranks *r)
{
	const char *what = t->fault	? t->fault
			   : t->version ? t->version
			   : t->library ? t->library
			   : t->uneven	? "unlike sizes"
					: "no device";
	bool fine = true, named = true, over = end_ranks(r, 20);
	char rank[16];
	double longest = 0;

	snprintf(rank, sizeof(rank), "rank %d", t->rank);
	for (int k = 0; k < 3; k++) {
		const struct verdict *v = &t->verdict[k];
		bool good = r->status[k] == 0 && v->rc == t->code && strstr(v->msg, t->says);

		if (k == t->rank && t->dies)
			continue;
		if (v->seconds > longest)
			longest = v->seconds;
		fine &= good;
		named &= t->rank < 0 || strstr(v->msg, rank);
		if (!good || (t->rank >= 0 && !strstr(v->msg, rank)))
			printf("# %s: rank %d ended with %d, %d: %s\n", what, k, r->status[k],
			       v->rc, v->msg);
	}
	ok(fine && over, "%s: all ranks say why (%.1f s)", what, longest);
	ok(named, "%s: ... and whose fault it is", what);
}

static void test_faults(struct verdict *verdict)
{
	struct trial t[PL_LEN(trials)];
	struct ranks r[PL_LEN(trials)];

	for (size_t i = 0; i < PL_LEN(trials); i++) {
		t[i] = trials[i];
		t[i].verdict = &verdict[i * RANKS];
		if (t[i].waits)
			r[i] = start_trial(&t[i]);
	}
	for (size_t i = 0; i < PL_LEN(trials); i++)
		if (!t[i].waits) {
			r[i] = start_trial(&t[i]);
			end_trial(&t[i], &r[i]);
		}
	for (size_t i = 0; i < PL_LEN(trials); i++)
		if (t[i].waits)
			end_trial(&t[i], &r[i]);
}

/* ---- what is begun while a call is in progress ---- */

/* The first collective makes the communicator connect, which takes 3 ms. After *delay_us the ranks
 * begin a message behind it: the end of the connection must not take it for one of its calls. */
static int begin_late(struct pl_world_opts *o, void *delay_us)
{
	enum { N = 100 };
	struct pl_coll_args sum = { .op = PL_OP_ALLREDUCE, .count = N };
	struct pl_coll_args message = { .count = N, .root = !o->rank };
	struct pl_work *first, *second;
	struct pl_err e = { 0 };
	struct rank r;
	float *data;
	int rc;

	o->transport = "nccl";
	if (open_rank(o, &pl_backend_fake, &r, &e) < 0)
		return 1;
	sum.src = sum.dst = r.b->alloc(r.ctx, N * sizeof(float));
	data = r.b->alloc(r.ctx, N * sizeof(float));
	message.op = r.me ? PL_OP_RECV : PL_OP_SEND;
	message.src = r.me ? NULL : data;
	message.dst = r.me ? data : NULL;
	for (size_t i = 0; i < N; i++)
		r.host[i] = r.me ? -1 : input(0, i, 0);
	r.b->put(r.ctx, data, r.host, N * sizeof(float));
	rc = pl_comm_world_begin(r.w, &sum, &first, &e);
	pl_sleep_ns(*(const int *)delay_us * 1000);
	if (rc == 0)
		rc = pl_comm_world_begin(r.w, &message, &second, &e);
	if (rc == 0)
		rc = pl_comm_work_wait(first, &e);
	if (rc == 0)
		rc = pl_comm_work_wait(second, &e);
	if (rc == 0)
		rc = pl_comm_world_settle(r.w, &e);
	r.b->get(r.ctx, r.host, data, N * sizeof(float));
	for (size_t i = 0; rc == 0 && i < N; i++)
		rc = r.host[i] == input(0, i, 0) ? 0 : PL_EINTERNAL;
	if (rc < 0)
		pl_comm_world_abort(r.w, "begin_late");
	else
		rc = close_rank(&r, &e);
	return rc < 0;
}

static void test_begin_late(void)
{
	int bad = 0, tries = 0;

	for (int us = 2000; us < 4800 && bad < 3; us += 40, tries++) {
		struct pl_world_opts o = { .timeout_ns = 5000000000 };
		struct ranks r;

		o.meet = meeting(false);
		r = start_ranks(2, &o, begin_late, &us);
		bad += !end_ranks(&r, 20) || r.status[0] || r.status[1];
	}
	ok(!bad, "a message that is begun while the communicator connects (%d of %d tries failed)",
	   bad, tries);
}

/* ---- the n-th fallible call fails ---- */

static int torture(struct pl_world_opts *o, void *arg)
{
	struct pl_err e = { 0 };
	char text[16];
	struct rank r;
	int rc;

	snprintf(text, sizeof(text), "%d", *(int *)arg);
	if (o->rank == o->size - 1)
		setenv("PL_FAIL", text, 1);
	o->transport = "nccl";
	rc = open_rank(o, &pl_backend_fake, &r, &e);
	if (rc < 0)
		return e.msg[0] ? 0 : 1;
	rc = on_host(o, &r) ? PL_EIO : one_of_each(&r, UINT_MAX, &e);
	if (rc < 0)
		pl_comm_world_abort(r.w, "torture");
	else
		rc = close_rank(&r, &e);
	return 0;
}

static void test_torture(void)
{
	bool fine = true;
	int most = 120;

#ifdef __SANITIZE_THREAD__ /* twenty times as slow */
	most = 30;
#endif
	for (int n = 1; n <= most; n += n % 10 ? 1 : 4) {
		struct pl_world_opts o = { .timeout_ns = 5000000000 };
		int size = n % 10 ? 1 : 2;
		struct ranks r;
		bool ended;

		o.meet = meeting(false);
		r = start_ranks(size, &o, torture, &n);
		ended = end_ranks(&r, 20) && r.status[0] == 0 && r.status[size - 1] == 0;
		if (!ended)
			printf("# PL_FAIL=%d: %d %d\n", n, r.status[0], r.status[size - 1]);
		fine &= ended;
	}
	ok(fine, "each of the first %d fallible calls fails once, and nothing hangs or breaks",
	   most);
}

/* ---- is what we declare what the library has? ---- */

#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#define HAVE_NCCL_H 1
#include <nccl.h>

static_assert(sizeof(ncclUniqueId) == sizeof(struct pl_nccl_id), "id");
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
		      sizeof(ncclRedOp_t) == sizeof(int),
	      "enumerations are passed as int");
static_assert((int)ncclSuccess == PL_NCCL_SUCCESS && (int)ncclSystemError == PL_NCCL_SYSTEM_ERROR &&
		      (int)ncclRemoteError == PL_NCCL_REMOTE_ERROR &&
		      (int)ncclInProgress == PL_NCCL_IN_PROGRESS,
	      "results");
static_assert((int)ncclFloat32 == PL_NCCL_FLOAT32 && (int)ncclSum == PL_NCCL_SUM, "types");
static_assert(offsetof(ncclConfig_t, size) == offsetof(struct pl_nccl_config, size) &&
		      offsetof(ncclConfig_t, magic) == offsetof(struct pl_nccl_config, magic) &&
		      offsetof(ncclConfig_t, version) == offsetof(struct pl_nccl_config, version) &&
		      offsetof(ncclConfig_t, blocking) ==
			      offsetof(struct pl_nccl_config, blocking) &&
		      sizeof(ncclConfig_t) >= sizeof(struct pl_nccl_config),
	      "configuration");

/* Compiles if the parameters are those of the header; never called. */
__attribute__((unused)) static void call_all(ncclComm_t c, cudaStream_t s, float *p, size_t n)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclResult_t r;
	int v;

	static_assert(sizeof(pl_nccl_comm) == sizeof(c) && sizeof(pl_nccl_stream) == sizeof(s),
		      "handles");
	(void)(ncclGetVersion(&v) + ncclGetUniqueId(&id));
	(void)(ncclCommInitRankConfig(&c, 1, id, 0, &config) + ncclCommFinalize(c));
	(void)(ncclCommDestroy(c) + ncclCommAbort(c) + ncclCommGetAsyncError(c, &r));
	(void)(ncclGetErrorString(r) == ncclGetLastError(c));
	(void)(ncclGroupStart() + ncclGroupEnd());
	(void)ncclAllReduce(p, p, n, ncclFloat32, ncclSum, c, s);
	(void)ncclReduceScatter(p, p, n, ncclFloat32, ncclSum, c, s);
	(void)ncclAllGather(p, p, n, ncclFloat32, c, s);
	(void)ncclBroadcast(p, p, n, ncclFloat32, 0, c, s);
	(void)ncclSend(p, n, ncclFloat32, 0, c, s);
	(void)ncclRecv(p, n, ncclFloat32, 0, c, s);
}
#endif
#endif

static void test_abi(void)
{
	static const char *const symbol[] = {
#define NAME(member, name, type, args) name,
		PL_NCCL_FUNCTIONS(NAME)
#undef NAME
	};
	void *lib = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
	bool all = true;

#ifdef HAVE_NCCL_H
	struct pl_nccl_config c = { .magic = PL_NCCL_MAGIC };
	ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

	ok(theirs.magic == c.magic, "declared as nccl.h has it");
#else
	ok(true, "declared as nccl.h has it # SKIP no nccl.h");
#endif
	if (!lib) {
		ok(true, "the library has what is used # SKIP no libnccl.so.2");
		return;
	}
	for (size_t i = 0; i < PL_LEN(symbol); i++)
		all &= dlsym(lib, symbol[i]) != NULL;
	ok(all, "the library that is installed has what is used");
}

int main(void)
{
	const char *build = getenv("BUILD");
	size_t bytes = PL_LEN(trials) * RANKS * sizeof(struct verdict);
	struct verdict *v =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[1024];

	snprintf(path, sizeof(path), "%s/emu/fake_nccl.so", build ? build : "build");
	setenv("PACELINE_NCCL", path, 1);
	if (!getenv("ONLY") || !strcmp(getenv("ONLY"), "all"))
		test_everything();
	if (!getenv("ONLY") || !strcmp(getenv("ONLY"), "faults"))
		test_faults(v);
	if (!getenv("ONLY") || !strcmp(getenv("ONLY"), "late"))
		test_begin_late();
	test_torture();
	test_abi();
	return done_testing();
}
