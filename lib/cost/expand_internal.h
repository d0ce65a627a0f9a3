/* expand_internal.h - what the parts of the expansion of a collective share. */
#ifndef PL_COST_EXPAND_INTERNAL_H
#define PL_COST_EXPAND_INTERNAL_H

#include "cost/expand.h"
#include "cost/internal.h"

struct member {
	uint32_t arrive, transfer;
	int32_t rank;
	long double sent; /* ns that its link has been busy so far, of this channel */
};
struct expansion {
	struct pl_edit *e;
	struct pl_err *err;
	int rc; /* the first failure; nothing is added after it */
	const struct pl_expand *x;
	struct pl_arena arena; /* of the arrays */
	struct member *m;
	uint32_t *prev, *now, *down; /* [member][chunk]: messages of the step before, of this one */
	uint32_t *from, *was;	     /* [member]: its sender in this step, in the step before */
	struct hop *hop, *was_hop;   /* [member]: the link that it sends over */
	uint32_t n, channels, chunks, meet;
	uint32_t channel; /* the current one */
	bool begun;	  /* there was a step before */
	bool stream;	  /* a member forwards a chunk while it receives it */
	double bytes;
	struct placing place;
	bool even; /* all hosts have place.per_host members */
};

/* The times of one of `users` members of a host that send at once. */
struct hop pl_cost_expand_hop(const struct expansion *s, enum pl_scope scope, uint32_t users);
/* The same for a message between two members; all: all members of a host send at once. */
struct hop pl_cost_expand_between(const struct expansion *s, uint32_t from, uint32_t to, bool all);
static inline pl_ns expand_latency(struct hop h)
{
	return (pl_ns)(h.latency_ns + 0.5);
}
/* Duration of a message that keeps the member's link busy for ns more. Only sums are rounded. */
pl_ns pl_cost_expand_busy(struct member *m, long double ns);
/* Adds a message of a member (or a server: from >= n); bytes: of all channels together. `what`
 * NULL: "send R>Q". Returns the node. */
uint32_t pl_cost_expand_message(struct expansion *s, uint32_t from, uint32_t to, const char *what,
				double bytes, pl_ns dur);
/* Adds time that uses no link. */
uint32_t pl_cost_expand_delay(struct expansion *s, const char *name, pl_ns dur);
void pl_cost_expand_edge(struct expansion *s, uint32_t src, uint32_t dst, unsigned type, pl_ns w);

/* expand_rounds.c: members take turns */
void pl_cost_expand_ring(struct expansion *s, bool both);
void pl_cost_expand_halving(struct expansion *s, bool scatter, bool gather);
void pl_cost_expand_hierarchical(struct expansion *s, bool scatter, bool gather);
void pl_cost_expand_alltoall(struct expansion *s);

/* expand_tree.c: up to member 0 and down again. chain: each has one child */
void pl_cost_expand_tree(struct expansion *s, bool chain, bool up, bool down);

/* expand_ps.c: to servers and back */
void pl_cost_expand_ps(struct expansion *s, bool push, bool pull);

#endif
