/*
 * host.h - the time that hosts need to launch the operations of a graph that nobody recorded.
 *
 * A framework that runs operation by operation issues them one after the other, ahead of the
 * device. Where they are shorter than that takes, the device waits for the host.
 */
#ifndef PL_COST_HOST_H
#define PL_COST_HOST_H

#include "graph/edit.h"

struct pl_cost_host { /* what an operator takes, forward or backward, ns */
	double ns;
	double low, high; /* the 90 % interval; equal to ns: it is known */
};
/*
 * What is assumed of a host of which nothing is known: PyTorch in eager mode, in Python.
 *
 * bench/host measured, on a virtual processor of an AMD EPYC: 21 to 24 us where functions do much
 * at once, 29 to 35 us with a module for each operation, 37 to 44 us with functions of the
 * program's own, and up to 1.7 times as much beside other programs. The low end is the first. The
 * high end is a guess: the last, on a host that is less than half as fast.
 */
extern const struct pl_cost_host pl_cost_host_usual;

/*
 * Puts a host in front of each rank that has none: an operation PL_GRAPH_LAUNCH for each
 * computation with work and each collective, send and receive, in the order of the rank's
 * operations. That of an optimizer takes as long as its calls do. Computations of a CPU are not
 * launched; the caller does not ask for these. *n: operations that were added. Starts are not
 * settled.
 */
int pl_cost_add_hosts(struct pl_edit *e, const struct pl_cost_host *host, size_t *n,
		      struct pl_err *err) PL_MUST;

#endif
