/*
 * The registry of importers, recognition by content, and pl_import_run(), which programs call.
 *
 * Every importer rates the first 64 KiB of a file, and the one with the highest rating reads it. A
 * gzip file that is not our own container is inflated first, so the suffix of a file never matters.
 */
#include "import/internal.h"
#include "trace/chakra.h"

const struct pl_importer *const pl_import_formats[] = {
	&pl_import_native,   &pl_import_kineto,
	&pl_import_xla,	     &pl_import_xplane,
	&pl_import_chrome,   &pl_import_nsys,
	&pl_import_flight,   &pl_import_inspector,
	&pl_import_ncclprof, &pl_import_horovod,
	&pl_import_dpro,     &pl_import_rocprof,
	&pl_import_optable,  NULL,
};

const struct pl_importer *pl_import_find(const char *name)
{
	for (size_t i = 0; pl_import_formats[i]; i++)
		if (!strcmp(pl_import_formats[i]->name, name))
			return pl_import_formats[i];
	return NULL;
}

#define PROBE ((size_t)64 << 10)

/* Read the first bytes. In a damaged gzip: those before the damage; *cut then has the fault. */
static int64_t look(struct pl_in *in, const uint8_t **p, struct pl_err *cut, struct pl_err *err)
{
	int64_t n = pl_in_peek(in, PROBE, p, cut);

	if (n == PL_EDATA)
		return pl_in_peek(in, PROBE, p, err);
	if (n < 0)
		*err = *cut;
	return n;
}

struct pl_in *pl_import_open(struct pl_in *raw, struct pl_pool *pool, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n = pl_in_peek(raw, 18, &p, err);

	if (n < 0) {
		pl_in_close(raw);
		return NULL;
	}
	if (n < 2 || p[0] != 0x1f || p[1] != 0x8b || (n >= 18 && pl_container_probe(p, (size_t)n)))
		return raw;
	return pl_in_gunzip(raw, pool, err);
}

/* Find a byte order mark of UTF-16 or UTF-32, which no format here uses. */
static const char *wide_text(const uint8_t *p, size_t n)
{
	static const struct {
		uint8_t mark[4];
		size_t n;
		const char *name;
	} known[] = { { { 0xff, 0xfe, 0, 0 }, 4, "UTF-32" },
		      { { 0, 0, 0xfe, 0xff }, 4, "UTF-32" },
		      { { 0xff, 0xfe }, 2, "UTF-16" },
		      { { 0xfe, 0xff }, 2, "UTF-16" } };

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (n >= known[i].n && !memcmp(p, known[i].mark, known[i].n))
			return known[i].name;
	return NULL;
}

static int refuse_wide(const char *name, const uint8_t *p, size_t n, struct pl_err *err)
{
	const char *coding = wide_text(p, n);

	if (!coding)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "%s: byte 0: the text is %s; convert it with iconv -f %s -t UTF-8 first",
		       name, coding, coding);
}

/* The name only decides what the message says: the form of reports is not public. */
static bool is_report(const char *name)
{
	size_t n = strlen(name);

	return (n > 9 && !strcmp(name + n - 9, ".nsys-rep")) ||
	       (n > 7 && !strcmp(name + n - 7, ".qdrep"));
}

static void unknown(const char *name, struct pl_err *err)
{
	char list[256];
	size_t n = 0;

	for (size_t i = 0; pl_import_formats[i]; i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "",
				      pl_import_formats[i]->name);
	pl_fail(err, PL_EDATA,
		"%s: byte 0: no known trace format; name it if it is one (type: trace --from=NAME "
		"FILE; %s)",
		name, list);
}

const struct pl_importer *pl_import_probe(const uint8_t *p, size_t n)
{
	const struct pl_importer *best = NULL;
	int sure = 0;

	for (size_t i = 0; n && pl_import_formats[i]; i++) { /* without bytes, p may be NULL */
		int s = pl_import_formats[i]->probe(p, n);

		if (s > sure) {
			sure = s;
			best = pl_import_formats[i];
		}
	}
	return best;
}

static const struct pl_importer *recognise(struct pl_in *in, const uint8_t *p, size_t n,
					   struct pl_err *err)
{
	const struct pl_importer *best;
	size_t k = 9; /* the end of the word after "paceline-" */

	if (!n) {
		pl_fail(err, PL_EDATA, "%s: byte 0: the file is empty; nothing to import",
			pl_in_name(in));
		return NULL;
	}
	best = pl_import_probe(p, n);
	while (k < n && k < 40 && p[k] > ' ')
		k++;
	if (!best && n > 9 && !memcmp(p, "paceline-", 9))
		pl_fail(err, PL_EDATA,
			"%s: byte 0: this is the text of a %.*s, not a trace; type, for a plan: "
			"replay -p FILE GRAPH; for a job: run FILE",
			pl_in_name(in), (int)(k - 9), (const char *)p + 9);
	else if (!best && pl_trace_is_chakra(p, n))
		pl_fail(err, PL_EDATA,
			"%s: byte 0: this is an execution trace of Chakra, which is a graph; type: "
			"graph %s; or give the profiler's file too",
			pl_in_name(in), pl_in_name(in));
	else if (!best && pl_import_et_probe(p, n))
		pl_fail(err, PL_EDATA,
			"%s: byte 0: this is an execution trace, which only adds sizes to a "
			"profile; give the profiler's file too",
			pl_in_name(in));
	else if (!best && is_report(pl_in_name(in)))
		pl_fail(err, PL_EDATA,
			"%s: byte 0: a report of Nsight Systems is read as its export; type: nsys "
			"export --type sqlite --include-blobs=true -o FILE.sqlite REPORT",
			pl_in_name(in));
	else if (!best)
		unknown(pl_in_name(in), err);
	return best;
}

int pl_import_run(struct pl_in *raw, const struct pl_importer *force,
		  const struct pl_import_opts *o, struct pl_sink *sink, struct pl_import_stats *st,
		  struct pl_err *err)
{
	struct pl_in *in = pl_import_open(raw, o->pool, err);
	struct pl_err cut = { 0 };
	const uint8_t *p;
	int64_t n;
	int rc = 0;

	memset(st, 0, sizeof(*st));
	if (!in)
		return err->code;
	n = look(in, &p, &cut, err);
	if (n >= 0)
		rc = refuse_wide(pl_in_name(in), p, (size_t)n, err);
	st->empty = !n;
	if (n >= 0 && rc >= 0 && (!n || !force)) /* no format allows an empty file */
		force = recognise(in, p, (size_t)n, err);
	if (n < 0 || rc < 0 || !force) {
		rc = err->code;
	} else if (cut.code && o->strict) {
		*err = cut;
		rc = cut.code;
	} else {
		if (cut.code) {
			st->truncated = true;
			snprintf(st->first, sizeof(st->first), "%.255s", cut.msg);
			pl_say(o->log, PL_LOG_WARN, "%s; what could be read is kept", cut.msg);
		}
		rc = force->run(in, o, sink, st, err);
	}
	pl_in_close(in);
	return rc;
}

/* ---- reporting ----------------------------------------------------------------------------- */

int pl_import_report(struct pl_report *r, enum pl_fate fate, int64_t at, const char *what,
		     struct pl_err *err)
{
	static const char *const text[] = { "it is skipped and counted",
					    "it is counted and the event kept",
					    "it is read all the same",
					    "what came before it is kept" };
	struct pl_import_stats *st = r->st;
	const char *unit = r->unit ? r->unit : "byte";

	if (fate == PL_TRUNCATED && st->truncated)
		return 0;
	st->bad += fate <= PL_BAD_VALUE;
	st->tolerated += fate == PL_TOLERATED;
	st->truncated |= fate == PL_TRUNCATED;
	if (!st->first[0])
		snprintf(st->first, sizeof(st->first), "%s %lld: %s", unit, (long long)at, what);
	if (r->o->strict)
		return pl_fail(err, PL_EDATA, "%s: %s %lld: %s; without --strict %s", r->file, unit,
			       (long long)at, what, text[fate]);
	for (unsigned i = 0; i < r->n_logged; i++)
		if (r->logged[i] == what)
			return 0;
	if (r->n_logged == PL_LEN(r->logged))
		return 0;
	r->logged[r->n_logged++] = what;
	pl_say(r->o->log, PL_LOG_WARN, "%s: %s %lld: %s; %s", r->file, unit, (long long)at, what,
	       text[fate]);
	return 0;
}

/* ---- the input window ---------------------------------------------------------------------- */

void pl_import_src_init(struct pl_src *s, struct pl_in *in, struct pl_report *r)
{
	memset(s, 0, sizeof(*s));
	s->in = in;
	s->report = r;
	s->p = s->end = s->base = "";
	s->offset = pl_in_offset(in);
}

void pl_import_src_fini(struct pl_src *s)
{
	pl_buf_fini(&s->tail);
}

/* At the end of the input, copy its last bytes into a padded buffer. */
static int take_tail(struct pl_src *s, const uint8_t *p, size_t n, struct pl_err *err)
{
	PL_CHECK(pl_buf_need(&s->tail, n + PL_SLACK, err));
	memcpy(s->tail.p, p, n);
	memset(s->tail.p + n, 0, PL_SLACK);
	s->p = s->base = (const char *)s->tail.p;
	s->end = s->base + n;
	s->eof = true;
	return 0;
}

int pl_import_src_fill(struct pl_src *s, size_t want, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n;

	if (s->eof)
		return 0;
	if (want < PL_SRC_WINDOW)
		want = PL_SRC_WINDOW;
	want += PL_SLACK;
	s->offset += s->p - s->base;
	pl_in_skip(s->in, (size_t)(s->p - s->base));
	s->p = s->base = s->end;
	n = pl_in_peek(s->in, want, &p, err);
	if (n == PL_EDATA && !s->report->o->strict) {
		pl_say(s->report->o->log, PL_LOG_WARN, "%s; what could be read is kept", err->msg);
		err->code = 0;
		s->report->st->truncated = true;
		if (!s->report->st->first[0])
			snprintf(s->report->st->first, sizeof(s->report->st->first), "%.255s",
				 err->msg);
		n = pl_in_peek(s->in, want, &p, err);
	}
	if (n < 0)
		return (int)n;
	if ((size_t)n < want)
		return take_tail(s, p, (size_t)n, err);
	s->p = s->base = (const char *)p;
	s->end = s->base + n - PL_SLACK;
	return 0;
}

int pl_import_src_begin(struct pl_src *s, struct pl_err *err)
{
	PL_CHECK(pl_import_src_fill(s, PL_SRC_WINDOW, err));
	if (s->end - s->p >= 3 && !memcmp(s->p, "\xef\xbb\xbf", 3))
		s->p += 3;
	s->p = pl_scan_space(s->p, s->end);
	return 0;
}

const char *pl_import_value_end(const char *p, const char *end)
{
	unsigned flags;

	if (*p == '{' || *p == '[')
		return pl_scan_nested(p, end);
	if (*p == '"')
		return pl_scan_string(p + 1, end, &flags) + 1;
	p = pl_scan_word(p, end);
	return p < end ? p : end + 1;
}

#define PATIENCE ((int64_t)64 << 20)

const char *pl_import_src_limit(const struct pl_src *s, size_t max)
{
	if (PL_UNLIKELY(s->vain > PATIENCE + 16 * pl_import_src_at(s, s->p)))
		max = (size_t)16 << 10;
	return (size_t)(s->end - s->p) > max ? s->p + max : s->end;
}

/* ---- ranks and hosts from names ------------------------------------------------------------ */

static const char *base_name(const char *path)
{
	const char *s = strrchr(path, '/');

	return s ? s + 1 : path;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* Find `word`, an optional separator, then at most six digits, as a whole word within [s, end). */
int32_t pl_import_number_after(const char *s, const char *end, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = s; end - p > (ptrdiff_t)n; p++) {
		const char *q = p + n;
		int32_t v = 0;
		int digits = 0;

		if (strncasecmp(p, word, n) != 0 || (p > s && is_letter(p[-1])))
			continue;
		q += *q && strchr("_-.= ", *q) != NULL;
		for (; q < end && is_digit(*q) && digits < 7; q++, digits++)
			v = v * 10 + (*q - '0');
		if (digits && digits < 7 && (q >= end || !is_letter(*q)))
			return v;
	}
	return -1;
}

/* Length of HOST in PyTorch's HOST_PID.TIME.pt.trace.json, also with .gz; 0: another name. */
static size_t handler_host(const char *base)
{
	const char *tail = strstr(base, ".pt.trace.json"), *p, *host;

	if (!tail)
		return 0;
	for (p = tail; p > base && is_digit(p[-1]);)
		p--;
	if (p == tail || p == base || p[-1] != '.')
		return 0;
	host = --p;
	while (p > base && is_digit(p[-1]))
		p--;
	return p == host || p == base || p[-1] != '_' ? 0 : (size_t)(p - 1 - base);
}

int32_t pl_import_name_rank(const char *path, const char **host, size_t *host_len)
{
	static const char *const words[] = { "rank", "worker", "kineto", "gpu", "et", "process" };
	const char *base = base_name(path), *end = base + strlen(base);
	size_t n = handler_host(base);
	int32_t rank = -1;

	*host = NULL;
	*host_len = 0;
	for (size_t i = 0; i < PL_LEN(words) && rank < 0; i++)
		rank = pl_import_number_after(base, end, words[i]);
	if (rank < 0 && base > path) /* .../rank3/trace.json */
		rank = pl_import_number_after(path, base - 1, "rank");
	if (!n)
		return rank;
	for (size_t i = 0; i < PL_LEN(words); i++)
		if (pl_import_number_after(base, base + n + 1, words[i]) >= 0 ||
		    (strlen(words[i]) == n && !strncasecmp(base, words[i], n)))
			return rank;
	*host = base;
	*host_len = n;
	return rank;
}

/* The number at %d, if `pattern` occurs in `path`; -1: no. */
static int32_t by_pattern(const char *pattern, const char *path)
{
	const char *d = strstr(pattern, "%d");
	size_t before = (size_t)(d - pattern), after = strlen(d + 2);

	for (const char *p = path; *p; p++) {
		const char *q = p + before;
		int32_t v = 0;
		int digits = 0;

		if (strncmp(p, pattern, before) != 0 || (!before && p > path && is_digit(p[-1])))
			continue;
		for (; is_digit(*q) && digits < 9; q++, digits++)
			v = v * 10 + (*q - '0');
		if (digits && !strncmp(q, d + 2, after))
			return v;
	}
	return -1;
}

int pl_import_pick_rank(const struct pl_import_opts *o, const char *path, int32_t info,
			int32_t *rank, struct pl_err *err)
{
	const char *from = o->rank_from ? o->rank_from : "auto", *host;
	size_t host_len;

	*rank = -1;
	if (!strcmp(from, "auto")) {
		*rank = info >= 0 ? info : pl_import_name_rank(path, &host, &host_len);
		if (*rank < 0)
			*rank = o->process - 1;
	} else if (!strcmp(from, "info")) {
		*rank = info;
	} else if (!strcmp(from, "name")) {
		*rank = pl_import_name_rank(path, &host, &host_len);
	} else if (!strcmp(from, "order")) {
		*rank = o->order;
	} else if (strstr(from, "%d")) {
		*rank = by_pattern(from, path);
	} else {
		return pl_fail(err, PL_EUSAGE,
			       "--rank-from: \"%s\" is none of name, info, order, or a pattern "
			       "with %%d such as \"node%%d_\"",
			       from);
	}
	return 0;
}

int pl_import_member_rank(const struct pl_import_opts *o, const char *path, int32_t local,
			  int64_t size, int32_t *rank, struct pl_err *err)
{
	const char *host;
	size_t host_len;
	int32_t named;

	PL_CHECK(pl_import_pick_rank(o, path, local, rank, err));
	if (local < 0 || (o->rank_from && strcmp(o->rank_from, "auto") != 0))
		return 0;
	named = pl_import_name_rank(path, &host, &host_len);
	if (named < 0 || named == local)
		return 0;
	if (size && named >= size) {
		*rank = named;
		pl_say(o->log, PL_LOG_WARN,
		       "%s: its name says rank %d, and its largest communicator has %lld ranks, so "
		       "that is a part of the job: the rank is that of the name",
		       path, (int)named, (long long)size);
	} else {
		pl_say(o->log, PL_LOG_WARN,
		       "%s: its name says rank %d, but it is rank %d of its largest communicator, "
		       "which counts; if that is a part of the job, type --rank-from=name",
		       path, (int)named, (int)local);
	}
	return 0;
}

int pl_import_begin(struct pl_segment *seg, const char *path, const char *format,
		    struct pl_err *err)
{
	memset(seg, 0, sizeof(*seg));
	seg->source = pl_strdup(base_name(path));
	seg->format = pl_strdup(format);
	if (seg->source && seg->format)
		return 0;
	pl_trace_segment_fini(seg);
	return pl_fail(err, PL_ENOMEM, "out of memory (segment)");
}
