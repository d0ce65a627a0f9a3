/*
 * Sends and their receives. They are matched by source, destination, step and number where both
 * sides recorded numbers, else by order between the two ranks. Both sides are sorted and walked
 * together.
 */
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

struct half {
	int32_t src, dst;
	pl_id group;
	int64_t step, seq;
	uint32_t ev; /* ascending by (rank, time) */
};

static int by_pair(const struct half *p, const struct half *q)
{
	if (p->src != q->src)
		return p->src < q->src ? -1 : 1;
	if (p->dst != q->dst)
		return p->dst < q->dst ? -1 : 1;
	return p->group < q->group ? -1 : p->group > q->group;
}

static int by_pair_time(const void *x, const void *y)
{
	const struct half *p = x, *q = y;
	int c = by_pair(p, q);

	return c ? c : p->ev < q->ev ? -1 : p->ev > q->ev;
}

static int by_key(const struct half *p, const struct half *q)
{
	if (p->step != q->step)
		return p->step < q->step ? -1 : 1;
	return p->seq < q->seq ? -1 : p->seq > q->seq;
}

static int by_key_time(const void *x, const void *y)
{
	const struct half *p = x, *q = y;
	int c = by_key(p, q);

	return c ? c : p->ev < q->ev ? -1 : p->ev > q->ev;
}

static bool all_numbered(const struct half *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].seq == PL_NO_VALUE)
			return false;
	return true;
}

static bool all_stepped(const struct half *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].step == PL_NO_VALUE)
			return false;
	return true;
}

static void forget(struct half *v, size_t n, bool steps, bool seqs)
{
	for (size_t i = 0; i < n; i++) {
		if (!steps)
			v[i].step = PL_NO_VALUE;
		if (!seqs)
			v[i].seq = PL_NO_VALUE;
	}
}

static int put_pair(struct pl_align *a, uint32_t send, uint32_t recv, bool numbered,
		    struct pl_err *err)
{
	uint32_t ev[2] = { send, recv };

	return pl_clock_add_match(a, PL_NONE, PL_MATCH_P2P | (numbered ? 0 : PL_MATCH_INFERRED), ev,
				  2, err);
}

/* Halves with one key, as many as there are: by order, allowing for a missing head or tail. */
static int pair_in_order(struct pl_align *a, const struct half *s, size_t ns, const struct half *r,
			 size_t nr, bool numbered, struct pl_err *err)
{
	uint32_t *ev = NULL, at;
	struct pl_seq x, y;
	int rc;

	if (ns == 1 && nr == 1)
		return put_pair(a, s->ev, r->ev, numbered, err);
	PL_TRY(pl_alloc(&ev, ns + 2 * nr, sizeof(*ev), err));
	for (size_t i = 0; i < ns; i++)
		ev[i] = s[i].ev;
	for (size_t i = 0; i < nr; i++)
		ev[ns + i] = r[i].ev;
	x = (struct pl_seq){ ev, (uint32_t)ns, s->src, NULL };
	y = (struct pl_seq){ ev + ns, (uint32_t)nr, s->dst, ev + ns + nr };
	PL_TRY(pl_clock_seq_align(a, &x, &y, &at, err));
	if (at != PL_NONE)
		PL_TRY(pl_clock_diverged(a, "send and receive", x.ev[pl_min_size(at, ns - 1)],
					 x.rank, y.ev[at], err));
	for (size_t i = 0; i < nr; i++) {
		if (y.to[i] == PL_NONE)
			continue;
		PL_TRY(put_pair(a, x.ev[y.to[i]], y.ev[i], numbered, err));
	}
out:
	pl_free(ev);
	return rc;
}

/* All that went from one rank to another. */
static int match_pair(struct pl_align *a, struct half *s, size_t ns, struct half *r, size_t nr,
		      struct pl_err *err)
{
	bool steps = all_stepped(s, ns) && all_stepped(r, nr);
	bool seqs = all_numbered(s, ns) && all_numbered(r, nr);
	size_t i = 0, k = 0;
	int rc = 0;

	forget(s, ns, steps, seqs);
	forget(r, nr, steps, seqs);
	qsort(s, ns, sizeof(*s), by_key_time);
	qsort(r, nr, sizeof(*r), by_key_time);
	while (i < ns && k < nr) {
		size_t i1 = i, k1 = k;
		int c = by_key(&s[i], &r[k]);

		while (i1 < ns && !by_key(&s[i], &s[i1]))
			i1++;
		while (k1 < nr && !by_key(&r[k], &r[k1]))
			k1++;
		if (!c)
			PL_TRY(pair_in_order(a, s + i, i1 - i, r + k, k1 - k, seqs, err));
		i = c <= 0 ? i1 : i;
		k = c >= 0 ? k1 : k;
	}
out:
	return rc;
}

/* Do the two sides name groups alike? If not, groups do not help. */
static void drop_groups(struct half *s, size_t ns, struct half *r, size_t nr)
{
	pl_id p = PL_NONE, q = PL_NONE;

	for (size_t i = 0; i < ns; i++)
		p = s[i].group < p ? s[i].group : p;
	for (size_t i = 0; i < nr; i++)
		q = r[i].group < q ? r[i].group : q;
	if (p == q)
		return;
	for (size_t i = 0; i < ns; i++)
		s[i].group = PL_NONE;
	for (size_t i = 0; i < nr; i++)
		r[i].group = PL_NONE;
}

static size_t run_of(const struct half *v, size_t i, size_t n)
{
	size_t k = i;

	while (k < n && !by_pair(&v[i], &v[k]))
		k++;
	return k;
}

static int match_all(struct pl_align *a, struct half *s, size_t ns, struct half *r, size_t nr,
		     struct pl_err *err)
{
	size_t i = 0, k = 0;
	int rc = 0;

	drop_groups(s, ns, r, nr);
	qsort(s, ns, sizeof(*s), by_pair_time);
	qsort(r, nr, sizeof(*r), by_pair_time);
	while (i < ns && k < nr) {
		size_t i1 = run_of(s, i, ns), k1 = run_of(r, k, nr);
		int c = by_pair(&s[i], &r[k]);

		if (!c)
			PL_TRY(match_pair(a, s + i, i1 - i, r + k, k1 - k, err));
		i = c <= 0 ? i1 : i;
		k = c >= 0 ? k1 : k;
	}
out:
	return rc;
}

static int count_unmatched(struct pl_align *a, size_t matches0, struct pl_err *err)
{
	bool *paired = NULL;
	uint64_t *count;
	int rc;

	PL_TRY(pl_alloc(&paired, a->n + 1, sizeof(*paired), err));
	for (size_t i = matches0; i < a->n_matches; i++)
		for (uint32_t k = 0; k < a->match[i].n; k++)
			paired[a->member[a->match[i].first + k]] = true;
	for (size_t i = 0; i < a->n; i++) {
		if (a->ev[i].kind == PL_K_COLLECTIVE || paired[i])
			continue;
		count = a->ev[i].kind == PL_K_SEND ? &a->rep->unmatched_sends
						   : &a->rep->unmatched_recvs;
		++*count;
	}
out:
	pl_free(paired);
	return rc;
}

int pl_clock_p2p(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct half *s = NULL, *r = NULL;
	size_t ns = 0, nr = 0, matches0 = a->n_matches;
	int rc;

	PL_TRY(pl_alloc(&s, a->n + 1, sizeof(*s), err));
	PL_TRY(pl_alloc(&r, a->n + 1, sizeof(*r), err));
	for (size_t i = 0; i < a->n; i++) {
		const struct pl_comm *e = &a->ev[i];
		struct half h = { e->rank, e->peer, e->group, e->step, e->seq, (uint32_t)i };

		if (e->kind == PL_K_SEND && e->peer >= 0) {
			s[ns++] = h;
		} else if (e->kind == PL_K_RECV && e->peer >= 0) {
			h.src = e->peer;
			h.dst = e->rank;
			r[nr++] = h;
		}
	}
	PL_TRY(match_all(a, s, ns, r, nr, err));
	PL_TRY(pl_clock_infer_pairs(a, m, err));
	PL_TRY(count_unmatched(a, matches0, err));
out:
	pl_free(s);
	pl_free(r);
	return rc;
}
