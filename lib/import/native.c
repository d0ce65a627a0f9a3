/* paceline's own stream, trace(5), as one of the formats: the reader of lib/trace does the work. */
#include "import/internal.h"

static int probe(const uint8_t *p, size_t n)
{
	return n >= 18 && pl_container_probe(p, n) ? 100 : 0;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	const struct pl_trace_reader_opts r = {
		.pool = o->pool, .salvage = o->salvage, .log = o->log, .events = &st->events
	};

	return pl_trace_read(in, &r, sink, err);
}

const struct pl_importer pl_import_native = {
	.name = "native",
	.summary = "paceline's own trace stream",
	.probe = probe,
	.run = run,
};
