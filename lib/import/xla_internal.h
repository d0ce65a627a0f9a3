/* xla_internal.h - a profile of XLA while its meaning is found: xla.c, xla_runs.c, xla_waits.c. */
#ifndef PL_IMPORT_XLA_INTERNAL_H
#define PL_IMPORT_XLA_INTERNAL_H

#include "import/xla.h"
#include "trace/hold.h"

struct event { /* in an order without holes, because there are many */
	struct pl_batch *b;
	pl_ns ts, end;
	int64_t run, step, corr, bytes, flops, moved, program, seq; /* INT64_MIN none */
	const char *coll;
	const struct event *join; /* of a call for all devices: its wait for the launches */
	pl_id name, track;
	pl_id name_op, module, text; /* PL_NONE none */
	pl_id group;		     /* text that lists its devices */
	uint32_t row;
	uint32_t nth;	/* of this name in this execution on this device */
	int32_t device; /* -1 none */
	uint8_t class;	/* of hosts: enum pl_xla_class */
	uint8_t line;	/* of devices */
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

struct pl_xla {
	struct pl_sink sink, *to;
	const struct pl_import_opts *o;
	struct pl_import_stats *st;
	struct pl_hold hold;
	struct pl_arena columns; /* of the batch that is given */
	struct pl_segment *seg;
	struct place *place;
	struct event *v, **by;
	struct run *run;
	struct device *device;
	struct pause *pause;
	size_t n, cap, n_runs, cap_runs, n_devices, cap_devices, n_pauses, cap_pauses;
	bool dispatches;       /* the calls for the first device are those for all devices */
	uint32_t first_tracks; /* of the source */
	struct pl_batch more;  /* events that are added */
	int64_t corr;	       /* the last one given */
	uint8_t *class;	       /* [string] */
	struct word *word;     /* [string] */
	struct pl_intern known_key;
	struct known *known;
	size_t cap_known;
	struct pl_intern seq_key; /* collectives of a group, to number them */
};

static inline const char *text(const struct pl_xla *x, pl_id id)
{
	return id == PL_NONE ? "" : pl_intern_get(&x->seg->str, id);
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
/* The execution of an event on its device, NULL: unknown. */
struct run *pl_import_xla_run(const struct pl_xla *x, const struct event *e);
/* Events that the source does not have, after its own: xla_waits.c. */
int pl_import_xla_add(struct pl_xla *x, struct pl_err *err) PL_MUST;

#endif
