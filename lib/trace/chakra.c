/* Recognises execution traces of Chakra. */
#include "trace/chakra.h"
#include "io/pb.h"
#include "trace/trace.h"

/* Two messages after their lengths, of which the second has what a node has. */
bool pl_trace_is_chakra(const uint8_t *p, size_t n)
{
	const uint8_t *end = p + n;
	bool id = false, name = false;
	struct pl_pb_field f;
	struct pl_pb_in m;
	uint64_t size;

	if (!n || !pl_pb_take_varint(&p, end, &size) || size > (uint64_t)(end - p))
		return false;
	m = pl_pb_message(p, (size_t)size);
	while (pl_pb_next(&m, &f))
		if (!f.bytes || f.number > PL_CK_META_ATTR)
			return false;
	p += size;
	if (m.bad || !pl_pb_take_varint(&p, end, &size) || !size)
		return false;
	m = pl_pb_message(p, (size_t)pl_min_i64((int64_t)pl_min_size(size, INT64_MAX), end - p));
	while (pl_pb_next(&m, &f)) {
		id |= f.number == PL_CK_ID && !f.bytes;
		name |= f.number == PL_CK_NAME && f.bytes;
		if (f.number > PL_CK_ATTR + 1)
			return false;
	}
	return id && name;
}
