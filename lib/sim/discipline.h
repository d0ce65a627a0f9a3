/*
 * discipline.h - how resources of a graph serve the operations that want them at one time: one row
 * for each discipline (PL_DISCIPLINES in graph.h).
 */
#ifndef PL_SIM_DISCIPLINE_H
#define PL_SIM_DISCIPLINE_H

#include "sim/events.h"

/* An operation (RESOURCE node) on the resource, as recorded. */
struct sim_user {
	uint32_t res, node;
	pl_ns start, end;
	pl_ns ready;	   /* when its predecessors allowed it; INT64_MIN: it has none */
	pl_ns unexplained; /* result: time that neither predecessors nor the resource explain */
	pl_ns work;	   /* result: the duration if it had the resource alone */
};

struct sim_discipline {
	uint8_t core; /* enum pl_sim_events_discipline: how the event core serves them */
	/* Do operations wait for a place? Then the unexplained time passes after they got it. If
	 * not, it passes before their request. */
	bool waits;
	/* Does the duration depend on the other operations? */
	bool stretches;
	/* Find the results of all users of one resource in a step, which are in order of start.
	 * free[capacity]: when each place becomes free, kept from step to step; NULL if no
	 * operation waits. */
	int (*explain)(struct sim_user *u, size_t n, uint32_t capacity, pl_ns *free,
		       struct pl_err *err);
	/* Lower is more urgent, from the column `priority`; NULL: all are equally urgent. */
	uint32_t (*priority)(int32_t column);
};
#define DECLARE(name) extern const struct sim_discipline pl_sim_discipline_##name;
PL_DISCIPLINES(DECLARE)
#undef DECLARE

/* How the resource serves a node of the type; NULL: the node shares nothing. */
const struct sim_discipline *pl_sim_discipline_of(const struct pl_resource *table, uint8_t type,
						  uint32_t res);

/* The place that is free first. */
static inline uint32_t sim_first_free(const pl_ns *free, uint32_t capacity)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < capacity; i++)
		if (free[i] < free[best])
			best = i;
	return best;
}

/* `explain` of resources with places: by predecessors, or the place that an operation awaited. */
int pl_sim_discipline_explain_places(struct sim_user *u, size_t n, uint32_t capacity, pl_ns *free,
				     struct pl_err *err) PL_MUST;

#endif
