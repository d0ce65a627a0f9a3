/*
 * Groups that the headers of files list (struct pl_trace_header), for communication that does not
 * name its own group.
 *
 * Where all listed groups of a rank that have several members have the same members, its
 * communication is of that group, which counts as recorded. Where a rank is in several groups, the
 * threads of gloo tell them apart. If they do not tell which group is which (one is not used), the
 * collectives of a pair of threads are still of one group: infer.c decides between the groups, and
 * infers no other group. If the file of one member lists a group and the file of another member
 * does not, no listed group is used.
 *
 * Cost: with E events and M members of all different sets O((E + M) log M), and M times the sets of
 * a rank to compare files. Inferred groups: the square of the streams times the sets of a rank.
 */
#include <stdlib.h>

#include "clock/likelihood.h"

#define MOST_RANKS (1 << 20) /* of a group that is given by its size alone: 4 MiB of numbers */

/* ---- the lists of all headers ---------------------------------------------------------------- */

/* Is it the group of all ranks, given by its size or by nothing? */
static bool is_world(const struct pl_trace_group *g, int64_t world)
{
	return !g->n && !g->unreadable && (g->size <= 0 || g->size == world) && world <= MOST_RANKS;
}

/* Members of a group as they are: ascending, each once; false: they are not known. */
static int settle_ranks(struct pl_trace_group *g, int64_t world, bool *known, struct pl_err *err)
{
	size_t k = 0;

	*known = !g->unreadable;
	if (is_world(g, world)) {
		PL_CHECK(pl_grow(&g->rank, &g->cap, (size_t)pl_max_i64(world, 1), sizeof(*g->rank),
				 err));
		for (; (int64_t)g->n < world; g->n++)
			g->rank[g->n] = (int32_t)g->n;
	}
	if (g->n)
		qsort(g->rank, g->n, sizeof(*g->rank), pl_compare_i32);
	for (size_t i = 0; i < g->n; i++)
		if (!k || g->rank[i] != g->rank[k - 1])
			g->rank[k++] = g->rank[i];
	g->n = k;
	*known &= k && (g->size <= 0 || g->size == (int64_t)k);
	return 0;
}

static bool has_member(const int32_t *v, size_t n, int32_t rank)
{
	return n && bsearch(&rank, v, n, sizeof(*v), pl_compare_i32) != NULL;
}

/* `all`: the set of all ranks, once it is known: a file may list it many times. */
static int note_group(struct pl_align *a, struct pl_trace_group *g, int32_t rank, int64_t world,
		      pl_id *all, struct pl_err *err)
{
	struct pl_listed l = {
		.rank = rank, .seg = (uint32_t)a->n_segs, .name = PL_NONE, .set = PL_NONE
	};
	bool is_all = is_world(g, world), known = false;

	if (is_all && world > 0 && rank >= world)
		return 0;
	if (g->name)
		PL_CHECK(pl_intern_add(&a->str, g->name, strlen(g->name), &l.name, err));
	if (is_all && *all != PL_NONE)
		l.set = *all;
	else
		PL_CHECK(settle_ranks(g, world, &known, err));
	if (known && !has_member(g->rank, g->n, rank))
		return 0;
	if (known)
		PL_CHECK(pl_intern_add(&a->rank_sets, (const char *)g->rank,
				       g->n * sizeof(*g->rank), &l.set, err));
	if (is_all)
		*all = l.set;
	PL_CHECK(pl_grow(&a->listed, &a->cap_listed, a->n_listed + 1, sizeof(*a->listed), err));
	a->listed[a->n_listed++] = l;
	return 0;
}

/* ---- threads of groups ----------------------------------------------------------------------- */

struct thread {
	int64_t tid;
	uint32_t track;
};

PL_COMPARATOR(by_tid, struct thread, tid, track);

/* Into pair[] by track: the pair of each thread; how many pairs there are. `all`: both threads of
 * each pair are here, else only those whose numbers follow each other are a pair. */
static size_t pair_threads(const struct thread *v, size_t n, bool all, uint32_t *pair)
{
	bool second = true;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		second = all ? i % 2 : !second && (uint64_t)v[i].tid - (uint64_t)v[i - 1].tid == 1;
		k += !second;
		pair[v[i].track] = (uint32_t)k - 1;
	}
	return k;
}

/*
 * PyTorch makes two threads, one after the other, with each process group of gloo. So the threads
 * of a rank, all of one process, are in the order of the list. Other processes may make threads
 * between the two, or one of them may have done nothing, but not both. If there are threads for as
 * many groups as are listed, a collective is of the group of its thread.
 */
static int note_threads(struct pl_align *a, const struct pl_segment *seg, size_t listed0,
			size_t ev0, struct pl_err *err)
{
	size_t groups = a->n_listed - listed0, n = 0, k = 0;
	struct thread *v = NULL;
	uint32_t *group = NULL; /* by track: which of the listed ones */
	int rc = 0;

	if (groups < 2)
		return 0;
	PL_TRY(pl_alloc(&v, seg->n_tracks, sizeof(*v), err));
	PL_TRY(pl_alloc(&group, seg->n_tracks, sizeof(*group), err));
	for (size_t i = ev0; i < a->n; i++) {
		uint32_t t = a->ev[i].comm_stream;
		pl_id tid = seg->track[t].tid;

		if (a->ev[i].kind != PL_K_COLLECTIVE || group[t]++)
			continue;
		v[n].track = t;
		if (a->ev[i].group != PL_NONE || tid >= seg->str.n ||
		    seg->track[t].type != PL_T_THREAD ||
		    seg->track[t].pid != seg->track[v[0].track].pid ||
		    !pl_json_i64(seg->str.str[tid], seg->str.len[tid], &v[n++].tid))
			goto out;
	}
	pl_sort(v, n, sizeof(*v), by_tid);
	pair_threads(v, n, n % 2 == 0, group);
	for (size_t i = ev0; i < a->n; i++)
		if (a->ev[i].kind == PL_K_COLLECTIVE)
			a->ev[i].pair = group[a->ev[i].comm_stream];
	k = pair_threads(v, n, n == 2 * groups, group);
	for (size_t i = ev0; k == groups && i < a->n; i++) {
		struct pl_comm *e = &a->ev[i];
		const struct pl_listed *l = &a->listed[listed0 + group[e->comm_stream]];

		if (e->kind != PL_K_COLLECTIVE || l->name == PL_NONE || l->set == PL_NONE)
			continue;
		e->group = l->name;
		e->ranks = l->set;
		e->listed = a->by_thread = true;
	}
out:
	pl_free(v);
	pl_free(group);
	return rc;
}

int pl_clock_listed_note(struct pl_align *a, const struct pl_segment *seg, size_t sr0, size_t ev0,
			 struct pl_err *err)
{
	size_t listed0 = a->n_listed;
	struct pl_trace_header h;
	pl_id all = PL_NONE;
	int32_t rank = a->n_sr == sr0 + 1 ? a->sr[sr0].rank : -1;
	int rc;

	if (rank < 0)
		return 0;
	if ((rc = pl_trace_header_read(seg, false, &h, err)) < 0)
		return rc;
	if (h.world > 0) /* -1: other ranks were renumbered, or are of another job */
		a->seg[a->n_segs].world = rank < h.world && h.world <= MOST_RANKS ? h.world : -1;
	for (size_t i = 0; i < h.n_groups && rc >= 0 && (h.rank < 0 || h.rank == rank); i++)
		rc = note_group(a, &h.group[i], rank, h.world, &all, err);
	pl_trace_header_fini(&h);
	return rc < 0 ? rc : note_threads(a, seg, listed0, ev0, err);
}

const int32_t *pl_clock_listed_ranks(const struct pl_align *a, pl_id set, uint32_t *n)
{
	*n = a->rank_sets.len[set] / (uint32_t)sizeof(int32_t);
	return (const int32_t *)(const void *)a->rank_sets.str[set];
}

/* ---- use ------------------------------------------------------------------------------------- */

PL_COMPARATOR(by_listed, struct pl_listed, rank, set, name);

/* The sets of several ranks that `rank` is in; 0: none, or not all are known. */
static uint32_t sets_of(const struct pl_align *a, int32_t rank, const struct pl_listed **first)
{
	size_t i = 0, k;

	PL_LOWER_BOUND(i, a->n_listed, a->listed[i].rank < rank);
	for (k = i; k < a->n_listed && a->listed[k].rank == rank; k++)
		if (a->listed[k].set == PL_NONE) /* the last: not all are known */
			return 0;
	*first = &a->listed[i];
	return (uint32_t)(k - i);
}

/* Of each set the first entry; its rank is -1 where only files that are left out list the set. */
static int first_entries(const struct pl_align *a, struct pl_listed **first, struct pl_err *err)
{
	int rc = pl_alloc(first, a->rank_sets.n + 1, sizeof(**first), err);

	for (size_t s = 0; rc >= 0 && s < a->rank_sets.n; s++)
		(*first)[s].rank = -1;
	for (size_t i = a->n_listed; rc >= 0 && i-- > 0;)
		if (a->listed[i].set != PL_NONE)
			(*first)[a->listed[i].set] = a->listed[i];
	return rc;
}

/* A set that a file lists and a member's own file, which can be read, does not: its number, and
 * that member. */
static pl_id contradicted(const struct pl_align *a, const struct pl_listed *first, int32_t *rank)
{
	for (pl_id s = 0; s < a->rank_sets.n; s++) {
		uint32_t members, n, k;
		const int32_t *v = pl_clock_listed_ranks(a, s, &members);

		for (uint32_t i = 0; i < members && first[s].rank >= 0; i++) {
			const struct pl_listed *l;

			*rank = v[i];
			n = sets_of(a, v[i], &l);
			for (k = 0; k < n && l[k].set != s;)
				k++;
			if (n && k == n)
				return s;
		}
	}
	return PL_NONE;
}

/* One entry for each rank and set of several ranks that has it as a member, by rank and set; who
 * has groups of unknown ranks keeps that entry. */
static int list_members(struct pl_align *a, const struct pl_listed *first, struct pl_err *err)
{
	size_t k = 0;

	for (size_t i = 0; i < a->n_listed; i++)
		if (a->listed[i].set == PL_NONE)
			a->listed[k++] = a->listed[i];
	a->n_listed = k;
	for (pl_id s = 0; s < a->rank_sets.n; s++) {
		uint32_t members;
		const int32_t *v = pl_clock_listed_ranks(a, s, &members);

		if (members < 2 || first[s].rank < 0)
			continue;
		PL_CHECK(pl_grow(&a->listed, &a->cap_listed, a->n_listed + members,
				 sizeof(*a->listed), err));
		for (uint32_t i = 0; i < members; i++)
			a->listed[a->n_listed++] =
				(struct pl_listed){ .rank = v[i], .name = first[s].name, .set = s };
	}
	if (a->n_listed)
		qsort(a->listed, a->n_listed, sizeof(*a->listed), by_listed);
	return 0;
}

/* Ranks of one set: their collectives without a group have this one. */
static int use_only_set(struct pl_align *a, struct pl_err *err)
{
	const struct pl_listed *l;
	pl_id unnamed;
	int rc = pl_intern_add(&a->str, "listed", 6, &unnamed, err);

	for (size_t i = 0; i < a->n && rc >= 0; i++) {
		struct pl_comm *e = &a->ev[i];

		if (e->kind != PL_K_COLLECTIVE || e->group != PL_NONE ||
		    sets_of(a, e->rank, &l) != 1)
			continue;
		e->group = l->name == PL_NONE ? unnamed : l->name;
		e->ranks = l->set;
		e->listed = true;
	}
	return rc;
}

static void forget_threads(struct pl_align *a)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->ev[i].listed) {
			a->ev[i].group = a->ev[i].ranks = PL_NONE;
			a->ev[i].listed = false;
		}
}

/* Forget the threads if members of a group had different collectives, because threads then were put
 * into wrong groups. The hashes of the other members must add up to a multiple of the first's. */
static int doubt_threads(struct pl_align *a, const struct pl_listed *first, struct pl_err *err)
{
	uint64_t rest = 0, *present; /* of each set: how many of its ranks are in the input */

	PL_CHECK(pl_alloc(&present, a->rank_sets.n, sizeof(*present), err));
	for (pl_id s = 0; s < a->rank_sets.n; s++) {
		uint32_t n;
		const int32_t *v = pl_clock_listed_ranks(a, s, &n);

		while (n-- > 0)
			present[s] += pl_clock_has_rank(a, v[n]);
	}
	for (size_t i = 0; i < a->n; i++) {
		const struct pl_comm *e = &a->ev[i];
		const int64_t same[4] = { e->group, e->ranks, e->coll,
					  e->coll_is & PL_COLL_ROOTED ? 0 : e->bytes };

		if (e->listed)
			rest += pl_hash(same, sizeof(same)) *
				(e->rank == first[e->ranks].rank ? 1 - present[e->ranks] : 1);
	}
	if (rest)
		forget_threads(a);
	pl_free(present);
	return 0;
}

/* Collectives without a group: each pair of threads has an order of its own, if all ranks have
 * equally many pairs. */
static int use_pairs(struct pl_align *a, struct pl_err *err)
{
	uint32_t *pairs = NULL, most = 0, n = (uint32_t)a->rank_seen.n;
	bool same = true;
	int rc;

	PL_TRY(pl_alloc(&pairs, n + 1u, sizeof(*pairs), err));
	for (size_t i = 0; i < a->n && same; i++) {
		const struct pl_comm *e = &a->ev[i];
		uint32_t r = pl_intern_find(&a->rank_seen, (const char *)&e->rank, sizeof(e->rank));

		if (e->kind != PL_K_COLLECTIVE || e->group != PL_NONE || r >= n)
			continue;
		same = e->pair != PL_NONE;
		if (same && e->pair >= pairs[r])
			pairs[r] = e->pair + 1;
		most = pairs[r] > most ? pairs[r] : most;
	}
	for (uint32_t r = 0; r < n; r++)
		same &= !pairs[r] || pairs[r] == most;
	for (size_t i = 0; i < a->n && same && most > 1; i++) {
		struct pl_comm *e = &a->ev[i];
		const struct pl_comm_stream key = { e->rank, -1, e->pair };

		if (e->kind == PL_K_COLLECTIVE && e->group == PL_NONE)
			PL_TRY(pl_intern_add(&a->comm_streams, (const char *)&key, sizeof(key),
					     &e->comm_stream, err));
	}
out:
	pl_free(pairs);
	return rc;
}

int pl_clock_listed_use(struct pl_align *a, struct pl_err *err)
{
	struct pl_listed *first = NULL;
	int32_t rank;
	pl_id set;
	int rc;

	if (!a->n_listed)
		return 0;
	qsort(a->listed, a->n_listed, sizeof(*a->listed), by_listed);
	PL_TRY(first_entries(a, &first, err));
	set = contradicted(a, first, &rank);
	if (set == PL_NONE) {
		PL_TRY(list_members(a, first, err));
		PL_TRY(use_only_set(a, err));
		if (a->by_thread) {
			PL_TRY(doubt_threads(a, first, err));
			PL_TRY(use_only_set(a, err));
		}
	} else {
		pl_say(a->o.log, PL_LOG_WARN,
		       "the file of rank %d lists a group that rank %d is in, the file of rank %d "
		       "does not: groups that files list are not used, but inferred",
		       first[set].rank, rank, rank);
		forget_threads(a);
		a->n_listed = 0;
	}
	PL_TRY(use_pairs(a, err));
out:
	pl_free(first);
	return rc;
}

/* ---- inferred groups become listed ones ------------------------------------------------------ */

struct relabel {
	const struct pl_align *a;
	struct pl_stream *v;
	uint32_t n;
	uint32_t *to, n_groups; /* of each stream: its new group, PL_NONE */
	uint32_t *found;	/* scratch */
};

/* The streams of a listed set with the number of stream i, which do the same, into x->found; how
 * many, 0 if a rank in the input has none. *common: those of the group of stream i. */
static uint32_t listed_streams(const struct relabel *x, uint32_t i, pl_id set, uint32_t *common)
{
	const struct pl_stream *v = x->v;
	uint32_t n, found = 0, present = 0;
	const int32_t *ranks = pl_clock_listed_ranks(x->a, set, &n);

	*common = 0;
	for (uint32_t k = 0; k < x->n; k++) {
		if (x->to[k] != PL_NONE || v[k].number != v[i].number ||
		    !has_member(ranks, n, v[k].s.rank) ||
		    (found && v[x->found[found - 1]].s.rank == v[k].s.rank) ||
		    !pl_clock_seq_alike(x->a, &v[i].s, &v[k].s, 0))
			continue;
		x->found[found++] = k;
		*common += v[k].group == v[i].group;
	}
	for (uint32_t k = 0; k < n; k++)
		present += pl_clock_has_rank(x->a, ranks[k]);
	return found == present ? found : 0;
}

/* Take stream i and the others of the listed set that has most in common with its group: one holds
 * the other. `exactly`: both are the same. */
static bool take_listed(struct relabel *x, uint32_t i, bool exactly)
{
	const struct pl_listed *l;
	uint32_t n = sets_of(x->a, x->v[i].s.rank, &l), left = 0, common, best = PL_NONE;
	double most = 0;

	for (uint32_t k = 0; k < x->n; k++)
		left += x->to[k] == PL_NONE && x->v[k].group == x->v[i].group;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t found = listed_streams(x, i, l[k].set, &common);
		double share = (double)common / (double)(found + left - common);

		if (found < 2 || (common < found && common < left) || (exactly && share < 1) ||
		    share <= most)
			continue;
		most = share;
		best = k;
	}
	if (best == PL_NONE)
		return false;
	for (n = listed_streams(x, i, l[best].set, &common); n-- > 0;)
		x->to[x->found[n]] = x->n_groups;
	x->n_groups++;
	return true;
}

int pl_clock_listed_groups(const struct pl_align *a, struct pl_stream *v, uint32_t n,
			   uint32_t *n_groups, uint32_t *changed, struct pl_err *err)
{
	struct relabel x = { .a = a, .v = v, .n = n };
	const struct pl_listed *l;
	uint32_t *memory = NULL, *size, *rest;
	int rc;

	*changed = 0;
	/* exchanges are between some of a group */
	if (!a->n_listed || a->ev[v[0].s.ev[0]].coll_is & PL_COLL_EXCHANGE)
		return 0;
	PL_TRY(pl_alloc(&memory, 4u * (size_t)n, sizeof(*memory), err));
	x.to = memory;
	x.found = memory + n;
	size = x.found + n;
	rest = size + n; /* of each group: its new number */
	memset(x.to, 0xff, n * sizeof(*x.to));
	memset(rest, 0xff, n * sizeof(*rest));
	for (uint32_t i = 0; i < n; i++)
		size[v[i].group]++;
	for (uint32_t i = 0; i < n; i++)
		if (x.to[i] == PL_NONE && size[v[i].group] > 1)
			take_listed(&x, i, true);
	for (uint32_t i = 0; i < n; i++) {
		if (x.to[i] != PL_NONE || size[v[i].group] < 2 || !sets_of(a, v[i].s.rank, &l))
			continue;
		if (take_listed(&x, i, false))
			++*changed;
		else
			x.to[i] = x.n_groups++;
	}
	for (uint32_t i = 0; i < n; i++) { /* alone, or of ranks for which nothing is listed */
		uint32_t *new = &rest[v[i].group];

		if (x.to[i] == PL_NONE)
			x.to[i] = *new = *new == PL_NONE ? x.n_groups++ : *new;
	}
	for (uint32_t i = 0; i < n; i++)
		v[i].group = x.to[i];
	*n_groups = x.n_groups;
out:
	pl_free(memory);
	return rc;
}
