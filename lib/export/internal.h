/*
 * internal.h - what the exporters share: buffered text with a sticky error, held batches, the
 * values of one row, corrected times.
 *
 * An exporter that needs the tracks and the time base of a segment before it can write its first
 * event (they may become known at the segment's end) is a `struct x_base` with an emit() function:
 * the base holds the batches of one segment and calls emit() at its end.
 */
#ifndef PL_EXPORT_INTERNAL_H
#define PL_EXPORT_INTERNAL_H

#include "export/export.h"

/* ---- text out ----------------------------------------------------------------------------------
 */

/* Every x_put...() does nothing after the first failure, which x_text_rc() returns. */
struct x_text {
	struct pl_buf b;
	struct pl_out *out; /* NULL: the bytes stay in b */
	struct pl_err *err; /* of the call in progress */
	int rc;
};
void x_put(struct x_text *t, const void *p, size_t n);
void x_puts(struct x_text *t, const char *s);
void x_putc(struct x_text *t, char c);
void x_i64(struct x_text *t, int64_t v);
void x_dec(struct x_text *t, int64_t mantissa, unsigned scale); /* 150, 2: 1.50 */
void x_us(struct x_text *t, pl_ns ns);				/* microseconds, exactly */
/* A JSON string with its quotes; what is not UTF-8 becomes U+FFFD. */
void x_json_str(struct x_text *t, const char *s, size_t n);
/* A raw JSON value as importers keep it: copied when it is valid JSON on one line, else written
 * anew with what is not JSON (bare inf, N/A) as strings. */
void x_json_raw(struct x_text *t, const char *s, size_t n);
bool x_json_valid(const char *s, size_t n);
void x_csv_str(struct x_text *t, const char *s, size_t n); /* quoted if need be */
void x_flush(struct x_text *t, size_t above);		   /* when more than `above` bytes wait */
void x_text_fini(struct x_text *t);

/* ---- held batches ------------------------------------------------------------------------------
 */

struct x_hold {
	struct pl_batch *b;
	size_t n, cap;
	struct pl_arena mem;
};
/* Copy the rows of b for which mask[row] is not 0 (NULL: all). */
int x_hold_add(struct x_hold *h, const struct pl_batch *b, const uint8_t *mask, struct pl_err *err);
void x_hold_reset(struct x_hold *h);
void x_hold_fini(struct x_hold *h);

/* The values of each row: entries off[row] .. off[row + 1], in the order of the columns. */
struct x_rows {
	struct x_ent {
		uint32_t col, k;
	} * ent;
	uint32_t *off;
	size_t cap_ent, cap_off;
};
int x_rows_build(struct x_rows *r, const struct pl_batch *b, struct pl_err *err);
void x_rows_fini(struct x_rows *r);

/* ---- corrected times ---------------------------------------------------------------------------
 */

/* A copy of what merge added, and which segments it speaks of. */
struct x_merge {
	struct pl_merge m; /* as given; owned */
	bool present;
	uint32_t rel; /* number of the current segment, as m counts */
};
int x_merge_take(struct x_merge *x, const struct pl_merge *m, struct pl_err *err);
const struct pl_clock *x_merge_clock(const struct x_merge *x, int32_t rank);
void x_merge_fini(struct x_merge *x);

/* Index from events to matches: members sorted by (segment, event). */
struct x_member {
	uint32_t segment, event, match;
};
int x_members_build(const struct pl_merge *m, struct x_member **v, size_t *n, struct pl_err *err);
/* The match of an event, or PL_NONE. */
uint32_t x_member_find(const struct x_member *v, size_t n, uint32_t segment, uint32_t event);

/* ---- steps -------------------------------------------------------------------------------------
 */

/* The steps of one segment, from its STEP events and the launches on its host threads. */
struct x_steps {
	struct x_step *step;
	struct x_launch *launch;
	size_t n, cap, n_launches, cap_launches;
};
int x_steps_note(struct x_steps *x, const struct pl_batch *b, struct pl_err *err);
void x_steps_sort(struct x_steps *x, const struct pl_segment *s); /* when all are noted */
/* Step of a row: recorded, its own number, or by time; INT64_MIN: none. rows are those of b. */
int64_t x_steps_of(const struct x_steps *x, const struct pl_segment *s, const struct pl_batch *b,
		   const struct x_rows *rows, uint32_t i);
void x_steps_fini(struct x_steps *x);

/* ---- what a filter left of a merge -------------------------------------------------------------
 */

/* Which events of a segment passed a filter: their numbers before it, ascending. */
struct x_passed {
	const uint32_t *from;
	size_t n;
};
/* Makes m, which is the caller's own, that of the events that passed, in segments numbered anew
 * without those that lost all; seg[i]: segment i as m counts. */
int x_merge_passed(struct pl_merge *m, const struct x_passed *seg, uint32_t n_segs,
		   struct pl_err *err);

/* ---- the base of exporters ---------------------------------------------------------------------
 */

struct x_base {
	struct pl_sink sink; /* first */
	struct pl_export_opts o;
	struct x_text t;
	struct x_hold hold;
	struct x_rows rows;
	struct x_merge merge;
	uint32_t n_segs; /* begun so far, the current one included */
	/* Writes the segment from hold, merge, n_segs. */
	int (*emit)(struct x_base *x, struct pl_segment *seg, struct pl_err *err);
	/* May be NULL. */
	int (*on_merge)(struct x_base *x, const struct pl_merge *m, struct pl_err *err);
};
/* A zeroed exporter of `size` bytes whose first member is a struct x_base. */
void *x_base_open(size_t size, struct pl_out *out, const struct pl_export_opts *o,
		  int (*emit)(struct x_base *, struct pl_segment *, struct pl_err *),
		  struct pl_err *err);
/* Flushes the text; frees the base's own memory, not x. */
int x_base_finish(struct x_base *x, struct pl_err *err);
void x_base_fini(struct x_base *x);

/* ---- names of things ---------------------------------------------------------------------------
 */

/* How a role is called where nobody said otherwise: the key under which the importers find it
 * again. */
const char *x_role_key(unsigned role);
static inline const char *x_str(const struct pl_segment *s, pl_id id, size_t *n)
{
	if (id >= s->str.n) {
		*n = 0;
		return "";
	}
	*n = s->str.len[id];
	return s->str.str[id];
}
/* A column's value as JSON. */
void x_value_json(struct x_text *t, const struct pl_segment *s, const struct pl_col *c, uint32_t k);

/*
 * Process ids of several segments side by side: each (segment, pid as written) gets a number that
 * no other one has, the source's own where it is free.
 */
struct x_pids {
	struct pl_intern used, key;
	int64_t *num; /* by key id; INT64_MIN: keep the source's text */
	size_t cap, n;
	int64_t next;
};
/* *num: the number, or INT64_MIN when the source's text can stand. */
int x_pid(struct x_pids *p, uint32_t segment, const char *pid, size_t len, int64_t *num,
	  struct pl_err *err);
void x_pids_fini(struct x_pids *p);
/* "rank 3 python (GPU 0)": what a process is called in a viewer. */
void x_process_title(struct x_text *t, const struct pl_segment *s, const struct pl_track *k,
		     bool rank);

extern const struct pl_exporter pl_export_trace, pl_export_chrome, pl_export_perfetto,
	pl_export_csv, pl_export_jsonl, pl_export_text, pl_export_stat, pl_export_stat_json;

#endif
