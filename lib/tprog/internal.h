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

/* How C writes the elements of buffers. */
struct pl_tprog_c {
	const uint8_t *skip; /* [buffer]: so many first indices are not written; NULL: none */
};
/* The text of an expression; c: as C, NULL: as in paceline-tprog(5). */
void pl_tprog_put_expr(const struct pl_tprog *p, uint32_t expr, const struct pl_tprog_c *c,
		       struct pl_writer *w);
/* What CUDA has in common with C: the names of variables, a store and its line break, two blanks
 * for each level. */
void pl_tprog_put_loop_name(const struct pl_tprog *p, uint32_t node, struct pl_writer *w);
void pl_tprog_put_buffer_name(const struct pl_tprog *p, uint32_t buffer, struct pl_writer *w);
void pl_tprog_put_c_store(const struct pl_tprog *p, const struct pl_tprog_node *x,
			  const struct pl_tprog_c *c, struct pl_writer *w);
void pl_tprog_indent(int depth, struct pl_writer *w);

/* Lines of a program's text, behind one another. */
struct pl_tprog_lines {
	struct pl_buf *text;
	struct pl_err *err; /* the first failure stays, and nothing is written behind it */
	int depth;	    /* of open loops */
};
void pl_tprog_line(struct pl_tprog_lines *t, const char *fmt, ...) PL_PRINTF(2, 3);
/* "end" of all that was opened below this depth. */
void pl_tprog_close_lines(struct pl_tprog_lines *t, int depth);

/* The number of a buffer's element, from the values of its indices. */
static inline int64_t pl_tprog_place(const struct pl_tprog_buffer *b, const int64_t *index)
{
	int64_t at = 0;

	for (int d = 0; d < b->n_dims; d++)
		at = at * b->dim[d] + index[d];
	return at;
}

#endif
