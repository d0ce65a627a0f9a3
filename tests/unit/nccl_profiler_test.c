/*
 * What NCCL tells its profiler becomes events that name launch, group, number and size; nothing is
 * asked of NCCL while nobody traces. The test calls as NCCL does.
 *
 * runner: threads
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/nccl.h"
#include "tap.h"
#include "tensor/cuda/trace.h"

/* Layouts that NCCL's own compiler makes of its structures (profiler_v4.h, profiler_v5.h). */
_Static_assert(offsetof(struct np_event_v4, parent) == 8 &&
		       offsetof(struct np_event_v4, rank) == 16 &&
		       offsetof(struct np_event_v4, what) == 24,
	       "the description of an event, version 4");
_Static_assert(sizeof(((struct np_event_v5 *)0)->type) == 8 &&
		       offsetof(struct np_event_v5, what) == 24,
	       "and version 5");
_Static_assert(offsetof(struct np_coll, count) == 32 && offsetof(struct np_coll, type) == 48 &&
		       offsetof(struct np_coll, channels) == 56 &&
		       offsetof(struct np_coll, algo) == 64,
	       "a collective");
_Static_assert(offsetof(struct np_p2p, count) == 24 && offsetof(struct np_p2p, peer) == 32,
	       "a transfer");
_Static_assert(offsetof(struct np_proxy_op, channel) == 4 &&
		       offsetof(struct np_proxy_op, peer) == 8 &&
		       offsetof(struct np_proxy_op, sends) == 20,
	       "a network operation");

struct got {
	struct pl_device_event e[64];
	char name[64][40], group[64][64];
	int n;
};
static struct got got;

static void on_event(void *arg, const struct pl_device_event *e)
{
	(void)arg;
	if (got.n == 64 || (e->kind != PL_DEV_COMM && e->kind != PL_DEV_MESSAGE))
		return;
	snprintf(got.name[got.n], sizeof(got.name[0]), "%s", e->name ? e->name : "");
	snprintf(got.group[got.n], sizeof(got.group[0]), "%s", e->group ? e->group : "");
	got.e[got.n++] = *e;
}

/* ---- as NCCL calls, version 5 ---------------------------------------------------------------- */

static void *context;
static uint64_t (*pushed)(void); /* of the stand-in for CUPTI: the calling thread's number */

static void *start(uint64_t type, void *parent, const union np_what *what)
{
	struct np_event_v5 e = { .type = type, .parent = parent };
	void *handle = &e;

	if (what)
		e.what = *what;
	ncclProfiler_v5.start(context, &handle, &e);
	return handle;
}

static union np_what coll(const char *func, size_t n, const char *type)
{
	return (union np_what){ .coll = { .func = func, .count = n, .type = type } };
}

/* ncclAllReduce(): the call, the launch of its kernel, what it became. Returns the launch's number
 * as CUPTI was given it. */
static uint64_t all_reduce(size_t n, void **handle)
{
	union np_what what = coll("AllReduce", n, "ncclFloat32");
	void *group = start(NP_GROUP_API, NULL, NULL);
	void *call = start(NP_COLL_API, group, NULL), *launch, *c;
	uint64_t number;

	ncclProfiler_v5.stop(call);
	launch = start(NP_KERNEL_LAUNCH, group, NULL);
	number = pushed();
	ncclProfiler_v5.stop(launch);
	c = start(NP_COLL, call, &what);
	ncclProfiler_v5.stop(c);
	ncclProfiler_v5.stop(group);
	if (handle)
		*handle = c;
	return number;
}

static void test_off(void)
{
	union np_what what = coll("AllReduce", 8, "ncclFloat32");
	int mask = 99;

	context = &mask;
	ok(ncclProfiler_v5.init(&context, 1, &mask, "world", 1, 2, 0, NULL) == 0 && mask == 0 &&
		   !context,
	   "nobody traces: a communicator is told that nothing is of interest");
	ok(!start(NP_COLL, NULL, &what) && !start(NP_GROUP_API, NULL, NULL),
	   "events that come all the same have no handle");
	ok(ncclProfiler_v5.stop(NULL) == 0 &&
		   ncclProfiler_v5.state(NULL, NP_SEND_WAIT, NULL) == 0 &&
		   ncclProfiler_v5.finalize(NULL) == 0,
	   "and may end");
	mask = 99;
	ok(ncclProfiler_v4.init(&context, &mask, NULL, 1, 1, 2, 0, NULL) == 0 && mask == 0 &&
		   !context,
	   "likewise in version 4");
}

static void test_collectives(void)
{
	uint64_t first, second;
	int mask = 0;

	got.n = 0;
	ok(ncclProfiler_v5.init(&context, 0xabc, &mask, "world", 1, 4, 0, NULL) == 0 && context &&
		   (mask & NP_KERNEL_LAUNCH) && (mask & NP_COLL) && (mask & NP_PROXY_STEP),
	   "a communicator while somebody traces");
	first = all_reduce(1000, NULL);
	second = all_reduce(10, NULL);
	ok(first && second && first != second, "launches are numbered for CUPTI: %d, %d",
	   (int)first, (int)second);
	is_i64((long long)pushed(), 0, "and over when the launch is");
	if (!ok(got.n == 2, "an event for each collective"))
		return;
	ok(got.e[0].kind == PL_DEV_COMM && !strcmp(got.name[0], "ncclAllReduce") &&
		   !strcmp(got.group[0], "world") && got.e[0].bytes == 4000,
	   "what, of which group, how much");
	ok(got.e[0].launch == first && got.e[1].launch == second, "with the number of its launch");
	ok(got.e[0].seq == 0 && got.e[1].seq == 1, "and its own in the group");
}

static void test_sizes(void)
{
	static const struct {
		const char *func, *type;
		size_t n;
		int64_t bytes;
	} t[] = { { "AllGather", "ncclBfloat16", 10, 80 },
		  { "ReduceScatter", "ncclDouble", 10, 320 },
		  { "Broadcast", "ncclInt8", 10, 10 },
		  { "AllReduce", "ncclFloat8e4m3", 10, 10 },
		  { "AllReduce", "ncclFloat", 10, 40 },
		  { "AllReduce", "ncclHalf", 10, 20 },
		  { "AllReduce", "ncclUint64", 10, 80 },
		  { "AllReduce", "ncclInt", 10, 40 },
		  { "AllReduce", "ncclSomething", 10, -1 },
		  { "AllReduce", "ncclFloat", SIZE_MAX, -1 } };

	for (size_t i = 0; i < PL_LEN(t); i++) {
		union np_what what = coll(t[i].func, t[i].n, t[i].type);

		got.n = 0;
		start(NP_COLL, NULL, &what);
		ok(got.n == 1 && got.e[0].bytes == t[i].bytes, "%s of %s: %lld bytes of 4 ranks",
		   t[i].func, t[i].type, (long long)got.e[0].bytes);
	}
}

static void test_graphs(void)
{
	union np_what what = { .api = { .func = "AllReduce", .captured = true } };
	void *call = start(NP_COLL_API, start(NP_GROUP_API, NULL, NULL), &what);

	got.n = 0;
	what = coll("AllReduce", 10, "ncclFloat32");
	start(NP_COLL, call, &what);
	ok(got.n == 1 && got.e[0].launch == 0,
	   "a collective of a graph is not that of the launch in which it was captured");
}

static void test_transfers(void)
{
	union np_what what = {
		.p2p = { .func = "Send", .type = "ncclFloat32", .count = 5, .peer = 3 }
	};
	void *group = start(NP_GROUP_API, NULL, NULL);

	got.n = 0;
	start(NP_P2P, start(NP_P2P_API, group, NULL), &what);
	what.p2p.func = "Recv";
	what.p2p.peer = 1;
	start(NP_P2P, start(NP_P2P_API, group, NULL), &what);
	ok(got.n == 2 && got.e[0].seq == -1 && got.e[0].peer == 3 && got.e[0].bytes == 20 &&
		   !strcmp(got.name[1], "ncclRecv") && got.e[1].peer == 1,
	   "single transfers: to whom, no number");
	ok(got.e[0].launch && got.e[0].launch == got.e[1].launch, "those of a group in one launch");
}

static pl_ns changed[2], ended[2]; /* of the last step: before and after the call */

static void network_step(void *op, int state, size_t bytes)
{
	union np_args args = { .step_bytes = bytes };
	void *step = start(NP_PROXY_STEP, op, NULL);

	usleep(1000);
	changed[0] = pl_now_ns();
	ncclProfiler_v5.state(step, state, &args);
	changed[1] = pl_now_ns();
	usleep(1000);
	ended[0] = pl_now_ns();
	ncclProfiler_v5.stop(step);
	ended[1] = pl_now_ns();
}

/* An operation that another process has given to this one: context and parent are its own. */
static void elsewhere(const union np_what *what)
{
	void *own = context;

	context = (void *)(uintptr_t)16;
	network_step(start(NP_PROXY_OP, (void *)(uintptr_t)64, what), NP_SEND_WAIT, 512);
	context = own;
}

static bool within(pl_ns t, const pl_ns *range)
{
	return t >= range[0] && t <= range[1];
}

static void test_network(void)
{
	union np_what what = { .proxy_op = {
				       .pid = getpid(), .channel = 2, .peer = 3, .sends = 1 } };
	void *c, *op;

	all_reduce(100, &c);
	got.n = 0;
	op = start(NP_PROXY_OP, c, &what); /* long after the collective's issue is over */
	network_step(op, NP_SEND_WAIT, 512);
	if (!ok(got.n == 1, "each step of each channel is a message"))
		return;
	ok(got.e[0].kind == PL_DEV_MESSAGE && got.e[0].sends && got.e[0].seq == 12 &&
		   got.e[0].peer == 3 && got.e[0].channel == 2 && got.e[0].bytes == 512 &&
		   !strcmp(got.group[0], "world"),
	   "of which collective, to whom, over which channel, how much");
	ok(within(got.e[0].begin, changed) && within(got.e[0].end, ended),
	   "a send lasts from when the device has filled its buffer");
	what.proxy_op.sends = 0;
	op = start(NP_PROXY_OP, c, &what);
	network_step(op, NP_RECV_GPU_WAIT, 256);
	ok(got.n == 2 && !got.e[1].sends && got.e[1].bytes == 256 && got.e[1].begin < changed[0] &&
		   within(got.e[1].end, changed),
	   "a receive until the data is there");
	got.n = 0;
	what.proxy_op.pid = getpid() + 1; /* begun by another process: its handle is not ours */
	elsewhere(&what);
	what.proxy_op.pid = getpid(); /* in another container */
	elsewhere(&what);
	is_i64(got.n, 0, "steps on behalf of another process are nobody's messages here");
}

/* ---- the mask, which NCCL has for all communicators of a process ------------------------------
 */

static int the_mask = 99, mask_then;

static bool always(void)
{
	return true;
}

static void at_comm(struct pl_nccl_comm *c)
{
	(void)c;
	mask_then = the_mask;
}

static void ignore_event(const struct pl_nccl_event *e)
{
	(void)e;
}

static void test_mask(void)
{
	static const struct pl_nccl_receiver r = {
		.on = always, .mask = NP_COLL, .comm = at_comm, .event = ignore_event
	};

	pl_nccl_receive(&r);
	for (int i = 0; i < 2; i++)
		ncclProfiler_v5.init(&context, (uint64_t)i, &the_mask, "world", 1, 2, 0, NULL);
	is_i64(mask_then, NP_COLL, "while a second communicator begins, the first one is recorded");
	is_i64(the_mask, NP_COLL, "and after it");
	pl_nccl_receive(NULL);
}

/* ---- a collective that waits longer than others ------------------------------------------------
 */

static int ends;
static char times[16];

static void at_end(const struct pl_nccl_event *e)
{
	/* those that were never over stand in the ring, too */
	if (e->type != NP_COLL || e->issued || e->comm->number != 7)
		return;
	ends++;
	snprintf(times, sizeof(times), "%s", e->times);
}

static void test_waiting(void)
{
	static const struct pl_nccl_receiver r = { .on = always,
						   .mask = NP_COLL | NP_PROXY_OP | NP_KERNEL_CH,
						   .event = at_end };
	const union np_what op = { .proxy_op = { .pid = getpid() } };
	const union np_what channel = { .kernel_ch = { .timer = 1000 } };
	union np_what what = coll("AllReduce", 8, "ncclFloat32");
	union np_args args = { .timer = 2000 };
	void *c, *h;
	int mask;

	pl_nccl_receive(&r);
	ncclProfiler_v5.init(&context, 7, &mask, "world", 1, 2, 0, NULL);
	what.coll.channels = 1;
	c = start(NP_COLL, NULL, &what);
	ncclProfiler_v5.stop(c);
	for (int i = 0; i < 40000; i++)
		ncclProfiler_v5.stop(start(NP_PROXY_OP, c, &op));
	is_i64(ends, 0, "a collective waits in its stream, while much happens");
	h = start(NP_KERNEL_CH, c, &channel);
	ncclProfiler_v5.state(h, NP_KERNEL_CH_STOP, &args);
	ncclProfiler_v5.stop(h);
	ok(ends == 1 && !strcmp(times, "device"), "and has the times of its kernel: %s", times);
	pl_nccl_receive(NULL);
}

static void test_v4(void)
{
	struct np_event_v4 e = { .type = NP_GROUP };
	void *group, *c;
	int mask = 0;

	ok(ncclProfiler_v4.init(&context, &mask, "", 0xabc, 1, 2, 0, NULL) == 0 && context &&
		   (mask & NP_GROUP) && (mask & NP_COLL) && !(mask & NP_KERNEL_LAUNCH),
	   "version 4 has no launches");
	ncclProfiler_v4.start(context, &group, &e);
	got.n = 0;
	e = (struct np_event_v4){ .type = NP_COLL, .parent = group };
	e.what = coll("AllReduce", 6, "ncclFloat32");
	ncclProfiler_v4.start(context, &c, &e);
	ncclProfiler_v4.stop(c);
	ncclProfiler_v4.stop(group);
	ok(got.n == 1 && got.e[0].launch == 0 && got.e[0].seq == 0 && got.e[0].bytes == 24 &&
		   !strcmp(got.group[0], "nccl 0000000000000abc"),
	   "its collectives, of a group without a name");
	ncclProfiler_v4.finalize(context);
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	const struct pl_cuda_trace_device device = { .device = 0 };
	struct pl_err err = { 0 };
	char lib[600];
	void *fake, *p, *trace = NULL;

	(void)argc;
	snprintf(lib, sizeof(lib), "%.*s/../emu/fake_cupti.so", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	setenv("PACELINE_CUPTI", lib, 1);
	unsetenv("NCCL_PROFILER_PLUGIN");
	fake = dlopen(lib, RTLD_NOW);
	p = fake ? dlsym(fake, "fake_cupti_external") : NULL;
	memcpy(&pushed, &p, sizeof(p));
	if (!ok(p != NULL, "the stand-in for CUPTI: %s", fake ? lib : dlerror()))
		return done_testing();
	test_off();
	if (!ok(pl_cuda_trace_run(&device, on_event, NULL, &trace, &err) == 0, "a trace: %s",
		err.msg))
		return done_testing();
	ok(getenv("NCCL_PROFILER_PLUGIN") && access(getenv("NCCL_PROFILER_PLUGIN"), R_OK) == 0,
	   "NCCL is told where the profiler is: %s", getenv("NCCL_PROFILER_PLUGIN"));
	test_collectives();
	test_sizes();
	test_transfers();
	test_network();
	test_graphs();
	test_v4();
	pl_cuda_trace_stop(trace, true);
	got.n = 0;
	ok(all_reduce(10, NULL) == 0 && got.n == 0, "nothing more when the trace is over");
	test_mask();
	test_waiting();
	return done_testing();
}
