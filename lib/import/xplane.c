/*
 * XPlane: the protobuf that the profiler of JAX and TensorFlow writes, of which trace.json is made.
 * The field numbers are those of the public xplane.proto.
 *
 * A file is held as a whole, because the names of events come behind the lines that use them. Each
 * plane is read twice: first its tables of names, then its lines. Events become plain rows for the
 * sink of xla.h, which finds what they mean.
 */
#include <math.h>
#include <stdlib.h>

#include "import/xla.h"
#include "io/pb.h"

#define MOST ((size_t)8 << 30) /* bytes of a file */

enum { SPACE_PLANE = 1, SPACE_HOST = 4 };
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

struct meta { /* of events or statistics */
	int64_t id;
	const char *name;
	size_t n;
	struct pl_pb_in message;
	pl_id str;		   /* PL_NONE: not used yet */
	uint32_t col[PL_V_COUNT_]; /* of a statistic, + 1 */
};
struct metas {
	struct meta *v; /* by id */
	size_t n, cap;
};
struct reader {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_rows rows;
	struct pl_xla *xla;
	struct pl_buf file;
	struct metas event, stat; /* of the plane being read */
	const char *plane;
	size_t n_plane;
	const char *host;
	size_t n_host;
	int64_t start; /* of the profile, ns since 1970; INT64_MIN unknown */
	int64_t base;  /* what is left out of the times of lines */
	pl_id track, process;
	pl_ns ts, dur;
};

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

struct value {
	struct meta *key; /* NULL: it has no value that is kept */
	uint8_t type;
	int64_t v; /* a string: unused until it is known who wants it */
	const char *s;
	size_t n;
};

/* Bytes and packed texts are left out: descriptions of programs. */
static struct value read_stat(struct reader *r, const struct pl_pb_field *stat)
{
	struct pl_pb_in m = pl_pb_message(stat->p, stat->n);
	struct value x = { .type = PL_V_INT };
	struct pl_pb_field f;
	const struct meta *ref;
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
			has = f.number == STAT_INT || x.v >= 0;
		} else if (f.number == STAT_STR && f.bytes) {
			x.type = PL_V_STR;
			x.s = (const char *)f.p;
			x.n = f.n;
			has = true;
		} else if (f.number == STAT_REF && !f.bytes) {
			ref = find_meta(&r->stat, (int64_t)f.v);
			x.type = PL_V_STR;
			x.s = ref ? ref->name : "";
			x.n = ref ? ref->n : 0;
			has = ref != NULL;
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

static int put_stat(struct reader *r, const struct pl_pb_field *stat, struct pl_err *err)
{
	struct value x = read_stat(r, stat);
	struct pl_col *col;
	char text[40];
	uint32_t c;

	if (!x.key)
		return 0;
	if (x.type == PL_V_JSON) {
		x.n = real_text(text, sizeof(text), x.v);
		x.s = text;
	}
	if (x.type != PL_V_INT)
		x.v = pl_import_rows_text(&r->rows, x.n ? x.s : "", x.n);
	if (!x.key->col[x.type]) {
		PL_CHECK(
			pl_import_rows_col(&r->rows, PL_R_ARG, x.type, name_of(r, x.key), &c, err));
		x.key->col[x.type] = c + 1;
	}
	PL_CHECK(r->rows.rc);
	col = &r->rows.cur->b.col[x.key->col[x.type] - 1];
	if (col->n && col->row[col->n - 1] == r->rows.cur->b.n) /* given twice: the first counts */
		return 0;
	return pl_trace_col_put(col, r->rows.cur->b.n, x.v, 0, err);
}

static int put_stats(struct reader *r, struct pl_pb_in m, uint32_t number, struct pl_err *err)
{
	struct pl_pb_field f;

	while (m.p && pl_pb_next(&m, &f))
		if (f.number == number && f.bytes)
			PL_CHECK(put_stat(r, &f, err));
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
	struct pl_pb_in m = pl_pb_message(event->p, event->n), stats = m;
	struct pl_pb_field f;
	int64_t name = 0, offset = 0, dur = 0;
	bool counted = false;
	struct meta *meta;

	PL_CHECK(pl_import_rows_ready(&r->rows, err));
	while (pl_pb_next(&m, &f)) {
		if (f.bytes)
			continue;
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
	PL_CHECK(put_stats(r, stats, EVENT_STAT, err));
	PL_CHECK(put_stats(r, meta->message, META_STAT, err));
	return pl_import_rows_event(&r->rows, PL_K_HOST_OP, r->track, name_of(r, meta),
				    pl_add_sat(line, of_ps(offset)),
				    of_ps(offset + dur) - of_ps(offset), err);
}

struct line {
	const char *name;
	size_t n;
	int64_t id, ns;
};

static struct line read_line(const struct pl_pb_field *line)
{
	struct pl_pb_in m = pl_pb_message(line->p, line->n);
	struct line x = { .name = "" };
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
	}
	return x;
}

static int add_track(struct reader *r, const struct line *line, struct pl_err *err)
{
	struct pl_track t;

	pl_trace_track_init(&t);
	t.type = PL_T_THREAD;
	t.flags = PL_TRACK_PID_STR;
	t.pid = t.process = pl_import_rows_text(&r->rows, r->plane, r->n_plane);
	t.tid = pl_import_rows_format(&r->rows, "%lld", (long long)line->id);
	t.name = pl_import_rows_text(&r->rows, line->n ? line->name : "", line->n);
	PL_CHECK(r->rows.rc);
	return pl_trace_segment_track(&r->rows.seg, &t, &r->track, err);
}

static int one_line(struct reader *r, const struct pl_pb_field *field, struct pl_err *err)
{
	const struct line line = read_line(field);
	struct pl_pb_in m = pl_pb_message(field->p, field->n);
	struct pl_pb_field f;

	PL_CHECK(add_track(r, &line, err));
	while (pl_pb_next(&m, &f))
		if (f.number == LINE_EVENT && f.bytes)
			PL_CHECK(one_event(r, &f, pl_sub_sat(line.ns, r->base), err));
	return m.bad ? pl_import_report(&r->report, PL_BAD, at(r, m.p), "a line that is damaged",
					err)
		     : 0;
}

/* ---- planes -------------------------------------------------------------------------------- */

static void begin_plane(struct reader *r)
{
	r->event.n = r->stat.n = 0;
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

/* What must be known before the first line: the start of the profile, and the programs. */
static int first_pass(struct reader *r, struct pl_err *err)
{
	struct pl_pb_in space = pl_pb_message(r->file.p, r->file.n);
	struct pl_pb_field plane, f;
	int64_t least = INT64_MAX;

	while (pl_pb_next(&space, &plane)) {
		struct pl_pb_in m = pl_pb_message(plane.p, plane.bytes ? plane.n : 0);

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
			if (f.number == PLANE_LINE && f.bytes)
				least = pl_min_i64(least, read_line(&f).ns);
		}
		if (r->n_plane == 14 && !memcmp(r->plane, "/host:metadata", 14))
			PL_CHECK(programs(r, err));
	}
	/* times are those since 1970, or since the start of the profile */
	if (least != INT64_MAX && least > (int64_t)1 << 56)
		r->base = r->start != INT64_MIN && r->start <= least ? r->start : least;
	return 0;
}

static int all_planes(struct reader *r, struct pl_err *err)
{
	struct pl_pb_in space = pl_pb_message(r->file.p, r->file.n);
	struct pl_pb_field plane, f;

	PL_CHECK(first_pass(r, err));
	while (pl_pb_next(&space, &plane)) {
		struct pl_pb_in m = pl_pb_message(plane.p, plane.bytes ? plane.n : 0);

		if (plane.number != SPACE_PLANE || !plane.bytes)
			continue;
		PL_CHECK(read_tables(r, m, err));
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

static int finish(void *arg, struct pl_err *err)
{
	struct reader *r = arg;
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
	r->rows.finish = finish;
	r->rows.renew = renew;
	PL_TRY(pl_in_read_all(in, MOST, &r->file, err));
	PL_TRY(pl_import_rows_open(&r->rows, err));
	PL_TRY(all_planes(r, err));
	rc = pl_import_rows_close(&r->rows, err);
out:
	pl_import_rows_fini(&r->rows);
	pl_import_xla_free(r->xla);
	pl_buf_fini(&r->file);
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
