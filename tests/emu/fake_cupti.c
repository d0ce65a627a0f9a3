/*
 * fake_cupti - a libcupti without a device: what cupti.c needs of its activity interface, with the
 * behaviour that matters.
 *
 * A test puts records as NVIDIA's library lays them out; here they go into buffers that are asked
 * for by callback, one for every two records, which come back from a thread of their own: the last
 * first, as those of several threads do. Records of a kind that is not switched on are none. Times
 * are put as CLOCK_MONOTONIC shows them; without a clock of the caller's they are changed to
 * another one, which is what cuptiGetTimestamp() tells, too. With one, the versions that lose times
 * of kernels then do so. Who has not subscribed is refused. While a buffer is brought back somebody
 * else asks for one: who brings it may hold what that one waits for.
 *
 * FAKE_CUPTI in the environment, words: "version=N" (130001); "clock=0": a clock of the caller's is
 * refused; "each=0": calls are switched on all or none; "refuse=N": the call of the runtime of that
 * number is not; "kind=K:R": switching on kind K gives the result R; "other=1": another program has
 * subscribed; "late=1": it tells no time before something is switched on; "buffers=N": no more than
 * N are taken, then records are dropped; "per=N": of so many records each.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "record/cupti.h"

#define OTHER	  1700000000000000000LL /* of the other clock */
#define MOST	  256
#define PER	  2 /* records of a buffer, if nothing else is said */
#define MAX_CALLS 16
#define STUCK_S	  3

#define EXPORT __attribute__((visibility("default")))

struct full {
	uint8_t *p;
	size_t size, valid;
	int n;
};

static struct {
	cu_buffer_wanted *wanted;
	cu_buffer_full *done;
	uint64_t (*clock)(void);
	uint8_t on[64], call_on[3][MAX_CALLS];
	struct full full[MOST];
	int n_full, taken;
	size_t dropped;
	uint64_t external[16];
	int depth, flushes, subscribed;
	int asked, stuck; /* of those who ask while a buffer is brought back: who waited for it */
} st;

/* Records may be put while others are flushed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int bringing; /* a buffer, by this thread */

/* Those of both domains, by number from 1 on. */
static const char *const calls[3][MAX_CALLS] = {
	[CU_DOMAIN_DRIVER] = { NULL, "cuInit", "cuLaunchKernelEx", "cuStreamWaitEvent_ptsz",
			       "cuCtxSynchronize_v2" },
	[CU_DOMAIN_RUNTIME] = { NULL, "cudaGetDevice_v3020", "__cudaLaunchKernel_ptsz_v13000",
				"cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020",
				"cudaStreamSynchronize_v3020", "cudaMemcpyAsync_v3020",
				"cudaEventSynchronize_v3020", "cudaEventQuery_v3020",
				"cudaMemsetAsync_v3020" },
};

static long word(const char *key, long otherwise)
{
	const char *all = getenv("FAKE_CUPTI"), *at = all ? strstr(all, key) : NULL;

	return at ? strtol(at + strlen(key), NULL, 10) : otherwise;
}

static size_t size_of(uint32_t kind)
{
	static const size_t size[64] = {
		[CU_MEMCPY] = 96,   [CU_MEMSET] = 88,	   [CU_DRIVER] = 40,  [CU_RUNTIME] = 40,
		[CU_KERNEL] = 216,  [CU_MEMCPY_PEER] = 96, [CU_EVENT] = 56,   [CU_SYNC] = 56,
		[CU_EXTERNAL] = 24, [CU_MARKER] = 56,	   [CU_MEMORY] = 136,
	};
	size_t less = word("version=", 130001) < CU_VERSION_INSTANCE;

	if (kind >= 64)
		return 0;
	if (less && kind == CU_EVENT)
		return 24;
	return less && kind == CU_SYNC ? 40 : size[kind];
}

/* ---- for tests ----------------------------------------------------------------------------- */

static uint64_t other(uint64_t ns)
{
	return st.clock || !ns ? ns : ns + OTHER;
}

static int is_on(const uint8_t *r)
{
	const struct cu_api *a = (const void *)r;
	uint32_t kind = a->kind, domain = kind == CU_DRIVER ? CU_DOMAIN_DRIVER : CU_DOMAIN_RUNTIME;

	if (st.on[kind])
		return 1;
	return (kind == CU_DRIVER || kind == CU_RUNTIME) && a->cbid < MAX_CALLS &&
	       st.call_on[domain][a->cbid];
}

static void set_times(uint8_t *r)
{
	struct cu_kernel *k = (void *)r;
	struct cu_memcpy *c = (void *)r;
	struct cu_api *a = (void *)r;
	long version = word("version=", 130001);

	switch (k->kind) {
	case CU_KERNEL:
		k->start = other(k->start);
		k->end = other(k->end);
		if (st.clock && version >= 24 && version < 130100)
			k->start = k->end = 0;
		break;
	case CU_MEMCPY:
	case CU_MEMCPY_PEER:
	case CU_MEMSET:
		c->start = other(c->start);
		c->end = other(c->end);
		break;
	case CU_MARKER:
		((struct cu_marker *)r)->at = other(((struct cu_marker *)r)->at);
		break;
	case CU_MEMORY:
		((struct cu_memory *)r)->at = other(((struct cu_memory *)r)->at);
		break;
	case CU_DRIVER:
	case CU_RUNTIME:
	case CU_SYNC:
		a->start = other(a->start);
		a->end = other(a->end);
		break;
	}
}

static void put(const void *record)
{
	struct full *f = st.n_full ? &st.full[st.n_full - 1] : NULL;
	uint32_t kind = *(const uint32_t *)record;
	size_t n = size_of(kind), most;
	uint8_t *at;

	if (!is_on(record) || !st.wanted)
		return;
	if (!f || f->n == word("per=", PER)) {
		f = &st.full[st.n_full];
		f->p = NULL;
		if (st.n_full < MOST && st.taken < word("buffers=", MOST))
			st.wanted(&f->p, &f->size, &most);
		if (!f->p) {
			st.dropped++;
			return;
		}
		st.taken++;
		st.n_full++;
		f->n = 0;
		f->valid = 0;
	}
	at = f->p + f->valid;
	memcpy(at, record, n);
	set_times(at);
	f->valid += n;
	f->n++;
}

EXPORT void fake_cupti_put(const void *record);
EXPORT void fake_cupti_put(const void *record)
{
	pthread_mutex_lock(&lock);
	put(record);
	pthread_mutex_unlock(&lock);
}

/* What the calling thread pushed last, 0: nothing; how often records were flushed. */
EXPORT uint64_t fake_cupti_external(void);
EXPORT uint64_t fake_cupti_external(void)
{
	return st.depth ? st.external[st.depth - 1] : 0;
}

EXPORT int fake_cupti_on(uint32_t kind);
EXPORT int fake_cupti_on(uint32_t kind)
{
	return st.on[kind];
}

EXPORT int fake_cupti_subscribed(void);
EXPORT int fake_cupti_subscribed(void)
{
	return st.subscribed;
}

/* How many asked for a buffer while one was brought back; -1: one of them had to wait for that. */
EXPORT int fake_cupti_asked(void);
EXPORT int fake_cupti_asked(void)
{
	return st.stuck ? -1 : st.asked;
}

static void *ask(void *arg)
{
	uint8_t *p = NULL;
	size_t size, most;

	(void)arg;
	st.wanted(&p, &size, &most);
	if (p)
		st.done(NULL, 0, p, size, 0);
	return NULL;
}

/* Called by who brings a buffer, in the middle of that: in each place once. */
static void ask_meanwhile(int place)
{
	struct timespec until;
	pthread_t t;

	if (bringing != place || st.stuck)
		return;
	bringing++;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STUCK_S;
	if (pthread_create(&t, NULL, ask, NULL))
		return;
	st.asked++;
	if (pthread_timedjoin_np(t, NULL, &until)) {
		st.stuck = 1;
		pthread_detach(t);
	}
}

/* ---- the interface ------------------------------------------------------------------------- */

EXPORT int cuptiGetVersion(uint32_t *v);
EXPORT int cuptiGetVersion(uint32_t *v)
{
	*v = (uint32_t)word("version=", 130001);
	return 0;
}

EXPORT int cuptiSubscribe(void **subscriber, cu_callback *callback, void *arg);
EXPORT int cuptiSubscribe(void **subscriber, cu_callback *callback, void *arg)
{
	(void)arg;
	if (st.subscribed || word("other=", 0))
		return CU_OTHER_PROFILER;
	if (!callback)
		return 1;
	*subscriber = &st;
	st.subscribed = 1;
	return 0;
}

EXPORT int cuptiUnsubscribe(void *subscriber);
EXPORT int cuptiUnsubscribe(void *subscriber)
{
	if (subscriber != &st)
		return 1;
	st.subscribed = 0;
	st.clock = NULL; /* the next may be of another version */
	return 0;
}

EXPORT int cuptiActivityRegisterCallbacks(cu_buffer_wanted *wanted, cu_buffer_full *done);
EXPORT int cuptiActivityRegisterCallbacks(cu_buffer_wanted *wanted, cu_buffer_full *done)
{
	if (!st.subscribed)
		return 15;
	st.wanted = wanted;
	st.done = done;
	return 0;
}

EXPORT int cuptiActivityEnable(uint32_t kind);
EXPORT int cuptiActivityEnable(uint32_t kind)
{
	char key[32];
	int result;

	snprintf(key, sizeof(key), "kind=%u:", kind);
	result = (int)word(key, 0);
	st.on[kind] = !result;
	return result;
}

EXPORT int cuptiActivityDisable(uint32_t kind);
EXPORT int cuptiActivityDisable(uint32_t kind)
{
	st.on[kind] = 0;
	return 0;
}

static void *give_back(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	while (st.n_full) {
		struct full *f = &st.full[--st.n_full];

		bringing = 1;
		st.done(NULL, 0, f->p, f->size, f->valid);
		st.taken--;
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* By itself, when it comes to it. */
EXPORT int fake_cupti_bring(void);
EXPORT int fake_cupti_bring(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, give_back, NULL))
		return 999;
	pthread_join(t, NULL);
	return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flags);
EXPORT int cuptiActivityFlushAll(uint32_t flags)
{
	(void)flags;
	if (!st.wanted)
		return 7;
	st.flushes++;
	return fake_cupti_bring();
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t n, uint32_t **record);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t n, uint32_t **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + size_of(**record) : buffer;

	ask_meanwhile(1);
	if (next >= buffer + n)
		return CU_NO_MORE;
	*record = (void *)next;
	return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n);
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
	(void)context;
	(void)stream;
	ask_meanwhile(2);
	*n = st.dropped;
	st.dropped = 0;
	return 0;
}

EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name);
EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name)
{
	*name = domain < 3 && id < MAX_CALLS ? calls[domain][id] : NULL;
	return *name ? 0 : 1;
}

EXPORT int cuptiGetResultString(int result, const char **text);
EXPORT int cuptiGetResultString(int result, const char **text)
{
	*text = result == CU_OTHER_PROFILER ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
					    : "CUPTI_ERROR";
	return 0;
}

EXPORT int cuptiGetTimestamp(uint64_t *ns);
EXPORT int cuptiGetTimestamp(uint64_t *ns)
{
	struct timespec t;

	if (!st.on[CU_KERNEL] && word("late=", 0))
		return 15;
	clock_gettime(CLOCK_MONOTONIC, &t);
	*ns = other((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
	return 0;
}

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void));
EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
	st.clock = word("clock=", 1) ? clock : NULL;
	return st.clock ? 0 : 1;
}

EXPORT int cuptiSetThreadIdType(uint32_t sort);
EXPORT int cuptiSetThreadIdType(uint32_t sort)
{
	return sort == CU_THREAD_SYSTEM ? 0 : 1;
}

EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on);
EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on)
{
	st.call_on[CU_DOMAIN_DRIVER][id] = on;
	return 0;
}

EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on);
EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on)
{
	if (!word("each=", 1) || (long)id == word("refuse=", 0))
		return 1;
	st.call_on[CU_DOMAIN_RUNTIME][id] = on;
	return 0;
}

EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t sort, uint64_t number);
EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t sort, uint64_t number)
{
	if (sort != CU_CUSTOM0 || st.depth == 16)
		return 1;
	st.external[st.depth++] = number;
	return 0;
}

EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t sort, uint64_t *number);
EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t sort, uint64_t *number)
{
	if (sort != CU_CUSTOM0 || !st.depth)
		return 1;
	*number = st.external[--st.depth];
	return 0;
}
