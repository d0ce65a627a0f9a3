/*
 * internal.h - what the exporters share: matches of events, the base of exporters, and the values
 * of one row.
 *
 * An exporter that needs the tracks and the time base of a segment before it can write its first
 * event (they may become known at the segment's end) is a `struct pl_export_base` with an emit()
 * function: the base holds the batches of one segment and calls emit() at its end.
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
	bool matches; /* it asks pl_export_match() */
	/* The beginning; what the merge table says; the end of the output; own memory. */
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
	const struct pl_clock **clock; /* by track of the segment that is written; NULL: none */
	/* events of matches, sorted by segment and event */
	struct pl_export_member {
		uint32_t segment, event, match;
	} * member;
	size_t n_members;
};
/* A zeroed exporter of this kind. */
struct pl_sink *pl_export_base_open(const struct pl_export_kind *kind, struct pl_out *out,
				    const struct pl_export_opts *o, struct pl_err *err);
int pl_export_base_close(struct pl_sink *s, struct pl_err *err);
void pl_export_base_abort(struct pl_sink *s);
/* A member of the sink. */
int pl_export_base_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err);
/* The match of an event of the current segment, or PL_NONE. */
uint32_t pl_export_match(const struct pl_export_base *x, uint64_t event);
/* Calls event() for each row of b, whose values are in x->rows; or of all batches that are held. */
typedef void pl_export_event(struct pl_export_base *x, const struct pl_segment *seg,
			     const struct pl_batch *b, uint32_t row);
int pl_export_base_batch(struct pl_export_base *x, const struct pl_segment *seg,
			 const struct pl_batch *b, pl_export_event *event,
			 struct pl_err *err) PL_MUST;
int pl_export_base_events(struct pl_export_base *x, const struct pl_segment *seg,
			  pl_export_event *event, struct pl_err *err) PL_MUST;
/* Fills x->clock in. */
int pl_export_base_clocks(struct pl_export_base *x, const struct pl_segment *seg,
			  struct pl_err *err) PL_MUST;
/* Start of an event on the common clock. */
pl_ns pl_export_start(const struct pl_export_base *x, const struct pl_segment *seg,
		      const struct pl_batch *b, uint32_t row);

/* ---- names of things ------------------------------------------------------------------------- */

/* The default key of a role, under which importers find it again. */
const char *pl_export_role_key(unsigned role);
/* A string of the segment, the key of a column (the fallback where it has none) with its colon, a
 * member of the source, all of these in brackets, as JSON. */
void pl_export_string_json(struct pl_writer *t, const struct pl_segment *s, pl_id id);
void pl_export_key_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			const char *fallback);
void pl_export_member_json(struct pl_writer *t, const struct pl_segment *s,
			   const struct pl_meta *m);
void pl_export_members_json(struct pl_writer *t, const struct pl_segment *s);
/* A column's value as JSON. */
void pl_export_value_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			  uint32_t k);

/* Is the text a number that a process or a thread can have? */
bool pl_export_number(const char *s, size_t n, int64_t *v);
/*
 * Process ids of several segments side by side: each (segment, pid as written) gets a number that
 * no other one has, the source's own where it is free.
 */
struct pl_export_pids {
	struct pl_intern used, key;
	int64_t *num; /* by key id; INT64_MIN: keep the source's text */
	size_t cap, n;
	int64_t next;
};
/* *num: the number, or INT64_MIN when the source's text can stand. */
int pl_export_pid(struct pl_export_pids *p, uint32_t segment, const char *pid, size_t len,
		  int64_t *num, struct pl_err *err);
void pl_export_pids_fini(struct pl_export_pids *p);
/* "rank 3 python (GPU 0)": what a process is called in a viewer. */
void pl_export_process_title(struct pl_writer *t, const struct pl_segment *s,
			     const struct pl_track *k, bool rank);

extern const struct pl_exporter pl_export_chrome, pl_export_perfetto, pl_export_csv,
	pl_export_jsonl, pl_export_text, pl_export_stat, pl_export_stat_json;

#endif
