/*
 * expr.h - arithmetic over named numbers: "m * (n_head + 2 * n_kv_head) / tp".
 *
 * Operators + - * / % with the usual order, parentheses, decimal numbers, names of letters, digits,
 * "_" and "." that do not begin with a digit, or any between single quotes; comparisons == != < <=
 * > >= (1 or 0), and the functions min(a, b), max(a, b), ceil(x), floor(x).
 */
#ifndef PL_KERNEL_EXPR_H
#define PL_KERNEL_EXPR_H

#include "core/core.h"

struct pl_expr; /* opaque */

/* Number of a name in the caller's table of values; PL_NONE: it has none. */
typedef uint32_t pl_expr_find(void *arg, const char *name);
/* PL_EDATA: what is wrong at which byte, or a name that is not known. */
int pl_expr_new(const char *text, pl_expr_find *find, void *arg, struct pl_expr **e,
		struct pl_err *err) PL_MUST;
void pl_expr_free(struct pl_expr *e); /* NULL is fine */
/* NAN if a value that it needs is NAN. */
double pl_expr_eval(const struct pl_expr *e, const double *value);
/* Calls use() for each value that it needs. */
void pl_expr_uses(const struct pl_expr *e, void (*use)(void *arg, uint32_t value), void *arg);

#endif
