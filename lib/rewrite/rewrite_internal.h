/* rewrite_internal.h - the state of a plan on an edit. */
#ifndef PL_REWRITE_INTERNAL_H
#define PL_REWRITE_INTERNAL_H

#include <math.h>

#include "graph/select.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

struct rw_place {      /* of a tensor on a slot */
	uint32_t inst; /* the edit's tensor, PL_NONE: the slot has none */
	uint32_t comm; /* index into rewriter.comm */
	pl_ns ready;   /* when it was ready and issued; INT64_MIN: it is not there */
};
struct rw_edge { /* of a recorded communication; its replacement gets the edge */
	uint32_t node;
	struct pl_eedge edge; /* its type and delay */
};
/* A communication as it was recorded, in one slot. */
struct rw_comm {
	uint32_t arrive, transfer, meet; /* meet PL_NONE: its partners were not recorded */
	uint32_t last;			 /* instance of the tensor that became ready last */
	uint32_t n_tensors;
	uint32_t channel;	/* index into rewriter.channel */
	uint32_t gate, n_gates; /* into rewriter.edge: edges that let it arrive */
	uint32_t use, n_uses;	/* edges to the nodes that wait for it */
	uint32_t issue;		/* host operation that issued it, PL_NONE */
	pl_ns issue_dur;
	pl_ns gate_ns, lag; /* lag: from its last tensor to the gate */
};
/* A channel of a slot carries communications in order: a device resource, or a group's threads. */
struct rw_channel {
	uint32_t res, group; /* of its first communication */
	uint32_t begin_mark,
		end_mark; /* nodes around the channel's communication, PL_NONE: none yet */
};
/* A slot is a rank in a backward pass of a step. A step can have several of them: then each tensor
 * is made, and each bucket is sent, once in every pass. */
struct rw_slot {
	uint32_t comm, n_comms;	      /* into rewriter.comm, by start */
	uint32_t channel, n_channels; /* into rewriter.channel */
};

/* Nodes of a bucket on a slot; PL_NONE: it has none. */
struct rw_at {
	uint32_t arrive, transfer;
	uint32_t channel; /* of rewriter.channel, where the rank has a part */
	uint32_t issue;
	uint32_t lost; /* delay, the time that later computation loses */
	bool kept;     /* as recorded, its duration too */
};

/* A bucket, built into the edit. Shared by the states that have it. */
struct rw_built {
	uint64_t key;
	uint32_t refs;
	struct rw_at *at;     /* [slot] */
	pl_ns alone;	      /* the transfer without contention */
	pl_ns flight;	      /* from its end until the data can be used */
	pl_ns issue_ns;	      /* of an issue that was not recorded */
	double slows, slowed; /* factors: of computation, of the transfer */
};

/* A part of an interrupted transfer in a slot; priorities add such parts to the edit. */
struct rw_piece {
	uint32_t node;	   /* of the part, PL_NONE: it is the last, which is the transfer itself */
	uint32_t transfer; /* the transfer, which had the whole duration */
	uint32_t edge; /* order along the channel, PL_NONE: the first part, chained as arrival */
	pl_ns dur;
};

struct rw_array { /* shared by states */
	uint32_t refs;
	double *v;
};

/* Another network, another number of ranks, another batch. */
struct rw_network {
	uint32_t device; /* number in the cost model + 1; 0: as recorded */
	double batch;	 /* times the recorded samples of a rank; 0: as recorded */
	/* [place of a rank in the graph] the same, where some ranks have others; NULL */
	struct rw_array *batch_of;
	uint32_t ranks;	   /* data-parallel replicas; 0: as recorded */
	uint32_t replicas; /* ... as recorded, in the largest groups */
	uint32_t of_job;   /* with those that are not data-parallel; 0: as recorded */
	uint32_t recorded; /* the same of the recorded job, where of_job is known */
	uint32_t n_changes;
	struct pl_link_change change[PL_COST_CHANGES]; /* of links, in order */
};

struct rw_choice { /* for the bucket of a tensor */
	uint8_t algo;
	uint32_t servers;
	uint32_t priority; /* 1 the highest, 0 none */
};

struct rw_state {
	struct pl_buckets b;
	struct rw_choice *choice; /* [tensor] */
	struct rw_built **built;  /* [set], in order of issue; NULL before it is built */
	uint32_t n_built;
	int64_t accumulate;
	int64_t wrap; /* so many groups of parameters are one; -1: all, 0: as recorded */
	struct rw_network network;
	struct pl_rewrite_basis basis; /* of the changes of durations and of the network */
	size_t undo;		       /* mark of the edit */
	struct rw_piece *piece;	       /* of interrupted communication */
	size_t n_pieces, cap_pieces;
	bool prioritized; /* some tensor has a priority */
	size_t n_fused;	  /* entries of rewriter.fused_log */
	/* [slot][tensor] the times at which gradients would be ready without contention, ns;
	 * -INFINITY: not there. NULL: nothing slows anything down */
	struct rw_array *ready_alone;
	/* [node as recorded] the share of its duration that it loses to communication beside it,
	 * where rewrites have changed that; NULL: as recorded */
	struct rw_array *lost;
	bool ops_changed;    /* rewrites have changed operations since that was so */
	bool asks_algorithm; /* some rewrite does */
	bool divided;	     /* by tensor-parallel: nothing may follow */
	bool over;	     /* the recorded communication is replaced */
	bool overlapped;     /* communication runs beside computation that waited for it */
	bool at_once;	     /* ... and that may need its result at once */
	bool kept;	     /* sharded parameters stay whole until the backward pass */
	bool overlaps;	     /* as recorded, and begins at other times: it needs to be replaced */
};

/* A part of a fused operation. */
struct rw_fused {
	uint32_t node, first; /* first: the node that takes the time of all */
	pl_ns dur;	      /* of this part, when it was fused */
	double share;	      /* of this part in the sum of all parts at that time */
};

/* What changes of durations need to know of a graph, found when the first of them asks. */
struct rw_facts {
	const struct pl_graph *g;
	const struct pl_edit *e;	      /* of the graph; NULL: it was not taken apart */
	const struct pl_topology *topo;	      /* for `cost`, NULL: that of the graph's hosts */
	const struct pl_predictor *predictor; /* a cost model of kernels; NULL: there is none */
	const struct pl_cost *cost;	      /* borrowed, or `own` */
	struct pl_cost own;
	struct rw_network *network; /* so far */
	struct rw_comms *comms;	    /* classes of communication */
	struct rw_groups *groups;   /* of sharded parameters */
};
void pl_rewrite_facts_fini(struct rw_facts *x);
void pl_rewrite_comms_free(struct rw_comms *c); /* NULL: nothing */

/*
 * A change of durations: a factor or a time for each operation that the selector selects, or for
 * each that has a class (operations of one class get the same value).
 */
struct rw_change {
	struct pl_graph_select select; /* without keys: the class alone decides */
	bool sets;		       /* values are durations in ns; otherwise factors */
	bool removes;		       /* nobody does the operations any more */
	double value;		       /* of all, if there are no classes */
	uint32_t **class;	       /* [shape][node as recorded]; NULL: no classes */
	size_t n_shapes;	       /* the change owns so many class[i]; 0: class is borrowed */
	struct pl_rewrite_basis basis;
	double *line; /* [class], owned: the time before the change by the fitted line; or NULL */
	bool *stays;  /* [step], owned: the step does not change; NULL: all may */
	bool keeps_rest; /* what an operation takes longer than the line does not get the factor */
	struct pl_link_change messages; /* latency of messages between nodes; no link: as it was */
	double *of_class; /* owned; NAN: operations of this class keep their durations */
};

/* A kind of rewrite: one file (several where one mechanism serves them), one row in plan/plan.h. */
struct pl_rewrite_kind {
	bool comm;    /* changes communication: the buckets are built again */
	bool network; /* changes what communication costs: of buckets that are built again, too */
	bool last;    /* applied behind the others of a plan */
	bool first;   /* applied alone: the others apply to the graph that it makes */
	/* applied before the others of a plan: they put the times of operations together */
	bool before;
	/* Find what the rewrite makes of durations in the graph of x; the caller frees *c. NULL:
	 * the rewrite changes more than durations. */
	int (*change)(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
		      struct pl_err *err);
	/* Change the edit, or fail with PL_EDATA and the reason; then the caller undoes the state.
	 * NULL: `change` says it all. */
	int (*apply)(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err);
	/*
	 * One sentence without a period: the effect in this graph, and its reason. Words in braces
	 * stand for what the rewrite says: {names} how many names, {first} the first of them,
	 * {bytes} of these tensors, {bucket} the bytes of its bucket, {word}, {k}, {x}, {to},
	 * {times} or a time of, {link}, {samples}, {members}, {reason} for the algorithm.
	 */
	const char *explain;
	const char *explain_less; /* with at most `less` names; NULL: the same */
	uint32_t less;
};
#define DECLARE(name, kind, why) extern const struct pl_rewrite_kind pl_rewrite_##kind;
PL_PLAN_REWRITES(DECLARE)
#undef DECLARE

/* A group of sharded parameters in a pass of a rank (rewrite_groups.c). Its communication: each is
 * the arrival's node in the shape of the step, PL_NONE: there is none. */
enum { RW_GATHER, RW_GATHER_AGAIN, RW_REDUCE, RW_AVERAGE, RW_GROUP_COMMS };
struct rw_group {
	uint32_t arrive[RW_GROUP_COMMS];
	bool outermost; /* no other group takes its place: the outermost one */
};
/* A forward pass and the backward pass behind it. rank: its place in the graph. */
struct rw_pass {
	uint32_t rank, step;
	uint32_t first, n; /* its groups, in the order of the forward pass */
};
struct rw_groups {
	struct rw_pass *pass;
	struct rw_group *group;
	size_t n_passes, n_groups;
	uint32_t most;	 /* of a pass */
	bool sized;	 /* the bytes of all their communication are known */
	bool whole;	 /* nothing is sharded: each rank has a copy of all parameters */
	const char *why; /* the groups cannot be told; NULL: they can */
};

struct pl_rewriter {
	struct pl_edit *e; /* of a whole graph */
	const struct pl_cost *c;
	struct rw_facts facts;
	struct pl_rewrite_tensor *tensor; /* of the base, in order of readiness */
	uint32_t n_tensors;
	int32_t *rank;		   /* ranks that have tensors, ascending */
	uint32_t n_ranks, n_slots; /* slot = pass * n_ranks + index of rank */
	uint32_t n_passes;	   /* backward passes of all steps */
	uint32_t *pass_step;	   /* [pass] */
	uint32_t *step_pass;	   /* [step] its first pass; one more, n_passes */
	uint32_t from, to;	   /* the steps whose buckets are built again */
	struct pl_arena arena;	   /* of arrays that keep their size, and of names */
	struct rw_place *place;	   /* [slot][tensor] */
	struct rw_comm *comm;
	size_t n_comms, cap_comms;
	struct rw_edge *edge;
	size_t n_edges, cap_edges;
	struct rw_slot *slot;
	struct rw_channel *channel;
	size_t n_channels, cap_channels;
	pl_ns *begin;		/* [pass]: of its step, or when the pass before was sent */
	struct rw_state *state; /* a stack; the last is the present */
	size_t n_states, cap_states;
	uint32_t *set_first,
		*set_member;   /* of the state that is built: see pl_plan_buckets_members() */
	uint8_t *is_grad_comm; /* [node as recorded]: of the recorded communication of gradients */
	uint32_t n_recorded;
	uint32_t *fused; /* [node as recorded]: part of a fused operation, its place in the log
			  * + 1; NULL: none ever was */
	struct rw_fused *fused_log; /* in order, for undoing */
	size_t n_fused, cap_fused;
	struct pl_predictor_moves *moves; /* by the cost model; NULL: not yet needed, or none */
	uint32_t *name_first, *name_node; /* nodes as recorded by name; NULL: not yet needed */
	bool issues;			  /* host operations that issue communication are known */
	struct rw_slowdown *slowdown;	  /* NULL: nothing slows anything down */
	double contention;		  /* see pl_rewrite_contention() */
	uint32_t *group;		  /* [group]: graph.group or PL_NONE */
	uint32_t n_groups;
	uint32_t unknown; /* which name of a rewrite is that of no tensor; PL_NONE */
	int rc; /* of the first change of the edit that failed: nothing is changed any more */
	struct pl_err failure;
};

extern const struct pl_rewrite_kind *const pl_rewrite_kinds[]; /* by enum pl_rw */

/* ---- changes of the edit; the first failure sticks ------------------------------------------- */

#define RW_CHANGE(change, arguments, ...)                                                          \
	static inline void rw_##change arguments                                                   \
	{                                                                                          \
		if (r->rc == 0)                                                                    \
			r->rc = pl_edit_##change(r->e, __VA_ARGS__, &r->failure);                  \
	}
RW_CHANGE(drop_node, (struct pl_rewriter * r, uint32_t node), node)
RW_CHANGE(drop_edge, (struct pl_rewriter * r, uint32_t edge), edge)
RW_CHANGE(add_edge, (struct pl_rewriter * r, uint32_t src, uint32_t dst, unsigned type, pl_ns w),
	  src, dst, type, w)
RW_CHANGE(add_edge_like,
	  (struct pl_rewriter * r, uint32_t src, uint32_t dst, const struct pl_eedge *like,
	   unsigned type, pl_ns more),
	  src, dst, type, like, more)
RW_CHANGE(set_dur, (struct pl_rewriter * r, uint32_t node, pl_ns dur), node, dur)
RW_CHANGE(set_weight, (struct pl_rewriter * r, uint32_t edge, pl_ns w), edge, w)
RW_CHANGE(set_arrive, (struct pl_rewriter * r, uint32_t tensor, uint32_t arrive), tensor, arrive)
RW_CHANGE(set_work, (struct pl_rewriter * r, uint32_t node, uint32_t row), node, row)
RW_CHANGE(set_comm, (struct pl_rewriter * r, uint32_t node, uint32_t comm, int64_t bytes), node,
	  comm, bytes)
RW_CHANGE(set_bytes, (struct pl_rewriter * r, uint32_t tensor, int64_t bytes), tensor, bytes)
RW_CHANGE(set_remade, (struct pl_rewriter * r, uint32_t tensor, bool remade), tensor, remade)
RW_CHANGE(set_fixed, (struct pl_rewriter * r, uint32_t node, pl_ns fixed), node, fixed)
#undef RW_CHANGE
/* The number of the new node; after a failure that of another one. */
static inline uint32_t rw_add_node(struct pl_rewriter *r, const struct pl_enode *n, uint32_t after)
{
	uint32_t id = 0;

	if (r->rc == 0)
		r->rc = pl_edit_add_node(r->e, n, after, &id, &r->failure);
	return id;
}
/* rc, or the failure of a change if rc is 0. The next change is carried out again. */
static inline int rw_result(struct pl_rewriter *r, int rc, struct pl_err *err)
{
	if (rc == 0 && r->rc < 0)
		*err = r->failure;
	rc = rc == 0 ? r->rc : rc;
	r->rc = 0;
	r->failure = (struct pl_err){ 0 };
	return rc;
}

/* rewrite_network.c: how many members the communication of a recorded transfer has now, which had
 * n. */
uint32_t pl_rewrite_members(const struct pl_rewriter *r, uint32_t transfer, uint32_t n);
/* rewrite_network.c: count fitted transfers, and collectives of unknown algorithm. */
void pl_rewrite_count_basis(const struct pl_graph *g, const struct pl_cost *c,
			    struct pl_rewrite_basis *b);
/* rewrite_change.c: what the predictions of several changes depend on together. */
void pl_rewrite_add_basis(struct pl_rewrite_basis *to, const struct pl_rewrite_basis *x);
/* ... and how many ranks there are; of the recorded job, what was noted first stays. */
void pl_rewrite_note_ranks(const struct rw_network *n, struct pl_rewrite_basis *to);
/* Apply a kind with `change` to the edit. */
int pl_rewrite_apply_change(struct pl_rewriter *r, const struct pl_rewrite *rw,
			    struct pl_err *err) PL_MUST;

/* Numbers that states share: one reference, all 0. NULL may be released. */
int pl_rewrite_array_new(size_t n, struct rw_array **a, struct pl_err *err) PL_MUST;
void pl_rewrite_array_unref(struct rw_array *a);

static inline struct rw_state *rw_now(const struct pl_rewriter *r)
{
	return &r->state[r->n_states - 1];
}
/* Find the groups of sharded parameters. */
int pl_rewrite_groups_find(struct rw_facts *x, struct pl_err *err) PL_MUST;
/* The same; PL_EDATA with the reason: they cannot be told, or need `sizes` and have none. */
int pl_rewrite_groups_need(struct rw_facts *x, bool sizes, struct pl_err *err) PL_MUST;
void pl_rewrite_groups_free(struct rw_groups *x); /* NULL: nothing */
/* Groups of ranks that carry activations, because they scatter sums in a forward pass: of[group of
 * the graph]; pl_free(). */
int pl_rewrite_activations(const struct pl_graph *g, bool **of, struct pl_err *err) PL_MUST;
/* The arrival of a group's communication in the edit, PL_NONE: there is none. */
static inline uint32_t rw_arrival(const struct pl_rewriter *r, const struct rw_pass *p, uint32_t i,
				  unsigned what)
{
	uint32_t node = r->facts.groups->group[p->first + i].arrive[what];

	return node == PL_NONE ? PL_NONE : r->e->step[p->step].first + node;
}
/* What the host does for a communication. Is the node an operation of a thread? */
bool pl_rewrite_on_thread(const struct pl_edit *e, uint32_t node);
/* The edge to the operation before the node, or behind it, on its resource in its step; PL_NONE. */
uint32_t pl_rewrite_chained(const struct pl_edit *e, uint32_t node, bool before);
/* Is it an operation of the phase of communication, or a gap of the host? */
bool pl_rewrite_is_for_comm(const struct pl_edit *e, uint32_t node);
bool pl_rewrite_waits_for_comm(const struct pl_edit *e, uint32_t node);
/* Find tensors, communication, slots in the recorded edit. */
int pl_rewrite_find(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* The slot of a rank in a pass, PL_NONE: the rank has no tensors. */
uint32_t pl_rewrite_slot(const struct pl_rewriter *r, uint32_t pass, int32_t rank);
static inline uint32_t rw_step_of(const struct pl_rewriter *r, uint32_t slot)
{
	return r->pass_step[slot / r->n_ranks];
}
/* The slots of the steps that are built are [first, end). */
static inline uint32_t rw_first_slot(const struct pl_rewriter *r)
{
	return r->step_pass[r->from] * r->n_ranks;
}
static inline uint32_t rw_end_slot(const struct pl_rewriter *r)
{
	return r->step_pass[r->to] * r->n_ranks;
}
/* Does some step have several passes? */
static inline bool rw_repeats(const struct pl_rewriter *r)
{
	return r->n_passes > r->e->n_steps;
}
/* The rendezvous of an arrival; PL_NONE. */
uint32_t pl_rewrite_meet_of(const struct pl_edit *e, uint32_t arrive);
/* Build the communication of the state into the edit. */
int pl_rewrite_sync(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
void pl_rewrite_unref(struct rw_built *b);
/* rewrite_contention.c: the durations of transfers, the time that computation loses to them, and,
 * if there are priorities, the order of the channels. */
int pl_rewrite_contend(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* The transfers of a step in their order; the tasks of the pieces are sets. */
struct pl_sim_events_piece;
struct rw_order {
	struct pl_sim_events_piece *turn;
	size_t n, cap;
};
/* rewrite_priority.c: chain the channels of every step in that order, and settle; remove the parts
 * of interrupted transfers again. */
int pl_rewrite_chain_in_order(struct pl_rewriter *r, const struct rw_order *o,
			      struct pl_err *err) PL_MUST;
void pl_rewrite_join_pieces(struct pl_rewriter *r);
/* rewrite_take_over.c: the recorded communication of gradients leaves the edit. Called once. */
int pl_rewrite_take_over(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* On the channel, `to` (an arrival or end_mark) comes after `from` and after nothing else. */
void pl_rewrite_chain(struct pl_rewriter *r, uint32_t from, uint32_t to);

/* rewrite_overlapped.c: after changes of durations, those that computation gets because other
 * communication runs beside it. */
int pl_rewrite_overlapped(struct pl_sim *s, const struct pl_graph *g,
			  struct pl_rewrite_basis *basis, struct pl_err *err) PL_MUST;
/* The same in the edit, if rewrites of this state put communication beside other computation. */
int pl_rewrite_overlapped_edit(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* In the edit: computation as if no communication ran beside it. */
int pl_rewrite_overlapped_alone(struct pl_rewriter *r, struct pl_err *err) PL_MUST;

/* ---- contention of computation and communication (rewrite_slowdown.c) --------------------------
 */

/* Find time that computation lost in the recorded edit. r->slowdown: NULL if lib/cost has none. */
int pl_rewrite_slowdown_init(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
void pl_rewrite_slowdown_fini(struct pl_rewriter *r);
/* Release the time that computation lost to the recorded communication of gradients. */
void pl_rewrite_slowdown_release(struct pl_rewriter *r);
/* If operations have changed, settle the edit and find when gradients are ready. Call this before
 * communication changes. */
int pl_rewrite_slowdown_ready(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* The time that the rank has lost to communication in the step's first pass until `until`, in the
 * settled edit. */
pl_ns pl_rewrite_slowdown_lost(struct pl_rewriter *r, uint32_t step, int32_t rank, pl_ns until);
/* The time at which the last tensor of the set would be ready on the slot without contention;
 * -INFINITY: the slot has no tensor of the set. r->slowdown must not be NULL. */
double pl_rewrite_slowdown_ready_alone(const struct pl_rewriter *r, uint32_t set, uint32_t slot);
/* The communication of a set, as a question to lib/cost; `meeting` ranks take part. */
struct pl_cost_comm pl_rewrite_comm_of_set(const struct pl_rewriter *r, uint32_t set,
					   uint32_t meeting);
/* Push a copy of the present state on the stack. */
int pl_rewrite_push_state(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Find base tensor i of a line. If there is no such tensor, PL_EDATA says how to mend the plan. */
int pl_rewrite_find_arg(struct pl_rewriter *r, const struct pl_rewrite *rw, uint32_t i,
			uint32_t *tensor, struct pl_err *err) PL_MUST;
/* Find a base tensor by its name in plans; PL_NONE: there is none. */
uint32_t pl_rewrite_tensor_find(const struct pl_rewriter *r, const char *name);
/* The time at which the tensor is ready: the latest over ranks, the mean over steps, from the
 * step's begin. when() gives it for a slot; INT64_MIN: not there. */
pl_ns pl_rewrite_mean_ready(const struct pl_rewriter *r, uint32_t t,
			    pl_ns (*when)(const struct pl_rewriter *r, uint32_t slot, uint32_t t));
static inline struct rw_place *rw_place(const struct pl_rewriter *r, uint32_t slot, uint32_t tensor)
{
	return &r->place[(size_t)slot * r->n_tensors + tensor];
}
/* The operation that makes the tensor of the place, PL_NONE. */
static inline uint32_t rw_producer(const struct pl_rewriter *r, const struct rw_place *x)
{
	return x->inst == PL_NONE ? PL_NONE : r->e->tensor[x->inst].producer;
}
/* A place of the tensor: on the first slot that has it. */
static inline const struct rw_place *rw_first(const struct pl_rewriter *r, uint32_t tensor)
{
	const struct rw_place *x = rw_place(r, 0, tensor);

	while (x->inst == PL_NONE)
		x += r->n_tensors;
	return x;
}
/* The time at which the tensor of the slot is ready now: the present end of its producer plus the
 * recorded lag; without a producer the recorded time. INT64_MIN: the slot has no such tensor. */
static inline pl_ns rw_ready_now(const struct pl_rewriter *r, uint32_t slot, uint32_t tensor)
{
	const struct rw_place *x = rw_place(r, slot, tensor);
	uint32_t p = rw_producer(r, x);

	return p == PL_NONE ? x->ready : pl_edit_end(r->e, p) + r->comm[x->comm].lag;
}
/* The recorded communication of an arrival; `meeting` ranks take part if its group is not known. */
static inline struct pl_cost_comm rw_comm_of(const struct pl_edit *e, uint32_t arrive,
					     uint32_t meeting)
{
	const struct pl_enode *a = &e->node[arrive];
	uint32_t n = a->group < e->n_groups ? e->group[a->group].n : meeting;
	const char *name = pl_edit_algorithm(e, arrive);
	uint8_t algo = pl_cost_algorithm(name);

	return (struct pl_cost_comm){ .kind = a->kind,
				      .coll = pl_edit_coll(e, arrive),
				      .algo = algo,
				      .was = algo,
				      .assumed = !name,
				      .group = a->group,
				      .n = n,
				      .recorded = n,
				      .bytes = e->node[arrive].bytes };
}
static inline bool rw_launches(const struct pl_eedge *x)
{
	return PL_E_TYPE(x->type) == PL_E_LAUNCH || PL_E_TYPE(x->type) == PL_E_EARLY;
}
static inline bool rw_computes(const struct pl_enode *n)
{
	return !n->dead && n->type == PL_N_OP &&
	       (n->role == PL_RO_COMPUTE || n->role == PL_RO_COPY);
}
static inline pl_ns rw_times(pl_ns dur, double x)
{
	return (pl_ns)llround((double)dur * x);
}
static inline bool rw_fused(const struct pl_rewriter *r, uint32_t node)
{
	return r->fused && node < r->n_recorded && r->fused[node];
}
/* Undo the fusions of a state: keep the first n_fused entries of the log. */
void pl_rewrite_unfuse(struct pl_rewriter *r, size_t n_fused);

#endif
