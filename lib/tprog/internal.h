/* internal.h - tables of words, and what readers and writers of programs share. */
#ifndef PL_TPROG_INTERNAL_H
#define PL_TPROG_INTERNAL_H

#include "tprog/tprog.h"

extern const char *const pl_tprog_bind_word[PL_TPROG_BINDS_];
extern const char *const pl_tprog_expr_word[PL_TPROG_EXPRS_];
extern const uint8_t pl_tprog_operands[PL_TPROG_EXPRS_];
extern const char *const pl_tprog_update_word[];

/* Rates are log2(x / iterations + this). */
#define PL_TPROG_LEAST_RATE 0x1p-10

/* Whole numbers: a value of one, where those that no index of a buffer reaches become one that is
 * outside of all; and an operation on two (division by 0 is 0). */
int64_t pl_tprog_whole(double v);
double pl_tprog_of_whole(unsigned op, int64_t a, int64_t b);

/* Operators between their operands: 0 is not one, and the greater binds the closer. */
int pl_tprog_binds(unsigned op);

/* The text of an expression; `c`: in C. */
void pl_tprog_put_expr(const struct pl_tprog *p, uint32_t expr, bool c, struct pl_writer *w);

/* The number of a buffer's element, from the values of its indices. */
static inline int64_t pl_tprog_place(const struct pl_tprog_buffer *b, const int64_t *index)
{
	int64_t at = 0;

	for (int d = 0; d < b->n_dims; d++)
		at = at * b->dim[d] + index[d];
	return at;
}

#endif
