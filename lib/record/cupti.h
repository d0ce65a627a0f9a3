/*
 * cupti.h - the part of CUPTI's activity interface that cupti.c uses, declared here so that the
 * build needs no part of the toolkit.
 *
 * Each version of the library may add members at the end of records, but keeps the first ones: the
 * members below are the same from CUDA 11 to 13. tests/unit/cupti_layout_test.c compares them with
 * NVIDIA's header if that is installed. CUPTI aligns records to 8 bytes.
 */
#ifndef PL_CUDA_CUPTI_H
#define PL_CUDA_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum { /* types of records */
       CU_MEMCPY = 1,
       CU_MEMSET = 2,
       CU_DRIVER = 4,
       CU_RUNTIME = 5,
       CU_MARKER = 12,
       CU_KERNEL = 10, /* all kernels, also concurrent ones */
       CU_MEMCPY_PEER = 22,
       CU_EVENT = 36,
       CU_SYNC = 38,
       CU_EXTERNAL = 39,
       CU_MEMORY = 49,
};
enum { CU_SYNC_EVENT = 1, CU_SYNC_WAIT = 2, CU_SYNC_STREAM = 3, CU_SYNC_CONTEXT = 4 };
enum { CU_MARKER_START = 2, CU_MARKER_END = 4 };
enum { CU_ALLOCATION = 1, CU_RELEASE = 2 };
enum { CU_OBJECT_THREAD = 2 };
enum { CU_DOMAIN_DRIVER = 1, CU_DOMAIN_RUNTIME = 2 };
#define CU_FLUSH_FORCED	 1u
#define CU_THREAD_SYSTEM 1 /* kind of thread numbers: as gettid() */
#define CU_CUSTOM0	 3 /* kind of external correlation */
#define CU_NONE		 UINT32_MAX

enum { /* results */
       CU_OK = 0,
       CU_NO_MORE = 12,
       CU_NO_RIGHTS = 35,
       CU_OTHER_PROFILER = 39,
};
/* From this version on, records of events and waits for them have numbers (CUDA 12.8). */
#define CU_VERSION_INSTANCE 26
/* From CUDA 12.6 to 13.0, times of kernels may be 0 with a clock of the caller (CUPTI's release
 * notes of 13.1). */
#define CU_CLOCK_LOSES(version) ((version) >= 24 && (version) < 130100)

struct cu_kernel {
	uint32_t kind, unused[3];
	uint64_t start, end, completed;
	uint32_t device, context, stream, shape[6], shared[2], local[2], corr;
	int64_t grid;
	const char *name;
} __attribute__((aligned(8)));

struct cu_memcpy {
	uint32_t kind;
	uint8_t copy_kind, from, to, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
} __attribute__((aligned(8)));

struct cu_memcpy_peer {
	uint32_t kind;
	uint8_t copy_kind, from, to, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, from_device, from_context, to_device, to_context, corr;
} __attribute__((aligned(8)));

struct cu_memset {
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
} __attribute__((aligned(8)));

struct cu_api {
	uint32_t kind, cbid;
	uint64_t start, end;
	uint32_t process, thread, corr, result;
} __attribute__((aligned(8)));

struct cu_event {
	uint32_t kind, corr, context, stream, event, pad;
	/* from CU_VERSION_INSTANCE on */
	uint32_t device, pad2;
	void *reserved;
	uint64_t at, instance;
} __attribute__((aligned(8)));

struct cu_sync {
	uint32_t kind, type;
	uint64_t start, end;
	uint32_t corr, context, stream, event;
	/* from CU_VERSION_INSTANCE on */
	uint64_t instance;
} __attribute__((aligned(8)));

struct cu_external {
	uint32_t kind, sort;
	uint64_t number;
	uint32_t corr, pad;
} __attribute__((aligned(8)));

struct cu_marker {
	uint32_t kind, flags;
	uint64_t at;
	uint32_t id, object, process, thread, unused[2];
	const char *name, *domain;
} __attribute__((aligned(8)));

struct cu_memory {
	uint32_t kind, operation, memory_kind, corr;
	uint64_t address, bytes, at, pc;
	uint32_t process, device;
} __attribute__((aligned(8)));

typedef void cu_callback(void *arg, int domain, uint32_t id, const void *data);
typedef void cu_buffer_wanted(uint8_t **buffer, size_t *size, size_t *most);
typedef void cu_buffer_full(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			    size_t valid);

#endif
