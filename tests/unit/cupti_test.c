/*
 * The trace of a device: CUPTI's buffers become events and a trace; the other source where there is
 * no CUPTI. Both libraries are stand-ins of tests/emu.
 *
 * runner: threads
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cupti_script.h"
#include "record/cupti.h"
#include "record/rec.h"
#include "tap.h"
#include "tensor/cuda/trace.h"
#include "train/tracer.h"

static char folder[512];
static void *fake; /* libcupti */
static int (*is_on)(uint32_t kind);
static int (*subscribed)(void), (*asked)(void), (*bring)(void);

struct got {
	struct pl_device_event e[64];
	char name[64][64];
	int n;
};

static void on_event(void *arg, const struct pl_device_event *e)
{
	struct got *g = arg;

	if (g->n == 64)
		return;
	snprintf(g->name[g->n], sizeof(g->name[0]), "%s", e->name ? e->name : "");
	g->e[g->n++] = *e;
}

static int count(const struct got *g, uint8_t kind)
{
	int n = 0;

	for (int i = 0; i < g->n; i++)
		n += g->e[i].kind == kind;
	return n;
}

/* The event of a kind with this correlation; an empty one if there is none. */
static const struct pl_device_event *find(const struct got *g, uint8_t kind, uint64_t corr)
{
	static const struct pl_device_event none;

	for (int i = 0; i < g->n; i++)
		if (g->e[i].kind == kind && g->e[i].corr == corr)
			return &g->e[i];
	return &none;
}

static const char *name_of(const struct got *g, uint8_t kind, uint64_t corr)
{
	const struct pl_device_event *e = find(g, kind, corr);

	return e->kind == kind && e->corr == corr ? g->name[e - g->e] : "(none)";
}

/* ---- CUPTI ----------------------------------------------------------------------------------- */

static const struct pl_cuda_trace_device device = { .device = 0 };

static bool begin(const char *how, struct got *g, void **trace, struct pl_device_source *s)
{
	struct pl_err err = { 0 };

	memset(g, 0, sizeof(*g));
	setenv("FAKE_CUPTI", how, 1);
	if (!ok(pl_cuda_trace_run(&device, on_event, g, trace, &err) == 0, "started with %s: %s",
		*how ? how : "all it has", err.msg))
		return false;
	pl_cuda_trace_source(*trace, s);
	return true;
}

static void check_events(const struct got *g, bool instances)
{
	const struct pl_device_event *e;

	is_i64(count(g, PL_DEV_CALL), 7, "calls that matter, and no others");
	is_str(name_of(g, PL_DEV_CALL, 2), "cudaLaunchKernel", "without marks of its version");
	is_str(name_of(g, PL_DEV_CALL, 5), "cuLaunchKernelEx", "of the driver, too");
	e = find(g, PL_DEV_CALL, 2);
	ok(e->thread == (uint32_t)syscall(SYS_gettid), "by which thread");
	ok(llabs(e->begin - (pl_ns)(base + 1000)) < 20000 && e->end - e->begin >= 2990 &&
		   e->end - e->begin <= 3010,
	   "when, by the monotonic clock, and how long");
	is_i64(count(g, PL_DEV_KERNEL), 2, "kernels; one without times is none");
	e = find(g, PL_DEV_KERNEL, 2);
	ok(e->stream == 7 && llabs(e->begin - (pl_ns)(base + 8000)) < 20000 &&
		   llabs(e->end - e->begin - 50000) <= 600,
	   "a kernel");
	e = find(g, PL_DEV_COPY, 6);
	ok(e->bytes == 4096 && e->stream == 7 && !strcmp(name_of(g, PL_DEV_COPY, 6), "Memcpy DtoH"),
	   "a copy");
	e = find(g, PL_DEV_RECORD, 3);
	ok(e->stream == 7 && e->event == (1ull << 32 | 9) && e->instance == (instances ? 1001 : 0),
	   "a record of an event");
	e = find(g, PL_DEV_WAIT, 4);
	ok(e->stream == 13 && e->event == (1ull << 32 | 9) && e->instance == (instances ? 1001 : 0),
	   "a stream that waits for it");
	e = find(g, PL_DEV_SYNC, 7);
	ok(e->stream == 7 && e->event == PL_DEV_NO_EVENT && e->instance == 0,
	   "the host waits for a stream");
	e = find(g, PL_DEV_SYNC, 8);
	ok(e->stream == PL_DEV_NO_STREAM && e->event == (1ull << 32 | 9), "and for an event");
	ok(find(g, PL_DEV_LAUNCH, 5)->launch == 77, "within which launch of a library");
}

static void test_versions(void)
{
	static const char *const how[] = { "late=1",
					   "",
					   "clock=0",
					   "version=24",
					   "version=23",
					   "each=0",
					   "version=24 clock=0 each=0",
					   "refuse=9",
					   "version=130100",
					   "late=1" };

	for (size_t i = 0; i < PL_LEN(how); i++) {
		struct pl_device_source s;
		struct pl_err err = { 0 };
		struct got g;
		void *trace;

		if (!begin(how[i], &g, &trace, &s))
			continue;
		ok(!strcmp(s.name, "cupti") && !s.why && s.calls && !s.ranges && !s.lost,
		   "the best source, and all that is asked of it");
		play();
		is_i64(g.n, 0, "nothing is told before it is flushed");
		if (strstr(how[i], "late"))
			ok(bring() == 0, "buffers come before somebody asks for them");
		else
			ok(pl_cuda_trace_flush(trace, &err) == 0, "flushed: %s", err.msg);
		check_events(&g, !strstr(how[i], "version=2"));
		is_i64(is_on(CU_RUNTIME), strstr(how[i], "each=0") != NULL,
		       "all calls are recorded where there is no other way");
		play(); /* what comes later is told at the end */
		pl_cuda_trace_source(trace, &s);
		is_i64((long long)s.lost, 1, "the kernel without times was lost");
		pl_cuda_trace_stop(trace, true);
		is_i64(count(&g, PL_DEV_KERNEL), 4, "the rest is told at the end");
		play();
		is_i64(count(&g, PL_DEV_KERNEL), 4, "and then no more");
		is_i64(subscribed(), 0, "others may subscribe again");
	}
	ok(asked() > 0, "who asks for a buffer while one is brought back does not wait for that");
}

static void test_dropped(void)
{
	struct pl_device_source s;
	struct pl_err err = { 0 };
	struct got g;
	void *trace;

	if (!begin("buffers=2", &g, &trace, &s))
		return;
	play(); /* 16 records that are wanted, 4 of which fit */
	ok(pl_cuda_trace_flush(trace, &err) == 0, "flushed");
	pl_cuda_trace_source(trace, &s);
	is_i64((long long)s.lost, 12, "records for which there was no room are counted");
	pl_cuda_trace_stop(trace, true);
}

static void test_missing(void)
{
	struct pl_device_source s;
	struct got g;
	void *trace;

	if (!begin("kind=36:27", &g, &trace, &s))
		return;
	ok(!strcmp(s.name, "cupti") && !s.calls, "records of events cannot be had: it says so");
	play();
	pl_cuda_trace_stop(trace, true);
	is_i64(count(&g, PL_DEV_RECORD), 0, "and has none");
	ok(count(&g, PL_DEV_KERNEL) == 2, "but the rest");
}

/* ---- from its buffers to a trace --------------------------------------------------------------
 */

static int start(void *ctx, pl_device_event_fn *event, void *arg, void **trace, struct pl_err *err)
{
	return pl_cuda_trace_run(ctx, event, arg, trace, err);
}

static const struct pl_device_trace table = { start, pl_cuda_trace_source, pl_cuda_trace_range,
					      pl_cuda_trace_flush, pl_cuda_trace_stop };

static void test_trace(const char *path)
{
	const struct pl_rec_opts o = { .path = path, .size = 1, .host = "box" };
	const struct pl_trace_reader_opts ro = { 0 };
	struct pl_cuda_trace_device d = device;
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_tracer *t;
	struct pl_trace tr = { 0 };
	struct pl_in *in;
	uint64_t lost = 0;
	bool stream = false, event = false;
	int rc = pl_rec_open(&o, &r, &err);

	setenv("FAKE_CUPTI", "", 1);
	rc = rc < 0 ? rc : pl_train_tracer_new(r, &t, &err);
	rc = rc < 0 ? rc : pl_train_tracer_device(t, &table, &d, NULL, &err);
	if (rc == 0)
		play();
	rc = rc < 0 ? rc : pl_train_tracer_stop(t, true, &lost, &err);
	if (rc == 0) {
		pl_train_tracer_free(t);
		rc = pl_rec_close(r, NULL, &err);
	}
	in = rc < 0 ? NULL : pl_in_open(path, &err);
	rc = in ? pl_trace_load(in, &ro, &tr, &err) : -1;
	pl_in_close(in);
	if (!ok(rc == 0, "from buffers to a file: %s", err.msg))
		return;
	is_i64((long long)lost, 1, "the kernel without times was lost");
	is_i64((long long)tr.seg[0]->n, 7 + 2 + 1 + 3, "calls, kernels, a copy, waits");
	for (uint64_t i = 0; i < tr.seg[0]->n; i++) {
		const struct pl_events *e = tr.seg[0];

		if (e->kind[i] != PL_K_SYNC)
			continue;
		stream |= e->corr[i] == 4 && e->stream[i] == 13 && e->wait_stream[i] == 7 &&
			  e->wait_corr[i] == 3;
		event |= e->corr[i] == 8 && e->wait_stream[i] == 7 && e->wait_corr[i] == 3;
	}
	ok(stream, "the wait of a stream: for which, recorded by which call");
	ok(event, "the wait of the host for an event, likewise");
	pl_trace_fini(&tr);
}

/* ---- events in place of CUPTI --------------------------------------------------------------- */

static void pause_ns(long ns)
{
	const struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

static void test_events(void)
{
	int64_t (*busy)(int64_t ns), (*release)(void);
	void (*hold)(void);
	int (*events)(int result);
	struct pl_device_source s;
	struct pl_err err = { 0 };
	struct got g;
	void *trace, *cuda;
	pl_ns until;

	setenv("FAKE_CUPTI", "kind=10:39", 1);
	memset(&g, 0, sizeof(g));
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		ok(pl_cuda_trace_run(&device, on_event, &g, &trace, &err) == PL_EABSENT &&
			   strstr(err.msg, "libcuda.so.1"),
		   "neither CUPTI nor a driver: %s", err.msg);
		snprintf(folder + strlen(folder), 32, "/fake_cuda.so");
		cuda = dlopen(folder, RTLD_NOW | RTLD_GLOBAL); /* which calls itself libcuda.so.1 */
	} else {
		skip("the stand-in of the driver", "there is a real one");
		return;
	}
	if (!ok(cuda != NULL, "the stand-in: %s", cuda ? folder : dlerror()))
		return;
	if (!ok(pl_symbol(cuda, "fake_cuda_busy", &busy) &&
			pl_symbol(cuda, "fake_cuda_hold", &hold) &&
			pl_symbol(cuda, "fake_cuda_release", &release) &&
			pl_symbol(cuda, "fake_cuda_events", &events),
		"what it offers to tests"))
		return;
	if (!begin("other=1", &g, &trace, &s))
		return;
	ok(!strcmp(s.name, "events") && s.ranges && !s.calls && strstr(s.why, "another profiler"),
	   "events in its place, and why: %s", s.why);
	hold(); /* a busy machine may stop this thread between any two calls */
	pl_cuda_trace_range(trace, "forward fc1", true);
	busy(3000000);
	pl_cuda_trace_range(trace, "forward fc1", false);
	pause_ns(500000);
	pl_cuda_trace_range(trace, "backward fc1", true);
	busy(2000000);
	pl_cuda_trace_range(trace, "backward fc1", false);
	until = release();
	is_i64(g.n, 0, "nothing waits, nothing is told yet");
	ok(pl_cuda_trace_flush(trace, &err) == 0, "flushed: %s", err.msg);
	ok(count(&g, PL_DEV_KERNEL) == 2 && count(&g, PL_DEV_CALL) == 2, "two layers");
	is_str(name_of(&g, PL_DEV_KERNEL, 1), "forward fc1", "by name");
	ok(fabs((double)(g.e[1].end - g.e[1].begin) - 3e6) < 2e3, "as long as the device took");
	ok(llabs(g.e[3].end - until) < 200000, "where it was, by the monotonic clock: %lld us off",
	   (long long)(g.e[3].end - until) / 1000);
	ok(g.e[3].begin >= g.e[1].end - 2000 && g.e[2].begin < g.e[1].end,
	   "one after the other, whatever the host did");
	ok(g.e[0].corr == g.e[1].corr && g.e[2].corr == g.e[3].corr, "each with its launch");
	for (int i = 0; i < 40000; i++) {
		pl_cuda_trace_range(trace, "many", true);
		pl_cuda_trace_range(trace, "many", false);
	}
	pl_cuda_trace_range(trace, "open", true); /* and no end */
	pl_cuda_trace_stop(trace, true);
	is_i64(count(&g, PL_DEV_KERNEL) + count(&g, PL_DEV_CALL), 64, "many more");
	is_i64(events(2), 0, "no event is left");
	ok(pl_cuda_trace_run(&device, on_event, &g, &trace, &err) == PL_EABSENT,
	   "a device without events");
}

static void test_clock(void)
{
	struct pl_cuda_trace_clock c = { .n = 0 };

	pl_cuda_trace_clock_pair(&c, 5000000000, 1000);
	ok(pl_cuda_trace_clock_to_host(&c, 5000000000) == 1000 &&
		   pl_cuda_trace_clock_to_host(&c, 4999999000) == 0,
	   "one pair: the distance");
	pl_cuda_trace_clock_pair(&c, 5000000100, 1101);
	is_i64(pl_cuda_trace_clock_to_host(&c, 6000000100), 1000001101,
	       "two near ones tell no drift");
	pl_cuda_trace_clock_pair(&c, 6000000100, 1000001101 + 10000);
	is_i64(pl_cuda_trace_clock_to_host(&c, 5500000100), 500001101 + 5000,
	       "two far ones do: 10 ppm");
	is_i64(pl_cuda_trace_clock_to_host(&c, 7000000100), 2000001101 + 20000, "and further on");
	pl_cuda_trace_clock_pair(&c, 7000000100, 9000000000);
	is_i64(pl_cuda_trace_clock_to_host(&c, 7000000200), 9000000100,
	       "a clock that was set is no drift");
}

int main(int argc, char **argv)
{
	char path[] = "/tmp/cupti_test.XXXXXX", lib[600];
	const char *slash = strrchr(argv[0], '/');
	int fd = mkstemp(path);
	void *p = NULL;

	(void)argc;
	close(fd);
	snprintf(folder, sizeof(folder), "%.*s/../emu", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	snprintf(lib, sizeof(lib), "%s/fake_cupti.so", folder);
	setenv("PACELINE_CUPTI", lib, 1);
	fake = dlopen(lib, RTLD_NOW);
	if (fake) {
		p = dlsym(fake, "fake_cupti_on");
		memcpy(&is_on, &p, sizeof(p));
		p = dlsym(fake, "fake_cupti_subscribed");
		memcpy(&subscribed, &p, sizeof(p));
		p = dlsym(fake, "fake_cupti_bring");
		memcpy(&bring, &p, sizeof(p));
		p = dlsym(fake, "fake_cupti_asked");
		memcpy(&asked, &p, sizeof(p));
		p = dlsym(fake, "fake_cupti_put");
		memcpy(&put, &p, sizeof(p));
	}
	if (!ok(p != NULL, "the stand-in: %s", fake ? lib : dlerror()))
		return done_testing();
	test_clock();
	test_versions();
	test_dropped();
	test_missing();
	test_trace(path);
	test_events();
	unlink(path);
	return done_testing();
}
