/*
 * internal.h - the builder's working state: one flat list of nodes and edges over the whole trace,
 * with recorded times on the aligned clock, before it is cut into steps.
 */
#ifndef PL_GRAPH_INTERNAL_H
#define PL_GRAPH_INTERNAL_H

#include "derive/derive.h"
#include "derive/describe.h"
#include "derive/names.h"
#include "derive/put.h"
#include "graph/dims.h"

/* The columns that few nodes have. */
struct attr {
	PL_NODE_OPTIONAL_COLUMNS(PL_COLUMN_MEMBER)
};
#define NO_ATTRIBUTES                                                                              \
	(struct attr)                                                                              \
	{                                                                                          \
		PL_NODE_OPTIONAL_COLUMNS(PL_COLUMN_UNKNOWN)                                        \
	}
/* There are two for each event, so their size decides how much memory a large job takes. */
struct node {
	pl_ns start, dur;
	uint8_t type : 4, phase : 4;
	uint8_t role : 6;    /* most nodes follow the node before them, so these edges are flags: */
	uint8_t follows : 1; /* an edge of type PL_E_SEQ leads from the node before */
	uint8_t waits : 1;   /* an edge of type PL_E_WAIT leads to the node */
	uint8_t kind, flags;
	pl_id res, name;
	union {
		int32_t step;	/* of marks and of launch queues: index into builder.step, or -1 */
		uint32_t work;	/* of operations: row of the graph's work, PL_NONE */
		uint32_t group; /* of communication: see pl_derive_may_group() */
	};
	uint32_t attr; /* in builder.attr, 0: none of them */
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct node) == 36 && PL_N_COUNT_ <= 16 && PL_PH_COUNT_ <= 16 &&
		       PL_RO_COUNT_ <= 64,
	       "types and phases have four bits, roles six");
/* May the work of the node be known? Not for marks and nodes of launch queues. */
static inline bool pl_derive_may_work(const struct node *n)
{
	return n->role == PL_RO_COMPUTE || n->role == PL_RO_HOST || n->role == PL_RO_COPY ||
	       n->role == PL_RO_SYNC;
}
/* Does the node have a group? */
static inline bool pl_derive_may_group(const struct node *n)
{
	return n->role == PL_RO_ARRIVE || n->role == PL_RO_TRANSFER ||
	       (n->type == PL_N_RENDEZVOUS && n->role != PL_RO_MARK);
}
struct edge {
	uint32_t src, dst;
	uint8_t type;
} __attribute__((packed));

/* An event that becomes nodes. */
struct op {
	union {
		struct {
			uint32_t seg, ev;
		};
		pl_ns launched; /* of a launched operation, once the waits of its rank are known:
				 * the start of its call */
	};
	pl_ns start, end;
	uint32_t node;	/* first node */
	uint32_t last;	/* last node: its end is the operation's end */
	uint32_t call;	/* device operation: index of its launching call in rank.call, PL_NONE */
	bool explained; /* a wait accounts for its start */
	uint8_t kind;	/* of the event */
	uint8_t phase;	/* of host operations */
};

enum call_type { CALL_OTHER, CALL_LAUNCH, CALL_RECORD, CALL_WAIT, CALL_SYNC, CALL_FREE };

/* The operation around a call describes the call and the operations that the call launches. */
struct call_context {
	int64_t corr;  /* of the call itself */
	int32_t layer; /* -1 unknown */
	pl_id module, line;
	uint32_t work; /* PL_NONE unknown */
	uint8_t phase;
};
/* A runtime call, in order of start over all threads of a rank. */
struct call {
	pl_ns start, end;
	uint32_t node;		  /* first of the call */
	uint32_t res;		  /* thread */
	uint32_t first_op, n_ops; /* device operations launched: into rank.by_call */
	uint32_t context;	  /* in rank.context */
	uint8_t type;
	bool device_wide : 1; /* of CALL_SYNC: all streams */
	bool internal : 1;    /* of records and waits: the communication library's own */
	bool blocks : 1;      /* its name says that it returns after its copy */
	bool of_event : 1;    /* of CALL_SYNC: it waits for an event */
	bool two_nodes : 1;   /* the call, and the rest of it after a wait */
};
_Static_assert(sizeof(struct call) == 40, "a large job has millions of calls");
static inline uint32_t pl_derive_last(const struct call *c)
{
	return c->node + c->two_nodes;
}
/* A runtime call inside a collective of a thread that only communicates. */
struct inner_call {
	int64_t corr;
	struct op *of; /* the collective */
	pl_ns start, end;
	bool sync; /* it waits for the device */
};
/* A recorded wait of a thread for a thread that communicates. */
struct comm_wait {
	struct call call;
	int64_t corr;
};

/* A recorded dependency: the operation `to` comes after `from`. */
struct pl_derive_after {
	struct op *communication; /* `from`, if its last node is still to come */
	uint32_t from, to;	  /* nodes */
};
/* A send or receive that a thread posted, and for which it waited later: see sends.c. */
struct posted {
	struct op *op;	  /* until its nodes are made */
	uint32_t thread;  /* resource */
	uint32_t issue;	  /* the node of the thread before */
	uint32_t arrive;  /* its arrival; its transfer is the next node */
	uint32_t partner; /* of a send: the arrival of its receive, PL_NONE */
	pl_ns at, end;	  /* when it was posted; the end of the wait */
};

/* The time between two calls. A long call that a full queue blocks is no pause. */
static inline pl_ns pl_derive_pause(const struct call *a, const struct call *c)
{
	return a->start < c->start ? c->start - a->end : a->start - c->end;
}

/* A cuda_sync record: the target of a wait or a synchronisation. */
struct sync_record {
	int64_t corr, stream, on_stream, record_corr;
	int32_t device; /* of `stream`, -1 unknown */
	bool wait;	/* stream waits for event; else the host waits */
	bool device_wide;
};

/* A range of a thread that gives a module or phase to the operations in it. */
struct range {
	pl_ns start, end;
	pl_id module;  /* path, PL_NONE */
	bool whole;    /* the module is given with its whole path */
	pl_id line;    /* function of the user's program, PL_NONE */
	uint8_t phase; /* enum pl_phase */
};
#define RANGE_DEPTH_MAX 256 /* deeper ranges are ignored */
/* The open ranges; all zero before the first use. */
struct range_stack {
	uint32_t at[RANGE_DEPTH_MAX], depth, next;
};

struct resource {
	struct op *op; /* by start; until its rank's nodes are made: its steps alone */
	uint32_t n;
	size_t cap;
	struct op *step;	      /* its steps, by start */
	uint32_t n_all;		      /* operations */
	bool device, thread, service; /* service: thread that only communicates */
	bool queue;		      /* made by queue.c, which gives its nodes their steps */
	uint32_t node0, node1;	      /* a thread's nodes, in program order: [node0, node1) */
	uint32_t rank_index;
	int64_t stream;
	uint32_t nth_stream; /* place in the streams of the rank, plus 1; 0: none */
	bool comm;	     /* communication arrives on it */
	bool listed;	     /* op has room for all operations */
	struct range *range; /* by start */
	uint32_t n_ranges;
	size_t cap_ranges;
};

struct window {
	int64_t number;
	pl_ns start, end;
	int32_t step;  /* index into builder.step; ascends from window to window */
	int32_t again; /* steps of this number before it; negative: before those of another rank */
};

/* Calls by correlation. */
struct call_of_correlation {
	int64_t corr;
	uint32_t call;
};

struct rank {
	int32_t rank;
	struct window *win; /* steps by start, one's end never before an earlier one's */
	size_t n_win, cap_win;
	size_t near_win; /* windows that begin by the time that was looked up last */
	uint32_t *res;	 /* resources of this rank */
	size_t n_res, cap_res;
	struct call *call; /* by start */
	size_t n_calls, cap_calls;
	struct call_context *context; /* of the calls, until their operations are known; longer
				       * where synchronisation was recorded */
	size_t n_contexts, cap_contexts;
	struct op **by_call; /* device operations, grouped by call */
	size_t n_by_call;
	struct call_of_correlation *by_corr; /* ascending */
	size_t n_by_corr;
	struct sync_record *sync; /* by correlation */
	size_t n_sync, cap_sync;
	struct comm_wait *waited;
	size_t n_waited, cap_waited;
	struct inner_call *inner; /* by correlation from pl_derive_device() on */
	size_t n_inner, cap_inner;
	bool has_device, table; /* table: operations only, no host threads */
	bool ordered;		/* dependencies between its operations were recorded */
	bool comm_threads;	/* it has threads that only communicate, or waits for them */
	/* Nodes [waits0, waits1) begin when a wait ends that many pauses at one place show. */
	uint32_t waits0, waits1;
	bool all_sync; /* a call without an entry in sync[] did not wait */
	/* The first of the segments in which this is the first, or last, rank with resources, from
	 * make_nodes() on; PL_NONE. */
	uint32_t begun, ended;
	uint32_t host;	 /* the first rank of its segment: its threads may call for this rank */
	bool for_others; /* it is the host of another rank, or has one that is another */
};

struct segment {
	pl_id *str;	     /* [string]: string of the graph or PL_NONE */
	uint8_t *phase_of;   /* [string]: the phase that the name says, plus 1; 0 not asked */
	uint8_t *range_of;   /* [string]: the same of ranges; bit 7: a function of the user's */
	uint8_t *call_type;  /* [string]: type of the call plus 1, 0: not computed */
	uint32_t *track_res; /* [track]: resource or PL_NONE */
	uint32_t *track_at;  /* [track]: place in resource.op, gathering */
	const struct pl_clock **clock; /* [track] or NULL */
	struct arrival *arrival;       /* of communication; by event from comm.c on */
	size_t n_arrivals, cap_arrivals;
	/* The next segment that has the same first, or last, rank: see struct rank; PL_NONE. */
	uint32_t next_begun, next_ended;
};
struct arrival {
	uint32_t event, node;
};
/* Operations of a segment with these strings have this row of work, PL_NONE: none. */
struct known_work {
	uint32_t seg; /* and 1 more; 0: none yet */
	pl_id name, dims, types, values, op;
	int64_t flops, moved;
	uint32_t row;
};

struct builder {
	struct pl_trace *t;
	struct pl_graph *g;
	const struct pl_derive_opts *o;
	struct pl_err *err;	    /* the first failure */
	struct segment *seg;	    /* [segment of the trace] */
	struct pl_names_read names; /* of all segments: ranks of one job have the same names */
	struct {
		struct known_work *known; /* by hash: of each hash the latest operation */
		struct pl_derive_work rows;
	} work;
	/* numbered operations of the backward pass: there are layers of a model; there are
	 * operations of gradients */
	bool recomputes, differentiates;
	unsigned has; /* columns of nodes that are no attributes: PL_HAS_phase, PL_HAS_work */
	struct resource *resource; /* by resource */
	size_t cap_resources;
	struct rank *rank;
	size_t n_ranks, cap_ranks;
	struct devices_of { /* the rank that was asked about last */
		uint32_t seg;
		int32_t rank;
		bool known, several;
	} devices_of;
	struct pl_intern rank_ids; /* by number: index into rank[] */
	int64_t *step;		   /* step numbers, in order of the steps */
	size_t n_steps;
	struct node *node;
	struct edge *edge;
	struct attr *attr; /* the first says none */
	size_t n_nodes, cap_nodes, n_edges, cap_edges, n_attrs, cap_attrs;
	bool has_memory;	  /* some segment has recorded allocations */
	size_t freed;		  /* bytes that were freed since the last pl_mem_trim() */
	struct cut *cut;	  /* in pl_derive_cut() alone, and so the next two */
	const uint32_t *local;	  /* [node]: number in its shape */
	const int32_t *node_step; /* [node] */
	bool accumulates;	  /* the trace shows gradients one by one */
	struct {
		struct found *rank; /* [rank] */
		pl_id *accumulate;  /* [segment]: the name of the operator, PL_NONE: it is not there
				     */
	} grads;		    /* from pl_derive_collect_tensors() on */
	uint32_t *step_shape;	   /* [step]: its shape, PL_NONE: it is empty; in pl_derive_cut() */
	bool *step_shows;	   /* [step]: the first of its shape, from which its tensors come */
	struct pl_intern link_key; /* rank index and channel of the resource link[] */
	uint32_t *link;
	size_t n_link, cap_link;
	struct pl_derive_message
		*message; /* those of collectives, until pl_derive_message_order() */
	size_t n_messages, cap_messages;
	struct posted *posted; /* ascending by arrival */
	size_t n_posted, cap_posted;
	struct pl_derive_after *after; /* between pl_derive_note_after() and pl_derive_after() */
	size_t n_after, cap_after;
	struct mem_rank
		*memory; /* [rank], from pl_derive_find_memory() on; NULL: none was recorded */
	pl_id s_gap, s_begin, s_end;
};

/*
 * A failure of the functions below stays in b->err (put.h). What they return is then valid, so that
 * it may be used, but means nothing.
 */

/* Call fn(b, i) for i < n in the pool. The calls must not share data that one of them changes. The
 * failure with the lowest i is kept. */
void pl_derive_each(struct builder *b, uint32_t n,
		    void (*fn)(struct builder *b, uint32_t i, struct pl_err *err));
uint32_t pl_derive_node(struct builder *b, const struct node *n);
/* Index of the attributes; equal attributes in sequence are stored once. */
uint32_t pl_derive_attr(struct builder *b, const struct attr *a);
/* A resource of the graph and its struct resource; PL_NONE: there is no room. */
uint32_t pl_derive_resource(struct builder *b, const struct pl_resource *r, uint32_t rank_index);
/* Phase, module and work of a node, and of the nodes of an operation or call, where they have none.
 */
void pl_derive_add_context(struct builder *b, struct node *n, uint8_t phase, pl_id module,
			   uint32_t work);
void pl_derive_add_line(struct builder *b, struct node *n, pl_id line);
void pl_derive_set_context(struct builder *b, uint32_t first, uint32_t last, uint8_t phase,
			   pl_id module, uint32_t work);
/* The nodes of an operation, from the first to the last, are of that layer. */
void pl_derive_set_layer(struct builder *b, uint32_t first, uint32_t last, int32_t layer);
void pl_derive_edge(struct builder *b, uint32_t src, uint32_t dst, unsigned type);
/* The next edge, in no order of their nodes; *at is 0 at first. */
static inline bool pl_derive_next_edge(const struct builder *b, size_t *at, struct edge *e)
{
	size_t i;

	if (*at < b->n_edges) {
		*e = b->edge[(*at)++];
		return true;
	}
	for (i = *at - b->n_edges; i < b->n_nodes && !b->node[i].follows; i++)
		;
	*at = b->n_edges + i + 1;
	*e = (struct edge){ (uint32_t)i - 1, (uint32_t)i, PL_E_SEQ };
	return i < b->n_nodes;
}
/* Graph string of a segment's string. */
pl_id pl_derive_str(struct builder *b, uint32_t seg, pl_id id);
/* A node from the event: kind, name, start, dur, optional columns; bytes only if asked for. */
struct node pl_derive_node_of(struct builder *b, const struct op *op, uint32_t res, bool bytes);
/* The value of a column that may be missing, as text if it is a string. */
static inline int64_t pl_derive_value(const int64_t *column, uint32_t ev, int64_t unknown)
{
	return column && column[ev] != INT64_MIN ? column[ev] : unknown;
}
static inline const char *pl_derive_text(const struct pl_events *e, const pl_id *column,
					 uint32_t ev)
{
	return column && column[ev] != PL_NONE ? pl_intern_get(&e->seg.str, column[ev]) : NULL;
}
static inline int64_t pl_derive_corr(const struct builder *b, const struct op *op)
{
	return pl_derive_value(b->t->seg[op->seg]->corr, op->ev, INT64_MIN);
}
/* The rest of a pause of thread `resource`, from `at` on, becomes a node that waits for the node
 * `waker`; the pause lasts `dur`. */
void pl_derive_split(struct builder *b, const struct resource *resource, uint32_t pause, pl_ns dur,
		     pl_ns at, uint32_t waker);
/* Ranges by start, the outer one before the inner one. */
#define PL_DERIVE_OUTER_FIRST(a, c)                                                                \
	((a)->start != (c)->start ? PL_COMPARE((a)->start, (c)->start)                             \
				  : PL_COMPARE((c)->end, (a)->end))
static inline pl_ns pl_derive_end(const struct builder *b, uint32_t node)
{
	return b->node[node].start + b->node[node].dur;
}

/* The call with this correlation, PL_NONE if there is none. After pl_derive_device(). */
uint32_t pl_derive_call_by_corr(const struct rank *rank, int64_t corr);

/* Launched operations of one stream, in launch order. */
struct stream {
	uint32_t res;
	struct op **op;
	uint32_t n;
	size_t cap;
	bool comm;	 /* most of its operations communicate */
	bool open;	 /* in streams.open */
	struct pending { /* latest waits of this stream, for events recorded on it behind them */
		uint32_t at, src; /* operations launched before it; node waited for */
	} pending[16];
	uint32_t n_pending;
};

struct streams {	  /* of a rank */
	struct stream *v; /* in order of their first launch */
	size_t n, cap;
	struct stream_number {
		int64_t stream;
		uint32_t at; /* in v */
	} * number;	     /* [n], by both */
	uint32_t *open; /* beyond STREAMS_MAX, with operations that no wait for a whole device has
			   waited for */
	size_t n_open, cap_open, n_seen; /* n_seen: of rank.by_call, those that opened a stream */
	struct awaited { /* inferred: the operation before the event that a call of the host awaits
			  */
		uint32_t call;
		struct op *op;
	} * awaited; /* by call */
	size_t n_awaited, cap_awaited;
};
/* Is the stream on this device? -1: any. */
bool pl_derive_on_device(const struct builder *b, const struct stream *x, int32_t device);
/* The streams with this number, one on each device. *n: how many. */
const struct stream_number *pl_derive_numbered(const struct streams *l, int64_t stream, size_t *n);
/* How many operations of the stream were launched before call c. */
uint32_t pl_derive_launched(const struct stream *x, uint32_t c);
/* Event waits: recorded or inferred edges between the streams. hash: [graph strings], cleared once.
 */
void pl_derive_events(struct builder *b, struct rank *rank, struct streams *l, uint64_t *hash);
/* Fills l->awaited: what calls that wait for an event wait for, if the profiler did not say it. */
void pl_derive_event_syncs(struct builder *b, struct rank *rank, struct streams *l, uint64_t *hash);

/* So many bytes were freed: the system gets them back in pieces, because this takes time. */
void pl_derive_freed(struct builder *b, size_t bytes);
/* An array of n elements that are not cleared: all are written before they are read. */
int pl_derive_room(void *array, size_t n, size_t size, struct pl_err *err) PL_MUST;
/* Free the operations of a resource; the calls of a rank. */
void pl_derive_drop_ops(struct builder *b, struct resource *resource);
void pl_derive_drop_calls(struct builder *b, struct rank *rank);

/* Waits of launches for a slot of a full queue; sets durations of their calls. Must be the last. */
void pl_derive_queue(struct builder *b, struct rank *rank, const struct streams *l);
#define BEFORE_FIRST_STEP (-1) /* step of nodes before the first; after the last: n_steps */
/* Step of time t on the rank: the latest window that has begun. *inside (may be NULL): t lies in
 * it, not between two. */
int32_t pl_derive_step_at(const struct builder *b, const struct rank *rank, pl_ns t, bool *inside);

/* The rows of messages that follow match `match`; 0: it has none. */
uint32_t pl_derive_messages(const struct builder *b, uint32_t match);
/* Replace the transfers of a collective by its messages; `meet` is its rendezvous. */
void pl_derive_chunks(struct builder *b, uint32_t match, uint32_t meet);
/* The send or the receive of a message of a collective. */
struct pl_derive_message {
	uint32_t res, node; /* channel; its own node */
	uint32_t arrive; /* the arrival of its member, PL_NONE: a receive that was not recorded */
	uint32_t rank;	 /* index of the channel's */
	uint32_t member, channel; /* of the collective: index; number */
	int32_t chunk;
	int64_t peer;
	bool recv;
	pl_ns start, end;
	pl_ns sent; /* of a receive: the end of its send */
};
/* Those that share a channel or a link follow one another from collective to collective, and from
 * channel to channel. */
void pl_derive_message_order(struct builder *b);
/* The arrival node of a communication event, PL_NONE: it has none. */
uint32_t pl_derive_arrival(const struct builder *b, const struct pl_member *m);
void pl_derive_add_arrival(struct builder *b, const struct op *op);

/* A rendezvous of the arrivals at[0..n), of which the last one happens at `start`. */
uint32_t pl_derive_rendezvous(struct builder *b, const uint32_t *at, size_t n, pl_ns start,
			      uint32_t group);
/* Make the nodes of the sends and receives that a rank posted, from posted[first] on. */
void pl_derive_post(struct builder *b, size_t first);
/* The posted send or receive with this arrival, NULL: there is none. */
struct posted *pl_derive_posted(const struct builder *b, uint32_t arrive);
/* Transfers and waits of all that was posted, once the partners are known. */
void pl_derive_sends(struct builder *b);

/* Ranges of the threads; the innermost one that is open at t, which may not decrease, or NULL. */
void pl_derive_ranges(struct builder *b);
const struct range *pl_derive_range_at(const struct resource *resource, struct range_stack *s,
				       pl_ns t);
/* Sets the phase of a host operation inside `around`. */
void pl_derive_phase(struct builder *b, struct op *op, uint8_t around);
/* Takes back the phase PL_PH_RECOMPUTATION unless it is sure. */
void pl_derive_settle_recomputation(struct builder *b);
/* The row of the work of a host operation, PL_NONE: its sizes were not recorded. */
uint32_t pl_derive_work(struct builder *b, const struct op *op);
static inline pl_ns pl_derive_time(const struct builder *b, uint32_t seg, uint32_t ev)
{
	const struct pl_events *e = b->t->seg[seg];

	return pl_trace_clock_apply(b->seg[seg].clock[e->track[ev]],
				    pl_add_sat(e->ts[ev], e->seg.base_ns));
}
void pl_derive_steps(struct builder *b); /* windows of ranks, order of steps */
/* Resources and the operations of steps; all operations of a rank, in order of start. */
void pl_derive_gather(struct builder *b);
void pl_derive_list_ops(struct builder *b, struct rank *rank);
/* Host threads of a rank: segments, calls; its streams and launches. */
void pl_derive_host(struct builder *b, struct rank *rank);
void pl_derive_device(struct builder *b, struct rank *rank);
/* Recorded dependencies between operations: noted while the events are there, and made edges when
 * communication has its transfers. */
void pl_derive_note_after(struct builder *b, struct rank *rank);
void pl_derive_after(struct builder *b);
/* What the workers of a loader do while the rank computes. */
void pl_derive_loader(struct builder *b, struct rank *rank);
void pl_derive_threads(struct builder *b);    /* waits of threads for one another */
void pl_derive_waits(struct builder *b);      /* event waits and synchronisation */
void pl_derive_unrecorded(struct builder *b); /* ranks that wait for one another */
void pl_derive_tables(struct builder *b);     /* ranks without host threads */
void pl_derive_comm(struct builder *b);	      /* rendezvous, pairs */
/* Is it an operator of the tensor library that computes? Its pieces are computation: what a tensor
 * of another class does inside it has events of its own. */
bool pl_derive_is_kernel(struct builder *b, pl_id id);
/* Infers that the communication of a thread waits for what the operator that issues it copies from
 * a device, if threads of the rank call the device inside communication. */
void pl_derive_staged(struct builder *b, const struct rank *rank, const struct op *comm,
		      const struct op *issue);
/* Threads that only communicate: launches, and the waits of other threads. */
void pl_derive_service(struct builder *b, struct rank *rank);
/* Typical launch and dispatch times of a rank's devices; latencies of links. */
void pl_derive_latency(struct builder *b, const struct rank *rank);
void pl_derive_link_latency(struct builder *b);
/* Steps, order, shapes, tensors. The nodes and edges of the builder are gone then. */
void pl_derive_cut(struct builder *b);
/* Collect the operations of a rank that accumulate gradients or reduce, while its events are there;
 * find the device operations that produced its gradients, while its calls are there; find gradients
 * and their communication; once steps and shapes are known, write their tensors. */
void pl_derive_collect_tensors(struct builder *b, struct rank *rank);
void pl_derive_find_producers(struct builder *b, const struct rank *rank);
void pl_derive_find_tensors(struct builder *b);
void pl_derive_put_tensors(struct builder *b);
void pl_derive_drop_tensors(struct builder *b);
static inline bool pl_derive_shows_step(const struct builder *b, int32_t step)
{
	return step >= 0 && step < (int32_t)b->n_steps && b->step_shows[step];
}
/* Recorded allocations; as tensors of the shapes, after pl_derive_put_tensors(). */
void pl_derive_find_memory(struct builder *b);
void pl_derive_put_memory(struct builder *b);
void pl_derive_drop_memory(struct builder *b);

#endif
