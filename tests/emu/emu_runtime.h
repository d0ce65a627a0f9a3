/*
 * emu_runtime.h - the part of the CUDA runtime that the backend uses, on the host.
 *
 * Streams are lazy: what is queued runs when somebody waits for it, and then no more than it needs
 * of other streams. So an event that is missing between two streams shows, as does a pinned buffer
 * that is used again too early. Memory is NaN until it is written, and watched at its ends.
 *
 * With EMU_LIST=FILE nothing is done: kernels, products and what is set or copied are listed there,
 * a line each, and memory is places alone. So a step of any size can be had, to be counted.
 *
 * What CUDA refuses is refused: while a stream is captured, what its mode forbids (that ends the
 * capture, too); launches by a thread whose device is not the stream's; memory of another device.
 * What it grants to one's harm is counted: the context of a device that nobody asked for.
 */
#ifndef PL_EMU_RUNTIME_H
#define PL_EMU_RUNTIME_H

#include "cuda_emu.h"
#include "emu_device.h"

struct cudaDeviceProp {
	char name[256];
	int major, minor, multiProcessorCount;
	size_t sharedMemPerBlockOptin;
};

enum { cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1, cudaHostRegisterDefault = 0 };
enum cudaMemcpyKind {
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
	cudaStreamCaptureModeGlobal,
	cudaStreamCaptureModeThreadLocal,
	cudaStreamCaptureModeRelaxed
};

typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t, *cudaGraphExec_t;

/* When a device that takes time (emu_timed.h) has done what was before its last record. */
int64_t emu_ready(cudaEvent_t e);

cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemGetInfo(size_t *room, size_t *total);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);

#endif
