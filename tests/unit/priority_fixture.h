/*
 * priority_fixture.h - a job whose step begins with the backward pass and ends with the next
 * forward pass, plans with priorities for it, and its step by hand: a channel simulated part by
 * part.
 */
#ifndef PRIORITY_FIXTURE_H
#define PRIORITY_FIXTURE_H

#include <math.h>

#include "derive/describe.h"
#include "rewrite/rewrite.h"
#include "sim_fixture.h"

#define RANKS  2
#define LAYERS 7
#define MOST   7

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
static inline void contend(double computation, double transfer)
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

static int put_step(struct turned *x, bool separate, struct pl_err *err)
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
			if (separate)
				add_edge(s, done[i][k], PL_E_DATA);
			for (uint32_t l = 0; !separate && !i && l < x->n; l++)
				add_edge(s, done[l][k], PL_E_DATA);
			at[k] = n;
		}
	}
out:
	return rc;
}

/* A layer waits for all gradients, or for its own. */
enum shape { TOGETHER, SEPARATE };

static inline bool turned_init(struct turned *x, uint64_t seed, enum shape shape,
			       struct pl_err *err)
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
	PL_TRY(one_step_with_bytes(g, err));
	PL_TRY(put_step(x, shape == SEPARATE, err));
	start_early(g);
	PL_TRY(pl_derive_describe(g, NULL, err));
	x->s = pl_sim_new(g, err);
	rc = x->s ? pl_sim_edit(x->s, 0, 1, &x->e, err) : err->code;
	if (rc == 0 && !(x->r = pl_rewrite_new(&x->e, &cost, err)))
		rc = err->code;
out:
	return rc >= 0;
}

static void turned_fini(struct turned *x)
{
	pl_rewrite_free(x->r);
	pl_edit_fini(&x->e);
	pl_sim_free(x->s);
	pl_graph_fini(&x->j.g);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Part by part: urgent[i] is the priority of layer i, 1 the highest. */
static inline pl_ns expected(const struct turned *x, const uint32_t *urgent, const uint32_t *parts)
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

#endif
