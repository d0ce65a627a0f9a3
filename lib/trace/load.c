/*
 * A whole trace in memory, in dense columns: a sink for pl_trace_read().
 *
 * A role without values in a segment costs nothing. A column that appears late is filled from the
 * first row. At the end, the merge table is checked against the events, once for all users.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "trace/internal.h"

/* State of a segment, in addition to its columns. */
struct loaded {
	uint64_t read;	   /* events in the stream, including those left out */
	uint64_t limit;	   /* events from here on cannot be addressed */
	uint32_t *ordinal; /* [row]: number of the event in the stream; NULL: the row itself */
	size_t cap;
};
struct loader {
	struct pl_sink sink; /* first */
	struct pl_trace *t;
	uint64_t roles, kinds;	     /* wanted */
	const char *const *metadata; /* wanted keys, NULL: all */
	bool no_merges;		     /* those of the stream do not count */
	bool salvage;
	struct pl_events *cur;
	uint64_t cap;
	uint32_t *row; /* [event of the batch]: its row, PL_NONE: left out */
	size_t cap_row;
	struct loaded *seg; /* [segment] */
	size_t cap_seg;
};

/* Dense columns, by role. */
enum values {
	NUMBERS,
	NAMES, /* numbers that are only compared for equality, so strings may replace them */
	TEXTS, /* strings */
};
#define COLUMN(role, values, member)                                                               \
	{                                                                                          \
		PL_R_##role, values, offsetof(struct pl_events, member)                            \
	}
static const struct column {
	uint8_t role, values;
	size_t offset;
} columns[] = {
	COLUMN(STEP, NUMBERS, step),
	COLUMN(CORR, NAMES, corr),
	COLUMN(FLOW, NAMES, flow),
	COLUMN(SEQ, NUMBERS, seq),
	COLUMN(PEER, NUMBERS, peer),
	COLUMN(BYTES, NUMBERS, bytes),
	COLUMN(MB, NUMBERS, mb),
	COLUMN(CHUNK, NUMBERS, chunk),
	COLUMN(LAYER, NUMBERS, layer),
	COLUMN(EXTERNAL, NAMES, external),
	COLUMN(CHANNEL, NUMBERS, channel),
	COLUMN(OF, NUMBERS, of),
	COLUMN(SRC, NUMBERS, peer),
	COLUMN(DST, NUMBERS, peer),
	COLUMN(RECORD, NUMBERS, record),
	COLUMN(STREAM, NUMBERS, stream),
	COLUMN(WAIT_STREAM, NUMBERS, wait_stream),
	COLUMN(WAIT_CORR, NUMBERS, wait_corr),
	COLUMN(WAIT_EVENT, NUMBERS, wait_event),
	COLUMN(ALLOC, NUMBERS, alloc),
	COLUMN(ADDRESS, NUMBERS, address),
	COLUMN(ALLOCATED, NUMBERS, allocated),
	COLUMN(DEVICE_TYPE, NUMBERS, device_type),
	COLUMN(DEVICE, NUMBERS, device),
	COLUMN(GROUP, TEXTS, group),
	COLUMN(COLL, TEXTS, coll),
	COLUMN(CAT, TEXTS, cat),
	COLUMN(DIMS, TEXTS, dims),
	COLUMN(TYPES, TEXTS, types),
	COLUMN(VALUES, TEXTS, values),
	COLUMN(OP, TEXTS, op),
	COLUMN(AFTER, TEXTS, after),
	COLUMN(FLOPS, NUMBERS, flops),
	COLUMN(MOVED, NUMBERS, moved),
	COLUMN(SEQUENCE, NUMBERS, sequence),
};

/* The place of the array of a column. */
static void *place_of(const struct pl_events *e, const struct column *c)
{
	return (char *)e + c->offset;
}

static void *array_of(const struct pl_events *e, const struct column *c)
{
	void *p;

	memcpy(&p, place_of(e, c), sizeof(p));
	return p;
}

static size_t size_of(const struct column *c)
{
	return c->values == TEXTS ? sizeof(pl_id) : sizeof(int64_t);
}

static void drop_columns(struct pl_events *e)
{
	for (const struct column *c = columns; c < columns + PL_LEN(columns); c++) {
		pl_free(array_of(e, c));
		memset(place_of(e, c), 0, sizeof(void *));
	}
	pl_free(e->kind);
	pl_free(e->track);
	pl_free(e->name);
	pl_free(e->ts);
	pl_free(e->dur);
	e->kind = NULL;
	e->track = e->name = NULL;
	e->ts = e->dur = NULL;
}

static void events_free(struct pl_events *e)
{
	if (!e)
		return;
	drop_columns(e);
	pl_trace_segment_fini(&e->seg);
	pl_free(e);
}

void pl_trace_drop(struct pl_trace *t, uint32_t seg)
{
	drop_columns(t->seg[seg]);
	pl_intern_fini(&t->seg[seg]->seg.str);
}

void pl_trace_fini(struct pl_trace *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		events_free(t->seg[i]);
	pl_free(t->seg);
	pl_trace_merge_fini(&t->merge);
	pl_intern_fini(&t->provenance);
	memset(t, 0, sizeof(*t));
}

/* ---- growing --------------------------------------------------------------------------------- */

static int widen(void *array, uint64_t n, size_t size, struct pl_err *err)
{
	void *p;

	memcpy(&p, array, sizeof(p));
	p = n > SIZE_MAX / size ? NULL : pl_realloc(p, (size_t)n * size);
	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (%llu events)",
			       (unsigned long long)n);
	memcpy(array, &p, sizeof(p));
	return 0;
}

/* Allocate exactly `cap` events. */
static int resize(struct loader *l, uint64_t cap, struct pl_err *err)
{
	struct pl_events *e = l->cur;

	PL_CHECK(widen(&e->kind, cap, sizeof(*e->kind), err));
	PL_CHECK(widen(&e->track, cap, sizeof(*e->track), err));
	PL_CHECK(widen(&e->name, cap, sizeof(*e->name), err));
	PL_CHECK(widen(&e->ts, cap, sizeof(*e->ts), err));
	PL_CHECK(widen(&e->dur, cap, sizeof(*e->dur), err));
	for (const struct column *c = columns; c < columns + PL_LEN(columns); c++)
		if (array_of(e, c))
			PL_CHECK(widen(place_of(e, c), cap, size_of(c), err));
	l->cap = cap;
	return 0;
}

static int reserve(struct loader *l, uint64_t need, struct pl_err *err)
{
	uint64_t cap = l->cap ? l->cap : 1024;

	while (cap < need)
		cap *= 2;
	return cap > l->cap ? resize(l, cap, err) : 0;
}

/* Set these rows to "no value". */
static void fill(struct pl_events *e, const struct column *c, uint64_t from, uint64_t to)
{
	void *array = array_of(e, c);
	pl_id *text = array;
	int64_t *v = array;

	if (c->values == TEXTS)
		for (uint64_t i = from; text && i < to; i++)
			text[i] = PL_NONE;
	else
		for (uint64_t i = from; v && i < to; i++)
			v[i] = INT64_MIN;
}

/* Set the rows of a new batch to "no value" in all columns that exist. */
static void fill_all(struct loader *l, uint64_t from, uint64_t to)
{
	for (const struct column *c = columns; c < columns + PL_LEN(columns); c++)
		fill(l->cur, c, from, to);
}

static int need_column(struct loader *l, const struct column *c, uint64_t to, struct pl_err *err)
{
	int rc = widen(place_of(l->cur, c), l->cap, size_of(c), err);

	if (rc >= 0)
		fill(l->cur, c, 0, to);
	return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "12", "-3", "0x1f", in quotes or not. */
static bool parse_number(const char *s, size_t n, int64_t *v)
{
	bool quoted = n >= 2 && s[0] == '"' && s[n - 1] == '"';
	const char *digits;
	char *end;
	bool hex;

	s += quoted;
	n -= 2 * quoted;
	digits = s + (n && *s == '-');
	hex = digits[0] == '0' && (digits[1] | 0x20) == 'x';
	if (s + n - digits > (hex ? 20 : 18) || !isxdigit((unsigned char)*digits))
		return false;
	errno = 0;
	*v = strtoll(s, &end, hex ? 16 : 10);
	return end == s + n && !errno;
}

static bool parse_decimal(int64_t mantissa, unsigned scale, int64_t *v)
{
	for (; scale; scale--) {
		if (mantissa % 10)
			return false;
		mantissa /= 10;
	}
	*v = mantissa;
	return true;
}

/* Value i of a column as a number. Each text that is no number gets a negative number. */
static int64_t number(const struct pl_segment *seg, const struct pl_col *c, uint32_t i, bool names)
{
	int64_t v;
	pl_id id;

	switch (c->type) {
	case PL_V_INT:
	case PL_V_BOOL:
		return c->val[i];
	case PL_V_DEC:
		return parse_decimal(c->val[i], c->scale[i], &v) ? v : INT64_MIN;
	case PL_V_STR:
	case PL_V_JSON:
		id = (pl_id)c->val[i];
		if (parse_number(seg->str.str[id], seg->str.len[id], &v))
			return v;
		return names ? -2 - (int64_t)id : INT64_MIN;
	default:
		return INT64_MIN;
	}
}

static int load_values(struct loader *l, const struct pl_segment *seg, const struct pl_col *from,
		       const struct column *c, uint64_t to, struct pl_err *err)
{
	for (uint32_t k = 0; k < from->n; k++) {
		uint32_t row = l->row[from->row[k]];
		void *array = array_of(l->cur, c);

		if (row == PL_NONE)
			continue;
		if (!array)
			PL_CHECK(need_column(l, c, to, err));
		array = array_of(l->cur, c);
		if (c->values == TEXTS)
			((pl_id *)array)[row] = (pl_id)from->val[k];
		else
			((int64_t *)array)[row] =
				from->type == PL_V_INT ? from->val[k]
						       : number(seg, from, k, c->values == NAMES);
	}
	return 0;
}

static int load_col(struct loader *l, const struct pl_segment *seg, const struct pl_col *from,
		    uint64_t to, struct pl_err *err)
{
	bool text = from->type == PL_V_STR || from->type == PL_V_JSON;

	for (const struct column *c = columns; c < columns + PL_LEN(columns); c++)
		if (c->role == from->role && l->roles & PL_ROLE_BIT(c->role) &&
		    (text || c->values != TEXTS))
			PL_CHECK(load_values(l, seg, from, c, to, err));
	return 0;
}

/* ---- the sink -------------------------------------------------------------------------------- */

static int on_begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct pl_trace *t = l->t;

	(void)seg;
	PL_CHECK(pl_grow(&t->seg, &t->cap_segs, (size_t)t->n_segs + 1, sizeof(*t->seg), err));
	PL_CHECK(pl_grow(&l->seg, &l->cap_seg, (size_t)t->n_segs + 1, sizeof(*l->seg), err));
	PL_CHECK(pl_alloc(&l->cur, 1, sizeof(*l->cur), err));
	l->seg[t->n_segs] = (struct loaded){ .limit = UINT64_MAX };
	t->seg[t->n_segs++] = l->cur;
	l->cap = 0;
	return reserve(l, 1, err); /* the columns of all events exist even without events */
}

/* Choose rows for the events of the batch whose kinds are wanted. */
static int choose_rows(struct loader *l, struct pl_batch *b, uint64_t *to, struct pl_err *err)
{
	struct loaded *s = &l->seg[l->t->n_segs - 1];
	struct pl_events *e = l->cur;

	PL_CHECK(pl_grow(&l->row, &l->cap_row, b->n, sizeof(*l->row), err));
	if (l->kinds != UINT64_MAX)
		PL_CHECK(pl_grow(&s->ordinal, &s->cap, e->n + b->n, sizeof(*s->ordinal), err));
	for (uint32_t i = 0; i < b->n; i++) {
		uint8_t kind = b->kind[i];

		l->row[i] = PL_NONE;
		if (l->kinds != UINT64_MAX && (kind > 63 || !(l->kinds >> kind & 1)))
			continue;
		if (s->ordinal)
			s->ordinal[*to] = (uint32_t)(s->read + i);
		l->row[i] = (uint32_t)(*to)++;
	}
	return 0;
}

static int on_batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct loaded *s = &l->seg[l->t->n_segs - 1];
	struct pl_events *e = l->cur;
	uint64_t to = e->n;

	if (s->read + b->n > PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "a segment has more than %u events", PL_NONE - 1);
	if (b->first != s->read && s->limit > s->read)
		s->limit = s->read; /* a block was lost: later numbers are not known */
	PL_CHECK(choose_rows(l, b, &to, err));
	PL_CHECK(reserve(l, to, err));
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t row = l->row[i];

		if (row == PL_NONE)
			continue;
		e->kind[row] = b->kind[i];
		e->track[row] = b->track[i];
		e->name[row] = b->name[i];
		e->ts[row] = b->ts[i];
		e->dur[row] = b->dur[i];
	}
	fill_all(l, e->n, to);
	for (uint32_t i = 0; i < b->n_cols; i++)
		if (b->col[i].n)
			PL_CHECK(load_col(l, seg, &b->col[i], to, err));
	e->n = to;
	s->read += b->n;
	return 0;
}

/* ---- what is not needed ---------------------------------------------------------------------- */

static bool wanted_key(const struct loader *l, const char *key)
{
	const char *const *k = l->metadata;

	while (*k && strcmp(*k, key) != 0)
		k++;
	return *k;
}

static void keep(bool *kept, size_t n, const pl_id *id, uint64_t ids)
{
	for (uint64_t i = 0; id && i < ids; i++)
		if (id[i] < n)
			kept[id[i]] = true;
}

/* Remove metadata that is not wanted, and then the strings that nothing refers to. */
static int drop_unwanted(const struct loader *l, struct pl_segment *seg, struct pl_err *err)
{
	const struct pl_events *e = l->cur;
	size_t n = seg->str.n;
	uint32_t n_meta = 0;
	bool *kept;
	int rc;

	PL_CHECK(pl_alloc(&kept, n, sizeof(*kept), err));
	for (uint32_t i = 0; i < seg->n_meta; i++) {
		if (!wanted_key(l, pl_intern_get(&seg->str, seg->meta[i].key)))
			continue;
		seg->meta[n_meta++] = seg->meta[i];
		keep(kept, n, (const pl_id[]){ seg->meta[i].key, seg->meta[i].value }, 2);
	}
	seg->n_meta = n_meta;
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		const struct pl_track *t = &seg->track[i];
		const pl_id id[] = { t->host, t->pid, t->tid, t->name, t->process, t->labels };

		keep(kept, n, id, PL_LEN(id));
	}
	keep(kept, n, e->name, e->n);
	for (const struct column *c = columns; c < columns + PL_LEN(columns); c++)
		if (c->values == TEXTS)
			keep(kept, n, array_of(e, c), e->n);
	rc = pl_intern_keep(&seg->str, kept, err);
	pl_free(kept);
	return rc;
}

int pl_trace_add_lines(struct pl_intern *lines, const struct pl_buf *b, struct pl_err *err)
{
	pl_id id;

	for (size_t at = 0, n; at < b->n; at += n + 1) {
		const uint8_t *end = memchr(b->p + at, '\n', b->n - at);

		n = end ? (size_t)(end - b->p) - at : b->n - at;
		PL_CHECK(pl_intern_add(lines, (const char *)b->p + at, n, &id, err));
	}
	return 0;
}

static int on_end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct loaded *s = &l->seg[l->t->n_segs - 1];
	int rc =
		resize(l, l->cur->n + 1, err); /* the plain columns are there even without events */

	if (rc < 0)
		return rc;
	if (l->metadata)
		PL_CHECK(drop_unwanted(l, seg, err));
	PL_CHECK(pl_trace_add_lines(&l->t->provenance, &seg->provenance, err));
	pl_buf_fini(&seg->provenance);
	s->limit = s->limit < seg->n_events ? s->limit : seg->n_events;
	l->cur->seg = *seg; /* l owns its contents now */
	memset(seg, 0, sizeof(*seg));
	return 0;
}

static int on_merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct pl_merge copy;
	int rc;

	if (l->no_merges)
		return 0;
	rc = pl_trace_merge_dup(m, &copy, err); /* the reader keeps its own copy */
	l->t->merged = true;
	l->t->n_merges++;
	return rc < 0 ? rc : pl_trace_merge_append(&l->t->merge, &copy, l->t->n_segs, err);
}

/* ---- what merge says against what there is --------------------------------------------------- */

/* Does the event exist? Replace its number in the stream by its row. */
static bool find_row(const struct loader *l, struct pl_member *k)
{
	const struct loaded *s = k->segment < l->t->n_segs ? &l->seg[k->segment] : NULL;
	uint64_t n, i = 0;

	if (!s || k->event >= s->limit)
		return false;
	if (!s->ordinal)
		return true;
	n = l->t->seg[k->segment]->n;
	PL_LOWER_BOUND(i, n, s->ordinal[i] < k->event);
	if (i == n || s->ordinal[i] != k->event)
		return false;
	k->event = (uint32_t)i;
	return true;
}

static int check_merge(struct loader *l, const char *name, struct pl_err *err)
{
	struct pl_merge *m = &l->t->merge;
	uint32_t of = 0; /* a segment that does not exist, or lacks an event */
	bool missing = false;

	for (uint32_t i = 0; i < m->n_uses; i++) {
		if (m->use[i].segment < l->t->n_segs)
			continue;
		missing = true;
		of = m->use[i].segment;
		m->use[i].segment = PL_NONE;
	}
	for (uint32_t i = 0; i < m->n_members; i++) {
		if (find_row(l, &m->member[i]))
			continue;
		missing = true;
		of = m->member[i].segment;
		m->member[i].segment = PL_NONE;
	}
	if (!missing)
		return 0;
	if (l->salvage)
		return pl_trace_merge_close_gaps(m, err);
	return pl_fail(err, PL_EDATA,
		       "%s: the merge speaks of segment %u or of events in it that are not there: "
		       "merge the parts again, or use --salvage",
		       name, of);
}

int pl_trace_load(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_trace *t,
		  struct pl_err *err)
{
	struct pl_trace_reader_opts o = opts ? *opts : (struct pl_trace_reader_opts){ 0 };
	struct loader l = {
		.sink = { .begin = on_begin, .batch = on_batch, .end = on_end, .merge = on_merge },
		.t = t,
		.roles = o.roles ? o.roles : UINT64_MAX,
		.kinds = o.kinds ? o.kinds : UINT64_MAX,
		.metadata = o.metadata,
		.salvage = o.salvage,
	};
	int rc;

	memset(t, 0, sizeof(*t));
	o.ahead = true;
	if (o.merge)
		PL_TRY(on_merge(&l.sink, o.merge, err));
	l.no_merges = o.merge;
	PL_TRY(pl_trace_read(in, &o, &l.sink, err));
	PL_TRY(check_merge(&l, pl_in_name(in), err));
out:
	for (uint32_t i = 0; i < t->n_segs && l.seg; i++)
		pl_free(l.seg[i].ordinal);
	pl_free(l.seg);
	pl_free(l.row);
	if (rc < 0)
		pl_trace_fini(t);
	return rc;
}
