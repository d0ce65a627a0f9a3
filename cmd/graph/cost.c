/*
 * The cost of communication in a job that nobody has run, for graphs made from tables of layers: by
 * analysis, on the topology of the option, or with the same link everywhere.
 */
#include "program.h"

#define RANKS_MAX 65536
#define PER_HOST  8

static pl_ns transfer(void *arg, int64_t bytes, uint32_t n_ranks)
{
	struct layers_cost *x = arg;

	x->comm.bytes = bytes;
	x->comm.n = n_ranks;
	return pl_cost_analytic(&x->topo, &x->comm);
}

static pl_ns message(void *arg, int64_t bytes, uint32_t from, uint32_t to)
{
	const struct layers_cost *x = arg;
	const struct pl_cost_comm comm = {
		.kind = PL_K_SEND, .coll = PL_COLL_SEND, .group = PL_NONE, .n = 2, .bytes = bytes
	};
	struct pl_thost host[2] = { { .n = 1 }, { .n = 1 } };
	struct pl_topology two = x->topo;

	two.host = host;
	two.n_hosts = 2;
	if (pl_topology_host(&x->topo, from) == pl_topology_host(&x->topo, to)) {
		host[0].n = 2;
		two.n_hosts = 1;
	}
	return pl_cost_analytic(&two, &comm);
}

/* The same link within hosts and between them. */
static int one_link(const struct config *c, uint32_t ranks, struct pl_topology *t,
		    struct pl_err *err)
{
	const char *text = c->bandwidth ? c->bandwidth : "12G";
	struct pl_err ignore = { 0 };
	double rate;
	int64_t bytes;
	int rc;

	if (!pl_lang_rate(text, &rate))
		rate = pl_parse_size(text, &bytes, &ignore) < 0 ? 0 : (double)bytes / 1e9;
	if (rate <= 0)
		return pl_fail(err, PL_EUSAGE, "--bandwidth: \"%.100s\" is no rate (like 12GB/s)",
			       text);
	if (c->latency < 0 && c->latency != INT64_MIN)
		return pl_fail(err, PL_EUSAGE, "--latency: must not be negative");
	rc = pl_topology_default(ranks, PER_HOST, t, err);

	for (size_t i = 0; rc == 0 && i < t->n_links; i++) {
		t->link[i].shared = false;
		t->link[i].bytes_per_ns = rate;
		t->link[i].latency_ns = c->latency < 0 ? 5000 : c->latency;
	}
	return rc;
}

int layers_cost(const struct config *c, struct layers_cost *x, struct pl_layers_opts *o,
		struct pl_err *err)
{
	int64_t ranks = c->ranks;
	int rc = 0;

	*x = (struct layers_cost){ .comm = {
					   .kind = PL_K_COLLECTIVE,
					   .coll = PL_COLL_ALLREDUCE,
					   .algo = (uint8_t)pl_max_i64(c->algorithm, PL_ALGO_RING),
					   .group = PL_NONE,
					   .servers = 1 } };
	if (c->topology && (c->bandwidth || c->latency != INT64_MIN))
		return pl_fail(err, PL_EUSAGE,
			       "--topology has the bandwidth and latency of its links");
	if (c->topology && (rc = pl_topology_parse(c->topology, &x->topo, err)) < 0)
		return pl_wrap(err, "--topology");
	if (c->topology && ranks == -1)
		ranks = x->topo.n_ranks;
	if (ranks != -1 && (ranks < 1 || ranks > RANKS_MAX))
		return pl_fail(err, PL_EUSAGE, "--ranks: %lld, must be 1 to %d", (long long)ranks,
			       RANKS_MAX);
	if (c->topology && pl_topology_check(&x->topo, ranks, err) < 0)
		return PL_EUSAGE;
	if (!c->topology)
		rc = one_link(c, ranks == -1 ? PER_HOST : (uint32_t)ranks, &x->topo, err);
	o->program = c->program;
	o->n_ranks = ranks == -1 ? PL_NONE : (uint32_t)ranks;
	o->per_host = c->topology && x->topo.n_hosts ? x->topo.host[0].n : PER_HOST;
	o->transfer = transfer;
	o->algorithm = pl_plan_algorithm_name(x->comm.algo);
	o->message = message;
	o->arg = x;
	return rc;
}
