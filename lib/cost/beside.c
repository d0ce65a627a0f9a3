/*
 * What communication costs those beside it: the slow-down of computation while data moves, and the
 * host's time for issuing.
 *
 * Overlap: operations of one name are compared with themselves, those that ran beside a transfer of
 * their rank (at least BESIDE of their time) with those that had no communication beside them, not
 * even one that waited. A name counts if there are enough of both and if, left alone, it is one
 * thing: the quartiles of its times lie close together. The factor is the median of the ratios of
 * medians over such names. It is 1 when it cannot be told from chance: each ratio has a standard
 * error (of a median: 1.25 s / sqrt(n), with s from the quartiles), and less than half of the names
 * exceed 1 by two of them. Of very many ranks some, evenly spread, are enough. O(n log n).
 *
 * Issuing: the call that launched a communication, and the operations before it on its thread whose
 * names speak of communication.
 */
#include <math.h>
#include <stdlib.h>

#include "cost/internal.h"

#define ENOUGH	8    /* of an operation, beside and alone */
#define BESIDE	0.9  /* of an operation's time */
#define ONE	0.25 /* distance of the quartiles of one thing, relative to the median */
#define WRAPPED 8    /* operations around a launch, at most */
#define RANKS	64   /* looked at, and at most twice as many */

struct span {
	pl_ns start, end;
	int32_t rank;
	pl_id name;
	bool wait; /* communication that waits, and perhaps transfers */
};
struct timing {
	pl_ns dur;
	pl_id name;
	bool beside;
};
struct beside {
	bool *seen; /* [resource]: its rank is one of those looked at */
	struct span *comm, *comp;
	struct timing *t;
	size_t n_comm, cap_comm, n_comp, cap_comp, n_t, cap_t;
};

static int put_span(struct span **v, size_t *n, size_t *cap, struct span s, struct pl_err *err)
{
	int rc = pl_grow(v, cap, *n + 1, sizeof(**v), err);

	if (rc < 0)
		return rc;
	(*v)[(*n)++] = s;
	return 0;
}

static pl_ns arrival_before(const struct pl_shape *s, const struct pl_gstep *st, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (s->role[s->src[e]] == PL_RO_ARRIVE && s->res[s->src[e]] == s->res[i])
			return st->start[s->src[e]];
	return st->start[i];
}

static int choose_ranks(struct beside *b, const struct pl_graph *g, struct pl_err *err)
{
	size_t every = (size_t)g->n_ranks / (2 * RANKS) + 1;
	int rc = pl_alloc(&b->seen, g->n_res, sizeof(*b->seen), err);

	for (size_t i = 0; rc == 0 && i < g->n_res; i++) {
		uint32_t at = pl_graph_rank_index(g, g->res[i].rank);

		b->seen[i] = at == PL_NONE || at % every == 0;
	}
	return rc;
}

static int spans_of_step(struct beside *b, const struct pl_graph *g, const struct pl_gstep *st,
			 struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[st->shape];
	int rc = 0;

	b->n_comm = b->n_comp = 0;
	for (uint32_t i = s->n_entries; i < s->n_nodes && rc >= 0; i++) {
		struct span x = { st->start[i], st->start[i] + st->dur[i], pl_node_rank(g, s, i),
				  s->name[i], false };

		if (s->type[i] != PL_N_OP || st->dur[i] <= 0 || s->res[i] == PL_NONE ||
		    !b->seen[s->res[i]])
			continue;
		if (s->role[i] == PL_RO_COMPUTE) {
			rc = put_span(&b->comp, &b->n_comp, &b->cap_comp, x, err);
		} else if (s->role[i] == PL_RO_TRANSFER) {
			rc = put_span(&b->comm, &b->n_comm, &b->cap_comm, x, err);
			x.start = arrival_before(s, st, i);
			x.wait = true;
			if (rc >= 0)
				rc = put_span(&b->comm, &b->n_comm, &b->cap_comm, x, err);
		}
	}
	return rc;
}

static int by_span(const void *pa, const void *pb)
{
	const struct span *a = pa, *b = pb;

	if (a->wait != b->wait)
		return a->wait ? 1 : -1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

/* Overlapping spans of one sort become one. */
static void unite(struct beside *b)
{
	size_t kept = 0;

	pl_sort(b->comm, b->n_comm, sizeof(*b->comm), by_span);
	for (size_t i = 0; i < b->n_comm; i++) {
		struct span *last = kept ? &b->comm[kept - 1] : NULL, *x = &b->comm[i];

		if (last && last->wait == x->wait && last->rank == x->rank && x->start <= last->end)
			last->end = pl_max_i64(last->end, x->end);
		else
			b->comm[kept++] = *x;
	}
	b->n_comm = kept;
}

/* How much of x lies in the spans of its rank of that sort. */
static pl_ns covered(const struct beside *b, struct span x, bool wait)
{
	struct span key = { x.start, INT64_MIN, x.rank, 0, wait };
	size_t lo = 0, hi = b->n_comm;
	pl_ns sum = 0;

	while (lo < hi) { /* first that begins after x does */
		size_t mid = lo + (hi - lo) / 2;

		if (by_span(&b->comm[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t i = lo ? lo - 1 : 0; i < b->n_comm; i++) {
		const struct span *c = &b->comm[i];

		if (i >= lo && (c->wait != wait || c->rank != x.rank || c->start >= x.end))
			break;
		if (c->wait == wait && c->rank == x.rank)
			sum += pl_max_i64(0, pl_min_i64(c->end, x.end) -
						     pl_max_i64(c->start, x.start));
	}
	return sum;
}

static int add_timings(struct beside *b, struct pl_err *err)
{
	int rc = pl_grow(&b->t, &b->cap_t, b->n_t + b->n_comp + 1, sizeof(*b->t), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->n_comp; i++) {
		struct span x = b->comp[i];
		pl_ns dur = x.end - x.start;
		bool beside = (double)covered(b, x, false) >= BESIDE * (double)dur;

		if (beside || !covered(b, x, true))
			b->t[b->n_t++] = (struct timing){ dur, x.name, beside };
	}
	return 0;
}

static int by_timing(const void *pa, const void *pb)
{
	const struct timing *a = pa, *b = pb;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	if (a->beside != b->beside)
		return a->beside ? 1 : -1;
	return a->dur < b->dur ? -1 : a->dur > b->dur;
}

struct spread {
	double median, quartiles; /* their distance */
};

static struct spread spread_of(const struct timing *t, size_t n)
{
	return (struct spread){ (double)t[n / 2].dur,
				(double)(t[n - 1 - n / 4].dur - t[n / 4].dur) };
}

/* Relative standard error of the median of n. */
static double uncertain(struct spread s, size_t n)
{
	return 1.25 * s.quartiles / 1.349 / sqrt((double)n) / s.median;
}

static int by_double(const void *pa, const void *pb)
{
	double a = *(const double *)pa, b = *(const double *)pb;

	return a < b ? -1 : a > b;
}

static double factor(const struct timing *t, size_t n_t, double *ratio)
{
	size_t n = 0, clear = 0;

	for (size_t i = 0, n_alone, n_all; i < n_t; i += n_all) {
		struct spread alone, beside;
		double x, se;

		n_alone = 0;
		for (n_all = 0; i + n_all < n_t && t[i].name == t[i + n_all].name; n_all++)
			n_alone += !t[i + n_all].beside;
		if (n_alone < ENOUGH || n_all - n_alone < ENOUGH)
			continue;
		alone = spread_of(&t[i], n_alone);
		beside = spread_of(&t[i + n_alone], n_all - n_alone);
		if (alone.quartiles > ONE * alone.median)
			continue;
		x = beside.median / alone.median;
		se = x * hypot(uncertain(alone, n_alone), uncertain(beside, n_all - n_alone));
		clear += x > 1 + 2 * se;
		ratio[n++] = x;
	}
	if (!n || 2 * clear < n)
		return 1;
	pl_sort(ratio, n, sizeof(*ratio), by_double);
	return fmax(1, n % 2 ? ratio[n / 2] : (ratio[n / 2 - 1] + ratio[n / 2]) / 2);
}

int cost_overlap(const struct pl_graph *g, double *overlap, struct pl_err *err)
{
	struct beside b = { 0 };
	double *ratio = NULL;
	int rc = 0;

	*overlap = 1;
	PL_TRY(choose_ranks(&b, g, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		PL_TRY(spans_of_step(&b, g, &g->step[k], err));
		unite(&b);
		PL_TRY(add_timings(&b, err));
	}
	PL_TRY(pl_alloc(&ratio, b.n_t / (2 * (size_t)ENOUGH) + 1, sizeof(*ratio), err));
	pl_sort(b.t, b.n_t, sizeof(*b.t), by_timing);
	*overlap = factor(b.t, b.n_t, ratio);
out:
	pl_free(ratio);
	pl_free(b.seen);
	pl_free(b.comm);
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

static bool speaks(const struct pl_graph *g, pl_id name)
{
	return name < g->str.n && pl_coll_from_name(g->str.str[name], g->str.len[name]);
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
		if (call == PL_NONE || !speaks(g, s->name[call]))
			break;
		sum += st->dur[call];
	}
	return sum;
}

int cost_issue(const struct pl_graph *g, pl_ns *issue, struct pl_err *err)
{
	pl_ns *v = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	*issue = 0;
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *s = &g->shape[g->step[k].shape];

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			pl_ns t = s->role[i] == PL_RO_ARRIVE ? issue_of(g, &g->step[k], i) : -1;

			if (t < 0)
				continue;
			PL_TRY(pl_grow(&v, &cap, n + 1, sizeof(*v), err));
			v[n++] = t;
		}
	}
	if (n)
		*issue = pl_median_i64(v, n);
out:
	pl_free(v);
	return rc;
}
