/* internal.h - what the two files of the tracer share. */
#ifndef PL_TRAIN_INTERNAL_H
#define PL_TRAIN_INTERNAL_H

#include "train/tracer.h"

/* Are all calls and kernels traced, those of the communication library among them? */
bool pl_train_tracer_has_calls(const struct pl_tracer *t);
/* The calling thread has launched a collective, or the copy of its result. Until then it waited. */
void pl_train_tracer_launched(struct pl_tracer *t, const struct pl_comm_event *e);

#endif
