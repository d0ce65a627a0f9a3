/*
 * Documents of events: PyTorch's profiler (Kineto) and Chrome's JSON in general.
 *
 * The document is read without a general JSON parser: members of the top level one by one, the
 * array "traceEvents" event by event, through a window of 256 KiB that grows only for a larger
 * event. Only the current batch is held, so memory does not depend on the size of the file.
 *
 * A bad event loses only itself. After an error the reader searches for the start of the next event
 * or the end of the array, from the byte after the first bracket of the bad event. An event starts
 * with a '{' that begins a line or follows "},", and its first key is a key of events.
 */
#include "import/xla.h"

#define MAX_EVENT ((size_t)4 << 20)

static bool is_event_key(const char *s, size_t n)
{
	static const char *const keys[] = { "ph", "name", "cat",  "pid", "tid",
					    "ts", "dur",  "args", "id" };

	for (size_t i = 0; i < PL_LEN(keys); i++)
		if (strlen(keys[i]) == n && !memcmp(keys[i], s, n))
			return true;
	return false;
}

/* Is `"key" :` at p? Returns the length of the key, 0: no. Reads at most 64 bytes. */
static size_t key_at(const char *p, const char *end)
{
	const char *q = p + 1;

	if (p >= end || *p != '"')
		return 0;
	while (q < end && q - p < 40 && *q != '"' && *q != '\\' && (unsigned char)*q >= ' ')
		q++;
	if (q >= end || *q != '"' || *pl_scan_space(q + 1, end) != ':')
		return 0;
	return (size_t)(q - p - 1);
}

/* The last byte before p that is no white space; *line: a line begins in between. */
static char before(const struct pl_src *s, const char *p, bool *line)
{
	*line = false;
	while (p > s->base && (unsigned char)p[-1] <= ' ') {
		p--;
		*line |= *p == '\n';
	}
	return p > s->base ? p[-1] : '\n';
}

static bool begins_event(const struct pl_src *s, const char *p)
{
	const char *q = pl_scan_space(p + 1, s->end);
	size_t n = key_at(q, s->end);
	bool line, dummy;
	char c;

	if (!n || !is_event_key(q + 1, n))
		return false;
	c = before(s, p, &line);
	if (line || c == '[')
		return true;
	if (c != ',')
		return false;
	for (q = p; *--q != ',';)
		;
	return before(s, q, &dummy) == '}';
}

/* Does ']' end the events? Alone on its line, or between an event and a member or the end. */
static bool ends_events(const struct pl_src *s, const char *p)
{
	const char *q = pl_scan_space(p + 1, s->end);
	bool line;
	char c = before(s, p, &line);
	size_t n;

	if (line && c != ',' && c != '[')
		return true;
	if (c != '}')
		return false;
	if (q >= s->end || *q == '}')
		return q >= s->end || pl_scan_space(q + 1, s->end) >= s->end;
	if (*q != ',')
		return false;
	q = pl_scan_space(q + 1, s->end);
	n = key_at(q, s->end);
	return n && !is_event_key(q + 1, n);
}

/*
 * Continue after an error: move s->p to the next event, the end of the array, or (in the top level)
 * a member. The window keeps 256 bytes before p: the characters before a bracket.
 */
static int resync(struct pl_doc *d, bool top, struct pl_err *err)
{
	struct pl_src *s = &d->src;
	const char *p = s->p + 1;
	ptrdiff_t skip;

	for (;;) {
		for (; p < s->end && (s->eof || s->end - p > 256); p++) {
			if ((*p == '{' && begins_event(s, p)) ||
			    (!top && *p == ']' && ends_events(s, p))) {
				s->p = p;
				return 0;
			}
			if (top && *p == '"' && key_at(p, s->end)) {
				bool line;

				before(s, p, &line);
				if (line) {
					s->p = p;
					return 0;
				}
			}
		}
		if (s->eof) {
			s->p = s->end;
			return 0;
		}
		skip = p - s->p > 256 ? 256 : p - s->p;
		s->p = p - skip;
		PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
		p = s->p + skip;
	}
}

/* ---- the array of events ------------------------------------------------------------------- */

static int bad_event(struct pl_doc *d, struct pl_err *err)
{
	struct pl_ev *e = &d->ev;
	const char *where = e->where ? e->where : d->src.p;

	PL_CHECK(pl_import_report(&d->report, PL_BAD, pl_import_src_at(&d->src, where), e->what,
				  err));
	return resync(d, false, err);
}

/* The event at s->p. */
static int one_event(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;
	struct pl_ev *e = &d->ev;
	const char *p = s->p, *limit = pl_import_src_limit(s, MAX_EVENT), *q;
	int rc = pl_import_rows_ready(&d->rows, err);

	if (rc < 0)
		return rc;
	q = pl_import_event_read(e, p, limit);
	if (PL_LIKELY(q)) {
		s->p = q;
		return pl_import_doc_accept(d, p, q, pl_import_src_at(s, p), err);
	}
	if (e->rc < 0)
		return e->rc;
	pl_import_rows_undo(&d->rows);
	if (!e->more)
		return bad_event(d, err);
	if (limit == s->end && !s->eof && limit - p < (ptrdiff_t)MAX_EVENT)
		return pl_import_src_fill(s, 2 * (size_t)(limit - p), err);
	s->vain += limit - p;
	e->where = NULL;
	e->what = limit == s->end && s->eof ? "an event that is cut off"
		  : limit - p < (ptrdiff_t)MAX_EVENT
			  ? "an event whose end is not found"
			  : "an event longer than 4 MiB (unclosed quote?)";
	return bad_event(d, err);
}

/* The value is no event, but a number, a string or an array: it is skipped. */
static int no_event(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;
	const char *limit = pl_import_src_limit(s, MAX_EVENT),
		   *q = pl_import_value_end(s->p, limit);

	if (q > limit && limit == s->end && !s->eof && limit - s->p < (ptrdiff_t)MAX_EVENT)
		return pl_import_src_fill(s, 2 * (size_t)(limit - s->p), err);
	PL_CHECK(pl_import_report(&d->report, PL_BAD, pl_import_src_at(s, s->p),
				  "an event expected", err));
	if (q > s->p && q <= limit) {
		s->p = q;
		return 0;
	}
	s->vain += limit - s->p;
	return resync(d, false, err);
}

/* s->p is after the '['. Returns at the end of the array or of the input. */
static int events(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;

	for (;;) {
		s->p = pl_scan_space(s->p, s->end);
		if (PL_UNLIKELY(s->p >= s->end)) {
			s->p = s->end;
			if (s->eof)
				return pl_import_report(
					&d->report, PL_TRUNCATED, pl_import_src_at(s, s->p),
					"the end bracket of the events is missing", err);
			PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
			continue;
		}
		if (PL_LIKELY(*s->p == '{')) {
			PL_CHECK(one_event(d, err));
		} else if (*s->p == ',') {
			s->p++;
		} else if (*s->p == ']') {
			s->p++;
			return 0;
		} else {
			PL_CHECK(no_event(d, err));
		}
	}
	return 0;
}

/* ---- members of the top level -------------------------------------------------------------- */

/* Keep the member, because it applies to later segments too. */
static int keep_member(struct pl_doc *d, const char *key, size_t n_key, const char *value, size_t n,
		       struct pl_err *err)
{
	struct pl_top_member *m;
	int64_t base;

	if (n_key == 19 && !memcmp(key, "baseTimeNanoseconds", 19) &&
	    pl_json_i64(value, n, &base)) {
		d->base_ns = base;
		d->has_base = true;
	}
	PL_CHECK(pl_trace_segment_meta(&d->rows.seg, key, n_key, value, n, err));
	PL_CHECK(pl_grow(&d->member, &d->cap_members, d->n_members + 1, sizeof(*d->member), err));
	m = &d->member[d->n_members];
	m->key = pl_malloc(n_key + 1);
	m->value = pl_malloc(n + 1);
	if (!m->key || !m->value) {
		pl_free(m->key);
		pl_free(m->value);
		return pl_fail(err, PL_ENOMEM, "out of memory (metadata)");
	}
	memcpy(m->key, key, n_key);
	memcpy(m->value, value, n);
	m->key[n_key] = m->value[n] = '\0';
	m->n_key = n_key;
	m->n_value = n;
	d->n_members++;
	return 0;
}

static int bad_member(struct pl_doc *d, const char *what, struct pl_err *err)
{
	PL_CHECK(pl_import_report(&d->report, PL_BAD, pl_import_src_at(&d->src, d->src.p), what,
				  err));
	return resync(d, true, err);
}

/* A whole member `"key": value` in the window; s->p is at its first quote. */
static int take_member(struct pl_doc *d, const char *key, size_t n_key, const char *value,
		       const char *q, struct pl_err *err)
{
	struct pl_src *s = &d->src;
	struct pl_buf clean = { 0 };
	size_t n = (size_t)(q - value);
	int state = pl_import_json_check(value, n), rc;

	if (state < 0)
		return bad_member(d, "a member that is not JSON", err);
	if (state > 0) {
		PL_TRY(pl_import_report(&d->report, PL_TOLERATED, pl_import_src_at(s, value),
					"a member that is not valid JSON", err));
		PL_TRY(pl_import_json_repair(value, n, &clean, err));
		PL_TRY(keep_member(d, key, n_key, (const char *)clean.p, clean.n, err));
	} else {
		PL_TRY(keep_member(d, key, n_key, value, n, err));
	}
	s->p = q;
	rc = 0;
out:
	pl_buf_fini(&clean);
	return rc;
}

/* s->p is at the quote of a key. */
static int one_member(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;
	const char *key = s->p + 1, *end = pl_import_src_limit(s, PL_SRC_MAX), *q, *value;
	unsigned flags;

	q = pl_scan_string(key, end, &flags);
	value = q < end ? pl_scan_space(q + 1, end) : end;
	if (value < end && *value != ':')
		return bad_member(d, "a colon expected after the key", err);
	value = value < end ? pl_scan_space(value + 1, end) : end;
	if (value < end && *value == '[' && q - key == 11 && !memcmp(key, "traceEvents", 11)) {
		s->p = value + 1;
		return events(d, err);
	}
	if (value < end) {
		const char *e = pl_import_value_end(value, end);

		if (e <= end && e > value)
			return take_member(d, key, (size_t)(q - key), value, e, err);
		if (e == value)
			return bad_member(d, "a value expected", err);
	}
	if (end == s->end && !s->eof && end - s->p < (ptrdiff_t)PL_SRC_MAX)
		return pl_import_src_fill(s, 2 * (size_t)(end - s->p), err);
	s->vain += end - s->p;
	if (end == s->end && s->eof)
		return bad_member(d, "a member that is cut off", err);
	return bad_member(d,
			  end - s->p < (ptrdiff_t)PL_SRC_MAX ? "a member whose end is not found"
							     : "a member longer than 16 MiB",
			  err);
}

/* s->p is after the '{'. */
static int members(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;

	for (;;) {
		s->p = pl_scan_space(s->p, s->end);
		if (s->p >= s->end) {
			s->p = s->end;
			if (s->eof)
				return pl_import_report(
					&d->report, PL_TRUNCATED, pl_import_src_at(s, s->p),
					"the end bracket of the document is missing", err);
			PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
			continue;
		}
		if (*s->p == '"') {
			PL_CHECK(one_member(d, err));
		} else if (*s->p == ',') {
			s->p++;
		} else if (*s->p == '}') {
			s->p++;
			return 0;
		} else if (*s->p == '{' && begins_event(s, s->p)) {
			PL_CHECK(events(d, err)); /* an error had ended the array too early */
		} else {
			PL_CHECK(bad_member(d, "a key in quotes expected", err));
		}
	}
	return 0;
}

/* ---- segments ------------------------------------------------------------------------------ */

static int finish(void *arg, struct pl_err *err)
{
	struct pl_doc *d = arg;
	struct pl_segment *seg = &d->rows.seg;
	const char *quoted = pl_trace_segment_meta_get(seg, "host_name"), *host;
	struct pl_trace_header header;
	char name[256];
	size_t n;
	int32_t rank;

	PL_CHECK(pl_trace_header_read(seg, true, &header, err));
	rank = (int32_t)header.rank;
	pl_trace_header_fini(&header);
	d->tracks.named = rank < 0 && (!d->o->rank_from || !strcmp(d->o->rank_from, "auto"));
	PL_CHECK(pl_import_pick_rank(d->o, d->rows.path, rank, &rank, err));
	pl_import_name_rank(d->rows.path, &host, &n);
	if (quoted && *quoted == '"' && (n = strlen(quoted)) > 2 && n < sizeof(name)) {
		n = pl_json_unescape(quoted + 1, n - 2, name);
		host = name;
	}
	PL_CHECK(pl_import_tracks_finish(&d->tracks, rank, host, n, err));
	if (d->rows.segments && d->base_ns != d->base_ended) {
		pl_say(d->o->log, PL_LOG_WARN,
		       "%s: baseTimeNanoseconds comes after a segment of the trace was written; it "
		       "is "
		       "left out of all times (they still share one clock)",
		       d->rows.path);
		d->base_ns = d->base_ended;
	}
	d->base_ended = seg->base_ns = d->has_base ? d->base_ns : 0;
	return 0;
}

static void renew(void *arg)
{
	struct pl_doc *d = arg;

	pl_import_event_renew(&d->ev);
	pl_import_tracks_renew(&d->tracks);
}

/* A new segment begins with the members that came before it in the source. */
static int again(void *arg, struct pl_err *err)
{
	struct pl_doc *d = arg;

	for (size_t i = 0; i < d->n_members; i++) {
		const struct pl_top_member *m = &d->member[i];

		PL_CHECK(pl_trace_segment_meta(&d->rows.seg, m->key, m->n_key, m->value, m->n_value,
					       err));
	}
	return 0;
}

/* ---- importers ----------------------------------------------------------------------------- */

static int walk(struct pl_doc *d, struct pl_err *err)
{
	struct pl_src *s = &d->src;

	PL_CHECK(pl_import_src_begin(s, err));
	if (s->p < s->end && *s->p == '[') {
		s->p++;
		PL_CHECK(events(d, err));
	} else if (s->p < s->end && *s->p == '{') {
		s->p++;
		PL_CHECK(members(d, err));
	} else {
		return pl_fail(err, PL_EDATA,
			       "%s: byte %lld: neither '{' nor '[': not a Chrome trace",
			       d->rows.path, (long long)pl_import_src_at(s, s->p));
	}
	s->p = pl_scan_space(s->p, s->end);
	if (s->p < s->end)
		PL_CHECK(pl_import_report(&d->report, PL_TOLERATED, pl_import_src_at(s, s->p),
					  "bytes after the end", err));
	PL_CHECK(pl_import_doc_leftovers(d, err));
	return pl_import_doc_steps(d, err);
}

static void doc_free(struct pl_doc *d)
{
	pl_import_rows_fini(&d->rows);
	pl_import_comm_free(d->rows.comm);
	pl_import_event_fini(&d->ev);
	pl_import_tracks_fini(&d->tracks);
	pl_import_src_fini(&d->src);
	pl_import_doc_free_open(d);
	pl_import_calls_fini(&d->calls);
	for (size_t i = 0; i < d->n_members; i++) {
		pl_free(d->member[i].key);
		pl_free(d->member[i].value);
	}
	pl_free(d->member);
	pl_free(d);
}

static const char *const formats[] = { "kineto", "chrome", "xla" };
enum { KINETO, CHROME, XLA };

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, unsigned format, struct pl_err *err)
{
	struct pl_doc *d = NULL;
	int rc = pl_alloc(&d, 1, sizeof(*d), err);

	if (rc < 0)
		return rc;
	d->o = o;
	d->chrome = format != KINETO;
	pl_import_rows_init(&d->rows, &d->report, in, o, sink, st, formats[format], d);
	d->rows.whole = format == XLA;
	d->rows.finish = finish;
	d->rows.again = again;
	d->rows.renew = renew;
	pl_import_src_init(&d->src, in, &d->report);
	pl_import_tracks_init(&d->tracks, &d->rows, d->chrome);
	PL_TRY(pl_import_event_init(&d->ev, &d->rows, &d->report, err));
	d->ev.chrome = d->chrome;
	if (format == KINETO) {
		d->rows.comm = pl_import_comm_new(d->rows.path, o->log, err);
		PL_TRY(d->rows.comm ? 0 : PL_ENOMEM);
	}
	PL_TRY(pl_import_rows_open(&d->rows, err));
	PL_TRY(walk(d, err));
	rc = pl_import_rows_close(&d->rows, err);
out:
	doc_free(d);
	return rc;
}

static int run_kineto(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
		      struct pl_import_stats *st, struct pl_err *err)
{
	return run(in, o, sink, st, KINETO, err);
}

static int run_chrome(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
		      struct pl_import_stats *st, struct pl_err *err)
{
	return run(in, o, sink, st, CHROME, err);
}

static int run_xla(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
		   struct pl_import_stats *st, struct pl_err *err)
{
	struct pl_xla *x = pl_import_xla_new(o, sink, st, err);
	int rc = x ? run(in, o, pl_import_xla_sink(x), st, XLA, err) : err->code;

	pl_import_xla_free(x);
	return rc;
}

/* Does the text look like events? */
static int probe_chrome(const uint8_t *p, size_t n)
{
	size_t i = n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;

	while (i < n && p[i] <= ' ')
		i++;
	if (i == n || (p[i] != '{' && p[i] != '['))
		return 0;
	if (pl_import_has(p, n, "\"traceEvents\""))
		return 60;
	if (pl_import_has(p, n, "\"ph\"") &&
	    (pl_import_has(p, n, "\"ts\"") || pl_import_has(p, n, "\"pid\"")))
		return 50;
	return p[i] == '[' && n < 64 ? 10 : 0; /* "[]": no events */
}

static int probe_kineto(const uint8_t *p, size_t n)
{
	static const char *const signs[] = {
		"\"schemaVersion\"",   "\"deviceProperties\"",
		"\"distributedInfo\"", "\"External id\"",
		"\"Ev Idx\"",	       "\"cuda_runtime\"",
		"\"cpu_op\"",	       "\"baseTimeNanoseconds\"",
		"\"python_function\"", "\"PyTorch Profiler",
	};
	int sure = probe_chrome(p, n), found = 0, enough = sure ? 1 : 2;

	/* a missing sign costs a search through all bytes */
	for (size_t i = 0; i < PL_LEN(signs) && found < enough; i++)
		found += pl_import_has(p, n, signs[i]);
	if (!sure) /* a header longer than the probe */
		return found >= 2 && p[0] != 0x1f ? 55 : 0;
	return found ? 90 : 0;
}

/* The metadata comes first and names the planes. */
static int probe_xla(const uint8_t *p, size_t n)
{
	static const char *const planes[] = { "\"/host:CPU\"", "\"/device:GPU:", "\"/device:TPU:" };
	int sure = probe_chrome(p, n);

	for (size_t i = 0; sure == 60 && i < PL_LEN(planes); i++)
		if (pl_import_has(p, n, planes[i]))
			return 80;
	return 0;
}

const struct pl_importer pl_import_xla = {
	.name = "xla",
	.summary = "JAX and TensorFlow profiler JSON (trace.json)",
	.probe = probe_xla,
	.run = run_xla,
};

const struct pl_importer pl_import_kineto = {
	.name = "kineto",
	.summary = "PyTorch profiler (Kineto) JSON",
	.probe = probe_kineto,
	.run = run_kineto,
};

const struct pl_importer pl_import_chrome = {
	.name = "chrome",
	.summary = "Chrome trace JSON in general",
	.probe = probe_chrome,
	.run = run_chrome,
};
