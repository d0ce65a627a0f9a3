/*
 * The device of a rank: its events go to the recorder (record/device.h), joined when the device is
 * idle between two steps, because by then the source has told everything.
 *
 * A source that tells only ranges tells no waits. Then this file adds the waits of the host for the
 * whole device, and the ranges of the optimiser and of gradients that leave the device.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record/device.h"
#include "train/tracer.h"

#define JOIN_AT	  16384		      /* pending events */
#define PERIOD_NS 1000000000	      /* a source of ranges is flushed at least that often */
#define OWN_CORR  ((uint64_t)1 << 40) /* correlations of the waits that are added here */

struct tracer_device {
	const struct pl_device_trace *d;
	void *trace;
	struct pl_device_join *join;
	struct pl_device_source source;
	uint32_t main;	   /* number of the thread that trains */
	pl_ns launched_ns; /* end of the last launch by the thread that communicates; before the
			    * first launch: the start of the trace */
	uint64_t synced;   /* number of pl_train_tracer_synced() calls */
};

/* ---- the thread that communicates ---------------------------------------------------------- */

bool pl_train_tracer_takes(struct pl_tracer *t, const struct pl_comm_event *e)
{
	struct tracer_device *x = t->device;
	bool calls = x && x->source.calls;
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	struct pl_rec_event r;
	pl_ns *since;

	if (!e->launched || !e->tag || !calls)
		return e->launched || (e->on_device && calls);
	/* the thread that trains may launch while it waits, which cuts its wait in two */
	since = self == x->main ? &t->waiting : &x->launched_ns;
	r = pl_rec_event(pl_device_join_thread(x->join, self), PL_K_WAIT, t->name[PL_NAME_WAIT],
			 *since ? *since : e->begin, e->begin);
	*since = e->end;
	r.corr = (int64_t)e->tag;
	r.step = pl_tag_step(e->tag);
	pl_rec(t->rec, &r);
	return true;
}

/* ---- begin and end ------------------------------------------------------------------------- */

static void device_free(struct tracer_device *x)
{
	pl_device_join_free(x->join);
	pl_free(x);
}

int pl_train_tracer_device(struct pl_tracer *t, const struct pl_device_trace *d, void *ctx,
			   const struct pl_log *log, struct pl_err *err)
{
	struct tracer_device *x;
	char text[128];
	int rc;

	PL_CHECK(pl_alloc(&x, 1, sizeof(*x), err));
	x->d = d;
	x->main = (uint32_t)syscall(SYS_gettid);
	x->launched_ns = pl_now_ns();
	rc = pl_device_join_new(t->rec, t->main, x->main, &x->join, err);
	if (rc >= 0)
		rc = d->start(ctx, pl_device_join_event, x->join, &x->trace, err);
	if (rc < 0) {
		device_free(x);
		return pl_wrap(err, "tracing the device");
	}
	d->source(x->trace, &x->source);
	if (x->source.why)
		pl_say(log, PL_LOG_WARN, "the trace of the device is coarse: %s", x->source.why);
	snprintf(text, sizeof(text), "\"%s\"", x->source.name);
	pl_rec_meta(t->rec, "device_trace", text);
	pl_rec_meta(t->rec, "all_synchronization", x->source.calls ? "true" : "false");
	t->device = x;
	return 0;
}

void pl_train_tracer_range(struct pl_tracer *t, pl_id name, bool begin)
{
	struct tracer_device *x = t->device;

	if (x && x->source.ranges)
		x->d->range(x->trace, pl_rec_text(t->rec, name), begin);
}

void pl_train_tracer_synced(struct pl_tracer *t, pl_ns begin)
{
	struct tracer_device *x = t->device;
	struct pl_device_event e;

	if (!x || !x->source.ranges)
		return;
	e = pl_device_event(PL_DEV_CALL, "Synchronize", begin, pl_now_ns(), OWN_CORR + ++x->synced);
	e.thread = x->main;
	pl_device_join_event(x->join, &e);
	e.kind = PL_DEV_SYNC;
	e.stream = 0; /* the stream of the ranges */
	pl_device_join_event(x->join, &e);
}

void pl_train_tracer_join(struct pl_tracer *t)
{
	struct tracer_device *x = t ? t->device : NULL;
	struct pl_err ignore = { 0 }; /* a later flush tells the same events */
	pl_ns since;
	bool due;

	if (!x)
		return;
	due = pl_device_join_pending(x->join, &since) >= JOIN_AT ||
	      (x->source.ranges && since > PERIOD_NS);
	if (due && x->d->flush(x->trace, &ignore) >= 0)
		pl_device_join_now(x->join, false);
}

int pl_train_tracer_stop(struct pl_tracer *t, bool idle, uint64_t *lost, struct pl_err *err)
{
	struct tracer_device *x = t ? t->device : NULL;
	int rc = 0;

	*lost = 0;
	if (!x)
		return 0;
	t->device = NULL;
	if (idle)
		rc = x->d->flush(x->trace, err);
	x->d->source(x->trace, &x->source);
	x->d->stop(x->trace, idle);
	pl_device_join_now(x->join, true);
	*lost = x->source.lost + pl_device_join_lost(x->join);
	device_free(x);
	return rc < 0 ? pl_wrap(err, "tracing the device") : 0;
}
