/*
 * A shared bandwidth: all operations run at once; more than `capacity` of them share it equally.
 *
 * Operations that run at one time have the same speed, min(1, capacity / how many run). Therefore
 * the work of an operation is V(end) - V(start), where V(t) is the integral of the speed: the
 * virtual time of processor sharing (Parekh and Gallager, IEEE/ACM Trans. Networking 1, 1993). Each
 * step is taken alone: an operation that runs into the next step does not slow that one down.
 * O(n log n). The work is rounded to ns, so an end may differ from the recorded end by one ns for
 * each operation that ran at that time.
 */
#include <math.h>

#include "sim/discipline.h"

struct change { /* of the number of running operations */
	pl_ns t;
	uint32_t user, ends;
};
PL_COMPARATOR(by_time, struct change, t, ends, user);

static int explain(struct sim_user *u, size_t n, uint32_t capacity, pl_ns *free, struct pl_err *err)
{
	struct change *x;
	double v = 0, *begun = NULL;
	size_t running = 0;
	int rc;

	(void)free;
	PL_TRY(pl_alloc(&x, 2 * n, sizeof(*x), err));
	PL_TRY(pl_alloc(&begun, n, sizeof(*begun), err));
	for (uint32_t i = 0; i < n; i++) {
		x[2 * i] = (struct change){ u[i].start, i, false };
		x[2 * i + 1] = (struct change){ u[i].end, i, true };
		u[i].unexplained =
			u[i].ready == INT64_MIN ? 0 : pl_max_i64(0, u[i].start - u[i].ready);
	}
	pl_sort(x, 2 * n, sizeof(*x), by_time);
	for (size_t i = 0; i < 2 * n; i++) {
		double speed = running > capacity ? (double)capacity / (double)running : 1;
		struct sim_user *user = &u[x[i].user];

		v += i ? speed * (double)(x[i].t - x[i - 1].t) : 0;
		if (x[i].ends) {
			user->work = (pl_ns)llround(v - begun[x[i].user]);
			running--;
		} else {
			begun[x[i].user] = v;
			running++;
		}
	}
out:
	pl_free(x);
	pl_free(begun);
	return rc;
}

const struct sim_discipline pl_sim_discipline_shared = { .core = PL_EVENTS_SHARED,
							 .stretches = true,
							 .explain = explain };
