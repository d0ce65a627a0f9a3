/*
 * Jobs: what is read can be written, and reads back as the same text; each line as an option, which
 * either is set or changes nothing.
 */
#include <string.h>

#include "fuzz.h"
#include "plan/job.h"

static int read_job(const uint8_t *data, size_t size, struct pl_job *j)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_job_read(in, "fuzz", j, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0]));
	pl_in_close(in);
	return rc;
}

static void write_job(const struct pl_job *j, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(out && pl_job_write(j, out, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

/* Written, read and written: the same text? */
static void there_and_back(const struct pl_job *j)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_job back;

	write_job(j, &b);
	FUZZ_CHECK(read_job(b.p, b.n, &back) == 0);
	write_job(&back, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	pl_job_fini(&back);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

static void set_lines(struct pl_job *j, const uint8_t *data, size_t size)
{
	while (size) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t n = end ? (size_t)(end - data) : size;
		struct pl_buf before = { 0 }, after = { 0 };
		struct pl_err err = { 0 };
		char line[512];
		int rc;

		snprintf(line, sizeof(line), "%.*s", (int)n, (const char *)data);
		write_job(j, &before);
		rc = pl_job_set(j, line, &err);
		write_job(j, &after);
		FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && before.n == after.n &&
				       !memcmp(before.p, after.p, after.n)));
		pl_buf_fini(&before);
		pl_buf_fini(&after);
		size -= n + (end != NULL);
		data += n + (end != NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_err err = { 0 };
	struct pl_job j;
	int rc;

	if (read_job(data, size, &j) == 0) {
		there_and_back(&j);
		rc = pl_job_check(&j, &err);
		FUZZ_CHECK(rc == 0 || (rc == PL_EDATA && err.msg[0]));
		pl_job_fini(&j);
	}
	pl_job_init(&j);
	set_lines(&j, data, size < 4096 ? size : 4096);
	there_and_back(&j);
	pl_job_fini(&j);
	return 0;
}
