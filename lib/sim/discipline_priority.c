/*
 * Priorities: a free place takes the most urgent operation that waits, and of equally urgent ones
 * the one that has waited longest. An operation that has begun is not interrupted.
 *
 * Urgency is the column `priority` of the node: 0 is the most urgent; nodes without it are last.
 */
#include "sim/discipline.h"

static uint32_t priority(int32_t column)
{
	return (uint32_t)column; /* unknown, -1, is the greatest */
}

const struct sim_discipline pl_sim_discipline_priority = { .core = PL_EVENTS_QUEUE,
							   .waits = true,
							   .explain =
								   pl_sim_discipline_explain_places,
							   .priority = priority };
