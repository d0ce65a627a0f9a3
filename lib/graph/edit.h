/*
 * edit.h - a graph in a form that can be changed: callers add, remove and change nodes and edges,
 * an undo log reverts the changes, and pl_edit_settle() updates the start of every node.
 *
 * An edit holds consecutive steps, with one copy of each node for each step. The start of a node is
 * the latest end of its predecessors (for some edge types: the latest start) plus the weight of the
 * edge. The simulator prepares the weights from latencies and unexplained time. pl_edit_settle()
 * evaluates only nodes whose start may have changed. Its result equals the result of a full pass to
 * the nanosecond (a test compares them).
 *
 * Where RESOURCE nodes share resources, starts depend on more than edges: the event core decides.
 * pl_sim_settle() (sim/sim.h) does both, and module sim calls it in place of pl_edit_settle().
 *
 *	mark = pl_edit_mark(e);
 *	... changes ...
 *	pl_edit_settle(e, err);       objective: pl_edit_mean_step(e)
 *	pl_edit_undo(e, mark);        reverts all changes, starts included
 *
 * The starts are the least solution of start(v) = max over predecessors. This solution does not
 * depend on the order of evaluation. The order in which nodes were built is nearly topological, so
 * that few nodes are evaluated twice. If there is a cycle, settling does not end; after a limit, a
 * full pass finds the cycle.
 */
#ifndef PL_EDIT_H
#define PL_EDIT_H

#include "graph/graph.h"

struct pl_enode {
	pl_ns start, dur;
	pl_ns fixed;		   /* earliest start of entries and first nodes, INT64_MIN: none */
	uint64_t label;		   /* position in the order of evaluation */
	uint32_t in, out;	   /* first edge, PL_NONE */
	uint32_t step;		   /* index of the step in the edit */
	uint32_t origin;	   /* node of the shape, PL_NONE: added */
	bool dead, queued, begins; /* begins: is in the list `begin` of its step */
	PL_NODE_COLUMNS(PL_COLUMN_MEMBER)
};
/* A node without edges and times; all columns are unknown. */
static inline struct pl_enode pl_edit_blank_node(void)
{
	return (struct pl_enode){ .fixed = INT64_MIN,
				  .in = PL_NONE,
				  .out = PL_NONE,
				  .origin = PL_NONE,
				  PL_NODE_COLUMNS(PL_COLUMN_UNKNOWN) };
}
/* What the event core needs of a RESOURCE node, and what it adds to its duration. */
struct pl_eshare {
	pl_ns hold;    /* unexplained time from getting its resource to its start */
	pl_ns stretch; /* time that operations on the same resource cost it; not part of `dur` */
};
struct pl_eedge {
	uint32_t src, dst, in_next, in_prev, out_next, out_prev;
	pl_ns w;      /* delay: modelled latency and unexplained time */
	int32_t lag;  /* the modelled part of w */
	uint8_t type; /* enum pl_edge_type; PL_E_START and PL_E_EARLY count from the start of src */
	bool dead;
};
/* One copy of a tensor of the graph, for one step and one rank. */
struct pl_etensor {
	uint32_t tensor;   /* graph.tensor */
	uint32_t producer; /* node, PL_NONE: ready from the beginning */
	uint32_t arrive;   /* node that begins its communication, PL_NONE: none */
	uint32_t step;
	int32_t rank;
	int64_t bytes; /* -1 unknown */
	bool remade;   /* an activation that the backward pass computes again (recompute) */
	bool dead;
};

/* A step, and the nodes that determine its length. */
struct pl_estep {
	int64_t number;
	uint32_t first;	 /* node i of the shape is node first + i of the edit */
	uint32_t sink;	 /* node that starts when all nodes that count for the step have ended */
	uint32_t *begin; /* nodes that may be the first of the step; dropped nodes are ignored */
	size_t n_begin, cap_begin;
	/* By resource: the entry of a later step that follows the last node of the resource in this
	 * step, PL_NONE: no entry. NULL in the last step. */
	uint32_t *next;
	bool reported;
};

struct pl_edit {
	const struct pl_graph *g; /* borrowed: names, shapes, tensors */
	/* Resources and groups of the graph, then the added ones. */
	struct pl_resource *res;
	struct pl_ggroup *group;
	uint32_t *group_rank;
	size_t n_res, cap_res, n_groups, cap_groups, n_group_ranks, cap_group_ranks;
	int32_t *gone; /* ranks that were removed */
	size_t n_gone, cap_gone;
	struct pl_enode *node;
	struct pl_eedge *edge;
	size_t n_nodes, cap_nodes, n_edges, cap_edges;
	struct pl_eshare *share; /* [node]; NULL: the graph has no RESOURCE nodes */
	size_t cap_share;
	struct pl_etensor *tensor;
	size_t n_tensors, cap_tensors;
	size_t first_step; /* of the graph: step i of the edit is step first_step + i */
	uint32_t n_steps;
	struct pl_estep *step;
	struct pl_gcomm
		*comm; /* communications; the column comm of nodes is an index of this array */
	size_t n_comms, cap_comms;
	struct pl_gwork *work; /* added rows of work: their numbers start at g->n_work */
	size_t n_work, cap_work;
	struct pl_intern added; /* added names: their ids start at g->str.n */
	struct pl_eundo *undo;
	size_t n_undo, cap_undo;
	struct pl_esched *sched; /* nodes to evaluate */
	uint64_t
		settled; /* nodes evaluated so far, to measure the gain of incremental evaluation */
};

/* Delays of the edges of a step, in the order of its shape. */
struct pl_edit_delays {
	pl_ns *w;     /* modelled latency and unexplained time */
	int32_t *lag; /* the modelled part */
	/* By node, both NULL if no step has RESOURCE nodes: pl_eshare.hold, and the duration
	 * without the time that other operations cost; work NULL: as recorded. */
	pl_ns *hold;
	const pl_ns *work;
};
/*
 * Build an edit of steps [first, first + n) of a graph. The entries of the first step keep their
 * recorded times. The entries of later steps follow the nodes of earlier steps. PL_EABSENT for
 * graphs with POLICY nodes, which nothing can replay. `g` must be valid and outlive e. Call
 * pl_sim_edit(), which computes the delays.
 */
int pl_edit_init(struct pl_edit *e, const struct pl_graph *g, size_t first, size_t n,
		 const struct pl_edit_delays *delays, struct pl_err *err) PL_MUST;
void pl_edit_fini(struct pl_edit *e);
/* An independent copy with an empty undo log, such as one for each thread. */
int pl_edit_dup(const struct pl_edit *e, struct pl_edit *to, struct pl_err *err) PL_MUST;
/* Let the entries of every step keep their present times, so that a change in one step moves no
 * other step. Cannot be undone. */
int pl_edit_part_steps(struct pl_edit *e, struct pl_err *err) PL_MUST;
/* Is that so? */
static inline bool pl_edit_parted(const struct pl_edit *e)
{
	return e->n_steps > 1 && !e->step[0].next;
}

/* ---- changes: pl_edit_undo() reverts each of them -------------------------------------------- */

size_t pl_edit_mark(const struct pl_edit *e);
void pl_edit_commit(struct pl_edit *e);		   /* clear the undo log */
void pl_edit_undo(struct pl_edit *e, size_t mark); /* starts included, settled or not */

/* Add a copy of `n` (without edges and label). The order of evaluation puts it soon after node
 * `after`, which should be a predecessor. Flag PL_NF_IN_STEP: the node counts for its step. */
int pl_edit_add_node(struct pl_edit *e, const struct pl_enode *n, uint32_t after, uint32_t *id,
		     struct pl_err *err) PL_MUST;
/* Remove the node and its edges. */
int pl_edit_drop_node(struct pl_edit *e, uint32_t node, struct pl_err *err) PL_MUST;
/* w >= 0; all of w is modelled latency. pl_edit_settle() reports cycles. */
int pl_edit_add_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		     struct pl_err *err) PL_MUST;
/* Add an edge with the delay of edge `like` (all of it) plus `more` of modelled latency. */
int pl_edit_add_edge_like(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type,
			  const struct pl_eedge *like, pl_ns more, struct pl_err *err) PL_MUST;
int pl_edit_drop_edge(struct pl_edit *e, uint32_t edge, struct pl_err *err) PL_MUST;
int pl_edit_set_dur(struct pl_edit *e, uint32_t node, pl_ns dur, struct pl_err *err) PL_MUST;
/* The change of w is modelled latency. The unexplained part stays, unless w is smaller than it. */
int pl_edit_set_weight(struct pl_edit *e, uint32_t edge, pl_ns w, struct pl_err *err) PL_MUST;
int pl_edit_set_fixed(struct pl_edit *e, uint32_t node, pl_ns fixed, struct pl_err *err) PL_MUST;
/* Set the communication that carries the tensor. */
int pl_edit_set_arrive(struct pl_edit *e, size_t tensor, uint32_t arrive,
		       struct pl_err *err) PL_MUST;

/* Add or remove a copy of a tensor of the graph. */
int pl_edit_add_tensor(struct pl_edit *e, const struct pl_etensor *t, struct pl_err *err) PL_MUST;
int pl_edit_drop_tensor(struct pl_edit *e, size_t tensor, struct pl_err *err) PL_MUST;
int pl_edit_set_bytes(struct pl_edit *e, size_t tensor, int64_t bytes, struct pl_err *err) PL_MUST;
/* Add a resource: a stream, a link, a server. A resource of a new rank adds the rank. */
int pl_edit_add_resource(struct pl_edit *e, const struct pl_resource *r, uint32_t *id,
			 struct pl_err *err) PL_MUST;
/* Add a communication group. `name` is an id of pl_edit_add_name(). */
int pl_edit_add_group(struct pl_edit *e, pl_id name, const int32_t *rank, uint32_t n, uint32_t *id,
		      struct pl_err *err) PL_MUST;
/* Remove all nodes on resources of the rank, its tensors, and the rank from its groups. */
int pl_edit_drop_rank(struct pl_edit *e, int32_t rank, struct pl_err *err) PL_MUST;

int pl_edit_set_remade(struct pl_edit *e, size_t tensor, bool remade, struct pl_err *err) PL_MUST;

/* ---- times ---------------------------------------------------------------------------------- */

/* Update the starts after changes, as if no resource were shared. O(changed nodes x log). PL_EDATA
 * if the changes made a cycle: the message names a node of the cycle, and the caller must undo the
 * changes. A node without predecessor keeps its start. */
int pl_edit_settle(struct pl_edit *e, struct pl_err *err) PL_MUST;
/* Evaluate every node in a new topological order: slow and simple, for tests and checks. */
int pl_edit_settle_full(struct pl_edit *e, struct pl_err *err) PL_MUST;
/* For the event core: no node is left to evaluate; then it sets the times of each node. */
int pl_edit_clear_queue(struct pl_edit *e, struct pl_err *err) PL_MUST;
int pl_edit_set_times(struct pl_edit *e, uint32_t node, pl_ns start, pl_ns stretch,
		      struct pl_err *err) PL_MUST;
/* Latest end less earliest start of nodes that count for the step. INT64_MIN: not reported. */
pl_ns pl_edit_step(const struct pl_edit *e, uint32_t step);
double pl_edit_mean_step(const struct pl_edit *e); /* over the reported steps */
/* The transfer behind an arrival: the node on the same resource that follows it; PL_NONE. */
static inline uint32_t pl_edit_transfer(const struct pl_edit *e, uint32_t arrive)
{
	for (uint32_t i = e->node[arrive].out; i != PL_NONE; i = e->edge[i].out_next) {
		const struct pl_enode *n = &e->node[e->edge[i].dst];

		if (n->role == PL_RO_TRANSFER && n->res == e->node[arrive].res &&
		    !(n->flags & PL_NF_MESSAGE))
			return e->edge[i].dst;
	}
	return PL_NONE;
}
static inline bool pl_edit_has_edge(const struct pl_edit *e, uint32_t src, uint32_t dst)
{
	for (uint32_t x = e->node[src].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->edge[x].dst == dst)
			return true;
	return false;
}
/* Sums of times over 2^61 ns, which no recording has, do not wrap. */
static inline pl_ns pl_edit_end(const struct pl_edit *e, uint32_t node)
{
	const struct pl_enode *n = &e->node[node];

	return pl_min_i64(n->start, 1LL << 61) + pl_min_i64(n->dur, 1LL << 61) +
	       (PL_UNLIKELY(e->share) ? e->share[node].stretch : 0);
}
/* Does the edge count from the start of its source? */
static inline bool pl_edit_from_start(uint8_t type)
{
	return PL_E_TYPE(type) == PL_E_START || PL_E_TYPE(type) == PL_E_EARLY;
}
/* When the edge lets its target start. */
static inline pl_ns pl_edit_edge_time(const struct pl_edit *e, const struct pl_eedge *x)
{
	return x->w +
	       (pl_edit_from_start(x->type) ? e->node[x->src].start : pl_edit_end(e, x->src));
}

/* Name by id, of the graph or added. */
const char *pl_edit_name(const struct pl_edit *e, uint32_t id);
/* The pipeline stage of the node's rank; 0: there is one stage, or it is not known. */
static inline int64_t pl_edit_stage(const struct pl_edit *e, uint32_t node)
{
	return pl_max_i64(0, e->res[e->node[node].res].coord[PL_COORD_PP]);
}
/* Add a communication; *id is the value for the column comm of its nodes. */
int pl_edit_add_comm(struct pl_edit *e, const struct pl_gcomm *c, uint32_t *id,
		     struct pl_err *err) PL_MUST;
/* The node is part of communication `comm`, which carries so many bytes. */
int pl_edit_set_comm(struct pl_edit *e, uint32_t node, uint32_t comm, int64_t bytes,
		     struct pl_err *err) PL_MUST;
/* The work of an operation, NULL: not known. */
static inline const struct pl_gwork *pl_edit_work(const struct pl_edit *e, uint32_t node)
{
	uint32_t row = e->node[node].work;

	return row == PL_NONE	    ? NULL
	       : row < e->g->n_work ? &e->g->work[row]
				    : &e->work[row - (uint32_t)e->g->n_work];
}
/* Add a row of work, whose strings are names of the edit; and give it to a node. */
int pl_edit_add_work(struct pl_edit *e, const struct pl_gwork *w, uint32_t *row,
		     struct pl_err *err) PL_MUST;
int pl_edit_set_work(struct pl_edit *e, uint32_t node, uint32_t row, struct pl_err *err) PL_MUST;
/* The communication of a node, NULL: none. */
static inline const struct pl_gcomm *pl_edit_comm(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].comm == PL_NONE ? NULL : &e->comm[e->node[node].comm];
}
/* The type of collective, enum pl_coll. */
static inline uint8_t pl_edit_coll(const struct pl_edit *e, uint32_t node)
{
	const struct pl_gcomm *c = pl_edit_comm(e, node);

	return c ? c->kind : PL_COLL_OTHER;
}
int pl_edit_add_name(struct pl_edit *e, const char *name, uint32_t *id, struct pl_err *err) PL_MUST;
/* The name of the algorithm of a node's communication, NULL: unknown. */
const char *pl_edit_algorithm(const struct pl_edit *e, uint32_t node);
/* The live nodes in topological order; the caller frees *order, of length *n, with pl_free(). */
int pl_edit_order(const struct pl_edit *e, uint32_t **order, size_t *n, struct pl_err *err) PL_MUST;

/* Make a graph of the edited steps; the settled times become its recorded times. */
int pl_edit_graph(const struct pl_edit *e, struct pl_graph *out, struct pl_err *err) PL_MUST;

#endif
