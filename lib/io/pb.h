/*
 * pb.h - the protobuf wire format. Written: fields appended to a writer, nested messages in place.
 * Read: the fields of a message in memory, one after the other.
 *
 * An open nested message has four bytes for its length. When it is closed, a varint padded to that
 * width fills them (which is valid), so nothing is copied or measured before.
 */
#ifndef PL_PB_H
#define PL_PB_H

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
/* The next field; false at the end and at damage. */
bool pl_pb_next(struct pl_pb_in *m, struct pl_pb_field *f);
/* A varint at *p before `end`: moves *p behind it; false: it is cut, or longer than 64 bits. */
bool pl_pb_take_varint(const uint8_t **p, const uint8_t *end, uint64_t *v);
static inline struct pl_pb_in pl_pb_message(const uint8_t *p, size_t n)
{
	return (struct pl_pb_in){ .p = p, .end = n ? p + n : p };
}

#endif
