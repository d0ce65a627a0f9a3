/*
 * internal.h - the common parts of the importers: the input window, the report of skipped events,
 * the event reader, rows, and joining communication with the host events that describe it.
 */
#ifndef PL_IMPORT_INTERNAL_H
#define PL_IMPORT_INTERNAL_H

#include "import/import.h"
#include "import/scan.h"
#include "io/json.h"

/* ---- reporting ----------------------------------------------------------------------------- */

struct pl_report {
	const struct pl_import_opts *o;
	struct pl_import_stats *st;
	const char *file;	/* as the user named it */
	const char *unit;	/* of positions: "line" ...; NULL: bytes */
	const char *logged[16]; /* classes (static texts) that were logged */
	unsigned n_logged;
};
/* How an importer handles an error in its input. */
enum pl_fate {
	PL_BAD,	      /* an event is skipped and counted */
	PL_BAD_VALUE, /* a value is skipped and counted, its event is kept */
	PL_TOLERATED, /* the value is not valid, but it is read */
	PL_TRUNCATED, /* the input ends early */
};
/* Logs each text once; PL_EDATA when strict. */
int pl_import_report(struct pl_report *r, enum pl_fate fate, int64_t at, const char *what,
		     struct pl_err *err) PL_MUST;

/* ---- the input window ---------------------------------------------------------------------- */

/* [p, end) may be read by the scanners; PL_SLACK bytes after `end` are readable too. */
struct pl_src {
	struct pl_in *in;
	struct pl_report *report;
	const char *p, *end;
	const char *base;   /* the window's first byte ... */
	int64_t offset;	    /* ... and its offset in the input */
	bool eof;	    /* `end` is the end of the input */
	int64_t vain;	    /* bytes searched without finding an end */
	struct pl_buf tail; /* the input's last bytes, padded */
};
#define PL_SRC_WINDOW ((size_t)256 << 10)
#define PL_SRC_MAX    ((size_t)16 << 20) /* the largest event or member that is read */

void pl_import_src_init(struct pl_src *s, struct pl_in *in, struct pl_report *r);
void pl_import_src_fini(struct pl_src *s);
/* Drop the bytes before p, and read until there are `want` bytes, or eof. A damaged gzip ends
 * early. */
int pl_import_src_fill(struct pl_src *s, size_t want, struct pl_err *err) PL_MUST;
/* The first window: p is behind a byte order mark and white space. */
int pl_import_src_begin(struct pl_src *s, struct pl_err *err) PL_MUST;
/* The position after the JSON value at p; past `end` if the window ends first. */
const char *pl_import_value_end(const char *p, const char *end);
/* The distance from p within which the end of an event or member is searched: `max` bytes; less
 * after many failures, because they would take much longer than reading the input. */
const char *pl_import_src_limit(const struct pl_src *s, size_t max);
static inline int64_t pl_import_src_at(const struct pl_src *s, const char *q)
{
	return s->offset + (q - s->base);
}

/* ---- names of ranks and hosts -------------------------------------------------------------- */

/* Finds the rank by --rank-from; -1: unknown. `info`: the rank that the file itself has, or -1. */
int pl_import_pick_rank(const struct pl_import_opts *o, const char *path, int32_t info,
			int32_t *rank, struct pl_err *err) PL_MUST;
/* The same for a process that has rank `local` (-1: none) in its largest communicator, of `size`
 * ranks (0: unknown), which may be a part of the job. The file's name counts if it says a rank that
 * the communicator does not have, and a warning says so; also where the name says another rank.
 * Where *rank is not `local`, members of that communicator are not known by their ranks. */
int pl_import_member_rank(const struct pl_import_opts *o, const char *path, int32_t local,
			  int64_t size, int32_t *rank, struct pl_err *err) PL_MUST;
/* An empty segment with source and format. */
int pl_import_begin(struct pl_segment *seg, const char *path, const char *format,
		    struct pl_err *err) PL_MUST;

/* ---- rows: batches, tracks, segments ------------------------------------------------------- */

struct pl_comm;

/* A row of communication whose size, group ... may have to come from other events; see join.c. */
struct pl_comm_row {
	uint32_t row;
	bool host;				      /* on a host thread (gloo), not a kernel */
	bool has_coll, has_bytes, has_group, has_seq; /* the event has it in a column */
	int64_t corr, rf;			      /* -1 none */
	int64_t bytes;	  /* derived from the event's own arguments, -1 unknown */
	const char *coll; /* canonical, from its name or arguments; NULL unknown */
	pl_id group;	  /* from other arguments, PL_NONE: unknown */
};

struct pl_held {
	struct pl_batch b;
	struct pl_comm_row *row;
	size_t n_rows, cap_rows;
};

struct pl_coldef {
	uint8_t role, type;
	pl_id key;
};

#define PL_MAX_COLS    1024  /* after this many, a new segment begins with new columns */
#define PL_MAX_MEMBERS 60000 /* of one event; a block of a trace holds 65536 columns */
/* A segment ends when its strings and the tables of their ids take this. Real profiles of 100,000
 * events need less than 1 MiB. A program that reads the stream holds one dictionary, so this limits
 * the memory of every reader. */
#define PL_DICTIONARY_BYTES ((size_t)16 << 20)
#define PL_HOLD_MAX	    24 /* the greatest number of batches that wait for sizes */

struct pl_rows {
	const struct pl_import_opts *o;
	struct pl_report *report;
	struct pl_sink *sink;
	const char *path, *format;
	struct pl_segment seg;
	bool open;  /* begin() was called */
	bool whole; /* one segment with any number of strings, because rows are held as ids */
	struct pl_held *cur;
	struct pl_held *queue[PL_HOLD_MAX + 2]; /* batches that wait, oldest first */
	struct pl_held *spare[PL_HOLD_MAX + 2];
	uint32_t n_queue, n_spare;
	struct pl_coldef *def; /* the columns of every batch, in the same order */
	size_t n_defs, cap_defs;
	struct pl_comm *comm; /* NULL: nothing to join */
	uint32_t segments;    /* number of ended segments */
	uint32_t part;	      /* of those, since the rows were opened by the importer */
	size_t max_dictionary_bytes;
	/* The first failure of functions that return no code; the end of the row returns it. */
	int rc;
	struct pl_err *err;
	/* completes the tracks before the segment ends */
	int (*finish)(void *arg, struct pl_err *err);
	/* called after a new segment began: adds the rows that each segment needs */
	int (*again)(void *arg, struct pl_err *err);
	/* called when the ids of the last segment become invalid: clears caches of them */
	void (*renew)(void *arg);
	void *arg;
};
/* The report of an importer, and its rows, which report to it; `arg` is that of the functions
 * above. The importer sets what else it needs, and opens the rows. */
void pl_import_rows_init(struct pl_rows *r, struct pl_report *report, struct pl_in *in,
			 const struct pl_import_opts *o, struct pl_sink *sink,
			 struct pl_import_stats *st, const char *format, void *arg);
int pl_import_rows_open(struct pl_rows *r, struct pl_err *err) PL_MUST;
/* Column number of (role, type, key) in every batch of this segment. */
int pl_import_rows_col(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, uint32_t *index,
		       struct pl_err *err) PL_MUST;
int pl_import_rows_str(struct pl_rows *r, const char *s, size_t n, pl_id *id,
		       struct pl_err *err) PL_MUST;
/* Row b->n is complete. Passes a full batch on, and begins a new segment if needed. */
int pl_import_rows_flush(struct pl_rows *r, bool last, struct pl_err *err) PL_MUST;
static inline int PL_MUST pl_import_rows_done(struct pl_rows *r, struct pl_err *err)
{
	if (PL_UNLIKELY(r->rc < 0))
		return r->rc;
	return PL_LIKELY(++r->cur->b.n < PL_BATCH_ROWS && r->n_defs <= PL_MAX_COLS &&
			 pl_intern_bytes(&r->seg.str) <= r->max_dictionary_bytes)
		       ? 0
		       : pl_import_rows_flush(r, false, err);
}
/* The same with the values that every event has. */
static inline int PL_MUST pl_import_rows_event(struct pl_rows *r, uint8_t kind, pl_id track,
					       pl_id name, pl_ns ts, pl_ns dur, struct pl_err *err)
{
	struct pl_batch *b = &r->cur->b;

	b->kind[b->n] = kind;
	b->track[b->n] = track;
	b->name[b->n] = name;
	b->ts[b->n] = ts;
	b->dur[b->n] = dur;
	return pl_import_rows_done(r, err);
}
/* Before a row: rows that were undone may have left columns, and the next undo visits them all. */
static inline int PL_MUST pl_import_rows_ready(struct pl_rows *r, struct pl_err *err)
{
	return PL_LIKELY(r->n_defs <= PL_MAX_COLS) ? 0 : pl_import_rows_flush(r, false, err);
}
/* Undo the columns of the current row. */
void pl_import_rows_undo(struct pl_rows *r);
/* The same; PL_NONE after a failure. The formatted text has at most 95 bytes. */
pl_id pl_import_rows_text(struct pl_rows *r, const char *s, size_t n);
pl_id pl_import_rows_format(struct pl_rows *r, const char *fmt, ...) PL_PRINTF(2, 3);
/* A value for the current row, unless it has one in this column already. */
void pl_import_rows_put(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, int64_t val);
void pl_import_rows_put_dec(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, int64_t val,
			    uint8_t scale);
int pl_import_rows_close(struct pl_rows *r, struct pl_err *err) PL_MUST; /* last batch and end() */
/* After a flush with `last`: the rows of the segment come again from the first one, with the same
 * strings, tracks and columns. */
int pl_import_rows_again(struct pl_rows *r, struct pl_err *err) PL_MUST;
void pl_import_rows_fini(struct pl_rows *r);

/* ---- communication: join.c ----------------------------------------------------------------- */

struct pl_comm_op { /* an event of a host thread: record_param_comms, "nccl:all_reduce" */
	pl_ns t0, t1;
	int64_t rf;		      /* record function id, -1 */
	int64_t bytes, elements, seq; /* -1 unknown */
	int64_t peer;		      /* rank at the other end, -1 unknown */
	const char *coll;	      /* canonical, static; NULL unknown */
	pl_id group;		      /* in the joiner's own strings, PL_NONE */
	uint32_t et;		      /* node of the execution trace, PL_NONE */
	bool rpc;		      /* record_param_comms */
	int8_t tensors;		      /* do its inputs include tensors? -1: inputs not recorded */
};
/* `path` and `log` are borrowed; reached limits are logged. */
struct pl_comm *pl_import_comm_new(const char *path, const struct pl_log *log, struct pl_err *err);
void pl_import_comm_free(struct pl_comm *c);
void pl_import_comm_renew(struct pl_comm *c); /* new segment: track numbers are void */
int pl_import_comm_text(struct pl_comm *c, const char *s, size_t n, pl_id *id,
			struct pl_err *err) PL_MUST;
/* pid and tid are integers, because integers mean the same in every segment. */
int pl_import_comm_add_op(struct pl_comm *c, int64_t pid, int64_t tid, const struct pl_comm_op *op,
			  struct pl_err *err) PL_MUST;
/* Add a runtime call with this correlation, if it was made inside one of the operations. */
int pl_import_comm_add_launch(struct pl_comm *c, uint32_t track, int64_t pid, int64_t tid, pl_ns ts,
			      int64_t corr, struct pl_err *err) PL_MUST;
/* Use the execution trace of this process, if there is one. The first call searches for it. */
void pl_import_comm_use_et(struct pl_comm *c, const struct pl_et *et, const char *pid,
			   int32_t rank);
/* Must batches wait until the end, because they will be joined with an execution trace? */
bool pl_import_comm_hold(const struct pl_comm *c);
/* Write the known values into the columns of h, which has all columns of r. */
int pl_import_comm_resolve(struct pl_comm *c, struct pl_rows *r, struct pl_held *h,
			   struct pl_err *err) PL_MUST;

/* ---- execution traces: et.c ---------------------------------------------------------------- */

struct pl_et_node {
	int64_t rf;			/* record function id: order of starts */
	int64_t bytes;			/* of inputs or outputs, the greater number; -1 unknown */
	int64_t elements, elements_out; /* of its inputs, and of its outputs; -1 unknown */
	int64_t group_size;		/* -1 unknown */
	const char *coll;		/* canonical, static; NULL unknown */
	const char *group;		/* name or ranks, NULL unknown */
	bool rpc, wait;
};
struct pl_et_file {
	char *pid;
	int32_t rank;		 /* from the file's name, -1 */
	struct pl_et_node *node; /* by rf */
	size_t n, cap;
};
/* The text of an execution trace of PyTorch with the nodes of communication of one of Chakra, which
 * is read message by message: et_chakra.c. */
int pl_import_et_of_chakra(struct pl_in *in, struct pl_buf *json, struct pl_err *err) PL_MUST;
/* The file of the process `pid`; if several have this pid, the one of this rank. NULL: none. */
const struct pl_et_file *pl_import_et_find(const struct pl_et *et, const char *pid, int32_t rank);

/* ---- the event reader: events.c, values.c -------------------------------------------------- */

enum pl_top {
	PL_TOP_OTHER,
	PL_TOP_PH,
	PL_TOP_CAT,
	PL_TOP_NAME,
	PL_TOP_PID,
	PL_TOP_TID,
	PL_TOP_TS,
	PL_TOP_DUR,
	PL_TOP_ARGS,
	PL_TOP_ID,
	PL_TOP_ID2,
	PL_TOP_SCOPE,
};
/* Codes of arguments: the role of its key, or one of these for keys without a role. */
enum pl_argc {
	PL_A_NONE = PL_R_ARG,
	PL_A_DESC = PL_R_COUNT_,
	PL_A_DEVICE,
	PL_A_NAME,
	PL_A_LABELS,
	PL_A_SORT,
	PL_A_COUNT_
};

#define PL_NEXT 4
enum pl_keyspace { PL_KS_TOP, PL_KS_ARG, PL_KS_VALUE, PL_KS_COUNT_ };

/* A key that was seen. The keys that followed it are tried first: see events.c. */
struct pl_key {
	char text[32];	      /* with its closing quote, if it fits */
	uint32_t len, m0, m1; /* bytes of text; masks of its first and second 16 bytes */
	uint8_t code;	      /* enum pl_top; of arguments a role or enum pl_argc */
	uint8_t space;
	uint32_t index;		   /* in pl_ev.key and key_text */
	uint32_t event;		   /* the last event with this key: finds duplicates */
	pl_id id;		   /* string */
	uint32_t col[PL_V_COUNT_]; /* column + 1, 0 not yet */
	struct pl_key *next[PL_NEXT];
	uint8_t victim; /* the entry of next[] that a new key replaces */
};

/* A recent string: 8 bytes from its start, middle and end identify a short one. */
struct pl_recent {
	uint64_t a, m, z;
	uint32_t len;
	pl_id id;
};
#define PL_RECENT 1024

/* Facts about a string; 0: not determined yet. */
struct pl_strinfo {
	pl_id repaired;	 /* the valid JSON that is stored instead */
	uint8_t nested;	 /* as a nested value: 1 clean, 2 repaired, 3 malformed */
	uint8_t name;	 /* enum pl_nclass */
	uint8_t cat;	 /* kind + 1 */
	uint8_t coll[2]; /* the collective that a name and an argument mean */
};

enum pl_tok { PL_TOK_NONE, PL_TOK_INT, PL_TOK_STR, PL_TOK_RAW };
struct pl_pid { /* a pid or tid as written: an integer, a string, another number */
	int64_t v;
	uint8_t tok;
};

/* The fields of one event. */
struct pl_fields {
	char ph;
	bool has_ts, has_dur, has_id, odd_dur;
	uint8_t dur_type, dur_scale, id_type;
	pl_id name, cat;  /* PL_NONE */
	pl_id id2, scope; /* as written, with the quotes; PL_NONE */
	struct pl_pid pid, tid;
	pl_ns ts, dur;
	int64_t dur_raw, id; /* dur as written, if it is no duration */
	uint64_t have;	     /* bits of the codes of arguments with valid entries */
	int64_t arg[PL_A_COUNT_];
	uint8_t arg_type[PL_A_COUNT_];
};

struct pl_ev {
	struct pl_rows *rows;
	struct pl_report *report;
	const char *what; /* why the event is bad */
	const char *where;
	bool more;	       /* the window ended inside the event */
	const char *tolerated; /* this event has something that is not JSON */
	const char *value_bad; /* a value was lost, the event is kept */
	bool counter;	       /* the arguments are values of a counter */
	uint32_t event;	       /* number of the event, for duplicates */
	struct pl_fields f;
	struct pl_key *root_top, *root_value, *root_arg[64];
	struct pl_intern key_text; /* keyspace, text */
	struct pl_key **key;
	size_t n_keys, cap_keys;
	struct pl_arena key_mem;
	struct pl_recent recent[PL_RECENT];
	struct pl_buf tmp;	 /* unescaped and repaired text */
	struct pl_strinfo *info; /* by string id */
	size_t n_info, cap_info;
	bool chrome; /* general Chrome JSON: an argument "step" is the step */
	uint32_t col_cat, col_ph, col_flow[PL_V_COUNT_], col_step; /* + 1 */
	struct pl_err *err;
	int rc;
};
int pl_import_event_init(struct pl_ev *e, struct pl_rows *rows, struct pl_report *report,
			 struct pl_err *err) PL_MUST;
void pl_import_event_fini(struct pl_ev *e);
void pl_import_event_renew(struct pl_ev *e);
void pl_import_event_begin(struct pl_ev *e); /* an event without anything */
/*
 * Read the event at p (a '{') into e->f and the columns of the current row. Returns the byte after
 * it; NULL with e->rc < 0 (fatal), e->more (the window ends first) or e->what at e->where (bad
 * event). The caller completes or undoes the row.
 */
const char *pl_import_event_read(struct pl_ev *e, const char *p, const char *end);
/* Adds the arguments of another event text to the row, except those that the row already has. */
const char *pl_import_event_read_more(struct pl_ev *e, const char *p, const char *end);
static inline const char *pl_import_window_ends(struct pl_ev *e)
{
	e->more = true;
	return NULL;
}
/* values.c: one value after its key. NULL as above. */
static inline bool pl_has(const struct pl_fields *f, unsigned a)
{
	return f->have >> a & 1;
}
struct pl_strinfo *pl_import_event_info(struct pl_ev *e, pl_id id); /* NULL: no memory */
const char *pl_import_event_value(struct pl_ev *e, struct pl_key *k, const char *p,
				  const char *end);
/* Valid JSON? 0: yes; 1: with small errors, which pl_import_json_repair() removes; -1: no. */
int pl_import_json_check(const char *s, size_t n);
int pl_import_json_repair(const char *s, size_t n, struct pl_buf *b, struct pl_err *err) PL_MUST;
const char *pl_import_event_string(struct pl_ev *e, const char *p, const char *end, pl_id *id);
const char *pl_import_event_number(const char *p, const char *end, uint8_t *type, int64_t *v,
				   uint8_t *scale);
const char *pl_import_event_word(struct pl_ev *e, const char *p, const char *end, size_t *n);
const char *pl_import_event_bad(struct pl_ev *e, const char *where, const char *what);

/* ---- meaning of events: meaning.c ----------------------------------------------------------- */

enum pl_nclass { /* class of a name; 0: not determined */
		 PL_N_NEW,
		 PL_N_PLAIN,
		 PL_N_STEP,	/* ProfilerStep#3 */
		 PL_N_DATA,	/* enumerate(DataLoader) */
		 PL_N_MEMORY,	/* [memory] */
		 PL_N_DEVCOMM,	/* a kernel that communicates */
		 PL_N_HOSTCOMM, /* gloo:all_reduce: the communication itself, on a host thread */
		 PL_N_RPC,	/* record_param_comms: describes a collective */
		 PL_N_RANGE,	/* nccl:all_reduce: the range in which it is launched */
		 PL_N_POST, /* c10d::send: the operator that posts gloo:send, and names the peer */
		 PL_N_OPTIMIZER, /* Optimizer.step#SGD.step */
		 PL_N_ZERO_GRAD, /* Optimizer.zero_grad#SGD.zero_grad */
};
uint8_t pl_import_name_class(const char *s, size_t n);
/* A user's range "step 3", "Iteration: 3", "train_step_3": the number is the last thing. */
bool pl_import_step_number(const char *s, size_t n, int64_t *step);
static inline bool pl_import_has(const void *p, size_t n, const char *what)
{
	return memmem(p, n, what, strlen(what)) != NULL;
}
/* The kind of a category, PL_K_COUNT_ if the category implies none. */
uint8_t pl_import_cat_kind(const char *s, size_t n);
/* Elements and bytes of all tensors of "Input Dims" with "Input type"; -1 unknown. */
void pl_import_dims_size(const char *dims, const char *types, int64_t *elements, int64_t *bytes);

/* ---- tracks and where they are: tracks.c --------------------------------------------------- */

/* The metadata of a thread or process; kept for all segments. */
struct pl_track_note {
	pl_id name, labels; /* in pl_tracks.text; PL_NONE */
	int32_t sort;
	char *track; /* key of the track, n bytes, that the metadata event names */
	size_t n;
	bool thread; /* else of the process */
	bool used;   /* a track of this segment has it */
};
struct pl_tracks {
	struct pl_rows *rows;
	bool chrome;
	bool named; /* the name of a process may state its rank (in chrome: always) */
	struct {
		struct pl_pid pid, tid;
		pl_id track; /* PL_NONE: empty */
	} recent[256];
	struct pl_intern key;	   /* of the tracks of this segment, in their order */
	struct pl_intern text;	   /* for all segments */
	struct pl_intern note_key; /* of a thread: the key of its track; of a process: its pid */
	struct pl_track_note *note;
	size_t cap_note;
	struct pl_buf tmp;
};
void pl_import_tracks_init(struct pl_tracks *t, struct pl_rows *rows, bool chrome);
void pl_import_tracks_fini(struct pl_tracks *t);
void pl_import_tracks_renew(struct pl_tracks *t);
int pl_import_tracks_find(struct pl_tracks *t, const struct pl_fields *f, pl_id *track,
			  struct pl_err *err) PL_MUST;
/* Is it a metadata event about tracks? 1 yes (noted), 0 no. */
int pl_import_tracks_meta(struct pl_tracks *t, const struct pl_fields *f,
			  struct pl_err *err) PL_MUST;
/* Copy names, ranks and hosts into the tracks of the segment. */
int pl_import_tracks_finish(struct pl_tracks *t, int32_t rank, const char *host, size_t host_len,
			    struct pl_err *err) PL_MUST;
/* A key of a track for all segments: flag and text of pid and tid, into t->tmp. */
int pl_import_tracks_key(struct pl_tracks *t, const struct pl_fields *f,
			 struct pl_err *err) PL_MUST;

/* ---- a document being read: chrome.c; its phases: phases.c --------------------------------- */

struct pl_open {    /* a begin without its end so far */
	char *text; /* the whole event, padded; owned */
	size_t n;
	int64_t at;
	uint32_t below; /* open + 1 of the same track or id, 0 none */
};
struct pl_top_member { /* a top-level member of the source, for later segments */
	char *key, *value;
	size_t n_key, n_value;
};
/* The last operator that posted a send or receive. */
struct pl_post {
	struct pl_pid pid, tid;
	pl_ns t0, t1;
	int64_t peer; /* -1 unknown */
};

/* ---- steps that only the calls of an optimizer show: optimizer.c
 * --------------------------------- */

enum pl_called { PL_CALL_STEP, PL_CALL_ZERO_GRAD, PL_CALL_FETCH };
struct pl_call {
	enum pl_called what;
	pl_id name; /* in pl_calls */
	int64_t pid, tid;
	pl_ns start, end;
};
struct pl_calls {
	struct pl_intern names;
	struct pl_call *v;
	size_t n, cap;
	bool marked; /* the program marks its steps itself */
};
int pl_import_calls_add(struct pl_calls *c, enum pl_called what, const char *name, size_t n,
			const struct pl_fields *f, struct pl_err *err) PL_MUST;
/* At the end: how many steps were found. c->v has their threads, starts and ends then. */
int pl_import_calls_steps(struct pl_calls *c, size_t *found, struct pl_err *err) PL_MUST;
void pl_import_calls_fini(struct pl_calls *c);

struct pl_doc {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_src src;
	struct pl_rows rows;
	struct pl_ev ev;
	struct pl_tracks tracks;
	bool chrome;
	struct pl_post post;
	struct pl_calls calls;
	struct pl_top_member *member;
	size_t n_members, cap_members;
	int64_t base_ns; /* baseTimeNanoseconds */
	bool has_base;
	int64_t base_ended; /* base of the segments that have ended */
	struct pl_intern open_key;
	uint32_t *top; /* by open_key: open + 1 */
	size_t cap_top;
	struct pl_open *open;
	size_t n_open, cap_open;
	uint32_t free_open; /* + 1 */
	size_t open_bytes;
};
/* The event in [p, q), at byte `at`, was read into ev: make a row of it. */
int pl_import_doc_accept(struct pl_doc *d, const char *p, const char *q, int64_t at,
			 struct pl_err *err) PL_MUST;
/* At the end, begins without an end become events without a duration. */
int pl_import_doc_leftovers(struct pl_doc *d, struct pl_err *err) PL_MUST;
/* Then: steps by the calls of an optimizer, where the program marks none. */
int pl_import_doc_steps(struct pl_doc *d, struct pl_err *err) PL_MUST;
void pl_import_doc_free_open(struct pl_doc *d);

int32_t pl_import_number_after(const char *s, const char *end, const char *word);

extern const struct pl_importer pl_import_native, pl_import_kineto, pl_import_chrome, pl_import_xla,
	pl_import_xplane, pl_import_nsys, pl_import_flight, pl_import_inspector, pl_import_dpro,
	pl_import_ncclprof, pl_import_horovod, pl_import_rocprof, pl_import_optable;

#endif
