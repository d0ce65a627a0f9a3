/* Execution traces: the bytes up to a NUL; what follows it is a profile to join them with. */
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = memchr(data, '\0', size);
	size_t n = nul ? (size_t)(nul - data) : size;
	struct pl_import_opts o = { 0 };
	struct pl_import_stats st;
	struct pl_err err = { 0 };
	struct pl_et *et = pl_import_et_new(&err);
	struct pl_in *in = pl_in_open_mem("fuzz", data, n, &err);
	int rc = pl_import_et_load(et, in, &o, &st, &err);

	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
	if (rc >= 0 && nul) {
		o.et = et;
		fuzz_import("kineto", nul + 1, size - n - 1, &o);
	}
	pl_import_et_free(et);
	return 0;
}
