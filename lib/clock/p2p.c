/*
 * Sends and their receives. They are matched by source, destination and number where both sides
 * recorded numbers, else by order between the two ranks, in each step if steps are recorded. A rank
 * may count the steps differently from its peer: then order alone is used. Cost: sorting.
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

PL_COMPARATOR(by_number, struct half, seq, recv, ev);

PL_COMPARATOR(by_order, struct half, recv, ev);

/* Sends and receives of one key, in order. */
struct pairs {
	uint32_t *ev; /* to be freed */
	struct pl_seq x, y;
	uint32_t differs; /* place in y, PL_NONE */
};

/* Pair v[0..n), the sends first, allowing for a missing head or tail. Without sends or receives ev
 * stays NULL. */
static int find_pairs(struct pl_align *a, const struct half *v, size_t n, struct pairs *p,
		      struct pl_err *err)
{
	uint32_t ns = 0;

	memset(p, 0, sizeof(*p));
	while (ns < n && !v[ns].recv)
		ns++;
	if (!ns || ns == n)
		return 0;
	PL_CHECK(pl_alloc(&p->ev, 2 * n, sizeof(*p->ev), err));
	for (size_t i = 0; i < n; i++)
		p->ev[i] = v[i].ev;
	p->x = (struct pl_seq){ p->ev, ns, v->src, NULL };
	p->y = (struct pl_seq){ p->ev + ns, (uint32_t)n - ns, v->dst, p->ev + n };
	p->differs = pl_clock_seq_align(a, &p->x, &p->y);
	return 0;
}

static size_t same_key(const struct half *v, size_t n)
{
	size_t k = 1;

	while (k < n && v[k].step == v->step && v[k].seq == v->seq)
		k++;
	return k;
}

static int pair_in_order(struct pl_align *a, const struct half *v, size_t n, bool numbered,
			 struct pl_err *err)
{
	struct pairs p;
	int rc;

	PL_TRY(find_pairs(a, v, n, &p, err));
	if (!p.ev)
		return 0;
	if (p.differs != PL_NONE)
		PL_TRY(pl_clock_diverged(a, "send and receive",
					 p.x.ev[pl_min_size(p.differs, p.x.n - 1)], p.x.rank,
					 p.y.ev[p.differs], err));
	rc = pl_clock_add_pairs(a, &p.x, &p.y, numbered ? 0 : PL_MATCH_INFERRED, err);
out:
	pl_free(p.ev);
	return rc;
}

/* How well v[0..n), sorted by key, goes together. */
struct fit {
	uint64_t pairs, impossible; /* the receive ends before the send begins */
	double delay;		    /* of the other ones, all together, ns */
};

static int add_fit(struct pl_align *a, const struct half *v, size_t n, struct fit *f,
		   struct pl_err *err)
{
	struct pairs p;

	PL_CHECK(find_pairs(a, v, n, &p, err));
	for (uint32_t i = 0; i < p.y.n; i++) {
		pl_ns d;

		if (p.y.to[i] == PL_NONE)
			continue;
		d = pl_sub_sat(a->ev[p.y.ev[i]].end, a->ev[p.x.ev[p.y.to[i]]].ts);
		f->pairs++;
		f->impossible += d < 0;
		f->delay += d < 0 ? 0 : (double)d;
	}
	pl_free(p.ev);
	return 0;
}

/* Does the order alone leave fewer without a partner than the order in each step, and fit the times
 * of the one clock at least as well? Sorts v[0..n). */
static int steps_mislead(struct pl_align *a, struct half *v, size_t n, bool *yes,
			 struct pl_err *err)
{
	struct fit by_step = { 0 }, plain = { 0 };

	*yes = false;
	for (size_t i = 1; i < n; i++)
		if (a->ev[v[i].ev].clock != a->ev[v->ev].clock)
			return 0;
	qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 0, k; i < n; i += k) {
		k = same_key(v + i, n - i);
		PL_CHECK(add_fit(a, v + i, k, &by_step, err));
	}
	qsort(v, n, sizeof(*v), by_order);
	PL_CHECK(add_fit(a, v, n, &plain, err));
	*yes = by_step.pairs && plain.pairs > by_step.pairs &&
	       plain.impossible <= by_step.impossible &&
	       plain.delay * (double)(by_step.pairs - by_step.impossible) <=
		       by_step.delay * (double)(plain.pairs - plain.impossible);
	*yes |= plain.pairs >= by_step.pairs && plain.impossible < by_step.impossible;
	return 0;
}

/* Does one side have a number twice? Sorts v[0..n). */
static bool number_repeats(struct half *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_number);
	for (size_t i = 1; i < n; i++)
		if (!PL_COMPARE_FIELDS(&v[i], &v[i - 1], seq, recv))
			return true;
	return false;
}

/* All that went from one rank to another. */
static int match_pair(struct pl_align *a, struct half *v, size_t n, struct pl_err *err)
{
	bool steps = true, seqs = true, mislead = false;

	for (size_t i = 0; i < n; i++) {
		steps &= v[i].step != PL_NO_VALUE;
		seqs &= v[i].seq != PL_NO_VALUE;
	}
	for (size_t i = 0; i < n && !seqs; i++)
		v[i].seq = PL_NO_VALUE;
	if (steps && seqs)
		steps = number_repeats(v, n);
	else if (steps)
		PL_CHECK(steps_mislead(a, v, n, &mislead, err));
	for (size_t i = 0; i < n && (!steps || mislead); i++)
		v[i].step = PL_NO_VALUE;
	qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 0, k; i < n; i += k) {
		k = same_key(v + i, n - i);
		PL_CHECK(pair_in_order(a, v + i, k, seqs, err));
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

/* ---- peers that are places in a group ---------------------------------------------------------
 */

/* How many sends or receives of threads a rank has with one peer, as recorded. */
struct place {
	int32_t rank, peer;
	bool recv;
	uint32_t n;
};

PL_COMPARATOR(by_place, struct place, rank, peer, recv);

static bool is_place(const struct pl_align *a, const struct pl_comm *e)
{
	return pl_clock_is_posted(a, e) && e->group == PL_NONE && e->ranks == PL_NONE &&
	       e->peer >= 0;
}

static size_t count_places(const struct pl_align *a, struct place *v)
{
	size_t n = 0, k = 0;

	for (size_t i = 0; i < a->n; i++)
		if (is_place(a, &a->ev[i]))
			v[n++] = (struct place){ a->ev[i].rank, a->ev[i].peer,
						 a->ev[i].kind == PL_K_RECV, 1 };
	pl_sort(v, n, sizeof(*v), by_place);
	for (size_t i = 0; i < n; i++) {
		if (k && !by_place(&v[k - 1], &v[i]))
			v[k - 1].n++;
		else
			v[k++] = v[i];
	}
	return k;
}

/* Does each rank of the group receive from another one as often as that one sends, if peers are
 * places in it? Ranks that are not in the input may do anything. */
static bool is_group_of(const struct pl_align *a, const struct place *v, size_t n,
			const int32_t *rank, uint32_t n_ranks)
{
	bool any = false;

	for (uint32_t i = 0; i < n_ranks; i++) {
		size_t k = 0;

		PL_LOWER_BOUND(k, n, v[k].rank < rank[i]);
		for (; k < n && v[k].rank == rank[i]; k++) {
			const struct place *p = &v[k], *q;
			struct place other = { .peer = (int32_t)i, .recv = !p->recv };

			if ((uint32_t)p->peer >= n_ranks || (uint32_t)p->peer == i)
				return false;
			other.rank = rank[p->peer];
			q = bsearch(&other, v, n, sizeof(*v), by_place);
			if (pl_clock_has_rank(a, other.rank) && (!q || q->n != p->n))
				return false;
			any = true;
		}
	}
	return any;
}

/*
 * PyTorch writes the peer as a place in the process group, which it does not name. If the groups
 * that the headers list fit the counts of sends and receives, peers become ranks of the job.
 */
static int settle_places(struct pl_align *a, struct pl_err *err)
{
	struct place *v = NULL;
	pl_id *set = NULL; /* by rank of the input: in which group peers are places, PL_NONE */
	size_t n;
	int rc;

	if (!a->rank_sets.n)
		return 0;
	PL_TRY(pl_alloc(&v, a->n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&set, a->rank_seen.n + 1, sizeof(*set), err));
	n = count_places(a, v);
	for (size_t i = 0; i < a->rank_seen.n; i++)
		set[i] = PL_NONE;
	for (pl_id s = 0; n && s < a->rank_sets.n; s++) {
		uint32_t members;
		const int32_t *rank = pl_clock_listed_ranks(a, s, &members);

		if (!is_group_of(a, v, n, rank, members))
			continue;
		for (uint32_t i = 0; i < members; i++)
			if (pl_clock_has_rank(a, rank[i]))
				set[pl_intern_find(&a->rank_seen, (const char *)&rank[i],
						   sizeof(*rank))] = s;
	}
	for (size_t i = 0; n && i < a->n; i++) {
		struct pl_comm *e = &a->ev[i];
		pl_id s =
			set[pl_intern_find(&a->rank_seen, (const char *)&e->rank, sizeof(e->rank))];
		uint32_t members;

		if (s != PL_NONE && is_place(a, e))
			e->peer = pl_clock_listed_ranks(a, s, &members)[e->peer];
	}
out:
	pl_free(v);
	pl_free(set);
	return rc;
}

/* In a job of two ranks, the peer of a thread's send or receive is the other rank. */
static void find_only_peers(struct pl_align *a)
{
	int32_t rank[2];

	if (a->rank_seen.n != 2 || (a->world > 0 && a->world != 2))
		return;
	for (uint32_t i = 0; i < 2; i++)
		memcpy(&rank[i], a->rank_seen.str[i], sizeof(rank[i]));
	for (size_t i = 0; i < a->n; i++) {
		struct pl_comm *e = &a->ev[i];

		if (pl_clock_is_posted(a, e) && e->peer < 0)
			e->peer = rank[e->rank == rank[0]];
	}
}

int pl_clock_p2p(struct pl_align *a, struct pl_err *err)
{
	struct pl_clock_report *r = a->rep;
	struct half *v = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(settle_places(a, err));
	find_only_peers(a);
	PL_TRY(pl_clock_infer_neighbours(a, err));
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
