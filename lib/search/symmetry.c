/*
 * Symmetry: one rank represents all ranks that do the same at the same time.
 *
 * Two ranks are alike in structure if their nodes, in order, have the same kind, name, group and
 * size, and the same predecessors (each in its own rank, or a rendezvous of both), and if their
 * resources and tensors are alike. Each rank gets a hash over all of this, in one pass over nodes
 * and edges. There are two ways to compare times:
 *
 * - Equal: the recorded times of every step and the latencies of the resources are equal. A
 *   rendezvous then waits for one rank of each class, because the others arrive at the same moment.
 *   The mean step of the smaller graph is that of the whole graph, to the nanosecond.
 * - Alike, for recordings: the mean work of a step differs between the ranks by no more than noise
 *   explains. The noise is measured: how much the work of one rank differs from step to step. Two
 *   ranks are alike if their means differ by SIGNIFICANT standard errors of such a difference. The
 * one rank then gets the latest start and the latest end of each node over its class. Maxima of
 * times keep every dependency between them, so this is a possible recording, and its rendezvous
 * fire when those of the whole graph did. The mean step may differ from that of the whole graph by
 * SIGNIFICANT standard errors of the mean recorded step. Changes can differ by more, so the search
 * checks the final plan on the whole graph (search.c).
 */
#include <math.h>
#include <stdlib.h>

#include "search/internal.h"

/* 3 standard errors: noise alone exceeds them in 0.3 % of the comparisons. */
#define SIGNIFICANT 3

struct rank_class {
	uint64_t hash;
	double work; /* mean over steps */
	int32_t rank;
	uint32_t slot; /* in the graph's list of ranks */
};
struct symmetry {
	const struct pl_graph *g;
	const struct pl_search_noise *noise;
	bool alike; /* times may differ */
	struct pl_arena arena;
	uint32_t *class_of; /* [rank slot]: slot of the rank that stays */
	uint64_t *hash;	    /* [rank slot] */
	uint32_t *count;    /* [rank slot]: nodes of the shape so far */
	uint32_t *local;    /* [node]: number within its rank */
	uint32_t *slot;	    /* [resource]: rank slot */
	uint32_t *res;	    /* [resource]: number within its rank */
};

static void mix(uint64_t *h, uint64_t v)
{
	*h = ((*h << 5 | *h >> 59) ^ v) * 0x9e3779b97f4a7c15u;
	*h ^= *h >> 32;
}

/* The rank slot of a node, PL_NONE: it has no rank. */
static uint32_t slot_at(const struct symmetry *s, const struct pl_shape *sh, uint32_t node)
{
	return sh->res[node] == PL_NONE ? PL_NONE : s->slot[sh->res[node]];
}

static void hash_resources(struct symmetry *s)
{
	const struct pl_graph *g = s->g;

	for (size_t i = 0; i < g->n_res; i++) {
		const struct pl_resource *r = &g->res[i];
		uint32_t slot = pl_graph_rank_index(s->g, r->rank);

		s->slot[i] = slot;
		if (slot == PL_NONE)
			continue;
		s->res[i] = s->count[slot]++;
		mix(&s->hash[slot],
		    r->track_type | (uint64_t)r->discipline << 8 | (uint64_t)r->capacity << 16);
		if (s->alike)
			continue;
		mix(&s->hash[slot], (uint64_t)r->launch_ns);
		mix(&s->hash[slot], (uint64_t)r->dispatch_ns);
		mix(&s->hash[slot], (uint64_t)r->early_ns);
	}
}

/* Add a predecessor: by its number in its rank or shape. One in another rank makes it unique. */
static void hash_edge(struct symmetry *s, const struct pl_shape *sh, uint32_t slot, uint32_t src,
		      uint8_t type)
{
	uint32_t from = slot_at(s, sh, src);
	uint64_t *h = &s->hash[slot];

	/* chance decides whether an operation begins before its launch returns */
	if (s->alike && PL_E_TYPE(type) == PL_E_EARLY)
		type = PL_E_LAUNCH;
	if (from == PL_NONE)
		mix(h, (uint64_t)src << 8 | type | 1ull << 60);
	else if (from == slot)
		mix(h, (uint64_t)s->local[src] << 8 | type);
	else {
		mix(h, slot | 1ull << 61);
		mix(&s->hash[from], from | 1ull << 61);
	}
}

static void hash_node(struct symmetry *s, const struct pl_shape *sh, uint32_t i)
{
	uint32_t slot = s->slot[sh->res[i]];
	uint64_t *h = &s->hash[slot];

	s->local[i] = s->count[slot]++;
	mix(h, sh->type[i] | (uint64_t)sh->role[i] << 8 | (uint64_t)sh->kind[i] << 16 |
		       (uint64_t)sh->flags[i] << 24 | (uint64_t)s->res[sh->res[i]] << 32);
	/* the name of an entry is that of its resource, which contains the number of a thread */
	mix(h, (sh->type[i] == PL_N_ENTRY ? 0 : sh->name[i]) | (uint64_t)sh->group[i] << 32);
	mix(h, sh->bytes ? (uint64_t)sh->bytes[i] : UINT64_MAX);
	mix(h,
	    (uint64_t)(sh->layer ? sh->layer[i] : -1) << 32 ^ (uint32_t)(sh->mb ? sh->mb[i] : -1));
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		hash_edge(s, sh, slot, sh->src[e], sh->etype[e]);
}

/* Add a rendezvous to the hashes of its ranks, by the numbers of their arrivals. */
static void hash_meeting(struct symmetry *s, const struct pl_shape *sh, uint32_t i)
{
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		uint32_t src = sh->src[e], slot = slot_at(s, sh, src);

		if (slot != PL_NONE)
			mix(&s->hash[slot],
			    (uint64_t)i << 32 | (s->local[src] ^ (uint32_t)sh->etype[e] << 28));
	}
}

static void hash_times(struct symmetry *s, const struct pl_gstep *st)
{
	const struct pl_shape *sh = &s->g->shape[st->shape];

	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		uint32_t slot = slot_at(s, sh, i);

		if (slot == PL_NONE)
			continue;
		mix(&s->hash[slot], (uint64_t)st->start[i]);
		mix(&s->hash[slot], (uint64_t)st->dur[i]);
	}
}

/* Numbers within the rank are made anew for each shape: s->count is reset. */
static int hash_shape(struct symmetry *s, uint32_t shape, struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	const struct pl_shape *sh = &g->shape[shape];

	PL_CHECK(pl_alloc(&s->local, sh->n_nodes, sizeof(*s->local), err));
	memset(s->count, 0, (size_t)g->n_ranks * sizeof(*s->count));
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		if (sh->res[i] == PL_NONE)
			hash_meeting(s, sh, i);
		else if (slot_at(s, sh, i) != PL_NONE)
			hash_node(s, sh, i);
	}
	for (size_t t = 0; t < g->n_tensors; t++) {
		const struct pl_tensor *x = &g->tensor[t];
		uint32_t at = x->producer, slot;

		if (x->shape != shape)
			continue;
		if (at == PL_NONE && x->n_consumers)
			at = g->consumer[x->consumer];
		slot = at == PL_NONE ? PL_NONE : slot_at(s, sh, at);
		if (slot == PL_NONE)
			continue;
		mix(&s->hash[slot],
		    (uint64_t)x->name << 32 ^ (uint64_t)s->local[at] << 4 ^ x->role);
		mix(&s->hash[slot], (uint64_t)x->bytes ^ (uint64_t)x->flags << 62);
		for (uint32_t c = 0; c < x->n_consumers; c++)
			mix(&s->hash[slot], s->local[g->consumer[x->consumer + c]]);
	}
	pl_free(s->local);
	s->local = NULL;
	return 0;
}

/* ---- classes --------------------------------------------------------------------------------- */

/* Work without waits: time that only the rank decides. */
static bool is_work(const struct pl_shape *sh, uint32_t i)
{
	return sh->type[i] == PL_N_OP && (sh->role[i] == PL_RO_COMPUTE ||
					  sh->role[i] == PL_RO_HOST || sh->role[i] == PL_RO_COPY);
}

/* Mean and standard deviation, one value after the other (Welford 1962). */
struct spread {
	double n, mean, squares;
};
static void add_value(struct spread *s, double x)
{
	double off = x - s->mean;

	s->mean += off / ++s->n;
	s->squares += off * (x - s->mean);
}
static double deviation(const struct spread *s)
{
	return s->n > 1 ? sqrt(s->squares / (s->n - 1)) : 0;
}

/* The work of each rank in a step. */
static int find_work(const struct pl_graph *g, struct spread *work, struct pl_err *err)
{
	size_t ranks = (size_t)g->n_ranks;
	double *step;
	int rc = pl_alloc(&step, ranks, sizeof(*step), err);

	for (size_t k = 0; rc == 0 && k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];

		if (st->number == INT64_MIN)
			continue;
		memset(step, 0, ranks * sizeof(*step));
		for (uint32_t i = 0; i < sh->n_nodes; i++) {
			uint32_t slot = pl_graph_rank_index(g, pl_node_rank(g, sh, i));

			if (is_work(sh, i) && slot != PL_NONE)
				step[slot] += (double)st->dur[i];
		}
		for (size_t r = 0; r < ranks; r++)
			add_value(&work[r], step[r]);
	}
	pl_free(step);
	return rc;
}

int pl_search_noise_find(const struct pl_graph *g, struct pl_search_noise *noise,
			 struct pl_err *err)
{
	struct pl_sim *s = pl_sim_new(g, err);
	struct spread *work = NULL, steps = { 0 };
	size_t ranks = (size_t)g->n_ranks;
	double squares = 0;
	int rc;

	*noise = (struct pl_search_noise){ 0 };
	if (!s)
		return err->code;
	PL_TRY(pl_alloc(&work, ranks, sizeof(*work), err));
	PL_TRY(find_work(g, work, err));
	for (size_t r = 0; r < ranks; r++)
		if (work[r].mean > 0)
			squares += pow(deviation(&work[r]) / work[r].mean, 2);
	noise->work = ranks ? sqrt(squares / (double)ranks) : 0;
	for (size_t k = 0; k < g->n_steps; k++) {
		pl_ns start, end;

		if (!pl_sim_reported(s, k))
			continue;
		pl_sim_recorded(s, k, &start, &end);
		add_value(&steps, (double)(end - start));
	}
	noise->mean_ns = pl_sim_steps_overlap(s) ? pl_sim_run_mean_period(s, NULL) : steps.mean;
	noise->step = steps.mean > 0 ? deviation(&steps) / steps.mean : 0;
out:
	pl_sim_free(s);
	pl_free(work);
	return rc;
}

PL_COMPARATOR(by_class, struct rank_class, hash, work, rank);

/* Do the two ranks do the same work, but for noise? */
static bool is_alike(const struct symmetry *s, const struct rank_class *a,
		     const struct rank_class *b)
{
	return a->hash == b->hash &&
	       b->work - a->work <= SIGNIFICANT * sqrt(2) * s->noise->work * a->work;
}

/* The first rank of each class, as pairs for pl_graph_pick(). */
static int classes(struct symmetry *s, int64_t **pair, size_t *n, struct pl_err *err)
{
	size_t ranks = (size_t)s->g->n_ranks, first = 0;
	struct rank_class *v = NULL;
	struct spread *work = NULL;
	int rc;

	*n = 0;
	PL_TRY(pl_alloc(&v, ranks, sizeof(*v), err));
	PL_TRY(pl_alloc(&work, ranks, sizeof(*work), err));
	PL_TRY(pl_alloc(pair, 2 * ranks, sizeof(**pair), err));
	if (s->alike)
		PL_TRY(find_work(s->g, work, err));
	for (uint32_t i = 0; i < ranks; i++) {
		v[i].hash = s->hash[i];
		v[i].work = work[i].mean;
		v[i].rank = s->g->rank[i];
		v[i].slot = i;
	}
	pl_sort(v, ranks, sizeof(*v), by_class);
	for (size_t i = 0; i < ranks; i++) {
		if (!i || !is_alike(s, &v[first], &v[i])) {
			first = i;
			(*pair)[2 * *n] = (*pair)[2 * *n + 1] = v[i].rank;
			++*n;
		}
		s->class_of[v[i].slot] = v[first].slot;
	}
out:
	pl_free(v);
	pl_free(work);
	return rc;
}

static int find_classes(struct symmetry *s, int64_t **pair, size_t *n, struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	size_t ranks = (size_t)g->n_ranks;

	PL_CHECK(pl_arena_array(&s->arena, &s->hash, ranks, sizeof(*s->hash), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->count, ranks, sizeof(*s->count), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->slot, g->n_res, sizeof(*s->slot), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->res, g->n_res, sizeof(*s->res), err));
	PL_CHECK(pl_arena_array(&s->arena, &s->class_of, ranks, sizeof(*s->class_of), err));
	memset(s->hash, 0, ranks * sizeof(*s->hash));
	memset(s->count, 0, ranks * sizeof(*s->count));
	hash_resources(s);
	for (uint32_t i = 0; i < g->n_shapes; i++)
		PL_CHECK(hash_shape(s, i, err));
	for (size_t k = 0; k < g->n_steps && !s->alike; k++)
		hash_times(s, &g->step[k]);
	PL_CHECK(classes(s, pair, n, err));
	return 0;
}

/* ---- the smaller graph ----------------------------------------------------------------------- */

/* Give other nodes the latest start and end of their class; `out` is in the graph's order. */
static int take_latest(const struct symmetry *s, struct pl_graph *out, size_t step,
		       struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	const struct pl_gstep *st = &g->step[step];
	const struct pl_shape *sh = &g->shape[st->shape];
	struct pl_gstep *to = &out->step[step];
	uint32_t *first = NULL, *place = NULL, *at = NULL;
	size_t ranks = (size_t)g->n_ranks;
	int rc;

	/* place[first[rank] + i]: node i of the rank in `out` */
	PL_TRY(pl_alloc(&first, ranks + 1, sizeof(*first), err));
	PL_TRY(pl_alloc(&at, ranks, sizeof(*at), err));
	PL_TRY(pl_alloc(&place, sh->n_nodes, sizeof(*place), err));
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (slot_at(s, sh, i) != PL_NONE)
			first[slot_at(s, sh, i) + 1]++;
	for (size_t r = 0; r < ranks; r++)
		first[r + 1] += first[r];
	for (uint32_t i = 0; i < out->shape[to->shape].n_nodes; i++) {
		uint32_t res = out->shape[to->shape].res[i], slot;

		if (res == PL_NONE)
			continue;
		slot = pl_graph_rank_index(g, out->res[res].rank);
		place[first[slot] + at[slot]++] = i;
		to->dur[i] += to->start[i]; /* ends, until all ranks are seen */
	}
	memset(at, 0, ranks * sizeof(*at));
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		uint32_t slot = slot_at(s, sh, i), k;

		if (slot == PL_NONE)
			continue;
		k = place[first[s->class_of[slot]] + at[slot]++];
		to->start[k] = pl_max_i64(to->start[k], st->start[i]);
		to->dur[k] = pl_max_i64(to->dur[k], st->start[i] + st->dur[i]);
	}
	for (uint32_t i = 0; i < out->shape[to->shape].n_nodes; i++)
		if (out->shape[to->shape].res[i] != PL_NONE)
			to->dur[i] -= to->start[i];
out:
	pl_free(first);
	pl_free(at);
	pl_free(place);
	return rc;
}

/* May ranks be left out? Communication whose ranks the graph knows keeps its number of members; but
 * if some members are missing already, the ranks left out would look like these. */
static bool may_leave_out(const struct pl_graph *g)
{
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *sh = &g->shape[k];

		for (uint32_t i = 0; i < sh->n_nodes; i++)
			if (sh->flags[i] & PL_NF_MISSING ||
			    (sh->role[i] == PL_RO_ARRIVE && sh->group[i] >= g->n_groups))
				return false;
	}
	return g->n_ranks > 1;
}

/* Does the mean step equal that of the whole graph, within `noise`? */
static int compare(const struct pl_graph *g, const struct pl_graph *out, double noise,
		   bool *reduced, double *tolerance, struct pl_err *err)
{
	struct pl_sim *whole = pl_sim_new(g, err), *some = whole ? pl_sim_new(out, err) : NULL;
	double a, b;
	int rc = some ? 0 : err->code;

	if (rc == 0 && (rc = pl_sim_mean(whole, &a, err)) == 0 &&
	    (rc = pl_sim_mean(some, &b, err)) == 0) {
		*tolerance = SIGNIFICANT * noise * a;
		*reduced = fabs(a - b) <= *tolerance;
	}
	pl_sim_free(whole);
	pl_sim_free(some);
	return rc;
}

/* Reduce by equal times, or by times that are alike. */
static int reduce(const struct pl_graph *g, const struct pl_search_noise *noise, bool alike,
		  struct pl_graph *out, bool *reduced, double *tolerance, struct pl_err *err)
{
	struct symmetry s = { .g = g, .noise = noise, .alike = alike };
	struct pl_graph_part part = { 0 };
	int64_t *pair = NULL;
	int rc;

	PL_TRY(find_classes(&s, &pair, &part.n_ranks, err));
	if (part.n_ranks == (size_t)g->n_ranks)
		goto out;
	part.rank = pair;
	PL_TRY(pl_graph_pick(g, &part, out, err));
	for (size_t k = 0; k < out->n_shapes; k++)
		for (uint32_t i = 0; i < out->shape[k].n_nodes; i++)
			out->shape[k].flags[i] &= (uint8_t)~PL_NF_MISSING;
	for (size_t k = 0; alike && k < g->n_steps; k++)
		PL_TRY(take_latest(&s, out, k, err));
	PL_TRY(compare(g, out, alike ? noise->step : 0, reduced, tolerance, err));
	if (!*reduced)
		pl_graph_fini(out);
out:
	pl_arena_fini(&s.arena);
	pl_free(pair);
	return rc;
}

int pl_search_reduce(const struct pl_graph *g, const struct pl_search_noise *recorded_noise,
		     struct pl_graph *out, bool *reduced, double *tolerance, struct pl_err *err)
{
	struct pl_search_noise noise = *recorded_noise;
	int rc = 0;

	*reduced = false;
	*tolerance = 0;
	if (!may_leave_out(g))
		return 0;
	if (!noise.work && !noise.step) { /* measure them in the steps of the graph */
		rc = pl_search_noise_find(g, &noise, err);
		noise.work /= sqrt((double)g->n_steps);
		noise.step /= sqrt((double)g->n_steps);
	}
	for (int alike = 0; rc == 0 && alike < 2 && !*reduced; alike++)
		rc = reduce(g, &noise, alike, out, reduced, tolerance, err);
	if (!*reduced)
		*tolerance = 0;
	return rc;
}
