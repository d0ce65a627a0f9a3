/*
 * Edits of graphs with shared resources: the settled times against those of a graph that is built
 * anew with the same changes and simulated from the beginning, and undo.
 */
#include "graph/edit.h"
#include "sim_fixture.h"

enum { STEPS = 2, PER_STEP = 40, ROUNDS = 12, LINKS = 1600, RESOURCES = 12 };
/* Recorded with this distance, each before its predecessors, operations share nothing and nothing
 * is unexplained: their durations are their work. */
#define SPACING (INT64_C(1) << 30)

struct spec {
	uint8_t type;
	uint32_t res, step;
	pl_ns dur;
	int32_t priority;
	double place; /* predecessors have lower ones */
	bool dead;
};
struct link {
	uint32_t src, dst;
	uint8_t type;
	pl_ns w;
	bool dead;
};
/* What a graph should be. Nodes have the numbers of the edit. */
struct world {
	struct pl_resource res[RESOURCES];
	size_t n_res;
	struct spec node[MAX_NODES];
	uint32_t n, root[STEPS];
	struct link link[LINKS];
	uint32_t n_links;
	uint64_t rng;
	bool gone[6]; /* [rank] */
};

static uint64_t random_below(struct world *w, uint64_t n)
{
	return pl_rng_next(&w->rng) % n;
}

static void put_link(struct world *w, uint32_t src, uint32_t dst, unsigned type, pl_ns delay)
{
	w->link[w->n_links++] =
		(struct link){ .src = src, .dst = dst, .type = (uint8_t)type, .w = delay };
}

static void new_resource(struct world *w, int32_t rank, unsigned discipline)
{
	struct pl_resource *r = &w->res[w->n_res++];

	*r = (struct pl_resource){ .rank = rank,
				   .device = -1,
				   .track_type = PL_T_LINK,
				   .discipline = (uint8_t)discipline,
				   .capacity = 1 + (uint32_t)random_below(w, 3),
				   .name = 0,
				   .host = PL_NONE };
	memset(r->coord, 0xff, sizeof(r->coord));
}

static void new_node(struct world *w, uint32_t step, uint32_t res)
{
	w->node[w->n] = (struct spec){ .type = res ? PL_N_RESOURCE : PL_N_OP,
				       .res = res,
				       .step = step,
				       .dur = (pl_ns)random_below(w, 1000),
				       .priority = (int32_t)random_below(w, 4) - 1,
				       .place = w->n };
	w->n++;
}

/* Resource 0 is a thread; each later step has an entry for each resource, then a root, and the
 * sink of the edit behind it. */
static void new_world(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->rng = seed;
	for (unsigned i = 0; i < 6; i++)
		new_resource(w, i < 4 ? 0 : 2, (i + (unsigned)seed) % PL_DS_COUNT_);
	for (uint32_t k = 0; k < STEPS; k++) {
		uint32_t first = w->n;

		for (uint32_t r = 0; k && r < w->n_res; r++) {
			new_node(w, k, r);
			w->node[w->n - 1].type = PL_N_ENTRY;
			w->node[w->n - 1].dur = 0;
		}
		w->root[k] = w->n;
		new_node(w, k, 0);
		w->node[w->n - 1].dur = 0;
		for (uint32_t r = first; r < w->root[k]; r++)
			put_link(w, r, w->root[k], PL_E_SEQ, 0);
		for (int i = 0; i < PER_STEP; i++) {
			uint32_t id = w->n;

			new_node(w, k, (uint32_t)random_below(w, w->n_res));
			put_link(w, w->root[k], id, PL_E_DATA, 0);
			for (uint64_t n = random_below(w, 3); n; n--)
				put_link(w, w->root[k] + (uint32_t)random_below(w, id - w->root[k]),
					 id, random_below(w, 4) ? PL_E_DATA : PL_E_START,
					 (pl_ns)random_below(w, 2) * 17);
		}
		w->node[w->n++] = (struct spec){ .dead = true }; /* the sink */
	}
}

static bool link_lives(const struct world *w, const struct link *x)
{
	return !x->dead && !w->node[x->src].dead && !w->node[x->dst].dead;
}

/* The graph of a world, its nodes in the order of `order`; number[node]: in its step. */
static int build(const struct world *w, const uint32_t *order, size_t n, uint32_t *number,
		 struct pl_graph *g, struct pl_err *err)
{
	struct job j = { .ranks = 3, .per_rank = 1 };
	int rc;

	rc = job_tables(&j, err);
	*g = j.g;
	if (rc < 0)
		return rc;
	PL_TRY(pl_copy_array(&g->res, &g->n_res, &g->cap_res, w->res, w->n_res, sizeof(*w->res),
			     err));
	PL_TRY(pl_alloc(&g->shape, STEPS, sizeof(*g->shape), err));
	g->n_shapes = g->cap_shapes = STEPS;
	PL_TRY(pl_alloc(&g->step, STEPS, sizeof(*g->step), err));
	g->n_steps = g->cap_steps = STEPS;
	for (uint32_t k = 0; k < STEPS; k++) {
		struct pl_shape *s = &g->shape[k];
		struct pl_gstep *st = &g->step[k];

		PL_TRY(shape_arrays(s, err));
		PL_TRY(pl_alloc(&s->priority, MAX_NODES, sizeof(*s->priority), err));
		st->number = st->shape = k;
		PL_TRY(pl_alloc(&st->start, MAX_NODES, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&st->dur, MAX_NODES, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&st->lag, MAX_NODES * MAX_PREDS, sizeof(*st->lag), err));
		for (int pass = 0; pass < 2; pass++) {
			for (size_t i = 0; i < n; i++) {
				const struct spec *v = &w->node[order[i]];
				uint32_t id;

				if (v->dead || v->step != k || (v->type == PL_N_ENTRY) == pass)
					continue;
				id = number[order[i]] = add_node(s, v->type, PL_RO_NONE, PL_K_OTHER,
								 v->res, j.name[0]);
				s->priority[id] = v->priority;
				st->dur[id] = v->dur;
				if (order[i] == w->root[k])
					s->flags[id] |= PL_NF_STEP_BEGIN;
				else if (pass)
					st->start[id] = -(pl_ns)id * SPACING;
				for (uint32_t l = 0; l < w->n_links; l++) {
					const struct link *x = &w->link[l];

					if (x->dst != order[i] || !link_lives(w, x))
						continue;
					st->lag[s->n_edges] = (int32_t)x->w;
					add_edge(s, number[x->src], x->type);
				}
			}
			if (!pass)
				s->n_entries = s->n_nodes;
		}
	}
out:
	return rc;
}

/* Are the times of the edit those of its world, built anew? */
static bool as_built(const struct world *w, const struct pl_edit *e, struct pl_err *err)
{
	uint32_t *order = NULL, number[MAX_NODES];
	struct pl_graph g;
	struct pl_sim *s = NULL;
	struct pl_run r = { 0 };
	bool same = true;
	size_t n = 0;
	int rc;

	pl_graph_init(&g);
	PL_TRY(pl_edit_order(e, &order, &n, err));
	PL_TRY(build(w, order, n, number, &g, err));
	s = pl_sim_new(&g, err);
	rc = s ? pl_sim_run(s, &r, err) : err->code;
	for (uint32_t i = 0; rc == 0 && i < w->n; i++) {
		uint32_t k = w->node[i].step, at = number[i];

		if (!w->node[i].dead)
			same &= e->node[i].start == r.start[k][at] &&
				pl_edit_end(e, i) - e->node[i].start ==
					pl_sim_run_dur(s, &r, k, at);
	}
	for (uint32_t k = 0; rc == 0 && k < STEPS; k++)
		same &= pl_edit_step(e, k) == r.step_end[k] - r.step_start[k];
out:
	pl_free(order);
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&g);
	return rc == 0 && same;
}

/* A graph of the edit, taken as a recording, replays to the same steps; shared bandwidth rounds. */
static bool as_graph(const struct pl_edit *e, struct pl_err *err)
{
	struct pl_graph g;
	struct pl_sim *s = NULL;
	struct pl_run r = { 0 };
	bool same = true;

	if (pl_edit_graph(e, &g, err) < 0)
		return false;
	s = pl_graph_valid(&g, err) ? pl_sim_new(&g, err) : NULL;
	same = s && pl_sim_run(s, &r, err) == 0;
	for (uint32_t k = 0; same && k < STEPS; k++) {
		pl_ns off = pl_edit_step(e, k) - (r.step_end[k] - r.step_start[k]);

		same = off >= -PER_STEP && off <= PER_STEP;
	}
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&g);
	return same;
}

static uint32_t edge_of(const struct pl_edit *e, const struct link *l)
{
	uint32_t x = e->node[l->dst].in;

	while (e->edge[x].src != l->src || e->edge[x].type != l->type || e->edge[x].w != l->w)
		x = e->edge[x].in_next;
	return x;
}

static int add_link(struct world *w, struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type,
		    struct pl_err *err)
{
	pl_ns delay = (pl_ns)random_below(w, 30);

	put_link(w, src, dst, type, delay);
	return pl_edit_add_edge(e, src, dst, type, delay, err);
}

static int add_between(struct world *w, struct pl_edit *e, uint32_t a, uint32_t b,
		       struct pl_err *err)
{
	struct pl_enode n = pl_edit_blank_node();
	uint32_t id, res;

	do
		res = (uint32_t)random_below(w, w->n_res);
	while (w->gone[w->res[res].rank]);
	new_node(w, w->node[a].step, res);
	w->node[w->n - 1].place = (w->node[a].place + w->node[b].place) / 2;
	n.type = w->node[w->n - 1].type;
	n.res = w->node[w->n - 1].res;
	n.step = w->node[a].step;
	n.dur = w->node[w->n - 1].dur;
	n.priority = w->node[w->n - 1].priority;
	n.flags = PL_NF_IN_STEP;
	PL_CHECK(pl_edit_add_node(e, &n, a, &id, err));
	if (id != w->n - 1)
		return pl_fail(err, PL_EINTERNAL, "node %u is number %u", w->n - 1, id);
	PL_CHECK(add_link(w, e, w->root[n.step], id, PL_E_DATA, err));
	PL_CHECK(add_link(w, e, a, id, PL_E_SEQ, err));
	return add_link(w, e, id, b, PL_E_DATA, err);
}

static int remove_rank(struct world *w, struct pl_edit *e, int32_t rank, struct pl_err *err)
{
	for (uint32_t i = 0; i < w->n; i++)
		w->node[i].dead |= w->res[w->node[i].res].rank == rank;
	w->gone[rank] = true;
	return pl_edit_drop_rank(e, rank, err);
}

/* Two live nodes of one step, neither an entry nor a root, in order. */
static bool pick(struct world *w, uint32_t *a, uint32_t *b)
{
	for (int i = 0; i < 1000; i++) {
		const struct spec *x, *y;

		*a = (uint32_t)random_below(w, w->n);
		*b = (uint32_t)random_below(w, w->n);
		x = &w->node[*a];
		y = &w->node[*b];
		if (!x->dead && !y->dead && x->step == y->step && x->type != PL_N_ENTRY &&
		    y->type != PL_N_ENTRY && w->root[x->step] != *a && x->place < y->place)
			return true;
	}
	return false;
}

static int change(struct world *w, struct pl_edit *e, struct pl_err *err)
{
	uint32_t a, b, id;
	struct link *l = &w->link[random_below(w, w->n_links)];

	if (!pick(w, &a, &b))
		return 0;
	switch (random_below(w, 9)) {
	case 0:
	case 1:
		w->node[a].dur = (pl_ns)random_below(w, 2000);
		return pl_edit_set_dur(e, a, w->node[a].dur, err);
	case 2:
		return add_link(w, e, a, b, random_below(w, 3) ? PL_E_DATA : PL_E_START, err);
	case 3:
		if (!link_lives(w, l) || w->root[w->node[l->dst].step] == l->src)
			return 0;
		l->dead = true;
		return pl_edit_drop_edge(e, edge_of(e, l), err);
	case 4:
		if (!link_lives(w, l))
			return 0;
		id = edge_of(e, l);
		l->w = (pl_ns)random_below(w, 500);
		return pl_edit_set_weight(e, id, l->w, err);
	case 5:
		w->node[a].dead = true;
		return pl_edit_drop_node(e, a, err);
	case 6:
		if (w->n_res == RESOURCES || w->gone[4])
			return 0;
		new_resource(w, 4, (unsigned)random_below(w, PL_DS_COUNT_));
		return pl_edit_add_resource(e, &w->res[w->n_res - 1], &id, err);
	case 7:
		return random_below(w, 12)
			       ? 0
			       : remove_rank(w, e, 2 + 2 * (int32_t)random_below(w, 2), err);
	default:
		return add_between(w, e, a, b, err);
	}
}

static bool same_edit(const struct pl_edit *a, const struct pl_edit *b)
{
	bool same = a->n_nodes == b->n_nodes && a->n_edges == b->n_edges && a->n_res == b->n_res;

	for (size_t i = 0; same && i < a->n_nodes; i++)
		same = a->node[i].start == b->node[i].start && a->node[i].dur == b->node[i].dur &&
		       a->node[i].fixed == b->node[i].fixed && a->node[i].dead == b->node[i].dead &&
		       !memcmp(&a->share[i], &b->share[i], sizeof(*a->share));
	return same;
}

static void test_changes(uint64_t seed)
{
	struct pl_err err = { 0 };
	static struct world w, before;
	struct pl_graph g;
	struct pl_edit e = { 0 }, copy;
	struct pl_sim *s = NULL;
	uint32_t order[MAX_NODES], number[MAX_NODES];
	bool exact = true, undone = true, replays = true;
	int rc;

	new_world(&w, seed);
	for (uint32_t i = 0; i < w.n; i++)
		order[i] = i;
	rc = build(&w, order, w.n, number, &g, &err);
	if (!ok(rc == 0 && pl_graph_valid(&g, &err) && (s = pl_sim_new(&g, &err)) &&
			pl_sim_edit(s, 0, STEPS, &e, &err) == 0 && as_built(&w, &e, &err),
		"seed %d: an edit has the times of its graph %s", (int)seed, err.msg))
		goto out;
	for (int round = 0; round < ROUNDS && !err.code; round++) {
		size_t mark = pl_edit_mark(&e);

		before = w;
		rc = pl_edit_dup(&e, &copy, &err);
		for (int i = 0; rc == 0 && i < 1 + round % 4; i++)
			rc = change(&w, &e, &err);
		if (rc == 0 && (rc = pl_sim_settle(&e, &err)) == 0)
			exact &= as_built(&w, &e, &err);
		replays &= rc == 0 && as_graph(&e, &err);
		if (round % 2) {
			before.rng = w.rng;
			w = before;
			pl_edit_undo(&e, mark);
			undone &= same_edit(&copy, &e);
			undone &= pl_sim_settle(&e, &err) == 0 && same_edit(&copy, &e);
		}
		pl_edit_fini(&copy);
	}
	ok(exact && !err.code, "seed %d: changed, it has the times of a graph built anew %s",
	   (int)seed, err.msg);
	ok(replays, "seed %d: its graph replays to the same steps", (int)seed);
	ok(undone, "seed %d: undone, it is as before", (int)seed);
out:
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&g);
}

/* ---- recorded times -------------------------------------------------------------------------- */

/* A random recording in which streams are shared, so that much is unexplained. */
static int make_shared(struct job *j, uint64_t seed, struct pl_err *err)
{
	int rc = make_job(j, seed, 3, 150, 3, 100, 0, err);

	for (size_t r = 0; rc == 0 && r < j->g.n_res; r++) {
		j->g.res[r].discipline = (uint8_t)((r + seed) % PL_DS_COUNT_);
		j->g.res[r].capacity = 1 + (uint32_t)r % 2;
	}
	for (size_t k = 0; rc == 0 && k < j->g.n_shapes; k++) {
		struct pl_shape *s = &j->g.shape[k];

		for (uint32_t i = 0; i < s->n_nodes; i++)
			if (s->role[i] == PL_RO_COMPUTE || s->role[i] == PL_RO_COPY)
				s->type[i] = PL_N_RESOURCE;
	}
	return rc;
}

static bool as_simulated(const struct pl_edit *e, const struct pl_sim *s, struct pl_err *err)
{
	struct pl_run r = { 0 };
	bool same = pl_sim_run(s, &r, err) == 0;

	for (uint32_t i = 0; same && i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (n->origin != PL_NONE)
			same = n->start == r.start[n->step][n->origin] &&
			       pl_edit_end(e, i) - n->start ==
				       pl_sim_run_dur(s, &r, n->step, n->origin);
	}
	for (uint32_t k = 0; same && k < e->n_steps; k++)
		same = pl_edit_step(e, k) == r.step_end[k] - r.step_start[k];
	pl_sim_run_fini(&r);
	return same;
}

/* A plan on the edit and the same plan on a simulator agree to the nanosecond. */
static void test_scale(uint64_t seed)
{
	static const char *const plan = "scale kind=kernel by 0.5";
	struct pl_err err = { 0 };
	struct pl_edit e = { 0 };
	struct pl_sim *s = NULL;
	struct pl_rewriter *r = NULL;
	struct pl_cost cost = { 0 };
	struct pl_plan p;
	struct job j;
	size_t mark;
	int rc;

	pl_plan_init(&p);
	PL_TRY(make_shared(&j, seed, &err));
	s = pl_sim_new(&j.g, &err);
	PL_TRY(s ? pl_sim_edit(s, 0, j.g.n_steps, &e, &err) : err.code);
	ok(as_simulated(&e, s, &err), "seed %d: an edit has the times of the replay %s", (int)seed,
	   err.msg);
	mark = pl_edit_mark(&e);
	PL_TRY(pl_cost_fit(&j.g, NULL, &cost, &err));
	r = pl_rewrite_new(&e, &cost, &err);
	PL_TRY(r ? pl_rewrite_add_line(&p, plan, &err) : err.code);
	PL_TRY(pl_rewrite_plan(r, &p, &err));
	PL_TRY(change_durations(s, &j.g, plan, NULL, &err));
	ok(as_simulated(&e, s, &err), "seed %d: %s %s", (int)seed, plan, err.msg);
	pl_edit_undo(&e, mark);
out:
	ok(rc == 0, "seed %d: a plan changes a graph with shared resources %s", (int)seed, err.msg);
	pl_rewrite_free(r);
	pl_cost_fini(&cost);
	pl_plan_fini(&p);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* An operation without predecessors keeps the time of its request, not the start that the resource
 * gave it: settling again, it must not fall behind those that came later. */
static void test_request(void)
{
	struct pl_err err = { 0 };
	static struct world w;
	uint32_t order[] = { 0, 1, 2, 3 }, number[MAX_NODES];
	struct pl_edit e = { 0 };
	struct pl_graph g;
	struct pl_sim *s = NULL;
	pl_ns start[4] = { 0 };
	int rc;

	new_resource(&w, 0, PL_DS_fifo);
	new_resource(&w, 0, PL_DS_fifo);
	w.res[1].capacity = 1;
	new_node(&w, 0, 0);
	for (uint32_t i = 1; i < 4; i++) {
		new_node(&w, 0, 1);
		w.node[i].dur = 100;
		put_link(&w, 0, i, PL_E_DATA, 0);
	}
	w.node[0].dur = 0;
	PL_TRY(build(&w, order, 4, number, &g, &err));
	s = pl_sim_new(&g, &err);
	PL_TRY(s ? pl_sim_edit(s, 0, 1, &e, &err) : err.code);
	/* the second starts at 100, when the first has ended; now it asks then, the third at 120 */
	PL_TRY(pl_edit_drop_edge(&e, edge_of(&e, &w.link[1]), &err));
	PL_TRY(pl_edit_set_weight(&e, edge_of(&e, &w.link[2]), 120, &err));
	PL_TRY(pl_edit_set_dur(&e, 1, 150, &err));
	for (int again = 0; again < 2; again++) {
		PL_TRY(pl_sim_settle(&e, &err));
		for (uint32_t i = 0; i < 4; i++)
			start[i] = e.node[i].start;
	}
	ok(start[1] == 0 && start[2] == 150 && start[3] == 250, "requests stay: %d %d %d",
	   (int)start[1], (int)start[2], (int)start[3]);
out:
	ok(rc == 0, "an operation loses its predecessor %s", err.msg);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&g);
}

/* A recording in which nothing is shared gets a resource for one operation at a time, and two. */
static void test_first(void)
{
	enum { WORK = 1 << 20 };
	struct pl_resource one = { .rank = 0,
				   .device = -1,
				   .track_type = PL_T_LINK,
				   .discipline = PL_DS_fifo,
				   .capacity = 1,
				   .host = PL_NONE };
	struct pl_err err = { 0 };
	struct pl_edit e = { 0 };
	struct pl_sim *s = NULL;
	uint32_t res, id[2];
	struct job j;
	pl_ns step;
	int rc;

	PL_TRY(make_job(&j, 1, 2, 50, 1, 100, 0, &err));
	s = pl_sim_new(&j.g, &err);
	PL_TRY(s ? pl_sim_edit(s, 0, j.g.n_steps, &e, &err) : err.code);
	step = pl_edit_step(&e, 0);
	memset(one.coord, 0xff, sizeof(one.coord));
	PL_TRY(pl_edit_add_resource(&e, &one, &res, &err));
	for (int i = 0; i < 2; i++) {
		struct pl_enode n = e.node[0];

		n.type = PL_N_RESOURCE;
		n.role = PL_RO_COMPUTE;
		n.res = res;
		n.dur = WORK;
		n.origin = PL_NONE;
		n.flags = PL_NF_IN_STEP;
		PL_TRY(pl_edit_add_node(&e, &n, 0, &id[i], &err));
		PL_TRY(pl_edit_add_edge(&e, 0, id[i], PL_E_DATA, 0, &err));
	}
	PL_TRY(pl_sim_settle(&e, &err));
	ok(pl_edit_end(&e, id[0]) == e.node[id[1]].start ||
		   pl_edit_end(&e, id[1]) == e.node[id[0]].start,
	   "the first operations of a shared resource follow one another");
	ok(pl_edit_step(&e, 0) >= 2 * WORK && pl_edit_step(&e, 0) > step, "... and the step waits");
out:
	ok(rc == 0, "a graph gets its first shared resource %s", err.msg);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

int main(void)
{
	test_request();
	test_first();
	for (uint64_t seed = 1; seed <= 30; seed++)
		test_changes(seed);
	for (uint64_t seed = 1; seed <= 20; seed++)
		test_scale(seed);
	return done_testing();
}
