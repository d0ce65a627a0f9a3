/* cost_job_fixture.h - graphs of jobs whose costs are known, and fits to them. */
#ifndef COST_JOB_FIXTURE_H
#define COST_JOB_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "cost_fixture.h"
#include "derive/describe.h"
#include "derive/names.h"
#include "tap.h"

/* ---- graphs whose lines are known ------------------------------------------------------------ */

#define RANKS 4

/* One step: rank r has a stream (2r) and a second one (2r + 1), and computation between. */
struct jobg {
	struct pl_graph g;
	uint64_t rng;
	pl_id name[8];
	pl_ns now[2 * RANKS], at; /* end of each resource's last operation */
	uint32_t cap_n, cap_e;
};

static inline double uniform(struct jobg *j)
{
	return (double)(pl_rng_next(&j->rng) >> 11) * 0x1p-53;
}

static inline void job_init(struct jobg *j, uint64_t seed, uint32_t cap)
{
	static const char *const names[] = {
		"ncclKernel_AllReduce", "nccl:all_gather",  "gemm",  "relu",
		"grads-reduce-scatter", "cudaLaunchKernel", "host0", "c10d::allreduce_"
	};
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	struct pl_err err = { 0 };
	bool fine = true;

	memset(j, 0, sizeof(*j));
	j->rng = seed;
	pl_graph_init(g);
	for (size_t i = 0; i < PL_LEN(names); i++)
		fine &= !pl_intern_add(&g->str, names[i], strlen(names[i]), &j->name[i], &err);
	fine &= !pl_alloc(&g->res, 2 * RANKS, sizeof(*g->res), &err);
	fine &= !pl_alloc(&g->rank, RANKS, sizeof(*g->rank), &err);
	fine &= !pl_alloc(&g->shape, 1, sizeof(*g->shape), &err);
	fine &= !pl_alloc(&g->step, 1, sizeof(*g->step), &err);
	g->n_res = 2 * RANKS;
	g->n_ranks = RANKS;
	g->n_shapes = g->n_steps = 1;
	s = &g->shape[0];
	fine &= !pl_alloc(&s->type, cap, 1, &err) && !pl_alloc(&s->role, cap, 1, &err);
	fine &= !pl_alloc(&s->kind, cap, 1, &err) && !pl_alloc(&s->flags, cap, 1, &err);
	fine &= !pl_alloc(&s->res, cap, 4, &err) && !pl_alloc(&s->name, cap, 4, &err);
	fine &= !pl_alloc(&s->group, cap, 4, &err) && !pl_alloc(&s->bytes, cap, 8, &err);
	fine &= !pl_alloc(&s->off, cap + 1, 4, &err) && !pl_alloc(&s->src, 4 * cap, 4, &err);
	fine &= !pl_alloc(&s->etype, 4 * cap, 1, &err);
	fine &= !pl_alloc(&g->step[0].start, cap, 8, &err);
	fine &= !pl_alloc(&g->step[0].dur, cap, 8, &err);
	for (int i = 0; i < RANKS; i++)
		g->rank[i] = i;
	for (int i = 0; i < 2 * RANKS; i++)
		g->res[i] = (struct pl_resource){ .rank = i / 2, .host = j->name[6] };
	j->cap_n = cap;
	if (!fine)
		exit(1);
}

static inline uint32_t put(struct jobg *j, uint8_t type, uint8_t role, uint8_t kind, pl_id res,
			   int name, pl_ns start, pl_ns dur, int64_t bytes)
{
	struct pl_shape *s = &j->g.shape[0];
	uint32_t i = s->n_nodes++;

	if (i >= j->cap_n)
		exit(1);
	s->type[i] = type;
	s->role[i] = role;
	s->kind[i] = kind;
	s->res[i] = res;
	s->name[i] = j->name[name];
	s->group[i] = PL_NONE;
	s->bytes[i] = bytes;
	s->off[i + 1] = s->n_edges;
	j->g.step[0].start[i] = start;
	j->g.step[0].dur[i] = dur;
	return i;
}

static inline void tie(struct jobg *j, uint32_t src, uint8_t type)
{
	struct pl_shape *s = &j->g.shape[0];

	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = type;
	s->off[s->n_nodes] = s->n_edges;
}

/* Fits to what was put so far. */
static inline int fit_job(struct jobg *j, const struct pl_topology *topo, struct pl_cost *c,
			  struct pl_err *why)
{
	struct pl_shape *s = &j->g.shape[0];
	int rc;

	pl_free(s->comm);
	pl_free(s->phase);
	pl_free(s->work);
	pl_free(s->comms);
	s->comm = s->work = NULL;
	s->phase = NULL;
	s->comms = NULL;
	s->n_comms = 0;
	j->g.described = false;
	rc = pl_derive_describe(&j->g, NULL, why);
	return rc < 0 ? rc : pl_cost_fit(&j->g, topo, c, why);
}

/* A collective of all ranks on stream `lane`, transfer from `at` on; each rank's own duration. */
static inline uint32_t collective(struct jobg *j, int name, int lane, pl_ns at, const pl_ns *dur,
				  int64_t bytes, uint8_t flags)
{
	uint32_t a[RANKS], meet, t = 0;

	for (uint32_t r = 0; r < RANKS; r++)
		a[r] = put(j, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, 2 * r + (uint32_t)lane, name,
			   at, 0, bytes);
	meet = put(j, PL_N_RENDEZVOUS, 0, PL_K_COLLECTIVE, PL_NONE, name, at, 0, bytes);
	for (uint32_t r = 0; r < RANKS; r++)
		tie(j, a[r], PL_E_COMM);
	for (uint32_t r = 0; r < RANKS; r++) {
		t = put(j, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, 2 * r + (uint32_t)lane, name,
			at, dur[r], bytes);
		j->g.shape[0].flags[t] = flags;
		tie(j, meet, PL_E_COMM);
		tie(j, a[r], PL_E_SEQ);
	}
	return t;
}

/* n collectives one after the other: t = a + b S, with noise and outliers. */
static inline void lone(struct jobg *j, int name, int n, double a, double b, double noise,
			double outliers, int64_t lo, int64_t hi)
{
	for (int i = 0; i < n; i++) {
		int64_t bytes = (int64_t)((double)lo * pow((double)hi / (double)lo, uniform(j)));
		double t = (a + b * (double)bytes) * (1 + noise * (2 * uniform(j) - 1));
		pl_ns dur[RANKS];

		if (uniform(j) < outliers)
			t *= 3 + 10 * uniform(j);
		for (int r = 0; r < RANKS; r++)
			dur[r] = (pl_ns)(t * (1 + noise / 4 * uniform(j)));
		collective(j, name, 0, j->at, dur, bytes, 0);
		j->at += (pl_ns)(2 * t);
	}
}

static inline const struct pl_fit *fit_of(const struct pl_cost *c, unsigned coll)
{
	for (size_t i = 0; i < c->n_fits; i++)
		if (c->fit[i].coll == coll)
			return &c->fit[i];
	return NULL;
}

static inline bool near(double got, double want, double rel)
{
	bool yes = fabs(got - want) <= rel * fabs(want);

	if (!yes)
		printf("# got %g, want %g within %g\n", got, want, rel);
	return yes;
}

static inline void job_on_threads(struct jobg *j, struct topo *x)
{
	make_topo(x, 1, RANKS, 10, 100, 10, 100, false);
	job_init(j, 5, 8000);
	for (size_t i = 0; i < j->g.n_res; i++)
		j->g.res[i].track_type = PL_T_THREAD;
}

#endif
