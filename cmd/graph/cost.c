/*
 * What communication costs in a job that nobody has run, for graphs made from tables of layers.
 *
 * A ring all-reduce of n ranks sends 2 (n - 1) messages of 1/n of the bytes, one after the other
 * (Patarasuk and Yuan, JPDC 2009): each takes the latency and its share of the bandwidth that a
 * rank has in one direction.
 *
 * This is the one place that knows: a topology with a model of its own replaces transfer() here,
 * and what it is given as `arg`.
 */
#include <math.h>

#include "program.h"

#define RANKS_MAX 65536
#define PER_HOST  8

static pl_ns transfer(void *arg, int64_t bytes, uint32_t n_ranks)
{
	const struct config *c = arg;
	double messages = 2.0 * (n_ranks - 1.0), part = (double)bytes / n_ranks;
	double ns = messages * ((double)c->latency + part * 1e9 / (double)c->bandwidth);

	return ns < 0x1p62 ? (pl_ns)ceil(ns) : (pl_ns)1 << 62;
}

int layers_cost(const struct config *c, struct pl_layers_opts *o, struct pl_err *err)
{
	if (c->ranks < 1 || c->ranks > RANKS_MAX)
		return pl_fail(err, PL_EUSAGE, "--ranks: %lld, must be 1 to %d",
			       (long long)c->ranks, RANKS_MAX);
	if (c->bandwidth < 1)
		return pl_fail(err, PL_EUSAGE,
			       "--bandwidth: must be at least one byte a second, as in 12G");
	if (c->latency < 0)
		return pl_fail(err, PL_EUSAGE, "--latency: must not be negative");
	o->n_ranks = (uint32_t)c->ranks;
	o->per_host = PER_HOST;
	o->transfer = transfer;
	o->arg = (void *)(uintptr_t)c;
	return 0;
}
