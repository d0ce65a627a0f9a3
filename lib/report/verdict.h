/*
 * verdict.h - what bounds the step, in words of the user's program.
 *
 * The critical path of a run is cut into causes. Each ns of it has one cause, so the shares of all
 * causes sum to 1. Where the device (without a device: the rank) of a part of the path computes at
 * the same time, that time counts as computation: only uncovered time is lost.
 *
 * - compute: operations compute; as much as a typical rank does
 * - exposed-communication: a transfer, while its rank computes nothing; issuing it, on hosts
 * - pipeline-bubble: computation beyond that of a typical rank, in a job with point-to-point
 *   messages: stages work one after the other
 * - input: reading and preparing samples: loaders, the pause of a host thread before the first
 *   operation of a step, and copies to the device before a pass
 * - launch-bound: the device has nothing to do, as the host launches too slowly; a pause of 1 ms or
 *   more in which nothing is recorded is no launching, and has the cause other
 * - host-synchronisation: the device has nothing to do, as the host had waited for it before
 * - memory-stall: allocation and release of memory, and other copies from or to the host; the time
 *   of hosts for writing into memory that is new to the process (cost/new_memory.h)
 * - slow-rank: computation of the one rank that computes most in nearly all steps, as far as it is
 *   more than that of the others because equal operations take longer there
 * - slow-link: transfers of one group or pair of ranks, as far as they take longer than those of
 *   the same size elsewhere
 * - imbalance: the same as slow-rank where the rank that computes most changes, or as far as it has
 *   more operations or larger ones
 * - contention: computation, as far as it takes longer beside communication than without
 * - recomputation: activations that the backward pass makes again
 * - checkpoint, evaluation, garbage-collection, compilation: work in ranges of these names; a pause
 *   of a host thread that some steps have and most do not: a checkpoint at the end of a step, else
 *   garbage collection
 * - other: the rest: the interpreter between operations, pauses in which nothing is recorded, late
 *   ranks, unexplained time
 *
 * Compute has a row only if no other cause but `other` takes a tenth of the path. Rows are sorted
 * by share.
 */
#ifndef PL_REPORT_VERDICT_H
#define PL_REPORT_VERDICT_H

#include "cost/new_memory.h"
#include "sim/sim.h"

/* X(name, word) */
#define PL_VERDICT_CAUSES(X)                                                                       \
	X(COMPUTE, "compute")                                                                      \
	X(EXPOSED, "exposed-communication")                                                        \
	X(BUBBLE, "pipeline-bubble")                                                               \
	X(INPUT, "input")                                                                          \
	X(LAUNCH, "launch-bound")                                                                  \
	X(SLOW_RANK, "slow-rank")                                                                  \
	X(SLOW_LINK, "slow-link")                                                                  \
	X(IMBALANCE, "imbalance")                                                                  \
	X(CONTENTION, "contention")                                                                \
	X(HOST_SYNC, "host-synchronisation")                                                       \
	X(MEMORY, "memory-stall")                                                                  \
	X(CHECKPOINT, "checkpoint")                                                                \
	X(GARBAGE, "garbage-collection")                                                           \
	X(EVALUATION, "evaluation")                                                                \
	X(COMPILATION, "compilation")                                                              \
	X(RECOMPUTATION, "recomputation")                                                          \
	X(OTHER, "other")
#define PL_VERDICT_NUMBER_(name, word) PL_VERDICT_##name,
enum pl_verdict_cause { PL_VERDICT_CAUSES(PL_VERDICT_NUMBER_) PL_VERDICT_CAUSES_ };
#undef PL_VERDICT_NUMBER_

struct pl_verdict_row {
	uint8_t cause; /* enum pl_verdict_cause */
	double share;  /* of the critical path, 0 to 1 */
	int32_t rank;  /* that the cause concerns alone, -1: all, or not known */
	uint8_t coll;  /* exposed communication: enum pl_coll of most of it */
	bool gradient; /* ... and most of the time is that of gradients */
	bool equal;    /* imbalance: all ranks do the same operations */
	bool staged;   /* imbalance of one rank: it is a stage of a pipeline */
	bool offload;  /* memory-stall: most is copies, of memory that is not pageable */
	bool fresh;    /* memory-stall: most is writing into memory that is new to the process */
	bool silent;   /* launch-bound: of the gaps, those without launches are a tenth or more */
	bool inferred; /* no name says so: checkpoint, only how steps end; input, only pauses */
	double more;   /* slow-rank, imbalance of one rank: this share of the rank's computation */
	/* other: of the path's time in the phase `other`, the share before the passes of a step and
	 * behind its update; of the pauses in it, the share of the interpreter's that are not there
	 */
	double between, inside;
	bool updates; /* other: there is an optimizer */
	char where[256], text[512];
};
struct pl_verdict { /* holds no memory */
	struct pl_verdict_row row[PL_VERDICT_CAUSES_];
	size_t n;
	struct pl_verdict_row compute; /* also where it has no row of its own */
};
const char *pl_verdict_word(unsigned cause);
/* "train.py(41): step", as profilers write it, as "train.py:41 (step)". Returns `out`. */
const char *pl_verdict_line(const char *function, char *out, size_t size);
/* Of a run of the graph, whose simulator, path and account these are, and its writing into new
 * memory. */
int pl_verdict_find(const struct pl_graph *g, const struct pl_sim *s, const struct pl_run *r,
		    const struct pl_path *path, const struct pl_account *account,
		    const struct pl_new_memory *memory, struct pl_verdict *v,
		    struct pl_err *err) PL_MUST;

#endif
