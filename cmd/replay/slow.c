/*
 * The slowest ranks, with the reason.
 *
 * A rank that is the last at every communication never waits. So the slowest ranks are those that
 * are idle least: idle time is waiting for other ranks and having nothing to do, because a stage of
 * a pipeline has one of them before its work and the other behind it. (The time that others wait
 * for a rank says less: in a pipeline a rank passes on the lateness of its neighbour.) A rank is
 * compared with the median of the others. The reason is the class of time that exceeds theirs. The
 * report also names the operation with the greatest excess over the mean of the others.
 */
#include <stdlib.h>

#include "program.h"

#define WORST  3
#define LITTLE 0.005 /* of the span: who is idle only so much less is not slow */

/* The times of a rank that reasons are about; computation counts with what overlaps it. */
static pl_ns part(const struct pl_rank_time *t, int which)
{
	return which == PART_WAIT
		       ? rank_idle(t)
		       : rank_part(t, which) + (which == PART_COMPUTE ? t->comm_overlapped_ns : 0);
}

/* The medians of all parts over the ranks except one. */
static int find_medians(const struct pl_rank_time *rank, size_t n, size_t except, pl_ns *median,
			struct pl_err *err)
{
	int64_t *v;
	int rc = pl_alloc(&v, n, sizeof(*v), err);

	for (int which = 0; rc == 0 && which < PARTS; which++) {
		for (size_t i = 0, k = 0; i < n; i++)
			if (i != except)
				v[k++] = part(&rank[i], which);
		median[which] = pl_median_i64(v, n - 1);
	}
	pl_free(v);
	return rc;
}

/* The operation with most time above the others' mean: *more over the reported steps; PL_NONE. */
static int find_operation(const struct report *r, int which, int32_t rank, pl_id *name,
			  double *more, struct pl_err *err)
{
	const struct pl_graph *g = &r->g;
	bool fits[PL_RO_COUNT_] = { [PL_RO_GAP] = which == PART_HOST };
	struct {
		double own, all;
	} * sum;

	*name = PL_NONE;
	*more = 0;
	if (rank_parts[which].role != PL_RO_NONE)
		fits[rank_parts[which].role] = true;
	PL_CHECK(pl_alloc(&sum, g->str.n, sizeof(*sum), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		if (!pl_sim_reported(r->s, k))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			double d;

			if (!fits[sh->role[i]] || sh->name[i] >= g->str.n)
				continue;
			d = (double)pl_sim_run_dur(r->s, &r->run, k, i);
			sum[sh->name[i]].all += d;
			if (pl_node_rank(g, sh, i) == rank)
				sum[sh->name[i]].own += d;
		}
	}
	for (pl_id i = 0; i < g->str.n; i++) {
		double own = sum[i].own, d = own - (sum[i].all - own) / (double)(g->n_ranks - 1);

		if (d > *more) {
			*more = d;
			*name = i;
		}
	}
	pl_free(sum);
	return 0;
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

/* t: its times; median: of the others. */
static int explain_rank(const struct report *r, struct slow_row *row, const struct pl_rank_time *t,
			const pl_ns *median, struct pl_err *err)
{
	char ns[32], more[32], idle[32], usual[32], longest[64] = "", op[160] = "", text[64];
	const char *others = r->account.n_ranks == 2 ? "the other" : "the median";
	double n = (double)r->n_steps, of_name;
	pl_ns excess = 0;
	int which = -1, at;
	pl_id name;

	for (int i = 0; i < PARTS; i++)
		if (rank_parts[i].reason && part(t, i) - median[i] > excess) {
			excess = part(t, i) - median[i];
			which = i;
		}
	if (row->most >= 0)
		snprintf(longest, sizeof(longest), " (rank %d waits for it %s)", row->most,
			 fmt_ns(text, sizeof(text), (double)row->most_ns));
	at = snprintf(row->why, sizeof(row->why), "is idle %s a step, %s rank %s%s; ",
		      fmt_ns(idle, sizeof(idle), (double)row->idle_ns), others,
		      fmt_ns(usual, sizeof(usual), (double)row->median_idle_ns), longest);
	if (which < 0 || (double)excess < 0.1 * n * (double)(row->median_idle_ns - row->idle_ns)) {
		snprintf(row->why + at, sizeof(row->why) - (size_t)at,
			 "no kind of work stands out: it has a little more of each");
		return 0;
	}
	PL_CHECK(find_operation(r, which, row->rank, &name, &of_name, err));
	fmt_ns(text, sizeof(text), of_name / n);
	/* stages of a pipeline have operations of their own, which exceed the others' by more */
	if (name != PL_NONE)
		snprintf(op, sizeof(op), ", %s%s in %.80s",
			 of_name <= (double)excess ? text : "most",
			 of_name <= (double)excess ? " of it" : "", pl_intern_get(&r->g.str, name));
	snprintf(row->why + at, sizeof(row->why) - (size_t)at, "it %s %s, %s more than %s%s",
		 rank_parts[which].reason, fmt_ns(ns, sizeof(ns), (double)part(t, which) / n),
		 fmt_ns(more, sizeof(more), (double)excess / n), others, op);
	return 0;
}

static int by_idle(const void *pa, const void *pb)
{
	const struct pl_rank_time *a = pa, *b = pb;
	int c = PL_COMPARE(rank_idle(a), rank_idle(b));

	return c ? c : PL_COMPARE(a->rank, b->rank);
}

int ranks_by_idle(const struct pl_account *a, struct pl_rank_time **v, struct pl_err *err)
{
	PL_CHECK(pl_alloc(v, a->n_ranks, sizeof(**v), err));
	memcpy(*v, a->rank, a->n_ranks * sizeof(**v));
	pl_sort(*v, a->n_ranks, sizeof(**v), by_idle);
	return 0;
}

int find_slow(struct report *r, struct pl_err *err)
{
	size_t n = r->account.n_ranks;
	struct pl_rank_time *rank;
	pl_ns median[PARTS];
	int rc;

	if (n < 2)
		return 0;
	PL_CHECK(pl_alloc(&r->slow, WORST, sizeof(*r->slow), err));
	PL_CHECK(ranks_by_idle(&r->account, &rank, err));
	for (; r->n_slow < WORST && r->n_slow < n; r->n_slow++) {
		const struct pl_rank_time *t = &rank[r->n_slow];
		struct slow_row *row = &r->slow[r->n_slow];

		PL_TRY(find_medians(rank, n, r->n_slow, median, err));
		if ((double)(median[PART_WAIT] - rank_idle(t)) < LITTLE * (double)t->span_ns)
			break;
		*row = (struct slow_row){ .rank = t->rank,
					  .idle_ns = rank_idle(t) / (pl_ns)r->n_steps,
					  .median_idle_ns = median[PART_WAIT] / (pl_ns)r->n_steps,
					  .most = -1 };
		longest_waiter(r, row);
		PL_TRY(explain_rank(r, row, t, median, err));
	}
out:
	pl_free(rank);
	return rc;
}
