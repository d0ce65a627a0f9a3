/*
 * Rows for the sink: batches with equal columns, batches that wait for sizes, and segments.
 *
 * The order of columns is fixed within a segment (`def`), so the column number of a key is valid
 * for every batch, and the inner loop never searches. A segment ends when its strings exceed the
 * limit. If a source has very many different keys, the columns are dropped and begin again.
 */
#include "import/internal.h"

static void held_free(struct pl_held *h)
{
	if (!h)
		return;
	pl_trace_batch_fini(&h->b);
	pl_free(h->row);
	pl_free(h);
}

/* Add the columns to h that are new since its last use, in the order of `def`. */
static int top_up(struct pl_rows *r, struct pl_held *h, struct pl_err *err)
{
	uint32_t index;

	for (size_t i = h->b.n_cols; i < r->n_defs; i++) {
		const struct pl_coldef *d = &r->def[i];

		PL_CHECK(pl_trace_batch_col(&h->b, d->role, d->type, d->key, &index, err));
	}
	return 0;
}

static struct pl_held *held_get(struct pl_rows *r, struct pl_err *err)
{
	struct pl_held *h = NULL;

	if (r->n_spare) {
		h = r->spare[--r->n_spare];
	} else {
		if (pl_alloc(&h, 1, sizeof(*h), err) < 0)
			return NULL;
		if (pl_trace_batch_init(&h->b, err) < 0) {
			pl_free(h);
			return NULL;
		}
	}
	if (top_up(r, h, err) < 0) {
		held_free(h);
		return NULL;
	}
	return h;
}

static void drop_batches(struct pl_rows *r)
{
	while (r->n_spare)
		held_free(r->spare[--r->n_spare]);
	while (r->n_queue)
		held_free(r->queue[--r->n_queue]);
	held_free(r->cur);
	r->cur = NULL;
	r->n_defs = 0;
}

void pl_import_rows_init(struct pl_rows *r, struct pl_report *report, struct pl_in *in,
			 const struct pl_import_opts *o, struct pl_sink *sink,
			 struct pl_import_stats *st, const char *format, void *arg)
{
	*report = (struct pl_report){ .o = o, .st = st, .file = pl_in_name(in) };
	*r = (struct pl_rows){ .o = o,
			       .report = report,
			       .sink = sink,
			       .path = report->file,
			       .format = format,
			       .arg = arg };
}

int pl_import_rows_open(struct pl_rows *r, struct pl_err *err)
{
	PL_CHECK(pl_import_begin(&r->seg, r->path, r->format, err));
	r->err = err;
	r->seg.index = r->segments;
	r->seg.part = r->part;
	r->max_dictionary_bytes = r->whole		       ? SIZE_MAX
				  : r->o->max_dictionary_bytes ? r->o->max_dictionary_bytes
							       : PL_DICTIONARY_BYTES;
	r->open = true;
	if (r->sink->begin)
		PL_CHECK(r->sink->begin(r->sink, &r->seg, err));
	r->cur = held_get(r, err);
	return r->cur ? 0 : PL_ENOMEM;
}

int pl_import_rows_col(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, uint32_t *index,
		       struct pl_err *err)
{
	const struct pl_coldef def = { role, type, key };
	int rc = pl_trace_batch_col(&r->cur->b, role, type, key, index, err);

	if (rc < 0 || *index < r->n_defs)
		return rc;
	return pl_append(&r->def, &r->n_defs, &r->cap_defs, &def, sizeof(def), err);
}

void pl_import_rows_put_dec(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, int64_t val,
			    uint8_t scale)
{
	struct pl_col *c;
	uint32_t index;

	if (r->rc < 0 || (r->rc = pl_import_rows_col(r, role, type, key, &index, r->err)) < 0)
		return;
	c = &r->cur->b.col[index];
	if (!c->n || c->row[c->n - 1] != r->cur->b.n) /* given twice: the first counts */
		r->rc = pl_trace_col_put(c, r->cur->b.n, val, scale, r->err);
}

void pl_import_rows_put(struct pl_rows *r, uint8_t role, uint8_t type, pl_id key, int64_t val)
{
	pl_import_rows_put_dec(r, role, type, key, val, 0);
}

int pl_import_rows_str(struct pl_rows *r, const char *s, size_t n, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&r->seg.str, s, n, id, err);
}

pl_id pl_import_rows_text(struct pl_rows *r, const char *s, size_t n)
{
	pl_id id = PL_NONE;

	if (r->rc >= 0)
		r->rc = pl_import_rows_str(r, s, n, &id, r->err);
	return id;
}

pl_id pl_import_rows_format(struct pl_rows *r, const char *fmt, ...)
{
	char text[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return pl_import_rows_text(r, text, strlen(text));
}

void pl_import_rows_undo(struct pl_rows *r)
{
	struct pl_batch *b = &r->cur->b;

	for (uint32_t i = 0; i < b->n_cols; i++)
		while (b->col[i].n && b->col[i].row[b->col[i].n - 1] == b->n)
			b->col[i].n--;
	while (r->cur->n_rows && r->cur->row[r->cur->n_rows - 1].row == b->n)
		r->cur->n_rows--;
}

static int emit(struct pl_rows *r, struct pl_held *h, struct pl_err *err)
{
	int rc = 0;

	if (h->b.n) {
		if (r->comm && h->n_rows) {
			PL_TRY(top_up(r, h, err));
			PL_TRY(pl_import_comm_resolve(r->comm, r, h, err));
		}
		h->b.first = r->seg.n_events;
		if (r->sink->batch)
			PL_TRY(r->sink->batch(r->sink, &r->seg, &h->b, err));
		r->seg.n_events += h->b.n;
		r->report->st->events += h->b.n;
	}
	pl_trace_batch_clear(&h->b);
	h->n_rows = 0;
	r->spare[r->n_spare++] = h;
	return 0;
out:
	held_free(h);
	return rc;
}

/* Pass on the oldest `n` waiting batches. */
static int emit_queue(struct pl_rows *r, uint32_t n, struct pl_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		struct pl_held *h = r->queue[0];

		memmove(r->queue, r->queue + 1, --r->n_queue * sizeof(r->queue[0]));
		PL_CHECK(emit(r, h, err));
	}
	return 0;
}

static int end_segment(struct pl_rows *r, struct pl_err *err)
{
	if (r->finish)
		PL_CHECK(r->finish(r->arg, err));
	if (r->sink->end)
		PL_CHECK(r->sink->end(r->sink, &r->seg, err));
	drop_batches(r);
	pl_trace_segment_fini(&r->seg);
	r->open = false;
	r->segments++;
	if (r->comm)
		pl_import_comm_renew(r->comm);
	return 0;
}

int pl_import_rows_flush(struct pl_rows *r, bool last, struct pl_err *err)
{
	bool full = !last && pl_intern_bytes(&r->seg.str) > r->max_dictionary_bytes;
	bool many = r->n_defs > PL_MAX_COLS;
	struct pl_held *h = r->cur;

	last = last || full;
	r->cur = NULL;
	r->queue[r->n_queue++] = h;
	if (last || many || !r->comm || !pl_import_comm_hold(r->comm) ||
	    (r->n_queue == 1 && !h->n_rows))
		PL_CHECK(emit_queue(r, r->n_queue, err));
	else if (r->n_queue > PL_HOLD_MAX)
		PL_CHECK(emit_queue(r, 1, err));
	if (full) {
		PL_CHECK(end_segment(r, err));
		r->part++;
		PL_CHECK(pl_import_rows_open(r, err));
		if (r->again)
			PL_CHECK(r->again(r->arg, err));
	} else if (many) {
		drop_batches(r);
	}
	if (!r->cur)
		r->cur = held_get(r, err);
	if (!r->cur)
		return PL_ENOMEM;
	if ((full || many) && r->renew)
		r->renew(r->arg);
	return 0;
}

int pl_import_rows_again(struct pl_rows *r, struct pl_err *err)
{
	r->report->st->events -= r->seg.n_events;
	r->seg.n_events = 0;
	drop_batches(r);
	r->cur = held_get(r, err);
	if (!r->cur)
		return PL_ENOMEM;
	if (r->renew)
		r->renew(r->arg);
	return 0;
}

int pl_import_rows_close(struct pl_rows *r, struct pl_err *err)
{
	PL_CHECK(pl_import_rows_flush(r, true, err));
	r->part = 0;
	return end_segment(r, err);
}

void pl_import_rows_fini(struct pl_rows *r)
{
	drop_batches(r);
	pl_free(r->def);
	r->def = NULL;
	r->cap_defs = 0;
	if (r->open)
		pl_trace_segment_fini(&r->seg);
	r->open = false;
}
