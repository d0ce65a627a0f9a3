/*
 * IDX: two zero bytes, a type, the number of dimensions, each as 32 bits big-endian, the elements.
 * As described with the MNIST files (LeCun, Cortes, Burges). Linear.
 */
#include "data/dtype.h"

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int pl_idx_read(struct pl_in *in, struct pl_array *a, struct pl_err *err)
{
	const char *name = pl_in_name(in);
	const uint8_t *head;
	int64_t got, want;
	int type;

	memset(a, 0, sizeof(*a));
	got = pl_in_peek(in, 4, &head, err);
	if (got < 0)
		return (int)got;
	if (got < 4 || head[0] || head[1])
		return pl_fail(err, PL_EDATA,
			       "%s: byte 0: this is no IDX file: it begins with two zero bytes, a "
			       "type and the number of dimensions",
			       name);
	type = pl_dtype_find(PL_DT_IDX, (const char *)head + 2, 1);
	if (type < 0)
		return pl_fail(err, PL_EDATA,
			       "%s: byte 2: there is no IDX type 0x%02x; there are 08, 09, 0b, 0c, "
			       "0d and 0e",
			       name, head[2]);
	if (head[3] < 1 || head[3] > PL_LEN(a->dim))
		return pl_fail(err, PL_EDATA, "%s: byte 3: %u dimensions; 1 to %zu are read", name,
			       head[3], PL_LEN(a->dim));
	a->dtype = (uint8_t)type;
	a->n_dims = head[3];
	want = 4 + 4 * a->n_dims;
	got = pl_in_peek(in, (size_t)want, &head, err);
	if (got < 0)
		return (int)got;
	if (got < want)
		return pl_fail(err, PL_EDATA, "%s: byte %lld: the input ends inside the header",
			       name, (long long)got);
	for (int i = 0; i < a->n_dims; i++)
		a->dim[i] = be32(head + 4 + 4 * i);
	pl_in_skip(in, (size_t)want);
	return pl_data_array_read(in, a, true, err);
}
