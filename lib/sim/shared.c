/*
 * Steps with shared resources: links, servers and queues that several operations need at the same
 * time.
 *
 * The event core decides which operation gets a resource. A step becomes a job of the core: each
 * node is a task, and a RESOURCE node needs its resource, which serves it by its discipline
 * (discipline.h). The structure of the job depends only on the shape, so it is kept for the next
 * step of that shape.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/discipline.h"
#include "sim/internal.h"

#define ROW(name) &pl_sim_discipline_##name,
static const struct sim_discipline *const disciplines[] = { PL_DISCIPLINES(ROW) };
#undef ROW

static const struct sim_discipline *discipline_of(const struct pl_graph *g, uint32_t res)
{
	return disciplines[g->res[res].discipline];
}

static bool is_user(const struct pl_shape *sh, uint32_t i)
{
	return sh->type[i] == PL_N_RESOURCE && sh->res[i] != PL_NONE;
}

/* ---- places of resources --------------------------------------------------------------------- */

int pl_sim_slots_init(const struct pl_graph *g, struct resource_places *x, struct pl_err *err)
{
	uint32_t n = 0;

	PL_CHECK(pl_alloc(&x->off, g->n_res + 1, sizeof(*x->off), err));
	for (uint32_t i = 0; i < g->n_res; i++) {
		uint32_t places = g->res[i].capacity ? g->res[i].capacity : 1;

		x->off[i] = n;
		if (g->res[i].discipline >= PL_DS_COUNT_)
			return pl_fail(err, PL_EABSENT,
				       "resource %u has discipline %u, which this version does "
				       "not know",
				       i, g->res[i].discipline);
		if (!discipline_of(g, i)->waits)
			continue;
		if (places > 1u << 24 || n > UINT32_MAX / 2 - places)
			return pl_fail(err, PL_ELIMIT, "resource %u takes %u operations at a time",
				       i, places);
		n += places;
	}
	x->off[g->n_res] = n;
	PL_CHECK(pl_alloc(&x->free, n, sizeof(*x->free), err));
	for (uint32_t i = 0; i < n; i++)
		x->free[i] = INT64_MIN;
	return 0;
}

void pl_sim_slots_fini(struct resource_places *x)
{
	pl_free(x->free);
	pl_free(x->off);
	memset(x, 0, sizeof(*x));
}

/* ---- preparation ----------------------------------------------------------------------------- */

PL_COMPARATOR(by_start, struct sim_user, res, start, node);

/* The users of one resource. */
static int explain(struct prep *p, const struct pl_graph *g, const struct resource_places *x,
		   struct sim_user *u, size_t n, struct pl_err *err)
{
	const struct sim_discipline *d = discipline_of(g, u->res);
	pl_ns *free = d->waits ? x->free + x->off[u->res] : NULL;
	int rc = d->explain(u, n, g->res[u->res].capacity, free, err);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		p->resource_gap[u[i].node] = u[i].unexplained;
		if (d->stretches)
			p->work[u[i].node] = u[i].work;
	}
	return rc;
}

static bool stretches(const struct pl_graph *g, const struct pl_shape *sh)
{
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (is_user(sh, i) && discipline_of(g, sh->res[i])->stretches)
			return true;
	return false;
}

int pl_sim_shared_unexplained(struct prep *p, const struct pl_graph *g, const struct pl_gstep *st,
			      struct resource_places *x, struct pl_err *err)
{
	const struct pl_shape *sh = &g->shape[st->shape];
	struct sim_user *u;
	size_t n = 0, k;
	int rc;

	PL_TRY(pl_alloc(&u, sh->n_nodes, sizeof(*u), err));
	if (stretches(g, sh)) {
		PL_TRY(pl_alloc(&p->work, sh->n_nodes, sizeof(*p->work), err));
		memcpy(p->work, st->dur, sh->n_nodes * sizeof(*p->work));
	}
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (is_user(sh, i))
			u[n++] = (struct sim_user){ .res = sh->res[i],
						    .node = i,
						    .start = st->start[i],
						    .end = st->start[i] + st->dur[i],
						    .ready = p->resource_gap[i] };
	pl_sort(u, n, sizeof(*u), by_start);
	for (size_t i = 0; i < n; i = k) {
		for (k = i; k < n && u[k].res == u[i].res;)
			k++;
		PL_TRY(explain(p, g, x, u + i, k - i, err));
	}
out:
	pl_free(u);
	return rc;
}

/* ---- a step as a job of the event core ------------------------------------------------------- */

struct sim_shared {
	const struct pl_shape *sh; /* of the job; NULL: there is none yet */
	struct pl_sim_events *ev;
	struct pl_sim_events_job job;
	struct pl_sim_events_resource *res;
	uint32_t *use_off, *use, *priority;
	pl_ns *delay, *dur, *earliest, *hold, *start;
	bool stretches; /* durations depend on other operations */
};

static void job_fini(struct sim_shared *x)
{
	pl_sim_events_free(x->ev);
	pl_free(x->res);
	pl_free(x->use_off);
	pl_free(x->use);
	pl_free(x->priority);
	pl_free(x->delay);
	pl_free(x->dur);
	pl_free(x->earliest);
	pl_free(x->hold);
	pl_free(x->start);
	memset(x, 0, sizeof(*x));
}

void pl_sim_shared_free(struct sim_shared *x)
{
	if (x)
		job_fini(x);
	pl_free(x);
}

static int set_priorities(struct sim_shared *x, const struct pl_graph *g, const struct pl_shape *sh,
			  struct pl_err *err)
{
	bool any = false;
	int rc = 0;

	for (uint32_t i = 0; i < sh->n_nodes && !any; i++)
		any = is_user(sh, i) && discipline_of(g, sh->res[i])->priority;
	if (any && (rc = pl_alloc(&x->priority, sh->n_nodes, sizeof(*x->priority), err)) == 0)
		for (uint32_t i = 0; i < sh->n_nodes; i++)
			if (is_user(sh, i) && discipline_of(g, sh->res[i])->priority)
				x->priority[i] = discipline_of(g, sh->res[i])->priority(sh, i);
	return rc;
}

static int job_init(struct sim_shared *x, const struct pl_graph *g, const struct pl_shape *sh,
		    struct pl_err *err)
{
	job_fini(x);
	PL_CHECK(pl_alloc(&x->res, g->n_res, sizeof(*x->res), err));
	PL_CHECK(pl_alloc(&x->use_off, sh->n_nodes + 1u, sizeof(*x->use_off), err));
	PL_CHECK(pl_alloc(&x->use, sh->n_nodes, sizeof(*x->use), err));
	PL_CHECK(pl_alloc(&x->delay, sh->n_edges, sizeof(*x->delay), err));
	PL_CHECK(pl_alloc(&x->dur, sh->n_nodes, sizeof(*x->dur), err));
	PL_CHECK(pl_alloc(&x->earliest, sh->n_nodes, sizeof(*x->earliest), err));
	PL_CHECK(pl_alloc(&x->hold, sh->n_nodes, sizeof(*x->hold), err));
	PL_CHECK(pl_alloc(&x->start, sh->n_nodes, sizeof(*x->start), err));
	PL_CHECK(set_priorities(x, g, sh, err));
	x->stretches = stretches(g, sh);
	for (uint32_t r = 0; r < g->n_res; r++)
		x->res[r] =
			(struct pl_sim_events_resource){ .capacity = g->res[r].capacity,
							 .discipline = discipline_of(g, r)->core,
							 .domain = PL_NONE };
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		x->use_off[i + 1] = x->use_off[i];
		if (is_user(sh, i))
			x->use[x->use_off[i + 1]++] = sh->res[i];
	}
	x->job = (struct pl_sim_events_job){ .n = sh->n_nodes,
					     .off = sh->off,
					     .src = sh->src,
					     .etype = sh->etype,
					     .delay = x->delay,
					     .dur = x->dur,
					     .earliest = x->earliest,
					     .k = sh->k,
					     .res = x->res,
					     .n_res = (uint32_t)g->n_res,
					     .use_off = x->use_off,
					     .use = x->use,
					     .priority = x->priority,
					     .hold = x->hold };
	x->ev = pl_sim_events_new(&x->job, err);
	if (!x->ev)
		return err->code;
	x->sh = sh;
	return 0;
}

/* Hands the times of the step to the event core. */
static void fill(struct sim_shared *x, const struct pass *p)
{
	const struct pl_gstep *st = &p->s->g->step[p->k];
	const struct prep *prep = &p->s->step[p->k];

	for (uint32_t e = 0; e < x->sh->n_edges; e++)
		x->delay[e] = prep->w[e];
	for (size_t i = 0; i < prep->n_long_gaps; i++)
		x->delay[prep->long_gap[i].edge] += prep->long_gap[i].gap;
	for (uint32_t i = 0; i < x->sh->n_nodes; i++) {
		bool source = x->sh->off[i] == x->sh->off[i + 1];
		bool waits = is_user(x->sh, i) && discipline_of(p->s->g, x->sh->res[i])->waits;

		pl_ns gap = prep->resource_gap[i];

		x->hold[i] = waits ? gap : 0;
		for (uint32_t e = x->sh->off[i]; gap && !waits && e < x->sh->off[i + 1]; e++)
			x->delay[e] += gap;

		x->dur[i] = p->dur[i];
		x->earliest[i] = i < x->sh->n_entries ? p->end[i] - x->dur[i]
				 : source	      ? st->start[i]
						      : INT64_MIN;
	}
}

/* Computes the length of the step, and the ends that the next step depends on. */
static void close_step(struct pass *p, const struct pl_shape *sh, const pl_ns *start)
{
	p->step_start = INT64_MAX;
	p->step_end = INT64_MIN;
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		uint32_t res = sh->res[i];

		if (res != PL_NONE && p->end[i] >= p->last_end[res].end)
			p->last_end[res] = (struct last_end){ p->end[i], (uint64_t)p->k << 32 | i };
		if (sh->flags[i] & PL_NF_STEP_BEGIN)
			p->step_start = pl_min_i64(p->step_start, start[i]);
		if (sh->flags[i] & PL_NF_IN_STEP)
			p->step_end = pl_max_i64(p->step_end, p->end[i]);
	}
}

int pl_sim_pass_shared(struct pass *p, struct sim_shared **shared, struct pl_err *err)
{
	const struct pl_shape *sh = &p->s->g->shape[p->s->g->step[p->k].shape];
	struct pl_sim_events_times t = { .end = p->end };
	struct sim_shared *x;

	if (!*shared)
		PL_CHECK(pl_alloc(shared, 1, sizeof(**shared), err));
	x = *shared;
	if (x->sh != sh)
		PL_CHECK(job_init(x, p->s->g, sh, err));
	fill(x, p);
	t.start = x->start;
	PL_CHECK(pl_sim_events_run(x->ev, p->places->free, &t, err));
	close_step(p, sh, t.start);
	if (x->stretches) {
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			x->dur[i] = p->end[i] - t.start[i];
		p->dur = x->dur;
	}
	return 0;
}
