/*
 * Groups that nobody recorded: which ranks took part in the same collectives?
 *
 * Order holds on a stream (a communicator has its own), or over all host threads of a rank: such a
 * lane is one rank's part of a group. Lanes are compared only with lanes that mostly do the same
 * operation. Two lanes belong together when their ends jitter hardly more than those of the closest
 * lanes do (pl_lane_spread(): no clock needed) and neither ends before the other begins. Each lane
 * joins the closest group it fits, or starts one. Lanes that fit nowhere are split by operation,
 * since a stream may serve several groups, and tried once more.
 *
 * Lanes of few events come last, when clocks estimated from the others let their times be compared
 * as they are. All lanes on one stream are then divided at once, into the division that is most
 * likely (layout.c), those with most events first: each finding joins more clocks. What is not laid
 * out regularly is clustered as above.
 *
 * Cost: lanes x groups comparisons of at most a thousand events; the group joined last and the next
 * one are tried first, which makes it lanes x 2 for the usual layouts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock/layout.h"

#define MAX_EARLY   0.1 /* share of impossible pairs that noise may cause */
#define MIN_AGREE   0.8
#define ALL_PAIRS   64 /* up to so many lanes all pairs are looked at for the closest */
#define SAMPLE	    16 /* of more lanes, so many */
#define WIDER	    3  /* than the closest pairs: still the same group */
#define FLOOR_NS    1000
#define BRIEF	    32 /* events: fewer wait for clocks estimated from longer lanes */
#define WIDER_BRIEF 2  /* greatest distances scatter less than medians */
#define SLACK_NS    3000

struct node {
	struct pl_seq s;
	uint32_t lane;
	int64_t stream;
	pl_id mode; /* the most frequent operation */
	uint32_t cluster;
};

struct clusters {
	struct pl_align *a;
	const struct pl_clock *clock; /* estimated so far, or NULL */
	const uint32_t *raft;	      /* of clocks: comparable where they are the same */
	struct node *v;
	uint32_t n;
	uint32_t *leader; /* of each cluster: index of v */
	uint32_t *size;
	uint32_t n_clusters;
	int64_t closest; /* typical spread of the closest pairs, INT64_MAX: not to be seen */
	int64_t *scratch;
};

/* Can ends on the two clocks be compared as they are? */
static bool comparable(const struct clusters *c, uint32_t p, uint32_t q)
{
	return c->clock && c->raft[p] == c->raft[q];
}

/* Greatest distance of aligned ends; INT64_MAX if one ends before the other begins. */
static int64_t direct(const struct clusters *c, const struct pl_seq *x, const struct pl_seq *y,
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
static int64_t distance(const struct clusters *c, const struct node *x, const struct node *y)
{
	bool brief = pl_min_size(x->s.n, y->s.n) < BRIEF;
	double early;
	int64_t shift, spread;

	if (x->s.rank == y->s.rank)
		return INT64_MAX;
	shift = pl_lane_shift(c->a, &x->s, &y->s, c->scratch);
	if (pl_lane_agreement(c->a, &x->s, &y->s, shift) < MIN_AGREE)
		return INT64_MAX;
	if (brief && comparable(c, c->a->ev[x->s.ev[0]].clock, c->a->ev[y->s.ev[0]].clock))
		return direct(c, &x->s, &y->s, shift);
	spread = pl_lane_spread(c->a, &x->s, &y->s, shift, &early, c->scratch);
	if (early > MAX_EARLY)
		return INT64_MAX;
	return spread == INT64_MAX && !c->clock ? 0 : spread; /* too few to tell */
}

/* How far the nearest neighbour typically is. */
static int find_closest(struct clusters *c, struct pl_err *err)
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

static bool has_rank(const struct clusters *c, uint32_t cluster, uint32_t upto, int32_t rank)
{
	for (uint32_t i = 0; i < upto; i++)
		if (c->v[i].cluster == cluster && c->v[i].s.rank == rank)
			return true;
	return false;
}

/* The cluster for lane i: one that fits very well, else the one that fits best. */
static uint32_t choose(const struct clusters *c, uint32_t i, uint32_t last)
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

static int cluster(struct clusters *c, struct pl_err *err)
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
static void measure(const struct clusters *c, const struct node *v, uint32_t n, struct layout *l,
		    int64_t *tmp)
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
static bool is_ragged(const struct clusters *c, uint32_t i, uint32_t k)
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

static void use_layout(struct clusters *c, uint32_t i, uint32_t k, const struct layout *l)
{
	for (uint32_t j = i; j < k; j++) {
		c->size[c->v[j].cluster]--;
		c->v[j].cluster = c->n_clusters + group_in(l, j - i);
		c->size[c->v[j].cluster]++;
	}
	c->n_clusters += (k - i) / l->size;
}

static int regularize(struct clusters *c, uint32_t from, uint32_t to, struct pl_err *err)
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
static int regularize_all(struct clusters *c, struct pl_err *err)
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

static void clusters_fini(struct clusters *c)
{
	pl_free(c->leader);
	pl_free(c->size);
	pl_free(c->scratch);
}

/* ---- from clusters to groups -------------------------------------------------------------------
 */

static int put_group(struct clusters *c, uint32_t g, struct pl_err *err)
{
	struct pl_align *a = c->a;
	struct pl_seq *s = NULL;
	uint32_t n = 0, group;
	char name[32];
	int len, rc;

	len = snprintf(name, sizeof(name), "inferred%u", a->n_inferred++);
	PL_TRY(pl_alloc(&s, c->size[g], sizeof(*s), err));
	PL_TRY(pl_align_add_group(a, name, (size_t)len, PL_GROUP_INFERRED, &group, err));
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->v[i].cluster != g)
			continue;
		s[n++] = c->v[i].s;
		PL_TRY(pl_align_add_rank(&a->group[group], c->v[i].s.rank, err));
	}
	PL_TRY(pl_align_by_order(a, group, s, n, err));
out:
	pl_free(s);
	return rc;
}

static int by_operation(const void *x, const void *y)
{
	const struct node *p = x, *q = y;

	if (p->mode != q->mode)
		return p->mode < q->mode ? -1 : 1;
	if (p->stream != q->stream)
		return p->stream < q->stream ? -1 : 1;
	if (p->s.rank != q->s.rank)
		return p->s.rank < q->s.rank ? -1 : 1;
	return p->lane < q->lane ? -1 : p->lane > q->lane;
}

struct know { /* what is known of clocks; NULL: nothing yet */
	struct pl_merge *m;
	struct pl_islands is;
};

/* Groups of two lanes and more; the others are left at the front of c->v: their number. */
static int put_groups(struct clusters *c, uint32_t *left, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; g < c->n_clusters; g++)
		if (c->size[g] > 1)
			PL_TRY(put_group(c, g, err));
	for (uint32_t i = 0; i < c->n; i++)
		if (c->size[c->v[i].cluster] == 1)
			c->v[(*left)++] = c->v[i];
out:
	return rc;
}

/* Nodes v[0..n) do mostly the same. */
static int infer_bucket(struct pl_align *a, struct know *k, struct node *v, uint32_t n,
			uint32_t *left, struct pl_err *err)
{
	struct clusters c = { .a = a, .v = v, .n = n };
	int rc;

	*left = 0;
	c.clock = k ? k->is.clock : NULL;
	c.raft = k ? k->is.raft : NULL;
	PL_TRY(cluster(&c, err));
	if (!k)
		PL_TRY(regularize_all(&c, err));
	PL_TRY(put_groups(&c, left, err));
out:
	clusters_fini(&c);
	return rc;
}

/* ---- few events --------------------------------------------------------------------------------
 */

/* Lanes that could share a group, by number. */
static void classify(const struct pl_align *a, const struct node *v, uint32_t n, uint32_t *class)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = 0;

		while (k < i &&
		       (class[k] != k || pl_lane_agreement(a, &v[k].s, &v[i].s, 0) < MIN_AGREE))
			k++;
		class[i] = k;
	}
}

static uint32_t root_of(uint32_t *parent, uint32_t i)
{
	while (parent[i] != i)
		i = parent[i] = parent[parent[i]];
	return i;
}

static uint32_t node_of(const struct node *v, uint32_t n, int32_t rank)
{
	uint32_t lo = 0, hi = n; /* by rank */

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (v[mid].s.rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && v[lo].s.rank == rank ? lo : PL_NONE;
}

/* Lanes whose ranks send to each other, perhaps by way of others of them, get the same number. */
static void find_stages(const struct pl_align *a, const struct node *v, uint32_t n,
			uint32_t *stages)
{
	for (uint32_t i = 0; i < n; i++)
		stages[i] = i;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		uint32_t p, q;

		if (m->group != PL_NONE || m->n < 2)
			continue;
		p = node_of(v, n, a->ev[a->member[m->first]].rank);
		q = node_of(v, n, a->ev[a->member[m->first + 1]].rank);
		if (p != PL_NONE && q != PL_NONE)
			stages[root_of(stages, p)] = root_of(stages, q);
	}
	for (uint32_t i = 0; i < n; i++)
		stages[i] = root_of(stages, i);
}

/* Nodes v[0..n) are of one stream, one a rank, and do mostly the same: divide them at once. */
static int infer_stream(struct pl_align *a, struct know *k, struct node *v, uint32_t n,
			uint32_t *left, struct pl_err *err)
{
	struct clusters c = { .a = a, .v = v, .n = n };
	struct pl_layout l = { 0 };
	const struct pl_seq **lane = NULL;
	uint32_t *group = NULL, *class = NULL, *stages = NULL, n_groups;
	bool doubtful;
	int rc;

	c.clock = k->is.clock;
	c.raft = k->is.raft;
	PL_TRY(pl_alloc(&lane, n, sizeof(*lane), err));
	PL_TRY(pl_alloc(&group, n, sizeof(*group), err));
	PL_TRY(pl_alloc(&class, n, sizeof(*class), err));
	PL_TRY(pl_alloc(&stages, n, sizeof(*stages), err));
	PL_TRY(cluster(&c, err));
	for (uint32_t i = 0; i < n; i++) {
		lane[i] = &v[i].s;
		stages[i] = v[i].cluster;
	}
	n_groups = pl_layout_number(stages, n, group);
	classify(a, v, n, class);
	find_stages(a, v, n, stages);
	PL_TRY(pl_layout_init(&l, a, &k->is, lane, n, err));
	PL_TRY(pl_layout_choose(&l, class, stages, group, &n_groups, &doubtful, err));
	memset(c.size, 0, 2u * (size_t)n * sizeof(*c.size));
	c.n_clusters = n_groups;
	for (uint32_t i = 0; i < n; i++)
		c.size[v[i].cluster = group[i]]++;
	for (uint32_t g = 0; g < n_groups && doubtful; g++)
		a->rep->doubtful += c.size[g] > 1;
	PL_TRY(put_groups(&c, left, err));
out:
	pl_layout_fini(&l);
	clusters_fini(&c);
	pl_free(lane);
	pl_free(group);
	pl_free(class);
	pl_free(stages);
	return rc;
}

struct run { /* nodes of one operation and stream */
	uint32_t at, n;
	uint64_t events;
};

static int by_events(const void *x, const void *y)
{
	const struct run *p = x, *q = y;

	if (p->events != q->events)
		return p->events > q->events ? -1 : 1;
	return p->at < q->at ? -1 : p->at > q->at;
}

static struct run run_at(const struct node *v, uint32_t i, uint32_t n)
{
	struct run r = { .at = i };

	for (; i < n && v[i].mode == v[r.at].mode && v[i].stream == v[r.at].stream; i++) {
		r.events += v[i].s.n;
		r.n++;
	}
	return r;
}

static bool is_plain(const struct node *v, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (v[i].s.rank == v[i - 1].s.rank)
			return false;
	return n > 1;
}

/* Divide the sorted nodes v[0..n) stream by stream. Those left come to the front: their number. */
static int infer_streams(struct pl_align *a, struct know *k, struct node *v, uint32_t n,
			 uint32_t *left, struct pl_err *err)
{
	struct run *run = NULL;
	uint32_t runs = 0;
	struct node *kept = NULL;
	int rc;

	*left = 0;
	PL_TRY(pl_alloc(&run, n + 1u, sizeof(*run), err));
	PL_TRY(pl_alloc(&kept, n + 1u, sizeof(*kept), err));
	for (uint32_t i = 0; i < n; i += run[runs++].n)
		run[runs] = run_at(v, i, n);
	qsort(run, runs, sizeof(*run), by_events);
	for (uint32_t i = 0; i < runs; i++) {
		uint32_t alone = run[i].n;

		if (is_plain(v + run[i].at, run[i].n)) {
			alone = 0;
			PL_TRY(pl_align_islands(a, k->m, &k->is, err));
			PL_TRY(infer_stream(a, k, v + run[i].at, run[i].n, &alone, err));
		}
		memcpy(kept + *left, v + run[i].at, alone * sizeof(*v));
		*left += alone;
	}
	memcpy(v, kept, *left * sizeof(*v));
	PL_TRY(pl_align_islands(a, k->m, &k->is, err));
out:
	pl_free(run);
	pl_free(kept);
	return rc;
}

/* ---- lanes -------------------------------------------------------------------------------------
 */

struct item {
	uint32_t lane, ev;
	pl_id name;
};

static int by_lane(const void *x, const void *y)
{
	const struct item *p = x, *q = y;

	if (p->lane != q->lane)
		return p->lane < q->lane ? -1 : 1;
	return p->ev < q->ev ? -1 : p->ev > q->ev;
}

static int by_lane_name(const void *x, const void *y)
{
	const struct item *p = x, *q = y;

	if (p->lane != q->lane)
		return p->lane < q->lane ? -1 : 1;
	if (p->name != q->name)
		return p->name < q->name ? -1 : 1;
	return p->ev < q->ev ? -1 : p->ev > q->ev;
}

static int by_id(const void *x, const void *y)
{
	pl_id p = *(const pl_id *)x, q = *(const pl_id *)y;

	return p < q ? -1 : p > q;
}

static pl_id mode_of(const struct item *v, uint32_t n, pl_id *tmp)
{
	uint32_t most = 0;
	pl_id mode = PL_NONE;

	for (uint32_t i = 0; i < n; i++)
		tmp[i] = v[i].name;
	qsort(tmp, n, sizeof(*tmp), by_id);
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && tmp[k] == tmp[i];)
			k++;
		if (k - i > most) {
			most = k - i;
			mode = tmp[i];
		}
	}
	return mode;
}

struct work {
	struct item *item;
	struct node *node;
	uint32_t *ev, *to;
	pl_id *tmp;
};

/* Cut the sorted items into nodes: by lane, or by lane and operation. */
static uint32_t make_nodes(const struct pl_align *a, struct work *w, uint32_t n, bool names)
{
	uint32_t nodes = 0;

	for (uint32_t i = 0, k; i < n; i = k) {
		const struct item *p = &w->item[i];
		struct node *o = &w->node[nodes++];

		for (k = i;
		     k < n && w->item[k].lane == p->lane && (!names || w->item[k].name == p->name);
		     k++)
			w->ev[k] = w->item[k].ev;
		*o = (struct node){
			.s = { w->ev + i, k - i, a->ev[p->ev].rank, w->to + i },
			.lane = p->lane,
			.stream = a->lane[p->lane].stream,
			.mode = mode_of(p, k - i, w->tmp),
		};
	}
	qsort(w->node, nodes, sizeof(*w->node), by_operation);
	return nodes;
}

/* Items of the nodes that found no group, for another round. */
static uint32_t take_items(const struct pl_align *a, struct work *w, uint32_t nodes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nodes; i++)
		for (uint32_t k = 0; k < w->node[i].s.n; k++) {
			uint32_t e = w->node[i].s.ev[k];

			w->item[n++] = (struct item){ a->ev[e].lane, e, a->ev[e].name };
		}
	return n;
}

/* Group what is in w->item; what fits with nobody stays there. */
static int infer_round(struct pl_align *a, struct know *know, struct work *w, uint32_t *n,
		       bool names, struct pl_err *err)
{
	uint32_t nodes, kept = 0;
	int rc = 0;

	qsort(w->item, *n, sizeof(*w->item), names ? by_lane_name : by_lane);
	nodes = make_nodes(a, w, *n, names);
	for (uint32_t i = 0, k, left; i < nodes; i = k) {
		for (k = i + 1; k < nodes && w->node[k].mode == w->node[i].mode;)
			k++;
		PL_TRY(infer_bucket(a, know, w->node + i, k - i, &left, err));
		memmove(w->node + kept, w->node + i, left * sizeof(*w->node));
		kept += left;
	}
	*n = take_items(a, w, kept);
out:
	return rc;
}

/* Lanes whose partners are not in the input: a group each, of one known rank. */
static int put_lonely(struct pl_align *a, struct work *w, uint32_t n, struct pl_err *err)
{
	uint32_t nodes, size = 1;
	int rc = 0;

	qsort(w->item, n, sizeof(*w->item), by_lane);
	nodes = make_nodes(a, w, n, false);
	for (uint32_t i = 0; i < nodes; i++) {
		struct clusters c = { .a = a, .v = &w->node[i], .n = 1, .size = &size };

		PL_TRY(put_group(&c, 0, err));
	}
out:
	return rc;
}

/* The same for lanes of few events. */
static int infer_brief_round(struct pl_align *a, struct know *know, struct work *w, uint32_t *n,
			     bool names, struct pl_err *err)
{
	uint32_t nodes, kept;
	int rc = 0;

	qsort(w->item, *n, sizeof(*w->item), names ? by_lane_name : by_lane);
	nodes = make_nodes(a, w, *n, names);
	PL_TRY(infer_streams(a, know, w->node, nodes, &kept, err));
	*n = take_items(a, w, kept);
out:
	return rc;
}

static int infer_all(struct pl_align *a, struct know *know, struct work *w, uint32_t n,
		     struct pl_err *err)
{
	int rc = 0;

	if (know) {
		PL_TRY(infer_brief_round(a, know, w, &n, false, err));
		PL_TRY(infer_brief_round(a, know, w, &n, true, err));
	}
	PL_TRY(infer_round(a, know, w, &n, false, err));
	PL_TRY(infer_round(a, know, w, &n, true, err));
	PL_TRY(put_lonely(a, w, n, err));
out:
	return rc;
}

/* Items of the lanes that are long enough (or not) to show a scatter of ends. */
static uint32_t pick_lanes(const struct pl_align *a, struct work *w, const uint32_t *idx,
			   uint32_t n, uint32_t *count, bool brief)
{
	uint32_t k = 0;

	memset(count, 0, a->lane_key.n * sizeof(*count));
	for (uint32_t i = 0; i < n; i++)
		count[a->ev[idx[i]].lane]++;
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *e = &a->ev[idx[i]];

		if ((count[e->lane] < BRIEF) == brief)
			w->item[k++] = (struct item){ e->lane, idx[i], e->name };
	}
	return k;
}

static int infer(struct pl_align *a, struct know *know, const uint32_t *idx, uint32_t n,
		 struct pl_err *err)
{
	struct work w = { 0 };
	uint32_t *count = NULL;
	int rc;

	if (!n)
		return 0;
	PL_TRY(pl_alloc(&w.item, n, sizeof(*w.item), err));
	PL_TRY(pl_alloc(&w.node, n, sizeof(*w.node), err));
	PL_TRY(pl_alloc(&w.ev, n, sizeof(*w.ev), err));
	PL_TRY(pl_alloc(&w.to, n, sizeof(*w.to), err));
	PL_TRY(pl_alloc(&w.tmp, n, sizeof(*w.tmp), err));
	PL_TRY(pl_alloc(&count, a->lane_key.n + 1, sizeof(*count), err));
	n = pick_lanes(a, &w, idx, n, count, know != NULL);
	PL_TRY(infer_all(a, know, &w, n, err));
out:
	pl_free(w.item);
	pl_free(w.node);
	pl_free(w.ev);
	pl_free(w.to);
	pl_free(w.tmp);
	pl_free(count);
	return rc;
}

int pl_align_infer_long(struct pl_align *a, const uint32_t *idx, uint32_t n, struct pl_err *err)
{
	return infer(a, NULL, idx, n, err);
}

int pl_align_infer_brief(struct pl_align *a, struct pl_merge *m, const uint32_t *idx, uint32_t n,
			 struct pl_err *err)
{
	struct know know = { .m = m };
	int rc;

	PL_TRY(infer(a, &know, idx, n, err));
out:
	pl_islands_fini(&know.is);
	return rc;
}
