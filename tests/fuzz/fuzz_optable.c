/* Operation tables; the first line may choose the columns. */
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_import_opts o = { 0 };
	const uint8_t *nl = memchr(data, '\n', size);
	char columns[256];

	fuzz_import("optable", data, size, &o);
	if (!nl || (size_t)(nl - data) >= sizeof(columns))
		return 0;
	memcpy(columns, data, (size_t)(nl - data));
	columns[nl - data] = '\0';
	o.columns = columns;
	fuzz_import("optable", nl + 1, size - (size_t)(nl + 1 - data), &o);
	return 0;
}
