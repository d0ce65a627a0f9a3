/*
 * The trace of a device: its source and its receiver.
 *
 * Sources and NCCL report from their own threads. The lock makes sure that the receiver is not
 * called after the trace has stopped.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "record/cuda.h"

#define DRIFT_NS 10000000 /* pairs that are nearer cannot show a drift */

static struct {
	pthread_mutex_t lock;
	pl_device_event_fn *event; /* NULL: no trace */
	void *arg;
	const struct pl_cuda_trace_source_type *source;
	char why[512];
} current = { .lock = PTHREAD_MUTEX_INITIALIZER };

void *pl_cuda_trace_open(const char *const *name, const char **which)
{
	/* what the program has loaded is of the same version as the rest of its toolkit */
	for (const char *const *n = name; *n; n++) {
		void *lib = **n ? dlopen(*n, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;

		*which = *n;
		if (lib)
			return lib;
	}
	for (; *name; name++) {
		void *lib = **name ? dlopen(*name, RTLD_NOW | RTLD_LOCAL) : NULL;

		*which = *name;
		if (lib)
			return lib;
	}
	return NULL;
}

/* ---- clocks -------------------------------------------------------------------------------- */

void pl_cuda_trace_clock_pair(struct pl_cuda_trace_clock *c, pl_ns device, pl_ns host)
{
	if (!c->n || device - c->device[1] >= DRIFT_NS) {
		c->device[0] = c->device[1];
		c->host[0] = c->host[1];
		c->n = c->n < 2 ? c->n + 1 : 2;
	}
	c->device[1] = device;
	c->host[1] = host;
}

pl_ns pl_cuda_trace_clock_to_host(const struct pl_cuda_trace_clock *c, pl_ns device)
{
	pl_ns since = device - c->device[1];
	double rate = 1;

	if (c->n == 2 && c->device[1] > c->device[0])
		rate = (double)(c->host[1] - c->host[0]) / (double)(c->device[1] - c->device[0]);
	/* somebody set the clock between the two readings: no clock drifts this much */
	if (rate < 0.99 || rate > 1.01)
		rate = 1;
	return c->host[1] + since + (pl_ns)((rate - 1) * (double)since);
}

/* ---- reporting ----------------------------------------------------------------------------- */

void pl_cuda_trace_report(const struct pl_device_event *e)
{
	pthread_mutex_lock(&current.lock);
	if (current.event)
		current.event(current.arg, e);
	pthread_mutex_unlock(&current.lock);
}

bool pl_cuda_trace_tracing(void)
{
	bool on;

	pthread_mutex_lock(&current.lock);
	on = current.event != NULL;
	pthread_mutex_unlock(&current.lock);
	return on;
}

static void set_receiver(pl_device_event_fn *event, void *arg)
{
	pthread_mutex_lock(&current.lock);
	current.event = event;
	current.arg = arg;
	pthread_mutex_unlock(&current.lock);
}

int pl_cuda_trace_start(const struct pl_cuda_trace_device *d,
			const struct pl_cuda_trace_source_type *other, pl_device_event_fn *event,
			void *arg, void **trace, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	if (pl_cuda_trace_tracing())
		return pl_fail(err, PL_EINTERNAL, "a device is traced already");
	set_receiver(event, arg);
	current.source = &pl_cuda_trace_cupti;
	current.why[0] = '\0';
	rc = pl_cuda_trace_cupti.start(d, &why);
	if (rc < 0 && other) {
		snprintf(current.why, sizeof(current.why), "%.500s", why.msg);
		current.source = other;
		rc = other->start(d, err);
	} else {
		pl_fail_as(err, &why);
	}
	if (rc < 0) {
		set_receiver(NULL, NULL);
		return rc;
	}
	*trace = &current;
	return 0;
}

void pl_cuda_trace_source(void *trace, struct pl_device_source *s)
{
	(void)trace;
	*s = (struct pl_device_source){ .name = current.source->name,
					.why = current.why[0] ? current.why : NULL,
					.calls = current.source->complete(),
					.ranges = current.source->range != NULL,
					.lost = current.source->lost() };
}

void pl_cuda_trace_range(void *trace, const char *name, bool begin)
{
	(void)trace;
	if (current.source->range)
		current.source->range(name, begin);
}

int pl_cuda_trace_flush(void *trace, struct pl_err *err)
{
	(void)trace;
	return current.source->flush(err);
}

void pl_cuda_trace_stop(void *trace, bool idle)
{
	if (!trace)
		return;
	current.source->stop(idle);
	set_receiver(NULL, NULL);
}
