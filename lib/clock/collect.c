/*
 * Collects the communication of each trace, and the time of each rank's first event.
 *
 * One pass over the batches. Ranks, hosts and the base of a segment may become known only at its
 * end, so events have their track's number until then. String numbers are valid in all segments.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

#include "clock/internal.h"

struct track_span {
	pl_ns first; /* start of its first event, INT64_MAX: it has none */
	pl_ns last;  /* end of its last */
	/* the last host operation so far */
	pl_ns op, op_end;
};

struct pl_align_seg {
	struct track_span *track;
	size_t n_tracks, cap_tracks;
	pl_id *map; /* string of the segment -> string of pl_align, PL_NONE: not yet */
	size_t n_map, cap_map;
	uint32_t *row_ev; /* row of the batch -> ev, PL_NONE */
	struct pl_issue *issue;
	size_t ev0; /* first of this segment */
	uint64_t events;
};

/* ---- strings --------------------------------------------------------------------------------- */

static int global_id(struct pl_align *a, const struct pl_segment *seg, pl_id local, pl_id *id,
		     struct pl_err *err)
{
	struct pl_align_seg *c = a->cur;

	*id = PL_NONE;
	if (local >= seg->str.n)
		return 0;
	if (c->n_map < seg->str.n) {
		PL_CHECK(pl_grow(&c->map, &c->cap_map, seg->str.n, sizeof(*c->map), err));
		memset(c->map + c->n_map, 0xff, (seg->str.n - c->n_map) * sizeof(*c->map));
		c->n_map = seg->str.n;
	}
	if (c->map[local] == PL_NONE)
		PL_CHECK(pl_intern_add(&a->str, seg->str.str[local], seg->str.len[local],
				       &c->map[local], err));
	*id = c->map[local];
	return 0;
}

/* The value of a column as a string, for roles that are one. */
static int value_id(struct pl_align *a, const struct pl_segment *seg, const struct pl_col *c,
		    uint32_t i, pl_id *id, struct pl_err *err)
{
	char text[32];
	int n;

	*id = PL_NONE;
	if (c->type == PL_V_STR || c->type == PL_V_JSON)
		return global_id(a, seg, (pl_id)c->val[i], id, err);
	if (c->type != PL_V_INT)
		return 0;
	n = snprintf(text, sizeof(text), "%" PRId64, c->val[i]);
	return pl_intern_add(&a->str, text, (size_t)n, id, err);
}

/* ---- batches --------------------------------------------------------------------------------- */

static struct pl_align *align_of(struct pl_sink *s)
{
	return (struct pl_align *)(void *)((char *)s - offsetof(struct pl_align, sink));
}

static int seg_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_align *a = align_of(s);

	(void)seg;
	if (!a->cur) {
		PL_CHECK(pl_alloc(&a->cur, 1, sizeof(*a->cur), err));
		PL_CHECK(pl_alloc(&a->cur->row_ev, PL_BATCH_ROWS, sizeof(*a->cur->row_ev), err));
	}
	a->cur->n_tracks = a->cur->n_map = 0;
	a->cur->events = 0;
	a->cur->ev0 = a->n;
	return pl_clock_issue_begin(&a->cur->issue, err);
}

static int note_times(struct pl_align_seg *c, const struct pl_segment *seg,
		      const struct pl_batch *b, struct pl_err *err)
{
	PL_CHECK(pl_grow(&c->track, &c->cap_tracks, seg->n_tracks, sizeof(*c->track), err));
	for (; c->n_tracks < seg->n_tracks; c->n_tracks++)
		c->track[c->n_tracks] =
			(struct track_span){ INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN };
	for (uint32_t i = 0; i < b->n; i++) {
		struct track_span *t = &c->track[b->track[i]];

		if (b->dur[i] < 0)
			continue;
		t->first = pl_min_i64(t->first, b->ts[i]);
		t->last = pl_max_i64(t->last, pl_add_sat(b->ts[i], b->dur[i]));
	}
	c->events += b->n;
	return 0;
}

/* When the operation began that posts a send or receive: its event begins inside the operation, and
 * under load long after the data has gone. */
static pl_ns posted_at(const struct track_span *t, uint8_t kind, pl_ns ts)
{
	return kind != PL_K_COLLECTIVE && t->op <= ts && t->op_end >= ts ? t->op : ts;
}

static int add_row(struct pl_align *a, const struct pl_segment *seg, const struct pl_batch *b,
		   uint32_t row, struct pl_err *err)
{
	struct pl_comm *e;
	pl_ns dur = b->dur[row] > 0 ? b->dur[row] : 0;
	pl_ns ts = posted_at(&a->cur->track[b->track[row]], b->kind[row], b->ts[row]);

	if (a->n >= UINT32_MAX - 1 || b->first + row >= UINT32_MAX)
		return pl_fail(err, PL_ELIMIT,
			       "more than 2^32 events: cut the trace with trace --step or --time");
	PL_CHECK(pl_grow(&a->ev, &a->cap, a->n + 1, sizeof(*a->ev), err));
	e = &a->ev[a->n];
	*e = (struct pl_comm){ .ts = ts,
			       .turn = ts,
			       .end = pl_add_sat(b->ts[row], dur),
			       .seq = PL_NO_VALUE,
			       .step = PL_NO_VALUE,
			       .bytes = PL_NO_VALUE,
			       .of = PL_NO_VALUE,
			       .seg = (uint32_t)a->n_segs,
			       .event = (uint32_t)(b->first + row),
			       .rank = -1,
			       .peer = -1,
			       .src = -1,
			       .dst = -1,
			       .comm_stream = b->track[row],
			       .pair = PL_NONE,
			       .coll = PL_NONE,
			       .group = PL_NONE,
			       .ranks = PL_NONE,
			       .kind = b->kind[row],
			       .open = b->dur[row] < 0 };
	PL_CHECK(global_id(a, seg, b->name[row], &e->name, err));
	a->cur->row_ev[row] = (uint32_t)a->n++;
	return 0;
}

static void add_number(struct pl_comm *e, uint8_t role, int64_t v)
{
	int32_t *place = role == PL_R_SIZE	? &e->size
			 : role == PL_R_CHANNEL ? &e->channel
			 : role == PL_R_PEER	? &e->peer
			 : role == PL_R_SRC	? &e->src
			 : role == PL_R_DST	? &e->dst
						: NULL;
	int64_t *number = role == PL_R_SEQ				  ? &e->seq
			  : role == PL_R_STEP				  ? &e->step
			  : role == PL_R_BYTES				  ? &e->bytes
			  : role == PL_R_OF && e->kind != PL_K_COLLECTIVE ? &e->of
									  : NULL;

	if (number)
		*number = v;
	else if (place && v >= 0 && v <= INT32_MAX)
		*place = (int32_t)v;
}

static int add_column(struct pl_align *a, const struct pl_segment *seg, const struct pl_col *c,
		      struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < c->n && rc >= 0; i++) {
		uint32_t k = a->cur->row_ev[c->row[i]];
		struct pl_comm *e;

		if (k == PL_NONE)
			continue;
		e = &a->ev[k];
		if (c->role == PL_R_GROUP)
			rc = value_id(a, seg, c, i, &e->group, err);
		else if (c->role == PL_R_COLL)
			rc = value_id(a, seg, c, i, &e->coll, err);
		else if (c->role == PL_R_RANKS)
			rc = value_id(a, seg, c, i, &e->ranks, err);
		else if (c->type == PL_V_INT)
			add_number(e, c->role, c->val[i]);
	}
	return rc;
}

static int seg_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		     struct pl_err *err)
{
	struct pl_align *a = align_of(s);
	size_t before = a->n;

	PL_CHECK(note_times(a->cur, seg, b, err));
	for (uint32_t i = 0; i < b->n; i++) {
		struct track_span *t = &a->cur->track[b->track[i]];

		a->cur->row_ev[i] = PL_NONE;
		if (pl_trace_kind_is_comm(b->kind[i])) {
			PL_CHECK(add_row(a, seg, b, i, err));
		} else if (b->kind[i] == PL_K_HOST_OP) {
			t->op = b->ts[i];
			t->op_end = pl_add_sat(b->ts[i], b->dur[i]);
		}
	}
	for (uint32_t i = 0; a->n > before && i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];

		if (c->role < PL_R_COUNT_ && PL_CLOCK_ROLES & PL_ROLE_BIT(c->role))
			PL_CHECK(add_column(a, seg, c, err));
	}
	for (uint32_t i = 0; i < b->n; i++)
		if (a->cur->row_ev[i] != PL_NONE)
			a->cur->row_ev[i] = a->ev[a->cur->row_ev[i]].of == PL_NO_VALUE
						    ? a->cur->row_ev[i] - (uint32_t)a->cur->ev0
						    : PL_NONE;
	return pl_clock_issue_batch(a->cur->issue, seg, b, a->cur->row_ev, a->n - a->cur->ev0, err);
}

/* ---- the end of a segment -------------------------------------------------------------------- */

static int comm_stream_of(struct pl_align *a, const struct pl_track *t, uint32_t *comm_stream,
			  struct pl_err *err)
{
	bool stream = t->type == PL_T_STREAM;
	const struct pl_comm_stream key = { t->rank, stream ? t->device : -1,
					    stream ? t->stream : -1 };

	return pl_intern_add(&a->comm_streams, (const char *)&key, sizeof(key), comm_stream, err);
}

/* The entry of (this segment, rank); ids: by rank, the segment's entries in order. */
static int seg_rank(struct pl_align *a, struct pl_intern *ids, size_t sr0, int32_t rank,
		    uint32_t *index, struct pl_err *err)
{
	PL_CHECK(pl_grow(&a->sr, &a->cap_sr, a->n_sr + 1, sizeof(*a->sr), err));
	PL_CHECK(pl_intern_add(ids, (const char *)&rank, sizeof(rank), index, err));
	*index += (uint32_t)sr0;
	if (*index < a->n_sr)
		return 0;
	a->sr[a->n_sr++] = (struct pl_seg_rank){
		.seg = (uint32_t)a->n_segs,
		.rank = rank,
		.host = PL_NONE,
		.first = INT64_MAX,
		.last = INT64_MIN,
	};
	return 0;
}

static int seg_ranks(struct pl_align *a, const struct pl_segment *seg, size_t sr0,
		     uint32_t *track_sr, struct pl_err *err)
{
	struct pl_intern ids = { 0 };
	bool ranked = false;
	int rc = 0;

	for (uint32_t t = 0; t < seg->n_tracks; t++)
		ranked |= seg->track[t].rank >= 0;
	for (uint32_t t = 0; t < seg->n_tracks; t++) {
		const struct pl_track *k = &seg->track[t];
		struct pl_seg_rank *r;

		track_sr[t] = PL_NONE;
		if (ranked && k->rank < 0)
			continue;
		PL_TRY(seg_rank(a, &ids, sr0, k->rank < 0 ? -1 : k->rank, &track_sr[t], err));
		r = &a->sr[track_sr[t]];
		if (r->host == PL_NONE)
			PL_TRY(global_id(a, seg, k->host, &r->host, err));
		if (t < a->cur->n_tracks) {
			r->first = pl_min_i64(r->first, a->cur->track[t].first);
			r->last = pl_max_i64(r->last, a->cur->track[t].last);
		}
	}
	for (size_t i = sr0; i < a->n_sr; i++) {
		struct pl_seg_rank *r = &a->sr[i];
		bool none = r->first == INT64_MAX;

		r->first = none ? seg->base_ns : pl_add_sat(r->first, seg->base_ns);
		r->last = none ? seg->base_ns : pl_add_sat(r->last, seg->base_ns);
	}
	if (!ranked && a->cur->events && !a->n_unranked++)
		a->unranked = (uint32_t)a->n_segs;
out:
	pl_intern_fini(&ids);
	return rc;
}

static bool by_recorder(const struct pl_segment *seg)
{
	return seg->format && !strcmp(seg->format, PL_TRACE_RECORDER);
}

/* Is it a later part of the file that the segment before it began? The name of the file alone does
 * not tell: runs may write files of one name into several folders. */
static bool later_part(const struct pl_align *a, const struct pl_segment *seg)
{
	return a->n_segs && seg->source[0] && seg->part > a->prev_part &&
	       a->seg[a->n_segs - 1].source == a->seg[a->n_segs].source;
}

/*
 * An importer cuts a very long file into segments, its parts: a common process, other events. And
 * recorders of one process (libraries, a profiler) write a file each: a common process again.
 */
static int continues_file(struct pl_align *a, const struct pl_segment *seg, size_t sr0, bool *yes,
			  struct pl_err *err)
{
	pl_ns first = a->n_sr > sr0 ? a->sr[sr0].first : 0;
	struct pl_intern pids = { 0 };
	bool common = false;
	pl_id id;
	int rc = 0;

	for (uint32_t t = 0; t < seg->n_tracks; t++) {
		pl_id p = seg->track[t].pid;

		if (seg->track[t].rank < 0 || p >= seg->str.n)
			continue;
		common |=
			pl_intern_find(&a->prev_pids, seg->str.str[p], seg->str.len[p]) != PL_NONE;
		PL_TRY(pl_intern_add(&pids, seg->str.str[p], seg->str.len[p], &id, err));
	}
	*yes = common && a->n_segs && seg->source[0] &&
	       (later_part(a, seg) || by_recorder(seg) || a->prev_recorder) &&
	       !(first == a->prev_first && a->cur->events == a->prev_events);
	a->prev_recorder = by_recorder(seg);
	a->prev_part = seg->part;
	pl_intern_fini(&a->prev_pids);
	a->prev_pids = pids;
	pids = (struct pl_intern){ 0 };
	a->prev_first = first;
	a->prev_events = a->cur->events;
out:
	pl_intern_fini(&pids);
	return rc;
}

/* Where one file of a process names the host, it is that of the other one, too. */
static void same_host(struct pl_align *a, size_t sr0)
{
	for (size_t i = sr0; i < a->n_sr; i++) {
		struct pl_seg_rank *x = &a->sr[i];

		for (size_t k = sr0; k-- && a->sr[k].seg + 1 == x->seg;) {
			struct pl_seg_rank *y = &a->sr[k];

			if (y->rank != x->rank)
				continue;
			if (x->host == PL_NONE)
				x->host = y->host;
			else if (y->host == PL_NONE)
				y->host = x->host;
		}
	}
}

int pl_clock_note_ranks(struct pl_align *a, size_t sr0, struct pl_err *err)
{
	int rc = 0;
	pl_id id;

	for (size_t i = sr0; i < a->n_sr && rc >= 0; i++)
		if (a->sr[i].rank >= 0)
			rc = pl_intern_add(&a->rank_seen, (const char *)&a->sr[i].rank,
					   sizeof(a->sr[i].rank), &id, err);
	return rc;
}

bool pl_clock_has_rank(const struct pl_align *a, int64_t rank)
{
	int32_t r = (int32_t)rank;

	return r == rank && pl_intern_find(&a->rank_seen, (const char *)&r, sizeof(r)) != PL_NONE;
}

const char *pl_clock_source(const struct pl_align *a, uint32_t segment)
{
	const char *s = pl_intern_get(&a->str, a->seg[segment].source);

	return s[0] ? s : "unnamed";
}

/* Is a rank here that an earlier segment has too? recordings.c decides at the end which stay. */
static int check_duplicates(struct pl_align *a, size_t sr0, struct pl_err *err)
{
	const char *name = pl_clock_source(a, (uint32_t)a->n_segs);

	for (size_t i = sr0; i < a->n_sr; i++) {
		int32_t rank = a->sr[i].rank;
		uint32_t first = 0;

		if (rank < 0 || !pl_clock_has_rank(a, rank))
			continue;
		while (a->sr[first].rank != rank)
			first++;
		first = a->sr[first].seg;
		if (a->o.duplicates == PL_DUP_REFUSE)
			return pl_fail(err, PL_EDATA,
				       "segment %zu (%s): rank %d is in segment %u already (%s): "
				       "give ranks with trace --rank-from, or choose "
				       "merge --duplicates=newest, first or keep; to compare two "
				       "recordings, put each into a folder (type: replay A B)",
				       a->n_segs, name, rank, first, pl_clock_source(a, first));
		if (a->o.duplicates == PL_DUP_KEEP)
			pl_say(a->o.log, PL_LOG_NOTE,
			       "segment %zu (%s): rank %d is in segment %u too", a->n_segs, name,
			       rank, first);
		return 0;
	}
	return 0;
}

/*
 * Finds the peer. Profilers write it as a rank of the job or as a place in the group. It is a rank
 * if the group has this rank and it is not the event's own rank.
 */
static void settle_peer(const struct pl_align *a, struct pl_comm *e)
{
	const char *s = e->ranks != PL_NONE ? pl_intern_get(&a->str, e->ranks) : "";
	int32_t said = e->kind == PL_K_SEND ? e->dst : e->src, nth = -1, other = -1, rank;
	int n = 0;

	if (e->kind == PL_K_COLLECTIVE)
		return;
	e->peer = said >= 0 ? said : e->peer;
	for (; pl_clock_next_rank(&s, &rank); n++) {
		if (rank == e->peer && rank != e->rank)
			return;
		nth = n == e->peer ? rank : nth;
		other = rank != e->rank ? rank : other;
	}
	if (nth >= 0 && nth != e->rank)
		e->peer = nth;
	else if (e->peer < 0 && n == 2)
		e->peer = other;
}

/* Tracks become ranks and streams, local times absolute ones. */
static int settle_events(struct pl_align *a, const struct pl_segment *seg, const uint32_t *track_sr,
			 struct pl_err *err)
{
	size_t k = a->cur->ev0;

	for (size_t i = k; i < a->n; i++) {
		struct pl_comm e = a->ev[i];
		uint32_t track = e.comm_stream;

		if (track_sr[track] == PL_NONE || seg->track[track].rank < 0)
			continue;
		e.rank = seg->track[track].rank;
		e.clock = track_sr[track]; /* becomes a clock in pl_clock_clocks() */
		e.ts = pl_add_sat(e.ts, seg->base_ns);
		e.end = pl_add_sat(e.end, seg->base_ns);
		e.turn = pl_add_sat(e.turn, seg->base_ns);
		settle_peer(a, &e);
		if (e.of != PL_NO_VALUE) {
			PL_CHECK(pl_grow(&a->msg, &a->cap_msg, a->n_msg + 1, sizeof(*a->msg), err));
			a->msg[a->n_msg++] = e;
			continue;
		}
		PL_CHECK(comm_stream_of(a, &seg->track[track], &e.comm_stream, err));
		a->ev[k++] = e;
	}
	a->n = k;
	return 0;
}

static int seg_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_align *a = align_of(s);
	struct pl_align_segment *k;
	size_t sr0 = a->n_sr;
	uint32_t *track_sr = NULL;
	int rc;

	PL_TRY(pl_grow(&a->seg, &a->cap_segs, a->n_segs + 1, sizeof(*a->seg), err));
	k = &a->seg[a->n_segs];
	*k = (struct pl_align_segment){ .number = (uint32_t)a->n_segs };
	PL_TRY(pl_intern_add(&a->str, seg->source, strlen(seg->source), &k->source, err));
	PL_TRY(pl_alloc(&track_sr, seg->n_tracks + 1u, sizeof(*track_sr), err));
	PL_TRY(seg_ranks(a, seg, sr0, track_sr, err));
	PL_TRY(continues_file(a, seg, sr0, &k->continues, err));
	k->file = k->continues && a->n_segs ? k[-1].file : (uint32_t)a->n_segs;
	if (k->continues)
		same_host(a, sr0);
	else
		PL_TRY(check_duplicates(a, sr0, err));
	PL_TRY(pl_clock_note_ranks(a, sr0, err));
	PL_TRY(pl_clock_listed_note(a, seg, sr0, a->cur->ev0, err));
	PL_TRY(pl_clock_issue_settle(a, a->cur->issue, seg, a->cur->ev0, err));
	PL_TRY(settle_events(a, seg, track_sr, err));
	a->n_segs++;
out:
	pl_free(track_sr);
	return rc;
}

void pl_clock_collect_fini(struct pl_align *a)
{
	if (a->cur) {
		pl_free(a->cur->track);
		pl_free(a->cur->map);
		pl_free(a->cur->row_ev);
		pl_clock_issue_free(a->cur->issue);
		pl_free(a->cur);
	}
	pl_intern_fini(&a->prev_pids);
	pl_intern_fini(&a->rank_seen);
}

struct pl_sink *pl_clock_sink(struct pl_align *a)
{
	a->sink = (struct pl_sink){ .begin = seg_begin, .batch = seg_batch, .end = seg_end };
	return &a->sink;
}

uint32_t pl_clock_segments(const struct pl_align *a)
{
	return (uint32_t)a->n_segs;
}

bool pl_clock_dropped(const struct pl_align *a, uint32_t segment)
{
	return segment < a->n_segs && a->seg[segment].dropped;
}
