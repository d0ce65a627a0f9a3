/* search_fixture.h - random data-parallel jobs of a few layers, and all partitions of their
 * tensors.
 */
#ifndef SEARCH_FIXTURE_H
#define SEARCH_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "derive/layers.h"
#include "search/search.h"
#include "tap.h"

/* ---- jobs ------------------------------------------------------------------------------------ */

struct net {
	struct pl_topology topo;
	struct pl_graph g;
	struct pl_cost cost;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	bool open;
};

static pl_ns layer_transfer(void *arg, int64_t bytes, uint32_t n)
{
	const struct pl_cost_comm c = {
		.kind = PL_K_COLLECTIVE, .coll = PL_COLL_ALLREDUCE, .n = n, .bytes = bytes
	};

	return pl_cost_analytic(arg, &c);
}

static int make_topology(struct net *j, uint64_t *rng, struct pl_err *err)
{
	char text[200];
	int rc;

	snprintf(text, sizeof(text), "%ux%u", 1 + (unsigned)(pl_rng_next(rng) % 3),
		 2 + (unsigned)(pl_rng_next(rng) % 3));
	rc = pl_topology_parse(text, &j->topo, err);
	for (size_t i = 0; rc == 0 && i < j->topo.n_links; i++) {
		j->topo.link[i].bytes_per_ns = 0.2 + (double)(pl_rng_next(rng) % 100) / 10;
		j->topo.link[i].latency_ns = (pl_ns)(pl_rng_next(rng) % 20000);
	}
	return rc;
}

static inline void net_fini(struct net *j)
{
	if (j->open) {
		pl_rewrite_free(j->r);
		pl_edit_fini(&j->e);
		pl_sim_free(j->s);
		pl_cost_fini(&j->cost);
	}
	pl_graph_fini(&j->g);
	pl_topology_fini(&j->topo);
}

/* Ranks that are not alike: some operations take up to twice as long, and what follows is later. */
static void disturb(struct pl_graph *g, uint64_t rng)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep *st = &g->step[0];

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		if (s->role[i] == PL_RO_COMPUTE && pl_rng_next(&rng) % 3 == 0)
			st->dur[i] += (pl_ns)(pl_rng_next(&rng) % (uint64_t)(st->dur[i] + 1));
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			st->start[i] =
				pl_max_i64(st->start[i], st->start[s->src[e]] + st->dur[s->src[e]]);
	}
}

/* A job of n layers with random times and sizes, on the first ranks of j->topo. */
static inline int net_open(struct net *j, uint32_t ranks, uint64_t rng, uint32_t n, pl_ns unit,
			   int64_t bytes, bool unlike, struct pl_err *err)
{
	struct pl_layers_opts o = {
		.transfer = layer_transfer, .arg = &j->topo, .n_ranks = ranks, .per_host = 4
	};
	struct pl_buf text = { 0 };
	struct pl_in *in = NULL;
	uint64_t seed = rng;
	int rc;

	PL_TRY(pl_buf_printf(
		&text, err,
		"layer,forward_ns,backward_ns,param_bytes,activation_bytes,update_ns\n"));
	for (uint32_t i = 0; i < n; i++)
		PL_TRY(pl_buf_printf(&text, err, "L%u,%llu,%llu,%llu,%llu,%llu\n", i,
				     (unsigned long long)(pl_rng_next(&rng) % (uint64_t)unit),
				     (unsigned long long)(pl_rng_next(&rng) % (uint64_t)unit) * 2,
				     (unsigned long long)(pl_rng_next(&rng) % (uint64_t)bytes) + 4,
				     (unsigned long long)(pl_rng_next(&rng) % 100000) + 100,
				     (unsigned long long)(pl_rng_next(&rng) % 100)));
	in = pl_in_open_mem("layers", text.p, text.n, err);
	rc = in ? pl_derive_layers(in, &o, &j->g, err) : err->code;
	if (rc < 0)
		goto out;
	if (unlike)
		disturb(&j->g, seed);
	PL_TRY(pl_cost_fit(&j->g, &j->topo, &j->cost, err));
	j->open = true;
	j->s = pl_sim_new(&j->g, err);
	rc = j->s ? pl_sim_edit(j->s, 0, 1, &j->e, err) : err->code;
	if (rc == 0 && !(j->r = pl_rewrite_new(&j->e, &j->cost, err)))
		rc = err->code;
out:
	pl_in_close(in);
	pl_buf_fini(&text);
	return rc;
}

/* A job on a random topology, which has as many ranks. */
static inline int net_init(struct net *j, uint64_t seed, uint32_t n, pl_ns unit, int64_t bytes,
			   bool unlike, struct pl_err *err)
{
	uint64_t rng = seed;
	int rc;

	memset(j, 0, sizeof(*j));
	pl_graph_init(&j->g);
	rc = make_topology(j, &rng, err);
	return rc < 0 ? rc : net_open(j, j->topo.n_ranks, rng, n, unit, bytes, unlike, err);
}

/* The whole graph's step with the plan, by full passes; what was recorded, without lines, as the
 * model has it. */
static double planned(struct net *j, const struct pl_plan *p, struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(j->r);
	double mean = INFINITY;

	if (pl_rewrite_model(j->r, err) == 0 && pl_rewrite_plan(j->r, p, err) == 0 &&
	    pl_edit_settle_full(&j->e, err) == 0)
		mean = pl_edit_mean_step(&j->e);
	pl_rewrite_undo(j->r, mark);
	return mean;
}

static const struct pl_search_opts plain = { .seed = 1, .fuse = true, .any = true };

static inline double searched(struct net *j, const struct pl_search_opts *o, struct pl_err *err)
{
	struct pl_plan p;
	double mean = INFINITY;

	pl_plan_init(&p);
	if (pl_search(&j->g, &j->cost, o, &p, err) == 0)
		mean = planned(j, &p, err);
	pl_plan_fini(&p);
	return mean;
}

/* ---- against every partition ----------------------------------------------------------------- */

/* The next restricted growth string; false behind the last. */
static inline bool next_partition(uint32_t *v, uint32_t n)
{
	for (uint32_t i = n; i-- > 1;) {
		uint32_t most = 0;

		for (uint32_t k = 0; k < i; k++)
			most = v[k] > most ? v[k] : most;
		if (v[i] <= most) {
			v[i]++;
			memset(v + i + 1, 0, (n - i - 1) * sizeof(*v));
			return true;
		}
	}
	return false;
}

/* Numbers in the order of the sets' last members. */
static inline uint32_t by_last(const uint32_t *v, uint32_t n, uint32_t *set_of)
{
	uint32_t sets = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool last = true;

		for (uint32_t k = i + 1; k < n; k++)
			last &= v[k] != v[i];
		if (!last)
			continue;
		for (uint32_t k = 0; k <= i; k++)
			if (v[k] == v[i])
				set_of[k] = sets;
		sets++;
	}
	return sets;
}

/* The best mean step of all partitions of n <= 8 tensors. */
static inline double brute_force(struct net *j, uint32_t n, struct pl_err *err)
{
	uint32_t v[8] = { 0 }, set_of[8];
	double best = INFINITY;

	do {
		size_t mark = pl_rewrite_mark(j->r);
		uint32_t sets = by_last(v, n, set_of);

		if (pl_rewrite_bucketing(j->r,
					 &(struct pl_bucketing){ .n_sets = sets, .set_of = set_of },
					 err) < 0 ||
		    pl_edit_settle_full(&j->e, err) < 0)
			return INFINITY;
		best = fmin(best, pl_edit_mean_step(&j->e));
		pl_rewrite_undo(j->r, mark);
	} while (next_partition(v, n));
	return best;
}

#endif
