/*
 * Priorities, on a step that begins with the backward pass and ends with the next forward pass,
 * whose layers wait for their own gradients alone: against a channel simulated part by part here;
 * and searched.
 */
#include <math.h>

#include "cost/expand.h"
#include "derive/describe.h"
#include "rewrite/rewrite.h"
#include "search/search.h"
#include "sim_fixture.h"

#define RANKS  2
#define LAYERS 7
#define MOST   7
#define STEPS  12 /* of jobs of several steps */
#define LANES  3  /* gradients of each of them */

struct turned {
	struct job j;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	uint32_t n;				 /* layers */
	uint32_t shape, step;			 /* that are being made */
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
static struct pl_cost cost = { .fit = &fit, .n_fits = 1, .overlap = 1 };

/* Durations of computation beside communication, and of communication beside computation, grow by
 * these factors. */
static void contend(double computation, double transfer)
{
	cost.overlap = computation;
	fit.a_contended_ns = transfer > 1 ? transfer * fit.a_ns : 0;
	fit.b_contended = transfer > 1 ? transfer : 0;
}

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
	uint32_t n = add_node(&x->j.g.shape[x->shape], type, role, kind, res, name);

	x->j.g.step[x->step].dur[n] = dur;
	return n;
}

static int put_tensor(struct turned *x, uint32_t layer, uint32_t producer, uint32_t arrive,
		      struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	struct pl_tensor t = { .type = PL_NONE,
			       .role = PL_TR_GRAD,
			       .bytes = x->bytes[layer],
			       .shape = x->shape,
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
	struct pl_shape *s = &x->j.g.shape[x->shape];
	uint32_t per = (uint32_t)x->j.per_rank, arrive[RANKS], meet;
	pl_id name;
	int rc = name_of(x, "all_reduce", layer, &name, err);

	for (uint32_t k = 0; rc >= 0 && k < RANKS; k++) {
		arrive[k] =
			put(x, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, per * (k + 1) - 1, name, 0);
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
		last[k] = put(x, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, per * (k + 1) - 1, name,
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

/* A layer waits for all gradients, or for its own. */
enum shape { TOGETHER, APART };

static bool turned_init(struct turned *x, uint64_t seed, enum shape shape, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	uint64_t rng = seed;
	int rc;

	memset(x, 0, sizeof(*x));
	x->j = (struct job){ .ranks = RANKS, .per_rank = 2 };
	x->n = 2 + (uint32_t)(seed % (LAYERS - 1));
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
	PL_TRY(put_step(x, shape == APART, err));
	run(g);
	PL_TRY(pl_derive_describe(g, err));
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

		if (turned_init(&x, seed, APART, &err))
			right += follows(&x, seed, &err);
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		turned_fini(&x);
	}
	is_i64(right, total, "the step as a channel simulated part by part has it, and undone");
}

/* ---- several steps --------------------------------------------------------------------------- */

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
	PL_TRY(pl_derive_describe(g, err));
	x->s = pl_sim_new(g, err);
	rc = x->s ? pl_sim_edit(x->s, 0, STEPS, &x->e, err) : err->code;
	if (rc == 0 && !(x->r = pl_rewriter_new(&x->e, &cost, err)))
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

/* ---- contention and priorities --------------------------------------------------------------- */

#define TICK 0.125 /* ns */

/* How much of a backward operation lies beside the recorded communication of its rank. */
static double covered(const struct turned *x, uint32_t node)
{
	const struct pl_shape *s = &x->j.g.shape[0];
	const struct pl_gstep *st = &x->j.g.step[0];
	pl_ns sum = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (s->role[i] == PL_RO_TRANSFER && s->res[i] == s->res[node] + 1)
			sum += pl_max_i64(0, pl_min_i64(st->start[i] + st->dur[i],
							st->start[node] + st->dur[node]) -
						     pl_max_i64(st->start[i], st->start[node]));
	return (double)sum;
}

/* Durations of the backward pass of each rank in its order, had it lost nothing. */
static void without_losses(const struct turned *x, double slows, double bare[RANKS][MOST])
{
	const struct pl_shape *s = &x->j.g.shape[0];
	uint32_t n[RANKS] = { 0 };

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		uint32_t k = s->res[i] / 2;

		if (s->role[i] != PL_RO_COMPUTE || n[k] == x->n)
			continue;
		bare[k][n[k]++] =
			(double)x->j.g.step[0].dur[i] - round(covered(x, i) * (1 - 1 / slows));
	}
}

/* One of the parts of a layer's transfer. */
static double part_of(const struct turned *x, uint32_t layer, uint32_t parts)
{
	const struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
					.coll = PL_COLL_ALLREDUCE,
					.algo = PL_ALGO_RING,
					.n = RANKS,
					.bytes = x->bytes[layer],
					.parts = parts };

	return (double)pl_cost_transfer(&cost, &c) / parts;
}

struct ticking { /* a step, tick by tick */
	const struct turned *x;
	double now, done[RANKS], end[MOST], wall[RANKS];
	uint32_t at[RANKS], sent[MOST];
};

/* The layer whose part goes next, MOST: none is ready. */
static uint32_t next_part(const struct ticking *t, const uint32_t *urgent, const uint32_t *parts)
{
	uint32_t best = MOST;

	for (uint32_t i = 0; i < t->x->n; i++) {
		bool ready = t->sent[i] < parts[i];

		for (uint32_t k = 0; k < RANKS; k++)
			ready &= t->at[k] > t->x->n - 1 - i;
		if (ready && (best == MOST || urgent[i] < urgent[best]))
			best = i;
	}
	return best;
}

static double by_ticks(const struct turned *x, double bare[RANKS][MOST], const uint32_t *urgent,
		       const uint32_t *parts, double f, double g)
{
	struct ticking t = { .x = x };
	uint32_t sending = MOST, unsent = x->n;
	double left = 0, forward = 0;

	while (unsent) {
		bool computes = false;

		if (sending == MOST && (sending = next_part(&t, urgent, parts)) != MOST)
			left = part_of(x, sending, parts[sending]);
		for (uint32_t k = 0; k < RANKS; k++) {
			if (t.at[k] == x->n)
				continue;
			computes = true;
			t.done[k] += TICK / (sending != MOST ? f : 1);
			if (t.done[k] >= bare[k][t.at[k]] - 1e-9)
				t.done[k] -= bare[k][t.at[k]++];
			t.wall[k] = t.now + TICK;
		}
		left -= TICK / (computes ? g : 1);
		t.now += TICK;
		if (sending == MOST || left > 1e-9)
			continue;
		if (++t.sent[sending] == parts[sending]) {
			t.end[sending] = t.now;
			unsent--;
		}
		sending = MOST;
	}
	for (uint32_t k = 0; k < RANKS; k++) {
		double at = t.wall[k];

		for (uint32_t i = 0; i < x->n; i++)
			at = fmax(at, t.end[i]) + (double)x->fwd[i];
		forward = fmax(forward, at);
	}
	return forward;
}

static void test_contended(void)
{
	double worst = 0, change = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		const double slows = 1.25 + (double)(seed % 5) / 4;
		const double slowed = 1 + (double)(seed % 7) / 6;
		uint32_t urgent[MOST], parts[MOST];
		double bare[RANKS][MOST], want, now = NAN;
		struct pl_err err = { 0 };
		uint64_t rng = seed;
		struct turned x;
		struct pl_plan p;

		pl_plan_init(&p);
		contend(slows, slowed);
		if (turned_init(&x, seed, APART, &err)) {
			without_losses(&x, slows, bare);
			shuffle(&rng, x.n, urgent);
			for (uint32_t i = 0; i < x.n; i++)
				parts[i] = 1 + (uint32_t)(pl_rng_next(&rng) % 4);
			if (plan_of(&x, urgent, parts, &p, &err) == 0 &&
			    pl_rewrite_plan(x.r, &p, &err) == 0)
				now = (double)pl_edit_step(&x.e, 0);
			want = by_ticks(&x, bare, urgent, parts, slows, slowed);
			if (!(fabs(now - want) <= 4 * MOST * TICK + LAYERS))
				printf("# seed %d: %g, want %g %s\n", (int)seed, now, want,
				       err.msg);
			worst = fmax(worst, isnan(now) ? INFINITY : fabs(now - want));
			change = fmax(change,
				      fabs(want / by_ticks(&x, bare, urgent, parts, 1, 1) - 1));
		}
		pl_plan_fini(&p);
		turned_fini(&x);
	}
	contend(1, 1);
	ok(worst <= 4 * MOST * TICK + LAYERS,
	   "contention and priorities at a time, as simulated tick by tick (%g ns off at worst)",
	   worst);
	ok(change > 0.1, "which contention changes by more than a tenth");
}

/* ---- refused, and searched ------------------------------------------------------------------- */

static void test_refused(void)
{
	const uint32_t urgent[] = { 1, 2, 3, 4, 5, 6, 7 }, parts[] = { 1, 1, 1, 1, 1, 1, 1 };
	struct pl_err err = { 0 };
	struct turned x;
	struct pl_plan p;

	pl_plan_init(&p);
	ok(turned_init(&x, 4, TOGETHER, &err) && !pl_rewriter_needs_differ(x.r),
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

		if (turned_init(&x, seed, APART, &err)) {
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

		if (!turned_init(&x, seed, APART, &err)) {
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
	test_steps();
	test_contended();
	test_refused();
	test_expanded();
	test_search();
	return done_testing();
}
