/*
 * The few functions of libcuda.so.1 that events around layers need (lib/tensor/cuda/events.c), of
 * the emulated device: where the plugin of this device is found by that name, too (a link to it in
 * LD_LIBRARY_PATH), it stands in for the driver.
 */
#include <algorithm>

#include "emu_runtime.h"
#include "emu_timed.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct driver_event {
	cudaEvent_t e;
	int64_t at; /* CLOCK_MONOTONIC, when the stream came or comes to it; 0: not recorded */
};

EXPORT int cuEventCreate(struct driver_event **e, unsigned flags);
EXPORT int cuEventCreate(struct driver_event **e, unsigned flags)
{
	*e = new driver_event();
	return cudaEventCreateWithFlags(&(*e)->e, flags);
}

EXPORT int cuEventDestroy_v2(struct driver_event *e);
EXPORT int cuEventDestroy_v2(struct driver_event *e)
{
	int result = cudaEventDestroy(e->e);

	delete e;
	return result;
}

EXPORT int cuEventRecord(struct driver_event *e, cudaStream_t s);
EXPORT int cuEventRecord(struct driver_event *e, cudaStream_t s)
{
	int result = cudaEventRecord(e->e, s);

	e->at = std::max(emu_timed_now(), emu_ready(e->e));
	return result;
}

EXPORT int cuEventSynchronize(struct driver_event *e);
EXPORT int cuEventSynchronize(struct driver_event *e)
{
	return cudaEventSynchronize(e->e);
}

EXPORT int cuEventElapsedTime(float *ms, struct driver_event *from, struct driver_event *to);
EXPORT int cuEventElapsedTime(float *ms, struct driver_event *from, struct driver_event *to)
{
	if (!from->at || !to->at)
		return cudaErrorInvalidValue;
	*ms = (float)((double)(to->at - from->at) / 1e6);
	return 0;
}
