/*
 * Rules that no jitter can break: a receive ends after its send begins, and a member of an
 * all-reduce (or a collective like it) ends after the last member begins. Two ends have no such
 * rule, because a receive may end before its send does.
 *
 * With constant offsets, each rule is a difference constraint delta_after - delta_before <= aligned
 * end - aligned start. Of each pair of clocks the smallest bound counts. Where the estimate breaks
 * a constraint, clocks move within their intervals: the estimate is projected onto one broken
 * constraint after the other. If this does not satisfy all constraints, no clock moves, and the
 * broken ones are reported. The edges of a negative cycle (Bellman-Ford) are reported too, because
 * no constant offsets satisfy them. Nothing can be moved between events of one clock: there the
 * match is wrong, or the clock is not one.
 *
 * Cost: O(members) to collect; to solve mostly some rounds over the pairs, O(clocks x pairs) at
 * most.
 */
#include <stdlib.h>

#include "clock/internal.h"

#define SLACK_NS (2 * PL_CLOCK_RESOLUTION_NS) /* two rounded times */
#define SWEEPS	 200 /* a limit of time: what is not satisfied by then never is, mostly */
#define LOOK	 32  /* a limit of time: rounds from one look for a cycle to the next */

struct edge {
	uint32_t before, after; /* clocks */
	uint32_t start, end;	/* events */
	int64_t room;		/* aligned end - aligned start */
	bool p2p, cycle;
};

struct box {
	struct pl_align *a;
	struct pl_clock *clock;
	struct pl_intern keys;
	struct edge *edge; /* the tightest of each pair of clocks (and kind) */
	size_t n, cap;
	uint64_t broken; /* constraints between clocks */
	uint64_t within; /* and within one */
};

static pl_ns aligned(const struct box *b, uint32_t ev, bool end)
{
	const struct pl_comm *e = &b->a->ev[ev];

	return pl_trace_clock_apply(&b->clock[e->clock], end ? e->end : e->ts);
}

/* Event `end` has to end after event `start` begins. */
static int add_edge(struct box *b, uint32_t start, uint32_t end, bool p2p, struct pl_err *err)
{
	uint32_t key[3] = { b->a->ev[start].clock, b->a->ev[end].clock, p2p };
	int64_t room = pl_sub_sat(aligned(b, end, true), aligned(b, start, false));
	struct edge e = { key[0], key[1], start, end, room, p2p, false };
	pl_id id;

	if (b->a->ev[end].open || (e.before == e.after && e.room >= -SLACK_NS))
		return 0;
	if (e.before == e.after)
		b->within++;
	else
		b->broken += e.room < -SLACK_NS;
	PL_CHECK(pl_intern_add(&b->keys, (const char *)key, sizeof(key), &id, err));
	PL_CHECK(pl_grow(&b->edge, &b->cap, b->keys.n, sizeof(*b->edge), err));
	if (id == b->n || e.room < b->edge[id].room)
		b->edge[id] = e;
	b->n = b->keys.n;
	return 0;
}

/* Of n * n constraints those of the last start and of the first end. */
static int add_collective(struct box *b, const uint32_t *ev, uint32_t n, struct pl_err *err)
{
	pl_ns last_start = INT64_MIN, first_end = INT64_MAX;
	uint32_t last = 0, first = 0;

	for (uint32_t i = 0; i < n; i++) {
		pl_ns start = aligned(b, ev[i], false),
		      end = b->a->ev[ev[i]].open ? INT64_MAX : aligned(b, ev[i], true);

		last = start > last_start ? i : last;
		last_start = pl_max_i64(last_start, start);
		first = end < first_end ? i : first;
		first_end = pl_min_i64(first_end, end);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (i != last)
			PL_CHECK(add_edge(b, ev[last], ev[i], false, err));
		if (i != first && i != last)
			PL_CHECK(add_edge(b, ev[i], ev[first], false, err));
	}
	return 0;
}

static int collect(struct box *b, struct pl_err *err)
{
	const struct pl_align *a = b->a;

	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *k = &a->match[i];
		const uint32_t *ev = a->member + k->first;

		if (k->n > 1 && k->group == PL_NONE)
			PL_CHECK(add_edge(b, ev[0], ev[1], true, err));
		else if (k->n > 1 && a->ev[ev[0]].coll_is & PL_COLL_MEETS)
			PL_CHECK(add_collective(b, ev, k->n, err));
	}
	return 0;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static int64_t clamp(int64_t v, int64_t limit)
{
	return v > limit ? limit : v < -limit ? -limit : v;
}

static int64_t limit_of(const struct box *b, uint32_t clock)
{
	int64_t ci = b->clock[clock].offset_ci_ns;

	return clock == 0 || ci < 0 ? 0 : ci;
}

static int64_t excess(const struct edge *e, const int64_t *delta)
{
	return pl_sub_sat(pl_sub_sat(delta[e->after], delta[e->before]), e->room);
}

/* Project onto the broken constraints in turn; does that satisfy all? */
static bool project(const struct box *b, int64_t *delta)
{
	bool ok = false;

	for (int sweep = 0; sweep < SWEEPS && !ok; sweep++) {
		ok = true;
		for (size_t i = 0; i < b->n; i++) {
			const struct edge *e = &b->edge[i];
			int64_t over = excess(e, delta), p = limit_of(b, e->before),
				q = limit_of(b, e->after), part;

			if (over <= 0 || e->before == e->after)
				continue;
			ok &= over <= SLACK_NS;
			if (p > INT64_MAX / 4 || q > INT64_MAX / 4 || p + q == 0)
				continue;
			/* who is known worse moves more */
			over = pl_min_i64(over, INT64_MAX / 4);
			part = (int64_t)((double)over * (double)q / (double)(p + q));
			delta[e->after] = clamp(pl_sub_sat(delta[e->after], part), q);
			delta[e->before] = clamp(pl_add_sat(delta[e->before], over - part), p);
		}
	}
	return ok;
}

/* A clock on a cycle of the edges `by` that lowered the clocks last; PL_NONE: there is none.
 * `seen` has n elements. */
static uint32_t find_cycle(const struct box *b, const uint32_t *by, uint32_t *seen, uint32_t n)
{
	memset(seen, 0xff, n * sizeof(*seen));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;

		while (at != PL_NONE && seen[at] == PL_NONE) {
			seen[at] = i;
			at = by[at] == PL_NONE ? PL_NONE : b->edge[by[at]].before;
		}
		if (at != PL_NONE && seen[at] == i)
			return at;
	}
	return PL_NONE;
}

/* Mark the edges of one negative cycle, if there is one. With many clocks there is a cycle long
 * before the last round. */
static int mark_cycle(struct box *b, struct pl_err *err)
{
	uint32_t n = b->a->n_clocks, *by = NULL, *seen = NULL, at = PL_NONE;
	int64_t *d = NULL;
	bool found = false;
	int rc;

	PL_TRY(pl_alloc(&d, n, sizeof(*d), err));
	PL_TRY(pl_alloc(&by, n, sizeof(*by), err));
	PL_TRY(pl_alloc(&seen, n, sizeof(*seen), err));
	memset(by, 0xff, n * sizeof(*by));
	for (uint32_t round = 0; round <= n && !found; round++) {
		at = PL_NONE;
		for (size_t i = 0; i < b->n; i++) {
			const struct edge *e = &b->edge[i];
			int64_t via = pl_add_sat(d[e->before], pl_add_sat(e->room, SLACK_NS));

			if (e->before == e->after || via >= d[e->after])
				continue;
			d[e->after] = via;
			by[e->after] = (uint32_t)i;
			at = e->after;
		}
		if (at == PL_NONE)
			goto out;
		if (round % LOOK == LOOK - 1) {
			uint32_t cycle = find_cycle(b, by, seen, n);

			found = cycle != PL_NONE;
			at = found ? cycle : at;
		}
	}
	for (uint32_t i = 0; i < n; i++) /* from anywhere behind the cycle onto it */
		at = b->edge[by[at]].before;
	for (; !b->edge[by[at]].cycle; at = b->edge[by[at]].before)
		b->edge[by[at]].cycle = true;
out:
	pl_free(d);
	pl_free(by);
	pl_free(seen);
	return rc;
}

/* ---- reporting ------------------------------------------------------------------------------- */

PL_COMPARATOR_FALLING(by_room, struct edge, cycle, room, end);

static int put_conflict(const struct box *b, const struct edge *e, struct pl_clock_report *r,
			struct pl_err *err)
{
	const struct pl_comm *s = &b->a->ev[e->start], *t = &b->a->ev[e->end];
	struct pl_conflict *c = &r->conflict[r->n_conflicts++];

	*c = (struct pl_conflict){
		.clock_before = e->before,
		.clock_after = e->after,
		.rank_before = s->rank,
		.rank_after = t->rank,
		.start_ns = aligned(b, e->start, false),
		.end_ns = aligned(b, e->end, true),
		.excess_ns = pl_sub_sat(0, e->room),
		.p2p = e->p2p,
		.cycle = e->cycle,
	};
	c->name_before = pl_strdup(pl_intern_get(&b->a->str, s->name));
	c->name_after = pl_strdup(pl_intern_get(&b->a->str, t->name));
	return c->name_before && c->name_after ? 0 : pl_fail(err, PL_ENOMEM, "out of memory");
}

/* Say the worst of n broken constraints, between clocks or within one. */
static int say_worst(const struct box *b, bool within, uint64_t n, struct pl_err *err)
{
	const struct pl_align *a = b->a;
	const struct edge *worst = NULL;
	const struct pl_comm *s, *t;
	char over[24], text[256];

	for (size_t i = 0; i < b->n; i++) {
		const struct edge *e = &b->edge[i];

		if ((e->before == e->after) == within && (!worst || e->room < worst->room))
			worst = e;
	}
	if (!n || !worst)
		return 0;
	s = &a->ev[worst->start];
	t = &a->ev[worst->end];
	snprintf(text, sizeof(text),
		 "\"%.80s\" of rank %d ends %s before \"%.80s\" of rank %d begins",
		 pl_intern_get(&a->str, t->name), t->rank,
		 pl_fmt_ns(over, sizeof(over), pl_sub_sat(0, worst->room)),
		 pl_intern_get(&a->str, s->name), s->rank);
	if (a->o.strict)
		return pl_fail(err, PL_EDATA,
			       "%llu contradiction%s: %s (without --strict: a warning)",
			       (unsigned long long)n, n == 1 ? "" : "s", text);
	pl_say(a->o.log, PL_LOG_WARN, "%llu contradiction%s %s: %s, which it needs%s; see --report",
	       (unsigned long long)n, n == 1 ? "" : "s",
	       within ? "within one clock" : "to constant offsets", text,
	       within ? ", so the match is wrong or the ranks do not share a clock" : "");
	return 0;
}

static int report(struct box *b, struct pl_err *err)
{
	struct pl_clock_report *r = b->a->rep;

	PL_CHECK(mark_cycle(b, err));
	qsort(b->edge, b->n, sizeof(*b->edge), by_room);
	PL_CHECK(pl_alloc(&r->conflict, PL_CONFLICTS_MAX, sizeof(*r->conflict), err));
	r->conflicts = b->broken + b->within;
	for (size_t i = 0; i < b->n && r->n_conflicts < PL_CONFLICTS_MAX; i++)
		if (b->edge[i].cycle || b->edge[i].room < -SLACK_NS)
			PL_CHECK(put_conflict(b, &b->edge[i], r, err));
	PL_CHECK(say_worst(b, false, b->broken, err));
	return say_worst(b, true, b->within, err);
}

int pl_clock_box(struct pl_align *a, struct pl_err *err)
{
	struct box b = { .a = a, .clock = a->m->clock };
	int64_t *delta = NULL;
	int rc;

	PL_TRY(collect(&b, err));
	if (!b.broken && !b.within)
		goto out;
	PL_TRY(pl_alloc(&delta, a->n_clocks, sizeof(*delta), err));
	if (project(&b, delta)) {
		for (uint32_t i = 0; i < a->n_clocks; i++)
			b.clock[i].offset_ns = pl_add_sat(b.clock[i].offset_ns, delta[i]);
		for (size_t i = 0; i < b.n; i++)
			b.edge[i].room = pl_sub_sat(0, excess(&b.edge[i], delta));
		b.broken = 0;
		for (size_t i = 0; i < b.n; i++)
			b.broken +=
				b.edge[i].before != b.edge[i].after && b.edge[i].room < -SLACK_NS;
	}
	if (b.broken || b.within)
		PL_TRY(report(&b, err));
out:
	pl_free(delta);
	pl_free(b.edge);
	pl_intern_fini(&b.keys);
	return rc;
}
