/* cut.h - the state of cut.c and order.c: from the builder's nodes and edges to steps and shapes.
 */
#ifndef PL_DERIVE_CUT_H
#define PL_DERIVE_CUT_H

#include "derive/internal.h"

/* A step with nodes: order[from] .. order[to - 1]. */
struct part {
	int32_t step;
	size_t from, to;
	bool first; /* of its shape: the shape's columns come from this step */
};
struct seen {	       /* a shape */
	uint32_t part; /* the first with this shape */
	bool shown;    /* a step of the graph has it */
};
/* A list of nodes for each node that has one: few nodes do, most only follow the node before them.
 */
struct neighbours {
	uint64_t *has;	  /* a bit for each node: it has a list */
	uint32_t *before; /* by 64 nodes: how many nodes before them have a list */
	uint32_t
		*off; /* by number of such a node: list k is node[off[k]] .. node[off[k + 1] - 1] */
	uint32_t *node;
};
struct cut {
	struct builder *b;
	struct neighbours out; /* successors */
	struct neighbours in;  /* predecessors, in the order of the edges */
	uint8_t *in_type;      /* of the edges in in.node */
	int32_t *step;	       /* by node */
	uint32_t *order;       /* the nodes, step by step */
	uint32_t *left;	   /* by node: predecessors in the step that are not ordered yet; then the
			      number in the shape */
	struct part *part; /* in order of the steps; one for each step of the graph */
	size_t n_parts;
	uint32_t *part_of; /* by step + 1 */
	uint32_t *entry;   /* by resource: ENTRY node in the current step, PL_NONE */
	pl_ns *tail;	   /* by resource: end of its nodes in earlier steps, INT64_MIN: none */
	struct pl_shape s; /* of the current step: entries and edges */
	unsigned has;	   /* optional columns of the shapes */
	struct seen *seen; /* by shape */
	size_t cap_seen;
	struct pl_intern hash; /* of the shapes */
	pl_ns epoch;
	size_t put_from, put_to; /* the nodes that put_nodes() is about to write */
};

/* How many bits are set. The compiler's own function is a call, because not every processor of the
 * kind has the instruction. */
static inline uint32_t pl_cut_bits(uint64_t x)
{
	x -= x >> 1 & 0x5555555555555555u;
	x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
	return (uint32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

/* Where the offsets of the list of node x stand, which has one. */
static inline uint32_t *pl_cut_list(const struct neighbours *l, uint32_t x)
{
	uint64_t before = l->has[x / 64] & (((uint64_t)1 << x % 64) - 1);

	return &l->off[l->before[x / 64] + pl_cut_bits(before)];
}

/* The list of node x: node[*from] .. node[*to - 1]. */
static inline void pl_cut_bounds(const struct neighbours *l, uint32_t x, uint32_t *from,
				 uint32_t *to)
{
	*from = *to = 0;
	if (l->has[x / 64] >> x % 64 & 1) {
		*from = pl_cut_list(l, x)[0];
		*to = pl_cut_list(l, x)[1];
	}
}

static inline bool pl_cut_follows(const struct cut *c, uint32_t x)
{
	return x < c->b->n_nodes && c->b->node[x].follows;
}

/* The predecessors of node x: pl_cut_pred() of the returned number, of the next one ... up to *to,
 * which is none of them. The first is the node before x, if x follows that. */
static inline uint32_t pl_cut_preds(const struct cut *c, uint32_t x, uint32_t *to)
{
	uint32_t from;

	pl_cut_bounds(&c->in, x, &from, to);
	return from - pl_cut_follows(c, x);
}

static inline uint32_t pl_cut_pred(const struct cut *c, uint32_t x, uint32_t first, uint32_t e,
				   uint8_t *type)
{
	bool before = e == first && pl_cut_follows(c, x);

	*type = before ? PL_E_SEQ : c->in_type[e];
	return before ? x - 1 : c->in.node[e];
}

/* The step of every node, and the order of the nodes of each step. The builder's operations, calls
 * and edges are gone then. */
void pl_derive_order_nodes(struct cut *c);
void pl_cut_drop(struct neighbours *l);

#endif
