/*
 * internal.h - what the files of lib/trace share: types of blocks, limits, encoders, decoders.
 */
#ifndef PL_TRACE_INTERNAL_H
#define PL_TRACE_INTERNAL_H

#include "io/record.h"
#include "trace/hold.h"
#include "trace/trace.h"

/* Blocks of a trace segment ... */
#define PL_BLOCK_SEGM PL_FOURCC('S', 'E', 'G', 'M')
#define PL_BLOCK_STRS PL_FOURCC('S', 'T', 'R', 'S')
#define PL_BLOCK_TRAK PL_FOURCC('T', 'R', 'A', 'K')
#define PL_BLOCK_META PL_FOURCC('M', 'E', 'T', 'A')
#define PL_BLOCK_EVNT PL_FOURCC('E', 'V', 'N', 'T')
/* ... and of a merge segment. */
#define PL_BLOCK_MERG PL_FOURCC('M', 'E', 'R', 'G')
#define PL_BLOCK_CLCK PL_FOURCC('C', 'L', 'C', 'K')
#define PL_BLOCK_USES PL_FOURCC('U', 'S', 'E', 'S')
#define PL_BLOCK_GRPS PL_FOURCC('G', 'R', 'P', 'S')
#define PL_BLOCK_MTCH PL_FOURCC('M', 'T', 'C', 'H')
#define PL_BLOCK_MEMB PL_FOURCC('M', 'E', 'M', 'B')

#define PL_TRACE_BLOCK_VERSION 1
#define PL_TRACE_COLS_MAX      65536u	   /* columns of a block of events */
#define PL_TRACE_VALUES_MAX    (16u << 20) /* values of all columns of a block of events */
#define PL_TRACE_TABLE_ROWS    65536u	   /* rows of a block of a merge table */
#define PL_TRACE_ROWS_PER_BYTE 512u	   /* most rows for each byte of a block of a merge table */
#define PL_TRACE_GROUP_RANKS   (16u << 20) /* members of all groups of a merge */
#define PL_TRACE_SCALE_MAX     18

/* The coding of the rows of a column. */
enum { PL_ROWS_ALL, PL_ROWS_SAME, PL_ROWS_LIST, PL_ROWS_BITS };

/* batch.c */
int pl_trace_col_reserve(struct pl_col *c, uint32_t need, struct pl_err *err) PL_MUST;
void pl_trace_col_drop(struct pl_col *c); /* frees the arrays; the column stays without values */
int pl_trace_segment_add_meta(struct pl_segment *s, const struct pl_meta *m,
			      struct pl_err *err) PL_MUST;

/* records.c: the head of a segment; a track with its number */
struct pl_numbered_track {
	uint32_t number;
	struct pl_track track;
};
extern const struct pl_record pl_trace_record_segment, pl_trace_record_track;

/* encode.c */
int pl_trace_put_events(struct pl_buf *b, const struct pl_segment *s, const struct pl_batch *e,
			uint64_t first, struct pl_err *err) PL_MUST;
/* Must the batch be cut before pl_trace_put_events() can take it? */
bool pl_trace_too_big(const struct pl_batch *e);

/* decode.c: payloads into a segment and a batch */
int pl_trace_get_segment(struct pl_cur *c, struct pl_segment *s, struct pl_err *err) PL_MUST;
int pl_trace_get_tracks(struct pl_cur *c, uint32_t count, struct pl_segment *s,
			struct pl_err *err) PL_MUST;
int pl_trace_get_meta(struct pl_cur *c, uint32_t count, struct pl_segment *s,
		      struct pl_err *err) PL_MUST;
/* The current size of the segment, and the roles of the columns to decode, as bits; 0: all. */
struct pl_trace_want {
	size_t n_strings;
	uint32_t n_tracks;
	uint64_t roles;
	pl_id key[PL_ROLE_KEYS]; /* by pl_trace_role_keys_note() */
};
/* names.c: minor version 0 of the format stored newer roles as arguments with the source's key. */
void pl_trace_role_keys_note(const struct pl_intern *str, pl_id id[PL_ROLE_KEYS]);
/* The role of a column; `role` is the number in the stream, whose version may be old. */
unsigned pl_trace_role_settle(const pl_id id[PL_ROLE_KEYS], unsigned role, pl_id key,
			      unsigned type);
/* Decode into an empty batch. For unwanted columns only the rows are checked. */
int pl_trace_get_events(struct pl_cur *c, uint32_t count, const struct pl_trace_want *want,
			struct pl_batch *e, struct pl_err *err) PL_MUST;

/* Fail with `code` if a column, or n rows without columns, refer to a string or track that is not
 * defined. The code is PL_EDATA for data that was read, PL_EINTERNAL for data to be written. */
int pl_trace_check_col(const struct pl_col *c, size_t n_strings, int code,
		       struct pl_err *err) PL_MUST;
int pl_trace_check_fixed(const struct pl_batch *e, uint32_t n, uint32_t n_tracks, size_t n_strings,
			 int code, struct pl_err *err) PL_MUST;

/* merge.c: reading block by block */
#define PL_MERGE_TABLES 5
struct pl_merge_in {
	struct pl_merge m;
	uint64_t want[PL_MERGE_TABLES]; /* rows of each table, announced by the first block */
	size_t cap[PL_MERGE_TABLES];
	uint64_t ranks; /* of all groups */
};
bool pl_trace_merge_is_block(uint32_t type);
int pl_trace_merge_get(struct pl_merge_in *in, const struct pl_block *b,
		       struct pl_err *err) PL_MUST;
int pl_trace_merge_check(const struct pl_merge_in *in, struct pl_err *err) PL_MUST; /* at the end */
/* Append `add` to `to`, which describes `base` segments so far; takes the contents of `add`. */
int pl_trace_merge_append(struct pl_merge *to, struct pl_merge *add, uint32_t base,
			  struct pl_err *err) PL_MUST;

/* ---- filters --------------------------------------------------------------------------------- */

/* The steps of one segment, from its STEP events and the launches on its host threads. */
struct pl_trace_steps {
	struct pl_trace_step *step;
	struct pl_trace_launch *launch;
	size_t n, cap, n_launches, cap_launches;
};
int pl_trace_steps_note(struct pl_trace_steps *x, const struct pl_batch *b, struct pl_err *err);
void pl_trace_steps_sort(struct pl_trace_steps *x,
			 const struct pl_segment *s); /* call it after noting all */
/* The step of a row: recorded, its own number, or by time; INT64_MIN: none. rows are those of b. */
int64_t pl_trace_steps_of(const struct pl_trace_steps *x, const struct pl_segment *s,
			  const struct pl_batch *b, const struct pl_row_values *rows, uint32_t i);
void pl_trace_steps_fini(struct pl_trace_steps *x);

/* The events of a segment that passed a filter: their old numbers, ascending. */
struct pl_passed {
	const uint32_t *from;
	size_t n;
};
/* Remove the members and uses of segment PL_NONE, and matches without members. */
int pl_trace_merge_close_gaps(struct pl_merge *m, struct pl_err *err) PL_MUST;
/* Reduce m to the events that passed. Segments without events are removed; seg[i]: segment i of
 * m. */
int pl_trace_merge_passed(struct pl_merge *m, const struct pl_passed *seg, uint32_t n_segs,
			  struct pl_err *err);

#endif
