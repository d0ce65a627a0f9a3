/*
 * Simulated workers under each policy: throughput against closed forms, shares of time, fairness of
 * adsp at its checkpoints, and how long a day of 200 workers takes.
 */
#include <time.h>

#include "policy_fixture.h"

#include "policy/simulate.h"

#define WORKERS 200

static struct pl_policy_sim_result result[WORKERS];

static double total_steps(const struct pl_policy_sim_result *r, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)r[i].steps;
	return sum;
}

static int simulate(const char *policy, const struct pl_policy_sim_opts *like, uint32_t n,
		    struct pl_err *err)
{
	struct pl_policy_opts p = policy_opts(policy, n);
	struct pl_policy_sim_opts o = *like;

	o.policy = &p;
	return pl_policy_simulate(&o, result, err);
}

static int status; /* of the last simulation */
static struct pl_err failure;

static void run(const char *policy, const struct pl_policy_sim_opts *o, uint32_t n)
{
	failure = (struct pl_err){ 0 };
	status = simulate(policy, o, n, &failure);
}

static void set_speeds(struct pl_policy_sim_worker *w, const double *speed, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		w[i] = (struct pl_policy_sim_worker){ .step_ns = (pl_ns)(0.1 * S / speed[i]) };
}

/* ---- closed forms ---------------------------------------------------------------------------- */

static void throughput(void)
{
	static const double speed[] = { 1, 1, 2, 4, 5 };
	static const struct {
		const char *policy;
		double steps_per_s; /* of all */
	} cases[] = {
		{ "bsp", 50 },	   { "local:7", 50 },	  { "adacomm:4", 50 }, { "diloco:5", 50 },
		{ "asp", 130 },	   { "adsp", 130 },	  { "adsp:2", 130 },   { "adsp++", 130 },
		{ "dylu:9", 130 }, { "ssp:100000", 130 }, { "ssp:5", 50 },
	};
	struct pl_policy_sim_worker w[5];
	struct pl_policy_sim_opts o = { .worker = w, .until = 1000 * S };

	set_speeds(w, speed, 5);
	for (size_t i = 0; i < PL_LEN(cases); i++) {
		double got;

		run(cases[i].policy, &o, 5);
		ok(status == 0, "%s%s", cases[i].policy, failure.msg);
		got = total_steps(result, 5) / 1000;
		ok(fabs(got / cases[i].steps_per_s - 1) < 0.002, "... %.2f steps/s, by analysis %g",
		   got, cases[i].steps_per_s);
	}
	/* Batches of 16 * 5 * v / 13 samples, all steps in 80 / 13 / 16 of 100 ms. */
	run("batchtune", &o, 5);
	ok(status == 0 && fabs((double)result[4].samples / 1000 / (160 * 5) - 1) < 0.1 &&
		   fabs(total_steps(result, 5) / 5 / 1000 / 26 - 1) < 0.07,
	   "batchtune: %.2f rounds/s, 26 without rounding", total_steps(result, 5) / 5 / 1000);
}

/* A commit has 2 * 3 ms on the links and 5 ms of service, one after another. */
static void shares(void)
{
	static const double speed[] = { 1, 2 };
	struct pl_policy_sim_worker w[2];
	struct pl_policy_sim_opts o = { .worker = w, .until = 111 * S / 10, .service_ns = 5 * MS };
	bool sums = true;

	set_speeds(w, speed, 2);
	w[0].link_ns = w[1].link_ns = 3 * MS;
	/* Both begin at 3 ms. A round: 100 ms, 3 ms, 5 ms, 3 ms: 111 ms; worker 1 computes 50 of
	 * them. */
	run("bsp", &o, 2);
	ok(status == 0 && result[0].seen.commits == 100 && result[1].seen.commits == 100,
	   "bsp: %llu rounds of 111 ms", (unsigned long long)result[0].seen.commits);
	ok(result[0].waiting_ns == 0 && result[1].waiting_ns == 100 * 50 * MS, "waiting");
	ok(result[0].seen.commit_ns == 11 * MS && result[1].seen.commit_ns == 61 * MS,
	   "the time of a commit, which includes the waiting");
	for (uint32_t i = 0; i < 2; i++)
		sums = sums && result[i].computing_ns + result[i].sending_ns +
					       result[i].waiting_ns + result[i].absent_ns ==
				       o.until;
	ok(sums, "computing, sending, waiting and absence are all of the time");
	/* 61 and 111 ms, unless they meet at the server */
	run("asp", &o, 2);
	ok(status == 0 && llabs((long long)result[1].seen.commits - 181) <= 6 &&
		   llabs((long long)result[0].seen.commits - 99) <= 3,
	   "asp: %llu and %llu commits", (unsigned long long)result[0].seen.commits,
	   (unsigned long long)result[1].seen.commits);
	/* A server that is slower is the limit: it serves both in 200 ms, and then waits 6 ms. */
	o.service_ns = 100 * MS;
	run("asp", &o, 2);
	ok(status == 0 &&
		   llabs((long long)(result[0].seen.commits + result[1].seen.commits) - 107) <= 1,
	   "a slow server: %llu commits",
	   (unsigned long long)(result[0].seen.commits + result[1].seen.commits));
}

/* Replies of 20 ms each leave one after another on one link. */
static void shared_link(void)
{
	static const double speed[] = { 1, 1, 1, 1 };
	struct pl_policy_sim_worker w[4];
	struct pl_policy_sim_opts o = { .worker = w, .until = 18630 * MS };

	set_speeds(w, speed, 4);
	for (int i = 0; i < 4; i++) {
		w[i].link_ns = 3 * MS;
		w[i].shared_ns = 20 * MS;
	}
	/* The first replies are there after 23, 43, 63 and 83 ms. A round is 100 ms, 3 ms, 80 ms, 3
	 * ms. */
	run("bsp", &o, 4);
	ok(status == 0 && result[0].seen.commits == 100 && result[3].computing_ns == 10000 * MS,
	   "bsp, a link of all replies: %llu rounds of 186 ms",
	   (unsigned long long)result[0].seen.commits);
	ok(result[3].waiting_ns <= 60 * MS && result[0].waiting_ns / (99 * 60 * MS) == 1,
	   "... a worker waits for others until its reply can leave (%lld ms), not for the link",
	   (long long)result[0].waiting_ns / MS);
	/* they come 20 ms apart, so nobody waits for the link: 100 + 3 + 20 + 3 ms */
	run("asp", &o, 4);
	ok(status == 0 && llabs((long long)result[3].seen.commits - 147) <= 1,
	   "asp: %llu commits of 126 ms", (unsigned long long)result[3].seen.commits);
	/* with steps of 10 ms the link is the limit */
	for (int i = 0; i < 4; i++)
		w[i].step_ns = 10 * MS;
	run("asp", &o, 4);
	ok(status == 0 && fabs(total_steps(result, 4) / 931 - 1) < 0.01,
	   "... and with short steps %g in all, 20 ms each", total_steps(result, 4));
	o.overlap = true;
	run("asp", &o, 4);
	ok(status == 0 && result[2].seen.commits >= 229 && result[2].seen.commits <= 234 &&
		   result[2].computing_ns > 18500 * MS,
	   "... also where steps go on: %llu commits", (unsigned long long)result[2].seen.commits);
	w[1].shared_ns = -1;
	run("asp", &o, 4);
	ok(status == PL_EUSAGE, "%s", failure.msg);
}

static void staleness(void)
{
	struct pl_policy_sim_worker w[4];
	struct pl_policy_sim_opts o = { .worker = w, .until = 100 * S };
	static const double equal[] = { 1, 1, 1, 1 };

	set_speeds(w, equal, 4);
	run("asp", &o, 4);
	ok(status == 0 && result[2].seen.staleness_max == 3 && result[2].seen.staleness_mean > 2.9,
	   "asp: of four equal workers, three others come between");
	run("local:3", &o, 4);
	ok(status == 0 && result[2].seen.staleness_max == 0, "local: none");
}

/* Steps go on for the 260 ms until a reply, which is seen after the third. */
static void overlap(void)
{
	static const double speed[] = { 1, 1, 2 };
	struct pl_policy_sim_worker w[3];
	struct pl_policy_sim_opts o = { .worker = w, .until = 30230 * MS, .overlap = true };
	struct pl_policy_sim_result alone;
	bool busy = true, sums = true;

	set_speeds(w, speed, 3);
	for (int i = 0; i < 3; i++)
		w[i].link_ns = 130 * MS;
	run("asp", &o, 1);
	ok(status == 0 && result[0].seen.commits == 100 && result[0].steps == 301 &&
		   result[0].computing_ns == 30100 * MS,
	   "overlap: %llu commits and %llu steps without a pause",
	   (unsigned long long)result[0].seen.commits, (unsigned long long)result[0].steps);
	ok(result[0].seen.staleness_max == 0, "... and its own commits do not make weights old");
	run("asp", &o, 3);
	/* a step begins after two commits of each of the others at most, and of the fast one four
	 */
	ok(status == 0 && result[0].seen.staleness_max <= 5 && result[0].seen.staleness_mean > 2,
	   "... those of others do: by %.2f", result[0].seen.staleness_mean);
	run("adsp", &o, 3);
	for (int i = 0; i < 3; i++) {
		busy = busy && result[i].computing_ns == o.until - 130 * MS;
		sums = sums && result[i].computing_ns + result[i].sending_ns +
					       result[i].waiting_ns + result[i].absent_ns ==
				       o.until;
	}
	ok(status == 0 && busy && sums && result[0].seen.commits >= 50,
	   "adsp: all compute all the time, and commit %llu times",
	   (unsigned long long)result[0].seen.commits);
	/* 10 ms of each commit, then three steps until the reply is seen */
	o.own_ns = 10 * MS;
	run("asp", &o, 1);
	ok(status == 0 && result[0].seen.commits == 97 &&
		   result[0].sending_ns == 130 * MS + 97 * o.own_ns &&
		   result[0].computing_ns + result[0].sending_ns == o.until,
	   "a commit that takes a part of the steps' time: %llu of them",
	   (unsigned long long)result[0].seen.commits);
	o.own_ns = 0;
	run("bsp", &o, 3);
	alone = result[2];
	o.overlap = false;
	run("bsp", &o, 3);
	ok(status == 0 && !memcmp(&alone, &result[2], sizeof(alone)),
	   "a policy whose workers wait is as without");
}

static void changes(void)
{
	static const double speed[] = { 1, 2, 4 };
	struct pl_policy_sim_worker w[3];
	struct pl_policy_sim_change c[] = {
		{ .at = 20 * S, .worker = 1, .what = PL_POLICY_SIM_LEAVES },
		{ .at = 60 * S, .worker = 1, .what = PL_POLICY_SIM_JOINS },
		{ .at = 70 * S, .worker = 2, .what = PL_POLICY_SIM_SPEED, .step_ns = S / 10 },
	};
	struct pl_policy_sim_opts o = {
		.worker = w, .until = 100 * S, .changes = c, .n_changes = 3
	};

	set_speeds(w, speed, 3);
	run("adsp", &o, 3);
	ok(status == 0 && result[0].steps == 1000 &&
		   llabs((long long)result[1].steps - 1200) <= 1 &&
		   llabs((long long)result[2].steps - 3100) <= 1 && result[1].absent_ns == 40 * S,
	   "adsp: %llu, %llu, %llu steps: no step is lost when another worker leaves",
	   (unsigned long long)result[0].steps, (unsigned long long)result[1].steps,
	   (unsigned long long)result[2].steps);
	run("bsp", &o, 3);
	ok(status == PL_ESTOP, "bsp: %s", failure.msg);
	c[0].worker = 3;
	run("asp", &o, 3);
	ok(status == PL_EUSAGE, "%s", failure.msg);
}

/* ---- fairness -------------------------------------------------------------------------------- */

struct fair {
	uint64_t unlike, checks; /* the greatest difference of commits at a checkpoint */
	uint32_t notes, rounds;	 /* notes: of workers */
	pl_ns seen;
};

static int look(void *arg, const struct pl_policy *p, const struct pl_policy_action *a, pl_ns now,
		struct pl_err *err)
{
	struct fair *f = arg;
	uint64_t least = UINT64_MAX, most = 0;

	(void)err;
	f->notes += a->kind == PL_POLICY_NOTE && a->worker != PL_NONE;
	if (a->kind != PL_POLICY_WAKE || now == f->seen)
		return 0;
	for (uint32_t i = 0; pl_policy_worker(p, 0)->commits && i < 4; i++) {
		uint64_t c = pl_policy_worker(p, i)->commits;

		least = c < least ? c : least;
		most = c > most ? c : most;
	}
	f->unlike = most - least > f->unlike ? most - least : f->unlike;
	f->checks++;
	f->seen = now;
	return 0;
}

/* Four workers with speeds from 1 to 4, one of which gets 2 to 4 times slower, and fast again. */
static void one_fairness(uint64_t *seed, int round, struct fair *within, struct fair *beyond)
{
	struct pl_policy_sim_worker w[4];
	struct pl_policy_sim_change c[2] = {
		{ .at = 20 * S + (pl_ns)(pl_rng_next(seed) % (2 * S)) },
		{ .at = 50 * S },
	};
	struct fair f = { 0 }, *to;
	struct pl_policy_sim_opts o = { .worker = w,
					.until = 80 * S,
					.changes = c,
					.n_changes = 2,
					.act = look,
					.arg = &f,
					.service_ns = MS / 10 };
	pl_ns slowest = 0;

	for (int i = 0; i < 4; i++) {
		pl_ns step = 25 * MS + (pl_ns)(pl_rng_next(seed) % (75 * MS));

		w[i] = (struct pl_policy_sim_worker){ .step_ns = step };
		slowest = pl_max_i64(slowest, step);
	}
	c[0].worker = c[1].worker = (uint32_t)round % 4;
	c[1].step_ns = w[round % 4].step_ns;
	c[0].step_ns = c[1].step_ns * (2 + round % 3);
	run("adsp", &o, 4);
	/* The interval of commits has two steps of the slowest worker. */
	to = c[0].step_ns + 3 * MS < 2 * slowest ? within : beyond;
	f.unlike = status < 0 ? UINT64_MAX : f.unlike;
	to->unlike = f.unlike > to->unlike ? f.unlike : to->unlike;
	to->checks += f.checks;
	to->notes += f.notes > 0 || f.unlike <= 1;
	to->rounds++;
}

static void fairness(void)
{
	struct fair within = { 0 }, beyond = { 0 };
	uint64_t seed = 11;

	for (int round = 0; round < CASES(240); round++)
		one_fairness(&seed, round, &within, &beyond);
	ok(within.unlike <= 1 && within.checks > CASES(1000),
	   "adsp: commits differ by at most %llu at %llu checkpoints, in spite of a slow-down",
	   (unsigned long long)within.unlike, (unsigned long long)within.checks);
	ok(beyond.unlike <= 2 && beyond.notes == beyond.rounds,
	   "... by %llu, and that is reported, if a step then takes longer than the interval",
	   (unsigned long long)beyond.unlike);
	printf("# %u of %u\n", beyond.notes, beyond.rounds);
}

/* ---- notes of a search ------------------------------------------------------------------------
 */

struct compared {
	uint32_t all, alike; /* notes: of a rate with another one, or with itself */
};

static int compares(void *arg, const struct pl_policy *p, const struct pl_policy_action *a,
		    pl_ns now, struct pl_err *err)
{
	struct compared *c = arg;
	unsigned long long x, y;
	const char *by = a->kind == PL_POLICY_NOTE ? strstr(a->text, "/s with ") : NULL;

	(void)p;
	(void)now;
	(void)err;
	if (!by || sscanf(by, "/s with %llu", &x) != 1)
		return 0;
	by = strstr(by + 1, "/s with ");
	if (!by || sscanf(by, "/s with %llu", &y) != 1)
		return 0;
	c->all++;
	c->alike += x == y;
	return 0;
}

static int falling(void *arg, struct pl_policy_event *e, struct pl_err *err)
{
	(void)arg;
	(void)err;
	if (e->kind == PL_POLICY_COMMITTED)
		e->loss = 1 / (1 + 1e-9 * (double)e->now);
	return 0;
}

/* In the middle of a search workers get slower, so the greatest rate becomes the one that is tried.
 */
static void limits(void)
{
	static const double speed[] = { 1, 1, 1, 1 };
	struct compared c = { 0 };

	for (int at = 20; at < 120; at += 4) {
		struct pl_policy_sim_worker w[4];
		struct pl_policy_sim_change change[4];
		struct pl_policy_sim_opts o = { .worker = w,
						.until = 60 * S,
						.changes = change,
						.n_changes = 4,
						.event = falling,
						.act = compares,
						.arg = &c };
		struct pl_policy_opts p = policy_opts("adsp", 4);

		set_speeds(w, speed, 4);
		for (uint32_t i = 0; i < 4; i++)
			change[i] = (struct pl_policy_sim_change){ .at = at * 100 * MS,
								   .worker = i,
								   .step_ns = 200 * MS };
		p.period = 16 * 100 * MS;
		o.policy = &p;
		status = pl_policy_simulate(&o, result, &failure);
		c.all += status < 0 ? 1000000 : 0;
	}
	ok(c.all > 20 && c.all < 1000000 && !c.alike,
	   "adsp: %u comparisons of two rates, %u of a rate with itself", c.all, c.alike);
}

/* A link that takes longer than the interval of commits is reported, once. */
static void slow_link(void)
{
	struct pl_policy_sim_worker w[4];
	static const double speed[] = { 1, 1, 2, 4 };
	struct fair f = { 0 };
	struct pl_policy_sim_opts o = { .worker = w, .until = 400 * S, .act = look, .arg = &f };
	struct pl_policy_opts p = policy_opts("adsp", 4);

	set_speeds(w, speed, 4);
	w[3].link_ns = 4 * S;
	p.period = 2 * S;
	o.policy = &p;
	status = pl_policy_simulate(&o, result, &failure);
	ok(status == 0 && f.notes == 1 && result[0].seen.commits >= 195,
	   "a worker with a slow link is reported by %u note, and the others go on: %llu commits",
	   f.notes, (unsigned long long)result[0].seen.commits);
	p.period = 0;
	o.until = 4000 * S;
	f = (struct fair){ 0 };
	status = pl_policy_simulate(&o, result, &failure);
	ok(status == 0 && f.notes <= 2 && (double)result[3].computing_ns > 0.94 * (double)o.until,
	   "the default period follows it: %.1f %% of its time is computing",
	   (double)result[3].computing_ns / (double)o.until * 100);
}

/* Commits of 20 ms and steps from 25 ms: at 4 % of its time, each makes 3 in 1.6 s. */
static void cost(void)
{
	static const double speed[] = { 1, 1, 2, 4 };
	struct pl_policy_sim_worker w[4];
	struct pl_policy_sim_opts o = { .worker = w, .until = 400 * S };
	double least = 1;

	set_speeds(w, speed, 4);
	for (int i = 0; i < 4; i++)
		w[i].link_ns = 10 * MS;
	run("adsp", &o, 4);
	for (int i = 0; i < 4; i++)
		least = fmin(least, (double)result[i].computing_ns / (double)o.until);
	ok(status == 0 && least > 0.955 && result[0].seen.commits > 700,
	   "each worker computes in at least %.1f %% of the time", 100 * least);
}

/* ---- size ------------------------------------------------------------------------------------ */

static double seconds(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

/* A day must take less than 10 s; three hours of it stand for it, unless there is time. */
static void a_day(void)
{
	int hours = CASES(4) != 4 ? 1 : long_form() ? 24 : 3;
	static const char *const policies[] = { "bsp",	"ssp:40", "asp",       "local",	 "adacomm",
						"adsp", "adsp++", "batchtune", "diloco", "dylu" };
	struct pl_policy_sim_worker w[WORKERS];
	struct pl_policy_sim_opts o = { .worker = w, .until = hours * 3600 * S, .service_ns = MS };

	for (uint32_t i = 0; i < WORKERS; i++)
		w[i] = (struct pl_policy_sim_worker){ .step_ns = S + i % 7 * MS, .link_ns = MS };
	for (size_t i = 0; i < PL_LEN(policies); i++) {
		double begun = seconds(), took;
		int rc = simulate(policies[i], &o, WORKERS, &failure);

		took = seconds() - begun;
		ok(rc == 0 && (CASES(4) != 4 || took < hours * 10.0 / 24),
		   "%s: %d hours of 200 workers, %.1f million steps%s", policies[i], hours,
		   total_steps(result, WORKERS) / 1e6, failure.msg);
		printf("# %.2f s\n", took);
	}
}

int main(void)
{
	throughput();
	shares();
	shared_link();
	staleness();
	overlap();
	changes();
	fairness();
	limits();
	slow_link();
	cost();
	a_day();
	return done_testing();
}
