/*
 * What communication costs computation: its slow-down while data moves, and host time of issuing.
 *
 * Slow-down. Operations in the same place (the n-th of its name in a step of a rank) are the same
 * work in every step, and on every rank if the ranks do the same. The undisturbed duration of a
 * place is the median of the operations that overlapped no communication, not even one that waited.
 * If a place has too few of these, the undisturbed duration is that of the name, provided that the
 * medians of the places of this name are close together. Computation loses
 * the share s of its time: each overlapped duration less its undisturbed duration, summed, divided
 * by the overlapped time. The factor is 1 / (1 - s). Sums are used and not medians, because threads
 * that carry communication take a processor away for milliseconds at a time: most operations lose
 * nothing and a few lose much. For the same reason the mean of operations without overlap is longer
 * than their median; undisturbed durations are multiplied by this ratio.
 *
 * The standard error e of s is the jackknife's (Tukey 1958), over ranks of steps left out one at a
 * time. If s is at most CLEAR standard errors, it may be chance and the factor is 1. But threads
 * cannot carry communication at no cost. If threads carry it, s is not tested; it is reduced to s^3
 * / (s^2 + e^2), the more the less certain it is. If there are very many ranks, some of them,
 * evenly spread, are enough. O(n log n).
 *
 * Issuing. The host time of issuing is the call that launched a communication and the operations
 * before it on its thread whose names refer to communication. The lower quartile is used: a call
 * that wakes a thread often loses its processor to that thread, and this time is counted there.
 */
#include <math.h>
#include <stdlib.h>

#include "cost/internal.h"

#define ENOUGH	3    /* alone, of an operation in its place; places of a name */
#define ONE	0.25 /* distance of the quartiles of one thing, relative to the median */
#define CLEAR	2    /* standard errors */
#define MOST	0.5 /* of its time computation can lose: two that share a processor get half each */
#define WRAPPED 8   /* operations around a launch, at most */
#define RANKS	64  /* looked at, and at most twice as many */

struct work { /* an operation of a step */
	pl_ns start, end;
	int32_t rank;
	pl_id name;
};
struct timing {
	pl_ns dur;
	pl_ns overlapped; /* part of dur */
	pl_id name;
	uint32_t place, cluster; /* which of its name in the step; rank in a step */
	bool overlaps;
};
/* For operations that overlap communication: time, undisturbed time, time of the overlap. For the
 * others: time, undisturbed time. */
enum { OVERLAPPED, UNDISTURBED, COVERED, ALONE, ALONE_UNDISTURBED, SUMS };
struct sums {
	double v[SUMS];
};
struct overlap_fit {
	bool *seen; /* [resource]: its rank is one of those looked at */
	struct pl_spans moves, waits;
	struct work *comp;
	struct timing *t;
	struct sums *cluster, all;
	double *place; /* medians of a name's places, then those alone in a place */
	size_t n_comp, cap_comp, n_t, cap_t, n_clusters;
};

static int choose_ranks(struct overlap_fit *b, const struct pl_graph *g, struct pl_err *err)
{
	size_t every = (size_t)g->n_ranks / (2 * RANKS) + 1;
	int rc = pl_alloc(&b->seen, g->n_res, sizeof(*b->seen), err);

	for (size_t i = 0; rc == 0 && i < g->n_res; i++) {
		uint32_t at = pl_graph_rank_index(g, g->res[i].rank);

		b->seen[i] = at == PL_NONE || at % every == 0;
	}
	return rc;
}

static int look_at_step(struct overlap_fit *b, const struct pl_graph *g, const struct pl_gstep *st,
			struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[st->shape];
	int rc = 0;

	b->n_comp = b->moves.n = b->waits.n = 0;
	for (uint32_t i = s->n_entries; i < s->n_nodes && rc >= 0; i++) {
		struct work x = { st->start[i], st->start[i] + st->dur[i], pl_node_rank(g, s, i),
				  s->name[i] };

		if (s->type[i] != PL_N_OP || st->dur[i] <= 0 || s->res[i] == PL_NONE ||
		    !b->seen[s->res[i]])
			continue;
		if (s->role[i] == PL_RO_COMPUTE) {
			rc = pl_append(&b->comp, &b->n_comp, &b->cap_comp, &x, sizeof(x), err);
		} else if (s->role[i] == PL_RO_TRANSFER) {
			uint32_t arrive = pl_node_arrival(s, i);

			rc = pl_spans_add(&b->moves, x.rank, x.start, x.end, err);
			if (rc >= 0)
				rc = pl_spans_add(&b->waits, x.rank,
						  arrive == PL_NONE ? x.start : st->start[arrive],
						  x.end, err);
		}
	}
	pl_spans_unite(&b->moves);
	pl_spans_unite(&b->waits);
	return rc;
}

PL_COMPARATOR(by_name, struct work, rank, name, start, end);

static int add_timings(struct overlap_fit *b, struct pl_err *err)
{
	uint32_t place = 0;

	PL_CHECK(pl_grow(&b->t, &b->cap_t, b->n_t + b->n_comp + 1, sizeof(*b->t), err));
	pl_sort(b->comp, b->n_comp, sizeof(*b->comp), by_name);
	for (size_t i = 0; i < b->n_comp; i++) {
		const struct work *x = &b->comp[i];
		pl_ns dur = x->end - x->start, with;

		b->n_clusters += !i || x[-1].rank != x->rank;
		place = i && x[-1].rank == x->rank && x[-1].name == x->name ? place + 1 : 0;
		with = pl_spans_cover(&b->moves, x->rank, x->start, x->end);
		if (with || !pl_spans_cover(&b->waits, x->rank, x->start, x->end))
			b->t[b->n_t++] = (struct timing){
				dur, with, x->name, place, (uint32_t)b->n_clusters - 1, with > 0
			};
	}
	return 0;
}

PL_COMPARATOR(by_timing, struct timing, name, place, overlaps, dur, cluster);

/* How many of t have the place of the first. The first *alone of them overlap no communication. */
static size_t place_of(const struct timing *t, size_t n, size_t *alone)
{
	size_t k = 0;

	*alone = 0;
	for (; k < n && t[k].name == t[0].name && t[k].place == t[0].place; k++)
		*alone += !t[k].overlaps;
	return k;
}

/* The undisturbed duration of a name, for places with too few samples; 0: unknown. */
static double undisturbed_of_name(struct overlap_fit *b, const struct timing *t, size_t n)
{
	size_t places = 0;
	double *v = b->place;

	for (size_t i = 0, k, alone; i < n; i += k) {
		k = place_of(&t[i], n - i, &alone);
		if (alone >= ENOUGH)
			v[places++] = (double)t[i + alone / 2].dur;
	}
	pl_sort(v, places, sizeof(*v), pl_compare_double);
	if (places < ENOUGH || v[places - 1 - places / 4] - v[places / 4] > ONE * v[places / 2])
		return 0;
	return v[places / 2];
}

static void sum_up(struct overlap_fit *b, const struct timing *t, double undisturbed)
{
	double *v = b->cluster[t->cluster].v;

	v[t->overlaps ? OVERLAPPED : ALONE] += (double)t->dur;
	v[t->overlaps ? UNDISTURBED : ALONE_UNDISTURBED] += undisturbed;
	v[COVERED] += (double)t->overlapped;
}

/* All operations of one name. A name that never overlaps communication shows nothing. */
static void sum_name(struct overlap_fit *b, const struct timing *t, size_t n)
{
	double typical = undisturbed_of_name(b, t, n);
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= t[i].overlaps;
	for (size_t i = 0, k, alone; any && i < n; i += k) {
		double undisturbed;

		k = place_of(&t[i], n - i, &alone);
		undisturbed = alone >= ENOUGH ? (double)t[i + alone / 2].dur : typical;
		for (size_t j = i; undisturbed > 0 && j < i + k; j++)
			sum_up(b, &t[j], undisturbed);
	}
}

/* The share of its time that computation loses during communication, without the cluster `out`
 * (NULL: with all clusters). NAN if it cannot be known. */
static double lost(const struct sums *all, const struct sums *out)
{
	double v[SUMS];

	for (int i = 0; i < SUMS; i++)
		v[i] = all->v[i] - (out ? out->v[i] : 0);
	if (!(v[COVERED] > 0) || !(v[ALONE_UNDISTURBED] > 0))
		return NAN;
	return (v[OVERLAPPED] - v[UNDISTURBED] * v[ALONE] / v[ALONE_UNDISTURBED]) / v[COVERED];
}

static double factor(struct overlap_fit *b, bool threads)
{
	struct sums *all = &b->all;
	double share, error, mean = 0, square = 0;
	size_t n = 0;

	for (size_t i = 0; i < b->n_clusters; i++)
		for (int k = 0; k < SUMS; k++)
			all->v[k] += b->cluster[i].v[k];
	share = lost(all, NULL);
	for (size_t i = 0; i < b->n_clusters; i++) {
		double x = lost(all, &b->cluster[i]), d = x - mean;

		if (isnan(x))
			return 1; /* one rank in one step is all there is */
		mean += d / (double)++n;
		square += d * (x - mean);
	}
	error = n < 2 ? INFINITY : sqrt(square * (double)(n - 1) / (double)n);
	if (!(share > (threads ? 0 : CLEAR * error)))
		return 1;
	if (threads)
		share *= 1 / (1 + error / share * (error / share));
	return 1 / (1 - fmin(share, MOST));
}

int pl_cost_overlap(const struct pl_graph *g, double *overlap, struct pl_err *err)
{
	struct overlap_fit b = { 0 };
	int rc = 0;

	*overlap = 1;
	PL_TRY(choose_ranks(&b, g, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		PL_TRY(look_at_step(&b, g, &g->step[k], err));
		PL_TRY(add_timings(&b, err));
	}
	PL_TRY(pl_alloc(&b.cluster, b.n_clusters + 1, sizeof(*b.cluster), err));
	PL_TRY(pl_alloc(&b.place, b.n_t / ENOUGH + 1, sizeof(*b.place), err));
	pl_sort(b.t, b.n_t, sizeof(*b.t), by_timing);
	for (size_t i = 0, n; i < b.n_t; i += n) {
		for (n = 1; i + n < b.n_t && b.t[i + n].name == b.t[i].name; n++)
			;
		sum_name(&b, &b.t[i], n);
	}
	*overlap = factor(&b, pl_cost_by_threads(g));
out:
	pl_free(b.place);
	pl_free(b.cluster);
	pl_free(b.seen);
	pl_spans_fini(&b.moves);
	pl_spans_fini(&b.waits);
	pl_free(b.comp);
	pl_free(b.t);
	return rc;
}

/* ---- issuing --------------------------------------------------------------------------------- */

static uint32_t pred_by(const struct pl_shape *s, uint32_t i, unsigned type, bool same_res)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (PL_E_TYPE(s->etype[e]) == type && s->type[s->src[e]] == PL_N_OP &&
		    (s->res[s->src[e]] == s->res[i]) == same_res)
			return s->src[e];
	return PL_NONE;
}

/* Host time of issuing the communication of an arrival; -1: not known. */
static pl_ns issue_of(const struct pl_graph *g, const struct pl_gstep *st, uint32_t i)
{
	const struct pl_shape *s = &g->shape[st->shape];
	uint32_t call = pred_by(s, i, PL_E_LAUNCH, false);
	pl_ns sum;

	if (call == PL_NONE)
		call = pred_by(s, i, PL_E_EARLY, false);
	if (call == PL_NONE)
		return -1;
	sum = st->dur[call];
	for (int k = 0; k < WRAPPED; k++) {
		call = pred_by(s, call, PL_E_SEQ, true);
		if (call == PL_NONE || !s->phase || s->phase[call] != PL_PH_COMM)
			break;
		sum += st->dur[call];
	}
	return sum;
}

int pl_cost_issue(const struct pl_graph *g, pl_ns *issue, struct pl_err *err)
{
	pl_ns *v = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	*issue = 0;
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *s = &g->shape[g->step[k].shape];

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			pl_ns t = s->role[i] == PL_RO_ARRIVE ? issue_of(g, &g->step[k], i) : -1;

			if (t >= 0)
				PL_TRY(pl_append(&v, &n, &cap, &t, sizeof(t), err));
		}
	}
	pl_sort(v, n, sizeof(*v), pl_compare_i64);
	if (n)
		*issue = v[(n - 1) / 4];
out:
	pl_free(v);
	return rc;
}
