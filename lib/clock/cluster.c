/*
 * Streams that end together, as groups.
 *
 * Two streams belong together if the jitter between their ends is hardly larger than between the
 * closest streams (pl_clock_seq_spread() needs no clock), and neither ends before the other begins.
 * Each stream joins the closest group that it fits, or starts a new group.
 *
 * Cost: streams x groups comparisons of at most a thousand events; the group joined last and the
 * next one are tried first, which makes it streams x 2 for the usual layouts.
 */
#include <stdlib.h>
#include <string.h>

#include "clock/cluster.h"

#define MAX_EARLY  0.1 /* share of impossible pairs that noise may cause */
#define ALL_PAIRS  64  /* up to so many streams all pairs are looked at for the closest */
#define SAMPLE	   16  /* of more streams, so many */
#define SLACK_NS   3000
#define TIE_NS	   250	 /* layouts that are equally tight */
#define FAR_APART  10	 /* times the closest pairs: surely not one group */
#define JITTERY_NS 20000 /* ends that a processor had to be found for; a device's are closer */

/* Can ends on the two clocks be compared as they are? */
static bool comparable(const struct pl_clusters *c, uint32_t p, uint32_t q)
{
	return c->clock && c->component[p] == c->component[q];
}

/* Greatest distance of aligned ends; INT64_MAX if one ends before the other begins. */
static int64_t direct(const struct pl_clusters *c, const struct pl_seq *x, const struct pl_seq *y,
		      int64_t shift)
{
	int64_t most = 0;

	for (int64_t i = shift < 0 ? -shift : 0; i < y->n && i + shift < x->n; i++) {
		const struct pl_comm *p = &c->a->ev[x->ev[i + shift]], *q = &c->a->ev[y->ev[i]];
		const struct pl_clock *cp = &c->clock[p->clock], *cq = &c->clock[q->clock];
		pl_ns p_end = pl_trace_clock_apply(cp, p->end),
		      q_end = pl_trace_clock_apply(cq, q->end);
		int64_t d = pl_sub_sat(p_end, q_end);

		if (p_end < pl_sub_sat(pl_trace_clock_apply(cq, q->ts), SLACK_NS) ||
		    q_end < pl_sub_sat(pl_trace_clock_apply(cp, p->ts), SLACK_NS))
			return INT64_MAX;
		most = pl_max_i64(most, d < 0 ? pl_sub_sat(0, d) : d);
	}
	return most;
}

/* The distance of two streams; INT64_MAX: not one group. */
static int64_t distance(const struct pl_clusters *c, const struct pl_clock_node *x,
			const struct pl_clock_node *y)
{
	bool is_short = pl_min_size(x->s.n, y->s.n) < PL_SEQ_SHORT;
	double early = 0;
	int64_t shift, spread;

	if (is_short && comparable(c, c->a->ev[x->s.ev[0]].clock, c->a->ev[y->s.ev[0]].clock)) {
		shift = pl_clock_seq_shift(c->a, &x->s, &y->s, c->scratch);
		return x->s.rank != y->s.rank && pl_clock_seq_alike(c->a, &x->s, &y->s, shift)
			       ? direct(c, &x->s, &y->s, shift)
			       : INT64_MAX;
	}
	if (!pl_clock_seq_distance(c->a, &x->s, &y->s, &spread, &early, c->scratch) ||
	    early > MAX_EARLY)
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

/* The cluster for stream i: one that fits very well, else the one that fits best. */
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
	return pl_clock_seq_near(best, c->closest) ? found : PL_NONE;
}

int pl_clock_clusters_find(struct pl_clusters *c, struct pl_err *err)
{
	uint32_t last = 0;
	int rc;

	PL_TRY(pl_alloc(&c->leader, c->n, sizeof(*c->leader), err));
	PL_TRY(pl_alloc(&c->size, 2u * (size_t)c->n, sizeof(*c->size), err));
	PL_TRY(pl_alloc(&c->scratch, PL_SEQ_SCRATCH, sizeof(*c->scratch), err));
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
 * Groups of a job are usually regular: `size` streams at a distance of `stride`. Ranks that work in
 * step can look like one group. If only some of them do, the clusters have different sizes. In this
 * case, if a regular layout fits all streams, the one with the least spread is used, and the
 * largest of those with equal spread.
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

/* Streams v[0..n) of the clusters, one a rank, in order of their ranks. */
static void measure(const struct pl_clusters *c, const struct pl_clock_node *v, uint32_t n,
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
	if (k && pl_clock_seq_near(pl_median_i64(tmp, k), c->closest))
		l->spread = pl_median_i64(tmp, k);
}

/* Is [i, k) made of whole clusters, one stream a rank, and of different sizes? */
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
	uint32_t comm_streams = to - from;
	int64_t *tmp = NULL, least = INT64_MAX;
	int rc;

	PL_TRY(pl_alloc(&tmp, comm_streams, sizeof(*tmp), err));
	for (uint32_t size = 2; size <= comm_streams; size++) {
		for (uint32_t stride = 1; comm_streams % size == 0 && stride * size <= comm_streams;
		     stride++) {
			if (comm_streams % (size * stride))
				continue;
			PL_TRY(pl_grow(&all, &cap, n + 1, sizeof(*all), err));
			all[n] = (struct layout){ size, stride, INT64_MAX };
			measure(c, c->v + from, comm_streams, &all[n], tmp);
			least = pl_min_i64(least, all[n++].spread);
		}
	}
	for (size_t i = 0; i < n && least < INT64_MAX / 8; i++)
		if (all[i].spread <= least + least / 8 + TIE_NS &&
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

/* Of the streams on each stream. */
int pl_clock_clusters_regularize(struct pl_clusters *c, struct pl_err *err)
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

/* ---- groups that headers list ------------------------------------------------------------------
 */

struct trim { /* the new clusters */
	struct pl_clusters *c;
	uint32_t *to, n;       /* of each stream: its new cluster, PL_NONE */
	uint32_t *comm_stream; /* scratch */
};

static bool is_present(const struct pl_align *a, int32_t rank)
{
	return pl_intern_find(&a->rank_seen, (const char *)&rank, sizeof(rank)) != PL_NONE;
}

static bool is_in(const int32_t *v, uint32_t n, int32_t rank)
{
	uint32_t i = 0; /* ascending */

	PL_LOWER_BOUND(i, n, v[i] < rank);
	return i < n && v[i] == rank;
}

/* Counts the streams left in the cluster of stream i; *within: those of ranks v[0..n). */
static uint32_t count_left(const struct trim *t, uint32_t i, const int32_t *v, uint32_t n,
			   uint32_t *within)
{
	const struct pl_clock_node *x = t->c->v;
	uint32_t left = 0;

	*within = 0;
	for (uint32_t k = 0; k < t->c->n; k++) {
		if (t->to[k] != PL_NONE || x[k].cluster != x[i].cluster)
			continue;
		left++;
		*within += is_in(v, n, x[k].s.rank);
	}
	return left;
}

/* The streams of a listed set on the stream of stream i, all that do the same as it, into
 * t->stream; their number, 0 if a rank in the input has none. Streams of a stream are by rank. */
static uint32_t listed_streams(struct trim *t, uint32_t i, const int32_t *v, uint32_t n)
{
	const struct pl_clock_node *x = t->c->v;
	uint32_t found = 0, present = 0;

	for (uint32_t k = 0; k < t->c->n; k++)
		if (t->to[k] == PL_NONE && x[k].stream == x[i].stream && is_in(v, n, x[k].s.rank) &&
		    (!found || x[t->comm_stream[found - 1]].s.rank != x[k].s.rank) &&
		    pl_clock_seq_alike(t->c->a, &x[i].s, &x[k].s, 0))
			t->comm_stream[found++] = k;
	for (uint32_t m = 0; m < n; m++)
		present += is_present(t->c->a, v[m]);
	return found == present ? found : 0;
}

static void make_cluster(struct trim *t, uint32_t found)
{
	for (uint32_t k = 0; k < found; k++)
		t->to[t->comm_stream[k]] = t->n;
	t->n++;
}

enum fit {
	EXACTLY,
	HOLDS, /* the set holds the cluster */
	HELD,  /* the cluster the set */
};

/* Take stream i and the others of the best listed set that fits its cluster so. */
static bool take(struct trim *t, uint32_t i, enum fit fit)
{
	const struct pl_listed *l;
	uint32_t n = pl_clock_listed_of(t->c->a, t->c->v[i].s.rank, &l), best = PL_NONE, size = 0;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t ranks, within, left, found;
		const int32_t *v = pl_clock_listed_ranks(t->c->a, l[k].set, &ranks);

		left = count_left(t, i, v, ranks, &within);
		if (fit != HELD && within < left)
			continue;
		found = listed_streams(t, i, v, ranks);
		if (found < 2 || (fit != HOLDS && found != within) ||
		    (best != PL_NONE && (fit == HOLDS ? found >= size : found <= size)))
			continue;
		best = k;
		size = found;
	}
	if (best != PL_NONE) {
		const int32_t *v = pl_clock_listed_ranks(t->c->a, l[best].set, &n);

		make_cluster(t, listed_streams(t, i, v, n));
	}
	return best != PL_NONE;
}

static void trim(struct trim *t, uint32_t *changed)
{
	struct pl_clusters *c = t->c;
	const struct pl_listed *l;

	for (uint32_t i = 0; i < c->n; i++)
		if (t->to[i] == PL_NONE && c->size[c->v[i].cluster] > 1)
			take(t, i, EXACTLY);
	for (uint32_t i = 0; i < c->n; i++) {
		if (t->to[i] != PL_NONE || c->size[c->v[i].cluster] < 2 ||
		    !pl_clock_listed_of(c->a, c->v[i].s.rank, &l))
			continue;
		if (take(t, i, HOLDS) || take(t, i, HELD)) {
			(*changed)++;
		} else {
			t->comm_stream[0] = i;
			make_cluster(t, 1);
		}
	}
	for (uint32_t i = 0; i < c->n; i++) { /* alone, or of ranks for which nothing is listed */
		uint32_t found = 0;

		for (uint32_t k = i; k < c->n && t->to[i] == PL_NONE; k++)
			if (t->to[k] == PL_NONE && c->v[k].cluster == c->v[i].cluster)
				t->comm_stream[found++] = k;
		if (found)
			make_cluster(t, found);
	}
}

int pl_clock_clusters_listed(struct pl_clusters *c, uint32_t *changed, struct pl_err *err)
{
	pl_id both = pl_intern_find(&c->a->str, "sendrecv", sizeof("sendrecv") - 1);
	struct trim t = { .c = c };
	int rc = 0;

	*changed = 0;
	/* exchanges are between some of a group */
	if (!c->a->n_listed || !c->n || (both != PL_NONE && c->a->ev[c->v[0].s.ev[0]].coll == both))
		return 0;
	PL_TRY(pl_alloc(&t.to, c->n, sizeof(*t.to), err));
	PL_TRY(pl_alloc(&t.comm_stream, c->n, sizeof(*t.comm_stream), err));
	memset(t.to, 0xff, c->n * sizeof(*t.to));
	trim(&t, changed);
	memset(c->size, 0, c->n * sizeof(*c->size));
	for (uint32_t i = c->n; i-- > 0;) {
		c->v[i].cluster = t.to[i];
		c->leader[t.to[i]] = i;
		c->size[t.to[i]]++;
	}
	c->n_clusters = t.n;
out:
	pl_free(t.to);
	pl_free(t.comm_stream);
	return rc;
}

/* ---- doubts ------------------------------------------------------------------------------------
 */

/* Could the streams of x and y be of one group after all? */
static bool could_be_one(const struct pl_clusters *c, const struct pl_clock_node *x,
			 const struct pl_clock_node *y)
{
	double early;
	int64_t d;

	if (c->closest < JITTERY_NS || x->stream != y->stream || x->s.rank == y->s.rank ||
	    x->s.n != y->s.n || pl_clock_seq_agreement(c->a, &x->s, &y->s, 0) < 1)
		return false;
	d = pl_clock_seq_spread(c->a, &x->s, &y->s, 0, &early, c->scratch);
	return early <= 0 && d / FAR_APART <= c->closest;
}

uint32_t pl_clock_clusters_doubtful(const struct pl_clusters *c)
{
	const struct pl_clock_node *last = NULL;
	uint32_t doubts = 0;
	bool counted = false;

	for (uint32_t i = 0; i < c->n; i++) {
		const struct pl_clock_node *x = &c->v[i];
		uint32_t k = 0;

		while (k < i && c->v[k].cluster != x->cluster)
			k++;
		if (k < i || c->size[x->cluster] < 2)
			continue;
		if (last && could_be_one(c, last, x)) {
			doubts += counted ? 1 : 2;
			counted = true;
		} else {
			counted = false;
		}
		last = x;
	}
	return doubts;
}

void pl_clock_clusters_fini(struct pl_clusters *c)
{
	pl_free(c->leader);
	pl_free(c->size);
	pl_free(c->scratch);
}
