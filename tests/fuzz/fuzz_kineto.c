/* Profiles: lenient as PyTorch's and as general Chrome traces, with little room for strings, and
 * strict. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_import_opts o = { .max_dictionary_bytes = 40000 };

	fuzz_import("kineto", data, size, &o);
	fuzz_import("chrome", data, size, &o);
	o.strict = true;
	fuzz_import("kineto", data, size, &o);
	return 0;
}
