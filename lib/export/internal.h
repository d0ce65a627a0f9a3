/*
 * internal.h - what the exporters share: matches of events, the base of exporters, the
 * values of one row, corrected times.
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

/* ---- matches of events --------------------------------------------------------------------- */

/* Index from events to matches: members sorted by (segment, event). */
struct pl_export_member {
	uint32_t segment, event, match;
};
int pl_export_members_build(const struct pl_merge *m, struct pl_export_member **v, size_t *n,
			    struct pl_err *err);
/* The match of an event, or PL_NONE. */
uint32_t pl_export_member_find(const struct pl_export_member *v, size_t n, uint32_t segment,
			       uint32_t event);

/* ---- the base of exporters ---------------------------------------------------------------------
 */

struct pl_export_base {
	struct pl_sink sink; /* first */
	struct pl_export_opts o;
	struct pl_writer t;
	struct pl_hold hold;
	struct pl_row_values rows;
	struct pl_merge_context merge;
	uint32_t n_segs; /* begun so far, the current one included */
	/* Writes the segment from hold, merge, n_segs. */
	int (*emit)(struct pl_export_base *x, struct pl_segment *seg, struct pl_err *err);
	/* May be NULL. */
	int (*on_merge)(struct pl_export_base *x, const struct pl_merge *m, struct pl_err *err);
};
/* A zeroed exporter of `size` bytes whose first member is a struct pl_export_base. */
void *pl_export_base_open(size_t size, struct pl_out *out, const struct pl_export_opts *o,
			  int (*emit)(struct pl_export_base *, struct pl_segment *,
				      struct pl_err *),
			  struct pl_err *err);
/* Flushes the text; frees the base's own memory, not x. */
int pl_export_base_finish(struct pl_export_base *x, struct pl_err *err);
void pl_export_base_fini(struct pl_export_base *x);

/* ---- names of things ---------------------------------------------------------------------------
 */

/* How a role is called where nobody said otherwise: the key under which the importers find it
 * again. */
const char *pl_export_role_key(unsigned role);
/* A column's value as JSON. */
void pl_export_value_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			  uint32_t k);

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

extern const struct pl_exporter pl_export_trace, pl_export_chrome, pl_export_perfetto,
	pl_export_csv, pl_export_jsonl, pl_export_text, pl_export_stat, pl_export_stat_json;

#endif
