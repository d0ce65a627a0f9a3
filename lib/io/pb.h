/*
 * pb.h - the protobuf wire format, written: fields appended to a writer, nested messages in place.
 *
 * A nested message gets four bytes for its length when it is opened, filled in when it is closed
 * with a varint padded to that width (valid on the wire), so nothing is copied or measured
 * beforehand.
 */
#ifndef PL_PB_H
#define PL_PB_H

#include "io/write.h"

#define PL_PB_NESTED_MAX ((size_t)1 << 28) /* bytes of a nested message */

void pl_pb_varint(struct pl_writer *w, uint32_t field, uint64_t v);
void pl_pb_fixed64(struct pl_writer *w, uint32_t field, uint64_t v);
void pl_pb_double(struct pl_writer *w, uint32_t field, double v);
void pl_pb_bytes(struct pl_writer *w, uint32_t field, const void *p, size_t n);
/* What pl_pb_close() needs. Innermost first; the writer must not be flushed in between. */
size_t pl_pb_open(struct pl_writer *w, uint32_t field);
void pl_pb_close(struct pl_writer *w, size_t at); /* a message that is too long: PL_ELIMIT */

#endif
