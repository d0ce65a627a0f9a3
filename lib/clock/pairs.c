/*
 * Pairs of ranks that send to each other, where nobody recorded the peer and stages.c finds no
 * regular layout.
 *
 * A stream of sends and receives serves one pair of ranks. Two streams are the two ends of a pair
 * when the kinds of one complement those of the other in order, and each of the two is the other's
 * nearest by the scatter of ends (sequences.c). Cost: streams squared comparisons, of streams of
 * about the same length, within a budget.
 */
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

#define BUDGET 200000 /* comparisons */
#define NEAR   0.02   /* lengths may differ so much, and by 2 */
#define ROUNDS 8      /* who lost a partner to a better one looks again */

struct pick {
	uint32_t comm_stream, ev;
};

PL_COMPARATOR(by_comm_stream, struct pick, comm_stream, ev);

static bool similar(const struct pl_half_stream *x, const struct pl_half_stream *y)
{
	double diff = (double)x->s.n - (double)y->s.n;
	double most = 2 + NEAR * (double)(x->s.n > y->s.n ? x->s.n : y->s.n);

	return !x->paired && !y->paired && x->s.rank != y->s.rank && diff <= most && diff >= -most;
}

static void compare(const struct pl_align *a, struct pl_half_stream *v, uint32_t i, uint32_t k,
		    int64_t *tmp)
{
	int64_t spread;

	if (!pl_clock_seq_distance(a, &v[i].s, &v[k].s, &spread, NULL, tmp))
		return;
	if (spread < v[i].spread) {
		v[i].spread = spread;
		v[i].best = k;
	}
	if (spread < v[k].spread) {
		v[k].spread = spread;
		v[k].best = i;
	}
}

static int find_partners(struct pl_align *a, struct pl_half_stream *v, uint32_t n,
			 struct pl_err *err)
{
	uint64_t work = 0;
	int64_t *tmp;
	int rc = pl_alloc(&tmp, PL_SEQ_SCRATCH, sizeof(*tmp), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < n && work < BUDGET; i++)
		for (uint32_t k = i + 1; k < n && work < BUDGET; k++)
			if (similar(&v[i], &v[k])) {
				compare(a, v, i, k, tmp);
				work++;
			}
	if (work >= BUDGET)
		pl_say(a->o.log, PL_LOG_WARN,
		       "too many streams of sends and receives without recorded peers: some stay "
		       "unmatched");
	pl_free(tmp);
	return 0;
}

/* What mutual partners typically have; INT64_MAX if there are none. */
static int typical(const struct pl_half_stream *v, uint32_t n, int64_t *spread, struct pl_err *err)
{
	int64_t *s;
	size_t k = 0;
	int rc = pl_alloc(&s, n + 1u, sizeof(*s), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		if (v[i].best != PL_NONE && v[v[i].best].best == i)
			s[k++] = v[i].spread;
	*spread = k ? pl_min_i64(pl_median_i64(s, k), INT64_MAX / 16) : INT64_MAX / 16;
	pl_free(s);
	return 0;
}

int pl_clock_pair_streams(struct pl_align *a, const struct pl_seq *x, struct pl_seq *y,
			  struct pl_err *err)
{
	uint32_t at;
	int rc;

	PL_TRY(pl_clock_seq_align(a, x, y, &at, err));
	for (uint32_t i = 0; i < y->n; i++) {
		uint32_t ev[2];
		bool send;

		if (y->to[i] == PL_NONE)
			continue;
		send = a->ev[x->ev[y->to[i]]].kind == PL_K_SEND;
		ev[!send] = x->ev[y->to[i]];
		ev[send] = y->ev[i];
		PL_TRY(pl_clock_add_match(a, PL_NONE, PL_MATCH_P2P | PL_MATCH_INFERRED, ev, 2,
					  err));
	}
out:
	return rc;
}

/* One round: mutual best partners. Was any pair made? */
static int pair_up(struct pl_align *a, struct pl_half_stream *v, uint32_t n, int64_t *usual,
		   bool *found, struct pl_err *err)
{
	int rc;

	*found = false;
	for (uint32_t i = 0; i < n; i++) {
		v[i].best = PL_NONE;
		v[i].spread = INT64_MAX;
	}
	PL_TRY(find_partners(a, v, n, err));
	if (*usual < 0)
		PL_TRY(typical(v, n, usual, err));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = v[i].best;

		if (k == PL_NONE || k < i || v[k].best != i ||
		    !pl_clock_seq_near(v[i].spread, *usual))
			continue;
		PL_TRY(pl_clock_pair_streams(a, &v[i].s, &v[k].s, err));
		v[i].paired = v[k].paired = true;
		*found = true;
	}
out:
	return rc;
}

int pl_clock_infer_pairs(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct pick *p = NULL;
	struct pl_half_stream *v = NULL;
	uint32_t *ev = NULL, n = 0, comm_streams = 0;
	int64_t usual = -1;
	bool found = true;
	int rc;

	PL_TRY(pl_alloc(&p, a->n + 1, sizeof(*p), err));
	for (size_t i = 0; i < a->n; i++)
		if (a->ev[i].kind != PL_K_COLLECTIVE && a->ev[i].peer < 0)
			p[n++] = (struct pick){ a->ev[i].comm_stream, (uint32_t)i };
	if (!n)
		goto out;
	qsort(p, n, sizeof(*p), by_comm_stream);
	PL_TRY(pl_alloc(&ev, 2u * (size_t)n, sizeof(*ev), err));
	PL_TRY(pl_alloc(&v, n, sizeof(*v), err));
	for (uint32_t i = 0; i < n; i++) {
		ev[i] = p[i].ev;
		if (!i || p[i].comm_stream != p[i - 1].comm_stream)
			v[comm_streams++] = (struct pl_half_stream){
				.s = { ev + i, 0, a->ev[p[i].ev].rank, ev + n + i },
				.stream = a->comm_stream[p[i].comm_stream].stream,
			};
		v[comm_streams - 1].s.n++;
	}
	PL_TRY(pl_clock_stages(a, m, v, comm_streams, err));
	for (int round = 0; round < ROUNDS && found; round++)
		PL_TRY(pair_up(a, v, comm_streams, &usual, &found, err));
out:
	pl_free(p);
	pl_free(v);
	pl_free(ev);
	return rc;
}
