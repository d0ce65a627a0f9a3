/* Our declarations of CUPTI's records against NVIDIA's own, where its header is installed. */
#include <stddef.h>

#include "record/cupti.h"
#include "tap.h"

#if defined(__has_include)
#if __has_include(<cupti.h>)
#define HAVE_HEADER 1
#endif
#endif

#ifdef HAVE_HEADER
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wundef"
#include <cupti.h>

#define SAME(ours, field, theirs, name)                                                            \
	_Static_assert(offsetof(struct ours, field) == offsetof(theirs, name) &&                   \
			       sizeof(((struct ours *)0)->field) == sizeof(((theirs *)0)->name),   \
		       #theirs "." #name)
#define EQUAL(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)

#define KERNEL(t)                                                                                  \
	SAME(cu_kernel, start, t, start);                                                          \
	SAME(cu_kernel, end, t, end);                                                              \
	SAME(cu_kernel, device, t, deviceId);                                                      \
	SAME(cu_kernel, context, t, contextId);                                                    \
	SAME(cu_kernel, stream, t, streamId);                                                      \
	SAME(cu_kernel, corr, t, correlationId);                                                   \
	SAME(cu_kernel, name, t, name)
#define MEMCPY(ours, t)                                                                            \
	SAME(ours, copy_kind, t, copyKind);                                                        \
	SAME(ours, bytes, t, bytes);                                                               \
	SAME(ours, start, t, start);                                                               \
	SAME(ours, end, t, end);                                                                   \
	SAME(ours, device, t, deviceId);                                                           \
	SAME(ours, stream, t, streamId);                                                           \
	SAME(ours, corr, t, correlationId)
#define MEMSET(t)                                                                                  \
	SAME(cu_memset, bytes, t, bytes);                                                          \
	SAME(cu_memset, start, t, start);                                                          \
	SAME(cu_memset, end, t, end);                                                              \
	SAME(cu_memset, device, t, deviceId);                                                      \
	SAME(cu_memset, stream, t, streamId);                                                      \
	SAME(cu_memset, corr, t, correlationId)
#define EVENT(t)                                                                                   \
	SAME(cu_event, corr, t, correlationId);                                                    \
	SAME(cu_event, context, t, contextId);                                                     \
	SAME(cu_event, stream, t, streamId);                                                       \
	SAME(cu_event, event, t, eventId)
#define SYNC(t)                                                                                    \
	SAME(cu_sync, type, t, type);                                                              \
	SAME(cu_sync, start, t, start);                                                            \
	SAME(cu_sync, end, t, end);                                                                \
	SAME(cu_sync, corr, t, correlationId);                                                     \
	SAME(cu_sync, context, t, contextId);                                                      \
	SAME(cu_sync, stream, t, streamId);                                                        \
	SAME(cu_sync, event, t, cudaEventId)

/* the current records, and those of CUDA 11 and 12 that the header keeps */
KERNEL(CUpti_ActivityKernel5);
KERNEL(CUpti_ActivityKernel8);
KERNEL(CUpti_ActivityKernel9);
MEMCPY(cu_memcpy, CUpti_ActivityMemcpy4);
MEMCPY(cu_memcpy, CUpti_ActivityMemcpy5);
MEMCPY(cu_memcpy_peer, CUpti_ActivityMemcpyPtoP4);
MEMSET(CUpti_ActivityMemset3);
MEMSET(CUpti_ActivityMemset4);
#if CUPTI_API_VERSION >= 26
MEMCPY(cu_memcpy, CUpti_ActivityMemcpy6);
EVENT(CUpti_ActivityCudaEvent);
EVENT(CUpti_ActivityCudaEvent2);
SAME(cu_event, instance, CUpti_ActivityCudaEvent2, cudaEventSyncId);
SYNC(CUpti_ActivitySynchronization);
SYNC(CUpti_ActivitySynchronization2);
SAME(cu_sync, instance, CUpti_ActivitySynchronization2, cudaEventSyncId);
#endif
#if CUPTI_API_VERSION >= 130000
KERNEL(CUpti_ActivityKernel10);
#endif
SAME(cu_marker, flags, CUpti_ActivityMarker2, flags);
SAME(cu_marker, at, CUpti_ActivityMarker2, timestamp);
SAME(cu_marker, id, CUpti_ActivityMarker2, id);
SAME(cu_marker, object, CUpti_ActivityMarker2, objectKind);
SAME(cu_marker, thread, CUpti_ActivityMarker2, objectId.pt.threadId);
SAME(cu_marker, name, CUpti_ActivityMarker2, name);
SAME(cu_memory, operation, CUpti_ActivityMemory4, memoryOperationType);
SAME(cu_memory, bytes, CUpti_ActivityMemory4, bytes);
SAME(cu_memory, at, CUpti_ActivityMemory4, timestamp);
SAME(cu_memory, device, CUpti_ActivityMemory4, deviceId);
SAME(cu_api, cbid, CUpti_ActivityAPI, cbid);
SAME(cu_api, start, CUpti_ActivityAPI, start);
SAME(cu_api, thread, CUpti_ActivityAPI, threadId);
SAME(cu_api, corr, CUpti_ActivityAPI, correlationId);
SAME(cu_external, sort, CUpti_ActivityExternalCorrelation, externalKind);
SAME(cu_external, number, CUpti_ActivityExternalCorrelation, externalId);
SAME(cu_external, corr, CUpti_ActivityExternalCorrelation, correlationId);

EQUAL(CU_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
EQUAL(CU_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
EQUAL(CU_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER);
EQUAL(CU_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME);
EQUAL(CU_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
EQUAL(CU_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2);
EQUAL(CU_MARKER, CUPTI_ACTIVITY_KIND_MARKER);
EQUAL(CU_MEMORY, CUPTI_ACTIVITY_KIND_MEMORY2);
EQUAL(CU_MARKER_START, CUPTI_ACTIVITY_FLAG_MARKER_START);
EQUAL(CU_MARKER_END, CUPTI_ACTIVITY_FLAG_MARKER_END);
EQUAL(CU_ALLOCATION, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
EQUAL(CU_RELEASE, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
EQUAL(CU_OBJECT_THREAD, CUPTI_ACTIVITY_OBJECT_THREAD);
EQUAL(CU_EVENT, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
EQUAL(CU_SYNC, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
EQUAL(CU_EXTERNAL, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
EQUAL(CU_SYNC_EVENT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
EQUAL(CU_SYNC_WAIT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
EQUAL(CU_SYNC_STREAM, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
EQUAL(CU_SYNC_CONTEXT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
EQUAL(CU_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
EQUAL(CU_DOMAIN_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API);
EQUAL(CU_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
EQUAL(CU_THREAD_SYSTEM, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
EQUAL(CU_CUSTOM0, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
EQUAL(CU_OK, CUPTI_SUCCESS);
EQUAL(CU_NO_MORE, CUPTI_ERROR_MAX_LIMIT_REACHED);
EQUAL(CU_NO_RIGHTS, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
EQUAL(CU_OTHER_PROFILER, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
#endif

int main(void)
{
#ifdef HAVE_HEADER
	ok(sizeof(struct cu_kernel) <= sizeof(CUpti_ActivityKernel5),
	   "records lie as in cupti.h (version %d): it was compiled", CUPTI_API_VERSION);
#else
	skip("records lie as in cupti.h", "no cupti.h");
#endif
	return done_testing();
}
