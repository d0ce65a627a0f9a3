/*
 * Steps with shared resources: links, servers and queues that several operations need at one time.
 *
 * The event core decides which operation gets a resource. A step, of a graph or of an edit, becomes
 * a job of the core: each node is a task, and a RESOURCE node needs its resource, which serves it
 * by its discipline (discipline.h). The structure of the job of a graph depends only on the shape,
 * so it is kept for the next step of that shape.
 */
#include "graph/edit.h"
#include "sim/discipline.h"
#include "sim/internal.h"

#define ROW(name) &pl_sim_discipline_##name,
static const struct sim_discipline *const disciplines[] = { PL_DISCIPLINES(ROW) };
#undef ROW

const struct sim_discipline *pl_sim_discipline_of(const struct pl_resource *table, uint8_t type,
						  uint32_t res)
{
	return type == PL_N_RESOURCE && res != PL_NONE ? disciplines[table[res].discipline] : NULL;
}

static const struct sim_discipline *of_node(const struct pl_graph *g, const struct pl_shape *sh,
					    uint32_t i)
{
	return pl_sim_discipline_of(g->res, sh->type[i], sh->res[i]);
}

/* ---- places of resources --------------------------------------------------------------------- */

int pl_sim_slots_init(const struct pl_resource *res, size_t n_res, struct resource_places *x,
		      struct pl_err *err)
{
	uint32_t n = 0;

	PL_CHECK(pl_alloc(&x->off, n_res + 1, sizeof(*x->off), err));
	for (uint32_t i = 0; i < n_res; i++) {
		uint32_t places = res[i].capacity ? res[i].capacity : 1;

		x->off[i] = n;
		if (res[i].discipline >= PL_DS_COUNT_)
			return pl_fail(err, PL_EABSENT,
				       "resource %u has discipline %u, which this version does "
				       "not know",
				       i, res[i].discipline);
		if (!disciplines[res[i].discipline]->waits)
			continue;
		if (places > 1u << 24 || n > UINT32_MAX / 2 - places)
			return pl_fail(err, PL_ELIMIT, "resource %u takes %u operations at a time",
				       i, places);
		n += places;
	}
	x->off[n_res] = n;
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
	const struct sim_discipline *d = disciplines[g->res[u->res].discipline];
	pl_ns *free = d->waits ? x->free + x->off[u->res] : NULL;
	int rc = d->explain(u, n, g->res[u->res].capacity, free, err);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		p->resource_gap[u[i].node] = u[i].unexplained;
		if (d->stretches)
			p->work[u[i].node] = u[i].work;
	}
	return rc;
}

int pl_sim_shared_unexplained(struct prep *p, const struct pl_graph *g, const struct pl_gstep *st,
			      struct resource_places *x, struct pl_err *err)
{
	const struct pl_shape *sh = &g->shape[st->shape];
	bool stretches = false;
	struct sim_user *u;
	size_t n = 0, k;
	int rc;

	PL_TRY(pl_alloc(&u, sh->n_nodes, sizeof(*u), err));
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		const struct sim_discipline *d = of_node(g, sh, i);

		if (!d)
			continue;
		stretches |= d->stretches;
		u[n++] = (struct sim_user){ .res = sh->res[i],
					    .node = i,
					    .start = st->start[i],
					    .end = st->start[i] + st->dur[i],
					    .ready = p->resource_gap[i] };
	}
	if (stretches) {
		PL_TRY(pl_alloc(&p->work, sh->n_nodes, sizeof(*p->work), err));
		memcpy(p->work, st->dur, sh->n_nodes * sizeof(*p->work));
	}
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
	const struct pl_shape *sh; /* of the job; NULL: of an edit, or there is none yet */
	struct pl_sim_events *ev;
	struct pl_sim_events_job job;
	struct pl_arena arena; /* has the arrays */
	struct pl_sim_events_resource *res;
	uint32_t *use_off, *use, *priority;
	pl_ns *delay, *dur, *earliest, *hold, *start;
	uint32_t *off, *src, *k; /* of an edit; a shape has its own */
	uint8_t *etype;
	bool stretches; /* durations depend on other operations */
};

static void job_fini(struct sim_shared *x)
{
	pl_sim_events_free(x->ev);
	pl_arena_fini(&x->arena);
	memset(x, 0, sizeof(*x));
}

void pl_sim_shared_free(struct sim_shared *x)
{
	if (x)
		job_fini(x);
	pl_free(x);
}

/* The arrays of a job, which the caller fills, and its resources. */
static int job_room(struct sim_shared *x, const struct pl_resource *res, size_t n_res, size_t nodes,
		    size_t edges, struct pl_err *err)
{
	PL_CHECK(pl_arena_array(&x->arena, &x->res, n_res, sizeof(*x->res), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->use_off, nodes + 1, sizeof(*x->use_off), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->use, nodes, sizeof(*x->use), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->delay, edges, sizeof(*x->delay), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->dur, nodes, sizeof(*x->dur), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->earliest, nodes, sizeof(*x->earliest), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->hold, nodes, sizeof(*x->hold), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->start, nodes, sizeof(*x->start), err));
	x->use_off[0] = 0;
	memset(x->hold, 0, nodes * sizeof(*x->hold)); /* pl_sim_events_new() reads it */
	for (uint32_t r = 0; r < n_res; r++)
		x->res[r] = (struct pl_sim_events_resource){
			.capacity = res[r].capacity,
			.discipline = disciplines[res[r].discipline]->core,
			.domain = PL_NONE
		};
	x->job = (struct pl_sim_events_job){ .n = (uint32_t)nodes,
					     .delay = x->delay,
					     .dur = x->dur,
					     .earliest = x->earliest,
					     .res = x->res,
					     .n_res = (uint32_t)n_res,
					     .use_off = x->use_off,
					     .use = x->use,
					     .hold = x->hold };
	return 0;
}

/* The next task, which needs the resource if d is not NULL. */
static int put_task(struct sim_shared *x, uint32_t task, const struct sim_discipline *d,
		    uint32_t res, int32_t priority, struct pl_err *err)
{
	x->use_off[task + 1] = x->use_off[task];
	if (!d)
		return 0;
	x->use[x->use_off[task + 1]++] = res;
	x->stretches |= d->stretches;
	if (!d->priority)
		return 0;
	if (!x->priority) {
		PL_CHECK(pl_arena_array(&x->arena, &x->priority, x->job.n, sizeof(*x->priority),
					err));
		memset(x->priority, 0, x->job.n * sizeof(*x->priority));
		x->job.priority = x->priority;
	}
	x->priority[task] = d->priority(priority);
	return 0;
}

static int job_init(struct sim_shared *x, const struct pl_graph *g, const struct pl_shape *sh,
		    struct pl_err *err)
{
	job_fini(x);
	PL_CHECK(job_room(x, g->res, g->n_res, sh->n_nodes, sh->n_edges, err));
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		PL_CHECK(put_task(x, i, of_node(g, sh, i), sh->res[i],
				  sh->priority ? sh->priority[i] : -1, err));
	x->job.off = sh->off;
	x->job.src = sh->src;
	x->job.etype = sh->etype;
	x->job.k = sh->k;
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
		const struct sim_discipline *d = of_node(p->s->g, x->sh, i);
		bool waits = d && d->waits;
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

/* ---- an edit --------------------------------------------------------------------------------- */

/* A live node of an edit. In each step they are in topological order, which is that of the graph
 * that pl_edit_graph() makes: so equal times are decided alike. */
struct edit_task {
	uint32_t step, place, node;
};
PL_COMPARATOR(by_step, struct edit_task, step, place);

/* Fill in the predecessors of a task. Those in earlier steps have their times already. */
static void put_predecessors(struct sim_shared *x, const struct pl_edit *e, const uint32_t *number,
			     uint32_t task, uint32_t node)
{
	const struct pl_enode *n = &e->node[node];
	uint32_t at = x->off[task];

	x->earliest[task] = n->fixed;
	for (uint32_t i = n->in; i != PL_NONE; i = e->edge[i].in_next) {
		const struct pl_eedge *ed = &e->edge[i];

		if (e->node[ed->src].step != n->step) {
			x->earliest[task] = pl_max_i64(x->earliest[task], pl_edit_edge_time(e, ed));
			continue;
		}
		x->src[at] = number[ed->src];
		x->etype[at] = ed->type;
		x->delay[at++] = ed->w;
	}
	if (n->in == PL_NONE && n->fixed == INT64_MIN)
		x->earliest[task] = n->start;
	x->off[task + 1] = at;
}

/* Make a job of the `n` nodes of one step; number[node] is the number of the task. */
static int edit_job(struct sim_shared *x, struct pl_edit *e, const struct edit_task *task,
		    uint32_t n, const uint32_t *number, struct pl_err *err)
{
	size_t edges = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t at = e->node[task[i].node].in; at != PL_NONE;
		     at = e->edge[at].in_next)
			edges++;
	PL_CHECK(job_room(x, e->res, e->n_res, n, edges, err));
	PL_CHECK(pl_arena_array(&x->arena, &x->off, n + 1u, sizeof(*x->off), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->src, edges, sizeof(*x->src), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->etype, edges, sizeof(*x->etype), err));
	PL_CHECK(pl_arena_array(&x->arena, &x->k, n, sizeof(*x->k), err));
	x->off[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_enode *v = &e->node[task[i].node];
		const struct sim_discipline *d = pl_sim_discipline_of(e->res, v->type, v->res);

		put_predecessors(x, e, number, i, task[i].node);
		x->dur[i] = v->dur;
		x->hold[i] = e->share[task[i].node].hold;
		x->k[i] = d ? 0 : v->k;
		PL_CHECK(put_task(x, i, d, v->res, v->priority, err));
		/* The next settling begins with this request, not with the start given to it. */
		if (d && v->in == PL_NONE && v->fixed == INT64_MIN)
			PL_CHECK(pl_edit_set_fixed(e, task[i].node, v->start, err));
	}
	x->job.off = x->off;
	x->job.src = x->src;
	x->job.etype = x->etype;
	x->job.k = x->k;
	x->ev = pl_sim_events_new(&x->job, err);
	return x->ev ? 0 : err->code;
}

static int settle_step(struct pl_edit *e, const struct edit_task *task, uint32_t n,
		       uint32_t *number, struct resource_places *places, struct pl_err *err)
{
	struct pl_sim_events_times t = { 0 };
	struct sim_shared x = { 0 };
	int rc;

	for (uint32_t i = 0; i < n; i++)
		number[task[i].node] = i;
	PL_TRY(edit_job(&x, e, task, n, number, err));
	PL_TRY(pl_alloc(&t.end, n, sizeof(*t.end), err));
	t.start = x.start;
	PL_TRY(pl_sim_events_run(x.ev, places->free, &t, err));
	for (uint32_t i = 0; i < n; i++)
		PL_TRY(pl_edit_set_times(e, task[i].node, t.start[i],
					 t.end[i] - t.start[i] - x.dur[i], err));
out:
	pl_free(t.end);
	job_fini(&x);
	return rc;
}

int pl_sim_settle(struct pl_edit *e, struct pl_err *err)
{
	struct resource_places places = { 0 };
	struct edit_task *task = NULL;
	uint32_t *order = NULL;
	size_t n = 0, end;
	int rc;

	if (!e->share)
		return pl_edit_settle(e, err);
	PL_TRY(pl_sim_slots_init(e->res, e->n_res, &places, err));
	PL_TRY(pl_edit_order(e, &order, &n, err));
	PL_TRY(pl_alloc(&task, n, sizeof(*task), err));
	for (uint32_t i = 0; i < n; i++)
		task[i] = (struct edit_task){ e->node[order[i]].step, i, order[i] };
	pl_sort(task, n, sizeof(*task), by_step);
	for (size_t i = 0; i < n; i = end) {
		for (end = i; end < n && task[end].step == task[i].step;)
			end++;
		PL_TRY(settle_step(e, task + i, (uint32_t)(end - i), order, &places, err));
	}
	PL_TRY(pl_edit_clear_queue(e, err));
out:
	pl_sim_slots_fini(&places);
	pl_free(task);
	pl_free(order);
	return rc;
}
