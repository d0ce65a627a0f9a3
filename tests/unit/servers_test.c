/*
 * Jobs with a parameter server in simulated time: which ranks are which worker, and what does not
 * depend on how a job says it.
 */
#include <math.h>

#include "tap.h"

#include "sim/policies.h"
#include "sim/servers.h"

static uint64_t rng = 17;
static struct pl_err err;

static uint64_t below(uint64_t n)
{
	return pl_rng_next(&rng) % n;
}

PL_PRINTF(2, 3)
static void say(struct pl_job *j, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err = (struct pl_err){ 0 };
	if (pl_job_set(j, text, &err) < 0)
		printf("Bail out! %s: %s\n", text, err.msg);
}

static const char *const policies[] = {
	"bsp",
	"ssp staleness=3",
	"asp",
	"local local-steps=4",
	"fixed-adacomm local-steps=5",
	"adacomm local-steps=6",
	"adsp",
	"adsp++",
	"batchtune",
	"diloco local-steps=3",
	"dylu local-steps=6",
};

/* ---- which ranks are which worker ------------------------------------------------------------ */

/* The ranks of each worker as text: "0-2 3". */
static const char *workers(struct pl_job *j)
{
	static char text[200];
	uint32_t *first;
	size_t n = 0;

	err = (struct pl_err){ 0 };
	text[0] = '\0';
	if (pl_job_workers_find(j, &first, &err) < 0)
		return err.msg;
	for (int64_t i = 0; i < pl_job_workers(j); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      first[i + 1] - first[i] > 1 ? "%s%u-%u" : "%s%u",
				      i ? " " : "", first[i], first[i + 1] - 1);
	pl_free(first);
	return text;
}

static void who(void)
{
	static const struct {
		const char *engine, *hosts;
		int ranks;
		const char *want;
	} x[] = {
		{ "ps", "1", 3, "0 1 2" },
		{ "ps", "3", 3, "0 1 2" },
		{ "ps", "2,1", 3, "0 1 2" },
		{ "ps group=2", "1", 4, "0-1 2-3" },
		{ "ps group=2", "3,1", 4, "0-1 2-3" },
		{ "ps group=host", "1", 4, "0-3" },
		{ "ps group=host", "2", 4, "0-1 2-3" },
		{ "ps group=host", "4", 4, "0 1 2 3" },
		{ "ps group=host", "3,1", 4, "0-2 3" },
		{ "ps group=host", "1,2,1", 4, "0 1-2 3" },
		{ "ps group=3", "1", 4,
		  "group=3, but there are 4 ranks: each group has as many as the others; change "
		  "group or ranks" },
		{ "ps group=8", "1", 4,
		  "group=8, but there are 4 ranks: each group has as many as the others; change "
		  "group or ranks" },
		{ "ps group=host", "3", 4,
		  "3 hosts with 4 ranks in all cannot have equally many; change hosts or ranks, or "
		  "list the ranks of each host, like: hosts 3,1" },
		{ "ps group=host", "3,2", 4,
		  "hosts 3,2 have 5 ranks, and the job 4; change hosts or ranks" },
		{ "ps group=host", "65536,65536", 4,
		  "hosts 65536,65536 have 131072 ranks, and the job 4; change hosts or ranks" },
	};
	struct pl_job j;

	for (size_t i = 0; i < PL_LEN(x); i++) {
		pl_job_init(&j);
		say(&j, "engine %s", x[i].engine);
		say(&j, "hosts %s", x[i].hosts);
		say(&j, "ranks %d", x[i].ranks);
		if (!ok(!strcmp(workers(&j), x[i].want), "engine %s, hosts %s, %d ranks: %s",
			x[i].engine, x[i].hosts, x[i].ranks, x[i].want))
			printf("# %s\n", workers(&j));
		pl_job_fini(&j);
	}
	ok(pl_job_hosts("1") == 1 && pl_job_hosts("7") == 7 && pl_job_hosts("7,1,2") == 3,
	   "how many hosts");
	ok(pl_job_host("2", 4, 1) == 0 && pl_job_host("2", 4, 2) == 1 &&
		   pl_job_host("3,1", 4, 2) == 0 && pl_job_host("3,1", 4, 3) == 1 &&
		   pl_job_host("1,2,1", 4, 0) == 0 && pl_job_host("1,2,1", 4, 3) == 2,
	   "the host of a rank");
}

/* ---- simulated ------------------------------------------------------------------------------- */

#define RANKS 12

/* A job of so many ranks with random speeds and links. */
static void any_job(struct pl_job *j, int ranks)
{
	pl_job_init(j);
	say(j, "ranks %d", ranks);
	say(j, "batch %d", (int)(1 + below(64)));
	say(j, "policy %s", policies[below(PL_LEN(policies))]);
	for (int i = 0; i < ranks; i++)
		say(j, "pace %d speed=%d", i, (int)(10 + below(90)));
	if (below(2))
		say(j, "link rate=%dMbit latency=%dus", (int)(1 + below(1000)), (int)below(5000));
	if (below(2))
		say(j, "link rate=100Mbit latency=1ms from=0 to=1");
}

static int simulate(const struct pl_job *j, struct pl_sim_servers *s)
{
	const struct pl_sim_servers_opts o = {
		.job = j, .n = 100000, .steps = 200 * pl_job_workers(j), .service_ns = -1
	};

	err = (struct pl_err){ 0 };
	return pl_sim_servers(&o, s, &err);
}

static bool same(const struct pl_sim_servers *a, const struct pl_sim_servers *b)
{
	bool equal = a->workers == b->workers && a->end_ns == b->end_ns && a->steps == b->steps &&
		     a->samples == b->samples && a->commits == b->commits &&
		     a->heterogeneity == b->heterogeneity;

	for (uint32_t i = 0; equal && i < a->workers; i++)
		equal = a->worker[i].steps == b->worker[i].steps &&
			a->worker[i].samples == b->worker[i].samples &&
			a->worker[i].computing_ns == b->worker[i].computing_ns &&
			a->worker[i].waiting_ns == b->worker[i].waiting_ns &&
			a->worker[i].sending_ns == b->worker[i].sending_ns &&
			a->worker[i].seen.commits == b->worker[i].seen.commits;
	return equal;
}

/* Hosts as a list: "2,2,2". */
static const char *list_of(int hosts, int ranks, char text[64])
{
	size_t n = 0;

	for (int i = 0; i < hosts; i++)
		n += (size_t)snprintf(text + n, 64 - n, "%s%d", i ? "," : "", ranks / hosts);
	return text;
}

/* The same hosts as a number, as a list, and as groups of so many. */
static void said_otherwise(void)
{
	int total = 0, equal = 0;
	char text[64];

	for (int i = 0; i < 120; i++) {
		int hosts = 1 + (int)below(6), ranks = hosts * (int)(1 + below(RANKS / 6));
		struct pl_sim_servers a, b, c;
		struct pl_job j;

		any_job(&j, ranks);
		say(&j, "engine ps group=host%s", below(2) ? " overlap" : "");
		say(&j, "hosts %d", hosts);
		if (simulate(&j, &a) < 0)
			printf("# %s\n", err.msg);
		/* a list of one number would be a number of hosts */
		if (hosts > 1)
			say(&j, "hosts %s", list_of(hosts, ranks, text));
		if (simulate(&j, &b) < 0)
			printf("# %s\n", err.msg);
		say(&j, "hosts 1");
		say(&j, "engine ps group=%d%s", ranks / hosts, j.overlap ? " overlap" : "");
		if (simulate(&j, &c) < 0)
			printf("# %s\n", err.msg);
		total++;
		equal += a.workers && same(&a, &b) && same(&a, &c);
		if (!(same(&a, &b) && same(&a, &c)))
			printf("# %s, %d hosts, %d ranks\n", j.policy, hosts, ranks);
		pl_sim_servers_fini(&a);
		pl_sim_servers_fini(&b);
		pl_sim_servers_fini(&c);
		pl_job_fini(&j);
	}
	is_i64(equal, total, "hosts as a number, as a list and as groups: the same times");
}

/* The batch of a group is the sum of those of its ranks, under each policy. */
static void batches(void)
{
	int good = 0, speeds = 0;

	for (size_t i = 0; i < PL_LEN(policies); i++) {
		struct pl_sim_servers s;
		struct pl_job j;
		bool fits;

		pl_job_init(&j);
		say(&j, "ranks 4");
		say(&j, "batch 16");
		say(&j, "engine ps group=host");
		say(&j, "hosts 3,1");
		say(&j, "policy %s", policies[i]);
		say(&j, "pace any speed=50");
		if (simulate(&j, &s) < 0)
			printf("# %s\n", err.msg);
		fits = s.worker && s.worker[0].samples == 48 * s.worker[0].steps &&
		       s.worker[1].samples == 16 * s.worker[1].steps;
		good += fits;
		/* workers of one speed make as many steps */
		speeds += fits &&
			  fabs((double)s.worker[0].steps / (double)s.worker[1].steps - 1) < 0.03;
		if (!fits)
			printf("# %s\n", policies[i]);
		pl_sim_servers_fini(&s);
		pl_job_fini(&j);
	}
	is_i64(good, PL_LEN(policies), "samples of unequal groups are those of their ranks");
	is_i64(speeds, PL_LEN(policies), "... also where the policy chooses batches");
}

/* batchtune: two ranks of a host are half as fast, so its batch becomes equal to that of the other,
 * and the sum stays. */
static void chosen(void)
{
	struct pl_sim_servers s;
	struct pl_job j;
	double a, b;

	pl_job_init(&j);
	say(&j, "ranks 3");
	say(&j, "batch 31");
	say(&j, "engine ps group=host");
	say(&j, "hosts 2,1");
	say(&j, "policy batchtune");
	for (int i = 0; i < 3; i++)
		say(&j, "pace %d speed=%d", i, i < 2 ? 20 : 40);
	if (simulate(&j, &s) < 0)
		printf("# %s\n", err.msg);
	a = (double)s.worker[0].samples / (double)s.worker[0].steps;
	b = (double)s.worker[1].samples / (double)s.worker[1].steps;
	ok(fabs(a - 46.5) < 1.5 && fabs(b - 46.5) < 1.5,
	   "batchtune: batches go by samples a second (%.1f, %.1f)", a, b);
	ok(s.worker[0].waiting_ns < s.end_ns / 50 && s.worker[1].waiting_ns < s.end_ns / 50,
	   "... so nobody waits");
	ok(fabs(a + b - 93) < 0.6, "... and their sum is that of the ranks, also where it is odd");
	pl_sim_servers_fini(&s);
	pl_job_fini(&j);
}

/* Links of 4 bytes/us: 40 ms for a commit of 40 000 numbers, and for a reply that has the link
 * alone. */
static void shared_links(void)
{
	static const struct {
		const char *engine, *link, *policy;
		double round_ms; /* of four workers with steps of 100 ms, a commit each */
	} x[] = {
		{ "ps", "", "bsp", 100 + 40 + 40 },
		{ "ps", ",shared=yes", "bsp", 100 + 40 + 4 * 40 },
		{ "ps", ",shared=yes", "asp", 100 + 40 + 40 },
		/* Each server has a link, a worker one for all servers. */
		{ "ps servers=2", ",shared=yes", "bsp", 100 + 40 + 4 * 20 },
		{ "ps servers=2", "", "bsp", 100 + 20 + 20 },
	};

	for (size_t i = 0; i < PL_LEN(x); i++) {
		struct pl_sim_servers_opts o = { .n = 40000, .steps = 400, .service_ns = -1 };
		struct pl_sim_servers s;
		uint64_t commits = 0, steps = 0;
		struct pl_job j;
		double got;

		pl_job_init(&j);
		say(&j, "ranks 4");
		say(&j, "engine %s", x[i].engine);
		say(&j, "policy %s", x[i].policy);
		say(&j, "pace any speed=10");
		say(&j, "link rate=4MB%s", x[i].link);
		o.job = &j;
		if (pl_sim_servers(&o, &s, &err) < 0)
			printf("# %s\n", err.msg);
		got = (double)s.end_ns / 1e6 / 100;
		ok(fabs(got / x[i].round_ms - 1) < 0.02, "%s, %s%s: %.4g ms a commit", x[i].policy,
		   x[i].engine, x[i].link, got);
		for (uint32_t k = 0; k < s.workers; k++) {
			commits += s.worker[k].seen.commits;
			steps += s.worker[k].seen.steps;
		}
		ok(s.commits == commits && s.steps == steps && s.steps == 400,
		   "... and all commits and steps are those of the workers");
		pl_sim_servers_fini(&s);
		pl_job_fini(&j);
	}
}

/* The order of hosts does not matter to workers who wait for one another. */
static void turned(void)
{
	struct pl_sim_servers a, b;
	struct pl_job j;

	for (int i = 0; i < 2; i++) {
		pl_job_init(&j);
		say(&j, "ranks 4");
		say(&j, "engine ps group=host");
		say(&j, "hosts %s", i ? "1,3" : "3,1");
		for (int r = 0; r < 4; r++)
			say(&j, "pace %d speed=%d", r, r == (i ? 0 : 3) ? 80 : 30);
		if (simulate(&j, i ? &b : &a) < 0)
			printf("# %s\n", err.msg);
		pl_job_fini(&j);
	}
	ok(a.heterogeneity == b.heterogeneity && a.steps == b.steps &&
		   a.worker[0].samples == b.worker[1].samples &&
		   a.worker[0].computing_ns == b.worker[1].computing_ns,
	   "hosts in another order: the same");
	pl_sim_servers_fini(&a);
	pl_sim_servers_fini(&b);
}

static void compared(void)
{
	struct pl_sim_servers_opts o = { .n = 100000, .service_ns = -1 };
	struct pl_sim_policies p;
	struct pl_job j;

	pl_job_init(&j);
	say(&j, "ranks 4");
	say(&j, "engine ps group=host");
	say(&j, "hosts 3,1");
	say(&j, "pace any speed=50");
	o.job = &j;
	err = (struct pl_err){ 0 };
	ok(pl_sim_policies(&j, &o, &p, &err) == 0 && p.workers == 2, "all policies, of two hosts");
	/* a step of one host has three times the samples of one of the other */
	ok(fabs(p.row[1].samples_per_s / (50 * 4 * 32) - 1) < 0.05 &&
		   fabs(p.row[0].samples_per_s / p.row[1].samples_per_s - 1) < 0.05,
	   "... with the samples of four ranks");
	pl_sim_policies_fini(&p);
	say(&j, "ranks 5");
	ok(pl_sim_policies(&j, &o, &p, &err) == PL_EDATA && strstr(err.msg, "have 4 ranks"),
	   "hosts of other ranks are refused");
	pl_job_fini(&j);
}

int main(void)
{
	who();
	said_otherwise();
	batches();
	chosen();
	shared_links();
	turned();
	compared();
	return done_testing();
}
