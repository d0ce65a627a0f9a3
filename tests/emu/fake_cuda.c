/*
 * fake_cuda - a libcuda.so.1 with events alone, of a device whose one stream is busy for as long as
 * a test says. Elapsed times are floats of milliseconds, in steps of half a microsecond, as a real
 * one has them.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct event {
	int64_t at; /* CLOCK_MONOTONIC, or with `held` from the release on; 0: never recorded */
	bool held;
};

static int64_t busy_until; /* while held: from the release on */
static int64_t released;
static bool held;
static int events, fails;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The stream works so long, from when it has done all before; when it will be idle. */
EXPORT int64_t fake_cuda_busy(int64_t ns);
EXPORT int64_t fake_cuda_busy(int64_t ns)
{
	int64_t t = held ? 0 : now();

	busy_until = (busy_until > t ? busy_until : t) + ns;
	return busy_until;
}

/* An idle stream begins nothing until it is released, so the times of its work do not depend on
 * how fast the host issues it. The release returns when the stream will be idle. A process holds
 * the stream once. */
EXPORT void fake_cuda_hold(void);
EXPORT void fake_cuda_hold(void)
{
	held = true;
	busy_until = 1; /* an event at 0 was never recorded */
}

EXPORT int64_t fake_cuda_release(void);
EXPORT int64_t fake_cuda_release(void)
{
	held = false;
	released = now();
	busy_until += released;
	return busy_until;
}

/* When an event passes; INT64_MAX when the stream waits for its release. */
static int64_t passes(const struct event *e)
{
	if (!e->held)
		return e->at;
	return held ? INT64_MAX : released + e->at;
}

/* How many events there are; from now on creating one gives this result. */
EXPORT int fake_cuda_events(int result);
EXPORT int fake_cuda_events(int result)
{
	fails = result;
	return events;
}

EXPORT int cuEventCreate(void **e, unsigned flags);
EXPORT int cuEventCreate(void **e, unsigned flags)
{
	(void)flags;
	*e = fails ? NULL : calloc(1, sizeof(struct event));
	events += *e != NULL;
	return *e ? 0 : fails ? fails : 2;
}

EXPORT int cuEventDestroy_v2(void *e);
EXPORT int cuEventDestroy_v2(void *e)
{
	free(e);
	events--;
	return 0;
}

EXPORT int cuEventRecord(void *e, void *stream);
EXPORT int cuEventRecord(void *e, void *stream)
{
	struct event *event = e;

	(void)stream;
	event->at = fake_cuda_busy(0);
	event->held = held;
	return 0;
}

EXPORT int cuEventSynchronize(void *e);
EXPORT int cuEventSynchronize(void *e)
{
	int64_t left = passes(e) - now();
	struct timespec t = { left / 1000000000, left % 1000000000 };

	if (left > 0)
		nanosleep(&t, NULL);
	return 0;
}

EXPORT int cuEventElapsedTime(float *ms, void *from, void *to);
EXPORT int cuEventElapsedTime(float *ms, void *from, void *to)
{
	const struct event *a = from, *b = to;

	if (!a->at || !b->at)
		return 400;
	if (passes(a) > now() || passes(b) > now())
		return 600; /* not over */
	*ms = (float)(round((double)(passes(b) - passes(a)) / 500) * 500 / 1e6);
	return 0;
}
