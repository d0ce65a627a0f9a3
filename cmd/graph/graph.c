/* graph - the global data-flow graph of a job, from its traces; or a view of one. */
#include "config.h"
#include "core/progress.h"
#include "graph/chakra.h"
#include "program.h"

#define AT(m) offsetof(struct config, m)

enum { TO_GRAPH, TO_STAT, TO_STAT_JSON, TO_TEXT, TO_DOT, TO_JSON, TO_CHAKRA };

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	PL_OPTS_OUTPUT,
	{ 'O', "to", "FORMAT", "write graph (default), stat, stat-json, text, dot, json or chakra",
	  PL_OPT_CHOICE, AT(to), "graph|stat|stat-json|text|dot|json|chakra" },
	{ 0, "rank", "LIST", "show only these ranks (\"0,4-7\"); not with -O graph", PL_OPT_LIST,
	  AT(rank), NULL },
	{ 0, "step", "LIST", "keep only these steps (\"3,10-20\")", PL_OPT_LIST, AT(step), NULL },
	PL_OPTS_HEADING("building a graph from traces"),
	{ 0, "infer", NULL,
	  "infer waits for events and threads that were not recorded (default; --no-infer)",
	  PL_OPT_FLAG, AT(infer), NULL },
	{ 0, "fold-messages", NULL,
	  "make one transfer for each member of a collective, without its messages", PL_OPT_FLAG,
	  AT(fold_messages), NULL },
	{ 0, "salvage", NULL, "keep the whole blocks of a damaged trace", PL_OPT_FLAG, AT(salvage),
	  NULL },
	{ 'f', "from", "FORMAT",
	  "set the input format: trace, job, layers or opgraph (tables) or auto (default)",
	  PL_OPT_CHOICE, AT(from), "auto|trace|layers|opgraph|job" },
	PL_OPTS_HEADING("making a graph from a job, or from a table of layers"),
	{ 0, "ranks", "N", "set the number of ranks (default: of the job; of the topology, or 8)",
	  PL_OPT_INT, AT(ranks), NULL },
	{ 0, "topology", "SPEC",
	  "set the topology: FILE or HOSTSxRANKS[:PRESET] (\"16x8:v100-100g\")", PL_OPT_STR,
	  AT(topology), NULL },
	{ 0, "program", "STATEMENT",
	  "set what the ranks execute: data-parallel (default); --help=statements", PL_OPT_STR,
	  AT(program), NULL },
	{ 0, "algorithm", "NAME",
	  "set the all-reduce: ring (default), tree, halving-doubling, hierarchical, ps",
	  PL_OPT_CHOICE, AT(algorithm), "ring|tree|halving-doubling|hierarchical|ps" },
	{ 0, "bandwidth", "RATE",
	  "without a topology: set the rate of each link (\"12GB/s\"; default 12G)", PL_OPT_STR,
	  AT(bandwidth), NULL },
	{ 0, "latency", "TIME", "without a topology: set the latency of a message (default 5us)",
	  PL_OPT_TIME, AT(latency), NULL },
	{ 0, "operators", NULL,
	  "job: make a node of each kernel that a GPU runs, not of each pass of a layer",
	  PL_OPT_FLAG, AT(operators), NULL },
	PL_OPTS_HEADING("making a graph from a table of operations (-f opgraph)"),
	{ 0, "mode", "MODE", "opgraph: make a step of inference (default) or of training",
	  PL_OPT_CHOICE, AT(mode), "inf|train" },
	{ 0, "repeat", "N", "opgraph: repeat the layer of the table N times", PL_OPT_INT,
	  AT(repeat), NULL },
	{ 0, "repeat-match", "TEXTS",
	  "opgraph: the layer is the rows whose name holds one of TEXTS (\"layer_0|h_0\")",
	  PL_OPT_STR, AT(repeat_match), NULL },
	{ 0, "type", "TYPE",
	  "opgraph: set the type of the elements: float32 (default), float16 ...", PL_OPT_STR,
	  AT(type), NULL },
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	PL_OPTS_THREADS,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->infer = true;
	c->ranks = c->algorithm = c->mode = -1;
	c->latency = INT64_MIN;
}

/* Replace g by the ranks and steps asked for. */
static int cut(const struct config *c, struct pl_graph *g, struct pl_err *err)
{
	int64_t *rank = NULL, *step = NULL;
	struct pl_graph_part part = { 0 };
	int rc;

	PL_TRY(pl_parse_ranges(&c->rank, "rank", &rank, &part.n_ranks, err));
	PL_TRY(pl_parse_ranges(&c->step, "step", &step, &part.n_steps, err));
	part.rank = rank;
	part.step = step;
	if (part.n_ranks || part.n_steps)
		PL_TRY(pl_graph_pick(g, &part, g, err));
out:
	pl_free(rank);
	pl_free(step);
	return rc;
}

static int write_graph(const struct config *c, const struct pl_graph *g, struct pl_pool *pool,
		       struct pl_out *out, struct pl_err *err)
{
	struct pl_buf line = { 0 };
	int rc = pl_provenance(&c->c, &line, err);

	if (rc >= 0)
		rc = pl_graph_write(g, out, (int)c->c.level, pool, (const char *)line.p, err);
	pl_buf_fini(&line);
	return rc;
}

static int show(const struct config *c, const struct pl_graph *g, struct pl_out *out,
		struct pl_err *err)
{
	static const enum pl_graph_view view[] = { [TO_STAT] = PL_GV_STAT,
						   [TO_STAT_JSON] = PL_GV_STAT_JSON,
						   [TO_TEXT] = PL_GV_TEXT,
						   [TO_DOT] = PL_GV_DOT,
						   [TO_JSON] = PL_GV_JSON };

	return pl_graph_show(g, view[c->to], out, err);
}

/* The ranks as execution traces: PREFIX.RANK.et each; one rank alone may go to standard output. */
static int write_chakra(const struct config *c, const struct pl_graph *g, struct pl_err *err)
{
	const char *prefix = c->c.output && strcmp(c->c.output, "-") ? c->c.output : NULL;
	struct pl_chakra_lost lost = { 0 };
	struct pl_buf path = { 0 };
	int rc = 0;

	if (!prefix && g->n_ranks > 1)
		return pl_fail(err, PL_EUSAGE,
			       "%d ranks become %d files; type: graph -O chakra -o PREFIX (or "
			       "choose one with --rank)",
			       g->n_ranks, g->n_ranks);
	for (int32_t r = 0; r < g->n_ranks && rc >= 0; r++) {
		struct pl_out *out;

		path.n = 0;
		if (prefix)
			PL_TRY(pl_buf_printf(&path, err, "%s.%d.et", prefix, g->rank[r]));
		out = pl_out_open(prefix ? (const char *)path.p : NULL, true, err);
		PL_TRY(out ? 0 : err->code);
		rc = pl_out_finish(out, pl_graph_write_chakra(g, (uint32_t)r, out, &lost, err),
				   err);
	}
	if (rc >= 0 && lost.edges)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu waits of one rank for another that are no communication are left out",
		       (unsigned long long)lost.edges);
	if (rc >= 0 && lost.comms)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu communications have no word in Chakra; they are computation there",
		       (unsigned long long)lost.comms);
	if (rc >= 0 && lost.groups)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%llu of %zu groups have ranks that are not written: a simulator waits for "
		       "them; write all ranks of the job",
		       (unsigned long long)lost.groups, (size_t)g->n_groups);
out:
	pl_buf_fini(&path);
	return rc;
}

/* The output is opened before the work: what cannot be written should be known at once. */
static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	const struct config *c = config;
	struct pl_pool *pool = NULL;
	struct pl_out *out = NULL;
	struct pl_graph g;
	int rc;

	pl_graph_init(&g);
	if (c->from == FROM_LAYERS && c->salvage)
		return pl_fail(err, PL_EUSAGE, "--salvage is for traces, not for tables of layers");
	if (c->to == TO_GRAPH && c->rank.n)
		return pl_fail(
			err, PL_EUSAGE,
			"--rank is for looking at a graph (-O stat, dot ...); to make one of "
			"fewer ranks, take them from the trace: trace --rank");
	if (c->to != TO_CHAKRA && !(out = pl_out_open(c->c.output, c->to == TO_GRAPH, err)))
		return err->code;
	pool = pl_pool_new((int)c->c.threads, err);
	PL_TRY(pool ? 0 : err->code);
	PL_TRY(load_graph(c, argc, argv, pool, &g, err));
	if (c->fold_messages || c->to == TO_CHAKRA)
		PL_TRY(pl_sim_fold_messages(&g, err));
	rc = cut(c, &g, err);
	if (rc < 0) {
		pl_wrap(err, "%s", argc == 1 ? argv[0] : argc ? "these files" : "stdin");
		goto out;
	}
	pl_progress("writing");
	rc = c->to == TO_CHAKRA	 ? write_chakra(c, &g, err)
	     : c->to == TO_GRAPH ? write_graph(c, &g, pool, out, err)
				 : show(c, &g, out, err);
out:
	pl_graph_fini(&g);
	pl_pool_free(pool);
	return out ? pl_out_finish(out, rc, err) : rc;
}

static const struct pl_lang_schema *const languages[] = { &pl_derive_programs, NULL };

const struct pl_cmd pl_command = {
	.name = "graph",
	.synopsis = "[OPTION]... [FILE|FOLDER]...",
	.summary = "Build the data-flow graph of a job from its traces, or show a graph.",
	.details = "Reads a merged trace (a trace of one rank need not be merged), the files of a "
		   "profiler, one of each rank, which it imports and merges first, a graph, or a "
		   "job or a table of layers or operations (CSV), from which it makes a step that "
		   "nobody has run.\n"
		   "Without a file: standard input.",
	.examples = "graph -o job.graph *.pt.trace.json.gz\n"
		    "graph -O stat job.graph",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.languages = languages,
	.help = pl_lang_help,
	.run = run,
};
