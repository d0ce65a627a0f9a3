/*
 * Protobuf wire format: https://protobuf.dev/programming-guides/encoding/. A field is a tag
 * (number << 3 | type) and a value: type 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
 */
#include "io/pb.h"
#include "io/internal.h"

static void put_raw(struct pl_writer *w, uint64_t v)
{
	w->b.n = (size_t)(pl_varint_put(w->b.p + w->b.n, v) - w->b.p);
}

/* The tag, and room for `more` bytes behind it. */
static bool tag(struct pl_writer *w, uint32_t field, unsigned type, size_t more)
{
	if (w->fail.code || pl_buf_need(&w->b, more + 10, &w->fail) < 0)
		return false;
	put_raw(w, (uint64_t)field << 3 | type);
	return true;
}

void pl_pb_varint(struct pl_writer *w, uint32_t field, uint64_t v)
{
	if (tag(w, field, 0, 10))
		put_raw(w, v);
}

void pl_pb_put(struct pl_writer *w, uint64_t v)
{
	if (!w->fail.code && pl_buf_need(&w->b, 10, &w->fail) >= 0)
		put_raw(w, v);
}

void pl_pb_fixed64(struct pl_writer *w, uint32_t field, uint64_t v)
{
	if (!tag(w, field, 1, 8))
		return;
	pl_le64_put(w->b.p + w->b.n, v);
	w->b.n += 8;
}

void pl_pb_float(struct pl_writer *w, uint32_t field, float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof(u));
	if (!tag(w, field, 5, 4))
		return;
	pl_le32_put(w->b.p + w->b.n, u);
	w->b.n += 4;
}

void pl_pb_double(struct pl_writer *w, uint32_t field, double v)
{
	uint64_t u;

	memcpy(&u, &v, sizeof(u));
	pl_pb_fixed64(w, field, u);
}

void pl_pb_bytes(struct pl_writer *w, uint32_t field, const void *p, size_t n)
{
	if (!tag(w, field, 2, n + 10))
		return;
	put_raw(w, n);
	if (n)
		memcpy(w->b.p + w->b.n, p, n);
	w->b.n += n;
}

size_t pl_pb_open(struct pl_writer *w, uint32_t field)
{
	if (tag(w, field, 2, 4))
		w->b.n += 4;
	return w->b.n;
}

void pl_pb_close(struct pl_writer *w, size_t at)
{
	size_t n = w->b.n - at;

	if (w->fail.code)
		return;
	if (n >= PL_PB_NESTED_MAX) {
		pl_fail(&w->fail, PL_ELIMIT, "a message of %zu bytes is longer than %zu", n,
			PL_PB_NESTED_MAX);
		return;
	}
	for (unsigned i = 0; i < 4; i++)
		w->b.p[at - 4 + i] = (uint8_t)((n >> 7 * i & 0x7f) | (i < 3 ? 0x80 : 0));
}

/* ---- reading ------------------------------------------------------------------------------- */

bool pl_pb_take_varint(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	const uint8_t *q = *p;

	*v = 0;
	for (unsigned shift = 0; q < end && shift < 64; shift += 7) {
		*v |= (uint64_t)(*q & 0x7f) << shift;
		if (!(*q++ & 0x80)) {
			*p = q;
			return true;
		}
	}
	return false;
}
