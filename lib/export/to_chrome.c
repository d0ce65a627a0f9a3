/*
 * Chrome's JSON trace format (the "JSON Object Format" of its trace event page), as Perfetto and
 * PyTorch's tools read it. The output has everything that an import kept: values with a role get
 * the key of the source, times keep their base, top-level members stay at the top level.
 *
 * A trace of one segment becomes the profiler's file again. With several segments, processes with
 * the same number get new numbers, names contain the rank, and times are relative to the base of
 * the first segment and corrected if the stream was merged. Top-level members of one segment
 * (distributedInfo) move into "paceline". The first segment is written at once. The others wait for
 * their end, because their base may be known only then.
 */
#include "export/internal.h"

#define FLUSH ((size_t)256 << 10)

struct chrome {
	struct pl_export_base x; /* first */
	struct pl_export_pids pids;
	struct pl_writer segs; /* "paceline": members of the segments */
	struct pl_writer single, multi,
		late;	 /* of the first segment: parts that depend on the number of segments */
	uint32_t n_head; /* members that were written before the events */
	bool comma, opened;
	int64_t base0;
};

/* The values of one row without a column. */
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
	if (r->ph == 'B' && dur >= 0) /* begin and end were joined: one complete event */
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

/* Write the contents of `own` as a JSON string. */
static void put_written(struct pl_writer *t, struct pl_writer *own)
{
	pl_write_json_str(t, (const char *)own->b.p, own->b.n);
	if (own->fail.code && !t->fail.code)
		t->fail = own->fail;
	pl_write_fini(own);
}

static void put_pid(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
		    const struct pl_track *k)
{
	int64_t num;
	size_t n;
	const char *p = pl_trace_segment_str(s, k->pid, &n);

	if (pl_export_pid(&c->pids, c->x.merge.n_segs - 1, p, n, &num, &t->fail) < 0)
		return;
	if (num == INT64_MIN) {
		put_id(t, s, k->pid, k->flags & PL_TRACK_PID_STR);
	} else if (k->flags & PL_TRACK_PID_STR) {
		/* rows of a profiler ("Spans") must not get the number of a process */
		struct pl_writer own = { 0 };

		pl_write(&own, p, n);
		pl_write_format(&own, ".%u", c->x.merge.n_segs - 1);
		put_written(t, &own);
	} else {
		pl_write_int(t, num);
	}
}

static void put_where(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
		      uint32_t track)
{
	if (track >= s->n_tracks ||
	    (s->track[track].pid == PL_NONE && s->track[track].tid == PL_NONE))
		return;
	pl_write_text(t, ",\"pid\":");
	put_pid(c, t, s, &s->track[track]);
	pl_write_text(t, ",\"tid\":");
	put_id(t, s, s->track[track].tid, s->track[track].flags & PL_TRACK_TID_STR);
}

/* Names that readers of the event take for those of steps. */
static bool is_step_name(const char *s, size_t n)
{
	static const char word[] = "ProfilerStep#";
	const size_t k = sizeof(word) - 1;

	return n > k && !memcmp(s, word, k) && s[k] >= '0' && s[k] <= '9';
}

/* Does the value follow from the name, so that readers of the event find it again? */
static bool derived(const struct row *r, const struct pl_col *c)
{
	size_t n;
	const char *s = pl_trace_segment_str(r->seg, r->b->name[r->i], &n);

	if (c->key != PL_NONE)
		return false;
	return (c->role == PL_R_STEP && r->b->kind[r->i] == PL_K_STEP && is_step_name(s, n)) ||
	       (c->role == PL_R_COLL && pl_trace_coll_from_name(s, n));
}

static bool is_key(const struct row *r, const struct pl_col *c, const char *key)
{
	size_t n;
	const char *s = pl_trace_segment_str(r->seg, c->key, &n);

	return n == strlen(key) && !memcmp(s, key, n);
}

/* An id that viewers join with equal ones of all processes. It tells the segment, but for that of
 * the first, which stays as it is. */
static void put_joined_id(struct pl_writer *t, const struct row *r, const struct pl_col *c,
			  uint32_t k, uint32_t segment)
{
	struct pl_writer own = { 0 };
	size_t n;
	const char *s;

	if (!segment || (c->type != PL_V_INT && c->type != PL_V_STR)) {
		pl_export_value_json(t, r->seg, c, k);
		return;
	}
	pl_write_format(&own, "%u.", segment);
	if (c->type == PL_V_INT) {
		pl_write_int(&own, c->val[k]);
	} else {
		s = pl_trace_segment_str(r->seg, (pl_id)c->val[k], &n);
		pl_write(&own, s, n);
	}
	put_written(t, &own);
}

/* Members of the event; of the end of an asynchronous pair those that say whose end it is. */
static void put_top(struct pl_writer *t, const struct row *r, uint32_t segment, bool ends)
{
	for (const struct pl_row_entry *e = r->ent; e < r->end; e++) {
		const struct pl_col *c = &r->b->col[e->col];
		bool id;

		if (c->role != PL_R_TOP && c->role != PL_R_FLOW)
			continue;
		id = c->role == PL_R_FLOW || is_key(r, c, "id");
		if (ends && !id && !is_key(r, c, "id2") && !is_key(r, c, "scope"))
			continue;
		pl_write_char(t, ',');
		pl_export_key_json(t, r->seg, c, c->role == PL_R_TOP ? "top" : "id");
		if (id && r->ph != 'X') /* complete events are not joined */
			put_joined_id(t, r, c, e->k, segment);
		else
			pl_export_value_json(t, r->seg, c, e->k);
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
		pl_export_key_json(t, r->seg, c, pl_export_role_key(c->role));
		pl_export_value_json(t, r->seg, c, e->k);
	}
	if (any)
		pl_write_char(t, '}');
}

/* The members that each event has. */
static void put_head(struct chrome *c, const struct row *r, char ph, pl_ns ts)
{
	struct pl_writer *t = &c->x.t;
	unsigned kind = r->b->kind[r->i];

	pl_write_text(t, c->comma ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
	c->comma = true;
	pl_write_char(t, ph == '"' || ph == '\\' ? '?' : ph);
	pl_write_char(t, '"');
	if (r->cat) {
		pl_write_text(t, ",\"cat\":");
		pl_export_value_json(t, r->seg, r->cat, r->cat_k);
	} else if (kind != PL_K_OTHER && ph == 'X') {
		pl_write_text(t, ",\"cat\":\"");
		pl_write_text(t, pl_trace_kind_name(kind));
		pl_write_char(t, '"');
	}
	pl_write_text(t, ",\"name\":");
	pl_export_string_json(t, r->seg, r->b->name[r->i]);
	put_where(c, t, r->seg, r->b->track[r->i]);
	pl_write_text(t, ",\"ts\":");
	pl_write_us(t, ts);
}

/* A first segment that is not merged keeps its times; others become common times from base0. */
static void put_event(struct pl_export_base *base, const struct pl_segment *seg,
		      const struct pl_batch *b, uint32_t i)
{
	struct chrome *c = (struct chrome *)base;
	struct row r = { .seg = seg, .b = b, .i = i };
	struct pl_writer *t = &base->t;
	uint32_t segment = base->merge.n_segs - 1;
	pl_ns ts = b->ts[i], dur = b->dur[i];
	bool pair;

	look(&r, &base->rows);
	pair = r.ph == 'b' && dur >= 0; /* asynchronous begin and end were joined: two events */
	if (base->clock)
		ts = pl_sub_sat(pl_export_start(base, seg, b, i), c->base0);
	put_head(c, &r, r.ph, ts);
	if (dur >= 0 && !pair) {
		pl_write_text(t, ",\"dur\":");
		pl_write_us(t, dur);
	}
	put_top(t, &r, segment, false);
	put_args(t, &r);
	pl_write_char(t, '}');
	if (!pair)
		return;
	put_head(c, &r, 'e', pl_add_sat(ts, dur));
	put_top(t, &r, segment, true);
	pl_write_char(t, '}');
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Members that describe one segment; at the top of the file only if there is only one. */
static bool of_one_segment(const char *key)
{
	return !strcmp(key, "distributedInfo") || !strcmp(key, "baseTimeNanoseconds") ||
	       !strcmp(key, "host_name") || !strcmp(key, "traceName") || !strcmp(key, "paceline") ||
	       !strcmp(key, "trace_id");
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
		pl_export_member_json(t, s, &s->meta[i]);
		pl_write_char(t, ',');
	}
	pl_write_text(t, "\n\"traceEvents\":[");
}

/* Open a metadata event, up to the value of its argument; "}}" closes it. */
static void open_meta(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
		      uint32_t track, bool *comma, const char *what, const char *argument)
{
	pl_write_text(t, *comma ? ",\n" : "\n");
	*comma = true;
	pl_write_format(t, "{\"ph\":\"M\",\"name\":\"%s\"", what);
	put_where(c, t, s, track);
	pl_write_format(t, ",\"args\":{\"%s\":", argument);
}

static void put_meta_id(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
			uint32_t track, bool *comma, const char *what, const char *argument,
			pl_id id)
{
	if (id == PL_NONE)
		return;
	open_meta(c, t, s, track, comma, what, argument);
	pl_export_string_json(t, s, id);
	pl_write_text(t, "}}");
}

static void put_meta_sort(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
			  uint32_t track, bool *comma, const char *what, int64_t sort)
{
	if (!sort)
		return;
	open_meta(c, t, s, track, comma, what, "sort_index");
	pl_write_int(t, sort);
	pl_write_text(t, "}}");
}

static void put_process(struct chrome *c, struct pl_writer *t, const struct pl_segment *s,
			uint32_t i, bool multi, bool *comma)
{
	const struct pl_track *k = &s->track[i];
	struct pl_writer title = { 0 };
	int64_t sort = k->psort;

	if (!multi) {
		put_meta_id(c, t, s, i, comma, "process_name", "name", k->process);
	} else if (k->process != PL_NONE || k->rank >= 0) {
		open_meta(c, t, s, i, comma, "process_name", "name");
		pl_export_process_title(&title, s, k, true);
		put_written(t, &title);
		pl_write_text(t, "}}");
	}
	put_meta_id(c, t, s, i, comma, "process_labels", "labels", k->labels);
	if (multi && k->rank >= 0) /* by rank; host threads above streams of the device */
		sort = (int64_t)k->rank * 2 + (k->type == PL_T_STREAM);
	put_meta_sort(c, t, s, i, comma, "process_sort_index", sort);
}

static int put_tracks(struct chrome *c, struct pl_writer *t, const struct pl_segment *s, bool multi,
		      struct pl_err *err)
{
	bool comma = c->comma;
	uint8_t *seen; /* [string]: this process was described */

	PL_CHECK(pl_alloc(&seen, s->str.n + 1, 1, err));
	for (uint32_t i = 0; i < s->n_tracks; i++) {
		const struct pl_track *k = &s->track[i];

		if (k->pid >= s->str.n)
			continue;
		if (!seen[k->pid])
			put_process(c, t, s, i, multi, &comma);
		seen[k->pid] = 1;
		put_meta_id(c, t, s, i, &comma, "thread_name", "name", k->name);
		put_meta_sort(c, t, s, i, &comma, "thread_sort_index", k->sort);
	}
	pl_free(seen);
	return pl_write_check(t, err);
}

/* The object "paceline" of a segment. */
static void put_segment(struct pl_writer *t, const struct pl_segment *s, bool comma)
{
	pl_write_text(t, comma ? ",\n {\"source\":" : "\n {\"source\":");
	pl_write_json_text(t, s->source);
	pl_write_text(t, ",\"format\":");
	pl_write_json_text(t, s->format);
	pl_write_text(t, ",\"base_ns\":");
	pl_write_int(t, s->base_ns);
	pl_write_text(t, ",\"members\":");
	pl_export_members_json(t, s);
	pl_write_char(t, '}');
}

/* Late members of the first segment and, if it is alone, those that describe one segment. */
static void put_late(struct chrome *c, const struct pl_segment *s)
{
	bool based = s->base_ns == 0;

	for (uint32_t i = 0; i < s->n_meta; i++) {
		const char *key = pl_intern_get(&s->str, s->meta[i].key);
		bool one = of_one_segment(key);

		if (!one && i < c->n_head)
			continue;
		pl_write_text(&c->single, ",\n");
		pl_export_member_json(&c->single, s, &s->meta[i]);
		if (!one) {
			pl_write_text(&c->late, ",\n");
			pl_export_member_json(&c->late, s, &s->meta[i]);
		}
		based |= !strcmp(key, "baseTimeNanoseconds");
	}
	if (!based) {
		pl_write_text(&c->single, ",\n\"baseTimeNanoseconds\":");
		pl_write_int(&c->single, s->base_ns);
	}
}

/* ---- the sink -------------------------------------------------------------------------------- */

static int begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;

	(void)seg;
	pl_trace_merge_context_begin(&c->x.merge);
	pl_trace_hold_reset(&c->x.hold);
	if (c->x.merge.n_segs == 2) { /* now there is more than one segment */
		pl_write(&c->x.t, c->multi.b.p, c->multi.b.n);
		c->comma |= c->multi.b.n > 0;
	}
	return pl_write_check(&c->x.t, err);
}

static int batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		 struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;

	if (c->x.merge.n_segs > 1 || c->x.merge.present)
		return pl_trace_hold_add(&c->x.hold, b, NULL, err);
	if (!c->opened)
		open_file(c, seg);
	return pl_export_base_batch(&c->x, seg, b, put_event, err);
}

static int end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct chrome *c = (struct chrome *)sink;
	bool first = c->x.merge.n_segs == 1;

	if (first)
		c->base0 = seg->base_ns;
	if (!c->opened)
		open_file(c, seg);
	PL_CHECK(pl_export_base_clocks(&c->x, seg, err));
	PL_CHECK(pl_export_base_events(&c->x, seg, put_event, err));
	pl_trace_hold_reset(&c->x.hold);
	put_segment(&c->segs, seg, !first);
	if (!first) {
		size_t n = c->x.t.b.n;

		PL_CHECK(put_tracks(c, &c->x.t, seg, true, err));
		c->comma |= c->x.t.b.n > n;
	} else {
		PL_CHECK(put_tracks(c, &c->multi, seg, true, err));
		PL_CHECK(put_tracks(c, &c->single, seg, false, err));
		pl_write_text(&c->single, "\n]");
		put_late(c, seg);
	}
	pl_write_flush(&c->x.t, FLUSH);
	PL_CHECK(pl_write_check(&c->x.t, err));
	PL_CHECK(pl_write_check(&c->segs, err));
	PL_CHECK(pl_write_check(&c->single, err));
	PL_CHECK(pl_write_check(&c->multi, err));
	return pl_write_check(&c->late, err);
}

static void last(struct pl_export_base *x)
{
	struct chrome *c = (struct chrome *)x;
	struct pl_writer *t = &x->t;

	if (!c->opened)
		open_file(c, NULL);
	if (x->merge.n_segs == 1) {
		pl_write(t, c->single.b.p, c->single.b.n);
	} else {
		pl_write_text(t, "\n]");
		pl_write(t, c->late.b.p, c->late.b.n);
		if (x->merge.n_segs) {
			pl_write_text(t, ",\n\"baseTimeNanoseconds\":");
			pl_write_int(t, c->base0);
			pl_write_text(t, ",\n\"paceline\":{\"segments\":[");
			pl_write(t, c->segs.b.p, c->segs.b.n);
			pl_write_text(t, "\n]}");
		}
	}
	pl_write_text(t, "\n}\n");
}

static void fini(struct pl_export_base *x)
{
	struct chrome *c = (struct chrome *)x;

	pl_export_pids_fini(&c->pids);
	pl_write_fini(&c->segs);
	pl_write_fini(&c->single);
	pl_write_fini(&c->multi);
	pl_write_fini(&c->late);
}

static void init(struct pl_export_base *x)
{
	x->sink = (struct pl_sink){ begin, batch, end, pl_export_base_merge };
}

const struct pl_exporter pl_export_chrome = {
	.name = "chrome",
	.summary = "Chrome trace event JSON, for chrome://tracing, Perfetto, TensorBoard",
	.kind =
		&(const struct pl_export_kind){
			.size = sizeof(struct chrome), .init = init, .last = last, .fini = fini },
};
