/*
 * Protobuf wire format: https://protobuf.dev/programming-guides/encoding/. A field is a tag
 * (number << 3 | type) and a value: type 0 varint, 1 eight bytes, 2 length and bytes.
 */
#include <string.h>

#include "io/pb.h"

static size_t put_raw(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		p[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (uint8_t)v;
	return n;
}

static int tag(struct pl_buf *b, uint32_t field, unsigned type, size_t more, struct pl_err *err)
{
	int rc = pl_buf_need(b, more + 10, err);

	if (rc == 0)
		b->n += put_raw(b->p + b->n, (uint64_t)field << 3 | type);
	return rc;
}

int pl_pb_varint(struct pl_buf *b, uint32_t field, uint64_t v, struct pl_err *err)
{
	int rc = tag(b, field, 0, 10, err);

	if (rc == 0)
		b->n += put_raw(b->p + b->n, v);
	return rc;
}

int pl_pb_fixed64(struct pl_buf *b, uint32_t field, uint64_t v, struct pl_err *err)
{
	int rc = tag(b, field, 1, 8, err);

	for (unsigned i = 0; rc == 0 && i < 8; i++)
		b->p[b->n++] = (uint8_t)(v >> 8 * i);
	return rc;
}

int pl_pb_double(struct pl_buf *b, uint32_t field, double v, struct pl_err *err)
{
	uint64_t u;

	memcpy(&u, &v, sizeof(u));
	return pl_pb_fixed64(b, field, u, err);
}

int pl_pb_bytes(struct pl_buf *b, uint32_t field, const void *p, size_t n, struct pl_err *err)
{
	int rc = tag(b, field, 2, n + 10, err);

	if (rc < 0)
		return rc;
	b->n += put_raw(b->p + b->n, n);
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

int pl_pb_open(struct pl_buf *b, uint32_t field, size_t *at, struct pl_err *err)
{
	int rc = tag(b, field, 2, 4, err);

	if (rc < 0)
		return rc;
	*at = b->n;
	b->n += 4;
	return 0;
}

int pl_pb_close(struct pl_buf *b, size_t at, struct pl_err *err)
{
	size_t n = b->n - at - 4;

	if (n >= PL_PB_NESTED_MAX)
		return pl_fail(err, PL_ELIMIT, "a message of %zu bytes is longer than %zu", n,
			       PL_PB_NESTED_MAX);
	for (unsigned i = 0; i < 4; i++)
		b->p[at + i] = (uint8_t)((n >> 7 * i & 0x7f) | (i < 3 ? 0x80 : 0));
	return 0;
}
