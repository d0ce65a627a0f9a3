/*
 * pb.h - the protobuf wire format. Written: fields appended to a writer, nested messages in place.
 * Read: the fields of a message in memory, one after the other.
 *
 * An open nested message has four bytes for its length. When it is closed, a varint padded to that
 * width fills them (which is valid), so nothing is copied or measured before.
 */
#ifndef PL_PB_H
#define PL_PB_H

#include "core/bytes.h"
#include "io/write.h"

#define PL_PB_NESTED_MAX ((size_t)1 << 28) /* bytes of a nested message */

void pl_pb_varint(struct pl_writer *w, uint32_t field, uint64_t v);
void pl_pb_fixed64(struct pl_writer *w, uint32_t field, uint64_t v);
void pl_pb_float(struct pl_writer *w, uint32_t field, float v);
void pl_pb_double(struct pl_writer *w, uint32_t field, double v);
void pl_pb_bytes(struct pl_writer *w, uint32_t field, const void *p, size_t n);
void pl_pb_put(struct pl_writer *w, uint64_t v); /* a varint of a packed field */
/* The value for pl_pb_close(). Close the innermost message first; do not flush before. */
size_t pl_pb_open(struct pl_writer *w, uint32_t field);
void pl_pb_close(struct pl_writer *w, size_t at); /* too long a message is PL_ELIMIT */

/* ---- reading ------------------------------------------------------------------------------- */

struct pl_pb_in { /* a message, or the rest of it */
	const uint8_t *p, *end;
	bool bad; /* damaged at p */
};
struct pl_pb_field {
	uint32_t number;
	bool bytes;	  /* p and n, else v */
	uint64_t v;	  /* a varint as it is; the bits of a fixed number */
	const uint8_t *p; /* of a nested message or text; in the memory of the message */
	size_t n;
};
/* A varint at *p before `end`: moves *p behind it; false: it is cut, or longer than 64 bits. */
bool pl_pb_take_varint(const uint8_t **p, const uint8_t *end, uint64_t *v);
/* The same where most numbers have one byte. */
static inline bool pl_pb_take(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	if (PL_UNLIKELY(*p >= end || **p & 0x80))
		return pl_pb_take_varint(p, end, v);
	*v = *(*p)++;
	return true;
}
/* The next field; false at the end and at damage. In this header, because a loop over the fields of
 * a known message then keeps them in registers. */
static inline bool pl_pb_next(struct pl_pb_in *m, struct pl_pb_field *f)
{
	const uint8_t *p = m->p;
	uint64_t key, n;
	unsigned type;

	if (p == m->end || m->bad)
		return false;
	m->bad = true; /* until the field is whole */
	if (!pl_pb_take(&p, m->end, &key) || key >> 32 || !(key >> 3))
		return false;
	f->number = (uint32_t)(key >> 3);
	type = key & 7;
	f->bytes = type == 2;
	if ((type == 0 && !pl_pb_take(&p, m->end, &f->v)) || type > 5 || type == 3 || type == 4)
		return false;
	if (type == 2) {
		if (!pl_pb_take(&p, m->end, &n) || n > (uint64_t)(m->end - p))
			return false;
		f->p = p;
		f->n = (size_t)n;
		p += n;
	} else if (type != 0) {
		if (m->end - p < (type == 1 ? 8 : 4))
			return false;
		f->v = type == 1 ? pl_le64_get(p) : pl_le32_get(p);
		p += type == 1 ? 8 : 4;
	}
	m->p = p;
	m->bad = false;
	return true;
}
static inline struct pl_pb_in pl_pb_message(const uint8_t *p, size_t n)
{
	return (struct pl_pb_in){ .p = p, .end = n ? p + n : p };
}

#endif
