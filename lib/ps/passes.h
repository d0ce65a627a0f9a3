/*
 * passes.h - what a commit does with every number of a vector, in as few passes over memory as
 * there can be: a worker subtracts, or its server does; the server adds; the worker takes.
 *
 * The places do not overlap. stream: the results go past the caches, which pays where a vector is
 * larger than they are; pl_ps_pass_end() before anybody else reads them.
 */
#ifndef PL_PS_PASSES_H
#define PL_PS_PASSES_H

#include "core/core.h"

#define PL_PS_LINE 16 /* numbers of a line of the cache */

/* *first: the first of n numbers, where a line begins, in *memory, which the caller frees. */
int pl_ps_pass_alloc(void **memory, size_t n, float **first, struct pl_err *err) PL_MUST;

/* Is it worth streaming a vector of n numbers? */
static inline bool pl_ps_streams(size_t n)
{
	return n >= (size_t)1 << 20;
}
/* to = a, and `also`, if it is not NULL. */
void pl_ps_pass_copy(float *to, float *also, const float *a, size_t n, bool stream);
/* to = a + f b, and `also`; minus: not NULL: a + f (b - minus), where b - minus is rounded first.
 * It may be a. */
void pl_ps_pass_add(float *to, float *also, const float *a, float f, const float *b,
		    const float *minus, size_t n, bool stream);
/* u = b - minus, and to = a + f u. */
void pl_ps_pass_split(float *to, float *u, const float *a, float f, const float *b,
		      const float *minus, size_t n, bool stream);
/* to = a - b; also = a. */
void pl_ps_pass_subtract(float *to, float *also, const float *a, const float *b, size_t n,
			 bool stream);
/* to = to - a + b, where to - a is rounded first. */
void pl_ps_pass_move(float *to, const float *a, const float *b, size_t n);
void pl_ps_pass_end(void);

#endif
