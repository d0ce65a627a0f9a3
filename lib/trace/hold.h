/* hold.h - a segment in memory until its end: its batches, the values of each row, its clocks. */
#ifndef PL_TRACE_HOLD_H
#define PL_TRACE_HOLD_H

#include "trace/trace.h"

struct pl_hold {
	struct pl_batch *b;
	size_t n, cap;
	struct pl_arena mem;
	uint64_t roles; /* roles of the columns to keep, as bits; 0: all */
};
/* Copy the rows of b for which mask[row] is not 0 (NULL: all). */
int pl_trace_hold_add(struct pl_hold *h, const struct pl_batch *b, const uint8_t *mask,
		      struct pl_err *err);
void pl_trace_hold_reset(struct pl_hold *h);
void pl_trace_hold_fini(struct pl_hold *h);

/* The values of each row: entries off[row] .. off[row + 1], in the order of the columns. */
struct pl_row_values {
	struct pl_row_entry {
		uint32_t col, k;
	} * ent;
	uint32_t *off;
	size_t cap_ent, cap_off;
};
int pl_trace_row_values_build(struct pl_row_values *r, const struct pl_batch *b,
			      struct pl_err *err);
void pl_trace_row_values_fini(struct pl_row_values *r);

/* A copy of the current merge table and its segments. All zeros: no table so far. */
struct pl_merge_context {
	struct pl_merge m; /* a copy; owned */
	bool present;
	uint32_t n_segs; /* begun so far, including the current one */
	uint32_t rel;	 /* number of the current segment in m */
};
void pl_trace_merge_context_begin(struct pl_merge_context *x); /* a segment begins */
int pl_trace_merge_context_take(struct pl_merge_context *x, const struct pl_merge *m,
				struct pl_err *err);
const struct pl_clock *pl_trace_merge_context_clock(const struct pl_merge_context *x, int32_t rank);
void pl_trace_merge_context_fini(struct pl_merge_context *x);

#endif
