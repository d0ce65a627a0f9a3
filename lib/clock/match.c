/*
 * Which events are one communication.
 *
 * Where the group and a sequence number are recorded they decide. If a rank has a number several
 * times, as when numbers begin again in each step, the recorded step decides, too. Where only the
 * group is, the order of its ranks' events does (order.c), step by step if steps are recorded.
 * Where neither is recorded, infer.c finds the groups. A name that several groups share (every
 * replica's "tp") shows in events that end before their supposed partners begin: it then counts as
 * not recorded.
 *
 * Cost: sorting, and O(N) to follow sequences that agree.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "clock/internal.h"

/* Share of impossible pairs that shows a shared name: noise makes a few, two groups make half. */
#define SHARED_EARLY 0.2

/* ---- groups and matches ---------------------------------------------------------------------- */

int pl_clock_add_group(struct pl_align *a, const char *name, size_t n, uint32_t flags,
		       uint32_t *index, struct pl_err *err)
{
	struct pl_cgroup g = { .flags = flags };

	if (a->n_groups >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than 2^32 groups");
	PL_CHECK(pl_intern_add(&a->str, name, n, &g.name, err));
	PL_CHECK(pl_grow(&a->group, &a->cap_groups, a->n_groups + 1, sizeof(*a->group), err));
	*index = (uint32_t)a->n_groups;
	a->group[a->n_groups++] = g;
	return 0;
}

int pl_clock_add_rank(struct pl_cgroup *g, int32_t rank, struct pl_err *err)
{
	uint32_t i = 0; /* ascending; mostly it is behind the last */

	PL_LOWER_BOUND(i, g->n, g->rank[i] < rank);
	if (i < g->n && g->rank[i] == rank)
		return 0;
	PL_CHECK(pl_grow(&g->rank, &g->cap, g->n + 1u, sizeof(*g->rank), err));
	memmove(g->rank + i + 1, g->rank + i, (g->n - i) * sizeof(*g->rank));
	g->rank[i] = rank;
	g->n++;
	return 0;
}

int pl_clock_add_match(struct pl_align *a, uint32_t group, uint32_t flags, const uint32_t *ev,
		       uint32_t n, struct pl_err *err)
{
	const struct pl_cgroup *g = group == PL_NONE ? NULL : &a->group[group];
	uint32_t full = !g ? 2 : g->n > g->size ? g->n : g->size;
	bool alone = n == 1 && (full > 1 || (g && g->flags & PL_GROUP_INFERRED));

	PL_CHECK(pl_grow(&a->match, &a->cap_matches, a->n_matches + 1, sizeof(*a->match), err));
	PL_CHECK(pl_grow(&a->member, &a->cap_members, a->n_members + n, sizeof(*a->member), err));
	if (n < full || alone) {
		flags |= PL_MATCH_MISSING;
		a->rep->missing_matches++;
	}
	a->match[a->n_matches++] = (struct pl_cmatch){
		.group = group, .first = (uint32_t)a->n_members, .n = n, .flags = flags
	};
	memcpy(a->member + a->n_members, ev, n * sizeof(*ev));
	a->n_members += n;
	if (group == PL_NONE)
		a->rep->p2p_matches++;
	else
		a->rep->collective_matches++;
	if (alone)
		a->rep->unmatched_collectives++;
	return 0;
}

int pl_clock_add_pairs(struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
		       uint32_t flags, struct pl_err *err)
{
	for (uint32_t i = 0; i < y->n; i++) {
		uint32_t ev[2];
		bool send;

		if (y->to[i] == PL_NONE)
			continue;
		send = a->ev[x->ev[y->to[i]]].kind == PL_K_SEND;
		ev[!send] = x->ev[y->to[i]];
		ev[send] = y->ev[i];
		PL_CHECK(pl_clock_add_match(a, PL_NONE, PL_MATCH_P2P | flags, ev, 2, err));
	}
	return 0;
}

/* ---- sorting --------------------------------------------------------------------------------- */

PL_COMPARATOR(by_rank_time, struct pl_comm, rank, turn, seg, event);

struct sorted { /* an event of a recorded group, with its sort key */
	int64_t step, seq;
	uint32_t group, coll, ev; /* ev: already ascending by (rank, time) */
};

PL_COMPARATOR(by_group, struct sorted, group, ev);

PL_COMPARATOR(by_number, struct sorted, step, seq, coll, ev);

PL_COMPARATOR(by_number_alone, struct sorted, seq, coll, ev);

/* Does some rank have a number twice? Sorts v[0..n). */
static bool number_repeats(const struct pl_align *a, struct sorted *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_number_alone);
	for (uint32_t i = 1; i < n; i++)
		if (!PL_COMPARE_FIELDS(&v[i], &v[i - 1], seq, coll) &&
		    a->ev[v[i].ev].rank == a->ev[v[i - 1].ev].rank)
			return true;
	return false;
}

/* ---- recorded groups ------------------------------------------------------------------------- */

bool pl_clock_next_rank(const char **s, int32_t *rank)
{
	char *end;
	long v;

	while (**s && (**s < '0' || **s > '9'))
		++*s;
	v = **s ? strtol(*s, &end, 10) : -1;
	if (v < 0 || v > INT32_MAX)
		return false;
	*s = end;
	*rank = (int32_t)v;
	return true;
}

struct matcher {
	struct pl_align *a;
	uint32_t *ev; /* as many as there are events */
	struct pl_seq *s;
	size_t cap;
	uint32_t *rest, n_rest; /* collectives whose group is not known */
};

/* The members of the group of `e`, as far as they are recorded. */
static int add_recorded_ranks(struct pl_align *a, uint32_t group, const struct pl_comm *e,
			      struct pl_err *err)
{
	struct pl_cgroup *g = &a->group[group];
	const char *s = e->listed || e->ranks == PL_NONE ? "" : pl_intern_get(&a->str, e->ranks);
	const char *dot = strrchr(s, '.');
	const int32_t *v = NULL;
	uint32_t n = 0;
	int32_t rank;
	int rc = 0;

	if (e->listed)
		v = pl_clock_listed_ranks(a, e->ranks, &n);
	for (uint32_t i = 0; i < n && rc >= 0; i++)
		rc = pl_clock_add_rank(g, v[i], err);
	/* the list may be cut short: "0, 1, ... 63" */
	while (rc >= 0 && pl_clock_next_rank(&s, &rank) && (!dot || s < dot))
		rc = pl_clock_add_rank(g, rank, err);
	return rc;
}

/* The sequences of the ranks in v[0..n), which is by (rank, time), into k->s; how many. Without
 * `rooted` only those of collectives without a root. */
static int split_ranks(struct matcher *k, const struct sorted *v, uint32_t n, bool rooted,
		       uint32_t *ranks, struct pl_err *err)
{
	uint32_t at = 0;

	*ranks = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *e = &k->a->ev[v[i].ev];

		if (!rooted && e->coll_is & PL_COLL_ROOTED)
			continue;
		if (!*ranks || k->s[*ranks - 1].rank != e->rank) {
			PL_CHECK(pl_grow(&k->s, &k->cap, *ranks + 1u, sizeof(*k->s), err));
			k->s[(*ranks)++] = (struct pl_seq){ k->ev + at, 0, e->rank, NULL };
		}
		k->s[*ranks - 1].n++;
		k->ev[at++] = v[i].ev;
	}
	return 0;
}

/* Events v[0..n) with one number, or all of one step. `numbered`: normally one of each rank. */
static int match_part(struct matcher *k, uint32_t group, const struct sorted *v, uint32_t n,
		      bool numbered, struct pl_err *err)
{
	uint32_t ranks;

	PL_CHECK(split_ranks(k, v, n, true, &ranks, err));
	if (!numbered)
		return pl_clock_by_order(k->a, group, k->s, ranks, true, err);
	return ranks == n ? pl_clock_add_match(k->a, group, 0, k->ev, n, err)
			  : pl_clock_numbered(k->a, group, k->s, ranks, err);
}

/* v is sorted by number. */
static int match_parts(struct matcher *k, uint32_t group, struct sorted *v, uint32_t n,
		       bool numbered, struct pl_err *err)
{
	struct pl_align *a = k->a;
	uint64_t differences = 0;
	char what[160];

	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && !PL_COMPARE_FIELDS(&v[end], &v[i], step, seq, coll);)
			end++;
		PL_CHECK(match_part(k, group, v + i, end - i, numbered, err));
		if (end == n || PL_COMPARE_FIELDS(&v[end], &v[i], step, seq) ||
		    a->ev[v[end].ev].rank == a->ev[v[i].ev].rank || differences++)
			continue;
		snprintf(what, sizeof(what), "group %.100s, number %" PRId64,
			 pl_intern_get(&a->str, a->group[group].name), v[i].seq);
		PL_CHECK(pl_clock_diverged(a, what, v[i].ev, a->ev[v[i].ev].rank, v[end].ev, err));
	}
	a->rep->divergences += differences ? differences - 1 : 0;
	return 0;
}

/* Do ranks 1.. of a group often end before rank 0 begins, or rank 0 before they begin? Members of
 * rooted collectives do, so these count only where the events themselves name the group. */
static int is_shared_name(struct matcher *k, const struct sorted *v, uint32_t n, bool *shared,
			  struct pl_err *err)
{
	uint32_t ranks;
	double early = 0;

	PL_CHECK(split_ranks(k, v, n, !k->a->ev[v[0].ev].listed, &ranks, err));
	if (ranks > 2)
		PL_CHECK(pl_clock_share_early(k->a, k->s, ranks, &early, err));
	*shared = early > SHARED_EARLY;
	return 0;
}

static void say_shared(const struct pl_align *a, const struct pl_comm *e)
{
	pl_say(a->o.log, PL_LOG_WARN,
	       e->listed ? "group %s, the only one that the files list, ends on some ranks before "
			   "it begins on others: there seem to be more, which are inferred"
			 : "group %s ends on some ranks before it begins on others: the name seems "
			   "to stand for several groups, which are inferred",
	       pl_intern_get(&a->str, e->group));
}

/* Numbers that a rank has several times, without steps: their run takes the place of the step. */
static int find_restarts(struct matcher *k, uint32_t group, struct sorted *v, uint32_t n,
			 struct pl_err *err)
{
	int64_t *run = NULL;
	int rc;

	qsort(v, n, sizeof(*v), by_group);
	PL_TRY(pl_alloc(&run, n, sizeof(*run), err));
	for (uint32_t i = 0; i < n; i++)
		k->ev[i] = v[i].ev;
	PL_TRY(pl_clock_restarts(k->a, pl_intern_get(&k->a->str, k->a->group[group].name), k->ev, n,
				 run, err));
	for (uint32_t i = 0; i < n; i++)
		v[i].step = run[i];
out:
	pl_free(run);
	return rc;
}

/* All events v[0..n) of one recorded group. Those of a shared name go to `rest` instead. */
static int match_group(struct matcher *k, struct sorted *v, uint32_t n, struct pl_err *err)
{
	struct pl_align *a = k->a;
	const struct pl_comm *first = &a->ev[v[0].ev];
	bool seqs = true, steps = true, shared = false, repeats;
	uint32_t group;

	if (first->ranks == PL_NONE || first->listed)
		PL_CHECK(is_shared_name(k, v, n, &shared, err));
	if (shared) {
		say_shared(a, first);
		a->n_listed = first->listed ? 0 : a->n_listed; /* then no list is complete */
		for (uint32_t i = 0; i < n; i++)
			k->rest[k->n_rest++] = v[i].ev;
		return 0;
	}
	PL_CHECK(pl_clock_add_group(a, pl_intern_get(&a->str, first->group),
				    a->str.len[first->group], 0, &group, err));
	PL_CHECK(add_recorded_ranks(a, group, first, err));
	a->group[group].size = (uint32_t)first->size;
	for (uint32_t i = 0; i < n; i++) {
		seqs &= v[i].seq != PL_NO_VALUE;
		steps &= v[i].step != PL_NO_VALUE;
		if (!i || a->ev[v[i].ev].rank != a->ev[v[i - 1].ev].rank)
			PL_CHECK(pl_clock_add_rank(&a->group[group], a->ev[v[i].ev].rank, err));
	}
	for (uint32_t i = 0; i < n; i++) { /* what some lack tells nothing */
		v[i].seq = seqs ? v[i].seq : PL_NO_VALUE;
		v[i].coll = seqs ? v[i].coll : PL_NONE;
	}
	repeats = seqs && number_repeats(a, v, n);
	for (uint32_t i = 0; i < n && (!steps || (seqs && !repeats)); i++)
		v[i].step = PL_NO_VALUE;
	if (repeats && !steps)
		PL_CHECK(find_restarts(k, group, v, n, err));
	if (!seqs || repeats) /* else they are */
		qsort(v, n, sizeof(*v), by_number);
	a->group[group].by = seqs ? PL_BY_NUMBER : PL_BY_ORDER;
	return match_parts(k, group, v, n, seqs, err);
}

/* Collectives of recorded groups, sorted by group, into v. */
static int split_collectives(struct matcher *k, struct sorted *v, uint32_t *n, struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	int rc = 0;

	*n = 0;
	for (uint32_t i = 0; i < k->a->n; i++) {
		const struct pl_comm *e = &k->a->ev[i];
		const pl_id key[3] = { e->group, e->ranks, e->listed };

		if (e->kind != PL_K_COLLECTIVE)
			continue;
		if (e->group == PL_NONE) {
			k->rest[k->n_rest++] = i;
			continue;
		}
		v[*n] = (struct sorted){ .step = e->step, .seq = e->seq, .coll = e->coll, .ev = i };
		PL_TRY(pl_intern_add(&keys, (const char *)key, sizeof(key), &v[(*n)++].group, err));
	}
	qsort(v, *n, sizeof(*v), by_group);
out:
	pl_intern_fini(&keys);
	return rc;
}

/* What is known of the collective of each event. */
static int find_properties(struct pl_align *a, struct pl_err *err)
{
	uint8_t *known = NULL; /* by string, 0: not yet */
	int rc;

	PL_TRY(pl_alloc(&known, a->str.n + 1, 1, err));
	for (size_t i = 0; i < a->n; i++) {
		struct pl_comm *e = &a->ev[i];
		uint8_t *k = &known[e->coll == PL_NONE ? a->str.n : e->coll];

		if (!*k)
			*k = (uint8_t)pl_trace_coll_properties(
				e->coll == PL_NONE ? "" : pl_intern_get(&a->str, e->coll));
		e->coll_is = *k;
	}
out:
	pl_free(known);
	return rc;
}

int pl_clock_match(struct pl_align *a, struct pl_err *err)
{
	struct matcher k = { .a = a };
	struct sorted *v = NULL;
	uint32_t n = 0;
	int rc;

	a->rep->events = a->n;
	if (a->n)
		qsort(a->ev, a->n, sizeof(*a->ev), by_rank_time);
	PL_TRY(find_properties(a, err));
	PL_TRY(pl_clock_listed_use(a, err));
	PL_TRY(pl_alloc(&v, a->n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&k.ev, a->n + 1, sizeof(*k.ev), err));
	PL_TRY(pl_alloc(&k.rest, a->n + 1, sizeof(*k.rest), err));
	PL_TRY(split_collectives(&k, v, &n, err));
	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && v[end].group == v[i].group;)
			end++;
		PL_TRY(match_group(&k, v + i, end - i, err));
	}
	PL_TRY(pl_clock_p2p(a, err));
	PL_TRY(pl_clock_infer_groups(a, k.rest, k.n_rest, err));
out:
	pl_free(v);
	pl_free(k.ev);
	pl_free(k.s);
	pl_free(k.rest);
	return rc;
}
