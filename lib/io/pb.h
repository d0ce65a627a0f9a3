/*
 * pb.h - the protobuf wire format, written: fields appended to a buffer, nested messages in place.
 *
 * A nested message gets four bytes for its length when it is opened, filled in when it is closed
 * with a varint padded to that width (valid on the wire), so nothing is copied or measured
 * beforehand.
 */
#ifndef PL_PB_H
#define PL_PB_H

#include "core/core.h"

#define PL_PB_NESTED_MAX ((size_t)1 << 28) /* bytes of a nested message */

int pl_pb_varint(struct pl_buf *b, uint32_t field, uint64_t v, struct pl_err *err) PL_MUST;
int pl_pb_fixed64(struct pl_buf *b, uint32_t field, uint64_t v, struct pl_err *err) PL_MUST;
int pl_pb_double(struct pl_buf *b, uint32_t field, double v, struct pl_err *err) PL_MUST;
int pl_pb_bytes(struct pl_buf *b, uint32_t field, const void *p, size_t n,
		struct pl_err *err) PL_MUST;
/* *at: what pl_pb_close() needs. Innermost first. */
int pl_pb_open(struct pl_buf *b, uint32_t field, size_t *at, struct pl_err *err) PL_MUST;
int pl_pb_close(struct pl_buf *b, size_t at, struct pl_err *err) PL_MUST; /* PL_ELIMIT: too long */

#endif
