/*
 * The analytic cost of a collective: the latency-bandwidth model of Thakur, Rabenseifner and Gropp
 * (Optimization of collective communication operations in MPICH, IJHPCA 19(1), 2005) on links that
 * differ inside a host and between hosts. O(log n) and no memory.
 *
 * Ranks fill hosts in order. A step of an algorithm takes the time of its slowest link, a + x/B. B
 * is the share of one rank if `users` ranks of a host use a shared link at once:
 *
 *   ring               in the host all of its ranks but one (all, if there is one host) send at
 *                      once; one of them sends to the next host
 *   tree               one rank of each host speaks to other hosts; of ceil(log2 n) levels
 *                      ceil(log2 hosts) lie between hosts; as fine a pipeline as can be, so that
 *                      the slowest link decides how fast the bytes pass
 *                      where ranks forward whole messages, or have a link to each other rank: one
 *                      binary tree, in which rank i sends to ranks 2i + 1 and 2i + 2
 *   halving-doubling   partners at distance d: inside the host when blocks of 2d ranks tile it,
 *                      else all ranks of a host are taken to cross at once
 *                      where ranks forward whole messages: the ranks above a power of two have
 *                      partners below it
 *   hierarchical       in the host as a ring; between hosts each rank of a host has a ring of its
 *                      own, all at once
 *   direct             one message to each other rank, all at once
 *   ps                 each worker pushes and pulls S; k servers that are no workers, each with a
 *                      link of its own, carry n S
 *
 * Reduce-scatter and all-gather are the halves of an all-reduce. Broadcast and reduce pass once
 * down a chain (ring), or down a tree. All-to-all sends S/n to each other rank in turn. `bytes` is
 * the larger of the bytes that a rank contributes and the bytes that it receives.
 */
#include <math.h>

#include "cost/internal.h"

uint32_t pl_cost_log2(uint32_t n)
{
	uint32_t k = 0;

	while (k < 31 && (1u << k) < n)
		k++;
	return k;
}

struct placing pl_cost_place(const struct pl_topology *t, uint32_t n)
{
	struct placing p = { 0, 0 };
	uint32_t left = n, last = 0;

	for (size_t i = 0; i < t->n_hosts && left; i++) {
		last = t->host[i].n;
		p.hosts += last > 0;
		p.per_host = last < left ? (last > p.per_host ? last : p.per_host)
					 : (left > p.per_host ? left : p.per_host);
		left -= last < left ? last : left;
	}
	if (!last) { /* nothing is known: one host */
		p.hosts = 1;
		p.per_host = n;
	} else if (left) {
		p.hosts += left / last + (left % last != 0);
	}
	return p;
}

static const struct pl_tlink *link_of(const struct pl_topology *t, enum pl_scope scope)
{
	const struct pl_tlink *l = pl_topology_link(t, scope);

	return l || !t->n_links ? l : &t->link[0];
}

struct hop pl_cost_hop(const struct pl_topology *t, enum pl_scope scope, uint32_t users)
{
	const struct pl_tlink *l = link_of(t, scope);
	struct hop h = { 0, 0 };

	if (l) {
		h.latency_ns = (double)l->latency_ns;
		h.ns_per_byte = (l->shared && users > 1 ? users : 1) / l->bytes_per_ns;
	}
	return h;
}

/* One message of x bytes over the slower of two hops. */
static double slower(struct hop a, struct hop b, double x)
{
	return fmax(a.latency_ns + a.ns_per_byte * x, b.latency_ns + b.ns_per_byte * x);
}

static double ring_steps(const struct pl_topology *t, struct placing p, double steps, double x)
{
	struct hop in = pl_cost_hop(t, PL_SCOPE_HOST, p.hosts > 1 ? p.per_host - 1 : p.per_host);
	struct hop out = p.hosts > 1 ? pl_cost_hop(t, PL_SCOPE_NETWORK, 1) : in;

	return steps * slower(p.per_host > 1 ? in : out, out, x);
}

/* Once up or down a tree. */
static double tree_pass(const struct pl_topology *t, struct placing p, uint32_t n, double bytes)
{
	uint32_t levels = pl_cost_log2(n), between = pl_cost_log2(p.hosts);
	struct hop in = pl_cost_hop(t, PL_SCOPE_HOST, p.per_host - 1);
	struct hop out = pl_cost_hop(t, PL_SCOPE_NETWORK, 1);
	double per_byte = 0;

	between = between < levels ? between : levels;
	if (p.per_host > 1)
		per_byte = in.ns_per_byte;
	if (p.hosts > 1)
		per_byte = fmax(per_byte, out.ns_per_byte);
	return between * out.latency_ns + (levels - between) * in.latency_ns + bytes * per_byte;
}

/* Up and down one binary tree, at once but for the first message. Over one link a rank sends to its
 * parent and its two children in turn; the first message is down after 2 log2(n + 1) - 2 of them.
 */
static double binary_tree(const struct pl_topology *t, struct hop h, bool pairs, uint32_t n,
			  double bytes)
{
	double piece = fmin(bytes, (double)t->message_bytes);
	uint32_t depth = pl_cost_log2(n + 1) - 1, sends = pairs ? 1 : n > 4 ? 3 : n > 2 ? 2 : 1;
	uint32_t down = pairs ? depth : (uint32_t)(2 * log2(n + 1.0)) - 2;

	return 2 * depth * h.latency_ns +
	       h.ns_per_byte * ((depth + down) * piece + sends * (bytes - piece));
}

/* S/2, S/4 ... S/n to partners at distance 1, 2 ... If n is no power of two, the last message also
 * has the rest of S - S/n. */
static double halving_pass(const struct pl_topology *t, struct placing p, uint32_t n, double bytes)
{
	double ns = 0, left = bytes * (n - 1) / n;
	uint32_t steps = pl_cost_log2(n);

	for (uint32_t k = 0; k < steps; k++) {
		uint32_t d = 1u << k;
		double x = k + 1 < steps ? fmin(left, ldexp(bytes, -(int)k - 1)) : left;
		bool crosses = p.hosts > 1 && (d >= p.per_host || p.per_host % (2 * d));
		struct hop h =
			pl_cost_hop(t, crosses ? PL_SCOPE_NETWORK : PL_SCOPE_HOST, p.per_host);

		left -= x;
		ns += h.latency_ns + h.ns_per_byte * x;
	}
	return ns;
}

/* Ranks above the greatest power of two p pass all data to partners, and get all back, as run(1)
 * has it. Either the first half of the data is behind the partner's other half on its link, or (few
 * data) the messages follow one another. */
static double halving_with_partners(const struct pl_topology *t, struct hop h, uint32_t n,
				    double bytes)
{
	uint32_t rounds = pl_cost_log2(n) - 1, p = 1u << rounds, hops = 2 * rounds + 2;
	double piece = fmin(bytes / p, (double)t->message_bytes);
	double sent = t->pairs ? 1.5 : 3 - 2.0 / p;

	return fmax(hops * h.latency_ns + h.ns_per_byte * (bytes + (hops - 1) * piece),
		    2 * h.latency_ns + h.ns_per_byte * (sent * bytes + piece));
}

/* Reduce-scatter in the host, or all-gather; and half of the all-reduce between hosts. */
static double hierarchical_pass(const struct pl_topology *t, struct placing p, double bytes)
{
	struct hop in = pl_cost_hop(t, PL_SCOPE_HOST, p.per_host);
	struct hop out = pl_cost_hop(t, PL_SCOPE_NETWORK, p.per_host);
	double m = p.per_host, h = p.hosts;

	return (m - 1) * (in.latency_ns + in.ns_per_byte * bytes / m) +
	       (h - 1) * (out.latency_ns + out.ns_per_byte * bytes / m / h);
}

/* Push or pull. */
static double ps_pass(const struct pl_topology *t, struct placing p, const struct pl_cost_comm *c,
		      double bytes)
{
	enum pl_scope scope = p.hosts > 1 ? PL_SCOPE_NETWORK : PL_SCOPE_HOST;
	struct hop worker = pl_cost_hop(t, scope, p.per_host), server = pl_cost_hop(t, scope, 1);
	double k = c->servers ? c->servers : 1;

	return worker.latency_ns +
	       fmax(worker.ns_per_byte * bytes, server.ns_per_byte * bytes * c->n / k);
}

/* A server beside a worker has y: kx + ny = 1. A worker's host sends what it does not sum itself
 * and returns its sums to the others, 1 + (n - 2)y; a server's host returns nx. */
double pl_cost_server_share(uint32_t n, uint32_t k, double ratio)
{
	double workers = n, x = 2 * (workers - 1) / (workers * workers * ratio + k * (workers - 2));

	return k ? fmin(x, 1.0 / k) : 0;
}

double pl_cost_server_sum(uint32_t n, uint32_t k, double worker_bytes_per_ns,
			  double server_bytes_per_ns, double bytes)
{
	double x = pl_cost_server_share(n, k, worker_bytes_per_ns / server_bytes_per_ns);
	double workers = n, colocated = (1 - k * x) / workers;

	return bytes * fmax((1 + (workers - 2) * colocated) / worker_bytes_per_ns,
			    workers * x / server_bytes_per_ns);
}

/* Half of an all-reduce. */
static double half(const struct pl_topology *t, struct placing p, const struct pl_cost_comm *c,
		   double bytes)
{
	switch (c->algo) {
	case PL_ALGO_TREE:
		return tree_pass(t, p, c->n, bytes);
	case PL_ALGO_HALVING:
		return halving_pass(t, p, c->n, bytes);
	case PL_ALGO_HIERARCHICAL:
		return hierarchical_pass(t, p, bytes);
	case PL_ALGO_PS:
		return ps_pass(t, p, c, bytes);
	default:
		return ring_steps(t, p, c->n - 1, bytes / c->n);
	}
}

uint8_t pl_cost_algorithm(const char *name)
{
	int algo = name ? pl_plan_algorithm_find(name) : -1;

	if (name && !strcmp(name, "direct"))
		return PL_COST_DIRECT;
	return algo < 0 ? PL_ALGO_RING : (uint8_t)algo;
}

/* Down a chain, in as fine a pipeline as can be. */
static double chain(const struct pl_topology *t, struct placing p, uint32_t n, double bytes)
{
	double latency = ring_steps(t, p, 1, 0);

	return (n - 2) * latency + ring_steps(t, p, 1, bytes);
}

static double message(const struct pl_topology *t, struct placing p, double bytes)
{
	struct hop h = pl_cost_hop(t, p.hosts > 1 ? PL_SCOPE_NETWORK : PL_SCOPE_HOST, 1);

	return h.latency_ns + h.ns_per_byte * bytes;
}

static double alltoall(const struct pl_topology *t, struct placing p, uint32_t n, double bytes)
{
	struct hop in = pl_cost_hop(t, PL_SCOPE_HOST, p.per_host);
	struct hop out = pl_cost_hop(t, PL_SCOPE_NETWORK, p.per_host);
	double x = bytes / n, near = p.per_host - 1;

	return near * (in.latency_ns + in.ns_per_byte * x) +
	       (n - 1 - near) * (out.latency_ns + out.ns_per_byte * x);
}

unsigned pl_cost_coll(const struct pl_cost_comm *c)
{
	bool message = c->kind == PL_K_SEND || c->kind == PL_K_RECV;

	return message && c->coll == PL_COLL_OTHER ? PL_COLL_SEND : c->coll;
}

static double cost_of(const struct pl_topology *t, const struct pl_cost_comm *c)
{
	double bytes = c->bytes > 0 ? (double)c->bytes : 0;
	struct placing p = pl_cost_place(t, c->n);

	switch (pl_cost_coll(c)) {
	case PL_COLL_REDUCE_SCATTER:
	case PL_COLL_ALLGATHER:
		return half(t, p, c, bytes);
	case PL_COLL_BROADCAST:
	case PL_COLL_REDUCE:
		return c->algo == PL_ALGO_RING ? chain(t, p, c->n, bytes)
					       : tree_pass(t, p, c->n, bytes);
	case PL_COLL_GATHER:
	case PL_COLL_SCATTER:
		return tree_pass(t, p, c->n, bytes * (c->n - 1) / c->n);
	case PL_COLL_ALLTOALL:
		return alltoall(t, p, c->n, bytes);
	case PL_COLL_SEND:
	case PL_COLL_RECV:
	case PL_COLL_SENDRECV:
		return message(t, p, bytes);
	case PL_COLL_BARRIER:
		return 2 * tree_pass(t, p, c->n, 0);
	default:
		if (c->algo == PL_COST_DIRECT)
			return message(t, p, bytes);
		if (c->algo == PL_ALGO_TREE && (t->pairs || c->pairs || t->message_bytes > 0))
			return binary_tree(t, pl_cost_hop(t, p.hosts > 1, 1), t->pairs || c->pairs,
					   c->n, bytes);
		if (c->algo == PL_ALGO_HALVING && t->message_bytes > 0 && c->n & (c->n - 1))
			return halving_with_partners(t, pl_cost_hop(t, p.hosts > 1, 1), c->n,
						     bytes);
		return 2 * half(t, p, c, bytes);
	}
}

/* The link of that scope as the changes leave it. */
static size_t changed(const struct pl_topology *t, const struct pl_cost_comm *c,
		      enum pl_scope scope, struct pl_tlink *out)
{
	const struct pl_tlink *l = link_of(t, scope);

	if (!l || l->scope != scope)
		return 0;
	*out = *l;
	for (uint32_t i = 0; i < c->n_changes; i++) {
		const struct pl_link_change *x = &c->change[i];

		if (strcmp(x->link, "*") != 0 && (!l->name || strcmp(x->link, l->name) != 0))
			continue;
		out->bytes_per_ns *= x->bandwidth;
		out->latency_ns =
			(pl_ns)llround((x->absolute ? 1 : (double)out->latency_ns) * x->latency);
	}
	return 1;
}

pl_ns pl_cost_analytic(const struct pl_topology *t, const struct pl_cost_comm *c)
{
	struct pl_topology now = *t;
	struct pl_cost_comm part = *c;
	struct pl_tlink link[2];
	double ns;

	if (c->n < 2)
		return 0;
	if (c->n_changes) {
		now.n_links = changed(t, c, PL_SCOPE_HOST, &link[0]);
		now.n_links += changed(t, c, PL_SCOPE_NETWORK, &link[now.n_links]);
		now.link = link;
	}
	part.bytes = c->bytes / cost_parts(c);
	ns = cost_of(&now, &part) * cost_parts(c);
	/* the doubles' own rounding must not make it a nanosecond more */
	ns = ceil(ns - ns * 1e-13);
	return ns < 9.2e18 ? (pl_ns)ns : INT64_MAX;
}
