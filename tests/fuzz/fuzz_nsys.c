/* Exports of Nsight Systems: any bytes, and databases with odd tables and values. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_import_opts o = { .max_dictionary_bytes = 40000 };

	if (size % 128 >
	    1) /* a database has whole pages: one byte more or less is tried, not each */
		return 0;
	fuzz_import("nsys", data, size, &o);
	return 0;
}
