/*
 * Reading a whole stream of trace(5) into a sink.
 *
 * A state machine over the blocks of the container. Only its first block shows the type of a
 * segment, so the compressed header is kept until then (raw()). begin() is delayed until the first
 * events or the end, so that sinks see the name and strings of the source at once.
 *
 * With threads, the pool decodes blocks of events while the next ones are read, also those of the
 * next segment. So two segments may be open; the sink gets all blocks and the end of the older one
 * first. Blocks before a definition are delivered before it, unless the sink allows otherwise
 * (opts->ahead), because its results must not depend on the number of threads. A program that reads
 * members (raw) gets them in step with the sink, and salvage must find broken blocks at once: both
 * decode without threads.
 */
#include "core/pool.h"
#include "trace/internal.h"

/* Larger columns of a batch are freed, so that one unusual block does not keep memory for all. */
#define SPARE_VALUES (4u << 20)

enum state { NOTHING, HEADER, TRACE, MERGE };

struct span { /* a segment of a trace */
	struct pl_segment seg;
	bool open, begun; /* seg is initialised; the sink has begun it */
	unsigned waiting; /* number of its blocks that the sink has not got */
};

struct slot { /* a block of events */
	struct span *of;
	struct pl_buf bytes;
	struct pl_cur c;
	uint32_t count, ordinal;
	int64_t offset;
	struct pl_trace_want want;
	struct pl_batch batch;
	int rc;
	struct pl_err err;
	struct slot *next; /* list of unused slots */
};

struct reader {
	const struct pl_trace_reader_opts *opts;
	struct pl_in *in;
	struct pl_container_reader *blocks;
	struct pl_sink *sink;
	enum state state;
	bool decodes_ahead; /* blocks are decoded while others are read */
	bool broken;	    /* a part of the merge table was left out */
	struct pl_buf header;
	uint32_t n_segments; /* number of trace segments so far */
	struct span span[2], *now;
	struct pl_queue *queue;
	struct slot *free;
	struct pl_merge_in merge;
};

/* ---- segments -------------------------------------------------------------------------------- */

static int finish(struct reader *r, struct span *x, struct pl_err *err);

/* The older segment ends first; its blocks were delivered before those of this one. */
static int sink_begin(struct reader *r, struct span *x, struct pl_err *err)
{
	struct span *other = x == &r->span[0] ? &r->span[1] : &r->span[0];

	if (x->begun)
		return 0;
	x->begun = true;
	if (other->open && other->seg.index < x->seg.index)
		PL_CHECK(finish(r, other, err));
	return r->sink->begin ? r->sink->begin(r->sink, &x->seg, err) : 0;
}

static int give_up(struct reader *r, const char *what, struct pl_err *err)
{
	if (!r->opts->salvage || err->code != PL_EDATA)
		return err->code;
	pl_say(r->opts->log, PL_LOG_WARN, "%s; %s", err->msg, what);
	memset(err, 0, sizeof(*err));
	return 0;
}

/* Reports the fault of a block and its place. */
static int bad_block(struct reader *r, struct pl_err *why, uint32_t ordinal, int64_t offset,
		     struct pl_err *err)
{
	int rc;

	pl_wrap(why, "%s: block %u at byte %lld", pl_in_name(r->in), ordinal, (long long)offset);
	rc = give_up(r, r->state == MERGE ? "the merge is left out" : "block left out", why);
	if (rc < 0 && err)
		*err = *why;
	return rc;
}

/* ---- blocks of events ------------------------------------------------------------------------ */

static void decode(void *arg)
{
	struct slot *s = arg;

	s->rc = pl_trace_get_events(&s->c, s->count, &s->want, &s->batch, &s->err);
}

/* Pass the oldest block to the sink. */
static int deliver(struct reader *r, struct slot *s, struct pl_err *err)
{
	struct span *x = s->of;
	uint64_t ordinal = x->seg.n_events, first = s->batch.first;
	int rc;

	x->waiting--;
	s->next = r->free;
	r->free = s;
	if (s->rc >= 0 && (r->opts->salvage ? first < ordinal : first != ordinal))
		s->rc = pl_fail(&s->err, PL_EDATA, "events from %llu on, but %llu came before",
				(unsigned long long)first, (unsigned long long)ordinal);
	if (s->rc < 0)
		return bad_block(r, &s->err, s->ordinal, s->offset, err);
	x->seg.n_events = first + s->count;
	if (r->opts->events)
		*r->opts->events += s->count;
	rc = sink_begin(r, x, err);
	return rc >= 0 && r->sink->batch ? r->sink->batch(r->sink, &x->seg, &s->batch, err) : rc;
}

/* Deliver blocks until no block of x waits; x NULL: no block of any segment. */
static int deliver_all(struct reader *r, const struct span *x, struct pl_err *err)
{
	struct slot *s;
	int rc = 0;

	while (rc >= 0 && (!x || x->waiting) && (s = pl_queue_get(r->queue)))
		rc = deliver(r, s, err);
	return rc;
}

static int take_slot(struct reader *r, struct slot **slot, struct pl_err *err)
{
	struct slot *s;

	if (pl_queue_full(r->queue))
		PL_CHECK(deliver(r, pl_queue_get(r->queue), err));
	s = r->free;
	if (!s) {
		PL_CHECK(pl_alloc(&s, 1, sizeof(*s), err));
		r->free = s; /* freed with the reader */
		PL_CHECK(pl_trace_batch_init(&s->batch, err));
	}
	*slot = s;
	return 0;
}

/* The batch gets only the columns of its block, in their order, so that it does not depend on
 * earlier blocks of the slot and on the number of threads. Very large columns are freed. */
static void clear_batch(struct pl_batch *b)
{
	uint64_t held = 0;

	pl_trace_batch_forget(b);
	for (uint32_t i = 0; i < b->n_kept; i++)
		held += b->col[i].cap;
	for (uint32_t i = 0; held > SPARE_VALUES && i < b->n_kept; i++)
		pl_trace_col_drop(&b->col[i]);
}

/* Copy the current numbers, because the segment may grow while the block is decoded. */
static void note_want(const struct reader *r, struct slot *s)
{
	const struct pl_segment *seg = &s->of->seg;

	s->want.n_strings = seg->str.n;
	s->want.n_tracks = seg->n_tracks;
	s->want.roles = r->opts->roles;
	pl_trace_role_keys_note(&seg->str, s->want.key);
}

static int get_events(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct slot *s;

	PL_CHECK(take_slot(r, &s, err));
	clear_batch(&s->batch);
	s->of = r->now;
	s->count = b->count;
	s->ordinal = b->ordinal;
	s->offset = b->offset;
	s->rc = 0;
	memset(&s->err, 0, sizeof(s->err));
	note_want(r, s);
	s->c = (struct pl_cur){ .p = b->p, .end = b->p + b->n };
	if (r->decodes_ahead) {
		s->bytes.n = 0;
		PL_CHECK(pl_buf_put(&s->bytes, b->p, b->n, err));
		s->c = (struct pl_cur){ .p = s->bytes.p, .end = s->bytes.p + b->n };
	}
	r->free = s->next;
	r->now->waiting++;
	if (r->decodes_ahead) {
		pl_queue_put(r->queue, decode, s);
		return 0;
	}
	pl_queue_run(r->queue, decode, s);
	return deliver_all(r, NULL, err);
}

/* ---- beginnings and ends --------------------------------------------------------------------- */

static int finish(struct reader *r, struct span *x, struct pl_err *err)
{
	if (!x->open)
		return 0;
	PL_CHECK(deliver_all(r, x, err));
	PL_CHECK(sink_begin(r, x, err));
	if (r->sink->end)
		PL_CHECK(r->sink->end(r->sink, &x->seg, err));
	pl_trace_segment_fini(&x->seg);
	x->open = false;
	return 0;
}

/* The older one first. */
static int finish_all(struct reader *r, struct pl_err *err)
{
	PL_CHECK(finish(r, r->now == &r->span[0] ? &r->span[1] : &r->span[0], err));
	return finish(r, r->now, err);
}

static int end_merge(struct reader *r, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc = finish_all(r, err);

	if (rc < 0)
		return rc;
	if (!r->broken && pl_trace_merge_check(&r->merge, &why) < 0) {
		pl_wrap(&why, "%s", pl_in_name(r->in));
		r->broken = true;
		rc = give_up(r, "the merge is left out", &why);
		if (rc < 0 && err)
			*err = why;
	}
	if (rc >= 0 && !r->broken && r->sink->merge)
		rc = r->sink->merge(r->sink, &r->merge.m, err);
	pl_trace_merge_fini(&r->merge.m);
	memset(&r->merge, 0, sizeof(r->merge));
	return rc;
}

static int end_segment(struct reader *r, struct pl_err *err)
{
	enum state was = r->state;

	r->state = NOTHING;
	if (was == TRACE)
		return r->decodes_ahead ? 0 : finish(r, r->now, err);
	return was == MERGE ? end_merge(r, err) : 0;
}

static int begin_trace(struct reader *r, struct pl_err *err)
{
	r->state = TRACE;
	r->now = r->now == &r->span[0] ? &r->span[1] : &r->span[0];
	PL_CHECK(finish(r, r->now, err));
	PL_CHECK(pl_trace_segment_init(&r->now->seg, err));
	r->now->open = true;
	r->now->begun = false;
	r->now->seg.index = r->n_segments++;
	return 0;
}

static void begin_merge(struct reader *r)
{
	r->state = MERGE;
	r->broken = false;
	memset(&r->merge, 0, sizeof(r->merge));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int get_block(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	struct pl_segment *seg = &r->now->seg;

	if (r->state == MERGE && b->type == PL_BLOCK_PROVENANCE)
		return pl_record_get_provenance(&r->merge.m.provenance, b, err);
	if (r->state == MERGE && !pl_trace_merge_is_block(b->type))
		return 0;
	if (b->type != PL_BLOCK_PROVENANCE && b->version > PL_TRACE_BLOCK_VERSION &&
	    (pl_trace_merge_is_block(b->type) || b->type == PL_BLOCK_SEGM ||
	     b->type == PL_BLOCK_STRS || b->type == PL_BLOCK_TRAK || b->type == PL_BLOCK_META ||
	     b->type == PL_BLOCK_EVNT))
		return pl_fail(err, PL_EDATA,
			       "version %u of its type is newer than this program: use a newer one",
			       b->version);
	if (r->state == MERGE)
		return r->broken ? 0 : pl_trace_merge_get(&r->merge, b, err);
	switch (b->type) {
	case PL_BLOCK_PROVENANCE:
		return pl_record_get_provenance(&seg->provenance, b, err);
	case PL_BLOCK_SEGM:
		return pl_trace_get_segment(&c, seg, err);
	case PL_BLOCK_STRS:
		return pl_record_get_strings(&c, b->count, &seg->str, err);
	case PL_BLOCK_TRAK:
		return pl_trace_get_tracks(&c, b->count, seg, err);
	case PL_BLOCK_META:
		return pl_trace_get_meta(&c, b->count, seg, err);
	default:
		return 0;
	}
}

static int on_block(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	if (r->state == TRACE && b->type == PL_BLOCK_EVNT && b->version <= PL_TRACE_BLOCK_VERSION)
		return get_events(r, b, err);
	if (r->state == TRACE && !r->opts->ahead)
		PL_CHECK(deliver_all(r, r->now, err));
	rc = get_block(r, b, &why);
	if (rc >= 0)
		return 0;
	rc = deliver_all(r, NULL, err); /* errors are reported in the order of the stream */
	if (rc < 0)
		return rc;
	if (r->state == MERGE)
		r->broken = true;
	return bad_block(r, &why, b->ordinal, b->offset, err);
}

/* ---- raw members ----------------------------------------------------------------------------- */

static int pass_raw(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	const void *p;
	size_t n;

	if (!r->opts->raw)
		return 0;
	pl_container_reader_raw(r->blocks, &p, &n);
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
	pl_container_reader_raw(r->blocks, &p, &n);
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
		PL_CHECK(end_segment(r, err));
		return hold_header(r, err);
	}
	if (r->state == HEADER) {
		if (b->type == PL_BLOCK_MERG)
			begin_merge(r);
		else if (!marks)
			rc = begin_trace(r, err);
		if (rc < 0 || (rc = pass_header(r, b, err)) < 0)
			return rc;
		if (r->state == HEADER)
			r->state = NOTHING; /* only index and end: the segment is empty */
	}
	rc = pass_raw(r, b, err);
	return rc < 0 || marks || r->state == NOTHING ? rc : on_block(r, b, err);
}

static int open_reader(struct reader *r, struct pl_err *err)
{
	struct pl_container_reader_opts c = { .kind = PL_KIND_TRACE,
					      .major = PL_TRACE_MAJOR,
					      .salvage = r->opts->salvage,
					      .raw = r->opts->raw != NULL,
					      .pool = r->opts->pool,
					      .log = r->opts->log };
	int threads = pl_pool_threads(r->opts->pool);

	r->now = &r->span[0];
	r->decodes_ahead = threads > 1 && !r->opts->raw && !r->opts->salvage;
	r->queue = pl_queue_new(r->opts->pool, r->decodes_ahead ? 2 * threads : 1, err);
	r->blocks = r->queue ? pl_container_reader_open(r->in, &c, err) : NULL;
	return r->blocks ? 0 : err ? err->code : PL_EDATA;
}

static void close_reader(struct reader *r)
{
	struct slot *s;

	while (r->queue && (s = pl_queue_get(r->queue))) {
		s->next = r->free;
		r->free = s;
	}
	while ((s = r->free)) {
		r->free = s->next;
		pl_buf_fini(&s->bytes);
		pl_trace_batch_fini(&s->batch);
		pl_free(s);
	}
	pl_queue_free(r->queue);
	pl_container_reader_close(r->blocks);
	for (size_t i = 0; i < PL_LEN(r->span); i++)
		if (r->span[i].open)
			pl_trace_segment_fini(&r->span[i].seg);
	pl_trace_merge_fini(&r->merge.m);
	pl_buf_fini(&r->header);
}

#define HEAD ((size_t)64 << 10) /* has the header and the first block of a merge */

bool pl_trace_is_merged(struct pl_in *in)
{
	const struct pl_container_reader_opts o = { .kind = PL_KIND_TRACE,
						    .major = PL_TRACE_MAJOR };
	struct pl_container_reader *r = NULL;
	struct pl_in *head = NULL;
	struct pl_err ignored = { 0 };
	struct pl_block b = { 0 };
	const uint8_t *p;
	int64_t n = pl_in_peek(in, HEAD, &p, &ignored);

	if (n > 0)
		head = pl_in_open_mem(pl_in_name(in), p, (size_t)n, &ignored);
	if (head)
		r = pl_container_reader_open(head, &o, &ignored);
	while (r && pl_container_reader_next(r, &b, &ignored) > 0 && b.type == PL_BLOCK_SEGMENT)
		;
	pl_container_reader_close(r);
	pl_in_close(head);
	return b.type == PL_BLOCK_MERG;
}

int pl_trace_read(struct pl_in *in, const struct pl_trace_reader_opts *opts, struct pl_sink *sink,
		  struct pl_err *err)
{
	static const struct pl_trace_reader_opts plain;
	struct reader r = { .opts = opts ? opts : &plain, .in = in, .sink = sink };
	struct pl_err why = { 0 };
	struct pl_block b;
	int rc;

	PL_TRY(open_reader(&r, err));
	while ((rc = pl_container_reader_next(r.blocks, &b, &why)) > 0)
		PL_TRY(step(&r, &b, err));
	if (rc < 0) {
		PL_TRY(deliver_all(&r, NULL,
				   err)); /* errors are reported in the order of the stream */
		rc = why.code;
		if (err)
			*err = why;
		goto out;
	}
	PL_TRY(end_segment(&r, err));
	rc = finish_all(&r, err);
out:
	close_reader(&r);
	return rc;
}
