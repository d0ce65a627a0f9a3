/*
 * Blocks of events of trace(5): writing.
 *
 * The lists of rows decide the size: the arguments of one type of event share their rows. So a list
 * is compared with the few distinct lists before it (first, middle and last row first, then memcmp)
 * and then stored as the number of the equal one. A new list is a bitmap if that is shorter than
 * one byte for each row. 64 sampled pairs decide whether a column of values is stored as
 * differences. One pass over every column; only the payload allocates memory.
 */
#include "core/bytes.h"
#include "trace/internal.h"

#define SAMPLES 64
#define RECENT	24 /* distinct lists of rows that are kept for comparison */

/* Length of a varint. */
static unsigned cost(uint64_t v)
{
	return v < 128 ? 1 : (70u - (unsigned)__builtin_clzll(v)) / 7;
}

static int64_t diff(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Are differences shorter? The coder of columns finds runs of values or of differences. */
static bool delta_i64(const int64_t *v, size_t n)
{
	size_t step = n / SAMPLES + 1;
	unsigned plain = 0, delta = 0;

	for (size_t i = 1; i < n; i += step) {
		plain += cost(pl_zigzag(v[i]));
		delta += cost(pl_zigzag(diff(v[i], v[i - 1])));
	}
	return delta < plain;
}

static bool delta_u32(const uint32_t *v, size_t n)
{
	size_t step = n / SAMPLES + 1;
	unsigned plain = 0, delta = 0;

	for (size_t i = 1; i < n; i += step) {
		plain += cost((uint64_t)v[i] << 1);
		delta += cost(pl_zigzag((int64_t)v[i] - v[i - 1]));
	}
	return delta < plain;
}

/* Lists of rows in this block that a later column may refer to. */
struct recent {
	const struct pl_col *col[RECENT];
	uint32_t number[RECENT];
	uint32_t n; /* added so far; the newest RECENT are kept */
};

static bool is_all(const uint32_t *row, uint32_t m, uint32_t n)
{
	uint32_t bad = 0;

	if (m != n || row[0] != 0 || row[m - 1] != n - 1)
		return false;
	for (uint32_t i = 0; i < n; i++)
		bad |= row[i] ^ i;
	return !bad;
}

static bool ascends(const uint32_t *row, uint32_t m)
{
	uint32_t bad = 0;

	for (uint32_t i = 1; i < m; i++)
		bad |= row[i] < row[i - 1];
	return !bad;
}

static bool find_same(const struct recent *r, const struct pl_col *c, uint32_t *number)
{
	uint32_t m = c->n;

	for (uint32_t i = 0; i < RECENT && i < r->n; i++) {
		uint32_t k = (r->n - 1 - i) % RECENT;
		const uint32_t *a = r->col[k]->row, *b = c->row;

		if (r->col[k]->n != m || a[0] != b[0] || a[m - 1] != b[m - 1] ||
		    a[m / 2] != b[m / 2] || memcmp(a, b, m * sizeof(*a)) != 0)
			continue;
		*number = r->number[k];
		return true;
	}
	return false;
}

/* False, and nothing is written, if a row has two values. */
static bool try_bits(struct pl_buf *b, const uint32_t *row, uint32_t m, uint32_t n)
{
	uint8_t *bits = b->p + b->n;
	size_t size = ((size_t)n + 7) / 8;
	uint32_t twice = 0;

	memset(bits, 0, size);
	for (uint32_t i = 0; i < m; i++) {
		uint8_t bit = (uint8_t)(1u << (row[i] & 7));

		twice |= bits[row[i] >> 3] & bit;
		bits[row[i] >> 3] |= bit;
	}
	if (!twice)
		b->n += size;
	return !twice;
}

static int put_rows(struct pl_buf *b, const struct pl_col *c, uint32_t number, uint32_t n,
		    struct recent *recent, struct pl_err *err)
{
	uint32_t same;

	if (b->failed)
		return 0;
	if (is_all(c->row, c->n, n)) {
		pl_io_put_u8(b, PL_ROWS_ALL);
		return 0;
	}
	if (find_same(recent, c, &same)) {
		pl_io_put_u8(b, PL_ROWS_SAME);
		pl_io_put_varint(b, same);
		return 0;
	}
	if (!ascends(c->row, c->n) || c->row[c->n - 1] >= n)
		return pl_fail(err, PL_EINTERNAL, "rows of a column descend or pass %u", n);
	recent->col[recent->n % RECENT] = c;
	recent->number[recent->n++ % RECENT] = number;
	if (c->n >= n / 8) {
		PL_CHECK(pl_buf_need(b, (size_t)n / 8 + 2, err));
		pl_io_put_u8(b, PL_ROWS_BITS);
		if (try_bits(b, c->row, c->n, n))
			return 0;
		b->n--;
	}
	pl_io_put_u8(b, PL_ROWS_LIST);
	pl_column_put_u32(b, c->row, c->n, true);
	return 0;
}

static int put_col(struct pl_buf *b, const struct pl_col *c, uint32_t number, uint32_t n,
		   struct recent *recent, struct pl_err *err)
{
	size_t at = b->n;

	pl_io_put_u32(b, 0);
	pl_io_put_u8(b, c->role);
	pl_io_put_u8(b, c->type);
	pl_io_put_varint(b, c->key == PL_NONE ? 0 : (uint64_t)c->key + 1);
	pl_io_put_varint(b, c->n);
	PL_CHECK(put_rows(b, c, number, n, recent, err));
	if (c->type != PL_V_NULL)
		pl_column_put_i64(b, c->val, c->n, delta_i64(c->val, c->n));
	if (c->type == PL_V_DEC)
		pl_column_put_u8(b, c->scale, c->n);
	if (!b->failed)
		pl_le32_put(b->p + at, (uint32_t)(b->n - at - 4));
	return 0;
}

bool pl_trace_too_big(const struct pl_batch *e)
{
	uint64_t values = 0;
	uint32_t cols = 0;

	for (uint32_t i = 0; i < e->n_cols; i++) {
		values += e->col[i].n;
		cols += e->col[i].n > 0;
	}
	return e->n > PL_BATCH_ROWS || cols > PL_TRACE_COLS_MAX || values > PL_TRACE_VALUES_MAX;
}

int pl_trace_put_events(struct pl_buf *b, const struct pl_segment *s, const struct pl_batch *e,
			uint64_t first, struct pl_err *err)
{
	struct recent recent = { .n = 0 };
	uint32_t cols = 0, number = 0;

	PL_CHECK(pl_trace_check_fixed(e, e->n, s->n_tracks, s->str.n, PL_EINTERNAL, err));
	pl_io_put_varint(b, first);
	pl_column_put_u8(b, e->kind, e->n);
	pl_column_put_u32(b, e->track, e->n, delta_u32(e->track, e->n));
	pl_column_put_u32(b, e->name, e->n, delta_u32(e->name, e->n));
	pl_column_put_i64(b, e->ts, e->n, delta_i64(e->ts, e->n));
	pl_column_put_i64(b, e->dur, e->n, delta_i64(e->dur, e->n));
	for (uint32_t i = 0; i < e->n_cols; i++)
		cols += e->col[i].n > 0;
	pl_io_put_varint(b, cols);
	for (uint32_t i = 0; i < e->n_cols; i++) {
		if (!e->col[i].n)
			continue;
		PL_CHECK(pl_trace_check_col(&e->col[i], s->str.n, PL_EINTERNAL, err));
		PL_CHECK(put_col(b, &e->col[i], number++, e->n, &recent, err));
	}
	return 0;
}
