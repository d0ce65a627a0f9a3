/*
 * Input of the program: a graph; or traces, files of profilers, a job or a table from which it
 * makes a graph. The first bytes of a file show which it is.
 */
#include "derive/describe.h"
#include "inputs/inputs.h"
#include "io/container.h"
#include "kernel/kernel.h"
#include "program.h"

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

static int load_opgraph(const struct config *c, struct pl_in *in, struct pl_graph *g,
			struct pl_err *err)
{
	const struct pl_opgraph_opts o = { .type = c->type ? c->type : "float32",
					   .train = c->mode == MODE_TRAIN,
					   .repeat = c->repeat ? (uint32_t)c->repeat : 1,
					   .match = c->repeat_match };

	if (c->repeat < 0 || c->repeat > 1 << 20)
		return pl_fail(err, PL_EUSAGE, "--repeat: %lld is not 1 to %d",
			       (long long)c->repeat, 1 << 20);
	if ((c->repeat > 1) != (c->repeat_match != NULL))
		return pl_fail(err, PL_EUSAGE,
			       "--repeat=N and --repeat-match=TEXTS go together: the layer that is "
			       "repeated is found by its name");
	if (pl_kernel_type_find(o.type) < 0)
		return pl_fail(err, PL_EUSAGE, "--type: \"%s\" is not float32, float16 or bfloat16",
			       o.type);
	return pl_derive_opgraph(in, &o, g, err);
}

/* Does an option need a job or a table of layers? */
static bool is_for_layers(const struct config *c)
{
	return c->ranks != -1 || c->program || c->topology || c->algorithm != -1 || c->bandwidth ||
	       c->latency != INT64_MIN;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Only traces, which need not be merged if they are of one rank. */
static bool are_traces(const struct pl_inputs *in)
{
	for (size_t i = 0; i < in->n; i++)
		if (in->v[i].kind != PL_KIND_TRACE && in->v[i].kind != PL_NONE)
			return false;
	return true;
}

/* What only one file can be: `from`, or a graph (FROM_AUTO). */
static int load_alone(const struct config *c, struct pl_input *i, int from, struct pl_pool *pool,
		      struct pl_graph *g, struct pl_err *err)
{
	struct pl_in *in = pl_inputs_open(i, err);
	int rc;

	if (from >= FROM_LAYERS)
		in = pl_in_any(in, err);
	if (!in)
		return err->code;
	if (from == FROM_OPGRAPH)
		rc = load_opgraph(c, in, g, err);
	else if (from == FROM_LAYERS)
		rc = load_layers(c, in, g, err);
	else if (from == FROM_JOB)
		rc = load_step(c, in, g, err);
	else
		rc = pl_derive_read(in, pool, g, err);
	pl_in_close(in);
	return rc;
}

static int load_job(const struct config *c, struct pl_inputs *in, struct pl_pool *pool,
		    struct pl_graph *g, struct pl_err *err)
{
	struct pl_inputs_graph o;

	pl_inputs_graph_init(&o, &c->c, pool);
	o.infer = c->infer;
	o.fold = c->fold_messages;
	o.salvage = c->salvage;
	return (are_traces(in) ? pl_inputs_from_traces : pl_inputs_graph)(in, &o, g, err);
}

int load_graph(const struct config *c, int argc, char **argv, struct pl_pool *pool,
	       struct pl_graph *g, struct pl_err *err)
{
	const struct pl_inputs_opts o = { .log = &c->c.log, .pairs = true };
	static const char *const words[] = { [FROM_AUTO] = "graph",
					     [FROM_LAYERS] = "table of layers",
					     [FROM_OPGRAPH] = "table of operations",
					     [FROM_JOB] = "job" };
	struct pl_inputs in = { 0 };
	bool graph = false, described;
	int from, rc;

	PL_TRY(pl_inputs_find(&in, &o, argc, argv, err));
	from = c->from != FROM_AUTO ? c->from
	       : in.v[0].layers	    ? FROM_LAYERS
	       : in.v[0].operations ? FROM_OPGRAPH
	       : in.v[0].job	    ? FROM_JOB
				    : FROM_AUTO;
	described = from >= FROM_LAYERS;
	if (!described)
		PL_TRY(pl_inputs_are_graphs(&in, &graph, err));
	if ((described || graph) && in.n > 1)
		PL_TRY(pl_fail(err, PL_EUSAGE,
			       "%s: a %s; it can only be read alone, not with other files",
			       pl_inputs_name(&in.v[0]), words[described ? from : FROM_AUTO]));
	if (c->operators && from != FROM_JOB)
		PL_TRY(pl_fail(err, PL_EUSAGE, "%s: no job; --operators is for jobs",
			       pl_inputs_name(&in.v[0])));
	if (from != FROM_OPGRAPH && (c->mode != -1 || c->repeat || c->repeat_match || c->type))
		PL_TRY(pl_fail(err, PL_EUSAGE,
			       "--mode, --repeat, --repeat-match and --type are for tables of "
			       "operations (-f opgraph)"));
	if ((!described || from == FROM_OPGRAPH) && is_for_layers(c))
		PL_TRY(pl_fail(err, PL_EUSAGE,
			       "%s: no table of layers and no job; --ranks, --program, "
			       "--topology, --algorithm, --bandwidth, --latency are for these",
			       pl_inputs_name(&in.v[0])));
	rc = described || graph
		     ? load_alone(c, &in.v[0], described ? from : FROM_AUTO, pool, g, err)
		     : load_job(c, &in, pool, g, err);
out:
	pl_inputs_fini(&in);
	return rc;
}
