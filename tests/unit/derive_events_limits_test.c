/*
 * How far the inference of waits for events searches: each limit with a case on either side, so
 * that twice or half the value fails. Times are nanoseconds.
 *
 * In each case the kernel "far" on stream 7 ends at FAR_END, with an event behind it. The kernel
 * "held" is launched behind a wait for an event, and begins when "far" ends.
 */
#define MAX_EV 4000
#include "graph_fixture.h"

#define FAR_END 100000

static struct {
	uint32_t seg;
	pl_id thread[2], stream[200];
	int64_t now, corr; /* the time of the next call, and its number */
} job;

static void begin(void)
{
	memset(&job, 0, sizeof(job));
	begin_trace();
	job.seg = segment();
	job.thread[0] = track(job.seg, 0, -1, "100");
	job.thread[1] = track(job.seg, 0, -1, "101");
	memset(job.stream, 0xff, sizeof(job.stream));
}

static void call(int thread, const char *name)
{
	at(job.seg, PL_K_RUNTIME, job.thread[thread], name, job.now, job.now + 50, ++job.corr);
	job.now += 100;
}

static void launch(int thread, int stream, const char *name, int64_t start, int64_t end)
{
	char tid[16];

	snprintf(tid, sizeof(tid), "%d", stream);
	if (job.stream[stream] == PL_NONE)
		job.stream[stream] = track(job.seg, 0, stream, tid);
	call(thread, "cudaLaunchKernel");
	at(job.seg, PL_K_KERNEL, job.stream[stream], name, start, end, job.corr);
}

static void launch_far(void)
{
	launch(0, 7, "far", 3000, FAR_END);
}

static void launch_held(int stream)
{
	launch(0, stream, "held", FAR_END + 500, FAR_END + 50000);
}

static void record_event(void)
{
	call(0, "cudaEventRecord");
}

static void wait_event(void)
{
	call(0, "cudaStreamWaitEvent");
}

static void is_found(const char *what, bool found)
{
	if (ok(build(), "%s: built", what))
		ok(leads("far", "held") == found, "%s: %s", what, found ? "found" : "not found");
	end_trace();
}

/* "held" is on the stream of the last of n launches behind the wait; those before it run at once.
 */
static void waiting_streams(const char *what, int n, bool found)
{
	begin();
	launch_far();
	record_event();
	wait_event();
	for (int i = 0; i < n - 1; i++)
		launch(0, 20 + i, "other", 2000 + i, 3000 + i);
	launch_held(10);
	is_found(what, found);
}

/* Kernels that end after "held" began are launched on n - 1 other streams before the record. */
static void recorded_streams(const char *what, int n, bool found)
{
	begin();
	launch_far();
	for (int i = 0; i < n - 1; i++)
		launch(0, 20 + i, "other", 4000 + i, 300000 + i);
	record_event();
	wait_event();
	launch_held(10);
	is_found(what, found);
}

/* The event behind "far" is the n-th before the wait. The other events are of operations that end
 * after "held" began. Without record calls an event is assumed behind each launch. */
static void events_back(const char *what, int n, bool records, bool found)
{
	int64_t start = 2 * FAR_END;

	begin();
	launch_far();
	if (records) {
		record_event();
		launch(0, 20, "other", start, start + 100);
		launch(0, 21, "other", start, start + 100);
	}
	for (int i = 1; i < n; i++) {
		launch(0, 20 + i % 2, "other", start + i * 1000, start + i * 1000 + 100);
		if (records)
			record_event();
	}
	wait_event();
	launch_held(10);
	is_found(what, found);
}

/*
 * The thread that waits launches "own" after a pause. Before, another thread launches "other" and
 * calls `calls` more launches. For which of the two was the wait?
 */
static void launches_behind(const char *what, int64_t pause, int calls, bool own)
{
	int64_t from;

	begin();
	launch(0, 7, "far", 2000, 3000);
	job.now = 10000;
	record_event();
	wait_event();
	from = job.now;
	launch(1, 9, "other", from + 5000, from + 6000);
	for (int i = 0; i < calls; i++)
		call(1, "cudaLaunchKernel");
	job.now = from - 50 + pause;
	launch(0, 10, "own", job.now + 5000, job.now + 6000);
	if (ok(build(), "%s: built", what)) {
		ok(leads("far", "own") == own, "%s: %s own", what, own ? "its" : "not its");
		ok(leads("far", "other") == !own, "%s: %s the other", what, own ? "not" : "but");
	}
	end_trace();
}

/* One pass of a program: "far" and "near" with an event each, launches, a wait, "held", launches.
 * In the first pass "held" begins when "far" ends; in the second pass nothing tells the event. */
static void pass(int nth, int differs)
{
	int64_t t0 = job.now, far = t0 + FAR_END, near = t0 + FAR_END / 2;

	if (nth)
		far = t0 + 3000, near = t0 + 4000;
	launch(0, 7, nth ? "far B" : "far A", t0 + 2000, far);
	record_event();
	launch(0, 8, nth ? "near B" : "near A", t0 + 2000, near);
	record_event();
	for (int i = 8; i > 0; i--) {
		launch(0, 9, nth && i == differs ? "another" : "same", job.now + 500,
		       job.now + 550);
	}
	wait_event();
	launch(0, 10, nth ? "held2" : "held1", nth ? job.now + 5000 : far + 500,
	       (nth ? job.now + 5000 : far + 500) + 1000);
	for (int i = 0; i < 8; i++)
		launch(0, 9, "same", job.now + 500, job.now + 550);
	job.now = t0 + 3 * FAR_END;
}

/* Two waits are at one place of the program, and so for the same event, if the calls around them
 * are the same. Does the second wait follow the first, if the n-th call before it differs? */
static void places(const char *what, int differs, bool same)
{
	begin();
	pass(0, differs);
	pass(1, differs);
	if (ok(build(), "%s: built", what)) {
		ok(leads("far A", "held1"), "%s: the first wait", what);
		ok(leads("far B", "held2") == same, "%s: %s first", what, same ? "as" : "unlike");
		ok(leads("near B", "held2") == !same, "... and the nearest event if unlike");
	}
	end_trace();
}

/* A recorded wait without the call that recorded its event: is it for "far", behind which `later`
 * operations of the stream were launched that ended too late? */
static void recorded_wait(const char *what, int later, bool found)
{
	struct pl_events *e;
	uint32_t i;

	begin();
	launch_far();
	for (int k = 0; k < later; k++)
		launch(0, 7, "other", 2 * FAR_END + 200 * k, 2 * FAR_END + 200 * k + 100);
	wait_event();
	e = trace.seg[job.seg];
	e->stream = need(MAX_EV, sizeof(*e->stream));
	e->wait_stream = need(MAX_EV, sizeof(*e->wait_stream));
	for (i = 0; i < MAX_EV; i++)
		e->stream[i] = e->wait_stream[i] = INT64_MIN;
	i = at(job.seg, PL_K_SYNC, track(job.seg, 0, 10, "10"), "Stream Wait Event", job.now - 100,
	       job.now - 50, job.corr);
	e->stream[i] = 10;
	e->wait_stream[i] = 7;
	launch_held(10);
	is_found(what, found);
}

int main(void)
{
	waiting_streams("N_DST: the third stream behind the wait", 3, true);
	waiting_streams("N_DST: the fourth stream is too far", 4, false);
	recorded_streams("N_SRC: the second stream before the record", 2, true);
	recorded_streams("N_SRC: the third stream is too far", 3, false);
	events_back("N_BACK: 20 events back", 20, true, true);
	events_back("N_BACK: 30 events are too far", 30, true, false);
	events_back("N_BACK_LAUNCH: 50 launches back", 50, false, true);
	events_back("N_BACK_LAUNCH: 90 launches are too far", 90, false, false);
	launches_behind("HANDOVER_NS: a pause of 150 us", 150000, 0, true);
	launches_behind("HANDOVER_NS: a pause of 300 us", 300000, 0, false);
	launches_behind("SCAN_CALLS: behind 400 calls of another thread", 100000, 400, true);
	launches_behind("SCAN_CALLS: behind 700 calls of another thread", 100000, 700, false);
	places("CONTEXT: the fourth call before differs", 4, true);
	places("CONTEXT: the second call before differs", 2, false);
	recorded_wait("BACK_STEPS: 50 operations back", 50, true);
	recorded_wait("BACK_STEPS: 90 operations are too far", 90, false);
	return done_testing();
}
