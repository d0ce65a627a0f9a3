/* filter.h - a trace with only the selected events. */
#ifndef PL_TRACE_FILTER_H
#define PL_TRACE_FILTER_H

#include "trace/trace.h"

/* Which events pass; all conditions must hold. */
struct pl_filter {
	const int64_t *rank, *step; /* pairs: first, last */
	uint32_t n_ranks, n_steps;  /* pairs; 0: any */
	bool has_time;
	pl_ns t0, t1;		 /* relative to the first event of the trace; overlap counts */
	const char *kind, *name; /* globs, NULL any */
};
/*
 * A sink that passes matching events on to `next`; f and what it points to, and next, are borrowed
 * until pl_trace_filter_close(). Step numbers are those of the column PL_R_STEP where there is one,
 * else of the STEP event that contains the event's start (device operations: their launch). Kinds
 * may also be asked for by the class "comm" (collective, send, recv), and by the older word
 * "compute" for kernel|host_op.
 *
 * Strings and tracks that no passing event uses are left out, and segments and groups without any.
 * What merge said stays true: its clocks are kept, its matches name the events that passed; a
 * collective that lost members is marked PL_MATCH_MISSING, half a send and receive is none. Ranks
 * and steps hold one segment in memory until its end; a time window (times are those of the common
 * clock) and a merged stream hold all events that pass until the end of the stream.
 */
struct pl_sink *pl_trace_filter_open(const struct pl_filter *f, struct pl_sink *next,
				     struct pl_err *err);
/* Call it after the last segment: passes on the events that had to wait. */
int pl_trace_filter_finish(struct pl_sink *s, struct pl_err *err) PL_MUST;
/* After that: PL_EDATA if the input has ranks or steps, but none of those asked for; the message
 * says which there are. */
int pl_trace_filter_check(struct pl_sink *s, const struct pl_log *log, struct pl_err *err) PL_MUST;
void pl_trace_filter_close(struct pl_sink *s); /* NULL is fine */

#endif
