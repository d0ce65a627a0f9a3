/*
 * trace.h - tracks, events in columns, and how they flow: trace(5).
 *
 * A trace is a series of segments; a segment came from one source (normally one profiler file of
 * one rank). String, track and event numbers belong to their segment. The producer of a trace (an
 * importer, the reader of the stream, a simulator) calls a `struct pl_sink`. Each consumer (the
 * writer, a filter, an exporter, merge, graph) is a sink.
 *
 * Times are int64 ns of the source's clock, less the segment's `base_ns`. They never change: merge
 * adds corrections (struct pl_merge), and readers apply them.
 */
#ifndef PL_TRACE_H
#define PL_TRACE_H

#include "io/container.h"

#define PL_TRACE_MAJOR 1
#define PL_TRACE_MINOR 0
#define PL_BATCH_ROWS  16384 /* events of a block */

/* ---- kinds: the registry of trace(5); unknown kinds pass through ----------------------------- */

/* X(name, word), in the order of their numbers. */
#define PL_TRACE_KINDS(X)                                                                          \
	X(OTHER, "other")                                                                          \
	X(HOST_OP, "host_op") /* framework operator on a host thread */                            \
	X(PYTHON, "python")   /* python function */                                                \
	X(RUNTIME, "runtime") /* CUDA runtime or driver call */                                    \
	X(KERNEL, "kernel")                                                                        \
	X(COPY, "copy")		    /* memory copy on the device */                                \
	X(SET, "set")		    /* memory set on the device */                                 \
	X(COLLECTIVE, "collective") /* its span is the communication: NCCL kernel ... */           \
	X(SEND, "send")                                                                            \
	X(RECV, "recv")                                                                            \
	X(SYNC, "sync")	    /* cuda_sync, barrier, rendezvous without data */                      \
	X(MEMORY, "memory") /* allocation, free */                                                 \
	X(DATA, "data")	    /* data loading */                                                     \
	X(STEP, "step")	    /* one training step on one rank */                                    \
	X(ANNOTATION, "annotation")                                                                \
	X(COUNTER, "counter")                                                                      \
	X(FLOW_OUT, "flow_out") /* start of an arrow (ph s) */                                     \
	X(FLOW_IN, "flow_in")	/* end of an arrow (ph f or t) */                                  \
	X(INSTANT, "instant")                                                                      \
	X(GPU_ANNOTATION, "gpu_annotation") /* a user's range on a stream; not work */             \
	X(WAIT, "wait")			    /* time that a resource waited, in simulations */
#define PL_KIND_ID(name, word) PL_K_##name,
enum pl_kind_id { PL_TRACE_KINDS(PL_KIND_ID) PL_K_COUNT_ };
#undef PL_KIND_ID
const char *pl_trace_kind_name(unsigned kind);	    /* "host_op", ...; "kind-37": "unknown" */
int pl_trace_kind_find(const char *name, size_t n); /* or -1 */
/* PL_EDATA if the glob matches no kind or class ("comm"; in graphs "gap", "all"). NULL: 0. */
int pl_trace_kind_check(const char *glob, bool of_graphs, struct pl_err *err) PL_MUST;
/* including a send or receive on a stream */
static inline bool pl_trace_kind_is_comm(unsigned k)
{
	return k == PL_K_COLLECTIVE || k == PL_K_SEND || k == PL_K_RECV;
}

/* ---- tracks ---------------------------------------------------------------------------------- */

/* X(name, word) */
#define PL_TRACE_TRACK_TYPES(X)                                                                    \
	X(OTHER, "other")                                                                          \
	X(THREAD, "thread") /* of a host */                                                        \
	X(STREAM, "stream") /* of a device */                                                      \
	X(COPY_ENGINE, "copy_engine")                                                              \
	X(LINK, "link")                                                                            \
	X(SERVER, "server")                                                                        \
	X(QUEUE, "queue")                                                                          \
	X(NODE, "node")                                                                            \
	X(JOB, "job")                                                                              \
	X(REQUEST, "request")
#define PL_TRACK_TYPE_ID(name, word) PL_T_##name,
enum pl_track_type { PL_TRACE_TRACK_TYPES(PL_TRACK_TYPE_ID) PL_T_COUNT_ };
#undef PL_TRACK_TYPE_ID
const char *pl_trace_track_type_name(unsigned type);

enum { PL_COORD_DP, PL_COORD_PP, PL_COORD_TP, PL_COORD_EP, PL_COORDS };

#define PL_TRACK_PID_STR 1u /* the source wrote pid as a JSON string */
#define PL_TRACK_TID_STR 2u

struct pl_track {
	uint8_t type;		  /* enum pl_track_type */
	uint8_t flags;		  /* PL_TRACK_* */
	int32_t rank;		  /* -1: unknown, or not of a rank ("Spans", "Traces") */
	int32_t device;		  /* GPU ordinal, -1 none */
	int32_t sort;		  /* thread_sort_index, or 0 */
	int32_t psort;		  /* process_sort_index, or 0 */
	int32_t coord[PL_COORDS]; /* -1 unknown */
	int64_t stream;		  /* of T_STREAM, else -1 */
	pl_id host;		  /* string; PL_NONE unknown */
	pl_id pid, tid;		  /* strings, as the source wrote them */
	pl_id name;		  /* thread_name; PL_NONE */
	pl_id process;		  /* process_name; PL_NONE */
	pl_id labels;		  /* process_labels or "k=v,..."; PL_NONE */
};

/* ---- columns --------------------------------------------------------------------------------- */

/*
 * The meaning of a column. The source wrote the values of a role under some key of its args. `key`
 * holds that key ("correlation" for PL_R_CORR from Kineto, PL_NONE if there was none), so that
 * nothing is stored twice and an exporter can write it again.
 */
/* X(name, word), in the order of numbers. RANKS to RECORD: communication and its host operation. */
#define PL_TRACE_ROLES(X)                                                                          \
	X(ARG, "arg")	  /* an argument: key says which */                                        \
	X(TOP, "top")	  /* another member of the event: "s", "bp", "tts" */                      \
	X(CAT, "cat")	  /* the source's category: string */                                      \
	X(PH, "ph")	  /* the source's phase, if it does not follow from the kind */            \
	X(STEP, "step")	  /* step number */                                                        \
	X(CORR, "corr")	  /* joins a runtime call and its device operations */                     \
	X(FLOW, "flow")	  /* id of an arrow (FLOW_OUT, FLOW_IN) */                                 \
	X(GROUP, "group") /* communication group: string */                                        \
	X(SEQ, "seq")	  /* sequence number within the group */                                   \
	X(PEER, "peer")	  /* rank at the other end */                                              \
	X(BYTES, "bytes") /* size of the message, copy or set */                                   \
	X(MB, "mb")	  /* microbatch */                                                         \
	X(CHUNK, "chunk") /* model chunk */                                                        \
	X(LAYER, "layer")                                                                          \
	X(COLL, "coll")			/* the collective, a word: string */                       \
	X(EXTERNAL, "external")		/* Kineto's "External id" */                               \
	X(VALUE, "value")		/* of a counter */                                         \
	X(CHANNEL, "channel")		/* of fine-grained communication */                        \
	X(OF, "of")			/* SEND, RECV: SEQ of the collective */                    \
	X(RANKS, "ranks")		/* members of the group: text that lists them */           \
	X(SIZE, "size")			/* how many members the group has */                       \
	X(ELEMENTS, "elements")		/* input of one rank, in elements of DTYPE */              \
	X(ELEMENTS_OUT, "elements_out") /* its output */                                           \
	X(DTYPE, "dtype")		/* string */                                               \
	X(DIMS, "dims")			/* sizes of its input tensors: JSON, nested lists */       \
	X(TYPES, "types")		/* their data types: JSON, a list */                       \
	X(RECORD, "record")		/* number in its process, in order of issue */             \
	X(SRC, "src")			/* rank that sends */                                      \
	X(DST, "dst")			/* rank that receives */                                   \
	X(STREAM, "stream")		/* of the event; of SYNC: the one that waits */            \
	X(WAIT_STREAM, "wait_stream")                                                              \
	X(WAIT_CORR, "wait_corr")   /* of the call that recorded the event to wait for */          \
	X(WAIT_EVENT, "wait_event") /* device event that is waited for */                          \
	X(ALLOC, "alloc")	    /* bytes allocated (> 0) or released (< 0) */                  \
	X(ADDRESS, "address")                                                                      \
	X(ALLOCATED, "allocated") /* by the allocator, after the event */                          \
	X(RESERVED, "reserved")                                                                    \
	X(DEVICE_TYPE, "device_type")                                                              \
	X(DEVICE, "device")                                                                        \
	X(VALUES, "values")	/* of its arguments that are no tensors: JSON, a list of texts */  \
	X(OP, "op")		/* the operator, where the name does not say it: string */         \
	X(FLOPS, "flops")	/* floating-point operations */                                    \
	X(MOVED, "moved")	/* bytes that it reads and writes */                               \
	X(AFTER, "after")	/* names of operations that it comes after: string, with blanks */ \
	X(SEQUENCE, "sequence") /* of an operation whose gradient is to be computed: its number */
#define PL_ROLE_ID(name, word) PL_R_##name,
enum pl_role { PL_TRACE_ROLES(PL_ROLE_ID) PL_R_COUNT_ };
#undef PL_ROLE_ID
#define PL_ROLE_BIT(role) ((uint64_t)1 << (role))
const char *pl_trace_role_name(unsigned role);
/*
 * One table has the keys under which profilers write the values of a role. Importers find the role
 * of an argument there, exporters the key of a role without one, and the reader the roles of old
 * streams, whose format did not have them.
 */
#define PL_ROLE_KEYS 37 /* rows of the table */
/* The role of argument `key` with a value of this type (PL_V_COUNT_: any); PL_R_ARG: no role. */
unsigned pl_trace_role_of_key(const char *key, size_t n, unsigned type);
const char *pl_trace_role_key(unsigned role); /* the usual key, or the role's name */

enum pl_type {
	PL_V_INT,  /* val */
	PL_V_DEC,  /* val / 10^scale, as written ("1.50" is 150, 2) */
	PL_V_STR,  /* val: string id */
	PL_V_JSON, /* val: string id of the raw JSON text (arrays, objects, unusual numbers) */
	PL_V_BOOL, /* 0, 1 */
	PL_V_NULL,
	PL_V_COUNT_
};

struct pl_col {
	uint8_t role, type;
	pl_id key; /* string id, PL_NONE */
	uint32_t n, cap;
	uint32_t *row; /* ascending rows of the batch that have a value (n of them) */
	int64_t *val;
	uint8_t *scale; /* only for V_DEC, else NULL */
};

/* Up to PL_BATCH_ROWS events. Arrays of n, except `col`. */
struct pl_batch {
	uint32_t n;
	uint64_t first; /* ordinal of row 0 in the segment */
	uint8_t *kind;
	pl_id *track, *name;
	pl_ns *ts, *dur; /* dur -1: no duration in the source (instants, flows) */
	struct pl_col *col;
	uint32_t n_cols, cap_cols;
	uint32_t n_kept;	 /* columns with memory: those after n_cols are unused */
	uint32_t *slot, n_slots; /* only for pl_trace_batch_col(): columns by hash */
};
int pl_trace_batch_init(struct pl_batch *b,
			struct pl_err *err) PL_MUST; /* room for PL_BATCH_ROWS */
void pl_trace_batch_clear(struct pl_batch *b);	     /* n = 0; columns are kept, empty */
void pl_trace_batch_forget(struct pl_batch *b);	     /* n = 0; other columns get their memory */
void pl_trace_batch_fini(struct pl_batch *b);
/* Find or add the column. The index stays valid until pl_trace_batch_fini(). */
int pl_trace_batch_col(struct pl_batch *b, uint8_t role, uint8_t type, pl_id key, uint32_t *index,
		       struct pl_err *err) PL_MUST;
int pl_trace_col_put_slow(struct pl_col *c, struct pl_err *err);
/* Append a value for row `row`. Rows must ascend; a row that comes twice has two values. */
static inline int PL_MUST pl_trace_col_put(struct pl_col *c, uint32_t row, int64_t val,
					   unsigned scale, struct pl_err *err)
{
	if (PL_UNLIKELY(c->n == c->cap)) {
		int rc = pl_trace_col_put_slow(c, err);
		if (rc < 0)
			return rc;
	}
	c->row[c->n] = row;
	c->val[c->n] = val;
	if (c->scale)
		c->scale[c->n] = (uint8_t)scale;
	c->n++;
	return 0;
}

/* ---- segments -------------------------------------------------------------------------------- */

struct pl_meta {
	pl_id key, value; /* strings; value is raw JSON text, so a string has its quotes */
};

/* The format of segments that libraries recorded in a process (paceline-record(5)). Several of
 * them, one behind the other, are of one process if they have a common process id. */
#define PL_TRACE_RECORDER "paceline-record"

struct pl_segment {
	uint32_t index; /* in the stream */
	struct pl_intern str;
	struct pl_track *track; /* may be redefined until the end of the segment */
	uint32_t n_tracks;
	size_t cap_tracks;
	struct pl_meta *meta; /* top-level members of the source, in order */
	uint32_t n_meta;
	size_t cap_meta;
	/* A long source is cut into several segments: the number of this one, from 0. From 1 on it
	 * continues the segment before it, if both have the same source. */
	uint32_t part;
	int64_t base_ns;	  /* add to every time; may become known only at the end */
	char *source;		  /* name of the source file (without folders); "" unknown */
	char *format;		  /* "kineto", "chrome", "optable", "replay" ... */
	uint64_t n_events;	  /* number of events passed on so far */
	struct pl_buf provenance; /* lines of "program version: command" */
};
int pl_trace_segment_init(struct pl_segment *s, struct pl_err *err) PL_MUST;
void pl_trace_segment_fini(struct pl_segment *s);
/* Does the rank have streams on several devices? */
bool pl_trace_segment_devices(const struct pl_segment *s, int32_t rank);
int pl_trace_segment_track(struct pl_segment *s, const struct pl_track *t, pl_id *id,
			   struct pl_err *err) PL_MUST;
int pl_trace_segment_meta(struct pl_segment *s, const char *key, size_t nk, const char *value,
			  size_t nv, struct pl_err *err) PL_MUST;
const char *pl_trace_segment_meta_get(const struct pl_segment *s,
				      const char *key); /* raw JSON or NULL */
/* A string of the segment and its length; "" and 0 for a number without string. */
static inline const char *pl_trace_segment_str(const struct pl_segment *s, pl_id id, size_t *n)
{
	if (id >= s->str.n) {
		*n = 0;
		return "";
	}
	*n = s->str.len[id];
	return s->str.str[id];
}
/* The facts about the job in the header of the source. */
struct pl_trace_group { /* a group of this rank */
	char *name;	/* NULL unknown */
	int32_t *rank;	/* as listed */
	size_t n, cap;
	int64_t size;	 /* 0: unknown */
	bool listed;	 /* the list of ranks exists; an empty list means all ranks */
	bool unreadable; /* the list is not a list of ranks */
};
struct pl_trace_header {
	int64_t rank, world; /* -1, 0: not in the header */
	struct pl_trace_group *group;
	size_t n_groups, cap_groups;
	bool rank_alone; /* read only the rank */
};
/* rank_alone: skip the groups, which are long in a large job and come after the rank. */
int pl_trace_header_read(const struct pl_segment *s, bool rank_alone, struct pl_trace_header *h,
			 struct pl_err *err) PL_MUST;
void pl_trace_header_fini(struct pl_trace_header *h);
/* The number at the end of a name such as "ProfilerStep#3"; INT64_MIN: none. */
int64_t pl_trace_step_number(const struct pl_segment *s, pl_id name);
/* Make all members unknown. */
void pl_trace_track_init(struct pl_track *t);

/* ---- what merge adds ------------------------------------------------------------------------- */

/* aligned = t + base - offset(t + base); offset(x) = offset_ns + drift_ppm * 1e-6 * (x - ref_ns) */
struct pl_clock {
	char *host; /* NULL unknown */
	int64_t offset_ns,
		offset_ci_ns; /* offset to the first clock; half width of the 95 % interval */
	double drift_ppm, drift_ci_ppm;
	int64_t ref_ns; /* local absolute time of its first event, where offset_ns holds */
	int64_t residual_p50_ns, residual_p95_ns, residual_max_ns;
};
struct pl_clock_use {
	uint32_t segment;
	int32_t rank; /* rank of the tracks that use it */
	uint32_t clock;
};
#define PL_GROUP_INFERRED 1u
struct pl_group {
	char *name;	/* "tp0", or as recorded */
	uint32_t *rank; /* members, ascending */
	uint32_t n;
	uint32_t flags;
};
#define PL_MATCH_MISSING  1u /* not every member of the group was found */
#define PL_MATCH_INFERRED 2u /* matched by order, not by a recorded sequence number */
#define PL_MATCH_P2P	  4u /* member 0 sends, member 1 receives */
/* With P2P: a message of a collective, which is the latest match before it without this flag. A
 * message without a recorded receive has no member 1 and is marked MISSING. */
#define PL_MATCH_MESSAGE 8u
struct pl_match {
	uint32_t group;	   /* PL_NONE for point to point */
	uint32_t first, n; /* members */
	uint32_t flags;
};
struct pl_member {
	uint32_t segment;
	uint32_t event; /* ordinal in the segment */
};
struct pl_merge {
	struct pl_clock *clock;
	struct pl_clock_use *use;
	struct pl_group *group;
	struct pl_match *match;
	struct pl_member *member;
	uint32_t n_clocks, n_uses, n_groups, n_matches, n_members;
	struct pl_buf provenance; /* lines of the program that made it */
};
void pl_trace_merge_fini(struct pl_merge *m);
/* A deep copy, with the uses sorted by segment and rank. */
int pl_trace_merge_dup(const struct pl_merge *from, struct pl_merge *to,
		       struct pl_err *err) PL_MUST;
/* The clock of the rank's tracks in the segment, NULL: unknown. Tracks without a rank use the first
 * clock of the segment. The uses must be sorted, as merge_dup() and load() leave them. */
const struct pl_clock *pl_trace_merge_clock(const struct pl_merge *m, uint32_t segment,
					    int32_t rank);
/* Convert a local time to the common clock; c NULL: no change. An impossible drift is ignored. */
pl_ns pl_trace_clock_apply(const struct pl_clock *c, pl_ns local);
/* Write m as a segment, before its traces. Its segment numbers count from the next segment. */
int pl_trace_merge_write(const struct pl_merge *m, struct pl_container_writer *w,
			 struct pl_err *err) PL_MUST;

/* ---- flow ------------------------------------------------------------------------------------ */

struct pl_sink {
	/* A segment begins; its strings and tracks still grow. Any function may be NULL. */
	int (*begin)(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err);
	/* b is valid only during the call. */
	int (*batch)(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		     struct pl_err *err);
	int (*end)(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err);
	/* Called before the segments that m describes. m is valid only during the call. */
	int (*merge)(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err);
};

struct pl_trace_writer_opts {
	int level;
	struct pl_pool *pool;
	const char *provenance; /* a line to add, or NULL */
};
/* A sink that writes trace(5) to `out` (borrowed). */
struct pl_sink *pl_trace_writer_open(struct pl_out *out, const struct pl_trace_writer_opts *opts,
				     struct pl_err *err);
int pl_trace_writer_close(struct pl_sink *s, struct pl_err *err) PL_MUST;
void pl_trace_writer_abort(struct pl_sink *s);

struct pl_trace_reader_opts {
	struct pl_pool *pool;
	bool salvage;
	const struct pl_log *log;
	/* Roles of the columns to decode, as bits; 0: all. Other columns are not checked. */
	uint64_t roles;
	/* Only for pl_trace_load(): kinds of events to keep, as bits; 0: all events. */
	uint64_t kinds;
	/* Only for pl_trace_load(): keys of the metadata to keep, ended by NULL; NULL: all. In a
	 * large job the metadata is larger than the events, because each rank's file describes all
	 * groups. Strings that only unwanted metadata use become empty. */
	const char *const *metadata;
	/* Only for pl_trace_load(): the merge of the stream, which does not have it, or has others
	 * that do not count; NULL: the merges of the stream. */
	const struct pl_merge *merge;
	/* batch() may see strings, tracks and metadata that the stream defines later, a number that
	 * depends on the threads: only for sinks that read them at the end of the segment. */
	bool ahead;
	/* Gets every compressed member, for a program that copies blocks without change. `segment`
	 * counts all segments of the stream; `merge`: the member belongs to a merge segment. */
	int (*raw)(void *arg, uint32_t segment, bool merge, const void *member, size_t n,
		   struct pl_err *err);
	void *arg;
	uint64_t *events; /* the number of passed events is added to it; may be NULL */
};
/* Read a whole stream into a sink. begin() gets the definitions before the first events: source,
 * format, first strings and tracks. A sink must not keep indices of columns from one call to the
 * next. A negative code of the sink, PL_ESTOP included, ends the reading and is returned. end() may
 * take the contents of the segment. With salvage, blocks that cannot be used are logged and left
 * out. */
int pl_trace_read(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_sink *sink,
		  struct pl_err *err) PL_MUST;

/* ---- a trace in memory ----------------------------------------------------------------------- */

/* Dense columns of one segment. Optional ones are NULL if the segment has no values. */
struct pl_events {
	struct pl_segment seg; /* strings, tracks, meta: owned */
	uint64_t n;
	uint8_t *kind;
	pl_id *track, *name;
	pl_ns *ts, *dur;
	int64_t *step; /* INT64_MIN: none, as in all of these */
	int64_t *corr, *flow, *seq, *peer, *bytes, *mb, *chunk, *layer, *external, *channel, *of;
	int64_t *record, *stream, *wait_stream, *wait_corr, *wait_event;
	int64_t *alloc, *address, *allocated, *device_type, *device, *flops, *moved, *sequence;
	pl_id *group, *coll, *cat, *dims, *types, *values, *op,
		*after; /* strings of seg; PL_NONE */
};
struct pl_trace {
	struct pl_events **seg;
	uint32_t n_segs;
	size_t cap_segs;
	struct pl_merge merge;	     /* all zeros if the stream was not merged */
	struct pl_intern provenance; /* the lines of all segments, each once; they have none */
	bool merged;
	uint32_t n_merges; /* joined merge tables; with several, clocks differ */
};
/*
 * Load the columns of the roles in `opts`. Several merged streams in one file are joined: segments,
 * clocks, groups and members are renumbered. Every segment and event that `merge` names exists
 * (with salvage, other members are removed). A correlation, flow or external id that is not a
 * number gets a negative number of its own. Members of the merge table name rows.
 */
int pl_trace_load(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_trace *t,
		  struct pl_err *err) PL_MUST;
/* Does the stream begin with a merge? Nothing is consumed. */
bool pl_trace_is_merged(struct pl_in *in);
void pl_trace_fini(struct pl_trace *t);
/* Add the new lines of a provenance to `lines`. */
int pl_trace_add_lines(struct pl_intern *lines, const struct pl_buf *provenance,
		       struct pl_err *err) PL_MUST;
/* Free the events' columns (they become NULL) and strings; counts, tracks and merge table stay. */
void pl_trace_drop(struct pl_trace *t, uint32_t seg);
/*
 * Call it before computing with times: afterwards sums and differences of a few times cannot
 * overflow. Times and durations more than a year away from the rest of their segment are replaced:
 * by the nearest time of the others and no duration. *n counts these events. PL_EDATA if a whole
 * segment or a clock is beyond 2^62 ns.
 */
int pl_trace_clamp_outliers(struct pl_trace *t, uint64_t *n, struct pl_err *err) PL_MUST;

/* ---- names of communication ------------------------------------------------------------------ */

/* The canonical collective ("allreduce" ...) of a name such as
 * "ncclDevKernel_AllReduce_Sum_f16_RING_LL(...)", "gloo:all_reduce", "c10d::allreduce_" or
 * "grads-reduce-scatter"; NULL: none. */
const char *pl_trace_coll_from_name(const char *name, size_t n);
/* Write recorded sizes of tensors, "[[800], [7]]", without blanks, cut to `size`, ended by 0;
 * returns the length. `first`: only the sizes of the first argument, because an operator that
 * issues a communication ("[[[800], [7]], [], []]") has only this argument in common with it. */
size_t pl_trace_dims_text(const char *dims, bool first, char *text, size_t size);

/* Bytes of an element of a data type, 0: unknown. *plain (may be NULL): its name in NumPy, NULL. */
int64_t pl_trace_dtype(const char *s, size_t n, const char **plain);

/* The canonical collectives: X(name, word). OTHER: communication without a known operation. */
#define PL_TRACE_COLLS(X)                                                                          \
	X(OTHER, "collective")                                                                     \
	X(ALLREDUCE, "allreduce")                                                                  \
	X(REDUCE_SCATTER, "reduce_scatter")                                                        \
	X(ALLGATHER, "allgather")                                                                  \
	X(BROADCAST, "broadcast")                                                                  \
	X(ALLTOALL, "alltoall")                                                                    \
	X(REDUCE, "reduce")                                                                        \
	X(GATHER, "gather")                                                                        \
	X(SCATTER, "scatter")                                                                      \
	X(SEND, "send")                                                                            \
	X(RECV, "recv")                                                                            \
	X(SENDRECV, "sendrecv")                                                                    \
	X(BARRIER, "barrier")
#define PL_COLL_ID(name, word) PL_COLL_##name,
enum pl_coll { PL_TRACE_COLLS(PL_COLL_ID) PL_COLL_COUNT_ };
#undef PL_COLL_ID
const char *pl_trace_coll_name(unsigned coll);		 /* OTHER and unknown: "collective" */
unsigned pl_trace_coll_find(const char *name, size_t n); /* PL_COLL_OTHER: no canonical one */
/* Properties of a canonical collective. An unknown one moves data. */
enum {
	PL_COLL_MOVES_DATA = 1,
	PL_COLL_MEETS = 2,     /* no member ends before all have begun */
	PL_COLL_ROOTED = 4,    /* members may leave before others begin */
	PL_COLL_SAME_SIZE = 8, /* its size is the same on all ranks */
	PL_COLL_EXCHANGE = 16, /* sends and receives together */
};
unsigned pl_trace_coll_properties(const char *name);

#endif
