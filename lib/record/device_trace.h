/*
 * device_trace.h - the operations of a device, passed from a backend to a recorder at run time.
 *
 * A source (CUPTI, or pairs of events around layers if CUPTI is absent) calls `event` for each call
 * of the host and each operation of the device: in any order, often much later, and from its own
 * threads. All times are CLOCK_MONOTONIC. Related events have a common number: `corr` for a call
 * and the operation that it launched, `event` for a record of a device event and the waits for it,
 * `launch` for a collective of the communication library and the call that launched its kernel.
 */
#ifndef PL_DEVICE_TRACE_H
#define PL_DEVICE_TRACE_H

#include "core/core.h"

enum pl_device_kind {
	PL_DEV_CALL,	/* of a host thread, to the runtime or driver: name, thread, corr */
	PL_DEV_KERNEL,	/* name, device, stream, corr of its call */
	PL_DEV_COPY,	/* likewise, and bytes */
	PL_DEV_SET,	/* likewise */
	PL_DEV_RECORD,	/* the call `corr` recorded `event` on `stream`: no times */
	PL_DEV_WAIT,	/* the call `corr` makes `stream` wait for `event` */
	PL_DEV_SYNC,	/* the call `corr` waited for `stream`, or `event`, or all of the device */
	PL_DEV_LAUNCH,	/* the call `corr` was made within `launch` of the communication library */
	PL_DEV_COMM,	/* a collective or a transfer that it launched within `launch` */
	PL_DEV_MESSAGE, /* a piece of one that went over a network: `sends`, peer, channel, bytes */
	PL_DEV_RANGE, /* of NVTX: begin alone (name, thread), or end alone; `launch`: its number */
	PL_DEV_MEMORY /* at `begin` bytes were allocated, or (below 0) released: device, name */
};
#define PL_DEV_NO_STREAM UINT32_MAX
#define PL_DEV_NO_EVENT	 UINT64_MAX

struct pl_device_event {
	uint8_t kind;
	const char *name; /* valid only during the call of event(); NULL: none */
	pl_ns begin, end;
	uint64_t corr; /* 0: none */
	uint32_t device, stream;
	uint32_t thread; /* as in gettid(); 0 unknown */
	/* RECORD, WAIT, SYNC. `instance` distinguishes the records of one event; 0: the source does
	 * not know it, and the latest record before the wait counts. */
	uint64_t event, instance;
	uint64_t launch; /* 0: not known */
	int64_t bytes;	 /* -1: none */
	/* COMM, MESSAGE: a name of the communicator that is the same on all its ranks, and the
	 * number of the collective in the order of issue, -1 for a single transfer. */
	const char *group;
	int64_t seq;
	int32_t peer, channel; /* -1 */
	bool sends;
};
#ifndef __cplusplus
/* An event without any of the optional parts. */
static inline struct pl_device_event pl_device_event(uint8_t kind, const char *name, pl_ns begin,
						     pl_ns end, uint64_t corr)
{
	return (struct pl_device_event){ .kind = kind,
					 .name = name,
					 .begin = begin,
					 .end = end,
					 .corr = corr,
					 .stream = PL_DEV_NO_STREAM,
					 .event = PL_DEV_NO_EVENT,
					 .bytes = -1,
					 .seq = -1,
					 .peer = -1,
					 .channel = -1 };
}
#endif
typedef void pl_device_event_fn(void *arg, const struct pl_device_event *e);

struct pl_device_source {
	const char *name; /* "cupti", "events" */
	const char *why;  /* the reason for not using a better source; NULL: it is the best */
	bool calls;	  /* all calls, records, waits and synchronisations are reported */
	bool ranges;	  /* range() is needed */
	uint64_t lost;	  /* events without memory so far */
};

struct pl_device_trace {
	/* Trace the context's device and all its streams; one trace at a time in a process. */
	int (*start)(void *ctx, pl_device_event_fn *event, void *arg, void **trace,
		     struct pl_err *err);
	void (*source)(void *trace, struct pl_device_source *s);
	/* Called around the work of one layer, or other work that needs a place in the time of the
	 * first stream; no nesting. `name` is valid until stop(). For sources with `ranges`. */
	void (*range)(void *trace, const char *name, bool begin);
	/* Report finished operations. To get all, the caller synchronises the device first. */
	int (*flush)(void *trace, struct pl_err *err);
	/* Report the rest and free the handle. NULL is allowed. event() is not called later.
	 * Without `idle` the device may be busy for ever, so stop() does not wait for it. */
	void (*stop)(void *trace, bool idle);
};

#endif
