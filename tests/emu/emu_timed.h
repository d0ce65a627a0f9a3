/*
 * emu_timed.h - an emulated device that takes time, and is told of by the libcupti that stands in.
 *
 * With EMU_DEVICE=pace=US each kernel and product takes about US microseconds by the clock, and
 * whoever waits for a stream waits for that: an operation begins 4 us after its launch returned, at
 * the earliest 1 us after the one before it and after the event that its stream waits for. Calls,
 * operations, records and waits are put as CUPTI would (fake_cupti.c, where PACELINE_CUPTI names
 * that). What is captured is neither timed nor told.
 */
#ifndef PL_EMU_TIMED_H
#define PL_EMU_TIMED_H

#include <stddef.h>
#include <stdint.h>

struct emu_timeline { /* of a stream */
	uint32_t number;
	int64_t free_at;
};
struct emu_moment { /* of an event: its last record */
	uint32_t number;
	int64_t ready;
};
struct emu_timed { /* an operation; corr 0: not timed */
	uint32_t kind, corr, copy_kind, stream;
	int64_t call, returned, begin, end;
	size_t bytes;
};

bool emu_paced(void);
/* A launch on that stream; a copy if `way` is not 0, a memory set where it is 99. */
struct emu_timed emu_timed_launch(struct emu_timeline *s, unsigned copy_kind, size_t bytes);
extern const char *emu_last_kernel; /* that ran */
/* It was done: what is known of it is told. Its name: of the kernel, NULL of a product. */
void emu_timed_done(const struct emu_timed *t, const char *name);
void emu_timed_record(struct emu_timeline *s, struct emu_moment *e, uint64_t instance);
void emu_timed_wait(struct emu_timeline *s, const struct emu_moment *e, uint64_t instance);
/* The host waits: from `begin`, when the call was made, until the stream (e NULL) or the event is
 * there. */
int64_t emu_timed_now(void);
void emu_timed_sync(int64_t begin, const struct emu_timeline *s, const struct emu_moment *e,
		    uint64_t instance);

#endif
