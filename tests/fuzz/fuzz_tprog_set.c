/* Sets of tensor programs: vectors are finite, work is above 0, and small programs can be carried
 * out and written as C. */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "tprog/cost.h"

#define STEPS 1e5 /* a program is carried out up to so many stores, on so many numbers */

static void look_at_set(const struct pl_tprog_set *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct pl_tprog_row *r = &s->v[i];

		FUZZ_CHECK(r->work > 0 && isfinite(r->work));
		FUZZ_CHECK(r->n_leaves && r->leaf + r->n_leaves <= s->n_leaves);
		for (int c = 0; c < PL_TPROG_COLUMNS; c++)
			FUZZ_CHECK(isfinite(r->x[c]));
		for (uint32_t l = r->leaf; l < r->leaf + r->n_leaves; l++)
			for (int c = 0; c < PL_TPROG_FEATURES; c++)
				FUZZ_CHECK(isfinite(s->leaf[l].x[c]));
	}
}

/* Stores of all iterations. */
static double stores(const struct pl_tprog *p)
{
	double sum = 0;

	for (uint32_t i = 0; i < p->n_nodes; i++) {
		double n = 1;

		for (uint32_t k = i; k != PL_NONE; k = p->node[k].parent)
			n *= p->node[k].kind == PL_TPROG_FOR ? (double)p->node[k].extent : 1;
		sum += n;
	}
	return sum;
}

static void carry_out(const struct pl_tprog *p)
{
	struct pl_err err = { 0 }, outside = { 0 };
	float *buffer[16];
	double numbers = 0;
	size_t n = 0;
	bool inside;

	for (size_t i = 0; i < p->n_buffers; i++)
		numbers += (double)p->buffer[i].n;
	if (stores(p) > STEPS || numbers > STEPS || p->n_buffers > PL_LEN(buffer))
		return;
	for (size_t i = 0; i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE)
			buffer[n++] = calloc((size_t)p->buffer[i].n, sizeof(float));
	inside = pl_tprog_check(p, &outside) == 0;
	if (pl_tprog_run(p, buffer, &err) < 0)
		FUZZ_CHECK(err.msg[0] && (!inside || err.code != PL_EDATA));
	while (n)
		free(buffer[--n]);
}

static void write_c(const struct pl_tprog *p)
{
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_tprog_write_c(p, "f", &w);
	FUZZ_CHECK(pl_write_end(&w, &err) == 0);
	pl_write_fini(&w);
	FUZZ_CHECK(pl_out_close(out, &err) == 0 && b.n);
	pl_buf_fini(&b);
}

static void each_program(const uint8_t *data, size_t size)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_tprog_reader *r;
	int rc = pl_tprog_reader_new(in, &r, &err);

	while (rc >= 0) {
		struct pl_tprog p = { .name = NULL };

		rc = pl_tprog_next(r, &p, &err);
		if (rc > 0) {
			FUZZ_CHECK(pl_tprog_flops(&p) >= 0);
			write_c(&p);
			carry_out(&p);
		}
		pl_tprog_fini(&p);
		if (!rc)
			break;
	}
	pl_tprog_reader_free(r);
	pl_in_close(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int once = 0; once < 2; once++) {
		struct pl_tprog_set s = { .n = 0 };
		struct pl_err err = { 0 };
		struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
		int rc = pl_tprog_set_read(&s, in, once, &err);

		FUZZ_CHECK(rc == 0 || (rc == err.code && err.msg[0]));
		look_at_set(&s);
		pl_tprog_set_fini(&s);
		pl_in_close(in);
	}
	each_program(data, size);
	return 0;
}
