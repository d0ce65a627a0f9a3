/*
 * Steps: from the annotations on threads to windows of ranks, and one order of the steps.
 *
 * On a thread, consecutive annotations with the same number are one window. If a number comes again
 * after other numbers, it is another step with this number (a job may count anew in every epoch).
 * The k-th step with a number on one thread is the k-th on every other thread of the rank. If
 * several threads of a rank have a step, its window covers theirs. A window ends where the next
 * begins.
 *
 * Ranks may have recorded different epochs. Their windows of a number are compared with those of
 * the rank that has the most windows: the k-th is the k + d-th there, for the d with which most of
 * them overlap in time; if none do, the k-th is the k-th, and a warning says so.
 *
 * Steps are in order of their numbers if every rank executed them in this order, otherwise in order
 * of their first start on any rank. If a rank has another order, its work in a step that should
 * come earlier belongs to the current step, and a warning reports the rank. A warning also reports
 * windows that overlap on one thread. O(n log n) for n annotations.
 */
#include <stdlib.h>

#include "derive/internal.h"

struct key { /* a step: its number, and how many of that number were before it */
	int64_t number;
	int32_t again;
	pl_ns start;	/* first on any rank */
	uint32_t index; /* in the order of numbers */
};

PL_COMPARATOR(by_number, struct window, number, again, start);

static int by_start(const void *pa, const void *pb)
{
	const struct window *a = pa, *c = pb;
	int order = PL_COMPARE_FIELDS(a, c, start, end);

	return order ? order : by_number(pa, pb);
}

PL_COMPARATOR(by_key, struct key, again, number);

PL_COMPARATOR(by_time, struct key, start, index);

/* ---- windows of a thread --------------------------------------------------------------------- */

/* Steps that overlap on a thread, by more than their ends are sharp. */
struct overlap {
	int64_t first, second;
	pl_ns by;
	size_t n;
};

static void note_overlap(struct overlap *o, const struct window *a, const struct window *c)
{
	pl_ns by = a->end - c->start;

	if (c->end >= a->end && by <= pl_min_i64(a->end - a->start, c->end - c->start) / 100)
		return;
	if (!o->n++) {
		o->first = a->number;
		o->second = c->number;
		o->by = by;
	}
}

/* Operation i begins a window: those of the one before, from operation `first` on, end there. */
static void cut_before(struct resource *resource, uint32_t first, uint32_t i, struct window *prev,
		       struct window *w)
{
	struct op *op = resource->op;

	w->end = pl_max_i64(w->end, prev->end);
	prev->end = w->start;
	for (uint32_t k = first; k < i; k++)
		if (op[k].kind == PL_K_STEP)
			op[k].end = pl_min_i64(op[k].end, w->start);
	op[i].end = w->end;
}

/* The operations of a thread are in order of start. */
static void thread_windows(struct builder *b, struct resource *resource, struct overlap *o)
{
	struct rank *rank = &b->rank[resource->rank_index];
	size_t from = rank->n_win;
	uint32_t first = 0; /* operation of the latest window */
	int64_t count = 0;

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op *op = &resource->op[i];
		const struct pl_events *e = b->t->seg[op->seg];
		struct window w = { .start = op->start, .end = op->end }, *prev;

		if (op->kind != PL_K_STEP)
			continue;
		w.number = e->step && e->step[op->ev] != INT64_MIN ? e->step[op->ev] : count;
		count++;
		prev = rank->n_win > from ? &rank->win[rank->n_win - 1] : NULL;
		if (prev && prev->number == w.number) {
			prev->end = pl_max_i64(prev->end, w.end);
			continue;
		}
		if (prev && w.start < prev->end) {
			note_overlap(o, prev, &w);
			cut_before(resource, first, i, prev, &w);
		}
		PL_DERIVE_ADD(b->err, rank->win, rank->n_win, rank->cap_win, w);
		first = i;
	}
	if (rank->n_win == from)
		return;
	pl_sort(rank->win + from, rank->n_win - from, sizeof(*rank->win), by_number);
	for (size_t i = from + 1; i < rank->n_win; i++)
		if (rank->win[i].number == rank->win[i - 1].number)
			rank->win[i].again = rank->win[i - 1].again + 1;
}

/* ---- windows of a rank ----------------------------------------------------------------------- */

/* The windows of several threads for the same step become one. */
static void unite(struct rank *rank)
{
	size_t n = 0;

	pl_sort(rank->win, rank->n_win, sizeof(*rank->win), by_number);
	for (size_t i = 0; i < rank->n_win; i++) {
		struct window *w = &rank->win[i], *to = n ? &rank->win[n - 1] : NULL;

		if (to && to->number == w->number && to->again == w->again)
			to->end = pl_max_i64(to->end, w->end);
		else
			rank->win[n++] = *w;
	}
	rank->n_win = n;
	pl_sort(rank->win, n, sizeof(*rank->win), by_start);
	/* inside a longer window of another thread: the later step takes the rest of that window */
	for (size_t i = 1; i < n; i++)
		rank->win[i].end = pl_max_i64(rank->win[i].end, rank->win[i - 1].end);
}

static void rank_windows(struct builder *b, struct rank *rank)
{
	struct overlap o = { .n = 0 };
	char by[32];

	for (size_t i = 0; i < rank->n_res; i++)
		thread_windows(b, &b->resource[rank->res[i]], &o);
	unite(rank);
	if (o.n)
		pl_say(b->o->log, PL_LOG_WARN,
		       "rank %d: step %lld begins %s before step %lld ends on the same thread "
		       "(%zu such on this rank): from then on time counts for the later one",
		       rank->rank, (long long)o.second, pl_fmt_ns(by, sizeof(by), o.by),
		       (long long)o.first, o.n);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

static bool overlap(const struct window *a, const struct window *c)
{
	return a->start < c->end && c->start < a->end;
}

/* Of the n windows of one number, in order, the one that overlaps with w and begins nearest to it,
 * NULL: there is none. */
static const struct window *overlapping(const struct window *v, size_t n, const struct window *w)
{
	const struct window *before, *behind;
	size_t i = 0;

	PL_LOWER_BOUND(i, n, v[i].start < w->start);
	before = i && overlap(&v[i - 1], w) ? &v[i - 1] : NULL;
	behind = i < n && overlap(&v[i], w) ? &v[i] : NULL;
	if (!before || !behind)
		return before ? before : behind;
	return w->start - before->start < behind->start - w->start ? before : behind;
}

static int by_size(const void *pa, const void *pb)
{
	int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
	int order = PL_COMPARE(abs(a), abs(b));

	return order ? order : PL_COMPARE(a, b);
}

/* By how much to shift the n windows of a number against the n_other of another rank, both in
 * order; *none: none of them overlap. vote: room for n. */
static int32_t shift_of(const struct window *w, size_t n, const struct window *other,
			size_t n_other, int32_t *vote, bool *none)
{
	int32_t shift = 0;
	size_t votes = 0, most = 0;

	for (size_t i = 0; i < n; i++) {
		const struct window *at = overlapping(other, n_other, &w[i]);

		if (at)
			vote[votes++] = at->again - w[i].again;
	}
	pl_sort(vote, votes, sizeof(*vote), by_size); /* the smaller shift, if as many are for it */
	for (size_t i = 0, k; i < votes; i += k) {
		for (k = 1; i + k < votes && vote[i + k] == vote[i]; k++)
			;
		if (k > most) {
			most = k;
			shift = vote[i];
		}
	}
	*none = !votes;
	return shift;
}

/* `other`: windows of the rank that has the most, by number. */
static void shift_rank(struct builder *b, struct rank *rank, const struct window *other,
		       size_t n_other)
{
	struct window *w = rank->win;
	size_t missed = 0, at = 0;
	int64_t first = 0;
	int32_t *vote;

	if (pl_alloc(&vote, rank->n_win, sizeof(*vote), b->err) < 0)
		return;
	pl_sort(w, rank->n_win, sizeof(*w), by_number);
	for (size_t i = 0, n, m; i < rank->n_win; i += n, at += m) {
		int32_t shift;
		bool none;

		for (n = 1; i + n < rank->n_win && w[i + n].number == w[i].number; n++)
			;
		while (at < n_other && other[at].number < w[i].number)
			at++;
		for (m = 0; at + m < n_other && other[at + m].number == w[i].number; m++)
			;
		if (!m || (n == 1 && m == 1))
			continue;
		shift = shift_of(&w[i], n, &other[at], m, vote, &none);
		if (none && !missed++)
			first = w[i].number;
		for (size_t k = i; k < i + n; k++)
			w[k].again += shift;
	}
	pl_sort(w, rank->n_win, sizeof(*w), by_start);
	pl_free(vote);
	if (missed)
		pl_say(b->o->log, PL_LOG_WARN,
		       "rank %d: step %lld comes several times, and never at the time of one of "
		       "another rank (%zu such steps): which of them belong together is not known",
		       rank->rank, (long long)first, missed);
}

static void shift_ranks(struct builder *b)
{
	struct rank *most = b->rank;
	struct window *by = NULL;
	bool many = false;
	size_t n;

	for (size_t r = 0; r < b->n_ranks; r++) {
		most = b->rank[r].n_win > most->n_win ? &b->rank[r] : most;
		for (size_t i = 0; i < b->rank[r].n_win; i++)
			many |= b->rank[r].win[i].again > 0;
	}
	n = b->n_ranks ? most->n_win : 0;
	if (!many || b->n_ranks < 2 || pl_alloc(&by, n, sizeof(*by), b->err) < 0)
		return;
	memcpy(by, most->win, n * sizeof(*by));
	pl_sort(by, n, sizeof(*by), by_number);
	for (size_t r = 0; r < b->n_ranks; r++)
		if (&b->rank[r] != most)
			shift_rank(b, &b->rank[r], by, n);
	pl_free(by);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* All steps, in order of their numbers; the step of a window becomes an index into them. */
static void list_keys(struct builder *b, struct key **key, size_t *n)
{
	size_t all = 0, cap = 0, kept = 0;
	struct key *v = NULL;

	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t i = 0; i < b->rank[r].n_win; i++) {
			const struct window *w = &b->rank[r].win[i];

			PL_DERIVE_ADD(b->err, v, all, cap,
				      (struct key){ w->number, w->again, w->start, 0 });
		}
	pl_sort(v, all, sizeof(*v), by_key);
	for (size_t i = 0; i < all; i++) {
		if (kept && !by_key(&v[kept - 1], &v[i])) {
			v[kept - 1].start = pl_min_i64(v[kept - 1].start, v[i].start);
			continue;
		}
		v[kept] = v[i];
		v[kept].index = (uint32_t)kept;
		kept++;
	}
	*key = v;
	*n = kept;
	for (size_t r = 0; r < b->n_ranks && !b->err->code; r++)
		for (size_t i = 0; i < b->rank[r].n_win; i++) {
			struct window *w = &b->rank[r].win[i];
			const struct key k = { .number = w->number, .again = w->again };
			const struct key *at = bsearch(&k, v, kept, sizeof(k), by_key);

			w->step = (int32_t)at->index;
		}
}

static bool rising(const struct builder *b)
{
	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t i = 1; i < b->rank[r].n_win; i++)
			if (b->rank[r].win[i].step < b->rank[r].win[i - 1].step)
				return false;
	return true;
}

/* Order the keys by their first begin. */
static void order_by_time(struct builder *b, struct key *key, size_t n)
{
	int32_t *to;

	if (pl_alloc(&to, n, sizeof(*to), b->err) < 0)
		return;
	pl_sort(key, n, sizeof(*key), by_time);
	for (size_t i = 0; i < n; i++)
		to[key[i].index] = (int32_t)i;
	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t i = 0; i < b->rank[r].n_win; i++)
			b->rank[r].win[i].step = to[b->rank[r].win[i].step];
	pl_free(to);
}

/* A rank whose windows still do not follow the order of the steps. */
static void settle(const struct builder *b, struct rank *rank, const struct key *key)
{
	int64_t first = 0, into = 0;
	size_t n = 0;

	for (size_t i = 1; i < rank->n_win; i++) {
		struct window *w = &rank->win[i];

		if (w->step >= rank->win[i - 1].step)
			continue;
		if (!n++) {
			first = w->number;
			into = key[rank->win[i - 1].step].number;
		}
		w->step = rank->win[i - 1].step;
	}
	if (n)
		pl_say(b->o->log, PL_LOG_WARN,
		       "rank %d: step %lld comes after step %lld here, before it on another rank "
		       "(%zu such on this rank): what it did counts for step %lld",
		       rank->rank, (long long)first, (long long)into, n, (long long)into);
}

void pl_derive_steps(struct builder *b)
{
	struct key *key = NULL;
	size_t n;
	int rc;

	for (size_t r = 0; r < b->n_ranks; r++)
		rank_windows(b, &b->rank[r]);
	shift_ranks(b);
	list_keys(b, &key, &n);
	if (!rising(b))
		order_by_time(b, key, n);
	for (size_t r = 0; r < b->n_ranks; r++)
		settle(b, &b->rank[r], key);
	b->g->stepless = !n;
	b->n_steps = n ? n : 1;
	PL_TRY(pl_alloc(&b->step, b->n_steps, sizeof(*b->step), b->err));
	for (size_t i = 0; i < n; i++)
		b->step[i] = key[i].number;
out:
	pl_free(key);
}

/* ---- the step of a time ---------------------------------------------------------------------- */

int32_t pl_derive_step_at(const struct builder *b, const struct rank *rank, pl_ns t, bool *inside)
{
	size_t *near = &b->rank[rank - b->rank].near_win, i = *near;

	if (inside)
		*inside = b->g->stepless;
	if (b->g->stepless)
		return 0;
	if ((i && rank->win[i - 1].start > t) || (i < rank->n_win && rank->win[i].start <= t)) {
		i = 0;
		PL_LOWER_BOUND(i, rank->n_win, rank->win[i].start <= t);
		*near = i;
	}
	if (!i)
		return BEFORE_FIRST_STEP;
	if (inside)
		*inside = t < rank->win[i - 1].end;
	return i == rank->n_win && t >= rank->win[i - 1].end ? (int32_t)b->n_steps
							     : rank->win[i - 1].step;
}
