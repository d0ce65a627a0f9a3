/* autotvm_internal.h - between the reader of tuning logs and the templates. */
#ifndef PL_TPROG_AUTOTVM_INTERNAL_H
#define PL_TPROG_AUTOTVM_INTERNAL_H

#include "tprog/autotvm.h"
#include "tprog/internal.h"

#define AUTOTVM_TENSORS 4
#define AUTOTVM_KNOBS	32
#define AUTOTVM_SIZES	8

struct autotvm_tensor {
	int64_t dim[AUTOTVM_SIZES];
	int n;
	bool float32;
};
struct autotvm_knob {
	char name[32];
	int64_t size[AUTOTVM_SIZES]; /* of the tiles, the outermost first; -1: what is left */
	int n;			     /* 1: a single number */
};
struct autotvm_record {
	char target[1024], task[64];
	char key[32]; /* of the template, in logs of TVM 0.6; "" */
	struct autotvm_tensor tensor[AUTOTVM_TENSORS];
	int n_tensors;
	bool flag[2]; /* the first operand is transposed, the second is */
	int n_flags;
	bool float32; /* the result is */
	struct autotvm_knob knob[AUTOTVM_KNOBS];
	int n_knobs;
	int64_t error;
	bool has_input, has_config, has_result;
	char why[160]; /* the first thing that is wrong */
};

/* What became of a line. */
enum autotvm_is { AUTOTVM_FINE, AUTOTVM_OTHER, AUTOTVM_BAD };

/* The same, and the reason. */
enum autotvm_is pl_autotvm_not(struct autotvm_record *r, enum autotvm_is is, const char *fmt, ...)
	PL_PRINTF(3, 4);

/* A product: C[b, m, n] is the sum of A[b, m, k] * B[b, n, k] over k. */
struct autotvm_product {
	int64_t batch; /* 0: of matrices, without this index */
	int64_t m, n, k;
	bool one_a, one_b;     /* the same A, or B, for all of the batch */
	bool turned_a, flat_b; /* A is stored as [k, m], B as [k, n] */
	int64_t packed;	       /* B is stored as [n / packed, k, packed]; 0: it is not */
};

/* Appends the parameters and loops of the record; which operation it is to *op ("dense"). */
enum autotvm_is pl_autotvm_build(struct autotvm_record *r, struct autotvm_product *of,
				 const char **op, struct pl_buf *text, struct pl_err *err);

/* ---- autotvm_loops.c: what templates share --------------------------------------------------- */

#define AUTOTVM_TEXTS 48

/* A program that is being written. */
struct autotvm_build {
	struct pl_tprog_lines at;
	struct autotvm_record *r;
	struct autotvm_product *of;
	char text[AUTOTVM_TEXTS][256]; /* of indices; used again after so many others */
	unsigned next;
};
#define SERIAL	      ""
#define REDUCE	      "reduce"
#define VECTOR	      "vectorize"
#define UNROLL	      "unroll"
#define REDUCE_UNROLL "reduce unroll"

const struct autotvm_knob *pl_autotvm_knob(const struct autotvm_record *r, const char *name);
/* The n tiles that divide the extent. */
enum autotvm_is pl_autotvm_tiles(struct autotvm_record *r, const char *name, int64_t extent, int n,
				 int64_t *out);
/* A knob that is a single number; `usual` without it. */
int64_t pl_autotvm_number(const struct autotvm_record *r, const char *name, int64_t usual);
/*
 * TVM writes loops out from the innermost on, until that would make more than `most` statements.
 * *steps: the statements inside, 0: there is a loop that stays.
 */
bool pl_autotvm_unrolled(int64_t extent, int64_t most, int64_t *steps);

#define pl_autotvm_line(b, ...) pl_tprog_line(&(b)->at, __VA_ARGS__)
#define pl_autotvm_close(b, to) pl_tprog_close_lines(&(b)->at, to)
void pl_autotvm_loop(struct autotvm_build *b, const char *name, int64_t extent, const char *how);
/* A loop, unless it has one iteration. */
void pl_autotvm_loop_if(struct autotvm_build *b, const char *name, int64_t extent, const char *how);
void pl_autotvm_alloc(struct autotvm_build *b, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_autotvm_parameters(struct autotvm_build *b);

char *pl_autotvm_text(struct autotvm_build *b);
/* An index of parts, the outermost first, with their extents: "io", n, "ii", m is "io * m + ii".
 * Parts of one iteration, and those without a name, are left out. */
#define pl_autotvm_sum(b, ...) pl_autotvm_sum_of(b, __VA_ARGS__, (const char *)NULL)
const char *pl_autotvm_sum_of(struct autotvm_build *b, ...);
/* Part of a fused loop: the variable divided by what is inside of the part. */
const char *pl_autotvm_part(struct autotvm_build *b, const char *name, int64_t outside,
			    int64_t extent, int64_t inside);
const char *pl_autotvm_plus(struct autotvm_build *b, const char *x, const char *y);
/* Numbers of the operands and of the result; batch: NULL for products of matrices. */
const char *pl_autotvm_a(struct autotvm_build *b, const char *batch, const char *i, const char *k);
const char *pl_autotvm_b(struct autotvm_build *b, const char *batch, const char *j, const char *k);
const char *pl_autotvm_c(struct autotvm_build *b, const char *batch, const char *i, const char *j);

/* ---- the templates --------------------------------------------------------------------------- */

enum autotvm_is pl_autotvm_dense_nopack(struct autotvm_build *b);
enum autotvm_is pl_autotvm_dense_pack(struct autotvm_build *b);
enum autotvm_is pl_autotvm_batch_matmul(struct autotvm_build *b);
enum autotvm_is pl_autotvm_dense_small_batch(struct autotvm_build *b);
enum autotvm_is pl_autotvm_dense_large_batch(struct autotvm_build *b);
enum autotvm_is pl_autotvm_batch_matmul_cuda(struct autotvm_build *b);

#endif
