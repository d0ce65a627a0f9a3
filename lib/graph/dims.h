/* dims.h - the sizes of an operation's inputs, as the column `dims` of the work has them. */
#ifndef PL_GRAPH_DIMS_H
#define PL_GRAPH_DIMS_H

#include "core/core.h"

#define PL_DIMS_MAX 6

struct pl_dims { /* of a tensor */
	int64_t size[PL_DIMS_MAX];
	int n;		  /* may be more than are stored */
	int64_t elements; /* -1: too many */
};
/* The next list of numbers of "[[64, 784], [], [[2, 3]]]", from *s on; false: there is none. */
bool pl_dims_next(const char **s, struct pl_dims *t);

/* a * b; -1 if a or b is, or if it is too great. */
static inline int64_t pl_dims_product(int64_t a, int64_t b)
{
	int64_t p;

	return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &p) ? -1 : p;
}

#endif
