/*
 * The order of all parts of clock/: which ranks share a clock, matching, estimate, checks, report.
 *
 * Clocks are numbered by lowest rank, so the reference (the first) does not depend on input order.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"
#include "core/spans.h"

struct pl_align *pl_clock_new(const struct pl_align_opts *opts, struct pl_err *err)
{
	struct pl_align *a;

	if (pl_alloc(&a, 1, sizeof(*a), err) < 0)
		return NULL;
	if (pl_alloc(&a->scratch, PL_SEQ_SCRATCH, sizeof(*a->scratch), err) < 0) {
		pl_clock_free(a);
		return NULL;
	}
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
	pl_intern_fini(&a->comm_streams);
	pl_free(a->ev);
	pl_free(a->msg);
	pl_free(a->sr);
	pl_free(a->seg);
	pl_free(a->listed);
	pl_intern_fini(&a->rank_sets);
	pl_free(a->clock_first);
	pl_free(a->partition);
	pl_free(a->component);
	pl_free(a->scratch);
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

void pl_clock_sort_by_key(const uint32_t *key, size_t n, uint32_t keys, uint32_t *out,
			  uint32_t *first0)
{
	memset(first0, 0, (keys + 1u) * sizeof(*first0));
	for (size_t i = 0; i < n; i++)
		if (key[i] != PL_NONE)
			first0[key[i] + 1]++;
	for (uint32_t k = 0; k < keys; k++)
		first0[k + 1] += first0[k];
	for (size_t i = 0; i < n; i++)
		if (key[i] != PL_NONE)
			out[first0[key[i]]++] = (uint32_t)i;
	memmove(first0 + 1, first0, keys * sizeof(*first0));
	first0[0] = 0;
}

/* ---- which ranks share a clock --------------------------------------------------------------- */

static int by_rank(const void *x, const void *y)
{
	const struct pl_seg_rank *p = *(const struct pl_seg_rank *const *)x;
	const struct pl_seg_rank *q = *(const struct pl_seg_rank *const *)y;
	uint32_t a = (uint32_t)p->rank, b = (uint32_t)q->rank; /* -1 comes last */

	if (a != b)
		return a < b ? -1 : 1;
	return p->seg < q->seg ? -1 : p->seg > q->seg;
}

/* Ranks of one key share a clock. `r` is in a->sr, segment by segment. */
static int clock_key(const struct pl_align *a, const struct pl_seg_rank *r, struct pl_buf *key,
		     struct pl_err *err)
{
	bool many = (r > a->sr && r[-1].seg == r->seg) ||
		    (r + 1 < a->sr + a->n_sr && r[1].seg == r->seg);
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

/* The clock gets the host of its ranks, or none where they differ. */
static int set_host(struct pl_clock *c, const char *host, bool first, struct pl_err *err)
{
	if (first && host) {
		c->host = pl_strdup(host);
		return c->host ? 0 : pl_fail(err, PL_ENOMEM, "out of memory");
	}
	if (c->host && (!host || strcmp(c->host, host) != 0)) {
		pl_free(c->host);
		c->host = NULL;
	}
	return 0;
}

/* `order`: by rank. */
static int number_clocks(struct pl_align *a, struct pl_seg_rank **order, struct pl_err *err)
{
	struct pl_clock_report *rep = a->rep;
	struct pl_intern keys = { 0 };
	struct pl_buf key = { 0 };
	size_t *cap = NULL;
	int rc;

	PL_TRY(pl_alloc(&a->m->clock, a->n_sr + 1, sizeof(*a->m->clock), err));
	PL_TRY(pl_alloc(&a->clock_first, a->n_sr + 1, sizeof(*a->clock_first), err));
	PL_TRY(pl_alloc(&rep->clock, a->n_sr + 1, sizeof(*rep->clock), err));
	PL_TRY(pl_alloc(&a->partition, a->n_sr + 1, sizeof(*a->partition), err));
	PL_TRY(pl_alloc(&a->component, a->n_sr + 1, sizeof(*a->component), err));
	PL_TRY(pl_alloc(&cap, a->n_sr + 1, sizeof(*cap), err));
	for (size_t i = 0; i < a->n_sr; i++) {
		struct pl_seg_rank *r = order[i];
		struct pl_clock_info *c;
		bool first;

		PL_TRY(clock_key(a, r, &key, err));
		PL_TRY(pl_intern_add(&keys, (const char *)key.p, key.n, &r->clock, err));
		first = r->clock == a->n_clocks;
		a->n_clocks = a->m->n_clocks = rep->n_clocks = (uint32_t)keys.n;
		PL_TRY(set_host(&a->m->clock[r->clock],
				r->host == PL_NONE ? NULL : pl_intern_get(&a->str, r->host), first,
				err));
		if (first || r->first < a->clock_first[r->clock])
			a->m->clock[r->clock].ref_ns = a->clock_first[r->clock] = r->first;
		c = &rep->clock[r->clock];
		if (c->n_ranks && c->rank[c->n_ranks - 1] == r->rank)
			continue;
		PL_TRY(pl_grow(&c->rank, &cap[r->clock], c->n_ranks + 1u, sizeof(*c->rank), err));
		c->rank[c->n_ranks++] = r->rank;
	}
out:
	pl_intern_fini(&keys);
	pl_buf_fini(&key);
	pl_free(cap);
	return rc;
}

static int assign_clocks(struct pl_align *a, struct pl_err *err)
{
	struct pl_merge *m = a->m;
	struct pl_seg_rank **order = NULL;
	int rc;

	PL_TRY(pl_alloc(&order, a->n_sr + 1, sizeof(*order), err));
	for (size_t i = 0; i < a->n_sr; i++)
		order[i] = &a->sr[i];
	qsort(order, a->n_sr, sizeof(*order), by_rank);
	PL_TRY(number_clocks(a, order, err));
	PL_TRY(pl_alloc(&m->use, a->n_sr + 1, sizeof(*m->use), err));
	for (size_t i = 0; i < a->n_sr; i++)
		m->use[m->n_uses++] = (struct pl_clock_use){
			.segment = a->seg[a->sr[i].seg].number,
			.rank = a->sr[i].rank,
			.clock = a->sr[i].clock,
		};
	for (size_t i = 0; i < a->n; i++)
		a->ev[i].clock = a->sr[a->ev[i].clock].clock;
out:
	pl_free(order);
	return rc;
}

/* ---- residuals ------------------------------------------------------------------------------- */

/* Residuals of the ends of matches against the median end of their match. */
struct residuals {
	struct pl_arena mem;
	int64_t *value, *sorted;
	uint32_t *clock, *group; /* of each, PL_NONE: does not count there */
	bool *together;		 /* clocks that have collectives without a root */
	uint32_t *order, *first0;
	size_t n;
};

static bool has_residuals(const struct pl_align *a, const struct pl_cmatch *k)
{
	return k->group != PL_NONE && k->n > 1 && pl_clock_has_ends(a, k);
}

/* Members of a broadcast do not end together: it counts for clocks that have nothing better. */
static void find_together(const struct pl_align *a, bool *together)
{
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *k = &a->match[i];
		const uint32_t *ev = a->member + k->first;
		unsigned is = a->ev[ev[0]].coll_is & (PL_COLL_MOVES_DATA | PL_COLL_ROOTED);

		if (is != PL_COLL_MOVES_DATA || !has_residuals(a, k))
			continue;
		for (uint32_t m = 0; m < k->n; m++)
			together[a->ev[ev[m]].clock] = true;
	}
}

static void match_residuals(const struct pl_align *a, const struct pl_cmatch *k,
			    struct residuals *r)
{
	unsigned is = a->ev[a->member[k->first]].coll_is;
	bool data = is & PL_COLL_MOVES_DATA, rooted = is & PL_COLL_ROOTED;
	int64_t *v = r->value + r->n, mid;

	for (uint32_t i = 0; i < k->n; i++) {
		const struct pl_comm *e = &a->ev[a->member[k->first + i]];

		v[i] = r->sorted[i] = pl_trace_clock_apply(&a->m->clock[e->clock], e->end);
		r->clock[r->n + i] =
			data && !(rooted && r->together[e->clock]) ? e->clock : PL_NONE;
		r->group[r->n + i] = k->group;
	}
	mid = pl_median_mean_i64(r->sorted, k->n);
	for (uint32_t i = 0; i < k->n; i++)
		v[i] = v[i] < mid ? pl_sub_sat(mid, v[i]) : pl_sub_sat(v[i], mid);
	r->n += k->n;
}

/* The residuals by key: those of key k from r->first0[k] on, in r->sorted. */
static void sort_residuals(struct residuals *r, const uint32_t *key, uint32_t keys)
{
	pl_clock_sort_by_key(key, r->n, keys, r->order, r->first0);
	for (size_t i = 0; i < r->first0[keys]; i++)
		r->sorted[i] = r->value[r->order[i]];
}

static int find_residuals(struct pl_align *a, struct pl_err *err)
{
	struct residuals r = { 0 };
	size_t n = a->n_members + 1;
	uint32_t *first0;
	int rc;

	PL_TRY(pl_arena_array(&r.mem, &r.value, n, sizeof(*r.value), err));
	PL_TRY(pl_arena_array(&r.mem, &r.sorted, n, sizeof(*r.sorted), err));
	PL_TRY(pl_arena_array(&r.mem, &r.clock, n, sizeof(*r.clock), err));
	PL_TRY(pl_arena_array(&r.mem, &r.group, n, sizeof(*r.group), err));
	PL_TRY(pl_arena_array(&r.mem, &r.order, n, sizeof(*r.order), err));
	PL_TRY(pl_arena_array(&r.mem, &r.together, a->n_clocks + 1u, sizeof(*r.together), err));
	memset(r.together, 0, a->n_clocks * sizeof(*r.together));
	find_together(a, r.together);
	PL_TRY(pl_arena_array(&r.mem, &r.first0, a->n_clocks + a->n_groups + 1, sizeof(*first0),
			      err));
	first0 = r.first0;
	for (size_t i = 0; i < a->n_matches; i++)
		if (has_residuals(a, &a->match[i]))
			match_residuals(a, &a->match[i], &r);
	sort_residuals(&r, r.clock, a->n_clocks);
	for (uint32_t i = 0; i < a->n_clocks; i++) {
		struct pl_clock *c = &a->m->clock[i];
		int64_t *v = r.sorted + first0[i];

		a->rep->clock[i].residuals = n = first0[i + 1] - first0[i];
		if (!n)
			continue;
		c->residual_p50_ns = pl_percentile_i64(v, n, 50);
		c->residual_p95_ns = pl_percentile_i64(v, n, 95);
		c->residual_max_ns = pl_percentile_i64(v, n, 100);
	}
	sort_residuals(&r, r.group, a->rep->n_groups);
	for (uint32_t i = 0; i < a->rep->n_groups; i++) {
		struct pl_group_info *g = &a->rep->group[i];
		int64_t *v = r.sorted + first0[i];

		g->residuals = n = first0[i + 1] - first0[i];
		if (!n)
			continue;
		g->residual_p50_ns = pl_percentile_i64(v, n, 50);
		g->residual_p95_ns = pl_percentile_i64(v, n, 95);
	}
out:
	pl_arena_fini(&r.mem);
	return rc;
}

/* ---- the table of the merged stream ---------------------------------------------------------- */

static int fill_groups(struct pl_align *a, struct pl_err *err)
{
	struct pl_merge *m = a->m;

	PL_CHECK(pl_alloc(&m->group, a->n_groups + 1, sizeof(*m->group), err));
	PL_CHECK(pl_alloc(&a->rep->group, a->n_groups + 1, sizeof(*a->rep->group), err));
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
		PL_CHECK(pl_alloc(&o->rank, g->n + 1u, sizeof(*o->rank), err));
		for (uint32_t k = 0; k < g->n; k++)
			o->rank[o->n++] = (uint32_t)g->rank[k];
	}
	return 0;
}

static struct pl_member member_of(const struct pl_align *a, const struct pl_comm *e)
{
	return (struct pl_member){ a->seg[e->seg].number, e->event };
}

static void put_message(const struct pl_align *a, const struct pl_paired *p)
{
	struct pl_merge *m = a->m;
	struct pl_match x = { .group = PL_NONE,
			      .first = m->n_members,
			      .n = p->recv == PL_NONE ? 1 : 2,
			      .flags = PL_MATCH_P2P | PL_MATCH_MESSAGE };

	if (x.n == 1)
		x.flags |= PL_MATCH_MISSING;
	m->match[m->n_matches++] = x;
	for (uint32_t i = 0; i < x.n; i++)
		m->member[m->n_members++] = member_of(a, &a->msg[i ? p->recv : p->send]);
}

static int fill_matches(struct pl_align *a, struct pl_err *err)
{
	struct pl_merge *m = a->m;
	struct pl_paired *paired = NULL;
	size_t n_paired = 0, at = 0;
	int rc;

	PL_TRY(pl_clock_messages(a, &paired, &n_paired, err));
	if (a->n_members + 2 * n_paired >= PL_NONE) {
		rc = pl_fail(err, PL_ELIMIT,
			     "more than 2^32 events: cut the trace with trace --step or --time");
		goto out;
	}
	PL_TRY(pl_alloc(&m->match, a->n_matches + n_paired + 1, sizeof(*m->match), err));
	PL_TRY(pl_alloc(&m->member, a->n_members + 2 * n_paired + 1, sizeof(*m->member), err));
	for (size_t i = 0; i < a->n_members; i++)
		m->member[m->n_members++] = member_of(a, &a->ev[a->member[i]]);
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *k = &a->match[i];

		m->match[m->n_matches++] = (struct pl_match){ k->group, k->first, k->n, k->flags };
		for (; at < n_paired && paired[at].match == i; at++)
			put_message(a, &paired[at]);
		if (k->group == PL_NONE)
			continue;
		a->rep->group[k->group].matches++;
		a->rep->group[k->group].missing += (k->flags & PL_MATCH_MISSING) != 0;
	}
out:
	pl_free(paired);
	return rc;
}

/* What is not there of the input. */
struct missing {
	struct pl_spans ranks, of_first, of_job;
	size_t groups, first; /* how many lack a rank, and the first of them */
};

/* The file with the least communication, if another has more than twice as many; else NULL. */
static const char *shortest_file(const struct pl_align *a)
{
	uint32_t least = 0, most = 0, at;
	uint64_t *n;
	struct pl_err ignored = { 0 };

	if (pl_alloc(&n, (size_t)a->n_segs + 1, sizeof(*n), &ignored) < 0)
		return NULL;
	for (size_t i = 0; i < a->n; i++)
		n[a->seg[a->ev[i].seg].file]++;
	for (uint32_t i = 0; i < a->n_segs; i++) {
		most = n[i] > n[most] ? i : most;
		least = n[i] && (!n[least] || n[i] < n[least]) ? i : least;
	}
	at = n[most] > 2 * n[least] ? least : PL_NONE;
	pl_free(n);
	return at == PL_NONE ? NULL : pl_clock_source(a, at);
}

/* Collectives without another member, and why. False: there are none. */
static bool say_alone(const struct pl_align *a, const struct missing *x)
{
	uint32_t n = 0;
	char ranks[96], why[160] = "one rank was given";
	unsigned long long alone = a->rep->unmatched_collectives;
	unsigned long long all = a->rep->collective_matches;
	const char *cut = alone ? shortest_file(a) : NULL;

	for (uint32_t i = 0; i < a->n_clocks; i++)
		n += a->rep->clock[i].n_ranks;
	if (x->groups)
		snprintf(why, sizeof(why), "ranks of their groups were not given (%s)",
			 pl_spans_text(&x->ranks, ranks, sizeof(ranks)));
	if (alone && (x->groups || n == 1))
		pl_say(a->o.log, PL_LOG_WARN,
		       "%llu of %llu collectives are on one rank only, because %s: their durations "
		       "include waits; give the files of all ranks to one merge",
		       alone, all, why);
	else if (alone)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%llu of %llu collectives were found on one rank only: their durations "
		       "include waits; record groups, more steps, or with trace --light, which "
		       "sees what communication hooks start on threads of the backend%s%s",
		       alone, all, cut ? ", or all of a file that was cut: the least is in " : "",
		       cut ? cut : "");
	return alone > 0;
}

/* "rank 2", "ranks 1, 3-5" */
static void name_ranks(const struct pl_spans *s, char text[96], bool *one)
{
	char ranks[88];

	*one = s->n == 1 && s->v[0].end == s->v[0].start + 1;
	snprintf(text, 96, "rank%s %s", *one ? "" : "s", pl_spans_text(s, ranks, sizeof(ranks)));
}

static int say_missing(const struct pl_align *a, const struct missing *x, struct pl_err *err)
{
	char ranks[96], others[64] = "", job[160];
	bool one;

	name_ranks(&x->of_job, ranks, &one);
	snprintf(job, sizeof(job), "%s of %" PRId64 " %s missing", ranks, a->world,
		 one ? "is" : "are");
	if (x->of_job.n && a->o.strict)
		return pl_fail(err, PL_EDATA, "%s (without --strict: a warning)", job);
	if (!say_alone(a, x) && x->of_job.n)
		pl_say(a->o.log, PL_LOG_WARN, "%s", job);
	if (x->groups > 1)
		snprintf(others, sizeof(others), ", nor members of %zu other groups",
			 x->groups - 1);
	name_ranks(&x->of_first, ranks, &one);
	if (x->groups)
		pl_say(a->o.log, PL_LOG_NOTE, "%s of group %s (%u ranks) %s not given%s", ranks,
		       pl_intern_get(&a->str, a->group[x->first].name), a->group[x->first].n,
		       one ? "was" : "were", others);
	return 0;
}

/* Ranks of groups and jobs that no segment has: normal if only some of a job's files are given. */
static int missing_ranks(struct pl_align *a, struct pl_err *err)
{
	struct missing x = { .groups = 0 };
	int rc = 0;

	for (size_t i = 0; i < a->n_groups; i++) {
		const struct pl_cgroup *g = &a->group[i];
		int32_t *first = &a->rep->group[i].first_rank_missing;

		for (uint32_t k = 0; k < g->n; k++) {
			int32_t r = g->rank[k];

			if (pl_clock_has_rank(a, r))
				continue;
			if (*first < 0 && x.groups++ == 0)
				x.first = i;
			*first = *first < 0 ? r : *first;
			PL_TRY(pl_spans_add_number(&x.ranks, r, err));
			if (x.first == i)
				PL_TRY(pl_spans_add_number(&x.of_first, r, err));
		}
	}
	for (int64_t r = 0; r < a->world; r++)
		if (!pl_clock_has_rank(a, r))
			PL_TRY(pl_spans_add_number(&x.of_job, r, err));
	pl_spans_unite(&x.ranks);
	pl_spans_unite(&x.of_first);
	pl_spans_unite(&x.of_job);
	a->incomplete = x.groups || x.of_job.n;
	rc = say_missing(a, &x, err);
out:
	pl_spans_fini(&x.ranks);
	pl_spans_fini(&x.of_first);
	pl_spans_fini(&x.of_job);
	return rc;
}

/* What could not be matched, or not for sure, makes the graph less than it could be: say so. */
static void say_doubts(const struct pl_align *a)
{
	uint64_t alone = a->rep->unmatched_sends + a->rep->unmatched_recvs, all = 0;
	bool posted = false;

	for (size_t i = 0; i < a->n; i++) {
		all += a->ev[i].kind != PL_K_COLLECTIVE;
		posted |= pl_clock_is_posted(a, &a->ev[i]) && a->ev[i].peer < 0;
	}
	if (alone)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%" PRIu64 " of %" PRIu64
		       " sends and receives have no partner: nothing joins "
		       "their ranks in a graph, and their waits count as transfers; %s",
		       alone, all,
		       a->incomplete ? "give the files of all ranks to one merge"
		       : posted	     ? "PyTorch names the peers with record_shapes=True"
				     : "record groups and peers, or more steps");
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
	memset(m, 0, sizeof(*m));
	memset(r, 0, sizeof(*r));
	a->rep = r;
	a->m = m;
	PL_CHECK(pl_clock_recordings(a, err));
	PL_CHECK(assign_clocks(a, err));
	PL_CHECK(pl_clock_match(a, err));
	PL_CHECK(fill_groups(a, err));
	PL_CHECK(fill_matches(a, err));
	PL_CHECK(missing_ranks(a, err));
	say_doubts(a);
	PL_CHECK(pl_clock_estimate(a, err));
	pl_clock_say_joined(a);
	PL_CHECK(pl_clock_box(a, err));
	PL_CHECK(find_residuals(a, err));
	return 0;
}
