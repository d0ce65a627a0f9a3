/*
 * Groups that nobody recorded: which ranks took part in the same collectives?
 *
 * Order holds on a stream (a communicator has its own), or over all host threads of a rank: such a
 * lane is one rank's part of a group. Lanes are compared only with lanes that mostly do the same
 * operation. Two lanes belong together when their ends jitter hardly more than those of the closest
 * lanes do (pl_lane_spread(): no clock needed) and neither ends before the other begins. Each lane
 * joins the first lane of the closest group it fits, or starts one. Lanes that fit nowhere are split by
 * operation, since a stream may serve several groups, and tried once more.
 *
 * Cost: lanes x groups comparisons of at most a thousand events; the group joined last and the next
 * one are tried first, which makes it lanes x 2 for the usual layouts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

#define MAX_EARLY   0.1 /* share of impossible pairs that noise may cause */
#define MIN_AGREE   0.8
#define ALL_PAIRS   64 /* up to so many lanes all pairs are looked at for the closest */
#define SAMPLE      16 /* of more lanes, so many */
#define WIDER	    3  /* than the closest pairs: still the same group */
#define FLOOR_NS    1000

struct node {
	struct pl_seq s;
	uint32_t lane;
	pl_id mode; /* the most frequent operation */
	uint32_t cluster;
};

struct clusters {
	struct pl_align *a;
	struct node *v;
	uint32_t n;
	uint32_t *leader; /* of each cluster: index of v */
	uint32_t *size;
	uint32_t n_clusters;
	int64_t closest; /* typical spread of the closest pairs, INT64_MAX: not to be seen */
	int64_t *scratch;
};

/* INT64_MAX: not one group. */
static int64_t distance(const struct clusters *c, const struct node *x, const struct node *y)
{
	double early;
	int64_t shift, spread;

	if (x->s.rank == y->s.rank)
		return INT64_MAX;
	shift = pl_lane_shift(c->a, &x->s, &y->s, c->scratch);
	if (pl_lane_agreement(c->a, &x->s, &y->s, shift) < MIN_AGREE)
		return INT64_MAX;
	spread = pl_lane_spread(c->a, &x->s, &y->s, shift, &early, c->scratch);
	if (early > MAX_EARLY)
		return INT64_MAX;
	/* too short to show a scatter: taken for one group */
	return pl_min_size(x->s.n, y->s.n) < PL_LANE_PAIRS ? 0 : spread;
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
	int64_t enough = c->closest / 2 * 3, best = INT64_MAX;
	uint32_t found = PL_NONE;

	if (c->closest > INT64_MAX / 8)
		return PL_NONE;
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
		if (d <= enough)
			break;
	}
	return best <= WIDER * c->closest + FLOOR_NS ? found : PL_NONE;
}

static int cluster(struct clusters *c, struct pl_err *err)
{
	uint32_t last = 0;
	int rc;

	PL_TRY(pl_alloc(&c->leader, c->n, sizeof(*c->leader), err));
	PL_TRY(pl_alloc(&c->size, c->n, sizeof(*c->size), err));
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

static void clusters_fini(struct clusters *c)
{
	pl_free(c->leader);
	pl_free(c->size);
	pl_free(c->scratch);
}

/* ---- from clusters to groups ------------------------------------------------------------------- */

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
	if (p->s.rank != q->s.rank)
		return p->s.rank < q->s.rank ? -1 : 1;
	return p->lane < q->lane ? -1 : p->lane > q->lane;
}

/* Nodes v[0..n) do mostly the same. Those that fit with nobody are left at the front: their number. */
static int infer_bucket(struct pl_align *a, struct node *v, uint32_t n, uint32_t *left,
			struct pl_err *err)
{
	struct clusters c = { .a = a, .v = v, .n = n };
	int rc;

	*left = 0;
	PL_TRY(cluster(&c, err));
	for (uint32_t g = 0; g < c.n_clusters; g++)
		if (c.size[g] > 1)
			PL_TRY(put_group(&c, g, err));
	for (uint32_t i = 0; i < n; i++)
		if (c.size[v[i].cluster] == 1)
			v[(*left)++] = v[i];
out:
	clusters_fini(&c);
	return rc;
}

/* ---- lanes ------------------------------------------------------------------------------------- */

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

		for (k = i; k < n && w->item[k].lane == p->lane &&
			    (!names || w->item[k].name == p->name);
		     k++)
			w->ev[k] = w->item[k].ev;
		*o = (struct node){
			.s = { w->ev + i, k - i, a->ev[p->ev].rank, w->to + i },
			.lane = p->lane,
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
static int infer_round(struct pl_align *a, struct work *w, uint32_t *n, bool names,
		       struct pl_err *err)
{
	uint32_t nodes, kept = 0;
	int rc = 0;

	qsort(w->item, *n, sizeof(*w->item), names ? by_lane_name : by_lane);
	nodes = make_nodes(a, w, *n, names);
	for (uint32_t i = 0, k, left; i < nodes; i = k) {
		for (k = i + 1; k < nodes && w->node[k].mode == w->node[i].mode;)
			k++;
		PL_TRY(infer_bucket(a, w->node + i, k - i, &left, err));
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

int pl_align_infer(struct pl_align *a, const uint32_t *idx, uint32_t n, struct pl_err *err)
{
	struct work w = { 0 };
	int rc;

	if (!n)
		return 0;
	PL_TRY(pl_alloc(&w.item, n, sizeof(*w.item), err));
	PL_TRY(pl_alloc(&w.node, n, sizeof(*w.node), err));
	PL_TRY(pl_alloc(&w.ev, n, sizeof(*w.ev), err));
	PL_TRY(pl_alloc(&w.to, n, sizeof(*w.to), err));
	PL_TRY(pl_alloc(&w.tmp, n, sizeof(*w.tmp), err));
	for (uint32_t i = 0; i < n; i++)
		w.item[i] = (struct item){ a->ev[idx[i]].lane, idx[i], a->ev[idx[i]].name };
	PL_TRY(infer_round(a, &w, &n, false, err));
	PL_TRY(infer_round(a, &w, &n, true, err));
	PL_TRY(put_lonely(a, &w, n, err));
out:
	pl_free(w.item);
	pl_free(w.node);
	pl_free(w.ev);
	pl_free(w.to);
	pl_free(w.tmp);
	return rc;
}
