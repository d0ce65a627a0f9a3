/*
 * layers.h - the graph of a step that nobody has run: from a table of layers.
 *
 * The table is CSV. Its header names the columns, in any order:
 *
 *	layer               name; every row another
 *	forward_ns          time of the layer's forward pass on one rank
 *	backward_ns         time of its backward pass
 *	param_bytes         size of its parameters, and of their gradients; 0: it has none
 *	activation_bytes    what its forward pass keeps for its backward pass
 *	update_ns           time of the optimiser for its parameters (optional, 0)
 *	tensor              name of its parameters (optional, that of the layer)
 *	type                type of their elements, "float" (optional)
 *	kind                what the layer is, for people; not kept (optional)
 *
 * Rows are in the order of the forward pass. A time may instead be given as forward_us, _ms or _s.
 * A row whose first cell begins with '#' is a comment. Of other columns one warning is given.
 */
#ifndef PL_LAYERS_H
#define PL_LAYERS_H

#include "graph/graph.h"

struct pl_layers_opts {
	const struct pl_log *log;
	uint32_t n_ranks;  /* at least 1: replicas, with one group over all */
	uint32_t per_host; /* consecutive ranks of one host; 0: all on one */
	/* How long n_ranks ranks take to add up `bytes` each, from the last arrival on; not
	 * negative. Not called when there is one rank. */
	pl_ns (*transfer)(void *arg, int64_t bytes, uint32_t n_ranks);
	void *arg;
};
/*
 * One step of synchronous data-parallel training. Every rank computes forward in order and backward
 * in reverse; the gradients of a layer are added up over all ranks as soon as its backward pass is
 * over and the communication before is; the optimiser follows when all of that is done. The
 * recorded times are those of this simulation, so a replay has nothing to explain. Tensors are
 * parameters, gradients and activations of every rank. Errors name file and line.
 */
int pl_derive_layers(struct pl_in *in, const struct pl_layers_opts *o, struct pl_graph *g,
		     struct pl_err *err) PL_MUST;

#endif
