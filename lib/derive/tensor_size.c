/*
 * Sizes of tensors as the PyTorch profiler writes them: lists of sizes, names of types.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

static const struct {
	const char *name, *plain;
	int64_t bytes;
} known[] = {
	{ "float", "float32", 4 },
	{ "double", "float64", 8 },
	{ "c10::Half", "float16", 2 },
	{ "c10::BFloat16", "bfloat16", 2 },
	{ "int", "int32", 4 },
	{ "long", "int64", 8 },
	{ "long int", "int64", 8 },
	{ "short", "int16", 2 },
	{ "short int", "int16", 2 },
	{ "signed char", "int8", 1 },
	{ "unsigned char", "uint8", 1 },
	{ "bool", "bool", 1 },
	{ "c10::complex<float>", "complex64", 8 },
	{ "c10::complex<double>", "complex128", 16 },
	{ "c10::Float8_e4m3fn", "float8", 1 },
	{ "c10::Float8_e5m2", "float8", 1 },
};

static size_t find_type(const char *s, size_t n)
{
	size_t i = 0;

	while (i < PL_LEN(known) &&
	       (strlen(known[i].name) != n || memcmp(known[i].name, s, n) != 0))
		i++;
	return i;
}

int64_t gb_element_bytes(const char *s, size_t n)
{
	size_t i = find_type(s, n);

	return i < PL_LEN(known) ? known[i].bytes : 0;
}

const char *gb_type_name(const char *s, size_t n)
{
	size_t i = find_type(s, n);

	return i < PL_LEN(known) ? known[i].plain : NULL;
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
