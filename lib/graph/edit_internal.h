/* edit_internal.h - declarations that the files of an edit share. */
#ifndef PL_EDIT_INTERNAL_H
#define PL_EDIT_INTERNAL_H

#include "graph/edit.h"

enum eundo_op {
	/* a value of a row: undo writes `old` back */
	EU_START,
	EU_DUR,
	EU_FIXED,
	EU_STRETCH,
	EU_NODE_DEAD,
	EU_WEIGHT,
	EU_LAG,
	EU_ARRIVE,
	EU_REMADE,
	EU_TENSOR_DEAD,
	EU_TENSOR_BYTES,
	EU_NODE_COMM,
	EU_NODE_BYTES,
	EU_NODE_WORK,
	/* or the number of rows of a table */
	EU_NODES,
	EU_TENSORS,
	EU_RESOURCES,
	EU_GROUPS,
	EU_GROUP_RANKS,
	EU_COMMS,
	EU_WORK,
	EU_GONE,
	EU_VALUES, /* the number of values */
	EU_ADD_EDGE,
	EU_DROP_EDGE,
	EU_BEGIN, /* a node that became one of its step's `begin`; id: the step */
	EU_TOUCH, /* a node that a change queued: undo takes it out of the queue */
	EU_SEED	  /* a node with which a settling began: undo queues it again */
};
struct pl_eundo {
	int64_t old;
	uint32_t id;
	uint8_t op;
};

/* A node to evaluate, with the label of the node: so comparisons need no access to nodes. */
struct pl_etodo {
	uint64_t label;
	uint32_t node;
};
/* The nodes to evaluate: between two settlings a list in any order, which may have entries of nodes
 * that are not queued; while pl_edit_settle() works, a binary heap by label, then node. */
struct pl_esched {
	struct pl_etodo *todo;
	size_t n, cap;
};

/* 0, or PL_ENOMEM if the log or the list cannot grow. */
int pl_edit_log(struct pl_edit *e, enum eundo_op op, uint32_t id, int64_t old,
		struct pl_err *err) PL_MUST;
/* A change moves the start of the node: the next settling evaluates it. */
int pl_edit_touch(struct pl_edit *e, uint32_t node, struct pl_err *err) PL_MUST;
void pl_edit_untouch(struct pl_edit *e, uint32_t node);	    /* undo of pl_edit_touch() */
void pl_edit_touch_again(struct pl_edit *e, uint32_t node); /* undo of a settling */
/* A node without a predecessor in its step may be the first node of the step. */
int pl_edit_may_begin(struct pl_edit *e, uint32_t node, struct pl_err *err) PL_MUST;
void pl_edit_link(struct pl_edit *e, uint32_t edge); /* insert at the front of both lists */

/* Is the edge to the sink not needed, because the target or a later node ends no earlier? */
static inline bool pl_edit_covers(const struct pl_edit *e, const struct pl_eedge *x)
{
	const struct pl_enode *s = &e->node[x->src], *d = &e->node[x->dst];

	return !pl_edit_from_start(x->type) && d->step == s->step && !d->k &&
	       (d->flags & PL_NF_IN_STEP || e->step[s->step].sink == x->dst);
}

#endif
