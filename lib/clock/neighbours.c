/*
 * Peers of sends and receives that threads posted, where nobody recorded them: the ranks of a group
 * are a chain (a pipeline, whose stages exchange with the stages before and after) or a ring (each
 * rank sends to the next one).
 *
 * Data travels when both sides have posted. So of two partners, each ends after the other one
 * began. A thread mostly waits for what it receives at once, but for its sends later. So the lag is
 * short: the time from the later begin to the end of the receive, and a part of that to the end of
 * the send. In a chain the first rank exchanges only with the second one. So its partners are a
 * subsequence of the events of the second rank: the subsequence with the least sum of lags. The
 * other events of the second rank are with the third one, and so on; no event of the last rank may
 * be left. In a ring the n-th send of a rank is the n-th receive of the next one.
 *
 * Groups are those that the headers list, or else all ranks. Of several that contain a rank, the
 * one with the least mean lag is used, and rings before chains, which fit more. Times of different
 * clocks do not tell lags, so only ranks of one clock are looked at. Cost: for each link of each
 * chain the product of the events of its two ranks, memory as well.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"

#define LARGEST	    ((size_t)1 << 26) /* a product of events that takes too long */
#define SEND_WEIGHT 16		      /* the end of a send counts so much less */
#define SLACK_NS    50000	      /* times of threads are rounded and late */

struct ends { /* sends or receives of a rank that have no peer yet */
	uint32_t *ev;
	uint32_t n;
};

struct layout { /* how the ranks of a group may be joined */
	const int32_t *rank;
	uint32_t n;
	bool ring;
	int32_t *peer; /* of each of neighbours.ev, -1: it has none */
	double lag;    /* mean */
};

struct neighbours {
	struct pl_align *a;
	struct ends *all; /* by rank of the input, sends and receives */
	struct ends *end; /* what is left of them while a layout is tried */
	uint32_t *ev;	  /* all of all[].ev, n of them */
	uint32_t *left;	  /* all of end[].ev */
	uint32_t *place;  /* of each event, in ev */
	uint32_t n;
	struct layout *layout;
	size_t n_layouts;
};

/* INT64_MAX: the two cannot be partners. */
static int64_t lag_of(const struct pl_align *a, uint32_t i, uint32_t k)
{
	const struct pl_comm *x = &a->ev[i], *y = &a->ev[k];
	const struct pl_comm *send = x->kind == PL_K_SEND ? x : y, *recv = x == send ? y : x;
	pl_ns begin = pl_max_i64(x->ts, y->ts);
	int64_t late = pl_sub_sat(recv->end, begin), sent = pl_sub_sat(send->end, begin);

	if (x->clock != y->clock || pl_min_i64(late, sent) < -SLACK_NS ||
	    !pl_clock_seq_same(a, i, k))
		return INT64_MAX;
	return pl_max_i64(late, 0) + pl_max_i64(sent, 0) / SEND_WEIGHT;
}

static uint32_t rank_index(const struct pl_align *a, int32_t rank)
{
	return pl_intern_find(&a->rank_seen, (const char *)&rank, sizeof(rank));
}

static struct ends *ends_of(const struct neighbours *g, int32_t rank, bool recv)
{
	return &g->end[2 * rank_index(g->a, rank) + recv];
}

static void pair(const struct neighbours *g, struct layout *l, uint32_t i, uint32_t k)
{
	l->peer[g->place[i]] = g->a->ev[k].rank;
	l->peer[g->place[k]] = g->a->ev[i].rank;
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* The subsequence of y that fits all of x with the least sum of lags; it is taken out of y. *sum:
 * INT64_MAX if there is none. */
static int take_partners(const struct neighbours *g, struct layout *l, const struct ends *x,
			 struct ends *y, int64_t *sum, struct pl_err *err)
{
	size_t width = y->n + (size_t)1;
	uint8_t *take = NULL; /* [x][y]: y is the partner of x */
	/* of the first i of x in the first k of y: [k], for one i, and for the i before */
	int64_t *cost = NULL;
	uint32_t k = y->n, left = 0;
	int rc = 0;

	*sum = INT64_MAX;
	if (x->n > y->n || x->n * width > LARGEST)
		return 0;
	PL_TRY(pl_alloc(&take, x->n * width + 1, 1, err));
	PL_TRY(pl_alloc(&cost, 2 * width, sizeof(*cost), err));
	for (uint32_t i = 0; i < x->n; i++) {
		int64_t *last = cost + i % 2 * width, *now = cost + (i + 1) % 2 * width;

		now[0] = INT64_MAX;
		for (uint32_t j = 0; j < y->n; j++) {
			int64_t lag = lag_of(g->a, x->ev[i], y->ev[j]),
				with = pl_add_sat(last[j], lag);

			take[i * width + j] = with < now[j];
			now[j + 1] = pl_min_i64(with, now[j]);
		}
	}
	*sum = cost[x->n % 2 * width + y->n];
	if (*sum == INT64_MAX)
		goto out;
	for (uint32_t i = x->n; i-- > 0;) {
		while (!take[i * width + --k])
			;
		pair(g, l, x->ev[i], y->ev[k]);
	}
	for (uint32_t j = 0; j < y->n; j++)
		if (l->peer[g->place[y->ev[j]]] < 0)
			y->ev[left++] = y->ev[j];
	y->n = left;
out:
	pl_free(take);
	pl_free(cost);
	return rc;
}

/* The chain of the ranks. Uses up the lists of their ends. */
static int try_chain(const struct neighbours *g, struct layout *l, struct pl_err *err)
{
	const struct ends *last = ends_of(g, l->rank[l->n - 1], false);
	int64_t sum, total = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i + 1 < l->n && total < INT64_MAX; i++) {
		for (int recv = 0; recv < 2; recv++) {
			const struct ends *x = ends_of(g, l->rank[i], recv);

			PL_CHECK(take_partners(g, l, x, ends_of(g, l->rank[i + 1], !recv), &sum,
					       err));
			total = pl_add_sat(total, sum);
			count += x->n;
		}
	}
	if (total < INT64_MAX && count && !last[0].n && !last[1].n)
		l->lag = (double)total / count;
	return 0;
}

/* ---- rings ----------------------------------------------------------------------------------- */

static void try_ring(const struct neighbours *g, struct layout *l)
{
	int64_t total = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < l->n; i++) {
		const struct ends *x = ends_of(g, l->rank[i], false);
		const struct ends *y = ends_of(g, l->rank[(i + 1) % l->n], true);

		if (x->n != y->n)
			return;
		for (uint32_t k = 0; k < x->n; k++) {
			total = pl_add_sat(total, lag_of(g->a, x->ev[k], y->ev[k]));
			pair(g, l, x->ev[k], y->ev[k]);
		}
		count += x->n;
	}
	if (total < INT64_MAX && count)
		l->lag = (double)total / count;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The ends of all ranks that have no peer, in order of time. */
static void list_ends(struct neighbours *g)
{
	const struct pl_align *a = g->a;

	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < a->n; i++) {
			const struct pl_comm *e = &a->ev[i];
			size_t rank = rank_index(a, e->rank);
			struct ends *x = &g->all[2 * rank + (e->kind == PL_K_RECV)];

			if (!pl_clock_is_posted(a, e) || e->peer >= 0)
				continue;
			if (pass) {
				x->ev[x->n] = i;
				g->place[i] = (uint32_t)(x->ev + x->n - g->ev);
			}
			x->n++;
		}
		for (size_t i = 0; !pass && i < 2 * a->rank_seen.n; i++) {
			g->all[i].ev = g->ev + g->n;
			g->end[i].ev = g->left + g->n;
			g->n += g->all[i].n;
			g->all[i].n = 0;
		}
	}
}

/* Puts back the ends of the ranks of a layout. False: they have none. */
static bool put_back(struct neighbours *g, const struct layout *l)
{
	bool any = false;

	for (uint32_t i = 0; i < l->n; i++)
		for (int recv = 0; recv < 2; recv++) {
			struct ends *x = ends_of(g, l->rank[i], recv);
			const struct ends *from = &g->all[x - g->end];

			x->n = from->n;
			for (uint32_t k = 0; k < x->n; k++)
				x->ev[k] = from->ev[k];
			any |= x->n > 0;
		}
	return any;
}

static int try_layout(struct neighbours *g, const int32_t *rank, uint32_t n, bool ring,
		      struct pl_err *err)
{
	struct layout *l = &g->layout[g->n_layouts];
	int rc = 0;

	*l = (struct layout){ .rank = rank, .n = n, .ring = ring, .lag = INFINITY };
	for (uint32_t i = 0; i < n; i++)
		if (!pl_clock_has_rank(g->a, rank[i]))
			return 0;
	if (!put_back(g, l))
		return 0;
	PL_CHECK(pl_alloc(&l->peer, g->n, sizeof(*l->peer), err));
	memset(l->peer, 0xff, g->n * sizeof(*l->peer));
	if (ring)
		try_ring(g, l);
	else
		rc = try_chain(g, l, err);
	if (rc >= 0 && l->lag < INFINITY)
		g->n_layouts++;
	else
		pl_free(l->peer);
	return rc;
}

static int by_lag(const void *pa, const void *pb)
{
	const struct layout *a = pa, *b = pb;

	return a->ring != b->ring ? PL_COMPARE(b->ring, a->ring) : PL_COMPARE(a->lag, b->lag);
}

/* Peers from the likeliest layouts, each rank in one of them. */
static void use_layouts(struct neighbours *g)
{
	struct pl_align *a = g->a;

	pl_sort(g->layout, g->n_layouts, sizeof(*g->layout), by_lag);
	for (size_t k = 0; k < g->n_layouts; k++) {
		const struct layout *l = &g->layout[k];
		bool is_free = true;

		for (uint32_t i = 0; i < g->n && is_free; i++)
			is_free = l->peer[i] < 0 || a->ev[g->ev[i]].peer < 0;
		for (uint32_t i = 0; i < g->n && is_free; i++)
			if (l->peer[i] >= 0)
				a->ev[g->ev[i]].peer = l->peer[i];
	}
}

int pl_clock_infer_neighbours(struct pl_align *a, struct pl_err *err)
{
	struct neighbours g = { .a = a };
	int32_t *all = NULL;
	size_t ranks = a->rank_seen.n;
	int rc;

	PL_TRY(pl_alloc(&g.end, 2 * ranks + 2, sizeof(*g.end), err));
	PL_TRY(pl_alloc(&g.all, 2 * ranks + 2, sizeof(*g.all), err));
	PL_TRY(pl_alloc(&g.ev, a->n + 1, sizeof(*g.ev), err));
	PL_TRY(pl_alloc(&g.left, a->n + 1, sizeof(*g.left), err));
	PL_TRY(pl_alloc(&g.place, a->n + 1, sizeof(*g.place), err));
	PL_TRY(pl_alloc(&all, ranks + 1, sizeof(*all), err));
	PL_TRY(pl_alloc(&g.layout, 2 * a->rank_sets.n + 2, sizeof(*g.layout), err));
	list_ends(&g);
	if (!g.n)
		goto out;
	for (size_t i = 0; i < ranks; i++)
		memcpy(&all[i], a->rank_seen.str[i], sizeof(*all));
	qsort(all, ranks, sizeof(*all), pl_compare_i32);
	for (int ring = 0; ring < 2; ring++) {
		for (pl_id s = 0; s < a->rank_sets.n; s++) {
			uint32_t n;
			const int32_t *rank = pl_clock_listed_ranks(a, s, &n);

			if (n > 1)
				PL_TRY(try_layout(&g, rank, n, ring, err));
		}
		if (!a->rank_sets.n && ranks > 1)
			PL_TRY(try_layout(&g, all, (uint32_t)ranks, ring, err));
	}
	use_layouts(&g);
out:
	for (size_t i = 0; g.layout && i < g.n_layouts; i++)
		pl_free(g.layout[i].peer);
	pl_free(g.layout);
	pl_free(g.all);
	pl_free(g.end);
	pl_free(g.ev);
	pl_free(g.left);
	pl_free(g.place);
	pl_free(all);
	return rc;
}
