/*
 * Which segments were recorded together?
 *
 * Ranks of one recording run at the same time. So segments whose times can be compared, because
 * they share a clock or are of one rank, and do not overlap, belong to different recordings. For
 * example, a folder may hold the files of an earlier run too. Matched by group and number they
 * would become one job with a step that lasts from one run to the other. A segment that continues
 * the one before it is of the same recording.
 *
 * Clocks that are not shared may differ by days. Their times are compared only if the user says
 * that there are several recordings (--duplicates=first or newest). What overlaps then is one run.
 * Another run is left out if a place or a rank of it is also in the chosen one, because a rank is
 * recorded once in a run, and times of one place tell its recordings apart. A run that shares
 * nothing with the chosen one may be the same run on clocks that are far off: it stays.
 *
 * If no communication joins the clocks, there is only a warning (pl_clock_say_joined()), because
 * the clocks may be wrong.
 *
 * Cost: sorting the segments.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "clock/internal.h"

struct span {	       /* one rank in one segment */
	int64_t place; /* whose times can be compared */
	pl_ns first, last;
	uint32_t sr;
	uint32_t recording; /* counted within the place */
	uint32_t run;	    /* counted over all places */
};

PL_COMPARATOR(by_place, struct span, place, first, sr);
PL_COMPARATOR(by_time, struct span, first, sr);

/* Places: 0 where all can be compared, a host, or a rank. */
static int64_t place_of(const struct pl_align *a, const struct pl_seg_rank *r)
{
	bool choose = a->o.duplicates == PL_DUP_FIRST || a->o.duplicates == PL_DUP_NEWEST;

	if (a->o.by == PL_CLOCK_ONE)
		return 0;
	if (a->o.by != PL_CLOCK_RANK && r->host != PL_NONE && a->str.len[r->host])
		return 1 + (int64_t)r->host;
	return choose && a->o.by != PL_CLOCK_RANK ? 0 : -1 - (int64_t)r->rank;
}

static int find_spans(const struct pl_align *a, struct span **v, size_t *n, struct pl_err *err)
{
	int rc = pl_alloc(v, a->n_sr + 1, sizeof(**v), err);

	*n = 0;
	for (uint32_t i = 0; rc >= 0 && i < a->n_sr; i++) {
		const struct pl_seg_rank *r = &a->sr[i];

		if (r->rank >= 0)
			(*v)[(*n)++] = (struct span){ place_of(a, r), r->first, r->last, i, 0, 0 };
	}
	if (rc >= 0 && *n)
		qsort(*v, *n, sizeof(**v), by_place);
	return rc;
}

/* Numbers recordings of each place in order of time, or runs: recordings of `all` places together.
 * A file's later segments have its number. */
static int number_recordings(const struct pl_align *a, struct span *v, size_t n, bool all,
			     struct pl_err *err)
{
	pl_ns *end = NULL; /* of files, by their first segment: the last of their segments */
	pl_ns until = 0;
	uint32_t number = 0;

	PL_CHECK(pl_alloc(&end, a->n_segs + 1, sizeof(*end), err));
	for (size_t i = 0; i < a->n_segs; i++)
		end[i] = INT64_MIN;
	for (size_t i = 0; i < n; i++) {
		pl_ns *e = &end[a->seg[a->sr[v[i].sr].seg].file];

		*e = pl_max_i64(*e, v[i].last);
	}
	for (size_t i = 0; i < n; i++) {
		bool first = !i || (!all && v[i].place != v[i - 1].place);
		pl_ns last = end[a->seg[a->sr[v[i].sr].seg].file];

		number = first ? 0 : number + (v[i].first > until);
		*(all ? &v[i].run : &v[i].recording) = number;
		until = first ? last : pl_max_i64(until, last);
	}
	pl_free(end);
	return 0;
}

/* "a.json and 3 others" */
static void describe(const struct pl_align *a, const struct span *v, size_t n, char *text,
		     size_t size)
{
	uint32_t file = a->seg[a->sr[v->sr].seg].file;
	size_t others = 0, at;

	for (size_t i = 1; i < n; i++) {
		uint32_t seg = a->sr[v[i].sr].seg;

		others += a->seg[seg].file == seg && seg != file;
	}
	at = (size_t)snprintf(text, size, "%.80s", pl_clock_source(a, file));
	if (others && at < size)
		snprintf(text + at, size - at, " and %zu other%s", others, others == 1 ? "" : "s");
}

/* Say or refuse that v[0..n), of one place, is of several recordings. */
static int say_several(const struct pl_align *a, const struct span *v, size_t n, struct pl_err *err)
{
	char first[128], second[128], later[24], text[400];
	size_t k = 0, m;
	pl_ns end = INT64_MIN;

	for (; k < n && v[k].recording == v[0].recording; k++)
		end = pl_max_i64(end, v[k].last);
	for (m = k; m < n && v[m].recording == v[k].recording;)
		m++;
	describe(a, v, k, first, sizeof(first));
	describe(a, v + k, m - k, second, sizeof(second));
	pl_fmt_ns(later, sizeof(later), pl_sub_sat(v[k].first, end));
	snprintf(text, sizeof(text), "%u recordings: %s; %s after its end: %s%s",
		 v[n - 1].recording + 1, first, later, second, m < n ? " ..." : "");
	if (a->o.duplicates != PL_DUP_KEEP)
		return pl_fail(err, PL_EDATA,
			       "these are %s: give the files of one, or choose "
			       "merge --duplicates=newest, first or keep; to compare them, put "
			       "each into a folder (type: replay A B)",
			       text);
	pl_say(a->o.log, PL_LOG_NOTE, "%s, used as one", text);
	return 0;
}

/* What stays. */
struct choice {
	struct pl_align *a;
	bool newest;
	struct pl_intern places, ranks;
	const struct span **wanted; /* by number in places: one of the recording that stays */
	uint32_t *file;		    /* by number in ranks */
	size_t cap_wanted, cap_files;
};

/* Is a place or a rank of v[0..n), a run, in another one that stays? */
static bool is_other_run(const struct choice *c, const struct span *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const int32_t *rank = &c->a->sr[v[i].sr].rank;

		if (pl_intern_find(&c->places, (const char *)&v[i].place, sizeof(v->place)) !=
			    PL_NONE ||
		    pl_intern_find(&c->ranks, (const char *)rank, sizeof(*rank)) != PL_NONE)
			return true;
	}
	return false;
}

/* Which recording of each place of the run stays. There are several if that of another place is so
 * long that it overlaps all of them. */
static int find_wanted(struct choice *c, const struct span *v, size_t n, struct pl_err *err)
{
	const struct pl_seg_rank *sr = c->a->sr;

	for (size_t i = 0; i < n; i++) {
		size_t before = c->places.n;
		pl_id id;

		PL_CHECK(pl_intern_add(&c->places, (const char *)&v[i].place, sizeof(v->place), &id,
				       err));
		PL_CHECK(pl_grow(&c->wanted, &c->cap_wanted, c->places.n, sizeof(*c->wanted), err));
		if (c->places.n > before || c->newest ||
		    sr[v[i].sr].seg < sr[c->wanted[id]->sr].seg)
			c->wanted[id] = &v[i];
	}
	return 0;
}

/* Of v[0..n), a run by time, leave out other recordings than those that stay, then ranks that are
 * present twice. */
static int keep_run(struct choice *c, const struct span *v, size_t n, struct pl_err *err)
{
	struct pl_align *a = c->a;

	PL_CHECK(find_wanted(c, v, n, err));
	for (size_t k = 0; k < n; k++) {
		const struct span *s = &v[c->newest ? n - 1 - k : k];
		const struct pl_seg_rank *r = &a->sr[s->sr];
		pl_id id = pl_intern_find(&c->places, (const char *)&s->place, sizeof(s->place));
		size_t before = c->ranks.n;

		if (s->recording != c->wanted[id]->recording) {
			a->seg[r->seg].dropped = true;
			continue;
		}
		PL_CHECK(pl_intern_add(&c->ranks, (const char *)&r->rank, sizeof(r->rank), &id,
				       err));
		PL_CHECK(pl_grow(&c->file, &c->cap_files, c->ranks.n, sizeof(*c->file), err));
		if (c->ranks.n > before)
			c->file[id] = a->seg[r->seg].file;
		else if (c->file[id] != a->seg[r->seg].file)
			a->seg[r->seg].dropped = true;
	}
	return 0;
}

struct run {
	uint32_t order; /* the wanted one has the least */
	size_t first, n;
};

PL_COMPARATOR(by_order, struct run, order);

/* Leave out segments of other runs than the requested one: that of the first input, or the last. */
static int drop_others(struct pl_align *a, struct span *v, size_t n, struct pl_err *err)
{
	struct choice c = { .a = a, .newest = a->o.duplicates == PL_DUP_NEWEST };
	struct run *run = NULL;
	size_t n_runs;
	int rc;

	pl_sort(v, n, sizeof(*v), by_time);
	PL_TRY(number_recordings(a, v, n, true, err));
	n_runs = n ? v[n - 1].run + 1 : 0;
	PL_TRY(pl_alloc(&run, n_runs + 1, sizeof(*run), err));
	for (size_t i = 0; i < n; i++) {
		struct run *r = &run[v[i].run];
		uint32_t seg = a->sr[v[i].sr].seg;

		if (!r->n++)
			*r = (struct run){ UINT32_MAX, i, 1 };
		r->order = c.newest ? UINT32_MAX - v[i].run : seg < r->order ? seg : r->order;
	}
	pl_sort(run, n_runs, sizeof(*run), by_order);
	for (size_t i = 0; i < n_runs; i++) {
		const struct span *s = v + run[i].first;

		if (!is_other_run(&c, s, run[i].n))
			PL_TRY(keep_run(&c, s, run[i].n, err));
		else
			for (size_t k = 0; k < run[i].n; k++)
				a->seg[a->sr[s[k].sr].seg].dropped = true;
	}
out:
	pl_intern_fini(&c.places);
	pl_intern_fini(&c.ranks);
	pl_free(c.wanted);
	pl_free(c.file);
	pl_free(run);
	return rc;
}

/* Events, ranks and listed groups of segments that are left out are forgotten. */
static int remove_dropped(struct pl_align *a, struct pl_err *err)
{
	uint32_t *to = NULL; /* places of a->sr */
	size_t n[4] = { 0 };
	int rc;

	PL_TRY(pl_alloc(&to, a->n_sr + 1, sizeof(*to), err));
	for (uint32_t i = 0; i < a->n_sr; i++) {
		to[i] = (uint32_t)n[0];
		if (!a->seg[a->sr[i].seg].dropped)
			a->sr[n[0]++] = a->sr[i];
	}
	for (size_t i = 0; i < a->n; i++) {
		a->ev[n[1]] = a->ev[i];
		a->ev[n[1]].clock = to[a->ev[i].clock];
		n[1] += !a->seg[a->ev[n[1]].seg].dropped;
	}
	for (size_t i = 0; i < a->n_msg; i++)
		if (!a->seg[a->msg[i].seg].dropped)
			a->msg[n[2]++] = a->msg[i];
	for (size_t i = 0; i < a->n_listed; i++)
		if (!a->seg[a->listed[i].seg].dropped)
			a->listed[n[3]++] = a->listed[i];
	a->n_sr = n[0];
	a->n = n[1];
	a->n_msg = n[2];
	a->n_listed = n[3];
	for (uint32_t i = 0, left = 0; i < a->n_segs; i++) {
		a->seg[i].number = left;
		left += !a->seg[i].dropped;
		if (!a->seg[i].dropped)
			continue;
		a->rep->dropped++;
		pl_say(a->o.log, PL_LOG_WARN, "segment %u (%s) is left out", i,
		       pl_clock_source(a, i));
	}
	pl_intern_reset(&a->rank_seen);
	rc = pl_clock_note_ranks(a, 0, err);
out:
	pl_free(to);
	return rc;
}

/* How many ranks the job has, if the segments that stay do not contradict each other. */
static void find_world(struct pl_align *a)
{
	for (size_t i = 0; i < a->n_segs; i++) {
		const struct pl_align_segment *s = &a->seg[i];

		if (s->world && !s->dropped)
			a->world = !a->world || a->world == s->world ? s->world : -1;
	}
}

int pl_clock_recordings(struct pl_align *a, struct pl_err *err)
{
	bool chosen = a->o.duplicates == PL_DUP_FIRST || a->o.duplicates == PL_DUP_NEWEST;
	struct span *v = NULL;
	size_t n, m;
	int rc;

	if (a->n_unranked && a->n_segs > 1) /* one process needs no rank */
		pl_say(a->o.log, PL_LOG_WARN,
		       "%zu segment%s (%s%s) of no known rank stay%s as recorded (trace "
		       "--rank-from "
		       "gives ranks)",
		       a->n_unranked, a->n_unranked == 1 ? "" : "s",
		       pl_clock_source(a, a->unranked), a->n_unranked == 1 ? "" : " ...",
		       a->n_unranked == 1 ? "s" : "");
	PL_TRY(find_spans(a, &v, &n, err));
	PL_TRY(number_recordings(a, v, n, false, err));
	for (size_t i = 0; i < n && !chosen; i = m) {
		for (m = i + 1; m < n && v[m].place == v[i].place;)
			m++;
		if (v[m - 1].recording)
			PL_TRY(say_several(a, v + i, m - i, err));
	}
	if (chosen) {
		PL_TRY(drop_others(a, v, n, err));
		PL_TRY(remove_dropped(a, err));
	}
	find_world(a);
out:
	pl_free(v);
	return rc;
}

/* ---- after the clocks were estimated --------------------------------------------------------- */

/* When something ran on the clocks that are (not) joined to the first. */
static void find_times(const struct pl_align *a, bool joined, pl_ns *first, pl_ns *last,
		       uint32_t *segment)
{
	*first = INT64_MAX;
	*last = INT64_MIN;
	*segment = PL_NONE;
	for (size_t i = 0; i < a->n_sr; i++) {
		const struct pl_seg_rank *r = &a->sr[i];

		if (r->rank < 0 || a->rep->clock[r->clock].offset_known != joined)
			continue;
		if (*segment == PL_NONE)
			*segment = r->seg;
		*first = pl_min_i64(*first, r->first);
		*last = pl_max_i64(*last, r->last);
	}
}

void pl_clock_say_joined(const struct pl_align *a)
{
	pl_ns first[2], last[2], gap;
	uint32_t seg[2];
	bool chosen = a->o.duplicates == PL_DUP_FIRST || a->o.duplicates == PL_DUP_NEWEST;
	char text[24];

	if (!a->rep->unconnected)
		return;
	for (int i = 0; i < 2; i++)
		find_times(a, !i, &first[i], &last[i], &seg[i]);
	gap = pl_max_i64(pl_sub_sat(first[1], last[0]), pl_sub_sat(first[0], last[1]));
	if (seg[0] != PL_NONE && seg[1] != PL_NONE && gap > 0)
		pl_say(a->o.log, PL_LOG_WARN,
		       "%.80s and %.80s may be of different recordings: no communication joins "
		       "them, and their times are %s apart; if so, give the files of one%s",
		       pl_clock_source(a, seg[0]), pl_clock_source(a, seg[1]),
		       pl_fmt_ns(text, sizeof(text), gap),
		       chosen ? "" : ", or choose --duplicates=newest or first");
	else
		pl_say(a->o.log, PL_LOG_WARN,
		       "no communication joins %u of %u clocks to the first: their offsets stay 0",
		       a->rep->unconnected, a->n_clocks);
}
