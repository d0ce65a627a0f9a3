/*
 * What communication costs computation: its slow-down while data moves, and host time of issuing.
 *
 * Slow-down. Operations in the same place (the n-th of its name in a step of a rank) are the same
 * work in every step, and on every rank if the ranks do the same. The undisturbed duration of a
 * place is the median of the operations that overlapped no communication, not even one that waited.
 * If a place has too few of these, the undisturbed duration is that of the name, provided that the
 * medians of the places of this name are close together. On devices, operations of one name and one
 * known work are the same work too, and communication slows them down also while it waits for
 * members, because its kernel occupies multiprocessors. Computation loses
 * the share s of its time: each overlapped duration less its undisturbed duration, summed, divided
 * by the overlapped time. The factor is 1 / (1 - s). Sums are used and not medians, because threads
 * that carry communication take a processor away for milliseconds at a time: most operations lose
 * nothing and a few lose much. For the same reason the mean of operations without overlap is longer
 * than their median; undisturbed durations are multiplied by this ratio.
 *
 * The standard error e of s is the jackknife's (Tukey 1958), over ranks of steps left out one at a
 * time. If s is at most CLEAR standard errors, it may be chance and the factor is 1. But threads
 * cannot carry communication at no cost, and a few steps are not reliable: two recordings of three
 * steps of one job gave 0.1 and 0.5. If threads carry communication, s is therefore the mean of the
 * recorded share and of the usual share of such jobs (THREADS, with the error THREADS_ERROR), each
 * weighted by the inverse of its squared error. Of a large graph some ranks of some steps are
 * enough: in each step other ranks, evenly spread. O(n log n).
 *
 * Issuing. The host time of issuing is the call that launched a communication and the operations
 * before it on its thread whose names refer to communication. The lower quartile is used: a call
 * that wakes a thread often loses its processor to that thread, and this time is counted there.
 */
#include <math.h>
#include <stdlib.h>

#include "cost/internal.h"

#define ENOUGH	      3	   /* alone, of an operation in its place; places of a name */
#define ONE	      0.25 /* distance of the quartiles of one thing, relative to the median */
#define CLEAR	      2	   /* standard errors */
#define MOST	      0.5 /* of its time computation can lose: two that share a processor get half each */
#define THREADS	      0.25 /* loses computation beside threads that carry communication, as a share */
#define THREADS_ERROR 0.125
#define WRAPPED	      8	     /* operations around a launch, at most */
#define OPERATIONS    100000 /* of all kinds, about as many as are enough */
#define CLUSTERS      8	     /* ranks of steps to look at, at least */

struct work { /* an operation of a step */
	pl_ns start, end;
	int32_t rank;
	pl_id name;
	uint32_t work; /* on devices, PL_NONE unknown */
};
struct timing {
	pl_ns dur;
	pl_ns overlapped; /* part of dur */
	pl_id name;
	uint32_t work, place, cluster; /* place: which of its kind in the step; rank in a step */
	bool overlaps;
};
/* For operations that overlap communication: time, undisturbed time, time of the overlap, number.
 * For the others: time, undisturbed time. */
enum { OVERLAPPED, UNDISTURBED, COVERED, COUNT, ALONE, ALONE_UNDISTURBED, SUMS };
struct sums {
	double v[SUMS];
};
struct overlap_fit {
	bool threads;	/* carry communication */
	uint32_t *rank; /* [resource]: the place of its rank, or PL_NONE */
	size_t every;	/* one of so many ranks of a step is looked at */
	struct pl_spans moves, waits;
	struct work *comp;
	struct timing *t;
	struct sums *cluster, all;
	double *place; /* medians of a name's places, then those alone in a place */
	size_t n_comp, cap_comp, n_t, cap_t, n_clusters;
};

static int choose_ranks(struct overlap_fit *b, const struct pl_graph *g, struct pl_err *err)
{
	size_t n = 0, most = g->n_steps * (size_t)g->n_ranks / CLUSTERS;

	PL_CHECK(pl_alloc(&b->rank, g->n_res, sizeof(*b->rank), err));
	for (size_t i = 0; i < g->n_res; i++)
		b->rank[i] = pl_graph_rank_index(g, g->res[i].rank);
	for (size_t k = 0; k < g->n_steps; k++)
		n += g->shape[g->step[k].shape].n_nodes;
	b->every = n / OPERATIONS + 1;
	if (b->every > most)
		b->every = most ? most : 1;
	return 0;
}

static bool is_chosen(const struct overlap_fit *b, size_t step, uint32_t res)
{
	return b->rank[res] == PL_NONE || (b->rank[res] + step) % b->every == 0;
}

/* The work of a kernel, if the sizes of its inputs are known. */
static uint32_t work_of(const struct overlap_fit *b, const struct pl_graph *g,
			const struct pl_shape *s, uint32_t i)
{
	if (b->threads || !s->work || s->work[i] == PL_NONE || g->work[s->work[i]].dims == PL_NONE)
		return PL_NONE;
	return s->work[i];
}

static int look_at_step(struct overlap_fit *b, const struct pl_graph *g, size_t step,
			struct pl_err *err)
{
	const struct pl_gstep *st = &g->step[step];
	const struct pl_shape *s = &g->shape[st->shape];
	int rc = 0;

	b->n_comp = 0;
	pl_spans_clear(&b->moves);
	pl_spans_clear(&b->waits);
	for (uint32_t i = s->n_entries; i < s->n_nodes && rc >= 0; i++) {
		struct work x;

		if (s->type[i] != PL_N_OP || st->dur[i] <= 0 || s->res[i] == PL_NONE ||
		    !is_chosen(b, step, s->res[i]))
			continue;
		x = (struct work){ st->start[i], st->start[i] + st->dur[i], pl_node_rank(g, s, i),
				   s->name[i], work_of(b, g, s, i) };
		if (s->role[i] == PL_RO_COMPUTE && !pl_trace_kind_is_comm(s->kind[i])) {
			rc = pl_append(&b->comp, &b->n_comp, &b->cap_comp, &x, sizeof(x), err);
		} else if (s->role[i] == PL_RO_TRANSFER) {
			uint32_t arrive = pl_node_arrival(s, i);
			pl_ns since = arrive == PL_NONE ? x.start : st->start[arrive];

			rc = pl_spans_add(&b->moves, x.rank, b->threads ? x.start : since, x.end,
					  err);
			if (rc >= 0)
				rc = pl_spans_add(&b->waits, x.rank, since, x.end, err);
		}
	}
	pl_spans_unite(&b->moves);
	pl_spans_unite(&b->waits);
	return rc;
}

PL_COMPARATOR(by_name, struct work, rank, name, work, start, end);

static int add_timings(struct overlap_fit *b, struct pl_err *err)
{
	uint32_t place = 0;

	PL_CHECK(pl_grow(&b->t, &b->cap_t, b->n_t + b->n_comp + 1, sizeof(*b->t), err));
	pl_sort(b->comp, b->n_comp, sizeof(*b->comp), by_name);
	for (size_t i = 0; i < b->n_comp; i++) {
		const struct work *x = &b->comp[i];
		pl_ns dur = x->end - x->start, with;

		b->n_clusters += !i || x[-1].rank != x->rank;
		place = i && x[-1].rank == x->rank && x[-1].name == x->name && x[-1].work == x->work
				? place + 1
				: 0;
		with = pl_spans_cover(&b->moves, x->rank, x->start, x->end);
		if (with || !pl_spans_cover(&b->waits, x->rank, x->start, x->end))
			b->t[b->n_t++] =
				(struct timing){ dur,	  with,	 x->name,
						 x->work, place, (uint32_t)b->n_clusters - 1,
						 with > 0 };
	}
	return 0;
}

PL_COMPARATOR(by_timing, struct timing, name, work, place, overlaps, dur, cluster);

/* How many of t have the place of the first. The first *alone of them overlap no communication. */
static size_t place_of(const struct timing *t, size_t n, size_t *alone)
{
	size_t k = 0;

	*alone = 0;
	for (; k < n && t[k].name == t[0].name && t[k].place == t[0].place; k++)
		*alone += !t[k].overlaps;
	return k;
}

/* The undisturbed duration of a name, for places with too few samples, or of a known work, for all
 * places; 0: unknown. */
static double typical(struct overlap_fit *b, const struct timing *t, size_t n)
{
	size_t m = 0;
	double *v = b->place;

	for (size_t i = 0, k, alone; i < n; i += k) {
		k = place_of(&t[i], n - i, &alone);
		for (size_t j = 0; t->work != PL_NONE && j < alone; j++)
			v[m++] = (double)t[i + j].dur;
		if (t->work == PL_NONE && alone >= ENOUGH)
			v[m++] = (double)t[i + alone / 2].dur;
	}
	pl_sort(v, m, sizeof(*v), pl_compare_double);
	if (m < ENOUGH || v[m - 1 - m / 4] - v[m / 4] > ONE * v[m / 2])
		return 0;
	return v[m / 2];
}

static void sum_up(struct overlap_fit *b, const struct timing *t, double undisturbed)
{
	double *v = b->cluster[t->cluster].v;

	v[t->overlaps ? OVERLAPPED : ALONE] += (double)t->dur;
	v[t->overlaps ? UNDISTURBED : ALONE_UNDISTURBED] += undisturbed;
	v[COVERED] += (double)t->overlapped;
	v[COUNT] += t->overlaps;
}

/* All operations of one name. A name that never overlaps communication shows nothing. */
static void sum_name(struct overlap_fit *b, const struct timing *t, size_t n)
{
	double usual = typical(b, t, n);
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= t[i].overlaps;
	for (size_t i = 0, k, alone; any && i < n; i += k) {
		double undisturbed;

		k = place_of(&t[i], n - i, &alone);
		undisturbed = usual;
		if (alone >= ENOUGH && (t->work == PL_NONE || usual <= 0))
			undisturbed = (double)t[i + alone / 2].dur;
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

		if (isnan(x)) /* nothing overlaps, or in one step of one rank alone */
			return threads ? 1 / (1 - THREADS) : 1;
		mean += d / (double)++n;
		square += d * (x - mean);
	}
	error = n < 2 ? INFINITY : sqrt(square * (double)(n - 1) / (double)n);
	if (threads) {
		double known = THREADS_ERROR * THREADS_ERROR,
		       weight = known / (known + error * error);

		share = isinf(error) ? THREADS : weight * share + (1 - weight) * THREADS;
	} else if (!(share > CLEAR * error)) {
		return 1;
	}
	return 1 / (1 - fmin(fmax(share, 0), MOST));
}

int pl_cost_overlap(const struct pl_graph *g, double *overlap, double *samples, struct pl_err *err)
{
	struct overlap_fit b = { 0 };
	int rc = 0;

	*overlap = 1;
	*samples = 0;
	b.threads = pl_cost_by_threads(g);
	PL_TRY(choose_ranks(&b, g, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		PL_TRY(look_at_step(&b, g, k, err));
		PL_TRY(add_timings(&b, err));
	}
	PL_TRY(pl_alloc(&b.cluster, b.n_clusters + 1, sizeof(*b.cluster), err));
	PL_TRY(pl_alloc(&b.place, b.n_t + 1, sizeof(*b.place), err));
	pl_sort(b.t, b.n_t, sizeof(*b.t), by_timing);
	for (size_t i = 0, n; i < b.n_t; i += n) {
		for (n = 1; i + n < b.n_t && b.t[i + n].name == b.t[i].name &&
			    b.t[i + n].work == b.t[i].work;
		     n++)
			;
		sum_name(&b, &b.t[i], n);
	}
	*overlap = factor(&b, b.threads);
	*samples = b.all.v[COUNT];
out:
	pl_free(b.place);
	pl_free(b.cluster);
	pl_free(b.rank);
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
