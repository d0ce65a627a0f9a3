/*
 * Reading a whole stream of trace(5) into a sink.
 *
 * A small machine over the container's blocks. What a segment is shows in its first block, so the
 * compressed header is held back until then (raw()), and begin() until the first events or the end,
 * so that sinks see the source's name and strings at once. With keep(), "#" must be a string of the
 * segment: it becomes number 0 and all numbers of the stream go through a map.
 */
#include <string.h>

#include "trace/internal.h"

/* Columns that a strange block left behind are given back when they hold more than this. */
#define SPARE_VALUES (4u << 20)

enum state { NOTHING, HEADER, TRACE, MERGE };

struct reader {
	const struct pl_trace_reader_opts *opts;
	struct pl_in *in;
	struct pl_creader *blocks;
	struct pl_sink *sink;
	enum state state;
	bool open, begun; /* seg is initialised; the sink knows it */
	bool broken;	  /* of a merge: something of it was given up */
	struct pl_buf header;
	uint32_t n_segments; /* trace segments so far */
	struct pl_segment seg;
	struct pl_batch batch;
	struct pl_merge_in merge;
	struct pl_trace_map map;
	struct pl_trace_keep keep;
	struct pl_trace_want want;
};

/* ---- segments -------------------------------------------------------------------------------- */

static int sink_begin(struct reader *r, struct pl_err *err)
{
	if (r->begun)
		return 0;
	r->begun = true;
	return r->sink->begin ? r->sink->begin(r->sink, &r->seg, err) : 0;
}

static int end_trace(struct reader *r, struct pl_err *err)
{
	int rc;

	PL_TRY(sink_begin(r, err));
	if (r->sink->end)
		PL_TRY(r->sink->end(r->sink, &r->seg, err));
out:
	pl_segment_fini(&r->seg);
	r->open = false;
	return rc;
}

static int give_up(struct reader *r, const char *what, struct pl_err *err)
{
	if (!r->opts->salvage || err->code != PL_EDATA)
		return err->code;
	pl_say(r->opts->log, PL_LOG_WARN, "%s; %s", err->msg, what);
	memset(err, 0, sizeof(*err));
	return 0;
}

static int end_merge(struct reader *r, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc = 0;

	if (!r->broken && pl_merge_check(&r->merge, &why) < 0) {
		pl_wrap(&why, "%s", pl_in_name(r->in));
		r->broken = true;
		rc = give_up(r, "the merge is left out", &why);
		if (rc < 0 && err)
			*err = why;
	}
	if (rc >= 0 && !r->broken && r->sink->merge)
		rc = r->sink->merge(r->sink, &r->merge.m, err);
	pl_merge_fini(&r->merge.m);
	memset(&r->merge, 0, sizeof(r->merge));
	return rc;
}

static int end_segment(struct reader *r, struct pl_err *err)
{
	enum state was = r->state;

	r->state = NOTHING;
	if (was == TRACE)
		return end_trace(r, err);
	return was == MERGE ? end_merge(r, err) : 0;
}

static int begin_trace(struct reader *r, struct pl_err *err)
{
	pl_id sharp;
	int rc;

	r->state = TRACE;
	r->begun = false;
	PL_TRY(pl_segment_init(&r->seg, err));
	r->open = true;
	r->seg.index = r->n_segments++;
	r->map.n = 0;
	if (r->opts->keep) {
		PL_TRY(pl_intern_add(&r->seg.str, "#", 1, &sharp, err));
		r->keep.ordinal_key = sharp;
	}
	/* Columns of another segment's keys would only be in the way. */
	pl_batch_fini(&r->batch);
	PL_TRY(pl_batch_init(&r->batch, err));
out:
	return rc;
}

static void begin_merge(struct reader *r)
{
	r->state = MERGE;
	r->broken = false;
	memset(&r->merge, 0, sizeof(r->merge));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void trim(struct reader *r)
{
	uint64_t held = 0;

	pl_batch_clear(&r->batch);
	for (uint32_t i = 0; i < r->batch.n_cols; i++)
		held += r->batch.col[i].cap;
	for (uint32_t i = 0; held > SPARE_VALUES && i < r->batch.n_cols; i++)
		pl_col_drop(&r->batch.col[i]);
}

static int get_provenance(struct pl_buf *p, const struct pl_block *b, struct pl_err *err)
{
	int rc = pl_buf_put(p, b->p, b->n, err);

	if (rc >= 0 && b->n && b->p[b->n - 1] != '\n')
		rc = pl_buf_put(p, "\n", 1, err);
	return rc;
}

static int get_events(struct reader *r, const struct pl_block *b, struct pl_cur *c,
		      struct pl_err *err)
{
	const struct pl_trace_keep *keep = r->opts->keep ? &r->keep : NULL;
	uint64_t ordinal = r->seg.n_events;
	int rc;

	trim(r);
	rc = pl_trace_get_events(c, b->count, &r->seg, keep ? &r->map : NULL, keep,
				 r->want.roles ? &r->want : NULL, &r->batch, err);
	if (rc >= 0 && (r->opts->salvage ? r->batch.first < ordinal : r->batch.first != ordinal))
		rc = pl_fail(err, PL_EDATA, "events from %llu on, but %llu came before",
			     (unsigned long long)r->batch.first, (unsigned long long)ordinal);
	if (rc < 0) {
		r->batch.n = 0;
		return rc;
	}
	r->seg.n_events = r->batch.first + b->count;
	return rc;
}

static int get_block(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	struct pl_trace_map *map = r->opts->keep ? &r->map : NULL;

	r->batch.n = 0;
	if (r->state == MERGE && b->type == PL_BLOCK_PROVENANCE)
		return get_provenance(&r->merge.m.provenance, b, err);
	if (r->state == MERGE && !pl_merge_is_block(b->type))
		return 0;
	if (b->type != PL_BLOCK_PROVENANCE && b->version > PL_TRACE_BLOCK_VERSION &&
	    (pl_merge_is_block(b->type) || b->type == PL_BLOCK_SEGM || b->type == PL_BLOCK_STRS ||
	     b->type == PL_BLOCK_TRAK || b->type == PL_BLOCK_META || b->type == PL_BLOCK_EVNT))
		return pl_fail(err, PL_EDATA,
			       "version %u of its type is newer than this program: use a newer one",
			       b->version);
	if (r->state == MERGE)
		return r->broken ? 0 : pl_merge_get(&r->merge, b, err);
	switch (b->type) {
	case PL_BLOCK_PROVENANCE:
		return get_provenance(&r->seg.provenance, b, err);
	case PL_BLOCK_SEGM:
		return pl_trace_get_segment(&c, &r->seg, err);
	case PL_BLOCK_STRS:
		return pl_trace_get_strings(&c, b->count, &r->seg, map, err);
	case PL_BLOCK_TRAK:
		return pl_trace_get_tracks(&c, b->count, &r->seg, map, err);
	case PL_BLOCK_META:
		return pl_trace_get_meta(&c, b->count, &r->seg, map, err);
	case PL_BLOCK_EVNT:
		return get_events(r, b, &c, err);
	default:
		return 0;
	}
}

static int on_block(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc = get_block(r, b, &why);

	if (rc < 0) {
		pl_wrap(&why, "%s: block %u at byte %lld", pl_in_name(r->in), b->ordinal,
			(long long)b->offset);
		if (r->state == MERGE)
			r->broken = true;
		rc = give_up(r, r->state == MERGE ? "the merge is left out" : "block left out",
			     &why);
		if (rc < 0) {
			if (err)
				*err = why;
			return rc;
		}
		return 0;
	}
	if (!r->batch.n)
		return 0;
	rc = sink_begin(r, err);
	return rc >= 0 && r->sink->batch ? r->sink->batch(r->sink, &r->seg, &r->batch, err) : rc;
}

/* ---- raw members ----------------------------------------------------------------------------- */

static int pass_raw(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	const void *p;
	size_t n;

	if (!r->opts->raw)
		return 0;
	pl_creader_raw(r->blocks, &p, &n);
	return r->opts->raw(r->opts->arg, b->segment, r->state == MERGE, p, n, err);
}

static int hold_header(struct reader *r, struct pl_err *err)
{
	const void *p;
	size_t n;

	r->state = HEADER;
	r->header.n = 0;
	if (!r->opts->raw)
		return 0;
	pl_creader_raw(r->blocks, &p, &n);
	return pl_buf_put(&r->header, p, n, err);
}

static int pass_header(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	if (!r->opts->raw)
		return 0;
	return r->opts->raw(r->opts->arg, b->segment, r->state == MERGE, r->header.p, r->header.n,
			    err);
}

static int step(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	bool marks = b->type == PL_BLOCK_INDEX || b->type == PL_BLOCK_END;
	int rc = 0;

	if (b->type == PL_BLOCK_SEGMENT) {
		rc = end_segment(r, err);
		return rc < 0 ? rc : hold_header(r, err);
	}
	if (r->state == HEADER) {
		if (b->type == PL_BLOCK_MERG)
			begin_merge(r);
		else if (!marks)
			rc = begin_trace(r, err);
		if (rc < 0 || (rc = pass_header(r, b, err)) < 0)
			return rc;
		if (r->state == HEADER)
			r->state = NOTHING; /* nothing but marks: the segment is empty */
	}
	rc = pass_raw(r, b, err);
	return rc < 0 || marks || r->state == NOTHING ? rc : on_block(r, b, err);
}

static int open_reader(struct reader *r, struct pl_err *err)
{
	struct pl_creader_opts c = { .kind = PL_KIND_TRACE,
				     .major = PL_TRACE_MAJOR,
				     .salvage = r->opts->salvage,
				     .raw = r->opts->raw != NULL,
				     .pool = r->opts->pool,
				     .log = r->opts->log };
	int rc;

	r->want = (struct pl_trace_want){ .roles = r->opts->roles, .arg = r->opts->args };
	while (r->want.arg && r->want.arg[r->want.n])
		r->want.n++;
	if (r->opts->keep) {
		r->keep.keep = r->opts->keep;
		r->keep.arg = r->opts->arg;
		rc = pl_alloc(&r->keep.row, PL_BATCH_ROWS, sizeof(*r->keep.row), err);
		if (rc < 0)
			return rc;
	}
	r->blocks = pl_creader_open(r->in, &c, err);
	return r->blocks ? 0 : err ? err->code : PL_EDATA;
}

int pl_trace_read(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_sink *sink,
		  struct pl_err *err)
{
	static const struct pl_trace_reader_opts plain;
	struct reader r = { .opts = opts ? opts : &plain, .in = in, .sink = sink };
	struct pl_block b;
	int rc;

	PL_TRY(open_reader(&r, err));
	while ((rc = pl_creader_next(r.blocks, &b, err)) > 0)
		PL_TRY(step(&r, &b, err));
	if (rc == 0)
		rc = end_segment(&r, err);
out:
	pl_creader_close(r.blocks);
	if (r.open)
		pl_segment_fini(&r.seg);
	pl_merge_fini(&r.merge.m);
	pl_batch_fini(&r.batch);
	pl_buf_fini(&r.header);
	pl_free(r.map.id);
	pl_free(r.keep.row);
	return rc;
}
