/*
 * straggler.h - how much longer a step takes because some operations take longer than the same ones
 * of other ranks; and which type of operation, stage, data-parallel rank or rank causes it.
 *
 * The definitions are those of "Understanding Stragglers in Large Model Training Using What-if
 * Analysis" (Lin et al., OSDI 2025). T: the steps simulated without launch delays (no unexplained
 * time, no latency). T_ideal: the same with the typical duration of every operation. slowdown = T /
 * T_ideal over all steps together. The typical duration, over all ranks, stages and steps of one
 * type, is the mean for computation (forward, backward, optimizer, garbage collection) and the
 * median of the transfer for communication and rendezvous. If the input has sizes, operations of
 * one type are compared with operations of the same size. The slowdown of x alone: the simulation
 * in which only x has its recorded durations, divided by T_ideal.
 *
 * The type of an operation is its name. The type of a send or receive is the beginning of its name
 * plus "pp-comm", so both ends have one type. The type of a kernel is its name without template
 * arguments and parameters. The type of time of a host thread between its operations is "gap".
 */
#ifndef PL_STRAGGLER_H
#define PL_STRAGGLER_H

#include "sim/sim.h"

enum pl_slow_by { PL_SLOW_TYPE, PL_SLOW_STAGE, PL_SLOW_DP, PL_SLOW_RANK, PL_SLOW_COUNT_ };
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
	double ideal_ns, actual_ns;		/* mean step */
	struct pl_slow_list by[PL_SLOW_COUNT_]; /* slowest first, by key where equal */
	struct pl_intern keys;
};
/* stage and dp come from the coordinates of the resources; lists are empty where these are not
 * known. PL_EDATA when the ideal step takes no time. The pool may be NULL; the result does not
 * depend on it. After a failure x is empty; pl_sim_stragglers_fini() is harmless then. */
int pl_sim_stragglers_find(const struct pl_graph *g, struct pl_pool *pool, struct pl_stragglers *x,
			   struct pl_err *err) PL_MUST;
void pl_sim_stragglers_fini(struct pl_stragglers *x);

#endif
