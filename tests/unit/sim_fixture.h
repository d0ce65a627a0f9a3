/*
 * sim_fixture.h - random jobs as graphs, and a slow and simple simulation of them, for sim_test.c.
 *
 * The slow one takes, again and again, the operation that can start first, and derives what an edge
 * delays from the definition each time it needs it: O(n^2) and nothing shared with lib/sim.
 */
#ifndef SIM_FIXTURE_H
#define SIM_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "rewrite/rewrite.h"
#include "sim/sim.h"
#include "tap.h"

#define MAX_NODES 400
#define MAX_PREDS 6

/* ---- a random job ---------------------------------------------------------------------------- */

struct job {
	struct pl_graph g;
	uint64_t rng;
	pl_id name[8];
	int ranks, per_rank; /* resources: a thread, then streams */
	pl_ns unit;	     /* of durations */
	pl_ns far;	     /* an unexplained time now and then, 0: none */
};

static uint64_t below(struct job *j, uint64_t n)
{
	return pl_rng_next(&j->rng) % n;
}

static int job_tables(struct job *j, struct pl_err *err)
{
	static const char *const names[] = { "gemm", "relu[1]", "all|reduce", "copy",
					     "op,a", "gap",	"call",	      "res" };
	struct pl_graph *g = &j->g;
	int rc;

	pl_graph_init(g);
	for (size_t i = 0; i < PL_LEN(names); i++)
		PL_TRY(pl_intern_add(&g->str, names[i], strlen(names[i]), &j->name[i], err));
	g->n_res = g->cap_res = (size_t)(j->ranks * j->per_rank);
	PL_TRY(pl_alloc(&g->res, g->n_res, sizeof(*g->res), err));
	for (size_t i = 0; i < g->n_res; i++) {
		struct pl_resource *r = &g->res[i];
		bool stream = i % (size_t)j->per_rank;

		r->rank = (int32_t)(i / (size_t)j->per_rank) * 2; /* 0, 2, 4 ... */
		r->track_type = stream ? PL_T_STREAM : PL_T_THREAD;
		r->device = stream ? 0 : -1;
		r->capacity = 1;
		r->name = j->name[7];
		r->host = PL_NONE;
		memset(r->coord, 0xff, sizeof(r->coord));
		r->launch_ns = stream ? 5 : 0;
		r->early_ns = stream ? 3 : 0;
		r->dispatch_ns = stream ? 2 : 0;
	}
	g->n_ranks = j->ranks;
	PL_TRY(pl_alloc(&g->rank, (size_t)j->ranks, sizeof(*g->rank), err));
	for (int i = 0; i < j->ranks; i++)
		g->rank[i] = 2 * i;
	rc = 0;
out:
	return rc;
}

static int shape_arrays(struct pl_shape *s, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&s->type, MAX_NODES, 1, err));
	PL_TRY(pl_alloc(&s->role, MAX_NODES, 1, err));
	PL_TRY(pl_alloc(&s->kind, MAX_NODES, 1, err));
	PL_TRY(pl_alloc(&s->flags, MAX_NODES, 1, err));
	PL_TRY(pl_alloc(&s->res, MAX_NODES, sizeof(*s->res), err));
	PL_TRY(pl_alloc(&s->name, MAX_NODES, sizeof(*s->name), err));
	PL_TRY(pl_alloc(&s->group, MAX_NODES, sizeof(*s->group), err));
	PL_TRY(pl_alloc(&s->k, MAX_NODES, sizeof(*s->k), err));
	PL_TRY(pl_alloc(&s->off, MAX_NODES + 1, sizeof(*s->off), err));
	PL_TRY(pl_alloc(&s->src, MAX_NODES * MAX_PREDS, sizeof(*s->src), err));
	PL_TRY(pl_alloc(&s->etype, MAX_NODES * MAX_PREDS, 1, err));
out:
	return rc;
}

/* A graph of one shape without nodes and of one step of it. */
__attribute__((unused)) static int one_step(struct pl_graph *g, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&g->shape, 1, sizeof(*g->shape), err));
	g->n_shapes = g->cap_shapes = 1;
	PL_TRY(shape_arrays(&g->shape[0], err));
	PL_TRY(pl_alloc(&g->step, 1, sizeof(*g->step), err));
	g->n_steps = g->cap_steps = 1;
	PL_TRY(pl_alloc(&g->step[0].start, MAX_NODES, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&g->step[0].dur, MAX_NODES, sizeof(pl_ns), err));
out:
	return rc;
}

/* The same where each node has a number of bytes, unknown so far. */
__attribute__((unused)) static int one_step_with_bytes(struct pl_graph *g, struct pl_err *err)
{
	int rc;

	PL_TRY(one_step(g, err));
	if (!g->shape[0].bytes)
		PL_TRY(pl_alloc(&g->shape[0].bytes, MAX_NODES, sizeof(int64_t), err));
	for (uint32_t i = 0; i < MAX_NODES; i++)
		g->shape[0].bytes[i] = -1;
out:
	return rc;
}

/* Starts each node of the only step as soon as those before it have ended. */
__attribute__((unused)) static void start_early(struct pl_graph *g)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep *st = &g->step[0];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			st->start[i] =
				pl_max_i64(st->start[i], st->start[s->src[e]] + st->dur[s->src[e]]);
}

static uint32_t add_node(struct pl_shape *s, uint8_t type, uint8_t role, uint8_t kind, pl_id res,
			 pl_id name)
{
	uint32_t i = s->n_nodes++;

	s->type[i] = type;
	s->role[i] = role;
	s->kind[i] = kind;
	s->flags[i] = type == PL_N_ENTRY ? 0 : PL_NF_IN_STEP;
	s->res[i] = res;
	s->name[i] = name;
	s->group[i] = PL_NONE;
	s->off[i + 1] = s->n_edges;
	return i;
}

static void add_edge(struct pl_shape *s, uint32_t src, uint8_t type)
{
	if (src == PL_NONE)
		return;
	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = type;
	s->off[s->n_nodes] = s->n_edges;
}

/* All members arrive, meet (k of them), transfer. */
static void add_collective(struct job *j, struct pl_shape *s, uint32_t *last, uint32_t k)
{
	uint32_t arrive[16], meet, n = (uint32_t)j->ranks;

	for (uint32_t r = 0; r < n; r++) {
		pl_id res = r * (uint32_t)j->per_rank + (uint32_t)j->per_rank - 1;

		arrive[r] = add_node(s, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, res, j->name[2]);
		add_edge(s, last[res], PL_E_SEQ);
		add_edge(s, last[r * (uint32_t)j->per_rank], PL_E_LAUNCH);
		last[res] = arrive[r];
	}
	meet = add_node(s, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NONE, j->name[2]);
	for (uint32_t r = 0; r < n; r++)
		add_edge(s, arrive[r], PL_E_COMM);
	s->k[meet] = k;
	for (uint32_t r = 0; r < n; r++) {
		pl_id res = s->res[arrive[r]];

		last[res] = add_node(s, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, res, j->name[2]);
		add_edge(s, meet, PL_E_COMM);
		add_edge(s, arrive[r], PL_E_SEQ);
	}
}

static void add_random(struct job *j, struct pl_shape *s, uint32_t *last)
{
	static const uint8_t extra[] = { PL_E_WAIT, PL_E_START, PL_E_DATA, PL_E_EARLY };
	pl_id res = (pl_id)below(j, j->g.n_res);
	bool stream = res % (uint32_t)j->per_rank;
	uint64_t what = below(j, 4);
	uint32_t i;

	if (stream)
		i = add_node(s, PL_N_OP, what ? PL_RO_COMPUTE : PL_RO_COPY,
			     what ? PL_K_KERNEL : PL_K_COPY, res, j->name[what ? what - 1 : 3]);
	else
		i = add_node(s, PL_N_OP, what ? PL_RO_HOST : PL_RO_GAP,
			     what == 1 ? PL_K_RUNTIME : PL_K_HOST_OP, res,
			     j->name[what == 1 ? 6
				     : what    ? 4
					       : 5]);
	add_edge(s, last[res], PL_E_SEQ);
	if (stream)
		add_edge(s, last[res - res % (uint32_t)j->per_rank], PL_E_LAUNCH);
	for (uint64_t n = below(j, 3); n && i > 0; n--)
		add_edge(s, (uint32_t)below(j, i), extra[below(j, PL_LEN(extra))]);
	last[res] = i;
}

static int add_shape(struct job *j, uint32_t nodes, bool entries, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	struct pl_shape *s;
	uint32_t last[64];
	int rc = pl_grow(&g->shape, &g->cap_shapes, g->n_shapes + 1, sizeof(*g->shape), err);

	if (rc < 0)
		return rc;
	s = &g->shape[g->n_shapes++];
	memset(s, 0, sizeof(*s));
	if ((rc = shape_arrays(s, err)) < 0)
		return rc;
	for (uint32_t r = 0; r < g->n_res; r++)
		last[r] = entries ? add_node(s, PL_N_ENTRY, PL_RO_NONE, 0, r, j->name[7]) : PL_NONE;
	s->n_entries = s->n_nodes;
	for (int r = 0; r < j->ranks; r++) {
		pl_id res = (pl_id)(r * j->per_rank);
		uint32_t i = add_node(s, PL_N_OP, PL_RO_MARK, PL_K_STEP, res, j->name[7]);

		s->flags[i] = PL_NF_STEP_BEGIN | PL_NF_IN_STEP;
		add_edge(s, last[res], PL_E_SEQ);
		last[res] = i;
	}
	while (s->n_nodes + 2 * (uint32_t)j->ranks + 1 < nodes) {
		uint64_t x = below(j, 12);

		if (!x)
			add_collective(j, s, last, 0);
		else if (x == 1)
			add_collective(j, s, last, 1 + (uint32_t)below(j, (uint64_t)j->ranks));
		else
			add_random(j, s, last);
	}
	return 0;
}

/* What the definition says: when an edge lets its node start, and what nothing explains. */
static pl_ns end_or_start(uint8_t type, pl_ns start, pl_ns dur)
{
	return PL_E_TYPE(type) == PL_E_EARLY || PL_E_TYPE(type) == PL_E_START ? start : start + dur;
}

static pl_ns model_latency(const struct pl_graph *g, const struct pl_shape *s, uint32_t i,
			   uint8_t type)
{
	if (s->res[i] == PL_NONE || s->role[i] == PL_RO_TRANSFER)
		return 0;
	if (PL_E_TYPE(type) == PL_E_LAUNCH)
		return g->res[s->res[i]].launch_ns;
	if (PL_E_TYPE(type) == PL_E_EARLY)
		return g->res[s->res[i]].early_ns;
	return PL_E_TYPE(type) == PL_E_SEQ || PL_E_TYPE(type) == PL_E_WAIT
		       ? g->res[s->res[i]].dispatch_ns
		       : 0;
}

/* When the resource ended what it did in the steps before the last one. */
static pl_ns tail_of(const struct pl_graph *g, pl_id res, pl_ns none)
{
	pl_ns end = INT64_MIN;

	for (size_t k = 0; k + 1 < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *s = &g->shape[st->shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
			if (s->res[i] == res)
				end = pl_max_i64(end, st->start[i] + st->dur[i]);
	}
	return end == INT64_MIN ? none : end;
}

/* Record a step: times that the edges allow, with something unexplained here and there. */
static int add_step(struct job *j, uint32_t shape, int64_t number, pl_ns origin, struct pl_err *err)
{
	struct pl_graph *g = &j->g;
	const struct pl_shape *s = &g->shape[shape];
	struct pl_gstep *st;
	int rc = pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*g->step), err);

	if (rc < 0)
		return rc;
	st = &g->step[g->n_steps++];
	*st = (struct pl_gstep){ .number = number, .shape = shape };
	PL_TRY(pl_alloc(&st->start, s->n_nodes, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&st->dur, s->n_nodes, sizeof(pl_ns), err));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		pl_ns t[64], at = origin + (pl_ns)below(j, 20);
		uint32_t n = s->off[i + 1] - s->off[i];

		for (uint32_t k = 0; k < n; k++) {
			uint32_t src = s->src[s->off[i] + k];

			t[k] = end_or_start(s->etype[s->off[i] + k], st->start[src], st->dur[src]);
		}
		qsort(t, n, sizeof(*t), pl_compare_i64);
		if (n)
			at = t[s->type[i] == PL_N_RENDEZVOUS && s->k[i] ? s->k[i] - 1 : n - 1];
		if (n && s->type[i] != PL_N_RENDEZVOUS) {
			at += (pl_ns)below(j, 3) * (pl_ns)below(j, 8);
			if (j->far && !below(j, 40))
				at += j->far;
		}
		st->start[i] = s->type[i] == PL_N_ENTRY ? tail_of(g, s->res[i], origin) : at;
		if (s->type[i] == PL_N_OP && s->role[i] != PL_RO_ARRIVE && s->role[i] != PL_RO_MARK)
			st->dur[i] = (pl_ns)below(j, (uint64_t)j->unit);
	}
out:
	return rc;
}

static pl_ns last_end(const struct pl_graph *g)
{
	const struct pl_gstep *st = &g->step[g->n_steps - 1];
	pl_ns end = 0;

	for (uint32_t i = 0; i < g->shape[st->shape].n_nodes; i++)
		end = pl_max_i64(end, st->start[i] + st->dur[i]);
	return end;
}

__attribute__((unused)) static int make_job(struct job *j, uint64_t seed, int ranks, uint32_t nodes,
					    int steps, pl_ns unit, pl_ns far, struct pl_err *err)
{
	int rc;

	*j = (struct job){ .rng = seed, .ranks = ranks, .per_rank = 3, .unit = unit, .far = far };
	PL_TRY(job_tables(j, err));
	PL_TRY(add_shape(j, nodes, false, err));
	PL_TRY(add_shape(j, nodes, true, err));
	for (int k = 0; k < steps; k++)
		PL_TRY(add_step(j, k ? 1 : 0, k == 1 ? 11 : 10 + k, k ? last_end(&j->g) : 0, err));
out:
	return rc;
}

/* ---- the slow simulation --------------------------------------------------------------------- */

struct slow {
	pl_ns *start[8];
	pl_ns tail[64];
	bool any[64];
};

/* Time after the edge: latency, and the unexplained if it was the last in the recording. */
static pl_ns slow_delay(const struct pl_graph *g, const struct pl_gstep *st, uint32_t i,
			uint32_t edge)
{
	const struct pl_shape *s = &g->shape[st->shape];
	pl_ns last = INT64_MIN, lat = 0;
	uint32_t bind = PL_NONE;

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		pl_ns t = end_or_start(s->etype[e], st->start[s->src[e]], st->dur[s->src[e]]);
		pl_ns x = model_latency(g, s, i, s->etype[e]);

		if (x > st->start[i] - t)
			x = st->start[i] > t ? st->start[i] - t : 0;
		if (e == edge)
			lat = x;
		if (t + x > last) {
			last = t + x;
			bind = e;
		}
	}
	if (bind == edge && s->type[i] != PL_N_RENDEZVOUS && st->start[i] > last)
		lat += st->start[i] - last;
	return lat;
}

/* Again and again the node that can start first, until all have. */
static void slow_step(struct slow *x, const struct pl_graph *g, size_t k, const pl_ns *dur)
{
	const struct pl_gstep *st = &g->step[k];
	const struct pl_shape *s = &g->shape[st->shape];
	bool done[MAX_NODES] = { false };
	pl_ns *start = x->start[k] = calloc(s->n_nodes, sizeof(pl_ns));

	for (uint32_t left = s->n_nodes; left; left--) {
		uint32_t best = PL_NONE;
		pl_ns at = 0;

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			pl_ns t[64], mine = st->start[i];
			uint32_t n = 0;
			bool ready = !done[i];

			for (uint32_t e = s->off[i]; ready && e < s->off[i + 1]; e++) {
				ready = done[s->src[e]];
				t[n++] = end_or_start(s->etype[e], start[s->src[e]],
						      dur[s->src[e]]) +
					 slow_delay(g, st, i, e);
			}
			if (!ready)
				continue;
			qsort(t, n, sizeof(*t), pl_compare_i64);
			if (s->type[i] == PL_N_ENTRY && x->any[s->res[i]])
				mine = x->tail[s->res[i]];
			else if (n)
				mine = t[s->type[i] == PL_N_RENDEZVOUS && s->k[i] ? s->k[i] - 1
										  : n - 1];
			if (best == PL_NONE || mine < at) {
				best = i;
				at = mine;
			}
		}
		start[best] = at;
		done[best] = true;
	}
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		if (s->res[i] == PL_NONE)
			continue;
		if (!x->any[s->res[i]] || start[i] + dur[i] > x->tail[s->res[i]])
			x->tail[s->res[i]] = start[i] + dur[i];
		x->any[s->res[i]] = true;
	}
}

/* Does the run have the starts of the slow simulation with these durations? */
__attribute__((unused)) static bool agrees(const struct job *j, const struct pl_run *r,
					   pl_ns *const *dur)
{
	struct slow x = { 0 };
	bool same = true;

	for (size_t k = 0; k < j->g.n_steps; k++) {
		slow_step(&x, &j->g, k, dur[k]);
		same &= !memcmp(x.start[k], r->start[k],
				j->g.shape[j->g.step[k].shape].n_nodes * sizeof(pl_ns));
	}
	for (size_t k = 0; k < j->g.n_steps; k++)
		free(x.start[k]);
	return same;
}

/* Apply lines of --what-if, separated by ";", to the durations of the simulator. hits: of the
 * first; may be NULL. */
static inline int change_durations(struct pl_sim *s, const struct pl_graph *g, const char *text,
				   uint64_t *hits, struct pl_err *err)
{
	struct pl_plan p;
	char copy[200], *line = copy;
	uint64_t n[8] = { 0 };
	struct pl_rewrite_basis basis = { 0 };
	int rc = 0;

	pl_plan_init(&p);
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *next; rc >= 0 && line; line = next) {
		next = strchr(line, ';');
		if (next)
			*next++ = '\0';
		rc = pl_rewrite_add_line(&p, line, err);
	}
	if (rc >= 0)
		rc = pl_rewrite_durations(s, g, &p, NULL, n, &basis, err);
	if (hits)
		*hits = n[0];
	pl_plan_fini(&p);
	return rc;
}

static inline bool path_is_whole(const struct pl_path *p, pl_ns t0)
{
	pl_ns sum = 0, unexplained = 0, latency = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (p->item[i].start != t0 + sum || p->item[i].ns <= 0)
			return false;
		sum += p->item[i].ns;
		unexplained += p->item[i].part == PL_PP_UNEXPLAINED ? p->item[i].ns : 0;
		latency += p->item[i].part == PL_PP_LATENCY ? p->item[i].ns : 0;
	}
	return sum == p->length && unexplained == p->unexplained && latency == p->latency;
}

#endif
