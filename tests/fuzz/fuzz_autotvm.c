/* Tuning logs: lenient as well as strict; each program is written and read back the same, and a
 * small one runs without leaving its buffers. */
#include <string.h>

#include "fuzz_program.h"
#include "tprog/autotvm.h"

#define SMALL 20000.0 /* operations */
#define FEW   4	      /* programs that are looked at */

static void there_and_back(const struct pl_tprog *p)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_err err = { 0 };
	struct pl_tprog back = { .name = NULL };
	struct pl_tprog_reader *r = NULL;
	struct pl_in *in;

	write_program(p, &b);
	in = pl_in_open_mem("fuzz", b.p, b.n, &err);
	FUZZ_CHECK(in && pl_tprog_reader_new(in, &r, &err) == 0);
	FUZZ_CHECK(pl_tprog_next(r, &back, &err) == 1 && back.n_measured == 1);
	write_program(&back, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_tprog_fini(&back);
	pl_tprog_reader_free(r);
	pl_in_close(in);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

static void run(const struct pl_tprog *p)
{
	float *buffer[3] = { NULL };
	struct pl_err err = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE) {
			FUZZ_CHECK(n < 3);
			if (pl_alloc(&buffer[n++], (size_t)p->buffer[i].n, sizeof(float), &err) < 0)
				break;
		}
	FUZZ_CHECK(err.code || pl_tprog_run(p, buffer, &err) == 0);
	for (size_t i = 0; i < 3; i++)
		pl_free(buffer[i]);
}

static void read_log(const uint8_t *data, size_t size, bool strict)
{
	struct pl_autotvm_opts o = { .model = "a", .strict = strict };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_autotvm *r;
	int more = 1, rc = pl_autotvm_new(in, &o, &r, &err);

	FUZZ_CHECK(rc == 0);
	for (int i = 0; more > 0; i++) {
		struct pl_tprog p = { .name = NULL };

		more = pl_autotvm_next(r, &p, &err);
		FUZZ_CHECK(more >= 0 || (strict && err.code == more && err.msg[0]));
		if (more > 0 && i < FEW) {
			there_and_back(&p);
			if (pl_tprog_flops(&p) < SMALL)
				run(&p);
		}
		pl_tprog_fini(&p);
	}
	pl_autotvm_free(r);
	pl_in_close(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_log(data, size, false);
	read_log(data, size, true);
	return 0;
}
