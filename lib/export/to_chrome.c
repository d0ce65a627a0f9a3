/*
 * Chrome's JSON trace format (the "JSON Object Format" of its trace event page), as
 * chrome://tracing, Perfetto and PyTorch's tools read it. Nothing that an import kept is lost: what
 * had a role goes back under the key it came from, times keep their base, top-level members stay
 * top-level.
 *
 * A trace of one segment is the profiler's file again. With several, processes that share a number
 * get one of their own, names say the rank, times are relative to the first segment's base and
 * corrected where the stream was merged; top-level members that hold for one segment only
 * (distributedInfo) move into "paceline". The first segment is written as it comes; the others wait
 * for their end, because their base may be known only then.
 */
#include <string.h>

#include "export/internal.h"

#define FLUSH ((size_t)256 << 10)

struct chrome {
	struct pl_export_base x; /* first */
	struct pl_export_pids pids;
	struct pl_writer segs;		      /* "paceline": members of the segments */
	struct pl_writer single, multi, late; /* of the first segment: what only the end decides */
	uint32_t n_head;		      /* members written ahead of the events */
	bool comma, opened;
	int64_t base0;
};

/* What one row says besides its columns. */
struct row {
	const struct pl_segment *seg;
	const struct pl_batch *b;
	const struct pl_row_entry *ent, *end;
	uint32_t i;
	char ph;
	const struct pl_col *cat;
	uint32_t cat_k;
};

static char phase_of_kind(unsigned kind, pl_ns dur)
{
	switch (kind) {
	case PL_K_FLOW_OUT:
		return 's';
	case PL_K_FLOW_IN:
		return 'f';
	case PL_K_COUNTER:
		return 'C';
	case PL_K_INSTANT:
		return 'i';
	default:
		return dur < 0 ? 'i' : 'X';
	}
}

static void look(struct row *r, const struct pl_row_values *rows)
{
	pl_ns dur = r->b->dur[r->i];

	r->ent = rows->ent + rows->off[r->i];
	r->end = rows->ent + rows->off[r->i + 1];
	r->ph = phase_of_kind(r->b->kind[r->i], dur);
	r->cat = NULL;
	for (const struct pl_row_entry *e = r->ent; e < r->end; e++) {
		const struct pl_col *c = &r->b->col[e->col];
		size_t n;
		const char *s;

		if (c->role == PL_R_CAT && c->type == PL_V_STR) {
			r->cat = c;
			r->cat_k = e->k;
		} else if (c->role == PL_R_PH && c->type == PL_V_STR) {
			s = pl_trace_segment_str(r->seg, (pl_id)c->val[e->k], &n);
			if (n == 1)
				r->ph = *s;
		}
	}
	if (r->ph == 'B' && dur >= 0) /* its end was found: one complete event */
		r->ph = 'X';
}

static void put_id(struct pl_writer *t, const struct pl_segment *s, pl_id id, bool quoted)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, id, &n);
	int64_t v;

	if (!quoted && n && (pl_json_i64(p, n, &v) || pl_json_valid(p, n)))
		pl_write(t, p, n);
	else
		pl_write_json_str(t, p, n);
}

static int put_pid(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
		   const struct pl_track *k, struct pl_err *err)
{
	int64_t num;
	size_t n;
	const char *p = pl_trace_segment_str(s, k->pid, &n);
	int rc = pl_export_pid(&c->pids, c->x.n_segs - 1, p, n, &num, err);

	if (rc < 0)
		return rc;
	if (num == INT64_MIN) {
		put_id(t, s, k->pid, k->flags & PL_TRACK_PID_STR);
	} else if (k->flags & PL_TRACK_PID_STR) {
		/* a profiler's own rows, "Spans", must not become a process among others */
		struct pl_writer own = { 0 };

		pl_write(&own, p, n);
		pl_write_char(&own, '.');
		pl_write_int(&own, c->x.n_segs - 1);
		pl_write_json_str(t, (const char *)own.b.p, own.b.n);
		rc = pl_writer_check(&own, err);
		pl_writer_fini(&own);
	} else {
		pl_write_int(t, num);
	}
	return rc;
}

static int put_where(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
		     uint32_t track, struct pl_err *err)
{
	int rc;

	if (track >= s->n_tracks ||
	    (s->track[track].pid == PL_NONE && s->track[track].tid == PL_NONE))
		return 0;
	pl_write_text(t, ",\"pid\":");
	rc = put_pid(c, t, s, &s->track[track], err);
	pl_write_text(t, ",\"tid\":");
	put_id(t, s, s->track[track].tid, s->track[track].flags & PL_TRACK_TID_STR);
	return rc;
}

/* Is this value derived from the name, so that whoever reads the event finds it again? */
static bool derived(const struct row *r, const struct pl_col *c)
{
	size_t n;
	const char *s = pl_trace_segment_str(r->seg, r->b->name[r->i], &n);

	if (c->key != PL_NONE)
		return false;
	return (c->role == PL_R_STEP && r->b->kind[r->i] == PL_K_STEP) ||
	       (c->role == PL_R_COLL && pl_trace_coll_from_name(s, n));
}

static void put_key(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
		    const char *fallback)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, c->key, &n);

	if (c->key == PL_NONE)
		pl_write_json_str(t, fallback, strlen(fallback));
	else
		pl_write_json_str(t, p, n);
	pl_write_char(t, ':');
}

/* Members of the event itself. Flow ids of later segments get the segment's number: viewers join
 * equal ids whatever their process is. */
static void put_top(struct pl_writer *t, const struct row *r, uint32_t segment)
{
	for (const struct pl_row_entry *e = r->ent; e < r->end; e++) {
		const struct pl_col *c = &r->b->col[e->col];

		if (c->role == PL_R_TOP) {
			pl_write_char(t, ',');
			put_key(t, r->seg, c, "top");
			pl_export_value_json(t, r->seg, c, e->k);
		} else if (c->role == PL_R_FLOW) {
			pl_write_char(t, ',');
			put_key(t, r->seg, c, "id");
			if (segment && c->type == PL_V_INT) {
				pl_write_char(t, '"');
				pl_write_int(t, segment);
				pl_write_char(t, '.');
				pl_write_int(t, c->val[e->k]);
				pl_write_char(t, '"');
			} else {
				pl_export_value_json(t, r->seg, c, e->k);
			}
		}
	}
}

static void put_args(struct pl_writer *t, const struct row *r)
{
	bool any = false;

	for (const struct pl_row_entry *e = r->ent; e < r->end; e++) {
		const struct pl_col *c = &r->b->col[e->col];

		if (c->role == PL_R_TOP || c->role == PL_R_CAT || c->role == PL_R_PH ||
		    c->role == PL_R_FLOW || derived(r, c))
			continue;
		pl_write_text(t, any ? "," : ",\"args\":{");
		any = true;
		put_key(t, r->seg, c, pl_export_role_key(c->role));
		pl_export_value_json(t, r->seg, c, e->k);
	}
	if (any)
		pl_write_char(t, '}');
}

static int put_event(struct chrome *c, const struct row *r, pl_ns ts, struct pl_err *err)
{
	struct pl_writer *t = &c->x.t;
	const char *s;
	size_t n;
	int rc;

	pl_write_text(t, c->comma ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
	c->comma = true;
	pl_write_char(t, r->ph == '"' || r->ph == '\\' ? '?' : r->ph);
	pl_write_char(t, '"');
	if (r->cat) {
		pl_write_text(t, ",\"cat\":");
		pl_export_value_json(t, r->seg, r->cat, r->cat_k);
	} else if (r->b->kind[r->i] != PL_K_OTHER && r->ph == 'X') {
		pl_write_text(t, ",\"cat\":\"");
		pl_write_text(t, pl_trace_kind_name(r->b->kind[r->i]));
		pl_write_char(t, '"');
	}
	s = pl_trace_segment_str(r->seg, r->b->name[r->i], &n);
	pl_write_text(t, ",\"name\":");
	pl_write_json_str(t, s, n);
	rc = put_where(c, t, r->seg, r->b->track[r->i], err);
	pl_write_text(t, ",\"ts\":");
	pl_write_us(t, ts);
	if (r->b->dur[r->i] >= 0) {
		pl_write_text(t, ",\"dur\":");
		pl_write_us(t, r->b->dur[r->i]);
	}
	put_top(t, r, c->x.n_segs - 1);
	put_args(t, r);
	pl_write_char(t, '}');
	pl_writer_flush(t, FLUSH);
	return rc;
}

/* clock: NULL: times stay as they are; else the clock of each track, and times count from base0. */
static int put_batch(struct chrome *c, struct pl_segment *seg, const struct pl_batch *b,
		     const struct pl_clock *const *clock, struct pl_err *err)
{
	struct row r = { .seg = seg, .b = b };
	int rc = pl_trace_row_values_build(&c->x.rows, b, err);

	for (r.i = 0; rc >= 0 && r.i < b->n; r.i++) {
		pl_ns ts = b->ts[r.i];

		look(&r, &c->x.rows);
		if (clock) {
			const struct pl_clock *k =
				b->track[r.i] < seg->n_tracks ? clock[b->track[r.i]] : NULL;

			ts = pl_sub_sat(pl_trace_clock_apply(k, pl_add_sat(ts, seg->base_ns)),
					c->base0);
		}
		rc = put_event(c, &r, ts, err);
	}
	return rc < 0 ? rc : pl_writer_check(&c->x.t, err);
}

/* ---- metadata ----------------------------------------------------------------------------------
 */

/* Members that hold for one segment; at the top of the file only when it is the only one. */
static bool of_one_segment(const char *key)
{
	return !strcmp(key, "distributedInfo") || !strcmp(key, "baseTimeNanoseconds") ||
	       !strcmp(key, "host_name") || !strcmp(key, "traceName") || !strcmp(key, "paceline") ||
	       !strcmp(key, "trace_id");
}

static void put_member(struct pl_writer *t, const struct pl_segment *s, const struct pl_meta *m)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, m->key, &n);

	pl_write_json_str(t, p, n);
	pl_write_char(t, ':');
	p = pl_trace_segment_str(s, m->value, &n);
	pl_write_json(t, p, n);
}

static void open_file(struct chrome *c, const struct pl_segment *s)
{
	struct pl_writer *t = &c->x.t;

	c->opened = true;
	c->n_head = s ? s->n_meta : 0;
	pl_write_char(t, '{');
	for (uint32_t i = 0; s && i < s->n_meta; i++) {
		if (of_one_segment(pl_intern_get(&s->str, s->meta[i].key)))
			continue;
		pl_write_text(t, "\n");
		put_member(t, s, &s->meta[i]);
		pl_write_char(t, ',');
	}
	pl_write_text(t, "\n\"traceEvents\":[");
}

static void put_meta_event(struct pl_writer *t, bool *comma, const char *what)
{
	pl_write_text(t, *comma ? ",\n" : "\n");
	*comma = true;
	pl_write_text(t, "{\"ph\":\"M\",\"name\":\"");
	pl_write_text(t, what);
	pl_write_char(t, '"');
}

static int put_track(struct chrome *c, struct pl_writer *t, const struct pl_segment *s, uint32_t i,
		     bool multi, uint8_t *seen, bool *comma, struct pl_err *err)
{
	const struct pl_track *k = &s->track[i];
	bool first;
	int64_t sort = k->psort;
	int rc = 0;

	if (k->pid >= s->str.n)
		return 0;
	first = !seen[k->pid];
	seen[k->pid] = 1;
	if (first && (k->process != PL_NONE || (multi && k->rank >= 0))) {
		put_meta_event(t, comma, "process_name");
		PL_TRY(put_where(c, t, s, i, err));
		pl_write_text(t, ",\"args\":{\"name\":");
		if (multi) {
			struct pl_writer tmp = { 0 };

			pl_export_process_title(&tmp, s, k, true);
			pl_write_json_str(t, (const char *)tmp.b.p, tmp.b.n);
			rc = pl_writer_check(&tmp, err);
			pl_writer_fini(&tmp);
			PL_TRY(rc);
		} else {
			put_id(t, s, k->process, true);
		}
		pl_write_text(t, "}}");
	}
	if (first && k->labels != PL_NONE) {
		put_meta_event(t, comma, "process_labels");
		PL_TRY(put_where(c, t, s, i, err));
		pl_write_text(t, ",\"args\":{\"labels\":");
		put_id(t, s, k->labels, true);
		pl_write_text(t, "}}");
	}
	if (multi && k->rank >= 0) /* ranks in order, host threads above the device's streams */
		sort = (int64_t)k->rank * 2 + (k->type == PL_T_STREAM);
	if (first && sort) {
		put_meta_event(t, comma, "process_sort_index");
		PL_TRY(put_where(c, t, s, i, err));
		pl_write_text(t, ",\"args\":{\"sort_index\":");
		pl_write_int(t, sort);
		pl_write_text(t, "}}");
	}
	if (k->name != PL_NONE) {
		put_meta_event(t, comma, "thread_name");
		PL_TRY(put_where(c, t, s, i, err));
		pl_write_text(t, ",\"args\":{\"name\":");
		put_id(t, s, k->name, true);
		pl_write_text(t, "}}");
	}
	if (k->sort) {
		put_meta_event(t, comma, "thread_sort_index");
		PL_TRY(put_where(c, t, s, i, err));
		pl_write_text(t, ",\"args\":{\"sort_index\":");
		pl_write_int(t, k->sort);
		pl_write_text(t, "}}");
	}
out:
	return rc;
}

static int put_tracks(struct chrome *c, struct pl_writer *t, const struct pl_segment *s, bool multi,
		      struct pl_err *err)
{
	bool comma = c->comma;
	uint8_t *seen; /* by string: this process was described */
	int rc;

	PL_TRY(pl_alloc(&seen, s->str.n + 1, 1, err));
	for (uint32_t i = 0; rc >= 0 && i < s->n_tracks; i++)
		rc = put_track(c, t, s, i, multi, seen, &comma, err);
	pl_free(seen);
out:
	return rc < 0 ? rc : pl_writer_check(t, err);
}

/* What "paceline" says of a segment. */
static void put_segment(struct pl_writer *t, const struct pl_segment *s, bool comma)
{
	bool any = false;

	pl_write_text(t, comma ? ",\n {\"source\":" : "\n {\"source\":");
	pl_write_json_str(t, s->source ? s->source : "", s->source ? strlen(s->source) : 0);
	pl_write_text(t, ",\"format\":");
	pl_write_json_str(t, s->format ? s->format : "", s->format ? strlen(s->format) : 0);
	pl_write_text(t, ",\"base_ns\":");
	pl_write_int(t, s->base_ns);
	pl_write_text(t, ",\"members\":{");
	for (uint32_t i = 0; i < s->n_meta; i++) {
		if (any)
			pl_write_char(t, ',');
		any = true;
		put_member(t, s, &s->meta[i]);
	}
	pl_write_text(t, "}}");
}

/* Members of the first segment that stand after the events: those that came late, and, if it is the
 * only one, those that hold for it alone. */
static void put_late(struct chrome *c, const struct pl_segment *s)
{
	bool based = s->base_ns == 0;

	for (uint32_t i = 0; i < s->n_meta; i++) {
		const char *key = pl_intern_get(&s->str, s->meta[i].key);
		bool one = of_one_segment(key);

		if (!one && i < c->n_head)
			continue;
		pl_write_text(&c->single, ",\n");
		put_member(&c->single, s, &s->meta[i]);
		if (!one) {
			pl_write_text(&c->late, ",\n");
			put_member(&c->late, s, &s->meta[i]);
		}
		based |= !strcmp(key, "baseTimeNanoseconds");
	}
	if (!based) {
		pl_write_text(&c->single, ",\n\"baseTimeNanoseconds\":");
		pl_write_int(&c->single, s->base_ns);
	}
}

/* ---- the sink ----------------------------------------------------------------------------------
 */

static int begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;
	(void)seg;

	if (c->x.n_segs++)
		c->x.merge.rel++;
	pl_trace_hold_reset(&c->x.hold);
	if (c->x.n_segs == 2) { /* now it is known that the first is not alone */
		pl_write(&c->x.t, c->multi.b.p, c->multi.b.n);
		c->comma |= c->multi.b.n > 0;
	}
	return pl_writer_check(&c->x.t, err);
}

static int batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		 struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;

	if (c->x.n_segs > 1 || c->x.merge.present)
		return pl_trace_hold_add(&c->x.hold, b, NULL, err);
	if (!c->opened)
		open_file(c, seg);
	return put_batch(c, seg, b, NULL, err);
}

static int emit_held(struct chrome *c, struct pl_segment *seg, struct pl_err *err)
{
	const struct pl_clock **clock = NULL;
	int rc;

	PL_TRY(pl_alloc(&clock, (size_t)seg->n_tracks + 1, sizeof(const struct pl_clock *), err));
	for (uint32_t i = 0; i < seg->n_tracks; i++)
		clock[i] = pl_trace_merge_context_clock(&c->x.merge, seg->track[i].rank);
	for (size_t i = 0; i < c->x.hold.n; i++)
		PL_TRY(put_batch(c, seg, &c->x.hold.b[i], clock, err));
out:
	pl_free(clock);
	pl_trace_hold_reset(&c->x.hold);
	return rc;
}

static int end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;
	bool first = c->x.n_segs == 1;
	int rc;

	if (first)
		c->base0 = seg->base_ns;
	if (!c->opened)
		open_file(c, seg);
	PL_TRY(emit_held(c, seg, err));
	put_segment(&c->segs, seg, !first);
	if (!first) {
		size_t n = c->x.t.b.n;

		PL_TRY(put_tracks(c, &c->x.t, seg, true, err));
		c->comma |= c->x.t.b.n > n;
	} else {
		PL_TRY(put_tracks(c, &c->multi, seg, true, err));
		PL_TRY(put_tracks(c, &c->single, seg, false, err));
		pl_write_text(&c->single, "\n]");
		put_late(c, seg);
	}
	pl_writer_flush(&c->x.t, FLUSH);
	PL_TRY(pl_writer_check(&c->x.t, err));
	PL_TRY(pl_writer_check(&c->segs, err));
	PL_TRY(pl_writer_check(&c->single, err));
	PL_TRY(pl_writer_check(&c->multi, err));
	rc = pl_writer_check(&c->late, err);
out:
	return rc;
}

static int merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;
	int rc = pl_trace_merge_context_take(&c->x.merge, m, err);

	c->x.merge.rel = c->x.n_segs ? UINT32_MAX : 0;
	return rc;
}

static struct pl_sink *chrome_open(struct pl_out *out, const struct pl_export_opts *o,
				   struct pl_err *err)
{
	struct chrome *c = pl_export_base_open(sizeof(*c), out, o, NULL, err);

	if (!c)
		return NULL;
	c->x.sink = (struct pl_sink){ begin, batch, end, merge };
	return &c->x.sink;
}

static void chrome_abort(struct pl_sink *sink)
{
	struct chrome *c = (struct chrome *)sink;

	if (!c)
		return;
	pl_export_pids_fini(&c->pids);
	pl_writer_fini(&c->segs);
	pl_writer_fini(&c->single);
	pl_writer_fini(&c->multi);
	pl_writer_fini(&c->late);
	pl_export_base_fini(&c->x);
	pl_free(c);
}

static int chrome_close(struct pl_sink *sink, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;
	struct pl_writer *t = &c->x.t;
	int rc;

	if (!c->opened)
		open_file(c, NULL);
	if (c->x.n_segs == 1) {
		pl_write(t, c->single.b.p, c->single.b.n);
	} else {
		pl_write_text(t, "\n]");
		pl_write(t, c->late.b.p, c->late.b.n);
		if (c->x.n_segs) {
			pl_write_text(t, ",\n\"baseTimeNanoseconds\":");
			pl_write_int(t, c->base0);
			pl_write_text(t, ",\n\"paceline\":{\"segments\":[");
			pl_write(t, c->segs.b.p, c->segs.b.n);
			pl_write_text(t, "\n]}");
		}
	}
	pl_write_text(t, "\n}\n");
	rc = pl_export_base_finish(&c->x, err);
	chrome_abort(sink);
	return rc;
}

const struct pl_exporter pl_export_chrome = {
	.name = "chrome",
	.summary = "Chrome trace event JSON, for chrome://tracing, Perfetto, TensorBoard",
	.open = chrome_open,
	.close = chrome_close,
	.abort = chrome_abort,
};
