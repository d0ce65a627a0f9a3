/*
 * libpaceline-cuda.so, driven as the driver and CUPTI do (a stand-in): what they told is in the
 * trace, joined; together with libpaceline-nccl.so the kernels name their collectives.
 *
 * runner: threads
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cupti_script.h"
#include "record/nccl.h"
#include "record/rec.h"
#include "record_fixture.h"
#include "tap.h"

static char folder[64], cuda_lib[700], nccl_lib[700], fake[700];
static uint64_t (*pushed)(void); /* of the stand-in: the calling thread's number */

/*
 * The address sanitizer of clang before 17 is not prepared for fork(). A thread of the parent may
 * hold a lock of its allocator at that moment; the child then waits for this lock without end, when
 * it searches for leaks at its exit. So the child of a program with threads does not search.
 */
static int no_leak_check;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return no_leak_check;
}

/* ---- as the driver, CUPTI and NCCL --------------------------------------------------------- */

static void range(uint32_t id, const char *name, bool begin, uint64_t at)
{
	const struct cu_marker m = { .kind = CU_MARKER,
				     .flags = begin ? CU_MARKER_START : CU_MARKER_END,
				     .at = base + at,
				     .id = id,
				     .object = CU_OBJECT_THREAD,
				     .thread = (uint32_t)syscall(SYS_gettid),
				     .name = begin ? name : NULL };

	put(&m);
}

static void memory(uint32_t operation, uint64_t bytes)
{
	union {
		struct cu_memory m;
		uint8_t room[256];
	} r = { .m = { .kind = CU_MEMORY, .operation = operation, .bytes = bytes, .at = base } };

	put(&r);
}

static void more(void)
{
	range(2, NULL, false, 3000); /* ends come first where buffers do */
	range(1, "step", true, 1000);
	range(2, "forward", true, 2000);
	range(1, NULL, false, 4000);
	range(3, "never ends", true, 5000);
	memory(CU_ALLOCATION, 1 << 20);
	memory(CU_RELEASE, 1 << 20);
}

/* ncclAllReduce(): the numbers of its launch that CUPTI is given go to its call and kernel. */
static int all_reduce(const struct np_v5 *np, void *context, uint32_t corr)
{
	struct np_event_v5 e = { .type = NP_GROUP_API };
	void *group, *call, *h;
	union record launch = { .external = { .kind = CU_EXTERNAL, .sort = CU_CUSTOM0 } };

	np->start(context, &group, &e);
	e = (struct np_event_v5){ .type = NP_COLL_API, .parent = group };
	e.what.api.func = "AllReduce";
	np->start(context, &call, &e);
	np->stop(call);
	e = (struct np_event_v5){ .type = NP_KERNEL_LAUNCH, .parent = group };
	np->start(context, &h, &e);
	launch.external.number = pushed();
	launch.external.corr = corr;
	put(&launch);
	api(CU_DRIVER, LAUNCH_EX, corr, 200000, 1000);
	np->stop(h);
	e = (struct np_event_v5){ .type = NP_COLL, .parent = call };
	e.what.coll.func = "AllReduce";
	e.what.coll.type = "ncclFloat32";
	e.what.coll.count = 256;
	np->start(context, &h, &e);
	np->stop(h);
	np->stop(group);
	kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", corr, 13, 210000, 5000);
	return launch.external.number ? 0 : 1;
}

static int with_nccl(void)
{
	void *dl = dlopen(nccl_lib, RTLD_NOW | RTLD_LOCAL), *context;
	const struct np_v5 *np = dl ? dlsym(dl, "ncclProfiler_v6") : NULL;
	int mask = 0;

	if (!np || np->init(&context, 0xabc, &mask, "world", 1, 2, 0, NULL) || !mask)
		return 1;
	if (all_reduce(np, context, 20))
		return 2;
	return np->finalize(context);
}

static int drive(bool nccl, bool forks)
{
	int (*inject)(void) = NULL, status = 0;
	void *stand_in = dlopen(fake, RTLD_NOW), *dl = dlopen(cuda_lib, RTLD_NOW | RTLD_LOCAL);

	if (!stand_in || !dl || !pl_symbol(stand_in, "fake_cupti_put", &put) ||
	    !pl_symbol(stand_in, "fake_cupti_external", &pushed) ||
	    !pl_symbol(dl, "InitializeInjection", &inject) || inject() != 1)
		return 3;
	play();
	more();
	if (nccl)
		return with_nccl();
	if (forks) {
		pid_t pid = fork();

		if (pid == 0) {
			no_leak_check = 1;
			exit(0); /* which leaves the files alone */
		}
		waitpid(pid, &status, 0);
	}
	return status;
}

static int in_child(bool nccl, bool forks)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		exit(drive(nccl, forks));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- what is in the trace -------------------------------------------------------------------- */

static int take(const char *name, struct pl_trace *t, struct pl_err *err)
{
	char path[200];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	rc = load(path, t, err);
	unlink(path);
	return rc;
}

static long count(const struct pl_events *e, uint8_t kind, const char *name)
{
	long k = 0;

	for (uint64_t i = 0; i < e->n; i++)
		k += e->kind[i] == kind &&
		     (!name || !strcmp(pl_intern_get(&e->seg.str, e->name[i]), name));
	return k;
}

static const char *meta(const struct pl_trace *t, const char *key)
{
	const char *v = pl_trace_segment_meta_get(&t->seg[0]->seg, key);

	return v ? v : "";
}

static void check_waits(const struct pl_events *e)
{
	bool stream = false, event = false;

	for (uint64_t i = 0; i < e->n; i++) {
		if (e->kind[i] != PL_K_SYNC)
			continue;
		stream |= e->corr[i] == 4 && e->stream[i] == 13 && e->wait_stream[i] == 7 &&
			  e->wait_corr[i] == 3;
		event |= e->corr[i] == 8 && e->wait_stream[i] == 7 && e->wait_corr[i] == 3;
	}
	ok(stream && event, "what stream and host waited for: stream, and call that recorded it");
}

static void test_alone(bool forks)
{
	struct pl_err err = { 0 };
	struct pl_trace t;

	is_i64(in_child(false, forks), 0, forks ? "a program that forks" : "a program");
	if (!ok(take("rank0.cuda.trace", &t, &err) == 0, "its trace: %s", err.msg))
		return;
	ok(count(t.seg[0], PL_K_RUNTIME, NULL) == 7 && count(t.seg[0], PL_K_KERNEL, NULL) == 1 &&
		   count(t.seg[0], PL_K_COLLECTIVE, NULL) == 1 &&
		   count(t.seg[0], PL_K_COPY, NULL) == 1,
	   "calls, kernels, copies; a kernel of NCCL is a collective");
	check_waits(t.seg[0]);
	ok(count(t.seg[0], PL_K_ANNOTATION, "step") == 1 &&
		   count(t.seg[0], PL_K_ANNOTATION, "forward") == 1,
	   "ranges of NVTX");
	is_i64(count(t.seg[0], PL_K_INSTANT, NULL), 2, "memory");
	is_str(meta(&t, PL_REC_LOST), "2",
	       "a kernel without times and a range without end are lost");
	is_str(meta(&t, "all_synchronization"), "true", "all waits are recorded");
	pl_trace_fini(&t);
}

static void test_nccl(void)
{
	struct pl_err err = { 0 };
	struct pl_trace t;
	long good = 0;

	is_i64(in_child(true, false), 0, "a program with NCCL: its launches are marked");
	if (!ok(take("rank0.cuda.trace", &t, &err) == 0, "what CUPTI told: %s", err.msg))
		return;
	for (uint64_t i = 0; i < t.seg[0]->n; i++)
		good += t.seg[0]->kind[i] == PL_K_COLLECTIVE && t.seg[0]->corr[i] == 20 &&
			t.seg[0]->bytes[i] == 1024 && t.seg[0]->seq[i] == 0 &&
			!strcmp(pl_intern_get(&t.seg[0]->seg.str, t.seg[0]->group[i]),
				"world 0000000000000abc");
	is_i64(good, 1, "the kernel has group, number and size of its collective");
	pl_trace_fini(&t);
	if (!ok(take("rank0.nccl.trace", &t, &err) == 0, "what NCCL told: %s", err.msg))
		return;
	ok(count(t.seg[0], PL_K_COLLECTIVE, NULL) == 0 &&
		   count(t.seg[0], PL_K_GPU_ANNOTATION, "ncclAllReduce") == 1,
	   "the collective is not there a second time");
	pl_trace_fini(&t);
}

static void test_taken(void)
{
	struct pl_err err = { 0 };
	struct pl_trace t;

	setenv("FAKE_CUPTI", "other=1", 1);
	is_i64(in_child(false, false), 0, "another profiler has CUPTI: the program goes on");
	ok(take("rank0.cuda.trace", &t, &err) == 0 && (!t.n_segs || t.seg[0]->n == 0),
	   "and nothing is recorded: %s", err.msg);
	pl_trace_fini(&t);
	setenv("FAKE_CUPTI", "", 1);
	setenv("PACELINE_RECORD_DIR", "/nowhere/at/all", 1);
	is_i64(in_child(true, false), 1,
	       "no such folder: NCCL is told that nothing is of interest");
	is_i64(in_child(false, false), 0, "and the program goes on");
	unsetenv("PACELINE_RECORD_DIR");
	is_i64(in_child(false, false), 0, "no folder: the program goes on");
	ok(take("rank0.cuda.trace", &t, &err) < 0, "and there is no file");
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *bin = getenv("BIN");

	(void)argc;
	snprintf(fake, sizeof(fake), "%.*s/../emu/fake_cupti.so",
		 slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
	snprintf(cuda_lib, sizeof(cuda_lib), "%s/libpaceline-cuda.so", bin ? bin : "bin");
	snprintf(nccl_lib, sizeof(nccl_lib), "%s/libpaceline-nccl.so", bin ? bin : "bin");
	snprintf(folder, sizeof(folder), "/tmp/record_cuda_test.XXXXXX");
	if (!ok(mkdtemp(folder) && access(cuda_lib, R_OK) == 0, "the library: %s", cuda_lib))
		return done_testing();
	setenv("PACELINE_CUPTI", fake, 1);
	setenv("PACELINE_RECORD_DIR", folder, 1);
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "2", 1);
	test_alone(false);
	test_alone(true);
	test_nccl();
	test_taken();
	pl_remove_folder(folder);
	return done_testing();
}
