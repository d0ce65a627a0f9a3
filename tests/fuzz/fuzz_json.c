/* The pull reader: any bytes, token by token; unescaping never grows; numbers agree with
 * themselves. */
#include "fuzz.h"
#include "io/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum pl_json_type t;
	struct pl_json j;
	size_t tokens = 0;

	pl_json_init(&j, (const char *)data, size);
	while ((t = pl_json_next(&j)) != PL_JSON_END && t != PL_JSON_ERROR) {
		FUZZ_CHECK(++tokens <= size + 1 && j.depth >= 0);
		if (t == PL_JSON_STRING || t == PL_JSON_KEY) {
			char *out = malloc(j.len + 1);

			FUZZ_CHECK(out && pl_json_unescape(j.text, j.len, out) <= j.len);
			free(out);
		} else if (t == PL_JSON_NUMBER) {
			int64_t v, m;
			pl_ns ns;
			int scale;

			if (pl_json_i64(j.text, j.len, &v) && v > -1000000000 && v < 1000000000)
				FUZZ_CHECK(pl_json_time_ns(j.text, j.len, 1, &ns) && ns == v &&
					   pl_json_decimal(j.text, j.len, &m, &scale) && m == v);
			fuzz_sum += (unsigned)pl_json_time_ns(j.text, j.len, 1000, &ns);
		}
	}
	FUZZ_CHECK(t == PL_JSON_END || j.what);
	return 0;
}
