/* program.h - what the files of the program `graph` share. */
#ifndef GRAPH_PROGRAM_H
#define GRAPH_PROGRAM_H

#include "core/cmd.h"
#include "cost/cost.h"
#include "derive/derive.h"
#include "derive/layers.h"
#include "derive/opgraph.h"
#include "sim/sim.h"

struct config {
	struct pl_common c; /* first */
	struct pl_list rank, step;
	int to, from;
	bool infer, salvage, fold_messages;
	/* of tables of layers; not given: NULL and -1, the latency INT64_MIN */
	int64_t ranks;
	pl_ns latency;
	const char *topology, *program, *bandwidth;
	int algorithm; /* enum pl_algo */
	/* of tables of operations; not given: NULL, 0 and for the mode -1 */
	int mode; /* MODE_* */
	int64_t repeat;
	const char *repeat_match, *type;
	bool operators; /* of jobs */
};
enum { FROM_AUTO, FROM_TRACE, FROM_LAYERS, FROM_OPGRAPH, FROM_JOB };
enum { MODE_INFERENCE, MODE_TRAIN };

/* ---- input.c --------------------------------------------------------------------------------- */

/* One graph stream, one table of layers, or one or more trace streams built into one graph. */
int load_graph(const struct config *c, int argc, char **argv, struct pl_pool *pool,
	       struct pl_graph *g, struct pl_err *err) PL_MUST;

/* ---- job.c ----------------------------------------------------------------------------------- */

/* The graph of a step of the job. */
int load_step(const struct config *c, struct pl_in *in, struct pl_graph *g,
	      struct pl_err *err) PL_MUST;

/* ---- cost.c ---------------------------------------------------------------------------------- */

struct layers_cost {
	struct pl_topology topo;
	struct pl_cost_comm comm;
};
/* Place and cost of the ranks of a job that nobody has run: fills n_ranks, per_host, transfer and
 * arg of the options; *x is what they refer to. */
int layers_cost(const struct config *c, struct layers_cost *x, struct pl_layers_opts *o,
		struct pl_err *err) PL_MUST;

#endif
