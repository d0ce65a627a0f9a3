/*
 * Device events without a profiler: the spans of layers, from pairs of events in the stream that
 * computes.
 *
 * One event is recorded when the host begins to issue the work of a layer, one when it has
 * finished. When both have passed, the time between them is the time of the layer on the device,
 * including gaps. The place of a span is its time since a base: an event with a known time of the
 * host, because the host waited for it while the device was idle. Each flush sets a new base,
 * because the driver gives times as a float of milliseconds, which is too coarse after minutes.
 * Only flush() and stop() wait.
 *
 * It uses the driver's interface, because its library is installed with every device.
 */
#include <dlfcn.h>
#include <string.h>

#include "tensor/cuda/trace.h"

#define MOST  32768 /* spans between two flushes; further ones are lost */
#define TRIES 5	    /* attempts to find the time of an event */

typedef void *event_t;

static struct {
	void *lib;
	int (*create)(event_t *e, unsigned flags);
	int (*destroy)(event_t e);
	int (*record)(event_t e, void *stream);
	int (*wait)(event_t e);
	int (*elapsed)(float *ms, event_t from, event_t to);
} cuda;

struct span {
	const char *name;
	event_t begin, end;
	pl_ns asked, done; /* times of the host */
	uint64_t corr;
	bool open;
};

static struct {
	struct pl_cuda_trace_device d;
	event_t base, spare;
	pl_ns base_ns;
	struct span *span;
	size_t n, made, cap; /* made: spans that have events */
	uint64_t corr, lost;
} st;

static int open_library(struct pl_err *err)
{
	static const char *const name[] = { "libcuda.so.1", NULL };
	const char *which;

	if (cuda.lib)
		return 0;
	cuda.lib = pl_cuda_trace_open(name, &which);
	if (!cuda.lib)
		return pl_fail(err, PL_EABSENT,
			       "%s, the driver of the device, cannot be opened: is it installed?",
			       name[0]);
	if (pl_symbol(cuda.lib, "cuEventCreate", &cuda.create) &&
	    pl_symbol(cuda.lib, "cuEventDestroy_v2", &cuda.destroy) &&
	    pl_symbol(cuda.lib, "cuEventRecord", &cuda.record) &&
	    pl_symbol(cuda.lib, "cuEventSynchronize", &cuda.wait) &&
	    pl_symbol(cuda.lib, "cuEventElapsedTime", &cuda.elapsed))
		return 0;
	cuda.lib = NULL;
	return pl_fail(err, PL_EABSENT, "%s has no events: it is too old", which);
}

/* Record the base. The device is idle, so the event passes at once. The host may be interrupted
 * between its two readings of the clock, so the closest of a few pairs counts. */
static int set_base(struct pl_err *err)
{
	pl_ns least = INT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		pl_ns before = pl_now_ns(), gap;
		int result = cuda.record(st.spare, st.d.main);
		event_t passed = st.spare;

		result = result ? result : cuda.wait(st.spare);
		if (result)
			return pl_fail(err, PL_EIO, "an event of the device failed (CUDA error %d)",
				       result);
		gap = pl_now_ns() - before;
		if (gap >= least)
			continue;
		least = gap;
		st.spare = st.base;
		st.base = passed;
		st.base_ns = before + gap / 2;
	}
	return 0;
}

static int start(const struct pl_cuda_trace_device *d, struct pl_err *err)
{
	int rc = open_library(err), result;

	if (rc < 0)
		return rc;
	memset(&st, 0, sizeof(st));
	st.d = *d;
	result = cuda.create(&st.base, 0);
	if (result == 0 && (result = cuda.create(&st.spare, 0)) != 0)
		cuda.destroy(st.base);
	if (result)
		return pl_fail(err, PL_EABSENT, "the device makes no events (CUDA error %d)",
			       result);
	return set_base(err);
}

static struct span *new_span(void)
{
	struct pl_err ignore = { 0 };
	struct span *s;

	if (st.n == MOST || pl_grow(&st.span, &st.cap, st.n + 1, sizeof(*st.span), &ignore) < 0)
		return NULL;
	s = &st.span[st.n];
	if (st.n == st.made) {
		memset(s, 0, sizeof(*s));
		if (cuda.create(&s->begin, 0))
			return NULL;
		if (cuda.create(&s->end, 0)) {
			cuda.destroy(s->begin);
			return NULL;
		}
		st.made++;
	}
	return s;
}

static void range(const char *name, bool begin)
{
	struct span *s = begin ? new_span() : st.n ? &st.span[st.n - 1] : NULL;

	if (!s || (!begin && !s->open)) {
		st.lost += begin;
		return;
	}
	if (begin) {
		s->name = name;
		s->asked = pl_now_ns();
		s->corr = ++st.corr;
		s->open = cuda.record(s->begin, st.d.main) == 0;
		st.n++;
		return;
	}
	s->open = false;
	if (cuda.record(s->end, st.d.main) == 0)
		s->done = pl_now_ns();
	else
		st.n--;
}

static void report_span(const struct span *s)
{
	char text[256];
	struct pl_device_event e;
	float from = 0, lasts = 0;
	pl_ns begin;

	if (cuda.elapsed(&from, st.base, s->begin) || cuda.elapsed(&lasts, s->begin, s->end)) {
		st.lost++;
		return;
	}
	snprintf(text, sizeof(text), "Launch %.200s", s->name);
	e = pl_device_event(PL_DEV_CALL, text, s->asked, s->done, s->corr);
	pl_cuda_trace_report(&e);
	begin = st.base_ns + (pl_ns)((double)from * 1e6);
	e = pl_device_event(PL_DEV_KERNEL, s->name, begin, begin + (pl_ns)((double)lasts * 1e6),
			    s->corr);
	e.device = (uint32_t)st.d.device;
	e.stream = 0;
	pl_cuda_trace_report(&e);
}

static int flush(struct pl_err *err)
{
	size_t n = st.n && st.span[st.n - 1].open ? st.n - 1 : st.n;
	int result = n ? cuda.wait(st.span[n - 1].end) : 0;

	if (result)
		return pl_fail(err, PL_EIO, "an event of the device failed (CUDA error %d)",
			       result);
	for (size_t i = 0; i < n; i++)
		report_span(&st.span[i]);
	st.n = 0;
	return set_base(err);
}

static void stop(bool idle)
{
	struct pl_err ignore = { 0 };

	if (!idle || flush(&ignore) < 0)
		st.lost += st.n;
	for (size_t i = 0; i < st.made; i++) {
		cuda.destroy(st.span[i].begin);
		cuda.destroy(st.span[i].end);
	}
	cuda.destroy(st.base);
	cuda.destroy(st.spare);
	pl_free(st.span);
	st.span = NULL;
	st.n = st.made = st.cap = 0;
}

/* No: it reports only the calls that stand for layers, and no waits. */
static bool complete(void)
{
	return false;
}

static uint64_t lost(void)
{
	return st.lost;
}

const struct pl_cuda_trace_source_type pl_cuda_trace_events = { .name = "events",
								.start = start,
								.range = range,
								.flush = flush,
								.stop = stop,
								.complete = complete,
								.lost = lost };
