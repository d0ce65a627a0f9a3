/*
 * fake_cuda - a libcuda.so.1 with events alone, of a device whose one stream is busy for as long as
 * a test says. Elapsed times are floats of milliseconds, in steps of half a microsecond, as a real
 * one has them.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct event {
	int64_t at; /* CLOCK_MONOTONIC; 0: never recorded */
};

static int64_t busy_until;
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
	int64_t t = now();

	busy_until = (busy_until > t ? busy_until : t) + ns;
	return busy_until;
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
	(void)stream;
	((struct event *)e)->at = fake_cuda_busy(0);
	return 0;
}

EXPORT int cuEventSynchronize(void *e);
EXPORT int cuEventSynchronize(void *e)
{
	int64_t left = ((struct event *)e)->at - now();
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
	if (a->at > now() || b->at > now())
		return 600; /* not over */
	*ms = (float)(round((double)(b->at - a->at) / 500) * 500 / 1e6);
	return 0;
}
