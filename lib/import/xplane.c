/*
 * XPlane: the protobuf that the profiler of JAX and TensorFlow writes, of which trace.json is made.
 * The field numbers are those of the public xplane.proto.
 *
 * The names of events come behind the lines that use them, so the file must be in reach as a whole;
 * pages that were read leave memory. It is read three times: for what must be known before the
 * first event, then twice for the events, each plane first its tables of names and then its lines.
 * Events become plain rows for the sink of xla.h, which finds what they mean; it learns that the
 * first time and gives them on the second time, so that nobody holds them.
 */
#include <math.h>
#include <stdlib.h>

#include "import/xla.h"
#include "io/pb.h"
#include "io/whole.h"

#define MOST  ((size_t)8 << 30)	 /* bytes of a file */
#define PIECE ((size_t)16 << 20) /* so many bytes of it, or a little more, are in memory */
#define STATS 24		 /* of an event; those with more take longer */

enum { SPACE_PLANE = 1, SPACE_ERROR = 2, SPACE_WARNING = 3, SPACE_HOST = 4 };
enum { PLANE_NAME = 2, PLANE_LINE = 3, PLANE_EVENTS = 4, PLANE_STATS = 5, PLANE_STAT = 6 };
enum {
	LINE_ID = 1,
	LINE_NAME = 2,
	LINE_NS = 3,
	LINE_EVENT = 4,
	LINE_SHOWN_ID = 10,
	LINE_SHOWN = 11
};
enum { EVENT_NAME = 1, EVENT_OFFSET = 2, EVENT_DUR = 3, EVENT_STAT = 4, EVENT_COUNT = 5 };
enum {
	STAT_NAME = 1,
	STAT_DOUBLE,
	STAT_UINT,
	STAT_INT,
	STAT_STR,
	STAT_BYTES,
	STAT_REF,
	STAT_PACKED
};
enum { META_ID = 1, META_NAME = 2, META_SHOWN = 4, META_STAT = 5 };

/* Where values need not be learnt. */
enum { IN_DEVICE = 1, IN_HOST = 2 };

struct meta { /* of events or statistics */
	int64_t id;
	const char *name;
	size_t n;
	struct pl_pb_in message;
	pl_id str;		   /* PL_NONE: not used yet */
	uint32_t col[PL_V_COUNT_]; /* of a statistic, + 1 */
	uint32_t first, n_values;  /* of an event: its own statistics, reader.value[first] ... */
	bool has_values;	   /* they were read */
	uint8_t idle; /* a statistic whose values need not be learnt: IN_DEVICE, IN_HOST */
};
struct metas {
	struct meta *v; /* by id */
	size_t n, cap;
};
struct value {
	struct meta *key; /* NULL: it has no value that is kept */
	struct meta *ref; /* its text is the name of this one */
	uint8_t type;
	bool big;  /* its text is v, which is 2^63 or more */
	int64_t v; /* a string: unused until it is known who wants it */
	const char *s;
	size_t n;
	pl_id str; /* PL_NONE: not used yet */
};
struct line {
	const char *name;
	size_t n;
	int64_t id, ns;
	pl_id track; /* PL_NONE: not used yet */
};
struct reader {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_rows rows;
	struct pl_xla *xla;
	struct pl_whole file;
	const uint8_t *rest;	  /* what is before may have left memory */
	struct metas event, stat; /* of the plane being read */
	struct value *value;	  /* of its events' own statistics */
	size_t n_values, cap_values;
	struct line *line; /* of all planes, in their order */
	size_t n_lines, cap_lines, at_line;
	const char *plane;
	size_t n_plane;
	const char *host;
	size_t n_host;
	int64_t start; /* of the profile, ns since 1970; INT64_MIN unknown */
	int64_t base;  /* what is left out of the times of lines */
	pl_id track;
	uint8_t learning; /* the first time that events are read: where; else 0 */
	bool first_time;
	unsigned said; /* what the profiler said about itself */
};

static void rest(struct reader *r, const uint8_t *p)
{
	if (PL_LIKELY(p >= r->rest && (size_t)(p - r->rest) < PIECE))
		return;
	pl_whole_rest(&r->file);
	r->rest = p;
}

static int64_t at(const struct reader *r, const uint8_t *p)
{
	return p - r->file.p;
}

/* ---- tables of names ----------------------------------------------------------------------- */

static int compare_meta(const void *pa, const void *pb)
{
	const struct meta *a = pa, *b = pb;

	return PL_COMPARE(a->id, b->id);
}

/* What is learnt of operations of devices is less (xla_rows.c). */
static uint8_t idle_in(uint8_t stat)
{
	switch (stat) {
	case PL_XS_OTHER:
		return IN_DEVICE | IN_HOST;
	case PL_XS_STEP:
	case PL_XS_RUN:
	case PL_XS_DEVICE:
	case PL_XS_GLOBAL:
	case PL_XS_CORR:
		return 0;
	default:
		return IN_DEVICE;
	}
}

/* An entry of a map: 1 key, 2 value. */
static int take_meta(struct metas *t, const struct pl_pb_field *entry, struct pl_err *err)
{
	struct pl_pb_in m = pl_pb_message(entry->p, entry->n);
	struct pl_pb_field f;
	struct meta x = { .str = PL_NONE };

	while (pl_pb_next(&m, &f)) {
		if (f.number == 1 && !f.bytes)
			x.id = (int64_t)f.v;
		else if (f.number == 2 && f.bytes)
			x.message = pl_pb_message(f.p, f.n);
	}
	m = x.message;
	while (m.p && pl_pb_next(&m, &f)) {
		bool shown = f.number == META_SHOWN && f.bytes && f.n;

		if (f.number == META_ID && !f.bytes)
			x.id = (int64_t)f.v;
		if (shown || (f.number == META_NAME && f.bytes && !x.n)) {
			x.name = (const char *)f.p;
			x.n = f.n;
		}
	}
	x.idle = idle_in(pl_import_xla_stat(x.name ? x.name : "", x.n));
	return pl_append(&t->v, &t->n, &t->cap, &x, sizeof(x), err);
}

static struct meta *find_meta(const struct metas *t, int64_t id)
{
	size_t i = 0;

	if (id > 0 && (uint64_t)id <= t->n && t->v[id - 1].id == id) /* the usual numbers */
		return &t->v[id - 1];
	PL_LOWER_BOUND(i, t->n, t->v[i].id < id);
	return i < t->n && t->v[i].id == id ? &t->v[i] : NULL;
}

static pl_id name_of(struct reader *r, struct meta *m)
{
	if (m->str == PL_NONE)
		m->str = pl_import_rows_text(&r->rows, m->n ? m->name : "", m->n);
	return m->str;
}

static void renew(void *arg)
{
	struct reader *r = arg;

	for (size_t i = 0; i < r->event.n; i++)
		r->event.v[i].str = PL_NONE;
	for (size_t i = 0; i < r->stat.n; i++) {
		r->stat.v[i].str = PL_NONE;
		memset(r->stat.v[i].col, 0, sizeof(r->stat.v[i].col));
	}
}

/* ---- statistics ---------------------------------------------------------------------------- */

/* The usual statistic: its number in one byte, then an integer or the number of a text. */
static bool read_short(struct reader *r, const struct pl_pb_field *stat, struct value *x)
{
	const uint8_t *p = stat->p, *end = p + stat->n;
	uint64_t v = 0;

	if (stat->n < 4 || *p++ != STAT_NAME << 3 || *p & 0x80)
		return false;
	x->key = find_meta(&r->stat, *p++);
	x->type = *p == STAT_REF << 3 ? PL_V_STR : PL_V_INT;
	if (*p != STAT_UINT << 3 && *p != STAT_INT << 3 && *p != STAT_REF << 3)
		return false;
	p++;
	for (unsigned shift = 0; p < end - 1 && shift < 63; shift += 7) {
		if (!(*p & 0x80))
			return false;
		v |= (uint64_t)(*p++ & 0x7f) << shift;
	}
	if (p != end - 1 || *p & 0x80 || stat->n > 11)
		return false;
	v |= (uint64_t)*p << 7 * (stat->n - 4);
	x->v = (int64_t)v;
	x->str = PL_NONE;
	x->big = false;
	x->ref = NULL;
	if (x->type == PL_V_STR) {
		x->ref = find_meta(&r->stat, x->v);
		if (!x->ref)
			x->key = NULL;
	}
	return true;
}

/* Bytes and packed texts are left out: descriptions of programs. */
static struct value read_stat(struct reader *r, const struct pl_pb_field *stat)
{
	struct pl_pb_in m = pl_pb_message(stat->p, stat->n);
	struct value x = { .type = PL_V_INT, .str = PL_NONE };
	struct pl_pb_field f;
	bool has = false;

	while (pl_pb_next(&m, &f)) {
		if (f.number == STAT_NAME && !f.bytes) {
			x.key = find_meta(&r->stat, (int64_t)f.v);
		} else if (f.number == STAT_DOUBLE && !f.bytes) {
			x.type = PL_V_JSON;
			x.v = (int64_t)f.v;
			has = true;
		} else if ((f.number == STAT_UINT || f.number == STAT_INT) && !f.bytes) {
			x.v = (int64_t)f.v;
			x.big = f.number == STAT_UINT && x.v < 0;
			x.type = x.big ? PL_V_STR : PL_V_INT;
			has = true;
		} else if (f.number == STAT_STR && f.bytes) {
			x.type = PL_V_STR;
			x.s = (const char *)f.p;
			x.n = f.n;
			x.ref = NULL;
			has = true;
		} else if (f.number == STAT_REF && !f.bytes) {
			x.ref = find_meta(&r->stat, (int64_t)f.v);
			x.type = PL_V_STR;
			x.s = x.ref ? x.ref->name : "";
			x.n = x.ref ? x.ref->n : 0;
			has = x.ref != NULL;
		}
	}
	x.key = has ? x.key : NULL;
	return x;
}

/* The text of a number, as JSON. */
static size_t real_text(char *out, size_t size, int64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof(v));
	if (!isfinite(v))
		snprintf(out, size, "null");
	else
		pl_fmt_real(out, size, v);
	return strlen(out);
}

static pl_id string_of(struct reader *r, struct value *x)
{
	char text[40];

	if (x->type == PL_V_JSON) {
		x->n = real_text(text, sizeof(text), x->v);
		return pl_import_rows_text(&r->rows, text, x->n);
	}
	if (x->big)
		return pl_import_rows_format(&r->rows, "%llu", (unsigned long long)x->v);
	return x->ref ? name_of(r, x->ref) : pl_import_rows_text(&r->rows, x->n ? x->s : "", x->n);
}

static int put_value(struct reader *r, struct value *x, struct pl_err *err)
{
	uint32_t *known, c, row;
	struct pl_col *col;

	if (!x->key)
		return 0;
	known = &x->key->col[x->type];
	if (x->type != PL_V_INT && x->str == PL_NONE)
		x->str = string_of(r, x);
	if (PL_UNLIKELY(!*known)) {
		PL_CHECK(pl_import_rows_col(&r->rows, PL_R_ARG, x->type, name_of(r, x->key), &c,
					    err));
		*known = c + 1;
	}
	PL_CHECK(r->rows.rc);
	if (x->key->idle & r->learning)
		return 0;
	col = &r->rows.cur->b.col[*known - 1];
	row = r->rows.cur->b.n;
	if (col->n && col->row[col->n - 1] == row) /* given twice: the first counts */
		return 0;
	return pl_trace_col_put(col, row, x->type == PL_V_INT ? x->v : x->str, 0, err);
}

static int put_stat(struct reader *r, const struct pl_pb_field *stat, struct pl_err *err)
{
	struct value x;

	if (!read_short(r, stat, &x))
		x = read_stat(r, stat);
	return put_value(r, &x, err);
}

static int put_stats(struct reader *r, struct pl_pb_in m, struct pl_err *err)
{
	struct pl_pb_field f;

	while (pl_pb_next(&m, &f))
		if (f.number == EVENT_STAT && f.bytes)
			PL_CHECK(put_stat(r, &f, err));
	return 0;
}

/* The statistics that every event of this name has. */
static int put_common(struct reader *r, struct meta *meta, struct pl_err *err)
{
	struct pl_pb_in m = meta->message;
	struct pl_pb_field f;

	if (!meta->has_values) {
		meta->has_values = true;
		meta->first = (uint32_t)r->n_values;
		while (m.p && pl_pb_next(&m, &f)) {
			struct value x = { 0 };

			if (f.number == META_STAT && f.bytes)
				x = read_stat(r, &f);
			if (x.key && r->n_values < UINT32_MAX)
				PL_CHECK(pl_append(&r->value, &r->n_values, &r->cap_values, &x,
						   sizeof(x), err));
		}
		meta->n_values = (uint32_t)(r->n_values - meta->first);
	}
	for (uint32_t i = 0; i < meta->n_values; i++)
		PL_CHECK(put_value(r, &r->value[meta->first + i], err));
	return 0;
}

/* ---- lines --------------------------------------------------------------------------------- */

static pl_ns of_ps(int64_t ps)
{
	return ps / 1000;
}

static int one_event(struct reader *r, const struct pl_pb_field *event, pl_ns line,
		     struct pl_err *err)
{
	struct pl_pb_in m = pl_pb_message(event->p, event->n), all = m;
	struct pl_pb_field f, stat[STATS];
	int64_t name = 0, offset = 0, dur = 0;
	bool counted = false;
	unsigned n = 0;
	struct meta *meta;

	PL_CHECK(pl_import_rows_ready(&r->rows, err));
	for (;;) {
		/* a short statistic, as most are */
		while (m.end - m.p > 2 && *m.p == (EVENT_STAT << 3 | 2) && m.p[1] < 0x80 &&
		       m.p[1] <= m.end - m.p - 2) {
			if (n++ < STATS) {
				stat[n - 1].p = m.p + 2;
				stat[n - 1].n = m.p[1];
			}
			m.p += 2 + m.p[1];
		}
		if (!pl_pb_next(&m, &f))
			break;
		if (f.bytes) {
			if (f.number == EVENT_STAT && n++ < STATS)
				stat[n - 1] = f;
			continue;
		}
		if (f.number == EVENT_NAME)
			name = (int64_t)f.v;
		else if (f.number == EVENT_OFFSET)
			offset = (int64_t)f.v;
		else if (f.number == EVENT_DUR)
			dur = (int64_t)f.v;
		counted |= f.number == EVENT_COUNT;
	}
	if (m.bad)
		return pl_import_report(&r->report, PL_BAD, at(r, m.p), "an event that is damaged",
					err);
	if (counted) /* a sum of many events, which has no time */
		return 0;
	meta = find_meta(&r->event, name);
	if (!meta)
		return pl_import_report(&r->report, PL_BAD, at(r, event->p),
					"an event whose name is not in the table of its plane",
					err);
	if (dur < 0) {
		dur = 0;
		PL_CHECK(pl_import_report(&r->report, PL_BAD_VALUE, at(r, event->p),
					  "a negative duration (0 stands for it)", err));
	}
	for (unsigned i = 0; i < n && n <= STATS; i++)
		PL_CHECK(put_stat(r, &stat[i], err));
	if (n > STATS)
		PL_CHECK(put_stats(r, all, err));
	PL_CHECK(put_common(r, meta, err));
	return pl_import_rows_event(&r->rows, PL_K_HOST_OP, r->track, name_of(r, meta),
				    pl_add_sat(line, of_ps(offset)),
				    of_ps(pl_add_sat(offset, dur)) - of_ps(offset), err);
}

static struct line read_line(struct reader *r, const struct pl_pb_field *line)
{
	struct pl_pb_in m = pl_pb_message(line->p, line->n);
	struct line x = { .name = "", .track = PL_NONE };
	struct pl_pb_field f;
	bool shown = false;

	while (pl_pb_next(&m, &f)) {
		bool name = f.bytes && f.n &&
			    (f.number == LINE_SHOWN || (f.number == LINE_NAME && !x.n));

		if (name) {
			x.name = (const char *)f.p;
			x.n = f.n;
		}
		if (f.number == LINE_ID && !f.bytes && !shown)
			x.id = (int64_t)f.v;
		if (f.number == LINE_SHOWN_ID && !f.bytes && f.v) {
			x.id = (int64_t)f.v;
			shown = true;
		}
		if (f.number == LINE_NS && !f.bytes)
			x.ns = (int64_t)f.v;
		rest(r, m.p);
	}
	return x;
}

static int add_track(struct reader *r, struct line *line, struct pl_err *err)
{
	struct pl_track t;

	pl_trace_track_init(&t);
	t.type = PL_T_THREAD;
	t.flags = PL_TRACK_PID_STR;
	t.pid = t.process = pl_import_rows_text(&r->rows, r->plane, r->n_plane);
	t.tid = pl_import_rows_format(&r->rows, "%lld", (long long)line->id);
	t.name = pl_import_rows_text(&r->rows, line->n ? line->name : "", line->n);
	PL_CHECK(r->rows.rc);
	return pl_trace_segment_track(&r->rows.seg, &t, &line->track, err);
}

static int one_line(struct reader *r, const struct pl_pb_field *field, struct pl_err *err)
{
	struct line *line = &r->line[r->at_line++];
	struct pl_pb_in m = pl_pb_message(field->p, field->n);
	struct pl_pb_field f;

	if (line->track == PL_NONE)
		PL_CHECK(add_track(r, line, err));
	r->track = line->track;
	while (pl_pb_next(&m, &f)) {
		if (f.number == LINE_EVENT && f.bytes)
			PL_CHECK(one_event(r, &f, line->ns ? pl_sub_sat(line->ns, r->base) : 0,
					   err));
		rest(r, m.p);
	}
	return m.bad ? pl_import_report(&r->report, PL_BAD, at(r, m.p), "a line that is damaged",
					err)
		     : 0;
}

/* ---- planes -------------------------------------------------------------------------------- */

static void begin_plane(struct reader *r)
{
	r->event.n = r->stat.n = r->n_values = 0;
	r->plane = "";
	r->n_plane = 0;
}

static int read_tables(struct reader *r, struct pl_pb_in m, struct pl_err *err)
{
	struct pl_pb_field f;

	begin_plane(r);
	while (pl_pb_next(&m, &f)) {
		if (f.number == PLANE_NAME && f.bytes) {
			r->plane = (const char *)f.p;
			r->n_plane = f.n;
		} else if (f.number == PLANE_EVENTS && f.bytes) {
			PL_CHECK(take_meta(&r->event, &f, err));
		} else if (f.number == PLANE_STATS && f.bytes) {
			PL_CHECK(take_meta(&r->stat, &f, err));
		}
	}
	pl_sort(r->event.v, r->event.n, sizeof(*r->event.v), compare_meta);
	pl_sort(r->stat.v, r->stat.n, sizeof(*r->stat.v), compare_meta);
	return 0;
}

/* A statistic of a plane becomes metadata of the segment: "/host:metadata jax_version". */
static int plane_stat(struct reader *r, const struct pl_pb_field *stat, struct pl_err *err)
{
	struct value x = read_stat(r, stat);
	struct pl_writer w = { 0 };
	struct pl_buf key = { 0 };
	int rc = 0;

	if (!x.key || x.type == PL_V_JSON)
		return 0;
	if (x.type == PL_V_STR)
		pl_write_json_str(&w, x.n ? x.s : "", x.n);
	else
		pl_write_format(&w, "%lld", (long long)x.v);
	PL_TRY(pl_buf_printf(&key, err, "%.*s %.*s", (int)r->n_plane, r->plane, (int)x.key->n,
			     x.key->n ? x.key->name : ""));
	PL_TRY(pl_trace_segment_meta(&r->rows.seg, (const char *)key.p, key.n, (const char *)w.b.p,
				     w.b.n, err));
	if (x.type == PL_V_INT && x.key->n == 18 && !memcmp(x.key->name, "profile_start_time", 18))
		r->start = x.v;
out:
	pl_buf_fini(&key);
	pl_buf_fini(&w.b);
	return rc;
}

/* The descriptions of programs: collectives with their sizes. */
static int programs(struct reader *r, struct pl_err *err)
{
	for (size_t i = 0; i < r->event.n; i++) {
		struct pl_pb_in m = r->event.v[i].message;
		struct pl_pb_field f, g;

		while (m.p && pl_pb_next(&m, &f)) {
			struct pl_pb_in stat = pl_pb_message(f.p, f.bytes ? f.n : 0);

			while (f.number == META_STAT && f.bytes && pl_pb_next(&stat, &g))
				if (g.number == STAT_BYTES && g.bytes)
					PL_CHECK(pl_import_hlo(r->xla, r->event.v[i].name,
							       r->event.v[i].n, g.p, g.n, err));
		}
	}
	return 0;
}

/* The profiler says that it dropped events, or could not record a device. */
static void pass_on(struct reader *r, const struct pl_pb_field *said)
{
	char text[300];
	size_t n = pl_min_size(said->n, sizeof(text) - 1);

	if (r->said++ >= 8)
		return;
	for (size_t i = 0; i < n; i++)
		text[i] = said->p[i] < ' ' || said->p[i] == 0x7f ? ' ' : (char)said->p[i];
	text[n] = '\0';
	pl_say(r->o->log, PL_LOG_WARN, "%s: the profiler says: %s", r->report.file, text);
}

/* What must be known before the first line: the start of the profile, and the programs. */
static int first_pass(struct reader *r, struct pl_err *err)
{
	struct pl_pb_in space = pl_pb_message(r->file.p, r->file.n);
	struct pl_pb_field plane, f;
	int64_t least = INT64_MAX;

	while (pl_pb_next(&space, &plane)) {
		struct pl_pb_in m = pl_pb_message(plane.p, plane.bytes ? plane.n : 0);

		if ((plane.number == SPACE_ERROR || plane.number == SPACE_WARNING) && plane.bytes)
			pass_on(r, &plane);
		if (plane.number == SPACE_HOST && plane.bytes && !r->n_host) {
			r->host = (const char *)plane.p;
			r->n_host = plane.n;
		}
		if (plane.number != SPACE_PLANE || !plane.bytes)
			continue;
		PL_CHECK(read_tables(r, m, err));
		while (pl_pb_next(&m, &f)) {
			if (f.number == PLANE_STAT && f.bytes)
				PL_CHECK(plane_stat(r, &f, err));
			if (f.number == PLANE_LINE && f.bytes) {
				const struct line line = read_line(r, &f);

				if (line.ns) /* else it has none */
					least = pl_min_i64(least, line.ns);
				PL_CHECK(pl_append(&r->line, &r->n_lines, &r->cap_lines, &line,
						   sizeof(line), err));
			}
		}
		if (r->n_plane == 14 && !memcmp(r->plane, "/host:metadata", 14))
			PL_CHECK(programs(r, err));
	}
	/* times are those since 1970, or since the start of the profile */
	if (least != INT64_MAX && least > (int64_t)1 << 56)
		r->base = r->start != INT64_MIN && r->start <= least ? r->start : least;
	return 0;
}

static uint8_t where(const struct reader *r)
{
	char name[64];
	int32_t device;

	snprintf(name, sizeof(name), "%.*s", (int)r->n_plane, r->plane);
	return pl_import_xla_plane(name, &device) == PL_XP_DEVICE ? IN_DEVICE : IN_HOST;
}

static int all_planes(struct reader *r, struct pl_err *err)
{
	struct pl_pb_in space = pl_pb_message(r->file.p, r->file.n);
	struct pl_pb_field plane, f;

	r->at_line = 0;
	while (pl_pb_next(&space, &plane)) {
		struct pl_pb_in m = pl_pb_message(plane.p, plane.bytes ? plane.n : 0);

		if (plane.number != SPACE_PLANE || !plane.bytes)
			continue;
		PL_CHECK(read_tables(r, m, err));
		r->learning = r->first_time ? where(r) : 0;
		while (pl_pb_next(&m, &f))
			if (f.number == PLANE_LINE && f.bytes)
				PL_CHECK(one_line(r, &f, err));
		if (m.bad)
			PL_CHECK(pl_import_report(&r->report, PL_BAD, at(r, m.p),
						  "a plane that is damaged", err));
	}
	if (space.bad)
		return pl_import_report(&r->report, PL_TRUNCATED, at(r, space.p),
					"a plane that is cut off", err);
	return 0;
}

/* ---- the importer -------------------------------------------------------------------------- */

/* The tracks and the segment are complete. */
static int finish(struct reader *r, struct pl_err *err)
{
	struct pl_segment *seg = &r->rows.seg;
	const char *host;
	size_t n;
	int32_t rank;
	pl_id h = PL_NONE;

	PL_CHECK(pl_import_pick_rank(r->o, r->rows.path, -1, &rank, err));
	pl_import_name_rank(r->rows.path, &host, &n);
	if (r->n_host)
		h = pl_import_rows_text(&r->rows, r->host, r->n_host);
	else if (host)
		h = pl_import_rows_text(&r->rows, host, n);
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		seg->track[i].rank = rank;
		seg->track[i].host = h;
	}
	seg->base_ns = r->base ? r->base : r->start != INT64_MIN ? r->start : 0;
	return r->rows.rc;
}

/* The events, to learn what they mean; and again, to give them on. */
static int both_passes(struct reader *r, struct pl_import_stats *st, struct pl_err *err)
{
	struct pl_import_stats first;

	PL_CHECK(first_pass(r, err));
	r->first_time = true;
	PL_CHECK(all_planes(r, err));
	r->first_time = false;
	PL_CHECK(pl_import_rows_flush(&r->rows, true, err));
	PL_CHECK(finish(r, err));
	PL_CHECK(pl_import_xla_between(r->xla, err));
	first = *st;
	PL_CHECK(pl_import_rows_again(&r->rows, err));
	PL_CHECK(all_planes(r, err));
	PL_CHECK(pl_import_rows_flush(&r->rows, true, err));
	*st = first; /* what was bad was counted the first time */
	return pl_import_rows_close(&r->rows, err);
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct reader *r = NULL;
	int rc = pl_alloc(&r, 1, sizeof(*r), err);

	if (rc < 0)
		return rc;
	r->o = o;
	r->start = INT64_MIN;
	r->xla = pl_import_xla_new(o, sink, st, err);
	PL_TRY(r->xla ? 0 : PL_ENOMEM);
	pl_import_rows_init(&r->rows, &r->report, in, o, pl_import_xla_sink(r->xla), st, "xplane",
			    r);
	r->rows.whole = true;
	r->rows.renew = renew;
	pl_import_xla_twice(r->xla);
	PL_TRY(pl_in_whole(in, MOST, &r->file, err));
	r->rest = r->file.p;
	PL_TRY(pl_import_rows_open(&r->rows, err));
	rc = both_passes(r, st, err);
out:
	pl_import_rows_fini(&r->rows);
	pl_import_xla_free(r->xla);
	pl_whole_fini(&r->file);
	pl_free(r->line);
	pl_free(r->value);
	pl_free(r->event.v);
	pl_free(r->stat.v);
	pl_free(r);
	return rc;
}

/* The name of the first plane, which a few bytes after its start have. */
static int probe(const uint8_t *p, size_t n)
{
	static const char *const names[] = { "/host:", "/device:", "Task Environment", "#Chip" };
	const uint8_t *q = p + 1, *end = p + n;
	struct pl_pb_in m;
	struct pl_pb_field f;
	uint64_t size;

	if (n < 8 || *p != (SPACE_PLANE << 3 | 2) || !pl_pb_take_varint(&q, end, &size) || size < 4)
		return 0;
	m = pl_pb_message(q, size < (uint64_t)(end - q) ? (size_t)size : (size_t)(end - q));
	while (pl_pb_next(&m, &f) && f.number <= PLANE_NAME)
		for (size_t i = 0; f.number == PLANE_NAME && f.bytes && i < PL_LEN(names); i++)
			if (f.n >= strlen(names[i]) && !memcmp(f.p, names[i], strlen(names[i])))
				return 95;
	return 0;
}

const struct pl_importer pl_import_xplane = {
	.name = "xplane",
	.summary = "JAX and TensorFlow profiler protobuf (xplane.pb)",
	.probe = probe,
	.run = run,
};
