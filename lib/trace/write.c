/*
 * The sink that writes trace(5). Before a block of events it writes the strings, tracks and
 * metadata that are new, so that no block refers to a later one. Definitions that change until the
 * end of the segment (its base time, the name of a thread) are written again there. Payloads are
 * made here, in order; the container and the pool compress them.
 */
#include "trace/internal.h"

struct writer {
	struct pl_sink sink; /* first */
	struct pl_container_writer *out;
	char *provenance;
	bool used; /* the open segment of the container has blocks */

	/* the part of the segment that has been written */
	size_t n_str, provenance_done;
	uint32_t n_meta, n_tracks;
	struct pl_numbered_track *track;
	size_t cap_track;
	struct pl_buf head; /* payload of the last SEGM block */
	bool signed_off;    /* the program's own line of provenance is written */
	uint64_t events;
	size_t typical; /* size of the last payload of events */
};

static int put(struct writer *w, uint32_t type, uint32_t count, struct pl_buf *b,
	       struct pl_err *err)
{
	int rc = pl_container_writer_put(w->out, type, PL_TRACE_BLOCK_VERSION, count, b, err);

	pl_buf_fini(b); /* empty, unless writing failed */
	return rc;
}

/* ---- definitions ----------------------------------------------------------------------------- */

static int flush_head(struct writer *w, const struct pl_segment *seg, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc = 0;

	pl_record_put_fields(&b, &pl_trace_record_segment, seg);
	if (seg->part)
		pl_io_put_varint(&b, seg->part);
	if (b.failed || b.n != w->head.n || memcmp(b.p, w->head.p, b.n) != 0) {
		w->head.n = 0;
		PL_TRY(pl_buf_put(&w->head, b.p, b.n, err));
		rc = put(w, PL_BLOCK_SEGM, 1, &b, err);
	}
out:
	pl_buf_fini(&b);
	return rc;
}

static int flush_provenance(struct writer *w, const struct pl_segment *seg, struct pl_err *err)
{
	const struct pl_buf *p = &seg->provenance;
	size_t done = w->provenance_done;
	int rc = pl_container_writer_put_provenance(w->out, PL_TRACE_BLOCK_VERSION,
						    p->p ? p->p + done : NULL, p->n - done,
						    w->signed_off ? NULL : w->provenance, err);

	w->provenance_done = p->n;
	w->signed_off = true;
	return rc;
}

static int flush_tracks(struct writer *w, const struct pl_segment *seg, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	uint32_t count = 0;
	int rc = 0;

	PL_TRY(pl_grow(&w->track, &w->cap_track, seg->n_tracks, sizeof(*w->track), err));
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		struct pl_numbered_track t = { i, seg->track[i] };

		if (i < w->n_tracks &&
		    pl_record_same_fields(&pl_trace_record_track, &w->track[i], &t))
			continue;
		PL_TRY(pl_record_put_entry(&b, &pl_trace_record_track, &t, NULL, err));
		w->track[i] = t;
		count++;
	}
	w->n_tracks = seg->n_tracks;
	if (count)
		PL_TRY(put(w, PL_BLOCK_TRAK, count, &b, err));
out:
	pl_buf_fini(&b);
	return rc;
}

static int flush_meta(struct writer *w, const struct pl_segment *seg, struct pl_err *err)
{
	uint32_t first = w->n_meta, n = seg->n_meta - first;
	struct pl_buf b = { 0 };

	for (uint32_t i = first; i < seg->n_meta; i++) {
		pl_io_put_varint(&b, (uint64_t)seg->meta[i].key + 1);
		pl_io_put_varint(&b, (uint64_t)seg->meta[i].value + 1);
	}
	w->n_meta = seg->n_meta;
	return n ? put(w, PL_BLOCK_META, n, &b, err) : 0;
}

static int flush(struct writer *w, const struct pl_segment *seg, struct pl_err *err)
{
	PL_CHECK(flush_head(w, seg, err));
	PL_CHECK(flush_provenance(w, seg, err));
	PL_CHECK(pl_container_writer_put_strings(w->out, PL_BLOCK_STRS, PL_TRACE_BLOCK_VERSION,
						 &seg->str, w->n_str, SIZE_MAX, err));
	w->n_str = seg->str.n;
	PL_CHECK(flush_tracks(w, seg, err));
	return flush_meta(w, seg, err);
}

/* ---- the sink -------------------------------------------------------------------------------- */

static int next_segment(struct writer *w, struct pl_err *err)
{
	int rc = w->used ? pl_container_writer_next_segment(w->out, err) : 0;

	w->used = true;
	return rc;
}

static int on_begin(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	struct writer *w = (struct writer *)sink;

	(void)seg;
	w->n_str = w->provenance_done = 0;
	w->n_meta = w->n_tracks = 0;
	w->head.n = 0;
	w->signed_off = false;
	w->events = 0;
	return next_segment(w, err);
}

static int put_events(struct writer *w, const struct pl_segment *seg, const struct pl_batch *e,
		      struct pl_err *err);

/*
 * Write rows [lo, hi) of a batch that exceeds a block. `row` is copied, because rows count from lo.
 */
static int put_slice(struct writer *w, const struct pl_segment *seg, const struct pl_batch *e,
		     uint32_t lo, uint32_t hi, struct pl_err *err)
{
	struct pl_batch s = { .n = hi - lo,
			      .kind = e->kind + lo,
			      .track = e->track + lo,
			      .name = e->name + lo,
			      .ts = e->ts + lo,
			      .dur = e->dur + lo };
	int rc;

	PL_TRY(pl_alloc(&s.col, e->n_cols, sizeof(*s.col), err));
	for (; s.n_cols < e->n_cols; s.n_cols++) {
		const struct pl_col *from = &e->col[s.n_cols];
		struct pl_col *to = &s.col[s.n_cols];
		uint32_t a = 0, b;

		while (a < from->n && from->row[a] < lo)
			a++;
		for (b = a; b < from->n && from->row[b] < hi; b++)
			;
		*to = *from;
		to->row = NULL;
		to->n = b - a;
		to->val = from->val ? from->val + a : NULL;
		to->scale = from->scale ? from->scale + a : NULL;
		if (to->n)
			PL_TRY(pl_alloc(&to->row, to->n, sizeof(*to->row), err));
		for (uint32_t i = 0; i < to->n; i++)
			to->row[i] = from->row[a + i] - lo;
	}
	rc = put_events(w, seg, &s, err);
out:
	for (uint32_t i = 0; s.col && i < s.n_cols; i++)
		pl_free(s.col[i].row);
	pl_free(s.col);
	return rc;
}

static int put_events(struct writer *w, const struct pl_segment *seg, const struct pl_batch *e,
		      struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	if (pl_trace_too_big(e)) {
		uint32_t half = e->n / 2;

		if (!half)
			return pl_fail(err, PL_ELIMIT, "one event has more than %u arguments",
				       PL_TRACE_COLS_MAX);
		PL_CHECK(put_slice(w, seg, e, 0, half, err));
		return put_slice(w, seg, e, half, e->n, err);
	}
	PL_TRY(pl_buf_need(&b, w->typical + w->typical / 8 + 4096, err));
	PL_TRY(pl_trace_put_events(&b, seg, e, w->events, err));
	w->typical = b.n;
	PL_TRY(put(w, PL_BLOCK_EVNT, e->n, &b, err));
	w->events += e->n;
out:
	pl_buf_fini(&b);
	return rc;
}

static int on_batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *e,
		    struct pl_err *err)
{
	struct writer *w = (struct writer *)sink;

	if (!e->n)
		return 0;
	PL_CHECK(flush(w, seg, err));
	return put_events(w, seg, e, err);
}

static int on_end(struct pl_sink *sink, struct pl_segment *seg, struct pl_err *err)
{
	return flush((struct writer *)sink, seg, err);
}

static int on_merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct writer *w = (struct writer *)sink;

	PL_CHECK(next_segment(w, err));
	return pl_trace_merge_write(m, w->out, err);
}

static void writer_free(struct writer *w)
{
	pl_free(w->provenance);
	pl_free(w->track);
	pl_buf_fini(&w->head);
	pl_free(w);
}

struct pl_sink *pl_trace_writer_open(struct pl_out *out, const struct pl_trace_writer_opts *opts,
				     struct pl_err *err)
{
	struct pl_container_writer_opts c = { .kind = PL_KIND_TRACE,
					      .major = PL_TRACE_MAJOR,
					      .minor = PL_TRACE_MINOR,
					      .level = opts->level,
					      .pool = opts->pool };
	struct writer *w;

	if (pl_alloc(&w, 1, sizeof(*w), err) < 0)
		return NULL;
	w->sink = (struct pl_sink){
		.begin = on_begin, .batch = on_batch, .end = on_end, .merge = on_merge
	};
	if (opts->provenance && !(w->provenance = pl_strdup(opts->provenance))) {
		pl_fail(err, PL_ENOMEM, "out of memory (provenance)");
		goto fail;
	}
	w->out = pl_container_writer_open(out, &c, err);
	if (w->out)
		return &w->sink;
fail:
	writer_free(w);
	return NULL;
}

int pl_trace_writer_close(struct pl_sink *s, struct pl_err *err)
{
	struct writer *w = (struct writer *)s;
	int rc = pl_container_writer_close(w->out, err);

	writer_free(w);
	return rc;
}

void pl_trace_writer_abort(struct pl_sink *s)
{
	struct writer *w = (struct writer *)s;

	if (!w)
		return;
	pl_container_writer_abort(w->out);
	writer_free(w);
}
