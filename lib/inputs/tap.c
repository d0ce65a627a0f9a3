/* Counting what flows by, and the checks of --check that concern several events. */
#include "core/progress.h"
#include "inputs/inputs.h"

void pl_inputs_progress_add(struct pl_inputs_progress *p, uint64_t events)
{
	p->events += events;
	pl_progress("%zu of %zu files, %.1f M events", p->files, p->n_files,
		    (double)p->events / 1e6);
}

/* ---- the tap --------------------------------------------------------------------------------- */

static int tap_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_inputs_tap *t = (struct pl_inputs_tap *)s;

	PL_CHECK(pl_grow(&t->seg_events, &t->cap_seg, (size_t)t->segments + 1,
			 sizeof(*t->seg_events), err));
	t->seg_events[t->segments++] = 0;
	return t->next && t->next->begin ? t->next->begin(t->next, seg, err) : 0;
}

/* The reader has already checked that tracks and names are defined. */
static int check_batch(const struct pl_batch *b, struct pl_err *err)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->dur[i] < -1)
			return pl_fail(err, PL_EDATA, "event %llu lasts %lld ns",
				       (unsigned long long)b->first + i, (long long)b->dur[i]);
	return 0;
}

static int tap_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		     struct pl_err *err)
{
	struct pl_inputs_tap *t = (struct pl_inputs_tap *)s;

	t->events += b->n;
	t->seg_events[t->segments - 1] += b->n;
	if (t->progress)
		pl_inputs_progress_add(t->progress, b->n);
	if (t->check)
		PL_CHECK(check_batch(b, err));
	if (t->next && t->next->batch)
		return t->next->batch(t->next, seg, b, err);
	return 0;
}

static int note_ranks(struct pl_inputs_tap *t, const struct pl_segment *seg, struct pl_err *err)
{
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		int32_t r = seg->track[i].rank;
		size_t old = t->cap_rank;

		if (r < 0 || r >= 1 << 24)
			continue;
		PL_CHECK(pl_grow(&t->rank, &t->cap_rank, (size_t)r + 1, 1, err));
		memset(t->rank + old, 0, t->cap_rank - old);
		t->ranks += !t->rank[r];
		t->rank[r] = 1;
	}
	return 0;
}

/* What a recorder says that it had no room for: the greatest number counts (paceline-trace(5)). */
static uint64_t lost_events(const struct pl_segment *seg)
{
	int64_t most = 0;

	for (uint32_t i = 0; i < seg->n_meta; i++) {
		const char *v = pl_intern_get(&seg->str, seg->meta[i].value);

		if (!strcmp(pl_intern_get(&seg->str, seg->meta[i].key), "lost_events"))
			most = pl_max_i64(most, pl_take_digits(&v));
	}
	return (uint64_t)most;
}

static int tap_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_inputs_tap *t = (struct pl_inputs_tap *)s;

	t->lost += lost_events(seg);
	PL_CHECK(note_ranks(t, seg, err));
	return t->next && t->next->end ? t->next->end(t->next, seg, err) : 0;
}

static int tap_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct pl_inputs_tap *t = (struct pl_inputs_tap *)s;

	t->merges++;
	t->base = t->segments;
	for (uint32_t i = 0; t->check && i < m->n_members; i++) {
		size_t seg = (size_t)t->base + m->member[i].segment;

		if (seg < t->base || m->member[i].segment >= 1u << 24)
			return pl_fail(err, PL_EDATA, "a match names segment %u",
				       m->member[i].segment);
		PL_CHECK(pl_grow(&t->last, &t->cap_last, seg + 1, sizeof(*t->last), err));
		for (; t->n_last <= seg; t->n_last++)
			t->last[t->n_last] = (struct pl_member){ PL_NONE, 0 };
		if (t->last[seg].segment == PL_NONE || t->last[seg].event < m->member[i].event)
			t->last[seg] = (struct pl_member){ 0, m->member[i].event };
	}
	return t->next && t->next->merge ? t->next->merge(t->next, m, err) : 0;
}

void pl_inputs_tap_init(struct pl_inputs_tap *t, struct pl_sink *next, struct pl_inputs_progress *p)
{
	memset(t, 0, sizeof(*t));
	t->sink = (struct pl_sink){ tap_begin, tap_batch, tap_end, tap_merge };
	t->next = next;
	t->progress = p;
}

void pl_inputs_tap_fini(struct pl_inputs_tap *t)
{
	pl_free(t->seg_events);
	pl_free(t->last);
	pl_free(t->rank);
}

int pl_inputs_tap_check(const struct pl_inputs_tap *t, struct pl_err *err)
{
	for (size_t i = 0; i < t->n_last; i++) {
		if (t->last[i].segment == PL_NONE)
			continue;
		if (i >= t->segments)
			return pl_fail(err, PL_EDATA, "a match names segment %zu of %u", i,
				       t->segments);
		if (t->last[i].event >= t->seg_events[i])
			return pl_fail(err, PL_EDATA,
				       "a match names event %u of %llu in segment %zu",
				       t->last[i].event, (unsigned long long)t->seg_events[i], i);
	}
	return 0;
}
