/*
 * The graph of a job from traces and files of profilers.
 *
 * The stages trace, merge and graph run one after another in this process. The events of all
 * inputs go into a spool, in the form of a trace that is not compressed. It is read twice: for the
 * clocks, which need the communication alone, and for the graph. So the memory is that of the
 * largest stage, where a pipe has all three at a time; the spool needs a temporary file of about
 * 15 bytes for each event. In a pipe the stages overlap, here only the files of the ranks do.
 */
#include "clock/clock.h"
#include "core/progress.h"
#include "derive/chakra.h"
#include "derive/derive.h"
#include "inputs/inputs.h"
#include "io/container.h"

/* ---- what the inputs are --------------------------------------------------------------------- */

/* Refuse an input from which no graph can be made: name its kind and the command to type. */
static int refuse(const struct pl_input *i, struct pl_err *err)
{
	const char *name = pl_inputs_name(i);
	char kind[8];

	if (i->layers)
		return pl_fail(err, PL_EDATA,
			       "%s: this is a table of layers; type: graph %s | replay", name,
			       name);
	if (i->operations)
		return pl_fail(err, PL_EDATA,
			       "%s: this is a table of operations, which have no times; type: "
			       "graph --mode=train %s | predict -m MODEL --devices=FOLDER "
			       "--device=NAME -O graph | replay",
			       name, name);
	if (i->job)
		return pl_fail(err, PL_EDATA,
			       "%s: this is the text of a job, not a trace; type, to train it: run "
			       "%s; for the graph of its step: graph %s | predict -m MODEL "
			       "--device=NAME -O graph | replay",
			       name, name, name);
	return pl_fail(err, PL_EDATA, "%s: this is a %s, not a graph or a trace; %s", name,
		       pl_container_kind_name(i->kind, kind), pl_container_kind_use(i->kind));
}

/* The number of execution traces of Chakra. */
static size_t count_chakra(const struct pl_inputs *in)
{
	size_t n = 0;

	for (size_t i = 0; i < in->n; i++)
		n += in->v[i].chakra;
	return n;
}

int pl_inputs_are_graphs(const struct pl_inputs *in, bool *graphs, struct pl_err *err)
{
	const struct pl_input *graph = NULL;
	size_t n = 0;

	for (size_t i = 0; i < in->n; i++) {
		uint32_t kind = in->v[i].kind;

		if (kind == PL_KIND_GRAPH) {
			graph = &in->v[i];
			n++;
		} else if (in->v[i].layers || in->v[i].operations || in->v[i].job ||
			   (kind && kind != PL_KIND_TRACE && kind != PL_NONE)) {
			return refuse(&in->v[i], err);
		}
	}
	*graphs = n == in->n;
	if (count_chakra(in) && count_chakra(in) != in->n)
		return pl_fail(
			err, PL_EUSAGE,
			"execution traces of Chakra are graphs; name them alone, one of each "
			"rank");
	if (n && !*graphs)
		return pl_fail(err, PL_EUSAGE,
			       "%s: this is a graph among other files; name graphs alone, or the "
			       "files of one recording without it",
			       pl_inputs_name(graph));
	return *graphs ? 0 : pl_inputs_check(in, err);
}

/* ---- a graph of traces ----------------------------------------------------------------------- */

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

static int load_trace(const struct pl_inputs_graph *o, struct pl_in *in,
		      const struct pl_merge *merge, struct pl_trace *t, struct pl_err *err)
{
	const struct pl_trace_reader_opts opts = { .pool = o->pool,
						   .salvage = o->salvage,
						   .log = &o->stage[PL_STAGE_GRAPH].log,
						   .roles = PL_DERIVE_ROLES,
						   .kinds = PL_DERIVE_KINDS,
						   .metadata = PL_DERIVE_METADATA,
						   .merge = merge };

	return pl_trace_load(in, &opts, t, err);
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

static int build(const struct pl_inputs_graph *o, struct pl_trace *t, struct pl_graph *g,
		 struct pl_err *err)
{
	const struct pl_derive_opts opts = { .log = &o->stage[PL_STAGE_GRAPH].log,
					     .pool = o->pool,
					     .infer = o->infer,
					     .fold = o->fold };
	int rc;

	PL_CHECK(all_merged(t, err));
	pl_progress("building the graph of %u segments", t->n_segs);
	PL_CHECK(pl_derive_graph(t, &opts, g, err));
	rc = copy_provenance(t, g, err);
	if (rc < 0) {
		pl_graph_fini(g);
		return rc;
	}
	if (g->n_ranks > 1 && !has_match(t))
		pl_say(opts.log, PL_LOG_WARN,
		       "no communication was matched across the %d ranks: in this graph no rank "
		       "waits for another (merge --report=FILE shows the details)",
		       g->n_ranks);
	if (g->unmatched_comm)
		pl_say(opts.log, PL_LOG_WARN,
		       "%lld sends, receives and collectives have no partner: nobody waits for "
		       "them, and predictions may be wrong",
		       (long long)g->unmatched_comm);
	return 0;
}

int pl_inputs_from_traces(struct pl_inputs *in, const struct pl_inputs_graph *o, struct pl_graph *g,
			  struct pl_err *err)
{
	struct pl_trace t = { 0 };
	int rc = 0;

	for (size_t i = 0; i < in->n; i++) {
		struct pl_in *f = pl_inputs_open(&in->v[i], err);
		struct pl_trace one = { 0 };

		PL_TRY(f ? 0 : err->code);
		pl_progress("reading %s", pl_in_name(f));
		rc = load_trace(o, f, NULL, &one, err);
		if (rc >= 0)
			rc = append(&t, &one, pl_in_name(f), err);
		pl_trace_fini(&one);
		pl_in_close(f);
		PL_TRY(rc);
	}
	rc = build(o, &t, g, err);
	if (rc < 0)
		pl_wrap(err, "%s", pl_inputs_all(in));
out:
	pl_trace_fini(&t);
	return rc;
}

/* ---- the stages ------------------------------------------------------------------------------ */

void pl_inputs_graph_init(struct pl_inputs_graph *o, const struct pl_common *c,
			  struct pl_pool *pool)
{
	static const char *const name[] = { "trace", "merge", "graph" };

	*o = (struct pl_inputs_graph){ .pool = pool, .infer = true, .verbose = c->verbose };
	for (int i = 0; i < PL_STAGES; i++)
		pl_stage_log_init(&o->stage[i], c, name[i]);
}

/* The stage `trace`: all inputs into the spool. */
static int import(struct pl_inputs *in, const struct pl_inputs_graph *o, struct pl_spool *spool,
		  struct pl_err *err)
{
	struct pl_inputs_load l = { .import = { .log = &o->stage[PL_STAGE_TRACE].log,
						.salvage = o->salvage },
				    .pool = o->pool };
	struct pl_out *out = pl_io_spool_write(spool, err);

	if (!out)
		return err->code;
	return pl_out_finish(out, pl_inputs_load(in, &l, out, NULL, err), err);
}

/* The stage `merge`: the clocks and matches of the trace in the spool. */
static int align(const struct pl_inputs_graph *o, struct pl_in *in, struct pl_merge *m,
		 struct pl_err *err)
{
	const struct pl_align_opts align = { .log = &o->stage[PL_STAGE_MERGE].log };
	const struct pl_trace_reader_opts read = { .pool = o->pool,
						   .log = align.log,
						   .roles = PL_CLOCK_ROLES };
	struct pl_clock_report r = { 0 };
	struct pl_align *a = pl_clock_new(&align, err);
	int rc = a ? pl_trace_read(in, &read, pl_clock_sink(a), err) : err->code;

	if (rc >= 0) {
		pl_progress("aligning the clocks of %u segments", pl_clock_segments(a));
		rc = pl_clock_solve(a, m, &r, err);
	}
	if (rc >= 0 && o->verbose)
		pl_clock_report_say(m, &r, align.log);
	pl_clock_report_fini(&r);
	pl_clock_free(a);
	return rc;
}

/* The stage `graph`. */
static int derive(const struct pl_inputs_graph *o, struct pl_in *in, const struct pl_merge *m,
		  struct pl_graph *g, struct pl_err *err)
{
	struct pl_trace t = { 0 };
	int rc = load_trace(o, in, m, &t, err);

	if (rc >= 0 && (rc = build(o, &t, g, err)) < 0)
		pl_wrap(err, "%s", pl_in_name(in));
	pl_trace_fini(&t);
	return rc;
}

static struct pl_in *open_file(void *arg, size_t i, struct pl_err *err)
{
	struct pl_inputs *in = arg;
	struct pl_in *raw = pl_inputs_open(&in->v[i], err);

	return raw ? pl_import_open(raw, NULL, err) : NULL;
}

int pl_inputs_graph(struct pl_inputs *in, const struct pl_inputs_graph *o, struct pl_graph *g,
		    struct pl_err *err)
{
	int stage = PL_STAGE_TRACE;
	struct pl_spool *spool = NULL;
	struct pl_merge m = { 0 };
	struct pl_in *f = NULL;
	int rc;

	if (in->n == 1 && in->v[0].merged)
		return pl_inputs_from_traces(in, o, g, err);
	if (count_chakra(in))
		return pl_derive_chakra(in->n, open_file, in, &o->stage[PL_STAGE_GRAPH].log, g,
					err);
	spool = pl_io_spool_new(err);
	PL_TRY(spool ? 0 : err->code);
	PL_TRY(import(in, o, spool, err));
	stage = PL_STAGE_MERGE;
	f = pl_io_spool_read(spool, pl_inputs_all(in), err);
	PL_TRY(f ? align(o, f, &m, err) : err->code);
	pl_in_close(f);
	stage = PL_STAGE_GRAPH;
	f = pl_io_spool_read(spool, pl_inputs_all(in), err);
	PL_TRY(f ? derive(o, f, &m, g, err) : err->code);
out:
	pl_in_close(f);
	pl_io_spool_free(spool);
	pl_trace_merge_fini(&m);
	return rc < 0 ? pl_wrap(err, "%s", o->stage[stage].name) : rc;
}
