/*
 * Workers as they live (client.c, session.c), on the network of ps_network.h: while one asks for
 * the next event, the test lets the server and the other worker act. How long a worker waits for a
 * reply; what it commits when its steps are lost.
 */
#include <signal.h>

#include "ps_processes.h"

#define ASKS 100000 /* far more than a worker needs */

static unsigned asks, before; /* so many before the others act */

/* The worker that is tested, process 1, asks for an event. Where it would wait for ever, the test
 * ends here. */
static void others_act(const struct pl_endpoint *e)
{
	if (e->id != 1)
		return;
	if (++asks > ASKS || failure) {
		ok(false, "the worker waits for what never comes: %s", failure ? failure : "");
		exit(done_testing());
	}
	for (int k = 0; k < 4 && asks > before; k++) {
		step(0);
		step(2);
	}
}

static void begin_two(const char *policy)
{
	struct pl_err err = { 0 };

	n_servers = 1;
	n_workers = 2;
	n_all = 3;
	asks = before = 0;
	forced = 0; /* each process does all that it may, in the same order each time */
	if (pl_job_set(&made.job, policy, &err) < 0)
		fails(err.msg, 0);
	begin_all(1);
}

static void finish(void)
{
	asked = NULL;
	is_str(failure ? failure : "", "", "all went as told");
	clean_up();
	forced = -1;
}

/* ---- a reply that comes late -------------------------------------------------------------------
 */

/* The timeouts of the first worker pass at once, and the second one takes its time. */
static void test_late(void)
{
	struct pl_ps_session *s = &process[1].session;
	struct pl_err err = { 0 };
	int rc;

	begin_two("policy bsp");
	for (int k = 0; process[1].commits < 2 || process[2].commits < 2; k++) {
		for (uint32_t i = 0; i < n_all; i++)
			step(i);
		if (k == 1000)
			fails("two workers do not begin", 0);
	}
	for (int k = 0; k < 50; k++) {
		step(0);
		step(1);
	}
	ok(s->waiting && s->pending, "a worker waits for the other one");
	process[1].ps.timeout_ns = 1;
	before = 2000;
	asked = others_act;
	rc = pl_ps_session_wait(s, &err);
	ok(rc == PL_PS_REPLIED, "... for thousands of timeouts, as long as the server is there: %s",
	   err.msg);
	if (rc == PL_PS_REPLIED)
		check_reply(&process[1], 1);
	finish();
}

/* ---- steps that are lost --------------------------------------------------------------------- */

#define CUT_AT	 40
#define STEPS	 80
#define CUT_WAIT 5000000 /* longer than the check period of the job */

static void cut_off_worker(void)
{
	for (int k = 0; k < CONNS; k++)
		if (conn[k].open && conn[k].from == 1)
			cut(&conn[k]);
	pl_sleep_ns(CUT_WAIT);
	for (int k = 0; k < 100; k++) { /* the other one changes the weights */
		step(0);
		step(2);
	}
}

static int local_step(struct pl_worker *w, int64_t number, struct pl_step_result *r,
		      struct pl_err *err)
{
	(void)err;
	*r = (struct pl_step_result){ .loss = 1, .samples = 1, .step_ns = 1000 };
	for (int i = 0; i < N; i++)
		w->view.params[i] += 12;
	if (number == CUT_AT)
		cut_off_worker();
	if (number >= STEPS)
		stop = SIGTERM;
	return 0;
}

/* Its next commit is due when it comes back, at once, and the steps for that are lost. */
static void test_due(void)
{
	static const struct pl_engine engine = { .step = local_step };
	struct pl_train t = { .engine = &engine,
			      .worker = &process[1].ps.w,
			      .job = &made.job,
			      .stop = &stop,
			      .row = no_row,
			      .ranks = 2 };
	struct pl_err err = { 0 };
	int rc;

	begin_two("policy adsp period=1ms");
	asked = others_act;
	rc = pl_ps_work(&process[1].ps, &t, &err);
	ok(rc == 0 && t.steps_done > STEPS,
	   "a worker comes back when a commit is due, and goes on to step %lld: %s",
	   (long long)t.steps_done, err.msg);
	stop = 0;
	train.done = train.interrupted = false;
	finish();
}

int main(void)
{
	if (!begin_tests())
		return 1;
	test_late();
	test_due();
	return end_tests();
}
