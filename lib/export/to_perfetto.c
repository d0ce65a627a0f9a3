/*
 * Perfetto's native trace: TrackEvent packets (perfetto/trace/track_event/ *.proto); names,
 * categories and argument texts are interned. Each stream or thread is a track of its process. The
 * slices of a track must nest, so events that overlap go onto subtracks. Arrows lead from a launch
 * to the first operation of its correlation, along the flow events of the source, and through the
 * members of each matched communication. Times have the clock corrections of a merged stream.
 *
 * For each segment: sort its events by track and time, O(n log n); walk every track once to find
 * subtracks and the slices of flow events, and once more to write. Sources round times (a child
 * ends 1 us after its parent): on host threads, up to TOLERANCE is ignored.
 */
#include "export/perfetto.h"

#define FLUSH	  ((size_t)256 << 10)
#define TOLERANCE 1000			     /* ns */
#define ROOM	  ((pl_ns)3600 * 1000000000) /* for segments of a merged stream that begin earlier */

/* ---- collecting ------------------------------------------------------------------------------ */

enum { C_SLICE, C_INSTANT, C_FLOW };

static int by_place(const void *pa, const void *pb)
{
	const struct perfetto_item *a = pa, *b = pb;
	int c = PL_COMPARE_FIELDS(a, b, track, ts);

	if (!c)
		c = PL_COMPARE(b->end, a->end);
	return c ? c : PL_COMPARE_FIELDS(a, b, class, g);
}

static int by_corr(const void *pa, const void *pb)
{
	const struct perfetto_corr *a = pa, *b = pb;

	return PL_COMPARE_FIELDS(a, b, corr, device, ts, g);
}

static int bind(struct perfetto_seg *s, uint32_t g, uint64_t id, bool last, bool match,
		struct pl_err *err)
{
	PL_CHECK(pl_grow(&s->bind, &s->cap_bind, s->n_bind + 1, sizeof(*s->bind), err));
	s->bind[s->n_bind] = (struct perfetto_bind){ id, s->head[g], last, match };
	s->head[g] = (uint32_t)s->n_bind++;
	return 0;
}

static uint64_t flow_hash(uint64_t kind, uint64_t segment, uint64_t id)
{
	const uint64_t v[3] = { kind, segment, id };

	return pl_hash(v, sizeof(v)) | 1;
}

/* Classify the events of one batch; note correlations and matches. */
static int collect_batch(struct perfetto *p, struct perfetto_seg *s, uint32_t bi,
			 struct pl_err *err)
{
	const struct pl_batch *b = &p->x.hold.b[bi];

	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t g = s->first[bi] + i, match = PL_NONE;
		struct perfetto_item *it = &s->item[s->n_items];
		pl_ns start;

		s->where[g] = (struct perfetto_where){ bi, i };
		if (b->track[i] >= s->seg->n_tracks)
			continue;
		start = pl_export_start(&p->x, s->seg, b, i);
		s->earliest = pl_min_i64(s->earliest, start);
		if (b->kind[i] == PL_K_COUNTER)
			continue;
		it->track = b->track[i];
		it->g = g;
		it->ts = start;
		it->end = pl_add_sat(it->ts, b->dur[i] > 0 ? b->dur[i] : 0);
		it->class = b->kind[i] == PL_K_FLOW_OUT || b->kind[i] == PL_K_FLOW_IN ? C_FLOW
			    : b->dur[i] < 0					      ? C_INSTANT
										      : C_SLICE;
		s->n_items++;
		if (pl_trace_kind_is_comm(b->kind[i]))
			match = pl_export_match(&p->x, b->first + i);
		if (match != PL_NONE && p->x.merge.m.match[match].n > 1)
			PL_CHECK(bind(s, g, flow_hash(1, p->merge_no, match), false, true, err));
	}
	for (uint32_t c = 0; c < b->n_cols; c++) {
		const struct pl_col *col = &b->col[c];

		if (col->role != PL_R_CORR || col->type != PL_V_INT)
			continue;
		PL_CHECK(
			pl_grow(&s->corr, &s->cap_corr, s->n_corr + col->n, sizeof(*s->corr), err));
		for (uint32_t j = 0; j < col->n; j++) {
			uint32_t i = col->row[j];
			bool device = b->track[i] < s->seg->n_tracks &&
				      s->seg->track[b->track[i]].type == PL_T_STREAM;

			if (col->val[j] <= 0 || b->dur[i] < 0 ||
			    (!device && b->kind[i] != PL_K_RUNTIME))
				continue;
			s->corr[s->n_corr++] = (struct perfetto_corr){ col->val[j], b->ts[i],
								       s->first[bi] + i, device };
		}
	}
	return 0;
}

/* Add one arrow for each correlation: from its call to the first operation that it launched. */
static int bind_launches(struct perfetto_seg *s, uint32_t segment, struct pl_err *err)
{
	pl_sort(s->corr, s->n_corr, sizeof(*s->corr), by_corr);
	for (size_t i = 0, j; i < s->n_corr; i = j) {
		size_t d = i;

		for (j = i; j < s->n_corr && s->corr[j].corr == s->corr[i].corr; j++)
			d += !s->corr[j].device;
		if (d == i || d == j)
			continue;
		uint64_t id = flow_hash(2, segment, (uint64_t)s->corr[i].corr);

		PL_CHECK(bind(s, s->corr[i].g, id, false, false, err));
		PL_CHECK(bind(s, s->corr[d].g, id, true, false, err));
	}
	return 0;
}

static int collect(struct perfetto *p, struct perfetto_seg *s, struct pl_err *err)
{
	struct pl_hold *h = &p->x.hold;
	size_t n = 0;

	PL_CHECK(pl_alloc(&s->rows, h->n + 1, sizeof(*s->rows), err));
	PL_CHECK(pl_alloc(&s->first, h->n + 1, sizeof(*s->first), err));
	for (size_t i = 0; i < h->n; i++) {
		s->first[i] = (uint32_t)n;
		n += h->b[i].n;
		if (n >= PL_NONE)
			return pl_fail(err, PL_ELIMIT, "more than %u events in a segment", PL_NONE);
		s->n_rows = i + 1;
		PL_CHECK(pl_trace_row_values_build(&s->rows[i], &h->b[i], err));
	}
	PL_CHECK(pl_alloc(&s->item, n + 1, sizeof(*s->item), err));
	PL_CHECK(pl_alloc(&s->where, n + 1, sizeof(*s->where), err));
	PL_CHECK(pl_alloc(&s->head, n + 1, sizeof(*s->head), err));
	memset(s->head, 0xff, (n + 1) * sizeof(*s->head));
	for (size_t i = 0; i < h->n; i++)
		PL_CHECK(collect_batch(p, s, (uint32_t)i, err));
	pl_sort(s->item, s->n_items, sizeof(*s->item), by_place);
	return bind_launches(s, p->x.merge.n_segs, err);
}

/* ---- subtracks ------------------------------------------------------------------------------- */

static void close_top(struct perfetto *p, struct perfetto_subtrack *l, pl_ns at, bool write)
{
	l->n--;
	if (write)
		pl_export_perfetto_end(p, l->uuid, pl_min_i64(l->open[l->n].end, at));
}

/* Can the slice go onto this subtrack? Closes the slices that end before it. */
static bool fits(struct perfetto *p, struct perfetto_subtrack *l, struct perfetto_item *it,
		 pl_ns tolerance, bool write)
{
	while (l->n && l->open[l->n - 1].end <= it->ts)
		close_top(p, l, INT64_MAX, write);
	while (l->n && it->end > l->open[l->n - 1].end) {
		pl_ns top = l->open[l->n - 1].end;

		if (pl_sub_sat(it->end, top) <= tolerance && top > it->ts) {
			it->end = top;
			break;
		}
		if (pl_sub_sat(top, it->ts) > tolerance)
			return false;
		close_top(p, l, it->ts, write);
	}
	return true;
}

static int new_subtrack(struct perfetto_seg *s, struct pl_err *err)
{
	PL_CHECK(pl_grow(&s->subtrack, &s->cap_subtrack, s->n_subtracks + 1, sizeof(*s->subtrack),
			 err));
	if (s->n_subtracks >= s->made_subtracks) {
		memset(&s->subtrack[s->n_subtracks], 0, sizeof(*s->subtrack));
		s->made_subtracks = s->n_subtracks + 1;
	}
	s->subtrack[s->n_subtracks].n = 0;
	s->subtrack[s->n_subtracks].uuid = 0;
	s->n_subtracks++;
	return 0;
}

/* The latest slice that is open at the item's time, or PL_NONE. */
static uint32_t slice_at(const struct perfetto_seg *s, const struct perfetto_item *it)
{
	uint32_t best = PL_NONE;
	pl_ns began = INT64_MIN;

	for (size_t i = 0; i < s->n_subtracks; i++) {
		const struct perfetto_subtrack *l = &s->subtrack[i];

		for (size_t j = l->n; j-- > 0;) {
			if (l->open[j].end < it->ts)
				continue;
			if (best == PL_NONE || l->open[j].ts > began) {
				best = l->open[j].g;
				began = l->open[j].ts;
			}
			break;
		}
	}
	return best;
}

static bool same_corr(const struct perfetto *p, const struct perfetto_seg *s, uint32_t g,
		      int64_t id)
{
	const struct perfetto_where w = s->where[g];
	const struct pl_batch *b = &p->x.hold.b[w.batch];
	const struct pl_row_values *r = &s->rows[w.batch];

	for (uint32_t e = r->off[w.row]; e < r->off[w.row + 1]; e++) {
		const struct pl_col *c = &b->col[r->ent[e].col];

		if (c->role == PL_R_CORR && c->type == PL_V_INT && c->val[r->ent[e].k] == id)
			return true;
	}
	return false;
}

/* Bind a flow event to the slice around it, unless a launch arrow connects the same events. */
static int bind_flow(struct perfetto *p, struct perfetto_seg *s, const struct perfetto_item *it,
		     struct pl_err *err)
{
	const struct perfetto_where w = s->where[it->g];
	const struct pl_batch *b = &p->x.hold.b[w.batch];
	const struct pl_row_values *r = &s->rows[w.batch];
	uint32_t slice = slice_at(s, it);
	uint64_t cat = PL_NONE, id = 0;
	bool middle = false, any = false;

	for (uint32_t e = r->off[w.row]; e < r->off[w.row + 1]; e++) {
		const struct pl_col *c = &b->col[r->ent[e].col];
		int64_t v = c->val[r->ent[e].k];

		if (c->role == PL_R_CAT) {
			cat = (uint64_t)v;
		} else if (c->role == PL_R_PH) {
			middle = !strcmp(pl_intern_get(&s->seg->str, (pl_id)v), "t");
		} else if (c->role == PL_R_FLOW) {
			id = (uint64_t)v ^ (uint64_t)c->type << 60;
			any = true;
			if (slice != PL_NONE && c->type == PL_V_INT && same_corr(p, s, slice, v))
				return 0;
		}
	}
	if (slice == PL_NONE || !any)
		return 0;
	return bind(s, slice,
		    flow_hash(cat << 3 | 3, p->x.merge.n_segs, id ^ (uint64_t)b->name[w.row] << 32),
		    b->kind[w.row] == PL_K_FLOW_IN && !middle, false, err);
}

/* Walk over the items [from, to) of one track. */
static int walk(struct perfetto *p, struct perfetto_seg *s, size_t from, size_t to, bool write,
		struct pl_err *err)
{
	const struct pl_track *k = &s->seg->track[s->item[from].track];
	pl_ns tolerance = k->type == PL_T_STREAM ? 0 : TOLERANCE;

	s->n_subtracks = 0;
	for (size_t i = from; i < to; i++) {
		struct perfetto_item it = s->item[i];
		size_t l = 0;

		if (it.class == C_FLOW) {
			if (!write)
				PL_CHECK(bind_flow(p, s, &it, err));
			continue;
		}
		if (it.class == C_SLICE)
			while (l < s->n_subtracks &&
			       !fits(p, &s->subtrack[l], &it, tolerance, write))
				l++;
		if (l == s->n_subtracks)
			PL_CHECK(new_subtrack(s, err));
		if (write) {
			if (!s->subtrack[l].uuid)
				PL_CHECK(pl_export_perfetto_track(p, s, it.track, l,
								  &s->subtrack[l].uuid, err));
			PL_CHECK(pl_export_perfetto_begin(p, s, &it, s->subtrack[l].uuid, err));
		}
		if (it.class == C_SLICE) {
			struct perfetto_subtrack *under = &s->subtrack[l];

			PL_CHECK(pl_append(&under->open, &under->n, &under->cap, &it, sizeof(it),
					   err));
		}
	}
	for (size_t l = 0; l < s->n_subtracks; l++)
		while (s->subtrack[l].n)
			close_top(p, &s->subtrack[l], INT64_MAX, write);
	return 0;
}

/* Remove arrows with only one end. */
static int drop_single(struct perfetto_seg *s, struct pl_err *err)
{
	struct pl_intern seen = { 0 };
	uint32_t *count = NULL;
	size_t cap = 0;
	pl_id id = 0;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < s->n_bind; i++) {
			size_t before = seen.n;

			if (s->bind[i].match)
				continue;
			PL_TRY(pl_intern_add(&seen, (const char *)&s->bind[i].id, sizeof(uint64_t),
					     &id, err));
			PL_TRY(pl_grow(&count, &cap, (size_t)id + 1, sizeof(*count), err));
			if (id >= before)
				count[id] = 0;
			if (!pass)
				count[id]++;
			else if (count[id] < 2)
				s->bind[i].id = 0;
		}
	}
out:
	pl_intern_fini(&seen);
	pl_free(count);
	return rc;
}

/* ---- the sink -------------------------------------------------------------------------------- */

/* The first segment with events decides what is added to all times, because it is written before
 * the others are known. */
static void shift_times(struct perfetto *p, const struct perfetto_seg *s)
{
	bool merged = p->x.merge.present;
	pl_ns begin;
	char ns[32];

	if (s->earliest == INT64_MAX)
		return;
	if (!p->shifted && s->earliest < ROOM)
		p->shift = pl_add_sat(pl_sub_sat(0, pl_min_i64(s->earliest, 0)), merged ? ROOM : 0);
	p->shifted = true;
	begin = pl_add_sat(s->earliest, p->shift);
	if (begin < 0)
		pl_say(p->x.o.log, PL_LOG_WARN,
		       "%s: it begins %s before time 0, which Perfetto cannot show: events before "
		       "0 stand at 0; %s",
		       s->seg->source ? s->seg->source : "",
		       pl_fmt_ns(ns, sizeof(ns), pl_sub_sat(0, begin)),
		       merged ? "choose a later part (--time)"
			      : "merge puts files on one clock, --time chooses a later part");
}

static void seg_fini(struct perfetto_seg *s)
{
	for (size_t i = 0; i < s->n_rows; i++)
		pl_trace_row_values_fini(&s->rows[i]);
	for (size_t i = 0; i < s->made_subtracks; i++)
		pl_free(s->subtrack[i].open);
	pl_free(s->rows);
	pl_free(s->first);
	pl_free(s->item);
	pl_free(s->where);
	pl_free(s->head);
	pl_free(s->corr);
	pl_free(s->bind);
	pl_free(s->subtrack);
	pl_free(s->iid);
	pl_free(s->process);
}

static int emit(struct pl_export_base *x, struct pl_segment *seg, struct pl_err *err)
{
	struct perfetto *p = (struct perfetto *)x;
	struct perfetto_seg s = { .seg = seg, .earliest = INT64_MAX };
	int rc;

	PL_TRY(pl_alloc(&s.iid, P_TABLES * (seg->str.n + 1), sizeof(*s.iid), err));
	PL_TRY(pl_alloc(&s.process, seg->str.n + 1, sizeof(*s.process), err));
	PL_TRY(collect(p, &s, err));
	shift_times(p, &s);
	for (int write = 0; write < 2; write++) {
		if (write)
			PL_TRY(drop_single(&s, err));
		for (size_t i = 0, j; i < s.n_items; i = j) {
			for (j = i; j < s.n_items && s.item[j].track == s.item[i].track; j++)
				;
			PL_TRY(walk(p, &s, i, j, write, err));
			pl_write_flush(&x->t, FLUSH);
		}
	}
	for (size_t i = 0; i < x->hold.n; i++)
		PL_TRY(pl_export_perfetto_counters(p, &s, (uint32_t)i, err));
	pl_write_flush(&x->t, FLUSH);
	rc = pl_write_check(&x->t, err);
out:
	seg_fini(&s);
	return rc;
}

static int on_merge(struct pl_export_base *x, const struct pl_merge *m, struct pl_err *err)
{
	(void)m;
	(void)err;
	((struct perfetto *)x)->merge_no++;
	return 0;
}

static void fini(struct pl_export_base *x)
{
	struct perfetto *p = (struct perfetto *)x;

	for (int i = 0; i < P_TABLES; i++)
		pl_intern_fini(&p->table[i]);
	pl_intern_fini(&p->counter);
	pl_export_pids_fini(&p->pids);
	pl_write_fini(&p->event);
	pl_write_fini(&p->fresh);
	pl_free(p->counter_uuid);
}

const struct pl_exporter pl_export_perfetto = {
	.name = "perfetto",
	.summary =
		"Perfetto's native protobuf (TrackEvent), for ui.perfetto.dev and trace_processor",
	.binary = true,
	.kind = &(const struct pl_export_kind){ .size = sizeof(struct perfetto),
						.emit = emit,
						.matches = true,
						.on_merge = on_merge,
						.fini = fini },
};
