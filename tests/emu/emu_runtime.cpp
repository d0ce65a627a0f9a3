/*
 * emu_runtime.cpp - streams, events, graphs and memory of the emulated device (emu_runtime.h).
 *
 * A stream is a queue of things to do. Waiting for one runs it from its front; a thing that waits
 * for an event first runs the stream that the event was recorded in, as far as that. Nothing else
 * moves: so whatever is not held together by events happens as late as it can.
 */
#include "emu_runtime.h"
#include "emu_timed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

struct emu_device emu_device = {
	1, 9, 0, 13000, (size_t)4 << 30, 0, 0, 0, 3, false, false, false, 0
};

static int fails; /* the operation of that number, from 1, and all behind it; 0: none */

/* EMU_DEVICE=major=7,memory=1000000: another one, for programs that are run with it. */
static struct configure {
	configure()
	{
		const struct {
			const char *name;
			int *i;
			size_t *size;
			bool *b;
		} key[] = { { "count=", &emu_device.count, NULL, NULL },
			    { "major=", &emu_device.major, NULL, NULL },
			    { "driver=", &emu_device.driver, NULL, NULL },
			    { "sms=", &emu_device.sms, NULL, NULL },
			    { "memory=", NULL, &emu_device.memory, NULL },
			    { "fails=", &fails, NULL, NULL },
			    { "broken=", NULL, NULL, &emu_device.later },
			    { "unswizzled=", NULL, NULL, &emu_unswizzled } };
		const char *said = getenv("EMU_DEVICE");

		for (auto &k : key) {
			const char *at = said ? strstr(said, k.name) : NULL;
			long v = at ? atol(at + strlen(k.name)) : 0;

			if (at && k.i)
				*k.i = (int)v;
			if (at && k.size)
				*k.size = (size_t)v;
			if (at && k.b)
				*k.b = v != 0;
		}
	}
} configured;

static uint32_t numbers; /* of streams and events */

struct emu_graph {
	std::vector<std::function<void()>> todo;
};
struct emu_stream : emu_stream_head {
	struct todo {
		std::function<void()> run;
		struct emu_event *event; /* to wait for, or recorded here */
		uint64_t number;
		bool wait;
		struct emu_timed timed;
	};
	std::deque<todo> queue;
	struct emu_graph *recorded; /* NULL: it is not being captured */
	enum cudaStreamCaptureMode mode;
	std::thread::id by;
	bool spoilt; /* the capture */
	int device;
	struct emu_timeline time = { ++numbers, 0 };
};
struct emu_event {
	struct emu_stream *stream; /* where it was recorded last */
	uint64_t recorded, over;
	struct emu_moment time = { ++numbers, 0 };
};

void emu_order(uint64_t seed)
{
	emu_seed(seed);
}

static thread_local cudaError_t last; /* of the last call */
static thread_local int current;      /* device of the thread */
static uint32_t opened;		      /* devices that threads chose, as bits */
static cudaError_t broken;	      /* for good */

/* One thread at a time: worlds look at the second queue from a thread of their own. */
static std::recursive_mutex all;
struct alone {
	std::lock_guard<std::recursive_mutex> lock{ all };
};

static cudaError_t tell(cudaError_t e)
{
	if (e != cudaSuccess)
		last = e;
	return e;
}

/* ---- listing ----------------------------------------------------------------------------------
 */

static FILE *listing()
{
	static const char *const path = getenv("EMU_LIST");
	static FILE *const list = path && *path ? fopen(path, "w") : NULL;

	return list;
}

bool emu_listed(const char *fmt, ...)
{
	FILE *list = listing();
	va_list ap;

	if (!list)
		return false;
	va_start(ap, fmt);
	vfprintf(list, fmt, ap);
	va_end(ap);
	putc('\n', list);
	fflush(list);
	return true;
}

/* ---- the device --------------------------------------------------------------------------------
 */

cudaError_t cudaDriverGetVersion(int *v)
{
	const struct alone alone;
	*v = emu_device.driver;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
	const struct alone alone;
	*v = 13000;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
	const struct alone alone;
	*n = emu_device.count;
	broken = cudaSuccess; /* a test begins anew */
	last = cudaSuccess;
	opened = 0;
	emu_device.strayed = 0;
	return emu_device.driver < 13000 ? cudaErrorInsufficientDriver
	       : emu_device.count	 ? cudaSuccess
					 : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
	const struct alone alone;

	if (device < 0 || device >= emu_device.count)
		return tell(cudaErrorInvalidValue);
	current = device;
	opened |= 1u << device % 32;
	return cudaSuccess;
}

/* A thread that chose none has the first: what needs a device opens that. */
static void need_device()
{
	emu_device.strayed += !(opened >> current % 32 & 1);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	const struct alone alone;
	(void)device;
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "an emulated device");
	p->major = emu_device.major;
	p->minor = emu_device.minor;
	p->multiProcessorCount = emu_device.sms;
	p->sharedMemPerBlockOptin = EMU_MOST_SHARED;
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
	return e == cudaErrorMemoryAllocation ? "out of memory"
	       : e == cudaErrorLaunchFailure  ? "unspecified launch failure"
					      : "an error";
}

const char *cudaGetErrorName(cudaError_t e)
{
	return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
	       : e == cudaErrorLaunchFailure  ? "cudaErrorLaunchFailure"
					      : "cudaError";
}

cudaError_t cudaGetLastError(void)
{
	const struct alone alone;
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

cudaError_t cudaPeekAtLastError(void)
{
	const struct alone alone;
	return last;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

#define RED ((size_t)256)

static std::map<char *, size_t> blocks, pinned;
static std::map<char *, int> owner; /* the device of a block */
static size_t overruns;

static std::vector<struct emu_stream *> streams;
static void drain(struct emu_stream *s);

/* What may wait for a device: refused to a thread that captures, or to all, as the mode says. */
static bool unsafe()
{
	bool any = false;

	for (struct emu_stream *s : streams)
		if (s->recorded && (s->mode == cudaStreamCaptureModeGlobal ||
				    (s->mode == cudaStreamCaptureModeThreadLocal &&
				     s->by == std::this_thread::get_id())))
			any = s->spoilt = true;
	return any;
}

#define SAFE                                                                                       \
	do {                                                                                       \
		if (unsafe())                                                                      \
			return tell(cudaErrorStreamCaptureUnsupported);                            \
	} while (0)

/* Is this memory of the host's or of the device of that stream? */
static bool reaches(const struct emu_stream *s, const void *p)
{
	auto at = owner.upper_bound((char *)(uintptr_t)p);

	if (!s || at == owner.begin())
		return true;
	--at;
	return at->second == s->device || (char *)p >= at->first + blocks[at->first];
}

static void everything()
{
	for (struct emu_stream *s : streams)
		drain(s);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	const struct alone alone;
	char *base;

	need_device();
	emu_device.mallocs++;
	*p = NULL;
	SAFE;
	if (bytes > emu_device.memory - emu_device.used)
		return tell(cudaErrorMemoryAllocation);
	if (listing()) { /* whoever touches it falls */
		base = (char *)mmap(NULL, bytes + 2 * RED, PROT_NONE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		base = base == MAP_FAILED ? NULL : base;
	} else {
		base = (char *)aligned_alloc(RED, (bytes + 3 * RED - 1) / RED * RED);
	}
	if (!base)
		return tell(cudaErrorMemoryAllocation);
	if (!listing())
		memset(base, 0xff, bytes + 2 * RED);
	emu_device.used += bytes;
	blocks[base + RED] = bytes;
	owner[base + RED] = current;
	*p = base + RED;
	return cudaSuccess;
}

static bool red(const char *p)
{
	for (size_t i = 0; i < RED; i++)
		if ((unsigned char)p[i] != 0xff)
			return false;
	return true;
}

cudaError_t cudaFree(void *p)
{
	const struct alone alone;
	auto at = blocks.find((char *)p);

	need_device();
	SAFE;
	everything();
	if (!p)
		return cudaSuccess;
	if (at == blocks.end())
		return tell(cudaErrorInvalidValue);
	emu_device.used -= at->second;
	if (listing()) {
		munmap(at->first - RED, at->second + 2 * RED);
	} else {
		overruns += !red(at->first - RED) || !red(at->first + at->second);
		free(at->first - RED);
	}
	owner.erase(at->first);
	blocks.erase(at);
	return cudaSuccess;
}

size_t emu_leaks(void)
{
	return blocks.size() + pinned.size() + streams.size();
}

size_t emu_overruns(void)
{
	for (auto &b : blocks)
		overruns += !red(b.first - RED) || !red(b.first + b.second);
	return overruns;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	const struct alone alone;

	SAFE;
	*p = malloc(bytes);
	pinned[(char *)*p] = bytes;
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
	const struct alone alone;

	SAFE;
	everything();
	pinned.erase((char *)p);
	free(p);
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	const struct alone alone;
	(void)flags;
	need_device();
	SAFE;
	pinned[(char *)p] = bytes;
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
	const struct alone alone;

	need_device();
	SAFE;
	return tell(pinned.erase((char *)p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *room, size_t *total)
{
	const struct alone alone;

	need_device();
	*room = emu_device.memory - emu_device.used;
	*total = emu_device.memory;
	return cudaSuccess;
}

/* Does it lie in one of these? */
static bool within(const std::map<char *, size_t> &m, const void *p, size_t bytes)
{
	auto at = m.upper_bound((char *)(uintptr_t)p);

	if (at == m.begin())
		return false;
	--at;
	return (char *)p + bytes <= at->first + at->second;
}

/* ---- streams -----------------------------------------------------------------------------------
 */

bool emu_may_launch(cudaStream_t s)
{
	const struct alone alone;

	return !s || s->device == current || tell(cudaErrorInvalidResourceHandle) == cudaSuccess;
}

/* way: of a copy, see emu_timed.h */
static void put(cudaStream_t s, std::function<void()> f, unsigned copy_kind, size_t bytes)
{
	const struct alone alone;
	if (!s)
		f();
	else if (s->recorded)
		s->recorded->todo.push_back(f);
	else
		s->queue.push_back(
			{ f, NULL, 0, false, emu_timed_launch(&s->time, copy_kind, bytes) });
}

void emu_do(cudaStream_t s, std::function<void()> f)
{
	put(s, f, 0, 0);
}

static bool recorded_by_library(void *stream, bool spoil)
{
	struct emu_stream *s = (struct emu_stream *)stream;

	s->spoilt |= spoil;
	return s->recorded != NULL;
}

static void put_by_library(void *stream, void (*f)(void *), const void *arg, size_t bytes)
{
	std::vector<char> held((const char *)arg, (const char *)arg + bytes);

	emu_do((cudaStream_t)stream, [=]() {
		std::vector<char> own = held;

		f(own.data());
	});
}

static void drain_to(struct emu_stream *s, const struct emu_event *e, uint64_t number)
{
	while (!s->queue.empty() && !(e && e->over >= number)) {
		struct emu_stream::todo t = s->queue.front();

		s->queue.pop_front();
		if (t.wait && t.event->over < t.number)
			drain_to(t.event->stream, t.event, t.number);
		if (t.event && !t.wait)
			t.event->over = t.number;
		if (emu_device.broken || (t.run && fails > 0 && --fails == 0))
			broken = cudaErrorLaunchFailure;
		emu_last_kernel = NULL;
		if (t.run && broken == cudaSuccess)
			t.run();
		if (t.timed.corr)
			emu_timed_done(&t.timed, emu_last_kernel);
	}
}

static void drain(struct emu_stream *s)
{
	drain_to(s, NULL, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	const struct alone alone;
	(void)flags;
	*s = new emu_stream();
	(*s)->put = put_by_library;
	(*s)->is_recorded = recorded_by_library;
	(*s)->device = current;
	streams.push_back(*s);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	const struct alone alone;
	drain(s);
	for (size_t i = 0; i < streams.size(); i++)
		if (streams[i] == s) {
			streams.erase(streams.begin() + (ptrdiff_t)i);
			break;
		}
	delete s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	const struct alone alone;
	int64_t begin = emu_timed_now();

	SAFE;
	if (s->recorded) {
		s->spoilt = true;
		return tell(cudaErrorStreamCaptureUnsupported);
	}
	drain(s);
	emu_timed_sync(begin, &s->time, NULL, 0);
	return tell(broken);
}

/* One step forward each time that somebody asks. */
cudaError_t cudaStreamQuery(cudaStream_t s)
{
	const struct alone alone;

	SAFE;
	if (s->recorded) {
		s->spoilt = true;
		return tell(cudaErrorStreamCaptureUnsupported);
	}
	if (!s->queue.empty()) {
		struct emu_event mark = { s, 1, 0, {} };

		s->queue.insert(s->queue.begin() + 1, { NULL, &mark, 1, false, {} });
		drain_to(s, &mark, 1);
	}
	if (broken != cudaSuccess)
		return tell(broken);
	return s->queue.empty() && emu_timed_now() >= s->time.free_at ? cudaSuccess
								      : tell(cudaErrorNotReady);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	const struct alone alone;
	(void)flags;
	*e = new emu_event();
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	const struct alone alone;
	everything();
	delete e;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	const struct alone alone;
	if (s->recorded)
		return tell(cudaErrorStreamCaptureInvalidated);
	e->stream = s;
	s->queue.push_back({ NULL, e, ++e->recorded, false, {} });
	emu_timed_record(&s->time, &e->time, e->recorded);
	return cudaSuccess;
}

int64_t emu_ready(cudaEvent_t e)
{
	return e->time.ready;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	const struct alone alone;
	(void)flags;
	if (s->recorded)
		return tell(cudaErrorStreamCaptureInvalidated);
	s->queue.push_back({ NULL, e, e->recorded, true, {} });
	emu_timed_wait(&s->time, &e->time, e->recorded);
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	const struct alone alone;
	int64_t begin = emu_timed_now();

	SAFE;
	if (e->stream)
		drain_to(e->stream, e, e->recorded);
	emu_timed_sync(begin, NULL, &e->time, e->recorded);
	return tell(broken);
}

/* One step forward, likewise. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
	const struct alone alone;

	SAFE;
	if (e->stream && e->over < e->recorded && cudaStreamQuery(e->stream) != cudaSuccess &&
	    broken != cudaSuccess)
		return tell(broken);
	return e->over >= e->recorded && emu_timed_now() >= e->time.ready ? cudaSuccess
									  : tell(cudaErrorNotReady);
}

/* From memory that is not pinned the host's copy is made at once, as by a driver. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t s)
{
	const struct alone alone;
	bool from_host = !within(blocks, src, bytes), to_host = !within(blocks, dst, bytes);

	if (!bytes)
		return cudaSuccess;
	if ((from_host && (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)) ||
	    (to_host && (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)))
		return tell(cudaErrorInvalidValue);
	if (!reaches(s, src) || !reaches(s, dst))
		return tell(cudaErrorInvalidValue);
	if (s->recorded && ((from_host && !within(pinned, src, bytes)) ||
			    (to_host && !within(pinned, dst, bytes)))) {
		s->spoilt = true;
		return tell(cudaErrorStreamCaptureUnsupported);
	}
	if (emu_listed("copy %zu %s", bytes, from_host ? "in" : to_host ? "out" : "within")) {
		if (to_host)
			memset(dst, 0x3c, bytes); /* numbers, all alike */
	} else if (from_host && !within(pinned, src, bytes)) {
		std::vector<char> held((const char *)src, (const char *)src + bytes);

		put(
			s, [=]() { memcpy(dst, held.data(), bytes); }, 1, bytes);
	} else {
		put(
			s, [=]() { memcpy(dst, src, bytes); },
			from_host ? 1
			: to_host ? 2
				  : 3,
			bytes);
	}
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
	const struct alone alone;

	if (!reaches(s, p))
		return tell(cudaErrorInvalidValue);
	if (!emu_listed("set %zu", bytes))
		put(
			s, [=]() { memset(p, value, bytes); }, 99, bytes);
	return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------------
 */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	const struct alone alone;

	if (s->recorded)
		return tell(cudaErrorInvalidValue);
	s->recorded = new emu_graph();
	s->mode = mode;
	s->by = std::this_thread::get_id();
	s->spoilt = false;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	const struct alone alone;

	*g = NULL;
	if (!s->recorded)
		return tell(cudaErrorInvalidValue);
	if (s->mode != cudaStreamCaptureModeRelaxed && s->by != std::this_thread::get_id())
		return tell(cudaErrorStreamCaptureWrongThread);
	if (emu_device.no_capture || s->spoilt)
		delete s->recorded;
	else
		*g = s->recorded;
	s->recorded = NULL;
	return *g ? cudaSuccess : tell(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
	const struct alone alone;
	(void)flags;
	*x = new emu_graph(*g);
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	const struct alone alone;

	if (s->recorded || s->device != current)
		return tell(cudaErrorInvalidResourceHandle);
	emu_device.launches++;
	emu_device.broken |= emu_device.later;
	for (auto &f : x->todo)
		s->queue.push_back({ f, NULL, 0, false, {} });
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	const struct alone alone;
	delete g;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
	const struct alone alone;
	delete x;
	return cudaSuccess;
}
