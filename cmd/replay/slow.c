/*
 * The slowest ranks: those for which others wait, and what sets them apart.
 *
 * Who came last to a communication made the others wait; the account keeps that for each rank. What
 * such a rank does longer than the median rank is the reason; the operation with the greatest
 * excess over the mean of the ranks is named with it.
 */
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define WORST	3
#define LITTLE	0.001 /* of the span: waits below are not worth a sentence */
#define REASONS 6

static const char *const reason[REASONS] = {
	"computes",
	"spends in exposed communication",
	"copies",
	"waits for its host thread",
	"has unexplained time of",
	"waits for launches",
};

static pl_ns part(const struct pl_rank_time *t, int which)
{
	switch (which) {
	case 0:
		return t->compute_ns + t->comm_overlapped_ns;
	case 1:
		return t->comm_exposed_ns;
	case 2:
		return t->copy_ns;
	case 3:
		return t->host_ns;
	case 4:
		return t->unexplained_ns;
	default:
		return t->idle_ns[PL_I_LAUNCH];
	}
}

struct excess {
	int which; /* -1: nothing stands out */
	pl_ns ns, median;
};

static int find_excess(const struct report *r, size_t rank, struct excess *x, struct pl_err *err)
{
	const struct pl_account *a = &r->account;
	int64_t *v;
	int rc = pl_alloc(&v, a->n_ranks, sizeof(*v), err);

	if (rc < 0)
		return rc;
	*x = (struct excess){ .which = -1 };
	for (int which = 0; which < REASONS; which++) {
		pl_ns mine = part(&a->rank[rank], which), median;

		for (size_t i = 0; i < a->n_ranks; i++)
			v[i] = part(&a->rank[i], which);
		median = pl_median_i64(v, a->n_ranks);
		if (mine - median > x->ns)
			*x = (struct excess){ which, mine - median, median };
	}
	pl_free(v);
	return 0;
}

static bool role_fits(uint8_t role, int which)
{
	static const uint8_t of[] = { PL_RO_COMPUTE, PL_RO_TRANSFER, PL_RO_COPY, PL_RO_HOST };

	return which >= 0 && which < (int)PL_LEN(of) &&
	       (role == of[which] || (which == 3 && role == PL_RO_GAP));
}

/* The operation whose time on the rank exceeds the mean of all ranks most. */
static int find_operation(const struct report *r, int32_t rank, int which, pl_id *name,
			  double *more, struct pl_err *err)
{
	const struct pl_graph *g = &r->g;
	double *mine = NULL, *all = NULL;
	int rc;

	*name = PL_NONE;
	*more = 0;
	PL_TRY(pl_alloc(&mine, g->str.n, sizeof(*mine), err));
	PL_TRY(pl_alloc(&all, g->str.n, sizeof(*all), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			double ns;

			if (!role_fits(sh->role[i], which) || sh->name[i] >= g->str.n ||
			    !pl_sim_reported(r->s, k))
				continue;
			ns = (double)pl_run_dur(r->s, &r->run, k, i);
			all[sh->name[i]] += ns;
			if (pl_node_rank(g, sh, i) == rank)
				mine[sh->name[i]] += ns;
		}
	}
	for (pl_id i = 0; i < g->str.n; i++) {
		double d = mine[i] - all[i] / (double)g->n_ranks;

		if (d > *more) {
			*more = d;
			*name = i;
		}
	}
out:
	pl_free(mine);
	pl_free(all);
	return rc;
}

static void longest_waiter(const struct report *r, struct slow_row *row)
{
	for (size_t i = 0; i < r->account.n_ranks; i++) {
		const struct pl_rank_time *t = &r->account.rank[i];

		if (t->waits_for == row->rank && t->waits_for_ns > row->most_ns) {
			row->most = t->rank;
			row->most_ns = t->waits_for_ns;
		}
	}
	row->most_ns /= (pl_ns)r->n_steps;
}

static int explain(const struct report *r, size_t rank, struct slow_row *row, struct pl_err *err)
{
	char ns[32], more[32], wait[32], longest[64] = "", op[160] = "", text[64];
	double n = (double)r->n_steps, extra;
	struct excess x;
	pl_id name = PL_NONE;
	int rc = find_excess(r, rank, &x, err);

	if (rc < 0)
		return rc;
	fmt_ns(wait, sizeof(wait), (double)row->awaited_ns);
	if (row->most >= 0)
		snprintf(longest, sizeof(longest), ", rank %d %s", row->most,
			 fmt_ns(text, sizeof(text), (double)row->most_ns));
	if (x.which < 0 || (double)x.ns < 0.1 * n * (double)row->awaited_ns) {
		snprintf(row->why, sizeof(row->why),
			 "the others wait for it %s a step%s; no kind of work stands out: it comes "
			 "late by "
			 "turns",
			 wait, longest);
		return 0;
	}
	if ((rc = find_operation(r, row->rank, x.which, &name, &extra, err)) < 0)
		return rc;
	if (name != PL_NONE)
		snprintf(op, sizeof(op), ", %s of it in %.80s",
			 fmt_ns(text, sizeof(text), extra / n), pl_intern_get(&r->g.str, name));
	snprintf(row->why, sizeof(row->why),
		 "the others wait for it %s a step%s; it %s %s, %s more than the median rank%s",
		 wait, longest, reason[x.which],
		 fmt_ns(ns, sizeof(ns), (double)(x.ns + x.median) / n),
		 fmt_ns(more, sizeof(more), (double)x.ns / n), op);
	return 0;
}

int find_slow(struct report *r, struct pl_err *err)
{
	const struct pl_account *a = &r->account;
	int rc;

	if (a->n_ranks < 2)
		return 0;
	if ((rc = pl_alloc(&r->slow, WORST, sizeof(*r->slow), err)) < 0)
		return rc;
	while (r->n_slow < WORST) {
		struct slow_row *row = &r->slow[r->n_slow];
		size_t best = a->n_ranks;

		for (size_t i = 0; i < a->n_ranks; i++) {
			bool have = false;

			for (size_t k = 0; k < r->n_slow; k++)
				have |= r->slow[k].rank == a->rank[i].rank;
			if (!have && (best == a->n_ranks ||
				      a->rank[i].awaited_ns > a->rank[best].awaited_ns))
				best = i;
		}
		if (best == a->n_ranks ||
		    (double)a->rank[best].awaited_ns / (double)(a->n_ranks - 1) <
			    LITTLE * (double)a->rank[best].span_ns)
			break;
		*row = (struct slow_row){ .rank = a->rank[best].rank,
					  .awaited_ns = a->rank[best].awaited_ns /
							(pl_ns)(a->n_ranks - 1) / (pl_ns)r->n_steps,
					  .most = -1 };
		longest_waiter(r, row);
		if ((rc = explain(r, best, row, err)) < 0)
			return rc;
		r->n_slow++;
	}
	return 0;
}
