/*
 * events.h - the event core: the times of tasks that compete for resources.
 *
 * The static pass (sim.c; pl_edit_settle() for edits) finds the starts of a graph whose times
 * depend only on its edges. The event core finds them if they also depend on time: tasks wait for
 * resources that others hold, more urgent tasks go first, tasks share a bandwidth, computation and
 * communication slow one another down.
 *
 *	ev = pl_sim_events_new(&job, err);		successors are found once
 *	pl_sim_events_run(ev, free, &out, err);	as often as durations and delays change
 *
 * A *task* is ready when its predecessors allow it, takes all its resources at once, and does its
 * work. The route of a task through the core depends on its needs:
 *
 * - A task on no resource has a known start when its predecessors have ended. The core sets it at
 *   once and goes on to its successors. Such tasks never enter the queue of events, and their times
 *   equal those of the static pass.
 * - A request for resources is an event. Requests are taken in the order of their times, because a
 *   resource must know all earlier requests before it serves one.
 * - A task whose speed may change (it shares a bandwidth, or another task slows it down), or
 *   that may be interrupted, has an end that may move. Its end is an event.
 *
 * Events at one time are taken in a fixed order: ends, arrivals at a rendezvous of k of n,
 * requests, then decisions of the resources; events of one type by number of task. Therefore the
 * same job always gives the same result. Times are integer ns. The end of a slowed task may be a
 * fraction of ns; it is rounded up. A task that is never slowed takes exactly its duration.
 *
 * Cost: O(log n) a request or an end; a change of speed costs as much for each task that it
 * concerns. A run allocates only what it returns.
 */
#ifndef PL_SIM_EVENTS_H
#define PL_SIM_EVENTS_H

#include "graph/graph.h"

enum pl_sim_events_discipline {
	/* `capacity` tasks at a time. Of the waiting tasks the most urgent is first
	 * (pl_sim_events_job.priority), then the one that has waited longest, then the lowest
	 * number. If no task has a priority, parts or other resources, this is first come, first
	 * served; then a request is served when it is taken, before others of the same time. */
	PL_EVENTS_QUEUE,
	/* All at once; more than `capacity` tasks share it equally. */
	PL_EVENTS_SHARED,
	/* `capacity` tasks at a time; `choose` selects among the waiting tasks. */
	PL_EVENTS_POLICY
};

/* Tasks on the two sides of a domain slow one another down: one domain a rank, whose computation
 * and communication contend for processors and memory. */
enum pl_sim_events_side { PL_EVENTS_COMPUTATION, PL_EVENTS_COMMUNICATION };

struct pl_sim_events_resource {
	uint32_t capacity;  /* 0 is 1 */
	uint8_t discipline; /* enum pl_sim_events_discipline */
	uint8_t side;	    /* enum pl_sim_events_side */
	uint32_t domain;    /* PL_NONE: nothing slows its tasks down */
	/*
	 * Of POLICY: which of waiting[0 .. n), in order of arrival, is served at time now. Returns
	 * its place, or PL_NONE: none until a task arrives or ends here. It must be pure: the
	 * answer depends on the arguments alone.
	 */
	uint32_t (*choose)(void *arg, const uint32_t *waiting, uint32_t n, pl_ns now);
	void *arg;
};

/* Arrays that may be NULL are said to be. Predecessors and resources are read by
 * pl_sim_events_new(), everything else at each run; all must live as long as the core. */
struct pl_sim_events_job {
	uint32_t n;		   /* tasks */
	const uint32_t *off, *src; /* predecessors of task i: src[off[i]] .. src[off[i + 1] - 1] */
	const uint8_t *etype;  /* [edge]: enum pl_edge_type; START and EARLY count from the start
				* of src. NULL: all from its end */
	const pl_ns *delay;    /* [edge]: not negative; NULL: all 0 */
	const pl_ns *dur;      /* [task] */
	const pl_ns *earliest; /* [task]: not before; INT64_MIN: nothing. NULL: tasks without
				* predecessors start at 0 */
	const uint32_t *k;     /* [task]: ready with the k-th predecessor; 0: with all. NULL: all 0.
				* A task with k holds no resource */
	const pl_ns *hold; /* [task]: from getting its resources to its start; NULL: all 0. It is 0
			    * with parts, SHARED resources or domains */

	const struct pl_sim_events_resource *res;
	uint32_t n_res;
	const uint32_t *use_off, *use; /* resources of task i: use[use_off[i]] ..; each once. If
					* there are several, all are QUEUE; while one of them is
					* busy, tasks that came later may pass */
	const uint32_t *priority;      /* [task]: lower is more urgent; NULL: all equal */
	/* [task]: it gives way to a more urgent one at the end of each of so many equal parts, and
	 * goes on later; while a more urgent one waits that cannot start, it is served a part at a
	 * time. NULL: all 1. Only of tasks on a resource */
	const uint32_t *parts;
	/* [task of COMMUNICATION], factors >= 1; NULL: all 1. slows: the durations of computation
	 * beside it; where several are, the greatest counts. slowed: its own, while any of its
	 * domains computes. */
	const double *slows, *slowed;
};

/* Work of the first n of the parts of a task. */
static inline pl_ns pl_sim_events_part(pl_ns dur, uint32_t parts, uint32_t n)
{
	return dur / parts * n + dur % parts * n / parts;
}

struct pl_sim_events_piece { /* of a task that may be interrupted: parts from .. to - 1 */
	uint32_t task, from, to;
	pl_ns start, end;
};
struct pl_sim_events_times {
	pl_ns *start, *end; /* [task], the caller's */
	struct pl_sim_events_piece
		*piece; /* in order of time; of tasks with parts > 1. Zeroed by the
			 * caller before the first run, who frees it at the end */
	size_t n_pieces, cap_pieces;
	uint64_t events; /* requests, ends and arrivals, all in order of time */
};

struct pl_sim_events;
/* PL_EUSAGE when the job breaks a rule above. */
struct pl_sim_events *pl_sim_events_new(const struct pl_sim_events_job *job, struct pl_err *err);
void pl_sim_events_free(struct pl_sim_events *ev);
/*
 * free[place]: when each place of each QUEUE or POLICY resource becomes free (INT64_MIN: it is), in
 * order of resource, a place for each unit of capacity; replaced by what the run leaves, for the
 * next step. NULL: all are free. PL_EDATA if tasks still wait for one another or for a policy.
 */
int pl_sim_events_run(struct pl_sim_events *ev, pl_ns *free, struct pl_sim_events_times *t,
		      struct pl_err *err) PL_MUST;

#endif
