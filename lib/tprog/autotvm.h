/*
 * autotvm.h - tuning logs of AutoTVM, a part of TVM, as tensor programs.
 *
 * A log has one measurement a line, in JSON: the template of a schedule, the tensors, the sizes of
 * the tiles, and the times. It holds no loops; these follow from template and sizes. Templates:
 * dense and batch_matmul of x86 and of CUDA, as TVM 0.6 to 0.20 have them. Which loops they make is
 * in paceline-tprog(5).
 */
#ifndef PL_TPROG_AUTOTVM_H
#define PL_TPROG_AUTOTVM_H

#include "tprog/tprog.h"

struct pl_autotvm_opts {
	const char *device; /* of all measurements; NULL: what the target of each says */
	const char *model;  /* the network of all programs; NULL or "": none */
	bool strict;	    /* the first line that is not understood is an error */
};
struct pl_autotvm_stats {
	uint64_t programs;		       /* passed on */
	uint64_t failed;		       /* measurements that failed, as the log says */
	uint64_t other;			       /* templates and types that are not known here */
	uint64_t bad;			       /* lines that are no measurements */
	char first_other[256], first_bad[256]; /* "line 3: REASON" */
};
struct pl_autotvm;

/* The whole log is read here. */
int pl_autotvm_new(struct pl_in *in, const struct pl_autotvm_opts *o, struct pl_autotvm **r,
		   struct pl_err *err) PL_MUST;
void pl_autotvm_free(struct pl_autotvm *r); /* NULL is fine */
/*
 * The next program into an empty *p, with its measurement; 1: there is one, 0: the log ends. Its
 * name is oW.pL: measurements of the same tensors have one W, and L is the line.
 */
int pl_autotvm_next(struct pl_autotvm *r, struct pl_tprog *p, struct pl_err *err) PL_MUST;
const struct pl_autotvm_stats *pl_autotvm_stats(const struct pl_autotvm *r);

#endif
