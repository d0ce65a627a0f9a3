/*
 * Policies: names, and the answers of each policy to events, computed by hand.
 */
#include "policy_fixture.h"

static void names(void)
{
	static const char *const wrong[][2] = {
#define THERE_ARE                                                                                  \
	"there are bsp, ssp:S, asp, local:TAU, fixed-adacomm:TAU, adacomm:TAU0, adsp:N, adsp++, "  \
	"batchtune, diloco:H, dylu:H"
		{ "adps", "there is no policy \"adps\"; " THERE_ARE "; did you mean adsp?" },
		{ "bsp:3", "the policy bsp takes no argument, but there is \"bsp:3\"" },
		{ "ssp:-1", "ssp:S: S is a whole number from 0 to 1000000000, not \"-1\"" },
		{ "ssp:", "ssp:S: S is a whole number from 0 to 1000000000, not \"\"" },
		{ "local:1.5",
		  "local:TAU: TAU is a whole number from 1 to 1000000000, not \"1.5\"" },
		{ "local:0", "local:TAU: TAU is a whole number from 1 to 1000000000, not \"0\"" },
		{ "quickly", "there is no policy \"quickly\"; " THERE_ARE },
	};
	struct pl_policy_opts o = { 0 };
	struct pl_err err;
	size_t n = 0;

	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		err = (struct pl_err){ 0 };
		ok(pl_policy_parse(wrong[i][0], &o, &err) == PL_EUSAGE &&
			   !strcmp(err.msg, wrong[i][1]),
		   "\"%s\": %s", wrong[i][0], err.msg);
	}
	for (const struct pl_policy_kind *k; (k = pl_policy_kind_at(n)) != NULL; n++) {
		bool waits = strstr("bsp local fixed-adacomm adacomm batchtune diloco",
				    pl_policy_name(k)) != NULL;

		ok(pl_policy_parse(pl_policy_name(k), &o, &err) == 0 && o.kind == k &&
			   isnan(o.argument) && pl_policy_waits(k) == waits &&
			   strlen(pl_policy_help(k)) > 20,
		   "%s: %s", pl_policy_name(k), pl_policy_help(k));
	}
	ok(n == 11, "there are 11 policies");
	ok(pl_policy_parse("ssp:7", &o, &err) == 0 && o.argument == 7, "ssp:7");
}

static void refused(void)
{
	struct pl_policy_opts o = policy_opts("bsp", 2);
	struct pl_policy *p;
	struct pl_err err = { 0 };
	struct pl_policy_event e;

	o.min_workers = 3;
	ok(pl_policy_new(&o, &p, &err) == PL_EUSAGE && !p, "%s", err.msg);
	o = policy_opts("bsp", 0);
	err.code = 0;
	ok(pl_policy_new(&o, &p, &err) == PL_EUSAGE && !p, "%s", err.msg);
	p = policy_new("asp", 2);
	is_str(commits(p, 0, 0, 1, 1), "error: policy: worker 0 commits, but has not joined",
	       "a commit before joining");
	is_str(leaves(p, 1, 0), "error: policy: worker 1 leaves, but has not joined", "leaving");
	is_str(joins(p, 0, 5), "reply0 steps=1", "it joins");
	is_str(joins(p, 0, 5), "error: policy: worker 0 joins, but is present", "twice");
	is_str(joins(p, 1, 4), "error: policy: time went back from 5 to 4 ns", "time goes back");
	is_str(joins(p, 2, 5), "error: policy: event 0 of worker 2 of 2", "a third worker");
	is_str(commits(p, 0, 6, 0, 1), "error: policy: worker 0 commits no step", "no step");
	e = commit_of(p, 0, 6, 1, 1);
	e.base = 1;
	is_str(tell(p, e), "error: policy: worker 0 commits on weights that have not been",
	       "weights of the future");
	is_str(commits(p, 0, 6, 1, 1), "update0 w_u=1, reply0 steps=1", "the errors had no effect");
	pl_policy_free(p);
	p = policy_new("bsp", 2);
	joins(p, 0, 0);
	joins(p, 1, 0);
	commits(p, 0, 1, 1, 1);
	is_str(commits(p, 0, 2, 1, 1), "error: policy: worker 0 commits, but waits for a reply",
	       "two commits without a reply");
	pl_policy_free(p);
	pl_policy_free(NULL);
}

static void bsp(void)
{
	struct pl_policy *p = policy_new("bsp", 3);
	struct pl_policy_event e;

	is_str(joins(p, 1, 0), "", "bsp: the first waits for all");
	is_str(joins(p, 0, 0), "", "... and the second");
	is_str(joins(p, 2, 1), "reply2 steps=1, reply0 steps=1, reply1 steps=1", "all begin");
	is_str(commits(p, 2, 3, 1, 2), "update2 s_u=1", "a commit is collected");
	is_str(commits(p, 0, 4, 1, 3), "update0 s_u=1", "a second one");
	ok(pl_policy_version(p) == 0, "the weights have not changed");
	is_str(commits(p, 1, 5, 1, 4),
	       "update1 s_u=1 w_s=0.3333 clear, reply0 steps=1, reply1 steps=1, reply2 steps=1",
	       "the last one ends the round");
	ok(pl_policy_version(p) == 1 && pl_policy_worker(p, 2)->version == 1, "version 1");
	e = commit_of(p, 0, 6, 1, 1);
	e.samples = 8;
	is_str(tell(p, e), "update0 s_u=0.5", "half a batch counts half");
	is_str(commits(p, 1, 7, 1, 1), "update1 s_u=1", "");
	is_str(leaves(p, 2, 8),
	       "few2 \"worker 2 has left: 2 of 3 workers remain, and bsp needs 3\"",
	       "it needs all workers");
	is_str(joins(p, 2, 9), "reply2 steps=1", "which comes back");
	is_str(commits(p, 2, 9, 1, 1),
	       "update2 s_u=1 w_s=0.4 clear, reply0 steps=1, reply1 steps=1, reply2 steps=1",
	       "and ends the round");
	ok(fabs(pl_policy_heterogeneity(p) - 1) < 1e-12, "H = 1 of equal speeds");
	ok(pl_policy_worker(p, 0)->commits == 2 && pl_policy_worker(p, 0)->samples == 24 &&
		   pl_policy_worker(p, 0)->staleness_max == 0,
	   "counts");
	pl_policy_free(p);
}

static void bsp_smaller(void)
{
	struct pl_policy_opts o = policy_opts("bsp", 3);
	struct pl_policy *p;

	o.min_workers = 2;
	p = policy_new_of(&o);
	joins(p, 0, 0);
	is_str(joins(p, 1, 0), "reply1 steps=1, reply0 steps=1", "two of three begin");
	is_str(commits(p, 0, 1, 1, 1), "update0 s_u=1", "");
	is_str(joins(p, 2, 1), "reply2 steps=1", "the third joins within the round");
	is_str(commits(p, 2, 2, 1, 1), "update2 s_u=1", "");
	is_str(leaves(p, 1, 3), "update0 w_s=0.5 clear, reply0 steps=1, reply2 steps=1",
	       "the loss of the last one ends the round");
	is_str(commits(p, 0, 4, 1, 1), "update0 s_u=1", "");
	is_str(leaves(p, 0, 5),
	       "few0 \"worker 0 has left: 1 of 3 workers remain, and bsp needs 2\"",
	       "one is too few");
	is_str(commits(p, 2, 6, 1, 1), "update2 s_u=1", "its commit is collected, and it is held");
	is_str(joins(p, 1, 7), "reply1 steps=1", "another one comes");
	is_str(commits(p, 1, 8, 1, 1),
	       "update1 s_u=1 w_s=0.3333 clear, reply1 steps=1, reply2 steps=1",
	       "the commit of the lost worker is in the mean");
	pl_policy_free(p);
}

static void ssp(void)
{
	struct pl_policy *p = policy_new("ssp:2", 2);

	is_str(joins(p, 0, 0), "reply0 steps=1", "ssp: one alone begins");
	is_str(commits(p, 0, 1, 1, 1), "update0 w_u=1, reply0 steps=1", "... and counts as one");
	is_str(joins(p, 1, 1), "reply1 steps=1", "another one joins, with the clock 1");
	is_str(commits(p, 0, 2, 1, 1), "update0 w_u=0.5, reply0 steps=1", "clocks 2, 1");
	is_str(commits(p, 0, 3, 1, 1), "update0 w_u=0.5, reply0 steps=1", "3, 1");
	is_str(commits(p, 0, 4, 1, 1), "update0 w_u=0.5", "4, 1: it waits");
	is_str(commits(p, 1, 9, 1, 8), "update1 w_u=0.5, reply0 steps=1, reply1 steps=1",
	       "4, 2: both go on");
	ok(pl_policy_worker(p, 1)->staleness_max == 3 &&
		   pl_policy_worker(p, 1)->staleness_mean == 3 &&
		   pl_policy_worker(p, 0)->staleness_max == 0,
	   "three commits came between");
	is_str(commits(p, 0, 10, 1, 1), "update0 w_u=0.5", "5, 2: it waits");
	is_str(leaves(p, 1, 11), "reply0 steps=1", "the slow one leaves");
	is_str(joins(p, 1, 12), "reply1 steps=1", "... and returns with the clock 5");
	commits(p, 0, 13, 1, 1);
	is_str(commits(p, 0, 14, 1, 1), "update0 w_u=0.5, reply0 steps=1", "7, 5");
	pl_policy_free(p);
}

static void local(void)
{
	struct pl_policy *p = policy_new("local:5", 2);

	joins(p, 0, 0);
	is_str(joins(p, 1, 0), "reply1 steps=5, reply0 steps=5", "local: five steps");
	is_str(commits(p, 0, 5, 5, 1), "update0 s_u=1", "... weigh as one batch");
	is_str(commits(p, 1, 5, 5, 1),
	       "update1 s_u=1 w_s=0.5 clear, reply0 steps=5, reply1 steps=5", "mean");
	pl_policy_free(p);
	p = policy_new("fixed-adacomm", 1);
	is_str(joins(p, 0, 0), "reply0 steps=40", "fixed-adacomm: 40 by default");
	pl_policy_free(p);
	p = policy_new("local", 1);
	is_str(joins(p, 0, 0), "reply0 steps=8", "local: 8");
	pl_policy_free(p);
}

static const char *adacomm_round(struct pl_policy *p, pl_ns now, uint64_t steps, double loss)
{
	struct pl_policy_event e = commit_of(p, 0, now, steps, MS);

	e.loss = loss;
	tell(p, e);
	e = commit_of(p, 1, now, steps, MS);
	e.loss = loss;
	return tell(p, e);
}

static void adacomm(void)
{
	struct pl_policy_opts o = policy_opts("adacomm:10", 2);
	struct pl_policy *p;

	o.period = 100 * MS;
	p = policy_new_of(&o);
	joins(p, 0, 0);
	is_str(joins(p, 1, 0), "reply1 steps=10, reply0 steps=10", "adacomm begins with tau0");
	ok(strstr(adacomm_round(p, 10 * MS, 10, 4), "reply0 steps=10") != NULL, "a round");
	ok(strstr(adacomm_round(p, 100 * MS, 10, 4), "reply0 steps=10") != NULL,
	   "the period began with the end of the first round");
	ok(strstr(adacomm_round(p, 110 * MS, 10, 4), "reply0 steps=5") != NULL,
	   "F0 = 4: tau' is not below tau, which is halved");
	is_str(strstr(policy_said, "note"),
	       "note \"adacomm: 5 local steps a commit in place of 10: the loss is 4, and was 4 at "
	       "first\", reply0 steps=5, reply1 steps=5",
	       "a note says so");
	ok(strstr(adacomm_round(p, 210 * MS, 5, 0.6), "reply0 steps=4") != NULL,
	   "ceil(sqrt(.6 / 4) 10) = 4");
	ok(strstr(adacomm_round(p, 310 * MS, 4, 1), "reply0 steps=2") != NULL,
	   "sqrt(1 / 4) 10 = 5 is not below 4: half");
	ok(strstr(adacomm_round(p, 410 * MS, 2, (double)NAN), "reply0 steps=1") != NULL,
	   "no loss: half");
	ok(strstr(adacomm_round(p, 510 * MS, 1, 0), "reply0 steps=1") != NULL, "at least 1");
	pl_policy_free(p);
}

static void diloco_dylu(void)
{
	struct pl_policy *p = policy_new("diloco:3", 2);

	joins(p, 0, 0);
	is_str(joins(p, 1, 0), "reply1 steps=3, reply0 steps=3", "diloco");
	commits(p, 0, 1, 3, 1);
	is_str(commits(p, 1, 1, 3, 1),
	       "update1 s_u=1 v_v=0.9 v_s=0.5 w_s=0.35 w_v=0.63 clear, reply0 steps=3, reply1 "
	       "steps=3",
	       "the outer step");
	pl_policy_free(p);
	p = policy_new("dylu:10", 2);
	is_str(joins(p, 0, 0), "reply0 steps=1", "dylu: the first commit has one step");
	joins(p, 1, 0);
	is_str(commits(p, 0, 3, 1, 3 * MS), "update0 s_u=1 w_u=0.35, reply0 steps=10",
	       "the fastest that is known");
	is_str(commits(p, 1, 3, 1, 2 * MS),
	       "update1 s_u=1 v_v=0.9 v_s=0.5 w_u=0.35 w_v=0.63 clear, reply1 steps=10",
	       "each second commit moves the velocity");
	is_str(commits(p, 0, 33 * MS, 10, 3 * MS), "update0 s_u=1 w_u=0.35, reply0 steps=6",
	       "floor(10 2/3) = 6");
	is_str(leaves(p, 1, 34 * MS), "", "");
	is_str(commits(p, 0, 51 * MS, 6, 3 * MS),
	       "update0 s_u=1 v_v=0.9 v_s=0.5 w_u=0.7 w_v=0.63 clear, reply0 steps=10",
	       "alone: it is the fastest, and S holds two commits");
	pl_policy_free(p);
}

/* A round of three workers with these batches and times in milliseconds. */
static const char *batch_round(struct pl_policy *p, const uint64_t batch[3], const int ms[3])
{
	static pl_ns now;
	const char *said = "";

	now += S;
	for (uint32_t i = 0; i < 3; i++) {
		struct pl_policy_event e = commit_of(p, i, now, 1, ms[i] * MS);

		e.samples = batch[i];
		said = tell(p, e);
	}
	return strstr(said, "reply");
}

#define BATCHES "reply0 steps=1 batch=27, reply1 steps=1 batch=14, reply2 steps=1 batch=7"

static void batchtune(void)
{
	const uint64_t own[3] = { 16, 16, 16 }, tuned[3] = { 27, 14, 7 };
	const int speeds[3] = { 10, 20, 40 }, stopped[3] = { 4000, 20, 40 };
	const int alike[3] = { 17, 17, 17 }, away[3] = { 3000, 17, 17 }, slower[3] = { 34, 17, 17 };
	struct pl_policy *p = policy_new("batchtune", 3);
	struct pl_policy_event e;
	int changes = 0;

	joins(p, 0, 0);
	joins(p, 1, 0);
	joins(p, 2, 0);
	for (int k = 0; k < 2; k++)
		changes += !strstr(batch_round(p, own, k ? stopped : speeds),
				   "reply0 steps=1, reply1 steps=1, reply2 steps=1");
	is_i64(changes, 0, "batchtune: three rounds measure");
	is_str(batch_round(p, own, speeds), BATCHES,
	       "48 samples by speeds 4 : 2 : 1 (27.4, 13.7, 6.9), whoever was stopped in one of "
	       "them");
	e = commit_of(p, 0, 3 * S + MS, 1, 17 * MS);
	e.samples = 27;
	is_str(tell(p, e), "update0 s_u=1.688", "weights by samples");
	e = commit_of(p, 1, 3 * S + MS, 1, 17 * MS);
	e.samples = 14;
	tell(p, e);
	e = commit_of(p, 2, 3 * S + MS, 1, 17 * MS);
	e.samples = 7;
	is_str(tell(p, e), "update2 s_u=0.4375 w_s=0.3333 clear, " BATCHES,
	       "equal times are no news");
	for (int k = 0; k < 12; k++) /* twice with two steps between them */
		changes += strcmp(batch_round(p, tuned, k == 4 || k == 7 ? away : alike),
				  BATCHES) != 0;
	is_i64(changes, 0, "a worker that is stopped within a step keeps its batch");
	is_str(batch_round(p, tuned, slower), BATCHES, "one longer step is no news");
	is_str(batch_round(p, tuned, slower),
	       "reply0 steps=1 batch=19, reply1 steps=1 batch=19, reply2 steps=1 batch=10",
	       "two are: half the speed: 2 : 2 : 1 (19.2, 19.2, 9.6)");
	pl_policy_free(p);
}

/* A step of so many samples at 1.6 or 0.8 samples a millisecond: worker 0 is twice as fast. */
static const char *commits_batch(struct pl_policy *p, uint32_t worker, pl_ns now, uint64_t batch)
{
	struct pl_policy_event e =
		commit_of(p, worker, now, 1, (pl_ns)batch * MS * (worker + 1) * 10 / 16);

	e.samples = batch;
	return tell(p, e);
}

#define TUNED "reply0 steps=1 batch=21, reply1 steps=1 batch=11"

/* A worker that is lost sends its commit again, or goes on with its steps: of the tuned batch. */
/* Shares below 1, which are batches of 1: what they have too much comes from the others. */
static void batchtune_small(void)
{
	struct pl_policy_opts o = policy_opts("batchtune", 4);
	const uint64_t own[4] = { 2, 2, 2, 2 };
	const int ns[4] = { 40, 40, 40, 2 };
	const char *said = NULL;
	struct pl_policy *p;

	o.batch = 2;
	p = policy_new_of(&o);
	for (uint32_t i = 0; i < 4; i++)
		joins(p, i, 0);
	for (int k = 0; k < 3; k++)
		for (uint32_t i = 0; i < 4; i++) {
			struct pl_policy_event e = commit_of(p, i, k * S + MS, 1, ns[i] * MS);

			e.samples = own[i];
			said = tell(p, e);
		}
	is_str(strstr(said, "reply"),
	       "reply0 steps=1 batch=1, reply1 steps=1 batch=1, reply2 steps=1 batch=1, reply3 "
	       "steps=1 batch=5",
	       "8 samples by 0.35 : 0.35 : 0.35 : 6.96");
	pl_policy_free(p);
}

/* Two groups of two ranks, which have a batch of 3 each: no group gets fewer samples than ranks. */
static void batchtune_groups(void)
{
	struct pl_policy_opts o = policy_opts("batchtune", 2);
	const int ns[2] = { 2, 60 };
	const char *said = NULL;
	struct pl_policy *p;

	o.batch = 6;
	o.rank_batch = 3;
	p = policy_new_of(&o);
	for (uint32_t i = 0; i < 2; i++)
		joins(p, i, 0);
	for (int k = 0; k < 3; k++)
		for (uint32_t i = 0; i < 2; i++) {
			struct pl_policy_event e = commit_of(p, i, k * S + MS, 1, ns[i] * MS);

			e.samples = 6;
			said = tell(p, e);
		}
	is_str(strstr(said, "reply"), "reply0 steps=1 batch=10, reply1 steps=1 batch=2",
	       "12 samples by 11.6 : 0.4, of groups of two");
	pl_policy_free(p);
}

static void batchtune_back(void)
{
	struct pl_policy_opts o = policy_opts("batchtune", 2);
	struct pl_policy *p = policy_new("batchtune", 2), *again;
	struct pl_err err = { 0 };
	uint8_t kept[4096];
	const char *said;
	size_t n;

	joins(p, 0, 0);
	joins(p, 1, 0);
	for (int k = 0; k < 3; k++) {
		commits(p, 0, (40 * k + 10) * MS, 1, 10 * MS);
		said = strstr(commits(p, 1, (40 * k + 20) * MS, 1, 20 * MS), "reply");
	}
	is_str(said, TUNED, "32 samples by 2 : 1");
	for (int k = 1; k <= 3; k++) {
		leaves(p, 1, k * S);
		said = joins(p, 1, k * S);
		is_str(said, "reply1 steps=1 batch=11", "it is lost, and goes on as all wait");
		commits_batch(p, 0, k * S, 21);
		is_str(strstr(commits_batch(p, 1, k * S, 11), "reply"), TUNED,
		       "... and after a commit of the tuned batch");
	}
	is_i64(pl_policy_put(p, kept, sizeof(kept), &n, &err), 0, "a server is killed");
	again = policy_new("batchtune", 2);
	is_i64(pl_policy_get(again, kept, n, &err), 0, "... another one goes on");
	is_str(joins(again, 0, 0), "", "... and waits for the other worker");
	is_str(joins(again, 1, 0), "reply1 steps=1 batch=11, reply0 steps=1 batch=21",
	       "... with their batches");
	commits_batch(again, 0, 20 * MS, 16);
	is_str(strstr(commits_batch(again, 1, 20 * MS, 11), "reply"), TUNED,
	       "... and steps of another batch change nothing");
	pl_policy_free(again);
	pl_policy_free(p);
	o.min_workers = 1;
	p = policy_new_of(&o);
	joins(p, 0, 0);
	joins(p, 1, 0);
	for (int k = 0; k < 3; k++) {
		commits(p, 0, (40 * k + 10) * MS, 1, 10 * MS);
		commits(p, 1, (40 * k + 20) * MS, 1, 20 * MS);
	}
	leaves(p, 1, S);
	is_str(strstr(commits_batch(p, 0, S, 21), "reply"), "reply0 steps=1 batch=16",
	       "one worker goes on alone with its own batch");
	is_str(joins(p, 1, S), "reply1 steps=1", "... and so begins the one that comes back");
	for (int k = 0; k < 3; k++) {
		commits_batch(p, 0, S, 16);
		said = strstr(commits_batch(p, 1, S, 11), "reply");
	}
	is_str(said, TUNED, "... whose batch is the tuned one of before");
	pl_policy_free(p);
}

static void adsp(void)
{
	struct pl_policy *p = policy_new("adsp", 2);
	struct pl_policy_opts o = policy_opts("adsp++", 1);

	is_str(joins(p, 0, 0), "reply0 steps=1", "adsp: one step to measure");
	is_str(joins(p, 1, 0), "reply1 steps=1", "");
	is_str(commits(p, 0, 10 * MS, 1, 10 * MS), "update0 w_u=0.5, reply0 first=170 every=160",
	       "it trains on until the other one has committed");
	is_str(commits(p, 1, 40 * MS, 1, 40 * MS),
	       "update1 w_u=0.5, note \"adsp: 8 commits in each check period of 0.64 s\", order0 "
	       "first=80 every=80, wake at=680, reply1 first=80 every=80",
	       "16 steps of 40 ms, a commit in 2 of them");
	is_str(commits(p, 0, 80 * MS, 4, 10 * MS), "update0 w_u=0.5, reply0 first=160 every=80",
	       "the next one");
	is_str(commits(p, 0, 170 * MS, 9, 10 * MS), "update0 w_u=0.5, reply0 first=240 every=80",
	       "a commit that was late does not move the next one");
	is_str(commits(p, 0, 400 * MS, 23, 10 * MS), "update0 w_u=0.5, reply0 first=320 every=80",
	       "one that was very late: two more are due");
	for (int i = 1; i <= 4; i++)
		commits(p, 0, (400 + 40 * i) * MS, 4, 10 * MS);
	is_str(commits(p, 1, 600 * MS, 14, 40 * MS),
	       "update1 w_u=0.5, order0 first=720 every=80, reply1 first=360 every=213.3",
	       "worker 1 can make 2 of 7 that it owes: the target is 3, which worker 0 has made");
	is_str(tell(p, (struct pl_policy_event){ .kind = PL_POLICY_TIMER, .now = 600 * MS }),
	       "wake at=680", "a timer that is early");
	is_str(tell(p, (struct pl_policy_event){ .kind = PL_POLICY_TIMER, .now = 690 * MS }),
	       "order0 first=760 every=160, order1 first=712 every=64, wake at=1320",
	       "the target is 11: of worker 0, with 7, 4 are due; of worker 1, with 1, 10");
	is_str(leaves(p, 1, 700 * MS), "", "it leaves");
	is_str(joins(p, 1, 710 * MS), "reply1 first=1360 every=80",
	       "it returns: nothing is due in this period");
	is_str(tell(p, (struct pl_policy_event){ .kind = PL_POLICY_TIMER, .now = 1320 * MS }),
	       "order0 first=1347 every=53.33, order1 first=1360 every=80, wake at=1960",
	       "... and 8 in the next one; worker 0 owes 4 of the last one");
	pl_policy_free(p);
	o.period = 100 * MS;
	p = policy_new_of(&o);
	joins(p, 0, 0);
	is_str(commits(p, 0, 10 * MS, 1, 10 * MS),
	       "update0 v_v=0 v_u=1 w_v=1, note \"adsp++: 5 commits in each check period of 0.1 "
	       "s\", "
	       "wake at=110, reply0 first=20 every=20",
	       "adsp++: through the velocity; the period that was asked for");
	pl_policy_free(p);
}

/* A worker that makes no commit, although it could: the others do not run away from it. */
static void adsp_behind(void)
{
	struct pl_policy *p = policy_new("adsp", 2);

	joins(p, 0, 0);
	joins(p, 1, 0);
	commits(p, 0, 10 * MS, 1, 10 * MS);
	commits(p, 1, 40 * MS, 1, 40 * MS);
	for (int i = 0; i < 8; i++)
		commits(p, 0, (80 + 80 * i) * MS, 8, 10 * MS);
	is_str(tell(p, (struct pl_policy_event){ .kind = PL_POLICY_TIMER, .now = 680 * MS }),
	       "order0 first=720 every=80, order1 first=700 every=40, wake at=1320",
	       "worker 1 owes 8 commits, and can make 8 more in a period");
	for (int i = 0; i < 8; i++)
		commits(p, 0, (720 + 80 * i) * MS, 8, 10 * MS);
	is_str(tell(p, (struct pl_policy_event){ .kind = PL_POLICY_TIMER, .now = 1320 * MS }),
	       "order0 first=1640 every=640, order1 first=1360 every=80, wake at=1960",
	       "it owes 16: the target grows by one, and half of what it owes is forgiven");
	pl_policy_free(p);
}

int main(void)
{
	names();
	refused();
	bsp();
	bsp_smaller();
	ssp();
	local();
	adacomm();
	diloco_dylu();
	batchtune();
	batchtune_small();
	batchtune_groups();
	batchtune_back();
	adsp();
	adsp_behind();
	return done_testing();
}
