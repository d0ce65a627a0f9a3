/* Costs by analysis: against the formulas, and against counting steps. */
#include <stdlib.h>

#include "cost_fixture.h"
#include "tap.h"

static void formulas(void)
{
	struct topo x;
	double a = 1000, b = 1 / 10.0, S = 1 << 20;
	bool ring = true, tree = true, halving = true, ps = true, flat = true, halves = true;

	for (uint32_t n = 2; n <= 64; n++) {
		double l = ceil(log2(n));

		make_topo(&x, 1, n, 10, 1000, 10, 1000, false);
		ring &= cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_RING, n, 1 << 20, 0) ==
			(pl_ns)ceil(2 * (n - 1) * (a + S * b / n) - 1e-6);
		tree &= cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_TREE, n, 1 << 20, 0) ==
			(pl_ns)ceil(2 * l * a + 2 * S * b - 1e-6);
		halving &= llabs(cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_HALVING, n, 1 << 20, 0) -
				 (pl_ns)ceil(2 * l * a + 2.0 * (n - 1) / n * S * b)) <= 1;
		ps &= cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_PS, n, 1 << 20, 2) ==
		      (pl_ns)ceil(2 * a + 2 * fmax(S * b, n * S * b / 2) - 1e-6);
		flat &= cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_HIERARCHICAL, n, 1 << 20, 0) ==
			cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_RING, n, 1 << 20, 0);
		halves &= llabs(2 * cost(&x, PL_COLL_ALLGATHER, PL_ALGO_RING, n, 1 << 20, 0) -
				cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_RING, n, 1 << 20, 0)) <= 1;
	}
	ok(ring, "ring: 2(n-1)(a + S/nB)");
	ok(tree, "tree: 2 ceil(log2 n) a + 2S/B");
	ok(halving, "halving-doubling: 2 ceil(log2 n) a + 2(n-1)/n S/B");
	ok(ps, "two servers: 2a + nS/B");
	ok(flat, "on one host hierarchical is a ring");
	ok(halves, "an all-gather is half an all-reduce");
}

/* Every step of a ring counted by what each rank sends over which link. */
static double count_ring(const struct topo *x, uint32_t hosts, uint32_t m, double bytes)
{
	uint32_t n = hosts * m;
	double worst = 0;

	for (uint32_t r = 0; r < n; r++) {
		bool far = r / m != (r + 1) % n / m;
		const struct pl_tlink *l = &x->link[far];
		double t = (double)l->latency_ns + bytes / n / l->bytes_per_ns;

		worst = t > worst ? t : worst;
	}
	return 2.0 * (n - 1) * worst;
}

/* Partners at distance 1, 2 ...: how many of a host cross at once, counted. */
static double count_halving(const struct topo *x, uint32_t hosts, uint32_t m, double bytes)
{
	uint32_t n = hosts * m;
	double sum = 0;

	for (uint32_t d = 1; d < n; d *= 2) {
		double worst = 0, share = bytes / 2 / d;

		for (uint32_t r = 0; r < n; r++) {
			bool far = r / m != (r ^ d) / m;
			const struct pl_tlink *l = &x->link[far];
			uint32_t users = 0;
			double t;

			for (uint32_t q = r / m * m; q < r / m * m + m; q++)
				users += (q / m != (q ^ d) / m) == far;
			t = (double)l->latency_ns +
			    share * (l->shared ? users : 1) / l->bytes_per_ns;
			worst = t > worst ? t : worst;
		}
		sum += worst;
	}
	return 2 * sum;
}

static void on_hosts(void)
{
	static const uint32_t hosts[] = { 2, 4, 16 }, per[] = { 1, 2, 4, 8 };
	bool ring = true, halving = true, hier = true, more = true;
	struct topo x;

	for (size_t i = 0; i < PL_LEN(hosts); i++)
		for (size_t j = 0; j < PL_LEN(per); j++) {
			uint32_t h = hosts[i], m = per[j], n = h * m;
			double S = 3e7, t;

			if (n > 64)
				continue;
			make_topo(&x, h, m, 200, 3000, 12.5, 9000, true);
			ring &= fabs((double)cost(&x, 1, PL_ALGO_RING, n, (int64_t)S, 0) -
				     count_ring(&x, h, m, S)) <= 1;
			halving &= fabs((double)cost(&x, 1, PL_ALGO_HALVING, n, (int64_t)S, 0) -
					count_halving(&x, h, m, S)) <= 1;
			t = 2 * (m - 1) * (3000 + S / m / 200) +
			    2 * (h - 1) * (9000 + S / m / h / (12.5 / m));
			hier &= fabs((double)cost(&x, 1, PL_ALGO_HIERARCHICAL, n, (int64_t)S, 0) -
				     t) <= 1;
		}
	make_topo(&x, 4, 8, 200, 3000, 12.5, 9000, true);

	for (uint32_t algo = 0; algo < PL_ALGO_COUNT_; algo++) {
		struct topo y;

		make_topo(&y, 32, 8, 200, 3000, 12.5, 9000, true);
		more &= cost(&x, 1, algo, 256, 1 << 22, 4) == cost(&y, 1, algo, 256, 1 << 22, 4);
	}
	ok(ring, "ring over hosts, as counted rank by rank");
	ok(halving, "halving-doubling over hosts with a shared card, as counted");
	ok(hier, "hierarchical over hosts with a shared card");
	ok(more, "more ranks than the topology has: more hosts like the last");
}

/* A message of a tree: ready at its sender, or not yet (INFINITY). */
struct sent {
	uint32_t from, to, piece;
	double ready;
};

/* A binary tree of n ranks, message by message: reduced to rank 0, whose messages go down again.
 * Each message is sent when it is ready and its link is free, in the order in which they become
 * ready. */
static double count_tree(uint32_t n, uint32_t pieces, bool pairs, double latency, double ns)
{
	struct sent m[2 * 16 * 8];
	double free_at[16][16] = { { 0 } }, has[16][8] = { { 0 } }, end = 0;
	uint32_t missing[16][8] = { { 0 } }, k = 0;

	for (uint32_t v = 1; v < n; v++)
		for (uint32_t p = 0; p < pieces; p++) {
			missing[(v - 1) / 2][p]++;
			m[k++] = (struct sent){ v, (v - 1) / 2, p, INFINITY };
			m[k++] = (struct sent){ (v - 1) / 2, v, p, INFINITY };
		}
	for (uint32_t left = k; left; left--) {
		struct sent *next = NULL;
		double *link, came;

		for (uint32_t i = 0; i < k; i++) { /* up with all children, down from rank 0 */
			if (m[i].ready == INFINITY && !missing[m[i].from][m[i].piece] &&
			    (m[i].from > m[i].to || !m[i].from))
				m[i].ready = has[m[i].from][m[i].piece];
			if (m[i].ready >= 0 && m[i].ready < INFINITY &&
			    (!next || m[i].ready < next->ready))
				next = &m[i];
		}
		link = &free_at[next->from][pairs ? next->to : 0];
		*link = fmax(*link, next->ready) + ns;
		came = *link + latency;
		next->ready = -1;
		if (next->from > next->to) {
			missing[next->to][next->piece]--;
			has[next->to][next->piece] = fmax(has[next->to][next->piece], came);
			continue;
		}
		end = fmax(end, came);
		for (uint32_t i = 0; i < k; i++)
			if (m[i].from == next->to && m[i].to > m[i].from &&
			    m[i].piece == next->piece)
				m[i].ready = came;
	}
	return end;
}

static void forwarding(void)
{
	double worst[2][2] = { { 0 } };
	struct topo x;

	for (uint32_t n = 2; n <= 16; n++)
		for (uint32_t pieces = 1; pieces <= 8; pieces++)
			for (int pairs = 0; pairs < 2; pairs++) {
				double t, *w = &worst[pairs][pieces > 1];

				make_topo(&x, 1, n, 10, 1000, 10, 1000, false);
				x.t.pairs = pairs;
				x.t.message_bytes = 1000000;
				t = (double)cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_TREE, n,
						 1000000 * (int64_t)pieces, 0);
				*w = fmax(*w,
					  fabs(t / count_tree(n, pieces, pairs, 1000, 1e5) - 1));
			}
	printf("# %g %g, %g %g\n", worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
	ok(worst[1][0] < 1e-6 && worst[1][1] < 1e-6,
	   "a tree over a link to each rank, as counted message by message");
	ok(worst[0][0] < 0.002 && worst[0][1] < 0.2, "... over one link a rank, nearly");
	make_topo(&x, 1, 8, 10, 1000, 10, 1000, false);
	x.t.pairs = true;
	is_i64(cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 8, 1000000, 0), 6 * 1000 + 100000,
	       "... in pieces as fine as can be: all bytes once");
}

/* When a message that is ready then has arrived; links take one after the other. */
static double carry(double *link, double ready, double latency, double ns)
{
	*link = fmax(*link, ready) + ns;
	return *link + latency;
}

/* Halving-doubling of three ranks, message by message, as run(1) has it: rank 2 passes all to rank
 * 0, ranks 0 and 1 exchange halves of so many pieces, and rank 2 gets all back. */
static double count_three(uint32_t pieces, double latency, double ns)
{
	double to0 = 0, to1 = 0, back = 0, to2 = 0, from2[16], from1[8], there[8], end = 0;

	for (uint32_t i = 0; i < 2 * pieces; i++)
		from2[i] = carry(&to0, 0, latency, ns);
	for (uint32_t i = 0; i < pieces; i++)
		from1[i] = carry(&back, 0, latency, ns);
	for (uint32_t i = 0; i < pieces; i++)
		there[i] = carry(&to1, from2[pieces + i], latency, ns);
	for (uint32_t i = 0; i < pieces; i++) { /* the sum of the first half: from rank 0 */
		double sum = fmax(from2[i], from1[i]);

		end = fmax(end, carry(&to1, sum, latency, ns));
		end = fmax(end, carry(&to2, sum, latency, ns));
	}
	for (uint32_t i = 0; i < pieces; i++) /* of the other: from rank 1, and on */
		end = fmax(end, carry(&to2, carry(&back, there[i], latency, ns), latency, ns));
	return end;
}

static void partners(void)
{
	bool slower = true;
	double worst = 0;
	struct topo x;

	for (uint32_t pieces = 1; pieces <= 8; pieces++)
		for (pl_ns latency = 1000; latency <= 1000000; latency *= 1000) {
			int64_t bytes = 2000000 * (int64_t)pieces;
			double t;

			make_topo(&x, 1, 3, 10, latency, 10, latency, false);
			x.t.pairs = true;
			x.t.message_bytes = 1000000;
			t = (double)cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_HALVING, 3, bytes, 0);
			worst = fmax(worst,
				     fabs(t / count_three(pieces, (double)latency, 1e5) - 1));
			x.t.pairs = false;
			slower &= cost(&x, PL_COLL_ALLREDUCE, PL_ALGO_HALVING, 3, bytes, 0) >= t;
		}
	printf("# %g\n", worst);
	ok(worst < 1e-6, "halving-doubling of three ranks, as counted message by message");
	ok(slower, "... over one link a rank: no faster");
}

static void special(void)
{
	struct pl_link_change change[] = { { .link = "nic", .bandwidth = 2, .latency = 1 },
					   { .link = "*", .bandwidth = 0.5, .latency = 3 } };
	struct pl_cost_comm c = { .kind = PL_K_SEND, .n = 2, .bytes = 1000000, .group = PL_NONE };
	struct topo x, y;

	make_topo(&x, 2, 1, 200, 3000, 10, 9000, true);
	is_i64(pl_cost_analytic(&x.t, &c), 109000, "a message: a + S/B");
	c.change = change;
	c.n_changes = 1;
	is_i64(pl_cost_analytic(&x.t, &c), 59000, "over a link twice as fast");
	c.n_changes = 2;
	is_i64(pl_cost_analytic(&x.t, &c), 127000, "changes of links multiply");
	c.n_changes = 0;
	c.parts = 4;
	is_i64(pl_cost_analytic(&x.t, &c), 136000, "in parts, one after the other");
	c.n = 1;
	is_i64(pl_cost_analytic(&x.t, &c), 0, "one rank has nobody to talk to");
	is_i64(cost(&x, PL_COLL_BARRIER, 0, 2, 1 << 20, 0), 18000, "a barrier moves nothing");
	is_i64(cost(&x, PL_COLL_ALLREDUCE, 0, 2, -1, 0), 18000, "unknown size: the latency");
	make_topo(&y, 0, 0, 1, 1, 1, 1, false);
	y.t.n_links = 0;
	is_i64(cost(&y, 1, 0, 8, 1000, 0), 0, "no link costs nothing");
	is_i64(cost(&x, 1, PL_ALGO_RING, 1000000, INT64_MAX, 0) > 0, 1, "huge, and no overflow");
}

/* The busiest link when each of k servers has the share x: counted message by message. */
static double busiest(uint32_t n, uint32_t k, double ratio, double x)
{
	double colocated = (1 - k * x) / n, from_worker = 0, from_server = 0;

	for (uint32_t to = 1; to < n; to++) /* pushes to the servers beside the others, and pulls */
		from_worker += colocated + colocated;
	for (uint32_t to = 0; to < k; to++)
		from_worker += x;
	for (uint32_t to = 0; to < n; to++)
		from_server += x;
	return fmax(from_worker, k ? from_server * ratio : 0);
}

/* No share is better than the one that lib/cost says, and it is the published one. */
static void test_servers(void)
{
	double share = 0, best = 0;

	for (uint32_t n = 2; n <= 9; n++)
		for (uint32_t k = 0; k <= 9; k++)
			for (double ratio = 0.25; ratio <= 4; ratio *= 2) {
				double x = pl_cost_server_share(n, k, ratio), least = INFINITY;
				double sum = pl_cost_server_sum(n, k, ratio, 1, 1) * ratio;
				double wanted = 2 * (n - 1.0) / (n * n + k * n - 2.0 * k);

				for (int i = 0; i <= 1000 && k; i++)
					least = fmin(least, busiest(n, k, ratio, i / 1000.0 / k));
				if (k)
					best = fmax(best, sum / least - 1);
				best = fmax(best, fabs(busiest(n, k, ratio, x) - sum));
				if (ratio == 1 && k && k <= n)
					share = fmax(share, fabs(x - wanted));
			}
	ok(share < 1e-12, "the share of a server is the published one");
	ok(best < 1e-12, "no other share is faster (%.3g)", best);
	ok(fabs(pl_cost_server_sum(5, 0, 1, 1, 1) - 1.6) < 1e-12, "no servers: an all-reduce");
	ok(fabs(pl_cost_server_sum(5, 5, 1, 1, 1) - 1) < 1e-12,
	   "as many as workers: servers alone");
}

int main(void)
{
	test_servers();
	formulas();
	on_hosts();
	forwarding();
	partners();
	special();
	return done_testing();
}
