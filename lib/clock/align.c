/*
 * The order of all parts of clock/: which ranks share a clock, matching, estimate, checks, report.
 *
 * Clocks are numbered by their lowest rank, so that the reference (the first) does not depend on
 * the order of the inputs.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

struct pl_align *pl_clock_new(const struct pl_align_opts *opts, struct pl_err *err)
{
	struct pl_align *a;

	if (pl_alloc(&a, 1, sizeof(*a), err) < 0)
		return NULL;
	a->o = *opts;
	return a;
}

void pl_clock_free(struct pl_align *a)
{
	if (!a)
		return;
	pl_clock_collect_fini(a);
	for (size_t i = 0; i < a->n_groups; i++)
		pl_free(a->group[i].rank);
	pl_free(a->group);
	pl_free(a->match);
	pl_free(a->member);
	pl_intern_fini(&a->str);
	pl_intern_fini(&a->comm_stream_key);
	pl_free(a->ev);
	pl_free(a->msg);
	pl_free(a->comm_stream);
	pl_free(a->sr);
	pl_free(a->dropped);
	pl_free(a->listed);
	pl_intern_fini(&a->rank_sets);
	pl_free(a->clock_host);
	pl_free(a->clock_first);
	pl_free(a);
}

void pl_clock_report_fini(struct pl_clock_report *r)
{
	for (uint32_t i = 0; i < r->n_clocks; i++)
		pl_free(r->clock[i].rank);
	for (uint32_t i = 0; i < r->n_conflicts; i++) {
		pl_free(r->conflict[i].name_before);
		pl_free(r->conflict[i].name_after);
	}
	pl_free(r->clock);
	pl_free(r->group);
	pl_free(r->conflict);
	memset(r, 0, sizeof(*r));
}

int64_t pl_clock_worst_ns(const struct pl_merge *m)
{
	int64_t worst = 0;

	for (uint32_t i = 0; i < m->n_clocks; i++)
		worst = pl_max_i64(worst, m->clock[i].residual_max_ns);
	return worst;
}

/* ---- which ranks share a clock -----------------------------------------------------------------
 */

static int by_rank(const void *x, const void *y)
{
	const struct pl_seg_rank *p = *(const struct pl_seg_rank *const *)x;
	const struct pl_seg_rank *q = *(const struct pl_seg_rank *const *)y;
	uint32_t a = (uint32_t)p->rank, b = (uint32_t)q->rank; /* -1 comes last */

	if (a != b)
		return a < b ? -1 : 1;
	return p->seg < q->seg ? -1 : p->seg > q->seg;
}

static int clock_key(const struct pl_align *a, const struct pl_seg_rank *r, bool many,
		     struct pl_buf *key, struct pl_err *err)
{
	enum pl_clock_by by = a->o.by;

	key->n = 0;
	if (by == PL_CLOCK_ONE)
		return pl_buf_printf(key, err, "one");
	if (by != PL_CLOCK_RANK && r->host != PL_NONE && a->str.len[r->host])
		return pl_buf_printf(key, err, "host %s", pl_intern_get(&a->str, r->host));
	if ((by == PL_CLOCK_AUTO && many) || r->rank < 0)
		return pl_buf_printf(key, err, "segment %u", r->seg);
	return pl_buf_printf(key, err, "rank %d", r->rank);
}

/* Segments with several ranks, and not known to be of different hosts. */
static int many_ranks(const struct pl_align *a, bool *many, struct pl_err *err)
{
	uint32_t *count = NULL;
	int rc;

	PL_TRY(pl_alloc(&count, a->n_segs + 1, sizeof(*count), err));
	for (size_t i = 0; i < a->n_sr; i++)
		many[a->sr[i].seg] = ++count[a->sr[i].seg] > 1;
out:
	pl_free(count);
	return rc;
}

static int number_clocks(struct pl_align *a, struct pl_seg_rank **order, const bool *many,
			 struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	struct pl_buf key = { 0 };
	int rc = 0;

	PL_TRY(pl_alloc(&a->clock_host, a->n_sr + 1, sizeof(*a->clock_host), err));
	PL_TRY(pl_alloc(&a->clock_first, a->n_sr + 1, sizeof(*a->clock_first), err));
	for (size_t i = 0; i < a->n_sr; i++) {
		struct pl_seg_rank *r = order[i];
		pl_id id;

		PL_TRY(clock_key(a, r, many[r->seg], &key, err));
		PL_TRY(pl_intern_add(&keys, (const char *)key.p, key.n, &id, err));
		if (id == a->n_clocks) {
			a->clock_host[id] = r->host;
			a->clock_first[id] = r->first;
			a->n_clocks++;
		}
		if (a->clock_host[id] != r->host) /* --clock=one over several */
			a->clock_host[id] = PL_NONE;
		a->clock_first[id] = pl_min_i64(a->clock_first[id], r->first);
		r->clock = id;
	}
out:
	pl_intern_fini(&keys);
	pl_buf_fini(&key);
	return rc;
}

static int fill_clocks(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&m->clock, a->n_clocks + 1u, sizeof(*m->clock), err));
	PL_TRY(pl_alloc(&m->use, a->n_sr + 1, sizeof(*m->use), err));
	for (uint32_t i = 0; i < a->n_clocks; i++) {
		struct pl_clock *c = &m->clock[m->n_clocks++];

		c->ref_ns = a->clock_first[i];
		if (a->clock_host[i] == PL_NONE)
			continue;
		c->host = pl_strdup(pl_intern_get(&a->str, a->clock_host[i]));
		if (!c->host)
			return pl_fail(err, PL_ENOMEM, "out of memory");
	}
	for (size_t i = 0, seg = 0, out = 0; i < a->n_sr; i++) {
		for (; seg < a->sr[i].seg; seg++)
			out += !a->dropped[seg];
		m->use[m->n_uses++] = (struct pl_clock_use){ .segment = (uint32_t)out,
							     .rank = a->sr[i].rank,
							     .clock = a->sr[i].clock };
	}
out:
	return rc;
}

static int fill_ranks(struct pl_align *a, struct pl_seg_rank **order, struct pl_err *err)
{
	struct pl_clock_report *r = a->rep;
	size_t *cap = NULL;
	int rc;

	PL_TRY(pl_alloc(&r->clock, a->n_clocks + 1u, sizeof(*r->clock), err));
	r->n_clocks = a->n_clocks;
	PL_TRY(pl_alloc(&cap, a->n_clocks + 1u, sizeof(*cap), err));
	for (size_t i = 0; i < a->n_sr; i++) {
		struct pl_clock_info *c = &r->clock[order[i]->clock];

		if (c->n_ranks && c->rank[c->n_ranks - 1] == order[i]->rank)
			continue;
		PL_TRY(pl_grow(&c->rank, &cap[order[i]->clock], c->n_ranks + 1u, sizeof(*c->rank),
			       err));
		c->rank[c->n_ranks++] = order[i]->rank;
	}
out:
	pl_free(cap);
	return rc;
}

static int assign_clocks(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct pl_seg_rank **order = NULL;
	bool *many = NULL;
	int rc;

	PL_TRY(pl_alloc(&order, a->n_sr + 1, sizeof(*order), err));
	PL_TRY(pl_alloc(&many, a->n_segs + 1, sizeof(*many), err));
	for (size_t i = 0; i < a->n_sr; i++)
		order[i] = &a->sr[i];
	qsort(order, a->n_sr, sizeof(*order), by_rank);
	PL_TRY(many_ranks(a, many, err));
	PL_TRY(number_clocks(a, order, many, err));
	PL_TRY(fill_ranks(a, order, err));
	PL_TRY(fill_clocks(a, m, err));
	for (size_t i = 0; i < a->n; i++)
		a->ev[i].clock = a->sr[a->ev[i].clock].clock;
out:
	pl_free(order);
	pl_free(many);
	return rc;
}

/* ---- residuals ---------------------------------------------------------------------------------
 */

/* Residuals of the ends of matches against the median end of their match. */
struct residuals {
	int64_t *value, *sorted;
	uint32_t *clock, *group; /* of each, PL_NONE: does not count there */
	size_t n;
};

static void match_residuals(const struct pl_align *a, const struct pl_merge *m,
			    const struct pl_cmatch *k, struct residuals *r)
{
	bool data = a->ev[a->member[k->first]].coll_is & PL_COLL_MOVES_DATA;
	int64_t *v = r->value + r->n, *sorted = r->sorted, mid, above = INT64_MAX;

	for (uint32_t i = 0; i < k->n; i++) {
		const struct pl_comm *e = &a->ev[a->member[k->first + i]];

		v[i] = sorted[i] = pl_trace_clock_apply(&m->clock[e->clock], e->end);
		r->clock[r->n + i] = data ? e->clock : PL_NONE;
		r->group[r->n + i] = k->group;
	}
	mid = pl_median_i64(sorted, k->n);
	for (uint32_t i = k->n / 2; i < k->n && k->n % 2 == 0; i++)
		above = pl_min_i64(above, sorted[i]);
	if (k->n % 2 == 0) /* between the two middle ones */
		mid += pl_sub_sat(above, mid) / 2;
	for (uint32_t i = 0; i < k->n; i++) {
		v[i] = pl_sub_sat(v[i], mid);
		v[i] = v[i] < 0 ? pl_sub_sat(0, v[i]) : v[i];
	}
	r->n += k->n;
}

/* The residuals by key, in r->sorted; first0: of keys + 1. */
static void sort_residuals(struct residuals *r, const uint32_t *key, uint32_t keys, size_t *first0)
{
	memset(first0, 0, (keys + 2u) * sizeof(*first0));
	for (size_t i = 0; i < r->n; i++)
		if (key[i] != PL_NONE)
			first0[key[i] + 2]++;
	for (uint32_t k = 0; k < keys; k++)
		first0[k + 2] += first0[k + 1];
	for (size_t i = 0; i < r->n; i++)
		if (key[i] != PL_NONE)
			r->sorted[first0[key[i] + 1]++] = r->value[i];
}

static void put_residuals(struct pl_align *a, struct pl_merge *m, struct residuals *r,
			  size_t *first0)
{
	sort_residuals(r, r->clock, m->n_clocks, first0);
	for (uint32_t i = 0; i < m->n_clocks; i++) {
		size_t n = first0[i + 1] - first0[i];
		int64_t *v = r->sorted + first0[i];

		a->rep->clock[i].residuals = n;
		if (!n)
			continue;
		m->clock[i].residual_p50_ns = pl_percentile_i64(v, n, 50);
		m->clock[i].residual_p95_ns = pl_percentile_i64(v, n, 95);
		m->clock[i].residual_max_ns = pl_percentile_i64(v, n, 100);
	}
	sort_residuals(r, r->group, a->rep->n_groups, first0);
	for (uint32_t i = 0; i < a->rep->n_groups; i++) {
		size_t n = first0[i + 1] - first0[i];
		int64_t *v = r->sorted + first0[i];

		if (!n)
			continue;
		a->rep->group[i].residual_p50_ns = pl_percentile_i64(v, n, 50);
		a->rep->group[i].residual_p95_ns = pl_percentile_i64(v, n, 95);
	}
}

static int find_residuals(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct pl_arena mem = { 0 };
	struct residuals r = { 0 };
	size_t n = a->n_members + 1, keys = pl_max_i64(m->n_clocks, (int64_t)a->n_groups) + 2u;
	size_t *first0;
	int rc;

	PL_TRY(pl_arena_array(&mem, &r.value, n, sizeof(*r.value), err));
	PL_TRY(pl_arena_array(&mem, &r.sorted, n, sizeof(*r.sorted), err));
	PL_TRY(pl_arena_array(&mem, &r.clock, n, sizeof(*r.clock), err));
	PL_TRY(pl_arena_array(&mem, &r.group, n, sizeof(*r.group), err));
	PL_TRY(pl_arena_array(&mem, &first0, keys, sizeof(*first0), err));
	for (size_t i = 0; i < a->n_matches; i++)
		if (a->match[i].group != PL_NONE && a->match[i].n > 1)
			match_residuals(a, m, &a->match[i], &r);
	put_residuals(a, m, &r, first0);
out:
	pl_arena_fini(&mem);
	return rc;
}

/* ---- the table of the merged stream
 * -----------------------------------------------------------------
 */

static int fill_groups(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&m->group, a->n_groups + 1, sizeof(*m->group), err));
	PL_TRY(pl_alloc(&a->rep->group, a->n_groups + 1, sizeof(*a->rep->group), err));
	a->rep->n_groups = (uint32_t)a->n_groups;
	for (size_t i = 0; i < a->n_groups; i++) {
		const struct pl_cgroup *g = &a->group[i];
		struct pl_group *o = &m->group[m->n_groups++];

		a->rep->group[i].first_rank_missing = -1;
		a->rep->group[i].by = g->by;
		a->rep->reordered += g->by == PL_BY_STREAMS || g->by == PL_BY_KINDS;
		a->rep->inferred_groups += (g->flags & PL_GROUP_INFERRED) != 0;
		o->name = pl_strdup(pl_intern_get(&a->str, g->name));
		if (!o->name)
			return pl_fail(err, PL_ENOMEM, "out of memory");
		o->flags = g->flags;
		PL_TRY(pl_alloc(&o->rank, g->n + 1u, sizeof(*o->rank), err));
		for (uint32_t k = 0; k < g->n; k++)
			o->rank[o->n++] = (uint32_t)g->rank[k];
	}
out:
	return rc;
}

static void put_message(const struct pl_align *a, struct pl_merge *m, const struct pl_paired *p,
			const uint32_t *number)
{
	struct pl_match x = { .group = PL_NONE,
			      .first = m->n_members,
			      .n = p->recv == PL_NONE ? 1 : 2,
			      .flags = PL_MATCH_P2P | PL_MATCH_MESSAGE };

	if (x.n == 1)
		x.flags |= PL_MATCH_MISSING;
	m->match[m->n_matches++] = x;
	for (uint32_t i = 0; i < x.n; i++) {
		const struct pl_comm *e = &a->msg[i ? p->recv : p->send];

		m->member[m->n_members++] = (struct pl_member){ number[e->seg], e->event };
	}
}

static int fill_matches(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	uint32_t *number = NULL, out = 0;
	struct pl_paired *paired = NULL;
	size_t n_paired = 0, at = 0;
	int rc;

	PL_TRY(pl_clock_messages(a, &paired, &n_paired, err));
	if (a->n_members + 2 * n_paired >= PL_NONE) {
		rc = pl_fail(err, PL_ELIMIT,
			     "more than 2^32 events: cut the trace with trace --step or --time");
		goto out;
	}

	PL_TRY(pl_alloc(&number, a->n_segs + 1, sizeof(*number), err));
	for (size_t i = 0; i < a->n_segs; i++) {
		number[i] = out;
		out += !a->dropped[i];
	}
	PL_TRY(pl_alloc(&m->match, a->n_matches + n_paired + 1, sizeof(*m->match), err));
	PL_TRY(pl_alloc(&m->member, a->n_members + 2 * n_paired + 1, sizeof(*m->member), err));
	for (size_t i = 0; i < a->n_members; i++) {
		const struct pl_comm *e = &a->ev[a->member[i]];

		m->member[m->n_members++] = (struct pl_member){ number[e->seg], e->event };
	}
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *k = &a->match[i];

		m->match[m->n_matches++] = (struct pl_match){ k->group, k->first, k->n, k->flags };
		for (; at < n_paired && paired[at].match == i; at++)
			put_message(a, m, &paired[at], number);
		if (k->group == PL_NONE)
			continue;
		a->rep->group[k->group].matches++;
		a->rep->group[k->group].missing += (k->flags & PL_MATCH_MISSING) != 0;
	}
out:
	pl_free(paired);
	pl_free(number);
	return rc;
}

/* Collectives without another member, and why. */
static void say_alone(const struct pl_align *a, size_t groups, int32_t one)
{
	unsigned long long alone = a->rep->unmatched_collectives;
	unsigned long long all = a->rep->collective_matches;

	if (groups && alone)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%llu of %llu collectives are on one rank only, since ranks of %zu of %zu "
		       "groups were not given (rank %d is one): their durations include waits",
		       alone, all, groups, a->n_groups, one);
	else if (groups)
		pl_say(a->o.log, PL_LOG_NOTE,
		       "ranks of %zu of %zu groups were not given (rank %d is one)", groups,
		       a->n_groups, one);
	else if (alone)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%llu of %llu collectives were found on one rank only: their durations "
		       "include waits; record groups, or more steps",
		       alone, all);
}

/* Ranks of groups that no segment has: normal when only some of a job's files are given. */
static int missing_ranks(struct pl_align *a, struct pl_err *err)
{
	struct pl_intern seen = { 0 };
	size_t groups = 0;
	int32_t one = -1;
	pl_id id;
	int rc = 0;

	for (size_t i = 0; i < a->n_sr; i++)
		PL_TRY(pl_intern_add(&seen, (const char *)&a->sr[i].rank, sizeof(one), &id, err));
	for (size_t i = 0; i < a->n_groups; i++) {
		const struct pl_cgroup *g = &a->group[i];
		int32_t *missing = &a->rep->group[i].first_rank_missing;

		for (uint32_t k = 0; k < g->n && *missing < 0; k++)
			if (pl_intern_find(&seen, (const char *)&g->rank[k], sizeof(one)) ==
			    PL_NONE)
				*missing = g->rank[k];
		groups += *missing >= 0;
		one = one < 0 ? *missing : one;
	}
	say_alone(a, groups, one);
out:
	pl_intern_fini(&seen);
	return rc;
}

/* What could not be matched, or not for sure, makes the graph less than it could be: say so. */
static void say_doubts(const struct pl_align *a)
{
	uint64_t alone = a->rep->unmatched_sends + a->rep->unmatched_recvs, all = 0;

	for (size_t i = 0; i < a->n; i++)
		all += a->ev[i].kind != PL_K_COLLECTIVE;
	if (alone)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%" PRIu64 " of %" PRIu64
		       " sends and receives have no partner: nothing joins "
		       "their ranks in a graph, and their waits count as transfers; record groups "
		       "and peers, or more steps",
		       alone, all);
	if (a->rep->doubtful)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%u of the inferred groups and pairs were hardly likelier than others: what "
		       "counts as wait and as transfer there is a guess; record groups, or more "
		       "steps",
		       a->rep->doubtful);
}

int pl_clock_solve(struct pl_align *a, struct pl_merge *m, struct pl_clock_report *r,
		   struct pl_err *err)
{
	int rc;

	memset(m, 0, sizeof(*m));
	memset(r, 0, sizeof(*r));
	a->rep = r;
	a->m = m;
	PL_TRY(pl_clock_recordings(a, err));
	PL_TRY(assign_clocks(a, m, err));
	PL_TRY(pl_clock_match(a, err));
	PL_TRY(fill_groups(a, m, err));
	PL_TRY(fill_matches(a, m, err));
	PL_TRY(missing_ranks(a, err));
	say_doubts(a);
	PL_TRY(pl_clock_estimate(a, err));
	pl_clock_say_joined(a);
	PL_TRY(pl_clock_box(a, err));
	PL_TRY(find_residuals(a, m, err));
out:
	return rc;
}
