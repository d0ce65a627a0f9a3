/* cost_fixture.h - topologies by hand, for the tests of costs. */
#ifndef COST_FIXTURE_H
#define COST_FIXTURE_H

#include <math.h>
#include <string.h>

#include "cost/cost.h"

struct topo {
	struct pl_topology t;
	struct pl_thost host[64];
	struct pl_tlink link[2];
};

static inline void make_topo(struct topo *x, uint32_t hosts, uint32_t per_host, double host_bw,
			     pl_ns host_lat, double net_bw, pl_ns net_lat, bool shared)
{
	memset(x, 0, sizeof(*x));
	for (uint32_t i = 0; i < hosts; i++)
		x->host[i] = (struct pl_thost){ "h", i * per_host, per_host };
	x->link[0] = (struct pl_tlink){ "nvlink", PL_SCOPE_HOST, false, host_bw, host_lat };
	x->link[1] = (struct pl_tlink){ "nic", PL_SCOPE_NETWORK, shared, net_bw, net_lat };
	x->t.host = x->host;
	x->t.link = x->link;
	x->t.n_hosts = hosts;
	x->t.n_links = 2;
	x->t.n_ranks = hosts * per_host;
}

static inline pl_ns cost(const struct topo *x, unsigned coll, unsigned algo, uint32_t n,
			 int64_t bytes, uint32_t servers)
{
	struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
				  .coll = (uint8_t)coll,
				  .algo = (uint8_t)algo,
				  .group = PL_NONE,
				  .n = n,
				  .servers = servers,
				  .bytes = bytes };

	return pl_cost_analytic(&x->t, &c);
}

#endif
