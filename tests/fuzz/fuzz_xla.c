/* Profiles of XLA: as trace.json, and as XPlane. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_import_opts o = { 0 };

	fuzz_import(size && data[0] == '{' ? "xla" : "xplane", data, size, &o);
	o.strict = true;
	fuzz_import(size && data[0] == '{' ? "xla" : "xplane", data, size, &o);
	return 0;
}
