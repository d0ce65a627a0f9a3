/* edit_internal.h - what the parts of an edit share. */
#ifndef PL_EDIT_INTERNAL_H
#define PL_EDIT_INTERNAL_H

#include "rewrite/edit.h"

struct pl_estep {
	int64_t number;
	uint32_t first;	 /* its first node as recorded: node of the shape i is first + i */
	uint32_t sink;	 /* node that starts when all that counts for the step has ended */
	uint32_t *begin; /* nodes that may begin it; those dropped are passed over */
	size_t n_begin, cap_begin;
	/* By resource: the entry of a later step that follows what the resource does in this one,
	 * PL_NONE; NULL in the last step. */
	uint32_t *next;
	bool reported;
};

enum eundo_op {
	EU_START,
	EU_DUR,
	EU_BYTES,
	EU_FIXED,
	EU_WEIGHT,
	EU_ARRIVE,
	EU_REMADE,
	EU_ADD_NODE,
	EU_DROP_NODE,
	EU_ADD_EDGE,
	EU_DROP_EDGE,
	EU_SEED /* node that a settling began with: to be settled again */
};
struct pl_eundo {
	int64_t old;
	uint32_t id;
	uint8_t op;
};

struct pl_esched { /* nodes to evaluate: a binary heap by label, then id */
	uint32_t *heap;
	size_t n, cap;
};

/* Memory for the log and the heap may be short: 0 or PL_ENOMEM. */
int edit_log(struct pl_edit *e, enum eundo_op op, uint32_t id, int64_t old,
	     struct pl_err *err) PL_MUST;
int edit_touch(struct pl_edit *e, uint32_t node, struct pl_err *err) PL_MUST;
void edit_link(struct pl_edit *e, uint32_t edge); /* a new edge, to the front of both lists */

/* Does the edge count from the start of its source? */
static inline bool edit_from_start(uint8_t type)
{
	return PL_E_TYPE(type) == PL_E_START || PL_E_TYPE(type) == PL_E_EARLY;
}

/* Does what is after this edge's target cover the end of its source, for the length of the step? */
static inline bool edit_covers(const struct pl_edit *e, const struct pl_eedge *x)
{
	const struct pl_enode *s = &e->node[x->src], *d = &e->node[x->dst];

	return !edit_from_start(x->type) && d->step == s->step &&
	       (d->flags & PL_NF_IN_STEP || e->step[s->step].sink == x->dst);
}

#endif
