/*
 * trace.h - what a CUDA device did: CUPTI where that is to be had, else pairs of events around
 * layers; and what NCCL says of its collectives. No header of the toolkit is needed, the libraries
 * are opened when a trace is started. One trace at a time in a process.
 */
#ifndef PL_CUDA_TRACE_H
#define PL_CUDA_TRACE_H

#include "tensor/device_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_cuda_trace_device {
	int device;
	void *main; /* the stream that computes: cudaStream_t, which is CUstream */
};

/* The functions of struct pl_device_trace, but for the context. The device's context is current in
 * the calling thread. PL_EABSENT: neither source is to be had. */
int pl_cuda_trace_start(const struct pl_cuda_trace_device *d, pl_device_event_fn *event, void *arg,
			void **trace, struct pl_err *err);
void pl_cuda_trace_source(void *trace, struct pl_device_source *s);
void pl_cuda_trace_range(void *trace, const char *name, bool begin);
int pl_cuda_trace_flush(void *trace, struct pl_err *err);
void pl_cuda_trace_stop(void *trace, bool idle);

/* ---- between the files of this trace --------------------------------------------------------- */

/* To whoever traces, from any thread; nobody does: nothing. */
void pl_cuda_trace_tell(const struct pl_device_event *e);
bool pl_cuda_trace_tracing(void);

/* The first of `name` (ended by NULL) that can be opened: its handle and which; NULL. */
void *pl_cuda_trace_open(const char *const *name, const char **which);

/*
 * Times of another clock as CLOCK_MONOTONIC, from pairs of readings of both: on the line through
 * the latest two that are apart enough to tell a drift, else at the distance of the latest.
 */
struct pl_cuda_trace_clock {
	pl_ns theirs[2], ours[2]; /* [1] is the latest */
	int n;
};
void pl_cuda_trace_clock_pair(struct pl_cuda_trace_clock *c, pl_ns theirs, pl_ns ours);
pl_ns pl_cuda_trace_clock_ours(const struct pl_cuda_trace_clock *c, pl_ns theirs);

struct pl_cuda_trace_maker { /* a source */
	const char *name;
	int (*start)(const struct pl_cuda_trace_device *d, struct pl_err *err);
	void (*range)(const char *name, bool begin); /* NULL: needs none */
	int (*flush)(struct pl_err *err);
	void (*stop)(bool idle); /* tells the rest */
	bool (*complete)(void);
	uint64_t (*lost)(void);
};
extern const struct pl_cuda_trace_maker pl_cuda_trace_cupti, pl_cuda_trace_events;

/* What the calling thread asks of the device until pop() is of that launch of the communication
 * library. Where the source cannot say it: nothing. */
void pl_cuda_trace_cupti_push(uint64_t launch);
void pl_cuda_trace_cupti_pop(void);

/* NCCL is to load its profiler from the file that this code is in, unless it has another one. */
void pl_cuda_trace_nccl_offer(void);

#ifdef __cplusplus
}
#endif

#endif
