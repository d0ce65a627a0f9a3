/*
 * Small JSON objects one after the other. Their members are found by a scan that copies nothing;
 * only where it fails, the end of the object is searched by counting brackets. Values that are not
 * JSON (words, 0x10) are kept as words.
 */
#include "import/objects.h"

#define MAX_OBJECT ((size_t)4 << 20)

/* The members of the object at p, whose end is known: [p, end). Returns the byte after it; NULL: no
 * object. */
static const char *members(struct pl_object *o, const char *p, const char *end, int depth)
{
	unsigned flags;

	for (p = pl_scan_space(p + 1, end); p < end && *p == '"';) {
		struct pl_object_member m = { .key = ++p };

		p = pl_scan_string(p, end, &flags);
		if (p >= end)
			return NULL;
		m.n_key = (uint32_t)(p - m.key);
		m.head = pl_le64_get((const uint8_t *)m.key); /* the window has slack behind it */
		if (m.n_key < 8)
			m.head &= ((uint64_t)1 << 8 * m.n_key) - 1;
		p = pl_scan_space(p + 1, end);
		if (p >= end || *p != ':')
			return NULL;
		p = pl_scan_space(p + 1, end);
		if (p >= end)
			return NULL;
		m.type = *p == '"' || *p == '[' || *p == '{' ? *p : '0';
		m.s = p + (*p == '"');
		if (*p == '{') {
			if (o->n < PL_OBJECT_MEMBERS)
				o->m[o->n++] = m;
			p = depth < 8 ? members(o, p, end, depth + 1) : NULL;
		} else {
			p = pl_import_value_end(p, end);
			m.n = p <= end ? (uint32_t)(p - m.s - (m.type == '"')) : 0;
			if (p <= end && m.n + (m.type == '"') && o->n < PL_OBJECT_MEMBERS)
				o->m[o->n++] = m;
			else if (p <= end && !m.n && m.type != '"')
				return NULL; /* no value */
		}
		if (!p || p > end)
			return NULL;
		p = pl_scan_space(p, end);
		if (p < end && *p == ',')
			p = pl_scan_space(p + 1, end);
	}
	return p < end && *p == '}' ? p + 1 : NULL;
}

/* Go on behind a line end or before the next object, at least one byte further. */
static int skip_bad(struct pl_src *s, struct pl_report *r, const char *what, struct pl_err *err)
{
	const char *p = s->p + 1;

	PL_CHECK(pl_import_report(r, PL_BAD, pl_import_src_at(s, s->p), what, err));
	for (;;) {
		while (p < s->end && *p != '\n' && !(*p == '{' && p[-1] != ':' && p[-1] != ' '))
			p++;
		s->p = p;
		if (p < s->end || s->eof)
			return 0;
		PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
		p = s->p;
		if (p >= s->end)
			return 0;
		if (*p == '{' || *p == '\n')
			return 0;
		p++;
	}
}

/* The object at s->p is none, or its end is not in the window. */
static int no_object(struct pl_src *s, struct pl_report *r, const char *limit, struct pl_err *err)
{
	const char *q = pl_scan_nested(s->p, limit), *line;

	if (q <= limit) {
		PL_CHECK(pl_import_report(r, PL_BAD, pl_import_src_at(s, s->p),
					  "an object that is not JSON", err));
		/* in a file of lines, brackets that do not match reach into the next object */
		line = memmem(s->p, (size_t)(q - s->p), "\n{", 2);
		s->vain += line ? q - line : 0;
		s->p = line ? line : q;
		return 0;
	}
	if (limit == s->end && !s->eof && limit - s->p < (ptrdiff_t)MAX_OBJECT)
		return pl_import_src_fill(s, 2 * (size_t)(limit - s->p), err);
	if (s->eof && limit == s->end) {
		PL_CHECK(pl_import_report(r, PL_TRUNCATED, pl_import_src_at(s, s->p),
					  "an object that is cut off", err));
		s->p = s->end;
		return 0;
	}
	s->vain += limit - s->p;
	return skip_bad(s, r, "an object without an end", err);
}

/* The object at s->p. */
static int object(struct pl_src *s, struct pl_report *r,
		  int (*one)(void *arg, const struct pl_object *o, struct pl_err *err), void *arg,
		  struct pl_err *err)
{
	const char *limit = pl_import_src_limit(s, MAX_OBJECT), *q;
	struct pl_object o;

	o.n = 0;
	o.at = pl_import_src_at(s, s->p);
	q = members(&o, s->p, limit, 0);
	if (PL_UNLIKELY(!q))
		return no_object(s, r, limit, err);
	PL_CHECK(one(arg, &o, err));
	s->p = q;
	return 0;
}

/* If it is a document with an array of events, begin in that. */
static int begin(struct pl_src *s, struct pl_err *err)
{
	static const char key[] = "\"traceEvents\"";
	const char *p;

	PL_CHECK(pl_import_src_begin(s, err));
	p = s->p < s->end && *s->p == '{'
		    ? memmem(s->p, pl_min_size((size_t)(s->end - s->p), (size_t)64 << 10), key,
			     sizeof(key) - 1)
		    : NULL;
	if (p && *(p = pl_scan_space(p + sizeof(key) - 1, s->end)) == ':' &&
	    *(p = pl_scan_space(p + 1, s->end)) == '[')
		s->p = p + 1;
	return 0;
}

int pl_import_objects(struct pl_src *s, struct pl_report *r,
		      int (*one)(void *arg, const struct pl_object *o, struct pl_err *err),
		      void *arg, struct pl_err *err)
{
	bool array;

	PL_CHECK(begin(s, err));
	array = s->p > s->base && s->p[-1] == '[';
	for (;;) {
		s->p = pl_scan_space(s->p, s->end);
		if (s->p >= s->end) {
			s->p = s->end;
			if (s->eof)
				return 0;
			PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
			if (s->p >= s->end)
				return 0;
		} else if (*s->p == '{') {
			PL_CHECK(object(s, r, one, arg, err));
		} else if (*s->p == ']' && array) {
			return 0; /* other members of the document */
		} else if (*s->p == ',' || *s->p == '[' || *s->p == ']') {
			s->p++;
		} else {
			PL_CHECK(skip_bad(s, r, "an object expected", err));
		}
	}
	return 0;
}

/* ---- objects inside of a document ----------------------------------------------------------- */

#define MAX_NEST 64

struct nest {
	int section;
	bool array;
};
struct within {
	struct pl_src *s;
	struct pl_report *r;
	int (*enter)(void *arg, int section, const char *key, size_t n);
	int (*one)(void *arg, const struct pl_object *o, struct pl_err *err);
	void *arg;
	struct nest in[MAX_NEST];
	int depth, next; /* section of the value that comes */
};

/* A text at s->p: a key, or a value. */
static int text(struct within *w, struct pl_err *err)
{
	struct pl_src *s = w->s;
	unsigned flags;
	const char *limit = pl_import_src_limit(s, MAX_OBJECT), *key = s->p + 1,
		   *q = pl_scan_string(key, limit, &flags), *after;

	after = q < limit ? pl_scan_space(q + 1, s->end) : q;
	if (after >= s->end && !s->eof && limit - s->p < (ptrdiff_t)MAX_OBJECT)
		return pl_import_src_fill(s, 2 * (size_t)(s->end - s->p), err);
	if (q >= limit && limit < s->end)
		return skip_bad(s, w->r, "a text without an end", err);
	if (q >= limit) {
		s->p = s->end;
		return 0;
	}
	s->p = after;
	if (w->depth && !w->in[w->depth - 1].array && after < s->end && *after == ':')
		w->next = w->enter(w->arg, w->in[w->depth - 1].section, key, (size_t)(q - key));
	return 0;
}

/* A container at s->p: an object for one(), or something to go into. */
static int container(struct within *w, struct pl_err *err)
{
	bool array = *w->s->p == '[';
	int section = w->next;

	if (!w->depth || w->in[w->depth - 1].array)
		section = w->enter(w->arg, w->depth ? w->in[w->depth - 1].section : PL_OBJECTS_TOP,
				   NULL, 0);
	if (!array && section >= 0 && section & PL_OBJECTS_WHOLE)
		return object(w->s, w->r, w->one, w->arg, err);
	if (w->depth == MAX_NEST) {
		PL_CHECK(pl_import_report(w->r, PL_TRUNCATED, pl_import_src_at(w->s, w->s->p),
					  "nested too deep", err));
		return 1;
	}
	w->in[w->depth++] = (struct nest){ section, array };
	w->s->p++;
	return 0;
}

static int token(struct within *w, struct pl_err *err)
{
	struct pl_src *s = w->s;

	switch (*s->p) {
	case '{':
	case '[':
		return container(w, err);
	case '}':
	case ']':
		s->p++;
		return w->depth <= 1 || !--w->depth;
	case '"':
		return text(w, err);
	default:
		for (s->p++; s->p < s->end && !strchr("{}[]\",\n", *s->p);)
			s->p++;
		return 0;
	}
}

int pl_import_objects_within(struct pl_src *s, struct pl_report *r,
			     int (*enter)(void *arg, int section, const char *key, size_t n),
			     int (*one)(void *arg, const struct pl_object *o, struct pl_err *err),
			     void *arg, struct pl_err *err)
{
	struct within w = { .s = s, .r = r, .enter = enter, .one = one, .arg = arg };

	PL_CHECK(pl_import_src_begin(s, err));
	for (;;) {
		int rc;

		s->p = pl_scan_space(s->p, s->end);
		if (s->p >= s->end) {
			s->p = s->end;
			PL_CHECK(s->eof ? 0 : pl_import_src_fill(s, PL_SRC_WINDOW, err));
			if (s->p >= s->end)
				return pl_import_report(r, PL_TRUNCATED, pl_import_src_at(s, s->p),
							"a document without its end", err);
			continue;
		}
		rc = token(&w, err);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

/* ---- members ------------------------------------------------------------------------------- */

const struct pl_object_member *pl_objects_find(const struct pl_object *o, uint64_t head,
					       const char *key, size_t n)
{
	for (const struct pl_object_member *m = o->m, *end = m + o->n; m < end; m++)
		if (m->head == head && m->n_key == n && (n <= 8 || !memcmp(m->key, key, n)))
			return m;
	return NULL;
}

void pl_objects_copy(const struct pl_object *o, const char *key, char *to, size_t size)
{
	size_t n;
	const char *s = pl_objects_text(o, key, &n);

	n = s ? pl_min_size(n, size - 1) : 0;
	if (n)
		memcpy(to, s, n);
	to[n] = '\0';
}

bool pl_objects_time(const struct pl_object *o, const char *key, int64_t unit_ns, pl_ns *ns)
{
	const struct pl_object_member *m = pl_objects_get(o, key);

	return m && m->type != '[' && m->n < 4096 && pl_json_time_ns(m->s, m->n, unit_ns, ns);
}

pl_id pl_objects_string(struct pl_rows *r, const struct pl_object *o, const char *key)
{
	size_t n;
	const char *s = pl_objects_text(o, key, &n);
	struct pl_buf b = { 0 };
	pl_id id = PL_NONE;

	if (!s)
		return PL_NONE;
	if (!memchr(s, '\\', n))
		return pl_import_rows_text(r, s, n);
	if (r->rc >= 0)
		r->rc = pl_buf_need(&b, n + 1, r->err);
	if (r->rc >= 0)
		id = pl_import_rows_text(r, (const char *)b.p, pl_json_unescape(s, n, (char *)b.p));
	pl_buf_fini(&b);
	return id;
}

/* ---- an importer of objects ----------------------------------------------------------------- */

int pl_objects_open(struct pl_objects_in *x, struct pl_in *in, const struct pl_import_opts *o,
		    struct pl_sink *sink, struct pl_import_stats *st, const char *format,
		    int (*finish)(void *arg, struct pl_err *err), void *arg, struct pl_err *err)
{
	x->o = o;
	pl_import_rows_init(&x->rows, &x->report, in, o, sink, st, format, arg);
	x->rows.finish = finish;
	pl_import_src_init(&x->src, in, &x->report);
	x->lanes.rows = &x->rows;
	return pl_import_rows_open(&x->rows, err);
}

void pl_objects_fini(struct pl_objects_in *x)
{
	pl_import_rows_fini(&x->rows);
	pl_intern_fini(&x->lanes.key);
	pl_intern_fini(&x->lanes.known);
	pl_import_src_fini(&x->src);
}

int pl_objects_job(struct pl_objects_in *x, int32_t rank, int64_t world, struct pl_err *err)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "{\"rank\": %d", (int)rank);

	if (world)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", \"world_size\": %lld",
			      (long long)world);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "}");
	return pl_trace_segment_meta(&x->rows.seg, "distributedInfo", 15, text, (size_t)n, err);
}

/* ---- tracks and rows ------------------------------------------------------------------------ */

static int make_lane(struct pl_lanes *l, const struct pl_lane *lane, pl_id *track,
		     struct pl_err *err)
{
	struct pl_segment *seg = &l->rows->seg;
	struct pl_track t;
	pl_id known;
	char key[160];
	int n = snprintf(key, sizeof(key), "%d %lld %lld %d %s", lane->type,
			 (long long)lane->process, (long long)lane->number, (int)lane->rank,
			 lane->name ? lane->name : "");

	n = (int)pl_min_size((size_t)n, sizeof(key) - 1);
	PL_CHECK(pl_intern_add(&l->key, key, (size_t)n, track, err));
	if (*track < seg->n_tracks)
		return 0;
	PL_CHECK(pl_intern_add(&l->known, key, (size_t)n, &known, err));
	pl_trace_track_init(&t);
	t.type = lane->type;
	t.rank = lane->rank;
	t.psort = lane->rank < 0 ? 0 : lane->rank;
	t.sort = (int32_t)known;
	t.stream = lane->type == PL_T_STREAM ? (int64_t)known : -1;
	t.pid = pl_import_rows_format(l->rows, "%lld", (long long)lane->process);
	t.tid = pl_import_rows_format(l->rows, "%u", known);
	if (lane->name)
		t.name = pl_import_rows_format(l->rows, "%.80s", lane->name);
	PL_CHECK(l->rows->rc);
	return pl_trace_segment_track(seg, &t, track, err);
}

int pl_import_lane(struct pl_lanes *l, const struct pl_lane *lane, pl_id *track, struct pl_err *err)
{
	const char *name = lane->name ? lane->name : "";
	size_t n = strlen(name), last = n ? (uint8_t)name[n - 1] : 0;
	struct pl_lane_seen *s = &l->seen[((size_t)lane->number * 3 + last + lane->type) & 7];

	if (l->key.n != l->rows->seg.n_tracks) { /* another segment has begun */
		pl_intern_reset(&l->key);
		memset(l->seen, 0, sizeof(l->seen));
	}
	if (s->track && s->lane.type == lane->type && s->lane.number == lane->number &&
	    s->lane.process == lane->process && s->lane.rank == lane->rank && n < sizeof(s->name) &&
	    !memcmp(s->name, name, n + 1)) {
		*track = s->track - 1;
		return 0;
	}
	PL_CHECK(make_lane(l, lane, track, err));
	s->track = 0;
	if (n < sizeof(s->name)) {
		s->lane = *lane;
		memcpy(s->name, name, n + 1);
		s->track = *track + 1;
	}
	return 0;
}

void pl_import_lane_name(char *to, size_t size, const char *what, int64_t number)
{
	size_t n = pl_min_size(strlen(what), size > 24 ? size - 24 : 0);
	uint64_t v = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
	char digits[20];
	size_t k = 0;

	memcpy(to, what, n);
	to[n++] = ' ';
	if (number < 0)
		to[n++] = '-';
	do
		digits[k++] = (char)('0' + v % 10);
	while (v /= 10);
	while (k)
		to[n++] = digits[--k];
	to[n] = '\0';
}

static pl_id key_id(struct pl_rows *r, const char *key)
{
	return key ? pl_import_rows_text(r, key, strlen(key)) : PL_NONE;
}

void pl_import_put_int(struct pl_rows *r, uint8_t role, const char *key, int64_t v)
{
	pl_import_rows_put(r, role, PL_V_INT, key_id(r, key), v);
}

void pl_import_put_text(struct pl_rows *r, uint8_t role, const char *key, const char *s, size_t n)
{
	pl_import_rows_put(r, role, PL_V_STR, key_id(r, key), pl_import_rows_text(r, s, n));
}

void pl_import_put_member(struct pl_rows *r, const struct pl_object *o, const char *key)
{
	const struct pl_object_member *m = pl_objects_get(o, key);
	int64_t v;
	int scale;

	if (!m)
		return;
	if (m->type == '0' && pl_json_i64(m->s, m->n, &v))
		pl_import_put_int(r, PL_R_ARG, key, v);
	else if (m->type == '0' && pl_json_decimal(m->s, m->n, &v, &scale) && scale <= 18)
		pl_import_rows_put_dec(r, PL_R_ARG, PL_V_DEC, key_id(r, key), v, (uint8_t)scale);
	else if (m->type == '[' && pl_import_json_check(m->s, m->n) == 0)
		pl_import_rows_put(r, PL_R_ARG, PL_V_JSON, key_id(r, key),
				   pl_import_rows_text(r, m->s, m->n));
	else
		pl_import_rows_put(r, PL_R_ARG, PL_V_STR, key_id(r, key),
				   pl_objects_string(r, o, key));
}
