/* Tables of operations, made into a graph of a step of training with a layer that is repeated. */
#include "derive/opgraph.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pl_opgraph_opts o = {
		.type = "float32", .train = true, .repeat = 3, .match = "layer_0"
	};
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_graph g;

	if (!in)
		return 0;
	if (pl_derive_opgraph(in, &o, &g, &err) == 0) {
		if (!pl_graph_valid(&g, &err))
			abort();
		pl_graph_fini(&g);
	}
	pl_in_close(in);
	return 0;
}
