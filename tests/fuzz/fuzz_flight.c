/* Dumps of the Flight Recorder: JSON and pickles, lenient or, by their size, strict. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pl_import_opts o = { .strict = size % 8 == 7 };

	fuzz_import("flight", data, size, &o);
	return 0;
}
