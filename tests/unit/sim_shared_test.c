/*
 * Shared resources against a queue that is simulated ns by ns, and the event core against the
 * static pass on graphs where nothing is shared.
 */
#include <stdlib.h>

#include "graph/edit.h"
#include "sim/events.h"
#include "sim_fixture.h"

/* ---- shared resources ------------------------------------------------------------------------ */

enum { USERS = 40 };

struct user {
	pl_ns ready, dur, start;
	int32_t priority;
};

static bool goes_before(const struct user *a, const struct user *b)
{
	if (a->priority != b->priority) /* -1: behind all others */
		return b->priority < 0 || (a->priority >= 0 && a->priority < b->priority);
	return a->ready < b->ready;
}

/* Users of one resource that takes `places` at a time, the most urgent first, then the first that
 * came; ns by ns. */
static void slow_queue(struct user *u, int places)
{
	bool started[USERS] = { false };
	int left = USERS;

	for (pl_ns t = 0; left; t++) {
		int busy = 0, best;

		for (int i = 0; i < USERS; i++)
			busy += started[i] && u[i].start + u[i].dur > t;
		for (; busy < places; busy++) {
			best = -1;
			for (int i = 0; i < USERS; i++)
				if (!started[i] && u[i].ready <= t &&
				    (best < 0 || goes_before(&u[i], &u[best])))
					best = i;
			if (best < 0)
				break;
			started[best] = true;
			u[best].start = t;
			left--;
		}
	}
}

/* Each user: a delay that ends at `ready`, then the resource. */
static int queue_graph(struct job *j, const struct user *u, uint32_t places, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	int rc;

	*j = (struct job){ .ranks = 1, .per_rank = 1 };
	PL_TRY(job_tables(j, err));
	g->res[0].track_type = PL_T_LINK;
	g->res[0].capacity = places;
	PL_TRY(one_step(g, err));
	s = &g->shape[0];
	for (int i = 0; i < USERS; i++) {
		uint32_t n = add_node(s, PL_N_DELAY, PL_RO_NONE, PL_K_OTHER, PL_NONE, j->name[0]);

		s->flags[n] |= PL_NF_STEP_BEGIN;
		g->step[0].dur[n] = u[i].ready;
		n = add_node(s, PL_N_RESOURCE, PL_RO_TRANSFER, PL_K_SEND, 0, j->name[1]);
		add_edge(s, n - 1, PL_E_DATA);
		g->step[0].start[n] = u[i].start;
		g->step[0].dur[n] = u[i].dur;
	}
out:
	return rc;
}

static void test_shared(uint64_t seed, int places)
{
	struct pl_err err = { 0 };
	struct user u[USERS], half[USERS];
	struct pl_run r = { 0 }, p = { 0 };
	struct pl_path path = { 0 };
	struct pl_sim *s = NULL;
	struct job j;
	bool same = true, scaled = true;
	pl_ns unexplained = 0;
	int delays = 0;

	for (int i = 0; i < USERS; i++) {
		u[i] = (struct user){ .ready = (pl_ns)(pl_rng_next(&seed) % 300) };
		u[i].dur = 2 * (pl_ns)(1 + pl_rng_next(&seed) % 20);
		half[i] = u[i];
		half[i].dur /= 2;
	}
	slow_queue(u, places);
	slow_queue(half, places);
	if (queue_graph(&j, u, (uint32_t)places, &err) < 0 || !(s = pl_sim_new(&j.g, &err)) ||
	    pl_sim_run(s, &r, &err) < 0 || pl_sim_path_find(s, &r, &path, &err) < 0 ||
	    change_durations(s, &j.g, "scale kind=send by 0.5", NULL, &err) < 0 ||
	    pl_sim_run(s, &p, &err) < 0) {
		ok(false, "shared: %s", err.msg);
		return;
	}
	for (int i = 0; i < USERS; i++) {
		same &= r.start[0][2 * i + 1] == u[i].start;
		scaled &= p.start[0][2 * i + 1] == half[i].start;
		unexplained += pl_sim_unexplained(s, 0, (uint32_t)(2 * i + 1));
	}
	ok(same && unexplained == 0, "%d places: the recorded queue, explained by the resource",
	   places);
	ok(scaled, "%d places: another queue when its users take half the time", places);
	for (size_t i = 0; i < path.n; i++)
		delays += j.g.shape[0].type[path.item[i].node] == PL_N_DELAY;
	ok(path_is_whole(&path, r.step_start[0]) && path.unexplained == 0 && delays == 1 &&
		   (places > 1 || path.n > 2),
	   "%d places: the path goes through those who held the resource", places);
	pl_sim_path_fini(&path);
	pl_sim_run_fini(&r);
	pl_sim_run_fini(&p);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* All users at once: more than `capacity` share the resource. In small pieces of time. */
static void slow_sharing(struct user *u, const pl_ns *work, int capacity)
{
	const int pieces = 64;
	double left[USERS];
	int n = USERS;

	for (int i = 0; i < USERS; i++) {
		u[i].start = u[i].ready;
		left[i] = (double)work[i];
	}
	for (int64_t t = 0; n; t++) {
		int running = 0;
		double speed;

		for (int i = 0; i < USERS; i++)
			running += left[i] > 0 && u[i].ready * pieces <= t;
		speed = running > capacity ? (double)capacity / running : 1;
		for (int i = 0; i < USERS; i++) {
			if (left[i] <= 0 || u[i].ready * pieces > t)
				continue;
			left[i] -= speed / pieces;
			if (left[i] > 1e-9)
				continue;
			left[i] = 0;
			u[i].dur = (t + 1 + pieces - 1) / pieces - u[i].start;
			n--;
		}
	}
}

static bool near(const struct pl_sim *s, const struct pl_run *r, const struct user *u, pl_ns most)
{
	bool all = true;

	for (int i = 0; i < USERS; i++) {
		pl_ns off = pl_sim_run_dur(s, r, 0, (uint32_t)(2 * i + 1)) - u[i].dur;

		all &= r->start[0][2 * i + 1] == u[i].start && off >= -most && off <= most;
	}
	return all;
}

static void test_sharing(uint64_t seed, int capacity)
{
	struct pl_err err = { 0 };
	struct user u[USERS], half[USERS], late[USERS];
	pl_ns work[USERS], less[USERS];
	struct pl_run r = { 0 }, p = { 0 };
	struct pl_sim *s = NULL;
	struct job j;

	for (int i = 0; i < USERS; i++) {
		u[i] = (struct user){ .ready = (pl_ns)(pl_rng_next(&seed) % 2000) };
		half[i] = u[i];
		work[i] = 2 * (pl_ns)(1 + pl_rng_next(&seed) % 200);
		less[i] = work[i] / 2;
	}
	slow_sharing(u, work, capacity);
	slow_sharing(half, less, capacity);
	if (queue_graph(&j, u, (uint32_t)capacity, &err) < 0) {
		ok(false, "sharing: %s", err.msg);
		return;
	}
	j.g.res[0].discipline = PL_DS_shared;
	if (!(s = pl_sim_new(&j.g, &err)) || pl_sim_run(s, &r, &err) < 0 ||
	    change_durations(s, &j.g, "scale kind=send by 0.5", NULL, &err) < 0 ||
	    pl_sim_run(s, &p, &err) < 0) {
		ok(false, "sharing: %s", err.msg);
		return;
	}
	ok(near(s, &r, u, 4), "%d at full speed: as recorded", capacity);
	/* the recorded ends were rounded to ns, and sharing stretches an error of the work */
	ok(near(s, &p, half, USERS / capacity),
	   "%d at full speed: with half the work each as if simulated", capacity);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	/* later than ready: unexplained, and so in the replay */
	memcpy(late, u, sizeof(late));
	for (int i = 0; i < USERS; i++)
		j.g.step[0].start[2 * i + 1] = late[i].start += 1000;
	s = pl_sim_new(&j.g, &err);
	ok(s && pl_sim_run(s, &r, &err) == 0 && near(s, &r, late, 4) &&
		   pl_sim_unexplained(s, 0, 1) == 1000,
	   "%d at full speed: what nothing explains passes before", capacity);
	pl_sim_run_fini(&r);
	pl_sim_run_fini(&p);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

static void test_priority(uint64_t seed, int places)
{
	struct pl_err err = { 0 };
	struct user u[USERS], half[USERS];
	struct pl_run r = { 0 }, p = { 0 };
	struct pl_sim *s = NULL;
	struct pl_shape *sh;
	struct job j;
	bool same = true, scaled = true;

	for (int i = 0; i < USERS; i++) {
		u[i] = (struct user){ .ready = (pl_ns)(pl_rng_next(&seed) % 300),
				      .dur = 2 * (pl_ns)(1 + pl_rng_next(&seed) % 20),
				      .priority = (int32_t)(pl_rng_next(&seed) % 5) - 1 };
		half[i] = u[i];
		half[i].dur /= 2;
	}
	slow_queue(u, places);
	slow_queue(half, places);
	if (queue_graph(&j, u, (uint32_t)places, &err) < 0) {
		ok(false, "priorities: %s", err.msg);
		return;
	}
	j.g.res[0].discipline = PL_DS_priority;
	sh = &j.g.shape[0];
	if (!sh->priority && pl_alloc(&sh->priority, MAX_NODES, sizeof(*sh->priority), &err) < 0)
		return;
	memset(sh->priority, 0xff, sh->n_nodes * sizeof(*sh->priority));
	for (int i = 0; i < USERS; i++)
		sh->priority[2 * i + 1] = u[i].priority;
	if (!(s = pl_sim_new(&j.g, &err)) || pl_sim_run(s, &r, &err) < 0 ||
	    change_durations(s, &j.g, "scale kind=send by 0.5", NULL, &err) < 0 ||
	    pl_sim_run(s, &p, &err) < 0) {
		ok(false, "priorities: %s", err.msg);
		return;
	}
	for (int i = 0; i < USERS; i++) {
		same &= r.start[0][2 * i + 1] == u[i].start;
		scaled &= p.start[0][2 * i + 1] == half[i].start;
	}
	ok(same, "%d places, priorities: as recorded", places);
	ok(scaled, "%d places, priorities: as simulated with half the time each", places);
	pl_sim_run_fini(&r);
	pl_sim_run_fini(&p);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

static void test_unknown_discipline(void)
{
	struct pl_err err = { 0 };
	struct user u[USERS];
	struct pl_sim *s;
	struct job j;

	for (int i = 0; i < USERS; i++)
		u[i] = (struct user){ .ready = i, .dur = 1, .start = i };
	if (!ok(queue_graph(&j, u, 1, &err) == 0, "a queue"))
		return;
	j.g.res[0].discipline = 200;
	s = pl_sim_new(&j.g, &err);
	ok(!s && err.code == PL_EABSENT, "a discipline that nobody knows: %s", err.msg);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- the event core -------------------------------------------------------------------------- */

/* An edit as tasks that compete for nothing. Arrays for `nodes` and `edges` are the caller's. */
static struct pl_sim_events_job edit_job(const struct pl_edit *e, uint32_t *off, uint32_t *src,
					 uint8_t *etype, pl_ns *delay, pl_ns *dur, pl_ns *earliest)
{
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		off[i + 1] = off[i];
		for (uint32_t x = e->node[i].in; x != PL_NONE; x = e->edge[x].in_next) {
			src[off[i + 1]] = e->edge[x].src;
			etype[off[i + 1]] = e->edge[x].type;
			delay[off[i + 1]++] = e->edge[x].w;
		}
		dur[i] = e->node[i].dur;
		earliest[i] = e->node[i].fixed;
		if (off[i] == off[i + 1] && earliest[i] == INT64_MIN)
			earliest[i] = e->node[i].start;
	}
	return (struct pl_sim_events_job){ .n = (uint32_t)e->n_nodes,
					   .off = off,
					   .src = src,
					   .etype = etype,
					   .delay = delay,
					   .dur = dur,
					   .earliest = earliest };
}

static void test_event_core(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_edit e = { 0 };
	struct pl_sim *s = NULL;
	struct pl_sim_events *ev;
	bool same = true;

	if (make_job(&j, seed, 3, 200, 3, 100, seed % 2 ? 0 : INT64_C(7000000000), &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	for (size_t i = 0; i < j.g.n_shapes; i++) { /* an edit has no rendezvous of k of n */
		pl_free(j.g.shape[i].k);
		j.g.shape[i].k = NULL;
	}
	s = pl_sim_new(&j.g, &err);
	if (!s || pl_sim_edit(s, 0, j.g.n_steps, &e, &err) < 0) {
		ok(false, "%s", err.msg);
		return;
	}
	uint32_t *off = calloc(e.n_nodes + 1, sizeof(*off)), *src = calloc(e.n_edges, sizeof(*src));
	uint32_t *use_off = calloc(e.n_nodes + 1, sizeof(*use_off));
	uint8_t *etype = calloc(e.n_edges, 1);
	pl_ns *ns = calloc(4 * e.n_nodes + e.n_edges, sizeof(*ns));
	pl_ns *dur = ns, *earliest = ns + e.n_nodes, *delay = ns + 4 * e.n_nodes;
	struct pl_sim_events_times t = { .start = ns + 2 * e.n_nodes, .end = ns + 3 * e.n_nodes };
	struct pl_sim_events_job job = edit_job(&e, off, src, etype, delay, dur, earliest);

	job.use_off = use_off;
	ev = pl_sim_events_new(&job, &err);
	same = ev && pl_sim_events_run(ev, NULL, &t, &err) == 0;
	for (size_t i = 0; same && i < e.n_nodes; i++)
		same = e.node[i].start == t.start[i] && pl_edit_end(&e, (uint32_t)i) == t.end[i];
	ok(same,
	   "seed %llu: without shared resources the event core has the starts of the static pass",
	   (unsigned long long)seed);
	pl_sim_events_free(ev);
	free(off);
	free(src);
	free(use_off);
	free(etype);
	free(ns);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

int main(void)
{
	for (int places = 1; places <= 4; places++)
		test_shared(7 + (uint64_t)places, places);
	for (int capacity = 1; capacity <= 3; capacity++)
		test_sharing(70 + (uint64_t)capacity, capacity);
	for (int places = 1; places <= 3; places++)
		test_priority(90 + (uint64_t)places, places);
	test_unknown_discipline();
	for (uint64_t seed = 200; seed < 212; seed++)
		test_event_core(seed);
	return done_testing();
}
