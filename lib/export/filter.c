/*
 * Choosing events. Kind and name are decided at once, by tables over kinds and strings; rank and
 * step at the segment's end, when tracks, steps and launches are known; a time window at the end of
 * the stream, when its first event is known. Whatever passes is copied into a segment of its own
 * with only the strings and tracks that it uses, so a small cut of a large trace is small.
 *
 * Steps: the STEP events of a rank, sorted; an event belongs to the one that contains its start, a
 * device operation to the one that contains its launch (found by correlation). O(n log n).
 */
#include <stdlib.h>
#include <string.h>

#include "export/internal.h"

/* Where rows go: into a sink, or (next NULL) into a hold. */
struct dest {
	struct pl_segment seg;
	struct pl_sink *next;
	struct x_hold hold;
	struct pl_batch b;
	pl_id *str, *track; /* by number in the source: ours, PL_NONE */
	size_t n_str, cap_str, n_track, cap_track;
	uint32_t n_meta; /* of the source, copied */
	bool ready, begun;
};

struct kept { /* a segment that waits for the end of the stream */
	struct dest d;
	struct x_merge merge; /* present: stood before the segment */
};

struct step {
	pl_ns t0, t1;
	int64_t step;
	int32_t rank;
	pl_id track, name;
	bool numbered;
};
struct launch {
	int64_t corr;
	pl_ns ts;
};

struct filter {
	struct pl_sink sink; /* first */
	const struct pl_filter *f;
	struct pl_sink *next;
	struct x_merge merge; /* clocks of the current segments */
	bool new_merge;	      /* not passed on yet */
	uint32_t n_segs;
	uint8_t kind[256]; /* passes */
	uint8_t *name;	   /* by string: 0 not looked at, 1 no, 2 passes */
	size_t n_name, cap_name;
	uint8_t *mask;
	struct dest d;
	struct x_hold hold; /* of the segment: what passed by kind and name */
	struct x_rows rows;
	struct step *step;
	struct launch *launch;
	size_t n_steps, cap_steps, n_launches, cap_launches;
	struct kept **kept;
	size_t n_kept, cap_kept;
	pl_ns *first; /* by track: first time */
	size_t n_first, cap_first;
	pl_ns t_min; /* start of the first event of the stream */
};

/* ---- copying rows ------------------------------------------------------------------------------
 */

static int map_str(struct dest *d, const struct pl_segment *s, pl_id id, pl_id *to,
		   struct pl_err *err)
{
	int rc = 0;

	*to = PL_NONE;
	if (id >= s->str.n)
		return 0;
	if (id >= d->n_str) {
		PL_TRY(pl_grow(&d->str, &d->cap_str, s->str.n, sizeof(*d->str), err));
		memset(d->str + d->n_str, 0xff, (s->str.n - d->n_str) * sizeof(*d->str));
		d->n_str = s->str.n;
	}
	if (d->str[id] == PL_NONE)
		PL_TRY(pl_intern_add(&d->seg.str, s->str.str[id], s->str.len[id], &d->str[id],
				     err));
	*to = d->str[id];
out:
	return rc;
}

static int copy_track(struct dest *d, const struct pl_segment *s, const struct pl_track *k,
		      struct pl_track *to, struct pl_err *err)
{
	int rc;

	*to = *k;
	PL_TRY(map_str(d, s, k->host, &to->host, err));
	PL_TRY(map_str(d, s, k->pid, &to->pid, err));
	PL_TRY(map_str(d, s, k->tid, &to->tid, err));
	PL_TRY(map_str(d, s, k->name, &to->name, err));
	PL_TRY(map_str(d, s, k->process, &to->process, err));
	PL_TRY(map_str(d, s, k->labels, &to->labels, err));
out:
	return rc;
}

static int map_track(struct dest *d, const struct pl_segment *s, pl_id id, pl_id *to,
		     struct pl_err *err)
{
	struct pl_track k;
	int rc = 0;

	*to = PL_NONE;
	if (id >= s->n_tracks)
		return 0;
	if (id >= d->n_track) {
		PL_TRY(pl_grow(&d->track, &d->cap_track, s->n_tracks, sizeof(*d->track), err));
		memset(d->track + d->n_track, 0xff, (s->n_tracks - d->n_track) * sizeof(*d->track));
		d->n_track = s->n_tracks;
	}
	if (d->track[id] == PL_NONE) {
		PL_TRY(copy_track(d, s, &s->track[id], &k, err));
		PL_TRY(pl_segment_track(&d->seg, &k, &d->track[id], err));
	}
	*to = d->track[id];
out:
	return rc;
}

static int copy_text(char **to, const char *from, struct pl_err *err)
{
	pl_free(*to);
	*to = pl_strdup(from ? from : "");
	return *to ? 0 : pl_fail(err, PL_ENOMEM, "out of memory");
}

/* What of the segment may have changed since the last time. */
static int sync_segment(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	int rc = 0;

	d->seg.base_ns = s->base_ns;
	PL_TRY(copy_text(&d->seg.source, s->source, err));
	PL_TRY(copy_text(&d->seg.format, s->format, err));
	d->seg.provenance.n = 0;
	PL_TRY(pl_buf_put(&d->seg.provenance, s->provenance.p, s->provenance.n, err));
	for (; d->n_meta < s->n_meta; d->n_meta++) {
		size_t nk, nv;
		const char *k = x_str(s, s->meta[d->n_meta].key, &nk);
		const char *v = x_str(s, s->meta[d->n_meta].value, &nv);

		PL_TRY(pl_segment_meta(&d->seg, k, nk, v, nv, err));
	}
	for (size_t i = 0; i < d->n_track; i++)
		if (d->track[i] != PL_NONE)
			PL_TRY(copy_track(d, s, &s->track[i], &d->seg.track[d->track[i]], err));
out:
	return rc;
}

static int dest_init(struct dest *d, struct pl_sink *next, uint32_t index, struct pl_err *err)
{
	int rc;

	memset(d, 0, sizeof(*d));
	d->next = next;
	rc = pl_segment_init(&d->seg, err);
	if (rc < 0)
		return rc;
	d->ready = true;
	d->seg.index = index;
	return pl_batch_init(&d->b, err);
}

static void dest_fini(struct dest *d)
{
	if (!d->ready)
		return;
	pl_segment_fini(&d->seg);
	pl_batch_fini(&d->b);
	x_hold_fini(&d->hold);
	pl_free(d->str);
	pl_free(d->track);
	memset(d, 0, sizeof(*d));
}

static int dest_begin(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	int rc = 0;

	if (d->begun)
		return 0;
	d->begun = true;
	PL_TRY(sync_segment(d, s, err));
	if (d->next && d->next->begin)
		rc = d->next->begin(d->next, &d->seg, err);
out:
	return rc;
}

static int copy_col(struct dest *d, const struct pl_segment *s, const struct pl_col *c,
		    const uint32_t *to, struct pl_err *err)
{
	bool text = c->type == PL_V_STR || c->type == PL_V_JSON;
	uint32_t at = PL_NONE;
	pl_id key, id;
	int rc = 0;

	for (uint32_t k = 0; k < c->n; k++) {
		int64_t v = c->val[k];

		if (to[c->row[k]] == PL_NONE)
			continue;
		if (at == PL_NONE) {
			PL_TRY(map_str(d, s, c->key, &key, err));
			PL_TRY(pl_batch_col(&d->b, c->role, c->type, key, &at, err));
		}
		if (text) {
			PL_TRY(map_str(d, s, (pl_id)v, &id, err));
			v = id;
		}
		PL_TRY(pl_col_put(&d->b.col[at], to[c->row[k]], v, c->scale ? c->scale[k] : 0,
				  err));
	}
out:
	return rc;
}

/* The rows of b for which mask[row] is set; to: scratch of b->n. */
static int dest_rows(struct dest *d, const struct pl_segment *s, const struct pl_batch *b,
		     const uint8_t *mask, struct pl_err *err)
{
	struct pl_batch *o = &d->b;
	uint32_t *to = NULL;
	int rc;

	PL_TRY(pl_alloc(&to, (size_t)b->n + 1, sizeof(*to), err));
	pl_batch_clear(o);
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
		rc = x_hold_add(&d->hold, o, NULL, err);
	else if (d->next->batch)
		rc = d->next->batch(d->next, &d->seg, o, err);
	d->seg.n_events += o->n;
out:
	pl_free(to);
	return rc;
}

static int dest_end(struct dest *d, const struct pl_segment *s, struct pl_err *err)
{
	int rc = 0;

	if (!d->begun)
		return 0;
	PL_TRY(sync_segment(d, s, err));
	if (d->next && d->next->end)
		rc = d->next->end(d->next, &d->seg, err);
out:
	return rc;
}

/* ---- kind and name -----------------------------------------------------------------------------
 */

static void decide_kinds(struct filter *x)
{
	const char *g = x->f->kind;

	for (unsigned k = 0; k < 256; k++)
		x->kind[k] = !g || pl_glob(g, pl_kind_name(k)) ||
			     (pl_kind_is_comm(k) && pl_glob(g, "comm")) ||
			     ((k == PL_K_KERNEL || k == PL_K_HOST_OP) && pl_glob(g, "compute"));
}

static int name_passes(struct filter *x, const struct pl_segment *s, pl_id id, bool *yes,
		       struct pl_err *err)
{
	int rc = 0;

	*yes = true;
	if (!x->f->name)
		return 0;
	if (id >= s->str.n) {
		*yes = pl_glob(x->f->name, "");
		return 0;
	}
	if (id >= x->n_name) {
		PL_TRY(pl_grow(&x->name, &x->cap_name, s->str.n, 1, err));
		memset(x->name + x->n_name, 0, s->str.n - x->n_name);
		x->n_name = s->str.n;
	}
	if (!x->name[id])
		x->name[id] = pl_glob(x->f->name, s->str.str[id]) ? 2 : 1;
	*yes = x->name[id] == 2;
out:
	return rc;
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static int note_steps(struct filter *x, const struct pl_batch *b, struct pl_err *err)
{
	size_t first = x->n_steps;
	int rc = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		if (b->kind[i] != PL_K_STEP || b->dur[i] < 0)
			continue;
		PL_TRY(pl_grow(&x->step, &x->cap_steps, x->n_steps + 1, sizeof(*x->step), err));
		x->step[x->n_steps++] = (struct step){ .t0 = b->ts[i],
						       .t1 = pl_add_sat(b->ts[i], b->dur[i]),
						       .step = i,
						       .track = b->track[i],
						       .name = b->name[i] };
	}
	for (uint32_t c = 0; c < b->n_cols; c++) {
		const struct pl_col *col = &b->col[c];
		bool steps = col->role == PL_R_STEP && col->type == PL_V_INT;
		size_t j = first;

		if (!steps && (col->role != PL_R_CORR || col->type != PL_V_INT))
			continue;
		for (uint32_t k = 0; k < col->n; k++) {
			uint32_t i = col->row[k];

			if (!steps && b->kind[i] == PL_K_RUNTIME) {
				PL_TRY(pl_grow(&x->launch, &x->cap_launches, x->n_launches + 1,
					       sizeof(*x->launch), err));
				x->launch[x->n_launches++] =
					(struct launch){ col->val[k], b->ts[i] };
			}
			if (!steps || b->kind[i] != PL_K_STEP || b->dur[i] < 0)
				continue;
			while (j < x->n_steps && x->step[j].step < (int64_t)i)
				j++;
			if (j < x->n_steps) {
				x->step[j].step = col->val[k];
				x->step[j++].numbered = true;
			}
		}
	}
	/* those without a number have one at the end of their name, when the segment ends */
out:
	return rc;
}

static int by_rank_time(const void *pa, const void *pb)
{
	const struct step *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->t0 < b->t0 ? -1 : a->t0 > b->t0;
}

static int by_corr(const void *pa, const void *pb)
{
	const struct launch *a = pa, *b = pb;

	if (a->corr != b->corr)
		return a->corr < b->corr ? -1 : 1;
	return a->ts < b->ts ? -1 : a->ts > b->ts;
}

static int64_t number_at_end(const struct pl_segment *s, pl_id name)
{
	size_t n, i;
	const char *p = x_str(s, name, &n);
	int64_t v;

	for (i = n; i && p[i - 1] >= '0' && p[i - 1] <= '9' && n - i < 18; i--)
		;
	return i < n && pl_json_i64(p + i, n - i, &v) ? v : INT64_MIN;
}

static void sort_steps(struct filter *x, const struct pl_segment *s)
{
	for (size_t i = 0; i < x->n_steps; i++) {
		struct step *p = &x->step[i];

		p->rank = p->track < s->n_tracks ? s->track[p->track].rank : -1;
		if (!p->numbered)
			p->step = number_at_end(s, p->name);
	}
	if (x->n_steps)
		qsort(x->step, x->n_steps, sizeof(*x->step), by_rank_time);
	if (x->n_launches)
		qsort(x->launch, x->n_launches, sizeof(*x->launch), by_corr);
}

static int64_t step_at(const struct filter *x, int32_t rank, pl_ns t)
{
	size_t lo = 0, hi = x->n_steps;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct step *p = &x->step[mid];

		if (p->rank < rank || (p->rank == rank && p->t0 <= t))
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || x->step[lo - 1].rank != rank || t >= x->step[lo - 1].t1)
		return INT64_MIN;
	return x->step[lo - 1].step;
}

static pl_ns launch_of(const struct filter *x, int64_t corr, pl_ns t)
{
	size_t lo = 0, hi = x->n_launches;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->launch[mid].corr < corr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->n_launches && x->launch[lo].corr == corr ? x->launch[lo].ts : t;
}

/* Step of a row: recorded, its own number, or by time. */
static int64_t step_of(const struct filter *x, const struct pl_segment *s, const struct pl_batch *b,
		       uint32_t i)
{
	const struct pl_track *k = b->track[i] < s->n_tracks ? &s->track[b->track[i]] : NULL;
	pl_ns t = b->ts[i];

	for (uint32_t e = x->rows.off[i]; e < x->rows.off[i + 1]; e++) {
		const struct pl_col *c = &b->col[x->rows.ent[e].col];
		int64_t v = c->val[x->rows.ent[e].k];

		if (c->type != PL_V_INT)
			continue;
		if (c->role == PL_R_STEP)
			return v;
		if ((c->role == PL_R_CORR || c->role == PL_R_FLOW) && k && k->type != PL_T_THREAD)
			t = launch_of(x, v, t);
	}
	if (b->kind[i] == PL_K_STEP)
		return number_at_end(s, b->name[i]);
	return step_at(x, k ? k->rank : -1, t);
}

static bool wanted_step(const struct pl_filter *f, int64_t step)
{
	for (uint32_t i = 0; i < f->n_steps; i++)
		if (step != INT64_MIN && step >= f->step[2 * i] && step <= f->step[2 * i + 1])
			return true;
	return !f->n_steps;
}

static bool wanted_rank(const struct pl_filter *f, int32_t rank)
{
	for (uint32_t i = 0; i < f->n_ranks; i++)
		if (f->rank[i] == rank)
			return true;
	return !f->n_ranks;
}

/* ---- the sink ----------------------------------------------------------------------------------
 */

static bool holds(const struct filter *x)
{
	return x->f->n_ranks || x->f->n_steps || x->f->has_time;
}

static int pass_merge(struct pl_sink *next, const struct x_merge *m, struct pl_err *err)
{
	struct pl_merge clocks = m->m;

	clocks.n_matches = clocks.n_members = 0;
	return next->merge ? next->merge(next, &clocks, err) : 0;
}

static int on_merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;
	int rc = x_merge_take(&x->merge, m, err);

	x->merge.rel = x->n_segs ? UINT32_MAX : 0;
	x->new_merge = true;
	return rc < 0 || x->f->has_time ? rc : pass_merge(x->next, &x->merge, err);
}

static int on_begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;
	int rc;

	if (x->n_segs++)
		x->merge.rel++;
	x->n_name = x->n_steps = x->n_launches = x->n_first = 0;
	x_hold_reset(&x->hold);
	dest_fini(&x->d);
	rc = dest_init(&x->d, x->f->has_time ? NULL : x->next, seg->index, err);
	if (rc >= 0 && x->merge.present)
		rc = dest_begin(&x->d, seg, err);
	return rc;
}

/* Base and clock of a track may be known only at the end: the first time of each is kept. */
static int note_first(struct filter *x, const struct pl_segment *seg, const struct pl_batch *b,
		      struct pl_err *err)
{
	int rc = pl_grow(&x->first, &x->cap_first, seg->n_tracks, sizeof(*x->first), err);

	if (rc < 0)
		return rc;
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
	int rc = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		yes = x->kind[b->kind[i]];
		if (yes)
			PL_TRY(name_passes(x, seg, b->name[i], &yes, err));
		x->mask[i] = yes;
	}
	if (!holds(x)) {
		rc = dest_rows(&x->d, seg, b, x->mask, err);
		goto out;
	}
	if (x->f->n_steps)
		PL_TRY(note_steps(x, b, err));
	if (x->f->has_time)
		PL_TRY(note_first(x, seg, b, err));
	rc = x_hold_add(&x->hold, b, x->mask, err);
out:
	return rc;
}

/* Rank and step of the rows that were held; what passes goes into the destination. */
static int pass_held(struct filter *x, const struct pl_segment *seg, struct pl_err *err)
{
	int rc = 0;

	sort_steps(x, seg);
	for (size_t j = 0; j < x->hold.n; j++) {
		const struct pl_batch *b = &x->hold.b[j];

		PL_TRY(x_rows_build(&x->rows, b, err));
		for (uint32_t i = 0; i < b->n; i++) {
			int32_t rank =
				b->track[i] < seg->n_tracks ? seg->track[b->track[i]].rank : -1;

			x->mask[i] = wanted_rank(x->f, rank) &&
				     (!x->f->n_steps || wanted_step(x->f, step_of(x, seg, b, i)));
		}
		PL_TRY(dest_rows(&x->d, seg, b, x->mask, err));
	}
out:
	x_hold_reset(&x->hold);
	return rc;
}

/* The destination waits for the end of the stream. */
static int keep(struct filter *x, struct pl_err *err)
{
	struct kept *k;
	int rc = pl_grow(&x->kept, &x->cap_kept, x->n_kept + 1, sizeof(struct kept *), err);

	if (rc < 0 || (rc = pl_alloc(&k, 1, sizeof(*k), err)) < 0)
		return rc;
	x->kept[x->n_kept++] = k;
	k->d = x->d;
	memset(&x->d, 0, sizeof(x->d));
	if (x->new_merge)
		PL_TRY(x_merge_take(&k->merge, &x->merge.m, err));
	x->new_merge = false;
out:
	return rc;
}

static int on_end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct filter *x = (struct filter *)sink;
	int rc = 0;

	for (size_t i = 0; i < x->n_first; i++)
		if (x->first[i] != INT64_MAX)
			x->t_min = pl_min_i64(
				x->t_min,
				pl_clock_apply(x_merge_clock(&x->merge, seg->track[i].rank),
					       pl_add_sat(x->first[i], seg->base_ns)));
	if (holds(x))
		PL_TRY(pass_held(x, seg, err));
	PL_TRY(dest_end(&x->d, seg, err));
	if (x->f->has_time)
		rc = keep(x, err);
out:
	return rc;
}

struct pl_sink *pl_filter_open(const struct pl_filter *f, struct pl_sink *next, struct pl_err *err)
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

static int finish_segment(struct filter *x, struct kept *k, struct pl_err *err)
{
	struct dest *d = &k->d;
	pl_ns t0 = pl_add_sat(x->t_min, x->f->t0), t1 = pl_add_sat(x->t_min, x->f->t1);
	int rc = 0;

	dest_fini(&x->d);
	PL_TRY(dest_init(&x->d, x->next, d->seg.index, err));
	if (x->merge.present)
		PL_TRY(dest_begin(&x->d, &d->seg, err));
	for (size_t j = 0; j < d->hold.n; j++) {
		const struct pl_batch *b = &d->hold.b[j];

		for (uint32_t i = 0; i < b->n; i++) {
			int32_t rank =
				b->track[i] < d->seg.n_tracks ? d->seg.track[b->track[i]].rank : -1;
			pl_ns t = pl_clock_apply(x_merge_clock(&x->merge, rank),
						 pl_add_sat(b->ts[i], d->seg.base_ns));

			x->mask[i] = t <= t1 && pl_add_sat(t, b->dur[i] > 0 ? b->dur[i] : 0) >= t0;
		}
		PL_TRY(dest_rows(&x->d, &d->seg, b, x->mask, err));
	}
	rc = dest_end(&x->d, &d->seg, err);
out:
	return rc;
}

int pl_filter_finish(struct pl_sink *s, struct pl_err *err)
{
	struct filter *x = (struct filter *)s;
	int rc = 0;

	x_merge_fini(&x->merge);
	for (size_t i = 0; rc >= 0 && i < x->n_kept; i++) {
		struct kept *k = x->kept[i];

		if (k->merge.present) {
			PL_TRY(x_merge_take(&x->merge, &k->merge.m, err));
			PL_TRY(pass_merge(x->next, &x->merge, err));
		} else if (i) {
			x->merge.rel++;
		}
		rc = finish_segment(x, k, err);
	}
out:
	return rc;
}

void pl_filter_close(struct pl_sink *s)
{
	struct filter *x = (struct filter *)s;

	if (!x)
		return;
	for (size_t i = 0; i < x->n_kept; i++) {
		dest_fini(&x->kept[i]->d);
		x_merge_fini(&x->kept[i]->merge);
		pl_free(x->kept[i]);
	}
	pl_free(x->kept);
	dest_fini(&x->d);
	x_merge_fini(&x->merge);
	x_hold_fini(&x->hold);
	x_rows_fini(&x->rows);
	pl_free(x->name);
	pl_free(x->mask);
	pl_free(x->step);
	pl_free(x->launch);
	pl_free(x->first);
	pl_free(x);
}
