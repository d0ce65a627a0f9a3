/*
 * generate_internal.h - what the generators of graphs share: the table of layers, and the parts of
 * a rank's program that several generators need.
 *
 * A generator is a row of pl_derive_programs and a function; generate.c has the list.
 */
#ifndef PL_DERIVE_GENERATE_INTERNAL_H
#define PL_DERIVE_GENERATE_INTERNAL_H

#include "derive/describe.h"
#include "derive/layers.h"
#include "derive/put.h"
#include "graph/program.h"

#define TIME_MAX (((pl_ns)1 << 60) - 1) /* of a graph: see valid.c */
#define TOO_LONG "the step would last more than 36 years; are the units right?"

struct layer_op {
	pl_id name;
	uint32_t work; /* row of the graph's work, PL_NONE */
	uint8_t phase; /* enum pl_phase */
	pl_ns ns;
};
struct layer_ops { /* of a pass, at least one: into layer_table.op */
	uint32_t first, n;
};
struct layer {
	struct layer_ops forward, backward;
	pl_id module, reduce;		      /* of its nodes, PL_NONE; name of its all-reduce */
	pl_id grad, param, activation, input; /* names of the tensors of the layer */
	pl_id type;
	pl_ns update_ns;
	int64_t weight; /* its part of a pass: ns, or FLOP / 1000 where no layer has a time */
	int64_t param_bytes, activation_bytes, output_bytes;
	int64_t input_bytes; /* of its activations: the input, which the layer before made; 0: not
				known */
};
struct layer_table {
	const struct pl_layers_opts *o;
	struct pl_graph *g;
	struct pl_err *err; /* the first failure, which the functions below leave there (put.h) */
	const char *file;
	struct layer *layer; /* [n], in the order of the forward pass */
	struct layer_op *op;
	size_t n, cap, n_ops, cap_ops;
	pl_id update;		     /* name of the optimiser's operation */
	int update_numbers;	     /* as struct pl_layers_table has it */
	struct pl_derive_work *work; /* of the graph; NULL: operations have none */
	pl_ns update_ns, total_ns;   /* sums over all layers: of updates, of all times */
	uint32_t n_ranks;	     /* of the job; PL_NONE until the generator has chosen it */
};

/* Makes shapes, steps, groups and tensors of t->g. It chooses t->n_ranks where that is PL_NONE. */
typedef void pl_derive_generator(struct layer_table *t, const struct pl_lang_statement *st);
pl_derive_generator pl_derive_data_parallel;
pl_derive_generator pl_derive_pipeline;

/* The generator of a statement. */
pl_derive_generator *pl_derive_generator_of(const struct pl_lang_statement *st);

/* ---- parts of programs and graphs ------------------------------------------------------------ */

/* Every rank has these resources first. */
enum { PL_GENERATE_COMPUTE, PL_GENERATE_COMM, PL_GENERATE_RESOURCES };

pl_id pl_derive_name(const struct layer_table *t, const char *name);
/* An operation of a program; after operation `op` as well, if that is not PL_NONE. */
uint32_t pl_derive_put_op(const struct layer_table *t, struct pl_program *p,
			  const struct pl_graph_program_op *op);
void pl_derive_put_after(const struct layer_table *t, struct pl_program *p, uint32_t op,
			 unsigned type);
/* The begin or the end of the step: an operation without time, after the last one. */
void pl_derive_put_mark(const struct layer_table *t, struct pl_program *p, bool begin);
/* The pass of a layer: the operation that ends it. */
struct layer_pass {
	size_t layer;
	bool forward;
	int32_t mb, chunk; /* -1 */
	/* the last computation of the rank; and an operation that brings the data of the pass,
	 * PL_NONE: none */
	uint32_t after, data;
};
uint32_t pl_derive_put_pass(const struct layer_table *t, struct pl_program *p,
			    const struct layer_pass *x);
/* The update of so many bytes of parameters. */
uint32_t pl_derive_put_update(const struct layer_table *t, struct pl_program *p, pl_ns ns,
			      int64_t bytes, uint32_t after);
/* Computation after operation `after`, the last computation of the rank. */
uint32_t pl_derive_put_compute(const struct layer_table *t, struct pl_program *p,
			       const struct pl_graph_program_op *what, uint32_t after);
/* An all-reduce of gradients over so many ranks of a group, of which those of `layer` become ready
 * last: after operation `after` and the communication before it (PL_NONE: none). Its time is added
 * to *total. */
struct layer_reduce {
	size_t layer;
	pl_id name;
	int64_t bytes;
	uint32_t comm, group, ranks, after, before;
};
uint32_t pl_derive_put_reduce(const struct layer_table *t, struct pl_program *p,
			      const struct layer_reduce *r, pl_ns *total);
/* The parameters and gradients of a layer, given the nodes that first use the parameters, make the
 * gradients, carry them on, and update the parameters. */
void pl_derive_put_params(const struct layer_table *t, size_t layer, uint32_t forward,
			  uint32_t backward, uint32_t carrier, uint32_t optimizer);
/* The activations of a layer between two nodes, its input apart: that is not recomputed. */
void pl_derive_put_activation(const struct layer_table *t, size_t layer, uint32_t forward,
			      uint32_t backward);
/* Adds a time to the length of the step; PL_ELIMIT if the step is then too long. */
void pl_derive_add_length(const struct layer_table *t, pl_ns dur, pl_ns *total);

#endif
