/* Execution traces of Chakra: as a graph, which must be valid; and as what adds sizes to a profile.
 */
#include "derive/chakra.h"
#include "fuzz.h"

struct bytes {
	const uint8_t *p;
	size_t n;
};

static struct pl_in *open_bytes(void *arg, size_t i, struct pl_err *err)
{
	const struct bytes *b = arg;

	(void)i;
	return pl_in_open_mem("fuzz.0.et", b->p, b->n, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	struct pl_import_opts o = { 0 };
	struct pl_import_stats st;
	struct pl_err err = { 0 }, why = { 0 };
	struct pl_graph g;
	struct pl_et *et;
	int rc = pl_derive_chakra(1, open_bytes, &b, NULL, &g, &err);

	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
	if (rc >= 0) {
		FUZZ_CHECK(pl_graph_valid(&g, &why));
		pl_graph_fini(&g);
	}
	memset(&err, 0, sizeof(err));
	et = pl_import_et_new(&err);
	rc = pl_import_et_load(et, open_bytes(&b, 0, &err), &o, &st, &err);
	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
	pl_import_et_free(et);
	return 0;
}
