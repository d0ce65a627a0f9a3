/* leaf.h - a store with the loops around it and the buffers that it uses: what leaves.c finds. */
#ifndef PL_TPROG_LEAF_H
#define PL_TPROG_LEAF_H

#include <math.h>

#include "tprog/internal.h"

#define PL_TPROG_LINE  64 /* bytes */
#define PL_TPROG_LOOPS 64 /* around a store: as deep as a program may be */
#define PL_TPROG_TOP   5  /* buffers in the vector of a leaf */

enum pl_tprog_count {
	PL_TPROG_N_MAD,
	PL_TPROG_N_ADD,
	PL_TPROG_N_MUL,
	PL_TPROG_N_DIV,
	PL_TPROG_N_COMPARE,
	PL_TPROG_N_FUNCTION,
	PL_TPROG_N_OTHER,
	PL_TPROG_N_COUNTS
};

struct pl_tprog_access {
	uint32_t buffer;
	bool reads, writes;
	double step[PL_TPROG_LOOPS][PL_TPROG_DIMS]; /* [loop]: by how much it changes an index */
	double bytes, unique, lines, unique_lines, stride;
	int reuse; /* 0: by a loop, 1: by another store, 2: none */
	double away_iterations, away_bytes, uses;
};
struct pl_tprog_nest {
	const struct pl_tprog *p;
	uint32_t node;
	uint32_t loop[PL_TPROG_LOOPS]; /* nodes, the outermost first */
	double extent[PL_TPROG_LOOPS],
		inner[PL_TPROG_LOOPS + 1]; /* inner[l]: iterations of the loops from l on */
	int n;
	double floats[PL_TPROG_N_COUNTS], integers[PL_TPROG_N_COUNTS]; /* an iteration */
	double conditions, selections;
	struct pl_tprog_access *access; /* that of the store is the first one found */
	size_t n_accesses, cap_accesses;
	struct pl_err *err;
};

/* sign(x) log2(|x| + 1) */
static inline double pl_tprog_slog(double x)
{
	return x < 0 ? -log2(1 - x) : log2(1 + x);
}

/* For an iteration. */
static inline float pl_tprog_rate(double x, double iterations)
{
	return (float)log2(x / iterations + PL_TPROG_LEAST_RATE);
}

/* By how many numbers the place in memory changes with the loop. */
double pl_tprog_moves(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int loop);

/* The PL_TPROG_OWN entries behind those of CDMPP. */
void pl_tprog_put_own(const struct pl_tprog_nest *f, float *x);

#endif
