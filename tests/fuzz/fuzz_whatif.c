/* What-if: each line is a statement that is taken, or refused with a message; and help for it. */
#include <string.h>

#include "fuzz.h"
#include "lang/lang.h"
#include "rewrite/rewrite.h"

static const struct pl_lang_schema *const languages[] = { &pl_plan_schema, NULL };

static void one_line(const char *line)
{
	struct pl_plan p;
	struct pl_buf b = { 0 };
	struct pl_err err = { 0 };
	int rc;

	pl_plan_init(&p);
	rc = pl_rewrite_add_line(&p, line, &err);
	FUZZ_CHECK(rc == 0 ? p.n_rw == 1 : rc == PL_EUSAGE && err.msg[0] && !p.n_rw);
	memset(&err, 0, sizeof(err));
	rc = pl_lang_help(languages, line, &b, &err);
	FUZZ_CHECK(rc == 0 ? b.n > 0 : rc == PL_EUSAGE && err.msg[0]);
	pl_buf_fini(&b);
	pl_plan_fini(&p);
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
