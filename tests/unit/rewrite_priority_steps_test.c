/*
 * Priorities in jobs of several steps, where the order of communication depends on the order in all
 * steps before: against channels that are simulated part by part here.
 */
#include "priority_fixture.h"

#define STEPS 12
#define LANES 3 /* gradients of each step */

/* Steps of lanes: what makes a gradient waits for that lane's communication in the step before. So
 * what is ready first depends on the order in all steps before. */
static int put_lanes(struct turned *x, const pl_ns *dur, struct pl_err *err)
{
	struct pl_shape *s = &x->j.g.shape[x->shape];
	uint32_t per = LANES + 1, at[LANES][RANKS], last[RANKS], done[LANES][RANKS];
	pl_id name;
	int rc = 0;

	s->n_nodes = s->n_edges = s->n_entries = 0;
	for (uint32_t k = 0; k < RANKS; k++)
		last[k] = PL_NONE;
	for (uint32_t r = 0; x->step && r < RANKS * per; r++, s->n_entries++) {
		uint32_t n = put(x, PL_N_ENTRY, PL_RO_NONE, 0, r, x->j.name[7], 0);

		if (r % per < LANES)
			at[r % per][r / per] = n;
		else
			last[r / per] = n;
	}
	for (uint32_t l = 0; l < LANES; l++) {
		PL_TRY(name_of(x, "backward", l, &name, err));
		for (uint32_t k = 0; k < RANKS; k++) {
			uint32_t n = put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, per * k + l, name,
					 dur[l]);

			s->flags[n] |= PL_NF_STEP_BEGIN;
			add_edge(s, x->step ? at[l][k] : PL_NONE, PL_E_SEQ);
			at[l][k] = n;
		}
		PL_TRY(put_comm(x, l, at[l], last, err));
		memcpy(done[l], last, sizeof(last));
	}
	for (uint32_t l = 0; l < LANES; l++) {
		PL_TRY(name_of(x, "optimizer", l, &name, err));
		for (uint32_t k = 0; k < RANKS; k++) {
			put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, per * k + l, name, 1);
			add_edge(s, at[l][k], PL_E_SEQ);
			add_edge(s, done[l][k], PL_E_DATA);
		}
	}
out:
	return rc;
}

/* The recorded starts: as soon as can be. */
static void run_steps(struct pl_graph *g)
{
	pl_ns tail[RANKS * (LANES + 1)] = { 0 };

	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *s = &g->shape[g->step[k].shape];
		struct pl_gstep *st = &g->step[k];

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			if (s->type[i] == PL_N_ENTRY)
				st->start[i] = tail[s->res[i]];
			for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
				st->start[i] = pl_max_i64(st->start[i], st->start[s->src[e]] +
										st->dur[s->src[e]]);
		}
		for (uint32_t i = 0; i < s->n_nodes; i++)
			if (s->res[i] != PL_NONE)
				tail[s->res[i]] =
					pl_max_i64(tail[s->res[i]], st->start[i] + st->dur[i]);
	}
}

static int lanes_tables(struct turned *x, uint64_t *rng, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	int rc;

	x->j = (struct job){ .ranks = RANKS, .per_rank = LANES + 1 };
	x->n = LANES;
	PL_TRY(job_tables(&x->j, err));
	for (size_t i = 0; i < g->n_res; i++) {
		g->res[i].track_type = PL_T_STREAM;
		g->res[i].launch_ns = g->res[i].early_ns = g->res[i].dispatch_ns = 0;
	}
	for (uint32_t l = 0; l < LANES; l++)
		x->bytes[l] = 1000 + (int64_t)(pl_rng_next(rng) % 3000);
	PL_TRY(pl_alloc(&g->shape, 2, sizeof(*g->shape), err));
	PL_TRY(pl_alloc(&g->step, STEPS, sizeof(*g->step), err));
	g->n_shapes = g->cap_shapes = 2;
	for (size_t i = 0; i < 2; i++) {
		PL_TRY(shape_arrays(&g->shape[i], err));
		if (!g->shape[i].bytes)
			PL_TRY(pl_alloc(&g->shape[i].bytes, MAX_NODES, sizeof(int64_t), err));
		for (uint32_t k = 0; k < MAX_NODES; k++)
			g->shape[i].bytes[k] = -1;
	}
out:
	return rc;
}

static bool lanes_init(struct turned *x, uint64_t seed, pl_ns dur[STEPS][LANES], struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	uint64_t rng = seed;
	int rc;

	memset(x, 0, sizeof(*x));
	PL_TRY(lanes_tables(x, &rng, err));
	for (uint32_t k = 0; k < STEPS; k++) {
		size_t tensors = g->n_tensors;

		x->step = k;
		x->shape = g->step[k].shape = k > 0;
		g->step[k].number = k;
		g->n_steps = g->cap_steps = k + 1;
		PL_TRY(pl_alloc(&g->step[k].start, MAX_NODES, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&g->step[k].dur, MAX_NODES, sizeof(pl_ns), err));
		for (uint32_t l = 0; l < LANES; l++)
			dur[k][l] = 200 + (pl_ns)(pl_rng_next(&rng) % 2500);
		PL_TRY(put_lanes(x, dur[k], err));
		if (k > 1) /* the tensors of the shape are there */
			g->n_tensors = tensors;
	}
	run_steps(g);
	PL_TRY(pl_derive_describe(g, NULL, err));
	x->s = pl_sim_new(g, err);
	rc = x->s ? pl_sim_edit(x->s, 0, STEPS, &x->e, err) : err->code;
	if (rc == 0 && !(x->r = pl_rewrite_new(&x->e, &cost, err)))
		rc = err->code;
out:
	return rc >= 0;
}

/* The end of each step, part by part. */
static void expected_steps(const struct turned *x, pl_ns dur[STEPS][LANES], const uint32_t *urgent,
			   const uint32_t *parts, pl_ns *end)
{
	pl_ns ready[LANES], free[LANES] = { 0 }, channel = 0;

	for (uint32_t k = 0; k < STEPS; k++) {
		uint32_t sent[LANES] = { 0 };

		for (uint32_t l = 0; l < LANES; l++)
			ready[l] = free[l] + dur[k][l];
		for (uint32_t left = LANES; left;) {
			struct pl_cost_comm now = { .kind = PL_K_COLLECTIVE,
						    .coll = PL_COLL_ALLREDUCE,
						    .algo = PL_ALGO_RING,
						    .n = RANKS };
			pl_ns ns, from, soonest = INT64_MAX;
			uint32_t best = LANES;

			for (uint32_t l = 0; l < LANES; l++)
				if (sent[l] < parts[l])
					soonest = pl_min_i64(soonest, ready[l]);
			from = pl_max_i64(channel, soonest);
			for (uint32_t l = 0; l < LANES; l++)
				if (sent[l] < parts[l] && ready[l] <= from &&
				    (best == LANES || urgent[l] < urgent[best]))
					best = l;
			now.bytes = x->bytes[best];
			now.parts = parts[best];
			ns = pl_cost_transfer(&cost, &now);
			channel = from + ns * (sent[best] + 1) / parts[best] -
				  ns * sent[best] / parts[best];
			if (++sent[best] < parts[best])
				continue;
			left--;
			free[best] = channel + 1;
		}
		end[k] = channel + 1;
	}
}

static pl_ns step_end(const struct pl_edit *e, uint32_t step)
{
	pl_ns end = 0;

	for (uint32_t i = 0; i < e->n_nodes; i++)
		if (!e->node[i].dead && e->node[i].step == step && e->node[i].flags & PL_NF_IN_STEP)
			end = pl_max_i64(end, pl_edit_end(e, i));
	return end;
}

static bool as_expected(uint64_t seed, struct pl_err *err)
{
	uint32_t urgent[MOST], parts[MOST];
	pl_ns dur[STEPS][LANES], end[STEPS];
	uint64_t rng = seed;
	struct turned x;
	struct pl_plan p;
	bool same;

	pl_plan_init(&p);
	same = lanes_init(&x, seed, dur, err);
	shuffle(&rng, LANES, urgent);
	for (uint32_t l = 0; l < LANES; l++)
		parts[l] = 1 + (uint32_t)(pl_rng_next(&rng) % 4);
	same = same && plan_of(&x, urgent, parts, &p, err) == 0 &&
	       pl_rewrite_plan(x.r, &p, err) == 0;
	if (same)
		expected_steps(&x, dur, urgent, parts, end);
	for (uint32_t k = 0; same && k < STEPS; k++)
		same = step_end(&x.e, k) == end[k];
	pl_plan_fini(&p);
	turned_fini(&x);
	return same;
}

static void test_steps(void)
{
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= 60; seed++, total++) {
		struct pl_err err = { 0 };

		right += as_expected(seed, &err);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
	}
	is_i64(right, total,
	       "steps whose order depends on those before, as simulated part by part");
}

int main(void)
{
	test_steps();
	return done_testing();
}
