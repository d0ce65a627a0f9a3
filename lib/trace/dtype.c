/*
 * Types of the elements of tensors, as profilers spell them: PyTorch's C++ names ("c10::Half",
 * "long int"), its enumeration ("Float", "ComplexDouble"), NumPy's. Case does not matter.
 */
#include <strings.h>

#include "trace/trace.h"

static const struct {
	char name[16]; /* in the row: most comparisons end at the first character */
	const char *plain;
	int64_t bytes;
} types[] = {
	{ "float", "float32", 4 },
	{ "double", "float64", 8 },
	{ "half", "float16", 2 },
	{ "bfloat16", "bfloat16", 2 },
	{ "int", "int32", 4 },
	{ "long int", "int64", 8 },
	{ "long", "int64", 8 },
	{ "long long", "int64", 8 },
	{ "short int", "int16", 2 },
	{ "short", "int16", 2 },
	{ "char", "int8", 1 },
	{ "signed char", "int8", 1 },
	{ "unsigned char", "uint8", 1 },
	{ "byte", "uint8", 1 },
	{ "bool", "bool", 1 },
	{ "float16", "float16", 2 },
	{ "float32", "float32", 4 },
	{ "float64", "float64", 8 },
	{ "int8", "int8", 1 },
	{ "uint8", "uint8", 1 },
	{ "int16", "int16", 2 },
	{ "int32", "int32", 4 },
	{ "int64", "int64", 8 },
	{ "uint16", "uint16", 2 },
	{ "uint32", "uint32", 4 },
	{ "uint64", "uint64", 8 },
	{ "unsigned short", "uint16", 2 },
	{ "unsigned int", "uint32", 4 },
	{ "unsigned long", "uint64", 8 },
	{ "complexhalf", "complex32", 4 },
	{ "complexfloat", "complex64", 8 },
	{ "complexdouble", "complex128", 16 },
	{ "complex<float>", "complex64", 8 },
	{ "complex<double>", "complex128", 16 },
};

int64_t pl_trace_dtype(const char *s, size_t n, const char **plain)
{
	const char *unused;

	if (!plain)
		plain = &unused;
	*plain = NULL;
	if (n > 5 && !memcmp(s, "c10::", 5)) {
		s += 5;
		n -= 5;
	}
	if (n >= 6 && s[5] == '8' && !strncasecmp(s, "float8", 6)) {
		*plain = "float8";
		return 1;
	}
	for (size_t i = 0; n && i < PL_LEN(types); i++)
		if (types[i].name[0] == (*s | 0x20) && strlen(types[i].name) == n &&
		    !strncasecmp(types[i].name, s, n)) {
			*plain = types[i].plain;
			return types[i].bytes;
		}
	return 0;
}
