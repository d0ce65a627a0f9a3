/* The clock of the emulated device, and what a profiler is told of it: see emu_timed.h. */
#include "emu_timed.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "record/cupti.h"

#define CONTEXT	 1
#define LATENCY	 4000 /* from the end of a launch to the begin of what it launches, ns */
#define BETWEEN	 1000 /* operations of a stream */
#define CALL	 3000 /* a launch */
#define COPY	 5000
#define WAKES_UP 5000 /* a host that waited */

/* Their numbers are places in the table of fake_cupti.c. */
enum { LAUNCH = 2, RECORD, WAIT, SYNC_STREAM, MEMCPY, SYNC_EVENT, MEMSET = 9 };

int64_t emu_timed_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t pace()
{
	static const char *const said = getenv("EMU_DEVICE");
	static const char *const at = said ? strstr(said, "pace=") : NULL;
	static const int64_t ns = at ? 1000 * atoll(at + 5) : 0;

	return ns;
}

bool emu_paced(void)
{
	return pace() > 0;
}

static void until(int64_t ns)
{
	while (emu_timed_now() < ns)
		if (ns - emu_timed_now() > 200000)
			usleep(100);
}

/* Numbers of calls, as a profiler gives them; short operations vary. */
static uint32_t calls;

static int64_t about(int64_t ns)
{
	return ns + ns / 64 * (int64_t)(calls * 2654435761u >> 29);
}

/* Theirs are longer than what we declare of them. */
static void put(const void *record, size_t bytes)
{
	static void (*to)(const void *);
	alignas(8) char whole[256] = {};
	const char *path = getenv("PACELINE_CUPTI");
	void *lib = to || !path ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

	if (lib)
		to = (void (*)(const void *))dlsym(lib, "fake_cupti_put");
	memcpy(whole, record, bytes);
	if (to)
		to(whole);
}

static void put_call(uint32_t cbid, uint32_t corr, int64_t begin, int64_t end)
{
	struct cu_api a = {};

	a.kind = CU_RUNTIME;
	a.cbid = cbid;
	a.start = (uint64_t)begin;
	a.end = (uint64_t)end;
	a.process = (uint32_t)getpid();
	a.thread = (uint32_t)syscall(SYS_gettid);
	a.corr = corr;
	put(&a, sizeof(a));
}

struct emu_timed emu_timed_launch(struct emu_timeline *s, unsigned copy_kind, size_t bytes)
{
	struct emu_timed t = {};

	if (!emu_paced())
		return t;
	t.kind = copy_kind == 99 ? CU_MEMSET : copy_kind ? CU_MEMCPY : CU_KERNEL;
	t.copy_kind = copy_kind;
	t.bytes = bytes;
	t.stream = s->number;
	t.corr = ++calls;
	t.call = emu_timed_now();
	until(t.call + about(CALL));
	t.returned = emu_timed_now();
	t.begin = std::max(t.returned + LATENCY, s->free_at);
	t.end = t.begin + about(copy_kind ? COPY : pace());
	s->free_at = t.end + BETWEEN;
	put_call(copy_kind == 99 ? MEMSET
		 : copy_kind	 ? MEMCPY
				 : LAUNCH,
		 t.corr, t.call, t.returned);
	return t;
}

void emu_timed_done(const struct emu_timed *t, const char *name)
{
	struct cu_kernel k = {};
	struct cu_memcpy c = {};
	struct cu_memset m = {};

	if (t->kind == CU_KERNEL) {
		k.kind = t->kind;
		k.start = (uint64_t)t->begin;
		k.end = (uint64_t)t->end;
		k.context = CONTEXT;
		k.stream = t->stream;
		k.corr = t->corr;
		k.name = name ? name : "product";
		put(&k, sizeof(k));
	} else if (t->kind == CU_MEMCPY) {
		c.kind = t->kind;
		c.copy_kind = (uint8_t)(t->copy_kind == 3 ? 8 : t->copy_kind);
		c.bytes = t->bytes;
		c.start = (uint64_t)t->begin;
		c.end = (uint64_t)t->end;
		c.context = CONTEXT;
		c.stream = t->stream;
		c.corr = t->corr;
		put(&c, sizeof(c));
	} else if (t->kind == CU_MEMSET) {
		m.kind = t->kind;
		m.bytes = t->bytes;
		m.start = (uint64_t)t->begin;
		m.end = (uint64_t)t->end;
		m.context = CONTEXT;
		m.stream = t->stream;
		m.corr = t->corr;
		put(&m, sizeof(m));
	}
}

static void put_sync(uint32_t type, uint32_t corr, int64_t begin, int64_t end, uint32_t stream,
		     const struct emu_moment *e, uint64_t instance)
{
	struct cu_sync s = {};

	s.kind = CU_SYNC;
	s.type = type;
	s.start = (uint64_t)begin;
	s.end = (uint64_t)end;
	s.corr = corr;
	s.context = CONTEXT;
	s.stream = stream;
	s.event = e ? e->number : CU_NONE;
	s.instance = e ? instance : 0;
	put(&s, sizeof(s));
}

void emu_timed_record(struct emu_timeline *s, struct emu_moment *e, uint64_t instance)
{
	struct cu_event r = {};
	int64_t begin = emu_timed_now();

	if (!emu_paced())
		return;
	e->ready = s->free_at - BETWEEN;
	r.kind = CU_EVENT;
	r.corr = ++calls;
	r.context = CONTEXT;
	r.stream = s->number;
	r.event = e->number;
	r.instance = instance;
	put_call(RECORD, r.corr, begin, emu_timed_now());
	put(&r, sizeof(r));
}

void emu_timed_wait(struct emu_timeline *s, const struct emu_moment *e, uint64_t instance)
{
	int64_t begin = emu_timed_now();

	if (!emu_paced())
		return;
	s->free_at = std::max(s->free_at, e->ready + BETWEEN);
	put_sync(CU_SYNC_WAIT, ++calls, begin, emu_timed_now(), s->number, e, instance);
	put_call(WAIT, calls, begin, emu_timed_now());
}

void emu_timed_sync(int64_t begin, const struct emu_timeline *s, const struct emu_moment *e,
		    uint64_t instance)
{
	int64_t ready = e ? e->ready : s->free_at - BETWEEN;

	if (!emu_paced())
		return;
	until(ready + WAKES_UP);
	put_sync(e ? CU_SYNC_EVENT : CU_SYNC_STREAM, ++calls, begin, emu_timed_now(),
		 e ? CU_NONE : s->number, e, instance);
	put_call(e ? SYNC_EVENT : SYNC_STREAM, calls, begin, emu_timed_now());
}
