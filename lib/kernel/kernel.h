/*
 * kernel.h - operations whose time is measured or predicted: families, dimensions, work.
 *
 * A family is a kind of work with the same bound: products are bound by tiles that multiprocessors
 * work through, others by the bytes that they move. Each family has its dimensions, by which
 * schemas and graphs describe an operation.
 */
#ifndef PL_KERNEL_H
#define PL_KERNEL_H

#include "core/core.h"

/*
 * X(NAME, "word", dimensions): the words by which a schema gives them, in the order of `dim`. A
 * word with "=" has a default.
 *
 * gemm: `batch` products C (m x n) = A (m x k) B (k x n). conv: images of size x size. elementwise:
 * `inputs` tensors of `elements` numbers are read, `outputs` written; with `bytes` not 0 these are
 * the bytes read and written instead. softmax, norm: over the columns of each row. move: copies and
 * changes of layout. embedding: rows of a table are gathered. other: nothing is known but the time.
 * allreduce ..: `bytes` of each of `ranks`, `local` of them on a host.
 */
#define PL_KERNEL_FAMILIES(X)                                                                      \
	X(GEMM, "gemm", "batch=1|m|n|k")                                                           \
	X(CONV, "conv", "batch=1|in|out|size|kernel|stride=1|padding=0|groups=1")                  \
	X(ELEMENTWISE, "elementwise", "elements|inputs=1|outputs=1|bytes=0")                       \
	X(SOFTMAX, "softmax", "rows|columns")                                                      \
	X(NORM, "norm", "rows|columns")                                                            \
	X(MOVE, "move", "elements|outputs=1|bytes=0")                                              \
	X(EMBEDDING, "embedding", "rows|columns")                                                  \
	X(ALLREDUCE, "allreduce", "bytes|ranks=2|local=0")                                         \
	X(ALLGATHER, "allgather", "bytes|ranks=2|local=0")                                         \
	X(REDUCE_SCATTER, "reduce-scatter", "bytes|ranks=2|local=0")                               \
	X(ALLTOALL, "alltoall", "bytes|ranks=2|local=0")                                           \
	X(SENDRECV, "sendrecv", "bytes|ranks=2|local=0")                                           \
	X(OTHER, "other", "a=1|b=1|c=1|d=1")
#define PL_KERNEL_NUMBER_(name, word, dims) PL_KERNEL_##name,
enum pl_kernel_family { PL_KERNEL_FAMILIES(PL_KERNEL_NUMBER_) PL_KERNEL_FAMILIES_ };
#undef PL_KERNEL_NUMBER_
#define PL_KERNEL_DIMS 8

const char *pl_kernel_family_word(unsigned family);
int pl_kernel_family_find(const char *word); /* -1: none */
/* Name of dimension i; NULL: the family has fewer. *otherwise: its default, NAN: it must be given.
 */
const char *pl_kernel_dim(unsigned family, unsigned i, double *otherwise);
/* Does it count something, so that a fraction of one has no meaning? */
bool pl_kernel_dim_is_whole(unsigned family, unsigned i);
bool pl_kernel_is_comm(unsigned family);

/* Types of elements: those that decide which units compute. */
#define PL_KERNEL_TYPES(X)                                                                         \
	X(FLOAT32, "float32", 4)                                                                   \
	X(TF32, "tf32", 4)                                                                         \
	X(FLOAT16, "float16", 2)                                                                   \
	X(BFLOAT16, "bfloat16", 2)                                                                 \
	X(FLOAT64, "float64", 8) X(FLOAT8, "float8", 1) X(INT8, "int8", 1)
#define PL_KERNEL_NUMBER_(name, word, bytes) PL_KERNEL_##name,
enum pl_kernel_type { PL_KERNEL_TYPES(PL_KERNEL_NUMBER_) PL_KERNEL_TYPES_ };
#undef PL_KERNEL_NUMBER_
const char *pl_kernel_type_word(unsigned type);
int pl_kernel_type_find(const char *word); /* -1: none; also "half", "fp16", "float" ... */
double pl_kernel_type_bytes(unsigned type);

struct pl_kernel {
	pl_id op; /* its name, in the table of the caller */
	uint8_t family, type;
	double dim[PL_KERNEL_DIMS];
};
/* Its work: what any device must do at least. */
struct pl_kernel_work {
	double flops;
	double bytes; /* read and written once */
};
struct pl_kernel_work pl_kernel_work(const struct pl_kernel *k);
/* PL_EDATA names a dimension that is no number above 0 (padding, bytes of elementwise and move,
 * local: 0 or more), or says that the filter of a convolution is larger than the padded image. */
int pl_kernel_check(const struct pl_kernel *k, struct pl_err *err) PL_MUST;

#endif
