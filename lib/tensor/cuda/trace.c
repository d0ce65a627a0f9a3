/*
 * The trace of a device: which source it comes from, and to whom it is told.
 *
 * Sources and NCCL tell from threads of their own; the lock makes sure that nobody is told anything
 * once the trace was stopped.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "tensor/cuda/trace.h"

#define DRIFT_NS 10000000 /* pairs that are nearer do not tell a drift */

static struct {
	pthread_mutex_t lock;
	pl_device_event_fn *event; /* NULL: nobody traces */
	void *arg;
	const struct pl_cuda_trace_maker *maker;
	char why[512];
} now = { .lock = PTHREAD_MUTEX_INITIALIZER };

void *pl_cuda_trace_open(const char *const *name, const char **which)
{
	for (; *name; name++) {
		void *lib = **name ? dlopen(*name, RTLD_NOW | RTLD_LOCAL) : NULL;

		*which = *name;
		if (lib)
			return lib;
	}
	return NULL;
}

/* ---- clocks -------------------------------------------------------------------------------- */

void pl_cuda_trace_clock_pair(struct pl_cuda_trace_clock *c, pl_ns theirs, pl_ns ours)
{
	if (!c->n || theirs - c->theirs[1] >= DRIFT_NS) {
		c->theirs[0] = c->theirs[1];
		c->ours[0] = c->ours[1];
		c->n = c->n < 2 ? c->n + 1 : 2;
	}
	c->theirs[1] = theirs;
	c->ours[1] = ours;
}

pl_ns pl_cuda_trace_clock_ours(const struct pl_cuda_trace_clock *c, pl_ns theirs)
{
	pl_ns since = theirs - c->theirs[1];
	double rate = 1;

	if (c->n == 2 && c->theirs[1] > c->theirs[0])
		rate = (double)(c->ours[1] - c->ours[0]) / (double)(c->theirs[1] - c->theirs[0]);
	/* the clock was set between the two: no clock is off by so much */
	if (rate < 0.99 || rate > 1.01)
		rate = 1;
	return c->ours[1] + since + (pl_ns)((rate - 1) * (double)since);
}

/* ---- telling ------------------------------------------------------------------------------- */

void pl_cuda_trace_tell(const struct pl_device_event *e)
{
	pthread_mutex_lock(&now.lock);
	if (now.event)
		now.event(now.arg, e);
	pthread_mutex_unlock(&now.lock);
}

bool pl_cuda_trace_tracing(void)
{
	bool on;

	pthread_mutex_lock(&now.lock);
	on = now.event != NULL;
	pthread_mutex_unlock(&now.lock);
	return on;
}

static void listen_to(pl_device_event_fn *event, void *arg)
{
	pthread_mutex_lock(&now.lock);
	now.event = event;
	now.arg = arg;
	pthread_mutex_unlock(&now.lock);
}

int pl_cuda_trace_start(const struct pl_cuda_trace_device *d, pl_device_event_fn *event, void *arg,
			void **trace, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	if (pl_cuda_trace_tracing())
		return pl_fail(err, PL_EINTERNAL, "a device is traced already");
	listen_to(event, arg);
	now.maker = &pl_cuda_trace_cupti;
	now.why[0] = '\0';
	rc = pl_cuda_trace_cupti.start(d, &why);
	if (rc < 0) {
		snprintf(now.why, sizeof(now.why), "%.500s", why.msg);
		now.maker = &pl_cuda_trace_events;
		rc = pl_cuda_trace_events.start(d, err);
	}
	if (rc < 0) {
		listen_to(NULL, NULL);
		return rc;
	}
	pl_cuda_trace_nccl_offer();
	*trace = &now;
	return 0;
}

void pl_cuda_trace_source(void *trace, struct pl_device_source *s)
{
	(void)trace;
	*s = (struct pl_device_source){ .name = now.maker->name,
					.why = now.why[0] ? now.why : NULL,
					.calls = now.maker->complete(),
					.ranges = now.maker->range != NULL,
					.lost = now.maker->lost() };
}

void pl_cuda_trace_range(void *trace, const char *name, bool begin)
{
	(void)trace;
	if (now.maker->range)
		now.maker->range(name, begin);
}

int pl_cuda_trace_flush(void *trace, struct pl_err *err)
{
	(void)trace;
	return now.maker->flush(err);
}

void pl_cuda_trace_stop(void *trace, bool idle)
{
	if (!trace)
		return;
	now.maker->stop(idle);
	listen_to(NULL, NULL);
}
