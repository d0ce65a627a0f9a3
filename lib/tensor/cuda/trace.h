/*
 * trace.h - the trace of the device that run uses: record/cuda.h, with a source where CUPTI is not
 * installed, and with the collectives of NCCL.
 */
#ifndef PL_CUDA_TRACE_H
#define PL_CUDA_TRACE_H

#include "record/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pairs of events around layers. */
extern const struct pl_cuda_trace_source_type pl_cuda_trace_events;

/* As pl_cuda_trace_start(). NCCL is told to load its profiler from this file. */
int pl_cuda_trace_run(const struct pl_cuda_trace_device *d, pl_device_event_fn *event, void *arg,
		      void **trace, struct pl_err *err);

#ifdef __cplusplus
}
#endif

#endif
