/* rewrite_internal.h - the state of a plan on an edit. */
#ifndef PL_REWRITE_INTERNAL_H
#define PL_REWRITE_INTERNAL_H

#include "graph/rewrite.h"

struct rw_tensor {	/* of the base, in order of readiness */
	uint32_t name;	/* id of the edit */
	uint32_t group; /* index into groups below */
	uint8_t coll;	/* enum pl_coll of what carries it */
	int64_t bytes;
	pl_ns ready;		/* latest over ranks, mean over steps, from the step's begin */
	bool estimated, shared; /* shared: other groups have a tensor of that name */
};

struct rw_edge { /* of a recorded communication, to be given to what replaces it */
	uint32_t node;
	uint8_t type;
	pl_ns w;
};
/* A communication as it was recorded, in one slot. */
struct rw_comm {
	uint32_t arrive, transfer, meet; /* meet PL_NONE: its partners were not recorded */
	uint32_t last;			 /* instance of the tensor that became ready last */
	uint32_t n_tensors;
	uint32_t gate, n_gates; /* into rewriter.edge: what lets it arrive */
	uint32_t use, n_uses;	/* what waits for it */
	uint32_t issue;		/* host operation that issued it, PL_NONE */
	pl_ns issue_dur;
	pl_ns gate_ns, lag; /* lag: from its last tensor to the gate */
};
/* A slot is a rank in a step. */
struct rw_slot {
	uint32_t head, tail;	/* nodes around the channel's communication, PL_NONE: none yet */
	uint32_t comm, n_comms; /* into rewriter.comm, by start */
	uint32_t res;		/* that carries the communication */
};

/* A bucket, built into the edit. Shared by the states that have it. */
struct rw_built {
	uint64_t key;
	uint32_t refs;
	uint32_t *arrive, *transfer; /* [slot], PL_NONE: the rank has no part */
	uint32_t *issue;
	uint32_t *lost; /* [slot]: what computation behind it loses to communication, PL_NONE */
	pl_ns alone;	/* the transfer with nothing beside it */
	pl_ns issue_ns; /* of one that was not as recorded */
	double slows, slowed; /* computation beside it; by computation */
	bool *kept;	      /* [slot]: as recorded, its duration too */
};

struct rw_state {
	uint32_t *set_of;	 /* [tensor] */
	uint32_t *parts;	 /* [set] */
	uint8_t *algo;		 /* [tensor] */
	uint32_t *servers;	 /* [tensor] */
	uint32_t *place;	 /* [tensor]: in the order of issue */
	struct rw_built **built; /* [set], in order of issue; NULL before it is built */
	uint32_t n_sets, n_built;
	uint32_t ranks; /* 0: as recorded */
	int64_t accumulate;
	struct pl_link_change change[8];
	uint32_t n_changes;
	size_t undo; /* mark of the edit */
	bool over;   /* the recorded communication is replaced */
};

struct pl_rewriter {
	struct pl_edit *e;
	const struct pl_coster *c;
	struct rw_tensor *tensor;
	uint32_t n_tensors;
	int32_t *rank;		   /* ranks that have tensors, ascending */
	uint32_t n_ranks, n_slots; /* slot = step * n_ranks + index of rank */
	uint32_t *inst;		   /* [slot][tensor]: edit's tensor, PL_NONE */
	uint32_t *comm_of;	   /* [slot][tensor]: index into comm */
	pl_ns *ready; /* [slot][tensor]: when it was ready and issued, INT64_MIN: not there */
	struct rw_comm *comm;
	size_t n_comms, cap_comms;
	struct rw_edge *edge;
	size_t n_edges, cap_edges;
	struct rw_slot *slot;
	pl_ns *begin;		/* [step] */
	struct rw_state *state; /* a stack; the last is the present */
	size_t n_states, cap_states;
	uint32_t *set_first, *set_member; /* of the state that is built: see list_members() */
	uint8_t *mine; /* [node as recorded]: of the recorded communication of gradients */
	uint32_t n_mine;
	bool issues;		  /* host operations that issue communication are known */
	struct rw_beside *beside; /* NULL: nothing slows anything down */
	uint32_t *group;	  /* [group]: graph.group or PL_NONE */
	uint32_t n_groups;
};

static inline struct rw_state *rw_now(const struct pl_rewriter *r)
{
	return &r->state[r->n_states - 1];
}
/* Find tensors, communication, slots in the recorded edit. */
int rw_find(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Make the edit's communication that of the state. */
int rw_sync(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Numbers sets anew, in order of issue. */
int rw_number_sets(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
void rw_unref(struct rw_built *b);

/* ---- what runs beside what (rewrite_beside.c) ------------------------------------------------ */

/* Of the recorded edit: what its computation lost. Leaves r->beside NULL if the coster knows of
 * none. */
int rw_beside_init(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
void rw_beside_fini(struct pl_rewriter *r);
/* Computation gets the time back that it lost beside the recorded communication of gradients. */
int rw_beside_release(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* What the built buckets cost the computation beside them, and it them. */
int rw_beside_settle(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* The communication of a set, as the coster is asked for it; `meeting` ranks have a part. */
struct pl_comm rw_comm_of_set(const struct pl_rewriter *r, uint32_t set, uint32_t meeting);
/* The present state again, on top of the stack: the one below stays as it is. */
int rw_push_state(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Base tensor by its name in plans, PL_NONE. */
uint32_t rw_tensor_find(const struct pl_rewriter *r, const char *name);
static inline pl_ns rw_ready(const struct pl_rewriter *r, uint32_t slot, uint32_t tensor)
{
	return r->ready[(size_t)slot * r->n_tensors + tensor];
}
/* The rewrites that change operations, not communication. */
int rw_ops(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;

#endif
