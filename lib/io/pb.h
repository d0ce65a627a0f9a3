/*
 * pb.h - the protobuf wire format, written: fields appended to a writer, nested messages in place.
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
/* The value for pl_pb_close(). Close the innermost message first; do not flush before. */
size_t pl_pb_open(struct pl_writer *w, uint32_t field);
void pl_pb_close(struct pl_writer *w, size_t at); /* too long a message is PL_ELIMIT */

#endif
