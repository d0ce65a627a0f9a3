/*
 * Events that streams and the host wait for: what events.c and event_sync.c share.
 */
#ifndef PL_DERIVE_EVENTS_H
#define PL_DERIVE_EVENTS_H

#include "derive/internal.h"

#define N_SRC 3 /* streams an event may have been recorded on */

struct record {
	uint32_t call;
	uint32_t stream[N_SRC], n[N_SRC]; /* stream, and how many were launched there before */
	int32_t used;			  /* by how many waits */
};

struct events { /* of a rank */
	struct builder *b;
	struct rank *rank;
	struct streams *l;
	struct record *rec;
	size_t n_rec, cap_rec;
	struct wait *wait; /* by place */
	size_t n_wait, cap_wait;
	uint32_t most_back;
	bool made_up; /* the waits are assumed */
	struct group *group;
	size_t n_group, cap_group;
	uint64_t *hash; /* by name, of all ranks: without its digits; 0 not yet */
};

/* Adds the event that the call records. launched: an event that is assumed after the launch at
 * `call`. */
void pl_derive_add_record(struct events *x, uint32_t call, bool launched);

/* The place of a wait in the program: a hash of the calls around it. */
uint64_t pl_derive_place(struct events *x, uint32_t call);

#endif
