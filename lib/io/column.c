/*
 * Payload encoding: scalars, strings, and columns in the six codings of paceline-container(5),
 * read; colput.c writes columns.
 *
 * Varints are taken apart eight bytes at a time without a branch on their length: the number of
 * bytes comes from counting zero bits, and groups of 8 bits become groups of 7 by three
 * shift-and-mask steps. Eight values of one byte each are read by one test. All columns pass
 * through as int64, narrow ones in pieces, so there is one decoder. Cost on a 2.5 GHz core: 0.5 ns
 * (one byte) to 3 ns (mixed lengths) a value.
 */
#include "io/internal.h"

/* ---- scalars ------------------------------------------------------------------------------- */

/* NULL when it does not end before `end` or does not fit 64 bits. */
static const uint8_t *get_varint(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
	uint64_t x = 0;

	for (unsigned shift = 0; p < end && shift < 70; shift += 7) {
		uint8_t b = *p++;

		if (shift == 63 && b > 1)
			return NULL;
		x |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*v = x;
			return p;
		}
	}
	return NULL;
}

static void put(struct pl_buf *b, const void *p, size_t n)
{
	uint8_t *q = pl_io_room(b, n);

	if (q && n)
		memcpy(q, p, n);
	b->n += q ? n : 0;
}

void pl_io_put_u8(struct pl_buf *b, uint8_t v)
{
	put(b, &v, 1);
}

void pl_io_put_u32(struct pl_buf *b, uint32_t v)
{
	uint8_t p[4];

	pl_le32_put(p, v);
	put(b, p, sizeof(p));
}

void pl_io_put_u64(struct pl_buf *b, uint64_t v)
{
	uint8_t p[8];

	pl_le64_put(p, v);
	put(b, p, sizeof(p));
}

void pl_io_put_f32(struct pl_buf *b, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pl_io_put_u32(b, bits);
}

void pl_io_put_f64(struct pl_buf *b, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pl_io_put_u64(b, bits);
}

void pl_io_put_varint(struct pl_buf *b, uint64_t v)
{
	uint8_t *q = pl_io_room(b, PL_VARINT_MAX);

	if (q)
		b->n = (size_t)(pl_varint_put(q, v) - b->p);
}

void pl_io_put_svarint(struct pl_buf *b, int64_t v)
{
	pl_io_put_varint(b, pl_zigzag(v));
}

void pl_io_put_str(struct pl_buf *b, const char *s, size_t n)
{
	pl_io_put_varint(b, n);
	put(b, s, n);
}

void pl_io_put_zeros(struct pl_buf *b, size_t n)
{
	uint8_t *q = b->n < n ? pl_io_room(b, n - b->n) : NULL;

	if (!q)
		return;
	memset(q, 0, n - b->n);
	b->n = n;
}

/* n bytes of the cursor, or NULL and bad. */
static const uint8_t *take(struct pl_cur *c, size_t n)
{
	const uint8_t *p = c->p;

	if (c->bad || (size_t)(c->end - p) < n) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	return p;
}

uint8_t pl_io_get_u8(struct pl_cur *c)
{
	const uint8_t *p = take(c, 1);

	return p ? *p : 0;
}

uint32_t pl_io_get_u32(struct pl_cur *c)
{
	const uint8_t *p = take(c, 4);

	return p ? pl_le32_get(p) : 0;
}

uint64_t pl_io_get_u64(struct pl_cur *c)
{
	const uint8_t *p = take(c, 8);

	return p ? pl_le64_get(p) : 0;
}

float pl_io_get_f32(struct pl_cur *c)
{
	uint32_t bits = pl_io_get_u32(c);
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

double pl_io_get_f64(struct pl_cur *c)
{
	uint64_t bits = pl_io_get_u64(c);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

uint64_t pl_io_get_varint(struct pl_cur *c)
{
	uint64_t v = 0;
	const uint8_t *p;

	if (PL_LIKELY(!c->bad && c->p < c->end && *c->p < 0x80))
		return *c->p++;
	p = c->bad ? NULL : get_varint(c->p, c->end, &v);
	if (!p) {
		c->bad = true;
		return 0;
	}
	c->p = p;
	return v;
}

int64_t pl_io_get_svarint(struct pl_cur *c)
{
	return pl_unzigzag(pl_io_get_varint(c));
}

const char *pl_io_get_str(struct pl_cur *c, size_t *n)
{
	uint64_t len = pl_io_get_varint(c);
	const uint8_t *p = len <= SIZE_MAX ? take(c, (size_t)len) : NULL;

	*n = p ? (size_t)len : 0;
	return p ? (const char *)p : "";
}

/* ---- reading a column ---------------------------------------------------------------------- */

struct dec {
	const uint8_t *p, *end;
	size_t left; /* rows not given yet */
	unsigned coding, width;
	uint64_t prev, run, run_length;
	const char *what; /* what is wrong, static text */
};

static int dec_fail(struct dec *d, const char *what)
{
	d->what = what;
	return PL_EDATA;
}

static int dec_begin(struct dec *d, struct pl_cur *c, size_t n)
{
	*d = (struct dec){ .p = c->p, .end = c->end, .left = n };
	if (c->bad || d->p >= d->end)
		return dec_fail(d, "column cut short");
	d->coding = *d->p++;
	if (d->coding > PL_C_DELTA_RUNS)
		return dec_fail(d, "unknown coding of a column");
	if (d->coding == PL_C_EQUAL) {
		d->p = get_varint(d->p, d->end, &d->run);
		if (!d->p)
			return dec_fail(d, "column cut short");
		d->run_length = n;
		d->coding = PL_C_RUNS;
	} else if (d->coding == PL_C_FIXED) {
		unsigned w;

		if (d->p >= d->end)
			return dec_fail(d, "column cut short");
		d->width = *d->p++;
		w = d->width & ~PL_COL_SIGNED;
		if (w != 1 && w != 2 && w != 4 && d->width != 8)
			return dec_fail(d, "bad width of a column");
		if ((size_t)(d->end - d->p) / w < n)
			return dec_fail(d, "column cut short");
	}
	return 0;
}

#define TOPS 0x8080808080808080u

/* The varint in the low bytes of x, of which `stop` (not 0) marks the last bytes. */
static inline uint64_t unpack7(uint64_t x, uint64_t stop, unsigned *len)
{
	*len = ((unsigned)__builtin_ctzll(stop) + 1) / 8;
	x &= stop ^ (stop - 1);
	x &= ~TOPS;
	x = (x & 0x007f007f007f007fu) | (x & 0x7f007f007f007f00u) >> 1;
	x = (x & 0x00003fff00003fffu) | (x & 0x3fff00003fff0000u) >> 2;
	return (x & 0x000000000fffffffu) | (x & 0x0fffffff00000000u) >> 4;
}

static inline int get_varints(struct dec *d, int64_t *v, size_t n, bool delta)
{
	const uint8_t *p = d->p, *end = d->end;
	uint64_t prev = d->prev, mask = delta ? ~(uint64_t)0 : 0;
	size_t i = 0;

	while (i < n) {
		uint64_t x = 0, stop = 0, u = 0;
		unsigned len;

		if (PL_LIKELY(i + 8 <= n && end - p >= 8)) {
			x = pl_le64_get(p);
			stop = ~x & TOPS;
		}
		if (stop == TOPS) {
			for (unsigned k = 0; k < 8; k++) {
				prev = (prev & mask) + (uint64_t)pl_unzigzag(p[k]);
				v[i + k] = (int64_t)prev;
			}
			p += 8;
			i += 8;
			continue;
		}
		if (PL_LIKELY(stop)) {
			u = unpack7(x, stop, &len);
			p += len;
		} else { /* 9 or 10 bytes, or the last values */
			p = get_varint(p, end, &u);
			if (!p)
				return dec_fail(d, "column cut short or bad varint");
		}
		prev = (prev & mask) + (uint64_t)pl_unzigzag(u);
		v[i++] = (int64_t)prev;
	}
	d->p = p;
	d->prev = prev;
	return 0;
}

static void get_fixed(struct dec *d, int64_t *v, size_t n)
{
	const uint8_t *p = d->p;

#define FIXED(bytes, value)                                                                        \
	case bytes:                                                                                \
		for (size_t i = 0; i < n; i++)                                                     \
			v[i] = (int64_t)(value);                                                   \
		break;
	switch (d->width) {
		FIXED(1, p[i])
		FIXED(2, pl_le16_get(p + 2 * i))
		FIXED(4, pl_le32_get(p + 4 * i))
		FIXED(8, pl_le64_get(p + 8 * i))
		FIXED(1 | PL_COL_SIGNED, (int8_t)p[i])
		FIXED(2 | PL_COL_SIGNED, (int16_t)pl_le16_get(p + 2 * i))
		FIXED(4 | PL_COL_SIGNED, (int32_t)pl_le32_get(p + 4 * i))
	}
#undef FIXED
	d->p = p + n * (d->width & ~PL_COL_SIGNED);
}

static int get_runs(struct dec *d, int64_t *v, size_t n)
{
	uint64_t step = d->coding == PL_C_DELTA_RUNS;

	for (size_t i = 0, k; i < n; i += k) {
		uint64_t x, add;

		if (!d->run_length) {
			d->p = get_varint(d->p, d->end, &d->run);
			d->p = d->p ? get_varint(d->p, d->end, &d->run_length) : NULL;
			if (!d->p)
				return dec_fail(d, "column cut short or bad varint");
			if (!d->run_length || d->run_length > d->left - i)
				return dec_fail(d, "bad run in a column");
		}
		k = d->run_length < n - i ? (size_t)d->run_length : n - i;
		x = (uint64_t)pl_unzigzag(d->run);
		add = step ? x : 0;
		x += step ? d->prev : 0;
		for (size_t j = 0; j < k; j++, x += add)
			v[i + j] = (int64_t)x;
		d->prev = x - add;
		d->run_length -= k;
	}
	return 0;
}

static int dec_next(struct dec *d, int64_t *v, size_t n)
{
	int rc = 0;

	if (d->coding == PL_C_VALUES)
		rc = get_varints(d, v, n, false);
	else if (d->coding == PL_C_DELTAS)
		rc = get_varints(d, v, n, true);
	else if (d->coding == PL_C_FIXED)
		get_fixed(d, v, n);
	else
		rc = get_runs(d, v, n);
	d->left -= n;
	return rc;
}

static int dec_end(struct dec *d, struct pl_cur *c, struct pl_err *err)
{
	if (d->what) {
		c->bad = true;
		return pl_fail(err, PL_EDATA, "%s", d->what);
	}
	c->p = d->p;
	return 0;
}

int pl_column_get_i64(struct pl_cur *c, int64_t *v, size_t n, struct pl_err *err)
{
	struct dec d;

	if (!n)
		return 0;
	if (!dec_begin(&d, c, n))
		dec_next(&d, v, n);
	return dec_end(&d, c, err);
}

/* The next piece of a narrow column: at most PL_COL_PIECE values below 2^bits. Returns how many. */
static size_t get_piece(struct dec *d, int64_t *wide, unsigned bits)
{
	size_t n = pl_min_size(PL_COL_PIECE, d->left);
	uint64_t high = 0;

	if (d->what || dec_next(d, wide, n) < 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		high |= (uint64_t)wide[i];
	if (high >> bits)
		dec_fail(d, "value out of range in a column");
	return n;
}

int pl_column_get_u32(struct pl_cur *c, uint32_t *v, size_t n, struct pl_err *err)
{
	int64_t wide[PL_COL_PIECE];
	struct dec d;

	if (!n)
		return 0;
	dec_begin(&d, c, n);
	for (size_t k; (k = get_piece(&d, wide, 32)); v += k)
		for (size_t i = 0; i < k; i++)
			v[i] = (uint32_t)wide[i];
	return dec_end(&d, c, err);
}

int pl_column_get_u8(struct pl_cur *c, uint8_t *v, size_t n, struct pl_err *err)
{
	int64_t wide[PL_COL_PIECE];
	struct dec d;

	if (!n)
		return 0;
	if (!dec_begin(&d, c, n) && d.coding == PL_C_FIXED && d.width == 1) {
		memcpy(v, d.p, n);
		d.p += n;
		return dec_end(&d, c, err);
	}
	for (size_t k; (k = get_piece(&d, wide, 8)); v += k)
		for (size_t i = 0; i < k; i++)
			v[i] = (uint8_t)wide[i];
	return dec_end(&d, c, err);
}
