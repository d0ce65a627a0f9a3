/* Our own stream, trace(5), as one of the formats: the reader of lib/trace does the work. */
#include "import/internal.h"

static int probe(const uint8_t *p, size_t n)
{
	return n >= 18 && pl_container_probe(p, n) ? 100 : 0;
}

/* Counts what passes through. */
struct counting {
	struct pl_sink sink;
	struct pl_sink *next;
	struct pl_import_stats *st;
	const char *provenance;
};

static int begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct counting *c = (struct counting *)s;

	if (c->provenance) {
		int rc = pl_buf_printf(&seg->provenance, err, "%s\n", c->provenance);

		if (rc < 0)
			return rc;
	}
	return c->next->begin ? c->next->begin(c->next, seg, err) : 0;
}

static int batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b, struct pl_err *err)
{
	struct counting *c = (struct counting *)s;

	c->st->events += b->n;
	return c->next->batch ? c->next->batch(c->next, seg, b, err) : 0;
}

static int end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct counting *c = (struct counting *)s;

	return c->next->end ? c->next->end(c->next, seg, err) : 0;
}

static int merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct counting *c = (struct counting *)s;

	return c->next->merge ? c->next->merge(c->next, m, err) : 0;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct pl_trace_reader_opts ro = { .pool = o->pool, .salvage = o->salvage, .log = o->log };
	struct counting c = {
		.sink = { .begin = begin, .batch = batch, .end = end, .merge = merge },
		.next = sink,
		.st = st,
		.provenance = o->provenance,
	};

	return pl_trace_read(in, &ro, &c.sink, err);
}

const struct pl_importer pl_import_native = {
	.name = "native",
	.summary = "paceline's own trace stream",
	.probe = probe,
	.run = run,
};
