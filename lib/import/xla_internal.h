/* xla_internal.h - a profile of XLA while its meaning is found: xla.c, xla_runs.c, xla_waits.c. */
#ifndef PL_IMPORT_XLA_INTERNAL_H
#define PL_IMPORT_XLA_INTERNAL_H

#include "core/spill.h"
#include "import/xla.h"
#include "trace/hold.h"

struct event { /* in an order without holes, because there are many */
	pl_ns ts, end;
	int64_t run, step, corr, bytes, program; /* INT64_MIN none */
	const char *coll;
	const struct event *join; /* of a call for all devices: its wait for the launches */
	pl_id name, track;
	pl_id name_op, module, text; /* PL_NONE none */
	pl_id group;		     /* text that lists its devices */
	uint32_t at;		     /* row of the segment */
	uint32_t seq;		     /* PL_NONE none */
	uint32_t nth;		     /* of this name in this execution on this device */
	int32_t device;		     /* -1 none */
	uint8_t class;		     /* of hosts: enum pl_xla_class */
	uint8_t line;		     /* of devices */
	uint8_t kind;
	bool op : 1, outer : 1; /* an operation of a device; one that contains others */
};
struct run { /* an execution on a device */
	int32_t device;
	int64_t number;
	pl_ns start, end;
	pl_ns call; /* when the call began, if there is one */
	int64_t corr;
};
struct span { /* an operation of a device */
	pl_ns start, end;
	uint32_t track, at;
};
struct pause { /* a wait of a thread for the devices */
	pl_ns start, end;
};
struct device {
	int32_t number, rank;
	bool streams; /* it has lines of streams; what is on other lines is said there, too */
	bool cpu;     /* its operations run on threads */
	bool global;  /* calls say its number in the job, which is `rank` */
	pl_id track;  /* of operations that ran on threads, PL_NONE: not needed */
	pl_id host;   /* of the calls that start its executions */
};
struct global { /* the number in the job that calls say of a device */
	int32_t device, number;
};
struct place { /* of a track of the source */
	uint8_t plane, line;
	int32_t device;
	int64_t stream;
};
struct known { /* about an operation of a program */
	const char *coll;
	int64_t bytes;
};
struct word {	 /* what a name means as that of an operation */
	bool is; /* the rest has been determined */
	bool contains, devcomm, copy, set;
	const char *coll;
	const struct known *known; /* in this program */
	pl_id module;
	int64_t program;
	bool looked; /* for `known` */
};

struct pl_xla_facts; /* what the columns of a batch say: xla_rows.c */

struct pl_xla {
	struct pl_sink sink, *to;
	const struct pl_import_opts *o;
	struct pl_import_stats *st;
	bool twice;	     /* batches are given twice, else they are held */
	bool understood;     /* those that come now are the second time */
	struct pl_hold hold; /* of the segment, if not twice */
	struct pl_segment *seg;
	struct pl_xla_facts *facts;
	struct pl_col *cols; /* of a batch that is given on */
	size_t cap_cols;
	uint32_t row;	 /* of the segment, of the next batch */
	size_t next;	 /* of v, in the second pass */
	uint32_t n_rows; /* of the segment */
	struct place *place;
	size_t n_places, cap_places;
	/* Kept events, v[0..n); those of devices are not, but where more than a row must be known.
	 * These and pointers to them, and the spans, may be more than fit into memory. */
	struct event *v, **by;
	struct pl_spill events, pointers, spans;
	size_t n, n_spans;
	bool spans_mixed; /* not in the order of tracks and times */
	uint8_t *outer;	  /* bits of rows: operations of devices that contain others */
	struct run *run;
	struct device *device;
	struct pause *pause;
	struct global *global;
	size_t n_runs, cap_runs, n_devices, cap_devices, n_pauses, cap_pauses, n_globals,
		cap_globals;
	size_t hint;	       /* of device: the last one that was found */
	int32_t first_device;  /* that was found */
	bool dispatches;       /* the calls for the first device are those for all devices */
	uint32_t first_tracks; /* of the source */
	struct pl_batch more;  /* events that are added */
	int64_t corr;	       /* the last one given */
	uint8_t *class;	       /* [string] */
	struct word *word;     /* [string] */
	size_t n_strings;      /* of both */
	struct pl_intern known_key;
	struct known *known;
	size_t cap_known;
	struct pl_intern seq_key; /* collectives of a group, to number them */
};

static inline const char *text(const struct pl_xla *x, pl_id id)
{
	return id == PL_NONE ? "" : pl_intern_get(&x->seg->str, id);
}

/* x->v[i] in a loop over all: what was seen may leave memory. */
static inline struct event *event_at(const struct pl_xla *x, size_t i)
{
	if (PL_UNLIKELY(!(i & 0xffff)))
		pl_spill_rest(&x->events);
	return &x->v[i];
}
/* x->by[i] in such a loop. */
static inline struct event *picked(const struct pl_xla *x, size_t i)
{
	if (PL_UNLIKELY(!(i & 0xffff))) {
		pl_spill_rest(&x->events);
		pl_spill_rest(&x->pointers);
	}
	return x->by[i];
}

static inline bool pl_import_xla_is_launch(const struct pl_xla *x, const struct event *e)
{
	(void)x;
	return e->class == PL_XC_LAUNCH;
}

/* x->by[0..n) are the events for which `want` is true (NULL: all), in that order. Returns n. */
size_t pl_import_xla_pick(struct pl_xla *x,
			  bool (*want)(const struct pl_xla *x, const struct event *e),
			  int (*order)(const void *, const void *));
int pl_import_xla_by_time(const void *pa, const void *pb);
int pl_import_xla_by_track(const void *pa, const void *pb); /* then by time, the outer one first */
/* Which events are calls; then executions, and the correlation of each with its call. */
void pl_import_xla_choose_calls(struct pl_xla *x);
int pl_import_xla_calls(struct pl_xla *x, struct pl_err *err) PL_MUST;
/* First: which operations are collectives, of which kind and size. Then each gets its number. */
void pl_import_xla_collective(struct pl_xla *x, struct event *e);
int pl_import_xla_number(struct pl_xla *x, struct pl_err *err) PL_MUST;
struct word *pl_import_xla_word(const struct pl_xla *x, pl_id id);
/* The device with this number, NULL: none. */
struct device *pl_import_xla_device(struct pl_xla *x, int32_t number);
/* The number by which the devices know one that an operation has, or something else. */
int32_t pl_import_xla_device_number(struct pl_xla *x, int32_t number, bool op);
/* An operation runs on it: it is one of x->device. */
int pl_import_xla_note_device(struct pl_xla *x, int32_t number, struct device **d,
			      struct pl_err *err) PL_MUST;
/* "[3] CommonPjRtLoadedExecutable::Execute (jit_step)": the device; else that of the thread. */
int32_t pl_import_xla_launches_for(const char *name);
uint8_t pl_import_xla_class_of(struct pl_xla *x, pl_id name);
/* Kind, track and correlation, when devices and executions are known. */
void pl_import_xla_settle(struct pl_xla *x, struct event *e);
/* The tables by string and by track have an entry for each: xla_rows.c. */
int pl_import_xla_complete(struct pl_xla *x, struct pl_err *err) PL_MUST;
/* What is kept of a batch; then what its rows become. */
int pl_import_xla_learn(struct pl_xla *x, struct pl_segment *seg, const struct pl_batch *b,
			struct pl_err *err) PL_MUST;
int pl_import_xla_give(struct pl_xla *x, const struct pl_batch *b, struct pl_err *err) PL_MUST;
/* Which operations of devices contain others: x->outer. */
int pl_import_xla_outer(struct pl_xla *x, struct pl_err *err) PL_MUST;
static inline bool is_outer(const struct pl_xla *x, uint32_t at)
{
	return x->outer[at / 8] >> at % 8 & 1;
}
/* The execution of an event on its device, NULL: unknown. */
struct run *pl_import_xla_run(const struct pl_xla *x, const struct event *e);
/* Events that the source does not have, after its own: xla_waits.c. */
int pl_import_xla_add(struct pl_xla *x, struct pl_err *err) PL_MUST;

#endif
