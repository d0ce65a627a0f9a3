/* Measures the time to record an event on this thread, in ns: the median over rounds that fit the
 * ring, including two readings of the clock. The coder runs at the same time. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "record/rec.h"

#define ROUNDS 101
#define EVENTS 2000

int main(void)
{
	const struct pl_rec_opts o = { .path = "/dev/null", .size = 1, .level = 1 };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	double ns[ROUNDS];
	pl_id track, name;

	if (pl_rec_open(&o, &r, &err) < 0) {
		fprintf(stderr, "recspeed: %s\n", err.msg);
		return pl_exit_status(err.code);
	}
	track = pl_rec_track(r, PL_T_THREAD, "main");
	name = pl_rec_name(r, "op");
	for (int k = 0; k < ROUNDS; k++) {
		pl_ns begin = pl_now_ns();

		for (int i = 0; i < EVENTS; i++) {
			pl_ns at = pl_now_ns();
			struct pl_rec_event e =
				pl_rec_event(track, PL_K_HOST_OP, name, at, pl_now_ns());

			e.step = k;
			e.layer = i;
			pl_rec(r, &e);
		}
		ns[k] = (double)(pl_now_ns() - begin) / EVENTS;
		usleep(2000);
	}
	if (pl_rec_close(r, NULL, &err) < 0) {
		fprintf(stderr, "recspeed: %s\n", err.msg);
		return pl_exit_status(err.code);
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), pl_compare_double);
	printf("%.1f\n", ns[ROUNDS / 2]);
	return 0;
}
