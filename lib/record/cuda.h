/*
 * cuda.h - the operations of a CUDA device: from CUPTI if it is installed, else from another source
 * (pairs of events around layers); and the collectives that NCCL reports. The build needs no header
 * of the toolkit, because the libraries are opened when a trace starts. One trace at a time in a
 * process.
 */
#ifndef PL_RECORD_CUDA_H
#define PL_RECORD_CUDA_H

#include "record/device_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_cuda_trace_device {
	int device;
	void *main; /* the stream that computes: cudaStream_t, which is CUstream */
	bool more;  /* also ranges of NVTX, and memory */
};

/* The functions of struct pl_device_trace, without the context. The device's context is current in
 * the calling thread. other: the source where there is no CUPTI; NULL: none. PL_EABSENT: no source
 * works. */
struct pl_cuda_trace_source_type;
int pl_cuda_trace_start(const struct pl_cuda_trace_device *d,
			const struct pl_cuda_trace_source_type *other, pl_device_event_fn *event,
			void *arg, void **trace, struct pl_err *err);
void pl_cuda_trace_source(void *trace, struct pl_device_source *s);
void pl_cuda_trace_range(void *trace, const char *name, bool begin);
int pl_cuda_trace_flush(void *trace, struct pl_err *err);
void pl_cuda_trace_stop(void *trace, bool idle);

/* ---- between the files of this trace --------------------------------------------------------- */

/* Pass an event to the receiver of the current trace, from any thread. Without a trace it does
 * nothing. */
void pl_cuda_trace_report(const struct pl_device_event *e);
bool pl_cuda_trace_tracing(void);

/* Open the first library of `name` (ended by NULL) that exists. Returns its handle and *which, or
 * NULL. */
void *pl_cuda_trace_open(const char *const *name, const char **which);

/*
 * Convert times of another clock to CLOCK_MONOTONIC, by pairs of readings of both: along the line
 * through the latest two pairs that are far enough apart to show a drift, else with the offset of
 * the latest pair.
 */
struct pl_cuda_trace_clock {
	pl_ns device[2], host[2]; /* [1] is the latest */
	int n;
};
void pl_cuda_trace_clock_pair(struct pl_cuda_trace_clock *c, pl_ns device, pl_ns host);
pl_ns pl_cuda_trace_clock_to_host(const struct pl_cuda_trace_clock *c, pl_ns device);

struct pl_cuda_trace_source_type { /* a source */
	const char *name;
	int (*start)(const struct pl_cuda_trace_device *d, struct pl_err *err);
	void (*range)(const char *name, bool begin); /* NULL: the source needs no ranges */
	int (*flush)(struct pl_err *err);
	void (*stop)(bool idle); /* reports the rest */
	bool (*complete)(void);
	uint64_t (*lost)(void);
};
extern const struct pl_cuda_trace_source_type pl_cuda_trace_cupti;

/* The file of CUPTI, while it is used; NULL: it is not. */
const char *pl_cuda_trace_cupti_file(void);

/* Mark the work that the calling thread gives to the device until pop() as part of that launch of
 * the communication library. Nothing happens if the source has no such marks. */
void pl_cuda_trace_cupti_push(uint64_t launch);
void pl_cuda_trace_cupti_pop(void);

#ifdef __cplusplus
}
#endif

#endif
