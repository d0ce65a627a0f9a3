/*
 * Many ranks with many pauses, more than can be compared: those where the program waits for the
 * longest come first, and a warning says that others were left out.
 */
#define MAX_EV 4000
#include "graph_fixture.h"

#define RANKS  40
#define STEPS  6
#define PLACES 400

static uint64_t seed = 7;

static int64_t uniform(int64_t a, int64_t b)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return a + (int64_t)((seed >> 33) % (uint64_t)(b - a));
}

/* Pauses of its own, each between operations with other names. Returns the time behind them. */
static int64_t pauses(uint32_t s, pl_id h, int64_t t)
{
	for (int i = 0; i < PLACES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "op %d", i);
		ev(s, PL_K_HOST_OP, h, name, t, t + 50, 0);
		t += 50 + uniform(210, 290);
	}
	return t;
}

/* Ranks 1 and 3 wait for one another in each step, for milliseconds; the others compute then. */
static void one_step(int64_t number, int64_t from, const pl_id *on)
{
	const int64_t quiet = from + PLACES * 340, end = quiet + 50000;
	int64_t ready[RANKS], last;

	for (uint32_t r = 0; r < RANKS; r++)
		ready[r] = quiet + uniform(1000, 7000);
	last = pl_max_i64(ready[1], ready[3]) + 150;
	for (uint32_t r = 0; r < RANKS; r++) {
		int64_t begin = pauses(r, on[r], from + 10);

		step(r, on[r], number, from, end);
		if (r == 1 || r == 3) {
			ev(r, PL_K_HOST_OP, on[r], "aten::addmm", begin, ready[r], 0);
			begin = last + uniform(0, 30);
		}
		ev(r, PL_K_HOST_OP, on[r], "aten::mm", begin, end - 10, 0);
	}
}

int main(void)
{
	pl_id on[RANKS];
	uint32_t found = 0;

	begin_trace();
	pl_free(trace.seg);
	trace.seg = need(RANKS, sizeof(*trace.seg));
	for (uint32_t r = 0; r < RANKS; r++)
		on[r] = track(segment(), (int32_t)r, -1, "100");
	for (int64_t k = 0; k < STEPS; k++)
		one_step(k, 1000 + k * (PLACES * 340 + 51000), on);
	if (!ok(build(), "many pauses build"))
		return done_testing();
	for (size_t k = 0; k < graph.n_steps; k++) {
		const struct pl_shape *s = &graph.shape[graph.step[k].shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			found += !strncmp(pl_intern_get(&graph.str, s->name[i]), PL_UNRECORDED,
					  strlen(PL_UNRECORDED));
	}
	is_i64(found, STEPS, "the longest waits are a rendezvous in each step");
	ok(said.n && strstr((char *)said.p, "were not compared"), "a warning counts the others");
	end_trace();
	return done_testing();
}
