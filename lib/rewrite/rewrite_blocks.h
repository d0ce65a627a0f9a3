/*
 * rewrite_blocks.h - the layers of a transformer in a graph, as tensor parallelism divides them
 * (Shoeybi et al., Megatron-LM, arXiv 1909.08053, 2019): products come in pairs. The weights of the
 * first are divided by columns, those of the second by rows, and so is all that stands between.
 */
#ifndef PL_REWRITE_BLOCKS_H
#define PL_REWRITE_BLOCKS_H

#include "graph/dims.h"
#include "graph/edit.h"

#define RW_TENSORS_MAX 8

/* The sizes of an operation's inputs. */
struct rw_sizes {
	struct pl_dims t[RW_TENSORS_MAX];
	int n;
};
/* False: there are none, or too many. */
bool pl_rewrite_sizes(const struct pl_edit *e, const struct pl_gwork *w, struct rw_sizes *s);
/* As pl_gwork.dims. False: the text is too short. */
bool pl_rewrite_sizes_text(const struct rw_sizes *s, char *text, size_t size);

/* A product of tensors a and b, rows x sum and sum x columns. */
struct rw_product {
	int a, b, sum_axis; /* sum_axis: of b */
	bool batched;	    /* of b, too: no weights */
	int64_t rows, sum, columns;
};
bool pl_rewrite_product(const struct rw_sizes *s, struct rw_product *p);

enum rw_part {
	RW_WHOLE,
	RW_COLUMNS, /* a product whose weights are divided by columns */
	RW_ROWS,
	RW_INNER, /* between the two, or behind the logits */
	RW_SUMS,  /* may add up a gradient of the weights before it */
};
enum rw_pass_of { RW_FORWARD, RW_INPUT_GRAD, RW_WEIGHT_GRAD, RW_BOTH_GRADS };

#define RW_COLUMNS_MAX 4
/* A pair: up to four products that read one input, and the one that brings back its width. */
struct rw_block {
	int64_t m, width, sum;	   /* rows; columns of the input; `k` of the second product */
	int64_t n[RW_COLUMNS_MAX]; /* columns of the first products */
	uint32_t n_columns;
	int64_t heads;	 /* of the attention between them, 0: there is none */
	bool vocabulary; /* the logits, which have no second product */
};
/* What a node is. */
struct rw_division {
	uint8_t part, pass; /* enum rw_part, enum rw_pass_of */
	uint32_t block;
	int64_t m, k, n; /* of the product, or of that before it */
};
struct rw_reduction { /* an all-reduce of m x width numbers, after one node and before another */
	uint32_t after, before;
	uint32_t block;
	pl_id type; /* of the elements */
	bool backward;
};
struct rw_blocks {
	struct rw_division *of; /* [node] */
	struct rw_block *block;
	struct rw_reduction *reduce;
	size_t n_blocks, cap_blocks, n_reduce, cap_reduce;
	int64_t width, vocabulary; /* sizes of the weights of the logits, 0: there are none */
};
/* Of the recorded nodes. PL_EDATA with the reason: these are no layers of a transformer, or they
 * cannot be divided into so many parts. */
int pl_rewrite_blocks_find(const struct pl_edit *e, int64_t degree, struct rw_blocks *b,
			   struct pl_err *err) PL_MUST;
void pl_rewrite_blocks_fini(struct rw_blocks *b);

#endif
