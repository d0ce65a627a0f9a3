/*
 * The limits that decide how waits are inferred: each with a time on either side, so that a limit
 * of twice or half the value fails. Times of this file are nanoseconds.
 */
#include "graph_fixture.h"

/*
 * Kernel "far" ends at 100 us on one stream, "near" at 50 us on another, both with an event behind
 * them, "near" with the last one. "held" waits for one of the two events; its stream was free from
 * `free` on, its launch began at `launch`. Which event explains its start?
 */
static void held(const char *what, int64_t free, int64_t launch, int64_t start, const char *by)
{
	pl_id h, a, b, c;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	a = track(s, 0, 7, "7");
	b = track(s, 0, 8, "8");
	c = track(s, 0, 9, "9");
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 500, 1);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 1000, 1500, 2);
	at(s, PL_K_RUNTIME, h, "cudaEventRecord", 2000, 2200, 0);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 3000, 3500, 3);
	at(s, PL_K_RUNTIME, h, "cudaEventRecord", 4000, 4200, 0);
	at(s, PL_K_RUNTIME, h, "cudaStreamWaitEvent", launch - 400, launch - 200, 0);
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", launch, launch + 500, 4);
	at(s, PL_K_KERNEL, c, "first", 2000, free, 1);
	at(s, PL_K_KERNEL, a, "far", 3000, 100000, 2);
	at(s, PL_K_KERNEL, b, "near", 5000, 50000, 3);
	at(s, PL_K_KERNEL, c, "held", start, 200000, 4);
	if (ok(build(), "%s", what)) {
		ok(leads("far", "held") == !strcmp(by, "far"), "... %s the far event",
		   strcmp(by, "far") ? "not" : "by");
		ok(leads("near", "held") == !strcmp(by, "near"), "... %s the near event",
		   strcmp(by, "near") ? "not" : "by");
	}
	end_trace();
}

static void events(void)
{
	held("HELD_NS: delayed by 6 us", 96000, 10000, 102000, "far");
	held("HELD_NS: delayed by 3 us, as any operation is", 99000, 10000, 102000, "near");
	held("TIGHT_NS: 8 us after the end", 20000, 10000, 108000, "far");
	held("TIGHT_NS: 15 us after the end", 20000, 10000, 115000, "near");
	held("TOL_NS: 1.5 us before the end", 20000, 10000, 98500, "far");
	held("TOL_NS: 3 us before the end", 20000, 10000, 97000, "near");
	held("LAUNCH_NS: 40 us after its launch", 20000, 60500, 100500, "far");
	held("LAUNCH_NS: 18 us after its launch", 20000, 82500, 100500, "near");
}

/* Does a synchronisation of `length` whose last kernel ends `late` before its end wait for it? */
static void synchronises(const char *what, int64_t length, int64_t late, bool waits)
{
	pl_id h, a;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	a = track(s, 0, 7, "7");
	at(s, PL_K_RUNTIME, h, "cudaLaunchKernel", 0, 500, 1);
	at(s, PL_K_RUNTIME, h, "cudaStreamSynchronize", 10000, 10000 + length, 2);
	at(s, PL_K_KERNEL, a, "kernel", 5000, 10000 + length - late, 1);
	if (ok(build(), "%s", what))
		is_i64(leads("kernel", "cudaStreamSynchronize"), waits, "... waits or not");
	end_trace();
}

/* Does a pause of a thread that communication on another thread ends `late` after (below 0: before)
 * its end wait for that? */
static void pauses(const char *what, int64_t length, int64_t late, bool waits)
{
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	at(s, PL_K_HOST_OP, h, "before", 0, 10000, 0);
	at(s, PL_K_HOST_OP, h, "after", 10000 + length, 20000 + length, 0);
	at(s, PL_K_COLLECTIVE, g, "gloo:all_reduce", 5000, 10000 + length + late, 0);
	if (ok(build(), "%s", what))
		is_i64(leads("gloo:all_reduce", "host gap"), waits, "... waits or not");
	end_trace();
}

/* Does a pause wait for a burst of another thread, which fills 60 % of it? */
static void hands_over(const char *what, int64_t length, bool waits)
{
	pl_id h, g;
	uint32_t s;

	begin_trace();
	s = segment();
	h = track(s, 0, -1, "100");
	g = track(s, 0, -1, "101");
	at(s, PL_K_HOST_OP, h, "before", 0, 10000, 0);
	at(s, PL_K_HOST_OP, h, "after", 10000 + length, 20000 + length, 0);
	at(s, PL_K_HOST_OP, g, "idle", 0, 1000, 0);
	at(s, PL_K_HOST_OP, g, "burst", 10000 + length / 5, 10000 + length * 4 / 5, 0);
	at(s, PL_K_HOST_OP, g, "later", 30000 + length, 40000 + length, 0);
	if (ok(build(), "%s", what))
		is_i64(leads("burst", "host gap"), waits, "... waits or not");
	end_trace();
}

int main(void)
{
	events();
	synchronises("SYNC_MIN_NS: 8 us", 8000, 500, true);
	synchronises("SYNC_MIN_NS: 4 us are too short", 4000, 500, false);
	synchronises("SYNC_RETURN_NS: back after 80 us", 300000, 80000, true);
	synchronises("SYNC_RETURN_NS: 150 us are too late", 300000, 150000, false);
	pauses("PAUSE_MIN_NS: 300 us", 300000, -1000, true);
	pauses("PAUSE_MIN_NS: 150 us are too short", 150000, -1000, false);
	pauses("PAUSE_NEAR_NS: 0.8 ms before the end", 3000000, -800000, true);
	pauses("PAUSE_NEAR_NS: 1.5 ms are too early", 3000000, -1500000, false);
	pauses("WAKER_LATE_NS: 8 ms after the end", 100000000, 8000000, true);
	pauses("WAKER_LATE_NS: 15 ms are too late", 100000000, 15000000, false);
	hands_over("HANDOVER_MIN_NS: 30 us", 30000, true);
	hands_over("HANDOVER_MIN_NS: 15 us are too short", 15000, false);
	return done_testing();
}
