/*
 * Sends and their receives. They are matched by source, destination, step and number where both
 * sides recorded numbers, else by order between the two ranks. Cost: sorting.
 */
#include <stdlib.h>

#include "clock/internal.h"

struct half {
	int32_t src, dst;
	pl_id group;
	bool recv;
	int64_t step, seq;
	uint32_t ev; /* ascending by (rank, time) */
};

PL_COMPARATOR(by_pair, struct half, src, dst, group, ev);

PL_COMPARATOR(by_key, struct half, step, seq, recv, ev);

/* Sends and receives of one key, the sends first: by order, allowing for a missing head or tail. */
static int pair_in_order(struct pl_align *a, const struct half *v, size_t n, bool numbered,
			 struct pl_err *err)
{
	uint32_t *ev = NULL, at, ns = 0;
	struct pl_seq x, y;
	int rc;

	while (ns < n && !v[ns].recv)
		ns++;
	if (!ns || ns == n)
		return 0;
	PL_TRY(pl_alloc(&ev, 2 * n, sizeof(*ev), err));
	for (size_t i = 0; i < n; i++)
		ev[i] = v[i].ev;
	x = (struct pl_seq){ ev, ns, v->src, NULL };
	y = (struct pl_seq){ ev + ns, (uint32_t)n - ns, v->dst, ev + n };
	at = pl_clock_seq_align(a, &x, &y);
	if (at != PL_NONE)
		PL_TRY(pl_clock_diverged(a, "send and receive", x.ev[pl_min_size(at, ns - 1)],
					 x.rank, y.ev[at], err));
	rc = pl_clock_add_pairs(a, &x, &y, numbered ? 0 : PL_MATCH_INFERRED, err);
out:
	pl_free(ev);
	return rc;
}

/* All that went from one rank to another. */
static int match_pair(struct pl_align *a, struct half *v, size_t n, struct pl_err *err)
{
	bool steps = true, seqs = true;

	for (size_t i = 0; i < n; i++) {
		steps &= v[i].step != PL_NO_VALUE;
		seqs &= v[i].seq != PL_NO_VALUE;
	}
	for (size_t i = 0; i < n; i++) {
		v[i].step = steps ? v[i].step : PL_NO_VALUE;
		v[i].seq = seqs ? v[i].seq : PL_NO_VALUE;
	}
	qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].step == v[i].step && v[k].seq == v[i].seq;)
			k++;
		PL_CHECK(pair_in_order(a, v + i, k - i, seqs, err));
	}
	return 0;
}

/* Do the two sides name groups alike? If not, groups do not help. */
static void drop_groups(struct half *v, size_t n)
{
	pl_id least[2] = { PL_NONE, PL_NONE };

	for (size_t i = 0; i < n; i++)
		if (v[i].group < least[v[i].recv])
			least[v[i].recv] = v[i].group;
	for (size_t i = 0; i < n && least[0] != least[1]; i++)
		v[i].group = PL_NONE;
}

int pl_clock_p2p(struct pl_align *a, struct pl_err *err)
{
	struct pl_clock_report *r = a->rep;
	struct half *v = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&v, a->n + 1, sizeof(*v), err));
	for (size_t i = 0; i < a->n; i++) {
		const struct pl_comm *e = &a->ev[i];
		bool recv = e->kind == PL_K_RECV;

		r->unmatched_sends += e->kind == PL_K_SEND;
		r->unmatched_recvs += recv;
		if (e->kind != PL_K_COLLECTIVE && e->peer >= 0)
			v[n++] = (struct half){ recv ? e->peer : e->rank,
						recv ? e->rank : e->peer,
						e->group,
						recv,
						e->step,
						e->seq,
						(uint32_t)i };
	}
	drop_groups(v, n);
	qsort(v, n, sizeof(*v), by_pair);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && !PL_COMPARE_FIELDS(&v[k], &v[i], src, dst, group);)
			k++;
		PL_TRY(match_pair(a, v + i, k - i, err));
	}
	PL_TRY(pl_clock_infer_peers(a, err));
	r->unmatched_sends -= r->p2p_matches;
	r->unmatched_recvs -= r->p2p_matches;
out:
	pl_free(v);
	return rc;
}
