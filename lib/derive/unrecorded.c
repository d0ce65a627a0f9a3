/*
 * Synchronisation that nobody recorded: a barrier, the average of losses over some ranks, a lock.
 *
 * Ranks that wait for one another begin again together, shortly after the last of them became
 * ready. So the waits without a known cause are compared. A wait is a pause of a thread, or the
 * unexplained time before an operation of a table. A place is the waits between operations with
 * the same names on one resource. The place of a long wait is compared with places of other ranks:
 * those where long waits ended with it, and, because the last rank hardly waits, those where any
 * pause ended with it. They are one rendezvous if
 *
 *	in nearly all instances each of them has a wait that ends within TOGETHER_NS or a tenth of
 *	the longest wait, plus the error of the clocks;
 *	this is no chance: the product of the shares of the waits in which the ends lie is small;
 *	the last one became ready shortly before the end, measured by the longest wait, or always
 *	as long before it, measured by how much the longest wait varies;
 *	no recorded communication of a thread ended there.
 *
 * Waits that begin at different times and end together but without such a last one are waits for
 * something outside of the recording, such as a remote service. Such gaps of threads get a name
 * that says so.
 *
 * The rendezvous becomes a mark without a duration, at the time at which the last member was ready.
 * The time from there to the end of the waits stays. Both are inferred.
 *
 * O(n) in the nodes of threads to collect the waits. The number of searches is limited to a small
 * share of the nodes, at least SEARCHES_MIN. So the places where the program waits for the longest
 * come first, and a warning says how many were not looked at.
 */
#include <math.h>
#include <stdlib.h>

#include "derive/unrecorded.h"

#define EXACT_NS     10000 /* nearer ends prove no more: profilers round, threads are woken */
#define INSTANCES    3	   /* at least so many, in as many steps if there are so many */
#define STEADY	     12	   /* instances whose variation says something */
#define VOTES	     8	   /* instances that show the place of a rank that hardly waits */
#define LOOK_BACK    64	   /* communications of a thread that are searched for one that ended */
#define SEARCHES_MIN 50000 /* and one more for so many nodes: */
#define NODES	     128
#define CHANCE	     1e-3 /* of a rendezvous where there is none, in a whole recording */

/* How far the ends of waits may differ, if the longest lasts `length`. */
static pl_ns tolerance(const struct search *x, uint32_t rank, uint32_t other, pl_ns length)
{
	return pl_unrecorded_clock_error(x, rank, other) +
	       pl_max_i64(TOGETHER_NS, pl_min_i64(TOGETHER_MAX, length / 10));
}

/* ---- who could be a member ------------------------------------------------------------------- */

static void add_member(struct search *x, uint32_t place)
{
	PL_DERIVE_ADD(x->b->err, x->member, x->n_members, x->cap_members, place);
}

/* The tolerance for the mean wait of the seed, and for any clock. */
static pl_ns near_seed(const struct search *x, uint32_t seed)
{
	const struct place *p = &x->place[seed];
	pl_ns sum = 0, near = 0;

	for (uint32_t i = p->first; i < p->first + p->n; i++)
		sum += x->wait[i].end - x->wait[i].ready;
	for (uint32_t r = 0; r < x->b->n_ranks; r++)
		near = pl_max_i64(near, tolerance(x, pl_unrecorded_rank(x, seed), r, sum / p->n));
	return near;
}

/* Adds the places where long waits end with those of the seed. */
static void long_members(struct search *x, uint32_t seed)
{
	const struct place *p = &x->place[seed];

	x->stamp++;
	for (uint32_t i = p->first; i < p->first + p->n; i++) {
		const struct wait *w = &x->wait[i];
		size_t k = 0;

		PL_LOWER_BOUND(k, x->n_waits, x->wait[x->by_end[k]].end < w->end - x->near);
		for (; k < x->n_waits && x->searches; k++, x->searches--) {
			const struct wait *v = &x->wait[x->by_end[k]];
			struct place *q = &x->place[v->place];

			if (v->end > w->end + x->near)
				break;
			if (v->place == seed || q->taken)
				continue;
			if (q->stamp != x->stamp)
				add_member(x, v->place);
			q->stamp = x->stamp;
		}
	}
}

/* The place of a rank that has a pause at the end of most waits of the seed; PL_NONE: it has none.
 */
static uint32_t hidden_member(struct search *x, uint32_t seed, uint32_t res)
{
	const struct place p = x->place[seed];
	uint32_t place[VOTES], n = 0;

	for (uint32_t i = 0; i < p.n && n < VOTES && x->searches; i++, x->searches--) {
		const struct wait *v = &x->wait[p.first + i];
		struct wait w = pl_unrecorded_wait_at(x, res, NULL, v->end, x->near);
		struct place_key key;

		if (i >= 3 && n < 2)
			break;
		if (w.node == PL_NONE)
			continue;
		key = pl_unrecorded_key(x, res, w.node);
		place[n++] = pl_unrecorded_place(x, &key);
	}
	for (uint32_t i = 0; i < n && !x->b->err->code; i++) {
		uint32_t same = 0;

		for (uint32_t k = 0; k < n; k++)
			same += place[k] == place[i];
		if (4 * same >= 3 * pl_min_size(p.n, VOTES) && same >= 2)
			return x->place[place[i]].taken ? PL_NONE : place[i];
	}
	return PL_NONE;
}

static void hidden_members(struct search *x, uint32_t seed)
{
	const struct builder *b = x->b;
	bool *has;

	if (pl_alloc(&has, b->n_ranks, sizeof(*has), b->err) < 0)
		return;
	for (size_t i = 0; i < x->n_members; i++)
		has[pl_unrecorded_rank(x, x->member[i])] = true;
	for (uint32_t k = 0; k < b->g->n_res && x->searches && !b->err->code; k++) {
		uint32_t place, rank = b->resource[k].rank_index;

		if (has[rank] || (!b->rank[rank].table && !b->resource[k].thread))
			continue;
		place = hidden_member(x, seed, k);
		if (place != PL_NONE)
			add_member(x, place);
	}
	pl_free(has);
}

/* ---- is it a rendezvous? --------------------------------------------------------------------- */

static size_t misses(size_t n)
{
	return n / 5;
}

/* The instances: the ends of the long waits of all members, those that are together once. */
static void list_instances(struct search *x)
{
	size_t n = 0;
	pl_ns last = 0;

	x->n_at = 0;
	for (size_t m = 0; m < x->n_members; m++) {
		const struct place *p = &x->place[x->member[m]];

		for (uint32_t i = p->first; i < p->first + p->n; i++)
			PL_DERIVE_ADD(x->b->err, x->at, x->n_at, x->cap_at, x->wait[i].end);
	}
	pl_sort(x->at, x->n_at, sizeof(*x->at), pl_compare_i64);
	for (size_t i = 0; i < x->n_at; i++) {
		bool other = !n || x->at[i] - last > x->near;

		last = x->at[i];
		if (other)
			x->at[n++] = last;
	}
	x->n_at = n;
}

static const struct wait *wait_of(const struct search *x, size_t instance, size_t m)
{
	return &x->found[instance * x->n_members + m];
}

/* What the waits of an instance say. */
struct instance {
	pl_ns first_ready, last_ready, first_end, last_end;
	bool whole; /* no member is missing, and no wait ends before the last one was ready */
};

static struct instance look_at(const struct search *x, size_t i)
{
	struct instance s = { INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, true };
	pl_ns error = 0;

	for (size_t m = 0; m < x->n_members; m++) {
		const struct wait *w = wait_of(x, i, m);

		if (w->node == PL_NONE) {
			s.whole = false;
			continue;
		}
		s.first_ready = pl_min_i64(s.first_ready, w->ready);
		s.last_ready = pl_max_i64(s.last_ready, w->ready);
		s.first_end = pl_min_i64(s.first_end, w->end);
		s.last_end = pl_max_i64(s.last_end, w->end);
		error = pl_max_i64(error,
				   pl_unrecorded_clock_error(x, pl_unrecorded_rank(x, x->member[0]),
							     pl_unrecorded_rank(x, x->member[m])));
	}
	s.whole &= s.last_ready <= s.first_end + error;
	return s;
}

/* How far the next wait of the place is from this one, on either side, at most `most`. Where the
 * program comes by often, one that ends together with others is likelier to be chance. */
static pl_ns spacing(const struct search *x, uint32_t place, const struct wait *w, pl_ns most)
{
	const struct place_key *key = &x->place[place].key;
	struct wait next;

	for (pl_ns tol = most; tol > EXACT_NS; tol /= 2) {
		next = pl_unrecorded_wait_at(x, key->res, key, w->end + tol / 2 + 1, tol / 2);
		if (next.node == PL_NONE)
			next = pl_unrecorded_wait_at(x, key->res, key, w->end - tol / 2 - 1,
						     tol / 2);
		if (next.node == PL_NONE)
			return tol;
	}
	return EXACT_NS;
}

/* Finds the waits of all members in all instances. */
static void find_waits(struct search *x)
{
	size_t n;

	list_instances(x);
	n = x->n_at * x->n_members;
	if (n > x->searches) /* more than is left */
		n = x->n_at = 0;
	if (!pl_derive_grow(x->b->err, &x->found, &x->cap_found, n, sizeof(*x->found)) ||
	    !pl_derive_grow(x->b->err, &x->score, &x->cap_score, x->n_members, sizeof(*x->score)))
		return;
	memset(x->score, 0, x->n_members * sizeof(*x->score));
	for (size_t i = 0; i < x->n_at; i++)
		for (size_t m = 0; m < x->n_members; m++) {
			const struct place_key *key = &x->place[x->member[m]].key;

			x->found[i * x->n_members + m] =
				pl_unrecorded_wait_at(x, key->res, key, x->at[i], 2 * x->near);
		}
	x->searches -= n;
}

/* Drops the waits of an instance that do not end with that of the seed, or where the seed has none
 * with that of most; adds to the scores of the others. */
static void compare_ends(struct search *x, size_t i)
{
	struct instance s = look_at(x, i);
	const struct wait *w = &x->found[i * x->n_members];
	pl_ns length = s.last_end - s.first_ready;

	for (size_t m = x->n_members; m-- > 1 && w[0].node != PL_NONE;) {
		uint32_t rank = pl_unrecorded_rank(x, x->member[0]),
			 other = pl_unrecorded_rank(x, x->member[m]);
		pl_ns distance = llabs(w[m].end - w[0].end),
		      near = pl_unrecorded_clock_error(x, rank, other);

		if (w[m].node == PL_NONE)
			continue;
		if (distance > tolerance(x, rank, other, length)) {
			x->found[i * x->n_members + m].node = PL_NONE;
			continue;
		}
		near = pl_max_i64(pl_max_i64(near, distance), EXACT_NS);
		x->score[m] += fmax(0, log((double)spacing(x, x->member[m], &w[m], length) /
					   (2.0 * (double)near)));
	}
}

/* Leaves out members that are missing too often, or that chance may have brought. Returns whether
 * there were any. */
static bool drop_members(struct search *x)
{
	double least = log((double)x->n_places / CHANCE);
	size_t kept = 1;

	for (size_t m = 1; m < x->n_members; m++) {
		size_t there = 0, n = 0;

		for (size_t i = 0; i < x->n_at; i++) {
			bool seed = wait_of(x, i, 0)->node != PL_NONE;

			n += seed;
			there += seed && wait_of(x, i, m)->node != PL_NONE;
		}
		if (n - there <= misses(n) && x->score[m] >= least)
			x->member[kept++] = x->member[m];
	}
	if (kept == x->n_members)
		return false;
	x->n_members = kept;
	return true;
}

/* Did communication of a thread that only communicates end on the rank in (from, to]? */
static bool communication_ended(const struct builder *b, const struct rank *rank, pl_ns from,
				pl_ns to)
{
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];
		uint32_t i = 0;

		if (!resource->service)
			continue;
		PL_LOWER_BOUND(i, resource->n, resource->op[i].start <= to);
		for (uint32_t back = 0; i-- > 0 && back < LOOK_BACK; back++) {
			pl_ns end = pl_derive_end(b, resource->op[i].last);

			if (end > from && end <= to)
				return true;
		}
	}
	return false;
}

static bool explained(const struct search *x, const struct instance *s)
{
	for (size_t m = 0; m < x->n_members; m++)
		if (communication_ended(x->b, &x->b->rank[pl_unrecorded_rank(x, x->member[m])],
					s->last_ready - TOGETHER_NS, s->last_end + TOGETHER_NS))
			return true;
	return false;
}

/* In how many steps of the first member do instances lie? */
static size_t count_steps(const struct search *x)
{
	const struct builder *b = x->b;
	const struct rank *rank = &b->rank[pl_unrecorded_rank(x, x->member[0])];
	int32_t last = INT32_MIN;
	size_t n = 0;

	for (size_t i = 0; i < x->n_at; i++) {
		int32_t step = pl_derive_step_at(b, rank, x->at[i], NULL);

		n += step != last;
		last = step;
	}
	return n;
}

/* The median of how far the n times are from their median. */
static pl_ns scatter(pl_ns *v, size_t n)
{
	pl_ns median = pl_median_i64(v, n);

	for (size_t i = 0; i < n; i++)
		v[i] = llabs(v[i] - median);
	return pl_median_i64(v, n);
}

/* Do the waits always end as long after the last one was ready, although the time from the first
 * one varies? */
static bool steady(struct search *x)
{
	size_t n = 0;

	if (!pl_derive_grow(x->b->err, &x->span, &x->cap_spans, 2 * x->n_at, sizeof(*x->span)))
		return false;
	for (size_t i = 0; i < x->n_at; i++) {
		struct instance s = look_at(x, i);

		if (!s.whole)
			continue;
		x->span[n] = s.last_end - s.last_ready;
		x->span[x->n_at + n++] = s.last_ready - s.first_ready;
	}
	return n >= STEADY &&
	       4 * pl_max_i64(scatter(x->span, n), EXACT_NS) <= scatter(x->span + x->n_at, n);
}

/* Are the waits that were found those of a rendezvous? *together: do they at least end together? */
static bool is_rendezvous(struct search *x, bool *together)
{
	size_t whole = 0, late = 0, known = 0, n_steps = x->b->n_steps;
	double lag = 0, length = 0, distance = 0;
	bool alone = true;

	for (size_t i = 0; i < x->n_at; i++) {
		struct instance s = look_at(x, i);
		pl_ns longest = s.last_end - s.first_ready;

		if (!s.whole)
			continue;
		whole++;
		lag += (double)(s.last_end - s.last_ready);
		length += (double)longest;
		distance += (double)(s.last_end - s.first_end);
		late += 2 * (s.last_end - s.last_ready) > longest && longest > 4 * LONG_NS;
		known += explained(x, &s);
	}
	for (size_t m = 1; m < x->n_members; m++)
		alone &= pl_unrecorded_rank(x, x->member[m]) == pl_unrecorded_rank(x, x->member[0]);
	if (alone || whole < INSTANCES || x->n_at - whole > misses(x->n_at) || 2 * known >= whole)
		return false;
	if (n_steps >= INSTANCES && count_steps(x) * 5 < 4 * n_steps)
		return false;
	/* ranks that do the same work begin and end it together */
	*together = distance * 4 <= length - lag;
	return (late <= misses(whole) && 4 * lag <= length) || (3 * lag <= 2 * length && steady(x));
}

/* ---- into the graph -------------------------------------------------------------------------- */

/* The operations before and after the waits, as the recording names them. */
static pl_id name_of(struct search *x)
{
	struct builder *b = x->b;
	const struct place_key *key = &x->place[x->member[0]].key;
	pl_id before = key->before, after = key->after, id = PL_NONE;
	struct pl_buf text = { 0 };

	if (b->rank[pl_unrecorded_rank(x, x->member[0])].table) {
		size_t i = 0;

		while (wait_of(x, i, 0)->node == PL_NONE)
			i++;
		before = b->node[x->ready[wait_of(x, i, 0)->node].last].name;
		after = key->pause;
	}
	if (pl_buf_printf(&text, b->err, PL_UNRECORDED " between %s and %s",
			  pl_intern_get(&b->g->str, before), pl_intern_get(&b->g->str, after)) >= 0)
		id = pl_derive_intern(b->err, &b->g->str, (const char *)text.p, text.n);
	pl_buf_fini(&text);
	return id;
}

/* Ends what is before the wait by `at`, if the clocks say that it ended a little later. */
static bool end_by(struct builder *b, const struct search *x, const struct wait *w, pl_ns at,
		   bool change)
{
	bool table = b->rank[b->resource[b->node[w->node].res].rank_index].table;
	struct node *before = &b->node[table ? x->ready[w->node].last : w->node - 1];
	pl_ns over = w->ready - at;

	if (over <= 0)
		return true;
	if (before->dur < over || before->start + before->dur != w->ready)
		return false;
	if (change) {
		before->dur -= over;
		if (!table) {
			b->node[w->node].start = at;
			b->node[w->node].dur += over;
		}
	}
	return true;
}

/* Did the wait become part of another instance? */
static bool is_taken(const struct search *x, const struct wait *w)
{
	const struct builder *b = x->b;

	if (b->rank[b->resource[b->node[w->node].res].rank_index].table)
		return x->meet[w->node];
	return pl_derive_end(b, w->node) != w->end;
}

static void add_instance(struct search *x, size_t i, pl_id name)
{
	struct instance s = look_at(x, i);
	struct builder *b = x->b;
	struct node n = { .start = pl_min_i64(s.last_ready, s.first_end),
			  .type = PL_N_RENDEZVOUS,
			  .role = PL_RO_MARK,
			  .kind = PL_K_WAIT,
			  .flags = PL_NF_INFERRED,
			  .res = PL_NONE,
			  .name = name,
			  .step = -1 };
	uint32_t id;

	if (!s.whole)
		return;
	for (size_t m = 0; m < x->n_members; m++)
		if (is_taken(x, wait_of(x, i, m)))
			return;
	for (size_t m = 0; m < x->n_members; m++)
		if (!end_by(b, x, wait_of(x, i, m), n.start, false))
			return;
	id = pl_derive_node(b, &n);
	for (size_t m = 0; m < x->n_members; m++) {
		const struct wait *w = wait_of(x, i, m);
		uint32_t res = b->node[w->node].res;

		end_by(b, x, w, n.start, true);
		b->g->inferred_waits++;
		if (b->rank[b->resource[res].rank_index].table) {
			x->meet[w->node] = id;
			continue;
		}
		pl_derive_edge(b, w->node, id, PL_E_WAIT | PL_E_INFERRED);
		pl_derive_split(b, &b->resource[res], w->node, 0, n.start, id);
	}
}

/* What comes before an operation of a table comes before its rendezvous, which comes before it. */
static void tie_tables(struct search *x, size_t n_nodes)
{
	struct builder *b = x->b;
	size_t n = b->n_edges;

	for (size_t i = 0; i < n; i++) {
		struct edge e = b->edge[i];

		if (e.dst < n_nodes && x->meet[e.dst] && PL_E_TYPE(e.type) != PL_E_START)
			pl_derive_edge(b, e.src, x->meet[e.dst], PL_E_WAIT | PL_E_INFERRED);
	}
	for (uint32_t i = 1; i < n_nodes; i++) {
		if (!x->meet[i])
			continue;
		if (b->node[i].follows)
			pl_derive_edge(b, i - 1, x->meet[i], PL_E_WAIT | PL_E_INFERRED);
		pl_derive_edge(b, x->meet[i], i, PL_E_WAIT | PL_E_INFERRED);
	}
}

static void take_members(struct search *x)
{
	for (size_t m = 0; m < x->n_members; m++)
		x->place[x->member[m]].taken = true;
}

/* The gaps end together, but nothing shows why. */
static void name_outside(struct search *x)
{
	struct builder *b = x->b;
	pl_id name = pl_derive_intern_text(b->err, &b->g->str, PL_OUTSIDE);

	for (size_t i = 0; i < x->n_at * x->n_members; i++)
		if (x->found[i].node != PL_NONE && b->node[x->found[i].node].role == PL_RO_GAP)
			b->node[x->found[i].node].name = name;
	take_members(x);
}

/* Are the seed and the other members at hand a rendezvous, some of them perhaps left out? */
static bool agree(struct search *x, bool *together)
{
	do {
		find_waits(x);
		if (x->b->err->code || x->n_members < 2 || !x->searches)
			return false;
		for (size_t i = 0; i < x->n_at; i++)
			compare_ends(x, i);
	} while (drop_members(x));
	return is_rendezvous(x, together);
}

/* Looks for a rendezvous with the waits at this place. */
static void one_seed(struct search *x, uint32_t seed)
{
	bool together = false;
	pl_id name;

	x->near = near_seed(x, seed);
	x->n_members = 0;
	add_member(x, seed);
	long_members(x, seed);
	hidden_members(x, seed);
	if (!agree(x, &together)) {
		if (together)
			name_outside(x);
		return;
	}
	name = name_of(x);
	for (size_t i = 0; i < x->n_at && !x->b->err->code; i++)
		add_instance(x, i, name);
	take_members(x);
}

static void search_fini(struct search *x)
{
	pl_intern_fini(&x->keys);
	pl_free(x->ready);
	pl_free(x->place);
	pl_free(x->wait);
	pl_free(x->by_end);
	pl_free(x->clock);
	pl_free(x->member);
	pl_free(x->at);
	pl_free(x->found);
	pl_free(x->score);
	pl_free(x->span);
	pl_free(x->meet);
}

/* A place from which the search begins. */
struct seed {
	pl_ns total; /* of its waits */
	uint32_t place;
};

PL_COMPARATOR_FALLING(by_total, struct seed, total, place);

static void search_all(struct search *x)
{
	struct builder *b = x->b;
	struct seed *seed = NULL;
	size_t n = 0, cap = 0, left = 0;

	for (uint32_t i = 0; i < x->n_places; i++) {
		const struct place *p = &x->place[i];
		pl_ns total = 0;

		for (uint32_t k = p->first; k < p->first + p->n; k++)
			total = pl_add_sat(total, x->wait[k].end - x->wait[k].ready);
		if (p->n >= 2)
			PL_DERIVE_ADD(b->err, seed, n, cap, (struct seed){ total, i });
	}
	pl_sort(seed, n, sizeof(*seed), by_total);
	for (size_t i = 0; i < n && !b->err->code; i++) {
		if (x->place[seed[i].place].taken)
			continue;
		if (x->searches)
			one_seed(x, seed[i].place);
		else
			left++;
	}
	if (left)
		pl_say(b->o->log, PL_LOG_WARN,
		       "ranks may wait for one another where nobody recorded it: of %zu places "
		       "with long pauses, the %zu with the shortest were not compared",
		       n, left);
	pl_free(seed);
}

void pl_derive_unrecorded(struct builder *b)
{
	struct search x = { .b = b, .searches = SEARCHES_MIN + b->n_nodes / NODES };
	size_t n_nodes = b->n_nodes;

	if (!b->o->infer || b->n_ranks < 2)
		return;
	pl_unrecorded_collect(&x);
	pl_unrecorded_find_clocks(&x);
	if (x.ready && !b->err->code && pl_alloc(&x.meet, n_nodes, sizeof(*x.meet), b->err) < 0)
		goto out;
	if (!b->err->code)
		search_all(&x);
	if (x.meet && !b->err->code)
		tie_tables(&x, n_nodes);
out:
	search_fini(&x);
}
