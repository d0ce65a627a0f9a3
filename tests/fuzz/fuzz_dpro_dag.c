/* dag.gml, the graph of operators beside traces of dPRO. */
#include "fuzz.h"
#include "import/dpro_dag.h"

#define MOST 64 /* operators before one, that are looked at */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = text + size, *s, *t;
	struct pl_err err = { 0 };
	struct pl_dpro_dag *d = pl_import_dpro_dag_parse(text, size, &err);

	FUZZ_CHECK(!d || !err.code);
	/* all texts: labels, and others */
	for (; d && (s = memchr(text, '"', (size_t)(end - text))); text = t + 1) {
		const char *before;
		size_t at = 0;

		s++;
		t = memchr(s, '"', (size_t)(end - s));
		if (!t)
			break;
		for (size_t i = 0; i < MOST; i++) {
			before = pl_import_dpro_before(d, s, (size_t)(t - s), &at);
			if (!before)
				break;
			fuzz_sum += (unsigned)strlen(before);
		}
	}
	pl_import_dpro_dag_free(d);
	return 0;
}
