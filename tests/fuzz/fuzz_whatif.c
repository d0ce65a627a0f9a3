/* What-if: each line is a statement that is taken, or refused with a message; and help for it. */
#include <string.h>

#include "fuzz.h"
#include "lang/lang.h"
#include "sim/sim.h"

static const struct pl_lang_schema *const languages[] = { &pl_sim_whatif_schema, NULL };

static void one_line(const char *line)
{
	struct pl_whatif w = { 0 };
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	int rc = pl_sim_whatif_add(&w, line, &err);

	FUZZ_CHECK(rc == 0 ? w.n == 1 : rc == PL_EUSAGE && err.msg[0] && !w.n);
	memset(&err, 0, sizeof(err));
	rc = pl_lang_help(languages, line, &b, &err);
	FUZZ_CHECK(rc == 0 ? b.n > 0 : rc == PL_EUSAGE && err.msg[0]);
	pl_buf_fini(&b);
	pl_sim_whatif_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t n = end ? (size_t)(end - data) : size;
		char line[512];

		snprintf(line, sizeof(line), "%.*s", (int)n, (const char *)data);
		one_line(line);
		data += n + (end != NULL);
		size -= n + (end != NULL);
	}
	return 0;
}
