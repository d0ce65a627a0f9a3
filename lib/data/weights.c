/*
 * Weights in memory: adding, finding, conversion; and the writer of safetensors.
 *
 * A file is 8 bytes with the length of a JSON header, the header, and the data without gaps. The
 * header is padded with blanks, which the format allows, so that the data begins at a multiple of
 * 64 bytes. O(n log n) in the tensors.
 */
#include "data/weights.h"
#include "core/bytes.h"
#include "io/write.h"

#define ALIGN 64u

void pl_weights_fini(struct pl_weights *w)
{
	for (size_t i = 0; i < w->n; i++)
		pl_free(w->w[i].name);
	for (size_t i = 0; i < w->n_meta; i++)
		pl_free(w->meta[i]);
	pl_free(w->w);
	pl_free(w->meta);
	pl_free(w->memory);
	memset(w, 0, sizeof(*w));
}

const struct pl_weight *pl_weights_find(const struct pl_weights *w, const char *name)
{
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->w[i].name, name))
			return &w->w[i];
	return NULL;
}

const char *pl_weights_meta(const struct pl_weights *w, const char *key)
{
	for (size_t i = 0; i + 1 < w->n_meta; i += 2)
		if (!strcmp(w->meta[i], key))
			return w->meta[i + 1];
	return NULL;
}

int pl_weights_f32(const struct pl_weight *w, float *out, size_t n, struct pl_err *err)
{
	size_t have = w->bytes / pl_dtype_size(w->dtype);

	if (have != n)
		return pl_fail(err, PL_EDATA,
			       "tensor \"%.200s\" has %zu values where %zu are wanted; are the "
			       "weights of another model?",
			       w->name, have, n);
	pl_dtype_f32(w->dtype, w->data, n, out);
	return 0;
}

/* ---- adding ---------------------------------------------------------------------------------- */

int pl_weights_add(struct pl_weights *w, const char *name, int n_dims, const int64_t *dim,
		   const float *data, struct pl_err *err)
{
	struct pl_weight x = { .dtype = PL_DT_F32, .n_dims = n_dims, .data = data };
	size_t n = 1;

	if (n_dims < 0 || n_dims > (int)PL_LEN(x.dim))
		return pl_fail(err, PL_EINTERNAL, "weights of %d dimensions", n_dims);
	for (int i = 0; i < n_dims; i++) {
		x.dim[i] = dim[i];
		n *= (size_t)dim[i];
	}
	x.bytes = n * sizeof(*data);
	PL_CHECK(pl_grow(&w->w, &w->cap, w->n + 1, sizeof(*w->w), err));
	PL_CHECK(pl_dup(NULL, &x.name, name, err));
	w->w[w->n++] = x;
	return 0;
}

int pl_weights_add_meta(struct pl_weights *w, const char *key, const char *value,
			struct pl_err *err)
{
	PL_CHECK(pl_grow(&w->meta, &w->cap_meta, w->n_meta + 2, sizeof(*w->meta), err));
	PL_CHECK(pl_dup(NULL, &w->meta[w->n_meta], key, err));
	if (pl_dup(NULL, &w->meta[w->n_meta + 1], value, err) < 0) {
		pl_free(w->meta[w->n_meta]);
		return PL_ENOMEM;
	}
	w->n_meta += 2;
	return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int by_size_and_name(const void *a, const void *b)
{
	const struct pl_weight *x = *(const struct pl_weight *const *)a,
			       *y = *(const struct pl_weight *const *)b;
	size_t m = pl_dtype_size(x->dtype), n = pl_dtype_size(y->dtype);

	return m != n ? (m < n) - (m > n) : strcmp(x->name, y->name);
}

/* Can each tensor be written? */
static int check(const struct pl_weight *const *w, size_t n, struct pl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		size_t bytes = pl_dtype_size(w[i]->dtype);

		for (int k = 0; k < w[i]->n_dims; k++)
			if (__builtin_mul_overflow(bytes, (size_t)w[i]->dim[k], &bytes))
				bytes = SIZE_MAX;
		if (!pl_dtype_size(w[i]->dtype) || bytes != w[i]->bytes)
			return pl_fail(err, PL_EINTERNAL,
				       "tensor \"%.200s\" of %zu bytes does not have its shape",
				       w[i]->name, w[i]->bytes);
		if (!strcmp(w[i]->name, "__metadata__"))
			return pl_fail(err, PL_EDATA,
				       "no tensor can be named __metadata__ in this format");
	}
	for (size_t i = 1; i < n; i++)
		if (!by_size_and_name(&w[i - 1], &w[i]))
			return pl_fail(err, PL_EDATA, "two tensors are named \"%.200s\"",
				       w[i]->name);
	return 0;
}

static void put_meta(struct pl_writer *j, const struct pl_weights *w)
{
	if (!w->n_meta)
		return;
	pl_json_key(j, "__metadata__");
	pl_json_open(j, '{');
	for (size_t i = 0; i + 1 < w->n_meta; i += 2)
		pl_json_str(j, w->meta[i], w->meta[i + 1]);
	pl_json_close(j);
}

static void put_weight(struct pl_writer *j, const struct pl_weight *w, size_t *at)
{
	pl_json_key(j, w->name);
	pl_json_open(j, '{');
	pl_json_str(j, "dtype", pl_dtype_name(w->dtype));
	pl_json_key(j, "shape");
	pl_json_open(j, '[');
	for (int i = 0; i < w->n_dims; i++)
		pl_json_put_int(j, w->dim[i]);
	pl_json_close(j);
	pl_json_key(j, "data_offsets");
	pl_json_open(j, '[');
	pl_json_put_int(j, (int64_t)*at);
	*at += w->bytes;
	pl_json_put_int(j, (int64_t)*at);
	pl_json_close(j);
	pl_json_close(j);
}

/* The length of the header, and the header, with blanks up to the next multiple of ALIGN. */
static int put_header(struct pl_writer *w, const struct pl_weights *all,
		      const struct pl_weight *const *order, struct pl_err *err)
{
	size_t at = 0;

	pl_write(w, "\0\0\0\0\0\0\0", 8);
	pl_json_open(w, '{');
	put_meta(w, all);
	for (size_t i = 0; i < all->n; i++)
		put_weight(w, order[i], &at);
	pl_json_close(w);
	while (!w->fail.code && w->b.n % ALIGN)
		pl_write_char(w, ' ');
	if (!w->fail.code)
		pl_le64_put(w->b.p, w->b.n - 8);
	return pl_write_check(w, err);
}

int pl_weights_write(const struct pl_weights *w, struct pl_out *out, struct pl_err *err)
{
	const struct pl_weight **order = NULL;
	struct pl_writer head = { 0 };
	int rc;

	PL_TRY(pl_alloc(&order, w->n, sizeof(*order), err));
	for (size_t i = 0; i < w->n; i++)
		order[i] = &w->w[i];
	pl_sort(order, w->n, sizeof(*order), by_size_and_name);
	PL_TRY(check(order, w->n, err));
	PL_TRY(put_header(&head, w, order, err));
	PL_TRY(pl_out_write(out, head.b.p, head.b.n, err));
	for (size_t i = 0; i < w->n; i++)
		PL_TRY(pl_out_write(out, order[i]->data, order[i]->bytes, err));
out:
	pl_free(order);
	pl_write_fini(&head);
	return rc;
}
