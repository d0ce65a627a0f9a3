/* filter.h - a trace with only the selected events. */
#ifndef PL_TRACE_FILTER_H
#define PL_TRACE_FILTER_H

#include "trace/trace.h"

/* The conditions; an event passes if all hold. */
struct pl_filter {
	const int64_t *rank, *step; /* pairs: first, last */
	uint32_t n_ranks, n_steps;  /* pairs; 0: any */
	bool has_time;
	pl_ns t0, t1;		 /* relative to the first event of the trace; overlap counts */
	const char *kind, *name; /* globs, NULL any */
};
/*
 * A sink that passes matching events on to `next`. It borrows f, the arrays of f, and next until
 * pl_trace_filter_close(). The number of a step is that of the column PL_R_STEP if there is one,
 * else that of the STEP event that contains the start of the event (of a device operation: its
 * launch). A kind may also be the class "comm" (collective, send, recv), and the older word
 * "compute" for kernel|host_op.
 *
 * Strings and tracks without a passing event are left out; so are segments and groups without any.
 * The merge table stays true: its clocks are kept, its matches name the events that passed, a
 * collective that lost members is marked PL_MATCH_MISSING, and a send without its receive is
 * removed. Ranks and steps need one segment in memory until its end. A time window (times of the
 * common clock) and a merged stream hold all events that pass until the end of the stream.
 */
struct pl_sink *pl_trace_filter_open(const struct pl_filter *f, struct pl_sink *next,
				     struct pl_err *err);
/* Call it after the last segment: passes on the events that waited. */
int pl_trace_filter_finish(struct pl_sink *s, struct pl_err *err) PL_MUST;
/* After finish(): PL_EDATA if the input has ranks or steps, but none of the chosen ones. */
int pl_trace_filter_check(struct pl_sink *s, const struct pl_log *log, struct pl_err *err) PL_MUST;
void pl_trace_filter_close(struct pl_sink *s); /* NULL is allowed */

#endif
