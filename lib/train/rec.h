/*
 * rec.h - the trace that a running program writes of itself: paceline-trace(5), one segment a rank.
 *
 * Recording an event costs a store into a ring of its thread, beside the clock reads that its times
 * are; a thread of its own codes and writes blocks. A full disk costs the trace, not the run: said
 * once, by pl_rec_close().
 */
#ifndef PL_REC_H
#define PL_REC_H

#include "comm/comm.h"
#include "trace/trace.h"

struct pl_rec_opts {
	const char *path; /* written under another name until it is closed */
	int rank, size;
	const char *host; /* NULL: that of the machine */
	int level;
	const char *provenance; /* a line, or NULL */
};
struct pl_recorder;
int pl_rec_open(const struct pl_rec_opts *o, struct pl_recorder **r, struct pl_err *err) PL_MUST;
/*
 * Writes what is left; the threads that recorded have ended, or record no more. The handle is gone
 * whatever happens. *lost: events that found no room (may be NULL).
 */
int pl_rec_close(struct pl_recorder *r, uint64_t *lost, struct pl_err *err) PL_MUST;
void pl_rec_abort(struct pl_recorder *r); /* nothing stays of the file; NULL is fine */
/* Names once, at the start; tracks: threads, and a link for communication. */
pl_id pl_rec_name(struct pl_recorder *r, const char *name); /* PL_NONE: out of memory */
const char *pl_rec_text(struct pl_recorder *r, pl_id name); /* stays where it is */
pl_id pl_rec_track(struct pl_recorder *r, uint8_t type, const char *name);

struct pl_rec_event {
	pl_id track, name;
	uint8_t kind;				       /* enum pl_kind_id */
	pl_ns begin, end;			       /* CLOCK_MONOTONIC */
	int32_t step, layer, mb, peer, channel, chunk; /* -1: none */
	/* -1: none. seq of a send or receive: the number of the collective that it is a message of
	 */
	int64_t bytes, seq, corr;
	pl_id group, coll; /* PL_NONE */
	pl_id dims;	   /* "[[512, 784]]": sizes of the gradient that is ready; PL_NONE */
	pl_id precision;   /* of the layer's products, where it is not fp32; PL_NONE */
	double value;	   /* of a counter */
};
/* An event without any of the optional parts. */
static inline struct pl_rec_event pl_rec_event(pl_id track, uint8_t kind, pl_id name, pl_ns begin,
					       pl_ns end)
{
	return (struct pl_rec_event){ .track = track,
				      .name = name,
				      .kind = kind,
				      .begin = begin,
				      .end = end,
				      .step = -1,
				      .layer = -1,
				      .mb = -1,
				      .peer = -1,
				      .channel = -1,
				      .chunk = -1,
				      .bytes = -1,
				      .seq = -1,
				      .corr = -1,
				      .group = PL_NONE,
				      .coll = PL_NONE,
				      .dims = PL_NONE,
				      .precision = PL_NONE };
}
/* From any thread. Never blocks for long, never fails: what finds no room is counted. */
void pl_rec(struct pl_recorder *r, const struct pl_rec_event *e);

/* What was waited for, as profilers of devices say it; -1: not known, or nothing. */
struct pl_rec_sync {
	int64_t stream;	     /* that waits, or that the host waits for */
	int64_t on_stream;   /* on which the event was recorded */
	int64_t record_corr; /* correlation of the call that recorded it */
	int64_t event;
};
/* For threads that nobody measures, and as much as they like: codes at once, so it may wait for the
 * disk. `s` NULL: none. */
void pl_rec_put(struct pl_recorder *r, const struct pl_rec_event *e, const struct pl_rec_sync *s);
pl_id pl_rec_stream(struct pl_recorder *r, int32_t device, int64_t stream, const char *name);
/* What the trace says of itself: JSON text. */
void pl_rec_meta(struct pl_recorder *r, const char *key, const char *json);
uint64_t pl_rec_count(struct pl_recorder *r); /* events recorded so far, by all threads */

#endif
