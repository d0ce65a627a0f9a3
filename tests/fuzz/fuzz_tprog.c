/* Tensor programs: what is read can be written, and reads back as the same text; CUDA takes it or
 * says why not; leaves are finite. */
#include <math.h>
#include <string.h>

#include "fuzz_program.h"

static int read_program(const uint8_t *data, size_t size, struct pl_tprog *p)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_tprog_reader *r;
	int rc = pl_tprog_reader_new(in, &r, &err);

	FUZZ_CHECK(rc == 0);
	rc = pl_tprog_next(r, p, &err);
	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
	pl_tprog_reader_free(r);
	pl_in_close(in);
	return rc;
}

static void there_and_back(const struct pl_tprog *p)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_tprog back = { .name = NULL };

	write_program(p, &b);
	FUZZ_CHECK(read_program(b.p, b.n, &back) == 1);
	FUZZ_CHECK(back.n_nodes == p->n_nodes && back.n_buffers == p->n_buffers);
	write_program(&back, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_tprog_fini(&back);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

/* It is a kernel, or something says why not. */
static void write_cuda(const struct pl_tprog *p)
{
	struct pl_err err = { 0 }, failed = { 0 };
	struct pl_writer w;
	int rc;

	pl_write_init(&w, NULL, 0);
	rc = pl_tprog_write_cuda(p, "f", &w, &err);
	FUZZ_CHECK(rc == 0 || (rc == PL_EDATA && err.msg[0]));
	FUZZ_CHECK(pl_write_check(&w, &failed) == 0);
	pl_write_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_tprog p = { .name = NULL };
	struct pl_tprog_leaf *leaf;
	struct pl_err err = { 0 };
	size_t n;

	if (read_program(data, size, &p) == 1) {
		there_and_back(&p);
		write_cuda(&p);
		FUZZ_CHECK(pl_tprog_leaves(&p, &leaf, &n, &err) == 0);
		for (size_t i = 0; i < n; i++)
			for (int k = 0; k < PL_TPROG_FEATURES; k++)
				FUZZ_CHECK(!isnan(leaf[i].x[k]));
		pl_free(leaf);
	}
	pl_tprog_fini(&p);
	return 0;
}
