/*
 * Groups of sharded parameters, as fully_shard makes them, found in what the ranks communicate.
 *
 * The parameters of a group are gathered before its layers work in the forward pass, and mostly
 * again in the backward pass. Then their gradients are summed and scattered (over gloo: summed); if
 * the job also has copies of all shards, the sums are averaged over the copies. A step can have
 * several such passes, and only the last of them may reduce.
 *
 * A call tells the pass: what is gathered behind a backward pass and before more forward work
 * belongs to the next pass. If the recording names modules, a group is a module that is gathered in
 * a forward pass and reduced behind it, which holds without sizes too. All else that is
 * communicated, such as norms and activations, is of no group. If no parameters are sharded,
 * because there are only copies of them, modules that are reduced are the groups.
 *
 * Without names the gathers of a forward pass are the groups in order. What is gathered again, or
 * reduced, belongs to the last group of its size that has no such communication yet, because the
 * backward pass goes the other way. Gradients may have another type than parameters, so their sizes
 * may be twice or half of those, all of them. Reductions of another size, such as those of a norm,
 * are left out. If some of a pass are of groups, all groups must have one.
 *
 * The outermost group holds what is in no other, and no other can take its place. It is the one
 * that keeps its parameters behind the forward pass where others do not, or that is gathered first
 * in both passes.
 *
 * O(n log n) in nodes, and the square of the groups of a pass.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

/* A gather or a reduction on a rank. */
struct item {
	uint32_t rank, step; /* rank: its place in the graph */
	pl_ns start;	     /* when the host issues it, which runs ahead of a device */
	uint32_t arrive, res;
	pl_id module; /* of the call */
	bool gathers, backward;
	uint32_t pass;
};
/* An operation of a pass. Calls of the runtime between operations say nothing, because what is not
 * known to be backward counts as forward. */
struct mark {
	uint32_t rank, step, res;
	pl_ns start;
	bool backward;
};
struct finder {
	const struct pl_graph *g;
	struct rw_groups *x;
	struct item *item;
	size_t n, cap;
	struct mark *mark;
	size_t n_marks, cap_marks;
	uint8_t *of;	  /* [string]: what is done for a module of that name */
	uint32_t *number; /* [string]: of the group of the module, on the rank; PL_NONE */
	pl_id *named;	  /* [number]: the module */
	uint32_t n_named;
	size_t cap_passes, cap_groups;
	double by;    /* see find_groups() */
	bool reduced; /* the gradients of some group are */
	bool whole;   /* nothing is gathered: each rank has a copy of all parameters */
};

enum { IS_GATHERED = 1, IS_REDUCED = 2, IS_GROUP = IS_GATHERED | IS_REDUCED };

static const char none_whole[] = "no all-gather brings parameters back, so nothing is sharded";
static const char none_reduced[] = "nothing reduces the gradients of what is gathered in a forward "
				   "pass";
static const char none_sizes[] = "sizes are unknown (record_shapes=True)";
static const char none_again[] =
	"a group is gathered several times between two backward passes, or in one: microbatches of "
	"a pipeline, an evaluation in the step, or set_reshard_after_backward(False)";
static const char none_match[] = "gathers of the forward pass, of the backward pass and reductions "
				 "do not correspond";

PL_COMPARATOR(by_time, struct item, rank, step, start, arrive);
PL_COMPARATOR(by_begin, struct mark, rank, step, start, backward);

static bool launches(const struct pl_shape *s, uint32_t edge)
{
	return PL_E_TYPE(s->etype[edge]) == PL_E_LAUNCH || PL_E_TYPE(s->etype[edge]) == PL_E_EARLY;
}

/* Of the arrival, or of its call if there is one. */
static void note_call(const struct pl_shape *s, const struct pl_gstep *st, struct item *x)
{
	uint32_t call = x->arrive;

	for (uint32_t e = s->off[x->arrive]; e < s->off[x->arrive + 1]; e++)
		if (launches(s, e) && s->res[s->src[e]] != PL_NONE)
			call = s->src[e];
	x->start = st->start[call];
	x->res = s->res[call];
	x->module = s->module ? s->module[call] : PL_NONE;
}

static int find_items(struct finder *f, uint32_t step, struct pl_err *err)
{
	const struct pl_gstep *st = &f->g->step[step];
	const struct pl_shape *s = &f->g->shape[st->shape];

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		unsigned coll = s->role[i] == PL_RO_ARRIVE ? pl_node_coll(s, i) : PL_COLL_OTHER;
		unsigned phase = s->phase ? s->phase[i] : PL_PH_UNKNOWN;
		struct item x = { .step = step, .arrive = i };
		struct mark m = { .step = step, .start = st->start[i], .res = s->res[i] };

		if (s->res[i] == PL_NONE)
			continue;
		x.rank = m.rank = pl_graph_rank_index(f->g, f->g->res[s->res[i]].rank);
		m.backward = pl_graph_is_backward(phase);
		if (x.rank == PL_NONE)
			continue;
		if (m.backward || (phase == PL_PH_FORWARD && s->kind[i] != PL_K_RUNTIME &&
				   (s->role[i] == PL_RO_COMPUTE || s->role[i] == PL_RO_HOST)))
			PL_CHECK(pl_append(&f->mark, &f->n_marks, &f->cap_marks, &m, sizeof(m),
					   err));
		x.gathers = coll == PL_COLL_ALLGATHER;
		if (!x.gathers && coll != PL_COLL_REDUCE_SCATTER && coll != PL_COLL_ALLREDUCE)
			continue;
		note_call(s, st, &x);
		PL_CHECK(pl_append(&f->item, &f->n, &f->cap, &x, sizeof(x), err));
	}
	return 0;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Keep the operations of threads that issue communication: other threads work beside the passes.
 * Where devices alone were recorded, keep all. */
static int drop_others(struct finder *f, struct pl_err *err)
{
	uint8_t *issues;
	bool any = false;
	size_t n = 0;

	PL_CHECK(pl_alloc(&issues, f->g->n_res, 1, err));
	for (size_t i = 0; i < f->n; i++) {
		issues[f->item[i].res] = f->g->res[f->item[i].res].track_type == PL_T_THREAD;
		any |= issues[f->item[i].res];
	}
	for (size_t i = 0; i < f->n_marks; i++)
		if (!any || issues[f->mark[i].res])
			f->mark[n++] = f->mark[i];
	f->n_marks = n;
	pl_free(issues);
	pl_sort(f->mark, f->n_marks, sizeof(*f->mark), by_begin);
	return 0;
}

/* Is the item of a backward pass? */
static bool is_behind(const struct finder *f, const struct item *x)
{
	const struct mark *m = f->mark;
	size_t i = 0;
	bool follows, precedes;

#define BEFORE(m, x)                                                                               \
	((m)->rank != (x)->rank	  ? (m)->rank < (x)->rank                                          \
	 : (m)->step != (x)->step ? (m)->step < (x)->step                                          \
				  : (m)->start <= (x)->start)
	PL_LOWER_BOUND(i, f->n_marks, BEFORE(&m[i], x));
#undef BEFORE
	follows = i && m[i - 1].rank == x->rank && m[i - 1].step == x->step && m[i - 1].backward;
	precedes = i < f->n_marks && m[i].rank == x->rank && m[i].step == x->step && !m[i].backward;
	return follows && !(x->gathers && precedes);
}

/* Number the passes of each rank in each step. */
static void find_passes(struct finder *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct item *x = &f->item[i];
		const struct item *last = i ? x - 1 : NULL;
		bool same = last && last->rank == x->rank && last->step == x->step;

		x->backward = is_behind(f, x);
		x->pass = same ? last->pass + (last->backward && !x->backward) : 0;
	}
}

/* The end of the items of the pass of item i. */
static size_t end_of_pass(const struct finder *f, size_t i)
{
	const struct item *x = &f->item[i];

	while (++i < f->n && f->item[i].rank == x->rank && f->item[i].step == x->step &&
	       f->item[i].pass == x->pass)
		;
	return i;
}

static const struct pl_gcomm *comm_of(const struct finder *f, uint32_t step, uint32_t arrive)
{
	return pl_node_comm(&f->g->shape[f->g->step[step].shape], arrive);
}

/* ---- groups of a pass ------------------------------------------------------------------------ */

static int add_group(struct finder *f, struct rw_pass *p, const struct rw_group *like,
		     struct pl_err *err)
{
	struct rw_group g = *like;

	for (int i = 0; i < RW_GROUP_COMMS; i++)
		g.arrive[i] = PL_NONE;
	p->n++;
	return pl_append(&f->x->group, &f->x->n_groups, &f->cap_groups, &g, sizeof(g), err);
}

static bool is_named(const struct finder *f, const struct item *x)
{
	return x->module != PL_NONE && f->of[x->module] == (f->whole ? IS_REDUCED : IS_GROUP) &&
	       (x->gathers || x->backward);
}

/* The groups of items [i, end) of a pass by name. All passes of a rank have all its groups, in the
 * order in which they are gathered first. */
static const char *by_name(struct finder *f, const struct rw_pass *p, size_t i, size_t end)
{
	for (; i < end; i++) {
		const struct item *x = &f->item[i];
		unsigned what = !x->gathers ? RW_REDUCE : x->backward ? RW_GATHER_AGAIN : RW_GATHER;
		uint32_t *arrive;

		if (!is_named(f, x) || f->number[x->module] == PL_NONE)
			continue;
		arrive = f->x->group[p->first + f->number[x->module]].arrive;
		if (what == RW_REDUCE && arrive[what] != PL_NONE)
			what = RW_AVERAGE;
		if (arrive[what] != PL_NONE)
			return none_again;
		arrive[what] = x->arrive;
		f->reduced |= what == RW_REDUCE;
	}
	return NULL;
}

/* The last group of that size which has no such communication. */
static struct rw_group *of_size(const struct finder *f, const struct rw_pass *p, int64_t bytes,
				unsigned what)
{
	struct rw_group *g = p->n ? f->x->group + p->first : NULL;

	for (uint32_t i = p->n; i-- > 0;) {
		const struct pl_gcomm *c = comm_of(f, p->step, g[i].arrive[RW_GATHER]);
		double its = (double)c->bytes;

		if (what != RW_GATHER_AGAIN)
			its *= f->by;
		if (what == RW_AVERAGE) /* has the size of a shard */
			its /= c->members > 1 ? c->members : NAN;
		if (g[i].arrive[what] == PL_NONE && (double)bytes == its &&
		    (what != RW_AVERAGE || g[i].arrive[RW_REDUCE] != PL_NONE))
			return &g[i];
	}
	return NULL;
}

/* The same by size: the groups of each pass are those that are gathered in its forward pass. */
static const char *by_size(struct finder *f, const struct rw_pass *p, size_t i, size_t end)
{
	uint32_t reduced = 0;
	bool unknown = false;

	for (uint32_t k = 0; i < end; i++) {
		const struct item *x = &f->item[i];
		int64_t bytes = comm_of(f, x->step, x->arrive)->bytes;
		unsigned what = x->gathers ? RW_GATHER_AGAIN : RW_REDUCE;
		struct rw_group *g;

		if (x->gathers && bytes <= 0)
			return none_sizes;
		unknown |= bytes <= 0;
		if (x->gathers && !x->backward)
			f->x->group[p->first + k++].arrive[RW_GATHER] = x->arrive;
		if (!x->backward || bytes <= 0)
			continue;
		g = of_size(f, p, bytes, what);
		if (!g && x->gathers)
			return none_match;
		if (!g)
			g = of_size(f, p, bytes, what = RW_AVERAGE);
		if (g)
			g->arrive[what] = x->arrive;
		reduced += g && what == RW_REDUCE;
	}
	f->reduced |= reduced > 0;
	if (reduced == p->n || (!reduced && !unknown))
		return NULL;
	return unknown ? none_sizes : none_match;
}

/* Which groups of the pass can no other join? */
static void find_outermost(struct finder *f, const struct rw_pass *p)
{
	struct rw_group *g = p->n ? f->x->group + p->first : NULL;
	const pl_ns *start = f->g->step[p->step].start;
	bool again = false;

	for (uint32_t i = 0; i < p->n; i++)
		again |= g[i].arrive[RW_GATHER_AGAIN] != PL_NONE;
	for (uint32_t i = 0; again && i < p->n; i++)
		g[i].outermost |= g[i].arrive[RW_GATHER] != PL_NONE &&
				  g[i].arrive[RW_GATHER_AGAIN] == PL_NONE;
	if (p->n > 1 && g[0].arrive[RW_GATHER_AGAIN] != PL_NONE &&
	    g[p->n - 1].arrive[RW_GATHER_AGAIN] != PL_NONE)
		g[0].outermost |= start[g[0].arrive[RW_GATHER_AGAIN]] <
				  start[g[p->n - 1].arrive[RW_GATHER_AGAIN]];
}

static void number_group(struct finder *f, const struct item *x)
{
	if (!is_named(f, x) || (x->backward && !f->whole) || f->number[x->module] != PL_NONE)
		return;
	f->number[x->module] = f->n_named;
	f->named[f->n_named++] = x->module;
}

/* Number the named groups of the rank whose items are [i, end): as they are gathered first, or
 * reduced last. */
static void number_groups(struct finder *f, size_t i, size_t end)
{
	f->n_named = 0;
	for (; !f->whole && i < end; i++)
		number_group(f, &f->item[i]);
	for (; f->whole && end-- > i;)
		number_group(f, &f->item[end]);
}

/* The groups of the pass whose items are [i, end). */
static int one_pass(struct finder *f, size_t i, size_t end, struct pl_err *err)
{
	struct rw_groups *x = f->x;
	struct rw_pass p = { .rank = f->item[i].rank,
			     .step = f->item[i].step,
			     .first = (uint32_t)x->n_groups };
	struct rw_group g = { .outermost = false };

	for (uint32_t k = 0; f->by == 0 && k < f->n_named; k++) {
		g.outermost = !strcmp(pl_intern_get(&f->g->str, f->named[k]), PL_GRAPH_OUTERMOST);
		PL_CHECK(add_group(f, &p, &g, err));
	}
	for (size_t k = i; f->by > 0 && k < end; k++)
		if (f->item[k].gathers && !f->item[k].backward)
			PL_CHECK(add_group(f, &p, &g, err));
	x->why = f->by == 0 ? by_name(f, &p, i, end) : by_size(f, &p, i, end);
	find_outermost(f, &p);
	x->most = p.n > x->most ? p.n : x->most;
	return p.n ? pl_append(&x->pass, &x->n_passes, &f->cap_passes, &p, sizeof(p), err) : 0;
}

/* The groups of all passes. `by`: bytes of gradients for each byte of parameters; 0: by name. */
static int find_groups(struct finder *f, double by, struct pl_err *err)
{
	struct rw_groups *x = f->x;

	f->by = by;
	f->reduced = false;
	x->n_passes = x->n_groups = x->most = 0;
	x->why = NULL;
	for (size_t i = 0, end, of_rank; i < f->n && !x->why; i = of_rank) {
		for (of_rank = i; of_rank < f->n && f->item[of_rank].rank == f->item[i].rank;)
			of_rank++;
		number_groups(f, i, of_rank);
		for (; i < of_rank && !x->why; i = end) {
			end = end_of_pass(f, i);
			PL_CHECK(one_pass(f, i, end, err));
		}
		for (uint32_t k = 0; k < f->n_named; k++)
			f->number[f->named[k]] = PL_NONE;
	}
	if (!x->why && !f->reduced)
		x->why = none_reduced;
	return 0;
}

/* Are the sizes of all communication of groups known? */
static bool has_sizes(const struct finder *f)
{
	for (size_t k = 0; k < f->x->n_passes; k++) {
		const struct rw_pass *p = &f->x->pass[k];

		for (uint32_t i = 0; i < p->n * RW_GROUP_COMMS; i++) {
			const struct rw_group *g = &f->x->group[p->first + i / RW_GROUP_COMMS];
			uint32_t arrive = g->arrive[i % RW_GROUP_COMMS];

			if (arrive != PL_NONE && comm_of(f, p->step, arrive)->bytes <= 0)
				return false;
		}
	}
	return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int find_all(struct finder *f, struct pl_err *err)
{
	static const double ratios[] = { 0, 1, 2, 0.5 };
	const char *why = NULL;
	bool gathers = false;

	for (uint32_t k = 0; k < f->g->n_steps; k++)
		PL_CHECK(find_items(f, k, err));
	pl_sort(f->item, f->n, sizeof(*f->item), by_time);
	PL_CHECK(drop_others(f, err));
	find_passes(f);
	PL_CHECK(pl_alloc(&f->of, f->g->str.n, sizeof(*f->of), err));
	PL_CHECK(pl_alloc(&f->number, f->g->str.n, sizeof(*f->number), err));
	PL_CHECK(pl_alloc(&f->named, f->g->str.n, sizeof(*f->named), err));
	memset(f->number, 0xff, f->g->str.n * sizeof(*f->number));
	for (size_t i = 0; i < f->n; i++) {
		const struct item *x = &f->item[i];

		gathers |= x->gathers && !x->backward;
		if (x->module == PL_NONE || x->gathers == x->backward)
			continue;
		f->of[x->module] |= x->gathers ? IS_GATHERED : IS_REDUCED;
		f->whole |= !strcmp(pl_intern_get(&f->g->str, x->module), PL_GRAPH_OUTERMOST);
	}
	f->whole &= !gathers;
	for (size_t i = 0; i < PL_LEN(ratios); i++) {
		PL_CHECK(find_groups(f, ratios[i], err));
		if (!f->x->why)
			break;
		/* the reason of names, if there are some, else of plain sizes */
		if (!why || (i == 1 && why == none_reduced))
			why = f->x->why;
	}
	if (f->x->why) {
		f->x->why = gathers ? why : none_whole;
		f->x->n_passes = f->x->n_groups = f->x->most = 0;
	}
	f->x->whole = f->whole && !f->x->why;
	f->x->sized = has_sizes(f);
	return 0;
}

void pl_rewrite_groups_free(struct rw_groups *x)
{
	if (x) {
		pl_free(x->pass);
		pl_free(x->group);
	}
	pl_free(x);
}

int pl_rewrite_groups_find(struct rw_facts *x, struct pl_err *err)
{
	struct finder f = { .g = x->g };
	int rc;

	if (x->groups)
		return 0;
	PL_CHECK(pl_alloc(&x->groups, 1, sizeof(*x->groups), err));
	f.x = x->groups;
	rc = find_all(&f, err);
	if (rc < 0) {
		pl_rewrite_groups_free(x->groups);
		x->groups = NULL;
	}
	pl_free(f.item);
	pl_free(f.mark);
	pl_free(f.of);
	pl_free(f.number);
	pl_free(f.named);
	return rc;
}

static const char *why_not(const struct rw_groups *x, bool sizes)
{
	return x->why ? x->why : sizes && !x->sized ? none_sizes : NULL;
}

int pl_rewrite_groups_need(struct rw_facts *x, bool sizes, struct pl_err *err)
{
	const char *why;

	PL_CHECK(pl_rewrite_groups_find(x, err));
	why = why_not(x->groups, sizes);
	return why ? pl_fail(err, PL_EDATA, "the groups of sharded parameters cannot be told: %s",
			     why)
		   : 0;
}

int pl_rewrite_groups(struct pl_rewriter *r, uint32_t *n, const char **why, struct pl_err *err)
{
	PL_CHECK(pl_rewrite_groups_find(&r->facts, err));
	*why = why_not(r->facts.groups, true);
	*n = *why ? 0 : r->facts.groups->most;
	return 0;
}

/* ---- gathers of parameters ------------------------------------------------------------------- */

/* When the passes of a rank run in a step. */
struct extent {
	pl_ns forward, backward, end; /* begin of the first operation of each, and of the last */
};
struct gathered {
	uint32_t n;
	int64_t bytes;
};

static const struct extent no_extent = { INT64_MAX, INT64_MAX, INT64_MIN };

/* Adds an operation of the rank. */
static void extend(struct extent *x, unsigned phase, pl_ns start)
{
	if (phase == PL_PH_FORWARD)
		x->forward = pl_min_i64(x->forward, start);
	if (!pl_graph_is_backward(phase))
		return;
	x->backward = pl_min_i64(x->backward, start);
	x->end = pl_max_i64(x->end, start);
}

static struct extent find_extent(const struct pl_graph *g, const struct pl_gstep *st, int32_t rank)
{
	const struct pl_shape *s = &g->shape[st->shape];
	struct extent x = no_extent;

	for (uint32_t i = s->n_entries; s->phase && i < s->n_nodes; i++)
		if (pl_node_rank(g, s, i) == rank)
			extend(&x, s->phase[i], st->start[i]);
	return x;
}

/* Does the rank enter a collective at node i, of this kind, between these times? */
static bool enters(const struct pl_graph *g, const struct pl_gstep *st, int32_t rank, uint32_t i,
		   unsigned coll, pl_ns from, pl_ns to)
{
	const struct pl_shape *s = &g->shape[st->shape];

	return s->role[i] == PL_RO_ARRIVE && pl_node_rank(g, s, i) == rank &&
	       pl_node_coll(s, i) == coll && st->start[i] >= from && st->start[i] < to;
}

/* Does the rank scatter sums in the group during the forward pass? */
static bool scatters(const struct pl_graph *g, const struct pl_gstep *st, int32_t rank,
		     uint32_t group, const struct extent *x)
{
	const struct pl_shape *s = &g->shape[st->shape];

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++)
		if (s->group[i] == group &&
		    enters(g, st, rank, i, PL_COLL_REDUCE_SCATTER, x->forward, x->backward))
			return true;
	return false;
}

/* All-gathers of the rank before and during its passes: the first group of parameters is gathered
 * before the forward pass. In a group that scatters sums in the forward pass, too, they are of
 * activations; in others they are of parameters. */
static struct gathered find_gathered(const struct pl_graph *g, const struct pl_gstep *st,
				     int32_t rank)
{
	const struct pl_shape *s = &g->shape[st->shape];
	const struct extent x = find_extent(g, st, rank);
	struct gathered all = { 0 };
	const struct pl_gcomm *c;
	/* groups in which the rank gathers: a handful */
	struct {
		uint32_t group;
		bool activations;
	} known[8];
	size_t n = 0, k;

	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		if (!enters(g, st, rank, i, PL_COLL_ALLGATHER, INT64_MIN, x.end))
			continue;
		for (k = 0; k < n && known[k].group != s->group[i];)
			k++;
		if (k == n) {
			k = n < PL_LEN(known) ? n++ : 0;
			known[k].group = s->group[i];
			known[k].activations = scatters(g, st, rank, s->group[i], &x);
		}
		if (known[k].activations)
			continue;
		c = pl_node_comm(s, i);
		all.n++;
		all.bytes = pl_add_sat(all.bytes, c ? pl_max_i64(0, c->bytes) : 0);
	}
	return all;
}

/* The same of all ranks of a step: x[rank in the graph]. */
static void find_extents(const struct pl_graph *g, const struct pl_gstep *st, struct extent *x)
{
	const struct pl_shape *s = &g->shape[st->shape];

	for (int32_t r = 0; r < g->n_ranks; r++)
		x[r] = no_extent;
	for (uint32_t i = s->n_entries; s->phase && i < s->n_nodes; i++) {
		uint32_t rank = pl_graph_rank_index(g, pl_node_rank(g, s, i));

		if (rank != PL_NONE)
			extend(&x[rank], s->phase[i], st->start[i]);
	}
}

int pl_rewrite_activations(const struct pl_graph *g, bool **of, struct pl_err *err)
{
	struct extent *x = NULL;
	bool *seen = NULL; /* [shape] */
	int rc;

	*of = NULL;
	PL_TRY(pl_alloc(&x, (size_t)g->n_ranks + 1, sizeof(*x), err));
	PL_TRY(pl_alloc(&seen, g->n_shapes + 1, sizeof(*seen), err));
	PL_TRY(pl_alloc(of, g->n_groups + 1, sizeof(**of), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *s = &g->shape[st->shape];

		if (seen[st->shape])
			continue;
		seen[st->shape] = true;
		find_extents(g, st, x);
		for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
			uint32_t rank;

			if (s->role[i] != PL_RO_ARRIVE || s->group[i] == PL_NONE ||
			    pl_node_coll(s, i) != PL_COLL_REDUCE_SCATTER)
				continue;
			rank = pl_graph_rank_index(g, pl_node_rank(g, s, i));
			if (rank != PL_NONE && st->start[i] >= x[rank].forward &&
			    st->start[i] < x[rank].backward)
				(*of)[s->group[i]] = true;
		}
	}
out:
	pl_free(x);
	pl_free(seen);
	return rc;
}

/* Are they of parameters? All ranks together gather about as much as there are gradients, which a
 * rank without sizes is taken to do if it gathers more than once. */
static bool are_params(const struct pl_graph *g, const struct gathered *x, uint32_t shape)
{
	int64_t grads = 0;

	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensor[i].role == PL_TR_GRAD && g->tensor[i].shape == shape)
			grads = pl_add_sat(grads, pl_max_i64(0, g->tensor[i].bytes));
	grads /= g->n_ranks; /* of one rank, as the gathered bytes */
	return x->bytes && grads ? (double)x->bytes * g->n_ranks >= (double)grads / 2 : x->n > 1;
}

uint32_t pl_rewrite_gathers(const struct pl_graph *g)
{
	for (size_t k = 0; g->n_ranks && k < g->n_steps; k++) {
		struct gathered x;

		if (g->step[k].number == INT64_MIN)
			continue;
		x = find_gathered(g, &g->step[k], g->rank[0]);
		if (x.n && are_params(g, &x, g->step[k].shape))
			return x.n;
	}
	return 0;
}

/* ---- what the host does for a communication ---------------------------------------------------
 */

bool pl_rewrite_on_thread(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].res != PL_NONE && e->node[node].type == PL_N_OP &&
	       e->res[e->node[node].res].track_type == PL_T_THREAD;
}

uint32_t pl_rewrite_chained(const struct pl_edit *e, uint32_t node, bool before)
{
	uint32_t x = before ? e->node[node].in : e->node[node].out;

	for (; x != PL_NONE; x = before ? e->edge[x].in_next : e->edge[x].out_next) {
		const struct pl_enode *n = &e->node[before ? e->edge[x].src : e->edge[x].dst];

		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && n->res == e->node[node].res &&
		    n->type == PL_N_OP && n->step == e->node[node].step)
			return x;
	}
	return PL_NONE;
}

bool pl_rewrite_is_for_comm(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].phase == PL_PH_COMM || e->node[node].role == PL_RO_GAP;
}

bool pl_rewrite_waits_for_comm(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (e->node[e->edge[x].src].role == PL_RO_TRANSFER)
			return true;
	return false;
}
