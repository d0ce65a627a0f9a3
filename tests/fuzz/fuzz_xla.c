/* Profiles of XLA: as trace.json, and as XPlane; strict if the number of bytes is odd. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_import_opts o = { .strict = size & 1 };

	fuzz_import(size && data[0] == '{' ? "xla" : "xplane", data, size, &o);
	return 0;
}
