/*
 * internal.h - the common part of exporters, matches of events, and the values of one row.
 *
 * Most exporters need the tracks and the time base of a segment before its first event, and these
 * may be known only at the end of the segment. Such an exporter is a `struct pl_export_base` with
 * an emit() function: the base holds the batches of one segment and calls emit() at its end.
 */
#ifndef PL_EXPORT_INTERNAL_H
#define PL_EXPORT_INTERNAL_H

#include "export/export.h"
#include "io/json.h"
#include "io/write.h"
#include "trace/hold.h"

/* ---- the base of exporters ------------------------------------------------------------------- */

struct pl_export_base;
/* The parts of an exporter, optional but for size. Without emit, init sets the sink's functions. */
struct pl_export_kind {
	size_t size; /* of its state, whose first member is a struct pl_export_base */
	/* Writes the segment from hold, merge, clock. */
	int (*emit)(struct pl_export_base *x, struct pl_segment *seg, struct pl_err *err);
	bool matches; /* emit() calls pl_export_match() */
	/* The beginning; a merge table; the end of the output; release of memory. */
	void (*init)(struct pl_export_base *x);
	int (*on_merge)(struct pl_export_base *x, const struct pl_merge *m, struct pl_err *err);
	void (*last)(struct pl_export_base *x);
	void (*fini)(struct pl_export_base *x);
};
struct pl_export_base {
	struct pl_sink sink; /* first */
	const struct pl_export_kind *kind;
	struct pl_export_opts o;
	struct pl_writer t;
	struct pl_hold hold;
	struct pl_row_values rows;
	struct pl_merge_context merge;
	const struct pl_clock **clock; /* [track of the current segment]; NULL: none */
	/* events of matches, sorted by segment and event */
	struct pl_export_member {
		uint32_t segment, event, match;
	} * member;
	size_t n_members;
};
/* Make a zeroed exporter of this kind. */
struct pl_sink *pl_export_base_open(const struct pl_export_kind *kind, struct pl_out *out,
				    const struct pl_export_opts *o, struct pl_err *err);
int pl_export_base_close(struct pl_sink *s, struct pl_err *err);
void pl_export_base_abort(struct pl_sink *s);
/* A member of the sink. */
int pl_export_base_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err);
/* The match of an event of the current segment, or PL_NONE. */
uint32_t pl_export_match(const struct pl_export_base *x, uint64_t event);
/* Call event() for each row of b, whose values are in x->rows; or for all held batches. */
typedef void pl_export_event(struct pl_export_base *x, const struct pl_segment *seg,
			     const struct pl_batch *b, uint32_t row);
int pl_export_base_batch(struct pl_export_base *x, const struct pl_segment *seg,
			 const struct pl_batch *b, pl_export_event *event,
			 struct pl_err *err) PL_MUST;
int pl_export_base_events(struct pl_export_base *x, const struct pl_segment *seg,
			  pl_export_event *event, struct pl_err *err) PL_MUST;
/* Fill x->clock. */
int pl_export_base_clocks(struct pl_export_base *x, const struct pl_segment *seg,
			  struct pl_err *err) PL_MUST;
/* Start of an event on the common clock. */
pl_ns pl_export_start(const struct pl_export_base *x, const struct pl_segment *seg,
		      const struct pl_batch *b, uint32_t row);

/* ---- names of things ------------------------------------------------------------------------- */

/* The default key of a role, which importers recognise. */
const char *pl_export_role_key(unsigned role);
/* As JSON: a string of the segment; the key of a column (or the fallback) with its colon; a member
 * of the source; all members in brackets. */
void pl_export_string_json(struct pl_writer *t, const struct pl_segment *s, pl_id id);
void pl_export_key_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			const char *fallback);
void pl_export_member_json(struct pl_writer *t, const struct pl_segment *s,
			   const struct pl_meta *m);
void pl_export_members_json(struct pl_writer *t, const struct pl_segment *s);
/* A column's value as JSON. */
void pl_export_value_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			  uint32_t k);

/* Can the text be the number of a process or thread? */
bool pl_export_number(const char *s, size_t n, int64_t *v);
/*
 * Process ids of several segments: each (segment, pid) gets a unique number, its own if possible.
 */
struct pl_export_pids {
	struct pl_intern used, key;
	int64_t *num; /* [key id]; INT64_MIN: keep the text of the source */
	size_t cap, n;
	int64_t next;
};
/* *num: the number, or INT64_MIN: keep the text of the source. */
int pl_export_pid(struct pl_export_pids *p, uint32_t segment, const char *pid, size_t len,
		  int64_t *num, struct pl_err *err);
void pl_export_pids_fini(struct pl_export_pids *p);
/* "rank 3 python (GPU 0)": the name of a process in a viewer. */
void pl_export_process_title(struct pl_writer *t, const struct pl_segment *s,
			     const struct pl_track *k, bool rank);

extern const struct pl_exporter pl_export_chrome, pl_export_perfetto, pl_export_perfetto_tar,
	pl_export_csv, pl_export_jsonl, pl_export_text, pl_export_stat, pl_export_stat_json;

#endif
