/*
 * kernels.h - operations of graphs as the kernels of cost models (kernel/kernel.h): their family
 * and dimensions follow from the operator and the sizes of the inputs.
 */
#ifndef PL_COST_KERNELS_H
#define PL_COST_KERNELS_H

#include "graph/graph.h"
#include "kernel/kernel.h"

/* enum pl_kernel_type of a type of elements; float32 where it is not known or NULL. */
uint8_t pl_cost_kernel_type(const char *word);
/* The kernel of a row of work with these sizes of inputs (as pl_gwork.dims, NULL: unknown) on
 * elements of type k->type; false: the sizes do not say it. k->op is not set. Of several products,
 * the first. */
bool pl_cost_kernel(const struct pl_gwork *w, const char *dims, struct pl_kernel *k);
/* How many such kernels do the work of the operation; not 1 where it computes several products. */
double pl_cost_kernel_count(const struct pl_kernel *k, const struct pl_gwork *w);
/* The same as bytes that are read and written, for operations that a model does not know. */
bool pl_cost_kernel_bytes(const struct pl_gwork *w, struct pl_kernel *k);
/* The name that models use: "linear" or "bmm" for a product, "conv", "add" for "aten::add". */
const char *pl_cost_kernel_name(const struct pl_kernel *k, const char *name);

#endif
