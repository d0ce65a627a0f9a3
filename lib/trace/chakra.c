/* Execution traces of Chakra: how they are recognised, and what an attribute says. */
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

static int64_t value_of(const struct pl_pb_field *f)
{
	return f->number == PL_CK_A_SINT32 || f->number == PL_CK_A_SINT64  ? pl_unzigzag(f->v)
	       : f->number == PL_CK_A_INT32 || f->number == PL_CK_A_UINT32 ? (int64_t)(int32_t)f->v
									   : (int64_t)f->v;
}

struct pl_chakra_attr pl_trace_chakra_attr(const struct pl_pb_field *field)
{
	struct pl_pb_in m = pl_pb_message(field->p, field->n);
	struct pl_chakra_attr a = { .v = -1 };
	struct pl_pb_field f;

	while (pl_pb_next(&m, &f))
		if (f.number == PL_CK_A_NAME && f.bytes)
			a.name = f;
		else if (f.number == PL_CK_A_STRING && f.bytes)
			a.text = f;
		else if (!f.bytes)
			a.v = value_of(&f);
	return a;
}
