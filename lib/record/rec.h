/*
 * rec.h - the trace that a running program writes of itself: paceline-trace(5), one segment a rank.
 *
 * To record an event costs two clock reads and a store into a ring of the thread. Another thread
 * encodes the events and writes blocks. If the disk is full, the trace is lost, the program goes
 * on, and pl_rec_close() says so. Memory is bounded: 64 rings, and 32 MiB of different texts. What
 * finds no room is counted; the count is the metadata member PL_REC_LOST of the trace.
 *
 * A child of fork() records nothing and does not touch the file of its parent.
 */
#ifndef PL_REC_H
#define PL_REC_H

#include "trace/trace.h"

#define PL_REC_LOST "lost_events"

struct pl_rec_opts {
	const char *path; /* written under another name until it is closed */
	int rank, size;	  /* rank -1: unknown */
	const char *host; /* NULL: that of the machine */
	int level;
	const char *provenance; /* a line, or NULL */
	const char *format;	/* NULL: "run" */
	/* For a library inside another program, which may be killed, and whose threads may record
	 * until it ends: the file has its name from the beginning and must not exist; blocks are
	 * written at least that often; tracks have the real process id; times count from the
	 * Unix epoch, as those of other profilers; the handle is not freed by pl_rec_close(). */
	pl_ns flush_ns; /* 0: none of this */
};
struct pl_recorder;
int pl_rec_open(const struct pl_rec_opts *o, struct pl_recorder **r, struct pl_err *err) PL_MUST;
/*
 * Writes the remaining events. The handle is freed, also on failure, and no thread records any more
 * (except with flush_ns: what comes later is dropped). *lost: the events that found no room (may be
 * NULL).
 */
int pl_rec_close(struct pl_recorder *r, uint64_t *lost, struct pl_err *err) PL_MUST;
/* Counts events that were lost before they came here. */
void pl_rec_lost(struct pl_recorder *r, uint64_t n);
/* Writes what was recorded so far (with flush_ns; NULL is fine). */
void pl_rec_flush(struct pl_recorder *r);
void pl_rec_abort(struct pl_recorder *r); /* removes the file; NULL is fine */
/* Names once, at the start; tracks: threads, and a link for communication. A track of the same type
 * and name (or number) is the same track. */
pl_id pl_rec_name(struct pl_recorder *r, const char *name); /* PL_NONE: out of memory */
const char *pl_rec_text(struct pl_recorder *r,
			pl_id name); /* borrowed until the recorder is closed */
pl_id pl_rec_track(struct pl_recorder *r, uint8_t type, const char *name);

/* A track of a thread with its number in the system; name NULL: "thread N". */
pl_id pl_rec_thread(struct pl_recorder *r, int64_t tid, const char *name);

/* Values that many events share: data type, algorithm, root ... Equal lists have equal numbers. */
struct pl_rec_attr {
	pl_id key;	     /* PL_NONE: the role says enough */
	uint16_t role, type; /* enum pl_role, pl_type */
	int64_t v;
};
static inline struct pl_rec_attr pl_rec_attr(pl_id key, unsigned role, unsigned type, int64_t v)
{
	return (struct pl_rec_attr){ key, (uint16_t)role, (uint16_t)type, v };
}
pl_id pl_rec_attrs(struct pl_recorder *r, const struct pl_rec_attr *a, size_t n);

struct pl_rec_event {
	pl_id track, name;
	uint8_t kind;				       /* enum pl_kind_id */
	pl_ns begin, end;			       /* CLOCK_MONOTONIC */
	int32_t step, layer, mb, peer, channel, chunk; /* -1: none */
	/* -1: none. seq of a send or receive: the number of the collective that it belongs to */
	int64_t bytes, seq, corr;
	int64_t order;	   /* of a send or receive: its number among those that match alike; -1 */
	int32_t tag, root; /* of MPI; -1 */
	pl_id group, coll; /* PL_NONE */
	/* of a gradient that is ready: "[[512, 784]]", and "fc1.weight", its parameter; PL_NONE */
	pl_id dims, values;
	pl_id op;	      /* of a layer's pass: "dense.forward"; then dims are of its inputs */
	int64_t flops, moved; /* -1: not known */
	pl_id precision;      /* of the layer's products, where it is not fp32; PL_NONE */
	pl_id attrs;	      /* pl_rec_attrs(); PL_NONE */
	double value;	      /* of a counter */
};
/* An event without any of the optional parts. */
static inline struct pl_rec_event pl_rec_event(pl_id track, uint8_t kind, pl_id name, pl_ns begin,
					       pl_ns end)
{
	struct pl_rec_event e;

	memset(&e, 0xff, sizeof(e)); /* the numbers are -1, the strings PL_NONE */
	e.track = track;
	e.name = name;
	e.kind = kind;
	e.begin = begin;
	e.end = end;
	return e;
}
/* For any thread. It never blocks for long and never fails: events without room are counted. */
void pl_rec(struct pl_recorder *r, const struct pl_rec_event *e);

/* What a wait waited for, in the terms of profilers; -1: unknown or nothing. */
struct pl_rec_sync {
	int64_t stream;	     /* the stream that waits, or for which the host waits */
	int64_t on_stream;   /* on which the event was recorded */
	int64_t record_corr; /* correlation of the call that recorded it */
	int64_t event;
};
/* For threads whose time is not measured: encodes the event at once, so it may wait for the disk.
 * s: NULL if the event is no wait. */
void pl_rec_put(struct pl_recorder *r, const struct pl_rec_event *e, const struct pl_rec_sync *s);
pl_id pl_rec_stream(struct pl_recorder *r, int32_t device, int64_t stream, const char *name);
/* Metadata of the trace; json: a JSON value as text. */
void pl_rec_meta(struct pl_recorder *r, const char *key, const char *json);

#endif
