/*
 * Steps with shared resources: links, servers and queues that several operations need at the same
 * time.
 *
 * The event core decides which operation gets a resource. A step becomes a job of the core: each
 * node is a task, and a RESOURCE node holds its resource, first come, first served. The structure
 * of the job depends only on the shape, so it is kept for the next step of that shape.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/events.h"
#include "sim/internal.h"

/* ---- places of resources --------------------------------------------------------------------- */

int pl_sim_slots_init(const struct pl_graph *g, struct resource_places *x, struct pl_err *err)
{
	uint32_t n = 0;
	int rc = pl_alloc(&x->off, g->n_res + 1, sizeof(*x->off), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t places = g->res[i].capacity ? g->res[i].capacity : 1;

		x->off[i] = n;
		if (places > 1u << 24 || n > UINT32_MAX / 2 - places)
			return pl_fail(err, PL_ELIMIT, "resource %zu takes %u operations at a time",
				       i, places);
		n += places;
	}
	x->off[g->n_res] = n;
	if ((rc = pl_alloc(&x->free, n, sizeof(*x->free), err)) < 0)
		return rc;
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

static uint32_t first_free(const struct resource_places *x, uint32_t res)
{
	uint32_t best = x->off[res];

	for (uint32_t i = best + 1; i < x->off[res + 1]; i++)
		if (x->free[i] < x->free[best])
			best = i;
	return best;
}

/* ---- preparation ----------------------------------------------------------------------------- */

struct user { /* of a shared resource */
	pl_ns start, ready;
	uint32_t node;
};

PL_COMPARATOR(by_start, struct user, start, node);

int pl_sim_shared_unexplained(struct prep *p, const struct pl_gstep *st, const struct pl_shape *sh,
			      struct resource_places *x, struct pl_err *err)
{
	struct user *u;
	size_t n = 0;
	int rc = pl_alloc(&u, sh->n_nodes, sizeof(*u), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (sh->type[i] == PL_N_RESOURCE && sh->res[i] != PL_NONE)
			u[n++] = (struct user){ st->start[i], p->resource_gap[i], i };
	if (n)
		qsort(u, n, sizeof(*u), by_start);
	for (size_t k = 0; k < n; k++) {
		uint32_t i = u[k].node, slot = first_free(x, sh->res[i]);
		pl_ns t = pl_max_i64(u[k].ready, x->free[slot]);

		p->resource_gap[i] = u[k].ready == INT64_MIN ? 0 : pl_max_i64(0, u[k].start - t);
		x->free[slot] = pl_max_i64(x->free[slot], u[k].start + st->dur[i]);
	}
	pl_free(u);
	return 0;
}

/* ---- a step as a job of the event core ------------------------------------------------------- */

struct sim_shared {
	const struct pl_shape *sh; /* of the job; NULL: there is none yet */
	struct pl_sim_events *ev;
	struct pl_sim_events_job job;
	struct pl_sim_events_resource *res;
	uint32_t *use_off, *use;
	pl_ns *delay, *dur, *earliest, *start;
};

static void job_fini(struct sim_shared *x)
{
	pl_sim_events_free(x->ev);
	pl_free(x->res);
	pl_free(x->use_off);
	pl_free(x->use);
	pl_free(x->delay);
	pl_free(x->dur);
	pl_free(x->earliest);
	pl_free(x->start);
	memset(x, 0, sizeof(*x));
}

void pl_sim_shared_free(struct sim_shared *x)
{
	if (x)
		job_fini(x);
	pl_free(x);
}

static int job_init(struct sim_shared *x, const struct pl_graph *g, const struct pl_shape *sh,
		    struct pl_err *err)
{
	int rc;

	job_fini(x);
	PL_TRY(pl_alloc(&x->res, g->n_res, sizeof(*x->res), err));
	PL_TRY(pl_alloc(&x->use_off, sh->n_nodes + 1u, sizeof(*x->use_off), err));
	PL_TRY(pl_alloc(&x->use, sh->n_nodes, sizeof(*x->use), err));
	PL_TRY(pl_alloc(&x->delay, sh->n_edges, sizeof(*x->delay), err));
	PL_TRY(pl_alloc(&x->dur, sh->n_nodes, sizeof(*x->dur), err));
	PL_TRY(pl_alloc(&x->earliest, sh->n_nodes, sizeof(*x->earliest), err));
	PL_TRY(pl_alloc(&x->start, sh->n_nodes, sizeof(*x->start), err));
	for (size_t r = 0; r < g->n_res; r++)
		x->res[r] = (struct pl_sim_events_resource){ .capacity = g->res[r].capacity,
							     .domain = PL_NONE };
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		x->use_off[i + 1] = x->use_off[i];
		if (sh->type[i] == PL_N_RESOURCE && sh->res[i] != PL_NONE)
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
					     .use = x->use };
	x->ev = pl_sim_events_new(&x->job, err);
	if (!x->ev)
		return err->code;
	x->sh = sh;
	rc = 0;
out:
	return rc;
}

/* The times of the step that the core is given. */
static void fill(struct sim_shared *x, const struct pass *p)
{
	const struct pl_gstep *st = &p->s->g->step[p->k];
	const struct prep *prep = &p->s->step[p->k];

	for (uint32_t e = 0; e < x->sh->n_edges; e++)
		x->delay[e] = p->w[e];
	for (size_t i = 0; i < prep->n_long_gaps; i++)
		x->delay[prep->long_gap[i].edge] += prep->long_gap[i].gap;
	for (uint32_t i = 0; i < x->sh->n_nodes; i++) {
		bool source = x->sh->off[i] == x->sh->off[i + 1];

		x->dur[i] = scaled(p->dur[i], p->f, i);
		x->earliest[i] = i < x->sh->n_entries ? p->end[i] - x->dur[i]
				 : source	      ? st->start[i]
						      : INT64_MIN;
	}
	x->job.hold = prep->resource_gap;
}

/* What the ends of the step mean for the next one, and for its length. */
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
	int rc = 0;

	if (!*shared)
		PL_TRY(pl_alloc(shared, 1, sizeof(**shared), err));
	x = *shared;
	if (x->sh != sh)
		PL_TRY(job_init(x, p->s->g, sh, err));
	fill(x, p);
	t.start = x->start;
	PL_TRY(pl_sim_events_run(x->ev, p->places->free, &t, err));
	close_step(p, sh, t.start);
out:
	return rc;
}
