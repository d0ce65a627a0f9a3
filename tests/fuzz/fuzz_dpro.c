/* Traces of BytePS and dPRO. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pl_import_opts o = { .max_dictionary_bytes = 40000, .strict = size % 8 == 7 };

	fuzz_import("dpro", data, size, &o);
	return 0;
}
