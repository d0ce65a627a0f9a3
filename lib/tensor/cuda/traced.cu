/* traced.cu - the functions of a device's trace that need the context (trace.h). */
#include "tensor/cuda/context.h"
#include "tensor/cuda/trace.h"

static int start(void *ctx, pl_device_event_fn *event, void *arg, void **trace, struct pl_err *err)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct pl_cuda_trace_device d = { c->device, c->k.stream, false };

	return pl_cuda_trace_run(&d, event, arg, trace, err);
}

extern const struct pl_device_trace pl_cuda_trace;
const struct pl_device_trace pl_cuda_trace = { start, pl_cuda_trace_source, pl_cuda_trace_range,
					       pl_cuda_trace_flush, pl_cuda_trace_stop };
