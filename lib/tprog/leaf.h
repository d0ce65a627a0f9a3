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

/* Where the parts of the vector of a leaf begin. */
enum pl_tprog_part {
	PL_TPROG_X_FLOATS = 0, /* [PL_TPROG_N_COUNTS] */
	PL_TPROG_X_INTEGERS = PL_TPROG_X_FLOATS + PL_TPROG_N_COUNTS,
	PL_TPROG_X_CONDITIONS = PL_TPROG_X_INTEGERS + PL_TPROG_N_COUNTS,
	PL_TPROG_X_SELECTIONS,
	PL_TPROG_X_BOUND, /* of loops that are vectorised, unrolled, parallel: 11 each */
	PL_TPROG_X_GPU = PL_TPROG_X_BOUND + 3 * 11,
	PL_TPROG_X_ACCESS = PL_TPROG_X_GPU + 8, /* [PL_TPROG_TOP][PL_TPROG_A_ENTRIES] */
	PL_TPROG_X_CURVE = PL_TPROG_X_ACCESS + 5 * 18,
	PL_TPROG_X_ALLOCATION = PL_TPROG_X_CURVE + 10,
	PL_TPROG_X_ITERATIONS = PL_TPROG_X_ALLOCATION + 4,
	/* machine.c, behind two loops of CDMPP */
	PL_TPROG_X_INNERMOST = PL_TPROG_CDMPP,
	PL_TPROG_X_MOVES = PL_TPROG_X_INNERMOST + 15,
	PL_TPROG_X_RATES = PL_TPROG_X_MOVES + 15, /* [PL_TPROG_RATES], for an iteration */
	PL_TPROG_X_CHAIN = PL_TPROG_X_RATES + 16,
	PL_TPROG_X_BETWEEN,
	PL_TPROG_X_THREADS,
	PL_TPROG_X_REST,
	PL_TPROG_X_BEGINS, /* of the parallel loop */
	PL_TPROG_X_END
};
#define PL_TPROG_RATES	  (PL_TPROG_X_CHAIN - PL_TPROG_X_RATES)
#define PL_TPROG_R_CYCLES (PL_TPROG_RATES - 1) /* the last one */
_Static_assert(PL_TPROG_X_END == PL_TPROG_FEATURES, "parts of the vector");
_Static_assert(PL_TPROG_X_ITERATIONS + 3 == PL_TPROG_CDMPP, "parts of the vector");

/* Of a buffer in PL_TPROG_X_ACCESS. */
enum pl_tprog_access_entry {
	PL_TPROG_A_KIND, /* read, written, both */
	PL_TPROG_A_BYTES = PL_TPROG_A_KIND + 3,
	PL_TPROG_A_UNIQUE,
	PL_TPROG_A_LINES,
	PL_TPROG_A_UNIQUE_LINES,
	PL_TPROG_A_REUSE,
	PL_TPROG_A_ENTRIES = 18
};

struct pl_tprog_access {
	uint32_t buffer;
	bool reads, writes;
	double step[PL_TPROG_LOOPS][PL_TPROG_DIMS]; /* [loop]: by how much it changes an index */
	double bytes, unique, lines, unique_lines, stride;
	int reuse; /* 0: by a loop, 1: by another store, 2: none */
	double away_iterations, away_bytes, uses;
};
struct pl_tprog_users {		 /* of each buffer: the stores that work on it, ascending */
	uint32_t *first, *store; /* store[first[b] .. first[b + 1]) */
};
struct pl_tprog_nest {
	const struct pl_tprog *p;
	struct pl_tprog_users users;
	uint32_t node;
	uint32_t loop[PL_TPROG_LOOPS]; /* nodes, the outermost first */
	double extent[PL_TPROG_LOOPS],
		inner[PL_TPROG_LOOPS + 1]; /* inner[l]: iterations of the loops from l on */
	int n;
	double floats[PL_TPROG_N_COUNTS], integers[PL_TPROG_N_COUNTS]; /* an iteration */
	double conditions, selections;
	struct pl_tprog_access *access; /* that of the store is the first one found */
	size_t n_accesses, cap_accesses;
	double touched[PL_TPROG_LOOPS + 1]; /* bytes of all buffers in the loops from l on */
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
