/*
 * Matching by order: which elements of the ranks' sequences are one communication, without numbers.
 *
 * The ranks of a group do the same things in the same order. So each sequence is aligned with the
 * longest one (sequences.c). Only the order within a stream is sure: where a group uses several
 * streams, as when gathering and scattering of shards overlap, chance decides on each rank which
 * stream is ahead. Plain order then contradicts itself: kinds or sizes differ at one position, or
 * partners come from different streams. The sequences are then split, by stream (the k-th stream of
 * each rank) or by kind and size, and each part is matched in its own order. The ordering that
 * leaves the fewest events unmatched is used. Plain order is used where it is as good, and the rest
 * is reported as a divergence. Parts by kind are used only if every stream keeps its order.
 *
 * Cost: that of aligning, three times at most.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "clock/internal.h"

/* Where both orders match all, the one by streams has to be so much tighter: by chance it may be a
 * little, and numbers of streams may differ between ranks. */
#define MUCH_TIGHTER 0.5

int pl_clock_diverged(struct pl_align *a, const char *what, uint32_t x, int32_t rank, uint32_t y,
		      struct pl_err *err)
{
	const struct pl_comm *p = x == PL_NONE ? NULL : &a->ev[x], *q = &a->ev[y];
	char text[512], at[24], other[192], sizes[64] = "";

	a->rep->divergences++;
	if (p && p->bytes != q->bytes && p->bytes != PL_NO_VALUE && q->bytes != PL_NO_VALUE)
		snprintf(sizes, sizeof(sizes), " of %" PRId64 ", not %" PRId64 " bytes", p->bytes,
			 q->bytes);
	if (p)
		snprintf(other, sizeof(other), "rank %d has \"%.100s\"%s", rank,
			 pl_intern_get(&a->str, p->name), sizes);
	else
		snprintf(other, sizeof(other), "rank %d has nothing", rank);
	pl_fmt_ns(at, sizeof(at), pl_sub_sat(q->ts, a->clock_first[q->clock]));
	snprintf(
		text, sizeof(text),
		"%s: rank %d has \"%.100s\" (event %u of its segment, %s after the first) where %s",
		what, q->rank, pl_intern_get(&a->str, q->name), q->event, at, other);
	if (a->o.strict)
		return pl_fail(err, PL_EDATA, "%s (without --strict: a warning)", text);
	pl_say(a->o.log, PL_LOG_WARN, "%s; matching goes on where they agree again", text);
	return 0;
}

/* ---- orderings ------------------------------------------------------------------------------- */

/* One split of the sequences of n ranks into parts that keep their order, and how well it matches.
 * The events before the split are counted rank by rank. */
struct ordering {
	struct pl_arena mem;
	enum pl_matched_by by;
	uint32_t parts, n;
	struct pl_seq *s;   /* of part p and rank j: p * n + j */
	uint32_t *ref;	    /* of each part: the rank that the others are aligned with */
	uint32_t *ev, *to;  /* of all sequences */
	uint32_t *place;    /* of each event before the split: its place in ev */
	uint32_t *match;    /* of each place: the number of its match */
	uint32_t n_matches; /* part by part; first those with an event of the reference */
	struct difference first;
	uint64_t differences;
	uint64_t alone;		   /* events that lack a partner, counted against the reference */
	double changes, n_changes; /* of the difference of ends between partners, ns */
};

static size_t total(const struct pl_seq *s, uint32_t n)
{
	size_t sum = 0;

	for (uint32_t j = 0; j < n; j++)
		sum += s[j].n;
	return sum;
}

/* `part`: of each event; NULL: all are one part. */
static int split_sequences(struct ordering *w, const struct pl_seq *s, uint32_t n,
			   const uint32_t *part, uint32_t parts, struct pl_err *err)
{
	size_t all = total(s, n) + 1, cells = (size_t)parts * n, at = 0, flat = 0;

	w->parts = parts;
	w->n = n;
	PL_CHECK(pl_arena_array(&w->mem, &w->s, cells + 1, sizeof(*w->s), err));
	PL_CHECK(pl_arena_array(&w->mem, &w->ref, parts + 1u, sizeof(*w->ref), err));
	PL_CHECK(pl_arena_array(&w->mem, &w->ev, all, sizeof(*w->ev), err));
	PL_CHECK(pl_arena_array(&w->mem, &w->to, all, sizeof(*w->to), err));
	PL_CHECK(pl_arena_array(&w->mem, &w->place, all, sizeof(*w->place), err));
	PL_CHECK(pl_arena_array(&w->mem, &w->match, all, sizeof(*w->match), err));
	for (size_t k = 0; k < cells; k++)
		w->s[k] = (struct pl_seq){ .rank = s[k % n].rank };
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < s[j].n; i++, flat++)
			w->s[(part ? (size_t)part[flat] * n : 0) + j].n++;
	for (size_t k = 0; k < cells; k++) {
		w->s[k].ev = w->ev + at;
		w->s[k].to = w->to + at;
		at += w->s[k].n;
		w->s[k].n = 0;
	}
	flat = 0;
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < s[j].n; i++, flat++) {
			struct pl_seq *q = &w->s[(part ? (size_t)part[flat] * n : 0) + j];

			w->place[flat] = (uint32_t)(q->ev - w->ev) + q->n++;
			w->ev[w->place[flat]] = s[j].ev[i];
		}
	return 0;
}

static int by_stream(const void *x, const void *y)
{
	const struct pl_comm_stream *p = *(const struct pl_comm_stream *const *)x;
	const struct pl_comm_stream *q = *(const struct pl_comm_stream *const *)y;

	return PL_COMPARE_FIELDS(p, q, device, stream);
}

/* The streams of one rank, in the order of their numbers. */
static uint32_t streams_of(const struct pl_align *a, const struct pl_seq *s,
			   const struct pl_comm_stream **v)
{
	uint32_t n = 0, k;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct pl_comm_stream *l = pl_clock_stream_of(a, a->ev[s->ev[i]].comm_stream);

		for (k = 0; k < n && v[k] != l;)
			k++;
		if (k == n)
			v[n++] = l;
	}
	qsort(v, n, sizeof(const struct pl_comm_stream *), by_stream);
	return n;
}

/* Part of each event: its stream. One part if the ranks do not use equally many. */
static int parts_by_stream(const struct pl_align *a, const struct pl_seq *s, uint32_t n,
			   uint32_t *part, uint32_t *parts, struct pl_err *err)
{
	const struct pl_comm_stream **v;
	size_t at = 0;
	int rc = pl_alloc(&v, total(s, n) + 1, sizeof(*v), err);

	*parts = 0;
	for (uint32_t j = 0; j < n && rc >= 0 && *parts != 1; j++) {
		uint32_t here = streams_of(a, &s[j], v);

		*parts = j && here != *parts ? 1 : here;
		for (uint32_t i = 0; i < s[j].n; i++, at++)
			for (uint32_t k = 0; k < here; k++)
				if (v[k] == pl_clock_stream_of(a, a->ev[s[j].ev[i]].comm_stream))
					part[at] = k;
	}
	if (*parts == 1)
		memset(part, 0, total(s, n) * sizeof(*part));
	pl_free(v);
	return rc;
}

/* Part of each event: its collective and, where it is recorded for all, size. */
static int parts_by_kind(const struct pl_align *a, const struct pl_seq *s, uint32_t n,
			 uint32_t *part, uint32_t *parts, struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	bool sizes = true;
	size_t at = 0;
	int rc = 0;

	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < s[j].n; i++)
			sizes &= a->ev[s[j].ev[i]].bytes != PL_NO_VALUE;
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < s[j].n; i++) {
			const struct pl_comm *e = &a->ev[s[j].ev[i]];
			bool sized = sizes && e->coll_is & PL_COLL_SAME_SIZE;
			const int64_t key[3] = { e->coll,
						 e->coll == PL_NONE || !sizes ? e->name : PL_NONE,
						 sized ? e->bytes : PL_NO_VALUE };

			PL_TRY(pl_intern_add(&keys, (const char *)key, sizeof(key), &part[at++],
					     err));
		}
	*parts = (uint32_t)keys.n;
out:
	pl_intern_fini(&keys);
	return rc;
}

/* ---- aligning -------------------------------------------------------------------------------- */

static pl_ns since_first(const struct pl_align *a, uint32_t ev)
{
	return pl_sub_sat(a->ev[ev].ts, a->clock_first[a->ev[ev].clock]);
}

/* The first difference of all is said. Ranks are compared in their order, parts by time. */
static void add_difference(const struct pl_align *a, struct ordering *w, struct difference d)
{
	if (d.y == PL_NONE)
		return;
	if (!w->differences++ || (w->parts > 1 && since_first(a, d.y) < since_first(a, w->first.y)))
		w->first = d;
}

/* Events of x and y without a partner; how much the difference of ends changes between pairs. */
static void count_alone(const struct pl_align *a, struct ordering *w, const struct pl_seq *x,
			const struct pl_seq *y)
{
	uint64_t pairs = 0;
	pl_ns last = 0;

	for (uint32_t i = 0; i < y->n; i++) {
		pl_ns d;

		if (y->to[i] == PL_NONE)
			continue;
		d = pl_sub_sat(a->ev[x->ev[y->to[i]]].end, a->ev[y->ev[i]].end);
		if (pairs++) {
			w->changes += fabs((double)pl_sub_sat(d, last));
			w->n_changes++;
		}
		last = d;
	}
	w->alone += x->n + (uint64_t)y->n - 2 * pairs;
}

/* `whole`: the sequences before the split. A part that a rank does not have is a difference unless
 * it begins or ends the trace. */
static void align_part(const struct pl_align *a, struct ordering *w, uint32_t part,
		       const struct pl_seq *whole, bool look_for_missing)
{
	struct pl_seq *s = w->s + (size_t)part * w->n, *x;
	uint32_t ref = 0, base = w->n_matches, at;
	const struct pl_seq *all;

	for (uint32_t j = 1; j < w->n; j++)
		ref = s[j].n > s[ref].n ? j : ref;
	w->ref[part] = ref;
	x = &s[ref];
	all = &whole[ref];
	w->n_matches += x->n;
	for (uint32_t j = 0; j < w->n; j++) {
		struct difference d = { PL_NONE, PL_NONE, -1 };
		uint32_t *match = w->match + (s[j].ev - w->ev);

		for (uint32_t i = 0; j == ref && i < x->n; i++)
			match[i] = base + i;
		if (j == ref)
			continue;
		at = pl_clock_seq_align(a, x, &s[j]);
		if (at != PL_NONE)
			d = (struct difference){ x->ev[pl_min_size(at, x->n - 1)], s[j].ev[at],
						 x->rank };
		else if (look_for_missing)
			d = pl_clock_find_missing(a, x, &s[j]);
		if (w->parts > 1 && !s[j].n && whole[j].n && x->ev[0] != all->ev[0] &&
		    x->ev[x->n - 1] != all->ev[all->n - 1])
			d = (struct difference){ PL_NONE, x->ev[0], s[j].rank };
		add_difference(a, w, d);
		count_alone(a, w, x, &s[j]);
		for (uint32_t i = 0; i < s[j].n; i++)
			match[i] = s[j].to[i] == PL_NONE ? w->n_matches++ : base + s[j].to[i];
	}
}

/* Split and align. */
static int make_ordering(const struct pl_align *a, struct ordering *w, const struct pl_seq *s,
			 uint32_t n, const uint32_t *part, uint32_t parts, bool look_for_missing,
			 struct pl_err *err)
{
	int rc = split_sequences(w, s, n, part, parts, err);

	for (uint32_t p = 0; p < parts && rc >= 0; p++)
		align_part(a, w, p, s, look_for_missing);
	return rc;
}

/* ---- matches --------------------------------------------------------------------------------- */

/* A match for each number, its members rank by rank. */
static int put_matches(struct pl_align *a, uint32_t group, struct ordering *w, uint32_t flags,
		       struct pl_err *err)
{
	size_t all = total(w->s, w->parts * w->n);
	uint32_t *first, *ev;

	PL_CHECK(pl_arena_array(&w->mem, &ev, all + 1, sizeof(*ev), err));
	PL_CHECK(pl_arena_array(&w->mem, &first, w->n_matches + 1u, sizeof(*first), err));
	pl_clock_sort_by_key(w->match, all, w->n_matches, ev, first);
	for (size_t i = 0; i < all; i++)
		ev[i] = w->ev[ev[i]];
	for (uint32_t m = 0; m < w->n_matches; m++)
		PL_CHECK(pl_clock_add_match(a, group, flags, ev + first[m], first[m + 1] - first[m],
					    err));
	return 0;
}

/* Say the first difference, count the others. */
static int say_difference(struct pl_align *a, uint32_t group, const struct ordering *w,
			  struct pl_err *err)
{
	char what[160];

	snprintf(what, sizeof(what), "group %.100s", pl_intern_get(&a->str, a->group[group].name));
	a->rep->divergences += w->differences - 1;
	return pl_clock_diverged(a, what, w->first.x, w->first.rank, w->first.y, err);
}

/* ---- several streams ------------------------------------------------------------------------- */

/* Are some partners of plain order of different parts? */
static bool crosses(const struct ordering *plain, const uint32_t *part)
{
	const struct pl_seq *x = &plain->s[plain->ref[0]];
	const uint32_t *part_of = part + (x->ev - plain->ev);

	for (size_t i = 0; i < total(plain->s, plain->n); i++)
		if (plain->match[i] < x->n && part[i] != part_of[plain->match[i]])
			return true;
	return false;
}

struct last { /* position on one rank of the last partner, of events from stream x on stream y */
	uint32_t x, y, at;
};

/* Do the partners of y's events on x follow each other as these do, stream by stream? `place`: of
 * the events of y; `pos`: of each match, its position on x. */
static int keeps_order(const struct pl_align *a, const struct ordering *w, const struct pl_seq *x,
		       const uint32_t *pos, const struct pl_seq *y, const uint32_t *place,
		       bool *yes, struct pl_err *err)
{
	struct last *seen = NULL;
	size_t n = 0, cap = 0, k;
	int rc = 0;

	for (uint32_t i = 0; i < y->n && *yes; i++) {
		uint32_t at = pos[w->match[place[i]]], from, to;

		if (at == PL_NONE)
			continue;
		from = a->ev[x->ev[at]].comm_stream;
		to = a->ev[y->ev[i]].comm_stream;
		for (k = 0; k < n && (seen[k].x != from || seen[k].y != to);)
			k++;
		PL_TRY(pl_grow(&seen, &cap, k + 1, sizeof(*seen), err));
		*yes = k == n || at >= seen[k].at;
		n = k == n ? n + 1 : n;
		seen[k] = (struct last){ from, to, at };
	}
out:
	pl_free(seen);
	return rc;
}

/* Does this matching of s keep the order of every stream? It does if it keeps that of the rank
 * `ref` with every other. */
static int streams_keep_order(const struct pl_align *a, const struct ordering *w,
			      const struct pl_seq *s, uint32_t ref, bool *yes, struct pl_err *err)
{
	const uint32_t *place = w->place + total(s, ref);
	uint32_t *pos;
	int rc = pl_alloc(&pos, w->n_matches + 1u, sizeof(*pos), err);

	if (rc < 0)
		return rc;
	memset(pos, 0xff, w->n_matches * sizeof(*pos));
	for (uint32_t i = 0; i < s[ref].n; i++)
		pos[w->match[place[i]]] = i;
	place = w->place;
	for (uint32_t j = 0; j < w->n && *yes && rc >= 0; place += s[j++].n)
		if (j != ref)
			rc = keeps_order(a, w, &s[ref], pos, &s[j], place, yes, err);
	pl_free(pos);
	return rc;
}

static double scatter(const struct ordering *w)
{
	return w->n_changes > 0 ? w->changes / w->n_changes : INFINITY;
}

/* `best` is plain order. Align in parts, and replace *best if this is better. */
static int try_parts(const struct pl_align *a, const struct pl_seq *s, uint32_t n,
		     const uint32_t *part, uint32_t parts, enum pl_matched_by by, bool crossed,
		     struct ordering *best, struct pl_err *err)
{
	struct ordering w = { .by = by };
	bool good = true;
	int rc;

	PL_TRY(make_ordering(a, &w, s, n, part, parts, true, err));
	if (by == PL_BY_KINDS)
		PL_TRY(streams_keep_order(a, &w, s, best->ref[0], &good, err));
	if (good && (w.alone < best->alone || (w.alone == best->alone && crossed &&
					       scatter(&w) < MUCH_TIGHTER * scatter(best)))) {
		struct ordering old = *best;

		*best = w;
		w = old;
	}
out:
	pl_arena_fini(&w.mem);
	return rc;
}

int pl_clock_by_order(struct pl_align *a, uint32_t group, const struct pl_seq *s, uint32_t n,
		      bool recorded, struct pl_err *err)
{
	uint32_t *part = NULL, parts = 1;
	struct ordering best = { .by = PL_BY_ORDER };
	bool crossed;
	int rc;

	PL_TRY(make_ordering(a, &best, s, n, NULL, 1, recorded, err));
	PL_TRY(pl_alloc(&part, total(s, n) + 1, sizeof(*part), err));
	if (recorded)
		PL_TRY(parts_by_stream(a, s, n, part, &parts, err));
	crossed = parts > 1 && crosses(&best, part);
	if (parts > 1 && (best.differences || crossed))
		PL_TRY(try_parts(a, s, n, part, parts, PL_BY_STREAMS, crossed, &best, err));
	if (recorded && best.by == PL_BY_ORDER && (best.differences || crossed)) {
		PL_TRY(parts_by_kind(a, s, n, part, &parts, err));
		if (parts > 1)
			PL_TRY(try_parts(a, s, n, part, parts, PL_BY_KINDS, false, &best, err));
	}
	if (best.by != PL_BY_ORDER)
		a->group[group].by = best.by;
	if (best.differences)
		PL_TRY(say_difference(a, group, &best, err));
	rc = put_matches(a, group, &best, PL_MATCH_INFERRED, err);
out:
	pl_arena_fini(&best.mem);
	pl_free(part);
	return rc;
}

static int split_by_stream(const struct pl_align *a, struct ordering *w, const struct pl_seq *s,
			   uint32_t n, struct pl_err *err)
{
	uint32_t *part = NULL, parts;
	int rc;

	PL_TRY(pl_alloc(&part, total(s, n) + 1, sizeof(*part), err));
	PL_TRY(parts_by_stream(a, s, n, part, &parts, err));
	rc = split_sequences(w, s, n, part, parts, err);
out:
	pl_free(part);
	return rc;
}

int pl_clock_numbered(struct pl_align *a, uint32_t group, const struct pl_seq *s, uint32_t n,
		      struct pl_err *err)
{
	struct ordering w = { 0 };
	int rc;

	PL_TRY(split_by_stream(a, &w, s, n, err));
	for (uint32_t p = 0; p < w.parts; p++) {
		uint32_t base = w.n_matches;

		for (size_t k = (size_t)p * n; k < (p + (size_t)1) * n; k++)
			for (uint32_t i = 0; i < w.s[k].n; i++) {
				w.match[w.s[k].ev + i - w.ev] = base + i;
				w.n_matches = base + i < w.n_matches ? w.n_matches : base + i + 1;
			}
	}
	rc = put_matches(a, group, &w, 0, err);
out:
	pl_arena_fini(&w.mem);
	return rc;
}

int pl_clock_share_early(const struct pl_align *a, const struct pl_seq *s, uint32_t n, double *most,
			 struct pl_err *err)
{
	struct ordering w = { 0 };
	int rc;

	*most = 0;
	PL_TRY(split_by_stream(a, &w, s, n, err));
	for (size_t k = 0; k < (size_t)w.parts * n; k++) {
		const struct pl_seq *x = &w.s[k - k % n], *y = &w.s[k];
		double early;

		if (x == y || y->n < PL_SEQ_PAIRS || y->n != x->n ||
		    !pl_clock_seq_alike(a, x, y, 0))
			continue;
		pl_clock_seq_spread(a, x, y, 0, &early);
		*most = fmax(*most, early);
	}
out:
	pl_arena_fini(&w.mem);
	return rc;
}
