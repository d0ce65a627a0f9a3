/* The edit against the simulator, against its own slow version, and against itself undone. */

#include "graph/edit.h"
#include "sim_fixture.h"

/* A job; every second one has rendezvous that wait for some of their members. */
static int make(struct job *j, uint64_t seed, int ranks, uint32_t nodes, int steps, pl_ns far,
		struct pl_err *err)
{
	int rc;

	*j = (struct job){ .rng = seed, .ranks = ranks, .per_rank = 3, .unit = 50, .far = far };
	PL_TRY(job_tables(j, err));
	PL_TRY(add_shape(j, nodes, false, err));
	PL_TRY(add_shape(j, nodes, true, err));
	for (size_t i = 0; i < j->g.n_shapes && seed % 2; i++)
		memset(j->g.shape[i].k, 0, MAX_NODES * sizeof(uint32_t));
	for (int k = 0; k < steps; k++)
		PL_TRY(add_step(j, k ? 1 : 0, 10 + k, k ? last_end(&j->g) : 0, err));
out:
	return rc;
}

static bool same_starts(const struct pl_edit *a, const struct pl_edit *b)
{
	for (size_t i = 0; i < a->n_nodes; i++)
		if (!a->node[i].dead && a->node[i].start != b->node[i].start)
			return false;
	return a->n_nodes == b->n_nodes;
}

/* Some change that keeps the order of nodes. */
static int change(struct pl_edit *e, uint64_t *rng, struct pl_err *err)
{
	uint32_t a, b, id;
	struct pl_enode n;

	do {
		a = (uint32_t)(pl_rng_next(rng) % e->n_nodes);
		b = (uint32_t)(pl_rng_next(rng) % e->n_nodes);
	} while (e->node[a].dead || e->node[b].dead || e->node[a].label == UINT64_MAX ||
		 e->node[b].label == UINT64_MAX || e->node[b].type != PL_N_OP ||
		 e->node[a].label >= e->node[b].label || e->node[a].step != e->node[b].step);
	switch (pl_rng_next(rng) % 6) {
	case 0:
		return pl_edit_set_dur(e, a, (pl_ns)(pl_rng_next(rng) % 200), err);
	case 1:
		return pl_edit_add_edge(e, a, b, pl_rng_next(rng) % 2 ? PL_E_DATA : PL_E_START,
					(pl_ns)(pl_rng_next(rng) % 9), err);
	case 2:
		return e->node[b].in == PL_NONE ? 0 : pl_edit_drop_edge(e, e->node[b].in, err);
	case 3:
		return e->node[b].in == PL_NONE
			       ? 0
			       : pl_edit_set_weight(e, e->node[b].in,
						    (pl_ns)(pl_rng_next(rng) % 50), err);
	case 4:
		return e->node[b].flags & PL_NF_STEP_BEGIN ? 0 : pl_edit_drop_node(e, b, err);
	default:
		n = e->node[a];
		n.type = PL_N_OP;
		n.role = PL_RO_COMPUTE;
		n.res = 0;
		n.fixed = INT64_MIN;
		n.start = 0;
		n.dur = (pl_ns)(pl_rng_next(rng) % 70);
		n.flags = PL_NF_IN_STEP;
		if (pl_edit_add_node(e, &n, a, &id, err) < 0 ||
		    pl_edit_add_edge(e, a, id, PL_E_SEQ, 3, err) < 0)
			return err->code;
		return pl_edit_add_edge(e, id, b, PL_E_DATA, 0, err);
	}
}

/* Of settled starts and structure alone. */
static pl_ns length_of(const struct pl_edit *e, uint32_t step)
{
	pl_ns first = INT64_MAX, last = INT64_MIN;

	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (n->dead || n->step != step)
			continue;
		if (n->flags & PL_NF_STEP_BEGIN)
			first = pl_min_i64(first, n->start);
		if (n->flags & PL_NF_IN_STEP)
			last = pl_max_i64(last, n->start + n->dur);
	}
	return last - first;
}

static void test_random(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL;
	struct pl_run run = { 0 };
	struct pl_edit e, full, before;
	int steps = 1 + (int)(seed % 3), rc;
	bool same = true, exact = true, undone = true, idle = true;
	uint64_t rng = seed, was;
	size_t mark;

	memset(&e, 0, sizeof(e));
	rc = make(&j, seed, 2 + (int)(seed % 3), 60 + (uint32_t)(seed * 7 % 200), steps,
		  seed % 4 ? 0 : 5000000000, &err);
	if (!ok(rc == 0 && (s = pl_sim_new(&j.g, &err)) && !pl_sim_run(s, &run, &err) &&
			!pl_sim_edit(s, 0, (size_t)steps, &e, &err),
		"seed %d: a job taken apart (%s)", (int)seed, err.msg))
		return;
	for (int k = 0; k < steps; k++)
		same &= pl_edit_step(&e, (uint32_t)k) == run.step_end[k] - run.step_start[k];
	ok(same, "unchanged steps are those of the simulator");
	for (int round = 0; round < 12 && !err.code; round++) {
		rc = pl_edit_dup(&e, &before, &err);
		mark = pl_edit_mark(&e);
		for (int i = 0; rc == 0 && i < 1 + round % 5; i++)
			rc = change(&e, &rng, &err);
		if (rc == 0 && (rc = pl_edit_settle(&e, &err)) == 0 &&
		    (rc = pl_edit_dup(&e, &full, &err)) == 0) {
			for (size_t i = 0; i < full.n_nodes; i++)
				if (full.node[i].in != PL_NONE || full.node[i].fixed != INT64_MIN)
					full.node[i].start = -1;
			rc = pl_edit_settle_full(&full, &err);
			exact &= same_starts(&e, &full);
			for (int k = 0; k < steps; k++)
				exact &=
					pl_edit_step(&e, (uint32_t)k) == length_of(&e, (uint32_t)k);
			pl_edit_fini(&full);
		}
		if (round % 3) { /* back; else go on from here */
			pl_edit_undo(&e, mark);
			undone &= same_starts(&before, &e) && before.n_edges == e.n_edges;
			was = e.settled;
			undone &= pl_edit_settle(&e, &err) == 0 && same_starts(&before, &e);
			idle &= e.settled == was;
		}
		pl_edit_fini(&before);
	}
	ok(!err.code && exact, "changed, the starts are those of a full pass (%s)", err.msg);
	ok(undone, "undone, everything is as it was");
	ok(idle, "and there is nothing to evaluate");
	pl_edit_fini(&e);
	pl_sim_run_fini(&run);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* Taken apart, the steps keep their times, and a change in the first moves no other. */
static void test_parted(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL;
	struct pl_edit e = { 0 }, before = { 0 };
	bool same, moved, alone = true;
	int rc = make(&j, seed, 3, 120, 3, 0, &err);

	if (rc == 0 && !(s = pl_sim_new(&j.g, &err)))
		rc = err.code;
	if (rc == 0)
		rc = pl_sim_edit(s, 0, 3, &e, &err);
	if (rc == 0)
		rc = pl_edit_dup(&e, &before, &err);
	if (rc == 0)
		rc = pl_edit_part_steps(&e, &err);
	same = rc == 0 && same_starts(&before, &e);
	for (uint32_t i = 0; rc == 0 && i < e.n_nodes; i++)
		if (e.node[i].step == 0 && e.node[i].type == PL_N_OP)
			rc = pl_edit_set_dur(&e, i, e.node[i].dur + 1000, &err);
	if (rc == 0)
		rc = pl_edit_settle(&e, &err);
	moved = rc == 0 && pl_edit_step(&e, 0) > pl_edit_step(&before, 0);
	for (uint32_t i = 0; rc == 0 && i < e.n_nodes; i++)
		alone &= e.node[i].step == 0 || e.node[i].start == before.node[i].start;
	ok(rc == 0 && same, "steps apart have their times (%s)", err.msg);
	ok(moved && alone, "a change moves its own step only");
	pl_edit_fini(&before);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* Put together again, it is a valid graph whose replay is the edited step. */
static void test_graph(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL, *s2 = NULL;
	struct pl_run run = { 0 };
	struct pl_edit e;
	struct pl_graph g;
	uint64_t rng = seed;
	int rc;

	memset(&e, 0, sizeof(e));
	pl_graph_init(&g);
	rc = make(&j, seed, 3, 150, 2, 0, &err);
	if (rc == 0 && (s = pl_sim_new(&j.g, &err)))
		rc = pl_sim_edit(s, 0, 2, &e, &err);
	for (int i = 0; rc == 0 && i < 10; i++)
		rc = change(&e, &rng, &err);
	ok(rc == 0 && pl_edit_settle(&e, &err) == 0 && pl_edit_graph(&e, &g, &err) == 0 &&
		   pl_graph_valid(&g, &err) && (s2 = pl_sim_new(&g, &err)) &&
		   pl_sim_run(s2, &run, &err) == 0,
	   "seed %d: an edit is put together as a graph (%s)", (int)seed, err.msg);
	for (uint32_t k = 0; run.step_end && k < 2; k++)
		is_i64(run.step_end[k] - run.step_start[k], pl_edit_step(&e, k),
		       "its replay takes as long as the edited step");
	pl_sim_run_fini(&run);
	pl_sim_free(s2); /* borrows g */
	pl_graph_fini(&g);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

static void test_cycle(void)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL;
	struct pl_edit e, before;
	uint32_t a = 20, b;
	size_t mark;

	memset(&e, 0, sizeof(e));
	if (!ok(make(&j, 5, 2, 100, 1, 0, &err) == 0 && (s = pl_sim_new(&j.g, &err)) &&
			pl_sim_edit(s, 0, 1, &e, &err) == 0 && pl_edit_dup(&e, &before, &err) == 0,
		"a job taken apart"))
		return;
	while (e.node[a].out == PL_NONE || e.node[e.edge[e.node[a].out].dst].label == UINT64_MAX)
		a++;
	b = e.edge[e.node[a].out].dst;
	mark = pl_edit_mark(&e);
	ok(pl_edit_add_edge(&e, b, a, PL_E_DATA, 1, &err) == 0 &&
		   pl_edit_settle(&e, &err) == PL_EDATA && strstr(err.msg, "wait for itself"),
	   "a cycle is found: %s", err.msg);
	pl_edit_undo(&e, mark);
	err.code = 0;
	ok(pl_edit_settle(&e, &err) == 0 && same_starts(&e, &before), "and undone");
	pl_edit_fini(&before);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- begins of steps ------------------------------------------------------------------------- */

/* The first node that follows a begin of its step, and becomes one too; PL_NONE. */
static uint32_t second_begin(struct pl_graph *g)
{
	struct pl_shape *s = &g->shape[0];

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			if (s->flags[s->src[e]] & PL_NF_STEP_BEGIN && s->type[i] == PL_N_OP) {
				s->flags[i] |= PL_NF_STEP_BEGIN;
				return i;
			}
	return PL_NONE;
}

/* Add a node with which the step may begin. */
static int add_begin(struct pl_edit *e, pl_ns start, struct pl_err *err)
{
	struct pl_enode n = pl_edit_blank_node();
	uint32_t id;

	n.type = PL_N_OP;
	n.role = PL_RO_COMPUTE;
	n.res = 0;
	n.flags = PL_NF_STEP_BEGIN | PL_NF_IN_STEP;
	n.start = n.fixed = start;
	return pl_edit_add_node(e, &n, PL_NONE, &id, err);
}

/* What is undone leaves nothing in the list of nodes with which a step may begin. */
static void test_begins(void)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL;
	struct pl_edit e = { 0 };
	bool longer = true, same = true, listed = true;
	uint32_t node = PL_NONE;
	size_t n, mark;
	pl_ns was;
	int rc = make(&j, 5, 2, 100, 1, 0, &err);

	if (rc == 0)
		node = second_begin(&j.g);
	if (!ok(node != PL_NONE && (s = pl_sim_new(&j.g, &err)) &&
			pl_sim_edit(s, 0, 1, &e, &err) == 0,
		"a job taken apart (%s)", err.msg))
		return;
	n = e.step[0].n_begin;
	was = pl_edit_step(&e, 0);
	mark = pl_edit_mark(&e);
	for (int i = 0; i < 20 && rc == 0; i++) {
		rc = add_begin(&e, -1000, &err);
		if (rc == 0)
			rc = pl_edit_settle(&e, &err);
		longer &= pl_edit_step(&e, 0) >= was + 1000;
		while (rc == 0 && e.node[node].in != PL_NONE)
			rc = pl_edit_drop_edge(&e, e.node[node].in, &err);
		listed &= e.step[0].n_begin == n + 2;
		pl_edit_undo(&e, mark);
		same &= e.step[0].n_begin == n && pl_edit_step(&e, 0) == was;
	}
	ok(rc == 0 && longer && listed, "nodes with which a step may begin (%s)", err.msg);
	ok(same, "... are none when they are undone");
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- delays ---------------------------------------------------------------------------------- */

/* Of the first step. */
static pl_ns unexplained(const struct pl_sim *s, const struct pl_graph *g)
{
	pl_ns sum = 0;

	for (uint32_t i = 0; i < g->shape[g->step[0].shape].n_nodes; i++)
		sum += pl_sim_unexplained(s, 0, i);
	return sum;
}

/* What a rewrite models as a delay is no time that nothing explains. */
static void test_delays(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL, *s2 = NULL;
	struct pl_graph g;
	struct pl_edit e;
	uint32_t a, b = PL_NONE;
	pl_ns before = 0, after = -1;
	int rc;

	memset(&e, 0, sizeof(e));
	pl_graph_init(&g);
	rc = make(&j, seed, 2, 120, 1, 0, &err);
	if (rc == 0 && (s = pl_sim_new(&j.g, &err)))
		rc = pl_sim_edit(s, 0, 1, &e, &err);
	/* an operation that nothing waits for, long after the others of its rank have begun */
	for (a = 0; rc == 0 && a < e.n_nodes; a++)
		if (e.node[a].type == PL_N_OP && e.node[a].flags & PL_NF_IN_STEP &&
		    e.node[a].in != PL_NONE)
			b = a;
	for (a = 0; b != PL_NONE && a < b && e.node[a].type != PL_N_OP;)
		a++;
	if (rc == 0 && b != PL_NONE && pl_edit_add_edge(&e, a, b, PL_E_DATA, 1000000, &err) == 0 &&
	    pl_edit_settle(&e, &err) == 0 && pl_edit_graph(&e, &g, &err) == 0 &&
	    (s2 = pl_sim_new(&g, &err))) {
		before = unexplained(s, &j.g);
		after = unexplained(s2, &g);
	}
	ok(after >= 0 && after <= before,
	   "seed %d: a modelled delay stays explained: %lld ns are not, %lld before (%s)",
	   (int)seed, (long long)after, (long long)before, err.msg);
	pl_sim_free(s2);
	pl_graph_fini(&g);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

/* ---- resources, groups, ranks, tensors ------------------------------------------------------- */

static bool has_rank(const struct pl_graph *g, int32_t rank)
{
	return pl_graph_rank_index(g, rank) != PL_NONE;
}

static bool as_graph(const struct pl_edit *e, struct pl_graph *g, struct pl_err *err)
{
	pl_graph_fini(g);
	return pl_edit_graph(e, g, err) == 0 && pl_graph_valid(g, err);
}

/* A server that answers rank 0: a resource of a new rank, a group, a node. */
static int add_server(struct pl_edit *e, uint32_t *res, uint32_t *group, uint32_t *node,
		      struct pl_err *err)
{
	struct pl_resource r = e->res[1];
	struct pl_enode n = pl_edit_blank_node();
	const int32_t members[] = { 0, 90 };
	pl_id name;
	int rc;

	r.rank = 90;
	PL_TRY(pl_edit_add_name(e, "server", &name, err));
	r.name = name;
	PL_TRY(pl_edit_add_resource(e, &r, res, err));
	PL_TRY(pl_edit_add_group(e, name, members, 2, group, err));
	n.type = PL_N_OP;
	n.role = PL_RO_COMPUTE;
	n.kind = PL_K_KERNEL;
	n.flags = PL_NF_IN_STEP;
	n.res = *res;
	n.group = *group;
	n.name = name;
	n.dur = 777;
	PL_TRY(pl_edit_add_node(e, &n, 30, node, err));
	PL_TRY(pl_edit_add_edge(e, 30, *node, PL_E_DATA, 5, err));
	rc = pl_edit_settle(e, err);
out:
	return rc;
}

/* A gradient that node 30 of the first shape makes. */
static int add_gradient(struct pl_graph *g, struct pl_err *err)
{
	const struct pl_tensor t = { .name = g->shape[0].name[30],
				     .type = PL_NONE,
				     .role = PL_TR_GRAD,
				     .bytes = 8,
				     .producer = 30 };

	return pl_append(&g->tensor, &g->n_tensors, &g->cap_tensors, &t, sizeof(t), err);
}

static void test_tables(void)
{
	struct pl_err err = { 0 };
	struct job j;
	struct pl_sim *s = NULL;
	struct pl_edit e;
	struct pl_graph g;
	uint32_t res = 0, group = 0, node = 0;
	size_t mark, nodes = 0, tensors;
	struct pl_etensor copy;
	bool fine;

	memset(&e, 0, sizeof(e));
	pl_graph_init(&g);
	fine = make(&j, 7, 3, 120, 2, 0, &err) == 0 && add_gradient(&j.g, &err) == 0 &&
	       (s = pl_sim_new(&j.g, &err)) && pl_sim_edit(s, 0, 2, &e, &err) == 0;
	mark = pl_edit_mark(&e);
	tensors = e.n_tensors;
	ok(fine && add_server(&e, &res, &group, &node, &err) == 0 && as_graph(&e, &g, &err),
	   "a server is added (%s)", err.msg);
	ok(has_rank(&g, 90) && g.n_ranks == j.g.n_ranks + 1 && g.n_res == j.g.n_res + 1 &&
		   g.n_groups == j.g.n_groups + 1 && g.group[group].n == 2 && g.res[res].rank == 90,
	   "... and the graph has its rank, resource and group");
	copy = e.tensor[0];
	copy.producer = node;
	copy.rank = 90;
	ok(tensors && pl_edit_add_tensor(&e, &copy, &err) == 0 && as_graph(&e, &g, &err) &&
		   g.n_tensors == tensors + 1,
	   "a tensor is added, which the server makes (%s)", err.msg);
	ok(pl_edit_drop_rank(&e, 2, &err) == 0 && pl_edit_settle(&e, &err) == 0 &&
		   as_graph(&e, &g, &err) && !has_rank(&g, 2) && has_rank(&g, 4),
	   "a rank is removed (%s)", err.msg);
	for (size_t k = 0; k < g.n_shapes; k++)
		for (uint32_t i = 0; i < g.shape[k].n_nodes; i++)
			nodes += pl_node_rank(&g, &g.shape[k], i) == 2;
	ok(!nodes && g.n_res == j.g.n_res + 1 - 3, "... with its nodes and its resources");
	pl_edit_undo(&e, mark);
	ok(pl_edit_settle(&e, &err) == 0 && as_graph(&e, &g, &err) && g.n_res == j.g.n_res &&
		   g.n_ranks == j.g.n_ranks && g.n_groups == j.g.n_groups && has_rank(&g, 2) &&
		   !has_rank(&g, 90) && g.n_tensors == tensors,
	   "and all of it is undone (%s)", err.msg);
	pl_graph_fini(&g);
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&j.g);
}

int main(void)
{
	for (uint64_t seed = 1; seed <= 40; seed++)
		test_random(seed);
	for (uint64_t seed = 50; seed < 56; seed++)
		test_graph(seed);
	for (uint64_t seed = 70; seed < 80; seed++)
		test_delays(seed);
	test_tables();
	for (uint64_t seed = 1; seed <= 5; seed++)
		test_parted(seed);
	test_cycle();
	test_begins();
	return done_testing();
}
