/*
 * Priorities, on a step that begins with the backward pass and ends with the next forward pass,
 * whose layers wait for their own gradients alone: against a channel simulated part by part here;
 * and searched.
 */
#include <math.h>

#include "cost/expand.h"
#include "rewrite/rewrite.h"
#include "search/search.h"
#include "sim_fixture.h"

#define RANKS 2
#define MOST  7

struct turned {
	struct job j;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	uint32_t n;				 /* layers */
	pl_ns fwd[MOST], bwd[MOST], late[RANKS]; /* late: of a rank, each backward operation */
	int64_t bytes[MOST];
};

static pl_ns comm_ns(int64_t bytes)
{
	return 300 + bytes / 2;
}

/* A part costs the latency again. */
static struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			     .coll = PL_COLL_ALLREDUCE,
			     .n = RANKS,
			     .a_ns = 300,
			     .b_ns_per_byte = 0.5 };
static const struct pl_cost cost = { .fit = &fit, .n_fits = 1, .overlap = 1 };

static int name_of(struct turned *x, const char *what, uint32_t layer, pl_id *id,
		   struct pl_err *err)
{
	char text[64];

	snprintf(text, sizeof(text), "%s L%u", what, layer);
	return pl_intern_add(&x->j.g.str, text, strlen(text), id, err);
}

static uint32_t put(struct turned *x, uint8_t type, uint8_t role, uint8_t kind, pl_id res,
		    pl_id name, pl_ns dur)
{
	uint32_t n = add_node(&x->j.g.shape[0], type, role, kind, res, name);

	x->j.g.step[0].dur[n] = dur;
	return n;
}

static int put_tensor(struct turned *x, uint32_t layer, uint32_t producer, uint32_t arrive,
		      struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	struct pl_tensor t = { .type = PL_NONE,
			       .role = PL_TR_GRAD,
			       .bytes = x->bytes[layer],
			       .producer = producer,
			       .consumer = (uint32_t)g->n_consumers,
			       .n_consumers = 1 };
	int rc;

	PL_TRY(name_of(x, "grad", layer, &t.name, err));
	PL_TRY(pl_grow(&g->tensor, &g->cap_tensors, g->n_tensors + 1, sizeof(t), err));
	PL_TRY(pl_grow(&g->consumer, &g->cap_consumers, g->n_consumers + 1, sizeof(uint32_t), err));
	g->tensor[g->n_tensors++] = t;
	g->consumer[g->n_consumers++] = arrive;
out:
	return rc;
}

/* The gradients of a layer, from its backward operations on; transfer[rank]. */
static int put_comm(struct turned *x, uint32_t layer, const uint32_t *bwd, uint32_t *last,
		    struct pl_err *err)
{
	struct pl_shape *s = &x->j.g.shape[0];
	uint32_t arrive[RANKS], meet;
	pl_id name;
	int rc = name_of(x, "all_reduce", layer, &name, err);

	for (uint32_t k = 0; rc >= 0 && k < RANKS; k++) {
		arrive[k] = put(x, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, 2 * k + 1, name, 0);
		add_edge(s, last[k], PL_E_SEQ);
		add_edge(s, bwd[k], PL_E_DATA);
		rc = put_tensor(x, layer, bwd[k], arrive[k], err);
	}
	if (rc < 0)
		return rc;
	meet = put(x, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NONE, name, 0);
	s->flags[meet] = 0;
	for (uint32_t k = 0; k < RANKS; k++)
		add_edge(s, arrive[k], PL_E_COMM);
	for (uint32_t k = 0; k < RANKS; k++) {
		last[k] = put(x, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, 2 * k + 1, name,
			      comm_ns(x->bytes[layer]));
		add_edge(s, arrive[k], PL_E_SEQ);
		add_edge(s, meet, PL_E_COMM);
		s->bytes[last[k]] = s->bytes[arrive[k]] = x->bytes[layer];
	}
	return 0;
}

static int put_step(struct turned *x, bool apart, struct pl_err *err)
{
	struct pl_shape *s = &x->j.g.shape[0];
	uint32_t at[RANKS], last[RANKS], done[MOST][RANKS];
	pl_id name;
	int rc = 0;

	for (uint32_t k = 0; k < RANKS; k++) {
		at[k] = put(x, PL_N_OP, PL_RO_MARK, PL_K_STEP, 2 * k, x->j.name[7], 0);
		s->flags[at[k]] = PL_NF_STEP_BEGIN;
		last[k] = PL_NONE;
	}
	for (uint32_t i = x->n; i-- > 0;) {
		PL_TRY(name_of(x, "backward", i, &name, err));
		for (uint32_t k = 0; k < RANKS; k++) {
			uint32_t n = put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * k, name,
					 x->bwd[i] + x->late[k]);

			add_edge(s, at[k], PL_E_SEQ);
			at[k] = n;
		}
		PL_TRY(put_comm(x, i, at, last, err));
		memcpy(done[i], last, sizeof(last));
	}
	for (uint32_t i = 0; i < x->n; i++) {
		PL_TRY(name_of(x, "forward", i, &name, err));
		for (uint32_t k = 0; k < RANKS; k++) {
			uint32_t n =
				put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * k, name, x->fwd[i]);

			add_edge(s, at[k], PL_E_SEQ);
			if (apart)
				add_edge(s, done[i][k], PL_E_DATA);
			for (uint32_t l = 0; !apart && !i && l < x->n; l++)
				add_edge(s, done[l][k], PL_E_DATA);
			at[k] = n;
		}
	}
out:
	return rc;
}

static void run(struct pl_graph *g)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep *st = &g->step[0];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			st->start[i] =
				pl_max_i64(st->start[i], st->start[s->src[e]] + st->dur[s->src[e]]);
}

static bool turned_init(struct turned *x, uint64_t seed, bool apart, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	uint64_t rng = seed;
	int rc;

	memset(x, 0, sizeof(*x));
	x->j = (struct job){ .ranks = RANKS, .per_rank = 2 };
	x->n = 2 + (uint32_t)(seed % (MOST - 1));
	PL_TRY(job_tables(&x->j, err));
	for (size_t i = 0; i < g->n_res; i++) {
		g->res[i].track_type = PL_T_STREAM;
		g->res[i].launch_ns = g->res[i].early_ns = g->res[i].dispatch_ns = 0;
	}
	for (uint32_t i = 0; i < x->n; i++) {
		x->fwd[i] = 50 + (pl_ns)(pl_rng_next(&rng) % 500);
		x->bwd[i] = 50 + (pl_ns)(pl_rng_next(&rng) % 900);
		x->bytes[i] = 10 + (int64_t)(pl_rng_next(&rng) % 4000);
	}
	x->late[1] = (pl_ns)(pl_rng_next(&rng) % 200);
	PL_TRY(pl_alloc(&g->shape, 1, sizeof(*g->shape), err));
	g->n_shapes = g->cap_shapes = 1;
	PL_TRY(shape_arrays(&g->shape[0], err));
	if (!g->shape[0].bytes)
		PL_TRY(pl_alloc(&g->shape[0].bytes, MAX_NODES, sizeof(int64_t), err));
	for (uint32_t i = 0; i < MAX_NODES; i++)
		g->shape[0].bytes[i] = -1;
	PL_TRY(pl_alloc(&g->step, 1, sizeof(*g->step), err));
	g->n_steps = g->cap_steps = 1;
	PL_TRY(pl_alloc(&g->step[0].start, MAX_NODES, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&g->step[0].dur, MAX_NODES, sizeof(pl_ns), err));
	PL_TRY(put_step(x, apart, err));
	run(g);
	x->s = pl_sim_new(g, err);
	rc = x->s ? pl_sim_edit(x->s, 0, 1, &x->e, err) : err->code;
	if (rc == 0 && !(x->r = pl_rewriter_new(&x->e, &cost, err)))
		rc = err->code;
out:
	return rc >= 0;
}

static void turned_fini(struct turned *x)
{
	pl_rewriter_free(x->r);
	pl_edit_fini(&x->e);
	pl_sim_free(x->s);
	pl_graph_fini(&x->j.g);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Part by part: urgent[i] is the priority of layer i, 1 the highest. */
static pl_ns expected(const struct turned *x, const uint32_t *urgent, const uint32_t *parts)
{
	pl_ns ready[MOST], done[MOST], t = 0, channel = 0, forward = 0;
	uint32_t sent[MOST] = { 0 }, left = x->n;

	for (uint32_t i = x->n; i-- > 0;)
		ready[i] = t += x->bwd[i] + pl_max_i64(x->late[0], x->late[1]);
	while (left) {
		struct pl_cost_comm now = { .kind = PL_K_COLLECTIVE,
					    .coll = PL_COLL_ALLREDUCE,
					    .algo = PL_ALGO_RING,
					    .n = RANKS };
		pl_ns dur, from, soonest = INT64_MAX;
		uint32_t best = MOST;

		for (uint32_t i = 0; i < x->n; i++)
			if (sent[i] < parts[i])
				soonest = pl_min_i64(soonest, ready[i]);
		from = pl_max_i64(channel, soonest);
		for (uint32_t i = 0; i < x->n; i++)
			if (sent[i] < parts[i] && ready[i] <= from &&
			    (best == MOST || urgent[i] < urgent[best]))
				best = i;
		now.bytes = x->bytes[best];
		now.parts = parts[best];
		dur = pl_cost_transfer(&cost, &now);
		channel = from + dur * (sent[best] + 1) / parts[best] -
			  dur * sent[best] / parts[best];
		if (++sent[best] == parts[best]) {
			done[best] = channel;
			left--;
		}
	}
	for (uint32_t k = 0; k < RANKS; k++) {
		pl_ns at = t - (pl_ns)x->n * (pl_max_i64(x->late[0], x->late[1]) - x->late[k]);

		for (uint32_t i = 0; i < x->n; i++)
			at = pl_max_i64(at, done[i]) + x->fwd[i];
		forward = pl_max_i64(forward, at);
	}
	return forward;
}

static int plan_of(const struct turned *x, const uint32_t *urgent, const uint32_t *parts,
		   struct pl_plan *p, struct pl_err *err)
{
	char name[MOST][32];
	const char *arg[MOST];
	int rc = 0;

	for (uint32_t i = 0; i < x->n; i++)
		snprintf(name[i], sizeof(name[i]), "grad L%u", i);
	for (uint32_t i = 0; i < x->n; i++) {
		struct pl_rewrite rw = { .op = PL_RW_PARTITION_TENSOR, .arg = arg, .n_args = 1 };

		arg[0] = name[i];
		rw.k = parts[i];
		if (parts[i] > 1)
			PL_TRY(pl_plan_add(p, &rw, err));
	}
	for (uint32_t i = 0; i < x->n; i++)
		arg[urgent[i] - 1] = name[i];
	rc = pl_plan_add(
		p, &(struct pl_rewrite){ .op = PL_RW_PRIORITY, .arg = arg, .n_args = x->n }, err);
out:
	return rc;
}

static void shuffle(uint64_t *rng, uint32_t n, uint32_t *v)
{
	for (uint32_t i = 0; i < n; i++)
		v[i] = i + 1;
	for (uint32_t i = n; i-- > 1;) {
		uint32_t k = (uint32_t)(pl_rng_next(rng) % (i + 1)), t = v[i];

		v[i] = v[k];
		v[k] = t;
	}
}

/* Several plans, some on what the one before left, some undone: the step, and the same by a full
 * pass. Parts said again count; that there are none cannot be said again. */
static bool follows(struct turned *x, uint64_t seed, struct pl_err *err)
{
	uint32_t urgent[MOST], parts[MOST];
	pl_ns before = pl_edit_step(&x->e, 0);
	bool right = true;

	for (int round = 0; round < 6 && right; round++) {
		size_t mark = pl_rewriter_mark(x->r);
		struct pl_edit copy;
		struct pl_plan p;

		shuffle(&seed, x->n, urgent);
		for (uint32_t i = 0; i < x->n; i++)
			parts[i] = (mark > 1) + 1 + (uint32_t)(pl_rng_next(&seed) % 4);
		pl_plan_init(&p);
		right = plan_of(x, urgent, parts, &p, err) == 0 &&
			pl_rewrite_plan(x->r, &p, err) == 0 &&
			pl_edit_step(&x->e, 0) == expected(x, urgent, parts);
		if (right && pl_edit_dup(&x->e, &copy, err) == 0) {
			right = pl_edit_settle_full(&copy, err) == 0 &&
				pl_edit_step(&copy, 0) == pl_edit_step(&x->e, 0);
			pl_edit_fini(&copy);
		}
		pl_plan_fini(&p);
		if (round % 3 == 1)
			pl_rewriter_undo(x->r, mark);
	}
	pl_rewriter_undo(x->r, 1);
	return right && pl_edit_settle(&x->e, err) == 0 && pl_edit_step(&x->e, 0) == before;
}

static void test_exact(void)
{
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct pl_err err = { 0 };
		struct turned x;

		if (turned_init(&x, seed, true, &err))
			right += follows(&x, seed, &err);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		turned_fini(&x);
	}
	is_i64(right, total, "the step as a channel simulated part by part has it, and undone");
}

/* ---- refused, and searched ------------------------------------------------------------------- */

static void test_refused(void)
{
	const uint32_t urgent[] = { 1, 2, 3, 4, 5, 6, 7 }, parts[] = { 1, 1, 1, 1, 1, 1, 1 };
	struct pl_err err = { 0 };
	struct turned x;
	struct pl_plan p;

	pl_plan_init(&p);
	ok(turned_init(&x, 4, false, &err) && !pl_rewriter_needs_differ(x.r),
	   "a job whose every layer waits for all (%s)", err.msg);
	ok(plan_of(&x, urgent, parts, &p, &err) == 0 &&
		   pl_rewrite_plan(x.r, &p, &err) == PL_EDATA &&
		   strstr(err.msg, "waits for all of them"),
	   "has no use for priorities: %s", err.msg);
	pl_plan_fini(&p);
	turned_fini(&x);
}

/* ---- message by message ---------------------------------------------------------------------- */

/* Transfers of a rendezvous on one resource, of its first rank. */
static uint32_t transfers_of(const struct pl_edit *e, uint32_t meet)
{
	uint32_t n = 0, res = PL_NONE;

	for (uint32_t x = e->node[meet].out; x != PL_NONE; x = e->edge[x].out_next) {
		const struct pl_enode *t = &e->node[e->edge[x].dst];

		if (t->role != PL_RO_TRANSFER)
			continue;
		res = res == PL_NONE ? t->res : res;
		n += t->res == res;
	}
	return n;
}

/* What gives way stays as it is, as long as it was; *n: how many do. */
static bool stays(struct turned *x, uint64_t seed, uint32_t *n, struct pl_err *err)
{
	struct pl_expand_all all = { .algo = PL_ALGO_RING, .recorded = true };
	struct pl_expanded done = { 0 };
	struct pl_topology topo = { 0 };
	uint32_t urgent[MOST], parts[MOST], name;
	pl_ns dur[MAX_NODES] = { 0 };
	struct pl_plan p;
	bool right;

	shuffle(&seed, x->n, urgent);
	for (uint32_t i = 0; i < x->n; i++)
		parts[i] = 4;
	pl_plan_init(&p);
	*n = 0;
	right = plan_of(x, urgent, parts, &p, err) == 0 && pl_rewrite_plan(x->r, &p, err) == 0 &&
		x->e.n_nodes <= MAX_NODES && pl_topology_parse("1x2", &topo, err) == 0;
	right = right && pl_edit_add_name(&x->e, "allreduce", &name, err) == 0;
	for (uint32_t i = 0; right && i < x->e.n_nodes; i++) {
		if (x->e.node[i].type == PL_N_RENDEZVOUS) {
			x->e.node[i].name = name;
			x->e.node[i].bytes = 1000;
		}
		dur[i] = x->e.node[i].dur;
		*n += !x->e.node[i].dead && x->e.node[i].type == PL_N_RENDEZVOUS &&
		      transfers_of(&x->e, i) > 1;
	}
	all.topo = &topo;
	right = right && pl_cost_expand_all(&x->e, &all, &done, err) == 0 && done.left == *n &&
		done.left + done.collectives == x->n;
	for (uint32_t i = 0; right && i < x->e.n_nodes && i < MAX_NODES; i++)
		for (uint32_t k = x->e.node[i].out;
		     x->e.node[i].type == PL_N_RENDEZVOUS && k != PL_NONE;
		     k = x->e.edge[k].out_next)
			right &= x->e.node[x->e.edge[k].dst].dur == dur[x->e.edge[k].dst];
	pl_plan_fini(&p);
	pl_topology_fini(&topo);
	return right;
}

static void test_expanded(void)
{
	uint32_t some = 0, n;
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= 40; seed++, total++) {
		struct pl_err err = { 0 };
		struct turned x;

		if (turned_init(&x, seed, true, &err)) {
			right += stays(&x, seed, &n, &err);
			some += n;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		turned_fini(&x);
	}
	is_i64(right, total, "message by message, what gives way stays as it is");
	ok(some > 20, "... which %u do", some);
}

static double searched(struct turned *x, const struct pl_search_opts *o, bool *urgent,
		       struct pl_err *err)
{
	struct pl_cost fitted;
	struct pl_rewriter *r = NULL;
	struct pl_plan p;
	double mean = INFINITY;

	pl_plan_init(&p);
	*urgent = false;
	if (pl_cost_fit(&x->j.g, NULL, &fitted, err) < 0)
		return mean;
	if (pl_search(&x->j.g, &fitted, o, &p, err) == 0) {
		mean = (double)p.model_ns;
		r = pl_rewriter_new(&x->e, &fitted, err);
	}
	if (r && p.n_rw &&
	    (pl_rewrite_plan(r, &p, err) < 0 || fabs(pl_edit_mean_step(&x->e) - mean) > 1))
		mean = NAN; /* not what it says it is */
	for (size_t i = 0; i < p.n_rw; i++)
		*urgent |= p.rw[i].op == PL_RW_PRIORITY;
	if (r)
		pl_rewriter_undo(r, 1);
	pl_rewriter_free(r);
	pl_plan_fini(&p);
	pl_cost_fini(&fitted);
	return pl_edit_settle(&x->e, err) == 0 ? mean : NAN;
}

static void test_search(void)
{
	int worse = 0, shorter = 0, lines = 0, total = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct pl_search_opts o = { .seed = 1, .partition = true };
		struct pl_err err = { 0 };
		struct turned x;
		double with, without;
		bool urgent, none;

		if (!turned_init(&x, seed, true, &err)) {
			ok(false, "seed %d: %s", (int)seed, err.msg);
			turned_fini(&x);
			continue;
		}
		without = searched(&x, &o, &none, &err);
		o.priority = true;
		with = searched(&x, &o, &urgent, &err);
		worse += !(with <= without) || none;
		shorter += with < without;
		lines += urgent == (with < without);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		turned_fini(&x);
	}
	is_i64(worse, 0, "a search with priorities is never worse than without");
	ok(shorter > total / 3, "shorter in %d of %d", shorter, total);
	is_i64(lines, total, "they are proposed where they help, and only there");
}

int main(void)
{
	test_exact();
	test_refused();
	test_expanded();
	test_search();
	return done_testing();
}
