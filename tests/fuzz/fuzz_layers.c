/* Tables of layers, made into a graph of two ranks. */
#include "derive/layers.h"
#include "fuzz.h"

static pl_ns transfer(void *arg, int64_t bytes, uint32_t n_ranks)
{
	(void)arg;
	(void)n_ranks;
	return bytes / 1024;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_layers_opts o = { .n_ranks = 2, .transfer = transfer };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_graph g;

	if (!in)
		return 0;
	if (pl_derive_layers(in, &o, &g, &err) == 0) {
		if (!pl_graph_valid(&g, &err))
			abort();
		pl_graph_fini(&g);
	}
	pl_in_close(in);
	return 0;
}
