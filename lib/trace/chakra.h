/* chakra.h - the numbers of Chakra's execution traces, et_def.proto (package ChakraProtoMsg). */
#ifndef PL_TRACE_CHAKRA_H
#define PL_TRACE_CHAKRA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/pb.h"

/* A file is a list of messages, each after its length as a varint: first a GlobalMetadata. */
enum { PL_CK_META_VERSION = 1, PL_CK_META_ATTR = 2 };
enum {
	PL_CK_ID = 1,
	PL_CK_NAME,
	PL_CK_TYPE,
	PL_CK_CTRL_DEPS,
	PL_CK_DATA_DEPS,
	PL_CK_START_US,
	PL_CK_DUR_US,
	PL_CK_INPUTS,
	PL_CK_OUTPUTS,
	PL_CK_ATTR,
};
enum { PL_CK_IO_VALUES = 1, PL_CK_IO_SHAPES, PL_CK_IO_TYPES };
/* An attribute: its name, and one value in the field of its type. */
enum {
	PL_CK_A_NAME = 1,
	PL_CK_A_INT32 = 7,
	PL_CK_A_INT64 = 9,
	PL_CK_A_UINT32 = 11,
	PL_CK_A_UINT64 = 13,
	PL_CK_A_SINT32 = 15,
	PL_CK_A_SINT64 = 17,
	PL_CK_A_BOOL = 27,
	PL_CK_A_STRING = 29,
};
enum {
	PL_CK_INVALID,
	PL_CK_METADATA,
	PL_CK_MEM_LOAD,
	PL_CK_MEM_STORE,
	PL_CK_COMP,
	PL_CK_SEND,
	PL_CK_RECV,
	PL_CK_COLL,
};

/* An attribute that was read; the texts lie in the message. v: a whole number, -1: none. */
struct pl_chakra_attr {
	struct pl_pb_field name, text;
	int64_t v;
};
struct pl_chakra_attr pl_trace_chakra_attr(const struct pl_pb_field *attribute);

/* Do the first bytes of a file look so? */
bool pl_trace_is_chakra(const uint8_t *p, size_t n);

#endif
