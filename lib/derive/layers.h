/*
 * layers.h - the graph of a step that nobody has run: from a table of layers.
 *
 * The table is CSV. Its header names the columns, in any order:
 *
 *	layer               name; all names differ
 *	forward_ns          time of the layer's forward pass on one rank
 *	backward_ns         time of its backward pass
 *	param_bytes         size of its parameters, and of their gradients; 0: no parameters
 *	activation_bytes    size of its activations, kept for the backward pass
 *	output_bytes        size of the output for the next layer (optional, activation_bytes)
 *	update_ns           time of the optimiser for its parameters (optional, 0)
 *	tensor              name of its parameters (optional, default: the name of the layer)
 *	type                type of their elements, "float" (optional)
 *	kind                type of the layer, for readers; ignored (optional)
 *
 * Rows are in the order of the forward pass. A time may instead be given as forward_us, _ms or _s.
 * A row whose first cell begins with '#' is a comment. One warning names other columns.
 */
#ifndef PL_LAYERS_H
#define PL_LAYERS_H

#include "graph/graph.h"
#include "lang/lang.h"

struct pl_layers_opts {
	const struct pl_log *log;
	const char *program; /* a statement of pl_derive_programs; NULL: "data-parallel" */
	uint32_t n_ranks;  /* of the job, at least 1; PL_NONE: as many as the program needs, or 8 */
	uint32_t per_host; /* consecutive ranks of one host; 0: all on one */
	/* The time of an all-reduce of `bytes` over n_ranks ranks, from the last arrival; not
	 * negative. Not called for one rank. */
	pl_ns (*transfer)(void *arg, int64_t bytes, uint32_t n_ranks);
	const char *algorithm; /* of these all-reduces; NULL: unknown */
	/* The time of a message from one rank to another; NULL: no time. */
	pl_ns (*message)(void *arg, int64_t bytes, uint32_t from, uint32_t to);
	void *arg;
};
extern const struct pl_lang_schema pl_derive_programs; /* what the ranks of a job execute */
/*
 * One step of a job whose ranks execute the program. The recorded times are the simulated times, so
 * a replay has no unexplained time. Tensors are the parameters, gradients and activations of every
 * rank. Errors name file and line.
 */
int pl_derive_layers(struct pl_in *in, const struct pl_layers_opts *o, struct pl_graph *g,
		     struct pl_err *err) PL_MUST;
/* Do these first bytes look like a table of layers? */
bool pl_derive_is_layers(const uint8_t *p, size_t n);

#endif
