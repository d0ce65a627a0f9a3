/*
 * The event core: a discrete-event simulation of tasks and resources.
 *
 * One binary heap holds the events. A task is in it at most once, as a request or as an end, and
 * its place in the heap is known, so that an end can move when the speed of the task changes. Tasks
 * on no resource do not enter the heap: a stack of tasks with known times is worked off first. This
 * is safe because delays and durations are not negative: no such task can cause an event before the
 * present one.
 *
 * The progress of a task whose speed may change is brought up to date when its speed changes and at
 * no other time, so that a task that runs at full speed is exact.
 *
 * A resource that only queues (first come, first served, nothing else) gives a place when the
 * request is taken: no decision is needed, and the end is known at once.
 */
#include <math.h>

#include "sim/events_internal.h"
#include "sim/internal.h"

#define ROUNDING 1e-6 /* ns: the error of sums of fractions */

/* ---- the heap of events ---------------------------------------------------------------------- */

static bool sooner(const struct event *a, const struct event *b)
{
	if (a->t != b->t)
		return a->t < b->t;
	return a->type != b->type ? a->type < b->type : a->id < b->id;
}

static void heap_set(struct pl_sim_events *ev, size_t i, struct event x)
{
	ev->heap[i] = x;
	if (x.type == EV_END || x.type == EV_REQUEST)
		ev->at[x.id] = (uint32_t)i;
}

static void heap_up(struct pl_sim_events *ev, size_t i, struct event x)
{
	for (; i && sooner(&x, &ev->heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap_set(ev, i, ev->heap[(i - 1) / 2]);
	heap_set(ev, i, x);
}

static void heap_down(struct pl_sim_events *ev, size_t i, struct event x)
{
	for (size_t c; (c = 2 * i + 1) < ev->n_heap; i = c) {
		if (c + 1 < ev->n_heap && sooner(&ev->heap[c + 1], &ev->heap[c]))
			c++;
		if (!sooner(&ev->heap[c], &x))
			break;
		heap_set(ev, i, ev->heap[c]);
	}
	heap_set(ev, i, x);
}

static void heap_put(struct pl_sim_events *ev, pl_ns t, enum event_type type, uint32_t id)
{
	heap_up(ev, ev->n_heap++, (struct event){ t, id, type });
}

static struct event heap_take(struct pl_sim_events *ev)
{
	struct event top = ev->heap[0], last = ev->heap[--ev->n_heap];

	if (ev->n_heap)
		heap_down(ev, 0, last);
	return top;
}

/* The end of a running task moves. */
static void heap_move(struct pl_sim_events *ev, uint32_t task, pl_ns t)
{
	size_t i = ev->at[task];
	struct event x = { t, task, EV_END };

	if (t < ev->heap[i].t)
		heap_up(ev, i, x);
	else
		heap_down(ev, i, x);
}

/* ---- successors ------------------------------------------------------------------------------ */

static pl_ns dur_of(const struct pl_sim_events *ev, uint32_t i)
{
	return ev->job->dur[i];
}

/* All predecessors of the task are known. */
static void now_ready(struct pl_sim_events *ev, uint32_t i)
{
	if (ev->route[i] == ROUTE_AT_ONCE) {
		ev->t->end[i] = ev->t->start[i] + dur_of(ev, i);
		ev->stack[ev->n_stack++] = i;
	} else {
		heap_put(ev, ev->t->start[i], EV_REQUEST, i);
	}
}

/* The start of the task is known (from_start), its end, or both: tell its successors. */
static void release(struct pl_sim_events *ev, uint32_t i, bool started, bool ended)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t a = ev->off[i]; a < ev->off[i + 1]; a++) {
		uint32_t to = ev->to[a], e = ev->edge[a];
		bool from_start = job->etype && edge_from_start(job->etype[e]);
		pl_ns at;

		if (from_start ? !started : !ended)
			continue;
		at = (from_start ? ev->t->start[i] : ev->t->end[i]) +
		     (job->delay ? job->delay[e] : 0);
		if (ev->route[to] == ROUTE_KTH) {
			heap_put(ev, at, EV_ARRIVAL, to);
			continue;
		}
		ev->t->start[to] = pl_max_i64(ev->t->start[to], at);
		if (!--ev->left[to])
			now_ready(ev, to);
	}
	ev->n_done += ended;
}

static void work_off(struct pl_sim_events *ev)
{
	while (ev->n_stack)
		release(ev, ev->stack[--ev->n_stack], true, true);
}

/* ---- speed ----------------------------------------------------------------------------------- */

static double speed_of(struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;
	double speed = 1, slow = 1;

	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		uint32_t res = job->use[u];
		const struct domain *d = domain_of(ev, res);

		if (job->res[res].discipline == PL_EVENTS_SHARED &&
		    ev->queue[res].n > ev->res[res].capacity)
			speed = (double)ev->res[res].capacity / ev->queue[res].n;
		for (uint32_t k = 0; d && computes(ev, res) && job->slows && k < d->running[1].n;
		     k++)
			slow = fmax(slow, job->slows[d->running[1].v[k]]);
	}
	if (job->slowed && ev->progress[i].n_computing)
		slow = fmax(slow, job->slowed[i]);
	return speed / slow;
}

/* Work of the first n of the task's parts. */
static pl_ns part_end(const struct pl_sim_events *ev, uint32_t i, uint32_t n)
{
	return pl_sim_events_part(dur_of(ev, i), ev->job->parts ? ev->job->parts[i] : 1, n);
}

static void catch_up(struct pl_sim_events *ev, struct progress *p)
{
	p->done += p->speed * (double)(ev->now - p->since);
	p->since = ev->now;
}

static pl_ns end_at(const struct pl_sim_events *ev, uint32_t i)
{
	const struct progress *p = &ev->progress[i];
	double left = fmax(0, (double)part_end(ev, i, p->stop) - p->done);

	return p->since + (pl_ns)ceil(left / p->speed - ROUNDING);
}

static void speed_now(struct pl_sim_events *ev, uint32_t i)
{
	struct progress *p = &ev->progress[i];
	double speed = speed_of(ev, i);

	if (speed == p->speed)
		return;
	catch_up(ev, p);
	p->speed = speed;
	heap_move(ev, i, end_at(ev, i));
}

static void list_add(struct list *l, uint32_t i)
{
	l->v[l->n++] = i;
}

static uint32_t list_find(const struct list *l, uint32_t i)
{
	uint32_t k = 0;

	while (l->v[k] != i)
		k++;
	return k;
}

static void list_drop(struct list *l, uint32_t i)
{
	uint32_t k = list_find(l, i);

	memmove(&l->v[k], &l->v[k + 1], (--l->n - k) * sizeof(*l->v));
}

/* Computation of the domain has begun, or none is left. */
static void computation_changed(struct pl_sim_events *ev, struct domain *d, bool begun)
{
	for (uint32_t k = 0; k < d->running[1].n; k++) {
		uint32_t i = d->running[1].v[k];
		uint32_t *n_computing = &ev->progress[i].n_computing;

		*n_computing += begun ? 1 : UINT32_MAX;
		if (*n_computing == begun)
			speed_now(ev, i);
	}
}

/* The task begins (or stops) to slow down others. The caller sets the speed of the task itself. */
static void join_domains(struct pl_sim_events *ev, uint32_t i, bool begins)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		uint32_t res = job->use[u];
		struct domain *d = domain_of(ev, res);
		struct list *l;

		if (!d)
			continue;
		l = &d->running[computes(ev, res) ? 0 : 1];
		if (begins)
			list_add(l, i);
		else
			list_drop(l, i);
		if (!computes(ev, res)) {
			ev->progress[i].n_computing += begins && d->running[0].n;
			for (uint32_t k = 0; k < d->running[0].n; k++)
				speed_now(ev, d->running[0].v[k]);
		} else if (l->n == begins) {
			computation_changed(ev, d, begins);
		}
	}
}

static void share_changed(struct pl_sim_events *ev, uint32_t res)
{
	const struct list *l = &ev->queue[res];

	for (uint32_t k = 0; k < l->n; k++)
		speed_now(ev, l->v[k]);
}

/* ---- resources ------------------------------------------------------------------------------- */

static uint32_t priority_of(const struct pl_sim_events *ev, uint32_t i)
{
	return ev->job->priority ? ev->job->priority[i] : 0;
}

static bool more_urgent(const struct pl_sim_events *ev, uint32_t a, uint32_t b)
{
	uint32_t x = priority_of(ev, a), y = priority_of(ev, b);

	if (x != y)
		return x < y;
	if (ev->progress[a].ready != ev->progress[b].ready)
		return ev->progress[a].ready < ev->progress[b].ready;
	return a < b;
}

/* Waiting tasks are a heap by urgency where the first can always be served, else a list. */
static void queue_put(struct pl_sim_events *ev, uint32_t res, uint32_t i)
{
	struct list *q = &ev->queue[res];
	uint32_t k = q->n++;

	for (; ev->res[res].heap && k && more_urgent(ev, i, q->v[(k - 1) / 2]); k = (k - 1) / 2)
		q->v[k] = q->v[(k - 1) / 2];
	q->v[k] = i;
}

static void queue_take_first(struct pl_sim_events *ev, uint32_t res)
{
	struct list *q = &ev->queue[res];
	uint32_t i = q->v[--q->n], k = 0;

	for (uint32_t c; (c = 2 * k + 1) < q->n; k = c) {
		if (c + 1 < q->n && more_urgent(ev, q->v[c + 1], q->v[c]))
			c++;
		if (!more_urgent(ev, q->v[c], i))
			break;
		q->v[k] = q->v[c];
	}
	q->v[k] = i;
}

static void mark(struct pl_sim_events *ev, uint32_t res)
{
	if (ev->res[res].marked)
		return;
	ev->res[res].marked = true;
	ev->marked[ev->n_marked++] = res;
}

static void take_place(struct pl_sim_events *ev, uint32_t res, uint32_t task)
{
	uint32_t p = ev->place[res];

	while (ev->holder[p] != PL_NONE)
		p++;
	ev->holder[p] = task;
	ev->res[res].busy++;
}

static void leave_place(struct pl_sim_events *ev, uint32_t res, uint32_t task)
{
	uint32_t p = ev->place[res];

	while (ev->holder[p] != task)
		p++;
	ev->holder[p] = PL_NONE;
	ev->free[p] = ev->now;
	ev->res[res].busy--;
	mark(ev, res);
}

/* Are there places for the task on all of its resources? */
static bool can_start(const struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++)
		if (ev->res[job->use[u]].busy >= ev->res[job->use[u]].capacity)
			return false;
	return true;
}

/* Does a more urgent task wait for one of the resources, although it cannot start yet? */
static bool urgent_waits(const struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		const struct list *q = &ev->queue[job->use[u]];

		for (uint32_t k = 0; ev->res[job->use[u]].joint && k < q->n; k++)
			if (priority_of(ev, q->v[k]) < priority_of(ev, i))
				return true;
	}
	return false;
}

static void begin(struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;
	struct progress *p = &ev->progress[i];

	if (!p->from) { /* the first piece of it */
		ev->t->start[i] = ev->now + (job->hold ? job->hold[i] : 0);
		if (ev->route[i] == ROUTE_STEADY)
			ev->t->end[i] = ev->t->start[i] + dur_of(ev, i);
		release(ev, i, true, ev->route[i] == ROUTE_STEADY);
	}
	if (ev->route[i] == ROUTE_STEADY) {
		heap_put(ev, ev->t->end[i], EV_END, i);
		return;
	}
	p->stop = job->parts ? job->parts[i] : 1;
	if (p->stop > 1 && urgent_waits(ev, i))
		p->stop = p->from + 1;
	p->since = p->begun = ev->now;
	p->speed = 1;
	p->n_computing = 0;
	heap_put(ev, end_at(ev, i), EV_END, i);
	join_domains(ev, i, true);
	speed_now(ev, i);
}

/* A waiting task gets its resources. */
static void serve(struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;

	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		uint32_t res = job->use[u];

		if (ev->res[res].heap)
			queue_take_first(ev, res);
		else
			list_drop(&ev->queue[res], i);
		take_place(ev, res, i);
	}
	begin(ev, i);
}

static void decide_policy(struct pl_sim_events *ev, uint32_t res)
{
	const struct pl_sim_events_resource *x = &ev->job->res[res];

	while (ev->queue[res].n && ev->res[res].busy < ev->res[res].capacity) {
		uint32_t k = x->choose(x->arg, ev->queue[res].v, ev->queue[res].n, ev->now);

		if (k >= ev->queue[res].n)
			break;
		serve(ev, ev->queue[res].v[k]);
	}
}

/* The most urgent task that can start, of those that wait for marked resources. */
static uint32_t most_urgent(struct pl_sim_events *ev)
{
	uint32_t best = PL_NONE;

	ev->round++;
	for (uint32_t m = 0; m < ev->n_marked; m++) {
		uint32_t res = ev->marked[m];
		const struct list *q = &ev->queue[res];

		if (ev->res[res].busy >= ev->res[res].capacity)
			continue;
		for (uint32_t k = 0; k < q->n; k++) {
			struct progress *p = &ev->progress[q->v[k]];

			if (p->round == ev->round) /* seen on another of its resources */
				continue;
			p->round = ev->round;
			if ((best == PL_NONE || more_urgent(ev, q->v[k], best)) &&
			    can_start(ev, q->v[k]))
				best = q->v[k];
		}
	}
	return best;
}

/* All events of this time are done: resources with a free place serve waiting tasks. */
static void decide(struct pl_sim_events *ev)
{
	uint32_t kept = 0, i;

	for (uint32_t m = 0; m < ev->n_marked; m++) {
		uint32_t res = ev->marked[m];

		if (ev->res[res].joint) { /* has tasks that need other resources, too */
			ev->marked[kept++] = res;
			continue;
		}
		ev->res[res].marked = false;
		if (ev->job->res[res].discipline == PL_EVENTS_POLICY)
			decide_policy(ev, res);
		else
			while (ev->queue[res].n && ev->res[res].busy < ev->res[res].capacity)
				serve(ev, ev->queue[res].v[0]);
	}
	ev->n_marked = kept;
	while (ev->n_marked && (i = most_urgent(ev)) != PL_NONE)
		serve(ev, i);
	for (uint32_t m = 0; m < ev->n_marked; m++)
		ev->res[ev->marked[m]].marked = false;
	ev->n_marked = 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The running task is interrupted at the end of its present part. */
static void stop_soon(struct pl_sim_events *ev, uint32_t i)
{
	struct progress *p = &ev->progress[i];
	uint32_t stop = p->from + 1;

	catch_up(ev, p);
	while (stop < p->stop && (double)part_end(ev, i, stop) < p->done - ROUNDING)
		stop++;
	if (stop >= p->stop)
		return;
	p->stop = stop;
	heap_move(ev, i, end_at(ev, i));
}

static void on_request(struct pl_sim_events *ev, uint32_t i)
{
	const struct pl_sim_events_job *job = ev->job;
	uint32_t first = job->use[job->use_off[i]];

	if (ev->route[i] == ROUTE_QUEUE) { /* the place is certain */
		uint32_t p = ev->place[first];

		for (uint32_t k = p + 1; k < ev->place[first + 1]; k++)
			if (ev->free[k] < ev->free[p])
				p = k;
		ev->t->start[i] = pl_max_i64(ev->now, ev->free[p]) + (job->hold ? job->hold[i] : 0);
		ev->t->end[i] = ev->free[p] = ev->t->start[i] + dur_of(ev, i);
		release(ev, i, true, true);
		return;
	}
	ev->progress[i] = (struct progress){ .ready = ev->now };
	if (job->res[first].discipline == PL_EVENTS_SHARED) {
		list_add(&ev->queue[first], i);
		begin(ev, i);
		share_changed(ev, first);
		return;
	}
	for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++) {
		uint32_t res = job->use[u];

		queue_put(ev, res, i);
		mark(ev, res);
		for (uint32_t p = ev->place[res]; job->parts && p < ev->place[res + 1]; p++) {
			uint32_t h = ev->holder[p];

			if (h < job->n && job->parts[h] > 1 &&
			    priority_of(ev, h) > priority_of(ev, i))
				stop_soon(ev, h);
		}
	}
}

static int put_piece(struct pl_sim_events *ev, uint32_t i, struct pl_err *err)
{
	const struct progress *p = &ev->progress[i];
	struct pl_sim_events_times *t = ev->t;
	struct pl_sim_events_piece x = { i, p->from, p->stop, p->begun, ev->now };

	return pl_append(&t->piece, &t->n_pieces, &t->cap_pieces, &x, sizeof(x), err);
}

static int on_end(struct pl_sim_events *ev, uint32_t i, struct pl_err *err)
{
	const struct pl_sim_events_job *job = ev->job;
	uint32_t parts = job->parts ? job->parts[i] : 1, first = job->use[job->use_off[i]];
	struct progress *p = &ev->progress[i];
	bool shared = job->res[first].discipline == PL_EVENTS_SHARED;
	int rc = 0;

	if (shared)
		list_drop(&ev->queue[first], i);
	for (uint32_t u = job->use_off[i]; !shared && u < job->use_off[i + 1]; u++)
		leave_place(ev, job->use[u], i);
	if (ev->route[i] == ROUTE_STEADY)
		return 0;
	join_domains(ev, i, false);
	if (shared)
		share_changed(ev, first);
	if (parts > 1)
		rc = put_piece(ev, i, err);
	p->done = (double)part_end(ev, i, p->stop);
	p->from = p->stop;
	if (p->stop < parts) {
		for (uint32_t u = job->use_off[i]; u < job->use_off[i + 1]; u++)
			queue_put(ev, job->use[u], i);
		return rc;
	}
	ev->t->end[i] = ev->now;
	release(ev, i, false, true);
	return rc;
}

static int on_event(struct pl_sim_events *ev, const struct event *x, struct pl_err *err)
{
	ev->t->events++;
	switch (x->type) {
	case EV_END:
		return on_end(ev, x->id, err);
	case EV_ARRIVAL:
		if (--ev->left[x->id])
			break;
		ev->t->start[x->id] = ev->now;
		ev->t->end[x->id] = ev->now + dur_of(ev, x->id);
		release(ev, x->id, true, true);
		break;
	case EV_FREE:
		leave_place(ev, x->id, OTHER_STEP);
		break;
	case EV_REQUEST:
		on_request(ev, x->id);
		break;
	}
	return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void reset_places(struct pl_sim_events *ev, pl_ns *free)
{
	uint32_t n = ev->place[ev->job->n_res];

	ev->free = free ? free : ev->own_free;
	for (uint32_t p = 0; p < n; p++) {
		ev->holder[p] = PL_NONE;
		if (!free)
			ev->free[p] = INT64_MIN;
	}
	for (uint32_t r = 0; r < ev->job->n_res; r++) {
		ev->queue[r].n = ev->res[r].busy = 0;
		for (uint32_t p = ev->place[r]; !ev->res[r].simple && p < ev->place[r + 1]; p++) {
			if (ev->free[p] == INT64_MIN)
				continue;
			ev->holder[p] = OTHER_STEP;
			ev->res[r].busy++;
			heap_put(ev, ev->free[p], EV_FREE, r);
		}
	}
}

static void reset(struct pl_sim_events *ev, pl_ns *free, struct pl_sim_events_times *t)
{
	const struct pl_sim_events_job *job = ev->job;

	ev->t = t;
	ev->n_heap = ev->n_stack = ev->n_marked = ev->n_done = 0;
	ev->now = INT64_MIN;
	t->n_pieces = 0;
	t->events = 0;
	for (uint32_t d = 0; d < ev->n_domains; d++)
		ev->domain[d].running[0].n = ev->domain[d].running[1].n = 0;
	for (uint32_t r = 0; r < job->n_res; r++)
		ev->res[r].marked = false;
	reset_places(ev, free);
	for (uint32_t i = 0; i < job->n; i++) {
		uint32_t n = job->off[i + 1] - job->off[i];

		ev->left[i] = ev->route[i] == ROUTE_KTH ? job->k[i] : n;
		t->start[i] = job->earliest ? job->earliest[i] : INT64_MIN;
		if (!n && t->start[i] == INT64_MIN)
			t->start[i] = 0;
	}
	/* in reverse order, so that the first task is taken first */
	for (uint32_t i = job->n; i-- > 0;)
		if (job->off[i + 1] == job->off[i])
			now_ready(ev, i);
}

int pl_sim_events_run(struct pl_sim_events *ev, pl_ns *free, struct pl_sim_events_times *t,
		      struct pl_err *err)
{
	int rc = 0;

	reset(ev, free, t);
	work_off(ev);
	while (rc == 0 && (ev->n_heap || ev->n_marked)) {
		if (ev->n_marked && (!ev->n_heap || ev->heap[0].t > ev->now)) {
			decide(ev);
		} else {
			struct event x = heap_take(ev);

			ev->now = x.t;
			rc = on_event(ev, &x, err);
		}
		work_off(ev);
	}
	if (rc == 0 && ev->n_done < ev->job->n)
		rc = pl_fail(err, PL_EDATA,
			     "%u of %u tasks never start: they wait for one another, or a policy "
			     "does not serve them",
			     ev->job->n - ev->n_done, ev->job->n);
	return rc;
}
