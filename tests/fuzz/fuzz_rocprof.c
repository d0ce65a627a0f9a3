/* Documents of rocprofv3. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pl_import_opts o = { .max_dictionary_bytes = 40000, .strict = size % 8 == 7 };

	fuzz_import("rocprof", data, size, &o);
	return 0;
}
