/*
 * straggler.h - how much longer a step takes because operations take unlike times on peers, and
 * which kind of operation, stage, data-parallel or single rank it comes from.
 *
 * Definitions of "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et
 * al., OSDI 2025). T: the steps simulated without launch delays (no unexplained time, no latency).
 * T_ideal: the same with every operation at its typical duration. slowdown = T / T_ideal over all
 * steps together. Typical, over all ranks, stages and steps of one type: the mean for computation
 * (forward, backward, optimizer, garbage collection); the median of the transfer part for
 * communication and rendezvous. Where the input knows sizes, operations of one type are compared
 * with those of their size. The slowdown of x alone: everything typical except x as recorded, over
 * T_ideal.
 *
 * Types: the name of the operation; of a send or receive what its name begins with, and "pp-comm",
 * so that both ends are one; of a kernel the name without template arguments and parameters; "gap"
 * for host threads between their operations.
 */
#ifndef PL_STRAGGLER_H
#define PL_STRAGGLER_H

#include "sim/sim.h"

struct pl_slow {	 /* of one type, stage, dp or rank */
	const char *key; /* into keys */
	double slowdown;
};
struct pl_slow_list {
	struct pl_slow *v;
	size_t n, cap;
};
struct pl_stragglers {
	double slowdown;
	double ideal_ns, actual_ns; /* mean step */
	struct pl_slow_list by_type, by_stage, by_dp,
		by_rank; /* slowest first, by key where equal */
	struct pl_intern keys;
};
/* stage and dp come from the coordinates of the resources; lists are empty where these are not
 * known. PL_EDATA when the ideal step takes no time. The pool may be NULL; the result does not
 * depend on it. After a failure x is empty; pl_sim_stragglers_fini() is harmless then. */
int pl_sim_stragglers_find(const struct pl_graph *g, struct pl_pool *pool, struct pl_stragglers *x,
			   struct pl_err *err) PL_MUST;
void pl_sim_stragglers_fini(struct pl_stragglers *x);

#endif
