/* Safetensors: what is read can be written, and reads back as the same tensors and the same bytes.
 */
#include <string.h>

#include "data/weights.h"
#include "fuzz.h"

static int read_weights(const uint8_t *data, size_t size, struct pl_weights *w)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_weights_read(in, "fuzz", w, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !w->w));
	pl_in_close(in);
	return rc;
}

static void write_weights(const struct pl_weights *w, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(out && pl_weights_write(w, out, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static void same(const struct pl_weights *a, const struct pl_weights *b)
{
	FUZZ_CHECK(a->n == b->n && a->n_meta == b->n_meta);
	for (size_t i = 0; i < a->n; i++) {
		const struct pl_weight *x = &a->w[i], *y = pl_weights_find(b, x->name);

		FUZZ_CHECK(y && x->dtype == y->dtype && x->n_dims == y->n_dims &&
			   x->bytes == y->bytes);
		FUZZ_CHECK(!memcmp(x->dim, y->dim, sizeof(x->dim[0]) * (size_t)x->n_dims));
		FUZZ_CHECK(!x->bytes || !memcmp(x->data, y->data, x->bytes));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_weights w, v;

	if (read_weights(data, size, &w) < 0)
		return 0;
	write_weights(&w, &b);
	FUZZ_CHECK(read_weights(b.p, b.n, &v) == 0);
	same(&w, &v);
	write_weights(&v, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_weights_fini(&w);
	pl_weights_fini(&v);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
	return 0;
}
