/*
 * edit.h - a graph taken apart for changing: nodes and edges that can be added, removed and
 * changed, with an undo log, and the start of every node kept right while it changes.
 *
 * One edit holds a run of steps, each node once a step. The start of a node is the latest of its
 * predecessors' ends (starts, where the edge says so) plus the edge's weight: latency and
 * unexplained time, as the simulator prepared them. pl_edit_settle() makes the starts right again
 * after changes and touches only what changes; the result equals that of a full pass to the
 * nanosecond (tested).
 *
 *	mark = pl_edit_mark(e);
 *	... changes ...
 *	pl_edit_settle(e, err);       objective: pl_edit_mean_step(e)
 *	pl_edit_undo(e, mark);        everything as it was, starts included
 *
 * Starts are the least solution of start(v) = max over predecessors, which does not depend on the
 * order of evaluation; nodes are evaluated by an order of construction that is nearly topological,
 * so that few are evaluated twice. A cycle is found when settling does not end, by a full pass.
 */
#ifndef PL_EDIT_H
#define PL_EDIT_H

#include "graph/graph.h"

struct pl_enode {
	pl_ns start, dur;
	pl_ns fixed;	/* not before; INT64_MIN: nothing. Entries, and nodes without predecessor */
	uint64_t label; /* where in the order of evaluation */
	uint32_t in, out;	   /* first edge, PL_NONE */
	uint32_t step;		   /* index of the step in the edit */
	uint32_t origin;	   /* node of the shape, PL_NONE: added */
	bool dead, queued, begins; /* begins: is on its step's list of what may begin it */
	PL_NODE_COLUMNS(PL_COLUMN_MEMBER)
};
/* A node without edges and times, of which nothing is known. */
static inline struct pl_enode pl_edit_blank_node(void)
{
	return (struct pl_enode){ .fixed = INT64_MIN,
				  .in = PL_NONE,
				  .out = PL_NONE,
				  .origin = PL_NONE,
				  PL_NODE_COLUMNS(PL_COLUMN_UNKNOWN) };
}
struct pl_eedge {
	uint32_t src, dst, in_next, in_prev, out_next, out_prev;
	pl_ns w;      /* delay: modelled latency and unexplained time */
	int32_t lag;  /* the modelled part of w */
	uint8_t type; /* enum pl_edge_type; PL_E_START and PL_E_EARLY count from the start of src */
	bool dead;
};
/* One copy of a tensor of the graph: of a step, on a rank. */
struct pl_etensor {
	uint32_t tensor;   /* graph.tensor */
	uint32_t producer; /* node, PL_NONE: ready from the beginning */
	uint32_t arrive;   /* node that begins its communication, PL_NONE: none */
	uint32_t step;
	int32_t rank;
	bool remade; /* an activation that is not kept but made again in the backward pass */
	bool dead;
};

/* What the length of a step is taken from. */
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

struct pl_edit {
	const struct pl_graph *g; /* borrowed: names, shapes, tensors */
	/* Those of the graph and what was added. */
	struct pl_resource *res;
	struct pl_ggroup *group;
	uint32_t *group_rank;
	size_t n_res, cap_res, n_groups, cap_groups, n_group_ranks, cap_group_ranks;
	int32_t *gone; /* ranks that were removed */
	size_t n_gone, cap_gone;
	struct pl_enode *node;
	struct pl_eedge *edge;
	size_t n_nodes, cap_nodes, n_edges, cap_edges;
	struct pl_etensor *tensor;
	size_t n_tensors, cap_tensors;
	uint32_t n_steps;
	struct pl_estep *step;
	struct pl_gcomm *comm; /* what the column comm of nodes numbers */
	size_t n_comms, cap_comms;
	struct pl_intern added; /* names that are not the graph's: ids from g->str.n on */
	struct pl_eundo *undo;
	size_t n_undo, cap_undo;
	struct pl_esched *sched; /* topological order and what is to be settled */
	uint64_t settled;	 /* nodes evaluated so far: what incremental evaluation saves */
};

/* Delays of the edges of a step, in the order of its shape. */
struct pl_edit_delays {
	pl_ns *w;     /* modelled latency and unexplained time */
	int32_t *lag; /* the modelled part */
};
/*
 * Take apart steps [first, first + n) of a graph. Entries of the first step stay where they were
 * recorded, those of later ones follow what came before. PL_EABSENT for graphs with RESOURCE or
 * POLICY nodes: their times are not a least solution over given delays. `g` must be valid and
 * outlive e. Use pl_sim_edit().
 */
int pl_edit_init(struct pl_edit *e, const struct pl_graph *g, size_t first, size_t n,
		 const struct pl_edit_delays *delays, struct pl_err *err) PL_MUST;
void pl_edit_fini(struct pl_edit *e);
/* A copy of its own, with an empty undo log: one a thread. */
int pl_edit_dup(const struct pl_edit *e, struct pl_edit *to, struct pl_err *err) PL_MUST;

/* ---- changes: each is undone by pl_edit_undo() ---------------------------------------------- */

size_t pl_edit_mark(const struct pl_edit *e);
void pl_edit_commit(struct pl_edit *e); /* forget the log: what is done cannot be undone */
void pl_edit_undo(struct pl_edit *e, size_t mark); /* starts included, if settled or not */

/* A node like `n` (edges and label ignored), evaluated soon after node `after`, which it is likely
 * to depend on. It counts for its step as its flags say. */
int pl_edit_add_node(struct pl_edit *e, const struct pl_enode *n, uint32_t after, uint32_t *id,
		     struct pl_err *err) PL_MUST;
/* With its edges. */
int pl_edit_drop_node(struct pl_edit *e, uint32_t node, struct pl_err *err) PL_MUST;
/* w >= 0, all of it modelled. A cycle is found by pl_edit_settle(). */
int pl_edit_add_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		     struct pl_err *err) PL_MUST;
/* With the delay of another edge, its unexplained part included, and `more` of modelled latency. */
int pl_edit_add_edge_like(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type,
			  const struct pl_eedge *like, pl_ns more, struct pl_err *err) PL_MUST;
int pl_edit_drop_edge(struct pl_edit *e, uint32_t edge, struct pl_err *err) PL_MUST;
int pl_edit_set_dur(struct pl_edit *e, uint32_t node, pl_ns dur, struct pl_err *err) PL_MUST;
/* What w changes by is modelled latency; the unexplained part stays as long as w is not less. */
int pl_edit_set_weight(struct pl_edit *e, uint32_t edge, pl_ns w, struct pl_err *err) PL_MUST;
int pl_edit_set_bytes(struct pl_edit *e, uint32_t node, int64_t bytes, struct pl_err *err) PL_MUST;
int pl_edit_set_fixed(struct pl_edit *e, uint32_t node, pl_ns fixed, struct pl_err *err) PL_MUST;
/* Which communication carries the tensor. */
int pl_edit_set_arrive(struct pl_edit *e, size_t tensor, uint32_t arrive,
		       struct pl_err *err) PL_MUST;

/* A copy of a tensor of the graph, and its removal. */
int pl_edit_add_tensor(struct pl_edit *e, const struct pl_etensor *t, struct pl_err *err) PL_MUST;
int pl_edit_drop_tensor(struct pl_edit *e, size_t tensor, struct pl_err *err) PL_MUST;
/* A resource: a stream, a link, a server. One of a new rank adds the rank. */
int pl_edit_add_resource(struct pl_edit *e, const struct pl_resource *r, uint32_t *id,
			 struct pl_err *err) PL_MUST;
/* A group of communication. `name` is an id of pl_edit_add_name(). */
int pl_edit_add_group(struct pl_edit *e, pl_id name, const int32_t *rank, uint32_t n, uint32_t *id,
		      struct pl_err *err) PL_MUST;
/* Everything on the rank's resources, its tensors, and its membership of groups. */
int pl_edit_drop_rank(struct pl_edit *e, int32_t rank, struct pl_err *err) PL_MUST;

int pl_edit_set_remade(struct pl_edit *e, size_t tensor, bool remade, struct pl_err *err) PL_MUST;

/* ---- times ---------------------------------------------------------------------------------- */

/* Make the starts right again. O(changed nodes x log). PL_EDATA when the changes closed a cycle:
 * names a node on it; undo them. A node without predecessor stays where it was. */
int pl_edit_settle(struct pl_edit *e, struct pl_err *err) PL_MUST;
/* The slow, simple version: every node, in a topological order found anew. For tests and checks. */
int pl_edit_settle_full(struct pl_edit *e, struct pl_err *err) PL_MUST;
/* Length of a step (settled): latest end of what counts for it less its earliest beginning;
 * INT64_MIN: not a reported step. */
pl_ns pl_edit_step(const struct pl_edit *e, uint32_t step);
double pl_edit_mean_step(const struct pl_edit *e); /* over the reported steps */
static inline pl_ns pl_edit_end(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].start + e->node[node].dur;
}
/* Does the edge count from the start of its source? */
static inline bool pl_edit_from_start(uint8_t type)
{
	return PL_E_TYPE(type) == PL_E_START || PL_E_TYPE(type) == PL_E_EARLY;
}

/* Name of a node, of the graph's or added. */
const char *pl_edit_name(const struct pl_edit *e, uint32_t id);
/* A communication for nodes to be part of; *id: what their column comm says. */
int pl_edit_add_comm(struct pl_edit *e, const struct pl_gcomm *c, uint32_t *id,
		     struct pl_err *err) PL_MUST;
/* What an operation computes, NULL: not known. */
static inline const struct pl_gwork *pl_edit_work(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].work == PL_NONE ? NULL : &e->g->work[e->node[node].work];
}
/* The communication of a node, NULL if it is part of none. */
static inline const struct pl_gcomm *pl_edit_comm(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].comm == PL_NONE ? NULL : &e->comm[e->node[node].comm];
}
/* Which collective that is, enum pl_coll. */
static inline uint8_t pl_edit_coll(const struct pl_edit *e, uint32_t node)
{
	const struct pl_gcomm *c = pl_edit_comm(e, node);

	return c ? c->kind : PL_COLL_OTHER;
}
int pl_edit_add_name(struct pl_edit *e, const char *name, uint32_t *id, struct pl_err *err) PL_MUST;
/* Nodes in topological order, live ones only; *order is n long, to be freed with pl_free(). */
int pl_edit_order(const struct pl_edit *e, uint32_t **order, size_t *n, struct pl_err *err) PL_MUST;

/* The edited steps as a graph of their own, whose recording is the settled state: a replay of it
 * reproduces it, and every report works on it. */
int pl_edit_graph(const struct pl_edit *e, struct pl_graph *out, struct pl_err *err) PL_MUST;

#endif
