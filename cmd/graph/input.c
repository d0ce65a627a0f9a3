/*
 * Input of the program: a graph, or traces or a table of layers from which it makes a graph. The
 * first bytes of a file show which it is.
 */
#include "core/progress.h"
#include "derive/describe.h"
#include "io/container.h"
#include "program.h"

enum content { IS_TRACE, IS_GRAPH, IS_LAYERS };

#define PEEK 8192

/* Is the first line, after comments, the header of a table of layers? */
static bool has_header(const uint8_t *p, size_t n)
{
	size_t at = 0, end;

	for (;;) {
		const uint8_t *nl = memchr(p + at, '\n', n - at);

		end = nl ? (size_t)(nl - p) : n;
		if (end > at && p[at] != '#' && p[at] != '\r')
			break;
		if (!nl)
			return false;
		at = end + 1;
	}
	/* one of the columns may be missing, which the reader of tables says */
	return memmem(p + at, end - at, "layer", 5) && (memmem(p + at, end - at, "forward_", 8) ||
							memmem(p + at, end - at, "backward_", 9));
}

/* What does the input hold? */
static int recognise(struct pl_in *in, int from, enum content *what, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n = 0;
	uint32_t kind;

	PL_CHECK(pl_container_kind(in, &kind, err));
	if (from == FROM_AUTO && !kind && (n = pl_in_peek(in, PEEK, &p, err)) < 0)
		return (int)n;
	*what = IS_TRACE; /* its reader knows best what is wrong with a cut header */
	if (from == FROM_LAYERS || (n && has_header(p, (size_t)n)))
		*what = IS_LAYERS;
	else if (!kind)
		return pl_fail(
			err, PL_EDATA,
			"%s: not a stream of paceline; a profiler's file must pass through "
			"trace and merge first: trace FILE... | merge | graph; for a table of "
			"layers, -f layers",
			pl_in_name(in));
	else if (kind == PL_KIND_GRAPH)
		*what = IS_GRAPH;
	else if (kind != PL_KIND_TRACE && kind != PL_NONE)
		return pl_fail(err, PL_EDATA,
			       "%s: a stream of kind %c%c%c%c, neither trace nor graph",
			       pl_in_name(in), (int)(kind & 255), (int)(kind >> 8 & 255),
			       (int)(kind >> 16 & 255), (int)(kind >> 24));
	return 0;
}

/* ---- traces ---------------------------------------------------------------------------------- */

/* Append b to a, and leave b empty. */
static int append(struct pl_trace *a, struct pl_trace *b, const char *name, struct pl_err *err)
{
	a->n_merges += b->n_merges;
	if (a->n_merges > 1)
		return pl_fail(err, PL_EDATA,
			       "%s: was merged separately from the traces before it; give all "
			       "traces to one merge",
			       name);
	PL_CHECK(pl_grow(&a->seg, &a->cap_segs, (size_t)a->n_segs + b->n_segs, sizeof(*a->seg),
			 err));
	if (b->merged) {
		for (uint32_t i = 0; i < b->merge.n_uses; i++)
			b->merge.use[i].segment += a->n_segs;
		for (uint32_t i = 0; i < b->merge.n_members; i++)
			b->merge.member[i].segment += a->n_segs;
		a->merge = b->merge;
		a->merged = true;
		memset(&b->merge, 0, sizeof(b->merge));
	}
	for (pl_id i = 0, id; i < b->provenance.n; i++)
		PL_CHECK(pl_intern_add(&a->provenance, b->provenance.str[i], b->provenance.len[i],
				       &id, err));
	for (uint32_t i = 0; i < b->n_segs; i++)
		a->seg[a->n_segs++] = b->seg[i];
	b->n_segs = 0;
	return 0;
}

static int load_trace(const struct config *c, struct pl_in *in, struct pl_pool *pool,
		      struct pl_trace *t, struct pl_err *err)
{
	const struct pl_trace_reader_opts o = { .pool = pool,
						.salvage = c->salvage,
						.log = &c->c.log,
						.roles = PL_DERIVE_ROLES,
						.kinds = PL_DERIVE_KINDS,
						.metadata = PL_DERIVE_METADATA };
	struct pl_trace one;
	int rc;

	PL_CHECK(pl_trace_load(in, &o, &one, err));
	rc = append(t, &one, pl_in_name(in), err);
	pl_trace_fini(&one);
	return rc;
}

/* History: the lines of all segments, each once, then those of the merge. */
static int copy_provenance(struct pl_trace *t, struct pl_graph *g, struct pl_err *err)
{
	struct pl_intern *lines = &t->provenance;

	PL_CHECK(pl_trace_add_lines(lines, &t->merge.provenance, err));
	for (pl_id i = 0; i < lines->n; i++) {
		PL_CHECK(pl_buf_put(&g->provenance, lines->str[i], lines->len[i], err));
		PL_CHECK(pl_buf_put(&g->provenance, "\n", 1, err));
	}
	return 0;
}

static bool has_match(const struct pl_trace *t)
{
	for (uint32_t i = 0; i < t->merge.n_matches; i++)
		if (t->merge.match[i].n > 1)
			return true;
	return false;
}

/* All segments with ranks must be in the merge, because only the merge puts them on one clock. */
static int all_merged(const struct pl_trace *t, struct pl_err *err)
{
	for (uint32_t i = 0, use = 0; t->merged && i < t->n_segs; i++) {
		const struct pl_segment *s = &t->seg[i]->seg;
		bool used, ranks = false;

		for (uint32_t k = 0; k < s->n_tracks; k++)
			ranks |= s->track[k].rank >= 0;
		while (use < t->merge.n_uses &&
		       t->merge.use[use].segment < i) /* they are in order */
			use++;
		used = use < t->merge.n_uses && t->merge.use[use].segment == i;
		if (ranks && !used && t->seg[i]->n)
			return pl_fail(err, PL_EDATA,
				       "segment %u (%s) was added after the merge; give all traces "
				       "to one merge",
				       i, s->source ? s->source : "");
	}
	return 0;
}

static int build(const struct config *c, struct pl_trace *t, struct pl_pool *pool,
		 struct pl_graph *g, struct pl_err *err)
{
	const struct pl_derive_opts o = {
		.log = &c->c.log, .pool = pool, .infer = c->infer, .fold = c->fold_messages
	};
	int rc;

	PL_CHECK(all_merged(t, err));
	pl_progress("building the graph of %u segments", t->n_segs);
	PL_CHECK(pl_derive_graph(t, &o, g, err));
	rc = copy_provenance(t, g, err);
	if (rc < 0) {
		pl_graph_fini(g);
		return rc;
	}
	if (g->n_ranks > 1 && !has_match(t))
		pl_say(&c->c.log, PL_LOG_WARN,
		       "no communication was matched across the %d ranks: in this graph no rank "
		       "waits for another (merge --report=FILE shows the details)",
		       g->n_ranks);
	return 0;
}

static int load_layers(const struct config *c, struct pl_in *in, struct pl_graph *g,
		       struct pl_err *err)
{
	struct pl_layers_opts o = { .log = &c->c.log };
	struct layers_cost cost;
	int rc = layers_cost(c, &cost, &o, err);

	if (rc == 0)
		rc = pl_derive_layers(in, &o, g, err);
	pl_topology_fini(&cost.topo);
	return rc;
}

/* Does an option need a table of layers? */
static bool is_for_layers(const struct config *c)
{
	return c->ranks != -1 || c->program || c->topology || c->algorithm != -1 || c->bandwidth ||
	       c->latency != INT64_MIN;
}

static int load_one(const struct config *c, enum content what, struct pl_in *in,
		    struct pl_pool *pool, struct pl_trace *t, struct pl_graph *g,
		    struct pl_err *err)
{
	if (what == IS_LAYERS)
		return load_layers(c, in, g, err);
	return what == IS_GRAPH ? pl_derive_read(in, pool, g, err)
				: load_trace(c, in, pool, t, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

int load_graph(const struct config *c, int argc, char **argv, struct pl_pool *pool,
	       struct pl_graph *g, struct pl_err *err)
{
	struct pl_trace t = { 0 };
	struct pl_in *in = NULL;
	bool done = false;
	int rc = 0;

	for (int i = 0; i < (argc ? argc : 1); i++) {
		enum content what = IS_TRACE;

		in = pl_in_open(argc ? argv[i] : "-", err);
		PL_TRY(in ? 0 : err->code);
		pl_progress("reading %s", pl_in_name(in));
		PL_TRY(recognise(in, c->from, &what, err));
		done = what != IS_TRACE;
		if (done && argc > 1) {
			rc = pl_fail(err, PL_EUSAGE,
				     "%s: a %s; it can only be read alone, not with other files",
				     pl_in_name(in),
				     what == IS_GRAPH ? "graph" : "table of layers");
			goto out;
		}
		if (what != IS_LAYERS && is_for_layers(c))
			PL_TRY(pl_fail(err, PL_EUSAGE,
				       "%s: no table of layers; --ranks, --program, --topology, "
				       "--algorithm, --bandwidth, --latency are for these",
				       pl_in_name(in)));
		PL_TRY(load_one(c, what, in, pool, &t, g, err));
		pl_in_close(in);
		in = NULL;
	}
	if (!done && (rc = build(c, &t, pool, g, err)) < 0)
		pl_wrap(err, "%s", argc == 1 ? argv[0] : argc ? "these files" : "stdin");
out:
	pl_in_close(in);
	pl_trace_fini(&t);
	return rc;
}
