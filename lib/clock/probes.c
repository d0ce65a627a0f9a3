/*
 * The matches as ends that should be at one time, for the estimate of clocks.
 *
 * Of a collective, the ends of its members are compared. Ranks leave a barrier at different times,
 * because it moves no data, and a member may leave a collective with a root before others begin it.
 * So these count only where nothing else joins clocks: a late member would look like a wrong clock.
 * A send and its receive do not end together, but a receive ends after its send began, by at least
 * the time of the fastest transfer. Where two clocks send both ways, half the difference of the
 * least delays there and back is the offset between them, as in NTP, and half their sum bounds its
 * error. One such probe is made of each window of transfers. Where two clocks send only one way and
 * nothing else joins them, the ends are compared.
 */
#include <stdlib.h>

#include "clock/internal.h"

/* Transfers of each probe, at least: of so many, one hardly waits. */
#define WINDOW 16
/* Aim at so many probes if there are enough transfers. With more transfers each probe is better. */
#define WINDOWS 40
/* The error is taken for this part of its bound, since both directions wait alike, mostly. */
#define TRUST 4.0
/* Transfers of each direction, at least: a single one may have waited. */
#define EACH_DIRECTION 3
/* Bounds that differ by rounding are alike. */
#define GOOD_NS (2 * PL_CLOCK_RESOLUTION_NS)

struct transfer {
	uint32_t p, q; /* clocks, p < q */
	bool back;     /* from q to p */
	pl_ns at;      /* on clock p */
	int64_t delay; /* receive end - send start, clocks as they are */
	pl_ns send_end, recv_end;
	int64_t longer; /* of their two durations */
};

struct gather {
	const struct pl_align *a;
	struct pl_intern classes;
	struct pl_clock_fit_obs *obs;
	uint32_t *class; /* of each match */
	double *floor;	 /* of each class */
	double *bound;	 /* of each match */
	double *bias;	 /* of each class */
	uint32_t n_matches;
	size_t n_obs;
	uint32_t *parent; /* clocks that are joined: union-find */
	struct transfer *t;
	size_t n;
};

/* The next match, of class (kind, x, y). Its ends may be `bound` ns apart. */
static int new_match(struct gather *g, uint32_t kind, uint32_t x, uint32_t y, double bound,
		     struct pl_err *err)
{
	const uint32_t key[3] = { kind, x, y };
	uint32_t *class = &g->class[g->n_matches];
	size_t before = g->classes.n;
	int rc = pl_intern_add(&g->classes, (const char *)key, sizeof(key), class, err);

	if (g->classes.n > before)
		g->floor[*class] = g->bias[*class] = 0;
	g->bound[g->n_matches++] = bound;
	return rc;
}

/* An end of the last match. */
static void add_end(struct gather *g, uint32_t clock, pl_ns end)
{
	g->obs[g->n_obs++] = (struct pl_clock_fit_obs){ g->n_matches - 1, clock, end };
}

bool pl_clock_has_ends(const struct pl_align *a, const struct pl_cmatch *m)
{
	for (uint32_t k = 0; k < m->n; k++)
		if (a->ev[a->member[m->first + k]].open)
			return false;
	return true;
}

/* How far the ends of a match may be apart at most: by a transfer where all members end after the
 * last has begun, which takes as long as that one. Else a member may have waited for others. */
static double bound_of(const struct pl_align *a, const struct pl_cmatch *m)
{
	const unsigned together = PL_COLL_MEETS | PL_COLL_MOVES_DATA;
	const uint32_t *ev = a->member + m->first;
	int64_t least = INT64_MAX, most = 0;

	for (uint32_t k = 0; k < m->n; k++) {
		int64_t took = pl_sub_sat(a->ev[ev[k]].end, a->ev[ev[k]].ts);

		least = pl_min_i64(least, took);
		most = pl_max_i64(most, took);
	}
	return (double)((a->ev[ev[0]].coll_is & together) == together ? pl_max_i64(least, 0)
								      : most);
}

/* By how well the members of a collective end together, best first. */
enum ends { TOGETHER, ROOTED, BARRIER };

static enum ends ends_of(const struct pl_comm *e)
{
	if (!(e->coll_is & PL_COLL_MOVES_DATA))
		return BARRIER;
	return e->coll_is & PL_COLL_ROOTED ? ROOTED : TOGETHER;
}

/* The collectives of that kind. Those whose members do not end together count only if they reach a
 * clock which nothing else has joined. */
static int add_collectives(struct gather *g, enum ends ends, struct pl_err *err)
{
	const struct pl_align *a = g->a;
	uint32_t *joined = NULL;
	int rc;

	PL_TRY(pl_alloc(&joined, a->n_clocks + 1u, sizeof(*joined), err));
	for (uint32_t i = 0; i < a->n_clocks; i++)
		joined[i] = pl_union_root(g->parent, i);
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		const uint32_t *ev = a->member + m->first;
		uint32_t first = a->ev[ev[0]].clock;
		bool several = false, useful = ends == TOGETHER;

		if (m->group == PL_NONE || ends_of(&a->ev[ev[0]]) != ends)
			continue;
		for (uint32_t k = 1; k < m->n; k++) {
			several |= a->ev[ev[k]].clock != first;
			useful |= joined[a->ev[ev[k]].clock] != joined[first];
		}
		if (!several || !useful || !pl_clock_has_ends(a, m))
			continue;
		PL_TRY(new_match(g, ends == ROOTED ? 3 : 0, m->group, 0, bound_of(a, m), err));
		for (uint32_t k = 0; k < m->n; k++) {
			pl_union_join(g->parent, first, a->ev[ev[k]].clock);
			add_end(g, a->ev[ev[k]].clock, a->ev[ev[k]].end);
		}
	}
out:
	pl_free(joined);
	return rc;
}

/* ---- transfers ------------------------------------------------------------------------------- */

PL_COMPARATOR(by_pair_time, struct transfer, p, q, at, back);

static void note_transfer(struct gather *g, const struct pl_cmatch *m)
{
	const struct pl_comm *s = &g->a->ev[g->a->member[m->first]];
	const struct pl_comm *r = &g->a->ev[g->a->member[m->first + 1]];
	bool back = s->clock > r->clock;

	if (s->clock == r->clock)
		return;
	g->t[g->n++] =
		(struct transfer){ .p = back ? r->clock : s->clock,
				   .q = back ? s->clock : r->clock,
				   .back = back,
				   .at = back ? r->end : s->ts,
				   .delay = pl_sub_sat(r->end, s->ts),
				   .send_end = s->end,
				   .recv_end = r->end,
				   .longer = pl_max_i64(pl_max_i64(pl_sub_sat(s->end, s->ts), 0),
							pl_sub_sat(r->end, r->ts)) };
}

struct window {
	pl_ns at;	/* on clock p */
	int64_t offset; /* of q against p */
	int64_t half;	/* bound of its error */
};

/* t[0..n) has both directions. */
static struct window make_window(const struct transfer *t, size_t n)
{
	int64_t there = INT64_MAX, back = INT64_MAX, since = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t *least = t[i].back ? &back : &there;

		*least = pl_min_i64(*least, t[i].delay);
		since += pl_sub_sat(t[i].at, t[0].at) / (int64_t)n;
	}
	return (struct window){ pl_add_sat(t->at, since), there / 2 - back / 2,
				pl_max_i64(there / 2 + back / 2, 0) };
}

/*
 * Adds the transfers between two clocks that send in both directions, in windows with some of each
 * direction. A window is not used if its sum of delays shows that all transfers in one direction
 * had to wait, or if the sum is too small to be true.
 */
static int add_both_directions(struct gather *g, const struct transfer *t, size_t n,
			       struct pl_err *err)
{
	size_t per = n / WINDOWS > WINDOW ? n / WINDOWS : WINDOW, i = 0, n_win = 0;
	struct window *w = NULL;
	int64_t *half = NULL, usual;
	int rc;

	PL_TRY(pl_alloc(&w, n, sizeof(*w), err));
	PL_TRY(pl_alloc(&half, n, sizeof(*half), err));
	while (i < n) {
		size_t k = i, n_by_direction[2] = { 0, 0 };

		while (k < n && (k - i < per || n_by_direction[0] < EACH_DIRECTION ||
				 n_by_direction[1] < EACH_DIRECTION))
			n_by_direction[t[k++].back]++;
		if (n_by_direction[0] < EACH_DIRECTION || n_by_direction[1] < EACH_DIRECTION)
			break;
		w[n_win] = make_window(t + i, k - i);
		half[n_win] = w[n_win].half;
		n_win++;
		i = k;
	}
	usual = n_win ? pl_percentile_i64(half, n_win, 25) : INT64_MAX;
	for (i = 0; i < n_win && usual < INT64_MAX / 4; i++) {
		if (w[i].half > usual + usual / 4 + GOOD_NS ||
		    w[i].half < usual - usual / 4 - GOOD_NS)
			continue;
		PL_TRY(new_match(g, 1, t->p, t->q, 0, err));
		g->floor[g->class[g->n_matches - 1]] = (double)usual / TRUST;
		add_end(g, t->p, w[i].at);
		add_end(g, t->q, pl_add_sat(w[i].at, w[i].offset));
		pl_union_join(g->parent, t->p, t->q);
	}
out:
	pl_free(w);
	pl_free(half);
	return rc;
}

/* A receive ends later than its send by an unknown time. A receiver that waits shows that it is no
 * longer than the receive. */
static int add_one_direction(struct gather *g, const struct transfer *t, size_t n,
			     struct pl_err *err)
{
	int64_t *longer = NULL;
	double bias;

	PL_CHECK(pl_alloc(&longer, n, sizeof(*longer), err));
	for (size_t i = 0; i < n; i++)
		longer[i] = t[i].longer;
	bias = (double)pl_median_i64(longer, n);
	pl_free(longer);
	for (size_t i = 0; i < n; i++) {
		PL_CHECK(new_match(g, 2, t->p, t->q, 0, err));
		g->bias[g->class[g->n_matches - 1]] = bias;
		add_end(g, t->p, t[i].back ? t[i].recv_end : t[i].send_end);
		add_end(g, t->q, t[i].back ? t[i].send_end : t[i].recv_end);
	}
	return 0;
}

static int add_transfers(struct gather *g, bool one_direction, struct pl_err *err)
{
	for (size_t i = 0, k; i < g->n; i = k) {
		size_t n_by_direction[2] = { 0, 0 };

		for (k = i; k < g->n && g->t[k].p == g->t[i].p && g->t[k].q == g->t[i].q; k++)
			n_by_direction[g->t[k].back]++;
		if (!one_direction && n_by_direction[0] >= EACH_DIRECTION &&
		    n_by_direction[1] >= EACH_DIRECTION)
			PL_CHECK(add_both_directions(g, g->t + i, k - i, err));
		else if (one_direction &&
			 pl_union_root(g->parent, g->t[i].p) != pl_union_root(g->parent, g->t[i].q))
			PL_CHECK(add_one_direction(g, g->t + i, k - i, err));
	}
	return 0;
}

int pl_clock_probes(const struct pl_align *a, struct pl_clock_fit_in *in, struct pl_arena *mem,
		    struct pl_err *err)
{
	struct gather g = { .a = a };
	int rc;

	/* a match gives one probe at most, and a probe of transfers two ends */
	PL_TRY(pl_arena_array(mem, &g.obs, a->n_members + 1, sizeof(*g.obs), err));
	PL_TRY(pl_arena_array(mem, &g.class, a->n_matches + 1, sizeof(*g.class), err));
	PL_TRY(pl_arena_array(mem, &g.floor, a->n_matches + 1, sizeof(*g.floor), err));
	PL_TRY(pl_arena_array(mem, &g.bound, a->n_matches + 1, sizeof(*g.bound), err));
	PL_TRY(pl_arena_array(mem, &g.bias, a->n_matches + 1, sizeof(*g.bias), err));
	PL_TRY(pl_arena_array(mem, &g.parent, a->n_clocks + 1u, sizeof(*g.parent), err));
	PL_TRY(pl_arena_array(mem, &g.t, a->n_matches + 1, sizeof(*g.t), err));
	for (uint32_t i = 0; i < a->n_clocks; i++)
		g.parent[i] = i;
	for (size_t i = 0; i < a->n_matches; i++)
		if (a->match[i].n > 1 && a->match[i].group == PL_NONE &&
		    pl_clock_has_ends(a, &a->match[i]))
			note_transfer(&g, &a->match[i]);
	pl_sort(g.t, g.n, sizeof(*g.t), by_pair_time);
	PL_TRY(add_collectives(&g, TOGETHER, err));
	PL_TRY(add_transfers(&g, false, err));
	PL_TRY(add_collectives(&g, ROOTED, err));
	PL_TRY(add_transfers(&g, true, err));
	PL_TRY(add_collectives(&g, BARRIER, err));
	*in = (struct pl_clock_fit_in){ .obs = g.obs,
					.n_obs = g.n_obs,
					.match_class = g.class,
					.class_floor = g.floor,
					.n_matches = g.n_matches,
					.n_classes = (uint32_t)g.classes.n,
					.n_clocks = a->n_clocks,
					.first_ns = a->clock_first,
					.match_bound = g.bound,
					.class_bias = g.bias };
out:
	pl_intern_fini(&g.classes);
	return rc;
}
