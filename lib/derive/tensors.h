/* tensors.h - the data of the search for gradients in tensors.c, tensor_passes.c and
 * tensor_waits.c. */
#ifndef PL_TENSORS_H
#define PL_TENSORS_H

#include "derive/internal.h"

struct grad {
	pl_ns start, end; /* end: as recorded */
	int32_t step;	  /* from pl_derive_put_tensors() on */
	uint32_t op;	  /* node of the operator */
	uint32_t node;	  /* at its end the gradient is ready */
	int64_t bytes;	  /* -1 unknown */
	pl_id type;	  /* of the graph, PL_NONE */
	char dims[48];	  /* "100x768", empty unknown */
	pl_id name;	  /* "grad fc1.weight" in the graph, PL_NONE: the parameter is unknown */
	uint32_t comm;	  /* that carries it, into found.comm; PL_NONE */
	uint32_t part;	  /* of its step, from 0: parts have an update of parameters between them */
	uint32_t pass;	  /* of its part, from 0 */
	bool begins;	  /* the rank computed something else than a backward pass before it */
	bool estimated;
	bool elsewhere; /* an allocation of its own stands for its memory */
};

struct comm {
	pl_ns issue, await; /* await: first time that its result was waited for, INT64_MAX never */
	pl_ns free_until;   /* nothing waits for it before; INT64_MIN unknown */
	int64_t bytes;
	int32_t step; /* from pl_derive_put_tensors() on */
	uint32_t arrive, group;
	bool named; /* its name says that it carries gradients */
};

struct update { /* operations of an optimizer that follow one another on a thread */
	pl_ns start, end;
};

struct found { /* of a rank */
	struct grad *grad;
	size_t n_grads, cap_grads;
	struct update *update;
	size_t n_updates, cap_updates;
	struct comm *comm;
	size_t n_comms, cap_comms;
};

/* Is it a part of a communication? */
static inline bool pl_grads_is_comm(const struct node *n)
{
	return n->role == PL_RO_ARRIVE || n->role == PL_RO_TRANSFER || n->type == PL_N_RENDEZVOUS;
}

/* Are both gradients, of one step, of the same backward pass? */
static inline bool pl_grads_pass_together(const struct grad *a, const struct grad *b)
{
	return a->part == b->part && a->pass == b->pass;
}

/* Set grad.part and grad.pass of the rank's gradients, which are sorted by start. Sorts updates. */
void pl_derive_find_passes(const struct builder *b, const struct rank *rank, struct found *x);
/* Finds the allocations of the gradients g[0] .. g[n - 1], which are of one step and in order. */
void pl_derive_memory_grads(struct builder *b, size_t rank, struct grad *g, size_t n);

#endif
