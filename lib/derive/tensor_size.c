/*
 * Sizes of tensors as the PyTorch profiler writes them: lists of sizes, names of types.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

int64_t pl_derive_dims(const char *s, char *dims, size_t size)
{
	int64_t product = 1;
	size_t at = 0;

	dims[0] = '\0';
	if (s[0] != '[' || s[1] != '[')
		return -1;
	for (s += 2; *s && *s != ']';) {
		char *end;
		long long v = strtoll(s, &end, 10);
		int n;

		if (end == s || v < 0 || (v && product > ((int64_t)1 << 50) / v))
			return -1;
		product *= v;
		n = snprintf(dims + at, size - at, "%s%lld", at ? "x" : "", v);
		if (n < 0 || (size_t)n >= size - at)
			return -1;
		at += (size_t)n;
		for (s = end; *s == ',' || *s == ' '; s++)
			;
	}
	if (*s != ']')
		return -1;
	if (!at)
		snprintf(dims, size, "scalar");
	return product;
}
