/*
 * Choosing events. Tables decide kinds and names at once. Ranks and steps are decided at the end of
 * a segment, when its tracks, steps and launches are known. A time window is decided at the end of
 * the stream, when the first event is known. Events that pass are copied into a new segment with
 * only the strings and tracks that they use, so a small part of a large trace is small.
 *
 * The matches of a merged stream come before the events and name them by number. So events that
 * pass wait for the end of the stream; then matches get new numbers (filter_merge.c).
 */
#include "trace/filter.h"
#include "core/spans.h"
#include "trace/internal.h"

/* The destination of rows: a sink, or (next NULL) a hold. */
struct dest {
	struct pl_segment seg;
	struct pl_sink *next;
	struct pl_hold hold;
	struct pl_batch b;
	pl_id *str, *track; /* [number in the source]: new number, PL_NONE */
	size_t n_str, cap_str, n_track, cap_track;
	uint32_t n_meta; /* number of metadata members that were copied */
	bool ready, begun;
};

/* The numbers of events in the source. Those above 32 bits, which matches lack, are one number. */
struct numbers {
	uint32_t *v;
	size_t n, cap;
};

struct kept { /* a segment that waits for the end of the stream */
	struct dest d;
	struct pl_merge_context merge; /* present: it came before the segment */
	struct numbers from;	       /* of the events in d.hold */
};

struct filter {
	struct pl_sink sink; /* first */
	const struct pl_filter *f;
	struct pl_sink *next;
	struct pl_merge_context merge; /* clocks of the current segments */
	bool new_merge;		       /* not passed on yet */
	uint8_t kind[256];	       /* passes */
	uint8_t *name;		       /* [string]: 0 not determined, 1 does not pass, 2 passes */
	size_t n_name, cap_name;
	uint8_t *mask;
	struct dest d;
	struct pl_hold hold;	   /* the events of the segment whose kind and name pass */
	struct numbers held, from; /* of the events in hold, and in d when it waits */
	struct pl_row_values rows;
	struct pl_trace_steps steps;
	struct kept **kept;
	size_t n_kept, cap_kept;
	pl_ns *first; /* [track]: first time */
	size_t n_first, cap_first;
	pl_ns t_min;				/* start of the first event of the stream */
	struct pl_spans ranks_seen, steps_seen; /* of the input, if some were asked for */
};

/* ---- copying rows ---------------------------------------------------------------------------- */

static int map_str(struct dest *d, const struct pl_segment *s, pl_id id, pl_id *to,
		   struct pl_err *err)
{
	*to = PL_NONE;
	if (id >= s->str.n)
		return 0;
	if (id >= d->n_str) {
		PL_CHECK(pl_grow(&d->str, &d->cap_str, s->str.n, sizeof(*d->str), err));
		memset(d->str + d->n_str, 0xff, (s->str.n - d->n_str) * sizeof(*d->str));
		d->n_str = s->str.n;
	}
	if (d->str[id] == PL_NONE)
		PL_CHECK(pl_intern_add(&d->seg.str, s->str.str[id], s->str.len[id], &d->str[id],
				       err));
	*to = d->str[id];
	return 0;
}

static int copy_track(struct dest *d, const struct pl_segment *s, const struct pl_track *k,
		      struct pl_track *to, struct pl_err *err)
{
	*to = *k;
	PL_CHECK(map_str(d, s, k->host, &to->host, err));
	PL_CHECK(map_str(d, s, k->pid, &to->pid, err));
	PL_CHECK(map_str(d, s, k->tid, &to->tid, err));
	PL_CHECK(map_str(d, s, k->name, &to->name, err));
	PL_CHECK(map_str(d, s, k->process, &to->process, err));
	return map_str(d, s, k->labels, &to->labels, err);
}

static int map_track(struct dest *d, const struct pl_segment *s, pl_id id, pl_id *to,
		     struct pl_err *err)
{
	struct pl_track k;

	*to = PL_NONE;
	if (id >= s->n_tracks)
		return 0;
	if (id >= d->n_track) {
		PL_CHECK(pl_grow(&d->track, &d->cap_track, s->n_tracks, sizeof(*d->track), err));
		memset(d->track + d->n_track, 0xff, (s->n_tracks - d->n_track) * sizeof(*d->track));
		d->n_track = s->n_tracks;
	}
	if (d->track[id] == PL_NONE) {
		PL_CHECK(copy_track(d, s, &s->track[id], &k, err));
		PL_CHECK(pl_trace_segment_track(&d->seg, &k, &d->track[id], err));
	}
	*to = d->track[id];
	return 0;
}

static int copy_text(char **to, const char *from, struct pl_err *err)
{
	pl_free(*to);
	*to = pl_strdup(from ? from : "");
	return *to ? 0 : pl_fail(err, PL_ENOMEM, "out of memory");
}

/* Copy again the parts of the segment that may have changed. */
static int sync_segment(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	d->seg.base_ns = s->base_ns;
	d->seg.part = s->part;
	PL_CHECK(copy_text(&d->seg.source, s->source, err));
	PL_CHECK(copy_text(&d->seg.format, s->format, err));
	d->seg.provenance.n = 0;
	PL_CHECK(pl_buf_put(&d->seg.provenance, s->provenance.p, s->provenance.n, err));
	for (; d->n_meta < s->n_meta; d->n_meta++) {
		size_t nk, nv;
		const char *k = pl_trace_segment_str(s, s->meta[d->n_meta].key, &nk);
		const char *v = pl_trace_segment_str(s, s->meta[d->n_meta].value, &nv);

		PL_CHECK(pl_trace_segment_meta(&d->seg, k, nk, v, nv, err));
	}
	for (size_t i = 0; i < d->n_track; i++)
		if (d->track[i] != PL_NONE)
			PL_CHECK(copy_track(d, s, &s->track[i], &d->seg.track[d->track[i]], err));
	return 0;
}

static int dest_init(struct dest *d, struct pl_sink *next, uint32_t index, struct pl_err *err)
{
	memset(d, 0, sizeof(*d));
	d->next = next;
	PL_CHECK(pl_trace_segment_init(&d->seg, err));
	d->ready = true;
	d->seg.index = index;
	return pl_trace_batch_init(&d->b, err);
}

static void dest_fini(struct dest *d)
{
	if (!d->ready)
		return;
	pl_trace_segment_fini(&d->seg);
	pl_trace_batch_fini(&d->b);
	pl_trace_hold_fini(&d->hold);
	pl_free(d->str);
	pl_free(d->track);
	memset(d, 0, sizeof(*d));
}

/* The destination is complete: free the memory that only more rows would need. */
static void dest_rest(struct dest *d)
{
	pl_trace_batch_fini(&d->b);
	memset(&d->b, 0, sizeof(d->b));
	pl_free(d->str);
	pl_free(d->track);
	d->str = d->track = NULL;
	d->n_str = d->cap_str = d->n_track = d->cap_track = 0;
}

static int dest_begin(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	if (d->begun)
		return 0;
	d->begun = true;
	PL_CHECK(sync_segment(d, s, err));
	return d->next && d->next->begin ? d->next->begin(d->next, &d->seg, err) : 0;
}

static int copy_col(struct dest *d, const struct pl_segment *s, const struct pl_col *c,
		    const uint32_t *to, struct pl_err *err)
{
	bool text = c->type == PL_V_STR || c->type == PL_V_JSON;
	uint32_t at = PL_NONE;
	pl_id key, id;

	for (uint32_t k = 0; k < c->n; k++) {
		int64_t v = c->val[k];

		if (to[c->row[k]] == PL_NONE)
			continue;
		if (at == PL_NONE) {
			PL_CHECK(map_str(d, s, c->key, &key, err));
			PL_CHECK(pl_trace_batch_col(&d->b, c->role, c->type, key, &at, err));
		}
		if (text) {
			PL_CHECK(map_str(d, s, (pl_id)v, &id, err));
			v = id;
		}
		PL_CHECK(pl_trace_col_put(&d->b.col[at], to[c->row[k]], v,
					  c->scale ? c->scale[k] : 0, err));
	}
	return 0;
}

/* Copy the rows of b for which mask[row] is set. to: scratch of b->n. */
static int dest_rows(struct dest *d, const struct pl_segment *s, const struct pl_batch *b,
		     const uint8_t *mask, struct pl_err *err)
{
	struct pl_batch *o = &d->b;
	uint32_t *to = NULL;
	int rc;

	PL_TRY(pl_alloc(&to, (size_t)b->n + 1, sizeof(*to), err));
	pl_trace_batch_clear(o);
	for (uint32_t i = 0; i < b->n; i++) {
		to[i] = mask[i] ? o->n : PL_NONE;
		if (!mask[i])
			continue;
		o->kind[o->n] = b->kind[i];
		o->ts[o->n] = b->ts[i];
		o->dur[o->n] = b->dur[i];
		PL_TRY(map_track(d, s, b->track[i], &o->track[o->n], err));
		PL_TRY(map_str(d, s, b->name[i], &o->name[o->n], err));
		o->n++;
	}
	if (!o->n)
		goto out;
	PL_TRY(dest_begin(d, s, err));
	for (uint32_t c = 0; c < b->n_cols; c++)
		PL_TRY(copy_col(d, s, &b->col[c], to, err));
	o->first = d->seg.n_events;
	if (!d->next)
		rc = pl_trace_hold_add(&d->hold, o, NULL, err);
	else if (d->next->batch)
		rc = d->next->batch(d->next, &d->seg, o, err);
	d->seg.n_events += o->n;
out:
	pl_free(to);
	return rc;
}

static int dest_end(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	if (!d->begun)
		return 0;
	PL_CHECK(sync_segment(d, s, err));
	return d->next && d->next->end ? d->next->end(d->next, &d->seg, err) : 0;
}

/* ---- kind and name --------------------------------------------------------------------------- */

static void decide_kinds(struct filter *x)
{
	const char *g = x->f->kind;

	for (unsigned k = 0; k < 256; k++)
		x->kind[k] = !g || pl_glob(g, pl_trace_kind_name(k)) ||
			     (pl_trace_kind_is_comm(k) && pl_glob(g, "comm")) ||
			     ((k == PL_K_KERNEL || k == PL_K_HOST_OP) && pl_glob(g, "compute"));
}

static int name_passes(struct filter *x, const struct pl_segment *s, pl_id id, bool *yes,
		       struct pl_err *err)
{
	*yes = true;
	if (!x->f->name)
		return 0;
	if (id >= s->str.n) {
		*yes = pl_glob(x->f->name, "");
		return 0;
	}
	if (id >= x->n_name) {
		PL_CHECK(pl_grow(&x->name, &x->cap_name, s->str.n, 1, err));
		memset(x->name + x->n_name, 0, s->str.n - x->n_name);
		x->n_name = s->str.n;
	}
	if (!x->name[id])
		x->name[id] = pl_glob(x->f->name, s->str.str[id]) ? 2 : 1;
	*yes = x->name[id] == 2;
	return 0;
}

/* ---- rank and step --------------------------------------------------------------------------- */

/* Is v in one of n pairs? If there are no pairs: yes. INT64_MIN is in none. */
static bool wanted(const int64_t *pair, uint32_t n, int64_t v)
{
	for (uint32_t i = 0; i < n; i++)
		if (v != INT64_MIN && v >= pair[2 * i] && v <= pair[2 * i + 1])
			return true;
	return !n;
}

static int note_seen(struct pl_spans *s, int64_t v, struct pl_err *err)
{
	if (v == INT64_MIN || (s->n && v == s->v[s->n - 1].start))
		return 0;
	return pl_spans_add_number(s, v, err);
}

/* PL_EDATA if the input has numbers, but none of the chosen ones. */
static int check_seen(struct pl_spans *s, const int64_t *pair, uint32_t n, const char *what,
		      const struct pl_log *log, struct pl_err *err)
{
	bool any = !n;
	char text[96];

	pl_spans_unite(s);
	if (n && !s->n)
		pl_say(log, PL_LOG_WARN, "the trace has no %ss, so no event was selected", what);
	for (uint32_t i = 0; i < n && !any; i++)
		any = pl_spans_cover(s, 0, pair[2 * i], pl_add_sat(pair[2 * i + 1], 1)) > 0;
	if (any || !s->n)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "no event has one of the selected %ss; the trace has the %ss %s", what, what,
		       pl_spans_text(s, text, sizeof(text)));
}

/* ---- what waited ----------------------------------------------------------------------------- */

static void drop_kept(struct filter *x, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		struct kept *k = x->kept[i];

		if (!k)
			continue;
		dest_fini(&k->d);
		pl_trace_merge_context_fini(&k->merge);
		pl_free(k->from.v);
		pl_free(k);
		x->kept[i] = NULL;
	}
}

/* Mask the rows of the j-th held batch in the time window. rel: number of the segment in m. */
static void mask_time(struct filter *x, const struct kept *k, size_t j, const struct pl_merge *m,
		      uint32_t rel)
{
	pl_ns t0 = pl_add_sat(x->t_min, x->f->t0), t1 = pl_add_sat(x->t_min, x->f->t1);
	const struct pl_batch *b = &k->d.hold.b[j];

	if (!x->f->has_time) {
		memset(x->mask, 1, b->n);
		return;
	}
	for (uint32_t i = 0; i < b->n; i++) {
		int32_t rank =
			b->track[i] < k->d.seg.n_tracks ? k->d.seg.track[b->track[i]].rank : -1;
		pl_ns t = pl_trace_clock_apply(m ? pl_trace_merge_clock(m, rel, rank) : NULL,
					       pl_add_sat(b->ts[i], k->d.seg.base_ns));

		x->mask[i] = t <= t1 && pl_add_sat(t, b->dur[i] > 0 ? b->dur[i] : 0) >= t0;
	}
}

static int finish_segment(struct filter *x, const struct kept *k, const struct pl_merge *m,
			  uint32_t rel, struct pl_err *err)
{
	struct dest d;
	int rc;

	PL_TRY(dest_init(&d, x->next, k->d.seg.index, err));
	for (size_t j = 0; j < k->d.hold.n; j++) {
		mask_time(x, k, j, m, rel);
		PL_TRY(dest_rows(&d, &k->d.seg, &k->d.hold.b[j], x->mask, err));
	}
	rc = dest_end(&d, &k->d.seg, err);
out:
	dest_fini(&d);
	return rc;
}

/* Pass on the merge table of n segments from `first`, reduced to the events that pass. */
static int pass_merge(struct filter *x, size_t first, size_t n, struct pl_err *err)
{
	const struct pl_merge *m = &x->kept[first]->merge.m;
	struct pl_passed *passed = NULL;
	struct pl_merge left = { 0 };
	int rc;

	PL_TRY(pl_alloc(&passed, n, sizeof(*passed), err));
	PL_TRY(pl_trace_merge_dup(m, &left, err));
	for (size_t i = 0; i < n; i++) {
		struct kept *k = x->kept[first + i];
		const uint32_t *old = k->from.v;

		k->from.n = 0; /* the numbers that pass move to the front */
		for (size_t j = 0; j < k->d.hold.n; old += k->d.hold.b[j++].n) {
			mask_time(x, k, j, m, (uint32_t)i);
			for (uint32_t e = 0; e < k->d.hold.b[j].n; e++)
				if (x->mask[e])
					k->from.v[k->from.n++] = old[e];
		}
		passed[i] = (struct pl_passed){ k->from.v, k->from.n };
	}
	PL_TRY(pl_trace_merge_passed(&left, passed, (uint32_t)n, err));
	if (x->next->merge)
		rc = x->next->merge(x->next, &left, err);
out:
	pl_trace_merge_fini(&left);
	pl_free(passed);
	return rc;
}

/* Pass on all waiting segments, each merge table before the segments that it describes. */
static int pass_kept(struct filter *x, struct pl_err *err)
{
	for (size_t i = 0, n; i < x->n_kept; i += n) {
		bool merged = x->kept[i]->merge.present;
		const struct pl_merge *m = merged ? &x->kept[i]->merge.m : NULL;

		for (n = 1; i + n < x->n_kept && !x->kept[i + n]->merge.present; n++)
			;
		if (merged)
			PL_CHECK(pass_merge(x, i, n, err));
		for (size_t j = 0; j < n; j++)
			PL_CHECK(finish_segment(x, x->kept[i + j], m, (uint32_t)j, err));
		drop_kept(x, i, i + n);
	}
	x->n_kept = 0;
	return 0;
}

/* ---- the sink -------------------------------------------------------------------------------- */

static bool holds(const struct filter *x)
{
	return x->f->n_ranks || x->f->n_steps || x->f->has_time;
}

/* Must events that pass wait for the end of the stream? */
static bool waits(const struct filter *x)
{
	return x->f->has_time || x->merge.present;
}

/* Note the numbers of the rows of b in the mask: old[row]; old NULL: their numbers in b. */
static int note_numbers(struct numbers *to, const struct pl_batch *b, const uint8_t *mask,
			const uint32_t *old, struct pl_err *err)
{
	int rc = pl_grow(&to->v, &to->cap, to->n + b->n, sizeof(*to->v), err);

	for (uint32_t i = 0; rc >= 0 && i < b->n; i++)
		if (mask[i])
			to->v[to->n++] =
				old ? old[i]
				    : (uint32_t)(b->first + i < PL_NONE ? b->first + i : PL_NONE);
	return rc;
}

static int on_merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;

	if (!x->f->has_time)
		PL_CHECK(pass_kept(x, err));
	PL_CHECK(pl_trace_merge_context_take(&x->merge, m, err));
	x->new_merge = true;
	return 0;
}

static int on_begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;

	pl_trace_merge_context_begin(&x->merge);
	x->n_name = x->n_first = x->held.n = x->from.n = 0;
	x->steps.n = x->steps.n_launches = 0;
	pl_trace_hold_reset(&x->hold);
	dest_fini(&x->d);
	return dest_init(&x->d, waits(x) ? NULL : x->next, seg->index, err);
}

/* Keep the first time of each track, because its base and clock may be known only at the end. */
static int note_first(struct filter *x, const struct pl_segment *seg, const struct pl_batch *b,
		      struct pl_err *err)
{
	PL_CHECK(pl_grow(&x->first, &x->cap_first, seg->n_tracks, sizeof(*x->first), err));
	for (; x->n_first < seg->n_tracks; x->n_first++)
		x->first[x->n_first] = INT64_MAX;
	for (uint32_t i = 0; i < b->n; i++)
		if (b->track[i] < x->n_first)
			x->first[b->track[i]] = pl_min_i64(x->first[b->track[i]], b->ts[i]);
	return 0;
}

static int on_batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;
	bool yes;

	for (uint32_t i = 0; i < b->n; i++) {
		yes = x->kind[b->kind[i]];
		if (yes)
			PL_CHECK(name_passes(x, seg, b->name[i], &yes, err));
		x->mask[i] = yes;
	}
	if (x->merge.present)
		PL_CHECK(note_numbers(holds(x) ? &x->held : &x->from, b, x->mask, NULL, err));
	if (!holds(x)) {
		return dest_rows(&x->d, seg, b, x->mask, err);
	}
	if (x->f->n_steps)
		PL_CHECK(pl_trace_steps_note(&x->steps, b, err));
	if (x->f->has_time)
		PL_CHECK(note_first(x, seg, b, err));
	return pl_trace_hold_add(&x->hold, b, x->mask, err);
}

/* Check rank and step of the held rows, and copy those that pass to the destination. */
static int pass_held(struct filter *x, const struct pl_segment *seg, struct pl_err *err)
{
	const uint32_t *old = x->held.v;
	int rc = 0;

	pl_trace_steps_sort(&x->steps, seg);
	for (size_t j = 0; j < x->hold.n; j++) {
		const struct pl_batch *b = &x->hold.b[j];

		PL_TRY(pl_trace_row_values_build(&x->rows, b, err));
		for (uint32_t i = 0; i < b->n; i++) {
			int32_t rank =
				b->track[i] < seg->n_tracks ? seg->track[b->track[i]].rank : -1;
			int64_t step = x->f->n_steps
					       ? pl_trace_steps_of(&x->steps, seg, b, &x->rows, i)
					       : INT64_MIN;

			PL_TRY(note_seen(&x->steps_seen, step, err));
			x->mask[i] = wanted(x->f->rank, x->f->n_ranks, rank) &&
				     wanted(x->f->step, x->f->n_steps, step);
		}
		if (x->merge.present) {
			PL_TRY(note_numbers(&x->from, b, x->mask, old, err));
			old += b->n;
		}
		PL_TRY(dest_rows(&x->d, seg, b, x->mask, err));
	}
out:
	pl_trace_hold_reset(&x->hold);
	return rc;
}

/* Keep the destination until the end of the stream. */
static int keep(struct filter *x, struct pl_err *err)
{
	struct kept *k;

	PL_CHECK(pl_grow(&x->kept, &x->cap_kept, x->n_kept + 1, sizeof(struct kept *), err));
	PL_CHECK(pl_alloc(&k, 1, sizeof(*k), err));
	x->kept[x->n_kept++] = k;
	k->d = x->d;
	k->from = x->from;
	memset(&x->d, 0, sizeof(x->d));
	memset(&x->from, 0, sizeof(x->from));
	dest_rest(&k->d);
	if (x->new_merge)
		PL_CHECK(pl_trace_merge_context_take(&k->merge, &x->merge.m, err));
	x->new_merge = false;
	return 0;
}

static int on_end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;

	for (size_t i = 0; i < x->n_first; i++)
		if (x->first[i] != INT64_MAX)
			x->t_min = pl_min_i64(
				x->t_min,
				pl_trace_clock_apply(
					pl_trace_merge_context_clock(&x->merge, seg->track[i].rank),
					pl_add_sat(x->first[i], seg->base_ns)));
	for (size_t i = 0; i < seg->n_tracks; i++)
		if (x->f->n_ranks && seg->track[i].rank >= 0)
			PL_CHECK(note_seen(&x->ranks_seen, seg->track[i].rank, err));
	if (holds(x))
		PL_CHECK(pass_held(x, seg, err));
	PL_CHECK(dest_end(&x->d, seg, err));
	return waits(x) ? keep(x, err) : 0;
}

struct pl_sink *pl_trace_filter_open(const struct pl_filter *f, struct pl_sink *next,
				     struct pl_err *err)
{
	struct filter *x;

	if (pl_alloc(&x, 1, sizeof(*x), err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ on_begin, on_batch, on_end, on_merge };
	x->f = f;
	x->next = next;
	x->t_min = INT64_MAX;
	decide_kinds(x);
	if (pl_alloc(&x->mask, PL_BATCH_ROWS, 1, err) < 0) {
		pl_free(x);
		return NULL;
	}
	return &x->sink;
}

int pl_trace_filter_finish(struct pl_sink *s, struct pl_err *err)
{
	return pass_kept((struct filter *)s, err);
}

int pl_trace_filter_check(struct pl_sink *s, const struct pl_log *log, struct pl_err *err)
{
	struct filter *x = (struct filter *)s;

	PL_CHECK(check_seen(&x->ranks_seen, x->f->rank, x->f->n_ranks, "rank", log, err));
	return check_seen(&x->steps_seen, x->f->step, x->f->n_steps, "step", log, err);
}

void pl_trace_filter_close(struct pl_sink *s)
{
	struct filter *x = (struct filter *)s;

	if (!x)
		return;
	drop_kept(x, 0, x->n_kept);
	pl_free(x->kept);
	pl_free(x->held.v);
	pl_free(x->from.v);
	dest_fini(&x->d);
	pl_trace_merge_context_fini(&x->merge);
	pl_trace_hold_fini(&x->hold);
	pl_trace_row_values_fini(&x->rows);
	pl_free(x->name);
	pl_free(x->mask);
	pl_trace_steps_fini(&x->steps);
	pl_spans_fini(&x->ranks_seen);
	pl_spans_fini(&x->steps_seen);
	pl_free(x->first);
	pl_free(x);
}
