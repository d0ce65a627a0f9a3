/*
 * Preparation of the event core: check the rules of a job, choose the route of each task, find
 * successors, and allocate every list, so that a run allocates nothing.
 */
#include "sim/events_internal.h"

static int check_resource(const struct pl_sim_events_resource *r, uint32_t i, struct pl_err *err)
{
	if (r->discipline > PL_EVENTS_POLICY || r->side > PL_EVENTS_COMMUNICATION ||
	    (r->discipline == PL_EVENTS_POLICY && !r->choose))
		return pl_fail(err, PL_EUSAGE, "resource %u has no discipline that can be followed",
			       i);
	if (r->capacity > 1u << 24)
		return pl_fail(err, PL_ELIMIT, "resource %u takes %u operations at a time", i,
			       r->capacity);
	return 0;
}

static int find_resources(struct pl_sim_events *ev, struct pl_err *err)
{
	const struct pl_sim_events_job *job = ev->job;
	uint64_t places = 0;

	for (uint32_t r = 0; r < job->n_res; r++) {
		const struct pl_sim_events_resource *x = &job->res[r];

		PL_CHECK(check_resource(x, r, err));
		ev->res[r].capacity = x->capacity ? x->capacity : 1;
		ev->res[r].simple = x->discipline == PL_EVENTS_QUEUE && x->domain == PL_NONE &&
				    !job->priority && !job->parts;
		ev->place[r] = (uint32_t)places;
		places += x->discipline == PL_EVENTS_SHARED ? 0 : ev->res[r].capacity;
		if (places > UINT32_MAX / 2)
			return pl_fail(err, PL_ELIMIT, "the resources have too many places");
		if (x->domain != PL_NONE && x->domain >= ev->n_domains)
			ev->n_domains = x->domain + 1;
	}
	ev->place[job->n_res] = (uint32_t)places;
	return 0;
}

/* Which resources have tasks with others; then the way of each task follows. */
static int find_joint(struct pl_sim_events *ev, struct pl_err *err)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t i = 0; i < job->n; i++) {
		uint32_t n = job->use_off[i + 1] - job->use_off[i];

		if (n && job->k && job->k[i])
			return pl_fail(err, PL_EUSAGE, "task %u is a rendezvous on a resource", i);
		for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
			uint32_t r = job->use[u];

			if (n > 1 && job->res[r].discipline != PL_EVENTS_QUEUE)
				return pl_fail(err, PL_EUSAGE,
					       "task %u needs resource %u and others at a time", i,
					       r);
			ev->res[r].joint |= n > 1;
			ev->res[r].simple &= n == 1;
		}
	}
	for (uint32_t r = 0; r < job->n_res; r++)
		ev->res[r].heap = job->res[r].discipline == PL_EVENTS_QUEUE && !ev->res[r].joint;
	return 0;
}

static enum route route_of(const struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;
	bool changes = job->parts && job->parts[i] > 1;

	if (job->use_off[i] == job->use_off[i + 1])
		return job->k && job->k[i] && job->k[i] < job->off[i + 1] - job->off[i]
			       ? ROUTE_KTH
			       : ROUTE_AT_ONCE;
	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		const struct pl_sim_events_resource *x = &job->res[job->use[u]];

		changes |= x->discipline == PL_EVENTS_SHARED || x->domain != PL_NONE;
	}
	if (changes)
		return ROUTE_CHANGING;
	return ev->res[job->use[job->use_off[i]]].simple ? ROUTE_QUEUE : ROUTE_STEADY;
}

static int find_routes(struct pl_sim_events *ev, struct pl_err *err)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t i = 0; i < job->n; i++) {
		ev->route[i] = (uint8_t)route_of(ev, i);
		if (ev->route[i] == ROUTE_CHANGING && job->hold && job->hold[i])
			return pl_fail(err, PL_EUSAGE,
				       "the end of task %u may move: it cannot be held", i);
	}
	return 0;
}

static void find_successors(struct pl_sim_events *ev)
{
	const struct pl_sim_events_job *job = ev->job;
	uint32_t edges = job->off[job->n];

	for (uint32_t e = 0; e < edges; e++)
		ev->off[job->src[e] + 2]++;
	for (uint32_t i = 0; i < job->n; i++)
		ev->off[i + 2] += ev->off[i + 1];
	for (uint32_t i = 0; i < job->n; i++)
		for (uint32_t e = job->off[i]; e < job->off[i + 1]; e++) {
			uint32_t at = ev->off[job->src[e] + 1]++;

			ev->to[at] = i;
			ev->edge[at] = e;
		}
}

/* Room for every list: a task is on that of each of its resources, and of each domain. */
static void find_room(struct pl_sim_events *ev)
{
	const struct pl_sim_events_job *job = ev->job;
	uint32_t uses = job->use_off[job->n], *room = ev->storage;

	/* first how many, then where */
	for (uint32_t u = 0; u < uses; u++) {
		struct domain *d = domain_of(ev, job->use[u]);

		ev->queue[job->use[u]].n++;
		if (d)
			d->running[computes(ev, job->use[u]) ? 0 : 1].n++;
	}
	for (uint32_t r = 0; r < job->n_res; r++) {
		ev->queue[r].v = room;
		room += ev->queue[r].n;
	}
	for (uint32_t d = 0; d < 2 * ev->n_domains; d++) {
		struct list *l = &ev->domain[d / 2].running[d % 2];

		l->v = room;
		room += l->n;
		l->n = 0;
	}
}

static int take_resources(struct pl_sim_events *ev, struct pl_err *err)
{
	struct pl_arena *a = &ev->arena;
	size_t n = ev->job->n_res;

	PL_CHECK(pl_arena_array(a, &ev->res, n, sizeof(*ev->res), err));
	PL_CHECK(pl_arena_array(a, &ev->queue, n, sizeof(*ev->queue), err));
	PL_CHECK(pl_arena_array(a, &ev->place, n + 1, sizeof(*ev->place), err));
	PL_CHECK(pl_arena_array(a, &ev->marked, n, sizeof(*ev->marked), err));
	memset(ev->res, 0, n * sizeof(*ev->res));
	memset(ev->queue, 0, n * sizeof(*ev->queue));
	return 0;
}

static int take_tasks(struct pl_sim_events *ev, struct pl_err *err)
{
	const struct pl_sim_events_job *job = ev->job;
	struct pl_arena *a = &ev->arena;
	size_t n = job->n, edges = job->off[n], places = ev->place[job->n_res];
	size_t events = n + places + (job->k ? edges : 0); /* arrivals: at most one an edge */
	bool served = false;

	for (uint32_t r = 0; r < job->n_res; r++)
		served |= !ev->res[r].simple;
	PL_CHECK(pl_arena_array(a, &ev->own_free, places, sizeof(*ev->own_free), err));
	PL_CHECK(pl_arena_array(a, &ev->holder, places, sizeof(*ev->holder), err));
	PL_CHECK(pl_arena_array(a, &ev->domain, ev->n_domains, sizeof(*ev->domain), err));
	PL_CHECK(pl_arena_array(a, &ev->storage, 2 * (size_t)job->use_off[n], sizeof(*ev->storage),
				err));
	PL_CHECK(pl_arena_array(a, &ev->route, n, sizeof(*ev->route), err));
	PL_CHECK(pl_arena_array(a, &ev->at, n, sizeof(*ev->at), err));
	PL_CHECK(pl_arena_array(a, &ev->left, n, sizeof(*ev->left), err));
	PL_CHECK(pl_arena_array(a, &ev->stack, n, sizeof(*ev->stack), err));
	PL_CHECK(pl_arena_array(a, &ev->heap, events, sizeof(*ev->heap), err));
	PL_CHECK(pl_arena_array(a, &ev->progress, served ? n : 0, sizeof(*ev->progress), err));
	PL_CHECK(pl_arena_array(a, &ev->off, n + 2, sizeof(*ev->off), err));
	PL_CHECK(pl_arena_array(a, &ev->to, edges, sizeof(*ev->to), err));
	PL_CHECK(pl_arena_array(a, &ev->edge, edges, sizeof(*ev->edge), err));
	memset(ev->domain, 0, ev->n_domains * sizeof(*ev->domain));
	memset(ev->off, 0, (n + 2) * sizeof(*ev->off));
	return 0;
}

static int prepare_job(struct pl_sim_events *ev, struct pl_err *err)
{
	PL_CHECK(take_resources(ev, err));
	PL_CHECK(find_resources(ev, err));
	PL_CHECK(find_joint(ev, err));
	PL_CHECK(take_tasks(ev, err));
	PL_CHECK(find_routes(ev, err));
	find_successors(ev);
	find_room(ev);
	return 0;
}

struct pl_sim_events *pl_sim_events_new(const struct pl_sim_events_job *job, struct pl_err *err)
{
	struct pl_sim_events *ev;

	if (pl_alloc(&ev, 1, sizeof(*ev), err) < 0)
		return NULL;
	ev->job = job;
	if (prepare_job(ev, err) < 0) {
		pl_sim_events_free(ev);
		return NULL;
	}
	return ev;
}

void pl_sim_events_free(struct pl_sim_events *ev)
{
	if (!ev)
		return;
	pl_arena_fini(&ev->arena);
	pl_free(ev);
}
