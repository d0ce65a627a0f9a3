/*
 * device.h - the events of a device (device_trace.h) on their way into a recorder: what belongs
 * together is joined, in whatever order it was told.
 */
#ifndef PL_RECORD_DEVICE_H
#define PL_RECORD_DEVICE_H

#include "record/device_trace.h"
#include "record/rec.h"

struct pl_device_join;
/* `main`: the track of the thread `main_thread`, and of calls without a thread. PL_NONE: each
 * thread gets a track of its own. */
int pl_device_join_new(struct pl_recorder *rec, pl_id main, uint32_t main_thread,
		       struct pl_device_join **x, struct pl_err *err) PL_MUST;
/* The pl_device_event_fn of a source, with the struct as its argument. From any thread. */
void pl_device_join_event(void *x, const struct pl_device_event *e);
/* Writes what can be joined. last: also what lacks its other half. */
void pl_device_join_now(struct pl_device_join *x, bool last);
/* The number of events that have come since the last join and wait to be joined; *since_ns (may be
 * NULL): the time since then. */
size_t pl_device_join_pending(struct pl_device_join *x, pl_ns *since_ns);
pl_id pl_device_join_thread(struct pl_device_join *x, uint32_t thread); /* its track */
uint64_t pl_device_join_lost(const struct pl_device_join *x);
void pl_device_join_free(struct pl_device_join *x); /* NULL is fine */

#endif
