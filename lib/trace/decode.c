/*
 * Payloads of trace(5): reading. Nothing is trusted: every number of a string, track or row is
 * compared with the definitions, and every size with the bytes that are left, before memory is
 * allocated. A block of events has at most PL_TRACE_VALUES_MAX values, however few its bytes are.
 */
#include "trace/internal.h"

/* An id: the number of one of n strings plus one, or 0. */
static int get_id(struct pl_cur *c, size_t n, pl_id *id, struct pl_err *err)
{
	uint64_t v = pl_io_get_varint(c);

	*id = PL_NONE;
	if (!v)
		return 0;
	if (v > n)
		return pl_fail(err, PL_EDATA, "string %llu is used, %zu are defined",
			       (unsigned long long)v - 1, n);
	*id = (pl_id)(v - 1);
	return 0;
}

/* ---- definitions ----------------------------------------------------------------------------- */

int pl_trace_get_segment(struct pl_cur *c, struct pl_segment *s, struct pl_err *err)
{
	struct pl_segment is = { .base_ns = 0 };
	int rc = pl_record_get_fields(c, &pl_trace_record_segment, &is, NULL, err);
	uint64_t part = rc >= 0 && c->p < c->end ? pl_io_get_varint(c) : 0;

	if (rc >= 0 && (c->bad || part > UINT32_MAX))
		rc = pl_fail(err, PL_EDATA, "the number of a segment's part is out of range");
	if (rc < 0) {
		pl_free(is.source);
		pl_free(is.format);
		return rc;
	}
	s->part = (uint32_t)part;
	pl_free(s->source);
	pl_free(s->format);
	s->base_ns = is.base_ns;
	s->source = is.source;
	s->format = is.format;
	return 0;
}

static int check_strings(const struct pl_segment *s, const struct pl_track *t, struct pl_err *err)
{
	const pl_id ids[] = { t->host, t->pid, t->tid, t->name, t->process, t->labels };

	for (size_t i = 0; i < PL_LEN(ids); i++)
		if (ids[i] != PL_NONE && ids[i] >= s->str.n)
			return pl_fail(err, PL_EDATA, "string %u is used, %zu are defined", ids[i],
				       s->str.n);
	return 0;
}

int pl_trace_get_tracks(struct pl_cur *c, uint32_t count, struct pl_segment *s, struct pl_err *err)
{
	struct pl_numbered_track t;
	pl_id added;

	for (uint32_t i = 0; i < count; i++) {
		memset(&t, 0, sizeof(t));
		PL_CHECK(pl_record_get_entry(c, &pl_trace_record_track, &t, NULL, NULL, err));
		PL_CHECK(check_strings(s, &t.track, err));
		if (t.number > s->n_tracks)
			return pl_fail(err, PL_EDATA, "track %u is defined after %u", t.number,
				       s->n_tracks);
		if (t.number < s->n_tracks)
			s->track[t.number] = t.track;
		else
			PL_CHECK(pl_trace_segment_track(s, &t.track, &added, err));
	}
	return 0;
}

int pl_trace_get_meta(struct pl_cur *c, uint32_t count, struct pl_segment *s, struct pl_err *err)
{
	for (uint32_t i = 0; i < count; i++) {
		struct pl_meta m;

		PL_CHECK(get_id(c, s->str.n, &m.key, err));
		PL_CHECK(get_id(c, s->str.n, &m.value, err));
		if (c->bad)
			return pl_record_get_short(err);
		if (m.key == PL_NONE || m.value == PL_NONE)
			return pl_fail(err, PL_EDATA, "metadata without key or value");
		PL_CHECK(pl_trace_segment_add_meta(s, &m, err));
	}
	return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Rows of a column of the block, by its number, for later columns with the same rows. */
struct rows {
	uint32_t col, n; /* column of the batch */
};

struct events_in {
	const struct pl_trace_want *want;
	struct pl_cur *c;
	struct pl_batch *e;
	uint32_t n; /* events */
	struct rows *rows;
	uint32_t n_cols; /* read so far */
	uint64_t values;
};

static int get_list(struct pl_cur *c, struct pl_col *col, uint32_t m, uint32_t n,
		    struct pl_err *err)
{
	uint32_t prev = 0, bad = 0;

	PL_CHECK(pl_column_get_u32(c, col->row, m, err));
	for (uint32_t i = 0; i < m; i++) {
		bad |= col->row[i] < prev;
		prev = col->row[i];
	}
	if (bad || prev >= n)
		return pl_fail(err, PL_EDATA, "rows of a column descend or pass %u", n);
	return 0;
}

static int get_bits(struct pl_cur *c, struct pl_col *col, uint32_t m, uint32_t n,
		    struct pl_err *err)
{
	uint32_t size = (n + 7) / 8, k = 0;
	struct pl_cur part;

	PL_CHECK(pl_record_get_part(c, size, &part, err));
	for (uint32_t i = 0; i < size; i++) {
		for (unsigned bits = part.p[i]; bits; bits &= bits - 1) {
			uint32_t row = i * 8 + (uint32_t)__builtin_ctz(bits);

			if (k == m || row >= n)
				return pl_fail(err, PL_EDATA, "too many rows of a column");
			col->row[k++] = row;
		}
	}
	if (k != m)
		return pl_fail(err, PL_EDATA, "%u rows for %u values", k, m);
	return 0;
}

static int get_rows(struct events_in *in, struct pl_cur *c, struct pl_col *col, uint32_t m,
		    struct pl_err *err)
{
	uint8_t mode = pl_io_get_u8(c);
	uint64_t same;

	switch (mode) {
	case PL_ROWS_ALL:
		if (m != in->n)
			return pl_fail(err, PL_EDATA, "%u values for %u rows", m, in->n);
		for (uint32_t i = 0; i < m; i++)
			col->row[i] = i;
		return 0;
	case PL_ROWS_SAME:
		same = pl_io_get_varint(c);
		if (c->bad || same >= in->n_cols || in->rows[same].n != m)
			return pl_fail(err, PL_EDATA, "rows of a column that is not there");
		memcpy(col->row, in->e->col[in->rows[same].col].row, m * sizeof(*col->row));
		return 0;
	case PL_ROWS_LIST:
		return get_list(c, col, m, in->n, err);
	case PL_ROWS_BITS:
		return get_bits(c, col, m, in->n, err);
	default:
		return pl_fail(err, PL_EDATA, "unknown coding %u of rows", mode);
	}
}

static int string_fails(uint64_t id, size_t n, int code, struct pl_err *err)
{
	return pl_fail(err, code, "string %llu is used, %zu are defined", (unsigned long long)id,
		       n);
}

int pl_trace_check_col(const struct pl_col *c, size_t n_strings, int code, struct pl_err *err)
{
	bool text = c->type == PL_V_STR || c->type == PL_V_JSON;
	uint64_t max = 0;
	uint8_t scale = 0;

	if (c->key != PL_NONE && c->key >= n_strings)
		return string_fails(c->key, n_strings, code, err);
	for (uint32_t i = 0; i < c->n && (text || c->type == PL_V_BOOL); i++)
		max = (uint64_t)c->val[i] > max ? (uint64_t)c->val[i] : max;
	if (text && max >= n_strings)
		return string_fails(max, n_strings, code, err);
	if (c->type == PL_V_BOOL && max > 1)
		return pl_fail(err, code, "a truth value is neither 0 nor 1");
	for (uint32_t i = 0; i < c->n && c->type == PL_V_DEC; i++)
		scale = c->scale[i] > scale ? c->scale[i] : scale;
	if (scale > PL_TRACE_SCALE_MAX)
		return pl_fail(err, code, "a decimal of scale %u", scale);
	return 0;
}

static int get_values(struct events_in *in, struct pl_cur *c, struct pl_col *col, uint32_t m,
		      struct pl_err *err)
{
	col->n = m;
	if (col->type == PL_V_NULL) {
		memset(col->val, 0, m * sizeof(*col->val));
		return 0;
	}
	PL_CHECK(pl_column_get_i64(c, col->val, m, err));
	if (col->type == PL_V_DEC)
		PL_CHECK(pl_column_get_u8(c, col->scale, m, err));
	return pl_trace_check_col(col, in->want->n_strings, PL_EDATA, err);
}

/* An unwanted column: later columns may refer to its rows, but its values are not read. */
static int skip_col(struct events_in *in, struct pl_cur *part, struct pl_col *col, uint32_t index,
		    uint32_t m, struct pl_err *err)
{
	struct pl_cur c = *part;
	bool same = pl_io_get_u8(&c) == PL_ROWS_SAME;
	uint64_t which = same ? pl_io_get_varint(&c) : 0;

	if (same && !c.bad && which < in->n_cols && in->rows[which].n == m) {
		in->rows[in->n_cols++] = in->rows[which];
		return 0;
	}
	PL_CHECK(pl_trace_col_reserve(col, m, err));
	PL_CHECK(get_rows(in, part, col, m, err));
	in->rows[in->n_cols++] = (struct rows){ .col = index, .n = m };
	return 0;
}

static int get_col(struct events_in *in, struct pl_err *err)
{
	struct pl_cur part;
	struct pl_col *col;
	uint8_t role, type;
	uint32_t index, m;
	uint64_t many;
	pl_id key;

	PL_CHECK(pl_record_get_part(in->c, pl_io_get_u32(in->c), &part, err));
	role = pl_io_get_u8(&part);
	type = pl_io_get_u8(&part);
	PL_CHECK(get_id(&part, in->want->n_strings, &key, err));
	many = pl_io_get_varint(&part);
	if (part.bad)
		return pl_record_get_short(err);
	if (type >= PL_V_COUNT_)
		return pl_fail(err, PL_EDATA, "unknown type %u of a column", type);
	in->values += many > PL_TRACE_VALUES_MAX ? UINT32_MAX : many;
	if (!many || in->values > PL_TRACE_VALUES_MAX)
		return pl_fail(err, PL_EDATA, "a column of %llu values", (unsigned long long)many);
	m = (uint32_t)many;
	role = (uint8_t)pl_trace_role_settle(in->want->key, role, key, type);
	PL_CHECK(pl_trace_batch_col(in->e, role, type, key, &index, err));
	col = &in->e->col[index];
	if (col->n)
		return pl_fail(err, PL_EDATA, "a column comes twice");
	if (in->want->roles && (role >= PL_R_COUNT_ || !(in->want->roles & PL_ROLE_BIT(role))))
		return skip_col(in, &part, col, index, m, err);
	PL_CHECK(pl_trace_col_reserve(col, m, err));
	PL_CHECK(get_rows(in, &part, col, m, err));
	PL_CHECK(get_values(in, &part, col, m, err));
	in->rows[in->n_cols++] = (struct rows){ .col = index, .n = m };
	return 0;
}

static int get_cols(struct events_in *in, struct pl_err *err)
{
	uint64_t cols = pl_io_get_varint(in->c);
	int rc;

	/* A column takes more than eight bytes, so memory follows the input. */
	if (in->c->bad || cols > PL_TRACE_COLS_MAX || cols > (size_t)(in->c->end - in->c->p) / 8)
		return pl_fail(err, PL_EDATA, "impossible number of columns");
	if (!cols)
		return 0;
	rc = pl_alloc(&in->rows, cols, sizeof(*in->rows), err);
	for (uint64_t i = 0; i < cols && rc >= 0; i++)
		rc = get_col(in, err);
	pl_free(in->rows);
	return rc;
}

int pl_trace_check_fixed(const struct pl_batch *e, uint32_t n, uint32_t n_tracks, size_t n_strings,
			 int code, struct pl_err *err)
{
	uint32_t track = 0, name = 0;

	for (uint32_t i = 0; i < n; i++) {
		track = e->track[i] > track ? e->track[i] : track;
		name = e->name[i] > name ? e->name[i] : name;
	}
	if (track >= n_tracks)
		return pl_fail(err, code, "track %u is used, %u are defined", track, n_tracks);
	return name >= n_strings ? string_fails(name, n_strings, code, err) : 0;
}

static int get_fixed(struct events_in *in, struct pl_err *err)
{
	struct pl_batch *e = in->e;

	PL_CHECK(pl_column_get_u8(in->c, e->kind, in->n, err));
	PL_CHECK(pl_column_get_u32(in->c, e->track, in->n, err));
	PL_CHECK(pl_column_get_u32(in->c, e->name, in->n, err));
	PL_CHECK(pl_column_get_i64(in->c, e->ts, in->n, err));
	PL_CHECK(pl_column_get_i64(in->c, e->dur, in->n, err));
	return pl_trace_check_fixed(e, in->n, in->want->n_tracks, in->want->n_strings, PL_EDATA,
				    err);
}

int pl_trace_get_events(struct pl_cur *c, uint32_t count, const struct pl_trace_want *want,
			struct pl_batch *e, struct pl_err *err)
{
	struct events_in in = { .c = c, .want = want, .e = e, .n = count };

	if (!count || count > PL_BATCH_ROWS)
		return pl_fail(err, PL_EDATA, "a block of %u events", count);
	e->first = pl_io_get_varint(c);
	if (c->bad || e->first > (uint64_t)INT64_MAX - count)
		return pl_fail(err, PL_EDATA, "impossible number of the first event");
	PL_CHECK(get_fixed(&in, err));
	PL_CHECK(get_cols(&in, err));
	e->n = count;
	return 0;
}
