/*
 * A whole trace in memory, in dense columns: a sink of its own under pl_trace_read().
 *
 * A role that a segment never uses costs nothing; one that comes late is filled up backwards. What
 * merge says about events is checked against the events that really came, once, at the end, so that
 * nobody has to do it again.
 */
#include <string.h>

#include "trace/internal.h"

struct loader {
	struct pl_sink sink; /* first */
	struct pl_trace *t;
	uint64_t roles; /* wanted */
	bool salvage;
	struct pl_events *cur;
	uint64_t cap;
	uint64_t *limit; /* by segment: events from here on cannot be addressed */
	size_t cap_limit;
};

/* Dense columns of numbers and of strings, by role. */
static const struct {
	uint8_t role;
	bool names; /* equality is all that counts, so a string will do as well */
	size_t offset;
} numbers[] = {
	{ PL_R_STEP, false, offsetof(struct pl_events, step) },
	{ PL_R_CORR, true, offsetof(struct pl_events, corr) },
	{ PL_R_FLOW, true, offsetof(struct pl_events, flow) },
	{ PL_R_SEQ, false, offsetof(struct pl_events, seq) },
	{ PL_R_PEER, false, offsetof(struct pl_events, peer) },
	{ PL_R_BYTES, false, offsetof(struct pl_events, bytes) },
	{ PL_R_MB, false, offsetof(struct pl_events, mb) },
	{ PL_R_CHUNK, false, offsetof(struct pl_events, chunk) },
	{ PL_R_LAYER, false, offsetof(struct pl_events, layer) },
	{ PL_R_EXTERNAL, true, offsetof(struct pl_events, external) },
	{ PL_R_CHANNEL, false, offsetof(struct pl_events, channel) },
	{ PL_R_OF, false, offsetof(struct pl_events, of) },
	{ PL_R_SRC, false, offsetof(struct pl_events, peer) },
	{ PL_R_DST, false, offsetof(struct pl_events, peer) },
	{ PL_R_RECORD, false, offsetof(struct pl_events, record) },
	{ PL_R_STREAM, false, offsetof(struct pl_events, stream) },
	{ PL_R_WAIT_STREAM, false, offsetof(struct pl_events, wait_stream) },
	{ PL_R_WAIT_CORR, false, offsetof(struct pl_events, wait_corr) },
	{ PL_R_WAIT_EVENT, false, offsetof(struct pl_events, wait_event) },
	{ PL_R_ALLOC, false, offsetof(struct pl_events, alloc) },
	{ PL_R_ADDRESS, false, offsetof(struct pl_events, address) },
	{ PL_R_ALLOCATED, false, offsetof(struct pl_events, allocated) },
	{ PL_R_DEVICE_TYPE, false, offsetof(struct pl_events, device_type) },
	{ PL_R_DEVICE, false, offsetof(struct pl_events, device) },
};
static const struct {
	uint8_t role;
	size_t offset;
} texts[] = {
	{ PL_R_GROUP, offsetof(struct pl_events, group) },
	{ PL_R_COLL, offsetof(struct pl_events, coll) },
	{ PL_R_CAT, offsetof(struct pl_events, cat) },
	{ PL_R_DIMS, offsetof(struct pl_events, dims) },
	{ PL_R_TYPES, offsetof(struct pl_events, types) },
};

static int64_t **number_of(struct pl_events *e, size_t i)
{
	return (int64_t **)(void *)((char *)e + numbers[i].offset);
}

static pl_id **text_of(struct pl_events *e, size_t i)
{
	return (pl_id **)(void *)((char *)e + texts[i].offset);
}

static void drop_columns(struct pl_events *e)
{
	for (size_t i = 0; i < PL_LEN(numbers); i++) {
		pl_free(*number_of(e, i));
		*number_of(e, i) = NULL;
	}
	for (size_t i = 0; i < PL_LEN(texts); i++) {
		pl_free(*text_of(e, i));
		*text_of(e, i) = NULL;
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

void pl_trace_drop(struct pl_trace *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		drop_columns(t->seg[i]);
}

void pl_trace_fini(struct pl_trace *t)
{
	for (uint32_t i = 0; i < t->n_segs; i++)
		events_free(t->seg[i]);
	pl_free(t->seg);
	pl_trace_merge_fini(&t->merge);
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

static int reserve(struct loader *l, uint64_t need, struct pl_err *err)
{
	struct pl_events *e = l->cur;
	uint64_t cap = l->cap ? l->cap : 1024;
	int rc;

	if (need <= l->cap)
		return 0;
	while (cap < need)
		cap *= 2;
	PL_TRY(widen(&e->kind, cap, sizeof(*e->kind), err));
	PL_TRY(widen(&e->track, cap, sizeof(*e->track), err));
	PL_TRY(widen(&e->name, cap, sizeof(*e->name), err));
	PL_TRY(widen(&e->ts, cap, sizeof(*e->ts), err));
	PL_TRY(widen(&e->dur, cap, sizeof(*e->dur), err));
	for (size_t i = 0; i < PL_LEN(numbers); i++)
		if (*number_of(e, i))
			PL_TRY(widen(number_of(e, i), cap, sizeof(int64_t), err));
	for (size_t i = 0; i < PL_LEN(texts); i++)
		if (*text_of(e, i))
			PL_TRY(widen(text_of(e, i), cap, sizeof(pl_id), err));
	l->cap = cap;
out:
	return rc;
}

static void fill_numbers(int64_t *v, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; v && i < to; i++)
		v[i] = INT64_MIN;
}

static void fill_texts(pl_id *v, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; v && i < to; i++)
		v[i] = PL_NONE;
}

/* The columns that exist have no values yet in the rows of a new batch. */
static void fill_all(struct loader *l, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < PL_LEN(numbers); i++)
		fill_numbers(*number_of(l->cur, i), from, to);
	for (size_t i = 0; i < PL_LEN(texts); i++)
		fill_texts(*text_of(l->cur, i), from, to);
}

static int need_numbers(struct loader *l, int64_t **v, uint64_t to, struct pl_err *err)
{
	int rc;

	if (*v)
		return 0;
	rc = widen(v, l->cap, sizeof(**v), err);
	if (rc >= 0)
		fill_numbers(*v, 0, to);
	return rc;
}

static int need_texts(struct loader *l, pl_id **v, uint64_t to, struct pl_err *err)
{
	int rc;

	if (*v)
		return 0;
	rc = widen(v, l->cap, sizeof(**v), err);
	if (rc >= 0)
		fill_texts(*v, 0, to);
	return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "12", "-3", "0x1f", in quotes or not. */
static bool parse_number(const char *s, size_t n, int64_t *v)
{
	bool negative = false;
	uint64_t u = 0;
	unsigned base = 10;

	if (n >= 2 && s[0] == '"' && s[n - 1] == '"') {
		s++;
		n -= 2;
	}
	if (n && *s == '-') {
		negative = true;
		s++;
		n--;
	}
	if (n > 2 && s[0] == '0' && (s[1] | 0x20) == 'x') {
		base = 16;
		s += 2;
		n -= 2;
	}
	if (!n || n > 18)
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned c = (unsigned char)s[i], low = c | 0x20;
		unsigned d = c - '0' < 10 ? c - '0' : low - 'a' < 6 ? low - 'a' + 10 : 99;

		if (d >= base || u > ((uint64_t)INT64_MAX - d) / base)
			return false;
		u = u * base + d;
	}
	*v = negative ? -(int64_t)u : (int64_t)u;
	return true;
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

/* Value i of a column as a number. A name that is no number gets one below 0 that only it has. */
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

static int load_number(struct loader *l, const struct pl_segment *seg, const struct pl_col *c,
		       size_t i, uint64_t to, struct pl_err *err)
{
	int64_t **v = number_of(l->cur, i);
	uint64_t at = l->cur->n;
	int rc = need_numbers(l, v, to, err);

	if (rc < 0)
		return rc;
	if (c->type == PL_V_INT)
		for (uint32_t k = 0; k < c->n; k++)
			(*v)[at + c->row[k]] = c->val[k];
	else
		for (uint32_t k = 0; k < c->n; k++)
			(*v)[at + c->row[k]] = number(seg, c, k, numbers[i].names);
	return 0;
}

static int load_text(struct loader *l, const struct pl_col *c, pl_id **v, uint64_t to,
		     struct pl_err *err)
{
	int rc = need_texts(l, v, to, err);

	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < c->n; k++)
		(*v)[l->cur->n + c->row[k]] = (pl_id)c->val[k];
	return 0;
}

static int load_col(struct loader *l, const struct pl_segment *seg, const struct pl_col *c,
		    uint64_t to, struct pl_err *err)
{
	bool text = c->type == PL_V_STR || c->type == PL_V_JSON;
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(numbers); i++)
		if (numbers[i].role == c->role && l->roles & PL_ROLE_BIT(c->role))
			PL_TRY(load_number(l, seg, c, i, to, err));
	for (size_t i = 0; text && i < PL_LEN(texts); i++)
		if (texts[i].role == c->role && l->roles & PL_ROLE_BIT(c->role))
			PL_TRY(load_text(l, c, text_of(l->cur, i), to, err));
out:
	return rc;
}

/* ---- the sink -------------------------------------------------------------------------------- */

static int on_begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct pl_trace *t = l->t;
	int rc;

	(void)seg;
	PL_TRY(pl_grow(&t->seg, &t->cap_segs, (size_t)t->n_segs + 1, sizeof(*t->seg), err));
	PL_TRY(pl_grow(&l->limit, &l->cap_limit, (size_t)t->n_segs + 1, sizeof(*l->limit), err));
	PL_TRY(pl_alloc(&l->cur, 1, sizeof(*l->cur), err));
	l->limit[t->n_segs] = UINT64_MAX;
	t->seg[t->n_segs++] = l->cur;
	l->cap = 0;
	rc = reserve(l, 1, err); /* the plain columns are there even without events */
out:
	return rc;
}

static int on_batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct pl_events *e = l->cur;
	uint64_t to = e->n + b->n;
	int rc;

	PL_TRY(reserve(l, to, err));
	if (b->first != e->n && l->limit[l->t->n_segs - 1] > e->n)
		l->limit[l->t->n_segs - 1] = e->n; /* a block was lost: rows are no ordinals now */
	memcpy(e->kind + e->n, b->kind, b->n * sizeof(*b->kind));
	memcpy(e->track + e->n, b->track, b->n * sizeof(*b->track));
	memcpy(e->name + e->n, b->name, b->n * sizeof(*b->name));
	memcpy(e->ts + e->n, b->ts, b->n * sizeof(*b->ts));
	memcpy(e->dur + e->n, b->dur, b->n * sizeof(*b->dur));
	fill_all(l, e->n, to);
	for (uint32_t i = 0; i < b->n_cols; i++)
		if (b->col[i].n)
			PL_TRY(load_col(l, seg, &b->col[i], to, err));
	e->n = to;
out:
	return rc;
}

static int on_end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	uint64_t *limit = &l->limit[l->t->n_segs - 1];
	int rc = reserve(l, 1, err); /* the plain columns are there even without events */

	if (rc < 0)
		return rc;
	*limit = *limit < seg->n_events ? *limit : seg->n_events;
	l->cur->seg = *seg; /* its contents are ours now */
	memset(seg, 0, sizeof(*seg));
	return 0;
}

static int on_merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct loader *l = (struct loader *)sink;
	struct pl_merge copy;
	int rc = pl_trace_merge_dup(m, &copy, err); /* what the reader has is only lent */

	l->t->merged = true;
	l->t->n_merges++;
	return rc < 0 ? rc : pl_trace_merge_append(&l->t->merge, &copy, l->t->n_segs, err);
}

/* ---- what merge says against what there is --------------------------------------------------- */

static bool is_there(const struct loader *l, const struct pl_member *k)
{
	return k->segment < l->t->n_segs && k->event < l->limit[k->segment];
}

static int drop_members(struct loader *l, struct pl_err *err)
{
	struct pl_merge *m = &l->t->merge;
	uint32_t *before, k = 0; /* how many of the members before each stay */
	int rc = pl_alloc(&before, (size_t)m->n_members + 1, sizeof(*before), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < m->n_members; i++) {
		before[i] = k;
		if (is_there(l, &m->member[i]))
			m->member[k++] = m->member[i];
	}
	before[m->n_members] = k;
	m->n_members = k;
	for (uint32_t i = 0; i < m->n_matches; i++) {
		struct pl_match *a = &m->match[i];
		uint32_t last = before[a->first + a->n], n = a->n;

		a->first = before[a->first];
		a->n = last - a->first;
		if (a->n == n)
			continue;
		a->flags |= PL_MATCH_MISSING;
		if (a->flags & PL_MATCH_P2P)
			a->n = 0; /* which half is left cannot be told by place any more */
	}
	pl_free(before);
	k = 0;
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment < l->t->n_segs)
			m->use[k++] = m->use[i];
	m->n_uses = k;
	return 0;
}

static int check_merge(struct loader *l, const char *name, struct pl_err *err)
{
	const struct pl_merge *m = &l->t->merge;
	uint32_t bad = PL_NONE;

	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment >= l->t->n_segs)
			bad = m->use[i].segment;
	for (uint32_t i = 0; i < m->n_members; i++)
		if (!is_there(l, &m->member[i]))
			bad = m->member[i].segment;
	if (bad == PL_NONE)
		return 0;
	if (l->salvage)
		return drop_members(l, err);
	return pl_fail(err, PL_EDATA,
		       "%s: the merge speaks of segment %u or of events in it that are not there: "
		       "merge the parts again, or use --salvage",
		       name, bad);
}

int pl_trace_load(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_trace *t,
		  struct pl_err *err)
{
	struct pl_trace_reader_opts o = opts ? *opts : (struct pl_trace_reader_opts){ 0 };
	struct loader l = {
		.sink = { .begin = on_begin, .batch = on_batch, .end = on_end, .merge = on_merge },
		.t = t,
		.roles = o.roles ? o.roles : UINT64_MAX,
		.salvage = o.salvage,
	};
	int rc;

	memset(t, 0, sizeof(*t));
	o.ahead = true;
	PL_TRY(pl_trace_read(in, &o, &l.sink, err));
	PL_TRY(check_merge(&l, pl_in_name(in), err));
out:
	pl_free(l.limit);
	if (rc < 0)
		pl_trace_fini(t);
	return rc;
}
