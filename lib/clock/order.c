/*
 * Matching by order: which elements of the ranks' sequences are one communication, where no number
 * tells.
 *
 * The ranks of a group do the same things in the same order. So each sequence is aligned with the
 * longest one (sequences.c). Order holds for each stream alone: where a group uses several streams,
 * as when gathering and scattering of shards overlap, chance decides on each rank which stream is
 * ahead. Plain order then contradicts itself: kinds or sizes differ at one position, or partners
 * come from different streams. The sequences are then split, by stream (the k-th stream of each
 * rank) or by kind and size, and each part is matched in its own order. The ordering that leaves
 * the fewest events unmatched is used. Plain order is used where it is as good, and the rest is
 * reported as a divergence. Parts by kind are used only if every stream keeps its order.
 *
 * Cost: that of aligning, three times at most.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

#define MAX_STREAMS  16 /* of one rank in one group */
#define MUCH_TIGHTER 0.5
#define EARLY_PAIRS  8
#define EARLY_AGREE  0.95 /* otherwise they are no pairs */

int pl_clock_diverged(struct pl_align *a, const char *what, uint32_t x, int32_t rank, uint32_t y,
		      struct pl_err *err)
{
	const struct pl_comm *p = x == PL_NONE ? NULL : &a->ev[x], *q = &a->ev[y];
	char text[512], at[24], other[160];

	a->rep->divergences++;
	if (p)
		snprintf(other, sizeof(other), "rank %d has \"%.100s\"", rank,
			 pl_intern_get(&a->str, p->name));
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

/* ---- parts -------------------------------------------------------------------------------------
 */

/* One split of the sequences of n ranks into parts that keep their order, and how well it matches.
 */
struct ordering {
	struct pl_seq *s;	  /* of part p and rank j: p * n + j */
	uint32_t *ref;		  /* of each part: the rank that the others are aligned with */
	struct difference *first; /* as s */
	uint32_t *ev, *to;	  /* memory of the sequences s, if they were split */
	uint32_t *place; /* of each event before the split, rank by rank: its place in ev */
	uint32_t parts, n;
	uint64_t alone; /* events that lack a partner, counted against the reference */
	double scatter; /* mean change of the difference of ends, ns */
	bool differs;
	enum pl_matched_by by;
};

static void ordering_fini(struct ordering *w)
{
	pl_free(w->s);
	pl_free(w->ref);
	pl_free(w->first);
	pl_free(w->ev);
	pl_free(w->place);
}

static int ordering_init(struct ordering *w, uint32_t parts, uint32_t n, struct pl_err *err)
{
	int rc;

	w->parts = parts;
	w->n = n;
	PL_TRY(pl_alloc(&w->s, (size_t)parts * n + 1, sizeof(*w->s), err));
	PL_TRY(pl_alloc(&w->first, (size_t)parts * n + 1, sizeof(*w->first), err));
	PL_TRY(pl_alloc(&w->ref, parts + (size_t)1, sizeof(*w->ref), err));
out:
	return rc;
}

static size_t total(const struct pl_seq *s, uint32_t n)
{
	size_t sum = 0;

	for (uint32_t j = 0; j < n; j++)
		sum += s[j].n;
	return sum;
}

/* The events of each part, by rank and time; `part` is that of each event before the split. */
static int split_sequences(struct ordering *w, const struct pl_seq *s, uint32_t n,
			   const uint32_t *part, uint32_t parts, struct pl_err *err)
{
	size_t all = total(s, n), at = 0, flat = 0;
	int rc;

	PL_TRY(ordering_init(w, parts, n, err));
	PL_TRY(pl_alloc(&w->ev, 2 * all + 1, sizeof(*w->ev), err));
	PL_TRY(pl_alloc(&w->place, all + 1, sizeof(*w->place), err));
	w->to = w->ev + all;
	for (uint32_t j = 0; j < n; flat += s[j++].n)
		for (uint32_t i = 0; i < s[j].n; i++)
			w->s[(size_t)part[flat + i] * n + j].n++;
	for (size_t k = 0; k < (size_t)parts * n; at += w->s[k++].n) {
		w->s[k].ev = w->ev + at;
		w->s[k].to = w->to + at;
		w->s[k].rank = s[k % n].rank;
	}
	for (size_t k = 0; k < (size_t)parts * n; k++)
		w->s[k].n = 0;
	flat = 0;
	for (uint32_t j = 0; j < n; flat += s[j++].n)
		for (uint32_t i = 0; i < s[j].n; i++) {
			struct pl_seq *q = &w->s[(size_t)part[flat + i] * n + j];

			w->place[flat + i] = (uint32_t)(q->ev - w->ev) + q->n;
			w->ev[w->place[flat + i]] = s[j].ev[i];
			q->n++;
		}
out:
	return rc;
}

static int by_stream(const void *x, const void *y)
{
	const struct pl_comm_stream *p = *(const struct pl_comm_stream *const *)x;
	const struct pl_comm_stream *q = *(const struct pl_comm_stream *const *)y;

	return PL_COMPARE_FIELDS(p, q, device, stream);
}

/* The streams of one rank, in the order of their numbers; 0 if there are too many. */
static uint32_t streams_of(const struct pl_align *a, const struct pl_seq *s,
			   const struct pl_comm_stream **v)
{
	uint32_t n = 0, k;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct pl_comm_stream *l = &a->comm_stream[a->ev[s->ev[i]].comm_stream];

		for (k = 0; k < n && v[k] != l;)
			k++;
		if (k < n)
			continue;
		if (n == MAX_STREAMS)
			return 0;
		v[n++] = l;
	}
	qsort(v, n, sizeof(const struct pl_comm_stream *), by_stream);
	return n;
}

/* Part of each event: its stream. *parts 0 when the ranks do not use equally many, and several. */
static void parts_by_stream(const struct pl_align *a, const struct pl_seq *s, uint32_t n,
			    uint32_t *part, uint32_t *parts)
{
	const struct pl_comm_stream *v[MAX_STREAMS];
	size_t at = 0;

	*parts = 0;
	for (uint32_t j = 0; j < n; j++) {
		uint32_t here = streams_of(a, &s[j], v);

		if (here < 2 || (j && here != *parts)) {
			*parts = 0;
			return;
		}
		*parts = here;
		for (uint32_t i = 0; i < s[j].n; i++, at++)
			for (uint32_t k = 0; k < here; k++)
				if (v[k] == &a->comm_stream[a->ev[s[j].ev[i]].comm_stream])
					part[at] = k;
	}
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

/* ---- aligning ----------------------------------------------------------------------------------
 */

struct mean {
	double sum, n;
};

/* What the pairs of x and y add to the count of lonely events and to the scatter of ends. */
static uint64_t weigh(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
		      struct mean *scatter)
{
	uint64_t pairs = 0;
	pl_ns last = 0;

	for (uint32_t i = 0; i < y->n; i++) {
		pl_ns d;

		if (y->to[i] == PL_NONE)
			continue;
		d = pl_sub_sat(a->ev[x->ev[y->to[i]]].end, a->ev[y->ev[i]].end);
		if (pairs++) {
			scatter->sum += fabs((double)pl_sub_sat(d, last));
			scatter->n++;
		}
		last = d;
	}
	return x->n + (uint64_t)y->n - 2 * pairs;
}

static int align_part(const struct pl_align *a, struct ordering *w, uint32_t part,
		      bool look_for_missing, struct mean *scatter, struct pl_err *err)
{
	struct pl_seq *s = w->s + (size_t)part * w->n, *x;
	struct difference *first = w->first + (size_t)part * w->n;
	uint32_t ref = 0, at;
	int rc = 0;

	for (uint32_t j = 1; j < w->n; j++)
		ref = s[j].n > s[ref].n ? j : ref;
	w->ref[part] = ref;
	x = &s[ref];
	for (uint32_t j = 0; j < w->n; j++) {
		first[j] = (struct difference){ PL_NONE, PL_NONE, -1 };
		if (j == ref)
			continue;
		PL_TRY(pl_clock_seq_align(a, x, &s[j], &at, err));
		if (at != PL_NONE)
			first[j] = (struct difference){ x->ev[pl_min_size(at, x->n - 1)],
							s[j].ev[at], x->rank };
		else if (look_for_missing)
			PL_TRY(pl_clock_find_missing(a, x, &s[j], &first[j], err));
		w->differs |= first[j].y != PL_NONE;
		if (look_for_missing)
			w->alone += weigh(a, x, &s[j], scatter);
	}
out:
	return rc;
}

static int align_ordering(const struct pl_align *a, struct ordering *w, bool look_for_missing,
			  struct pl_err *err)
{
	struct mean scatter = { 0 };
	int rc = 0;

	for (uint32_t p = 0; p < w->parts && rc >= 0; p++)
		rc = align_part(a, w, p, look_for_missing, &scatter, err);
	w->scatter = scatter.n > 0 ? scatter.sum / scatter.n : INFINITY;
	return rc;
}

/* The sequences as they are. */
static int plain_order(const struct pl_align *a, struct ordering *w, const struct pl_seq *s,
		       uint32_t n, bool look_for_missing, struct pl_err *err)
{
	int rc = ordering_init(w, 1, n, err);

	if (rc < 0)
		return rc;
	memcpy(w->s, s, n * sizeof(*s));
	return align_ordering(a, w, look_for_missing, err);
}

/* ---- matches -----------------------------------------------------------------------------------
 */

/* Matches in the order of the reference sequence; `at` is where each of the others stands. */
static int put_ordered(struct pl_align *a, uint32_t group, const struct pl_seq *s, uint32_t n,
		       uint32_t ref, uint32_t *at, uint32_t *ev, struct pl_err *err)
{
	int rc = 0;

	memset(at, 0, n * sizeof(*at));
	for (uint32_t i = 0; i < s[ref].n; i++) {
		uint32_t k = 0;

		for (uint32_t j = 0; j < n; j++) {
			if (j == ref) {
				ev[k++] = s[j].ev[i];
				continue;
			}
			/* `to` ascends where it is set */
			while (at[j] < s[j].n && (s[j].to[at[j]] == PL_NONE || s[j].to[at[j]] < i))
				at[j]++;
			if (at[j] < s[j].n && s[j].to[at[j]] == i)
				ev[k++] = s[j].ev[at[j]];
		}
		PL_TRY(pl_clock_add_match(a, group, PL_MATCH_INFERRED, ev, k, err));
	}
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t i = 0; i < s[j].n && j != ref; i++)
			if (s[j].to[i] == PL_NONE)
				PL_TRY(pl_clock_add_match(a, group, PL_MATCH_INFERRED, &s[j].ev[i],
							  1, err));
out:
	return rc;
}

static pl_ns since_first(const struct pl_align *a, uint32_t ev)
{
	return pl_sub_sat(a->ev[ev].ts, a->clock_first[a->ev[ev].clock]);
}

/* A part that only some ranks have: not where their traces begin or end, but within. */
static void note_absent(const struct pl_seq *whole_seq, struct ordering *w)
{
	for (uint32_t p = 0; p < w->parts && w->parts > 1; p++) {
		const struct pl_seq *x = &w->s[(size_t)p * w->n + w->ref[p]];
		const struct pl_seq *all = &whole_seq[w->ref[p]];
		bool within = x->ev[0] != all->ev[0] && x->ev[x->n - 1] != all->ev[all->n - 1];

		for (uint32_t j = 0; j < w->n && within; j++)
			if (!w->s[(size_t)p * w->n + j].n && whole_seq[j].n)
				w->first[(size_t)p * w->n + j] =
					(struct difference){ PL_NONE, x->ev[0], whole_seq[j].rank };
	}
}

/* Say the earliest difference, count the others. */
static int say_first(struct pl_align *a, uint32_t group, const struct ordering *w,
		     struct pl_err *err)
{
	const struct difference *best = NULL;
	uint64_t count = 0;
	char what[160];
	int rc;

	for (size_t k = 0; k < (size_t)w->parts * w->n; k++) {
		const struct difference *d = &w->first[k];

		if (d->y == PL_NONE)
			continue;
		count++;
		if (!best || (w->parts > 1 && since_first(a, d->y) < since_first(a, best->y)))
			best = d;
	}
	if (!best)
		return 0;
	snprintf(what, sizeof(what), "group %.100s", pl_intern_get(&a->str, a->group[group].name));
	rc = pl_clock_diverged(a, what, best->x, best->rank, best->y, err);
	a->rep->divergences += count - 1;
	return rc;
}

static int put_ordering(struct pl_align *a, uint32_t group, const struct ordering *w,
			struct pl_err *err)
{
	uint32_t *at = NULL;
	int rc;

	PL_TRY(say_first(a, group, w, err));
	PL_TRY(pl_alloc(&at, 2u * (size_t)w->n + 1, sizeof(*at), err));
	for (uint32_t p = 0; p < w->parts; p++)
		PL_TRY(put_ordered(a, group, w->s + (size_t)p * w->n, w->n, w->ref[p], at,
				   at + w->n, err));
out:
	pl_free(at);
	return rc;
}

int pl_clock_by_order(struct pl_align *a, uint32_t group, struct pl_seq *s, uint32_t n,
		      struct pl_err *err)
{
	struct ordering w = { 0 };
	int rc;

	PL_TRY(plain_order(a, &w, s, n, false, err));
	rc = put_ordering(a, group, &w, err);
out:
	ordering_fini(&w);
	return rc;
}

/* ---- several streams ---------------------------------------------------------------------------
 */

/* Are some partners of plain order of different parts? */
static bool crosses(const struct ordering *plain, const uint32_t *part)
{
	uint32_t ref = plain->ref[0];
	size_t at = 0, x = 0;

	for (uint32_t j = 0; j < ref; j++)
		x += plain->s[j].n;
	for (uint32_t j = 0; j < plain->n; at += plain->s[j++].n)
		for (uint32_t i = 0; i < plain->s[j].n && j != ref; i++)
			if (plain->s[j].to[i] != PL_NONE &&
			    part[at + i] != part[x + plain->s[j].to[i]])
				return true;
	return false;
}

struct last { /* position on one rank of the last partner, of events from stream x on stream y */
	uint32_t x, y, at;
};

/* Do the partners of rank j's events follow each other as they do, stream by stream? `pos`: of each
 * match, its position on the reference rank, and `stream` its stream there. */
static bool in_turn(const struct pl_align *a, const struct pl_seq *y, const uint32_t *match,
		    const uint32_t *pos, const struct pl_seq *x)
{
	struct last seen[MAX_STREAMS * MAX_STREAMS];
	uint32_t n = 0, k;

	for (uint32_t i = 0; i < y->n; i++) {
		uint32_t at = match[i] == PL_NONE ? PL_NONE : pos[match[i]], lx, ly;

		if (at == PL_NONE)
			continue;
		lx = a->ev[x->ev[at]].comm_stream;
		ly = a->ev[y->ev[i]].comm_stream;
		for (k = 0; k < n && (seen[k].x != lx || seen[k].y != ly);)
			k++;
		if (k < n && at < seen[k].at)
			return false;
		if (k == n && n++ == PL_LEN(seen))
			return false;
		seen[k] = (struct last){ lx, ly, at };
	}
	return true;
}

/* The number of the match of each event, rank by rank. */
static void number_matches(const struct ordering *w, uint32_t *match)
{
	uint32_t base = 0;

	for (uint32_t p = 0; p < w->parts; p++) {
		const struct pl_seq *s = w->s + (size_t)p * w->n;

		for (uint32_t j = 0; j < w->n; j++)
			for (uint32_t i = 0; i < s[j].n; i++)
				match[s[j].ev + i - w->ev] = j == w->ref[p] ? base + i
							     : s[j].to[i] == PL_NONE
								     ? PL_NONE
								     : base + s[j].to[i];
		base += s[w->ref[p]].n;
	}
}

/* Does this matching keep the order of every stream? */
static int streams_in_turn(const struct pl_align *a, const struct ordering *w,
			   const struct pl_seq *s, uint32_t ref, bool *yes, struct pl_err *err)
{
	size_t all = total(s, w->n), at = 0, x = 0;
	uint32_t *match = NULL, *pos = NULL, *here = NULL;
	int rc;

	PL_TRY(pl_alloc(&match, all + 1, sizeof(*match), err));
	PL_TRY(pl_alloc(&here, all + 1, sizeof(*here), err));
	PL_TRY(pl_alloc(&pos, all + 1, sizeof(*pos), err));
	number_matches(w, match);
	for (size_t i = 0; i < all; i++) {
		here[i] = match[w->place[i]];
		pos[i] = PL_NONE;
	}
	for (uint32_t j = 0; j < ref; j++)
		x += s[j].n;
	for (uint32_t i = 0; i < s[ref].n; i++)
		if (here[x + i] != PL_NONE)
			pos[here[x + i]] = i;
	*yes = true;
	for (uint32_t j = 0; j < w->n; at += s[j++].n)
		*yes = *yes && (j == ref || in_turn(a, &s[j], here + at, pos, &s[ref]));
out:
	pl_free(match);
	pl_free(pos);
	pl_free(here);
	return rc;
}

/* `best` is plain order. Align in parts, and replace *best if this is better. */
static int try_parts(const struct pl_align *a, const struct pl_seq *s, uint32_t n,
		     const uint32_t *part, uint32_t parts, enum pl_matched_by by, bool crossed,
		     struct ordering *best, struct pl_err *err)
{
	struct ordering w = { .by = by };
	bool good = true;
	int rc;

	PL_TRY(split_sequences(&w, s, n, part, parts, err));
	PL_TRY(align_ordering(a, &w, true, err));
	if (by == PL_BY_KINDS)
		PL_TRY(streams_in_turn(a, &w, s, best->ref[0], &good, err));
	note_absent(s, &w);
	if (good && (w.alone < best->alone || (w.alone == best->alone && crossed &&
					       w.scatter < MUCH_TIGHTER * best->scatter))) {
		struct ordering old = *best;

		*best = w;
		w = old;
	}
out:
	ordering_fini(&w);
	return rc;
}

int pl_clock_recorded(struct pl_align *a, uint32_t group, struct pl_seq *s, uint32_t n,
		      struct pl_err *err)
{
	uint32_t *part = NULL, parts;
	struct ordering best = { .by = PL_BY_ORDER };
	bool crossed;
	int rc;

	PL_TRY(plain_order(a, &best, s, n, true, err));
	PL_TRY(pl_alloc(&part, total(s, n) + 1, sizeof(*part), err));
	parts_by_stream(a, s, n, part, &parts);
	crossed = parts > 1 && crosses(&best, part);
	if (best.differs || crossed) {
		if (parts > 1)
			PL_TRY(try_parts(a, s, n, part, parts, PL_BY_STREAMS, crossed, &best, err));
		if (best.by == PL_BY_ORDER) {
			PL_TRY(parts_by_kind(a, s, n, part, &parts, err));
			if (parts > 1)
				PL_TRY(try_parts(a, s, n, part, parts, PL_BY_KINDS, false, &best,
						 err));
		}
	}
	if (best.by != PL_BY_ORDER)
		a->group[group].by = best.by;
	rc = put_ordering(a, group, &best, err);
out:
	ordering_fini(&best);
	pl_free(part);
	return rc;
}

/* By stream, where the ranks use equally many. */
static int split_by_stream(const struct pl_align *a, struct ordering *w, const struct pl_seq *s,
			   uint32_t n, struct pl_err *err)
{
	uint32_t *part = NULL, parts;
	int rc;

	PL_TRY(pl_alloc(&part, total(s, n) + 1, sizeof(*part), err));
	parts_by_stream(a, s, n, part, &parts);
	if (!parts)
		memset(part, 0, total(s, n) * sizeof(*part));
	rc = split_sequences(w, s, n, part, parts ? parts : 1, err);
out:
	pl_free(part);
	return rc;
}

int pl_clock_numbered(struct pl_align *a, uint32_t group, struct pl_seq *s, uint32_t n,
		      struct pl_err *err)
{
	uint32_t *ev = NULL;
	struct ordering w = { 0 };
	int rc;

	PL_TRY(pl_alloc(&ev, n + (size_t)1, sizeof(*ev), err));
	PL_TRY(split_by_stream(a, &w, s, n, err));
	for (uint32_t p = 0; p < w.parts; p++)
		for (uint32_t o = 0, k = 1; k; o++) {
			k = 0;
			for (uint32_t j = 0; j < n; j++) {
				const struct pl_seq *q = &w.s[(size_t)p * n + j];

				if (o < q->n)
					ev[k++] = q->ev[o];
			}
			if (k)
				PL_TRY(pl_clock_add_match(a, group, 0, ev, k, err));
		}
out:
	ordering_fini(&w);
	pl_free(ev);
	return rc;
}

int pl_clock_share_early(const struct pl_align *a, const struct pl_seq *s, uint32_t n, double *most,
			 struct pl_err *err)
{
	int64_t *scratch = NULL;
	struct ordering w = { 0 };
	int rc;

	*most = 0;
	PL_TRY(pl_alloc(&scratch, PL_SEQ_SCRATCH, sizeof(*scratch), err));
	PL_TRY(split_by_stream(a, &w, s, n, err));
	for (size_t k = 0; k < (size_t)w.parts * n; k++) {
		const struct pl_seq *x = &w.s[k - k % n], *y = &w.s[k];
		double early;

		if (x == y || y->n < EARLY_PAIRS || y->n != x->n ||
		    pl_clock_seq_agreement(a, x, y, 0) < EARLY_AGREE)
			continue;
		pl_clock_seq_spread(a, x, y, 0, &early, scratch);
		*most = fmax(*most, early);
	}
out:
	ordering_fini(&w);
	pl_free(scratch);
	return rc;
}
