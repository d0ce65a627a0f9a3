/* Our own stream: as blocks, with and without salvage, and as a trace. */
#include "fuzz.h"

static void blocks(const uint8_t *data, size_t size, bool salvage)
{
	struct pl_container_reader_opts o = { .major = UINT16_MAX,
					      .known = UINT64_MAX,
					      .salvage = salvage };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_container_reader *r = pl_container_reader_open(in, &o, &err);
	struct pl_block b;
	int rc = err.code;

	while (r && (rc = pl_container_reader_next(r, &b, &err)) > 0)
		for (size_t i = 0; i < b.n; i += 64)
			fuzz_sum += b.p[i];
	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0]));
	pl_container_reader_close(r);
	pl_in_close(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_trace_reader_opts o = { .salvage = false };
	struct pl_sink sink = { .end = NULL };
	struct pl_err err = { 0 };
	struct pl_in *in;

	blocks(data, size, false);
	blocks(data, size, true);
	in = pl_in_open_mem("fuzz", data, size, &err);
	FUZZ_CHECK(pl_trace_read(in, &o, &sink, &err) >= 0 || err.msg[0]);
	pl_in_close(in);
	return 0;
}
