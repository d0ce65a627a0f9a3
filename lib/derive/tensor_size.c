/*
 * Sizes of tensors as the PyTorch profiler writes them: lists of sizes, names of types.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

int64_t gb_element_bytes(const char *s, size_t n)
{
	static const struct {
		const char *name;
		int64_t bytes;
	} known[] = {
		{ "float", 4 },
		{ "double", 8 },
		{ "c10::Half", 2 },
		{ "c10::BFloat16", 2 },
		{ "int", 4 },
		{ "long", 8 },
		{ "long int", 8 },
		{ "short", 2 },
		{ "short int", 2 },
		{ "signed char", 1 },
		{ "unsigned char", 1 },
		{ "bool", 1 },
		{ "c10::complex<float>", 8 },
		{ "c10::complex<double>", 16 },
		{ "c10::Float8_e4m3fn", 1 },
		{ "c10::Float8_e5m2", 1 },
	};

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (strlen(known[i].name) == n && !memcmp(known[i].name, s, n))
			return known[i].bytes;
	return 0;
}

int64_t gb_dims(const char *s, char *dims, size_t size)
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
