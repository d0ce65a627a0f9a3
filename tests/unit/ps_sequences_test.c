/*
 * The protocol of workers and servers, without processes (ps_processes.h): all sequences of a few
 * events, killed processes and broken connections among them. Afterwards nothing fails any more,
 * and every worker must come on. LONG=1: of five events, for all policies.
 */
#include "ps_processes.h"

/* One server and two workers that have committed once: what happens next, in all orders. */
enum happens {
	TAKES_FIRST, /* the server takes the next message of a worker */
	TAKES_SECOND,
	FIRST_ACTS, /* a worker commits if it may, else takes a message */
	SECOND_ACTS,
	CUT_EMPTY, /* the second worker's connection breaks: nothing that is on its way arrives, */
	CUT_FULL,  /* or up to three messages each way do */
	SERVER,	   /* it is killed; if it is away, it comes again */
	SERVER_INSIDE, /* it is killed before the first message that its next event sends */
	WORKER,	       /* the second worker is killed, or comes again */
	N_HAPPENS
};

static void happen(enum happens what)
{
	uint32_t first = n_servers, second = n_servers + 1;

	switch (what) {
	case TAKES_FIRST:
	case TAKES_SECOND:
		only = what == TAKES_FIRST ? first : second;
		if (endpoint[0].alive)
			step(0);
		only = MOST;
		break;
	case FIRST_ACTS:
	case SECOND_ACTS:
		if (endpoint[what == FIRST_ACTS ? first : second].alive)
			step(what == FIRST_ACTS ? first : second);
		break;
	case CUT_EMPTY:
	case CUT_FULL:
		forced = what == CUT_FULL ? 3 : 0;
		for (int k = 0; k < CONNS; k++)
			if (conn[k].open && conn[k].from == second)
				cut(&conn[k]);
		forced = 0;
		break;
	case SERVER_INSIDE:
		endpoint[0].sends_left = 0;
		break;
	case SERVER:
	case WORKER:
		if (endpoint[what == SERVER ? 0 : second].alive)
			end(what == SERVER ? 0 : second);
		else
			start(what == SERVER ? 0 : second);
		break;
	case N_HAPPENS:
		break;
	}
}

static void test_sequences(struct pl_job *job, const char *policy, int length)
{
	struct pl_err err = { 0 };
	char line[80], which[80] = "";
	long n = 1, k;

	for (int i = 0; i < length; i++)
		n *= N_HAPPENS;
	n_servers = 1;
	n_workers = 2;
	n_all = 3;
	snprintf(line, sizeof(line), "policy %s", policy);
	if (pl_job_set(job, line, &err) < 0)
		fails(err.msg, 0);
	for (k = 0; k < n && !failure; k++) {
		long code = k;

		forced = 0;
		begin_all(1);
		for (int i = 0; i < 300 && (!process[1].acknowledged || !process[2].acknowledged);
		     i++)
			step((uint32_t)i % n_all);
		for (int i = 0; i < length && !failure; i++, code /= N_HAPPENS)
			happen((enum happens)(code % N_HAPPENS));
		forced = -1;
		rng = (uint64_t)k;
		recover(2);
		sum_up(job->policy);
		code = k;
		for (int i = 0; failure && i < length; i++, code /= N_HAPPENS)
			snprintf(which + strlen(which), sizeof(which) - strlen(which), " %ld",
				 code % N_HAPPENS);
		clean_up();
	}
	forced = -1;
	ok(!failure, "%s: all %ld sequences of %d events", policy, n, length);
	if (failure)
		printf("# events%s: %s\n", which, failure);
}

int main(void)
{
	/* asp, whose weights are known at each moment, has the longest */
	static const char *const policies[] = { "asp",
						"bsp min-workers=1",
						"local local-steps=1 min-workers=1",
						"dylu",
						"ssp staleness=2",
						"adsp min-workers=1",
						"adsp++ min-workers=1",
						"batchtune min-workers=1",
						"diloco local-steps=1 min-workers=1" };
	const char *set = getenv("LONG");

	if (!begin_tests())
		return 1;
	for (size_t i = 0; i < PL_LEN(policies); i++)
		test_sequences(&made.job, policies[i],
			       set && *set == '1' ? 5
			       : i		  ? SIZE(3, 2)
						  : SIZE(4, 3));
	return end_tests();
}
