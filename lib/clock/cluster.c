/*
 * Lanes that end together, as groups.
 *
 * Two lanes belong together when their ends jitter hardly more than those of the closest lanes do
 * (pl_lane_spread(): no clock needed) and neither ends before the other begins. Each lane joins the
 * closest group it fits, or starts one.
 *
 * Cost: lanes x groups comparisons of at most a thousand events; the group joined last and the next
 * one are tried first, which makes it lanes x 2 for the usual layouts.
 */
#include <stdlib.h>

#include "clock/cluster.h"

#define MAX_EARLY   0.1 /* share of impossible pairs that noise may cause */
#define ALL_PAIRS   64	/* up to so many lanes all pairs are looked at for the closest */
#define SAMPLE	    16	/* of more lanes, so many */
#define WIDER	    3	/* than the closest pairs: still the same group */
#define FLOOR_NS    1000
#define WIDER_BRIEF 2 /* greatest distances scatter less than medians */
#define SLACK_NS    3000

/* Can ends on the two clocks be compared as they are? */
static bool comparable(const struct pl_clusters *c, uint32_t p, uint32_t q)
{
	return c->clock && c->raft[p] == c->raft[q];
}

/* Greatest distance of aligned ends; INT64_MAX if one ends before the other begins. */
static int64_t direct(const struct pl_clusters *c, const struct pl_seq *x, const struct pl_seq *y,
		      int64_t shift)
{
	int64_t most = 0;

	for (int64_t i = shift < 0 ? -shift : 0; i < y->n && i + shift < x->n; i++) {
		const struct pl_comm *p = &c->a->ev[x->ev[i + shift]], *q = &c->a->ev[y->ev[i]];
		const struct pl_clock *cp = &c->clock[p->clock], *cq = &c->clock[q->clock];
		pl_ns p_end = pl_clock_apply(cp, p->end), q_end = pl_clock_apply(cq, q->end);
		int64_t d = pl_sub_sat(p_end, q_end);

		if (p_end < pl_sub_sat(pl_clock_apply(cq, q->ts), SLACK_NS) ||
		    q_end < pl_sub_sat(pl_clock_apply(cp, p->ts), SLACK_NS))
			return INT64_MAX;
		most = pl_max_i64(most, d < 0 ? pl_sub_sat(0, d) : d);
	}
	return most;
}

/* How far two lanes are apart; INT64_MAX: not one group. */
static int64_t distance(const struct pl_clusters *c, const struct pl_lane_node *x,
			const struct pl_lane_node *y)
{
	bool brief = pl_min_size(x->s.n, y->s.n) < PL_LANE_BRIEF;
	double early;
	int64_t shift, spread;

	if (x->s.rank == y->s.rank)
		return INT64_MAX;
	shift = pl_lane_shift(c->a, &x->s, &y->s, c->scratch);
	if (pl_lane_agreement(c->a, &x->s, &y->s, shift) < PL_LANE_AGREE)
		return INT64_MAX;
	if (brief && comparable(c, c->a->ev[x->s.ev[0]].clock, c->a->ev[y->s.ev[0]].clock))
		return direct(c, &x->s, &y->s, shift);
	spread = pl_lane_spread(c->a, &x->s, &y->s, shift, &early, c->scratch);
	if (early > MAX_EARLY)
		return INT64_MAX;
	return spread == INT64_MAX && !c->clock ? 0 : spread; /* too few to tell */
}

/* How far the nearest neighbour typically is. */
static int find_closest(struct pl_clusters *c, struct pl_err *err)
{
	uint32_t step = c->n > ALL_PAIRS ? c->n / SAMPLE : 1;
	int64_t *near;
	size_t n = 0;
	int rc = pl_alloc(&near, c->n / step + 1u, sizeof(*near), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < c->n; i += step) {
		int64_t best = INT64_MAX;

		for (uint32_t k = 0; k < c->n; k++)
			if (k != i)
				best = pl_min_i64(best, distance(c, &c->v[i], &c->v[k]));
		if (best < INT64_MAX)
			near[n++] = best;
	}
	c->closest = n ? pl_median_i64(near, n) : INT64_MAX;
	pl_free(near);
	return 0;
}

static bool has_rank(const struct pl_clusters *c, uint32_t cluster, uint32_t upto, int32_t rank)
{
	for (uint32_t i = 0; i < upto; i++)
		if (c->v[i].cluster == cluster && c->v[i].s.rank == rank)
			return true;
	return false;
}

/* The cluster for lane i: one that fits very well, else the one that fits best. */
static uint32_t choose(const struct pl_clusters *c, uint32_t i, uint32_t last)
{
	int64_t enough, best = INT64_MAX;
	uint32_t found = PL_NONE;

	if (c->closest > INT64_MAX / 8)
		return PL_NONE;
	enough = c->closest / 2 * 3;
	for (uint32_t k = 0; k < c->n_clusters; k++) {
		uint32_t g = (last + k) % c->n_clusters;
		int64_t d;

		if (has_rank(c, g, i, c->v[i].s.rank))
			continue;
		d = distance(c, &c->v[c->leader[g]], &c->v[i]);
		if (d < best) {
			best = d;
			found = g;
		}
		if (d <= enough && !c->clock)
			break;
	}
	return best <= (c->clock ? WIDER_BRIEF : WIDER) * c->closest + FLOOR_NS ? found : PL_NONE;
}

int pl_clusters_find(struct pl_clusters *c, struct pl_err *err)
{
	uint32_t last = 0;
	int rc;

	PL_TRY(pl_alloc(&c->leader, c->n, sizeof(*c->leader), err));
	PL_TRY(pl_alloc(&c->size, 2u * (size_t)c->n, sizeof(*c->size), err));
	PL_TRY(pl_alloc(&c->scratch, PL_LANE_SCRATCH, sizeof(*c->scratch), err));
	PL_TRY(find_closest(c, err));
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t g = choose(c, i, last);

		if (g == PL_NONE) {
			g = c->n_clusters++;
			c->leader[g] = i;
		}
		c->v[i].cluster = g;
		c->size[g]++;
		last = g;
	}
out:
	return rc;
}

/* ---- regular layouts ---------------------------------------------------------------------------
 */

/*
 * Jobs lay groups out regularly: `size` lanes, `stride` apart. Ranks that work in step can look
 * like one group, and some of them do and others do not; then clusters are ragged. If they are, and
 * a regular layout fits everywhere, the tightest does, and of equally tight ones the largest.
 */
struct layout {
	uint32_t size, stride;
	int64_t spread; /* typical distance of members from the first of their group; INT64_MAX: no
			   fit */
};

static uint32_t group_in(const struct layout *l, uint32_t i)
{
	return i / (l->stride * l->size) * l->stride + i % l->stride;
}

/* Lanes v[0..n) of the clusters, one a rank, in order of their ranks. */
static void measure(const struct pl_clusters *c, const struct pl_lane_node *v, uint32_t n,
		    struct layout *l, int64_t *tmp)
{
	size_t k = 0;

	l->spread = INT64_MAX;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = i - i % (l->stride * l->size) + i % l->stride;

		if (first == i)
			continue;
		tmp[k] = distance(c, &v[first], &v[i]);
		if (tmp[k++] == INT64_MAX)
			return;
	}
	if (k)
		l->spread = pl_median_i64(tmp, k);
}

/* Is [i, k) made of whole clusters, one lane a rank, and of different sizes? */
static bool is_ragged(const struct pl_clusters *c, uint32_t i, uint32_t k)
{
	bool ragged = false;

	for (uint32_t j = i; j < k; j++) {
		ragged |= c->size[c->v[j].cluster] != c->size[c->v[i].cluster];
		if (j > i && c->v[j].s.rank == c->v[j - 1].s.rank)
			return false;
	}
	for (uint32_t j = 0; j < c->n && ragged; j++)
		for (uint32_t m = i; m < k && (j < i || j >= k); m++)
			if (c->v[j].cluster == c->v[m].cluster)
				return false;
	return ragged;
}

static void use_layout(struct pl_clusters *c, uint32_t i, uint32_t k, const struct layout *l)
{
	for (uint32_t j = i; j < k; j++) {
		c->size[c->v[j].cluster]--;
		c->v[j].cluster = c->n_clusters + group_in(l, j - i);
		c->size[c->v[j].cluster]++;
	}
	c->n_clusters += (k - i) / l->size;
}

static int regularize(struct pl_clusters *c, uint32_t from, uint32_t to, struct pl_err *err)
{
	struct layout *all = NULL, *best = NULL;
	size_t n = 0, cap = 0;
	uint32_t lanes = to - from;
	int64_t *tmp = NULL, least = INT64_MAX;
	int rc;

	PL_TRY(pl_alloc(&tmp, lanes, sizeof(*tmp), err));
	for (uint32_t size = 2; size <= lanes; size++) {
		for (uint32_t stride = 1; lanes % size == 0 && stride * size <= lanes; stride++) {
			if (lanes % (size * stride))
				continue;
			PL_TRY(pl_grow(&all, &cap, n + 1, sizeof(*all), err));
			all[n] = (struct layout){ size, stride, INT64_MAX };
			measure(c, c->v + from, lanes, &all[n], tmp);
			least = pl_min_i64(least, all[n++].spread);
		}
	}
	for (size_t i = 0; i < n && least < INT64_MAX / 8; i++)
		if (all[i].spread <= least + least / 8 + FLOOR_NS / 4 &&
		    (!best || all[i].size > best->size ||
		     (all[i].size == best->size && all[i].spread < best->spread)))
			best = &all[i];
	if (best)
		use_layout(c, from, to, best);
out:
	pl_free(all);
	pl_free(tmp);
	return rc;
}

/* Of the lanes on each stream. */
int pl_clusters_regularize(struct pl_clusters *c, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0, k; i < c->n; i = k) {
		for (k = i + 1; k < c->n && c->v[k].stream == c->v[i].stream;)
			k++;
		if (is_ragged(c, i, k))
			PL_TRY(regularize(c, i, k, err));
	}
out:
	return rc;
}

void pl_clusters_fini(struct pl_clusters *c)
{
	pl_free(c->leader);
	pl_free(c->size);
	pl_free(c->scratch);
}
