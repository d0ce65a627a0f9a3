/*
 * Which events are one communication.
 *
 * Where the group and a sequence number are recorded they decide. Where only the group is, the
 * order of its ranks' events does (order.c), step by step if steps are recorded. Where neither is
 * recorded, infer.c finds the groups. A recorded name that several groups share (every replica's
 * "tp") shows in events that end before their supposed partners begin: it is then treated as not
 * recorded.
 *
 * Cost: sorting, and O(N) to follow sequences that agree.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

#define SHARED_EARLY 0.2 /* share of impossible pairs that shows a shared name */

/* ---- groups and matches ------------------------------------------------------------------------
 */

int pl_clock_add_group(struct pl_align *a, const char *name, size_t n, uint32_t flags,
		       uint32_t *index, struct pl_err *err)
{
	struct pl_cgroup g = { .flags = flags };
	int rc;

	if (a->n_groups >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than 2^32 groups");
	PL_TRY(pl_intern_add(&a->str, name, n, &g.name, err));
	PL_TRY(pl_grow(&a->group, &a->cap_groups, a->n_groups + 1, sizeof(*a->group), err));
	*index = (uint32_t)a->n_groups;
	a->group[a->n_groups++] = g;
out:
	return rc;
}

int pl_clock_add_rank(struct pl_cgroup *g, int32_t rank, struct pl_err *err)
{
	uint32_t i = 0; /* ascending; mostly it is behind the last */
	int rc;

	PL_LOWER_BOUND(i, g->n, g->rank[i] < rank);
	if (i < g->n && g->rank[i] == rank)
		return 0;
	rc = pl_grow(&g->rank, &g->cap, g->n + 1u, sizeof(*g->rank), err);
	if (rc < 0)
		return rc;
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
	int rc;

	PL_TRY(pl_grow(&a->match, &a->cap_matches, a->n_matches + 1, sizeof(*a->match), err));
	PL_TRY(pl_grow(&a->member, &a->cap_members, a->n_members + n, sizeof(*a->member), err));
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
out:
	return rc;
}

int pl_clock_add_pairs(struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
		       uint32_t flags, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < y->n; i++) {
		uint32_t ev[2];
		bool send;

		if (y->to[i] == PL_NONE)
			continue;
		send = a->ev[x->ev[y->to[i]]].kind == PL_K_SEND;
		ev[!send] = x->ev[y->to[i]];
		ev[send] = y->ev[i];
		PL_TRY(pl_clock_add_match(a, PL_NONE, PL_MATCH_P2P | flags, ev, 2, err));
	}
out:
	return rc;
}

/* ---- sorting -----------------------------------------------------------------------------------
 */

PL_COMPARATOR(by_rank_time, struct pl_comm, rank, turn, seg, event);

struct sorted { /* an event of a recorded group, with its sort key */
	int64_t step, seq;
	uint32_t group, coll, ev; /* ev: already ascending by (rank, time) */
};

PL_COMPARATOR(by_group, struct sorted, group, ev);

PL_COMPARATOR(by_number, struct sorted, step, seq, coll, ev);

PL_COMPARATOR(by_step, struct sorted, step, ev);

/* ---- recorded groups ---------------------------------------------------------------------------
 */

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

static int add_recorded_ranks(struct pl_align *a, uint32_t group, const char *s, struct pl_err *err)
{
	const char *dot = strrchr(s, '.');
	int32_t rank;
	int rc = 0;

	/* the list may be cut short: "0, 1, ... 63" */
	while (rc >= 0 && pl_clock_next_rank(&s, &rank) && (!dot || s < dot))
		rc = pl_clock_add_rank(&a->group[group], rank, err);
	return rc;
}

/* The sequences of the ranks in v[0..n), which is by (rank, time). `ev` and `to` of n are filled.
 */
static uint32_t split_ranks(const struct pl_align *a, const struct sorted *v, uint32_t n,
			    uint32_t *ev, uint32_t *to, struct pl_seq *s)
{
	uint32_t ranks = 0;

	for (uint32_t i = 0; i < n; i++) {
		int32_t rank = a->ev[v[i].ev].rank;

		ev[i] = v[i].ev;
		if (!ranks || s[ranks - 1].rank != rank)
			s[ranks++] = (struct pl_seq){ ev + i, 0, rank, to + i };
		s[ranks - 1].n++;
	}
	return ranks;
}

/* Events of one (step, seq, collective), by rank and time: normally one of each rank. */
static int match_numbered(struct pl_align *a, uint32_t group, const struct sorted *v, uint32_t n,
			  uint32_t *ev, struct pl_seq *s, struct pl_err *err)
{
	uint32_t ranks = split_ranks(a, v, n, ev, ev + n, s);

	return ranks == n ? pl_clock_add_match(a, group, 0, ev, n, err)
			  : pl_clock_numbered(a, group, s, ranks, err);
}

static int match_by_number(struct pl_align *a, uint32_t group, struct sorted *v, uint32_t n,
			   struct pl_err *err)
{
	uint32_t *ev = NULL;
	struct pl_seq *s = NULL;
	bool said = false;
	char what[160];
	int rc;

	a->group[group].by = PL_BY_NUMBER;
	PL_TRY(pl_alloc(&ev, 2u * (size_t)n, sizeof(*ev), err));
	PL_TRY(pl_alloc(&s, n, sizeof(*s), err));
	qsort(v, n, sizeof(*v), by_number);
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].step == v[i].step && v[k].seq == v[i].seq &&
				v[k].coll == v[i].coll;)
			k++;
		PL_TRY(match_numbered(a, group, v + i, k - i, ev, s, err));
		if (k == n || v[k].step != v[i].step || v[k].seq != v[i].seq ||
		    a->ev[v[k].ev].rank == a->ev[v[i].ev].rank)
			continue;
		if (!said) {
			snprintf(what, sizeof(what), "group %.100s, number %" PRId64,
				 pl_intern_get(&a->str, a->group[group].name), v[i].seq);
			PL_TRY(pl_clock_diverged(a, what, v[i].ev, a->ev[v[i].ev].rank, v[k].ev,
						 err));
		} else {
			a->rep->divergences++;
		}
		said = true;
	}
out:
	pl_free(ev);
	pl_free(s);
	return rc;
}

/* Do ranks 1.. of a group often end before rank 0 begins, or rank 0 before they begin? Members of
 * rooted collectives do, so these count only where the events themselves name the group. */
static int is_shared_name(const struct pl_align *a, const struct sorted *all, uint32_t n_all,
			  bool *shared, struct pl_err *err)
{
	uint32_t *ev = NULL, ranks, n = 0;
	struct sorted *v = NULL;
	struct pl_seq *s = NULL;
	double early = 0;
	int rc;

	*shared = false;
	PL_TRY(pl_alloc(&v, n_all + 1u, sizeof(*v), err));
	for (uint32_t i = 0; i < n_all; i++) {
		const struct pl_comm *e = &a->ev[all[i].ev];

		if (!e->listed || !(e->coll_is & PL_COLL_ROOTED))
			v[n++] = all[i];
	}
	PL_TRY(pl_alloc(&ev, 2u * (size_t)n + 1, sizeof(*ev), err));
	PL_TRY(pl_alloc(&s, n + 1u, sizeof(*s), err));
	ranks = split_ranks(a, v, n, ev, ev + n, s);
	if (ranks > 2)
		PL_TRY(pl_clock_share_early(a, s, ranks, &early, err));
	*shared = early > SHARED_EARLY;
out:
	pl_free(v);
	pl_free(ev);
	pl_free(s);
	return rc;
}

static int match_in_order(struct pl_align *a, uint32_t group, struct sorted *v, uint32_t n,
			  bool steps, struct pl_err *err)
{
	uint32_t *ev = NULL, ranks;
	struct pl_seq *s = NULL;
	int rc;

	PL_TRY(pl_alloc(&ev, 2u * (size_t)n, sizeof(*ev), err));
	PL_TRY(pl_alloc(&s, n, sizeof(*s), err));
	if (steps)
		qsort(v, n, sizeof(*v), by_step);
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && (!steps || v[k].step == v[i].step);)
			k++;
		ranks = split_ranks(a, v + i, k - i, ev, ev + n, s);
		PL_TRY(pl_clock_recorded(a, group, s, ranks, err));
	}
out:
	pl_free(ev);
	pl_free(s);
	return rc;
}

/* All events v[0..n) of one recorded group. Those of a shared name go to `rest` instead. */
static int match_group(struct pl_align *a, struct sorted *v, uint32_t n, uint32_t *rest,
		       uint32_t *n_rest, struct pl_err *err)
{
	const struct pl_comm *first = &a->ev[v[0].ev];
	bool seqs = true, steps = true, shared;
	uint32_t group;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		seqs &= v[i].seq != PL_NO_VALUE;
		steps &= v[i].step != PL_NO_VALUE;
	}
	if (first->ranks == PL_NONE || first->listed) {
		PL_TRY(is_shared_name(a, v, n, &shared, err));
		if (shared) {
			pl_say(a->o.log, PL_LOG_WARN,
			       first->listed
				       ? "group %s, the only one that the files list, ends on "
					 "some ranks before it begins on others: there seem to "
					 "be more, which are inferred"
				       : "group %s ends on some ranks before it begins on "
					 "others: the name seems to stand for several groups, "
					 "which are inferred",
			       pl_intern_get(&a->str, first->group));
			if (first->listed)
				a->n_listed = 0; /* then no list is complete */
			for (uint32_t i = 0; i < n; i++)
				rest[(*n_rest)++] = v[i].ev;
			return 0;
		}
	}
	PL_TRY(pl_clock_add_group(a, pl_intern_get(&a->str, first->group), a->str.len[first->group],
				  0, &group, err));
	if (first->ranks != PL_NONE)
		PL_TRY(add_recorded_ranks(a, group, pl_intern_get(&a->str, first->ranks), err));
	a->group[group].size = (uint32_t)first->size;
	for (uint32_t i = 0; i < n; i++)
		if (!i || a->ev[v[i].ev].rank != a->ev[v[i - 1].ev].rank)
			PL_TRY(pl_clock_add_rank(&a->group[group], a->ev[v[i].ev].rank, err));
	if (!steps)
		for (uint32_t i = 0; i < n; i++)
			v[i].step = PL_NO_VALUE;
	rc = seqs ? match_by_number(a, group, v, n, err)
		  : match_in_order(a, group, v, n, steps, err);
out:
	return rc;
}

static int group_key(struct pl_intern *keys, const struct pl_comm *e, uint32_t *key,
		     struct pl_err *err)
{
	pl_id k[3] = { e->group, e->ranks, e->listed };

	return pl_intern_add(keys, (const char *)k, sizeof(k), key, err);
}

static int split_collectives(struct pl_align *a, struct sorted *v, uint32_t *n, uint32_t *rest,
			     uint32_t *n_rest, struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	int rc = 0;

	for (size_t i = 0; i < a->n; i++) {
		const struct pl_comm *e = &a->ev[i];

		if (e->kind != PL_K_COLLECTIVE)
			continue;
		if (e->group == PL_NONE) {
			rest[(*n_rest)++] = (uint32_t)i;
			continue;
		}
		v[*n] = (struct sorted){
			.step = e->step, .seq = e->seq, .coll = e->coll, .ev = (uint32_t)i
		};
		PL_TRY(group_key(&keys, e, &v[(*n)++].group, err));
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

int pl_clock_match(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct sorted *v = NULL;
	uint32_t *rest = NULL, n = 0, n_rest = 0;
	int rc;

	a->rep->events = a->n;
	if (a->n)
		qsort(a->ev, a->n, sizeof(*a->ev), by_rank_time);
	PL_TRY(find_properties(a, err));
	PL_TRY(pl_clock_listed_use(a, err));
	PL_TRY(pl_alloc(&v, a->n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&rest, a->n + 1, sizeof(*rest), err));
	PL_TRY(split_collectives(a, v, &n, rest, &n_rest, err));
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].group == v[i].group;)
			k++;
		PL_TRY(match_group(a, v + i, k - i, rest, &n_rest, err));
	}
	PL_TRY(pl_clock_p2p(a, m, err));
	PL_TRY(pl_clock_infer_groups(a, m, rest, n_rest, err));
out:
	pl_free(v);
	pl_free(rest);
	return rc;
}
