/*
 * The trace of the device that run uses: from CUPTI, else from pairs of events around layers; with
 * the collectives that NCCL reports, and their messages on a network.
 */
#include "tensor/cuda/trace.h"
#include "record/cuda.h"
#include "record/nccl.h"

static void report_coll(const struct pl_nccl_event *n)
{
	char text[64];
	struct pl_device_event e = pl_nccl_device_event(n, text, sizeof(text));

	pl_cuda_trace_report(&e);
}

static void report_step(const struct pl_nccl_event *n)
{
	struct pl_device_event e = pl_device_event(PL_DEV_MESSAGE, NULL, n->begin, n->end, 0);

	if (n->seq < 0)
		return;
	e.group = n->comm->group;
	e.seq = n->seq;
	e.peer = n->peer;
	e.channel = n->channel;
	e.sends = n->sends;
	e.bytes = n->bytes;
	pl_cuda_trace_report(&e);
}

static void on_event(const struct pl_nccl_event *e)
{
	if ((e->type == NP_COLL || e->type == NP_P2P) && e->issued)
		report_coll(e);
	if (e->type == NP_PROXY_STEP)
		report_step(e);
}

static const struct pl_nccl_receiver receiver = {
	.on = pl_cuda_trace_tracing,
	.mask = NP_GROUP | NP_COLL | NP_P2P | NP_PROXY_OP | NP_PROXY_STEP | NP_GROUP_API |
		NP_COLL_API | NP_P2P_API | NP_KERNEL_LAUNCH,
	.event = on_event,
	.push = pl_cuda_trace_cupti_push,
	.pop = pl_cuda_trace_cupti_pop,
};

int pl_cuda_trace_run(const struct pl_cuda_trace_device *d, pl_device_event_fn *event, void *arg,
		      void **trace, struct pl_err *err)
{
	PL_CHECK(pl_cuda_trace_start(d, &pl_cuda_trace_events, event, arg, trace, err));
	pl_nccl_receive(&receiver);
	pl_nccl_set_profiler();
	return 0;
}
