/* First come, first served: a place takes the operation that has waited longest. */
#include "sim/discipline.h"

int pl_sim_discipline_explain_places(struct sim_user *u, size_t n, uint32_t capacity, pl_ns *free,
				     struct pl_err *err)
{
	(void)err;
	for (size_t k = 0; k < n; k++) {
		pl_ns *place = &free[sim_first_free(free, capacity)];
		pl_ns t = pl_max_i64(u[k].ready, *place);

		u[k].unexplained = u[k].ready == INT64_MIN ? 0 : pl_max_i64(0, u[k].start - t);
		*place = pl_max_i64(*place, u[k].end);
	}
	return 0;
}

const struct sim_discipline pl_sim_discipline_fifo = {
	.core = PL_EVENTS_QUEUE, .waits = true, .explain = pl_sim_discipline_explain_places
};
