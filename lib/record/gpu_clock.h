/*
 * gpu_clock.h - times of a GPU's own clock on that of the host, from reports that come late.
 */
#ifndef PL_RECORD_GPU_CLOCK_H
#define PL_RECORD_GPU_CLOCK_H

#include <pthread.h>

#include "core/core.h"

struct pl_gpu_clock {
	pthread_mutex_t lock;
	int64_t least[2]; /* offsets: of this window, of the last one */
	pl_ns since;
	int n; /* windows with readings, at most 2 */
};
void pl_gpu_clock_init(struct pl_gpu_clock *k);
/* The host learned at `host` of an event at `gpu`. Any thread, as for the next one. */
void pl_gpu_clock_reading(struct pl_gpu_clock *k, uint64_t gpu, pl_ns host);
/* After the first reading. */
pl_ns pl_gpu_clock_host(struct pl_gpu_clock *k, uint64_t gpu);

#endif
