/*
 * Device events from CUPTI's activity records (CUPTI documentation, "Activity API").
 *
 * CUPTI requests buffers, fills them, and returns them from its own thread when they are full or at
 * a flush. Records come in any order and long after their operations. The times are those of our
 * clock, so they need no conversion. Versions without such a clock, or that lose times of kernels
 * with it (CU_CLOCK_LOSES), use their own clock, and pairs of readings convert it.
 *
 * Only calls that launch, record, wait, copy or allocate memory are needed. They are switched on
 * one by one, so that the frequent queries of frameworks cost nothing. Older versions can only
 * switch on all calls; then the others are ignored.
 *
 * CUPTI serves one program at a time. A second user notices this only when it subscribes, so
 * start() subscribes first: it must not take the records of a debugger or another profiler.
 *
 * CUPTI has its own locks, and may hold them when it requests or returns a buffer. So no function
 * of CUPTI is called while our lock is held.
 *
 * CUPTI is never closed, because its threads live as long as the process.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "record/cuda.h"
#include "record/cupti.h"

#define BUFFER	 ((size_t)2 << 20)
#define SPARE	 16   /* buffers that are kept for the next request */
#define CALLS	 1024 /* numbers of calls whose names are looked up */
#define NAMES	 4096 /* names of kernels that are kept; a power of two */
#define READINGS 5

static struct {
	void *lib;
	const char *file;
	/* required */
	int (*version)(uint32_t *v);
	int (*subscribe)(void **subscriber, cu_callback *, void *arg);
	int (*unsubscribe)(void *subscriber);
	int (*callbacks)(cu_buffer_wanted *, cu_buffer_full *);
	int (*enable)(uint32_t kind);
	int (*disable)(uint32_t kind);
	int (*flush_all)(uint32_t flags);
	int (*next)(uint8_t *buffer, size_t n, uint32_t **record);
	int (*dropped)(void *context, uint32_t stream, size_t *n);
	int (*call_name)(uint32_t domain, uint32_t id, const char **name);
	int (*text)(int result, const char **text);
	int (*time)(uint64_t *ns);
	/* of later versions */
	int (*clock)(uint64_t (*ns)(void));
	int (*threads)(uint32_t sort);
	int (*driver)(uint32_t id, uint8_t on);
	int (*runtime)(uint32_t id, uint8_t on);
	int (*all_sync)(uint8_t on);
	int (*push)(uint32_t sort, uint64_t number);
	int (*pop)(uint32_t sort, uint64_t *number);
} cu;

static struct {
	_Atomic bool on;
	_Atomic uint64_t lost;
	void *subscriber; /* our handle; NULL: not subscribed */
	bool instances, own_clock, threads, syncs;
	uint32_t kind[16]; /* that were switched on */
	size_t n_kinds;
	bool each_call;	      /* calls were switched on one by one */
	pthread_mutex_t lock; /* of all members below */
	struct pl_cuda_trace_clock clock;
	uint8_t *spare[SPARE];
	size_t n_spare;
	struct { /* never freed: readers of records use them without the lock */
		const char *key;
		char *text;
	} name[NAMES];
	size_t n_names;
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- opening ------------------------------------------------------------------------------- */

static int find_all(struct pl_err *err)
{
	bool all = pl_symbol(cu.lib, "cuptiGetVersion", &cu.version);

	all &= pl_symbol(cu.lib, "cuptiSubscribe", &cu.subscribe);
	all &= pl_symbol(cu.lib, "cuptiUnsubscribe", &cu.unsubscribe);
	all &= pl_symbol(cu.lib, "cuptiActivityRegisterCallbacks", &cu.callbacks);
	all &= pl_symbol(cu.lib, "cuptiActivityEnable", &cu.enable);
	all &= pl_symbol(cu.lib, "cuptiActivityDisable", &cu.disable);
	all &= pl_symbol(cu.lib, "cuptiActivityFlushAll", &cu.flush_all);
	all &= pl_symbol(cu.lib, "cuptiActivityGetNextRecord", &cu.next);
	all &= pl_symbol(cu.lib, "cuptiActivityGetNumDroppedRecords", &cu.dropped);
	all &= pl_symbol(cu.lib, "cuptiGetCallbackName", &cu.call_name);
	all &= pl_symbol(cu.lib, "cuptiGetResultString", &cu.text);
	all &= pl_symbol(cu.lib, "cuptiGetTimestamp", &cu.time);
	if (!all) {
		cu.lib = NULL;
		return pl_fail(err, PL_EABSENT, "%s has no activity interface: it is too old",
			       cu.file);
	}
	pl_symbol(cu.lib, "cuptiActivityRegisterTimestampCallback", &cu.clock);
	pl_symbol(cu.lib, "cuptiSetThreadIdType", &cu.threads);
	pl_symbol(cu.lib, "cuptiActivityEnableDriverApi", &cu.driver);
	pl_symbol(cu.lib, "cuptiActivityEnableRuntimeApi", &cu.runtime);
	pl_symbol(cu.lib, "cuptiActivityEnableAllSyncRecords", &cu.all_sync);
	pl_symbol(cu.lib, "cuptiActivityPushExternalCorrelationId", &cu.push);
	pl_symbol(cu.lib, "cuptiActivityPopExternalCorrelationId", &cu.pop);
	return 0;
}

static int open_library(struct pl_err *err)
{
	const char *own = getenv("PACELINE_CUPTI"), *home = getenv("CUDA_HOME");
	static char path[2][512];
	const char *const all[] = { "libcupti.so.13",
				    "libcupti.so.12",
				    "libcupti.so",
				    path[0],
				    path[1],
				    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
				    "/usr/local/cuda/lib64/libcupti.so",
				    NULL };
	const char *const only[] = { own, NULL };

	if (cu.lib)
		return 0;
	for (int i = 0; home && *home && i < 2; i++)
		snprintf(path[i], sizeof(path[i]), "%.450s/%s/libcupti.so", home,
			 i ? "lib64" : "extras/CUPTI/lib64");
	cu.lib = pl_cuda_trace_open(own && *own ? only : all, &cu.file);
	if (!cu.lib)
		return pl_fail(err, PL_EABSENT,
			       "CUPTI, the profiler's library, was not found (%s): it comes with "
			       "the CUDA toolkit; PACELINE_CUPTI may say where it is",
			       own && *own ? own : "libcupti.so.13, .12");
	return find_all(err);
}

static int failed(struct pl_err *err, int result, const char *what)
{
	const char *text = NULL;
	const char *more = result == CU_OTHER_PROFILER ? ": is another profiler attached?"
			   : result == CU_NO_RIGHTS
				   ? ": the administrator allows profiling to root alone"
				   : "";

	if (cu.text(result, &text) != CU_OK || !text)
		text = "unknown error";
	return pl_fail(err, PL_EABSENT, "%s: %s: %s (%d)%s", cu.file, what, text, result, more);
}

/* ---- names --------------------------------------------------------------------------------- */

/* Of the C++ library, if the program has it. */
__attribute__((weak)) char *__cxa_demangle(const char *name, char *buf, size_t *n, int *status);

/* The caller holds the lock. */
static const char *demangled_name(const char *name)
{
	size_t at = ((uintptr_t)name >> 3) & (NAMES - 1);
	int status = 0;

	while (st.name[at].key && st.name[at].key != name)
		at = (at + 1) & (NAMES - 1);
	if (!st.name[at].key) {
		if (st.n_names >= NAMES / 2)
			return name;
		st.name[at].key = name;
		st.name[at].text = __cxa_demangle(name, NULL, NULL, &status);
		st.n_names++;
	}
	return st.name[at].text ? st.name[at].text : name;
}

/* The name of a kernel as in its source. CUPTI keeps names at their addresses, so each is
 * demangled_name once. */
static const char *kernel_name(const char *name)
{
	if (!name)
		return "kernel";
	if (!__cxa_demangle || name[0] != '_' || name[1] != 'Z')
		return name;
	pthread_mutex_lock(&st.lock);
	name = demangled_name(name);
	pthread_mutex_unlock(&st.lock);
	return name;
}

/* The name without the version of the interface, as in "cudaLaunchKernel_ptsz_v7000" and, since
 * version 13, "__cudaLaunchKernel_v13000". */
static const char *call_name(uint32_t domain, uint32_t id, char *text, size_t size)
{
	const char *name = NULL, *cut;

	if (cu.call_name(domain, id, &name) != CU_OK || !name)
		return NULL;
	snprintf(text, size, "%s", name + strspn(name, "_"));
	for (cut = strstr(text, "_v"); cut; cut = strstr(cut + 1, "_v"))
		if (cut[2] >= '0' && cut[2] <= '9') {
			text[cut - text] = '\0';
			break;
		}
	cut = strstr(text, "_pt"); /* ptsz, ptds: the type of default stream */
	if (cut)
		text[cut - text] = '\0';
	return text;
}

static bool wanted(const char *name)
{
	static const char *const part[] = {
		"Launch",	"Memcpy",	  "Memset",	"EventRecord",	   "WaitEvent",
		"Synchronize",	"Malloc",	  "Free",	"MemAlloc",	   "HostAlloc",
		"HostRegister", "HostUnregister", "ModuleLoad", "GraphInstantiate"
	};

	for (size_t i = 0; i < PL_LEN(part); i++)
		if (strstr(name, part[i]))
			return true;
	return false;
}

static const char *copy_name(unsigned copy_kind)
{
	static const char *const name[] = { "Memcpy",	   "Memcpy HtoD", "Memcpy DtoH",
					    "Memcpy HtoA", "Memcpy AtoH", "Memcpy AtoA",
					    "Memcpy AtoD", "Memcpy DtoA", "Memcpy DtoD",
					    "Memcpy HtoH", "Memcpy PtoP" };

	return copy_kind < PL_LEN(name) ? name[copy_kind] : name[0];
}

/* ---- records ------------------------------------------------------------------------------- */

static pl_ns to_host_time(uint64_t ns)
{
	pl_ns own;

	if (st.own_clock)
		return (pl_ns)ns;
	pthread_mutex_lock(&st.lock);
	own = pl_cuda_trace_clock_to_host(&st.clock, (pl_ns)ns);
	pthread_mutex_unlock(&st.lock);
	return own;
}

static struct pl_device_event timed(uint8_t kind, const char *name, uint64_t start, uint64_t end,
				    uint32_t corr)
{
	return pl_device_event(kind, name, to_host_time(start), to_host_time(end), corr);
}

/* An operation without times had no memory of the device for them, so it is lost. */
static void report_operation(uint8_t kind, const char *name, uint64_t start, uint64_t end,
			     uint32_t corr, uint32_t device, uint32_t stream, int64_t bytes)
{
	struct pl_device_event e = timed(kind, name, start, end, corr);

	if (!start || !end) {
		st.lost++;
		return;
	}
	e.device = device;
	e.stream = stream;
	e.bytes = bytes;
	pl_cuda_trace_report(&e);
}

static void report_call(const struct cu_api *r)
{
	struct pl_device_event e;
	char text[128];
	const char *name = call_name(r->kind == CU_DRIVER ? CU_DOMAIN_DRIVER : CU_DOMAIN_RUNTIME,
				     r->cbid, text, sizeof(text));

	if (!name || !wanted(name))
		return;
	e = timed(PL_DEV_CALL, name, r->start, r->end, r->corr);
	e.thread = st.threads ? r->thread : 0;
	pl_cuda_trace_report(&e);
}

/* Numbers of events are unique only in their context. */
static uint64_t event_number(uint32_t context, uint32_t event)
{
	return event == CU_NONE ? PL_DEV_NO_EVENT : (uint64_t)context << 32 | event;
}

static uint64_t instance_of(uint64_t number)
{
	return st.instances && number != CU_NONE && number != UINT64_MAX ? number : 0;
}

static void report_event_record(const struct cu_event *r)
{
	struct pl_device_event e = pl_device_event(PL_DEV_RECORD, NULL, 0, 0, r->corr);

	e.stream = r->stream;
	e.event = event_number(r->context, r->event);
	e.instance = st.instances ? instance_of(r->instance) : 0;
	pl_cuda_trace_report(&e);
}

static void report_sync(const struct cu_sync *r)
{
	bool event = r->type == CU_SYNC_EVENT || r->type == CU_SYNC_WAIT;
	struct pl_device_event e = timed(r->type == CU_SYNC_WAIT ? PL_DEV_WAIT : PL_DEV_SYNC, NULL,
					 r->start, r->end, r->corr);

	if (r->type < CU_SYNC_EVENT || r->type > CU_SYNC_CONTEXT)
		return;
	if (r->type == CU_SYNC_WAIT || r->type == CU_SYNC_STREAM)
		e.stream = r->stream;
	if (event) {
		e.event = event_number(r->context, r->event);
		e.instance = st.instances ? instance_of(r->instance) : 0;
	}
	pl_cuda_trace_report(&e);
}

static void report_external(const struct cu_external *r)
{
	struct pl_device_event e = pl_device_event(PL_DEV_LAUNCH, NULL, 0, 0, r->corr);

	if (r->sort != CU_CUSTOM0)
		return;
	e.launch = r->number;
	pl_cuda_trace_report(&e);
}

/* The start of a range has its name, the end only the number. */
static void report_marker(const struct cu_marker *m)
{
	struct pl_device_event e = pl_device_event(PL_DEV_RANGE, m->name, 0, 0, 0);

	if (m->flags & CU_MARKER_START)
		e.begin = to_host_time(m->at);
	else if (m->flags & CU_MARKER_END)
		e.end = to_host_time(m->at);
	else
		return;
	e.launch = m->id;
	e.thread = st.threads && m->object == CU_OBJECT_THREAD ? m->thread : 0;
	pl_cuda_trace_report(&e);
}

static void report_memory(const struct cu_memory *m)
{
	bool allocation = m->operation == CU_ALLOCATION;
	pl_ns at = to_host_time(m->at);
	struct pl_device_event e = pl_device_event(
		PL_DEV_MEMORY, allocation ? "memory is allocated" : "memory is released", at, at,
		0);

	if (!allocation && m->operation != CU_RELEASE)
		return;
	e.device = m->device;
	e.bytes = (int64_t)pl_min_size(m->bytes, (size_t)1 << 60) * (allocation ? 1 : -1);
	pl_cuda_trace_report(&e);
}

static void report_record(const void *p)
{
	const struct cu_kernel *k = p;
	const struct cu_memcpy *c = p;
	const struct cu_memcpy_peer *d = p;
	const struct cu_memset *m = p;

	switch (*(const uint32_t *)p) {
	case CU_KERNEL:
		report_operation(PL_DEV_KERNEL, kernel_name(k->name), k->start, k->end, k->corr,
				 k->device, k->stream, -1);
		break;
	case CU_MEMCPY:
		report_operation(PL_DEV_COPY, copy_name(c->copy_kind), c->start, c->end, c->corr,
				 c->device, c->stream, (int64_t)c->bytes);
		break;
	case CU_MEMCPY_PEER:
		report_operation(PL_DEV_COPY, copy_name(d->copy_kind), d->start, d->end, d->corr,
				 d->device, d->stream, (int64_t)d->bytes);
		break;
	case CU_MEMSET:
		report_operation(PL_DEV_SET, "Memset", m->start, m->end, m->corr, m->device,
				 m->stream, (int64_t)m->bytes);
		break;
	case CU_DRIVER:
	case CU_RUNTIME:
		report_call(p);
		break;
	case CU_EVENT:
		report_event_record(p);
		break;
	case CU_SYNC:
		report_sync(p);
		break;
	case CU_EXTERNAL:
		report_external(p);
		break;
	case CU_MARKER:
		report_marker(p);
		break;
	case CU_MEMORY:
		report_memory(p);
		break;
	}
}

/* ---- buffers ------------------------------------------------------------------------------- */

static void buffer_wanted(uint8_t **buffer, size_t *size, size_t *most)
{
	pthread_mutex_lock(&st.lock);
	*buffer = NULL;
	if (st.on)
		*buffer = st.n_spare ? st.spare[--st.n_spare] : pl_malloc(BUFFER);
	pthread_mutex_unlock(&st.lock);
	*size = *buffer ? BUFFER : 0;
	*most = 0; /* as many records as fit */
}

static void buffer_full(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	uint32_t *record = NULL;
	size_t dropped = 0;

	(void)size;
	while (valid && cu.next(buffer, valid, &record) == CU_OK)
		report_record(record);
	if (cu.dropped(context, stream, &dropped) == CU_OK)
		st.lost += dropped;
	pthread_mutex_lock(&st.lock);
	if (buffer && st.on && st.n_spare < SPARE) {
		st.spare[st.n_spare++] = buffer;
		buffer = NULL;
	}
	pthread_mutex_unlock(&st.lock);
	pl_free(buffer);
}

/* ---- begin and end ------------------------------------------------------------------------- */

static uint64_t now_u64(void)
{
	return (uint64_t)pl_now_ns();
}

/* Find the pair of readings that are closest to each other. */
static void read_clocks(void)
{
	pl_ns least = INT64_MAX, at = 0, device = 0;

	for (int i = 0; i < READINGS && !st.own_clock; i++) {
		pl_ns before = pl_now_ns(), after;
		uint64_t t = 0;

		if (cu.time(&t) != CU_OK)
			return;
		after = pl_now_ns();
		if (after - before < least) {
			least = after - before;
			at = before + least / 2;
			device = (pl_ns)t;
		}
	}
	pthread_mutex_lock(&st.lock);
	if (least < INT64_MAX)
		pl_cuda_trace_clock_pair(&st.clock, device, at);
	pthread_mutex_unlock(&st.lock);
}

static int switch_on(uint32_t kind, struct pl_err *err, const char *what)
{
	int result = cu.enable(kind);

	if (result != CU_OK)
		return failed(err, result, what);
	st.kind[st.n_kinds++] = kind;
	return 0;
}

/* Switch calls on one by one; false: this version cannot. A call that exists but is refused is not
 * needed. */
static bool switch_calls(uint32_t domain, int (*one)(uint32_t, uint8_t), uint8_t on)
{
	bool any = false;

	for (uint32_t id = 1; one && id < CALLS; id++) {
		char text[128];
		const char *name = call_name(domain, id, text, sizeof(text));

		if (!name || !wanted(name))
			continue;
		any |= one(id, on) == CU_OK;
	}
	return any;
}

static int switch_all(bool more, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	PL_TRY(switch_on(CU_KERNEL, err, "recording kernels"));
	PL_TRY(switch_on(CU_MEMCPY, err, "recording copies"));
	PL_TRY(switch_on(CU_MEMSET, err, "recording settings of memory"));
	st.each_call = switch_calls(CU_DOMAIN_RUNTIME, cu.runtime, 1) &&
		       switch_calls(CU_DOMAIN_DRIVER, cu.driver, 1);
	if (!st.each_call) {
		PL_TRY(switch_on(CU_RUNTIME, err, "recording calls of the runtime"));
		PL_TRY(switch_on(CU_DRIVER, err, "recording calls of the driver"));
	}
	/* the rest is optional */
	st.syncs = switch_on(CU_SYNC, &why, "synchronisation") == 0 &&
		   switch_on(CU_EVENT, &why, "events") == 0;
	if (switch_on(CU_MEMCPY_PEER, &why, "copies between devices") < 0 ||
	    (cu.push && switch_on(CU_EXTERNAL, &why, "external numbers") < 0))
		why.code = 0;
	if (more &&
	    (switch_on(CU_MARKER, &why, "ranges") < 0 || switch_on(CU_MEMORY, &why, "memory") < 0))
		why.code = 0;
	if (cu.all_sync && cu.all_sync(0) != CU_OK)
		why.code = 0; /* queries are reported as well, which does no harm */
out:
	return rc;
}

static void switch_off(void)
{
	if (st.each_call) {
		switch_calls(CU_DOMAIN_RUNTIME, cu.runtime, 0);
		switch_calls(CU_DOMAIN_DRIVER, cu.driver, 0);
	}
	while (st.n_kinds)
		cu.disable(st.kind[--st.n_kinds]);
}

/* Flushing does not wait for work of the device. */
static void stop(bool idle)
{
	(void)idle;
	switch_off();
	cu.flush_all(CU_FLUSH_FORCED);
	pthread_mutex_lock(&st.lock);
	st.on = false;
	while (st.n_spare)
		pl_free(st.spare[--st.n_spare]);
	pthread_mutex_unlock(&st.lock);
	cu.unsubscribe(st.subscriber);
	st.subscriber = NULL;
}

/* The callback of the subscription, which needs no events. */
static void nothing(void *arg, int domain, uint32_t id, const void *data)
{
	(void)arg;
	(void)domain;
	(void)id;
	(void)data;
}

static int start(const struct pl_cuda_trace_device *d, struct pl_err *err)
{
	uint32_t version = 0;
	int rc, result;

	PL_TRY(open_library(err));
	if ((result = cu.version(&version)) != CU_OK)
		return failed(err, result, "asking for its version");
	if ((result = cu.subscribe(&st.subscriber, nothing, NULL)) != CU_OK)
		return failed(err, result, "subscribing");
	st.instances = version >= CU_VERSION_INSTANCE;
	st.threads = cu.threads && cu.threads(CU_THREAD_SYSTEM) == CU_OK;
	st.own_clock = cu.clock && !CU_CLOCK_LOSES(version) && cu.clock(now_u64) == CU_OK;
	st.clock.n = 0;
	st.lost = 0;
	st.n_kinds = 0;
	st.on = true;
	read_clocks();
	if ((result = cu.callbacks(buffer_wanted, buffer_full)) != CU_OK) {
		rc = failed(err, result, "giving it buffers");
		goto out;
	}
	PL_TRY(switch_all(d->more, err));
	if (!st.own_clock && !st.clock.n) { /* the clock may not have been ready before */
		read_clocks();
		if (!st.clock.n)
			rc = pl_fail(err, PL_EABSENT, "%s does not tell the time", cu.file);
	}
out:
	if (rc < 0 && st.on)
		stop(true);
	return rc;
}

static int flush(struct pl_err *err)
{
	int result;

	read_clocks();
	result = cu.flush_all(0);
	return result == CU_OK ? 0
			       : pl_fail(err, PL_EIO, "%s: flushing its records failed (%d)",
					 cu.file, result);
}

static bool complete(void)
{
	return st.syncs;
}

const char *pl_cuda_trace_cupti_file(void)
{
	Dl_info info;

	return cu.lib && dladdr((void *)(uintptr_t)cu.version, &info) ? info.dli_fname : NULL;
}

static uint64_t lost(void)
{
	return st.lost;
}

void pl_cuda_trace_cupti_push(uint64_t launch)
{
	if (cu.lib && cu.push && st.on)
		cu.push(CU_CUSTOM0, launch);
}

void pl_cuda_trace_cupti_pop(void)
{
	uint64_t launch;

	if (cu.lib && cu.pop && st.on)
		cu.pop(CU_CUSTOM0, &launch);
}

const struct pl_cuda_trace_source_type pl_cuda_trace_cupti = { .name = "cupti",
							       .start = start,
							       .flush = flush,
							       .stop = stop,
							       .complete = complete,
							       .lost = lost };
