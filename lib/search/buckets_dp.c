/*
 * Boundaries of buckets by dynamic programming.
 *
 * end[j] is the earliest end of a channel that has carried tensors 0 .. j-1. It is the minimum,
 * over the first tensor i of the last bucket, of max(end[i], ready of j-1) + t(bytes of i .. j-1) +
 * issue. It grows with end[i], so only the earliest end of the other tensors matters (Bellman's
 * principle). So the result is the optimum over all 2^(n-1) cuts. If ends are equal, the cut with
 * fewer buckets is taken, then the cut with the longest last bucket. O(n^2) time, O(n) memory.
 *
 * This is no third engine of time: end[] only compares cuts. The recurrence needs the time t of
 * each bucket and the times of readiness, which the static pass has found. The chosen cut becomes a
 * candidate, and the time that the edit finds for the candidate decides and is reported.
 */
#include "search/search.h"

struct dp_cell {
	pl_ns end;
	uint32_t buckets, first; /* of the last bucket */
};

static pl_ns bucket_end(const struct pl_bucket_problem *p, const struct dp_cell *before,
			uint32_t last, int64_t bytes)
{
	pl_ns begin = pl_max_i64(before->end, p->ready_ns[last]);

	return pl_add_sat(begin, pl_add_sat(p->transfer(p->arg, bytes), p->issue_ns));
}

int pl_search_bucket_dp(const struct pl_bucket_problem *p, uint32_t *first, uint32_t *n_buckets,
			pl_ns *end_ns, struct pl_err *err)
{
	uint32_t n = (uint32_t)p->n;
	struct dp_cell *cell;

	*n_buckets = 0;
	*end_ns = 0;
	if (!n)
		return 0;
	if (p->n >= PL_NONE)
		return pl_fail(err, PL_ELIMIT, "%zu tensors are too many for buckets", p->n);
	PL_CHECK(pl_alloc(&cell, (size_t)n + 1, sizeof(*cell), err));
	cell[0] = (struct dp_cell){ INT64_MIN, 0, 0 };
	for (uint32_t j = 1; j <= n; j++) {
		struct dp_cell best = { INT64_MAX, UINT32_MAX, 0 };
		int64_t bytes = 0;

		for (uint32_t i = j; i-- > 0;) {
			struct dp_cell c = { 0, cell[i].buckets + 1, i };

			bytes = pl_add_sat(bytes, p->bytes[i]);
			c.end = bucket_end(p, &cell[i], j - 1, bytes);
			if (c.end < best.end || (c.end == best.end && c.buckets <= best.buckets))
				best = c;
		}
		cell[j] = best;
	}
	*n_buckets = cell[n].buckets;
	*end_ns = cell[n].end;
	for (uint32_t j = n, b = *n_buckets; j; j = cell[j].first)
		first[--b] = cell[j].first;
	pl_free(cell);
	return 0;
}
