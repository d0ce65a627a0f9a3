/*
 * layers.h - the graph of a step that nobody has run: from a table of layers, which is a file or
 * the caller's.
 *
 * The file is CSV. Its header names the columns, in any order:
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
	/* Data-parallel: gradients travel in buckets of so many bytes, as those of PyTorch's
	 * DistributedDataParallel do; 0: those of each layer by themselves. */
	int64_t bucket_bytes;
	uint32_t passes; /* data-parallel: forward and backward passes of a step; 0: 1 */
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

/* An operation of a layer, without a duration: paceline-predict(1) gives it one. */
struct pl_layers_op {
	const char *name;     /* by which cost models know it */
	uint8_t op, phase;    /* enum pl_operator, enum pl_phase */
	const char *dims;     /* of its inputs, as struct pl_gwork has them; NULL: unknown */
	int64_t flops, bytes; /* -1: unknown */
};
struct pl_layers_row {
	const char *name, *tensor; /* of the layer and of its parameters; all names differ */
	int64_t param_bytes, activation_bytes, output_bytes; /* as in the file */
	const struct pl_layers_op *op;	/* those of the forward pass, then of the backward pass */
	uint32_t n_forward, n_backward; /* at least 1 of each */
};
struct pl_layers_table {
	const char *name; /* for messages */
	const struct pl_layers_row *row;
	size_t n;
	const char *type;   /* of all elements */
	const char *update; /* name of the optimiser's operation, whose input is the parameters */
	int update_numbers; /* of 4 bytes that it reads and writes for a parameter; 0: unknown */
};
/* The same from a table in memory. Nodes have phase, module (the layer) and work, too. */
int pl_derive_layers_table(const struct pl_layers_table *table, const struct pl_layers_opts *o,
			   struct pl_graph *g, struct pl_err *err) PL_MUST;
/* Do these first bytes look like a table of layers? */
bool pl_derive_is_layers(const uint8_t *p, size_t n);

#endif
