/*
 * graph.h - the global data-flow graph of a job: paceline-graph(5).
 *
 * A graph has *shapes* and *steps*. A shape is the structure of one step over all ranks: nodes and
 * edges. A step names its shape and has the recorded start and duration of each node. The nodes of
 * a shape are in topological order: an edge leads from a lower to a higher number, so a replay is
 * one pass. The steps are in order of time. A step depends on the steps before it through ENTRY
 * nodes, one for each resource that is carried over.
 *
 * A node can start later than its modelled predecessors allow. The graph does not hold this time,
 * because it follows from the recorded starts. The replay reports it as unexplained.
 */
#ifndef PL_GRAPH_H
#define PL_GRAPH_H

#include "graph/columns.h"
#include "trace/trace.h"

#define PL_GRAPH_MAJOR 1
#define PL_GRAPH_MINOR 1
/* The name of a mark begins so if ranks wait there for one another and nobody recorded this. */
#define PL_UNRECORDED "unrecorded rendezvous"
/* The name of gaps of ranks that go on together, but not because one of them became ready. */
#define PL_OUTSIDE "wait for something outside of the recording"
/* The name of launches that nobody recorded, with a time that is known or assumed (cost/host.h). */
#define PL_GRAPH_LAUNCH "launch"
#define PL_LAUNCH_QUEUE                                                                            \
	"launch queue " /* prefix of the names of resources that only pass times on */

/* Lists of the numbers in files, in their order: X(name, word). */
#define PL_NODE_TYPES(X)                                                                           \
	X(ENTRY, "entry") /* when its resource became free in earlier steps; no duration */        \
	X(OP, "op")	  /* occupies its resource for its duration */                             \
	X(DELAY, "delay") /* time that occupies no resource */                                     \
	X(RENDEZVOUS,                                                                              \
	  "rendezvous")		/* fires when k of its n predecessors have ended; k = 0: all */    \
	X(RESOURCE, "resource") /* acquires its resource by discipline (shared link, server) */    \
	X(POLICY, "policy")	/* decided at replay time: reserved for parameter servers */
#define PL_NUMBER_(name, word) PL_N_##name,
enum pl_node_type { PL_NODE_TYPES(PL_NUMBER_) PL_N_COUNT_ };
#undef PL_NUMBER_

/* The part that the time of an operation plays in reports and what-ifs. */
#define PL_NODE_ROLES(X)                                                                           \
	X(NONE, "none")                                                                            \
	X(COMPUTE, "compute")	/* kernel; host operation on a rank without device */              \
	X(HOST, "host")		/* host operation, runtime call */                                 \
	X(GAP, "gap")		/* host thread between its own operations */                       \
	X(COPY, "copy")		/* copy, set */                                                    \
	X(ARRIVE, "arrive")	/* a member reached its communication; waits until its TRANSFER */ \
	X(TRANSFER, "transfer") /* communication proper: from the last arrival to the end */       \
	X(SYNC, "sync")		/* the part of a host call after its wait for the device */        \
	X(MARK, "mark")		/* begin or end of a step on a rank */
#define PL_NUMBER_(name, word) PL_RO_##name,
enum pl_node_role { PL_NODE_ROLES(PL_NUMBER_) PL_RO_COUNT_ };
#undef PL_NUMBER_

/* Which part of a training step a node belongs to. */
#define PL_PHASES(X)                                                                               \
	X(UNKNOWN, "-")                                                                            \
	X(FORWARD, "forward")                                                                      \
	X(BACKWARD, "backward") /* gradients, of inputs and weights or of either */                \
	X(INPUT_GRAD, "input-gradient")                                                            \
	X(WEIGHT_GRAD, "weight-gradient")                                                          \
	X(OPTIMIZER, "optimizer")                                                                  \
	X(COMM, "communication")                                                                   \
	X(INPUT, "input") /* reading and preparing samples */                                      \
	X(OTHER, "other")                                                                          \
	X(CHECKPOINT, "checkpoint") /* these four: only where the source says so */                \
	X(EVALUATION, "evaluation")                                                                \
	X(COMPILATION, "compilation")                                                              \
	X(GARBAGE, "garbage-collection")                                                           \
	X(RECOMPUTATION, "recomputation") /* activations that the backward pass makes again */
#define PL_NUMBER_(name, word) PL_PH_##name,
enum pl_phase { PL_PHASES(PL_NUMBER_) PL_PH_COUNT_ };
#undef PL_NUMBER_

/* Is it part of the backward pass? */
static inline bool pl_graph_is_backward(unsigned phase)
{
	return phase == PL_PH_BACKWARD || phase == PL_PH_INPUT_GRAD || phase == PL_PH_WEIGHT_GRAD ||
	       phase == PL_PH_RECOMPUTATION;
}
/* Has all that is inside such a range its phase, whatever the names inside say? */
static inline bool pl_graph_phase_holds(unsigned phase)
{
	return phase == PL_PH_INPUT || (phase > PL_PH_OTHER && phase < PL_PH_RECOMPUTATION);
}

/* The class of computation of an operation. */
#define PL_OPERATORS(X)                                                                            \
	X(UNKNOWN, "-")                                                                            \
	X(MATMUL, "matmul")                                                                        \
	X(CONVOLUTION, "convolution")                                                              \
	X(ATTENTION, "attention")                                                                  \
	X(NORMALIZATION, "normalization")                                                          \
	X(SOFTMAX, "softmax")                                                                      \
	X(DROPOUT, "dropout")                                                                      \
	X(ELEMENTWISE, "elementwise") /* activation functions too */                               \
	X(POOLING, "pooling")                                                                      \
	X(EMBEDDING, "embedding")                                                                  \
	X(LOSS, "loss")                                                                            \
	X(REDUCTION, "reduction")                                                                  \
	X(COPY, "copy")	    /* of memory, changes of layout and type */                            \
	X(UPDATE, "update") /* of parameters, by an optimiser */
#define PL_NUMBER_(name, word) PL_OP_##name,
enum pl_operator { PL_OPERATORS(PL_NUMBER_) PL_OP_COUNT_ };
#undef PL_NUMBER_

/* Is it an operation of an optimizer that only clears gradients:
 * "Optimizer.zero_grad#SGD.zero_grad", "aten::_foreach_zero_"? */
static inline bool pl_graph_sets_zero(const char *name)
{
	size_t n = strlen(name);

	return strstr(name, "zero_grad") || (n >= 5 && !strcmp(name + n - 5, "zero_"));
}

/* Is it a product? Products are most of the work of a model. */
static inline bool pl_graph_is_product(unsigned op)
{
	return op == PL_OP_MATMUL || op == PL_OP_CONVOLUTION || op == PL_OP_ATTENTION;
}

#define PL_NF_IN_STEP	 1u   /* counts for the end of its step */
#define PL_NF_STEP_BEGIN 2u   /* counts for the start of its step */
#define PL_NF_MISSING	 4u   /* not all members recorded: the recorded duration is the transfer */
#define PL_NF_INFERRED	 8u   /* not in the input */
#define PL_NF_LAYER	 32u  /* a pass of a whole layer, the node's module, as one operation */
#define PL_NF_MESSAGE	 16u  /* a message of a collective, see graph/edit_messages.h */
#define PL_NF_PART	 64u  /* of a host call, behind a call inside: not its first part */
#define PL_NF_PHASE	 128u /* its phase is inferred */

/* In the column of modules: the model itself, whose path is empty. */
#define PL_GRAPH_OUTERMOST "(root)"

/*
 * START: between overlapping operations of one stream; also from the operation that leaves the
 * launch queue to the launch that waited for its place. COMM: arrival to rendezvous to transfer; or
 * arrival to transfer, if the member left before the last member arrived. DATA: also from the
 * sending of a message to its reception, plus the launch latency of the receiver's resource. EARLY:
 * the launch of an operation that began before its call returned.
 */
#define PL_EDGE_TYPES(X)                                                                           \
	X(SEQ, "seq") /* program or stream order: after the end, plus the dispatch latency */      \
	X(LAUNCH, "launch") /* after the end of the call, plus the launch latency */               \
	X(WAIT, "wait")	  /* event or stream wait, thread wait, synchronisation: after the end */  \
	X(COMM, "comm")	  /* after the end */                                                      \
	X(START, "start") /* not before the start of the source */                                 \
	X(DATA, "data")	  /* produced tensor to consumer */                                        \
	X(EARLY, "early") /* after the *start* of the call, plus the early latency */
#define PL_NUMBER_(name, word) PL_E_##name,
enum pl_edge_type { PL_EDGE_TYPES(PL_NUMBER_) PL_E_COUNT_ };
#undef PL_NUMBER_
#define PL_E_INFERRED 0x80u /* or-ed into the type */
#define PL_E_TYPE(e)  ((e)&0x7fu)

/* The rule by which a resource serves several RESOURCE nodes at one time: X(name), in the order of
 * the numbers in files. A discipline is one row here and one file, lib/sim/discipline_NAME.c. */
#define PL_DISCIPLINES(X)                                                                          \
	X(fifo)	    /* first come, first served */                                                 \
	X(shared)   /* all at once; if there are more than its capacity, equal shares */           \
	X(priority) /* the most urgent first, by the column `priority` */
#define PL_DISCIPLINE_NUMBER(name) PL_DS_##name,
enum pl_discipline { PL_DISCIPLINES(PL_DISCIPLINE_NUMBER) PL_DS_COUNT_ };
#undef PL_DISCIPLINE_NUMBER

struct pl_resource {
	uint8_t track_type; /* enum pl_track_type */
	uint8_t discipline; /* enum pl_discipline; a file may have others */
	int32_t rank, device;
	uint32_t capacity; /* operations at a time; 1 */
	pl_id name, host;  /* strings */
	int32_t coord[PL_COORDS];
	/* Typical latencies, estimated from the trace (derive/latency.c). launch: from the end of a
	 * launch call to the start of its operation on an idle stream; of a link, from the end of
	 * sending a message to its first byte at the receiver. dispatch: between two operations
	 * that follow one another at once. early: from the start of a launch call, if the operation
	 * starts before the call returns. */
	pl_ns launch_ns, dispatch_ns, early_ns;
};
/* Name of the resource of processes that read batches while the job computes (derive/loader.c). */
#define PL_GRAPH_LOADER_WORKERS "loader workers"
struct pl_link {
	uint32_t from, to;   /* resources of ranks; equal: one link for all that the rank sends */
	double bytes_per_ns; /* 0 unknown */
	pl_ns latency_ns;
};
/* The use of a tensor. */
#define PL_TENSOR_ROLES(X)                                                                         \
	X(OTHER, "other")                                                                          \
	X(PARAM, "parameter")                                                                      \
	X(GRAD, "gradient")   /* of a parameter; consumed by the arrival of its synchronisation */ \
	X(OPTIM, "optimizer") /* state of the optimiser */                                         \
	X(ACTIVATION, "activation")                                                                \
	X(TEMP, "temporary")                                                                       \
	X(BUFFER, "buffer")
#define PL_NUMBER_(name, word) PL_TR_##name,
enum pl_tensor_role { PL_TENSOR_ROLES(PL_NUMBER_) PL_TR_COUNT_ };
#undef PL_NUMBER_
#define PL_TF_ESTIMATED 1u /* the size was not in the input */
#define PL_TF_ELSEWHERE 2u /* another tensor describes the same memory */
#define PL_TF_OUTPUT	4u /* the output of a module: not recomputed with the module */
struct pl_tensor {	   /* filled where the input knows tensors */
	pl_id name, type;  /* strings; type is that of the elements, PL_NONE unknown */
	uint8_t role;	   /* enum pl_tensor_role */
	uint8_t flags;	   /* PL_TF_* */
	int64_t bytes;
	uint32_t shape, producer;	/* node, PL_NONE */
	uint32_t consumer, n_consumers; /* into graph.consumer */
};
struct pl_ggroup {
	pl_id name;
	uint32_t flags;	  /* PL_GROUP_* */
	uint32_t rank, n; /* into graph.group_rank */
};

/* The work of operations: rows that nodes point to. */
struct pl_gwork {
	uint8_t op;    /* enum pl_operator */
	pl_id type;    /* of the elements, a string; PL_NONE unknown */
	pl_id dims;    /* sizes of the inputs, a string: "[[64,784],[784,10]]"; PL_NONE unknown */
	int64_t flops; /* -1 unknown */
	int64_t bytes; /* read and written, -1 unknown */
	pl_id name;    /* of the operator, a string, where that of the node does not say it: "add";
			* PL_NONE
			*/
};
/* A communication of a shape: its arrivals, rendezvous, transfers and messages point to it. */
struct pl_gcomm {
	uint8_t kind;	 /* enum pl_coll */
	pl_id algorithm; /* a string, PL_NONE unknown */
	pl_id type;	 /* of the elements, a string, PL_NONE unknown */
	uint32_t group;	 /* graph.group, PL_NONE: none is known */
	uint32_t members;
	uint32_t rounds; /* messages that follow one another, 0 unknown */
	int32_t root;	 /* rank, -1 unknown or none */
	int64_t bytes;	 /* payload of a member, -1 unknown */
};

/* Structure of a step. Arrays of n_nodes (off: n_nodes + 1) and n_edges. */
struct pl_shape {
	uint32_t n_nodes, n_edges;
	uint32_t n_entries; /* nodes 0 .. n_entries-1 */
#define PL_SHAPE_MEMBER(member, word, type, ...) type *member;
	PL_NODE_COLUMNS(PL_SHAPE_MEMBER)
#undef PL_SHAPE_MEMBER
	uint32_t *off, *src; /* predecessors of node i: src[off[i]] .. src[off[i+1]-1], all < i */
	uint8_t *etype;
	struct pl_gcomm *comms; /* the communications that the column comm numbers */
	uint32_t n_comms;
};
/* One step: recorded times of its shape's nodes, relative to the graph's epoch. */
struct pl_gstep {
	int64_t number; /* as recorded; INT64_MIN: outside of steps, not reported */
	uint32_t shape;
	pl_ns *start, *dur; /* [n_nodes]; ENTRY: start = end of the carried operation */
	/* [n_edges]: modelled delays, set by an edit; NULL: those of the type. Not in files. */
	int32_t *lag;
};

/* A time of an operation of a shape. Lists of them are sorted by shape and node. */
struct pl_node_time {
	uint32_t shape, node;
	pl_ns ns;
};
/* The first of v[n] that is not before this node; n: there is none. */
static inline size_t pl_node_time_first(const struct pl_node_time *v, size_t n, uint32_t shape,
					uint32_t node)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n, v[i].shape < shape || (v[i].shape == shape && v[i].node < node));
	return i;
}
/* That of the node; NULL: there is none. */
static inline const struct pl_node_time *pl_node_time_find(const struct pl_node_time *v, size_t n,
							   uint32_t shape, uint32_t node)
{
	size_t i = pl_node_time_first(v, n, shape, node);

	return i < n && v[i].shape == shape && v[i].node == node ? &v[i] : NULL;
}

struct pl_graph {
	struct pl_intern str;
	struct pl_resource *res;
	struct pl_ggroup *group;
	uint32_t *group_rank;
	struct pl_link *link;
	struct pl_tensor *tensor;
	uint32_t *consumer;
	struct pl_gwork *work;
	struct pl_shape *shape;
	struct pl_gstep *step;
	size_t n_res, cap_res, n_groups, cap_groups, n_group_ranks, cap_group_ranks, n_links,
		cap_links, n_tensors, cap_tensors, n_consumers, cap_consumers, n_work, cap_work,
		n_shapes, cap_shapes, n_steps, cap_steps;
	int64_t epoch_ns; /* absolute time of 0, on the reference clock */
	int32_t n_ranks;  /* distinct ranks */
	int32_t *rank;	  /* ascending */
	bool stepless;	  /* the input had no steps: the whole input is one step */
	bool described;	  /* phases, operators and communications were determined */
	struct pl_buf provenance;
	/* The numbers of inferred and of omitted parts. -O stat reports them. */
#define PL_GRAPH_COUNTS(X)                                                                         \
	X(inferred_waits) X(recorded_waits) X(inferred_threads) X(dropped_edges) X(unmatched_comm)
#define PL_GRAPH_COUNT(name) int64_t name;
	PL_GRAPH_COUNTS(PL_GRAPH_COUNT)
#undef PL_GRAPH_COUNT
};
/* Is it a step, and not what lies before, between or behind steps? A graph of one part is one step.
 */
static inline bool pl_graph_is_step(const struct pl_graph *g, size_t k)
{
	return g->step[k].number != INT64_MIN || g->n_steps == 1;
}
static inline size_t pl_graph_count_steps(const struct pl_graph *g)
{
	size_t n = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		n += pl_graph_is_step(g, k);
	return n;
}
void pl_graph_init(struct pl_graph *g);
void pl_graph_fini(struct pl_graph *g);
/* Place of the rank in g->rank, PL_NONE if it is not there. */
uint32_t pl_graph_rank_index(const struct pl_graph *g, int32_t rank);
/* Copy everything but shapes, steps and tensors (with their consumers) into the empty graph `to`.
 * After a failure the caller may still call pl_graph_fini(to). */
int pl_graph_copy_tables(const struct pl_graph *g, struct pl_graph *to, struct pl_err *err) PL_MUST;
/* Remove all other ranks with their resources, and the links of these resources. Nodes and groups
 * do not change. number[resource] is the new number of the resource, PL_NONE: removed. */
void pl_graph_keep_ranks(struct pl_graph *g, bool (*keep)(const void *arg, int32_t rank),
			 const void *arg, uint32_t *number);
const char *pl_graph_node_type_name(unsigned type);
const char *pl_graph_node_role_name(unsigned role);
const char *pl_graph_phase_name(unsigned phase);
const char *pl_graph_operator_name(unsigned op);
const char *pl_graph_edge_type_name(unsigned type); /* without the inferred bit */
const char *pl_graph_tensor_role_name(unsigned role);
/* The communication of a node, NULL if it is part of none. */
static inline const struct pl_gcomm *pl_node_comm(const struct pl_shape *s, uint32_t i)
{
	return s->comm && s->comm[i] != PL_NONE ? &s->comms[s->comm[i]] : NULL;
}
/* The type of collective that the node takes part in, enum pl_coll; of a message, a send or a
 * receive: its side, where its communication has the side that began first. */
static inline unsigned pl_node_coll(const struct pl_shape *s, uint32_t i)
{
	const struct pl_gcomm *c = pl_node_comm(s, i);

	bool message = s->flags[i] & PL_NF_MESSAGE;
	bool pair = message || (c && (c->kind == PL_COLL_SEND || c->kind == PL_COLL_RECV));

	if (pair && s->kind[i] == PL_K_RECV)
		return PL_COLL_RECV;
	if (message || (pair && s->kind[i] == PL_K_SEND))
		return PL_COLL_SEND;
	return c ? c->kind : PL_COLL_OTHER;
}
/* The operator of a node, enum pl_operator. */
static inline unsigned pl_node_operator(const struct pl_graph *g, const struct pl_shape *s,
					uint32_t i)
{
	return s->work && s->work[i] != PL_NONE ? g->work[s->work[i]].op : PL_OP_UNKNOWN;
}
/* Is the resource a launch queue? It only passes times to the next step; reports skip it. */
static inline bool pl_graph_hands_on(const struct pl_graph *g, uint32_t res)
{
	return g->res[res].track_type == PL_T_QUEUE &&
	       !strncmp(pl_intern_get(&g->str, g->res[res].name), PL_LAUNCH_QUEUE,
			sizeof(PL_LAUNCH_QUEUE) - 1);
}
/* The arrival before a transfer on the same resource, PL_NONE: none. */
static inline uint32_t pl_node_arrival(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (s->role[s->src[e]] == PL_RO_ARRIVE && s->res[s->src[e]] == s->res[i])
			return s->src[e];
	return PL_NONE;
}
/* The rendezvous that lets a transfer begin, PL_NONE. */
static inline uint32_t pl_node_meeting(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (s->type[s->src[e]] == PL_N_RENDEZVOUS && PL_E_TYPE(s->etype[e]) == PL_E_COMM)
			return s->src[e];
	return PL_NONE;
}
/* Is the transfer only what was left of a collective after its recorded messages? */
static inline bool pl_node_is_rest(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1] && !(s->flags[i] & PL_NF_MESSAGE); e++)
		if (s->flags[s->src[e]] & PL_NF_MESSAGE)
			return true;
	return false;
}
static inline int32_t pl_node_rank(const struct pl_graph *g, const struct pl_shape *s, uint32_t i)
{
	return s->res[i] == PL_NONE ? -1 : g->res[s->res[i]].rank;
}

/* ---- files ----------------------------------------------------------------------------------- */

int pl_graph_write(const struct pl_graph *g, struct pl_out *out, int level, struct pl_pool *pool,
		   const char *provenance, struct pl_err *err) PL_MUST;
/* Everything is checked: ids, order, counts; damage is PL_EDATA. */
int pl_graph_read(struct pl_in *in, struct pl_pool *pool, struct pl_graph *g,
		  struct pl_err *err) PL_MUST;
/* The same without these optional columns (PL_HAS_*), which may take half of the memory. `drop`
 * (may be NULL) says which others are not needed, when all but the steps are there. */
int pl_graph_read_without(struct pl_in *in, struct pl_pool *pool, unsigned leave_out,
			  unsigned (*drop)(const struct pl_graph *g), struct pl_graph *g,
			  struct pl_err *err) PL_MUST;
bool pl_graph_valid(const struct pl_graph *g, struct pl_err *err);

/* ---- views ----------------------------------------------------------------------------------- */

/* Part of a graph: the given ranks and steps. Pairs lo, hi; n = 0: all. */
struct pl_graph_part {
	const int64_t *rank, *step;
	size_t n_ranks, n_steps; /* pairs */
};
/* Make a graph of the chosen steps and ranks; shapes without a step are left out. Communications
 * that lost members are marked PL_NF_MISSING. PL_EDATA if nothing is left. `out` may be g. */
int pl_graph_pick(const struct pl_graph *g, const struct pl_graph_part *part, struct pl_graph *out,
		  struct pl_err *err) PL_MUST;

enum pl_graph_view { PL_GV_STAT, PL_GV_STAT_JSON, PL_GV_TEXT, PL_GV_DOT, PL_GV_JSON };
int pl_graph_show(const struct pl_graph *g, enum pl_graph_view v, struct pl_out *out,
		  struct pl_err *err) PL_MUST;

#endif
