/*
 * together.h - what libpaceline-cuda.so shows to libpaceline-nccl.so in the same process.
 */
#ifndef PL_RECORD_TOGETHER_H
#define PL_RECORD_TOGETHER_H

#include "record/device_trace.h"

bool paceline_cuda_on(void); /* does it record? */
void paceline_cuda_report(const struct pl_device_event *e);
void paceline_cuda_push(uint64_t launch); /* as pl_cuda_trace_cupti_push() */
void paceline_cuda_pop(void);

#endif
