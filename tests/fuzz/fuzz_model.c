/* Models: what is read can be written, and reads back as the same text; the first line as a preset.
 */
#include <string.h>

#include "fuzz.h"
#include "plan/model.h"

static int read_model(const uint8_t *data, size_t size, struct pl_model *m)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_model_read(in, "fuzz", m, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !m->layer));
	pl_in_close(in);
	return rc;
}

static void write_model(const struct pl_model *m, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(out && pl_model_write(m, out, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static void there_and_back(const struct pl_model *m)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_model back;

	write_model(m, &b);
	FUZZ_CHECK(read_model(b.p, b.n, &back) == 0);
	FUZZ_CHECK(back.n_layers == m->n_layers);
	write_model(&back, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_model_fini(&back);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_err err = { 0 };
	struct pl_model m;
	char line[256];
	size_t n = 0;
	int rc;

	if (read_model(data, size, &m) == 0) {
		there_and_back(&m);
		pl_model_fini(&m);
	}
	while (n < size && n < sizeof(line) - 1 && data[n] != '\n' && data[n]) {
		line[n] = (char)data[n];
		n++;
	}
	line[n] = '\0';
	rc = pl_model_preset(line, &m, &err);
	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !m.layer));
	if (rc == 0)
		there_and_back(&m);
	pl_model_fini(&m);
	return 0;
}
