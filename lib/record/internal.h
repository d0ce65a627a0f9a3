/* internal.h - nccl_next.c for nccl.c: another profiler plugin that gets the same calls. */
#ifndef PL_RECORD_INTERNAL_H
#define PL_RECORD_INTERNAL_H

#include "record/nccl.h"

bool pl_nccl_next_known(void); /* pl_nccl_chain() named one */
/* Opens a communicator of NCCL's version 4, 5 or 6 there. Returns the types of events that it
 * wants. */
int pl_nccl_next_init(void **context, int version, const char *name, uint64_t hash, int nodes,
		      int ranks, int rank, void *log);
/* An event; parent and group: its own handles of these. Returns its handle. The description is
 * NCCL's, and only as long as its version and type say, so it is changed in its place and changed
 * back. */
void *pl_nccl_next_start_v4(void *context, struct np_event_v4 *e, void *parent);
void *pl_nccl_next_start_v5(void *context, struct np_event_v5 *e, void *parent, void *group);
/* handle NULL: it has no such event */
void pl_nccl_next_stop(void *handle);
void pl_nccl_next_state(void *handle, int state, union np_args *args);
void pl_nccl_next_finalize(void *context);
/* The place in the description where the event has its group; NULL: it has none. */
void **pl_nccl_group_of(struct np_event_v5 *e);

#endif
