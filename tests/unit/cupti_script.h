/*
 * cupti_script.h - records as CUPTI would make them of a short program, for the stand-in
 * (tests/emu/fake_cupti.c).
 */
#ifndef PL_TESTS_CUPTI_SCRIPT_H
#define PL_TESTS_CUPTI_SCRIPT_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/core.h"
#include "record/cupti.h"

static void (*put)(const void *record); /* of the stand-in: fake_cupti_put() */

enum { GET_DEVICE = 1, LAUNCH, RECORD, WAIT, SYNC, COPY, EVENT_SYNC }; /* of the runtime */
enum { LAUNCH_EX = 2 };						       /* of the driver */

static uint64_t base; /* CLOCK_MONOTONIC */

static void api(uint32_t kind, uint32_t id, uint32_t corr, uint64_t at, uint64_t lasts)
{
	const struct cu_api r = { .kind = kind,
				  .cbid = id,
				  .start = base + at,
				  .end = base + at + lasts,
				  .thread = (uint32_t)syscall(SYS_gettid),
				  .corr = corr };

	put(&r);
}

/* Records lie in buffers at their full size. */
union record {
	struct cu_kernel kernel;
	struct cu_memcpy copy;
	struct cu_event event;
	struct cu_sync sync;
	struct cu_external external;
	uint8_t room[256];
};

static void kernel(const char *name, uint32_t corr, uint32_t stream, uint64_t at, uint64_t lasts)
{
	const union record r = { .kernel = { .kind = CU_KERNEL,
					     .start = base + at,
					     .end = lasts ? base + at + lasts : 0,
					     .stream = stream,
					     .corr = corr,
					     .name = name } };

	put(&r);
}

static void copy(uint32_t corr, uint32_t stream, uint64_t at, uint64_t bytes)
{
	const union record r = { .copy = { .kind = CU_MEMCPY,
					   .copy_kind = 2,
					   .bytes = bytes,
					   .start = base + at,
					   .end = base + at + 1000,
					   .stream = stream,
					   .corr = corr } };

	put(&r);
}

static void record(uint32_t corr, uint32_t stream, uint32_t event, uint64_t instance)
{
	const union record r = { .event = { .kind = CU_EVENT,
					    .corr = corr,
					    .context = 1,
					    .stream = stream,
					    .event = event,
					    .instance = instance } };

	put(&r);
}

static void sync_(uint32_t type, uint32_t corr, uint32_t stream, uint32_t event, uint64_t instance,
		  uint64_t at, uint64_t lasts)
{
	const union record r = { .sync = { .kind = CU_SYNC,
					   .type = type,
					   .start = base + at,
					   .end = base + at + lasts,
					   .corr = corr,
					   .context = 1,
					   .stream = stream,
					   .event = event,
					   .instance = instance } };

	put(&r);
}

/* Two streams: a kernel, an event, a second stream that waits for it, a library's launch. */
static void play(void)
{
	const union record launch = {
		.external = { .kind = CU_EXTERNAL, .sort = CU_CUSTOM0, .number = 77, .corr = 5 }
	};

	base = (uint64_t)pl_now_ns();
	api(CU_RUNTIME, GET_DEVICE, 1, 0, 100);
	api(CU_RUNTIME, LAUNCH, 2, 1000, 3000);
	kernel("_Z4gemmPfi", 2, 7, 8000, 50000);
	api(CU_RUNTIME, RECORD, 3, 5000, 800);
	record(3, 7, 9, 1001);
	api(CU_RUNTIME, WAIT, 4, 6000, 700);
	sync_(CU_SYNC_WAIT, 4, 13, 9, 1001, 6100, 300);
	put(&launch);
	api(CU_DRIVER, LAUNCH_EX, 5, 7000, 3000);
	kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 5, 13, 60000, 40000);
	api(CU_RUNTIME, COPY, 6, 11000, 2000);
	copy(6, 7, 59000, 4096);
	api(CU_RUNTIME, SYNC, 7, 14000, 52000);
	sync_(CU_SYNC_STREAM, 7, 7, CU_NONE, CU_NONE, 14100, 51000);
	api(CU_RUNTIME, EVENT_SYNC, 8, 67000, 900);
	sync_(CU_SYNC_EVENT, 8, CU_NONE, 9, 1001, 67100, 700);
	kernel("untimed", 9, 7, 90000, 0);
}

#endif
