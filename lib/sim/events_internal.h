/* events_internal.h - the state of the event core. */
#ifndef PL_SIM_EVENTS_INTERNAL_H
#define PL_SIM_EVENTS_INTERNAL_H

#include "sim/events.h"

/* In the order in which events of one time are taken. */
enum event_type { EV_END, EV_ARRIVAL, EV_FREE, EV_REQUEST };
struct event {
	pl_ns t;
	uint32_t id; /* task; of EV_FREE: resource */
	uint32_t type;
};
#define OTHER_STEP (PL_NONE - 1) /* holds a place from before the run */

enum route {		    /* of a task through the core */
	     ROUTE_AT_ONCE, /* it is on no resource */
	     ROUTE_KTH,	    /* rendezvous of k of n */
	     ROUTE_QUEUE,   /* its resource is simple */
	     ROUTE_STEADY,  /* it waits to be served, and its speed never changes */
	     ROUTE_CHANGING /* its end may move */
};
struct list {
	uint32_t *v, n;
};
struct progress {		   /* of a task that waits to be served or runs */
	pl_ns ready, since, begun; /* begun: this piece */
	double done, speed;	   /* done: work until `since` */
	uint32_t from, stop;	   /* parts */
	uint32_t n_computing;	   /* of communication: how many of its domains compute */
	uint32_t round;		   /* of most_urgent() */
};
struct resource {
	uint32_t capacity, busy;
	bool simple; /* first come, first served, one resource a task: the place is certain */
	bool joint;  /* has tasks that need other resources as well */
	bool heap;   /* the queue is one */
	bool marked;
};
struct domain {
	struct list running[2]; /* [enum pl_sim_events_side] */
};

struct pl_sim_events {
	const struct pl_sim_events_job *job;
	struct pl_arena arena;	   /* of all arrays */
	uint32_t *off, *to, *edge; /* successors */
	uint8_t *route;		   /* [task] */
	struct resource *res;
	struct list *queue; /* [resource]: who waits; of SHARED: who runs */
	uint32_t *place;    /* [resource + 1]: its first place */
	struct domain *domain;
	uint32_t *storage; /* of the lists */
	uint32_t n_domains;

	/* of a run */
	struct pl_sim_events_times *t;
	pl_ns now;
	struct event *heap;
	uint32_t *at;	/* [task]: in the heap */
	uint32_t *left; /* [task]: predecessors that are not known */
	uint32_t *stack;
	struct progress *progress; /* [task]; not there where every resource is simple */
	pl_ns *free, *own_free;	   /* [place]: since when, or from when on */
	uint32_t *holder;	   /* [place]: of those that are not simple */
	uint32_t *marked;	   /* resources that have to decide */
	uint32_t n_heap, n_stack, n_marked, n_done, round;
};

/* NULL: nothing slows down what runs on the resource. */
static inline struct domain *domain_of(struct pl_sim_events *ev, uint32_t res)
{
	uint32_t d = ev->job->res[res].domain;

	return d == PL_NONE ? NULL : &ev->domain[d];
}

static inline bool computes(const struct pl_sim_events *ev, uint32_t res)
{
	return ev->job->res[res].side == PL_EVENTS_COMPUTATION;
}

#endif
