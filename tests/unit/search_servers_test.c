/*
 * Parameter servers on spare hosts: found where they make the step shorter, never asked for where
 * they cannot, and no better where a user tries them by hand.
 */
#include "search_fixture.h"

static const struct pl_search_opts with = {
	.seed = 1, .fuse = true, .algorithm = true, .any = true
};

/* A job of 6 ranks on the first hosts of `hosts`, one on each. */
static int job_init(struct net *j, uint64_t seed, uint32_t hosts, double bytes_per_ns,
		    pl_ns latency, int64_t bytes, struct pl_err *err)
{
	char text[32];
	int rc;

	memset(j, 0, sizeof(*j));
	pl_graph_init(&j->g);
	snprintf(text, sizeof(text), "%ux1", hosts);
	rc = pl_topology_parse(text, &j->topo, err);
	for (size_t i = 0; rc == 0 && i < j->topo.n_links; i++) {
		j->topo.link[i].bytes_per_ns = bytes_per_ns;
		j->topo.link[i].latency_ns = latency;
	}
	return rc < 0 ? rc : net_open(j, 6, seed, 5, 100000, bytes, false, err);
}

struct found {
	double mean; /* of the plan, by full passes */
	int64_t evaluations, servers;
	double bound;
};

static struct found search(struct net *j, const struct pl_search_opts *o, struct pl_err *err)
{
	struct found x = { .mean = INFINITY };
	struct pl_plan p;

	pl_plan_init(&p);
	if (pl_search(&j->g, &j->cost, o, &p, err) == 0) {
		x.mean = planned(j, &p, err);
		x.evaluations = p.evaluations;
		x.bound = (double)p.model_ns - (double)(p.predicted_ns - p.bound_ns);
		for (size_t i = 0; i < p.n_rw; i++)
			if (p.rw[i].op == PL_RW_ALGORITHM && !strcmp(p.rw[i].word, "ps"))
				x.servers = p.rw[i].k;
	}
	pl_plan_fini(&p);
	return x;
}

/* The best of all partitions in which all buckets have one algorithm; k servers. */
static double best_uniform(struct net *j, uint32_t k, struct pl_err *err)
{
	uint32_t v[8] = { 0 }, set_of[8];
	uint8_t algo[8];
	double best = INFINITY;

	do {
		for (unsigned a = PL_ALGO_RING; a < PL_ALGO_COUNT_; a++) {
			size_t mark = pl_rewrite_mark(j->r);
			const struct pl_bucketing b = { .n_sets = by_last(v, 5, set_of),
							.set_of = set_of,
							.algo = algo,
							.servers = k };

			memset(algo, (int)a, sizeof(algo));
			if (pl_rewrite_bucketing(j->r, &b, err) < 0 ||
			    pl_edit_settle_full(&j->e, err) < 0)
				return INFINITY;
			best = fmin(best, pl_edit_mean_step(&j->e));
			pl_rewrite_undo(j->r, mark);
		}
	} while (next_partition(v, 5));
	return best;
}

/* Many messages follow one another in every other algorithm, and latency is most of the time. */
static void test_win(void)
{
	int found = 0, best = 0, shorter = 0, bounded = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(40); seed++, total++) {
		uint32_t spare = 1 + (uint32_t)(seed % 4);
		struct pl_err err = { 0 };
		struct net j, without;

		if (job_init(&j, seed, 6 + spare, 1, 50000, 2000, &err) == 0 &&
		    job_init(&without, seed, 6, 1, 50000, 2000, &err) == 0) {
			struct found a = search(&j, &with, &err), b = search(&without, &with, &err);

			found += a.servers >= 1 && a.servers <= spare;
			best += a.mean <= 1.01 * best_uniform(&j, spare, &err);
			shorter += a.mean < b.mean && !b.servers;
			bounded += a.bound <= a.mean + 1;
			net_fini(&without);
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		net_fini(&j);
	}
	is_i64(found, total, "servers, no more than there are hosts for them");
	is_i64(best, total, "... within 1 % of the best partition with one algorithm");
	is_i64(shorter, total, "... a shorter step than without such hosts");
	is_i64(bounded, total, "... and not below the bound");
}

/* One server carries the bytes of six ranks: lib/cost alone tells that it never pays. */
static void test_lose(void)
{
	int none = 0, same = 0, free = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(40); seed++, total++) {
		struct pl_err err = { 0 };
		struct net j, without;

		if (job_init(&j, seed, 7, 0.01, 10, 4000000, &err) == 0 &&
		    job_init(&without, seed, 6, 0.01, 10, 4000000, &err) == 0) {
			struct found a = search(&j, &with, &err), b = search(&without, &with, &err);

			none += !a.servers;
			same += a.mean == b.mean;
			free += a.evaluations == b.evaluations;
			net_fini(&without);
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		net_fini(&j);
	}
	is_i64(none, total, "no servers where they carry too many bytes");
	is_i64(same, total, "... and the plan that is found without them");
	is_i64(free, total, "... without a simulation more");
}

/* Servers are on other hosts: what never leaves a host does not reach them. */
static void test_one_host(void)
{
	struct pl_err err = { 0 };
	struct net j;
	struct found x;
	int rc;

	memset(&j, 0, sizeof(j));
	pl_graph_init(&j.g);
	rc = pl_topology_parse("2x6", &j.topo, &err);
	if (rc == 0)
		rc = net_open(&j, 6, 3, 5, 100000, 20000, false, &err);
	x = search(&j, &with, &err);
	ok(rc == 0 && isfinite(x.mean) && !x.servers, "none for ranks of one host");
	net_fini(&j);
}

int main(void)
{
	test_win();
	test_lose();
	test_one_host();
	return done_testing();
}
