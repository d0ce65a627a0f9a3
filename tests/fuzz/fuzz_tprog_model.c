/*
 * Models of tensor programs: what is read can be written, reads back as the same bytes, and
 * predicts.
 *
 * An input that does not begin with the container is a list of blocks, which are put into one: four
 * letters, their length as two bytes, and the bytes. Four more bytes in front of them, if the
 * length has its highest bit, say how many zeros follow behind them: the parameters of a network.
 */
#include <string.h>

#include "fuzz.h"
#include "tprog/cost.h"

#define ZEROS_MOST (1u << 20)

static const char program[] =
	"paceline-tprog 1\nprogram p model=m op=dense\nbuffer A float32 4 8\n"
	"buffer B float32 8 8\nbuffer C float32 4 8\nfor i 4 parallel\n"
	"for k 8 reduce\nfor j 8 vectorize\nC[i, j] += A[i, k] * B[k, j]\nend\n"
	"end\nend\nmeasured box 900\n";

static int read_model(const uint8_t *data, size_t size, struct pl_tprog_model **m)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	bool is = pl_tprog_model_is(in);
	int rc = pl_tprog_model_read(in, m, &err);

	FUZZ_CHECK(rc == 0 ? is : err.code == rc && err.msg[0] && !*m);
	pl_in_close(in);
	return rc;
}

static void write_model(const struct pl_tprog_model *m, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(pl_tprog_model_write(m, "fuzz", out, 0, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static void use_model(struct pl_tprog_model *m)
{
	struct pl_tprog_set s = { .n = 0 };
	struct pl_err err = { 0 };
	struct pl_in *in =
		pl_in_open_mem("program", (const uint8_t *)program, sizeof(program) - 1, &err);
	struct pl_tprog_time t;
	struct pl_buf b = { 0 };
	struct pl_out *out;
	struct pl_writer w;

	FUZZ_CHECK(pl_tprog_set_read(&s, in, false, &err) == 0 && s.n == 1);
	FUZZ_CHECK(pl_tprog_apply(m, &s, &t, &err) == 0);
	FUZZ_CHECK(!(t.lo_ns > t.ns) && !(t.hi_ns < t.ns));
	out = pl_out_open_buf(&b, &err);
	pl_write_init(&w, out, 0);
	pl_tprog_explain(m, &w);
	FUZZ_CHECK(pl_write_end(&w, &err) == 0);
	pl_write_fini(&w);
	FUZZ_CHECK(pl_out_close(out, &err) == 0 && b.n);
	pl_buf_fini(&b);
	pl_tprog_set_fini(&s);
	pl_in_close(in);
}

/* The blocks of the list in a container. */
static void put_blocks(const uint8_t *p, size_t n, struct pl_buf *to)
{
	const struct pl_container_writer_opts c = { .kind = PL_KIND_MODEL,
						    .major = PL_TPROG_MODEL_MAJOR };
	const uint8_t *end = p + n;
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(to, &err);
	struct pl_container_writer *w = pl_container_writer_open(out, &c, &err);

	while (end - p >= 10) {
		uint32_t type = PL_FOURCC(p[0], p[1], p[2], p[3]), zeros = 0;
		size_t bytes = (size_t)p[4] | (size_t)(p[5] & 0x7f) << 8;
		struct pl_buf b = { 0 };

		if (p[5] & 0x80) {
			zeros = PL_FOURCC(p[6], p[7], p[8], p[9]) % ZEROS_MOST;
			p += 4;
		}
		p += 6;
		bytes = pl_min_size(bytes, (size_t)(end - p));
		FUZZ_CHECK(pl_buf_put(&b, p, bytes, &err) == 0);
		pl_io_put_zeros(&b, bytes + zeros);
		p += bytes;
		if (!type || type == PL_BLOCK_INDEX || type == PL_BLOCK_END)
			type = PL_BLOCK_PROVENANCE;
		FUZZ_CHECK(pl_container_writer_put(w, type, 1, 1, &b, &err) == 0);
		pl_buf_fini(&b);
	}
	FUZZ_CHECK(pl_container_writer_close(w, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static void there_and_back(struct pl_tprog_model *m)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_tprog_model *back;

	use_model(m);
	write_model(m, &b);
	FUZZ_CHECK(read_model(b.p, b.n, &back) == 0);
	write_model(back, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_tprog_model_free(back);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_buf b = { 0 };
	struct pl_tprog_model *m = NULL;
	int rc;

	if (size > 1 && data[0] == 0x1f && data[1] == 0x8b) {
		rc = read_model(data, size, &m);
	} else {
		put_blocks(data, size, &b);
		rc = read_model(b.p, b.n, &m);
	}
	if (rc == 0)
		there_and_back(m);
	pl_tprog_model_free(m);
	pl_buf_fini(&b);
	return 0;
}
