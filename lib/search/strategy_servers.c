/*
 * Parameter servers: ranks push buckets to servers and pull the sums, in place of an all-reduce.
 *
 * Servers are no ranks of the job, so they need hosts of their own: one server on each host of the
 * topology without a rank. If there is no such host, there is nothing to search.
 *
 * Servers save messages: two of them follow one another, whatever the number of ranks. They cost
 * bytes, because few servers carry the buckets of all ranks. Two rules end the search early. First,
 * lib/cost gives without simulation the time of every size of a bucket, in powers of two. If
 * servers are never faster than the best other algorithm, no plan with them is shorter. Second, a
 * few candidates are simulated: the best buckets so far with servers, those of them that servers
 * make faster one at a time, and the cuts of dynamic programming for servers. Only if one of these
 * comes near to the best plan, the bucket search runs again with servers as one more algorithm.
 */
#include "search/buckets_internal.h"

#define NEAR	    1.02  /* this close to the best, the bucket search may improve it */
#define SERVERS_MAX 10000 /* the limit in paceline-plan(5) */

/* Hosts after those of the ranks: ranks fill the hosts in order. */
static uint32_t spare_hosts(const struct choices *s)
{
	const struct pl_topology *t = &s->cost->topo;
	int64_t ranks = s->search->whole->n_ranks, spare = 0;

	for (size_t i = 0; i < s->search->whole->n_groups; i++)
		ranks = pl_max_i64(ranks, s->search->whole->group[i].n);
	for (size_t i = 0; i < t->n_hosts; i++)
		spare += t->host[i].first >= ranks;
	return (uint32_t)pl_min_i64(spare, SERVERS_MAX);
}

struct sizes { /* of the buckets of a group */
	int64_t least, most;
};

static struct sizes sizes_of(const struct choices *s, uint32_t group)
{
	struct sizes x = { INT64_MAX, 0 };

	for (uint32_t t = 0; t < s->n; t++) {
		if (s->tensor[t].fuses != group)
			continue;
		x.least = pl_min_i64(x.least, pl_max_i64(1, s->tensor[t].bytes));
		x.most = pl_add_sat(x.most, s->tensor[t].bytes);
	}
	x.most = pl_min_i64(x.most, INT64_MAX - 1); /* next_size() ends above it */
	return x;
}

/* The next size to try; the last one is the greatest. */
static int64_t next_size(struct sizes x, int64_t bytes)
{
	return bytes == x.most ? INT64_MAX : pl_min_i64(x.most, pl_add_sat(bytes, bytes));
}

static pl_ns with_servers(const struct choices *s, struct pl_cost_comm c, int64_t bytes, uint32_t k)
{
	c.algo = PL_ALGO_PS;
	c.servers = k;
	c.bytes = bytes;
	return pl_cost_transfer(s->cost, &c);
}

/* Is a bucket of some size faster with k servers than with every other algorithm? */
static bool may_help(const struct choices *s, struct pl_cost_comm c, struct sizes x, uint32_t k)
{
	for (int64_t bytes = x.least; bytes <= x.most; bytes = next_size(x, bytes)) {
		pl_ns servers = with_servers(s, c, bytes, k);
		bool faster = true;

		c.bytes = bytes;
		for (c.algo = PL_ALGO_RING; c.algo < PL_ALGO_PS; c.algo++)
			faster &= servers < pl_cost_transfer(s->cost, &c);
		if (faster)
			return true;
	}
	return false;
}

/* Are k servers slower than all servers for any bucket? */
static bool too_few(const struct choices *s, struct pl_cost_comm c, struct sizes x, uint32_t k,
		    uint32_t all)
{
	for (int64_t bytes = x.least; bytes <= x.most; bytes = next_size(x, bytes))
		if (with_servers(s, c, bytes, k) > with_servers(s, c, bytes, all))
			return true;
	return false;
}

/* Allow servers in the groups that they may help, with the smallest number that helps as much. A
 * group on one host does not use the network of the servers. */
static bool allow(struct choices *s)
{
	const struct pl_topology *topo = &s->cost->topo;
	uint32_t all = spare_hosts(s);

	for (uint32_t t = 0; t < s->n; t++) {
		struct pl_cost_comm c = pl_rewrite_comm(s->search->worker[0].r, t);
		struct sizes x = sizes_of(s, s->tensor[t].fuses);
		uint32_t first = 0, k = 1;

		while (s->tensor[first].fuses != s->tensor[t].fuses)
			first++;
		c.parts = 1;
		if (first < t) {
			s->algos[t] = s->algos[first];
		} else if (c.n > topo->host[0].n && may_help(s, c, x, all)) {
			s->algos[t] = PL_ALGO_PS + 1;
			PL_LOWER_BOUND(k, all, too_few(s, c, x, k, all));
			s->servers = k > s->servers ? k : s->servers;
		}
	}
	return s->servers > 0;
}

/* Is the set of the best candidate faster with servers than it is now? */
static bool is_faster(const struct choices *s, uint32_t set)
{
	struct pl_cost_comm c = { .bytes = 0 };
	int64_t bytes = 0;

	for (uint32_t t = 0; t < s->n; t++) {
		if (s->best->b.set[t] != set)
			continue;
		if (s->algos[t] <= PL_ALGO_PS)
			return false;
		c = pl_rewrite_comm(s->search->worker[0].r, t);
		bytes = pl_add_sat(bytes, s->tensor[t].bytes);
	}
	c.parts = s->best->b.parts[set];
	if (s->best->algo[set] != PL_REWRITE_SAME_ALGORITHM)
		c.algo = s->best->algo[set];
	c.bytes = bytes;
	return with_servers(s, c, bytes, s->servers) < pl_cost_transfer(s->cost, &c);
}

static int try_some(struct choices *s, bool *near, struct pl_err *err)
{
	const double best = s->best->head.mean;
	struct bucket_choice *all;
	int rc;

	pl_search_choice_clear(s);
	pl_search_choice_add_cuts(s, PL_ALGO_PS);
	all = pl_search_batch_add(s, s->best);
	for (uint32_t t = 0; t < s->n; t++)
		if (s->algos[t] > PL_ALGO_PS)
			all->algo[s->best->b.set[t]] = PL_ALGO_PS;
	for (uint32_t set = 0; set < s->best->b.n_sets; set++)
		if (is_faster(s, set))
			pl_search_batch_add(s, s->best)->algo[set] = PL_ALGO_PS;
	rc = pl_search_choice_simulate(s, err);
	for (size_t i = 0; i < s->n_batch; i++)
		*near |= pl_search_batch_at(s, i)->head.mean <= NEAR * best;
	return rc;
}

int pl_search_servers(struct search *all, struct pl_err *err)
{
	struct choices *s = all->choices;
	bool near = false;
	int rc;

	if (!s->n || !s->o->algorithm || s->o->preset != PL_PRESET_SEARCH ||
	    s->best->head.mean <= s->search->bound || !spare_hosts(s) || !allow(s) ||
	    pl_search_over(s->search))
		return 0;
	rc = try_some(s, &near, err);
	return rc == 0 && near ? pl_search_buckets_improve(s, err) : rc;
}
